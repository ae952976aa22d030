// Small tensor graphs through the whole pipeline: a case builds a graph over buffers with data, it is scheduled, and
// its kernels run on a back end; what the output buffers hold afterwards is compared with codegen/tensor_eval.h.
//
// Memory is hostile: every buffer ends at a page that may not be touched and begins where its element size alone
// allows; intermediates start as NaNs, in one arena at the planner's offsets; outputs start as a pattern that must
// survive where nothing is stored.  Tiles run in three parts, as if by three threads, and every second run takes the
// kernels of a level in reverse order.  Copies of weights in their layouts (schedule/layout.c) are made
// anew before every launch.  A case that dies
// or faults is a failure of that case alone (kt_guard).
//
// Under the sanitizers (RIG_COMPUTES is 0) programs are made and rendered for every back end, the interpreter runs
// those that are its own, and no result is compared: they look at Weft's code, and kernels of other compilers have none
// of theirs.
#ifndef WEFT_TEST_KERNEL_RIG_H
#define WEFT_TEST_KERNEL_RIG_H
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include "render/rig.h"          // first: opt.h has a type that is called as a variable there
#include "base/env.h"
#include "codegen/codegen.h"
#include "codegen/tensor_eval.h"
#include "fake_cuda/ptx.h"
#include "fake_metal/run.h"
#include "model/codebook.h"
#include "schedule/layout.h"

enum { KT_BUFS = 12, KT_VARS = 4, KT_KERNELS = 24, KT_SLACK = 64, KT_PARTS = 3, KT_ELEMS_OF_GPU = 1 << 16 };

enum kt_fill {
  KT_UNIT /* -1 to 1 */,
  KT_POSITIVE /* 0.1 to 4 */,
  KT_WIDE /* magnitudes from 2^-20 to 2^20 */,
  KT_SMALL_INTS /* -8 to 8, or 0 to 15 */,
  KT_BITS
};

typedef struct kt {
  graph *g;
  struct { enum dtype dt; int64_t elems; unsigned char *start; bool out; } bufs[KT_BUFS];
  int n_bufs;
  struct { const char *name; int64_t lo, hi; } vars[KT_VARS];
  int n_vars;
  VEC(uop *) effects;
  uint64_t seed;
  double tolerance;                               // NMSE of float outputs
  double scale;                                   // what counts as nothing: the size of terms that may cancel
} kt;

typedef struct kt_case { const char *name; void (*build)(kt *t); double tolerance; } kt_case;   // tolerance 0: 1e-10

// ---- what cases are built with --------------------------------------------------------------------------------------

#define KT_DIMS(...) (int)COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__}

static inline double kt_unit(uint64_t *s) { return (double)(rig_random(s) >> 11) / 0x1p53; }

static inline void kt_fill_buffer(kt *t, int b, enum kt_fill fill) {
  enum dtype dt = t->bufs[b].dt;
  for (int64_t i = 0; i < t->bufs[b].elems; i++) {
    evalue v = {.i = (int64_t)rig_random(&t->seed)};
    if (dtype_is_float(dt)) {
      double u = kt_unit(&t->seed);
      switch (fill) {
      case KT_UNIT: case KT_BITS: v.f = 2 * u - 1; break;
      case KT_POSITIVE: v.f = .1 + 3.9 * u; break;
      case KT_WIDE: v.f = ldexp(u - .5, (int)(v.i % 20)); break;
      case KT_SMALL_INTS: v.f = floor(17 * u) - 8; break;
      }
    } else if (dt == DT_BOOL) v.i &= 1;
    else if (fill != KT_BITS) v.i = dtype_is_unsigned(dt) ? (int64_t)((uint64_t)v.i % 16) : v.i % 9;
    te_store(dt, v, t->bufs[b].start + i * dtype_size(dt));
  }
}

static inline int kt_buffer(kt *t, enum dtype dt, int64_t elems, enum kt_fill fill) {
  if (t->n_bufs == KT_BUFS) die("too many buffers");
  int b = t->n_bufs++;
  t->bufs[b].dt = dt;
  t->bufs[b].elems = elems;
  t->bufs[b].start = xcalloc((size_t)elems, (size_t)dtype_size(dt));
  kt_fill_buffer(t, b, fill);
  return b;
}

