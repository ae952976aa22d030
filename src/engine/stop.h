// stop: finds stop strings in a text that arrives in pieces. A possible beginning of one is held back until the next
// piece decides. Invariant: output plus held text is the whole text, and the output does not depend on how the text is
// split.
#ifndef WEFT_STOP_H
#define WEFT_STOP_H
#include "base/base.h"

typedef struct weft_stop stop;
// -1: one is empty or very long, or there are too many
int stop_new(const char *const *texts, size_t n, stop **out, error *err);
void stop_free(stop *s);                                                       // NULL is fine
// Text that may be shown, borrowed until the next call. *found: the stop string that ended the text, or -1.
const char *stop_add(stop *s, const char *text, size_t n, size_t *n_out, int *found);
const char *stop_end(stop *s, size_t *n_out);                                  // the held text
#endif
