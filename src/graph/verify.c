// The verifier is a set of rule tables in the language of rewrite.h, with another meaning: a rule that matches a node
// and whose function returns the node accepts it. A node that no rule of its stage accepts is an error; the functions
// that rejected it give reasons. check.c first checks dtypes, lanes and arguments of each op.
//
// Two properties concern a whole graph. Every RANGE that a value depends on is bound by a REDUCE or a STORE on the way
// to the root (GROUP and LOCAL ranges are work-items, bound by the launch). And every access is in bounds for all
// values of the variables: the interval of its index, while its condition holds, is within the memory.
#include "graph/verify.h"
#include <stdlib.h>
#include <string.h>
#include "graph/check.h"
#include "graph/prove.h"
#include "graph/rewrite.h"

typedef struct context {
  graph *g;
  str *why;                  // reasons of the rules that rejected the node
  prover prover;             // knows the conditions at the node: the enclosing IFs of a program
} context;

static uop *refuse(void *ctx, const char *fmt, ...) PRINTF_LIKE(2, 3);
static uop *refuse(void *ctx, const char *fmt, ...) {
  context *c = ctx;
  va_list ap;
  va_start(ap, fmt);
  str_add(c->why, "\n    ");
  str_vaddf(c->why, fmt, ap);
  va_end(ap);
  return NULL;
}

// --- accesses --------------------------------------------------------------------------------------------------------

// Are `bytes` bytes at each address of the INDEX inside its memory?
static bool lies_inside_memory(context *c, uop *index, int64_t bytes) {
  const uop *mem = uop_memory(index->src[0]);
  int64_t unit = dtype_size((enum dtype)mem->dt), size, last;
  bounds b = {index->src[1]->vmin, index->src[1]->vmax};
  for (int turn = 0; turn < 2; turn++) {
    if (turn) b = prove_index(&c->prover, index->src[1]);              // only if the node's own bounds are not enough
    if (b.lo > b.hi) return true;
    if (b.lo >= 0 && mul_i64(mem->b, unit, &size) && mul_i64(b.hi, unit, &last) && add_i64(last, bytes, &last) &&
        last <= size)
      return true;
  }
  refuse(c, "not proven in bounds: %lld bytes at element %lld..%lld of %s %lld, which has %lld elements of %s",
         (long long)bytes, (long long)b.lo, (long long)b.hi, op_name((enum op)mem->op), (long long)mem->a,
         (long long)mem->b, dtype_name((enum dtype)mem->dt));
  return false;
}

static int64_t access_bytes(const uop *index, const uop *value) {      // a vector INDEX is one element per lane
  int64_t one = dtype_size((enum dtype)value->dt);
  return index->lanes > 1 ? one : one * value->lanes;
}

static uop *load_inside(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v;
  if (u->op != OP_LOAD) return NULL;
  for (size_t i = 1; i < u->nsrc; i++)
    if (u->src[i]->op != OP_BARRIER && u->src[i]->op != OP_STORE && u->src[i]->op != OP_PREFETCH &&
        u->src[i]->op != OP_COPY)
      return refuse(ctx, "LOAD waits for %s, which has no effect", op_name((enum op)u->src[i]->op));
  return lies_inside_memory(ctx, u->src[0], access_bytes(u->src[0], u)) ? u : NULL;
}

static uop *store_inside(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v;
  if (u->op != OP_STORE) return NULL;
  return lies_inside_memory(ctx, u->src[0], access_bytes(u->src[0], u->src[1])) ? u : NULL;
}

static uop *copy_inside(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v;
  if (u->op != OP_COPY) return NULL;
  return lies_inside_memory(ctx, u->src[0], u->a) && lies_inside_memory(ctx, u->src[1], u->a) ? u : NULL;
}

// --- allowed nodes ---------------------------------------------------------------------------------------------------

static uop *fine(graph *g, uop *u, uop *const *v, void *ctx) { (void)g; (void)v; (void)ctx; return u; }

static uop *any_elementwise(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v; (void)ctx;
  return op_flags((enum op)u->op) & OPF_ELEMENTWISE ? u : NULL;
}

static uop *any_movement(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v; (void)ctx;
  return op_flags((enum op)u->op) & OPF_MOVEMENT ? u : NULL;
}

