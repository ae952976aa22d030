// What is advised, from the files of made-up machines.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "device/advice.h"
#include "device/made_up.h"

static char root[64];

static void put(const char *path, const char *text) { made_up(root, path, text); }

// Lines in all, of which one says this (NULL: none does).
static void says(int threads, int cores, int lines, const char *text) {
  str s = {0};
  str_add(&s, "");
  advice(root, threads, cores, &s);
  int n = 0;
  for (const char *c = s.at; *c; c++) n += *c == '\n';
  if (n != lines || (text && !strstr(s.at, text)))
    fail_msg("%d lines, with '%s', and not:\n%s", lines, text ? text : "", s.at);
  str_free(&s);
}

#define THP "/sys/kernel/mm/transparent_hugepage/enabled"
#define CLOCK "/sys/devices/system/cpu/cpu0/cpufreq/"

static void machines(void **state) {
  (void)state;
  strcpy(root, "/tmp/weft-advice-XXXXXX");
  assert_non_null(mkdtemp(root));
  says(4, 4, 0, NULL);                                              // a machine that says nothing
  says(8, 4, 1, "threads: 8 share 4 cores, and wait for one another; -t 4");
  says(2, 1, 1, "threads: 2 share 1 core,");
  put(THP, "always [madvise] never\n");
  says(4, 4, 0, NULL);
  put(THP, "always madvise [never]\n");
  says(4, 4, 1, "huge pages: they are off");
  put(THP, "[always] madvise never\n");
  put("/proc/loadavg", "0.20 0.10 0.05 1/100 999\n");
  says(4, 4, 0, NULL);
  put("/proc/loadavg", "2.00 1.10 0.05 3/100 999\n");
  says(4, 4, 1, "other programs wanted 2.0 of 4 cores");
  says(4, 8, 0, NULL);                                              // there is room for both
  put("/proc/loadavg", "nonsense\n");
  put(CLOCK "scaling_driver", "acpi-cpufreq\n");
  put(CLOCK "scaling_governor", "powersave\n");
  says(4, 4, 1, "governor powersave");
  put(CLOCK "scaling_driver", "intel_pstate\n");
  says(4, 4, 0, NULL);
  put(CLOCK "energy_performance_preference", "balance_power\n");
  says(4, 4, 1, "energy_performance_preference balance_power");
  put(CLOCK "scaling_driver", "amd-pstate-epp\n");
  put(CLOCK "energy_performance_preference", "performance\n");
  says(4, 4, 0, NULL);
  put("/sys/class/power_supply/BAT0/type", "Battery\n");
  put("/sys/class/power_supply/BAT0/status", "Discharging\n");
  says(4, 4, 1, "on its battery");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(machines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
