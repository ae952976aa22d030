// One answer: see run.h. The prompt is evaluated in chunks after the sequence's content. Then tokens are sampled one at
// a time, passed to the grammar, the stop strings and the answer parser, and evaluated. Invariant: `past` contains what
// was evaluated, also if a step fails or the client leaves.
#include "serve/run.h"
#include "serve/force.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct run {
  weft_model *m;
  weft_draft *draft;         // or NULL
  enum weft_speculating speculating;
  request *r;
  int choice;
  held held;
  weft_rows *source;         // for a model with an encoder: its output for the prompt
  const float *logits;       // for sampling the next token, while run_took runs
  float *held_logits;        // a copy while the mask is being made, or NULL
  bool waits;                // for the mask
  int32_t drawn_id;          // the last sampled token, not yet evaluated
  bool began, failed;
  size_t fed, kept;          // of the prompt: evaluated; of these, found in the sequence
  bool no_room;              // it waits for memory
  token_ids lost;            // tokens to be evaluated again, from the first one on (run_yield); empty: none
  weft_speculation *speculation;
  weft_denoiser *denoiser;   // of a model that denoises; and its text
  weft_text text;
  weft_sampler *sampler;
  weft_grammar *grammar;
  str head;                  // for a forced call: the text of its head so far
  bool chosen;               // the head names the tool: the grammar is that of its arguments
  // the mask of the next token has been made, or failed; seconds of the last one
  bool has_mask, mask_failed;
  weft_error mask_error;
  bool request_failed;       // the client's error, not the model's
  double mask_s;
  weft_stream *stream;
  weft_stop *stop;
  weft_answer *answer;
  double start, answer_start;
  int64_t drawn,
    reasoned, attributed;    // tokens drawn for reasoning; drawn before the last text of any kind
  weft_budget *budget;       // of reasoning; NULL: no limit
  int calls, done;           // begun; complete
  struct part begun;         // a call that the given text begins and the answer may continue; no name: none
  struct timing last;        // set at the end
  event *last_event;         // the final event; NULL: not ended
};

void events_send(events *all) {
  for (size_t i = 0; i < all->n; i++) all->at[i]->request->event(all->at[i]->request->ctx, all->at[i]);
  all->n = 0;
}

void request_end(request *r, enum event_kind kind, const char *why, events *out) {
  int64_t n = r->embeds && kind == EVENT_FAILED ? 1 : r->n;
  for (int64_t i = r->begun; i < n; i++) {
    event *e = xcalloc(1, sizeof *e);
    *e = (event){.kind = kind, .request = r, .choice = (int)i, .finish = FINISH_GONE, .status = 429};
    snprintf(e->text, sizeof e->text, "%s", why);
    vec_push(out, e);
  }
}

static void part_clear(struct part *p) {
  str_free(&p->text);
  free(p->name);
  free(p->id);
  *p = (struct part){0};
}

void event_free(event *e) {
  for (size_t i = 0; i < e->parts.n; i++) part_clear(&e->parts.at[i]);
  vec_free(&e->parts);
  free(e->top);
  free(e->vector);
  free(e);
}

static void texts_clear(request_texts *t) {
  for (size_t i = 0; i < t->n; i++) free(t->at[i]);
  vec_free(t);
}

int request_sampler(const request *r, const weft_model *m, int choice, weft_sampler **out, weft_error *err) {
  const weft_vocab *v = weft_model_vocab(m);
  weft_sampling s = r->sampling;
  static const char *const none[1];
  const char *const *breakers = r->breakers.n ? (const char *const *)r->breakers.at : none;
  s.seed += (uint64_t)choice;
  if (weft_sampler_new(weft_model_vocab_size(m), &s, out, err)) return -1;
  int bad = s.dry_multiplier > 0 &&
            weft_sampler_breakers(*out, v, r->has_breakers ? breakers : NULL, r->breakers.n, err);
  for (size_t i = 0; !bad && i < r->n_biases; i++)
    bad = weft_sampler_bias(*out, r->biases[i].id, r->biases[i].bias, err);
  if (!bad && r->ignore_end) weft_sampler_ignore_end(*out, v);
  if (!bad) weft_sampler_suppress(*out, v);
  if (bad) { weft_sampler_free(*out); *out = NULL; }
  return bad ? -1 : 0;
}

