// account: what a piece of work may take of memory and of a processor's time, and what it has taken.
//
// Accounts are a tree: a request's is below the server's, and what it takes counts in both.  Who makes something for a
// request takes its bytes before, and gives back what is freed; what is left is given back at once when the account is
// closed.  Makers far from the request (templates, grammars) find its account through the thread that works for it:
// account_enter.  Arenas charge the account of the thread that made them.
// Invariant: an account outlives what charges it.
#ifndef WEFT_ACCOUNT_H
#define WEFT_ACCOUNT_H
#include "base/base.h"

typedef struct account {
  struct account *up;                  // NULL: it is the root
  _Atomic size_t bytes, peak;          // held now, and at most so far
  size_t most;                         // bytes; SIZE_MAX: any number
  // bytes of `most` that only accounts below it get which hold a sixteenth of them or less
  size_t spare;
  _Atomic int64_t ns;                  // of processors, by threads that have left
  int64_t most_ns;                     // INT64_MAX: any time
  const char *bytes_option, *time_option;        // what sets these, for messages
  _Atomic bool crowded;                // work for it has failed since accounts above had no room
  _Atomic bool full;                   // work for it has failed since it had no room itself
} account;

// NULL: n bytes more are held.  Otherwise the account that has no room for them, and nothing has changed. Any thread.
const account *account_take(account *a, size_t n);
void account_add(account *a, size_t n);          // in any case: it exists already
void account_give(account *a, size_t n);
void account_close(account *a);                  // gives back all that it holds
size_t account_left(const account *a);           // bytes that it, and those above it, have room for
bool account_is_crowded(const account *a);       // those above it leave less room than it has itself

// From here on this thread works for a, whose processor time it is (NULL: for nobody), until account_leave.
typedef struct account_scope { account *before; } account_scope;
account_scope account_enter(account *a);
void account_leave(account_scope before);
account *account_here(void);                     // NULL: for nobody
// Takes n bytes of an account (NULL: of none). -1 and a sentence with the numbers: there is no room for them.
int account_take_for(account *a, size_t n, error *err);
int account_take_here(size_t n, error *err);     // of the account of this thread, if it has one
void account_give_here(size_t n);
void account_spend_here(int64_t ns);             // of a processor, by a process that worked for it
// Whether the work of this thread may go on.  -1 and a sentence: it has taken more than it may of memory or of time.
// Asks the system for the time: a microsecond or less.
int account_check(error *err);
// The same for what a loop does each time: looks once in 4096 steps.  *steps: its own count.
static inline int account_step(unsigned *steps, error *err) { return ++*steps % 4096 ? 0 : account_check(err); }

// Memory that is free goes back to the system, where the C library keeps it.
void memory_trim(void);
// From now on large blocks go back at once. By itself the C library raises what it calls large with each that is freed,
// up to 32 MiB, and what lives between two of them keeps both.
void memory_give_back_large(void);
#endif
