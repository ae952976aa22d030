// engine: a model that runs.  A GGUF file goes in; token ids at positions go in after that, and the logits of the next
// token come out.  The engine owns the mapped file, the tokenizer, the compiled plans and the caches of all sequences.
//
// Invariant: results depend on the ids and their positions alone, not on how a prompt was cut into calls, on the chunk
// size or on the number of threads. Look next: weft.c (the public API on top of this), sampler.h (from logits to a
// token), include/weft.h.
#ifndef WEFT_ENGINE_H
#define WEFT_ENGINE_H
#include "base/base.h"
#include "model/model.h"
#include "text/text.h"

typedef struct engine engine;

struct engine_adapter { const char *path; double scale; };
struct engine_options {
  // positions of the KV cache; 0: as many as the model was trained for, or half of that, a quarter, ... where memory is
  // short
  int n_ctx;
  int n_threads;          // 0: what affinity, cgroup and cores suggest
  int n_prompt_threads;   // for prompts; 0: as many
  int chunk;              // positions evaluated at once in a prompt; 0: default
  // layers, from the last one down, that lie on the device; 0: as many as it has room for; -1: none
  int gpu_layers;
  bool no_repack;         // weights stay as they lie in the file
  const char *const *settings;   // see gguf_set_text
  size_t n_settings;
  const struct engine_adapter *adapters;   // LoRA files, and what they are multiplied with
  size_t n_adapters;
  const control_file *control_vectors;     // added to what leaves layers
  size_t n_control_vectors;
  model_kv kv;            // how keys and values lie in the cache
  bool exact;             // activations stay f32: no integer dot products
  bool mtp;               // the block that predicts a further token is there, where the file has it: see WANT_GUESS
  void (*progress)(void *ctx, const char *what, double fraction);   // may be NULL; what: "loading", "compiling"; 0..1
  void *progress_ctx;
  bool (*stop)(void *ctx);       // asked while the engine opens, with progress_ctx: true ends that; may be NULL
  // n > 0: plans are those of this process of n, over made-up weights: to be timed (rehearse.h). The file need have
  // nothing behind its head
  struct { int rank, n; } rehearsed;
  const char *device;            // one that device_open_named knows; NULL: DEV
  bool in_memory;                // the file is, as n_data bytes; path is its name then
  const void *data; size_t n_data;
};

struct engine_stats {
  double load_ms;             // opening, checking and laying out the file
  double compile_ms;          // making kernels; 0 when all came from the cache
  double schedule_ms;         // from the model to kernels: graph, rewriting, scheduling
  double codegen_ms;          // of compile_ms: what rules take; the rest is the compiler's
  int64_t kernels_compiled;   // kernels made by the compiler, not found in the cache
  int64_t plans_scheduled;    // plans that were scheduled, not found there
  double kernels_per_token;   // dispatches of one decode step
  double kernels_per_block;   // of them, per layer
  double fusion_rate;         // graph operations per kernel
  uint64_t kv_bytes;          // KV cache as reserved, not as touched
  uint64_t peak_rss_bytes;    // VmHWM: file pages included
  uint64_t n_params;          // elements of all tensors
  uint64_t model_bytes;       // bytes of all tensors
  // different ones of a token; those that an earlier search found, when the model was loaded
  int kernels, kernels_tuned;
  int tune_tried, tune_better;// candidates judged in the background, and those that took a kernel's place
  double tune_cost;           // of the time of all tokens, the share that this took
  const char *tune_state;     // "on", "done", or what it waits for; NULL: off
};

// Validates and maps the file, builds the graphs.  options NULL: all defaults.  0 and *out on success; -1 and the
// reason otherwise: a bad file, an architecture or type that is not known, or too little memory (with the numbers).
int engine_open(const char *path, const struct engine_options *options, engine **out, error *err);
// -1 and why: an evaluation came upon a broken invariant, and every later one fails with the same words.
int engine_check(const engine *e, error *err);
void engine_close(engine *e);                        // NULL is fine

const gguf *engine_gguf(const engine *e);            // owned by the engine
const tokenizer *engine_tokenizer(const engine *e);  // owned by the engine
bool engine_on_cpu(const engine *e);                 // and nowhere else
int engine_n_vocab(const engine *e);                 // logits of a position
int engine_n_ctx(const engine *e);                   // positions of the KV cache

