// hf_impl: private declarations of the hf_*.c files.
#ifndef WEFT_HF_IMPL_H
#define WEFT_HF_IMPL_H
#include <jansson.h>
#include "base/map.h"
#include "base/mapped.h"
#include "model/hf.h"

enum { HF_LAYERS_MOST = 1 << 12 };
enum { HF_DIMS = 8 };                // axes of a stored tensor; tensors in use have four at most

typedef struct hf_file {
  const char *name, *shown;          // name in the folder; path for messages
  int fd;
  mapped *mapping;
  const unsigned char *map;
  uint64_t size, data;               // bytes; offset of the tensors
  stamp stamp;
} hf_file;

typedef struct hf_packed hf_packed;  // hf_packed.c
// A tensor of the folder.
typedef struct hf_source hf_source;
struct hf_rule;
struct hf_source {
  const char *name, *dtype;          // "BF16"
  const struct format *format;       // NULL: an unsupported type
  size_t file;
  uint32_t n_dims;
  int64_t shape[HF_DIMS];            // the last axis is contiguous
  const unsigned char *data;
  uint64_t begin, end;               // in the file's data
  const hf_source *scale;            // of blocks (hf_fp8.c, hf_blocks.c); NULL: no scales
  int64_t block[2];                  // with scales: rows and columns of a block
  int64_t ranks;                     // parts whose rows have blocks of their own, one after the other; 0: no parts
  const struct format *blocks;       // of 4-bit blocks: the format with equal numbers (hf_blocks.c)
  float factor, input;               // of 4-bit blocks: factors of all weights, and of their inputs
  const hf_packed *packed;           // its rows are computed from codes (hf_packed_row); NULL: they are in data
  const struct format *scaled_by;    // the format of the codes' scales
  bool taken;                        // it belongs to another tensor
};

// Maps each row of the file's tensor (or element of a row) to one of the folder's: hf_order.c.
enum { HF_SLICES = 7 };
typedef struct hf_slice { int64_t first, n[3], apart[3]; } hf_slice;
typedef struct hf_order hf_order;
struct hf_order {
  size_t n;
  hf_slice at[HF_SLICES];
  const hf_order *of;                // slices are of the rows in this order; NULL: of the folder's
};

// Factors of a tensor's rows, multiplied one after the other: the first ones are of rows before `end`.
typedef struct hf_times { int64_t end; float by[2]; } hf_times;

// A tensor of the file: see hf_rows.
typedef struct hf_made {
  hf_tensor t;
  const hf_source **parts;           // concatenated along the outermost axis; NULL: values
  const float *values;
  size_t n_parts;
  int64_t rows;                      // of a part
  int64_t first, step;               // row r is row first + r * step of the part's matrix
  int64_t ahead;                     // rows of zeros before the others
  int64_t padded;                    // rows from this one on are zeros; 0: none
  int64_t stored;                    // elements of a stored row, if not all are taken; 0: step times those taken
  bool turned;                       // each matrix is transposed
  hf_order order, columns;           // of a part's rows, and of each row's elements
  float plus;
  bool minus_exp, exp;               // v becomes -exp(v), or exp(v)
  bool unit;                         // each row is divided by its length
  const float *by_columns;           // elements of a row are divided by these; NULL: they are not
  bool wide;                         // computed in floats, not in the stored precision
  const struct hf_times *times;      // factors of rows; NULL: none
} hf_made;

// A key with a number of each layer: HF_KEY. n: how many are there.
typedef struct hf_numbers { const char *key; float *of_layer; uint32_t n; } hf_numbers;

// A file that was opened, or was absent, at some time of reading.
typedef struct hf_seen { const char *name; bool absent; stamp stamp; } hf_seen;
typedef VEC(hf_seen) hf_seen_list;

typedef struct hf_layers { uint32_t n; uint8_t *of; } hf_layers;      // of[i]: the kind of layer i

