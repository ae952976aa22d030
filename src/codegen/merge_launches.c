// Merges several kernels into one launch. On a GPU the gap between two launches costs as much as a small kernel, and
// some kernels do not wait for each other: Q, K and V, or the scales, codes and sums of rounded activations. Kernels of
// one level become one kernel whose AST is a SINK of theirs. Its program contains their programs in sequence, each for
// its own range of work-group ids. All work-items of a work-group run the same part, so barriers and exchanges need no
// change.
//
// Kernels are merged if one known number counts their work-groups and their work-groups have equally many work-items. A
// kernel with fewer work-items may join if its work-items do not wait for each other: the surplus work-items are idle.
// All parts use the same work-group memory, since only one of them runs.
#include "codegen/merge_launches.h"
#include <stdlib.h>
#include <string.h>
#include "codegen/fuse_follower.h"
#include "graph/digest.h"
#include "graph/symbolic.h"

// --- what can be joined ----------------------------------------------------------------------------------------------

static bool makes_wait(const uop *u) { return u->op == OP_BARRIER || u->op == OP_SWAP || u->op == OP_MMA; }

static launch_shape shape_of_program(const program *p) {
  launch_shape s = {.groups = 1, .items = 1, .tile = p->tile, .fits = !p->global[1] && !p->global[2]};
  s.fits = s.fits && (!p->global[0] || p->global[0]->op == OP_CONST);
  if (s.fits && p->global[0]) s.groups = p->global[0]->a;
  for (int i = 0; i < 3 && s.fits; i++) {
    s.fits = !p->local[i] || p->local[i]->op == OP_CONST;
    if (s.fits && p->local[i]) s.items *= p->local[i]->a;
  }
  for (size_t i = 0; i < p->n; i++) s.waits |= makes_wait(p->at[i]);
  s.shared = program_group_bytes(p);
  return s;
}

launch_shape shape_of(const program *p, uop *ast) {
  launch_shape s = shape_of_program(p);
  sha256 sum;
  sha256_begin(&sum);
  uop_digest(&sum, ast);
  sha256_end(&sum, s.digest);
  return s;
}

const launch_shape *shape_for(shapes *s, uop *ast) {
  launch_shape *form = map_ptr(&s->known, ast);
  if (form) return form;
  program *p = codegen(s->g, ast, s->t, NULL);
  form = ARENA_NEW(s->mem, launch_shape);
  *form = shape_of(p, ast);
  program_free(p);
  map_put(&s->known, ast, form);
  return form;
}

// --- which are joined ------------------------------------------------------------------------------------------------

bool kernels_conflict(const sched_kernel *x, const sched_kernel *y) {
  for (int i = 0; i < x->n_bufs; i++)
    for (int j = 0; j < y->n_bufs; j++)
      if (x->bufs[i] == y->bufs[j] && (x->written[i] || y->written[j])) return true;
  return false;
}

static bool may_join(const launch_set *m, const sched_kernel *k, const launch_shape *s, const target *t) {
  int64_t items = max_i64(m->all.items, s->items);
  bool equal = m->all.items == s->items, padded = equal || (!m->all.waits && !s->waits);
  return m->n < MOST_MERGED && m->n_bufs + k->n_bufs <= most_arguments(t) && m->all.fits && s->fits && padded &&
         items <= t->max_group && m->all.shared + s->shared <= t->max_local_bytes;
}

void launch_set_add(launch_set *m, int fixed, sched_kernel *k, const launch_shape *s) {
  if (!m->n) m->all = *s;
  m->all.items = max_i64(m->all.items, s->items);
  m->all.shared += m->n ? s->shared : 0;
  m->all.waits |= s->waits;
  int at = m->n++;
  for (; at > fixed && strcmp(m->forms[at - 1]->digest, s->digest) > 0; at--) {
    m->of[at] = m->of[at - 1];
    m->forms[at] = m->forms[at - 1];
  }
  m->of[at] = k;
  m->forms[at] = s;
  m->n_bufs += k->n_bufs;
}

// Renames argument a of a part to to[a].
static uop *moved_arguments(graph *g, uop *ast, const int *to) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  map moved = {0};
  for (size_t i = 0; i < l.n; i++) {
    uarg arg = uop_arg(l.at[i]);
    if (l.at[i]->op != OP_PARAM) continue;
    arg.a = to[arg.a];
    map_put(&moved, l.at[i], uop_new(g, OP_PARAM, (enum dtype)l.at[i]->dt, 1, NULL, 0, arg));
  }
  arena_free(a);
  ast = uop_substitute(g, ast, &moved);
  map_free(&moved);
  return ast;
}

