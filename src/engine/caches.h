// caches: the memory of what sequences leave behind from run to run: keys and values in pages (pages.h), fixed states
// in slots.
//
// Address space for all pages and slots is reserved once, so that no kernel depends on how long a context is; memory is
// taken when a page is first written to, and goes back when nobody holds the page any more.
//
// Layers with the same window have pages of their own (model_n_groups), so that a window gives back what it has left
// behind. A little more stays, since callers go back by a few positions: guesses that were wrong, an answer that is
// written again. Of a long prompt no page is taken for what only the first tokens see: its pages take turns. What
// stays further behind is what checkpoints ask for (checkpoints.c), a bounded amount: a sequence can be taken up
// wherever the pages that windows look at are there. Elsewhere it is evaluated again from the last such place on.
#ifndef WEFT_CACHES_H
#define WEFT_CACHES_H
#include "engine/float_rows.h"
#include "engine/pages.h"
#include "model/model.h"

enum {
  CACHE_PAGE = MODEL_PAGE /* positions */,
  CACHE_SLOTS = 256 /* sequences of a model with fixed states */,
  CACHE_SLACK = 512 /* positions behind a window that stay */,
  CACHE_FIXED = -1 /* in place of a group: what lies in slots */
};

struct device;
typedef struct caches {
  const model *m;
  struct device **of;        // of each state: whose memory it is
  int64_t n_pages, slots;
  void **state;              // of each: all pages or slots
  uint64_t *promoted;        // bytes of each that lie in huge pages
  page_pool pages[MODEL_GROUPS];
  uint64_t page_bytes[MODEL_GROUPS];
  uint64_t taken, room;      // bytes of all pages: in use, and at most
  int64_t slack, chunk;      // positions: CACHE_SLACK; that are evaluated at once
  bool *slot_used;
  int n_slots;               // slots that were ever in use
  int n_sequences;
  int number;                // of the engine, on several processes (follow.h); -1: it is on one
} caches;

// Of one position in all states, and of the states of a sequence that are fixed. UINT64_MAX where that is no number.
uint64_t caches_bytes(const model *m, int64_t positions);
// What a sequence of so many positions holds: all of them, or of layers with a window what stays.
uint64_t caches_held_bytes(const model *m, int64_t positions, int64_t chunk);

// Reserves n_pages, or (where the system refuses so much) as many as there can be, but at least_pages. of: each state's
// device (for free). chunk: positions that are evaluated at once. room: bytes that all pages may take.
int caches_open(caches *c, const model *m, struct device **of, int64_t n_pages, int64_t least_pages, int64_t chunk,
                uint64_t room, error *err);
void caches_close(caches *c);                          // before the device is closed
// Moves what is in use into huge pages, for so long at most; whether all of it lies there.
bool caches_promote_pages(caches *c, double seconds);

// What state i has of a page, or (not paged) of a slot: where, and how many bytes.
void *caches_at(const caches *c, int i, int number);
uint64_t caches_piece(const caches *c, int i);
bool caches_is_of(const caches *c, int i, int group);
// The pieces of all states of a group, of pages or slots: to those of `to`; zeros from now on; those at `from`, one
// behind the other. On several processes, this one's parts.
void caches_copy(caches *c, int group, int from, int to);
void caches_discard(caches *c, int group, int first, int n);
void caches_write(caches *c, int group, int number, const unsigned char *from);

enum { NO_PAGE = -1 };
// A place that others may go on from; likely: rather than from those around it.
typedef struct checkpoint { int n, likely; } checkpoint;
// Positions are no further from places.
enum { MOST_SHIFT = 1 << 29 };
// Places from .. to - 1 hold rows of floats, of the span whose first row is `id`. From `to` on positions are so much
// higher than places.
typedef struct placed_floats { float_rows *rows; int32_t id; int from, to, shift; } placed_floats;
typedef struct sequence {
  caches *of;
  // for a group of layers: pages by their place in the sequence, NO_PAGE where a window has given one back
  page_list group[MODEL_GROUPS];
  int slot;                  // of fixed states; 0 where there are none
  int n;                     // positions that it holds
  uint64_t evaluations;      // how often it was evaluated so far
  // of a model with fixed states: the position that follows what these hold; -1: none. They can be taken up at any
  // position from `back` to there (model_back)
  int at, back;
  int filled;                // pages of windows hold what they should before this position only; INT_MAX: all do
  VEC(checkpoint) checkpoints;           // in ascending order
  int chosen;                // of how many pages checkpoints were chosen for, -1: they have changed since
  // of such a model, or one with windows: what was evaluated, to come back to an earlier position
  VEC(int32_t) ids;
  // in ascending order; the rows themselves are held where they may be evaluated once more, else NULL
  VEC(placed_floats) floats;
  float *scales;             // what its tokens multiply adapters with; NULL: model_adapter_scales
  // of a model with an encoder: places at its beginning that are rows of its source
  int source;
  int loaded;                // positions that came from files: what spans their rows are of is not known
} sequence;

