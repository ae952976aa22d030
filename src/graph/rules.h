// The pattern language of rule tables. Include it last, in a file with tables. See rewrite.h for its laws.
#ifndef WEFT_RULES_H
#define WEFT_RULES_H
#include "graph/rewrite.h"

#define P1(o, ...) (&(const pat){.op = OP_##o, .nsrc = 1, .src = {__VA_ARGS__}})
#define P2(o, ...) (&(const pat){.op = OP_##o, .nsrc = 2, .src = {__VA_ARGS__}})
#define P3(o, ...) (&(const pat){.op = OP_##o, .nsrc = 3, .src = {__VA_ARGS__}})
#define P0(o) (&(const pat){.op = OP_##o, .nsrc = 0})
#define K(v) (&(const pat){.op = PAT_INT, .k = (v)})
#define AS(o, slot_var, ...) (&(const pat){.op = OP_##o, .var = slot_var, \
  .nsrc = COUNT(((const pat *[]){__VA_ARGS__})), .src = {__VA_ARGS__}})
#define CAST_TO(d, p) (&(const pat){.op = OP_CAST, .nsrc = 1, .dt = DT_##d, .src = {p}})

#define CAST(p) P1(CAST, p)
#define BITCAST(p) P1(BITCAST, p)
#define NEG(p) P1(NEG, p)
#define RECIP(p) P1(RECIP, p)
#define SQRT(p) P1(SQRT, p)
#define EXP2(p) P1(EXP2, p)
#define LOG2(p) P1(LOG2, p)
#define SIN(p) P1(SIN, p)
#define TRUNC(p) P1(TRUNC, p)
#define FLOOR(p) P1(FLOOR, p)
#define ADD(p, q) P2(ADD, p, q)
#define SUB(p, q) P2(SUB, p, q)
#define MUL(p, q) P2(MUL, p, q)
#define FDIV(p, q) P2(FDIV, p, q)
#define IDIV(p, q) P2(IDIV, p, q)
#define MOD(p, q) P2(MOD, p, q)
#define MAX(p, q) P2(MAX, p, q)
#define MIN(p, q) P2(MIN, p, q)
#define AND(p, q) P2(AND, p, q)
#define OR(p, q) P2(OR, p, q)
#define XOR(p, q) P2(XOR, p, q)
#define SHL(p, q) P2(SHL, p, q)
#define SHR(p, q) P2(SHR, p, q)
#define CMPLT(p, q) P2(CMPLT, p, q)
#define CMPEQ(p, q) P2(CMPEQ, p, q)
#define CMPNE(p, q) P2(CMPNE, p, q)
#define WHERE(p, q, r) P3(WHERE, p, q, r)
#define FMA(p, q, r) P3(FMA, p, q, r)
#define SPLAT(p) P1(SPLAT, p)
#define EXTRACT(p) P1(EXTRACT, p)

enum { SLOT_x, SLOT_y, SLOT_z, SLOT_w, SLOT_c0, SLOT_c1, SLOT_c2 };
#define x (&(const pat){.op = PAT_VAR, .var = 1 + SLOT_x})
#define y (&(const pat){.op = PAT_VAR, .var = 1 + SLOT_y})
#define z (&(const pat){.op = PAT_VAR, .var = 1 + SLOT_z})
#define w (&(const pat){.op = PAT_VAR, .var = 1 + SLOT_w})
#define c0 (&(const pat){.op = PAT_CONST, .var = 1 + SLOT_c0})
#define c1 (&(const pat){.op = PAT_CONST, .var = 1 + SLOT_c1})
#define c2 (&(const pat){.op = PAT_CONST, .var = 1 + SLOT_c2})

#define R(left, right) {.lhs = left, .rhs = right, .text = #left "  ->  " #right, .line = __LINE__}
#define F(left, function) {.lhs = left, .fn = function, .text = #left "  ->  " #function, .line = __LINE__}
#define RULES(table, dom) enum { table##_domain = dom }; static const rule table##_rules[]
#define RULES_END(table) \
  static unsigned table##_hits[COUNT(table##_rules)]; \
  const ruleset table = {#table, table##_domain, table##_rules, COUNT(table##_rules), table##_hits, __FILE__};
#endif
