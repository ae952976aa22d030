// Descriptors over a socket (base/message.h): exactly one is taken, and nothing of other messages stays open.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/message.h"

enum { MOST = 5 };

static int open_files(void) {
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

// One byte with n descriptors.
static void send_descriptors(int over, int n) {
  char byte = 'x';
  int fds[MOST];
  union { char at[CMSG_SPACE(MOST * sizeof(int))]; struct cmsghdr align; } space = {0};
  struct iovec one = {&byte, 1};
  struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
  for (int i = 0; i < n; i++) fds[i] = over;
  if (n) {
    m.msg_control = space.at;
    m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
    memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
  }
  assert_int_equal(sendmsg(over, &m, 0), 1);
}

static void exactly_one(void **state) {
  (void)state;
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  int before = open_files();
  for (int n = 0; n <= MOST; n++) {
    bool more = false;
    send_descriptors(pair[0], n);
    int fd = message_receive_fd(pair[1], &more);
    assert_true(more);
    assert_int_equal(fd >= 0, n == 1);
    assert_int_equal(open_files(), before + (n == 1));
    if (fd < 0) continue;
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
  }
  assert_true(message_send_fd(pair[0], pair[0]));
  bool more;
  int fd = message_receive_fd(pair[1], &more);
  assert_true(fd >= 0 && more);
  close(fd);
  close(pair[0]);
  assert_int_equal(message_receive_fd(pair[1], &more), -1);
  assert_false(more);
  close(pair[1]);
}

// What comes where no descriptor is expected is not taken either.
static void none_with_bytes(void **state) {
  (void)state;
  int pair[2];
  char byte;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  int before = open_files();
  send_descriptors(pair[0], 2);
  assert_true(message_receive(pair[1], &byte, 1));
  assert_int_equal(open_files(), before);
  close(pair[0]);
  close(pair[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(exactly_one), cmocka_unit_test(none_with_bytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
