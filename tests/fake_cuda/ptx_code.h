// A kernel as ptx.c reads it and ptx_run.c runs it.
#ifndef WEFT_TEST_PTX_CODE_H
#define WEFT_TEST_PTX_CODE_H
#include "base/arena.h"
#include "base/map.h"
#include "base/str.h"
#include "fake_cuda/ptx.h"

enum code {
  ABS,
  ADD,
  AND,
  BAR,
  BFE,
  BFI,
  BRA,
  CLZ,
  COPYSIGN,
  CP,
  CVT,
  DIV,
  DP4A,
  EX2,
  FMA,
  LD,
  LD_PARAM,
  LG2,
  MAD,
  MAX,
  MIN,
  MMA,
  MOV,
  MUL,
  NEG,
  NOT,
  OR,
  POPC,
  PRMT,
  RCP,
  REM,
  RET,
  SELP,
  SETP,
  SHF,
  SHFL,
  SHL,
  SHR,
  SQRT,
  ST,
  SUB,
  XOR,
  N_OPS
};
enum kind { U = 'u', S = 's', B = 'b', F = 'f', P = 'p' };
typedef struct type { char kind; int bytes; bool pair; } type;
enum { LO, WIDE, HI };                              // mode of MUL and MAD
enum { RN, RZ, RM, RP, INTEGER = 8 /* the result is one, of a float */, SATURATE = 16 };
enum { BYTES, HALVES, BRAINS };                     // mode of MMA: what is multiplied
enum { START, START_WIDE /* of 16 bytes alone */, WAIT };       // mode of CP
enum { GLOBAL, SHARED, LOCAL };
enum { MOST_SRC = 12, NO_REG = -1, MOST_STEPS = 1 << 30 };

enum { SPECIALS = 12 };                             // registers 0 to 11 are %tid, %ntid, %ctaid and %nctaid

// What most instructions are, done for many items in one loop: the same as compute() does.
enum quick {
  SLOW, Q_ADD, Q_SUB, Q_MUL, Q_MAD, Q_WIDE_S, Q_WIDE_U, Q_AND, Q_OR, Q_XOR, Q_NOT, Q_SHL, Q_SHR_S, Q_SHR_U, Q_MOV,
  Q_SELP, Q_SETP_S, Q_SETP_U, Q_SETP_F, Q_EXTEND_S, Q_EXTEND_U, Q_FLOAT_S, Q_FLOAT_U, Q_FROM_HALF, Q_DP4A,
  Q_FADD, Q_FSUB, Q_FMUL, Q_FFMA, Q_FNEG, Q_INT_OP, Q_FLOAT_OP
};
// Of SETP. What NaN makes of a relation is told apart by `unordered`.
enum relation { EQ, NE, LT, LE, GT, GE, NUM, NAN_ };

typedef struct instr {
  enum code op;
  enum quick quick;
  uint64_t mask;                                    // of the bits of a quick one's result
  int shift;                                        // 64 - the bits of what a quick one reads
  int dst[MOST_SRC], src[MOST_SRC + 1], at;         // registers, a constant has one of its own; of LD_PARAM: the number
  type t, from;                                     // from: of CVT, and of what a type is made
  int mode, space, n_dst, n_src, pred;              // pred: the register of the condition, NO_REG
  bool unless;
  bool compares, unordered;                         // SETP has its relation; what it is of a NaN
  enum relation relation;
  char combine;
  int64_t offset;                                   // of at
  int from_at;                                      // CP: the register of the second address, and what is added to it
  int64_t from_offset;
  size_t to;                                        // BRA
  const char *text;
} instr;

struct ptx {
  arena *mem;
  const char *name;
  int n_params, n_regs;
  unsigned group[3];
  size_t shared, local;
  VEC(instr) code;
  VEC(uint64_t) first;                              // what registers hold at first: constants, or nothing
  VEC(struct fixup { size_t at; const char *label; }) jumps;
  smap regs, labels, memories, params;
  char *why;
  size_t cap;
};
#endif
