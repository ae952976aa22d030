// Apple's Foundation and Metal on this processor, as far as src/device/metal*.m uses them, for tests: whoever links
// this with those two files has a DEV=METAL that runs. Kernels are compiled and run by run.c. x86-64 only.
//
// It checks what the real system would not say, or would only crash at: objects that are used after their end or never
// released, autoreleased ones without a pool, buffers that are not page by page or not named as used, offsets, sizes
// of threadgroups, kernels compiled with fast math. Commands of an indirect command buffer between two barriers run
// the last one first, so that a barrier that is missing is a wrong answer. As on an M1, a command finds no pipeline
// that its encoder was not given.
//
// FAKE_METAL_LOG names a file that gets a line for each fault and each command buffer; FAKE_METAL_FAIL=<n> makes the
// n-th command buffer, and all that follow, end in an error.
//
// All objects are one struct, messages are found by the names of their receivers' kinds and selectors.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/str.h"
#include "fake_metal/run.h"

enum { PAGE = 4096, MOST_BINDINGS = 31, APPLE7 = 1007, MAX_THREADS = 1024 };

typedef struct selector { const char *name, *types; } selector;
typedef struct size3 { unsigned long n[3]; } size3;
typedef struct range { unsigned long from, n; } range;
typedef struct thing thing;
typedef struct binding { thing *buffer; unsigned long offset; } binding;

// What an encoder, or a command of an indirect command buffer, was told.
typedef struct command {
  thing *pipeline;
  binding bound[MOST_BINDINGS];
  size3 groups, items;
  bool barrier, set;
} command;

struct thing {
  const char *kind;
  atomic_int refs;
  thing *of, *other;               // what it was made from
  char *text;
  unsigned char *at;               // of a buffer
  size_t size;
  unsigned long figure;
  bool flag, flag2, owns;
  metal_kernel *kernel;
  int n_bufs;
  bool has_vars;
  VEC(thing *) list;               // of a set, an array; of an encoder: what it uses
  VEC(thing *) pipelines;
  VEC(command) commands;
  double began, ended;
};

static atomic_int living, committed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *fmt, ...) PRINTF_LIKE(1, 2);
static void say(const char *fmt, ...) {
  const char *path = getenv("FAKE_METAL_LOG");
  va_list ap;
  if (!path) return;
  pthread_mutex_lock(&lock);
  FILE *f = fopen(path, "a");
  if (f) {
    va_start(ap, fmt);
    vfprintf(f, fmt, ap);
    va_end(ap);
    fputc('\n', f);
    fclose(f);
  }
  pthread_mutex_unlock(&lock);
}

// ---- objects --------------------------------------------------------------------------------------------------------

void *objc_retain(void *x);
void objc_release(void *x);
void *objc_autoreleasePoolPush(void);
void objc_autoreleasePoolPop(void *mark);
void *objc_retainAutoreleasedReturnValue(void *x);
void objc_storeStrong(void **at, void *x);
void *objc_lookup_class(const char *name);
void objc_enumerationMutation(void *x);
void __objc_exec_class(void *module);
void *fake_lookup(thing *self, const selector *s);
void *MTLCreateSystemDefaultDevice(void);

static thing *make(const char *kind, thing *of) {
  thing *t = xcalloc(1, sizeof *t);
  t->kind = kind;
  t->refs = 1;
  t->of = objc_retain(of);
  living++;
  return t;
}

static void end_thing(thing *t) {
  for (size_t i = 0; i < t->list.n; i++) objc_release(t->list.at[i]);
  for (size_t i = 0; i < t->pipelines.n; i++) objc_release(t->pipelines.at[i]);
  vec_free(&t->list);
  vec_free(&t->pipelines);
  vec_free(&t->commands);
  if (t->owns) munmap(t->at, t->size);
  metal_kernel_free(t->kernel);
  free(t->text);
  objc_release(t->of);
  objc_release(t->other);
  t->kind = "nothing: it has ended";       // the memory stays, so that a use afterwards is seen
  living--;
}

void *objc_retain(void *x) {
  thing *t = x;
  if (t && *t->kind != '+' && atomic_fetch_add(&t->refs, 1) < 1) say("fault: retained after its end");
  return x;
}

