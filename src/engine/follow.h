// follow: runs a model on several processes (device/ranks.h). The first process has the command, the requests and the
// sequences. The others follow it: they open the files that it opens, make its plans, and run them with the same
// inputs. Communication inside a run belongs to the plan (schedule/ranks.h).
#ifndef WEFT_FOLLOW_H
#define WEFT_FOLLOW_H
#include "engine/engine_impl.h"

// On the first process: makes the others do the same. Each of these returns after they have been told.
int follow_open(engine *e, error *err);            // the file and its caches are open
void follow_close(engine *e);
void follow_plan(engine *e, const plan_spec *spec);
// plan_options.starts and .ends
void follow_starts(void *ctx, const plan *p, const plan_var *vars, int n_vars);
void follow_ends(void *ctx);
// After a run that broke an invariant: ends the others, which still wait in it.
void follow_broken(const engine *e);
// The pieces of a page or slot in all states of a group: makes them readable; copies them; zeroes them; assembles the
// parts of all processes here, or distributes them. all: n consecutive bytes.
void follow_touch(const caches *c, int group, int page);
void follow_copy(const caches *c, int group, int from, int to);
void follow_discard(const caches *c, int group, int first, int n);
void follow_read(const caches *c, int group, int number);
void follow_write(const caches *c, int group, int number, const void *all, size_t n);

// Sends the others bytes of the program.
void follow_tell(const void *what, size_t n);

// On the other processes: follows until the first one leaves. Returns 0, or -1 and the reason. told: gets the bytes of
// follow_tell; NULL: they are ignored.
int follow_rank_0(void (*told)(void *ctx, const void *what, size_t n), void *ctx, error *err);
void follow_leave(void);           // called by the first process; tells the others
#endif
