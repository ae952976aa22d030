// The dense feed-forward: down(act(gate x) * up x), or down(act(up x)) without a gate. Some files have gate and up as
// one tensor, gate first.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/model_impl.h"

static bool has_no_gate(const model *m, const layer *y) {
  return m->arch->flags & ARCH_PLAIN_FFN || (m->arch->has & HAS_GATE_MAYBE && !y->w[W_FFN_GATE].weight);
}

static int load_feed_forward(loader *l, layer *y) {
  int64_t d = l->m->n_embd, f = y->n_ff;
  // missing, or 0 for this layer: the getter reports which
  if (!f) return key_count(l, "feed_forward_length", 1, 1 << 24, &y->n_ff);
  bool gated = !(l->m->arch->flags & ARCH_PLAIN_FFN);
  unsigned bias = bias_if(l, HAS_FFN_BIAS);
  if (l->m->arch->has & HAS_SUB_NORMS && want_vector(l, y, W_FFN_SUB_NORM, f, 0)) return -1;
  if (gated && want_matrix(l, y, W_FFN_GATE, d, f, bias ? bias : WANT_OPTIONAL)) return -1;
  return want_matrix(l, y, W_FFN_UP, d, has_no_gate(l->m, y) || y->w[W_FFN_GATE].weight ? f : 2 * f, bias) ||
             want_matrix(l, y, W_FFN_DOWN, f, d, bias)
           ? -1
           : 0;
}

// Above 0: a parabola of slope `slope` at 0; below: negative (exp(min(x, edge)) - 1 - x) + slope x
static tensor *xielu_of(graph *g, const xielu *p, tensor *x) {
  tensor *line = t_scale(g, x, p->slope), *up = t_add(g, t_scale(g, t_mul(g, x, x), p->positive), line);
  tensor *bent = t_sub(g, t_sub(g, t_exp(g, t_op2(g, OP_MIN, x, t_float(g, p->edge))), t_float(g, 1)), x);
  return t_where(g, t_op2(g, OP_CMPLT, t_float(g, 0), x), up, t_add(g, t_scale(g, bent, p->negative), line));
}

// x (1 + erf(x / sqrt 2)) / 2. Abramowitz and Stegun 7.1.26, with an error below 1.5e-7.
tensor *gelu_erf(graph *g, tensor *x) {
  static const double a[] = {1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592};
  tensor *z = t_scale(g, t_op2(g, OP_MAX, x, t_sub(g, t_float(g, 0), x)), M_SQRT1_2), *one = t_float(g, 1);
  tensor *t = t_op2(g, OP_FDIV, one, t_add(g, t_scale(g, z, 0.3275911), one)), *sum = t_float(g, 0);
  for (size_t i = 0; i < COUNT(a); i++) sum = t_mul(g, t_add(g, sum, t_float(g, a[i])), t);
  tensor *rest = t_mul(g, sum, t_exp(g, t_sub(g, t_float(g, 0), t_mul(g, z, z))));      // 1 - erf(z)
  tensor *half = t_scale(g, t_mul(g, x, rest), 0.5);
  return t_where(g, t_op2(g, OP_CMPLT, x, t_float(g, 0)), half, t_sub(g, x, half));
}

tensor *activate(const build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  switch (b->m->act) {
  case ACT_SILU: return t_silu(g, x);
  case ACT_GELU: {              // x/2 (1 + tanh u) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
    tensor *u =
      t_scale(g, t_mul(g, x, t_add(g, t_scale(g, t_mul(g, x, x), 0.044715), t_float(g, 1))), -2 * sqrt(2 / M_PI));
    return t_op2(g, OP_FDIV, x, t_add(g, t_exp(g, u), t_float(g, 1)));
  }
  case ACT_RELU2: {
    tensor *r = t_op2(g, OP_MAX, x, t_float(g, 0));
    return t_mul(g, r, r);
  }
  case ACT_RELU: return t_op2(g, OP_MAX, x, t_float(g, 0));
  case ACT_GELU_ERF: return gelu_erf(g, x);
  case ACT_GELU_QUICK: return t_op2(g, OP_FDIV, x, t_add(g, t_exp(g, t_scale(g, x, -1.702)), t_float(g, 1)));
  case ACT_SITU: return t_mul(g, soft_cap(b, x, b->m->situ), sigmoid(g, x));
  case ACT_XIELU: return xielu_of(g, &y->xielu, x);
  }
  die("activation %d", (int)b->m->act);
}

// The part of a gate above its mean plus a number of standard deviations; 0 below that.
static tensor *sparse_gate(const build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  if (isinf(y->cut)) return x;
  tensor *mean = t_scale(g, t_reduce(g, x, OP_ADD, 1), 1.0 / y->n_ff), *centred = t_sub(g, x, mean);
  tensor *deviation =
    t_op1(g, OP_SQRT, t_scale(g, t_reduce(g, t_mul(g, centred, centred), OP_ADD, 1), 1.0 / y->n_ff));
  tensor *least = t_scale(g, deviation, y->cut);
  return t_op2(g, OP_MAX, t_sub(g, centred, least), t_float(g, 0));
}

static tensor *feed_forward(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  tensor *up = linear(b, y, W_FFN_UP, x), *h;
  if (has_no_gate(b->m, y)) {
    h = activate(b, y, up);
  } else if (y->w[W_FFN_GATE].weight) {
    h = gated(b, y, sparse_gate(b, y, linear(b, y, W_FFN_GATE, x)), up, y->moe.shared_limit);
  } else {
    h = gated(b, y, sparse_gate(b, y, t_slice_i(g, up, 1, 0, y->n_ff)), t_slice_i(g, up, 1, y->n_ff, y->n_ff),
              y->moe.shared_limit);
  }
  if (y->w[W_FFN_SUB_NORM].weight) h = norm(b, y, W_FFN_SUB_NORM, h);
  return linear(b, y, W_FFN_DOWN, h);
}

const part part_dense = {load_feed_forward, feed_forward};
