// Plans on OpenCL (DEV=CL): memory and plans of a device. See remote.h.
//
// A piece of memory is an OpenCL buffer. If the device shares the host's memory, the buffer is made over a range of
// this process's addresses, whose pages are allocated when touched; otherwise the driver allocates the memory and
// zeroes it.
//
// Recording makes a kernel object for every step of a plan, with its buffers set. A run sets the variables and numbers
// of tiles that have changed, and enqueues all steps in order.
#define _GNU_SOURCE
#include "device/opencl_impl.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/plain.h"
#include "device/cache.h"
#include "device/code_version.h"
#include "device/memory.h"
#include "render/render.h"

enum { PARTS = 8 /* of a kernel's tiles for each unit: one that is held up holds up few */ };

static int cl_done(const cl *d, const char *what, cl_int r, error *err) { return r ? cl_failed(d, err, what, r) : 0; }

// ---- memory ---------------------------------------------------------------------------------------------------------

typedef struct cl_piece { cl_mem mem; unsigned char *here; uint64_t size; } cl_piece;

static cl_mem mem_of(const void *memory) { return ((const cl_piece *)memory)->mem; }

static void cl_drop(void *state, void *memory) {
  cl_piece *p = memory;
  if (p->mem) ((cl *)state)->ReleaseMemObject(p->mem);
  if (p->here) memory_release(p->here, p->size);
  free(p);
}

static void *cl_memory(void *state, uint64_t size, enum remote_use use, error *err) {
  cl *d = state;
  cl_int r = 0;
  bool here = d->unified && use == REMOTE_AREA;
  if (d->max_alloc && size > d->max_alloc) {
    error_set(err,
              "OpenCL: %s gives at most %.2f GiB in one piece, and %.2f GiB are needed; a smaller context (-c) or "
              "chunk (-ub) needs less",
              d->name, (double)d->max_alloc / 0x1p30, (double)size / 0x1p30);
    return NULL;
  }
  cl_piece *p = xcalloc(1, sizeof *p);
  p->size = size;
  if (here && !(p->here = memory_reserve(size, err))) { free(p); return NULL; }
  p->mem = d->CreateBuffer(d->context, CL_MEM_READ_WRITE | (here ? CL_MEM_USE_HOST_PTR : 0), size, p->here, &r);
  if (p->mem && !here)
    r = d->EnqueueFillBuffer(d->queue, p->mem, &(unsigned char){0}, 1, 0, size, 0, NULL, NULL);
  if (p->mem && !r) return p;
  char what[64];
  plain_snprintf(what, sizeof what, "%.2f GiB of memory", (double)size / 0x1p30);
  cl_failed(d, err, what, r);
  cl_drop(d, p);
  return NULL;
}

// Wraps host memory if the device shares it.
static void *cl_wrap(void *state, const void *from, uint64_t size, error *err) {
  cl *d = state;
  cl_int r = 0;
  if (!d->unified) return NULL;
  cl_mem mem = d->CreateBuffer(d->context, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR, size, (void *)(uintptr_t)from, &r);
  if (!mem) { cl_failed(d, err, "bringing a weight to the device", r); return NULL; }
  cl_piece *p = xcalloc(1, sizeof *p);
  *p = (cl_piece){.mem = mem, .size = size};
  return p;
}

static unsigned char *cl_piece_address(const void *memory) { return ((const cl_piece *)memory)->here; }

static int cl_put(void *state, void *to, uint64_t at, const void *from, uint64_t n, error *err) {
  const cl *d = state;
  return cl_done(d, "writing", d->EnqueueWriteBuffer(d->queue, mem_of(to), CL_FALSE, at, n, from, 0, NULL, NULL), err);
}

static int cl_get(void *state, void *to, void *from, uint64_t at, uint64_t n, error *err) {
  const cl *d = state;
  return cl_done(d, "reading", d->EnqueueReadBuffer(d->queue, mem_of(from), CL_FALSE, at, n, to, 0, NULL, NULL), err);
}

static int cl_copy(void *state, void *to, uint64_t to_at, void *from, uint64_t from_at, uint64_t n, error *err) {
  const cl *d = state;
  cl_int r = d->EnqueueCopyBuffer(d->queue, mem_of(from), mem_of(to), from_at, to_at, n, 0, NULL, NULL);
  return cl_done(d, "copying", r, err);
}

