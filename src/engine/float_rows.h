// float_rows: rows of floats in place of tokens: the output of an encoder for a picture or a sound. Each row of a span
// has a negative id, derived from a digest of the span: of its floats (or of a key for them), its positions, and
// whether its rows see each other in both directions. A prompt is therefore a plain list of ids: it can be compared,
// shared, saved and resumed by ids, and equal spans have equal ids. An id depends on the whole span and has 31 bits, so
// only all ids together identify the span.
//
// The table finds a span by an id. A span lives as long as it is held. Any thread may use the table.
#ifndef WEFT_FLOAT_ROWS_H
#define WEFT_FLOAT_ROWS_H
#include "base/base.h"

typedef struct float_table float_table;
typedef struct float_rows {
  float_table *table;
  int holders;
  size_t n;
  float *at;                 // n x width; NULL: not available yet
  int width;
  int32_t *turns;            // n x 3: positions of time, row and column, relative to the span's first
  int n_pos;                 // number of positions used
  bool both;                 // its rows see each other in both directions, so they are evaluated together
  int32_t *ids;
  char digest[65];
} float_rows;

// at NULL: identified by a key, and float_rows_fill supplies the floats. turns NULL: one position per row.
typedef struct float_spec {
  const float *at;
  size_t n;
  int width;
  const int32_t *turns;
  int n_pos;
  bool both;
  const void *key;
  size_t n_key;
} float_spec;

float_table *float_table_new(void);
void float_table_free(float_table *t);                 // no rows may be held any more; NULL is fine
// A span, existing if an equal one exists; release it with float_rows_drop.
float_rows *float_rows_new(float_table *t, const float_spec *spec);
void float_rows_fill(float_rows *r, const float *at);
float_rows *float_rows_hold(float_rows *r);
void float_rows_drop(float_rows *r);                   // NULL is fine
// The span with this id, and the index of the row; NULL: none.
float_rows *float_rows_find(float_table *t, int32_t id, size_t *row);
// The span with this id, held: release it with float_rows_drop.
float_rows *float_rows_find_held(float_table *t, int32_t id, size_t *row);
bool float_rows_are_there(const float_rows *r);        // can they be evaluated?

// Reduces n of `all` ids so that no span is cut.
size_t float_rows_cut(const int32_t *ids, size_t n, size_t all);
// The number of leading ids that two lists share; spans match completely or not at all.
size_t float_rows_common(const int32_t *x, size_t n_x, const int32_t *y, size_t n_y);
#endif
