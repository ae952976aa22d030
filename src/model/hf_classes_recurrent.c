// Rows of the table of classes (hf_classes.c) for models with Mamba layers: Mamba, Falcon Mamba, Mamba 2, Jamba,
// Granite 4, Bamba and Nemotron H. A_log of a layer becomes -exp(A_log); Mamba 2's files have numbers of heads as
// columns, and the norm of each group of heads as a row.
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json";

// ---- layers ---------------------------------------------------------------------------------------------------------

#define MAMBA(in) \
  {in "in_proj", "blk.*.ssm_in", 0, 0}, {in "out_proj", "blk.*.ssm_out", 0, 0}, \
    {in "conv1d", "blk.*.ssm_conv1d", HF_SQUEEZED, 0}
// The first kind: a step size, an input and an output of each token are made from the convolution's output.
#define MAMBA1(in) \
  MAMBA(in), {in "x_proj", "blk.*.ssm_x", 0, 0}, {in "dt_proj", "blk.*.ssm_dt", 0, 0}, \
    {in "A_log", "blk.*.ssm_a", HF_MINUS_EXP, 0}, {in "D", "blk.*.ssm_d", 0, 0}
#define MAMBA2(in, groups) \
  MAMBA(in), {in "A_log", "blk.*.ssm_a", HF_IN_ROWS | HF_MINUS_EXP, 0}, {in "D", "blk.*.ssm_d", HF_IN_ROWS, 0}, \
    {in "dt_bias", "blk.*.ssm_dt.bias", 0, 0}, {in "norm", "blk.*.ssm_norm", HF_IN_ROWS, groups}

// Sets a number of config.json, in place of another key's.
static void rename_value(hf *h, const char *to, const char *from) {
  json_t *v = hf_in(h->text, from);
  if (!v) return;
  json_object_set(h->text, to, v);
  json_object_del(h->text, from);
}

// Steps of time are not limited: from 0 to infinity, which Python writes without quotes (json_from_python).
static int check_time_steps(hf *h, error *err) {
  static const char key[] = "time_step_limit";
  const json_t *v = json_object_get(h->text, key), *least = json_array_get(v, 0), *most = json_array_get(v, 1);
  const char *endless = json_string_value(json_is_object(most) ? json_object_get(most, "__float__") : most);
  if (!v || json_is_null(v)) return 0;
  if (json_array_size(v) == 2 && json_is_number(least) && json_number_value(least) == 0 && endless &&
      !strcmp(endless, "Infinity"))
    return 0;
  return hf_fail(h, config_name, key, err, "is not [0, Infinity], but files of %s have no key for it", h->class->arch);
}

// ---- Mamba and Mamba 2 ----------------------------------------------------------------------------------------------

#define NAMES \
  {"embeddings", "token_embd", 0, 0}, {"norm_f", "output_norm", 0, 0}, {"lm_head", "output", 0, 0}, \
    {"layers.*.norm", "blk.*.attn_norm", 0, 0}
static const hf_rule mamba_rules[] = {NAMES, MAMBA1("layers.*.mixer."), {0}};
static const hf_rule mamba2_rules[] = {NAMES, MAMBA2("layers.*.mixer.", "n_groups"), {0}};
#define KEYS \
  {"ssm.conv_kernel", HF_U32, "conv_kernel d_conv"}, {"ssm.state_size", HF_U32, "state_size d_state"}, \
    {"ssm.inner_size", HF_U32, "inner"}
static const hf_key mamba_keys[] = {
  KEYS,
  {"ssm.time_step_rank", HF_U32, "time_step_rank dt_rank"},
  {"ssm.dt_b_c_rms", HF_BOOL, "dt_b_c_rms"},
  {0},
};
static const hf_key mamba2_keys[] = {
  KEYS,
  {"ssm.time_step_rank", HF_U32, "heads"},
  {"ssm.group_count", HF_U32, "n_groups"},
  {0},
};

// Files have a context, heads and a dense part, which the models do not: 2^20, and none.
static int prepare_mamba(hf *h, error *err) {
  (void)err;
  rename_value(h, "rms_norm_eps", "layer_norm_epsilon");
  json_object_del(h->text, "head_dim");
  json_object_set_new(h->text, "max_position_embeddings", json_integer(1 << 20));
  json_object_set_new(h->text, "intermediate_size", json_integer(0));
  json_object_set_new(h->text, "num_attention_heads", json_integer(0));
  return 0;
}

