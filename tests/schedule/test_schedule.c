// The scheduler: the order of stores and loads of one buffer, what shares a dispatch, the memory planner (by fuzz), and
// the number of dispatches of real models, whose files are headers over holes: shapes without weights.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/env.h"
#include "model/gguf_writer.h"
#include "model/model.h"
#include "schedule/dots.h"
#include "schedule/memory_plan.h"
#include "schedule/schedule.h"
#include "schedule/store.h"
#include "tools/cpu.h"

// ---- the memory planner ---------------------------------------------------------------------------------------------

enum { ALIGN = 64, SLACK = 64 };

static uint64_t random_u64(uint64_t *s) { return hash_u64((*s)++, 12345); }

static void check_plan(const schedule *s) {
  int64_t sum = 0;
  for (int i = 0; i < s->n_temps; i++) {
    const sched_temp *x = &s->temps[i];
    assert_int_equal(x->offset % ALIGN, 0);
    assert_true(x->offset >= 0 && x->offset + x->bytes + SLACK <= (x->each ? s->each_bytes : s->arena_bytes));
    sum += x->bytes + SLACK + ALIGN;
    for (int j = 0; j < i; j++) {
      const sched_temp *y = &s->temps[j];
      if (x->each != y->each) continue;                                 // in different arenas
      // a level that reads one and writes the other needs both
      if (x->last < y->first || y->last < x->first) continue;
      if (x->offset + x->bytes + SLACK > y->offset && y->offset + y->bytes + SLACK > x->offset)
        fail_msg("%lld bytes at %lld (levels %d to %d) over %lld bytes at %lld (%d to %d)", (long long)x->bytes,
                 (long long)x->offset, x->first, x->last, (long long)y->bytes, (long long)y->offset, y->first, y->last);
    }
  }
  assert_true(s->arena_bytes + s->each_bytes <= sum);
}

static void test_planner_fuzz(void **state) {
  (void)state;
  uint64_t seed = 1;
  for (int round = 0; round < 2000; round++) {
    sched_temp temps[40] = {{0}};
    int n = (int)(random_u64(&seed) % 40), levels = 1 + (int)(random_u64(&seed) % 12);
    for (int i = 0; i < n; i++) {
      int a = (int)(random_u64(&seed) % (uint64_t)levels), b = (int)(random_u64(&seed) % (uint64_t)levels);
      int64_t bytes_of = round % 3 ? (int64_t)(random_u64(&seed) % 5000) : (int64_t)1 << random_u64(&seed) % 40;
      temps[i] = (sched_temp){.id = TEMP_IDS + i,
                              .bytes = bytes_of + 1,
                              .first = a < b ? a : b,
                              .last = a < b ? b : a,
                              .each = random_u64(&seed) % 3 == 0};
    }
    schedule s = {.temps = temps, .n_temps = n, .n_levels = levels};
    plan_memory(&s);
    check_plan(&s);
  }
}

static void test_planner_reuses(void **state) {   // a chain of equal sizes: two places in turn are enough
  (void)state;
  sched_temp temps[10] = {{0}};
  for (int i = 0; i < 10; i++) temps[i] = (sched_temp){.id = TEMP_IDS + i, .bytes = 4096, .first = i, .last = i + 1};
  schedule s = {.temps = temps, .n_temps = 10, .n_levels = 11};
  plan_memory(&s);
  check_plan(&s);
  assert_true(s.arena_bytes <= 2 * (4096 + SLACK + ALIGN));
  schedule none = {0};
  plan_memory(&none);
  assert_int_equal(none.arena_bytes, 0);
}

// ---- hazards --------------------------------------------------------------------------------------------------------

typedef struct work { graph *g; VEC(uop *) effects; schedule s; } work;

static void begin(work *w) { *w = (work){.g = graph_new(NULL)}; }
static tensor *buffer(work *w, int64_t id, int64_t n) { return t_buffer(w->g, id, DT_F32, n); }
static tensor *store(work *w, tensor *view, tensor *v) {
  tensor *next = t_assign(w->g, view, v);
  vec_push(&w->effects, next);
  return next;
}
static void finish(work *w) {
  schedule_graph(w->g, uop_new(w->g, OP_SINK, DT_VOID, 1, w->effects.at, w->effects.n, (uarg){0}), &w->s);
  for (int i = 1; i < w->s.n_kernels; i++) assert_true(w->s.kernels[i - 1].level <= w->s.kernels[i].level);
  check_plan(&w->s);
}
static void end(work *w) {
  vec_free(&w->effects);
  graph_free(w->g);
}

