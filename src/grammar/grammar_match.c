// The matcher: see grammar_machine.h for states. A step takes the edges of all places and then closes the result: it
// enters calls, and returns from ended callees to their frames' places.
//
// A callee that may match nothing is also skipped at its call, and a frame of the current step never ends in that step:
// this is equivalent, and terminates for left recursion and loops of nothing.
#include "grammar/grammar_machine.h"
#include "base/account.h"
#include <stdlib.h>
#include <string.h>

#define BUDGET (1 << 22)             // places examined by one call from outside, 50 to 100 ns each
#define MEMORY_TIDY (64u << 20)      // bytes from which on the store is tidied
#define MEMORY_MAX (256u << 20)      // bytes at which a call gives up

// ---- numbers for frames and states ----------------------------------------------------------------------------------

static int by_place(const void *pa, const void *pb) {
  const struct place *a = pa, *b = pb;
  if (a->q != b->q) return a->q < b->q ? -1 : 1;
  if (a->frame != b->frame) return a->frame < b->frame ? -1 : 1;
  if (a->max != b->max) return a->max < b->max ? -1 : 1;
  return (a->min > b->min) - (a->min < b->min);
}

// Sorts places and removes duplicates.
static size_t sort_places(struct place *at, size_t n) {
  size_t kept = 0;
  if (n > 1) qsort(at, n, sizeof *at, by_place);
  for (size_t i = 0; i < n; i++)
    if (!kept || by_place(&at[kept - 1], &at[i])) at[kept++] = at[i];
  return kept;
}

static void spend(store *s, size_t n) {
  s->budget -= (int64_t)n;
  s->spent += n;
  if (s->budget < 0) s->failed = true;
}

void *store_keep(store *s, const void *at, size_t n) {
  if (arena_bytes(s->mem) > MEMORY_MAX) s->failed = true;
  char *copy = arena_alloc(s->mem, n + 1);
  if (n) memcpy(copy, at, n);
  return copy;
}

uint32_t store_frame(store *s, struct place *places, size_t n) {
  spend(s, n);
  n = sort_places(places, n);
  void *found = NULL;
  if (smap_get(&s->frame_ids, (const char *)places, n * sizeof *places, &found)) return (uint32_t)(uintptr_t)found;
  const struct place *copy = store_keep(s, places, n * sizeof *places);
  uint32_t id = (uint32_t)s->frames.n;
  vec_push(&s->frames, ((struct frame){copy, (uint32_t)n, id, 1}));
  smap_set(&s->frame_ids, (const char *)copy, n * sizeof *places, (void *)(uintptr_t)id);
  return id;
}

// Stores frames that refer to one another as one group: key has for each its callee, the number of its places, and the
// places, where FRAME_LOCAL marks numbers within the group. Returns the number of the first.
static uint32_t store_group(store *s, const uint32_t *key, size_t words, uint32_t group_n) {
  void *found = NULL;
  spend(s, words);
  if (smap_get(&s->frame_ids, (const char *)key, words * sizeof *key, &found)) return (uint32_t)(uintptr_t)found;
  const uint32_t *copy = store_keep(s, key, words * sizeof *key);
  uint32_t first = (uint32_t)s->frames.n;
  smap_set(&s->frame_ids, (const char *)copy, words * sizeof *key, (void *)(uintptr_t)first);
  for (size_t i = 0; i < words;) {
    uint32_t n = copy[i + 1];
    struct place *at = store_keep(s, copy + i + 2, n * sizeof *at);
    for (uint32_t k = 0; k < n; k++)
      if (at[k].frame & FRAME_LOCAL) at[k].frame = first + (at[k].frame & ~FRAME_LOCAL);
    vec_push(&s->frames, ((struct frame){at, n, first, group_n}));
    i += 2 + 4 * (size_t)n;
  }
  return first;
}