// ---- Jamba ----------------------------------------------------------------------------------------------------------

#define BLOCK "model.layers.*."
static const hf_rule jamba_rules[] = {
  {"model.final_layernorm", "output_norm", 0, 0},
  {BLOCK "pre_ff_layernorm", "blk.*.ffn_norm", 0, 0},
  MAMBA1(BLOCK "mamba."),
  {BLOCK "mamba.dt_layernorm", "blk.*.ssm_dt_norm", 0, 0},
  {BLOCK "mamba.b_layernorm", "blk.*.ssm_b_norm", 0, 0},
  {BLOCK "mamba.c_layernorm", "blk.*.ssm_c_norm", 0, 0},
  {BLOCK "feed_forward.gate_proj", "blk.*.ffn_gate", 0, 0},
  {BLOCK "feed_forward.up_proj", "blk.*.ffn_up", 0, 0},
  {BLOCK "feed_forward.down_proj", "blk.*.ffn_down", 0, 0},
  {BLOCK "feed_forward.router", "blk.*.ffn_gate_inp", 0, 0},
  {BLOCK "feed_forward.experts.#.gate_proj", "blk.*.ffn_gate_exps", HF_STACK, 0},
  {BLOCK "feed_forward.experts.#.up_proj", "blk.*.ffn_up_exps", HF_STACK, 0},
  {BLOCK "feed_forward.experts.#.down_proj", "blk.*.ffn_down_exps", HF_STACK, 0},
  {0},
};
static const hf_key jamba_keys[] = {
  {"ssm.conv_kernel", HF_U32, "mamba_d_conv"},
  {"ssm.state_size", HF_U32, "mamba_d_state"},
  {"ssm.inner_size", HF_U32, "inner"},
  {"ssm.time_step_rank", HF_U32, "mamba_dt_rank"},
  {0},
};

// Every few layers one attends.
static int jamba_more(hf *h, error *err) {
  uint32_t every, first = 0;
  bool found;
  if (hf_need_u32(h, "attn_layer_period", &every, err) || hf_u32(h, "attn_layer_offset", &first, &found, err))
    return -1;
  if (h->n_layers > HF_LAYERS_MOST)
    return hf_fail(h, config_name, "num_hidden_layers", err, "%u is more than %d", h->n_layers, HF_LAYERS_MOST);
  hf_layers y = {h->n_layers, ARENA_ARRAY(h->arena, uint8_t, h->n_layers)};
  for (uint32_t i = first; i < y.n; i++) y.of[i] = (i - first) % every == 0;
  return hf_put_heads_of_layers(h, &y, 1, err);
}

// ---- Granite 4 ------------------------------------------------------------------------------------------------------

#define GRANITE \
  HF_WOVEN, MAMBA2(BLOCK "mamba.", "mamba_n_groups"), \
    {BLOCK "block_sparse_moe.router.layer", "blk.*.ffn_gate_inp", 0, 0}, \
    {BLOCK "block_sparse_moe.input_linear", "blk.*.ffn_gate_exps", HF_FIRST, 0}, \
    {BLOCK "block_sparse_moe.input_linear", "blk.*.ffn_up_exps", HF_REST, 0}, \
    {BLOCK "block_sparse_moe.output_linear", "blk.*.ffn_down_exps", 0, 0}
#define SHARED(end) \
  {BLOCK "shared_mlp.input_linear", "blk.*.ffn_gate" end, HF_FIRST, 0}, \
    {BLOCK "shared_mlp.input_linear", "blk.*.ffn_up" end, HF_REST, 0}, \
    {BLOCK "shared_mlp.output_linear", "blk.*.ffn_down" end, 0, 0}
static const hf_rule granite_rules[] = {GRANITE, SHARED("_shexp"), {0}};
static const hf_rule dense_rules[] = {GRANITE, SHARED(""), {0}};
#define GRANITE_KEYS \
  HF_GRANITE_KEYS, {"expert_shared_feed_forward_length", HF_U32, "shared_intermediate_size"}, \
    {"ssm.conv_kernel", HF_U32, "mamba_d_conv"}, {"ssm.state_size", HF_U32, "mamba_d_state"}, \
    {"ssm.group_count", HF_U32, "mamba_n_groups"}, {"ssm.inner_size", HF_U32, "inner"}, \
    {"ssm.time_step_rank", HF_U32, "mamba_n_heads"}
