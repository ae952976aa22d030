// Files that lose their end while they are mapped: zeros and a note instead of a signal that ends the program.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/mapped.h"

enum { PAGE = 4096, SIZE = 40 * PAGE + 100 };

static int file_of_ones(void) {
  char name[] = "/tmp/weft-mapped-XXXXXX", ones[SIZE];
  int fd = mkstemp(name);
  unlink(name);
  memset(ones, 1, sizeof ones);
  assert_int_equal(write(fd, ones, sizeof ones), sizeof ones);
  return fd;
}

static int sum(const unsigned char *p, size_t n) {
  int s = 0;
  for (size_t i = 0; i < n; i++) s += ((const volatile unsigned char *)p)[i];
  return s;
}

// cmocka takes SIGBUS for itself before every test, so each runs in a process of its own: the line that fails, 0 for
// none.
#define CHECK(x) do { if (!(x)) return __LINE__; } while (0)

static int a_whole_file(void) {
  int fd = file_of_ones();
  mapped *m = mapped_open(fd, SIZE);
  CHECK(sum(mapped_bytes(m), SIZE) == SIZE);
  CHECK(mapped_is_whole(m));
  mapped_close(m);
  return 0;
}

static int a_file_that_is_cut(void) {
  static const int cuts[] = {0, 1, PAGE, 7 * PAGE + 1, 40 * PAGE};
  for (size_t i = 0; i < COUNT(cuts); i++) {
    int fd = file_of_ones(), other_fd = file_of_ones();
    mapped *m = mapped_open(fd, SIZE), *other = mapped_open(other_fd, SIZE);
    CHECK(!ftruncate(fd, cuts[i]));
    CHECK(mapped_is_whole(m));                                        // nobody has looked yet
    CHECK(sum(mapped_bytes(m), SIZE) == cuts[i]);
    CHECK(!mapped_is_whole(m));
    CHECK(sum(mapped_bytes(other), SIZE) == SIZE);
    CHECK(mapped_is_whole(other));
    mapped_close(m);
    // In the same place of the list, with nothing of the old one.
    m = mapped_open(other_fd, SIZE);
    CHECK(mapped_is_whole(m));
    mapped_close(m);
    mapped_close(other);
    close(fd);
    close(other_fd);
  }
  return 0;
}

static void *read_all(void *p) { return sum(p, SIZE) ? NULL : p; }

static int several_threads(void) {
  int fd = file_of_ones();
  mapped *m = mapped_open(fd, SIZE);
  pthread_t id[4];
  CHECK(!ftruncate(fd, 0));
  for (size_t i = 0; i < COUNT(id); i++)
    CHECK(!pthread_create(&id[i], NULL, read_all, (void *)(uintptr_t)mapped_bytes(m)));
  for (size_t i = 0; i < COUNT(id); i++) {
    void *zeros;
    pthread_join(id[i], &zeros);
    CHECK(zeros);
  }
  CHECK(!mapped_is_whole(m));
  return 0;
}

static int status_of(int (*fn)(void)) {
  fflush(NULL);
  pid_t child = fork();
  if (!child) { signal(SIGBUS, SIG_DFL); _exit(fn()); }
  int status;
  waitpid(child, &status, 0);
  return status;
}

static int read_a_foreign_mapping(void) {
  int fd = file_of_ones(), mine = file_of_ones();
  mapped_open(mine, SIZE);
  unsigned char *p = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
  return ftruncate(fd, 0) ? 9 : sum(p, SIZE) + 1;
}

static void note_and_leave(int sig) { (void)sig; _exit(77); }

static int read_a_foreign_mapping_with_a_handler(void) {
  signal(SIGBUS, note_and_leave);
  return read_a_foreign_mapping();
}

#ifndef WEFT_SANITIZE
static int sent_by_somebody(void) {
  int fd = file_of_ones();
  mapped_open(fd, SIZE);
  raise(SIGBUS);
  return 5;
}
#endif

static void what_is_not_ours_goes_on(void **state) {
  (void)state;
#ifndef WEFT_SANITIZE                          // whose handler reports it in a way of its own
  int status = status_of(read_a_foreign_mapping);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
  status = status_of(sent_by_somebody);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
#endif
  int handled = status_of(read_a_foreign_mapping_with_a_handler);
  assert_true(WIFEXITED(handled) && WEXITSTATUS(handled) == 77);
}

static void what_is_ours_reads_as_zeros(void **state) {
  (void)state;
  assert_int_equal(status_of(a_whole_file), 0);
  assert_int_equal(status_of(a_file_that_is_cut), 0);
  assert_int_equal(status_of(several_threads), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_not_ours_goes_on),
                                     cmocka_unit_test(what_is_ours_reads_as_zeros)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
