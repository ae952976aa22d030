// wordpiece: the tokenizer of BERT and the embedding models that came from it.  A text is cleaned (control characters
// go, white space becomes spaces), optionally loses its accents and its capitals, and falls into words at spaces and
// around punctuation and Chinese characters.  A word is then taken apart from the left, each time by the longest token
// that fits; a word for which that fails, or of more than 100 characters, is the unknown token as a whole.
//
// Token texts: a token that begins a word has "▁" in front, one that continues a word has nothing ("##" in the
// original).
//
// Decoding gives the words back, in small letters and with one space before each: what was lost in cleaning stays lost.
// Invariant: nothing but NORMAL tokens and their like come from text.  Look next: trie.h, unicode.h.
#ifndef WEFT_WORDPIECE_H
#define WEFT_WORDPIECE_H
#include "text/trie.h"
#include "text/vocab.h"

#define WORDPIECE_CHARACTERS_MAX 100

typedef struct wordpiece {
  const vocab *v;
  trie tokens;
  uint32_t begins;              // the node after "▁", or 0
  int32_t unknown;              // or -1
  bool lowercase, strip_accents;
} wordpiece;

int wordpiece_init(wordpiece *w, const vocab *v, bool lowercase, bool strip_accents, arena *mem,
                   error *err);  // v must live as long as w
// Appends the tokens of a stretch of text.  -1 for a word that has no tokens, where the model has no unknown one.
// open: the text may go on; *settled bytes have been encoded.
int wordpiece_encode(const wordpiece *w, const char *text, size_t n, bool open, size_t *settled, trie_cost *cost,
                     token_list *out, error *err);
#endif
