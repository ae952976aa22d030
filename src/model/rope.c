// Rotary positions: pairs of elements of a head turn by angles that grow with the position. Angles are computed in f64, once per run for all
// layers: position times base^(-2i/d), over the file's frequency factors where it has some.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <string.h>
#include "model/model_impl.h"

int rope_load(loader *l, int head_dim) {
  rope *r = &l->m->rope;
  if (key_count_or(l, "rope.dimension_count", (uint32_t)head_dim, 2, (uint32_t)head_dim, &r->dim)) return -1;
  if (r->dim % 2) return gguf_fail(l->f, key(l, "rope.dimension_count"), l->err, "%d is odd", r->dim);
  if (key_number_or(l, "rope.freq_base", 10000, 1e-3, 1e12, &r->base) || want_vector(l, NULL, W_ROPE_FREQS, r->dim / 2, WANT_OPTIONAL)) return -1;
  gguf_string type;
  if (gguf_str_opt(l->f, key(l, "rope.scaling.type"), "none", &type, l->err)) return -1;
  r->scale = 1;
  if (type.n == 6 && !memcmp(type.at, "linear", 6)) return key_number(l, "rope.scaling.factor", 1e-3, 1e6, &r->scale);
  if (type.n == 4 && !memcmp(type.at, "none", 4)) return 0;
  char text[64];
  return gguf_fail(l->f, l->key, l->err, "'%s' is not supported yet (known: none, linear)", gguf_quote(text, sizeof text, type.at, type.n));
}

void rope_tables(build *b) {
  graph *g = b->g;
  const rope *r = &b->m->rope;
  tensor *i = t_cast(g, t_iota(g, n_(b, r->dim / 2)), DT_F64);
  tensor *freq = t_op1(g, OP_EXP2, t_scale(g, i, -2.0 / r->dim * log2(r->base)));
  tensor *factors = weight(b, NULL, W_ROPE_FREQS);
  if (factors) freq = t_op2(g, OP_FDIV, freq, t_cast(g, factors, DT_F64));
  tensor *p = t_cast(g, t_add(g, t_iota(g, b->T), b->pos), DT_F64);
  tensor *angle = t_mul(g, t_reshape(g, p, DIMS(b->T, n_(b, 1), n_(b, 1))), t_scale(g, freq, 1 / r->scale));
  b->sin = t_cast(g, t_op1(g, OP_SIN, angle), DT_F32);
  b->cos = t_cast(g, t_op1(g, OP_SIN, t_add(g, angle, uop_float(g, DT_F64, M_PI_2))), DT_F32);
}

// {T, heads, d/2, 2}, where [.., i, 0] and [.., i, 1] are the two elements of pair i.
static tensor *pairs_of(const build *b, tensor *x, int64_t heads, int64_t d) {
  if (!(b->m->arch->flags & ARCH_NEOX)) return t_reshape(b->g, x, DIMS(b->T, n_(b, heads), n_(b, d / 2), n_(b, 2)));
  return t_swap(b->g, t_reshape(b->g, x, DIMS(b->T, n_(b, heads), n_(b, 2), n_(b, d / 2))), 2, 3);
}

tensor *rope_pairs(const build *b, tensor *x, int64_t heads, int64_t d) {
  graph *g = b->g;
  tensor *p = pairs_of(b, x, heads, d), *half[2];
  for (int i = 0; i < 2; i++) half[i] = t_reshape(g, t_slice_i(g, p, 3, i, 1), DIMS(b->T, n_(b, heads), n_(b, d / 2)));
  tensor *re = t_sub(g, t_mul(g, half[0], b->cos), t_mul(g, half[1], b->sin));
  tensor *im = t_add(g, t_mul(g, half[0], b->sin), t_mul(g, half[1], b->cos));
  return t_stack_last(g, (tensor *[]){re, im}, 2);
}

tensor *rope_turn(const build *b, tensor *x, int64_t heads, int64_t d) {
  graph *g = b->g;
  int64_t r = b->m->rope.dim;
  if (r < d) return t_cat_last(g, rope_turn(b, t_slice_i(g, x, 2, 0, r), heads, r), t_slice_i(g, x, 2, r, d - r));
  tensor *p = rope_pairs(b, x, heads, d);
  if (b->m->arch->flags & ARCH_NEOX) p = t_swap(g, p, 2, 3);
  return t_reshape(g, p, DIMS(b->T, n_(b, heads), n_(b, d)));
}
