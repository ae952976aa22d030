// Dot-product instructions: every row of codegen/descriptor.h that this machine runs, and those of AArch64 under qemu,
// against the interpreter; on random numbers and on those that make sums in 16 bits overflow where intervals are not
// respected. And look-ups of bytes (render/choice.h), in the same way.
#define _GNU_SOURCE
#include "qemu.h"
#include "render/choice.h"

enum { A_BYTES = 4096, B_WORDS = 1024, OUTS = 1024, PATTERNS = 5 };
static const int masks[] = {1, 15, 31, 63, 127, 128, 255}, chains[] = {1, 2, 9, 17};

static uop *at(rig *r, int64_t i) { return rig_int(r, DT_I64, i); }

// Bytes of known bounds; those with a sign have all values.
static uop *bytes_up_to(rig *r, uop *a, uop *place, int lanes, int most) {
  uop *x = rig_load(r, rig_index(r, a, place), (enum dtype)a->dt, 4 * lanes);
  if (most == 255 || a->dt == DT_I8) return x;
  return rig2(r, most == 128 ? OP_MIN : OP_AND, x, rig_splat(r, rig_int(r, DT_U8, most), 4 * lanes));
}

// Chains of several lengths, for bytes of all bounds; then one of mixed bounds, and one whose middle is stored as well.
static rig *program_of_bytes(int lanes, enum dtype dt) {
  rig *r = rig_new();
  uop *a = rig_buf(r, dt, A_BYTES), *b = rig_buf(r, DT_U32, B_WORDS), *start = rig_buf(r, DT_I32, 64),
      *out = rig_buf(r, DT_I32, OUTS);
  int64_t place = 0;
  for (size_t m = 0; m < COUNT(masks); m++)
    for (size_t n = 0; n < COUNT(chains); n++) {
      uop *acc = rig_acc(r, rig_load(r, rig_index(r, start, at(r, (int64_t)n)), DT_I32, lanes)),
          *i = rig_range(r, at(r, 3), AXIS_REDUCE), *sum = acc;
      for (int k = 0; k < chains[n]; k++) {
        uop *x = bytes_up_to(r, a, rig2(r, OP_ADD, rig2(r, OP_MUL, i, at(r, 1024)), at(r, 16 * k)), lanes, masks[m]);
        uop *y =
          rig_load(r, rig_index(r, b, rig2(r, OP_ADD, rig2(r, OP_MUL, i, at(r, 128)), at(r, 5 * k))), DT_U32, lanes);
        sum = rig_op(r, OP_DOT, DT_I32, lanes, (uarg){0}, 3, (uop *[]){sum, x, y});
      }
      rig_set(r, acc, sum);
      rig_end(r, i);
      rig_store(r, rig_index(r, out, at(r, place)), acc);
      place += lanes;
    }
  uop *sum = rig_splat(r, rig_int(r, DT_I32, 0), lanes), *middle = NULL;
  for (int k = 0; k < 24; k++) {
    uop *y = rig_load(r, rig_index(r, b, at(r, 7 * k)), DT_U32, lanes);
    sum = rig_op(r, OP_DOT, DT_I32, lanes, (uarg){0}, 3,
                 (uop *[]){sum, bytes_up_to(r, a, at(r, 13 * k), lanes, masks[(size_t)k / 2 % COUNT(masks)]), y});
    if (k == 10) middle = sum;
  }
  rig_store(r, rig_index(r, out, at(r, place)), sum);
  rig_store(r, rig_index(r, out, at(r, place + lanes)), middle);
  assert_true(place + 2 * lanes <= OUTS);
  return r;
}

// BF16 between 1/2 and 2, of either sign: no sum of them needs rounding.
static uop *near_one(rig *r, enum dtype dt, uop *loaded, int lanes) {
  bool two = dt == DT_U32;
  uop *kept = rig2(r, OP_AND, loaded, rig_splat(r, rig_int(r, dt, two ? 0x80ff80ff : 0x80ff), lanes));
  return rig2(r, OP_OR, kept, rig_splat(r, rig_int(r, dt, two ? 0x3f003f00 : 0x3f00), lanes));
}

static rig *program_of(int lanes) { return program_of_bytes(lanes, DT_U8); }
static rig *program_of_signs(int lanes) { return program_of_bytes(lanes, DT_I8); }

