// model: a checked description of a model file, and its graphs. An architecture is a row in a table (arch.c); a layer
// consists of parts (model_impl.h), which are chosen when the file is opened. Nothing is computed here.
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H
#include "base/sha256.h"
#include "graph/graph.h"
#include "model/gguf.h"

enum { MODEL_MAX_LAYERS = 512 };

typedef struct model model;
// The types of keys and values in the cache.
enum kv_type { KV_F16, KV_F32, KV_BF16, KV_Q8_0, KV_Q4_0, KV_TYPES };
typedef struct model_kv { enum kv_type keys, values; } model_kv;
int kv_type_named(const char *name);                           // "f16", ...: -1: unknown
// Checks architecture, keys, tensor names, shapes and types. The file must stay open. Returns 0, or -1 and what is
// wrong.
int model_open(const gguf *file, model_kv kv, model **out, error *err);
void model_close(model *m);
// What becomes of each key when this file is opened, in uses[gguf_n_kv]: MODEL_KEY_READ, MODEL_KEY_REFUSED, or the
// reason why it changes nothing (static text). NULL: it is not under the architecture's name, or was not reached before
// an error.
#define MODEL_KEY_READ "read"
#define MODEL_KEY_REFUSED "not supported"
void model_key_uses(const gguf *file, const char **uses);
int model_n_layer(const model *m);
int model_layer_block(const model *m, int i);                  // the block of the file that has its tensors
// Whether layers from `at` on need only the stream of the layers before, so that the model can be cut there.
bool model_can_cut(const model *m, int at);
// Blocks with tensors of their own: layers, and the block after them that predicts a further token, if there is one.
int model_n_blocks(const model *m);
// Whether the file has such a block and it is used (mtp.c): then every graph caches its entries for each token.
bool model_has_mtp(const model *m);
void model_drop_mtp(model *m);                                 // leaves it out; called before a graph is made
// Draft files (draft.c): whether a file is one, which no text can be continued with; whether it fits this model, -1 and
// what does not; and its use with this model, which owns it from then on. It comes before graphs, and after both files
// were joined: `first` is the number of its first tensor there.
bool model_only_drafts(const model *m);
int model_check_alone(const model *m, error *err);             // -1 for a draft file, and how to use it
bool model_kind_drafts(const char *arch, size_t n);            // by the name of its architecture
bool model_kind_denoises(const char *arch, size_t n);
int model_check_draft(const model *m, const model *draft, error *err);
void model_take_draft(model *m, model *draft, size_t first);
bool model_has_draft(const model *m);
// Of the model's draft: tokens that it fills at once, the drawn one included (0: it drafts one after the other), with
// this token where nothing is known; its number of logits, and their tokens (NULL: the same)
enum { MODEL_DRAFT_MOST = 64 };
int model_draft_block(const model *m);
int32_t model_draft_mask(const model *m);
// whether the drawn token's row drafts as well; whether a token changes the logits after it: then a graph of one token
// has what is added to them
bool model_draft_from_first(const model *m);
bool model_draft_follows(const model *m);
int model_draft_vocab(const model *m);
const int32_t *model_draft_ids(const model *m);
// At most how many numbers a layer's attention keeps per token and block of positions until all blocks are merged.
int64_t model_attention_sums(const model *m);
int model_n_stream(const model *m);                            // elements of the stream per token
// Elements of a row of floats that replaces a token (BUF_FLOATS): the input of the first layer, followed by what is
// added to the output of each of the first layers (deepstack).
int model_n_floats(const model *m);
// Whether rope rotates by three positions per token: time, row and column (BUF_TURNS).
bool model_has_sections(const model *m);
int model_n_vocab(const model *m);
int model_n_ctx_train(const model *m);
int model_n_ctx_max(const model *m);                           // the largest number of positions; 0: any number
// The variant of the graphs for a context of this length. Graphs of different variants cannot read each other's states.
int model_variant(const model *m, int64_t n_ctx);
// Whether it is an encoder: its graphs have no positions and only the output LOGITS_HIDDEN, and a run is one text.
bool model_is_encoder(const model *m);
// Whether such a model denoises: its graphs may have the output LOGITS_ALL, too.
bool model_denoises(const model *m);
// Whether it has an encoder, which turns a text, the source, into rows of floats, and a decoder that continues token by
// token. With LOGITS_HIDDEN its graphs are the encoder's. With `floats` they only write the keys and values of the
// source's rows for all layers into the caches. Other graphs are the decoder's. The source comes first in a sequence.
bool model_has_source(const model *m);
int32_t model_starts(const model *m);  // for such a model: the token that the decoder begins with
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
// How such a vector is made of those of its tokens, according to the file
enum model_pooling model_pooling(const model *m);