// Level of the kernel that stores to this buffer; which: the first, second, ... in the order of the schedule.
static int level_of_store(const work *w, int64_t id, int which) {
  for (int i = 0; i < w->s.n_kernels; i++)
    if (w->s.kernels[i].bufs[0] == id && !which--) return w->s.kernels[i].level;
  die("no store to buffer %lld", (long long)id);
}

static bool reads(const sched_kernel *k, int64_t id) {
  for (int i = 1; i < k->n_bufs; i++) if (k->bufs[i] == id) return true;
  return false;
}

static void test_a_store_waits_for_readers(void **state) {
  (void)state;
  for (int reader_first = 0; reader_first < 2; reader_first++) {
    work w;
    begin(&w);
    tensor *x = buffer(&w, 1, 64);
    if (reader_first) store(&w, buffer(&w, 2, 64), t_exp(w.g, x));
    store(&w, x, buffer(&w, 3, 64));
    if (!reader_first) store(&w, buffer(&w, 2, 64), t_exp(w.g, x));     // the order of effects in the SINK says nothing
    finish(&w);
    assert_int_equal(w.s.n_kernels, 2);
    assert_true(level_of_store(&w, 2, 0) < level_of_store(&w, 1, 0));
    end(&w);
  }
}

static void test_readers_of_a_version_wait_for_its_store(void **state) {
  (void)state;
  work w;
  begin(&w);
  tensor *x = buffer(&w, 1, 64), *next = store(&w, t_slice_i(w.g, x, 0, 8, 4), buffer(&w, 3, 4));
  store(&w, buffer(&w, 2, 64), t_exp(w.g, next));
  finish(&w);
  assert_int_equal(w.s.n_kernels, 2);
  assert_true(level_of_store(&w, 1, 0) < level_of_store(&w, 2, 0));
  end(&w);
}

static void test_stores_to_one_buffer_in_order(void **state) {
  (void)state;
  work w;
  begin(&w);
  tensor *x = buffer(&w, 1, 64), *one = store(&w, t_slice_i(w.g, x, 0, 0, 40), buffer(&w, 2, 40)),
         *two = store(&w, t_slice_i(w.g, one, 0, 20, 44), buffer(&w, 3, 44));
  store(&w, buffer(&w, 4, 64), one);              // between the two
  store(&w, buffer(&w, 5, 64), two);
  finish(&w);
  int first = -1, second = -1;
  for (int i = 0; i < w.s.n_kernels; i++) {
    const sched_kernel *k = &w.s.kernels[i];
    if (k->bufs[0] == 1 && reads(k, 2)) first = k->level;
    if (k->bufs[0] == 1 && reads(k, 3)) second = k->level;
  }
  assert_true(first >= 0 && first < second);
  assert_true(first < level_of_store(&w, 4, 0) && level_of_store(&w, 4, 0) < second);
  assert_true(second < level_of_store(&w, 5, 0));
  end(&w);
}

static void test_a_value_that_reads_what_it_replaces(void **state) {
  (void)state;
  work w;
  begin(&w);
  tensor *x = buffer(&w, 1, 64);
  store(&w, x, t_flip(w.g, x, 0));                // finished in a place of its own first
  finish(&w);
  assert_int_equal(w.s.n_kernels, 2);
  assert_true(w.s.kernels[0].bufs[0] >= TEMP_IDS && reads(&w.s.kernels[0], 1));
  assert_true(w.s.kernels[1].bufs[0] == 1 && !reads(&w.s.kernels[1], 1));
  assert_true(w.s.kernels[0].level < w.s.kernels[1].level);
  end(&w);
}

