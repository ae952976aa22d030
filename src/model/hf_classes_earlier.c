// Rows of the table of classes (hf_classes.c) for decoders of 2023 and 2024; most have Python code in their
// folders: DeepSeek 1, Ling 1, InternLM2, Baichuan, Orion, Qwen 1, Deci, OpenELM, Refact, CodeShell, PLaMo, Arctic and
// Chameleon. Several have queries, keys and values in one
// matrix, which becomes three.
#include <string.h>
#include "model/hf_impl.h"

#define BLOCK "model.layers.*."
static const char config_name[] = "config.json";

static void put_text_key(hf *h, const char *key, const char *text) {
  gguf_head_str(h->head, hf_arch_key(h, key), text, strlen(text));
}

// Sets a value under another name, unless that has one, and removes the first name.
static void move_value(hf *h, const char *from, const char *to) {
  json_t *v = hf_in(h->text, from);
  if (v && !hf_in(h->text, to)) json_object_set(h->text, to, v);
  json_object_del(h->text, from);
}

// One part of a matrix of queries, keys and values: queries of all heads, then keys, then values.
#define PARTS " 1 num_attention_heads num_key_value_heads num_key_value_heads"
#define WOVEN_PARTS(from) \
  {from, "blk.*.attn_q", HF_HEADS_OF | HF_WOVEN_HALVES, "0" PARTS}, \
    {from, "blk.*.attn_k", HF_HEADS_OF | HF_WOVEN_HALVES, "1" PARTS}, {from, "blk.*.attn_v", HF_HEADS_OF, "2" PARTS}

// ---- DeepSeek 1 and Ling 1 ------------------------------------------------------------------------------------------

static const hf_rule deepseek1_rules[] = {
  HF_WOVEN, HF_EXPERTS(BLOCK "mlp"), HF_SHARED_EXPERT(BLOCK "mlp.shared_experts"), {0}};
#define LING1 \
  {"model.word_embeddings", "token_embd", 0, 0}, WOVEN_PARTS(BLOCK "attention.query_key_value"), \
    {BLOCK "attention.dense", "blk.*.attn_output", 0, 0}, HF_EXPERTS(BLOCK "mlp"), \
    HF_SHARED_EXPERT(BLOCK "mlp.shared_experts")
