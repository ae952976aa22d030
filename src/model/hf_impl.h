// hf_impl: what the hf_*.c files share and nobody else includes.
#ifndef WEFT_HF_IMPL_H
#define WEFT_HF_IMPL_H
#include <jansson.h>
#include "base/map.h"
#include "base/mapped.h"
#include "model/hf.h"

enum { HF_LAYERS_MOST = 1 << 12 };
enum { HF_DIMS = 8 };                // axes that a stored tensor may have; one that is used has four at most

typedef struct hf_file {
  const char *name, *shown;          // in the folder; its path, for messages
  int fd;
  mapped *mapping;
  const unsigned char *map;
  uint64_t size, data;               // bytes; where tensors begin
  stamp stamp;
} hf_file;

typedef struct hf_packed hf_packed;  // hf_packed.c
// A tensor of the folder.
typedef struct hf_source hf_source;
struct hf_rule;
struct hf_source {
  const char *name, *dtype;          // "BF16"
  const struct format *format;       // NULL: one that is not read
  size_t file;
  uint32_t n_dims;
  int64_t shape[HF_DIMS];            // the last axis is contiguous
  const unsigned char *data;
  uint64_t begin, end;               // in the file's data
  const hf_source *scale;            // of blocks (hf_fp8.c, hf_blocks.c); NULL: there is none
  int64_t block[2];                  // then: rows and columns of one
  const struct format *blocks;       // of 4 bits: the format that has the same numbers (hf_blocks.c)
  float factor, input;               // then: of all weights, and of what they are multiplied with
  const hf_packed *packed;           // its rows are made of codes (hf_packed_row); NULL: they are in data
  const struct format *scaled_by;    // of these codes
  bool taken;                        // it belongs to another tensor
};

// Which row (or element of a row) of the folder's tensor each one of the file's is: hf_order.c.
enum { HF_SLICES = 7 };
typedef struct hf_slice { int64_t first, n[3], apart[3]; } hf_slice;
typedef struct hf_order { size_t n; hf_slice at[HF_SLICES]; } hf_order;

// A tensor of the file: see hf_rows.
typedef struct hf_made {
  hf_tensor t;
  const hf_source **parts;           // one behind another along the outermost axis; NULL: values
  const float *values;
  size_t n_parts;
  int64_t rows;                      // of a part
  int64_t first, step;               // row r is row first + r * step of the part's matrix
  bool turned;                       // of each matrix rows and columns change places
  hf_order order, columns;           // of a part's rows, and of each row's elements
  float plus;
  bool minus_exp;                    // v becomes -exp(v)
} hf_made;

struct hf {
  arena *arena;
  const char *dir, *shown;           // shown: the end of it, where it is very long
  json_t *config, *text;             // config.json; the part that says something of the language model
  VEC(hf_file) files;
  VEC(hf_source) sources;
  smap by_name;
  VEC(hf_made) made;
  smap made_by_name;                 // a number in that, from 1 on
  size_t n_stacked;                  // places of experts in those
  gguf_head *head;
  const struct hf_class *class;
  uint32_t n_layers, n_further;      // where the class may have blocks that predict further tokens: layers, and those
  uint32_t file_type;
  const struct format *wish;         // of matrices
  uint64_t n_vocab;                  // tokens that the file has
  bool pieces;                       // they are SentencePiece's
  // how weights with scales are named
  enum hf_method { HF_FLOATS, HF_FP8, HF_MXFP4, HF_MODELOPT, HF_COMPRESSED } method;
  const struct format *blocks;       // of weights that stay as they are (hf_blocks.c); NULL: there are none
  // hf_packed.c: what config.json says of codes; kind 0: there are none
  struct { int kind; uint32_t bits, group, plus; const json_t *own; } packing;
};

// ---- hf_files.c
// "DIR/name" as messages show it.
const char *hf_path(const hf *h, const char *name);
int hf_fail(const hf *h, const char *file, const char *key, error *err, const char *fmt, ...) PRINTF_LIKE(5, 6);
// A JSON file, an object; *out NULL where there is none and it need not be.
int hf_json(const hf *h, const char *name, bool needed, json_t **out, error *err);
int hf_json_list(const hf *h, const char *name, json_t **out, error *err);   // a list; empty where there is no file
int hf_text(const hf *h, const char *name, char **out, size_t *n, error *err);     // *out NULL: no such file
int hf_open_weights(hf *h, error *err);
bool hf_ends_in(const char *name, const char *end);
void hf_close_files(hf *h);

// ---- hf_types.c
// The types of the values in config.json and tokenizer_config.json that are not numbers.
int hf_check_config(const hf *h, const json_t *config, error *err);
int hf_check_settings(const hf *h, const char *file, const json_t *settings, error *err);