void objc_release(void *x) {
  thing *t = x;
  if (!t || *t->kind == '+') return;
  int left = atomic_fetch_sub(&t->refs, 1) - 1;
  if (left < 0) say("fault: %s is released too often", t->kind);
  if (!left) end_thing(t);
}

static _Thread_local VEC(thing *) pool;
static _Thread_local int pools;

void *objc_autoreleasePoolPush(void) { pools++; return (void *)(uintptr_t)(pool.n + 1); }
void objc_autoreleasePoolPop(void *mark) {
  while (pool.n > (uintptr_t)mark - 1) objc_release(pool.at[--pool.n]);
  if (!--pools) vec_free(&pool);
}
static void *later(thing *t) {
  if (!pools) say("fault: %s without a pool", t->kind);
  else vec_push(&pool, t);
  return t;
}

void *objc_retainAutoreleasedReturnValue(void *x) { return objc_retain(x); }
void objc_storeStrong(void **at, void *x) {
  void *old = *at;
  *at = objc_retain(x);
  objc_release(old);
}
void objc_enumerationMutation(void *x) { (void)x; say("fault: changed while it is walked"); }
void __objc_exec_class(void *module) { (void)module; }

#define CLASSES(C) \
  C(NSString) C(NSMutableArray) C(NSMutableSet) C(MTLCompileOptions) C(MTLComputePipelineDescriptor) \
  C(MTLIndirectCommandBufferDescriptor)
#define C(name) extern thing __objc_class_name_##name; thing __objc_class_name_##name = {.kind = "+" #name};
CLASSES(C)
#undef C
void *objc_lookup_class(const char *name) {
#define C(one) if (!strcmp(name, #one)) return &__objc_class_name_##one;
  CLASSES(C)
#undef C
  die("no class %s", name);
}

// nil answers with zeros
__asm__(".globl objc_msgSend\n"
        "objc_msgSend:\n"
        "  test %rdi, %rdi\n"
        "  je 1f\n"
        "  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n  sub $8, %rsp\n"
        "  call fake_lookup\n"
        "  mov %rax, %r11\n"
        "  add $8, %rsp\n  pop %r9\n  pop %r8\n  pop %rcx\n  pop %rdx\n  pop %rsi\n  pop %rdi\n"
        "  jmp *%r11\n"
        "1: xor %eax, %eax\n"
        "  pxor %xmm0, %xmm0\n"
        "  ret\n");

// ---- Foundation -----------------------------------------------------------------------------------------------------

#define UNUSED (void)self; (void)s

static thing *make_text(const char *kind, const char *text) {
  thing *t = make(kind, NULL);
  t->text = strdup(text);
  return t;
}
static void *string_with(thing *self, const selector *s, const char *text) {
  UNUSED;
  return later(make_text("string", text));
}
static void *string_bytes(thing *self, const selector *s) { UNUSED; return self->text; }
static void *new_list(thing *self, const selector *s) { UNUSED; return make("list", NULL); }
static void *list_add(thing *self, const selector *s, thing *x) {
  UNUSED;
  vec_push(&self->list, objc_retain(x));
  return NULL;
}
static void *set_new(thing *self, const selector *s) { UNUSED; return make("set", NULL); }
static void *set_add(thing *self, const selector *s, thing *x) {
  UNUSED;
  for (size_t i = 0; i < self->list.n; i++) if (self->list.at[i] == x) return NULL;
  return list_add(self, s, x);
}
static void *list_at(thing *self, const selector *s, unsigned long i) {
  UNUSED;
  return i < self->list.n ? self->list.at[i] : NULL;
}
static unsigned long list_walk(thing *self, const selector *s, unsigned long *state, void **buffer, unsigned long cap) {
  (void)s; (void)buffer; (void)cap;
  if (state[0]) return 0;
  state[0] = 1;
  state[1] = (unsigned long)self->list.at;           // itemsPtr
  state[2] = (unsigned long)&self->list.n;           // mutationsPtr
  return self->list.n;
}
static void *error_text(thing *self, const selector *s) { UNUSED; return later(make_text("string", self->text)); }

// ---- the device, its memory and its kernels -------------------------------------------------------------------------

static void at_end(void) {
  if (living) say("fault: %d objects are left", living);
  say("end");
}