static bool may_be_invalid(const uop *u) { return u->op == OP_WHERE && uop_unsplat(u->src[2])->op == OP_INVALID; }

// For kernels: no shapes, and INVALID only at the end of an index.
static uop *scalar_expression(graph *g, uop *u, uop *const *v, void *ctx) {
  if (!any_elementwise(g, u, v, ctx)) return NULL;
  if (u->shape) return refuse(ctx, "a tensor in a kernel");
  for (size_t i = 0; i < u->nsrc; i++) {
    const uop *s = u->src[i];
    if (may_be_invalid(s) && !may_be_invalid(u))
      return refuse(ctx, "source %zu may be INVALID, and %s is no index", i, op_name((enum op)u->op));
  }
  return u;
}

static uop *one_lane_expression(graph *g, uop *u, uop *const *v, void *ctx) {
  uop *r = scalar_expression(g, u, v, ctx);
  return r && r->lanes != 1 ? refuse(ctx, "%d lanes before vectors are made", u->lanes) : r;
}

static uop *range_counts(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v;
  if (u->src[0]->vmin < 0)
    return refuse(ctx, "the end of RANGE %lld may be negative: %lld", (long long)u->a, (long long)u->src[0]->vmin);
  return u;
}

static uop *assigns_to_a_view(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v;
  const uop *t = uop_viewed(u->src[0]);
  return t->op == OP_BUFFER ? u : refuse(ctx, "ASSIGN to %s, which is no view of a BUFFER", op_name((enum op)t->op));
}

static uop *after_effects(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v;
  if (u->op != OP_AFTER) return NULL;
  for (size_t i = 1; i < u->nsrc; i++)
    if (u->src[i]->op != OP_ASSIGN && u->src[i]->op != OP_AFTER)
      return refuse(ctx, "AFTER %s, which has no effect", op_name((enum op)u->src[i]->op));
  return u;
}

// A prefetch address may be out of bounds.
static uop *asks_ahead(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v; (void)ctx;
  return u->op == OP_PREFETCH ? u : NULL;
}

static uop *sink(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g;
  (void)v;
  (void)ctx;
  return u->op == OP_SINK ? u : NULL;
}

static uop *sink_of_stores(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v;
  if (u->op != OP_SINK) return NULL;
  for (size_t i = 0; i < u->nsrc; i++)
    if (u->src[i]->op != OP_STORE)
      return refuse(ctx, "a kernel that ends in %s and not in STOREs", op_name((enum op)u->src[i]->op));
  return u;
}

static uop *stack_of_tensors(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g;
  (void)v;
  (void)ctx;
  return u->op == OP_STACK && u->shape ? u : NULL;
}

static uop *any_reduction(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v;
  if (u->op != OP_REDUCE) return NULL;
  return u->shape ? refuse(ctx, "a tensor in a kernel") : u;
}

static uop *reduction_in_lanes(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v; (void)ctx;
  return u->op == OP_HREDUCE ? u : NULL;
}

static uop *vector_of_scalars(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g; (void)v;
  if (u->op != OP_STACK) return NULL;
  return u->shape ? refuse(ctx, "a tensor in a kernel") : u;
}

static uop *any_shuffle(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g;
  (void)v;
  (void)ctx;
  return u->op == OP_SHUFFLE ? u : NULL;
}
static uop *any_mma(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g;
  (void)v;
  (void)ctx;
  return u->op == OP_MMA ? u : NULL;
}
static uop *any_barrier(graph *g, uop *u, uop *const *v, void *ctx) {
  (void)g;
  (void)v;
  (void)ctx;
  return u->op == OP_BARRIER ? u : NULL;
}

#include "graph/rules.h"

RULES(spec_tensor, ANYTHING) = {
  F( P0(CONST),                                 fine ),
  F( P0(VAR),                                   fine ),
  F( P0(BUFFER),                                fine ),
  F( x,                                         any_elementwise ),
  F( x,                                         any_movement ),
  F( P1(IOTA, x),                               fine ),
  F( P2(GATHER, x, y),                          fine ),
  F( P1(REDUCE_AXIS, x),                        fine ),
  F( P1(CONTIGUOUS, x),                         fine ),
  F( P1(STAGE, x),                              fine ),
  F( x,                                         stack_of_tensors ),
  F( P2(ASSIGN, x, y),                          assigns_to_a_view ),
  F( x,                                         after_effects ),
  F( x,                                         sink ),
};
RULES_END(spec_tensor)

