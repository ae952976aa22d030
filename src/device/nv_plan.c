// Models on NVIDIA's GPUs by the kernel driver alone (DEV=NV): memory, kernels and plans. See nv.h.
//
// A plan is recorded as bytes in the GPU's memory: of each launch its constants and its descriptor, and one stream of
// words that starts them. Launches of one level follow each other without waiting; before the next level, and behind a
// kernel of the same level that others read (step.each), stands a wait for all. A replay writes what variables decide,
// into the same bytes, puts the number that says it is done at the stream's end, and rings once. A launch without
// work-groups is overwritten by words that do nothing.
//
// What comes from and goes to this process's memory (token ids, logits) lies in memory that both see.
#include <stdlib.h>
#include <string.h>
#include "device/cache.h"
#include "device/code_version.h"
#include "device/compiler.h"
#include "device/launch.h"
#include "device/nv_code.h"
#include "device/nv_ptxas.h"

static uint64_t nv_address(const void *at) { return (uint64_t)(uintptr_t)at; }

// ---- memory ---------------------------------------------------------------------------------------------------------

static void nv_drop(void *state, void *memory) { nv_rm_free(&((nv_gpu *)state)->rm, nv_address(memory)); }

static void *nv_alloc_zeros(nv_gpu *g, uint64_t size, error *err) {
  uint64_t at = nv_rm_alloc(&g->rm, size, NV_VRAM, false, err);
  if (!at || !nv_gpu_fill(g, at, 0, size, err)) return (void *)(uintptr_t)at;
  nv_rm_free(&g->rm, at);
  return NULL;
}

static void *nv_make_guest(void *state, uint64_t size, error *err) {
  void *at = (void *)(uintptr_t)nv_rm_alloc(&((nv_gpu *)state)->rm, size, NV_HOST, false, err);
  if (at) memset(at, 0, size);
  return at;
}

static void *nv_bring(void *state, const void *from, uint64_t size, error *err) {
  nv_gpu *g = state;
  uint64_t at = nv_rm_alloc(&g->rm, size + REMOTE_SLACK, NV_VRAM, false, err);
  if (!at || (!nv_gpu_write(g, at, from, size, err) && !nv_gpu_fill(g, at + size, 0, REMOTE_SLACK, err)))
    return (void *)(uintptr_t)at;
  nv_rm_free(&g->rm, at);
  return NULL;
}

static int nv_put(void *state, void *queue, void *memory, const void *from, uint64_t n) {
  (void)state; (void)queue;
  memcpy(memory, from, n);
  return 0;
}
static int nv_get(void *state, void *queue, void *to, void *memory, uint64_t n) {
  (void)state; (void)queue;
  memcpy(to, memory, n);
  return 0;
}

static const remote_driver nv_driver = {"NV", nv_make_guest, nv_bring, nv_drop, nv_put, nv_get};

static void *nv_alloc_area(device *dev, uint64_t bytes_wanted, enum pages pages, error *err) {
  nv_gpu *g = dev->state;
  (void)pages;
  uint64_t size = round_up(bytes_wanted + REMOTE_SLACK, 4096);
  unsigned char *at = nv_alloc_zeros(g, size, err);
  if (at) vec_push(&g->memory.areas, ((remote_area){at, size, at}));
  return at;
}

static void nv_release(device *dev, void *at, uint64_t size) {
  nv_gpu *g = dev->state;
  remote_area a;
  (void)size;
  if (remote_take(&g->memory, at, &a)) nv_drop(g, a.memory);
}

static uint64_t nv_must_lie(const nv_gpu *g, const void *at, size_t n) {
  size_t offset;
  remote_must_lie(&g->memory, at, n, &offset);
  return nv_address(at);
}

static int nv_write_to(device *dev, void *to, const void *from, size_t n, error *err) {
  nv_gpu *g = dev->state;
  return n ? nv_gpu_write(g, nv_must_lie(g, to, n), from, n, err) : 0;
}
static int nv_read_from(device *dev, void *to, const void *from, size_t n, error *err) {
  nv_gpu *g = dev->state;
  return n ? nv_gpu_read(g, to, nv_must_lie(g, from, n), n, err) : 0;
}
static int nv_copy_area(device *dev, void *to, const void *from, size_t n, error *err) {
  nv_gpu *g = dev->state;
  return n ? nv_gpu_copy(g, nv_must_lie(g, to, n), nv_must_lie(g, from, n), n, err) : 0;
}
static int nv_fill_area(device *dev, void *to, unsigned char value, size_t n, error *err) {
  nv_gpu *g = dev->state;
  return n ? nv_gpu_fill(g, nv_must_lie(g, to, n), value, n, err) : 0;
}

