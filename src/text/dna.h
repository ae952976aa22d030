// dna: the regions "<dna>...</dna>" of a text of HybridDNA's tokenizer (Carbon): six bases are a token there. Elsewhere
// the text is byte-level BPE's.
//
// White space at both ends of a region is dropped, small letters become capitals, the last bases are filled up with A,
// and six characters that are not all of A, T, C, G become <oov>. A region without an end goes on to the end of the
// text; "</dna>" outside of a region is text. Characters count in the normal form that the rest of the text is in.
//
// The names of k-mers in a file end with U+E000, as a word of BPE may have the same letters; decoding drops it.
#ifndef WEFT_DNA_H
#define WEFT_DNA_H
#include "text/vocab.h"

#define DNA_OPEN "<dna>"
#define DNA_CLOSE "</dna>"

typedef struct dna { const vocab *v; int32_t open, close, oov; } dna;      // v NULL: no regions
enum dna_region { DNA_NONE, DNA_BEGUN, DNA_INSIDE };                        // where a text that comes in pieces stands

// Finds the three tokens; without one of them there are no regions. v must live as long as d.
void dna_init(dna *d, const vocab *v);
// Returns the place of `tag`, or n. open: the text may continue after n bytes; then a beginning of the tag at its end
// counts as well, with *found false.
size_t dna_find(const char *text, size_t n, const char *tag, bool open, bool *found);
// Appends the tokens of a region's text without its tags, and returns how many bytes are encoded. first: the region
// begins here. open: it may go on.
size_t dna_encode(const dna *d, text_view text, bool first, bool open, token_list *out);
// The text of a token without the mark of k-mers.
text_view dna_plain(text_view token);
#endif
