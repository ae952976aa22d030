// Layouts of weights (schedule/layout.c). A kernel computes the same from a weight in its layout as from the file; the
// kernels for one token and for many agree on the layout, so that memory holds each weight once; the copy has every
// byte, and none twice, and is read from its beginning to its end.
#define _GNU_SOURCE
#include "codegen/kernel_rig.h"
#include "codegen/format_blocks.h"
#include "codegen/search.h"
#include "model/dequant.h"
#include "schedule/dots.h"

enum { BACK = 1 << 12, ROWS = 64, COLS = 512, TOKENS = 8, WEIGHT = 1 };

static void make_product(kt_run *r, const struct format *f, int64_t rows, int64_t tokens, bool many, bool halves) {
  *r = (kt_run){.name = f->name, .t = {.g = graph_new(NULL), .seed = 7, .tolerance = 1e-10}};
  kt *t = &r->t;
  tensor *x = kt_in(t, DT_F32, KT_UNIT, KT_DIMS(tokens, COLS));
  if (many) x = t_slice(t->g, x, 0, uop_idx(t->g, 0), kt_var(t, "n", 1, tokens));
  int w = kt_buffer(t, DT_U8, format_bytes(f, rows, COLS), KT_UNIT);
  format_blocks(f, t->bufs[w].start, rows, COLS, &t->seed);
  tensor *y = t_matmul(t->g, x, dequant(t->g, f, w, rows, COLS));
  uop *half = uop_idx(t->g, rows / 2);
  if (halves) y = t_mul(t->g, t_slice(t->g, y, 1, uop_idx(t->g, 0), half), t_slice(t->g, y, 1, half, half));
  kt_out(t, y);
  schedule_graph(
    t->g,
    integer_dots(t->g, uop_new(t->g, OP_SINK, DT_VOID, 1, t->effects.at, t->effects.n, (uarg){0}), (dots_choice){0}),
    &r->s);
}

static void make_rows(kt_run *r, const struct format *f, int64_t rows, int64_t tokens, bool many) {
  make_product(r, f, rows, tokens, many, false);
}

static void make_tokens(kt_run *r, const struct format *f, int64_t tokens, bool many) {
  make_rows(r, f, ROWS, tokens, many);
}

static void make(kt_run *r, const struct format *f, bool many) { make_tokens(r, f, many ? TOKENS : 1, many); }

static const sched_kernel *product_of(const kt_run *r) {             // the kernel that reads the weight
  for (int i = 0; i < r->s.n_kernels; i++)
    for (int b = 0; b < r->s.kernels[i].n_bufs; b++) if (r->s.kernels[i].bufs[b] == WEIGHT) return &r->s.kernels[i];
  die("no kernel reads the weight");
}

// The layout in which the weight is read, and the kernel; NULL: as it lies.
static const layout *layout_of(const kt_run *r, const kt_backend *b, uop **ast) {
  const sched_kernel *k = product_of(r);
  sched_kernel laid = kt_laid(r->t.g, k->ast, b);
  const layout *hit = NULL;
  if (ast) *ast = laid.ast;
  for (int i = 0; laid.layouts && i < k->n_bufs; i++) {
    if (!laid.layouts[i]) continue;
    if (codebook_is(k->bufs[i])) fail_msg("%s: the layout of a code book", r->name);
    if (k->bufs[i] == WEIGHT) hit = laid.layouts[i];
  }
  return hit;
}

static bool same_layout(const layout *a, const layout *b) {
  if (!a || !b) return a == b;
  bool same = a->hash == b->hash && a->bytes == b->bytes && a->n_loops == b->n_loops && a->n_units == b->n_units;
  for (int i = 0; same && i < a->n_loops; i++)
    same = a->loop[i].size == b->loop[i].size && a->loop[i].step == b->loop[i].step;
  return same && !memcmp(a->unit, b->unit, (size_t)a->n_units * sizeof *a->unit);
}

static program *program_of(const kt_run *r, const kt_backend *b) {
  uop *ast;
  layout_of(r, b, &ast);
  return codegen(r->t.g, ast, &b->t, NULL);
}