static inline tensor *kt_in(kt *t, enum dtype dt, enum kt_fill fill, int n, const int64_t *dims) {
  int64_t elems = 1;
  for (int i = 0; i < n; i++) elems *= dims[i];
  int b = kt_buffer(t, dt, elems, fill);
  return t_reshape_i(t->g, t_buffer(t->g, b, dt, elems), n, dims);
}

static inline uop *kt_var(kt *t, const char *name, int64_t lo, int64_t hi) {
  t->vars[t->n_vars].name = name;
  t->vars[t->n_vars].lo = lo;
  t->vars[t->n_vars++].hi = hi;
  return uop_var(t->g, name, lo, hi);
}

static inline void kt_effect(kt *t, uop *after) {
  uop *base = after;
  while (base->op != OP_BUFFER) base = base->src[0];
  t->bufs[base->a].out = true;
  vec_push(&t->effects, after);
}

// Stores x in a buffer of its own, symbolic sizes at their upper bounds.
static inline void kt_out(kt *t, tensor *x) {
  graph *g = t->g;
  if (x->dt == DT_BOOL) x = t_cast(g, x, DT_U8);
  if (x->dt == DT_IDX) x = t_cast(g, x, DT_I64);
  int64_t most[MAX_DIMS] = {1}, elems = 1;
  int n = x->shape ? x->shape->n : 0;
  for (int i = 0; i < n; i++) elems *= most[i] = x->shape->dim[i]->vmax;
  int b = kt_buffer(t, (enum dtype)x->dt, elems, KT_UNIT);
  tensor *view = t_buffer(g, b, (enum dtype)x->dt, elems);
  if (n != 1) view = t_reshape_i(g, view, n ? n : 1, most);
  for (int i = 0; i < n; i++) view = t_slice(g, view, i, uop_idx(g, 0), x->shape->dim[i]);
  kt_effect(t, t_assign(g, view, x));
}

// ---- the expected contents ------------------------------------------------------------------------------------------

typedef struct kt_memory {
  unsigned char *at[KT_BUFS], *arena;
  void *mapped[KT_BUFS + 1];
  size_t size[KT_BUFS + 1];
  int n;
} kt_memory;

static inline unsigned char *kt_map(kt_memory *m, int i, size_t need) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), size = round_up(need, page) + page;
  unsigned char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || mprotect(p + size - page, page, PROT_NONE)) die("mmap");
  m->mapped[i] = p;
  m->size[i] = size;
  return p + size - page - need;
}

static inline void kt_memory_init(kt_memory *m, const kt *t, int64_t arena_bytes) {
  *m = (kt_memory){.n = t->n_bufs};
  for (int b = 0; b < t->n_bufs; b++) {
    size_t need = (size_t)t->bufs[b].elems * (size_t)dtype_size(t->bufs[b].dt);
    m->at[b] = memcpy(kt_map(m, b, need), t->bufs[b].start, need);
  }
  m->arena = kt_map(m, KT_BUFS, round_up((size_t)arena_bytes, 64));
  memset(m->arena, 0xff, (size_t)arena_bytes);
}

static inline void kt_memory_free(kt_memory *m) {
  for (int i = 0; i <= KT_BUFS; i++) if (m->mapped[i]) munmap(m->mapped[i], m->size[i]);
}

static inline const unsigned char *kt_start(void *ctx, int64_t id) {
  return codebook_is(id) ? codebook_data(id) : ((kt *)ctx)->bufs[id].start;
}

