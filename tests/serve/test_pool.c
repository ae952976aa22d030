// The pool of threads for requests: jobs that take longer than a late job's time, more of them at once than threads.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <time.h>
#include "base/base.h"
#include "serve/pool.h"

enum { THREADS = 16, JOBS = 300 };     // several for each place of a thread (48)
#define LONG 0.6                       // seconds of a job; it is late after 0.05, so all places are taken by late ones
#define SECONDS 60.0                   // after which the test fails

static atomic_int done;

// Calls that change a thread's priority may interrupt its sleep.
static void nap(double s) {
  for (double until = now_s() + s; now_s() < until;) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void job(void *ctx) {
  (void)ctx;
  nap(LONG);
  atomic_fetch_add(&done, 1);
}

// A late thread ends, and another one takes its place, also when no place but its own is left.
static void late_jobs_leave_threads(void **state) {
  (void)state;
  error err;
  pool *p;
  assert_int_equal(pool_start(THREADS, &p, &err), 0);
  for (int i = 0; i < JOBS; i++) pool_add(p, job, NULL);
  for (double until = now_s() + SECONDS; done < JOBS; nap(0.01))
    if (now_s() > until) fail_msg("%d of %d jobs are done after %g s", (int)done, JOBS, SECONDS);
  pool_stop(p);
}

// ---- all places are taken -------------------------------------------------------------------------------------------

enum { PLACES = 48 };
static atomic_int begun;
static atomic_bool one_ends, all_end, came;

static void wait_for(void *ctx) {
  atomic_fetch_add(&begun, 1);
  while (!atomic_load((atomic_bool *)ctx)) nap(0.01);
}

static void come(void *ctx) {
  (void)ctx;
  atomic_store(&came, true);
}

// A job that waits while all places have late jobs begins when the first of them is done, not the second.
static void one_place_is_enough(void **state) {
  (void)state;
  error err;
  pool *p;
  assert_int_equal(pool_start(2, &p, &err), 0);
  for (int i = 0; i < PLACES; i++) pool_add(p, wait_for, i ? &all_end : &one_ends);
  for (double until = now_s() + SECONDS; begun < PLACES; nap(0.01))
    if (now_s() > until) fail_msg("%d of %d jobs began in %g s", (int)begun, PLACES, SECONDS);
  pool_add(p, come, NULL);
  nap(0.2);                            // longer than a job's time until it is late
  assert_false(came);
  atomic_store(&one_ends, true);
  for (double until = now_s() + SECONDS; !came; nap(0.01))
    if (now_s() > until) fail_msg("the job waits %g s beside a free thread", SECONDS);
  atomic_store(&all_end, true);
  pool_stop(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(late_jobs_leave_threads),
                                     cmocka_unit_test(one_place_is_enough)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
