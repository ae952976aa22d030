// plans: compiles what the engine runs. A plan is identified by its spec: what it computes besides the caches, and for
// how many tokens. It is made at first use.
#ifndef WEFT_PLANS_H
#define WEFT_PLANS_H
#include "engine/engine_impl.h"

enum {
  TWO = 2,
  FEW = 4 /* tokens: one at a time is faster than a chunk */,
  TILE = 8 /* rows; each costs as much as a single one */,
  DEFAULT_CHUNK = 64,
  MAX_CHUNK = 4096
};
// Tokens of one expert for which its weights are read at once, and the average that a chunk should have, unless it
// becomes too long: the last tile of each expert is half empty, and each expert's weights are read once per chunk.
// DeepSeek-V2-Lite on Zen 4, prompts of 1,024 tokens: 53 tokens per second with chunks of 64, 68 with 192, 73 with 256,
// 71 with 320.
enum { EXPERT_TILE = 8, EXPERT_TOKENS = 3 * EXPERT_TILE, LONGEST_CHUNK = 512 };

// The plan for n tokens of one sequence, up to a chunk at once. Tiles of tokens are as large as a plan's capacity: 40
// tokens of 1B Q4_0 ran at 63 tokens per second with chunks of 512 on Zen 4, at 190 with chunks of 64; so up to
// DEFAULT_CHUNK tokens have their own plans.
plan_spec spec_one(void);                                       // one token, with logits
plan_spec spec_many(const engine *e, enum model_logits logits, size_t n);
// The plan for n tokens that are evaluated at once, even if they exceed a chunk.
plan_spec spec_span(const engine *e, enum model_logits logits, size_t n);
// The plan that every model needs: of one token, or of a whole text.
plan_spec spec_first(const engine *e);

// The plan of the last layers, which exists if those of earlier layers do; with one device it is the whole plan. NULL:
// not made yet.
plan *plan_of(const engine *e, const plan_spec *spec);
// The plans of all devices.
planned *plans_of(const engine *e, const plan_spec *spec);
// Makes a plan for all devices, unless it exists.
int need_plan(engine *e, const plan_spec *spec, error *err);
// With several processes, called before plans are made: a state that plans split differently is not split.
int settle_states(engine *e, error *err);
// The graph of a plan, over unpacked weights; and its kernels.
uop *graph_of_plan(const engine *e, const struct layer_range *at, const plan_spec *spec, graph *g);
void compile_plan(const engine *e, const struct layer_range *at, graph *g, uop *sink, schedule *s);
uint64_t rows_bytes(const engine *e);                           // of engine.rows
int reserve_rows(engine *e, error *err);                        // allocates engine.rows
void reserve_sums(engine *e);                                   // allocates engine.sums
uint64_t floats_bytes(const engine *e);                         // of engine.floats
void close_plans(weight_packing *l);
#endif
