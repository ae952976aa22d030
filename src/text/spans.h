// spans: parts of a text, in order, none of them empty and no two touching.
#ifndef WEFT_SPANS_H
#define WEFT_SPANS_H
#include "base/base.h"

typedef struct text_span { size_t from, to; } text_span;   // bytes [from, to)
typedef VEC(text_span) text_spans;                          // for vec_free

// Adds [from, to), which begins at or after the end of the last one.
static inline void spans_add(text_spans *s, size_t from, size_t to) {
  if (from == to) return;
  if (s->n && s->at[s->n - 1].to == from) s->at[s->n - 1].to = to;
  else vec_push(s, ((text_span){from, to}));
}

// The end of the span that holds byte i, or 0. *next begins at 0; i must not decrease between calls.
static inline size_t spans_end_at(const text_spans *s, size_t i, size_t *next) {
  while (*next < s->n && s->at[*next].to <= i) ++*next;
  return *next < s->n && s->at[*next].from <= i ? s->at[*next].to : 0;
}
#endif
