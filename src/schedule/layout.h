// Layouts of weights: the order of a weight's bytes in memory, derived from the loads of the kernels before loops are
// formed. See layout.c.
#ifndef WEFT_LAYOUT_H
#define WEFT_LAYOUT_H
#include "schedule/schedule.h"

// Kinds of layout. The default rules use LAYOUT_ROWS; a search tries the others (engine/layouts.c).
enum layout_kind {
  LAYOUT_ROWS,               // for each vector of rows, all of its blocks
  LAYOUT_FILE,               // unchanged from the file: kernels gather bytes
  // 2 or 4 vectors of rows next to each other, block by block: for kernels that compute them together
  LAYOUT_TILES_2,
  LAYOUT_TILES_4,
  LAYOUT_KINDS
};
const char *layout_name(enum layout_kind k);                     // "rows", "file", "tiles2"
int layout_tiles(enum layout_kind k);                            // number of vectors of rows next to each other

// lanes: maximum rows in a vector of sums, or in neighbouring work-items, on the target machine; 0: rows are not placed
// next to each other. bytes: bytes of a row that should be contiguous; 0: what the instructions of the sums take.
typedef struct layout_target { int lanes, bytes; } layout_target;

// A one-to-one map between the bytes of a weight in the file and in its copy. For every step of the loops, outermost
// first, the copy has the units of one block in the order in which they are read, each unit for all lanes. If the file
// has rows interleaved, `together` at a time, then lane_step is between groups of them, and each unit has a step of its
// own between rows of a group.
enum { LAYOUT_LOOPS = 10 };
// from: bytes after the offset that the loops give; row: bytes to this unit of the next row of a group
typedef struct layout_unit { int32_t from, bytes, row; } layout_unit;
typedef struct layout {
  uint64_t hash;                          // of all other fields
  enum dtype dt;                          // element type in the file
  enum dtype to;  // element type in the copy, of equal size; elements are converted if it differs from dt
  int64_t elems;                          // in the file
  int64_t bytes, base, lanes, lane_step;  // size of the copy; first byte of the file in it; bytes between lanes
  int64_t together;                       // rows of a group; 1: separate rows
  int n_loops, n_units;                   // no units: the file's bytes unchanged
  struct layout_loop { int64_t size, step, rows; } loop[LAYOUT_LOOPS];   // step: bytes in the file, or rows of a group
  const layout_unit *unit;
} layout;

// Gives the kernels of a schedule layouts for the weights that they read (sched_kernel.layouts). If lanes of sums are
// rows that are far apart in the file, the weight's PARAM becomes kind stream, type U8, with layout->bytes elements.
// choose: returns the kind for buffer `id` (NULL: LAYOUT_ROWS for all). Everything is allocated in g's arena.
typedef enum layout_kind layout_choice(void *ctx, int64_t id);
void layout_weights(graph *g, schedule *s, const layout_target *t, layout_choice *choose, void *ctx);
// The kernel that makes the copy, SINK(STORE...), with the copy as argument 0 and the file's bytes as argument 1, tiled
// by its outermost loop. NULL: the copy is a plain memory copy.
uop *layout_filling(graph *g, const layout *l);
#endif
