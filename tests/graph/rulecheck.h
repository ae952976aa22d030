// What every rule table is held to, for the tests of this and of later folders:
//   rulecheck_table   its rules are well-formed: arities, no unbound variables on the right, none shadowed by an
//                     earlier one,
//                     none that undoes another
//   rulecheck_fuzz    each rule, applied alone to random nodes that match it, keeps the value, the dtype, the lanes and
//                     sound
//                     bounds, and fires often enough for that to mean something
//   rulecheck_shapes  each rule keeps the shape of tensors
// The checks return the number of complaints, which they add to a str, so that they can be tested themselves.
#ifndef WEFT_TESTS_RULECHECK_H
#define WEFT_TESTS_RULECHECK_H
#include "gen.h"
#include "graph/check.h"
#include "graph/rewrite.h"

#define complain(out, set, i, ...) \
  (str_addf(out, "%s:%d  %s\n    ", (set)->name, (set)->rules[i].line, (set)->rules[i].text), \
  str_addf(out, __VA_ARGS__), str_addc(out, '\n'), 1)

// --- the text of a table ---------------------------------------------------------------------------------------------

static inline bool is_leaf_pat(const pat *p) { return p->op == PAT_VAR || p->op == PAT_CONST || p->op == PAT_INT; }

static inline int check_pat(str *out, const ruleset *s, unsigned i, const pat *p, unsigned *bound, bool right) {
  if (is_leaf_pat(p)) {
    if (p->nsrc) return complain(out, s, i, "a variable with sources");
    if (p->op != PAT_INT && (!p->var || p->var > MAX_PAT_VARS)) return complain(out, s, i, "a variable without a slot");
    if (p->op != PAT_INT && right && !(*bound >> p->var & 1))
      return complain(out, s, i, "a variable on the right side that the left does not bind");
    if (!right && p->var) *bound |= 1u << p->var;
    return 0;
  }
  if (p->op >= OP_COUNT) return complain(out, s, i, "op %d", p->op);
  int arity = op_arity((enum op)p->op), bad = 0;
  if (arity >= 0 && arity != p->nsrc)
    bad += complain(out, s, i, "%s has %d sources, not %d", op_name((enum op)p->op), arity, p->nsrc);
  if (right && p->op != OP_SPLAT && !(op_flags((enum op)p->op) & OPF_ELEMENTWISE))
    bad += complain(out, s, i, "builds %s, which a pattern cannot", op_name((enum op)p->op));
  for (int k = 0; k < p->nsrc; k++) {
    if (!p->src[k]) return bad + complain(out, s, i, "source %d is missing", k);
    bad += check_pat(out, s, i, p->src[k], bound, right);
  }
  if (!right && p->var) *bound |= 1u << p->var;
  return bad;
}

static inline bool same_pat(const pat *p, const pat *q) {
  if (p->op != q->op || p->var != q->var || p->nsrc != q->nsrc || p->dt != q->dt || p->k != q->k) return false;
  for (int i = 0; i < p->nsrc; i++) if (!same_pat(p->src[i], q->src[i])) return false;
  return true;
}

static inline bool folds_to_const(const pat *p) {         // built from constants only: what the engine folds
  if (is_leaf_pat(p)) return p->op != PAT_VAR;
  for (int i = 0; i < p->nsrc; i++) if (!folds_to_const(p->src[i])) return false;
  return p->nsrc > 0;
}

// Does p match all that q describes?  `at` maps p's variables to parts of q.
static inline bool covers(const pat *p, const pat *q, const pat **at) {
  if (p->var) {
    if (at[p->var - 1] && !same_pat(at[p->var - 1], q)) return false;
    at[p->var - 1] = q;
  }
  if (p->op == PAT_VAR) return true;
  if (p->op == PAT_CONST) return folds_to_const(q);
  if (p->op == PAT_INT) return q->op == PAT_INT && q->k == p->k;
  if (p->op != q->op || p->nsrc != q->nsrc || (p->dt && p->dt != q->dt)) return false;
  const pat *keep[MAX_PAT_VARS];
  memcpy(keep, at, sizeof keep);
  for (int turn = 0; turn < (op_flags((enum op)p->op) & OPF_COMMUTATIVE ? 2 : 1); turn++) {
    bool ok = true;
    for (int i = 0; ok && i < p->nsrc; i++) ok = covers(p->src[i], q->src[turn && i < 2 ? 1 - i : i], at);
    if (ok) return true;
    memcpy(at, keep, sizeof keep);
  }
  return false;
}

