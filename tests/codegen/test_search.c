// Search (codegen/search.c): lists of OptOps say all that was done to a kernel; a search finds what a device says is
// best, never a kernel that is wrong, and nothing that changes the order of sums.
#define _GNU_SOURCE
#include "codegen/kernel_rig.h"
#include "codegen/format_blocks.h"
#include "codegen/kernel_cases.h"
#include "codegen/search.h"
#include "model/dequant.h"
#include "schedule/dots.h"
#include "schedule/layout.h"

// ---- lists ----------------------------------------------------------------------------------------------------------

static void native(kt_backend *b) { if (!kt_backend_cpu(b, "native", KT_LLVM, "native")) fail_msg("no native target"); }

static char *program_text(graph *g, uop *ast, const target *t, const codegen_options *o) {
  program *p = codegen(g, ast, t, o);
  str s = {0};
  program_print(&s, p);
  program_free(p);
  return s.at;
}

// A product of quantised weights: one token, or (many) up to eight.
static void product(kt_run *r, uint32_t format, bool many) {
  enum { ROWS = 256, COLS = 1024, TOKENS = 16 };
  const struct format *f = format_by_id(format);
  *r = (kt_run){.name = f->name, .t = {.g = graph_new(NULL), .seed = 7, .tolerance = 1e-10}};
  kt *t = &r->t;
  tensor *x = kt_in(t, DT_F32, KT_UNIT, KT_DIMS(many ? TOKENS : 1, COLS));
  if (many) x = t_slice(t->g, x, 0, uop_idx(t->g, 0), kt_var(t, "n", 1, TOKENS));
  int w = kt_buffer(t, DT_U8, format_bytes(f, ROWS, COLS), KT_UNIT);
  format_blocks(f, t->bufs[w].start, ROWS, COLS, &t->seed);
  kt_out(t, t_matmul(t->g, x, dequant(t->g, f, w, ROWS, COLS)));
  schedule_graph(
    t->g,
    integer_dots(t->g, uop_new(t->g, OP_SINK, DT_VOID, 1, t->effects.at, t->effects.n, (uarg){0}), (dots_choice){0}),
    &r->s);
}

static uop *largest(const kt_run *r) {               // the kernel that reads the weight
  for (int i = 0; i < r->s.n_kernels; i++)
    for (int b = 0; b < r->s.kernels[i].n_bufs; b++) if (r->s.kernels[i].bufs[b] == 1) return r->s.kernels[i].ast;
  die("no kernel reads the weight");
}

// The heuristic's own list, applied again, gives its program again; and it reads back from its text.
static void check_replay(graph *g, uop *ast, const target *t, const char *name) {
  program *p = codegen(g, ast, t, NULL);
  opt o[MOST_OPTS];
  int n;
  str s = {0}, why = {0};
  opts_print(&s, p->applied, p->n_applied);
  assert_true(opts_parse(str_c(&s), o, MOST_OPTS, &n));
  assert_int_equal(n, p->n_applied);
  char *its = program_text(g, ast, t, NULL),
       *again = program_text(g, ast, t, &(codegen_options){.opts = o, .n_opts = n});
  if (strcmp(its, again)) fail_msg("%s: %s does not give the heuristic's kernel", name, str_c(&s));
  if (!search_allows(g, ast, t, o, n, &why)) fail_msg("%s: the heuristic's own list is refused: %s", name, str_c(&why));
  free(its); free(again);
  str_free(&s); str_free(&why);
  program_free(p);
}

static void test_replay(void **state) {
  (void)state;
  kt_backend b;
  int kernels = 0;
  native(&b);
  for (size_t c = 0; c < COUNT(kt_cases); c++) {
    kt_run r;
    kt_prepare(&r, &kt_cases[c]);
    for (int i = 0; i < r.s.n_kernels; i++, kernels++) check_replay(r.t.g, r.s.kernels[i].ast, &b.t, kt_cases[c].name);
    kt_finish(&r);
  }
  static const uint32_t formats[] = {FORMAT_Q4_0, FORMAT_Q6_K, FORMAT_Q4_K, FORMAT_IQ4_NL};
  for (size_t f = 0; f < COUNT(formats); f++)
    for (int many = 0; many < 2; many++) {
      kt_run r;
      product(&r, formats[f], many);
      for (int i = 0; i < r.s.n_kernels; i++, kernels++) check_replay(r.t.g, r.s.kernels[i].ast, &b.t, r.name);
      kt_finish(&r);
    }
  assert_true(kernels > 60);
}

