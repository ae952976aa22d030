// Tools for the tests of renderers: linear programs built by hand, and back ends that run them.
//
// A rig collects uops in order; every function that makes one appends it, so that the order of calls is the order of
// the program.  Buffers are declared with rig_buf before they are used.
#ifndef WEFT_TEST_RIG_H
#define WEFT_TEST_RIG_H
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/env.h"
#include "codegen/program.h"
#include "device/llvm.h"
#include "device/elf.h"
#include "device/code.h"
#include "device/cpu_info.h"
#include "device/opencl.h"
#include "device/ref.h"
#include "device/vulkan.h"
#include "fake_cuda/ptx.h"
#include "fake_metal/run.h"
#include "graph/half.h"
#include "render/render.h"

typedef void kernel_fn(unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi);
enum { RIG_BUFS = 12, RIG_VARS = 4, LANES_MOST = 128 };

// Whether kernels are compiled, run and compared: not under the sanitizers, which look at what makes their texts.
#ifdef WEFT_SANITIZE
enum { RIG_COMPUTES = 0 };
#else
enum { RIG_COMPUTES = 1 };
#endif

typedef struct rig {
  graph *g;
  VEC(uop *) at;
  struct program_buf bufs[RIG_BUFS];
  uop *params[RIG_BUFS];
  int n_bufs;
  uop *vars[RIG_VARS];
  int n_vars, next_number;
  bool salted;
  int64_t salt;
  program p;
} rig;

static inline rig *rig_new(void) {
  rig *r = calloc(1, sizeof *r);
  r->g = graph_new(NULL);
  return r;
}
static inline void rig_free(rig *r) {
  vec_free(&r->at);
  graph_free(r->g);
  free(r);
}
// Salted: every computation is a node of its own, although another one may compute the same; so that a node never
// stands twice in a program, once inside of a loop and once outside.
static inline uop *put(rig *r, uop *u) {
  bool computes = (op_flags((enum op)u->op) & OPF_ELEMENTWISE) || u->op == OP_SPLAT || u->op == OP_LOAD ||
                  u->op == OP_STACK || u->op == OP_EXTRACT || u->op == OP_HREDUCE || u->op == OP_SHUFFLE;
  if (r->salted && computes) {
    uop *src[LANES_MOST];
    memcpy(src, u->src, u->nsrc * sizeof *src);
    uarg arg = uop_arg(u);
    arg.b = ++r->salt;
    u = uop_new(r->g, (enum op)u->op, (enum dtype)u->dt, u->lanes, src, u->nsrc, arg);
  }
  vec_push(&r->at, u);
  return u;
}

static inline uop *rig_op(rig *r, enum op op, enum dtype dt, int lanes, uarg arg, size_t n, uop *const *src) {
  return put(r, uop_new(r->g, op, dt, lanes, src, n, arg));
}
static inline uop *rig_int(rig *r, enum dtype dt, int64_t v) { return put(r, uop_int(r->g, dt, v)); }
static inline uop *rig_float(rig *r, enum dtype dt, double v) { return put(r, uop_float(r->g, dt, v)); }
static inline uop *rig_splat(rig *r, uop *x, int lanes) {
  return x->lanes == lanes ? x : put(r, uop_splat(r->g, x, lanes));
}
static inline uop *rig1(rig *r, enum op op, uop *x) { return put(r, uop_op1(r->g, op, x)); }
static inline uop *rig2(rig *r, enum op op, uop *x, uop *y) { return put(r, uop_op2(r->g, op, x, y)); }
static inline uop *rig3(rig *r, enum op op, uop *x, uop *y, uop *z) { return put(r, uop_op3(r->g, op, x, y, z)); }
static inline uop *rig_cast(rig *r, uop *x, enum dtype dt) { return x->dt == dt ? x : put(r, uop_cast(r->g, x, dt)); }
static inline uop *rig_bitcast(rig *r, uop *x, enum dtype dt) {
  return x->dt == dt ? x : put(r, uop_bitcast(r->g, x, dt));
}

