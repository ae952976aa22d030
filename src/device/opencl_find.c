// The devices of OpenCL: lists them, selects the one that DEV names, and probes its compiler.
//
// All devices of all drivers are in one list: GPUs, then processors, then others. They are numbered in this order, and
// the first one is the default. DEV=CL:2 is a number, DEV=CL:intel a part of a name, ignoring case.
//
// Some compilers crash on vectors that they do not support, so a child process probes them. It is forked before this
// device loads its driver (another device of the process may have loaded one), and waits until the parent knows that
// its cache has no answer. If the child dies or gives no answer, the answer is no. Look next: opencl.c.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/child.h"
#include "base/env.h"
#include "base/message.h"
#include "base/plain.h"
#include "device/cache.h"
#include "device/entry_kinds.h"
#include "device/opencl_impl.h"

int cl_load_loader(cl *d, error *err) {
  d->library = dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!d->library)
    return error_set(
      err, "OpenCL needs its loader, libOpenCL.so.1: install ocl-icd-libopencl1 and a driver such as pocl-opencl-icd");
#define F(fn) \
  { void *p = dlsym(d->library, "cl" #fn); memcpy(&d->fn, &p, sizeof p); if (!p) return \
  error_set(err, "the OpenCL loader lacks cl" #fn); }
  CL_FUNCTIONS(F)
#undef F
  return 0;
}

// ---- which there are ------------------------------------------------------------------------------------------------

enum { MOST_DRIVERS = 16, MOST_DEVICES = 16 };

// name: "driver: device"
typedef struct found { cl_device_id id; cl_device_type type; char name[256]; } found;
typedef struct found_list { found *at; size_t n, cap; } found_list;

static const char *type_name(cl_device_type t) {
  return t & CL_DEVICE_TYPE_GPU ? "GPU" : t & CL_DEVICE_TYPE_CPU ? "CPU" : "accelerator";
}

static bool has_compiler(const cl *d, cl_device_id id) {
  cl_bool available = CL_FALSE, compiler = CL_FALSE;
  d->GetDeviceInfo(id, CL_DEVICE_AVAILABLE, sizeof available, &available, NULL);
  d->GetDeviceInfo(id, CL_DEVICE_COMPILER_AVAILABLE, sizeof compiler, &compiler, NULL);
  return available && compiler;
}

static bool has_found(const found_list *l, cl_device_id id) {
  for (size_t i = 0; i < l->n; i++) if (l->at[i].id == id) return true;
  return false;
}

static void find_of_type(const cl *d, cl_platform_id driver, cl_device_type type, found_list *out) {
  cl_device_id ids[MOST_DEVICES];
  cl_uint n = 0;
  if (d->GetDeviceIDs(driver, type, COUNT(ids), ids, &n)) return;
  for (cl_uint i = 0; i < n && i < COUNT(ids); i++) {
    found f = {.id = ids[i], .type = type};
    char platform[120] = "", name[120] = "";
    if (has_found(out, ids[i]) || !has_compiler(d, ids[i])) continue;   // a device may have several types
    d->GetPlatformInfo(driver, CL_PLATFORM_NAME, sizeof platform, platform, NULL);
    d->GetDeviceInfo(ids[i], CL_DEVICE_NAME, sizeof name, name, NULL);
    platform[sizeof platform - 1] = name[sizeof name - 1] = 0;
    snprintf(f.name, sizeof f.name, "%s: %s", platform, name);
    vec_push(out, f);
  }
}

// The caller frees out->at.
static int find_all(const cl *d, found_list *out, error *err) {
  static const cl_device_type order[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_ACCELERATOR};
  cl_platform_id drivers[MOST_DRIVERS];
  cl_uint n = 0;
  cl_int r = d->GetPlatformIDs(COUNT(drivers), drivers, &n);
  if (r || !n)
    return error_set(err, "OpenCL: no driver is installed (%d): install one, such as pocl-opencl-icd", (int)r);
  for (size_t t = 0; t < COUNT(order); t++)
    for (cl_uint i = 0; i < n && i < COUNT(drivers); i++) find_of_type(d, drivers[i], order[t], out);
  if (out->n) return 0;
  return error_set(err, "OpenCL: %u driver%s, but no device that compiles kernels", n, n == 1 ? "" : "s");
}

// ---- which one is meant ---------------------------------------------------------------------------------------------

static void name_found(str *out, const found_list *l, size_t i) {
  str_addf(out, "%s (%s, number %zu)", l->at[i].name, type_name(l->at[i].type), i);
}

static int unknown_device(const char *which, const found_list *l, error *err) {
  str all = {0};
  for (size_t i = 0; i < l->n; i++) {
    if (i) str_add(&all, "; ");
    name_found(&all, l, i);
  }
  error_set(err, "DEV=CL:%s is no device of OpenCL here; there %s %s", which, l->n == 1 ? "is" : "are", str_c(&all));
  str_free(&all);
  return -1;
}

// The device's number, or -1 and err with all devices.
static int number_named(const char *which, const found_list *l, error *err) {
  if (!*which) return 0;
  if (!which[strspn(which, "0123456789")]) {
    unsigned long n = strtoul(which, NULL, 10);
    if (n < l->n) return (int)n;
    if (n < 100) return unknown_device(which, l, err);       // a larger number may be part of a name: "4090"
  }
  for (size_t i = 0; i < l->n; i++) if (ascii_casestr(l->at[i].name, which)) return (int)i;
  return unknown_device(which, l, err);
}

int cl_choose(cl *d, const char *which, error *err) {
  found_list all = {0};
  d->number = find_all(d, &all, err) ? -1 : number_named(which, &all, err);
  if (d->number >= 0) {
    d->device = all.at[d->number].id;
    snprintf(d->name, sizeof d->name, "%s", all.at[d->number].name);
  }
  free(all.at);
  return d->number < 0 ? -1 : 0;
}

int cl_list(str *out, error *err) {
  const char *dev = env_str(ENV_DEV), *which = strncmp(dev, "CL:", 3) ? "" : dev + 3;
  cl *d = xcalloc(1, sizeof *d);
  found_list all = {0};
  int chosen = cl_load_loader(d, err) || find_all(d, &all, err) ? -1 : number_named(which, &all, err);
  if (chosen >= 0) name_found(out, &all, (size_t)chosen);
  for (size_t i = 0; i < all.n && chosen >= 0; i++) {
    if ((int)i == chosen) continue;
    str_add(out, "; not used: ");
    name_found(out, &all, i);
  }
  free(all.at);
  free(d);
  return chosen < 0 ? -1 : 0;
}

// ---- what its compiler supports -------------------------------------------------------------------------------------

// Compilers based on clang support vectors of any size: the probe compiles what the renderer would write.
static bool knows_wide_vectors(const cl *d) {
  const char *text =
    "typedef uchar uchar64_at __attribute__((ext_vector_type(64), aligned(1)));\n"
    "__kernel void probe(__global uchar *p) { *(__global uchar64_at *)p = __builtin_shufflevector(*(__global "
    "uchar64_at *)(p + 1), *(__global uchar64_at *)p, "
    "63, 62, 61, 60, 0, 1, 2, 3, 63, 62, 61, 60, 0, 1, 2, 3, 63, 62, 61, 60, 0, 1, 2, 3, 63, 62, 61, 60, 0, 1, 2, 3, "
    "63, 62, 61, 60, 0, 1, 2, 3, 63, 62, 61, 60, 0, 1, 2, 3, 63, 62, 61, 60, 0, 1, 2, 3, 63, 62, 61, 60, 0, 1, 2, 3); "
    "}\n";
  cl_context context = d->CreateContext(NULL, 1, &d->device, NULL, NULL, NULL);
  cl_program p = context ? d->CreateProgramWithSource(context, 1, &text, NULL, NULL) : NULL;
  return p && !d->BuildProgram(p, 1, &d->device, "-w", NULL, NULL);
}

struct cl_probe { child_process *child; int fd, its; };

enum { ANSWER_S = 120, YES = 'y', NO = 'n' };

// Waits for the number of the device; end of file means that no answer is needed. Skips the exit handlers of drivers.
static void be_the_probe(void *ctx) {
  int fd = ((cl_probe *)ctx)->its, number;
  cl d = {0};
  char which[16], answer = NO;
  child_begin("weft-opencl", &fd, 1);
  if (!message_receive(fd, &number, sizeof number)) _exit(0);
  snprintf(which, sizeof which, "%d", number);
  if (!cl_load_loader(&d, NULL) && !cl_choose(&d, which, NULL) && knows_wide_vectors(&d)) answer = YES;
  _exit(message_send(fd, &(struct iovec){&answer, 1}, 1) ? 0 : 3);
}

cl_probe *cl_probe_begin(void) {
  int pair[2];
  cl_probe *p = xcalloc(1, sizeof *p);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) { free(p); return NULL; }
  *p = (cl_probe){.fd = pair[0], .its = pair[1]};
  bool made = !child_make(be_the_probe, p, &p->child);
  close(p->its);
  if (made) return p;
  close(p->fd);
  free(p);
  return NULL;
}

void cl_probe_end(cl_probe *p) {
  int status;
  struct rusage used;
  if (!p) return;
  close(p->fd);
  child_end(p->child, 0, &status, &used);
  free(p);
}

static char ask_probe(const cl *d, const cl_probe *p) {
  struct timeval most = {.tv_sec = ANSWER_S};
  char answer = 0;
  setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  int number = d->number;
  if (message_send(p->fd, &(struct iovec){&number, sizeof number}, 1) && message_receive(p->fd, &answer, 1))
    return answer;
  return NO;
}

bool cl_knows_wide_vectors(const cl *d, cl_probe *p, cache *kept) {
  str key = {0};
  bytes value = {0};
  char answer = 0;
  entry_key_begin(ENTRY_MACHINE, &key);
  str_addf(&key, "opencl wide vectors\n%s\n%s\n", d->name, d->driver);
  if (cache_get(kept, key.at, key.n, &value) && value.n == 1) answer = (char)*value.at;
  else if (p) {
    answer = ask_probe(d, p);
    cache_put(kept, key.at, key.n, &answer, 1);
  }
  bytes_free(&value);
  str_free(&key);
  return answer == YES;
}
