// Builds grammars: expressions in an arena, and sets of code points. See grammar.h.
#include "grammar/grammar.h"
#include "text/unicode.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- sets of characters ---------------------------------------------------------------------------------------------

void charset_add(charset *s, uint32_t lo, uint32_t hi) { vec_push(s, ((struct gx_range){lo, hi})); }

void charset_add_all(charset *s, const charset *from) {
  for (size_t i = 0; i < from->n; i++) vec_push(s, from->at[i]);
}

void charset_free(charset *s) { vec_free(s); }

static int by_lo(const void *pa, const void *pb) {
  const struct gx_range *a = pa, *b = pb;
  return (a->lo > b->lo) - (a->lo < b->lo);
}

static void sort(charset *s) {
  if (s->n) qsort(s->at, s->n, sizeof *s->at, by_lo);
  size_t n = 0;
  for (size_t i = 0; i < s->n; i++) {
    struct gx_range r = s->at[i];
    if (r.hi > 0x10FFFF) r.hi = 0x10FFFF;
    if (r.lo > r.hi) continue;
    if (n && r.lo <= s->at[n - 1].hi + 1) {
      if (r.hi > s->at[n - 1].hi) s->at[n - 1].hi = r.hi;
    } else {
      s->at[n++] = r;
    }
  }
  s->n = n;
}

void charset_normalise(charset *s) {
  sort(s);
  charset kept = {0};
  for (size_t i = 0; i < s->n; i++) {   // surrogates are not characters
    struct gx_range r = s->at[i];
    if (r.lo < 0xD800 && r.hi > 0xDFFF) {
      charset_add(&kept, r.lo, 0xD7FF);
      r.lo = 0xE000;
    } else {
      if (r.lo >= 0xD800 && r.lo <= 0xDFFF) r.lo = 0xE000;
      if (r.hi >= 0xD800 && r.hi <= 0xDFFF) r.hi = 0xD7FF;
    }
    if (r.lo <= r.hi) vec_push(&kept, r);
  }
  charset_free(s);
  *s = kept;
}

void charset_negate(charset *s) {
  charset out = {0};
  uint32_t next = 0;
  charset_normalise(s);
  for (size_t i = 0; i < s->n; i++) {
    if (s->at[i].lo > next) charset_add(&out, next, s->at[i].lo - 1);
    next = s->at[i].hi + 1;
  }
  if (next <= 0x10FFFF) charset_add(&out, next, 0x10FFFF);
  charset_free(s);
  *s = out;
  charset_normalise(s);
}

// Capital letters and their small letters, only simple one-to-one pairs; each pair once in both directions.
struct other_case { uint32_t from, to; };
static struct { VEC(struct other_case) by_capital, by_small; } cases;
static pthread_once_t cases_once = PTHREAD_ONCE_INIT;

static int by_from(const void *pa, const void *pb) {
  const struct other_case *a = pa, *b = pb;
  return a->from != b->from ? (a->from > b->from) - (a->from < b->from) : (a->to > b->to) - (a->to < b->to);
}

static void load_cases(void) {
  for (uint32_t cp = 'A'; cp < 0x1E944; cp++) {   // the last capital letters of Unicode are below
    if (cp == 0x3400) cp = 0xA640;                // ideographs and Hangul have no case
    if (cp == 0xABC0) cp = 0xFF21;
    uint32_t lower[2];
    if (unicode_lower(cp, lower) != 1 || lower[0] == cp) continue;
    vec_push(&cases.by_capital, ((struct other_case){cp, lower[0]}));
    vec_push(&cases.by_small, ((struct other_case){lower[0], cp}));
  }
  qsort(cases.by_small.at, cases.by_small.n, sizeof *cases.by_small.at, by_from);
}

// Adds what the set lacks of the other cases of a range. Returns the number of letters.
static size_t add_cases(charset *out, const charset *set, struct gx_range r, const struct other_case *at, size_t n) {
  size_t from = 0, end = n, letters = 0;
  while (from < end) {
    size_t middle = (from + end) / 2;
    if (at[middle].from < r.lo) from = middle + 1;
    else end = middle;
  }
  for (; from < n && at[from].from <= r.hi; from++, letters++)
    if (!charset_has(set, at[from].to)) charset_add(out, at[from].to, at[from].to);
  return letters;
}

// Adds the other case of each letter.
size_t charset_fold(charset *s) {
  pthread_once(&cases_once, load_cases);
  charset_normalise(s);
  charset more = {0};
  size_t letters = 0;
  for (size_t i = 0; i < s->n; i++) {
    letters += add_cases(&more, s, s->at[i], cases.by_capital.at, cases.by_capital.n);
    letters += add_cases(&more, s, s->at[i], cases.by_small.at, cases.by_small.n);
  }
  charset_add_all(s, &more);
  charset_free(&more);
  charset_normalise(s);
  return letters;
}

bool charset_has(const charset *s, uint32_t cp) {
  size_t from = 0, end = s->n;
  while (from < end) {
    size_t middle = (from + end) / 2;
    if (s->at[middle].hi < cp) from = middle + 1;
    else end = middle;
  }
  return from < s->n && s->at[from].lo <= cp;
}

// ---- expressions ----------------------------------------------------------------------------------------------------

void grammar_source_init(grammar_source *s) { *s = (grammar_source){.mem = arena_new()}; }

void grammar_source_free(grammar_source *s) {
  vec_free(&s->rules);
  arena_free(s->mem);
  *s = (grammar_source){0};
}

