// Rows of the table of classes (hf_classes.c): mixtures of experts whose layers have parts of their own, and Ernie,
// whose dense models have the same names.  DeepSeek's attention keeps a small vector for each token: the matrix that
// makes keys and values of it becomes two, and that of keys is turned, as files have them.
#include "model/hf_impl.h"

#define BLOCK "model.layers.*."
#define EXPERTS(n) \
  {BLOCK n ".experts.#.gate_proj", "blk.*.ffn_gate_exps", HF_STACK, 0}, \
  {BLOCK n ".experts.#.down_proj", "blk.*.ffn_down_exps", HF_STACK, 0}, \
  {BLOCK n ".experts.#.up_proj", "blk.*.ffn_up_exps", HF_STACK, 0}, \
  {BLOCK n ".shared_experts.gate_proj", "blk.*.ffn_gate_shexp", 0, 0}, \
  {BLOCK n ".shared_experts.down_proj", "blk.*.ffn_down_shexp", 0, 0}, \
  {BLOCK n ".shared_experts.up_proj", "blk.*.ffn_up_shexp", 0, 0}, \
  {BLOCK n ".gate", "blk.*.ffn_gate_inp", 0, 0}, \
  {BLOCK n ".gate.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0}

static const char config_name[] = "config.json";

// ---- DeepSeek -------------------------------------------------------------------------------------------------------

static const hf_rule deepseek_rules[] = {
  {BLOCK "self_attn.q_a_proj", "blk.*.attn_q_a", 0, 0},
  {BLOCK "self_attn.q_a_layernorm", "blk.*.attn_q_a_norm", 0, 0},
  {BLOCK "self_attn.q_b_proj", "blk.*.attn_q_b", 0, 0},
  {BLOCK "self_attn.kv_a_proj_with_mqa", "blk.*.attn_kv_a_mqa", 0, 0},
  {BLOCK "self_attn.kv_a_layernorm", "blk.*.attn_kv_a_norm", 0, 0},
  {BLOCK "self_attn.kv_b_proj", "blk.*.attn_k_b", HF_FIRST_TURNED, "num_attention_heads qk_nope_head_dim"},
  {BLOCK "self_attn.kv_b_proj", "blk.*.attn_v_b", HF_REST, "num_attention_heads qk_nope_head_dim"},
  EXPERTS("mlp"),
  {0},
};

static const hf_key deepseek_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"leading_dense_block_count", HF_U32, "first_k_dense_replace"},
  {"attention.q_lora_rank", HF_U32, "q_lora_rank"},
  {"attention.kv_lora_rank", HF_U32, "kv_lora_rank"},
  {"attention.value_length", HF_U32, "kv_lora_rank"},
  {"attention.value_length_mla", HF_U32, "v_head_dim"},
  {"rope.dimension_count", HF_U32, "qk_rope_head_dim"},
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size intermediate_size"},
  {"expert_shared_count", HF_U32, "n_shared_experts"},
  {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"},
  {0},
};

// YaRN with the logarithm of the factor, of which files have one weight.
static int put_log_weight(hf *h, error *err) {
  double all, own;
  bool found, found_own;
  if (hf_rope_number(h, "mscale_all_dim", NULL, &all, &found, err) ||
      hf_rope_number(h, "mscale", NULL, &own, &found_own, err))
    return -1;
  if (found && !(found_own && all == own))
    return hf_fail(h, config_name, "mscale", err, "is not mscale_all_dim, but files of %s have one key for both",
                   h->class->arch);
  if (found) gguf_head_f32(h->head, hf_arch_key(h, "rope.scaling.yarn_log_multiplier"), (float)(0.1 * all));
  return 0;
}

// In files all heads share one key and one value, which are the small vector of a token.
static int deepseek_more(hf *h, error *err) {
  uint32_t rank, turned, plain;
  const char *name;
  if (hf_need_u32(h, "kv_lora_rank", &rank, err) || hf_need_u32(h, "qk_rope_head_dim", &turned, err) ||
      hf_need_u32(h, "qk_nope_head_dim", &plain, err))
    return -1;
  gguf_head_u32(h->head, hf_arch_key(h, "attention.head_count_kv"), 1);
  gguf_head_u32(h->head, hf_arch_key(h, "attention.key_length"), rank + turned);
  gguf_head_u32(h->head, hf_arch_key(h, "attention.key_length_mla"), plain + turned);
  if (json_is_true(hf_value(h, "norm_topk_prob", &name)))
    gguf_head_bool(h->head, hf_arch_key(h, "expert_weights_norm"), true);
  return put_log_weight(h, err);
}

// ---- the rows -------------------------------------------------------------------------------------------------------

#define EPS6 "\"rms_norm_eps\":1e-6"
#define THETA(x) "\"rope_theta\":" x
#define DEEPSEEK "{" EPS6 "," THETA("10000.0") ",\"first_k_dense_replace\":0,\"kv_lora_rank\":512," \
  "\"n_shared_experts\":0}"
const hf_class hf_classes_moe[] = {
  {.name = "DeepseekV2ForCausalLM",
   .arch = "deepseek2",
   .musts = "hidden_act=silu topk_method=greedy moe_layer_freq=1",
   .defaults = DEEPSEEK,
   .no_mtp = true,
   .keys = deepseek_keys,
   .rules = deepseek_rules,
   .more = deepseek_more},
  {.name = "DeepseekV3ForCausalLM",
   .arch = "deepseek2",
   .musts = "hidden_act=silu topk_method=noaux_tc moe_layer_freq=1 rope_interleave=true",
   .defaults = DEEPSEEK,
   .no_mtp = true,
   .keys = deepseek_keys,
   .rules = deepseek_rules,
   .more = deepseek_more},
  {0},
};
