// Runs PTX, instruction by instruction: as much of the language as LLVM makes of our kernels. The meaning of each is
// that of NVIDIA's PTX ISA manual.
//
// Items of a work-group run one after the other, each up to the next barrier. All registers are 64 bits here, and an
// instruction reads as many as its type has. Bytes of the work-group's memory know who used them last and since which
// barrier, and that tells a race. Where items give each other values (shfl) all of a work-group have to be there. What
// cp.async copies arrives when its item waits for it, and not before; until then nobody may touch the bytes it goes to.
#define _GNU_SOURCE
#include "fake_cuda/ptx.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/map.h"
#include "base/str.h"
#include "graph/half.h"

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

// What most instructions are, done at once: the same as compute() does.
enum quick { SLOW, Q_ADD, Q_SUB, Q_MUL, Q_MAD, Q_AND, Q_OR, Q_XOR, Q_MOV, Q_SELP, Q_FADD, Q_FMUL, Q_FFMA };

typedef struct instr {
  enum code op;
  enum quick quick;
  uint64_t mask;                                    // of the bits of a quick one's result
  int dst[MOST_SRC], src[MOST_SRC + 1], at;         // registers, a constant has one of its own; of LD_PARAM: the number
  type t, from;                                     // from: of CVT, and of what a type is made
  int mode, space, n_dst, n_src, pred;              // pred: the register of the condition, NO_REG
  bool unless;
  char compare[4], combine;
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

// ---- reading --------------------------------------------------------------------------------------------------------

PRINTF_LIKE(2, 3) static bool fail(ptx *k, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (!*k->why) vsnprintf(k->why, k->cap, fmt, ap);
  va_end(ap);
  return false;
}

// Registers 0 to 11 are %tid, %ntid, %ctaid and %nctaid; then the kernel's.
enum { SPECIALS = 12 };
static int register_of(ptx *k, const char *name) {
  static const char *const specials[] = {"%tid.x",   "%tid.y",   "%tid.z",   "%ntid.x",   "%ntid.y",   "%ntid.z",
                                         "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z"};
  for (int i = 0; i < SPECIALS; i++) if (!strcmp(name, specials[i])) return i;
  void *v;
  if (smap_get(&k->regs, name, strlen(name), &v)) return (int)(intptr_t)v;
  const char *kept = arena_strdup(k->mem, name);
  smap_set(&k->regs, kept, strlen(kept), (void *)(intptr_t)k->n_regs);
  vec_push(&k->first, 0);
  return k->n_regs++;
}

static bool read_operand(ptx *k, const char *s, int *out) {
  void *v;
  char *end = NULL;
  *out = register_of(k, s);
  if (*s == '%' || !strcmp(s, "_") || !strcmp(s, "tmp")) return true;       // tmp: of a block in a line
  uint64_t *first = &k->first.at[*out];
  if (smap_get(&k->memories, s, strlen(s), &v)) { *first = (uint64_t)(intptr_t)v; return true; }
  if (s[0] == '0' && (s[1] == 'f' || s[1] == 'd')) *first = strtoull(s + 2, &end, 16);
  else *first = *s == '-' ? (uint64_t)strtoll(s, &end, 0) : strtoull(s, &end, 0);
  if (*end == 'U') end++;
  return !*end || fail(k, "no operand: %s", s);
}

// [register+number] [name+number]
static bool read_address(ptx *k, char *s, instr *i, bool second) {
  char *plus = strchr(s, '+');
  int64_t *offset = second ? &i->from_offset : &i->offset;
  if (plus) { *plus = 0; *offset = strtoll(plus + 1, NULL, 0); }
  void *v;
  if (second) return read_operand(k, s, &i->from_at);
  if (smap_get(&k->params, s, strlen(s), &v)) { i->op = LD_PARAM; i->at = (int)(intptr_t)v; return true; }
  return read_operand(k, s, &i->at);
}

// The operands, split at commas that are in no braces.
static bool read_operands(ptx *k, char *s, instr *i) {
  int n = 0;
  bool two_results = i->op == SETP && strchr(s, '|');
  if (two_results) return fail(k, "two results: %s", i->text);
  while (*s) {
    s += strspn(s, " \t,");
    if (!*s) break;
    bool braces = *s == '{';
    char *end = *s == '[' ? strchr(s, ']') : braces ? strchr(s, '}') : s + strcspn(s, ",");
    if (!end) return fail(k, "operands: %s", i->text);
    char after = *end, *in = s;
    *end = 0;
    s = after ? end + 1 : end;
    if (*in == '[') {
      if (n > 1 || !read_address(k, in + 1, i, n == 1 && i->op == CP)) return fail(k, "operands: %s", i->text);
      n++;
      continue;
    }
    // results come first, but for a store, whose address does
    bool result = n == 0 && i->op != ST && i->op != BRA && i->op != BAR;
    for (char *one = braces ? in + 1 : in; *one;) {
      size_t len = strcspn(one, ",");
      char keep = one[len];
      one[len] = 0;
      one += strspn(one, " ");
      for (size_t e = strlen(one); e && one[e - 1] == ' ';) one[--e] = 0;
      int *to = result ? &i->dst[i->n_dst++] : &i->src[i->n_src++];
      if (i->n_dst > MOST_SRC || i->n_src > MOST_SRC + 1) return fail(k, "too many operands: %s", i->text);
      if (i->op == BRA) { vec_push(&k->jumps, ((struct fixup){k->code.n, arena_strdup(k->mem, one)})); i->n_src--; }
      else if (!read_operand(k, one, to)) return false;
      one += strlen(one);
      if (keep) one++;
      if (!braces) break;
    }
    n++;
  }
  return true;
}

// A number; f16x2 are two of them in one register.
static bool is_type(const char *s, type *t) {
  if (!strcmp(s, "pred")) { *t = (type){P, 1, false}; return true; }
  if (!strchr("usbf", *s) || s[1] < '0' || s[1] > '9') return false;
  *t = (type){*s, atoi(s + 1) / 8, strstr(s, "x2")};
  return true;
}

static bool read_op(ptx *k, char *s, instr *i) {
  static const struct { const char *name; enum code op;
  } ops[] = {{"abs", ABS},   {"add", ADD}, {"and", AND},           {"bar", BAR},   {"bfe", BFE}, {"bfi", BFI},
             {"bra", BRA},   {"clz", CLZ}, {"copysign", COPYSIGN}, {"cp", CP},     {"cvt", CVT}, {"div", DIV},
             {"dp4a", DP4A}, {"ex2", EX2}, {"fma", FMA},           {"ld", LD},     {"lg2", LG2}, {"mad", MAD},
             {"max", MAX},   {"min", MIN}, {"mma", MMA},           {"mov", MOV},   {"mul", MUL}, {"neg", NEG},
             {"not", NOT},   {"or", OR},   {"popc", POPC},         {"prmt", PRMT}, {"rcp", RCP}, {"exit", RET},
             {"rem", REM},   {"ret", RET}, {"selp", SELP},         {"setp", SETP}, {"shf", SHF}, {"shfl", SHFL},
             {"shl", SHL},   {"shr", SHR}, {"sqrt", SQRT},         {"st", ST},     {"sub", SUB}, {"xor", XOR}};
  static const char *const compares[] = {"eq", "ne",  "lt",  "le",  "gt",  "ge",  "lo",  "ls",  "hi",
                                         "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  static const struct {
    const char *name;
    int mode;
  } roundings[] = {{"rn", RN},
                   {"rz", RZ},
                   {"rm", RM},
                   {"rp", RP},
                   {"rni", RN | INTEGER},
                   {"rzi", RZ | INTEGER},
                   {"rmi", RM | INTEGER},
                   {"rpi", RP | INTEGER}};
  static const char *const nothing[] = {"sync", "nc", "to", "uni", "full",  "volatile", "relaxed",
                                        "gpu",  "v2", "v4", "bfly", "lo",  "entry", "l",        "clamp",
                                        "aligned", "m16n8k16", "m16n8k32", "row", "col"};
  char *save, *part = strtok_r(s, ".", &save);
  i->op = N_OPS;
  for (size_t n = 0; n < COUNT(ops); n++) if (!strcmp(part, ops[n].name)) i->op = ops[n].op;
  if (i->op == N_OPS) return fail(k, "no such instruction: %s", i->text);
  bool typed = false;
  while ((part = strtok_r(NULL, ".", &save))) {
    type t;
    bool known = false;
    if (i->op == SETP && !*i->compare)
      for (size_t n = 0; n < COUNT(compares); n++)
        if (!strcmp(part, compares[n])) {
          snprintf(i->compare, sizeof i->compare, "%s", part);
          known = true;
        }
    if (known) continue;
    if (i->op == SETP && (!strcmp(part, "and") || !strcmp(part, "or") || !strcmp(part, "xor"))) {
      i->combine = *part;
      continue;
    }
    if (i->op == MMA && strstr(part, "f16")) { i->mode = *part == 'b' ? BRAINS : HALVES; continue; }
    if (i->op == CP && (!strcmp(part, "async") || !strcmp(part, "ca") || !strcmp(part, "global"))) continue;
    if (i->op == CP && (!strcmp(part, "cg") || !strcmp(part, "wait_all"))) {
      i->mode = *part == 'c' ? START_WIDE : WAIT;
      continue;
    }
    if (is_type(part, &t)) {
      if (!typed) i->t = t;
      i->from = t;
      typed = true;
      continue;
    }
    if (!strcmp(part, "shared")) { i->space = SHARED; continue; }
    if (!strcmp(part, "local")) { i->space = LOCAL; continue; }
    if (!strcmp(part, "global") || !strcmp(part, "param")) continue;
    if (!strcmp(part, "wide")) { i->mode = WIDE; continue; }
    if (!strcmp(part, "hi") && (i->op == MUL || i->op == MAD)) { i->mode = HI; continue; }
    if (!strcmp(part, "r") && i->op == SHF) { i->mode = HI; continue; }
    if (!strcmp(part, "wrap") && i->op == SHF) continue;
    if (!strcmp(part, "sat") && i->op == CVT) { i->mode |= SATURATE; continue; }
    for (size_t n = 0; n < COUNT(roundings); n++)
      if (!strcmp(part, roundings[n].name)) {
        i->mode |= roundings[n].mode;
        known = true;
      }
    for (size_t n = 0; n < COUNT(nothing); n++) known |= !strcmp(part, nothing[n]);
    if (!known) return fail(k, "no such kind of instruction (%s): %s", part, i->text);
  }
  return true;
}

static void quicken(instr *i) {
  static const enum quick ints[N_OPS] = {[ADD] = Q_ADD, [SUB] = Q_SUB, [MUL] = Q_MUL, [MAD] = Q_MAD,  [AND] = Q_AND,
                                         [OR] = Q_OR,   [XOR] = Q_XOR, [MOV] = Q_MOV, [SELP] = Q_SELP};
  static const enum quick floats[N_OPS] = {
    [ADD] = Q_FADD, [MUL] = Q_FMUL, [FMA] = Q_FFMA, [MOV] = Q_MOV, [SELP] = Q_SELP};
  i->mask = i->t.kind == P ? 1 : i->t.bytes >= 8 ? ~0ull : (1ull << 8 * i->t.bytes) - 1;
  if (i->n_dst != 1 || i->mode || (i->op == MOV && i->n_src != 1)) return;
  if (i->t.kind != F) i->quick = ints[i->op];
  else if (i->t.bytes == 4) i->quick = floats[i->op];
}

static bool read_instr(ptx *k, char *s) {
  instr i = {.pred = NO_REG, .text = arena_strdup(k->mem, s)};
  if (*s == '@') {
    char *end = s + strcspn(s, " \t");
    *end = 0;
    i.unless = s[1] == '!';
    i.pred = register_of(k, s + 1 + i.unless);
    s = end + 1 + strspn(end + 1, " \t");
  }
  char *rest = s + strcspn(s, " \t");
  bool any = *rest;
  *rest = 0;
  if (!read_op(k, s, &i) || (any && !read_operands(k, rest + 1, &i))) return false;
  quicken(&i);
  vec_push(&k->code, i);
  return true;
}

// .shared and .local: a name, and bytes behind those before.
static bool read_memory(ptx *k, char *s, bool shared) {
  char *open = strchr(s, '['), *name = open;
  size_t *size = shared ? &k->shared : &k->local, align = 16;
  if (!open) return fail(k, "no size: %s", s);
  sscanf(s, "%*s .align %zu", &align);
  *open = 0;
  while (name > s && name[-1] != ' ' && name[-1] != '\t') name--;
  *size = round_up(*size, align);
  smap_set(&k->memories, arena_strdup(k->mem, name), strlen(name), (void *)(intptr_t)(intptr_t)*size);
  *size += strtoull(open + 1, NULL, 0);
  return true;
}

static bool read_line(ptx *k, char *s, bool in_head) {
  char name[200];
  if (!strncmp(s, ".param", 6)) {
    if (!strstr(s, ".u64") && !strstr(s, ".b64")) return fail(k, "an argument that has not 8 bytes: %s", s);
    char *at = strrchr(s, ' ');
    at += 1;
    at[strcspn(at, ",)")] = 0;
    smap_set(&k->params, arena_strdup(k->mem, at), strlen(at), (void *)(intptr_t)k->n_params++);
    return true;
  }
  if (!strncmp(s, ".visible .entry", 15) && sscanf(s, ".visible .entry %199[^( ]", name) == 1) {
    k->name = arena_strdup(k->mem, name);
    return true;
  }
  if (!strncmp(s, ".reqntid", 8)) {
    sscanf(s, ".reqntid %u, %u, %u", &k->group[0], &k->group[1], &k->group[2]);
    return true;
  }
  if (!strncmp(s, ".shared", 7)) return read_memory(k, s, true);
  if (!strncmp(s, ".local", 6)) return read_memory(k, s, false);
  if (!in_head && *s == '{' && s[1]) {              // { .reg .b16 tmp; an instruction; }
    char *own = strchr(s, ';'), *end = strrchr(s, '}');
    if (!own || !end || end < own) return fail(k, "a block in a line: %s", s);
    for (*end = 0; end > own && strchr(" \t;", end[-1]);) *--end = 0;
    return read_instr(k, own + 1 + strspn(own + 1, " \t"));
  }
  if (in_head || *s == '.' || *s == '{' || *s == '}' || *s == ')') return true;
  char *colon = s[strlen(s) - 1] == ':' ? s + strlen(s) - 1 : NULL;
  if (colon) {
    *colon = 0;
    smap_set(&k->labels, arena_strdup(k->mem, s), strlen(s), (void *)(intptr_t)k->code.n);
    return true;
  }
  return read_instr(k, s);
}

ptx *ptx_read(const char *text, char *why, size_t cap) {
  ptx *k = xcalloc(1, sizeof *k);
  *why = 0;
  k->mem = arena_new();
  k->why = why;
  k->cap = cap;
  for (; k->n_regs < SPECIALS; k->n_regs++) vec_push(&k->first, 0);
  bool ok = true, body = false;
  char *all = arena_strdup(k->mem, text), *save;
  for (char *line = strtok_r(all, "\n", &save); line && ok; line = strtok_r(NULL, "\n", &save)) {
    char *comment = strstr(line, "//");
    if (comment) *comment = 0;
    line += strspn(line, " \t");
    for (size_t n = strlen(line); n && strchr(" \t;\r", line[n - 1]);) line[--n] = 0;
    if (!*line) continue;
    body |= *line == '{';
    ok = read_line(k, line, !body);
  }
  for (size_t i = 0; i < k->jumps.n && ok; i++) {
    void *to;
    ok = smap_get(&k->labels, k->jumps.at[i].label, strlen(k->jumps.at[i].label), &to) ||
         fail(k, "no label %s", k->jumps.at[i].label);
    if (ok) k->code.at[k->jumps.at[i].at].to = (size_t)(intptr_t)to;
  }
  if (ok && (!k->name || !k->code.n)) ok = fail(k, "no kernel");
  if (ok) return k;
  ptx_free(k);
  return NULL;
}

void ptx_free(ptx *k) {
  if (!k) return;
  vec_free(&k->code);
  vec_free(&k->first);
  vec_free(&k->jumps);
  smap_free(&k->regs); smap_free(&k->labels); smap_free(&k->memories); smap_free(&k->params);
  arena_free(k->mem);
  free(k);
}

const char *ptx_name(const ptx *k) { return k->name; }
int ptx_params(const ptx *k) { return k->n_params; }
const unsigned *ptx_group(const ptx *k) { return k->group; }
size_t ptx_shared(const ptx *k) { return k->shared; }

// ---- running --------------------------------------------------------------------------------------------------------

// on_the_way: what the item copies and has not waited for.
typedef struct way { const instr *i; uint64_t from, to; size_t bytes; } way;
typedef struct item { uint64_t *regs; unsigned char *local; size_t at; bool ended; VEC(way) on_the_way; } item;
// Of a byte of the work-group's memory: since which barrier (counted from 1) it was written and read, and by which
// item; -1: several. awaited: something is on its way there.
typedef struct use { int wrote, read; int writer, reader; bool awaited; } use;
typedef struct group {
  const ptx *k;
  const uint64_t *params;
  ptx_may *may;
  unsigned char *shared;
  use *uses;
  int barrier, status;
  char *why;
  size_t cap;
} group;

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
  const char *c = i->compare;
  int less, equal;
  if (i->t.kind == F) {
    double a = as_float(x, i->t.bytes), b = as_float(y, i->t.bytes);
    bool unordered = isnan(a) || isnan(b);
    if (!strcmp(c, "nan")) return unordered;
    if (!strcmp(c, "num")) return !unordered;
    if (unordered) return strlen(c) == 3;           // equ, neu, ...
    less = a < b;
    equal = a == b;
  } else {
    int64_t a = as_int(x, i->t), b = as_int(y, i->t);
    less = i->t.kind == S ? a < b : (uint64_t)a < (uint64_t)b;
    equal = a == b;
  }
  if (!strncmp(c, "eq", 2)) return equal;
  if (!strncmp(c, "ne", 2)) return !equal;
  if (!strncmp(c, "lt", 2) || !strcmp(c, "lo")) return less;
  if (!strncmp(c, "le", 2) || !strcmp(c, "ls")) return less || equal;
  if (!strncmp(c, "gt", 2) || !strcmp(c, "hi")) return !less && !equal;
  return !less;
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
  uint64_t at = t->regs[i->at] + (uint64_t)i->offset;
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
    t->regs[i->dst[n]] = (uint64_t)as_int(v, i->t);        // a wider register gets the sign
  }
}

