// engine: runs a model. Input: a GGUF file, then token ids at positions; output: logits of the next token. The engine
// owns the mapped file, the tokenizer, the compiled plans and the caches of all sequences.
//
// Invariant: results depend only on the ids and their positions, not on how a prompt was split into calls, the chunk
// size, or the number of threads. Look next: weft.c (the public API on top of this), sampler.h (from logits to a
// token), include/weft.h.
#ifndef WEFT_ENGINE_H
#define WEFT_ENGINE_H
#include "base/base.h"
#include "model/model.h"
#include "text/text.h"

typedef struct engine engine;

struct engine_adapter { const char *path; double scale; };
struct engine_options {
  // positions of the KV cache; 0: the model's training context, or a half, a quarter, ... of it if memory is short
  int n_ctx;
  int n_threads;          // 0: from affinity, cgroup and cores
  int n_prompt_threads;   // for prompts; 0: as many
  int chunk;              // positions of a prompt evaluated at once; 0: default
  // number of layers, from the last one down, on the device; 0: as many as fit; -1: none
  int gpu_layers;
  bool no_repack;         // weights are not packed
  const char *const *settings;   // see gguf_set_text
  size_t n_settings;
  const struct engine_adapter *adapters;   // LoRA files and their scales
  size_t n_adapters;
  const control_file *control_vectors;     // added to the outputs of layers
  size_t n_control_vectors;
  // with several processes: how they share the model, and their shares (n_shares 0: equal ones)
  int split;              // enum weft_split
  const double *shares;
  size_t n_shares;
  model_kv kv;            // types of keys and values in the cache
  bool exact;             // activations stay f32: no integer dot products
  bool mtp;               // enables the file's MTP block, if present: see WANT_MTP
  const char *draft_file; // a draft file (model/draft.c), used instead of that block; NULL: none
  void (*progress)(void *ctx, const char *what, double fraction);   // may be NULL; what: "loading", "compiling"; 0..1
  void *progress_ctx;
  bool (*stop)(void *ctx);       // polled while the engine opens, with progress_ctx: true cancels; may be NULL
  // n > 0: plans are those of this process of n, with random weights, for timing (rehearse.h). The file may end after
  // its header
  struct { int rank, n; } rehearsed;
  const char *device;            // a name for device_open_named; NULL: DEV
  bool in_memory;                // the file is in memory, n_data bytes; path is then its name
  const void *data; size_t n_data;
};

struct engine_stats {
  double load_ms;             // opening, checking and packing the file
  double compile_ms;          // compiling kernels; 0 if all came from the cache
  double schedule_ms;         // from the model to kernels: graph, rewriting, scheduling
  double codegen_ms;          // part of compile_ms: rules; the rest is the compiler's
  int64_t kernels_compiled;   // kernels that were compiled, not found in the cache
  int64_t plans_scheduled;    // plans that were scheduled, not found in the cache
  double kernels_per_token;   // dispatches of one decode step
  double kernels_per_block;   // of these, per layer
  double fusion_rate;         // graph operations per kernel
  uint64_t kv_bytes;          // KV cache as reserved, not as touched
  uint64_t peak_rss_bytes;    // VmHWM, including file pages
  uint64_t n_params;          // elements of all tensors
  uint64_t model_bytes;       // bytes of all tensors
  // distinct kernels of a token; those with a tuning when the model was loaded
  int kernels, kernels_tuned;
  int tune_tried, tune_better;// candidates whose background trial ended, and those that replaced a kernel
  double tune_cost;           // share of the time of all tokens spent on tuning
  const char *tune_state;     // "on", "done", or what it waits for; NULL: off
};

// Validates and maps the file and builds the graphs. options NULL: all defaults. Returns 0 and *out; -1 and the reason:
// a bad file, an unknown architecture or type, or too little memory (with the numbers).
int engine_open(const char *path, const struct engine_options *options, engine **out, error *err);
// -1 and the reason if an evaluation broke an invariant, or if another process opened the engine (this one was forked
// from it); all later evaluations then fail with that error.
int engine_check(const engine *e, error *err);
void engine_close(engine *e);                        // NULL is fine

const gguf *engine_gguf(const engine *e);            // owned by the engine
const tokenizer *engine_tokenizer(const engine *e);  // owned by the engine
bool engine_on_cpu(const engine *e);                 // on the CPU only
int engine_n_vocab(const engine *e);                 // number of logits per position
int engine_n_ctx(const engine *e);                   // positions of the KV cache

// During the evaluation of a prompt, calls go_on (NULL: none) every few milliseconds on the caller's thread, with the
// number of tokens done, including fractions. If it returns false the evaluation is cancelled, and the sequence keeps
// its earlier content; engine_ended tells whether the last evaluation was cancelled.
typedef bool engine_go_on(void *ctx, double done);
void engine_watch(engine *e, engine_go_on *go_on, void *ctx);
bool engine_ended(const engine *e);