static rig *program_of_brains(int lanes) {
  rig *r = rig_new();
  uop *a = rig_buf(r, DT_U16, A_BYTES / 2), *b = rig_buf(r, DT_U32, B_WORDS), *out = rig_buf(r, DT_F32, OUTS);
  for (size_t n = 0; n < COUNT(chains); n++) {
    uop *acc = rig_acc(r, rig_splat(r, rig_float(r, DT_F32, 1.5), lanes)), *i = rig_range(r, at(r, 3), AXIS_REDUCE),
        *sum = acc;
    for (int k = 0; k < chains[n]; k++) {
      uop *x =
        rig_load(r, rig_index(r, a, rig2(r, OP_ADD, rig2(r, OP_MUL, i, at(r, 512)), at(r, 16 * k))), DT_U16, 2 * lanes);
      uop *y =
        rig_load(r, rig_index(r, b, rig2(r, OP_ADD, rig2(r, OP_MUL, i, at(r, 128)), at(r, 5 * k))), DT_U32, lanes);
      sum = rig_op(r, OP_DOT, DT_F32, lanes, (uarg){0}, 3,
                   (uop *[]){sum, near_one(r, DT_U16, x, 2 * lanes), near_one(r, DT_U32, y, lanes)});
    }
    rig_set(r, acc, sum);
    rig_end(r, i);
    rig_store(r, rig_index(r, out, at(r, (int64_t)n * lanes)), acc);
  }
  return r;
}

// Tiles of 2 x 2 sums: chains, from what memory holds.
static rig *program_of_tiles(enum dtype dt) {
  enum { SUMS = 4, BYTES = 16 };
  rig *r = rig_new();
  uop *a = rig_buf(r, dt, A_BYTES), *b = rig_buf(r, DT_I8, 4 * B_WORDS), *start = rig_buf(r, DT_I32, 64),
      *out = rig_buf(r, DT_I32, OUTS);
  for (size_t n = 0; n < COUNT(chains); n++) {
    uop *acc = rig_acc(r, rig_load(r, rig_index(r, start, at(r, (int64_t)n)), DT_I32, SUMS)),
        *i = rig_range(r, at(r, 3), AXIS_REDUCE), *sum = acc;
    for (int k = 0; k < chains[n]; k++) {
      uop *place = rig2(r, OP_ADD, rig2(r, OP_MUL, i, at(r, 1024)), at(r, BYTES * k));
      uop *x = rig_load(r, rig_index(r, a, place), dt, BYTES),
          *y = rig_load(r, rig_index(r, b, place), DT_I8, BYTES);
      sum = rig_op(r, OP_MMLA, DT_I32, SUMS, (uarg){0}, 3, (uop *[]){sum, x, y});
    }
    rig_set(r, acc, sum);
    rig_end(r, i);
    rig_store(r, rig_index(r, out, at(r, (int64_t)n * SUMS)), acc);
  }
  return r;
}

static rig *program_for(const descriptor *d) {
  if (d->m == 2) return program_of_tiles(d->a);
  return d->acc == DT_F32 ? program_of_brains(d->n) : program_of_bytes(d->n, d->a);
}

static void fill(rig *r, unsigned char **bufs, int pattern) {
  static const unsigned char edges[] = {0, 255, 128, 127, 1};
  uint64_t seed = (uint64_t)pattern;
  for (int b = 0; b < r->n_bufs; b++) {
    size_t n = (size_t)r->bufs[b].elems * (size_t)dtype_size(r->bufs[b].dt);
    for (size_t i = 0; i < n; i++) bufs[b][i] = (unsigned char)rig_random(&seed);
    for (size_t i = 0; i < n && b < 2 && pattern; i++)
      bufs[b][i] = pattern == 4   ? edges[rig_random(&seed) % COUNT(edges)]
                   : b == 0       ? 255
                   : pattern == 1 ? 0x80
                   : pattern == 2 ? 0x7f
                   : i / 2 % 2    ? 0x80
                                  : 0x7f;
  }
}

static memory memory_of(rig *r, int pattern) {
  memory m = {0};
  for (int b = 0; b < r->n_bufs; b++) m.at[b] = malloc((size_t)r->bufs[b].elems * (size_t)dtype_size(r->bufs[b].dt));
  fill(r, m.at, pattern);
  return m;
}
static void memory_free(memory *m) { for (int b = 0; b < RIG_BUFS; b++) free(m->at[b]); }

