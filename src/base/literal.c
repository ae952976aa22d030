// A push parser: see literal.h. A state takes one character and returns whether it consumed it; otherwise the next
// state gets it.
#include "base/literal.h"
#include <string.h>

#define QUOTE "<|\"|>"
enum { N_QUOTE = 5 };

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static bool is_json_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_literal_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_json_digit(c) || (c && strchr("_-+.$/", c)) ||
         (unsigned char)c >= 128;
}

void literal_put(str *out, char c) {
  static const char from[] = "\n\r\t\b\f\"\\", to[] = "nrtbf\"\\";
  const char *known = c ? strchr(from, c) : NULL;
  if (known) { str_addc(out, '\\'); str_addc(out, to[known - from]); }
  else if ((unsigned char)c < 0x20) str_addf(out, "\\u%04x", (unsigned)c);
  else str_addc(out, c);
}

void literal_free(literal *l) {
  str_free(&l->frames);
  str_free(&l->word);
  str_free(&l->pair);
  str_free(&l->gap);
  *l = (literal){0};
}

void literal_begin(literal *l, str *out) {
  literal_free(l);
  l->out = out;
  l->before = out->n;
}

void literal_begin_keywords(literal *l, str *out) {
  literal_begin(l, out);
  str_addc(out, '{');
  str_addc(&l->frames, 'k');
  l->before = out->n;
  l->state = LIT_KEY;
}

static char frame(const literal *l) { return l->frames.n ? l->frames.at[l->frames.n - 1] : 0; }
static bool in_object(const literal *l) { return frame(l) == '}' || frame(l) == 'k'; }
static char closer(const literal *l) { return frame(l) == 'k' ? ')' : frame(l); }

static void flush_gap(literal *l) {
  str_addn(l->out, str_c(&l->gap), l->gap.n);
  l->gap.n = 0;
}

static void end_literal_value(literal *l) {
  l->before = l->out->n;
  l->state = l->frames.n ? LIT_AFTER : LIT_DONE;
}

static void open_bracket(literal *l, char c) {
  flush_gap(l);
  str_addc(l->out, c == '{' ? '{' : '[');
  str_addc(&l->frames, c == '{' ? '}' : c == '[' ? ']' : ')');
  l->before = l->out->n;
  l->state = c == '{' ? LIT_KEY : LIT_VALUE;
}

static void close_bracket(literal *l) {
  if (memchr(str_c(&l->gap), ',', l->gap.n)) l->gap.n = 0;
  str_addn(l->out, str_c(&l->gap), l->gap.n);
  l->gap.n = 0;
  str_addc(l->out, in_object(l) ? '}' : ']');
  l->frames.n--;
  l->member = true;
  end_literal_value(l);
}

static void open_string(literal *l, char quote) {
  flush_gap(l);
  str_addc(l->out, '"');
  l->quote = quote;
  l->word.n = 0;
  l->state = LIT_STRING;
}

static void flush_pair(literal *l) {
  str_addn(l->out, str_c(&l->pair), l->pair.n);
  l->pair.n = 0;
}

static void close_string(literal *l) {
  flush_pair(l);
  str_addc(l->out, '"');
  l->word.n = 0;
  if (l->key) l->state = LIT_SEPARATOR;
  else end_literal_value(l);
}

// The grammar of JSON's numbers.
static bool is_number(const char *at, size_t n) {
  const char *end = at + n, *from;
  if (at < end && *at == '-') at++;
  for (from = at; at < end && is_json_digit(*at);) at++;
  if (at == from || (*from == '0' && at - from > 1)) return false;
  if (at < end && *at == '.') {
    for (from = ++at; at < end && is_json_digit(*at);) at++;
    if (at == from) return false;
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    at++;
    if (at < end && (*at == '+' || *at == '-')) at++;
    for (from = at; at < end && is_json_digit(*at);) at++;
    if (at == from) return false;
  }
  return at == end;
}

