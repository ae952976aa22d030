// The reference interpreter (DEV=REF): runs a linear program directly, with every float value in double precision.
//
// It checks everything between the graph and the machine: slow, simple and strict. Float values are doubles; only a
// STORE rounds F32 and F64. F16 and BF16 are storage formats: a CAST to one rounds (to nearest even) as its STORE does,
// because the result must not depend on whether the scheduler stores such a value. A BITCAST uses the real bits.
// Integers are exact and wrap according to their dtype. Every access is checked against the number of elements of its
// PARAM; an access out of bounds, or a division by zero, ends the process with the node's text. It accepts programs for
// any CPU target, and those with target.keeps_math: EXP2 LOG2 SIN RECIP IDIV MOD, BF16, IDX.
#ifndef WEFT_DEVICE_REF_H
#define WEFT_DEVICE_REF_H
#include "codegen/program.h"

typedef struct ref_kernel ref_kernel;
ref_kernel *
// never NULL; needs neither p nor its graph afterwards; ends the process on ops of GPU programs
ref_compile(const program *p);
// Runs tiles lo..hi-1 (a program without a tile loop ignores both).  Several threads may run one kernel at once.
void ref_run(const ref_kernel *k, unsigned char *const *bufs, const int64_t *vars, int64_t lo, int64_t hi);
void ref_free(ref_kernel *k);                    // NULL is fine
extern const target ref_target;                  // target for codegen: scalar code with math ops
#endif
