// Reads GBNF by recursive descent: see gbnf.h. Rules are numbered where their names first appear, so a rule may be used
// before it is defined; undefined names are found at the end.
#include "grammar/gbnf.h"
#include "base/map.h"
#include "base/plain.h"
#include "base/stack.h"
#include <stdlib.h>
#include <string.h>

struct reader {
  const char *at, *end;
  uint32_t line, opened;         // opened: the beginning of the current literal or class
  const char *line_begin;
  int depth;
  grammar_source src;
  smap names;                    // from names to rule numbers + 1
  const tokenizer *t;
  error *err;
};

typedef VEC(gx *) gx_list_t;

static int bad(struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int bad(struct reader *r, const char *fmt, ...) {
  char text[400];
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return error_set(r->err, "line %u, column %zu: %s", r->line, (size_t)(r->at - r->line_begin) + 1, text);
}

// The next character, for error messages.
static const char *here(const struct reader *r, char out[16]) {
  int len = r->at < r->end ? utf8_next(r->at, (size_t)(r->end - r->at)) : 0;
  if (r->at == r->end) return "the end";
  if (*r->at == '\n' || *r->at == '\r') return "the end of the line";
  if (len <= 0) snprintf(out, 16, "byte 0x%02X", (unsigned)(unsigned char)*r->at);
  else snprintf(out, 16, "'%.*s'", len, r->at);
  return out;
}

static bool is(const struct reader *r, char c) { return r->at < r->end && *r->at == c; }
static bool eat(struct reader *r, char c) { return is(r, c) ? (r->at++, true) : false; }

static void newline(struct reader *r) {
  if (*r->at == '\r' && r->at + 1 < r->end && r->at[1] == '\n') r->at++;
  r->at++;
  r->line++;
  r->line_begin = r->at;
}

static void space(struct reader *r, bool lines) {
  for (; r->at < r->end; ) {
    if (*r->at == ' ' || *r->at == '\t') r->at++;
    else if (*r->at == '#') while (r->at < r->end && *r->at != '\n' && *r->at != '\r') r->at++;
    else if (lines && (*r->at == '\n' || *r->at == '\r')) newline(r);
    else return;
  }
}

static bool word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// The rule whose name begins here, or -1.
static int32_t rule_name(struct reader *r, const char **from, size_t *n) {
  *from = r->at;
  while (r->at < r->end && word(*r->at)) r->at++;
  *n = (size_t)(r->at - *from);
  void *found = NULL;
  if (smap_get(&r->names, *from, *n, &found)) return (int32_t)((uintptr_t)found - 1);
  int32_t id = grammar_rule_new(&r->src, *from, *n, r->line);
  if (id < 0) return bad(r, "more than %u rules", GRAMMAR_RULES_MAX);
  smap_set(&r->names, r->src.rules.at[id].name, *n, (void *)(uintptr_t)(id + 1));
  return id;
}

static int number(struct reader *r, uint32_t *out) {
  uint64_t x = 0;
  const char *from = r->at;
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
    x = x * 10 + (uint64_t)(*r->at - '0');
    if (x >= GRAMMAR_INF) return bad(r, "a count above %u", GRAMMAR_INF - 1);
  }
  char what[16];
  if (r->at == from) return bad(r, "expected a number, found %s", here(r, what));
  *out = (uint32_t)x;
  return 0;
}

static int hex(struct reader *r, int digits, uint32_t *out) {
  uint32_t x = 0;
  for (int i = 0; i < digits; i++, r->at++) {
    int digit = r->at < r->end ? hex_value(*r->at) : -1;
    if (digit < 0) return bad(r, "an escape needs %d hexadecimal digits", digits);
    x = x * 16 + (uint32_t)digit;
  }
  if (x > 0x10FFFF || (x >= 0xD800 && x <= 0xDFFF)) return bad(r, "U+%04X is not a character", x);
  *out = x;
  return 0;
}

