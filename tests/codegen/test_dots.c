// Dot products from tensors to machine code: the loops that OptOp TC makes with the descriptors of every x86-64 level
// that this machine runs, and of AArch64 under qemu, against the interpreter, which knows nothing of any of that. The
// OptOps are given: the heuristic makes dot products of weights alone, which may lie anew (schedule/layout.c);
// here they lie side by side in the first place.
#define _GNU_SOURCE
#include "kernel_rig.h"
#include "render/qemu.h"

enum { ROWS = 32, UNITS = 24, TILE = 16 };           // weights: {ROWS / TILE, UNITS, TILE, 4} bytes
enum { BRAIN = 0, SIGNED = -1 };                     // instead of a mask: BF16, half as many of them; bytes with a sign
enum { BUFFERS = 4, START = 3 };                     // integers: what the sums start from
static const int masks[] = {15, 63, 127, 255, BRAIN, SIGNED};
// Lanes of rows, chains of eight or of all, two such vectors at once.
static const opt opts[2][3] = {{{OPT_TC, 0, 1}, {OPT_UNROLL, 3, 8}, {OPT_UPCAST, 0, 2}},
                               {{OPT_TC, 0, 1}, {OPT_UNROLL, 3, 0}, {OPT_UPCAST, 0, 2}}};
// The same for several tokens at once: two of them with two rows each are a tile on machines that have it (MMLA).
static const opt opts_of_tokens[2][4] = {{{OPT_TC, 1, 2}, {OPT_UNROLL, 4, 8}, {OPT_UPCAST, 1, 2}, {OPT_UPCAST, 0, 0}},
                                         {{OPT_TC, 1, 2}, {OPT_UNROLL, 4, 0}, {OPT_UPCAST, 1, 2}, {OPT_UPCAST, 0, 0}}};
static const int numbers_of_tokens[] = {1, 3, 4};

// y[token][row] = sum of (code & mask) * x[token], and for integers + start[token], as SINK of one kernel.
static uop *dots(graph *g, int mask, int tokens, schedule *s) {
  bool brain = mask == BRAIN;
  int k = brain ? 2 : 4;
  enum dtype dt = brain ? DT_F32 : DT_I32;
  tensor *w = t_reshape_i(g, t_buffer(g, 0, brain ? DT_BF16 : mask == SIGNED ? DT_I8 : DT_U8, ROWS * UNITS * k), 4,
                          (int64_t[]){ROWS / TILE, UNITS, TILE, k});
  w = t_reshape_i(g, t_permute(g, w, (int[]){0, 2, 1, 3}), 3, (int64_t[]){1, ROWS, UNITS * k});
  if (!brain && mask != 255 && mask != SIGNED) w = t_op2(g, OP_AND, w, uop_int(g, DT_U8, mask));
  tensor *x = t_reshape_i(g, t_buffer(g, 1, brain ? DT_BF16 : DT_I8, tokens * UNITS * k), 3,
                          (int64_t[]){tokens, 1, UNITS * k});
  tensor *y = t_reduce(g, t_mul(g, t_cast(g, w, dt), t_cast(g, x, dt)), OP_ADD, 2);
  if (!brain) y = t_add(g, y, t_reshape_i(g, t_buffer(g, START, dt, tokens), 3, (int64_t[]){tokens, 1, 1}));
  tensor *out = t_reshape_i(g, t_buffer(g, 2, dt, tokens * ROWS), 2, (int64_t[]){tokens, ROWS});
  out = t_assign(g, out, t_reshape_i(g, y, 2, (int64_t[]){tokens, ROWS}));
  schedule_graph(g, uop_new(g, OP_SINK, DT_VOID, 1, &out, 1, (uarg){0}), s);
  assert_int_equal(s->n_kernels, 1);
  return s->kernels[0].ast;
}