static const hf_key granite_keys[] = {GRANITE_KEYS, {0}};
static const hf_key hybrid_keys[] = {GRANITE_KEYS, {"context_length", HF_U32, "endless"}, {0}};

// Reads which layers attend (0). any: whether others do not.
static int read_attention_layers(const hf *h, hf_layers *y, bool *any, error *err) {
  if (hf_read_layers(h, "layer_types", "attention|full_attention mamba|linear_attention", true, y, err)) return -1;
  *any = memchr(y->of, 1, y->n);
  return 0;
}

int hf_all_attend(hf *h, error *err) {
  hf_layers y;
  bool any;
  if (!json_array_size(json_object_get(h->text, "layer_types"))) return 0;
  if (read_attention_layers(h, &y, &any, err)) return -1;
  return any ? hf_fail(h, "config.json", "layer_types", err, "has layers that do not attend") : 0;
}

static int granite4_more(hf *h, error *err) {
  hf_layers y;
  bool any;
  if (read_attention_layers(h, &y, &any, err) || hf_put_heads_of_layers(h, &y, 0, err)) return -1;
  gguf_head_bool(h->head, hf_arch_key(h, "rope.scaling.finetuned"), !any);
  return check_time_steps(h, err) || hf_llama_more(h, err) ? -1 : 0;
}

// Files of models without Mamba layers are of another architecture; the dense part of models without experts has
// another name.
static int granite4_prepare(hf *h, error *err) {
#define VARIANT(arch_, keys_, rules_) \
  {.name = "GraniteMoeHybridForCausalLM", .arch = arch_, .vocab = HF_VOCAB_LLAMA, .keys = keys_, .rules = rules_, \
   .more = granite4_more, .musts = "hidden_act=silu attention_bias=false position_embedding_type=rope|nope"}
  static const hf_class variants[2][2] = {
    {VARIANT("granite", granite_keys, dense_rules), VARIANT("granitemoe", granite_keys, granite_rules)},
    {VARIANT("granitehybrid", hybrid_keys, dense_rules), VARIANT("granitehybrid", hybrid_keys, granite_rules)}};
  hf_layers y;
  bool any, found;
  uint32_t experts = 0;
  if (read_attention_layers(h, &y, &any, err) || hf_u32(h, "num_local_experts", &experts, &found, err))
    return -1;
  h->class = &variants[any][experts > 0];
  return 0;
}

// ---- Bamba ----------------------------------------------------------------------------------------------------------

