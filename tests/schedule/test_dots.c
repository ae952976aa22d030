// The passes from a matmul with quantised weights to integer dot products (schedule/dots.h): each alone, on IR as text
// (tests/schedule/ir/*.ir, see ir_cases.h); and all of them by what they compute, in double precision, for every
// format.
//
// With the name of a file as argument, prints what each of its cases gives, as lines to paste.
#define _GNU_SOURCE
#include "graph/ir_cases.h"
#include <math.h>
#include "codegen/tensor_eval.h"
#include "codegen/format_blocks.h"
#include "graph/verify.h"
#include "model/codebook.h"
#include "model/dequant.h"
#include "schedule/dots.h"

// ---- each pass alone ------------------------------------------------------------------------------------------------

// A tensor expression on one line that no hash has a say in: operands that commute stand in the order of their texts.
static void show(str *out, uop *u);

static void show_shape(str *out, const uop *u) {
  str_addc(out, '[');
  for (int i = 0; i < u->shape->n; i++) {
    if (i) str_addc(out, ' ');
    if (u->shape->dim[i]->op == OP_CONST) str_addf(out, "%lld", (long long)u->shape->dim[i]->a);
    else uop_print_expr(out, u->shape->dim[i]);
  }
  str_addc(out, ']');
}

static void show_binary(str *out, uop *u, const char *sign) {
  str s[2] = {{0}, {0}};
  for (int i = 0; i < 2; i++) show(&s[i], u->src[i]);
  bool swap = (op_flags((enum op)u->op) & OPF_COMMUTATIVE) && strcmp(str_c(&s[0]), str_c(&s[1])) > 0;
  str_addf(out, "(%s %s %s)", str_c(&s[swap]), sign, str_c(&s[!swap]));
  for (int i = 0; i < 2; i++) str_free(&s[i]);
}

static void show(str *out, uop *u) {
  switch (u->op) {
  case OP_BUFFER: str_addf(out, "%s%lld", u->memory == MEMORY_WEIGHT ? "w" : "x", (long long)u->a); return;
  case OP_ADD: show_binary(out, u, "+"); return;
  case OP_SUB: show_binary(out, u, "-"); return;
  case OP_MUL: show_binary(out, u, "*"); return;
  case OP_AND: show_binary(out, u, "&"); return;
  case OP_XOR: show_binary(out, u, "^"); return;
  case OP_SHR: show_binary(out, u, ">>"); return;
  case OP_CMPLT: show_binary(out, u, "<"); return;
  case OP_FDIV: show_binary(out, u, "/"); return;
  case OP_MAX: show_binary(out, u, "max"); return;
  case OP_CONST: uop_print_expr(out, u); return;
  case OP_RESHAPE: case OP_EXPAND: str_addf(out, u->op == OP_RESHAPE ? "reshape" : "expand"); show_shape(out, u); break;
  case OP_CAST:
  case OP_BITCAST: str_addf(out, u->op == OP_CAST ? "%s" : "bits_%s", dtype_name((enum dtype)u->dt)); break;
  case OP_CONTIGUOUS: str_add(out, "stored"); break;
  case OP_REDUCE_AXIS:
    str_add(out, u->a == OP_ADD ? "sum" : "max");
    for (int i = 0; i < MAX_DIMS; i++) if (u->b >> i & 1) str_addf(out, "_%d", i);
    break;
  default: str_add(out, op_name((enum op)u->op));
  }
  size_t n = u->op == OP_RESHAPE || u->op == OP_EXPAND ? 1 : u->nsrc;
  str_addc(out, '(');
  for (size_t i = 0; i < n; i++) { if (i) str_add(out, ", "); show(out, u->src[i]); }
  str_addc(out, ')');
}

static const dots_pass *pass_named(const char *name) {
  for (const dots_pass *p = dots_passes; p->name; p++) if (!strcmp(p->name, name)) return p;
  if (!strcmp(name, dots_bf16_pass.name)) return &dots_bf16_pass;
  die("no pass %s", name);
}