static void native(kt_backend *b) {
  if (!kt_backend_cpu(b, "native", KT_LLVM, "native") || !b->cpu.descriptors)
    fail_msg("this machine has no dot product: a row for it belongs in codegen/descriptor.c");
}
// a code book, by loaded addresses
static bool looks_up(const struct format *f) { return !strncmp(f->name, "IQ", 2) && f->name[2] < '4'; }

static const struct format *quantised(uint32_t id) {
  const struct format *f = format_by_id(id);
  return f && f->computes && f->block > 2 ? f : NULL;              // BF16_R16 has blocks of two
}

// One layout for one token and for many, as large as the weight.
static void test_one_layout(void **state) {
  (void)state;
  kt_backend b;
  int done = 0;
  native(&b);
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = quantised(id);
    if (!f) continue;
    kt_run one, many;
    make(&one, f, false);
    make(&many, f, true);
    const layout *s = layout_of(&one, &b, NULL), *t = layout_of(&many, &b, NULL);
    if (!same_layout(s, t)) fail_msg("%s: one token and many read the weight in different orders", f->name);
    if (!s) fail_msg("%s: no layout", f->name);
    if (s && s->bytes > one.t.bufs[WEIGHT].elems)
      fail_msg("%s: %lld bytes for %lld", f->name, (long long)s->bytes, (long long)one.t.bufs[WEIGHT].elems);
    done += s != NULL;
    kt_finish(&one); kt_finish(&many);
  }
  print_message("%d formats\n", done);
  assert_true(done >= 72);
}

// Within an iteration of a loop, a program reads each vector of rows, of `vector` bytes in its stream, from the
// beginning to the end, but for a few bytes that several terms share.
static void ascends(const char *name, const program *p, int64_t vector, int *all) {
  int64_t last[64][16];
  int depth = 0, loads = 0;
  memset(last, -1, sizeof last);
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    if (u->op == OP_RANGE) memset(last[++depth], -1, sizeof *last);
    if (u->op == OP_END) depth--;
    if (u->op != OP_LOAD || !is_stream(u->src[0]->src[0])) continue;
    if (u->src[0]->lanes > 1) fail_msg("%s: %s gathers bytes from its stream", name, p->name);
    int64_t at = u->src[0]->src[1]->vmin, *before = &last[depth][at / vector];
    if (at + BACK < *before)
      fail_msg("%s: %s reads byte %lld of its stream after byte %lld", name, p->name, (long long)at,
               (long long)*before);
    *before = max_i64(*before, at);
    loads++;
  }
  *all = loads;
}

static void test_read_in_order(void **state) {
  (void)state;
  kt_backend b;
  native(&b);
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = quantised(id);
    if (!f) continue;
    for (int many = 0; many < 2; many++) {
      kt_run r;
      make_tokens(&r, f, many ? 4 * TOKENS : 1, false);
      int loads;
      program *p = program_of(&r, &b);
      const layout *l = layout_of(&r, &b, NULL);
      ascends(f->name, p, l ? l->bytes * l->lanes / ROWS : INT64_MAX, &loads);
      assert_true(loads > 0 || !l);
      if (p->order[ORDER_STREAMS] == many)
        fail_msg("%s: %d token%s: memory decides: %d", f->name, many ? 4 * TOKENS : 1, many ? "s" : "",
                 p->order[ORDER_STREAMS]);
      program_free(p);
      kt_finish(&r);
    }
  }
}