static const hf_rule bamba_rules[] = {
  {"model.final_layernorm", "output_norm", 0, 0},
  {BLOCK "pre_ff_layernorm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "self_attn.q_proj", "blk.*.attn_q", HF_WEAVE_HALF, "num_attention_heads"},
  {BLOCK "self_attn.k_proj", "blk.*.attn_k", HF_WEAVE_HALF, "num_key_value_heads"},
  MAMBA2(BLOCK "mamba.", "mamba_n_groups"),
  {BLOCK "feed_forward.gate_proj", "blk.*.ffn_gate", 0, 0},
  {BLOCK "feed_forward.up_proj", "blk.*.ffn_up", 0, 0},
  {BLOCK "feed_forward.down_proj", "blk.*.ffn_down", 0, 0},
  {0},
};

// Reads the list of layers that attend (kind 1).
static int read_attending(const hf *h, hf_layers *y, error *err) {
  static const char key[] = "attn_layer_indices";
  json_t *v, *list = hf_in(h->text, key);
  size_t i;
  if (h->n_layers > HF_LAYERS_MOST || !json_array_size(list))
    return hf_fail(h, config_name, key, err, "is no list, or there are more layers than %d", HF_LAYERS_MOST);
  *y = (hf_layers){h->n_layers, ARENA_ARRAY(h->arena, uint8_t, h->n_layers)};
  json_array_foreach(list, i, v) {
    json_int_t layer = json_is_integer(v) ? json_integer_value(v) : -1;
    if (layer < 0 || layer >= y->n) return hf_fail(h, config_name, key, err, "has what is no layer at %zu", i);
    y->of[layer] = 1;
  }
  return 0;
}

// Files are those of Granite's class, but positions rotate the first half of a head.
static int bamba_more(hf *h, error *err) {
  static const char count[] = "attn_rotary_emb", part[] = "partial_rotary_factor";
  const double half = 0.5;
  double share = half;
  uint32_t size, rotated;
  bool found;
  hf_layers y;
  if (read_attending(h, &y, err) || hf_head_size(h, &size, err) || hf_u32(h, count, &rotated, &found, err)) return -1;
  if (found && rotated != size / 2)
    return hf_fail(h, config_name, count, err, "%u is not half of a head, %u", rotated, size);
  if (hf_rope_number(h, part, part, &share, &found, err)) return -1;
  if (share != half) return hf_fail(h, config_name, part, err, "%g is not %g", share, half);
  gguf_head_bool(h->head, hf_arch_key(h, "rope.scaling.finetuned"), true);
  return check_time_steps(h, err) || hf_put_rope_dims(h, half, err) || hf_put_heads_of_layers(h, &y, 1, err) ? -1 : 0;
}

// ---- Nemotron H -----------------------------------------------------------------------------------------------------

// A layer is one part: Mamba 2, attention, or a dense part or experts without gates.
#define PART "layers.*.mixer."
static const hf_rule nemotron_h_rules[] = {
  NAMES,
  MAMBA2(PART, "n_groups"),
  {PART "q_proj", "blk.*.attn_q", HF_WEAVE, "num_attention_heads"},         // nothing is rotated: the order is free
  {PART "k_proj", "blk.*.attn_k", HF_WEAVE, "num_key_value_heads"},
  {PART "v_proj", "blk.*.attn_v", 0, 0},
  {PART "o_proj", "blk.*.attn_output", 0, 0},
  {PART "up_proj", "blk.*.ffn_up", 0, 0},
  {PART "down_proj", "blk.*.ffn_down", 0, 0},
  {PART "gate", "blk.*.ffn_gate_inp", 0, 0},
  {PART "gate.e_score_correction_bias", "blk.*.exp_probs_b.bias", 0, 0},
  {PART "experts.#.up_proj", "blk.*.ffn_up_exps", HF_STACK, 0},
  {PART "experts.#.down_proj", "blk.*.ffn_down_exps", HF_STACK, 0},
  {PART "shared_experts.up_proj", "blk.*.ffn_up_shexp", 0, 0},
  {PART "shared_experts.down_proj", "blk.*.ffn_down_shexp", 0, 0},
  {0},
};
#define NEMOTRON_H_KEYS \
  {"vocab_size", HF_U32, "vocab_size"}, {"context_length", HF_U32, "endless"}, \
    {"attention.layer_norm_rms_epsilon", HF_F32_KEY, "rms_norm_eps layer_norm_epsilon"}, \
    {"ssm.conv_kernel", HF_U32, "conv_kernel"}, {"ssm.state_size", HF_U32, "ssm_state_size"}, \
    {"ssm.group_count", HF_U32, "n_groups"}, {"ssm.inner_size", HF_U32, "inner"}, \
    {"ssm.time_step_rank", HF_U32, "mamba_num_heads"}
static const hf_key nemotron_h_keys[] = {NEMOTRON_H_KEYS, {0}};
static const hf_key nemotron_h_moe_keys[] = {
  NEMOTRON_H_KEYS,
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_feed_forward_length", HF_U32, "moe_shared_expert_intermediate_size"},
  {"expert_shared_count", HF_U32, "n_shared_experts"},
  {"expert_weights_norm", HF_BOOL, "norm_topk_prob"},
  {"expert_weights_scale", HF_F32_KEY, "routed_scaling_factor"},
  {0},
};

// A letter of the pattern, or the name of a layer, as such a letter; 0: unknown.
static char kind_of_layer(const json_t *name, char letter) {
  static const struct { const char *name; char letter; } kinds[] = {
    {"mamba", 'M'}, {"linear_attention", 'M'}, {"attention", '*'}, {"full_attention", '*'}, {"mlp", '-'}, {"moe", 'E'}};
  const char *text = json_string_value(name);
  for (size_t i = 0; i < COUNT(kinds); i++)
    if (text ? !strcmp(text, kinds[i].name) : letter == kinds[i].letter) return kinds[i].letter;
  return 0;
}

// The layers as letters: M, *, - or E. NULL: an error.
static char *read_parts_of_layers(const hf *h, uint32_t *n, error *err) {
  const char *key = "hybrid_override_pattern";
  const char *pattern = json_string_value(json_object_get(h->text, key));
  const json_t *list = pattern ? NULL : json_object_get(h->text, key = "layers_block_type");
  size_t all = pattern ? strlen(pattern) : json_array_size(list);
  if (!all || all > HF_LAYERS_MOST) {
    hf_fail(h, config_name, key, err, "is missing, or is not one of at most %d layers", HF_LAYERS_MOST);
    return NULL;
  }
  char *out = ARENA_ARRAY(h->arena, char, all);
  for (size_t i = 0; i < all; i++) {
    out[i] = kind_of_layer(json_array_get(list, i), pattern ? pattern[i] : 0);
    if (out[i]) continue;
    hf_fail(h, config_name, key, err, "layer %zu is of an unknown kind", i);
    return NULL;
  }
  *n = (uint32_t)all;
  return out;
}

static int nemotron_h_more(hf *h, error *err) {
  uint32_t n, width;
  const char *parts = read_parts_of_layers(h, &n, err);
  bool moe = h->class->keys == nemotron_h_moe_keys;
  if (!parts || hf_need_u32(h, moe ? "moe_intermediate_size" : "intermediate_size", &width, err)) return -1;
  if (width > INT32_MAX) return hf_fail(h, config_name, "intermediate_size", err, "%u is too much", width);
  hf_layers y = {n, ARENA_ARRAY(h->arena, uint8_t, n)};
  int32_t *widths = ARENA_ARRAY(h->arena, int32_t, n);
  for (uint32_t i = 0; i < n; i++) {
    y.of[i] = parts[i] == '*';
    widths[i] = parts[i] == 'E' || parts[i] == '-' ? (int32_t)width : 0;
  }
  gguf_head_i32s(h->head, hf_arch_key(h, "feed_forward_length"), widths, n);
  gguf_head_bool(h->head, hf_arch_key(h, "rope.scaling.finetuned"), false);
  h->rotation_read = true;                                 // nothing is rotated
  return check_time_steps(h, err) || hf_put_heads_of_layers(h, &y, 1, err) || hf_put_rope_dims(h, 1, err) ? -1 : 0;
}

// Files of models with experts are of another architecture.
static int prepare_nemotron_h(hf *h, error *err) {
#define NEMOTRON_H(arch_, keys_) \
  {.name = "NemotronHForCausalLM", .arch = arch_, .under = "backbone.", .alone = true, .own_scaling = true, \
   .keys = keys_, .rules = nemotron_h_rules, .more = nemotron_h_more, \
   .musts = "mlp_hidden_act=relu2 mamba_hidden_act=silu use_bias=false attention_bias=false mlp_bias=false " \
            "mamba_proj_bias=false use_conv_bias=true moe_latent_size=none num_nextn_predict_layers=0"}
  static const hf_class with_experts = NEMOTRON_H("nemotron_h_moe", nemotron_h_moe_keys),
                        without = NEMOTRON_H("nemotron_h", nemotron_h_keys);
  uint32_t n;
  const char *parts = read_parts_of_layers(h, &n, err);
  if (!parts) return -1;
  bool moe = memchr(parts, 'E', n);
  if (moe && memchr(parts, '-', n))
    return hf_fail(h, config_name, "hybrid_override_pattern", err, "has dense layers and experts");
  json_object_set_new(h->text, "num_hidden_layers", json_integer(n));
  h->class = moe ? &with_experts : &without;
  return 0;
}

// ---- Falcon H1 ------------------------------------------------------------------------------------------------------

// Each layer has Mamba 2 and attention side by side. Files have no keys for the folder's factors: weights take them.
static const hf_rule falcon_h1_rules[] = {
  {"model.embed_tokens", "token_embd", HF_TIMES, "times.embed"},
  {"model.final_layernorm", "output_norm", 0, 0},
  {"lm_head", "output", HF_TIMES, "times.head"},
  {BLOCK "pre_ff_layernorm.weight", "blk.*.ffn_norm", 0, 0},           // files have it without .weight
  {BLOCK "feed_forward.gate_proj", "blk.*.ffn_gate", HF_TIMES, "times.gate"},
  {BLOCK "feed_forward.up_proj", "blk.*.ffn_up", 0, 0},
  {BLOCK "feed_forward.down_proj", "blk.*.ffn_down", HF_TIMES, "times.down"},
  {BLOCK "self_attn.q_proj", "blk.*.attn_q", HF_TIMES, "times.in"},
  {BLOCK "self_attn.k_proj", "blk.*.attn_k", HF_TIMES, "times.key"},
  {BLOCK "self_attn.v_proj", "blk.*.attn_v", HF_TIMES, "times.in"},
  {BLOCK "self_attn.o_proj", "blk.*.attn_output", HF_TIMES, "times.out"},
  {BLOCK "mamba.in_proj", "blk.*.ssm_in", HF_TIMES, "times.ssm_in"},
  {BLOCK "mamba.out_proj", "blk.*.ssm_out", HF_TIMES, "times.ssm_out"},
  MAMBA2(BLOCK "mamba.", "mamba_n_groups"),
  {0},
};
static const hf_key falcon_h1_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"ssm.conv_kernel", HF_U32, "mamba_d_conv"},
  {"ssm.state_size", HF_U32, "mamba_d_state"},
  {"ssm.group_count", HF_U32, "mamba_n_groups"},
  {"ssm.inner_size", HF_U32, "mamba_d_ssm"},
  {"ssm.time_step_rank", HF_U32, "mamba_n_heads"},
  {0},
};

