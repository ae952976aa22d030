// The pipeline of code generation, one call per pass: see codegen.h.
#include "codegen/codegen.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "codegen/fuse_follower.h"
#include "codegen/cost.h"
#include "codegen/decompose.h"
#include "codegen/dot_tiles.h"
#include "codegen/dot_words.h"
#include "codegen/expand.h"
#include "codegen/merge_launches.h"
#include "codegen/reuse.h"
#include "codegen/linearize.h"
#include "codegen/mma.h"
#include "codegen/pack_sums.h"
#include "codegen/launch_ids.h"
#include "graph/record.h"
#include "graph/verify.h"

// Verifies the result of every pass. False: OptOps marked doubtful led to a kernel that the verifier rejects.
static bool check(graph *g, uop *ast, enum stage stage, const char *pass, const codegen_options *o) {
  record_mark(g, ast, "%s", pass);
  if (o && o->doubtful) {
    str why = {0};
    bool ok = verify_graph_ok(g, ast, stage, &why);
    if (!ok && debug_level() >= 3) fprintf(stderr, "search: after '%s': %s\n", pass, str_c(&why));
    str_free(&why);
    return ok;
  }
  if (env_int(ENV_SPEC)) verify(g, ast, stage, pass);
  return true;
}

static void dump(const char *pass, uop *ast) {
  if (debug_level() < 5) return;
  str s = {0};
  uop_print(&s, &ast, 1);
  fprintf(stderr, "--- %s\n%s", pass, str_c(&s));
  str_free(&s);
}

static void add_size(str *s, const uop *r) {
  if (r->src[0]->op == OP_CONST) str_addf(s, "_%lld", (long long)r->src[0]->a);
  else str_addf(s, "_n%lld", (long long)r->src[0]->vmax);
}

// Names a kernel: "r" if it reduces, "E" (elementwise) otherwise; then the sizes of its axes.
static void name_kernel(const kernel *k, program *p) {
  axes x;
  kernel_axes(k, &x);
  str s = {0};
  str_add(&s, x.n > x.n_out ? "r" : "E");
  for (int i = 0; i < x.n; i++) add_size(&s, x.at[i]);
  if (!x.n) str_add(&s, "_1");
  snprintf(p->name, sizeof p->name, "%s", str_c(&s));
  str_free(&s);
}

static int by_var_name(const void *x, const void *y) {
  const uop *a = *(uop *const *)x, *b = *(uop *const *)y;
  return strcmp(a->s, b->s);
}

void find_arguments(uop *ast, program *p) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++) {
    if (l.at[i]->op == OP_PARAM && l.at[i]->a >= p->n_bufs) p->n_bufs = (int)l.at[i]->a + 1;
    if (l.at[i]->op == OP_VAR) p->n_vars++;
  }
  p->bufs = ARENA_ARRAY(p->mem, struct program_buf, p->n_bufs + 1);
  p->vars = ARENA_ARRAY(p->mem, uop *, p->n_vars + 1);
  int n = 0;
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i];
    if (u->op == OP_PARAM) { p->bufs[u->a].dt = (enum dtype)u->dt; p->bufs[u->a].elems = u->b; }
    if (u->op == OP_VAR) p->vars[n++] = u;
    if ((u->op == OP_LOAD || u->op == OP_STORE) && u->src[0]->src[0]->op == OP_PARAM) {
      struct program_buf *b = &p->bufs[u->src[0]->src[0]->a];
      if (u->op == OP_LOAD) b->read = true;
      else b->written = true;
    }
  }
  if (n) qsort(p->vars, (size_t)n, sizeof *p->vars, by_var_name);
  arena_free(a);
}

// A core does about 20 or more 8-bit integer operations in the time in which memory delivers one byte. Products of one
// token with a weight need 2 to 10 operations per byte, those of a prompt chunk 100 and more.
enum { FLOPS_PER_BYTE = 16 };

static void optimise(kernel *k, program *p, const codegen_options *o) {
  if (o && o->tile) { p->tile = fuse_follower(k, o->follows, o->tile) ? o->tile : 0; return; }
  if (o && o->opts) { kernel_apply_all(k, o->opts, o->n_opts, false); return; }
  if ((o && o->noopt) || env_int(ENV_NOOPT)) return;
  heuristic(k, p->flops->vmax / FLOPS_PER_BYTE <= p->bytes->vmax);
}

