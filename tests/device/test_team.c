// The thread team: every thread takes part, barriers separate what they should, more threads than processors still
// finish.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "device/team.h"

struct job { team *t; long rounds; _Alignas(64) long slots[16][8]; atomic_int errors, calls; };

// Each round a thread writes its slot, and after the barrier checks everybody's; a second barrier before the next
// write.
static void check_rounds(void *ctx, int thread, int n) {
  struct job *j = ctx;
  atomic_fetch_add(&j->calls, 1);
  for (long round = 1; round <= j->rounds; round++) {
    j->slots[thread][0] = round * 100 + thread;
    team_barrier(j->t);
    for (int k = 0; k < n; k++) if (j->slots[k][0] != round * 100 + k) atomic_fetch_add(&j->errors, 1);
    team_barrier(j->t);
  }
}

static struct job *job_new(team *t, long rounds) {
  struct job *j = aligned_alloc(64, sizeof *j);
  assert_non_null(j);
  memset(j, 0, sizeof *j);
  j->t = t;
  j->rounds = rounds;
  return j;
}

static void barriers_separate(void **state) {
  (void)state;
  int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
  for (int n = 1; n <= 8; n++) {
    error err = {0};
    team *t = team_new(n, &err);
    assert_non_null(t);
    assert_int_equal(team_size(t), n);
    struct job *j = job_new(t, n <= cpus ? 50000 : 3000);      // two barriers a round
    double start = now_s();
    team_run(t, check_rounds, j);
    if (n > 1) print_message("%d threads: %.3f us per barrier\n", n, (now_s() - start) * 1e6 / (2 * (double)j->rounds));
    assert_int_equal(j->errors, 0);
    assert_int_equal(j->calls, n);
    team_free(t);
    free(j);
  }
}

static void add_once(void *ctx, int thread, int n) {
  (void)n;
  long *sums = ctx;
  sums[thread * 8]++;                   // plain memory: each thread has its own, the caller reads after team_run
}

static void runs_follow_one_another(void **state) {
  (void)state;
  for (int n = 1; n <= 5; n++) {
    team *t = team_new(n, NULL);
    long sums[5 * 8] = {0};
    for (int i = 0; i < 2000; i++) {
      team_run(t, add_once, sums);
      for (int k = 0; k < n; k++) assert_int_equal(sums[k * 8], i + 1);
      if (i % 500 == 499) usleep(4000);  // long enough for the others to fall asleep
    }
    team_free(t);
  }
}

static void late(void *ctx, int thread, int n) {
  struct job *j = ctx;
  for (int round = 0; round < 4; round++) {
    if (thread == round % n) usleep(8000);           // the others sleep in the barrier
    j->slots[thread][0]++;
    team_barrier(j->t);
    for (int k = 0; k < n; k++) if (j->slots[k][0] != round + 1) atomic_fetch_add(&j->errors, 1);
    team_barrier(j->t);
  }
}

static void sleepers_are_woken(void **state) {
  (void)state;
  for (int n = 2; n <= 6; n++) {
    team *t = team_new(n, NULL);
    struct job *j = job_new(t, 0);
    for (int i = 0; i < 3; i++) {
      memset(j->slots, 0, sizeof j->slots);
      team_run(t, late, j);
    }
    assert_int_equal(j->errors, 0);
    free(j);
    team_free(t);
  }
}

static void note_cpu(void *ctx, int thread, int n) {
  (void)n;
  cpu_set_t mask;
  int *cpus = ctx;
  cpus[thread] = -1;
  if (!sched_getaffinity(0, sizeof mask, &mask) && CPU_COUNT(&mask) == 1)
    for (int i = 0; i < CPU_SETSIZE; i++) if (CPU_ISSET(i, &mask)) cpus[thread] = i;
}

static void threads_have_processors_of_their_own(void **state) {
  (void)state;
  cpu_set_t before, after;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  int n = CPU_COUNT(&before);
  if (n < 2) skip();
  if (n > 16) n = 16;
  int cpus[17];
  team *t = team_new(n, NULL);
  team_run(t, note_cpu, cpus);
  for (int i = 0; i < n; i++) {
    assert_true(cpus[i] >= 0 && CPU_ISSET(cpus[i], &before));
    for (int k = 0; k < i; k++) assert_true(cpus[i] != cpus[k]);
  }
  team_free(t);
  assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);      // the caller is as it was
  assert_true(CPU_EQUAL(&before, &after));
  // two threads on one allowed processor: not pinned, and no hang
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus[1], &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(team_default_threads(), 1);
  t = team_new(2, NULL);
  struct job *j = job_new(t, 500);
  team_run(t, check_rounds, j);
  assert_int_equal(j->errors, 0);
  free(j);
  team_free(t);
  sched_setaffinity(0, sizeof before, &before);
}

static volatile sig_atomic_t signalled_here;
static pthread_t main_thread;
static void on_signal(int s) { (void)s; signalled_here = pthread_equal(pthread_self(), main_thread) ? 1 : -1; }
static void raise_in_process(void *ctx, int thread, int n) { (void)ctx; if (thread == n - 1) kill(getpid(), SIGUSR1); }

static void signals_go_to_the_caller(void **state) {
  (void)state;
  main_thread = pthread_self();
  signal(SIGUSR1, on_signal);
  team *t = team_new(3, NULL);
  sigset_t usr1;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, NULL);      // any other thread that takes signals would get it now
  team_run(t, raise_in_process, NULL);
  usleep(20000);
  assert_int_equal(signalled_here, 0);
  pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
  assert_int_equal(signalled_here, 1);
  team_free(t);
}

static void sizes(void **state) {
  (void)state;
  int n = team_default_threads();
  assert_in_range(n, 1, sysconf(_SC_NPROCESSORS_ONLN));
  team *t = team_new(0, NULL);
  assert_int_equal(team_size(t), n);
  team_free(t);
  error err = {0};
  assert_null(team_new(-1, &err));
  assert_non_null(strstr(err.text, "-1"));
  err.text[0] = 0;
  assert_null(team_new(TEAM_MAX + 1, &err));
  assert_non_null(strstr(err.text, "1025"));
  team_free(NULL);
}

int main(void) {
  alarm(300);                           // a lost wake-up is a failure, not a hang
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_have_processors_of_their_own),     // first, while the affinity mask is as it was given
    cmocka_unit_test(sizes),
    cmocka_unit_test(barriers_separate),
    cmocka_unit_test(runs_follow_one_another),
    cmocka_unit_test(sleepers_are_woken),
    cmocka_unit_test(signals_go_to_the_caller),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
