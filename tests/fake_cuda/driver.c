// A libcuda.so.1 for tests: NVIDIA's driver as far as Weft calls it, on this processor. It checks what the real one
// would not say: that a thread has a context, that handles live, that all that is copied lies in memory that was given
// out, that launches suit their kernels, that a graph's nodes keep their kernels and buffers, and that at the end
// nothing is left. Kernels are run by ptx.c. Nodes of a graph run as late as their edges allow: the last one that was
// added first, so that an edge that is missing is a wrong answer.
//
// FAKE_CUDA_LOG names a file that gets a line for each call that matters; FAKE_CUDA_PTX a folder that gets the text of
// every module; FAKE_CUDA_SM is the compute capability (90 where it is not given), FAKE_CUDA_DEVICES a number of
// devices, FAKE_CUDA_MEMORY bytes of memory. FAKE_CUDA_RUN=0 runs nothing. FAKE_CUDA_FAIL=<function>:<n>:<status> makes
// the n-th call of a function, and all that follow, fail.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "device/cuda_driver.h"
#include "fake_cuda/ptx.h"

enum {
  INVALID = 1,
  NOT_STARTED = 3,
  BAD_DEVICE = 101,
  BAD_PTX = 218,
  NO_CONTEXT = 201,
  BAD_HANDLE = 400,
  NOT_FOUND = 500,
  MOST_ARGS = 96
};

struct CUctx_st { int users; };
struct CUfunc_st { struct CUmod_st *module; };
struct CUmod_st { bool live; ptx *kernel; struct CUfunc_st function; };
struct CUstream_st { bool live; };
struct CUevent_st { bool live, recorded; double at; };
typedef struct call { cuda_function f; unsigned grid[3], block[3]; uint64_t args[MOST_ARGS]; } call;
struct CUgraphNode_st { struct CUgraph_st *graph; call c; VEC(struct CUgraphNode_st *) after; bool done; };
struct CUgraph_st { bool live; VEC(struct CUgraphNode_st *) nodes; int users; };
struct CUgraphExec_st { bool live; struct CUgraph_st *graph; VEC(call) calls; };

static struct {
  pthread_mutex_t lock;
  bool started;
  struct CUctx_st context;
  VEC(struct area { unsigned char *at; size_t n; }) areas;
  size_t used;
  int modules, streams, events, graphs, execs, n_ptx;
  int lost;                              // a fault of a kernel: every later call says so
  FILE *log;
} D = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local cuda_context current;

// Every driver's function that is here has the type by which Weft calls it.
#define F(name, symbol, arguments) typedef cuda_status type_of_##name arguments;
CUDA_FUNCTIONS(F)
#undef F
#define FUNCTION(name, fn, ...) __attribute__((visibility("default"))) type_of_##name fn; cuda_status fn(__VA_ARGS__)

static const char *setting(const char *name, const char *otherwise) {
  const char *s = getenv(name);
  return s && *s ? s : otherwise;
}

PRINTF_LIKE(1, 2) static void note(const char *fmt, ...) {
  if (!D.log) return;
  va_list ap;
  va_start(ap, fmt);
  vfprintf(D.log, fmt, ap);
  va_end(ap);
  fputc('\n', D.log);
  fflush(D.log);
}

// The n-th call of a function, which FAKE_CUDA_FAIL may have made one that fails.
static int made_to_fail(const char *fn) {
  static int calls;
  const char *s = setting("FAKE_CUDA_FAIL", "");
  size_t n = strlen(fn);
  int number, status;
  if (strncmp(s, fn, n) || s[n] != ':' || sscanf(s + n + 1, "%d:%d", &number, &status) != 2) return 0;
  return ++calls >= number ? status : 0;
}

static cuda_status refuse(cuda_status s, const char *fn, const char *why) {
  note("fault: %s: %s", fn, why);
  return s;
}

// Threads in the driver's functions. A real one allows several; Weft is to come with one at a time (device/remote.h).
static atomic_int n_inside;
static _Thread_local int depth;