static inline size_t caches_n_pages(int positions) { return ((size_t)positions + CACHE_PAGE - 1) / CACHE_PAGE; }

static inline const float *sequence_scales(const sequence *q) {
  return q->scales ? q->scales : model_adapter_scales(q->of->m);
}
bool sequence_adapted(const sequence *q);              // some are not 0
// What is evaluated from now on; everything that the sequence holds is forgotten if it was evaluated with others.
// scales: model_n_adapters of them.
void sequence_adapt(sequence *q, const float *scales);
bool sequence_adapts_as(const sequence *q, const float *scales);
int sequence_new(caches *c, sequence **out, error *err);
void sequence_free(sequence *q);                       // NULL is fine
// Before positions from..to - 1 are written: pages for them that nobody else holds. -1: there are no more; what the
// sequence holds stays as it was.
int sequence_hold(sequence *q, int from, int to, error *err);
// of one group alone
int sequence_hold_group(sequence *q, int group, int from, int to, error *err);
void sequence_cut(sequence *q, int n);                 // forgets the positions from n on
// The last position, n at most, behind which more can be evaluated without what lies before being evaluated again.
int sequence_whole(const sequence *q, int n);
static inline bool sequence_is_whole(const sequence *q, int n) { return sequence_whole(q, n) == n; }
// How many tokens from pos on can be evaluated together, `most` at most, if all but the first may be dropped again.
int sequence_ahead(const sequence *q, int pos, int most);
// Where it is not: memory for that, and for what follows up to `to` (after it sequence_hold); then, when it was done.
int sequence_hold_again(sequence *q, int n, int to, error *err);
void sequence_is_renewed(sequence *q, int n);
// After an evaluation: windows give back what nobody reads from q->n on, but a little, and what checkpoints ask for.
void sequence_trim(sequence *q);
// Forgets the checkpoints. Whether that gave memory back.
bool sequence_thin(sequence *q);
// For somebody who runs plans by himself: n positions, of which those before q->n are as they are; afterwards what
// fixed states and windows hold is of no use any more.
int sequence_hold_all(sequence *q, int n, error *err);
bool caches_keep_ids(const caches *c);
// What positions, which rope turns by, are higher than a place.
int sequence_shift(const sequence *q, int at);
// Whether row `row` of r may stand at pos: what is before it are the rows before, or, of what was loaded, may be.
bool sequence_row_follows(const sequence *q, const float_rows *r, size_t row, int pos);
// n tokens come to stand at pos; whatever stood there is gone.
void sequence_place_floats(sequence *q, float_table *t, const int32_t *ids, size_t n, int pos);
// One that begins with the same n positions (n <= q->n): whole pages are shared, and the last one as well, until one of
// the two writes to it.
int sequence_fork(const sequence *q, int n, sequence **out, error *err);

// checkpoints.c: others may go on from every page's end between from and to, and are likely to from `to`. It may lie
// before what q holds, or behind it.
void sequence_checkpoint(sequence *q, int from, int to);
// Before positions up to `to` are written: those checkpoints stay whose pages are within the bound.
void sequence_choose_checkpoints(sequence *q, int to);
bool sequence_keeps(const sequence *q, int group, size_t page);
// The bound: bytes that checkpoints may hold behind the windows of a sequence of so many positions.
uint64_t caches_behind_bytes(const caches *c, int positions);
// The first page that windows of this group look at, or that stays in any case, where n positions are held.
static inline size_t caches_stay(const caches *c, int group, int n) {
  int64_t window = model_group_window(c->m, group);
  return window ? (size_t)model_first_page(window + c->slack, CACHE_PAGE, n) : 0;
}
static inline bool caches_has_page(const page_list *list, size_t i) { return i < list->n && list->at[i] != NO_PAGE; }
#endif
