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
/* The most positions, n at most, at which q can be cut or forked without some of what is left being evaluated once more
 * before anything can follow (which the next step does): recurrent layers go back by seven positions at most, and
 * layers with a sliding window give back what it has left behind, but 512 positions and what marks ask for.  Otherwise
 * n.  Of such models none that parts a span of rows of floats. */
int weft_sequence_whole(const weft_sequence *q, int n);
/* Others may go on from anywhere between positions `from` and `to`, and are likely to from `to`, which may lie before
 * what q holds or behind it: what windows need there stays at some of these places, in pages that take at most a
 * quarter of what layers without a window hold, or two windows where that is more. */
void weft_sequence_checkpoint(weft_sequence *q, int from, int to);
bool weft_sequence_thin(weft_sequence *q);        /* forgets the marks; whether that gave memory back */
void weft_sequence_cut(weft_sequence *q, int n);               /* forgets what lies from position n on */
/* Removes the n positions from `from` on; those behind them move forward.  ids: the tokens of all positions of q.  What
 * keys and values hold of a token depends on all tokens before it: those behind the gap are evaluated again, in the
 * time of a prompt of that length.  Logits that follow are the same bits as if the tokens had never been there.  -1:
 * positions that q does not hold, a span of rows of floats that would be parted, or no memory; q is as it was. */
int weft_sequence_remove(weft_sequence *q, const int32_t *ids, int from, int n, weft_error *err);
/* Another sequence that begins with the first n positions of q (n <= its length).  Pages are shared until one of the
 * two writes to them. */
int weft_sequence_fork(const weft_sequence *q, int n, weft_sequence **out, weft_error *err);
/* What the tokens of q are multiplied with by the model's adapters, from its next token on: a scale for each of
 * weft_options.adapters, in that order; NULL: those of the options, which every sequence has at first.  If they are
 * others than before, q forgets all that it holds, as that was evaluated with those.  A step may have sequences with
 * different scales.  n: how many there are, for the check that they are as many as adapters.  -1: they are not, or one
 * is no number. */
int weft_sequence_adapt(weft_sequence *q, const float *scales, size_t n, weft_error *err);
/* The same for what is evaluated without a sequence (weft_decode, weft_embed ...). */
int weft_adapt(weft_model *m, const float *scales, size_t n, weft_error *err);
size_t weft_model_n_adapters(const weft_model *m);
/* Whether q has these scales, as many as there are adapters; NULL: those of the options. */
bool weft_sequence_adapts_as(const weft_sequence *q, const float *scales);
/* Files of sequences are named by all that decides what they hold: digests (SHA-256) of all bytes of the model's files
 * and of its adapters, options, devices, and this program. A thread of low priority reads the files for that, from the
 * first call of this or of a function below on; a later run reads nothing if the files' stamps (device, inode, size,
 * times) are those of before. wait_s: seconds to wait for it; negative: as long as it takes. 0: known. 1: not yet;
 * *done (may be NULL) is the share of the files that is read. -1: a file cannot be read, or was changed since the model
 * was loaded: then nothing is kept of what is evaluated. The functions below wait as long as it takes, and those of a
 * store not at all: meanwhile it has nothing. */
int weft_model_content(weft_model *m, double wait_s, double *done, weft_error *err);
/* What the caches hold of q goes to a file, which is written whole or not at all. ids: the tokens of its positions,
 * weft_sequence_length of them. Only where q is whole (weft_sequence_whole) and has the scales of the options
 * (weft_sequence_adapt). Others of the model may be
 * evaluated meanwhile, on another thread, forks of q among them. */
int weft_sequence_save(const weft_sequence *q, const int32_t *ids, const char *path, weft_error *err);
/* A sequence that holds as many of these n tokens as the file's begin with, back to where that is whole, as
 * if they had been evaluated.  -2: the file is of another model, other options or another version, or
 * damaged, and err names it, or weft_model_content fails; -1: there is no memory. */
int weft_sequence_load(weft_model *m, const int32_t *ids, size_t n, const char *path, weft_sequence **out,
                       weft_error *err);
