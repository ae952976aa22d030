// caches: the memory of what sequences leave behind from run to run: keys and values in pages (pages.h), fixed states
// in slots.
//
// Address space for all pages and slots is reserved once, so that no kernel depends on how long a context is; memory is
// taken when a page is first written to, and goes back when nobody holds the page any more.
#ifndef WEFT_CACHES_H
#define WEFT_CACHES_H
#include "engine/pages.h"
#include "model/model.h"

enum { CACHE_PAGE = 128 /* positions */, CACHE_SLOTS = 256 /* sequences of a model with fixed states */ };

struct device;
typedef struct caches {
  const model *m;
  struct device **of;        // of each state: whose memory it is
  int64_t n_pages, slots;
  void **state;              // of each: all pages or slots
  uint64_t *promoted;        // bytes of each that lie in huge pages
  page_pool pages;
  bool *slot_used;
  int n_slots;               // slots that were ever in use
  int n_sequences;
} caches;

// Of one position in all states, and of the states of a sequence that are fixed. UINT64_MAX where that is no number.
uint64_t caches_bytes(const model *m, int64_t positions);

// Reserves n_pages, or (where the system refuses so much) as many as there can be, but at least_pages. of: each state's
// device (for free). limit: bytes that all pages may take.
int caches_open(caches *c, const model *m, struct device **of, int64_t n_pages, int64_t least_pages, uint64_t limit,
                error *err);
void caches_close(caches *c);                          // before the device is closed
// Moves what is in use into huge pages, for so long at most; whether all of it lies there.
bool caches_settle(caches *c, double seconds);

// What state i has of a page, or (not paged) of a slot: where, and how many bytes.
void *caches_at(const caches *c, int i, int number);
uint64_t caches_piece(const caches *c, int i);

typedef struct sequence {
  caches *of;
  page_list pages;
  int slot;                  // of fixed states; 0 where there are none
  int n;                     // positions that it holds
  uint64_t evaluations;      // how often it was evaluated so far
  int at;                    // of a model with fixed states: the position that follows what these hold; -1: none
  VEC(int32_t) ids;          // of such a model: what was evaluated, to come back to an earlier position
} sequence;

int sequence_new(caches *c, sequence **out, error *err);
void sequence_free(sequence *q);                       // NULL is fine
// Before positions from..to - 1 are written: pages for them that nobody else holds. -1: there are no more; what the
// sequence holds stays as it was.
int sequence_hold(sequence *q, int from, int to, error *err);
void sequence_cut(sequence *q, int n);                 // forgets the positions from n on
// One that begins with the same n positions (n <= q->n): whole pages are shared, and the last one as well, until one of
// the two writes to it.
int sequence_fork(const sequence *q, int n, sequence **out, error *err);

// sequence_file.c: a sequence in a file, written whole or not at all. ids: its tokens. of: a number for all that its
// values depend on.
int sequence_save(const sequence *q, const int32_t *ids, uint64_t of, const char *path, error *err);
// One that holds as many of the n tokens as the file begins with (fixed states: all of the file's, or none). most:
// positions that there may be. -2: the file is of another model, of another version, or damaged, and err names it; -1:
// something else failed.
int sequence_load(caches *c, const int32_t *ids, size_t n, int most, uint64_t of, const char *path, sequence **out,
                  error *err);
// *ids: for free
int sequence_tokens(const caches *c, int most, uint64_t of, const char *path, int32_t **ids, size_t *n, error *err);
struct engine_options;
uint64_t sequence_model(const gguf *file, const struct engine_options *o, int variant);
#endif
