// Profiles that come with Weft: each file can be read, holds for the processors that it names and for no others, and
// spares the first start the measuring.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/env.h"
#include "device/cache.h"
#include "device/llvm.h"
#include "engine/cpu_profiles.h"

static const char good[] = "{\"name\": \"Some 5\", \"vendor\": \"intel\", \"family\": 6,"
                           "\"models\": [[80, 85], [106, 106]],"
                           "\"vectors\": 512, \"llvm\": 19, \"prefetch\": \"4,t0\", \"barrier_ns\": 90.5,"
                           "\"gb_s\": {\"0\": 16.4, \"4,t0\": 22.6}, \"prefetch_many\": \"32,t1\","
                           "\"gb_s_many\": {\"0\": 8.5, \"32,t1\": 9.5}}";

static const char *held(const char *text, const cpu_features *cpu, int bits, int llvm) {
  static char name[32];
  machine_profile p;
  error err = {0};
  if (cpu_profiles_read(text, strlen(text), cpu, bits, llvm, name, &p, &err)) fail_msg("%s", err.text);
  return name;
}

static void test_matches(void **state) {
  (void)state;
  static const struct { cpu_features cpu; int bits, llvm; bool is; } cases[] = {
    {{.intel = true, .family = 6, .model = 80}, 512, 19, true},
    {{.intel = true, .family = 6, .model = 85}, 512, 19, true},
    {{.intel = true, .family = 6, .model = 106}, 512, 19, true},
    {{.intel = true, .family = 6, .model = 86}, 512, 19, false},
    {{.intel = true, .family = 6, .model = 79}, 512, 19, false},
    {{.intel = true, .family = 25, .model = 80}, 512, 19, false},
    {{.amd = true, .family = 6, .model = 80}, 512, 19, false},
    {{.arm = true, .intel = true, .family = 6, .model = 80}, 512, 19, false},
    {{.intel = true, .family = 6, .model = 80}, 256, 19, false},
    {{.intel = true, .family = 6, .model = 80}, 512, 18, false},
  };
  for (size_t i = 0; i < COUNT(cases); i++)
    assert_string_equal(held(good, &cases[i].cpu, cases[i].bits, cases[i].llvm), cases[i].is ? "Some 5" : "");
}

static void test_contents(void **state) {
  (void)state;
  const cpu_features cpu = {.intel = true, .family = 6, .model = 80};
  char name[32];
  machine_profile p;
  error err = {0};
  assert_int_equal(cpu_profiles_read(good, strlen(good), &cpu, 512, 19, name, &p, &err), 0);
  assert_true(p.one.best.kib == 4 && p.one.best.hint == PREFETCH_T0 && p.one.n == 2 && p.barrier_ns == 90.5 && !p.busy);
  assert_true(p.one.tried[0].with.kib == 0 && p.one.tried[0].gb_s == 16.4);
  assert_true(p.one.tried[1].with.kib == 4 && p.one.tried[1].gb_s == 22.6);
  assert_true(p.many.best.kib == 32 && p.many.best.hint == PREFETCH_T1 && p.many.n == 2);
  assert_true(p.many.tried[1].with.kib == 32 && p.many.tried[1].gb_s == 9.5);
}

// What is not in the form is refused, and says so.
static void test_refused(void **state) {
  (void)state;
  static const char *const wrong[][2] = {{"\"name\": \"Some 5\"", "\"name\": \"a name of more than thirty-one bytes\""},
                                         {"\"vendor\": \"intel\"", "\"vendor\": \"via\""},
                                         {"\"family\": 6", "\"family\": \"6\""},
                                         {"4,t0\", \"barrier", "4,t9\", \"barrier"},
                                         {"22.6", "-1"},
                                         {"22.6", "\"fast\""},
                                         {"\"4,t0\":", "\"fast\":"},
                                         {"\"llvm\": 19,", ""},
                                         {"[80, 85]", "80"},
                                         {"[80, 85]", "[80]"},
                                         {"[80, 85]", "[80, \"85\"]"},
                                         {"[[80, 85], [106, 106]]", "[]"},
                                         {"\"llvm\"", "\"more\": 1, \"llvm\""},
                                         {"9.5}}", "9.5}"},
                                         {"32,t1\",", "32,t7\","},
                                         {"8.5", "-8"},
                                         {"\"prefetch_many\": \"32,t1\",", ""},
                                         {"\"0\": 16.4, \"4,t0\": 22.6", ""},
                                         {"\"0\": 16.4,", "\"0\": 1, \"1\": 1, \"2\": 1, \"3\": 1, \"5\": 1,"}};
  const cpu_features cpu = {.intel = true, .family = 6, .model = 80};
  for (size_t i = 0; i < COUNT(wrong); i++) {
    char name[32];
    machine_profile p;
    error err = {0};
    str text = {0};
    const char *at = strstr(good, wrong[i][0]);
    assert_non_null(at);
    str_addf(&text, "%.*s%s%s", (int)(at - good), good, wrong[i][1], at + strlen(wrong[i][0]));
    assert_int_equal(cpu_profiles_read(text.at, text.n, &cpu, 512, 19, name, &p, &err), -1);
    assert_true(err.text[0] && !name[0]);
    str_free(&text);
  }
}

