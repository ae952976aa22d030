// model: a checked description of a model file, and its graphs. An architecture is a row in a table (arch.c); a layer
// is made of parts (model_impl.h), chosen when the file is opened. Nothing is computed here.
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H
#include "base/sha256.h"
#include "graph/graph.h"
#include "model/gguf.h"

enum { MODEL_MAX_LAYERS = 512 };

typedef struct model model;
// How keys and values lie in the cache.
enum kv_type { KV_F16, KV_F32, KV_BF16, KV_Q8_0, KV_Q4_0, KV_TYPES };
typedef struct model_kv { enum kv_type keys, values; } model_kv;
int kv_type_named(const char *name);                           // "f16", ...: -1 where there is none of this name
// Checks architecture, keys, tensor names, shapes and types. The file must stay open. 0, or -1 and what is wrong.
int model_open(const gguf *file, model_kv kv, model **out, error *err);
void model_close(model *m);
// What becomes of each key when this file is opened, in uses[gguf_n_kv]: MODEL_KEY_READ, MODEL_KEY_REFUSED, or why it
// changes nothing (static text); NULL: it is not under the architecture's name, or was not looked at before an error.
#define MODEL_KEY_READ "read"
#define MODEL_KEY_REFUSED "not supported"
void model_key_uses(const gguf *file, const char **uses);
int model_n_layer(const model *m);
// Whether what layers from `at` on need of those before is what flows from one to the next, and nothing else.
bool model_can_cut(const model *m, int at);
// Blocks with tensors of their own: layers, and behind them the one that predicts a further token, if it is there.
int model_n_blocks(const model *m);
// Whether the file has such a block, and it is computed (mtp.c): then every graph keeps what it needs of each token.
bool model_has_mtp(const model *m);
void model_drop_mtp(model *m);                                 // before a graph is made: it is left out
// Numbers that a layer's attention keeps of each token and each block of positions until all are merged, at most.
int64_t model_attention_sums(const model *m);
int model_n_stream(const model *m);                            // elements of what flows, for each token
// Elements of a row of floats in a token's place (BUF_FLOATS): what the first layer reads, as it reads it, and behind
// that what each of the first layers adds to what leaves it (deepstack).
int model_n_floats(const model *m);
// Whether rope turns by three positions of a token, those of time, row and column (BUF_TURNS).
bool model_has_sections(const model *m);
int model_n_vocab(const model *m);
int model_n_ctx_train(const model *m);
int model_n_ctx_max(const model *m);                           // as many positions as it can have; 0: any number
// Which graphs a context of so many positions has: what those of one number leave in states, only they can read.
int model_variant(const model *m, int64_t n_ctx);
// Whether it sees a text as a whole: its graphs have no positions, only what LOGITS_HIDDEN says, and a run is one text.
bool model_is_encoder(const model *m);
// Whether such a model denoises: its graphs may have what LOGITS_ALL says, too.
bool model_denoises(const model *m);
// Whether an encoder makes rows of floats of a text, the source, and a decoder goes on token by token. With
// LOGITS_HIDDEN its graphs are the encoder's; with `floats` they put the keys and values that rows of a source have for
// all layers into the caches, and nothing else; others are the decoder's. A source comes first in a sequence.
bool model_has_source(const model *m);
int32_t model_starts(const model *m);                          // then: the token that the decoder begins with
int model_n_embd(const model *m);                              // elements of a vector that stands for a text
enum model_pooling {
  POOLING_UNSAID = -1,
  POOLING_NONE,
  POOLING_MEAN,
  POOLING_CLS,
  POOLING_LAST,
  POOLING_RANK,
  POOLING_COUNT
};
// how such a vector is made of those of its tokens, as the file says
enum model_pooling model_pooling(const model *m);

