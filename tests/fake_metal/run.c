// Runs kernels in the Metal Shading Language: see run.h.
//
// Each thread of a threadgroup has a stack of its own; it runs until it waits for others, or ends. Those that wait at a
// barrier go on when all of the threadgroup do, those at an exchange when all of their SIMD-group do. Kernels that
// never wait are called as they are.
//
// Compiled kernels are kept in the folder WEFT_TEST_KERNELS, if that is set, under a hash of their text and of the
// command that compiled it: the tests of one run compile a kernel once.
#undef _FORTIFY_SOURCE               // its longjmp takes a jump to another stack for a mistake
#define _GNU_SOURCE
#include "fake_metal/run.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include "base/sha256.h"
#include "base/str.h"

enum { MOST_THREADS = 1024, STACK = 1 << 18, SIMD = 32, PATH = 512 };
enum state { READY, AT_BARRIER, AT_EXCHANGE, DONE };

typedef struct hooks { void (*barrier)(void); unsigned (*exchange)(unsigned bits, unsigned mask); } hooks;
typedef void entry_fn(void *const *bufs, const long *vars, const unsigned *group, const unsigned *item);

struct metal_kernel {
  void *library;
  entry_fn *entry;
  void (*spoil)(void);
  bool waits;
};

// A thread. Its context is made once (started); after that it is left and entered by jumps, which make no system calls.
typedef struct fiber { jmp_buf at; enum state state; bool started; unsigned bits, mask, item[3]; } fiber;

static fiber fibers[MOST_THREADS], *running;
static jmp_buf scheduler;
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
  if (!_setjmp(running->at)) _longjmp(scheduler, 1);
}
static void at_barrier(void) { wait_as(AT_BARRIER); }
static unsigned exchange_bits(unsigned bits, unsigned mask) {
  running->bits = bits;
  running->mask = mask;
  wait_as(AT_EXCHANGE);
  return running->bits;
}

// What compiles k.cpp to k.o in the folder where it runs, and links it: nothing but what the kernel itself has, whose
// calls of libm the program answers.
static const char compile[] =
  "%s -c -std=c++14 -O0 -Wall -Werror -Wno-unknown-attributes -Wno-unused-variable -Wno-self-assign "
  "-Wno-parentheses-equality -Wno-tautological-compare -Wno-bitwise-instead-of-logical -ffp-contract=off "
  "-fno-strict-aliasing -fsanitize=alignment -fsanitize-trap=alignment -I " WEFT_SOURCE_DIR
  "/tests/fake_metal -fPIC -o %s/k.o %s/k.cpp && ld -shared -o %s/k.so %s/k.o";

// Makes k.so in the folder.
static int build(const str *text, const char *dir, char *why, size_t cap) {
  char source[PATH + 16], command[4 * PATH + sizeof compile];
  snprintf(source, sizeof source, "%s/k.cpp", dir);
  FILE *f = fopen(source, "w");
  int r = !f || fwrite(text->at, 1, text->n, f) != text->n;
  if (f) r |= fclose(f);
  snprintf(command, sizeof command, compile, metal_compiler(), dir, dir, dir, dir);
  if (!r) r = system(command);
  if (r) snprintf(why, cap, "%s", command);
  return r ? -1 : 0;
}

// Where a kernel of this text is kept: false where none is.
static bool kept_as(const str *text, const char *folder, char *path, size_t cap) {
  static char header[1 << 14];
  static size_t n;
  sha256 of;
  char name[65];
  if (!folder) return false;
  if (!n) {
    FILE *f = fopen(WEFT_SOURCE_DIR "/tests/fake_metal/metal_stdlib", "r");
    n = f ? fread(header, 1, sizeof header, f) : 0;
    if (f) fclose(f);
    if (!n || n == sizeof header) die("tests/fake_metal/metal_stdlib: cannot be read, or is too large");
  }
  sha256_begin(&of);
  sha256_add(&of, header, n);
  sha256_add(&of, compile, sizeof compile);
  sha256_add(&of, metal_compiler(), strlen(metal_compiler()));
  sha256_add(&of, text->at, text->n);
  sha256_end(&of, name);
  snprintf(path, cap, "%s/metal-%s.so", folder, name);
  return true;
}

static void *compiled(const str *text, char *why, size_t cap) {
  const char *folder = getenv("WEFT_TEST_KERNELS");
  char dir[PATH], made[PATH + 16], kept[PATH];
  if (!metal_compiler()) { snprintf(why, cap, "no clang++: scripts/setup.sh test installs it"); return NULL; }
  bool keeps = kept_as(text, folder, kept, sizeof kept);
  void *library = keeps ? dlopen(kept, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library) return library;
  snprintf(dir, sizeof dir, "%s/weft-metal-XXXXXX", keeps ? folder : "/tmp");
  if (!mkdtemp(dir)) { snprintf(why, cap, "%s: cannot be made", dir); return NULL; }
  snprintf(made, sizeof made, "%s/k.so", dir);
  if (!build(text, dir, why, cap)) {
    const char *object = keeps && !rename(made, kept) ? kept : made;
    library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!library) snprintf(why, cap, "%s", dlerror());
  }
  static const char *const names[] = {"k.cpp", "k.o", "k.so"};
  for (int i = 0; i < 3; i++) {
    snprintf(made, sizeof made, "%s/%s", dir, names[i]);
    unlink(made);
  }
  rmdir(dir);
  return library;
}

metal_kernel *metal_compile(const char *text, const char *name, int n_bufs, int n_vars, char *why, size_t cap) {
  str all = {0};
  str_addf(&all,
           "%s\nextern \"C\" void metal_entry(void *const *b, const long *v, const uint *g, const uint *i) {\n  %s(",
           text, name);
  for (int b = 0; b < n_bufs; b++) str_addf(&all, "metal_any{b[%d]}, ", b);
  str_addf(&all, "%suint3{g[0], g[1], g[2]}, uint3{i[0], i[1], i[2]});\n}\n", n_vars ? "v, " : "");
  void *library = compiled(&all, why, cap);
  str_free(&all);
  if (!library) return NULL;
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

// Runs the kernels' threads on this stack, one after the other.
static void fiber_main(void) {
  for (;;) {
    now.k->entry(now.bufs, now.vars, now.group, running->item);
    wait_as(DONE);
  }
}

// Runs `running` until it waits or ends.
static void run_fiber(void) {
  ucontext_t start;
  if (_setjmp(scheduler)) return;
  if (running->started) _longjmp(running->at, 1);
  running->started = true;
  getcontext(&start);
  start.uc_stack.ss_sp = stacks + (running - fibers) * STACK;
  start.uc_stack.ss_size = STACK;
  start.uc_link = NULL;
  makecontext(&start, fiber_main, 0);
  setcontext(&start);
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
  for (unsigned i = 0; i < n; i++) fibers[i].state = READY;
  for (;;) {
    unsigned done = 0;
    for (unsigned i = 0; i < n; i++) {
      running = &fibers[backwards ? n - 1 - i : i];
      if (running->state == READY) run_fiber();
    }
    for (unsigned i = 0; i < n; i++) done += fibers[i].state == DONE;
    if (done == n) return 0;
    if (release(n, why, cap)) continue;
    for (unsigned i = 0; i < n; i++) fibers[i].started = false;          // they are in the middle of the kernel
    return -1;
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