// What all buffers hold afterwards, by the meaning of the graph.  values: of the variables, in t's order.
static inline void kt_expect(kt *t, const int64_t *values, kt_memory *want) {
  struct te_var vars[KT_VARS];
  for (int i = 0; i < t->n_vars; i++) vars[i] = (struct te_var){t->vars[i].name, values[i]};
  te e = {.mem = arena_new(), .vars = vars, .n_vars = t->n_vars, .buffer = kt_start, .ctx = t};
  kt_memory_init(want, t, 1);
  for (size_t i = 0; i < t->effects.n; i++) {
    uop *base = t->effects.at[i];
    const te_value *v = te_eval(&e, base);
    while (base->op != OP_BUFFER) base = base->src[0];
    enum dtype dt = (enum dtype)base->dt;
    for (int64_t j = 0; j < v->count; j++)
      if (v->written[j]) te_store(dt, v->v[j], want->at[base->a] + j * dtype_size(dt));
  }
  map_free(&e.memo);
  arena_free(e.mem);
}

// ---- back ends ------------------------------------------------------------------------------------------------------

enum kt_way { KT_REF, KT_LLVM, KT_C, KT_CL, KT_PTX, KT_METAL, KT_VK };
typedef struct kt_backend {
  const char *name;
  enum kt_way way;
  target t;
  cpu_target cpu;
  codegen_options o;
  enum layout_kind kind;         // of all weights, where the target has layouts
} kt_backend;

// A compiled kernel, and for each argument that is a weight in a layout what copies it there (none: as it lies).
typedef struct kt_code {
  program *p;
  ref_kernel *ref;
  backend_kernel native;
  cl_code *cl;
  ptx *ptx;
  metal_kernel *metal;
  vk_code *vk;
  sched_kernel laid;
  graph *fills_of;
  struct kt_code *fills;
} kt_code;

static inline cl *kt_cl(void) {                   // opened by the first use and closed by nobody: drivers keep threads
  static cl *device;
  error err = {0};
  if (!device && cl_open("", &device, &err)) rig_fail("opencl", &err, NULL);
  return device;
}

static inline bool kt_backend_cpu(kt_backend *b, const char *name, enum kt_way way, const char *cpu) {
  cpu_features have;
  error err = {0};
  *b = (kt_backend){.name = name, .way = way};
  cpu_detect(&have);
  int lacks = cpu_target_for(cpu, &have, &b->cpu, &err);
  // only a level that the machine lacks is skipped
  if (lacks && !strcmp(cpu, "native")) fail_msg("%s: %s", name, err.text);
  if (lacks) { print_message("skipped: %s: %s\n", name, err.text); return false; }
  b->t = render_find(way == KT_C ? "c" : "llvm")->target;
  b->t.vector_bytes = b->cpu.vector_bits / 8;
  b->t.has_fma = b->cpu.fma;
  b->t.has_f16 = b->cpu.f16;
  b->t.lacks_round = !b->cpu.round;
  b->t.descriptors = way == KT_C ? 0 : b->cpu.descriptors;
  b->t.cache_bytes = 1 << 20;
  b->t.tile_bytes = 1 << 19;
  b->t.has_streams = true;                        // as device/cpu.c has it
  return true;
}

static inline kt_backend kt_backend_ref(void) {
  return (kt_backend){.name = "REF", .way = KT_REF, .t = ref_target, .o.noopt = true};
}

static inline backend_kernel kt_llvm(const program *p, const cpu_target *c) {
  error err = {0};
  str text = {0};
  bytes object = {0};
  code_blob blob = {0};
  backend_kernel k = {0};
  render_options o = cpu_render_options(c);
  if (render_llvm(p, &o, &text, &err)) rig_fail("render", &err, NULL);
  if (llvm_compile(str_c(&text), c->cpu, c->features, &object, NULL, &err)) rig_fail("llvm", &err, str_c(&text));
  if (elf_link(object.at, object.n, &blob, &err)) rig_fail("link", &err, str_c(&text));
  k.image = code_map(&(const code_blob *){&blob}, 1, &err);
  if (!k.image) rig_fail("map", &err, NULL);
  k.fn = (kernel_fn *)code_find(k.image, 0, p->name);
  if (!k.fn) rig_fail("find", &err, NULL);
  code_blob_free(&blob);
  bytes_free(&object);
  str_free(&text);
  return k;
}

static inline bool kt_gpu_has(const void *machine, const char *feature) {
  (void)machine;
  return !strcmp(feature, "dp4a") || !strcmp(feature, "mma");
}

