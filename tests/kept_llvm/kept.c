// A libLLVM for tests (WEFT_LLVM) that keeps what it has made: the real library, which is linked behind this one, and
// before it the functions below. An object is looked up by a hash of all that it is made from: the text, the target
// machine, LLVM's options, the library itself and src/device/llvm.c, which names passes and options. What is found is
// LLVM's own answer to an equal question; what is not found is made by LLVM. Errors, and assembly that is asked for
// besides an object, always come from LLVM.
//
// The store is one file of fixed size, mapped before the process that compiles is confined: objects in
// WEFT_TEST_KERNELS, or weft/kernels/objects in XDG_CACHE_HOME, a second name of that file in a folder that confined
// programs may write. An empty store is zeros. Any number of processes add to it without locks: bytes are written
// before the row that names them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/sha256.h"

enum { ROWS = 1 << 16, KEY = 65, MACHINE = 4096, FREE = 0, TAKEN = 1, READY = 2 };
struct row { _Atomic uint32_t state; char key[KEY]; uint64_t at, n; };
struct store { _Atomic uint64_t used; struct row rows[ROWS]; };   // used: bytes of objects, which follow the rows

// A module for the caller: the real one, or NULL where the object is in the store.
struct module {
  void *real, *context, *on;
  char *text, *passes, triple[64], key[KEY];
  const struct row *kept;
  bool is_copy;
};

#define REAL(F) \
  F(void *, CreateTargetMachine, (void *, const char *, const char *, const char *, int, int, int)) \
  F(void, ParseCommandLineOptions, (int, const char *const *, const char *)) \
  F(void *, CreateTargetDataLayout, (void *)) \
  F(void, DisposeTargetData, (void *)) \
  F(int, TargetMachineEmitToMemoryBuffer, (void *, void *, int, char **, void **)) \
  F(void *, CreateMemoryBufferWithMemoryRange, (const char *, size_t, const char *, int)) \
  F(const char *, GetBufferStart, (void *)) \
  F(size_t, GetBufferSize, (void *)) \
  F(void, DisposeMemoryBuffer, (void *)) \
  F(int, ParseIRInContext, (void *, void *, void **, char **)) \
  F(void, SetTarget, (void *, const char *)) \
  F(void, SetModuleDataLayout, (void *, void *)) \
  F(int, VerifyModule, (void *, int, char **)) \
  F(void *, CloneModule, (void *)) \
  F(void, DisposeModule, (void *)) \
  F(void *, CreatePassBuilderOptions, (void)) \
  F(void, DisposePassBuilderOptions, (void *)) \
  F(void *, RunPasses, (void *, const char *, void *, void *))
static struct {
#define F(result, name, arguments) result (*name) arguments;
  REAL(F)
#undef F
} L;

static struct store *store;
static uint64_t size;                    // of the file
static bool writes;
static char library[512];                // the real one: its name, size and time
static char options[1024];               // of the last ParseCommandLineOptions
static _Thread_local char machine[MACHINE];     // the last one of this thread, in words

