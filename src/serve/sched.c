// The queues and the step thread: see sched.h.
#define _GNU_SOURCE
#include "serve/sched.h"
#include "base/os.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "serve/sequence_spill.h"
#include "serve/masks.h"
#include "serve/prices.h"
#include "serve/room.h"
#include "serve/warm_up.h"

enum { QUANTUM = 1024 };               // tokens that a key gains per round
// How long a step waits for grammar masks after it: a share of its duration; or this long if no other answer runs.
#define MASK_SHARE 0.1
#define MASK_ALONE_S 0.01
#define QUICK_MASK_S 0.002             // a mask this quick is made on the step thread if no other answer runs
#define QUIET_S 1.0                    // idle seconds after which a sequence is written to a file
#define PATIENCE_S 10.0                // seconds after which the oldest request of a key goes first
#define TELL_S 0.5                     // interval of position reports if many wait
enum { LOOKED_AT = 64 };               // number of oldest requests per key whose prompts are looked up in the cache

// Target seconds of a prompt chunk: if nothing else runs; and beside running answers, as a factor of a step without it,
// but at least this long.
#define PIECE_S 0.25
#define SHARED_SHARE 1.6
#define BESIDE_SHARE 1.4               // and if it is evaluated in one run with them
#define SHARED_S 0.03
#define MORE_SHARE 0.25                // plus this per waiting prompt, whose first token is delayed too
#define MOST_SHARE 3.0
#define LITTLE_MORE 1.15               // minimum factor for any chunk
enum { ALONE_EVERY = 16 };             // one step in this many has no prompt, to measure the baseline again
// In tokens: a chunk, its minimum and maximum; a tile, which costs as much as one token.
enum { PIECE = 64, MOST_PIECE = 1024, LEAST = 4, TILE = PRICES_TILE };

// next, best: used while all queues are scanned
struct queue { request *first, *next, **best; int64_t credit; };
// live: running answers; rest: unused sequences, the most recently used last
struct sched {
  struct sched_options o;
  weft_options model_options;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t more;
  struct queue *queues;
  int turn;
  bool over;                           // no more steps
  atomic_bool stop;
  _Atomic enum sched_state state;
  weft_error why;
  char waited[80];                     // the reason of requests that waited for too long
  weft_model *model, *draft_model;     // draft_model, draft: NULL: none
  weft_draft *draft;
  runs live;                           // in the order in which they began
  helds rest;
  cache_room room;                     // of the cache
  spill spill;
  kv_blocks *kv;                       // NULL: off
  masks masks;
  bool only_masks;                     // the last step had nothing to evaluate: answers wait for masks
  VEC(vectors *) texts;
  events ends;                         // final events of this step, not yet sent
  VEC(request *) opened;               // requests with choices that have not started
  slot_action *actions;                // pending, in order
  helds given_back;                    // copies to be freed
  struct sched_counts c;
  struct row_prices rows;              // of steps without a prompt
  double lent_s;                       // budget for delays of answers by others' drafts; negative: overspent
  double read_tokens, read_s;          // of steps with a prompt chunk: prompt tokens, and time
  double steps_s, waited_s, drafts;    // of all steps; in which answers without a draft waited for others' drafts
  struct prices prices[3];             // of chunks alone (longer); beside answers; in one run with them
  double last_step, token_s;           // token_s: recent step of one answer; 0: unknown
  double last_end, end_every_s;        // recent interval between ends of requests while others wait; 0: unknown
  double told;                         // time of the last position report
  bool moved;                          // queue positions have changed
  unsigned fed, shared;                // prompt chunks; steps with answers and a prompt
  _Atomic double loaded;
};

static int64_t request_cost(const request *r) {
  int64_t answer = r->max_tokens < 0 || r->max_tokens > 256 ? 256 : r->max_tokens;
  return (int64_t)r->prompt.n + answer * r->n;
}

// ---- the queues; the caller holds the lock --------------------------------------------------------------------------

// The running or unused sequence with the longest usable prefix of a prompt. n: its length; shared: the longest prefix
// in any sequence. h NULL: none.
struct known { const held *h; size_t at, n, shared; };

static struct known known_tokens(const sched *s, const request *r) {
  struct known best = {0};
  size_t limit = request_may_share(r);
  for (size_t i = 0; i < s->rest.n + s->live.n; i++) {
    const held *h = i < s->rest.n ? &s->rest.at[i] : run_held(s->live.at[i - s->rest.n]);
    size_t n = h ? request_shares(r, h) : 0;
    if (n > limit) n = weft_before_rows(r->prompt.at, limit, r->prompt.n);
    if (n > best.shared) best.shared = n;
    if (n > best.n) n = (size_t)weft_sequence_whole(h->sequence, (int)n);
    if (n > best.n) best.h = h, best.at = i, best.n = n;
  }
  return best;
}

static request **best_of(sched *s, struct queue *q) {
  request **best = &q->first;
  if (!*best || now_s() - (*best)->arrived > PATIENCE_S) return best;
  size_t most = known_tokens(s, *best).n;
  int looks = 0;
  for (request **at = &(*best)->next; *at && ++looks < LOOKED_AT; at = &(*at)->next) {
    size_t n = known_tokens(s, *at).n;
    if (n > most) most = n, best = at;
  }
  return best;
}

static request *take_request(sched *s, request **at) {
  request *r = *at;
  *at = r->next;
  s->c.waiting--;
  s->moved = true;
  s->c.waiting_tokens -= (int64_t)r->prompt.n;
  return r;
}