uint32_t store_state(store *s, struct place *places, size_t n, bool ends, bool pops) {
  spend(s, n + 8);
  n = sort_places(places, n);
  if (!n && !ends && !pops) return STATE_DEAD;
  s->key.n = 0;
  for (size_t i = 0; i < n; i++) vec_push(&s->key, places[i]);
  vec_push(&s->key, ((struct place){NO_STATE, ends, pops, 0}));   // the flags are part of the key
  void *found = NULL;
  size_t bytes = s->key.n * sizeof *s->key.at;
  if (smap_get(&s->state_ids, (const char *)s->key.at, bytes, &found)) return (uint32_t)(uintptr_t)found;
  const struct place *copy = store_keep(s, s->key.at, bytes);
  uint32_t id = (uint32_t)s->states.n;
  vec_push(&s->states, ((struct mstate){.at = copy, .n = (uint32_t)n, .ends = ends, .pops = pops}));
  smap_set(&s->state_ids, (const char *)copy, bytes, (void *)(uintptr_t)id);
  return id;
}

uint32_t store_union(store *s, uint32_t a, uint32_t b) {
  if (a == STATE_DEAD || a == b) return b;
  if (b == STATE_DEAD) return a;
  struct mstate x = s->states.at[a], y = s->states.at[b];
  VEC(struct place) all = {0};
  for (uint32_t i = 0; i < x.n; i++) vec_push(&all, x.at[i]);
  for (uint32_t i = 0; i < y.n; i++) vec_push(&all, y.at[i]);
  uint32_t id = store_state(s, all.at, all.n, x.ends || y.ends, x.pops || y.pops);
  vec_free(&all);
  return id;
}

// ---- closing a set of places ----------------------------------------------------------------------------------------

static void closure_begin(store *s) {
  s->places.n = 0;
  s->n_locals = 0;
  s->ends = s->pops = false;
  s->seen.n = 0;
  for (int i = 0; i < 64; i++) vec_push(&s->seen, 0);
  if (++s->stamp == 0) {
    memset(s->local_stamp, 0, s->g->callees.n * sizeof *s->local_stamp);
    s->stamp = 1;
  }
}

static size_t slot(const store *s, struct place p) {
  uint64_t hash = hash_u64((uint64_t)p.q << 32 | p.frame, (uint64_t)p.min << 32 | p.max);
  size_t mask = s->seen.n - 1, at = hash & mask;
  while (s->seen.at[at] && memcmp(&s->places.at[s->seen.at[at] - 1], &p, sizeof p)) at = (at + 1) & mask;
  return at;
}

static void put_place(store *s, struct place p) {
  if (s->failed) return;
  spend(s, 1);                            // also for an existing place: ambiguous grammars reach it repeatedly
  size_t at = slot(s, p);
  if (s->seen.at[at]) return;
  vec_push(&s->places, p);
  s->seen.at[at] = (uint32_t)s->places.n;
  if (s->places.n * 2 <= s->seen.n) return;
  size_t n = s->seen.n * 2;
  s->seen.n = 0;
  for (size_t i = 0; i < n; i++) vec_push(&s->seen, 0);
  for (size_t i = 0; i < s->places.n; i++) s->seen.at[slot(s, s->places.at[i])] = (uint32_t)i + 1;
}

// The callee of a place has ended: continues its callers.
static void end_frame(store *s, uint32_t frame) {
  if (frame & FRAME_LOCAL) return;
  if (frame == FRAME_TEXT) s->ends = true;
  else if (frame == FRAME_UNKNOWN) s->pops = true;
  else
    for (uint32_t i = 0; i < s->frames.at[frame].n; i++) put_place(s, s->frames.at[frame].at[i]);
}

static struct local *local_frame(store *s, uint32_t callee) {
  if (s->local_stamp[callee] == s->stamp) return &s->locals.at[s->local_of[callee]];
  s->local_stamp[callee] = s->stamp;
  s->local_of[callee] = s->n_locals;
  if (s->n_locals == s->locals.n) vec_push(&s->locals, ((struct local){0}));
  struct local *l = &s->locals.at[s->n_locals];
  l->at.n = l->heirs_of.n = 0;
  l->callee = callee;
  l->needed = l->done = false;
  const struct g_callee *c = &s->g->callees.at[callee];
  struct place first = {c->start, 0, 0, FRAME_LOCAL | s->n_locals++};
  if (c->loop || c->counts) { first.min = c->min; first.max = c->max; }
  put_place(s, first);
  return l;
}