int32_t grammar_rule_new(grammar_source *s, const char *name, size_t n, uint32_t line) {
  if (s->rules.n >= GRAMMAR_RULES_MAX) return -1;
  vec_push(&s->rules, ((struct grammar_rule){arena_strndup(s->mem, name, n), line, NULL}));
  return (int32_t)(s->rules.n - 1);
}

// Counts every expression and each of its parts, so the limit also bounds memory. Beyond the limit all expressions are
// one shared node.
static gx *new_gx(grammar_source *s, enum gx_kind kind, size_t parts) {
  if (parts >= GRAMMAR_NODES_MAX - s->nodes) s->too_large = true;
  if (s->too_large) {
    s->spare = (gx){.kind = GX_EMPTY};
    return &s->spare;
  }
  s->nodes += (uint32_t)parts + 1;
  gx *x = ARENA_NEW(s->mem, gx);
  x->kind = (uint8_t)kind;
  x->n = (uint32_t)parts;
  return x;
}

gx *gx_empty(grammar_source *s) { return new_gx(s, GX_EMPTY, 0); }
gx *gx_never(grammar_source *s) { return new_gx(s, GX_CLASS, 0); }

gx *gx_bytes(grammar_source *s, const char *text, size_t n) {
  if (!n) return gx_empty(s);
  gx *x = new_gx(s, GX_BYTES, n);
  if (!s->too_large) x->text = arena_strndup(s->mem, text, n);
  return x;
}
gx *gx_text(grammar_source *s, const char *text) { return gx_bytes(s, text, strlen(text)); }

gx *gx_class(grammar_source *s, const charset *set) {
  gx *x = new_gx(s, GX_CLASS, set->n);
  if (!s->too_large && set->n)
    x->ranges = memcpy(ARENA_ARRAY(s->mem, struct gx_range, set->n), set->at, set->n * sizeof *set->at);
  return x;
}

gx *gx_range(grammar_source *s, uint32_t lo, uint32_t hi) {
  struct gx_range r = {lo, hi};
  return gx_class(s, &(charset){&r, 1, 1});
}

static gx *new_list(grammar_source *s, enum gx_kind kind, gx *const *sub, size_t n) {
  if (n == 1) return sub[0];
  if (!n) return kind == GX_SEQ ? gx_empty(s) : gx_never(s);
  gx *x = new_gx(s, kind, n);
  if (!s->too_large) x->sub = memcpy(ARENA_ARRAY(s->mem, gx *, n), sub, n * sizeof *sub);
  return x;
}
gx *gx_seq(grammar_source *s, gx *const *sub, size_t n) { return new_list(s, GX_SEQ, sub, n); }
gx *gx_alt(grammar_source *s, gx *const *sub, size_t n) { return new_list(s, GX_ALT, sub, n); }

static gx *with(grammar_source *s, enum gx_kind kind, gx *a, gx *b) {
  gx *sub[2] = {a, b}, *x = new_gx(s, kind, b ? 2 : 1);
  if (!s->too_large) x->sub = memcpy(ARENA_ARRAY(s->mem, gx *, 2), sub, sizeof sub);
  return x;
}

gx *gx_repeat(grammar_source *s, gx *of, uint32_t min, uint32_t max) {
  if (!max) return gx_empty(s);
  if (min == 1 && max == 1) return of;
  gx *x = with(s, GX_REPEAT, of, NULL);
  x->min = min;
  x->max = max;
  return x;
}

gx *gx_rule(grammar_source *s, int32_t rule) {
  gx *x = new_gx(s, GX_RULE, 0);
  x->id = rule;
  return x;
}

gx *gx_token(grammar_source *s, int32_t id, bool negated) {
  gx *x = new_gx(s, GX_TOKEN, 0);
  x->id = id;
  x->negated = negated;
  return x;
}

gx *gx_and(grammar_source *s, gx *a, gx *b) { return with(s, GX_AND, a, b); }
gx *gx_minus(grammar_source *s, gx *a, gx *b) { return with(s, GX_MINUS, a, b); }

gx *gx_count(grammar_source *s, gx *x, gx *letter, uint32_t min, uint32_t max) {
  if (!min && max == GRAMMAR_INF) return x;
  gx *out = with(s, GX_COUNT, x, letter);
  out->min = min;
  out->max = max;
  return out;
}

gx *gx_multiple(grammar_source *s, uint32_t of, uint32_t digits) {
  gx *x = new_gx(s, GX_MULTIPLE, 0);
  x->min = of;
  x->max = digits;
  return x;
}

// sub: the items (id is their number), the separator, and the rest if there is one.
gx *gx_list(grammar_source *s, gx *const *items, const bool *required, size_t n, gx *sep, gx *rest, uint32_t min,
            uint32_t max) {
  gx *x = new_gx(s, GX_LIST, n + 1 + (rest != NULL));
  if (s->too_large) return x;
  bool *needed = ARENA_ARRAY(s->mem, bool, n + 1);
  x->sub = ARENA_ARRAY(s->mem, gx *, x->n);
  for (size_t i = 0; i < n; i++) { x->sub[i] = items[i]; needed[i] = required[i]; }
  x->sub[n] = sep;
  if (rest) x->sub[n + 1] = rest;
  x->required = needed;
  x->id = (int32_t)n;
  x->min = min;
  x->max = max;
  return x;
}