static const hf_rule ling1_rules[] = {LING1, {0}};
static const hf_rule ling1_normed_rules[] = {LING1, {"lm_head", "output", HF_UNIT_COLUMNS | HF_WIDE, 0}, {0}};
#define MIXTURE_KEYS \
  {"vocab_size", HF_U32, "vocab_size"}, {"leading_dense_block_count", HF_U32, "first_k_dense_replace"}, \
    {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"}
static const hf_key deepseek1_keys[] = {MIXTURE_KEYS, {"expert_shared_count", HF_U32, "n_shared_experts"}, {0}};
static const hf_key ling1_keys[] = {
  MIXTURE_KEYS,
  {"expert_shared_count", HF_U32, "num_shared_experts"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {0},
};

// Gives the class of a folder other rules.
static void take_rules(hf *h, const hf_rule *rules) {
  hf_class *other = ARENA_NEW(h->arena, hf_class);
  *other = *h->class;
  other->rules = rules;
  h->class = other;
}

static int prepare_ling1(hf *h, error *err) {
  (void)err;
  if (json_is_true(hf_in(h->text, "norm_head"))) take_rules(h, ling1_normed_rules);
  return 0;
}

static int ling1_more(hf *h, error *err) {
  gguf_head_f32(h->head, hf_arch_key(h, "expert_weights_scale"), 1);
  return hf_put_rope_dims(h, 1, err);
}

static int deepseek1_more(hf *h, error *err) {
  put_text_key(h, "rope.scaling.type", "none");
  h->rotation_read = false;
  return ling1_more(h, err);
}

// ---- InternLM2 ------------------------------------------------------------------------------------------------------

// A group has its queries, then its key, then its value.
#define GROUPS " num_key_value_heads num_attention_heads num_key_value_heads num_key_value_heads"
static const hf_rule internlm2_rules[] = {
  {"model.tok_embeddings", "token_embd", 0, 0},
  {"output", "output", 0, 0},
  {BLOCK "attention_norm", "blk.*.attn_norm", 0, 0},
  {BLOCK "ffn_norm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "attention.wqkv", "blk.*.attn_q", HF_HEADS_OF | HF_WOVEN_HALVES, "0" GROUPS},
  {BLOCK "attention.wqkv", "blk.*.attn_k", HF_HEADS_OF | HF_WOVEN_HALVES, "1" GROUPS},
  {BLOCK "attention.wqkv", "blk.*.attn_v", HF_HEADS_OF, "2" GROUPS},
  {BLOCK "attention.wo", "blk.*.attn_output", 0, 0},
  {BLOCK "feed_forward.w1", "blk.*.ffn_gate", 0, 0},
  {BLOCK "feed_forward.w2", "blk.*.ffn_down", 0, 0},
  {BLOCK "feed_forward.w3", "blk.*.ffn_up", 0, 0},
  {0},
};

// Scaling that depends on the length begins beyond the context that the file has.
static int internlm2_more(hf *h, error *err) {
  const char *type = hf_rope_type(h);
  (void)err;
  if (type && !strcmp(type, "dynamic")) h->rotation_read = true;
  return 0;
}

// ---- Baichuan and Orion ---------------------------------------------------------------------------------------------

static const char layout[] = "Meta AI original pth";
static const hf_rule baichuan_rules[] = {WOVEN_PARTS(BLOCK "self_attn.W_pack"), {0}};
// Version 2 divides each row of the head by its length.
static const hf_rule baichuan2_rules[] = {
  WOVEN_PARTS(BLOCK "self_attn.W_pack"), {"lm_head", "output", HF_UNIT_ROWS | HF_WIDE, 0}, {0}};
static const hf_key orion_keys[] = {
  {"context_length", HF_U32, "max_sequence_length max_position_embeddings model_max_length"}, {0}};

static int baichuan_more(hf *h, error *err) {
  put_text_key(h, "tensor_data_layout", layout);
  return hf_put_rope_dims(h, 1, err);
}

// Only the size of its vocabulary tells version 2 from version 1.
static int prepare_baichuan(hf *h, error *err) {
  enum { OF_VERSION_2 = 125696 };
  uint32_t n;
  bool found;
  if (hf_u32(h, "vocab_size", &n, &found, err)) return -1;
  if (found && n == OF_VERSION_2) take_rules(h, baichuan2_rules);
  return 0;
}

// Folders call the epsilon that of RMS norms, but norms subtract the mean.
static int prepare_orion(hf *h, error *err) {
  (void)err;
  move_value(h, "rms_norm_eps", "layer_norm_eps");
  return 0;
}

static int orion_more(hf *h, error *err) {
  (void)err;
  put_text_key(h, "tensor_data_layout", layout);
  return 0;
}

// ---- Qwen 1 ---------------------------------------------------------------------------------------------------------

#define H_LAYER "h.*."
static const hf_rule qwen1_rules[] = {
  {"wte", "token_embd", 0, 0},
  {"ln_f", "output_norm", 0, 0},
  {H_LAYER "ln_1", "blk.*.attn_norm", 0, 0},
  {H_LAYER "ln_2", "blk.*.ffn_norm", 0, 0},
  {H_LAYER "attn.c_attn", "blk.*.attn_qkv", 0, 0},
  {H_LAYER "attn.c_proj", "blk.*.attn_output", 0, 0},
  {H_LAYER "mlp.w1", "blk.*.ffn_up", 0, 0},
  {H_LAYER "mlp.w2", "blk.*.ffn_gate", 0, 0},
  {H_LAYER "mlp.c_proj", "blk.*.ffn_down", 0, 0},
  {"rotary_emb.inv_freq", NULL, HF_SKIP, 0},
  {0},
};

// Folders call the epsilon of the norms, which are RMS norms, by another name. kv_channels is the size of a head.
static int prepare_qwen1(hf *h, error *err) {
  uint32_t size, width, heads;
  bool found;
  move_value(h, "layer_norm_epsilon", "rms_norm_eps");
  if (!hf_in(h->text, "rms_norm_eps")) json_object_set_new(h->text, "rms_norm_eps", json_real(1e-6));
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "num_attention_heads", &heads, err) ||
      hf_u32(h, "kv_channels", &size, &found, err))
    return -1;
  if (!found || (uint64_t)size * heads == width) return 0;
  return hf_fail(h, config_name, "kv_channels", err, "%u is not hidden_size divided by num_attention_heads", size);
}

// ---- Deci -----------------------------------------------------------------------------------------------------------

// Layers have numbers of heads and widths of their own: rows are woven by the size of a head.
static const hf_rule deci_rules[] = {
  {BLOCK "self_attn.q_proj", "blk.*.attn_q", HF_WEAVE, "/head_size"},
  {BLOCK "self_attn.k_proj", "blk.*.attn_k", HF_WEAVE, "/head_size"},
  {BLOCK "self_attn.linear_attn", "blk.*.attn_output", 0, 0},
  {0},
};
static const hf_key vocab_keys[] = {{"vocab_size", HF_U32, "vocab_size"}, {0}};
static const char deci_blocks[] = "block_configs";

// Folders with layers of several kinds have keys for the size of a head.
static int prepare_deci(hf *h, error *err) {
  uint32_t width, heads, size;
  bool found;
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "num_attention_heads", &heads, err) ||
      hf_u32(h, "head_dim", &size, &found, err))
    return -1;
  if (!found) size = width / heads;
  json_object_set_new(h->text, "head_size", json_integer(size));
  if (hf_in(h->text, deci_blocks)) json_object_set_new(h->text, "head_dim", json_integer(size));
  return 0;
}