static void end_word(literal *l) {
  static const char *const words[][2] = {{"True", "true"},   {"true", "true"}, {"False", "false"},
                                         {"false", "false"}, {"None", "null"}, {"null", "null"}};
  const char *json = NULL;
  if (l->key) {
    str_addc(l->out, '"');
    for (size_t i = 0; i < l->word.n; i++) literal_put(l->out, l->word.at[i]);
    str_addc(l->out, '"');
    l->word.n = 0;
    l->state = LIT_SEPARATOR;
    return;
  }
  for (size_t i = 0; i < COUNT(words); i++) if (!strcmp(str_c(&l->word), words[i][0])) json = words[i][1];
  if (!json && is_number(str_c(&l->word), l->word.n)) json = l->word.at;
  if (!json) { l->state = LIT_BAD; return; }
  str_add(l->out, json);
  l->word.n = 0;
  end_literal_value(l);
}

// --- states: each takes c and returns whether it consumed it ---------------------------------------------------------

static bool on_value(literal *l, char c) {
  l->key = l->state == LIT_KEY;
  if (is_space(c)) { if (l->frames.n) str_addc(&l->gap, c); return true; }
  if (l->frames.n && c == closer(l) && (l->key || !in_object(l))) { close_bracket(l); return true; }
  if (c == '"' || c == '\'') { open_string(l, c); return true; }
  if (c == '<') { l->word.n = 0; str_addc(&l->word, c); flush_gap(l); l->state = LIT_MARK; return true; }
  if (!l->key && (c == '{' || c == '[' || c == '(')) { open_bracket(l, c); return true; }
  if (!is_literal_char(c)) { l->state = LIT_BAD; return true; }
  flush_gap(l);
  l->word.n = 0;
  str_addc(&l->word, c);
  l->state = LIT_WORD;
  return true;
}

static bool on_separator(literal *l, char c) {
  if (is_space(c)) { str_addc(l->out, c); return true; }
  if (c != (frame(l) == 'k' ? '=' : ':')) { l->state = LIT_BAD; return true; }
  str_addc(l->out, ':');
  l->state = LIT_VALUE;
  l->member = true;
  return true;
}

static bool on_after(literal *l, char c) {
  if (is_space(c)) { str_addc(&l->gap, c); return true; }
  if (c == closer(l)) { close_bracket(l); return true; }
  if (c != ',') { l->state = LIT_BAD; return true; }
  str_addc(&l->gap, c);
  l->state = in_object(l) ? LIT_KEY : LIT_VALUE;
  return true;
}

// A possible <|"|> before a string.
static bool on_mark(literal *l, char c) {
  str_addc(&l->word, c);
  if (memcmp(l->word.at, QUOTE, l->word.n)) l->state = LIT_BAD;
  else if (l->word.n == N_QUOTE) open_string(l, 'q');
  return true;
}

// A possible <|"|> within a string that one opened. False: it is not one, and c is still to be processed.
static bool closes_quote(literal *l, char c) {
  if (l->quote != 'q' || c != QUOTE[l->word.n]) {
    for (size_t i = 0; i < l->word.n; i++) literal_put(l->out, l->word.at[i]);
    l->word.n = 0;
    return false;
  }
  str_addc(&l->word, c);
  if (l->word.n == N_QUOTE) close_string(l);
  return true;
}

static bool on_string(literal *l, char c) {
  if (l->quote == 'q' && (l->word.n || c == '<') && closes_quote(l, c)) return true;
  if (l->quote == 'q' && c == '<') return closes_quote(l, c);
  if (c == l->quote) { close_string(l); return true; }
  if (c == '\\' && l->quote != 'q') { l->word.n = 0; l->state = LIT_ESCAPE; return true; }
  flush_pair(l);
  literal_put(l->out, c);
  return true;
}