// Buffers of the graphs are numbered: the file's tensors first, by index; then these.
// BUF_IDS: the tokens of a run (I32, chunk). BUF_AT: their positions, BUF_PAGES and BUF_SLOT: where the pages
// and the fixed states of their sequence lie, see model_shape.
// BUF_STREAM: what flows between layers (F32, chunk x model_n_stream), see model_shape.layers.
// BUF_FLOATS, BUF_LAST: see model_shape.floats and .both. BUF_TURNS (I32, chunk x 3): positions that rope turns by,
// where model_has_sections; everything else goes by a token's place in its sequence. BUF_ADAPTER + i: see
// model_adapter_data. BUF_CONTROL + i: see model_control_data. BUF_STATE + i: state i, of model_n_states. BUF_SUMS + 2
// t: of tensor t, see model_shape.sums. BUF_SCALES: see model_shape.adapted. BUF_PATCHES, BUF_PLACES: what an encoder
// of pictures or sound reads (projector.h). BUF_SOURCE (I32, chunk), where model_has_source: positions of its source.
enum model_buffer {
  BUF_IDS,
  BUF_AT,
  BUF_PAGES,
  BUF_SLOT,
  BUF_LOGITS,
  BUF_ROWS,
  BUF_HIDDEN,
  BUF_STREAM,
  BUF_FLOATS,
  BUF_LAST,
  BUF_TURNS,
  BUF_PATCHES,
  BUF_PLACES,
  BUF_SCALES,
  BUF_SOURCE,
  BUF_STATE,
  BUF_SUMS = 1 << 16,
  BUF_CONTROL = 1 << 27,
  BUF_ADAPTER = 1 << 28
};
static inline int64_t model_buffer_id(const gguf *file, int b) { return (int64_t)gguf_n_tensors(file) + b; }

// Adds an adapter (a GGUF file of general.type "adapter") to what graphs with model_shape.adapted compute from now on.
// scale: what tokens multiply it with where nobody says another. 0, or -1 and what is wrong with it.
int model_adapt(model *m, const char *path, double scale, error *err);
int model_n_adapters(const model *m);
const float *model_adapter_scales(const model *m);             // those of model_adapt, n of them
void *model_adapter_data(const model *m, int64_t i);           // of buffer BUF_ADAPTER + i
// adds all that adapters change: names of weights, and the numbers as they are held, scales included
void model_digest_adapters(const model *m, sha256 *s);
// after model_graph with `adapted`: -1 where an adapter is for a weight that is in no such product
int model_adapters_used(const model *m, error *err);

// Adds a control vector (a GGUF file of architecture "controlvector"), times `scale`, to what layers from .. to add to
// what leaves them; to 0: to the last one. 0, or -1 and what is wrong with it.
typedef struct control_file { const char *path; double scale; int from, to; } control_file;
int model_control(model *m, const control_file *c, error *err);
float *model_control_data(const model *m, int64_t at);         // of buffer BUF_CONTROL + at, of that layer
void model_digest_control(const model *m, sha256 *s);          // adds all that is added to layers

enum { MODEL_PAGE = 128 /* positions that caches have pages of: what a file says is checked against it */ };
// What sequences leave behind from run to run: the caches of attention, in pages of a number of positions that a table
// finds, and the fixed states of convolutions and recurrences, in slots, one for each sequence. Whoever runs a graph
// gives each state the memory for all its pages or slots, zeroed or not: what a run reads of it, an earlier one at a
// lower position has written.
//
// Pages of layers with the same window (0: none) are a group: a page has a number for each group, by which all states
// of the group find it. Of a group with a window, a run reads nothing that lies more than window - 1 positions before
// its first token.
enum { MODEL_GROUPS = 3 };
int model_n_groups(const model *m);
int model_group_window(const model *m, int g);
int model_state_group(const model *m, int i);                          // of a paged one
int model_n_states(const model *m);
bool model_state_is_paged(const model *m, int i);
int model_state_layer(const model *m, int i);                          // whose it is
uint64_t model_state_bytes(const model *m, int i, int64_t positions);  // of so many positions, or (not paged) of a slot
// Whether some state holds no positions but only what came last. Then a run at `pos` must follow one that ended there,
// or begin at a place that model_back allows; 0 begins anew.
bool model_is_recurrent(const model *m);
// Of such a model: the first position that a run may begin at again, behind runs that lead up to `at` without a way
// back (first: where that began). Rows from there on are written over.
enum { MODEL_BACK = 7 /* positions at most */ };
int model_back(const model *m, int first, int at);
bool model_has_entries(const model *m);      // whether some state has a row for several positions, made anew with each
// runs end at multiples of this many positions, or before; 0: anywhere
int model_block(const model *m);
// tokens that choose each expert of a layer so many times, on average; 0: no experts
int64_t model_tokens_by_expert(const model *m, int64_t each);

