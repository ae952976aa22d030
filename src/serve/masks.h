// masks: which tokens a grammar allows next, found by a thread of its own while a step is computed, so that nothing
// waits for it behind the step.
#ifndef WEFT_SERVE_MASKS_H
#define WEFT_SERVE_MASKS_H
#include <pthread.h>
#include "serve/run.h"

typedef struct masks {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool started, stop;
  VEC(run *) wanted;                   // of the step that is computed
  size_t made;
} masks;

// Without a thread, where none could be made, masks are made when they are needed.
void masks_open(masks *m);
// Begins with those of these runs that need one. Until masks_wait nobody else may use their grammars.
void masks_begin(masks *m, run *const *of, size_t n);
void masks_wait(masks *m);
void masks_close(masks *m);
#endif
