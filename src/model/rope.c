// Rotary positions: pairs of elements of a head are rotated by angles that grow with the position. Angles are computed
// in f64, once per run for all layers: position times base^(-2i/d), divided by the file's frequency factors if it has
// some.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <string.h>
#include "model/model_impl.h"

// The pair that makes `turns` full turns within the original training context.
static double pair_of(const rope *r, double ctx, double turns) {
  return r->dim * log(ctx / (turns * 2 * M_PI)) / (2 * log(r->base));
}

// The ramp runs from the last pair that is not scaled to the first one that is fully scaled: in whole pairs, as YaRN's
// authors do, or between exact places, as OpenAI trained gpt-oss ("truncate": false in its configuration). No converter
// writes which, so the architecture decides unless the file has the key, which --yarn-truncate sets.
static int load_ramp(loader *l, rope *r, double fast, double slow) {
  model *m = l->m;
  bool whole;
  if (gguf_bool_opt(l->f, key(l, "rope.scaling.yarn_truncate"), !m->arch->yarn_exact, &whole, l->err)) return -1;
  double low = pair_of(r, m->n_ctx_rope, fast), high = pair_of(r, m->n_ctx_rope, slow);
  r->low = fmax(0, whole ? floor(low) : low);
  r->high = fmin(r->dim - 1, whole ? ceil(high) : high);
  return 0;
}

static int load_yarn(loader *l, rope *r) {
  const model *m = l->m;
  double fast, slow, log_mul, factor = r->scale;
  if (key_number_or(l, "rope.scaling.yarn_beta_fast", 32, 1e-3, 1e6, &fast) ||
      key_number_or(l, "rope.scaling.yarn_beta_slow", 1, 1e-3, 1e6, &slow) ||
      key_number_or(l, "rope.scaling.yarn_ext_factor", 1, -1e3, 1e3, &r->ramp) ||
      key_number_or(l, "rope.scaling.yarn_log_multiplier", 0, -1e3, 1e3, &log_mul) || load_ramp(l, r, fast, slow))
    return -1;
  if (r->ramp < 0) r->ramp = 1;         // -1 means the default
  double usual = r->ramp != 0 && factor > 1 && !m->arch->yarn_bare
                   ? (1 + 0.1 * log(factor)) / (log_mul != 0 ? 1 + 0.1 * log_mul * log(factor) : 1)
                   : 1,
         attn;
  if (key_number_or(l, "rope.scaling.yarn_attn_factor", usual, 1e-3, 1e3, &attn)) return -1;
  r->attn *= attn;
  return 0;
}

static int load_scaling(loader *l, rope *r) {
  model *m = l->m;
  gguf_string type;
  double factor = 0;
  // unless the file says otherwise
  bool linear = has_key(l, "rope.scaling.factor") || has_key(l, "rope.scale_linear");
  if (gguf_str_opt(l->f, key(l, "rope.scaling.type"), linear ? "linear" : "none", &type, l->err)) return -1;
  if (key_count_or(l, "rope.scaling.original_context_length", (uint32_t)m->n_ctx_train, 1, 1u << 30, &m->n_ctx_rope) ||
      key_number_or(l, "rope.scaling.attn_factor", 1, 1e-3, 1e3, &r->attn)) return -1;
  bool yarn = equals_text(type, "yarn");
  if (!yarn && !equals_text(type, "none") && !equals_text(type, "linear") && !equals_text(type, "longrope")) {
    char text[64];
    return gguf_fail(l->f, key(l, "rope.scaling.type"), l->err,
                     "'%s' is not known (known: none, linear, yarn, longrope)",
                     gguf_quote(text, sizeof text, type.at, type.n));
  }
  if (equals_text(type, "none")) return 0;
  const char *name = linear && !has_key(l, "rope.scaling.factor") ? "rope.scale_linear" : "rope.scaling.factor";
  if (!linear && !equals_text(type, "longrope"))       // llama.cpp ignores other types
    return gguf_fail(l->f, key(l, name), l->err, "is missing, and rope.scaling.type says that positions are scaled");
  if (linear && key_number(l, name, 0, 1e6, &factor)) return -1;
  if (factor > 0 && key_number(l, name, 1e-3, 1e6, &factor)) return -1;         // 0 means 1
  if (factor > 0) r->scale = factor;
  return yarn ? load_yarn(l, r) : 0;
}

// Both ropes take their factors from one tensor.
static int check_factors(loader *l, enum tensor_id id, const char *name, int n) {
  const model *m = l->m;
  for (int i = 0; i < ROPE_COUNT && m->w[id].weight; i++) {
    bool sliding = i == ROPE_SLIDING;
    if (sliding && m->arch->flags & ARCH_SWA_PLAIN_ROPE) continue;
    if (m->rope[i].dim / 2 > n)
      return gguf_fail(l->f, key(l, sliding ? "rope.dimension_count_swa" : "rope.dimension_count"), l->err,
                       "%d elements rotate, and tensor '%s' has %d factors, for as many pairs", m->rope[i].dim, name,
                       n);
  }
  return 0;
}