// The next request, or NULL. Each nonempty queue gains credit until one can pay; prompts are looked up once.
static request *next_request(sched *s) {
  if (!s->c.waiting) return NULL;
  for (int k = 0; k < s->o.n_keys; k++) s->queues[k].best = NULL;
  for (;;) {
    struct queue *q = &s->queues[s->turn];
    request **r = q->best = q->best ? q->best : best_of(s, q);
    if (!*r) q->credit = 0;
    else if (q->credit >= request_cost(*r)) { q->credit -= request_cost(*r); return take_request(s, r); }
    else q->credit += QUANTUM;
    s->turn = (s->turn + 1) % s->o.n_keys;
  }
}

// Estimated seconds until n waiting requests with this many prompt tokens have started: slots become free at the rate
// at which requests end, and prompts are evaluated at the measured speed. Unmeasured quantities count as zero, so no
// request is refused on an estimate without data.
static double expected_wait_s(const sched *s, int n, int64_t tokens) {
  double read = s->read_tokens > 0 ? (double)tokens * s->read_s / s->read_tokens : 0, end = s->end_every_s * n;
  return read > end ? read : end;
}

static void tell_place(sched *s, request *r, int place, int64_t tokens) {
  if (!r->tells || place == r->told) return;
  r->told = place;
  event *e = xcalloc(1, sizeof *e);
  *e = (event){.kind = EVENT_PROMPT, .request = r, .total = (int64_t)r->prompt.n, .waiting = place};
  e->wait_s = expected_wait_s(s, place, tokens);
  r->event(r->ctx, e);
}

// Reports to requests that want it their position in the queue, by arrival, and the estimated wait. Each queue is in
// that order.
static void tell_waiting(sched *s) {
  enum { FEW = 64 };
  double now = now_s();
  if (!s->moved || (s->c.waiting > FEW && now - s->told < TELL_S)) return;
  s->moved = false;
  s->told = now;
  int place = 0;
  int64_t tokens = 0;
  for (int k = 0; k < s->o.n_keys; k++) s->queues[k].next = s->queues[k].first;
  for (;;) {
    struct queue *q = NULL;
    for (int k = 0; k < s->o.n_keys; k++) {
      struct queue *other = &s->queues[k];
      if (other->next && (!q || other->next->arrived < q->next->arrived)) q = other;
    }
    if (!q) return;
    tokens += (int64_t)q->next->prompt.n;
    tell_place(s, q->next, ++place, tokens);
    q->next = q->next->next;
  }
}

// Ends all choices of a request that is in no queue. The request may be freed afterwards.
static void end_request(request *r, enum event_kind kind, const char *why) {
  events last = {0};
  request_end(r, kind, why, &last);
  events_send(&last);
  vec_free(&last);
}

static bool waited_too_long(const sched *s, const request *r) {
  return s->o.max_wait_s > 0 && now_s() - r->arrived > s->o.max_wait_s;
}

// Ends requests that have waited too long, with an error. Releases the lock meanwhile.
static void end_overdue(sched *s) {
  for (int k = 0; k < s->o.n_keys; k++)
    while (s->queues[k].first && waited_too_long(s, s->queues[k].first)) {
      request *r = take_request(s, &s->queues[k].first);
      pthread_mutex_unlock(&s->lock);
      end_request(r, EVENT_FAILED, s->waited);
      pthread_mutex_lock(&s->lock);
    }
}

// ---- steps ----------------------------------------------------------------------------------------------------------

static void blend(double *mean, double value) { *mean = *mean > 0 ? 0.8 * *mean + 0.2 * value : value; }

static void count_timing(sched *s, const struct timing *t) {
  pthread_mutex_lock(&s->lock);
  s->c.prompt_tokens += (double)(t->n_prompt - t->n_cached);
  s->c.cached_tokens += (double)t->n_cached;
  s->c.prompt_s += t->prompt_ms / 1000;
  s->c.drawn_tokens += (double)t->n_drawn;
  s->c.drawn_s += t->drawn_ms / 1000;
  s->c.proposed += (double)t->speculation.proposed;
  s->c.drafts_accepted += (double)t->speculation.accepted;
  if ((double)(t->n_prompt + t->n_drawn) > s->c.longest) s->c.longest = (double)(t->n_prompt + t->n_drawn);
  s->c.requests++;
  double now = now_s();
  if (s->last_end > 0) blend(&s->end_every_s, now - s->last_end);
  s->last_end = s->c.waiting ? now : 0;
  pthread_mutex_unlock(&s->lock);
}

// ---- sequences ------------------------------------------------------------------------------------------------------

static void drop_oldest(sched *s) { slots_drop(&s->rest, slots_first_to_go(&s->rest)); }

static void trim_rest(sched *s) {
  while (s->rest.n > (size_t)s->o.parallel) {
    size_t i = slots_first_to_go(&s->rest);
    spill_offer(&s->spill, &s->rest.at[i]);
    slots_drop(&s->rest, i);
  }
}

static void keep_rest(sched *s, const held *h) {
  if (!h->sequence) return;
  slots_add(&s->rest, h);
  trim_rest(s);
}

// Offers unused sequences that are in no file for writing, after a delay: otherwise every turn of a conversation would
// be written.
static void offer_to_keep(sched *s) {
  double now = now_s();
  spill_collect(&s->spill);
  for (size_t i = 0; i < s->rest.n; i++) if (now - s->rest.at[i].used > QUIET_S) spill_offer(&s->spill, &s->rest.at[i]);
}

// Reports to routers what all sequences hold.
static void tell_blocks(sched *s) {
  if (!s->kv) return;
  for (size_t i = 0; i < s->rest.n + s->live.n; i++) {
    held *h = i < s->rest.n ? &s->rest.at[i] : run_held(s->live.at[i - s->rest.n]);
    if (h && weft_sequence_adapts_as(h->sequence, NULL)) kv_chain_follow(s->kv, &h->chain, h->past.at, h->past.n);
  }
  kv_blocks_tell(s->kv);
}