static void run_one(graph *g, uop *u, const char *name, str *out) {
  uop *v = dots_run(g, u, pass_named(name), (dots_choice){0});
  str why = {0};
  if (!verify_graph_ok(g, v, STAGE_TENSOR, &why)) str_addf(out, "not sound: %s", str_c(&why));
  else if (v->shape != u->shape || v->dt != u->dt) str_add(out, "another shape or dtype");
  else if (v == u) str_add(out, "unchanged");
  else show(out, v);
  str_free(&why);
}

static void run_show(graph *g, uop *u, str *out) { (void)g; show(out, u); }
static void run_split(graph *g, uop *u, str *out) { run_one(g, u, "split", out); }
static void run_spread(graph *g, uop *u, str *out) { run_one(g, u, "spread", out); }
static void run_round(graph *g, uop *u, str *out) { run_one(g, u, "round", out); }
static void run_factor(graph *g, uop *u, str *out) { run_one(g, u, "factor", out); }
static void run_integers(graph *g, uop *u, str *out) { run_one(g, u, "integers", out); }
static void run_unsign(graph *g, uop *u, str *out) { run_one(g, u, "unsign", out); }
static void run_bf16(graph *g, uop *u, str *out) { run_one(g, u, "bf16", out); }
static void run_share(graph *g, uop *u, str *out) { run_one(g, u, "share", out); }

static const ir_pass passes[] = {
  {"show", run_show, false},     {"split", run_split, false},
  {"spread", run_spread, false}, {"round", run_round, false},
  {"factor", run_factor, false}, {"integers", run_integers, false},
  {"unsign", run_unsign, false}, {"share", run_share, false},
  {"bf16", run_bf16, false},   {0},
};

static void test_texts(void **state) {
  (void)state;
  assert_int_equal(run_folder(passes, WEFT_SOURCE_DIR "/tests/schedule/ir", 8, 20), 0);
}

