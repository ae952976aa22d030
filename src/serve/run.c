// One answer: see run.h. The prompt is evaluated behind what its sequence holds, in pieces, and then a token at a time
// is drawn, given to the grammar, the stop strings and the reader of answers, and evaluated. Invariant: what was
// evaluated is in `past`, also when a step fails or the client leaves.
#include "serve/run.h"
#include "serve/force.h"
#include <stdlib.h>
#include <string.h>

struct run {
  weft_model *m;
  weft_draft *draft;         // or NULL
  bool no_guess;
  request *r;
  int choice;
  held held;
  const float *logits;       // of the token to be drawn: while run_took runs
  int32_t drawn_id;          // the last one, not evaluated yet
  bool began, failed;
  size_t fed, kept;          // of the prompt: evaluated; of those, found in the sequence
  weft_ahead *ahead;
  weft_sampler *sampler;
  weft_grammar *grammar;
  str head;                  // of a call that is forced: what has been drawn of it
  bool chosen;               // and it says which tool: the grammar is that of its arguments
  weft_stream *stream;
  weft_stop *stop;
  weft_answer *answer;
  double start, answer_start;
  int64_t drawn;
  int calls;
  struct timing last;        // when it ended: the request may be gone by then
};

void event_free(event *e) {
  for (size_t i = 0; i < e->parts.n; i++) {
    str_free(&e->parts.at[i].text);
    free(e->parts.at[i].name);
    free(e->parts.at[i].id);
  }
  vec_free(&e->parts);
  free(e->top);
  free(e->vector);
  free(e);
}

void request_clear(request *r) {
  vec_free(&r->prompt);
  vec_free(&r->lengths);
  vec_free(&r->biases);
  for (size_t i = 0; i < r->stops.n; i++) free(r->stops.at[i]);
  vec_free(&r->stops);
  weft_grammar_free(r->grammar);
  forced_free(r->forced);
  free(r->prompt_text);
  free(r->tools);
}

// ---- events ---------------------------------------------------------------------------------------------------------

static event *new_event(const run *u, enum event_kind kind) {
  event *e = xcalloc(1, sizeof *e);
  e->kind = kind;
  e->request = u->r;
  e->choice = u->choice;
  e->id = -1;
  return e;
}

static void say(const run *u, event *e) { u->r->event(u->r->ctx, e); }

// Whoever hears it may free the request at once, and its grammar, of which ours is a copy: for one thread at a time.
static void say_last(run *u, event *e) {
  weft_grammar_free(u->grammar);
  u->grammar = NULL;
  say(u, e);
}

static struct timing timing_of(const run *u) {
  double now = now_s(), until = u->answer_start ? u->answer_start : now;
  return (struct timing){.n_prompt = (int64_t)u->r->prompt.n,
                         .n_cached = (int64_t)u->kept,
                         .n_drawn = u->drawn,
                         .prompt_ms = 1000 * (until - u->start),
                         .drawn_ms = u->answer_start ? 1000 * (now - u->answer_start) : 0,
                         .ahead = u->ahead ? weft_ahead_count(u->ahead) : (weft_ahead_counts){0}};
}

void held_free(held *h) {
  weft_sequence_free(h->sequence);
  vec_free(&h->past);
  *h = (held){0};
}

static bool fail_run(run *u, const weft_error *err) {
  event *e = new_event(u, EVENT_FAILED);
  snprintf(e->text, sizeof e->text, "%s", err->text);
  u->last = timing_of(u);
  u->failed = true;
  u->r->cancelled = true;              // nobody waits for its other choices
  say_last(u, e);
  return false;
}

static void add_parts(event *e, const weft_part *parts, size_t n) {
  for (size_t i = 0; i < n; i++) {
    struct part p = {.kind = parts[i].kind,
                     .name = parts[i].name ? xstrdup(parts[i].name) : NULL,
                     .id = parts[i].id ? xstrdup(parts[i].id) : NULL};
    str_addn(&p.text, parts[i].text, parts[i].n);
    vec_push(&e->parts, p);
  }
}

// Text that can be shown, as parts of an event.
static void add_text_parts(run *u, event *e, const char *text, size_t n) {
  const weft_part *parts, whole = {.kind = WEFT_CONTENT, .text = text, .n = n};
  if (u->answer) {
    n = weft_answer_add(u->answer, text, n, &parts);
    add_parts(e, parts, n);
  } else if (n) {
    add_parts(e, &whole, 1);
  }
  for (size_t i = 0; i < e->parts.n; i++) u->calls += e->parts.at[i].kind == WEFT_CALL;
}