static void test_texts(void **state) {
  (void)state;
  static const char *const bad[] = {
    "UPCAST",        "UPCAST(0)",     "UPCAST(0, 4",    "upcast(0, 4)",  "UPCAST(-1, 4)",
    "UPCAST(0, -4)", "NOTHING(0, 0)", "UPCAST(0, 4) x", "UPCAST(0, 4),", "UPCAST(99999999999, 4)"};
  opt o[MOST_OPTS];
  int n;
  for (size_t i = 0; i < COUNT(bad); i++) if (opts_parse(bad[i], o, MOST_OPTS, &n)) fail_msg("'%s' was read", bad[i]);
  assert_true(opts_parse("", o, MOST_OPTS, &n) && n == 0);
  str s = {0};
  for (int i = 0; i <= MOST_OPTS; i++) str_add(&s, "UPCAST(0, 2) ");
  assert_false(opts_parse(s.at, o, MOST_OPTS, &n));
  str_free(&s);
  for (int kind = 0; kind < OPT_COUNT; kind++) {
    opt one = {(enum opt_kind)kind, 3, 17}, got;
    str text = {0};
    opts_print(&text, &one, 1);
    assert_true(opts_parse(text.at, &got, 1, &n) && n == 1 && !memcmp(&one, &got, sizeof one));
    str_free(&text);
  }
}

// ---- what is refused ------------------------------------------------------------------------------------------------

static void refused(graph *g, uop *ast, const target *t, const char *list, const char *reason) {
  opt o[MOST_OPTS];
  int n;
  str why = {0};
  assert_true(opts_parse(list, o, MOST_OPTS, &n));
  if (search_allows(g, ast, t, o, n, &why)) fail_msg("'%s' was allowed", list);
  if (!strstr(str_c(&why), reason)) fail_msg("'%s' was refused because %s", list, str_c(&why));
  str_free(&why);
}

static void test_order(void **state) {
  (void)state;
  kt_backend b;
  kt_run r;
  int sums = 0;
  native(&b);
  // A sum of floats over 6 x 5: lanes would make partial sums, and six times an unrolled step of the outer range would
  // come before the next of the inner one.
  r = (kt_run){.t = {.g = graph_new(NULL), .seed = 1}};
  kt_out(&r.t, t_reduce(r.t.g, t_reduce(r.t.g, kt_in(&r.t, DT_F32, KT_UNIT, KT_DIMS(7, 6, 5)), OP_ADD, 2), OP_ADD, 1));
  schedule_graph(r.t.g, uop_new(r.t.g, OP_SINK, DT_VOID, 1, r.t.effects.at, r.t.effects.n, (uarg){0}), &r.s);
  for (int i = 0; i < r.s.n_kernels; i++) {
    graph *g = graph_new(r.t.g);
    kernel k;
    axes x;
    kernel_init(&k, g, simplify(g, r.s.kernels[i].ast), &b.t);
    kernel_axes(&k, &x);
    for (int axis = x.n_out; axis < x.n; axis++) {
      char list[64];
      snprintf(list, sizeof list, "LANES(%d, 4)", axis);
      refused(r.t.g, r.s.kernels[i].ast, &b.t, list, "");
      sums++;
      bool inner = axis + 1 == x.n;
      if (!inner && x.n - x.n_out == 2) {
        snprintf(list, sizeof list, "UNROLL(%d, 0)", axis);
        refused(r.t.g, r.s.kernels[i].ast, &b.t, list, "");
      }
    }
    graph_free(g);
    refused(r.t.g, r.s.kernels[i].ast, &b.t, "UPCAST(40, 2)", "there is no such output axis");
  }
  assert_true(sums > 0);
  kt_finish(&r);
  // A dot product keeps its beginning, and a size.
  product(&r, FORMAT_Q6_K, false);
  program *p = codegen(r.t.g, largest(&r), &b.t, NULL);
  str s = {0};
  opts_print(&s, p->applied, p->n_applied);
  refused(r.t.g, largest(&r), &b.t, "", "does not begin as the heuristic does");
  for (int i = 0; i < 20; i++) str_add(&s, " UPCAST(0, 2)");
  refused(r.t.g, largest(&r), &b.t, str_c(&s), "");
  str_free(&s);
  program_free(p);
  kt_finish(&r);
}