// A factor of config.json, or the at-th of a list of n; 1 if absent.
static int read_multiplier(const hf *h, const char *key, size_t at, size_t n, double *out, error *err) {
  const json_t *v = json_object_get(h->text, key);
  bool found;
  *out = 1;
  if (!v || json_is_null(v)) return 0;
  if (!n) return hf_number_in(h, h->text, key, out, &found, err);
  const json_t *item = json_array_get(v, at);
  if (json_array_size(v) != n || !hf_is_float(item))
    return hf_fail(h, config_name, key, err, "is not a list of %zu numbers", n);
  *out = json_number_value(item);
  return 0;
}

static void put_row_factors(hf *h, const char *key, uint64_t end, double first, double second) {
  json_t *list = json_object_get(h->text, key);
  if (!list) json_object_set_new(h->text, key, list = json_array());
  json_array_append_new(list, json_pack("[Iff]", (json_int_t)end, first, second));
}

// The input of Mamba 2 is made in five parts, each with its factor: gate, input, B, C and steps.
static int put_ssm_factors(hf *h, error *err) {
  uint32_t inner, groups, state, heads;
  double in, part;
  if (hf_need_u32(h, "mamba_d_ssm", &inner, err) || hf_need_u32(h, "mamba_n_groups", &groups, err) ||
      hf_need_u32(h, "mamba_d_state", &state, err) || hf_need_u32(h, "mamba_n_heads", &heads, err) ||
      read_multiplier(h, "ssm_in_multiplier", 0, 0, &in, err))
    return -1;
  uint64_t rows[] = {inner, inner, (uint64_t)groups * state, (uint64_t)groups * state, heads}, end = 0;
  for (size_t i = 0; i < COUNT(rows); i++) {
    if (read_multiplier(h, "ssm_multipliers", i, COUNT(rows), &part, err)) return -1;
    put_row_factors(h, "times.ssm_in", end += rows[i] & INT32_MAX, in, part);
  }
  return 0;
}