static inline uop *rig_buf(rig *r, enum dtype dt, int64_t elems) {
  int a = r->n_bufs++;
  r->bufs[a] = (struct program_buf){dt, elems, true, true};
  return r->params[a] = rig_op(r, OP_PARAM, dt, 1, (uarg){.a = a, .b = elems}, 0, NULL);
}
static inline uop *rig_var(rig *r, const char *name, int64_t lo, int64_t hi) {
  uop *v = rig_op(r, OP_VAR, DT_I64, 1, (uarg){.a = lo, .b = hi, .s = name, .s_len = strlen(name)}, 0, NULL);
  return r->vars[r->n_vars++] = v;
}
static inline uop *rig_range(rig *r, uop *end, enum axis_kind kind) {
  return rig_op(r, OP_RANGE, (enum dtype)end->dt, 1, (uarg){.a = r->next_number++, .b = kind}, 1, &end);
}
static inline void rig_end(rig *r, uop *range) { rig_op(r, OP_END, DT_VOID, 1, (uarg){0}, 1, &range); }
static inline uop *rig_acc(rig *r, uop *init) {
  return rig_op(r, OP_ACC, (enum dtype)init->dt, init->lanes, (uarg){.a = r->next_number++}, 1, &init);
}
static inline void rig_set(rig *r, uop *acc, uop *v) { rig_op(r, OP_SET, DT_VOID, 1, (uarg){0}, 2, (uop *[]){acc, v}); }
static inline uop *rig_index(rig *r, uop *buf, uop *i) { return put(r, uop_index(r->g, buf, i)); }
static inline uop *rig_load(rig *r, uop *index, enum dtype dt, int lanes) {
  return put(r, uop_load(r->g, index, dt, lanes));
}
static inline void rig_store(rig *r, uop *index, uop *v) {
  rig_op(r, OP_STORE, DT_VOID, 1, (uarg){0}, 2, (uop *[]){index, v});
}
static inline uop *rig_shuffle(rig *r, uop *x, uop *y, int lanes, const int *which) {
  char s[512];
  for (int i = 0; i < lanes; i++) { s[2 * i] = (char)(which[i] & 255); s[2 * i + 1] = (char)(which[i] >> 8); }
  return rig_op(r, OP_SHUFFLE, (enum dtype)x->dt, lanes, (uarg){.s = s, .s_len = 2 * (size_t)lanes}, y ? 2 : 1,
                (uop *[]){x, y});
}

// The program as it stands; the rig owns it, and nothing may be appended while it is in use.
static inline program *rig_program(rig *r, const char *name) {
  snprintf(r->p.name, sizeof r->p.name, "%s", name);
  r->p.at = r->at.at; r->p.n = r->at.n;
  r->p.bufs = r->bufs; r->p.n_bufs = r->n_bufs;
  r->p.vars = r->vars; r->p.n_vars = r->n_vars;
  r->p.tiles = uop_idx(r->g, 1);
  return &r->p;
}

// ---- back ends ------------------------------------------------------------------------------------------------------

typedef struct backend_kernel { kernel_fn *fn; code_image *image; void *library; } backend_kernel;

static inline void rig_fail(const char *what, const error *err, const char *source) {
  fprintf(stderr, "%s\n%s: %s\n", source ? source : "", what, err->text);
  abort();
}

static inline cpu_target rig_cpu(void) {
  cpu_target t = {0};
  error err = {0};
  if (cpu_target_from_env(&t, &err)) rig_fail("cpu", &err, NULL);
  return t;
}

// The range over tiles, which programs for processors alone have, or NULL.
static inline uop *rig_tiles(const program *p) {
  for (size_t i = 0; i < p->n; i++) if (p->at[i]->op == OP_RANGE && p->at[i]->b == AXIS_GLOBAL) return p->at[i];
  return NULL;
}

