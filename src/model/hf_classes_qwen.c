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

static const hf_key keys[] = {
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_feed_forward_length", HF_U32, "shared_expert_intermediate_size"},
  {"ssm.conv_kernel", HF_U32, "linear_conv_kernel_dim"},
  {"ssm.state_size", HF_U32, "linear_key_head_dim"},
  {"ssm.group_count", HF_U32, "linear_num_key_heads"},
  {"ssm.time_step_rank", HF_U32, "linear_num_value_heads"},
  {0},
};

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
static const hf_rule qwen35_rules[] = {
  NORMS,
  FURTHER,
  EXPERTS,
  {LINEAR "A_log", "blk.*.ssm_a", HF_TILE | HF_MINUS_EXP, VALUE_HEADS},
  {LINEAR "dt_bias", "blk.*.ssm_dt.bias", HF_TILE, VALUE_HEADS},
  {LINEAR "conv1d", "blk.*.ssm_conv1d", HF_TILE | HF_SQUEEZED, VALUES},
  {LINEAR "in_proj_a", "blk.*.ssm_alpha", HF_TILE, VALUE_HEADS},
  {LINEAR "in_proj_b", "blk.*.ssm_beta", HF_TILE, VALUE_HEADS},
  {LINEAR "in_proj_qkv", "blk.*.attn_qkv", HF_TILE, VALUES},
  {LINEAR "in_proj_z", "blk.*.attn_gate", HF_TILE, VALUES},
  {LINEAR "out_proj", "blk.*.ssm_out", HF_TILE_IN_ROWS, VALUES},
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
  {.name = "Qwen3NextForCausalLM",
   .like = "Qwen3_5ForCausalLM",
   .arch = "qwen3next",
   .musts = MUSTS " norm_topk_prob=true decoder_sparse_step=1",
   .rules = qwen3next_rules,
   .more = qwen3next_more},
  {0},
};
