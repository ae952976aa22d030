// caches: the memory of sequences between runs: the KV cache in pages (pages.h), recurrent states in slots.
//
// Address space for all pages and slots is reserved once, so that no kernel depends on the length of a context. Memory
// is used once a page is written, and released when no sequence holds the page.
//
// Layers with equal windows have their own pages (model_n_groups), so that pages outside a window can be released. A
// few more positions are kept, because callers go back by some positions (rejected drafts, an answer that is generated
// again). A long prompt uses no memory for pages that only its first tokens see: its pages rotate. Pages further back
// are kept only for checkpoints (checkpoints.c), a bounded amount. A sequence can be resumed at any position whose
// window pages exist; elsewhere it is evaluated again from the last such position.
#ifndef WEFT_CACHES_H
#define WEFT_CACHES_H
#include "engine/float_rows.h"
#include "engine/pages.h"
#include "model/model.h"

enum {
  CACHE_PAGE = MODEL_PAGE /* positions */,
  CACHE_SLOTS = 256 /* sequences of a model with fixed states */,
  CACHE_SLACK = 512 /* positions kept before a window */,
  CACHE_FIXED = -1 /* in place of a group: states in slots */
};

struct device;
typedef struct caches {
  const model *m;
  struct device **of;        // device of each state's memory
  int64_t n_pages, slots;
  void **state;              // for each state: all pages or slots
  uint64_t *promoted;        // bytes of each that are in huge pages
  bool *elsewhere;           // of each: another process has it
  page_pool pages[MODEL_GROUPS];
  uint64_t page_bytes[MODEL_GROUPS];
  uint64_t taken, room;      // bytes of all pages: in use, and the maximum
  int64_t slack, chunk;      // in positions: CACHE_SLACK; evaluated at once
  bool *slot_used;
  int n_slots;               // maximum number of slots in use so far
  int n_sequences;
  int number;                // number of the engine with several processes (follow.h); -1: a single process
} caches;

// Bytes of this many positions in all states, plus the fixed states of a sequence. UINT64_MAX on overflow.
uint64_t caches_bytes(const model *m, int64_t positions);
// Bytes that a sequence of this many positions holds: all of them, or for windowed layers what is kept.
uint64_t caches_held_bytes(const model *m, int64_t positions, int64_t chunk);

// Reserves n_pages, or as many as the system allows but at least_pages. of: each state's device (from malloc, taken
// over). chunk: positions evaluated at once. room: maximum bytes of all pages.
int caches_open(caches *c, const model *m, struct device **of, int64_t n_pages, int64_t least_pages, int64_t chunk,
                uint64_t room, error *err);
void caches_close(caches *c);                          // call it before the device is closed
int caches_check(const caches *c, error *err);         // device_check of each state's device
// Moves used memory into huge pages for at most this time; returns whether all of it is there.
bool caches_promote_pages(caches *c, double seconds);

// Address and bytes of state i's part of a page, or (if not paged) of a slot.
void *caches_at(const caches *c, int i, int number);
uint64_t caches_piece(const caches *c, int i);
bool caches_is_of(const caches *c, int i, int group);
// Makes a new page readable at once (memory_touch), in all processes.
void caches_touch(caches *c, int group, int page);
// For the parts of all states of a group, of pages or slots: copies them to those of `to`; zeroes them; writes them
// from consecutive bytes at `from`. With several processes, only this one's parts.
void caches_copy(caches *c, int group, int from, int to);
void caches_discard(caches *c, int group, int first, int n);
void caches_write(caches *c, int group, int number, const unsigned char *from);

enum { NO_PAGE = -1 };
// A place at which others may continue; likely: more probably than at neighbouring places.
typedef struct checkpoint { int n, likely; } checkpoint;
// Maximum difference between a position and its place.
enum { MOST_SHIFT = 1 << 29 };
// Places from .. to - 1 hold rows of floats, of the span whose first row is `id`. From `to` on, positions exceed places
// by `shift`.
typedef struct placed_floats { float_rows *rows; int32_t id; int from, to, shift; } placed_floats;
typedef struct sequence {
  caches *of;
  // pages of each group of layers, by their place in the sequence; NO_PAGE if a window has released it
  page_list group[MODEL_GROUPS];
  int slot;                  // of fixed states; 0 if there are none
  int n;                     // number of positions held
  uint64_t evaluations;      // number of evaluations so far
  // for a model with fixed states: the position after their content; -1: none. They can be resumed at any position from
  // `back` to `at` (model_back)
  int at, back;
  int filled;                // pages of windows are valid only before this position; INT_MAX: all are
  VEC(checkpoint) checkpoints;           // ascending
  int chosen;                // number of pages for which checkpoints were chosen; -1: they have changed since
  // for such a model, or one with windows: the evaluated ids, to return to an earlier position
  VEC(int32_t) ids;
  // ascending; rows are held if they may be evaluated again, otherwise NULL
  VEC(placed_floats) floats;
  float *scales;             // scales of adapters; NULL: model_adapter_scales
  int *starts;               // for each adapter with activation tokens, the position of those; NULL: it has none yet
  // for a model with an encoder: number of places at the beginning that are rows of its source
  int source;
  int loaded;                // positions loaded from files: the spans of their rows are unknown
} sequence;