// The text that a back end's compiler would get.
static inline void rig_render(const program *p, const char *backend) {
  error err = {0};
  str text = {0};
  cpu_target t = rig_cpu();
  render_options o = cpu_render_options(&t);
  uop *tiles = !strcmp(backend, "ptx") ? rig_tiles(p) : NULL;       // a loop for a work-item
  if (tiles) tiles->b = AXIS_LOOP;
  int r = !strcmp(backend, "llvm")     ? render_llvm(p, &o, &text, &err)
        : !strcmp(backend, "opencl")   ? render_opencl(p, NULL, &text, &err)
        : !strcmp(backend, "metal")    ? render_metal(p, NULL, &text, &err)
        : !strcmp(backend, "vulkan")   ? render_spirv(p, NULL, &text, &err)
        : !strcmp(backend, "ptx")      ? render_nvptx(p, NULL, &text, &err)
                                       : render_c(p, NULL, &text, &err);
  if (tiles) tiles->b = AXIS_GLOBAL;
  if (r) rig_fail("render", &err, NULL);
  str_free(&text);
}

static inline backend_kernel rig_llvm(const program *p) {
  error err = {0};
  str text = {0};
  cpu_target t = rig_cpu();
  render_options o = cpu_render_options(&t);
  if (render_llvm(p, &o, &text, &err)) rig_fail("render", &err, NULL);
  bytes object;
  str assembly = {0};
  if (llvm_compile(str_c(&text), t.cpu, t.features, &object, getenv("RIG_ASM") ? &assembly : NULL, &err))
    rig_fail("llvm", &err, str_c(&text));
  if (getenv("RIG_ASM")) fprintf(stderr, "%s\n%s\n", str_c(&text), str_c(&assembly));
  code_blob blob;
  if (elf_link(object.at, object.n, &blob, &err)) rig_fail("link", &err, str_c(&text));
  backend_kernel k = {0};
  k.image = code_map(&(const code_blob *){&blob}, 1, &err);
  if (!k.image) rig_fail("map", &err, NULL);
  k.fn = (kernel_fn *)code_find(k.image, 0, p->name);
  if (!k.fn) rig_fail("find", &err, NULL);
  code_blob_free(&blob);
  bytes_free(&object);
  str_free(&text);
  str_free(&assembly);
  return k;
}

#ifndef RIG_CC_FLAGS
#define RIG_CC_FLAGS ""
#endif

// The C renderer's text through the system's compiler; with warnings as errors, so that the text stays clean.
static inline backend_kernel rig_cc(const program *p, const char *compiler) {
  error err = {0};
  str text = {0};
  if (render_c(p, NULL, &text, &err)) rig_fail("render", &err, NULL);
  char dir[] = "/tmp/weft-cc-XXXXXX", source[64], object[64], command[512];
  if (!mkdtemp(dir)) rig_fail("mkdtemp", &err, NULL);
  snprintf(source, sizeof source, "%s/k.c", dir);
  snprintf(object, sizeof object, "%s/k.so", dir);
  FILE *f = fopen(source, "w");
  if (!f || fwrite(str_c(&text), 1, text.n, f) != text.n || fclose(f)) rig_fail(source, &err, NULL);
  snprintf(command, sizeof command,
           "%s -std=c17 -Wall -Wextra -Werror %s -O%s -ffp-contract=off -fno-math-errno -shared -fPIC -o %s %s -lm",
           compiler, RIG_CC_FLAGS, getenv("RIG_CC_O") ? getenv("RIG_CC_O") : "1", object, source);
  if (getenv("RIG_ASM")) fprintf(stderr, "%s\n", str_c(&text));
  if (system(command)) { snprintf(err.text, sizeof err.text, "%s", command); rig_fail("failed", &err, str_c(&text)); }
  backend_kernel k = {0};
  k.library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
  if (!k.library) { snprintf(err.text, sizeof err.text, "%s", dlerror()); rig_fail("dlopen", &err, NULL); }
  void *fn = dlsym(k.library, p->name);
  memcpy(&k.fn, &fn, sizeof fn);
  unlink(source); unlink(object); rmdir(dir);
  str_free(&text);
  return k;
}

