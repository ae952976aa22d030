// charsmap: the normalisation that SentencePiece compiles into a model (tokenizer.ggml.precompiled_charsmap): pairs of
// a byte string and its replacement. At each place of a text the longest matching string is replaced.
//
// Format: a 32-bit length, that many bytes of a trie, then the replacements, each terminated by a NUL. The trie is a
// double array of 32-bit units, all little-endian. A unit holds the byte that leads to it (bits 0-7; bit 31 is set in
// units that are not nodes), whether a string ends here (bit 8), and the distance to its children (bits 10-30, times
// 256 if bit 9 is set). The child for byte b of the node at i is at i ^ distance ^ b; where a string ends, the unit at
// i ^ distance holds the offset of its replacement.
//
// A file can contain any values, so every step is checked against the bounds of the array, and one that leaves them is
// no match.
//
// Invariant: the bytes are borrowed and do not change. Look next: unigram.h.
#ifndef WEFT_CHARSMAP_H
#define WEFT_CHARSMAP_H
#include "text/text.h"

typedef struct charsmap { const unsigned char *units; uint32_t n_units; text_view replacements; } charsmap;

// {0} replaces nothing. 0, or -1 and a message if a length does not fit or a replacement is not terminated.
int charsmap_init(charsmap *c, text_view bytes, const char *source, error *err);
// Length of the longest string of the map at the beginning of text, and its replacement; or 0. *cut: the text ended
// before the search.
size_t charsmap_longest(const charsmap *c, const char *text, size_t n, text_view *replacement, bool *cut);
#endif
