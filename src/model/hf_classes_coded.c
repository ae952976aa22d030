// Rows of the table of classes (hf_classes.c) for decoders whose class is Python code in published folders: relatives
// of Llama (Nanbeige, Pangu, Maincoder, PLM, IQuest Coder), mixtures (Sarvam, GroveMoE, SmallThinker, Maple, Grok), and
// Spark 2.5, JAIS 1, Talkie and ChatGLM.
#include <float.h>
#include <math.h>
#include <string.h>
#include "model/format.h"
#include "model/hf_impl.h"
#include "model/quantise.h"

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
  if (list && !json_is_null(list) && json_array_size(list) != h->n_layers)
    return hf_fail(h, config_name, key, err, "is not a list of %u layers", h->n_layers);
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
  if (h->n_layers > HF_LAYERS_MOST)
    return hf_fail(h, config_name, "num_hidden_layers", err, "%u is more than %d", h->n_layers, HF_LAYERS_MOST);
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

// ---- Grok -----------------------------------------------------------------------------------------------------------

#define GROK_1 "transformer.decoder_layer.*."
static const hf_rule grok_rules[] = {
  {"transformer.in_out_embed", "token_embd", 0, 0},
  {"transformer.rms_norm", "output_norm", 0, 0},
  {GROK_1 "rms_norm", "blk.*.attn_norm", 0, 0},
  {GROK_1 "rms_norm_1", "blk.*.attn_output_norm", 0, 0},
  {GROK_1 "rms_norm_2", "blk.*.ffn_norm", 0, 0},
  {GROK_1 "rms_norm_3", "blk.*.layer_output_norm", 0, 0},
  {GROK_1 "multi_head_attention.query", "blk.*.attn_q", 0, 0},
  {GROK_1 "multi_head_attention.key", "blk.*.attn_k", 0, 0},
  {GROK_1 "multi_head_attention.value", "blk.*.attn_v", 0, 0},
  {GROK_1 "multi_head_attention.linear", "blk.*.attn_output", 0, 0},
  {GROK_1 "router", "blk.*.ffn_gate_inp", 0, 0},
  {GROK_1 "moe.#.linear", "blk.*.ffn_gate_exps", HF_STACK, 0},
  {GROK_1 "moe.#.linear_1", "blk.*.ffn_down_exps", HF_STACK, 0},
  {GROK_1 "moe.#.linear_v", "blk.*.ffn_up_exps", HF_STACK, 0},
  {BLOCK "pre_attn_norm", "blk.*.attn_norm", 0, 0},
  {BLOCK "post_attn_norm", "blk.*.attn_output_norm", 0, 0},
  {BLOCK "pre_moe_norm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "post_moe_norm", "blk.*.post_ffw_norm", 0, 0},
  HF_EXPERTS_W(BLOCK "block_sparse_moe"),
  {0},
};
static const hf_key grok_keys[] = {{"attn_logit_softcapping", HF_F32_KEY, "attn_logit_softcapping"},
                                   {"router_logit_softcapping", HF_F32_KEY, "router_logit_softcapping"},
                                   {"embedding_scale", HF_F32_KEY, "embedding_multiplier_scale"},
                                   {"logit_scale", HF_F32_KEY, "output_multiplier_scale"},
                                   {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
                                   {0}};

// The scaling for long contexts is not in a group of its own. Its type "original" is YaRN's, too.
static int put_grok_scaling(hf *h, error *err) {
  static const hf_key keys[] = {
    {"rope.scaling.factor", HF_F32_KEY, "scaling_factor"},
    {"rope.scaling.original_context_length", HF_U32, "original_max_position_embeddings"},
    {"rope.scaling.yarn_ext_factor", HF_F32_KEY, "extrapolation_factor"},
    {"rope.scaling.yarn_attn_factor", HF_F32_KEY, "attn_factor"},
    {"rope.scaling.yarn_beta_fast", HF_F32_KEY, "beta_fast"},
    {"rope.scaling.yarn_beta_slow", HF_F32_KEY, "beta_slow"},
    {0},
  };
  const json_t *said = hf_in(h->text, "rope_type");
  const char *type = json_string_value(said);
  if (!said || (type && !strcmp(type, "default"))) return 0;
  if (!type || (strcmp(type, "yarn") && strcmp(type, "original")))
    return hf_fail(h, config_name, "rope_type", err, "'%.40s' is not known", type ? type : "what is no text");
  if (hf_need_keys(h, "scaling_factor original_max_position_embeddings extrapolation_factor attn_factor beta_fast "
                      "beta_slow", err))
    return -1;
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "yarn", 4);
  return hf_put_class_keys(h, keys, err);
}

static int grok_more(hf *h, error *err) {
  double scale, cap = 0;
  uint32_t size, length = 0;
  bool found;
  if (put_grok_scaling(h, err) || hf_f64(h, "final_logit_softcapping", &cap, &found, err) ||
      hf_u32(h, "attn_temperature_len", &length, &found, err) ||
      hf_f64(h, "attn_output_multiplier", &scale, &found, err) || hf_head_size(h, &size, err))
    return -1;
  if (!found && !size) return hf_fail(h, config_name, "head_dim", err, "is 0");
  if (!found) scale = 1 / sqrt(size);
  if (cap != 0) gguf_head_f32(h->head, hf_arch_key(h, "final_logit_softcapping"), (float)cap);
  if (length) gguf_head_u32(h->head, hf_arch_key(h, "attention.temperature_length"), length);
  gguf_head_f32(h->head, hf_arch_key(h, "attention.output_scale"), (float)scale);
  return 0;
}

// ---- JAIS -----------------------------------------------------------------------------------------------------------

// Embeddings and logits are scaled; files have no keys for that, so the matrices take the factors. A folder whose head
// is the embeddings has one matrix ("tied", see jais_name), which becomes two.
#define JAIS "h.*."
static const hf_rule jais_rules[] = {
  {"wte", "token_embd", HF_TIMES, "times.embed"},
  {"tied", "token_embd", HF_TIMES, "times.embed"},
  {"tied", "output", HF_TIMES, "times.head"},
  {"lm_head", "output", HF_TIMES, "times.head"},
  {"ln_f", "output_norm", 0, 0},
  {"relative_pe.slopes", NULL, HF_SKIP, 0},
  {JAIS "attn.bias", NULL, HF_SKIP, 0},                    // the causal mask
  {JAIS "attn.masked_bias", NULL, HF_SKIP, 0},
  {JAIS "ln_1", "blk.*.attn_norm", 0, 0},
  {JAIS "ln_2", "blk.*.ffn_norm", 0, 0},
  {JAIS "attn.c_attn", "blk.*.attn_qkv", HF_TURNED, 0},
  {JAIS "attn.c_proj", "blk.*.attn_output", HF_TURNED, 0},
  {JAIS "mlp.c_fc", "blk.*.ffn_up", HF_TURNED, 0},
  {JAIS "mlp.c_fc2", "blk.*.ffn_gate", HF_TURNED, 0},
  {JAIS "mlp.c_proj", "blk.*.ffn_down", HF_TURNED, 0},
  {0},
};

static const hf_source *source_of(const hf *h, const char *name) {
  void *found;
  return smap_get(&h->by_name, name, strlen(name), &found) ? found : NULL;
}

static const char *jais_name(const hf *h, const char *name) {
  static const char start[] = "transformer.";
  if (!strncmp(name, start, sizeof start - 1)) name += sizeof start - 1;
  return strcmp(name, "wte.weight") || source_of(h, "lm_head.weight") ? name : "tied.weight";
}

// Sets a factor of all rows for HF_TIMES.
static void put_factor(hf *h, const char *key, double factor) {
  json_object_set_new(h->text, key, json_pack("[[Iff]]", (json_int_t)INT32_MAX, factor, 1.0));
}

// The first slope of ALiBi gives the greatest one's exponent.
static int put_slopes(hf *h, error *err) {
  const hf_source *s = source_of(h, "transformer.relative_pe.slopes");
  uint32_t heads, closest = 1;
  float bias = 8, first;
  if (!s) s = source_of(h, "relative_pe.slopes");
  if (hf_need_u32(h, "n_head", &heads, err)) return -1;
  while (closest <= heads / 2) closest *= 2;
  if (s && (!s->format || s->scale || s->packed || s->begin == s->end || s->format->block != 1))
    return hf_fail(h, config_name, "n_head", err, "the folder's slopes are no numbers");
  if (s) {
    floats_from(s->format, s->data, 1, &first);
    bias = (float)-rint(log2((double)first) * closest);
  }
  if (!(bias > 0 && bias <= 64)) return hf_fail(h, config_name, "n_head", err, "the folder's slopes are not ALiBi's");
  gguf_head_f32(h->head, hf_arch_key(h, "attention.max_alibi_bias"), bias);
  return 0;
}

static int jais_more(hf *h, error *err) {
  double embed, head, width;
  bool found, alpha;
  if (hf_f64(h, "mup_embeddings_scale embeddings_scale", &embed, &found, err)) return -1;
  if (!found) return hf_fail(h, config_name, "embeddings_scale", err, "is missing");
  if (hf_f64(h, "mup_output_alpha", &head, &alpha, err) ||
      hf_f64(h, alpha ? "mup_width_scale" : "width_scale", &width, &found, err))
    return -1;
  if (!found) return hf_fail(h, config_name, alpha ? "mup_width_scale" : "width_scale", err, "is missing");
  put_factor(h, "times.embed", embed);
  put_factor(h, "times.head", alpha ? head * width : width);
  return put_slopes(h, err);
}

// ---- Talkie ---------------------------------------------------------------------------------------------------------

#define TALKIE "model.blocks.*."
static const hf_rule talkie_rules[] = {
  {"model.embed", "token_embd", 0, 0},
  {"lm_head.weight", "output.weight", 0, 0},
  {"lm_head", "output.weight", 0, 0},                      // folders have it without .weight
  {"lm_head_gain.w_g", NULL, HF_SKIP, 0},                  // becomes a key
  {TALKIE "attn.attn_query", "blk.*.attn_q", HF_TIMES, "times.query"},
  {TALKIE "attn.attn_key", "blk.*.attn_k", HF_TIMES, "times.key"},
  {TALKIE "attn.attn_value", "blk.*.attn_v", 0, 0},
  {TALKIE "attn.attn_resid", "blk.*.attn_output", 0, 0},
  {TALKIE "attn.head_gain.head_g", "blk.*.attn_q_norm.weight", HF_IN_ROWS, 0},
  {TALKIE "attn_gain.a_g", "blk.*.attn_output.scale", 0, 0},
  {TALKIE "mlp_gain.a_g", "blk.*.ffn_down.scale", 0, 0},
  {TALKIE "embed_skip.a_g", "blk.*.layer_output_scale.weight", 0, 0},
  {TALKIE "mlp.mlp_gate", "blk.*.ffn_gate", 0, 0},
  {TALKIE "mlp.mlp_linear", "blk.*.ffn_up", 0, 0},
  {TALKIE "mlp.mlp_resid", "blk.*.ffn_down", 0, 0},
  {0},
};

// Positions rotate the other way than in files: the second half of each head's rows changes its sign.
static int put_half_signs(hf *h, const char *key, const char *heads, error *err) {
  uint32_t n, size;
  if (hf_need_u32(h, heads, &n, err) || hf_need_u32(h, "head_dim", &size, err)) return -1;
  if (n > 1 << 16 || size < 2 || size > 1 << 16)
    return hf_fail(h, config_name, "head_dim", err, "%u heads of %u elements are no such", n, size);
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++) {
    json_int_t first = (json_int_t)i * size;
    json_array_append_new(list, json_pack("[Iff]", first + size / 2, 1.0, 1.0));
    json_array_append_new(list, json_pack("[Iff]", first + size, -1.0, 1.0));
  }
  json_object_set_new(h->text, key, list);
  return 0;
}

