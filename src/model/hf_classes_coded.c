// Rows of the table of classes (hf_classes.c) for decoders whose class is Python code in published folders: relatives
// of Llama (Nanbeige, Pangu, Maincoder, PLM, IQuest Coder), mixtures (Sarvam, GroveMoE, SmallThinker, Maple, Grok), and
// Spark 2.5.
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json";

#define BLOCK "model.layers.*."
#define EPS5 "\"rms_norm_eps\":1e-5"
#define EPS6 "\"rms_norm_eps\":1e-6"
#define THETA(x) "\"rope_theta\":" x

static const hf_key vocab_keys[] = {{"vocab_size", HF_U32, "vocab_size"}, {0}};

// ---- relatives of Llama ---------------------------------------------------------------------------------------------

static const hf_key nanbeige_keys[] = {{"vocab_size", HF_U32, "vocab_size"},
                                       {"num_loops", HF_U32, "num_loops"},
                                       {"skip_loop_final_norm", HF_BOOL, "skip_loop_final_norm"},
                                       {0}};

static int all_rotated(hf *h, error *err) { return hf_put_rope_dims(h, 1, err); }

// Keys and values are made of a token's small vector; queries are not.
static const hf_rule plm_rules[] = {
  {BLOCK "self_attn.kv_a_proj_with_mqa", "blk.*.attn_kv_a_mqa", 0, 0},
  {BLOCK "self_attn.kv_a_layernorm", "blk.*.attn_kv_a_norm", 0, 0},
  {BLOCK "self_attn.kv_b_proj", "blk.*.attn_kv_b", 0, 0},
  {0},
};
static const hf_key plm_keys[] = {{"vocab_size", HF_U32, "vocab_size"},
                                  {"attention.kv_lora_rank", HF_U32, "kv_lora_rank"},
                                  {"attention.value_length", HF_U32, "v_head_dim"},
                                  {"rope.dimension_count", HF_U32, "qk_rope_head_dim"},
                                  {0}};

static int plm_more(hf *h, error *err) {
  static const char key[] = "qk_nope_head_dim";
  uint32_t plain, turned;
  if (hf_need_u32(h, key, &plain, err) || hf_need_u32(h, "qk_rope_head_dim", &turned, err)) return -1;
  return hf_put_computed(h, "attention.key_length", (uint64_t)plain + turned, key, err);
}

// ---- Sarvam ---------------------------------------------------------------------------------------------------------

// All of a head is rotated; otherwise the model is Ling 2.
static int sarvam_more(hf *h, error *err) { return hf_put_rotated(h, 1, err) || hf_put_nextn(h, err) ? -1 : 0; }

// ---- GroveMoE -------------------------------------------------------------------------------------------------------

// Two experts share a smaller one ("chunk"). The numbers are in the class's code, not in config.json.
#define CHUNK(part) \
  {BLOCK "mlp.chunk_experts.#." part "_proj", "blk.*.ffn_" part "_chexps", HF_STACK, "num_chunk_experts"}
