// Prints the IR, and parses the printed form.
//
//   %0 = PARAM.f32 [0 4096]             op.dtype, the dtype with xN for a vector of N lanes; argument in brackets
//   %1 = CONST.idx 64                   a constant prints as its value; floats read back exactly
//   %2 = RANGE.idx %1 [0 LOOP]          sources are nodes defined above
//   %3 = INDEX.f32 %0 %2                ; a semicolon starts a comment
//
// How an op's argument prints is one row of `styles`. Arguments that the style cannot express print as [raw a b
// "text"], so every node reads back; printing a parsed text gives equal text. The dtype of a void op is omitted. The
// parser accepts untrusted text: it calls check.c before it builds a node, and reports errors with the line number.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/check.h"
#include "base/plain.h"
#include "graph/half.h"
#include "graph/uop.h"

enum style {
  S_NONE,      // usually no argument
  S_CONST,     // the value
  S_VAR,       // "name" a..b
  S_A,         // [a]
  S_MEMORY,    // [a b]; [a b weight]: and a memory_kind
  S_KIND,      // [a KIND]: a RANGE
  S_PERM,      // [2 0 1]: for each axis of the result, the axis of the source
  S_AXES,      // [0 2]: the bits of a
  S_OP,        // [ADD]: a is an op; [ADD 4]: and b is a number
  S_OP_AXES,   // [ADD 0 2]: a is an op, b has bits
  S_LANES,     // [0 2 1 3]: s holds lane numbers
  S_BOUND,     // "g0" b
};

static enum style style_of(enum op op) {
  switch (op) {
  case OP_CONST: return S_CONST;
  case OP_VAR: return S_VAR;
  case OP_BUFFER: case OP_PARAM: case OP_LOCAL: case OP_MMA: return S_MEMORY;
  case OP_EXTRACT: case OP_ACC: case OP_STAGE: case OP_SWAP: case OP_COPY: case OP_ALLGATHER: return S_A;
  case OP_RANGE: return S_KIND;
  case OP_PERMUTE: return S_PERM;
  case OP_FLIP: return S_AXES;
  case OP_REDUCE: case OP_HREDUCE: return S_OP;
  case OP_REDUCE_AXIS: return S_OP_AXES;
  case OP_SHUFFLE: return S_LANES;
  case OP_SPECIAL: return S_BOUND;
  default: return S_NONE;
  }
}

// The dtype of an op that is written without one.
static enum dtype default_dtype(enum op op) {
  return op == OP_VAR || op == OP_RANGE || op == OP_IOTA || op == OP_LANE || op == OP_SPECIAL || op == OP_INVALID
           ? DT_IDX
           : DT_VOID;
}

// --- printing --------------------------------------------------------------------------------------------------------

static void add_quoted(str *out, const char *s, size_t n) {
  str_addc(out, '"');
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c == '"' || c == '\\') str_addf(out, "\\%c", c);
    else if (c < 32 || c > 126) str_addf(out, "\\x%02x", c);
    else str_addc(out, (char)c);
  }
  str_addc(out, '"');
}

static uint64_t double_bits(double v) { uint64_t b; memcpy(&b, &v, 8); return b; }

static void add_const(str *out, enum dtype d, int64_t a) {
  if (!dtype_is_float(d)) {
    if (d == DT_U64) str_addf(out, "%llu", (unsigned long long)a);
    else str_addf(out, "%lld", (long long)a);
    return;
  }
  double v;
  memcpy(&v, &a, 8);
  if (isinf(v)) str_add(out, v < 0 ? "-inf" : "inf");
  else if (double_bits(NAN) == (uint64_t)a) str_add(out, "nan");
  else if (isnan(v) || double_bits(dtype_round(d, v)) != (uint64_t)a)
    str_addf(out, "0x%016llx", (unsigned long long)a);  // its bits
  else {
    char few[40];
    for (int digits = 1; digits <= 17; digits++) {      // the shortest decimal that reads back
      plain_snprintf(few, sizeof few, "%.*g", digits, v);
      if (double_bits(dtype_round(d, plain_strtod(few, NULL))) == (uint64_t)a) break;
    }
    str_add(out, few);
    if (!strpbrk(few, ".e")) str_add(out, ".0");
  }
}

