// Submits words to a GPU and waits: see nv_gpu.h.
//
// The GPU signals completion by writing an increasing number into host memory: one for launches (the channel waits
// until all are idle), another for copies (written by the copy engine). Nothing is submitted to one engine while the
// other has work, so they never wait for each other. The driver's notice reports a failed channel; after that nothing
// runs.
#define _GNU_SOURCE
#include "device/nv_run.h"
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { LAUNCHES = 0, COPIES = 1, SPINS = 4000, LONGEST_S = 60, TICK_US = 50 };
#define YIELDING_S 20e-3                   /* a token's time: a sleep would be a part of it */

static volatile uint64_t *signal_of(const nv_gpu *g, unsigned i) {
  return (volatile uint64_t *)(uintptr_t)nv_signal_at(g, i);
}
uint64_t nv_signal_at(const nv_gpu *g, unsigned i) { return g->area + 16ull * i; }
uint64_t nv_signal_time(const nv_gpu *g, unsigned i) { return signal_of(g, i)[1]; }
uint64_t nv_next_signal(nv_gpu *g) { return ++g->submitted; }

static int nv_lose(nv_gpu *g, error *err, uint32_t xid) {
  const char *means = xid == 13   ? ": a kernel did what is not allowed"
                      : xid == 31 ? ": an address without memory"
                      : xid == 79 ? ": the GPU is no longer there"
                                  : "";
  g->lost = true;
  if (!xid) return error_set(err, "NV: %s has not answered for %d seconds", g->name, LONGEST_S);
  return error_set(err, "NV: %s has stopped (Xid %u%s)", g->name, xid, means);
}

static int check_notice(nv_gpu *g, error *err) {
  const volatile nv_notice *n = (const volatile nv_notice *)(uintptr_t)g->notice_at;
  return n->status ? nv_lose(g, err, n->info ? n->info : 1) : 0;
}

static void submit(nv_gpu *g, uint64_t words, size_t n) {
  volatile uint64_t *ring = (volatile uint64_t *)(uintptr_t)g->ring_at;
  volatile uint32_t *put = (volatile uint32_t *)(uintptr_t)(g->ring_at + NV_REGISTERS_AT + NV_REGISTER_PUT);
  ring[g->put] = nv_ring_entry(words, n);
  g->put = (g->put + 1) % NV_RING_ENTRIES;
  // orders earlier writes, including write-combined ones, before the submission
  atomic_thread_fence(memory_order_seq_cst);
  *put = g->put;
  atomic_thread_fence(memory_order_seq_cst);
  g->doorbell[NV_DOORBELL / 4] = g->token;
}

// Launches count in 64 bits, copies in 32.
static bool has_come(const nv_gpu *g, unsigned i, uint64_t value) {
  volatile uint64_t *at = signal_of(g, i);
  return i == LAUNCHES ? *at >= value : (int32_t)(*(volatile uint32_t *)at - (uint32_t)value) >= 0;
}

static int await(nv_gpu *g, unsigned i, uint64_t value, error *err) {
  double start = 0;
  if (g->lost) return error_set(err, "NV: %s is lost", g->name);
  for (long turn = 0; !has_come(g, i, value); turn++) {
    if (turn < SPINS) continue;
    if (check_notice(g, err)) return -1;
    double now = now_s();
    if (turn == SPINS) start = now;
    if (now - start > LONGEST_S) return nv_lose(g, err, 0);
    if (now - start < YIELDING_S) sched_yield();
    else nanosleep(&(struct timespec){.tv_nsec = TICK_US * 1000}, NULL);
  }
  atomic_thread_fence(memory_order_seq_cst);
  return check_notice(g, err);
}

int nv_gpu_run(nv_gpu *g, uint64_t words, size_t n, error *err) {
  if (g->lost) return error_set(err, "NV: %s is lost", g->name);
  submit(g, words, n);
  return await(g, LAUNCHES, g->submitted, err);
}

// Copies words into the area from which the GPU reads them.
static uint64_t place_words(nv_gpu *g, const nv_words *w) {
  if (w->n * sizeof *w->at > NV_WORDS_BYTES) die("NV: %zu words at once", w->n);
  memcpy((void *)(uintptr_t)(g->area + NV_WORDS_AT), w->at, w->n * sizeof *w->at);
  return g->area + NV_WORDS_AT;
}

int nv_gpu_run_words(nv_gpu *g, nv_words *w, error *err) {
  nv_push_signal(w, nv_signal_at(g, LAUNCHES), nv_next_signal(g), false);
  return nv_gpu_run(g, place_words(g, w), w->n, err);
}

// ---- copies ---------------------------------------------------------------------------------------------------------

