// The lexer: text outside tags is data; inside there are names, numbers, strings and operators.
//
// White space follows Jinja's settings trim_blocks and lstrip_blocks: the newline after a block or comment is removed,
// and so is blank space between the beginning of a line and a block or comment. "-" inside a delimiter removes all
// space on that side, "+" keeps what the settings would remove. Before that, line ends become \n and one at the very
// end is removed. A "}}" or "%}" ends a tag only outside brackets: {{ {'a': {}} }} is one tag.
#include "chat/jinja_lex.h"
#include "base/plain.h"
#include "text/utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <utf8proc.h>

typedef struct lexer {
  jrun *r;
  const char *s;
  size_t n, i;               // n: of the normalised text; i: the current position
  jtokens *out;
  char open[JINJA_MAX_PARSE_DEPTH];
  size_t n_open;
} lexer;

// ---- characters -----------------------------------------------------------------------------------------------------

static uint32_t char_at(const lexer *x, size_t i, size_t *len) {
  int k = utf8_next(x->s + i, x->n - i);
  *len = (size_t)k;
  return utf8_code_point(x->s + i, k);
}

static size_t skip_space(const lexer *x, size_t i) {
  size_t len;
  while (i < x->n && j_is_space(char_at(x, i, &len))) i += len;
  return i;
}

static size_t back_over_space(const lexer *x, size_t from, size_t end) {
  while (end > from) {
    size_t k = end - 1, len;
    while (k > from && ((unsigned char)x->s[k] & 0xC0) == 0x80) k--;
    if (!j_is_space(char_at(x, k, &len))) break;
    end = k;
  }
  return end;
}

static bool is_dec_digit(char c) { return c >= '0' && c <= '9'; }

// The length of the character at i if names may contain it, else 0.
static size_t name_char(const lexer *x, size_t i) {
  if (i >= x->n) return 0;
  unsigned char c = (unsigned char)x->s[i];
  if (c < 128) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_dec_digit((char)c);
  size_t len;
  utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)char_at(x, i, &len));
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
             (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) || k == UTF8PROC_CATEGORY_MN ||
             k == UTF8PROC_CATEGORY_MC
           ? len
           : 0;
}

static bool is_at(const lexer *x, size_t i, const char *text) {
  size_t n = strlen(text);
  return x->n - i >= n && !memcmp(x->s + i, text, n);
}

static void move_to(lexer *x, size_t i) {
  for (; x->i < i; x->i++) if (x->s[x->i] == '\n') x->r->line++;
}

static jtoken *add_token(lexer *x, jtoken_kind kind) {
  jtoken t = {.kind = (uint8_t)kind, .line = x->r->line};
  if (x->out->n == x->out->cap) jinja_room(x->r, 2 * x->out->cap * sizeof t);
  vec_push(x->out, t);
  return &x->out->at[x->out->n - 1];
}

// ---- numbers and strings --------------------------------------------------------------------------------------------

// The end of (\d+_)*\d+ from i on, or i.
static size_t digits_end(const lexer *x, size_t i) {
  size_t k = i;
  if (k >= x->n || !is_dec_digit(x->s[k])) return i;
  while (k < x->n && (is_dec_digit(x->s[k]) || (x->s[k] == '_' && k + 1 < x->n && is_dec_digit(x->s[k + 1])))) k++;
  return k;
}

static jval number_value(lexer *x, const char *text, size_t n, int base, bool real) {
  char buf[400];
  size_t k = 0;
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '_') continue;
    if (k + 1 == sizeof buf) jinja_fail(x->r, "a number of more than %zu digits", sizeof buf - 1);
    buf[k++] = text[i];
  }
  buf[k] = 0;
  if (real) return j_float(plain_strtod(buf, NULL));
  errno = 0;
  long long v = strtoll(base == 10 ? buf : buf + 2, NULL, base);
  if (errno) jinja_fail(x->r, "the integer %.40s does not fit 64 bits", buf);
  return j_int(v);
}

static void number_token(lexer *x) {
  const char *s = x->s;
  size_t from = x->i, whole = digits_end(x, from), end = whole;
  bool after_dot = from > 0 && s[from - 1] == '.', real = false;
  if (!after_dot) {
    size_t k = whole;
    if (k < x->n && s[k] == '.' && digits_end(x, k + 1) > k + 1) { k = digits_end(x, k + 1); real = true; end = k; }
    if (k < x->n && (s[k] == 'e' || s[k] == 'E')) {
      size_t e = k + 1 + (k + 1 < x->n && (s[k + 1] == '+' || s[k + 1] == '-'));
      if (digits_end(x, e) > e) { end = digits_end(x, e); real = true; }
    }
  }
  int base = 10;
  if (!real && s[from] == '0') {
    static const struct {
      char letter;
      int base;
      const char *digits;
    } bases[] = {{'b', 2, "01"}, {'o', 8, "01234567"}, {'x', 16, "0123456789abcdefABCDEF"}};
    end = from + 1;
    while (end < x->n && (s[end] == '0' || (s[end] == '_' && end + 1 < x->n && s[end + 1] == '0'))) end++;
    for (size_t b = 0; b < COUNT(bases); b++) {
      if (from + 1 >= x->n || (s[from + 1] | 32) != bases[b].letter) continue;
      size_t k = from + 2;
      while (k < x->n && s[k] &&
             (strchr(bases[b].digits, s[k]) ||
              (s[k] == '_' && k + 1 < x->n && s[k + 1] && strchr(bases[b].digits, s[k + 1]))))
        k++;
      if (k > from + 2) { base = bases[b].base; end = k; }
    }
  }
  jtoken *t = add_token(x, TK_NUMBER);
  t->value = number_value(x, s + from, end - from, base, real);
  move_to(x, end);
}

