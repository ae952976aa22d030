// Models on NVIDIA's GPUs (DEV=CUDA): memory and plans. See cuda.h and remote.h.
//
// A plan becomes one CUDA graph: a node for each kernel, which depends on the nodes of the level before. A run updates
// the nodes whose variables or numbers of work-groups have changed, and launches the graph. If some kernel has no work
// (a node must have some), or times of kernels are wanted, kernels are launched one at a time instead.
#define _GNU_SOURCE
#include "device/cuda_impl.h"
#include <stdlib.h>
#include <string.h>
#include "base/plain.h"
#include "device/cache.h"
#include "device/code_version.h"
#include "device/compiler.h"

static int cuda_done(const cuda *c, const char *what, cuda_status s, error *err) {
  return s ? cuda_failed(c, err, what, s) : 0;
}
static cuda_address address_of(const void *at) { return (cuda_address)(uintptr_t)at; }

// ---- memory ---------------------------------------------------------------------------------------------------------

static void *cuda_make(void *state, uint64_t size, enum remote_use use, error *err) {
  cuda *c = state;
  cuda_address at = 0;
  (void)use;
  if (cuda_enter(c, err)) return NULL;
  cuda_status s = c->MemAlloc(&at, size);
  if (!s) s = c->MemsetD8Async(at, 0, size, c->stream);
  if (!s) return (void *)(uintptr_t)at;
  char what[64];
  plain_snprintf(what, sizeof what, "%.2f GiB of memory", (double)size / 0x1p30);
  cuda_failed(c, err, what, s);
  if (at) c->MemFree(at);
  return NULL;
}

static void cuda_drop(void *state, void *memory) {
  cuda *c = state;
  if (!cuda_enter(c, NULL)) c->MemFree(address_of(memory));
}

static unsigned char *cuda_address_here(const void *memory) { return (unsigned char *)(uintptr_t)memory; }

static int cuda_put(void *state, void *to, uint64_t at, const void *from, uint64_t n, error *err) {
  cuda *c = state;
  if (cuda_enter(c, err)) return -1;
  return cuda_done(c, "writing", c->MemcpyHtoDAsync(address_of(to) + at, from, n, c->stream), err);
}

static int cuda_get(void *state, void *to, void *from, uint64_t at, uint64_t n, error *err) {
  cuda *c = state;
  if (cuda_enter(c, err)) return -1;
  return cuda_done(c, "reading", c->MemcpyDtoHAsync(to, address_of(from) + at, n, c->stream), err);
}

static int cuda_copy(void *state, void *to, uint64_t to_at, void *from, uint64_t from_at, uint64_t n, error *err) {
  cuda *c = state;
  if (cuda_enter(c, err)) return -1;
  cuda_status s = c->MemcpyDtoDAsync(address_of(to) + to_at, address_of(from) + from_at, n, c->stream);
  return cuda_done(c, "copying", s, err);
}

static int cuda_fill(void *state, void *to, uint64_t at, unsigned char value, uint64_t n, error *err) {
  cuda *c = state;
  if (cuda_enter(c, err)) return -1;
  return cuda_done(c, "filling", c->MemsetD8Async(address_of(to) + at, value, n, c->stream), err);
}

static int cuda_wait(void *state, error *err) {
  cuda *c = state;
  if (cuda_enter(c, err)) return -1;
  return cuda_done(c, "running a plan", c->StreamSynchronize(c->stream), err);
}

