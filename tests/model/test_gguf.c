// The GGUF reader: what it makes of good files, and that every hostile one gets an error which names file, key and
// value. Hostile files are built in memory blocks of exactly their size, so that the sanitizer build sees every byte
// too far.
#define _GNU_SOURCE
#include "gguf_writer.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

// ---- Tools ----

// Opens a copy of the bytes; the copy is returned in *copy, to be freed after closing.
static int open_bytes(const void *bytes, size_t n, void **copy, gguf **g, error *err) {
  *copy = xmalloc(n);
  if (n) memcpy(*copy, bytes, n);
  return gguf_open_memory(*copy, n, "bad.gguf", g, err);
}

// The file in s must be refused, with a message that has the file's name and all the parts; s is freed.
#define refused(s, ...) refused_at(__LINE__, s, (const char *const[]){__VA_ARGS__, NULL})
static void refused_at(int line, str *s, const char *const *parts) {
  gguf *g;
  void *copy;
  error err = {0};
  if (!open_bytes(s->at, s->n, &copy, &g, &err)) fail_msg("line %d: a bad file was accepted", line);
  if (g) fail_msg("line %d: a description in spite of an error", line);
  if (!strstr(err.text, "bad.gguf: ")) fail_msg("line %d: '%s' does not name the file", line, err.text);
  for (; *parts; parts++)
    if (!strstr(err.text, *parts)) fail_msg("line %d: '%s' does not say '%s'", line, err.text, *parts);
  free(copy);
  str_free(s);
}

// One key of every type, three tensors of different types and shapes; the data of each begins at a multiple of 64.
static str good_file(void) {
  str s = {0};
  w_header(&s, 3, 15);
  w_key_str(&s, "general.architecture", "test");
  w_key_int(&s, "general.alignment", GGUF_UINT32, 64);
  w_key_int(&s, "a.u8", GGUF_UINT8, 200);
  w_key_int(&s, "a.i8", GGUF_INT8, (uint64_t)-100);
  w_key_int(&s, "a.u16", GGUF_UINT16, 60000);
  w_key_int(&s, "a.i16", GGUF_INT16, (uint64_t)-30000);
  w_key_int(&s, "a.i32", GGUF_INT32, (uint64_t)-2000000000);
  w_key_int(&s, "a.u64", GGUF_UINT64, UINT64_MAX);
  w_key_int(&s, "a.i64", GGUF_INT64, (uint64_t)INT64_MIN);
  w_key(&s, "a.f32", GGUF_FLOAT32);
  w_f32(&s, 1e-6f);
  w_key(&s, "a.f64", GGUF_FLOAT64);
  w_f64(&s, 1e300);
  w_key_int(&s, "a.yes", GGUF_BOOL, 1);
  w_key_array(&s, "a.words", GGUF_STRING, 4);
  w_str(&s, "one");
  w_str(&s, "");
  w_strn(&s, "a\0b", 3);
  w_str(&s, "\xff\xfe");
  w_key_array(&s, "a.numbers", GGUF_INT16, 3);
  w_int(&s, 1, 2);
  w_int(&s, 2, 2);
  w_int(&s, (uint64_t)-3, 2);
  w_key_array(&s, "a.floats", GGUF_FLOAT32, 2);
  w_f32(&s, 0.5f);
  w_f32(&s, -2);
  w_tensor(&s, "w", 2, W_NE(64, 3), FORMAT_Q4_0, 0);           // 108 bytes
  w_tensor(&s, "bias", 1, W_NE(5), FORMAT_F32, 192);           // 20
  w_tensor(&s, "cube", 4, W_NE(2, 3, 1, 2), FORMAT_F16, 128);  // 24, between the other two
  w_pad(&s, 64);
  w_fill(&s, 192 + 20);
  w_pad(&s, 64);
  return s;
}

static gguf *open_good(void **copy) {
  str s = good_file();
  gguf *g;
  error err = {0};
  if (open_bytes(s.at, s.n, copy, &g, &err)) fail_msg("%s", err.text);
  str_free(&s);
  return g;
}

// Reads all that a description offers; with a sanitizer this is the check that all of it lies in bounds.
static uint64_t read_all(const gguf *g, size_t max_items) {
  uint64_t sum = 0;
  str s = {0};
  for (size_t i = 0; i < gguf_n_kv(g); i++) {
    const gguf_kv *kv = gguf_kv_at(g, i);
    assert_ptr_equal(gguf_find(g, kv->key), &kv->value);
    gguf_type_print(&s, &kv->value);
    gguf_value_print(&s, &kv->value, max_items);
    s.n = 0;
  }
  for (size_t i = 0; i < gguf_n_tensors(g); i++) {
    const gguf_tensor *t = gguf_tensor_at(g, i);
    const gguf_shard *file = gguf_shard_at(g, t->shard);
    assert_ptr_equal(gguf_tensor_find(g, t->name), t);
    assert_true(t->offset >= file->data_offset && t->offset + t->nbytes <= file->data_end &&
                file->data_end <= file->size);
    assert_int_equal(t->offset % file->alignment, 0);
    assert_ptr_equal(t->data, file->map + t->offset);
    for (size_t j = 0; j < t->nbytes; j++) sum += ((const unsigned char *)t->data)[j];
  }
  str_free(&s);
  return sum;
}

// ---- Good files ----

static void test_values(void **state) {
  (void)state;
  void *copy;
  gguf *g = open_good(&copy);
  error err = {0};
  uint32_t u; int32_t i; uint64_t u8; int64_t i8; float f; double d; bool b; gguf_string s;
  assert_int_equal(gguf_n_kv(g), 15);
  assert_string_equal(gguf_kv_at(g, 1)->key, "general.alignment");
  assert_int_equal(gguf_u32(g, "a.u8", &u, &err), 0); assert_int_equal(u, 200);
  assert_int_equal(gguf_i32(g, "a.i8", &i, &err), 0); assert_int_equal(i, -100);
  assert_int_equal(gguf_u32(g, "a.u16", &u, &err), 0); assert_int_equal(u, 60000);
  assert_int_equal(gguf_i32(g, "a.i16", &i, &err), 0); assert_int_equal(i, -30000);
  assert_int_equal(gguf_i64(g, "a.i32", &i8, &err), 0); assert_true(i8 == -2000000000);
  assert_int_equal(gguf_u64(g, "a.u64", &u8, &err), 0); assert_true(u8 == UINT64_MAX);
  assert_int_equal(gguf_i64(g, "a.i64", &i8, &err), 0); assert_true(i8 == INT64_MIN);
  assert_int_equal(gguf_f32(g, "a.f32", &f, &err), 0); assert_true(f == 1e-6f);
  assert_int_equal(gguf_f64(g, "a.f64", &d, &err), 0); assert_true(d == 1e300);
  assert_int_equal(gguf_f64(g, "a.f32", &d, &err), 0); assert_true(d == (double)1e-6f);
  assert_int_equal(gguf_bool(g, "a.yes", &b, &err), 0); assert_true(b);
  assert_int_equal(gguf_str(g, "general.architecture", &s, &err), 0);
  assert_int_equal(s.n, 4);
  assert_memory_equal(s.at, "test", 4);
  assert_null(gguf_find(g, "a"));
  assert_null(gguf_find(g, ""));
  assert_null(gguf_find(g, "zzz"));
  assert_string_equal(gguf_path(g), "bad.gguf");
  assert_string_equal(err.text, "");
  gguf_close(g);
  free(copy);
}