void *MTLCreateSystemDefaultDevice(void) {
  static atomic_bool first;
  if (!atomic_exchange(&first, true)) atexit(at_end);
  return make("device", NULL);
}

static void *device_name(thing *self, const selector *s) { UNUSED; return later(make_text("string", "Fake M1")); }
static signed char device_unified(thing *self, const selector *s) { UNUSED; return 1; }
static signed char device_family(thing *self, const selector *s, long family) { UNUSED; return family <= APPLE7; }
static unsigned long device_local(thing *self, const selector *s) { UNUSED; return 32768; }
static unsigned long device_most(thing *self, const selector *s) { UNUSED; return 1ul << 33; }
static unsigned long device_used(thing *self, const selector *s) { UNUSED; return 1ul << 20; }
static void *device_queue(thing *self, const selector *s) { UNUSED; return make("queue", self); }

// Its end lies at a page that nobody may touch.
static void *device_buffer(thing *self, const selector *s, unsigned long size, unsigned long options) {
  UNUSED; (void)options;
  thing *t = make("buffer", self);
  t->size = round_up(size, PAGE) + PAGE;
  t->at = mmap(NULL, t->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!size || t->at == MAP_FAILED || mprotect(t->at + t->size - PAGE, PAGE, PROT_NONE)) die("a buffer of %lu", size);
  t->figure = size;
  t->owns = true;
  return t;
}
static void *device_buffer_over(thing *self, const selector *s, void *at, unsigned long size, unsigned long options,
                                void *block) {
  UNUSED; (void)options; (void)block;
  if ((uintptr_t)at % PAGE || size % PAGE) { say("fault: memory that is not whole pages"); return NULL; }
  thing *t = make("buffer", self);
  t->at = at;
  t->figure = size;
  return t;
}
static void *buffer_contents(thing *self, const selector *s) { UNUSED; return self->at; }

static void *fail_with(thing **why, const char *text) {
  if (why) *why = later(make_text("error", text));
  return NULL;
}
static void *device_library(thing *self, const selector *s, thing *source, thing *options, thing **why) {
  UNUSED;
  if (!options || options->flag) say("fault: kernels are compiled with fast math");
  if (!strstr(source->text, "kernel void ")) return fail_with(why, "no kernel");
  thing *t = make_text("library", source->text);
  t->of = objc_retain(self);
  return t;
}
static void *library_function(thing *self, const selector *s, thing *name) {
  UNUSED;
  char start[200];
  snprintf(start, sizeof start, "kernel void %s(", name->text);
  if (!strstr(self->text, start)) return NULL;
  thing *t = make_text("function", name->text);
  t->of = objc_retain(self);
  return t;
}
static void *options_new(thing *self, const selector *s) {
  UNUSED;
  thing *t = make("options", NULL);
  t->flag = true;
  return t;
}
static void *set_flag(thing *self, const selector *s, signed char on) { UNUSED; self->flag = on; return NULL; }
static void *set_flag2(thing *self, const selector *s, signed char on) { UNUSED; self->flag2 = on; return NULL; }
static void *set_figure(thing *self, const selector *s, unsigned long n) { UNUSED; self->figure = n; return NULL; }
static void *descriptor_new(thing *self, const selector *s) { UNUSED; return make("pipeline descriptor", NULL); }
static void *descriptor_function(thing *self, const selector *s, thing *f) {
  UNUSED;
  self->of = objc_retain(f);
  return NULL;
}

static void *device_pipeline(thing *self, const selector *s, thing *d, unsigned long options, void *reflection,
                             thing **why) {
  UNUSED; (void)options; (void)reflection;
  char text[700] = "";
  if (!d->of) return fail_with(why, "no function");
  thing *t = make("pipeline", d->of);
  const char *source = d->of->of->text;
  for (const char *p = source; (p = strstr(p, "[[buffer(")); p++) t->n_bufs++;
  t->has_vars = strstr(source, "constant long *vars");
  t->n_bufs -= t->has_vars;
  t->flag = d->flag;                                 // supportIndirectCommandBuffers
  t->figure = d->figure ? d->figure : MAX_THREADS;
  if (d->flag2 && t->figure % 32) say("fault: %lu threads are no multiple of 32", t->figure);
  t->kernel = metal_compile(source, d->of->text, t->n_bufs, t->has_vars, text, sizeof text);
  if (t->kernel) return t;
  objc_release(t);
  return fail_with(why, text);
}
static unsigned long pipeline_width(thing *self, const selector *s) { UNUSED; return 32; }
static unsigned long get_figure(thing *self, const selector *s) { UNUSED; return self->figure; }

