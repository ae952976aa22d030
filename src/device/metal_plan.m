// Models on Apple's GPUs (DEV=METAL): memory and plans. See metal.h.
//
// Memory is the Mac's, which its processor and its GPU share: a buffer's contents are addresses of this process, and
// weights in a file that is mapped are used where they lie. A plan becomes an indirect command buffer: a command for
// each kernel, with barriers between those that depend on each other (metal_steps.h). A replay brings what comes from
// elsewhere in the process, writes the variables, encodes what has changed, and executes all in one command buffer.
// Where each kernel's time is asked for, each gets a command buffer, and so an encoder, of its own.
#include "device/metal_impl.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/env.h"
#include "device/cache.h"
#include "device/code_version.h"
#include "device/metal_steps.h"
#include "render/metal.h"

static uint64_t page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

// A buffer, and how far behind its beginning somebody's bytes are. What `remote` calls a piece of memory.
typedef struct metal_piece { id<MTLBuffer> buffer; uint64_t skip; } metal_piece;

// ---- memory ---------------------------------------------------------------------------------------------------------

static metal_piece *piece_of(id<MTLBuffer> buffer, uint64_t skip) {
  metal_piece *p = xcalloc(1, sizeof *p);
  p->buffer = buffer;
  p->skip = skip;
  return p;
}

// Bytes that are zeros.
static void *metal_memory(void *state, uint64_t size, error *err) {
  metal *m = state;
  char what[64];
  snprintf(what, sizeof what, "%.2f GiB of memory", (double)size / 0x1p30);
  if (size > m->gpu.maxBufferLength) {
    error_set(err,
              "Metal: %s gives at most %.2f GiB in one piece, and %.2f GiB are needed; a smaller context (-c) or "
              "chunk (-ub) needs less",
              m->name, (double)m->gpu.maxBufferLength / 0x1p30, (double)size / 0x1p30);
    return NULL;
  }
  id<MTLBuffer> b = [m->gpu newBufferWithLength:size options:MTLResourceStorageModeShared];
  if (b) return piece_of(b, 0);
  metal_failed(m, err, what, nil);
  return NULL;
}

// Bytes of the process's that kernels only read: the pages around them, or a copy.
static void *metal_bring(void *state, const void *from, uint64_t size, error *err) {
  metal *m = state;
  uint64_t page = page_bytes(), at = (uint64_t)(uintptr_t)from, first = at / page * page;
  if (at % METAL_ALIGNED == 0) {
    id<MTLBuffer> there = [m->gpu newBufferWithBytesNoCopy:(void *)(uintptr_t)first
                                                    length:round_up(at + size - first, page)
                                                   options:MTLResourceStorageModeShared
                                               deallocator:nil];
    if (there) return piece_of(there, at - first);
  }
  metal_piece *p = metal_memory(state, size + REMOTE_SLACK, err);
  if (p) memcpy(p->buffer.contents, from, size);
  return p;
}

static void metal_drop(void *state, void *memory) {
  metal_piece *p = memory;
  (void)state;
  p->buffer = nil;
  free(p);
}

// Nothing runs while these are called: a replay waits for its end.
static int metal_put(void *state, void *queue, void *memory, const void *from, uint64_t n) {
  (void)state; (void)queue;
  memcpy(((metal_piece *)memory)->buffer.contents, from, n);
  return 0;
}
static int metal_get(void *state, void *queue, void *to, void *memory, uint64_t n) {
  (void)state; (void)queue;
  memcpy(to, ((metal_piece *)memory)->buffer.contents, n);
  return 0;
}

static const remote_driver metal_driver = {"Metal", metal_memory, metal_bring, metal_drop, metal_put, metal_get};

static void *metal_alloc(device *dev, uint64_t bytes_wanted, enum pages pages, error *err) {
  metal *m = dev->state;
  uint64_t size = round_up(bytes_wanted + REMOTE_SLACK, page_bytes());
  (void)pages;
  @autoreleasepool {
    metal_piece *p = metal_memory(m, size, err);
    if (!p) return NULL;
    unsigned char *at = p->buffer.contents;
    vec_push(&m->memory.areas, ((remote_area){at, size, p}));
    return at;
  }
}

static void metal_release(device *dev, void *at, uint64_t size) {
  metal *m = dev->state;
  remote_area a;
  (void)size;
  @autoreleasepool {
    if (remote_take(&m->memory, at, &a)) metal_drop(m, a.memory);
  }
}

static void *metal_must_lie(device *dev, const void *at, size_t n) {
  size_t offset;
  remote_must_lie(&((metal *)dev->state)->memory, at, n, &offset);
  return (void *)(uintptr_t)at;
}