static inline size_t caches_n_pages(int positions) { return ((size_t)positions + CACHE_PAGE - 1) / CACHE_PAGE; }

static inline const float *sequence_scales(const sequence *q) {
  return q->scales ? q->scales : model_adapter_scales(q->of->m);
}
bool sequence_adapted(const sequence *q);              // is a scale not 0, at some position?
// The position from which an adapter applies: 0; INT_MAX: its activation tokens are not in the prompt.
int sequence_adapter_start(const sequence *q, int adapter);
// Finds the activation tokens of adapters in a prompt. Returns how many positions stay as they are evaluated, INT_MAX:
// all. sequence_invoke: drops the others, and evaluates later ones by this prompt.
int sequence_stays(const sequence *q, const int32_t *ids, size_t n);
int sequence_invoke(sequence *q, const int32_t *ids, size_t n);
// n positions from `from` on are no longer in the prompt: adapters go on from where they were.
void sequence_removed(sequence *q, int from, int n);
// Sets the adapters for later evaluations; if the sequence was evaluated with others, all its content is dropped.
// scales: model_n_adapters of them.
void sequence_adapt(sequence *q, const float *scales);
bool sequence_adapts_as(const sequence *q, const float *scales);
int sequence_new(caches *c, sequence **out, error *err);
void sequence_free(sequence *q);                       // NULL is fine
// Before positions from..to - 1 are written: makes the pages for them exclusive to this sequence. -1: there are no free
// pages; the sequence is unchanged.
int sequence_hold(sequence *q, int from, int to, error *err);
// for a single group
int sequence_hold_group(sequence *q, int group, int from, int to, error *err);
void sequence_cut(sequence *q, int n);                 // forgets the positions from n on
void sequence_clear(sequence *q);                      // forgets all, and gives back what sequence_hold has taken
// The last position, at most n, after which evaluation can continue without repeating earlier positions.
int sequence_whole(const sequence *q, int n);
static inline bool sequence_is_whole(const sequence *q, int n) { return sequence_whole(q, n) == n; }
// How many tokens from pos on, at most `most`, can be evaluated together if all but the first may be dropped again.
int sequence_ahead(const sequence *q, int pos, int most);
// If the sequence is not whole at n: memory for evaluating it again and for positions up to `to` (call sequence_hold
// afterwards); then, when that is done.
int sequence_hold_again(sequence *q, int n, int to, error *err);
void sequence_is_renewed(sequence *q, int n);
// After an evaluation: releases window pages that nothing reads from q->n on, except the slack and checkpoints.
void sequence_trim(sequence *q);
// Drops the checkpoints, and what is reserved after q->n. Returns whether that released memory.
bool sequence_thin(sequence *q);
// For callers that run plans directly: n positions, keeping those before q->n; fixed states and windows are invalid
// afterwards.
int sequence_hold_all(sequence *q, int n, error *err);
bool caches_keep_ids(const caches *c);
// The difference between position (used by rope) and place.
int sequence_shift(const sequence *q, int at);
// May row `row` of r be at pos? The preceding rows of its span must precede it; loaded positions match any span.
bool sequence_row_follows(const sequence *q, const float_rows *r, size_t row, int pos);
// Places n tokens at pos; rows that were there are dropped.
void sequence_place_floats(sequence *q, float_table *t, const int32_t *ids, size_t n, int pos);
// A new sequence that shares the first n positions (n <= q->n): pages are shared, including the last one, until one of
// the sequences writes to it.
int sequence_fork(const sequence *q, int n, sequence **out, error *err);

// In checkpoints.c: others may continue at any page end between from and to, probably at `to`. That may be before or
// after the end of q.
void sequence_checkpoint(sequence *q, int from, int to);
// Before positions up to `to` are written: keeps checkpoints whose pages are within the bound.
void sequence_choose_checkpoints(sequence *q, int to);
bool sequence_keeps(const sequence *q, int group, size_t page);
// The bound: bytes that checkpoints may hold outside the windows of a sequence of this many positions.
uint64_t caches_checkpoint_bytes(const caches *c, int positions);
// The first page that windows of this group see, or that is kept in any case, if n positions are held.
static inline size_t caches_stay(const caches *c, int group, int n) {
  int64_t window = model_group_window(c->m, group);
  return window ? (size_t)model_first_page(window + c->slack, CACHE_PAGE, n) : 0;
}
static inline bool caches_has_page(const page_list *list, size_t i) { return i < list->n && list->at[i] != NO_PAGE; }
#endif
