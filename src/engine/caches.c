// Caches and sequences: see caches.h.
#include "engine/caches.h"
#include <stdlib.h>
#include <string.h>
#include "device/device.h"
#include "device/memory.h"

uint64_t caches_piece(const caches *c, int i) { return model_state_bytes(c->m, i, CACHE_PAGE); }

static uint64_t state_bytes(const caches *c, int i) {
  return caches_piece(c, i) * (uint64_t)(model_state_is_paged(c->m, i) ? c->n_pages : c->slots);
}

uint64_t caches_bytes(const model *m, int64_t positions) {
  uint64_t sum = 0;
  for (int i = 0; i < model_n_states(m); i++)
    if (!add_u64(sum, model_state_bytes(m, i, positions), &sum)) return UINT64_MAX;
  return sum;
}

static void release(caches *c) {
  for (int i = 0; c->state && i < model_n_states(c->m); i++) device_release(c->of[i], c->state[i], state_bytes(c, i));
  free(c->state);
  c->state = NULL;
}

static int reserve(caches *c, error *err) {
  int n = model_n_states(c->m);
  c->state = xcalloc((size_t)n + 1, sizeof *c->state);
  for (int i = 0; i < n; i++)
    if (!(c->state[i] = device_alloc(c->of[i], state_bytes(c, i), PAGES_PLAIN, err))) { release(c); return -1; }
  return 0;
}

int caches_open(caches *c, const model *m, device **of, int64_t n_pages, int64_t least_pages, uint64_t limit,
                error *err) {
  uint64_t each = caches_bytes(m, CACHE_PAGE) - caches_bytes(m, 0);
  *c = (caches){.m = m, .of = of, .n_pages = n_pages, .slots = model_is_recurrent(m) ? CACHE_SLOTS : 1};
  while (reserve(c, err)) {
    if (c->n_pages == least_pages && c->slots == 1) return -1;
    c->n_pages = max_i64(c->n_pages / 2, least_pages);
    c->slots = max_i64(c->slots / 2, 1);
  }
  pages_open(&c->pages, (int)c->n_pages, each ? (int)min_i64(c->n_pages, (int64_t)(limit / each)) : (int)c->n_pages);
  c->promoted = xcalloc((size_t)model_n_states(m) + 1, sizeof *c->promoted);
  c->slot_used = xcalloc((size_t)c->slots, sizeof *c->slot_used);
  return 0;
}

void caches_close(caches *c) {
  if (!c->m) return;
  release(c);
  pages_close(&c->pages);
  free(c->promoted); free(c->slot_used); free(c->of);
  *c = (caches){0};
}

bool caches_settle(caches *c, double seconds) {
  double end = now_s() + seconds;
  for (int i = 0; i < model_n_states(c->m); i++) {
    if (!c->of[i]->run->here) continue;
    uint64_t full = caches_piece(c, i) * (uint64_t)(model_state_is_paged(c->m, i) ? c->pages.most : c->n_slots);
    for (; c->promoted[i] + MEMORY_ALIGN <= full; c->promoted[i] += MEMORY_ALIGN) {
      if (now_s() >= end) return false;
      if (memory_promote((unsigned char *)c->state[i] + c->promoted[i], MEMORY_ALIGN)) continue;
      c->promoted[i] = state_bytes(c, i);
      break;
    }
  }
  return true;
}

// ---- sequences ------------------------------------------------------------------------------------------------------

void *caches_at(const caches *c, int i, int number) {
  return (unsigned char *)c->state[i] + (uint64_t)number * caches_piece(c, i);
}

// Of pages or slots first .. first + n - 1
static void discard(caches *c, bool paged, int first, int n) {
  for (int i = 0; i < model_n_states(c->m); i++)
    if (c->of[i]->run->here && model_state_is_paged(c->m, i) == paged)
      memory_discard(caches_at(c, i, first), (uint64_t)n * caches_piece(c, i));
}

static void touch(const caches *c, int page) {
  for (int i = 0; i < model_n_states(c->m); i++)
    if (c->of[i]->run->here && model_state_is_paged(c->m, i)) memory_touch(caches_at(c, i, page), caches_piece(c, i));
}

