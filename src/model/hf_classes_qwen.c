// Classes of Qwen with linear attention (Qwen3-Next, Qwen3.5 and their experts), and those with an encoder of pictures.
// See hf_classes.c.
//
// Each value head of linear attention belongs to a key head. Qwen3.5's files have the first value head of each key head
// first, then the second ones. Qwen3-Next's files keep the folder's order, but split the matrices that have several
// parts for each key head.
#include <string.h>
#include "model/hf_impl.h"

#define BLOCK "model.layers.*."
#define LINEAR BLOCK "linear_attn."
#define VALUES "linear_num_key_heads linear_num_value_heads linear_value_head_dim"
#define VALUE_HEADS "linear_num_key_heads linear_num_value_heads"
#define OF_KEYS "linear_num_key_heads*linear_key_head_dim"
#define OF_VALUES "linear_num_value_heads*linear_value_head_dim"
#define PARTS OF_KEYS " " OF_KEYS " " OF_VALUES " " OF_VALUES

// ---- keys -----------------------------------------------------------------------------------------------------------

static int put_recurrent_layers(hf *h, error *err) {
  uint32_t every = 4;
  hf_layers y;
  bool found;
  if (hf_read_layers(h, "layer_types", "full_attention linear_attention", false, &y, err) ||
      hf_u32(h, "full_attention_interval", &every, &found, err))
    return -1;
  if (!every) return hf_fail(h, "config.json", "full_attention_interval", err, "is 0");
  size_t all = y.n + h->n_further;
  bool *linear = ARENA_ARRAY(h->arena, bool, all);
  for (uint32_t i = 0; i < y.n; i++) linear[i] = y.of ? y.of[i] : (i + 1) % every != 0;
  gguf_head_bools(h->head, hf_arch_key(h, "attention.recurrent_layers"), linear, all);
  gguf_head_u32(h->head, hf_arch_key(h, "full_attention_interval"), every);
  return 0;
}

static int qwen3next_more(hf *h, error *err) {
  uint32_t heads, size;
  if (hf_need_u32(h, "linear_num_value_heads", &heads, err) || hf_need_u32(h, "linear_value_head_dim", &size, err))
    return -1;
  uint64_t inner = (uint64_t)heads * size;
  if (inner > UINT32_MAX) return hf_fail(h, "config.json", "linear_value_head_dim", err, "%u is too much", size);
  gguf_head_u32(h->head, hf_arch_key(h, "ssm.inner_size"), (uint32_t)inner);
  return hf_put_rotated(h, 0.25, err) || put_recurrent_layers(h, err) ? -1 : 0;
}

// Sets the numbers of frequencies for time, rows and columns of a picture.
static int put_sections(hf *h, const int32_t usual[4], error *err) {
  static const char key[] = "mrope_section";
  int32_t n[4];
  memcpy(n, usual, sizeof n);
  const json_t *list = json_object_get(hf_rope(h), key), *v;
  size_t i;
  if (list) memset(n, 0, sizeof n);
  if (list && (!json_is_array(list) || json_array_size(list) > COUNT(n)))
    return hf_fail(h, "config.json", key, err, "is not a list of at most %zu numbers", COUNT(n));
  json_array_foreach(list, i, v) {
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
      return hf_fail(h, "config.json", key, err, "has what is no count");
    n[i] = (int32_t)json_integer_value(v);
  }
  gguf_head_i32s(h->head, hf_arch_key(h, "rope.dimension_sections"), n, COUNT(n));
  return 0;
}

static int qwen35_more(hf *h, error *err) {
  return put_sections(h, (int32_t[]){11, 11, 10, 0}, err) || qwen3next_more(h, err) ? -1 : 0;
}

// Older folders call positions in sections a type.
static void read_sections_type(hf *h) { h->rotation_read = hf_rope_type(h) && !strcmp(hf_rope_type(h), "mrope"); }

static int qwen2vl_more(hf *h, error *err) {
  read_sections_type(h);
  return put_sections(h, (int32_t[]){16, 24, 24, 0}, err) || hf_all_full(h, err) ? -1 : 0;
}

