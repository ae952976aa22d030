/* weft/media.h: rows of floats in place of tokens; images and sound. */
#ifndef WEFT_API_MEDIA_H
#define WEFT_API_MEDIA_H
#include "model.h"

WEFT_BEGIN

/* ---- Rows of floats in place of tokens: the output of an image or sound encoder
 *
 * A span of rows has an id for each row, below -1, by which it is part of prompts. weft_decode, weft_decode_rows,
 * weft_step and weft_embed accept these ids among those of tokens, and so do sequences, stores and files. Ids are made
 * from a digest of the span: the same span has the same ids in every process, unless another span there has one of them
 * already. Ids from untrusted sources must be checked first: none may be negative. Compare prompts with weft_common,
 * which never splits a span.
 */
typedef struct weft_rows weft_rows;
typedef struct weft_rows_spec {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  const float *floats;       /* n x weft_model_row_width; NULL: weft_rows_fill adds them, and a key identifies them */
  size_t n;                  /* at least 1 */
  /* n x 3: each row's positions of time, row and column, counted from the span's first one (for models with M-RoPE;
   * others ignore them); n_positions: how many positions the span takes. NULL: one per row */
  const int32_t *positions;
  int n_positions;
  bool both_ways;            /* each row sees the whole span, which must be in one call; otherwise the rows before it */
  const void *key; /* ids are made from it (for example from digests of image and encoder); NULL: from the floats */
  size_t n_key;
} weft_rows_spec;
/* Floats of a row: weft_model_row_width(m) = n_embd * (1 + layers with additional inputs, as in Qwen3-VL's deepstack,
 * whose parts follow the first one). */
int weft_model_row_width(const weft_model *m);
/* Copies its arguments. Free it when no evaluation needs it any more; sequences that may evaluate tokens again
 * (weft_sequence_whole) hold a reference. Any thread may call these. -1: impossible sizes, floats that are not numbers,
 * or neither floats nor a key. */
int weft_rows_new(weft_model *m, const weft_rows_spec *spec, weft_rows **out, weft_error *err);
int weft_rows_fill(weft_rows *r, const float *floats, weft_error *err);    /* does nothing if it has them */
bool weft_rows_filled(const weft_rows *r);
const int32_t *weft_rows_ids(const weft_rows *r, size_t *n);   /* n of them; as long as r */
void weft_rows_free(weft_rows *r);            /* before the model is closed; NULL is fine */
/* The number of ids that two prompts have in common at their beginnings, without splitting a span of rows. */
size_t weft_common(const int32_t *x, size_t n_x, const int32_t *y, size_t n_y);
/* n, or less if that would split a span of rows: the place in n_ids ids from which another prompt can continue. */
size_t weft_before_rows(const int32_t *ids, size_t n, size_t n_ids);
/* ---- Models with an encoder and a decoder (T5)
 *
 * The encoder makes a row of floats of each token of a text, its source.  The decoder reads these, and begins behind
 * them with a token that the model's file names.  Sequences of such a model begin with the rows of a source. */
bool weft_model_has_source(const weft_model *m);
/* Of n tokens of a source, the ids to evaluate instead: n rows, and the token that the answer begins with.  prompt: for
 * weft_free.  rows: for weft_rows_free, when they have been evaluated.  This runs the model: what weft_decode has
 * evaluated is forgotten. */
int weft_encode_source(weft_model *m, const int32_t *ids, size_t n, weft_rows **rows, int32_t **prompt,
                       size_t *n_prompt, weft_error *err);

/* How many of the next n ids to evaluate in one call if `most` are wanted: `most`, or more or fewer to avoid splitting
 * a span whose rows see each other in both directions. At least 1. */
size_t weft_piece_of(weft_model *m, const int32_t *ids, size_t n, size_t most);

/* ---- Pictures and sound
 *
 * An mmproj file holds what makes rows of floats (above) of a picture or a sound for one language model.  Files are
 * decoded by a process of their own that can do nothing else.
 */
typedef struct weft_media weft_media;
enum weft_medium_kind { WEFT_PICTURE = 1, WEFT_SOUND = 2 };
typedef struct weft_media_options {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  int min_tokens, max_tokens;          /* for an image, if its size is not fixed; 0: as in the model's own processor */
  int64_t max_pixels, max_sound_s;     /* of a file; 0: 100,000,000; an hour */
  int64_t max_decoding_s;              /* of a processor, for a file; 0: 30 */
  /* Called before and after computations on the model's threads: no other evaluation may run meanwhile. NULL: no other
   * thread evaluates. */
  void (*turn)(void *ctx, bool begins);
  void (*progress)(void *ctx, const char *what, double fraction);      /* of an encoding; may be NULL */
  void *ctx;
  /* The working memory that an encoder keeps for the next image or sound, in bytes. Larger inputs get more temporarily.
   * 0: unlimited. */
  uint64_t keep_bytes;
} weft_media_options;
/* A mark for weft_chat.media_mark, random. False: the system gives no random numbers. */
enum { WEFT_MEDIA_MARK_SIZE = 48 };
bool weft_media_mark(char out[WEFT_MEDIA_MARK_SIZE]);
#define WEFT_MEDIA_MARKER "<__media__>"        /* where pictures and sounds stand in a text, as llama.cpp writes it */
/* Checks the file as weft_model_open does.  Closed before the model.  opt may be NULL. */
int weft_media_open(weft_model *m, const char *mmproj, const weft_media_options *opt, weft_media **out,
                    weft_error *err);
/* What an mmproj file encodes for the model in a file: enum weft_medium_kind, added. Both files are checked, and
 * nothing is loaded. -1: not such a file, or its rows differ in width from the model's. */
int weft_file_media(const weft_file *mmproj, const weft_file *model, unsigned *kinds, weft_error *err);
void weft_media_close(weft_media *a);         /* NULL is fine */
/* 0, or -1 and err: its file was truncated or could not be read since it was opened: close it and open it again. Any
 * thread. */
int weft_media_check(const weft_media *a, weft_error *err);
unsigned weft_media_kinds(const weft_media *a);                /* enum weft_medium_kind, added */
unsigned weft_medium_kind_of(const void *data, size_t n);      /* of a file, by its first 4096 bytes; 0: none of them */

/* One image or sound, as the language model reads it. */
typedef struct weft_medium weft_medium;
enum { WEFT_MEDIUM_BAD = -1, WEFT_MEDIUM_UNABLE = -2, WEFT_MEDIUM_LATER = -3 };
/* From a whole file of n bytes: PNG, JPEG, WebP; WAV, FLAC, MP3, OGG; name is used in messages. Encodes it on the
 * caller's thread and on the threads of the model, which must not evaluate anything else meanwhile. BAD: a broken file,
 * or a limit; UNABLE: a library is missing, or the encoder fails; LATER: no process for decoding at the moment, or no
 * memory. */
int weft_medium_new(weft_media *a, const void *data, size_t n, const char *name, weft_medium **out, weft_error *err);
int weft_medium_open(weft_media *a, const char *path, weft_medium **out, weft_error *err);     /* of a file */
/* Free it when no evaluation needs its rows any more, and before weft_media_close. NULL is fine. */
void weft_medium_free(weft_medium *x);
size_t weft_medium_n_rows(const weft_medium *x);
/* weft_tokenize for a text in which each marker stands for one medium, in order; without markers the media come before
 * the text. An error: another number of markers. */
int weft_media_tokenize(const weft_media *a, const char *text, size_t n, unsigned flags, weft_medium *const *media,
                        size_t n_media, int32_t **ids, size_t *n_ids, weft_error *err);

WEFT_END
#endif
