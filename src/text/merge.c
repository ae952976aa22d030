// Merging neighbours by rank: see merge.h.
#include "text/merge.h"
#include <stdlib.h>
#include <string.h>

#define SHORT_WORD 40           // symbols; above, the queues are faster
#define GIANT 65536             // symbols of a word whose memory is freed afterwards
#define JOINED INT32_MIN        // replaces a symbol that was joined to the one before it

void merger_reserve(merger *m, size_t n) {
  if (n <= m->cap) return;
  size_t cap = m->cap ? m->cap : 256;
  while (cap < n) cap *= 2;
  if (cap > GIANT) cap = n;     // a giant: a text has at most one or two
  free(m->id); free(m->span);
  m->id = xmalloc(cap * sizeof *m->id);
  m->span = xmalloc(cap * sizeof *m->span);
  m->cap = cap;
}

// ---- Short words ----

static size_t run_short(int32_t *id, size_t n, merge_find *find, const void *ctx) {
  uint32_t rank[SHORT_WORD] = {MERGE_NONE};     // of each symbol with its right neighbour
  int32_t result[SHORT_WORD];
#define LOOK(k) \
  do { if ((k) + 1 >= n || !find(ctx, id[k], id[(k) + 1], &rank[k], &result[k])) rank[k] = MERGE_NONE; } while (0)
  for (size_t k = 0; k < n; k++) LOOK(k);
  for (;;) {
    size_t best = 0;
    for (size_t k = 1; k < n; k++)
      if (rank[k] < rank[best]) best = k;
    if (rank[best] == MERGE_NONE) return n;
    id[best] = result[best];
    n--;
    for (size_t k = best + 1; k < n; k++) { id[k] = id[k + 1]; rank[k] = rank[k + 1]; result[k] = result[k + 1]; }
    LOOK(best);
    if (best) LOOK(best - 1);
  }
#undef LOOK
}

// ---- Heaps of numbers, the smallest first ----

static void heap_push(uint32_t **heap, size_t *n, size_t *cap, uint32_t x) {
  if (*n == *cap) { *cap = *cap ? *cap * 2 : 16; *heap = xrealloc(*heap, *cap * sizeof **heap); }
  size_t i = (*n)++;
  for (; i && (*heap)[(i - 1) / 2] > x; i = (i - 1) / 2) (*heap)[i] = (*heap)[(i - 1) / 2];
  (*heap)[i] = x;
}

static uint32_t heap_pop(uint32_t *heap, size_t *n) {
  uint32_t top = heap[0], x = heap[--*n];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < *n; i = child) {
    if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= x) break;
    heap[i] = heap[child];
  }
  heap[i] = x;
  return top;
}

// ---- Long words: a queue of positions for each rank ----

struct merge_queue {
  uint32_t rank;
  int32_t left, right, joined;  // a pair of this rank, and its result; usually the only one
  // Positions in ascending order: the first and the last waiting one, and the differences between them, 7 bits per
  // byte, the lowest first; run[from..n) are still to come.
  unsigned char *run; size_t from, n, cap;
  uint32_t first, last;
  bool waiting;
  uint32_t *stray; size_t n_stray, cap_stray;     // a heap of those that came out of order
};

static bool queue_empty(const struct merge_queue *q) { return !q->waiting && !q->n_stray; }

static void append_step(struct merge_queue *q, uint32_t position) {
  if (!q->waiting) {
    q->from = q->n = 0;
    q->first = q->last = position;
    q->waiting = true;
    return;
  }
  if (q->cap < q->n + 5) { q->cap = q->cap ? q->cap * 2 : 16; q->run = xrealloc(q->run, q->cap); }
  uint32_t step = position - q->last;
  for (; step > 127; step >>= 7) q->run[q->n++] = (unsigned char)(step | 128);
  q->run[q->n++] = (unsigned char)step;
  q->last = position;
}

static uint32_t take_step(struct merge_queue *q) {
  uint32_t position = q->first, step = 0;
  q->waiting = q->from < q->n;
  for (unsigned shift = 0; q->from < q->n; shift += 7) {
    unsigned char byte = q->run[q->from++];
    step |= (uint32_t)(byte & 127) << shift;
    if (byte < 128) break;
  }
  q->first += step;
  return position;
}

