// The common part of the renderers for C-like languages: see cstyle.h.
//
// A value is written inline if it is used once, in the block where it is computed, by an operation that mentions the
// operand once. Loads are never inlined (a store might come between), and values of variables only if no assignment
// comes between. Unused values are not written.
#include "render/cstyle.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/plain.h"
#include "graph/half.h"

typedef struct cs_use { size_t count, used; const uop *by; } cs_use;  // used: position of the last use; by: that node
enum { LONGEST_INLINE = 90 };

// ---- texts ----------------------------------------------------------------------------------------------------------

const char *cs_print(cstyle *c, const char *fmt, ...) {
  str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  const char *r = arena_strdup(c->mem, str_c(&s));
  str_free(&s);
  return r;
}

void cs_line(cstyle *c, const char *fmt, ...) {
  for (int i = 0; i < c->depth; i++) str_add(&c->body, "  ");
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&c->body, fmt, ap);
  va_end(ap);
  str_addc(&c->body, '\n');
}

const char *cs_bare(cstyle *c, const char *t) {
  size_t n = strlen(t);
  if (n < 2 || t[0] != '(' || t[n - 1] != ')') return t;
  int depth = 0;
  for (size_t i = 0; i + 1 < n; i++) {
    depth += (t[i] == '(') - (t[i] == ')');
    if (!depth) return t;                           // the first parenthesis closes before the end
  }
  return arena_strndup(c->mem, t + 1, n - 2);
}

const char *cs_name(cstyle *c, const char *kind) { return cs_print(c, "%s%d", kind, c->next++); }

static bool is_atom(const char *t) {
  for (; *t; t++)
    if (!ascii_is_alnum(*t) && *t != '_' && *t != '.') return false;
  return true;
}

bool cs_is_name(const char *x) {
  return ascii_is_letter(*x) && is_atom(x) && !strchr(x, '.') && strcmp(x, "true") && strcmp(x, "false");
}

const char *cs_named(cstyle *c, enum dtype d, int lanes, const char *x) {
  if (is_atom(x)) return x;
  const char *name = cs_name(c, "t");
  cs_line(c, "%s %s = %s;", c->d->type(c, d, lanes), name, cs_bare(c, x));
  return name;
}

const char *cs_buffer(cstyle *c, const uop *m) {
  return cs_print(c, "%c%lld", m->op == OP_PARAM ? 'b' : 'l', (long long)m->a);
}
const char *cs_var(cstyle *c, const uop *v) {
  char *t = arena_printf(c->mem, "n_%.*s", (int)v->s_len, v->s);
  for (char *q = t; *q; q++) if (!ascii_is_alnum(*q)) *q = '_';
  return t;
}

// The shortest decimal that reads back as v.
static const char *float_literal(cstyle *c, double v, bool single) {
  char t[40];
  for (int digits = 1; digits <= (single ? 9 : 17); digits++) {
    plain_snprintf(t, sizeof t, "%.*g", digits, v);
    if (single ? plain_strtof(t, NULL) == (float)v : plain_strtod(t, NULL) == v) break;
  }
  if (!strpbrk(t, ".e")) strcat(t, ".0");
  return cs_print(c, signbit(v) ? "(%s%s)" : "%s%s", t, single ? "f" : "");
}

const char *cs_literal(cstyle *c, const uop *u) {
  enum dtype d = (enum dtype)u->dt;
  if (d == DT_F16) return cs_print(c, "%u", f16_from_double(uop_const_float(u)));
  if (d == DT_F64 && c->d->doubles) {
    double v = uop_const_float(u);
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return cs_print(c, "0x%llxu%s", (unsigned long long)bits, c->d->long_suffix);
  }
  if (dtype_is_float(d)) {
    double v = d == DT_F32 ? (double)(float)uop_const_float(u) : uop_const_float(u);
    if (isfinite(v)) return float_literal(c, v, d == DT_F32);
    return cs_print(c, d == DT_F32 ? "%s(1.0f / 0.0f)" : "%s(1.0 / 0.0)", isnan(v) ? "0.0f * " : v < 0 ? "-" : "");
  }
  int64_t v = u->a;
  if (d == DT_U64) return cs_print(c, "%lluu%s", (unsigned long long)v, c->d->long_suffix);
  if (d == DT_U32) return cs_print(c, "%lluu", (unsigned long long)(uint32_t)v);
  bool wide = v > INT32_MAX || v < -INT32_MAX;
  if (v == INT64_MIN) return cs_print(c, "(-%lld%s - 1)", (long long)INT64_MAX, c->d->long_suffix);
  return cs_print(c, v < 0 ? "(%lld%s)" : "%lld%s", (long long)v, wide ? c->d->long_suffix : "");
}

