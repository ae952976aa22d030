// float_rows: rows of floats that stand in tokens' places: what an encoder made of a picture or of a sound. A span of
// them is given a negative id for each row, derived from a digest of the span: of its floats (or of a key that stands
// for them), the positions its rows turn by, and whether they see each other both ways. So a prompt is a list of ids as
// any other: it is compared, shared, kept in files and taken up again by ids, and two spans have the same ones where
// they are the same. The ids of a row hang on the whole span; 31 bits each, so that only all of them together name it.
//
// The table finds a span by an id. Spans are there as long as somebody holds them. Any thread may use it.
#ifndef WEFT_FLOAT_ROWS_H
#define WEFT_FLOAT_ROWS_H
#include "base/base.h"

typedef struct float_table float_table;
typedef struct float_rows {
  float_table *table;
  int holders;
  size_t n;
  float *at;                 // n x width; NULL: they are not there yet
  int width;
  int32_t *turns;            // n x 3: positions of time, row and column, from the span's first one on
  int n_pos;                 // positions that the span uses up
  bool both;                 // its rows see each other both ways: they are evaluated together
  int32_t *ids;
  char digest[65];
} float_rows;

// at NULL: a key names them, and float_rows_fill brings them. turns NULL: one position a row.
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
void float_table_free(float_table *t);                 // when nobody holds any rows; NULL is fine
// A span, for float_rows_drop: the one that is there, if there is the same one.
float_rows *float_rows_new(float_table *t, const float_spec *spec);
void float_rows_fill(float_rows *r, const float *at);
float_rows *float_rows_hold(float_rows *r);
void float_rows_drop(float_rows *r);                   // NULL is fine
// The span that has this id, and which of its rows it is; NULL: none.
float_rows *float_rows_find(float_table *t, int32_t id, size_t *row);
// The same, for float_rows_drop.
float_rows *float_rows_find_held(float_table *t, int32_t id, size_t *row);
bool float_rows_are_there(const float_rows *r);        // whether they can be evaluated

// n of `all` ids, or fewer, so that no span is parted there.
size_t float_rows_cut(const int32_t *ids, size_t n, size_t all);
// How many ids two lists have in common at their beginnings. Spans are the same as a whole or not at all.
size_t float_rows_common(const int32_t *x, size_t n_x, const int32_t *y, size_t n_y);
#endif
