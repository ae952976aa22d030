#define _GNU_SOURCE
// Counters: each thread counts what it does itself, between two reads. Software events, which need no hardware, stand
// in for the others.
#include "device/counters.h"
#include <errno.h>
#include <linux/perf_event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

enum { PAGES = 64, PAGE = 4096 };
static const counter_event software[] = {{PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
                                         {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN}};
typedef struct work { counters *c; uint64_t before[2][COUNTERS_MAX], after[2][COUNTERS_MAX]; } work;

// Thread 1 touches fresh pages; thread 0 does nothing.
static void some(void *ctx, int thread, int n) {
  work *w = ctx;
  (void)n;
  unsigned char *fresh = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) abort();
  madvise(fresh, PAGES * PAGE, MADV_NOHUGEPAGE);
  counters_read(w->c, thread, w->before[thread]);
  for (int i = 0; thread && i < PAGES; i++) ((volatile unsigned char *)fresh)[i * PAGE] = 1;
  counters_read(w->c, thread, w->after[thread]);
  munmap(fresh, PAGES * PAGE);
}

static void test_each_thread(void **state) {
  (void)state;
  error err = {0};
  team *t = team_new(2, &err);
  work w = {0};
  assert_non_null(t);
  // events of software are everywhere: only a ban is a reason
  if (counters_open(t, software, 2, &w.c, &err)) {
    team_free(t);
    if (!strstr(err.text, "not permitted") && !strstr(err.text, strerror(ENOSYS))) fail_msg("%s", err.text);
    print_message("skipped: %s\n", err.text);
    skip();
  }
  team_run(t, some, &w);
  team_run(t, some, &w);
  assert_in_range(w.after[1][0] - w.before[1][0], PAGES, PAGES + 32);
  assert_true(w.after[0][0] - w.before[0][0] < PAGES);
  assert_in_range(w.after[1][1] - w.before[1][1], PAGES, PAGES + 32);           // the second of the group
  counters_close(w.c);
  team_free(t);
}

static void test_unknown_events(void **state) {
  (void)state;
  error err = {0};
  counters *c = NULL;
  team *t = team_new(1, &err);
  assert_int_equal(counters_open(t, &(counter_event){PERF_TYPE_HARDWARE, 12345}, 1, &c, &err), -1);
  assert_true(strlen(err.text) > 20 && !c);
  team_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_thread), cmocka_unit_test(test_unknown_events)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