const char *cs_splat(cstyle *c, enum dtype d, int lanes, const char *x) {
  if (lanes == 1) return x;
  const char **all = ARENA_ARRAY(c->mem, const char *, lanes);
  for (int i = 0; i < lanes; i++) all[i] = x;
  return c->d->build(c, d, lanes, all);
}

// a scalar as a lane: BOOL is 0 or -1 there
static const char *as_lane(cstyle *c, enum dtype d, const char *x) { return d == DT_BOOL ? cs_print(c, "-%s", x) : x; }

static const char *vector_of(cstyle *c, const uop *u) {
  const char **x = ARENA_ARRAY(c->mem, const char *, u->lanes);
  for (int i = 0; i < u->lanes; i++)
    x[i] = u->op == OP_LANE ? cs_print(c, "%d", i)
                            : as_lane(c, (enum dtype)u->dt, cs_text(c, u->src[u->op == OP_SPLAT ? 0 : i]));
  bool same = u->op == OP_SPLAT;
  return same ? cs_splat(c, (enum dtype)u->dt, u->lanes, x[0]) : c->d->build(c, (enum dtype)u->dt, u->lanes, x);
}

const char *cs_text(cstyle *c, const uop *u) {
  const char *t = map_ptr(&c->text, u);
  if (t) return t;
  if (u->op == OP_CONST) t = cs_literal(c, u);
  else if (u->op == OP_LANE || (u->op == OP_SPLAT && u->src[0]->op == OP_CONST))
    t = u->lanes == 1 ? "0" : vector_of(c, u);
  else if (u->op == OP_VAR) t = cs_var(c, u);
  else die("%s: %s.%s is used too early", c->p->name, op_name((enum op)u->op), dtype_name((enum dtype)u->dt));
  map_put(&c->text, u, (void *)(uintptr_t)t);
  return t;
}

// ---- inlined values ------------------------------------------------------------------------------------------------

static bool mentions_once(const cstyle *c, const uop *by, const uop *u) {
  bool vector = u->lanes > 1;
  switch (by->op) {
  case OP_ADD:
  case OP_SUB:
  case OP_MUL:
  case OP_FDIV:
  case OP_AND:
  case OP_OR:
  case OP_XOR:
  case OP_CMPLT:
  case OP_CMPEQ:
  case OP_CMPNE:
  case OP_NEG:
  case OP_SHL: case OP_SHR: case OP_SET: case OP_STORE: return true;
  case OP_CAST: return u->dt != DT_F16 && by->dt != DT_F16;
  case OP_CDIV: case OP_CMOD: case OP_WHERE: return !vector;
  case OP_FMA: case OP_SQRT: case OP_TRUNC: case OP_FLOOR: return !(vector && c->d->names_operands);
  case OP_INDEX: return !vector;
  default: return false;
  }
}

// Is a value still valid between these positions? No block may open or close and, if it reads a variable, no assignment
// may occur.
static bool stays_valid(const cstyle *c, size_t made, size_t used, bool variable) {
  for (size_t i = made + 1; i < used; i++) {
    enum op op = (enum op)c->p->at[i]->op;
    if (op == OP_RANGE || op == OP_END || op == OP_IF || op == OP_ENDIF || op == OP_BARRIER ||
        (variable && op == OP_SET))
      return false;
  }
  return true;
}

