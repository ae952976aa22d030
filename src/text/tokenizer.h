// tokenizer: what text.h keeps opaque.  For the files of this folder only.
//
// Reading the merges and compiling patterns costs some milliseconds that a program which only decodes need not spend, so the
// encoder is made at the first encoding, under a lock; everything else is fixed when tokenizer_new returns.
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/special.h"
#include "text/spm.h"
#include "text/vocab.h"

struct encoder;

struct tokenizer {
  arena *mem;
  vocab v;
  vocab_desc desc;              // for the merges; its strings belong to whoever opened the file
  const char *model, *pre;      // printable copies
  const char *cannot_encode;    // why, or NULL
  const pretokenizer_row *row;  // VOCAB_BPE: its pattern
  bool add_bos, add_eos, space_prefix;
  struct encoder *encoder;      // made empty, filled at the first encoding (text.c)
};
#endif