// Steps of a block that share no bytes are turns of a loop. Of the 16 sums of a block of Q6_K four share bytes, of Q3_K
// eight; in Q2_K another sum reads the same scales, in Q4_K the counter chooses among packed ones.
static void test_loops_in_blocks(void **state) {
  (void)state;
  static const struct { uint32_t id; int dots; } of[] = {
    {FORMAT_Q6_K, 16}, {FORMAT_Q3_K, 32}, {FORMAT_Q2_K, 64}, {FORMAT_Q4_K, 64},
  };
  kt_backend b;
  native(&b);
  for (size_t i = 0; i < COUNT(of); i++)
    for (int many = 0; many < 2; many++) {
      const struct format *f = format_by_id(of[i].id);
      kt_run r;
      make(&r, f, many);
      program *p = program_of(&r, &b);
      int dots = 0, lanes = 0;
      for (size_t n = 0; n < p->n; n++) if (p->at[n]->op == OP_DOT) { dots++; lanes = p->at[n]->lanes; }
      if (lanes == 16 && dots != of[i].dots * (many ? TOKENS : 1))
        fail_msg("%s, %s: %d dot products in an iteration", f->name, many ? "many tokens" : "one token", dots);
      assert_non_null(layout_of(&r, &b, NULL));
      program_free(p);
      kt_finish(&r);
    }
}

static void fill_with(const layout *l, const kt_backend *b, const unsigned char *raw, unsigned char *out) {
  graph *g = graph_new(NULL);
  kt_code c = kt_compile_program(codegen(g, layout_filling(g, l), &b->t, &(codegen_options){.filling = true}), b);
  kt_launch(&c, (unsigned char *[]){out, (unsigned char *)(uintptr_t)raw}, NULL);
  kt_code_free(&c);
  graph_free(g);
}

// Where each of the n bytes of the copy comes from: three fillings with the bytes of addresses. Each comes from
// somewhere else.
static void check_bytes(const char *name, const layout *l, int64_t n) {
  kt_backend ref = kt_backend_ref();
  unsigned char *raw = xcalloc((size_t)n, 1), *out = xcalloc((size_t)n, 3), *found = xcalloc((size_t)n, 1);
  for (int k = 0; k < 3; k++) {
    for (int64_t i = 0; i < n; i++) raw[i] = (unsigned char)(i >> 8 * k);
    fill_with(l, &ref, raw, out + k * n);
  }
  assert_int_equal(l->bytes, strcmp(name, "Q8_KV") ? n : n - 4 * ROWS);     // its sums of rows are not read
  for (int64_t i = 0; i < l->bytes; i++) {
    int64_t at = out[i] | out[i + n] << 8 | out[i + 2 * n] << 16;
    if (at >= n) fail_msg("%s: byte %lld of the copy is not from the weight", name, (long long)i);
    if (found[at]++) fail_msg("%s: byte %lld of the weight is there twice", name, (long long)at);
  }
  free(raw); free(out); free(found);
}

static void test_every_byte_is_there(void **state) {
  (void)state;
  kt_backend b;
  native(&b);
  for (uint32_t id = 0; id < FORMAT_IDS; id++)
    for (int kind = 0; kind < LAYOUT_KINDS; kind++) {
      const struct format *f = quantised(id);
      if (!f) continue;
      kt_run r;
      b.kind = (enum layout_kind)kind;
      make(&r, f, false);
      const layout *l = layout_of(&r, &b, NULL);
      if (l) check_bytes(f->name, l, r.t.bufs[WEIGHT].elems);
      kt_finish(&r);
    }
}

// Vectors of rows that are smaller than, as large as, or larger than groups of interleaved rows; alone, or several next
// to each other: every byte is there, at any of these.
static void test_interleaved_rows(void **state) {
  (void)state;
  static const uint32_t ids[] = {FORMAT_Q4_0_R8, FORMAT_IQ4_XS_R8, FORMAT_IQ4_K_R4, FORMAT_IQ4_KS_R4};
  kt_backend b;
  native(&b);
  for (size_t i = 0; i < COUNT(ids); i++)
    for (int lanes = 4; lanes <= 16; lanes *= 2)
      for (int kind = 0; kind < LAYOUT_KINDS; kind++) {
        kt_run r;
        if (kind == LAYOUT_FILE) continue;
        b.kind = (enum layout_kind)kind;
        b.t.vector_bytes = 4 * lanes;
        make(&r, format_by_id(ids[i]), false);
        const layout *l = layout_of(&r, &b, NULL);
        if (!l) fail_msg("%s: no layout for %d rows", r.name, lanes);
        assert_int_equal(l->lanes, lanes);
        assert_int_equal(l->together, format_by_id(ids[i])->rows);
        check_bytes(r.name, l, r.t.bufs[WEIGHT].elems);
        kt_finish(&r);
      }
}

