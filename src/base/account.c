// Counts memory and processor time per account: see account.h.
#define _GNU_SOURCE
#include "base/account.h"
#include <stdatomic.h>
#include <time.h>
#ifdef __GLIBC__
#include <malloc.h>
#include <sys/resource.h>
#endif

// ---- memory ---------------------------------------------------------------------------------------------------------

static void note_peak(account *a, size_t bytes) {
  size_t peak = a->peak;
  while (bytes > peak && !atomic_compare_exchange_weak(&a->peak, &peak, bytes)) {}
}

// The most bytes that the accounts below a may hold together if one of them is to hold `of_one`.
static size_t most_for(const account *a, size_t of_one) {
  return of_one > a->spare / 16 ? a->most - a->spare : a->most;
}

static bool system_is_short(account *a, size_t n, size_t of_one) {
  enum { STEP = 256 << 10, CHARGED = 3 };
  if (!a->system) return false;
  bool due = atomic_fetch_add(&a->unasked, n) + n > STEP || a->scarce;
  if (!due || (of_one <= STEP && n <= STEP)) return false;
  uint64_t left = a->system();
  a->unasked = 0;
  bool scarce = left < a->keep || (left - a->keep) / CHARGED < n;
  a->scarce = scarce;
  return scarce;
}

// of_one: what the account below it, for which this is taken, will hold.
static const account *take_for_one(account *a, size_t n, size_t of_one) {
  if (!a) return NULL;
  size_t held = a->bytes, most = most_for(a, of_one);
  bool fits = held <= most && n <= most - held;
  if (fits && system_is_short(a, n, of_one)) return a;
  // compared first, so that a refused request never takes room from others
  do {
    if (held > most || n > most - held) {
      a->scarce = false;                         // this is why, whatever the system said to another one before
      return a;
    }
  } while (!atomic_compare_exchange_weak(&a->bytes, &held, held + n));
  const account *full = take_for_one(a->up, n, held + n);
  if (full) atomic_fetch_sub(&a->bytes, n);
  else note_peak(a, held + n);
  return full;
}

const account *account_take(account *a, size_t n) { return take_for_one(a, n, 0); }

void account_add(account *a, size_t n) {
  for (; a; a = a->up) note_peak(a, atomic_fetch_add(&a->bytes, n) + n);
}

void account_give(account *a, size_t n) {
  for (; a; a = a->up) atomic_fetch_sub(&a->bytes, n);
}

void account_close(account *a) { account_give(a, a->bytes); }

static size_t left_of(const account *a, size_t of_one) {
  size_t bytes = a->bytes, most = a->most - a->spare, small = a->spare / 16;
  size_t left = bytes < most ? most - bytes : 0, all = bytes < a->most ? a->most - bytes : 0;
  size_t own = of_one < small ? small - of_one : 0;
  if (own > all) own = all;
  return left > own ? left : own;
}

size_t account_left(const account *a) {
  size_t least = SIZE_MAX, of_one = 0;
  for (; a; a = a->up) {
    size_t left = left_of(a, of_one);
    if (left < least) least = left;
    of_one = a->bytes;
  }
  return least;
}

bool account_is_crowded(const account *a) {
  return a && a->bytes < a->most && account_left(a) < a->most - a->bytes;
}

void memory_give_back_large(void) {
#ifdef __GLIBC__
  struct rlimit addresses;
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  // each thread would reserve 64 MiB of addresses for its own small blocks
  if (!getrlimit(RLIMIT_AS, &addresses) && addresses.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
#endif
}

void memory_trim(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// --- the account of a thread -----------------------------------------------------------------------------------------

static _Thread_local struct { account *of; int64_t since; } here;

static int64_t thread_ns(void) {
  struct timespec t;
  return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) ? 0 : (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

account *account_here(void) { return here.of; }

account_scope account_enter(account *a) {
  account_scope before = {here.of};
  int64_t now = here.of || a ? thread_ns() : 0;
  if (here.of) atomic_fetch_add(&here.of->ns, now - here.since);
  here.of = a;
  here.since = now;
  return before;
}

void account_leave(account_scope before) { account_enter(before.before); }

int account_take_for(account *a, size_t n, error *err) {
  const account *full = account_take(a, n);
  if (!full) return 0;
  *(full != a ? &a->crowded : &a->full) = true;
  if (full->scarce)
    return error_set(err, "%zu MB of memory are needed for it, and the system has too little left (of the machine, its "
                          "control group or ulimit)", (n >> 20) + 1);
  return error_set(err, "%zu MB of memory are needed for it, beside %zu MB that are held; %zu MB is the most (%s)",
                   (n >> 20) + 1, full->bytes >> 20, full->most >> 20, full->bytes_option);
}

int account_take_here(size_t n, error *err) { return account_take_for(here.of, n, err); }

void account_give_here(size_t n) { account_give(here.of, n); }
void account_spend_here(int64_t ns) { if (here.of) atomic_fetch_add(&here.of->ns, ns); }

int account_check(error *err) {
  const account *a = here.of;
  if (!a) return 0;
  int64_t ns = a->ns + thread_ns() - here.since;
  if (ns > a->most_ns)
    return error_set(err, "the work for this request has taken %.1f s of a processor, and %g s is the most (%s)",
                     1e-9 * (double)ns, 1e-9 * (double)a->most_ns, a->time_option);
  for (; a; a = a->up) {
    if (a->bytes <= a->most) continue;
    if (a != here.of) here.of->crowded = true;
    return error_set(err, "%zu MB of memory are needed, and %zu MB is the most (%s)", a->bytes >> 20, a->most >> 20,
                     a->bytes_option);
  }
  return 0;
}
