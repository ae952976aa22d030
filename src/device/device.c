// The table of devices, the simple ones (REF, the interpreter, and NULL), and memory of a device. See device.h; the CPU
// is in cpu.c, plans in plan.c.
#include "device/device.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/attempt.h"
#include "base/env.h"
#include "device/ask_driver.h"
#include "device/cache.h"
#include "device/cpu.h"
#include "device/cuda.h"
#include "device/host.h"
#include "device/metal.h"
#include "device/nv.h"
#include "device/opencl.h"
#include "device/plan_impl.h"
#include "device/ref.h"
#include "device/team.h"
#include "device/vulkan.h"
#include "render/render.h"

static int ref_make(device *d, device_kernel *k, error *err) {
  (void)d; (void)err;
  k->ref = ref_compile(k->p);
  return 0;
}

static int ref_start(device *d, error *err) {
  (void)err;
  d->target = ref_target;
  d->compile = ref_make;
  return 0;
}

static int null_make(device *d, device_kernel *k, error *err) { (void)d; (void)k; (void)err; return 0; }

// Shows the kernels of a device that need not be present, as texts that are not compiled.
static int rendered_show(device *d, const program *p, str *source, str *assembly, error *err) {
  const renderer *of = render_find(d->target.name);
  str text = {0};
  (void)assembly;
  int r = render_text(of->render, p, NULL, &text, err);
  if (!r && of->is_binary) render_words(source, &text);
  else if (!r) str_addn(source, str_c(&text), text.n);
  str_free(&text);
  return r;
}

static int rendered_make(device *d, device_kernel *k, error *err) {
  str source = {0};
  int r = rendered_show(d, k->p, &source, NULL, err);
  if (!r && debug_level() >= 4) fprintf(stderr, "--- source of %s\n%s\n", k->p->name, str_c(&source));
  str_free(&source);
  return r;
}

static int null_start(device *d, error *err) {
  const renderer *r = render_find(env_str(ENV_RENDER));
  (void)err;
  d->target = (target){.name = "null", .vector_bytes = 64, .has_fma = true, .has_f16 = true};
  d->compile = null_make;
  bool c = r && !strcmp(r->name, "c");              // as plain C: for no specific machine, without vectors
  if (!r || !(c || r->target.has_local)) return 0;
  d->target = r->target;
  if (c) d->target.vector_bytes = 0;
  d->compile = rendered_make;
  d->show = rendered_show;
  return 0;
}

static int name_processors(str *out, error *err) {
  (void)err;
  str_add(out, "this machine's processors");
  return 0;
}

static int interpreter(str *out, error *err) {
  (void)err;
  str_add(out, "an interpreter in double precision");
  return 0;
}

static int name_nothing(str *out, error *err) {
  (void)err;
  str_add(out, "compiles and counts only");
  return 0;
}

// several: NAME:WHICH selects one; driver: listing devices queries a driver
static const struct {
  const char *name;
  int (*start)(device *, error *);
  driver_list *list;
  bool several, driver;
} table[] = {
  {"CPU", cpu_start, name_processors, false, false}, {"CL", cl_start, cl_list, true, true},
  {"CUDA", cuda_start, cuda_list, false, true},      {"NV", nv_start, nv_list, false, true},
  {"METAL", metal_start, metal_list, false, true},   {"VK", vk_start, vk_list, true, true},
  {"REF", ref_start, interpreter, false, false},     {"NULL", null_start, name_nothing, false, false},
};

bool device_known(size_t i, const char **name, str *found, error *why) {
  if (i >= COUNT(table)) return false;
  *name = table[i].name;
  if (table[i].driver) ask_driver(table[i].list, found, why);
  else table[i].list(found, why);
  return true;
}

struct starting { device *d; int (*start)(device *, error *); error *err; int status; };

static void start_device(void *ctx) {
  struct starting *s = ctx;
  s->status = s->start(s->d, s->err);
}