static void test_every_pass_has_texts(void **state) {
  (void)state;
  for (const dots_pass *p = dots_passes; p->name; p++) {
    char path[4096];
    snprintf(path, sizeof path, WEFT_SOURCE_DIR "/tests/schedule/ir/%s.ir", p->name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is missing", path);
    fclose(f);
  }
}

// ---- what they compute ----------------------------------------------------------------------------------------------

enum { WEIGHT, X, ROWS = 16, MOST_COLS = 1024, MOST_TOKENS = 3 };
typedef struct data { const struct format *f; int64_t cols, tokens; unsigned char *at[2]; uint64_t seed; } data;

static uint64_t next(uint64_t *s) {
  *s ^= *s << 13; *s ^= *s >> 7; *s ^= *s << 17;
  return *s;
}

static const unsigned char *start(void *ctx, int64_t id) {
  return codebook_is(id) ? codebook_data(id) : ((data *)ctx)->at[id];
}

static data random_data(const struct format *f, uint64_t seed) {
  data d = {.f = f, .seed = seed * 2654435761u + 1};
  int64_t most = MOST_COLS / f->block, least = f->block < 64 ? 2 : 1;           // at least two blocks, or one of 256
  d.cols = f->block * (least + (int64_t)(next(&d.seed) % (uint64_t)(min_i64(most, 4) - least + 1)));
  d.tokens = 1 + (int64_t)(next(&d.seed) % MOST_TOKENS);
  d.at[WEIGHT] = xcalloc((size_t)format_bytes(f, ROWS, d.cols), 1);
  format_blocks(f, d.at[WEIGHT], ROWS, d.cols, &d.seed);
  d.at[X] = xcalloc((size_t)(d.tokens * d.cols), 4);
  for (int64_t i = 0; i < d.tokens * d.cols; i++)
    te_store(DT_F32, (evalue){.f = ((double)(next(&d.seed) >> 11) / 0x1p53 - 0.5) * (i % 37 ? 1 : 20)},
             d.at[X] + 4 * i);
  return d;
}

static tensor *x_of(graph *g, const data *d) {
  return t_contiguous(
    g, t_reshape_i(g, t_buffer(g, X, DT_F32, d->tokens * d->cols), 2, (int64_t[]){d->tokens, d->cols}));
}
static tensor *product(graph *g, const data *d) {
  return t_matmul(g, x_of(g, d), dequant(g, d->f, WEIGHT, ROWS, d->cols));
}

// u with doubles in the place of floats, so that the order of additions does not show.
static uop *doubles(graph *g, uop *u, map *memo) {
  uop *hit = map_ptr(memo, u), *s[2 + 2 * MAX_DIMS];
  if (hit) return hit;
  if (u->nsrc > COUNT(s)) die("too many sources");
  for (size_t i = 0; i < u->nsrc; i++)
    s[i] = u->src[i]->dt == DT_IDX && !u->src[i]->shape ? u->src[i] : doubles(g, u->src[i], memo);
  uop *r;
  if (u->dt == DT_F32 && u->op == OP_CONST) r = uop_float(g, DT_F64, uop_const_float(u));
  else if (u->dt == DT_F32 && (u->op == OP_BUFFER || u->op == OP_BITCAST)) r = t_cast(g, u, DT_F64);
  else if (u->dt == DT_F32 && u->op == OP_CAST) r = t_cast(g, s[0], DT_F64);
  else
    r = u->nsrc ? uop_new(g, (enum op)u->op, u->dt == DT_F32 ? DT_F64 : (enum dtype)u->dt, 1, s, u->nsrc,
                          uop_arg(u))
                : u;
  map_put(memo, u, r);
  return r;
}

static void values(graph *g, data *d, uop *u, double *out) {
  map memo = {0};
  te e = {.mem = arena_new(), .buffer = start, .ctx = d};
  const te_value *v = te_eval(&e, doubles(g, u, &memo));
  for (int64_t i = 0; i < v->count; i++) out[i] = v->v[i].f;
  map_free(&e.memo); map_free(&memo);
  arena_free(e.mem);
}

// What rounding may change: half a step of each activation, and the scale's own rounding where it is a half.
static void bounds_of_rounding(graph *g, data *d, int64_t group, double *bound) {
  static double w[ROWS * MOST_COLS];
  values(g, d, dequant(g, d->f, WEIGHT, ROWS, d->cols), w);
  for (int64_t t = 0; t < d->tokens; t++)
    for (int64_t r = 0; r < ROWS; r++) {
      double sum = 0;
      for (int64_t c = 0; c < d->cols; c += group) {
        double most = 0, weights = 0, products = 0;
        for (int64_t i = c; i < c + group; i++) {
          double x = fabs(te_load(DT_F32, d->at[X] + 4 * (t * d->cols + i)).f);
          most = fmax(most, x);
          weights += fabs(w[r * d->cols + i]);
          products += fabs(w[r * d->cols + i]) * x;
        }
        sum += weights * most / 127 * 0.5 * (1 + 1e-6) + (group <= 32 ? products * 0x1.01p-11 : 0);
      }
      bound[t * ROWS + r] = sum;
    }
}

static void check_values(const struct format *f, uint64_t seed, dots_choice how) {
  data d = random_data(f, seed);
  graph *g = graph_new(NULL);
  uop *u = product(g, &d);
  static double before[MOST_TOKENS * ROWS], after[MOST_TOKENS * ROWS], bound[MOST_TOKENS * ROWS];
  values(g, &d, u, before);
  for (const dots_pass *p = dots_passes; p->name; p++) {
    uop *v = dots_run(g, u, p, how);
    bool rounds = !strcmp(p->name, "round");
    if (v == u) continue;
    values(g, &d, v, after);
    if (rounds && te_rounded_group(v) < 1) fail_msg("%s, %d together: nothing is rounded", f->name, how.most);
    if (rounds) bounds_of_rounding(g, &d, te_rounded_group(v), bound);
    double most = 0;
    for (int64_t i = 0; i < d.tokens * ROWS; i++) most = fmax(most, fabs(before[i]));
    for (int64_t i = 0; i < d.tokens * ROWS; i++)
      if (!(fabs(after[i] - before[i]) <= (rounds ? bound[i] : 1e-10 * most)))
        fail_msg("%s, %lld columns, %lld tokens, %d together: after %s element %lld is %.17g, was %.17g", f->name,
                 (long long)d.cols, (long long)d.tokens, how.most, p->name, (long long)i, after[i], before[i]);
    memcpy(before, after, sizeof before);
    u = v;
  }
  graph_free(g);
  free(d.at[WEIGHT]);
  free(d.at[X]);
}

static void test_values(void **state) {
  (void)state;
  int done = 0;
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = format_by_id(id);
    if (!f || !f->computes || f->block == 1) continue;
    for (uint64_t round = 0; round < 3; round++)
      for (int how = 0; how < 4; how++)
        check_values(f, 100 * id + round, (dots_choice){.most = how % 2 * 32, .takes_signs = how / 2});
    done++;
  }
  assert_true(done >= 53);
}

