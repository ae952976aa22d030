// Plans on NVIDIA GPUs through the kernel driver only (DEV=NV): memory, kernels and plans. See nv.h and remote.h.
//
// A plan is recorded as bytes in GPU memory: constants and a descriptor for each launch, and one stream of words that
// starts the launches, with waits at barriers. A run writes the words that depend on variables, puts the completion
// value at the end of the stream, and rings the doorbell once. A launch without work-groups is overwritten with no-ops.
//
// Data exchanged with this process (token ids, logits) is in memory that both see.
#include <stdlib.h>
#include <string.h>
#include "device/cache.h"
#include "device/code_version.h"
#include "device/compiler.h"
#include "device/nv_code.h"
#include "device/nv_ptxas.h"

static uint64_t nv_address(const void *at) { return (uint64_t)(uintptr_t)at; }

// ---- memory ---------------------------------------------------------------------------------------------------------

static void nv_drop(void *state, void *memory) { nv_rm_free(&((nv_gpu *)state)->rm, nv_address(memory)); }

static void *nv_make(void *state, uint64_t size, enum remote_use use, error *err) {
  nv_gpu *g = state;
  bool guest = use == REMOTE_GUEST;
  uint64_t at = nv_rm_alloc(&g->rm, size, guest ? NV_HOST : NV_VRAM, false, err);
  if (guest && at) memset((void *)(uintptr_t)at, 0, size);
  if (!at || guest || !nv_gpu_fill(g, at, 0, size, err)) return (void *)(uintptr_t)at;
  nv_rm_free(&g->rm, at);
  return NULL;
}

static unsigned char *nv_address_here(const void *memory) { return (unsigned char *)(uintptr_t)memory; }

static int nv_put(void *state, void *to, uint64_t at, const void *from, uint64_t n, error *err) {
  nv_gpu *g = state;
  if (!nv_rm_is_host(&g->rm, nv_address(to))) return nv_gpu_write(g, nv_address(to) + at, from, n, err);
  memcpy((unsigned char *)to + at, from, n);
  return 0;
}

static int nv_get(void *state, void *to, void *from, uint64_t at, uint64_t n, error *err) {
  nv_gpu *g = state;
  if (!nv_rm_is_host(&g->rm, nv_address(from))) return nv_gpu_read(g, to, nv_address(from) + at, n, err);
  memcpy(to, (unsigned char *)from + at, n);
  return 0;
}

static int nv_copy(void *state, void *to, uint64_t to_at, void *from, uint64_t from_at, uint64_t n, error *err) {
  return nv_gpu_copy(state, nv_address(to) + to_at, nv_address(from) + from_at, n, err);
}

static int nv_fill(void *state, void *to, uint64_t at, unsigned char value, uint64_t n, error *err) {
  return nv_gpu_fill(state, nv_address(to) + at, value, n, err);
}

