// bpe: byte-level BPE, as introduced with GPT-2. The symbols of a word are its bytes; the list of merges says which
// neighbours are joined, the first in the list first. Token texts are stored with one printable character per byte (a
// space is "Ġ"), so that a vocabulary is a text file; bpe_byte_char is that mapping.
//
// Here merges work on token ids: a merge is (left id, right id) -> (rank, id of the joined text).
//  - Merges that name an absent token, on either side or as the result, are ignored, as are those of tokens that text
//    must not become (vocab_merges_to) and all but the first of several for the same pair. Joined texts only grow, so
//    no list of merges can loop.
//  - A vocabulary can lack bytes that its training never saw (Falcon's: some control characters). They are left out, as
//    in the library that such models were trained with and in llama.cpp; if the file names an unknown token, it
//    replaces them.
//  - Some models take a word that is a token as it is, without merges (whole_words).
//  - Some models begin with characters instead of bytes, and their token texts are plain text (chars); a character that
//    is not a token becomes its BYTE tokens, "<0xE2>" and so on.
//
// Invariant: each output id decodes to the bytes that it was made from. Look next: merge.h, pretokenize.h.
#ifndef WEFT_BPE_H
#define WEFT_BPE_H
#include "text/joins.h"
#include "text/merge.h"
#include "text/vocab.h"
#include "text/word_cache.h"

typedef struct bpe {
  const vocab *v;
  bool whole_words, chars, cuts;    // cuts: a word of characters may be cut where no merge is possible (joins.h)
  joins joins;
  int32_t byte_id[256];         // the token of each single byte, or -1
  uint32_t n_ranks;             // merges in the file
  uint64_t seed, mask;          // of the hash of pairs
  struct bpe_pair *pair;
} bpe;

// Reads d's merges (280,000 of them take about 20 ms); mem owns everything. v must live as long as b.
void bpe_init(bpe *b, const vocab *v, const vocab_desc *d, bool whole_words, bool chars, arena *mem);
// Appends the tokens of one word. -1 if a character (when merging begins with those) has no token and the model has no
// unknown token.
int bpe_encode(const bpe *b, merger *m, word_cache *words, const char *word, size_t n, token_list *out, error *err);
int32_t bpe_whole(const bpe *b, const char *word, size_t n);   // the token of exactly this word, or -1

int bpe_byte_char(unsigned char byte, char out[4]);       // the character for a byte: its UTF-8 and length
// Appends a token's text as bytes; characters that do not represent a byte stay as they are
void bpe_decode(text_view text, str *out);
#endif
