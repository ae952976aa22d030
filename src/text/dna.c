// Regions of DNA in a text: see dna.h.
#include "text/dna.h"
#include <string.h>
#include "text/unicode.h"
#include "text/utf8.h"

#define MARK "\xEE\x80\x80"     // U+E000
enum { BASES = 6, MARK_BYTES = sizeof MARK - 1 };

// Such a token must come from text: control tokens do not.
static int32_t find_from_text(const vocab *v, const char *name) {
  int32_t id = vocab_find(v, name, strlen(name));
  return id >= 0 && vocab_merges_to(v, id) ? id : -1;
}

void dna_init(dna *d, const vocab *v) {
  *d = (dna){v, find_from_text(v, DNA_OPEN), find_from_text(v, DNA_CLOSE), find_from_text(v, "<oov>")};
  if (d->open < 0 || d->close < 0 || d->oov < 0) d->v = NULL;
}

size_t dna_find(const char *text, size_t n, const char *tag, bool open, bool *found) {
  size_t m = strlen(tag);
  for (size_t at = 0; at < n; at++) {
    const char *next = memchr(text + at, tag[0], n - at);
    if (!next) break;
    at = (size_t)(next - text);
    size_t left = n - at < m ? n - at : m;
    if (memcmp(next, tag, left) || (left < m && !open)) continue;
    *found = left == m;
    return at;
  }
  *found = false;
  return n;
}

static size_t character_at(text_view text, size_t at, uint32_t *cp) {
  int len = utf8_next(text.at + at, text.n - at);
  *cp = len > 0 ? utf8_code_point(text.at + at, len) : 0xFFFD;
  return len > 0 ? (size_t)len : 1;
}

static bool is_dropped(uint32_t cp) { return unicode_is_space(cp) || (cp >= 0x1C && cp <= 0x1F); }

// The end of the text without white space.
static size_t trimmed(text_view text) {
  size_t end = 0;
  uint32_t cp;
  for (size_t at = 0; at < text.n;) {
    at += character_at(text, at, &cp);
    if (!is_dropped(cp)) end = at;
  }
  return end;
}

static int32_t kmer(const dna *d, const char bases[BASES + MARK_BYTES]) {
  for (int i = 0; i < BASES; i++) if (!bases[i]) return d->oov;
  int32_t id = vocab_find(d->v, bases, BASES + MARK_BYTES);
  return id >= 0 && vocab_merges_to(d->v, id) ? id : d->oov;
}

// The base that a character names, or 0.
static char named_base(uint32_t cp) {
  char c = cp < 0x80 ? (char)(cp >= 'a' && cp <= 'z' ? cp - 32 : cp) : 0;
  return c == 'A' || c == 'T' || c == 'C' || c == 'G' ? c : 0;
}

size_t dna_encode(const dna *d, text_view text, bool first, bool open, token_list *out) {
  size_t at = 0, next;
  uint32_t cp;
  text_view rest = {text.at, trimmed(text)};
  while (first && at < rest.n && (next = at + character_at(rest, at, &cp), is_dropped(cp))) at = next;
  while (at < rest.n) {
    char bases[BASES + MARK_BYTES];
    int n = 0;
    for (next = at; n < BASES && next < rest.n; n++) {
      next += character_at(rest, next, &cp);
      bases[n] = named_base(cp);
    }
    if (n < BASES && open) break;
    while (n < BASES) bases[n++] = 'A';
    memcpy(bases + BASES, MARK, MARK_BYTES);
    vec_push(out, kmer(d, bases));
    at = next;
    first = false;
  }
  return open ? first ? 0 : at : text.n;
}

text_view dna_plain(text_view token) {
  bool marked = token.n > MARK_BYTES && !memcmp(token.at + token.n - MARK_BYTES, MARK, MARK_BYTES);
  return (text_view){token.at, token.n - (marked ? MARK_BYTES : 0)};
}
