// Splitting text into words: see pretokenize.h.  The patterns are in patterns.c.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize.h"
#include "text/unicode.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

// ---- Splitting ----

static bool is_newline(uint32_t cp) { return cp == '\r' || cp == '\n'; }

// Patterns written in C. Either runs of digits are cut in threes, counted from the right, or runs of some characters
// are matches, of at most `most` characters: \p{N}, \p{N}{1,3}, \p{N}+ and [\r\n] in a fraction of PCRE2's time on
// texts that consist only of these.
static const struct native {
  const char *name;
  bool (*digit)(uint32_t cp);
  size_t most;                  // 0: threes from the right
  bool isolated;                // a run begins a piece even if its first group is shorter than three
  bool whole;                   // only runs without a letter after them
} natives[] = {
  {"@threes", unicode_is_decimal, 0, false, false},
  {"@threes-of-numbers", unicode_is_number, 0, true, false},
  {"@threes-of-whole-numbers", unicode_is_decimal, 0, true, true},
  {"@number", unicode_is_number, 1, false, false},
  {"@three-numbers", unicode_is_number, 3, false, false},
  {"@numbers", unicode_is_number, SIZE_MAX, false, false},
  {"@newline", is_newline, 1, false, false},
};

#define PATTERNS_MAX 8
struct pretokenizer {
  const pretokenizer_row *row;
  pcre2_code *code[PATTERNS_MAX];
  const struct native *native[PATTERNS_MAX];
  size_t numbers[PATTERNS_MAX];   // the number of digits of a match that begins with one; 0: PCRE2 decides
  size_t n;
};

// Alternatives are tried in order: if the first one takes numbers and a match begins with one, the others are not
// tried.
static size_t first_takes(const char *pattern) {
  static const struct {
    const char *first;
    size_t most;
  } heads[] = {{"\\p{N}|", 1}, {"\\p{N}{1,3}|", 3}, {"\\p{N}+|", SIZE_MAX}};
  for (size_t i = 0; i < COUNT(heads); i++)
    if (!strncmp(pattern, heads[i].first, strlen(heads[i].first))) return heads[i].most;
  return 0;
}

static const struct native *native_find(const char *name) {
  for (size_t i = 0; i < COUNT(natives); i++)
    if (!strcmp(natives[i].name, name)) return &natives[i];
  die("no pattern is called %s", name);
}

