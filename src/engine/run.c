// Evaluates tokens of one or several sequences in runs of plans. See engine.h.
//
// A prompt of n tokens runs as chunks without logits, then its last token alone or in one run with the last tokens of
// other sequences. Rows of floats (float_rows.h) run in chunks that support them.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/attempt.h"
#include "device/memory.h"
#include "engine/float_rows.h"
#include "engine/follow.h"
#include "engine/plans.h"
#include "engine/tune.h"

// Memory begins as plain pages, which are cheap to touch, and moves into huge pages, which are faster to read, between
// runs: in a small share of the run time, so that no token is delayed. Full parts of the caches follow.
enum { SETTLE_PERCENT = 5 };

void engine_watch(engine *e, engine_go_on *go_on, void *ctx) {
  e->ask.go_on = go_on;
  e->ask.ctx = ctx;
}

bool engine_ended(const engine *e) { return e->ask.ended; }

int engine_check(const engine *e, error *err) {
  fail_if(e->broken.text[0], err, "%s: %s", gguf_path(e->file), e->broken.text);
  for (int i = 0; i < e->layer_split.n; i++) if (device_owned(e->layer_split.at[i].d, err)) return -1;
  return 0;
}

static bool ask_go_on(void *ctx, double part) {
  engine *e = ctx;
  double through = e->ask.share + part / e->layer_split.n;
  return e->ask.go_on(e->ask.ctx, e->ask.done + through * e->ask.now);
}

static bool promote_pages(engine *e, double seconds) {
  for (int i = 0; i < e->layer_split.n; i++) if (!weights_promote_pages(&e->now->w[i], seconds)) return false;
  return caches_promote_pages(&e->caches, seconds);
}

typedef struct running { engine *e; planned *of; const plan_var *vars; int n_vars; } running;

static void run_all(void *ctx) {
  const running *r = ctx;
  engine *e = r->e;
  const plan_spec *spec = &r->of->spec;
  double start = now_s();
  bool one = spec->tokens == 1 && !spec->mtp, whole = one || spec->sums || spec->logits == LOGITS_HIDDEN, ended = false;
  bool asking = e->ask.go_on && !whole;
  for (int i = 0; i < e->layer_split.n && !ended; i++) {
    plan *p = r->of->at[i].p;
    e->ask.share = (double)i / e->layer_split.n;
    if (e->online_tuner && one && p == e->tuned) online_tuner_run(e->online_tuner, r->vars, r->n_vars);
    else if (asking) ended = !plan_run_asking(p, r->vars, r->n_vars, ask_go_on, e);
    else plan_run(p, r->vars, r->n_vars);
  }
  e->ask.ended |= ended;
  double end = now_s();
  e->settle_s += (end - start) * SETTLE_PERCENT / 100;
  if (e->settle_s <= 0) return;
  bool all = promote_pages(e, e->settle_s);
  e->settle_s = all ? 0 : e->settle_s - (now_s() - end);
}

// Makes the plan if necessary; false on failure.
static bool ready(engine *e, const plan_spec *spec) {
  if (e->broken.text[0] || !need_plan(e, spec, &e->ask.why)) return true;
  return !(e->ask.ended = true);
}

// Runs nothing if a plan cannot be made or after a broken invariant: sound() gives the reason.
static void run_plans(engine *e, const plan_spec *spec, const plan_var *vars, int n_vars) {
  if (!ready(e, spec)) return;
  running r = {e, plans_of(e, spec), vars, n_vars};
  if (!e->broken.text[0] && attempt(ATTEMPT_LEAVES, run_all, &r, &e->broken)) follow_broken(e);
  e->ask.ended |= e->broken.text[0] != 0;
}

void engine_promote_pages(engine *e) { while (!promote_pages(e, 1)) continue; }

// Sets the inputs of single-sequence plans to this sequence.
void choose_sequence(engine *e, const sequence *q) {
  for (int g = 0; g < model_n_groups(e->m); g++) {
    const page_list *list = &q->group[g];
    int32_t *table = e->pages + g * page_table(e);
    for (size_t i = 0; i < list->n; i++) table[i] = list->at[i] == NO_PAGE ? 0 : list->at[i];
  }
  e->slot = q->slot;
}

// ---- tokens of a run ------------------------------------------------------------------------------------------------

// Sets the rope positions of the token at place `at`, row i of a run; span: its row of floats, NULL if it is a token.
static void place_turns(engine *e, const sequence *q, size_t i, int at, const float_rows *span, size_t row) {
  int from = at - (span ? (int)row : 0), first = from + sequence_shift(q, from);
  for (int k = 0; e->turns && k < 3; k++)
    e->turns[3 * i + (size_t)k] = first + (span ? span->turns[3 * row + (size_t)k] : 0);
}

// Sets the adapter scales of row i, at position pos.
static void place_scales(engine *e, const sequence *q, size_t i, int pos) {
  size_t n = (size_t)model_n_adapters(e->m);
  for (size_t k = 0; k < n; k++)
    e->scales[i * n + k] = pos < sequence_adapter_start(q, (int)k) ? 0 : sequence_scales(q)[k];
}