static void test_optional(void **state) {
  (void)state;
  void *copy;
  gguf *g = open_good(&copy);
  error err = {0};
  uint32_t u; int32_t i; uint64_t u8; int64_t i8; float f; double d; bool b; gguf_string s;
  assert_int_equal(gguf_u32_opt(g, "none", 7, &u, &err), 0); assert_int_equal(u, 7);
  assert_int_equal(gguf_u32_opt(g, "a.u8", 7, &u, &err), 0); assert_int_equal(u, 200);
  assert_int_equal(gguf_i32_opt(g, "none", -7, &i, &err), 0); assert_int_equal(i, -7);
  assert_int_equal(gguf_u64_opt(g, "none", 7, &u8, &err), 0); assert_int_equal(u8, 7);
  assert_int_equal(gguf_i64_opt(g, "none", -7, &i8, &err), 0); assert_int_equal(i8, -7);
  assert_int_equal(gguf_f32_opt(g, "none", 0.5f, &f, &err), 0); assert_true(f == 0.5f);
  assert_int_equal(gguf_f64_opt(g, "none", 0.5, &d, &err), 0); assert_true(d == 0.5);
  assert_int_equal(gguf_bool_opt(g, "none", true, &b, &err), 0); assert_true(b);
  assert_int_equal(gguf_str_opt(g, "none", "gpt2", &s, &err), 0); assert_int_equal(s.n, 4);
  assert_int_equal(gguf_str_opt(g, "none", NULL, &s, &err), 0); assert_null(s.at);
  assert_string_equal(err.text, "");
  assert_int_equal(gguf_u32_opt(g, "a.yes", 7, &u, &err), -1);
  assert_string_equal(err.text, "bad.gguf: key 'a.yes': expected an integer from 0 to 4294967295, found BOOL true");
  gguf_close(g);
  free(copy);
}

// Each getter on a key of the wrong kind, with a value that does not fit, or missing.
#define no_getter(call, says) do { error err = {0}; assert_int_equal(call, -1); \
  assert_string_equal(err.text, "bad.gguf: key " says); } while (0)
static void test_getters_refuse(void **state) {
  (void)state;
  void *copy;
  gguf *g = open_good(&copy);
  arena *a = arena_new();
  uint32_t u; int32_t i; uint64_t u8; int64_t i8; float f; double d; bool b; gguf_string s;
  uint32_t each[4];
  const uint32_t *us; const int32_t *is; const float *fs; const gguf_value *v;
  size_t n;
  no_getter(gguf_u32(g, "none", &u, &err), "'none': is missing (expected an integer from 0 to 4294967295)");
  no_getter(gguf_u32(g, "a.i8", &u, &err), "'a.i8': expected an integer from 0 to 4294967295, found INT8 -100");
  no_getter(gguf_u32(g, "a.u64", &u, &err),
            "'a.u64': expected an integer from 0 to 4294967295, found UINT64 18446744073709551615");
  no_getter(gguf_u32(g, "a.f32", &u, &err), "'a.f32': expected an integer from 0 to 4294967295, found FLOAT32 1e-06");
  no_getter(gguf_i32(g, "a.i64", &i, &err),
            "'a.i64': expected an integer from -2147483648 to 2147483647, found INT64 -9223372036854775808");
  no_getter(gguf_i64(g, "a.u64", &i8, &err),
            "'a.u64': expected an integer below 2^63, found UINT64 18446744073709551615");
  no_getter(gguf_u64(g, "a.i32", &u8, &err),
            "'a.i32': expected an integer that is not negative, found INT32 -2000000000");
  no_getter(gguf_f32(g, "a.u8", &f, &err), "'a.u8': expected a FLOAT32 number, found UINT8 200");
  no_getter(gguf_f32(g, "a.f64", &f, &err), "'a.f64': expected a FLOAT32 number, found FLOAT64 1e+300");
  no_getter(gguf_f64(g, "general.architecture", &d, &err),
            "'general.architecture': expected a floating-point number, found STRING \"test\"");
  no_getter(gguf_bool(g, "a.u8", &b, &err), "'a.u8': expected a BOOL, found UINT8 200");
  no_getter(gguf_str(g, "a.words", &s, &err), "'a.words': expected a STRING, found ARRAY of 4 STRING");
  no_getter(gguf_strs(g, "a.numbers", &v, &err), "'a.numbers': expected an ARRAY of STRING, found ARRAY of 3 INT16");
  no_getter(gguf_strs(g, "none", &v, &err), "'none': is missing (expected an ARRAY of STRING)");
  no_getter(gguf_i32s(g, "a.words", a, &is, &n, &err),
            "'a.words': expected an ARRAY, each an integer from -2147483648 to 2147483647, found ARRAY of 4 STRING");
  no_getter(gguf_u32s(g, "a.numbers", a, &us, &n, &err),
            "'a.numbers': element 2: expected an integer from 0 to 4294967295, found INT16 -3");
  no_getter(gguf_f32s(g, "a.numbers", a, &fs, &n, &err),
            "'a.numbers': element 0: expected a FLOAT32 number, found INT16 1");
  no_getter(gguf_f32s_opt(g, "a.f32", a, &fs, &n, &err),
            "'a.f32': expected an ARRAY, each a FLOAT32 number, found FLOAT32 1e-06");
  no_getter(gguf_u32_each(g, "a.numbers", 4, each, &err), "'a.numbers': expected 4 elements, found 3");
  no_getter(gguf_u32_each(g, "a.numbers", 3, each, &err),
            "'a.numbers': element 2: expected an integer from 0 to 4294967295, found INT16 -3");
  no_getter(gguf_u32_each(g, "none", 3, each, &err), "'none': is missing (expected an integer from 0 to 4294967295)");
  arena_free(a);
  gguf_close(g);
  free(copy);
}

static void test_arrays(void **state) {
  (void)state;
  void *copy;
  gguf *g = open_good(&copy);
  arena *a = arena_new();
  error err = {0};
  const gguf_value *words;
  assert_int_equal(gguf_strs(g, "a.words", &words, &err), 0);
  assert_int_equal(words->a.n, 4);
  assert_int_equal(gguf_elem_str(words, 0).n, 3);
  assert_memory_equal(gguf_elem_str(words, 0).at, "one", 3);
  assert_int_equal(gguf_elem_str(words, 1).n, 0);
  assert_int_equal(gguf_elem_str(words, 2).n, 3);
  assert_memory_equal(gguf_elem_str(words, 2).at, "a\0b", 3);
  assert_memory_equal(gguf_elem_str(words, 3).at, "\xff\xfe", 2);
  const int32_t *is; const float *fs; const uint32_t *us;
  size_t n;
  assert_int_equal(gguf_i32s(g, "a.numbers", a, &is, &n, &err), 0);
  assert_int_equal(n, 3);
  assert_true(is[0] == 1 && is[1] == 2 && is[2] == -3);
  assert_int_equal(gguf_f32s_opt(g, "a.floats", a, &fs, &n, &err), 0);
  assert_int_equal(n, 2);
  assert_true(fs[0] == 0.5f && fs[1] == -2);
  assert_int_equal(gguf_u32s_opt(g, "none", a, &us, &n, &err), 0);
  assert_int_equal(n, 0);
  assert_null(us);
  assert_int_equal(gguf_strs_opt(g, "none", &words, &err), 0);
  assert_null(words);
  uint32_t each[3];
  assert_int_equal(gguf_u32_each(g, "a.u8", 3, each, &err), 0);
  assert_true(each[0] == 200 && each[2] == 200);
  assert_string_equal(err.text, "");
  arena_free(a);
  gguf_close(g);
  free(copy);
}

