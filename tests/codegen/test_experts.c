// One of several weights, chosen by a number that another kernel stored (mixture of experts): a product with it is the
// product with that weight, bit for bit; it stays an integer dot product over a weight in its layout; and of the
// weights only the chosen ones are read.
#define _GNU_SOURCE
#include "codegen/kernel_rig.h"
#include "codegen/format_blocks.h"
#include "model/dequant.h"
#include "schedule/dots.h"

enum { EXPERTS = 9, ROWS = 64, COLS = 512, CHOSEN = 3, TOKENS = 2, PAIRS = CHOSEN * TOKENS };
static const int32_t picks[PAIRS] = {8, 0, 5, 1, -3, 77};                // the last two are clamped

enum way { CHOSEN_BY_TOKEN, SORTED, ALL };

// x{TOKENS, 1, COLS} times the chosen; or, as in a chunk, tiles of two tokens each for one expert, n of them; or times
// all, {TOKENS, EXPERTS * ROWS}.
static int make(kt_run *r, const struct format *f, enum way way) {
  *r = (kt_run){.name = f->name, .t = {.g = graph_new(NULL), .seed = 7, .tolerance = 1e-10}};
  kt *t = &r->t;
  graph *g = t->g;
  tensor *x = kt_in(t, DT_F32, KT_UNIT, KT_DIMS(TOKENS, COLS));
  bool blocks = f->block > 1;
  int w = kt_buffer(t, dequant_buffer_dtype(f), blocks ? format_bytes(f, EXPERTS * ROWS, COLS) : EXPERTS * ROWS * COLS,
                    KT_UNIT);
  if (blocks) format_blocks(f, t->bufs[w].start, EXPERTS * ROWS, COLS, &t->seed);
  tensor *which = kt_in(t, DT_I32, KT_SMALL_INTS, KT_DIMS(TOKENS, CHOSEN)), *y;
  memcpy(t->bufs[t->n_bufs - 1].start, picks, sizeof picks);
  if (way == SORTED) {
    uop *n_tiles = kt_var(t, "n", 1, PAIRS), *two = uop_idx(g, TOKENS), *one = uop_idx(g, 1), *rows = uop_idx(g, ROWS),
        *cols = uop_idx(g, COLS);
    tensor *from = kt_in(t, DT_I32, KT_SMALL_INTS, KT_DIMS(PAIRS, TOKENS));
    int32_t *at = (int32_t *)(void *)t->bufs[t->n_bufs - 1].start;
    for (int i = 0; i < PAIRS * TOKENS; i++) at[i] = (i + i / TOKENS) % TOKENS;
    tensor *tile = t_slice(g, t_reshape_i(g, which, 1, (int64_t[]){PAIRS}), 0, uop_idx(g, 0), n_tiles);
    tensor *e =
      t_reshape(g, dequant_chosen(g, f, w, EXPERTS, ROWS, COLS, tile), 4, (uop *[]){n_tiles, one, rows, cols});
    tensor *in =
      t_reshape(g, t_gather(g, x, t_slice(g, from, 0, uop_idx(g, 0), n_tiles)), 4, (uop *[]){n_tiles, two, one, cols});
    y = t_reshape(g, t_reduce(g, t_mul(g, in, e), OP_ADD, 3), 3, (uop *[]){n_tiles, two, rows});
  } else if (way == CHOSEN_BY_TOKEN) {
    tensor *e = dequant_chosen(g, f, w, EXPERTS, ROWS, COLS, which);
    y = t_reduce(g, t_mul(g, t_reshape_i(g, x, 4, (int64_t[]){TOKENS, 1, 1, COLS}), e), OP_ADD, 3);
    y = t_reshape_i(g, y, 3, (int64_t[]){TOKENS, CHOSEN, ROWS});
  } else {
    y = t_matmul(g, x, dequant(g, f, w, EXPERTS * ROWS, COLS));
  }
  kt_out(t, y);
  schedule_graph(
    g, integer_dots(g, uop_new(g, OP_SINK, DT_VOID, 1, t->effects.at, t->effects.n, (uarg){0}), (dots_choice){0}),
    &r->s);
  return w;
}