/* The tokens of such a file, for weft_sequence_load, and for weft_free.  1: there is no such file; -2: as above. */
int weft_sequence_tokens(const weft_model *m, const char *path, int32_t **ids, size_t *n, weft_error *err);
/* The same in memory: what weft_sequence_save would write, n bytes, for weft_free.  It holds the tokens, too.  -1: q is
 * not whole or has scales of its own (weft_sequence_adapt), the model has no name (weft_model_content), or there is no
 * memory. */
int weft_sequence_to_memory(const weft_sequence *q, const int32_t *ids, void **state, size_t *n, weft_error *err);
/* A sequence of such bytes, with all tokens that they hold, back to where it is whole.  They are copied.  *ids (NULL:
 * not wanted) are the tokens of its positions, *n_ids of them, for weft_free.  -2: the state is of another model, other
 * options or another version, or damaged; -1: there is no memory. */
int weft_sequence_from_memory(weft_model *m, const void *state, size_t n, weft_sequence **out, int32_t **ids,
                              size_t *n_ids, weft_error *err);
/* Sequences in a folder, a file for each page, named by all tokens up to it and the model: what begins alike is there
 * once, and a prompt finds whatever beginning of it some sequence had. Several models may have the same folder. bytes:
 * of all files there, at most: the pages that were used least lately go first. Files that are damaged stay, with a
 * warning.  -1: the folder cannot be read.  Two threads may use a store, one
 * that finds and loads and one that saves, and other sequences of the model may be evaluated meanwhile. */
typedef struct weft_store weft_store;
int weft_store_open(weft_model *m, const char *folder, uint64_t bytes, weft_store **out, weft_error *err);
void weft_store_close(weft_store *s);             /* before the model; NULL is fine */
/* With how many of these tokens a sequence can be taken up from files. */
size_t weft_store_find(weft_store *s, const int32_t *ids, size_t n);
/* That sequence.  1: there is none any more; -1: there is no memory for it; -2: a file is damaged: err names it, and it
 * has been removed. */
int weft_store_load(weft_store *s, const int32_t *ids, size_t n, weft_sequence **out, weft_error *err);
/* Whether some page of q, which is whole, is in no file; and writes those.  Of a sequence with scales of its own
 * (weft_sequence_adapt) nothing goes there.  ids: the tokens of its positions. */
bool weft_store_lacks(weft_store *s, const weft_sequence *q, const int32_t *ids);
int weft_store_save(weft_store *s, const weft_sequence *q, const int32_t *ids, weft_error *err);
/* Memory for n more tokens, so that a step will not fail for want of it.  -1: there is none; err has the numbers. */
int weft_sequence_reserve(weft_sequence *q, size_t n, weft_error *err);
typedef struct weft_tokens {
  weft_sequence *sequence;   /* each of a step is another one */
  const int32_t *ids;        /* n of them, behind what the sequence holds */
  size_t n;
  const float *logits;       /* out: for the token after the last one, valid until the model evaluates something else */
  size_t rows; /* 0 and 1: that. More: for those after so many of the last ones, a row of weft_model_vocab_size behind
                  the other */
  bool unseen;               /* logits are not wanted of it: a step takes less time; out: NULL */
  bool damaged;              /* out: its logits are no numbers, and `logits` is NULL: see weft_step */
} weft_tokens;
/* At most as many rows of all parts together as weft_model_chunk.  stop (may be NULL) is asked every few
 * milliseconds, also within a kernel that takes long, but not within that of a single token.  0; 1: stop said so, and
 * every sequence is as it was; -1: an unknown id, no room in the context or in memory (and every sequence is as it
 * was), or logits that are no numbers, of each part that has any: weights are damaged, or a scale of an adapter is too
 * large.  If others have numbers, the step is 0, those parts are `damaged`, and err says why. */
int weft_step(weft_model *m, weft_tokens *parts, size_t n_parts, bool (*stop)(void *ctx), void *ctx, weft_error *err);
/* As weft_decode_rows, behind what the sequence holds. */
int weft_sequence_rows(weft_sequence *q, const int32_t *ids, size_t n, size_t first, weft_row *row, void *ctx,
                       weft_error *err);

WEFT_END
#endif
