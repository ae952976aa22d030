// Strings: lengths, patterns, formats.
//
// A string of which nothing is demanded but its length may be written with any escapes.  Where its text matters (a
// pattern, a format, the name of a member), a character stands for itself, and only those that have to be escaped are,
// in the shortest way: so a pattern's automaton runs over what is written.
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

// One character of a set, as it is written.
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

static gx *one_of(grammar_source *g, const char *ranges) {   // "09af": pairs
  charset set = {0};
  for (; *ranges; ranges += 2) charset_add(&set, (unsigned char)ranges[0], (unsigned char)ranges[1]);
  charset_normalise(&set);
  gx *x = gx_class(g, &set);
  charset_free(&set);
  return x;
}

// A character of a string with any of its escapes.  \u of a surrogate only in pairs.
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

// ---- formats --------------------------------------------------------------------------------------------------------

#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26]|0[48])00)"
#define DATE "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
  "02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP "-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9a-fA-F]{1,4}"
#define IPV6 "(?:(?:" H16 ":){7}" H16 "|(?:" H16 ":){1,7}:|(?:" H16 ":){1,6}:" H16 "|(?:" H16 ":){1,5}(?::" H16 \
  "){1,2}|(?:" H16 ":){1,4}(?::" H16 "){1,3}|(?:" \
  H16 ":){1,3}(?::" H16 "){1,4}|(?:" H16 ":){1,2}(?::" H16 "){1,5}|" H16 ":(?::" H16 "){1,6}|:(?::" H16 "){1,7}|::)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,3}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define TAIL "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define URI "[A-Za-z][A-Za-z0-9+.-]{0,15}:(?://(?:[A-Za-z0-9._~-]+@)?" HOST "(?::\\d{1,4})?(?:/" PCHAR "*)*|(?:/(?:" \
  PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR "+(?:/" PCHAR "*)*))" TAIL
#define ATEXT "[A-Za-z0-9_+-]+"