// For a model with an encoder: sets the number of source places that row i reads.
static void place_source(engine *e, const sequence *q, size_t i) {
  if (e->source) e->source[i] = q->source;
}

static void place_floats(engine *e, size_t i, const float_rows *span, size_t row) {
  size_t n = (size_t)model_n_floats(e->m);
  memcpy(e->floats + i * n, span->at + row * n, n * sizeof *e->floats);
}

// Sets the inputs of a run of m tokens of q from pos on.
static void place_tokens(engine *e, const sequence *q, const plan_spec *spec, const int32_t *ids, size_t m, int pos) {
  memcpy(e->ids, ids, m * sizeof *ids);
  for (size_t i = 0; i < m; i++) place_source(e, q, i);
  for (size_t i = 0; e->scales && i < m; i++) place_scales(e, q, i, pos + (int)i);
  for (size_t i = 0; (spec->floats || e->turns) && i < m; i++) {
    size_t row = 0;
    const float_rows *span = ids[i] < 0 ? float_rows_find(e->float_table, ids[i], &row) : NULL;
    if (span) place_floats(e, i, span, row);
    place_turns(e, q, i, pos + (int)i, span, row);
    size_t last = span && span->both ? i + span->n - 1 - row : i;
    e->last[i] = pos + (int)(last < m ? last : m - 1);
  }
}

static void eval_one(engine *e, const sequence *q, int32_t id, int pos) {
  const plan_spec spec = spec_one();
  place_tokens(e, q, &spec, &id, 1, pos);
  run_plans(e, &spec, &(plan_var){"pos", pos}, 1);
}

static void eval_each(engine *e, const sequence *q, const int32_t *ids, size_t n, int pos) {
  for (; n; ids++, n--, pos++) eval_one(e, q, *ids, pos);
}

static bool some_floats(const int32_t *ids, size_t n) {
  for (size_t i = 0; i < n; i++) if (ids[i] < 0) return true;
  return false;
}

// For a token in a span whose rows see each other in both directions: the number of rows before it; *n: all of them.
static size_t rows_before(const engine *e, int32_t id, size_t *n) {
  size_t row = 0;
  const float_rows *span = id < 0 ? float_rows_find(e->float_table, id, &row) : NULL;
  *n = span ? span->n : 0;
  return span && span->both ? row : 0;
}

// How many of n tokens from pos on to evaluate at once. A bidirectional span is not cut: the run ends before it or, if
// it begins with it, after it.
static size_t chunk_length(const engine *e, const int32_t *ids, size_t n, int pos) {
  int block = model_block(e->m);
  size_t m = n < (size_t)e->chunk ? n : (size_t)e->chunk, all;
  if (block && m > (size_t)(block - pos % block)) m = (size_t)(block - pos % block);
  for (size_t i = 1; model_has_source(e->m) && i < m; i++) if ((ids[i] < 0) != (ids[0] < 0)) m = i;
  if (m == n || model_has_source(e->m)) return m;
  size_t before = rows_before(e, ids[m], &all);
  if (!before) return m;
  return before < m ? m - before : (size_t)min_i64((int64_t)n, (int64_t)(m + all - before));
}

// The plan spec for a run of these tokens.
static plan_spec spec_for(const engine *e, plan_spec spec, const int32_t *ids, size_t n) {
  spec.floats = some_floats(ids, n);
  for (size_t i = 0; spec.floats && !spec.both && i < n; i++) {
    const float_rows *span = ids[i] < 0 ? float_rows_find(e->float_table, ids[i], NULL) : NULL;
    spec.both = span && span->both;
  }
  return spec;
}

static void eval_run(engine *e, const sequence *q, const plan_spec *spec, const int32_t *ids, size_t m, int pos) {
  if (!ready(e, spec)) return;
  place_tokens(e, q, spec, ids, m, pos);
  e->ask.now = (double)m;
  run_plans(e, spec, (plan_var[]){{"n", (int64_t)m}, {"pos", pos}}, 2);
  e->ask.done += (double)m;
}

// Checks that device and file are unchanged. If bytes of the file were changed in place, only some of them are read
// again, so that is reported once.
static int sound(engine *e, error *err) {
  enum stamp_change change;
  error why = e->ask.why;
  e->ask.why.text[0] = 0;
  if (why.text[0]) return error_set(err, "%s", why.text);
  if (engine_check(e, err)) return -1;
  for (int i = 0; i < e->layer_split.n; i++) if (device_check(e->layer_split.at[i].d, err)) return -1;
  if (gguf_check(e->file, &change, err)) return -1;
  if (change == STAMP_WRITTEN && !e->told)
    warning("%s: was written to while it is in use: answers may be those of neither file; load it again",
            gguf_path(e->file));
  e->told |= change == STAMP_WRITTEN;
  return 0;
}

// The plan for a chunk of a prompt, preferring existing plans: the end of a long prompt is not worth a new one.
static plan_spec chunk_plan(const engine *e, size_t n) {
  plan_spec whole = spec_many(e, LOGITS_NONE, (size_t)e->room), spec = spec_many(e, LOGITS_NONE, n);
  return spec.tokens < whole.tokens && !plan_of(e, &spec) ? whole : spec;
}