// Buffers of the graphs are numbered: the file's tensors first, by index; then these. BUF_IDS: the tokens of a run
// (I32, chunk). BUF_AT: their positions. BUF_PAGES, BUF_SLOT: the places of the pages and of the fixed states of their
// sequence, see model_shape. BUF_STREAM: the stream between layers (F32, chunk x model_n_stream), see
// model_shape.layers. BUF_FLOATS, BUF_LAST: see model_shape.floats and .both. BUF_TURNS (I32, chunk x 3): positions for
// rope, if model_has_sections; everything else uses a token's place in its sequence. BUF_ADAPTER + i: see
// model_adapter_data. BUF_CONTROL + i: see model_control_data. BUF_STATE + i: state i of model_n_states. BUF_SUMS + 2
// t: for tensor t, see model_shape.sums. BUF_SCALES: see model_shape.adapted. BUF_PATCHES, BUF_PLACES: the input of an
// image or sound encoder (projector.h). BUF_SOURCE (I32, chunk), if model_has_source: the number of source positions
// before each token.
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

// Adds an adapter (a GGUF file of general.type "adapter") to graphs with model_shape.adapted that are made from now on.
// scale: the default factor of its output. Returns 0, or -1 and what is wrong with it.
int model_adapt(model *m, const char *path, double scale, error *err);
int model_n_adapters(const model *m);
const float *model_adapter_scales(const model *m);             // the default factors, n of them
// The tokens from whose last occurrence in a prompt on adapter k counts (aLoRA); *n 0: it counts everywhere.
const int32_t *model_invocation(const model *m, int k, size_t *n);
void *model_adapter_data(const model *m, int64_t i);           // the contents of buffer BUF_ADAPTER + i
// Adds everything that adapters change to a digest: names of weights, and the numbers as they are held, scales included
void model_digest_adapters(const model *m, sha256 *s);
// Called after model_graph with `adapted`: -1 if an adapter has a weight that no product of the graph uses
int model_adapters_used(const model *m, error *err);

// Adds a control vector (a GGUF file of architecture "controlvector"), times `scale`, to the outputs of layers from ..
// to; to 0: to the last one. Returns 0, or -1 and what is wrong with it.
typedef struct control_file { const char *path; double scale; int from, to; } control_file;
int model_control(model *m, const control_file *c, error *err);
float *model_control_data(const model *m, int64_t at);  // the contents of buffer BUF_CONTROL + at, for that layer
void model_digest_control(const model *m, sha256 *s);          // adds all vectors to a digest

enum { MODEL_PAGE = 128 /* positions per page of caches; keys of files are checked against it */ };
// What sequences keep from run to run: the caches of attention, in pages of a fixed number of positions that a page
// table maps, and the fixed states of convolutions and recurrences, in slots, one per sequence. The caller provides
// memory for all pages or slots of each state. It need not be zeroed: a run only reads what an earlier run wrote at a
// lower position.
//
// Pages of layers with the same window (0: none) form a group. A page has a number in each group, which is the same for
// all states of the group. In a group with a window, a run reads nothing more than window - 1 positions before its
// first token.
enum { MODEL_GROUPS = 3 };
int model_n_groups(const model *m);
int model_group_window(const model *m, int g);
int model_state_group(const model *m, int i);                          // for a paged state
int model_n_states(const model *m);
bool model_state_is_paged(const model *m, int i);
int model_state_layer(const model *m, int i);                          // the layer that it belongs to
// for this number of positions, or (not paged) for a slot
uint64_t model_state_bytes(const model *m, int i, int64_t positions);
// Whether some state only keeps what came last instead of all positions. Then a run at `pos` must follow one that ended
// there, or begin where model_back allows; 0 begins anew.
bool model_is_recurrent(const model *m);
// For such a model: the first position at which a run may begin again after runs up to `at` without going back (first:
// where those began). Later rows are overwritten.
enum { MODEL_BACK = 7 /* positions at most */ };
int model_back(const model *m, int first, int at);
bool model_has_entries(const model *m);      // some state has one row for several positions, rewritten at each of them
// Runs end at multiples of this many positions, or before; 0: anywhere
int model_block(const model *m);
// The number of tokens at which each expert of a layer is chosen `each` times on average; 0: no experts
int64_t model_tokens_by_expert(const model *m, int64_t each);

