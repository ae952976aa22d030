// os.h for Linux.
#define _GNU_SOURCE
#include "base/os.h"
#include "base/env.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void os_wait(_Atomic uint32_t *at, uint32_t value) {
  syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void os_wake_all(_Atomic uint32_t *at) { syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

int os_thread_id(void) { return (int)syscall(SYS_gettid); }

static _Atomic int nice_asked_for;

static void on_nice(int sig) {
  int kept = errno;
  (void)sig;
  setpriority(PRIO_PROCESS, 0, atomic_load(&nice_asked_for));
  errno = kept;
}

// In the sandbox a thread may change only its own priority, so another thread is asked by a signal (SIGURG, otherwise
// unused).
void os_thread_nice(int id, int nice) {
  const struct sigaction on = {.sa_handler = on_nice, .sa_flags = SA_RESTART};
  if (!id || id == os_thread_id()) { setpriority(PRIO_PROCESS, 0, nice); return; }
  atomic_store(&nice_asked_for, nice);
  if (!sigaction(SIGURG, &on, NULL)) syscall(SYS_tgkill, getpid(), id, SIGURG);
}

void *os_code_take(size_t n) {
  void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

bool os_code_seal(void *at, size_t n) {
  if (mprotect(at, n, PROT_READ | PROT_EXEC)) return false;
  __builtin___clear_cache((char *)at, (char *)at + n);
  return true;
}

void os_code_free(void *at, size_t n) { munmap(at, n); }

void *os_lines_take(size_t n) { return aligned_alloc(64, round_up(n, 64)); }
void os_lines_free(void *at) { free(at); }
bool os_lock_memory(void) { return !mlockall(MCL_CURRENT | MCL_ONFAULT); }

uintptr_t os_stack_end(void) {
  pthread_attr_t a;
  void *end = NULL;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &a)) return 0;
  if (pthread_attr_getstack(&a, &end, &size)) end = NULL;
  pthread_attr_destroy(&a);
  return (uintptr_t)end;
}

void os_prepare_stack(void) {}

#ifdef __aarch64__
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif

bool os_find_library(const char *name, char *out, size_t cap) {
  static const char system[] =
    "/lib/" MULTIARCH ":/usr/lib/" MULTIARCH ":/lib64:/usr/lib64:/lib:/usr/lib:/usr/local/lib";
  const char *lists[] = {env_library_path(), system};
  for (size_t i = 0; i < COUNT(lists); i++)
    for (const char *at = lists[i]; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
      size_t n = strcspn(at, ":");
      if (n && (size_t)snprintf(out, cap, "%.*s/%s", (int)n, at, name) < cap && !access(out, R_OK)) return true;
    }
  return false;
}

int os_accept(int fd) { return accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK); }

void os_close_socket(int fd) { close(fd); }

int os_close_and_keep(int fd) {
  int nothing = eventfd(0, EFD_CLOEXEC), kept = nothing < 0 ? -1 : dup3(nothing, fd, O_CLOEXEC);
  if (kept != fd) close(fd);
  if (nothing >= 0) close(nothing);
  return kept == fd ? fd : -1;
}

int os_wait_signal(const void *set, double seconds) {
  struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  int got = sigtimedwait(set, NULL, &t);
  return got > 0 ? got : 0;
}

// /proc may not be mounted.
bool os_program_as_started(char *out, size_t cap) {
  const char *started = (const char *)getauxval(AT_EXECFN);
  const char *self = started && !access(started, R_OK) ? started : "/proc/self/exe";
  return (size_t)snprintf(out, cap, "%s", self) < cap;
}

bool os_folder_path(int fd, char *out, size_t cap) { return (size_t)snprintf(out, cap, "/proc/self/fd/%d", fd) < cap; }

const char os_home_variable[] = "HOME";
bool os_is_absolute(const char *path) { return *path == '/'; }

void os_set_env(const char *name, const char *value, bool always) { setenv(name, value, always); }

bool os_program_path(char *out, size_t cap) {
  ssize_t n = readlink("/proc/self/exe", out, cap - 1);
  if (n < 0) return false;
  out[n] = 0;
  return true;
}

void os_reads_pieces(int fd) { posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); }
void os_forget_piece(int fd, uint64_t at, uint64_t n) { posix_fadvise(fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED); }