static int metal_write_to(device *dev, void *to, const void *from, size_t n, error *err) {
  (void)err;
  if (n) memcpy(metal_must_lie(dev, to, n), from, n);
  return 0;
}
static int metal_read_from(device *dev, void *to, const void *from, size_t n, error *err) {
  (void)err;
  if (n) memcpy(to, metal_must_lie(dev, from, n), n);
  return 0;
}
static int metal_copy(device *dev, void *to, const void *from, size_t n, error *err) {
  (void)err;
  if (n) memmove(metal_must_lie(dev, to, n), metal_must_lie(dev, from, n), n);
  return 0;
}
static int metal_fill(device *dev, void *to, unsigned char value, size_t n, error *err) {
  (void)err;
  if (n) memset(metal_must_lie(dev, to, n), value, n);
  return 0;
}

static uint64_t metal_room(const device *dev) {
  const metal *m = dev->state;
  uint64_t most = m->gpu.recommendedMaxWorkingSetSize, used = m->gpu.currentAllocatedSize;
  return most > used ? most - used : 0;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// What is kept is the source: the system has a cache of what it makes of one.
static int metal_compile_kernel(device *dev, device_kernel *k, error *err) {
  str source = {0};
  int r = render_text(render_metal, k->p, NULL, &source, err);
  if (!r && debug_level() >= 4) fprintf(stderr, "--- source of %s\n%s\n", k->p->name, str_c(&source));
  if (!r && !(k->metal = metal_make_code(dev->state, k->p, k->p->n_bufs, str_c(&source), err))) r = -1;
  if (!r && dev->cache) {
    k->packed = (bytes){xmalloc(source.n + 1), source.n + 1};
    memcpy(k->packed.at, str_c(&source), source.n + 1);
  }
  str_free(&source);
  return r;
}

static int metal_show(device *d, const program *p, str *source, str *assembly, error *err) {
  (void)d; (void)assembly;
  return render_text(render_metal, p, NULL, source, err);
}

static bool metal_take(device *dev, device_kernel *k, int n_bufs) {
  if (!k->packed.n || k->packed.at[k->packed.n - 1]) return false;
  k->metal = metal_make_code(dev->state, k->p, n_bufs, (const char *)k->packed.at, NULL);
  return k->metal;
}

static int metal_link(device *dev, device_kernel *kernels, int n, code_image **image, error *err) {
  (void)dev; (void)image; (void)err;
  for (int i = 0; i < n; i++) bytes_free(&kernels[i].packed);
  return 0;
}

static int finish_commands(const metal *m, id<MTLCommandBuffer> b, const char *what, error *err) {
  [b commit];
  [b waitUntilCompleted];
  return b.status == MTLCommandBufferStatusError ? metal_failed(m, err, what, b.error) : 0;
}

// All tiles at once, with the last of them.
static int metal_lay_out(plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes, int64_t lo,
                         int64_t hi, error *err) {
  metal *m = p->d->state;
  if (!k)
    return metal_write_to(p->d, (unsigned char *)stream + lo, (const unsigned char *)raw + lo, (size_t)(hi - lo), err);
  int64_t tiles = program_eval(k->p, k->p->tiles, NULL);
  if (hi < tiles) return 0;
  @autoreleasepool {
    size_t offset;
    const metal_piece *to = remote_must_lie(&m->memory, stream, 1, &offset)->memory;
    metal_piece *from = metal_bring(m, raw, raw_bytes, err);
    if (!from) return -1;
    id<MTLCommandBuffer> b = [m->queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [b computeCommandEncoder];
    [e setComputePipelineState:k->metal->pipeline];
    [e setBuffer:to->buffer offset:offset atIndex:0];
    [e setBuffer:from->buffer offset:from->skip atIndex:1];
    [e dispatchThreadgroups:MTLSizeMake((NSUInteger)tiles, 1, 1)
      threadsPerThreadgroup:MTLSizeMake((NSUInteger)program_eval(k->p, k->p->local[0], NULL), 1, 1)];
    [e endEncoding];
    int r = finish_commands(m, b, "laying out a weight", err);
    metal_drop(m, from);
    return r;
  }
}

// ---- plans ----------------------------------------------------------------------------------------------------------

typedef struct metal_argument { const metal_piece *piece; uint64_t offset; } metal_argument;
typedef struct metal_recording {
  remote_traffic traffic;
  metal_steps steps;
  metal_argument **arguments;            // of each step
  arena *mem;
  id<MTLIndirectCommandBuffer> commands;
  id<MTLBuffer> vars;
  NSMutableSet<id<MTLResource>> *used;
  NSMutableSet<id<MTLComputePipelineState>> *pipelines;
} metal_recording;

static int metal_record_step(metal *m, metal_recording *r, int i, const step *t, error *err) {
  metal_command *c = &r->steps.at[i];
  const plan_argument *what = t->args;
  metal_range *ranges = ARENA_ARRAY(r->mem, metal_range, t->n_bufs + 1);
  metal_argument *args = r->arguments[i] = ARENA_ARRAY(r->mem, metal_argument, t->n_bufs + 1);
  for (int j = 0; j < t->k->metal->n_bufs; j++) {
    size_t offset;
    const metal_piece *p = remote_place(&m->memory, &r->traffic, t->bufs[j], &what[j], &offset, err);
    if (!p) return -1;
    args[j] = (metal_argument){p, p->skip + offset};
    if (args[j].offset % METAL_ALIGNED)
      die("Metal: %s: buffer %d begins at %llu, which is no multiple of %d", t->k->p->name, j,
          (unsigned long long)args[j].offset, METAL_ALIGNED);
    ranges[j] = (metal_range){p, args[j].offset, args[j].offset + what[j].size, what[j].written};
    [r->used addObject:p->buffer];
  }
  c->ranges = ranges;
  c->n_ranges = t->k->metal->n_bufs;
  [r->pipelines addObject:t->k->metal->pipeline];
  return 0;
}

static int make_commands(metal *m, metal_recording *r, error *err) {
  if (r->steps.n > METAL_COMMANDS)
    return error_set(err, "Metal: %d kernels are too many for one plan (at most %d)", r->steps.n, METAL_COMMANDS);
  MTLIndirectCommandBufferDescriptor *d = [MTLIndirectCommandBufferDescriptor new];
  d.commandTypes = MTLIndirectCommandTypeConcurrentDispatch;
  d.inheritBuffers = NO;
  d.inheritPipelineState = NO;
  d.maxKernelBufferBindCount = METAL_BUFFERS;
  r->commands = [m->gpu newIndirectCommandBufferWithDescriptor:d
                                               maxCommandCount:(NSUInteger)r->steps.n
                                                       options:MTLResourceStorageModeShared];
  r->vars = [m->gpu newBufferWithLength:r->steps.vars_bytes + METAL_VARS_ALIGNED options:MTLResourceStorageModeShared];
  if (!r->commands || !r->vars) return metal_failed(m, err, "making an indirect command buffer", nil);
  [r->used addObject:r->vars];
  return 0;
}

static int metal_record(plan *p, error *err) {
  const int n = p->stats.kernels;
  metal *m = p->d->state;
  metal_recording *r = xcalloc(1, sizeof *r);
  p->recorded = r;
  r->mem = arena_new();
  r->arguments = ARENA_ARRAY(r->mem, metal_argument *, n + 1);
  metal_steps_make(&r->steps, r->mem, p->steps, n);
  @autoreleasepool {
    r->used = [NSMutableSet new];
    r->pipelines = [NSMutableSet new];
    for (int i = 0; i < n; i++)
      if (metal_record_step(m, r, i, &p->steps[i], err)) return -1;
    return n ? make_commands(m, r, err) : 0;
  }
}

static void metal_forget(plan *p) {
  metal *m = p->d->state;
  metal_recording *r = p->recorded;
  @autoreleasepool {
    r->commands = nil;
    r->vars = nil;
    r->used = nil;
    r->pipelines = nil;
    remote_forget(&m->memory, &r->traffic);
  }
  arena_free(r->mem);
  free(r);
}

static MTLSize size_of(const unsigned *n) { return MTLSizeMake(n[0], n[1], n[2]); }

static void encode_command(metal_recording *r, int i) {
  metal_command *c = &r->steps.at[i];
  const metal_code *code = c->s->k->metal;
  id<MTLIndirectComputeCommand> to = [r->commands indirectComputeCommandAtIndex:(NSUInteger)i];
  [to reset];
  c->stale = false;
  if (c->empty) return;
  [to setComputePipelineState:code->pipeline];
  for (int j = 0; j < code->n_bufs; j++)
    [to setKernelBuffer:r->arguments[i][j].piece->buffer offset:r->arguments[i][j].offset atIndex:(NSUInteger)j];
  if (c->s->k->p->n_vars)
    [to setKernelBuffer:r->vars offset:c->vars_at atIndex:(NSUInteger)metal_vars_index(code->n_bufs)];
  if (c->barrier) [to setBarrier];
  [to concurrentDispatchThreadgroups:size_of(c->groups) threadsPerThreadgroup:size_of(c->items)];
}

static int execute_all(metal *m, metal_recording *r, error *err) {
  id<MTLCommandBuffer> b = [m->queue commandBuffer];
  id<MTLComputeCommandEncoder> e = [b computeCommandEncoder];
  for (id<MTLResource> one in r->used) [e useResource:one usage:MTLResourceUsageRead | MTLResourceUsageWrite];
  if (m->names_pipelines)
    for (id<MTLComputePipelineState> one in r->pipelines) {
      [e setComputePipelineState:one];
      [e dispatchThreadgroups:MTLSizeMake(0, 0, 0) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    }
  [e executeCommandsInBuffer:r->commands withRange:NSMakeRange(0, (NSUInteger)r->steps.n)];
  [e endEncoding];
  return finish_commands(m, b, "running a plan", err);
}

// One command buffer for each that does something, in order.
static int execute_each(metal *m, metal_recording *r, double (*spans)[2], error *err) {
  NSMutableArray<id<MTLCommandBuffer>> *all = [NSMutableArray new];
  for (int i = 0; i < r->steps.n; i++) {
    const metal_command *c = &r->steps.at[i];
    const metal_code *code = c->s->k->metal;
    id<MTLCommandBuffer> b = [m->queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [b computeCommandEncoder];
    [e setComputePipelineState:code->pipeline];
    for (int j = 0; j < code->n_bufs; j++)
      [e setBuffer:r->arguments[i][j].piece->buffer offset:r->arguments[i][j].offset atIndex:(NSUInteger)j];
    if (c->s->k->p->n_vars)
      [e setBuffer:r->vars offset:c->vars_at atIndex:(NSUInteger)metal_vars_index(code->n_bufs)];
    if (!c->empty) [e dispatchThreadgroups:size_of(c->groups) threadsPerThreadgroup:size_of(c->items)];
    [e endEncoding];
    [b commit];
    [all addObject:b];
  }
  int bad = 0;
  double first = 0;
  for (int i = 0; i < r->steps.n; i++) {
    id<MTLCommandBuffer> b = all[(NSUInteger)i];
    [b waitUntilCompleted];
    if (b.status == MTLCommandBufferStatusError && !bad)
      bad = metal_failed(m, err, r->steps.at[i].s->k->p->name, b.error);
    if (!i) first = b.GPUStartTime;
    spans[i][0] = b.GPUStartTime - first;
    spans[i][1] = b.GPUEndTime - first;
  }
  return bad;
}

// spans: of each kernel, or NULL
static int metal_run_plan(plan *p, double (*spans)[2], error *err) {
  metal *m = p->d->state;
  metal_recording *r = p->recorded;
  if (!r->steps.n) return 0;
  @autoreleasepool {
    remote_put(&m->memory, NULL, &r->traffic);
    metal_steps_update(&r->steps, r->vars.contents);
    for (int i = 0; i < r->steps.n && !spans; i++) if (r->steps.at[i].stale) encode_command(r, i);
    if (spans ? execute_each(m, r, spans, err) : execute_all(m, r, err)) return -1;
    remote_get(&m->memory, NULL, &r->traffic);
  }
  return 0;
}

static int metal_replay(plan *p, error *err) { return metal_run_plan(p, NULL, err); }

// By the GPU's own clock.
static int metal_replay_timed(plan *p, plan_times *out, error *err) {
  double (*spans)[2] = xcalloc((size_t)p->stats.kernels + 1, sizeof *spans), start = now_s();
  int bad = metal_run_plan(p, spans, err);
  remote_times(p, spans, now_s() - start, out);
  free(spans);
  return bad;
}

static const runtime metal_runtime = {.alloc = metal_alloc,
                                      .release = metal_release,
                                      .write = metal_write_to,
                                      .read = metal_read_from,
                                      .copy = metal_copy,
                                      .fill = metal_fill,
                                      .room = metal_room,
                                      .take = metal_take,
                                      .link = metal_link,
                                      .lay_out = metal_lay_out,
                                      .record = metal_record,
                                      .forget = metal_forget,
                                      .replay = metal_replay,
                                      .replay_timed = metal_replay_timed};

// ---- the device -----------------------------------------------------------------------------------------------------

static void metal_stop(device *d) { metal_close(d->state); }

int metal_start(device *d, error *err) {
  metal *m = NULL;
  if (metal_open(&m, err)) return -1;
  d->state = m;
  m->memory.d = &metal_driver;
  m->memory.state = m;
  d->stop = metal_stop;
  d->target = render_find("metal")->target;
  d->target.max_local_bytes = (int)min_i64((int64_t)m->gpu.maxThreadgroupMemoryLength, d->target.max_local_bytes);
  d->run = &metal_runtime;
  d->compile = metal_compile_kernel;
  d->show = metal_show;
  snprintf(d->key, sizeof d->key, "metal %d,%d", d->target.max_group, d->target.max_local_bytes);
  d->cache = cache_open(NULL, CODE_VERSION);
  return 0;
}