static int enter_driver(const char *fn) {
  if (!depth++ && atomic_fetch_add(&n_inside, 1)) note("fault: %s, and another thread is in the driver", fn);
  return 1;
}
static void leave_driver(const int *inside) { if (!(depth -= *inside)) atomic_fetch_sub(&n_inside, 1); }

// At the head of each function: what all have in common. The ones that need no context say so.
#define ENTER_ANY() \
  __attribute__((cleanup(leave_driver), unused)) const int inside_ = enter_driver(__func__); \
  do { \
    if (!D.started) return refuse(NOT_STARTED, __func__, "before cuInit"); \
    int status_ = made_to_fail(__func__); \
    if (status_) { note("made to fail: %s %d", __func__, status_); return status_; } \
  } while (0)
#define ENTER() \
  ENTER_ANY(); \
  do { \
    if (D.lost) return D.lost; \
    if (!current) return refuse(NO_CONTEXT, __func__, "a thread without a context"); \
  } while (0)

// ---- the device -----------------------------------------------------------------------------------------------------

FUNCTION(Init, cuInit, unsigned flags) {
  if (!D.log && *setting("FAKE_CUDA_LOG", "")) D.log = fopen(setting("FAKE_CUDA_LOG", ""), "ae");
  if (flags) return INVALID;
  D.started = true;
  if (!atoi(setting("FAKE_CUDA_DEVICES", "1"))) return CUDA_NO_DEVICE;
  return made_to_fail(__func__);
}

