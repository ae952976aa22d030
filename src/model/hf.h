// hf: a folder as Hugging Face's transformers saves it (config.json, *.safetensors, tokenizer.json, ...), seen as the
// GGUF file that llama.cpp's converter makes of it.
//
// A folder is hostile until shown otherwise.  hf_open reads the JSON within bounds, maps the weights and checks their
// heads in checked arithmetic, and describes the file: its keys (a finished head) and its tensors.  A tensor is rows of
// one that the folder has, in another order, some with 1 added, as floats of another width (hf_rows): there is no
// copy of the weights.  What a class of transformers becomes is a row of the table in hf_classes.c; what this code does
// not know of a folder is refused by name, never guessed.
//
// Look next: hf_files.c (JSON and safetensors), hf_packed.c, hf_fp8.c and hf_blocks.c (codes with scales), hf_classes.c
// (the table), hf_vocab.c, hf_spm.c and hf_words.c (tokenizers), hf.c (tensors).
#ifndef WEFT_HF_H
#define WEFT_HF_H
#include "model/gguf_write.h"

typedef struct hf hf;

// What a folder becomes in the file: format of its matrices.  AUTO: bf16 or f16, as the first matrix is, else f16;
// STORED: the same, but f32 stays.
enum hf_type { HF_AUTO, HF_STORED, HF_F32, HF_F16, HF_BF16, HF_Q8_0 };

typedef struct hf_tensor {
  const char *name;                  // as GGUF files have it
  uint32_t n_dims;
  int64_t ne[4];                     // ne[0] is contiguous
  const struct format *from, *to;    // in the folder; in the file
  uint64_t nbytes;                   // in the file
} hf_tensor;

// 0 and *out, for hf_close; -1 and a sentence that names file, key and value.
int hf_open(const char *dir, enum hf_type type, hf **out, error *err);
void hf_close(hf *h);                                      // NULL is fine
const gguf_head *hf_head(const hf *h);                     // complete: keys and tensors
size_t hf_n_tensors(const hf *h);
const hf_tensor *hf_tensor_at(const hf *h, size_t i);
// Rows [first, first + n) of a tensor as the file has them.  Any number of threads.  -1: a value has no such number in
// the file's format.
int hf_rows(const hf *h, size_t i, int64_t first, int64_t n, unsigned char *out, error *err);
// Whether the folder's files still are what they were: after whatever was made of them. -1: one was cut or changed.
int hf_check(const hf *h, error *err);
// The whole file in memory, to be given back by hf_image_free; *of: stands for the folder's files as they were.
int hf_image(const char *dir, unsigned char **out, size_t *n, stamp *of, error *err);
void hf_image_free(unsigned char *image, size_t n);
#endif
