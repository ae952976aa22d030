// The filter urlize: turns addresses in a text into links, by Jinja's rules.
//
// The text is escaped, and each word is examined: brackets before a word and punctuation after it are not part of an
// address, except closing brackets whose opening ones are in it. Jinja defines addresses by regular expressions. They
// are matched by hand here, in one step per character without backtracking: no part of them can begin with a character
// with which the previous part may end.
#include "chat/jinja_text.h"
#include "text/unicode.h"
#include "text/utf8.h"

// The characters [from, end) of the escaped text.
struct view { const uint32_t *c; size_t from, end; };
struct link { jrun *r; str *out; jval attributes, schemes; bool trims; int64_t most; };

// Folds case like Python's regular expressions: four letters beyond ASCII equal ASCII letters.
static uint32_t folded(uint32_t c) {
  if (c >= 'A' && c <= 'Z') return c + 32;
  return c == 0x130 || c == 0x131 ? 'i' : c == 0x17F ? 's' : c == 0x212A ? 'k' : c;
}
static bool is_ascii_letter(uint32_t c) { return folded(c) >= 'a' && folded(c) <= 'z'; }
static bool is_hex(uint32_t c) { return unicode_is_decimal(c) || (folded(c) >= 'a' && folded(c) <= 'f'); }
static bool is_name_or_hyphen(uint32_t c) { return j_is_word(c) || c == '%' || c == '-'; }
static bool is_name_without_hyphens(uint32_t c) { return j_is_word(c) || c == '%'; }
static bool is_mail(uint32_t c) { return j_is_word(c) || c == '.' || c == '-'; }
static bool is_scheme(uint32_t c) { return is_mail(c) || c == '+'; }

static size_t run_of(struct view v, size_t at, bool (*of)(uint32_t)) {
  size_t end = at;
  while (end < v.end && of(v.c[end])) end++;
  return end - at;
}

static bool has(struct view v, size_t at, const char *text, bool fold) {
  for (; *text; text++, at++)
    if (at >= v.end || (fold ? folded(v.c[at]) : v.c[at]) != (unsigned char)*text) return false;
  return true;
}
static bool is_char(struct view v, size_t at, uint32_t c) { return at < v.end && v.c[at] == c; }

static size_t count_text(struct view v, const char *what) {
  size_t n = 0, len = strlen(what);
  for (size_t i = v.from; i < v.end; i++) if (has(v, i, what, false)) { n++; i += len - 1; }
  return n;
}

// ---- addresses ------------------------------------------------------------------------------------------------------

// A port, then a path, a query or nothing.
static bool is_rest(struct view v, size_t at) {
  if (is_char(v, at, ':')) {
    size_t n = run_of(v, at + 1, unicode_is_decimal);
    if (n < 1 || n > 5) return false;
    at += 1 + n;
  }
  return at == v.end || v.c[at] == '/' || v.c[at] == '?' || v.c[at] == '#';
}

static bool in_range(size_t n, size_t least, size_t most) { return n >= least && n <= most; }

// Labels separated by dots; the last consists of letters, or is an encoded one of another script (xn--).
static bool is_host(struct view v, size_t at) {
  for (;;) {
    size_t n = run_of(v, at, is_ascii_letter),
           coded = has(v, at, "xn--", true) ? run_of(v, at + 4, is_name_without_hyphens) : 0;
    if (in_range(n, 2, 63) && is_rest(v, at + n)) return true;
    if (in_range(coded, 2, 59) && is_rest(v, at + 4 + coded)) return true;
    n = run_of(v, at, is_name_or_hyphen);
    if (!n || !is_char(v, at + n, '.')) return false;
    at += n + 1;
  }
}

// Labels separated by dots, without a scheme; the last is one of a few known ones.
static bool is_known_host(struct view v) {
  static const char *const last[] = {"com", "net", "int", "edu", "gov", "org", "info", "mil"};
  for (size_t at = v.from;;) {
    size_t n = run_of(v, at, is_name_or_hyphen);
    if (!in_range(n, 2, 63) || !is_char(v, at + n, '.')) return false;
    at += n + 1;
    for (size_t i = 0; i < COUNT(last); i++)
      if (has(v, at, last[i], true) && is_rest(v, at + strlen(last[i]))) return true;
  }
}