// As Apple's GPUs get them: with weights laid out, as device/metal_plan.m has it.
static inline kt_backend kt_backend_metal(void) {
  kt_backend b = {.name = "Metal", .way = KT_METAL, .t = render_find("metal")->target};
  return b;
}

// As Vulkan's devices get them. False where there is none.
static inline bool kt_backend_vulkan(kt_backend *b) {
  *b = (kt_backend){.name = "Vulkan", .way = KT_VK};
  b->t = render_find("spirv")->target;
  if (!RIG_COMPUTES) return true;
  if (!rig_vulkan_device()) return false;
  vk_target(rig_vulkan_device(), &b->t);
  b->t.descriptors = vk_dots(rig_vulkan_device());
  return true;
}

// NVIDIA's GPUs, as device/cuda.c has them.
static inline kt_backend kt_backend_ptx(void) {
  kt_backend b = {.name = "PTX", .way = KT_PTX, .t = render_find("nvptx")->target};
  b.t.descriptors = descriptors_where(kt_gpu_has, NULL);
  b.t.copy_bytes = 16;
  return b;
}

// What Apple's compiler would get, as C++ on this processor.
static inline metal_kernel *kt_metal(const program *p) {
  error err = {0};
  str text = {0};
  char why[600];
  if (render_metal(p, NULL, &text, &err)) rig_fail("render", &err, NULL);
  if (debug_level() >= 4) fprintf(stderr, "%s", str_c(&text));
  metal_kernel *k = metal_compile(str_c(&text), p->name, p->n_bufs, p->n_vars, why, sizeof why);
  if (!k) { error_set(&err, "%s", why); rig_fail("metal", &err, str_c(&text)); }
  str_free(&text);
  return k;
}

typedef struct kt_areas { unsigned char *at[KT_BUFS + KT_KERNELS]; size_t size[KT_BUFS + KT_KERNELS]; int n; } kt_areas;
static kt_areas kt_given;                         // to the kernel that runs: its buffers, and not a byte more

static inline bool kt_may(uint64_t at, size_t n) {
  for (int i = 0; i < kt_given.n; i++) {
    uint64_t start = (uint64_t)(uintptr_t)kt_given.at[i];
    if (at >= start && n <= kt_given.size[i] && at - start <= kt_given.size[i] - n) return true;
  }
  return false;
}

// Buffers begin at multiples of 16 bytes there, other than here.
static inline void kt_run_ptx(const ptx *k, const program *p, unsigned char **bufs, const int64_t *vars) {
  uint64_t params[KT_BUFS + KT_KERNELS + KT_VARS];
  unsigned grid[3], block[3];
  char why[400] = "";
  int64_t groups = 1;
  kt_given.n = p->n_bufs;
  for (int i = 0; i < p->n_bufs; i++) {
    size_t n = (size_t)p->bufs[i].elems * (size_t)dtype_size(p->bufs[i].dt);
    kt_given.size[i] = n;
    kt_given.at[i] = aligned_alloc(16, round_up(n + 1, 16));
    if (n) memcpy(kt_given.at[i], bufs[i], n);
    params[i] = (uint64_t)(uintptr_t)kt_given.at[i];
  }
  for (int i = 0; i < p->n_vars; i++) params[p->n_bufs + i] = (uint64_t)vars[i];
  for (int i = 0; i < 3; i++) {
    grid[i] = p->global[i] ? (unsigned)program_eval(p, p->global[i], vars) : 1;
    block[i] = p->local[i] ? (unsigned)program_eval(p, p->local[i], vars) : 1;
    groups *= grid[i];
  }
  if (groups && ptx_run(k, grid, block, params, kt_may, why, sizeof why)) die("%s", why);
  for (int i = 0; i < p->n_bufs; i++) {
    if (p->bufs[i].written) memcpy(bufs[i], kt_given.at[i], kt_given.size[i]);
    free(kt_given.at[i]);
  }
}

