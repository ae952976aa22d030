// OptOps: whatever kernel_apply accepts computes the same.  Each kind at each axis with several amounts, alone and in
// random sequences, on kernels of several shapes; on the interpreter, some through LLVM, and those of work-groups on
// OpenCL and in Metal's language.
//
// With arguments: the name of a case, then kind, axis and amount, three numbers for each opt: that sequence alone.
#define _GNU_SOURCE
#include "codegen/kernel_cases.h"

// Axes of every kind: contiguous and not, odd sizes, symbolic ones, several reductions that share ranges, guards,
// stores into views.
static const char *const names[] = {
  "add",
  "permute",
  "pad",
  "cat",
  "gather",
  "gather_pages",
  "sum",
  "max_i8",
  "reduce_two_axes",
  "reduce_padded",
  "argmax",
  "matmul_odd",
  "matmul_half",
  "codes_matvec",
  "norm_matmul",
  "softmax",
  "softmax_masked",
  "attention",
  "symbolic_rows",
  "symbolic_columns",
  "symbolic_sum",
  "symbolic_matmul",
  "symbolic_two",
  "flash",
  "flash_sink",
  "cache_chunk",
  "store_permuted",
};
static const char *const names_of_groups[] = {"matmul", "sum",          "softmax",         "codes_matvec",
                                              "max_i8", "symbolic_sum", "symbolic_matmul", "pad"};
static const int amounts[] = {2, 3, 4, 8, 0};

static const char *describe(const kt_backend *b, char *s, size_t cap) {
  int n = snprintf(s, cap, "%s, opts (kind axis amount)",
                   b->way == KT_CL      ? "OpenCL"
                   : b->way == KT_METAL ? "Metal"
                   : b->way == KT_LLVM  ? "LLVM"
                                        : "interpreter");
  for (int i = 0; i < b->o.n_opts; i++)
    n += snprintf(s + n, cap - (size_t)n, " %d %d %d [%s]", b->o.opts[i].kind, b->o.opts[i].axis, b->o.opts[i].amount,
                  opt_name(b->o.opts[i].kind));
  return s;
}

// How many of these opts some kernel of the schedule takes: sequences that change nothing need no run.
static int accepted(const kt_run *r, const kt_backend *b) {
  int n = 0;
  for (int i = 0; i < r->s.n_kernels; i++) {
    graph *g = graph_new(r->t.g);
    kernel k;
    kernel_init(&k, g, simplify(g, r->s.kernels[i].ast), &b->t);
    for (int j = 0; j < b->o.n_opts; j++) n += kernel_apply(&k, b->o.opts[j]);
    graph_free(g);
  }
  return n;
}

static int most_axes(const kt_run *r, const kt_backend *b) {
  int n = 0;
  for (int i = 0; i < r->s.n_kernels; i++) {
    graph *g = graph_new(r->t.g);
    kernel k;
    axes x;
    kernel_init(&k, g, simplify(g, r->s.kernels[i].ast), &b->t);
    kernel_axes(&k, &x);
    if (x.n > n) n = x.n;
    graph_free(g);
  }
  return n;
}

typedef struct count { int tried, failed; } count;

// If it dies, what it held is lost, and the case is prepared anew.
static void try_opts(kt_run *r, kt_wants *want, const kt_case *c, kt_backend *b, const opt *opts, int n, count *total) {
  char text[400];
  b->o = (codegen_options){.opts = opts, .n_opts = n};
  b->name = describe(b, text, sizeof text);
  kt_signals(kt_on_signal);
  volatile int takes = 0;
  int s = sigsetjmp(kt_back, 1);
  if (!s) takes = accepted(r, b);
  kt_signals(SIG_DFL);
  if (!s && !takes) return;
  if (s) fprintf(stderr, "%s on %s: kernel_apply ended by %s\n", r->name, b->name, strsignal(s));
  total->tried++;
  if (!s && kt_guard(r, b, want)) return;
  total->failed++;
  kt_prepare(r, c);
  *want = (kt_wants){0};
}

static void each_kind(const kt_case *c, kt_backend *b, unsigned kinds, count *total) {
  kt_run r;
  kt_wants want = {0};
  kt_prepare(&r, c);
  int n = most_axes(&r, b);
  for (int kind = 0; kind < OPT_COUNT; kind++)
    for (int axis = 0; axis < n && kinds >> kind & 1; axis++)
      for (size_t a = 0; a < COUNT(amounts); a++)
        try_opts(&r, &want, c, b, &(opt){(enum opt_kind)kind, axis, amounts[a]}, 1, total);
  kt_wants_free(&want);
  kt_finish(&r);
}

