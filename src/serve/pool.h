// pool: a few threads for work that must not delay the sockets or the model's steps: JSON, templates, tokenising,
// writing answers.
#ifndef WEFT_SERVE_POOL_H
#define WEFT_SERVE_POOL_H
#include "base/base.h"

typedef struct pool pool;
int pool_start(int threads, pool **out, error *err);
void pool_add(pool *p, void (*job)(void *ctx), void *ctx);     // in order of arrival; never blocks
// A job is about to wait for something outside this process: until pool_go_on() another thread takes jobs in its place.
// false: the limit (32) is reached.
bool pool_wait(pool *p);
void pool_go_on(pool *p);
void pool_stop(pool *p);                                       // after all jobs are done
#endif
