// tokenizer: what text.h keeps opaque.  For the files of this folder only.
//
// Reading the merges and compiling patterns costs some milliseconds that a program which only decodes need not spend, so the
// encoder is made at the first encoding, under a lock; everything else is fixed when tokenizer_new returns.
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

struct encoder;

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
  struct encoder *encoder;      // made empty, filled at the first encoding (text.c)
};
#endif