static bool keeps_some(sched *s) {
  bool some = spill_busy(&s->spill), waits = spill_waits(&s->spill);
  for (size_t i = 0; waits && i < s->rest.n; i++) some |= !s->rest.at[i].kept;
  return some;
}

// Waits for work, or until a sequence may be written. The caller holds the lock.
static void wait_for_more(sched *s) {
  if (!keeps_some(s)) { pthread_cond_wait(&s->more, &s->lock); return; }
  os_cond_wait_until(&s->more, &s->lock, now_s() + 0.2);
  pthread_mutex_unlock(&s->lock);
  offer_to_keep(s);
  pthread_mutex_lock(&s->lock);
}

// Loads a sequence from files, if they have a much longer prefix than memory.
static bool take_up(sched *s, const request *r, size_t limit, size_t most, held *out) {
  enum { WORTH = 64 };
  weft_error err;
  if (!request_scales_are_usual(r, &s->o.model)) return false;      // sequences with other scales are in no file
  for (;;) {
    size_t n = spill_find(&s->spill, &r->prompt, limit);
    if (n < most + WORTH) return false;
    int failed = spill_load(&s->spill, &r->prompt, n, out, &err);
    out->slot = -1;
    if (!failed) return true;
    if (failed == -2) log_warn(s->o.log, "%s", err.text);        // the damaged file is not found again
    if (failed == -1 && !s->rest.n) return false;
    if (failed == -1) drop_oldest(s);
  }
}

// Finds the sequence from which a prompt continues: the one with the longest prefix, taken itself if it is unused,
// little of it is lost and its slot may change; otherwise a copy of its beginning. The prompt's last token is always
// evaluated, since its logits are needed.
static int find_past(sched *s, const request *r, int slot, held *out, size_t *shared, weft_error *err) {
  enum { LITTLE = 64 };                // tokens that are quickly evaluated again
  struct known best = known_tokens(s, r);
  size_t n_rest = s->rest.n;
  *shared = best.shared;
  if (take_up(s, r, request_may_share(r), best.n, out)) return 0;
  if (s->rest.n < n_rest) best = known_tokens(s, r);
  size_t lost = best.h ? best.h->past.n - best.n : 0;
  bool moves = best.h && slot >= 0 && best.h->slot >= 0 && best.h->slot != slot;
  if (best.h && best.at < s->rest.n && lost <= LITTLE && lost < best.n && !moves) {
    *out = *best.h;
    s->rest.at[best.at] = (held){0};
    slots_drop(&s->rest, best.at);
    held_cut(out, best.n);
    return 0;
  }
  while (held_begin(s->model, best.h, best.n, out, err)) {
    if (!s->rest.n) return -1;
    drop_oldest(s);
    best = known_tokens(s, r);
  }
  return best.h ? 0 : weft_sequence_adapt(out->sequence, r->scales, s->o.model.n_adapters, err);
}

// Finds activation tokens of adapters, and marks likely checkpoints: where this prompt leaves the cache, and its end.
static void mark_prompt(const request *r, held *h, size_t shared) {
  size_t stays = (size_t)weft_sequence_invoke(h->sequence, r->prompt.at, r->prompt.n);
  if (stays < h->past.n) held_cut(h, stays);
  weft_sequence_checkpoint(h->sequence, (int)shared, (int)shared);
  weft_sequence_checkpoint(h->sequence, (int)h->past.n, (int)r->prompt.n - 1);
}

// ---- a step ---------------------------------------------------------------------------------------------------------

static void remove_live(sched *s, size_t i) {
  run *u = s->live.at[i];
  struct timing t;
  held h = {0};
  run_ended(u, &t);
  count_timing(s, &t);
  vec_push(&s->ends, run_free(u, &h));
  memmove(s->live.at + i, s->live.at + i + 1, (--s->live.n - i) * sizeof *s->live.at);
  s->room.crowded = false;
  keep_rest(s, &h);
}

// Choices of a request start one after another: the first evaluates the prompt, the others share its pages. They use at
// most half of the slots, so that other requests are not blocked.
static bool may_begin_choice(const sched *s, const request *r) {
  int n = 0;
  for (size_t i = 0; i < s->live.n; i++) {
    if (run_request(s->live.at[i]) != r) continue;
    if (run_left(s->live.at[i]) > 1 || 2 * ++n >= s->o.parallel) return false;
  }
  return true;
}

static void slots_in_work(const sched *s, bool *in_work) {
  for (size_t i = 0; i < s->live.n; i++) in_work[run_held(s->live.at[i])->slot] = true;
}

// The slot for a prompt's sequence: see slots.h. A request for a slot in use gets it too; the slot then belongs to the
// answer that ends last.
static int slot_for(const sched *s, const held *h, int wanted) {
  bool in_work[SCHED_PARALLEL_MAX] = {false};
  slots_in_work(s, in_work);
  if (wanted >= 0 && wanted < s->o.parallel) return wanted;
  return h->slot >= 0 && !in_work[h->slot] ? h->slot : slots_free_number(&s->rest, in_work, s->o.parallel);
}