struct hf {
  arena *arena;
  const char *dir, *shown;           // shown: for messages, the end of a very long path
  json_t *config, *text;             // config.json; its part for the language model
  VEC(hf_file) files;
  hf_seen_list *seen;                // all files, until the folder is read
  VEC(hf_source) sources;
  smap by_name;
  VEC(hf_made) made;
  smap made_by_name;                 // index in made, plus 1
  VEC(hf_numbers) numbers;
  size_t n_stacked;                  // places for experts in those
  gguf_head *head;
  str names;                         // see hf_key_names
  const struct hf_class *class;
  hf_layers kinds;                   // set by `prepare` if rules differ between layers
  uint32_t n_layers, n_further;      // layers, and MTP blocks if the class may have them
  bool f32_head;                     // output.weight is F32
  bool rotation_read;                // keys hold what config.json says of scaled positions
  uint32_t file_type;
  const struct format *wish;         // format of matrices
  uint64_t n_vocab;                  // tokens in the file
  uint64_t n_ranks;                  // tokens of tiktoken's file (hf_ranks.c); special ones come after them
  bool pieces;                       // the vocabulary is SentencePiece's
  // how weights with scales are stored
  enum hf_method { HF_FLOATS, HF_FP8, HF_MXFP4, HF_MODELOPT, HF_COMPRESSED } method;
  const struct format *blocks;       // of weights whose blocks stay unchanged (hf_blocks.c); NULL: none
  // hf_packed.c: config.json's settings for codes; kind 0: no codes
  struct { int kind; uint32_t bits, group, plus; const json_t *own; } packing;
};

// ---- hf_files.c
// "DIR/name" for messages.
const char *hf_path(const hf *h, const char *name);
int hf_fail(const hf *h, const char *file, const char *key, error *err, const char *fmt, ...) PRINTF_LIKE(5, 6);
// Reads a JSON file, an object; *out NULL if an optional file does not exist.
int hf_json(const hf *h, const char *name, bool needed, json_t **out, error *err);
int hf_json_list(const hf *h, const char *name, json_t **out, error *err);   // a list; empty without the file
int hf_text(const hf *h, const char *name, char **out, size_t *n, error *err);     // *out NULL: no such file
int hf_open_weights(hf *h, error *err);
bool hf_ends_in(const char *name, const char *end);
// -1: a program fetches the folder, or did not end that: it may have files of two versions.
int hf_check_whole(const hf *h, error *err);
// -1: a file that was read, or was absent, is another one now. Other programs write folders file by file.
int hf_check_unchanged(const hf *h, error *err);
void hf_close_files(hf *h);

// ---- hf_types.c
// The types of the values in config.json and tokenizer_config.json that are not numbers.
int hf_check_config(const hf *h, const json_t *config, error *err);
int hf_check_settings(const hf *h, const char *file, const json_t *settings, error *err);

// ---- hf_fp8.c
int hf_read_scaling(hf *h, error *err);                    // hf.method; after hf_read_packing
// Finds the scales of 8-bit and 4-bit matrices, if config.json announces some.
int hf_bind_scales(hf *h, error *err);
void hf_scaled(const hf_source *s, int64_t row, int64_t first, int64_t n, float *out);   // n floats of a row
bool hf_is_e8m0(const hf_source *s);                       // whether its numbers are powers of two
// Decodes F8_E4M3: four exponent bits, three mantissa bits, no infinity, two NaN codes.
float hf_e4m3(unsigned char code);
float hf_e8m0(unsigned char code);                         // a power of two, or NaN

// ---- hf_blocks.c
int hf_read_modelopt(hf *h, error *err);
int hf_bind_blocks(hf *h, error *err);
// Sets the scales of a matrix. -1: it has some already, or one of the two has another role, in which its bytes are read
// in another format.
int hf_take_scale(const hf *h, hf_source *s, hf_source *scale, error *err);
// Returns whether an order of a row's elements keeps groups with a common scale together.
bool hf_keeps_groups(const struct format *blocks, const hf_order *columns);
void hf_block_row(const hf_source *s, int64_t row, const hf_order *order, unsigned char *out);     // order: of elements
float hf_block_value(const hf_source *s, int64_t row, int64_t column);

// ---- hf_packed.c
int hf_read_packing(hf *h, error *err);
int hf_unpack(hf *h, error *err);                          // after hf_open_weights
void hf_packed_row(const hf_packed *p, int64_t r, float *out);

