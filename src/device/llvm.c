// Calls LLVM through its C API: see llvm.h.
//
// The library is found by soname, newest supported version first, with RTLD_LOCAL: an OpenCL driver in this process may
// bring its own LLVM, and their symbols must not mix (Debian's builds also version every symbol). RTLD_DEEPBIND would
// add nothing, and the address sanitizer rejects it. The functions are declared here with opaque pointers, in one
// X-macro that makes both the table and the lookup. The table is filled once and then constant: the only process-wide
// state here, since a library is loaded once per process.
//
// LLVM reports errors in four ways, all converted to the caller's `struct error`: parse messages, verifier messages,
// diagnostics (a handler per context), and "fatal errors" (such as an instruction that cannot be selected), after which
// LLVM would exit. The fatal handler leaves by longjmp; the current context is then abandoned, a leak that only a
// broken compiler causes.
#define _GNU_SOURCE
#include "device/llvm.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/env.h"
#include "base/os.h"
#include "render/render.h"

// Processor families: LLVM's name, its triple, and whether its code is text (the driver assembles PTX). The machine's
// own family is initialised with the library, others at first use. `reorders`: LLVM options of passes that change the
// order of instructions, each on or off.
static struct family { const char *name, *triple; bool text; const char *reorders[2]; void *target;
} families[] = {{"X86", "x86_64-unknown-linux-gnu", false, {"-enable-misched", "-x86-machine-combiner"}, NULL},
                {"AArch64", "aarch64-unknown-linux-gnu", false, {NULL}, NULL},
                {"NVPTX", "nvptx64-nvidia-cuda", true, {NULL}, NULL}};
#if defined(__x86_64__)
enum { OWN = 0 };
#elif defined(__aarch64__)
enum { OWN = 1 };
#else
#error "this processor family needs its row here"
#endif

// Passes over the IR before instruction selection. Kernels are nearly final: loops and vectors need no inlining,
// vectorising or unrolling. What helps is folding address arithmetic, hoisting it out of loops and merging equal loads.
// No pass may introduce a library call (loop-idiom would).
#define PASSES "function(early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(loop-simplifycfg," \
  "licm<allowspeculation>)," \
               "gvn<no-load-pre>,instcombine<no-verify-fixpoint>,simplifycfg)"
enum {
  CODEGEN_LEVEL = 2,
  RELOC_PIC = 2,
  CODE_MODEL_SMALL = 3,
  ASSEMBLY_FILE = 0,
  OBJECT_FILE = 1,
  VERIFY_RETURNS_STATUS = 2,
  SEVERITY_ERROR = 0
};

static const char *const sonames[] = {
  "libLLVM.so.22.1", "libLLVM-22.so.1", "libLLVM-22.so", "libLLVM.so.21.1", "libLLVM-21.so.1", "libLLVM-21.so",
  "libLLVM.so.20.1", "libLLVM-20.so.1", "libLLVM-20.so", "libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-19.so",
  "libLLVM.dylib", "LLVM-C.dll", "LLVM.dll",               // macOS; Windows, where the version is checked after opening
};

typedef void diagnostic_fn(void *info, void *context);
typedef void fatal_fn(const char *reason);

// result, name without "LLVM", arguments
#define LLVM_FUNCTIONS(F) \
  F(void, GetVersion, (unsigned *major, unsigned *minor, unsigned *patch)) \
  F(void, InstallFatalErrorHandler, (fatal_fn *handler)) \
  F(void, ParseCommandLineOptions, (int n, const char *const *options, const char *about)) \
  F(int, GetTargetFromTriple, (const char *triple, void **target, char **message)) \
  F(void *, CreateTargetMachine, (void *target, const char *triple, const char *cpu, const char *features, int level, \
  int reloc, int model)) \
  F(void, DisposeTargetMachine, (void *machine)) \
  F(void *, CreateTargetDataLayout, (void *machine)) \
  F(void, DisposeTargetData, (void *layout)) \
  F(int, TargetMachineEmitToMemoryBuffer, (void *machine, void *module, int kind, char **message, void **buffer)) \
  F(void *, ContextCreate, (void)) \
  F(void, ContextDispose, (void *context)) \
  F(void, ContextSetDiagnosticHandler, (void *context, diagnostic_fn *handler, void *handler_context)) \
  F(char *, GetDiagInfoDescription, (void *info)) \
  F(int, GetDiagInfoSeverity, (void *info)) \
  F(void *, CreateMemoryBufferWithMemoryRange, (const char *text, size_t n, const char *name, int ends_with_nul)) \
  F(const char *, GetBufferStart, (void *buffer)) \
  F(size_t, GetBufferSize, (void *buffer)) \
  F(void, DisposeMemoryBuffer, (void *buffer)) \
  F(int, ParseIRInContext, (void *context, void *buffer, void **module, char **message)) \
  F(void, SetTarget, (void *module, const char *triple)) \
  F(void, SetModuleDataLayout, (void *module, void *layout)) \
  F(int, VerifyModule, (void *module, int action, char **message)) \
  F(void *, CloneModule, (void *module)) \
  F(void, DisposeModule, (void *module)) \
  F(void *, CreatePassBuilderOptions, (void)) \
  F(void, DisposePassBuilderOptions, (void *options)) \
  F(void *, RunPasses, (void *module, const char *passes, void *machine, void *options)) \
  F(char *, GetErrorMessage, (void *err)) \
  F(void, DisposeErrorMessage, (char *message)) \
  F(void, DisposeMessage, (char *message))