static void test_independent_kernels_share_a_level(void **state) {
  (void)state;
  work w;
  begin(&w);
  tensor *x = buffer(&w, 1, 64);
  for (int i = 0; i < 5; i++) store(&w, buffer(&w, 2 + i, 64), t_scale(w.g, x, i + 2));
  finish(&w);
  assert_int_equal(w.s.n_kernels, 5);
  assert_int_equal(w.s.n_levels, 1);
  end(&w);
}

static void test_equal_work_is_one_kernel(void **state) {
  (void)state;
  work w;
  begin(&w);
  for (int i = 0; i < 4; i++)
    store(&w, buffer(&w, 10 + i, 16),
          t_reshape_i(w.g,
                      t_matmul(w.g, t_reshape_i(w.g, buffer(&w, i, 32), 2, (int64_t[]){1, 32}),
                               t_reshape_i(w.g, t_weight(w.g, 20 + i, DT_F32, 512), 2, (int64_t[]){16, 32})),
                      1, (int64_t[]){16}));
  finish(&w);
  assert_int_equal(w.s.n_kernels, 4);
  for (int i = 1; i < 4; i++) assert_ptr_equal(w.s.kernels[i].ast, w.s.kernels[0].ast);
  end(&w);
}

static void test_fusion(void **state) {           // one kernel: the norm is computed where it is used
  (void)state;
  work w;
  begin(&w);
  tensor *x = t_reshape_i(w.g, buffer(&w, 1, 256), 2, (int64_t[]){1, 256});
  tensor *y = t_silu(w.g, t_matmul(w.g, t_rmsnorm(w.g, x, t_weight(w.g, 2, DT_F32, 256), 1e-5),
                                   t_reshape_i(w.g, t_weight(w.g, 3, DT_F32, 256 * 64), 2, (int64_t[]){64, 256})));
  store(&w, buffer(&w, 4, 64), t_reshape_i(w.g, y, 1, (int64_t[]){64}));
  finish(&w);
  assert_int_equal(w.s.n_kernels, 1);
  assert_int_equal(w.s.n_temps, 0);
  end(&w);
}

// Two products with x that meet, of weights that one kernel reads or two do.
static bool together(enum dtype one, enum dtype other, int64_t rows) {
  work w;
  begin(&w);
  tensor *x = t_reshape_i(w.g, buffer(&w, 1, 256), 2, (int64_t[]){1, 256}), *y[2];
  for (int i = 0; i < 2; i++) {
    tensor *weight = t_reshape_i(w.g, t_weight(w.g, 2 + i, i ? other : one, 256 * rows), 2, (int64_t[]){rows, 256});
    y[i] = t_matmul(w.g, x, t_cast(w.g, weight, DT_F32));
  }
  tensor *both = t_mul(w.g, t_silu(w.g, y[0]), y[1]);
  store(&w, buffer(&w, 4, rows), t_reshape_i(w.g, both, 1, (int64_t[]){rows}));
  finish(&w);
  bool hit = false;
  for (int i = 0; i < w.s.n_kernels; i++) hit |= reads(&w.s.kernels[i], 2) && reads(&w.s.kernels[i], 3);
  end(&w);
  return hit;
}

static void test_products_of_two_kinds_are_apart(void **state) {
  (void)state;
  assert_true(together(DT_F16, DT_F16, 64));
  assert_false(together(DT_F16, DT_F32, 64));
  assert_false(together(DT_BF16, DT_F16, 16));
}

// What a weight is multiplied with is stored where something that it is made of is read across the sum.
static void test_what_lies_across_a_sum_is_stored(void **state) {
  (void)state;
  for (int64_t step = 1; step <= 3; step += 2) {
    work w;
    begin(&w);
    tensor *taps = t_reshape_i(w.g, t_weight(w.g, 2, DT_F32, 256 * step), 2, (int64_t[]){256, step});
    taps = t_reshape_i(w.g, t_slice_i(w.g, taps, 1, 0, 1), 2, (int64_t[]){1, 256});
    tensor *x = t_mul(w.g, t_reshape_i(w.g, buffer(&w, 1, 256), 2, (int64_t[]){1, 256}), taps);
    tensor *y = t_matmul(w.g, x, t_reshape_i(w.g, t_weight(w.g, 3, DT_F32, 256 * 16), 2, (int64_t[]){16, 256}));
    store(&w, buffer(&w, 4, 16), t_reshape_i(w.g, y, 1, (int64_t[]){16}));
    finish(&w);
    assert_int_equal(w.s.n_kernels, step == 1 ? 1 : 2);
    end(&w);
  }
}

