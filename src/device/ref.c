// The reference interpreter: see ref.h.
//
// ref_compile converts the linear program to an array of instructions over numbered slots of 8 bytes (a double or an
// int64_t; a vector uses one slot per lane), with constants already set; ref_run copies the slots and executes. The
// tables below define each operation once, as a row with its meaning in C. The only optimisation is that a copied value
// shares its source's slot: the program's order decides what is hoisted.
#include "device/ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/half.h"
#include "render/render.h"

const target ref_target = {.name = "ref", .keeps_math = true, .has_f16 = true};

typedef union slot { double f; int64_t i; } slot;

// Integer operations whose result wraps to the dtype; x and y are the operands as uint64_t.
#define WRAPPING(X) X(ADD, x + y) X(SUB, x - y) X(MUL, x * y) X(SHL, y < 64 ? x << y : 0) X(NEG, 0 - x) X(WRAP, x)
// Integer operations without wrapping; x and y are int64_t (U: for unsigned 64-bit numbers, ux and uy).
#define PLAIN(X) \
  X(AND, x & y) X(OR, x | y) X(XOR, x ^ y) X(MAX, x < y ? y : x) X(MIN, y < x ? y : x) X(SHR, x >> (y & 63)) \
  X(CMPLT, x < y) X(CMPEQ, x == y) \
  X(CMPNE, x != y) X(MAXU, ux < uy ? y : x) X(MINU, uy < ux ? y : x) X(SHRU, (int64_t)(ux >> (y & 63))) \
  X(CMPLTU, ux < uy) X(NONZERO, x != 0)
// Operations on floats.
#define FLOATS(X) \
  X(FADD, x + y) X(FSUB, x - y) X(FMUL, x * y) X(FDIV, x / y) X(FMAX, x < y ? y : x) X(FMIN, y < x ? y : x) \
  X(FNEG, -x) X(RECIP, 1 / x) \
  X(SQRT, sqrt(x)) X(EXP2, exp2(x)) X(LOG2, log2(x)) X(SIN, sin(x)) X(TRUNC, trunc(x)) X(FLOOR, floor(x))
#define FLOAT_COMPARES(X) X(FCMPLT, x < y) X(FCMPEQ, x == y) X(FCMPNE, x != y) X(FNONZERO, x != 0)
// Division, undefined for a zero divisor; w: is the dtype U64?
#define DIVISIONS(X) X(IDIV, floordiv_i64(x, y), ux / uy) X(MOD, floormod_i64(x, y), ux % uy) X(CDIV, x / y, ux / uy) \
  X(CMOD, x % y, ux % uy)
// Memory dtypes with the size of an element.
#define MEMORIES(X) X(BOOL, 1) X(I8, 1) X(U8, 1) X(I16, 2) X(U16, 2) X(I32, 4) X(U32, 4) X(I64, 8) X(U64, 8) \
  X(IDX, 8) X(F16, 2) X(BF16, 2) X(F32, 4) X(F64, 8)

enum code {
// unchanged (64 bits), sign-extended, zero-extended
#define X(name, ...) C_##name, C_##name##_S, C_##name##_U,
  WRAPPING(X)
#undef X
#define X(name, ...) C_##name,
    PLAIN(X) FLOATS(X) FLOAT_COMPARES(X) DIVISIONS(X)
#undef X
#define X(name, size) C_LOAD_##name, C_STORE_##name, C_GATHER_##name, C_SCATTER_##name,
      MEMORIES(X)
#undef X
        C_MOVE,
  C_SPLAT,
  C_PICK,
  C_WHERE,
  C_FMA,
  C_DOT,
  C_DOT_F,
  C_MMLA,
  C_FROM_I64,
  C_FROM_U64,
  C_TO_INT,
  C_TO_HALF,
  C_BITCAST,
  C_RANGE,
  C_END,
  C_IF,
  C_STOP
};

// a memory, and the node that accesses it
typedef struct place { int64_t elems, bytes; int buf, elem_size; const char *text; } place;
typedef struct bitcast { enum dtype from, to; int n_from, n_to; } bitcast;

typedef struct insn {
  uint16_t code, n;                      // n: lanes
  uint32_t dst, a, b, c;                 // slots
  union {
    int64_t bits;
    size_t jump;
    const place *place;
    const uint32_t *pick;
    const bitcast *cast;
    const char *text;
  } arg;
} insn;

struct ref_kernel {
  arena *mem;
  char name[96];
  VEC(insn) code;
  VEC(slot) slots;                       // their initial values
  VEC(uint32_t) vars;                    // slot of each variable; UINT32_MAX: not used
  int n_bufs;
  VEC(int64_t) locals;                   // bytes of each LOCAL: buffers n_bufs, n_bufs + 1, ...
  uint32_t lo, hi;
};

