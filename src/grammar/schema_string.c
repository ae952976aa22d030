// Strings: lengths and patterns; schema_format.c has the formats.
//
// A string constrained only in length may use any escapes. If its text matters (a pattern, a format, the name of a
// member), characters are written directly, and only necessary escapes are used, in their shortest form: so a pattern's
// automaton runs over the written text.
#include "grammar/regex.h"
#include "grammar/schema_impl.h"
#include <stdlib.h>
#include <string.h>

// ---- characters -----------------------------------------------------------------------------------------------------

static const char short_from[] = "\"\\\b\f\n\r\t", short_to[] = "\"\\bfnrt";

void schema_quoted(str *out, const char *text, size_t n) {
  str_addc(out, '"');
  for (size_t i = 0; i < n; i++) {
    const char *known = text[i] ? strchr(short_from, text[i]) : NULL;
    if (known) str_addf(out, "\\%c", short_to[known - short_from]);
    else if ((unsigned char)text[i] < 32) str_addf(out, "\\u%04x", (unsigned)text[i]);
    else str_addc(out, text[i]);
  }
  str_addc(out, '"');
}

// One character of a set, in its written form.
static gx *written(void *ctx, grammar_source *g, const charset *set) {
  (void)ctx;
  VEC(gx *) list = {0};
  charset plain = {0};
  for (size_t i = 0; i < set->n; i++) {
    static const struct gx_range whole[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    for (size_t k = 0; k < COUNT(whole); k++) {
      uint32_t lo = set->at[i].lo > whole[k].lo ? set->at[i].lo : whole[k].lo,
               hi = set->at[i].hi < whole[k].hi ? set->at[i].hi : whole[k].hi;
      if (lo <= hi) charset_add(&plain, lo, hi);
    }
  }
  if (plain.n) vec_push(&list, gx_class(g, &plain));
  for (uint32_t cp = 0; cp <= '\\'; cp++) {
    const char *known = cp ? strchr(short_from, (int)cp) : NULL;
    char text[8];
    if ((cp >= 32 && !known) || !charset_has(set, cp)) continue;
    if (known) snprintf(text, sizeof text, "\\%c", short_to[known - short_from]);
    else snprintf(text, sizeof text, "\\u%04x", (unsigned)cp);
    vec_push(&list, gx_text(g, text));
  }
  gx *x = gx_alt(g, list.at, list.n);
  vec_free(&list);
  charset_free(&plain);
  return x;
}

static gx *written_any(schema *s) {
  charset all = {0};
  charset_negate(&all);
  gx *x = written(NULL, &s->src, &all);
  charset_free(&all);
  return x;
}

gx *schema_letters(schema *s) { return gx_repeat(&s->src, written_any(s), 0, GRAMMAR_INF); }

static gx *one_of(grammar_source *g, const char *ranges) {   // "09af": pairs of first and last
  charset set = {0};
  for (; *ranges; ranges += 2) charset_add(&set, (unsigned char)ranges[0], (unsigned char)ranges[1]);
  charset_normalise(&set);
  gx *x = gx_class(g, &set);
  charset_free(&set);
  return x;
}

// A character of a string with all its escapes. Surrogates as \u only in pairs.
static gx *letter(schema *s) {
  grammar_source *g = &s->src;
  if (s->letter) return s->letter;
  charset plain = {0};
  charset_add(&plain, 0, 0x1F);
  charset_add(&plain, '"', '"');
  charset_add(&plain, '\\', '\\');
  charset_negate(&plain);
  gx *hex = one_of(g, "09afAF"), *d = one_of(g, "ddDD"), *not_d = one_of(g, "09acefACEF");
  gx *single = GX_ALT_OF(g, GX_SEQ_OF(g, not_d, hex, hex, hex), GX_SEQ_OF(g, d, one_of(g, "07"), hex, hex));
  gx *pair = GX_SEQ_OF(g, d, one_of(g, "89abAB"), hex, hex, gx_text(g, "\\u"), d, one_of(g, "cfCF"), hex, hex);
  gx *escape = GX_SEQ_OF(
    g, gx_text(g, "\\"),
    GX_ALT_OF(g, one_of(g, "\"\"\\\\//bbffnnrrtt"), GX_SEQ_OF(g, gx_text(g, "u"), GX_ALT_OF(g, single, pair))));
  s->letter = GX_ALT_OF(g, gx_class(g, &plain), escape);
  charset_free(&plain);
  return s->letter;
}

// ---- strings --------------------------------------------------------------------------------------------------------

// Returns whether a text matches both this pattern and a format's regular expression. Each pair is decided once, by
// compiling a grammar.
static bool format_fits(schema *s, const char *pattern, size_t n, const char *regex) {
  enum { FAILED = SCHEMA_WORK_MAX / 64 };      // the assumed cost if it is unknown
  uint64_t hash = hash_bytes(pattern, n, 0);
  s->work += 1 + s->fits.n / 32;
  for (size_t i = 0; i < s->fits.n; i++) {
    const struct fit *f = &s->fits.at[i];
    if (f->hash == hash && f->regex == regex && f->n == n && !memcmp(f->pattern, pattern, n)) return f->fits;
  }
  grammar_source g;
  grammar *compiled = NULL;
  error why = {0};
  bool supported, fits = true;
  grammar_source_init(&g);
  int32_t root = grammar_rule_new(&g, "format", 6, 0);
  gx *x = regex_parse(&g, regex, strlen(regex), &(struct regex_rules){.supported = &supported}, &why),
     *y = regex_parse(&g, pattern, n, &(struct regex_rules){true, NULL, NULL, &supported}, &why);
  if (x && y) {
    g.rules.at[root].body = gx_and(&g, x, y);
    fits = !grammar_compile(&g, root, &compiled, &why);
    s->work += 16000 + (compiled ? grammar_work(compiled) / 4 : FAILED);
  }
  grammar_free(compiled);
  grammar_source_free(&g);
  vec_push(&s->fits, ((struct fit){pattern, regex, n, hash, fits}));
  return fits;
}

// Matches every text: a pattern that cannot be intersected with it cannot be intersected at all.
static const char any_text[] = "(.|\\n|\\r)*";

int schema_pattern(schema *s, const json_t *node, const char *keyword, const char *text, size_t n, gx **out) {
  error why = {0};
  bool supported = true;
  *out = NULL;
  if (schema_charge(s, node, 32 + n / 4)) return -1;
  *out = regex_parse(&s->src, text, n, &(struct regex_rules){true, written, NULL, &supported}, &why);
  s->has_patterns = true;
  if (*out && s->tries_patterns && !format_fits(s, text, n, any_text)) {
    *out = NULL;
    return schema_relax(s, node, keyword, "is not enforced: its automaton has too many states beside other conditions");
  }
  if (*out) return 0;
  return supported ? schema_fail(s, node, keyword, "%s", why.text)
                   : schema_relax(s, node, keyword, "is not enforced: %s", why.text);
}

static gx *both(schema *s, gx *a, gx *b) { return a ? gx_and(&s->src, a, b) : b; }

// The length limits of one schema.
static int lengths(schema *s, const json_t *node, uint32_t *min, uint32_t *max) {
  uint32_t n;
  int has = schema_count(s, node, "minLength", &n);
  if (has < 0) return -1;
  if (has && n > *min) *min = n;
  has = schema_count(s, node, "maxLength", &n);
  if (has < 0) return -1;
  if (has && n < *max) *max = n;
  return 0;
}

static bool patterns_allow(schema *s, const nodes *set, const char *regex) {
  bool fits = true;
  for (size_t i = 0; i < set->n && fits; i++) {
    const json_t *pattern = json_object_get(set->at[i], "pattern");
    if (json_is_string(pattern)) fits = format_fits(s, json_string_value(pattern), json_string_length(pattern), regex);
  }
  return fits;
}

// Adds the constraints of a schema's formats. A format that contradicts a pattern is ignored: zod writes times without
// an offset and declares their format as "time".
static int formats(schema *s, const nodes *set, const json_t *node, gx **out) {
  const json_t *format = json_object_get(node, "format");
  if (format && !json_is_string(format)) return schema_fail(s, node, "format", "expected a text");
  const char *const names[] = {json_string_value(format), schema_content_format(node)};
  for (size_t k = 0; k < COUNT(names); k++) {
    unsigned types;
    bool supported;
    error why = {0};
    const char *regex = names[k] ? schema_format(names[k], &types) : "";
    if (!regex) schema_note(s, node, "format", "the format '%.60s' is not known", names[k]);
    if (!regex || !*regex || !(types & T_STRING)) continue;
    if (schema_charge(s, node, 16)) return -1;
    if (!patterns_allow(s, set, regex)) {
      schema_note(s, node, "format", "the pattern allows no '%.60s', so that the format is not enforced", names[k]);
      continue;
    }
    gx *x = regex_parse(&s->src, regex, strlen(regex), &(struct regex_rules){false, written, NULL, &supported}, &why);
    if (!x) die("format %s: %s", names[k], why.text);
    *out = both(s, *out, x);
  }
  return 0;
}

// The length limits, and the other constraints as an expression (NULL: none).
static int demands(schema *s, const nodes *set, uint32_t *min, uint32_t *max, gx **out) {
  *min = 0;
  *max = GRAMMAR_INF;
  *out = NULL;
  for (size_t i = 0; i < set->n; i++) {
    json_t *node = set->at[i], *pattern = json_object_get(node, "pattern");
    gx *x = NULL;
    if (lengths(s, node, min, max)) return -1;
    if (pattern && !json_is_string(pattern)) return schema_fail(s, node, "pattern", "expected a text");
    if (pattern &&
        schema_pattern(s, node, "pattern", json_string_value(pattern), json_string_length(pattern), &x))
      return -1;
    if (x) *out = both(s, *out, x);
    if (formats(s, set, node, out)) return -1;
  }
  unsigned types = T_ALL;
  if (schema_has_atoms(set, &types)) {
    gx *x = *out ? *out : schema_letters(s);
    if (schema_minus(s, set, T_STRING, &x)) return -1;
    if (*out || x->kind == GX_MINUS) *out = x;
  }
  if (*min > *max)
    *out = schema_empty(s, set->at[0], NULL, "no string is long enough and short enough (minLength, maxLength)");
  return 0;
}

int schema_content(schema *s, const nodes *set, gx **out, uint32_t *min, uint32_t *max) {
  return demands(s, set, min, max, out);
}

gx *schema_of_length(schema *s, gx *content, uint32_t min, uint32_t max) {
  return min > max ? content : gx_count(&s->src, content, written_any(s), min, max);
}

gx *schema_string(schema *s, const nodes *set) {
  uint32_t min, max;
  gx *x;
  if (demands(s, set, &min, &max, &x)) return NULL;
  if (x) {
    return GX_SEQ_OF(&s->src, s->quote, schema_of_length(s, x, min, max), s->quote);
  }
  if (min || max != GRAMMAR_INF) {     // a rule of its own: all strings share its inside
    return GX_SEQ_OF(&s->src, s->quote, gx_repeat(&s->src, letter(s), min, max), s->quote);
  }
  if (s->string < 0) {
    s->string = grammar_rule_new(&s->src, "string", 6, 0);
    if (s->string < 0) {
      schema_fail(s, s->root, NULL, "the schema needs more than %u rules", GRAMMAR_RULES_MAX);
      return NULL;
    }
    s->src.rules.at[s->string].body =
      GX_SEQ_OF(&s->src, s->quote, gx_repeat(&s->src, letter(s), 0, GRAMMAR_INF), s->quote);
  }
  return gx_rule(&s->src, s->string);
}

// Compiles a pattern once for all texts that it is matched against: values of enum, names of members. NULL: it is
// invalid or too large.
static const grammar *pattern_grammar(schema *s, const char *pattern, size_t n, bool search, bool *supported,
                                      error *why) {
  enum { KEPT = 64, COST = 16000 };           // COST: about a millisecond; the work that compiling reports is added
  uint64_t hash = hash_bytes(pattern, n, 0);
  for (size_t i = 0; i < s->compiled.n; i++) {
    const struct compiled *c = &s->compiled.at[i];
    if (c->hash == hash && c->search == search && c->n == n && !memcmp(c->pattern, pattern, n)) return c->g;
  }
  grammar_source g;
  struct compiled new = {NULL, n, hash, search, NULL};
  s->work += COST + n;
  grammar_source_init(&g);
  int32_t root = grammar_rule_new(&g, "pattern", 7, 0);
  gx *x = regex_parse(&g, pattern, n, &(struct regex_rules){search, NULL, NULL, supported}, why);
  if (x) {
    g.rules.at[root].body = x;
    if (grammar_compile(&g, root, &new.g, why)) new.g = NULL;
  }
  grammar_source_free(&g);
  if (!new.g) return NULL;
  s->work += grammar_work(new.g) / 4;
  if (s->compiled.n == KEPT) schema_patterns_free(s);
  new.pattern = memcpy(xmalloc(n + 1), pattern, n);
  vec_push(&s->compiled, new);
  return new.g;
}

void schema_patterns_free(schema *s) {
  matcher_free(s->matcher);
  s->matcher = NULL;
  for (size_t i = 0; i < s->compiled.n; i++) { free(s->compiled.at[i].pattern); grammar_free(s->compiled.at[i].g); }
  vec_free(&s->compiled);
}

void schema_fits_free(schema *s) { vec_free(&s->fits); }

// Begins a text. The texts of one pattern share a matcher, and so the states that it has computed.
static int matcher_from_start(schema *s, const grammar *g, error *why) {
  enum { OLD = 1 << 20 };                     // places examined, after which it holds some 10 MB
  if (s->matcher && s->matches == g && matcher_work(s->matcher) < OLD) { matcher_reset(s->matcher); return 0; }
  matcher_free(s->matcher);
  s->matcher = NULL;
  s->matches = g;
  return matcher_new(g, NULL, &s->matcher, why);
}

// Matches a text in pieces, so that what a piece costs is charged before the next one. -1: an error.
static int match_pieces(schema *s, const json_t *node, matcher *m, const char *text, size_t n, error *why) {
  enum { PIECE = 64, PLACES = 2 };            // PLACES: a step takes about as long as these
  bool ok = true;
  uint64_t charged = matcher_work(m) / PLACES;
  for (size_t at = 0; at < n && ok; at += PIECE) {
    int status = matcher_bytes(m, text + at, n - at < PIECE ? n - at : PIECE, &ok, why);
    uint64_t work = matcher_work(m) / PLACES;
    if (status || schema_charge(s, node, work - charged)) return -1;
    charged = work;
  }
  return ok && matcher_complete(m);
}

// Returns whether a text matches, by a grammar of the pattern over the written text.
static int matches(schema *s, const json_t *node, const char *keyword, const char *pattern, size_t n_pattern,
                   bool search, const char *text, size_t n) {
  error why = {0};
  int result = -1;
  bool supported = true;
  if (schema_charge(s, node, 64 + n + n_pattern / 64)) return -1;
  const grammar *g = pattern_grammar(s, pattern, n_pattern, search, &supported, &why);
  if (g && !matcher_from_start(s, g, &why)) result = match_pieces(s, node, s->matcher, text, n, &why);
  if (!supported) return schema_relax(s, node, keyword, "is not enforced: %s", why.text) ? -1 : 1;
  return result < 0 ? schema_fail(s, node, keyword, "%s", why.text) : result;
}

int schema_pattern_matches(schema *s, const json_t *node, const char *keyword, const char *pattern, size_t n_pattern,
                           const char *text, size_t n) {
  if (!strcmp(keyword, "format")) {
    unsigned types;
    const char *regex = schema_format(pattern, &types);
    if (!regex) schema_note(s, node, "format", "the format '%.60s' is not known", pattern);
    return regex && *regex && types & T_STRING ? matches(s, node, keyword, regex, strlen(regex), false, text, n) : 1;
  }
  return matches(s, node, keyword, pattern, n_pattern, true, text, n);
}