struct sequence;             // caches.h; sequences of one model share its caches
// Receives the logits (or hidden state) of ids[i], valid during the call. False ends the evaluation.
typedef bool engine_row(void *ctx, size_t i, const float *row);
// After each chunk: sums of squares over its m tokens of the inputs of each matrix (tensor t of the file, ne0 values;
// for experts ne2 x ne0, with counts, the number of tokens that chose each of the ne2 experts; otherwise counts is
// NULL).
typedef void engine_sums(void *ctx, size_t t, const float *sums, const float *counts, size_t m);

// The only way to evaluate. A batch has parts, each of another sequence: n tokens to be placed at pos ..; the
// sequence's content before pos is kept, its content from pos on is replaced. n >= 1, pos + n <= n_ctx, every id from
// the vocabulary or a row of floats (float_rows.h); anything else is an error.
enum engine_want {
  WANT_LOGITS,   // logits of the last `rows` tokens (0: none), in `logits`, or each passed to `row` when it is ready
  WANT_HIDDEN,   // the hidden state of every token (engine_n_embd floats), passed to `row`; from position 0 on.
                 // The only mode of encoder models (engine_is_encoder), except those that denoise:
                 // WANT_LOGITS of a whole text, from position 0 on. The sequence cannot continue
  WANT_SUMS,     // see `see`
  WANT_MTP,    // the MTP block's logits for the token after next, in `logits`: after the sequence's content,
                 // or after such a draft. The sequence does not hold the token then. Not on two devices. With a
                 // draft file, its logits; of engine_draft_rows rows
  WANT_DRAFT   // of a draft file in which a token changes the logits after it, engine_draft_follows: the logits of row
                 // `pos` of its last evaluation, after a token. Those of WANT_MTP are without that
};
typedef struct engine_part {
  struct sequence *q;        // NULL: the sequence of callers without one
  const int32_t *ids;
  size_t n;
  int pos;
  enum engine_want want;
  size_t rows;               // without `row` at most 1 if the last tokens are rows of floats
  engine_row *row;
  engine_sums *see;
  void *ctx;                 // for row and see
  const float *logits;       // out: rows x n_vocab, valid until the next call; NULL: none
  size_t evaluated;          // out: tokens; fewer than n if `row` ended it
  // internal: tokens evaluated together with other parts' rows, index of its logits, evaluated alone?
  size_t beside, row_at;
  bool lone;
} engine_part;
// Prompts are evaluated chunk by chunk; the last tokens of all parts are evaluated in one run, so that weights are read
// once. The bits of a part's logits do not depend on other parts. Several parts: they want logits and have no `row`;
// rows <= engine_chunk.
typedef struct engine_batch {
  engine_part *parts;
  size_t n;
  bool (*stop)(void *ctx);   // polled every few milliseconds of a prompt; NULL: engine_watch's callback
  void *ctx;
  bool alone;  // do not make plans for several sequences: tokens run one at a time, or in chunks without logits
} engine_batch;
// Returns 0; 1 if it was cancelled, and no sequence has changed; -1 if a part has no memory (then none has changed), or
// the file was modified.
int engine_run(engine *e, engine_batch *b, error *err);

bool engine_has_mtp(const engine *e);                // does it make MTP drafts?
int engine_need_mtp(engine *e, error *err);          // makes their plan, otherwise made at first use
bool engine_draft_follows(const engine *e);          // see WANT_DRAFT
int engine_draft_rows(const engine *e);              // tokens that one evaluation drafts
struct sequence *engine_sequence(engine *e);         // of callers without a sequence
int engine_sequence_new(engine *e, struct sequence **out, error *err);  // free with sequence_free, before engine_close
// For sequence.c, which saves and loads sequences: the caches, and the name of what the model computes (content.h).
struct caches;
struct content;
struct caches *engine_caches(engine *e);
struct content *engine_content(const engine *e);

int engine_n_embd(const engine *e);
int engine_n_floats(const engine *e);                // see model_n_floats
struct float_table *engine_float_table(engine *e);   // float_rows.h: the rows for ids below 0
bool engine_has_sections(const engine *e);           // see model_has_sections
bool engine_is_recurrent(const engine *e);           // see model_is_recurrent
bool engine_is_encoder(const engine *e);
// -1: the model sees texts as a whole, so it goes on with none token by token.
int engine_check_predicts(const engine *e, error *err);
bool engine_denoises(const engine *e);               // see model_denoises
bool engine_has_source(const engine *e);             // see model_has_source
int32_t engine_starts(const engine *e);              // see model_starts
bool engine_is_exact(const engine *e);               // engine_options.exact
int engine_block(const engine *e);                   // see model_block
// enum model_pooling: the pooling type in the file
int engine_pooling(const engine *e);

