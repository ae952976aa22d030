// The public API for sequences and steps (include/weft.h): argument checks over the engine.
#include "weft.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine/content.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "engine/page_store.h"

struct weft_sequence { weft_model *m; sequence *q; };

int weft_sequence_new(weft_model *m, weft_sequence **out, weft_error *err) {
  error e = {0};
  sequence *q;
  if (engine_sequence_new(weft_model_beside(m), &q, &e)) return fail(err, &e);
  *out = xmalloc(sizeof **out);
  **out = (weft_sequence){m, q};
  return 0;
}

sequence *weft_sequence_of(weft_sequence *q) { return q->q; }

void weft_sequence_free(weft_sequence *q) {
  if (!q) return;
  sequence_free(q->q);
  free(q);
}

bool weft_model_is_recurrent(const weft_model *m) { return engine_is_recurrent(weft_model_peek(m)); }
int weft_sequence_length(const weft_sequence *q) { return q->q->n; }
int weft_sequence_whole(const weft_sequence *q, int n) {
  const sequence *s = q->q;
  int whole = sequence_whole(s, n < 0 ? 0 : n < s->n ? n : s->n);
  while (s->ids.n && whole < n) {
    int cut = (int)float_rows_cut(s->ids.at, (size_t)whole, s->ids.n), of = sequence_whole(s, cut);
    if (of == whole) break;
    whole = of;
  }
  return whole;
}
void weft_sequence_checkpoint(weft_sequence *q, int from, int to) {
  sequence_checkpoint(q->q, from < 0 ? 0 : from, to);
}
bool weft_sequence_thin(weft_sequence *q) { return sequence_thin(q->q); }
void weft_sequence_cut(weft_sequence *q, int n) { sequence_cut(q->q, n < 0 ? 0 : n); }

int weft_sequence_fork(const weft_sequence *q, int n, weft_sequence **out, weft_error *err) {
  error e = {0};
  sequence *to;
  if (sequence_fork(q->q, n, &to, &e)) return fail(err, &e);
  *out = xmalloc(sizeof **out);
  **out = (weft_sequence){q->m, to};
  return 0;
}

// ---- adapters -------------------------------------------------------------------------------------------------------

static int adapt_sequence(sequence *q, const float *scales, size_t n, weft_error *err) {
  size_t have = (size_t)model_n_adapters(q->of->m);
  if (scales && n != have) FAIL(err, "%zu scales of adapters, and the model has %zu adapters", n, have);
  for (size_t i = 0; scales && i < n; i++)
    if (!isfinite(scales[i])) FAIL(err, "the scale of adapter %zu must be a number, not %g", i, (double)scales[i]);
  sequence_adapt(q, scales ? scales : model_adapter_scales(q->of->m));
  return 0;
}

int weft_sequence_adapt(weft_sequence *q, const float *scales, size_t n, weft_error *err) {
  return adapt_sequence(q->q, scales, n, err);
}

int weft_adapt(weft_model *m, const float *scales, size_t n, weft_error *err) {
  return adapt_sequence(engine_sequence(weft_model_engine(m)), scales, n, err);
}

size_t weft_model_n_adapters(const weft_model *m) {
  return (size_t)model_n_adapters(engine_sequence(weft_model_beside((weft_model *)(uintptr_t)m))->of->m);
}

bool weft_sequence_adapts_as(const weft_sequence *q, const float *scales) {
  if (!scales && q->q->starts) return false;
  return sequence_adapts_as(q->q, scales ? scales : model_adapter_scales(q->q->of->m));
}

int weft_sequence_invoke(weft_sequence *q, const int32_t *ids, size_t n) { return sequence_invoke(q->q, ids, n); }
int weft_sequence_stays(const weft_sequence *q, const int32_t *ids, size_t n) { return sequence_stays(q->q, ids, n); }
int weft_invoke(weft_model *m, const int32_t *ids, size_t n) {
  int stays = sequence_invoke(engine_sequence(weft_model_beside(m)), ids, n);
  weft_model_keep(m, stays);
  return stays;
}

static const char own_scales[] = "a sequence with scales of adapters of its own is kept in no file and in no state";

// ---- in files -------------------------------------------------------------------------------------------------------

