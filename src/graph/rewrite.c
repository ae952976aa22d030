// The rewrite engine: matches nodes against rule tables and rebuilds. See rewrite.h for the language and its laws.
// Early rejection: a rule whose pattern needs an op among the sources is skipped unless the node has such a source;
// both are sets of ops in two words, compared by one mask test.
#include "graph/rewrite.h"
#include <stdlib.h>
#include "base/env.h"
#include "graph/eval.h"
#include "graph/record.h"

typedef struct opset { uint64_t w[2]; } opset;

static bool in_domain(int domain, const uop *u) {
  enum dtype d = (enum dtype)u->dt;
  if ((op_flags((enum op)u->op) & OPF_COMPARE) && u->nsrc) d = (enum dtype)u->src[0]->dt;
  switch (domain & 15) {
  case INTS: return dtype_is_int(d);
  case FLOATS: return dtype_is_float(d);
  case BOOLS: return d == DT_BOOL;
  default: return true;
  }
}

static bool match(const pat *p, uop *u, uop **v) {
  if (p->op == PAT_VAR || p->op == PAT_CONST || p->op == PAT_INT) {
    const uop *c = uop_unsplat(u);
    if (p->op != PAT_VAR && c->op != OP_CONST) return false;
    if (p->op == PAT_INT && uop_const_float(c) != (double)p->k) return false;
  } else {
    if (p->op != u->op || p->nsrc != u->nsrc) return false;
    if (p->dt && p->dt != u->dt) return false;
  }
  if (p->var) {
    if (v[p->var - 1] && v[p->var - 1] != u) return false;
    v[p->var - 1] = u;
  }
  if (!p->nsrc) return true;
  uop *keep[MAX_PAT_VARS];
  bool swaps = (op_flags((enum op)u->op) & OPF_COMMUTATIVE) && u->src[0] != u->src[1];
  for (int i = 0; i < MAX_PAT_VARS; i++) keep[i] = v[i];
  for (int turn = 0; turn < (swaps ? 2 : 1); turn++) {
    bool ok = true;
    for (int i = 0; ok && i < p->nsrc; i++) ok = match(p->src[i], u->src[turn && i < 2 ? 1 - i : i], v);
    if (ok) return true;
    for (int i = 0; i < MAX_PAT_VARS; i++) v[i] = keep[i];
  }
  return false;
}

bool rule_match(const rule *r, int domain, uop *u, uop **v) {
  for (int i = 0; i < MAX_PAT_VARS; i++) v[i] = NULL;
  return in_domain(domain, u) && match(r->lhs, u, v);
}

// Builds the right side. `like` gives dtype and lanes to bare constants.
static uop *build_right(graph *g, const pat *p, const uop *like, uop *const *v) {
  if (p->var && p->nsrc == 0) return v[p->var - 1];
  if (p->op == PAT_INT) return uop_const_like(g, like, (double)p->k);
  uop *s[3];
  const uop *hint = like;
  for (int i = 0; i < p->nsrc; i++)
    if (p->src[i]->op != PAT_INT) { s[i] = build_right(g, p->src[i], like, v); hint = s[i]; }
  for (int i = 0; i < p->nsrc; i++)
    if (p->src[i]->op == PAT_INT) s[i] = build_right(g, p->src[i], hint, v);
  uop *u;
  if (p->op == OP_CAST) u = uop_cast(g, s[0], p->dt ? (enum dtype)p->dt : (enum dtype)like->dt);
  else if (p->op == OP_BITCAST && !p->dt && !like->shape && s[0]->lanes != like->lanes)  // reinterprets lanes together
    u = uop_new(g, OP_BITCAST, (enum dtype)like->dt, like->lanes, s, 1, (uarg){0});
  else if (p->op == OP_BITCAST) u = uop_bitcast(g, s[0], p->dt ? (enum dtype)p->dt : (enum dtype)like->dt);
  else
    u = p->nsrc == 1   ? uop_op1(g, (enum op)p->op, s[0])
        : p->nsrc == 2 ? uop_op2(g, (enum op)p->op, s[0], s[1])
                       : uop_op3(g, (enum op)p->op, s[0], s[1], s[2]);
  uop *folded = eval_const(g, u);
  return folded ? folded : u;
}