// Starts the next choice of a request. false: there is memory for no more sequences until an answer ends.
static bool begin_choice(sched *s, request *r) {
  weft_error err;
  held h;
  int slot = r->begun ? -1 : r->slot;
  size_t shared, source = weft_model_has_source(s->model) ? r->source.n ? r->source.n : r->prompt.n : 0;
  if (!room_beside(&s->room, source) && s->live.n) return false;
  run *u = run_new(s->model, s->draft, s->o.speculating, r, r->begun++);
  bool reads = !run_read_source(u, &err), fits = reads && !find_past(s, r, slot, &h, &shared, &err);
  if (reads && !fits && s->live.n) {
    r->begun--;
    run_free(u, NULL);
    return false;
  }
  if (fits) {
    mark_prompt(r, &h, shared);
    h.slot = slot_for(s, &h, slot);
  } else {
    run_fail(u, &err);
  }
  if (fits && run_begin(u, &h)) vec_push(&s->live, u);
  else vec_push(&s->ends, run_free(u, NULL));
  return true;
}

// Ends what has not begun of a request if its client has left, or all of it if it has waited too long for memory.
static bool end_unbegun(sched *s, request *r) {
  bool left = r->cancelled, late = !left && !r->begun && waited_too_long(s, r);
  if (left) request_end(r, EVENT_END, "", &s->ends);
  if (late) request_end(r, EVENT_FAILED, s->waited, &s->ends);
  return left || late;
}

static void begin_choices(sched *s) {
  bool full = s->room.texts_wait;
  for (size_t i = 0; i < s->opened.n;) {
    request *r = s->opened.at[i];
    full |= s->live.n >= (size_t)s->o.parallel;
    bool may = !full && !r->cancelled && may_begin_choice(s, r) && !masks_busy(&s->masks, r);
    if (may && begin_choice(s, r)) {
      if (r->begun < r->n) continue;
    } else {
      full |= may;
      if (!end_unbegun(s, r)) { i++; continue; }
    }
    memmove(s->opened.at + i, s->opened.at + i + 1, (--s->opened.n - i) * sizeof *s->opened.at);
  }
}

// Chooses the prompt to evaluate: alternately the oldest and the one with the fewest tokens left. A short prompt does
// not wait for a long one, and short ones do not starve a long one. A prompt that has waited long goes first.
static run *next_prompt(sched *s) {
  run *oldest = NULL, *shortest = NULL;
  for (size_t i = 0; i < s->live.n; i++) {
    run *u = s->live.at[i];
    if (run_request(u)->cancelled || !run_left(u) || masks_busy(&s->masks, run_request(u))) continue;
    if (s->room.crowded && i && run_waits_for_room(u)) continue;
    if (!oldest || run_request(u)->arrived < run_request(oldest)->arrived) oldest = u;
    if (!shortest || run_left(u) < run_left(shortest)) shortest = u;
  }
  if (!oldest) return NULL;
  return s->fed++ % 2 || now_s() - run_request(oldest)->arrived > PATIENCE_S ? oldest : shortest;
}

static bool answers_now(const run *u) { return !run_left(u) && !run_waits(u); }

// Continues an answer with the token that waited for its mask, and with accepted draft tokens, as far as masks are
// ready. false: it has ended.
static bool advance_run(sched *s, run *u) {
  weft_tokens t;
  bool alone = s->live.n == 1 && !s->opened.n && !s->texts.n;
  if (masks_busy(&s->masks, run_request(u))) return true;
  if (run_waits(u) && !run_resume(u)) return false;
  while (run_known(u, &t)) {
    if (!alone || run_mask_s(u) > QUICK_MASK_S) masks_begin(&s->masks, &u, 1);
    bool late = !masks_wait(&s->masks, run_request(u), now_s() + (alone ? MASK_ALONE_S : MASK_SHARE * s->token_s));
    if (!run_took(u, &t, late)) return false;
    if (late) return true;
  }
  return true;
}

static void advance(sched *s) {
  for (size_t i = 0; i < s->live.n;) {
    if (advance_run(s, s->live.at[i])) i++;
    else remove_live(s, i);
  }
}

static double rows_cost(const sched *s, size_t n) { return prices_of_rows(&s->rows, n); }

// Seconds of a step of n answers without a prompt; if unmeasured, those of one answer.
static double answers_s(const sched *s, size_t n) {
  double cost = n > 1 ? rows_cost(s, n) : 0;
  return cost > 0 ? cost : s->token_s;
}

// The allowed duration of a step with a prompt chunk, given that of the answers alone.
static double share_of_step(const sched *s, double of_one) {
  size_t waiting = 0;
  for (size_t i = 0; i < s->live.n; i++) waiting += run_left(s->live.at[i]) > 0;
  double share = of_one + MORE_SHARE * (double)(waiting > 1 ? waiting - 1 : 0);
  return share < MOST_SHARE ? share : MOST_SHARE;
}

// Prompt tokens that fit into the partly filled tile of n answers, so that weights are read once for both.
static size_t tile_room(const sched *s, size_t n) {
  return weft_model_is_recurrent(s->model) ? 0 : (TILE - n % TILE) % TILE;
}

// As many of those as the time allows, since each attends to a long prompt. If time is left, full tiles are added
// before them, at their standalone cost.
static size_t fill_tile(const sched *s, size_t n, size_t past) {
  size_t fits = tile_room(s, n), more = 0;
  const struct prices *p = s->prices;
  double may = share_of_step(s, BESIDE_SHARE) * answers_s(s, n);
  while (fits > LEAST && prices_s(&s->prices[2], n + fits, past) > may) fits--;
  may -= prices_s(&s->prices[2], n + fits, past);
  while (p[0].tiles > 0 && fits == tile_room(s, n) && more < MOST_PIECE &&
         prices_s(&p[0], more + TILE, past) <= may && prices_s(&p[1], more + TILE, past) <= may)
    more += TILE;
  return fits + more;
}