static program *new_program(graph *g) {
  program *p = xcalloc(1, sizeof *p);
  p->mem = graph_arena(g);
  p->graph = g;
  return p;
}

// The program of a kernel that packs a weight: its loops and lanes are already decided.
static program *filling_program(graph *parent, uop *ast, const target *t) {
  graph *g = graph_new(parent);
  program *p = new_program(g);
  find_arguments(ast, p);
  const uop *store = ast->src[0];
  p->tiles = store->nsrc > 2 && store->src[2]->b == AXIS_GLOBAL ? store->src[2]->src[0] : uop_idx(g, 1);
  p->bytes = uop_idx(g, 2 * p->bufs[0].elems);
  p->flops = uop_idx(g, 0);
  die_if(p->tiles->op != OP_CONST || p->tiles->a < 1, "a filling kernel of a number of tiles that is not known");
  snprintf(p->name, sizeof p->name, "fill_%lld_%lld_%u", (long long)p->tiles->a,
           (long long)(p->bufs[0].elems / p->tiles->a), ast->nsrc);
  if (t->has_local) ast = filling_launch_ids(g, ast, p);
  dump("filling kernel", ast);                          check(g, ast, STAGE_OPTIMISED, "filling kernel", NULL);
  linearize(g, decompose(g, ast, t), t, p);
  return p;
}

// Returns NULL if doubtful OptOps are unsound.
static uop *expand_all(kernel *k, program *p, const target *t, const codegen_options *o) {
  graph *g = k->g;
  uop *u;
  bool ok = check(g, u = t->has_local ? launch_ids(k, p) : k->ast, STAGE_OPTIMISED, "work-groups", o) &&
            check(g, u = expand_gates(g, u), STAGE_OPTIMISED, "gates", o) &&
            check(g, u = expand_stages(g, u), STAGE_OPTIMISED, "stages", o) &&
            check(g, u = expand_unrolls(g, u), STAGE_OPTIMISED, "unroll", o) &&
            check(g, u = expand_lanes(g, u), STAGE_OPTIMISED, "lanes", o) &&
            check(g, u = pack_sums(g, u), STAGE_OPTIMISED, "neighbours", o) &&
            check(g, u = dot_tiles(g, u, t, k->without), STAGE_OPTIMISED, "dot tiles", o) &&
            check(g, u = reuse_across_tokens(g, u, k->keep, k->keep_hint, t->tile_bytes), STAGE_OPTIMISED, "keep", o) &&
            check(g, u = dot_words(g, u, t, k->without), STAGE_OPTIMISED, "dot words", o);
  if (ok) dump("expanded", u);
  return ok && check(g, u = decompose(g, u, t), STAGE_OPTIMISED, "decompose", o) ? u : NULL;
}

static program *unsound(program *p) {
  program_free(p);
  return NULL;
}

program *codegen(graph *parent, uop *ast, const target *t, const codegen_options *o) {
  if (o && o->filling) return filling_program(parent, ast, t);
  if (is_merged(ast)) return codegen_merged(parent, ast, t, o);
  graph *g = graph_new(parent);
  program *p = new_program(g);
  kernel k;
  if (o) graph_record(g, o->record);
  kernel_init(&k, g, simplify(g, ast), t);
  dump("kernel", k.ast);
  check(g, k.ast, STAGE_KERNEL, "schedule", NULL);
  find_arguments(k.ast, p);
  kernel_cost(g, k.ast, p);
  optimise(&k, p, o);
  if (!check(g, k.ast, STAGE_KERNEL, "optimise", o) || (o && o->doubtful && !mma_sound(k.ast))) return unsound(p);
  memcpy(p->order, k.order, sizeof p->order);
  p->distance = k.distance;
  p->paged = k.paged;
  p->without = k.without;
  if (t->has_local && !(o && o->tile)) p->tile = follower_tile(&k);
  kernel_make_tiles(&k);
  if (!check(g, k.ast, STAGE_KERNEL, "tiles", o)) return unsound(p);
  name_kernel(&k, p);
  p->applied = memcpy(ARENA_ARRAY(p->mem, opt, k.n_applied + 1), k.applied, (size_t)k.n_applied * sizeof *k.applied);
  p->n_applied = k.n_applied;
  dump("optimised", k.ast);
  uop *u = expand_all(&k, p, t, o);
  if (!u) return unsound(p);
  p->tiles = uop_idx(g, 1);
  for (size_t i = 2; i < u->src[0]->nsrc; i++)
    if (u->src[0]->src[i]->b == AXIS_GLOBAL) p->tiles = u->src[0]->src[i]->src[0];
  linearize(g, u, t, p);
  str why = {0};
  bool sound = !(o && o->doubtful) ||
               (verify_program_ok(g, p->at, p->n, &why) && program_group_bytes(p) <= t->max_local_bytes);
  str_free(&why);
  if (!sound) return unsound(p);
  if (env_int(ENV_SPEC)) verify_program(g, p->at, p->n, "linearize");
  if (debug_level() >= 3) {
    str opts = {0};
    opts_print(&opts, k.applied, k.n_applied);
    fprintf(stderr, "kernel %s:%s%s\n", p->name, opts.n ? " " : "", str_c(&opts));
    str_free(&opts);
  }
  graph_record(g, NULL);
  if (debug_level() >= 5) { str s = {0}; program_print(&s, p); fprintf(stderr, "%s", str_c(&s)); str_free(&s); }
  return p;
}