// Up to this many tokens run one at a time rather than as a chunk. A chunk of two is no slower, but its plan is not
// made for a few tokens.
static size_t few(const engine *e) {
  plan_spec least = chunk_plan(e, 1);
  return plan_of(e, &least) ? 1 : FEW;
}

// Evaluates n tokens as chunks, except the `last` ones and a few before them, which contain no rows of floats. Returns
// the number left.
static size_t eval_chunks(engine *e, const sequence *q, const int32_t *ids, size_t n, size_t last, int pos) {
  for (size_t m; (n > few(e) + last || some_floats(ids, n - last)) && !e->ask.ended; ids += m, n -= m, pos += (int)m) {
    m = chunk_length(e, ids, n - last, pos);
    plan_spec spec = some_floats(ids, m) ? spec_for(e, spec_span(e, LOGITS_NONE, m), ids, m) : chunk_plan(e, n - last);
    eval_run(e, q, &spec, ids, m, pos);
  }
  return n;
}

// How many of the last of n tokens must be in the run that computes the logits of the last one.
static size_t last_run(const engine *e, const int32_t *ids, size_t n) {
  size_t all;
  return 1 + (size_t)min_i64((int64_t)n - 1, (int64_t)rows_before(e, ids[n - 1], &all));
}

static void eval_last(engine *e, const sequence *q, const int32_t *ids, size_t n, int pos) {
  if (e->ask.ended) return;
  if (ids[0] >= 0) { eval_one(e, q, ids[0], pos); return; }
  plan_spec spec = spec_for(e, spec_span(e, LOGITS_LAST, n), ids, n);
  eval_run(e, q, &spec, ids, n, pos);
}

static void eval_ids(engine *e, const sequence *q, const int32_t *ids, size_t n, int pos) {
  size_t last = last_run(e, ids, n), left = eval_chunks(e, q, ids, n, last, pos);
  if (e->ask.ended) return;
  eval_each(e, q, ids + n - left, left - last, pos + (int)(n - left));
  eval_last(e, q, ids + n - last, last, pos + (int)(n - last));
}

// ---- before and after -----------------------------------------------------------------------------------------------

// Holds the span of this id until the run has ended, even if it is released meanwhile. NULL: none.
static const float_rows *hold_span(engine *e, int32_t id, size_t *row) {
  float_rows *span = float_rows_find_held(e->float_table, id, row);
  if (span && e->held.n && e->held.at[e->held.n - 1] == span) float_rows_drop(span);
  else if (span) vec_push(&e->held, span);
  return span;
}

// For ids[i] outside the vocabulary: is it a row of floats at its right place?
static int check_row(engine *e, const sequence *q, const int32_t *ids, size_t i, size_t n, int pos, error *err) {
  size_t row;
  const float_rows *span = hold_span(e, ids[i], &row);
  fail_if(!span, err, "%s: token %d of %d", gguf_path(e->file), ids[i], model_n_vocab(e->m));
  if (!float_rows_are_there(span)) return error_set(err, "the floats of token %d have not been given", ids[i]);
  if (i ? row && ids[i - 1] != span->ids[row - 1] : !sequence_row_follows(q, span, row, pos))
    return error_set(err, "row %zu of %zu rows of floats does not follow the one before it", row, span->n);
  if (!span->both) return 0;
  if ((row && !i) || i + span->n - row > n)
    return error_set(err, "%zu rows that see each other both ways must be evaluated together", span->n);
  int64_t room = spec_span(e, LOGITS_NONE, span->n).tokens;
  if (room <= e->room) return 0;
  if (room > e->most || e->layer_split.n > 1 || pos + (int64_t)(i - row) > e->ctx - room)
    return error_set(err, "%zu rows that see each other both ways do not go through at once here: at most %lld do",
                     span->n, (long long)(e->layer_split.n > 1 ? e->room : e->most));
  e->caches.chunk = max_i64(e->caches.chunk, room);
  return 0;
}

// Positions before pos are evaluated again: are all of their rows of floats available?
static int check_again(engine *e, const sequence *q, int pos, error *err) {
  for (int i = sequence_whole(q, pos); i < pos; i++) {
    const float_rows *span = q->ids.at[i] < 0 ? hold_span(e, q->ids.at[i], NULL) : NULL;
    if (q->ids.at[i] < 0 && !(span && float_rows_are_there(span)))
      return error_set(
        err, "position %d has to be evaluated once more, and it is a row of floats that is no longer held", i);
  }
  return 0;
}

