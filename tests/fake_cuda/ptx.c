// Runs PTX, instruction by instruction: as much of the language as LLVM makes of our kernels. The meaning of each is
// that of NVIDIA's PTX ISA manual.
//
// Items of a work-group run up to the next barrier (ptx_run.c). All registers are 64 bits here, and an
// instruction reads as many as its type has. Bytes of the work-group's memory know who used them last and since which
// barrier, and that tells a race. Where items give each other values (shfl) all of a work-group have to be there. What
// cp.async copies arrives when its item waits for it, and not before; until then nobody may touch the bytes it goes to.
#define _GNU_SOURCE
#include "fake_cuda/ptx_code.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- reading --------------------------------------------------------------------------------------------------------

PRINTF_LIKE(2, 3) static bool fail(ptx *k, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (!*k->why) vsnprintf(k->why, k->cap, fmt, ap);
  va_end(ap);
  return false;
}

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

static bool read_relation(const char *s, instr *i) {
  static const struct { const char *name; enum relation is; } relations[] = {
    {"eq", EQ}, {"ne", NE}, {"lt", LT}, {"le", LE}, {"gt", GT}, {"ge", GE}, {"lo", LT}, {"ls", LE}, {"hi", GT},
    {"hs", GE}, {"equ", EQ}, {"neu", NE}, {"ltu", LT}, {"leu", LE}, {"gtu", GT}, {"geu", GE},
    {"num", NUM}, {"nan", NAN_}};
  for (size_t n = 0; n < COUNT(relations); n++)
    if (!strcmp(s, relations[n].name)) {
      i->relation = relations[n].is;
      i->unordered = s[2] == 'u' || i->relation == NAN_;
      return i->compares = true;
    }
  return false;
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
    if (i->op == SETP && !i->compares && read_relation(part, i)) continue;
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

// CVT and SETP; S: signed.
static void quicken_by_type(instr *i) {
  // to no more bytes: the upper ones are cut off, and a wider register gets the sign of what is left
  bool cuts = i->op == CVT && i->t.kind != F && i->from.kind != F && i->t.bytes <= i->from.bytes;
  type t = i->op == CVT && !cuts ? i->from : i->t;
  i->shift = 64 - 8 * t.bytes;
  if (i->op == SETP && !i->combine && t.kind != P && (t.kind != F || t.bytes == 4)) {
    i->quick = t.kind == F ? Q_SETP_F : t.kind == S ? Q_SETP_S : Q_SETP_U;
    i->mask = 1;
  }
  if (i->op != CVT || i->t.pair) return;
  if (t.kind != F && i->t.kind != F) {
    i->quick = t.kind == S ? Q_EXTEND_S : Q_EXTEND_U;
    if (i->t.kind == S) i->mask = ~0ull;            // a wider register gets the sign
  } else if (t.kind != F && i->t.bytes == 4) i->quick = t.kind == S ? Q_FLOAT_S : Q_FLOAT_U;
  else if (t.kind == F && t.bytes == 2 && i->t.kind == F && i->t.bytes == 4 && !(i->mode & (INTEGER | SATURATE)))
    i->quick = Q_FROM_HALF;
}

static void quicken(instr *i) {
  static const enum quick ints[N_OPS] = {
    [ADD] = Q_ADD, [SUB] = Q_SUB, [MUL] = Q_MUL, [MAD] = Q_MAD, [AND] = Q_AND, [OR] = Q_OR, [XOR] = Q_XOR,
    [MOV] = Q_MOV, [SELP] = Q_SELP, [SHL] = Q_SHL, [DP4A] = Q_DP4A, [NOT] = Q_NOT, [MAX] = Q_INT_OP, [MIN] = Q_INT_OP,
    [BFE] = Q_INT_OP, [BFI] = Q_INT_OP, [NEG] = Q_INT_OP, [ABS] = Q_INT_OP, [DIV] = Q_INT_OP, [REM] = Q_INT_OP};
  static const enum quick floats[N_OPS] = {
    [ADD] = Q_FADD,     [SUB] = Q_FSUB,     [MUL] = Q_FMUL,     [FMA] = Q_FFMA,     [MOV] = Q_MOV,      [SELP] = Q_SELP,
    [NEG] = Q_FNEG, [MAX] = Q_FLOAT_OP, [MIN] = Q_FLOAT_OP, [DIV] = Q_FLOAT_OP, [ABS] = Q_FLOAT_OP, [EX2] = Q_FLOAT_OP,
    [LG2] = Q_FLOAT_OP, [RCP] = Q_FLOAT_OP, [SQRT] = Q_FLOAT_OP};
  i->mask = i->t.kind == P ? 1 : i->t.bytes >= 8 ? ~0ull : (1ull << 8 * i->t.bytes) - 1;
  i->shift = 64 - 8 * i->t.bytes;
  if (i->n_dst != 1 || (i->op == MOV && i->n_src != 1)) return;
  bool is_signed = i->t.kind == S;
  if (i->op == CVT || i->op == SETP) quicken_by_type(i);
  else if (i->mode == WIDE && (i->op == MUL || i->op == MAD) && i->t.kind != F) {
    i->quick = is_signed ? Q_WIDE_S : Q_WIDE_U;
    i->mask = i->t.bytes >= 4 ? ~0ull : (1ull << 16 * i->t.bytes) - 1;
  } else if (i->mode) return;
  else if (i->op == SHR) i->quick = is_signed ? Q_SHR_S : Q_SHR_U;
  else if (i->t.kind != F) i->quick = ints[i->op];
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