// ---- values in memory -----------------------------------------------------------------------------------------------

#define ALWAYS_INLINE static inline __attribute__((always_inline))

static double double_of_f16(uint16_t h) {
  uint64_t sign = (uint64_t)(h >> 15) << 63, e = h >> 10 & 31, m = h & 1023;
  if (!e) { double v = (double)m * 0x1p-24; return sign ? -v : v; }
  uint64_t b = sign | (e == 31 ? 2047ull : e - 15 + 1023) << 52 | m << 42;
  double v;
  memcpy(&v, &b, 8);
  return v;
}

ALWAYS_INLINE slot read_as(enum dtype d, const unsigned char *p) {
#define READ(T, field) { T t; memcpy(&t, p, sizeof t); r.field = t; break; }
  slot r = {.i = 0};
  switch (d) {
  case DT_BOOL: r.i = *p != 0; break;
  case DT_I8: READ(int8_t, i)
  case DT_U8: READ(uint8_t, i)
  case DT_I16: READ(int16_t, i)
  case DT_U16: READ(uint16_t, i)
  case DT_I32: READ(int32_t, i)
  case DT_U32: READ(uint32_t, i)
  case DT_F16: { uint16_t h; memcpy(&h, p, 2); r.f = double_of_f16(h); break; }
  case DT_BF16: {
    uint16_t h;
    memcpy(&h, p, 2);
    uint32_t w = (uint32_t)h << 16;
    float f;
    memcpy(&f, &w, 4);
    r.f = (double)f;
    break;
  }
  case DT_F32: { float f; memcpy(&f, p, 4); r.f = (double)f; break; }
  default: memcpy(&r, p, 8);
  }
  return r;
#undef READ
}

ALWAYS_INLINE void write_as(enum dtype d, unsigned char *p, slot v) {
  switch (d) {
  case DT_BOOL: *p = v.i != 0; break;
  case DT_I8: case DT_U8: *p = (unsigned char)v.i; break;
  case DT_I16: case DT_U16: { uint16_t t = (uint16_t)v.i; memcpy(p, &t, 2); break; }
  case DT_I32: case DT_U32: { uint32_t t = (uint32_t)v.i; memcpy(p, &t, 4); break; }
  case DT_F16: { uint16_t t = f16_from_double(v.f); memcpy(p, &t, 2); break; }
  case DT_BF16: { uint16_t t = bf16_from_double(v.f); memcpy(p, &t, 2); break; }
  case DT_F32: { float f = (float)v.f; memcpy(p, &f, 4); break; }
  default: memcpy(p, &v, 8);
  }
}

static NORETURN void out_of_bounds(const ref_kernel *k, const place *m, int64_t i, int64_t size) {
  die("%s: %lld bytes at element %lld of buffer %d, which has %lld: %s", k->name, (long long)size, (long long)i, m->buf,
      (long long)m->elems, m->text);
}

static NORETURN void divided_by_zero(const ref_kernel *k, const insn *o) {
  die("%s: division by zero: %s", k->name, o->arg.text);
}

ALWAYS_INLINE unsigned char *at(const ref_kernel *k, const place *m, unsigned char *const *bufs, int64_t i,
                                int64_t size) {
  if (i < 0 || i >= m->elems || m->bytes - i * m->elem_size < size) out_of_bounds(k, m, i, size);
  return bufs[m->buf] + i * m->elem_size;
}

static void bitcast_lanes(const bitcast *c, slot *dst, const slot *a) {
  unsigned char raw[8 * 256];
  int sf = dtype_size(c->from), st = dtype_size(c->to);
  for (int l = 0; l < c->n_from; l++) write_as(c->from, raw + l * sf, a[l]);
  for (int l = 0; l < c->n_to; l++) dst[l] = read_as(c->to, raw + l * st);
}

// Truncates; values out of range become the nearest end of the range, NaN becomes 0.
static int64_t int_of_double(enum dtype d, double v) {
  if (v != v) return 0;
  if (d == DT_U64) return v <= -1 ? 0 : v >= 0x1p64 ? -1 : (int64_t)(uint64_t)v;
  int64_t r = v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
  return min_i64(max_i64(r, dtype_min(d)), dtype_max(d));
}

// bytes: unsigned; codes: four signed bytes in one number
static int64_t dot_of_bytes(int64_t sum, const slot *bytes, int64_t codes) {
  for (int j = 0; j < 4; j++) sum += bytes[j].i * (int8_t)(codes >> 8 * j);
  return (int32_t)sum;
}

