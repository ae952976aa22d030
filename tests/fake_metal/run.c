// Runs kernels in the Metal Shading Language: see run.h.
//
// Each thread of a threadgroup has a stack of its own; it runs until it waits for others, or ends. Those that wait at a
// barrier go on when all of the threadgroup do, those at an exchange when all of their SIMD-group do. Kernels that
// never wait are called as they are.
#define _GNU_SOURCE
#include "fake_metal/run.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include "base/str.h"

enum { MOST_THREADS = 1024, STACK = 1 << 18, SIMD = 32 };
enum state { READY, AT_BARRIER, AT_EXCHANGE, DONE };

typedef struct hooks { void (*barrier)(void); unsigned (*exchange)(unsigned bits, unsigned mask); } hooks;
typedef void entry_fn(void *const *bufs, const long *vars, const unsigned *group, const unsigned *item);

struct metal_kernel {
  void *library;
  entry_fn *entry;
  void (*spoil)(void);
  bool waits;
};

typedef struct fiber { ucontext_t at; enum state state; unsigned bits, mask, item[3]; } fiber;

static fiber fibers[MOST_THREADS], *running;
static ucontext_t scheduler;
static char *stacks;
static struct { const metal_kernel *k; void *const *bufs; const long *vars; const unsigned *group; } now;

static const char *metal_compiler(void) {
  static const char *const names[] = {"clang++-15", "clang++-14", "clang++"};
  static const char *found;
  for (size_t i = 0; i < COUNT(names) && !found; i++) {
    char command[64];
    snprintf(command, sizeof command, "%s --version >/dev/null 2>&1", names[i]);
    if (!system(command)) found = names[i];
  }
  return found;
}

static void wait_as(enum state s) {
  running->state = s;
  swapcontext(&running->at, &scheduler);
}
static void at_barrier(void) { wait_as(AT_BARRIER); }
static unsigned exchange_bits(unsigned bits, unsigned mask) {
  running->bits = bits;
  running->mask = mask;
  wait_as(AT_EXCHANGE);
  return running->bits;
}

static int build(const char *text, size_t n, char *object, char *why, size_t cap) {
  char dir[] = "/tmp/weft-metal-XXXXXX", source[64], command[512];
  if (!metal_compiler()) { snprintf(why, cap, "no clang++: scripts/setup.sh test installs it"); return -1; }
  if (!mkdtemp(dir)) { snprintf(why, cap, "mkdtemp"); return -1; }
  snprintf(source, sizeof source, "%s/k.cpp", dir);
  snprintf(object, 64, "%s/k.so", dir);
  FILE *f = fopen(source, "w");
  int r = !f || fwrite(text, 1, n, f) != n;
  if (f) r |= fclose(f);
  snprintf(command, sizeof command,
           "%s -std=c++14 -O1 -Wall -Werror -Wno-unknown-attributes -Wno-unused-variable -Wno-self-assign "
           "-Wno-parentheses-equality -Wno-tautological-compare -Wno-bitwise-instead-of-logical -ffp-contract=off "
           "-fno-strict-aliasing -fsanitize=alignment -fsanitize-trap=alignment -I " WEFT_SOURCE_DIR
           "/tests/fake_metal -shared -fPIC -o %s %s -lm",
           metal_compiler(), object, source);
  if (!r) r = system(command);
  if (r) snprintf(why, cap, "%s", command);
  unlink(source);
  return r ? -1 : 0;
}

metal_kernel *metal_compile(const char *text, const char *name, int n_bufs, int n_vars, char *why, size_t cap) {
  str all = {0};
  char object[64] = "";
  str_addf(&all,
           "%s\nextern \"C\" void metal_entry(void *const *b, const long *v, const uint *g, const uint *i) {\n  %s(",
           text, name);
  for (int b = 0; b < n_bufs; b++) str_addf(&all, "metal_any{b[%d]}, ", b);
  str_addf(&all, "%suint3{g[0], g[1], g[2]}, uint3{i[0], i[1], i[2]});\n}\n", n_vars ? "v, " : "");
  int r = build(str_c(&all), all.n, object, why, cap);
  str_free(&all);
  void *library = r ? NULL : dlopen(object, RTLD_NOW | RTLD_LOCAL);
  if (*object) {
    unlink(object);
    *strrchr(object, '/') = 0;
    rmdir(object);
  }
  if (!library) {
    if (!r) snprintf(why, cap, "%s", dlerror());
    return NULL;
  }
  metal_kernel *k = xcalloc(1, sizeof *k);
  void *entry = dlsym(library, "metal_entry"), *spoil = dlsym(library, "metal_spoil");
  hooks *h = dlsym(library, "metal_hooks");
  *h = (hooks){at_barrier, exchange_bits};
  k->library = library;
  memcpy(&k->entry, &entry, sizeof entry);
  memcpy(&k->spoil, &spoil, sizeof spoil);
  k->waits = strstr(text, "threadgroup_barrier(") || strstr(text, "simd_shuffle_xor(");
  return k;
}

