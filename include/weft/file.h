/* weft/file.h: GGUF files: metadata and tensors. */
#ifndef WEFT_API_FILE_H
#define WEFT_API_FILE_H
#include "base.h"

WEFT_BEGIN

/* ---- Files
 *
 * Opening checks all headers and maps the file; no weight is read.  Of a split model (X-00001-of-00003.gguf) open the
 * first part.  A path may name an open descriptor, where /proc is mounted: "/dev/fd/5".
 */
typedef struct weft_file weft_file;
int weft_file_open(const char *path, weft_file **out, weft_error *err);
/* A file in memory of n bytes, aligned to 16 and not at NULL, which must stay unchanged until the file is closed; name
 * is used in messages. */
int weft_file_open_memory(const void *data, size_t n, const char *name, weft_file **out, weft_error *err);
void weft_file_close(weft_file *f);           /* NULL is fine */
const char *weft_file_path(const weft_file *f);
uint32_t weft_file_version(const weft_file *f);      /* of the GGUF format: 2 or 3 */
uint32_t weft_file_alignment(const weft_file *f);    /* of tensor data, in bytes */
size_t weft_file_n_parts(const weft_file *f);        /* files of a split model; otherwise 1 */
uint64_t weft_file_bytes(const weft_file *f);        /* of all parts */

/* Metadata, in the order of the file. */
enum weft_type {
  WEFT_UINT8,
  WEFT_INT8,
  WEFT_UINT16,
  WEFT_INT16,
  WEFT_UINT32,
  WEFT_INT32,
  WEFT_FLOAT32,
  WEFT_BOOL,
  WEFT_STRING,
  WEFT_ARRAY,
  WEFT_UINT64,
  WEFT_INT64,
  WEFT_FLOAT64
};
typedef struct weft_value {
  enum weft_type type;
  uint64_t u;                /* UINT*; BOOL as 0 or 1 */
  int64_t i;                 /* INT* */
  double f;                  /* FLOAT* */
  const char *text;          /* STRING: its bytes, any at all and not terminated */
  size_t n;                  /* STRING: how many bytes; ARRAY: how many elements */
  enum weft_type elem;       /* ARRAY: type of its elements, never ARRAY */
} weft_value;
const char *weft_type_name(enum weft_type t);                  /* "UINT32" */
size_t weft_file_n_keys(const weft_file *f);
const char *weft_file_key(const weft_file *f, size_t i);       /* UTF-8; NULL: no such index */
int weft_file_value(const weft_file *f, size_t i, weft_value *out);             /* -1: no such index */
/* element j of an array; -1: no such element */
int weft_file_element(const weft_file *f, size_t i, size_t j, weft_value *out);
int weft_file_find(const weft_file *f, const char *key, size_t *i);             /* -1: no such key */
/* The value in readable form: strings quoted, at most max_items elements of an array and 20 * max_items bytes of a
 * string (0: all). For weft_free. */
char *weft_file_value_text(const weft_file *f, size_t i, size_t max_items);

/* Tensors, in the order of the file. */
typedef struct weft_tensor {
  const char *name;          /* UTF-8 */
  const char *type;          /* "Q4_0" */
  uint32_t n_dims;           /* 1..4 */
  int64_t shape[4];          /* shape[0] is contiguous; 1 from n_dims on */
  uint64_t n_elements, bytes;
  uint64_t offset;           /* of the data, from the beginning of its part */
  uint32_t part;             /* which file of a split model, from 0 */
} weft_tensor;
size_t weft_file_n_tensors(const weft_file *f);
int weft_file_tensor(const weft_file *f, size_t i, weft_tensor *out);           /* -1: no such index */
uint64_t weft_file_n_params(const weft_file *f);               /* elements of all tensors */
uint64_t weft_file_tensor_bytes(const weft_file *f);           /* bytes of all tensors */
/* Whether weft_model_open can run this file as far as its contents decide (memory is checked separately): 0, or -1 and
 * the reason, naming the unknown architecture, or the key or tensor that does not fit. No weight is read. */
int weft_file_can_run(const weft_file *f, weft_error *err);
/* What an mmproj file encodes, in readable form: "pictures (gemma3): resized to 112 x 112 pixels, 16 tokens; ...", a
 * line each. For weft_free. NULL with err: not such a file, or one that cannot be used, and why. */
char *weft_file_encoders(const weft_file *f, weft_error *err);
bool weft_file_is_mmproj(const weft_file *f);
/* The number of the block with which the model drafts tokens itself (weft_draft_own); -1: none, or it cannot run. */
int weft_file_mtp(const weft_file *f);
/* Whether it is a draft file, which cannot run alone: see draft_file in weft_options. */
bool weft_file_only_drafts(const weft_file *f);
/* Whether its model denoises texts: see denoise.h. */
bool weft_file_denoises(const weft_file *f);
/* Files are mapped. If a file is truncated while it is open, or its disk fails, missing bytes read as zeros (the
 * library handles SIGBUS for its own mappings and passes on any other). Functions with a weft_error report that. For
 * functions without one: 0, or -1 if the file is damaged. */
int weft_file_check(const weft_file *f, weft_error *err);
/* What becomes of each metadata value under the architecture's name when a model is made of this file: texts for the
 * n_keys keys, in their order: "read", "not supported", or the reason why it changes nothing. NULL: not under that
 * name, or an error came first. For weft_free. */
const char **weft_file_key_uses(const weft_file *f);
/* A summary of the model: "llama 1.2B Q4_K_M" (architecture, size, and the mixture of types according to the file; if
 * the file does not say, the type of most bytes; both if they differ: "gemma3 268.1M Q4_K_M (mostly Q8_0)"). For
 * weft_free. */
char *weft_file_summary(const weft_file *f);

WEFT_END
#endif