static void store(group *g, item *t, const instr *i, int who) {
  unsigned char *p = memory_at(g, t, i, who, true);
  for (int n = 0; p && n < i->n_src; n++) {
    uint64_t v = t->regs[i->src[n]];
    memcpy(p + n * i->t.bytes, &v, (size_t)i->t.bytes);
  }
}

// cp.async: the copy begins, or all that the item has begun are there.
static void copy_async(group *g, item *t, const instr *i, int who) {
  if (i->mode != WAIT) {
    way w = {i, t->regs[i->from_at] + (uint64_t)i->from_offset, t->regs[i->at] + (uint64_t)i->offset,
             (size_t)t->regs[i->src[0]]};
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
  if (i->n_src == 1) v = t->regs[i->src[0]];
  else for (int n = 0; n < i->n_src; n++) v |= (t->regs[i->src[n]] & m) << n * bits;
  if (i->n_dst == 1) { t->regs[i->dst[0]] = v & mask_of(i->t.bytes); return; }
  for (int n = 0; n < i->n_dst; n++) t->regs[i->dst[n]] = v >> n * bits & m;
}

static void compute(item *t, const instr *i) {
  uint64_t s[MOST_SRC + 1] = {0}, r;
  for (int n = 0; n < i->n_src; n++) s[n] = t->regs[i->src[n]];
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
    if (i->t.kind == S) bytes = 8;                    // a wider register gets the sign
    break;
  case PRMT: r = permute(s[0], s[1], s[2]); break;
  case DP4A: r = dot(i, s[0], s[1], s[2]); bytes = 4; break;
  case POPC: case CLZ: r = int_op(i, s); bytes = 4; break;
  default:
    if (i->t.kind == F) { r = float_op(i, s); break; }
    r = int_op(i, s);
    if ((i->op == MUL || i->op == MAD) && i->mode == WIDE) bytes *= 2;
  }
  t->regs[i->dst[0]] = i->op == SETP || i->t.kind == P ? r & 1 : r & mask_of(bytes);
}