enum model_logits {
  LOGITS_NONE,               // only the states are filled
  LOGITS_LAST,               // of the last position, in BUF_LOGITS (F32, n_vocab)
  LOGITS_ALL,                // of every position, in BUF_ROWS (F32, chunk x n_vocab)
  // none, but what the head would read of every position, in BUF_HIDDEN (F32, chunk x model_n_embd)
  LOGITS_HIDDEN
};
typedef struct model_shape {
  int64_t page;              // positions of a page
  int64_t tile;              // tokens of one expert that a chunk's products take at once (a chunk of 1: none)
  int64_t pages;             // that each paged state has room for, and slots of the others
  int64_t slots;
  // positions that a sequence can have (a multiple of page). BUF_PAGES (I32) has ctx / page + 1 pages of a sequence for
  // each group, one behind the other
  int64_t ctx;
  bool apart;  // each token is of a sequence of its own, at a position of its own (BUF_AT, I32), with pages of its own
               // (BUF_PAGES has a row for each, in which those of a group with a window begin with the page that
               // model_first_page says). Variable "pages": so many of each are looked at. Of models without
               // fixed states. Otherwise all are of one sequence, at positions pos.. (variable "pos"), with its fixed
               // states in the slot that BUF_SLOT (I32, 1) says
  int rows;    // of those only the first ones have logits: so many, variable "rows", of at most this; 0: all have
  // positions that will be used at most: some files rotate by other frequencies where that is many
  int64_t n_ctx;
  int64_t chunk;             // 1: one token per run, const; more: variable "n" in 1..chunk
  enum model_logits logits;  // which are stored
  bool sums;  // store, of every matrix that tokens are multiplied with, the sums of squares of its inputs over these
              // tokens in BUF_SUMS + 2 t (F32, ne0); of experts' for each of them (F32, ne2 x ne0), and how many tokens
              // chose it in the buffer after that (F32, ne2)
  bool exact;                // nothing is rounded but what is stored in caches
  bool floats; // a token whose id is negative is a row of floats (BUF_FLOATS, F32, chunk x model_n_floats)
  bool both;   // of one sequence: each token sees all up to a place that may lie behind its own, within this run
               // (BUF_LAST, I32, chunk)
  bool adapted;// products have what adapters add, multiplied with scales of each token (BUF_SCALES, F32, chunk x
               // model_n_adapters)
  bool mtp;    // of one token, chunk 1: only the block that predicts the token after it, from what graphs have left at
               // the position before `pos`. What it would be given at the next position lies at `pos` then
  // Only layers from .. to - 1 (to 0: to the last one), so that several graphs are a model: the first embeds the tokens
  // and the last one has the logits. What flows in and out is in BUF_STREAM. See model_can_cut.
  struct { int from, to; } layers;
} model_shape;
// The first page that a token at a position reads, of a group with this window (0: none), and how many it reads at
// most.
static inline int64_t model_first_page(int64_t window, int64_t page, int64_t at) {
  return window ? max_i64(at - (window - 1), 0) / page : 0;
}
static inline int64_t model_window_pages(int64_t window, int64_t page) { return (window + page - 2) / page + 1; }
// SINK of the effects: n tokens from BUF_IDS go through the model, or those layers.
uop *model_graph(const model *m, graph *g, const model_shape *s);
#endif
