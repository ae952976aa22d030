// wordpiece: the tokenizer of BERT and of embedding models derived from it. A text is cleaned (control characters are
// removed, white space becomes spaces), optionally loses its accents and capitals, and is split into words at spaces
// and around punctuation and Chinese characters. A word is then split from the left, each time by the longest token
// that fits; a word for which that fails, or of more than 100 characters, becomes the unknown token as a whole.
//
// Token texts: a token that begins a word has "▁" in front, one that continues a word has nothing ("##" in the
// original).
//
// Decoding returns the words in small letters with one space before each; information lost in cleaning stays lost.
// Invariant: only NORMAL tokens and similar ones come from text. Look next: trie.h, unicode.h.
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
// Appends the tokens of a stretch of text. -1 for a word without tokens, if the model has no unknown token. open: the
// text may continue; *settled bytes have been encoded.
int wordpiece_encode(const wordpiece *w, const char *text, size_t n, bool open, size_t *settled, trie_cost *cost,
                     token_list *out, error *err);
#endif
