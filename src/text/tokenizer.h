// tokenizer: what text.h keeps opaque.  For the files of this folder only.
//
// Reading the merges and compiling patterns costs some milliseconds that a program which only decodes need not spend,
// so the encoder is made at the first encoding, under a lock (text.c); everything else is fixed when tokenizer_new
// returns.
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H
#include "text/bpe.h"
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
  vocab_desc desc;              // for the merges; its strings belong to whoever opened the file
  const char *model, *pre;      // printable copies
  const char *cannot_encode;    // why, or NULL
  const pretokenizer_row *row;  // VOCAB_BPE and VOCAB_CHARS: its pattern
  charsmap map;                 // VOCAB_UNIGRAM: its normalisation
  bool add_bos, add_eos, add_sep;
  bool space_prefix;            // encoding puts a space before a text and after special tokens, decoding takes it off
  struct encoder *encoder;      // made empty, filled at the first encoding
};

// The parts above, made now if they were not; -1 and why there are none.
int tokenizer_encoder(const tokenizer *t, const struct encoder **out, error *err);
static inline bool flag_or(int said, bool usual) { return said >= 0 ? said == 1 : usual; }
#endif