static inline void rig_drop(backend_kernel *k) {
  if (k->image) code_unmap(k->image);
  if (k->library) dlclose(k->library);
}

// Runs p through OpenCL C.  The device is opened by the first use and closed by nobody: drivers keep threads.
static inline void rig_opencl_as(const render_options *how, const program *p, unsigned char **bufs, const int64_t *vars,
                                 int64_t lo, int64_t hi) {
  static cl *device;
  error err = {0};
  str text = {0};
  if (!device && cl_open("", &device, &err)) rig_fail("opencl", &err, NULL);
  if (render_opencl(p, how, &text, &err)) rig_fail("render", &err, NULL);
  if (how && how->lacks_doubles && strstr(str_c(&text), "double")) rig_fail("a double", &err, str_c(&text));
  if (getenv("RIG_ASM")) fprintf(stderr, "%s\n", str_c(&text));
  cl_code *k = cl_compile(device, p, str_c(&text), &err);
  if (!k) rig_fail("opencl", &err, str_c(&text));
  if (cl_launch(k, bufs, NULL, vars, lo, hi, &err)) rig_fail("opencl", &err, str_c(&text));
  cl_code_free(k);
  str_free(&text);
}

static inline void rig_opencl(const program *p, unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi) {
  rig_opencl_as(NULL, p, bufs, vars, lo, hi);
}

// Mesa's llvmpipe, whose floats are IEEE's in every bit (a GPU's quotients need not be), with the validation layer if
// there is one, which judges every module; closed by nobody, as above. NULL: there is none, which is said once.
static inline vk *rig_vulkan_device(void) {
  static vk *device;
  static bool tried;
  error err = {0};
  if (tried) return device;
  tried = true;
  env_set(ENV_VK_VALIDATE, "1");
  if (vk_open("llvmpipe", &device, &err)) {
    env_set(ENV_VK_VALIDATE, "0");
    if (strstr(err.text, "validation layer")) print_message("%s\n", err.text);
    if (vk_open("llvmpipe", &device, &err)) print_message("skipped: no Vulkan: %s\n", err.text);
  }
  return device;
}

static inline vk_code *rig_vulkan_compile_with(const program *p, const render_options *o) {
  vk *d = rig_vulkan_device();
  error err = {0};
  str words = {0};
  if (render_spirv(p, o, &words, &err)) rig_fail("render", &err, NULL);
  if (getenv("RIG_SPV")) {                                         // for spirv-dis
    FILE *f = fopen(getenv("RIG_SPV"), "w");
    if (!f || fwrite(words.at, 1, words.n, f) != words.n || fclose(f)) rig_fail(getenv("RIG_SPV"), &err, NULL);
  }
  vk_code *k = vk_compile(d, p, p->n_bufs, (const uint32_t *)(const void *)words.at, words.n / 4, &err);
  if (!k) rig_fail("vulkan", &err, NULL);
  if (vk_complaints(d)) { error_set(&err, "%s", p->name); rig_fail("the validation layer complains of", &err, NULL); }
  str_free(&words);
  return k;
}

static inline vk_code *rig_vulkan_compile(const program *p) {
  render_options o = vk_render_options(rig_vulkan_device());
  return rig_vulkan_compile_with(p, &o);
}

// Runs p through SPIR-V, on one work-group for all tiles. without: bits of enum spirv_can that the device is not to
// have.
static inline void rig_vulkan_without(unsigned without, const program *p, unsigned char **bufs, const int64_t *vars,
                                      int64_t lo, int64_t hi) {
  error err = {0};
  render_options o = vk_render_options(rig_vulkan_device());
  o.spirv &= ~without;
  vk_code *k = rig_vulkan_compile_with(p, &o);
  if (vk_launch(k, bufs, NULL, vars, lo, hi, &err)) rig_fail("vulkan", &err, NULL);
  vk_code_free(k);
}