// Buffers begin at multiples of 16 bytes; less than that is between their end and a page that may not be touched.
static inline void kt_run_metal(const metal_kernel *k, const program *p, unsigned char **bufs, const int64_t *vars) {
  static bool backwards;
  kt_memory m = {0};
  void *at[KT_BUFS + KT_KERNELS];
  unsigned grid[3], block[3];
  char why[400] = "";
  int64_t groups = 1;
  if (p->n_bufs > KT_BUFS) die("%d buffers", p->n_bufs);
  for (int i = 0; i < p->n_bufs; i++) {
    size_t n = (size_t)p->bufs[i].elems * (size_t)dtype_size(p->bufs[i].dt);
    at[i] = kt_map(&m, i, round_up(n, 16));
    memcpy(at[i], bufs[i], n);
  }
  for (int i = 0; i < 3; i++) {
    grid[i] = p->global[i] ? (unsigned)program_eval(p, p->global[i], vars) : 1;
    block[i] = p->local[i] ? (unsigned)program_eval(p, p->local[i], vars) : 1;
    groups *= grid[i];
  }
  backwards = !backwards;
  if (groups && metal_run(k, grid, block, at, vars, backwards, why, sizeof why)) die("%s: %s", p->name, why);
  for (int i = 0; i < p->n_bufs; i++)
    if (p->bufs[i].written) memcpy(bufs[i], at[i], (size_t)p->bufs[i].elems * (size_t)dtype_size(p->bufs[i].dt));
  kt_memory_free(&m);
}

// The text that a back end's compiler would get.
static inline void kt_render(const program *p, const kt_backend *b) {
  error err = {0};
  str text = {0};
  render_options cpu = cpu_render_options(&b->cpu);
  int r = b->way == KT_C     ? render_c(p, NULL, &text, &err)
        : b->way == KT_CL    ? render_opencl(p, NULL, &text, &err)
        : b->way == KT_METAL ? render_metal(p, NULL, &text, &err)
        : b->way == KT_VK    ? render_spirv(p, NULL, &text, &err)
        : b->way == KT_PTX   ? render_nvptx(p, &(render_options){.descriptors = b->t.descriptors}, &text, &err)
                             : render_llvm(p, &cpu, &text, &err);
  if (r) rig_fail("render", &err, NULL);
  str_free(&text);
}

static inline kt_code kt_compile_program(program *p, const kt_backend *b) {
  kt_code c = {.p = p};
  error err = {0};
  str text = {0};
  if (!RIG_COMPUTES && b->way != KT_REF) { kt_render(p, b); return c; }
  switch (b->way) {
  case KT_REF: c.ref = ref_compile(c.p); break;
  case KT_LLVM: c.native = kt_llvm(c.p, &b->cpu); break;
  case KT_C: c.native = rig_cc(c.p, "cc -Wno-psabi"); break;
  case KT_PTX: c.ptx = rig_ptx_read(c.p, &(render_options){.descriptors = b->t.descriptors}); break;
  case KT_METAL: c.metal = kt_metal(c.p); break;
  case KT_VK: c.vk = rig_vulkan_compile(c.p); break;
  case KT_CL:
    if (render_opencl(c.p, NULL, &text, &err)) rig_fail("render", &err, NULL);
    c.cl = cl_compile(kt_cl(), c.p, str_c(&text), &err);
    if (!c.cl) rig_fail("opencl", &err, str_c(&text));
    str_free(&text);
  }
  return c;
}

static inline enum layout_kind kt_kind(void *ctx, int64_t id) {
  (void)id;
  return ((const kt_backend *)ctx)->kind;
}

// The kernel with its weights in layouts, as the backend's target has them. Lives in g.
static inline sched_kernel kt_laid(graph *g, uop *ast, const kt_backend *b) {
  sched_kernel k = {.ast = ast};
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++)
    if (l.at[i]->op == OP_PARAM && l.at[i]->a >= k.n_bufs) k.n_bufs = (int)l.at[i]->a + 1;
  arena_free(a);
  k.bufs = ARENA_ARRAY(graph_arena(g), int64_t, k.n_bufs + 1);
  memset(k.bufs, 0, (size_t)k.n_bufs * sizeof *k.bufs);
  schedule s = {.kernels = &k, .n_kernels = 1};
  if (b->t.has_streams)
    layout_weights(g, &s, &(layout_target){target_rows(&b->t), b->t.row_bytes}, kt_kind, (kt_backend *)(uintptr_t)b);
  return k;
}