uop *rule_apply(graph *g, const rule *r, uop *u, uop *const *v, void *ctx) {
  uop *to = r->fn ? r->fn(g, u, v, ctx) : build_right(g, r->rhs, u, v);
  if (to == u || (!r->fn && to->shape != u->shape)) return NULL;       // a bare constant has no shape
  if (!to) return NULL;
  die_if((to->dt != u->dt || to->lanes != u->lanes) && !(to->op == OP_SINK || u->op == OP_SINK),
         "rule '%s' turned %s.%sx%d into %s.%sx%d", r->text, op_name((enum op)u->op), dtype_name((enum dtype)u->dt),
         u->lanes, op_name((enum op)to->op), dtype_name((enum dtype)to->dt), to->lanes);
  return to;
}

static void trace(const ruleset *s, const rule *r, const uop *u, const uop *to, const char *pass) {
  str before = {0}, after = {0};
  uop_print_expr(&before, u);
  uop_print_expr(&after, to);
  fprintf(stderr, "%s: %s:%d  %s\n    %.300s\n    %.300s\n", pass, s->name, r->line, r->text, str_c(&before),
          str_c(&after));
  str_free(&before); str_free(&after);
}

static opset sources(const uop *u) {
  opset o = {{0, 0}};
  for (size_t i = 0; i < u->nsrc; i++) o.w[u->src[i]->op >> 6] |= 1ull << (u->src[i]->op & 63);
  return o;
}

static bool wants(const pat *p, opset have) {
  for (int i = 0; i < p->nsrc; i++) {
    unsigned op = p->src[i]->op;
    if (op < OP_COUNT && !(have.w[op >> 6] >> (op & 63) & 1)) return false;
  }
  return true;
}

uop *rewrite_once(graph *g, uop *u, const ruleset *const *sets, void *ctx, const char *pass) {
  uop *v[MAX_PAT_VARS];
  opset have = sources(u);
  for (; *sets; sets++) {
    if (!in_domain((*sets)->domain, u)) continue;
    for (unsigned i = 0; i < (*sets)->n; i++) {
      const rule *r = &(*sets)->rules[i];
      if ((r->lhs->op != u->op && r->lhs->op < OP_COUNT) || !wants(r->lhs, have)) continue;
      for (int k = 0; k < MAX_PAT_VARS; k++) v[k] = NULL;
      if (!match(r->lhs, u, v)) continue;
      uop *to = rule_apply(g, r, u, v, ctx);
      if (!to) continue;
      __atomic_fetch_add(&(*sets)->hits[i], 1, __ATOMIC_RELAXED);
      if (graph_recorder(g)) record_step(graph_recorder(g), pass, *sets, i, u, to);
      if (debug_level() >= 6) trace(*sets, r, u, to, pass);
      return to;
    }
  }
  return NULL;
}

typedef struct walk { graph *g; const ruleset *const *sets; void *ctx; const char *pass; map *done; int depth; } walk;

static uop *visit(walk *w, uop *u) {
  uop *hit = map_ptr(w->done, u);
  if (hit) return hit;
  die_if(++w->depth > 20000, "%s: an expression is nested too deeply", w->pass);
  uop *cur = u;
  for (int steps = 0;; steps++) {
    die_if(steps > 10000, "%s does not end at %s", w->pass, op_name((enum op)cur->op));
    uop *few[8], **s = cur->nsrc <= 8 ? few : xmalloc(cur->nsrc * sizeof *s);
    for (size_t i = 0; i < cur->nsrc; i++) s[i] = visit(w, cur->src[i]);
    uop *rebuilt = uop_with_src(w->g, cur, s);
    if (s != few) free(s);
    uop *to = rewrite_once(w->g, rebuilt, w->sets, w->ctx, w->pass);
    if (!to) { cur = rebuilt; break; }
    uop *known = map_ptr(w->done, to);
    cur = to;
    if (known) { cur = known; break; }
  }
  w->depth--;
  map_put(w->done, u, cur);
  map_put(w->done, cur, cur);
  return cur;
}

uop *graph_rewrite(graph *g, uop *root, const ruleset *const *sets, void *ctx, const char *pass) {
  map done = {0};
  uop *r = graph_rewrite_memo(g, root, sets, ctx, pass, &done);
  map_free(&done);
  return r;
}

uop *graph_rewrite_memo(graph *g, uop *root, const ruleset *const *sets, void *ctx, const char *pass, map *memo) {
  return visit(&(walk){.g = g, .sets = sets, .ctx = ctx, .pass = pass, .done = memo}, root);
}