static int cl_fill(void *state, void *to, uint64_t at, unsigned char value, uint64_t n, error *err) {
  const cl *d = state;
  return cl_done(d, "filling", d->EnqueueFillBuffer(d->queue, mem_of(to), &value, 1, at, n, 0, NULL, NULL), err);
}

static int cl_wait(void *state, error *err) {
  const cl *d = state;
  return cl_done(d, "waiting for the device", d->Finish(d->queue), err);
}

// OpenCL does not report free memory: returns all of the device's memory, if it is not the host's.
static uint64_t cl_room(void *state) {
  const cl *d = state;
  return d->unified || !d->bytes ? UINT64_MAX : d->bytes;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

static render_options text_options(const device *dev) {
  return (render_options){.vector_bits = dev->target.vector_bytes * 8, .lacks_doubles = dev->target.lacks_doubles};
}

static int cl_compile_kernel(device *dev, device_kernel *k, error *err) {
  cl *d = dev->state;
  str text = {0};
  render_options how = text_options(dev);
  int r = render_text(render_opencl, k->p, &how, &text, err);
  if (!r && debug_level() >= 4) fprintf(stderr, "--- source of %s\n%s\n", k->p->name, str_c(&text));
  cl_code *code = r ? NULL : cl_compile(d, k->p, str_c(&text), err);
  str_free(&text);
  if (!code) return -1;
  k->remote = &code->base;
  if (cache_is_on(dev->cache)) k->packed.n = cl_binary(code, &k->packed.at);
  return 0;
}

static int cl_show(device *d, const program *p, str *source, str *assembly, error *err) {
  render_options how = text_options(d);
  (void)assembly;
  return render_text(render_opencl, p, &how, source, err);
}

static int cl_load_code(void *state, device_kernel *k, int n_bufs, error *err) {
  cl_code *code = cl_from_binary(state, k->p, n_bufs, k->packed.at, k->packed.n, err);
  k->remote = code ? &code->base : NULL;
  return code ? 0 : -1;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

static int cl_record_step(cl *d, const remote_command *c, cl_kernel *out, error *err) {
  const program *p = c->s->k->p;
  const cl_code *code = (const cl_code *)c->s->k->remote;
  cl_int r = 0;
  *out = d->CreateKernel(code->program, p->name, &r);
  if (!*out) return cl_failed(d, err, p->name, r);
  for (int i = 0; i < c->n_ranges && !r; i++)
    r = cl_set_buffer(code, *out, i, mem_of(c->ranges[i].memory), (int64_t)c->ranges[i].from);
  return cl_done(d, "setting an argument", r, err);
}

static int cl_record(void *state, remote_plan *r, error *err) {
  cl_kernel *kernels = r->own = ARENA_ARRAY(r->mem, cl_kernel, r->steps.n + 1);
  memset(kernels, 0, ((size_t)r->steps.n + 1) * sizeof *kernels);
  for (int i = 0; i < r->steps.n; i++)
    if (cl_record_step(state, &r->steps.at[i], &kernels[i], err)) return -1;
  return 0;
}

static void cl_forget(void *state, remote_plan *r) {
  const cl_kernel *kernels = r->own;
  for (int i = 0; kernels && i < r->steps.n; i++) if (kernels[i]) ((cl *)state)->ReleaseKernel(kernels[i]);
}

// Sets variables, and the tiles if work-items share them.
static cl_int cl_set_vars(remote_command *c, cl_kernel to) {
  const cl_code *code = (const cl_code *)c->s->k->remote;
  cl_int r = 0;
  int at = cl_first_var(code), n = code->p->n_vars;
  for (int i = 0; i < n && !r; i++) r = cl_set_long(code, to, at + i, c->vars[i]);
  if (code->tiles && !r) r = cl_set_long(code, to, at + n, 0);
  if (code->tiles && !r) r = cl_set_long(code, to, at + n + 1, c->tiles);
  c->changed = c->stale = false;
  return r;
}

// events: one per kernel, or NULL
static int run_in_queue(const cl *d, remote_plan *rp, cl_command_queue queue, cl_event *events, error *err) {
  const cl_kernel *kernels = rp->own;
  for (int i = 0; i < rp->steps.n; i++) {
    remote_command *c = &rp->steps.at[i];
    size_t global[3], local[3];
    cl_int r = c->changed ? cl_set_vars(c, kernels[i]) : 0;
    for (int j = 0; j < 3; j++) {
      local[j] = c->items[j];
      global[j] = (size_t)c->items[j] * c->groups[j];
    }
    if (!r && !c->empty)
      r = d->EnqueueNDRangeKernel(queue, kernels[i], 3, NULL, global, local, 0, NULL, events ? &events[i] : NULL);
    if (r) return cl_failed(d, err, c->s->k->p->name, r);
  }
  return 0;
}

static void take_spans(const cl *d, cl_event *events, int n, double (*spans)[2]) {
  cl_ulong first = 0;
  for (int i = 0; i < n; i++) {
    cl_ulong from = 0, to = 0;
    if (!events[i]) continue;
    if (!d->GetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_START, sizeof from, &from, NULL) &&
        !d->GetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof to, &to, NULL)) {
      if (!first) first = from;
      spans[i][0] = (double)(from - first) * 1e-9;
      spans[i][1] = (double)(to - first) * 1e-9;
    }
    d->ReleaseEvent(events[i]);
  }
}

