// The order of float additions depends on the reduction alone: a row computed by itself (T = 1, a constant) and among
// others (T a variable) is the same bits.  The two schedules differ - what is stored, what is recomputed, lanes,
// register tiles - and may.
//
// A case is a function of rows x {T, cols}; it is built twice, and every row of the second run is compared with a run
// of the first.
#define _GNU_SOURCE
#include "codegen/kernel_rig.h"
#include "codegen/format_blocks.h"
#include "model/dequant.h"
#include "schedule/dots.h"

enum {
  ROWS = 7,
  MANY = 63 /* rows: less one a tile of as many as a work-group has */,
  BLOCKS = 37,
  MOST_BLOCKS = 41 /* of which attention has as many as there are positions for: parts and steps divide neither */
};
typedef tensor *order_fn(kt *t, uop *T, tensor *x, const struct format *f);
// few: with some formats only
typedef struct order_case { const char *name; int64_t cols; order_fn *f; enum dtype dt; bool few; } order_case;

static uop *n_(kt *t, int64_t v) { return uop_idx(t->g, v); }
#define UOPS(...) (int)COUNT(((uop *[]){__VA_ARGS__})), (uop *[]){__VA_ARGS__}

static tensor *weight(kt *t, int64_t rows, int64_t cols) {
  int b = kt_buffer(t, DT_F32, rows * cols, KT_UNIT);
  tensor *w = t_weight(t->g, b, DT_F32, rows * cols);
  return rows == 1 ? w : t_reshape_i(t->g, w, 2, (int64_t[]){rows, cols});
}

// Buffer with random blocks whose scales are ordinary numbers.
static int format_buffer(kt *t, const struct format *f, int64_t rows, int64_t cols) {
  enum dtype dt = dequant_buffer_dtype(f);
  int b = kt_buffer(t, dt, dt == DT_U8 ? format_bytes(f, rows, cols) : rows * cols, KT_UNIT);
  if (dt == DT_U8) format_blocks(f, t->bufs[b].start, rows, cols, &t->seed);
  return b;
}

static tensor *matrix(kt *t, const struct format *f, int64_t rows, int64_t cols) {
  return dequant(t->g, f, format_buffer(t, f, rows, cols), rows, cols);
}

