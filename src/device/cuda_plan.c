// Models on NVIDIA's GPUs (DEV=CUDA): memory and plans. See cuda.h.
//
// A plan becomes one graph of the driver's: a node for each kernel, which waits for those of the level before. A replay
// brings what comes from the host, patches the nodes whose variables or numbers of work-groups have changed, launches
// the graph, fetches what the host is to see, and waits once. Where some kernel has nothing to do (a node must have
// work), or each kernel's time is asked for, kernels are launched one after the other instead.
#define _GNU_SOURCE
#include "device/cuda_impl.h"
#include <stdlib.h>
#include <string.h>
#include "device/cache.h"
#include "device/code_version.h"
#include "device/compiler.h"
#include "device/launch.h"

static int cuda_done(const cuda *c, const char *what, cuda_status s, error *err) {
  return s ? cuda_failed(c, err, what, s) : 0;
}
static cuda_address address_of(const void *at) { return (cuda_address)(uintptr_t)at; }

// ---- memory ---------------------------------------------------------------------------------------------------------

// Bytes that are zeros.
static void *cuda_make(void *state, uint64_t size, error *err) {
  cuda *c = state;
  cuda_address at = 0;
  cuda_status s = c->MemAlloc(&at, size);
  if (!s) s = c->MemsetD8Async(at, 0, size, c->stream);
  if (!s) return (void *)(uintptr_t)at;
  char what[64];
  snprintf(what, sizeof what, "%.2f GiB of memory", (double)size / 0x1p30);
  cuda_failed(c, err, what, s);
  if (at) c->MemFree(at);
  return NULL;
}

static void *cuda_alloc(device *dev, uint64_t bytes_wanted, enum pages pages, error *err) {
  cuda *c = dev->state;
  (void)pages;
  uint64_t size = round_up(bytes_wanted + REMOTE_SLACK, 4096);
  unsigned char *at = cuda_enter(c, err) ? NULL : cuda_make(c, size, err);
  if (at) vec_push(&c->memory.areas, ((remote_area){at, size, at}));
  return at;
}

static void cuda_drop(void *state, void *memory) { ((cuda *)state)->MemFree(address_of(memory)); }

// A weight as it lies in the host's memory.
static void *cuda_bring(void *state, const void *from, uint64_t size, error *err) {
  cuda *c = state;
  void *at = cuda_make(c, size + REMOTE_SLACK, err);
  cuda_status s = at ? c->MemcpyHtoDAsync(address_of(at), from, size, c->stream) : 0;
  if (!s) return at;
  cuda_failed(c, err, "bringing a weight to the device", s);
  cuda_drop(c, at);
  return NULL;
}

static int cuda_put(void *state, void *queue, void *memory, const void *from, uint64_t n) {
  const cuda *c = state;
  return (int)c->MemcpyHtoDAsync(address_of(memory), from, n, queue);
}
static int cuda_get(void *state, void *queue, void *to, void *memory, uint64_t n) {
  const cuda *c = state;
  return (int)c->MemcpyDtoHAsync(to, address_of(memory), n, queue);
}

static const remote_driver driver = {"CUDA", cuda_make, cuda_bring, cuda_drop, cuda_put, cuda_get};

static void cuda_release(device *dev, void *at, uint64_t size) {
  cuda *c = dev->state;
  remote_area a;
  (void)size;
  if (remote_take(&c->memory, at, &a) && !cuda_enter(c, NULL)) cuda_drop(c, a.memory);
}

static cuda_address cuda_must_lie(const cuda *c, const void *at, size_t n) {
  size_t offset;
  remote_must_lie(&c->memory, at, n, &offset);
  return address_of(at);
}

static int cuda_write_to(device *dev, void *to, const void *from, size_t n, error *err) {
  cuda *c = dev->state;
  if (!n) return 0;
  if (cuda_enter(c, err)) return -1;
  cuda_status s = c->MemcpyHtoDAsync(cuda_must_lie(c, to, n), from, n, c->stream);
  return cuda_done(c, "writing", s ? s : c->StreamSynchronize(c->stream), err);
}