void program_free(program *p) {
  if (!p) return;
  graph_free(p->graph);
  free(p);
}

int64_t program_group_bytes(const program *p) {
  map seen = {0};
  int64_t all = 0;
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    if (!is_group_memory(u) || map_has(&seen, u)) continue;
    map_put(&seen, u, (void *)1);
    all += u->b * dtype_size((enum dtype)u->dt);
  }
  map_free(&seen);
  return all;
}

int64_t program_eval(const program *p, const uop *u, const int64_t *vars) {
  if (u->op == OP_CONST) return u->a;
  if (u->op == OP_VAR) {
    for (int i = 0; i < p->n_vars; i++) if (!strcmp(p->vars[i]->s, u->s)) return vars[i];
    die("no value for variable %s", u->s);
  }
  int64_t s[3];
  die_if(u->nsrc > 3, "cannot evaluate %s", op_name((enum op)u->op));
  for (size_t i = 0; i < u->nsrc; i++) s[i] = program_eval(p, u->src[i], vars);
  switch (u->op) {
  case OP_ADD: return s[0] + s[1];
  case OP_SUB: return s[0] - s[1];
  case OP_MUL: return s[0] * s[1];
  case OP_IDIV: return floordiv_i64(s[0], s[1]);
  case OP_MOD: return floormod_i64(s[0], s[1]);
  case OP_CDIV: return s[0] / s[1];
  case OP_CMOD: return s[0] % s[1];
  case OP_SHR: return s[0] >> s[1];
  case OP_SHL: return s[0] << s[1];
  case OP_AND: return s[0] & s[1];
  case OP_MAX: return max_i64(s[0], s[1]);
  case OP_MIN: return min_i64(s[0], s[1]);
  case OP_NEG: return -s[0];
  case OP_CAST: return s[0];
  default: die("cannot evaluate %s", op_name((enum op)u->op));
  }
}

void program_print(str *out, const program *p) {
  map number = {0};
  int indent = 1;
  str_addf(out, "program %s\n", p->name);
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    if (u->op == OP_END || u->op == OP_ENDIF) indent--;
    str_addf(out, "%*s", 2 * indent, "");
    map_put(&number, u, (void *)(uintptr_t)(i + 1));
    str_addf(out, "%%%zu = %s.%s", i, op_name((enum op)u->op), dtype_name((enum dtype)u->dt));
    if (u->lanes > 1) str_addf(out, "x%d", u->lanes);
    for (size_t j = 0; j < u->nsrc; j++) str_addf(out, " %%%ld", (long)(uintptr_t)map_ptr(&number, u->src[j]) - 1);
    if (u->op == OP_CONST) str_addf(out, " %.9g", uop_const_float(u));
    else if (u->s && u->op != OP_SHUFFLE) str_addf(out, " \"%s\"", u->s);
    else if (u->op == OP_RANGE) str_addf(out, " r%lld %s", (long long)u->a, axis_kind_name((enum axis_kind)u->b));
    else if (u->a || u->b)
      str_addf(out, u->memory ? " [%lld %lld %s]" : " [%lld %lld]", (long long)u->a, (long long)u->b,
               memory_kind_name((enum memory_kind)u->memory));
    str_addc(out, '\n');
    if (u->op == OP_RANGE || u->op == OP_IF) indent++;
  }
  map_free(&number);
}