// Does the text of u mention a variable? (Names of other values do not count: they are never assigned again.)
static bool reads_variable(const cstyle *c, const uop *u, int depth) {
  if (u->op == OP_ACC || depth > 16) return true;
  if (u->op == OP_LOAD || u->op == OP_RANGE) return false;
  for (size_t i = 0; i < u->nsrc; i++) {
    const char *t = map_ptr(&c->text, u->src[i]);
    if (u->src[i]->op == OP_ACC || (t && !is_atom(t) && reads_variable(c, u->src[i], depth + 1))) return true;
  }
  return false;
}

static bool goes_inline(cstyle *c, const uop *u, const char *t) {
  const cs_use *use = map_ptr(&c->uses, u);
  if (u->op == OP_LOAD || u->op == OP_SWAP || !use || use->count != 1 || strlen(t) > LONGEST_INLINE ||
      !mentions_once(c, use->by, u))
    return false;
  bool variable = reads_variable(c, u, 0);
  if (variable && use->by->op == OP_INDEX) return false;        // an INDEX is written even later, at its use
  return stays_valid(c, c->pos, use->used, variable);
}

static const char *kind_of(const uop *u) {
  if (u->op == OP_LOAD) return "x";
  if (u->dt == DT_BOOL) return "c";
  return dtype_is_float((enum dtype)u->dt) ? "v" : u->lanes == 1 && dtype_size((enum dtype)u->dt) >= 4 ? "i" : "q";
}

static void define(cstyle *c, const uop *u, const char *t) {
  if (!is_atom(t) && !goes_inline(c, u, t)) {
    const char *name = cs_name(c, kind_of(u));
    cs_line(c, "%s %s = %s;", c->d->type(c, (enum dtype)u->dt, u->lanes), name, cs_bare(c, t));
    t = name;
  } else if (is_atom(t) && u->src[0]->op == OP_ACC) {          // a copy of a variable that may change
    const char *name = cs_name(c, kind_of(u));
    cs_line(c, "%s %s = %s;", c->d->type(c, (enum dtype)u->dt, u->lanes), name, t);
    t = name;
  }
  map_put(&c->text, u, (void *)(uintptr_t)t);
}

// ---- elementwise ----------------------------------------------------------------------------------------------------

static const char *const symbols[OP_COUNT] = {
  [OP_ADD] = "+",  [OP_SUB] = "-",   [OP_MUL] = "*",    [OP_FDIV] = "/",  [OP_CDIV] = "/",
  [OP_CMOD] = "%", [OP_AND] = "&",   [OP_OR] = "|",     [OP_XOR] = "^",   [OP_SHL] = "<<",
  [OP_SHR] = ">>", [OP_CMPLT] = "<", [OP_CMPEQ] = "==", [OP_CMPNE] = "!="};

static enum dtype unsigned_of(enum dtype d) {
  return dtype_is_unsigned(d) ? d : d == DT_IDX ? DT_U64 : (enum dtype)(d + 1);
}

static bool is_bits(const cstyle *c, enum dtype d) { return d == DT_F64 && c->d->doubles; }

// Operations on doubles in a language without them, lane by lane: see dialect.doubles.
static const char *op_of_bits(cstyle *c, enum op op, enum dtype from, enum dtype to, int lanes, const char *const *x,
                              size_t n) {
  if (lanes == 1) return c->d->doubles(c, op, from, to, x);
  const char *whole[3] = {0}, *each[3] = {0}, **out = ARENA_ARRAY(c->mem, const char *, lanes);
  for (size_t i = 0; i < n; i++) whole[i] = cs_named(c, from, lanes, x[i]);
  for (int l = 0; l < lanes; l++) {
    for (size_t i = 0; i < n; i++) each[i] = c->d->extract(c, whole[i], l);
    out[l] = c->d->doubles(c, op, from, to, each);
    if (!out[l]) return NULL;
    out[l] = as_lane(c, to, out[l]);
  }
  return c->d->build(c, to, lanes, out);
}

static const char *number_as(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes) {
  return is_bits(c, from) || is_bits(c, to) ? op_of_bits(c, OP_CAST, from, to, lanes, &x, 1)
                                            : c->d->convert(c, x, from, to, lanes);
}