// Lane l of tiles of 2 x 2: eight products of one of two rows of a and one of two of b.
static int64_t tile_of_bytes(int64_t sum, const slot *a, const slot *b, size_t l) {
  for (size_t j = 0; j < 8; j++) sum += a[l / 4 * 16 + l / 2 % 2 * 8 + j].i * b[l / 4 * 16 + l % 2 * 8 + j].i;
  return (int32_t)sum;
}

// a: BF16 bits; b: the bits of two BF16 in one number
static double dot_of_bf16(double sum, const slot *a, int64_t b) {
  for (int j = 0; j < 2; j++) sum += bf16_to_double((uint16_t)a[j].i) * bf16_to_double((uint16_t)(b >> 16 * j));
  return sum;
}

// ---- running --------------------------------------------------------------------------------------------------------

static void run_code(const ref_kernel *k, slot *s, unsigned char *const *bufs) {
  const insn *code = k->code.at;
  for (const insn *o = code;; o++) {
    slot *dst = s + o->dst;
    const slot *a = s + o->a, *b = s + o->b;
    size_t n = o->n;
    switch ((enum code)o->code) {
#define EACH(statement) for (size_t l = 0; l < n; l++) { statement; } break
#define X(name, expr) \
    case C_##name: EACH(uint64_t x = (uint64_t)a[l].i; uint64_t y = (uint64_t)b[l].i; (void)y; dst[l].i = \
    (int64_t)(expr)); \
    case C_##name##_S: EACH(uint64_t x = (uint64_t)a[l].i; uint64_t y = (uint64_t)b[l].i; (void)y; dst[l].i = \
    (int64_t)((expr) << o->arg.bits) >> o->arg.bits); \
    case C_##name##_U: EACH(uint64_t x = (uint64_t)a[l].i; uint64_t y = (uint64_t)b[l].i; (void)y; dst[l].i = \
    (int64_t)((expr) << o->arg.bits >> o->arg.bits));
    WRAPPING(X)
#undef X
#define X(name, expr) \
    case C_##name: EACH(int64_t x = a[l].i; int64_t y = b[l].i; uint64_t ux = (uint64_t)x; uint64_t uy = (uint64_t)y; \
    (void)ux; (void)uy; dst[l].i = (expr));
    PLAIN(X)
#undef X
#define X(name, expr) case C_##name: EACH(double x = a[l].f; double y = b[l].f; (void)y; dst[l].f = (expr));
    FLOATS(X)
#undef X
#define X(name, expr) case C_##name: EACH(double x = a[l].f; double y = b[l].f; (void)y; dst[l].i = (expr));
    FLOAT_COMPARES(X)
#undef X
#define X(name, expr, uexpr) \
    case C_##name: EACH(int64_t x = a[l].i; int64_t y = b[l].i; uint64_t ux = (uint64_t)x; uint64_t uy = (uint64_t)y; \
      if (!y) divided_by_zero(k, o); \
      dst[l].i = o->c ? (int64_t)(uexpr) : y == -1 ? (int64_t)(C_##name == C_IDIV || C_##name == C_CDIV ? 0 - ux : 0) \
      : (expr));
    DIVISIONS(X)
#undef X
#define X(name, size) \
    case C_LOAD_##name: { \
      const unsigned char *p = at(k, o->arg.place, bufs, a->i, (int64_t)n * (size)); \
      EACH(dst[l] = read_as(DT_##name, p + l * (size))); \
    } \
    case C_STORE_##name: { \
      unsigned char *p = at(k, o->arg.place, bufs, a->i, (int64_t)n * (size)); \
      EACH(write_as(DT_##name, p + l * (size), b[l])); \
    } \
    case C_GATHER_##name: EACH(dst[l] = read_as(DT_##name, at(k, o->arg.place, bufs, a[l].i, (size)))); \
    case C_SCATTER_##name: EACH(write_as(DT_##name, at(k, o->arg.place, bufs, a[l].i, (size)), b[l]));
    MEMORIES(X)
#undef X
    case C_MOVE: EACH(dst[l] = a[l]);
    case C_SPLAT: EACH(dst[l] = *a);
    case C_PICK: EACH(dst[l] = s[o->arg.pick[l]]);
    case C_WHERE: EACH(dst[l] = a[l].i ? b[l] : s[o->c + l]);
    case C_FMA: EACH(dst[l].f = fma(a[l].f, b[l].f, s[o->c + l].f));
    case C_DOT: EACH(dst[l].i = dot_of_bytes(a[l].i, b + 4 * l, s[o->c + l].i));
    case C_DOT_F: EACH(dst[l].f = dot_of_bf16(a[l].f, b + 2 * l, s[o->c + l].i));
    case C_MMLA: EACH(dst[l].i = tile_of_bytes(a[l].i, b, s + o->c, l));
    case C_FROM_I64: EACH(dst[l].f = (double)a[l].i);
    case C_FROM_U64: EACH(dst[l].f = (double)(uint64_t)a[l].i);
    case C_TO_INT: EACH(dst[l].i = int_of_double((enum dtype)o->c, a[l].f));
    case C_TO_HALF: EACH(dst[l].f = dtype_round((enum dtype)o->c, a[l].f));
    case C_BITCAST: bitcast_lanes(o->arg.cast, dst, a); break;
    case C_RANGE:                                       // a: first, b: end, jump: the END
      *dst = *a;
      if (a->i >= b->i) o = code + o->arg.jump;
      break;
    case C_END:                                         // jump: the RANGE
      if (++dst->i < b->i) o = code + o->arg.jump;
      break;
    case C_IF: if (!a->i) o = code + o->arg.jump - 1; break;
    case C_STOP: return;
#undef EACH
    }
  }
}