static struct {
#define F(result, name, arguments) result (*name) arguments;
  LLVM_FUNCTIONS(F)
#undef F
} L;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static error load_error;
static void *library;          // NULL until loaded
static pthread_mutex_t families_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool loaded;

// ------------------------------------------------------------------------------------------------------------ loading

static _Thread_local jmp_buf *landing;           // target of a fatal error in this thread's compile
static _Thread_local char fatal_text[512];

static void on_fatal(const char *reason) {
  if (!landing) return;                          // another library shares this LLVM: LLVM goes on to exit
  snprintf(fatal_text, sizeof fatal_text, "%s", reason);
  fatal_text[strcspn(fatal_text, "\n")] = 0;
  longjmp(*landing, 1);
}

static bool find_symbol(void *in, const char *name, void *slot, error *err) {
  char full[96];
  snprintf(full, sizeof full, "LLVM%s", name);
  void *p = dlsym(in, full);
  memcpy(slot, &p, sizeof p);
  if (!p) error_set(err, "the LLVM library lacks the function %s: install libllvm22 (or libllvm19)", full);
  return p != NULL;
}

// Initialises LLVM's code for one processor family.
static int start_family(struct family *f, void *in, error *err) {
  static const char *const steps[] = {"TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"};
  for (size_t i = 0; i < COUNT(steps) - f->text /* what it prints it need not read */; i++) {
    char name[64];
    void (*initialize)(void);
    snprintf(name, sizeof name, "Initialize%s%s", f->name, steps[i]);
    if (!find_symbol(in, name, &initialize, err)) return -1;
    initialize();
  }
  char *message = NULL;
  void *found = NULL;
  if (L.GetTargetFromTriple(f->triple, &found, &message)) {
    error_set(err, "LLVM cannot make code for %s: %s", f->triple, message);
    L.DisposeMessage(message);
    return -1;
  }
  f->target = found;
  return 0;
}

static const char *why_not_opened(void) {
  const char *e = dlerror();
  return e ? e : "unknown error";
}

// The library of WEFT_LLVM, otherwise the newest on the system; NULL and *err.
static void *open_library(error *err) {
  const char *named = env_str(ENV_WEFT_LLVM);
  void *in = NULL;
  char first[256] = "", path[4096];
  if (*named) {
    if (!(in = dlopen(named, RTLD_NOW | RTLD_LOCAL))) error_set(err, "WEFT_LLVM: %s", why_not_opened());
    return in;
  }
  for (size_t i = 0; i < COUNT(sonames) && !in; i++) {
    in = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
    if (!in && os_find_library(sonames[i], path, sizeof path)) in = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!in && !first[0]) snprintf(first, sizeof first, "%s", why_not_opened());
  }
  if (!in)
    error_set(
      err,
      "compiling kernels needs the LLVM library, and none of version 22 to 19 could be loaded (%s): "
      "install the package libllvm22 (or libllvm19), name the file in WEFT_LLVM, or use the system's C compiler "
      "(RENDER=c, which takes longer)",
      first);
  return in;
}

static void load_library(void) {
  void *in = open_library(&load_error);
  if (!in) return;
#define F(result, name, arguments) if (!find_symbol(in, #name, &L.name, &load_error)) return;
  LLVM_FUNCTIONS(F)
#undef F
  if (start_family(&families[OWN], in, &load_error)) return;
  L.InstallFatalErrorHandler(on_fatal);
  library = in;
  atomic_store(&loaded, true);
}

static int need_library(error *err) {
  pthread_once(&load_once, load_library);
  return library ? 0 : error_set(err, "%s", load_error.text);
}