static void test_tensors(void **state) {
  (void)state;
  void *copy;
  gguf *g = open_good(&copy);
  assert_int_equal(gguf_n_tensors(g), 3);
  assert_string_equal(gguf_tensor_at(g, 0)->name, "w");
  const gguf_tensor *w = gguf_tensor_find(g, "w"), *cube = gguf_tensor_find(g, "cube"),
                    *bias = gguf_tensor_find(g, "bias");
  assert_null(gguf_tensor_find(g, "wx"));
  assert_null(gguf_tensor_find(g, ""));
  assert_int_equal(w->n_dims, 2);
  assert_true(w->ne[0] == 64 && w->ne[1] == 3 && w->ne[2] == 1 && w->ne[3] == 1);
  assert_string_equal(w->format->name, "Q4_0");
  assert_int_equal(w->nbytes, 108);
  assert_int_equal(cube->nbytes, 24);
  assert_int_equal(bias->nbytes, 20);
  const gguf_shard *file = gguf_shard_at(g, 0);
  assert_int_equal(gguf_n_shards(g), 1);
  assert_int_equal(file->alignment, 64);
  assert_int_equal(file->version, 3);
  assert_int_equal(file->data_offset % 64, 0);
  assert_int_equal(w->offset, file->data_offset);
  assert_int_equal(bias->offset, file->data_offset + 192);
  assert_int_equal(file->data_end, file->data_offset + 212);
  assert_int_equal(((const unsigned char *)cube->data)[0], (128 * 37 + 11) & 255);
  assert_int_equal(gguf_tensor_bytes(g), 108 + 24 + 20);
  assert_int_equal(gguf_n_params(g), 192 + 12 + 5);
  assert_int_equal(gguf_file_bytes(g), file->size);
  read_all(g, 0);
  gguf_close(g);
  free(copy);
}

static void test_print(void **state) {
  (void)state;
  void *copy;
  gguf *g = open_good(&copy);
  str s = {0};
  gguf_value_print(&s, gguf_find(g, "a.words"), 0);
  assert_string_equal(str_c(&s), "[\"one\", \"\", \"a\\x00b\", \"\\xff\\xfe\"]");
  s.n = 0;
  gguf_value_print(&s, gguf_find(g, "a.numbers"), 2);
  assert_string_equal(str_c(&s), "[1, 2, ... (3 elements)]");
  s.n = 0;
  const gguf_value third = {.type = GGUF_FLOAT32, .f = (double)(1.0f / 3)}, big = {.type = GGUF_FLOAT32, .f = 500000},
                   odd = {.type = GGUF_FLOAT64, .f = 0.1};
  gguf_value_print(&s, &third, 0);
  str_addc(&s, ' ');
  gguf_value_print(&s, &big, 0);
  str_addc(&s, ' ');
  gguf_value_print(&s, &odd, 0);
  assert_string_equal(str_c(&s), "0.33333334 500000 0.1");
  s.n = 0;
  const gguf_value text = {.type = GGUF_STRING, .s = {"\"tab\there\"\n\x1b[31m caf\xc3\xa9 and more", 34}};
  gguf_value_print(&s, &text, 1);
  assert_string_equal(str_c(&s), "\"\\\"tab\\there\\\"\\n\\x1b[31m caf\"... (34 bytes)");
  char quoted[16];
  assert_string_equal(gguf_quote(quoted, sizeof quoted, "short", 5), "short");
  assert_string_equal(gguf_quote(quoted, sizeof quoted, "fifteen letters", 15), "fifteen letters");
  assert_string_equal(gguf_quote(quoted, sizeof quoted, "sixteen letters.", 16), "sixteen lett...");
  assert_string_equal(gguf_quote(quoted, sizeof quoted, "\x01\x02\x03\x04", 4), "\\x01\\x02\\x03...");
  str_free(&s);
  gguf_close(g);
  free(copy);
}

static void test_version_2_and_no_tensors(void **state) {
  (void)state;
  str s = good_file();
  s.at[4] = 2;
  gguf *g;
  void *copy;
  error err = {0};
  assert_int_equal(open_bytes(s.at, s.n, &copy, &g, &err), 0);
  assert_int_equal(gguf_shard_at(g, 0)->version, 2);
  gguf_close(g);
  free(copy);
  s.n = 0;
  w_header(&s, 0, 1);                                // ends without padding
  w_key_str(&s, "general.architecture", "x");
  assert_int_equal(open_bytes(s.at, s.n, &copy, &g, &err), 0);
  assert_int_equal(gguf_n_tensors(g), 0);
  assert_int_equal(gguf_shard_at(g, 0)->data_offset, s.n);
  assert_int_equal(gguf_shard_at(g, 0)->data_end, s.n);
  assert_null(gguf_tensor_find(g, "x"));
  gguf_close(g);
  free(copy);
  s.n = 0;
  w_header(&s, 0, 0);
  assert_int_equal(open_bytes(s.at, s.n, &copy, &g, &err), 0);
  assert_null(gguf_find(g, "x"));
  gguf_close(g);
  free(copy);
  str_free(&s);
}

static void test_formats(void **state) {
  (void)state;
  const struct format *f = format_by_id(12);
  uint64_t bytes;
  assert_string_equal(f->name, "Q4_K");
  assert_ptr_equal(format_by_name("q4_k"), f);
  assert_true(format_row_bytes(f, 512, &bytes) && bytes == 288);
  assert_false(format_row_bytes(f, 511, &bytes));
  assert_false(format_row_bytes(format_by_id(FORMAT_F64), UINT64_MAX / 4, &bytes));
  assert_true(format_row_bytes(format_by_id(FORMAT_IQ4_KS), 512, &bytes) && bytes == 4 + 2 * 136);
  assert_false(format_row_bytes(format_by_id(FORMAT_IQ2_KS), 70, &bytes));
  assert_null(format_by_name("Q4_2"));
  assert_null(format_by_name(""));
  int known = 0, gone = 0;
  for (uint32_t id = 0; id < FORMAT_IDS + 100; id++) {
    if ((f = format_by_id(id))) {
      known++;
      assert_int_equal(f->id, id);
      assert_ptr_equal(format_by_name(f->name), f);
      assert_null(format_removed_name(id));
    }
    gone += format_removed_name(id) != NULL;
  }
  assert_int_equal(known, 83);
  assert_int_equal(gone, 8);
  assert_null(format_by_id(UINT32_MAX));
  assert_null(format_removed_name(UINT32_MAX));
}

// ---- Bad headers: empty, magic, version, byte order, counts ----