static int cuda_read_from(device *dev, void *to, const void *from, size_t n, error *err) {
  cuda *c = dev->state;
  if (!n) return 0;
  if (cuda_enter(c, err)) return -1;
  cuda_status s = c->MemcpyDtoHAsync(to, cuda_must_lie(c, from, n), n, c->stream);
  return cuda_done(c, "reading", s ? s : c->StreamSynchronize(c->stream), err);
}

static int cuda_copy(device *dev, void *to, const void *from, size_t n, error *err) {
  cuda *c = dev->state;
  if (!n) return 0;
  if (cuda_enter(c, err)) return -1;
  return cuda_done(c, "copying", c->MemcpyDtoDAsync(cuda_must_lie(c, to, n), cuda_must_lie(c, from, n), n, c->stream),
                   err);
}

static int cuda_fill(device *dev, void *to, unsigned char value, size_t n, error *err) {
  cuda *c = dev->state;
  if (!n) return 0;
  if (cuda_enter(c, err)) return -1;
  return cuda_done(c, "filling", c->MemsetD8Async(cuda_must_lie(c, to, n), value, n, c->stream), err);
}

// What the driver has left: other processes take of it, too.
static uint64_t cuda_room(const device *dev) {
  const cuda *c = dev->state;
  size_t left = 0, all = 0;
  return c->CtxSetCurrent(c->context) || c->MemGetInfo(&left, &all) ? UINT64_MAX : left;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

static int cuda_compile(device *dev, device_kernel *k, error *err) {
  return nvidia_compile(&((const cuda *)dev->state)->gpu, k->p, &k->packed, err);
}

static int cuda_show(device *d, const program *p, str *source, str *assembly, error *err) {
  return nvidia_show(&((const cuda *)d->state)->gpu, p, source, assembly, err);
}

// How many buffers it takes is not in the cache.
static bool cuda_take(device *dev, device_kernel *k, int n_bufs) {
  if (!k->packed.n || k->packed.at[k->packed.n - 1] || cuda_enter(dev->state, NULL)) return false;
  k->cuda = cuda_load(dev->state, k->p, n_bufs, (const char *)k->packed.at, NULL);
  return k->cuda;
}

static int cuda_link_kernels(device *dev, device_kernel *kernels, int n, code_image **image, error *err) {
  (void)image;
  if (cuda_enter(dev->state, err)) return -1;
  for (int i = 0; i < n; i++) {
    if (!kernels[i].cuda && !(kernels[i].cuda = cuda_load(dev->state, kernels[i].p, kernels[i].p->n_bufs,
                                                          (const char *)kernels[i].packed.at, err)))
      return -1;
    bytes_free(&kernels[i].packed);
  }
  return 0;
}

// All tiles at once, with the last of them.
static int cuda_lay_out(plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes, int64_t lo,
                        int64_t hi, error *err) {
  cuda *c = p->d->state;
  if (!k)
    return cuda_write_to(p->d, (unsigned char *)stream + lo, (const unsigned char *)raw + lo, (size_t)(hi - lo), err);
  int64_t tiles = program_eval(k->p, k->p->tiles, NULL);
  if (hi < tiles) return 0;
  void *from = cuda_enter(c, err) ? NULL : cuda_bring(c, raw, raw_bytes, err);
  if (!from) return -1;
  cuda_address at[] = {cuda_must_lie(c, stream, 1), address_of(from)};
  void *arguments[] = {&at[0], &at[1]};
  unsigned items = (unsigned)program_eval(k->p, k->p->local[0], NULL);
  cuda_status s =
    c->LaunchKernel(k->cuda->function, (unsigned)tiles, 1, 1, items, 1, 1, 0, c->stream, arguments, NULL);
  if (!s) s = c->StreamSynchronize(c->stream);
  cuda_drop(c, from);
  return cuda_done(c, "laying out a weight", s, err);
}

static void cuda_prepare(device *d) { compiler_wake(((const cuda *)d->state)->gpu.llvm); }

// ---- plans ----------------------------------------------------------------------------------------------------------

typedef struct cuda_launch {
  launch l;
  cuda_kernel_node what;
  cuda_node node;
  bool stale;                      // the graph's node has not heard of the last change
} cuda_launch;
typedef struct recording {
  remote_traffic traffic;
  cuda_launch *launches;
  arena *mem;
  cuda_graph graph;
  cuda_exec exec;
} recording;

static int cuda_record_step(cuda *c, recording *r, const step *t, cuda_launch *out, error *err) {
  const cuda_code *code = t->k->cuda;
  int n = code->n_bufs, n_vars = t->k->p->n_vars;
  if (launch_place(&out->l, t, n, &c->memory, &r->traffic, r->mem, err)) return -1;
  out->what = (cuda_kernel_node){.function = code->function, .arguments = ARENA_ARRAY(r->mem, void *, n + n_vars + 1)};
  for (int i = 0; i < n; i++) out->what.arguments[i] = &out->l.bufs[i];
  for (int i = 0; i < n_vars; i++) out->what.arguments[n + i] = &out->l.vars[i];
  return 0;
}

static int cuda_record(plan *p, error *err) {
  int n = p->stats.kernels;
  cuda *c = p->d->state;
  recording *r = xcalloc(1, sizeof *r);
  p->recorded = r;
  r->mem = arena_new();
  r->launches = ARENA_ARRAY(r->mem, cuda_launch, n + 1);
  memset(r->launches, 0, ((size_t)n + 1) * sizeof *r->launches);
  if (cuda_enter(c, err)) return -1;
  for (int i = 0; i < n; i++) if (cuda_record_step(c, r, &p->steps[i], &r->launches[i], err)) return -1;
  return 0;
}

static void cuda_forget(plan *p) {
  cuda *c = p->d->state;
  recording *r = p->recorded;
  if (!cuda_enter(c, NULL)) {
    if (r->exec) c->GraphExecDestroy(r->exec);
    if (r->graph) c->GraphDestroy(r->graph);
  }
  remote_forget(&c->memory, &r->traffic);
  arena_free(r->mem);
  free(r);
}

// What has changed since the last run.
static void cuda_patch(const step *t, cuda_launch *l) {
  bool known = l->l.known;
  if (!launch_changed(&l->l, t, "CUDA")) return;
  memcpy(l->what.block, l->l.block, sizeof l->what.block);
  memcpy(l->what.grid, l->l.grid, sizeof l->what.grid);
  l->stale = known;
}

// Each node waits for those of the level before, and for those in its own that come first (step.each) and share memory
// with it.
static cuda_status make_graph(cuda *c, const plan *p, recording *r) {
  int n = p->stats.kernels, before = 0, first = 0;
  cuda_node *after = xcalloc((size_t)n + 1, sizeof *after);
  cuda_status s = c->GraphCreate(&r->graph, 0);
  for (int i = 0; i < n && !s; i++) {
    size_t edges = 0;
    if (i && p->steps[i].level != p->steps[i - 1].level) { before = first; first = i; }
    for (int j = before; j < i; j++)
      if (j < first || (p->steps[j].each && launches_meet(&r->launches[i].l, &r->launches[j].l)))
        after[edges++] = r->launches[j].node;
    s = c->GraphAddKernelNode(&r->launches[i].node, r->graph, after, edges, &r->launches[i].what);
  }
  free(after);
  return s ? s : c->GraphInstantiate(&r->exec, r->graph, 0);
}

static cuda_status launch_graph(cuda *c, const plan *p, recording *r) {
  cuda_status s = r->exec ? 0 : make_graph(c, p, r);
  for (int i = 0; i < p->stats.kernels && !s; i++) {
    cuda_launch *l = &r->launches[i];
    if (l->stale) s = c->GraphExecKernelNodeSetParams(r->exec, l->node, &l->what);
    l->stale = false;
  }
  return s ? s : c->GraphLaunch(r->exec, c->stream);
}

// events: one more than kernels, or NULL.
static cuda_status launch_each(cuda *c, const plan *p, recording *r, cuda_event *events, int *failed) {
  cuda_status s = events ? c->EventRecord(events[0], c->stream) : 0;
  for (int i = 0; i < p->stats.kernels && !s; i++) {
    const cuda_kernel_node *w = &r->launches[i].what;
    *failed = i;
    if (!r->launches[i].l.empty)
      s = c->LaunchKernel(w->function, w->grid[0], w->grid[1], w->grid[2], w->block[0], w->block[1], w->block[2], 0,
                          c->stream, w->arguments, NULL);
    if (events && !s) s = c->EventRecord(events[i + 1], c->stream);
  }
  return s;
}

static int cuda_run(plan *p, cuda_event *events, error *err) {
  cuda *c = p->d->state;
  recording *r = p->recorded;
  bool empty = false;
  int failed = -1;
  if (cuda_enter(c, err)) return -1;
  cuda_status s = (cuda_status)remote_put(&c->memory, c->stream, &r->traffic);
  if (s) return cuda_failed(c, err, "writing", s);
  for (int i = 0; i < p->stats.kernels; i++) {
    cuda_patch(&p->steps[i], &r->launches[i]);
    empty |= r->launches[i].l.empty;
  }
  s = events || empty ? launch_each(c, p, r, events, &failed) : launch_graph(c, p, r);
  if (s) return cuda_failed(c, err, failed >= 0 ? p->steps[failed].k->p->name : "launching a plan", s);
  s = (cuda_status)remote_get(&c->memory, c->stream, &r->traffic);
  return cuda_done(c, "running a plan", s ? s : c->StreamSynchronize(c->stream), err);
}

static int cuda_replay(plan *p, error *err) { return cuda_run(p, NULL, err); }

// By the device's own clock.
static int cuda_replay_timed(plan *p, plan_times *out, error *err) {
  cuda *c = p->d->state;
  size_t n = (size_t)p->stats.kernels, made = 0;
  if (cuda_enter(c, err)) return -1;
  cuda_event *events = xcalloc(n + 1, sizeof *events);
  double (*spans)[2] = xcalloc(n + 1, sizeof *spans), at = 0;
  cuda_status s = 0;
  while (made <= n && !(s = c->EventCreate(&events[made], 0))) made++;
  double start = now_s();
  int bad = s ? cuda_failed(c, err, "making an event", s) : cuda_run(p, events, err);
  double seconds = now_s() - start;
  for (size_t i = 0; i < n; i++) {
    float ms = 0;
    if (!bad && c->EventElapsedTime(&ms, events[i], events[i + 1])) ms = 0;
    spans[i][0] = at;
    spans[i][1] = at += (double)ms * 1e-3;
  }
  remote_times(p, spans, seconds, out);
  while (made) c->EventDestroy(events[--made]);
  free(events);
  free(spans);
  return bad;
}

static const runtime cuda_runtime = {.alloc = cuda_alloc,
                                     .release = cuda_release,
                                     .write = cuda_write_to,
                                     .read = cuda_read_from,
                                     .copy = cuda_copy,
                                     .fill = cuda_fill,
                                     .room = cuda_room,
                                     .take = cuda_take,
                                     .link = cuda_link_kernels,
                                     .lay_out = cuda_lay_out,
                                     .record = cuda_record,
                                     .forget = cuda_forget,
                                     .replay = cuda_replay,
                                     .replay_timed = cuda_replay_timed};

// ---- the device -----------------------------------------------------------------------------------------------------

static void cuda_stop(device *d) { cuda_close(d->state); }

int cuda_start(device *d, error *err) {
  cuda *c = NULL;
  if (cuda_open(&c, err)) return -1;
  d->state = c;
  c->memory.d = &driver;
  c->memory.state = c;
  d->stop = cuda_stop;
  nvidia_target(&c->gpu, &d->target);
  d->figures = c->gpu.figures.units ? &c->gpu.figures : NULL;
  nvidia_compiler(&c->gpu, d);
  d->run = &cuda_runtime;
  d->prepare = cuda_prepare;
  d->compile = cuda_compile;
  d->show = cuda_show;
  snprintf(d->key, sizeof d->key, "nvptx %s %d,%d", c->gpu.sm, d->target.max_group, d->target.max_local_bytes);
  d->cache = cache_open(NULL, CODE_VERSION);
  return 0;
}