void ref_run(const ref_kernel *k, unsigned char *const *bufs, const int64_t *vars, int64_t lo, int64_t hi) {
  slot few[512], *s = k->slots.n <= COUNT(few) ? few : xmalloc(k->slots.n * sizeof *s);
  memcpy(s, k->slots.at, k->slots.n * sizeof *s);
  for (size_t i = 0; i < k->vars.n; i++)
    if (k->vars.at[i] != UINT32_MAX) s[k->vars.at[i]].i = vars[i];
  s[k->lo].i = lo;
  s[k->hi].i = hi;
  size_t n = (size_t)k->n_bufs, m = k->locals.n;
  unsigned char **all = xmalloc((n + m + 1) * sizeof *all);
  for (size_t i = 0; i < n; i++) all[i] = bufs[i];
  for (size_t i = 0; i < m; i++) all[n + i] = xmalloc((size_t)k->locals.at[i]);
  run_code(k, s, all);
  for (size_t i = 0; i < m; i++) free(all[n + i]);
  free(all);
  if (s != few) free(s);
}

// ---- compiling ------------------------------------------------------------------------------------------------------

typedef struct ref {
  const program *p;
  ref_kernel *k;
  arena *mem;                  // for the time of compiling
  size_t *match, *first;       // by position: the partner, and the instruction of a RANGE or IF
  map locals;                  // LOCAL -> 1 + its number
  map slot_of, uses;           // uop -> slot + 1, uop -> number of uses
} ref;

static uint32_t new_slots(ref *c, int n) {
  size_t first = c->k->slots.n;
  if (first + (size_t)n > UINT32_MAX / 2) die("%s: too many values", c->p->name);
  for (int i = 0; i < n; i++) vec_push(&c->k->slots, (slot){.i = 0});
  return (uint32_t)first;
}

static uint32_t new_constant(ref *c, const uop *u, int lanes) {
  uint32_t s = new_slots(c, lanes);
  for (int i = 0; i < lanes; i++)
    if (dtype_is_float((enum dtype)u->dt)) c->k->slots.at[s + (uint32_t)i].f = uop_const_float(u);
    else c->k->slots.at[s + (uint32_t)i].i = u->a;
  return s;
}

static void bind(ref *c, const uop *u, uint32_t s) { map_put(&c->slot_of, u, (void *)(uintptr_t)(s + 1ull)); }

static uint32_t slot_of(ref *c, const uop *u) {
  uintptr_t v = (uintptr_t)map_ptr(&c->slot_of, u);
  if (v) return (uint32_t)(v - 1);
  uint32_t s;
  if (u->op == OP_CONST) s = new_constant(c, u, 1);
  else if (u->op == OP_SPLAT && u->src[0]->op == OP_CONST) s = new_constant(c, u->src[0], u->lanes);
  else if (u->op == OP_LANE) {
    s = new_slots(c, u->lanes);
    for (uint32_t i = 0; i < u->lanes; i++) c->k->slots.at[s + i].i = i;
  } else die("%s: %s.%s is used too early", c->p->name, op_name((enum op)u->op), dtype_name((enum dtype)u->dt));
  bind(c, u, s);
  return s;
}

static insn *emit_insn(ref *c, enum code code, int n, uint32_t dst, uint32_t a, uint32_t b) {
  insn i = {.code = (uint16_t)code, .n = (uint16_t)n, .dst = dst, .a = a, .b = b};
  vec_push(&c->k->code, i);
  return &c->k->code.at[c->k->code.n - 1];
}