int weft_model_content(weft_model *m, double wait_s, double *done, weft_error *err) {
  error e = {0};
  char of[CONTENT_NAME];
  int status = content_name(engine_content(weft_model_peek(m)), wait_s, of, done, &e);
  return status < 0 ? fail(err, &e) : status;
}

// Without a name, no saved sequence matches the model.
static int name_of(const engine *at, char of[CONTENT_NAME], error *e) {
  return content_name(engine_content(at), -1, of, NULL, e) ? BAD_FILE : 0;
}

int weft_sequence_save(const weft_sequence *q, const int32_t *ids, const char *path, weft_error *err) {
  error e = {0};
  char of[CONTENT_NAME];
  if (!weft_sequence_adapts_as(q, NULL)) FAIL(err, "%s", own_scales);
  if (name_of(weft_model_peek(q->m), of, &e)) return fail(err, &e);
  int status = sequence_save(q->q, ids, of, path, &e);
  if (status) fail(err, &e);
  return status;
}

static int tokens_in_source(const weft_model *m, const state_source *from, int32_t **ids, size_t *n, weft_error *err) {
  error e = {0};
  char of[CONTENT_NAME];
  engine *at = weft_model_beside((weft_model *)(uintptr_t)m);
  *ids = NULL;
  int status = name_of(at, of, &e);
  if (!status) status = sequence_tokens(engine_caches(at), engine_n_ctx(at), of, from, ids, n, &e);
  if (status) { fail(err, &e); return status == NO_FILE ? 1 : status; }
  size_t i = 0;
  weft_error why;
  // other negative ids are rows of floats
  while (i < *n && ((*ids)[i] < -1 || !weft_check_ids(*ids + i, 1, engine_n_vocab(at), &why))) i++;
  if (i == *n) return 0;
  free(*ids);
  *ids = NULL;
  error_set(&e, "%s: %s", from->path, why.text);
  fail(err, &e);
  return BAD_FILE;
}

int weft_sequence_tokens(const weft_model *m, const char *path, int32_t **ids, size_t *n, weft_error *err) {
  return tokens_in_source(m, &(state_source){.path = path}, ids, n, err);
}

static int load_source(weft_model *m, const int32_t *ids, size_t n, const state_source *from, weft_sequence **out,
                     weft_error *err) {
  error e = {0};
  char of[CONTENT_NAME];
  sequence *q;
  engine *at = weft_model_beside(m);
  int status = name_of(at, of, &e);
  if (!status) status = sequence_load(engine_caches(at), ids, n, engine_n_ctx(at), of, from, &q, &e);
  if (status) { fail(err, &e); return status; }
  *out = xmalloc(sizeof **out);
  **out = (weft_sequence){m, q};
  return 0;
}

int weft_sequence_load(weft_model *m, const int32_t *ids, size_t n, const char *path, weft_sequence **out,
                       weft_error *err) {
  return load_source(m, ids, n, &(state_source){.path = path}, out, err);
}

int weft_sequence_to_memory(const weft_sequence *q, const int32_t *ids, void **state, size_t *n, weft_error *err) {
  error e = {0};
  char of[CONTENT_NAME];
  str s = {0};
  if (!weft_sequence_adapts_as(q, NULL)) FAIL(err, "%s", own_scales);
  if (name_of(weft_model_peek(q->m), of, &e)) return fail(err, &e);
  if (sequence_to_memory(q->q, ids, of, &s, &e)) {
    str_free(&s);
    return fail(err, &e);
  }
  *state = s.at;
  *n = s.n;
  return 0;
}

int weft_sequence_from_memory(weft_model *m, const void *state, size_t n, weft_sequence **out, int32_t **ids,
                              size_t *n_ids, weft_error *err) {
  const state_source from = {"state", state ? state : "", state ? n : 0};
  int32_t *all;
  size_t n_all;
  int status = tokens_in_source(m, &from, &all, &n_all, err);
  if (status) return status;
  status = load_source(m, all, n_all, &from, out, err);
  if (!status && n_ids) *n_ids = (size_t)(*out)->q->n;
  if (!status && ids) *ids = all;
  else free(all);
  return status;
}

// ---- in a folder ----------------------------------------------------------------------------------------------------

struct weft_store { weft_model *m; page_store *s; };