static void sequences(const kt_case *c, kt_backend *b, const enum opt_kind *kinds, int n_kinds, int rounds,
                      uint64_t seed, count *total) {
  kt_run r;
  kt_wants want = {0};
  kt_prepare(&r, c);
  int n = most_axes(&r, b);
  for (int round = 0; round < rounds; round++) {
    opt o[4];
    int m = 2 + (int)(rig_random(&seed) % 3), lanes = 0;
    for (int i = 0; i < m; i++) {
      o[i] = (opt){kinds[rig_random(&seed) % (uint64_t)n_kinds], (int)(rig_random(&seed) % (uint64_t)(n + 2)),
                   amounts[rig_random(&seed) % COUNT(amounts)]};
      // a kernel has one width of lanes, in one place: that is the heuristic's to see to
      if (o[i].kind == OPT_LANES && lanes++) o[i].kind = OPT_UNROLL;
    }
    try_opts(&r, &want, c, b, o, m, total);
  }
  kt_wants_free(&want);
  kt_finish(&r);
}

static void report(const count *total, const char *what, int least) {
  print_message("%s: %d accepted\n", what, total->tried);
  if (total->failed) fail_msg("%s: %d of %d went wrong", what, total->failed, total->tried);
  assert_true(total->tried >= least);
}

enum {
  ON_CPU = 1u << OPT_UPCAST | 1u << OPT_UNROLL | 1u << OPT_LANES | 1u << OPT_THREAD | 1u << OPT_LOOP |
           1u << OPT_PARTS,
  ON_GROUPS = 1u << OPT_LOCAL | 1u << OPT_GROUP | 1u << OPT_GROUPTOP | 1u << OPT_PARTS
};

static void test_interpreted(void **state) {
  (void)state;
  kt_backend b;
  count total = {0};
  assert_true(kt_backend_cpu(&b, "native", KT_REF, "native"));
  for (size_t i = 0; i < COUNT(names); i++) each_kind(kt_find(names[i]), &b, ON_CPU, &total);
  report(&total, "interpreter", 200);
}

static void test_llvm(void **state) {
  (void)state;
  kt_backend b;
  count total = {0};
  if (!kt_backend_cpu(&b, "", KT_LLVM, "native")) skip();
  for (size_t i = 0; i < COUNT(names); i += 3) each_kind(kt_find(names[i]), &b, ON_CPU, &total);
  report(&total, "LLVM", 50);
}

static void test_sequences(void **state) {
  (void)state;
  kt_backend b;
  count total = {0};
  static const enum opt_kind kinds[] = {OPT_UPCAST, OPT_UNROLL, OPT_LANES, OPT_LOOP, OPT_PARTS};
  assert_true(kt_backend_cpu(&b, "native", KT_REF, "native"));
  for (size_t i = 0; i < COUNT(names); i++)
    sequences(kt_find(names[i]), &b, kinds, (int)COUNT(kinds), 12, i + 1, &total);
  report(&total, "sequences", 100);
}

static void on_groups(kt_backend *b, count *total) {
  static const enum opt_kind kinds[] = {OPT_LOCAL, OPT_GROUP, OPT_GROUPTOP, OPT_UPCAST, OPT_UNROLL, OPT_PARTS};
  for (size_t i = 0; i < COUNT(names_of_groups); i++) {
    each_kind(kt_find(names_of_groups[i]), b, ON_GROUPS, total);
    sequences(kt_find(names_of_groups[i]), b, kinds, (int)COUNT(kinds), 4, i + 1, total);
  }
}

static void test_groups(void **state) {
  (void)state;
  kt_backend b = {.way = KT_CL};
  count total = {0};
  cl_target(kt_cl(), &b.t);
  on_groups(&b, &total);
  report(&total, "work-groups", 50);
}

// Without exchanges between threads that run in step, which take most of the barriers' work.
static void test_threadgroups(void **state) {
  (void)state;
  kt_backend b = kt_backend_metal();
  count total = {0};
  b.t.has_streams = false;
  b.t.subgroup_size = 0;
  on_groups(&b, &total);
  report(&total, "threadgroups", 50);
}

