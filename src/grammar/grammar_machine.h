// grammar_machine: the state of a machine after some text, kept once each.
//
// A place is a state of the machine's table with the counts that a loop state has (of rounds) and a state of a callee
// that counts (of letters: how many more are needed and how many are possible; GRAMMAR_INF stays what it is), and a
// frame: what follows when its callee ends.  A frame is the set of places from which the callee was called, each as it
// will be after the call; so places of one callee that was called at one point of the text share a frame, however many
// ways lead there, and recursion to the left is a frame that refers to itself.  A call after which nothing is left to
// do takes over the frame of its caller: recursion to the right does not pile up.  A state is a set of places.  Places,
// frames and states are kept once (equal ones have one number), and what a byte makes of a state is remembered, so a
// text that goes on like an earlier one costs a look-up a byte.
//
// Numbers are only good until store_tidy, which throws away all that no matcher refers to.  Look next: grammar_match.c.
#ifndef WEFT_GRAMMAR_MACHINE_H
#define WEFT_GRAMMAR_MACHINE_H
#include "base/map.h"
#include "grammar/grammar_impl.h"

struct place { uint32_t q, min, max, frame; };        // q NO_STATE: only the frame ends
enum { FRAME_TEXT, FRAME_UNKNOWN, FRAME_FIRST };      // the end of the text; who knows what (for masks)
// frames of the step that is being made, before they have their numbers
#define FRAME_LOCAL 0x80000000u
enum { STATE_NONE, STATE_DEAD, STATE_FIRST };         // not computed yet; nothing goes on from here

// frames that refer to one another are a group
struct frame { const struct place *at; uint32_t n, group_first, group_n; };
struct mstate {
  const struct place *at;        // sorted; only places with edges
  uint32_t n;
  bool ends;                     // the text may end here
  bool pops;                     // FRAME_UNKNOWN ended here
  uint32_t *next;                // [classes] or NULL
  uint64_t *mask;                // or NULL
  uint64_t stays;                // groups of bytes after which it is still this state (grammar_mask.c)
  uint32_t asked;                // how often that was asked for; from some number on, stays is known
  uint32_t rounds;               // of a COUNTED loop that had to be begun to come here, + 1; 0: not computed yet
};
// A loop with as many rounds as these and an unknown frame counts them: where it may end, the state keeps a place
// {NO_STATE, 0, left, FRAME_UNKNOWN}.
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
  // by frame, as far as it was asked for: of the COUNTED loop below it, at most; 0: there is none
  VEC(uint32_t) rounds_left;
  VEC(struct mstate) states;
  VEC(struct matcher *) matchers;
  // of the step that is being made
  VEC(struct place) places, kept, key;
  VEC(struct local) locals;
  VEC(uint32_t) seen, ids, stack;   // seen: table of places + 1
  uint32_t n_locals, *local_of, *local_stamp, stamp;
  bool ends, pops, failed;
  int64_t budget;
  uint32_t *walk, *walk_ends;       // [longest token + 1]
  int32_t *found;                   // [vocabulary] that a walk has found, and the rounds that they need
  uint16_t *found_rounds;
} store;

struct matcher { store *s; uint32_t state; bool finished; };

uint32_t store_step(store *s, uint32_t state, unsigned char byte);                   // STATE_DEAD also where it failed
// the state of these and of all that follows without text
uint32_t store_closure(store *s, const struct place *from, size_t n);
uint32_t store_state(store *s, struct place *places, size_t n, bool ends, bool pops);   // of just these
uint32_t store_union(store *s, uint32_t a, uint32_t b);
uint32_t store_frame(store *s, struct place *places, size_t n);
// a copy of these bytes; where there is no room for more the step fails
void *store_keep(store *s, const void *at, size_t n);
void store_begin(store *s);           // at the start of a call from outside: a new budget, tidying where it is time
int store_failed(error *err);

static inline uint32_t store_go(store *s, uint32_t state, unsigned char byte) {
  const uint32_t *next = s->states.at[state].next;
  uint32_t to = next ? next[s->g->class_of[byte]] : STATE_NONE;
  return to ? to : store_step(s, state, byte);
}
#endif