static const char *describe_node(ref *c, const uop *u) {
  str s = {0};
  str_addf(&s, "%s.%s ", op_name((enum op)u->op), dtype_name((enum dtype)u->dt));
  uop_print_expr(&s, u);
  const char *t = arena_strdup(c->k->mem, str_c(&s));
  str_free(&s);
  return t;
}

// A copied value needs no code, except of a variable, which may change.
static void pass_value(ref *c, const uop *u, const uop *from, uint32_t s) {
  if (from->op != OP_ACC) { bind(c, u, s); return; }
  uint32_t d = new_slots(c, u->lanes);
  emit_insn(c, C_MOVE, u->lanes, d, s, s);
  bind(c, u, d);
}

static enum code integer_code(enum op op, bool u64) {
  switch (op) {
  case OP_ADD: return C_ADD;
  case OP_SUB: return C_SUB;
  case OP_MUL: return C_MUL;
  case OP_SHL: return C_SHL;
  case OP_NEG: return C_NEG;
  case OP_AND: return C_AND;
  case OP_OR: return C_OR;
  case OP_XOR: return C_XOR;
  case OP_MAX: return u64 ? C_MAXU : C_MAX;
  case OP_MIN: return u64 ? C_MINU : C_MIN;
  case OP_SHR: return u64 ? C_SHRU : C_SHR;
  case OP_CMPLT: return u64 ? C_CMPLTU : C_CMPLT;
  case OP_CMPEQ: return C_CMPEQ;
  case OP_CMPNE: return C_CMPNE;
  case OP_IDIV: return C_IDIV;
  case OP_MOD: return C_MOD;
  case OP_CDIV: return C_CDIV;
  case OP_CMOD: return C_CMOD;
  default: return C_STOP;
  }
}

static enum code float_code(enum op op) {
  switch (op) {
  case OP_ADD: return C_FADD;
  case OP_SUB: return C_FSUB;
  case OP_MUL: return C_FMUL;
  case OP_FDIV: return C_FDIV;
  case OP_MAX: return C_FMAX;
  case OP_MIN: return C_FMIN;
  case OP_NEG: return C_FNEG;
  case OP_RECIP: return C_RECIP;
  case OP_SQRT: return C_SQRT;
  case OP_EXP2: return C_EXP2;
  case OP_LOG2: return C_LOG2;
  case OP_SIN: return C_SIN;
  case OP_TRUNC: return C_TRUNC;
  case OP_FLOOR: return C_FLOOR;
  case OP_CMPLT: return C_FCMPLT;
  case OP_CMPEQ: return C_FCMPEQ;
  case OP_CMPNE: return C_FCMPNE;
  default: return C_STOP;
  }
}

static void wrap(insn *i, enum dtype d) {
  int bits = d == DT_BOOL ? 1 : 8 * dtype_size(d);
  if (bits == 64) return;
  i->code = (uint16_t)(i->code + (dtype_is_unsigned(d) ? 2 : 1));
  i->arg.bits = 64 - bits;
}

// dst = a op b on operands of dtype d; u: the node, for messages.
static void arithmetic(ref *c, const uop *u, enum op op, enum dtype d, int n, uint32_t dst, uint32_t a, uint32_t b) {
  bool f = dtype_is_float(d);
  enum code code = f ? float_code(op) : integer_code(op, d == DT_U64);
  if (code == C_STOP) die("%s: the interpreter has no %s", c->p->name, describe_node(c, u));
  insn *i = emit_insn(c, code, n, dst, a, b);
  if (f) return;
  if (op == OP_ADD || op == OP_SUB || op == OP_MUL || op == OP_SHL || op == OP_NEG) wrap(i, d);
  if (code == C_IDIV || code == C_MOD || code == C_CDIV || code == C_CMOD) {
    i->c = d == DT_U64;
    const char *t = describe_node(c, u);
    c->k->code.at[c->k->code.n - 1].arg.text = t;
    if ((op == OP_IDIV || op == OP_CDIV) && d != DT_U64) wrap(emit_insn(c, C_WRAP, n, dst, dst, dst), d);   // -128 / -1
  }
}