bool request_scales_are_usual(const request *r, const weft_options *o) {
  bool same = true;
  for (size_t i = 0; i < o->n_adapters; i++) same &= r->scales[i] == (float)o->adapters[i].scale;
  return same;
}

size_t request_shares(const request *r, const held *h) {
  if (!weft_sequence_adapts_as(h->sequence, r->scales)) return 0;
  size_t n = alike(&r->prompt, &h->past), stays = (size_t)weft_sequence_stays(h->sequence, r->prompt.at, r->prompt.n);
  return n < stays ? n : stays;
}

void request_clear(request *r) {
  vec_free(&r->prompt);
  vec_free(&r->source);
  vec_free(&r->lengths);
  texts_clear(&r->stops);
  texts_clear(&r->breakers);
  weft_grammar_free(r->grammar);
  forced_free(r->forced);
  free(r->scales);
  free(r->prompt_text);
  weft_budget_free(r->budget);
  free(r->tools);
  weft_answer_free(r->answer);
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

static struct timing timing_of(const run *u) {
  double now = now_s(), until = u->answer_start ? u->answer_start : now;
  return (struct timing){.n_prompt = (int64_t)u->r->prompt.n,
                         .n_cached = (int64_t)u->kept,
                         .n_drawn = u->drawn,
                         .n_reasoned = u->reasoned,
                         .wait_ms = u->start ? 1000 * (u->start - u->r->arrived) : 0,
                         .prompt_ms = 1000 * (until - u->start),
                         .drawn_ms = u->answer_start ? 1000 * (now - u->answer_start) : 0,
                         .slot = u->began ? u->held.slot : 0,
                         .speculation =
                           u->speculation ? weft_speculation_count(u->speculation) : (weft_speculation_counts){0}};
}

void held_free(held *h) {
  weft_sequence_free(h->sequence);
  vec_free(&h->past);
  kv_chain_end(&h->chain);
  *h = (held){0};
}

void held_cut(held *h, size_t n) {
  weft_sequence_cut(h->sequence, (int)n);
  h->past.n = n;
  kv_chain_cut(&h->chain, n);
}

int held_begin(weft_model *m, const held *h, size_t n, held *out, weft_error *err) {
  *out = (held){.slot = -1};
  if (!h) return weft_sequence_new(m, &out->sequence, err);
  if (weft_sequence_fork(h->sequence, (int)n, &out->sequence, err)) return -1;
  for (size_t i = 0; i < n; i++) vec_push(&out->past, h->past.at[i]);
  return 0;
}

static bool fail_run(run *u, const weft_error *err) {
  event *e = new_event(u, EVENT_FAILED);
  if (u->request_failed) e->status = 400;
  snprintf(e->text, sizeof e->text, "%s", err->text);
  u->last = timing_of(u);
  u->failed = true;
  u->r->cancelled = true;              // the other choices are no longer needed
  u->last_event = e;
  return false;
}

// Tokens since the last text count for the kind of this one: marks of reasoning count as reasoning.
static void attribute_tokens(run *u, const weft_part *part) {
  if (!part->n && !part->name) return;
  if (part->kind == WEFT_REASONING) u->reasoned += u->drawn - u->attributed;
  u->attributed = u->drawn;
}

// Keeps the call in which a text ends that is not shown.
static void keep_begun(run *u, const weft_part *parts, size_t n) {
  for (size_t i = 0; i < n; i++) {
    bool goes_on = parts[i].kind == WEFT_CALL && !parts[i].name;
    if (!goes_on) part_clear(&u->begun);
    if (parts[i].kind == WEFT_CALL && parts[i].name)
      u->begun = (struct part){.kind = WEFT_CALL, .name = xstrdup(parts[i].name), .id = xstrdup(parts[i].id)};
    if (u->begun.name) str_addn(&u->begun.text, parts[i].text, parts[i].n);
    if (parts[i].done) part_clear(&u->begun);
  }
}

// Puts the call that the given text began before its continuation, since clients need a call's name and all of its
// arguments. False: there is no call to continue.
static bool name_call(run *u, event *e) {
  if (!u->begun.name) return u->calls > 0;
  u->calls++;
  vec_push(&e->parts, u->begun);
  u->begun = (struct part){0};
  return true;
}

// Text after the single wanted call is dropped.
static void add_parts(run *u, event *e, const weft_part *parts, size_t n) {
  for (size_t i = 0; i < n && !(u->r->one_call && u->done); i++) {
    if (parts[i].kind == WEFT_CALL && !parts[i].name && !name_call(u, e)) continue;
    struct part p = {.kind = parts[i].kind,
                     .name = parts[i].name ? xstrdup(parts[i].name) : NULL,
                     .id = parts[i].id ? xstrdup(parts[i].id) : NULL,
                     .done = parts[i].done};
    attribute_tokens(u, &parts[i]);
    u->calls += p.name != NULL;
    u->done += p.done;
    str_addn(&p.text, parts[i].text, parts[i].n);
    vec_push(&e->parts, p);
  }
}

// Converts text that can be shown to parts of an event.
static void add_text_parts(run *u, event *e, const char *text, size_t n) {
  const weft_part *parts, whole = {.kind = WEFT_CONTENT, .text = text, .n = n};
  if (u->answer) {
    n = weft_answer_add(u->answer, text, n, &parts);
    add_parts(u, e, parts, n);
  } else if (n) {
    add_parts(u, e, &whole, 1);
  }
}

// Parses the fixed text after the arguments of a forced call; only the call counts.
static void close_call(run *u, event *e) {
  const weft_part *parts;
  const char *after = u->r->forced->after;
  size_t n = weft_answer_add(u->answer, after, strlen(after), &parts);
  for (size_t i = 0; i < n && !u->done; i++) if (parts[i].kind == WEFT_CALL) add_parts(u, e, &parts[i], 1);
}

static bool end_run(run *u, enum finish why, int stop) {
  size_t n;
  event *last = new_event(u, EVENT_TOKEN);
  if (u->stream && why != FINISH_WORD) {
    // a character cut off by a limit is not shown
    const char *text = weft_stream_end(u->stream, &n);
    if (why != FINISH_STOP) n = 0;
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
    n = weft_answer_end(u->answer, why > FINISH_WORD, &parts);
    if (!u->chosen || !u->done) add_parts(u, last, parts, n);
  }
  if (last->parts.n) say(u, last);
  else event_free(last);
  event *e = new_event(u, EVENT_END);
  e->finish = u->calls && why <= FINISH_WORD ? FINISH_CALLS : why;
  e->stop = stop;
  e->timing = u->last = timing_of(u);
  u->last_event = e;
  return false;
}

// ---- beginning ------------------------------------------------------------------------------------------------------

static void add_unshown(run *u, const char *text, size_t n) {
  const weft_part *parts;
  n = weft_answer_add(u->answer, text, n, &parts);
  keep_begun(u, parts, n);
}

// The beginning of a continued answer. White space at its end belongs to a call, and would be repeated in other text.
static void read_given(run *u, const char *text, size_t n) {
  size_t shown = n;
  char end[64];
  while (shown && strchr(" \t\r\n", text[shown - 1])) shown--;
  add_unshown(u, text, shown);
  bool in_call = u->begun.name || !(weft_answer_in_content(u->answer) || weft_answer_reasoning_end(u->answer, end));
  if (in_call) add_unshown(u, text + shown, n - shown);
}

static int prepare_run(run *u, weft_error *err) {
  request *r = u->r;
  if (request_sampler(r, u->m, u->choice, &u->sampler, err)) return -1;
  if (r->grammar || r->forced) u->grammar = weft_grammar_clone(r->forced ? r->forced->heads : r->grammar);
  u->stream = weft_stream_new(weft_model_vocab(u->m), r->chat);
  if (r->stops.n && weft_stop_new((const char *const *)r->stops.at, r->stops.n, &u->stop, err)) return -1;
  size_t n = r->chat ? strlen(r->prompt_text) : 0, given = r->given;
  if (r->answer) u->answer = weft_answer_clone(r->answer);
  if (r->keep_reasoning && u->answer) weft_answer_keep_reasoning(u->answer);
  if (r->budget) u->budget = weft_budget_clone(r->budget);
  if (given) read_given(u, r->prompt_text + n - given, given);
  if (r->forced) add_unshown(u, r->forced->before, strlen(r->forced->before));
  return 0;
}

run *run_new(weft_model *m, weft_draft *d, enum weft_speculating speculating, request *r, int choice) {
  run *u = xcalloc(1, sizeof *u);
  *u = (run){.m = m, .draft = d, .speculating = speculating, .r = r, .choice = choice, .drawn_id = -1};
  return u;
}

const request *run_request(const run *u) { return u->r; }
// The prompt's scores are those of the first choice: the others continue from its sequence.
static bool scores_prompt(const run *u) { return u->r->prompt_scored && !u->choice; }
static size_t prompt_left(const run *u) { return u->r->prompt.n - u->fed; }
static size_t lost_left(const run *u) { return u->lost.n ? u->lost.n - u->held.past.n : 0; }
size_t run_left(const run *u) { return prompt_left(u) + lost_left(u); }
held *run_held(run *u) { return u->began ? &u->held : NULL; }

struct run_counts run_count(const run *u) {
  int64_t kept = (int64_t)u->kept, most = u->r->max_tokens;
  return (struct run_counts){.prompt = (int64_t)u->r->prompt.n,
                             .cached = kept,
                             .evaluated = (int64_t)u->fed - kept,
                             .drawn = u->drawn,
                             .left = most < 0 ? -1 : most - u->drawn};
}

size_t run_needs(const run *u, size_t most) {
  size_t left = prompt_left(u);
  if (u->r->cancelled || weft_model_denoises(u->m) || (run_left(u) && !most)) return 0;
  if (u->lost.n) return lost_left(u) + 1;
  if (scores_prompt(u) && left > 1) left--;
  return !left ? 1 : left < most ? left : most;
}

bool run_waits_for_room(const run *u) { return u->no_room; }

bool run_yield(run *u) {
  held *h = &u->held;
  u->no_room = true;
  if (!h->past.n) return weft_sequence_thin(h->sequence);           // of what was reserved
  for (size_t i = u->lost.n; i < h->past.n; i++) vec_push(&u->lost, h->past.at[i]);
  held_cut(h, 0);
  return true;
}

void run_fail(run *u, const weft_error *err) { fail_run(u, err); }
void run_cancel(run *u) { u->r->cancelled = true; }

// The choices of a request have equal ids, so the rows are equal.
int run_read_source(run *u, weft_error *err) {
  request *r = u->r;
  int32_t *ids;
  size_t n;
  if (!weft_model_has_source(u->m)) return 0;
  const token_ids *as_came = r->source.n ? &r->source : &r->prompt;
  if (weft_encode_source(u->m, as_came->at, as_came->n, &u->source, &ids, &n, err)) return -1;
  if (!r->source.n) {
    r->source = r->prompt;
    r->prompt = (token_ids){0};
    for (size_t i = 0; i < n; i++) vec_push(&r->prompt, ids[i]);
  }
  weft_free(ids);
  return 0;
}

bool run_begin(run *u, held *h) {
  weft_error err;
  u->start = now_s();
  u->began = true;
  u->held = *h;
  u->fed = u->kept = h->past.n;
  u->speculation = weft_speculation_of_sequence(u->m, h->sequence, u->speculating);
  if (u->draft) weft_speculation_draft(u->speculation, u->draft);
  return prepare_run(u, &err) ? fail_run(u, &err) : true;
}

bool run_ended(const run *u, struct timing *out) {
  *out = u->last;
  return u->failed;
}

event *run_free(run *u, held *out) {
  event *last = u->last_event;
  weft_speculation_free(u->speculation);
  weft_denoiser_free(u->denoiser);
  free(u->text.ids);
  vec_free(&u->lost);
  weft_rows_free(u->source);
  if (out && u->began) run_settle(u);
  if (out) *out = u->held;
  else held_free(&u->held);
  weft_sampler_free(u->sampler);
  weft_grammar_free(u->grammar);
  str_free(&u->head);
  weft_budget_free(u->budget);
  weft_stream_free(u->stream);
  weft_stop_free(u->stop);
  weft_answer_free(u->answer);
  part_clear(&u->begun);
  free(u->held_logits);
  free(u);
  return last;
}

// ---- the prompt -----------------------------------------------------------------------------------------------------

static int score(const run *u, event *e, const float *logits, int32_t id, weft_error *err) {
  int32_t n_vocab = weft_model_vocab_size(u->m);
  e->n_top = u->r->n_top < n_vocab ? u->r->n_top : n_vocab;
  e->top = e->n_top ? xmalloc((size_t)e->n_top * sizeof *e->top) : NULL;
  e->scored = true;
  return weft_logprobs(logits, n_vocab, id, &e->logprob, e->top, e->n_top, err);
}

// The score of token id. A token that follows regardless of sampling has probability 1.
static int score_drawn(const run *u, event *e, bool imposed, weft_error *err) {
  if (!u->r->post_sampling) return score(u, e, u->logits, e->id, err);
  e->top = u->r->n_top ? xmalloc((size_t)u->r->n_top * sizeof *e->top) : NULL;
  e->scored = true;
  if (!imposed) return weft_sampler_logprobs(u->sampler, e->id, &e->logprob, e->top, u->r->n_top, &e->n_top, err);
  if (u->r->n_top) e->top[e->n_top++] = (weft_logprob){e->id, 0};
  return 0;
}

// Scores the token of the prompt after number `fed + i`, given all before it.
static bool on_row(void *ctx, size_t i, const float *logits) {
  run *u = ctx;
  event *e = new_event(u, EVENT_PROMPT_TOKEN);
  e->id = u->r->prompt.at[u->fed + i + 1];
  if (!score(u, e, logits, e->id, NULL)) { say(u, e); return true; }
  event_free(e);
  return false;
}

// The first token of a scored prompt has no score: nothing predicts it.
static void say_first(run *u) {
  event *e = new_event(u, EVENT_PROMPT_TOKEN);
  e->id = u->r->prompt.at[0];
  say(u, e);
}

// A chunk of a scored prompt, without the prompt's last token.
static int feed_scored(run *u, size_t n, weft_error *err) {
  const int32_t *ids = u->r->prompt.at + u->fed;
  if (!u->fed) say_first(u);
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

// The grammar constrains the content only, not reasoning or calls, unless a call is forced.
bool run_needs_mask(const run *u) {
  return u->grammar && (u->r->forced || !u->answer || weft_answer_in_content(u->answer));
}

// For a forced call: after its head, the grammar of that tool's arguments follows.
static int open_arguments_schema(run *u, weft_error *err) {
  weft_grammar *arguments;
  if (!u->r->forced || u->chosen) return 0;
  account_scope before = account_enter(u->r->account);
  int status = forced_arguments(u->r->forced, weft_model_vocab(u->m), &u->head, &arguments, err);
  account_leave(before);
  if (status) return -1;
  if (!arguments) return 0;
  weft_grammar_free(u->grammar);
  u->grammar = weft_grammar_clone(arguments);
  u->chosen = true;
  return 0;
}

void run_make_mask(run *u) {
  const uint64_t *mask;
  double began = now_s();
  if (u->has_mask) return;
  u->mask_failed = open_arguments_schema(u, &u->mask_error) || weft_grammar_mask(u->grammar, &mask, &u->mask_error);
  u->has_mask = true;
  u->mask_s = now_s() - began;
}

double run_mask_s(const run *u) { return u->mask_s; }

// Can any token be sampled?
static bool has_number(const float *logits, int32_t n) {
  for (int32_t i = 0; i < n; i++) if (logits[i] > -INFINITY) return true;
  return false;
}

static int draw_token(run *u, int32_t *id, bool *constrained, weft_error *err) {
  const uint64_t *mask = NULL;
  *constrained = run_needs_mask(u);
  if (*constrained) run_make_mask(u);
  u->request_failed = *constrained && (u->mask_failed || weft_grammar_mask(u->grammar, &mask, err));
  if (u->request_failed && u->mask_failed) *err = u->mask_error;
  if (u->request_failed) return -1;
  u->has_mask = false;
  weft_sampler_mask(u->sampler, mask);
  if (!weft_sample(u->sampler, u->logits, id, err)) return 0;
  u->request_failed = has_number(u->logits, weft_model_vocab_size(u->m));
  return -1;
}

// The end of generation is banned, and the grammar is complete.
static bool must_end(const run *u) {
  return u->request_failed && weft_grammar_complete(u->grammar) && weft_grammar_ended(u->grammar);
}

// imposed: part of the end of reasoning, not sampled.
static int next_token(run *u, int32_t *id, bool *constrained, bool *imposed, weft_error *err) {
  int status = u->budget ? weft_budget_next(u->budget, u->answer, id, err) : 0;
  *constrained = false;
  *imposed = status > 0;
  return status < 0 ? -1 : status ? 0 : draw_token(u, id, constrained, err);
}

static void begin_answer(run *u) {
  u->answer_start = now_s();
  for (size_t i = 0; i < u->r->prompt.n; i++) weft_accept(u->sampler, u->r->prompt.at[i], NULL);
}

static void follow_call(run *u, int32_t id) {
  size_t n;
  if (!u->r->forced || u->chosen) return;
  char *text = weft_piece(weft_model_vocab(u->m), id, true, &n);
  str_addn(&u->head, text, n);
  weft_free(text);
}

// Adds a token to the answer. false: the answer has ended.
static bool take_id(run *u, int32_t id, bool constrained, bool imposed) {
  weft_error err;
  request *r = u->r;
  if (!r->ignore_end && weft_is_end(weft_model_vocab(u->m), id)) return end_run(u, FINISH_STOP, -1);
  u->request_failed = constrained && weft_grammar_accept(u->grammar, id, &err);
  if (u->request_failed) return fail_run(u, &err);
  follow_call(u, id);
  weft_accept(u->sampler, id, NULL);
  u->drawn++;
  event *e = new_event(u, EVENT_TOKEN);
  e->id = id;
  if (r->scored && score_drawn(u, e, imposed, &err)) { event_free(e); return fail_run(u, &err); }
  size_t n;
  int found = -1;
  const char *text = weft_stream_add(u->stream, id, &n);
  if (u->stop) text = weft_stop_add(u->stop, text, n, &n, &found);
  add_text_parts(u, e, text, n);
  e->timing = timing_of(u);
  say(u, e);
  if (found >= 0) return end_run(u, FINISH_WORD, found);
  if (u->chosen && weft_grammar_ended(u->grammar)) return end_run(u, FINISH_STOP, -1);
  if (r->one_call && u->done) return end_run(u, FINISH_STOP, -1);
  if (u->held.past.n + lost_left(u) == (size_t)weft_model_context(u->m)) return end_run(u, FINISH_LENGTH, -1);
  if (r->max_tokens >= 0 && u->drawn >= r->max_tokens) return end_run(u, FINISH_LENGTH, -1);
  u->drawn_id = id;
  return true;
}

// Samples a token. false: the answer has ended.
static bool answer_step(run *u) {
  weft_error err;
  request *r = u->r;
  int32_t id;
  bool constrained, imposed;
  if (!u->answer_start) begin_answer(u);
  if (r->max_tokens >= 0 && u->drawn >= r->max_tokens) return end_run(u, FINISH_LENGTH, -1);
  if (r->max_answer_s > 0 && now_s() - u->answer_start > r->max_answer_s) return end_run(u, FINISH_TIME, -1);
  if (next_token(u, &id, &constrained, &imposed, &err))
    return constrained && must_end(u) ? end_run(u, FINISH_STOP, -1) : fail_run(u, &err);
  return take_id(u, id, constrained, imposed);
}

// The text of a model that denoises: the prompt and as many masks as tokens are wanted, or 256.
static int begin_denoising(run *u, weft_error *err) {
  enum { USUAL = 256, STEPS = 128 };
  const request *r = u->r;
  size_t given = r->prompt.n, room = (size_t)weft_model_context(u->m) - given, n = room < USUAL ? room : USUAL;
  if (r->max_tokens >= 0) n = (uint64_t)r->max_tokens < room ? (size_t)r->max_tokens : room;
  weft_denoising how = weft_denoising_default();
  how.steps = n < STEPS ? (int)n : STEPS;
  how.temp = r->sampling.temp;
  how.top_k = r->sampling.top_k;
  how.top_p = r->sampling.top_p;
  how.seed = (uint32_t)(r->sampling.seed + (uint64_t)u->choice);
  u->text = (weft_text){xcalloc(given + n, sizeof(int32_t)), given + n, given};
  memcpy(u->text.ids, r->prompt.at, given * sizeof(int32_t));
  return n ? weft_denoiser_new(u->m, &u->text, &how, &u->denoiser, err) : 0;
}

// Evaluates the text once more; after the last time its tokens follow. false: the answer has ended.
static bool denoise_step(run *u) {
  weft_error err;
  const request *r = u->r;
  bool began = u->answer_start > 0, more = true;
  if (began && r->max_answer_s > 0 && now_s() - u->answer_start > r->max_answer_s) return end_run(u, FINISH_TIME, -1);
  if (!began && begin_denoising(u, &err)) return fail_run(u, &err);
  // steps of other texts come between, with scales of their own
  if (weft_adapt(u->m, r->scales, weft_model_n_adapters(u->m), &err)) return fail_run(u, &err);
  int status = u->denoiser ? weft_denoiser_step(u->denoiser, &err) : WEFT_DENOISE_DONE;
  if (status < 0) return fail_run(u, &err);
  if (!began) begin_answer(u);                             // the first step has read the prompt
  if (status == WEFT_DENOISE_GOES_ON) return true;
  u->fed = u->text.n_prompt;
  say_progress(u);
  for (size_t i = u->fed; more && i < u->text.n; i++) more = take_id(u, u->text.ids[i], false, false);
  return more ? end_run(u, FINISH_LENGTH, -1) : false;
}

// That of the answer counts between tokens, too, since an answer may wait there for memory.
static bool is_over_time(const run *u) {
  double limit = prompt_left(u) ? u->r->max_prompt_s : u->r->max_answer_s;
  double since = prompt_left(u) ? u->start : u->answer_start;
  return limit > 0 && since > 0 && now_s() - since > limit;
}

bool run_offer(run *u, size_t most, weft_tokens *out) {
  weft_error err;
  size_t left = prompt_left(u);
  *out = (weft_tokens){.sequence = u->held.sequence};
  if (u->last_event) return false;
  if (u->r->cancelled) return end_run(u, FINISH_GONE, -1);
  if (is_over_time(u)) return end_run(u, FINISH_TIME, -1);
  if (run_left(u) && !most) return true;
  u->no_room = false;
  if (weft_model_denoises(u->m)) return denoise_step(u);
  if (u->lost.n) {
    out->ids = u->lost.at + u->held.past.n;
    out->n = weft_piece_of(u->m, out->ids, lost_left(u), most);
    out->unseen = true;
  } else if (!left) {
    out->ids = &u->drawn_id;
    out->n = 1;
  } else if (scores_prompt(u) && left > 1) {
    if (feed_scored(u, most < left ? most : left - 1, &err)) return fail_run(u, &err);
    say_progress(u);
  } else {
    out->ids = u->r->prompt.at + u->fed;
    out->n = weft_piece_of(u->m, out->ids, left, most);
    out->unseen = out->n < left;
  }
  return true;
}

int run_evaluate(run *u, weft_tokens *t, weft_error *err) {
  uint64_t before = weft_speculation_count(u->speculation).proposed;
  if (weft_speculation_decode(u->speculation, u->held.past.at, (int)u->held.past.n, t->ids[0], &t->logits, err))
    return -1;
  return weft_speculation_count(u->speculation).proposed > before;
}

bool run_known(run *u, weft_tokens *out) {
  *out = (weft_tokens){.sequence = u->held.sequence, .ids = &u->drawn_id, .n = 1};
  if (run_left(u) || u->drawn_id < 0 || u->r->cancelled) return false;
  out->logits = weft_speculation_known(u->speculation, (int)u->held.past.n, u->drawn_id);
  return out->logits;
}

void run_propose(run *u, weft_tokens *t, double value_s, double extra_s) {
  size_t n = weft_speculation_propose(u->speculation, u->held.past.at, (int)u->held.past.n, u->drawn_id, value_s,
                                      extra_s, &t->ids);
  t->n = t->rows = n;
}

void run_proposed(run *u, weft_tokens *t, double extra_s) {
  if (t->n > 1) weft_speculation_evaluated(u->speculation, (int)u->held.past.n, t->n, t->logits, extra_s);
  t->n = 1;
}

void run_settle(run *u) { weft_sequence_cut(u->held.sequence, (int)u->held.past.n); }

// Copies logits for a later step.
static void hold_logits(run *u, const float *logits) {
  size_t n = (size_t)weft_model_vocab_size(u->m) * sizeof *logits;
  if (!u->held_logits) u->held_logits = xmalloc(n);
  memcpy(u->held_logits, logits, n);
  u->waits = true;
}

bool run_waits(const run *u) { return u->waits; }

static bool go_on_with(run *u, const float *logits) {
  u->logits = logits;
  bool more = answer_step(u);
  u->logits = NULL;
  return more;
}

bool run_resume(run *u) {
  u->waits = false;
  return go_on_with(u, u->held_logits);
}

bool run_took(run *u, const weft_tokens *t, bool late) {
  for (size_t i = 0; i < t->n; i++) vec_push(&u->held.past, t->ids[i]);
  if (u->lost.n) {
    if (!lost_left(u)) u->lost.n = 0;
    return true;
  }
  if (run_left(u)) {
    if (scores_prompt(u) && !u->fed) say_first(u);
    u->fed += t->n;
    say_progress(u);
    if (run_left(u)) return true;
  }
  if (!late) return go_on_with(u, t->logits);
  hold_logits(u, t->logits);
  return true;
}