// Prompt tokens in a step of n answers: those that fit their tile or, if that is few, more: in whole chunks or tiles,
// or as many as fit one tile.
static size_t piece(const sched *s, run *u, size_t n) {
  size_t past = run_held(u)->past.n, unit = n ? TILE : PIECE, fits = n ? LEAST : PIECE, room = tile_room(s, n);
  double may = n ? share_of_step(s, SHARED_SHARE) * answers_s(s, n) : PIECE_S;
  const struct prices *p = &s->prices[n && s->prices[1].tiles > 0];
  if (room >= LEAST) return fill_tile(s, n, past);
  if (p->tiles <= 0) return unit + room;
  double least = LITTLE_MORE * prices_s(p, fits, past);
  if (n && may < SHARED_S) may = SHARED_S;
  if (n && may < least) may = least;
  while (fits < MOST_PIECE) {
    size_t more = fits < unit ? fits + 1 : fits + unit;
    if (prices_s(p, more, past) > may) break;
    fits = more;
  }
  return fits + room;
}

// Records the duration of a step of n answers and a chunk of this many tokens after `past` others.
static void learn_pieces(sched *s, size_t n, size_t tokens, size_t past, bool unseen, double took) {
  size_t room = tile_room(s, n);
  bool fills = room >= LEAST;
  took -= answers_s(s, n + (!unseen && !fills));
  if (fills && tokens <= room) prices_learn(&s->prices[2], n + tokens, past, took);
  else if (tokens > room)
    prices_learn(&s->prices[n > 0], tokens - room, past, took - (fills ? prices_s(&s->prices[2], n + room, past) : 0));
}

static double thought_s(const sched *s) { return s->draft ? weft_draft_seconds(s->draft) : 0; }

// Adds draft tokens to each answer, as far as they pay. Answers without a draft only wait for the others' rows and for
// their draft model; that may take a fiftieth of the time, unless --draft-always is set. Returns the step's rows.
static size_t draft_rows(sched *s, weft_tokens *parts, run **of, size_t n) {
  enum { MOST = 8 };                   // maximum tokens of a draft
  size_t rows = n, drafting = 0, chunk = (size_t)weft_model_chunk(s->model);
  double before = thought_s(s), lent = s->o.speculating == WEFT_SPECULATE_ALWAYS ? INFINITY : s->lent_s;
  for (size_t i = 0; i < n; i++) {
    if (rows + MOST > PRICES_ROWS || rows + MOST > chunk) break;
    if (s->draft) weft_draft_rest(s->draft, lent < (drafting < i ? thought_s(s) - before : 0));
    run_settle(of[i]);
    run_propose(of[i], &parts[i], rows_cost(s, n) / (double)n, rows_cost(s, rows + MOST - 1) - rows_cost(s, rows));
    rows += parts[i].n - 1;
    drafting += parts[i].n > 1;
  }
  if (drafting == n || rows_cost(s, rows) - rows_cost(s, n) <= lent) return rows;
  for (size_t i = 0; i < n; i++) parts[i].n = parts[i].rows = 1;
  return n;
}

// Records a step of n answers, after drafting. Drafts of some answers may delay the others by a fiftieth of the time.
static void lend(sched *s, const weft_tokens *parts, size_t n, double thought, double took, double plain) {
  bool all = true, some = false;
  for (size_t i = 0; i < n; i++) all &= parts[i].n > 1, some |= parts[i].n > 1;
  double cost = all ? 0 : thought + (some && took > plain ? took - plain : 0);
  s->lent_s += 0.02 * (thought + took) - cost;
  s->waited_s += cost;
  if (s->lent_s > 1) s->lent_s = 1;
}

// A run that evaluates by itself may have found the model broken.
static void look_at_failure(sched *s, const run *u) {
  struct timing t;
  if (run_ended(u, &t) && weft_model_check(s->model, &s->why)) s->state = SCHED_BROKEN;
}

// Evaluates together what the runs need next: a token of each answer with its draft, and a prompt chunk.
static void step_runs(sched *s) {
  weft_tokens parts[SCHED_PARALLEL_MAX];
  run *of[SCHED_PARALLEL_MAX];
  size_t n = 0, tokens = 0, rows, late = 0, answers = 0, past = 0;
  bool unseen = false;
  weft_error err;
  advance(s);
  run *fed = next_prompt(s);
  for (size_t i = 0; i < s->live.n; i++) answers += answers_now(s->live.at[i]);
  if (fed && answers && ++s->shared % ALONE_EVERY == 0) fed = NULL;
  for (size_t i = 0; i < s->live.n;) {
    run *u = s->live.at[i];
    if (run_waits(u) || masks_busy(&s->masks, run_request(u))) { i++; late++; continue; }
    size_t most = u == fed ? piece(s, u, answers) : 0;
    int lacks = room_make(&s->room, i, run_needs(u, most), &err);
    if (!lacks && !run_offer(u, most, &parts[n])) {
      look_at_failure(s, u);
      remove_live(s, i);
      continue;
    }
    if (!lacks) lacks = room_make(&s->room, i, parts[n].n, &err);
    if (lacks < 0) { run_fail(u, &err); remove_live(s, i); continue; }
    i++;
    if (lacks || !parts[n].n) continue;
    if (run_left(u)) tokens = parts[n].n, past = run_held(u)->past.n, unseen = parts[n].unseen;
    of[n++] = u;
  }
  s->only_masks = !n && late;
  if (!n) return;
  bool alone = n == 1 && !tokens && !late && !s->opened.n && !s->texts.n;
  int failed;
  double thought = thought_s(s);
  rows = tokens || alone ? n : draft_rows(s, parts, of, n);
  thought = thought_s(s) - thought;
  double began = now_s(), plain = rows_cost(s, n);
  if (alone && s->draft) weft_draft_rest(s->draft, false);
  masks_begin(&s->masks, of, n);
  if (alone) failed = run_evaluate(of[0], &parts[0], &err);
  else failed = weft_step(s->model, parts, n, NULL, NULL, &err);
  double took = now_s() - began;
  if (!tokens && !alone) {
    prices_learn_rows(&s->rows, rows, took);
    lend(s, parts, n, thought, took, plain);
  }
  s->steps_s += thought + took;
  for (size_t i = 0; i < n; i++) s->drafts += alone ? failed > 0 : rows > n && parts[i].rows > 1;
  if (alone && !failed) blend(&s->token_s, s->token_s > 0 && took > 2 * s->token_s ? 2 * s->token_s : took);
  if (tokens && !failed) {
    learn_pieces(s, answers, tokens, past, unseen, took);
    s->read_tokens += (double)tokens;
    s->read_s += took;
  }
  if (failed < 0 && weft_model_check(s->model, &s->why)) s->state = SCHED_BROKEN;
  double until = failed < 0 ? INFINITY : now_s() + (alone ? MASK_ALONE_S : MASK_SHARE * took);
  for (size_t i = 0; i < n; i++) {
    bool made = masks_wait(&s->masks, run_request(of[i]), until);
    bool fails = failed < 0 || parts[i].damaged;
    if (fails) run_fail(of[i], &err);
    else if (rows > n && parts[i].rows)
      run_proposed(of[i], &parts[i],
                  plain > 0 && took > plain ? (took - plain) * (double)(parts[i].n - 1) / (double)(rows - n) : 0);
    if (fails ? !made : run_took(of[i], &parts[i], !made)) continue;     // run_offer ends it once its mask is made
    size_t k = 0;
    while (s->live.at[k] != of[i]) k++;
    remove_live(s, k);
  }
}