static void interpret(const program *p, memory *m) {
  ref_kernel *k = ref_compile(p);
  ref_run(k, m->at, NULL, 0, 1);
  ref_free(k);
}

// The program with some rows only, as LLVM IR, and as a blob.
static str render(const program *p, const cpu_target *t, descriptor_set rows) {
  error err = {0};
  str text = {0};
  render_options o = cpu_render_options(t);
  o.descriptors = rows;
  if (render_llvm(p, &o, &text, &err)) rig_fail("render", &err, NULL);
  return text;
}

// Is the row's own instruction in the text? Those with a condition must be left alone where it fails, so some other
// bytes are plain.
static void expect_used(const descriptor *d, const char *text) {
  const char *call = NULL, *end;
  for (int i = 0; i < DESCRIPTOR_LINES && d->step[i] && !call; i++) call = strchr(d->step[i], '@');
  if (!call) { assert_non_null(strstr(text, "mul <")); return; }
  end = call + strcspn(call, "({");
  char name[96];
  snprintf(name, sizeof name, "%.*s", (int)(end - call), call);
  if (!strstr(text, name)) fail_msg("%s: the text does not use %s", d->name, name);
}

static cpu_target native(void) {
  cpu_target t = {0};
  cpu_features have;
  error err = {0};
  cpu_detect(&have);
  if (cpu_target_for("native", &have, &t, &err)) rig_fail("cpu", &err, NULL);
  return t;
}

static void run_here(rig *r, const char *name, const cpu_target *t, const char *text) {
  program *p = &r->p;
  error err = {0};
  code_blob blob = qemu_blob(text, t, NULL);
  code_image *image = code_map(&(const code_blob *){&blob}, 1, &err);
  if (!image) rig_fail("map", &err, NULL);
  kernel_fn *fn = (kernel_fn *)code_find(image, 0, p->name);
  for (int pattern = 0; pattern < PATTERNS; pattern++) {
    memory want = memory_of(r, pattern), got = memory_of(r, pattern);
    interpret(p, &want);
    fn(got.at, NULL, 0, 1);
    rig_compare(r, want.at, got.at, 0, name);
    memory_free(&want);
    memory_free(&got);
  }
  code_unmap(image);
  code_blob_free(&blob);
}

static void every_row_of_this_machine(void **state) {
  (void)state;
  cpu_target t = native();
  const descriptor *d;
  int rows = 0;
  for (size_t i = 0; (d = descriptor_at(i)); i++) {
    if (!(t.descriptors >> i & 1)) continue;
    rig *r = program_for(d);
    str text = render(rig_program(r, "dots"), &t, (descriptor_set)1 << i);
    expect_used(d, str_c(&text));
    run_here(r, d->name, &t, str_c(&text));
    str_free(&text);
    rig_free(r);
    rows++;
  }
  assert_true(rows >= 1);
}

// All rows together, all numbers of lanes: vectors wider than a register are cut, narrower ones plain.
static void every_number_of_lanes(void **state) {
  (void)state;
  cpu_target t = native();
  rig *(*const programs[])(int lanes) = {program_of, program_of_signs, program_of_brains};
  for (size_t i = 0; i < 6 * COUNT(programs); i++) {
    rig *r = programs[i % COUNT(programs)](1 << i / COUNT(programs));
    str text = render(rig_program(r, "dots"), &t, t.descriptors);
    run_here(r, "lanes", &t, str_c(&text));
    str_free(&text);
    rig_free(r);
  }
}