sched_kernel launch_set_kernel(graph *g, const launch_set *m, int64_t shared, uarg how) {
  arena *mem = graph_arena(g);
  sched_kernel k = *m->of[0];
  uop *parts[MOST_MERGED];
  k.bufs = ARENA_ARRAY(mem, int64_t, m->n_bufs);
  k.written = ARENA_ARRAY(mem, bool, m->n_bufs);
  k.layouts = ARENA_ARRAY(mem, const struct layout *, m->n_bufs);
  k.n_bufs = 0;
  for (int i = 0; i < m->n; i++) {
    const sched_kernel *one = m->of[i];
    int *to = ARENA_ARRAY(mem, int, one->n_bufs);
    for (int b = 0; b < one->n_bufs; b++) {
      int at = 0;
      while (at < k.n_bufs && (one->bufs[b] != shared || k.bufs[at] != shared)) at++;
      to[b] = at;
      if (at < k.n_bufs) continue;
      k.bufs[at] = one->bufs[b];
      k.written[at] = one->written[b];
      k.layouts[at] = one->layouts ? one->layouts[b] : NULL;
      k.n_bufs++;
    }
    parts[i] = moved_arguments(g, one->ast, to);
  }
  k.ast = uop_new(g, OP_SINK, DT_VOID, 1, parts, (size_t)m->n, how);
  return k;
}

static sched_kernel merged_kernel(graph *g, const launch_set *m) {
  sched_kernel k = launch_set_kernel(g, m, -1, (uarg){0});
  for (int i = 0; i < m->n; i++) k.each |= m->of[i]->each;       // other kernels of the level wait for it
  return k;
}

// Adds a kernel to the first set after everything that it waits for.
void merge_launches(graph *g, schedule *s, const target *t) {
  shapes known = {.g = g, .t = t, .mem = arena_new()};
  fuse_followers(&known, s);
  VEC(sched_kernel) out = {0};
  for (int first = 0, end; first < s->n_kernels; first = end) {
    VEC(launch_set) teams = {0};
    for (end = first; end < s->n_kernels && s->kernels[end].level == s->kernels[first].level; end++) {
      sched_kernel *k = &s->kernels[end];
      const launch_shape *form = shape_for(&known, k->ast);
      size_t at = teams.n;
      while (at > 0) {
        bool free = true;
        for (int i = 0; i < teams.at[at - 1].n; i++) free &= !kernels_conflict(teams.at[at - 1].of[i], k);
        if (!free) break;
        at--;
      }
      while (at < teams.n && !may_join(&teams.at[at], k, form, t)) at++;
      if (at == teams.n) vec_push(&teams, ((launch_set){.n = 0}));
      launch_set_add(&teams.at[at], 0, k, form);
    }
    for (size_t i = 0; i < teams.n; i++)
      vec_push(&out, teams.at[i].n > 1 ? merged_kernel(g, &teams.at[i]) : *teams.at[i].of[0]);
    vec_free(&teams);
  }
  s->n_kernels = (int)out.n;
  s->kernels = memcpy(ARENA_ARRAY(graph_arena(g), sched_kernel, out.n + 1), out.at, out.n * sizeof *out.at);
  vec_free(&out);
  map_free(&known.known);
  arena_free(known.mem);
}

// --- the program -----------------------------------------------------------------------------------------------------

enum { MOST_MEMORIES = 32 };
typedef struct joining {
  graph *g;
  VEC(uop *) code;
  map to;                                          // node of the part -> node of the merged program
  uop *group, *item;                               // ids that the launch provides
  uop *memory[MOST_MEMORIES];                      // work-group memory that parts have used
  int n_memories;
  int64_t renumber;                                // number of the next range or variable
} joining;

// Copies a node into the merged program's graph, since the graphs of the parts are freed.
static uop *copied(joining *j, uop *u) {
  uop *to = map_ptr(&j->to, u);
  if (to) return to;
  uop **src = ARENA_ARRAY(graph_arena(j->g), uop *, u->nsrc + 1);
  for (size_t i = 0; i < u->nsrc; i++) src[i] = copied(j, u->src[i]);
  to = uop_new(j->g, (enum op)u->op, (enum dtype)u->dt, u->lanes, src, u->nsrc, uop_arg(u));
  map_put(&j->to, u, to);
  return to;
}