// A matrix product, output 8 x 16 and a sum of 32, on a processor: what an OptOp is refused for, in its row's words.
static void test_reasons(void **state) {
  (void)state;
  static const struct { opt o; const char *why; } cases[] = {
    {{OPT_UPCAST, 2, 4}, "no such output axis"},      {{OPT_UNROLL, 0, 4}, "no such summed axis"},
    {{OPT_UPCAST, 0, 65}, "too large"},               {{OPT_UPCAST, 0, 1}, "too few steps"},
    {{OPT_LANES, 1, 3}, "a power of two"},            {{OPT_LOCAL, 0, 4}, "no work-groups"},
    {{OPT_GROUP, 2, 4}, "no work-groups"},            {{OPT_SWAP, 1, 1}, "one axis"},
    {{OPT_TC, 0, 2}, "no products"},                  {{OPT_BLOCKS, 0, 0}, "divided by a constant"},
    {{OPT_BLOCKS, 0, 1}, "has to be 0"},              {{OPT_SEPARATE, 5, 0}, "no such sum"},
    {{OPT_SEPARATE, 0, 0}, "no other sum"},           {{OPT_ORDER, 0, 0}, "no stream"},
    {{OPT_ORDER, ORDER_KINDS, 0}, "too large"},       {{OPT_PREFETCH, 0, 0}, "through a table"},
    {{OPT_KEEP, 0, 1}, "value of weights"},           {{OPT_DESCRIPTOR, 0, 64}, "no dot products"},
    {{OPT_LAYOUT, 0, 0}, "of a weight"},              {{OPT_MMA, 2, 0}, "not cut into tiles"},
    {{OPT_STEP, 2, 32}, "runs in step"},              {{OPT_COLUMNS, 0, 7}, "too small"},
    {{OPT_PARTS, 2, 3}, "whole number of parts"},     {{OPT_SHARE, 2, 0}, "no work-groups"}};
  kt_backend b;
  kt_run r = {.t = {.g = graph_new(NULL), .seed = 1}};
  native(&b);
  b.t.descriptors = 0;// which dot products a machine has is part of some reasons
  tensor *x = kt_in(&r.t, DT_F32, KT_UNIT, KT_DIMS(8, 1, 32)), *w = kt_in(&r.t, DT_F32, KT_UNIT, KT_DIMS(1, 16, 32));
  kt_out(&r.t, t_reduce(r.t.g, t_mul(r.t.g, x, w), OP_ADD, 2));
  schedule_graph(r.t.g, uop_new(r.t.g, OP_SINK, DT_VOID, 1, r.t.effects.at, r.t.effects.n, (uarg){0}), &r.s);
  kernel k;
  kernel_init(&k, r.t.g, simplify(r.t.g, r.s.kernels[0].ast), &b.t);
  for (size_t i = 0; i < COUNT(cases); i++) {
    kernel before = k;
    if (kernel_apply(&k, cases[i].o)) fail_msg("%s was applied", opt_name(cases[i].o.kind));
    if (!strstr(k.refusal, cases[i].why)) fail_msg("%s is refused: %s", opt_name(cases[i].o.kind), k.refusal);
    assert_true(k.ast == before.ast && k.n_applied == 0 && k.next_range == before.next_range);
  }
  assert_true(kernel_apply(&k, (opt){OPT_UPCAST, 0, 4}) && kernel_apply(&k, (opt){OPT_UPCAST, 2, 4}));
  assert_false(kernel_apply(&k, (opt){OPT_UPCAST, 1, 2}));
  assert_string_equal(k.refusal, "another OptOp has taken its axis");
  assert_false(kernel_apply_all(&k, (opt[]){{OPT_UNROLL, 4, 2}, {OPT_UPCAST, 9, 2}}, 2, true));
  assert_string_equal(k.refusal, "there is no such output axis");
  kt_finish(&r);
}