static int prepare_falcon_h1(hf *h, error *err) {
  static const struct { const char *to, *from, *also; size_t at, n; } factors[] = {
    {"times.embed", "embedding_multiplier", "", 0, 0}, {"times.head", "lm_head_multiplier", "", 0, 0},
    {"times.gate", "mlp_multipliers", "", 0, 2}, {"times.down", "mlp_multipliers", "", 1, 2},
    {"times.in", "attention_in_multiplier", "", 0, 0},
    {"times.key", "key_multiplier", "attention_in_multiplier", 0, 0},
    {"times.out", "attention_out_multiplier", "", 0, 0}, {"times.ssm_out", "ssm_out_multiplier", "", 0, 0}};
  const char *name;
  if (json_is_true(hf_value(h, "mamba_rms_norm", &name)) &&
      !json_is_false(hf_value(h, "mamba_norm_before_gate", &name)))
    return hf_fail(h, config_name, "mamba_norm_before_gate", err, "is not false: files of falcon-h1 have gates first");
  for (size_t i = 0; i < COUNT(factors); i++) {
    double first, second;
    if (read_multiplier(h, factors[i].from, factors[i].at, factors[i].n, &first, err) ||
        read_multiplier(h, factors[i].also, 0, 0, &second, err))
      return -1;
    put_row_factors(h, factors[i].to, INT32_MAX, first, second);
  }
  return put_ssm_factors(h, err);
}