static tensor *o_sum(kt *t, uop *T, tensor *x, const struct format *f) {
  (void)T;
  (void)f;
  return t_reduce(t->g, x, OP_ADD, 1);
}
static tensor *o_norm(kt *t, uop *T, tensor *x, const struct format *f) {
  (void)T;
  (void)f;
  return t_rmsnorm(t->g, x, weight(t, 1, x->shape->dim[1]->a), 1e-6);
}
static tensor *o_matmul(kt *t, uop *T, tensor *x, const struct format *f) {
  (void)T;
  return t_matmul(t->g, x, matrix(t, f, 32, x->shape->dim[1]->a));
}
static tensor *o_norm_matmul(kt *t, uop *T, tensor *x, const struct format *f) {
  return o_matmul(t, T, o_norm(t, T, x, f), f);
}
static tensor *o_feed_forward(kt *t, uop *T, tensor *x, const struct format *f) {
  tensor *h = o_norm(t, T, x, f), *y = t_mul(t->g, t_silu(t->g, t_matmul(t->g, h, matrix(t, f, 512, 256))),
                                             t_matmul(t->g, h, matrix(t, f, 512, 256)));
  return t_add(t->g, x, t_matmul(t->g, y, matrix(t, f, 256, 512)));
}
static tensor *o_gather_norm(kt *t, uop *T, tensor *ids, const struct format *f) {
  return o_norm(t, T, t_gather(t->g, matrix(t, f, 16, 256), t_reshape(t->g, ids, UOPS(T))), f);
}
static tensor *o_gather_norm_matmul(kt *t, uop *T, tensor *ids, const struct format *f) {
  return o_matmul(t, T, o_gather_norm(t, T, ids, f), f);
}
// Heads: scores of a normed and turned q against 20 keys, softmax, values.
static tensor *heads(kt *t, uop *T, tensor *x, bool normed, bool turned) {
  graph *g = t->g;
  tensor *q = t_reshape(g, t_matmul(g, x, weight(t, 256, x->shape->dim[1]->a)), UOPS(T, n_(t, 2), n_(t, 128)));
  if (normed) q = t_rmsnorm(g, q, weight(t, 1, 128), 1e-6);
  if (turned) {
    tensor *p = t_reshape(g, q, UOPS(T, n_(t, 2), n_(t, 2), n_(t, 64))), *c = weight(t, 1, 64), *s = weight(t, 1, 64),
           *part[2];
    for (int i = 0; i < 2; i++) part[i] = t_reshape(g, t_slice_i(g, p, 2, i, 1), UOPS(T, n_(t, 2), n_(t, 64)));
    tensor *re = t_sub(g, t_mul(g, part[0], c), t_mul(g, part[1], s)),
           *im = t_add(g, t_mul(g, part[0], s), t_mul(g, part[1], c));
    q = t_reshape(g, t_swap(g, t_stack_last(g, (tensor *[]){re, im}, 2), 2, 3), UOPS(T, n_(t, 2), n_(t, 128)));
  }
  tensor *k = t_reshape_i(g, weight(t, 2 * 128, 20), 4, (int64_t[]){1, 2, 128, 20}),
         *v = t_reshape_i(g, weight(t, 2 * 20, 128), 4, (int64_t[]){1, 2, 20, 128});
  tensor *s = t_reduce(g, t_mul(g, t_reshape(g, q, UOPS(T, n_(t, 2), n_(t, 128), n_(t, 1))), k), OP_ADD, 2);
  tensor *e = t_exp(g, t_sub(g, s, t_reduce(g, s, OP_MAX, 3)));
  tensor *o = t_reduce(g, t_mul(g, t_reshape(g, e, UOPS(T, n_(t, 2), n_(t, 20), n_(t, 1))), v), OP_ADD, 2);
  o = t_op2(g, OP_FDIV, t_reshape(g, o, UOPS(T, n_(t, 2), n_(t, 128))),
            t_reshape(g, t_reduce(g, e, OP_ADD, 3), UOPS(T, n_(t, 2), n_(t, 1))));
  return t_reshape(g, o, UOPS(T, n_(t, 256)));
}
static tensor *o_heads(kt *t, uop *T, tensor *x, const struct format *f) {
  (void)f;
  return heads(t, T, x, false, false);
}
static tensor *o_heads_normed(kt *t, uop *T, tensor *x, const struct format *f) {
  (void)f;
  return heads(t, T, x, true, false);
}
static tensor *o_heads_turned(kt *t, uop *T, tensor *x, const struct format *f) {
  (void)f;
  return heads(t, T, x, false, true);
}
static tensor *o_heads_both(kt *t, uop *T, tensor *x, const struct format *f) {
  (void)f;
  return heads(t, T, x, true, true);
}

// What attention makes of blocks of positions is put together: x has the maximum of each block, others the values.
static tensor *o_merge(kt *t, uop *T, tensor *x, const struct format *f) {
  (void)f;
  graph *g = t->g;
  uop *n = kt_var(t, "blocks", 1, MOST_BLOCKS), *none = uop_idx(g, 0);
  tensor *m = t_slice(g, x, 1, none, n), *v = t_slice(g, weight(t, MOST_BLOCKS, 64), 0, none, n);
  tensor *e = t_exp(g, t_sub(g, m, t_reduce(g, m, OP_MAX, 1)));
  tensor *o = t_reduce(
    g, t_mul(g, t_reshape(g, e, UOPS(T, n, n_(t, 1))), t_reshape(g, v, UOPS(n_(t, 1), n, n_(t, 64)))), OP_ADD, 1);
  return t_op2(g, OP_FDIV, t_reshape(g, o, UOPS(T, n_(t, 64))),
               t_reshape(g, t_reduce(g, e, OP_ADD, 1), UOPS(T, n_(t, 1))));
}

static const order_case plain_cases[] = {
  {"sum", 96, o_sum, DT_F32, false},
  {"norm", 256, o_norm, DT_F32, false},
  {"heads", 64, o_heads, DT_F32, false},
  {"heads_normed", 64, o_heads_normed, DT_F32, false},
  {"heads_turned", 64, o_heads_turned, DT_F32, false},
  {"heads_both", 64, o_heads_both, DT_F32, false},
  {"merge", MOST_BLOCKS, o_merge, DT_F32, false},
};
static const order_case exact_cases[] = {
  {"matmul", 512, o_matmul, DT_F32, false},
  {"norm_matmul", 256, o_norm_matmul, DT_F32, false},
  {"feed_forward", 256, o_feed_forward, DT_F32, true},
  {"gather_norm", 1, o_gather_norm, DT_I32, true},
  {"gather_norm_matmul", 1, o_gather_norm_matmul, DT_I32, false},
};
static const order_case dot_cases[] = {                 // the same with dot products of integers, or BF16
  {"dot", 512, o_matmul, DT_F32, false}, {"norm_dot", 256, o_norm_matmul, DT_F32, true},
  {"gather_norm_dot", 1, o_gather_norm_matmul, DT_I32, true}, {"feed_forward_dot", 256, o_feed_forward, DT_F32, true},
};