// Before n tokens from pos on are evaluated: gets memory for them, and a plan for prompts if at least `prompt` tokens
// need one.
static int prepare_eval(engine *e, sequence *q, const int32_t *ids, size_t n, int pos, size_t prompt, error *err) {
  fail_if(!n || pos < 0 || n > (size_t)(e->n_ctx - pos), err, "%s: %zu tokens at %d of %d",
          gguf_path(e->file), n, pos, e->n_ctx);
  for (size_t i = 0; i < n; i++) {
    fail_if(ids[i] >= model_n_vocab(e->m), err, "%s: token %d of %d", gguf_path(e->file), ids[i], model_n_vocab(e->m));
    if (ids[i] < 0 && check_row(e, q, ids, i, n, pos, err)) return -1;
  }
  bool again = !sequence_is_whole(q, pos);               // positions before pos are evaluated again
  if (sound(e, err) || (again && check_again(e, q, pos, err)) ||
      (again && sequence_hold_again(q, pos, pos + (int)n, err)) ||
      sequence_hold(q, pos, pos + (int)n, err))
    return -1;
  if (again && pos > FEW && (size_t)pos > prompt) prompt = (size_t)pos;
  plan_spec spec = spec_many(e, LOGITS_NONE, prompt);
  if (!prompt || plan_of(e, &spec)) return 0;
  if (need_plan(e, &spec, err)) return -1;
  if (q == e->own && !pos && e->number < 0) {
    engine_go_on *go_on = e->ask.go_on;
    bool adapted = e->adapted;
    choose_sequence(e, q);
    e->ask.go_on = NULL;
    tune_from_env(e, true);                              // searches write to the caches before the caller's evaluation
    e->ask.go_on = go_on;
    e->adapted = adapted;
  }
  return 0;
}

// Then: makes this sequence current, with fixed states and windows as of pos.
static void enter_sequence(engine *e, sequence *q, const int32_t *ids, size_t n, int pos) {
  choose_sequence(e, q);
  e->ask.done = 0;
  e->ask.ended = false;
  bool anew = !sequence_whole(q, pos);
  if (caches_keep_ids(&e->caches)) {
    int whole = sequence_whole(q, pos);
    if (whole < pos) eval_ids(e, q, q->ids.at + whole, (size_t)(pos - whole), whole);
    if (!e->ask.ended) sequence_is_renewed(q, pos);
    q->ids.n = (size_t)pos;
    for (size_t i = 0; i < n; i++) vec_push(&q->ids, ids[i]);
  }
  sequence_place_floats(q, e->float_table, ids, n, pos);
  q->n = q->at = pos + (int)n;
  q->back = model_back(e->m, anew ? 0 : q->back, q->at);
  q->evaluations++;
}

// Ends an evaluation that began at pos; early: it was cancelled.
static void end_eval(sequence *q, int pos, bool early) {
  if (!early) { sequence_trim(q); return; }
  sequence_cut(q, pos);
  q->at = -1;
}

// For a part that is evaluated alone
static int begin_part(engine *e, const engine_part *p, size_t prompt, error *err) {
  if (prepare_eval(e, p->q, p->ids, p->n, p->pos, prompt, err)) return -1;
  enter_sequence(e, p->q, p->ids, p->n, p->pos);
  return 0;
}

// ---- parts that are evaluated alone ---------------------------------------------------------------------------------

// Evaluates tokens of p from `at` on with a plan of this spec; returns their number, 0 if cancelled.
static size_t eval_chunk(engine *e, const engine_part *p, plan_spec spec, size_t at, size_t n) {
  size_t m = chunk_length(e, p->ids + at, n - at, p->pos + (int)at);
  spec = spec_for(e, spec, p->ids + at, m);
  if (spec.floats) spec.tokens = max_i64(spec.tokens, spec_span(e, spec.logits, m).tokens);
  if (spec.logits != LOGITS_NONE && spec.tokens > e->room) {
    error_set(&e->ask.why, "%zu rows that see each other both ways are too many for what is wanted of each", m);
    e->ask.ended = true;
  }
  if (!e->ask.ended) eval_run(e, p->q, &spec, p->ids + at, m, p->pos + (int)at);
  return e->ask.ended ? 0 : m;
}

static int end_part(engine *e, engine_part *p, size_t evaluated, error *err) {
  bool early = e->ask.ended;
  p->evaluated = early ? 0 : evaluated;
  if (!early) p->q->n = p->q->at = p->pos + (int)evaluated;
  if (p->q->back > p->q->at) p->q->back = p->q->at;
  end_eval(p->q, p->pos, early);
  return sound(e, err) ? -1 : early;
}

// Every row of a plan costs time, including unused ones, so a few rows have their own plan.
static int64_t rows_tokens(size_t n) { return n <= FEW ? FEW : TILE; }

// Passes the logits of the last p->rows tokens to p->row.
static int run_each_row(engine *e, engine_part *p, error *err) {
  size_t first = p->n - p->rows, all;
  size_t from = first - (size_t)min_i64((int64_t)first, (int64_t)rows_before(e, p->ids[first], &all));
  plan_spec rows = spec_many(e, LOGITS_ALL, p->n - from);
  if (!first && p->n <= TILE) rows.tokens = rows_tokens(p->n);
  if (reserve_rows(e, err) || need_plan(e, &rows, err) || begin_part(e, p, first, err)) return -1;
  bool go_on = true;
  size_t at = 0, n_vocab = (size_t)model_n_vocab(e->m);
  for (size_t m; at < p->n && go_on; at += m) {
    bool wanted = at >= from;
    if (!(m = eval_chunk(e, p, wanted ? rows : chunk_plan(e, from - at), at, wanted ? p->n : from))) break;
    for (size_t i = 0; wanted && go_on && i < m; i++)
      if (at + i >= first) go_on = p->row(p->ctx, at + i, e->rows + i * n_vocab);
  }
  return end_part(e, p, at, err);
}

