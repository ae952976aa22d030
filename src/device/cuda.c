// Opens NVIDIA's driver library and loads kernels: see cuda.h.
#define _GNU_SOURCE
#include "device/cuda_impl.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "device/compiler.h"

enum { MOST_DEVICES = 16 };

int cuda_failed(const cuda *c, error *err, const char *what, cuda_status s) {
  const char *text = NULL;
  if (!c->GetErrorName || c->GetErrorName(s, &text) || !text) text = "error";
  return error_set(err, "CUDA: %s: %s: %s (%d)%s", *c->name ? c->name : "no device yet", what, text, s,
                   s == CUDA_NO_MEMORY ? "; a smaller model, context (-c) or chunk (-ub) needs less memory" : "");
}

// ---- opening --------------------------------------------------------------------------------------------------------

static int load_driver(cuda *c, error *err) {
  c->library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!c->library)
    return error_set(err, "CUDA needs NVIDIA's driver, and its library libcuda.so.1 is not here: install the driver "
                          "(nothing else of CUDA is needed)");
#define F(fn, symbol, arguments) \
  { void *p = dlsym(c->library, symbol); memcpy(&c->fn, &p, sizeof p); if (!p) return \
  error_set(err, "NVIDIA's driver lacks the function %s: a newer driver (470 or later) has it", symbol); }
  CUDA_FUNCTIONS(F)
#undef F
  return 0;
}

static int choose_gpu(cuda *c, error *err) {
  int n = 0;
  cuda_status s = c->Init(0);
  if (!s) s = c->DeviceGetCount(&n);
  if (s == CUDA_NO_DEVICE || (!s && !n))
    return error_set(
      err, "CUDA: NVIDIA's driver finds no GPU: does nvidia-smi list one, and may this process open /dev/nvidia*?");
  if (!s) s = c->DeviceGet(&c->device, 0);
  if (!s) s = c->DeviceGetName(c->name, sizeof c->name, c->device);
  c->name[sizeof c->name - 1] = 0;
  return s ? cuda_failed(c, err, "starting the driver", s) : 0;
}

static int attribute(cuda *c, int what, int *out) { return c->DeviceGetAttribute(out, what, c->device); }

static int ask_attributes(cuda *c, error *err) {
  int major = 0, minor = 0, one_addressing = 0;
  cuda_status s = attribute(c, CUDA_MAJOR, &major);
  if (!s) s = attribute(c, CUDA_MINOR, &minor);
  if (!s) s = attribute(c, CUDA_MOST_ITEMS, &c->gpu.max_items);
  if (!s) s = attribute(c, CUDA_SHARED_BYTES, &c->gpu.shared_bytes);
  if (!s) s = attribute(c, CUDA_UNITS, &c->units);
  if (!s) s = attribute(c, CUDA_L2_BYTES, &c->gpu.cache_bytes);
  if (!s) s = attribute(c, CUDA_ONE_ADDRESSING, &one_addressing);
  if (!s) s = c->DeviceTotalMem(&c->bytes, c->device);
  if (!s) s = c->DriverGetVersion(&c->driver);
  if (s) return cuda_failed(c, err, "asking what it is like", s);
  if (!one_addressing) return error_set(err, "CUDA: %s has addresses of its own, which Weft cannot use", c->name);
  c->gpu.capability = 10 * major + minor;
  return nvidia_choose(&c->gpu, "CUDA", c->name, err);
}

// Figures that the driver does not give stay unknown: they only rank candidates.
static void ask_figures(cuda *c) {
  gpu_figures *f = &c->gpu.figures;
  int khz = 0, memory_khz = 0, bits = 0;
  *f = (gpu_figures){.name = c->name};
  if (!attribute(c, CUDA_KHZ, &khz) && !attribute(c, CUDA_MEMORY_KHZ, &memory_khz) &&
      !attribute(c, CUDA_MEMORY_BITS, &bits) && !attribute(c, CUDA_UNIT_ITEMS, &f->items) &&
      !attribute(c, CUDA_UNIT_SHARED_BYTES, &f->shared) && !attribute(c, CUDA_UNIT_REGISTERS, &f->registers) &&
      khz > 0 && memory_khz > 0 && bits > 0 && f->items > 0 && f->shared > 0 && f->registers > 0)
    f->units = c->units;
  f->ghz = khz * 1e-6;
  f->gb_s = 2e-6 * memory_khz * bits / 8;
  nvidia_figures(&c->gpu);
}