typedef struct deci_layers { int32_t *heads, *kv, *widths; } deci_layers;

// What a layer has: attention, a matrix in its place, or neither; and a feed-forward or none.
static int read_deci_layer(const hf *h, const json_t *block, uint32_t heads, uint32_t width, uint32_t i,
                           deci_layers *out, error *err) {
  const json_t *attention = json_object_get(block, "attention"), *ff = json_object_get(block, "ffn"),
               *group = hf_in(attention, "n_heads_in_group"), *times = hf_in(ff, "ffn_mult"),
               *linear = hf_in(attention, "replace_with_linear"), *other = hf_in(ff, "replace_with_linear");
  json_int_t n = group && json_is_integer(group) ? json_integer_value(group) : 0;
  double by = json_number_value(times), most = INT32_MAX / 4;
  if (!attention || !ff || (group && (n < 1 || n > heads || heads % n)))
    return hf_fail(h, config_name, deci_blocks, err, "layer %u has no attention or ffn, or no groups of its heads", i);
  if ((linear && !json_is_boolean(linear)) || (other && !json_is_boolean(other)))
    return hf_fail(h, config_name, deci_blocks, err, "layer %u: replace_with_linear is not true or false", i);
  if (json_is_true(other) || (times && !(hf_is_float(times) && by > 0 && by * width < most)))
    return hf_fail(h, config_name, deci_blocks, err, "layer %u has a feed-forward of another kind, or no width", i);
  out->heads[i] = group || json_is_true(linear) ? (int32_t)heads : 0;
  out->kv[i] = group ? (int32_t)(heads / n) : 0;
  out->widths[i] = ((int32_t)(2 * by * width / 3) + 255) / 256 * 256;
  return 0;
}