int rope_load(loader *l, int head_dim) {
  model *m = l->m;
  rope *r = &m->rope[ROPE_GLOBAL], *sliding = &m->rope[ROPE_SLIDING];
  m->n_ctx_rope = m->n_ctx_train;
  if (m->arch->flags & ARCH_POSITIONS) return 0;
  *r = (rope){.scale = 1, .attn = 1};
  uint32_t least = m->no_rope ? 0 : 2;
  if (key_count_or(l, "rope.dimension_count", (uint32_t)head_dim, least, (uint32_t)head_dim, &r->dim)) return -1;
  if (r->dim % 2) return gguf_fail(l->f, key(l, "rope.dimension_count"), l->err, "%d is odd", r->dim);
  if (key_number_or(l, m->base_key ? m->base_key : "rope.freq_base", 10000, 1.001, 1e12, &r->base) ||
      load_scaling(l, r)) return -1;
  if (m->base_alpha > 0 && head_dim > 2) r->base *= pow(m->base_alpha, head_dim / (head_dim - 2.0));
  int swa_head_dim = head_dim;
  *sliding = m->arch->flags & ARCH_SWA_PLAIN_ROPE ? (rope){.dim = r->dim, .base = r->base, .scale = 1, .attn = 1} : *r;
  if (key_number_or(l, "rope.freq_base_swa", m->base_swa != 0 ? m->base_swa : r->base, 1.001, 1e12, &sliding->base))
    return -1;
  if (m->arch->period &&
      (key_count_or(l, "attention.key_length_swa", (uint32_t)head_dim, 2, 1 << 14, &swa_head_dim) ||
       key_count_or(l, "rope.dimension_count_swa", (uint32_t)r->dim, 2, (uint32_t)swa_head_dim, &sliding->dim)))
    return -1;
  if (sliding->dim % 2 || sliding->dim > swa_head_dim)
    return gguf_fail(l->f, key(l, "rope.dimension_count_swa"), l->err, "%d of %d elements cannot rotate in pairs",
                     sliding->dim, swa_head_dim);
  int n_factors = (m->half_turns ? sliding->dim : r->dim) / 2;
  if (m->half_turns) r->dim /= 2;
  if (r->dim % 2) return gguf_fail(l->f, key(l, "rope.dimension_count"), l->err, "%d is odd", r->dim);
  unsigned both =
    gguf_tensor_find(l->f, "rope_factors_long.weight") || gguf_tensor_find(l->f, "rope_factors_short.weight")
      ? 0
      : WANT_OPTIONAL;
  if (want_vector(l, NULL, W_ROPE_FREQS, n_factors, m->arch->has & HAS_ROPE_FREQS ? 0 : WANT_OPTIONAL) ||
      want_vector(l, NULL, W_ROPE_LONG, r->dim / 2, both) || want_vector(l, NULL, W_ROPE_SHORT, r->dim / 2, both))
    return -1;
  return check_factors(l, W_ROPE_FREQS, "rope_freqs.weight", n_factors) ||
             check_factors(l, W_ROPE_LONG, "rope_factors_long.weight", r->dim / 2)
           ? -1 : 0;
}

// Whether pair i of {pairs} belongs to section `of`.
static tensor *in_section(const build *b, tensor *i, int of) {
  graph *g = b->g;
  const int *n = b->m->sections;
  if (!b->m->sections_mixed) {
    int from = of == 1 ? n[0] : n[0] + n[1];
    tensor *not_before = t_op2(g, OP_CMPLT, n_(b, from - 1), i), *before = t_op2(g, OP_CMPLT, i, n_(b, from + n[of]));
    return t_op2(g, OP_AND, not_before, before);
  }
  tensor *turn = t_op2(g, OP_CMPEQ, t_op2(g, OP_MOD, i, n_(b, 3)), n_(b, of));
  return t_op2(g, OP_AND, turn, t_op2(g, OP_CMPLT, i, n_(b, 3 * n[of])));
}

// The positions by which pairs {pairs}, numbered, rotate: {T, 1, 1}, or {T, 1, pairs}.
static tensor *positions(const build *b, tensor *pairs) {
  graph *g = b->g;
  tensor *at[3];
  if (!model_has_sections(b->m)) return t_reshape(g, t_cast(g, b->at, DT_F64), DIMS(b->T, n_(b, 1), n_(b, 1)));
  for (int i = 0; i < 3; i++) at[i] = t_reshape(g, t_cast(g, b->turns[i], DT_F64), DIMS(b->T, n_(b, 1), n_(b, 1)));
  return t_where(g, in_section(b, pairs, 2), at[2], t_where(g, in_section(b, pairs, 1), at[1], at[0]));
}