static inline bool pat_covers(const pat *p, const pat *q) {
  const pat *at[MAX_PAT_VARS] = {0};
  return covers(p, q, at);
}

static inline int rulecheck_table(str *out, const ruleset *s) {
  int bad = 0;
  for (unsigned i = 0; i < s->n; i++) {
    const rule *r = &s->rules[i];
    unsigned bound = 0;
    if (!r->text || !*r->text || r->line <= 0) {
      str_addf(out, "%s: rule %u has no text or line\n", s->name, i);
      bad++;
      continue;
    }
    if (!r->lhs || !r->rhs == !r->fn) {
      bad += complain(out, s, i, "needs a left side, and a right side or a function");
      continue;
    }
    bad += check_pat(out, s, i, r->lhs, &bound, false);
    if (r->rhs) {
      bad += check_pat(out, s, i, r->rhs, &bound, true);
      if (r->rhs->op == PAT_CONST || r->rhs->op == PAT_INT || r->rhs->op == PAT_VAR) {
        if (is_leaf_pat(r->lhs)) bad += complain(out, s, i, "replaces a leaf");
      }
    }
    for (unsigned j = 0; j < i; j++)
      if (s->rules[j].rhs && pat_covers(s->rules[j].lhs, r->lhs))
        bad += complain(out, s, i, "never fires: '%s' comes first and matches all that it does", s->rules[j].text);
    for (unsigned j = 0; j <= i && r->rhs; j++) {
      const rule *q = &s->rules[j];
      if (q->rhs && pat_covers(q->lhs, r->rhs) && pat_covers(r->lhs, q->rhs))
        bad += complain(out, s, i, "and '%s' undo each other", q->text);
    }
  }
  return bad;
}

// --- random nodes that match a pattern -------------------------------------------------------------------------------

typedef struct maker { gen *r; uop *v[MAX_PAT_VARS]; int domain; bool tensors; } maker;

static const enum dtype every_type[] = {DT_BOOL, DT_I8,  DT_U8,  DT_I16, DT_U16,  DT_I32, DT_U32,
                                        DT_I64,  DT_U64, DT_IDX, DT_F16, DT_BF16, DT_F32, DT_F64};

static inline enum dtype random_type(gen *r, int domain) {
  switch (domain & 15) {
  case INTS: return gen_int_type(r);
  case FLOATS: return gen_float_type(r);
  case BOOLS: return DT_BOOL;
  default: return every_type[gen_below(r, COUNT(every_type))];
  }
}

// sums of multiples, and quotients and remainders of such: what indices are made of
static inline uop *random_index(gen *r, int depth) {
  uop *u = gen_below(r, 2) ? uop_idx(r->g, gen_between(r, -8, 16)) : r->var[gen_below(r, GEN_VARS)];
  for (int i = 0; i < GEN_VARS; i++)
    if (gen_below(r, 2))
      u = uop_op2(r->g, OP_ADD, u,
                  uop_op2(r->g, OP_MUL, r->var[i],
                          uop_idx(r->g, gen_below(r, 3) ? gen_between(r, -3, 24) : 1 << gen_below(r, 6))));
  for (int i = 0; i < depth; i++) {
    uop *c = gen_positive_const(r, DT_IDX);
    c = (uop *)(uintptr_t)uop_unsplat(c);
    static const enum op ops[] = {OP_IDIV, OP_MOD, OP_MUL, OP_ADD};
    u = uop_op2(r->g, ops[gen_below(r, 4)], u, c);
    if (gen_below(r, 2)) u = uop_op2(r->g, OP_ADD, u, r->var[gen_below(r, GEN_VARS)]);
  }
  return uop_splat(r->g, u, r->lanes);
}

static inline uop *random_operand(maker *m, enum dtype d) {
  gen *r = m->r;
  if (m->tensors) return uop_new(r->g, OP_BUFFER, d, 1, NULL, 0, (uarg){.a = gen_below(r, 3), .b = 16});
  if (d == DT_IDX && gen_below(r, 2)) return random_index(r, gen_below(r, 3));
  return gen_expr(r, d, gen_below(r, 4));
}

// of a variable below p that is bound already
static inline enum dtype type_of_bound(const maker *m, const pat *p) {
  if (p->var && m->v[p->var - 1]) return (enum dtype)m->v[p->var - 1]->dt;
  return DT_VOID;
}

static inline uop *make(maker *m, const pat *p, enum dtype d, bool top);