FUNCTION(GetErrorName, cuGetErrorName, cuda_status s, const char **text) {
  static const struct {
    int status;
    const char *name;
  } names[] = {{1, "CUDA_ERROR_INVALID_VALUE"},
               {2, "CUDA_ERROR_OUT_OF_MEMORY"},
               {100, "CUDA_ERROR_NO_DEVICE"},
               {218, "CUDA_ERROR_INVALID_PTX"},
               {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
               {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
               {716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
               {719, "CUDA_ERROR_LAUNCH_FAILED"}};
  for (size_t i = 0; i < COUNT(names); i++) if (names[i].status == s) { *text = names[i].name; return 0; }
  *text = NULL;
  return INVALID;
}

FUNCTION(DriverGetVersion, cuDriverGetVersion, int *version) { ENTER_ANY(); *version = 12090; return 0; }
FUNCTION(DeviceGetCount, cuDeviceGetCount, int *n) {
  ENTER_ANY();
  *n = atoi(setting("FAKE_CUDA_DEVICES", "1"));
  return 0;
}

FUNCTION(DeviceGet, cuDeviceGet, cuda_device *out, int number) {
  ENTER_ANY();
  *out = number;
  return number < 0 || number >= atoi(setting("FAKE_CUDA_DEVICES", "1")) ? BAD_DEVICE : 0;
}

FUNCTION(DeviceGetName, cuDeviceGetName, char *out, int cap, cuda_device d) {
  ENTER_ANY();
  snprintf(out, (size_t)cap, "Fake GPU %d", d);
  return 0;
}

FUNCTION(DeviceGetAttribute, cuDeviceGetAttribute, int *out, int what, cuda_device d) {
  ENTER_ANY();
  (void)d;
  int sm = atoi(setting("FAKE_CUDA_SM", "90"));
  switch (what) {
  case CUDA_MOST_ITEMS: *out = 1024; return 0;
  case CUDA_SHARED_BYTES: *out = 49152; return 0;
  case CUDA_UNITS: *out = 4; return 0;
  case CUDA_KHZ: *out = 1500000; return 0;
  case CUDA_MEMORY_KHZ: *out = 800000; return 0;
  case CUDA_MEMORY_BITS: *out = 128; return 0;
  case CUDA_UNIT_ITEMS: *out = 1536; return 0;
  case CUDA_UNIT_SHARED_BYTES: *out = 102400; return 0;
  case CUDA_UNIT_REGISTERS: *out = 65536; return 0;
  case CUDA_L2_BYTES: *out = 4 << 20; return 0;
  case CUDA_ONE_ADDRESSING: *out = 1; return 0;
  case CUDA_MAJOR: *out = sm / 10; return 0;
  case CUDA_MINOR: *out = sm % 10; return 0;
  default: return INVALID;
  }
}

static size_t memory(void) { return (size_t)strtoull(setting("FAKE_CUDA_MEMORY", "4294967296"), NULL, 10); }

FUNCTION(DeviceTotalMem, cuDeviceTotalMem_v2, size_t *out, cuda_device d) {
  ENTER_ANY();
  (void)d;
  *out = memory();
  return 0;
}

FUNCTION(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, cuda_context *out, cuda_device d) {
  ENTER_ANY();
  (void)d;
  D.context.users++;
  *out = &D.context;
  return 0;
}

FUNCTION(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, cuda_device d) {
  ENTER_ANY();
  (void)d;
  if (D.context.users-- != 1) return 0;
  note("left: %zu pieces of memory, %d modules, %d streams, %d events, %d graphs, %d executables", D.areas.n, D.modules,
       D.streams, D.events, D.graphs, D.execs);
  return 0;
}

FUNCTION(CtxSetCurrent, cuCtxSetCurrent, cuda_context c) {
  ENTER_ANY();
  if (c && c != &D.context) return refuse(NO_CONTEXT, __func__, "no such context");
  current = c;
  return 0;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static bool is_given(uint64_t at, size_t n) {
  static struct area last;
  if (at >= (uint64_t)(uintptr_t)last.at && last.n >= n && at - (uint64_t)(uintptr_t)last.at <= last.n - n) return true;
  for (size_t i = 0; i < D.areas.n; i++) {
    uint64_t start = (uint64_t)(uintptr_t)D.areas.at[i].at;
    if (at < start || D.areas.at[i].n < n || at - start > D.areas.at[i].n - n) continue;
    last = D.areas.at[i];
    return true;
  }
  last = (struct area){0};
  return false;
}

FUNCTION(MemAlloc, cuMemAlloc_v2, cuda_address *out, size_t n) {
  ENTER();
  if (!n) return INVALID;
  if (n > memory() - D.used) return CUDA_NO_MEMORY;
  unsigned char *at = aligned_alloc(512, round_up(n, 512));
  if (!at) return CUDA_NO_MEMORY;
  memset(at, 0xa5, n);                                // what was there is nobody's business
  pthread_mutex_lock(&D.lock);
  vec_push(&D.areas, ((struct area){at, n}));
  D.used += n;
  pthread_mutex_unlock(&D.lock);
  *out = (cuda_address)(uintptr_t)at;
  return 0;
}

FUNCTION(MemGetInfo, cuMemGetInfo_v2, size_t *left, size_t *all) {
  ENTER();
  *all = memory();
  *left = *all - D.used;
  return 0;
}

FUNCTION(MemFree, cuMemFree_v2, cuda_address at) {
  ENTER();
  for (size_t i = 0; i < D.areas.n; i++) {
    if ((cuda_address)(uintptr_t)D.areas.at[i].at != at) continue;
    pthread_mutex_lock(&D.lock);
    D.used -= D.areas.at[i].n;
    D.areas.at[i] = D.areas.at[--D.areas.n];
    pthread_mutex_unlock(&D.lock);
    is_given(0, SIZE_MAX);                            // forgets the last one
    free((void *)(uintptr_t)at);
    return 0;
  }
  return refuse(INVALID, __func__, "what was not given out");
}

static cuda_status move(const char *fn, uint64_t to, uint64_t from, size_t n, bool to_here, bool from_here,
                        cuda_stream s) {
  if (!s || !s->live) return refuse(BAD_HANDLE, fn, "no such stream");
  if ((to_here && !is_given(to, n)) || (from_here && !is_given(from, n)))
    return refuse(INVALID, fn, "bytes that are not the device's");
  if ((!to_here && is_given(to, 1)) || (!from_here && is_given(from, 1)))
    return refuse(INVALID, fn, "bytes that are not the host's");
  memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, n);
  note("%s %zu", fn, n);
  return 0;
}

FUNCTION(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, cuda_address to, const void *from, size_t n, cuda_stream s) {
  ENTER();
  return move(__func__, to, (uint64_t)(uintptr_t)from, n, true, false, s);
}
FUNCTION(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, void *to, cuda_address from, size_t n, cuda_stream s) {
  ENTER();
  return move(__func__, (uint64_t)(uintptr_t)to, from, n, false, true, s);
}
FUNCTION(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, cuda_address to, cuda_address from, size_t n, cuda_stream s) {
  ENTER();
  return move(__func__, to, from, n, true, true, s);
}

FUNCTION(MemsetD8Async, cuMemsetD8Async, cuda_address to, unsigned char value, size_t n, cuda_stream s) {
  ENTER();
  if (!s || !s->live) return refuse(BAD_HANDLE, __func__, "no such stream");
  if (!is_given(to, n)) return refuse(INVALID, __func__, "bytes that are not the device's");
  memset((void *)(uintptr_t)to, value, n);
  return 0;
}

// ---- streams and events ---------------------------------------------------------------------------------------------

FUNCTION(StreamCreate, cuStreamCreate, cuda_stream *out, unsigned flags) {
  ENTER();
  if (flags > 1) return INVALID;
  *out = xcalloc(1, sizeof **out);
  (*out)->live = true;
  D.streams++;
  return 0;
}

// Handles that were given back stay, so that a later use can be told.
FUNCTION(StreamDestroy, cuStreamDestroy_v2, cuda_stream s) {
  ENTER();
  if (!s || !s->live) return refuse(BAD_HANDLE, __func__, "no such stream");
  s->live = false;
  D.streams--;
  return 0;
}

FUNCTION(StreamSynchronize, cuStreamSynchronize, cuda_stream s) {
  ENTER();
  return s && s->live ? 0 : refuse(BAD_HANDLE, __func__, "no such stream");
}

FUNCTION(EventCreate, cuEventCreate, cuda_event *out, unsigned flags) {
  ENTER();
  if (flags) return INVALID;
  *out = xcalloc(1, sizeof **out);
  (*out)->live = true;
  D.events++;
  return 0;
}

FUNCTION(EventDestroy, cuEventDestroy_v2, cuda_event e) {
  ENTER();
  if (!e || !e->live) return refuse(BAD_HANDLE, __func__, "no such event");
  e->live = false;
  D.events--;
  return 0;
}

FUNCTION(EventRecord, cuEventRecord, cuda_event e, cuda_stream s) {
  ENTER();
  if (!e || !e->live || !s || !s->live) return refuse(BAD_HANDLE, __func__, "no such event or stream");
  e->recorded = true;
  e->at = now_s();
  return 0;
}

FUNCTION(EventElapsedTime, cuEventElapsedTime, float *ms, cuda_event from, cuda_event to) {
  ENTER();
  if (!from || !to || !from->live || !to->live || !from->recorded || !to->recorded)
    return refuse(BAD_HANDLE, __func__, "an event that was not recorded");
  *ms = (float)((to->at - from->at) * 1e3);
  return 0;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

static void keep_text(const char *name, const char *text) {
  const char *folder = setting("FAKE_CUDA_PTX", "");
  char path[512];
  if (!*folder) return;
  snprintf(path, sizeof path, "%s/%04d_%s.ptx", folder, D.n_ptx++, name);
  FILE *f = fopen(path, "we");
  if (!f) die("cannot write %s", path);
  fputs(text, f);
  fclose(f);
}

FUNCTION(ModuleLoadDataEx, cuModuleLoadDataEx, cuda_module *out, const void *image, unsigned n, int *options,
         void **values) {
  ENTER();
  char *log = NULL, nowhere[1];
  size_t cap = 0;
  for (unsigned i = 0; i < n; i++) {
    if (options[i] == CUDA_LOG) log = values[i];
    else if (options[i] == CUDA_LOG_BYTES) cap = (size_t)(uintptr_t)values[i];
    else return INVALID;
  }
  if (!log || !cap) { log = nowhere; cap = sizeof nowhere; }
  ptx *k = ptx_read(image, log, cap);
  if (!k) { note("fault: %s: %s", __func__, log); keep_text("bad", image); return BAD_PTX; }
  keep_text(ptx_name(k), image);
  *out = xcalloc(1, sizeof **out);
  **out = (struct CUmod_st){.live = true, .kernel = k, .function = {*out}};
  D.modules++;
  return 0;
}

FUNCTION(ModuleUnload, cuModuleUnload, cuda_module m) {
  ENTER();
  if (!m || !m->live) return refuse(BAD_HANDLE, __func__, "no such module");
  m->live = false;
  ptx_free(m->kernel);
  D.modules--;
  return 0;
}

FUNCTION(ModuleGetFunction, cuModuleGetFunction, cuda_function *out, cuda_module m, const char *name) {
  ENTER();
  if (!m || !m->live) return refuse(BAD_HANDLE, __func__, "no such module");
  *out = &m->function;
  return strcmp(ptx_name(m->kernel), name) ? NOT_FOUND : 0;
}

// What is to be launched, with the values of its arguments at this moment.
static cuda_status take_call(const char *fn, call *c, cuda_function f, const unsigned *grid, const unsigned *block,
                             void **arguments) {
  *c = (call){.f = f};
  if (!f || !f->module->live) return refuse(BAD_HANDLE, fn, "a kernel of a module that is gone");
  const ptx *k = f->module->kernel;
  const unsigned *wants = ptx_group(k);
  uint64_t items = 1;
  for (int i = 0; i < 3; i++) {
    c->grid[i] = grid[i];
    c->block[i] = block[i];
    items *= block[i];
    if (!grid[i] || !block[i] || (i && grid[i] > 65535)) return refuse(INVALID, fn, "a size that no launch may have");
    if (wants[i] && wants[i] != block[i]) return refuse(INVALID, fn, "other work-groups than the kernel was made for");
  }
  if (items > 1024 || ptx_shared(k) > 49152) return refuse(INVALID, fn, "too large a work-group");
  if (ptx_params(k) > MOST_ARGS) die("more than %d arguments", MOST_ARGS);
  for (int i = 0; i < ptx_params(k); i++) memcpy(&c->args[i], arguments[i], 8);
  return 0;
}

static cuda_status run(const call *c) {
  char why[400] = "";
  const ptx *k = c->f->module->kernel;
  if (!atoi(setting("FAKE_CUDA_RUN", "1"))) return 0;
  int r = ptx_run(k, c->grid, c->block, c->args, is_given, why, sizeof why);
  if (r) { note("fault: %s: %s", ptx_name(k), why); D.lost = r; }
  return r;
}

FUNCTION(LaunchKernel, cuLaunchKernel, cuda_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
         unsigned bz, unsigned shared_bytes, cuda_stream s, void **arguments, void **extra) {
  ENTER();
  call c;
  if (extra || shared_bytes || !s || !s->live) return refuse(INVALID, __func__, "arguments");
  cuda_status r = take_call(__func__, &c, f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, arguments);
  note("launch %s", r ? "?" : ptx_name(f->module->kernel));
  return r ? r : run(&c);
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

FUNCTION(GraphCreate, cuGraphCreate, cuda_graph *out, unsigned flags) {
  ENTER();
  if (flags) return INVALID;
  *out = xcalloc(1, sizeof **out);
  (*out)->live = true;
  D.graphs++;
  return 0;
}

FUNCTION(GraphAddKernelNode, cuGraphAddKernelNode, cuda_node *out, cuda_graph g, const cuda_node *after, size_t n,
         const cuda_kernel_node *what) {
  ENTER();
  if (!g || !g->live) return refuse(BAD_HANDLE, __func__, "no such graph");
  cuda_node node = xcalloc(1, sizeof *node);
  node->graph = g;
  cuda_status r = what->extra || what->shared_bytes
                    ? INVALID
                    : take_call(__func__, &node->c, what->function, what->grid, what->block, what->arguments);
  for (size_t i = 0; i < n && !r; i++) {
    if (after[i]->graph != g) r = refuse(INVALID, __func__, "a node of another graph");
    vec_push(&node->after, after[i]);
  }
  if (r) { vec_free(&node->after); free(node); return r; }
  vec_push(&g->nodes, node);
  *out = node;
  return 0;
}

static void drop(struct CUgraph_st *g) {
  if (--g->users >= 0) return;
  for (size_t i = 0; i < g->nodes.n; i++) { vec_free(&g->nodes.at[i]->after); free(g->nodes.at[i]); }
  vec_free(&g->nodes);
}

FUNCTION(GraphDestroy, cuGraphDestroy, cuda_graph g) {
  ENTER();
  if (!g || !g->live) return refuse(BAD_HANDLE, __func__, "no such graph");
  g->live = false;
  D.graphs--;
  drop(g);
  return 0;
}

FUNCTION(GraphInstantiate, cuGraphInstantiateWithFlags, cuda_exec *out, cuda_graph g, unsigned long long flags) {
  ENTER();
  if (flags || !g || !g->live) return refuse(BAD_HANDLE, __func__, "no such graph");
  *out = xcalloc(1, sizeof **out);
  (*out)->live = true;
  (*out)->graph = g;
  g->users++;
  for (size_t i = 0; i < g->nodes.n; i++) vec_push(&(*out)->calls, g->nodes.at[i]->c);
  D.execs++;
  size_t edges = 0;
  for (size_t i = 0; i < g->nodes.n; i++) edges += g->nodes.at[i]->after.n;
  note("graph of %zu kernels, %zu edges", g->nodes.n, edges);
  return 0;
}

static int number_of(const struct CUgraph_st *g, const struct CUgraphNode_st *n) {
  for (size_t i = 0; i < g->nodes.n; i++) if (g->nodes.at[i] == n) return (int)i;
  return -1;
}

FUNCTION(GraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, cuda_exec x, cuda_node n,
         const cuda_kernel_node *what) {
  ENTER();
  if (!x || !x->live) return refuse(BAD_HANDLE, __func__, "no such executable");
  int i = number_of(x->graph, n);
  call c;
  if (i < 0) return refuse(INVALID, __func__, "a node of another graph");
  call *old = &x->calls.at[i];
  if (what->function != old->f) return refuse(INVALID, __func__, "another kernel");
  cuda_status r = take_call(__func__, &c, what->function, what->grid, what->block, what->arguments);
  if (r) return r;
  int buffers = 0, changed = 0;
  for (int a = 0; a < ptx_params(c.f->module->kernel); a++) {
    changed += c.args[a] != old->args[a];
    buffers += c.args[a] != old->args[a] && (is_given(c.args[a], 1) || is_given(old->args[a], 1));
  }
  if (buffers) return refuse(INVALID, __func__, "a buffer that changes from run to run");
  if (!changed) return refuse(INVALID, __func__, "a node of which nothing changed");
  note("patch %s", ptx_name(c.f->module->kernel));
  *old = c;
  return 0;
}

FUNCTION(GraphExecDestroy, cuGraphExecDestroy, cuda_exec x) {
  ENTER();
  if (!x || !x->live) return refuse(BAD_HANDLE, __func__, "no such executable");
  x->live = false;
  vec_free(&x->calls);
  drop(x->graph);
  D.execs--;
  return 0;
}

static bool is_ready(const struct CUgraphNode_st *n) {
  for (size_t i = 0; i < n->after.n; i++) if (!n->after.at[i]->done) return false;
  return !n->done;
}

FUNCTION(GraphLaunch, cuGraphLaunch, cuda_exec x, cuda_stream s) {
  ENTER();
  if (!x || !x->live || !s || !s->live) return refuse(BAD_HANDLE, __func__, "no such executable or stream");
  struct CUgraph_st *g = x->graph;
  note("graph launch");
  for (size_t i = 0; i < g->nodes.n; i++) g->nodes.at[i]->done = false;
  for (size_t left = g->nodes.n; left; left--) {
    size_t i = g->nodes.n;
    while (i && !is_ready(g->nodes.at[i - 1])) i--;
    if (!i) die("a graph with a circle");
    cuda_status r = run(&x->calls.at[i - 1]);
    if (r) return r;
    g->nodes.at[i - 1]->done = true;
  }
  return 0;
}
