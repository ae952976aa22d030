// The LLVM IR of every kernel of a model, for scripts/replay.sh: what this machine is plays no part, nothing is
// compiled, and no weight is read, so that the text depends on the sources of the compiler alone.
//
//     replay_tool MACHINE MODEL                MACHINE: one of the tables below
//     replay_tool MACHINE MODEL assembly       for bench/mca.py: what LLVM makes of the IR
//     replay_tool MACHINE MODEL costs          instead of texts, a line for each stage: kernels, levels (dispatches),
//                                              operations and bytes, by the estimates of codegen/cost.h
//
// For one token and for chunks of a prompt, or for an mmproj file for each medium that it has an encoder for: a line
// "=== STAGE NAME COUNT" and the text of each different kernel, in the order of the schedule.
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "codegen/codegen.h"
#include "compile/compile.h"
#include "device/cpu_info.h"
#include "device/llvm.h"
#include "model/model.h"
#include "model/projector.h"
#include "render/render.h"

enum { CTX = 512, CHUNK = 64, SQUARES = 64, NOMINAL = 128, MAX_VARS = 32 };
// What is printed of a stage.
enum output { TEXTS, ASSEMBLY, COSTS };

_Noreturn static void fail(const char *what, const error *err) {
  fprintf(stderr, "replay_tool: %s%s\n", what, err ? err->text : "");
  exit(1);
}

// A core of AArch64 by LLVM's name.  False: none of these.
static bool core(const char *name, cpu_features *has) {
  static const struct { const char *tune; bool i8mm; } cores[] = {
    {"cortex-a76", false}, {"neoverse-v2", true}, {"apple-m1", false}, {"apple-m2", true},
  };
  for (size_t i = 0; i < COUNT(cores); i++) {
    if (strcmp(name, cores[i].tune)) continue;
    *has = (cpu_features){.arm = true, .fphp = true, .asimddp = true, .i8mm = cores[i].i8mm, .bf16 = cores[i].i8mm};
#define F(implementer, part, says, tune) \
    if (!has->model && !strcmp(name, tune)) cpu_add_core(has, (uint64_t)(implementer) << 24 | (part) << 4);
    ARM_CORES(F)
#undef F
    return true;
  }
  return false;
}

// Machines as they were sold: what they have, and the level to compile for.
static const char *machine(const char *name, cpu_features *has) {
  bool vnni = !strcmp(name, "vnni");
  *has = (cpu_features){0};
  if (!strcmp(name, "dotprod")) {
    *has = (cpu_features){.arm = true, .fphp = true, .asimddp = true};
    return "armv8.2-a";
  }
  if (core(name, has)) return "native";
  if (!vnni && strcmp(name, "avx2"))
    fail("the machines are vnni, avx2, dotprod, cortex-a76, neoverse-v2, apple-m1, apple-m2", NULL);
#define F(field, llvm_name, leaf, sub, reg, bit, state, level) has->field = level <= (vnni ? 5 : 3);
  CPU_FEATURES(F)
#undef F
  has->avx512fp16 = has->avxvnni = false;
  has->amd = true;
  has->family = vnni ? 0x19 : 0x17;      // Zen 4, Zen 2
  has->model = vnni ? 0x61 : 0x31;
  return vnni ? "native" : "x86-64-v3";
}

static void compile(const cpu_target *c, str *text) {
  str assembly = {0};
  bytes object;
  error err = {0};
  if (llvm_compile_for(c->triple, str_c(text), c->cpu, c->features, &object, &assembly, &err)) fail("", &err);
  bytes_free(&object);
  str_free(text);
  *text = assembly;
}

// model or encoder: chunk 0
static uop *stage_graph(const model *m, graph *g, int64_t chunk) {
  int64_t rows = chunk ? 0 : projector_rows(m);
  if (!chunk) return projector_graph(m, g, &(projector_shape){.squares = rows ? rows : SQUARES});
  return model_graph(m, g,
                     &(model_shape){.page = 128, .tile = 8,
                                    .pages = 8192,
                                    .slots = 1,
                                    .ctx = CTX + 2 * CHUNK,
                                    .n_ctx = CTX,
                                    .chunk = chunk,
                                    .logits = chunk == 1});
}