// While tokens of a prompt are evaluated, go_on (NULL: nobody) is asked every few milliseconds on the caller's thread,
// with how many of them are through, and parts of those under way. Where it says false the evaluation ends, and the
// sequence holds what it held before; engine_ended says so of the last evaluation.
typedef bool engine_go_on(void *ctx, double done);
void engine_watch(engine *e, engine_go_on *go_on, void *ctx);
bool engine_ended(const engine *e);

struct sequence;             // caches.h; over one model: their pages lie in the same caches
// Given logits, or what the head would read, of the token after ids[i]: valid while it runs. False ends the evaluation.
typedef bool engine_row(void *ctx, size_t i, const float *row);
// After each chunk: the sums of squares over its m tokens of the inputs of each matrix (tensor t of the file: ne0 of
// them; of experts' ne2 x ne0, and counts, how many tokens chose each: ne2; else counts is NULL).
typedef void engine_sums(void *ctx, size_t t, const float *sums, const float *counts, size_t m);

// The one way to evaluate. A batch has parts, each of another sequence: n tokens that come to stand at pos .., where
// what the sequence holds before pos is kept, and what it held from there on is replaced. n >= 1, pos + n <= n_ctx,
// every id of the vocabulary or of a row of floats (float_rows.h): anything else is an error.
enum engine_want {
  WANT_LOGITS,   // of the last `rows` tokens (0: of none), in `logits`; or, each when it is there, given to `row`
  WANT_HIDDEN,   // of every token what the head would read, engine_n_embd floats given to `row`; from position 0 on.
                 // Models that see a text as a whole (engine_is_encoder) know no other way, but for those that denoise:
                 // WANT_LOGITS of a whole text, from position 0 on. Nothing goes on from there
  WANT_SUMS,     // see `see`
  WANT_GUESS     // the model's own guess at what comes after one token, in `logits`: behind what the sequence holds, or
                 // behind such a guess. The sequence does not hold the token then. Not on two devices
};
typedef struct engine_part {
  struct sequence *q;        // NULL: that of callers who have none
  const int32_t *ids;
  size_t n;
  int pos;
  enum engine_want want;
  size_t rows;               // without `row` at most 1 where the last ones are rows of floats
  engine_row *row;
  engine_sums *see;
  void *ctx;                 // of row and see
  const float *logits;       // out: rows x n_vocab, valid until the next call; NULL: none
  size_t evaluated;          // out: tokens; fewer than n where `row` ended it
  // the engine's own: tokens that are evaluated beside others' rows, where its logits lie, and whether it is alone
  size_t beside, row_at;
  bool lone;
} engine_part;
// Pieces of prompts go one after another, the last tokens of all parts in one run, so that weights are read once: bits
// of a part's logits do not depend on the others. Several parts want logits, and have no `row`; rows <= engine_chunk.
typedef struct engine_batch {
  engine_part *parts;
  size_t n;
  bool (*stop)(void *ctx);   // asked every few milliseconds of a prompt; NULL: engine_watch's is
  void *ctx;
  bool alone;                // no plans for several are made: tokens go one by one, or in chunks without logits
} engine_batch;
// 0; 1: it ended early, and no sequence has changed; -1: there is no memory for a part (then none has changed), or the
// file is no longer what it was.
int engine_run(engine *e, engine_batch *b, error *err);

bool engine_has_mtp(const engine *e);                // whether there are guesses
int engine_need_mtp(engine *e, error *err);          // their plan, which is otherwise made when it is first needed
struct sequence *engine_sequence(engine *e);         // of callers who have none
int engine_sequence_new(engine *e, struct sequence **out, error *err);     // for sequence_free, before engine_close
// For sequence.c, which has them in files: where they lie, and what is computed (content.h).
struct caches;
struct content;
struct caches *engine_caches(engine *e);
struct content *engine_content(const engine *e);

int engine_n_embd(const engine *e);
int engine_n_floats(const engine *e);                // see model_n_floats
struct float_table *engine_float_table(engine *e);   // float_rows.h: the rows that ids below 0 stand for
bool engine_has_sections(const engine *e);           // see model_has_sections
bool engine_is_recurrent(const engine *e);           // see model_is_recurrent
bool engine_is_encoder(const engine *e);
bool engine_denoises(const engine *e);               // see model_denoises
bool engine_has_source(const engine *e);             // see model_has_source
int32_t engine_starts(const engine *e);              // see model_starts
bool engine_is_exact(const engine *e);               // engine_options.exact
int engine_block(const engine *e);                   // see model_block
// enum model_pooling: how the file says that a text's vector is made
int engine_pooling(const engine *e);

