// What tests of the engine share that evaluate tokens of its own sequence.
#ifndef WEFT_TESTS_EVALUATE_H
#define WEFT_TESTS_EVALUATE_H
#include "engine/engine.h"

// Logits of the last of n tokens at pos, valid until the next call.
static const float *evaluate(engine *e, const int32_t *ids, size_t n, int pos) {
  error err = {0};
  engine_part p = {.ids = ids, .n = n, .pos = pos, .rows = 1};
  if (engine_run(e, &(engine_batch){.parts = &p, .n = 1, .alone = true}, &err)) fail_msg("%s", err.text);
  return p.logits;
}
#endif