static void emit_cast(ref *c, const uop *u, const uop *x) {
  enum dtype from = (enum dtype)x->dt, to = (enum dtype)u->dt;
  bool ff = dtype_is_float(from), tf = dtype_is_float(to);
  uint32_t a = slot_of(c, x);
  bool half = (to == DT_F16 || to == DT_BF16) && from != to;
  bool wider = !ff && !tf && to != DT_BOOL && dtype_size(to) == 8;
  if ((ff && tf && !half) || from == to || wider || (from == DT_BOOL && !tf)) { pass_value(c, u, x, a); return; }
  uint32_t d = new_slots(c, u->lanes);
  bind(c, u, d);
  if (to == DT_BOOL) emit_insn(c, ff ? C_FNONZERO : C_NONZERO, u->lanes, d, a, a);
  else if (ff && !tf) emit_insn(c, C_TO_INT, u->lanes, d, a, a)->c = to;
  else if (tf) {
    if (!ff) emit_insn(c, from == DT_U64 ? C_FROM_U64 : C_FROM_I64, u->lanes, d, a, a);
    if (half) emit_insn(c, C_TO_HALF, u->lanes, d, ff ? a : d, a)->c = to;
  }
  else wrap(emit_insn(c, C_WRAP, u->lanes, d, a, a), to);
}

static uint32_t bits_as(ref *c, const uop *x, enum dtype to, int lanes) {
  bitcast *b = ARENA_NEW(c->k->mem, bitcast);
  *b = (bitcast){(enum dtype)x->dt, to, x->lanes, lanes};
  uint32_t a = slot_of(c, x), d = new_slots(c, lanes);
  emit_insn(c, C_BITCAST, lanes, d, a, a)->arg.cast = b;
  return d;
}

static void bit_cast(ref *c, const uop *u, const uop *x) {
  if (x->lanes > 256 || u->lanes > 256 ||
      x->lanes * dtype_size((enum dtype)x->dt) != u->lanes * dtype_size((enum dtype)u->dt))
    die("%s: bitcast of %d to %d lanes: %s", c->p->name, x->lanes, u->lanes, describe_node(c, u));
  bind(c, u, bits_as(c, x, (enum dtype)u->dt, u->lanes));
}

static void emit_elementwise(ref *c, const uop *u) {
  const uop *x = u->src[0];
  if (u->op == OP_CAST) { emit_cast(c, u, x); return; }
  if (u->op == OP_BITCAST) { bit_cast(c, u, x); return; }
  bool integer = !dtype_is_float((enum dtype)u->dt);
  uint32_t s[3] = {0};
  for (size_t i = 0; i < u->nsrc; i++) {
    if (u->src[i]->lanes != u->lanes)
      die("%s: source %zu has %d lanes: %s", c->p->name, i, u->src[i]->lanes, describe_node(c, u));
    s[i] = slot_of(c, u->src[i]);
  }
  if (integer && (u->op == OP_TRUNC || u->op == OP_FLOOR)) { pass_value(c, u, x, s[0]); return; }
  uint32_t d = new_slots(c, u->lanes);
  if (u->op == OP_WHERE || (u->op == OP_FMA && !integer))
    emit_insn(c, u->op == OP_WHERE ? C_WHERE : C_FMA, u->lanes, d, s[0], s[1])->c = s[2];
  else if (u->op == OP_FMA) {
    arithmetic(c, u, OP_MUL, (enum dtype)u->dt, u->lanes, d, s[0], s[1]);
    arithmetic(c, u, OP_ADD, (enum dtype)u->dt, u->lanes, d, d, s[2]);
  } else arithmetic(c, u, (enum op)u->op, (enum dtype)x->dt, u->lanes, d, s[0], u->nsrc > 1 ? s[1] : s[0]);
  bind(c, u, d);
}

static void emit_hreduce(ref *c, const uop *u) {
  const uop *x = u->src[0];
  if (!is_pow2(x->lanes)) die("%s: HREDUCE of %d lanes", c->p->name, x->lanes);
  uint32_t from = slot_of(c, x);
  if (x->lanes == 1) { pass_value(c, u, x, from); return; }
  uint32_t d = new_slots(c, x->lanes / 2);
  for (int n = x->lanes / 2; n; n /= 2, from = d)
    arithmetic(c, u, (enum op)u->a, (enum dtype)u->dt, n, d, from, from + (uint32_t)n);
  bind(c, u, d);
}

static void emit_dot(ref *c, const uop *u) {
  const uop *x = u->src[1];
  bool floats = u->dt == DT_F32;
  if (x->lanes != (floats ? 2 : 4) * u->lanes)
    die("%s: %d operands for %d lanes: %s", c->p->name, x->lanes, u->lanes, describe_node(c, u));
  uint32_t a = slot_of(c, u->src[0]), b = x->dt == DT_BF16 ? bits_as(c, x, DT_U16, x->lanes) : slot_of(c, x),
           codes = slot_of(c, u->src[2]), d = new_slots(c, u->lanes);
  emit_insn(c, floats ? C_DOT_F : C_DOT, u->lanes, d, a, b)->c = codes;
  bind(c, u, d);
}