// A value of 60 levels, each of which reads the level below twice: that has 2^60 paths, and no pass may walk each.
static void test_levels_that_are_read_twice(void **state) {
  (void)state;
  work w;
  begin(&w);
  tensor *x = t_reshape_i(w.g, buffer(&w, 1, 256), 2, (int64_t[]){1, 256});
  for (int i = 0; i < 60; i++) x = t_add(w.g, x, t_op1(w.g, OP_SQRT, x));
  tensor *y = t_matmul(w.g, x, t_reshape_i(w.g, t_weight(w.g, 2, DT_F32, 256 * 16), 2, (int64_t[]){16, 256}));
  store(&w, buffer(&w, 3, 16), t_reshape_i(w.g, y, 1, (int64_t[]){16}));
  finish(&w);
  assert_true(w.s.n_kernels <= 2);
  end(&w);
}

// A product that two kernels read is small enough to compute again, and is stored all the same; slices of one that meet
// in one element are computed there.
static void test_a_product_is_computed_once(void **state) {
  (void)state;
  for (int twice = 0; twice < 2; twice++) {
    work w;
    begin(&w);
    tensor *x = t_reshape_i(w.g, buffer(&w, 1, 16), 2, (int64_t[]){1, 16});
    tensor *y = t_matmul(w.g, x, t_reshape_i(w.g, t_weight(w.g, 2, DT_F32, 16 * 32), 2, (int64_t[]){32, 16}));
    y = t_reshape_i(w.g, y, 1, (int64_t[]){32});
    if (twice) for (int i = 0; i < 2; i++) store(&w, buffer(&w, 3 + i, 32), t_scale(w.g, y, 2 + i));
    else store(&w, buffer(&w, 3, 16), t_mul(w.g, t_slice_i(w.g, y, 0, 0, 16), t_slice_i(w.g, y, 0, 16, 16)));
    finish(&w);
    assert_int_equal(w.s.n_kernels, twice ? 3 : 1);
    end(&w);
  }
}

// ---- real shapes ----------------------------------------------------------------------------------------------------

typedef struct shape_of {
  const char *arch;
  int d, heads, kv, head_dim, ff, vocab;
  bool qk_norm, bias;
  // latent attention and experts of ff rows, one of them shared; latent 0: neither
  int latent, nope, rope, v, q_rank, experts, used;
} shape_of;
typedef struct file { str head; uint64_t n_tensors, data; } file;

static void add_tensor(file *f, const char *name, int layer, const char *kind, uint64_t ne0, uint64_t ne1,
                       const struct format *fmt) {
  char full[64];
  uint64_t size;
  if (layer >= 0) snprintf(full, sizeof full, "blk.%d.%s.%s", layer, name, kind);
  else snprintf(full, sizeof full, "%s.%s", name, kind);
  if (!format_row_bytes(fmt, ne0, &size)) die("%s: no whole blocks", full);
  w_tensor(&f->head, full, ne1 > 1 ? 2 : 1, W_NE(ne0, ne1), fmt->id, f->data);
  f->data += round_up((size_t)(size * ne1), 32);
  f->n_tensors++;
}

static void add_stack(file *f, const char *name, int layer, uint64_t ne0, uint64_t ne1, uint64_t ne2,
                      const struct format *fmt) {
  char full[64];
  uint64_t size;
  snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
  if (!format_row_bytes(fmt, ne0, &size)) die("%s: no whole blocks", full);
  w_tensor(&f->head, full, 3, W_NE(ne0, ne1, ne2), fmt->id, f->data);
  f->data += round_up((size_t)(size * ne1 * ne2), 32);
  f->n_tensors++;
}