static void test_header(void **state) {
  (void)state;
  str s = {0};
  refused(&s, "the file is empty");
  str_add(&s, "GG");
  refused(&s, "not a GGUF file: it has 2 bytes");
  str_add(&s, "PK\x03\x04 something else entirely");
  refused(&s, "begins with 'PK\\x03\\x04'");
  str_add(&s, "tjgg something old, and more of it");
  refused(&s, "'ggjt'", "before GGUF");
  str_add(&s, "FUGG");
  w_u64(&s, 3);
  refused(&s, "byte-swapped");
  const struct { uint32_t version; const char *says;
  } bad[] = {{0, "version 0 is invalid"},
             {1, "version 1 is too old"},
             {4, "version 4 is unknown"},
             {UINT32_MAX, "version 4294967295 is unknown"},
             {0x03000000, "version 3 in big-endian order"},
             {0x02000000, "version 2 in big-endian order"}};
  for (size_t i = 0; i < COUNT(bad); i++) {
    s = good_file();
    for (int k = 0; k < 4; k++) s.at[4 + k] = (char)(bad[i].version >> 8 * k);
    refused(&s, bad[i].says);
  }
}

static void test_counts(void **state) {
  (void)state;
  // Around the points at which count * size of an entry would wrap in 64 bits, for several sizes of entries.
  const uint64_t sizes[] = {1, 8, 14, 24, 33, 64, 80, 96, 112, 128};
  for (size_t i = 0; i < COUNT(sizes); i++)
    for (int d = -1; d <= 1; d++) {
      uint64_t n = UINT64_MAX / sizes[i] + (uint64_t)d;
      char text[40];
      if (n < 1000) continue;                        // UINT64_MAX + 1
      snprintf(text, sizeof text, "%llu tensors", (unsigned long long)n);
      str s = {0};
      w_header(&s, n, 0);
      w_fill(&s, 500);
      refused(&s, "header: ", text);
      snprintf(text, sizeof text, "%llu keys", (unsigned long long)n);
      w_header(&s, 0, n);
      w_fill(&s, 500);
      refused(&s, "header: ", text);
      w_header(&s, n, n);
      w_fill(&s, 500);
      refused(&s, "header: ", text);
    }
  str s = {0};
  w_header(&s, 0, GGUF_MAX_KEYS + 1);
  for (int i = 0; i < 14 * ((int)GGUF_MAX_KEYS + 1); i++) str_addc(&s, 1);
  refused(&s, "65537 keys, more than the limit of 65536");
  w_header(&s, 2, 0);                                // one more tensor than there is
  w_tensor(&s, "t", 1, W_NE(4), FORMAT_F32, 0);
  w_pad(&s, 32);
  refused(&s, "2 tensors do not fit");
  w_header(&s, 0, 2);                                // one key more, with room for it
  w_key_int(&s, "k", GGUF_UINT32, 1);
  w_u64(&s, 1);
  str_addc(&s, 'x');
  w_u32(&s, GGUF_UINT64);
  w_u32(&s, 1);
  refused(&s, "key 'x'", "its value needs 8 bytes");
}

// ---- Bad keys and values ----

static void test_keys(void **state) {
  (void)state;
  str s = {0};
  w_header(&s, 0, 1);
  w_u64(&s, UINT64_MAX);                             // longer than the file, and its end wraps
  str_add(&s, "general.name and more");
  refused(&s, "key 'general.name", "18446744073709551615 bytes", "truncated or damaged");
  w_header(&s, 0, 1);
  w_u64(&s, 30);
  str_add(&s, "shorter than thirty");
  refused(&s, "key 'shorter", "needs 30 bytes", "only 19 are left");
  w_header(&s, 0, 1);
  w_u64(&s, 65536);
  w_fill(&s, 70000);
  refused(&s, "65536 bytes, more than the limit of 65535");
  w_header(&s, 0, 1);
  w_key_int(&s, "", GGUF_UINT32, 1);
  refused(&s, "key 0", "is empty");
  w_header(&s, 0, 2);
  w_key_int(&s, "twice", GGUF_UINT32, 1);
  w_key_str(&s, "twice", "of another type");
  refused(&s, "key 'twice'", "more than once");
  const struct { const char *key; size_t n; const char *says;
  } bad[] = {{"a\0b", 3, "byte 1 is 0x00"},      {"\0", 1, "byte 0 is 0x00"},
             {"ab\x80", 3, "byte 2 is 0x80"},    {"\xc0\xaf", 2, "0xc0"},
             {"\xe0\x80\xaf", 3, "0xe0"},        {"\xed\xa0\x80", 3, "0xed"},
             {"\xf4\x90\x80\x80", 4, "0xf4"},    {"\xf8\x88\x80\x80\x80", 5, "0xf8"},
             {"x\xe2\x82", 3, "byte 1 is 0xe2"}, {"\xff", 1, "0xff"},
             {"\xf0\x80\x80\x80", 4, "0xf0"}};
  for (size_t i = 0; i < COUNT(bad); i++) {
    w_header(&s, 0, 1);
    w_strn(&s, bad[i].key, bad[i].n);
    w_u32(&s, GGUF_UINT8);
    w_u64(&s, 1);
    refused(&s, "not UTF-8 text", bad[i].says);
  }
  // These are fine: all lengths of UTF-8, and the longest key.
  const char *good[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x90", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"};
  w_header(&s, 0, COUNT(good) + 1);
  for (size_t i = 0; i < COUNT(good); i++) w_key_int(&s, good[i], GGUF_UINT8, i);
  w_u64(&s, 65535);
  for (int i = 0; i < 65535; i++) str_addc(&s, 'k');
  w_u32(&s, GGUF_UINT8);
  w_u8(&s, 1);
  gguf *g;
  void *copy;
  error err = {0};
  if (open_bytes(s.at, s.n, &copy, &g, &err)) fail_msg("%s", err.text);
  uint32_t v;
  assert_int_equal(gguf_u32(g, good[3], &v, &err), 0);
  assert_int_equal(v, 3);
  gguf_close(g);
  free(copy);
  str_free(&s);
}

static void test_value_types(void **state) {
  (void)state;
  str s = {0};
  const uint32_t types[] = {13, 255, 0x80000000u, UINT32_MAX};
  for (size_t i = 0; i < COUNT(types); i++) {
    char text[60];
    w_header(&s, 0, 1);
    w_key(&s, "some.key", types[i]);
    w_u64(&s, 0);
    snprintf(text, sizeof text, "unknown value type %u", types[i]);
    refused(&s, "key 'some.key'", text);
    w_header(&s, 0, 1);
    w_key_array(&s, "some.key", types[i], 1);
    w_u64(&s, 0);
    snprintf(text, sizeof text, "elements of unknown type %u", types[i]);
    refused(&s, "key 'some.key'", text);
  }
  const uint64_t bools[] = {2, 255};
  for (size_t i = 0; i < COUNT(bools); i++) {
    char text[60];
    snprintf(text, sizeof text, "BOOL of value %d", (int)bools[i]);
    w_header(&s, 0, 1);
    w_key_int(&s, "some.flag", GGUF_BOOL, bools[i]);
    refused(&s, "key 'some.flag'", text);
    w_header(&s, 0, 1);
    w_key_array(&s, "some.flags", GGUF_BOOL, 3);
    w_u8(&s, 1);
    w_u8(&s, 0);
    w_u8(&s, bools[i]);
    refused(&s, "key 'some.flags'", "element 2", text);
  }
  w_header(&s, 0, 1);
  w_key(&s, "some.text", GGUF_STRING);
  w_u64(&s, UINT64_MAX - 3);
  w_fill(&s, 100);
  refused(&s, "key 'some.text'", "18446744073709551612 bytes");
}

