// Compiles kernels for NVIDIA GPUs to PTX: see nvidia.h.
#include "device/nvidia.h"
#include <string.h>
#include "base/env.h"
#include "device/compiler.h"
#include "device/team.h"
#include "render/render.h"

#define TRIPLE "nvptx64-nvidia-cuda"
enum { IDLE_S = 5 /* after which the compiler's process ends */ };
// A chunk of at least this many tokens rereads weights from the L2 cache. A smaller one reads them once and waits for
// memory; without tiles that share them, more bytes are in flight. Chosen from figures, not measured on a GPU.
enum { MANY_TOKENS = 256 };

// Compute capabilities for which LLVM makes kernels. PTX for one runs on all newer ones, so another GPU uses the newest
// one below it.
static const struct {
  int capability;
  const char *name;
} machines[] = {{90, "sm_90"}, {89, "sm_89"}, {87, "sm_87"}, {86, "sm_86"}, {80, "sm_80"}, {75, "sm_75"},
                {70, "sm_70"}, {61, "sm_61"}, {60, "sm_60"}, {52, "sm_52"}, {50, "sm_50"}};

// Feature test for descriptors.
static bool has_gpu_feature(const void *machine, const char *feature) {
  int capability = ((const nvidia *)machine)->capability;
  return (!strcmp(feature, "dp4a") && capability >= 61) || (!strcmp(feature, "mma") && capability >= 80);
}

int nvidia_choose(nvidia *n, const char *dev, const char *name, error *err) {
  n->sm = NULL;
  for (size_t i = 0; i < COUNT(machines) && !n->sm; i++)
    if (machines[i].capability <= n->capability) n->sm = machines[i].name;
  n->descriptors = descriptors_where(has_gpu_feature, n);
  return n->sm ? 0
               : error_set(err, "%s: %s is too old (compute capability %d.%d; 5.0 is needed)", dev, name,
                           n->capability / 10, n->capability % 10);
}

void nvidia_compiler(nvidia *n, device *d) {
  llvm_file(d->compiler, sizeof d->compiler);
  n->llvm = compiler_new(team_size(d->team) + 1, IDLE_S);      // one more for a thread outside the team
}

void nvidia_target(const nvidia *n, target *out) {
  *out = render_find("nvptx")->target;
  out->descriptors = n->descriptors;
  if (n->capability < 70) out->subgroup_size = 0;     // LLVM makes PTX of an older version for these
  out->copy_bytes = n->capability >= 80 ? 16 : 0;
  out->many_tokens = MANY_TOKENS;
  out->max_group = (int)min_i64(n->max_items, 1024);
  out->max_local_bytes = n->shared_bytes;
  out->cache_bytes = n->cache_bytes;
}

void nvidia_figures(nvidia *n) {
  static const struct { int capability, macs; } cores[] = {{120, 1024}, {100, 8192}, {90, 4096}, {89, 1024},
                                                           {87, 2048},  {86, 1024},  {80, 2048}, {0, 512}};
  int i = 0;
  while (n->capability < cores[i].capability) i++;
  n->figures.macs = cores[i].macs;
  n->figures.latency_ns = 700;
  n->figures.gap_us = 1.3;
}

int nvidia_ptx(const nvidia *n, const program *p, str *source, bytes *ptx, error *err) {
  int r = render_text(render_nvptx, p, &(render_options){.descriptors = n->descriptors}, source, err);
  return r ? r : compiler_run_for(n->llvm, TRIPLE, str_c(source), n->sm, "", ptx, NULL, err);
}

int nvidia_compile(const nvidia *n, const program *p, bytes *ptx, error *err) {
  str source = {0};
  bytes text = {0};
  int r = nvidia_ptx(n, p, &source, &text, err);
  if (debug_level() >= 3) {
    str line = {0};
    render_access_line(&line, p);
    str_addf(&line, "registers %s: about %d\n", p->name, predict_registers(p));
    fprintf(stderr, "%s", str_c(&line));
    str_free(&line);
  }
  if (debug_level() >= 4) fprintf(stderr, "--- source of %s\n%s\n", p->name, str_c(&source));
  if (!r && debug_level() >= 7)
    fprintf(stderr, "--- assembly of %s\n%.*s\n", p->name, (int)text.n, (const char *)text.at);
  if (!r) {
    *ptx = (bytes){xmalloc(text.n + 1), text.n + 1};
    memcpy(ptx->at, text.at, text.n);
    ptx->at[text.n] = 0;
  }
  bytes_free(&text);
  str_free(&source);
  return r;
}

int nvidia_show(const nvidia *n, const program *p, str *source, str *assembly, error *err) {
  bytes ptx = {0};
  int r = nvidia_ptx(n, p, source, &ptx, err);
  if (!r && assembly) str_addn(assembly, (const char *)ptx.at, ptx.n);
  bytes_free(&ptx);
  return r;
}
