// Regular expressions: see regex.h for the syntax. A parser makes a tree, and the tree becomes a grammar expression.
//
// Anchors. An unanchored search is "anything, the match, anything". The two "anything" parts are added when the tree is
// converted: every node is told whether it is at the left or right end of the whole pattern, and whether an anchor came
// before. So anchors work wherever an alternative begins or ends, as in "(^|,)a"; elsewhere they are errors.
#include "grammar/regex.h"
#include "base/plain.h"
#include "base/stack.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum rx_kind { RX_SET, RX_SEQ, RX_ALT, RX_REPEAT, RX_BEGIN, RX_END, RX_AHEAD };
typedef struct rx rx;
struct rx {
  union { rx **sub; struct gx_range *ranges; };
  uint32_t n, at;                // of sub or ranges; at: position in the pattern
  uint32_t min, max;
  uint8_t kind;
  bool anchored, ahead;          // it contains an anchor, a look-ahead
  bool negative;                 // AHEAD: what follows must not match
};
_Static_assert(sizeof(rx) <= 32, "a pattern has one for each character");
typedef VEC(rx *) rx_list;

// A character set across dialects: characters in all dialects, and characters in any.
typedef struct two_sets { charset sure, maybe; } two_sets;

struct parser {
  const char *text;
  size_t at, n;
  grammar_source *src;
  arena *mem;
  regex_class each;
  void *ctx;
  bool search, fold, dot_all, *supported;
  int depth;
  size_t ranges, nodes;
  error *err;
};

static rx *bad_regex(struct parser *p, size_t at, const char *fmt, ...) PRINTF_LIKE(3, 4);
static rx *bad_regex(struct parser *p, size_t at, const char *fmt, ...) {
  char text[300];
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  error_set(p->err, "regular expression, offset %zu: %s", at, text);
  return NULL;
}

// Reports syntax that is valid, but not regular, or specific to some dialects.
static rx *foreign(struct parser *p, size_t at, const char *fmt, ...) PRINTF_LIKE(3, 4);
static rx *foreign(struct parser *p, size_t at, const char *fmt, ...) {
  char text[300];
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  *p->supported = false;
  return bad_regex(p, at, "%s", text);
}

static bool looks_at(const struct parser *p, const char *s) {
  size_t n = strlen(s);
  return p->n - p->at >= n && !memcmp(p->text + p->at, s, n);
}
static bool eat_text(struct parser *p, const char *s) { return looks_at(p, s) ? (p->at += strlen(s), true) : false; }
static char peek_char(const struct parser *p) { return p->at < p->n ? p->text[p->at] : 0; }

static rx *rx_new(struct parser *p, enum rx_kind kind, size_t at) {
  if (++p->nodes > GRAMMAR_NODES_MAX) return bad_regex(p, at, "more than %u parts", GRAMMAR_NODES_MAX);
  rx *x = ARENA_NEW(p->mem, rx);
  x->kind = (uint8_t)kind;
  x->at = (uint32_t)at;
  return x;
}

static rx *with_list(struct parser *p, enum rx_kind kind, size_t at, rx_list *list) {
  rx *x = list->n == 1 ? list->at[0] : rx_new(p, kind, at);
  if (x && list->n != 1) {
    x->n = (uint32_t)list->n;
    x->sub = ARENA_ARRAY(p->mem, rx *, list->n + 1);
    for (size_t i = 0; i < list->n; i++) {
      x->sub[i] = list->at[i];
      x->anchored = x->anchored || list->at[i]->anchored;
      x->ahead = x->ahead || list->at[i]->ahead;
    }
  }
  vec_free(list);
  return x;
}

// Letters whose other case is looked up, for one range of characters.
enum { FOLDED = 64 };

// Makes a node of the set and takes it over.
static rx *set_node(struct parser *p, size_t at, charset *set) {
  if (p->fold) p->ranges += charset_fold(set) / FOLDED;
  charset_normalise(set);
  p->ranges += set->n;
  p->nodes += set->n;              // counts like the expression it becomes, for the limit
  rx *x = p->ranges > GRAMMAR_NODES_MAX ? bad_regex(p, at, "more than %u ranges of characters", GRAMMAR_NODES_MAX)
                                        : rx_new(p, RX_SET, at);
  if (x && set->n) x->ranges = memcpy(ARENA_ARRAY(p->mem, struct gx_range, set->n), set->at, set->n * sizeof *set->at);
  if (x) x->n = (uint32_t)set->n;
  charset_free(set);
  return x;
}

// ---- characters and classes -----------------------------------------------------------------------------------------

