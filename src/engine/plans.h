// plans: what the engine makes of a model, to run it. A plan is known by its spec: what it computes beside the caches,
// and for how many tokens. It is made when it is first needed.
#ifndef WEFT_PLANS_H
#define WEFT_PLANS_H
#include "engine/engine_impl.h"

enum {
  TWO = 2,
  FEW = 4 /* tokens: one by one is quicker than a chunk */,
  TILE = 8 /* rows, of which each costs what one does */,
  DEFAULT_CHUNK = 64,
  MAX_CHUNK = 4096
};
// Tokens of one expert that its weights are read for at once, and what a chunk has of them on average, if that is not
// too long: the last tile of each is half empty, and each reads its weights once a chunk. DeepSeek-V2-Lite on Zen 4,
// prompts of 1,024, chunks of 64: 53 tokens a second, of 192: 68, 256: 73, 320: 71.
enum { EXPERT_TILE = 8, EXPERT_TOKENS = 3 * EXPERT_TILE, LONGEST_CHUNK = 512 };

// The plans for n tokens of one sequence, as many at once as a chunk has. Tiles of tokens are as large as a plan has
// room for: 40 tokens of 1B Q4_0 with chunks of 512 went through at 63 a second on Zen 4, at 190 with chunks of 64; so
// up to DEFAULT_CHUNK tokens have plans of their own.
plan_spec spec_one(void);                                       // one token, with logits
plan_spec spec_many(const engine *e, enum model_logits logits, size_t n);
// The same for n tokens that go through at once, also where they are more than a chunk.
plan_spec spec_span(const engine *e, enum model_logits logits, size_t n);
// The plan that a model cannot do without: of one token, or of a whole text.
plan_spec spec_first(const engine *e);

// The plan for the last layers, which is there if those before are; where there is one device it is all. NULL: it has
// not been made.
plan *plan_of(const engine *e, const plan_spec *spec);
// The same, for every device.
planned *plans_of(const engine *e, const plan_spec *spec);
// Makes a plan, for all devices, unless it is there.
int need_plan(engine *e, const plan_spec *spec, error *err);
// Called on several processes before plans are made: a state that not all plans split in one way is not split.
int settle_states(engine *e, error *err);
// What a plan computes, over weights as they lie in the file; and its kernels.
uop *graph_of_plan(const engine *e, const struct layer_range *at, const plan_spec *spec, graph *g);
void compile_plan(const engine *e, const struct layer_range *at, graph *g, uop *sink, schedule *s);
uint64_t rows_bytes(const engine *e);                           // of engine.rows
int reserve_rows(engine *e, error *err);                        // engine.rows is there
void reserve_sums(engine *e);                                   // engine.sums is
uint64_t floats_bytes(const engine *e);                         // of engine.floats
void close_plans(laid *l);
#endif