static void test_bad_arrays(void **state) {
  (void)state;
  str s = {0};
  w_header(&s, 0, 1);                                // an array of arrays of arrays ... 10^5 deep
  w_key(&s, "deep", GGUF_ARRAY);
  for (int i = 0; i < 100000; i++) { w_u32(&s, GGUF_ARRAY); w_u64(&s, 1); }
  refused(&s, "key 'deep'", "arrays do not nest");
  // count * size is small, or zero, in 64 bits
  const struct { uint32_t elem; uint64_t n;
  } wraps[] = {{GGUF_UINT64, 1ull << 61},  {GGUF_UINT64, (1ull << 61) + 1},
               {GGUF_FLOAT32, 1ull << 62}, {GGUF_UINT16, (1ull << 63) + 2},
               {GGUF_UINT8, UINT64_MAX},   {GGUF_BOOL, UINT64_MAX},
               {GGUF_STRING, 1ull << 61},  {GGUF_STRING, UINT64_MAX},
               {GGUF_STRING, 1000000000},  {GGUF_UINT32, 26}};
  for (size_t i = 0; i < COUNT(wraps); i++) {
    char text[80];
    w_header(&s, 0, 1);
    w_key_array(&s, "big", wraps[i].elem, wraps[i].n);
    for (int k = 0; k < 100; k++) str_addc(&s, 0);
    snprintf(text, sizeof text, "array of %llu %s", (unsigned long long)wraps[i].n, gguf_type_name(wraps[i].elem));
    refused(&s, "key 'big'", text);
  }
  w_header(&s, 0, 1);                                // the last string reaches past the end
  w_key_array(&s, "words", GGUF_STRING, 3);
  w_str(&s, "a");
  w_str(&s, "b");
  w_u64(&s, 2);
  str_addc(&s, 'c');
  refused(&s, "key 'words'", "string 2 of 3 needs 2 bytes");
  w_header(&s, 0, 1);                                // its length does
  w_key_array(&s, "words", GGUF_STRING, 2);
  w_str(&s, "and nine");
  w_u32(&s, 2);
  refused(&s, "key 'words'", "string 1 of 2 needs 8 bytes");
  w_header(&s, 0, 1);                                // a length that would wrap the cursor
  w_key_array(&s, "words", GGUF_STRING, 2);
  w_u64(&s, UINT64_MAX - 7);
  w_fill(&s, 50);
  refused(&s, "key 'words'", "string 0 of 2 needs 18446744073709551608 bytes");
}

static void test_alignment(void **state) {
  (void)state;
  str s = {0};
  const struct { enum gguf_type type; uint64_t v; const char *says;
  } bad[] = {{GGUF_UINT32, 0, "0 is no power of two"},
             {GGUF_UINT32, 3, "3 is no power of two"},
             {GGUF_UINT32, 4, "4 is no power of two from 8"},
             {GGUF_UINT32, 48, "48 is no power of two"},
             {GGUF_UINT32, 1ull << 31, "2147483648 is no power of two from 8 to 16777216"},
             {GGUF_UINT32, UINT32_MAX, "4294967295"},
             {GGUF_UINT64, 32, "expected UINT32, found UINT64"},
             {GGUF_INT32, 32, "expected UINT32, found INT32"},
             {GGUF_BOOL, 1, "expected UINT32, found BOOL"}};
  for (size_t i = 0; i < COUNT(bad); i++) {
    w_header(&s, 0, 1);
    w_key_int(&s, "general.alignment", bad[i].type, bad[i].v);
    refused(&s, "key 'general.alignment'", bad[i].says);
  }
  w_header(&s, 1, 1);                                // right, but the data that it puts off is not there
  w_key_int(&s, "general.alignment", GGUF_UINT32, 1 << 24);
  w_tensor(&s, "t", 1, W_NE(4), FORMAT_F32, 0);
  w_fill(&s, 4000);
  refused(&s, "tensor 't'", "16 bytes at offset 0");
}

// ---- Bad tensors ----

// A file with one tensor as given, 1000 bytes of data after it.
static str one_tensor(const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset) {
  str s = {0};
  w_header(&s, 1, 0);
  w_tensor(&s, name, n_dims, ne, type, offset);
  w_pad(&s, 32);
  w_fill(&s, 1000);
  return s;
}

static void test_shapes(void **state) {
  (void)state;
  const struct { uint32_t n_dims; uint64_t ne[4]; uint32_t type; const char *says;
  } bad[] = {{0, {1}, FORMAT_F32, "0 dimensions, not 1 to 4"},
             {5, {1, 1, 1, 1}, FORMAT_F32, "5 dimensions"},
             {UINT32_MAX, {1}, FORMAT_F32, "4294967295 dimensions"},
             {1, {0}, FORMAT_F32, "dimension 0 is 0"},
             {3, {4, 0, 4}, FORMAT_F32, "dimension 1 is 0"},
             {2, {4, (uint64_t)-1}, FORMAT_F32, "dimension 1 is -1"},
             {1, {1ull << 63}, FORMAT_F32, "dimension 0 is -9223372036854775808"},
             {2, {1ull << 32, 1ull << 32}, FORMAT_F32, "dimension 1 is 4294967296: more elements"},
             {4, {1 << 16, 1 << 16, 1 << 16, 1 << 16}, FORMAT_F32, "dimension 3 is 65536: more elements"},
             {3, {0x100000001, 0xffffffff, 2}, FORMAT_Q8_0, "more elements"},
             {2, {1ull << 62, 2}, FORMAT_Q4_0, "more elements"},
             {1, {1ull << 62}, FORMAT_F32, "more than 2^63 - 1 bytes"},
             {1, {(1ull << 62) + 4}, FORMAT_F32, "more than 2^63 - 1 bytes"},
             {1, {(1ull << 63) - 32}, FORMAT_Q8_0, "more than 2^63 - 1 bytes"},
             {1, {INT64_MAX}, FORMAT_I8, "9223372036854775807 bytes at offset 0"},
             {1, {4}, 43, "unknown type 43"},
             {1, {4}, (uint32_t)-1, "unknown type 4294967295"},
             {1, {4}, 0x80000000u, "unknown type 2147483648"},
             {1, {33}, FORMAT_Q4_0, "rows of 33 elements are not whole blocks of Q4_0, which have 32"},
             {2, {128, 2}, FORMAT_Q4_K, "rows of 128 elements are not whole blocks of Q4_K"},
             {2, {32, 8}, FORMAT_Q6_K, "rows of 32"},
             {1, {64}, FORMAT_Q1_0, "not whole blocks of Q1_0, which have 128"},
             {2, {128, 4}, FORMAT_IQ4_K, "rows of 128 elements are not whole blocks of IQ4_K, which have 256"},
             {2, {256, 8}, FORMAT_IQ4_KS, "1120 bytes at offset 0"},
             {2, {256, 6}, FORMAT_IQ4_K_R4, "6 rows do not fit IQ4_K_R4, which has 4 together"},
             // 8 (4 + 136)
             {1, {32}, FORMAT_Q8_0_R8, "1 rows do not fit Q8_0_R8, which has 8 together"}};
  for (size_t i = 0; i < COUNT(bad); i++) {
    str s = one_tensor("blk.0.attn_q.weight", bad[i].n_dims, bad[i].ne, bad[i].type, 0);
    refused(&s, "tensor 'blk.0.attn_q.weight'", bad[i].says);
  }
  const uint32_t gone[] = {4, 5, 31, 32, 33, 36, 37, 38};
  for (size_t i = 0; i < COUNT(gone); i++) {
    char text[60];
    snprintf(text, sizeof text, "removed type %u (%s)", gone[i], format_removed_name(gone[i]));
    str s = one_tensor("t", 1, W_NE(256), gone[i], 0);
    refused(&s, "tensor 't'", text);
  }
}