RULES(spec_leaves, ANYTHING) = {
  F( P0(CONST),                                 fine ),
  F( P0(VAR),                                   fine ),
  F( P0(PARAM),                                 fine ),
  F( P0(LOCAL),                                 fine ),
  F( P0(BUFFER),                                fine ),
  F( P0(INVALID),                               fine ),
  F( P1(RANGE, x),                              range_counts ),
  F( P2(INDEX, x, y),                           fine ),          // an address without an access is safe
  F( x,                                         load_inside ),
  F( x,                                         store_inside ),
};
RULES_END(spec_leaves)

RULES(spec_kernel, ANYTHING) = {
  F( x,                                         one_lane_expression ),
  F( x,                                         any_reduction ),
  F( x,                                         sink_of_stores ),
};
RULES_END(spec_kernel)

RULES(spec_vectors, ANYTHING) = {
  F( x,                                         scalar_expression ),
  F( P0(LANE),                                  fine ),
  F( SPLAT(x),                                  fine ),
  F( EXTRACT(x),                                fine ),
  F( x,                                         reduction_in_lanes ),
  F( P1(SWAP, x),                               fine ),
  F( x,                                         any_shuffle ),
  F( x,                                         vector_of_scalars ),
  F( P0(SPECIAL),                               fine ),
  F( x,                                         any_barrier ),
  F( P3(DOT, x, y, z),                         fine ),
  F( P3(MMLA, x, y, z),                        fine ),
  F( x,                                         any_mma ),
  F( x,                                         asks_ahead ),
  F( x,                                         copy_inside ),
};
RULES_END(spec_vectors)

RULES(spec_reductions, ANYTHING) = {
  F( x,                                         any_reduction ),
  F( x,                                         sink_of_stores ),
};
RULES_END(spec_reductions)

RULES(spec_program, ANYTHING) = {
  F( P1(ACC, x),                                fine ),
  F( P2(SET, P1(ACC, x), y),                    fine ),
  F( P1(END, P1(RANGE, x)),                     fine ),
  F( P1(IF, x),                                 fine ),
  F( P0(ENDIF),                                 fine ),
  F( x,                                         sink ),
};
RULES_END(spec_program)

#undef x
#undef y

static const ruleset *const spec_of_stage[STAGE_COUNT][4] = {
  [STAGE_TENSOR] = {&spec_tensor},
  [STAGE_KERNEL] = {&spec_leaves, &spec_kernel},
  [STAGE_OPTIMISED] = {&spec_leaves, &spec_vectors, &spec_reductions},
  [STAGE_LINEAR] = {&spec_leaves, &spec_vectors, &spec_program},
};
static const char *const stage_names[STAGE_COUNT] = {"a tensor graph", "a kernel", "an optimised kernel",
                                                     "a linear program"};

// --- one node --------------------------------------------------------------------------------------------------------

static void show_node(str *why, uop *u) {
  str_add(why, "\n  ");
  uop_print_expr(why, u);
  str_add(why, "\n");
  str all = {0};
  uop_print(&all, &u, 1);
  size_t from = all.n > 4000 ? all.n - 4000 : 0;        // the end: the node and what is just below it
  while (from && from < all.n && all.at[from - 1] != '\n') from++;
  if (from) str_add(why, "...\n");
  str_addn(why, str_c(&all) + from, all.n - from);
  str_free(&all);
}

static bool node_ok(context *c, uop *u, enum stage stage) {
  str law = {0}, reasons = {0}, *why = c->why;
  bool ok = uop_check(u, &law);
  c->why = &reasons;
  if (!ok) str_addf(&reasons, "\n    %s", str_c(&law));
  uop *v[MAX_PAT_VARS];
  bool allowed = false;
  const ruleset *const *sets = spec_of_stage[stage];
  for (int i = 0; ok && !allowed && i < 4 && sets[i]; i++)
    for (unsigned k = 0; k < sets[i]->n && !allowed; k++) {
      const rule *r = &sets[i]->rules[k];
      allowed = rule_match(r, sets[i]->domain, u, v) && r->fn(c->g, u, v, c);
    }
  c->why = why;
  if (!allowed) {
    str_addf(why, "%s is not what the spec of %s allows%s", op_name((enum op)u->op), stage_names[stage],
             str_c(&reasons));
    if (!reasons.n) {
      str_add(why, "\n    no rule of");
      for (int i = 0; i < 4 && sets[i]; i++) str_addf(why, " %s", sets[i]->name);
      str_add(why, " is for it");
    }
    show_node(why, u);
  }
  str_free(&law); str_free(&reasons);
  return allowed;
}

