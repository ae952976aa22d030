// grammar_machine: the states of a machine after some text; equal states are stored once.
//
// A place is a state of the machine's table with counts and a frame. A loop state counts rounds, a state of a counting
// callee counts letters: how many more are needed and how many are possible (GRAMMAR_INF: unlimited). A frame says what
// follows when the place's callee ends: it is the set of places from which the callee was called, each as it will be
// after the call. So places of one callee that was called at one point of the text share a frame, however many ways
// lead there, and left recursion is a frame that refers to itself. A call in tail position takes over the frame of its
// caller, so right recursion does not grow the stack. A state is a set of places. Places, frames and states are stored
// once (equal ones have one number), and transitions are cached, so a text like an earlier one costs a look-up per
// byte.
//
// Numbers are only valid until store_tidy, which removes everything that no matcher refers to. Look next:
// grammar_match.c.
#ifndef WEFT_GRAMMAR_MACHINE_H
#define WEFT_GRAMMAR_MACHINE_H
#include "base/map.h"
#include "grammar/grammar_impl.h"

struct place { uint32_t q, min, max, frame; };        // q NO_STATE: only the frame ends
enum { FRAME_TEXT, FRAME_UNKNOWN, FRAME_FIRST };      // the end of the text; unknown (for masks)
// frames of the current step, before they have their numbers
#define FRAME_LOCAL 0x80000000u
enum { STATE_NONE, STATE_DEAD, STATE_FIRST };         // not computed yet; no continuation

// frames that refer to one another form a group
struct frame { const struct place *at; uint32_t n, group_first, group_n; };
struct mstate {
  const struct place *at;        // sorted; only places with edges
  uint32_t n;
  bool ends;                     // the text may end here
  bool pops;                     // FRAME_UNKNOWN ended here
  uint32_t *next;                // [classes] or NULL
  uint64_t *mask;                // or NULL
  uint64_t stays;                // groups of bytes after which the state is unchanged (grammar_mask.c)
  uint32_t asked;                // how often that was requested; it is computed after some requests
  uint32_t rounds;               // rounds of a COUNTED loop that had to begin up to here, + 1; 0: not computed yet
};
// A loop with this many rounds and an unknown frame counts them: where it may end, the state has a place {NO_STATE, 0,
// left, FRAME_UNKNOWN}.
#define COUNTED 0x40000000u
static inline bool is_counted(struct place p) {
  return p.frame == FRAME_UNKNOWN && p.max <= COUNTED && p.max > COUNTED / 2;
}

struct local { uint32_t callee, number; bool needed, done; VEC(struct place) at; VEC(uint32_t) heirs_of; };

typedef struct store {
  const grammar *g;
  const grammar_vocab *v;
  int refs;
  arena *mem;
  size_t tidy_at;                   // bytes of mem from which on a call begins by tidying
  smap frame_ids, state_ids, piece_ids;
  VEC(struct frame) frames;
  // per requested frame: the most rounds left of the COUNTED loop below it; 0: none
  VEC(uint32_t) rounds_left;
  VEC(struct mstate) states;
  VEC(struct matcher *) matchers;
  // of the current step
  VEC(struct place) places, kept, key;
  VEC(struct local) locals;
  VEC(uint32_t) seen, ids, stack;   // seen: table of places + 1
  uint32_t n_locals, *local_of, *local_stamp, stamp;
  bool ends, pops, failed;
  int64_t budget;                   // places that the current call may still examine
  uint64_t spent;                   // places examined so far
  uint32_t *walk, *walk_ends;       // [longest token + 1]
  int32_t *found;                   // [vocabulary] tokens that a walk has found, and the rounds that they need
  uint16_t *found_rounds;
} store;

struct matcher { store *s; uint32_t state; bool finished; };

uint32_t store_step(store *s, uint32_t state, unsigned char byte);                   // STATE_DEAD also on failure
// the state of these places and of everything reachable without text
uint32_t store_closure(store *s, const struct place *from, size_t n);
uint32_t store_state(store *s, struct place *places, size_t n, bool ends, bool pops);   // of exactly these
uint32_t store_union(store *s, uint32_t a, uint32_t b);
uint32_t store_frame(store *s, struct place *places, size_t n);
// a copy of these bytes; the step fails if memory is exhausted
void *store_keep(store *s, const void *at, size_t n);
void store_begin(store *s);           // begins a call from outside: a new budget, and tidying if necessary
int store_failed(error *err);

static inline uint32_t store_go(store *s, uint32_t state, unsigned char byte) {
  const uint32_t *next = s->states.at[state].next;
  uint32_t to = next ? next[s->g->class_of[byte]] : STATE_NONE;
  return to ? to : store_step(s, state, byte);
}
#endif
