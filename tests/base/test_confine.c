// What the filters of system calls forbid, tried in a child; and what must go on working.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/confine.h"

#define REFUSED(call) do { errno = 0; if ((long)(call) != -1 || errno != EPERM) return __LINE__; } while (0)

// The line of the first thing that is not as it should be.
static int try_computing(void) {
  int pipes[2];
  if (pipe(pipes)) return __LINE__;
  if (!confine_to_computing()) return 1;
  char *p = malloc(64 << 20), byte = 1;
  if (!p) return __LINE__;
  memset(p, 1, 64 << 20);
  free(p);
  if (write(pipes[1], &byte, 1) != 1 || read(pipes[0], &byte, 1) != 1) return __LINE__;
  REFUSED(open("/dev/null", O_RDONLY));
  REFUSED(open("/etc/passwd", O_RDONLY));
  REFUSED(socket(AF_INET, SOCK_STREAM, 0));
  REFUSED(socket(AF_UNIX, SOCK_STREAM, 0));
  REFUSED(fork());
  REFUSED(execl("/bin/true", "true", (char *)NULL));
  REFUSED(kill(getppid(), 0));
  REFUSED(unlink("/tmp/weft-none"));
  REFUSED(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  void *q = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (q == MAP_FAILED) return __LINE__;
  REFUSED(mprotect(q, 4096, PROT_READ | PROT_EXEC));
  return 0;
}

// What fetches: it connects, and nobody connects to it. Behind it comes the filter of files.
static int try_fetching(void) {
  struct sockaddr_un a = {.sun_family = AF_UNIX,};
  socklen_t n = sizeof a;
  int at = socket(AF_UNIX, SOCK_STREAM, 0);
  if (at < 0 || bind(at, (struct sockaddr *)&a, sizeof(sa_family_t)) || listen(at, 8) ||
      getsockname(at, (struct sockaddr *)&a, &n))
    return __LINE__;
  if (!confine_to_fetching()) return 1;
  int client = socket(AF_UNIX, SOCK_STREAM, 0);
  if (client < 0 || connect(client, (struct sockaddr *)&a, n)) return __LINE__;
  REFUSED(listen(at, 8));
  REFUSED(accept(at, NULL, NULL));
  REFUSED(execl("/bin/true", "true", (char *)NULL));
  REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
  REFUSED(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (!confine_to_files()) return __LINE__;
  REFUSED(socket(AF_UNIX, SOCK_STREAM, 0));
  REFUSED(connect(client, (struct sockaddr *)&a, n));
  return 0;
}

static void *nothing(void *p) { return p; }

static int try_files(void) {
  if (!confine_to_files()) return 1;
  int fd = open("/dev/null", O_RDWR), pair[2], status;
  pthread_t id;
  if (fd < 0 || write(fd, "x", 1) != 1) return __LINE__;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || send(pair[0], "x", 1, 0) != 1) return __LINE__;       // with oneself
  if (pthread_create(&id, NULL, nothing, NULL) || pthread_join(id, NULL)) return __LINE__;
  unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // one after the other
  if (code == MAP_FAILED || mprotect(code, 4096, PROT_READ | PROT_EXEC)) return __LINE__;
  REFUSED(mprotect(code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
  REFUSED(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REFUSED(execl("/bin/true", "true", (char *)NULL));
  REFUSED(socket(AF_INET, SOCK_STREAM, 0));
  REFUSED(socket(AF_INET6, SOCK_DGRAM, 0));
  REFUSED(socket(AF_UNIX, SOCK_STREAM, 0));
  REFUSED(connect(pair[0], NULL, 0));
  REFUSED(bind(pair[0], NULL, 0));
  REFUSED(accept(pair[0], NULL, NULL));
  REFUSED(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
  int at = posix_openpt(O_RDWR | O_NOCTTY);                      // what is typed at a terminal comes from people alone
  struct winsize size;
  if (at < 0 || ioctl(at, TIOCGWINSZ, &size)) return __LINE__;
  REFUSED(ioctl(at, TIOCSTI, "x"));
  REFUSED(ioctl(at, TIOCLINUX, "\3"));
  // which inherits it
  pid_t child = fork();
  if (!child) _exit(execl("/bin/true", "true", (char *)NULL) == -1 && errno == EPERM ? 7 : 0);
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
    return __LINE__;
  return 0;
}

// A server: somebody connects to the socket that listened before, and nothing else can be made.
static int try_serving(void) {
  struct sockaddr_un a = {.sun_family = AF_UNIX,};
  socklen_t n = sizeof a;
  int at = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
  // the kernel names it
  if (at < 0 || client < 0 || bind(at, (struct sockaddr *)&a, sizeof(sa_family_t)) || listen(at, 8)) return __LINE__;
  if (getsockname(at, (struct sockaddr *)&a, &n) || connect(client, (struct sockaddr *)&a, n)) return __LINE__;
  if (!confine_to_serving()) return 1;
  int got = accept4(at, NULL, NULL, SOCK_CLOEXEC);
  if (got < 0 || send(client, "x", 1, 0) != 1) return __LINE__;
  REFUSED(socket(AF_INET, SOCK_STREAM, 0));
  REFUSED(connect(client, (struct sockaddr *)&a, n));
  REFUSED(bind(at, (struct sockaddr *)&a, n));
  REFUSED(listen(at, 8));
  REFUSED(execl("/bin/true", "true", (char *)NULL));
  REFUSED(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  return 0;
}

// Files: one folder to read, one to write, one file to write, and what else lies beside them.
static int make(const char *folder, const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s%s", folder, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0 ? 0 : -1;
}

static int opens(const char *folder, const char *name, int how) {
  char path[256];
  snprintf(path, sizeof path, "%s%s", folder, name);
  int fd = open(path, how, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0 ? 0 : -1;
}

static void *read_besides(void *folder) { return opens(folder, "/other", O_RDONLY) ? folder : NULL; }

#define DENIED(call) do { errno = 0; if ((call) != -1 || (errno != EACCES && errno != EXDEV)) return __LINE__; } \
  while (0)

static char top[] = "/tmp/weft-confine-XXXXXX";      // made and removed by the parent

static int try_paths(void) {
  char r[64], w[64], from[64], to[64], link_path[64];
  snprintf(r, sizeof r, "%s/r", top), snprintf(w, sizeof w, "%s/w", top), snprintf(from, sizeof from, "%s/w/a", top),
    snprintf(to, sizeof to, "%s/w/b", top);
  snprintf(link_path, sizeof link_path, "%s/r/link", top);
  char other[64], single[64], missing[64];
  snprintf(other, sizeof other, "%s/other", top), snprintf(single, sizeof single, "%s/single", top),
    snprintf(missing, sizeof missing, "%s/none", top);
  if (mkdir(r, 0700) || mkdir(w, 0700) || make(r, "/x") || make(top, "/other") || make(top, "/single") ||
      symlink(other, link_path))
    return __LINE__;
  int held = open(other, O_RDONLY);                                                                     // before
  const confine_file files[] = {{r, false}, {w, true}, {single, true}, {missing, false}};
  if (!confine_to(files, COUNT(files))) return __LINE__;
  pthread_t id;
  void *refused = NULL;
  char byte;
  if (opens(r, "/x", O_RDONLY) || opens(top, "/single", O_RDWR | O_TRUNC) || make(w, "/a") || opens(w, "/a", O_RDWR))
    return __LINE__;
  if (rename(from, to) || unlink(to) || read(held, &byte, 1) < 0) return __LINE__;
  if (pthread_create(&id, NULL, read_besides, top) || pthread_join(id, &refused) || !refused) return __LINE__;
  DENIED(opens(top, "/other", O_RDONLY));
  DENIED(opens(top, "/other", O_WRONLY));
  DENIED(opens("/etc/passwd", "", O_RDONLY));
  DENIED(opens(r, "/x", O_WRONLY));
  DENIED(opens(r, "/x", O_RDONLY | O_TRUNC));
  DENIED(opens(r, "/link", O_RDONLY));                                                                  // leads out
  DENIED(make(r, "/y"));
  DENIED(make(top, "/y"));
  DENIED(unlink(single));
  DENIED(mkdir(from, 0700));
  DENIED(symlink(other, from));
  DENIED(opens(top, "", O_RDONLY | O_DIRECTORY));
  if (make(w, "/a")) return __LINE__;
  snprintf(to, sizeof to, "%s/a", top);
  DENIED(rename(from, to));
  // which inherits it
  pid_t child = fork();
  if (!child) _exit(opens(top, "/other", O_RDONLY) ? 7 : 0);
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
    return __LINE__;
  return 0;
}

static int outcome(int (*fn)(void)) {
  fflush(NULL);
  pid_t child = fork();
  if (!child) _exit(fn() & 255);
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void holds(int (*fn)(void)) {
  int status = outcome(fn);
  if (status == 1) skip();                                   // a kernel without such filters
  assert_int_equal(status, 0);
}

static void files_only(void **state) { (void)state; holds(try_files); }
static void fetching_only(void **state) { (void)state; holds(try_fetching); }
static void serving_only(void **state) { (void)state; holds(try_serving); }
static void paths_only(void **state) {
  (void)state;
  if (!confine_knows_files()) { print_message("skipped: this kernel has no Landlock\n"); skip(); }
  static const char *const made[] = {"/r/x", "/r/link", "/w/a", "/w/b", "/single", "/other", "/r", "/w", ""};
  assert_non_null(mkdtemp(top));
  int status = outcome(try_paths);
  for (size_t i = 0; i < COUNT(made); i++) {
    char path[64];
    snprintf(path, sizeof path, "%s%s", top, made[i]);
    remove(path);
  }
  assert_int_equal(status, 0);
}
static void computing_only(void **state) {
  (void)state;
#ifdef WEFT_SANITIZE
  // the sanitizers' own libraries make more calls, so the compiler's child goes without
  skip();
#endif
  holds(try_computing);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(files_only), cmocka_unit_test(paths_only),
                                     cmocka_unit_test(serving_only), cmocka_unit_test(fetching_only),
                                     cmocka_unit_test(computing_only)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