int pretokenizer_new(const pretokenizer_row *row, pretokenizer **out, error *err) {
  pretokenizer *p = xcalloc(1, sizeof *p);
  p->row = row;
  for (; row->patterns[p->n]; p->n++) {
    die_if(p->n == PATTERNS_MAX, "pretokenizer %s has too many patterns", row->name);
    if (row->patterns[p->n][0] == '@') { p->native[p->n] = native_find(row->patterns[p->n]); continue; }
    p->numbers[p->n] = first_takes(row->patterns[p->n]);
    int code;
    size_t at;
    p->code[p->n] =
      pcre2_compile((PCRE2_SPTR)row->patterns[p->n], PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (p->code[p->n]) continue;
    char why[128] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
    pretokenizer_free(p);
    return error_set(err, "the pattern of pre-tokenizer '%s' does not compile with this PCRE2: %s (at %zu)", row->name,
                     why, at);
  }
  *out = p;
  return 0;
}

void pretokenizer_free(pretokenizer *p) {
  if (!p) return;
  for (size_t i = 0; i < p->n; i++) pcre2_code_free(p->code[i]);   // NULL is fine
  free(p);
}

// Short pieces that the patterns from a level on leave whole. The result depends only on the piece's bytes, and texts
// repeat pieces. (These are mostly numbers of three digits, which two more patterns would check in vain.)
struct whole { uint64_t bytes; size_t n, level; };
enum { WHOLES = 256 };

// One call of pretokenizer_split. `seen` is what the patterns see, `text` what the words are cut from.
struct split {
  const pretokenizer *p;
  const char *text, *seen;
  size_t settled;               // end of the last word
  size_t words;                 // so far
  struct whole whole[WHOLES];
  pcre2_match_data *match;
  pcre2_match_context *limits;
  pretokenizer_word *word;
  void *ctx;
  error *err;
};

static int cut(struct split *s, size_t level, size_t at, size_t end, bool open);
static int cut_by(struct split *s, size_t level, size_t at, size_t end, bool open);

static uint32_t point_at(const struct split *s, size_t at, size_t end, size_t *next) {
  int len = utf8_next(s->seen + at, end - at);            // valid: see substitute
  *next = at + (size_t)len;
  return utf8_code_point(s->seen + at, len);
}

// Bytes of the digits from `at` on, at most `most` digits.
static size_t numbers_at(const struct split *s, size_t at, size_t end, size_t most) {
  size_t stop = at;
  for (size_t next; most-- && stop < end && unicode_is_number(point_at(s, stop, end, &next)); stop = next) continue;
  return stop - at;
}

static int cut_threes(struct split *s, size_t level, size_t at, size_t end, bool open) {
  const struct native *how = s->p->native[level];
  size_t done = at, next;
  for (size_t i = at; i < end; i = next) {
    uint32_t cp = point_at(s, i, end, &next);
    if (!how->digit(cp)) continue;
    size_t count = 0, stop = i;
    for (size_t after; stop < end && (cp = point_at(s, stop, end, &after), how->digit(cp)); stop = after) count++;
    next = stop;
    if (stop == end && open) return cut(s, level + 1, done, i, true);
    if (how->whole && stop < end && unicode_is_word(cp)) continue;
    for (size_t k = i; k < stop; count--) {
      if (count % 3 == 0 || (how->isolated && k == i)) {
        if (cut(s, level + 1, done, k, false)) return -1;
        done = k;
      }
      point_at(s, k, end, &k);
    }
    if (!how->isolated) continue;
    if (cut(s, level + 1, done, stop, false)) return -1;
    done = stop;
  }
  return cut(s, level + 1, done, end, open);
}

static int cut_runs(struct split *s, size_t level, size_t at, size_t end, bool open) {
  const struct native *how = s->p->native[level];
  size_t done = at, next;
  for (size_t i = at; i < end; i = next) {
    if (!how->digit(point_at(s, i, end, &next))) continue;
    size_t count = 1;
    for (size_t after; next < end && count < how->most && how->digit(point_at(s, next, end, &after)); next = after)
      count++;
    if (next == end && open && count < how->most) return cut(s, level + 1, done, i, true);
    if (cut(s, level + 1, done, i, false) || cut(s, level + 1, i, next, false)) return -1;
    done = next;
  }
  return cut(s, level + 1, done, end, open);
}

static struct whole whole_at(const struct split *s, size_t level, size_t at, size_t end) {
  struct whole w = {0, end - at, level};
  memcpy(&w.bytes, s->seen + at, end - at);
  return w;
}

// Cuts [at, end) with pattern `level` and passes the pieces to the next one. open: the piece may continue after `end`.
static int cut(struct split *s, size_t level, size_t at, size_t end, bool open) {
  if (at == end) return 0;
  bool single = end - at == 1 || utf8_next(s->seen + at, end - at) == (int)(end - at);   // cannot be cut further
  if (level == s->p->n || (single && level && !open)) {
    if (open) return 0;
    s->settled = end;
    s->words++;
    return s->word(s->ctx, s->text + at, end - at) ? -1 : 0;
  }
  if (!level || open || end - at > sizeof(uint64_t)) return cut_by(s, level, at, end, open);
  struct whole w = whole_at(s, level, at, end), *known = &s->whole[hash_u64(w.bytes, w.level) % WHOLES];
  if (known->bytes == w.bytes && known->n == w.n && known->level == w.level) return cut(s, s->p->n, at, end, false);
  size_t before = s->words;
  if (cut_by(s, level, at, end, false)) return -1;
  if (s->words == before + 1) *known = w;
  return 0;
}

static int cut_by(struct split *s, size_t level, size_t at, size_t end, bool open) {
  if (s->p->native[level]) return (s->p->native[level]->most ? cut_runs : cut_threes)(s, level, at, end, open);
  size_t done = at;
  while (done < end) {
    size_t stop = done + numbers_at(s, done, end, s->p->numbers[level]);
    if (stop > done) {
      if (open && stop == end && s->p->numbers[level] > 1) return 0;   // more digits may follow
      if (cut(s, level + 1, done, stop, false)) return -1;
      done = stop;
      continue;
    }
    int rc = pcre2_match(s->p->code[level], (PCRE2_SPTR)(s->seen + at), end - at, done - at,
                         PCRE2_NO_UTF_CHECK | (open ? PCRE2_PARTIAL_HARD : 0), s->match, s->limits);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    const size_t *span = pcre2_get_ovector_pointer(s->match);
    if (rc == PCRE2_ERROR_PARTIAL) return cut(s, level + 1, done, at + span[0], true);
    if (rc < 0) {
      char why[128] = "";
      pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
      return error_set(s->err, "pre-tokenizer '%s' gave up at byte %zu of the text: %s", s->p->row->name, done, why);
    }
    size_t begin = at + span[0];                        // match data is shared: deeper levels overwrite it
    stop = at + span[1];
    die_if(begin == stop || begin < done, "pre-tokenizer '%s', pattern %zu: bad match", s->p->row->name, level);
    if (cut(s, level + 1, done, begin, false) || cut(s, level + 1, begin, stop, false)) return -1;
    done = stop;
  }
  return cut(s, level + 1, done, end, open);
}

// The patterns need valid UTF-8. Each invalid byte is replaced by U+001A, SUBSTITUTE, which is neither letter nor
// number nor space; offsets stay the same. NULL if nothing has to change.
static char *substitute(const char *text, size_t n) {
  size_t i = utf8_valid_prefix(text, n);
  if (i == n) return NULL;
  char *copy = xmalloc(n);
  memcpy(copy, text, n);
  while (i < n) {
    copy[i++] = 0x1A;
    i += utf8_valid_prefix(text + i, n - i);
  }
  return copy;
}

int pretokenizer_split(const pretokenizer *p, const char *text, size_t n, bool open, size_t *settled,
                       pretokenizer_word *word, void *ctx, error *err) {
  char *copy = substitute(text, n);
  struct split s = {.p = p, .text = text, .seen = copy ? copy : text, .match = pcre2_match_data_create(1, NULL),
                    .limits = pcre2_match_context_create(NULL), .word = word, .ctx = ctx, .err = err};
  if (!s.match || !s.limits) {
    pcre2_match_data_free(s.match);
    pcre2_match_context_free(s.limits);
    free(copy);
    *settled = 0;
    return error_set(err, "there is no memory to cut the text into words");
  }
  // A few steps per character of a text are normal; this is far more.
  uint64_t steps = 1000000 + 64 * (uint64_t)n;
  pcre2_set_match_limit(s.limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
  pcre2_set_heap_limit(s.limits, 1u << 18);               // KiB
  int bad = cut(&s, 0, 0, open ? n - utf8_unfinished(text, n) : n, open);
  *settled = s.settled;
  pcre2_match_data_free(s.match);
  pcre2_match_context_free(s.limits);
  free(copy);
  return bad;
}