enum model_logits {
  LOGITS_NONE,               // only the states are written
  LOGITS_LAST,               // of the last position, in BUF_LOGITS (F32, n_vocab)
  LOGITS_ALL,                // of every position, in BUF_ROWS (F32, chunk x n_vocab)
  // none; instead the head's input at every position, in BUF_HIDDEN (F32, chunk x model_n_embd)
  LOGITS_HIDDEN
};
typedef struct model_shape {
  int64_t page;              // positions per page
  int64_t tile;              // tokens of one expert that a chunk's products take at once (a chunk of 1: none)
  int64_t pages;             // capacity of each paged state; slots: of the others
  int64_t slots;
  // the most positions of a sequence (a multiple of page). BUF_PAGES (I32) has ctx / page + 1 pages of a sequence for
  // each group, group after group
  int64_t ctx;
  // true: each token belongs to a sequence of its own, at a position of its own (BUF_AT, I32), with pages of its own.
  // BUF_PAGES then has a row for each token, in which the pages of a group with a window begin with model_first_page,
  // and variable "pages" is the number of pages that are read per group. Only for models without fixed states.
  // false: all tokens belong to one sequence, at positions pos.. (variable "pos"), with its fixed states in the slot
  // that BUF_SLOT (I32, 1) says
  bool apart;
  int rows;    // with apart, only the first tokens have logits: variable "rows", at most this many; 0: all have
  // the most positions that will be used: some files have other rope frequencies for long contexts
  int64_t n_ctx;
  int64_t chunk;             // 1: one token per run, const; more: variable "n" in 1..chunk
  enum model_logits logits;  // which are stored
  // store, for every matrix, the sums of squares of its inputs over these tokens in BUF_SUMS + 2 t (F32, ne0). For
  // matrices of experts there is one row per expert (F32, ne2 x ne0), and the next buffer (F32, ne2) has the number of
  // tokens that chose it
  bool sums;
  bool exact;                // only values in caches are rounded
  bool floats; // a token with a negative id is a row of floats (BUF_FLOATS, F32, chunk x model_n_floats)
  // for one sequence: each token sees all tokens up to a place within this run that may be after its own (BUF_LAST,
  // I32, chunk)
  bool both;
  // products include the adapters' outputs, times the scales of each token (BUF_SCALES, F32, chunk x model_n_adapters)
  bool adapted;
  // Only the block that predicts the token after the next one, or the draft file's layers. For one token, chunk 1, from
  // what earlier graphs stored at the position before `pos`; or for a draft's block. The
  // first stores its own output at `pos`, as its input at the next position
  bool mtp;
  // Only layers from .. to - 1 (to 0: to the last one), so that several graphs make up a model: the first embeds the
  // tokens, the last one has the logits. The stream between them is in BUF_STREAM. See model_can_cut.
  struct { int from, to; } layers;
} model_shape;
// The first page that a token at a position reads, in a group with this window (0: none), and the most pages that it
// reads.
static inline int64_t model_first_page(int64_t window, int64_t page, int64_t at) {
  return window ? max_i64(at - (window - 1), 0) / page : 0;
}
static inline int64_t model_window_pages(int64_t window, int64_t page) { return (window + page - 2) / page + 1; }
// A SINK of the effects: n tokens from BUF_IDS run through the model or through the layers of the shape.
uop *model_graph(const model *m, graph *g, const model_shape *s);
#endif