static bool is_four_numbers(struct view v, size_t at) {
  for (int i = 0; i < 4; i++) {
    if (i && !is_char(v, at++, '.')) return false;
    size_t n = run_of(v, at, unicode_is_decimal);
    if (!in_range(n, 1, 3)) return false;
    at += n;
  }
  return is_rest(v, at);
}

// Two groups of up to four digits, each followed by a colon, then one to six groups, which may lack the colon.
static bool is_bracketed(struct view v, size_t at) {
  if (!is_char(v, at++, '[')) return false;
  for (int i = 0; i < 2; i++) {
    size_t n = run_of(v, at, is_hex);
    if (n > 4 || !is_char(v, at + n, ':')) return false;
    at += n + 1;
  }
  for (size_t groups = 0;;) {
    size_t n = run_of(v, at, is_hex);
    bool colon = is_char(v, at + n, ':');
    groups += n ? (n + 3) / 4 : colon;
    if (groups > 6) return false;
    at += n + colon;
    if (!colon) break;
  }
  return is_char(v, at, ']') && is_rest(v, at + 1);
}

static bool is_web(struct view v) {
  size_t at = has(v, v.from, "https://", true) ? 8 : has(v, v.from, "http://", true) ? 7 : 0;
  if (at && (is_host(v, v.from + at) || is_four_numbers(v, v.from + at) || is_bracketed(v, v.from + at))) return true;
  return (has(v, v.from, "www.", true) && is_host(v, v.from + 4)) || is_known_host(v);
}

static bool is_address(struct view v) {
  size_t at = v.end, dot;
  while (at > v.from && v.c[at - 1] != '@') at--;
  if (at < v.from + 2 || at == v.end || !j_is_word(v.c[at]) || run_of(v, at, is_mail) != v.end - at) return false;
  for (dot = v.end; dot > at && j_is_word(v.c[dot - 1]); dot--) continue;
  return dot > at && dot < v.end && v.c[dot - 1] == '.';
}

// ---- words ----------------------------------------------------------------------------------------------------------

static void put_view(struct link *k, struct view v) {
  for (size_t i = v.from; i < v.end; i++) {
    char b[4];
    str_addn(k->out, b, (size_t)utf8_put(v.c[i], b));
  }
  j_guard(k->r, k->out);
}

static void put_link(struct link *k, const char *before, struct view to, bool attributes, struct view shown,
                     bool trims) {
  int64_t n = (int64_t)(shown.end - shown.from);
  str_addf(k->out, "<a href=\"%s", before);
  put_view(k, to);
  str_addc(k->out, '"');
  if (attributes) j_add(k->r, k->out, k->attributes);
  str_addc(k->out, '>');
  trims = trims && k->trims && n > k->most;
  if (trims) shown.end = shown.from + (size_t)(k->most >= 0 ? k->most : n + k->most > 0 ? n + k->most : 0);
  put_view(k, shown);
  str_add(k->out, trims ? "...</a>" : "</a>");
}

static bool put_other_scheme(struct link *k, struct view v) {
  jlist *schemes = k->schemes.l;
  jinja_charge(k->r, schemes->n);
  for (size_t i = 0; i < schemes->n; i++) {
    size_t n = 0;
    const jstr *s = schemes->at[i].s;
    struct view rest = v;
    while (n < s->n && rest.from < v.end) {
      char b[4];
      size_t len = (size_t)utf8_put(v.c[rest.from], b);
      if (len > s->n - n || memcmp(s->at + n, b, len)) break;
      n += len, rest.from++;
    }
    if (n < s->n || rest.from == v.end) continue;
    put_link(k, "", v, true, v, false);
    return true;
  }
  return false;
}

