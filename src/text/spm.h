// spm: SentencePiece's BPE, as used by llama 1 and 2, mistral, phi-3 and gemma. A space becomes "▁" (U+2581), the
// symbols of a text are its characters, and of all neighbours whose joined text is a token the one with the best score
// joins first. Characters that are not a token in the end become their bytes, "<0xE2>" and so on.
//
// A text is one chain in principle. It is cut only at places that no token crosses (joins.h), and merge.h handles
// chains of any length. A "▁" in the text itself is read as a space, and decodes to one, as in SentencePiece and
// llama.cpp.
//
// Invariant: each output id decodes to the bytes that it was made from, a "▁" to a space. Look next: merge.h, decode.c.
#ifndef WEFT_SPM_H
#define WEFT_SPM_H
#include "text/joins.h"
#include "text/merge.h"
#include "text/vocab.h"
#include "text/word_cache.h"

#define SPM_SPACE "\xE2\x96\x81"
// Merging cannot produce longer tokens, so looking a pair up takes bounded time.
#define SPM_MERGED_BYTES_MAX 1024u

typedef struct spm {
  const vocab *v;
  bool space_prefix;            // a space goes before the text and after each special token
  int32_t byte_id[256];         // "<0xXX>", or -1
  uint32_t longest;             // bytes of the longest text that merging may make
  uint32_t *rank;               // [id] 0 for the best score; tokens of one score share a rank
  uint32_t n_ranks;
  joins joins;
} spm;

void spm_init(spm *s, const vocab *v, bool space_prefix, arena *mem);   // v must live as long as s
// Appends the tokens of a stretch of text between special tokens. -1 if a byte has no token and the model has no
// unknown token. first: the stretch begins here. open: it may continue; *settled bytes have been encoded.
int spm_encode(const spm *s, merger *m, word_cache *words, const char *text, size_t n, bool first, bool open,
               size_t *settled, token_list *out, error *err);
#endif