// The kernels once, for each number of tokens; `out`: what each time writes, one after the other.
static void run_tokens(kt_run *r, const kt_backend *b, const int64_t *tokens, size_t n, float *out) {
  kt_code code[KT_KERNELS] = {{0}};
  size_t elems = (size_t)r->t.bufs[r->t.n_bufs - 1].elems;
  for (int i = 0; i < r->s.n_kernels; i++) code[i] = kt_compile(r->t.g, r->s.kernels[i].ast, b);
  for (size_t i = 0; i < n; i++) {
    kt_memory m;
    kt_memory_init(&m, &r->t, kt_arena_bytes(&r->s));
    kt_execute(r, code, (int64_t[KT_VARS]){tokens[i]}, &m, false);
    memcpy(out + i * elems, m.at[r->t.n_bufs - 1], elems * sizeof *out);
    kt_memory_free(&m);
  }
  for (int i = 0; i < r->s.n_kernels; i++) kt_code_free(&code[i]);
}

static void run_all(kt_run *r, const kt_backend *b, float *out) { run_tokens(r, b, &(int64_t){5}, 1, out); }

static void test_same_bits(void **state) {
  (void)state;
  static const uint32_t ids[] = {FORMAT_Q4_0, FORMAT_Q8_0,   FORMAT_Q5_1,  FORMAT_Q2_K, FORMAT_Q4_K,
                                 FORMAT_Q6_K, FORMAT_IQ4_XS, FORMAT_MXFP4, FORMAT_TQ2_0, FORMAT_Q4_0_R8, FORMAT_Q8_0_R8,
                                 FORMAT_Q4_K_R4, FORMAT_Q3_K_R4, FORMAT_IQ4_K_R4, FORMAT_IQ5_KS_R4};
  kt_backend with, without;
  native(&with);
  without = with;
  without.t.has_streams = false;
  for (size_t i = 0; i < COUNT(ids); i++) {
    kt_run r;
    float a[TOKENS * ROWS] = {0}, b[TOKENS * ROWS] = {0};
    make(&r, format_by_id(ids[i]), i % 2);
    run_all(&r, &with, a);
    run_all(&r, &without, b);
    if (memcmp(a, b, sizeof a)) fail_msg("%s: a layout changes what is computed", r.name);
    assert_true(a[0] < 0 || a[0] > 0);
    kt_finish(&r);
  }
}

// Two matrices in one weight, of which a kernel reads a row each (gate and up in one): a layout as for any other, the
// same for one token and for many, and the same bits as from the file.
static void test_two_matrices_in_one(void **state) {
  (void)state;
  static const uint32_t ids[] = {FORMAT_Q4_0, FORMAT_Q8_0, FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_IQ3_S, FORMAT_Q4_0_R8,
                                 FORMAT_IQ4_K_R4};
  kt_backend with, without;
  native(&with);
  without = with;
  without.t.has_streams = false;
  for (size_t i = 0; i < COUNT(ids); i++) {
    const layout *l[2];
    kt_run r[2];
    for (int many = 0; many < 2; many++) {
      float a[TOKENS * 2 * ROWS] = {0}, b[TOKENS * 2 * ROWS] = {0};
      make_product(&r[many], format_by_id(ids[i]), 4 * ROWS, many ? TOKENS : 1, many, true);
      l[many] = layout_of(&r[many], &with, NULL);
      if (!l[many]) fail_msg("%s: no layout", r[many].name);
      check_bytes(r[many].name, l[many], r[many].t.bufs[WEIGHT].elems);
      run_all(&r[many], &with, a);
      run_all(&r[many], &without, b);
      if (memcmp(a, b, sizeof a)) fail_msg("%s: a layout changes what is computed", r[many].name);
      assert_true(a[0] < 0 || a[0] > 0);
    }
    assert_true(same_layout(l[0], l[1]));
    kt_finish(&r[0]); kt_finish(&r[1]);
  }
}