// Integer arithmetic that may wrap uses unsigned numbers of at least 32 bits: only those wrap in these languages.
static const char *wrapping(cstyle *c, enum op op, enum dtype d, int lanes, const char *x, const char *y) {
  enum dtype u = unsigned_of(d);
  if (lanes > 1) {
    if (u != d) { x = x ? c->d->reinterpret(c, x, d, u, lanes) : NULL; y = c->d->reinterpret(c, y, d, u, lanes); }
    const char *r = x ? cs_print(c, "(%s %s %s)", x, symbols[op], y) : cs_print(c, "(-%s)", y);
    return u != d ? c->d->reinterpret(c, r, u, d, lanes) : r;
  }
  bool small = dtype_size(d) < 4;
  enum dtype w = small ? DT_U32 : u;
  const char *to = c->d->scalars[w];
  if (small || u != d) { x = x ? cs_print(c, "(%s)%s", to, x) : NULL; y = cs_print(c, "(%s)%s", to, y); }
  if (!x) return w != d ? cs_print(c, "((%s)(0 - %s))", c->d->scalars[d], y) : cs_print(c, "(0 - %s)", y);
  return w != d ? cs_print(c, "((%s)(%s %s %s))", c->d->scalars[d], x, symbols[op], y)
                : cs_print(c, "(%s %s %s)", x, symbols[op], y);
}

// u fits its type in any order of evaluation, so it needs no unsigned arithmetic
static bool cannot_wrap(const uop *u) {
  enum dtype d = (enum dtype)u->dt;
  if (u->lanes > 1 || dtype_size(d) < 4 || d == DT_U64 || d == DT_U32 ||
      (u->op != OP_ADD && u->op != OP_SUB && u->op != OP_MUL))
    return false;
  return u->vmin > dtype_min(d) && u->vmax < dtype_max(d);
}

static const char *compare_lanes(cstyle *c, enum op op, enum dtype d, int lanes, const char *x, const char *y) {
  if (is_bits(c, d)) return op_of_bits(c, op, d, DT_BOOL, lanes, (const char *[]){x, y}, 2);
  if (lanes == 1) return cs_print(c, "(%s %s %s)", x, symbols[op], y);
  if (d == DT_BOOL) {                                              // lanes are 0 and -1
    if (op == OP_CMPLT) return cs_print(c, "(~%s & %s)", x, y);
    return op == OP_CMPNE ? cs_print(c, "(%s ^ %s)", x, y) : cs_print(c, "(~(%s ^ %s))", x, y);
  }
  return c->d->mask(c, cs_print(c, "(%s %s %s)", x, symbols[op], y), dtype_size(d), 1, lanes);
}

static const char *choose_lanes(cstyle *c, const char *cond, const char *x, const char *y, enum dtype d, int lanes) {
  if (lanes == 1) return cs_print(c, "(%s ? %s : %s)", cond, x, y);
  return c->d->select(c, c->d->mask(c, cond, 1, dtype_size(cs_memory_dtype(d)), lanes), x, y, d, lanes);
}