static void add_latent_layer(file *f, const shape_of *s, int i, const struct format *q) {
  const struct format *f32 = format_by_name("f32");
  uint64_t d = (uint64_t)s->d, h = (uint64_t)s->heads, c = (uint64_t)s->latent, n = (uint64_t)s->nope,
           r = (uint64_t)s->rope, ff = (uint64_t)s->ff, e = (uint64_t)s->experts;
  add_tensor(f, "attn_norm", i, "weight", d, 1, f32);
  add_tensor(f, "attn_q_a", i, "weight", d, (uint64_t)s->q_rank, q);
  add_tensor(f, "attn_q_a_norm", i, "weight", (uint64_t)s->q_rank, 1, f32);
  add_tensor(f, "attn_q_b", i, "weight", (uint64_t)s->q_rank, h * (n + r), q);
  add_tensor(f, "attn_kv_a_mqa", i, "weight", d, c + r, q);
  add_tensor(f, "attn_kv_a_norm", i, "weight", c, 1, f32);
  add_stack(f, "attn_k_b", i, n, c, h, q);
  add_stack(f, "attn_v_b", i, c, (uint64_t)s->v, h, q);
  add_tensor(f, "attn_output", i, "weight", h * (uint64_t)s->v, d, q);
  add_tensor(f, "ffn_norm", i, "weight", d, 1, f32);
  add_tensor(f, "ffn_gate_inp", i, "weight", d, e, f32);
  add_tensor(f, "exp_probs_b", i, "bias", e, 1, f32);
  add_stack(f, "ffn_gate_exps", i, d, ff, e, q);
  add_stack(f, "ffn_up_exps", i, d, ff, e, q);
  add_stack(f, "ffn_down_exps", i, ff, d, e, q);
  add_tensor(f, "ffn_gate_shexp", i, "weight", d, ff, q);
  add_tensor(f, "ffn_up_shexp", i, "weight", d, ff, q);
  add_tensor(f, "ffn_down_shexp", i, "weight", ff, d, q);
}

static void add_layer(file *f, const shape_of *s, int i, const struct format *q, const struct format *q2) {
  const struct format *f32 = format_by_name("f32");
  if (s->latent) { add_latent_layer(f, s, i, q); return; }
  uint64_t d = (uint64_t)s->d, qd = (uint64_t)(s->heads * s->head_dim), kv = (uint64_t)(s->kv * s->head_dim),
           ff = (uint64_t)s->ff;
  add_tensor(f, "attn_norm", i, "weight", d, 1, f32);
  add_tensor(f, "attn_q", i, "weight", d, qd, q);
  add_tensor(f, "attn_k", i, "weight", d, kv, q);
  add_tensor(f, "attn_v", i, "weight", d, kv, q2);
  add_tensor(f, "attn_output", i, "weight", qd, d, q);
  add_tensor(f, "ffn_norm", i, "weight", d, 1, f32);
  add_tensor(f, "ffn_gate", i, "weight", d, ff, q);
  add_tensor(f, "ffn_up", i, "weight", d, ff, q);
  add_tensor(f, "ffn_down", i, "weight", ff, d, q2);
  if (s->qk_norm) {
    add_tensor(f, "attn_q_norm", i, "weight", (uint64_t)s->head_dim, 1, f32);
    add_tensor(f, "attn_k_norm", i, "weight", (uint64_t)s->head_dim, 1, f32);
  }
  if (s->bias) {
    add_tensor(f, "attn_q", i, "bias", qd, 1, f32);
    add_tensor(f, "attn_k", i, "bias", kv, 1, f32);
    add_tensor(f, "attn_v", i, "bias", kv, 1, f32);
  }
}

static void key(str *s, const shape_of *m, const char *name, uint64_t v) {
  char full[96];
  snprintf(full, sizeof full, "%s.%s", m->arch, name);
  w_key_int(s, full, GGUF_UINT32, v);
}