static void enter(store *s, uint32_t callee, struct place after, bool last) {
  struct local *l = local_frame(s, callee);
  if (!last) { vec_push(&l->at, after); return; }
  if (after.frame & FRAME_LOCAL) { vec_push(&l->heirs_of, after.frame & ~FRAME_LOCAL); return; }
  if (after.frame < FRAME_FIRST) { vec_push(&l->at, ((struct place){NO_STATE, 0, 0, after.frame})); return; }
  const struct frame *f = &s->frames.at[after.frame];
  for (uint32_t i = 0; i < f->n; i++) vec_push(&l->at, f->at[i]);
  spend(s, f->n);
}

static void visit_place(store *s, struct place p) {
  if (p.q == NO_STATE) { end_frame(s, p.frame); return; }
  const struct g_state *st = &s->g->a.states.at[p.q];
  if (st->loop != NO_STATE) {
    if (is_counted(p)) put_place(s, ((struct place){NO_STATE, 0, p.max, p.frame}));
    else if (!p.min) end_frame(s, p.frame);
    if (!p.max) return;
    struct place after = {p.q, p.min ? p.min - 1 : 0, p.max == GRAMMAR_INF ? p.max : p.max - 1, p.frame};
    enter(s, st->loop, after, !after.max);
    return;
  }
  if (st->accept && !p.min) end_frame(s, p.frame);      // counted letters: if enough have been read
  for (uint32_t i = 0; i < st->n_calls; i++) {
    struct g_call call = s->g->a.calls.at[st->call0 + i];
    struct place after = {call.ret, 0, 0, p.frame};
    if (call.callee == CALL_NONE) { put_place(s, after); continue; }
    enter(s, call.callee, after, s->g->a.states.at[call.ret].last);
    if (s->g->callees.at[call.callee].nullable) put_place(s, after);
  }
}

// Collects the places that a local frame takes over from others, which may have done so themselves. Afterwards it no
// longer takes over from any.
static void inherit(store *s, uint32_t which) {
  struct local *heir = &s->locals.at[which];
  if (!heir->heirs_of.n) return;
  bool *been = xcalloc(s->n_locals, 1);
  spend(s, s->n_locals / 64);
  s->stack.n = 0;
  been[which] = true;
  for (size_t i = 0; i < heir->heirs_of.n; i++) vec_push(&s->stack, heir->heirs_of.at[i]);
  while (s->stack.n && !s->failed) {
    uint32_t from = s->stack.at[--s->stack.n];
    if (been[from]) continue;
    been[from] = true;
    const struct local *l = &s->locals.at[from];
    for (size_t i = 0; i < l->heirs_of.n; i++) vec_push(&s->stack, l->heirs_of.at[i]);
    for (size_t i = 0; i < l->at.n; i++) vec_push(&heir->at, l->at.at[i]);
    spend(s, l->at.n + l->heirs_of.n + 1);
  }
  free(been);
  heir->heirs_of.n = 0;
  heir->at.n = sort_places(heir->at.at, heir->at.n);
}

static void need(store *s, uint32_t frame) {
  if (!(frame & FRAME_LOCAL) || s->locals.at[frame & ~FRAME_LOCAL].needed) return;
  s->locals.at[frame & ~FRAME_LOCAL].needed = true;
  vec_push(&s->stack, frame & ~FRAME_LOCAL);
}

static void sort_by_callee(store *s, uint32_t *ids, size_t n) {   // few, or the budget is spent
  for (size_t i = 1; i < n; i++)
    for (size_t k = i; k && s->locals.at[ids[k - 1]].callee > s->locals.at[ids[k]].callee; k--) {
      uint32_t t = ids[k];
      ids[k] = ids[k - 1];
      ids[k - 1] = t;
    }
}

