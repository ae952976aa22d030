/* weft/quantize.h: model files in other formats, and importance weights. */
#ifndef WEFT_API_QUANTIZE_H
#define WEFT_API_QUANTIZE_H
#include "model.h"

WEFT_BEGIN

/* ---- Quantising
 *
 * A model file in other formats: fewer bits, or more.  The format of each tensor is that of llama.cpp's mixture of the
 * same name, and blocks are the same bytes.  One tensor at a time, and of that a few megabytes at a time, is in memory;
 * the file appears when it is whole.
 */
typedef struct weft_quantized {            /* what becomes of a tensor */
  size_t number, count;      /* from 1; of all */
  const char *name;
  const char *from, *to;     /* formats; equal: it stays as it is */
  uint32_t n_dims;
  int64_t shape[4];
  uint64_t bytes_from, bytes_to;
  bool misfit;               /* `to` took the place of a format whose blocks do not fit */
  bool needs_weights;        /* `to` is worthless without importance weights */
  bool kept;                 /* an interrupted run made it */
} weft_quantized;
typedef struct weft_quantize_options {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  const char *type;          /* "Q4_K_M", "q8_0", ...: weft_quantize_type; NULL: only copy */
  int threads;               /* 0: the default */
  bool allow_requantize;     /* tensors that are quantised already, too: worse than from the original */
  bool leave_output;         /* output.weight stays as it is */
  bool pure;                 /* every matrix in one format */
  bool keep_split;           /* as many files as the model has: out is the beginning of their names */
  bool dry_run;              /* writes nothing */
  /* formats for output.weight and the token embedding; NULL: as the mixture says */
  const char *output_type, *embedding_type;
  const char *const *tensor_types; /* "expression=format": for tensors in whose names the regular expression is found;
                                      the first one counts */
  size_t n_tensor_types;
  const char *const *overrides;                /* metadata: "key=int:1", float, bool, str */
  size_t n_overrides;
  const char *imatrix;       /* file of importance weights (imatrix), of either kind; NULL: none */
  const char *const *include, *const *exclude; /* only for tensors in whose names one of these is found; not for them */
  size_t n_include, n_exclude;
  bool (*progress)(void *ctx, double fraction);              /* false: stop; may be NULL */
  void (*tensor)(void *ctx, const weft_quantized *t);        /* before each is made; may be NULL */
  void *ctx;
} weft_quantize_options;
typedef struct weft_quantize_result {
  uint64_t bytes_from, bytes_to, n_params;     /* of all tensors */
  size_t misfits;
  bool needs_weights;        /* (dry_run) some tensor would need importance weights */
  size_t n_weights, n_missed;/* tensors that importance weights are known for; those made without */
  bool stopped;              /* progress said so; there is no file */
  size_t n_done, n_kept;     /* tensors that are whole; those of them that an interrupted run had made */
} weft_quantize_result;
/* The file appears complete or not at all. A run that is stopped or killed, or that runs out of space, leaves out.part
 * and out.part.pieces: the next run with the same input and options checks them and continues. */
int weft_quantize(const char *in, const char *out, const weft_quantize_options *opt, weft_quantize_result *result,
                  weft_error *err);
/* ---- Folders of Hugging Face's
 *
 * A folder as transformers saves it (config.json, *.safetensors, tokenizer.json, ...) as one GGUF file: the one that
 * llama.cpp's converter makes.  weft_file_open and weft_model_load take such a folder as it is, too. */
/* Whether a file of this name in such a folder is read: "model-00001-of-00002.safetensors", "1_Pooling/config.json". */
bool weft_folder_reads(const char *name);
/* 0: folders of this class of transformers (the first of "architectures" in config.json; NULL: none) are read.
 * -1: the error says that they are not. */
int weft_folder_class(const char *name, weft_error *err);

typedef struct weft_convert_options {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  const char *type;          /* of matrices: "f32", "f16", "bf16", "q8_0", "auto" (as they are, but f16 for f32); NULL:
                                auto */
  int threads;               /* 0: the default */
  bool (*progress)(void *ctx, double fraction);              /* false: stop; may be NULL */
  void *ctx;
} weft_convert_options;
typedef struct weft_convert_result {
  size_t n_tensors;
  uint64_t n_params, bytes;  /* of the file */
  bool stopped;              /* progress said so; there is no file */
} weft_convert_result;
/* The file appears whole or not at all. */
int weft_convert(const char *dir, const char *out, const weft_convert_options *opt, weft_convert_result *result,
                 weft_error *err);

/* Importance weights: sums of squares of the inputs of each matrix while a model reads texts. m still belongs to the
 * caller, and is used until the end. */
typedef struct weft_imatrix weft_imatrix;
weft_imatrix *weft_imatrix_new(weft_model *m);               /* never NULL; weft_imatrix_free */
/* Reads n tokens as a text of their own; what the KV cache held is lost. */
int weft_imatrix_add(weft_imatrix *w, const int32_t *ids, size_t n, weft_error *err);
/* Writes what there is so far as llama.cpp's tools do (GGUF).  dataset: the text's name; chunk: tokens of one add, for
 * the record. */
int weft_imatrix_write(const weft_imatrix *w, const char *path, const char *dataset, int chunk, weft_error *err);
void weft_imatrix_free(weft_imatrix *w);                     /* NULL is fine */
/* The types that can be written, by index: "F32", ..., "Q4_K_M", ...; NULL: no more. */
const char *weft_quantize_type(size_t i);
/* one of them, by a name in any case, including "Q4_K", or by its number in files; NULL: unknown */
const char *weft_quantize_find(const char *name);

WEFT_END
#endif
