// tokenizer: the private part of text.h, only for the files of this folder.
//
// Reading the merges and compiling patterns takes some milliseconds, which a program that only decodes does not need.
// So the encoder is made at the first encoding, under a lock (text.c); everything else is fixed when tokenizer_new
// returns.
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H
#include "text/bpe.h"
#include "text/dna.h"
#include "text/plamo2.h"
#include "text/pretokenize.h"
#include "text/rwkv.h"
#include "text/special.h"
#include "text/spm.h"
#include "text/unigram.h"
#include "text/vocab.h"
#include "text/wordpiece.h"
#include <pthread.h>
#include <stdatomic.h>

// The parts that encoding needs and decoding does not.
struct encoder {
  pthread_mutex_t lock;         // held while it is being made
  atomic_bool ready;            // after which nothing changes
  error err;                    // why it could not be made, or ""
  special_set special;
  pretokenizer *pre;
  union { bpe bpe; spm spm; wordpiece wordpiece; unigram unigram; rwkv rwkv; plamo2 plamo2; };
};

struct tokenizer {
  arena *mem;
  vocab v;
  vocab_desc desc;              // for the merges; its strings belong to the owner of the file
  const char *model, *pre;      // printable copies
  const char *cannot_encode;    // the reason, or NULL
  const pretokenizer_row *row;  // VOCAB_BPE and VOCAB_CHARS: its pattern
  dna dna;                      // VOCAB_BPE: regions of DNA
  charsmap map;                 // VOCAB_UNIGRAM: its normalisation
  bool add_bos, add_eos, add_sep;
  bool space_prefix;            // encoding puts a space before a text and after special tokens; decoding removes it
  struct encoder *encoder;      // made empty, filled at the first encoding
};

// Returns the encoder, making it at the first call; -1 and the reason why it cannot be made.
int tokenizer_encoder(const tokenizer *t, const struct encoder **out, error *err);
static inline bool flag_or(int said, bool usual) { return said >= 0 ? said == 1 : usual; }
#endif