// op of two values; values that the text mentions twice are names or literals
static const char *binary_expr(cstyle *c, const uop *u, enum op op, enum dtype d, int lanes, const char *x,
                               const char *y) {
  bool f = dtype_is_float(d);
  if (is_bits(c, d))
    return op_flags(op) & OPF_COMPARE ? compare_lanes(c, op, d, lanes, x, y)
                                      : op_of_bits(c, op, d, d, lanes, (const char *[]){x, y}, 2);
  if (d == DT_F16 || !symbols[op]) {
    if (d == DT_F16 || (op != OP_MAX && op != OP_MIN)) return NULL;
    x = cs_named(c, d, lanes, x);
    y = cs_named(c, d, lanes, y);
    if (d == DT_BOOL) return cs_print(c, "(%s %s %s)", x, op == OP_MAX ? "|" : "&", y);
    const char *less = cs_print(c, "(%s < %s)", op == OP_MAX ? x : y, op == OP_MAX ? y : x);
    return lanes == 1 ? choose_lanes(c, less, y, x, d, 1) : c->d->select(c, less, y, x, d, lanes);
  }
  if (op_flags(op) & OPF_COMPARE) return compare_lanes(c, op, d, lanes, x, y);
  bool bits = op == OP_AND || op == OP_OR || op == OP_XOR, divides = op == OP_CDIV || op == OP_CMOD;
  if (f ? bits || divides || op == OP_SHL || op == OP_SHR : op == OP_FDIV || (d == DT_BOOL && !bits)) return NULL;
  if (f || bits || divides || op == OP_SHR || (u && cannot_wrap(u))) {
    const char *t = cs_print(c, "(%s %s %s)", x, symbols[op], y);
    return lanes == 1 && !f && dtype_size(d) < 4 && d != DT_BOOL ? cs_print(c, "((%s)%s)", c->d->scalars[d], t) : t;
  }
  return wrapping(c, op, d, lanes, x, y);
}

static const char *cast_expr(cstyle *c, const uop *u, const char *x) {
  enum dtype from = (enum dtype)u->src[0]->dt, to = (enum dtype)u->dt;
  int lanes = u->lanes;
  if (from == to) return x;
  if (from == DT_F16 || to == DT_F16)
    return from == DT_F32 || to == DT_F32 ? c->d->halves(c, x, to == DT_F32, lanes) : NULL;
  if (to == DT_BOOL)
    return compare_lanes(c, OP_CMPNE, from, lanes, x,
                         cs_splat(c, from, lanes, dtype_is_float(from) && !is_bits(c, from) ? "0.0f" : "0"));
  if (from == DT_BOOL && lanes > 1) {                              // 0 and -1 to 0 and 1
    x = cs_print(c, "(-%s)", x);
    return to == DT_I8 ? x : number_as(c, x, DT_I8, to, lanes);
  }
  return number_as(c, x, from, to, lanes);
}

static const char *bitcast_expr(cstyle *c, const uop *u, const char *x) {
  const uop *s = u->src[0];
  enum dtype from = (enum dtype)s->dt, to = (enum dtype)u->dt;
  if (from == DT_BOOL || to == DT_BOOL) return u->lanes == s->lanes ? cast_expr(c, u, x) : NULL;
  if (s->lanes != u->lanes || dtype_size(from) != dtype_size(to)) return c->d->bitcast(c, u, x);
  from = cs_memory_dtype(from);
  to = cs_memory_dtype(to);
  return from == to ? x : c->d->reinterpret(c, x, from, to, u->lanes);
}

static const char *elementwise_expr(cstyle *c, const uop *u) {
  enum dtype d = (enum dtype)u->dt, ds = (enum dtype)u->src[0]->dt;
  const char *x[3] = {0};
  for (size_t i = 0; i < u->nsrc && i < 3; i++) x[i] = cs_text(c, u->src[i]);
  switch (u->op) {
  case OP_CAST: return cast_expr(c, u, x[0]);
  case OP_BITCAST: return bitcast_expr(c, u, x[0]);
  case OP_NEG:
    if (is_bits(c, d)) return op_of_bits(c, OP_NEG, d, d, u->lanes, x, 1);
    return d == DT_BOOL || d == DT_F16 ? NULL
           : dtype_is_float(d)         ? cs_print(c, "(-%s)", x[0])
                                       : wrapping(c, OP_SUB, d, u->lanes, NULL, x[0]);
  case OP_WHERE: return choose_lanes(c, x[0], x[1], x[2], d, u->lanes);
  case OP_SHL: case OP_SHR:
    if (u->lanes > 1 && u->src[1]->dt != d) x[1] = c->d->convert(c, x[1], (enum dtype)u->src[1]->dt, d, u->lanes);
    return binary_expr(c, u, (enum op)u->op, d, u->lanes, x[0], x[1]);
  case OP_TRUNC: case OP_FLOOR: if (!dtype_is_float(d)) return x[0]; // fall through
  case OP_SQRT:
  case OP_FMA:
    if (is_bits(c, d)) return op_of_bits(c, (enum op)u->op, d, d, u->lanes, x, u->nsrc);
    return d == DT_F32 || d == DT_F64 ? c->d->math(c, u, x) : NULL;
  default: return u->nsrc == 2 ? binary_expr(c, u, (enum op)u->op, ds, u->lanes, x[0], x[1]) : NULL;
  }
}