static bool fits_style(const uop *u, enum style st) {
  bool text = u->s != NULL, named = st == S_VAR || st == S_BOUND || st == S_LANES;
  if (text != named) return false;
  bool op_ok = u->a >= 0 && u->a < OP_COUNT;
  switch (st) {
  case S_NONE: return !u->a && !u->b;
  case S_CONST: case S_A: return !u->b;
  case S_KIND: return u->b >= 0 && u->b < AXIS_COUNT;
  case S_AXES: return u->a >= 0 && u->a < 1 << MAX_DIMS && !u->b;
  case S_OP: return op_ok;
  case S_OP_AXES: return op_ok && u->b >= 0 && u->b < 1 << MAX_DIMS;
  case S_LANES: return !u->a && !u->b && u->s_len % 2 == 0;
  case S_BOUND: return !u->a;
  case S_PERM: return u->b >= 0 && u->b <= MAX_DIMS && u->a >> 4 * u->b == 0;
  default: return true;
  }
}

static void add_axes(str *out, int64_t bits) {
  bool first = out->at[out->n - 1] == '[';
  for (int i = 0; i < MAX_DIMS; i++)
    if (bits >> i & 1) { str_addf(out, first ? "%d" : " %d", i); first = false; }
}

static void add_arg(str *out, const uop *u) {
  enum style st = style_of((enum op)u->op);
  if (!fits_style(u, st)) {
    str_addf(out, " [raw %lld %lld", (long long)u->a, (long long)u->b);
    if (u->s) { str_addc(out, ' '); add_quoted(out, u->s, u->s_len); }
    str_addc(out, ']');
    return;
  }
  switch (st) {
  case S_NONE: return;
  case S_CONST: str_addc(out, ' '); add_const(out, (enum dtype)u->dt, u->a); return;
  case S_VAR:
    str_addc(out, ' ');
    add_quoted(out, u->s, u->s_len);
    str_addf(out, " %lld..%lld", (long long)u->a, (long long)u->b);
    return;
  case S_BOUND: str_addc(out, ' '); add_quoted(out, u->s, u->s_len); str_addf(out, " %lld", (long long)u->b); return;
  default: break;
  }
  str_add(out, " [");
  switch (st) {
  case S_A: str_addf(out, "%lld", (long long)u->a); break;
  case S_MEMORY:
    str_addf(out, "%lld %lld%s%s", (long long)u->a, (long long)u->b, u->memory ? " " : "",
             memory_kind_name((enum memory_kind)u->memory));
    break;
  case S_KIND: str_addf(out, "%lld %s", (long long)u->a, axis_kind_name((enum axis_kind)u->b)); break;
  case S_PERM: for (int i = 0; i < u->b; i++) str_addf(out, i ? " %d" : "%d", (int)(u->a >> 4 * i & 15)); break;
  case S_AXES: add_axes(out, u->a); break;
  case S_OP:
    str_add(out, op_name((enum op)u->a));
    if (u->b) str_addf(out, " %lld", (long long)u->b);
    break;
  case S_OP_AXES: str_add(out, op_name((enum op)u->a)); add_axes(out, u->b); break;
  default:                                              // S_LANES
    for (size_t i = 0; i + 1 < u->s_len; i += 2)
      str_addf(out, i ? " %d" : "%d", (unsigned char)u->s[i] | (unsigned char)u->s[i + 1] << 8);
  }
  str_addc(out, ']');
}

static void add_op(str *out, const uop *u) {
  str_add(out, op_name((enum op)u->op));
  if (u->dt != DT_VOID || default_dtype((enum op)u->op) != DT_VOID || u->lanes != 1)
    str_addf(out, ".%s", dtype_name((enum dtype)u->dt));
  if (u->lanes != 1) str_addf(out, "x%d", u->lanes);
}