// A file with the tensors' descriptions and a hole where their data would be.
static gguf *write_model(const shape_of *s, int layers, const char *quant, const char *quant2) {
  const struct format *q = format_by_name(quant), *q2 = format_by_name(quant2);
  file f = {0};
  str out = {0};
  char path[] = "/tmp/weft-shape-XXXXXX", name[96];
  add_tensor(&f, "token_embd", -1, "weight", (uint64_t)s->d, (uint64_t)s->vocab, q2);
  add_tensor(&f, "output_norm", -1, "weight", (uint64_t)s->d, 1, format_by_name("f32"));
  for (int i = 0; i < layers; i++) add_layer(&f, s, i, q, q2);
  w_header(&out, f.n_tensors, s->latent ? 19 : 11);
  w_key_str(&out, "general.architecture", s->arch);
  key(&out, s, "block_count", (uint64_t)layers);
  key(&out, s, "embedding_length", (uint64_t)s->d);
  key(&out, s, "attention.head_count", (uint64_t)s->heads);
  key(&out, s, "attention.head_count_kv", (uint64_t)s->kv);
  key(&out, s, "attention.key_length", (uint64_t)s->head_dim);
  key(&out, s, "attention.value_length", (uint64_t)(s->latent ? s->latent : s->head_dim));
  key(&out, s, "feed_forward_length", (uint64_t)s->ff);
  key(&out, s, "context_length", 131072);
  if (s->latent) {
    key(&out, s, "attention.key_length_mla", (uint64_t)(s->nope + s->rope));
    key(&out, s, "attention.value_length_mla", (uint64_t)s->v);
    key(&out, s, "attention.kv_lora_rank", (uint64_t)s->latent);
    key(&out, s, "attention.q_lora_rank", (uint64_t)s->q_rank);
    key(&out, s, "rope.dimension_count", (uint64_t)s->rope);
    key(&out, s, "expert_count", (uint64_t)s->experts);
    key(&out, s, "expert_used_count", (uint64_t)s->used);
    key(&out, s, "expert_shared_count", 1);
  }
  snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", s->arch);
  w_key(&out, name, GGUF_FLOAT32); w_f32(&out, 1e-5f);
  snprintf(name, sizeof name, "%s.rope.freq_base", s->arch);
  w_key(&out, name, GGUF_FLOAT32); w_f32(&out, 500000);
  str_addn(&out, f.head.at, f.head.n);
  w_pad(&out, 32);
  int fd = mkstemp(path);
  if (fd < 0 || write(fd, out.at, out.n) != (ssize_t)out.n || ftruncate(fd, (off_t)(out.n + f.data)))
    die("cannot write %s", path);
  close(fd);
  error err = {0};
  gguf *g = NULL;
  if (gguf_open(path, &g, &err)) fail_msg("%s", err.text);
  unlink(path);
  str_free(&out);
  str_free(&f.head);
  return g;
}

typedef struct counts { int levels, kernels, unique; int64_t arena; } counts;

static counts count(const shape_of *s, int layers, const char *quant, const char *quant2, int64_t chunk, bool exact) {
  gguf *file_of = write_model(s, layers, quant, quant2);
  model *m = NULL;
  error err = {0};
  if (model_open(file_of, (model_kv){0}, &m, &err)) fail_msg("%s", err.text);
  graph *g = graph_new(NULL);
  schedule sched;
  uop *sink = model_graph(
    m, g, &(model_shape){.page = 128, .tile = 8, .pages = 8192, .slots = 1, .ctx = 4224, .chunk = chunk,
                         .logits = chunk == 1});
  sink = store_values(g, sink);
  schedule_graph(g, exact ? sink : integer_dots(g, sink, (dots_choice){0}), &sched);
  check_plan(&sched);
  map seen = {0};
  for (int i = 0; i < sched.n_kernels; i++) map_put(&seen, sched.kernels[i].ast, (void *)1);
  counts c = {sched.n_levels, sched.n_kernels, (int)seen.n, sched.arena_bytes + sched.each_bytes};
  map_free(&seen);
  graph_free(g);
  model_close(m);
  gguf_close(file_of);
  return c;
}

static const shape_of llama_1b = {"llama", 2048, 32, 8, 64, 8192, 128256, false, false, 0, 0, 0, 0, 0, 0, 0};
static const shape_of qwen3_06b = {"qwen3", 1024, 16, 8, 128, 3072, 151936, true, false, 0, 0, 0, 0, 0, 0, 0};
static const shape_of qwen2_05b = {"qwen2", 896, 14, 2, 64, 4864, 151936, false, true, 0, 0, 0, 0, 0, 0, 0};

static const shape_of glm_flash = {"deepseek2", 2048, 20,  1,  576, 1536, 154880, false,
                                   false,       512,  192, 64, 256, 768,  64,     4};