// ---- a search on a device that only pretends ------------------------------------------------------------------------

// Times are what the test says: so much for each op of a kind in the list. Wrong: lists with a THREAD.
typedef struct pretend {
  graph *g;
  uop *ast;
  const target *t;
  double upcast, thread;
  int made, dropped, checked_wrong, samples;
  uint64_t seen[512];
  bool base_made;
} pretend;

static void pretend_make(void *ctx, candidate *const *c, int n) {
  pretend *d = ctx;
  for (int i = 0; i < n; i++) {
    bool base = !d->base_made;
    d->base_made = true;
    c[i]->p = codegen(d->g, d->ast, d->t, base ? NULL : &(codegen_options){.opts = c[i]->opts, .n_opts = c[i]->n});
    str s = {0};
    program_print(&s, c[i]->p);
    uint64_t hash = hash_bytes(s.at, s.n, 1);
    str_free(&s);
    bool known = false;
    for (int k = 0; k < d->made; k++) known |= d->seen[k] == hash;
    if (known || d->made == (int)COUNT(d->seen)) continue;
    d->seen[d->made++] = hash;
    c[i]->code = c[i];
  }
}

static int count_of(const candidate *c, enum opt_kind kind) {
  int n = 0;
  for (int i = 0; i < c->n; i++) n += c->opts[i].kind == kind;
  return n;
}

static bool pretend_right(void *ctx, candidate *c) {
  pretend *d = ctx;
  bool wrong = count_of(c, OPT_THREAD) > 0;
  d->checked_wrong += wrong;
  return !wrong;
}
static double pretend_sample(void *ctx, const candidate *c) {
  pretend *d = ctx;
  d->samples++;
  return 100 * pow(d->upcast, count_of(c, OPT_UPCAST)) * pow(d->thread, count_of(c, OPT_THREAD));
}
static void pretend_drop(void *ctx, candidate *c) { pretend *d = ctx; d->dropped += c->code != NULL; c->code = NULL; }

static search_result pretend_search(pretend *d, search_target *s, int width, double skip_us) {
  search_result r;
  *s = (search_target){.t = d->t,
                       .ctx = d,
                       .batch = 4,
                       .make = pretend_make,
                       .right = pretend_right,
                       .sample = pretend_sample,
                       .drop = pretend_drop};
  assert_int_equal(
    search_kernel(d->g, d->ast, s, &(search_options){.width = width, .seconds = 60, .skip_us = skip_us}, &r), 0);
  return r;
}

static void test_search(void **state) {
  (void)state;
  kt_backend b;
  kt_run r;
  search_target s;
  native(&b);
  kt_prepare(&r, kt_find("matmul"));
  int which = -1;
  for (int i = 0; i < r.s.n_kernels && which < 0; i++) which = i;
  pretend d = {.g = r.t.g, .ast = r.s.kernels[which].ast, .t = &b.t, .upcast = .9, .thread = .1};
  search_result found = pretend_search(&d, &s, 3, 0);
  assert_non_null(found.best);
  assert_int_equal(count_of(found.best, OPT_THREAD), 0);            // ten times as fast, and wrong
  assert_true(d.checked_wrong > 0 && found.wrong == d.checked_wrong);
  assert_true(count_of(found.best, OPT_UPCAST) >= 1 && found.us < found.heuristic_us && found.score < 1);
  assert_true(search_allows(d.g, d.ast, d.t, found.best->opts, found.best->n, NULL));
  search_free(&s, found.best);
  assert_int_equal(d.dropped, d.made);                              // every piece of code was given back
  // nothing is better: the heuristic stays
  pretend slow = {.g = r.t.g, .ast = d.ast, .t = &b.t, .upcast = 1.1, .thread = 1.1};
  found = pretend_search(&slow, &s, 3, 0);
  if (found.best) assert_true(found.score < 1);
  search_free(&s, found.best);
  // fast enough: no search
  pretend quick = {.g = r.t.g, .ast = d.ast, .t = &b.t, .upcast = .9, .thread = .9};
  found = pretend_search(&quick, &s, 3, 1000);
  assert_null(found.best);
  assert_int_equal(found.tried, 0);
  assert_int_equal(quick.made, 1);
  kt_finish(&r);
}