static uop *group_number(joining *j, int64_t n) { return uop_int(j->g, (enum dtype)j->group->dt, n); }
static uop *add_step(joining *j, enum op op, uop *a, uop *b) {
  uop *u = op == OP_CMPLT ? uop_new(j->g, OP_CMPLT, DT_BOOL, 1, (uop *[]){a, b}, 2, (uarg){0})
                          : uop_new(j->g, op, (enum dtype)a->dt, 1, (uop *[]){a, b}, 2, (uarg){0});
  vec_push(&j->code, u);
  return u;
}

// The n-th work-group memory of this type and size in a part; parts share these.
static uop *memory_like(joining *j, const uop *u, int n) {
  for (int i = 0; i < j->n_memories; i++)
    if (j->memory[i]->dt == u->dt && j->memory[i]->b == u->b && !n--) return j->memory[i];
  die_if(j->n_memories == MOST_MEMORIES, "too many memories of a work-group");
  uop *mem = uop_new(j->g, OP_LOCAL, (enum dtype)u->dt, 1, NULL, 0, (uarg){.a = j->n_memories, .b = u->b});
  return j->memory[j->n_memories++] = mem;
}

// The work-groups and work-items of a part, and the number of those before it in the launch.
typedef struct part_place { int64_t group, groups, item, items; } part_place;

// `number` minus those before the part, clamped so that bounds can be proven.
static uop *number_within(joining *j, uop *number, int64_t before, int64_t n) {
  if (!before && number->b == n) return number;
  if (before) number = add_step(j, OP_SUB, number, group_number(j, before));
  return add_step(j, OP_MIN, add_step(j, OP_MAX, number, group_number(j, 0)), group_number(j, n - 1));
}

// Converts an id to the integer type of a part that counts in another type than the launch.
static uop *number_of_type(joining *j, enum dtype dt, uop *number) {
  if (number->dt == dt) return number;
  vec_push(&j->code, uop_cast(j->g, number, dt));
  return j->code.at[j->code.n - 1];
}

// Sets the ids of a part: its work-group, and the work-item in the part's own dimensions.
static void put_numbers(joining *j, const program *p, const part_place *at) {
  uop *item = NULL;
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    if (u->op != OP_SPECIAL) continue;
    if (u->s[0] == 'g') {
      map_put(&j->to, u, number_of_type(j, (enum dtype)u->dt, number_within(j, j->group, at->group, at->groups)));
      continue;
    }
    if (!item) item = at->item ? number_within(j, j->item, at->item, at->items) : j->item;
    int64_t below = 1, size = p->local[u->s[1] - '0']->a;
    for (int d = 0; d < u->s[1] - '0'; d++) below *= p->local[d]->a;
    uop *v = item;
    if (below > 1) v = add_step(j, OP_CDIV, v, group_number(j, below));
    if (below * size < (at->item ? at->items : j->item->b)) v = add_step(j, OP_CMOD, v, group_number(j, size));
    map_put(&j->to, u, number_of_type(j, (enum dtype)u->dt, v));
  }
}

static void put_part(joining *j, const program *p) {
  int64_t most = j->renumber;
  int used = 0;
  uop *seen[MOST_MEMORIES];
  for (size_t i = 0; i < p->n; i++) {
    uop *u = p->at[i], *to;
    if (u->op == OP_SPECIAL) continue;
    if (is_group_memory(u)) {
      int before = 0;
      for (int m = 0; m < used; m++) before += seen[m]->dt == u->dt && seen[m]->b == u->b;
      seen[used++] = u;
      map_put(&j->to, u, memory_like(j, u, before));
      continue;
    }
    uarg arg = uop_arg(u);
    if (u->op == OP_RANGE || u->op == OP_ACC || u->op == OP_LOCAL || u->op == OP_BARRIER) {
      most = max_i64(most, j->renumber + llabs(arg.a) + 1);
      arg.a += u->op == OP_BARRIER && !arg.b ? 0 : j->renumber;
    }
    uop **src = ARENA_ARRAY(graph_arena(j->g), uop *, u->nsrc + 1);
    for (size_t k = 0; k < u->nsrc; k++) src[k] = copied(j, u->src[k]);
    to = uop_new(j->g, (enum op)u->op, (enum dtype)u->dt, u->lanes, src, u->nsrc, arg);
    map_put(&j->to, u, to);
    if (u->op != OP_PARAM) vec_push(&j->code, to);
  }
  j->renumber = most;
}