static uint64_t quick(const instr *i, const uint64_t *r) {
  const int *s = i->src;
  switch (i->quick) {
  case Q_ADD: return r[s[0]] + r[s[1]];
  case Q_SUB: return r[s[0]] - r[s[1]];
  case Q_MUL: return r[s[0]] * r[s[1]];
  case Q_MAD: return r[s[0]] * r[s[1]] + r[s[2]];
  case Q_AND: return r[s[0]] & r[s[1]];
  case Q_OR: return r[s[0]] | r[s[1]];
  case Q_XOR: return r[s[0]] ^ r[s[1]];
  case Q_SELP: return r[s[2]] & 1 ? r[s[0]] : r[s[1]];
  case Q_FADD: return of_single(single(r[s[0]]) + single(r[s[1]]));
  case Q_FMUL: return of_single(single(r[s[0]]) * single(r[s[1]]));
  case Q_FFMA: return of_single(fmaf(single(r[s[0]]), single(r[s[1]]), single(r[s[2]])));
  default: return r[s[0]];                          // MOV
  }
}

// One item up to a barrier or its end.
static void run_item(group *g, item *t, int who) {
  const ptx *k = g->k;
  for (size_t steps = 0; !g->status; steps++) {
    if (t->at >= k->code.n || steps > MOST_STEPS) { fault(g, 719, "%s: no end", k->name); return; }
    const instr *i = &k->code.at[t->at++];
    if (i->pred != NO_REG && (t->regs[i->pred] & 1) == i->unless) continue;
    if (i->quick) { t->regs[i->dst[0]] = quick(i, t->regs) & i->mask; continue; }
    switch (i->op) {
    case BAR: case SHFL: case MMA: return;
    case RET: t->ended = true; return;
    case BRA: t->at = i->to; break;
    case LD_PARAM: t->regs[i->dst[0]] = g->params[i->at] >> 8 * i->offset & mask_of(i->t.bytes); break;
    case LD: load(g, t, i, who); break;
    case ST: store(g, t, i, who); break;
    case CP: copy_async(g, t, i, who); break;
    case MOV: move(t, i); break;
    default: compute(t, i);
    }
  }
}