// Counts the layers of the encoder that are added to the stream, each after a layer of the language model (deepstack).
static int qwen3vl_more(hf *h, error *err) {
  const json_t *eyes = json_object_get(h->config, "vision_config");
  size_t n = json_array_size(json_object_get(eyes, "deepstack_visual_indexes"));
  gguf_head_u32(h->head, hf_arch_key(h, "n_deepstack_layers"), (uint32_t)n);
  read_sections_type(h);
  return put_sections(h, (int32_t[]){24, 20, 20, 0}, err);
}

#define QWEN_KEYS \
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"}, \
    {"expert_shared_feed_forward_length", HF_U32, "shared_expert_intermediate_size"}, \
    {"ssm.conv_kernel", HF_U32, "linear_conv_kernel_dim"}, \
    {"ssm.state_size", HF_U32, "linear_key_head_dim"}, \
    {"ssm.group_count", HF_U32, "linear_num_key_heads"}, \
    {"ssm.time_step_rank", HF_U32, "linear_num_value_heads"}
static const hf_key keys[] = {QWEN_KEYS, {0}};

static const hf_key qwen4exp_keys[] = {
  QWEN_KEYS,
  {"hyper_connection.count", HF_U32, "hc_count"},
  {"hyper_connection.low_rank", HF_U32, "hc_lowrank"},
  {"attention.indexer.head_count", HF_U32, "indexer_n_heads"},
  {"attention.indexer.key_length", HF_U32, "indexer_head_dim"},
  {"attention.indexer.top_k", HF_U32, "indexer_budget"},
  {0},
};

// transformers calls layers with an indexer so; published folders say that they have full attention.
static int prepare_qwen4exp(hf *h, error *err) {
  json_t *list = json_object_get(h->text, "layer_types"), *v;
  const char *name, *gate = json_string_value(hf_value(h, "output_gate_type", &name));
  size_t i;
  json_array_foreach(list, i, v)
    if (json_is_string(v) && !strcmp(json_string_value(v), "indexed_attention"))
      json_array_set_new(list, i, json_string("full_attention"));
  return gate && !strcmp(gate, "sigmoid") ? 0
                                          : hf_fail(h, "config.json", "output_gate_type", err,
                                                    "is not sigmoid, but files of qwen4exp have no key for it");
}

// Positions that the indexer joins, for each layer.
static int put_pools(hf *h, error *err) {
  uint32_t ratio;
  hf_layers y;
  if (hf_need_u32(h, "indexer_compress_ratio", &ratio, err) ||
      hf_read_layers(h, "layer_types", "linear_attention full_attention", true, &y, err))
    return -1;
  if (ratio > INT32_MAX) return hf_fail(h, "config.json", "indexer_compress_ratio", err, "%u is too much", ratio);
  int32_t *each = ARENA_ARRAY(h->arena, int32_t, y.n);
  for (uint32_t i = 0; i < y.n; i++) each[i] = y.of[i] ? (int32_t)ratio : 0;
  gguf_head_i32s(h->head, hf_arch_key(h, "attention.compress_ratios"), each, y.n);
  return 0;
}

// The token at which n-grams begin anew: of several that end a text the last one.
static int put_ngram_end(hf *h, error *err) {
  const json_t *end = json_object_get(h->text, "eos_token_id");
  if (json_is_array(end)) end = json_array_get(end, json_array_size(end) - 1);
  json_int_t id = json_is_integer(end) ? json_integer_value(end) : -1;
  if (id < 0 || id > UINT32_MAX)
    return hf_fail(h, "config.json", "eos_token_id", err, "is missing: n-grams begin there");
  gguf_head_u32(h->head, hf_arch_key(h, "ple.eos_token_id"), (uint32_t)id);
  return 0;
}

