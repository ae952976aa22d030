// Random tensor graphs against their meaning: reductions of reductions, movements between them, masks, gathers,
// symbolic sizes, several outputs.  Values stay near 1 and no function jumps, so that rounding cannot explain a
// difference.
//
// With one or two arguments, a seed and a number of seeds: those alone.
#define _GNU_SOURCE
#include "codegen/kernel_rig.h"

enum { MAX_TENSORS = 24, MAX_ELEMS = 3000, SEEDS = 150 };

typedef struct gen { kt *t; uint64_t seed; tensor *at[MAX_TENSORS]; int n; } gen;

static uint64_t seed_now;
static int below(gen *g, int n) { return (int)((rig_random(&g->seed) >> 8) % (uint64_t)n); }

static int64_t elems(const tensor *x) { return shape_max_elems(x->shape); }
static bool fixed(const tensor *x) {
  for (int i = 0; i < x->shape->n; i++) if (x->shape->dim[i]->op != OP_CONST) return false;
  return true;
}
static int64_t dim(const tensor *x, int i) { return x->shape->dim[i]->vmax; }
static bool is_one(const tensor *x, int i) { return uop_is_int(x->shape->dim[i], 1); }

static void add(gen *g, tensor *x) {
  if (g->n < MAX_TENSORS && elems(x) <= MAX_ELEMS && x->shape->n >= 1) g->at[g->n++] = x;
}
static tensor *pick(gen *g) { return g->at[below(g, 3) ? g->n - 1 - below(g, g->n < 4 ? g->n : 4) : below(g, g->n)]; }

// Keeps values where functions are tame.
static tensor *tame(gen *g, tensor *x) {
  return t_op2(g->t->g, OP_MIN, t_op2(g->t->g, OP_MAX, x, t_float(g->t->g, -3)), t_float(g->t->g, 3));
}

static tensor *input(gen *g, bool symbolic) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 32};
  int64_t d[3], total = 1;
  int n = 1 + below(g, 3);
  for (int i = 0; i < n; i++) {
    d[i] = sizes[below(g, (int)COUNT(sizes))];
    while (total * d[i] > MAX_ELEMS) d[i] = 1;
    total *= d[i];
  }
  tensor *x = kt_in(g->t, below(g, 5) ? DT_F32 : DT_F16, KT_UNIT, n, d);
  x = t_cast(g->t->g, x, DT_F32);
  if (!symbolic) return x;
  int axis = below(g, n);
  if (d[axis] == 1) return x;
  uop *v = g->t->n_vars ? NULL : kt_var(g->t, "n", 1, d[axis]);
  return v ? t_slice(g->t->g, x, axis, uop_idx(g->t->g, 0), v) : x;
}

static tensor *unary(gen *g, tensor *x) {
  graph *h = g->t->g;
  switch (below(g, 6)) {
  case 0: return t_op1(h, OP_NEG, x);
  case 1: return tame(g, t_exp(h, tame(g, x)));
  case 2: return t_op1(h, OP_SQRT, t_add(h, t_mul(h, x, x), t_float(h, 0.5)));
  case 3: return t_silu(h, x);
  case 4: return t_op1(h, OP_SIN, tame(g, x));
  default: return t_op1(h, OP_RECIP, t_add(h, t_mul(h, x, x), t_float(h, 1)));
  }
}

static bool broadcasts(const tensor *x, const tensor *y) {
  int n = x->shape->n > y->shape->n ? x->shape->n : y->shape->n;
  int64_t total = 1;
  for (int i = 1; i <= n; i++) {
    uop *a = i <= x->shape->n ? x->shape->dim[x->shape->n - i] : NULL,
        *b = i <= y->shape->n ? y->shape->dim[y->shape->n - i] : NULL;
    if (a && b && a != b && !uop_is_int(a, 1) && !uop_is_int(b, 1)) return false;
    total *= max_i64(a ? a->vmax : 1, b ? b->vmax : 1);
  }
  return total <= MAX_ELEMS;
}