// ---- hf_fp8.c
int hf_read_scaling(hf *h, error *err);                    // hf.method; after hf_read_packing
// Finds the scales of matrices of 8 and 4 bits, if config.json says that there are some.
int hf_bind_scales(hf *h, error *err);
void hf_scaled(const hf_source *s, int64_t row, int64_t first, int64_t n, float *out);   // n floats of a row
// Four bits of exponent and three of mantissa; no infinity, and two codes that are no numbers.
float hf_e4m3(unsigned char code);

// ---- hf_blocks.c
int hf_read_modelopt(hf *h, error *err);
int hf_bind_blocks(hf *h, error *err);
// Whether an order of a row's elements leaves groups that share a scale together.
bool hf_keeps_groups(const hf_order *columns);
void hf_block_row(const hf_source *s, int64_t row, const hf_order *order, unsigned char *out);     // order: of elements
float hf_block_value(const hf_source *s, int64_t row, int64_t column);     // of NVFP4

// ---- hf_packed.c
int hf_read_packing(hf *h, error *err);
int hf_unpack(hf *h, error *err);                          // after hf_open_weights
void hf_packed_row(const hf_packed *p, int64_t r, float *out);

// ---- hf_order.c
int64_t hf_ordered(const hf_order *o, int64_t i);
int hf_set_order(hf *h, hf_made *m, const hf_source *s, const struct hf_rule *r, error *err);
int hf_split(hf *h, hf_made *m, const hf_source *s, const struct hf_rule *r, error *err);

// ---- hf_classes.c
enum hf_op {
  HF_SAME,
  HF_SKIP,
  HF_WEAVE,        // the halves of each head's rows, one of each in turn
  HF_PLUS_ONE,     // 1 is added to each number
  HF_STACK,        // of expert #: one behind another
  HF_ONCE,         // the first one that becomes it; others are left out
  HF_TURNED,       // of each matrix rows and columns change places
  HF_TURNED_EVEN,  // the same, and every second row of that, from the first on
  HF_TURNED_ODD,   // from the second on
  HF_ROWS_EVEN,    // every second row of each matrix, from the first on
  HF_ROWS_ODD,
  HF_EVEN,         // elements of each row
  HF_ODD,
  // of the rows of each head the first ones, a matrix for each; without heads the first half of each matrix
  HF_FIRST,
  HF_REST,         // those after them
  HF_FIRST_TURNED, // the first ones, and rows and columns change places
  // heads of groups: the first one of each group, then the second of each, ...; what stands before stays
  HF_TILE,
  HF_TILE_IN_ROWS, // HF_TILE of each row's elements
  HF_COLLECT,      // groups of rows of several parts: a part of all groups, then the next, without the last part
  HF_COLLECT_LAST, // the last part
  HF_OP_MASK = 255,
  // added to any op:
  HF_MINUS_EXP = 256,                // v becomes -exp(v)
  HF_SQUEEZED = 512,                 // without axes of one element
};
// A name of the folder, without .weight or .bias where `to` has none; * stands for a number, the same in `to`,
// and # for that of an expert.  A name may stand in two rules one behind the other: it becomes two tensors.
typedef struct hf_rule {
  const char *from, *to;
  unsigned op;                       // enum hf_op
  // HF_WEAVE: the key that says how many heads the rows belong to.  HF_TILE: keys with blanks between: groups, heads,
  // rows of a head (or one).  HF_COLLECT: products of keys ("a*b"), the rows of each part; the first key: groups.
  // HF_FIRST: heads, and how many rows of each the first ones are.
  const char *heads;
} hf_rule;
enum hf_kind { HF_U32, HF_F32_KEY, HF_BOOL, HF_LAYERS };   // HF_LAYERS: HF_U32, and hf.n_further is added
typedef struct hf_key {
  const char *to;                    // behind the architecture's name
  enum hf_kind kind;
  const char *from;                  // keys of config.json: the first one that is there counts
} hf_key;
enum hf_vocab {
  HF_VOCAB_BPE,
  HF_VOCAB_GLM,
  HF_VOCAB_GLM_MOE,
  HF_VOCAB_LLAMA,
  HF_VOCAB_GEMMA,
  HF_VOCAB_GEMMA4,
  HF_VOCAB_PHI3,
  HF_VOCAB_LLADA,
  HF_VOCAB_UNIGRAM,
  HF_VOCAB_WORDPIECE
};
// Queries and keys of Llama's classes.
#define HF_WOVEN \
  {"model.layers.*.self_attn.q_proj", "blk.*.attn_q", HF_WEAVE, "num_attention_heads"}, \
    {"model.layers.*.self_attn.k_proj", "blk.*.attn_k", HF_WEAVE, "num_key_value_heads"}
