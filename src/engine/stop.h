// stop: looks for stop strings in a text that comes in pieces.  What may be the beginning of one is held back until the
// next piece decides it.  Invariant: what was given out, what is held back and nothing else is the text; cutting the
// same text differently gives out the same.
#ifndef WEFT_STOP_H
#define WEFT_STOP_H
#include "base/base.h"

typedef struct weft_stop stop;
// -1: one is empty or very long, or there are very many
int stop_new(const char *const *texts, size_t n, stop **out, error *err);
void stop_free(stop *s);                                                       // NULL is fine
// Text that may be shown, borrowed until the next call.  *found: which one ended the text, or -1.
const char *stop_add(stop *s, const char *text, size_t n, size_t *n_out, int *found);
const char *stop_end(stop *s, size_t *n_out);                                  // what was held back
#endif