static void test_dispatches(void **state) {
  (void)state;
  static const struct { const shape_of *s; const char *q, *q2;
  } models[] = {
    {&llama_1b, "q4_0", "q8_0"},  {&llama_1b, "q4_k", "q6_k"},  {&llama_1b, "f16", "f16"},
    {&qwen3_06b, "q8_0", "q8_0"}, {&qwen2_05b, "q8_0", "q8_0"}, {&glm_flash, "q4_0", "q6_k"},
  };
  for (size_t i = 0; i < COUNT(models); i++)
    for (int exact = 0; exact < 2; exact++) {
      counts two = count(models[i].s, 2, models[i].q, models[i].q2, 1, exact),
             four = count(models[i].s, 4, models[i].q, models[i].q2, 1, exact);
      double per_block = (four.levels - two.levels) / 2.0;
      print_message("%s %s%s: %g dispatches and %g kernels per block, %d different kernels, arena %.2f MiB\n",
                    models[i].s->arch, models[i].q, exact ? " exact" : "", per_block,
                    (four.kernels - two.kernels) / 2.0, four.unique, (double)four.arena / (1 << 20));
      assert_true(per_block <= (models[i].s->latent ? 14 : 8));
      assert_int_equal(four.unique, two.unique);                // more layers are no more kernels to compile
      assert_true(four.arena <= two.arena + (1 << 20));         // nor more memory: layers take turns
    }
}

static void test_chunk(void **state) {            // a chunk of a prompt: the same work for many tokens
  (void)state;
  counts two = count(&llama_1b, 2, "q4_0", "q8_0", 64, false), four = count(&llama_1b, 4, "q4_0", "q8_0", 64, false);
  print_message("chunk of 64: %g dispatches per block, %d different kernels, arena %.2f MiB\n",
                (four.levels - two.levels) / 2.0, four.unique, (double)four.arena / (1 << 20));
  // more is stored than for one token: recomputing costs as often as there are tokens
  assert_true(four.levels - two.levels <= 2 * 24);
  assert_int_equal(four.unique, two.unique);
  assert_true(four.arena <= two.arena + (4 << 20));
}

// ---- the work of scheduling -----------------------------------------------------------------------------------------

// Processor time from the model to its schedule: the least of a few turns.
static double seconds_to_schedule(int layers) {
  static const shape_of small = {"llama", 256, 4, 2, 64, 512, 1024, false, false, 0, 0, 0, 0, 0, 0, 0};
  double least = 1e9;
  for (int i = 0; i < 3; i++) {
    double began = cpu_s();
    count(&small, layers, "q4_0", "q8_0", 1, false);
    double t = cpu_s() - began;
    if (t < least) least = t;
  }
  return least;
}

static void test_linear_in_layers(void **state) {
  (void)state;
  env_set(ENV_SPEC, "0");
  double few = seconds_to_schedule(16), many = seconds_to_schedule(128);
  env_set(ENV_SPEC, "1");
  print_message("16 layers: %.1f ms; 128: %.1f ms, %.1f times as much\n", few * 1e3, many * 1e3, many / few);
  // 8 would be linear; with work for every pair of layers it was 50
  assert_true(many < 20 * few);
}

int main(void) {
  env_set(ENV_SPEC, "1");
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_planner_fuzz),
    cmocka_unit_test(test_planner_reuses),
    cmocka_unit_test(test_a_store_waits_for_readers),
    cmocka_unit_test(test_readers_of_a_version_wait_for_its_store),
    cmocka_unit_test(test_stores_to_one_buffer_in_order),
    cmocka_unit_test(test_a_value_that_reads_what_it_replaces),
    cmocka_unit_test(test_independent_kernels_share_a_level),
    cmocka_unit_test(test_equal_work_is_one_kernel),
    cmocka_unit_test(test_fusion),
    cmocka_unit_test(test_products_of_two_kinds_are_apart),
    cmocka_unit_test(test_what_lies_across_a_sum_is_stored),
    cmocka_unit_test(test_levels_that_are_read_twice),
    cmocka_unit_test(test_a_product_is_computed_once),
    cmocka_unit_test(test_dispatches),
    cmocka_unit_test(test_chunk),
    cmocka_unit_test(test_linear_in_layers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