static int need_family(const char *triple, const struct family **out, error *err) {
  if (need_library(err)) return -1;
  *out = &families[OWN];
  if (!triple || !strcmp(triple, families[OWN].triple)) return 0;
  for (size_t i = 0; i < COUNT(families); i++) {
    if (strcmp(families[i].triple, triple)) continue;
    *out = &families[i];
    pthread_mutex_lock(&families_lock);
    int r = families[i].target ? 0 : start_family(&families[i], library, err);
    pthread_mutex_unlock(&families_lock);
    return r;
  }
  return error_set(err, "LLVM: '%s' is no processor family that kernels are made for", triple);
}

bool llvm_is_loaded(void) { return atomic_load(&loaded); }

// Without inode and ctime, which differ between containers for one package.
static void say_library(const char *name, const struct stat *st, char *out, size_t cap) {
  const char *slash = strrchr(name, '/');
  snprintf(out, cap, "%s %lld %lld", slash ? slash + 1 : name, (long long)st->st_size, (long long)st->st_mtim.tv_sec);
}

void llvm_file(char *out, size_t cap) {
  const char *named = env_str(ENV_WEFT_LLVM);
  char path[4096];
  struct stat st;
  *out = 0;
  if (*named && !stat(named, &st)) say_library(named, &st, out, cap);
  for (size_t i = 0; i < COUNT(sonames) && !*named; i++)
    if (os_find_library(sonames[i], path, sizeof path) && !stat(path, &st) && S_ISREG(st.st_mode)) {
      say_library(sonames[i], &st, out, cap);
      return;
    }
}

int llvm_version(str *out, error *err) {
  if (need_library(err)) return -1;
  unsigned major, minor, patch;
  L.GetVersion(&major, &minor, &patch);
  str_addf(out, "%u.%u.%u", major, minor, patch);
  return 0;
}

// ---------------------------------------------------------------------------------------------------------- compiling

struct job {
  const struct family *family;
  const char *ir, *cpu, *features;
  bytes *object;
  str *assembly;
  error *err;
  void *context, *module, *machine;
  str complaints;                       // messages of the context's diagnostic handler
};

static void on_diagnostic(void *info, void *context) {
  struct job *j = context;
  if (L.GetDiagInfoSeverity(info) != SEVERITY_ERROR) return;
  char *text = L.GetDiagInfoDescription(info);
  if (j->complaints.n) str_add(&j->complaints, "; ");
  str_add(&j->complaints, text);
  L.DisposeMessage(text);
}

static int fail_stage(struct job *j, const char *stage, char *message) {
  for (size_t n = message ? strlen(message) : 0; n && message[n - 1] == '\n'; n--) message[n - 1] = 0;
  error_set(j->err, "LLVM: %s: %s", stage,
            message && *message ? message
            : j->complaints.n   ? str_c(&j->complaints)
                                : "no reason given");
  if (message) L.DisposeMessage(message);
  return -1;
}

static int parse_ir(struct job *j) {
  char *message = NULL;
  void *text = L.CreateMemoryBufferWithMemoryRange(j->ir, strlen(j->ir), "kernel", 1);
  if (L.ParseIRInContext(j->context, text, &j->module, &message)) {   // which consumes text
    j->module = NULL;
    return fail_stage(j, "the IR does not parse", message);
  }
  L.SetTarget(j->module, j->family->triple);
  void *layout = L.CreateTargetDataLayout(j->machine);
  L.SetModuleDataLayout(j->module, layout);
  L.DisposeTargetData(layout);
  message = NULL;
  if (L.VerifyModule(j->module, VERIFY_RETURNS_STATUS, &message)) return fail_stage(j, "the IR is not valid", message);
  L.DisposeMessage(message);
  return 0;
}

static int run_passes(struct job *j) {
  void *options = L.CreatePassBuilderOptions();
  void *e = L.RunPasses(j->module, PASSES, j->machine, options);
  L.DisposePassBuilderOptions(options);
  if (e) {
    char *text = L.GetErrorMessage(e);
    error_set(j->err, "LLVM: the passes failed: %s", text);
    L.DisposeErrorMessage(text);
    return -1;
  }
  return j->complaints.n ? fail_stage(j, "the passes failed", NULL) : 0;
}