// What stands behind the arguments of a forced call, which nobody draws; of it only the call counts.
static void close_call(run *u, event *e) {
  const weft_part *parts;
  const char *after = u->r->forced->after;
  size_t n = weft_answer_add(u->answer, after, strlen(after), &parts);
  for (size_t i = 0; i < n && !u->calls; i++) {
    if (parts[i].kind != WEFT_CALL) continue;
    add_parts(e, &parts[i], 1);
    u->calls++;
  }
}

static bool end_run(run *u, enum finish why, int stop) {
  size_t n;
  event *last = new_event(u, EVENT_TOKEN);
  if (u->stream && why != FINISH_WORD) {
    const char *text = weft_stream_end(u->stream, &n);
    int found = -1;
    if (u->stop) text = weft_stop_add(u->stop, text, n, &n, &found);
    add_text_parts(u, last, text, n);
    if (u->stop && found < 0) {
      text = weft_stop_end(u->stop, &n);
      add_text_parts(u, last, text, n);
    }
  }
  if (u->chosen && weft_grammar_complete(u->grammar)) close_call(u, last);
  if (u->answer) {
    const weft_part *parts;
    n = weft_answer_end(u->answer, &parts);
    size_t before = last->parts.n;
    if (!u->chosen || !u->calls) add_parts(last, parts, n);
    for (size_t i = before; i < last->parts.n; i++) u->calls += last->parts.at[i].kind == WEFT_CALL;
  }
  if (last->parts.n) say(u, last);
  else event_free(last);
  event *e = new_event(u, EVENT_END);
  e->finish = u->calls && why <= FINISH_WORD ? FINISH_CALLS : why;
  e->stop = stop;
  e->timing = u->last = timing_of(u);
  say_last(u, e);
  return false;
}

// ---- beginning ------------------------------------------------------------------------------------------------------

static int make_sampler(run *u, weft_error *err) {
  request *r = u->r;
  const weft_vocab *v = weft_model_vocab(u->m);
  weft_sampling s = r->sampling;
  s.seed += (uint64_t)u->choice;
  if (weft_sampler_new(weft_model_vocab_size(u->m), &s, &u->sampler, err)) return -1;
  if (s.dry_multiplier > 0 && weft_sampler_breakers(u->sampler, v, NULL, 0, err)) return -1;
  for (size_t i = 0; i < r->biases.n; i++)
    if (weft_sampler_bias(u->sampler, r->biases.at[i].id, r->biases.at[i].bias, err)) return -1;
  if (r->ignore_end) weft_sampler_ignore_end(u->sampler, v);
  return 0;
}

static int prepare_run(run *u, weft_error *err) {
  request *r = u->r;
  if (make_sampler(u, err)) return -1;
  if (r->grammar || r->forced) u->grammar = weft_grammar_clone(r->forced ? r->forced->heads : r->grammar);
  u->stream = weft_stream_new(weft_model_vocab(u->m), r->chat);
  if (r->stops.n && weft_stop_new((const char *const *)r->stops.at, r->stops.n, &u->stop, err)) return -1;
  size_t n = r->chat ? strlen(r->prompt_text) : 0, given = r->given;
  if (r->chat && weft_answer_new(r->tmpl, r->prompt_text, n - given, r->tools, r->tools ? strlen(r->tools) : 0,
                                 &u->answer, err))
    return -1;
  const weft_part *parts;
  while (given && strchr(" \t\r\n", r->prompt_text[n - r->given + given - 1])) given--;      // it would come again
  if (given) weft_answer_add(u->answer, r->prompt_text + n - r->given, given, &parts);
  if (r->forced) weft_answer_add(u->answer, r->forced->before, strlen(r->forced->before), &parts);
  return 0;
}

run *run_new(weft_model *m, weft_draft *d, bool no_guess, request *r, int choice) {
  run *u = xcalloc(1, sizeof *u);
  *u = (run){.m = m, .draft = d, .no_guess = no_guess, .r = r, .choice = choice, .drawn_id = -1};
  return u;
}

const request *run_request(const run *u) { return u->r; }
size_t run_left(const run *u) { return u->r->prompt.n - u->fed; }
held *run_held(run *u) { return u->began ? &u->held : NULL; }
void run_fail(run *u, const weft_error *err) { fail_run(u, err); }
void run_cancel(run *u) { u->r->cancelled = true; }

