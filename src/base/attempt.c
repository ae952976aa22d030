// Attempts and the memory that they own: see attempt.h. Each thread has a chain of frames. The memory of the innermost
// frame is a set of addresses, which xmalloc, xrealloc and free maintain (base.c); when an inner attempt succeeds, its
// memory passes to the outer one.
#include "base/attempt.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/account.h"
#include "base/base_impl.h"

#undef free                                    // here free is libc's

// A hash table with open addressing; on removal, later entries move up. NULL: an empty place.
typedef struct owned { void **at; size_t n, cap; } owned;

struct attempt_frame {
  struct attempt_frame *outer;
  enum attempt_kind kind;
  jmp_buf leave;
  error why;
  owned owned;
  const char *what, *name;
  int n_held;                                  // locks that the thread held before
};

static _Thread_local struct attempt_frame *innermost;

// ---- what a frame owns ----------------------------------------------------------------------------------------------

static size_t home_of(const owned *o, const void *p) {
  return (size_t)hash_u64((uint64_t)(uintptr_t)p, 0) & (o->cap - 1);
}

static void put(owned *o, void *p) {
  size_t i = home_of(o, p);
  while (o->at[i]) i = (i + 1) & (o->cap - 1);
  o->at[i] = p;
}

static void own(owned *o, void *p) {
  if (2 * o->n >= o->cap) {
    owned old = *o;
    o->cap = old.cap ? 2 * old.cap : 64;
    o->at = calloc(o->cap, sizeof *o->at);
    if (!o->at) out_of_memory(o->cap * sizeof *o->at);
    for (size_t i = 0; i < old.cap; i++) if (old.at[i]) put(o, old.at[i]);
    free(old.at);
  }
  put(o, p);
  o->n++;
}

static bool disown(owned *o, const void *p) {
  if (!o->n) return false;
  size_t mask = o->cap - 1, i = home_of(o, p);
  while (o->at[i] && o->at[i] != p) i = (i + 1) & mask;
  if (!o->at[i]) return false;
  o->n--;
  for (size_t j = i;;) {
    o->at[i] = NULL;
    do {
      j = (j + 1) & mask;
      if (!o->at[j]) return true;
    } while (((j - home_of(o, o->at[j])) & mask) < ((j - i) & mask));
    o->at[i] = o->at[j];
    i = j;
  }
}

static struct attempt_frame *owning(void) {
  struct attempt_frame *f = innermost;
  while (f && f->kind != ATTEMPT_OWNS) f = f->outer;
  return f;
}

void attempt_took(void *p) {
  struct attempt_frame *f = owning();
  if (f) own(&f->owned, p);
}

void attempt_gave(void *p) {
  if (!p) return;
  for (struct attempt_frame *f = innermost; f; f = f->outer) if (disown(&f->owned, p)) return;
}

struct attempt_frame *attempt_owner(void *p) {
  if (!p) return owning();
  for (struct attempt_frame *f = innermost; f; f = f->outer) if (disown(&f->owned, p)) return f;
  return NULL;
}

void attempt_give(struct attempt_frame *f, void *p) {
  if (f) own(&f->owned, p);
}

// After success, the memory belongs to the enclosing attempt, if there is one that owns memory.
static void hand_over(struct attempt_frame *f) {
  for (size_t i = 0; i < f->owned.cap; i++) if (f->owned.at[i]) attempt_took(f->owned.at[i]);
  free(f->owned.at);
}

static void free_owned(struct attempt_frame *f) {
  for (size_t i = 0; i < f->owned.cap; i++) free(f->owned.at[i]);
  free(f->owned.at);
}

// ---- locks ----------------------------------------------------------------------------------------------------------

enum { MOST_HELD = 16 };
static _Thread_local struct { void (*give)(void *lock); void *lock; } held[MOST_HELD];
static _Thread_local int n_held;

void attempt_holds(void (*give)(void *lock), void *lock) {
  if (n_held == MOST_HELD) die("a thread with more than %d locks", MOST_HELD);
  held[n_held].give = give;
  held[n_held++].lock = lock;
}

void attempt_gives_back(void *lock) {
  if (!n_held || held[n_held - 1].lock != lock) die("a lock that is not the last one taken");
  n_held--;
}

static void give_back_to(int n) {
  while (n_held > n) {
    n_held--;
    held[n_held].give(held[n_held].lock);
  }
}

// ---- attempts -------------------------------------------------------------------------------------------------------

int attempt(enum attempt_kind kind, attempt_fn *fn, void *ctx, error *err) {
  struct attempt_frame f;                      // in memory, as its address is stored elsewhere
  f.outer = innermost;
  f.kind = kind;
  f.why.text[0] = 0;
  f.owned = (owned){0};
  f.what = f.name = NULL;
  f.n_held = n_held;
  account *const of = account_here();
  innermost = &f;
  if (!setjmp(f.leave)) {
    fn(ctx);
    innermost = f.outer;
    hand_over(&f);
    return 0;
  }
  innermost = f.outer;
  give_back_to(f.n_held);
  if (account_here() != of) account_enter(of);   // restores the account if fn left another one entered
  free_owned(&f);
  return error_set(err, "%s", f.why.text);
}

void attempt_about(const char *what, const char *name) {
  if (!innermost) return;
  innermost->what = what;
  innermost->name = name;
}

struct attempt_frame *attempt_suspend(void) {
  struct attempt_frame *f = innermost;
  innermost = NULL;
  return f;
}

void attempt_resume(struct attempt_frame *f) { innermost = f; }

void attempt_died(const char *text) {
  struct attempt_frame *f = innermost;
  if (!f) return;
  const struct attempt_frame *about = f;
  while (about && !about->what) about = about->outer;
  if (about) error_set(&f->why, "%s (while %s '%s' is used)", text, about->what, about->name);
  else error_set(&f->why, "%s", text);
  longjmp(f->leave, 1);
}

// --- injected faults -------------------------------------------------------------------------------------------------

bool die_counts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct passed { const char *file; int line; int64_t times; } *places;
static size_t n_places;
static struct { char file[64]; int line; int64_t nth; } wanted;

static struct passed *place_at(const char *file, int line) {
  for (size_t i = 0; i < n_places; i++) if (places[i].line == line && !strcmp(places[i].file, file)) return &places[i];
  struct passed *more = realloc(places, (n_places + 1) * sizeof *more);
  if (!more) abort();
  places = more;
  places[n_places] = (struct passed){file, line, 0};
  return &places[n_places++];
}

bool die_counted(const char *path, int line) {
  const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
  pthread_mutex_lock(&lock);
  int64_t times = ++place_at(file, line)->times;
  bool now = wanted.nth && line == wanted.line && times == wanted.nth && !strcmp(file, wanted.file);
  pthread_mutex_unlock(&lock);
  return now;
}

void die_inject(const char *spec) {
  long long nth = 1;
  pthread_mutex_lock(&lock);
  free(places);
  places = NULL;
  n_places = 0;
  wanted.nth = 0;
  if (spec && sscanf(spec, "%63[^:]:%d:%lld", wanted.file, &wanted.line, &nth) >= 2) wanted.nth = nth;
  die_counts = spec && *spec;
  pthread_mutex_unlock(&lock);
}

void die_places(void (*fn)(void *ctx, const char *file, int line, int64_t times), void *ctx) {
  for (size_t i = 0; i < n_places; i++) fn(ctx, places[i].file, places[i].line, places[i].times);
}