static void copy(caches *c, bool paged, int from, int to) {
  for (int i = 0; i < model_n_states(c->m); i++)
    if (model_state_is_paged(c->m, i) == paged)
      device_copy(c->of[i], caches_at(c, i, to), caches_at(c, i, from), caches_piece(c, i));
}

int sequence_new(caches *c, sequence **out, error *err) {
  int slot = 0;
  if (model_is_recurrent(c->m)) while (slot < c->slots && c->slot_used[slot]) slot++;
  if (slot == c->slots) return error_set(err, "there are %lld sequences, and memory for no more", (long long)c->slots);
  c->slot_used[slot] = true;
  if (slot >= c->n_slots) c->n_slots = slot + 1;
  c->n_sequences++;
  *out = xcalloc(1, sizeof **out);
  **out = (sequence){.of = c, .slot = slot, .at = -1};
  return 0;
}

// Drops the pages from number n on. Neighbours go back in one call.
static void drop_pages(sequence *q, size_t n) {
  int first = -1, count = 0;
  while (q->pages.n > n) {
    int page = q->pages.at[--q->pages.n];
    if (!pages_drop(&q->of->pages, page)) continue;
    if (count && page == first - 1) { first = page; count++; continue; }
    if (count) discard(q->of, true, first, count);
    first = page;
    count = 1;
  }
  if (count) discard(q->of, true, first, count);
}

void sequence_free(sequence *q) {
  if (!q) return;
  drop_pages(q, 0);
  if (model_is_recurrent(q->of->m)) {
    discard(q->of, false, q->slot, 1);
    q->of->slot_used[q->slot] = false;
  }
  q->of->n_sequences--;
  vec_free(&q->pages);
  vec_free(&q->ids);
  free(q);
}

static int no_page(const caches *c, error *err) {
  return error_set(err,
                   "the cache is full: %d sequences hold all %d pages of %d positions; a shorter context, or fewer "
                   "sequences at once, need less",
                   c->n_sequences, c->pages.limit, CACHE_PAGE);
}

int sequence_hold(sequence *q, int from, int to, error *err) {
  page_pool *p = &q->of->pages;
  size_t n = q->pages.n;
  size_t first = (size_t)from / CACHE_PAGE;
  for (size_t i = first < n ? first : n; i < (size_t)(to + CACHE_PAGE - 1) / CACHE_PAGE; i++) {
    bool new = i >= q->pages.n;
    if (!new && !pages_is_shared(p, q->pages.at[i])) continue;
    int page = pages_take(p);
    if (page < 0) { drop_pages(q, n); return no_page(q->of, err); }
    touch(q->of, page);
    if (new) { vec_push(&q->pages, page); continue; }
    if (i == first && from % CACHE_PAGE) copy(q->of, true, q->pages.at[i], page);
    pages_drop(p, q->pages.at[i]);
    q->pages.at[i] = page;
  }
  return 0;
}

void sequence_cut(sequence *q, int n) {
  if (n >= q->n) return;
  q->n = n;
  drop_pages(q, (size_t)(n + CACHE_PAGE - 1) / CACHE_PAGE);
}

int sequence_fork(const sequence *q, int n, sequence **out, error *err) {
  if (n < 0 || n > q->n) return error_set(err, "a sequence of %d positions cannot be taken up at %d", q->n, n);
  if (sequence_new(q->of, out, err)) return -1;
  sequence *to = *out;
  to->n = n;
  for (size_t i = 0; i < (size_t)(n + CACHE_PAGE - 1) / CACHE_PAGE; i++) {
    pages_hold(&q->of->pages, q->pages.at[i]);
    vec_push(&to->pages, q->pages.at[i]);
  }
  if (!model_is_recurrent(q->of->m)) return 0;
  for (int i = 0; i < n; i++) vec_push(&to->ids, q->ids.at[i]);
  if (n && n == q->at) {
    copy(q->of, false, q->slot, to->slot);
    to->at = n;
  }
  return 0;
}