static void fill(memory *m, const int *place, int mask, int tokens, int pattern) {
  uint64_t seed = (uint64_t)pattern;
  if (mask == BRAIN) {                               // between 1/2 and 2, of either sign: no sum of them needs rounding
    for (int b = 0; b < 2; b++)
      for (int i = 0; i < (b ? tokens : ROWS) * UNITS * 2; i++) {
        uint16_t h = (uint16_t)((rig_random(&seed) & 0x80ff) | 0x3f00);
        memcpy(m->at[place[b]] + 2 * i, &h, 2);
      }
    return;
  }
  for (int i = 0; i < tokens; i++) {
    int32_t start = (int32_t)(rig_random(&seed) % 2000001) - 1000000;
    memcpy(m->at[place[START]] + 4 * i, &start, sizeof start);
  }
  for (int i = 0; i < ROWS * UNITS * 4; i++) m->at[place[0]][i] = pattern ? 255 : (unsigned char)rig_random(&seed);
  for (int i = 0; i < tokens * UNITS * 4; i++)
    m->at[place[1]][i] = pattern == 1 ? 0x80 : pattern == 2 ? 0x7f : (unsigned char)rig_random(&seed);
}

enum { PATTERNS = 3 };

// A chain of dot products starts from what is added to it: no addition is left, and none starts from 0.
static void starts(const program *p, int products) {
  int from_zero = 0, additions = 0;
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    from_zero += u->op == OP_DOT && uop_is_int(uop_unsplat(u->src[0]), 0);
    additions += u->op == OP_ADD && u->dt == DT_I32 && u->lanes > 1;
    products -= u->op == OP_DOT;
  }
  assert_int_equal(products, 0);
  assert_int_equal(from_zero, 0);
  assert_int_equal(additions, 0);
}

// Two tokens' sums of four rows are two sums of tiles, of half as many instructions; a third token has its own.
static void tiles(const program *p, const target *t, int tokens, bool brain, int products) {
  int dots = 0, tiles = 0;
  for (size_t i = 0; i < p->n; i++) { dots += p->at[i]->op == OP_DOT; tiles += p->at[i]->op == OP_MMLA; }
  bool has = !brain && descriptor_tile(t->descriptors, DT_U8, 8);
  assert_int_equal(tiles, has ? tokens / 2 * products : 0);
  if (has) assert_int_equal(dots, tokens % 2 * products);
}

// Words of a token are neighbours here: where an instruction takes a lane of a register, each DOT does.
static void words(const program *p, const target *t) {
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    const descriptor *d;
    bool by_lane = false;
    if (u->op != OP_DOT) continue;
    for (size_t k = 0; (d = descriptor_at(k)); k++)
      by_lane |= (t->descriptors >> k & 1) && d->by_lane && d->acc == (enum dtype)u->dt && d->n == u->lanes;
    assert_int_equal(u->src[2]->op, by_lane ? OP_SHUFFLE : OP_SPLAT);
  }
}

