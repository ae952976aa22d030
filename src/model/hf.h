// hf: a folder saved by Hugging Face's transformers (config.json, *.safetensors, tokenizer.json, ...), read as the GGUF
// file that llama.cpp's converter makes of it.
//
// The folder is untrusted. hf_open reads the JSON within bounds, maps the weights, checks their headers in checked
// arithmetic, and describes the file: its keys (a finished header) and its tensors. The weights are not copied. A
// tensor's rows are rows of the folder's tensor in another order, some with 1 added, in another float format (hf_rows).
// Each transformers class is a row of the table in hf_classes.c; anything unknown is an error that names it, never a
// guess.
//
// Look next: hf_files.c (JSON and safetensors), hf_packed.c, hf_fp8.c and hf_blocks.c (codes with scales), hf_classes.c
// (the table), hf_vocab.c, hf_spm.c and hf_words.c (tokenizers), hf.c (tensors).
#ifndef WEFT_HF_H
#define WEFT_HF_H
#include "model/gguf_write.h"

typedef struct hf hf;

// The format of matrices in the file. AUTO: bf16 or f16 like the first matrix, otherwise f16; STORED: like AUTO, but
// f32 stays f32.
enum hf_type { HF_AUTO, HF_STORED, HF_F32, HF_F16, HF_BF16, HF_Q8_0 };

typedef struct hf_tensor {
  const char *name;                  // the name in GGUF files
  uint32_t n_dims;
  int64_t ne[4];                     // ne[0] is contiguous
  const struct format *from, *to;    // in the folder; in the file
  uint64_t nbytes;                   // in the file
} hf_tensor;

// Returns whether hf_open reads a file of this name in a folder, "1_Pooling/config.json" included.
bool hf_reads(const char *name);
// Returns whether folders of this class of transformers are read; otherwise an error says so.
int hf_check_class(const char *class, error *err);
// Opens a folder. 0 and *out, for hf_close; -1 and an error that names file, key and value.
int hf_open(const char *dir, enum hf_type type, hf **out, error *err);
void hf_close(hf *h);                                      // NULL is allowed
const gguf_head *hf_head(const hf *h);                     // complete: keys and tensors
// For messages, for free(): each key whose value is one of config.json, and that one's name, each followed by a 0; then
// an empty key.
char *hf_key_names(const hf *h);
size_t hf_n_tensors(const hf *h);
const hf_tensor *hf_tensor_at(const hf *h, size_t i);
// Computes rows [first, first + n) of a tensor in the file's format. Thread-safe. -1: the file's format cannot
// represent a value.
int hf_rows(const hf *h, size_t i, int64_t first, int64_t n, unsigned char *out, error *err);
// Checks that the folder's files are unchanged; call it after the last hf_rows. -1: a file was truncated or changed.
int hf_check(const hf *h, error *err);
// Makes the whole file in memory, for hf_image_free; *of: the stamp of the folder's files at that time; *names: as
// hf_key_names.
int hf_image(const char *dir, unsigned char **out, size_t *n, stamp *of, char **names, error *err);
void hf_image_free(unsigned char *image, size_t n);
#endif
