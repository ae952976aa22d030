// What the files of the engine share: the engine itself. engine.c opens it, plans.c makes its plans, run.c runs them.
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

// Of which tokens a plan has what, see model_shape; tokens: that it has room for.
typedef struct plan_spec {
  enum model_logits logits;
  int64_t tokens;
  int rows;
  bool apart, sums, mtp, floats, both;
  bool adapted;              // as engine.adapted was; nobody else sets it
} plan_spec;

typedef struct stage { graph *g; schedule s; plan *p; } stage;
typedef struct planned { plan_spec spec; stage at[MOST_SPLITS]; } planned;
// Weights in a layout for each tensor, and the plans that read them, on each device.
typedef struct laid {
  weights w[MOST_SPLITS];
  enum layout_kind *layouts;
  VEC(planned *) plans;
} laid;
// How a state is split among processes (schedule/ranks.h), as the first plan has it; size: of an element.
typedef struct state_cuts { bool known; size_t size; gathering what; } state_cuts;
// One of the devices, for what a plan there asks.
typedef struct site { engine *e; int place; } site;

struct engine {
  gguf *file;
  tokenizer *tok;
  model *m;
  layer_split layer_split;
  site sites[MOST_SPLITS];
  struct engine_options o;
  content *content;                       // what it computes, for files of sequences
  bool told;                              // that the file was written to meanwhile
  int n_ctx;
  // positions that a sequence can have; tokens of a chunk, what its plan has room for, and the largest plan
  int64_t ctx, chunk, room, most;
  caches caches;
  sequence *own;                          // of callers who have none
  laid *now, *other;                      // other: while layouts are compared
  struct demand *demand;                  // weights that do not fit into memory together; NULL: they do
  int32_t *ids, *at, *pages, slot;        // what plans read: tokens, and where they stand (model_shape)
  int32_t *last, *turns;                  // the same; turns NULL: rope goes by places
  int32_t *source;                        // for each token, places of its source; NULL: there is no encoder
  float *scales;                          // of adapters, for each token; NULL: there are none
  bool adapted;                           // some token of what is evaluated now has a scale that is not 0
  float *floats;                          // rows of floats; NULL: nobody has had any
  struct float_table *float_table;        // those that tokens may stand for (float_rows.h)
  VEC(struct float_rows *) held;          // of what is evaluated now
  float *logits, *rows;                   // of one position; of a chunk (NULL: nobody has asked)
  float *hidden;                          // of a chunk, what the head would read; NULL: nobody has asked
  float *stream;                          // of a chunk, what flows from one device to the next; NULL: there is one
  float **sums;                           // by id from BUF_SUMS on; NULL: nobody has asked
  double load_ms, compile_ms, schedule_ms, codegen_ms;
  online_tuner *online_tuner;             // of single tokens; NULL: it is not tuned while it runs
  plan *tuned;                            // by that
  // of what is evaluated now: who is asked whether to go on (NULL: nobody), tokens that are through and that are under
  // way, of these the share that is through on devices before, whether it ended early, and (a failure) why
  struct { engine_go_on *go_on; void *ctx; double done, now, share; bool ended; error why; } ask;
  double settle_s;                        // time that may be spent on moving weights into huge pages; negative: owed
  int64_t compiled, scheduled;
  int number;                             // on several processes: which engine of all it is; -1: they do not know it
  state_cuts *state_cuts;                 // of each state
  error broken;                           // of an evaluation that came upon a broken invariant
};

// The process that plans are made for, of those that compute the model together.
static inline ranks engine_ranks(const engine *e) {
  return e->o.rehearsed.n ? (ranks){e->o.rehearsed.rank, e->o.rehearsed.n, 1} : ranks_here();
}
// Entries of the table of pages: of a group, and of a sequence.
static inline int64_t page_table(const engine *e) { return e->ctx / CACHE_PAGE + 1; }
static inline int64_t page_tables(const engine *e) { return max_i64(model_n_groups(e->m), 1) * page_table(e); }
// Where plans over one sequence find it.
void choose_sequence(engine *e, const sequence *q);
#endif