static int talkie_more(hf *h, error *err) {
  const hf_source *s = source_of(h, "lm_head_gain.w_g");
  float gain;
  if (!s || !s->format || s->scale || s->packed || s->end - s->begin != s->format->bytes)
    return error_set(err, "%s: the folder has no lm_head_gain.w_g with one number", h->shown);
  floats_from(s->format, s->data, 1, &gain);
  gguf_head_f32(h->head, hf_arch_key(h, "logit_scale"), gain);
  gguf_head_f32(h->head, hf_arch_key(h, "attention.layer_norm_rms_epsilon"), FLT_EPSILON);       // as torch's function
  return put_half_signs(h, "times.query", "num_attention_heads", err) ||
             put_half_signs(h, "times.key", "num_key_value_heads num_attention_heads", err)
           ? -1
           : 0;
}

// ---- ChatGLM --------------------------------------------------------------------------------------------------------

#define CHATGLM "encoder.layers.*."
static const hf_rule chatglm_rules[] = {
  {"embedding.word_embeddings", "token_embd", 0, 0},
  {"output_layer", "output", 0, 0},
  {"encoder.final_layernorm", "output_norm", 0, 0},
  {"rotary_pos_emb.inv_freq", NULL, HF_SKIP, 0},
  {CHATGLM "input_layernorm", "blk.*.attn_norm", 0, 0},
  {CHATGLM "post_attention_layernorm", "blk.*.ffn_norm", 0, 0},
  {CHATGLM "self_attention.query_key_value", "blk.*.attn_qkv", 0, 0},
  {CHATGLM "self_attention.dense", "blk.*.attn_output", 0, 0},
  {CHATGLM "mlp.dense_h_to_4h", "blk.*.ffn_up", 0, 0},
  {CHATGLM "mlp.dense_4h_to_h", "blk.*.ffn_down", 0, 0},
  {0},
};
static const hf_key chatglm_keys[] = {{"attention.layer_norm_rms_epsilon", HF_F32_KEY, "layernorm_epsilon"}, {0}};