static inline kt_code kt_compile(graph *g, uop *ast, const kt_backend *b) {
  sched_kernel laid = kt_laid(g, ast, b);
  kt_code c = kt_compile_program(codegen(g, laid.ast, &b->t, &b->o), b);
  c.laid = laid;
  c.fills_of = graph_new(NULL);
  c.fills = xcalloc((size_t)laid.n_bufs + 1, sizeof *c.fills);
  for (int i = 0; laid.layouts && i < laid.n_bufs; i++) {
    uop *fill = laid.layouts[i] ? layout_filling(c.fills_of, laid.layouts[i]) : NULL;
    if (fill) c.fills[i] = kt_compile_program(codegen(c.fills_of, fill, &b->t, &(codegen_options){.filling = true}), b);
  }
  return c;
}

static inline void kt_code_free(kt_code *c) {
  for (int i = 0; c->fills && i < c->laid.n_bufs; i++) if (c->fills[i].p) kt_code_free(&c->fills[i]);
  free(c->fills);
  graph_free(c->fills_of);
  if (c->ref) ref_free(c->ref);
  rig_drop(&c->native);
  cl_code_free(c->cl);
  ptx_free(c->ptx);
  metal_kernel_free(c->metal);
  vk_code_free(c->vk);
  program_free(c->p);
}

static inline void kt_launch(const kt_code *c, unsigned char **bufs, const int64_t *vars) {
  int64_t tiles = program_eval(c->p, c->p->tiles, vars);
  error err = {0};
  if (!RIG_COMPUTES && !c->ref) return;
  if (c->ptx) { kt_run_ptx(c->ptx, c->p, bufs, vars); return; }
  if (c->metal) { kt_run_metal(c->metal, c->p, bufs, vars); return; }
  if (c->vk) {
    if (vk_launch(c->vk, bufs, NULL, vars, 0, tiles, &err)) rig_fail("launch", &err, NULL);
    return;
  }
  if (c->cl) {
    if (cl_launch(c->cl, bufs, NULL, vars, 0, tiles, &err)) rig_fail("launch", &err, NULL);
    return;
  }
  for (int i = 0; i < KT_PARTS; i++) {
    int64_t lo = tiles * i / KT_PARTS, hi = tiles * (i + 1) / KT_PARTS;
    if (tiles == 1 ? i > 0 : lo == hi) continue;
    if (tiles == 1) hi = 1;
    if (c->ref) ref_run(c->ref, bufs, vars, lo, hi);
    else c->native.fn(bufs, vars, lo, hi);
  }
}

// Memory for the weights that the kernel reads in layouts, filled from the bytes of the file, in the place of which it
// comes.
static inline void kt_copies(const kt_code *c, kt_memory *own, unsigned char **bufs) {
  *own = (kt_memory){.n = 0};
  for (int i = 0, n = 0; c->laid.layouts && i < c->laid.n_bufs; i++) {
    const layout *l = c->laid.layouts[i];
    if (!l) continue;
    unsigned char *at = kt_map(own, n++, (size_t)l->bytes), *pair[2] = {at, bufs[i]};
    memset(at, 0xff, (size_t)l->bytes);
    if (c->fills[i].p) kt_launch(&c->fills[i], pair, NULL);
    else memcpy(at, pair[1], (size_t)l->bytes);
    bufs[i] = at;
  }
}

// ---- running and comparing ------------------------------------------------------------------------------------------

typedef struct kt_run { kt t; schedule s; const char *name; } kt_run;