// What a kernel computes with these opts.
static void computed(const kt_run *r, kt_backend *b, const opt *opts, int n, kt_memory *m) {
  kt_code code[KT_KERNELS] = {{0}};
  b->o = (codegen_options){.opts = opts, .n_opts = n};
  for (int i = 0; i < r->s.n_kernels; i++) {
    code[i] = kt_compile(r->t.g, r->s.kernels[i].ast, b);
    assert_int_equal(code[i].p->n_applied, n);
  }
  kt_memory_init(m, &r->t, kt_arena_bytes(&r->s));
  kt_execute(r, code, NULL, m, false);
  for (int i = 0; i < r->s.n_kernels; i++) kt_code_free(&code[i]);
}

// Parts of a sum, and parts of these, have the same bits whoever makes them: items all of them, those of the outer sum,
// or one item all, one after the other.
static void test_parts(void **state) {
  (void)state;
  static const opt all[] = {{OPT_PARTS, 1, 4}, {OPT_PARTS, 2, 4}, {OPT_GROUP, 1, 0}, {OPT_GROUP, 1, 0}};
  kt_backend b = kt_backend_ptx();
  kt_run r;
  kt_memory want, got;
  kt_prepare(&r, kt_find("matvec_long"));
  computed(&r, &b, all, 2, &want);
  b.t.subgroup_size = 0;                               // by SWAP all items would be one sum
  for (int n = 3; n <= 4; n++) {
    computed(&r, &b, all, n, &got);
    const int out = r.t.n_bufs - 1;
    assert_memory_equal(want.at[out], got.at[out], (size_t)r.t.bufs[out].elems * 4);
    kt_memory_free(&got);
  }
  kt_memory_free(&want);
  kt_finish(&r);
}

// A sum may be unrolled into more terms than any list of fixed size has room for.
static void test_many_terms(void **state) {
  (void)state;
  kt_backend b;
  kt_run r;
  kt_wants want = {0};
  count total = {0};
  assert_true(kt_backend_cpu(&b, "native", KT_REF, "native"));
  kt_prepare(&r, kt_find("matvec_long"));
  try_opts(&r, &want, kt_find("matvec_long"), &b, (opt[]){{OPT_UNROLL, 1, 16}, {OPT_UNROLL, 1, 16}}, 2, &total);
  report(&total, "256 terms", 1);
  kt_finish(&r);
}

// What makes no sense is refused, and leaves the kernel as it was.
static void test_refused(void **state) {
  (void)state;
  kt_backend b;
  kt_run r;
  assert_true(kt_backend_cpu(&b, "native", KT_REF, "native"));
  kt_prepare(&r, kt_find("matmul"));
  graph *g = graph_new(r.t.g);
  kernel k;
  axes x;
  kernel_init(&k, g, simplify(g, r.s.kernels[0].ast), &b.t);
  kernel_axes(&k, &x);
  assert_int_equal(x.n, 3);
  assert_int_equal(x.n_out, 2);
  const uop *before = k.ast;
  const opt bad[] = {
    // another kind of axis; no work-groups here
    {OPT_UPCAST, 2, 4},  {OPT_UNROLL, 0, 4},  {OPT_GROUP, 2, 4},  {OPT_GROUPTOP, 2, 4},
    {OPT_LOCAL, 0, 4},   {OPT_UPCAST, -1, 4}, {OPT_UPCAST, 3, 4}, {OPT_UPCAST, 0, 1},
    {OPT_UPCAST, 0, -2}, {OPT_UPCAST, 0, 65}, {OPT_LANES, 2, 3},  {OPT_THREAD, 2, 2},
    // no sum, an amount that does not divide; nothing here is brought anywhere
    {OPT_PARTS, 0, 4},   {OPT_PARTS, 2, 7},   {OPT_SHARE, 2, 0},
  };
  for (size_t i = 0; i < COUNT(bad); i++) {
    assert_false(kernel_apply(&k, bad[i]));
    assert_ptr_equal(k.ast, before);
  }
  assert_true(kernel_apply(&k, (opt){OPT_UPCAST, 0, 0}));
  assert_false(kernel_apply(&k, (opt){OPT_UPCAST, 0, 0}));        // decided already
  assert_int_equal(k.n_applied, 1);
  graph_free(g);
  kt_finish(&r);
}