void uop_print_label(str *out, const uop *u) {
  add_op(out, u);
  add_arg(out, u);
}

static void print_node(str *out, const uop *u, size_t number, const map *numbers) {
  str_addf(out, "%%%zu = ", number);
  add_op(out, u);
  for (size_t i = 0; i < u->nsrc; i++) str_addf(out, " %%%zu", (size_t)(uintptr_t)map_ptr(numbers, u->src[i]));
  add_arg(out, u);
  str_addc(out, '\n');
}

void uop_print(str *out, uop *const *roots, size_t n) {
  arena *mem = arena_new();
  uop_list l = uop_toposort(mem, roots, n);
  map numbers = {0};
  for (size_t i = 0; i < l.n; i++) {
    map_put(&numbers, l.at[i], (void *)i);
    print_node(out, l.at[i], i, &numbers);
  }
  map_free(&numbers);
  arena_free(mem);
}

// --- for reading -----------------------------------------------------------------------------------------------------

static const char *infix(enum op op) {
  switch (op) {
  case OP_ADD: return "+";
  case OP_SUB: return "-";
  case OP_MUL: return "*";
  case OP_FDIV: return "/";
  case OP_IDIV: return "//";
  case OP_MOD: return "%";
  case OP_CDIV: return "/c";
  case OP_CMOD: return "%c";
  case OP_AND: return "&";
  case OP_OR: return "|";
  case OP_XOR: return "^";
  case OP_SHL: return "<<";
  case OP_SHR: return ">>";
  case OP_CMPLT: return "<";
  case OP_CMPEQ: return "==";
  case OP_CMPNE: return "!=";
  default: return NULL;
  }
}

static void print_expr(str *out, const uop *u, int depth, size_t limit);

static void print_call(str *out, const uop *u, int depth, size_t limit) {
  str_add(out, op_name((enum op)u->op));
  if (u->op == OP_CAST || u->op == OP_BITCAST) str_addf(out, "<%s>", dtype_name((enum dtype)u->dt));
  else if (fits_style(u, style_of((enum op)u->op))) {
    str arg = {0};
    add_arg(&arg, u);
    if (arg.n) str_add(out, arg.at + 1);                // without the blank
    str_free(&arg);
  }
  str_addc(out, '(');
  for (size_t i = 0; i < u->nsrc; i++) {
    if (i) str_add(out, ", ");
    print_expr(out, u->src[i], depth, limit);
  }
  str_addc(out, ')');
}

// Shared parts print once per use, so depth and total length are limited.
static void print_expr(str *out, const uop *u, int depth, size_t limit) {
  if (!depth || out->n > limit) { str_add(out, "..."); return; }
  const char *sign = u->nsrc == 2 ? infix((enum op)u->op) : NULL;
  if (sign) {
    str_addc(out, '(');
    print_expr(out, u->src[0], depth - 1, limit);
    str_add(out, sign);
    print_expr(out, u->src[1], depth - 1, limit);
    str_addc(out, ')');
    return;
  }
  switch (u->op) {
  case OP_CONST: add_const(out, (enum dtype)u->dt, u->a); return;
  case OP_VAR: case OP_SPECIAL: str_addn(out, u->s ? u->s : "?", u->s ? u->s_len : 1); return;
  case OP_PARAM:
  case OP_BUFFER:
  case OP_LOCAL:
    str_addf(out, "%s%lld", u->op == OP_PARAM ? "p" : u->op == OP_BUFFER ? "b" : "l", (long long)u->a);
    return;
  case OP_RANGE:
    str_addf(out, "r%lld", (long long)u->a);
    if (u->src[0]->op == OP_CONST) str_addf(out, "_%lld", (long long)u->src[0]->a);
    return;
  case OP_LANE: str_addf(out, "lane%d", u->lanes); return;
  case OP_INVALID: str_add(out, "INVALID"); return;
  case OP_ACC: str_addf(out, "acc%lld", (long long)u->a); return;
  case OP_SPLAT: print_expr(out, u->src[0], depth, limit); return;
  case OP_NEG: str_addc(out, '-'); print_expr(out, u->src[0], depth - 1, limit); return;
  case OP_INDEX:
    print_expr(out, u->src[0], depth - 1, limit);
    str_addc(out, '[');
    print_expr(out, u->src[1], depth - 1, limit);
    str_addc(out, ']');
    return;
  case OP_LOAD: if (u->nsrc == 1) { print_expr(out, u->src[0], depth, limit); return; } break;
  case OP_WHERE:
    str_addc(out, '(');
    print_expr(out, u->src[0], depth - 1, limit);
    str_add(out, " ? ");
    print_expr(out, u->src[1], depth - 1, limit);
    str_add(out, " : ");
    print_expr(out, u->src[2], depth - 1, limit);
    str_addc(out, ')');
    return;
  default: break;
  }
  print_call(out, u, depth - 1, limit);
}

