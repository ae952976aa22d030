// Runs a kernel that ptx.c has read.
//
// Items of a work-group run together up to the next barrier. Those that are furthest behind in the code run until they
// reach others, as on a GPU. So an instruction is decoded once for many items. Their registers are stored side by side.
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fake_cuda/ptx_code.h"
#include "graph/half.h"

// on_the_way: what the item copies and has not waited for.
typedef struct way { const instr *i; uint64_t from, to; size_t bytes; } way;
typedef struct item {
  uint64_t *regs;                                   // of register 0; `stride` further is the next one
  size_t stride;
  unsigned char *local;
  size_t at;
  bool ended, waits;
  VEC(way) on_the_way;
} item;
// Of a byte of the work-group's memory: since which barrier (counted from 1) it was written and read, and by which
// item; -1: several. awaited: something is on its way there.
typedef struct use { int wrote, read; int writer, reader; bool awaited; } use;
typedef struct group {
  const ptx *k;
  const uint64_t *params;
  ptx_may *may;
  unsigned char *shared;
  use *uses;
  item *items;
  size_t n;
  uint64_t *regs;                                   // register by register, of all items
  int barrier, status;
  char *why;
  size_t cap;
} group;

#define REG(t, number) ((t)->regs[(size_t)(number) * (t)->stride])

static uint64_t mask_of(int bytes) { return bytes >= 8 ? ~0ull : (1ull << 8 * bytes) - 1; }
static int64_t as_int(uint64_t v, type t) {
  v &= mask_of(t.bytes);
  return t.kind == S && t.bytes < 8 && v >> (8 * t.bytes - 1) ? (int64_t)(v | ~mask_of(t.bytes)) : (int64_t)v;
}
static double as_float(uint64_t v, int bytes) {
  float f;
  double d;
  uint32_t w = (uint32_t)v;
  if (bytes == 2) return f16_to_double((uint16_t)v);
  memcpy(&f, &w, 4);
  memcpy(&d, &v, 8);
  return bytes == 4 ? (double)f : d;
}
static uint64_t from_float(double d, int bytes) {
  float f = (float)d;
  uint32_t w;
  uint64_t v;
  if (bytes == 2) return f16_from_double(d);
  memcpy(&w, &f, 4);
  memcpy(&v, &d, 8);
  return bytes == 4 ? w : v;
}

static float single(uint64_t v) {
  float f;
  uint32_t w = (uint32_t)v;
  memcpy(&f, &w, 4);
  return f;
}
static uint64_t of_single(float f) {
  uint32_t w;
  memcpy(&w, &f, 4);
  return w;
}

static bool compare(const instr *i, uint64_t x, uint64_t y) {
  bool less, equal;
  if (i->t.kind == F) {
    double a = as_float(x, i->t.bytes), b = as_float(y, i->t.bytes);
    bool unordered = isnan(a) || isnan(b);
    if (i->relation == NAN_) return unordered;
    if (i->relation == NUM) return !unordered;
    if (unordered) return i->unordered;
    less = a < b;
    equal = a == b;
  } else {
    int64_t a = as_int(x, i->t), b = as_int(y, i->t);
    less = i->t.kind == S ? a < b : (uint64_t)a < (uint64_t)b;
    equal = a == b;
  }
  switch (i->relation) {
  case EQ: return equal;
  case NE: return !equal;
  case LT: return less;
  case LE: return less || equal;
  case GT: return !less && !equal;
  default: return !less;
  }
}

static uint64_t convert(const instr *i, uint64_t v) {
  if (i->from.kind == F) {
    double d = as_float(v, i->from.bytes);
    int how = i->mode & 3;
    if (i->t.kind != F || i->mode & INTEGER)
      d = how == RN ? nearbyint(d) : how == RZ ? trunc(d) : how == RM ? floor(d) : ceil(d);
    if (i->mode & SATURATE) d = d > 1 ? 1 : d > 0 ? d : 0;
    if (i->t.kind == F) return from_float(d, i->t.bytes);
    if (isnan(d)) return 0;
    // out of range: the nearest
    double most = ldexp(1, 8 * i->t.bytes - (i->t.kind == S)), least = i->t.kind == S ? -most : 0;
    if (d >= most) return (uint64_t)(i->t.kind == S ? (mask_of(i->t.bytes) >> 1) : mask_of(i->t.bytes));
    if (d < least) d = least;
    return (uint64_t)(i->t.kind == S ? (int64_t)d : (int64_t)(uint64_t)d);
  }
  int64_t n = as_int(v, i->from);
  if (i->t.kind != F) return (uint64_t)n;
  if (i->t.bytes == 4) {                            // once rounded
    float f = i->from.kind == S ? (float)n : (float)(uint64_t)n;
    return from_float((double)f, 4);
  }
  return from_float(i->from.kind == S ? (double)n : (double)(uint64_t)n, i->t.bytes);
}