// Logits for denoising, of all tokens: the text is evaluated as a whole.
static int run_whole(engine *e, engine_part *p, error *err) {
  fail_if(!model_denoises(e->m) || p->pos || p->rows != p->n || p->row, err,
          "%s: engine_run: logits of %zu of %zu tokens from %d on, of a model that sees a text as a whole",
          gguf_path(e->file), p->rows, p->n, p->pos);
  plan_spec spec = spec_many(e, LOGITS_ALL, p->n);
  if (need_plan(e, &spec, err) || begin_part(e, p, 0, err)) return -1;
  eval_chunk(e, p, spec, 0, p->n);
  p->logits = e->ask.ended ? NULL : e->rows;
  int status = end_part(e, p, p->n, err);
  p->q->at = -1;
  return status;
}

// Passes the hidden state of every token to p->row. The sequence cannot continue from it.
static int run_hidden(engine *e, engine_part *p, error *err) {
  plan_spec spec = spec_many(e, LOGITS_HIDDEN, p->n);
  size_t size = (size_t)model_n_embd(e->m);
  if (need_plan(e, &spec, err) || begin_part(e, p, 0, err)) return -1;
  bool go_on = true;
  for (size_t at = 0, m; at < p->n && go_on; at += m) {
    if (!(m = eval_chunk(e, p, spec, at, p->n))) break;
    for (size_t i = 0; go_on && i < m; i++) go_on = p->row(p->ctx, at + i, e->hidden + i * size);
  }
  int status = end_part(e, p, p->n, err);
  p->q->at = -1;
  return status;
}

static int run_sums(engine *e, engine_part *p, error *err) {
  size_t n_tensors = gguf_n_tensors(e->file);
  reserve_sums(e);
  plan_spec spec = spec_many(e, LOGITS_NONE, (size_t)e->room);
  spec.sums = true;
  if (need_plan(e, &spec, err) || begin_part(e, p, 0, err)) return -1;
  for (size_t at = 0, m; at < p->n; at += m) {
    if (!(m = eval_chunk(e, p, spec, at, p->n))) break;
    for (size_t t = 0; t < n_tensors; t++)
      if (e->sums[2 * t]) p->see(p->ctx, t, e->sums[2 * t], e->sums[2 * t + 1], m);
  }
  return end_part(e, p, p->n, err);
}

// With fixed states a run has tokens of one sequence only. Several rows of a sequence run separately; their logits come
// before those of all parts.
static plan_spec spec_own_rows(size_t n) { return (plan_spec){.logits = LOGITS_ALL, .tokens = rows_tokens(n)}; }

bool engine_on_cpu(const engine *e) {
  return e->layer_split.n == 1 && !strcmp(e->layer_split.at[0].d->name, "CPU");
}

bool engine_has_mtp(const engine *e) { return model_has_mtp(e->m) || model_has_draft(e->m); }

static plan_spec spec_mtp(const engine *e) {
  int block = model_draft_block(e->m);
  return (plan_spec){.logits = block ? LOGITS_ALL : LOGITS_LAST, .tokens = block ? block : 1, .mtp = true};
}

// The first row that drafts
static int first_drafted(const engine *e) { return model_draft_block(e->m) && !model_draft_from_first(e->m); }

int engine_draft_rows(const engine *e) { return (int)spec_mtp(e).tokens - first_drafted(e); }
bool engine_draft_follows(const engine *e) { return model_draft_follows(e->m); }

// What one token adds to the logits after it
static plan_spec spec_after(void) { return (plan_spec){.logits = LOGITS_LAST, .tokens = 1, .mtp = true}; }

// Its drafts are checked in runs that models without fixed states need anyway for several sequences.
int engine_need_mtp(engine *e, error *err) {
  const plan_spec spec = spec_mtp(e), few = spec_own_rows(FEW), after = spec_after();
  if (need_plan(e, &spec, err) || (engine_draft_follows(e) && need_plan(e, &after, err))) return -1;
  return model_is_recurrent(e->m) && (reserve_rows(e, err) || need_plan(e, &few, err)) ? -1 : 0;
}

// Logits of a draft file, n rows, as logits of the model's tokens: those that it cannot draft have -infinity.
static const float *draft_logits(engine *e, const float *logits, size_t n) {
  size_t all = (size_t)model_n_vocab(e->m), some = (size_t)(model_has_draft(e->m) ? model_draft_vocab(e->m) : 0);
  if (!some || (some == all && !model_draft_ids(e->m))) return logits;
  const int32_t *ids = model_draft_ids(e->m);
  if (!e->draft_rows) e->draft_rows = xcalloc((size_t)spec_mtp(e).tokens * all, sizeof *e->draft_rows);
  for (size_t r = 0; r < n; r++) {
    float *to = e->draft_rows + r * all;
    for (size_t i = 0; i < all; i++) to[i] = -INFINITY;
    for (size_t i = 0; i < some; i++) to[ids ? (size_t)ids[i] : i] = logits[r * some + i];
  }
  return e->draft_rows;
}

