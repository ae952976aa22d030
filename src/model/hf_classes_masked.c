// The classes of diffusion models: Dream, LLaDA, LLaDA with experts, and RND1. Dream has Qwen 2's tensors, and RND1
// those of Qwen 3 with experts. LLaDA has its own names. See hf_classes.c.
#include "model/hf_impl.h"

static int put_whole(hf *h) {
  gguf_head_bool(h->head, hf_arch_key(h, "attention.causal"), false);
  return 0;
}

static int masked_more(hf *h, error *err) {
  (void)err;
  return put_whole(h);
}

// For models whose logits for a mask are at the mask's own position, not at the one before.
static int put_in_place(hf *h) {
  gguf_head_bool(h->head, "diffusion.shift_logits", false);
  return put_whole(h);
}

static int llada_more(hf *h, error *err) { return put_in_place(h) || hf_put_rope_dims(h, 1, err) ? -1 : 0; }

// Its folders do not name the mask token.
static int llada_moe_more(hf *h, error *err) {
  enum { MASK = 156895 };
  uint32_t n = 0;
  bool found;
  if (hf_u32(h, "vocab_size", &n, &found, err)) return -1;
  if (n > MASK) gguf_head_u32(h->head, "tokenizer.ggml.mask_token_id", MASK);
  return put_in_place(h);
}

static const hf_key llada_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"context_length", HF_U32, "max_sequence_length"},
  {"embedding_length", HF_U32, "d_model"},
  {"feed_forward_length", HF_U32, "mlp_hidden_size"},
  {0},
};
static const hf_key llada_moe_keys[] = {{"expert_feed_forward_length", HF_U32, "expert_intermediate_size"}, {0}};
static const hf_key rnd1_keys[] = {{"expert_feed_forward_length", HF_U32, "moe_intermediate_size"}, {0}};

#define BLOCK "model.transformer.blocks.*."
static const hf_rule llada_rules[] = {
  {"model.transformer.wte", "token_embd", 0, 0},
  {"model.transformer.ln_f", "output_norm", 0, 0},
  {"model.transformer.ff_out", "output", 0, 0},
  {BLOCK "attn_norm", "blk.*.attn_norm", 0, 0},
  {BLOCK "q_proj", "blk.*.attn_q", HF_WEAVE, "n_heads"},
  {BLOCK "k_proj", "blk.*.attn_k", HF_WEAVE, "n_kv_heads"},
  {BLOCK "v_proj", "blk.*.attn_v", 0, 0},
  {BLOCK "attn_out", "blk.*.attn_output", 0, 0},
  {BLOCK "ff_norm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "ff_proj", "blk.*.ffn_gate", 0, 0},
  {BLOCK "up_proj", "blk.*.ffn_up", 0, 0},
  {BLOCK "ff_out", "blk.*.ffn_down", 0, 0},
  {0},
};
static const hf_rule moe_rules[] = {HF_EXPERTS("model.layers.*.mlp"), {0}};

const hf_class hf_classes_masked[] = {
  {.name = "DreamModel",
   .arch = "dream",
   .musts = "hidden_act=silu use_sliding_window=false",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0}",
   .more = masked_more},
  {.name = "LLaDAModelLM",
   .arch = "llada",
   .musts = "activation_type=silu block_type=llama layer_norm_type=rms rope=true alibi=false include_bias=false "
            "weight_tying=false",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0}",
   .vocab = HF_VOCAB_LLADA,
   .alone = true,
   .keys = llada_keys,
   .rules = llada_rules,
   .more = llada_more},
  {.name = "LLaDAMoEModelLM",
   .like = "DreamModel",
   .arch = "llada-moe",
   .musts = "hidden_act=silu use_sliding_window=false qk_layernorm=true norm_topk_prob=false",
   .keys = llada_moe_keys,
   .rules = moe_rules,
   .more = llada_moe_more},
  {.name = "LLaDAMoEModel", .like = "LLaDAMoEModelLM"},
  {.name = "RND1",
   .like = "DreamModel",
   .arch = "rnd1",
   .musts = "hidden_act=silu use_sliding_window=false norm_topk_prob=true",
   .keys = rnd1_keys,
   .rules = moe_rules},
  {0},
};