enum { MANY = 64, MANY_ROWS = 256 };

static bool keeps(const program *p) {
  for (int i = 0; i < p->n_applied; i++) if (p->applied[i].kind == OPT_KEEP) return true;
  return false;
}

// A stream that is asked for ahead of its loads, once for each line of which an iteration reads the first byte; rows
// outside the loop over tokens, of which parts take turns where the cache is small: the same bits.
static void test_ahead(void **state) {
  (void)state;
  static const uint32_t ids[] = {FORMAT_Q4_0, FORMAT_Q8_0, FORMAT_Q2_K, FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_IQ4_XS};
  static float a[MANY * ROWS], b[MANY * ROWS];
  kt_backend plain;
  native(&plain);
  plain.t.cache_bytes = 0;
  for (size_t i = 0; i < COUNT(ids); i++)
    for (int many = 0; many < 2; many++)
      for (int way = 0; way < PREFETCH_HINTS; way++) {
        kt_run r;
        kt_backend distance = plain;
        distance.t.distance = distance.t.distance_of_tile = (prefetch){1 << way, way};
        distance.t.cache_bytes = (int64_t)4096 << 3 * way;
        make_tokens(&r, format_by_id(ids[i]), many ? MANY : 1, many);
        run_all(&r, &plain, a);
        run_all(&r, &distance, b);
        if (memcmp(a, b, sizeof a)) fail_msg("%s: asking ahead changes what is computed", r.name);
        program *p = program_of(&r, &distance);
        int64_t asked = 0, lines = 0;
        bool split = false;
        for (size_t k = 0; k < p->n; k++) {
          const uop *u = p->at[k], *index = u->nsrc ? u->src[0] : u;
          if (u->op == OP_PREFETCH) {
            asked++;
            assert_true(u->b == way && (keeps(p) || (u->a >= 1024 << way && u->a < (1024 << way) + 64)));
          }
          if (u->op != OP_LOAD || !is_stream(index->src[0])) continue;
          int64_t from = index->src[1]->vmin, to = from + (int64_t)u->lanes * dtype_size((enum dtype)u->dt);
          lines += (to + 63) / 64 - (from + 63) / 64;
        }
        // half of 32 KiB has room for the activations of four tiles of tokens, of eight
        for (int k = 0; k < p->n_applied; k++) split |= p->applied[k].kind == OPT_LOOP;
        if (!keeps(p) && (asked != lines || (!asked && layout_of(&r, &distance, NULL))))
          fail_msg("%s: %lld lines asked for of %lld", r.name, (long long)asked, (long long)lines);
        if (split != (many && way == PREFETCH_T1))
          fail_msg("%s: %d tokens, a cache of %lld bytes: in parts: %d", r.name, many ? MANY : 1,
                   (long long)distance.t.cache_bytes, split);
        program_free(p);
        kt_finish(&r);
      }
}

// One token asks as products of one token like it, several side by side as those of many do.
static void test_few_tokens_ask_as_many(void **state) {
  (void)state;
  static const struct { int64_t tokens; bool many; } of[] = {{1, false}, {2, false}, {4, false}, {4, true}, {8, true}};
  kt_backend b;
  native(&b);
  b.t.distance = (prefetch){4, PREFETCH_T0};
  b.t.distance_of_tile = (prefetch){32, PREFETCH_T1};
  for (size_t i = 0; i < COUNT(of); i++) {
    kt_run r;
    make_tokens(&r, format_by_id(FORMAT_Q4_0), of[i].tokens, of[i].many);
    program *p = program_of(&r, &b);
    assert_int_equal(p->distance.kib, of[i].tokens > 1 ? 32 : 4);
    assert_int_equal(p->distance.hint, of[i].tokens > 1 ? PREFETCH_T1 : PREFETCH_T0);
    program_free(p);
    kt_finish(&r);
  }
}