// ---- hf_order.c
// The words of a rule for the layer of a tensor: "A|B" is A or B.
const char *hf_words_of_layer(const hf *h, const char *words, const char *name);
int64_t hf_ordered(const hf_order *o, int64_t i);
int hf_set_order(hf *h, hf_made *m, const hf_source *s, const struct hf_rule *r, error *err);
int hf_zero_first(hf *h, hf_made *m, const hf_source *s, const struct hf_rule *r, error *err);
int hf_split(hf *h, hf_made *m, const hf_source *s, const struct hf_rule *r, error *err);

// ---- hf_classes.c
enum hf_op {
  HF_SAME,
  HF_SKIP,
  HF_WEAVE,        // interleaves the two halves of each head's rows
  HF_PLUS_ONE,     // 1 is added to each number
  HF_STACK,        // expert #'s matrix, in a stack of all; with HF_SQUEEZED: vector #, on the fourth axis
  HF_ONCE,         // the first tensor that becomes it; later ones are skipped
  HF_TURNED,       // each matrix is transposed
  HF_TURNED_EVEN,  // transposed, then every second row from the first on
  HF_TURNED_ODD,   // transposed, then every second row from the second on
  HF_TURNED_FIRST, // transposed, then the first half of the rows
  HF_TURNED_REST,  // transposed, then the second half
  HF_ROWS_EVEN,    // every second row of each matrix, from the first on
  HF_ROWS_ODD,
  HF_EVEN,         // every second element of each row
  HF_ODD,
  // the first rows of each head, a matrix for each; without heads the first half of each matrix
  HF_FIRST,
  HF_REST,         // the rows after those
  HF_FIRST_TURNED, // HF_FIRST, transposed
  // heads sorted by group: the first head of each group, then the second of each, ...; rows before the heads stay
  HF_TILE,
  HF_TILE_IN_ROWS, // HF_TILE of each row's elements
  HF_COLLECT,      // rows in groups of several parts: one part of all groups, then the next, without the last part
  HF_COLLECT_LAST, // the last part
  HF_UNGROUP,      // rows in groups of heads of several parts: one part of all groups, then the next
  HF_FROM_ROW,     // the rows from a number on
  // rows in parts (hf_source.ranks) that each have some of several groups of rows: a group of all, then the next
  HF_RANKS,
  HF_PART,         // one of several equal parts of the rows
  HF_HEADS_OF,     // rows in groups of heads of several parts: one part of all groups
  HF_WEAVE_HALF,   // interleaves the two halves of the first half of each head's rows, which alone rotates
  HF_WEAVE_IN_ROWS, // interleaves the two halves of each row
  HF_FULL,         // a vector of a head's size with one number
  HF_MATRICES,     // a number of matrices, one after the other, become a stack
  HF_MATRICES_TURNED, // HF_MATRICES, each transposed
  HF_KERNELS,      // a kernel of a convolution for each channel: four axes, with one element before and after channels
  HF_IN_ROWS,      // numbers become a matrix
  HF_FLAT,         // a matrix becomes numbers
  HF_FOURTH,       // the rows of a matrix become places on the fourth axis
  HF_PADDED,       // rows of zeros after the stored ones
  HF_TIMES,        // each row is multiplied by two factors
  HF_WEAVE_QK,     // HF_WEAVE of queries and keys, in a matrix that has values as well
  HF_ZERO_FIRST,   // matrices, which get one of zeros before them; those of HF_WEAVE if the rule has heads
  HF_UNIT_ROWS,    // each row is divided by its length
  HF_UNIT_COLUMNS, // each column is divided by its length
  HF_JOIN,         // part # of a matrix that is cut by rows
  HF_PRODUCT,      // a vector, times the one whose name has "_norm" in the place of "_proj"
  HF_KEY_INTEGERS, // integers of 64 bits become a key
  HF_INTEGERS,     // integers of 64 bits become those of 32
  HF_KEY,          // a number of each layer: `to` is the name of the key that has all of them
  HF_OP_MASK = 255,
  // flags:
  HF_MINUS_EXP = 256,                // v becomes -exp(v)
  HF_SQUEEZED = 512,                 // without axes of one element
  HF_EXP = 2048,                     // v becomes exp(v)
  HF_WIDE = 1024,                    // computed in floats, not in the stored precision
  HF_WOVEN_HALVES = 4096,            // HF_HEADS_OF: then interleaves the two halves of each head's rows
};
// A name in the folder, without .weight or .bias unless this name or `to` has it. * stands for a number that `to`
// repeats, and # for an expert's number. A name in two consecutive rules becomes two tensors.
typedef struct hf_rule {
  const char *from, *to;
  unsigned op;                       // enum hf_op
  // HF_WEAVE, HF_WEAVE_HALF: the key with the number of heads, or "/KEY": with the rows of each. HF_TILE: keys
  // separated by spaces: groups, heads, rows of a head (or one). HF_COLLECT: products of keys ("a*b"), the rows of each
  // part; the first key is the number of groups. HF_RANKS: products of keys, the rows of each group. HF_UNGROUP:
  // groups, then the heads of each part. HF_HEADS_OF: these after the part's number, from 0 on. HF_FIRST: heads, and
  // the number of first rows of each. HF_STACK: the number of matrices or vectors, if it is not that of experts.
  // HF_PADDED: the number of rows. HF_IN_ROWS: the number of rows; NULL: a row for each number. HF_MATRICES: the number
  // of matrices. HF_JOIN: the number of parts. HF_FROM_ROW: the number; absent: 0. HF_PART: "I/N", part I of N, from 0
  // on. HF_FULL: the number; NULL: 1. HF_TIMES: a list [[end, factor, factor], ...], each for the rows before `end`.
  // "A|B": A for layers of kind 0 (hf.kinds), B for others. ".*": the layer's number comes after the dot.
  const char *heads;
} hf_rule;
enum hf_kind { HF_U32, HF_F32_KEY, HF_BOOL, HF_LAYERS };   // HF_LAYERS: HF_U32 plus hf.n_further
typedef struct hf_key {
  const char *to;                    // after the architecture's name
  enum hf_kind kind;
  const char *from;                  // keys of config.json: the first one present counts
} hf_key;
enum hf_vocab {
  HF_VOCAB_BPE,
  HF_VOCAB_GLM,
  HF_VOCAB_GLM_MOE,
  HF_VOCAB_DOTS3,
  HF_VOCAB_CHATGLM,
  HF_VOCAB_SOLAR,
  HF_VOCAB_INTERNLM2,
  HF_VOCAB_INTERNLM3,
  HF_VOCAB_LLAMA,
  HF_VOCAB_GEMMA,
  HF_VOCAB_GEMMA4,
  HF_VOCAB_PHI3,
  HF_VOCAB_LLADA,
  HF_VOCAB_PHI2,
  HF_VOCAB_NEMOTRON,
  HF_VOCAB_ARCTIC,
  HF_VOCAB_HUNYUAN,
  HF_VOCAB_HUNYUAN_MOE,
  HF_VOCAB_QWEN,
  HF_VOCAB_KIMI,
  HF_VOCAB_KIMI_K3,
  HF_VOCAB_LAGUNA,
  HF_VOCAB_MUSE,
  HF_VOCAB_MODERNBERT,
  HF_VOCAB_EUROBERT,
  HF_VOCAB_XLMR,
  HF_VOCAB_UNIGRAM,
  HF_VOCAB_WORDPIECE,
  HF_VOCAB_RWKV
};
// Queries and keys of Llama's classes.
#define HF_WOVEN \
  {"model.layers.*.self_attn.q_proj", "blk.*.attn_q", HF_WEAVE, "num_attention_heads"}, \
    {"model.layers.*.self_attn.k_proj", "blk.*.attn_k", HF_WEAVE, "num_key_value_heads"}
