// Whether a machine has time to spare: from figures, and from the files of a made-up machine.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "device/spare.h"
#include "device/made_up.h"

static void figures(void **state) {
  (void)state;
  assert_int_equal(spare_judge(4, 2, 2, 2), SPARE_FREE);
  assert_int_equal(spare_judge(4, 2, 3.1, 3), SPARE_FREE);          // the third is our own, for candidates
  assert_int_equal(spare_judge(4, 4, 4, 4), SPARE_SHARED);
  // our threads wait; they will want their processors again
  assert_int_equal(spare_judge(4, 4, 2, 1.9), SPARE_SHARED);
  assert_int_equal(spare_judge(4, 4, 4, 3), SPARE_NONE);            // somebody else has one
  assert_int_equal(spare_judge(4, 2, 4, 2), SPARE_NONE);
  assert_int_equal(spare_judge(8, 2, 4, 2), SPARE_FREE);            // somebody else, and still idle ones
  assert_int_equal(spare_judge(2, 8, 2, 2), SPARE_SHARED);
}

static char root[64];

static void put(const char *path, const char *text) { made_up(root, path, text); }

#define SUPPLY "/sys/class/power_supply/"

static void batteries(void **state) {
  (void)state;
  strcpy(root, "/tmp/weft-spare-XXXXXX");
  assert_non_null(mkdtemp(root));
  assert_false(spare_on_battery(root));                             // a machine without any
  put(SUPPLY "AC/type", "Mains\n");
  put(SUPPLY "BAT0/type", "Battery\n");
  put(SUPPLY "BAT0/status", "Charging\n");
  assert_false(spare_on_battery(root));
  put(SUPPLY "mouse/type", "Battery\n");
  put(SUPPLY "mouse/status", "Discharging\n");
  put(SUPPLY "mouse/scope", "Device\n");
  assert_false(spare_on_battery(root));
  put(SUPPLY "BAT0/status", "Discharging\n");
  assert_true(spare_on_battery(root));
}

// Ticks of all processors this machine has, so that whatever our affinity is there is something to read.
static void put_stat(int ticks) {
  char text[1 << 14] = "cpu  1 2 3 4 5 6 7 8 9 10\n";
  for (int cpu = 0; cpu < 256; cpu++) snprintf(text + strlen(text), sizeof text - strlen(text),
      "cpu%d %d 0 0 50 0 0 0 0 0 0\n", cpu, ticks);
  put("/proc/stat", text);
}

static void looks(void **state) {
  (void)state;
  spare s;
  strcpy(root, "/tmp/weft-spare-XXXXXX");
  assert_non_null(mkdtemp(root));
  spare_open(&s, root, 1);
  s.at -= 1;
  assert_int_equal(spare_look(&s), SPARE_NONE);                     // nothing is known
  put_stat(1000);
  spare_open(&s, root, 1000);
  assert_int_equal(spare_look(&s), SPARE_NONE);                     // too soon to tell
  s.at -= 1;
  assert_int_equal(spare_look(&s), SPARE_SHARED);                   // nobody did anything since
  s.threads = 0;
  s.at -= 1;
  assert_int_equal(spare_look(&s), SPARE_FREE);
  put_stat(100000);
  s.at -= 1;
  assert_int_equal(spare_look(&s), SPARE_NONE);                     // others did
  assert_int_equal(spare_look(&s), SPARE_NONE);
  s.at -= 1;
  assert_int_equal(spare_look(&s), SPARE_FREE);
  put(SUPPLY "BAT0/type", "Battery\n");
  put(SUPPLY "BAT0/status", "Discharging\n");
  s.at -= 1;
  assert_int_equal(spare_look(&s), SPARE_NONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(figures), cmocka_unit_test(batteries), cmocka_unit_test(looks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