// Numbers the local frames that are in use: first, repeatedly, those whose places only use numbered frames; the rest
// refers to itself.
static void number_locals(store *s) {
  for (uint32_t i = 0; i < s->n_locals && !s->failed; i++) inherit(s, i);
  s->stack.n = 0;
  for (size_t i = 0; i < s->kept.n; i++) need(s, s->kept.at[i].frame);
  s->ids.n = 0;
  while (s->stack.n) {
    uint32_t l = s->stack.at[--s->stack.n];
    vec_push(&s->ids, l);
    for (size_t i = 0; i < s->locals.at[l].at.n; i++) need(s, s->locals.at[l].at.at[i].frame);
  }
  for (bool progress = true; progress && !s->failed;) {
    size_t left = 0;
    progress = false;
    spend(s, s->n_locals / 8);
    for (uint32_t l = 0; l < s->n_locals; l++) {
      struct local *f = &s->locals.at[l];
      if (!f->needed || f->done) continue;
      bool ready = true;
      spend(s, f->at.n);
      for (size_t i = 0; i < f->at.n && ready; i++) {
        uint32_t frame = f->at.at[i].frame;
        if (!(frame & FRAME_LOCAL)) continue;
        if (s->locals.at[frame & ~FRAME_LOCAL].done) f->at.at[i].frame = s->locals.at[frame & ~FRAME_LOCAL].number;
        else ready = false;
      }
      if (!ready) { left++; continue; }
      f->number = store_frame(s, f->at.at, f->at.n);
      f->done = progress = true;
    }
    if (!left) return;
  }
  if (s->failed) return;
  size_t n = 0;
  for (size_t i = 0; i < s->ids.n; i++)
    if (!s->locals.at[s->ids.at[i]].done) s->ids.at[n++] = s->ids.at[i];
  if (n > 2000) { s->failed = true; return; }
  sort_by_callee(s, s->ids.at, n);
  for (uint32_t i = 0; i < n; i++) s->locals.at[s->ids.at[i]].number = i;
  VEC(uint32_t) key = {0};
  for (size_t i = 0; i < n; i++) {
    struct local *f = &s->locals.at[s->ids.at[i]];
    for (size_t k = 0; k < f->at.n; k++) {
      uint32_t *frame = &f->at.at[k].frame;
      if (!(*frame & FRAME_LOCAL)) continue;
      const struct local *other = &s->locals.at[*frame & ~FRAME_LOCAL];
      *frame = other->done ? other->number : other->number | FRAME_LOCAL;
    }
    f->at.n = sort_places(f->at.at, f->at.n);
    vec_push(&key, f->callee);
    vec_push(&key, (uint32_t)f->at.n);
    for (size_t k = 0; k < f->at.n; k++) {
      vec_push(&key, f->at.at[k].q);
      vec_push(&key, f->at.at[k].min);
      vec_push(&key, f->at.at[k].max);
      vec_push(&key, f->at.at[k].frame);
    }
  }
  uint32_t first = store_group(s, key.at, key.n, (uint32_t)n);
  for (uint32_t i = 0; i < n; i++) s->locals.at[s->ids.at[i]].number = first + i;
  vec_free(&key);
}

static uint32_t closure_end(store *s) {
  for (size_t i = 0; i < s->places.n && !s->failed; i++) visit_place(s, s->places.at[i]);
  s->kept.n = 0;
  for (size_t i = 0; i < s->places.n && !s->failed; i++) {
    struct place p = s->places.at[i];
    if (p.q == NO_STATE) {
      if (p.max) vec_push(&s->kept, p);
      continue;
    }
    const struct g_state *st = &s->g->a.states.at[p.q];
    if (st->n_edges || st->n_tokens) vec_push(&s->kept, p);
  }
  if (!s->failed) number_locals(s);
  if (s->failed) return STATE_DEAD;
  for (size_t i = 0; i < s->kept.n; i++)
    if (s->kept.at[i].frame & FRAME_LOCAL)
      s->kept.at[i].frame = s->locals.at[s->kept.at[i].frame & ~FRAME_LOCAL].number;
  return store_state(s, s->kept.at, s->kept.n, s->ends, s->pops);
}