static void put_linked_word(struct link *k, struct view v) {
  static const char *const pairs[][2] = {{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
  struct view head = v, tail = v;
  for (head.end = v.from; head.end < v.end;) {
    size_t n = v.c[head.end] == '(' || v.c[head.end] == '<' ? 1 : has(v, head.end, "&lt;", false) ? 4 : 0;
    if (!n) break;
    head.end += n;
  }
  v.from = head.end;
  for (tail.from = v.end; tail.from > v.from;) {
    uint32_t c = v.c[tail.from - 1];
    size_t n = c == ')' || c == '>' || c == '.' || c == ','                      ? 1
               : tail.from - v.from >= 4 && has(v, tail.from - 4, "&gt;", false) ? 4
                                                                                 : 0;
    if (!n) break;
    tail.from -= n;
  }
  v.end = tail.from;
  for (size_t i = 0; i < COUNT(pairs); i++) {
    size_t opened = count_text(v, pairs[i][0]), closed = count_text(tail, pairs[i][1]);
    if (opened <= count_text(v, pairs[i][1])) continue;
    for (size_t n = opened < closed ? opened : closed; n; n--) {
      while (!has(tail, tail.from, pairs[i][1], false)) tail.from++;
      tail.from += strlen(pairs[i][1]);
    }
    v.end = tail.from;
  }
  struct view mail = v;
  bool written = has(v, v.from, "mailto:", false);
  if (written) mail.from += 7;
  put_view(k, head);
  if (is_web(v))
    put_link(k, has(v, v.from, "https://", false) || has(v, v.from, "http://", false) ? "" : "https://", v, true, v,
             true);
  else if (written && is_address(mail)) put_link(k, "", v, false, mail, false);
  else if (!has(v, v.from, "www.", false) && !is_char(v, v.from, '@') && !count_text(v, ":") && is_address(v))
    put_link(k, "mailto:", v, false, v, false);
  else if (!put_other_scheme(k, v)) put_view(k, v);
  put_view(k, tail);
}

// ---- the filter -----------------------------------------------------------------------------------------------------

static uint32_t *points_of(jrun *r, jval text, size_t *n) {
  uint32_t *c = jinja_array(r, j_chars(r, text.s), sizeof *c);
  *n = 0;
  for (size_t at = 0, len; at < text.s->n; at += len) {
    len = (size_t)utf8_next(text.s->at + at, text.s->n - at);
    c[(*n)++] = utf8_code_point(text.s->at + at, (int)len);
  }
  return c;
}

static jval need_schemes(jrun *r, jval given) {
  jlist *all = j_list(r, 0), *items = given.type == J_ABSENT || given.type == J_NONE ? all : j_items(r, given);
  for (size_t i = 0; i < items->n; i++) {
    jval scheme = j_need_str(r, "a scheme", items->at[i]);
    struct view v = {.c = points_of(r, scheme, &v.end)};
    size_t n = run_of(v, 0, is_scheme), slashes = v.end - n - (n < v.end);
    if (n < 2 || !is_char(v, n, ':') || slashes > 2 || !has(v, n + 1, &"//"[2 - slashes], false))
      jinja_fail(r, "'%.*s' is not a valid URI scheme prefix.", VIEW_ARGS(scheme));
    j_push(r, all, scheme);
  }
  return j_of_list(all);
}

jval j_urlize(jrun *r, jval text, const int64_t *most, jval attributes, jval schemes) {
  struct link k = {
    .r = r, .attributes = attributes, .schemes = need_schemes(r, schemes), .trims = most, .most = most ? *most : 0};
  struct view v = {.from = 0};
  text = j_escape(r, text);
  jinja_charge(r, 8 * text.s->n);
  v.c = points_of(r, text, &v.end);
  k.out = j_scratch(r);
  for (struct view word = v; word.from < v.end; word.from = word.end) {
    bool space = j_is_space(v.c[word.from]);
    for (word.end = word.from; word.end < v.end && j_is_space(v.c[word.end]) == space;) word.end++;
    if (space) put_view(&k, word);
    else put_linked_word(&k, word);
  }
  return j_scratch_end(r);
}