static const struct { const char *name; unsigned types; const char *regex;
} formats[] = {
  {"date", T_STRING, DATE},
  {"time", T_STRING, TIME},
  {"date-time", T_STRING, DATE "T" TIME},
  {"duration", T_STRING,
   "P(?:\\d{1,4}W|\\d{1,4}Y(?:\\d{1,2}M(?:\\d{1,3}D)?)?(?:T"
   "(?:\\d{1,3}H(?:\\d{1,3}M(?:\\d{1,3}S)?)?|\\d{1,3}M(?:\\d{1,3}S)?|\\d{1,3}S))?"
   "|\\d{1,2}M(?:\\d{1,3}D)?(?:T(?:\\d{1,3}H(?:\\d{1,3}M(?:\\d{1,3}S)?)?|\\d{1,3}M(?:\\d{1,3}S)?|\\d{1,3}S))?|\\d{1,3}"
   "D(?:T(?:\\d{1,3}H(?:\\d{1,3}M(?:\\d{1,3}S)?)?|\\d{1,3}M(?:\\d{1,3}S)?|\\d{1,3}S))?"
   "|T(?:\\d{1,3}H(?:\\d{1,3}M(?:\\d{1,3}S)?)?|\\d{1,3}M(?:\\d{1,3}S)?|\\d{1,3}S))"},
  {"uuid", T_STRING, "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
  {"email", T_STRING, ATEXT "(?:\\." ATEXT ")*@" LABEL "(?:\\." LABEL "){0,2}\\.[A-Za-z]{2,10}"},
  {"hostname", T_STRING, HOST},
  {"ipv4", T_STRING, IPV4},
  {"ipv6", T_STRING, IPV6},
  {"uri", T_STRING, URI},
  {"iri", T_STRING, URI},
  {"url", T_STRING, "https?://" HOST "(?::\\d{1,4})?(?:/" PCHAR "*)*" TAIL},
  {"uri-reference", T_STRING, "(?:" URI "|(?:/(?:" PCHAR "+(?:/" PCHAR "*)*)?)?" TAIL ")"},
  {"json-pointer", T_STRING, "(?:/(?:[^~/]|~[01])*)*"},
  {"relative-json-pointer", T_STRING, "(?:0|[1-9]\\d{0,5})(?:#|(?:/(?:[^~/]|~[01])*)*)"},
  {"float", 0, ""},
  {"double", 0, ""},
  {"password", 0, ""},
};

const char *schema_format(const char *name, unsigned *types) {
  for (size_t i = 0; i < COUNT(formats); i++) {
    if (strcmp(formats[i].name, name)) continue;
    *types = formats[i].types;
    return formats[i].regex;
  }
  double lo, hi;
  bool integer = schema_integer_format(name, &lo, &hi);
  *types = integer ? T_INTEGER : T_STRING;
  return integer ? "" : NULL;
}

// ---- strings --------------------------------------------------------------------------------------------------------

gx *schema_pattern(schema *s, const json_t *node, const char *keyword, const char *text, size_t n) {
  if (schema_charge(s, node, 32 + n / 4)) return NULL;
  error why = {0};
  gx *x = regex_parse(&s->src, text, n, true, written, NULL, &why);
  if (!x) schema_fail(s, node, keyword, "%s", why.text);
  return x;
}

static gx *both(schema *s, gx *a, gx *b) { return a ? gx_and(&s->src, a, b) : b; }

// The lengths that are demanded, and the rest as an expression (NULL: none).
static int demands(schema *s, const nodes *set, uint32_t *min, uint32_t *max, gx **out) {
  *min = 0;
  *max = GRAMMAR_INF;
  *out = NULL;
  for (size_t i = 0; i < set->n; i++) {
    json_t *node = set->at[i], *pattern = json_object_get(node, "pattern"), *format = json_object_get(node, "format");
    uint32_t n;
    int has = schema_count(s, node, "minLength", &n);
    if (has < 0) return -1;
    if (has && n > *min) *min = n;
    has = schema_count(s, node, "maxLength", &n);
    if (has < 0) return -1;
    if (has && n < *max) *max = n;
    if (pattern) {
      if (!json_is_string(pattern)) return schema_fail(s, node, "pattern", "expected a text");
      gx *x = schema_pattern(s, node, "pattern", json_string_value(pattern), json_string_length(pattern));
      if (!x) return -1;
      *out = both(s, *out, x);
    }
    if (format) {
      unsigned types;
      if (!json_is_string(format)) return schema_fail(s, node, "format", "expected a text");
      const char *regex = schema_format(json_string_value(format), &types);
      if (!regex)
        return schema_fail(s, node, "format", "the format '%.60s' is not supported", json_string_value(format));
      if (!(types & T_STRING)) continue;
      error why = {0};
      gx *x = regex_parse(&s->src, regex, strlen(regex), false, written, NULL, &why);
      if (!x) die("format %s: %s", json_string_value(format), why.text);
      *out = both(s, *out, x);
    }
  }
  if (*min > *max)
    *out = schema_empty(s, set->at[0], NULL, "no string is long enough and short enough (minLength, maxLength)");
  return 0;
}

int schema_content(schema *s, const nodes *set, gx **out) {
  uint32_t min, max;
  if (demands(s, set, &min, &max, out)) return -1;
  if (min > max) return 0;
  if (min || max != GRAMMAR_INF) *out = both(s, *out, gx_repeat(&s->src, written_any(s), min, max));
  return 0;
}

gx *schema_string(schema *s, const nodes *set) {
  uint32_t min, max;
  gx *x;
  if (demands(s, set, &min, &max, &x)) return NULL;
  if (x) {
    if (min > max) return x;
    if (min || max != GRAMMAR_INF) x = both(s, x, gx_repeat(&s->src, written_any(s), min, max));
    return GX_SEQ_OF(&s->src, s->quote, x, s->quote);
  }
  if (min || max != GRAMMAR_INF) {     // a rule of its own: all strings share what is inside of them
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

// Patterns are compiled once for all the texts that are held against them: values of enum, names of members.  NULL: it
// is wrong, or too large.
static const grammar *pattern_grammar(schema *s, const char *pattern, size_t n, bool search, error *why) {
  enum { KEPT = 64, COST = 16000 };           // COST: compiling one takes a millisecond or so, and what it says it took
  for (size_t i = 0; i < s->compiled.n; i++) {
    const struct compiled *c = &s->compiled.at[i];
    if (c->search == search && c->n == n && !memcmp(c->pattern, pattern, n)) return c->g;
  }
  grammar_source g;
  struct compiled new = {NULL, n, search, NULL};
  s->work += COST + n;
  grammar_source_init(&g);
  int32_t root = grammar_rule_new(&g, "pattern", 7, 0);
  gx *x = regex_parse(&g, pattern, n, search, NULL, NULL, why);
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
  for (size_t i = 0; i < s->compiled.n; i++) { free(s->compiled.at[i].pattern); grammar_free(s->compiled.at[i].g); }
  vec_free(&s->compiled);
}

// Whether a text matches, by the same means: a grammar of the pattern over the text as it would be written.
static int matches(schema *s, const json_t *node, const char *keyword, const char *pattern, size_t n_pattern,
                   bool search, const char *text, size_t n) {
  matcher *m = NULL;
  error why = {0};
  int result = -1;
  bool ok = false;
  if (schema_charge(s, node, 64 + n + n_pattern / 64)) return -1;
  const grammar *g = pattern_grammar(s, pattern, n_pattern, search, &why);
  if (g && !matcher_new(g, NULL, &m, &why) && !matcher_bytes(m, text, n, &ok, &why)) result = ok && matcher_complete(m);
  matcher_free(m);
  return result < 0 ? schema_fail(s, node, keyword, "%s", why.text) : result;
}

int schema_pattern_matches(schema *s, const json_t *node, const char *keyword, const char *pattern, size_t n_pattern,
                           const char *text, size_t n) {
  if (!strcmp(keyword, "format")) {
    unsigned types;
    const char *regex = schema_format(pattern, &types);
    if (!regex) return schema_fail(s, node, "format", "the format '%.60s' is not supported", pattern);
    return types & T_STRING ? matches(s, node, keyword, regex, strlen(regex), false, text, n) : 1;
  }
  return matches(s, node, keyword, pattern, n_pattern, true, text, n);
}
