/* weft/sequence.h: several sequences of one model, in memory, in files and in stores. */
#ifndef WEFT_API_SEQUENCE_H
#define WEFT_API_SEQUENCE_H
#include "model.h"

WEFT_BEGIN

/* ---- Sequences
 *
 * A model can hold many sequences.  Each takes memory for the positions that it holds, in pages of 128, and gives it
 * back when it ends; sequences with the same beginning can share pages.  A step evaluates tokens of several sequences
 * at once: weights are read once for all of them.  The logits of a sequence are the same, to the last bit, whatever
 * else is in a step.
 */
typedef struct weft_sequence weft_sequence;
/* empty; freed before the model is closed */
int weft_sequence_new(weft_model *m, weft_sequence **out, weft_error *err);
void weft_sequence_free(weft_sequence *q);    /* NULL is fine */
/* Whether a sequence has states that go back by more than a few positions only by evaluating what lies before them
 * once more (recurrent layers). */
bool weft_model_is_recurrent(const weft_model *m);
int weft_sequence_length(const weft_sequence *q);              /* positions that it holds */
/* The most positions, at most n, at which q can be cut or forked without evaluating some of the rest again in the next
 * step: recurrent layers go back by at most seven positions, and layers with a sliding window free the positions before
 * their window except 512 and those of checkpoints. For other models n. For models with rows of floats, never inside a
 * span. */
int weft_sequence_whole(const weft_sequence *q, int n);
/* Announces that other sequences may continue from positions between `from` and `to`, most likely from `to`, which may
 * be before or after the end of q: the data that windows need is kept at some of these places, in pages that take at
 * most a quarter of those of layers without a window, or two windows if that is more. */
void weft_sequence_checkpoint(weft_sequence *q, int from, int to);
/* Forgets the marks, and gives back what weft_sequence_reserve reserved. Whether that gave memory back. */
bool weft_sequence_thin(weft_sequence *q);
void weft_sequence_cut(weft_sequence *q, int n);               /* forgets the positions from n on */
/* Removes n positions from `from` on; later ones move forward. ids: the tokens of all positions of q. Keys and values
 * of a token depend on all tokens before it, so those after the gap are evaluated again, in the time of a prompt of
 * that length. Later logits are the same bits as if the tokens had never been there. -1: positions that q does not
 * have, a split span of rows of floats, or no memory; q is unchanged. */
int weft_sequence_remove(weft_sequence *q, const int32_t *ids, int from, int n, weft_error *err);
/* Another sequence that begins with the first n positions of q (n <= its length).  Pages are shared until one of the
 * two writes to them. */
int weft_sequence_fork(const weft_sequence *q, int n, weft_sequence **out, weft_error *err);
/* Sets the scales of the model's adapters for q, from its next token on: one for each of weft_options.adapters, in that
 * order; NULL: those of the options, which every sequence has at first. If they change, q forgets all its positions,
 * which were evaluated with the old ones. A step may have sequences with different scales. n: their number, which must
 * be that of the adapters. -1: it is not, or one is not a number. */
int weft_sequence_adapt(weft_sequence *q, const float *scales, size_t n, weft_error *err);
/* weft_sequence_adapt for evaluations without a sequence (weft_decode, weft_embed ...). */
int weft_adapt(weft_model *m, const float *scales, size_t n, weft_error *err);
/* Finds the activation tokens of adapters (aLoRA: adapter.alora.invocation_tokens) in a prompt: such an adapter applies
 * from the last occurrence of its tokens on, and nowhere without them. Call it before the prompt is evaluated. Returns
 * how many positions of q stay as they are evaluated, INT_MAX: all; q forgets the others. */
int weft_sequence_invoke(weft_sequence *q, const int32_t *ids, size_t n);
/* What weft_sequence_invoke would return; q is unchanged. */
int weft_sequence_stays(const weft_sequence *q, const int32_t *ids, size_t n);
/* weft_sequence_invoke for evaluations without a sequence (weft_decode ...). */
int weft_invoke(weft_model *m, const int32_t *ids, size_t n);
size_t weft_model_n_adapters(const weft_model *m);
/* Whether q has these scales, as many as there are adapters; NULL: those of the options, without activation tokens. */
bool weft_sequence_adapts_as(const weft_sequence *q, const float *scales);
/* Files of sequences are named by all that decides what they hold: digests (SHA-256) of all bytes of the model's files
 * and of its adapters, options, devices, and this program. A thread of low priority reads the files for that, from the
 * first call of this or of a function below on; a later run reads nothing if the files' stamps (device, inode, size,
 * times) are those of before. wait_s: seconds to wait for it; negative: as long as it takes. 0: known. 1: not yet;
 * *done (may be NULL) is the share of the files that is read. -1: a file cannot be read, or was changed since the model
 * was loaded: then nothing is kept of what is evaluated. The functions below wait as long as it takes, and those of a
 * store not at all: meanwhile it has nothing. */
int weft_model_content(weft_model *m, double wait_s, double *done, weft_error *err);
/* Writes the cached positions of q to a file, which appears complete or not at all. ids: the tokens of its positions,
 * weft_sequence_length of them. Only if q is whole (weft_sequence_whole) and has the scales of the options
 * (weft_sequence_adapt). Other sequences of the model, including forks of q, may be evaluated meanwhile on another
 * thread. -2: a file of that name is there, and no saved sequence. */