static void pretend_predict(void *ctx, candidate *const *c, int n) {
  (void)ctx;
  for (int i = 0; i < n; i++)
    c[i]->predicted_us = count_of(c[i], OPT_THREAD)   ? 1000
                         : count_of(c[i], OPT_UNROLL) ? 0
                                                      : 100 - 9 * count_of(c[i], OPT_UPCAST);
}

// Nothing is compiled of which a multiple of the heuristic's time is predicted; what is unknown comes first, then the
// most promising.
static void test_ranked(void **state) {
  (void)state;
  kt_backend b;
  kt_run r;
  native(&b);
  kt_prepare(&r, kt_find("matmul"));
  pretend d = {.g = r.t.g, .ast = r.s.kernels[0].ast, .t = &b.t, .upcast = .9, .thread = .1};
  search_target s = {.t = d.t, .ctx = &d, .batch = 4, .make = pretend_make, .right = pretend_right,
                     .sample = pretend_sample, .predict = pretend_predict, .drop = pretend_drop};
  search_result found;
  assert_int_equal(search_kernel(d.g, d.ast, &s, &(search_options){.width = 3, .seconds = 60}, &found), 0);
  assert_non_null(found.best);
  assert_int_equal(d.checked_wrong, 0);                             // those with a THREAD were never made
  assert_true(count_of(found.best, OPT_UPCAST) >= 1 && found.score < 1);
  search_free(&s, found.best);
  assert_int_equal(d.dropped, d.made);
  kt_finish(&r);
}

// ---- the same bits --------------------------------------------------------------------------------------------------

static void run_with(kt_run *r, const uop *ast, const kt_backend *b, const codegen_options *o, kt_memory *to) {
  kt_code code[KT_KERNELS] = {{0}};
  kt_backend with = *b;
  if (o) with.o = *o;
  for (int i = 0; i < r->s.n_kernels; i++)
    code[i] = kt_compile(r->t.g, r->s.kernels[i].ast, r->s.kernels[i].ast == ast ? &with : b);
  kt_memory_init(to, &r->t, kt_arena_bytes(&r->s));
  kt_execute(r, code, NULL, to, false);
  for (int i = 0; i < r->s.n_kernels; i++) kt_code_free(&code[i]);
}

// Whether the schedule computes the same bits with this list for one of its kernels as with the heuristic's.
static bool same_with(kt_run *r, const uop *ast, const kt_backend *b, const opt *o, int n) {
  kt_memory want, got;
  run_with(r, ast, b, NULL, &want);
  run_with(r, ast, b, &(codegen_options){.opts = o, .n_opts = n}, &got);
  bool same = true, any = false;
  for (int i = 0; i < r->t.n_bufs; i++) {
    size_t size = (size_t)r->t.bufs[i].elems * (size_t)dtype_size(r->t.bufs[i].dt);
    same &= !memcmp(want.at[i], got.at[i], size);
    for (size_t k = 0; r->t.bufs[i].out && k < size; k++) any |= want.at[i][k] != r->t.bufs[i].start[k];
  }
  kt_memory_free(&want); kt_memory_free(&got);
  return !RIG_COMPUTES || (same && any);
}

// A product with the loops that the rules give it, and their list.
static program *by_rules(kt_run *r, uint32_t format, const kt_backend *b, uop **ast, uop **laid, opt *o) {
  product(r, format, false);
  *ast = largest(r);
  *laid = kt_laid(r->t.g, *ast, b).ast;
  program *p = codegen(r->t.g, *laid, &b->t, NULL);
  memcpy(o, p->applied, (size_t)p->n_applied * sizeof *o);
  return p;
}