// Experts' matrices, each a tensor of its own, and the router.
#define HF_EXPERTS(in) \
  {in ".gate", "blk.*.ffn_gate_inp", 0, 0}, {in ".experts.#.gate_proj", "blk.*.ffn_gate_exps", HF_STACK, 0}, \
    {in ".experts.#.down_proj", "blk.*.ffn_down_exps", HF_STACK, 0}, \
    {in ".experts.#.up_proj", "blk.*.ffn_up_exps", HF_STACK, 0}
// Experts with Mixtral's names.
#define HF_EXPERTS_W(in) \
  {in ".gate", "blk.*.ffn_gate_inp", 0, 0}, {in ".experts.#.w1", "blk.*.ffn_gate_exps", HF_STACK, 0}, \
    {in ".experts.#.w2", "blk.*.ffn_down_exps", HF_STACK, 0}, {in ".experts.#.w3", "blk.*.ffn_up_exps", HF_STACK, 0}
// Experts that each token has.
#define HF_SHARED_EXPERT(in) \
  {in ".gate_proj", "blk.*.ffn_gate_shexp", 0, 0}, {in ".down_proj", "blk.*.ffn_down_shexp", 0, 0}, \
    {in ".up_proj", "blk.*.ffn_up_shexp", 0, 0}
// Keys that all Granite models have.
#define HF_GRANITE_KEYS \
  {"vocab_size", HF_U32, "vocab_size"}, {"attention.scale", HF_F32_KEY, "attention_multiplier"}, \
    {"embedding_scale", HF_F32_KEY, "embedding_multiplier"}, {"residual_scale", HF_F32_KEY, "residual_multiplier"}, \
    {"logit_scale", HF_F32_KEY, "logits_scaling"}