// Matrices of experts that are tensors of their own, and what chooses among them.
#define HF_EXPERTS(in) \
  {in ".gate", "blk.*.ffn_gate_inp", 0, 0}, {in ".experts.#.gate_proj", "blk.*.ffn_gate_exps", HF_STACK, 0}, \
    {in ".experts.#.down_proj", "blk.*.ffn_down_exps", HF_STACK, 0}, \
    {in ".experts.#.up_proj", "blk.*.ffn_up_exps", HF_STACK, 0}
// Keys that all Granite models have.
#define HF_GRANITE_KEYS \
  {"vocab_size", HF_U32, "vocab_size"}, {"attention.scale", HF_F32_KEY, "attention_multiplier"}, \
    {"embedding_scale", HF_F32_KEY, "embedding_multiplier"}, {"residual_scale", HF_F32_KEY, "residual_multiplier"}, \
    {"logit_scale", HF_F32_KEY, "logits_scaling"}
typedef struct hf_class {
  const char *name, *arch;
  const char *defaults;              // JSON: what the class takes where config.json says nothing
  const hf_key *keys;                // beside those that all have
  const hf_rule *rules;              // before those that all have
  int (*more)(hf *h, error *err);    // what no row says; may be NULL
  const char *musts;                 // "key=value ...": what files of the architecture are, where config.json says it
  enum hf_vocab vocab;
  bool head_dim;                     // the class makes head_dim of the other sizes
  bool own_scaling;                  // `more` says what there is to say of longer contexts
  bool seeing;                       // the language model stands beside an encoder of pictures, which is left out
  bool alone;                        // rules and vocabulary are those of an encoder, and heads of one kind
  bool further;                      // there may be blocks that predict further tokens (mtp.*)
  // what predicts further tokens is left out: layers after the last one, model.mtp_*
  bool no_mtp;
} hf_class;
// The last of each has no name.
extern const hf_class hf_classes_qwen[], hf_classes_moe[], hf_classes_gemma[], hf_classes_masked[], hf_classes_t5[],
  hf_classes_more[];

int hf_find_class(hf *h, error *err);
int hf_put_keys(hf *h, error *err);
// The rule for a tensor, what it becomes, and of which expert it is.  after: one that was found for it before, whose
// next rule may be for it, too; NULL and no error where it is not.
const hf_rule *hf_rule_for(const hf *h, const char *name, const hf_rule *after, const char **to, uint32_t *expert,
                           error *err);

// Values of config.json: the first of the names (with blanks between) that is there.  *found false: none, or null.
int hf_u32(const hf *h, const char *names, uint32_t *out, bool *found, error *err);
int hf_f64(const hf *h, const char *names, double *out, bool *found, error *err);
int hf_number_in(const hf *h, const json_t *in, const char *key, double *out, bool *found, error *err);
int hf_need_u32(const hf *h, const char *names, uint32_t *out, error *err);
json_t *hf_value(const hf *h, const char *names, const char **name);
const json_t *hf_rope(const hf *h);  // what config.json says of rotation; NULL: nothing
const char *hf_arch_key(const hf *h, const char *key);     // "qwen3.block_count"; lives as long as h
// A number of what config.json says of rotation; if it is missing, that of `beside` (or NULL) beside it.
int hf_rope_number(const hf *h, const char *key, const char *beside, double *out, bool *found, error *err);
int hf_put_rope_dims(hf *h, double share, error *err);     // rope.dimension_count
// What several rows point to.
int hf_llama_more(hf *h, error *err);
// Whether each `every`-th layer looks at everything and the others at a window, where config.json says it.
int hf_check_layers(hf *h, uint32_t every, error *err);
int hf_glm4_more(hf *h, error *err);                       // the share of a head that is turned
hf_made *hf_add_values(hf *h, const char *name, const float *values, int64_t n);

// ---- hf_spm.c, hf_vocab.c, hf_words.c
// tokenizer.model (or spiece.model): a vocabulary of SentencePiece.  *out NULL where there is none.
typedef struct hf_pieces {
  const char **text;
  float *score;
  int32_t *kind;                     // as GGUF files have them
  size_t n;
  // what happens to a text before it is cut
  const unsigned char *table;        // that changes characters; NULL: none
  size_t n_table;
  bool space_before, joins_spaces;
} hf_pieces;
int hf_read_pieces(hf *h, hf_pieces **out, error *err);
int hf_put_vocab(hf *h, error *err);
// tokenizer.ggml.pre of the splitting that tokenizer.json describes.
int hf_words(const hf *h, const json_t *tokenizer, const char **pre, error *err);
#endif