// Finishes what loading leaves for later: weights move into huge pages, which is otherwise done bit by bit between
// tokens. For measurements of a steady state.
void engine_promote_pages(engine *e);
void engine_stats(const engine *e, struct engine_stats *out);

// For trace.c: the graph and the schedule of a token or of a chunk of a prompt once more, made in g as they were for
// the plan (kernels in the same order); and what a buffer of it is called ("blk.0.ffn_down.weight", "state 3", "ids").
struct graph;
struct schedule;
void engine_trace(const engine *e, bool prompt, struct graph *g, struct schedule *s);
void engine_progress(const engine *e, const char *what, double fraction);
bool engine_stopped(const engine *e);   // options.stop says that the engine is not wanted any more
void engine_buffer_name(const engine *e, int64_t id, char *out, size_t cap);

// For profile.c: the device, the plan for one token or for a chunk of a prompt (made now if there is none yet), where
// it reads its ids, and how many there may be. Its variables are "pos" and, for a chunk, "n". A model on two devices is
// two plans, and there is neither: engine_plan says so.
struct device;
struct plan;
struct device *engine_device(engine *e);
int engine_n_layer(const engine *e);
int engine_chunk(const engine *e);                   // tokens of a prompt that go through at once
struct weft_model;
engine *weft_model_engine(struct weft_model *m);     // of the public handle (weft.c)
// the same, for those that leave the model's own sequence alone
engine *weft_model_beside(struct weft_model *m);
struct weft_sequence;
struct sequence *weft_sequence_of(struct weft_sequence *q);      // what its handle stands for
const engine *weft_model_peek(const struct weft_model *m);   // the same, for those that ask and run nothing
struct weft_error;
int weft_check_ids(const int32_t *ids, size_t n, int32_t n_vocab, struct weft_error *err);         // of weft.c, too
int weft_check_prompt(struct weft_model *m, const int32_t *ids, size_t n, struct weft_error *err);
int weft_check_logits(const struct weft_model *m, const float *logits, int pos, error *e);
// engine_row for those who may not see rows that are no numbers: hands row what is sound, or ends with e
struct checked_rows { const struct weft_model *m; int pos; engine_row *row; void *ctx; error e; };
bool weft_checked_row(void *ctx, size_t i, const float *logits);
// the same: checks, and WANT_SUMS
int weft_model_sums(struct weft_model *m, const int32_t *ids, size_t n, engine_sums *see, void *ctx,
                    struct weft_error *err);
struct weft_file;
const gguf *weft_file_gguf(const struct weft_file *f);
struct weft_vocab;
const struct tokenizer *weft_vocab_tokenizer(const struct weft_vocab *v);   // the same
// As tokenizer_encode_as, of the vocabulary of a file that must be whole.
int vocab_encode(const struct weft_vocab *v, text_view text, const encode_how *how, int32_t **ids, size_t *n_ids,
                 struct weft_error *err);
struct jinja_text;
struct weft_template;
struct weft_chat;
// weft_template_render, with the parts that the template wrote; for jinja_text_free.
int template_render(const struct weft_template *t, const struct weft_chat *c, struct jinja_text *out,
                    struct weft_error *err);
// Its tokens laid out for the masks of grammars (grammar.c): made when they are first asked for, by any thread; all
// grammars share them.
struct vocab_tries *vocab_tries_new(void);
void vocab_tries_free(struct vocab_tries *t);      // NULL is fine
struct vocab_tries *weft_vocab_tries(const struct weft_vocab *v);
int engine_plan(engine *e, bool prompt, struct plan **p, int32_t **ids, error *err);

// For layouts.c: how each tensor is laid out (schedule/layout.h). engine_lay_out holds the weights once more, in other
// layouts, with plans of their own, and goes on with these; engine_swap goes back to the others, and engine_drop_other
// frees those that are not in use. The caches are the same for both.
enum layout_kind;
// Whether weights are brought from the file when they are needed, since they do not fit into memory together.
bool engine_brings_weights(const engine *e);
const enum layout_kind *engine_layouts(const engine *e);              // one for each tensor of the file
int engine_lay_out(engine *e, const enum layout_kind *layouts, error *err);
void engine_swap(engine *e);
void engine_drop_other(engine *e);
// the largest weight that a launch of a plan reads: a tensor's number; -1: none
int64_t engine_weight_of(const engine *e, bool prompt, int launch);
#endif
