// The public API for rows of floats (include/weft.h): argument checks over float_rows.h.
#include <math.h>
#include <stdlib.h>
#include "weft.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "engine/float_rows.h"
#include "engine/sized.h"

struct weft_rows { weft_model *m; float_rows *r; };

int weft_model_row_width(const weft_model *m) { return engine_n_floats(weft_model_peek(m)); }

static int check_floats(const float *at, size_t n, int width, weft_error *err) {
  for (size_t i = 0; i < n * (size_t)width; i++)
    if (!isfinite(at[i])) FAIL(err, "float %zu of row %zu is no finite number", i % (size_t)width, i / (size_t)width);
  return 0;
}

static int check_spec(const weft_model *m, const weft_rows_spec *s, weft_error *err) {
  int n_ctx = weft_model_context(m);
  if (engine_is_encoder(weft_model_peek(m)))
    FAIL(err, "this model sees texts as a whole, and reads no rows of floats");
  if (!s->n || s->n > (size_t)n_ctx) FAIL(err, "%zu rows of floats; there must be 1 to %d", s->n, n_ctx);
  if (!s->floats && !s->n_key) FAIL(err, "rows of floats without floats, and without a key that names them");
  if (s->positions && (s->n_positions < 1 || s->n_positions > n_ctx))
    FAIL(err, "%zu rows use up %d positions; it must be 1 to %d", s->n, s->n_positions, n_ctx);
  int block = engine_block(weft_model_peek(m));
  if (s->both_ways && block)
    FAIL(err, "rows that see each other both ways are evaluated together, and this model's runs end at multiples of %d "
              "positions", block);
  for (size_t i = 0; s->positions && i < 3 * s->n; i++)
    if (s->positions[i] < 0 || s->positions[i] >= n_ctx)
      FAIL(err, "row %zu of floats is at position %d; it must be 0 to %d", i / 3, s->positions[i], n_ctx - 1);
  return s->floats ? check_floats(s->floats, s->n, weft_model_row_width(m), err) : 0;
}

int weft_rows_new(weft_model *m, const weft_rows_spec *spec, weft_rows **out, weft_error *err) {
  weft_rows_spec own = {0}, *s = &own;
  if (TAKE_OPTIONS(s, weft_rows_spec, n_key, spec, err)) return -1;
  if (check_spec(m, s, err)) return -1;
  bool placed = s->positions && engine_has_sections(weft_model_peek(m));
  float_spec of = {.at = s->floats,
                   .n = s->n,
                   .width = weft_model_row_width(m),
                   .turns = placed ? s->positions : NULL,
                   .n_pos = s->n_positions,
                   .both = s->both_ways,
                   .key = s->n_key ? s->key : NULL,
                   .n_key = s->n_key};
  *out = xmalloc(sizeof **out);
  **out = (weft_rows){m, float_rows_new(engine_float_table(weft_model_beside(m)), &of)};
  return 0;
}

int weft_rows_fill(weft_rows *r, const float *floats, weft_error *err) {
  if (check_floats(floats, r->r->n, r->r->width, err)) return -1;
  float_rows_fill(r->r, floats);
  return 0;
}

bool weft_rows_filled(const weft_rows *r) { return float_rows_are_there(r->r); }

const int32_t *weft_rows_ids(const weft_rows *r, size_t *n) {
  *n = r->r->n;
  return r->r->ids;
}

void weft_rows_free(weft_rows *r) {
  if (!r) return;
  float_rows_drop(r->r);
  free(r);
}

size_t weft_before_rows(const int32_t *ids, size_t n, size_t n_ids) { return float_rows_cut(ids, n, n_ids); }

size_t weft_piece_of(weft_model *m, const int32_t *ids, size_t n, size_t most) {
  size_t row, piece = most > 1 ? most : 1;
  if (piece >= n) return n;
  const float_rows *r =
    ids[piece] < 0 ? float_rows_find(engine_float_table(weft_model_beside(m)), ids[piece], &row) : NULL;
  if (!r || !r->both || !row) return piece;
  if (row < piece) return piece - row;
  return piece - row + r->n < n ? piece - row + r->n : n;
}

size_t weft_common(const int32_t *x, size_t n_x, const int32_t *y, size_t n_y) {
  return float_rows_common(x, n_x, y, n_y);
}