static void emit_mmla(ref *c, const uop *u) {
  uint32_t a = slot_of(c, u->src[0]), rows = slot_of(c, u->src[1]), columns = slot_of(c, u->src[2]);
  uint32_t d = new_slots(c, u->lanes);
  emit_insn(c, C_MMLA, u->lanes, d, a, rows)->c = columns;
  bind(c, u, d);
}

// SHUFFLE and STACK: any slots to a vector.
static void pick(ref *c, const uop *u) {
  uint32_t *from = ARENA_ARRAY(c->k->mem, uint32_t, u->lanes);
  for (int i = 0; i < u->lanes; i++) {
    if (u->op == OP_STACK) { from[i] = slot_of(c, u->src[i]); continue; }
    int l = shuffle_lane(u, i), n = u->src[0]->lanes;
    if ((size_t)(l / n) >= u->nsrc) die("%s: lane %d of %s", c->p->name, l, describe_node(c, u));
    from[i] = slot_of(c, u->src[l / n]) + (uint32_t)(l % n);
  }
  uint32_t d = new_slots(c, u->lanes);
  emit_insn(c, C_PICK, u->lanes, d, 0, 0)->arg.pick = from;
  bind(c, u, d);
}

static const place *access_place(ref *c, const uop *u) {
  const uop *m = render_memory(u->src[0]);
  if (m->op == OP_PARAM && (m->a < 0 || m->a >= c->p->n_bufs))
    die("%s: no such memory: %s", c->p->name, describe_node(c, u));
  place *p = ARENA_NEW(c->k->mem, place);
  int size = dtype_size((enum dtype)m->dt), number = (int)m->a;
  if (m->op == OP_LOCAL) {
    uintptr_t known = (uintptr_t)map_ptr(&c->locals, m);
    if (!known) { vec_push(&c->k->locals, m->b * size); map_put(&c->locals, m, (void *)(known = c->k->locals.n)); }
    number = c->p->n_bufs + (int)known - 1;
  }
  *p = (place){m->b, m->b * size, number, size, describe_node(c, u)};
  return p;
}

static void access_memory(ref *c, const uop *u) {
  static const uint16_t first[DT_COUNT] = {
#define X(name, size) [DT_##name] = C_LOAD_##name,
    MEMORIES(X)
#undef X
  };
  bool store = u->op == OP_STORE;
  const uop *index = u->src[0], *v = store ? u->src[1] : u;
  if (!first[v->dt] || (index->lanes > 1 && index->lanes != v->lanes))
    die("%s: the interpreter cannot do %s", c->p->name, describe_node(c, u));
  enum code code = (enum code)(first[v->dt] + store + (index->lanes > 1 ? 2 : 0));
  uint32_t i = slot_of(c, index->src[1]), value = store ? slot_of(c, v) : 0, d = store ? 0 : new_slots(c, u->lanes);
  const place *p = access_place(c, u);
  emit_insn(c, code, v->lanes, d, i, value)->arg.place = p;
  if (!store) bind(c, u, d);
}

// Did the last instruction make this value, for a single use?
static bool just_made(ref *c, const uop *v, uint32_t s) {
  if (!c->k->code.n || (uintptr_t)map_ptr(&c->uses, v) != 1 || !(op_flags((enum op)v->op) & OPF_ELEMENTWISE))
    return false;
  // these may share their source's slot
  if (v->op == OP_CAST || v->op == OP_BITCAST || v->op == OP_TRUNC || v->op == OP_FLOOR) return false;
  const insn *last = &c->k->code.at[c->k->code.n - 1];
  return last->dst == s && last->n == v->lanes && last->a != s && last->b != s &&
         (last->code < C_LOAD_BOOL || last->code == C_WHERE || last->code == C_FMA);
}

static void set_variable(ref *c, const uop *u) {
  uint32_t acc = slot_of(c, u->src[0]), v = slot_of(c, u->src[1]);
  if (just_made(c, u->src[1], v)) c->k->code.at[c->k->code.n - 1].dst = acc;       // write the variable directly
  else emit_insn(c, C_MOVE, u->src[0]->lanes, acc, v, v);
}