uint32_t store_closure(store *s, const struct place *from, size_t n) {
  closure_begin(s);
  for (size_t i = 0; i < n; i++) put_place(s, from[i]);
  return closure_end(s);
}

// Takes an edge to a counting state, with one letter less if it completed one. False: the text could no longer end.
static bool count_letter(store *s, struct place *to, struct place from) {
  const struct g_state *st = &s->g->a.states.at[to->q];
  const struct g_count *c = &s->g->counts.at[st->count - 1];
  to->min = from.min;
  to->max = from.max;
  if (st->whole) {
    if (!from.max) return false;
    if (from.min && from.min != GRAMMAR_INF) to->min--;
    if (from.max != GRAMMAR_INF) to->max--;
  }
  if (to->max == GRAMMAR_INF && (!to->min || to->min == GRAMMAR_INF)) return true;
  if (to->min) spend(s, 4);
  return count_can_end(c, to->q - c->first, to->min, to->max);
}

uint32_t store_step(store *s, uint32_t state, unsigned char byte) {
  if (state < STATE_FIRST || s->failed) return STATE_DEAD;
  struct mstate m = s->states.at[state];
  closure_begin(s);
  for (uint32_t i = 0; i < m.n; i++) {
    if (m.at[i].q == NO_STATE) continue;
    const struct g_state *st = &s->g->a.states.at[m.at[i].q];
    uint32_t from = 0, end = st->n_edges;
    const struct g_edge *edges = end ? s->g->a.edges.at + st->edge0 : NULL;      // a grammar of tokens alone has none
    while (!st->many && end - from > 4) {        // sorted, no overlaps
      uint32_t middle = from + (end - from) / 2;
      if (edges[middle].lo <= byte) from = middle;
      else end = middle;
    }
    for (; from < end; from++)
      if (edges[from].lo <= byte && byte <= edges[from].hi) {
        struct place to = {edges[from].to, 0, 0, m.at[i].frame};
        if (!s->g->a.states.at[to.q].count || count_letter(s, &to, m.at[i])) put_place(s, to);
      }
  }
  uint32_t to = s->places.n ? closure_end(s) : STATE_DEAD;
  if (s->failed) return STATE_DEAD;
  if (!m.next) {
    s->states.at[state].next = m.next = arena_alloc(s->mem, s->g->n_classes * sizeof *m.next);
    spend(s, s->g->n_classes / 4);
  }
  m.next[s->g->class_of[byte]] = to;
  return to;
}

// ---- the store ------------------------------------------------------------------------------------------------------

static void store_clear(store *s) {
  smap_free(&s->frame_ids);
  smap_free(&s->state_ids);
  smap_free(&s->piece_ids);
  s->mem = arena_new();
  s->frames.n = s->states.n = s->rounds_left.n = 0;
  for (int i = 0; i < FRAME_FIRST; i++) vec_push(&s->frames, ((struct frame){NULL, 0, (uint32_t)i, 1}));
  for (int i = 0; i < STATE_FIRST; i++) vec_push(&s->states, ((struct mstate){0}));
}

static uint32_t first_state(store *s) {
  const struct g_callee *root = &s->g->callees.at[s->g->root];
  struct place p = {root->start, root->counts ? root->min : 0, root->counts ? root->max : 0, FRAME_TEXT};
  return store_closure(s, &p, 1);
}