// ---- commands -------------------------------------------------------------------------------------------------------

static void *icb_descriptor_new(thing *self, const selector *s) {
  UNUSED;
  thing *t = make("icb descriptor", NULL);
  t->flag = t->flag2 = true;
  return t;
}
static void *ignored(thing *self, const selector *s, unsigned long n) { UNUSED; (void)n; return NULL; }
static void *device_icb(thing *self, const selector *s, thing *d, unsigned long n, unsigned long options) {
  UNUSED; (void)options;
  if (d->flag || d->flag2 || d->figure > MOST_BINDINGS || !n || n > 16384) say("fault: such a descriptor");
  thing *t = make("icb", self);
  command none = {0};
  while (t->commands.n < n) vec_push(&t->commands, none);
  return t;
}
static void *icb_command(thing *self, const selector *s, unsigned long i) {
  UNUSED;
  if (i >= self->commands.n) die("command %lu of %zu", i, self->commands.n);
  thing *t = make("icb command", self);
  t->figure = i;
  return later(t);
}
static command *command_of(thing *self) { return &self->of->commands.at[self->figure]; }
// as the real one: what a command names stays alive only if somebody else keeps it
static void *icb_reset(thing *self, const selector *s) { UNUSED; *command_of(self) = (command){0}; return NULL; }
static void *icb_pipeline(thing *self, const selector *s, thing *p) {
  UNUSED;
  if (!p->flag) say("fault: a pipeline that is not for indirect command buffers");
  command_of(self)->pipeline = p;
  return NULL;
}
static void bind(command *c, thing *buffer, unsigned long offset, unsigned long i) {
  if (i >= MOST_BINDINGS || !buffer || offset > buffer->figure || offset % 8)
    say("fault: buffer %lu at %lu", i, offset);
  else c->bound[i] = (binding){buffer, offset};
}
static void *icb_buffer(thing *self, const selector *s, thing *b, unsigned long offset, unsigned long i) {
  UNUSED;
  bind(command_of(self), b, offset, i);
  return NULL;
}
static void *icb_barrier(thing *self, const selector *s) { UNUSED; command_of(self)->barrier = true; return NULL; }
static void *icb_dispatch(thing *self, const selector *s, size3 groups, size3 items) {
  UNUSED;
  command *c = command_of(self);
  c->groups = groups;
  c->items = items;
  c->set = true;
  return NULL;
}

static void *queue_buffer(thing *self, const selector *s) { UNUSED; return later(make("command buffer", self)); }
static void *buffer_encoder(thing *self, const selector *s) {
  UNUSED;
  thing *e = make("encoder", NULL);                  // the command buffer keeps its encoders
  vec_push(&self->list, objc_retain(e));
  command none = {0};
  vec_push(&e->commands, none);
  return later(e);
}
static void *encoder_pipeline(thing *self, const selector *s, thing *p) {
  UNUSED;
  self->commands.at[0].pipeline = p;
  vec_push(&self->pipelines, objc_retain(p));
  return NULL;
}
static void *encoder_buffer(thing *self, const selector *s, thing *b, unsigned long offset, unsigned long i) {
  UNUSED;
  bind(&self->commands.at[0], b, offset, i);
  vec_push(&self->list, objc_retain(b));
  return NULL;
}
static void *encoder_uses(thing *self, const selector *s, thing *b, unsigned long usage) {
  UNUSED;
  if (usage != 3) say("fault: usage %lu", usage);
  vec_push(&self->list, objc_retain(b));
  return NULL;
}
static void *encoder_dispatch(thing *self, const selector *s, size3 groups, size3 items) {
  UNUSED;
  command c = self->commands.at[0];
  if (!groups.n[0] || !groups.n[1] || !groups.n[2]) return NULL;
  c.groups = groups;
  c.items = items;
  c.set = c.barrier = true;
  vec_push(&self->commands, c);
  return NULL;
}
static void *encoder_execute(thing *self, const selector *s, thing *icb, range r) {
  UNUSED;
  if (self->other) die("a second indirect command buffer");
  self->other = objc_retain(icb);
  if (r.from || r.n != icb->commands.n) say("fault: commands %lu, %lu of %zu", r.from, r.n, icb->commands.n);
  return NULL;
}
static void *encoder_end(thing *self, const selector *s) { UNUSED; self->flag = true; return NULL; }