static int32_t hex_of(const str *s) {
  int32_t v = 0;
  for (size_t i = 1; i < s->n; i++) v = v << 4 | hex_value(s->at[i]);
  return v;
}

// \uXXXX: both halves of a surrogate pair are written together.
static void add_unit(literal *l, int32_t unit) {
  bool low = unit >= 0xDC00 && unit < 0xE000, high = unit >= 0xD800 && unit < 0xDC00;
  if (!low) flush_pair(l);
  str_addf(&l->pair, "\\u%s%s", l->word.at[0] == 'x' ? "00" : "", l->word.at + 1);
  if (!high) flush_pair(l);
}

// After a backslash. An unknown escape is a backslash and a character.
static bool on_escape(literal *l, char c) {
  str_addc(&l->word, c);
  char kind = l->word.at[0];
  size_t n = kind == 'u' ? 5 : kind == 'x' ? 3 : 1;
  bool used = l->word.n == 1 || hex_value(c) >= 0;
  if (used && l->word.n < n) return true;
  l->state = LIT_STRING;
  if (used && n > 1) {
    add_unit(l, hex_of(&l->word));
  } else {
    flush_pair(l);
    if (n == 1 && c == '\'') str_addc(l->out, c);
    else if (n == 1 && c && strchr("\"\\/bfnrt", c)) { str_addc(l->out, '\\'); str_addc(l->out, c); }
    else {
      str_add(l->out, "\\\\");
      for (size_t i = 0; i + !used < l->word.n; i++) literal_put(l->out, l->word.at[i]);
    }
  }
  l->word.n = 0;
  return used;
}

static bool on_word(literal *l, char c) {
  if (is_literal_char(c)) { str_addc(&l->word, c); return true; }
  end_word(l);
  return false;
}

enum literal_status literal_push(literal *l, char c) {
  static bool (*const on[])(literal *, char) = {
    [LIT_VALUE] = on_value, [LIT_KEY] = on_value,     [LIT_SEPARATOR] = on_separator, [LIT_AFTER] = on_after,
    [LIT_MARK] = on_mark,   [LIT_STRING] = on_string, [LIT_ESCAPE] = on_escape,       [LIT_WORD] = on_word};
  bool used = false;
  while (!used && l->state < LIT_DONE) used = on[l->state](l, c);
  if (l->state == LIT_BAD) return LITERAL_BAD;
  return l->state != LIT_DONE ? LITERAL_MORE : used ? LITERAL_WHOLE : LITERAL_BEFORE;
}

bool literal_end(literal *l) {
  if (l->state == LIT_WORD && !l->frames.n) end_word(l);
  return l->state == LIT_DONE;
}

bool literal_read(const char *text, size_t n, str *out) {
  literal l = {0};
  enum literal_status s = LITERAL_MORE;
  size_t i = 0;
  literal_begin(&l, out);
  while (i < n && s == LITERAL_MORE) s = literal_push(&l, text[i++]);
  bool whole = s == LITERAL_MORE ? literal_end(&l) : s == LITERAL_WHOLE;
  while (whole && i < n) whole = is_space(text[i++]);
  literal_free(&l);
  return whole;
}

void literal_complete(const char *text, size_t n, str *out) {
  literal l = {0};
  size_t from = out->n;
  literal_begin(&l, out);
  for (size_t i = 0; i < n && l.state < LIT_DONE; i++) literal_push(&l, text[i]);
  if (l.state == LIT_ESCAPE) l.state = LIT_STRING;
  if (l.state == LIT_STRING && !l.key) str_addc(out, '"');
  else if (l.state != LIT_AFTER && l.state != LIT_DONE) out->n = l.before;
  for (; l.frames.n; l.frames.n--) str_addc(out, in_object(&l) ? '}' : ']');
  if (out->n == from || out->at[from] != '{') { out->n = from; str_add(out, "{}"); }
  out->at[out->n] = 0;
  literal_free(&l);
}