// One character of a literal or a class, possibly an escape.
static int character(struct reader *r, uint32_t *out) {
  char what[16];
  if (r->at == r->end) return bad(r, "a literal or class that is not closed; it begins in line %u", r->opened);
  if (is(r, '\n')) {               // a literal newline, as in llama.cpp
    newline(r);
    *out = '\n';
    return 0;
  }
  if (!eat(r, '\\')) {
    int len = utf8_next(r->at, (size_t)(r->end - r->at));
    if (len <= 0) return bad(r, "%s is not UTF-8", here(r, what));
    *out = utf8_code_point(r->at, len);
    r->at += len;
    return 0;
  }
  char c = r->at < r->end ? *r->at : 0;
  static const char from[] = "nrt\\\"[]-^", to[] = "\n\r\t\\\"[]-^";
  const char *known = c ? strchr(from, c) : NULL;
  if (!known && c != 'x' && c != 'u' && c != 'U') return bad(r, "unknown escape: \\ and %s", here(r, what));
  r->at++;
  if (known) *out = (uint32_t)to[known - from];
  else return hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
  return 0;
}

static gx *literal(struct reader *r) {
  str s = {0};
  gx *x = NULL;
  r->opened = r->line;
  for (r->at++; !is(r, '"');) {
    uint32_t cp;
    char bytes[4];
    if (character(r, &cp)) { str_free(&s); return NULL; }
    str_addn(&s, bytes, (size_t)utf8_put(cp, bytes));
  }
  r->at++;
  x = gx_bytes(&r->src, str_c(&s), s.n);
  str_free(&s);
  return x;
}

static gx *class(struct reader *r) {
  charset set = {0};
  r->opened = r->line;
  r->at++;
  bool negated = eat(r, '^');
  while (!is(r, ']')) {
    uint32_t lo, hi;
    if (character(r, &lo)) goto fail;
    hi = lo;
    if (is(r, '-') && r->at + 1 < r->end && r->at[1] != ']') {
      r->at++;
      if (character(r, &hi)) goto fail;
      if (hi < lo) { bad(r, "a range from U+%04X down to U+%04X", lo, hi); goto fail; }
    }
    charset_add(&set, lo, hi);
  }
  r->at++;
  if (negated) charset_negate(&set);
  else charset_normalise(&set);
  gx *x = gx_class(&r->src, &set);
  charset_free(&set);
  return x;
fail:
  charset_free(&set);
  return NULL;
}

static gx *token(struct reader *r) {
  bool negated = eat(r, '!');
  const char *from = r->at;
  char what[16];
  if (!is(r, '<')) { bad(r, "expected a token, <text> or <[id]>, after '!', found %s", here(r, what)); return NULL; }
  if (!r->t) { bad(r, "a token, but there is no vocabulary"); return NULL; }
  if (r->at + 1 < r->end && r->at[1] == '[') {
    uint32_t id;
    r->at += 2;
    if (number(r, &id)) return NULL;
    if (!eat(r, ']') || !eat(r, '>')) {
      bad(r, "expected ]> after the id of a token, found %s", here(r, what));
      return NULL;
    }
    if (id >= (uint32_t)tokenizer_n_vocab(r->t)) {
      bad(r, "token %u is outside the vocabulary of %d", id, tokenizer_n_vocab(r->t));
      return NULL;
    }
    return gx_token(&r->src, (int32_t)id, negated);
  }
  while (r->at < r->end && *r->at != '>' && *r->at != '\n' && *r->at != '\r') r->at++;
  if (!eat(r, '>')) { bad(r, "a token that is not closed by '>'"); return NULL; }
  int32_t id = tokenizer_find(r->t, from, (size_t)(r->at - from));
  if (id < 0) {
    bad(r, "%.*s is not a token of this vocabulary", (int)(r->at - from > 100 ? 100 : r->at - from), from);
    return NULL;
  }
  return gx_token(&r->src, id, negated);
}

static gx *alternatives(struct reader *r, bool nested);

static gx *item(struct reader *r) {
  const char *from;
  size_t n;
  char what[16];
  switch (*r->at) {
  case '"': return literal(r);
  case '[': return class(r);
  case '.':
    r->at++;
    {
      charset all = {0};
      charset_negate(&all);
      gx *x = gx_class(&r->src, &all);
      charset_free(&all);
      return x;
    }
  case '<': case '!': return token(r);
  case '(': {
    if (++r->depth > GRAMMAR_DEPTH_MAX) {
      bad(r, "parentheses in parentheses, more than %d deep", GRAMMAR_DEPTH_MAX);
      return NULL;
    }
    if (stack_is_low()) {
      bad(r, "parentheses in parentheses, %d deep, and the stack has no room for more", r->depth);
      return NULL;
    }
    r->at++;
    gx *x = alternatives(r, true);
    r->depth--;
    if (x && !eat(r, ')')) { bad(r, "expected ')', found %s", here(r, what)); return NULL; }
    return x;
  }
  default: break;
  }
  if (!word(*r->at)) { bad(r, "expected a literal, class, rule or group, found %s", here(r, what)); return NULL; }
  int32_t rule = rule_name(r, &from, &n);
  return rule < 0 ? NULL : gx_rule(&r->src, rule);
}