#if defined(__x86_64__)
// What WEFT_CPU asks for decides which instructions come out.
static void levels(void **state) {
  (void)state;
  static const struct { const char *spec; int lanes, most; const char *has, *lacks;
  } cases[] = {{"x86-64", 4, 15, "pmaddwd", "pmaddubsw"},       {"x86-64-v2", 4, 15, "pmaddubsw", "vpmaddubsw"},
               {"x86-64-v2", 4, 255, "pmaddwd", "pmaddubsw"},   {"x86-64-v3", 8, 15, "vpmaddubsw", "vpdpbusd"},
               {"x86-64-v3", 8, 255, "vpmaddwd", "vpmaddubsw"}, {"x86-64-v4", 16, 63, "vpmaddubsw", "vpdpbusd"},
               {"avx512vnni", 16, 255, "vpdpbusd", "vpmaddwd"}, {"avxvnni", 8, 255, "{vex}", "vpmaddwd"}};
  cpu_features all = {0};
#define F(field, llvm_name, leaf, sub, reg, bit, state, level) all.field = level <= 4;
  CPU_FEATURES(F)
#undef F
  for (size_t i = 0; i < COUNT(cases); i++) {
    cpu_features have = all;
    cpu_target t;
    error err = {0};
    bool extra = cases[i].spec[0] == 'a';
    have.avx512vnni = extra && cases[i].lanes == 16;
    have.avxvnni = extra && cases[i].lanes == 8;
    if (have.avxvnni) have.avx512f = false;
    if (cpu_target_for(extra ? "native" : cases[i].spec, &have, &t, &err)) fail_msg("%s", err.text);
    assert_int_equal(descriptor_lanes(t.descriptors, DT_I32, t.vector_bits / 32, 64), cases[i].lanes);
    rig *r = rig_new();
    uop *a = rig_buf(r, DT_U8, 256), *b = rig_buf(r, DT_U32, 64), *out = rig_buf(r, DT_I32, 64);
    uop *x = bytes_up_to(r, a, at(r, 0), cases[i].lanes, cases[i].most),
        *y = rig_load(r, rig_index(r, b, at(r, 0)), DT_U32, cases[i].lanes);
    uop *acc = rig_load(r, rig_index(r, out, at(r, 0)), DT_I32, cases[i].lanes);
    rig_store(r, rig_index(r, out, at(r, 0)),
              rig_op(r, OP_DOT, DT_I32, cases[i].lanes, (uarg){0}, 3, (uop *[]){acc, x, y}));
    str text = render(rig_program(r, "dots"), &t, t.descriptors), assembly = {0};
    code_blob blob = qemu_blob(str_c(&text), &t, &assembly);
    if (!strstr(str_c(&assembly), cases[i].has))
      fail_msg("%s: no %s in\n%s", cases[i].spec, cases[i].has, str_c(&assembly));
    if (strstr(str_c(&assembly), cases[i].lacks))
      fail_msg("%s: %s in\n%s", cases[i].spec, cases[i].lacks, str_c(&assembly));
    code_blob_free(&blob);
    str_free(&text); str_free(&assembly);
    rig_free(r);
  }
}
#endif

// ---- AArch64 --------------------------------------------------------------------------------------------------------

static void every_row_of_aarch64(void **state) {
  (void)state;
  qemu_level level[QEMU_LEVELS];
  qemu_levels(level);
  descriptor_set seen = 0;
  for (int l = 0; l < QEMU_LEVELS; l++) {
    const cpu_target t = level[l].t;
    assert_int_equal(descriptor_lanes(t.descriptors, DT_I32, t.vector_bits / 32, 64), 4);
    const descriptor *d;
    for (size_t i = 0; (d = descriptor_at(i)); i++) {
      if (!(t.descriptors >> i & 1) || (seen >> i & 1)) continue;
      seen |= (descriptor_set)1 << i;
      rig *r = program_for(d);
      program *p = rig_program(r, "dots");
      str text = render(p, &t, (descriptor_set)1 << i);
      expect_used(d, str_c(&text));
      memory want[PATTERNS], got[PATTERNS];
      for (int k = 0; k < PATTERNS; k++) {
        want[k] = memory_of(r, k);
        got[k] = memory_of(r, k);
        interpret(p, &want[k]);
      }
      qemu_run(r, &t, str_c(&text), 1, level[l].cpu, PATTERNS, got);
      for (int k = 0; k < PATTERNS; k++) {
        rig_compare(r, want[k].at, got[k].at, 0, d->name);
        memory_free(&want[k]);
        memory_free(&got[k]);
      }
      str_free(&text);
      rig_free(r);
    }
  }
  assert_int_equal(__builtin_popcountll(seen), 10);
}

// ---- look-ups -------------------------------------------------------------------------------------------------------