static inline void kt_prepare(kt_run *r, const kt_case *c) {
  *r = (kt_run){.name = c->name,
                .t = {.g = graph_new(NULL),
                      .seed = hash_bytes(c->name, strlen(c->name), 1),
                      .tolerance = c->tolerance > 0 ? c->tolerance : 1e-10}};
  c->build(&r->t);
  uop *sink = uop_new(r->t.g, OP_SINK, DT_VOID, 1, r->t.effects.at, r->t.effects.n, (uarg){0});
  schedule_graph(r->t.g, sink, &r->s);
  if (r->s.n_kernels > KT_KERNELS) die("%s: %d kernels", c->name, r->s.n_kernels);
}

static inline void kt_finish(kt_run *r) {
  for (int b = 0; b < r->t.n_bufs; b++) free(r->t.bufs[b].start);
  vec_free(&r->t.effects);
  graph_free(r->t.g);
}

static inline int64_t kt_temp_offset(const schedule *s, int64_t id) {
  for (int i = 0; i < s->n_temps; i++)
    if (s->temps[i].id == id)
      return s->temps[i].offset + (s->temps[i].each ? (int64_t)round_up((size_t)s->arena_bytes, 64) : 0);
  die("an intermediate without a place");
}

static inline int64_t kt_arena_bytes(const schedule *s) {
  return (int64_t)round_up((size_t)s->arena_bytes, 64) + s->each_bytes;
}

static inline void kt_execute(const kt_run *r, const kt_code *code, const int64_t *values, kt_memory *m,
                              bool backwards) {
  const schedule *s = &r->s;
  for (int lo = 0, hi; lo < s->n_kernels; lo = hi) {
    for (hi = lo; hi < s->n_kernels && s->kernels[hi].level == s->kernels[lo].level; hi++) {}
    for (int j = 2 * lo; j < 2 * hi; j++) {          // first what every thread does for itself, in order
      bool each = j < lo + hi;
      int at = each ? j - lo : j - hi, i = backwards && !each ? hi - 1 - (at - lo) : at;
      const sched_kernel *k = &s->kernels[i];
      if (k->each != each) continue;
      const program *p = code[i].p;
      unsigned char *bufs[KT_BUFS + KT_KERNELS];
      int64_t vars[KT_VARS] = {0};
      for (int b = 0; b < k->n_bufs; b++)
        bufs[b] = k->bufs[b] >= TEMP_IDS    ? m->arena + kt_temp_offset(s, k->bufs[b])
                  : codebook_is(k->bufs[b]) ? codebook_data(k->bufs[b])
                                            : m->at[k->bufs[b]];
      for (int v = 0; v < p->n_vars; v++)
        for (int w = 0; w < r->t.n_vars; w++) if (!strcmp(p->vars[v]->s, r->t.vars[w].name)) vars[v] = values[w];
      kt_memory own;
      kt_copies(&code[i], &own, bufs);
      kt_launch(&code[i], bufs, vars);
      kt_memory_free(&own);
    }
  }
}