static void make_vectors(sched *s) {
  s->room.texts_wait = false;
  for (size_t i = 0; i < s->texts.n;) {
    vectors *v = s->texts.at[i];
    bool waits = !room_beside(&s->room, vectors_needs(v)) && s->live.n;
    bool late = waits && !v->i && waited_too_long(s, v->r);
    s->room.texts_wait |= waits && !late;
    if (late) request_end(v->r, EVENT_FAILED, s->waited, &s->ends);
    else if (waits || vectors_step(v)) { i++; continue; }
    if (weft_model_check(s->model, &s->why)) s->state = SCHED_BROKEN;
    if (!late) { count_timing(s, &v->timing); vec_push(&s->ends, v->last); }
    free(v);
    s->texts.at[i] = s->texts.at[--s->texts.n];
  }
}

static void on_load(void *ctx, const char *what, double fraction) {
  sched *s = ctx;
  s->loaded = fraction;
  if (s->o.model.progress) s->o.model.progress(s->o.model.progress_ctx, what, fraction);
}

static int open_draft(sched *s, weft_error *err) {
  weft_options o = {.context = weft_model_context(s->model),
                    .threads = s->o.model.threads,
                    .prompt_threads = s->o.model.prompt_threads,
                    .progress = on_load,
                    .progress_ctx = s};
  if (s->o.speculating == WEFT_SPECULATE_NEVER) return 0;
  if (s->o.draft) {
    if (weft_model_open(s->o.draft, &o, &s->draft_model, err)) return -1;
    if (!weft_draft_new(s->model, s->draft_model, &s->o.drafts, &s->draft, err)) return 0;
    if (!s->o.draft_of_some) return -1;
    log_warn(s->o.log, "no draft model for %s: %s", s->o.name, err->text);
    weft_model_close(s->draft_model);
    s->draft_model = NULL;
  }
  if (weft_draft_own(s->model, &s->o.drafts, &s->draft, err)) return -1;
  return s->draft ? weft_draft_prepare(s->draft, err) : 0;
}

static void cancel_all(sched *s) {
  for (size_t i = 0; i < s->live.n; i++) run_cancel(s->live.at[i]);
  for (size_t i = 0; i < s->opened.n; i++) s->opened.at[i]->cancelled = true;
  for (size_t i = 0; i < s->texts.n; i++) s->texts.at[i]->r->cancelled = true;
}

// The caller holds the lock.
static void tell_slots(sched *s) {
  struct sched_counts *c = &s->c;
  memset(c->slot, 0, sizeof c->slot);
  for (size_t i = 0; i < s->rest.n; i++)
    if (s->rest.at[i].slot >= 0) c->slot[s->rest.at[i].slot].past = (int)s->rest.at[i].past.n;
  for (size_t i = 0; i < s->live.n; i++) {
    const held *h = run_held(s->live.at[i]);
    c->slot[h->slot] = (struct slot_state){(int)h->past.n, true, run_count(s->live.at[i])};
  }
}

static int requests_in_work(const sched *s) {
  size_t n = s->texts.n + s->opened.n;
  for (size_t i = 0; i < s->live.n; i++) {
    const request *r = run_request(s->live.at[i]);
    bool counted = r->begun < r->n;                    // counted among the opened ones
    for (size_t j = 0; j < i && !counted; j++) counted = run_request(s->live.at[j]) == r;
    n += !counted;
  }
  return (int)n;
}

// Executes slot actions, except on running answers. The caller holds the lock, which is released meanwhile.
static void act_on_slots(sched *s) {
  bool in_work[SCHED_PARALLEL_MAX] = {false};
  slots_in_work(s, in_work);
  for (size_t i = 0; i < s->given_back.n; i++) held_free(&s->given_back.at[i]);
  s->given_back.n = 0;
  for (slot_action **at = &s->actions; *at;) {
    slot_action *a = *at;
    if (in_work[a->slot]) { at = &a->next; continue; }
    *at = a->next;
    pthread_mutex_unlock(&s->lock);
    slots_act(&s->rest, s->model, a);
    trim_rest(s);
    tell_blocks(s);
    pthread_mutex_lock(&s->lock);
    tell_slots(s);
    a->done(a);
  }
}

