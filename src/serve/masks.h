// masks: which tokens grammars allow next, found by threads of their own while steps are computed.  A mask that is late
// costs its own request alone: the others' steps go on without it, and their masks are made by another thread.
//
// A grammar and its copies are for one thread at a time (weft.h), and the choices of a request have copies of one. So a
// job is a request: while masks_busy says so nobody else may use its grammars, neither copy nor free them.
#ifndef WEFT_SERVE_MASKS_H
#define WEFT_SERVE_MASKS_H
#include <pthread.h>
#include "serve/run.h"

struct mask_job;
typedef struct masks {
  pthread_mutex_t lock;
  pthread_cond_t more, made;           // for the threads; for the scheduler
  VEC(struct mask_job *) jobs;
  int threads, idle;
  bool stop;
} masks;

// Without a thread, where none could be made, masks are made when they are waited for.
void masks_open(masks *m);
// Begins with those of these runs that need one, unless their request is busy.
void masks_begin(masks *m, run *const *of, size_t n);
bool masks_busy(masks *m, const request *r);
// Until r is not busy, or until a time of now_s(). false: it still is, and is late from here on.
bool masks_wait(masks *m, const request *r, double until);
void masks_wait_any(masks *m, double until);           // until any job is done
void masks_close(masks *m);            // no request is busy any more
#endif
