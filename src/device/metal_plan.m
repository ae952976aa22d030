// Models on Apple's GPUs (DEV=METAL): memory and plans. See metal.h and remote.h.
//
// A Mac's processor and GPU share memory: a buffer's contents are addresses of this process, and weights in a mapped
// file are used in place. A plan becomes an indirect command buffer: one command per kernel, with barriers between
// commands that depend on each other (remote_steps.h). A run encodes what has changed and executes everything in one
// command buffer. If times of kernels are wanted, each kernel gets its own command buffer, and so its own encoder.
#include "device/metal_impl.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/env.h"
#include "base/plain.h"
#include "device/cache.h"
#include "device/code_version.h"
#include "render/metal.h"

enum { MOST_COMMANDS = 16384 /* of an indirect command buffer */ };

static uint64_t page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

// A buffer, and an offset in it: what `remote` calls a piece of memory.
typedef struct metal_piece { id<MTLBuffer> buffer; uint64_t skip; } metal_piece;

// ---- memory ---------------------------------------------------------------------------------------------------------

static metal_piece *piece_of(id<MTLBuffer> buffer, uint64_t skip) {
  metal_piece *p = xcalloc(1, sizeof *p);
  p->buffer = buffer;
  p->skip = skip;
  return p;
}

static unsigned char *metal_address(const void *memory) {
  const metal_piece *p = memory;
  return (unsigned char *)p->buffer.contents + p->skip;
}

// Zeroed memory.
static void *metal_make(void *state, uint64_t size, enum remote_use use, error *err) {
  metal *m = state;
  char what[64];
  (void)use;
  plain_snprintf(what, sizeof what, "%.2f GiB of memory", (double)size / 0x1p30);
  if (size > m->gpu.maxBufferLength) {
    error_set(err,
              "Metal: %s gives at most %.2f GiB in one piece, and %.2f GiB are needed; a smaller context (-c) or "
              "chunk (-ub) needs less",
              m->name, (double)m->gpu.maxBufferLength / 0x1p30, (double)size / 0x1p30);
    return NULL;
  }
  @autoreleasepool {
    id<MTLBuffer> b = [m->gpu newBufferWithLength:size options:MTLResourceStorageModeShared];
    if (b) return piece_of(b, 0);
  }
  metal_failed(m, err, what, nil);
  return NULL;
}

// A buffer over the pages around these bytes of this process.
static void *metal_wrap(void *state, const void *from, uint64_t size, error *err) {
  metal *m = state;
  (void)err;
  uint64_t page = page_bytes(), at = (uint64_t)(uintptr_t)from, first = at / page * page;
  if (at % METAL_ALIGNED) return NULL;
  @autoreleasepool {
    id<MTLBuffer> there = [m->gpu newBufferWithBytesNoCopy:(void *)(uintptr_t)first
                                                    length:round_up(at + size - first, page)
                                                   options:MTLResourceStorageModeShared
                                               deallocator:nil];
    return there ? piece_of(there, at - first) : NULL;
  }
}

static void metal_drop(void *state, void *memory) {
  metal_piece *p = memory;
  (void)state;
  @autoreleasepool { p->buffer = nil; }
  free(p);
}

// Nothing runs while these are called: a run waits for its end.
static int metal_put(void *state, void *to, uint64_t at, const void *from, uint64_t n, error *err) {
  (void)state; (void)err;
  memcpy(metal_address(to) + at, from, n);
  return 0;
}
static int metal_get(void *state, void *to, void *from, uint64_t at, uint64_t n, error *err) {
  (void)state; (void)err;
  memcpy(to, metal_address(from) + at, n);
  return 0;
}
static int metal_copy(void *state, void *to, uint64_t to_at, void *from, uint64_t from_at, uint64_t n, error *err) {
  (void)state; (void)err;
  memmove(metal_address(to) + to_at, metal_address(from) + from_at, n);
  return 0;
}
static int metal_fill(void *state, void *to, uint64_t at, unsigned char value, uint64_t n, error *err) {
  (void)state; (void)err;
  memset(metal_address(to) + at, value, n);
  return 0;
}