static const hf_rule grove_rules[] = {
  HF_EXPERTS(BLOCK "mlp"),
  CHUNK("gate"), CHUNK("down"), CHUNK("up"),
  {BLOCK "mlp.expert_bias", NULL, HF_SKIP, 0},             // the class does not use it
  {BLOCK "mlp.gate.expert_bias", NULL, HF_SKIP, 0},
  {0},
};
static const hf_key grove_keys[] = {{"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
                                    {"expert_chunk_feed_forward_length", HF_U32, "head_dim"},
                                    {0}};

static int grove_more(hf *h, error *err) {
  (void)err;
  gguf_head_u32(h->head, hf_arch_key(h, "experts_per_group"), 2);
  gguf_head_f32(h->head, hf_arch_key(h, "expert_group_scale"), 0.05F);
  return 0;
}

// ---- SmallThinker ---------------------------------------------------------------------------------------------------

#define SMALL_EXPERTS BLOCK "block_sparse_moe."
static const hf_rule smallthinker_rules[] = {
  {SMALL_EXPERTS "primary_router", "blk.*.ffn_gate_inp", 0, 0},
  {SMALL_EXPERTS "experts.#.gate", "blk.*.ffn_gate_exps", HF_STACK, 0},
  {SMALL_EXPERTS "experts.#.down", "blk.*.ffn_down_exps", HF_STACK, 0},
  {SMALL_EXPERTS "experts.#.up", "blk.*.ffn_up_exps", HF_STACK, 0},
  {0},
};
static const hf_key smallthinker_keys[] = {{"feed_forward_length", HF_U32, "moe_ffn_hidden_size"},
                                           {"expert_feed_forward_length", HF_U32, "moe_ffn_hidden_size"},
                                           {0}};

// Checks a list with 0 or 1 for each layer: all have `plain`, or, if `first` is set, each fourth one from the first on
// has 0 and the others 1.
static int check_layout(const hf *h, const char *key, bool first, int plain, error *err) {
  json_t *list = json_object_get(h->text, key), *v;
  size_t i;
  json_array_foreach(list, i, v) {
    int must = first ? i % 4 != 0 : plain;
    if (!json_is_integer(v) || (json_integer_value(v) != 0) != must)
      return hf_fail(h, config_name, key, err, "has another value than %d at %zu, but files of %s have no key for it",
                     must, i, h->class->arch);
  }
  return 0;
}

// Layers with a window are those that rotate; without windows all layers rotate.
static int smallthinker_more(hf *h, error *err) {
  static const char layout[] = "sliding_window_layout";
  const char *name;
  json_t *list = json_object_get(h->text, layout), *v;
  uint32_t window = 0;
  size_t i;
  bool near = false;
  json_array_foreach(list, i, v) near = near || json_integer_value(v) != 0;
  if (near && hf_need_u32(h, "sliding_window_size", &window, err)) return -1;
  if (check_layout(h, layout, near, 0, err) || check_layout(h, "rope_layout", near, 1, err) ||
      check_layout(h, "moe_layer_layout", false, 1, err))
    return -1;
  bool softmax = json_is_true(hf_value(h, "moe_primary_router_apply_softmax", &name));
  gguf_head_u32(h->head, hf_arch_key(h, "expert_gating_func"), softmax ? 1 : 2);
  if (near) gguf_head_u32(h->head, hf_arch_key(h, "attention.sliding_window"), window);
  return 0;
}

// ---- Maple ----------------------------------------------------------------------------------------------------------

static const hf_rule maple_rules[] = {HF_EXPERTS(BLOCK "mlp"), {0}};
static const hf_key maple_keys[] = {{"vocab_size", HF_U32, "vocab_size"},
                                    {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
                                    {0}};

// The limit of gates is in the class's code.
static int maple_more(hf *h, error *err) {
  const float limit = 7;
  if (hf_put_rotated(h, 1, err) || hf_put_windows(h, 1, err)) return -1;
  float *each = ARENA_ARRAY(h->arena, float, h->n_layers);
  for (uint32_t i = 0; i < h->n_layers; i++) each[i] = limit;
  gguf_head_f32s(h->head, hf_arch_key(h, "swiglu_clamp_exp"), each, h->n_layers);
  return 0;
}

// ---- Spark 2.5 ------------------------------------------------------------------------------------------------------

static const hf_rule spark_rules[] = {
  {BLOCK "self_attn.q_k_v_proj", "blk.*.attn_qkv", 0, 0},
  {BLOCK "self_attn.g_proj", "blk.*.attn_gate", 0, 0},
  {0},
};

// The share of a head that is rotated, in layers of each kind.
static int spark_more(hf *h, error *err) {
  static const char key[] = "partial_rotary_factor";
  static const struct { const char *kind, *to; } of[] = {{"full_attention", "rope.dimension_count"},
                                                         {"sliding_attention", "rope.dimension_count_swa"}};
  const json_t *rope = json_object_get(h->text, "rope_parameters");
  uint32_t size;
  if (hf_put_windows(h, 1, err) || hf_need_u32(h, "head_dim", &size, err)) return -1;
  for (size_t i = 0; i < COUNT(of); i++) {
    double share;
    bool found;
    if (hf_number_in(h, hf_in(rope, of[i].kind), key, &share, &found, err)) return -1;
    if (!found || !(share > 0 && share <= 1))
      return hf_fail(h, config_name, key, err, "of %s is missing, or not from 0 to 1", of[i].kind);
    gguf_head_u32(h->head, hf_arch_key(h, of[i].to), (uint32_t)(size * share));
  }
  return 0;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

const hf_class hf_classes_coded[] = {
  {.name = "NanbeigeForCausalLM",
   .like = "LlamaForCausalLM",
   .arch = "nanbeige",
   .defaults = "{" EPS6 "," THETA("10000.0") ",\"num_loops\":1,\"skip_loop_final_norm\":false}",
   .keys = nanbeige_keys},
  {.name = "IQuestCoderForCausalLM",
   .like = "LlamaForCausalLM",
   .musts = "hidden_act=silu clip_qkv=none use_sliding_window=false",
   .defaults = "{" EPS5 "," THETA("10000.0") ",\"head_dim\":128}"},
  {.name = "PanguEmbeddedForCausalLM",
   .arch = "pangu-embedded",
   .vocab = HF_VOCAB_LLAMA,
   .head_dim = true,
   .musts = "hidden_act=silu",
   .defaults = "{" EPS5 "," THETA("10000.0") "}",
   .keys = vocab_keys,
   .more = all_rotated},
  {.name = "MaincoderForCausalLM",
   .arch = "maincoder",
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false use_qk_norm=true",
   .defaults = "{" EPS5 "," THETA("10000.0") "}",
   .more = all_rotated},
  {.name = "PLMForCausalLM",
   .arch = "plm",
   .needs = "kv_lora_rank v_head_dim",
   .musts = "hidden_act=relu2 attention_bias=false q_lora_rank=none",
   .defaults = "{" EPS6 "," THETA("10000.0") "}",
   .keys = plm_keys,
   .rules = plm_rules,
   .more = plm_more},
  {.name = "SarvamMoEForCausalLM",
   .like = "BailingMoeV2ForCausalLM",
   .needs = "moe_intermediate_size",
   .derived = "num_experts=n_routed_experts num_shared_experts=n_shared_experts "
              "moe_shared_expert_intermediate_size=moe_intermediate_size*num_shared_experts",
   .defaults = "{" EPS6 "," THETA("8000000.0") ",\"score_function\":\"sigmoid\",\"norm_topk_prob\":true,\"n_group\":1,"
               "\"topk_group\":1,\"routed_scaling_factor\":2.5,\"first_k_dense_replace\":1}",
   .more = sarvam_more},
  {.name = "modeling_sarvam_moe.SarvamMoEForCausalLM", .like = "SarvamMoEForCausalLM"},
  {.name = "GroveMoeForCausalLM",
   .arch = "grovemoe",
   .musts = "hidden_act=silu attention_bias=false norm_topk_prob=true decoder_sparse_step=1 use_sliding_window=false",
   .derived = "num_chunk_experts=num_experts/2 num_chunk_experts=num_local_experts/2",
   .defaults = "{" EPS6 "," THETA("10000.0") ",\"head_dim\":128}",
   .keys = grove_keys,
   .rules = grove_rules,
   .more = grove_more},
  {.name = "modeling_grove_moe.GroveMoeForCausalLM", .like = "GroveMoeForCausalLM"},
  {.name = "SmallThinkerForCausalLM",
   .arch = "smallthinker",
   .needs = "moe_ffn_hidden_size",
   .musts = "norm_topk_prob=true moe_enable_early_router=true moe_enable_secondary_experts=false",
   .derived = "num_local_experts=moe_num_primary_experts num_experts_per_tok=moe_num_active_primary_experts",
   .defaults = "{" EPS6 "," THETA("10000.0") "}",
   .keys = smallthinker_keys,
   .rules = smallthinker_rules,
   .more = smallthinker_more},
  {.name = "MapleForCausalLM",
   .arch = "maple",
   .needs = "layer_types sliding_window nope_on_global_attention",
   .musts = "hidden_act=silu num_shared_experts=0 norm_topk_prob=true nope_on_global_attention=true",
   .defaults = "{" EPS6 "," THETA("10000.0") "}",
   .keys = maple_keys,
   .rules = maple_rules,
   .more = maple_more},
  {.name = "Spark2_5ForCausalLM",
   .arch = "spark2_5",
   .needs = "layer_types sliding_window gate_attn_act_mode headwise_attn_output_gate hidden_act",
   .musts = "hidden_act=gelu gate_attn_act_mode=sigmoid headwise_attn_output_gate=true",
   .defaults = "{" EPS6 "}",
   .keys = vocab_keys,
   .rules = spark_rules,
   .more = spark_more},
  {0},
};