// Emission changes the module, so a second emission needs a copy.
static int emit_object(struct job *j, int kind, void *module, void **buffer) {
  char *message = NULL;
  if (L.TargetMachineEmitToMemoryBuffer(j->machine, module, kind, &message, buffer))
    return fail_stage(j, "no code could be made", message);
  if (j->complaints.n) {
    L.DisposeMemoryBuffer(*buffer);
    return fail_stage(j, "no code could be made", NULL);
  }
  return 0;
}

// ---- the order of instructions --------------------------------------------------------------------------------------
//
// LLVM's own options decide it, one set per process. Compiles with equal settings run concurrently, and wait for the
// last compile with the other setting. Callers have several compiles to do and each waits with one at most, so compiles
// with equal settings group together.

static struct { pthread_mutex_t mutex; pthread_cond_t changed; int active; bool in_order; } gate = {
  PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false};

static void set_order(const struct family *f, bool in_order) {
  char text[COUNT(f->reorders)][64];
  const char *options[1 + COUNT(f->reorders)] = {"weft"};
  int n = 1;
  for (size_t i = 0; i < COUNT(f->reorders) && f->reorders[i]; i++) {
    snprintf(text[i], sizeof text[i], "%s=%s", f->reorders[i], in_order ? "false" : "true");
    options[n++] = text[i];
  }
  if (n > 1) L.ParseCommandLineOptions(n, options, "");
}

static void enter_gate(const struct family *f, bool in_order) {
  pthread_mutex_lock(&gate.mutex);
  while (gate.active && gate.in_order != in_order) pthread_cond_wait(&gate.changed, &gate.mutex);
  if (gate.in_order != in_order) set_order(f, in_order);
  gate.in_order = in_order;
  gate.active++;
  pthread_mutex_unlock(&gate.mutex);
}

static void leave_gate(void) {
  pthread_mutex_lock(&gate.mutex);
  if (!--gate.active) pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.mutex);
}

static int run_job(struct job *j) {
  j->machine = L.CreateTargetMachine(j->family->target, j->family->triple, j->cpu, j->features, CODEGEN_LEVEL,
                                     RELOC_PIC, CODE_MODEL_SMALL);
  if (!j->machine) return error_set(j->err, "LLVM: no target machine for cpu '%s' with '%s'", j->cpu, j->features);
  if (parse_ir(j) || run_passes(j)) return -1;
  void *buffer;
  if (j->assembly) {
    void *copy = L.CloneModule(j->module);
    int r = emit_object(j, ASSEMBLY_FILE, copy, &buffer);
    L.DisposeModule(copy);
    if (r) return -1;
    str_addn(j->assembly, L.GetBufferStart(buffer), L.GetBufferSize(buffer));
    L.DisposeMemoryBuffer(buffer);
  }
  if (emit_object(j, j->family->text ? ASSEMBLY_FILE : OBJECT_FILE, j->module, &buffer)) return -1;
  size_t n = L.GetBufferSize(buffer);
  *j->object = (bytes){xmalloc(n), n};
  memcpy(j->object->at, L.GetBufferStart(buffer), n);
  L.DisposeMemoryBuffer(buffer);
  return 0;
}

// A separate function, so that no local variable lives across setjmp.
static int compile_guarded(struct job *j) {
  jmp_buf here;
  if (setjmp(here)) {
    landing = NULL;
    j->context = j->module = j->machine = NULL;   // unknown state: abandoned
    return error_set(j->err, "LLVM: fatal error: %s", fatal_text);
  }
  landing = &here;
  int r = run_job(j);
  landing = NULL;
  return r;
}

int llvm_compile(const char *ir_text, const char *cpu, const char *features, bytes *object, str *assembly, error *err) {
  return llvm_compile_for(NULL, ir_text, cpu, features, object, assembly, err);
}

int llvm_compile_for(const char *triple, const char *ir_text, const char *cpu, const char *features, bytes *object,
                     str *assembly, error *err) {
  *object = (bytes){0};
  const struct family *family;
  if (need_family(triple, &family, err)) return -1;
  struct job j = {.family = family,
                  .ir = ir_text,
                  .cpu = cpu,
                  .features = features,
                  .object = object,
                  .assembly = assembly,
                  .err = err};
  j.context = L.ContextCreate();
  L.ContextSetDiagnosticHandler(j.context, on_diagnostic, &j);
  bool in_order = family->reorders[0] && strstr(ir_text, RENDER_IN_ORDER);
  enter_gate(family, in_order);
  int r = compile_guarded(&j);
  leave_gate();
  if (j.module) L.DisposeModule(j.module);
  if (j.machine) L.DisposeTargetMachine(j.machine);
  if (j.context) L.ContextDispose(j.context);
  str_free(&j.complaints);
  return r;
}