static int run_mtp(engine *e, engine_part *p, error *err) {
  const plan_spec spec = spec_mtp(e);
  int n = (int)spec.tokens, rows = engine_draft_rows(e);
  int32_t ids[MODEL_DRAFT_MOST];
  fail_if(p->n != 1 || p->pos < 0 || p->pos > e->n_ctx - n || p->ids[0] < 0 || p->ids[0] >= model_n_vocab(e->m), err,
          "%s: engine_run: draft tokens after %zu tokens, token %d at %d", gguf_path(e->file), p->n, p->ids[0], p->pos);
  for (int i = 0; i < n; i++) ids[i] = i ? model_draft_mask(e->m) : p->ids[0];
  if (need_plan(e, &spec, err) || sequence_hold(p->q, p->pos, p->pos + n, err)) return -1;
  choose_sequence(e, p->q);
  place_tokens(e, p->q, &spec, ids, (size_t)n, p->pos);
  run_plans(e, &spec, (plan_var[]){{"pos", p->pos}, {"n", n}}, n > 1 ? 2 : 1);
  if (sound(e, err)) return -1;
  bool block = spec.logits == LOGITS_ALL;
  p->logits = draft_logits(e, block ? e->rows + (size_t)(first_drafted(e) * model_draft_vocab(e->m)) : e->logits,
                           (size_t)rows);
  return 0;
}

static int run_draft_row(engine *e, engine_part *p, error *err) {
  const plan_spec spec = spec_after();
  fail_if(!engine_draft_follows(e) || p->n != 1 || p->pos < 0 || p->pos >= engine_draft_rows(e) || !e->rows, err,
          "%s: engine_run: row %d of a draft", gguf_path(e->file), p->pos);
  size_t n = (size_t)model_draft_vocab(e->m);
  const float *base = e->rows + (size_t)(first_drafted(e) + p->pos) * n;
  if (need_plan(e, &spec, err)) return -1;
  place_tokens(e, p->q, &spec, p->ids, 1, 0);
  run_plans(e, &spec, &(plan_var){"pos", 0}, 1);
  if (sound(e, err)) return -1;
  for (size_t i = 0; i < n; i++) e->logits[i] += base[i];
  p->logits = draft_logits(e, e->logits, 1);
  return 0;
}

// ---- batched parts --------------------------------------------------------------------------------------------------

// The plan for a batched run: the last tokens of all parts, whose logits are wanted, and `more` tokens before those or
// at the end of parts without logits, as many as fit at little cost.
static plan_spec apart_plan(const engine *e, size_t rows, size_t more) {
  plan_spec spec = spec_many(e, LOGITS_ALL, rows);
  spec.apart = true;
  if (rows <= TILE) spec.tokens = rows > FEW || more ? TILE : rows > TWO ? FEW : TWO;
  if (rows <= FEW && more) spec.rows = FEW;
  return spec;
}

static size_t add_rows(engine *e, const engine_part *p, size_t first, size_t n, size_t row) {
  for (size_t i = first; i < first + n; i++, row++) {
    e->ids[row] = p->ids[i];
    e->at[row] = p->pos + (int)i;
    place_turns(e, p->q, row, e->at[row], NULL, 0);
    place_scales(e, p->q, row, e->at[row]);
    place_source(e, p->q, row);
    for (int g = 0; g < model_n_groups(e->m); g++) {
      const page_list *list = &p->q->group[g];
      size_t from = (size_t)model_first_page(model_group_window(e->m, g), CACHE_PAGE, e->at[row]);
      size_t to = caches_n_pages(e->at[row] + 1);
      memcpy(e->pages + (int64_t)row * page_tables(e) + g * page_table(e), list->at + from,
             (to - from) * sizeof *e->pages);
    }
  }
  return row;
}

// Runs the last tokens of n parts together; each row has its own sequence's pages. All rows write to the caches before
// any row reads, and no row reads beyond its own position, so several rows may belong to one sequence.
static void eval_apart(engine *e, const engine_part *parts, size_t n, size_t more) {
  size_t deepest = 0, rows = 0, all;
  for (size_t i = 0; i < n; i++) {
    const engine_part *p = &parts[i];
    size_t held = (size_t)(p->q->n + CACHE_PAGE - 1) / CACHE_PAGE;
    if (p->lone) continue;
    rows = add_rows(e, p, p->n - p->rows, p->rows, rows);
    if ((p->rows || p->beside) && held > deepest) deepest = held;
  }
  all = rows;
  for (size_t i = 0; i < n; i++)
    all = add_rows(e, &parts[i], parts[i].n - parts[i].rows - parts[i].beside, parts[i].beside, all);
  plan_spec spec = apart_plan(e, rows, more);
  run_plans(e, &spec, (plan_var[]){{"n", (int64_t)all}, {"pages", (int64_t)deepest}, {"rows", (int64_t)rows}}, 3);
}