// --- what a tile keeps (codegen/reuse.h) -----------------------------------------------------------------------------

// Weights unpacked once for all tiles of tokens: the same bits for any number of tokens, in no more memory than a tile
// may take. 8 bits are nothing to unpack.
static void test_kept(void **state) {
  (void)state;
  static const int64_t tokens[] = {1, 8, 9, MANY - 1, MANY};
  static const uint32_t ids[] = {FORMAT_Q4_0, FORMAT_Q8_0, FORMAT_Q5_1,   FORMAT_Q2_K,   FORMAT_Q3_K,
                                 FORMAT_Q4_K, FORMAT_Q6_K, FORMAT_IQ4_XS, FORMAT_IQ2_XS, FORMAT_MXFP4};
  static float a[COUNT(tokens)][MANY * MANY_ROWS], b[COUNT(tokens)][MANY * MANY_ROWS];
  kt_backend with, without;
  native(&with);
  without = with;
  without.t.tile_bytes = 0;
  with.t.distance_of_tile = (prefetch){32, PREFETCH_T1};
  kt_backend few = with;
  for (size_t k = 0; k < COUNT(ids); k++) {
    const struct format *f = format_by_id(ids[k]);
    kt_run r;
    make_rows(&r, f, MANY_ROWS, MANY, true);
    program *p = program_of(&r, &with);
    int64_t taken = 0, stored = 0, loaded = 0;
    for (size_t i = 0; i < p->n; i++) {
      const uop *u = p->at[i];
      if (u->op == OP_LOCAL) taken += u->b;
      stored += u->op == OP_STORE && u->src[0]->src[0]->op == OP_LOCAL;
      loaded += u->op == OP_LOAD && u->src[0]->src[0]->op == OP_LOCAL;
    }
    if (taken > with.t.tile_bytes || !stored != !loaded || (stored && !keeps(p)))
      fail_msg("%s: %lld bytes kept, %lld stored, %lld loaded", f->name, (long long)taken, (long long)stored,
               (long long)loaded);
    if (!stored != (ids[k] == FORMAT_Q8_0)) fail_msg("%s: %lld values are kept", f->name, (long long)stored);
    run_tokens(&r, &with, tokens, COUNT(tokens), a[0]);
    run_tokens(&r, &without, tokens, COUNT(tokens), b[0]);
    for (size_t i = 0; i < COUNT(tokens); i++)
      if (memcmp(a[i], b[i], sizeof a[i]))
        fail_msg("%s, %lld tokens: not the same bits", f->name, (long long)tokens[i]);
    assert_true(a[0][0] < 0 || a[0][0] > 0);
    program_free(p);
    few.t.vector_registers = 16;                   // loads decide there
    p = program_of(&r, &few);
    assert_false(keeps(p));
    program_free(p);
    kt_finish(&r);
  }
}

// --- a walk through a program's loops, for addresses

typedef struct walk {
  const program *p;
  int64_t tokens, from;                          // tiles from this one on
  bool asks;                                     // note lines that are asked for, or that are read
  map now;                                       // RANGE -> its counter
  unsigned char *lines;
} walk;

static int64_t now(const walk *w, const uop *u) {
  int64_t s[3] = {0};
  void *v;
  if (u->op == OP_CONST) return u->a;
  if (u->op == OP_VAR) return w->tokens;
  if (u->op == OP_RANGE) {
    if (!map_get(&w->now, (uint64_t)(uintptr_t)u, &v)) fail_msg("a counter outside of its loop");
    return (int64_t)(intptr_t)v;
  }
  for (size_t i = 0; i < u->nsrc; i++) s[i] = now(w, u->src[i]);
  switch (u->op) {
  case OP_ADD: return s[0] + s[1];
  case OP_SUB: return s[0] - s[1];
  case OP_MUL: return s[0] * s[1];
  case OP_SHL: return s[0] << s[1];
  case OP_SHR: return s[0] >> s[1];
  case OP_CDIV: return s[0] / s[1];
  case OP_MAX: return max_i64(s[0], s[1]);
  case OP_MIN: return min_i64(s[0], s[1]);
  default: fail_msg("an address with %s", op_name((enum op)u->op)); return 0;
  }
}

