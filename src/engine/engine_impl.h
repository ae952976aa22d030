// The internals of the engine, for its files: engine.c opens it, plans.c makes its plans, run.c runs them.
#ifndef WEFT_ENGINE_IMPL_H
#define WEFT_ENGINE_IMPL_H
#include "device/device.h"
#include "device/online_tuner.h"
#include "device/ranks.h"
#include "engine/caches.h"
#include "engine/content.h"
#include "engine/engine.h"
#include "engine/layer_split.h"
#include "engine/weights.h"
#include "model/model.h"

// The fields are explained at model_shape; tokens: capacity of the plan.
typedef struct plan_spec {
  enum model_logits logits;
  int64_t tokens;
  int rows;
  bool apart, sums, mtp, floats, both;
  bool adapted;              // copy of engine.adapted; set by the engine only
} plan_spec;

typedef struct stage { graph *g; schedule s; plan *p; } stage;
typedef struct planned { plan_spec spec; stage at[MOST_SPLITS]; } planned;
// Weights in a layout per tensor, and the plans that read them, on each device.
typedef struct weight_packing {
  weights w[MOST_SPLITS];
  enum layout_kind *layouts;
  VEC(planned *) plans;
} weight_packing;
// How a state is split among processes (schedule/ranks.h), as decided by the first plan; size: bytes of an element.
typedef struct state_cuts { bool known; size_t size; gathering what; } state_cuts;
// One of the devices, as context of a plan's callbacks.
typedef struct site { engine *e; int place; } site;

struct engine {
  gguf *file;
  tokenizer *tok;
  model *m;
  layer_split layer_split;
  site sites[MOST_SPLITS];
  struct engine_options o;
  content *content;                       // name of what it computes, for saved sequences
  bool told;                              // the modification of the file has been reported
  int n_ctx;
  // positions of a sequence; tokens of a chunk, capacity of its plan, and capacity of the largest plan
  int64_t ctx, chunk, room, most;
  caches caches;
  sequence *own;                          // for callers without a sequence
  weight_packing *now, *other;                      // other: while layouts are compared
  struct demand *demand;                  // weights that do not fit into memory together; NULL: they fit
  int32_t *ids, *at, *pages, slot;        // inputs of plans: tokens and their places (model_shape)
  int32_t *last, *turns;                  // more inputs; turns NULL: rope uses places
  int32_t *source;                        // for each token, number of source places; NULL: there is no encoder
  float *scales;                          // of adapters, for each token; NULL: none
  bool adapted;                           // some token of the current evaluation has a scale other than 0
  float *floats;                          // rows of floats; NULL: not used yet
  struct float_table *float_table;        // the rows that tokens may stand for (float_rows.h)
  VEC(struct float_rows *) held;          // of the current evaluation
  float *logits, *rows;                   // of one position; of a chunk (NULL: not used yet)
  float *draft_rows;                      // logits of a draft file, by the model's tokens; NULL: not used yet
  float *hidden;                          // hidden states of a chunk; NULL: not used yet
  float *stream;                          // of a chunk, passed from one device to the next; NULL: one device
  float **sums;                           // by id from BUF_SUMS on; NULL: not used yet
  double load_ms, compile_ms, schedule_ms, codegen_ms;
  online_tuner *online_tuner;             // of the plan for single tokens; NULL: off
  plan *tuned;                            // the plan that it tunes
  // the current evaluation: cancellation callback (NULL: none), tokens done and in progress, share of the latter done
  // on earlier devices, was it cancelled, and the error of a failure
  struct { engine_go_on *go_on; void *ctx; double done, now, share; bool ended; error why; } ask;
  double settle_s;                        // time that may be spent on moving weights into huge pages; negative: owed
  int64_t compiled, scheduled;
  int number;                             // number of the engine with several processes; -1: unknown to them
  state_cuts *state_cuts;                 // for each state
  double shares[MOST_RANKS], share;       // of all processes; this one's part of all bytes
  unsigned char *owner;                   // rank_split.owner; NULL: the model is split by rows
  struct { int from, to; } own_blocks;    // with owners: of the file
  error broken;                           // set after an evaluation broke an invariant
};

// The process, of those that compute the model together, for which plans are made.
static inline ranks engine_ranks(const engine *e) {
  return e->o.rehearsed.n ? (ranks){e->o.rehearsed.rank, e->o.rehearsed.n, 1} : ranks_here();
}
// Entries of the page table of a group, and of a sequence.
static inline int64_t page_table(const engine *e) { return e->ctx / CACHE_PAGE + 1; }
static inline int64_t page_tables(const engine *e) { return max_i64(model_n_groups(e->m), 1) * page_table(e); }
// Sets the inputs of single-sequence plans to this sequence.
void choose_sequence(engine *e, const sequence *q);
#endif