// Every item gets the value of one of the 32 that it runs with, and both have to be named by both.
static void exchange(group *g, item *items, int n, const instr *i) {
  enum { STEP = 32 };
  uint64_t *got = xcalloc((size_t)n, sizeof *got);
  for (int at = 0; at < n && !g->status; at++) {
    const uint64_t *regs = items[at].regs;
    int with = (int)(((uint64_t)at % STEP) ^ regs[i->src[1]]), other = at / STEP * STEP + with;
    uint64_t members = regs[i->src[3]] & 0xffffffff;
    bool named = with < STEP && other < n && members >> at % STEP & 1 && members >> with & 1;
    if (regs[i->src[2]] != STEP - 1 || !named || (items[other].regs[i->src[3]] & 0xffffffff) != members)
      fault(g, 719, "%s: item %d of %d asks %d of %llx: %s", g->k->name, at, n, other, (unsigned long long)members,
            i->text);
    else got[at] = items[other].regs[i->src[0]] & mask_of(i->t.bytes);
  }
  for (int at = 0; at < n && !g->status; at++) items[at].regs[i->dst[0]] = got[at];
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
static void multiply_tiles(group *g, item *items, int n, const instr *i) {
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
        const uint64_t *own = items[first + row % 8 * 4 + column / 2].regs;
        uint64_t acc = own[i->src[a_words + b_words + row / 8 * 2 + column % 2]];
        double exact = i->mode ? (double)single(acc) : (double)(int32_t)acc;
        for (int p = 0; p < k; p++) {
          const uint64_t *a = items[first + row % 8 * 4 + p / per % 4].regs,
                         *b = items[first + column * 4 + p / per % 4].regs;
          exact += part_of(i, a[i->src[p / (4 * per) * 2 + row / 8]], p % per, false) *
                   part_of(i, b[i->src[a_words + p / (4 * per)]], p % per, true);
        }
        float rounded = (float)exact;
        if (i->mode && isfinite(rounded) && fabs((double)rounded) > fabs(exact)) rounded = nextafterf(rounded, 0);
        sum[row][column] = i->mode ? of_single(rounded) : (uint32_t)(int32_t)exact;
      }
    for (int row = 0; row < 16; row++)
      for (int column = 0; column < 8; column++)
        items[first + row % 8 * 4 + column / 2].regs[i->dst[row / 8 * 2 + column % 2]] = sum[row][column];
  }
}

