// Predicts times of kernels from the figures of a GPU: see predict.h.
#include "device/predict.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "render/render.h"

enum { STEP = 32 /* items that run in step */, SECTORS_A_CLOCK = 4, STEPS_A_CLOCK = 4 /* of a multiprocessor */ };
// Clocks between two instructions of one subgroup, some of which depend on each other; registers for addresses and
// counters, which a program does not show; maximum registers of a kernel.
enum { PAUSE = 2, OWN_REGISTERS = 12, MOST_REGISTERS = 128 };

// Bandwidth, clock and sizes as published; latency from published measurements; the gap is assumed.
static const gpu_figures known[] = {{"orin", 102, 800, 16, 1.3, 1536, 65536, 164 << 10, 2048, 3},
                                    {"rtx4090", 1008, 600, 128, 2.5, 1536, 65536, 100 << 10, 1024, 1.3},
                                    {"h200", 4800, 700, 132, 1.8, 2048, 65536, 228 << 10, 4096, 1.3}};

const gpu_figures *gpu_known(const char *name) {
  for (size_t i = 0; i < COUNT(known); i++) if (!strcmp(known[i].name, name)) return &known[i];
  return NULL;
}

bool gpu_name_at(size_t i, const char **name) {
  if (i < COUNT(known)) *name = known[i].name;
  return i < COUNT(known);
}

// --- registers -------------------------------------------------------------------------------------------------------

// Words of a value; 0 if it needs no register: it is part of an instruction, or an alias.
static int live_words(const uop *u) {
  switch (u->op) {
  case OP_CONST: case OP_PARAM: case OP_LOCAL: case OP_SPECIAL: case OP_VAR: case OP_LANE: case OP_SPLAT:
  case OP_STACK: case OP_SHUFFLE: case OP_EXTRACT: case OP_SET: return 0;
  case OP_INDEX: return 2 * u->lanes;
  default: break;
  }
  if (u->dt == DT_VOID || u->dt == DT_BOOL) return 0;
  return (int)(((int64_t)u->lanes * dtype_size((enum dtype)u->dt) + 3) / 4);
}

// A value without registers passes its uses on to its sources.
static void note_uses(const uop *u, size_t at, const map *where, size_t *last) {
  for (size_t i = 0; i < u->nsrc; i++) {
    void *found;
    if (!map_get(where, (uint64_t)(uintptr_t)u->src[i], &found)) continue;
    size_t from = (size_t)(uintptr_t)found;
    if (last[from] < at) last[from] = at;
    if (!live_words(u->src[i]) && u->src[i]->op != OP_RANGE) note_uses(u->src[i], at, where, last);
  }
}

// Maximum number of live words, in the program's own order.
static int most_words(const program *p) {
  size_t *last = xcalloc(p->n + 1, sizeof *last), *open = xcalloc(p->n + 1, sizeof *open), depth = 0;
  int *ends = xcalloc(p->n + 1, sizeof *ends), words = 0, most = 0;
  map where = {0};
  for (size_t i = 0; i < p->n; i++) {
    note_uses(p->at[i], i, &where, last);
    map_set(&where, (uint64_t)(uintptr_t)p->at[i], (void *)(uintptr_t)i);
  }
  // values from outside a loop live until its end, and a variable while it is assigned
  for (size_t i = 0; i < p->n; i++) {
    if (p->at[i]->op == OP_RANGE) open[depth++] = i;
    if (p->at[i]->op != OP_END || !depth) continue;
    size_t begin = open[--depth];
    for (size_t j = 0; j < begin; j++) if (last[j] > begin && last[j] < i) last[j] = i;
  }
  for (size_t i = 0; i < p->n; i++) {
    int own = live_words(p->at[i]);
    words += own - ends[i];
    most = words > most ? words : most;
    ends[last[i] > i ? last[i] : i + 1] += own;
  }
  map_free(&where);
  free(last); free(open); free(ends);
  return most;
}

static int registers_of(const program *p, const kernel_access *a) {
  return (int)min_i64(most_words(p) + OWN_REGISTERS + (int64_t)(a->ahead / 4), MOST_REGISTERS);
}

int predict_registers(const program *p) {
  kernel_access a;
  return registers_of(p, render_access(p, NULL, &a) ? &a : &(kernel_access){0});
}

// --- time ------------------------------------------------------------------------------------------------------------

double predict_us(const gpu_figures *f, const program *p, const plan_var *vars, int n_vars) {
  int64_t *values = xcalloc((size_t)p->n_vars + 1, sizeof *values);
  kernel_access a;
  for (int i = 0; i < p->n_vars; i++) {
    values[i] = p->vars[i]->vmax;
    for (int j = 0; j < n_vars; j++) if (!strcmp(vars[j].name, p->vars[i]->s)) values[i] = vars[j].value;
  }
  bool counted = render_access(p, values, &a);
  free(values);
  if (!counted) return f->gap_us;
  double registers = registers_of(p, &a), in_step = ceil(a.items / STEP);
  double fit = fmin(floor(f->items / a.items), floor(f->registers / (a.items * registers)));
  double held = fmax(1, fmin(fit, floor((double)f->shared / (double)max_i64(program_group_bytes(p), 1))));
  double at_once = fmin(held * f->units, a.groups), waves = a.groups / at_once, units = fmin(f->units, a.groups);
  // per multiprocessor and clock: few subgroups wait for their own results
  double issued = fmin(STEPS_A_CLOCK, at_once * in_step / units / PAUSE), steps = a.groups * in_step;
  double busy = fmax(fmax(fmax(steps * a.sectors / SECTORS_A_CLOCK, steps * a.loads), steps * a.shared),
                     fmax(steps * a.instructions / issued, steps * a.macs / f->macs)) / (units * f->ghz * 1e3);
  double on_the_way = at_once * in_step * a.burst, needed = f->gb_s * f->latency_ns;
  double memory = a.bytes / (f->gb_s * 1e3) / fmin(1, fmax(on_the_way, 1) / needed);
  return f->gap_us + fmax(memory, busy) * ceil(waves) / waves;
}