// Is `u` what `of` is in the next iteration of a loop? Operands of a sum may have changed places.
static bool is_next(const uop *u, const uop *of) {
  if (of->op == OP_RANGE && u != of)
    return u->op == OP_MIN && u->src[0]->op == OP_ADD && u->src[0]->src[0] == of && u->src[1]->a == of->vmax;
  if (u == of || u->op != of->op || u->nsrc != of->nsrc) return u == of;
  for (size_t turn = 0; turn < (u->nsrc == 2 ? 2 : 1); turn++) {
    bool same = true;
    for (size_t i = 0; same && i < u->nsrc; i++) same = is_next(u->src[i], of->src[(i + turn) % u->nsrc]);
    if (same) return true;
  }
  return false;
}

// What a table picks: each line is asked for one iteration of the table's loop before it is read, and only there.
static void test_next_entry(void **state) {
  (void)state;
  kt_backend b;
  kt_run r;
  assert_true(kt_backend_cpu(&b, "native", KT_REF, "native"));
  for (int large = 0; large < 2; large++) {
    kt_prepare(&r, kt_find(large ? "gather_pages" : "gather"));
    graph *g = graph_new(r.t.g);
    kernel k;
    kernel_init(&k, g, simplify(g, r.s.kernels[0].ast), &b.t);
    assert_false(kernel_apply(&k, (opt){OPT_PREFETCH, 0, PREFETCH_HINTS}));
    assert_int_equal(kernel_apply(&k, (opt){OPT_PREFETCH, 0, PREFETCH_T2}), large);
    assert_false(kernel_apply(&k, (opt){OPT_PREFETCH, 0, PREFETCH_T1}));        // not twice
    graph_free(g);
    codegen_options o = {.opts = (opt[]){{OPT_LANES, 1, 16}, {OPT_PREFETCH, 0, PREFETCH_T2}}, .n_opts = 2};
    program *p = large ? codegen(r.t.g, r.s.kernels[0].ast, &b.t, &o) : NULL;
    int asked = 0, read = 0;
    for (size_t i = 0; p && i < p->n; i++) {
      const uop *u = p->at[i];
      if (u->op == OP_LOAD && is_long_run(u->src[0]->src[0])) read++;
      if (u->op != OP_PREFETCH) continue;
      const uop *load = NULL;
      for (size_t j = i; j < p->n && !load; j++)
        if (p->at[j]->op == OP_LOAD && u->src[0] != p->at[j]->src[0] && is_next(u->src[0], p->at[j]->src[0]))
          load = p->at[j];
      assert_non_null(load);
      assert_int_equal(u->b, PREFETCH_T2);
      asked++;
    }
    if (large) assert_true(asked == 1 && read == 1);           // a vector is a line
    if (p) program_free(p);
    kt_finish(&r);
  }
}

static int one(int argc, char **argv) {
  kt_backend b = {.way = KT_CL};
  opt o[16];
  int n = 0;
  bool groups = false;
  for (int i = 2; i + 2 < argc && n < 16; i += 3, n++) {
    o[n] = (opt){(enum opt_kind)atoi(argv[i]), atoi(argv[i + 1]), atoi(argv[i + 2])};
    groups |= ON_GROUPS >> o[n].kind & 1;
  }
  if (groups) cl_target(kt_cl(), &b.t);
  else if (!kt_backend_cpu(&b, "", KT_REF, "native")) return 2;
  const kt_case *c = kt_find(argv[1]);
  kt_run r;
  kt_wants want = {0};
  count total = {0};
  kt_prepare(&r, c);
  try_opts(&r, &want, c, &b, o, n, &total);
  printf("%d tried, %d failed\n", total.tried, total.failed);
  return total.failed;
}

int main(int argc, char **argv) {
  env_set(ENV_SPEC, getenv("SPEC") ? getenv("SPEC") : "1");
  if (argc > 1) return one(argc, argv);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_refused),   cmocka_unit_test(test_interpreted), cmocka_unit_test(test_llvm),
    cmocka_unit_test(test_sequences), cmocka_unit_test(test_groups),      cmocka_unit_test(test_many_terms),
    cmocka_unit_test(test_next_entry), cmocka_unit_test(test_threadgroups), cmocka_unit_test(test_parts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