// Runs nodes `at` to the END of that loop; returns the place behind.
static size_t run_loop(walk *w, size_t at, const uop *loop) {
  for (; at < w->p->n; at++) {
    const uop *u = w->p->at[at];
    if (u->op == OP_END && u->src[0] == loop) return at + 1;
    if (u->op == OP_RANGE) {
      int64_t from = u->b == AXIS_GLOBAL ? w->from : 0, to = u->b == AXIS_GLOBAL ? from + 1 : now(w, u->src[0]);
      size_t end = at + 1;
      if (from >= to) while (w->p->at[end]->op != OP_END || w->p->at[end]->src[0] != u) end++;
      for (int64_t i = from; i < to; i++) {
        map_put(&w->now, u, (void *)(intptr_t)i);
        end = run_loop(w, at + 1, u);
      }
      at = from >= to ? end : end - 1;
    } else if (u->op == (w->asks ? OP_PREFETCH : OP_LOAD) && is_stream(u->src[0]->src[0])) {
      int64_t first = now(w, u->src[0]->src[1]) + (w->asks ? u->a : 0),
              last = w->asks ? first : first + (int64_t)u->lanes * dtype_size((enum dtype)u->dt) - 1;
      for (int64_t i = first / 64; i <= last / 64; i++) w->lines[i]++;
    }
  }
  return at;
}

static unsigned char *lines_of(const program *p, int64_t tokens, int64_t tile, bool asks) {
  walk w = {.p = p, .tokens = tokens, .from = tile, .asks = asks, .lines = xcalloc(1 << 16, 1)};
  run_loop(&w, 0, NULL);
  map_free(&w.now);
  return w.lines;
}

// While a tile computes, it asks for what the next one reads, however many tokens there are: nearly all lines, of
// which a few beside the unpacked values may be missing, and hardly any other: the edges of a tile, which weigh most
// where vectors are narrow (IQ4_XS, 64 tokens, 8 lanes: 34 lines, and 7 behind them).
static void test_asks_for_next_tile(void **state) {
  (void)state;
  static const uint32_t ids[] = {FORMAT_Q4_0, FORMAT_Q4_K, FORMAT_Q5_K, FORMAT_Q6_K, FORMAT_IQ4_XS};
  static const int64_t tokens[] = {1, 8, 9, 24, MANY};
  kt_backend b;
  native(&b);
  b.t.distance_of_tile = (prefetch){32, PREFETCH_T2};
  for (size_t i = 0; i < COUNT(ids); i++)
    for (size_t k = 0; k < COUNT(tokens); k++) {
      kt_run r;
      make_rows(&r, format_by_id(ids[i]), MANY_ROWS, MANY, true);
      program *p = program_of(&r, &b);
      unsigned char *asked = lines_of(p, tokens[k], 1, true), *read = lines_of(p, tokens[k], 2, false);
      int both = 0, missing = 0, extra = 0;
      for (int64_t l = 0; l < 1 << 16; l++) {
        both += asked[l] && read[l];
        missing += !asked[l] && read[l];
        extra += asked[l] && !read[l];
      }
      assert_true(keeps(p));
      if (!both || missing * 8 > both || extra * 8 > both + (b.t.vector_bytes < 64 ? 24 : 8))
        fail_msg("%s, %lld tokens: %d lines asked for and read, %d not asked for, %d not read", r.name,
                 (long long)tokens[k], both, missing, extra);
      free(asked); free(read);
      program_free(p);
      kt_finish(&r);
    }
}