static bool is_among(thing *const *all, size_t n, const thing *x) {
  for (size_t i = 0; i < n; i++) if (all[i] == x) return true;
  return false;
}

static void run_command(const thing *e, const command *c, bool backwards) {
  void *at[MOST_BINDINGS] = {0};
  unsigned groups[3], items[3];
  unsigned long threads = 1;
  char why[400] = "";
  const thing *p = c->pipeline;
  for (int i = 0; i < 3; i++) {
    groups[i] = (unsigned)c->groups.n[i];
    items[i] = (unsigned)c->items.n[i];
    threads *= items[i];
    if (!groups[i] || !items[i]) { say("fault: a command without threads"); return; }
  }
  if (!p || !is_among(e->pipelines.at, e->pipelines.n, p)) { say("fault: a pipeline that the encoder lacks"); return; }
  if (threads > p->figure) say("fault: %lu threads, of %lu", threads, p->figure);
  for (int i = 0; i < p->n_bufs + p->has_vars; i++) {
    if (!c->bound[i].buffer || !is_among(e->list.at, e->list.n, c->bound[i].buffer)) {
      say("fault: buffer %d of %s is not there or not said to be used", i, p->of->text);
      return;
    }
    at[i] = c->bound[i].buffer->at + c->bound[i].offset;
  }
  if (metal_run(p->kernel, groups, items, at, p->has_vars ? at[p->n_bufs] : NULL, backwards, why, sizeof why))
    say("fault: %s: %s", p->of->text, why);
}

// What stands between two barriers, the last one first.
static void run_encoder(const thing *e) {
  const thing *from = e->other ? e->other : e;
  size_t n = from->commands.n, ran = 0, waits = 0;
  if (!e->flag) say("fault: an encoder that was not ended");
  for (size_t lo = e->other ? 0 : 1, hi; lo < n; lo = hi) {
    for (hi = lo + 1; hi < n && !from->commands.at[hi].barrier; hi++) {}
    waits += hi < n;
    for (size_t i = hi; i-- > lo;)
      if (from->commands.at[i].set) { run_command(e, &from->commands.at[i], ran % 2); ran++; }
  }
  say("%s: %zu commands, %zu barriers", e->other ? "plan" : "direct", ran, waits);
}

static void *buffer_commit(thing *self, const selector *s) {
  UNUSED;
  const char *fail = getenv("FAKE_METAL_FAIL");
  self->figure = 4;                                  // MTLCommandBufferStatusCompleted
  if (fail && ++committed >= atoi(fail)) {
    self->figure = 5;
    self->other = make_text("error", "the GPU has gone");
    return NULL;
  }
  self->began = now_s();
  for (size_t i = 0; i < self->list.n; i++) run_encoder(self->list.at[i]);
  self->ended = now_s();
  self->flag = true;
  return NULL;
}
static void *buffer_wait(thing *self, const selector *s) { UNUSED; return NULL; }
static void *get_other(thing *self, const selector *s) { UNUSED; return self->other; }
static double get_began(thing *self, const selector *s) { UNUSED; return self->began; }
static double get_ended(thing *self, const selector *s) { UNUSED; return self->ended; }

// ---- messages -------------------------------------------------------------------------------------------------------