static gx *with_repeats(struct reader *r, gx *x, bool nested) {
  for (;;) {
    char what[16];
    uint32_t min = 0, max = GRAMMAR_INF;
    if (eat(r, '*')) { }
    else if (eat(r, '+')) min = 1;
    else if (eat(r, '?')) max = 1;
    else if (eat(r, '{')) {
      space(r, nested);
      if (number(r, &min)) return NULL;
      space(r, nested);
      max = min;
      if (eat(r, ',')) {
        space(r, nested);
        max = GRAMMAR_INF;
        if (!is(r, '}') && number(r, &max)) return NULL;
        space(r, nested);
      }
      if (!eat(r, '}')) { bad(r, "expected '}', found %s", here(r, what)); return NULL; }
      if (max < min) { bad(r, "at least %u and at most %u times", min, max); return NULL; }
    } else {
      return x;
    }
    x = gx_repeat(&r->src, x, min, max);
    space(r, nested);
  }
}

static gx *alternatives(struct reader *r, bool nested) {
  gx_list_t all = {0}, seq = {0};
  gx *x = NULL;
  space(r, true);
  for (;;) {
    while (r->at < r->end && *r->at != '|' && *r->at != ')' && *r->at != '\n' && *r->at != '\r') {
      x = item(r);
      space(r, nested);
      if (x) x = with_repeats(r, x, nested);
      if (!x || r->src.too_large) goto done;
      vec_push(&seq, x);
    }
    vec_push(&all, gx_seq(&r->src, seq.at, seq.n));
    seq.n = 0;
    if (!eat(r, '|')) break;
    space(r, true);
  }
  x = gx_alt(&r->src, all.at, all.n);
done:
  vec_free(&all);
  vec_free(&seq);
  return x;
}

static int rule(struct reader *r) {
  const char *from;
  size_t n;
  char what[16];
  if (!word(*r->at)) return bad(r, "expected the name of a rule, found %s", here(r, what));
  uint32_t line = r->line;
  int32_t id = rule_name(r, &from, &n);
  if (id < 0) return -1;
  space(r, false);
  if (r->end - r->at < 3 || memcmp(r->at, "::=", 3))
    return bad(r, "expected '::=' after '%.*s', found %s", (int)(n > 100 ? 100 : n), from, here(r, what));
  r->at += 3;
  if (r->src.rules.at[id].body)
    return bad(r, "rule '%.200s' is defined twice, first in line %u", r->src.rules.at[id].name,
               r->src.rules.at[id].line);
  gx *x = alternatives(r, false);
  if (!x) return -1;
  if (r->src.too_large) return bad(r, "the grammar has more than %u parts", GRAMMAR_NODES_MAX);
  r->src.rules.at[id].body = x;
  r->src.rules.at[id].line = line;
  if (r->at < r->end && *r->at != '\n' && *r->at != '\r')
    return bad(r, "expected the end of rule '%.*s', found %s", (int)(n > 100 ? 100 : n), from, here(r, what));
  return 0;
}

int grammar_from_gbnf(const char *text, size_t n, const tokenizer *t, grammar **out, error *err) {
  if (n > GRAMMAR_SOURCE_MAX) return error_set(err, "a grammar of %zu bytes (the limit is %u)", n, GRAMMAR_SOURCE_MAX);
  struct reader r = {.at = text, .end = text + n, .line = 1, .line_begin = text, .t = t, .err = err};
  grammar_source_init(&r.src);
  int status = 0;
  for (space(&r, true); r.at < r.end && !status; space(&r, true)) status = rule(&r);
  void *root = NULL;
  if (!status && !smap_get(&r.names, "root", 4, &root)) status = error_set(err, "the grammar has no rule 'root'");
  for (size_t i = 0; i < r.src.rules.n && !status; i++)
    if (!r.src.rules.at[i].body)
      status = error_set(err, "line %u: rule '%.200s' is not defined", r.src.rules.at[i].line, r.src.rules.at[i].name);
  if (!status) status = grammar_compile(&r.src, (int32_t)((uintptr_t)root - 1), out, err);
  smap_free(&r.names);
  grammar_source_free(&r.src);
  return status;
}