// If an invariant breaks during the start, the device can still be closed.
static int start_guarded(device *d, int (*fn)(device *, error *), error *err) {
  struct starting s = {d, fn, err, -1};
  return attempt(ATTEMPT_LEAVES, start_device, &s, err) ? -1 : s.status;
}

int device_open(int n_threads, int n_prompt, device **out, error *err) {
  return device_open_named(env_str(ENV_DEV), n_threads, n_prompt, out, err);
}

int device_open_named(const char *want, int n_threads, int n_prompt, device **out, error *err) {
  for (size_t i = 0; i < COUNT(table); i++) {
    size_t length = strlen(table[i].name);
    if (strncmp(want, table[i].name, length) || (want[length] && want[length] != ':')) continue;
    if (want[length] && !table[i].several)
      return error_set(err, "DEV=%s: only devices of OpenCL and Vulkan are named so: DEV=CL:NAME or DEV=VK:NUMBER",
                       want);
    device *d = xcalloc(1, sizeof *d);
    d->process = getpid();
    d->name = table[i].name;
    d->which = want + length + (want[length] != 0);
    d->run = &host_runtime;
    d->team = d->prompt_team = team_new(n_threads, err);
    if (!d->team || start_guarded(d, table[i].start, err)) { device_close(d); return -1; }
    d->n_threads = team_size(d->team);
    if (n_prompt && n_prompt != d->n_threads && !(d->prompt_team = team_new(n_prompt, err))) {
      device_close(d);
      return -1;
    }
    *out = d;
    return 0;
  }
  return error_set(
    err,
    "DEV=%s is not a device that can run models (known: CPU, CL, CL:NAME, CUDA, NV, METAL, VK, VK:NAME, REF, NULL)",
    want);
}

void device_close(device *d) {
  if (!d) return;
  cache_close(d->cache);
  if (d->prompt_team != d->team) team_free(d->prompt_team);
  team_free(d->team);
  if (d->stop) d->stop(d);
  else free(d->state);
  free(d);
}

// --- memory ---------------------------------------------------------------------------------------------------------

static pthread_mutex_t lost_lock = PTHREAD_MUTEX_INITIALIZER;      // of device.lost, of all devices

// Records the first failure: a lost device fails at everything that follows.
void device_note(device *d, int r, const error *e) {
  if (!r) return;
  pthread_mutex_lock(&lost_lock);
  if (!*d->lost.text) d->lost = *e;
  pthread_mutex_unlock(&lost_lock);
}

void device_hold(device *d) { if (d->run->hold) d->run->hold(d); }
void device_let_go(device *d) { if (d->run->let_go) d->run->let_go(d); }

void *device_alloc(device *d, uint64_t size, enum pages pages, error *err) {
  return d->run->alloc(d, size, pages, err);
}
void device_release(device *d, void *at, uint64_t size) { if (at) d->run->release(d, at, size); }

uint64_t device_room(const device *d) { return d->run->room ? d->run->room(d) : UINT64_MAX; }

void device_write(device *d, void *to, const void *from, size_t n) {
  error e = {0};
  device_note(d, d->run->write(d, to, from, n, &e), &e);
}

void device_read(device *d, void *to, const void *from, size_t n) {
  error e = {0};
  device_note(d, d->run->read(d, to, from, n, &e), &e);
}

void device_copy(device *d, void *to, const void *from, size_t n) {
  error e = {0};
  device_note(d, d->run->copy(d, to, from, n, &e), &e);
}

void device_fill(device *d, void *to, unsigned char value, size_t n) {
  error e = {0};
  device_note(d, d->run->fill(d, to, value, n, &e), &e);
}

int device_owned(const device *d, error *err) {
  if (d->process == getpid()) return 0;
  return error_set(err, "this process was forked from the one that opened the model, and has neither its threads nor "
                        "its memory: open the model again");
}

int device_check(const device *d, error *err) {
  if (device_owned(d, err)) return -1;
  pthread_mutex_lock(&lost_lock);
  int status = *d->lost.text ? error_set(err, "%s", d->lost.text) : 0;
  pthread_mutex_unlock(&lost_lock);
  return status;
}