bool run_begin(run *u, held *h) {
  weft_error err;
  u->start = now_s();
  u->began = true;
  u->held = *h;
  u->fed = u->kept = h->past.n;
  u->ahead = weft_ahead_of_sequence(u->m, h->sequence, u->no_guess ? WEFT_GUESS_NEVER : WEFT_GUESS_WHERE_IT_PAYS);
  if (u->draft) weft_ahead_draft(u->ahead, u->draft);
  return prepare_run(u, &err) ? fail_run(u, &err) : true;
}

bool run_ended(const run *u, struct timing *out) {
  *out = u->last;
  return u->failed;
}

void run_free(run *u, held *out) {
  weft_ahead_free(u->ahead);
  if (out && u->began) run_settle(u);
  if (out) *out = u->held;
  else held_free(&u->held);
  weft_sampler_free(u->sampler);
  weft_grammar_free(u->grammar);
  str_free(&u->head);
  weft_stream_free(u->stream);
  weft_stop_free(u->stop);
  weft_answer_free(u->answer);
  free(u);
}

// ---- the prompt -----------------------------------------------------------------------------------------------------

static int score(const run *u, event *e, const float *logits, int32_t id, weft_error *err) {
  int32_t n_vocab = weft_model_vocab_size(u->m);
  e->n_top = u->r->n_top < n_vocab ? u->r->n_top : n_vocab;
  e->top = e->n_top ? xmalloc((size_t)e->n_top * sizeof *e->top) : NULL;
  e->scored = true;
  return weft_logprobs(logits, n_vocab, id, &e->logprob, e->top, e->n_top, err);
}

// The token of the prompt that follows number `fed + i`, given all before it.
static bool on_row(void *ctx, size_t i, const float *logits) {
  run *u = ctx;
  event *e = new_event(u, EVENT_PROMPT_TOKEN);
  e->id = u->r->prompt.at[u->fed + i + 1];
  if (!score(u, e, logits, e->id, NULL)) { say(u, e); return true; }
  event_free(e);
  return false;
}

// A piece of a prompt whose tokens are scored, but for its last token.
static int feed_scored(run *u, size_t n, weft_error *err) {
  const int32_t *ids = u->r->prompt.at + u->fed;
  if (!u->fed) {
    event *e = new_event(u, EVENT_PROMPT_TOKEN);
    e->id = ids[0];
    say(u, e);
  }
  if (weft_sequence_rows(u->held.sequence, ids, n, 0, on_row, u, err)) return -1;
  for (size_t i = 0; i < n; i++) vec_push(&u->held.past, ids[i]);
  u->fed += n;
  return 0;
}

static void say_progress(run *u) {
  event *e = new_event(u, EVENT_PROMPT);
  e->done = (int64_t)u->fed;
  e->total = (int64_t)u->r->prompt.n;
  e->timing = timing_of(u);
  say(u, e);
}

// ---- the answer -----------------------------------------------------------------------------------------------------

// The grammar speaks for the content alone: neither for reasoning nor for calls, but where a call is forced.
bool run_needs_mask(const run *u) {
  return u->grammar && (u->r->forced || !u->answer || weft_answer_in_content(u->answer));
}

void run_make_mask(run *u) {
  const uint64_t *mask;
  weft_error err;                      // if it fails it fails again where it is needed
  weft_grammar_mask(u->grammar, &mask, &err);
}

static int draw_token(run *u, int32_t *id, bool *constrained, weft_error *err) {
  const uint64_t *mask = NULL;
  *constrained = run_needs_mask(u);
  if (*constrained && weft_grammar_mask(u->grammar, &mask, err)) return -1;
  weft_sampler_mask(u->sampler, mask);
  return weft_sample(u->sampler, u->logits, id, err);
}

static void begin_answer(run *u) {
  u->answer_start = now_s();
  for (size_t i = 0; i < u->r->prompt.n; i++) weft_accept(u->sampler, u->r->prompt.at[i], NULL);
}

// Of a call that is forced: once its head has been drawn, its arguments follow by the grammar of that tool.
static void follow_call(run *u, int32_t id) {
  const struct forced *f = u->r->forced;
  if (!f || u->chosen) return;
  size_t n;
  char *text = weft_piece(weft_model_vocab(u->m), id, true, &n);
  str_addn(&u->head, text, n);
  weft_free(text);
  for (size_t i = 0; i < f->tools.n && !u->chosen; i++) {
    if (strcmp(f->tools.at[i].head, u->head.at)) continue;
    weft_grammar_free(u->grammar);
    u->grammar = weft_grammar_clone(f->tools.at[i].arguments);
    u->chosen = true;
  }
}