static inline void rig_vulkan(const program *p, unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi) {
  rig_vulkan_without(0, p, bufs, vars, lo, hi);
}

// What NVIDIA's driver would get, for the processor that reads it in its place (fake_cuda/ptx.c).
static inline ptx *rig_ptx_read(const program *p, const render_options *o) {
  error err = {0};
  str text = {0};
  bytes object = {0};
  char why[400];
  if (render_nvptx(p, o, &text, &err)) rig_fail("render", &err, NULL);
  if (llvm_compile_for("nvptx64-nvidia-cuda", str_c(&text), "sm_80", "", &object, NULL, &err))
    rig_fail("llvm", &err, str_c(&text));
  str_free(&text);
  str_addn(&text, (const char *)object.at, object.n);
  ptx *k = ptx_read(str_c(&text), why, sizeof why);
  if (!k) { error_set(&err, "%s", why); rig_fail("ptx", &err, str_c(&text)); }
  if (debug_level() >= 7) fprintf(stderr, "%s", str_c(&text));
  bytes_free(&object);
  str_free(&text);
  return k;
}

static struct { unsigned char *at[RIG_BUFS]; size_t size[RIG_BUFS]; int n; } rig_given;     // to the kernel that runs

static inline bool rig_may(uint64_t at, size_t n) {
  for (int i = 0; i < rig_given.n; i++) {
    uint64_t start = (uint64_t)(uintptr_t)rig_given.at[i];
    if (at >= start && n <= rig_given.size[i] && at - start <= rig_given.size[i] - n) return true;
  }
  return false;
}

// Runs p through PTX, in one item, for which the range over tiles is a loop. Buffers begin at multiples of 16 bytes
// there.
static inline void rig_ptx(const rig *r, const program *p, unsigned char **bufs, const int64_t *vars) {
  static const unsigned one[3] = {1, 1, 1};
  error err = {0};
  uint64_t params[RIG_BUFS + RIG_VARS];
  uop *tiles = rig_tiles(p);
  if (tiles) tiles->b = AXIS_LOOP;
  ptx *k = rig_ptx_read(p, NULL);
  if (tiles) tiles->b = AXIS_GLOBAL;
  rig_given.n = p->n_bufs;
  for (int b = 0; b < p->n_bufs; b++) {
    size_t n = rig_given.size[b] = (size_t)r->bufs[b].elems * (size_t)dtype_size(r->bufs[b].dt);
    rig_given.at[b] = aligned_alloc(16, round_up(n + 1, 16));
    memcpy(rig_given.at[b], bufs[b], n);
    params[b] = (uint64_t)(uintptr_t)rig_given.at[b];
  }
  for (int v = 0; v < p->n_vars; v++) params[p->n_bufs + v] = (uint64_t)vars[v];
  if (ptx_run(k, one, one, params, rig_may, err.text, sizeof err.text)) rig_fail("ptx", &err, NULL);
  for (int b = 0; b < p->n_bufs; b++) {
    memcpy(bufs[b], rig_given.at[b], rig_given.size[b]);
    free(rig_given.at[b]);
  }
  ptx_free(k);
}

// Runs p through Metal's language, one thread for all tiles.
static inline void rig_metal(const program *p, unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi) {
  error err = {0};
  str text = {0};
  int64_t all[RIG_VARS + 2] = {0};
  if (render_metal(p, NULL, &text, &err)) rig_fail("render", &err, NULL);
  if (getenv("RIG_ASM")) fprintf(stderr, "%s\n", str_c(&text));
  bool tiles = strstr(str_c(&text), "constant long *vars");
  metal_kernel *k = metal_compile(str_c(&text), p->name, p->n_bufs, tiles, err.text, sizeof err.text);
  if (!k) rig_fail("metal", &err, str_c(&text));
  for (int i = 0; i < p->n_vars; i++) all[i] = vars[i];
  all[p->n_vars] = lo;
  all[p->n_vars + 1] = hi;
  static const unsigned one[3] = {1, 1, 1};
  if (metal_run(k, one, one, (void **)bufs, all, false, err.text, sizeof err.text)) rig_fail("metal", &err, NULL);
  metal_kernel_free(k);
  str_free(&text);
}