// Decodes the escapes of Python's string literals; an unknown one keeps its backslash.
static void unescape(lexer *x, const char *s, size_t n, str *out) {
  static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
  for (size_t i = 0; i < n; i++) {
    if (s[i] != '\\' || i + 1 >= n) { str_addc(out, s[i]); continue; }
    char c = s[++i];
    const char *known = c ? strchr(from, c) : NULL;
    int wide = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == '\n') continue;
    if (known) { str_addc(out, to[known - from]); continue; }
    if (c >= '0' && c <= '7') {
      uint32_t v = 0;
      for (int k = 0; k < 3 && i < n && s[i] >= '0' && s[i] <= '7'; k++) v = v * 8 + (uint32_t)(s[i++] - '0');
      i--;
      char b[4];
      str_addn(out, b, (size_t)utf8_put(v, b));
      continue;
    }
    if (c == 'N') jinja_fail(x->r, "characters by name (\\N{...}) are not supported");
    if (!wide) { str_addc(out, '\\'); str_addc(out, c); continue; }
    uint32_t v = 0;
    for (int k = 0; k < wide; k++) {
      int d = ++i < n ? hex_value(s[i]) : -1;
      if (d < 0) jinja_fail(x->r, "\\%c in a string needs %d hexadecimal digits", c, wide);
      v = v << 4 | (uint32_t)d;
    }
    if (v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
      jinja_fail(x->r, "\\%c in a string: U+%04X is no character", c, (unsigned)v);
    char b[4];
    str_addn(out, b, (size_t)utf8_put(v, b));
  }
}

static void string(lexer *x) {
  char quote = x->s[x->i];
  size_t from = x->i + 1, end = from;
  while (end < x->n && x->s[end] != quote) end += x->s[end] == '\\' && end + 1 < x->n ? 2 : 1;
  if (end >= x->n) jinja_fail(x->r, "a string that begins here does not end");
  jtoken *t = add_token(x, TK_STRING);
  if (memchr(x->s + from, '\\', end - from)) {
    str *s = j_scratch(x->r);
    unescape(x, x->s + from, end - from, s);
    t->value = j_scratch_end(x->r);
    t->value.s->own = J_OWN;
  } else {
    t->value = j_own(x->r, x->s + from, end - from);
  }
  move_to(x, end + 1);
}

// ---- inside tags ----------------------------------------------------------------------------------------------------

static void operator(lexer *x) {
  static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="}, one[] = "+-*/%~[](){}><=.:|,;";
  char c = x->s[x->i];
  size_t len = 0;
  for (size_t k = 0; k < COUNT(two); k++) if (is_at(x, x->i, two[k])) len = 2;
  if (!len && c && strchr(one, c)) len = 1;
  if (!len) {
    size_t k;
    uint32_t cp = char_at(x, x->i, &k);
    if (j_is_printable(cp)) jinja_fail(x->r, "unexpected character '%.*s'", (int)k, x->s + x->i);
    jinja_fail(x->r, "unexpected character U+%04X", (unsigned)cp);
  }
  if (len == 1 && strchr("([{", c)) {
    if (x->n_open == sizeof x->open) jinja_fail(x->r, "more than %zu brackets inside each other", sizeof x->open);
    x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
  } else if (len == 1 && strchr(")]}", c)) {
    if (!x->n_open) jinja_fail(x->r, "unexpected '%c'", c);
    if (x->open[--x->n_open] != c) jinja_fail(x->r, "unexpected '%c', expected '%c'", c, x->open[x->n_open]);
  }
  jtoken *t = add_token(x, TK_OP);
  memcpy(t->op, x->s + x->i, len);
  move_to(x, x->i + len);
}

// The position after a tag's end at i, or 0 if no tag ends there.
static size_t tag_end(const lexer *x, size_t i, bool block) {
  const char *close = block ? "%}" : "}}";
  if (x->s[i] == '-' && is_at(x, i + 1, close)) return skip_space(x, i + 3);
  if (block && x->s[i] == '+' && is_at(x, i + 1, close)) return i + 3;
  if (!is_at(x, i, close)) return 0;
  return i + 2 + (block && i + 2 < x->n && x->s[i + 2] == '\n');
}