// DeepSeek's attention (MLA): small vectors of tokens.
#define HF_SMALL_VECTORS(in) \
  {in ".q_a_proj", "blk.*.attn_q_a", 0, 0}, {in ".q_a_layernorm", "blk.*.attn_q_a_norm", 0, 0}, \
    {in ".q_b_proj", "blk.*.attn_q_b", 0, 0}, {in ".kv_a_proj_with_mqa", "blk.*.attn_kv_a_mqa", 0, 0}, \
    {in ".kv_a_layernorm", "blk.*.attn_kv_a_norm", 0, 0}
// The matrix that makes keys and values of a small vector becomes two, and that of keys is transposed.
#define HF_LATENT(in) \
  HF_SMALL_VECTORS(in), {in ".kv_b_proj", "blk.*.attn_k_b", HF_FIRST_TURNED, "num_attention_heads qk_nope_head_dim"}, \
    {in ".kv_b_proj", "blk.*.attn_v_b", HF_REST, "num_attention_heads qk_nope_head_dim"}
// The indexer, which chooses the positions that a token reads.
#define HF_INDEXER(in) \
  {in "k_norm", "blk.*.indexer.k_norm", 0, 0}, {in "weights_proj", "blk.*.indexer.proj", 0, 0}, \
    {in "wk", "blk.*.indexer.attn_k", 0, 0}, {in "wq_b", "blk.*.indexer.attn_q_b", 0, 0}
// MTP blocks, which come after the last layer.
#define HF_NEXTN \
  {"model.layers.*.eh_proj", "blk.*.nextn.eh_proj", 0, 0}, \
    {"model.layers.*.embed_tokens", "blk.*.nextn.embed_tokens", 0, 0}, \
    {"model.layers.*.enorm", "blk.*.nextn.enorm", 0, 0}, {"model.layers.*.hnorm", "blk.*.nextn.hnorm", 0, 0}, \
    {"model.layers.*.shared_head.head", "blk.*.nextn.shared_head_head", 0, 0}, \
    {"model.layers.*.shared_head.norm", "blk.*.nextn.shared_head_norm", 0, 0}
typedef struct hf_class {
  const char *name, *arch;
  const char *like;                  // a class whose fields this one has, but for those that are set here
  const char *defaults;              // JSON: defaults if config.json lacks the values
  const char *needs;                 // keys that config.json must have: files without theirs mean another value
  const char *derived;               // other values that config.json may lack: hf_derived.c
  int (*prepare)(hf *h, error *err); // sets values of h->text that depend on several others; may be NULL
  // A tensor's name as rules have it; may be NULL.
  const char *(*rename)(const hf *h, const char *name);
  const char *under;                 // what names of tensors may begin with; rules are without it
  const hf_key *keys;                // in addition to the common ones
  const hf_rule *rules;              // tried before the common ones
  int (*more)(hf *h, error *err);    // does the rest; may be NULL
  // "key=value|value ...": values that config.json must have, if present, since files have no key for them
  const char *musts;
  // tensors whose names have this part are F32 in every file; "": none are but vectors
  const char *f32;
  bool ranked_qkv;                   // see hf_source.ranks
  bool as_stored;                    // matrices of F32 and BF16 keep their type in every file
  enum hf_vocab vocab;
  bool bare;                         // names of tensors may lack "model."
  double rotated;                    // the usual share of a head that is rotated; 0: files have no key for it
  bool head_dim;                     // the class computes head_dim from other sizes
  bool own_scaling;                  // `more` sets the scaling for long contexts, and hf.rotation_read
  bool own_log_weight;               // `more` sets YaRN's weight of the logarithm
  bool seeing;                       // the model has an encoder of pictures, which is skipped
  bool alone;                        // does not use the common rules, vocabulary and head keys: an encoder
  bool further;                      // may have MTP blocks (mtp.*)
  // MTP blocks are skipped: layers after the last one, model.mtp_*
  bool no_mtp;
} hf_class;
// Each table ends with a row without a name.
extern const hf_class hf_classes_qwen[], hf_classes_moe[], hf_classes_gemma[], hf_classes_masked[], hf_classes_t5[],
  hf_classes_more[], hf_classes_norms[], hf_classes_recurrent[], hf_classes_delta[], hf_classes_encoders[],
  hf_classes_windows[], hf_classes_mixtures[], hf_classes_coded[], hf_classes_rwkv[], hf_classes_earlier[];

