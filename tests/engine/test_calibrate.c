// What is measured of this machine: measured once, kept, read back, shown; nothing is measured where PREFETCH decides
// or nothing can be kept.
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "weft.h"
#include "base/env.h"
#include "device/cache.h"
#include "device/machine.h"
#include "engine/calibrate.h"

static char folder[] = "/tmp/weft-learn-XXXXXX";

static device *open_device(void) {
  device *d;
  error err = {0};
  if (device_open(2, 0, &d, &err)) fail_msg("%s", err.text);
  return d;
}

static int begin(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  env_set(ENV_WEFT_CACHE, folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  char path[512];
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (e->d_name[0] != '.') unlink(path);
  }
  if (d) closedir(d);
  rmdir(folder);
  return 0;
}

// All ways were measured, and the best is the fastest, or none where none is faster by a margin.
static void check_table(const calibration_table *l, int ways) {
  assert_int_equal(l->n, ways);
  double best = 0, none = 0;
  for (int i = 0; i < l->n; i++) {
    assert_true(l->tried[i].gb_s > 0);
    best = l->tried[i].gb_s > best ? l->tried[i].gb_s : best;
    if (!l->tried[i].with.kib) none = l->tried[i].gb_s;
  }
  for (int i = 0; i < l->n; i++)
    if (l->tried[i].with.kib == l->best.kib && l->tried[i].with.hint == l->best.hint)
      assert_true(l->best.kib == 0 || l->tried[i].gb_s == best);
  assert_true(none > 0 && (l->best.kib || best <= none * 1.03));
}

static bool same(prefetch x, prefetch y) { return x.kib == y.kib && x.hint == y.hint; }

static void test_measured_once(void **state) {
  (void)state;
  machine_profile first = {0}, again = {0};
  device *d = open_device();
  assert_true(d->cache && cache_is_on(d->cache));
  assert_true(!calibration_known(d, &first) || first.cpu_profile[0]);      // measured nothing yet
  error err = {0};
  if (calibration_measure(d, &first, &err)) fail_msg("%s", err.text);
  check_table(&first.one, CALIBRATION_VARIANTS);
  check_table(&first.many, CALIBRATION_TILE_VARIANTS);
  first.busy = false;                              // or it would be measured again
  calibration_save(d, &first);
  device_close(d);
  d = open_device();
  assert_true(calibration_known(d, &again));
  assert_true(same(again.one.best, first.one.best) && again.one.n == first.one.n);
  assert_true(same(again.many.best, first.many.best) && again.many.n == first.many.n);
  calibrate(d);
  assert_true(same(d->target.distance, first.one.best) && same(d->target.distance_of_tile, first.many.best));
  device_close(d);
}

// What was measured beside other programs stays, so that kernels do, until they leave the machine alone.
static void test_busy(void **state) {
  (void)state;
  machine_profile p, before = {.one = {{2, PREFETCH_T1}, 1, {{{2, PREFETCH_T1}, 10}}},
                               .many = {{32, PREFETCH_T2}, 1, {{{32, PREFETCH_T2}, 20}}}, .busy = true};
  device *d = open_device();
  calibration_save(d, &before);
  assert_true(calibration_known(d, &p) && p.busy && p.one.n == 1 && p.one.best.kib == 2);
  assert_true(p.many.n == 1 && same(p.many.best, (prefetch){32, PREFETCH_T2}) && p.many.tried[0].gb_s == 20);
  calibrate(d);
  assert_true(calibration_known(d, &p));
  if (p.busy) assert_true(p.one.n == 1 && same(p.one.best, (prefetch){2, PREFETCH_T1}));
  else assert_int_equal(p.one.n, CALIBRATION_VARIANTS);
  assert_true(same(d->target.distance, p.one.best) && same(d->target.distance_of_tile, p.many.best));
  device_close(d);
}

static void test_told(void **state) {
  (void)state;
  static const struct {
    const char *text;
    prefetch is;
  } good[] = {{"0", {0, 0}},
              {"8", {8, PREFETCH_T0}},
              {"16,nta", {16, PREFETCH_NTA}},
              {"2,t1", {2, PREFETCH_T1}},
              {"0,t1", {0, 0}}};
  static const char *const bad[] = {"x", "8,", "8,t3", "65", "-1", "8 t0", ",t0"};
  machine_profile p;
  for (size_t i = 0; i < COUNT(good); i++) {
    env_set(ENV_PREFETCH, good[i].text);
    device *d = open_device();
    assert_true(same(d->target.distance, good[i].is) && same(d->target.distance_of_tile, good[i].is));
    assert_false(calibration_known(d, &p));
    calibrate(d);
    assert_true(same(d->target.distance, good[i].is) && same(d->target.distance_of_tile, good[i].is));
    device_close(d);
  }
  for (size_t i = 0; i < COUNT(bad); i++) {
    device *d;
    error err = {0};
    env_set(ENV_PREFETCH, bad[i]);
    assert_int_equal(device_open(1, 0, &d, &err), -1);
    assert_non_null(strstr(err.text, bad[i]));
  }
  env_set(ENV_PREFETCH, "");
}

// A profile that a run sent which was taken over: what is no measurement, or would write to a terminal, is none.
static void test_forged(void **state) {
  (void)state;
  static const struct {
    double barrier, speed;
    const char *name;
    bool taken;
  } forged[] = {{75, 10, "Zen 4", true},         {0, 0, "", true},           {NAN, 10, "", false},
                {INFINITY, 10, "", false},       {-1e300, 10, "", false},    {75, NAN, "", false},
                {75, INFINITY, "", false},       {75, -1, "", false},        {75, 1e300, "", false},
                {75, 10, "\x1b]0;x\a", false},   {75, 10, "a\nb", false},    {75, 10, "\xff", false},
                {75, 10, "\xe2\x80\xae", false}};
  for (size_t i = 0; i < COUNT(forged); i++)
    for (int table = 0; table < 2; table++) {
      machine_profile p = {.one = {{2, PREFETCH_T1}, 1, {{{2, PREFETCH_T1}, 10}}},
                           .many = {{32, PREFETCH_T2}, 1, {{{32, PREFETCH_T2}, 20}}}, .barrier_ns = forged[i].barrier},
                      got = {0};
      (table ? &p.many : &p.one)->tried[0].gb_s = forged[i].speed;
      snprintf(p.cpu_profile, sizeof p.cpu_profile, "%s", forged[i].name);
      device *d = open_device();
      calibration_save(d, &p);
      bool known = calibration_known(d, &got) && got.one.n == 1;       // or it is one that came with Weft
      if (known != forged[i].taken) fail_msg("profile %zu", i);
      device_close(d);
    }
}

static void test_no_cache(void **state) {
  (void)state;
  machine_profile p;
  env_set(ENV_WEFT_CACHE, "off");
  device *d = open_device();
  calibrate(d);
  assert_int_equal(d->target.distance.kib, 0);
  assert_false(calibration_known(d, &p));
  device_close(d);
  env_set(ENV_WEFT_CACHE, folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_measured_once), cmocka_unit_test(test_busy),
                                     cmocka_unit_test(test_told), cmocka_unit_test(test_forged),
                                     cmocka_unit_test(test_no_cache)};
  return cmocka_run_group_tests(tests, begin, end);
}
