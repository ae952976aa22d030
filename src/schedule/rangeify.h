// Movement ops as maps between indices; and the lowering of tensor nodes to expressions over ranges.
#ifndef WEFT_RANGEIFY_H
#define WEFT_RANGEIFY_H
#include "schedule/schedule.h"

// The place of an element: one IDX expression per axis; `valid` (BOOL, or NULL: always) says where it exists (padding).
typedef struct place { int n; uop *idx[MAX_DIMS], *valid; } place;

// Where in u->src[0] the element `at` of movement op u comes from.
void move_place(graph *g, const uop *u, const place *at, place *src);
// Row-major element number in memory: symbolic axes are laid out at their upper bounds.
uop *flat_index(graph *g, const shape *s, const place *at);
// The same for an intermediate, whose layout is ours to choose: a symbolic axis that is not the outermost is cut into
// tiles whose number comes first, so that memory is touched in proportion to the size in force, not to its bound.
uop *temp_index(graph *g, const shape *s, const place *at);
// Place in the GATHER's x, given the (lowered) row number.
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
// Where in its source a view (is_view) finds what it shows at `at`.
void view_place(lowering *l, uop *u, const place *at, place *src);
void lowering_free(lowering *l);

// A STAGE at a place: an axis whose index is a loop over the kernel's results belongs to the tile; along the others all
// elements are computed and stored in memory of the tile's own:
//   LOAD(INDEX(LOCAL, where they are read), STORE(INDEX(LOCAL, j), value at j, ranges j...))
// which says that the STORE comes first. Linearisation puts it where all loops that its value depends on are open.
// False where there is no such form (padding, symbolic sizes): then x is computed again wherever it is read.
bool stage_fits(const uop *stage, const place *at);
bool belongs_to_tile(const uop *index);
#endif
