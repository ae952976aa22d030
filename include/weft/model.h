/* weft/model.h: a model that runs: options, evaluation, embeddings. */
#ifndef WEFT_API_MODEL_H
#define WEFT_API_MODEL_H
#include "vocab.h"

WEFT_BEGIN

/* ---- Models */
typedef struct weft_model weft_model;
/* An adapter (LoRA) in llama.cpp's GGUF format: what it adds to the model's products is multiplied by `scale`. */
typedef struct weft_adapter { const char *path; double scale; } weft_adapter;
/* A control vector in llama.cpp's GGUF format: for some layers a direction, which is added, times `scale`, to their
 * outputs. */
typedef struct weft_control_vector { const char *path; double scale; } weft_control_vector;
/* How several processes (weft_ranks_join) share a model. By row: each computes a part of every large product. By layer:
 * each has some of the layers, one after the other. Auto: by row. None: an error if there are several. */
enum weft_split { WEFT_SPLIT_AUTO, WEFT_SPLIT_ROW, WEFT_SPLIT_LAYER, WEFT_SPLIT_NONE };
typedef struct weft_options {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  int context;               /* positions of the KV cache; 0: as many as the model was trained for, or half,
                                a quarter, ... of that where memory is short.  Reserved, not committed */
  int threads;               /* 0: what affinity, control group and cores suggest */
  int prompt_threads;        /* for prompts; 0: as many */
  int chunk;                 /* positions of a prompt that are evaluated at once; 0: default */
  /* layers, from the last one down, on the device that DEV names, if that is not the CPU: the other layers and the
   * embedding are on the CPU. 0: as many as its memory can hold; -1: none. If they do not fit, or the cut is at a
   * place where layers share more than the stream: an error that says what fits */
  int gpu_layers;
  /* weights are read in place from the mapped file: needs less memory while loading, several times slower */
  bool no_repack;
  /* "key=type:value" (int, float, bool, str): metadata that replaces the file's; "{arch}." at the beginning of a key
   * is the architecture's name */
  const char *const *settings;
  size_t n_settings;
  const weft_adapter *adapters;  /* all of them together */
  size_t n_adapters;
  /* the types of the KV cache: "f16", "f32", "bf16", "q8_0" or "q4_0"; NULL: "f16" */
  const char *key_cache, *value_cache;
  bool exact;                /* activations stay 32-bit floats: slower, and closer to plain arithmetic */
  bool mtp;                  /* uses the file's own block for drafting, if there is one: see weft_draft_own */
  /* "loading" or "compiling", 0..1; may be NULL. Called while the model opens, and from weft_decode when that has to
   * compile something: progress_ctx must stay valid as long as the model. */
  void (*progress)(void *ctx, const char *what, double fraction);
  void *progress_ctx;
  /* Called with progress_ctx while the model opens, on the thread that opens it: before each kernel that this thread
   * compiles, which takes from milliseconds to seconds, and before each 32 MiB of weights that are packed. If it
   * returns true, weft_model_open fails with "loading was stopped". NULL: not used. */
  bool (*stop)(void *ctx);
  const char *device;        /* "CPU", "CL", "CUDA", ..., as the variable DEV names them; NULL: what DEV says */
  const weft_control_vector *control_vectors;  /* all of them together, for all sequences */
  size_t n_control_vectors;
  /* layers that they change, the first one included and the last one, counted from 0; the first layer of a model has no
   * direction.  0: layer 1, and the last layer */
  int control_from, control_to;
  enum weft_split split;
  const double *shares;      /* of the processes, in proportion; with one process they mean nothing. NULL: equal */
  size_t n_shares;
  /* a draft file of the kinds eagle3 or dflash that was trained for this model: it drafts (weft_draft_own) instead of a
   * block of the model's file. All layers must be on one device. An error if it does not fit the model. NULL: none */
  const char *draft_file;
} weft_options;                 /* strings and arrays are read until weft_model_open returns */
/* Checks the file, maps it and prepares the kernels.  opt NULL: defaults.  Refuses a model that needs more memory than
 * is free, with the numbers. */
int weft_model_open(const char *path, const weft_options *opt, weft_model **out, weft_error *err);
/* A model in memory of n bytes, aligned to 16 and not at NULL, which must stay unchanged until it is closed. Its
 * sequences cannot be stored in files, which are identified by the files of a model. */
int weft_model_open_memory(const void *data, size_t n, const char *name, const weft_options *opt, weft_model **out,
                           weft_error *err);
void weft_model_close(weft_model *m);         /* NULL is fine */
/* 0, or -1 and err: an evaluation of this model hit a broken invariant of the library, or its file was truncated or
 * could not be read since it was opened. From then on every other evaluation fails with the same message; close it, and
 * open it again if needed. Other models are not affected. Any thread. */
