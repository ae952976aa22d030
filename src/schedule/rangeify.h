// Movement ops as maps between indices, and the lowering of tensor nodes to expressions over ranges.
#ifndef WEFT_RANGEIFY_H
#define WEFT_RANGEIFY_H
#include "schedule/schedule.h"

// The place of an element: one IDX expression per axis. `valid` (BOOL; NULL: always true) is false in padding.
typedef struct place { int n; uop *idx[MAX_DIMS], *valid; } place;

// Maps a place `at` in the result of movement op u to a place in u->src[0].
void move_place(graph *g, const uop *u, const place *at, place *src);
// Row-major element number in memory; a symbolic axis counts with its upper bound.
uop *flat_index(graph *g, const shape *s, const place *at);
// Element number in an intermediate, whose layout the scheduler chooses: a symbolic axis that is not outermost is split
// into tiles, with the tile number first, so that the memory touched grows with the current size and not with the
// bound.
uop *temp_index(graph *g, const shape *s, const place *at);
// The place in the GATHER's x for a (lowered) row number.
void gather_place(const uop *u, const place *at, uop *row, place *x, place *ids);

// Decisions of the cost model, and what lowering needs to know about them.
typedef struct fusion {
  graph *g;
  map stored;                // tensor node -> BUFFER that holds it
  map home;                  // shared STAGE -> the stored tensor whose kernel fills that buffer
  map height;                // tensor node -> levels of reductions below it that are not stored (as uintptr)
} fusion;
// The value of tensor u at a place, as an expression. `memo` is per kernel.
typedef struct lowering { fusion *f; smap memo, stages; arena *mem; uop *self; VEC(int64_t) numbers; } lowering;
uop *lower(lowering *l, uop *u, const place *at);
// Maps a place `at` in a view (is_view) to a place in the view's source.
void view_place(lowering *l, uop *u, const place *at, place *src);
void lowering_free(lowering *l);

// A STAGE at a place. An axis whose index is a loop over the kernel's results belongs to the tile. Along the other axes
// all elements are computed and stored in the tile's local memory:
//   LOAD(INDEX(LOCAL, read index), STORE(INDEX(LOCAL, j), value at j, ranges j...))
// The LOAD depends on the STORE, so the STORE comes first; linearisation puts it where all loops of its value are open.
// stage_fits is false if this form is impossible (padding, symbolic sizes): the value is then recomputed at each read.
bool stage_fits(const uop *stage, const place *at);
bool belongs_to_tile(const uop *index);
#endif