int hf_find_class(hf *h, error *err);
int hf_put_keys(hf *h, error *err);
// Finds the rule for a tensor, its name in the file, and its expert. after: a rule found for it before; the next rule
// is returned if it applies too, otherwise NULL without an error.
const hf_rule *hf_rule_for(const hf *h, const char *name, const hf_rule *after, const char **to, uint32_t *expert,
                           error *err);

// Values of config.json: the first of the names (separated by spaces) that is present; null counts as absent. *found
// false: none is.
int hf_u32(const hf *h, const char *names, uint32_t *out, bool *found, error *err);
int hf_f64(const hf *h, const char *names, double *out, bool *found, error *err);
int hf_number_in(const hf *h, const json_t *in, const char *key, double *out, bool *found, error *err);
bool hf_is_float(const json_t *v);                         // whether it is a finite number of 32 bits
int hf_need_u32(const hf *h, const char *names, uint32_t *out, error *err);
int hf_need_i32(const hf *h, const char *names, int32_t *out, error *err);
int hf_need_keys(const hf *h, const char *names, error *err);                // all of them have to be present
// Sets a key to a number computed of several values of config.json; `of` names one of them for errors.
int hf_put_computed(hf *h, const char *key, uint64_t value, const char *of, error *err);
json_t *hf_value(const hf *h, const char *names, const char **name);
json_t *hf_in(const json_t *group, const char *key);       // NULL: absent or null
const char *hf_arch_key(const hf *h, const char *key);     // "qwen3.block_count"; lives as long as h
int hf_put_class_keys(hf *h, const hf_key *k, error *err);
// hf_derived.c: sets values of h->text that a class's row lists.
int hf_derive(hf *h, const char *list, error *err);
// Sets which layers have a sliding window: by layer_types, or, if absent, all but each `every`-th one.
int hf_put_windows(hf *h, uint32_t every, error *err);
// Checks that without a list of layers a pattern of config.json, if there is one, gives a window to all but each
// `every`-th layer.
int hf_check_pattern(const hf *h, uint32_t every, error *err);
int hf_put_pooling(hf *h, error *err);                     // pooling_type, from modules.json
int hf_check_equal(const hf *h, const char *key, const char *must, error *err);      // two whole numbers that are there
// Checks that config.json, if it says so, gives full attention to every `every`-th layer from layer `first` on, and a
// window to the others.
int hf_check_layers(hf *h, uint32_t every, uint32_t first, error *err);
// Reads the list of config.json that has a kind for each layer (hf_layers). kinds: names separated by spaces, "a|b" for
// two names of one kind. out->of[i]: the number of layer i's kind; NULL: there is no list, which is an error if it is
// needed.
int hf_read_layers(const hf *h, const char *key, const char *kinds, bool needed, hf_layers *out, error *err);
// If config.json has a list of 0 and 1 under `from`, sets the list `to` of the kinds' names: "NAME_OF_0 NAME_OF_1".
int hf_name_layers(hf *h, const char *from, const char *to, const char *kinds, error *err);
// Sets first_k_dense_replace by mlp_layer_types, if that is there: the first layers have a dense part, the others
// experts.
int hf_read_dense_layers(hf *h, error *err);
// Sets the key heads of each layer: none for layers that do not attend.
int hf_put_heads_of_layers(hf *h, const hf_layers *y, uint8_t attends, error *err);
// Limits of each layer's gates, of a list of the configuration with no fewer layers; null, and layers that the
// list does not have: 0, no limit.
int hf_put_limits(hf *h, const char *from, const char *to, uint32_t least, error *err);
// MTP layers, which come after the last one, count as blocks of the file: as many as config.json says and the folder
// has (hf.n_further).
int hf_put_nextn(hf *h, error *err);
// Which layers have an indexer; the others use the positions that the last one before chose.
int hf_put_indexer_types(hf *h, error *err);
// Checks that each `every`-th layer has no positions and the others have, if config.json lists them (with 1).
int hf_check_positions(hf *h, uint32_t every, error *err);
int hf_all_attend(hf *h, error *err);                      // the kinds that Granite's folders name, if they do
int hf_all_full(hf *h, error *err);                        // that all layers have full attention
hf_made *hf_add_values(hf *h, const char *name, const float *values, int64_t n);

