// The reference interpreter (DEV=REF): runs a linear program directly, every float value in double precision.
//
// It is the second opinion on everything between the graph and the machine: slow, simple, and strict.  Floats are
// doubles while they are values, and what is F32 or F64 is rounded by a STORE to memory alone.  F16 and BF16 are
// formats for storage, so a CAST to one rounds (to nearest even) as its STORE does: whether the scheduler stores such a
// value or keeps it must not change the result.  A BITCAST goes through the real bits.  Integers are exact and wrap as
// their dtype does.  Every access is checked against the number of elements of its PARAM; one outside, and any division
// by zero, ends the process with the node's text. It takes programs made for any CPU target, and those with
// target.keeps_math: EXP2 LOG2 SIN RECIP IDIV MOD, BF16, IDX.
#ifndef WEFT_DEVICE_REF_H
#define WEFT_DEVICE_REF_H
#include "codegen/program.h"

typedef struct ref_kernel ref_kernel;
ref_kernel *
ref_compile(const program *p);  // never NULL; needs neither p nor its graph afterwards; dies on ops of GPU programs
// Runs tiles lo..hi-1 (a program without a tile loop ignores both).  Several threads may run one kernel at once.
void ref_run(const ref_kernel *k, unsigned char *const *bufs, const int64_t *vars, int64_t lo, int64_t hi);
void ref_free(ref_kernel *k);                    // NULL is fine
extern const target ref_target;                  // what to ask of codegen: scalar code with its math kept
#endif