// Refuses the remaining actions at shutdown.
static void refuse_actions(sched *s) {
  while (s->actions) {
    slot_action *a = s->actions;
    s->actions = a->next;
    a->status = 503;
    snprintf(a->why.text, sizeof a->why.text, "the server is ending");
    a->done(a);
  }
}

// The caller holds the lock.
static void publish_counts(sched *s) {
  struct sched_counts *c = &s->c;
  c->steps_s = s->steps_s;
  c->drafts = s->drafts;
  c->waited_s = s->waited_s;
  c->draft_s = thought_s(s);
  c->yields = (double)s->room.yields;
  c->n_live = (int)s->live.n;
  c->running = requests_in_work(s);
  for (size_t i = 0; i < s->live.n; i++) c->past[i] = (int)run_held(s->live.at[i])->past.n;
  tell_slots(s);
}

// Sends final events after all counts are published.
static void tell_ends(sched *s) {
  pthread_mutex_lock(&s->lock);
  publish_counts(s);
  pthread_mutex_unlock(&s->lock);
  events_send(&s->ends);
}

// The caller holds the lock, which is released meanwhile.
static void lead_step(sched *s) {
  struct sched_counts *c = &s->c;
  double before = s->last_step;
  uint64_t answering = 0;
  pthread_mutex_unlock(&s->lock);
  if (s->stop) cancel_all(s);
  turn_take(s->o.turn);
  begin_choices(s);
  size_t busy = s->live.n + s->texts.n;
  for (size_t i = 0; i < s->live.n; i++) answering += answers_now(s->live.at[i]);
  step_runs(s);
  if (s->ends.n && s->texts.n) tell_ends(s);           // a text may take long
  make_vectors(s);
  turn_give(s->o.turn);
  if (s->only_masks && !s->texts.n) masks_wait_any(&s->masks, now_s() + MASK_ALONE_S);
  offer_to_keep(s);
  tell_blocks(s);
  pthread_mutex_lock(&s->lock);
  s->last_step = now_s();
  histogram_add(&c->between, histogram_seconds, s->last_step - before, answering);
  c->steps++;
  c->busy += (double)busy;
  pthread_mutex_unlock(&s->lock);
  tell_ends(s);
  pthread_mutex_lock(&s->lock);
}

// Logs the file's sampling recommendations that are used, and those with invalid values.
static void look_at_sampling(const sched *s) {
  weft_sampling p = weft_sampling_default();
  weft_error err;
  if (weft_sampling_of_file(weft_model_file(s->model), &p, &err)) log_warn(s->o.log, "%s", err.text);
}

static bool is_draft_file(const char *path) {
  weft_file *f;
  if (!path || weft_file_open(path, &f, NULL)) return false;
  bool is = weft_file_only_drafts(f);
  weft_file_close(f);
  return is;
}

// A draft file is opened with the model. Of several models, those that it does not fit go without it.
static int open_served(sched *s) {
  bool drafts = s->o.speculating != WEFT_SPECULATE_NEVER, file = drafts && is_draft_file(s->o.draft);
  s->model_options.mtp = drafts && (!s->o.draft || s->o.draft_of_some);
  s->model_options.draft_file = file ? s->o.draft : NULL;
  if (file) s->o.draft = NULL;
  int status = weft_model_open(s->o.path, &s->model_options, &s->model, &s->why);
  if (!status || !file || !s->o.draft_of_some) return status;
  weft_error err = s->why;
  s->model_options.draft_file = NULL;
  status = weft_model_open(s->o.path, &s->model_options, &s->model, &s->why);
  if (!status) log_warn(s->o.log, "no draft file for %s: %s", s->o.name, err.text);
  return status;
}