static void test_names(void **state) {
  (void)state;
  str s = one_tensor("", 1, W_NE(4), FORMAT_F32, 0);
  refused(&s, "tensor 0", "is empty");
  const char *long_name = "a.name.of.sixty-four.bytes.which.is.one.more.than.the.format.has";
  assert_int_equal(strlen(long_name), 64);
  s = one_tensor(long_name, 1, W_NE(4), FORMAT_F32, 0);
  refused(&s, "tensor 'a.name.of", "64 bytes, more than the limit of 63");
  s = one_tensor("nu\xffl", 1, W_NE(4), FORMAT_F32, 0);
  refused(&s, "tensor 'nu\\xffl'", "byte 2 is 0xff");
  s = one_tensor(long_name + 1, 1, W_NE(4), FORMAT_F32, 0);
  gguf *g;
  void *copy;
  error err = {0};
  assert_int_equal(open_bytes(s.at, s.n, &copy, &g, &err), 0);
  assert_non_null(gguf_tensor_find(g, long_name + 1));
  gguf_close(g);
  free(copy);
  str_free(&s);
  w_header(&s, 1, 0);
  w_u64(&s, UINT64_MAX);
  w_fill(&s, 100);
  refused(&s, "18446744073709551615 bytes");
  w_header(&s, 3, 0);
  w_tensor(&s, "same", 1, W_NE(4), FORMAT_F32, 0);
  w_tensor(&s, "other", 1, W_NE(4), FORMAT_F32, 32);
  w_tensor(&s, "same", 1, W_NE(4), FORMAT_F32, 64);
  w_pad(&s, 32);
  w_fill(&s, 80);
  refused(&s, "tensor 'same'", "more than once");
}

static void test_offsets(void **state) {
  (void)state;
  const struct { uint64_t ne, offset; const char *says;
  } bad[] = {{4, 1, "offset 1 is no multiple of the alignment, 32"},
             {4, 48, "offset 48"},
             {4, UINT64_MAX, "offset 18446744073709551615"},
             {4, 992, "16 bytes at offset 992 of the data reach past its end (1000 bytes)"},
             {251, 0, "1004 bytes at offset 0"},
             {4, 1024, "offset 1024"},
             {4, 1ull << 63, "offset 9223372036854775808"},
             {8, UINT64_MAX - 31, "32 bytes at offset 18446744073709551584"},
             {(1ull << 61) - 8, 1ull << 63, "9223372036854775776 bytes at offset 9223372036854775808"}};
  for (size_t i = 0; i < COUNT(bad); i++) {
    str s = one_tensor("t", 1, W_NE(bad[i].ne), FORMAT_F32, bad[i].offset);
    refused(&s, "tensor 't'", bad[i].says);
  }
  str s = one_tensor("t", 1, W_NE(250), FORMAT_F32, 0);          // fits to the last byte
  gguf *g;
  void *copy;
  error err = {0};
  assert_int_equal(open_bytes(s.at, s.n, &copy, &g, &err), 0);
  read_all(g, 1);
  gguf_close(g);
  free(copy);
  str_free(&s);
  const uint64_t second[] = {0, 32, 64};             // within, at the same place, and into the end of the first
  for (size_t i = 0; i < COUNT(second); i++) {
    w_header(&s, 2, 0);
    w_tensor(&s, "late", 1, W_NE(17), FORMAT_F32, 32);           // ends 4 bytes after 96
    w_tensor(&s, "early", 1, W_NE(9), FORMAT_F32, second[i]);
    w_pad(&s, 32);
    w_fill(&s, 300);
    refused(&s, "overlaps", "'late'", "'early'");
  }
}

// ---- Every truncation, many corruptions ----

static void test_truncation(void **state) {
  (void)state;
  str s = good_file();
  gguf *g;
  void *copy;
  error whole = {0};
  assert_int_equal(open_bytes(s.at, s.n, &copy, &g, &whole), 0);
  size_t end = gguf_shard_at(g, 0)->data_end;
  uint64_t sum = read_all(g, 0);
  assert_true(end < s.n);
  gguf_close(g);
  free(copy);
  for (size_t n = 0; n < s.n; n++) {
    error err = {0};
    int rc = open_bytes(s.at, n, &copy, &g, &err);
    if (n < end) {
      if (!rc) fail_msg("cut to %zu bytes of %zu, it was accepted", n, s.n);
      if (strncmp(err.text, "bad.gguf: ", 10)) fail_msg("cut to %zu bytes: '%s'", n, err.text);
    } else {                                         // only padding is gone
      if (rc) fail_msg("cut to %zu bytes: '%s'", n, err.text);
      assert_true(read_all(g, 0) == sum);
    }
    gguf_close(g);
    free(copy);
  }
  str_free(&s);
}

static void test_corruption(void **state) {
  (void)state;
  str s = good_file();
  uint64_t seed = 20260101;
  int opened = 0, failed = 0;
  for (int i = 0; i < 10000; i++) {
    gguf *g;
    void *copy;
    error err = {0};
    seed = hash_u64(seed, 1);
    size_t at = seed % s.n;
    char old = s.at[at];
    s.at[at] = (char)(old ^ (char)(1 + (seed >> 40) % 255));
    if (open_bytes(s.at, s.n, &copy, &g, &err)) { failed++; assert_int_equal(strncmp(err.text, "bad.gguf: ", 10), 0); }
    else { opened++; read_all(g, i % 3 ? 0 : 2); }
    gguf_close(g);
    free(copy);
    s.at[at] = old;
  }
  assert_true(opened > 1000 && failed > 1000);       // both happen, or the test tests nothing
  str_free(&s);
}

// Numbers that break arithmetic, at every place of the file, as 32 and as 64 bits.
static void test_extreme_numbers(void **state) {
  (void)state;
  str s = good_file(), t = {0};
  const uint64_t values[] = {0,   1,       2,          0x7fffffff, 0x80000000, 0xffffffff,     1ull << 32,
                             s.n, s.n - 1, 1ull << 60, INT64_MAX,  1ull << 63, UINT64_MAX - 7, UINT64_MAX};
  for (size_t at = 4; at + 8 <= s.n; at++)
    for (size_t v = 0; v < COUNT(values); v++)
      for (size_t bytes = 4; bytes <= 8; bytes += 4) {
        gguf *g;
        void *copy;
        error err = {0};
        t.n = 0;
        str_addn(&t, s.at, at);
        w_int(&t, values[v], (int)bytes);
        str_addn(&t, s.at + at + bytes, s.n - at - bytes);
        if (open_bytes(t.at, t.n, &copy, &g, &err)) assert_int_equal(strncmp(err.text, "bad.gguf: ", 10), 0);
        else read_all(g, 0);
        gguf_close(g);
        free(copy);
      }
  str_free(&s);
  str_free(&t);
}