static void enqueue(merger *m, uint32_t rank, uint32_t position, int32_t left, int32_t right, int32_t joined) {
  if (!m->queue_of[rank]) {
    if (m->n_queues >= m->cap_queues) {
      uint32_t cap = m->cap_queues ? m->cap_queues * 2 : 64;
      m->queue = xrealloc(m->queue, cap * sizeof *m->queue);
      memset(m->queue + m->cap_queues, 0, (cap - m->cap_queues) * sizeof *m->queue);
      m->cap_queues = cap;
    }
    struct merge_queue *made = &m->queue[m->n_queues];
    made->rank = rank, made->left = left, made->right = right, made->joined = joined;
    m->queue_of[rank] = m->n_queues++;
  }
  struct merge_queue *q = &m->queue[m->queue_of[rank]];
  if (queue_empty(q)) heap_push(&m->ready, &m->n_ready, &m->cap_ready, rank);
  if (q->waiting && position < q->last) heap_push(&q->stray, &q->n_stray, &q->cap_stray, position);
  else append_step(q, position);
}

// Takes the place of the best candidate: false when none is left. Prefetches what the next one needs.
static bool dequeue(merger *m, const struct merge_queue **from, uint32_t *position) {
  if (!m->n_ready) return false;
  struct merge_queue *q = &m->queue[m->queue_of[m->ready[0]]];
  bool stray = q->n_stray && (!q->waiting || q->stray[0] < q->first);
  *position = stray ? heap_pop(q->stray, &q->n_stray) : take_step(q);
  if (q->waiting) { __builtin_prefetch(&m->id[q->first]); __builtin_prefetch(&m->span[q->first]); }
  if (queue_empty(q)) heap_pop(m->ready, &m->n_ready);
  *from = q;
  return true;
}

static void free_queues(merger *m) {
  for (uint32_t i = 1; i < m->n_queues; i++) { free(m->queue[i].run); free(m->queue[i].stray); }
  free(m->queue); free(m->queue_of); free(m->ready);
  *m = (merger){.id = m->id, .span = m->span, .cap = m->cap, .known = m->known};
}

static void join_symbols(merger *m, uint32_t i, int32_t id) {
  uint32_t j = i + m->span[i], span = (uint32_t)m->span[i] + m->span[j];
  die_if(span > UINT16_MAX, "merge: a token of more than %d symbols", UINT16_MAX);
  m->id[j] = JOINED;
  m->id[i] = id;
  m->span[i] = m->span[i + span - 1] = (uint16_t)span;
}

static size_t run_long(merger *m, uint32_t n, uint32_t n_ranks, merge_find *find, const void *ctx) {
  if (!m->queue_of) { m->queue_of = xcalloc(n_ranks, sizeof *m->queue_of); m->n_queues = 1; }
  int32_t *ids = m->id, id;
  uint32_t rank, i;
  for (i = 0; i < n; i++) m->span[i] = 1;
  for (i = 0; i + 1 < n; i++)
    if (find(ctx, ids[i], ids[i + 1], &rank, &id)) enqueue(m, rank, i, ids[i], ids[i + 1], id);
  for (const struct merge_queue *q; dequeue(m, &q, &i);) {
    // Out of date if the symbol here was joined to its left neighbour, or if it or its right one has grown since.
    uint32_t right = i + m->span[i];
    if (ids[i] == JOINED || right >= n) continue;
    int32_t joined = q->joined;
    bool same = ids[i] == q->left && ids[right] == q->right;
    if (!same && (!find(ctx, ids[i], ids[right], &rank, &joined) || rank != q->rank)) continue;
    join_symbols(m, i, joined);
    uint32_t after = i + m->span[i], before = i ? i - m->span[i - 1] : 0;
    if (after < n && find(ctx, joined, ids[after], &rank, &id)) enqueue(m, rank, i, joined, ids[after], id);
    if (i && find(ctx, ids[before], joined, &rank, &id)) enqueue(m, rank, before, ids[before], joined, id);
  }
  if (n > GIANT) {                                // the output may need as much
    free_queues(m);
    free(m->span);
    m->span = NULL;
    m->cap = 0;
  }
  size_t left = 0;
  for (i = 0; i < n; i++) if (ids[i] != JOINED) ids[left++] = ids[i];
  return left;
}

size_t merger_run(merger *m, size_t n, uint32_t n_ranks, merge_find *find, const void *ctx) {
  if (n < 2 || !n_ranks) return n;
  return n <= SHORT_WORD ? run_short(m->id, n, find, ctx) : run_long(m, (uint32_t)n, n_ranks, find, ctx);
}

void merger_free(merger *m) {
  free_queues(m);
  free(m->id); free(m->span); free(m->known);
  *m = (merger){0};
}
