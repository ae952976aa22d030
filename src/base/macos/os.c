// os.h for macOS. Generated code is in MAP_JIT memory, which is either writable or executable for a thread; hardened
// programs need an entitlement for it. Not run yet on a real machine.
#include "base/os.h"
#include <mach-o/dyld.h>
#include <errno.h>
#include <fcntl.h>
#include <libkern/OSCacheControl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

// The functions that libc++ waits with, stable across versions. The values are those of <sys/ulock.h>, which is not a
// public header.
int __ulock_wait(uint32_t operation, void *at, uint64_t value, uint32_t timeout_us);
int __ulock_wake(uint32_t operation, void *at, uint64_t wake_value);
enum { COMPARE_AND_WAIT = 1, WAKE_ALL = 0x100, NO_ERRNO = 0x1000000 };

void os_wait(_Atomic uint32_t *at, uint32_t value) { __ulock_wait(COMPARE_AND_WAIT | NO_ERRNO, at, value, 0); }
void os_wake_all(_Atomic uint32_t *at) { __ulock_wake(COMPARE_AND_WAIT | WAKE_ALL | NO_ERRNO, at, 0); }

int os_thread_id(void) {
  uint64_t id = 0;
  pthread_threadid_np(NULL, &id);
  return (int)id;
}

// A thread can change only its own priority.
void os_thread_nice(int id, int nice) {
  if ((!id || id == os_thread_id()) && nice > 0) setpriority(PRIO_DARWIN_THREAD, 0, PRIO_DARWIN_BG);
}

void *os_code_take(size_t n) {
  void *at = mmap(NULL, n, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_JIT, -1, 0);
  if (at == MAP_FAILED) return NULL;
  pthread_jit_write_protect_np(0);
  return at;
}

bool os_code_seal(void *at, size_t n) {
  pthread_jit_write_protect_np(1);
  sys_icache_invalidate(at, n);
  return true;
}

void os_code_free(void *at, size_t n) { munmap(at, n); }

void *os_lines_take(size_t n) { return aligned_alloc(64, round_up(n, 64)); }
void os_lines_free(void *at) { free(at); }
bool os_lock_memory(void) { return errno = ENOTSUP, false; }     // mlockall is not supported

uintptr_t os_stack_end(void) {
  pthread_t own = pthread_self();
  return (uintptr_t)pthread_get_stackaddr_np(own) - pthread_get_stacksize_np(own);
}

const char os_home_variable[] = "HOME";
bool os_is_absolute(const char *path) { return *path == '/'; }

void os_set_env(const char *name, const char *value, bool always) { setenv(name, value, always); }

bool os_program_path(char *out, size_t cap) {
  uint32_t n = (uint32_t)cap;
  return !_NSGetExecutablePath(out, &n);
}

void os_prepare_stack(void) {}

bool os_find_library(const char *name, char *out, size_t cap) {
  static const char *const folders[] = {"/opt/homebrew/opt/llvm/lib", "/usr/local/opt/llvm/lib", "/usr/local/lib"};
  for (size_t i = 0; i < COUNT(folders); i++)
    if ((size_t)snprintf(out, cap, "%s/%s", folders[i], name) < cap && !access(out, R_OK)) return true;
  return false;
}

int os_accept(int fd) {
  int got = accept(fd, NULL, NULL);
  if (got < 0) return -1;
  fcntl(got, F_SETFD, FD_CLOEXEC);
  fcntl(got, F_SETFL, fcntl(got, F_GETFL) | O_NONBLOCK);
  return got;
}

void os_close_socket(int fd) { close(fd); }

int os_close_and_keep(int fd) {
  int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC), kept = nothing < 0 ? -1 : dup2(nothing, fd);
  if (kept != fd) close(fd);
  if (nothing >= 0) close(nothing);
  return kept == fd ? fd : -1;
}

// macOS has no sigtimedwait, so this polls.
int os_wait_signal(const void *set, double seconds) {
  sigset_t wanted = *(const sigset_t *)set;
  double until = now_s() + seconds;
  do {
    sigset_t now;
    int got = 0;
    sigpending(&now);
    for (int sig = 1; sig < NSIG; sig++)
      if (sigismember(&now, sig) && sigismember(&wanted, sig)) return sigwait(&wanted, &got) ? 0 : got;
    usleep(20000);
  } while (now_s() < until);
  return 0;
}

bool os_program_as_started(char *out, size_t cap) { return os_program_path(out, cap); }
bool os_folder_path(int fd, char *out, size_t cap) { return cap >= PATH_MAX && !fcntl(fd, F_GETPATH, out); }

void os_reads_pieces(int fd) { (void)fd; }
void os_forget_piece(int fd, uint64_t at, uint64_t n) { (void)fd; (void)at; (void)n; }