static int put_deci_blocks(hf *h, const json_t *blocks, error *err) {
  uint32_t heads, width, n = h->n_layers;
  if (n > HF_LAYERS_MOST || json_array_size(blocks) != n)
    return hf_fail(h, config_name, deci_blocks, err, "is not a list of %u layers, of %d at most", n, HF_LAYERS_MOST);
  deci_layers y = {ARENA_ARRAY(h->arena, int32_t, n), ARENA_ARRAY(h->arena, int32_t, n),
                   ARENA_ARRAY(h->arena, int32_t, n)};
  if (hf_need_u32(h, "num_attention_heads", &heads, err) || hf_need_u32(h, "hidden_size", &width, err)) return -1;
  for (uint32_t i = 0; i < n; i++)
    if (read_deci_layer(h, json_array_get(blocks, i), heads, width, i, &y, err)) return -1;
  gguf_head_i32s(h->head, hf_arch_key(h, "attention.head_count"), y.heads, n);
  gguf_head_i32s(h->head, hf_arch_key(h, "attention.head_count_kv"), y.kv, n);
  gguf_head_i32s(h->head, hf_arch_key(h, "feed_forward_length"), y.widths, n);
  return 0;
}

// A list of counts, one for each layer.
static int put_counts(hf *h, const char *from, const char *to, error *err) {
  const json_t *list = hf_in(h->text, from);
  size_t n = h->n_layers;
  if (n > HF_LAYERS_MOST || json_array_size(list) != n)
    return hf_fail(h, config_name, from, err, "is not a list of %u layers, of %d at most", h->n_layers, HF_LAYERS_MOST);
  int32_t *each = ARENA_ARRAY(h->arena, int32_t, n);
  for (size_t i = 0; i < n; i++) {
    const json_t *v = json_array_get(list, i);
    json_int_t count = json_is_integer(v) ? json_integer_value(v) : -1;
    if (count < 0 || count > INT32_MAX) return hf_fail(h, config_name, from, err, "has what is no count at %zu", i);
    each[i] = (int32_t)count;
  }
  gguf_head_i32s(h->head, hf_arch_key(h, to), each, n);
  return 0;
}

static int deci_more(hf *h, error *err) {
  static const char list[] = "num_key_value_heads_per_layer";
  const json_t *blocks = hf_in(h->text, deci_blocks);
  if (blocks ? put_deci_blocks(h, blocks, err)
             : hf_in(h->text, list) && put_counts(h, list, "attention.head_count_kv", err))
    return -1;
  return hf_llama_more(h, err);
}

// ---- OpenELM --------------------------------------------------------------------------------------------------------

static const hf_rule openelm_rules[] = {
  {"token_embeddings", "token_embd", 0, 0},
  {"norm", "output_norm", 0, 0},
  {"layers.*.attn_norm", "blk.*.attn_norm", 0, 0},
  {"layers.*.attn.qkv_proj", "blk.*.attn_qkv", 0, 0},
  {"layers.*.attn.q_norm", "blk.*.attn_q_norm", 0, 0},
  {"layers.*.attn.k_norm", "blk.*.attn_k_norm", 0, 0},
  {"layers.*.attn.out_proj", "blk.*.attn_output", 0, 0},
  {"layers.*.ffn_norm", "blk.*.ffn_norm", 0, 0},
  {"layers.*.ffn.proj_1", "blk.*.ffn_gate", HF_PART, "0/2"},
  {"layers.*.ffn.proj_1", "blk.*.ffn_up", HF_PART, "1/2"},
  {"layers.*.ffn.proj_2", "blk.*.ffn_down", 0, 0},
  {0},
};

static int prepare_openelm(hf *h, error *err) {
  (void)err;
  move_value(h, "rope_freq_constant", "rope_theta");
  move_value(h, "max_context_length", "max_position_embeddings");
  return 0;
}

// Widths are factors of the model's, rounded to multiples, but not down by more than a tenth.
static int put_openelm_widths(hf *h, error *err) {
  static const char list[] = "ffn_multipliers";
  const json_t *factors = hf_in(h->text, list);
  uint32_t width, step, n = h->n_layers;
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "ffn_dim_divisor", &step, err)) return -1;
  if (n > HF_LAYERS_MOST || json_array_size(factors) != n)
    return hf_fail(h, config_name, list, err, "is not a list of %u layers, of %d at most", n, HF_LAYERS_MOST);
  int32_t *each = ARENA_ARRAY(h->arena, int32_t, n);
  for (uint32_t i = 0; i < n; i++) {
    double v = json_number_value(json_array_get(factors, i)) * width;
    if (!(v > 0 && v < INT32_MAX / 4) || step > INT32_MAX / 4)
      return hf_fail(h, config_name, list, err, "has what gives no width at %u", i);
    int64_t rounded = (int64_t)(v + step / 2.0) / step * step;
    if (rounded < step) rounded = step;
    each[i] = (int32_t)((double)rounded < 0.9 * v ? rounded + step : rounded);
  }
  gguf_head_i32s(h->head, hf_arch_key(h, "feed_forward_length"), each, n);
  return 0;
}

