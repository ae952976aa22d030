// Layouts of weights: where the bytes of a weight lie, decided from the kernels' loads before there are loops. See
// layout.c.
#ifndef WEFT_LAYOUT_H
#define WEFT_LAYOUT_H
#include "schedule/schedule.h"

// How a weight is laid out where that helps. The rules have LAYOUT_ROWS everywhere; others are tried by a search
// (engine/layouts.c).
enum layout_kind {
  LAYOUT_ROWS,               // for each tile of rows that a vector holds all of its blocks
  LAYOUT_FILE,               // as it lies in the file: bytes are gathered
  // so many tiles of rows lie side by side, block by block: for kernels that compute them together
  LAYOUT_TILES_2,
  LAYOUT_TILES_4,
  LAYOUT_KINDS
};
const char *layout_name(enum layout_kind k);                     // "rows", "file", "tiles2"
int layout_tiles(enum layout_kind k);                            // how many side by side

// How many rows a vector of sums holds at most, on the machine that is meant, or neighbouring work-items do. 0: none
// lie side by side. bytes: of a row, that should lie together; 0: what the sums' instructions take.
typedef struct layout_target { int lanes, bytes; } layout_target;

// A map between bytes of a weight as they lie in the file and a copy of them, one to one: for every step of the loops,
// outermost first, the units of one block in the order in which they are read, each of them for all lanes.
enum { LAYOUT_LOOPS = 10 };
typedef struct layout_unit { int32_t from, bytes; } layout_unit;     // from: bytes behind what the loops say
typedef struct layout {
  uint64_t hash;                          // of all of it
  enum dtype dt;                          // of the file's elements
  enum dtype to;                          // of the copy's, of the same size: they are converted where it is another
  int64_t elems;                          // in the file
  int64_t bytes, base, lanes, lane_step;  // size of the copy; the file's first byte that is in it; bytes between lanes
  int n_loops, n_units;                   // no units: the file's bytes as they lie
  struct layout_loop { int64_t size, step; } loop[LAYOUT_LOOPS];     // step: bytes of the file
  const layout_unit *unit;
} layout;

// Makes the kernels of a schedule read weights in layouts of theirs (sched_kernel.layouts): where lanes of sums are
// rows of a weight that lie apart in the file, that weight becomes the PARAM of kind stream, U8, of layout->bytes
// elements. choose: the kind for buffer `id` (NULL: LAYOUT_ROWS for all). Everything is allocated in g's arena.
typedef enum layout_kind layout_choice(void *ctx, int64_t id);
void layout_weights(graph *g, schedule *s, const layout_target *t, layout_choice *choose, void *ctx);
// The kernel that makes the copy: SINK(STORE...) over the copy as argument 0 and the file's bytes as argument 1, in
// tiles of its outermost loop; NULL: it is a plain copy.
uop *layout_filling(graph *g, const layout *l);
#endif
