// The Metal GPU, and kernels for it: see metal.h. Any thread may call; each call has its own autorelease pool.
#include "device/metal_impl.h"
#include <stdlib.h>
#include <string.h>
#include "render/metal.h"

enum { APPLE7 = 1007 /* M1 */, APPLE9 = 1009 /* M3 */ };        // families, numbered as in MTLGPUFamily

int metal_failed(const metal *m, error *err, const char *what, NSError *why) {
  const char *text = why ? why.localizedDescription.UTF8String : NULL;
  return error_set(err, "Metal: %s: %s: %s", *m->name ? m->name : "no GPU yet", what, text ? text : "it failed");
}

static int choose_metal_gpu(metal *m, error *err) {
  m->gpu = MTLCreateSystemDefaultDevice();
  if (!m->gpu) return error_set(err, "Metal finds no GPU: DEV=METAL needs a Mac with one of Apple's own");
  snprintf(m->name, sizeof m->name, "%s", m->gpu.name.UTF8String);
  if (![m->gpu supportsFamily:(MTLGPUFamily)APPLE7] || !m->gpu.hasUnifiedMemory)
    return error_set(err, "Metal: %s is no GPU of Apple's own (M1 or later), which DEV=METAL needs", m->name);
  m->names_pipelines = ![m->gpu supportsFamily:(MTLGPUFamily)APPLE9];
  return 0;
}

int metal_open(metal **out, error *err) {
  metal *m = xcalloc(1, sizeof *m);
  *out = NULL;
  @autoreleasepool {
    if (choose_metal_gpu(m, err)) { metal_close(m); return -1; }
    m->queue = [m->gpu newCommandQueue];
    if (!m->queue) { metal_failed(m, err, "making a queue", nil); metal_close(m); return -1; }
  }
  *out = m;
  return 0;
}

void metal_close(metal *m) {
  if (!m) return;
  m->queue = nil;
  m->gpu = nil;
  remote_free(&m->memory);
  free(m);
}

int metal_list(str *out, error *err) {
  metal *m = xcalloc(1, sizeof *m);
  int r;
  @autoreleasepool {
    r = choose_metal_gpu(m, err);
    if (!r)
      str_addf(out, "%s, %.1f GiB of memory that it may use", m->name,
               (double)m->gpu.recommendedMaxWorkingSetSize / 0x1p30);
  }
  metal_close(m);
  return r;
}

// Exact semantics: no contraction, reordering or approximation.
static MTLCompileOptions *exact_options(void) {
  MTLCompileOptions *o = [MTLCompileOptions new];
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
  o.fastMathEnabled = NO;
#pragma clang diagnostic pop
  return o;
}

static unsigned threads_of(const program *p) {
  int64_t n = 1;
  for (int i = 0; i < 3; i++) n *= p->local[i] ? program_eval(p, p->local[i], NULL) : 1;
  return (unsigned)n;
}

static id<MTLComputePipelineState> make_pipeline(metal *m, const program *p, const char *source, error *err) {
  NSError *why = nil;
  NSString *text = [NSString stringWithUTF8String:source], *name = [NSString stringWithUTF8String:p->name];
  id<MTLLibrary> library = [m->gpu newLibraryWithSource:text options:exact_options() error:&why];
  if (!library) { metal_failed(m, err, p->name, why); return nil; }
  id<MTLFunction> function = [library newFunctionWithName:name];
  if (!function) { metal_failed(m, err, p->name, nil); return nil; }
  MTLComputePipelineDescriptor *d = [MTLComputePipelineDescriptor new];
  unsigned items = threads_of(p);
  d.computeFunction = function;
  d.supportIndirectCommandBuffers = YES;
  d.maxTotalThreadsPerThreadgroup = items;
  d.threadGroupSizeIsMultipleOfThreadExecutionWidth = items % METAL_STEP == 0;
  id<MTLComputePipelineState> made =
    [m->gpu newComputePipelineStateWithDescriptor:d options:MTLPipelineOptionNone reflection:nil error:&why];
  if (!made) { metal_failed(m, err, p->name, why); return nil; }
  if (made.threadExecutionWidth == METAL_STEP && made.maxTotalThreadsPerThreadgroup >= items) return made;
  error_set(err, "Metal: %s: %s: %u threads are asked for, %d in step, and it takes %u and %u", m->name, p->name, items,
            METAL_STEP, (unsigned)made.maxTotalThreadsPerThreadgroup, (unsigned)made.threadExecutionWidth);
  return nil;
}

static void unload_pipeline(remote_code *k) { metal_code_free((metal_code *)k); }

metal_code *metal_make_code(metal *m, const program *p, int n_bufs, const char *source, error *err) {
  metal_code *k = xcalloc(1, sizeof *k);
  k->base = (remote_code){unload_pipeline, n_bufs};
  k->m = m;
  @autoreleasepool { k->pipeline = make_pipeline(m, p, source, err); }
  if (k->pipeline) return k;
  metal_code_free(k);
  return NULL;
}

void metal_code_free(metal_code *k) {
  if (!k) return;
  k->pipeline = nil;
  free(k);
}