static int put_ngrams(hf *h, error *err) {
  static const hf_key ngram_keys[] = {
    {"ple.ngram_size", HF_U32, "ngram_size"}, {"ple.heads_per_ngram", HF_U32, "heads_per_ngram"},
    {"ple.conv_kernel", HF_U32, "ple_conv_kernel_size"}, {"ple.image_token_id", HF_U32, "image_token_id"}, {0}};
  json_t *layers = json_object_get(h->text, "ple_layer_ids");
  uint32_t size, heads, width;
  const json_t *first = json_array_get(layers, 0);
  if (!json_array_size(layers)) return 0;
  if (json_array_size(layers) != 1 || !json_is_integer(first) || json_integer_value(first) < 1 ||
      json_integer_value(first) > h->n_layers)
    return hf_fail(h, "config.json", "ple_layer_ids", err, "is not one layer from 1 to %u", h->n_layers);
  int32_t at = (int32_t)json_integer_value(first) - 1;
  if (hf_need_u32(h, "ngram_size", &size, err) || hf_need_u32(h, "heads_per_ngram", &heads, err) ||
      hf_need_u32(h, "ple_embed_dim hidden_size", &width, err))
    return -1;
  uint64_t all = (uint64_t)(size - 1) * heads;
  if (!all || width % all)
    return hf_fail(h, "config.json", "ple_embed_dim", err, "%u is not a multiple of all heads of n-grams", width);
  gguf_head_i32s(h->head, hf_arch_key(h, "ple.layers"), &at, 1);
  gguf_head_u32(h->head, hf_arch_key(h, "embedding_length_per_layer_input"), (uint32_t)(width / all));
  return hf_put_class_keys(h, ngram_keys, err) || put_ngram_end(h, err) ? -1 : 0;
}

static int qwen4exp_more(hf *h, error *err) {
  return qwen35_more(h, err) || put_pools(h, err) || put_ngrams(h, err) ? -1 : 0;
}

// ---- names of tensors -----------------------------------------------------------------------------------------------

