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
  // layers, from the last one down, that lie on the device that DEV names; 0: as many as it has room for; -1: none
  int gpu_layers;
  bool no_repack;         // weights stay as they lie in the file
  const char *const *settings;   // see gguf_set_text
  size_t n_settings;
  const struct engine_adapter *adapters;   // LoRA files, and what they are multiplied with
  size_t n_adapters;
  model_kv kv;            // how keys and values lie in the cache
  bool exact;             // activations stay f32: no integer dot products
  bool mtp;               // the block that predicts a further token is there, where the file has it: see engine_predict
  void (*progress)(void *ctx, const char *what, double fraction);   // may be NULL; what: "loading", "compiling"; 0..1
  void *progress_ctx;
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
void engine_close(engine *e);                        // NULL is fine

const gguf *engine_gguf(const engine *e);            // owned by the engine
const tokenizer *engine_tokenizer(const engine *e);  // owned by the engine
int engine_n_vocab(const engine *e);                 // logits of a position
int engine_n_ctx(const engine *e);                   // positions of the KV cache

// While tokens of a prompt are evaluated, go_on (NULL: nobody) is asked every few milliseconds on the caller's thread,
// with how many of them are through, and parts of those under way. Where it says false the evaluation ends, and the
// sequence holds what it held before; engine_ended says so of the last evaluation.
typedef bool engine_go_on(void *ctx, double done);
void engine_watch(engine *e, engine_go_on *go_on, void *ctx);
bool engine_ended(const engine *e);

// Evaluates ids[0..n) at positions pos..pos+n-1; what the cache holds before pos is kept, what it held from pos on is
// replaced.  n >= 1, pos + n <= n_ctx, every id in 0..n_vocab-1 (the caller has checked: anything else dies).
// *logits (may be NULL) points to n_vocab floats of the LAST position, valid until the next call. 0; 1: it ended early;
// -1 with err.
int engine_eval(engine *e, const int32_t *ids, size_t n, int pos, const float **logits, error *err);

// The same, with the logits of every token from ids[first] on (first < n): row gets those of the token after ids[i],
// n_vocab floats that are valid while it runs. Returning false ends the evaluation there. The position that follows
// what was evaluated, or -1.
typedef bool engine_row(void *ctx, size_t i, const float *logits);
struct sequence;                                     // NULL: that of callers who have none
int engine_eval_rows(engine *e, struct sequence *q, const int32_t *ids, size_t n, int pos, size_t first,
                     engine_row *row, void *ctx, error *err);

// The model's own guess at what comes after token id, which stands at pos behind what a sequence holds (NULL: that of
// callers who have none); for the next one, of what it says, at pos + 1, and so on. Nothing that counts changes: the
// sequence does not hold the token then. *logits: valid until the next call. Not on two devices.
bool engine_has_mtp(const engine *e);
int engine_need_mtp(engine *e, error *err);          // its plan, which is otherwise made when it is first needed
int engine_predict(engine *e, struct sequence *q, int32_t id, int pos, const float **logits, error *err);

// Sequences (caches.h) over one model: their pages lie in the same caches. A step evaluates the tokens of n parts, each
// of another sequence, behind what that holds: pieces of prompts one after another, the last tokens of all of them in
// one run, so that weights are read once. Bits of a sequence's logits do not depend on the others. n <= engine_chunk,
// and each part as engine_eval would have it. 0: logits of each part's last token, valid until the next call. 1: stop
// (may be NULL; asked every few milliseconds of a prompt) was true, and no sequence has changed. -1: none has changed
// where there is no memory for a part; or the file is no longer what it was. rows: of so many of its last tokens logits
// are wanted, one row behind the other; at most 1 with recurrent layers
struct engine_part {
  struct sequence *q;
  const int32_t *ids;
  size_t n, rows;
  const float *logits;
  int from;
  size_t beside;
};
int engine_step(engine *e, struct engine_part *parts, size_t n, bool (*stop)(void *ctx), void *ctx, error *err);
struct sequence *engine_sequence(engine *e);         // that engine_eval and its like use
int engine_sequence_new(engine *e, struct sequence **out, error *err);     // for sequence_free, before engine_close
// see sequence_file.h and page_store.h
int engine_sequence_save(const engine *e, const struct sequence *q, const int32_t *ids, const char *path, error *err);
int engine_sequence_load(engine *e, const int32_t *ids, size_t n, const char *path, struct sequence **out, error *err);
struct page_store;
struct page_folder;
int engine_store_open(engine *e, const struct page_folder *where, struct page_store **out, error *err);

// Evaluates a text from position 0 on: row gets the engine_n_embd floats that the head would read of each token. Models
// that see a text as a whole (engine_is_encoder) know no other way. What the cache held is lost.
int engine_eval_hidden(engine *e, const int32_t *ids, size_t n, engine_row *row, void *ctx, error *err);
int engine_n_embd(const engine *e);
bool engine_is_recurrent(const engine *e);           // see model_is_recurrent
bool engine_is_encoder(const engine *e);
// enum model_pooling: how the file says that a text's vector is made
int engine_pooling(const engine *e);

// Evaluates a text from position 0 on. After each chunk, see gets the sums of squares over its m tokens of the inputs
// of each matrix (tensor t of the file: ne0 of them; of experts' ne2 x ne0, and counts, how many tokens chose each:
// ne2; else counts is NULL).
typedef void engine_sums(void *ctx, size_t t, const float *sums, const float *counts, size_t m);
int engine_eval_sums(engine *e, const int32_t *ids, size_t n, engine_sums *see, void *ctx, error *err);

// Finishes what loading leaves for later: weights move into huge pages, which is otherwise done bit by bit between
// tokens. For measurements of a steady state.
void engine_settle(engine *e);
void engine_stats(const engine *e, struct engine_stats *out);

// For look.c: the graph and the schedule of a token or of a chunk of a prompt once more, made in g as they were for the
// plan (kernels in the same order); and what a buffer of it is called ("blk.0.ffn_down.weight", "state 3", "ids").
struct graph;
struct schedule;
void engine_look(const engine *e, bool prompt, struct graph *g, struct schedule *s);
void engine_progress(const engine *e, const char *what, double fraction);
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
int weft_check_logits(const struct weft_model *m, const float *logits, int pos, error *e);
// engine_row for those who may not see rows that are no numbers: hands row what is sound, or ends with e
struct checked_rows { const struct weft_model *m; int pos; engine_row *row; void *ctx; error e; };
bool weft_checked_row(void *ctx, size_t i, const float *logits);
// the same: checks, and engine_eval_sums
int weft_model_sums(struct weft_model *m, const int32_t *ids, size_t n, engine_sums *see, void *ctx,
                    struct weft_error *err);
struct weft_vocab;
const struct tokenizer *weft_vocab_tokenizer(const struct weft_vocab *v);   // the same
int engine_plan(engine *e, bool prompt, struct plan **p, int32_t **ids, error *err);

// For layouts.c: how each tensor is laid out (schedule/layout.h). engine_lay_out holds the weights once more, in other
// layouts, with plans of their own, and goes on with these; engine_swap goes back to the others, and engine_drop_other
// frees those that are not in use. The caches are the same for both.
enum layout_kind;
const enum layout_kind *engine_layouts(const engine *e);              // one for each tensor of the file
int engine_lay_out(engine *e, const enum layout_kind *layouts, error *err);
void engine_swap(engine *e);
void engine_drop_other(engine *e);
// the largest weight that a launch of a plan reads: a tensor's number; -1: none
int64_t engine_weight_of(const engine *e, bool prompt, int launch);
#endif