// ---- which instruction ----------------------------------------------------------------------------------------------

// The program with this list as the renderer writes it, hashed.
static uint64_t source_of(graph *g, uop *ast, const kt_backend *b, const opt *o, int n) {
  program *p = codegen(g, ast, &b->t, &(codegen_options){.opts = o, .n_opts = n});
  str s = {0};
  error err = {0};
  render_options options = cpu_render_options(&b->cpu);
  if (render_llvm(p, &options, &s, &err)) fail_msg("%s", err.text);
  uint64_t hash = hash_bytes(s.at, s.n, 1);
  str_free(&s);
  program_free(p);
  return hash;
}

// Every row of the table that this machine has, and plain arithmetic: other code, the same layout and the same bits.
static void test_descriptors(void **state) {
  (void)state;
  kt_backend b;
  int different = 0;
  native(&b);
  if (!b.t.descriptors) { print_message("skipped: no instructions for dot products\n"); return; }
  static const uint32_t formats[] = {FORMAT_Q4_0, FORMAT_Q6_K};
  for (size_t f = 0; f < COUNT(formats); f++) {
    kt_run r;
    uop *ast, *laid;
    opt o[MOST_OPTS];
    program *p = by_rules(&r, formats[f], &b, &ast, &laid, o);
    int n = p->n_applied;
    uint64_t own = source_of(r.t.g, laid, &b, o, n);
    for (int row = 0; row <= 64; row++) {
      o[n] = (opt){OPT_DESCRIPTOR, 0, row};
      bool may = search_allows(r.t.g, laid, &b.t, o, n + 1, NULL);
      assert_int_equal(may,
                       !row || ((b.t.descriptors >> (row - 1) & 1) && descriptor_at((size_t)row - 1)->acc == DT_I32));
      if (!may) continue;
      different += source_of(r.t.g, laid, &b, o, n + 1) != own;
      if (!same_with(&r, ast, &b, o, n + 1)) fail_msg("%s: other bits with descriptor %d", r.name, row);
    }
    o[n + 1] = o[n] = (opt){OPT_DESCRIPTOR, 0, 0};
    assert_false(search_allows(r.t.g, laid, &b.t, o, n + 2, NULL));             // one choice
    assert_false(search_allows(r.t.g, laid, &b.t, (opt[]){o[n]}, 1, NULL));     // and not before TC
    program_free(p);
    kt_finish(&r);
  }
  assert_true(different >= 2);
}

// Lists to try for one that asks too far ahead begin with other distances, and of these with none at all: a shorter
// list, and yet the first.
static void test_neighbours(void **state) {
  (void)state;
  kt_backend b;
  kt_run r;
  native(&b);
  b.t.has_streams = true;
  b.t.distance = (prefetch){64, PREFETCH_T0};
  product(&r, 14, false);                            // Q6_K
  layout_weights(r.t.g, &r.s, &(layout_target){.lanes = b.t.vector_bytes / 4}, NULL, NULL);
  uop *ast = largest(&r);
  program *p = codegen(r.t.g, ast, &b.t, NULL);
  enum { MOST = 160 };
  opt_list out[MOST];
  int own = p->n_applied, n = search_neighbours(r.t.g, ast, &b.t, p->applied, own, out, MOST), distance = 0;
  assert_true(own > 1 && p->applied[own - 1].kind == OPT_PREFETCH && n > 5);
  assert_int_equal(out[0].n, own - 1);
  assert_memory_equal(out[0].opts, p->applied, (size_t)(own - 1) * sizeof *p->applied);
  for (int i = 1; i < 5; i++) distance += out[i].n == own && out[i].opts[own - 1].kind == OPT_PREFETCH;
  assert_int_equal(distance, 4);
  program_free(p);
  kt_finish(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_replay),
                                     cmocka_unit_test(test_order),
                                     cmocka_unit_test(test_reasons),
    cmocka_unit_test(test_reasons), cmocka_unit_test(test_search),
                                     cmocka_unit_test(test_ranked), cmocka_unit_test(test_descriptors),
                                     cmocka_unit_test(test_neighbours)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
