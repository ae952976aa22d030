// pool: a few threads that do what must not hold up the sockets or the steps of the model: JSON, templates, tokenising,
// writing answers.
#ifndef WEFT_SERVE_POOL_H
#define WEFT_SERVE_POOL_H
#include "base/base.h"

typedef struct pool pool;
int pool_start(int threads, pool **out, error *err);
void pool_add(pool *p, void (*job)(void *ctx), void *ctx);     // in order of arrival; never waits
// A job is about to wait for something else than this process: until pool_go_on() another thread takes jobs in its
// place. false: as many wait as can (32).
bool pool_wait(pool *p);
void pool_go_on(pool *p);
void pool_stop(pool *p);                                       // when all jobs are done
#endif