// The tables of a rope: the angle of pair i at position p is p * frequency.
static void tables(build *b, const rope *r, tensor *factors, tensor **cos, tensor **sin) {
  graph *g = b->g;
  tensor *pairs = t_iota(g, n_(b, r->dim / 2)), *i = t_cast(g, pairs, DT_F64);
  tensor *freq = t_op1(g, OP_EXP2, t_scale(g, i, -2.0 / r->dim * log2(r->base)));
  if (factors) factors = t_slice_i(g, factors, 0, 0, r->dim / 2);
  if (factors) freq = t_op2(g, OP_FDIV, freq, t_cast(g, factors, DT_F64));
  if (r->ramp != 0) {                   // 1 below `low`, 1/scale above `high`
    tensor *at = t_scale(g, t_add(g, i, uop_float(g, DT_F64, -r->low)), 1 / fmax(0.001, r->high - r->low));
    at = t_op2(g, OP_MIN, t_op2(g, OP_MAX, at, uop_float(g, DT_F64, 0)), uop_float(g, DT_F64, 1));
    tensor *mix = t_scale(g, t_sub(g, uop_float(g, DT_F64, 1), at), r->ramp);
    freq = t_mul(g, freq, t_add(g, t_scale(g, mix, 1 - 1 / r->scale), uop_float(g, DT_F64, 1 / r->scale)));
  } else {
    freq = t_scale(g, freq, 1 / r->scale);
  }
  tensor *angle = t_mul(g, positions(b, pairs), freq);
  *sin = t_cast(g, t_op1(g, OP_SIN, angle), DT_F32);
  *cos = t_cast(g, t_op1(g, OP_SIN, t_add(g, angle, uop_float(g, DT_F64, M_PI_2))), DT_F32);
  if (r->attn != 1) {
    *sin = t_scale(g, *sin, r->attn);
    *cos = t_scale(g, *cos, r->attn);
  }
}

static void one_table(build *b, enum rope_id id) {
  const model *m = b->m;
  enum tensor_id factors =
    m->w[W_ROPE_LONG].weight ? b->s->n_ctx > m->n_ctx_rope ? W_ROPE_LONG : W_ROPE_SHORT : W_ROPE_FREQS;
  bool plain = id == ROPE_SLIDING && m->arch->flags & ARCH_SWA_PLAIN_ROPE;
  tables(b, &m->rope[id], plain ? NULL : weight(b, NULL, factors), &b->cos[id], &b->sin[id]);
}

void rope_at(build *b, enum rope_id id, tensor *at) {
  tensor *own = b->at;
  b->at = at;
  one_table(b, id);
  b->at = own;
}

void rope_tables(build *b) {
  if (b->m->arch->flags & ARCH_POSITIONS) return;
  for (int i = 0; i < ROPE_COUNT; i++) if (b->m->rope[i].dim) one_table(b, (enum rope_id)i);
}

bool rope_whole(const build *b, const layer *y, int64_t d) {
  return y->rope != ROPE_NONE && b->m->rope[y->rope].dim == d;
}

// {T, heads, d/2, 2}, where [.., i, 0] and [.., i, 1] are the two elements of pair i.
static tensor *pairs_of(const build *b, tensor *x, int64_t heads, int64_t d, bool halves) {
  if (!halves) return t_reshape(b->g, x, DIMS(b->T, n_(b, heads), n_(b, d / 2), n_(b, 2)));
  return t_swap(b->g, t_reshape(b->g, x, DIMS(b->T, n_(b, heads), n_(b, 2), n_(b, d / 2))), 2, 3);
}

static tensor *turned_pairs(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d, bool halves) {
  graph *g = b->g;
  tensor *p = pairs_of(b, x, heads, d, halves), *half[2], *cos = b->cos[y->rope], *sin = b->sin[y->rope];
  for (int i = 0; i < 2; i++) half[i] = t_reshape(g, t_slice_i(g, p, 3, i, 1), DIMS(b->T, n_(b, heads), n_(b, d / 2)));
  tensor *re = t_sub(g, t_mul(g, half[0], cos), t_mul(g, half[1], sin));
  tensor *im = t_add(g, t_mul(g, half[0], sin), t_mul(g, half[1], cos));
  return t_stack_last(g, (tensor *[]){re, im}, 2);
}

tensor *rope_pairs(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d) {
  return turned_pairs(b, y, x, heads, d, b->m->neox);
}

tensor *rope_turn_as(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d, bool halves) {
  graph *g = b->g;
  if (y->rope == ROPE_NONE) return x;
  int64_t r = b->m->rope[y->rope].dim;
  if (r < d) {
    tensor *turning = rope_turn_as(b, y, t_slice_i(g, x, 2, 0, r), heads, r, halves);
    return t_cat_last(g, turning, t_slice_i(g, x, 2, r, d - r));
  }
  tensor *p = turned_pairs(b, y, x, heads, d, halves);
  if (halves) p = t_swap(g, p, 2, 3);
  return t_reshape(g, p, DIMS(b->T, n_(b, heads), n_(b, d)));
}

tensor *rope_turn(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d) {
  return rope_turn_as(b, y, x, heads, d, b->m->neox);
}

tensor *rope_turn_last(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d, bool halves) {
  graph *g = b->g;
  if (y->rope == ROPE_NONE) return x;
  int64_t turning = b->m->rope[y->rope].dim, rest = d - turning;
  tensor *last = rope_turn_as(b, y, t_slice_i(g, x, 2, rest, turning), heads, turning, halves);
  return rest ? t_cat_last(g, t_slice_i(g, x, 2, 0, rest), last) : last;
}