// Adds an argument once, even if several parts share it.
static void put_arguments(joining *j, const program *p) {
  for (size_t i = 0; i < p->n; i++) {
    if (p->at[i]->op != OP_PARAM) continue;
    uop *argument = copied(j, p->at[i]);
    bool known = false;
    for (size_t m = 0; m < j->code.n; m++) known |= j->code.at[m] == argument;
    if (!known) vec_push(&j->code, argument);
  }
}

// Is the current work-group and work-item one of this part's? NULL: always.
static uop *is_own(joining *j, const part_place *at) {
  uop *own = NULL, *test[4];
  int n = 0;
  if (at->group) test[n++] = add_step(j, OP_CMPLT, group_number(j, at->group - 1), j->group);
  if (at->group + at->groups < j->group->b)
    test[n++] = add_step(j, OP_CMPLT, j->group, group_number(j, at->group + at->groups));
  if (at->item) test[n++] = add_step(j, OP_CMPLT, group_number(j, at->item - 1), j->item);
  if (at->item + at->items < j->item->b)
    test[n++] = add_step(j, OP_CMPLT, j->item, group_number(j, at->item + at->items));
  for (int i = 0; i < n; i++) own = own ? add_step(j, OP_AND, own, test[i]) : test[i];
  return own;
}

// Places the parts: one after the other. In a chain, followers use the work-groups of the first part and, as long as
// there are enough, subgroups of their own.
static void place_parts(part_place *at, const launch_shape *form, int n, bool chain, int64_t items, const target *t) {
  int64_t group = 0, item = 0, step = t->subgroup_size ? t->subgroup_size : 1;
  for (int i = 0; i < n; i++) {
    at[i] = (part_place){.group = chain ? 0 : group, .groups = form[i].groups, .items = form[i].items};
    group += form[i].groups;
    if (!chain || !i) continue;
    if (item + form[i].items > items) item = 0;
    at[i].item = item;
    item += (int64_t)round_up((size_t)form[i].items, (size_t)step);
  }
}

static double argument_bytes(uop *ast) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  double all = 0;
  for (size_t i = 0; i < l.n; i++)
    if (l.at[i]->op == OP_PARAM) all += (double)l.at[i]->b * dtype_size((enum dtype)l.at[i]->dt);
  arena_free(a);
  return all;
}

static uop *main_part(const uop *ast) {
  size_t most = 0;
  for (size_t i = 1; i < ast->nsrc && !has_followers(ast); i++)
    if (argument_bytes(ast->src[i]) > argument_bytes(ast->src[most])) most = i;
  return ast->src[most];
}

uop *merged_main(uop *ast) {
  while (is_merged(ast)) ast = main_part(ast);
  return ast;
}

static int add_launched(uop *ast, uop **out, int n) {
  if (!is_merged(ast)) { out[n] = ast; return n + 1; }
  for (size_t i = 0; i < ast->nsrc; i++) n = add_launched(ast->src[i], out, n);
  return n;
}

int merged_kernels(uop *ast, uop *out[MOST_KERNELS]) { return add_launched(ast, out, 0); }

// Can parts with these OptOps still be one launch? Parts whose work-items wait for each other must use all work-items.
static bool fits_launch(program *const *part, const launch_shape *form, int n, bool chain, int64_t items,
                        const target *t) {
  int64_t shared = 0;
  bool fits = !chain || part[0]->tile, waits = false, equal = true;
  for (int i = 0; i < n; i++) {
    shared += form[i].shared;
    waits |= form[i].waits;
    equal &= form[i].items == form[0].items;
    fits &= form[i].fits && form[i].items <= t->max_group;
    fits &= !chain || (part[i]->tile == part[0]->tile && form[i].groups == form[0].groups);
    fits &= !chain || !form[i].waits || (!i && form[i].items == items);
  }
  return fits && (chain || equal || !waits) && shared <= t->max_local_bytes;
}

static program *no_launch(program *p, program *const *part, int n) {
  for (int i = 0; i < n; i++) program_free(part[i]);
  program_free(p);
  return NULL;
}