static tensor *binary(gen *g, tensor *x) {
  static const enum op ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_MAX, OP_MIN};
  for (int i = 0; i < 6; i++) {
    tensor *y = pick(g);
    if (broadcasts(x, y)) return tame(g, t_op2(g->t->g, ops[below(g, (int)COUNT(ops))], x, y));
  }
  return x;
}

static tensor *reduction(gen *g, tensor *x) {
  int axis = below(g, x->shape->n);
  switch (below(g, 5)) {
  case 0: return t_reduce(g->t->g, x, OP_MAX, axis);
  case 1: return t_reduce(g->t->g, x, OP_MIN, axis);
  case 2: return t_softmax(g->t->g, x, axis);
  default: return t_scale(g->t->g, t_reduce(g->t->g, x, OP_ADD, axis), 2.0 / (double)dim(x, axis));
  }
}

// Two axes into one, or one into two.  A symbolic axis keeps to itself: indices modulo a symbolic size are right, but
// not proven.
static tensor *reshape(gen *g, tensor *x) {
  graph *h = g->t->g;
  uop *d[MAX_DIMS];
  int n = x->shape->n, at = below(g, n), m = 0;
  if (n > 1 && below(g, 2)) {
    at = below(g, n - 1);
    if (x->shape->dim[at]->op != OP_CONST || x->shape->dim[at + 1]->op != OP_CONST) return x;
    for (int i = 0; i < n; i++)
      if (i == at + 1) d[m - 1] = idx_mul(h, d[m - 1], x->shape->dim[i]);
      else d[m++] = x->shape->dim[i];
    return t_reshape(h, x, m, d);
  }
  static const int64_t by[] = {2, 3, 4, 1};
  for (size_t i = 0; i < COUNT(by); i++) {
    uop *s = x->shape->dim[at];
    if (n == 4 || s->op != OP_CONST || s->a % by[i]) continue;
    for (int j = 0; j < n; j++) {
      if (j == at) { d[m++] = uop_idx(h, s->a / by[i]); d[m++] = uop_idx(h, by[i]); }
      else d[m++] = x->shape->dim[j];
    }
    return t_reshape(h, x, m, d);
  }
  return x;
}

static tensor *movement(gen *g, tensor *x) {
  graph *h = g->t->g;
  int n = x->shape->n, axis = below(g, n);
  bool constant = x->shape->dim[axis]->op == OP_CONST;
  switch (below(g, 6)) {
  case 0: return t_swap(h, x, axis, below(g, n));
  case 1: return t_flip(h, x, axis);
  case 2: return constant ? t_pad(h, x, axis, below(g, 3), below(g, 4)) : x;
  case 3: {
    if (!constant || dim(x, axis) < 2) return x;
    int64_t from = below(g, (int)dim(x, axis) / 2);
    return t_slice_i(h, x, axis, from, 1 + below(g, (int)(dim(x, axis) - from)));
  }
  case 4: {
    uop *d[MAX_DIMS];
    for (int i = 0; i < n; i++) d[i] = is_one(x, i) && !below(g, 2) ? uop_idx(h, 2 + below(g, 4)) : x->shape->dim[i];
    return t_expand(h, x, n, d);
  }
  default: return reshape(g, x);
  }
}

static tensor *selection(gen *g, tensor *x) {
  graph *h = g->t->g;
  int n = x->shape->n;
  switch (below(g, 4)) {
  case 0:
    return t_where(h, t_op2(h, OP_CMPLT, t_iota(h, x->shape->dim[n - 1]), uop_idx(h, below(g, (int)dim(x, n - 1) + 1))),
                   x, t_float(h, 0.25));
  case 1: return fixed(x) && n < 4 ? t_stack_last(h, (tensor *[]){x, unary(g, x), x}, 2 + below(g, 2)) : x;
  case 2: return fixed(x) ? t_cat_last(h, x, unary(g, x)) : x;
  default:
    if (!fixed(x) || g->t->n_bufs > KT_BUFS - 5) return x;
    return t_gather(h, x, kt_in(g->t, DT_I32, below(g, 4) ? KT_SMALL_INTS : KT_BITS, KT_DIMS(1 + below(g, 6))));
  }
}

