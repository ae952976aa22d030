// Children of a process with threads: see child.h.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/child.h"
#include "base/confine.h"

enum { THREADS = 4, CHILDREN = 60, SIZES = 40 };
static atomic_bool over;

// Takes and gives back what no two threads have the same sizes of.
static void take_some(unsigned *seed) {
  void *at[SIZES];
  for (int i = 0; i < SIZES; i++) at[i] = malloc(1 + (size_t)rand_r(seed) % (16 << (i % 12)));
  for (int i = 0; i < SIZES; i++) free(at[i]);
}

static void *take_all_the_time(void *p) {
  unsigned seed = (unsigned)(intptr_t)p;
  while (!over) take_some(&seed);
  return NULL;
}

static void *take_once(void *p) {
  for (int i = 0; i < 20; i++) take_some(p);
  return NULL;
}

// Threads may have any lock of the allocator when a child is made, which has none of the threads.
static void has_memory_and_threads(void **state) {
  pthread_t id[THREADS];
  (void)state;
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&id[i], NULL, take_all_the_time, (void *)(intptr_t)(i + 1)), 0);
  for (int i = 0; i < CHILDREN; i++) {
    int status;
    pid_t child = fork();
    if (!child) {
      unsigned seed = (unsigned)i;
      pthread_t own;
      const int keep[] = {STDERR_FILENO};
      child_begin("weft-test", keep, 1);
      alarm(60);
      bool made = !pthread_create(&own, NULL, take_once, &seed);
      _exit(made && !pthread_join(own, NULL) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
  over = true;
  for (int i = 0; i < THREADS; i++) pthread_join(id[i], NULL);
}

// Ignores whatever can be ignored, as a decoder that is somebody else's by now would.
static void stay(void *ctx) {
  const int keep[] = {STDERR_FILENO};
  (void)ctx;
  child_begin("weft-test", keep, 1);
  for (int i = 1; i < NSIG; i++) signal(i, SIG_IGN);
  confine(CONFINE_COMPUTING, false);
  for (;;) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}

static void leave(void *ctx) { _exit(*(int *)ctx); }

static bool is_status_of_its_own(int seven) {
  child_process *c;
  struct rusage used;
  int status;
  return !child_make(leave, &seven, &c) && !child_end(c, 60, &status, &used) && WIFEXITED(status) &&
         WEXITSTATUS(status) == seven;
}

static bool is_ended_in_time(void) {
  child_process *c;
  struct rusage used;
  int status;
  double before = now_s();
  return !child_make(stay, NULL, &c) && child_end(c, 0.1, &status, &used) && WIFSIGNALED(status) &&
         WTERMSIG(status) == SIGKILL && now_s() - before < 30 && waitpid(-1, NULL, WNOHANG) < 0;
}

// Also by a server, whose filter lets signals go to nobody else.
static void is_ended_when_it_hangs(void **state) {
  int status;
  (void)state;
  assert_true(is_status_of_its_own(7));
  assert_true(is_ended_in_time());
  pid_t server = fork();
  if (!server) {
    alarm(60);
    confine(CONFINE_SERVING, false);
    _exit(is_status_of_its_own(7) && is_ended_in_time() ? 0 : 1);
  }
  assert_int_equal(waitpid(server, &status, 0), server);
  assert_int_equal(status, 0);
}

// Without a status, in a process that lets the system forget its children, as a program may do that loads libweft.
static bool is_over_without_a_status(void) {
  child_process *c;
  struct rusage used;
  int status = -1, seven = 7;
  memset(&used, 0xff, sizeof used);
  if (child_make(leave, &seven, &c) || child_end(c, 60, &status, &used) || status || used.ru_utime.tv_sec) return false;
  status = -1;
  memset(&used, 0xff, sizeof used);
  if (child_make(stay, NULL, &c) || !child_end(c, 0.1, &status, &used) || status || used.ru_utime.tv_sec) return false;
  pid_t child = fork();
  if (!child) _exit(7);
  status = -1;
  return !child_wait(child, &status) && !status;
}

static void a_status_may_be_lost(void **state) {
  int status;
  (void)state;
  pid_t server = fork();
  if (!server) {
    alarm(60);
    signal(SIGCHLD, SIG_IGN);
    _exit(is_over_without_a_status() ? 0 : 1);
  }
  assert_true(child_wait(server, &status));
  assert_int_equal(status, 0);
  pid_t child = fork();
  if (!child) _exit(7);
  assert_true(child_wait(child, &status));
  assert_int_equal(WEXITSTATUS(status), 7);
}

static void take_memory(void *ctx) {
  (void)ctx;
  bool limited = !child_limit_memory(32 << 20);
  void *less = mmap(NULL, 24 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
       *more = mmap(NULL, 24 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  _exit(limited && less != MAP_FAILED && more == MAP_FAILED ? 5 : 1);
}

static bool has_so_much_memory(void) {
  child_process *c;
  struct rusage used;
  int status;
  return !child_make(take_memory, NULL, &c) && !child_end(c, 60, &status, &used) && WIFEXITED(status) &&
         WEXITSTATUS(status) == 5;
}

// Whatever it has when it begins, also without a file that it could read about itself.
static void memory_is_limited(void **state) {
  int status;
  (void)state;
  assert_true(has_so_much_memory());
  pid_t server = fork();
  if (!server) {
    alarm(60);
    confine(CONFINE_SERVING, false);
    confine_to(NULL, 0);
    mmap(NULL, (size_t)1 << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    _exit(has_so_much_memory() ? 0 : 1);
  }
  assert_int_equal(waitpid(server, &status, 0), server);
  assert_int_equal(status, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(memory_is_limited),
    cmocka_unit_test(has_memory_and_threads),
    cmocka_unit_test(is_ended_when_it_hangs),
    cmocka_unit_test(a_status_may_be_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