// Keeps what matchers refer to: frames in the order of their numbers, so that referenced frames come first.
static void store_tidy(store *s) {
  arena *old_mem = s->mem;
  struct frame *frames = s->frames.at;
  struct mstate *states = s->states.at;
  uint32_t n_frames = (uint32_t)s->frames.n;
  uint32_t *renamed = xcalloc(n_frames, sizeof *renamed);       // 0: not needed; 1 until it has its new number
  for (size_t i = 0; i < s->matchers.n; i++) {
    const struct mstate *m = &states[s->matchers.at[i]->state];
    for (uint32_t k = 0; k < m->n; k++) renamed[m->at[k].frame] = 1;
  }
  for (uint32_t i = n_frames; i > FRAME_FIRST;) {
    uint32_t first = frames[i - 1].group_first;
    bool needed = false;
    for (uint32_t k = first; k < i; k++) needed = needed || renamed[k];
    for (uint32_t k = first; k < i && needed; k++) {
      renamed[k] = 1;
      for (uint32_t j = 0; j < frames[k].n; j++) renamed[frames[k].at[j].frame] = 1;
    }
    i = first;
  }
  memset(&s->frames, 0, sizeof s->frames);
  memset(&s->states, 0, sizeof s->states);
  store_clear(s);
  for (uint32_t i = 0; i < FRAME_FIRST; i++) renamed[i] = i;
  VEC(struct place) places = {0};
  VEC(uint32_t) key = {0};
  for (uint32_t i = FRAME_FIRST; i < n_frames; i += frames[i].group_n) {
    const struct frame *f = &frames[i];
    if (!renamed[i]) continue;
    key.n = places.n = 0;
    for (uint32_t k = 0; k < f->group_n; k++) {
      vec_push(&key, k);
      vec_push(&key, f[k].n);
      for (uint32_t j = 0; j < f[k].n; j++) {
        struct place p = f[k].at[j];
        bool within = p.frame >= i && p.frame < i + f->group_n;
        p.frame = within ? (p.frame - i) | FRAME_LOCAL : renamed[p.frame];
        vec_push(&places, p);
        vec_push(&key, p.q); vec_push(&key, p.min); vec_push(&key, p.max); vec_push(&key, p.frame);
      }
    }
    uint32_t id = f->group_n == 1 && f->n && !(places.at[0].frame & FRAME_LOCAL)
                    ? store_frame(s, places.at, places.n)
                    : store_group(s, key.at, key.n, f->group_n);
    for (uint32_t k = 0; k < f->group_n; k++) renamed[i + k] = id + k;
  }
  for (size_t i = 0; i < s->matchers.n; i++) {
    struct matcher *m = s->matchers.at[i];
    const struct mstate *st = &states[m->state];
    places.n = 0;
    for (uint32_t k = 0; k < st->n; k++) {
      struct place p = st->at[k];
      p.frame = renamed[p.frame];
      vec_push(&places, p);
    }
    m->state = store_state(s, places.at, places.n, st->ends, st->pops);
  }
  vec_free(&places);
  vec_free(&key);
  free(renamed);
  free(frames);
  free(states);
  arena_free(old_mem);
}

void store_begin(store *s) {
  s->budget = BUDGET;
  s->failed = false;
  if (arena_bytes(s->mem) <= s->tidy_at) return;
  store_tidy(s);
  s->tidy_at = MEMORY_TIDY + 2 * arena_bytes(s->mem);
  s->budget = BUDGET;
  s->failed = false;
}

int store_failed(error *err) {
  return error_set(err, "the grammar is too ambiguous here: too many ways to read the text so far");
}

// ---- matchers -------------------------------------------------------------------------------------------------------

int matcher_new(const grammar *g, const grammar_vocab *v, matcher **out, error *err) {
  store *s = xcalloc(1, sizeof *s);
  s->g = g;
  s->v = v;
  s->tidy_at = MEMORY_TIDY;
  s->local_of = xcalloc(g->callees.n, sizeof *s->local_of);
  s->local_stamp = xcalloc(g->callees.n, sizeof *s->local_stamp);
  if (v) {
    s->walk = xcalloc(grammar_vocab_longest(v) + 1, sizeof *s->walk);
    s->walk_ends = xcalloc(grammar_vocab_longest(v) + 1, sizeof *s->walk_ends);
    s->found = xcalloc((size_t)grammar_vocab_size(v), sizeof *s->found);
    s->found_rounds = xcalloc((size_t)grammar_vocab_size(v), sizeof *s->found_rounds);
  }
  store_clear(s);
  matcher *m = xcalloc(1, sizeof *m);
  m->s = s;
  s->refs = 1;
  vec_push(&s->matchers, m);
  matcher_reset(m);
  if (s->failed) {
    matcher_free(m);
    return store_failed(err);
  }
  *out = m;
  return 0;
}