static void build(kt *t) {
  gen g = {.t = t, .seed = seed_now * 1000003};
  bool symbolic = !below(&g, 3);
  for (int i = 0; i < 2 + below(&g, 2); i++) add(&g, input(&g, symbolic && i == 0));
  for (int steps = 4 + below(&g, 10); steps--;) {
    tensor *x = pick(&g);
    switch (below(&g, 8)) {
    case 0: add(&g, unary(&g, x)); break;
    case 1: case 2: add(&g, binary(&g, x)); break;
    case 3: case 4: add(&g, reduction(&g, x)); break;
    case 5: add(&g, movement(&g, x)); break;
    case 6: add(&g, selection(&g, x)); break;
    default: add(&g, below(&g, 3) ? movement(&g, x) : t_contiguous(t->g, x));
    }
  }
  t->scale = 0.01;
  kt_out(t, g.at[g.n - 1]);
  if (below(&g, 2)) kt_out(t, g.at[below(&g, g.n)]);
  if (!below(&g, 4)) kt_out(t, t_cast(t->g, t_reduce(t->g, g.at[g.n / 2], OP_ADD, 0), DT_F32));
}

static uint64_t first = 1, count = SEEDS;

static void run_seeds(kt_backend *b, uint64_t step) {
  volatile int failed = 0;
  char name[32];
  for (seed_now = first; seed_now < first + count; seed_now += step) {
    kt_run r;
    kt_wants want = {0};
    snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed_now);
    kt_signals(kt_on_signal);
    int s = sigsetjmp(kt_back, 1);
    if (!s) kt_prepare(&r, &(kt_case){"random", build, 1e-9});
    kt_signals(SIG_DFL);
    if (s) { fprintf(stderr, "%s: scheduling ended by %s\n", name, strsignal(s)); failed++; continue; }
    r.name = name;
    if (kt_guard(&r, b, &want)) kt_finish(&r);
    else failed++;
    kt_wants_free(&want);
  }
  if (failed) fail_msg("%s: %d seeds of %llu", b->name, failed, (unsigned long long)count);
}

static void on_cpu(const char *name, enum kt_way way, const char *cpu, uint64_t step) {
  kt_backend b;
  if (!kt_backend_cpu(&b, name, way, cpu)) skip();
  run_seeds(&b, step);
}

static void test_reference(void **state) { (void)state; kt_backend b = kt_backend_ref(); run_seeds(&b, 1); }
static void test_interpreted(void **state) { (void)state; on_cpu("interpreter, optimised", KT_REF, "native", 1); }
static void test_native(void **state) { (void)state; on_cpu("native", KT_LLVM, "native", 1); }
static void test_v2(void **state) { (void)state; on_cpu("x86-64-v2", KT_LLVM, "x86-64-v2", 3); }
static void test_opencl(void **state) {
  (void)state;
  kt_backend b = {.name = "OpenCL", .way = KT_CL};
  cl_target(kt_cl(), &b.t);
  run_seeds(&b, 5);
}

static void test_ptx(void **state) {
  (void)state;
  kt_backend b = kt_backend_ptx();
  run_seeds(&b, 5);
}

static void test_metal(void **state) {
  (void)state;
  kt_backend b = kt_backend_metal();
  run_seeds(&b, 5);
}

static void test_vulkan(void **state) {
  (void)state;
  kt_backend b;
  if (!kt_backend_vulkan(&b)) skip();
  run_seeds(&b, 5);
}

int main(int argc, char **argv) {
  env_set(ENV_SPEC, getenv("SPEC") ? getenv("SPEC") : "1");
  if (argc > 1) { first = strtoull(argv[1], NULL, 10); count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1; }
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_reference), cmocka_unit_test(test_interpreted), cmocka_unit_test(test_native),
    cmocka_unit_test(test_v2),        cmocka_unit_test(test_opencl),     cmocka_unit_test(test_ptx),
    cmocka_unit_test(test_metal),     cmocka_unit_test(test_vulkan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