// A count that does not fit must be refused before anything is allocated for it.
static void test_memory_is_bounded(void **state) {
  (void)state;
  str s = {0};
  w_header(&s, 0, 1);
  w_key_array(&s, "k", GGUF_STRING, 2000000);        // 16 MB of empty strings, claimed to be one more
  for (int i = 0; i < 2000000 - 1; i++) w_u64(&s, 0);
  size_t before = 0, after = 0;
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  before = (size_t)u.ru_maxrss;
  refused(&s, "array of 2000000 STRING");
  getrusage(RUSAGE_SELF, &u);
  after = (size_t)u.ru_maxrss;
  assert_true(after - before < 64 * 1024);           // KiB; the copy of the file itself is 16 MB
}

// ---- Real files on disk ----

static char folder[] = "/tmp/weft-gguf-XXXXXX";

static const char *in_folder(const char *name) {
  static char path[4][300];
  static int next;
  next = (next + 1) % 4;
  snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
  return path[next];
}

static const char *write_file(const char *name, str *s) {
  const char *path = in_folder(name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(str_c(s), 1, s->n, f), s->n);
  assert_int_equal(fclose(f), 0);
  str_free(s);
  return path;
}

static void not_opened(const char *path, const char *part, const char *part2) {
  gguf *g;
  error err = {0};
  if (!gguf_open(path, &g, &err)) fail_msg("%s was accepted", path);
  if (!strstr(err.text, part) || !strstr(err.text, part2))
    fail_msg("'%s' does not say '%s' and '%s'", err.text, part, part2);
  if (strncmp(err.text, path, strlen(path)) && !strstr(err.text, folder))
    fail_msg("'%s' does not name %s", err.text, path);
}

static void test_files(void **state) {
  (void)state;
  str s = good_file();
  size_t size = s.n;
  gguf *g;
  error err = {0};
  const char *path = write_file("good.gguf", &s);
  if (gguf_open(path, &g, &err)) fail_msg("%s", err.text);
  assert_string_equal(gguf_path(g), path);
  read_all(g, 0);
  assert_int_equal(gguf_check_size(g, &err), 0);
  assert_int_equal(truncate(path, (off_t)size - 100), 0);
  assert_int_equal(gguf_check_size(g, &err), -1);    // cut after it was mapped
  if (!strstr(err.text, path) || !strstr(err.text, "it was cut")) fail_msg("%s", err.text);
  gguf_close(g);
  not_opened(path, "tensor 'bias'", "truncated or damaged");
  not_opened(in_folder("none.gguf"), "cannot be opened", "No such file");
  not_opened(folder, "is a directory", "");
  not_opened(write_file("empty.gguf", &s), "the file is empty", "empty.gguf");
  assert_int_equal(mkfifo(in_folder("pipe.gguf"), 0600), 0);
  not_opened(in_folder("pipe.gguf"), "not a regular file", "pipe.gguf");
  s = good_file();
  path = write_file("secret.gguf", &s);
  assert_int_equal(chmod(path, 0), 0);
  if (geteuid()) not_opened(path, "cannot be opened", "Permission denied");
  else print_message("unreadable file: skipped, root reads everything\n");
  not_opened(in_folder("good.gguf/below"), "cannot be opened", "Not a directory");
}

// Part no (from 0) of a split model of `count` files, with two tensors in it; -1 leaves a key away.
static str part(int no, int count, int tensors, const char *a, const char *b) {
  str s = {0};
  w_header(&s, 2, (uint64_t)((no >= 0) + (count >= 0) + (tensors >= 0) + 1));
  w_key_int(&s, "test.number", GGUF_UINT32, (uint64_t)(no + 100));
  if (no >= 0) w_key_int(&s, "split.no", GGUF_UINT16, (uint64_t)no);
  if (count >= 0) w_key_int(&s, "split.count", GGUF_UINT16, (uint64_t)count);
  if (tensors >= 0) w_key_int(&s, "split.tensors.count", GGUF_INT32, (uint64_t)tensors);
  w_tensor(&s, a, 1, W_NE(4), FORMAT_F32, 0);
  w_tensor(&s, b, 1, W_NE(8), FORMAT_F32, 32);
  w_pad(&s, 32);
  w_fill(&s, 64);
  return s;
}

static void write_part(const char *name, str s) { write_file(name, &s); }

static void test_split(void **state) {
  (void)state;
  write_part("m-00001-of-00003.gguf", part(0, 3, 6, "a", "b"));
  write_part("m-00002-of-00003.gguf", part(1, 3, 6, "c", "d"));
  write_part("m-00003-of-00003.gguf", part(2, 3, 6, "e", "f"));
  gguf *g;
  error err = {0};
  uint32_t v;
  if (gguf_open(in_folder("m-00001-of-00003.gguf"), &g, &err)) fail_msg("%s", err.text);
  assert_int_equal(gguf_n_shards(g), 3);
  assert_int_equal(gguf_n_tensors(g), 6);
  assert_string_equal(gguf_tensor_at(g, 5)->name, "f");
  assert_int_equal(gguf_tensor_find(g, "d")->shard, 1);
  assert_string_equal(gguf_shard_at(g, 2)->path, in_folder("m-00003-of-00003.gguf"));
  assert_int_equal(gguf_u32(g, "test.number", &v, &err), 0);
  assert_int_equal(v, 100);
  assert_int_equal(gguf_tensor_bytes(g), 3 * 48);
  read_all(g, 0);
  assert_int_equal(gguf_check_size(g, &err), 0);
  assert_int_equal(truncate(in_folder("m-00003-of-00003.gguf"), 100), 0);
  assert_int_equal(gguf_check_size(g, &err), -1);
  assert_non_null(strstr(err.text, "m-00003-of-00003.gguf"));
  gguf_close(g);
  const char *first = in_folder("m-00001-of-00003.gguf");
  not_opened(first, "m-00003-of-00003.gguf", "truncated or damaged");
  not_opened(in_folder("m-00002-of-00003.gguf"), "part 2 of a split model", "m-00001-of-00003.gguf");
  assert_int_equal(unlink(in_folder("m-00003-of-00003.gguf")), 0);
  not_opened(in_folder("m-00001-of-00003.gguf"), "m-00003-of-00003.gguf: cannot be opened", "No such file");
}