matcher *matcher_clone(const matcher *m) {
  matcher *copy = xcalloc(1, sizeof *copy);
  *copy = *m;
  m->s->refs++;
  vec_push(&m->s->matchers, copy);
  return copy;
}

void matcher_free(matcher *m) {
  if (!m) return;
  store *s = m->s;
  for (size_t i = 0; i < s->matchers.n; i++)
    if (s->matchers.at[i] == m) { s->matchers.at[i] = s->matchers.at[--s->matchers.n]; break; }
  free(m);
  if (--s->refs) return;
  for (size_t i = 0; i < s->locals.n; i++) { vec_free(&s->locals.at[i].at); vec_free(&s->locals.at[i].heirs_of); }
  vec_free(&s->locals);
  vec_free(&s->frames);
  vec_free(&s->rounds_left);
  vec_free(&s->states);
  vec_free(&s->matchers);
  vec_free(&s->places);
  vec_free(&s->kept);
  vec_free(&s->key);
  vec_free(&s->seen);
  vec_free(&s->ids);
  vec_free(&s->stack);
  smap_free(&s->frame_ids);
  smap_free(&s->state_ids);
  smap_free(&s->piece_ids);
  arena_free(s->mem);
  free(s->local_of);
  free(s->local_stamp);
  free(s->walk);
  free(s->walk_ends);
  free(s->found);
  free(s->found_rounds);
  free(s);
}

void matcher_reset(matcher *m) {
  m->state = STATE_DEAD;
  m->finished = false;
  store_begin(m->s);
  m->state = first_state(m->s);
}

int matcher_bytes(matcher *m, const char *text, size_t n, bool *ok, error *err) {
  store_begin(m->s);
  uint32_t state = m->finished ? STATE_DEAD : m->state;
  for (size_t i = 0; i < n && state != STATE_DEAD; i++) {
    if (i % 4096 == 4095) {
      if (account_check(err)) return -1;
      m->s->budget = BUDGET;
    }
    state = store_go(m->s, state, (unsigned char)text[i]);
  }
  if (m->s->failed) return store_failed(err);
  *ok = state != STATE_DEAD;
  if (*ok) m->state = state;
  return 0;
}

uint64_t matcher_work(const matcher *m) { return m->s->spent; }

bool matcher_complete(const matcher *m) { return m->finished || m->s->states.at[m->state].ends; }
bool matcher_can_go_on(const matcher *m) { return !m->finished && m->s->states.at[m->state].n > 0; }

int matcher_accept(matcher *m, int32_t id, error *err) {
  store *s = m->s;
  store_begin(s);
  if (!s->v || id < 0 || id >= grammar_vocab_size(s->v))
    return error_set(err, "token %d is outside the vocabulary", id);
  if (m->finished) return error_set(err, "token %d: the text that the grammar describes has ended already", id);
  if (grammar_vocab_ends(s->v, id) && s->states.at[m->state].ends) { m->finished = true; return 0; }
  size_t n = 0;
  const char *text = grammar_vocab_bytes(s->v, id, &n);
  uint32_t state = n ? m->state : STATE_DEAD;
  for (size_t i = 0; i < n && state != STATE_DEAD; i++) state = store_go(s, state, (unsigned char)text[i]);
  struct mstate from = s->states.at[m->state];
  VEC(struct place) by_token = {0};
  for (uint32_t i = 0; i < from.n; i++) {
    const struct g_state *st = &s->g->a.states.at[from.at[i].q];
    for (uint32_t k = st->token0; k < st->token0 + st->n_tokens; k++) {
      struct g_token t = s->g->a.tokens.at[k];
      bool fits = t.negated ? t.id != id && n > 0 : t.id == id;
      if (fits) vec_push(&by_token, ((struct place){t.to, 0, 0, from.at[i].frame}));
    }
  }
  if (by_token.n) state = store_union(s, state, store_closure(s, by_token.at, by_token.n));
  vec_free(&by_token);
  if (s->failed) return store_failed(err);
  if (state == STATE_DEAD) return error_set(err, "token %d is not what the grammar allows here", id);
  m->state = state;
  return 0;
}