#define NORMS \
  {"model.norm", "output_norm", HF_PLUS_ONE, 0}, {BLOCK "input_layernorm", "blk.*.attn_norm", HF_PLUS_ONE, 0}, \
    {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", HF_PLUS_ONE, 0}, \
    {BLOCK "self_attn.q_norm", "blk.*.attn_q_norm", HF_PLUS_ONE, 0}, \
    {BLOCK "self_attn.k_norm", "blk.*.attn_k_norm", HF_PLUS_ONE, 0}, {LINEAR "norm", "blk.*.ssm_norm", 0, 0}
#define FURTHER \
  {BLOCK "eh_proj", "blk.*.nextn.eh_proj", 0, 0}, {BLOCK "enorm", "blk.*.nextn.enorm", HF_PLUS_ONE, 0}, \
    {BLOCK "hnorm", "blk.*.nextn.hnorm", HF_PLUS_ONE, 0}, \
    {BLOCK "shared_head.norm", "blk.*.nextn.shared_head_norm", HF_PLUS_ONE, 0}
#define EXPERTS \
  HF_EXPERTS(BLOCK "mlp"), \
    {BLOCK "mlp.experts.gate_up_proj", "blk.*.ffn_gate_exps.weight", HF_FIRST, 0}, \
    {BLOCK "mlp.experts.gate_up_proj", "blk.*.ffn_up_exps.weight", HF_REST, 0}, \
    {BLOCK "mlp.experts.down_proj", "blk.*.ffn_down_exps.weight", 0, 0}, \
    {BLOCK "mlp.shared_expert_gate", "blk.*.ffn_gate_inp_shexp", 0, 0}, \
    HF_SHARED_EXPERT(BLOCK "mlp.shared_expert")

static const hf_rule qwen3next_rules[] = {
  NORMS,
  FURTHER,
  EXPERTS,
  {LINEAR "A_log", "blk.*.ssm_a", HF_MINUS_EXP, 0},
  {LINEAR "dt_bias", "blk.*.ssm_dt.bias", 0, 0},
  {LINEAR "conv1d", "blk.*.ssm_conv1d", HF_SQUEEZED, 0},
  {LINEAR "in_proj_ba", "blk.*.ssm_ba", 0, 0},
  {LINEAR "in_proj_qkvz", "blk.*.attn_qkv", HF_COLLECT, PARTS},
  {LINEAR "in_proj_qkvz", "blk.*.attn_gate", HF_COLLECT_LAST, PARTS},
  {LINEAR "out_proj", "blk.*.ssm_out", 0, 0},
  {0},
};
#define QWEN35_LINEAR \
  {LINEAR "A_log", "blk.*.ssm_a", HF_TILE | HF_MINUS_EXP, VALUE_HEADS}, \
    {LINEAR "dt_bias", "blk.*.ssm_dt.bias", HF_TILE, VALUE_HEADS}, \
    {LINEAR "conv1d", "blk.*.ssm_conv1d", HF_TILE | HF_SQUEEZED, VALUES}, \
    {LINEAR "in_proj_a", "blk.*.ssm_alpha", HF_TILE, VALUE_HEADS}, \
    {LINEAR "in_proj_b", "blk.*.ssm_beta", HF_TILE, VALUE_HEADS}, \
    {LINEAR "in_proj_qkv", "blk.*.attn_qkv", HF_TILE, VALUES}, \
    {LINEAR "in_proj_z", "blk.*.attn_gate", HF_TILE, VALUES}, \
    {LINEAR "out_proj", "blk.*.ssm_out", HF_TILE_IN_ROWS, VALUES}
static const hf_rule qwen35_rules[] = {
  NORMS,
  FURTHER,
  EXPERTS,
  QWEN35_LINEAR,
  {0},
};

// Qwen3.8-Flash-Next: streams instead of norms, an indexer, and a table of n-grams that is stored in parts.
#define STREAM(from, to) \
  {from ".hc_norm", to "_norm", HF_PLUS_ONE, 0}, {from ".input_mix_weight_down", to "_down", 0, 0}, \
    {from ".input_mix_weight_up", to "_up", 0, 0}
#define INDEXER BLOCK "self_attn.indexer."
#define INDEX_PARTS "indexer_kv_heads*indexer_n_heads*indexer_head_dim indexer_kv_heads*indexer_head_dim"
#define PLE BLOCK "ple."
static const hf_rule qwen4exp_rules[] = {
  STREAM("model.hyper_connection_mixer", "output_hc"),
  STREAM(BLOCK "attn_hyper_connection", "blk.*.hc_attn"),
  {BLOCK "attn_hyper_connection.block_inject_weight", "blk.*.hc_attn_inject", 0, 0},
  STREAM(BLOCK "mlp_hyper_connection", "blk.*.hc_ffn"),
  {BLOCK "mlp_hyper_connection.block_inject_weight", "blk.*.hc_ffn_inject", 0, 0},
  {INDEXER "index_qk_proj", "blk.*.indexer.q_proj", HF_COLLECT, INDEX_PARTS},
  {INDEXER "index_qk_proj", "blk.*.indexer.k_proj", HF_COLLECT_LAST, INDEX_PARTS},
  {INDEXER "q_layernorm", "blk.*.indexer.q_norm", HF_PLUS_ONE, 0},
  {INDEXER "k_layernorm", "blk.*.indexer.k_norm", HF_PLUS_ONE, 0},
  {PLE "ple_embedding.layer_multipliers", "ple.layer_multipliers", HF_KEY_INTEGERS, 0},
  {PLE "ple_embedding.ngram_heads_offsets", "ple.head_offsets", HF_KEY_INTEGERS, 0},
  {PLE "ple_embedding.ngram_heads_vocab_sizes", "ple.head_vocab_sizes", HF_KEY_INTEGERS, 0},
  {PLE "ple_embedding.ngram_embedding.shard_#", "per_layer_token_embd", HF_JOIN, "split_ngram_parts"},
  {PLE "key_proj", "blk.*.ple_key", 0, 0},
  {PLE "value_proj", "blk.*.ple_value", 0, 0},
  {PLE "norm_key", "blk.*.ple_norm_key", HF_PLUS_ONE, 0},
  {PLE "norm_query", "blk.*.ple_norm_query", HF_PLUS_ONE, 0},
  {PLE "norm_conv", "blk.*.ple_norm_conv", HF_PLUS_ONE, 0},
  {PLE "conv1d", "blk.*.ple_conv1d", HF_SQUEEZED, 0},
  NORMS,
  EXPERTS,
  QWEN35_LINEAR,
  {0},
};

static const hf_rule qwen3vlmoe_rules[] = {
  {BLOCK "mlp.gate", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "mlp.experts.gate_up_proj", "blk.*.ffn_gate_exps.weight", HF_TURNED_FIRST, 0},
  {BLOCK "mlp.experts.gate_up_proj", "blk.*.ffn_up_exps.weight", HF_TURNED_REST, 0},
  {BLOCK "mlp.experts.down_proj", "blk.*.ffn_down_exps.weight", HF_TURNED, 0},
  {0},
};
static const hf_key qwen3vlmoe_keys[] = {{"expert_feed_forward_length", HF_U32, "moe_intermediate_size"}, {0}};

// ---- rows -----------------------------------------------------------------------------------------------------------

#define LINEAR_SIZES \
  "\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":128,\"linear_value_head_dim\":128," \
  "\"linear_num_key_heads\":16,\"linear_num_value_heads\":32"
#define DEFAULTS "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,\"head_dim\":256," LINEAR_SIZES "}"
#define MUSTS "hidden_act=silu use_sliding_window=false attn_output_gate=true"
const hf_class hf_classes_qwen[] = {
  {.name = "Qwen2VLForConditionalGeneration",
   .arch = "qwen2vl",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":1000000.0}",
   .musts = "hidden_act=silu use_sliding_window=false",
   .seeing = true,
   .own_scaling = true,
   .more = qwen2vl_more},
  {.name = "Qwen2_5_VLForConditionalGeneration", .like = "Qwen2VLForConditionalGeneration"},
  {.name = "Qwen3VLForConditionalGeneration",
   .like = "Qwen2VLForConditionalGeneration",
   .arch = "qwen3vl",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":5000000.0,\"head_dim\":128}",
   .musts = "hidden_act=silu",
   .more = qwen3vl_more},
  {.name = "Qwen3VLMoeForConditionalGeneration",
   .like = "Qwen3VLForConditionalGeneration",
   .arch = "qwen3vlmoe",
   .musts = "hidden_act=silu norm_topk_prob=true decoder_sparse_step=1",
   .keys = qwen3vlmoe_keys,
   .rules = qwen3vlmoe_rules},
  {.name = "Qwen3_5ForCausalLM",
   .arch = "qwen35",
   .defaults = DEFAULTS,
   .musts = MUSTS,
   .further = true,
   .keys = keys,
   .rules = qwen35_rules,
   .more = qwen35_more},
  {.name = "Qwen3_5ForConditionalGeneration", .like = "Qwen3_5ForCausalLM", .seeing = true},
  {.name = "Qwen3_5MoeForCausalLM", .like = "Qwen3_5ForCausalLM", .arch = "qwen35moe"},
  {.name = "Qwen3_5MoeForConditionalGeneration", .like = "Qwen3_5MoeForCausalLM", .seeing = true},
  {.name = "Qwen4ExpForCausalLM",
   .arch = "qwen4exp",
   .defaults =
     "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,\"head_dim\":256,\"hc_count\":4,\"hc_lowrank\":320,"
     "\"ple_conv_kernel_size\":4,\"ngram_size\":3,\"heads_per_ngram\":8,\"split_ngram_parts\":512," LINEAR_SIZES "}",
   .musts = MUSTS " norm_topk_prob=true attention_bias=false indexer_kv_heads=1",
   .no_mtp = true,
   .prepare = prepare_qwen4exp,
   .keys = qwen4exp_keys,
   .rules = qwen4exp_rules,
   .more = qwen4exp_more},
  {.name = "Qwen4ExpForConditionalGeneration", .like = "Qwen4ExpForCausalLM", .seeing = true},
  {.name = "Qwen3NextForCausalLM",
   .like = "Qwen3_5ForCausalLM",
   .arch = "qwen3next",
   .musts = MUSTS " norm_topk_prob=true decoder_sparse_step=1",
   .rules = qwen3next_rules,
   .more = qwen3next_more},
  {0},
};