static const signed char entries[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// One of 2^n entries, by bits `shift` and up of a code; the bit above all of them is that of `top`.
static uop *chosen_of(rig *r, uop *code, uop *top, int n, int shift, const signed char *entry, int lanes) {
  if (!n) return rig_splat(r, rig_int(r, DT_I8, *entry), lanes);
  uop *low = chosen_of(r, code, code, n - 1, shift, entry, lanes),
      *high = chosen_of(r, code, code, n - 1, shift, entry + (1 << (n - 1)), lanes),
      *mask = rig_splat(r, rig_int(r, DT_U8, 1 << (shift + n - 1)), lanes),
      *zero = rig_splat(r, rig_int(r, DT_U8, 0), lanes);
  return rig3(r, OP_WHERE, rig2(r, OP_CMPNE, rig2(r, OP_AND, top, mask), zero), high, low);
}

static const struct { int n, shift, other; } choices[] = {{4, 0, 0}, {4, 2, 0}, {4, 4, 0}, {3, 1, 0}, {4, 0, 1}};

// Values by four bits at several places, which are tables; by three, and by bits of two codes, which are none.
static rig *program_of_choices(int lanes) {
  rig *r = rig_new();
  uop *codes = rig_buf(r, DT_U8, A_BYTES), *out = rig_buf(r, DT_I8, OUTS);
  for (int i = 0; i < (int)COUNT(choices); i++) {
    uop *code = rig_load(r, rig_index(r, codes, at(r, 200 * i)), DT_U8, lanes),
        *top = choices[i].other ? rig_load(r, rig_index(r, codes, at(r, 2000)), DT_U8, lanes) : code;
    rig_store(r, rig_index(r, out, at(r, (int64_t)i * lanes)),
              chosen_of(r, code, top, choices[i].n, choices[i].shift, entries, lanes));
  }
  return r;
}

static void what_is_a_table(void **state) {
  (void)state;
  rig *r = program_of_choices(64);
  const program *p = rig_program(r, "choices");
  int stores = 0, tables = 0;
  for (size_t i = 0; i < p->n; i++) {
    choice c;
    if (p->at[i]->op != OP_STORE) continue;
    bool is = choice_of(p->at[i]->src[1], &c);
    assert_int_equal(is, stores < 3);
    if (is) {
      assert_int_equal(c.shift, choices[stores].shift);
      for (int k = 0; k < 16; k++)
        assert_int_equal((signed char)((k < 8 ? c.low : c.high) >> 8 * (k & 7)), entries[k]);
    }
    stores++;
    tables += is;
  }
  assert_int_equal(stores, (int)COUNT(choices));
  assert_int_equal(tables, 3);
  rig_free(r);
}

#if defined(__x86_64__)
static void look_ups_of_every_level(void **state) {
  (void)state;
  static const struct { const char *spec, *name; int width; } cases[] = {
    {"x86-64", NULL, 0}, {"x86-64-v2", "ssse3.pshuf.b.128", 16}, {"x86-64-v3", "avx2.pshuf.b", 32},
    {"x86-64-v4", "avx512.pshuf.b.512", 64}};
  cpu_features have;
  cpu_detect(&have);
  for (size_t i = 0; i < COUNT(cases); i++)
    for (int lanes = 4; lanes <= 128; lanes *= 2) {
      cpu_target t;
      error err = {0};
      if (cpu_target_for(cases[i].spec, &have, &t, &err)) continue;              // not on this machine
      rig *r = program_of_choices(lanes);
      str text = render(rig_program(r, "choices"), &t, t.descriptors);
      if (cases[i].width && lanes >= cases[i].width) assert_non_null(strstr(str_c(&text), cases[i].name));
      if (lanes < 16 || !cases[i].width) assert_null(strstr(str_c(&text), "pshuf"));
      run_here(r, cases[i].spec, &t, str_c(&text));
      str_free(&text);
      rig_free(r);
    }
}
#endif

static void look_ups_of_aarch64(void **state) {
  (void)state;
  qemu_level level[QEMU_LEVELS];
  qemu_levels(level);
  rig *r = program_of_choices(64);
  program *p = rig_program(r, "choices");
  str text = render(p, &level[0].t, level[0].t.descriptors);
  assert_non_null(strstr(str_c(&text), "neon.tbl1"));
  memory want[PATTERNS], got[PATTERNS];
  for (int k = 0; k < PATTERNS; k++) {
    want[k] = memory_of(r, k);
    got[k] = memory_of(r, k);
    interpret(p, &want[k]);
  }
  qemu_run(r, &level[0].t, str_c(&text), 1, level[0].cpu, PATTERNS, got);
  for (int k = 0; k < PATTERNS; k++) {
    rig_compare(r, want[k].at, got[k].at, 0, "tbl");
    memory_free(&want[k]);
    memory_free(&got[k]);
  }
  str_free(&text);
  rig_free(r);
}

// No row is taken whose sums might not fit, and every row's text names only what it has.
static void the_table_is_sound(void **state) {
  (void)state;
  const descriptor *d;
  for (size_t i = 0; (d = descriptor_at(i)); i++) {
    if (d->m == 2) {                                             // four sums in a register (MMLA)
      assert_true(d->n == 2 && d->k == 8 && d->b == DT_I8 && d->acc == DT_I32);
      assert_true(d->a == DT_U8 ? d->a_max == 255 : d->a == DT_I8 && d->a_max == 128);
      assert_true(d->step[0] && !d->products && !d->finish[0]);
      assert_ptr_equal(descriptor_tile((descriptor_set)1 << i, d->a, 8), d);
      assert_null(descriptor_tile((descriptor_set)1 << i, d->a == DT_U8 ? DT_I8 : DT_U8, 8));
      assert_null(descriptor_find((descriptor_set)1 << i, DT_I32, d->n, d->a, 1));
      assert_int_equal(descriptor_lanes((descriptor_set)1 << i, DT_I32, 16, 64), 0);
      continue;
    }
    if (d->m > 1) {                                              // a tile, which no DOT is
      assert_true(d->m == 16 && d->n == 8 && (d->k == 16 || d->k == 32) && d->step[0] && !d->step[1]);
      assert_ptr_equal(descriptor_tile((descriptor_set)1 << i, d->a, d->k), d);
      assert_null(descriptor_tile((descriptor_set)1 << i, d->a == DT_U8 ? DT_F16 : DT_U8, d->k));
      assert_true(d->a == DT_U8 ? d->b == DT_I8 && d->acc == DT_I32 : d->b == d->a && d->acc == DT_F32 && d->k == 16);
      assert_null(descriptor_find((descriptor_set)1 << i, d->acc, d->n, d->a, 1));
      assert_int_equal(descriptor_lanes((descriptor_set)1 << i, d->acc, 16, 64), 0);
      continue;
    }
    assert_true(d->m == 1 && d->n >= 1 && d->step[0] && !d->finish[0] == !d->products);
    assert_null(descriptor_tile((descriptor_set)1 << i, d->a, d->k));
    assert_ptr_equal(descriptor_find((descriptor_set)1 << i, d->acc, d->n, d->a, d->a_max), d);
    assert_null(descriptor_find((descriptor_set)1 << i, d->acc == DT_I32 ? DT_F32 : DT_I32, d->n, d->a, d->a_max));
    if (d->acc == DT_F32) { assert_true(d->a == DT_BF16 && d->b == DT_BF16 && d->k == 2 && !d->products); continue; }
    assert_true(d->acc == DT_I32 && d->b == DT_I8 && d->k == 4);
    assert_true(d->a == DT_U8 ? d->a_max >= 1 && d->a_max <= 255 : d->a == DT_I8 && d->a_max == 128);
    assert_int_equal(descriptors_take_signs((descriptor_set)1 << i), d->a == DT_I8);
    assert_null(descriptor_find((descriptor_set)1 << i, DT_I32, d->n, d->a == DT_U8 ? DT_I8 : DT_U8, 1));
    if (d->products) assert_true(descriptor_steps(d, d->a_max) >= 1 && d->products * d->a_max * 128 <= 32767);
    for (int64_t a = 0; a <= d->a_max; a++)
      assert_true(!d->products || descriptor_steps(d, a) * d->products * a * 128 <= 32767);
    assert_null(descriptor_find((descriptor_set)1 << i, DT_I32, d->n, d->a, d->a_max + 1));
  }
  assert_null(descriptor_find(0, DT_I32, 4, DT_U8, 1));
  assert_int_equal(descriptor_lanes(0, DT_I32, 16, 64), 0);
  assert_int_equal(descriptor_lanes(~(descriptor_set)0, DT_I32, 16, 24), 8);
  assert_int_equal(descriptor_lanes(~(descriptor_set)0, DT_F32, 16, 24), 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_table_is_sound),
    cmocka_unit_test(every_row_of_this_machine),
    cmocka_unit_test(every_number_of_lanes),
#if defined(__x86_64__)
    cmocka_unit_test(levels),
#endif
    cmocka_unit_test(every_row_of_aarch64),
    cmocka_unit_test(what_is_a_table),
#if defined(__x86_64__)
    cmocka_unit_test(look_ups_of_every_level),
#endif
    cmocka_unit_test(look_ups_of_aarch64),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