static uint64_t nv_room(const device *dev) {
  uint64_t left = 0;
  return nv_gpu_room(dev->state, &left) ? UINT64_MAX : left;
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

static bool nv_take(device *dev, device_kernel *k, int n_bufs) {
  k->nv = nv_code_load(dev->state, k->p, n_bufs, &k->packed, NULL);
  return k->nv;
}

static int nv_link_kernels(device *dev, device_kernel *kernels, int n, code_image **image, error *err) {
  (void)image;
  for (int i = 0; i < n; i++) {
    device_kernel *k = &kernels[i];
    if (!k->nv && !(k->nv = nv_code_load(dev->state, k->p, k->p->n_bufs, &k->packed, err))) return -1;
    bytes_free(&k->packed);
  }
  return 0;
}

static void nv_prepare(device *d) { compiler_wake(((const nv_gpu *)d->state)->gpu.llvm); }

// All tiles at once, with the last of them.
static int nv_lay_out(plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes, int64_t lo,
                      int64_t hi, error *err) {
  nv_gpu *g = p->d->state;
  if (!k)
    return nv_write_to(p->d, (unsigned char *)stream + lo, (const unsigned char *)raw + lo, (size_t)(hi - lo), err);
  int64_t tiles = program_eval(k->p, k->p->tiles, NULL);
  if (hi < tiles) return 0;
  void *from = nv_bring(g, raw, raw_bytes, err);
  if (!from) return -1;
  nv_words w = {0};
  nv_call call;
  nv_call_make(&call, k->nv, g->scratch, (uint64_t[]){nv_must_lie(g, stream, 1), nv_address(from)});
  unsigned items = (unsigned)program_eval(k->p, k->p->local[0], NULL);
  nv_call_set(&call, (unsigned[]){(unsigned)tiles, 1, 1}, (unsigned[]){items, 1, 1}, NULL);
  nv_push_forget(&w);
  nv_push_launch(&w, call.descriptor);
  int r = nv_gpu_run_words(g, &w, err);
  nv_words_free(&w);
  nv_drop(g, from);
  return r;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

typedef struct nv_launch {
  launch l;
  nv_call call;
  bool waits;                      // for all before it
  size_t word;                     // of the stream, where it begins
  bool skipped;                    // what stands there
} nv_launch;
typedef struct nv_recording {
  remote_traffic traffic;
  nv_launch *launches;
  arena *mem;
  uint64_t calls, stream, timed;   // memory; timed: a stream with times between launches, made when it is asked for
  size_t n_words, value_word;
} nv_recording;

// Launches that nothing has waited for, from `first` on: one waits where the level changes, or an `each` kernel among
// those shares memory with it.
static void decide_waits(const plan *p, nv_launch *launches) {
  for (int i = 0, first = 0; i < p->stats.kernels; i++) {
    bool wait = i && p->steps[i].level != p->steps[i - 1].level;
    for (int j = first; j < i && !wait; j++)
      wait = p->steps[j].each && launches_meet(&launches[i].l, &launches[j].l);
    launches[i].waits = wait;
    if (wait) first = i;
  }
}

static uint64_t put_stream(nv_gpu *g, const nv_words *w, error *err) {
  uint64_t at = nv_rm_alloc(&g->rm, w->n * sizeof *w->at, NV_VRAM_SEEN, false, err);
  if (at) memcpy((void *)(uintptr_t)at, w->at, w->n * sizeof *w->at);
  return at;
}

static int make_stream(nv_gpu *g, const plan *p, nv_recording *r, error *err) {
  nv_words w = {0};
  nv_push_forget(&w);
  for (int i = 0; i < p->stats.kernels; i++) {
    nv_launch *l = &r->launches[i];
    if (l->waits) nv_push_idle(&w);
    l->word = w.n;
    nv_push_launch(&w, l->call.descriptor);
  }
  r->value_word = w.n + NV_SIGNAL_VALUE;
  nv_push_signal(&w, nv_signal_at(g, 0), 0, false);
  r->n_words = w.n;
  r->stream = put_stream(g, &w, err);
  nv_words_free(&w);
  return r->stream ? 0 : -1;
}

static int nv_record(plan *p, error *err) {
  const int n_kernels = p->stats.kernels;
  nv_gpu *g = p->d->state;
  nv_recording *r = xcalloc(1, sizeof *r);
  uint64_t n = 1, at;
  p->recorded = r;
  r->mem = arena_new();
  r->launches = ARENA_ARRAY(r->mem, nv_launch, n_kernels + 1);
  memset(r->launches, 0, ((size_t)n_kernels + 1) * sizeof *r->launches);
  for (int i = 0; i < n_kernels; i++) n += nv_call_bytes(p->steps[i].k->nv);
  if (!(r->calls = at = nv_rm_alloc(&g->rm, n, NV_VRAM_SEEN, false, err))) return -1;
  for (int i = 0; i < n_kernels; i++) {
    nv_launch *l = &r->launches[i];
    const nv_code *k = p->steps[i].k->nv;
    if (launch_place(&l->l, &p->steps[i], k->n_bufs, &g->memory, &r->traffic, r->mem, err)) return -1;
    nv_call_make(&l->call, k, at, l->l.bufs);
    at += nv_call_bytes(k);
  }
  decide_waits(p, r->launches);
  return make_stream(g, p, r, err);
}

static void nv_forget(plan *p) {
  nv_gpu *g = p->d->state;
  nv_recording *r = p->recorded;
  uint64_t memory[] = {r->calls, r->stream, r->timed};
  for (size_t i = 0; i < COUNT(memory); i++) if (memory[i]) nv_rm_free(&g->rm, memory[i]);
  remote_forget(&g->memory, &r->traffic);
  arena_free(r->mem);
  free(r);
}

static void write_word(uint64_t stream, size_t i, uint32_t word) {
  ((volatile uint32_t *)(uintptr_t)stream)[i] = word;
}

// What has changed since the last run.
static void nv_patch(const step *t, nv_launch *l, uint64_t stream) {
  uint32_t words[NV_LAUNCH_WORDS];
  if (!launch_changed(&l->l, t, "NV")) return;
  if (!l->l.empty) nv_call_set(&l->call, l->l.grid, l->l.block, l->l.vars);
  if (l->skipped == l->l.empty) return;
  l->skipped = l->l.empty;
  if (l->skipped) nv_skip_words(words);
  else nv_launch_words(words, l->call.descriptor);
  for (size_t i = 0; i < NV_LAUNCH_WORDS; i++) write_word(stream, l->word + i, words[i]);
}

static void patch_plan(const plan *p, nv_recording *r) {
  for (int i = 0; i < p->stats.kernels; i++) nv_patch(&p->steps[i], &r->launches[i], r->stream);
}

static int nv_replay(plan *p, error *err) {
  nv_gpu *g = p->d->state;
  nv_recording *r = p->recorded;
  remote_put(&g->memory, NULL, &r->traffic);
  patch_plan(p, r);
  uint64_t value = nv_next_signal(g);
  write_word(r->stream, r->value_word, (uint32_t)value);
  write_word(r->stream, r->value_word + 1, (uint32_t)(value >> 32));
  if (nv_gpu_run(g, r->stream, r->n_words, err)) return -1;
  remote_get(&g->memory, NULL, &r->traffic);
  return 0;
}

// A stream for one run, with a signal behind each launch that notes the GPU's time: signal 1 + i % (NV_SIGNALS - 1).
// So many launches at a time as there are signals.
static int run_with_times(nv_gpu *g, const plan *p, nv_recording *r, double (*spans)[2], error *err) {
  enum { PART = NV_SIGNALS - 2 };
  double at = 0;
  int n = p->stats.kernels, bad = 0;
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

// By the GPU's own clock, with each launch by itself.
static int nv_replay_timed(plan *p, plan_times *out, error *err) {
  nv_gpu *g = p->d->state;
  nv_recording *r = p->recorded;
  double (*spans)[2] = xcalloc((size_t)p->stats.kernels + 1, sizeof *spans), start = now_s();
  remote_put(&g->memory, NULL, &r->traffic);
  patch_plan(p, r);
  int bad = run_with_times(g, p, r, spans, err);
  if (!bad) remote_get(&g->memory, NULL, &r->traffic);
  remote_times(p, spans, now_s() - start, out);
  free(spans);
  return bad;
}

static const runtime nv_runtime = {.alloc = nv_alloc_area,
                                   .release = nv_release,
                                   .write = nv_write_to,
                                   .read = nv_read_from,
                                   .copy = nv_copy_area,
                                   .fill = nv_fill_area,
                                   .room = nv_room,
                                   .take = nv_take,
                                   .link = nv_link_kernels,
                                   .lay_out = nv_lay_out,
                                   .record = nv_record,
                                   .forget = nv_forget,
                                   .replay = nv_replay,
                                   .replay_timed = nv_replay_timed};

// ---- the device -----------------------------------------------------------------------------------------------------

static void nv_stop(device *d) { nv_gpu_close(d->state); }

int nv_start(device *d, error *err) {
  nv_gpu *g = xcalloc(1, sizeof *g);
  d->state = g;
  d->stop = nv_stop;
  if (nv_gpu_find(g, err) || nv_gpu_start(g, err)) return -1;
  g->memory.d = &nv_driver;
  g->memory.state = g;
  nvidia_target(&g->gpu, &d->target);
  nvidia_compiler(&g->gpu, d);
  d->run = &nv_runtime;
  d->prepare = nv_prepare;
  d->compile = nv_compile;
  d->show = nv_show;
  snprintf(d->key, sizeof d->key, "cubin %s %d,%d ptxas %s", g->gpu.sm, d->target.max_group, d->target.max_local_bytes,
           str_c(&g->ptxas_version));
  d->cache = cache_open(NULL, CODE_VERSION);
  return 0;
}