static inline enum dtype operand_type(maker *m, const pat *p, enum dtype d, bool top) {
  if (p->op == OP_CAST || p->op == OP_BITCAST) {
    enum dtype t = type_of_bound(m, p->src[0]);
    if (t == DT_VOID) t = p->src[0]->dt ? (enum dtype)p->src[0]->dt : random_type(m->r, ANYTHING);
    return t;
  }
  if (!(op_flags((enum op)p->op) & OPF_COMPARE)) return d;
  for (int i = 0; i < p->nsrc; i++) if (type_of_bound(m, p->src[i]) != DT_VOID) return type_of_bound(m, p->src[i]);
  return random_type(m->r, top ? m->domain : ANYTHING);
}

static inline uop *make_op(maker *m, const pat *p, enum dtype d, bool top) {
  gen *r = m->r;
  uop *s[3];
  enum op op = (enum op)p->op;
  enum dtype from = operand_type(m, p, d, top);
  int lanes = r->lanes;
  if (op == OP_SPLAT) r->lanes = 1;
  if (op == OP_EXTRACT) { if (lanes != 1) return NULL; r->lanes = 4; }
  for (int i = 0; i < p->nsrc; i++) {
    enum dtype t = op == OP_WHERE && i == 0                                                          ? DT_BOOL
                   : (op == OP_SHL || op == OP_SHR) && i == 1 && !m->tensors && gen_below(r, 3) == 0 ? gen_int_type(r)
                                                                                                     : from;
    s[i] = make(m, p->src[i], t, false);
    if (!s[i]) { r->lanes = lanes; return NULL; }
    if (s[i]->lanes != r->lanes && s[i]->op != OP_INVALID) { r->lanes = lanes; return NULL; }
  }
  r->lanes = lanes;
  uarg arg = {.a = op == OP_EXTRACT ? gen_below(r, 4) : 0};
  if (!uop_well_formed(op, d, lanes, s, p->nsrc, &arg, NULL)) return NULL;
  return uop_new(r->g, op, d, lanes, s, p->nsrc, arg);
}

// A random node of dtype d that p matches, or NULL if the dice fell badly.
static inline uop *make(maker *m, const pat *p, enum dtype d, bool top) {
  gen *r = m->r;
  if (p->dt && (enum dtype)p->dt != d) return NULL;
  uop *u = p->var ? m->v[p->var - 1] : NULL;
  if (u) return (enum dtype)u->dt == d ? u : NULL;
  switch (p->op) {
  case PAT_VAR: u = random_operand(m, d); break;
  case PAT_CONST:
    u = m->tensors     ? (uop *)(uintptr_t)uop_unsplat(gen_const(r, d))
        : d == DT_BOOL ? uop_splat(r->g, uop_int(r->g, d, gen_below(r, 2)), r->lanes)
                       : gen_const(r, d);
    break;
  case PAT_INT: u = uop_splat(r->g, uop_float(r->g, d, (double)p->k), r->lanes); break;
  default: u = make_op(m, p, d, top);
  }
  if (u && p->var) m->v[p->var - 1] = u;
  return u;
}

static inline uop *make_match(maker *m, const rule *q) {
  memset(m->v, 0, sizeof m->v);
  enum dtype d = q->lhs->dt ? (enum dtype)q->lhs->dt : random_type(m->r, m->domain);
  if (q->lhs->op < OP_COUNT && (op_flags((enum op)q->lhs->op) & OPF_COMPARE)) d = DT_BOOL;
  return make(m, q->lhs, d, true);
}

// --- the value stays -------------------------------------------------------------------------------------------------

static inline void show_pair(str *out, uop *u, uop *to) {
  str_add(out, "    before: ");
  uop_print_expr(out, u);
  str_add(out, "\n    after:  ");
  uop_print_expr(out, to);
  str_addc(out, '\n');
}

static inline void show_value(str *out, enum dtype d, evalue v) {
  if (dtype_is_float(d)) str_addf(out, "%.17g", v.f); else str_addf(out, "%lld", (long long)v.i);
}

