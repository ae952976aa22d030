// follow: a model on several processes (device/ranks.h). The first one has the command, the requests and the sequences;
// the others follow it: they open the files that it opens, make the plans that it makes, and run what it runs, on the
// same inputs. What flows between the processes inside a run is the plan's (schedule/ranks.h).
#ifndef WEFT_FOLLOW_H
#define WEFT_FOLLOW_H
#include "engine/engine_impl.h"

// On the first process: the others do the same. Each of these returns when they have been told.
int follow_open(engine *e, error *err);            // the file is open, and its caches are
void follow_close(engine *e);
void follow_plan(engine *e, const plan_spec *spec);
// plan_options.starts and .ends
void follow_starts(void *ctx, const plan *p, const plan_var *vars, int n_vars);
void follow_ends(void *ctx);
// After a run that came upon a broken invariant: the others wait in it.
void follow_broken(const engine *e);
// Pieces that all states of a group have of a page or slot: copied; given back, so that they are zeros; and of all
// processes' parts made whole here, or put there. all: n bytes, one behind the other.
void follow_copy(const caches *c, int group, int from, int to);
void follow_discard(const caches *c, int group, int first, int n);
void follow_read(const caches *c, int group, int number);
void follow_write(const caches *c, int group, int number, const void *all, size_t n);

// On the others: until the first one leaves. 0, or -1 and why not.
int follow_rank_0(error *err);
void follow_leave(void);           // the first one does; the others hear of it
#endif