// half: also selects the place of the words, since two copies may be in flight.
static int start_copies(nv_gpu *g, nv_words *w, int half, error *err) {
  if (g->lost) return error_set(err, "NV: %s is lost", g->name);
  nv_push_copied(w, nv_signal_at(g, COPIES), (uint32_t)++g->copied);
  uint64_t at = g->area + NV_WORDS_AT + (uint64_t)half * (NV_WORDS_BYTES / 2);
  if (w->n * sizeof *w->at > NV_WORDS_BYTES / 2) die("NV: %zu words at once", w->n);
  memcpy((void *)(uintptr_t)at, w->at, w->n * sizeof *w->at);
  submit(g, at, w->n);
  g->half_busy[half] = g->copied;
  w->n = 0;
  return 0;
}

static int run_copies(nv_gpu *g, nv_words *w, error *err) {
  int r = start_copies(g, w, 0, err) || await(g, COPIES, g->copied, err) ? -1 : 0;
  nv_words_free(w);
  return r;
}

// One half of staging is filled while the other is copied.
int nv_gpu_write(nv_gpu *g, uint64_t to, const void *from, size_t n, error *err) {
  nv_words w = {0};
  int r = 0;
  for (size_t at = 0, length, i = 0; at < n && !r; at += length, i++) {
    int half = (int)(i % 2);
    uint64_t through = g->staging + (uint64_t)half * NV_HALF_BYTES;
    length = n - at < NV_HALF_BYTES ? n - at : NV_HALF_BYTES;
    if ((r = await(g, COPIES, g->half_busy[half], err))) break;
    memcpy((void *)(uintptr_t)through, (const unsigned char *)from + at, length);
    nv_push_copy(&w, to + at, through, length);
    r = start_copies(g, &w, half, err);
  }
  nv_words_free(&w);
  return r ? -1 : await(g, COPIES, g->copied, err);
}

int nv_gpu_read(nv_gpu *g, void *to, uint64_t from, size_t n, error *err) {
  for (size_t at = 0, length; at < n; at += length) {
    nv_words w = {0};
    length = n - at < NV_HALF_BYTES ? n - at : NV_HALF_BYTES;
    nv_push_copy(&w, g->staging, from + at, length);
    if (run_copies(g, &w, err)) return -1;
    memcpy((unsigned char *)to + at, (const void *)(uintptr_t)g->staging, length);
  }
  return 0;
}

int nv_gpu_copy(nv_gpu *g, uint64_t to, uint64_t from, size_t n, error *err) {
  nv_words w = {0};
  if (!n) return 0;
  nv_push_copy(&w, to, from, n);
  return run_copies(g, &w, err);
}

// The engine fills words; the remaining bytes at both ends are written separately.
int nv_gpu_fill(nv_gpu *g, uint64_t to, unsigned char value, size_t n, error *err) {
  unsigned char ends[4] = {value, value, value, value};
  size_t before = -to & 3;
  if (before > n) before = n;
  size_t behind = (n - before) & 3, middle = n - before - behind;
  if ((before && nv_gpu_write(g, to, ends, before, err)) ||
      (behind && nv_gpu_write(g, to + n - behind, ends, behind, err)))
    return -1;
  nv_words w = {0};
  if (!middle) return 0;
  nv_push_fill(&w, to + before, 0x01010101u * value, middle);
  return run_copies(g, &w, err);
}

// ---- memory of items ------------------------------------------------------------------------------------------------

// Allocates local memory for all work-items that the GPU can run at once, with the granularity of the engine: 512 bytes
// per warp, 32 KiB per TPC, 128 KiB in total.
int nv_gpu_local(nv_gpu *g, unsigned bytes_of_an_item, error *err) {
  enum { OF_ITEM = 32, OF_WARP = 512, OF_TPC = 32 << 10, OF_ALL = 128 << 10, ITEMS = 32, MOST_SMS = 0x1ff };
  if (bytes_of_an_item <= g->local_bytes) return 0;
  unsigned item = (unsigned)round_up(bytes_of_an_item, OF_ITEM), sms = g->gpcs * g->tpcs * g->sms;
  uint64_t tpc = round_up(round_up((uint64_t)item * ITEMS, OF_WARP) * g->warps * g->sms, OF_TPC),
           at = nv_rm_alloc(&g->rm, round_up(tpc * g->tpcs * g->gpcs, OF_ALL), NV_VRAM, false, err);
  if (!at) return -1;
  nv_words w = {0};
  nv_push_local(&w, at, tpc, sms < MOST_SMS ? sms : MOST_SMS);
  int r = nv_gpu_run_words(g, &w, err);
  nv_words_free(&w);
  if (r) { nv_rm_free(&g->rm, at); return -1; }
  if (g->local_at) nv_rm_free(&g->rm, g->local_at);
  g->local_at = at;
  g->local_bytes = item;
  return 0;
}