// The value of an estimate, with each variable at most NOMINAL.
static int64_t estimate(const program *p, const uop *of) {
  int64_t vars[MAX_VARS];
  if (p->n_vars > MAX_VARS) fail("a kernel has too many variables", NULL);
  for (int i = 0; i < p->n_vars; i++) vars[i] = min_i64(p->vars[i]->vmax, NOMINAL);
  return program_eval(p, of, vars);
}

static void print_kernel(const program *p, const char *stage, intptr_t count, const cpu_target *c, enum output what) {
  str text = {0};
  error err = {0};
  render_options o = cpu_render_options(c);
  if (render_find("llvm")->render(p, &o, &text, &err)) fail(p->name, &err);
  if (what == ASSEMBLY) compile(c, &text);
  printf("=== %s %s %ld\n%s", stage, p->name, (long)count, str_c(&text));
  str_free(&text);
}

static target target_of(const cpu_target *c) {
  target t = render_find("llvm")->target;
  t.vector_bytes = c->vector_bits / 8;
  t.has_fma = c->fma;
  t.lacks_round = !c->round;
  t.has_f16 = c->f16;
  t.descriptors = c->descriptors;
  t.has_streams = true;
  t.cache_bytes = 1 << 20;
  t.tile_bytes = 1 << 19;
  t.distance_of_tile = (prefetch){32, PREFETCH_T1};
  return t;
}

static void print_stage(const model *m, const char *stage, int64_t chunk, const cpu_target *c, enum output what) {
  target t = target_of(c);
  graph *g = graph_new(NULL);
  schedule s;
  map seen = {0};
  int64_t operations = 0, moved = 0;
  compile_graph(g, stage_graph(m, g, chunk), &t, &(compile_choices){0}, &s);
  for (int i = 0; i < s.n_kernels; i++)
    map_put(&seen, s.kernels[i].ast, (void *)((intptr_t)map_ptr(&seen, s.kernels[i].ast) + 1));
  for (int i = 0; i < s.n_kernels; i++) {
    intptr_t count = (intptr_t)map_ptr(&seen, s.kernels[i].ast);
    if (!count) continue;
    map_put(&seen, s.kernels[i].ast, NULL);
    program *p = codegen(g, s.kernels[i].ast, &t, NULL);
    operations += count * estimate(p, p->flops);
    moved += count * estimate(p, p->bytes);
    if (what != COSTS) print_kernel(p, stage, count, c, what);
    program_free(p);
  }
  if (what == COSTS) printf("%s %d %d %" PRId64 " %" PRId64 "\n", stage, s.n_kernels, s.n_levels, operations, moved);
  map_free(&seen);
  graph_free(g);
}

static void print_encoder(const gguf *file, enum medium k, const cpu_target *c, enum output what) {
  model *m;
  error err = {0};
  if (projector_open(file, k, &m, &err)) fail("", &err);
  print_stage(m, medium_name(k), 0, c, what);
  model_close(m);
}

int main(int argc, char **argv) {
  cpu_features has;
  cpu_target c;
  error err = {0};
  gguf *file;
  model *m;
  enum output what = argc < 4 ? TEXTS : strcmp(argv[3], "costs") ? ASSEMBLY : COSTS;
  if (argc < 3 || argc > 4 || (what == ASSEMBLY && strcmp(argv[3], "assembly")))
    fail("replay_tool MACHINE MODEL [assembly|costs]", NULL);
  if (cpu_target_for(machine(argv[1], &has), &has, &c, &err) || gguf_open(argv[2], &file, &err)) fail("", &err);
  unsigned media = projector_known(file);
  for (enum medium k = 0; k < MEDIUM_COUNT; k++) if (media >> k & 1) print_encoder(file, k, &c, what);
  if (media) return gguf_close(file), 0;
  if (model_open(file, (model_kv){0}, &m, &err)) fail("", &err);
  print_stage(m, "token", 1, &c, what);
  print_stage(m, "prompt", CHUNK, &c, what);
  model_close(m);
  gguf_close(file);
  return 0;
}