// Free memory according to the driver: other processes use it too.
static uint64_t cuda_room(void *state) {
  const cuda *c = state;
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

static int load_ptx(void *state, device_kernel *k, int n_bufs, error *err) {
  if (!k->packed.n || k->packed.at[k->packed.n - 1]) return error_set(err, "CUDA: %s is no PTX", k->p->name);
  cuda_code *code = cuda_enter(state, err) ? NULL : cuda_load(state, k->p, n_bufs, (const char *)k->packed.at, err);
  k->remote = code ? &code->base : NULL;
  return code ? 0 : -1;
}

static void cuda_prepare(device *d) { compiler_wake(((const cuda *)d->state)->gpu.llvm); }

// ---- plans ----------------------------------------------------------------------------------------------------------

typedef struct cuda_launch {
  cuda_kernel_node what;
  cuda_address *bufs;
  cuda_node node;
  bool stale;                      // the graph's node does not have the last change yet
} cuda_launch;
typedef struct recording { cuda_launch *launches; cuda_graph graph; cuda_exec exec; } recording;

static void record_launch(remote_plan *r, remote_command *c, cuda_launch *out) {
  const cuda_code *code = (const cuda_code *)c->s->k->remote;
  int n = c->n_ranges, n_vars = c->s->k->p->n_vars;
  out->bufs = ARENA_ARRAY(r->mem, cuda_address, n + 1);
  out->what = (cuda_kernel_node){.function = code->function, .arguments = ARENA_ARRAY(r->mem, void *, n + n_vars + 1)};
  for (int i = 0; i < n; i++) {
    out->bufs[i] = remote_at(&c->ranges[i]);
    out->what.arguments[i] = &out->bufs[i];
  }
  for (int i = 0; i < n_vars; i++) out->what.arguments[n + i] = &c->vars[i];
}

static int cuda_record(void *state, remote_plan *r, error *err) {
  recording *own = r->own = ARENA_ARRAY(r->mem, recording, 1);
  (void)state; (void)err;
  *own = (recording){.launches = ARENA_ARRAY(r->mem, cuda_launch, r->steps.n + 1)};
  memset(own->launches, 0, ((size_t)r->steps.n + 1) * sizeof *own->launches);
  for (int i = 0; i < r->steps.n; i++) record_launch(r, &r->steps.at[i], &own->launches[i]);
  return 0;
}

static void cuda_forget(void *state, remote_plan *r) {
  cuda *c = state;
  recording *own = r->own;
  if (!own || cuda_enter(c, NULL)) return;
  if (own->exec) c->GraphExecDestroy(own->exec);
  if (own->graph) c->GraphDestroy(own->graph);
}

// Applies changes since the last run; returns whether all commands have work.
static bool patch_launches(remote_plan *r, recording *own) {
  bool all = true;
  for (int i = 0; i < r->steps.n; i++) {
    remote_command *c = &r->steps.at[i];
    all &= !c->empty;
    if (!c->changed) continue;
    memcpy(own->launches[i].what.block, c->items, sizeof c->items);
    memcpy(own->launches[i].what.grid, c->groups, sizeof c->groups);
    own->launches[i].stale = true;
    c->changed = c->stale = false;
  }
  return all;
}

// Each node depends on those of the level before, and on those in its own level that come first (step.each) and share
// memory with it.
static cuda_status make_graph(cuda *c, const remote_plan *r, recording *own) {
  int n = r->steps.n, before = 0, first = 0;
  cuda_node *after = xcalloc((size_t)n + 1, sizeof *after);
  cuda_status s = c->GraphCreate(&own->graph, 0);
  for (int i = 0; i < n && !s; i++) {
    const remote_command *at = r->steps.at;
    size_t edges = 0;
    if (i && at[i].s->level != at[i - 1].s->level) { before = first; first = i; }
    for (int j = before; j < i; j++)
      if (j < first || (at[j].s->each && remote_commands_meet(&at[i], &at[j])))
        after[edges++] = own->launches[j].node;
    s = c->GraphAddKernelNode(&own->launches[i].node, own->graph, after, edges, &own->launches[i].what);
    own->launches[i].stale = false;
  }
  free(after);
  return s ? s : c->GraphInstantiate(&own->exec, own->graph, 0);
}

static cuda_status launch_graph(cuda *c, const remote_plan *r, recording *own) {
  cuda_status s = own->exec ? 0 : make_graph(c, r, own);
  for (int i = 0; i < r->steps.n && !s; i++) {
    cuda_launch *l = &own->launches[i];
    if (l->stale) s = c->GraphExecKernelNodeSetParams(own->exec, l->node, &l->what);
    l->stale = false;
  }
  return s ? s : c->GraphLaunch(own->exec, c->stream);
}

// events: one more than kernels, or NULL.
static cuda_status launch_each(cuda *c, const remote_plan *r, recording *own, cuda_event *events, int *failed) {
  cuda_status s = events ? c->EventRecord(events[0], c->stream) : 0;
  for (int i = 0; i < r->steps.n && !s; i++) {
    const cuda_kernel_node *w = &own->launches[i].what;
    *failed = i;
    if (!r->steps.at[i].empty)
      s = c->LaunchKernel(w->function, w->grid[0], w->grid[1], w->grid[2], w->block[0], w->block[1], w->block[2], 0,
                          c->stream, w->arguments, NULL);
    if (events && !s) s = c->EventRecord(events[i + 1], c->stream);
  }
  return s;
}

static int launch_all(cuda *c, remote_plan *r, cuda_event *events, error *err) {
  recording *own = r->own;
  int failed = -1;
  // a graph of one kernel does not pay
  bool whole = patch_launches(r, own) && !events && r->steps.n > 1;
  cuda_status s = whole ? launch_graph(c, r, own) : launch_each(c, r, own, events, &failed);
  return cuda_done(c, failed >= 0 ? r->steps.at[failed].s->k->p->name : "launching a plan", s, err);
}

// Times with the device's clock.
static int launch_timed(cuda *c, remote_plan *r, double (*spans)[2], error *err) {
  size_t n = (size_t)r->steps.n, made = 0;
  cuda_event *events = xcalloc(n + 1, sizeof *events);
  double at = 0;
  cuda_status s = 0;
  while (made <= n && !(s = c->EventCreate(&events[made], 0))) made++;
  int bad = s ? cuda_failed(c, err, "making an event", s) : launch_all(c, r, events, err);
  if (!bad) bad = cuda_wait(c, err);
  for (size_t i = 0; i < n; i++) {
    float ms = 0;
    if (!bad && c->EventElapsedTime(&ms, events[i], events[i + 1])) ms = 0;
    spans[i][0] = at;
    spans[i][1] = at += (double)ms * 1e-3;
  }
  while (made) c->EventDestroy(events[--made]);
  free(events);
  return bad;
}

static int cuda_run(void *state, remote_plan *r, double (*spans)[2], error *err) {
  cuda *c = state;
  if (cuda_enter(c, err)) return -1;
  return spans ? launch_timed(c, r, spans, err) : launch_all(c, r, NULL, err);
}

static const remote_driver cuda_driver = {.name = "CUDA",
                                          .aligned = 16,     // render/llvm.c
                                          .make = cuda_make,
                                          .drop = cuda_drop,
                                          .address = cuda_address_here,
                                          .put = cuda_put,
                                          .get = cuda_get,
                                          .copy = cuda_copy,
                                          .fill = cuda_fill,
                                          .wait = cuda_wait,
                                          .room = cuda_room,
                                          .load = load_ptx,
                                          .record = cuda_record,
                                          .forget = cuda_forget,
                                          .run = cuda_run};

// ---- the device -----------------------------------------------------------------------------------------------------

static void cuda_stop(device *d) { cuda_close(d->state); }

int cuda_start(device *d, error *err) {
  cuda *c = NULL;
  if (cuda_open(&c, err)) return -1;
  d->state = c;
  remote_start(d, &c->memory, &cuda_driver, c);
  d->stop = cuda_stop;
  nvidia_target(&c->gpu, &d->target);
  d->figures = c->gpu.figures.units ? &c->gpu.figures : NULL;
  nvidia_compiler(&c->gpu, d);
  d->prepare = cuda_prepare;
  d->compile = cuda_compile;
  d->show = cuda_show;
  snprintf(d->key, sizeof d->key, "nvptx %s %d,%d", c->gpu.sm, d->target.max_group, d->target.max_local_bytes);
  d->cache = cache_open(NULL, CODE_VERSION);
  return 0;
}
