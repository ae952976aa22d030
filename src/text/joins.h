// joins: which neighbouring symbols merging could ever join, so that a text can be cut into independent parts.
//
// Merging only makes tokens, and the text of a token that crosses a place contains the symbols on both sides of it next
// to each other. So if no token contains two symbols next to each other, nothing is ever merged across the place
// between them, and merges on one side change nothing on the other: neither the pairs there nor their order. Both sides
// can be encoded separately. In real vocabularies a space only occurs at the beginning of a token, so that these parts
// are words, and a whole text need not be one chain.
//
// The set is a hash table of bits: a false positive makes a part longer, which is harmless. Invariant: the symbols here
// are the same as in the chains that are merged: characters, and single bytes that do not belong to one. Look next:
// spm.h, bpe.h.
#ifndef WEFT_JOINS_H
#define WEFT_JOINS_H
#include "text/vocab.h"

typedef struct joins { uint64_t *bits; unsigned shift; } joins;

#define JOINS_BYTE 0x110000u    // the symbol of a byte that belongs to no character: this plus the byte

void joins_init(joins *j, const vocab *v, arena *mem);

static inline uint64_t joins_slot(const joins *j, uint32_t left, uint32_t right) {
  return (((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15ull) >> j->shift;
}
static inline bool joins_may(const joins *j, uint32_t left, uint32_t right) {
  uint64_t slot = joins_slot(j, left, right);
  return j->bits[slot / 64] >> slot % 64 & 1;
}
// The symbol at the beginning of text, and its length.
static inline uint32_t joins_symbol(const char *text, size_t n, size_t *length) {
  int len = utf8_next(text, n);
  *length = len > 0 ? (size_t)len : 1;
  return len > 0 ? utf8_code_point(text, len) : JOINS_BYTE + (unsigned char)text[0];
}
#endif