// ---- hf_rotation.c
const json_t *hf_rope(const hf *h);  // the rope group of config.json; NULL: absent
const char *hf_rope_type(const hf *h);                     // its type; NULL: absent
// A number of the rope group, or, if absent, the key `beside` (may be NULL) of config.json itself.
int hf_rope_number(const hf *h, const char *key, const char *beside, double *out, bool *found, error *err);
int hf_head_size(const hf *h, uint32_t *out, error *err);  // the elements of a head
int hf_put_rope(hf *h, error *err);  // the scaling for long contexts, and the bases of frequencies
int hf_put_rope_dims(hf *h, double share, error *err);     // rope.dimension_count
// rope.dimension_count by config.json's share of a head that is rotated; usual: if it has none.
int hf_put_rotated(hf *h, double usual, error *err);
// Whether numbers of llama3's rule are such: factor, low_freq_factor, high_freq_factor, and the original context.
bool hf_are_llama3(double factor, double low, double high, double old);
int hf_put_llama3(hf *h, error *err);                      // factors of frequencies, if the scaling is llama3's
// Factors of frequencies, if the scaling is longrope's. What else it means gets keys only if the contexts differ.
int hf_put_longrope(hf *h, uint32_t dims, error *err);
// Checks, after all keys are made, that what config.json says of scaled positions is among them.
int hf_check_rotation(const hf *h, error *err);
// `more` functions of several rows.
int hf_llama_more(hf *h, error *err);                      // all of a head is rotated; llama3's factors
int hf_phi3_more(hf *h, error *err);                       // factors of frequencies for long contexts
int hf_glm4_more(hf *h, error *err);                       // sets the rotated share of a head

// ---- hf_ranks.c
// Sets the tokens, merges and kind of a vocabulary in tiktoken's format. *found: whether the folder has one.
int hf_put_ranks(hf *h, const json_t *settings, bool *found, error *err);
void hf_put_rank_roles(hf *h, const json_t *settings);     // special tokens, after those that config.json names

// ---- hf_spm.c, hf_vocab.c, hf_words.c
// Reads tokenizer.model (or spiece.model), a SentencePiece vocabulary. *out NULL: no such file.
typedef struct hf_pieces {
  const char **text;
  float *score;
  int32_t *kind;                     // GGUF's token types
  size_t n;
  // the normalizer
  const unsigned char *table;        // charsmap that replaces characters; NULL: none
  size_t n_table;
  bool space_before, joins_spaces;
  bool complete;                     // with all tokens at their places: nothing is moved or added
} hf_pieces;
int hf_read_pieces(hf *h, hf_pieces **out, error *err);
// Reads the vocabulary of tokenizer.json. *out NULL: its model is another one than Unigram.
int hf_read_unigram(hf *h, const json_t *tokenizer, hf_pieces **out, error *err);
// Decodes n characters; `to` has room for as many bytes. Returns the number of bytes; 0: it is not base64.
size_t hf_base64(const char *from, size_t n, unsigned char *to);
int hf_put_vocab(hf *h, error *err);
int hf_put_world(hf *h, error *err);                       // hf_world.c: RWKV's tokens; after hf.n_vocab is set
// Finds tokenizer.ggml.pre for the splitting that tokenizer.json describes.
int hf_words(const hf *h, const json_t *tokenizer, const char **pre, error *err);
#endif
