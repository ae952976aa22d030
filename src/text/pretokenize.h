// pretokenize: cuts text into words before BPE merges inside each of them, with the patterns that the model was trained
// with.
//
// patterns.c has one row for each value of tokenizer.ggml.pre: a list of patterns, applied one after the other. A
// pattern cuts each piece that the earlier ones left into its matches and the text between them, and sees nothing
// outside of that piece. To add a model's pattern, add a row.
//
// Patterns run in PCRE2's interpreter, not in its JIT compiler, which keeps pages that are writable and executable at
// once; Weft avoids those everywhere, and 10 MB of text take a third of a second without it. Steps are limited in
// proportion to the text, so that no text can make a pattern backtrack forever. A pattern must not look far ahead from
// many places, which takes quadratic time, nor repeat a group without bound unless possessively, which takes memory for
// each repetition. Patterns that cannot be expressed this way (digits in threes from the right), or match so often that
// calling PCRE2 would dominate (single digits), begin with '@' and are written in C.
//
// Invariant: the words of a text, in order, are the text; none is empty. Look next: bpe.h.
#ifndef WEFT_PRETOKENIZE_H
#define WEFT_PRETOKENIZE_H
#include "base/arena.h"
#include "base/base.h"

enum pretokenizer_flag {
  PRE_WHOLE = 1,                // a word that is a token is taken whole, without merging
  PRE_BOS = 2,                  // BOS goes first unless the file says otherwise
  PRE_BOS_ALWAYS = 4,           // even if the file says no: files of this model are wrong
  PRE_NFC = 8,                  // the text is brought into normal form C first
  PRE_CHARS = 16,               // merging begins with characters, not bytes
  PRE_BARS = 32,                // tokens have "▁" for a space
  PRE_LINES = 64,               // a word of newlines that is a token is taken whole
  PRE_NO_SPACES = 128,          // white space is dropped
};
typedef struct pretokenizer_row {
  const char *name;
  const char *const *patterns;  // PCRE2, or one of the names in pretokenize.c, ended by NULL
  unsigned flags;
} pretokenizer_row;

const pretokenizer_row *pretokenizer_find(const char *name, size_t n);   // NULL: unknown
const pretokenizer_row *pretokenizer_at(size_t i);                       // row i of the table; NULL past its end

typedef struct pretokenizer pretokenizer;
int pretokenizer_new(const pretokenizer_row *row, pretokenizer **out, error *err);   // compiles the patterns
void pretokenizer_free(pretokenizer *p);                                 // NULL is fine

// Calls word for each word of the text. Bytes that are not UTF-8 count as symbols. Stops with -1 when word returns
// nonzero, or when a pattern gives up (error set). Any number of threads may split with one pretokenizer.
//
// A text can come in pieces. open: it may continue after its n bytes; then only words that no continuation changes are
// returned, and *settled is the end of the last one, where the next call begins.
//
// Why these words cannot change: PCRE2 reports whether a match had to look at the end of the text (partial matching),
// and the last pattern only cuts inside pieces that the earlier ones have cut off or that certainly do not end earlier.
// Beginning again at the end of a word gives the same result as continuing there, because a search that has found
// nothing up to some place finds the same from there. A look-behind does not see the text before, so a pattern may only
// use one to save steps: if it can become true at the beginning of a word, the rest of the pattern must not match
// there.
typedef int pretokenizer_word(void *ctx, const char *word, size_t n);
int pretokenizer_split(const pretokenizer *p, const char *text, size_t n, bool open, size_t *settled,
                       pretokenizer_word *word, void *ctx, error *err);
#endif
