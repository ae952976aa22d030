// attempt: work in which a broken invariant (die) is an error of that work instead of the end of the program.
//
// While fn runs, die on the same thread leaves it by longjmp and becomes the error of the innermost attempt. Objects
// that fn changed stay as they were at that moment, so fn must hold no lock there but one that attempt_holds knows
// (turn.h), and the caller discards half-made objects. With ATTEMPT_OWNS all memory that fn took by xmalloc and related
// functions and did not free is freed: such an fn writes into no object that outlives it except its result. With
// ATTEMPT_LEAVES the memory stays, and leaks if nothing refers to it. Threads that fn starts or wakes have attempts of
// their own or none; without one, die ends the program.
#ifndef WEFT_ATTEMPT_H
#define WEFT_ATTEMPT_H
#include <setjmp.h>
#include "base/base.h"

enum attempt_kind { ATTEMPT_OWNS, ATTEMPT_LEAVES };
typedef void attempt_fn(void *ctx);
// 0: fn returned; -1: it died, and err says where: "internal error at src/graph/graph.c:33: ..." and what it was doing
// (attempt_about).
int attempt(enum attempt_kind kind, attempt_fn *fn, void *ctx, error *err);

// Describes the current work of this thread's attempt, for its error. Both texts must stay valid as long as the
// attempt, or be NULL. Does nothing outside an attempt.
void attempt_about(const char *what, const char *name);

// For work on a thread whose attempt must not be left (other threads wait for it): suspends the attempt until
// attempt_resume.
struct attempt_frame;
struct attempt_frame *attempt_suspend(void);
void attempt_resume(struct attempt_frame *f);

// This thread has taken a lock: if die leaves an attempt that began before, give(lock) is called. Locks are given back
// in reverse order.
void attempt_holds(void (*give)(void *lock), void *lock);
void attempt_gives_back(void *lock);         // the last one; the caller gives it back itself

// --- injected faults, for tests --------------------------------------------------------------------------------------

// The N-th time that the check at a place ("shape.c:113") is reached, it fails as if its invariant were broken; "PLACE"
// alone: the first time. "count": checks are counted and do not fail. NULL or "": neither. Counts begin anew.
void die_inject(const char *spec);
// Calls fn for each place that was reached since, with the number of times.
void die_places(void (*fn)(void *ctx, const char *file, int line, int64_t times), void *ctx);
#endif