// The number of tokens without logits that fit into a run of this many rows.
static size_t find_room(const engine *e, engine_part *parts, size_t n, size_t rows) {
  size_t room = round_up(rows, TILE) - rows, more = 0;
  if (model_is_recurrent(e->m) || rows + room > (size_t)e->chunk) room = 0;
  for (size_t i = 0; i < n; i++) {
    const engine_part *p = &parts[i];
    size_t before = 0, most = p->n - p->rows;
    while (before < most && before < room && !p->lone && p->ids[most - before - 1] >= 0) before++;
    parts[i].beside = before;
    room -= parts[i].beside;
    more += parts[i].beside;
  }
  return more;
}

// A part that needs the logits of a row of floats is not batched.
static int find_lone(const engine *e, const engine_batch *b, error *err) {
  engine_part *parts = b->parts;
  size_t n = b->n;
  size_t rows = 0;
  for (size_t i = 0; i < n; i++) {
    engine_part *p = &parts[i];
    rows += p->rows;
    p->lone = b->alone || (p->rows && some_floats(p->ids + p->n - p->rows, p->rows));
    if (p->lone && p->rows > 1)
      return error_set(err, "logits of %zu tokens, rows of floats among them: there are those of the last one",
                       p->rows);
  }
  fail_if(rows > (size_t)e->chunk, err, "%s: engine_run: %zu rows of %zu sequences, %lld at most",
          gguf_path(e->file), rows, n, (long long)e->chunk);
  return 0;
}

// Assigns rows of logits to parts, from `first` on, batched parts first.
static size_t place_rows(engine_part *parts, size_t n, size_t first) {
  size_t row = first, joined;
  for (size_t i = 0; i < n; i++) if (!parts[i].lone) { parts[i].row_at = row; row += parts[i].rows; }
  joined = row - first;
  for (size_t i = 0; i < n; i++) if (parts[i].lone) parts[i].row_at = row++;
  return joined;
}

static void eval_own_rows(engine *e, const engine_part *p) {
  const plan_spec spec = spec_own_rows(p->rows);
  size_t n_vocab = (size_t)model_n_vocab(e->m), at = p->n - p->rows, to = p->row_at;
  for (size_t m; at < p->n && !e->ask.ended; at += m, to += m) {
    m = chunk_length(e, p->ids + at, (size_t)min_i64((int64_t)(p->n - at), spec.tokens), p->pos + (int)at);
    eval_run(e, p->q, &spec, p->ids + at, m, p->pos + (int)at);
    memcpy(e->rows + to * n_vocab, e->rows, m * n_vocab * sizeof *e->rows);
  }
}

// Evaluates a part's tokens except those of the batched run.
static void eval_part(engine *e, engine_part *p, bool joined) {
  bool own = !joined && p->rows > 1;
  size_t last = joined ? p->rows + p->beside : own || !p->rows ? p->rows : last_run(e, p->ids, p->n);
  enter_sequence(e, p->q, p->ids, p->n, p->pos);
  size_t left = eval_chunks(e, p->q, p->ids, p->n, last, p->pos), at = p->n - left;
  if (e->ask.ended) return;
  eval_each(e, p->q, p->ids + at, left - last, p->pos + (int)at);
  if (own) eval_own_rows(e, p);
  else if (!joined && p->rows) eval_last(e, p->q, p->ids + p->n - last, last, p->pos + (int)(p->n - last));
}

static int need_own_rows(engine *e, const engine_batch *b, error *err) {
  for (size_t i = 0; i < b->n; i++) {
    const plan_spec spec = spec_own_rows(b->parts[i].rows);
    if (model_is_recurrent(e->m) && b->parts[i].rows > 1 && (reserve_rows(e, err) || need_plan(e, &spec, err)))
      return -1;
  }
  return 0;
}

// Logits of one part stay where they were computed; those of several parts are copied together.
static void keep_logits(engine *e, const engine_batch *b, engine_part *p) {
  size_t n_vocab = (size_t)model_n_vocab(e->m);
  bool made_there = b->n == 1 && p->rows == 1;
  p->logits = made_there ? e->logits : e->rows + p->row_at * n_vocab;
  if (!made_there && p->rows == 1) memcpy(e->rows + p->row_at * n_vocab, e->logits, n_vocab * sizeof *e->rows);
}

static bool not_stopped(void *ctx, double done) {
  const engine_batch *b = ctx;
  (void)done;
  return !b->stop(b->ctx);
}

static int prepare_parts(engine *e, const engine_batch *b, error *err) {
  for (size_t i = 0; i < b->n; i++) {
    const engine_part *p = &b->parts[i];
    size_t last = b->alone ? 0 : p->rows + p->beside;
    if (prepare_eval(e, p->q, p->ids, p->n, p->pos, p->n > FEW + last ? p->n : 0, err)) return -1;
  }
  return 0;
}