static void tag(lexer *x, bool block) {
  add_token(x, block ? TK_BLOCK_BEGIN : TK_VAR_BEGIN);
  size_t after = x->i + 2;
  if (after < x->n && (x->s[after] == '-' || x->s[after] == '+')) after++;
  move_to(x, after);
  for (;;) {
    move_to(x, skip_space(x, x->i));
    if (x->i >= x->n) jinja_fail(x->r, "the template ends inside of a tag");
    size_t end = x->n_open ? 0 : tag_end(x, x->i, block);
    if (end) { add_token(x, block ? TK_BLOCK_END : TK_VAR_END); move_to(x, end); return; }
    char c = x->s[x->i];
    size_t len = 0, from = x->i;
    if (is_dec_digit(c)) { number_token(x); continue; }
    if (c == '\'' || c == '"') { string(x); continue; }
    while (name_char(x, from + len)) len += name_char(x, from + len);
    if (!len) { operator(x); continue; }
    jtoken *t = add_token(x, TK_NAME);
    t->at = x->s + from, t->n = len;
    move_to(x, from + len);
  }
}

// ---- outside tags ---------------------------------------------------------------------------------------------------

static void data(lexer *x, size_t from, size_t end) {
  if (from == end) return;
  jtoken *t = add_token(x, TK_DATA);
  t->at = x->s + from, t->n = end - from;
}

static void comment(lexer *x) {
  size_t i = x->i + 2;
  if (i < x->n && (x->s[i] == '-' || x->s[i] == '+')) i++;
  for (; i < x->n; i++) {
    if (x->s[i] == '-' && is_at(x, i + 1, "#}")) { move_to(x, skip_space(x, i + 3)); return; }
    if (x->s[i] == '+' && is_at(x, i + 1, "#}")) { move_to(x, i + 3); return; }
    if (is_at(x, i, "#}")) { move_to(x, i + 2 + (i + 2 < x->n && x->s[i + 2] == '\n')); return; }
  }
  jinja_fail(x->r, "a comment that begins here does not end");
}

// Matches a block tag of one word, such as raw, at i. Returns the position of its "-%}" or "%}"; 0 if it does not
// match.
static size_t word_tag(const lexer *x, size_t i, const char *word) {
  if (!is_at(x, i, "{%")) return 0;
  i += 2;
  if (i < x->n && (x->s[i] == '-' || x->s[i] == '+')) i++;
  i = skip_space(x, i);
  if (!is_at(x, i, word)) return 0;
  i = skip_space(x, i + strlen(word));
  return is_at(x, i, "%}") || is_at(x, i, "-%}") || is_at(x, i, "+%}") ? i : 0;
}

// The end of the data before a tag, after trimming.
static size_t data_end(const lexer *x, size_t from, size_t at) {
  char sign = at + 2 < x->n ? x->s[at + 2] : 0;
  if (sign == '-') return back_over_space(x, from, at);
  if (sign == '+' || x->s[at + 1] == '{') return at;
  size_t line = at;
  while (line > from && x->s[line - 1] != '\n') line--;
  if (line == from && from && x->s[from - 1] != '\n') return at;
  return skip_space(x, line) >= at ? line : at;
}

static void raw(lexer *x, size_t close) {
  size_t from = x->s[close] == '-' ? skip_space(x, close + 3) : close + 2;
  int begun = x->r->line;
  for (size_t i = from; i < x->n; i++) {
    size_t end = x->s[i] == '{' ? word_tag(x, i, "endraw") : 0;
    if (!end) continue;
    move_to(x, from);
    data(x, from, data_end(x, from, i));
    move_to(x, tag_end(x, end, true));
    return;
  }
  x->r->line = begun;
  jinja_fail(x->r, "a raw block that begins here does not end");
}

static void normalise_lines(lexer *x, const char *text, size_t n) {
  char *s = jinja_alloc(x->r, n + 1);
  size_t k = 0;
  for (size_t i = 0; i < n; i++) {
    s[k++] = text[i] == '\r' ? '\n' : text[i];
    if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') i++;
  }
  if (k && s[k - 1] == '\n') k--;
  x->s = s, x->n = k;
}

void jinja_lex(jrun *r, const char *text, size_t n, jtokens *out) {
  lexer x = {.r = r, .out = out};
  r->line = 1;
  size_t valid = utf8_valid_prefix(text, n);
  for (size_t i = 0; i < valid && valid < n; i++) r->line += text[i] == '\n';
  if (valid < n) jinja_fail(r, "byte %zu of the template is not UTF-8", valid);
  normalise_lines(&x, text, n);
  while (x.i < x.n) {
    size_t from = x.i, at = from;
    while (at < x.n && !(x.s[at] == '{' && at + 1 < x.n && strchr("{%#", x.s[at + 1]) && x.s[at + 1])) at++;
    if (at == x.n) { data(&x, from, at); move_to(&x, at); break; }
    data(&x, from, data_end(&x, from, at));
    move_to(&x, at);
    size_t close = word_tag(&x, at, "raw");
    if (close && x.s[close] != '+') raw(&x, close);
    else if (x.s[at + 1] == '#') comment(&x);
    else tag(&x, x.s[at + 1] == '%');
  }
  add_token(&x, TK_END);
}