int weft_store_open(weft_model *m, const char *folder, uint64_t bytes, weft_store **out, weft_error *err) {
  error e = {0};
  char of[CONTENT_NAME];
  page_store *s;
  struct page_folder where = {folder, bytes};
  engine *at = weft_model_beside(m);
  if (name_of(at, of, &e) || page_store_open(engine_caches(at), of, engine_n_ctx(at), &where, &s, &e))
    return fail(err, &e);
  *out = xmalloc(sizeof **out);
  **out = (weft_store){m, s};
  return 0;
}

void weft_store_close(weft_store *s) {
  if (!s) return;
  page_store_close(s->s);
  free(s);
}

// Does the model still compute what the store was opened for?
static bool still_holds(const weft_store *s) { return !weft_model_content(s->m, 0, NULL, NULL); }

size_t weft_store_find(weft_store *s, const int32_t *ids, size_t n) {
  return still_holds(s) ? page_store_find(s->s, ids, n) : 0;
}

int weft_store_load(weft_store *s, const int32_t *ids, size_t n, weft_sequence **out, weft_error *err) {
  error e = {0};
  sequence *q;
  int status = still_holds(s) ? page_store_load(s->s, ids, n, &q, &e) : 1;
  if (status) { if (status < 0) fail(err, &e); return status; }
  *out = xmalloc(sizeof **out);
  **out = (weft_sequence){s->m, q};
  return 0;
}

bool weft_store_lacks(weft_store *s, const weft_sequence *q, const int32_t *ids) {
  return weft_sequence_adapts_as(q, NULL) && still_holds(s) && page_store_lacks(s->s, q->q, ids);
}

int weft_store_save(weft_store *s, const weft_sequence *q, const int32_t *ids, weft_error *err) {
  error e = {0};
  if (!weft_sequence_adapts_as(q, NULL)) return 0;
  if (weft_model_content(s->m, 0, NULL, err)) FAIL(err, "what the model's files hold is not known any more");
  return page_store_save(s->s, q->q, ids, &e) ? fail(err, &e) : 0;
}

// ---- steps ----------------------------------------------------------------------------------------------------------

// Can n tokens follow what q holds?
static int check_more(const weft_sequence *q, const int32_t *ids, size_t n, weft_error *err) {
  int n_ctx = engine_n_ctx(weft_model_beside(q->m));
  if (n == 0) FAIL(err, "there are no tokens to evaluate");
  if (n > (size_t)(n_ctx - q->q->n))
    FAIL(err, "%zu tokens from position %d on do not fit the context of %d", n, q->q->n, n_ctx);
  return weft_check_prompt(q->m, ids, n, err);
}

int weft_sequence_reserve(weft_sequence *q, size_t n, weft_error *err) {
  error e = {0};
  int n_ctx = engine_n_ctx(weft_model_beside(q->m)), from = q->q->n;
  if (n > (size_t)(n_ctx - from))
    FAIL(err, "%zu tokens from position %d on do not fit the context of %d", n, from, n_ctx);
  return sequence_hold(q->q, from, from + (int)n, &e) ? fail(err, &e) : 0;
}

int weft_reserve(weft_model *m, size_t n, weft_error *err) {
  error e = {0};
  engine *of = weft_model_engine(m);
  if (n > (size_t)engine_n_ctx(of)) FAIL(err, "%zu tokens do not fit the context of %d", n, engine_n_ctx(of));
  weft_forget(m);
  return sequence_hold(engine_sequence(of), 0, (int)n, &e) ? fail(err, &e) : 0;
}

void weft_forget(weft_model *m) { sequence_clear(engine_sequence(weft_model_engine(m))); }

int weft_sequence_rows(weft_sequence *q, const int32_t *ids, size_t n, size_t first, weft_row *row, void *ctx,
                       weft_error *err) {
  if (check_more(q, ids, n, err)) return -1;
  if (first >= n) FAIL(err, "logits from token %zu on are wanted, but there are %zu tokens", first, n);
  struct checked_rows r = {.m = q->m, .pos = q->q->n, .row = row, .ctx = ctx};
  engine_part p = {
    .q = q->q, .ids = ids, .n = n, .pos = q->q->n, .rows = n - first, .row = weft_checked_row, .ctx = &r};
  int status = engine_run(weft_model_beside(q->m), &(engine_batch){.parts = &p, .n = 1}, &r.e);
  return status < 0 || r.e.text[0] ? fail(err, &r.e) : 0;
}