// Compares both sides for some values of the leaves.  Complaints start with the given head.
static inline int same_values(str *out, gen *r, uop *u, uop *to, double tolerance, int rounds) {
  evalue p[64], q[64];
  if (u->lanes > 64) die("too many lanes for the test");
  for (int k = 0; k < rounds; k++) {
    arena *mem = arena_new();
    map m = {0};
    gen_values(r, mem, &m);
    eval_env env = {.leaf = &m};
    int bad = 0;
    if (eval_expr(&env, u, p)) {
      bool has = eval_expr(&env, to, q);
      for (int l = 0; l < u->lanes && !bad; l++) {
        enum dtype d = (enum dtype)u->dt;
        if (has && !gen_same(d, p[l], q[l], tolerance)) {
          str_add(out, "    another value: ");
          show_value(out, d, p[l]);
          str_add(out, " before, ");
          show_value(out, d, q[l]);
          str_add(out, " after\n");
          bad = 1;
        } else if (has && !dtype_is_float(d) && (q[l].i < to->vmin || q[l].i > to->vmax)) {
          str_addf(out, "    its bounds %lld..%lld do not hold %lld\n", (long long)to->vmin, (long long)to->vmax,
                   (long long)q[l].i);
          bad = 1;
        }
      }
      if (!has && !bad) { str_add(out, "    no value after: it divides by zero or overflows\n"); bad = 1; }
      if (bad) show_pair(out, u, to);
      for (size_t i = 0; bad && i < r->leaves.n; i++) {
        const uop *leaf = r->leaves.at[i];
        str_add(out, i ? ", " : "    where ");
        uop_print_expr(out, leaf);
        str_add(out, " = ");
        show_value(out, (enum dtype)leaf->dt, ((evalue *)map_ptr(&m, leaf))[0]);
      }
      if (bad) str_addc(out, '\n');
    }
    map_free(&m);
    arena_free(mem);
    if (bad) return 1;
  }
  return 0;
}

// Applies rule i of the table to random nodes until it has fired `want` times.
static inline int rulecheck_fuzz_rule(str *out, const ruleset *s, unsigned i, int want, int tries, void *ctx) {
  const rule *q = &s->rules[i];
  gen r = {.seed = hash_bytes(q->text, strlen(q->text), 5), .divides = true};
  double tolerance = s->domain & REASSOCIATING ? 1e-5 : 0;
  int fired = 0, bad = 0, matched = 0;
  for (int t = 0; t < tries && fired < want && !bad; t++) {
    gen_begin(&r, gen_below(&r, 2) ? 6 : 40, gen_below(&r, 3) ? 1 : 4);
    for (int k = 0; k < 8 && fired < want && !bad; k++) {
      maker m = {.r = &r, .domain = s->domain};
      uop *v[MAX_PAT_VARS], *u = make_match(&m, q), *to;
      if (!u || !rule_match(q, s->domain, u, v)) continue;
      matched++;
      if (!(to = rule_apply(r.g, q, u, v, ctx))) continue;
      fired++;
      str why = {0};
      if (to->dt != u->dt || to->lanes != u->lanes) {
        bad = complain(out, s, i, "changes the dtype or the lanes");
        show_pair(out, u, to);
      } else {
        if (same_values(&why, &r, u, to, tolerance, 12)) {
          bad = complain(out, s, i, "changes the value:");
          str_addn(out, str_c(&why), why.n);
        }
        str_free(&why);
      }
    }
    gen_end(&r);
  }
  if (!bad && fired < want)
    bad = complain(out, s, i, "fired only %d times of %d (matched %d times)", fired, want, matched);
  return bad;
}

static inline int rulecheck_fuzz(str *out, const ruleset *s, int want, void *ctx) {
  int bad = 0;
  for (unsigned i = 0; i < s->n; i++) bad += rulecheck_fuzz_rule(out, s, i, want, 20000, ctx);
  return bad;
}

static inline int rulecheck_shapes(str *out, const ruleset *s, void *ctx) {
  int bad = 0;
  for (unsigned i = 0; i < s->n; i++) {
    const rule *q = &s->rules[i];
    gen r = {.seed = hash_bytes(q->text, strlen(q->text), 6)};
    bool ok = true;
    for (int t = 0; t < 200 && ok; t++) {
      gen_begin(&r, 6, 1);
      maker m = {.r = &r, .domain = s->domain, .tensors = true};
      uop *v[MAX_PAT_VARS], *u = make_match(&m, q), *to;
      if (u && rule_match(q, s->domain, u, v) && (to = rule_apply(r.g, q, u, v, ctx)) && to->shape != u->shape) {
        bad += complain(out, s, i, "loses the shape of a tensor");
        show_pair(out, u, to);
        ok = false;
      }
      gen_end(&r);
    }
  }
  return bad;
}
#undef complain
#endif