static bool open_store(const char *folder, const char *below, int how) {
  char path[4096];
  struct stat st;
  if (!folder) return false;
  snprintf(path, sizeof path, "%s%s/objects", folder, below);
  int fd = open(path, how | O_CLOEXEC);
  if (fd < 0) return false;
  bool fits = !fstat(fd, &st) && (size_t)st.st_size > sizeof *store;
  void *at =
    fits ? mmap(NULL, (size_t)st.st_size, PROT_READ | (how == O_RDWR ? PROT_WRITE : 0), MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (at == MAP_FAILED) return false;
  store = at;
  size = (uint64_t)st.st_size;
  writes = how == O_RDWR;
  return true;
}

__attribute__((constructor)) static void start(void) {
#define F(result, name, arguments) do { void *p = dlsym(RTLD_NEXT, "LLVM" #name); memcpy(&L.name, &p, sizeof p); } \
  while (0);
  REAL(F)
#undef F
  Dl_info of;
  struct stat st;
  void *p;
  memcpy(&p, &L.ParseIRInContext, sizeof p);
  if (!p || !dladdr(p, &of) || stat(of.dli_fname, &st)) return;
  snprintf(library, sizeof library, "%s %lld %lld", of.dli_fname, (long long)st.st_size, (long long)st.st_mtim.tv_sec);
  const char *folder = getenv("WEFT_TEST_KERNELS"), *cache = getenv("XDG_CACHE_HOME");
  if (open_store(folder, "", O_RDWR) || open_store(cache, "/weft/kernels", O_RDWR) || open_store(folder, "", O_RDONLY))
    return;
}

static void add_text(sha256 *to, const char *text) { sha256_add(to, text, strlen(text) + 1); }

static void key_of(const char *text, char *key) {
  sha256 of;
  sha256_begin(&of);
  add_text(&of, WEFT_LLVM_C);
  add_text(&of, library);
  add_text(&of, options);
  add_text(&of, machine);
  add_text(&of, text);
  sha256_end(&of, key);
}

static size_t first_row(const char *key) {
  char digits[9] = "";
  memcpy(digits, key, 8);
  return strtoul(digits, NULL, 16) % ROWS;
}

static const struct row *find(const char *key) {
  for (size_t i = first_row(key), n = 0; store && n < ROWS; i = (i + 1) % ROWS, n++) {
    struct row *r = &store->rows[i];
    uint32_t state = atomic_load(&r->state);
    if (state == FREE) return NULL;
    if (state == READY && !strcmp(r->key, key)) return r;
  }
  return NULL;
}

static void keep(const char *key, const void *object, size_t n) {
  if (!store || !writes || atomic_load(&store->used) + n > size - sizeof *store) return;
  uint64_t at = sizeof *store + atomic_fetch_add(&store->used, n);
  if (at + n > size) return;
  memcpy((char *)store + at, object, n);
  for (size_t i = first_row(key), tries = 0; tries < ROWS; i = (i + 1) % ROWS, tries++) {
    struct row *r = &store->rows[i];
    uint32_t none = FREE;
    if (!atomic_compare_exchange_strong(&r->state, &none, TAKEN)) continue;
    memcpy(r->key, key, KEY);
    r->at = at;
    r->n = n;
    atomic_store(&r->state, READY);
    return;
  }
}

// ---- LLVM's functions -----------------------------------------------------------------------------------------------

#define OURS __attribute__((visibility("default")))
OURS void LLVMParseCommandLineOptions(int n, const char *const *option, const char *about);
OURS void *LLVMCreateTargetMachine(void *target, const char *triple, const char *cpu, const char *features, int level,
                                   int reloc, int model);
OURS int LLVMParseIRInContext(void *context, void *buffer, void **out, char **message);
OURS void LLVMSetTarget(void *m, const char *triple);
OURS void LLVMSetModuleDataLayout(void *m, void *layout);
OURS int LLVMVerifyModule(void *m, int action, char **message);
OURS void *LLVMRunPasses(void *m, const char *passes, void *on, void *how);
OURS void *LLVMCloneModule(void *m);
OURS void LLVMDisposeModule(void *m);
OURS int LLVMTargetMachineEmitToMemoryBuffer(void *on, void *m, int kind, char **message, void **buffer);

void LLVMParseCommandLineOptions(int n, const char *const *option, const char *about) {
  size_t at = 0;
  for (int i = 1; i < n && at < sizeof options; i++)
    at += (size_t)snprintf(options + at, sizeof options - at, "%s ", option[i]);
  if (at >= sizeof options) store = NULL;
  L.ParseCommandLineOptions(n, option, about);
}

void *LLVMCreateTargetMachine(void *target, const char *triple, const char *cpu, const char *features, int level,
                              int reloc, int model) {
  int n = snprintf(machine, sizeof machine, "%s\n%s\n%s\n%d %d %d", triple, cpu, features, level, reloc, model);
  if (n >= MACHINE) store = NULL;
  return L.CreateTargetMachine(target, triple, cpu, features, level, reloc, model);
}

int LLVMParseIRInContext(void *context, void *buffer, void **out, char **message) {
  struct module *m = calloc(1, sizeof *m);
  if (!m) abort();
  m->context = context;
  m->text = strndup(L.GetBufferStart(buffer), L.GetBufferSize(buffer));
  if (!m->text) abort();
  key_of(m->text, m->key);
  m->kept = find(m->key);
  if (m->kept) L.DisposeMemoryBuffer(buffer);
  else if (L.ParseIRInContext(context, buffer, &m->real, message)) {
    free(m->text);
    free(m);
    *out = NULL;
    return 1;
  }
  *out = m;
  return 0;
}

void LLVMSetTarget(void *p, const char *triple) {
  struct module *m = p;
  snprintf(m->triple, sizeof m->triple, "%s", triple);
  if (m->real) L.SetTarget(m->real, triple);
}

void LLVMSetModuleDataLayout(void *p, void *layout) {
  struct module *m = p;
  if (m->real) L.SetModuleDataLayout(m->real, layout);
}

int LLVMVerifyModule(void *p, int action, char **message) {
  struct module *m = p;
  if (m->real) return L.VerifyModule(m->real, action, message);
  *message = NULL;
  return 0;
}

void *LLVMRunPasses(void *p, const char *passes, void *on, void *how) {
  struct module *m = p;
  if (m->real) return L.RunPasses(m->real, passes, on, how);
  m->passes = strdup(passes);
  if (!m->passes) abort();
  m->on = on;
  return NULL;
}

// A copy is for assembly, which is not kept: the module is made after all, as it would have been.
static void make(struct module *m) {
  char *message = NULL;
  void *text = L.CreateMemoryBufferWithMemoryRange(m->text, strlen(m->text), "kernel", 1);
  if (L.ParseIRInContext(m->context, text, &m->real, &message)) abort();
  L.SetTarget(m->real, m->triple);
  void *layout = L.CreateTargetDataLayout(m->on), *how = L.CreatePassBuilderOptions();
  L.SetModuleDataLayout(m->real, layout);
  L.DisposeTargetData(layout);
  if (L.RunPasses(m->real, m->passes, m->on, how)) abort();
  L.DisposePassBuilderOptions(how);
}

void *LLVMCloneModule(void *p) {
  struct module *m = p, *copy = calloc(1, sizeof *copy);
  if (!copy) abort();
  if (!m->real) make(m);
  copy->real = L.CloneModule(m->real);
  copy->is_copy = true;
  return copy;
}

void LLVMDisposeModule(void *p) {
  struct module *m = p;
  if (m->real) L.DisposeModule(m->real);
  free(m->text);
  free(m->passes);
  free(m);
}

int LLVMTargetMachineEmitToMemoryBuffer(void *on, void *p, int kind, char **message, void **buffer) {
  struct module *m = p;
  if (m->kept) {
    *buffer = L.CreateMemoryBufferWithMemoryRange((const char *)store + m->kept->at, m->kept->n, "kept", 0);
    return 0;
  }
  int r = L.TargetMachineEmitToMemoryBuffer(on, m->real, kind, message, buffer);
  if (!r && !m->is_copy) keep(m->key, L.GetBufferStart(*buffer), L.GetBufferSize(*buffer));
  return r;
}
