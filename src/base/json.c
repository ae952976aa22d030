// Reads JSON within bounds: see json.h.
#include "base/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/plain.h"
#include "base/stack.h"
#include "base/str.h"

static const char *end_of_string(const char *at, const char *end) {   // at: after the first quote
  while (at < end && *at != '"') at += *at == '\\' && at + 1 < end ? 2 : 1;
  return at;
}

static bool in_number(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

// --- memory of values ------------------------------------------------------------------------------------------------

// Measured with jansson 2.14 and glibc; tables of members and arrays grow by doubling.
enum { OBJECT = 232, ARRAY = 128, NUMBER = 32, STRING = 48, TEXT = 32, PLACE = 16, MEMBER = 72, BUCKET = 16 };
enum { DEEPEST = 2048 };                 // jansson's own limit

size_t json_cost(const char *text, size_t n) {
  size_t cost = 0, length = 0, of_string = 0, depth = 0;
  for (const char *at = text, *end = text + n; at < end && depth <= DEEPEST; at++) {
    switch (*at) {
      case '{': cost += OBJECT + PLACE, depth++; break;
      case '[': cost += ARRAY + PLACE, depth++; break;
      case ']': case '}': if (depth) depth--; break;
      case ',': cost += PLACE; break;
      case ':': cost += round_up(length + MEMBER, 16) + BUCKET - of_string; length = of_string = 0; break;
      case '"': {
        const char *from = ++at;
        at = end_of_string(at, end);
        length = (size_t)(at - from);
        of_string = STRING + (length < TEXT - 8 ? TEXT : round_up(length + 9, 16));
        cost += of_string;
        break;
      }
      case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        cost += NUMBER;
        while (at + 1 < end && in_number(at[1])) at++;
        break;
      default: break;
    }
  }
  return cost;
}

bool json_fits(const char *text, size_t n, size_t *left, error *err) {
  size_t own = JSON_ROOM, cost = json_cost(text, n), most;
  if (!left) left = &own;
  most = *left + JSON_PER_BYTE * n;
  if (cost <= most) { *left = most - cost; return true; }
  if (cost >> 20 && most >> 20)
    error_set(err, "%zu bytes of JSON have values that take %zu MB of memory; %zu MB is the most", n,
              cost >> 20, most >> 20);
  else
    error_set(err, "%zu bytes of JSON, whose values take %zu bytes of memory: %zu are left beside what was read before",
              n, cost, most);
  return false;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// The same text with integers beyond 64 bits written as real numbers.
static str large_as_reals(const char *text, size_t n) {
  str out = {0};
  const char *at = text, *end = text + n, *copied = text;
  while (at < end) {
    if (*at == '"') { at = end_of_string(at + 1, end); if (at < end) at++; continue; }
    if (*at != '-' && !(*at >= '0' && *at <= '9')) { at++; continue; }
    const char *from = at;
    bool whole = true;
    for (; at < end && in_number(*at); at++) whole &= (*at >= '0' && *at <= '9') || at == from;
    if (!whole || at - from < 19) continue;
    str digits = {0};
    str_addn(&digits, from, (size_t)(at - from));
    errno = 0;
    strtoll(digits.at, NULL, 10);
    if (errno == ERANGE) {
      str_addn(&out, copied, (size_t)(at - copied));
      str_add(&out, ".0");
      copied = at;
    }
    str_free(&digits);
  }
  str_addn(&out, copied, (size_t)(end - copied));
  return out;
}

str json_from_python(const char *text, size_t n) {
  static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
  str out = {0};
  const char *at = text, *end = text + n, *copied = text;
  while (at < end) {
    if (*at == '"') { at = end_of_string(at + 1, end); if (at < end) at++; continue; }
    size_t word = 0;
    for (size_t i = 0; i < COUNT(words) && !word && (*at == 'N' || *at == 'I' || *at == '-'); i++)
      if ((size_t)(end - at) >= strlen(words[i]) && !memcmp(at, words[i], strlen(words[i]))) word = strlen(words[i]);
    if (word) {
      str_addn(&out, copied, (size_t)(at - copied));
      str_addf(&out, "{\"__float__\":\"%.*s\"}", (int)word, at);
      copied = at + word;
    }
    at += word ? word : 1;
  }
  if (copied > text) str_addn(&out, copied, (size_t)(end - copied));
  return out;
}

// Whether the stack has room for jansson, which recurses for each level without a check. Tested before the text is
// read, since the result also has to be freed. first: only for the first list or object.
static bool has_stack(const char *text, size_t n, bool first) {
  enum { A_LEVEL = 384 };                  // its parser takes 84 bytes per level, its printer 308
  size_t depth = 0, most = 0;
  for (const char *at = text, *end = text + n; at < end; at++) {
    if (*at == '"') at = end_of_string(at + 1, end);
    else if (*at == '[' || *at == '{') most = ++depth > most ? depth : most;
    else if ((*at == ']' || *at == '}') && depth && !--depth && first) break;
  }
  if (most > DEEPEST) most = DEEPEST;      // deeper text is jansson's own error
  return stack_left() >= STACK_SPARE + most * A_LEVEL;
}

// jansson asks the locale for the decimal point, and takes the first byte of one with several as the whole.
static json_t *load_plain(const char *text, size_t n, size_t flags, json_error_t *e) {
  plain_scope s = plain_begin();
  json_t *o = json_loadb(text, n, flags, e);
  plain_end(s);
  return o;
}

char *json_as_text(const json_t *o, size_t flags) {
  plain_scope s = plain_begin();
  char *text = json_dumps(o, flags);
  plain_end(s);
  return text;
}

#define TOO_DEEP "nested too deeply for the stack of this thread"

json_t *json_load(const char *text, size_t n, size_t flags, json_error_t *e) {
  if (has_stack(text, n, flags & JSON_DISABLE_EOF_CHECK)) return load_plain(text, n, flags, e);
  if (e) {
    *e = (json_error_t){.line = 1, .column = 1};
    snprintf(e->text, sizeof e->text, "%s", TOO_DEEP);
  }
  return NULL;
}

json_t *json_parse(const char *text, size_t n, size_t flags, error *err) {
  json_error_t e;
  if (!has_stack(text, n, false)) { error_set(err, TOO_DEEP); return NULL; }
  json_t *o = load_plain(text, n, flags, &e);
  if (!o && json_error_code(&e) == json_error_numeric_overflow) {
    str reals = large_as_reals(text, n);
    o = load_plain(str_c(&reals), reals.n, flags, &e);
    str_free(&reals);
  }
  if (!o) error_set(err, "line %d, column %d: %s", e.line, e.column, e.text);
  return o;
}

json_t *json_read(const char *text, size_t n, size_t flags, size_t *left, error *err) {
  return json_fits(text, n, left, err) ? json_parse(text, n, flags, err) : NULL;
}

static const char *past_space(const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
  return at;
}

// The comma or bracket after an element, or the end.
static const char *end_of_element(const char *at, const char *end) {
  for (size_t depth = 0; at < end; at++) {
    if (*at == '"') { at = end_of_string(at + 1, end); if (at == end) break; }
    else if (*at == '[' || *at == '{') depth++;
    else if (!depth && (*at == ']' || *at == ',' || *at == '}')) break;
    else if (*at == ']' || *at == '}') depth--;
  }
  return at < end ? at : end;
}

// The reason why a text could not be read in pieces.
static int why_not(const char *text, size_t n, error *err) {
  json_t *o = json_read(text, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL, err);
  if (o) error_set(err, "expected a JSON array");
  json_decref(o);
  return -1;
}

int json_each(const char *text, size_t n, json_element *each, void *ctx, error *err) {
  const char *end = text + n, *at = past_space(text, end);
  if (at == end || *at != '[') return why_not(text, n, err);
  at = past_space(at + 1, end);
  bool more = at < end && *at != ']';
  for (size_t i = 0; more; i++) {
    const char *to = end_of_element(at, end);
    size_t left = JSON_ROOM + JSON_PER_BYTE * (n - (size_t)(to - at)), had = JSON_ROOM + JSON_PER_BYTE * n;
    if (to == end) return why_not(text, n, err);
    if (!json_fits(at, (size_t)(to - at), &left, err)) return -1;
    json_t *o = json_parse(at, (size_t)(to - at), JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    if (!o) return why_not(text, n, err);
    int status = each(ctx, i, o, had - left);
    if (status) return status;
    more = *to == ',';
    at = more ? to + 1 : to;
  }
  if (at == end || *at != ']' || past_space(at + 1, end) != end) return why_not(text, n, err);
  return 0;
}