// ---- every format gets there ----------------------------------------------------------------------------------------

static bool below(uop *u, enum op op, enum dtype dt) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &u, 1);
  bool hit = false;
  for (size_t i = 0; i < l.n; i++) hit |= l.at[i]->op == op && l.at[i]->dt == dt;
  arena_free(a);
  return hit;
}

// Sums of 32-bit integers over activations, with bytes of a weight or without.
static int sums_of_integers(uop *u, bool weights) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &u, 1);
  int n = 0;
  for (size_t i = 0; i < l.n; i++)
    n += l.at[i]->op == OP_REDUCE_AXIS && l.at[i]->dt == DT_I32 &&
         (weights ? below(l.at[i], OP_CONTIGUOUS, DT_I8) : below(l.at[i], OP_BUFFER, DT_F32)) &&
         below(l.at[i], OP_BUFFER, DT_U8) == weights;
  arena_free(a);
  return n;
}
static int integer_sums(uop *u) { return sums_of_integers(u, true); }
static int sums_of_activations(uop *u) { return sums_of_integers(u, false); }

// Codes of 8 bits keep their sign where the machine takes it: no sum of activations is subtracted then. Codes of fewer
// bits are bytes without a sign anywhere.
static void test_signs(void **state) {
  (void)state;
  static const uint32_t signs[] = {FORMAT_Q8_0, FORMAT_IQ4_NL, FORMAT_IQ4_XS}, none[] = {FORMAT_Q4_0, FORMAT_Q6_K};
  for (size_t i = 0; i < COUNT(signs) + COUNT(none); i++) {
    bool sign = i < COUNT(signs);
    data d = {.f = format_by_id(sign ? signs[i] : none[i - COUNT(signs)]), .cols = 1024, .tokens = 2};
    for (int takes = 0; takes < 2; takes++) {
      graph *g = graph_new(NULL);
      uop *u = product(g, &d), *sink = uop_new(g, OP_SINK, DT_VOID, 1, &u, 1, (uarg){0}),
          *after = integer_dots(g, sink, (dots_choice){.takes_signs = takes});
      if (!integer_sums(after) || sums_of_activations(after) != !(sign && takes))
        fail_msg("%s: %d sums of codes, %d of activations", d.f->name, integer_sums(after), sums_of_activations(after));
      graph_free(g);
    }
  }
}

