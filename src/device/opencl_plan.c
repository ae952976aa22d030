// Models on OpenCL (DEV=CL): memory and plans of a device behind a driver.
//
// A piece of memory is a buffer of the driver's and a range of addresses of this process, in which nothing lies: so
// parts of it are named as anywhere, and a kernel gets the buffer and the bytes behind its beginning. Where the
// device's memory is the host's, the buffer is made over that range, and no page of it is there before it is touched;
// elsewhere the driver has the memory and fills it with zeros.
//
// Recording makes a kernel object for every step of a plan, with all its arguments set. A replay brings what comes from
// the host, patches the variables and the numbers of tiles that have changed, enqueues all steps in order, fetches what
// the host is to see, and waits once.
#define _GNU_SOURCE
#include "device/opencl_impl.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/env.h"
#include "device/cache.h"
#include "device/code_version.h"
#include "device/memory.h"
#include "device/plan_impl.h"
#include "render/render.h"

enum { PARTS = 8 /* of a kernel's tiles for each unit: one that is held up holds up few */ };

// ---- memory ---------------------------------------------------------------------------------------------------------

static void *no_access(uint64_t size, error *err) {
  void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) return at;
  error_set(err, "no room for %.2f GiB of addresses", (double)size / 0x1p30);
  return NULL;
}

static void give_back(const cl *d, void *at, uint64_t size) {
  if (d->unified) memory_release(at, size);
  else munmap(at, size);
}

static cl_int cl_zeros(cl *d, cl_mem mem, uint64_t size) {
  return d->EnqueueFillBuffer(d->queue, mem, &(unsigned char){0}, 1, 0, size, 0, NULL, NULL);
}

static void *cl_alloc(device *dev, uint64_t bytes_wanted, enum pages pages, error *err) {
  cl *d = dev->state;
  cl_int r = 0;
  uint64_t size = round_up(bytes_wanted + REMOTE_SLACK, 4096);
  (void)pages;                                     // plain pages could become huge ones only while no kernel runs
  if (d->max_alloc && size > d->max_alloc) {
    error_set(err,
              "OpenCL: %s gives at most %.2f GiB in one piece, and %.2f GiB are needed; a smaller context (-c) or "
              "chunk (-ub) needs less",
              d->name, (double)d->max_alloc / 0x1p30, (double)size / 0x1p30);
    return NULL;
  }
  unsigned char *at = d->unified ? memory_reserve(size, err) : no_access(size, err);
  if (!at) return NULL;
  cl_mem mem = d->CreateBuffer(d->context, CL_MEM_READ_WRITE | (d->unified ? CL_MEM_USE_HOST_PTR : 0), size,
                               d->unified ? at : NULL, &r);
  if (mem && !d->unified) r = cl_zeros(d, mem, size);
  if (r || !mem) {
    char what[64];
    snprintf(what, sizeof what, "%.2f GiB of memory", (double)size / 0x1p30);
    cl_failed(d, err, what, r);
    if (mem) d->ReleaseMemObject(mem);
    give_back(d, at, size);
    return NULL;
  }
  vec_push(&d->memory.areas, ((remote_area){at, size, mem}));
  return at;
}

// What comes and goes with a plan.
static void *cl_make(void *state, uint64_t size, error *err) {
  cl *d = state;
  cl_int r = 0;
  cl_mem mem = d->CreateBuffer(d->context, CL_MEM_READ_WRITE, size, NULL, &r);
  if (mem && !(r = cl_zeros(d, mem, size))) return mem;
  if (mem) d->ReleaseMemObject(mem);
  cl_failed(d, err, "memory for what comes and goes", r);
  return NULL;
}

// Bytes of the host's that kernels only read: theirs where memory is one, else a copy.
static void *cl_bring(void *state, const void *from, uint64_t size, error *err) {
  cl *d = state;
  cl_int r = 0;
  cl_mem mem =
    d->unified ? d->CreateBuffer(d->context, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR, size, (void *)(uintptr_t)from, &r)
               : d->CreateBuffer(d->context, CL_MEM_READ_ONLY, size + REMOTE_SLACK, NULL, &r);
  if (mem && !d->unified) r = d->EnqueueWriteBuffer(d->queue, mem, CL_TRUE, 0, size, from, 0, NULL, NULL);
  if (mem && !r) return mem;
  if (mem) d->ReleaseMemObject(mem);
  cl_failed(d, err, "bringing a weight to the device", r);
  return NULL;
}

