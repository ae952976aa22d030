// masks: computes which tokens grammars allow next, on separate threads while steps run. A late mask delays only its
// own request: steps of others go on, and another thread makes their masks.
//
// A grammar and its copies may be used by one thread at a time (weft.h), and the choices of a request have copies of
// one. So a job is a request: while masks_busy is true its grammars must not be used, copied or freed by others.
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

// If no thread can be made, masks are made when they are waited for.
void masks_open(masks *m);
// Starts masks for those of these runs that need one, unless their request is busy.
void masks_begin(masks *m, run *const *of, size_t n);
bool masks_busy(masks *m, const request *r);
// Waits until r is not busy, or until a time of now_s(). false: it is still busy, and late from now on.
bool masks_wait(masks *m, const request *r, double until);
void masks_wait_any(masks *m, double until);           // until any job is done
void masks_close(masks *m);            // then no request is busy
#endif