int cuda_open(cuda **out, error *err) {
  cuda *c = xcalloc(1, sizeof *c);
  cuda_status s = 0;
  *out = NULL;
  if (load_driver(c, err) || choose_gpu(c, err) || ask_attributes(c, err)) { cuda_close(c); return -1; }
  ask_figures(c);
  s = c->DevicePrimaryCtxRetain(&c->context, c->device);
  if (!s) s = c->CtxSetCurrent(c->context);
  if (!s) s = c->StreamCreate(&c->stream, CUDA_STREAM_APART);
  if (s) { cuda_failed(c, err, "taking the device", s); cuda_close(c); return -1; }
  *out = c;
  return 0;
}

void cuda_close(cuda *c) {
  if (!c) return;
  if (c->stream) c->StreamDestroy(c->stream);
  if (c->context) c->DevicePrimaryCtxRelease(c->device);
  compiler_free(c->gpu.llvm);
  // The library stays loaded: drivers have threads and exit handlers that do not survive dlclose.
  remote_free(&c->memory);
  free(c);
}

int cuda_list(str *out, error *err) {
  cuda *c = xcalloc(1, sizeof *c);
  int n = 0, r = load_driver(c, err) || choose_gpu(c, err) || ask_attributes(c, err) ? -1 : 0;
  if (!r)
    str_addf(out, "%s, compute capability %d.%d, %.1f GiB, kernels for %s", c->name, c->gpu.capability / 10,
             c->gpu.capability % 10, (double)c->bytes / 0x1p30, c->gpu.sm);
  if (!r && c->DeviceGetCount(&n)) n = 1;
  for (int i = 1; i < n && i < MOST_DEVICES; i++) {
    cuda_device other;
    char name[128] = "";
    if (!c->DeviceGet(&other, i) && !c->DeviceGetName(name, sizeof name - 1, other))
      str_addf(out, "; not used: %s", name);
  }
  cuda_close(c);
  return r;
}

int cuda_enter(cuda *c, error *err) {
  cuda_status s = c->CtxSetCurrent(c->context);
  return s ? cuda_failed(c, err, "using the device", s) : 0;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

static void unload_module(remote_code *k) {
  cuda *c = ((cuda_code *)k)->c;
  turn_take(&c->memory.turn);
  cuda_enter(c, NULL);
  cuda_code_free((cuda_code *)k);
  turn_give(&c->memory.turn);
}

cuda_code *cuda_load(cuda *c, const program *p, int n_bufs, const char *ptx, error *err) {
  char log[800] = "";
  int options[] = {CUDA_LOG, CUDA_LOG_BYTES};
  void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
  cuda_code *k = xcalloc(1, sizeof *k);
  k->base = (remote_code){unload_module, n_bufs};
  k->c = c;
  cuda_status s = c->ModuleLoadDataEx(&k->module, ptx, COUNT(options), options, values);
  if (!s) s = c->ModuleGetFunction(&k->function, k->module, p->name);
  if (!s) return k;
  if (s == CUDA_PTX_TOO_NEW)
    error_set(err, "CUDA: %s: the driver is too old for its kernels (PTX for %s): a newer driver is needed", c->name,
              c->gpu.sm);
  else if (s == CUDA_BAD_PTX && *log) error_set(err, "CUDA: %s does not assemble: %s", p->name, log);
  else cuda_failed(c, err, p->name, s);
  cuda_code_free(k);
  return NULL;
}

void cuda_code_free(cuda_code *k) {
  if (!k) return;
  if (k->module) k->c->ModuleUnload(k->module);
  free(k);
}