static void run_group(group *g, item *items, const unsigned *at, const unsigned *grid, const unsigned *block) {
  int n = (int)(block[0] * block[1] * block[2]);
  for (int i = 0; i < n; i++) {
    unsigned id[3] = {(unsigned)i % block[0], (unsigned)i / block[0] % block[1], (unsigned)i / block[0] / block[1]};
    memcpy(items[i].regs, g->k->first.at, (size_t)g->k->n_regs * sizeof *items[i].regs);
    memset(items[i].local, 0xa5, g->k->local);
    items[i].at = 0;
    items[i].ended = false;
    items[i].on_the_way.n = 0;
    for (int a = 0; a < 3; a++) {
      items[i].regs[a] = id[a];
      items[i].regs[3 + a] = block[a];
      items[i].regs[6 + a] = at[a];
      items[i].regs[9 + a] = grid[a];
    }
  }
  memset(g->shared, 0xa5, g->k->shared);
  memset(g->uses, 0, g->k->shared * sizeof *g->uses);
  for (g->barrier = 1; !g->status;) {
    int ended = 0;
    for (int i = 0; i < n && !g->status; i++) { run_item(g, &items[i], i); ended += items[i].ended; }
    if (ended == n) return;
    if (ended && !g->status) fault(g, 719, "%s: a barrier that %d of %d items do not reach", g->k->name, ended, n);
    for (int i = 1; i < n && !g->status; i++)
      if (items[i].at != items[0].at)
        fault(g, 719, "%s: items at two barriers: %s, %s", g->k->name, g->k->code.at[items[i].at - 1].text,
              g->k->code.at[items[0].at - 1].text);
    const instr *i = &g->k->code.at[items[0].at - 1];
    if (i->op == SHFL && !g->status) exchange(g, items, n, i);
    else if (i->op == MMA && !g->status) multiply_tiles(g, items, n, i);
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
             .why = why,
             .cap = cap};
  item *items = xcalloc(n, sizeof *items);
  uint64_t *regs = xcalloc(n, (size_t)k->n_regs * sizeof *regs);
  unsigned char *local = xmalloc(n * k->local + 1);
  for (size_t i = 0; i < n; i++) {
    items[i].regs = regs + i * (size_t)k->n_regs;
    items[i].local = local + i * k->local;
  }
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0] && !g.status; x++) run_group(&g, items, (unsigned[]){x, y, z}, grid, block);
  for (size_t i = 0; i < n; i++) vec_free(&items[i].on_the_way);
  free(g.shared); free(g.uses); free(items); free(regs); free(local);
  return g.status;
}