// ---- the rows -------------------------------------------------------------------------------------------------------

const hf_class hf_classes_recurrent[] = {
  {.name = "MambaForCausalLM",
   .arch = "mamba",
   .under = "backbone.",
   .alone = true,
   .prepare = prepare_mamba,
   .musts = "hidden_act=silu use_bias=false use_conv_bias=true mixer_rms_eps=1e-06",
   .defaults = "{\"conv_kernel\":4,\"state_size\":16,\"layer_norm_epsilon\":1e-5,\"dt_b_c_rms\":false}",
   .derived = "hidden_size=d_model inner=intermediate_size inner=d_inner inner=2*hidden_size",
   .keys = mamba_keys,
   .rules = mamba_rules},
  {.name = "FalconMambaForCausalLM",
   .like = "MambaForCausalLM",
   .defaults = "{\"conv_kernel\":4,\"state_size\":16,\"layer_norm_epsilon\":1e-5,\"dt_b_c_rms\":true}"},
  {.name = "Mamba2ForCausalLM",
   .like = "MambaForCausalLM",
   .arch = "mamba2",
   .musts = "hidden_act=silu use_bias=false use_conv_bias=true rms_norm=true",
   .defaults = "{\"conv_kernel\":4,\"state_size\":128,\"layer_norm_epsilon\":1e-5,\"n_groups\":1,\"expand\":2,"
               "\"head_dim\":64}",
   .derived = "hidden_size=d_model inner=intermediate_size inner=d_inner inner=expand*hidden_size heads=inner/head_dim",
   .keys = mamba2_keys,
   .rules = mamba2_rules,
   .more = check_time_steps},
  {.name = "FalconH1ForCausalLM",
   .arch = "falcon-h1",
   .own_scaling = true,
   .head_dim = true,
   .prepare = prepare_falcon_h1,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false projectors_bias=false mamba_proj_bias=false "
            "tie_word_embeddings=false",
   .defaults =
     "{\"rms_norm_eps\":1e-5,\"rope_theta\":100000.0,\"mamba_d_conv\":4,\"mamba_n_groups\":1,\"mamba_expand\":2}",
   .derived = "mamba_d_ssm=mamba_expand*hidden_size",
   .keys = falcon_h1_keys,
   .rules = falcon_h1_rules,
   .more = check_time_steps},
  {.name = "JambaForCausalLM",
   .arch = "jamba",
   .vocab = HF_VOCAB_LLAMA,
   .musts = "hidden_act=silu mamba_conv_bias=true mamba_proj_bias=false",
   .defaults = "{\"rms_norm_eps\":1e-6,\"mamba_d_conv\":4,\"mamba_d_state\":16,\"mamba_expand\":2}",
   .derived = "inner=mamba_expand*hidden_size",
   .keys = jamba_keys,
   .rules = jamba_rules,
   .more = jamba_more},
  {.name = "GraniteMoeHybridForCausalLM",
   .prepare = granite4_prepare,
   .needs = "attention_multiplier",
   .defaults = "{\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,\"mamba_d_conv\":4,\"mamba_n_groups\":1,"
               "\"mamba_expand\":2}",
   .derived = "inner=mamba_n_heads*mamba_d_head inner=mamba_expand*hidden_size endless=1048576"},
  {.name = "BambaForCausalLM",
   .arch = "granitehybrid",
   .needs = "attn_layer_indices",
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false mamba_n_groups=1",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"mamba_d_conv\":4,\"mamba_n_groups\":1,"
               "\"mamba_expand\":2}",
   .derived = "inner=mamba_n_heads*mamba_d_head inner=mamba_expand*hidden_size",
   .keys = granite_keys,
   .rules = bamba_rules,
   .more = bamba_more},
  {.name = "NemotronHForCausalLM",
   .prepare = prepare_nemotron_h,
   .defaults = "{\"layer_norm_epsilon\":1e-5,\"conv_kernel\":4,\"n_groups\":8}",
   .derived = "head_dim=attention_head_dim inner=mamba_num_heads*mamba_head_dim endless=1048576"},
  {0},
};