static uint64_t permute(uint64_t a, uint64_t b, uint64_t how) {
  uint64_t both = (a & 0xffffffff) | b << 32, r = 0;
  for (int n = 0; n < 4; n++) {
    unsigned pick = how >> 4 * n & 15, byte = both >> 8 * (pick & 7) & 255;
    r |= (uint64_t)(pick & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * n;
  }
  return r;
}

static uint64_t dot(const instr *i, uint64_t a, uint64_t b, uint64_t c) {
  int64_t sum = (int32_t)c;
  for (int n = 0; n < 4; n++) {
    uint64_t x = a >> 8 * n & 255, y = b >> 8 * n & 255;
    sum += (i->t.kind == S ? (int64_t)(int8_t)x : (int64_t)x) * (i->from.kind == S ? (int64_t)(int8_t)y : (int64_t)y);
  }
  return (uint64_t)sum & 0xffffffff;
}

static uint64_t float_op(const instr *i, const uint64_t *s) {
  int n = i->t.bytes;
  double x = as_float(s[0], n), y = i->n_src > 1 ? as_float(s[1], n) : 0, z = i->n_src > 2 ? as_float(s[2], n) : 0;
    // of singles: in doubles, and rounded, which is the same for these
    switch (i->op) {
  case ADD: return from_float(x + y, n);
  case SUB: return from_float(x - y, n);
  case MUL: return from_float(x * y, n);
  case DIV: return from_float(x / y, n);
  case SQRT: return from_float(sqrt(x), n);
  case FMA: return n == 4 ? from_float((double)fmaf((float)x, (float)y, (float)z), n) : from_float(fma(x, y, z), n);
  case RCP: return from_float(1 / x, n);
  case EX2: return from_float(exp2(x), n);
  case LG2: return from_float(log2(x), n);
  case NEG: return s[0] ^ 1ull << (8 * n - 1);
  case ABS: return s[0] & mask_of(n) >> 1;
  case COPYSIGN: return from_float(copysign(y, x), n);
  case MAX: return isnan(x) ? s[1] : isnan(y) || x > y ? s[0] : s[1];
  case MIN: return isnan(x) ? s[1] : isnan(y) || x < y ? s[0] : s[1];
  default: die("no such operation on floats: %s", i->text);
  }
}

static uint64_t int_op(const instr *i, const uint64_t *s) {
  type t = i->t;
  int bits = 8 * t.bytes;
  int64_t x = as_int(s[0], t), y = i->n_src > 1 ? as_int(s[1], t) : 0, z = i->n_src > 2 ? (int64_t)s[2] : 0;
  uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
  bool is_signed = t.kind == S;
  switch (i->op) {
  case ADD: return ux + uy;
  case SUB: return ux - uy;
  case MUL: case MAD: {
    uint64_t product = ux * uy;
    if (i->mode == HI) {
      if (bits == 64)
        product = is_signed ? (uint64_t)((__extension__(__int128) x * y) >> 64)
                            : (uint64_t)((__extension__(unsigned __int128) ux * uy) >> 64);
      else product = is_signed ? (uint64_t)(x * y >> bits) : product >> bits;
    }
    return i->op == MAD ? product + (uint64_t)z : product;
  }
  case DIV: return !y ? ~0ull : is_signed ? (uint64_t)(y == -1 ? -x : x / y) : ux / uy;
  case REM: return !y ? ux : is_signed ? (uint64_t)(y == -1 ? 0 : x % y) : ux % uy;
  case MAX: return is_signed ? (uint64_t)(x > y ? x : y) : ux > uy ? ux : uy;
  case MIN: return is_signed ? (uint64_t)(x < y ? x : y) : ux < uy ? ux : uy;
  case AND: return ux & uy;
  case OR: return ux | uy;
  case XOR: return ux ^ uy;
  case NOT: return t.kind == P ? !ux : ~ux;
  case NEG: return 0 - ux;
  case ABS: return (uint64_t)(x < 0 ? -x : x);
  case SHL: { uint32_t by = (uint32_t)s[1]; return by >= (unsigned)bits ? 0 : ux << by; }
  case SHR: {
    uint32_t by = (uint32_t)s[1];
    if (is_signed) return (uint64_t)(x >> (by >= (unsigned)bits ? bits - 1 : (int)by));
    return by >= (unsigned)bits ? 0 : ux >> by;
  }
  case SHF: {
    uint64_t both = (s[0] & 0xffffffff) | s[1] << 32;
    uint32_t by = (uint32_t)s[2] & 31;
    return i->mode == HI ? both >> by : both << by >> 32;
  }
  case CLZ: return ux ? (uint64_t)(__builtin_clzll(ux) - (64 - bits)) : (uint64_t)bits;
  case POPC: return (uint64_t)__builtin_popcountll(ux);
  case BFE: {
    unsigned from = (unsigned)s[1] & 255, n = (unsigned)s[2] & 255;
    if (!n) return 0;
    uint64_t v = from < 64 ? ux >> from : 0, m = n >= 64 ? ~0ull : (1ull << n) - 1;
    bool sign = is_signed && x >> (from + n - 1 < (unsigned)bits ? from + n - 1 : (unsigned)bits - 1) & 1;
    return sign ? (v & m) | ~m : v & m;
  }
  case BFI: {
    unsigned from = (unsigned)s[2] & 255, n = (unsigned)s[3] & 255;
    uint64_t m = from >= 64 ? 0 : (n >= 64 ? ~0ull : (1ull << n) - 1) << from;
    return (uy & ~m) | (from < 64 ? ux << from & m : 0);
  }
  default: die("no such operation on integers: %s", i->text);
  }
}

PRINTF_LIKE(3, 4) static unsigned char *fault(group *g, int status, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (!g->status) vsnprintf(g->why, g->cap, fmt, ap);
  va_end(ap);
  g->status = status;
  return NULL;
}

// Notes who uses bytes of the work-group's memory, and tells two that do without a barrier in between.
static bool shared_use(group *g, const instr *i, uint64_t at, size_t n, int who, bool writes) {
  for (uint64_t b = at; b < at + n; b++) {
    use *u = &g->uses[b];
    if (u->awaited) {
      fault(g, 719, "%s: a race: item %d uses byte %llu of the work-group's memory, where a copy is under way: %s",
            g->k->name, who, (unsigned long long)b, i->text);
      return false;
    }
    bool wrote = u->wrote == g->barrier && u->writer != who, read = writes && u->read == g->barrier && u->reader != who;
    if (wrote || read) {
      fault(g, 719, "%s: a race: items %d and %d use byte %llu of the work-group's memory: %s", g->k->name,
            wrote ? u->writer : u->reader, who, (unsigned long long)b, i->text);
      return false;
    }
    if (writes) { u->wrote = g->barrier; u->writer = who; }
    else { u->reader = u->read == g->barrier && u->reader != who ? -1 : who; u->read = g->barrier; }
  }
  return true;
}

static unsigned char *memory_at(group *g, const item *t, const instr *i, int who, bool writes) {
  int n = writes ? i->n_src : i->n_dst;
  size_t bytes = (size_t)(i->t.bytes * n);
  uint64_t at = REG(t, i->at) + (uint64_t)i->offset;
  if (at % bytes)
    return fault(g, 716, "%s: %zu bytes at %#llx: %s", g->k->name, bytes, (unsigned long long)at, i->text);
  if (i->space == GLOBAL)
    return g->may(at, bytes)
             ? (unsigned char *)(uintptr_t)at
             : fault(g, 700, "%s: %zu bytes at %#llx: %s", g->k->name, bytes, (unsigned long long)at, i->text);
  size_t size = i->space == SHARED ? g->k->shared : g->k->local;
  if (at > size || bytes > size - at)
    return fault(g, 700, "%s: bytes %llu.. of %zu: %s", g->k->name, (unsigned long long)at, size, i->text);
  if (i->space == SHARED && !shared_use(g, i, at, bytes, who, writes)) return NULL;
  return (i->space == SHARED ? g->shared : t->local) + at;
}

static void load(group *g, item *t, const instr *i, int who) {
  const unsigned char *p = memory_at(g, t, i, who, false);
  for (int n = 0; p && n < i->n_dst; n++) {
    uint64_t v = 0;
    memcpy(&v, p + n * i->t.bytes, (size_t)i->t.bytes);
    REG(t, i->dst[n]) = (uint64_t)as_int(v, i->t);        // a wider register gets the sign
  }
}

static void store(group *g, item *t, const instr *i, int who) {
  unsigned char *p = memory_at(g, t, i, who, true);
  for (int n = 0; p && n < i->n_src; n++) {
    uint64_t v = REG(t, i->src[n]);
    memcpy(p + n * i->t.bytes, &v, (size_t)i->t.bytes);
  }
}

// cp.async: the copy begins, or all that the item has begun are there.
static void copy_async(group *g, item *t, const instr *i, int who) {
  if (i->mode != WAIT) {
    way w = {i, REG(t, i->from_at) + (uint64_t)i->from_offset, REG(t, i->at) + (uint64_t)i->offset,
             (size_t)REG(t, i->src[0])};
    bool size = w.bytes == 16 || (i->mode == START && (w.bytes == 4 || w.bytes == 8));
    if (!size || w.from % w.bytes || w.to % w.bytes)
      fault(g, 716, "%s: %zu bytes from %#llx to %#llx: %s", g->k->name, w.bytes, (unsigned long long)w.from,
            (unsigned long long)w.to, i->text);
    else if (!g->may(w.from, w.bytes) || w.to > g->k->shared || w.bytes > g->k->shared - w.to)
      fault(g, 700, "%s: %zu bytes from %#llx to %llu.. of %zu: %s", g->k->name, w.bytes, (unsigned long long)w.from,
            (unsigned long long)w.to, g->k->shared, i->text);
    else if (shared_use(g, i, w.to, w.bytes, who, true)) {
      for (size_t b = 0; b < w.bytes; b++) g->uses[w.to + b].awaited = true;
      vec_push(&t->on_the_way, w);
    }
    return;
  }
  for (size_t n = 0; n < t->on_the_way.n; n++) {
    way w = t->on_the_way.at[n];
    for (size_t b = 0; b < w.bytes; b++) g->uses[w.to + b].awaited = false;
    if (!shared_use(g, w.i, w.to, w.bytes, who, true)) return;
    memcpy(g->shared + w.to, (const unsigned char *)(uintptr_t)w.from, w.bytes);
  }
  t->on_the_way.n = 0;
}

// mov between one register and several parts of it
static void move(item *t, const instr *i) {
  int parts = i->n_dst > 1 ? i->n_dst : i->n_src, bits = 8 * i->t.bytes / parts;
  uint64_t v = 0, m = bits >= 64 ? ~0ull : (1ull << bits) - 1;
  if (i->n_src == 1) v = REG(t, i->src[0]);
  else for (int n = 0; n < i->n_src; n++) v |= (REG(t, i->src[n]) & m) << n * bits;
  if (i->n_dst == 1) { REG(t, i->dst[0]) = v & mask_of(i->t.bytes); return; }
  for (int n = 0; n < i->n_dst; n++) REG(t, i->dst[n]) = v >> n * bits & m;
}

static void compute(item *t, const instr *i) {
  uint64_t s[MOST_SRC + 1] = {0}, r;
  for (int n = 0; n < i->n_src; n++) s[n] = REG(t, i->src[n]);
  int bytes = i->t.bytes;
  switch (i->op) {
  case SELP: r = s[2] & 1 ? s[0] : s[1]; break;
  case SETP:
    r = compare(i, s[0], s[1]);
    if (i->combine) r = i->combine == 'a' ? r & s[2] : i->combine == 'o' ? r | s[2] : r ^ s[2];
    break;
  case CVT:
    if (i->t.pair) {
      r = from_float(as_float(s[0], i->from.bytes), 2) << 16 | from_float(as_float(s[1], i->from.bytes), 2);
      bytes = 4;
      break;
    }
    r = convert(i, s[0]);
    if (i->t.kind == S) { r = (uint64_t)as_int(r, i->t); bytes = 8; }       // a wider register gets the sign
    break;
  case PRMT: r = permute(s[0], s[1], s[2]); break;
  case DP4A: r = dot(i, s[0], s[1], s[2]); bytes = 4; break;
  case POPC: case CLZ: r = int_op(i, s); bytes = 4; break;
  default:
    if (i->t.kind == F) { r = float_op(i, s); break; }
    r = int_op(i, s);
    if ((i->op == MUL || i->op == MAD) && i->mode == WIDE) bytes *= 2;
  }
  REG(t, i->dst[0]) = i->op == SETP || i->t.kind == P ? r & 1 : r & mask_of(bytes);
}

// ---- one instruction, for neighbours --------------------------------------------------------------------------------

// Loops over many items are worth a processor's widest vectors.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(WEFT_SANITIZE)
#define FOR_THIS_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_THIS_PROCESSOR
#endif
#define EACH(e) do { for (size_t x = 0; x < n; x++) d[x] = (uint64_t)(e) & m; } while (0)
#define SIGNED(v) ((int64_t)((v) << sh) >> sh)
#define UNSIGNED(v) ((v) << sh >> sh)
#define RELATIONS(a, b) \
  case EQ: EACH((a) == (b)); break; \
  case NE: EACH((a) != (b)); break; \
  case LT: EACH((a) < (b)); break; \
  case LE: EACH((a) <= (b)); break; \
  case GT: EACH((a) > (b)); break; \
  default: EACH((a) >= (b))

// Of floats: a relation that holds for NaN is the negation of one that does not.
static void compare_singles(const instr *i, uint64_t *d, const uint64_t *a, const uint64_t *b, size_t n) {
  const uint64_t m = 1;
  static const enum relation other[] = {[EQ] = NE, [NE] = EQ, [LT] = GE,    [LE] = GT,
                                        [GT] = LE, [GE] = LT, [NAN_] = NUM, [NUM] = NUM};
  enum relation is = i->unordered ? other[i->relation] : i->relation;
#define A single(a[x])
#define B single(b[x])
  switch (is) {
  case EQ: EACH(A == B); break;
  case NE: EACH(A < B || A > B); break;
  case LT: EACH(A < B); break;
  case LE: EACH(A <= B); break;
  case GT: EACH(A > B); break;
  case GE: EACH(A >= B); break;
  default: EACH(A == A && B == B);
  }
#undef A
#undef B
  if (i->unordered) for (size_t x = 0; x < n; x++) d[x] ^= 1;
}

// r: register 0 of the first of n items.
FOR_THIS_PROCESSOR static void quick(const instr *i, uint64_t *r, size_t stride, size_t n) {
  uint64_t *d = r + (size_t)i->dst[0] * stride, m = i->mask;
  const uint64_t *a = r + (size_t)i->src[0] * stride, *b = r + (size_t)i->src[1] * stride,
                 *c = r + (size_t)i->src[2] * stride;
  int sh = i->shift;
  unsigned bits = 64 - (unsigned)sh;
  switch (i->quick) {
  case Q_ADD: EACH(a[x] + b[x]); break;
  case Q_SUB: EACH(a[x] - b[x]); break;
  case Q_MUL: EACH(a[x] * b[x]); break;
  case Q_MAD: EACH(a[x] * b[x] + c[x]); break;
  case Q_WIDE_S:
    if (i->op == MUL) EACH(SIGNED(a[x]) * SIGNED(b[x]));
    else EACH((uint64_t)(SIGNED(a[x]) * SIGNED(b[x])) + c[x]);
    break;
  case Q_WIDE_U:
    if (i->op == MUL) EACH(UNSIGNED(a[x]) * UNSIGNED(b[x]));
    else EACH(UNSIGNED(a[x]) * UNSIGNED(b[x]) + c[x]);
    break;
  case Q_AND: EACH(a[x] & b[x]); break;
  case Q_OR: EACH(a[x] | b[x]); break;
  case Q_XOR: EACH(a[x] ^ b[x]); break;
  case Q_NOT:
    if (i->t.kind == P) EACH(!(a[x] & 255));
    else EACH(~a[x]);
    break;
  case Q_SHL: EACH((uint32_t)b[x] >= bits ? 0 : UNSIGNED(a[x]) << (b[x] & 63)); break;
  case Q_SHR_S: EACH(SIGNED(a[x]) >> ((uint32_t)b[x] >= bits ? bits - 1 : b[x] & 63)); break;
  case Q_SHR_U: EACH((uint32_t)b[x] >= bits ? 0 : UNSIGNED(a[x]) >> (b[x] & 63)); break;
  case Q_SELP: EACH(c[x] & 1 ? a[x] : b[x]); break;
  case Q_SETP_S: switch (i->relation) { RELATIONS(SIGNED(a[x]), SIGNED(b[x])); } break;
  case Q_SETP_U: switch (i->relation) { RELATIONS(UNSIGNED(a[x]), UNSIGNED(b[x])); } break;
  case Q_SETP_F: compare_singles(i, d, a, b, n); break;
  case Q_EXTEND_S: EACH(SIGNED(a[x])); break;
  case Q_EXTEND_U: EACH(UNSIGNED(a[x])); break;
  case Q_FLOAT_S: EACH(of_single((float)SIGNED(a[x]))); break;
  case Q_FLOAT_U: EACH(of_single((float)UNSIGNED(a[x]))); break;
  case Q_FROM_HALF: EACH(from_float(f16_to_double((uint16_t)a[x]), 4)); break;
  case Q_DP4A: EACH(dot(i, a[x], b[x], c[x])); break;
  case Q_FADD: EACH(of_single(single(a[x]) + single(b[x]))); break;
  case Q_FSUB: EACH(of_single(single(a[x]) - single(b[x]))); break;
  case Q_FMUL: EACH(of_single(single(a[x]) * single(b[x]))); break;
  case Q_FFMA: EACH(of_single(fmaf(single(a[x]), single(b[x]), single(c[x])))); break;
  case Q_FNEG: EACH(a[x] ^ 1ull << 31); break;
  case Q_INT_OP: EACH(int_op(i, (uint64_t[]){a[x], b[x], c[x], r[(size_t)i->src[3] * stride + x]})); break;
  case Q_FLOAT_OP: EACH(float_op(i, (uint64_t[]){a[x], b[x], c[x]})); break;
  default: EACH(a[x]);                              // MOV
  }
}

// LD and ST of the device's memory, after one question whether all of it may be touched. False: nothing is done, each
// item asks for itself, and the fault is found there.
static bool at_once(group *g, const instr *i, size_t first, size_t n) {
  bool writes = i->op == ST;
  int parts = writes ? i->n_src : i->n_dst;
  size_t bytes = (size_t)(i->t.bytes * parts), size = (size_t)i->t.bytes;
  const uint64_t *at = g->regs + (size_t)i->at * g->n + first;
  uint64_t low = ~0ull, high = 0, odd = 0;
  if (i->space != GLOBAL) return false;
  for (size_t x = 0; x < n; x++) {
    uint64_t p = at[x] + (uint64_t)i->offset;
    low = p < low ? p : low;
    high = p > high ? p : high;
    odd |= p;
  }
  if (bytes & (bytes - 1) || odd & (bytes - 1) || high + bytes < high || !g->may(low, high - low + bytes)) return false;
  for (size_t x = 0; x < n; x++) {
    unsigned char *p = (unsigned char *)(uintptr_t)(at[x] + (uint64_t)i->offset);
    for (int part = 0; part < parts; part++, p += size) {
      uint64_t *reg = g->regs + (size_t)(writes ? i->src : i->dst)[part] * g->n + first + x, v = 0;
      if (writes) { memcpy(p, reg, size); continue; }
      if (size == 4) memcpy(&v, p, 4);
      else if (size == 8) memcpy(&v, p, 8);
      else memcpy(&v, p, size);
      *reg = (uint64_t)as_int(v, i->t);             // a wider register gets the sign
    }
  }
  return true;
}

// What neither branches, waits nor ends, for items from `first` on.
static void execute(group *g, const instr *i, size_t first, size_t n) {
  if (i->quick) { quick(i, g->regs + first, g->n, n); return; }
  if ((i->op == LD || i->op == ST) && at_once(g, i, first, n)) return;
  for (size_t x = first; x < first + n && !g->status; x++) {
    item *t = &g->items[x];
    switch (i->op) {
    case LD_PARAM: REG(t, i->dst[0]) = g->params[i->at] >> 8 * i->offset & mask_of(i->t.bytes); break;
    case LD: load(g, t, i, (int)x); break;
    case ST: store(g, t, i, (int)x); break;
    case CP: copy_async(g, t, i, (int)x); break;
    case MOV: move(t, i); break;
    default: compute(t, i);
    }
  }
}

// ---- items up to a barrier ------------------------------------------------------------------------------------------

// Whether an item takes the instruction.
static bool takes(const group *g, const instr *i, size_t x) {
  return i->pred == NO_REG || (g->regs[(size_t)i->pred * g->n + x] & 1) != i->unless;
}

// Where the items are that are furthest behind, and (after) the next ones; SIZE_MAX: there are none.
static size_t furthest_behind(const group *g, size_t *after) {
  size_t at = SIZE_MAX;
  *after = SIZE_MAX;
  for (size_t x = 0; x < g->n; x++) {
    const item *t = &g->items[x];
    if (t->ended || t->waits || t->at == at) continue;
    if (t->at < at) { *after = at; at = t->at; }
    else if (t->at < *after) *after = t->at;
  }
  return at;
}

// The instruction for runs of neighbours among the chosen items that take it.
static void for_runs(group *g, const instr *i, const bool *chosen) {
  for (size_t x = 0, end; x < g->n && !g->status; x = end) {
    bool takes_it = chosen[x] && takes(g, i, x);
    for (end = x + 1; end < g->n && (chosen[end] && takes(g, i, end)) == takes_it;) end++;
    if (takes_it) execute(g, i, x, end - x);
  }
}

// The chosen items, all at `at`, until they part, wait, end, or others are no further than they.
static void go_on(group *g, const bool *chosen, size_t count, size_t at, size_t after, size_t *steps) {
  const ptx *k = g->k;
  while (!g->status && at < after) {
    if (at >= k->code.n || ++*steps > MOST_STEPS) { fault(g, 719, "%s: no end", k->name); return; }
    const instr *i = &k->code.at[at];
    bool stops = i->op == BAR || i->op == SHFL || i->op == MMA || i->op == RET;
    if (i->op != BRA && !stops) {
      if (count == g->n && i->pred == NO_REG) execute(g, i, 0, g->n);
      else for_runs(g, i, chosen);
      at++;
      continue;
    }
    size_t taken = 0;
    for (size_t x = 0; x < g->n; x++) taken += chosen[x] && takes(g, i, x);
    if (!stops && (!taken || taken == count)) { at = taken ? i->to : at + 1; continue; }
    for (size_t x = 0; x < g->n; x++) {
      if (!chosen[x]) continue;
      bool takes_it = takes(g, i, x);
      g->items[x].at = takes_it && i->op == BRA ? i->to : at + 1;
      g->items[x].ended = takes_it && i->op == RET;
      g->items[x].waits = takes_it && stops && i->op != RET;
    }
    return;
  }
  for (size_t x = 0; x < g->n; x++) if (chosen[x]) g->items[x].at = at;
}

// All items up to a barrier or their end.
static void run_items(group *g) {
  bool *chosen = xcalloc(g->n, sizeof *chosen);
  size_t after, at, steps = 0;
  for (size_t x = 0; x < g->n; x++) g->items[x].waits = false;
  while (!g->status && (at = furthest_behind(g, &after)) != SIZE_MAX) {
    size_t count = 0;
    for (size_t x = 0; x < g->n; x++)
      count += chosen[x] = !g->items[x].ended && !g->items[x].waits && g->items[x].at == at;
    go_on(g, chosen, count, at, after, &steps);
  }
  free(chosen);
}

// Every item gets the value of one of the 32 that it runs with, and both have to be named by both.
static void exchange(group *g, const instr *i) {
  item *items = g->items;
  int n = (int)g->n;
  enum { STEP = 32 };
  uint64_t *got = xcalloc((size_t)n, sizeof *got);
  for (int at = 0; at < n && !g->status; at++) {
    const item *t = &items[at];
    int with = (int)(((uint64_t)at % STEP) ^ REG(t, i->src[1])), other = at / STEP * STEP + with;
    uint64_t members = REG(t, i->src[3]) & 0xffffffff;
    bool named = with < STEP && other < n && members >> at % STEP & 1 && members >> with & 1;
    if (REG(t, i->src[2]) != STEP - 1 || !named || (REG(&items[other], i->src[3]) & 0xffffffff) != members)
      fault(g, 719, "%s: item %d of %d asks %d of %llx: %s", g->k->name, at, n, other, (unsigned long long)members,
            i->text);
    else got[at] = REG(&items[other], i->src[0]) & mask_of(i->t.bytes);
  }
  for (int at = 0; at < n && !g->status; at++) REG(&items[at], i->dst[0]) = got[at];
  free(got);
}

// Of a register's halves, or bytes, number n: what it stands for.
static double part_of(const instr *i, uint64_t word, int n, bool is_signed) {
  if (i->mode == HALVES) return f16_to_double((uint16_t)(word >> 16 * n));
  if (i->mode == BRAINS) return (double)single(word >> 16 * n << 16);
  return is_signed ? (double)(int8_t)(uint8_t)(word >> 8 * n) : (double)(uint8_t)(word >> 8 * n);
}

// Sums of products, for tiles of 16 rows and 8 columns, of 32 items each: item 4 g + t gives, register by register,
// products from p t on of rows g and g + 8 (and again 4 p further on), and of column g, where a register holds p of
// them; it gets rows g and g + 8 of columns 2 t and 2 t + 1. In which order floats are added up, and how that is
// rounded, the manual leaves open. Here it is the exact sum (all but), rounded towards zero, as was measured of GPUs.
static void multiply_tiles(group *g, const instr *i) {
  item *items = g->items;
  int n = (int)g->n;
  enum { STEP = 32 };
  int b_words = (i->n_src - 4) / 3, a_words = 2 * b_words, per = i->mode ? 2 : 4, k = 4 * per * b_words;
  if (i->n_dst != 4 || i->n_src != a_words + b_words + 4 || n % STEP || b_words < 1 || b_words > 2) {
    fault(g, 719, "%s: a tile of %d items: %s", g->k->name, n, i->text);
    return;
  }
  for (int first = 0; first < n; first += STEP) {
    uint64_t sum[16][8];
    for (int row = 0; row < 16; row++)
      for (int column = 0; column < 8; column++) {
        const item *own = &items[first + row % 8 * 4 + column / 2];
        uint64_t acc = REG(own, i->src[a_words + b_words + row / 8 * 2 + column % 2]);
        double exact = i->mode ? (double)single(acc) : (double)(int32_t)acc;
        for (int p = 0; p < k; p++) {
          const item *a = &items[first + row % 8 * 4 + p / per % 4], *b = &items[first + column * 4 + p / per % 4];
          exact += part_of(i, REG(a, i->src[p / (4 * per) * 2 + row / 8]), p % per, false) *
                   part_of(i, REG(b, i->src[a_words + p / (4 * per)]), p % per, true);
        }
        float rounded = (float)exact;
        if (i->mode && isfinite(rounded) && fabs((double)rounded) > fabs(exact)) rounded = nextafterf(rounded, 0);
        sum[row][column] = i->mode ? of_single(rounded) : (uint32_t)(int32_t)exact;
      }
    for (int row = 0; row < 16; row++)
      for (int column = 0; column < 8; column++)
        REG(&items[first + row % 8 * 4 + column / 2], i->dst[row / 8 * 2 + column % 2]) = sum[row][column];
  }
}

static void run_group(group *g, const unsigned *at, const unsigned *grid, const unsigned *block) {
  item *items = g->items;
  int n = (int)g->n;
  for (int reg = SPECIALS; reg < g->k->n_regs; reg++)
    for (int i = 0; i < n; i++) g->regs[(size_t)reg * g->n + (size_t)i] = g->k->first.at[reg];
  for (int i = 0; i < n; i++) {
    unsigned id[3] = {(unsigned)i % block[0], (unsigned)i / block[0] % block[1], (unsigned)i / block[0] / block[1]};
    memset(items[i].local, 0xa5, g->k->local);
    items[i].at = 0;
    items[i].ended = false;
    items[i].on_the_way.n = 0;
    for (int a = 0; a < 3; a++) {
      REG(&items[i], a) = id[a];
      REG(&items[i], 3 + a) = block[a];
      REG(&items[i], 6 + a) = at[a];
      REG(&items[i], 9 + a) = grid[a];
    }
  }
  memset(g->shared, 0xa5, g->k->shared);
  memset(g->uses, 0, g->k->shared * sizeof *g->uses);
  for (g->barrier = 1; !g->status;) {
    int ended = 0;
    run_items(g);
    for (int i = 0; i < n; i++) ended += items[i].ended;
    if (ended == n || g->status) return;
    if (ended && !g->status) fault(g, 719, "%s: a barrier that %d of %d items do not reach", g->k->name, ended, n);
    for (int i = 1; i < n && !g->status; i++)
      if (items[i].at != items[0].at)
        fault(g, 719, "%s: items at two barriers: %s, %s", g->k->name, g->k->code.at[items[i].at - 1].text,
              g->k->code.at[items[0].at - 1].text);
    const instr *i = &g->k->code.at[items[0].at - 1];
    if (i->op == SHFL && !g->status) exchange(g, i);
    else if (i->op == MMA && !g->status) multiply_tiles(g, i);
    else g->barrier++;
  }
}

int ptx_run(const ptx *k, const unsigned grid[3], const unsigned block[3], const uint64_t *params, ptx_may *may,
            char *why, size_t cap) {
  size_t n = (size_t)block[0] * block[1] * block[2];
  group g = {.k = k,
             .params = params,
             .may = may,
             .shared = xmalloc(k->shared + 1),
             .uses = xcalloc(k->shared + 1, sizeof *g.uses),
             .items = xcalloc(n, sizeof *g.items),
             .n = n,
             .regs = xcalloc(n, (size_t)k->n_regs * sizeof *g.regs),
             .why = why,
             .cap = cap};
  unsigned char *local = xmalloc(n * k->local + 1);
  for (size_t i = 0; i < n; i++) {
    g.items[i].regs = g.regs + i;
    g.items[i].stride = n;
    g.items[i].local = local + i * k->local;
  }
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0] && !g.status; x++) run_group(&g, (unsigned[]){x, y, z}, grid, block);
  for (size_t i = 0; i < n; i++) vec_free(&g.items[i].on_the_way);
  free(g.shared); free(g.uses); free(g.items); free(g.regs); free(local);
  return g.status;
}
