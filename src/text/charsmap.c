// SentencePiece's compiled normalisation: see charsmap.h.
#define _GNU_SOURCE
#include "text/charsmap.h"
#include <string.h>

#define KEY "tokenizer.ggml.precompiled_charsmap"

static uint32_t read_u32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int charsmap_init(charsmap *c, text_view bytes, const char *source, error *err) {
  *c = (charsmap){0};
  if (!bytes.n) return 0;
  if (bytes.n < 4) return error_set(err, "%s" KEY " has %zu bytes; its length alone takes 4", source, bytes.n);
  const unsigned char *at = (const unsigned char *)bytes.at;
  uint32_t n = read_u32(at);
  if (n % 4 || n > bytes.n - 4)
    return error_set(err, "%s" KEY " says that its trie has %u bytes, of %zu in all", source, n, bytes.n);
  text_view rest = {bytes.at + 4 + n, bytes.n - 4 - n};
  if (n && (!rest.n || rest.at[rest.n - 1]))
    return error_set(err, "%s" KEY ": its last replacement has no end", source);
  *c = (charsmap){at + 4, n / 4, rest};
  return 0;
}

static uint32_t offset_of_unit(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

size_t charsmap_longest(const charsmap *c, const char *text, size_t n, text_view *replacement, bool *cut) {
  size_t longest = 0;
  *cut = false;
  if (!c->n_units) return 0;
  uint32_t at = offset_of_unit(read_u32(c->units));
  for (size_t i = 0; i < n; i++) {
    unsigned char byte = (unsigned char)text[i];
    at ^= byte;
    if (!byte || at >= c->n_units) return longest;
    uint32_t unit = read_u32(c->units + 4 * (size_t)at);
    if ((unit & (1u << 31 | 0xFF)) != byte) return longest;
    at ^= offset_of_unit(unit);
    if (!(unit >> 8 & 1)) continue;
    if (at >= c->n_units) return longest;
    uint32_t offset = read_u32(c->units + 4 * (size_t)at) & 0x7FFFFFFF;
    if (offset >= c->replacements.n) return longest;
    const char *found = c->replacements.at + offset;
    // not strlen: another program may write the mapped file meanwhile
    *replacement = (text_view){found, strnlen(found, c->replacements.n - offset)};
    longest = i + 1;
  }
  *cut = true;
  return longest;
}