static void check_table(const calibration_table *l, int ways) {
  double best = 0, chosen = 0;
  for (int k = 0; k < l->n; k++) {
    best = l->tried[k].gb_s > best ? l->tried[k].gb_s : best;
    if (l->tried[k].with.kib == l->best.kib && l->tried[k].with.hint == l->best.hint) chosen = l->tried[k].gb_s;
  }
  assert_true(l->n == ways && chosen > 0 && best <= chosen * 1.03);
}

// Those in the tree: whole, and what they choose is what they measured.
static void test_files(void **state) {
  (void)state;
  size_t n, i = 0;
  for (const char *text; (text = cpu_profiles_at(i, &n)); i++) {
    char name[32];
    machine_profile p;
    error err = {0};
    if (cpu_profiles_read(text, n, &(cpu_features){0}, 0, 0, name, &p, &err)) fail_msg("file %zu: %s", i, err.text);
    check_table(&p.one, CALIBRATION_VARIANTS);
    check_table(&p.many, CALIBRATION_TILE_VARIANTS);
    assert_true(p.barrier_ns > 0);
  }
  assert_true(i >= 1);
}

// A Zen 4 with the compiler that its file names starts from the file; with another one, or narrower vectors, it does
// not.
static void test_found(void **state) {
  (void)state;
  const cpu_features zen4 = {.amd = true, .family = 25, .model = 17}, zen3 = {.amd = true, .family = 25, .model = 1};
  char name[32];
  machine_profile p;
  int at = 0;
  for (int llvm = 14; llvm < 40; llvm++) if (cpu_profiles_find(&zen4, 512, llvm, name, &p)) at = llvm;
  assert_true(at);
  assert_true(cpu_profiles_find(&zen4, 512, at, name, &p));
  assert_string_equal(name, "Zen 4");
  assert_int_equal(p.one.best.kib, 0);
  assert_int_equal(p.many.best.kib, 32);
  assert_false(cpu_profiles_find(&zen4, 256, at, name, &p));
  assert_false(cpu_profiles_find(&zen4, 512, at + 1, name, &p));
  assert_false(cpu_profiles_find(&zen3, 512, at, name, &p));
}

// Here: what a first start knows is what the files say, if one of them holds; kept, so that the next one agrees.
static void test_first_start(void **state) {
  (void)state;
  char folder[] = "/tmp/weft-shipped-XXXXXX", name[32];
  cpu_target cpu;
  device *d = NULL;
  machine_profile want, known;
  error err = {0};
  str version = {0};
  if (llvm_version(&version, &err)) fail_msg("%s", err.text);
  assert_non_null(mkdtemp(folder));
  env_set(ENV_WEFT_CACHE, folder);
  if (cpu_target_from_env(&cpu, &err) || device_open(1, 0, &d, &err)) fail_msg("%s", err.text);
  bool holds = cpu_profiles_find(&cpu.has, d->target.vector_bytes * 8, atoi(str_c(&version)), name, &want);
  for (int start = 0; start < 2 && cache_is_on(d->cache); start++) {
    bool is = calibration_known(d, &known);
    if (holds || !start) assert_int_equal(is, holds);
    if (holds) {
      assert_string_equal(known.cpu_profile, name);
      assert_true(known.one.best.kib == want.one.best.kib && known.one.n == want.one.n &&
                  known.barrier_ns == want.barrier_ns);
      calibrate(d);
      assert_true(d->target.distance.kib == want.one.best.kib && d->target.distance.hint == want.one.best.hint);
      assert_true(d->target.distance_of_tile.kib == want.many.best.kib &&
                  d->target.distance_of_tile.hint == want.many.best.hint);
    }
  }
  device_close(d);
  str_free(&version);
  char command[96];
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_matches), cmocka_unit_test(test_contents),
                                     cmocka_unit_test(test_refused), cmocka_unit_test(test_files),
                                     cmocka_unit_test(test_found),   cmocka_unit_test(test_first_start)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