static int openelm_more(hf *h, error *err) {
  return put_openelm_widths(h, err) || put_counts(h, "num_query_heads", "attention.head_count", err) ||
             put_counts(h, "num_kv_heads", "attention.head_count_kv", err) || hf_put_rope_dims(h, 1, err)
           ? -1
           : 0;
}

// ---- Refact, CodeShell and PLaMo ------------------------------------------------------------------------------------

static const hf_rule refact_rules[] = {
  {"wte", "token_embd", 0, 0},
  {"ln_f", "output_norm", 0, 0},
  {H_LAYER "ln_1", "blk.*.attn_norm", 0, 0},
  {H_LAYER "ln_2", "blk.*.ffn_norm", 0, 0},
  {H_LAYER "attn.q", "blk.*.attn_q", 0, 0},
  {H_LAYER "attn.kv", "blk.*.attn_k", HF_PART, "0/2"},
  {H_LAYER "attn.kv", "blk.*.attn_v", HF_PART, "1/2"},
  {H_LAYER "attn.c_proj", "blk.*.attn_output", 0, 0},
  {H_LAYER "mlp.gate_up_proj", "blk.*.ffn_gate", HF_PART, "0/2"},
  {H_LAYER "mlp.gate_up_proj", "blk.*.ffn_up", HF_PART, "1/2"},
  {H_LAYER "mlp.c_proj", "blk.*.ffn_down", 0, 0},
  {0},
};

// The feed-forward has two thirds of four times the width, up to a multiple of 256.
static int prepare_refact(hf *h, error *err) {
  uint32_t width;
  if (hf_need_u32(h, "n_embd", &width, err)) return -1;
  if (width > INT32_MAX / 8) return hf_fail(h, config_name, "n_embd", err, "%u is too much", width);
  json_object_set_new(h->text, "intermediate_size", json_integer((8 * (json_int_t)width / 3 + 255) / 256 * 256));
  move_value(h, "layer_norm_epsilon", "rms_norm_eps");
  if (!hf_in(h->text, "rms_norm_eps")) json_object_set_new(h->text, "rms_norm_eps", json_real(1e-5));
  return 0;
}

static const hf_rule codeshell_rules[] = {
  {"wte", "token_embd", 0, 0},
  {"ln_f", "output_norm", 0, 0},
  {H_LAYER "ln_1", "blk.*.attn_norm", 0, 0},
  {H_LAYER "ln_2", "blk.*.ffn_norm", 0, 0},
  {H_LAYER "attn.c_attn", "blk.*.attn_qkv", 0, 0},
  {H_LAYER "attn.c_proj", "blk.*.attn_output", 0, 0},
  {H_LAYER "attn.rotary_emb.inv_freq", NULL, HF_SKIP, 0},
  {H_LAYER "mlp.c_fc", "blk.*.ffn_up", 0, 0},
  {H_LAYER "mlp.c_proj", "blk.*.ffn_down", 0, 0},
  {0},
};

// Files say that positions are not scaled as a factor of one.
static int put_factor_of_one(hf *h, error *err) {
  (void)err;
  put_text_key(h, "rope.scaling.type", "linear");
  gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.factor"), 1);
  return 0;
}