// --- ranges are bound ------------------------------------------------------------------------------------------------

static bool by_launch(const uop *r) { return r->b == AXIS_GROUP || r->b == AXIS_LOCAL || r->b == AXIS_STEP; }

// For each node the set of ranges that it depends on and that nothing below binds, as bits.
static bool ranges_bound(uop_list l, str *why) {
  arena *mem = arena_new();
  map number = {0}, sets = {0};
  VEC(uop *) ranges = {0};
  for (size_t i = 0; i < l.n; i++)
    if (l.at[i]->op == OP_RANGE) { map_put(&number, l.at[i], (void *)(uintptr_t)ranges.n); vec_push(&ranges, l.at[i]); }
  size_t words = ranges.n / 64 + 1;
  uint64_t *s = NULL;
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i];
    s = ARENA_ARRAY(mem, uint64_t, words);
    for (size_t j = 0; j < u->nsrc; j++) {
      const uint64_t *t = map_ptr(&sets, u->src[j]);
      for (size_t k = 0; k < words; k++) s[k] |= t[k];
    }
    size_t n = (size_t)(uintptr_t)map_ptr(&number, u);
    if (u->op == OP_RANGE) s[n / 64] |= 1ull << n % 64;
    for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++) {
      n = (size_t)(uintptr_t)map_ptr(&number, u->src[j]);
      s[n / 64] &= ~(1ull << n % 64);
    }
    map_put(&sets, u, s);
  }
  bool ok = true;
  for (size_t i = 0; i < ranges.n && s && ok; i++)      // s: of the root, which is last
    if ((s[i / 64] >> i % 64 & 1) && !by_launch(ranges.at[i])) {
      str_addf(why, "RANGE %lld is used, and no REDUCE or STORE binds it", (long long)ranges.at[i]->a);
      show_node(why, l.at[l.n - 1]);
      ok = false;
    }
  vec_free(&ranges);
  map_free(&number); map_free(&sets);
  arena_free(mem);
  return ok;
}

bool verify_graph_ok(graph *g, uop *root, enum stage stage, str *why) {
  arena *mem = arena_new();
  uop_list l = uop_toposort(mem, &root, 1);
  context c = {.g = graph_new(g), .why = why};          // a separate graph: the check leaves no trace
  prover_begin(&c.prover, c.g);
  bool ok = true;
  for (size_t i = 0; i < l.n && ok; i++) ok = node_ok(&c, l.at[i], stage);
  if (ok && (stage == STAGE_KERNEL || stage == STAGE_OPTIMISED)) ok = ranges_bound(l, why);
  prover_end(&c.prover);
  graph_free(c.g);
  arena_free(mem);
  return ok;
}

// --- programs --------------------------------------------------------------------------------------------------------

enum { MAX_OPEN = 256 };

typedef struct program_check {
  context c;
  map defined;               // node -> 1 + number of the scope in which it was made
  uop *open[MAX_OPEN];       // RANGE or IF
  uop *cond[MAX_OPEN];       // holds inside
  int64_t scope[MAX_OPEN];   // number of the scope
  int depth;                 // open[1..depth]; scope 0 is the program itself
  int64_t scopes;
  bool has_idx;
} program_check;

static bool wrong(program_check *p, uop *u, const char *what) {
  str_addf(p->c.why, "%s: %s", op_name((enum op)u->op), what);
  show_node(p->c.why, u);
  return false;
}

static bool is_leaf(const uop *u) { return u->nsrc == 0 && u->op != OP_ENDIF; }

static bool in_scope(const program_check *p, const uop *u) {
  int64_t s = (int64_t)(intptr_t)map_ptr(&p->defined, u) - 1;
  for (int i = 0; i <= p->depth; i++) if (p->scope[i] == s) return true;
  return false;
}