// most: rows at once (1: a constant)
static void prepare(kt_run *r, const order_case *c, const struct format *f, bool dots, int64_t most, char *name,
                    size_t cap, const kt_backend *b) {
  bool halves = f && f->block == 1 && descriptor_tile(b->t.descriptors, DT_F16, 16);
  snprintf(name, cap, "%s %s", c->name, f ? f->name : "");
  *r = (kt_run){.name = name, .t = {.g = graph_new(NULL), .seed = 1, .tolerance = 1e-10}};
  kt *t = &r->t;
  tensor *x = t_buffer(t->g, kt_buffer(t, c->dt, most * c->cols, KT_SMALL_INTS), c->dt, most * c->cols);
  t->seed = 2;                                          // the same weights for every number of rows
  x = t_reshape_i(t->g, x, 2, (int64_t[]){most, c->cols});
  uop *T = most > 1 ? kt_var(t, "n", 1, most) : uop_idx(t->g, 1);
  kt_out(t, c->f(t, T, most > 1 ? t_slice(t->g, x, 0, uop_idx(t->g, 0), T) : x, f));
  uop *sink = uop_new(t->g, OP_SINK, DT_VOID, 1, t->effects.at, t->effects.n, (uarg){0});
  dots_choice how = {.most = b->t.rounded_most, .takes_signs = descriptors_take_signs(b->t.descriptors)};
  schedule_graph(t->g,
                 !dots                  ? sink
                 : halves               ? half_dots(t->g, sink)
                 : f->id == FORMAT_BF16 ? bf16_dots(t->g, sink)
                                        : integer_dots(t->g, sink, how),
                 &r->s);
}

static void fill_rows(const order_case *c, unsigned char *rows, int64_t n) {
  uint64_t seed = 99;
  for (int64_t i = 0; i < n * c->cols; i++)
    te_store(c->dt,
             c->dt == DT_F32 ? (evalue){.f = 2 * kt_unit(&seed) - 1} : (evalue){.i = (int64_t)(rig_random(&seed) % 16)},
             rows + i * 4);
}

static int64_t row_bytes(const kt_run *r, int64_t most) { return r->t.bufs[r->t.n_bufs - 1].elems * 4 / most; }

// What comes out for `n` rows whose data is in `rows`.
static void compute(kt_run *r, const kt_code *code, const unsigned char *rows, int64_t n, int64_t most,
                    const order_case *c, unsigned char *out) {
  kt_memory m;
  int64_t vars[] = {n, BLOCKS};
  memcpy(r->t.bufs[0].start, rows, (size_t)(n * c->cols * 4));
  kt_memory_init(&m, &r->t, kt_arena_bytes(&r->s));
  kt_execute(r, code, most > 1 ? vars : vars + 1, &m, false);
  memcpy(out, m.at[r->t.n_bufs - 1], (size_t)(n * row_bytes(r, most)));
  kt_memory_free(&m);
}

static const char *only_case, *only_format;
static int layouts;                                     // of weights that the kernels of all cases of a test read
static int tiles;                                       // kernels whose products are made in tiles
static int brought;                                     // and whose weights are brought to a work-group's memory

static int in_layouts(const kt_code *c) {
  int n = 0;
  for (int i = 0; c->laid.layouts && i < c->laid.n_bufs; i++) n += c->laid.layouts[i] != NULL;
  return n;
}

static int in_tiles(const kt_code *c) {
  for (size_t i = 0; c->p && i < c->p->n; i++) if (c->p->at[i]->op == OP_MMA) return 1;
  return 0;
}

static int is_brought(const kt_code *c) {
  for (int i = 0; i < c->p->n_applied; i++) if (c->p->applied[i].kind == OPT_SHARE) return 1;
  return 0;
}