static uint64_t nv_room(void *state) {
  uint64_t left = 0;
  return nv_gpu_room(state, &left) ? UINT64_MAX : left;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

static int nv_compile(device *dev, device_kernel *k, error *err) {
  const nv_gpu *g = dev->state;
  bytes ptx = {0};
  int r = nvidia_compile(&g->gpu, k->p, &ptx, err);
  if (!r) r = nv_ptxas_run(str_c(&g->ptxas), g->gpu.sm, k->p->name, ptx.at, ptx.n - 1, &k->packed, err);
  bytes_free(&ptx);
  return r;
}

static int nv_show(device *d, const program *p, str *source, str *assembly, error *err) {
  return nvidia_show(&((const nv_gpu *)d->state)->gpu, p, source, assembly, err);
}

static int load_cubin(void *state, device_kernel *k, int n_bufs, error *err) {
  nv_code *code = nv_code_load(state, k->p, n_bufs, &k->packed, err);
  k->remote = code ? &code->base : NULL;
  return code ? 0 : -1;
}

static void nv_prepare(device *d) { compiler_wake(((const nv_gpu *)d->state)->gpu.llvm); }

// ---- plans ----------------------------------------------------------------------------------------------------------

typedef struct nv_launch {
  nv_call call;
  size_t word;                     // offset of the launch in the stream
  bool skipped;                    // the words there are no-ops
} nv_launch;
typedef struct nv_recording {
  nv_launch *launches;
  uint64_t calls, stream, timed;   // memory; timed: a stream with times between launches, made on demand
  size_t n_words, value_word;
} nv_recording;

static uint64_t put_stream(nv_gpu *g, const nv_words *w, error *err) {
  uint64_t at = nv_rm_alloc(&g->rm, w->n * sizeof *w->at, NV_VRAM_SEEN, false, err);
  if (at) memcpy((void *)(uintptr_t)at, w->at, w->n * sizeof *w->at);
  return at;
}

static int make_stream(nv_gpu *g, const remote_plan *r, nv_recording *own, error *err) {
  nv_words w = {0};
  nv_push_forget(&w);
  for (int i = 0; i < r->steps.n; i++) {
    nv_launch *l = &own->launches[i];
    if (r->steps.at[i].barrier) nv_push_idle(&w);
    l->word = w.n;
    nv_push_launch(&w, l->call.descriptor);
  }
  own->value_word = w.n + NV_SIGNAL_VALUE;
  nv_push_signal(&w, nv_signal_at(g, 0), 0, false);
  own->n_words = w.n;
  own->stream = put_stream(g, &w, err);
  nv_words_free(&w);
  return own->stream ? 0 : -1;
}

static void make_call(remote_plan *r, const remote_command *c, nv_launch *l, uint64_t at) {
  uint64_t *bufs = ARENA_ARRAY(r->mem, uint64_t, c->n_ranges + 1);
  for (int i = 0; i < c->n_ranges; i++) bufs[i] = remote_at(&c->ranges[i]);
  nv_call_make(&l->call, (const nv_code *)c->s->k->remote, at, bufs);
}

static int nv_record(void *state, remote_plan *r, error *err) {
  nv_gpu *g = state;
  nv_recording *own = r->own = ARENA_ARRAY(r->mem, nv_recording, 1);
  uint64_t n = 1, at;
  *own = (nv_recording){.launches = ARENA_ARRAY(r->mem, nv_launch, r->steps.n + 1)};
  memset(own->launches, 0, ((size_t)r->steps.n + 1) * sizeof *own->launches);
  for (int i = 0; i < r->steps.n; i++) n += nv_call_bytes((const nv_code *)r->steps.at[i].s->k->remote);
  if (!(own->calls = at = nv_rm_alloc(&g->rm, n, NV_VRAM_SEEN, false, err))) return -1;
  for (int i = 0; i < r->steps.n; i++) {
    make_call(r, &r->steps.at[i], &own->launches[i], at);
    at += nv_call_bytes(own->launches[i].call.k);
  }
  remote_steps_fix(&r->steps);
  return make_stream(g, r, own, err);
}

static void nv_forget(void *state, remote_plan *r) {
  nv_gpu *g = state;
  const nv_recording *own = r->own;
  if (!own) return;
  uint64_t memory[] = {own->calls, own->stream, own->timed};
  for (size_t i = 0; i < COUNT(memory); i++) if (memory[i]) nv_rm_free(&g->rm, memory[i]);
}

static void write_word(uint64_t stream, size_t i, uint32_t word) {
  ((volatile uint32_t *)(uintptr_t)stream)[i] = word;
}

// Writes what has changed since the last run.
static void nv_patch(remote_command *c, nv_launch *l, uint64_t stream) {
  uint32_t words[NV_LAUNCH_WORDS];
  if (!c->changed) return;
  c->changed = c->stale = false;
  if (!c->empty) nv_call_set(&l->call, c->groups, c->items, c->vars);
  if (l->skipped == c->empty) return;
  l->skipped = c->empty;
  if (l->skipped) nv_skip_words(words);
  else nv_launch_words(words, l->call.descriptor);
  for (size_t i = 0; i < NV_LAUNCH_WORDS; i++) write_word(stream, l->word + i, words[i]);
}

// Times with the GPU's clock: one stream per run in which a signal after each launch records the GPU's time, signal 1 +
// i % (NV_SIGNALS - 1). Launches run in groups of as many as there are signals.
static int run_with_times(nv_gpu *g, nv_recording *r, int n, double (*spans)[2], error *err) {
  enum { PART = NV_SIGNALS - 2 };
  double at = 0;
  int bad = 0;
  for (int from = 0; from < n && !bad; from += PART) {
    nv_words w = {0};
    int to = n - from < PART ? n : from + PART;
    nv_push_forget(&w);
    nv_push_signal(&w, nv_signal_at(g, 1), 0, true);
    for (int i = from; i < to; i++) {
      if (!r->launches[i].skipped) nv_push_launch(&w, r->launches[i].call.descriptor);
      nv_push_signal(&w, nv_signal_at(g, 2 + (unsigned)(i - from)), 0, true);
    }
    nv_push_signal(&w, nv_signal_at(g, 0), nv_next_signal(g), false);
    bad = !(r->timed = put_stream(g, &w, err)) || nv_gpu_run(g, r->timed, w.n, err) ? -1 : 0;
    for (int i = from; i < to && !bad; i++) {
      uint64_t began = nv_signal_time(g, 1 + (unsigned)(i - from)), ended = nv_signal_time(g, 2 + (unsigned)(i - from));
      spans[i][0] = at;
      spans[i][1] = at += ended > began ? (double)(ended - began) * 1e-9 : 0;
    }
    if (r->timed) nv_rm_free(&g->rm, r->timed);
    r->timed = 0;
    nv_words_free(&w);
  }
  return bad;
}

static int nv_run(void *state, remote_plan *r, double (*spans)[2], error *err) {
  nv_gpu *g = state;
  nv_recording *own = r->own;
  for (int i = 0; i < r->steps.n; i++) nv_patch(&r->steps.at[i], &own->launches[i], own->stream);
  if (spans) return run_with_times(g, own, r->steps.n, spans, err);
  uint64_t value = nv_next_signal(g);
  write_word(own->stream, own->value_word, (uint32_t)value);
  write_word(own->stream, own->value_word + 1, (uint32_t)(value >> 32));
  return nv_gpu_run(g, own->stream, own->n_words, err);
}

static const remote_driver nv_driver = {.name = "NV",
                                        .aligned = 16,       // render/llvm.c
                                        .make = nv_make,
                                        .drop = nv_drop,
                                        .address = nv_address_here,
                                        .put = nv_put,
                                        .get = nv_get,
                                        .copy = nv_copy,
                                        .fill = nv_fill,
                                        .room = nv_room,
                                        .load = load_cubin,
                                        .record = nv_record,
                                        .forget = nv_forget,
                                        .run = nv_run};

// ---- the device -----------------------------------------------------------------------------------------------------

static void nv_stop(device *d) { nv_gpu_close(d->state); }

int nv_start(device *d, error *err) {
  nv_gpu *g = xcalloc(1, sizeof *g);
  d->state = g;
  d->stop = nv_stop;
  if (nv_gpu_find(g, err) || nv_gpu_start(g, err)) return -1;
  remote_start(d, &g->memory, &nv_driver, g);
  nvidia_target(&g->gpu, &d->target);
  nvidia_compiler(&g->gpu, d);
  d->prepare = nv_prepare;
  d->compile = nv_compile;
  d->show = nv_show;
  snprintf(d->key, sizeof d->key, "cubin %s %d,%d ptxas %s", g->gpu.sm, d->target.max_group, d->target.max_local_bytes,
           str_c(&g->ptxas_version));
  d->cache = cache_open(NULL, CODE_VERSION);
  return 0;
}
