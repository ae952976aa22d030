// account: limits and measures the memory and the processor time of a piece of work.
//
// Accounts form a tree: a request's account is below the server's, and its use counts in both. Code that allocates for
// a request takes the bytes from its account first, and gives back what it frees; the rest is given back when the
// account is closed. Code far from the request (templates, grammars) finds the account through the thread that works
// for it: account_enter. Arenas charge the account of the thread that made them. Invariant: an account outlives what
// charges it.
#ifndef WEFT_ACCOUNT_H
#define WEFT_ACCOUNT_H
#include "base/base.h"

typedef struct account {
  struct account *up;                  // NULL: the root
  // Of the root: bytes that the process may still use; NULL: not asked. It is asked for every 256 KiB, on behalf of
  // accounts that hold more than that: `keep` of the bytes stay, and a third of the rest may be taken, since not all
  // memory is charged.
  uint64_t (*system)(void);
  size_t keep;
  _Atomic size_t unasked;              // bytes taken since it was asked
  _Atomic bool scarce;                 // its last answer was too little
  _Atomic size_t bytes, peak;          // held now, and the peak so far
  size_t most;                         // bytes; SIZE_MAX: unlimited
  // bytes of `most` that are reserved for accounts below it that hold at most a sixteenth of them
  size_t spare;
  _Atomic int64_t ns;                  // of processors, by threads that have left
  int64_t most_ns;                     // INT64_MAX: unlimited
  const char *bytes_option, *time_option;        // the options that set these, for messages
  _Atomic bool crowded;                // work failed because an account above had no room
  _Atomic bool full;                   // work failed because this account had no room
} account;

// Takes n more bytes and returns NULL, or changes nothing and returns the account that has no room for them. Any
// thread.
const account *account_take(account *a, size_t n);
void account_add(account *a, size_t n);          // without a check: the memory exists already
void account_give(account *a, size_t n);
void account_close(account *a);                  // gives back all that it holds
size_t account_left(const account *a);           // bytes for which this account and those above it have room
bool account_is_crowded(const account *a);       // the accounts above it leave less room than it has itself

// From here on this thread works for a, and its processor time counts there (NULL: in no account), until account_leave.
typedef struct account_scope { account *before; } account_scope;
account_scope account_enter(account *a);
void account_leave(account_scope before);
account *account_here(void);                     // NULL: none
// Takes n bytes from an account (NULL: none). -1 and a sentence with the numbers: there is not enough room.
int account_take_for(account *a, size_t n, error *err);
int account_take_here(size_t n, error *err);     // from this thread's account, if it has one
void account_give_here(size_t n);
void account_spend_here(int64_t ns);             // processor time of a process that worked for it
// Whether this thread's work may go on. -1 and a sentence: it has used more memory or time than it may. Reads the
// clock: a microsecond or less.
int account_check(error *err);
// account_check for loops: checks once in 4096 steps. *steps: the loop's counter.
static inline int account_step(unsigned *steps, error *err) { return ++*steps % 4096 ? 0 : account_check(err); }

// Returns free memory that the C library keeps to the system.
void memory_trim(void);
// From now on large blocks are returned to the system at once. By default the C library raises its threshold for large
// blocks each time one is freed, up to 32 MiB, and a small live block between two large ones keeps both.
void memory_give_back_large(void);
#endif