// Characters by general category, computed at first use: it takes milliseconds, and a schema may have thousands of
// patterns.
static charset by_category[32];
static pthread_once_t categories_once = PTHREAD_ONCE_INIT;

static void load_categories(void) {
  for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
    charset *s = &by_category[(unsigned)utf8proc_category((utf8proc_int32_t)cp) & 31];
    if (s->n && s->at[s->n - 1].hi + 1 == cp) s->at[s->n - 1].hi = cp;
    else charset_add(s, cp, cp);
  }
}

static const char categories[][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                     "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                     "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
_Static_assert(UTF8PROC_CATEGORY_LU == 1 && UTF8PROC_CATEGORY_ND == 9 && UTF8PROC_CATEGORY_PC == 12 &&
                 UTF8PROC_CATEGORY_CO == 29,
               "in the order of utf8proc");

// Adds the characters of a category "Lu", or of all categories that begin with "L".
static bool add_category(charset *out, const char *name, size_t n) {
  bool known = false;
  pthread_once(&categories_once, load_categories);
  for (size_t i = 0; i < COUNT(categories); i++) {
    if (n < 1 || n > 2 || memcmp(categories[i], name, n)) continue;
    known = true;
    charset_add_all(out, &by_category[i]);
  }
  return known;
}

static void two_negate(two_sets *s) {
  charset old = s->sure;
  s->sure = s->maybe;
  s->maybe = old;
  charset_negate(&s->sure);
  charset_negate(&s->maybe);
}

static void two_free(two_sets *s) {
  charset_free(&s->sure);
  charset_free(&s->maybe);
}

static void two_add(two_sets *s, uint32_t lo, uint32_t hi) {
  charset_add(&s->sure, lo, hi);
  charset_add(&s->maybe, lo, hi);
}

// Moves the contents of from to s.
static void two_join(two_sets *s, two_sets *from) {
  charset_add_all(&s->sure, &from->sure);
  charset_add_all(&s->maybe, &from->maybe);
  two_free(from);
}

// \d \s \w \h and their negations.
static bool class_escape(char c, two_sets *s) {
  switch (c | 32) {
  case 'd':
    two_add(s, '0', '9');
    add_category(&s->maybe, "Nd", 2);
    break;
  case 'w':
    two_add(s, '0', '9'); two_add(s, 'A', 'Z'); two_add(s, 'a', 'z'); two_add(s, '_', '_');
    add_category(&s->maybe, "L", 1);
    add_category(&s->maybe, "M", 1);
    add_category(&s->maybe, "N", 1);
    add_category(&s->maybe, "Pc", 2);
    charset_add(&s->maybe, 0x24B6, 0x24E9);
    break;
  case 's':
    two_add(s, '\t', '\r'); two_add(s, ' ', ' ');
    charset_add(&s->maybe, 0x1C, 0x1F);
    charset_add(&s->maybe, 0x85, 0x85);
    charset_add(&s->maybe, 0xFEFF, 0xFEFF);
    charset_add(&s->maybe, 0x180E, 0x180E);
    add_category(&s->maybe, "Z", 1);
    break;
  case 'h':
    two_add(s, '\t', '\t'); two_add(s, ' ', ' '); two_add(s, 0xA0, 0xA0);
    add_category(&s->maybe, "Zs", 2);
    charset_add(&s->maybe, 0x180E, 0x180E);
    break;
  default: return false;
  }
  if (c < 'a') two_negate(s);
  return true;
}

static rx *rx_hex(struct parser *p, size_t from, size_t least, size_t most, bool braced, uint32_t *out) {
  uint32_t x = 0;
  size_t digits = 0;
  for (; digits < most; digits++, p->at++) {
    int digit = hex_value(peek_char(p));
    if (digit < 0) break;
    x = x * 16 + (uint32_t)digit;
  }
  if (digits < least || (braced && !eat_text(p, "}")))
    return bad_regex(p, from, "an escape that lacks hexadecimal digits");
  if (x > 0x10FFFF) return bad_regex(p, from, "U+%04X is not a character", x);
  *out = x;
  return ARENA_NEW(p->mem, rx);   // any value but NULL
}

// Parses \p{L}, \pL, \P{Lu}, \p{^L} after the backslash and the p.
static bool property(struct parser *p, bool negated, two_sets *out) {
  size_t from = p->at - 2;
  const char *name = p->text + p->at;
  size_t n = 1;
  if (eat_text(p, "{")) {
    negated ^= eat_text(p, "^");
    name = p->text + p->at;
    for (n = 0; p->at + n < p->n && name[n] != '}';) n++;
    p->at += n;
    if (!eat_text(p, "}")) return bad_regex(p, from, "a property that is not closed by '}'"), false;
  } else {
    if (p->at < p->n) p->at++;
    else n = 0;
  }
  static const char *const prefixes[] = {"gc=", "General_Category="};
  for (size_t i = 0; i < COUNT(prefixes); i++)
    if (n > strlen(prefixes[i]) && !memcmp(name, prefixes[i], strlen(prefixes[i]))) {
      name += strlen(prefixes[i]);
      n -= strlen(prefixes[i]);
    }
  bool any = n == 3 && !memcmp(name, "Any", 3), ascii = n == 5 && !memcmp(name, "ASCII", 5);
  if (any) charset_add(&out->sure, 0, 0x10FFFF);
  else if (ascii) charset_add(&out->sure, 0, 0x7F);
  else if (!add_category(&out->sure, name, n))
    return foreign(p, from, "the property '%.*s' is not known: general categories are, such as L or Nd",
                     (int)(n > 40 ? 40 : n), name),
           false;
  charset_add_all(&out->maybe, &out->sure);
  if (negated) two_negate(out);
  return true;
}

// Parses an escape, in a class or outside: a set, or one character. False: an error.
static bool rx_escape(struct parser *p, bool in_class, two_sets *set, bool *is_set, uint32_t *cp) {
  size_t from = p->at++;
  *is_set = false;
  if (p->at == p->n) return bad_regex(p, from, "a backslash at the end"), false;
  char c = p->text[p->at];
  if (p->search && c && strchr("hHaeQEAzZU", c)) return foreign(p, from, "\\%c is not ECMAScript", c), false;
  if (class_escape(c, set)) { p->at++; *is_set = true; return true; }
  if ((unsigned char)c >= 128) return bad_regex(p, from, "an unknown escape"), false;
  p->at++;
  static const char letters[] = "nrtfvae", values[] = "\n\r\t\f\v\a\x1B";
  const char *known = strchr(letters, c);
  if (known) { *cp = (uint32_t)values[known - letters]; return true; }
  switch (c) {
  case 'p': case 'P': *is_set = true; return property(p, c == 'P', set);
  case 'x': return (eat_text(p, "{") ? rx_hex(p, from, 1, 6, true, cp) : rx_hex(p, from, 2, 2, false, cp)) != NULL;
  case 'u': {
    if (eat_text(p, "{")) return rx_hex(p, from, 1, 6, true, cp) != NULL;
    if (!rx_hex(p, from, 4, 4, false, cp)) return false;
    uint32_t low;
    if (*cp < 0xD800 || *cp > 0xDBFF || !eat_text(p, "\\u")) return true;  // a surrogate pair is one character
    if (!rx_hex(p, from, 4, 4, false, &low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return bad_regex(p, from, "half of a surrogate pair"), false;
    *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
    return true;
  }
  case 'U': return rx_hex(p, from, 8, 8, false, cp) != NULL;
  case 'c':
    c = peek_char(p);
    if (!((c | 32) >= 'a' && (c | 32) <= 'z')) return bad_regex(p, from, "\\c needs a letter"), false;
    p->at++;
    *cp = (uint32_t)(c & 31);
    return true;
  case '0':
    if (peek_char(p) >= '0' && peek_char(p) <= '9') return foreign(p, from, "an octal escape: write \\xHH"), false;
    *cp = 0;
    return true;
  case 'b':
    if (in_class) { *cp = '\b'; return true; }
    return foreign(p, from, "a word boundary, \\b, is not supported: it looks at both sides of a place"), false;
  case 'B': return foreign(p, from, "\\B is not supported: it looks at both sides of a place"), false;
  case 'k':
  case 'g': return foreign(p, from, "a reference to a group, \\%c: what it matches is not regular", c), false;
  default: break;
  }
  if (c >= '1' && c <= '9')
    return foreign(p, from, "a back-reference, \\%c: what it matches is not regular", c), false;
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return foreign(p, from, "unknown escape: \\%c", c), false;
  *cp = (unsigned char)c;
  return true;
}

static bool rx_literal(struct parser *p, uint32_t *cp) {
  int len = utf8_next(p->text + p->at, p->n - p->at);
  if (len <= 0) return bad_regex(p, p->at, "byte 0x%02X is not UTF-8", (unsigned)(unsigned char)p->text[p->at]), false;
  *cp = utf8_code_point(p->text + p->at, len);
  p->at += (size_t)len;
  return true;
}

static bool posix(struct parser *p, two_sets *s) {
  static const struct { const char *name, *ranges;
  } table[] = {{"alpha", "azAZ"},     {"digit", "09"},      {"alnum", "azAZ09"}, {"upper", "AZ"},
               {"lower", "az"},       {"xdigit", "09afAF"}, {"space", "\t\r  "}, {"blank", "\t\t  "},
               {"punct", "!/:@[`{~"}, {"print", " ~"},      {"graph", "!~"},     {"cntrl", "\x01\x1F\x7F\x7F"},
               {"word", "azAZ09__"},  {"ascii", "\x01\x7F"}};
  size_t from = p->at;
  if (p->search) return foreign(p, from, "[:alpha:] and the like are not ECMAScript"), false;
  p->at += 2;
  bool negated = eat_text(p, "^");
  for (size_t i = 0; i < COUNT(table); i++) {
    char whole[16];
    snprintf(whole, sizeof whole, "%s:]", table[i].name);
    if (!eat_text(p, whole)) continue;
    two_sets own = {{0}, {0}};
    for (const char *r = table[i].ranges; *r; r += 2) two_add(&own, (uint32_t)(r[0] == 1 ? 0 : r[0]), (uint32_t)r[1]);
    if (negated) two_negate(&own);
    two_join(s, &own);
    return true;
  }
  return foreign(p, from, "an unknown class of characters"), false;
}

static rx *rx_class(struct parser *p) {
  size_t from = p->at++, many = 4096;
  two_sets s = {{0}, {0}};
  bool negated = eat_text(p, "^");
  if (peek_char(p) == ']')
    return foreign(p, from,
                     "']' at the beginning of a class means different things in different dialects: write \\]");
  for (;;) {
    two_sets set = {{0}, {0}};
    bool is_set = false;
    uint32_t lo = 0, hi;
    if (s.maybe.n > many) {                    // this many members are probably repetitions
      charset_normalise(&s.sure);
      charset_normalise(&s.maybe);
      many = 2 * s.maybe.n + 4096;
    }
    if (p->at == p->n) { bad_regex(p, from, "a class that is not closed by ']'"); goto fail; }
    if (eat_text(p, "]")) break;
    if (looks_at(p, "[:")) { if (!posix(p, &s)) goto fail; continue; }
    if (looks_at(p, "\\Q") || looks_at(p, "&&") || looks_at(p, "--")) {
      foreign(p, p->at, "%.2s in a class is not supported", p->text + p->at);
      goto fail;
    }
    if (peek_char(p) == '\\' ? !rx_escape(p, true, &set, &is_set, &lo) : !rx_literal(p, &lo)) {
      two_free(&set);
      goto fail;
    }
    if (is_set) {
      p->ranges += (set.sure.n + set.maybe.n) / 16;
      two_join(&s, &set);
      if (p->ranges > GRAMMAR_NODES_MAX) {
        bad_regex(p, from, "more than %u ranges of characters", GRAMMAR_NODES_MAX);
        goto fail;
      }
      continue;
    }
    hi = lo;
    if (peek_char(p) == '-' && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
      p->at++;
      if (peek_char(p) == '\\' ? !rx_escape(p, true, &set, &is_set, &hi) : !rx_literal(p, &hi)) {
        two_free(&set);
        goto fail;
      }
      if (is_set) { two_free(&set); foreign(p, from, "a range that ends in a class"); goto fail; }
      if (hi < lo) { bad_regex(p, from, "a range from U+%04X down to U+%04X", lo, hi); goto fail; }
    }
    two_add(&s, lo, hi);
  }
  if (p->fold) p->ranges += (charset_fold(&s.sure) + charset_fold(&s.maybe)) / FOLDED;
  if (negated) two_negate(&s);
  charset_free(&s.maybe);
  bool fold = p->fold;
  p->fold = false;               // already folded, before the negation
  rx *x = set_node(p, from, &s.sure);
  p->fold = fold;
  return x;
fail:
  two_free(&s);
  return NULL;
}

// ---- the tree -------------------------------------------------------------------------------------------------------

static rx *rx_alternatives(struct parser *p);
static rx *rx_repeated(struct parser *p, rx *x);

// An empty node for a comment or a flag group. A repetition after it is an error, since dialects apply it to different
// things.
static rx *nothing(struct parser *p, size_t at) {
  char c = peek_char(p);
  if (c && strchr("*+?{", c))
    return foreign(p, p->at, "a repetition after a comment, a switch or \\Q\\E: write it before");
  return rx_new(p, RX_SEQ, at);
}

static rx *one_character(struct parser *p, size_t at, uint32_t cp) {
  charset s = {0};
  charset_add(&s, cp, cp);
  return set_node(p, at, &s);
}

static rx *rx_quoted(struct parser *p) {    // \Q...\E
  size_t from = p->at;
  rx_list all = {0};
  for (p->at += 2; p->at < p->n && !eat_text(p, "\\E");) {
    uint32_t cp;
    size_t at = p->at;
    rx *x = rx_literal(p, &cp) ? one_character(p, at, cp) : NULL;
    if (!x) { vec_free(&all); return NULL; }
    vec_push(&all, x);
  }
  if (!all.n) return nothing(p, from);
  rx *last = rx_repeated(p, all.at[all.n - 1]);    // a repetition after \E applies to the last character
  if (!last) { vec_free(&all); return NULL; }
  all.at[all.n - 1] = last;
  return with_list(p, RX_SEQ, from, &all);
}

// Parses flag letters up to ':' or ')'. False: an error.
static bool flags(struct parser *p, size_t from) {
  for (bool on = true;; p->at++) {
    char c = peek_char(p);
    if (c == '-' && on) on = false;
    else if (c == 'i') p->fold = on;
    else if (c == 's') p->dot_all = on;
    else if (c == ')' || c == ':') return true;
    else return foreign(p, from, "(?%c: this kind of group is not supported", c >= 32 && c < 127 ? c : '?'), false;
  }
}

static rx *rx_ahead(struct parser *p, size_t from, rx *of, bool negative) {
  char c = peek_char(p);
  if (c && strchr("*+?{", c)) return foreign(p, p->at, "a look-ahead that is repeated");
  rx *x = rx_new(p, RX_AHEAD, from);
  if (!x) return NULL;
  x->sub = ARENA_ARRAY(p->mem, rx *, 1);
  x->sub[0] = of;
  x->n = 1;
  x->ahead = true;
  x->negative = negative;
  return x;
}

static rx *group(struct parser *p) {
  size_t from = p->at++;
  bool fold = p->fold, dot_all = p->dot_all;
  static const struct { const char *begin, *what;
  } refused[] = {{"?<=", "a look-behind"},    {"?<!", "a negative look-behind"},
                 {"?>", "an atomic group"},   {"?(", "a condition"},
                 {"?R", "recursion"},         {"?&", "recursion"},
                 {"?P=", "a back-reference"}, {"?P>", "recursion"},
                 {"?|", "a branch reset"},    {"*", "a verb"}};
  for (size_t i = 0; i < COUNT(refused); i++)
    if (looks_at(p, refused[i].begin))
      return foreign(p, from, "%s, (%s, is not supported: a grammar of tokens has to be regular here",
                       refused[i].what, refused[i].begin);
  if (eat_text(p, "?#")) {
    while (p->at < p->n && peek_char(p) != ')') p->at++;
    return eat_text(p, ")") ? nothing(p, from) : bad_regex(p, from, "a comment that is not closed by ')'");
  }
  bool ahead = looks_at(p, "?=") || looks_at(p, "?!"), negative = looks_at(p, "?!");
  if (ahead) {
    p->at += 2;
  } else if (eat_text(p, "?P<") || eat_text(p, "?<") || eat_text(p, "?'")) {
    char close = p->text[p->at - 1] == '<' ? '>' : '\'';
    while (p->at < p->n && peek_char(p) != close && peek_char(p) != ')') p->at++;
    if (peek_char(p) != close) return bad_regex(p, from, "a group whose name is not closed");
    p->at++;
  } else if (eat_text(p, "?")) {
    if (!flags(p, from)) return NULL;
    if (eat_text(p, ")")) return nothing(p, from);      // for the rest of the enclosing group
    p->at++;
  }
  if (++p->depth > GRAMMAR_DEPTH_MAX)
    return bad_regex(p, from, "groups in groups, more than %d deep", GRAMMAR_DEPTH_MAX);
  if (stack_is_low())
    return bad_regex(p, from, "groups in groups, %d deep, and the stack has no room for more", p->depth);
  rx *x = rx_alternatives(p);
  p->depth--;
  p->fold = fold;
  p->dot_all = dot_all;
  if (x && !eat_text(p, ")")) return bad_regex(p, from, "a group that is not closed by ')'");
  return x && ahead ? rx_ahead(p, from, x, negative) : x;
}

static rx *atom(struct parser *p) {
  size_t from = p->at;
  uint32_t cp;
  switch (p->text[p->at]) {
  case '(': return group(p);
  case '[': return rx_class(p);
  case '*':
  case '+':
  case '?': return bad_regex(p, from, "nothing stands before '%c' that could be repeated", p->text[from]);
  case '^': case '$': {
    rx *x = rx_new(p, p->text[p->at++] == '^' ? RX_BEGIN : RX_END, from);
    if (x) x->anchored = true;
    return x;
  }
  case '.': {
    charset s = {0};
    p->at++;
    if (!p->dot_all) { charset_add(&s, '\n', '\n'); charset_add(&s, '\r', '\r'); charset_add(&s, 0x2028, 0x2029); }
    charset_negate(&s);
    return set_node(p, from, &s);
  }
  case '\\': {
    two_sets set = {{0}, {0}};
    bool is_set, begin = looks_at(p, "\\A");
    if (p->search) begin = false;
    else if (begin || looks_at(p, "\\z") || looks_at(p, "\\Z")) {
      p->at += 2;
      rx *x = rx_new(p, begin ? RX_BEGIN : RX_END, from);
      if (x) x->anchored = true;
      return x;
    }
    if (!p->search && looks_at(p, "\\Q")) return rx_quoted(p);
    if (!rx_escape(p, false, &set, &is_set, &cp)) { two_free(&set); return NULL; }
    if (!is_set) return one_character(p, from, cp);
    charset_free(&set.maybe);
    return set_node(p, from, &set.sure);
  }
  default: return rx_literal(p, &cp) ? one_character(p, from, cp) : NULL;
  }
}

// Parses {m}, {m,}, {m,n}; other text is no count, and nothing is read. -1: an error.
static int counts(struct parser *p, uint32_t *min, uint32_t *max) {
  size_t from = p->at++;
  uint64_t n[2] = {0, GRAMMAR_INF};
  if (looks_at(p, ",") && p->at + 1 < p->n && p->text[p->at + 1] >= '0' && p->text[p->at + 1] <= '9')
    return foreign(p, from, "{,n} means different things in different dialects: write {0,n}"), -1;
  for (int i = 0; i < 2; i++) {
    bool digits = peek_char(p) >= '0' && peek_char(p) <= '9';
    if (!digits && !i) { p->at = from; return 0; }
    if (digits) n[i] = 0;
    for (; peek_char(p) >= '0' && peek_char(p) <= '9'; p->at++) {
      n[i] = n[i] * 10 + (uint64_t)(peek_char(p) - '0');
      if (n[i] >= GRAMMAR_INF) return bad_regex(p, from, "a count above %u", GRAMMAR_INF - 1), -1;
    }
    if (!i && !eat_text(p, ",")) { n[1] = n[0]; break; }
  }
  if (!eat_text(p, "}")) { p->at = from; return 0; }
  if (n[1] < n[0])
    return bad_regex(p, from, "at least %llu and at most %llu times", (unsigned long long)n[0],
                     (unsigned long long)n[1]),
           -1;
  *min = (uint32_t)n[0];
  *max = (uint32_t)n[1];
  return 1;
}

static rx *rx_repeated(struct parser *p, rx *x) {
  for (;; ) {
    size_t from = p->at;
    uint32_t min = 0, max = GRAMMAR_INF;
    if (eat_text(p, "*")) { }
    else if (eat_text(p, "+")) min = 1;
    else if (eat_text(p, "?")) max = 1;
    else if (peek_char(p) == '{') {
      int is_count = counts(p, &min, &max);
      if (is_count < 0) return NULL;
      if (!is_count) return x;
    } else {
      return x;
    }
    if (eat_text(p, "+"))
      return foreign(p, from, "possessive repetition is not supported: what it matches depends on what it gives up");
    eat_text(p, "?");            // lazy: matches the same texts
    if (peek_char(p) == '*' || peek_char(p) == '?')
      return bad_regex(p, p->at, "nothing stands before '%c' that could be repeated", peek_char(p));
    rx *sub[1] = {x}, *r = rx_new(p, RX_REPEAT, from);
    if (!r) return NULL;
    r->sub = memcpy(ARENA_ARRAY(p->mem, rx *, 1), sub, sizeof sub);
    r->n = 1;
    r->min = min;
    r->max = max;
    r->anchored = x->anchored;
    r->ahead = x->ahead;
    x = r;
  }
}

static rx *rx_alternatives(struct parser *p) {
  rx_list all = {0}, seq = {0};
  size_t from = p->at;
  for (;;) {
    while (p->at < p->n && peek_char(p) != '|' && peek_char(p) != ')') {
      rx *x = atom(p);
      if (x) x = rx_repeated(p, x);
      if (!x) { vec_free(&all); vec_free(&seq); return NULL; }
      if (x->kind != RX_SEQ || x->n) vec_push(&seq, x);     // an empty node, such as (?i), must not hide an anchor
    }
    rx *x = with_list(p, RX_SEQ, from, &seq);
    if (!x) { vec_free(&all); return NULL; }
    vec_push(&all, x);
    if (!eat_text(p, "|")) break;
  }
  return with_list(p, RX_ALT, from, &all);
}

// ---- from the tree to an expression ---------------------------------------------------------------------------------

// What is at a side of a node: another node; the end of the pattern; the end of the pattern after an anchor.
enum side { SIDE_INNER, SIDE_OPEN, SIDE_ANCHORED };

static gx *of_set(struct parser *p, const charset *set) {
  return p->each ? p->each(p->ctx, p->src, set) : gx_class(p->src, set);
}

static gx *anything(struct parser *p) {
  charset all = {0};
  charset_negate(&all);
  gx *x = gx_repeat(p->src, of_set(p, &all), 0, GRAMMAR_INF);
  charset_free(&all);
  return x;
}

static gx *gx_between(struct parser *p, gx *x, enum side left, enum side right) {
  gx *parts[3];
  size_t n = 0;
  if (!x) return NULL;
  if (left == SIDE_OPEN && p->search) parts[n++] = anything(p);
  parts[n++] = x;
  if (right == SIDE_OPEN && p->search) parts[n++] = anything(p);
  return gx_seq(p->src, parts, n);
}

static gx *gx_of_rx(struct parser *p, const rx *x, enum side left, enum side right);

// Converts a sequence; its first part has to be combined with everything after it.
static gx *gx_of_parts(struct parser *p, const rx *x, rx *const *parts, size_t n, enum side left, enum side right) {
  rx_list list = {0};
  if (x) vec_push(&list, (rx *)(uintptr_t)x);
  for (size_t i = 0; i < n; i++) vec_push(&list, parts[i]);
  rx *all = rx_new(p, RX_SEQ, list.n ? list.at[0]->at : 0);
  p->nodes += list.n;
  if (all) {
    all->n = (uint32_t)list.n;
    all->sub = ARENA_ARRAY(p->mem, rx *, list.n + 1);
    for (size_t i = 0; i < list.n; i++) {
      all->sub[i] = list.at[i];
      all->ahead = all->ahead || list.at[i]->ahead;
      all->anchored = all->anchored || list.at[i]->anchored;
    }
  }
  vec_free(&list);
  return all ? gx_of_rx(p, all, left, right) : NULL;
}

// Converts a look-ahead before these parts, which extend to the end of the text: both must match.
static gx *gx_ahead(struct parser *p, const rx *x, rx *const *parts, size_t n, enum side left, enum side right) {
  bool begins = left == SIDE_ANCHORED || (left == SIDE_OPEN && !p->search), search = p->search;
  enum side inner = begins ? SIDE_ANCHORED : SIDE_INNER;
  if (right == SIDE_INNER) {
    foreign(p, x->at, "a look-ahead within something that is repeated");
    return NULL;
  }
  gx *rest = gx_of_parts(p, NULL, parts, n, inner, right);
  p->search = true;
  gx *seen = rest ? gx_of_rx(p, x->sub[0], inner, SIDE_OPEN) : NULL;
  p->search = search;
  if (!seen) return NULL;
  gx *both = x->negative ? gx_minus(p->src, rest, seen) : gx_and(p->src, rest, seen);
  return gx_between(p, both, left, SIDE_INNER);
}

// Converts a part with a look-ahead inside, and the parts after it: each alternative is combined with all that follows.
static gx *gx_with_ahead(struct parser *p, const rx *x, rx *const *parts, size_t n, enum side left, enum side right) {
  VEC(gx *) list = {0};
  gx *out = NULL;
  if (x->kind == RX_AHEAD) return gx_ahead(p, x, parts, n, left, right);
  if (x->kind == RX_SEQ) {
    rx_list all = {0};
    for (size_t i = 0; i < x->n; i++) vec_push(&all, x->sub[i]);
    for (size_t i = 0; i < n; i++) vec_push(&all, parts[i]);
    out = gx_of_parts(p, NULL, all.at, all.n, left, right);
    vec_free(&all);
    return out;
  }
  if (x->kind == RX_REPEAT && x->max > 1) {
    foreign(p, x->at, "a look-ahead within something that is repeated");
    return NULL;
  }
  if (x->kind == RX_REPEAT && !x->min) {
    if (!(out = gx_of_parts(p, NULL, parts, n, left, right))) return NULL;
    vec_push(&list, out);
  }
  for (size_t i = 0; i < (x->kind == RX_REPEAT ? x->max : x->n); i++) {
    if (!(out = gx_of_parts(p, x->sub[i], parts, n, left, right))) break;
    vec_push(&list, out);
  }
  if (out) out = gx_alt(p->src, list.at, list.n);
  vec_free(&list);
  return out;
}

static gx *gx_of_rx(struct parser *p, const rx *x, enum side left, enum side right) {
  VEC(gx *) list = {0};
  gx *out = NULL;
  if (p->src->too_large) { bad_regex(p, x->at, "more than %u parts", GRAMMAR_NODES_MAX); return NULL; }
  if (stack_is_low()) { bad_regex(p, x->at, "parts in parts, and the stack has no room for more"); return NULL; }
  switch (x->kind) {
  case RX_SET: return gx_between(p, of_set(p, &(charset){x->ranges, x->n, x->n}), left, right);
  case RX_AHEAD: return gx_ahead(p, x, NULL, 0, left, right);
  case RX_REPEAT:
    if (x->ahead) return gx_with_ahead(p, x, NULL, 0, left, right);
    if (x->min == 1 && x->max == 1) return gx_of_rx(p, x->sub[0], left, right);
    if (x->anchored) { foreign(p, x->at, "an anchor in something that is repeated"); return NULL; }
    out = gx_of_rx(p, x->sub[0], SIDE_INNER, SIDE_INNER);
    return out ? gx_between(p, gx_repeat(p->src, out, x->min, x->max), left, right) : NULL;
  case RX_BEGIN: case RX_END:
    if (x->kind == RX_BEGIN ? !left : !right) {
      foreign(p, x->at, "an anchor that does not stand at the %s of an alternative",
                x->kind == RX_BEGIN ? "beginning" : "end");
      return NULL;
    }
    if (x->kind == RX_BEGIN) left = SIDE_ANCHORED;
    else right = SIDE_ANCHORED;
    return gx_between(p, gx_empty(p->src), left == SIDE_ANCHORED ? SIDE_INNER : left,
                      right == SIDE_ANCHORED ? SIDE_INNER : right);
  case RX_ALT:
    for (size_t i = 0; i < x->n; i++) {
      if (!(out = gx_of_rx(p, x->sub[i], left, right))) break;
      vec_push(&list, out);
    }
    if (out) out = gx_alt(p->src, list.at, list.n);
    break;
  case RX_SEQ: {
    size_t from = 0, end = x->n;
    for (; left && from < end && x->sub[from]->kind == RX_BEGIN; from++) left = SIDE_ANCHORED;
    for (; right && end > from && x->sub[end - 1]->kind == RX_END; end--) right = SIDE_ANCHORED;
    if (from == end) { out = gx_between(p, gx_empty(p->src), left, right); break; }
    for (size_t i = from; i < end; i++) {
      const rx *part = x->sub[i];
      enum side at = i == from ? left : SIDE_INNER;
      out = part->ahead ? gx_with_ahead(p, part, x->sub + i + 1, end - i - 1, at, right)
                        : gx_of_rx(p, part, at, i + 1 == end ? right : SIDE_INNER);
      if (!out) break;
      vec_push(&list, out);
      if (part->ahead) break;
    }
    if (out) out = gx_seq(p->src, list.at, list.n);
    break;
  }
  }
  vec_free(&list);
  return out;
}

gx *regex_parse(grammar_source *s, const char *text, size_t n, const struct regex_rules *rules, error *err) {
  struct parser p = {.text = text,
                     .n = n,
                     .src = s,
                     .mem = arena_new(),
                     .each = rules->each,
                     .ctx = rules->ctx,
                     .search = rules->search,
                     .supported = rules->supported,
                     .err = err};
  *rules->supported = true;
  gx *x = NULL;
  if (n > GRAMMAR_SOURCE_MAX) {
    error_set(err, "a regular expression of %zu bytes (the limit is %u)", n, GRAMMAR_SOURCE_MAX);
  } else {
    rx *tree = rx_alternatives(&p);
    if (tree && p.at < n) tree = bad_regex(&p, p.at, "a ')' that closes nothing");
    if (tree) x = gx_of_rx(&p, tree, SIDE_OPEN, SIDE_OPEN);
    if (x && s->too_large) { bad_regex(&p, 0, "more than %u parts", GRAMMAR_NODES_MAX); x = NULL; }
  }
  arena_free(p.mem);
  return x;
}

int grammar_from_regex(const char *text, size_t n, grammar **out, error *err) {
  grammar_source s;
  grammar_source_init(&s);
  int status = -1;
  int32_t root = grammar_rule_new(&s, "the regular expression", 22, 0);
  bool supported;
  gx *x = regex_parse(&s, text, n, &(struct regex_rules){.supported = &supported}, err);
  if (x) {
    s.rules.at[root].body = x;
    status = grammar_compile(&s, root, out, err);
  }
  grammar_source_free(&s);
  return status;
}