static const uop *out_of(const uop *ast) { return ast->src[0]->src[0]->src[0]; }

program *codegen_merged(graph *parent, uop *ast, const target *t, const codegen_options *o) {
  program *part[MOST_MERGED] = {NULL}, *p = xcalloc(1, sizeof *p);
  joining j = {.g = graph_new(parent)};
  int n = (int)ast->nsrc;
  int64_t items = 1, groups = 0;
  launch_shape form[MOST_MERGED];
  part_place at[MOST_MERGED];
  bool chain = has_followers(ast);
  const uop *main = main_part(ast);
  codegen_options follower = {.follows = chain ? out_of(ast->src[0])->a : 0,
                              .doubtful = o && o->doubtful,
                              .record = o ? o->record : NULL},
                  other = {.noopt = o && o->noopt, .record = follower.record};
  p->graph = j.g;
  p->mem = graph_arena(j.g);
  p->bytes = p->flops = uop_idx(j.g, 0);
  for (int i = 0; i < n; i++) {
    part[i] = codegen(j.g, ast->src[i], t, chain && i ? &follower : ast->src[i] == main ? o : &other);
    if (!part[i]) return no_launch(p, part, i);
    form[i] = shape_of_program(part[i]);
    items = max_i64(items, form[i].items);
    groups = chain ? form[0].groups : groups + form[i].groups;
    if (!i) follower.tile = part[i]->tile;
    if (ast->src[i] != main) continue;
    p->applied = ARENA_ARRAY(p->mem, opt, part[i]->n_applied + 1);
    memcpy((opt *)(uintptr_t)p->applied, part[i]->applied, (size_t)part[i]->n_applied * sizeof *p->applied);
    p->n_applied = part[i]->n_applied;
  }
  if (o && o->opts && !fits_launch(part, form, n, chain, items, t)) return no_launch(p, part, n);
  place_parts(at, form, n, chain, items, t);
  find_arguments(ast, p);
  p->global[0] = uop_idx(j.g, groups);
  p->local[0] = uop_idx(j.g, items);
  p->tiles = uop_idx(j.g, 1);
  snprintf(p->name, sizeof p->name, chain ? "%.60s_then_%d" : "%.60s_and_%d", part[0]->name, n - 1);
  enum dtype dt = t->index32 ? DT_I32 : DT_I64;
  j.group = uop_new(j.g, OP_SPECIAL, dt, 1, NULL, 0, (uarg){.b = groups, .s = "g0", .s_len = 2});
  j.item = uop_new(j.g, OP_SPECIAL, dt, 1, NULL, 0, (uarg){.b = items, .s = "l0", .s_len = 2});
  for (int i = 0; i < n; i++) put_arguments(&j, part[i]);
  vec_push(&j.code, j.group);
  vec_push(&j.code, j.item);
  size_t head = j.code.n;
  for (int i = 0; i < n; i++) {
    if (chain && i == 1)
      vec_push(&j.code, uop_new(j.g, OP_BARRIER, DT_VOID, 1, NULL, 0, (uarg){.a = j.renumber, .b = BARRIER_PARAMS}));
    uop *own = is_own(&j, &at[i]);
    if (own) vec_push(&j.code, uop_new(j.g, OP_IF, DT_VOID, 1, &own, 1, (uarg){0}));
    put_numbers(&j, part[i], &at[i]);
    put_part(&j, part[i]);
    if (own) vec_push(&j.code, uop_new(j.g, OP_ENDIF, DT_VOID, 1, NULL, 0, (uarg){0}));
    p->bytes = idx_add(j.g, p->bytes, copied(&j, part[i]->bytes));
    p->flops = idx_add(j.g, p->flops, copied(&j, part[i]->flops));
    program_free(part[i]);
    map_free(&j.to);
  }
  p->n = j.code.n + (size_t)j.n_memories;
  p->at = ARENA_ARRAY(p->mem, uop *, p->n + 1);
  memcpy(p->at, j.code.at, head * sizeof *p->at);
  memcpy(p->at + head, j.memory, (size_t)j.n_memories * sizeof *p->at);
  memcpy(p->at + head + j.n_memories, j.code.at + head, (j.code.n - head) * sizeof *p->at);
  vec_free(&j.code);
  map_free(&j.to);
  return p;
}