// Query heads with one key stand apart from each other; files have them side by side.
#define PLAMO_LAYER "model.layers.layers.*."
static const hf_rule plamo_rules[] = {
  {PLAMO_LAYER "norm", "blk.*.attn_norm", 0, 0},
  {PLAMO_LAYER "self_attn.q_proj", "blk.*.attn_q", HF_TILE, "n_shared_head num_attention_heads head_size"},
  {PLAMO_LAYER "self_attn.k_proj", "blk.*.attn_k", 0, 0},
  {PLAMO_LAYER "self_attn.v_proj", "blk.*.attn_v", 0, 0},
  {PLAMO_LAYER "self_attn.o_proj", "blk.*.attn_output", HF_TILE_IN_ROWS,
   "n_shared_head num_attention_heads head_size"},
  {PLAMO_LAYER "self_attn.rotary_emb.inv_freq", NULL, HF_SKIP, 0},
  {PLAMO_LAYER "mlp.gate_proj", "blk.*.ffn_gate", 0, 0},
  {PLAMO_LAYER "mlp.up_proj", "blk.*.ffn_up", 0, 0},
  {PLAMO_LAYER "mlp.down_proj", "blk.*.ffn_down", 0, 0},
  {0},
};

// num_key_value_heads is another number in published folders.
static int prepare_plamo(hf *h, error *err) {
  uint32_t heads, shared;
  if (hf_need_u32(h, "num_attention_heads", &heads, err) || hf_need_u32(h, "n_shared_head", &shared, err)) return -1;
  if (heads % shared) return hf_fail(h, config_name, "n_shared_head", err, "%u does not divide %u", shared, heads);
  json_object_set_new(h->text, "num_key_value_heads", json_integer(heads / shared));
  return 0;
}

// ---- Arctic and Chameleon -------------------------------------------------------------------------------------------