static void cl_drop(void *state, void *memory) { ((cl *)state)->ReleaseMemObject(memory); }

static int cl_put(void *state, void *queue, void *memory, const void *from, uint64_t n) {
  const cl *d = state;
  return d->EnqueueWriteBuffer(queue, memory, CL_FALSE, 0, n, from, 0, NULL, NULL);
}
static int cl_get(void *state, void *queue, void *to, void *memory, uint64_t n) {
  const cl *d = state;
  return d->EnqueueReadBuffer(queue, memory, CL_FALSE, 0, n, to, 0, NULL, NULL);
}

static const remote_driver driver = {"OpenCL", cl_make, cl_bring, cl_drop, cl_put, cl_get};

static void cl_release(device *dev, void *at, uint64_t size) {
  cl *d = dev->state;
  remote_area a;
  (void)size;
  if (!remote_take(&d->memory, at, &a)) return;
  cl_drop(d, a.memory);
  give_back(d, at, a.size);
}

static cl_mem cl_must_lie(const cl *d, const void *at, size_t n, size_t *offset) {
  return remote_must_lie(&d->memory, at, n, offset)->memory;
}

static int cl_done(const cl *d, const char *what, cl_int r, error *err) { return r ? cl_failed(d, err, what, r) : 0; }

static int cl_write_to(device *dev, void *to, const void *from, size_t n, error *err) {
  cl *d = dev->state;
  size_t at;
  cl_mem a = cl_must_lie(d, to, n, &at);
  return n ? cl_done(d, "writing", d->EnqueueWriteBuffer(d->queue, a, CL_TRUE, at, n, from, 0, NULL, NULL), err) : 0;
}

static int cl_read_from(device *dev, void *to, const void *from, size_t n, error *err) {
  cl *d = dev->state;
  size_t at;
  cl_mem a = cl_must_lie(d, from, n, &at);
  return n ? cl_done(d, "reading", d->EnqueueReadBuffer(d->queue, a, CL_TRUE, at, n, to, 0, NULL, NULL), err) : 0;
}

static int cl_copy(device *dev, void *to, const void *from, size_t n, error *err) {
  cl *d = dev->state;
  size_t x, y;
  cl_mem a = cl_must_lie(d, from, n, &x), b = cl_must_lie(d, to, n, &y);
  return n ? cl_done(d, "copying", d->EnqueueCopyBuffer(d->queue, a, b, x, y, n, 0, NULL, NULL), err) : 0;
}

static int cl_fill(device *dev, void *to, unsigned char value, size_t n, error *err) {
  cl *d = dev->state;
  size_t at;
  cl_mem a = cl_must_lie(d, to, n, &at);
  return n ? cl_done(d, "filling", d->EnqueueFillBuffer(d->queue, a, &value, 1, at, n, 0, NULL, NULL), err) : 0;
}