static int run_logits(engine *e, engine_batch *b, error *err) {
  bool fixed = model_is_recurrent(e->m);
  if (find_lone(e, b, err)) return -1;
  size_t rows = place_rows(b->parts, b->n, fixed ? TILE : 0), more = b->alone ? 0 : find_room(e, b->parts, b->n, rows);
  // the last tokens of all parts run together
  bool together = rows + more > 1 && !fixed;
  plan_spec spec = apart_plan(e, rows, more);
  if (((together || b->n > 1) && reserve_rows(e, err)) || (together && need_plan(e, &spec, err)) ||
      need_own_rows(e, b, err) || prepare_parts(e, b, err))
    return -1;
  engine_go_on *before = e->ask.go_on;
  void *before_ctx = e->ask.ctx;
  if (b->stop) engine_watch(e, not_stopped, b);
  for (size_t i = 0; i < b->n && !(i && e->ask.ended); i++) {
    engine_part *p = &b->parts[i];
    bool joined = together && !p->lone;
    eval_part(e, p, joined);
    if (!joined && p->rows) keep_logits(e, b, p);
  }
  e->ask.now = 0;
  if (!e->ask.ended && together) eval_apart(e, b->parts, b->n, more);
  engine_watch(e, before, before_ctx);
  bool stopped = e->ask.ended;
  for (size_t i = 0; i < b->n; i++) end_eval(b->parts[i].q, b->parts[i].pos, stopped);
  if (sound(e, err)) return -1;
  for (size_t i = 0; i < b->n; i++) {
    engine_part *p = &b->parts[i];
    if (together && !p->lone) p->logits = e->rows + p->row_at * (size_t)model_n_vocab(e->m);
    if (stopped || !p->rows) p->logits = NULL;
  }
  return stopped;
}

// ---- entry point ----------------------------------------------------------------------------------------------------

// Selects plans with or without adapters; makes the one that every model needs.
static int choose_adapted(engine *e, const engine_batch *b, error *err) {
  const plan_spec first = spec_first(e);
  if (!e->scales) return 0;
  e->adapted = false;
  for (size_t i = 0; i < b->n; i++) e->adapted |= sequence_adapted(b->parts[i].q);
  return need_plan(e, &first, err);
}

// A sequence of a model with an encoder is rows of a source, then tokens.
static int check_source(const engine *e, const engine_part *p, error *err) {
  bool rows = p->pos <= p->q->source;                    // and nothing else so far
  if (!model_has_source(e->m)) return 0;
  if (p->want == WANT_SUMS)
    return error_set(err, "%s: sums of what goes into matrices are not made of models with an encoder and a decoder",
                     gguf_path(e->file));
  if (p->want == WANT_HIDDEN && some_floats(p->ids, p->n))
    return error_set(err, "the encoder of this model reads tokens, and no rows of floats");
  for (size_t i = 0; p->want == WANT_LOGITS && i < p->n; i++) {
    bool row = p->ids[i] < 0;
    if (row && !rows) return error_set(err, "position %d is a row of a source, behind tokens", p->pos + (int)i);
    if (!row && !p->pos && !i)
      return error_set(
        err, "%s: this model answers a source, as 'weft run' makes one of a prompt: it goes on with no text of its own",
        gguf_path(e->file));
    if (row && p->n - i <= p->rows)
      return error_set(err, "logits of a row of a source are wanted, and there are none");
    rows &= row;
  }
  return 0;
}

static int run_batch(engine *e, engine_batch *b, error *err) {
  for (size_t i = 0; i < b->n; i++) {
    engine_part *p = &b->parts[i];
    if (!p->q) p->q = e->own;
    fail_if(p->rows > p->n || (b->n > 1 && (p->want || p->row)), err,
            "%s: engine_run: part %zu of %zu wants %d, %zu rows", gguf_path(e->file), i, b->n, (int)p->want, p->rows);
  }
  for (size_t i = 0; i < b->n; i++) if (check_source(e, &b->parts[i], err)) return -1;
  if (choose_adapted(e, b, err)) return -1;
  switch (b->parts[0].want) {
  case WANT_HIDDEN: return run_hidden(e, b->parts, err);
  case WANT_SUMS: return run_sums(e, b->parts, err);
  case WANT_MTP: return run_mtp(e, b->parts, err);
  case WANT_DRAFT: return run_draft_row(e, b->parts, err);
  case WANT_LOGITS: break;
  }
  if (model_is_encoder(e->m)) return run_whole(e, b->parts, err);
  return b->parts[0].row ? run_each_row(e, b->parts, err) : run_logits(e, b, err);
}

int engine_run(engine *e, engine_batch *b, error *err) {
  if (engine_check(e, err)) return -1;
  size_t before = e->held.n;                             // a search for layouts runs within an evaluation
  int status = run_batch(e, b, err);
  while (e->held.n > before) float_rows_drop(e->held.at[--e->held.n]);
  return status;
}

struct sequence *engine_sequence(engine *e) { return e->own; }
int engine_sequence_new(engine *e, struct sequence **out, error *err) { return sequence_new(&e->caches, out, err); }
caches *engine_caches(engine *e) { return &e->caches; }
content *engine_content(const engine *e) { return e->content; }
