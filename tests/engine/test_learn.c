// What is measured of this machine: measured once, kept, read back, shown; nothing is measured where PREFETCH decides
// or nothing can be kept.
#define _GNU_SOURCE
#include <dirent.h>
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
#include "engine/learn.h"

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

static void test_measured_once(void **state) {
  (void)state;
  machine_profile first = {0}, again = {0};
  device *d = open_device();
  assert_true(d->cache && cache_is_on(d->cache));
  assert_true(!machine_known(d, &first) || first.shipped[0]);      // measured nothing yet
  error err = {0};
  if (machine_look(d, &first, &err)) fail_msg("%s", err.text);
  assert_int_equal(first.n, LEARN_WAYS);
  double best = 0, none = 0;
  for (int i = 0; i < first.n; i++) {
    assert_true(first.tried[i].gb_s > 0);
    best = first.tried[i].gb_s > best ? first.tried[i].gb_s : best;
    if (!first.tried[i].with.kib) none = first.tried[i].gb_s;
    if (first.tried[i].with.kib == first.best.kib && first.tried[i].with.hint == first.best.hint)
      assert_true(first.best.kib == 0 || first.tried[i].gb_s == best);
  }
  assert_true(none > 0 && (first.best.kib || best <= none * 1.03));
  first.busy = false;                              // or it would be measured again
  machine_keep(d, &first);
  device_close(d);
  d = open_device();
  assert_true(machine_known(d, &again));
  assert_true(again.best.kib == first.best.kib && again.best.hint == first.best.hint && again.n == first.n);
  machine_learn(d);
  assert_true(d->target.ahead.kib == first.best.kib && d->target.ahead.hint == first.best.hint);
  device_close(d);
}

// What was measured beside other programs stays, so that kernels do, until they leave the machine alone.
static void test_busy(void **state) {
  (void)state;
  machine_profile p, before = {.best = {2, PREFETCH_T1}, .n = 1, .tried = {{{2, PREFETCH_T1}, 10}}, .busy = true};
  device *d = open_device();
  machine_keep(d, &before);
  assert_true(machine_known(d, &p) && p.busy && p.n == 1 && p.best.kib == 2);
  machine_learn(d);
  assert_true(machine_known(d, &p));
  if (p.busy) assert_true(p.n == 1 && p.best.kib == 2 && p.best.hint == PREFETCH_T1);
  else assert_int_equal(p.n, LEARN_WAYS);
  assert_true(d->target.ahead.kib == p.best.kib && d->target.ahead.hint == p.best.hint);
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
    assert_true(d->target.ahead.kib == good[i].is.kib && d->target.ahead.hint == good[i].is.hint);
    assert_false(machine_known(d, &p));
    machine_learn(d);
    assert_true(d->target.ahead.kib == good[i].is.kib && d->target.ahead.hint == good[i].is.hint);
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

static void test_no_cache(void **state) {
  (void)state;
  machine_profile p;
  env_set(ENV_WEFT_CACHE, "off");
  device *d = open_device();
  machine_learn(d);
  assert_int_equal(d->target.ahead.kib, 0);
  assert_false(machine_known(d, &p));
  device_close(d);
  env_set(ENV_WEFT_CACHE, folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_measured_once), cmocka_unit_test(test_busy),
                                     cmocka_unit_test(test_told), cmocka_unit_test(test_no_cache)};
  return cmocka_run_group_tests(tests, begin, end);
}