#define METHOD(kind, name, fn) {kind, name, (void *)(uintptr_t)fn}
static const struct { const char *kind, *name; void *fn;
} methods[] = {
  METHOD("+NSString", "stringWithUTF8String:", string_with),
  METHOD("string", "UTF8String", string_bytes),
  METHOD("error", "localizedDescription", error_text),
  METHOD("+NSMutableArray", "new", new_list),
  METHOD("list", "addObject:", list_add),
  METHOD("list", "objectAtIndexedSubscript:", list_at),
  METHOD("+NSMutableSet", "new", set_new),
  METHOD("set", "addObject:", set_add),
  METHOD("set", "countByEnumeratingWithState:objects:count:", list_walk),
  METHOD("device", "name", device_name),
  METHOD("device", "hasUnifiedMemory", device_unified),
  METHOD("device", "supportsFamily:", device_family),
  METHOD("device", "maxThreadgroupMemoryLength", device_local),
  METHOD("device", "maxBufferLength", device_most),
  METHOD("device", "recommendedMaxWorkingSetSize", device_most),
  METHOD("device", "currentAllocatedSize", device_used),
  METHOD("device", "newCommandQueue", device_queue),
  METHOD("device", "newBufferWithLength:options:", device_buffer),
  METHOD("device", "newBufferWithBytesNoCopy:length:options:deallocator:", device_buffer_over),
  METHOD("device", "newLibraryWithSource:options:error:", device_library),
  METHOD("device", "newComputePipelineStateWithDescriptor:options:reflection:error:", device_pipeline),
  METHOD("device", "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:", device_icb),
  METHOD("buffer", "contents", buffer_contents),
  METHOD("library", "newFunctionWithName:", library_function),
  METHOD("+MTLCompileOptions", "new", options_new),
  METHOD("options", "setFastMathEnabled:", set_flag),
  METHOD("+MTLComputePipelineDescriptor", "new", descriptor_new),
  METHOD("pipeline descriptor", "setComputeFunction:", descriptor_function),
  METHOD("pipeline descriptor", "setSupportIndirectCommandBuffers:", set_flag),
  METHOD("pipeline descriptor", "setMaxTotalThreadsPerThreadgroup:", set_figure),
  METHOD("pipeline descriptor", "setThreadGroupSizeIsMultipleOfThreadExecutionWidth:", set_flag2),
  METHOD("pipeline", "threadExecutionWidth", pipeline_width),
  METHOD("pipeline", "maxTotalThreadsPerThreadgroup", get_figure),
  METHOD("+MTLIndirectCommandBufferDescriptor", "new", icb_descriptor_new),
  METHOD("icb descriptor", "setCommandTypes:", ignored),
  METHOD("icb descriptor", "setInheritBuffers:", set_flag),
  METHOD("icb descriptor", "setInheritPipelineState:", set_flag2),
  METHOD("icb descriptor", "setMaxKernelBufferBindCount:", set_figure),
  METHOD("icb", "indirectComputeCommandAtIndex:", icb_command),
  METHOD("icb command", "reset", icb_reset),
  METHOD("icb command", "setComputePipelineState:", icb_pipeline),
  METHOD("icb command", "setKernelBuffer:offset:atIndex:", icb_buffer),
  METHOD("icb command", "setBarrier", icb_barrier),
  METHOD("icb command", "concurrentDispatchThreadgroups:threadsPerThreadgroup:", icb_dispatch),
  METHOD("queue", "commandBuffer", queue_buffer),
  METHOD("command buffer", "computeCommandEncoder", buffer_encoder),
  METHOD("command buffer", "commit", buffer_commit),
  METHOD("command buffer", "waitUntilCompleted", buffer_wait),
  METHOD("command buffer", "status", get_figure),
  METHOD("command buffer", "error", get_other),
  METHOD("command buffer", "GPUStartTime", get_began),
  METHOD("command buffer", "GPUEndTime", get_ended),
  METHOD("encoder", "setComputePipelineState:", encoder_pipeline),
  METHOD("encoder", "setBuffer:offset:atIndex:", encoder_buffer),
  METHOD("encoder", "useResource:usage:", encoder_uses),
  METHOD("encoder", "dispatchThreadgroups:threadsPerThreadgroup:", encoder_dispatch),
  METHOD("encoder", "executeCommandsInBuffer:withRange:", encoder_execute),
  METHOD("encoder", "endEncoding", encoder_end),
};

void *fake_lookup(thing *self, const selector *s) {
  for (size_t i = 0; i < COUNT(methods); i++)
    if (!strcmp(methods[i].kind, self->kind) && !strcmp(methods[i].name, s->name)) return methods[i].fn;
  die("%s has no %s", self->kind, s->name);
}