static const hf_rule arctic_rules[] = {
  HF_WOVEN,
  HF_EXPERTS_W(BLOCK "block_sparse_moe"),
  {BLOCK "residual_layernorm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "post_attention_layernorm", "blk.*.ffn_norm_exps", 0, 0},
  {BLOCK "residual_mlp.w1", "blk.*.ffn_gate", 0, 0},
  {BLOCK "residual_mlp.w2", "blk.*.ffn_down", 0, 0},
  {BLOCK "residual_mlp.w3", "blk.*.ffn_up", 0, 0},
  {0},
};

static int plain_rotation(hf *h, error *err) { return hf_put_rope_dims(h, 1, err); }

static const hf_rule chameleon_rules[] = {
  HF_WOVEN,
  {BLOCK "self_attn.q_norm", "blk.*.attn_q_norm", HF_WEAVE_IN_ROWS, 0},
  {BLOCK "self_attn.k_norm", "blk.*.attn_k_norm", HF_WEAVE_IN_ROWS, 0},
  {0},
};
static const hf_key chameleon_keys[] = {{"swin_norm", HF_BOOL, "swin_norm"}, {0}};

// ---- the rows -------------------------------------------------------------------------------------------------------

#define SILU "hidden_act=silu"
const hf_class hf_classes_earlier[] = {
  {.name = "DeepseekForCausalLM",
   .arch = "deepseek",
   .needs = "first_k_dense_replace n_shared_experts moe_intermediate_size",
   .musts = SILU " attention_bias=false mlp_bias=false norm_topk_prob=false moe_layer_freq=1 scoring_func=softmax",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0}",
   .keys = deepseek1_keys,
   .rules = deepseek1_rules,
   .more = deepseek1_more},
  {.name = "BailingMoeForCausalLM",
   .arch = "bailingmoe",
   .needs = "first_k_dense_replace num_shared_experts moe_intermediate_size norm_topk_prob",
   .musts = SILU " use_bias=false use_qkv_bias=false norm_head=true|false multi_gate=false",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0}",
   .prepare = prepare_ling1,
   .keys = ling1_keys,
   .rules = ling1_rules,
   .more = ling1_more},
  {.name = "InternLM2ForCausalLM",
   .arch = "internlm2",
   .vocab = HF_VOCAB_INTERNLM2,
   .own_scaling = true,
   .musts = SILU " bias=false",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0}",
   .rules = internlm2_rules,
   .more = internlm2_more},
  {.name = "BaichuanForCausalLM",
   .arch = "baichuan",
   .musts = SILU,
   .defaults = "{\"rms_norm_eps\":1e-6}",
   .prepare = prepare_baichuan,
   .rules = baichuan_rules,
   .more = baichuan_more},
  {.name = "BaiChuanForCausalLM", .like = "BaichuanForCausalLM"},  // the class's first name
  {.name = "OrionForCausalLM",
   .arch = "orion",
   .musts = SILU " attention_bias=false",
   .defaults = "{\"layer_norm_eps\":1e-5}",
   .prepare = prepare_orion,
   .keys = orion_keys,
   .more = orion_more},
  {.name = "QWenLMHeadModel",
   .arch = "qwen",
   .under = "transformer.",
   .vocab = HF_VOCAB_QWEN,
   .musts = "scale_attn_weights=true no_bias=true rotary_pct=1",
   .prepare = prepare_qwen1,
   .rules = qwen1_rules},
  {.name = "DeciLMForCausalLM",
   .arch = "deci",
   .musts = SILU " attention_bias=false mlp_bias=false",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0}",
   .prepare = prepare_deci,
   .keys = vocab_keys,
   .rules = deci_rules,
   .more = deci_more},
  {.name = "OpenELMForCausalLM",
   .arch = "openelm",
   .under = "transformer.",
   .needs = "head_dim",
   .musts =
     "activation_fn_name=swish ffn_with_glu=true normalize_qk_projections=true normalization_layer_name=rms_norm "
     "share_input_output_layers=true",
   .defaults = "{\"rms_norm_eps\":1e-6,\"max_context_length\":2048,\"rope_freq_constant\":10000}",
   .derived = "hidden_size=model_dim num_hidden_layers=num_transformer_layers",
   .prepare = prepare_openelm,
   .rules = openelm_rules,
   .more = openelm_more},
  {.name = "GPTRefactForCausalLM",
   .arch = "refact",
   .under = "transformer.",
   .musts = "multi_query=true",
   .defaults = "{\"num_key_value_heads\":1}",
   .derived = "hidden_size=n_embd num_attention_heads=n_head num_hidden_layers=n_layer",
   .prepare = prepare_refact,
   .rules = refact_rules},
  {.name = "CodeShellForCausalLM",
   .arch = "codeshell",
   .under = "transformer.",
   .own_scaling = true,
   .musts = "activation_function=gelu_pytorch_tanh|gelu_new position_embedding_type=rope scale_attn_weights=true "
            "group_query_attention=true",
   .defaults = "{\"layer_norm_epsilon\":1e-5,\"rope_theta\":10000.0}",
   .derived = "hidden_size=n_embd num_attention_heads=n_head num_hidden_layers=n_layer "
              "num_key_value_heads=num_query_groups intermediate_size=n_inner intermediate_size=4*hidden_size",
   .rules = codeshell_rules,
   .more = put_factor_of_one},
  {.name = "PlamoForCausalLM",
   .arch = "plamo",
   .musts = SILU,
   .defaults = "{\"rms_norm_eps\":1e-6,\"max_position_embeddings\":4096}",
   .derived = "head_size=hidden_size/num_attention_heads",
   .prepare = prepare_plamo,
   .rules = plamo_rules},
  {.name = "ArcticForCausalLM",
   .arch = "arctic",
   .vocab = HF_VOCAB_ARCTIC,
   .needs = "num_local_experts",
   .musts = SILU " use_residual=true moe_layer_frequency=1 parallel_attn_mlp_res=true sliding_window=none",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":1000000.0,\"num_experts_per_tok\":1}",
   .keys = vocab_keys,
   .rules = arctic_rules,
   .more = plain_rotation},
  {.name = "ChameleonForConditionalGeneration",
   .arch = "chameleon",
   .musts = SILU " attention_bias=false mlp_bias=false",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"swin_norm\":false}",
   .seeing = true,
   .keys = chameleon_keys,
   .rules = chameleon_rules},
  {.name = "ChameleonForCausalLM", .like = "ChameleonForConditionalGeneration"},
  {0},
};