static const sched_kernel *product_of(const kt_run *r, int w) {
  for (int i = 0; i < r->s.n_kernels; i++)
    for (int b = 0; b < r->s.kernels[i].n_bufs; b++) if (r->s.kernels[i].bufs[b] == w) return &r->s.kernels[i];
  die("no kernel reads the weight");
}

static void run_all(kt_run *r, const kt_backend *b, float *out) {
  kt_code code[KT_KERNELS] = {{0}};
  kt_memory m;
  for (int i = 0; i < r->s.n_kernels; i++) code[i] = kt_compile(r->t.g, r->s.kernels[i].ast, b);
  kt_memory_init(&m, &r->t, kt_arena_bytes(&r->s));
  kt_execute(r, code, (int64_t[KT_VARS]){PAIRS - 1}, &m, false);
  memcpy(out, m.at[r->t.n_bufs - 1], (size_t)r->t.bufs[r->t.n_bufs - 1].elems * sizeof *out);
  kt_memory_free(&m);
  for (int i = 0; i < r->s.n_kernels; i++) kt_code_free(&code[i]);
}

static void native(kt_backend *b) {
  if (!kt_backend_cpu(b, "native", KT_LLVM, "native") || !b->cpu.descriptors)
    fail_msg("this machine has no dot product: a row for it belongs in codegen/descriptor.c");
}

static const uint32_t formats[] = {FORMAT_F32,  FORMAT_F16,  FORMAT_Q4_0, FORMAT_Q4_1,  FORMAT_Q5_0,   FORMAT_Q8_0,
                                   FORMAT_Q4_K, FORMAT_Q5_K, FORMAT_Q6_K, FORMAT_MXFP4, FORMAT_IQ4_XS, FORMAT_IQ2_XS};

static void test_same_as_the_weight_itself(void **state) {
  (void)state;
  kt_backend b;
  native(&b);
  for (size_t i = 0; i < COUNT(formats); i++) {
    const struct format *f = format_by_id(formats[i]);
    kt_run some, all, sorted;
    float a[PAIRS][ROWS] = {{0}}, tiles[PAIRS][TOKENS][ROWS] = {{{0}}}, c[TOKENS][EXPERTS][ROWS] = {{{0}}};
    make(&some, f, CHOSEN_BY_TOKEN);
    make(&sorted, f, SORTED);
    make(&all, f, ALL);
    run_all(&some, &b, &a[0][0]);
    run_all(&sorted, &b, &tiles[0][0][0]);
    run_all(&all, &b, &c[0][0][0]);
    for (int p = 0; RIG_COMPUTES && p < PAIRS; p++) {
      int e = picks[p] < 0 ? 0 : picks[p] >= EXPERTS ? EXPERTS - 1 : picks[p];
      if (memcmp(a[p], c[p / CHOSEN][e], sizeof a[p]))
        fail_msg("%s: choice %d of expert %d is another product: %.9g instead of %.9g", f->name, p, e, (double)a[p][0],
                 (double)c[p / CHOSEN][e][0]);
      for (int j = 0; j < TOKENS && p < PAIRS - 1; j++)
        if (memcmp(tiles[p][j], c[(p * TOKENS + j + p) % TOKENS][e], sizeof a[p]))
          fail_msg("%s: place %d of tile %d of expert %d is another product", f->name, j, p, e);
    }
    kt_finish(&some); kt_finish(&sorted); kt_finish(&all);
  }
}

static const layout *layout_of(const kt_run *r, int w, const kt_backend *b, uop **ast) {
  const sched_kernel *k = product_of(r, w);
  sched_kernel laid = kt_laid(r->t.g, k->ast, b);
  *ast = laid.ast;
  for (int j = 0; j < k->n_bufs; j++) if (k->bufs[j] == w) return laid.layouts[j];
  return NULL;
}