// Some of n_rows alone, and all of them together, or two.
static bool same_rows(const order_case *c, const struct format *f, bool dots, const kt_backend *b, int64_t n_rows) {
  kt_run one, many;
  char name[64], name_many[64];
  kt_code code_one[KT_KERNELS] = {{0}}, code_many[KT_KERNELS] = {{0}};
  unsigned char *rows = xcalloc((size_t)(n_rows * c->cols), 4);
  const int64_t every = 1 + n_rows / 10;
  prepare(&one, c, f, dots, 1, name, sizeof name, b);
  prepare(&many, c, f, dots, n_rows + 1, name_many, sizeof name_many, b);  // 8: what register tiles divide
  for (int i = 0; i < one.s.n_kernels; i++) code_one[i] = kt_compile(one.t.g, one.s.kernels[i].ast, b);
  for (int i = 0; i < many.s.n_kernels; i++) code_many[i] = kt_compile(many.t.g, many.s.kernels[i].ast, b);
  for (int i = 0; i < one.s.n_kernels; i++) { layouts += in_layouts(&code_one[i]); tiles += in_tiles(&code_one[i]); }
  for (int i = 0; i < many.s.n_kernels; i++) {
    layouts += in_layouts(&code_many[i]);
    tiles += in_tiles(&code_many[i]);
    brought += is_brought(&code_many[i]);
  }
  fill_rows(c, rows, n_rows);
  int64_t size = row_bytes(&one, 1), wrong = 0;
  unsigned char *want = xcalloc((size_t)n_rows, (size_t)size), *got = xcalloc((size_t)n_rows, (size_t)size);
  for (int64_t i = 0; i < n_rows; i += every) compute(&one, code_one, rows + i * c->cols * 4, 1, 1, c, want + i * size);
  for (int64_t n = 2; n <= n_rows; n += n_rows - 2) {
    compute(&many, code_many, rows, n, n_rows + 1, c, got);
    for (int64_t i = 0; RIG_COMPUTES && i < n * size / 4; i++) {
      if (i * 4 / size % every) continue;
      if (!isfinite(te_load(DT_F32, want + 4 * i).f)) die("%s: a result that is no number; choose other data", name);
      wrong += memcmp(want + 4 * i, got + 4 * i, 4) != 0;
    }
    if (wrong) {
      fprintf(stderr, "%s on %s: %lld of %lld numbers differ among %lld rows\n", name, b->name, (long long)wrong,
              (long long)(n * size / 4), (long long)n);
      break;
    }
  }
  free(want);
  free(got);
  free(rows);
  for (int i = 0; i < one.s.n_kernels; i++) kt_code_free(&code_one[i]);
  for (int i = 0; i < many.s.n_kernels; i++) kt_code_free(&code_many[i]);
  kt_finish(&one);
  kt_finish(&many);
  return !wrong;
}

static bool guarded(const order_case *c, const struct format *f, bool dots, const kt_backend *b, int64_t n_rows) {
  kt_signals(kt_on_signal);
  int s = sigsetjmp(kt_back, 1);
  bool ok = !s && same_rows(c, f, dots, b, n_rows);
  kt_signals(SIG_DFL);
  if (s) fprintf(stderr, "%s %s on %s: ended by %s\n", c->name, f ? f->name : "", b->name, strsignal(s));
  return ok;
}


// Formats with large code books make kernels that LLVM takes seconds for, all by the same rules: two of them stand for
// the others.
static bool too_long(const order_case *c, const struct format *f) {
  bool book = !strncmp(f->name, "IQ", 2) && f->name[2] < '4', chosen = f->id == FORMAT_IQ2_XXS || f->id == FORMAT_IQ1_S;
  return book && !only_format && (!chosen || c != dot_cases);
}

static void run_on(const kt_backend *b, const order_case *c, size_t n, bool formats, bool dots) {
  int failed = 0;
  layouts = 0;
  for (size_t i = 0; i < n; i++) {
    if (only_case && strcmp(only_case, c[i].name)) continue;
    if (!formats) { failed += !guarded(&c[i], NULL, false, b, ROWS); continue; }
    for (uint32_t id = 0; id < FORMAT_IDS; id++) {
      const struct format *f = format_by_id(id);
      if (!f || !f->computes || (b->way == KT_PTX && ((f->block > 1 && dots) || f->rows > 1)) ||
          (dots &&
           ((f->block == 1 && id != FORMAT_BF16 && (id != FORMAT_F16 || b->way != KT_PTX)) || too_long(&c[i], f))) ||
          (c[i].few && b->way != KT_PTX && id % 4 != FORMAT_Q4_K % 4) || (only_format && strcmp(only_format, f->name)))
        continue;
      failed += !guarded(&c[i], f, dots, b, ROWS);
    }
  }
  if (failed) fail_msg("%d went wrong", failed);
  if (dots) print_message("%s: %d layouts\n", b->name, layouts);
}