static void check_every_format(int together) {
  // activations that share a scale: as many as the weight's float scales have in common
  static const struct { uint32_t id; int64_t group;
  } small[] = {
    {FORMAT_Q4_0, 32},   {FORMAT_Q4_1, 32},  {FORMAT_Q5_0, 32},  {FORMAT_Q5_1, 32},  {FORMAT_Q8_0, 32},
    {FORMAT_IQ4_NL, 32}, {FORMAT_MXFP4, 32}, {FORMAT_NVFP4, 16}, {FORMAT_Q1_0, 128}, {FORMAT_Q2_0, 64},
    {FORMAT_Q6_0, 32},   {FORMAT_Q4_0_R8, 32}, {FORMAT_Q5_0_R4, 32}, {FORMAT_Q8_0_R8, 32}, {FORMAT_Q6_0_R4, 32},
    {FORMAT_IQ4_NL_R4, 32}, {FORMAT_MXFP4_R8, 32},
  };
  int done = 0;
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = format_by_id(id);
    if (!f || !f->computes) continue;
    graph *g = graph_new(NULL);
    data d = {.f = f, .cols = 1024, .tokens = 2};
    uop *before = product(g, &d), *sink = uop_new(g, OP_SINK, DT_VOID, 1, &before, 1, (uarg){0}),
        *after = integer_dots(g, sink, (dots_choice){.most = together});
    int64_t group = 256;
    for (size_t i = 0; i < COUNT(small); i++) if (small[i].id == id) group = small[i].group;
    if (together && group > together) group = together;
    if (f->block <= 2) assert_ptr_equal(after, sink);           // F32, F16, BF16 and BF16_R16 hold no integers
    else if (!integer_sums(after)) fail_msg("%s: no integer sum", f->name);
    else if (te_rounded_group(after) != group)
      fail_msg("%s: %lld activations share a scale, should be %lld", f->name, (long long)te_rounded_group(after),
               (long long)group);
    done++;
    graph_free(g);
  }
  assert_true(done >= 74);
}

static void test_every_format(void **state) {
  (void)state;
  check_every_format(0);
  check_every_format(32);
}

// Some rows of a weight are a weight: their values are those rows', and a product with them is one of integers.
static void test_some_rows(void **state) {
  (void)state;
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = format_by_id(id);
    if (!f || !f->computes || f->block == 1) continue;
    data d = random_data(f, 3 + id);
    graph *g = graph_new(NULL);
    static double all[ROWS * MOST_COLS], some[ROWS * MOST_COLS];
    enum { FROM = 1, SOME = ROWS - FROM };
    values(g, &d, dequant(g, f, WEIGHT, ROWS, d.cols), all);
    values(g, &d, dequant_rows(g, f, WEIGHT, ROWS, FROM, SOME, d.cols), some);
    for (int64_t i = 0; i < SOME * d.cols; i++) assert_true(some[i] == all[FROM * d.cols + i]);
    uop *p = t_matmul(g, x_of(g, &d), dequant_rows(g, f, WEIGHT, ROWS, FROM, SOME, d.cols)),
        *sink = uop_new(g, OP_SINK, DT_VOID, 1, &p, 1, (uarg){0});
    bool numbers = f->block > 2;                                        // not BF16_R16's floats
    if (numbers && !integer_sums(integer_dots(g, sink, (dots_choice){0}))) fail_msg("%s: no integer sum", f->name);
    graph_free(g);
    for (size_t i = 0; i < COUNT(d.at); i++) free(d.at[i]);
  }
}

// What is no product with a quantised weight stays as it is.
static void test_left_alone(void **state) {
  (void)state;
  graph *g = graph_new(NULL);
  const struct format *f = format_by_id(FORMAT_Q4_0);
  tensor *x = t_reshape_i(g, t_buffer(g, X, DT_F32, 128), 2, (int64_t[]){2, 64}), *w = dequant(g, f, WEIGHT, ROWS, 64);
  tensor *all[] = {t_reduce(g, w, OP_ADD, 1), t_reduce(g, w, OP_MAX, 1), t_matmul(g, x, x), t_matmul(g, w, w), w};
  for (size_t i = 0; i < COUNT(all); i++) {
    uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, &all[i], 1, (uarg){0});
    assert_ptr_equal(integer_dots(g, sink, (dots_choice){0}), sink);
  }
  graph_free(g);
}

int main(int argc, char **argv) {
  int cases = 0;
  if (argc > 1) return run_file(passes, argv[1], &cases, true);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_texts),      cmocka_unit_test(test_every_pass_has_texts), cmocka_unit_test(test_values),
    cmocka_unit_test(test_signs),      cmocka_unit_test(test_every_format),         cmocka_unit_test(test_some_rows),
    cmocka_unit_test(test_left_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