static size_t n_rows(const weft_tokens *t) { return t->unseen ? 0 : t->rows ? t->rows : 1; }

static bool is_damaged(const weft_model *m, const engine_part *p, error *e) {
  size_t n_vocab = (size_t)engine_n_vocab(weft_model_peek(m));
  for (size_t k = 0; k < p->rows; k++)
    if (weft_check_logits(m, p->logits + k * n_vocab, p->q->n - (int)(p->rows - k), e)) return true;
  return false;
}

int weft_step(weft_model *m, weft_tokens *parts, size_t n_parts, bool (*enough)(void *ctx), void *ctx,
              weft_error *err) {
  if (!n_parts) FAIL(err, "a step of no sequences");
  size_t rows = 0;
  for (size_t i = 0; i < n_parts; i++) rows += n_rows(&parts[i]);
  if (rows > (size_t)engine_chunk(weft_model_beside(m)))
    FAIL(err, "%zu rows in a step; there can be %d", rows, engine_chunk(weft_model_beside(m)));
  for (size_t i = 0; i < n_parts; i++) {
    if (!parts[i].sequence || parts[i].sequence->m != m) FAIL(err, "part %zu is of no sequence of this model", i);
    for (size_t j = 0; j < i; j++)
      if (parts[j].sequence == parts[i].sequence) FAIL(err, "parts %zu and %zu are of the same sequence", j, i);
    if (check_more(parts[i].sequence, parts[i].ids, parts[i].n, err)) return -1;
    if (parts[i].rows > parts[i].n)
      FAIL(err, "logits of %zu tokens are wanted, but part %zu has %zu", parts[i].rows, i, parts[i].n);
  }
  error e = {0};
  engine_part *p = xcalloc(n_parts, sizeof *p);
  for (size_t i = 0; i < n_parts; i++)
    p[i] = (engine_part){.q = parts[i].sequence->q,
                         .ids = parts[i].ids,
                         .n = parts[i].n,
                         .pos = parts[i].sequence->q->n,
                         .rows = n_rows(&parts[i])};
  engine_batch batch = {.parts = p, .n = n_parts, .stop = enough, .ctx = ctx};
  int status = engine_run(weft_model_beside(m), &batch, &e);
  size_t sound = 0, damaged = 0;
  for (size_t i = 0; i < n_parts; i++) {
    parts[i].damaged = !status && is_damaged(m, &p[i], &e);
    parts[i].logits = status || parts[i].damaged ? NULL : p[i].logits;
    damaged += parts[i].damaged;
    sound += parts[i].logits != NULL;
  }
  free(p);
  if (damaged) fail(err, &e);
  return status < 0 ? fail(err, &e) : damaged && !sound ? -1 : status;
}

// ---- positions in the middle ----------------------------------------------------------------------------------------

// Evaluates ids after what q holds, without logits.
static int add_unseen(weft_sequence *q, const int32_t *ids, size_t n, weft_error *err) {
  size_t most = (size_t)weft_model_chunk(q->m);
  for (size_t at = 0, piece; at < n; at += piece) {
    piece = weft_piece_of(q->m, ids + at, n - at, most);
    weft_tokens part = {.sequence = q, .ids = ids + at, .n = piece, .unseen = true};
    if (weft_step(q->m, &part, 1, NULL, NULL, err)) return -1;
  }
  return 0;
}

int weft_sequence_remove(weft_sequence *q, const int32_t *ids, int from, int n, weft_error *err) {
  int all = q->q->n;
  if (from < 0 || n < 0 || n > all - from)
    FAIL(err, "%d positions from %d on cannot be removed: the sequence holds %d", n, from, all);
  int end = from + n;
  if (float_rows_cut(ids, (size_t)from, (size_t)all) != (size_t)from ||
      float_rows_cut(ids, (size_t)end, (size_t)all) != (size_t)end)
    FAIL(err, "positions %d to %d cannot be removed: that would part a span of rows of floats", from, end);
  weft_sequence *other;
  if (!n) return 0;
  if (weft_sequence_fork(q, from, &other, err)) return -1;
  sequence_removed(other->q, from, n);
  int status = add_unseen(other, ids + end, (size_t)(all - end), err);
  if (!status) {
    sequence *before = q->q;
    q->q = other->q;
    other->q = before;
  }
  weft_sequence_free(other);
  return status ? -1 : 0;
}