void metal_kernel_free(metal_kernel *k) {
  if (!k) return;
  dlclose(k->library);
  free(k);
}

static void fiber_main(void) {
  now.k->entry(now.bufs, now.vars, now.group, running->item);
  running->state = DONE;
}

static void start_fiber(fiber *f, size_t number) {
  f->state = READY;
  getcontext(&f->at);
  f->at.uc_stack.ss_sp = stacks + number * STACK;
  f->at.uc_stack.ss_size = STACK;
  f->at.uc_link = &scheduler;
  makecontext(&f->at, fiber_main, 0);
}

// Lets those go on that have all come. Whether there are any.
static bool release(unsigned n, char *why, size_t cap) {
  unsigned at_barriers = 0;
  bool any = false;
  for (unsigned i = 0; i < n; i++) at_barriers += fibers[i].state == AT_BARRIER;
  for (unsigned i = 0; i < n && at_barriers == n; i++) fibers[i].state = READY;
  if (at_barriers == n) return true;
  for (unsigned first = 0; first < n; first += SIMD) {
    unsigned end = first + SIMD < n ? first + SIMD : n, bits[SIMD], come = 0;
    for (unsigned i = first; i < end; i++)
      come += fibers[i].state == AT_EXCHANGE && fibers[i].mask == fibers[first].mask;
    if (come < end - first) continue;
    for (unsigned i = first; i < end; i++) {
      unsigned other = first + ((i - first) ^ fibers[i].mask);
      if (other >= end) { snprintf(why, cap, "thread %u exchanges with one that is not there", i); return false; }
      bits[i - first] = fibers[other].bits;
    }
    for (unsigned i = first; i < end; i++) { fibers[i].bits = bits[i - first]; fibers[i].state = READY; }
    any = true;
  }
  if (!any) snprintf(why, cap, "not all threads reach a barrier or an exchange (%u of %u are at a barrier)",
                     at_barriers, n);
  return any;
}

static int run_group(unsigned n, bool backwards, char *why, size_t cap) {
  for (unsigned i = 0; i < n; i++) start_fiber(&fibers[i], i);
  for (;;) {
    unsigned done = 0;
    for (unsigned i = 0; i < n; i++) {
      running = &fibers[backwards ? n - 1 - i : i];
      if (running->state == READY) swapcontext(&scheduler, &running->at);
    }
    for (unsigned i = 0; i < n; i++) done += fibers[i].state == DONE;
    if (done == n) return 0;
    if (!release(n, why, cap)) return -1;
  }
}

int metal_run(const metal_kernel *k, const unsigned grid[3], const unsigned block[3], void *const *bufs,
              const int64_t *vars, bool backwards, char *why, size_t cap) {
  unsigned n = block[0] * block[1] * block[2], groups = grid[0] * grid[1] * grid[2];
  if (!n || n > MOST_THREADS) { snprintf(why, cap, "%u threads in a threadgroup", n); return -1; }
  if (!stacks) {
    stacks = mmap(NULL, (size_t)MOST_THREADS * STACK, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) die("mmap");
  }
  for (unsigned i = 0; i < n; i++) {
    fibers[i].item[0] = i % block[0];
    fibers[i].item[1] = i / block[0] % block[1];
    fibers[i].item[2] = i / block[0] / block[1];
  }
  for (unsigned j = 0; j < groups; j++) {
    unsigned g = backwards ? groups - 1 - j : j, group[3] = {g % grid[0], g / grid[0] % grid[1], g / grid[0] / grid[1]};
    now.k = k;
    now.bufs = bufs;
    now.vars = (const long *)vars;
    now.group = group;
    k->spoil();
    if (k->waits) {
      if (run_group(n, backwards, why, cap)) return -1;
      continue;
    }
    for (unsigned i = 0; i < n; i++) k->entry(bufs, now.vars, group, fibers[backwards ? n - 1 - i : i].item);
  }
  return 0;
}