static bool open_scope(program_check *p, uop *u) {
  if (p->depth + 1 == MAX_OPEN) return wrong(p, u, "nested too deeply");
  p->depth++;
  p->open[p->depth] = u;
  p->scope[p->depth] = ++p->scopes;
  uop *outer = p->cond[p->depth - 1];
  p->cond[p->depth] = u->op == OP_RANGE ? outer : outer ? uop_op2(p->c.g, OP_AND, outer, u->src[0]) : u->src[0];
  if (u->op == OP_IF) prover_assume(&p->c.prover, p->cond[p->depth]);
  return true;
}

static bool close_scope(program_check *p, uop *u) {
  const uop *o = p->depth ? p->open[p->depth] : NULL;
  if (u->op == OP_ENDIF && (!o || o->op != OP_IF)) return wrong(p, u, "the innermost open scope is no IF");
  if (u->op == OP_END && o != u->src[0]) return wrong(p, u, "another scope is open inside, or the loop is not");
  p->depth--;
  if (u->op == OP_ENDIF) prover_assume(&p->c.prover, p->cond[p->depth]);
  return true;
}

// Is a condition equal for all work-items of a work-group?
static bool same_for_group(const uop *u) {
  bool same = u->op != OP_LOAD && u->op != OP_RANGE && u->op != OP_ACC && (u->op != OP_SPECIAL || u->s[0] == 'g');
  for (size_t i = 0; i < u->nsrc && same; i++) same = same_for_group(u->src[i]);
  return same;
}

static bool check_step(program_check *p, uop *u) {
  bool again = map_has(&p->defined, u);
  if (again && u->op != OP_ENDIF && !(u->op == OP_IF))
    return wrong(p, u, u->op == OP_RANGE ? "the loop is opened twice" : "stands twice");
  for (size_t i = 0; i < u->nsrc; i++) {
    if (!map_has(&p->defined, u->src[i])) return wrong(p, u, "a source comes later, or never");
    bool closes = u->op == OP_END && i == 0;
    if (!closes && !is_leaf(u->src[i]) && !in_scope(p, u->src[i]))
      return wrong(p, u, "a source was made in a loop or IF that is closed");
  }
  if (!p->has_idx && (u->dt == DT_IDX || u->dt == DT_BF16))
    return wrong(p, u, "IDX or BF16 in a program for a machine");
  if (!node_ok(&p->c, u, STAGE_LINEAR)) return false;
  for (int i = 1; (u->op == OP_SWAP || u->op == OP_MMA) && i <= p->depth; i++)
    if (p->open[i]->op == OP_IF && !same_for_group(p->open[i]->src[0])) return wrong(p, u, "not all items get there");
  if ((u->op == OP_RANGE || u->op == OP_IF) && !open_scope(p, u)) return false;
  if ((u->op == OP_END || u->op == OP_ENDIF) && !close_scope(p, u)) return false;
  map_put(&p->defined, u, (void *)(intptr_t)(p->scope[p->depth] + 1));
  return true;
}

bool verify_program_ok(graph *g, uop *const *at, size_t n, str *why) {
  program_check *p = xcalloc(1, sizeof *p);
  p->c = (context){.g = graph_new(g), .why = why};
  prover_begin(&p->c.prover, p->c.g);
  // the interpreter uses exact integers, and then BF16 too
  for (size_t i = 0; i < n; i++) p->has_idx |= at[i]->dt == DT_IDX;
  bool ok = true;
  for (size_t i = 0; i < n && ok; i++) ok = check_step(p, at[i]);
  if (ok && p->depth) ok = wrong(p, p->open[p->depth], "is never closed");
  map_free(&p->defined);
  prover_end(&p->c.prover);
  graph_free(p->c.g);
  free(p);
  return ok;
}

// --- checks that end the program -------------------------------------------------------------------------------------

static void or_die(bool ok, str *why, const char *pass) {
  die_if(!ok, "after '%s': %s", pass, str_c(why));
  str_free(why);
}

void verify(graph *g, uop *root, enum stage stage, const char *pass) {
  str why = {0};
  or_die(verify_graph_ok(g, root, stage, &why), &why, pass);
}

void verify_program(graph *g, uop *const *at, size_t n, const char *pass) {
  str why = {0};
  or_die(verify_program_ok(g, at, n, &why), &why, pass);
}