static uint64_t metal_room(void *state) {
  const metal *m = state;
  uint64_t most = m->gpu.recommendedMaxWorkingSetSize, used = m->gpu.currentAllocatedSize;
  return most > used ? most - used : 0;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// The cache stores the source: the system caches compiled code itself.
static int metal_compile_kernel(device *dev, device_kernel *k, error *err) {
  str source = {0};
  int r = render_text(render_metal, k->p, NULL, &source, err);
  if (!r && debug_level() >= 4) fprintf(stderr, "--- source of %s\n%s\n", k->p->name, str_c(&source));
  metal_code *code = r ? NULL : metal_make_code(dev->state, k->p, k->p->n_bufs, str_c(&source), err);
  if (code) k->remote = &code->base;
  if (code && dev->cache) {
    k->packed = (bytes){xmalloc(source.n + 1), source.n + 1};
    memcpy(k->packed.at, str_c(&source), source.n + 1);
  }
  str_free(&source);
  return code ? 0 : -1;
}

static int metal_show(device *d, const program *p, str *source, str *assembly, error *err) {
  (void)d; (void)assembly;
  return render_text(render_metal, p, NULL, source, err);
}

static int metal_load_source(void *state, device_kernel *k, int n_bufs, error *err) {
  if (!k->packed.n || k->packed.at[k->packed.n - 1]) return error_set(err, "Metal: %s is no source", k->p->name);
  metal_code *code = metal_make_code(state, k->p, n_bufs, (const char *)k->packed.at, err);
  k->remote = code ? &code->base : NULL;
  return code ? 0 : -1;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

typedef struct metal_recording {
  id<MTLIndirectCommandBuffer> commands;
  id<MTLBuffer> vars;
  NSMutableSet<id<MTLResource>> *used;
  NSMutableSet<id<MTLComputePipelineState>> *pipelines;
} metal_recording;

static const metal_code *command_code(const remote_command *c) { return (const metal_code *)c->s->k->remote; }
static id<MTLBuffer> range_buffer(const remote_range *r) { return ((const metal_piece *)r->memory)->buffer; }
static NSUInteger offset_of(const remote_range *r) { return ((const metal_piece *)r->memory)->skip + r->from; }

static int make_commands(metal *m, remote_plan *r, metal_recording *own, error *err) {
  if (r->steps.n > MOST_COMMANDS)
    return error_set(err, "Metal: %d kernels are too many for one plan (at most %d)", r->steps.n, MOST_COMMANDS);
  MTLIndirectCommandBufferDescriptor *d = [MTLIndirectCommandBufferDescriptor new];
  d.commandTypes = MTLIndirectCommandTypeConcurrentDispatch;
  d.inheritBuffers = NO;
  d.inheritPipelineState = NO;
  d.maxKernelBufferBindCount = METAL_BUFFERS;
  own->commands = [m->gpu newIndirectCommandBufferWithDescriptor:d
                                                 maxCommandCount:(NSUInteger)r->steps.n
                                                         options:MTLResourceStorageModeShared];
  own->vars = [m->gpu newBufferWithLength:r->steps.vars_bytes + REMOTE_VARS_ALIGNED
                                  options:MTLResourceStorageModeShared];
  if (!own->commands || !own->vars) return metal_failed(m, err, "making an indirect command buffer", nil);
  [own->used addObject:own->vars];
  r->vars = own->vars.contents;
  return 0;
}

static int metal_record(void *state, remote_plan *r, error *err) {
  metal_recording *own = xcalloc(1, sizeof *own);
  r->own = own;
  @autoreleasepool {
    own->used = [NSMutableSet new];
    own->pipelines = [NSMutableSet new];
    for (int i = 0; i < r->steps.n; i++) {
      const remote_command *c = &r->steps.at[i];
      for (int j = 0; j < c->n_ranges; j++) [own->used addObject:range_buffer(&c->ranges[j])];
      [own->pipelines addObject:command_code(c)->pipeline];
    }
    return r->steps.n ? make_commands(state, r, own, err) : 0;
  }
}

static void metal_forget(void *state, remote_plan *r) {
  metal_recording *own = r->own;
  (void)state;
  if (!own) return;
  @autoreleasepool {
    own->commands = nil;
    own->vars = nil;
    own->used = nil;
    own->pipelines = nil;
  }
  free(own);
}

static MTLSize size_of(const unsigned *n) { return MTLSizeMake(n[0], n[1], n[2]); }

static void encode_command(const metal_recording *own, remote_command *c, int i) {
  const metal_code *code = command_code(c);
  id<MTLIndirectComputeCommand> to = [own->commands indirectComputeCommandAtIndex:(NSUInteger)i];
  [to reset];
  c->stale = false;
  if (c->empty) return;
  [to setComputePipelineState:code->pipeline];
  for (int j = 0; j < c->n_ranges; j++)
    [to setKernelBuffer:range_buffer(&c->ranges[j]) offset:offset_of(&c->ranges[j]) atIndex:(NSUInteger)j];
  if (c->s->k->p->n_vars)
    [to setKernelBuffer:own->vars offset:c->vars_at atIndex:(NSUInteger)metal_vars_index(code->base.n_bufs)];
  if (c->barrier) [to setBarrier];
  [to concurrentDispatchThreadgroups:size_of(c->groups) threadsPerThreadgroup:size_of(c->items)];
}

static int finish_commands(const metal *m, id<MTLCommandBuffer> b, const char *what, error *err) {
  [b commit];
  [b waitUntilCompleted];
  return b.status == MTLCommandBufferStatusError ? metal_failed(m, err, what, b.error) : 0;
}

static int execute_all(metal *m, remote_plan *r, error *err) {
  const metal_recording *own = r->own;
  for (int i = 0; i < r->steps.n; i++) if (r->steps.at[i].stale) encode_command(own, &r->steps.at[i], i);
  id<MTLCommandBuffer> b = [m->queue commandBuffer];
  id<MTLComputeCommandEncoder> e = [b computeCommandEncoder];
  for (id<MTLResource> one in own->used) [e useResource:one usage:MTLResourceUsageRead | MTLResourceUsageWrite];
  if (m->names_pipelines)
    for (id<MTLComputePipelineState> one in own->pipelines) {
      [e setComputePipelineState:one];
      [e dispatchThreadgroups:MTLSizeMake(0, 0, 0) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    }
  [e executeCommandsInBuffer:own->commands withRange:NSMakeRange(0, (NSUInteger)r->steps.n)];
  [e endEncoding];
  return finish_commands(m, b, "running a plan", err);
}

// One command buffer for each command with work, in order.
static int execute_each(metal *m, remote_plan *r, double (*spans)[2], error *err) {
  const metal_recording *own = r->own;
  NSMutableArray<id<MTLCommandBuffer>> *all = [NSMutableArray new];
  for (int i = 0; i < r->steps.n; i++) {
    const remote_command *c = &r->steps.at[i];
    const metal_code *code = command_code(c);
    id<MTLCommandBuffer> b = [m->queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [b computeCommandEncoder];
    [e setComputePipelineState:code->pipeline];
    for (int j = 0; j < c->n_ranges; j++)
      [e setBuffer:range_buffer(&c->ranges[j]) offset:offset_of(&c->ranges[j]) atIndex:(NSUInteger)j];
    if (c->s->k->p->n_vars)
      [e setBuffer:own->vars offset:c->vars_at atIndex:(NSUInteger)metal_vars_index(code->base.n_bufs)];
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

// With the GPU's clock, if spans are wanted.
static int metal_run(void *state, remote_plan *r, double (*spans)[2], error *err) {
  if (!r->steps.n) return 0;
  @autoreleasepool { return spans ? execute_each(state, r, spans, err) : execute_all(state, r, err); }
}

static const remote_driver metal_driver = {.name = "Metal",
                                           .aligned = METAL_ALIGNED,
                                           .make = metal_make,
                                           .wrap = metal_wrap,
                                           .drop = metal_drop,
                                           .address = metal_address,
                                           .put = metal_put,
                                           .get = metal_get,
                                           .copy = metal_copy,
                                           .fill = metal_fill,
                                           .room = metal_room,
                                           .load = metal_load_source,
                                           .record = metal_record,
                                           .forget = metal_forget,
                                           .run = metal_run};

// ---- the device -----------------------------------------------------------------------------------------------------

static void metal_stop(device *d) { metal_close(d->state); }

int metal_start(device *d, error *err) {
  metal *m = NULL;
  if (metal_open(&m, err)) return -1;
  d->state = m;
  remote_start(d, &m->memory, &metal_driver, m);
  d->stop = metal_stop;
  d->target = render_find("metal")->target;
  d->target.max_local_bytes = (int)min_i64((int64_t)m->gpu.maxThreadgroupMemoryLength, d->target.max_local_bytes);
  d->compile = metal_compile_kernel;
  d->show = metal_show;
  snprintf(d->key, sizeof d->key, "metal %d,%d", d->target.max_group, d->target.max_local_bytes);
  d->cache = cache_open(NULL, CODE_VERSION);
  return 0;
}
