// The filter wordwrap: breaks lines at a maximum number of characters, like Python's textwrap.
//
// A line of the text is split into chunks: white space, words, and parts of words that end at a hyphen between letters
// or at a dash. Lines are filled with chunks. White space at the beginning or end of a line is dropped, and a chunk
// longer than a line is split, after a hyphen if it has one.
#include "chat/jinja_text.h"
#include "text/utf8.h"
#include <utf8proc.h>

// c, n: the characters of a line of the text; point, byte: how much is written, in characters and in bytes.
struct wrap {
  jrun *r;
  const uint32_t *c;
  size_t n, width;
  bool cut, hyphens;
  jval between;
  str *out;
  const jstr *text;
  size_t point, byte;
};
struct chunk { size_t from, end; };
typedef struct chunks { struct chunk *at; size_t n, cap; } chunks;

static bool is_letter(uint32_t c) {
  return j_is_word(c) && utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_ND;
}
static bool before_dash(uint32_t c) { return j_is_word(c) || (c && c < 128 && strchr("!\"'&.,?", (int)c)); }
static bool letter_at(const struct wrap *w, size_t i) { return i < w->n && is_letter(w->c[i]); }
static bool hyphen_at(const struct wrap *w, size_t i) { return i < w->n && w->c[i] == '-'; }

// The length of a dash at i: two or more hyphens between words.
static size_t dash(const struct wrap *w, size_t i) {
  size_t end = i;
  if (!i || !before_dash(w->c[i - 1])) return 0;
  while (hyphen_at(w, end)) end++;
  return end - i >= 2 && end < w->n && j_is_word(w->c[end]) ? end - i : 0;
}

// Returns whether a word may be split after the hyphen at i: it needs two letters, or a letter, a hyphen and a letter,
// on both sides.
static bool parts_at(const struct wrap *w, size_t i) {
  if (!hyphen_at(w, i) || i < 2 || !letter_at(w, i - 1)) return false;
  if (!(letter_at(w, i - 2) || (i > 2 && hyphen_at(w, i - 2) && letter_at(w, i - 3)))) return false;
  return letter_at(w, i + 1) && (letter_at(w, i + 2) || (hyphen_at(w, i + 2) && letter_at(w, i + 3)));
}

static size_t chunk_end(const struct wrap *w, size_t i) {
  bool blank = is_ascii_space(w->c[i]);
  size_t end = i + 1;
  if (blank || !w->hyphens) {
    while (end < w->n && is_ascii_space(w->c[end]) == blank) end++;
    return end;
  }
  if (dash(w, i)) return i + dash(w, i);
  for (; end < w->n && !is_ascii_space(w->c[end]) && !dash(w, end); end++)
    if (parts_at(w, end)) return end + 1;
  return end;
}

static bool all_space(const struct wrap *w, struct chunk k) {
  while (k.from < k.end && j_is_space(w->c[k.from])) k.from++;
  return k.from == k.end;
}

// How many characters of a chunk longer than a line fit in `room`: up to the last hyphen within it, unless only hyphens
// come before that one.
static size_t head_of(const struct wrap *w, struct chunk k, size_t room) {
  size_t last = room, other = 0;
  if (!w->hyphens) return room;
  while (last && w->c[k.from + last - 1] != '-') last--;
  while (other < last && w->c[k.from + other] == '-') other++;
  return last && other + 1 < last ? last : room;
}

static void skip_to(struct wrap *w, size_t point) {
  for (; w->point < point; w->point++) w->byte += (size_t)utf8_next(w->text->at + w->byte, w->text->n - w->byte);
}

static void put_line(struct wrap *w, struct chunk line, bool first) {
  if (!first) j_add(w->r, w->out, w->between);
  skip_to(w, line.from);
  size_t from = w->byte;
  skip_to(w, line.end);
  j_add_part(w->r, w->out, w->text, from, w->byte);
  j_guard(w->r, w->out);
}

static void fill_lines(struct wrap *w, const chunks *all) {
  if (!all->n) return;                                // no text
  struct chunk *k = all->at, *end = all->at + all->n;
  for (bool first = true; k < end;) {
    if (!first && all_space(w, *k) && ++k == end) break;
    struct chunk line = {k->from, k->from}, last = line;
    size_t count = 0;
    for (; k < end && line.end - line.from + (k->end - k->from) <= w->width; k++, count++) last = *k, line.end = k->end;
    if (k < end && k->end - k->from > w->width && (w->cut || !count)) {
      size_t take = w->cut ? head_of(w, *k, w->width - (line.end - line.from)) : k->end - k->from;
      last = (struct chunk){k->from, k->from + take};
      line.end = k->from = last.end;
      count++;
      if (!w->cut) k++;
    }
    if (count && all_space(w, last)) { line.end = last.from; count--; }
    if (!count) continue;
    put_line(w, line, first);
    first = false;
  }
}

jval j_wordwrap(jrun *r, jval text, int64_t width, bool cut, bool hyphens, jval between) {
  jlist *lines = j_split_lines(r, text, false);
  struct wrap w = {.r = r,
                   .width = width > 0 ? (size_t)width : 0,
                   .cut = cut,
                   .hyphens = hyphens,
                   .between = between,
                   .out = j_scratch(r)};
  for (size_t i = 0; i < lines->n; i++) {
    jstr *s = lines->at[i].s;
    chunks all = {0};
    if (width <= 0) jinja_fail(r, "invalid width %lld (must be > 0)", (long long)width);
    uint32_t *c = jinja_array(r, j_chars(r, s), sizeof *c);
    jinja_charge(r, 8 * s->n);
    w.n = 0;
    for (size_t at = 0, len; at < s->n; at += len) {
      len = (size_t)utf8_next(s->at + at, s->n - at);
      c[w.n++] = utf8_code_point(s->at + at, (int)len);
    }
    w.c = c, w.text = s, w.point = w.byte = 0;
    for (size_t at = 0; at < w.n;) {
      struct chunk k = {at, chunk_end(&w, at)};
      jpush(r, &all, k);
      at = k.end;
    }
    if (i) j_add(r, w.out, between);
    fill_lines(&w, &all);
  }
  return j_scratch_end(r);
}