static void emit_range(ref *c, const uop *u, size_t pos) {
  uint32_t d = new_slots(c, 1), first, end;
  if (u->b == AXIS_GLOBAL) first = c->k->lo, end = c->k->hi;
  else {
    uint32_t from = slot_of(c, u->src[0]);
    first = new_slots(c, 1);
    // the loop may assign the variable; the end is its value before the loop
    end = u->src[0]->op == OP_ACC ? new_slots(c, 1) : from;
    if (end != from) emit_insn(c, C_MOVE, 1, end, from, from);
  }
  bind(c, u, d);
  c->first[pos] = c->k->code.n;
  emit_insn(c, C_RANGE, 1, d, first, end);
}

static void close(ref *c, size_t pos) {
  size_t open = c->match[pos], first = c->first[open], here = c->k->code.n;
  if (c->p->at[pos]->op == OP_END) {
    insn r = c->k->code.at[first];
    emit_insn(c, C_END, 1, r.dst, r.a, r.b)->arg.jump = first;
  }
  c->k->code.at[first].arg.jump = here;
}

static void emit_node(ref *c, size_t pos) {
  const uop *u = c->p->at[pos];
  switch (u->op) {
  case OP_CONST: case OP_PARAM: case OP_LOCAL: case OP_LANE: case OP_INDEX: case OP_SINK: case OP_PREFETCH: return;
  case OP_VAR: {
    int k = render_var(c->p, u);
    if (k < 0) die("%s: the variable %.*s is no argument", c->p->name, (int)u->s_len, u->s);
    if (c->k->vars.at[k] == UINT32_MAX) { uint32_t s = new_slots(c, 1); c->k->vars.at[k] = s; }
    bind(c, u, c->k->vars.at[k]);
    return;
  }
  case OP_LOAD: case OP_STORE: access_memory(c, u); return;
  case OP_RANGE: emit_range(c, u, pos); return;
  case OP_IF: c->first[pos] = c->k->code.n; emit_insn(c, C_IF, 1, 0, slot_of(c, u->src[0]), 0); return;
  case OP_END: case OP_ENDIF: close(c, pos); return;
  case OP_ACC: {
    uint32_t d = new_slots(c, u->lanes), s = slot_of(c, u->src[0]);
    emit_insn(c, C_MOVE, u->lanes, d, s, s);
    bind(c, u, d);
    return;
  }
  case OP_SET: set_variable(c, u); return;
  case OP_SPLAT: {
    if (u->src[0]->op == OP_CONST) return;
    uint32_t s = slot_of(c, u->src[0]), d = new_slots(c, u->lanes);
    emit_insn(c, C_SPLAT, u->lanes, d, s, s);
    bind(c, u, d);
    return;
  }
  case OP_EXTRACT: pass_value(c, u, u->src[0], slot_of(c, u->src[0]) + (uint32_t)u->a); return;
  case OP_SHUFFLE: case OP_STACK: pick(c, u); return;
  case OP_DOT: emit_dot(c, u); return;
  case OP_MMLA: emit_mmla(c, u); return;
  case OP_HREDUCE: emit_hreduce(c, u); return;
  default:
    if (!(op_flags((enum op)u->op) & OPF_ELEMENTWISE))
      die("%s: the interpreter has no %s", c->p->name, op_name((enum op)u->op));
    emit_elementwise(c, u);
  }
}

ref_kernel *ref_compile(const program *p) {
  ref_kernel *k = xcalloc(1, sizeof *k);
  ref c = {.p = p, .k = k, .mem = arena_new()};
  error err = {0};
  k->mem = arena_new();
  snprintf(k->name, sizeof k->name, "%s", p->name);
  if (render_match(p, c.mem, &c.match, &err)) die("%s", err.text);
  c.first = ARENA_ARRAY(c.mem, size_t, p->n);
  k->lo = new_slots(&c, 1);
  k->hi = new_slots(&c, 1);
  for (int i = 0; i < p->n_vars; i++) vec_push(&k->vars, UINT32_MAX);
  for (size_t i = 0; i < p->n; i++)
    for (size_t j = 0; j < p->at[i]->nsrc; j++)
      map_put(&c.uses, p->at[i]->src[j], (void *)((uintptr_t)map_ptr(&c.uses, p->at[i]->src[j]) + 1));
  for (size_t i = 0; i < p->n; i++) emit_node(&c, i);
  emit_insn(&c, C_STOP, 1, 0, 0, 0);
  k->n_bufs = p->n_bufs;
  map_free(&c.slot_of);
  map_free(&c.uses);
  map_free(&c.locals);
  arena_free(c.mem);
  return k;
}

void ref_free(ref_kernel *k) {
  if (!k) return;
  vec_free(&k->code);
  vec_free(&k->slots);
  vec_free(&k->vars);
  vec_free(&k->locals);
  arena_free(k->mem);
  free(k);
}