// NMSE where the type is a float, infinities and NaNs at the same places; equality for all else.
static inline bool kt_same(const kt_run *r, const kt_memory *want, const kt_memory *got, const char *backend,
                           const int64_t *values) {
  if (!RIG_COMPUTES) return true;
  for (int b = 0; b < r->t.n_bufs; b++) {
    enum dtype dt = r->t.bufs[b].dt;
    double error2 = 0, sum2 = 0;
    int64_t worst = -1;
    double most = -1;
    for (int64_t i = 0; i < r->t.bufs[b].elems; i++) {
      const unsigned char *x = want->at[b] + i * dtype_size(dt), *y = got->at[b] + i * dtype_size(dt);
      evalue ex = te_load(dt, x), ey = te_load(dt, y);
      bool wrong = !memcmp(x, y, (size_t)dtype_size(dt))
                     ? false
                     : !r->t.bufs[b].out || !dtype_is_float(dt) || isnan(ex.f) != isnan(ey.f) ||
                         ((isinf(ex.f) || isinf(ey.f)) && ex.f != ey.f);
      if (wrong) { worst = i; most = INFINITY; break; }
      if (!dtype_is_float(dt) || !isfinite(ex.f)) continue;
      double d = ex.f - ey.f;
      error2 += d * d;
      sum2 += ex.f * ex.f + r->t.scale * r->t.scale;
      if (fabs(d) > most) { most = fabs(d); worst = i; }
    }
    double tolerance = dt == DT_BF16 ? 1e-4 : dt == DT_F16 ? 1e-6 : r->t.tolerance;
    if (most != INFINITY && error2 <= tolerance * (sum2 > 0 ? sum2 : 1)) continue;
    evalue ex = te_load(dt, want->at[b] + worst * dtype_size(dt)),
           ey = te_load(dt, got->at[b] + worst * dtype_size(dt));
    fprintf(stderr, "%s on %s:", r->name, backend);
    for (int v = 0; v < r->t.n_vars; v++) fprintf(stderr, " %s = %lld,", r->t.vars[v].name, (long long)values[v]);
    fprintf(stderr, " buffer %d (%s) element %lld: ", b, dtype_name(dt), (long long)worst);
    if (dtype_is_float(dt))
      fprintf(stderr, "%.9g, should be %.9g; NMSE %.3g\n", ey.f, ex.f, sum2 > 0 ? error2 / sum2 : error2);
    else fprintf(stderr, "%lld, should be %lld\n", (long long)ey.i, (long long)ex.i);
    return false;
  }
  return true;
}

// Sets of values for the variables: both ends, and places between them.
static inline bool kt_values(const kt *t, int run, int64_t *values) {
  if (run > 3 || (run && !t->n_vars)) return false;
  for (int v = 0; v < t->n_vars; v++) {
    int64_t lo = t->vars[v].lo, hi = t->vars[v].hi, between[] = {lo, hi, lo + (hi - lo) / 2, v % 2 ? lo : hi};
    values[v] = between[run];
  }
  return true;
}

typedef struct kt_wants { kt_memory at[4]; bool made; } kt_wants;

static inline bool kt_check(kt_run *r, const kt_backend *b, kt_wants *want) {
  kt_code code[KT_KERNELS] = {{0}};
  int64_t values[KT_VARS];
  bool ok = true;
  for (int i = 0; i < r->s.n_kernels; i++) code[i] = kt_compile(r->t.g, r->s.kernels[i].ast, b);
  for (int run = 0; kt_values(&r->t, run, values); run++) {
    if (RIG_COMPUTES && !want->made) kt_expect(&r->t, values, &want->at[run]);
    kt_memory got;
    kt_memory_init(&got, &r->t, kt_arena_bytes(&r->s));
    kt_execute(r, code, values, &got, run % 2);
    ok = kt_same(r, &want->at[run], &got, b->name, values) && ok;
    kt_memory_free(&got);
  }
  want->made = true;
  for (int i = 0; i < r->s.n_kernels; i++) kt_code_free(&code[i]);
  return ok;
}

static inline void kt_wants_free(kt_wants *w) { for (int i = 0; i < 4; i++) kt_memory_free(&w->at[i]); }

// ---- a case that dies -----------------------------------------------------------------------------------------------

static sigjmp_buf kt_back;
static pthread_t kt_main;
static inline void kt_on_signal(int s) {
  if (pthread_equal(pthread_self(), kt_main)) siglongjmp(kt_back, s);
  static const char text[] = "a thread of the driver was ended by a signal: no way to go on\n";
  if (write(2, text, sizeof text - 1)) {}
  _exit(1);
}

static inline void kt_signals(void (*handler)(int)) {
  kt_main = pthread_self();
  static const int all[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  for (size_t i = 0; i < COUNT(all); i++) signal(all[i], handler);
}

// false also if kt_check dies or faults: then what it held is lost, which is fine for a test that fails.
static inline bool kt_guard(kt_run *r, const kt_backend *b, kt_wants *want) {
  kt_signals(kt_on_signal);
  int s = sigsetjmp(kt_back, 1);
  bool ok = !s && kt_check(r, b, want);
  kt_signals(SIG_DFL);
  if (s) fprintf(stderr, "%s on %s: ended by %s\n", r->name, b->name, strsignal(s));
  return ok;
}
#endif