// A weight in a layout of another kind: the same bits, by one token and by many, which read one copy as ever; several
// tiles side by side are another order of the same number of bytes, and one token's kernel computes them at once.
static void test_layouts(void **state) {
  (void)state;
  static const uint32_t ids[] = {FORMAT_Q4_0, FORMAT_Q8_0, FORMAT_Q4_K, FORMAT_Q6_K};
  kt_backend b;
  int tiled = 0, at_once = 0;
  native(&b);
  for (size_t i = 0; i < COUNT(ids); i++) {
    float want[2][TOKENS * ROWS] = {{0}}, got[TOKENS * ROWS];
    kt_run r[2];
    const layout *own = NULL;
    for (int many = 0; many < 2; many++) make(&r[many], format_by_id(ids[i]), many);
    for (int l = 0; l < LAYOUT_KINDS; l++) {
      const layout *of[2];
      b.kind = (enum layout_kind)l;
      for (int many = 0; many < 2; many++) {
        uop *ast;
        str why = {0};
        of[many] = layout_of(&r[many], &b, &ast);
        program *p = codegen(r[many].t.g, ast, &b.t, NULL);
        memset(got, 0, sizeof got);
        run_all(&r[many], &b, got);
        if (!l) memcpy(want[many], got, sizeof got);
        if (memcmp(want[many], got, sizeof got))
          fail_msg("%s: layout %s changes what is computed", r[many].name, layout_name(b.kind));
        if (!search_allows(r[many].t.g, ast, &b.t, p->applied, p->n_applied, &why))
          fail_msg("%s: the list for layout %s: %s", r[many].name, layout_name(b.kind), str_c(&why));
        for (int k = 0; layout_tiles(b.kind) > 1 && !many && k < p->n_applied; k++)
          at_once += p->applied[k].kind == OPT_UPCAST;
        program_free(p);
      }
      if (!same_layout(of[0], of[1]))
        fail_msg("%s: one token and many read layout %s in different orders", r[0].name, layout_name(b.kind));
      assert_true(!of[0] == (l == LAYOUT_FILE));
      if (!l) own = of[0];
      if (layout_tiles(b.kind) > 1) {
        assert_true(of[0]->bytes == own->bytes);
        tiled += !same_layout(of[0], own);
      }
    }
    kt_finish(&r[0]); kt_finish(&r[1]);
  }
  assert_int_equal(tiled, 2 * (int)COUNT(ids));
  assert_true(at_once >= 2 * (int)COUNT(ids));
}

// However many tokens a kernel is for, and however they are cut into tiles, the layout is one.
static void test_tokens_do_not_matter(void **state) {
  (void)state;
  kt_backend b;
  int tried = 0;
  native(&b);
  for (uint32_t id = 0; id < FORMAT_IDS; id++) {
    const struct format *f = quantised(id);
    if (!f || looks_up(f)) continue;
    kt_run r;
    make(&r, f, true);
    const layout *own = layout_of(&r, &b, NULL);
    static const int most[] = {2, 3, 5, 64};
    for (size_t i = 0; i < COUNT(most); i++) {                   // tiles of tokens that fit, that are padded, and many
      kt_run other;
      make_tokens(&other, f, most[i], true);
      if (!same_layout(own, layout_of(&other, &b, NULL)))
        fail_msg("%s: up to %d tokens read another layout", f->name, most[i]);
      kt_finish(&other);
      tried++;
    }
    kt_finish(&r);
  }
  assert_true(tried >= 48);
}

int main(void) {
  env_set(ENV_SPEC, getenv("SPEC") ? getenv("SPEC") : "1");
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_one_layout),
    cmocka_unit_test(test_read_in_order),
    cmocka_unit_test(test_loops_in_blocks),
    cmocka_unit_test(test_every_byte_is_there),
    cmocka_unit_test(test_interleaved_rows),
    cmocka_unit_test(test_same_bits),
    cmocka_unit_test(test_two_matrices_in_one),
    cmocka_unit_test(test_ahead),
    cmocka_unit_test(test_few_tokens_ask_as_many),
    cmocka_unit_test(test_kept),
    cmocka_unit_test(test_asks_for_next_tile),
    cmocka_unit_test(test_tokens_do_not_matter),
    cmocka_unit_test(test_layouts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