static const char *hreduce_expr(cstyle *c, const uop *u) {
  const uop *x = u->src[0];
  enum dtype d = (enum dtype)u->dt;
  if (!is_pow2(x->lanes)) return NULL;
  const char *v = cs_text(c, x), *e[256];
  for (int n = x->lanes / 2; n; n /= 2) {
    if (n == 1) {
      const char *lo = c->d->extract(c, v, 0), *hi = c->d->extract(c, v, 1);
      // scalars are 0 and 1
      if (d == DT_BOOL) { lo = cs_print(c, "(%s != 0)", lo); hi = cs_print(c, "(%s != 0)", hi); }
      return binary_expr(c, NULL, (enum op)u->a, d, 1, lo, hi);
    }
    for (int h = 0; h < 2; h++) {
      for (int i = 0; i < n; i++) e[i] = c->d->extract(c, v, h * n + i);
      e[128 + h] = cs_named(c, d, n, c->d->build(c, d, n, e));
    }
    v = binary_expr(c, NULL, (enum op)u->a, d, n, e[128], e[129]);
    if (!v) return NULL;
    v = cs_named(c, d, n, v);
  }
  return v;
}

// ---- the program ----------------------------------------------------------------------------------------------------

static void open_for(cstyle *c, const uop *u) {
  bool tiles = u->b == AXIS_GLOBAL;
  const char *name = tiles ? cs_name(c, "tile") : cs_name(c, u->b == AXIS_REDUCE ? "r" : "a");
  const char *type = c->d->type(c, (enum dtype)u->dt, 1), *end = tiles ? "hi" : cs_text(c, u->src[0]);
  // the loop may assign it
  if (!tiles && u->src[0]->op == OP_ACC) end = cs_named(c, (enum dtype)u->dt, 1, cs_print(c, "(%s)", end));
  cs_line(c, "for (%s %s = %s; %s < %s; %s++) {", type, name, tiles ? "lo" : "0", name, end, name);
  map_put(&c->text, u, (void *)(uintptr_t)name);
  c->depth++;
}

static int refuse_op(cstyle *c, const uop *u) {
  return error_set(c->err, "%s: the %s renderer has no %s.%s of %d lanes", c->p->name, c->d->name,
                   op_name((enum op)u->op), dtype_name((enum dtype)u->dt), u->lanes);
}

static bool has_type(const cstyle *c, const uop *u) {
  if (u->lanes > c->d->max_lanes || !is_pow2(u->lanes)) return false;
  return u->dt == DT_VOID || u->op == OP_PARAM || u->op == OP_INDEX || u->op == OP_LOCAL || c->d->scalars[u->dt];
}

