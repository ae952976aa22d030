// Mappings and the handler of SIGBUS: see mapped.h. The handler runs at any time in any thread, so it reads a list to
// which entries are only added, at the head; entries of closed mappings are empty and are reused.
#define _GNU_SOURCE
#include "base/mapped.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapped {
  _Atomic uintptr_t at;          // 0: none
  atomic_size_t n;
  atomic_int fd;
  atomic_bool used, whole;
  mapped *next;
};

static _Atomic(mapped *) first;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction before;
static size_t page;

// Maps zeros from the page of `where` on: to the end if the file ends before it, else only this page.
static bool put_zeros(mapped *m, uintptr_t at, uintptr_t where) {
  struct stat st;
  uintptr_t from = where / page * page, end = from + page, file_end = at + atomic_load(&m->n);
  bool known = !fstat(atomic_load(&m->fd), &st) && st.st_size >= 0;
  if (known && at + (uintptr_t)st.st_size <= from) end = (file_end + page - 1) / page * page;
  return mmap((void *)from, end - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void on_bus_error(int sig, siginfo_t *info, void *context) {
  int error_before = errno;
  uintptr_t where = (uintptr_t)info->si_addr;
  for (mapped *m = atomic_load(&first); m; m = m->next) {
    uintptr_t at = atomic_load(&m->at);
    // <= 0: sent by kill.
    if (info->si_code <= 0 || !at || where < at || where - at >= round_up(atomic_load(&m->n), page)) continue;
    atomic_store(&m->whole, false);
    if (!put_zeros(m, at, where)) break;
    errno = error_before;
    return;
  }
  errno = error_before;
  if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(sig, info, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(sig);
  else {
    sigaction(SIGBUS, &before, NULL);          // the read is repeated, and fails as it would without this handler
    if (info->si_code <= 0) raise(sig);
  }
}

static void install_handler(void) {
  page = (size_t)sysconf(_SC_PAGESIZE);
  struct sigaction on = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
  sigemptyset(&on.sa_mask);
  sigaction(SIGBUS, NULL, &before);            // stored before the handler can run
  sigaction(SIGBUS, &on, NULL);
}

static mapped *take_place(void) {
  for (mapped *m = atomic_load(&first); m; m = m->next) {
    bool used = false;
    if (atomic_compare_exchange_strong(&m->used, &used, true)) return m;
  }
  mapped *m = xcalloc(1, sizeof *m);
  atomic_store(&m->used, true);
  m->next = atomic_load(&first);
  while (!atomic_compare_exchange_weak(&first, &m->next, m)) continue;
  return m;
}

mapped *mapped_open(int fd, size_t n) {
  pthread_once(&once, install_handler);
  void *at = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) return NULL;
  mapped *m = take_place();
  atomic_store(&m->whole, true);
  atomic_store(&m->n, n);
  atomic_store(&m->fd, fd);
  atomic_store(&m->at, (uintptr_t)at);
  return m;
}

const unsigned char *mapped_bytes(const mapped *m) { return (const unsigned char *)atomic_load(&m->at); }
bool mapped_is_whole(const mapped *m) { return atomic_load(&m->whole); }

void mapped_close(mapped *m) {
  if (!m) return;
  uintptr_t at = atomic_exchange(&m->at, 0);
  munmap((void *)at, atomic_load(&m->n));
  atomic_store(&m->used, false);
}