// Nobody says what is left: all that it has, where that is not the host's.
static uint64_t cl_room(const device *dev) {
  const cl *d = dev->state;
  return d->unified || !d->bytes ? UINT64_MAX : d->bytes;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

static int cl_compile_kernel(device *dev, device_kernel *k, error *err) {
  cl *d = dev->state;
  str text = {0};
  int r = render_text(render_opencl, k->p, &(render_options){.vector_bits = dev->target.vector_bytes * 8}, &text, err);
  if (!r && debug_level() >= 4) fprintf(stderr, "--- source of %s\n%s\n", k->p->name, str_c(&text));
  if (!r && !(k->cl = cl_compile(d, k->p, str_c(&text), err))) r = -1;
  if (!r && cache_is_on(dev->cache)) k->packed.n = cl_binary(k->cl, &k->packed.at);
  str_free(&text);
  return r;
}

static int cl_show(device *d, const program *p, str *source, str *assembly, error *err) {
  (void)assembly;
  return render_text(render_opencl, p, &(render_options){.vector_bits = d->target.vector_bytes * 8}, source, err);
}

static bool cl_take(device *dev, device_kernel *k, int n_bufs) {
  k->cl = cl_from_binary(dev->state, k->p, n_bufs, k->packed.at, k->packed.n, NULL);
  return k->cl;
}

static int cl_link_kernels(device *dev, device_kernel *kernels, int n, code_image **image, error *err) {
  (void)dev; (void)image; (void)err;
  for (int i = 0; i < n; i++) bytes_free(&kernels[i].packed);
  return 0;
}

static int cl_lay_out(plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes, int64_t lo,
                      int64_t hi, error *err) {
  cl *d = p->d->state;
  size_t at, global[3], local[3];
  cl_mem to = cl_must_lie(d, stream, k ? 1 : (size_t)hi, &at);
  if (!k)
    return cl_write_to(p->d, (unsigned char *)stream + lo, (const unsigned char *)raw + lo, (size_t)(hi - lo), err);
  if (!cl_sizes(k->cl, NULL, hi - lo, d->units * PARTS, global, local)) return 0;
  cl_mem from = cl_bring(d, raw, raw_bytes, err);
  if (!from) return -1;
  cl_int r = cl_set_buffer(k->cl, k->cl->kernel, 0, to, (int64_t)at);
  if (!r) r = cl_set_buffer(k->cl, k->cl->kernel, 1, from, 0);
  for (int i = 0; i < 2 && !r && k->cl->tiles; i++)
    r = cl_set_long(k->cl, k->cl->kernel, cl_first_var(k->cl) + i, i ? hi : lo);
  if (!r) r = d->EnqueueNDRangeKernel(d->queue, k->cl->kernel, 3, NULL, global, local, 0, NULL, NULL);
  if (!r) r = d->Finish(d->queue);
  d->ReleaseMemObject(from);
  return cl_done(d, "laying out a weight", r, err);
}

// ---- plans ----------------------------------------------------------------------------------------------------------

typedef struct launch { cl_kernel kernel; int64_t vars[MAX_VARS], tiles; bool any; size_t global[3], local[3]; } launch;
typedef struct recording { remote_traffic traffic; launch *launches; } recording;

static int cl_record_step(cl *d, recording *c, const step *t, launch *out, error *err) {
  const cl_code *code = t->k->cl;
  cl_int r = 0;
  int bad = 0;
  out->kernel = d->CreateKernel(code->program, t->k->p->name, &r);
  if (!out->kernel) bad = cl_failed(d, err, t->k->p->name, r);
  for (int i = 0; i < code->n_bufs && !bad; i++) {
    size_t offset;
    cl_mem mem = remote_place(&d->memory, &c->traffic, t->bufs[i], &t->args[i], &offset, err);
    bad = mem ? cl_done(d, "setting an argument", cl_set_buffer(code, out->kernel, i, mem, (int64_t)offset), err) : -1;
  }
  return bad;
}

static int cl_record(plan *p, error *err) {
  cl *d = p->d->state;
  recording *c = xcalloc(1, sizeof *c);
  p->recorded = c;
  c->launches = xcalloc((size_t)p->stats.kernels + 1, sizeof *c->launches);
  for (int i = 0; i < p->stats.kernels; i++)
    if (cl_record_step(d, c, &p->steps[i], &c->launches[i], err)) return -1;
  return 0;
}

static void cl_forget(plan *p) {
  cl *d = p->d->state;
  recording *c = p->recorded;
  for (int i = 0; i < p->stats.kernels; i++) if (c->launches[i].kernel) d->ReleaseKernel(c->launches[i].kernel);
  remote_forget(&d->memory, &c->traffic);
  free(c->launches);
  free(c);
}

// What has changed since the last run.
static cl_int cl_patch(const cl *d, const step *t, launch *l) {
  const cl_code *k = t->k->cl;
  cl_int r = 0;
  bool same = l->any && l->tiles == t->tiles;
  int n = k->p->n_vars, at = cl_first_var(k);
  for (int i = 0; i < n && !r; i++) {
    if (l->any && l->vars[i] == t->vars[i]) continue;
    r = cl_set_long(k, l->kernel, at + i, t->vars[i]);
    l->vars[i] = t->vars[i];
    same = false;
  }
  if (same || r) return r;
  if (k->tiles) r = cl_set_long(k, l->kernel, at + n, 0);
  if (k->tiles && !r) r = cl_set_long(k, l->kernel, at + n + 1, t->tiles);
  if (!cl_sizes(k, t->vars, t->tiles, d->units * PARTS, l->global, l->local)) l->global[0] = 0;
  l->tiles = t->tiles;
  l->any = true;
  return r;
}

// events: as many as kernels, or NULL
static int cl_run(plan *p, cl_command_queue queue, cl_event *events, error *err) {
  cl *d = p->d->state;
  recording *c = p->recorded;
  cl_int r = remote_put(&d->memory, queue, &c->traffic);
  if (r) return cl_failed(d, err, "writing", r);
  for (int i = 0; i < p->stats.kernels; i++) {
    launch *l = &c->launches[i];
    r = cl_patch(d, &p->steps[i], l);
    if (!r && l->global[0])
      r = d->EnqueueNDRangeKernel(queue, l->kernel, 3, NULL, l->global, l->local, 0, NULL, events ? &events[i] : NULL);
    if (r) return cl_failed(d, err, p->steps[i].k->p->name, r);
  }
  r = remote_get(&d->memory, queue, &c->traffic);
  return cl_done(d, "running a plan", r ? r : d->Finish(queue), err);
}

static int cl_replay(plan *p, error *err) { return cl_run(p, ((cl *)p->d->state)->queue, NULL, err); }

// By the device's own clock.
static int cl_replay_timed(plan *p, plan_times *out, error *err) {
  cl *d = p->d->state;
  cl_int r = 0;
  size_t n = (size_t)p->stats.kernels;
  if (!d->timing) d->timing = d->CreateCommandQueue(d->context, d->device, CL_QUEUE_PROFILING_ENABLE, &r);
  if (!d->timing) return cl_failed(d, err, "creating a queue that takes times", r);
  cl_event *events = xcalloc(n + 1, sizeof *events);
  double (*spans)[2] = xcalloc(n + 1, sizeof *spans);
  double start = now_s();
  int bad = cl_run(p, d->timing, events, err);
  double seconds = now_s() - start;
  cl_ulong first = 0;
  for (size_t i = 0; i < n; i++) {
    cl_ulong from = 0, to = 0;
    if (!events[i]) continue;
    if (!bad && !d->GetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_START, sizeof from, &from, NULL) &&
        !d->GetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof to, &to, NULL)) {
      if (!first) first = from;
      spans[i][0] = (double)(from - first) * 1e-9;
      spans[i][1] = (double)(to - first) * 1e-9;
    }
    d->ReleaseEvent(events[i]);
  }
  remote_times(p, spans, seconds, out);
  free(events);
  free(spans);
  return bad;
}