// Draws a token. false: the answer has ended.
static bool answer_step(run *u) {
  weft_error err;
  request *r = u->r;
  const weft_vocab *v = weft_model_vocab(u->m);
  int32_t id;
  bool constrained;
  if (!u->answer_start) begin_answer(u);
  if (r->max_tokens >= 0 && u->drawn >= r->max_tokens) return end_run(u, FINISH_LENGTH, -1);
  if (r->max_answer_s > 0 && now_s() - u->answer_start > r->max_answer_s) return end_run(u, FINISH_TIME, -1);
  if (draw_token(u, &id, &constrained, &err)) return fail_run(u, &err);
  if (!r->ignore_end && weft_is_end(v, id)) return end_run(u, FINISH_STOP, -1);
  if (constrained && weft_grammar_accept(u->grammar, id, &err)) return fail_run(u, &err);
  follow_call(u, id);
  weft_accept(u->sampler, id, NULL);
  u->drawn++;
  event *e = new_event(u, EVENT_TOKEN);
  e->id = id;
  if (r->scored && score(u, e, u->logits, id, &err)) { event_free(e); return fail_run(u, &err); }
  size_t n;
  int found = -1;
  const char *text = weft_stream_add(u->stream, id, &n);
  if (u->stop) text = weft_stop_add(u->stop, text, n, &n, &found);
  add_text_parts(u, e, text, n);
  e->timing = timing_of(u);
  say(u, e);
  if (found >= 0) return end_run(u, FINISH_WORD, found);
  if (u->chosen && weft_grammar_ended(u->grammar)) return end_run(u, FINISH_STOP, -1);
  if (r->one_call && u->calls) return end_run(u, FINISH_STOP, -1);
  if (u->held.past.n == (size_t)weft_model_context(u->m)) return end_run(u, FINISH_LENGTH, -1);
  if (r->max_tokens >= 0 && u->drawn >= r->max_tokens) return end_run(u, FINISH_LENGTH, -1);
  u->drawn_id = id;
  return true;
}

bool run_offer(run *u, size_t most, weft_tokens *out) {
  weft_error err;
  size_t left = run_left(u);
  *out = (weft_tokens){.sequence = u->held.sequence};
  if (u->r->cancelled) return end_run(u, FINISH_GONE, -1);
  if (left && u->r->max_prompt_s > 0 && now_s() - u->start > u->r->max_prompt_s) return end_run(u, FINISH_TIME, -1);
  if (left && !most) return true;
  if (!left) {
    out->ids = &u->drawn_id;
    out->n = 1;
  } else if (u->r->prompt_scored && left > 1) {
    if (feed_scored(u, most < left ? most : left - 1, &err)) return fail_run(u, &err);
    say_progress(u);
  } else {
    out->ids = u->r->prompt.at + u->fed;
    out->n = most < left ? most : left;
    out->unseen = out->n < left;
  }
  return true;
}

int run_evaluate(run *u, weft_tokens *t, weft_error *err) {
  uint64_t before = weft_ahead_count(u->ahead).guessed;
  if (weft_ahead_decode(u->ahead, u->held.past.at, (int)u->held.past.n, t->ids[0], &t->logits, err)) return -1;
  return weft_ahead_count(u->ahead).guessed > before;
}

bool run_advance(run *u) {
  const float *known;
  while (!run_left(u) && u->drawn_id >= 0 && !u->r->cancelled &&
         (known = weft_ahead_known(u->ahead, (int)u->held.past.n, u->drawn_id))) {
    weft_tokens t = {.sequence = u->held.sequence, .ids = &u->drawn_id, .n = 1, .logits = known};
    if (!run_took(u, &t)) return false;
  }
  return true;
}

void run_guess(run *u, weft_tokens *t, double value_s, double extra_s) {
  size_t n = weft_ahead_guess(u->ahead, u->held.past.at, (int)u->held.past.n, u->drawn_id, value_s, extra_s, &t->ids);
  t->n = t->rows = n;
}

void run_guessed(run *u, weft_tokens *t, double extra_s) {
  if (t->n > 1) weft_ahead_evaluated(u->ahead, (int)u->held.past.n, t->n, t->logits, extra_s);
  t->n = 1;
}

void run_settle(run *u) { weft_sequence_cut(u->held.sequence, (int)u->held.past.n); }

bool run_took(run *u, const weft_tokens *t) {
  for (size_t i = 0; i < t->n; i++) vec_push(&u->held.past, t->ids[i]);
  if (run_left(u)) {
    u->fed += t->n;
    say_progress(u);
    if (run_left(u)) return true;
  }
  u->logits = t->logits;
  bool more = answer_step(u);
  u->logits = NULL;
  return more;
}