int weft_sequence_save(const weft_sequence *q, const int32_t *ids, const char *path, weft_error *err);
/* A sequence with the longest common beginning of these n tokens and the file's, reduced to a position where that is
 * whole, as if they had been evaluated. -2: the file is of another model, other options or another version, or damaged,
 * and err names it, or weft_model_content fails; -1: no memory. */
int weft_sequence_load(weft_model *m, const int32_t *ids, size_t n, const char *path, weft_sequence **out,
                       weft_error *err);
/* The tokens of such a file, for weft_sequence_load, and for weft_free.  1: there is no such file; -2: as above. */
int weft_sequence_tokens(const weft_model *m, const char *path, int32_t **ids, size_t *n, weft_error *err);
/* weft_sequence_save to memory: n bytes, for weft_free. They include the tokens. -1: q is not whole or has scales of
 * its own (weft_sequence_adapt), the model is not identified (weft_model_content), or there is no memory. */
int weft_sequence_to_memory(const weft_sequence *q, const int32_t *ids, void **state, size_t *n, weft_error *err);
/* A sequence of such bytes, with all tokens that they hold, back to where it is whole.  They are copied.  *ids (NULL:
 * not wanted) are the tokens of its positions, *n_ids of them, for weft_free.  -2: the state is of another model, other
 * options or another version, or damaged; -1: there is no memory. */
int weft_sequence_from_memory(weft_model *m, const void *state, size_t n, weft_sequence **out, int32_t **ids,
                              size_t *n_ids, weft_error *err);
/* A store of sequences in a folder, with a file for each page, named by all tokens up to it and the model: common
 * beginnings are stored once, and a prompt finds any stored beginning of it. Several models may share a folder. bytes:
 * the limit for all files there; the least recently used pages are removed first. Damaged files stay, with a warning.
 * -1: the folder cannot be read. Two threads may use a store, one that finds and loads and one that saves, while other
 * sequences of the model are evaluated. */
typedef struct weft_store weft_store;
int weft_store_open(weft_model *m, const char *folder, uint64_t bytes, weft_store **out, weft_error *err);
void weft_store_close(weft_store *s);             /* before the model; NULL is fine */
/* How many of these tokens a sequence can be resumed with from files. */
size_t weft_store_find(weft_store *s, const int32_t *ids, size_t n);
/* Loads that sequence. 1: it no longer exists; -1: no memory; -2: a file is damaged: err names it, and it has been
 * removed. */
int weft_store_load(weft_store *s, const int32_t *ids, size_t n, weft_sequence **out, weft_error *err);
/* Whether some page of q, which is whole, is not in a file; weft_store_save writes those. A sequence with scales of its
 * own (weft_sequence_adapt) is not stored. ids: the tokens of its positions. */
bool weft_store_lacks(weft_store *s, const weft_sequence *q, const int32_t *ids);
int weft_store_save(weft_store *s, const weft_sequence *q, const int32_t *ids, weft_error *err);
/* Reserves memory for n more tokens, so that a step will not fail for lack of it. -1: not enough; err has the numbers.
 */
int weft_sequence_reserve(weft_sequence *q, size_t n, weft_error *err);
/* Reserves memory for evaluations without a sequence (weft_decode, weft_embed ...) of n tokens from position 0 on,
 * which replace what the KV cache of those holds. weft_forget: gives its memory back; the next one begins at position
 * 0. */
int weft_reserve(weft_model *m, size_t n, weft_error *err);
void weft_forget(weft_model *m);
typedef struct weft_tokens {
  weft_sequence *sequence;   /* different for each part of a step */
  const int32_t *ids;        /* n of them, after those of the sequence */
  size_t n;
  const float *logits;       /* out: for the token after the last one, valid until the model evaluates something else */
  /* 0 or 1: only those. More: for the tokens after each of this many last ones, in consecutive rows of
   * weft_model_vocab_size */
  size_t rows;
  bool unseen;               /* logits are not wanted: a step takes less time; out: NULL */
  bool damaged;              /* out: its logits are not numbers, and `logits` is NULL: see weft_step */
} weft_tokens;
/* Evaluates one step; the rows of all parts together are at most weft_model_chunk. stop (may be NULL) is called every
 * few milliseconds, also within a long kernel, but not within that of a single token. 0; 1: stop ended it, and every
 * sequence is unchanged; -1: an unknown id, no room in the context or in memory (and every sequence is unchanged), or
 * logits of all parts that are not numbers: weights are damaged, or an adapter's scale is too large. If only some parts
 * are affected, the step returns 0, those parts are `damaged`, and err says why. */
int weft_step(weft_model *m, weft_tokens *parts, size_t n_parts, bool (*stop)(void *ctx), void *ctx, weft_error *err);
/* weft_decode_rows after the positions of the sequence. */
int weft_sequence_rows(weft_sequence *q, const int32_t *ids, size_t n, size_t first, weft_row *row, void *ctx,
                       weft_error *err);

WEFT_END
#endif
