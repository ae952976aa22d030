/* weft/media.h: rows of floats in tokens' places; pictures and sound. */
#ifndef WEFT_API_MEDIA_H
#define WEFT_API_MEDIA_H
#include "model.h"

WEFT_BEGIN

/* ---- Rows of floats in tokens' places: what an encoder makes of a picture or of a sound
 *
 * A span of rows has an id for each row, below -1, and stands in prompts by these. weft_decode, weft_decode_rows and
 * weft_step take them among the ids of tokens, and so do sequences, stores and files; weft_embed takes them, too.  Ids
 * are made of a digest of the span: the same span has the same ids in every process, unless another span there has one
 * of them already.  Ids that come from outside must be checked before: none may be negative.  Compare prompts with
 * weft_common, which never parts a span. */
typedef struct weft_rows weft_rows;
typedef struct weft_rows_spec {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  const float *floats;       /* n x weft_model_row_width; NULL: weft_rows_fill brings them, and a key names them */
  size_t n;                  /* at least 1 */
  /* n x 3: each row's positions of time, row and column, from the span's first one on (models with M-RoPE turn by
   * them; others do not look at them), and how many positions the span uses up.  NULL: one a row */
  const int32_t *positions;
  int n_positions;
  bool both_ways;            /* each row sees all of the span, which one call must have; else what is before it */
  const void *key;           /* ids are made of it (say, of digests of picture and encoder); NULL: of the floats */
  size_t n_key;
} weft_rows_spec;
/* Floats of a row: weft_model_row_width(m) = n_embd * (1 + layers that add something of their own, as Qwen3-VL's
 * deepstack does: their parts follow the first one). */
int weft_model_row_width(const weft_model *m);
/* Copies all it is given.  Free it when no evaluation needs it any more; sequences that may evaluate something once
 * more (weft_sequence_whole) hold it themselves. Any thread may call these. -1: sizes that cannot be, floats that are
 * no numbers, neither floats nor a key. */
int weft_rows_new(weft_model *m, const weft_rows_spec *spec, weft_rows **out, weft_error *err);
int weft_rows_fill(weft_rows *r, const float *floats, weft_error *err);    /* nothing where it has them */
bool weft_rows_filled(const weft_rows *r);
const int32_t *weft_rows_ids(const weft_rows *r, size_t *n);   /* n of them; as long as r */
void weft_rows_free(weft_rows *r);            /* before the model is closed; NULL is fine */
/* How many ids two prompts have in common at their beginnings, without parting a span of rows. */
size_t weft_common(const int32_t *x, size_t n_x, const int32_t *y, size_t n_y);
/* Of n_ids ids the first n, or fewer where that would part a span of rows: where another prompt can go on from. */
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

/* How many of the next n ids to evaluate in one call where `most` are wanted: those, or more or fewer where that would
 * part a span whose rows see each other both ways.  At least 1. */
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
  int min_tokens, max_tokens;          /* of a picture, if its size is not fixed; 0: as the model's own processor */
  int64_t max_pixels, max_sound_s;     /* of a file; 0: 100,000,000; an hour */
  int64_t max_decoding_s;              /* of a processor, for a file; 0: 30 */
  /* Called before and behind what computes with the model's threads: nothing else may evaluate meanwhile. NULL: nobody
   * else does. */
  void (*turn)(void *ctx, bool begins);
  void (*progress)(void *ctx, const char *what, double fraction);      /* of an encoding; may be NULL */
  void *ctx;
  /* Bytes of the memory that an encoder works in and keeps for the next picture or sound. What needs more than these
   * gets it for a while. 0: any number. */
  uint64_t keep_bytes;
} weft_media_options;
/* A mark for weft_chat.media_mark, random. False: the system gives no random numbers. */
enum { WEFT_MEDIA_MARK_SIZE = 48 };
bool weft_media_mark(char out[WEFT_MEDIA_MARK_SIZE]);
#define WEFT_MEDIA_MARKER "<__media__>"        /* where pictures and sounds stand in a text, as llama.cpp writes it */
/* Checks the file as weft_model_open does.  Closed before the model.  opt may be NULL. */
int weft_media_open(weft_model *m, const char *mmproj, const weft_media_options *opt, weft_media **out,
                    weft_error *err);
/* What an mmproj file encodes for the model in a file: enum weft_medium_kind, added.  Both are checked, and nothing is
 * loaded.  -1: it is no such file, or its rows are not as wide as the model's. */
int weft_file_media(const weft_file *mmproj, const weft_file *model, unsigned *kinds, weft_error *err);
void weft_media_close(weft_media *a);         /* NULL is fine */
/* 0, or -1 and err: its file was cut or could not be read since it was opened: close it, and open it again. Any thread.
 */
int weft_media_check(const weft_media *a, weft_error *err);
unsigned weft_media_kinds(const weft_media *a);                /* enum weft_medium_kind, added */
unsigned weft_medium_kind_of(const void *data, size_t n);      /* of a file, by its first 4096 bytes; 0: none of them */

/* One picture or sound, as the language model reads it. */
typedef struct weft_medium weft_medium;
enum { WEFT_MEDIUM_BAD = -1, WEFT_MEDIUM_UNABLE = -2, WEFT_MEDIUM_LATER = -3 };
/* Of a whole file of n bytes: PNG, JPEG, WebP; WAV, FLAC, MP3, OGG; name is used in messages.  Encodes it, on the
 * caller's thread and on those of the model, which evaluates nothing else meanwhile.  BAD: a broken file, or a limit;
 * UNABLE: a library is missing, or the encoder fails; LATER: no process to decode in at the moment, or no memory. */
int weft_medium_new(weft_media *a, const void *data, size_t n, const char *name, weft_medium **out, weft_error *err);
int weft_medium_open(weft_media *a, const char *path, weft_medium **out, weft_error *err);     /* of a file */
/* Freed when no evaluation needs its rows any more, and before weft_media_close. NULL is fine. */
void weft_medium_free(weft_medium *x);
size_t weft_medium_n_rows(const weft_medium *x);
/* weft_tokenize of a text in which each marker is one of these, in order; if there is no marker, they stand before the
 * text.  An error: another number of markers. */
int weft_media_tokenize(const weft_media *a, const char *text, size_t n, unsigned flags, weft_medium *const *media,
                        size_t n_media, int32_t **ids, size_t *n_ids, weft_error *err);

WEFT_END
#endif