static int render_node(cstyle *c, const uop *u) {
  const char *t = NULL;
  if (!has_type(c, u)) return refuse_op(c, u);
  const cs_use *use = map_ptr(&c->uses, u);
  switch (u->op) {
  case OP_CONST: case OP_PARAM: case OP_VAR: case OP_LANE: case OP_SINK: return 0;
  case OP_RANGE: open_for(c, u); return 0;
  case OP_IF: cs_line(c, "if (%s) {", cs_bare(c, cs_text(c, u->src[0]))); c->depth++; return 0;
  case OP_END: case OP_ENDIF: c->depth--; cs_line(c, "}"); return 0;
  case OP_ACC: {
    const char *init = cs_bare(c, cs_text(c, u->src[0])), *name = cs_name(c, "acc");
    cs_line(c, "%s %s = %s;", c->d->type(c, (enum dtype)u->dt, u->lanes), name, init);
    map_put(&c->text, u, (void *)(uintptr_t)name);
    return 0;
  }
  case OP_SET:
    if (u->src[0] != u->src[1]) cs_line(c, "%s = %s;", cs_text(c, u->src[0]), cs_bare(c, cs_text(c, u->src[1])));
    return 0;
  case OP_STORE: c->d->store(c, u); return 0;
  case OP_PREFETCH: if (c->d->ask_at_distance) c->d->ask_at_distance(c, u); return 0;
  case OP_LOCAL: return 0;                               // declared at the top
  case OP_SPECIAL: case OP_BARRIER: return c->d->other && c->d->other(c, u) ? 0 : refuse_op(c, u);
  default: break;
  }
  if (!use) return 0;                                   // unused
  switch (u->op) {
  case OP_INDEX: {                                      // its text is the element number
    const char *i = cs_text(c, u->src[1]);
    if (use->count > 1 || u->src[1]->op == OP_ACC) {
      if (u->src[1]->op == OP_ACC) i = cs_print(c, "(%s)", i);
      i = cs_named(c, (enum dtype)u->src[1]->dt, u->lanes, i);
    }
    map_put(&c->text, u, (void *)(uintptr_t)i);
    return 0;
  }
  case OP_LOAD: t = c->d->load(c, u); break;
  case OP_SPLAT:
    if (u->src[0]->op == OP_CONST && u->lanes > 1) return 0;
    t = u->lanes == 1 ? cs_text(c, u->src[0]) : vector_of(c, u);
    break;
  case OP_STACK: t = u->lanes == 1 ? cs_text(c, u->src[0]) : vector_of(c, u); break;
  case OP_SHUFFLE:
    if (u->src[0]->lanes > 1)
      t = c->d->shuffle(c, u, cs_text(c, u->src[0]), u->nsrc > 1 ? cs_text(c, u->src[1]) : NULL);
    break;
  case OP_EXTRACT:
    t = u->src[0]->lanes == 1 ? cs_text(c, u->src[0]) : c->d->extract(c, cs_text(c, u->src[0]), (int)u->a);
    if (u->dt == DT_BOOL && u->src[0]->lanes > 1) t = cs_print(c, "(%s != 0)", t);
    break;
  case OP_SWAP: t = c->d->swap ? c->d->swap(c, u, cs_text(c, u->src[0])) : NULL; break;
  case OP_DOT: t = c->d->dot ? c->d->dot(c, u) : NULL; break;
  case OP_HREDUCE: t = u->src[0]->lanes == 1 ? cs_text(c, u->src[0]) : hreduce_expr(c, u); break;
  default:
    if (op_flags((enum op)u->op) & OPF_ELEMENTWISE) t = elementwise_expr(c, u);
  }
  if (!t) return refuse_op(c, u);
  define(c, u, t);
  return 0;
}

// Walks backwards, so that operands of unused values do not count as used.
static void count_uses(cstyle *c) {
  for (size_t i = c->p->n; i-- > 0;) {
    const uop *u = c->p->at[i];
    if (!(op_flags((enum op)u->op) & OPF_ORDERED) && !map_has(&c->uses, u)) continue;
    if (u->op == OP_RANGE && u->b == AXIS_GLOBAL) continue;      // the end of the tile loop is hi
    for (size_t j = 0; j < u->nsrc; j++) {
      cs_use *use = map_ptr(&c->uses, u->src[j]);
      if (!use) map_put(&c->uses, u->src[j], use = ARENA_NEW(c->mem, cs_use));
      *use = (cs_use){use->count + 1, i, u};
    }
  }
}

int cs_program(cstyle *c, const program *p, const dialect *d, int depth, error *err) {
  *c = (cstyle){.p = p, .d = d, .err = err, .mem = arena_new(), .depth = depth};
  if (render_match(p, c->mem, &c->match, err)) return -1;
  count_uses(c);
  for (c->pos = 0; c->pos < p->n; c->pos++)
    if (render_node(c, p->at[c->pos])) return -1;
  return 0;
}

void cs_free(cstyle *c) {
  str_free(&c->body);
  map_free(&c->text);
  map_free(&c->uses);
  map_free(&c->types);
  arena_free(c->mem);
}