// Files have no key for the size of a head, which has to be the width divided by the heads.
static int prepare_old_glm(hf *h, error *err) {
  uint32_t width, heads, size;
  bool found;
  json_t *padded = hf_in(h->text, "padded_vocab_size");
  if (padded) json_object_set(h->text, "vocab_size", padded);
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "num_attention_heads", &heads, err) ||
      hf_u32(h, "kv_channels", &size, &found, err))
    return -1;
  if (!found || size == width / heads) return 0;
  return hf_fail(h, config_name, "kv_channels", err, "%u is not the width divided by the heads, %u", size,
                 width / heads);
}

static int chatglm_more(hf *h, error *err) {
  double ratio = 1, base = 10000;
  bool found;
  if (hf_f64(h, "rope_ratio", &ratio, &found, err)) return -1;
  gguf_head_f32(h->head, hf_arch_key(h, "rope.freq_base"), (float)(base * ratio));
  return hf_put_rope_dims(h, 0.5, err);
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
  {.name = "GrokForCausalLM",
   .arch = "grok",
   .needs = "embedding_multiplier_scale output_multiplier_scale",
   .musts = "hidden_act=gelu|gelu_new|gelu_pytorch_tanh",
   .defaults = "{" EPS5 "," THETA("10000.0") ",\"attn_logit_softcapping\":30.0,\"router_logit_softcapping\":30.0}",
   .keys = grok_keys,
   .rules = grok_rules,
   .more = grok_more},
  {.name = "Grok1ForCausalLM", .like = "GrokForCausalLM"},
  {.name = "JAISLMHeadModel",
   .arch = "jais",
   .alone = true,
   .rename = jais_name,
   .needs = "activation_function position_embedding_type n_inner",
   .musts = "activation_function=swiglu position_embedding_type=alibi scale_attn_weights=true "
            "scale_attn_by_inverse_layer_idx=false scale_qk_dot_by_d=true mup_scale_qk_dot_by_d=true "
            "alibi_scaling=none add_cross_attention=false",
   .defaults = "{\"layer_norm_epsilon\":1e-5}",
   .rules = jais_rules,
   .more = jais_more},
  {.name = "TalkieForCausalLM",
   .arch = "talkie",
   .alone = true,
   .needs = "head_dim",
   .rules = talkie_rules,
   .defaults = "{" THETA("10000.0") "}",
   .more = talkie_more},
  {.name = "ChatGLMModel",
   .arch = "chatglm",
   .vocab = HF_VOCAB_CHATGLM,
   .alone = true,
   .under = "transformer.",
   .needs = "num_attention_heads",
   .musts = "rmsnorm=true post_layer_norm=true add_bias_linear=false multi_query_attention=true original_rope=true "
            "apply_residual_connection_post_layernorm=false prefix_projection=false pre_seq_len=none",
   .derived = "num_key_value_heads=multi_query_group_num max_position_embeddings=seq_length "
              "max_position_embeddings=hidden_size intermediate_size=ffn_hidden_size intermediate_size=4*hidden_size",
   .defaults = "{\"layernorm_epsilon\":1e-5}",
   .prepare = prepare_old_glm,
   .keys = chatglm_keys,
   .rules = chatglm_rules,
   .more = chatglm_more},
  {.name = "ChatGLMForConditionalGeneration", .like = "ChatGLMModel"},
  {0},
};