// One order of the bytes for one token and for a chunk, no larger than the file; integer dot products from it; and no
// more read than what is chosen.
static void test_layouts_and_bytes(void **state) {
  (void)state;
  kt_backend b;
  native(&b);
  for (size_t i = 0; i < COUNT(formats); i++) {
    const struct format *f = format_by_id(formats[i]);
    if (f->block == 1 || f->id == FORMAT_IQ2_XS) continue;
    kt_run some, sorted;
    int w = make(&some, f, CHOSEN_BY_TOKEN);
    make(&sorted, f, SORTED);
    uop *one, *chunk;
    const layout *s = layout_of(&some, w, &b, &one), *t = layout_of(&sorted, w, &b, &chunk);
    program *p = codegen(some.t.g, one, &b.t, NULL), *q = codegen(sorted.t.g, chunk, &b.t, NULL);
    int dots[2] = {0, 0};
    for (size_t j = 0; j < p->n; j++) dots[0] += p->at[j]->op == OP_DOT;
    for (size_t j = 0; j < q->n; j++) dots[1] += q->at[j]->op == OP_DOT;
    if (!s || !t || s->bytes != some.t.bufs[w].elems) fail_msg("%s: no layout", f->name);
    if (s->hash != t->hash) fail_msg("%s: one token and a chunk read the weight in different orders", f->name);
    if (!dots[0] || !dots[1]) fail_msg("%s: no dot product", f->name);
    double estimate = (double)program_eval(p, p->bytes, NULL), weight = (double)some.t.bufs[w].elems,
           share = (double)PAIRS / EXPERTS;
    if (estimate < weight * share || estimate > weight * (share + 0.1))
      fail_msg("%s: %g bytes are read of %g, which is not %d experts of %d", f->name, estimate, weight, PAIRS, EXPERTS);
    program_free(p); program_free(q);
    kt_finish(&some); kt_finish(&sorted);
  }
}

// Whatever a search adds to the rules' list, in front or behind, is refused or makes a program: tiles of different
// experts have no bytes in common.
static void test_candidates(void **state) {
  (void)state;
  kt_backend b;
  native(&b);
  int made = 0;
  const size_t step = RIG_COMPUTES ? 3 : 9;      // the sanitizers have the same code before them for every format
  for (size_t i = 2; i < COUNT(formats); i += step)
    for (int way = CHOSEN_BY_TOKEN; way <= SORTED; way++) {
      kt_run r;
      int w = make(&r, format_by_id(formats[i]), (enum way)way);
      uop *ast;
      kernel k;
      layout_of(&r, w, &b, &ast);
      graph *g = graph_new(r.t.g);
      kernel_init(&k, g, simplify(g, ast), &b.t);
      heuristic(&k, false);
      for (int axis = 0; axis < 8; axis++)
        for (int kind = 0; kind < OPT_COUNT; kind++)
          for (int front = 0; front < 2; front++) {
            opt list[33];
            memcpy(list + front, k.applied, (size_t)k.n_applied * sizeof *list);
            list[front ? 0 : k.n_applied] =
              (opt){(enum opt_kind)kind, axis, kind == OPT_TC || kind == OPT_SWAP ? axis + 1 : 4};
            program *p = codegen(r.t.g, ast, &b.t, &(codegen_options){.opts = list, .n_opts = k.n_applied + 1});
            made += p != NULL;
            program_free(p);
          }
      graph_free(g);
      kt_finish(&r);
    }
  assert_true(made >= 100);
}

int main(void) {
  env_set(ENV_SPEC, getenv("SPEC") ? getenv("SPEC") : "1");
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_the_weight_itself),
                                     cmocka_unit_test(test_layouts_and_bytes), cmocka_unit_test(test_candidates)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