// Completes loading: moves weights into huge pages, which is otherwise done gradually between tokens. For measurements
// of the steady state.
void engine_promote_pages(engine *e);
void engine_stats(const engine *e, struct engine_stats *out);

// For trace.c: makes the graph and the schedule of a token or of a chunk of a prompt again in g, with kernels in the
// order of the plan; and the name of a buffer ("blk.0.ffn_down.weight", "state 3", "ids").
struct graph;
struct schedule;
void engine_trace(const engine *e, bool prompt, struct graph *g, struct schedule *s);
void engine_progress(const engine *e, const char *what, double fraction);
bool engine_stopped(const engine *e);   // options.stop returned true: the engine is no longer needed
void engine_buffer_name(const engine *e, int64_t id, char *out, size_t cap);

// For profile.c: the device, the plan for one token or for a chunk of a prompt (made now if necessary), its buffer of
// ids and the maximum number of ids. Its variables are "pos" and, for a chunk, "n". A model on two devices has two
// plans: engine_plan then returns an error.
struct device;
struct plan;
struct device *engine_device(engine *e);
int engine_n_layer(const engine *e);
int engine_chunk(const engine *e);                   // tokens of a prompt evaluated at once
struct weft_model;
engine *weft_model_engine(struct weft_model *m);     // of the public handle (weft.c)
// the engine, for callers that do not touch the model's own sequence
engine *weft_model_beside(struct weft_model *m);
void weft_model_keep(struct weft_model *m, int n);     // of its own sequence at most n positions stay
struct weft_sequence;
struct sequence *weft_sequence_of(struct weft_sequence *q);      // the sequence of a public handle
const engine *weft_model_peek(const struct weft_model *m);   // the engine, for callers that only query it
struct weft_error;
int weft_check_ids(const int32_t *ids, size_t n, int32_t n_vocab, struct weft_error *err);         // of weft.c, too
int weft_check_prompt(struct weft_model *m, const int32_t *ids, size_t n, struct weft_error *err);
int weft_check_logits(const struct weft_model *m, const float *logits, int pos, error *e);
// An engine_row that passes finite rows on to `row`; a row with NaN or infinity ends the evaluation with error e
struct checked_rows { const struct weft_model *m; int pos; engine_row *row; void *ctx; error e; };
bool weft_checked_row(void *ctx, size_t i, const float *logits);
// Checks its arguments, then evaluates with WANT_SUMS
int weft_model_sums(struct weft_model *m, const int32_t *ids, size_t n, engine_sums *see, void *ctx,
                    struct weft_error *err);
struct weft_file;
const gguf *weft_file_gguf(const struct weft_file *f);
struct weft_vocab;
const struct tokenizer *weft_vocab_tokenizer(const struct weft_vocab *v);   // defined in weft.c
// tokenizer_encode_as, for the vocabulary of a file that must be complete.
int vocab_encode(const struct weft_vocab *v, text_view text, const encode_how *how, int32_t **ids, size_t *n_ids,
                 struct weft_error *err);
struct jinja_text;
struct weft_template;
struct weft_chat;
// weft_template_render, with the spans that the template wrote; free with jinja_text_free.
int template_render(const struct weft_template *t, const struct weft_chat *c, struct jinja_text *out,
                    struct weft_error *err);
// The vocabulary as tries for grammar masks (grammar.c): made at first use, by any thread; shared by all grammars.
struct vocab_tries *vocab_tries_new(void);
void vocab_tries_free(struct vocab_tries *t);      // NULL is fine
struct vocab_tries *weft_vocab_tries(const struct weft_vocab *v);
int engine_plan(engine *e, bool prompt, struct plan **p, int32_t **ids, error *err);

// For layouts.c: the layout of each tensor (schedule/layout.h). engine_repack loads the weights again in other
// layouts, with their own plans, and switches to them; engine_swap switches back, and engine_drop_other frees the set
// that is not in use. Both use the same caches.
enum layout_kind;
// Are weights loaded on demand because they do not fit into memory together?
bool engine_brings_weights(const engine *e);
const enum layout_kind *engine_layouts(const engine *e);              // one per tensor of the file
int engine_repack(engine *e, const enum layout_kind *layouts, error *err);
void engine_swap(engine *e);
void engine_drop_other(engine *e);
// the largest weight that a launch of a plan reads: number of the tensor; -1: none
int64_t engine_weight_of(const engine *e, bool prompt, int launch);
#endif