void uop_print_expr(str *out, const uop *u) { print_expr(out, u, 16, out->n + 2000); }

// --- parsing ---------------------------------------------------------------------------------------------------------

typedef struct parser {
  graph *g;
  const char *p, *end;       // the rest of the line
  int line;
  error *err;
  map nodes;                 // number -> uop*
} parser;

#define fail(ps, ...) (parse_error(ps, __VA_ARGS__), false)
static void parse_error(parser *ps, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void parse_error(parser *ps, const char *fmt, ...) {
  char text[600];
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  error_set(ps->err, "line %d: %s", ps->line, text);
}

static void skip_blanks(parser *ps) {
  while (ps->p < ps->end && (*ps->p == ' ' || *ps->p == '\t' || *ps->p == '\r')) ps->p++;
}

static bool take_char(parser *ps, char c) {
  skip_blanks(ps);
  if (ps->p == ps->end || *ps->p != c) return false;
  ps->p++;
  return true;
}

static bool expect(parser *ps, char c) {
  if (take_char(ps, c)) return true;
  if (ps->p == ps->end) return fail(ps, "'%c' expected at the end of the line", c);
  return fail(ps, "'%c' expected before '%.*s'", c, (int)min_i64(ps->end - ps->p, 20), ps->p);
}

typedef struct word { const char *at; size_t n; } word;
static bool is_word_char(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("_.+-", c);
}

static word take_word(parser *ps) {
  skip_blanks(ps);
  word w = {ps->p, 0};
  while (ps->p < ps->end && *ps->p && is_word_char(*ps->p)) ps->p++;
  w.n = (size_t)(ps->p - w.at);
  return w;
}

static bool word_is(word w, const char *s) { return strlen(s) == w.n && !memcmp(w.at, s, w.n); }

static bool word_to_int(parser *ps, word w, int64_t *out) {
  char buf[32];
  if (w.n && w.n < sizeof buf) {
    memcpy(buf, w.at, w.n);
    buf[w.n] = 0;
    char *end;
    errno = 0;
    long long v = strtoll(buf, &end, 10);
    if (!errno && !*end && (w.at[0] == '-' || (w.at[0] >= '0' && w.at[0] <= '9'))) { *out = v; return true; }
  }
  return fail(ps, "an integer expected, not '%.*s'", (int)(w.n < 40 ? w.n : 40), w.at);
}

static bool take_int(parser *ps, int64_t *out) { return word_to_int(ps, take_word(ps), out); }

static bool take_quoted(parser *ps, uarg *arg) {
  if (!expect(ps, '"')) return false;
  str s = {0};
  bool ok = false;
  while (ps->p < ps->end && !ok) {
    char c = *ps->p++;
    if (c == '"') { ok = true; continue; }
    if (c == '\\' && ps->p < ps->end) {
      c = *ps->p++;
      if (c == 'x' && ps->end - ps->p >= 2 && hex_value(ps->p[0]) >= 0 && hex_value(ps->p[1]) >= 0) {
        c = (char)(hex_value(ps->p[0]) * 16 + hex_value(ps->p[1]));
        ps->p += 2;
      } else if (c != '"' && c != '\\') { str_free(&s); return fail(ps, "unknown escape '\\%c' in a text", c); }
    }
    str_addc(&s, c);
  }
  if (ok && s.n > UINT16_MAX) ok = fail(ps, "a text of %zu bytes is too long", s.n);
  else if (!ok) parse_error(ps, "a text without its closing quote");
  if (ok) { arg->s = arena_strndup(graph_arena(ps->g), str_c(&s), s.n); arg->s_len = s.n; }
  str_free(&s);
  return ok;
}

static bool take_number(parser *ps, enum dtype d, int64_t *out) {
  word w = take_word(ps);
  if (!w.n || w.n > 60) return fail(ps, "a number expected");
  char buf[64], *end;
  memcpy(buf, w.at, w.n);
  buf[w.n] = 0;
  errno = 0;
  if (dtype_is_float(d)) {
    if (w.n > 2 && buf[0] == '0' && buf[1] == 'x') {
      *out = (int64_t)strtoull(buf, &end, 16);
      if (errno || *end || w.n > 18) return fail(ps, "'%s' is not the bits of a double", buf);
      return true;
    }
    double v = word_is(w, "nan") ? NAN : dtype_round(d, plain_strtod(buf, &end));
    if (!word_is(w, "nan") && (*end || end == buf || isnan(v))) return fail(ps, "'%s' is not a %s", buf, dtype_name(d));
    *out = (int64_t)double_bits(v);
    return true;
  }
  if (d == DT_U64 && buf[0] != '-') {
    *out = (int64_t)strtoull(buf, &end, 10);
    if (errno || *end || buf[0] < '0' || buf[0] > '9') return fail(ps, "'%s' is not a u64", buf);
    return true;
  }
  if (!word_to_int(ps, w, out)) return false;
  return dtype_wrap(d, *out) == *out || fail(ps, "'%s' does not fit a %s", buf, dtype_name(d));
}

static bool take_op(parser *ps, word w, enum op *op) {
  for (int i = 0; i < OP_COUNT; i++)
    if (word_is(w, op_name((enum op)i))) { *op = (enum op)i; return true; }
  return fail(ps, "unknown op '%.*s'", (int)(w.n < 40 ? w.n : 40), w.at);
}

static bool take_axes(parser *ps, int64_t *bits) {
  for (*bits = 0; !take_char(ps, ']');) {
    int64_t i;
    if (!take_int(ps, &i)) return false;
    if (i < 0 || i >= MAX_DIMS) return fail(ps, "axis %lld", (long long)i);
    *bits |= 1 << i;
  }
  return true;
}

static bool take_lanes(parser *ps, uarg *arg) {
  str s = {0};
  while (!take_char(ps, ']')) {
    int64_t i;
    if (!take_int(ps, &i)) { str_free(&s); return false; }
    if (i < 0 || i > UINT16_MAX) { str_free(&s); return fail(ps, "lane %lld", (long long)i); }
    str_addc(&s, (char)(i & 255));
    str_addc(&s, (char)(i >> 8));
  }
  arg->s = arena_strndup(graph_arena(ps->g), str_c(&s), s.n);
  arg->s_len = s.n;
  str_free(&s);
  return true;
}

static bool take_permutation(parser *ps, uarg *arg) {
  while (!take_char(ps, ']')) {
    int64_t i;
    if (!take_int(ps, &i)) return false;
    if (i < 0 || i >= MAX_DIMS || arg->b >= MAX_DIMS) return fail(ps, "PERMUTE of more than %d axes", MAX_DIMS);
    arg->a |= i << 4 * arg->b++;
  }
  return true;
}

static bool take_kind(parser *ps, int64_t *out) {
  word w = take_word(ps);
  for (int i = 0; i < AXIS_COUNT; i++)
    if (word_is(w, axis_kind_name((enum axis_kind)i))) { *out = i; return true; }
  return fail(ps, "unknown axis kind '%.*s'", (int)(w.n < 40 ? w.n : 40), w.at);
}

static bool take_memory(parser *ps, enum memory_kind *out) {
  word w = take_word(ps);
  for (int i = MEMORY_PLAIN + 1; i < MEMORY_KINDS; i++)
    if (word_is(w, memory_kind_name((enum memory_kind)i))) { *out = (enum memory_kind)i; return true; }
  return fail(ps, "unknown kind of memory '%.*s'", (int)(w.n < 40 ? w.n : 40), w.at);
}

static bool take_raw(parser *ps, uarg *arg) {
  if (!take_int(ps, &arg->a) || !take_int(ps, &arg->b)) return false;
  if (take_char(ps, ']')) return true;
  return take_quoted(ps, arg) && expect(ps, ']');
}

static bool take_bracket(parser *ps, enum op op, uarg *arg) {
  const char *start = ps->p;
  if (word_is(take_word(ps), "raw")) return take_raw(ps, arg);
  ps->p = start;
  enum op by;
  switch (style_of(op)) {
  case S_A: return take_int(ps, &arg->a) && expect(ps, ']');
  case S_MEMORY:
    return take_int(ps, &arg->a) && take_int(ps, &arg->b) &&
           (take_char(ps, ']') || (take_memory(ps, &arg->memory) && expect(ps, ']')));
  case S_KIND: return take_int(ps, &arg->a) && take_kind(ps, &arg->b) && expect(ps, ']');
  case S_PERM: return take_permutation(ps, arg);
  case S_AXES: return take_axes(ps, &arg->a);
  case S_OP:
    if (!take_op(ps, take_word(ps), &by)) return false;
    arg->a = by;
    return take_char(ps, ']') || (take_int(ps, &arg->b) && expect(ps, ']'));
  case S_OP_AXES: if (!take_op(ps, take_word(ps), &by)) return false; arg->a = by; return take_axes(ps, &arg->b);
  case S_LANES: return take_lanes(ps, arg);
  default: return fail(ps, "%s takes no argument in brackets", op_name(op));
  }
}

static bool take_arg(parser *ps, enum op op, enum dtype dt, uarg *arg) {
  if (take_char(ps, '[')) return take_bracket(ps, op, arg);
  switch (style_of(op)) {
  case S_NONE: return true;
  case S_CONST: return take_number(ps, dt, &arg->a);
  case S_BOUND: return take_quoted(ps, arg) && take_int(ps, &arg->b);
  case S_VAR: {
    if (!take_quoted(ps, arg)) return false;
    word w = take_word(ps);                             // lo..hi
    for (size_t i = 0; i + 1 < w.n; i++)
      if (w.at[i] == '.' && w.at[i + 1] == '.')
        return word_to_int(ps, (word){w.at, i}, &arg->a) && word_to_int(ps, (word){w.at + i + 2, w.n - i - 2}, &arg->b);
    return fail(ps, "bounds such as 0..511 expected");
  }
  default: return fail(ps, "%s needs its argument in brackets", op_name(op));
  }
}

// OP, OP.dtype or OP.dtypexLANES
static bool take_head(parser *ps, enum op *op, enum dtype *dt, int *lanes) {
  word w = take_word(ps), head = w;
  if (!w.n) return fail(ps, "an op expected");
  const char *dot = memchr(w.at, '.', w.n);
  if (dot) head.n = (size_t)(dot - w.at);
  if (!take_op(ps, head, op)) return false;
  *dt = default_dtype(*op);
  *lanes = 1;
  if (!dot) return true;
  word type = {dot + 1, w.n - head.n - 1};
  const char *by = NULL;
  for (size_t i = 1; i < type.n; i++)                   // "idx" ends in an x too: the x of lanes is followed by a digit
    if (type.at[i] == 'x' && i + 1 < type.n && type.at[i + 1] >= '0' && type.at[i + 1] <= '9') by = type.at + i;
  if (by) {
    int64_t n;
    if (!word_to_int(ps, (word){by + 1, (size_t)(type.at + type.n - by - 1)}, &n)) return false;
    if (n < 1 || n > UINT16_MAX) return fail(ps, "%lld lanes", (long long)n);
    *lanes = (int)n;
    type.n = (size_t)(by - type.at);
  }
  return dtype_parse(type.at, type.n, dt) ||
         fail(ps, "unknown dtype '%.*s'", (int)(type.n < 40 ? type.n : 40), type.at);
}

static bool take_node_number(parser *ps, int64_t *n) {
  word w = take_word(ps);
  return word_to_int(ps, w, n) && (*n >= 0 || fail(ps, "%%%lld is no name of a node", (long long)*n));
}

struct sources { uop **at; size_t n, cap; };
static bool take_source(parser *ps, struct sources *to) {
  int64_t n;
  void *u;
  if (!take_node_number(ps, &n)) return false;
  if (!map_get(&ps->nodes, (uint64_t)n, &u)) return fail(ps, "%%%lld is not defined above", (long long)n);
  vec_push(to, (uop *)u);
  return true;
}

static bool parse_node(parser *ps, struct sources *src, int64_t number, uop **out) {
  enum op op;
  enum dtype dt;
  int lanes;
  uarg arg = {0};
  if (!take_head(ps, &op, &dt, &lanes)) return false;
  while (take_char(ps, '%')) if (!take_source(ps, src)) return false;
  if (!take_arg(ps, op, dt, &arg)) return false;
  skip_blanks(ps);
  if (ps->p < ps->end) return fail(ps, "'%.*s' is too much", (int)min_i64(ps->end - ps->p, 40), ps->p);
  str why = {0};
  bool ok = uop_well_formed(op, dt, lanes, src->at, src->n, &arg, &why);
  if (ok) {
    *out = uop_new(ps->g, op, dt, lanes, src->at, src->n, arg);
    map_set(&ps->nodes, (uint64_t)number, *out);
  } else parse_error(ps, "%s", str_c(&why));
  str_free(&why);
  return ok;
}

static bool parse_line(parser *ps, uop **last) {
  int64_t number;
  skip_blanks(ps);
  if (ps->p == ps->end) return true;
  if (!expect(ps, '%') || !take_node_number(ps, &number) || !expect(ps, '=')) return false;
  if (map_get(&ps->nodes, (uint64_t)number, NULL)) return fail(ps, "%%%lld is defined twice", (long long)number);
  struct sources src = {0};
  bool ok = parse_node(ps, &src, number, last);
  vec_free(&src);
  return ok;
}

static const char *end_of_code(const char *p, const char *end) {      // the first ';' outside of quotes
  bool quoted = false;
  for (; p < end; p++) {
    if (*p == '\\' && quoted && p + 1 < end) p++;
    else if (*p == '"') quoted = !quoted;
    else if (*p == ';' && !quoted) return p;
  }
  return end;
}

uop *uop_parse(graph *g, const char *text, size_t n, error *err) {
  parser ps = {.g = g, .err = err};
  const char *p = text, *end = text + n;
  uop *last = NULL;
  bool ok = true;
  while (ok && p < end) {
    const char *eol = memchr(p, '\n', (size_t)(end - p));
    if (!eol) eol = end;
    ps.line++;
    ps.p = p;
    ps.end = end_of_code(p, eol);
    ok = parse_line(&ps, &last);
    p = eol < end ? eol + 1 : end;
  }
  map_free(&ps.nodes);
  if (!ok) return NULL;
  if (!last) error_set(err, "line %d: no node is defined", ps.line);
  return last;
}