// ---- numbers --------------------------------------------------------------------------------------------------------

static inline uint64_t rig_random(uint64_t *s) { return hash_u64((*s)++, 12345); }

// Are these two elements equal: bit for bit, except that any NaN equals any other?  ulps: how far floats may be apart.
static inline bool rig_same(enum dtype d, const unsigned char *x, const unsigned char *y, int64_t ulps) {
  int n = dtype_size(d);
  if (!memcmp(x, y, (size_t)n)) return true;
  if (d == DT_F32) {
    float a, b;
    int32_t i, j;
    memcpy(&a, x, 4); memcpy(&b, y, 4); memcpy(&i, x, 4); memcpy(&j, y, 4);
    return (a != a && b != b) || (ulps && (a < 0) == (b < 0) && llabs((long long)i - j) <= ulps);
  }
  if (d == DT_F64) {
    double a, b;
    int64_t i, j;
    memcpy(&a, x, 8); memcpy(&b, y, 8); memcpy(&i, x, 8); memcpy(&j, y, 8);
    return (a != a && b != b) || (ulps && (a < 0) == (b < 0) && llabs(i - j) <= ulps);
  }
  if (d == DT_F16) {
    uint16_t i, j;
    memcpy(&i, x, 2); memcpy(&j, y, 2);
    return (i & 0x7fff) > 0x7c00 && (j & 0x7fff) > 0x7c00;
  }
  return false;
}

// n elements: the values where arithmetic has edges, and random ones.
static inline void rig_fill(enum dtype d, unsigned char *p, int64_t n, uint64_t seed) {
  static const double floats[] = {0.0,  -0.0,  1,     -1,    0.5,      -0.5,      1.5,  -2.5,
                                  3,    7.75,  1e-3,  -1e-3, 100.25,   -127.5,    1e10, -1e10,
                                  1e30, -1e30, 1e-38, 1e-40, INFINITY, -INFINITY, NAN};
  for (int64_t i = 0; i < n; i++) {
    uint64_t v = rig_random(&seed);
    size_t size = (size_t)dtype_size(d);
    if (d == DT_BOOL) v &= 1;
    else if (dtype_is_float(d)) {
      double f = i % 3 ? floats[v % COUNT(floats)] : ((double)(int64_t)v / 0x1p60) * (double)(v % 50);
      float g = (float)f;
      uint16_t h = f16_from_double(f);
      if (d == DT_F64) memcpy(&v, &f, 8);
      if (d == DT_F32) { v = 0; memcpy(&v, &g, 4); }
      if (d == DT_F16) v = h;
    } else switch (v >> 60) {
      case 0: v = 0; break;
      case 1: v = 1; break;
      case 2: v = UINT64_MAX; break;
      case 3: v = (uint64_t)dtype_min(d); break;
      case 4: v = (uint64_t)dtype_max(d); break;
      case 5: case 6: v = v >> 8 & 15; break;
      default: break;
    }
    memcpy(p + (size_t)i * size, &v, size);      // little-endian
  }
}

enum {
  RIG_LLVM = 1,
  RIG_GCC = 2,
  RIG_CLANG = 4,
  RIG_CL = 8,
  RIG_METAL = 16,
  RIG_VK = 32,
  RIG_PTX = 64,
  RIG_CPU = RIG_LLVM | RIG_GCC,
  RIG_ALL = 127
};

