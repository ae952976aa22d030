// The CPU device: see cpu.h. A program becomes LLVM IR text, an object, and a position-independent blob (elf.h) that
// any process can map; the cache stores blobs. RENDER=c is for reading and as a check: it uses a file, `cc` and dlopen,
// and its kernels are not cached.
#define _GNU_SOURCE
#include "device/cpu.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/child.h"
#include "base/env.h"
#include "base/str.h"
#include "device/cache.h"
#include "device/code_version.h"
#include "device/compiler.h"
#include "device/cpu_info.h"
#include "device/elf.h"
#include "device/kernel_set.h"
#include "device/machine.h"
#include "device/team.h"
#include "render/render.h"

enum { IDLE_S = 5 };           // after which the idle compiler process exits

// triple: compiles for another processor family, whose kernels do not run here; NULL: this one
typedef struct cpu { cpu_target t; const renderer *r; render_options o; compiler *llvm; const char *triple; } cpu;

static void show_stage(const char *what, const program *p, const str *text) {
  fprintf(stderr, "--- %s of %s\n%s\n", what, p->name, str_c(text));
}

static int with_llvm(device *d, device_kernel *k, error *err) {
  const cpu *c = d->state;
  str text = {0}, assembly = {0};
  bytes object = {0};
  code_blob blob = {0};
  if (kernel_set_damage(err)) return -1;
  if (kernel_set_used())
    return error_set(err, "this program was exported without it for %s: an option or a variable asks for a plan that "
                     "'weft export' did not make; export the model again with it, or use weft itself",
                     kernel_set_cpu());
  int r = render_text(c->r->render, k->p, &c->o, &text, err);
  if (!r && debug_level() >= 4) show_stage("source", k->p, &text);
  if (!r)
    r = compiler_run_for(c->llvm, c->triple, str_c(&text), c->t.cpu, c->t.features, &object,
                         debug_level() >= 7 ? &assembly : NULL, err);
  if (!r && debug_level() >= 7) show_stage("assembly", k->p, &assembly);
  if (!r) r = elf_link(object.at, object.n, &blob, err);
  if (!r) r = code_blob_pack(&blob, &k->packed, err);
  str_free(&text); str_free(&assembly);
  bytes_free(&object);
  code_blob_free(&blob);
  return r;
}

static int show_llvm(device *d, const program *p, str *source, str *assembly, error *err) {
  const cpu *c = d->state;
  bytes object = {0};
  int r = render_text(c->r->render, p, &c->o, source, err);
  if (!r && assembly) r = compiler_run(c->llvm, str_c(source), c->t.cpu, c->t.features, &object, assembly, err);
  bytes_free(&object);
  return r;
}

static int show_c(device *d, const program *p, str *source, str *assembly, error *err) {
  const cpu *c = d->state;
  (void)assembly;
  return render_text(c->r->render, p, &c->o, source, err);
}

static int run_cc(const char *in, const char *out, error *err) {
  pid_t pid = fork();
  if (pid < 0) return error_set(err, "RENDER=c: cannot start the C compiler");
  if (!pid) {
    execlp("cc", "cc", "-O2", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", "-shared", "-fPIC",
           in, "-o", out, "-lm", (char *)NULL);
    _exit(127);
  }
  int status;
  child_wait(pid, &status);            // a lost status counts as 0: then the library is there or not
  if (!WIFEXITED(status) || WEXITSTATUS(status))
    return error_set(err, "RENDER=c: cc could not compile %s (is a C compiler installed?)", in);
  return 0;
}

static int with_cc(device *d, device_kernel *k, error *err) {
  const cpu *c = d->state;
  str text = {0};
  char folder[] = "/tmp/weft-XXXXXX", in[64], out[64];
  if (render_text(c->r->render, k->p, &c->o, &text, err)) { str_free(&text); return -1; }
  if (debug_level() >= 4) show_stage("source", k->p, &text);
  if (!mkdtemp(folder)) { str_free(&text); return error_set(err, "RENDER=c: cannot make a folder in /tmp"); }
  snprintf(in, sizeof in, "%s/kernel.c", folder);
  snprintf(out, sizeof out, "%s/kernel.so", folder);
  FILE *f = fopen(in, "we");
  bool written = f && fwrite(text.at, 1, text.n, f) == text.n;
  if (f && fclose(f)) written = false;
  str_free(&text);
  int r = written ? run_cc(in, out, err) : error_set(err, "RENDER=c: cannot write %s", in);
  if (!r) {
    k->library = dlopen(out, RTLD_NOW | RTLD_LOCAL);
    void *s = k->library ? dlsym(k->library, k->p->name) : NULL;
    if (s) memcpy(&k->fn, &s, sizeof s);
    else r = error_set(err, "RENDER=c: %s", dlerror());
  }
  unlink(in); unlink(out); rmdir(folder);
  return r;
}

static void prepare_llvm(device *d) { compiler_wake(((const cpu *)d->state)->llvm); }

static void cpu_stop(device *d) {
  compiler_free(((const cpu *)d->state)->llvm);
  free(d->state);
}

void cpu_compile_at_once(device *d, int n) {
  cpu *c = d->state;
  if (!c->llvm) return;
  compiler_free(c->llvm);
  c->llvm = compiler_new(n, IDLE_S);
}

int cpu_start(device *d, error *err) {
  cpu *c = xcalloc(1, sizeof *c);
  d->state = c;
  d->stop = cpu_stop;
  if (cpu_target_from_env(&c->t, err)) return -1;
  cpu_features own;
  cpu_detect(&own);
  if (own.arm != c->t.has.arm) c->triple = c->t.triple;
  const char *way = env_str(ENV_RENDER);
  c->r = render_find(way);
  bool llvm = !strcmp(way, "llvm");
  if (!c->r || (!llvm && strcmp(way, "c")))
    return error_set(err, "RENDER=%s makes no CPU kernels (known: llvm, c)", way);
  c->o = cpu_render_options(&c->t);
  d->target = c->r->target;
  d->target.vector_bytes = c->t.vector_bits / 8;
  d->target.vector_registers = c->t.vector_registers;
  d->target.has_fma = c->t.fma;
  d->target.lacks_round = !c->t.round;
  d->target.has_f16 = c->t.f16;
  d->target.descriptors = llvm ? c->t.descriptors : 0;
  d->target.slow_bf16 = c->t.slow_bf16;
  d->target.has_streams = true;
  d->target.cache_bytes = machine_cache_bytes();
  d->target.tile_bytes = machine_tile_bytes();
  if (machine_prefetch_from_env(&d->target.distance, &(bool){false}, err)) return -1;
  d->target.distance_of_tile = d->target.distance;
  d->compile = llvm ? with_llvm : with_cc;
  d->show = llvm ? show_llvm : show_c;
  if (llvm) {
    c->llvm = compiler_new(team_size(d->team) + 1, IDLE_S);      // one more for a thread outside the team
    if (!kernel_set_used()) d->prepare = prepare_llvm;
    if (!kernel_set_is_on()) llvm_file(d->compiler, sizeof d->compiler);
  }
  snprintf(d->key, sizeof d->key, "%s %s", way, c->t.key);
  if (llvm) d->cache = cache_open(NULL, CODE_VERSION);
  return 0;
}