static void *lead(void *arg) {
  sched *s = arg;
  s->model_options.progress = on_load;
  s->model_options.progress_ctx = s;
  int status = open_served(s);
  if (!status) look_at_sampling(s);
  if (!status && s->o.parallel > weft_model_chunk(s->model)) s->o.parallel = weft_model_chunk(s->model);
  if (!status) status = warm_up(s->model, &s->o, &s->why);
  if (!status) status = open_draft(s, &s->why);
  s->room = (cache_room){.m = s->model, .rest = &s->rest, .live = &s->live};
  if (!status) weft_forget(s->model);            // what the warm-up holds
  masks_open(&s->masks);
  if (!status) spill_open(&s->spill, s->o.keep, s->o.keep_bytes, s->o.log, s->model);
  if (!status) s->kv = kv_blocks_new(s->o.kv, weft_vocab_size(weft_model_vocab(s->model)));
  s->state = status ? SCHED_FAILED : SCHED_READY;
  s->o.loaded(s->o.ctx);
  pthread_mutex_lock(&s->lock);
  while (!status) {
    if (s->actions || s->given_back.n) act_on_slots(s);
    bool idle = !s->live.n && !s->texts.n && !s->opened.n;
    while (s->live.n + s->opened.n + s->texts.n < (size_t)s->o.parallel) {
      request *r = next_request(s);
      if (!r) break;
      if (r->embeds) {
        vectors *v = xmalloc(sizeof *v);
        *v = (vectors){.m = s->model, .r = r};
        vec_push(&s->texts, v);
      } else {
        vec_push(&s->opened, r);
      }
      if (idle) s->last_step = now_s();
      idle = false;
    }
    s->c.running = requests_in_work(s);
    tell_waiting(s);
    if (s->c.waiting) end_overdue(s);
    if (idle && s->stop) break;
    if (idle) { wait_for_more(s); continue; }
    lead_step(s);
  }
  s->over = true;
  refuse_actions(s);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

// ---- called by other threads ----------------------------------------------------------------------------------------

int sched_start(const struct sched_options *o, sched **out, error *err) {
  sched *s = xcalloc(1, sizeof *s);
  s->o = *o;
  snprintf(s->waited, sizeof s->waited, "it has waited for longer than %.0f s", o->max_wait_s);
  if (s->o.parallel < 1) s->o.parallel = 1;
  if (s->o.parallel > SCHED_PARALLEL_MAX) s->o.parallel = SCHED_PARALLEL_MAX;
  s->model_options = o->model;
  s->queues = xcalloc((size_t)o->n_keys, sizeof *s->queues);
  pthread_mutex_init(&s->lock, NULL);
  os_cond_init(&s->more);
  *out = s;
  if (!pthread_create(&s->thread, NULL, lead, s)) return 0;
  *out = NULL;
  free(s->queues);
  free(s);
  return error_set(err, "no thread could be made for the model");
}

enum sched_state sched_state(sched *s) { return s->state; }
const char *sched_error(sched *s) { return s->why.text; }
weft_model *sched_model(sched *s) { return s->model; }

// For Retry-After: seconds until a part of the waiting requests is done.
static int retry_after_s(const sched *s) {
  double wait = expected_wait_s(s, s->c.waiting, s->c.waiting_tokens) + 1;
  return wait > 60 ? 60 : (int)wait;
}

static int refuse_request(sched *s, int64_t tokens, size_t n, fault *f) {
  const struct sched_options *o = &s->o;
  const struct sched_counts *c = &s->c;
  if (s->stop) {
    f->retry_s = 5;
    return fault_set(f, 503, NULL, "the server is ending");
  }
  bool idle = !c->waiting && !c->running;
  if (o->max_waiting && c->waiting + (int64_t)n > o->max_waiting)
    fault_set(f, 429, NULL, "%d requests wait already", c->waiting);
  else if (!idle && o->max_tokens && c->waiting_tokens + tokens > o->max_tokens)
    fault_set(f, 429, NULL, "prompts of %lld tokens wait already", (long long)c->waiting_tokens);
  else if (c->waiting && o->max_wait_s > 0 && expected_wait_s(s, c->waiting + 1, c->waiting_tokens) > o->max_wait_s)
    fault_set(f, 429, NULL, "it would wait for longer than %.0f s", o->max_wait_s);
  if (!f->status) return 0;
  f->retry_s = retry_after_s(s);
  return -1;
}

int sched_submit(sched *s, request **r, size_t n, fault *f) {
  int64_t tokens = 0;
  for (size_t i = 0; i < n; i++) tokens += (int64_t)r[i]->prompt.n;
  pthread_mutex_lock(&s->lock);
  int status = refuse_request(s, tokens, n, f);
  for (size_t i = 0; i < n && !status; i++) {
    request **at = &s->queues[r[i]->key].first;
    while (*at) at = &(*at)->next;
    *at = r[i];
    r[i]->next = NULL;
    r[i]->arrived = now_s();
    s->c.waiting++;
    s->moved = true;
  }
  if (!status) s->c.waiting_tokens += tokens;
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
  return status;
}

// Removes a waiting request from its queue, so that its place is free at once.
void sched_cancel(sched *s, request *r) {
  bool waited = false;
  r->cancelled = true;
  pthread_mutex_lock(&s->lock);
  for (request **at = &s->queues[r->key].first; *at && !waited; at = *at ? &(*at)->next : at)
    if (*at == r) { take_request(s, at); waited = true; }
  pthread_mutex_unlock(&s->lock);
  if (waited) end_request(r, EVENT_END, "");
}

int sched_slot(sched *s, slot_action *a) {
  pthread_mutex_lock(&s->lock);
  bool taken = !s->over && !s->stop;
  slot_action **at = &s->actions;
  while (*at) at = &(*at)->next;
  a->next = NULL;
  if (taken) *at = a;
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
  return taken ? 0 : -1;
}

// Sequences are freed on the step thread, or after it has ended.
void sched_give_back(sched *s, held *copy) {
  pthread_mutex_lock(&s->lock);
  vec_push(&s->given_back, *copy);
  *copy = (held){0};
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
}

void sched_counts(sched *s, struct sched_counts *out) {
  pthread_mutex_lock(&s->lock);
  *out = s->c;
  out->since_step = s->c.running ? now_s() - s->last_step : 0;
  for (int i = 0; i < out->n_live; i++) out->held += out->past[i];
  if (s->state == SCHED_READY) {
    out->slots = s->o.parallel;
    out->room = (int64_t)out->slots * weft_model_context(s->model);
  }
  pthread_mutex_unlock(&s->lock);
  out->loaded = s->loaded;
}

void sched_stop(sched *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->stop = true;
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
}

void sched_free(sched *s) {
  if (!s) return;
  for (size_t i = 0; i < s->rest.n; i++) {
    spill_finish(&s->spill, &s->rest.at[i]);
    held_free(&s->rest.at[i]);
  }
  for (size_t i = 0; i < s->given_back.n; i++) held_free(&s->given_back.at[i]);
  kv_blocks_free(s->kv);
  spill_close(&s->spill);
  masks_close(&s->masks);
  vec_free(&s->rest); vec_free(&s->given_back); vec_free(&s->live); vec_free(&s->texts); vec_free(&s->opened);
  vec_free(&s->ends);
  weft_draft_free(s->draft);
  weft_model_close(s->draft_model);
  weft_model_close(s->model);
  free(s->queues);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->more);
  free(s);
}