static void run(const order_case *c, size_t n, bool formats, bool dots, const char *cpu) {
  kt_backend b;
  if (!kt_backend_cpu(&b, cpu, KT_LLVM, cpu)) skip();
  run_on(&b, c, n, formats, dots);
}

static void test_plain(void **state) { (void)state; run(plain_cases, COUNT(plain_cases), false, false, "native"); }
static void test_exact(void **state) { (void)state; run(exact_cases, COUNT(exact_cases), true, false, "native"); }
static void test_dot(void **state) { (void)state; run(dot_cases, COUNT(dot_cases), true, true, "native"); }
static void test_plain_v2(void **state) {
  (void)state;
  run(plain_cases, COUNT(plain_cases), false, false, "x86-64-v2");
}
static void test_plain_ptx(void **state) {
  (void)state;
  kt_backend b = kt_backend_ptx();
  run_on(&b, plain_cases, COUNT(plain_cases), false, false);
}
// Work-groups: a norm that is part of a product is added up as in a kernel of its own.
static void test_exact_ptx(void **state) {
  (void)state;
  kt_backend b = kt_backend_ptx();
  run_on(&b, exact_cases, COUNT(exact_cases), true, false);
}
// Products of halves by tiles, for a row alone as well.
static void test_dot_ptx(void **state) {
  (void)state;
  kt_backend b = kt_backend_ptx();
  tiles = 0;
  run_on(&b, dot_cases, COUNT(dot_cases), true, true);
  assert_true(tiles >= 16);
}
// A prompt's products, whose work-groups share rows among groups of items with other tokens: through their memory where
// there is room, brought there by copies, or loads and stores; and more rows than a tile has, which it does not divide.
static void test_many_ptx(void **state) {
  (void)state;
  static const order_case product = {"many", 2048, o_matmul, DT_F32, false};
  static const struct { const char *format; bool copies; int64_t rows; } cases[] = {
    {"Q4_0", true, MANY},  {"Q4_1", true, MANY},   {"Q5_0", true, MANY},  {"Q8_0", true, MANY}, {"MXFP4", true, MANY},
    {"Q2_K", true, MANY},  {"Q3_K", true, MANY},   {"Q4_K", true, MANY},  {"Q5_K", true, MANY}, {"Q6_K", true, MANY},
    {"TQ2_0", true, MANY}, {"IQ4_NL", true, MANY}, {"F16", true, MANY},   {"BF16", true, MANY}, {"Q4_0", false, MANY},
    {"F16", false, MANY},  {"Q4_0", true, 98},    {"Q4_0", true, 127},
  };
  kt_backend b = kt_backend_ptx();
  const int copy_bytes = b.t.copy_bytes;
  b.t.many_tokens = MANY + 1;
  int failed = 0;
  tiles = brought = 0;
  for (size_t i = 0; i < COUNT(cases); i++) {
    if (only_format && strcmp(only_format, cases[i].format)) continue;
    b.t.copy_bytes = cases[i].copies ? copy_bytes : 0;
    int before = brought;
    failed += !guarded(&product, format_by_name(cases[i].format), true, &b, cases[i].rows);
    print_message("%s: %s\n", cases[i].format, brought > before ? "brought" : "read");
  }
  if (failed) fail_msg("%d went wrong", failed);
  if (!only_format) assert_true(tiles >= 14 && brought >= 9);
}
static void test_dot_v3(void **state) { (void)state; run(dot_cases + 1, 1, true, true, "x86-64-v3"); }

int main(int argc, char **argv) {
  env_set(ENV_SPEC, getenv("SPEC") ? getenv("SPEC") : "1");
  only_case = argc > 1 ? argv[1] : NULL;
  only_format = argc > 2 ? argv[2] : NULL;
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_plain),    cmocka_unit_test(test_exact),  cmocka_unit_test(test_dot),
    cmocka_unit_test(test_plain_v2), cmocka_unit_test(test_dot_v3), cmocka_unit_test(test_exact_ptx),
    cmocka_unit_test(test_dot_ptx), cmocka_unit_test(test_many_ptx), cmocka_unit_test(test_plain_ptx),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