static inline void rig_compare(const rig *r, unsigned char *const *want, unsigned char *const *got, int64_t ulps,
                               const char *backend) {
  int bad = 0;
  for (int b = 0; b < r->n_bufs; b++)
    for (int64_t i = 0; i < r->bufs[b].elems && bad < 10; i++) {
      size_t size = (size_t)dtype_size(r->bufs[b].dt);
      const unsigned char *x = want[b] + (size_t)i * size, *y = got[b] + (size_t)i * size;
      if (rig_same(r->bufs[b].dt, x, y, ulps)) continue;
      uint64_t vx = 0, vy = 0;
      memcpy(&vx, x, size);
      memcpy(&vy, y, size);
      fprintf(stderr, "%s: %s: buffer %d, element %lld: %llx, should be %llx\n", backend, r->p.name, b, (long long)i,
              (unsigned long long)vy, (unsigned long long)vx);
      bad++;
    }
  assert_int_equal(bad, 0);
}

typedef struct rig_call { unsigned char **bufs; const int64_t *vars; int64_t lo, hi; } rig_call;

static const char *const rig_names[] = {"llvm", "gcc", "clang", "opencl", "metal", "vulkan", "ptx"};

static inline void rig_run(const rig *r, const program *p, const char *backend, rig_call c) {
  if (!strcmp(backend, "opencl")) rig_opencl(p, c.bufs, c.vars, c.lo, c.hi);
  else if (!strcmp(backend, "metal")) rig_metal(p, c.bufs, c.vars, c.lo, c.hi);
  else if (!strcmp(backend, "vulkan")) rig_vulkan(p, c.bufs, c.vars, c.lo, c.hi);
  else if (!strcmp(backend, "ptx")) rig_ptx(r, p, c.bufs, c.vars);
  else {
    backend_kernel kernel = strcmp(backend, "llvm") ? rig_cc(p, backend) : rig_llvm(p);
    kernel.fn(c.bufs, c.vars, c.lo, c.hi);
    rig_drop(&kernel);
  }
}

// Runs the program on the back ends named in `on` and compares what all buffers hold afterwards with the interpreter's.
static inline void rig_check(rig *r, const char *name, const int64_t *vars, int64_t lo, int64_t hi, unsigned on,
                             int64_t ulps) {
  program *p = rig_program(r, name);
  unsigned char *start[RIG_BUFS], *want[RIG_BUFS], *got[RIG_BUFS];
  size_t size[RIG_BUFS];
  for (int b = 0; b < r->n_bufs; b++) {
    size[b] = (size_t)r->bufs[b].elems * (size_t)dtype_size(r->bufs[b].dt);
    start[b] = malloc(size[b]); want[b] = malloc(size[b]); got[b] = malloc(size[b]);
    rig_fill(r->bufs[b].dt, start[b], r->bufs[b].elems, 77 + (uint64_t)b);
    memcpy(want[b], start[b], size[b]);
  }
  ref_kernel *k = ref_compile(p);
  ref_run(k, want, vars, lo, hi);
  ref_free(k);
  for (int i = 0; i < (int)COUNT(rig_names); i++) {
    uop *tiles = 1 << i == RIG_PTX ? rig_tiles(p) : NULL;           // a work-item runs all of them
    bool part = tiles && (lo || !uop_is_int(tiles->src[0], hi));
    if (!(on >> i & 1) || part || (1 << i == RIG_VK && RIG_COMPUTES && !rig_vulkan_device())) continue;
    for (int b = 0; b < r->n_bufs; b++) memcpy(got[b], start[b], size[b]);
    if (!RIG_COMPUTES) { rig_render(p, rig_names[i]); continue; }
    rig_run(r, p, rig_names[i], (rig_call){got, vars, lo, hi});
    rig_compare(r, want, got, ulps, rig_names[i]);
  }
  for (int b = 0; b < r->n_bufs; b++) { free(start[b]); free(want[b]); free(got[b]); }
}
#endif
