// attempt: work in which a broken invariant (die) is an error of that work and not the end of the program.
//
// While fn runs, die on the same thread leaves it by longjmp and becomes the error of the innermost attempt. What fn
// changed stays as it was at that moment, so fn holds no lock there, and who called forgets what was half made.
// With ATTEMPT_OWNS all memory that fn took by xmalloc and its kin and did not free is given back: such an fn writes
// into nothing that lives on, but its result. With ATTEMPT_LEAVES it stays, and is lost where nobody knows of it.
// Threads that fn starts or wakes have attempts of their own, or none: then die ends the program as ever.
#ifndef WEFT_ATTEMPT_H
#define WEFT_ATTEMPT_H
#include <setjmp.h>
#include "base/base.h"

enum attempt_kind { ATTEMPT_OWNS, ATTEMPT_LEAVES };
typedef void attempt_fn(void *ctx);
// 0: fn returned; -1: it died, and err says where: "internal error at src/graph/graph.c:33: ..." and what it was busy
// with (attempt_about).
int attempt(enum attempt_kind kind, attempt_fn *fn, void *ctx, error *err);

// What the attempt of this thread is busy with, for its error: both texts live as long as it does, or NULL. Nothing
// where there is none.
void attempt_about(const char *what, const char *name);

// For work on a thread whose attempt must not be left (others wait for it): without one until attempt_resume.
struct attempt_frame;
struct attempt_frame *attempt_suspend(void);
void attempt_resume(struct attempt_frame *f);

// ---- faults on purpose, for tests -----------------------------------------------------------------------------------

// The N-th time that the check at a place ("shape.c:113") is passed, it fails as if its invariant were broken; "PLACE"
// alone: the first time. "count": checks are counted, and none fails. NULL or "": neither. Counts begin anew.
void die_inject(const char *spec);
// Calls fn for each place that was passed since, with the number of times.
void die_places(void (*fn)(void *ctx, const char *file, int line, int64_t times), void *ctx);
#endif
