// Two new sequences of a model, evaluated in one step: for tools that open files which were changed.
#ifndef TWO_SEQUENCES_H
#define TWO_SEQUENCES_H
#include "weft.h"

// The first sequence gets ids[0 .. n - 1], the second one ids[1]. 0, or -1 and the reason.
static inline int two_sequences(weft_model *m, const int32_t *ids, size_t n, weft_error *err) {
  weft_tokens parts[2] = {{.ids = ids, .n = n}, {.ids = ids + 1, .n = 1}};
  int status = 0;
  for (int i = 0; i < 2 && !status; i++) status = weft_sequence_new(m, &parts[i].sequence, err);
  if (!status) status = weft_step(m, parts, 2, NULL, NULL, err);
  for (int i = 0; i < 2; i++) weft_sequence_free(parts[i].sequence);
  return status;
}
#endif