static void check(const cpu_target *cpu, const char *name, const char *on) {
  target t = render_find("llvm")->target;
  t.vector_bytes = cpu->vector_bits / 8;
  t.has_fma = cpu->fma; t.has_f16 = cpu->f16; t.lacks_round = !cpu->round;
  t.descriptors = cpu->descriptors;
  for (size_t n = 0; n < 2 * COUNT(masks) * COUNT(numbers_of_tokens); n++) {
    size_t m = n / 2 % COUNT(masks);
    if (masks[m] == SIGNED && !descriptors_take_signs(t.descriptors)) continue;
    int tokens = numbers_of_tokens[n / 2 / COUNT(masks)];
    graph *g = graph_new(NULL);
    schedule s;
    uop *ast = dots(g, masks[m], tokens, &s);
    codegen_options one = {.opts = opts[n % 2], .n_opts = COUNT(opts[0])},
                    several = {.opts = opts_of_tokens[n % 2], .n_opts = COUNT(opts_of_tokens[0])};
    program *p = codegen(g, ast, &t, tokens > 1 ? &several : &one);
    program *plain = codegen(g, ast, &ref_target, &(codegen_options){.noopt = true});
    int lanes = 0, place[BUFFERS] = {0};
    for (size_t i = 0; i < p->n; i++) if (p->at[i]->op == OP_DOT || p->at[i]->op == OP_MMLA) lanes = p->at[i]->lanes;
    assert_int_equal(lanes,
                     descriptor_lanes(t.descriptors, masks[m] == BRAIN ? DT_F32 : DT_I32, t.vector_bytes / 4, ROWS));
    for (int b = 0; b < BUFFERS; b++)
      for (int k = 0; k < s.kernels[0].n_bufs; k++) if (s.kernels[0].bufs[k] == b) place[b] = k;
    if (masks[m] != BRAIN && n % 2 && tokens == 1) starts(p, 2 * UNITS);
    if (tokens > 1) tiles(p, &t, tokens, masks[m] == BRAIN, n % 2 ? 2 * UNITS : 2 * 8);
    words(p, &t);
    rig r = {.n_bufs = p->n_bufs};
    for (int b = 0; b < p->n_bufs; b++) r.bufs[b] = p->bufs[b];
    memcpy(r.p.name, p->name, sizeof r.p.name);
    memory want[PATTERNS] = {0}, got[PATTERNS] = {0};
    ref_kernel *k = ref_compile(plain);
    for (int i = 0; i < PATTERNS; i++) {
      for (int b = 0; b < p->n_bufs; b++) {
        want[i].at[b] = calloc((size_t)p->bufs[b].elems, (size_t)dtype_size(p->bufs[b].dt));
        got[i].at[b] = calloc((size_t)p->bufs[b].elems, (size_t)dtype_size(p->bufs[b].dt));
      }
      fill(&want[i], place, masks[m], tokens, i);
      fill(&got[i], place, masks[m], tokens, i);
      ref_run(k, want[i].at, NULL, 0, program_eval(plain, plain->tiles, NULL));
    }
    ref_free(k);
    int64_t tiles = program_eval(p, p->tiles, NULL);
    error err = {0};
    str text = {0};
    render_options o = cpu_render_options(cpu);
    if (render_llvm(p, &o, &text, &err)) rig_fail("render", &err, NULL);
    if (on) qemu_run(&r, cpu, str_c(&text), tiles, on, PATTERNS, got);
    else {
      code_blob blob = qemu_blob(str_c(&text), cpu, NULL);
      code_image *image = code_map(&(const code_blob *){&blob}, 1, &err);
      if (!image) rig_fail("map", &err, NULL);
      for (int i = 0; i < PATTERNS; i++) ((kernel_fn *)code_find(image, 0, p->name))(got[i].at, NULL, 0, tiles);
      code_unmap(image);
      code_blob_free(&blob);
    }
    for (int i = 0; i < PATTERNS; i++) {
      rig_compare(&r, want[i].at, got[i].at, 0, name);
      for (int b = 0; b < p->n_bufs; b++) { free(want[i].at[b]); free(got[i].at[b]); }
    }
    str_free(&text);
    program_free(p);
    program_free(plain);
    graph_free(g);
  }
}

#if defined(__x86_64__)
static void levels_of_x86(void **state) {
  (void)state;
  static const char *const levels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "native"};
  cpu_features have;
  cpu_detect(&have);
  for (size_t i = 0; i < COUNT(levels); i++) {
    cpu_target t;
    error err = {0};
    if (cpu_target_for(levels[i], &have, &t, &err)) { print_message("skipped: %s\n", err.text); continue; }
    check(&t, levels[i], NULL);
  }
}
#endif

static void levels_of_aarch64(void **state) {
  (void)state;
  qemu_level l[QEMU_LEVELS];
  qemu_levels(l);
  for (int i = 0; i < QEMU_LEVELS; i++) check(&l[i].t, l[i].spec, l[i].cpu);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
    cmocka_unit_test(levels_of_x86),
#endif
    cmocka_unit_test(levels_of_aarch64),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