int weft_model_check(const weft_model *m, weft_error *err);
const weft_file *weft_model_file(const weft_model *m);
const weft_vocab *weft_model_vocab(const weft_model *m);
int32_t weft_model_vocab_size(const weft_model *m);            /* logits of a position */
int weft_model_context(const weft_model *m);                   /* positions of the KV cache */
int weft_model_threads(const weft_model *m);

/* Evaluates n tokens at positions pos .. pos+n-1. The KV cache before pos is kept, the rest is replaced: pos 0 starts a
 * new sequence, pos = tokens evaluated so far continues. *logits (NULL: not wanted) points to vocab_size floats for the
 * token after the last one, valid until the next call. An error: an id outside the vocabulary, a position that leaves a
 * gap or is outside the context, logits that are not numbers (damaged weights). The result depends only on ids and
 * positions, to the last bit: not on how a prompt is split into calls, and not on the number of threads. (In models
 * with recurrent layers or sliding windows, going back may evaluate tokens before pos again, see weft_sequence_whole.)
 * 0; 1: it ended early (weft_model_watch), and the cache is valid up to pos; -1 with err. */
int weft_decode(weft_model *m, const int32_t *ids, size_t n, int pos, const float **logits, weft_error *err);

/* While weft_decode or weft_decode_rows evaluates a prompt, watch (NULL: none) is called every few milliseconds on the
 * caller's thread. done: the number of tokens that are finished, counting parts of tokens in progress. If it returns
 * false the evaluation ends within milliseconds. For single tokens and for other devices than the CPU it is only called
 * before a run of kernels. */
typedef bool weft_watch(void *ctx, double done);
void weft_model_watch(weft_model *m, weft_watch *watch, void *ctx);

/* weft_decode with the logits of every token from ids[first] on (first < n): row is called with those of the token
 * after ids[i], in order; they are valid during the call. If it returns false the evaluation ends, and positions after
 * i may have been evaluated or not. Only the logits of one chunk are in memory at a time. */
typedef bool weft_row(void *ctx, size_t i, const float *logits);
int weft_decode_rows(weft_model *m, const int32_t *ids, size_t n, int pos, size_t first, weft_row *row, void *ctx,
                     weft_error *err);

/* Embeddings of texts. Any model can make one. Models that only make embeddings read a text in both
 * directions, and weft_decode refuses them. */
enum weft_pooling {
  WEFT_POOLING_MODEL = -1,   /* what the file says */
  WEFT_POOLING_NONE,         /* a vector for each token */
  WEFT_POOLING_MEAN,
  WEFT_POOLING_CLS,          /* the first token's */
  WEFT_POOLING_LAST,
  WEFT_POOLING_RANK          /* scores instead of a vector, of models that rank texts and make nothing else */
};
bool weft_model_only_embeds(const weft_model *m);
int32_t weft_model_embedding_size(const weft_model *m);        /* elements of a vector */
/* The file's pooling, or WEFT_POOLING_MODEL if the file does not name one. */
int weft_model_pooling(const weft_model *m, enum weft_pooling *pooling, weft_error *err);
/* The vector of a text of n tokens, to which the model's special tokens must already have been added; it may include
 * rows of an image or sound (media.h). `size` floats; for WEFT_POOLING_NONE, and for _MODEL if the file names no
 * pooling, n of them, one after the other. They are not normalised: see weft_embedding_normalize. The contents of the
 * KV cache are lost. An error: no token, an id outside the vocabulary, more tokens than the context, a vector with
 * elements that are not numbers. */
int weft_embed(weft_model *m, const int32_t *ids, size_t n, enum weft_pooling pooling, float *out, weft_error *err);
typedef struct weft_pair {
  size_t size;                                     /* sizeof this struct, or 0: see base.h */
  const char *question, *text;                     /* UTF-8 */
  size_t n_question, n_text;                       /* bytes */
  bool parse_special;                              /* of both: see WEFT_PARSE_SPECIAL */
  size_t most_ids;                                 /* tokens after which it may stop; 0: never */
} weft_pair;
/* Combines a question and a text into the input of a ranking model: by the file's template for this, or one after the
 * other with the token that ends each. *ids is for weft_free. */
int weft_tokenize_pair(const weft_model *m, const weft_pair *pair, int32_t **ids, size_t *n_ids, weft_error *err);
/* v / length, where the length is for p = 2 the usual one, for other p >= 1 the p-th root of the sum of |x|^p; p = 0:
 * the largest |x| becomes 32760; p = -1: nothing changes.  A vector of zeros stays one. */
void weft_embedding_normalize(float *v, size_t n, int p);

WEFT_END
#endif