// With the device's clock, in a queue with profiling, which begins when the other queue is done.
static int run_with_events(cl *d, remote_plan *r, double (*spans)[2], error *err) {
  cl_int status = 0;
  if (!d->timing) d->timing = d->CreateCommandQueue(d->context, d->device, CL_QUEUE_PROFILING_ENABLE, &status);
  if (!d->timing) return cl_failed(d, err, "creating a queue that takes times", status);
  if (cl_wait(d, err)) return -1;
  cl_event *events = xcalloc((size_t)r->steps.n + 1, sizeof *events);
  int bad = run_in_queue(d, r, d->timing, events, err);
  if (!bad) bad = cl_done(d, "running a plan", d->Finish(d->timing), err);
  take_spans(d, events, r->steps.n, spans);
  free(events);
  return bad;
}

static int cl_run(void *state, remote_plan *r, double (*spans)[2], error *err) {
  cl *d = state;
  return spans ? run_with_events(d, r, spans, err) : run_in_queue(d, r, d->queue, NULL, err);
}

static const remote_driver cl_driver = {.name = "OpenCL",
                                        .make = cl_memory,
                                        .wrap = cl_wrap,
                                        .drop = cl_drop,
                                        .address = cl_piece_address,
                                        .put = cl_put,
                                        .get = cl_get,
                                        .copy = cl_copy,
                                        .fill = cl_fill,
                                        .wait = cl_wait,
                                        .room = cl_room,
                                        .load = cl_load_code,
                                        .record = cl_record,
                                        .forget = cl_forget,
                                        .run = cl_run};

// ---- the device -----------------------------------------------------------------------------------------------------

static void cl_stop(device *d) { cl_close(d->state); }

// On a processor, each work-item is a core's share of tiles with its own vectors; on other devices work-groups share
// memory. Sets the figures of the target.
static int choose_target(const cl *d, device *dev, cl_probe *probe, error *err) {
  target *t = &dev->target;
  const char *work = env_str(ENV_CL_WORK);
  bool tiles = *work ? !strcmp(work, "tiles") : d->is_cpu;
  if (*work && !tiles && strcmp(work, "groups"))
    return error_set(err, "CL_WORK=%s is no way to share out work (known: groups, tiles)", work);
  cl_target(d, t);
  t->cache_bytes = (int64_t)d->cache_bytes;
  t->lacks_doubles = !d->has_doubles;
  if (!tiles) return 0;
  t->has_local = false;
  t->rounded_most = t->row_items = t->row_bytes = t->token_tile = 0;
  bool wide = d->is_cpu && d->float_lanes > 4 && cl_knows_wide_vectors(d, probe, dev->cache);
  t->vector_bytes = wide ? 4 * (int)min_i64(d->float_lanes, 16) : 16;
  return 0;
}

int cl_start(device *d, error *err) {
  cl *c = NULL;
  cl_probe *probe = cl_probe_begin();
  d->cache = cache_open(NULL, CODE_VERSION);
  if (cl_open(d->which, &c, err)) { cl_probe_end(probe); return -1; }
  d->state = c;
  remote_start(d, &c->memory, &cl_driver, c);
  c->memory.parts = c->units * PARTS;
  d->stop = cl_stop;
  int bad = choose_target(c, d, probe, err);
  cl_probe_end(probe);
  if (bad) return -1;
  d->compile = cl_compile_kernel;
  d->show = cl_show;
  snprintf(d->key, sizeof d->key, "opencl %s %s %s%s %d %d,%d", c->name, c->driver,
           d->target.has_local ? "groups" : "tiles", d->target.lacks_doubles ? " soft doubles" : "",
           d->target.vector_bytes, d->target.max_group, d->target.max_local_bytes);
  return 0;
}
