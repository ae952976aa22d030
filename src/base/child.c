// Starts child processes: see child.h.
#define _GNU_SOURCE
#include "base/child.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// The AddressSanitizer of clang before 18 does not lock its allocator at fork(): if another thread holds one of its
// locks, the child waits for it forever. The leak checker takes these locks by the functions below; newer versions do
// at fork() what is done here.
#if defined(__has_feature) && defined(__clang_major__)
#if __has_feature(address_sanitizer) && __clang_major__ < 18
#define OF_SANITIZER(name, symbol) void name(void) __asm__(symbol) __attribute__((weak))
OF_SANITIZER(lock_threads, "_ZN6__lsan18LockThreadRegistryEv");
OF_SANITIZER(unlock_threads, "_ZN6__lsan20UnlockThreadRegistryEv");
OF_SANITIZER(lock_allocator, "_ZN6__lsan13LockAllocatorEv");
OF_SANITIZER(unlock_allocator, "_ZN6__lsan15UnlockAllocatorEv");
OF_SANITIZER(lock_stacks, "_ZN11__sanitizer17StackDepotLockAllEv");
OF_SANITIZER(unlock_stacks, "_ZN11__sanitizer19StackDepotUnlockAllEv");

static void before_fork(void) {
  lock_threads();
  lock_allocator();
  lock_stacks();
}

static void after_fork(void) {
  unlock_stacks();
  unlock_allocator();
  unlock_threads();
}

__attribute__((constructor)) static void fork_with_locks_in_order(void) {
  if (lock_threads && lock_allocator && lock_stacks) pthread_atfork(before_fork, after_fork, after_fork);
}
#endif
#endif

static int by_number(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

// Closes everything but the sockets: the child must not keep locks, pipes or files that the parent closes.
static void close_others(const int *keep, int n) {
  int *sorted = xcalloc((size_t)n, sizeof *sorted), null = open("/dev/null", O_RDWR);
  memcpy(sorted, keep, (size_t)n * sizeof *keep);
  qsort(sorted, (size_t)n, sizeof *sorted, by_number);
  for (int fd = 0; fd < 3 && null >= 0; fd++)
    if (!bsearch(&fd, sorted, (size_t)n, sizeof *sorted, by_number)) dup2(null, fd);
  unsigned from = 3;
  for (int i = 0; i <= n; i++) {
    unsigned to = i < n ? (unsigned)sorted[i] : ~0u;
    if (to > from && syscall(SYS_close_range, from, to - 1, 0))   // close_range is in glibc from 2.34 on
      for (unsigned fd = from; fd < to && fd < 65536; fd++) close((int)fd);
    from = to + 1;
  }
  free(sorted);
}

void child_begin(const char *name, const int *keep, int n) {
  static const int left_alone[] = {SIGINT, SIGQUIT, SIGPIPE, SIGHUP, SIGTERM};
  static const int plain[] = {SIGABRT, SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGXCPU, SIGALRM};
  // Ctrl-C and SIGTERM reach a whole process group. They are for the parent, which still works for a while and then
  // closes the sockets.
  for (size_t i = 0; i < COUNT(left_alone); i++) signal(left_alone[i], SIG_IGN);
  for (size_t i = 0; i < COUNT(plain); i++) signal(plain[i], SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  prctl(PR_SET_NAME, name, 0, 0, 0);
  close_others(keep, n);
  struct rlimit zero = {0, 0};
  setrlimit(RLIMIT_CORE, &zero);
}

// Whether one more page fits into `most` pages in all.
static bool fit_pages(uint64_t most, struct rlimit limit) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  limit.rlim_cur = most * page;
  if (setrlimit(RLIMIT_AS, &limit)) return false;
  void *one = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (one == MAP_FAILED) return false;
  munmap(one, page);
  return true;
}

// The current use is found by trying. /proc also says it, but not to a child of a confined process; and the value that
// the parent would read lacks the stacks and heaps of threads that are made before the fork.
int child_limit_memory(int64_t more) {
  enum { MOST_BITS = 36 };              // bits of a number of pages
  struct rlimit limit;
  uint64_t low = 0, high = 1ull << MOST_BITS;
  if (getrlimit(RLIMIT_AS, &limit)) return -1;
  // for RLIM_INFINITY: the largest number
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), set = limit.rlim_max / page;
  if (set < high) high = set;
  while (high - low > 1) {
    uint64_t middle = low + (high - low) / 2;
    if (fit_pages(middle, limit)) high = middle;
    else low = middle;
  }
  uint64_t all = high * page + (uint64_t)more;
  limit.rlim_cur = limit.rlim_max = all < limit.rlim_max ? all : limit.rlim_max;
  return setrlimit(RLIMIT_AS, &limit);
}

// --- a child for one piece of work -----------------------------------------------------------------------------------

struct child_process {
  child_work *work;
  void *ctx;
  pthread_t maker;
  sem_t made, over;
  pid_t process;
  int why;                              // errno of fork
};

static void wait_on_semaphore(sem_t *s) { while (sem_wait(s) && errno == EINTR) continue; }

static void *make_and_wait(void *at) {
  child_process *c = at;
  c->process = fork();
  if (!c->process) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    c->work(c->ctx);
    _exit(3);
  }
  c->why = errno;
  sem_post(&c->made);
  wait_on_semaphore(&c->over);
  return NULL;
}

static void free_child(child_process *c) {
  sem_post(&c->over);
  pthread_join(c->maker, NULL);
  sem_destroy(&c->made);
  sem_destroy(&c->over);
  free(c);
}

int child_make(child_work *work, void *ctx, child_process **out) {
  child_process *c = xcalloc(1, sizeof *c);
  *c = (child_process){.work = work, .ctx = ctx};
  sem_init(&c->made, 0, 0);
  sem_init(&c->over, 0, 0);
  int why = pthread_create(&c->maker, NULL, make_and_wait, c);
  if (why) {
    free(c);
    errno = why;
    return -1;
  }
  wait_on_semaphore(&c->made);
  if (c->process < 0) {
    why = c->why;
    free_child(c);
    errno = why;
    return -1;
  }
  *out = c;
  return 0;
}

bool child_wait(int process, int *status) {
  pid_t got;
  *status = 0;
  do got = waitpid(process, status, 0); while (got < 0 && errno == EINTR);
  if (got < 0) *status = 0;
  return got == process;
}

bool child_end(child_process *c, double seconds, int *status, struct rusage *used) {
  *status = 0;
  *used = (struct rusage){0};
  pid_t process = c->process, got = 0;
  for (double then = now_s() + seconds; !(got = wait4(process, status, WNOHANG, used)) && now_s() < then;)
    poll(NULL, 0, 1);
  free_child(c);                        // the thread ends, and the child with it
  if (got) return false;
  while (wait4(process, status, 0, used) < 0 && errno == EINTR) continue;
  return true;
}