static const runtime opencl_runtime = {.alloc = cl_alloc,
                                       .release = cl_release,
                                       .write = cl_write_to,
                                       .read = cl_read_from,
                                       .copy = cl_copy,
                                       .fill = cl_fill,
                                       .room = cl_room,
                                       .take = cl_take,
                                       .link = cl_link_kernels,
                                       .lay_out = cl_lay_out,
                                       .record = cl_record,
                                       .forget = cl_forget,
                                       .replay = cl_replay,
                                       .replay_timed = cl_replay_timed};

// ---- the device -----------------------------------------------------------------------------------------------------

static void cl_stop(device *d) { cl_close(d->state); }

// Of a processor, each work-item is a core's worth of tiles with vectors of its own; elsewhere work-groups share
// memory. What is chosen are figures of the target.
static int choose_target(const cl *d, target *t, error *err) {
  const char *work = env_str(ENV_CL_WORK);
  bool tiles = *work ? !strcmp(work, "tiles") : d->is_cpu;
  if (*work && !tiles && strcmp(work, "groups"))
    return error_set(err, "CL_WORK=%s is no way to share out work (known: groups, tiles)", work);
  cl_target(d, t);
  t->cache_bytes = (int64_t)d->cache_bytes;
  if (!tiles) return 0;
  t->has_local = false;
  t->rounded_most = t->row_items = t->row_bytes = t->token_tile = 0;
  t->vector_bytes = d->wide && d->float_lanes > 4 ? 4 * (int)min_i64(d->float_lanes, 16) : 16;
  return 0;
}

int cl_start(device *d, error *err) {
  cl *c = NULL;
  if (cl_open(&c, err)) return -1;
  d->state = c;
  c->memory.d = &driver;
  c->memory.state = c;
  d->stop = cl_stop;
  if (choose_target(c, &d->target, err)) return -1;
  d->run = &opencl_runtime;
  d->compile = cl_compile_kernel;
  d->show = cl_show;
  snprintf(d->key, sizeof d->key, "opencl %s %s %s %d %d,%d", c->name, c->driver,
           d->target.has_local ? "groups" : "tiles", d->target.vector_bytes, d->target.max_group,
           d->target.max_local_bytes);
  d->cache = cache_open(NULL, CODE_VERSION);
  return 0;
}