static void test_split_lies(void **state) {
  (void)state;
  const struct { int no, count, tensors; const char *a, *says, *says2;
  } bad[] = {// the second of two
             {0, 2, 4, "c", "l-00002-of-00002.gguf: key 'split.no': 0", "wrong order"},
             {1, 3, 4, "c", "key 'split.count': 3", "but 2 in"},
             {1, 2, 5, "c", "key 'split.tensors.count': 5", "but 4 in"},
             {-1, 2, 4, "c", "key 'split.no' is missing", "l-00002"},
             {-1, -1, -1, "c", "key 'split.count': 1, but 2 in", "l-00002"},
             {1, 2, -1, "c", "key 'split.tensors.count' is missing", "l-00002"},
             {2, 2, 4, "c", "key 'split.no': 2 is not less than split.count, 2", "l-00002"},
             {1, 2, 4, "a", "tensor 'a' stands in", "l-00001-of-00002.gguf"},
             {1, 0, 4, "c", "key 'split.count': 0", "l-00002"}};
  write_part("l-00001-of-00002.gguf", part(0, 2, 4, "a", "b"));
  for (size_t i = 0; i < COUNT(bad); i++) {
    write_part("l-00002-of-00002.gguf", part(bad[i].no, bad[i].count, bad[i].tensors, bad[i].a, "d"));
    not_opened(in_folder("l-00001-of-00002.gguf"), bad[i].says, bad[i].says2);
  }
  const struct { const char *name; int no, count, tensors; const char *says;
  } first[] = {{"l-00001-of-00002.gguf", 0, 2, 99, "key 'split.tensors.count': 4, but 99"},
               {"l-00001-of-00002.gguf", 0, 3, 4, "the name says 2 files, but key 'split.count' says 3"},
               {"l-00001-of-00002.gguf", 1, 2, 4, "the name says part 1, but key 'split.no' says 1, which is part 2"},
               {"renamed.gguf", 0, 2, 4, "does not end in -00001-of-00002.gguf"},
               {"x.gguf", 0, 65535, 4, "key 'split.count': 65535 is not from 1 to 9999"},
               {"x.gguf", 0, 1, 7, "key 'split.tensors.count': 7, but the 1 files have 2 tensors"},
               {"x.gguf", 1, 1, 2, "key 'split.no': 1 is not less than split.count, 1"},
               {"x.gguf", 0, -1, 2, "key 'split.count' is missing"},
               {"00001-of-00002.gguf", 0, 2, 4, "does not end in -00001-of-00002.gguf"}};
  write_part("l-00002-of-00002.gguf", part(1, 2, 4, "c", "d"));
  for (size_t i = 0; i < COUNT(first); i++) {
    write_part(first[i].name, part(first[i].no, first[i].count, first[i].tensors, "a", "b"));
    not_opened(in_folder(first[i].name), first[i].says, first[i].name);
  }
  str s = {0};
  w_header(&s, 0, 3);
  w_key_int(&s, "split.count", GGUF_INT32, (uint64_t)-2);
  w_key_int(&s, "split.no", GGUF_INT32, 0);
  w_key_int(&s, "split.tensors.count", GGUF_INT32, 0);
  refused(&s, "key 'split.count': -2 is negative");
  w_header(&s, 0, 2);
  w_key_str(&s, "split.count", "two");
  w_key_int(&s, "split.no", GGUF_INT32, 0);
  refused(&s, "key 'split.count': expected an integer, found STRING");
  s = part(0, 2, 4, "a", "b");
  refused(&s, "key 'split.count': 2", "from memory");
  gguf *g;
  error err = {0};
  write_part("single.gguf", part(0, 1, 2, "a", "b"));        // one file that says so
  if (gguf_open(in_folder("single.gguf"), &g, &err)) fail_msg("%s", err.text);
  gguf_close(g);
  write_part("n-00001-of-00002.gguf", part(-1, -1, -1, "a", "b"));      // a name alone makes no split model
  if (gguf_open(in_folder("n-00001-of-00002.gguf"), &g, &err)) fail_msg("%s", err.text);
  gguf_close(g);
}

static void test_real_files(void **state) {
  (void)state;
  const struct { const char *name; size_t tensors; const char *key; size_t tokens;
  } real[] = {{"models/tiny-llama.gguf", 0, "tokenizer.ggml.tokens", 0},
              {"models/tiny-qwen2.gguf", 0, "tokenizer.ggml.tokens", 0},
              {"models/tiny-qwen3.gguf", 0, "tokenizer.ggml.tokens", 0},
              {"models/tiny-qwen3moe.gguf", 0, "tokenizer.ggml.tokens", 0},
              {"models/tiny-deepseek2.gguf", 0, "tokenizer.ggml.tokens", 0},
              {"models/tiny-deepseek2-mla.gguf", 0, "tokenizer.ggml.tokens", 0},
              {"models/tinypy-q4_k_m.gguf", 0, "tokenizer.ggml.tokens", 0},
              {"models/tinypy-f16.gguf", 0, "tokenizer.ggml.tokens", 0},
              {"vocabs/ggml-vocab-llama-bpe.gguf", 0, "tokenizer.ggml.tokens", 128256},
              {"vocabs/ggml-vocab-llama-spm.gguf", 0, "tokenizer.ggml.tokens", 32000},
              {"vocabs/ggml-vocab-qwen2.gguf", 0, "tokenizer.ggml.tokens", 151936},
              {"vocabs/ggml-vocab-gpt-2.gguf", 0, "tokenizer.ggml.tokens", 50257}};
  if (access(WEFT_SHARED_DIR "/models", R_OK)) {
    print_message("skipped: %s is not there\n", WEFT_SHARED_DIR "/models");
    skip();
  }
  for (size_t i = 0; i < COUNT(real); i++) {
    char path[1000];
    gguf *g;
    error err = {0};
    const gguf_value *tokens;
    snprintf(path, sizeof path, "%s/%s", WEFT_SHARED_DIR, real[i].name);
    double begin = now_s();
    if (gguf_open(path, &g, &err)) fail_msg("%s", err.text);
    double ms = 1e3 * (now_s() - begin);
    assert_int_equal(gguf_strs(g, real[i].key, &tokens, &err), 0);
    if (real[i].tokens) assert_int_equal(tokens->a.n, real[i].tokens);
    bool model = !strncmp(real[i].name, "models", 6);
    if (model) assert_non_null(gguf_tensor_find(g, "token_embd.weight"));
    assert_int_equal(gguf_n_tensors(g) > 0, model);
    read_all(g, 10);
    print_message("%-40s %4zu tensors %7zu tokens, opened in %.2f ms\n", real[i].name, gguf_n_tensors(g), tokens->a.n,
                  ms);
    gguf_close(g);
  }
}

static int make_folder(void **state) { (void)state; return mkdtemp(folder) ? 0 : -1; }
static int remove_folder(void **state) {
  (void)state;
  char command[400];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                     cmocka_unit_test(test_optional),
                                     cmocka_unit_test(test_getters_refuse),
                                     cmocka_unit_test(test_arrays),
                                     cmocka_unit_test(test_tensors),
                                     cmocka_unit_test(test_print),
                                     cmocka_unit_test(test_version_2_and_no_tensors),
                                     cmocka_unit_test(test_formats),
                                     cmocka_unit_test(test_header),
                                     cmocka_unit_test(test_counts),
                                     cmocka_unit_test(test_keys),
                                     cmocka_unit_test(test_value_types),
                                     cmocka_unit_test(test_bad_arrays),
                                     cmocka_unit_test(test_alignment),
                                     cmocka_unit_test(test_shapes),
                                     cmocka_unit_test(test_names),
                                     cmocka_unit_test(test_offsets),
                                     cmocka_unit_test(test_truncation),
                                     cmocka_unit_test(test_corruption),
                                     cmocka_unit_test(test_extreme_numbers),
                                     cmocka_unit_test(test_memory_is_bounded),
                                     cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_split),
                                     cmocka_unit_test(test_split_lies),
                                     cmocka_unit_test(test_real_files)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
