// The table of classes: how a transformers class becomes a GGUF file. A class is a row: its architecture, its own keys,
// the names of its tensors, and a function for the rest. Rules for all classes come first. Default values that a class
// uses if config.json lacks them are JSON in its row.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "model/hf_impl.h"

// ---- values of config.json ------------------------------------------------------------------------------------------

static const char config_name[] = "config.json";

json_t *hf_in(const json_t *group, const char *key) {
  json_t *v = json_object_get(group, key);
  return json_is_null(v) ? NULL : v;
}

json_t *hf_value(const hf *h, const char *names, const char **name) {
  *name = names;
  for (const char *at = names; *at;) {
    size_t n = strcspn(at, " ");
    *name = arena_strndup(h->arena, at, n);
    json_t *v = hf_in(h->text, *name);
    if (v) return v;
    at += n + strspn(at + n, " ");
  }
  return NULL;
}

int hf_u32(const hf *h, const char *names, uint32_t *out, bool *found, error *err) {
  const char *name;
  const json_t *v = hf_value(h, names, &name);
  *found = v;
  if (!v) return 0;
  if (!json_is_integer(v)) return hf_fail(h, config_name, name, err, "is not a whole number");
  json_int_t n = json_integer_value(v);
  if (n < 0 || n > UINT32_MAX)
    return hf_fail(h, config_name, name, err, "%" JSON_INTEGER_FORMAT " is not from 0 to %u", n, UINT32_MAX);
  *out = (uint32_t)n;
  return 0;
}

int hf_need_u32(const hf *h, const char *names, uint32_t *out, error *err) {
  bool found;
  if (hf_u32(h, names, out, &found, err)) return -1;
  if (!found || !*out)
    return hf_fail(h, config_name, arena_strndup(h->arena, names, strcspn(names, " ")), err,
                   found ? "is 0" : "is missing");
  return 0;
}

int hf_need_i32(const hf *h, const char *names, int32_t *out, error *err) {
  uint32_t n;
  if (hf_need_u32(h, names, &n, err)) return -1;
  if (n > INT32_MAX)
    return hf_fail(h, config_name, arena_strndup(h->arena, names, strcspn(names, " ")), err, "%u is too many", n);
  *out = (int32_t)n;
  return 0;
}

int hf_need_keys(const hf *h, const char *names, error *err) {
  for (const char *at = names; *at; at += strspn(at, " ")) {
    size_t n = strcspn(at, " ");
    const char *name = arena_strndup(h->arena, at, n);
    if (!hf_in(h->text, name)) return hf_fail(h, config_name, name, err, "is missing");
    at += n;
  }
  return 0;
}

int hf_put_computed(hf *h, const char *key, uint64_t value, const char *of, error *err) {
  if (value > INT32_MAX)
    return hf_fail(h, config_name, of, err, "gives %s %" PRIu64 ", which is too much", key, value);
  gguf_head_u32(h->head, hf_arch_key(h, key), (uint32_t)value);
  return 0;
}

int hf_number_in(const hf *h, const json_t *in, const char *key, double *out, bool *found, error *err) {
  const json_t *v = hf_in(in, key);
  *found = v;
  if (!*found) return 0;
  if (!json_is_number(v)) return hf_fail(h, config_name, key, err, "is not a number");
  *out = json_number_value(v);
  return hf_is_float(v) ? 0 : hf_fail(h, config_name, key, err, "is not a finite number of 32 bits");
}

bool hf_is_float(const json_t *v) {
  return json_is_number(v) && fabs(json_number_value(v)) <= (double)FLT_MAX;
}

int hf_f64(const hf *h, const char *names, double *out, bool *found, error *err) {
  const char *name;
  *found = hf_value(h, names, &name);
  return *found ? hf_number_in(h, h->text, name, out, found, err) : 0;
}

const char *hf_arch_key(const hf *h, const char *key) {
  return arena_printf(h->arena, "%s.%s", h->class->arch, key);
}

// ---- common to all classes ------------------------------------------------------------------------------------------

static const hf_key common_keys[] = {
  {"block_count", HF_LAYERS, "n_layers num_hidden_layers n_layer num_layers"},
  {"context_length", HF_U32,
   "max_position_embeddings n_ctx n_positions max_length max_sequence_length model_max_length"},
  {"embedding_length", HF_U32, "hidden_size n_embd dim"},
  {"feed_forward_length", HF_U32,
   "prefix_dense_intermediate_size dense_intermediate_size intermediate_size n_inner hidden_dim"},
  {"attention.head_count", HF_U32, "num_attention_heads n_head n_heads"},
  {"attention.head_count_kv", HF_U32, "num_key_value_heads n_kv_heads"},
  {"attention.layer_norm_rms_epsilon", HF_F32_KEY, "rms_norm_eps norm_eps"},
  {"attention.layer_norm_epsilon", HF_F32_KEY, "layer_norm_eps layer_norm_epsilon norm_epsilon"},
  {"expert_count", HF_U32, "num_local_experts num_experts n_routed_experts"},
  {"expert_used_count", HF_U32, "num_experts_per_tok num_experts_per_token top_k_experts"},
  {"expert_group_count", HF_U32, "n_group"},
  {"expert_group_used_count", HF_U32, "topk_group"},
  {"attention.key_length", HF_U32, "head_dim"},
  {"attention.value_length", HF_U32, "head_dim"},
  {0},
};

#define BLOCK "model.layers.*."
static const hf_rule common_rules[] = {
  {"model.embed_tokens", "token_embd", 0, 0},
  {"model.norm", "output_norm", 0, 0},
  {"lm_head", "output", 0, 0},
  {BLOCK "input_layernorm", "blk.*.attn_norm", 0, 0},
  {BLOCK "post_attention_layernorm", "blk.*.ffn_norm", 0, 0},
  {BLOCK "self_attn.q_proj", "blk.*.attn_q", 0, 0},
  {BLOCK "self_attn.k_proj", "blk.*.attn_k", 0, 0},
  {BLOCK "self_attn.v_proj", "blk.*.attn_v", 0, 0},
  {BLOCK "self_attn.o_proj", "blk.*.attn_output", 0, 0},
  {BLOCK "self_attn.q_norm", "blk.*.attn_q_norm", 0, 0},
  {BLOCK "self_attn.k_norm", "blk.*.attn_k_norm", 0, 0},
  {BLOCK "mlp.gate_proj", "blk.*.ffn_gate", 0, 0},
  {BLOCK "mlp.up_proj", "blk.*.ffn_up", 0, 0},
  {BLOCK "mlp.down_proj", "blk.*.ffn_down", 0, 0},
  {BLOCK "self_attn.rotary_emb.inv_freq", NULL, HF_SKIP, 0},
  {0},
};

// ---- particular classes ---------------------------------------------------------------------------------------------

// The pattern is a number, or a letter for each layer of a group.
int hf_check_pattern(const hf *h, uint32_t every, error *err) {
  const char *name;
  const json_t *v = hf_value(h, "sliding_window_pattern _sliding_window_pattern", &name);
  const char *letters = json_string_value(v);
  bool same = letters ? strlen(letters) == every && strspn(letters, "L") == every - 1 && letters[every - 1] == 'G'
                      : json_is_integer(v) && json_integer_value(v) == every;
  if (!v || same || json_array_size(json_object_get(h->text, "layer_types"))) return 0;
  return hf_fail(h, config_name, name, err, "is not %u, and layer_types is missing", every);
}

// The number of a name in "a|b c": b is of kind 0. -1: unknown.
static int layer_kind(const char *kinds, const char *name) {
  for (int kind = 0; *kinds && name; kind++) {
    size_t n = strcspn(kinds, " ");
    for (size_t at = 0; at < n; at++) {
      size_t end = at + strcspn(kinds + at, "| ");
      if (strlen(name) == end - at && !memcmp(name, kinds + at, end - at)) return kind;
      at = end;
    }
    kinds += n + strspn(kinds + n, " ");
  }
  return -1;
}

int hf_read_layers(const hf *h, const char *key, const char *kinds, bool needed, hf_layers *out, error *err) {
  const json_t *list = json_object_get(h->text, key);
  size_t n = json_array_size(list);
  out->of = NULL;
  if (hf_need_u32(h, "num_hidden_layers", &out->n, err)) return -1;
  if (out->n > HF_LAYERS_MOST || ((n || needed) && n != out->n))
    return hf_fail(h, config_name, key, err, "is not a list of %u layers, of %d at most", out->n, HF_LAYERS_MOST);
  if (!n) return 0;
  out->of = ARENA_ARRAY(h->arena, uint8_t, n);
  for (size_t i = 0; i < n; i++) {
    const char *name = json_string_value(json_array_get(list, i));
    int kind = layer_kind(kinds, name);
    if (kind < 0) return hf_fail(h, config_name, key, err, "has '%.40s'", name ? name : "what is no text");
    out->of[i] = (uint8_t)kind;
  }
  return 0;
}

int hf_name_layers(hf *h, const char *from, const char *to, const char *kinds, error *err) {
  json_t *list = json_object_get(h->text, from), *v, *names;
  const char *one = strchr(kinds, ' ') + 1;
  size_t i;
  if (!json_array_size(list)) return 0;
  json_object_set_new(h->text, to, names = json_array());
  json_array_foreach(list, i, v) {
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    if (n != 0 && n != 1) return hf_fail(h, config_name, from, err, "has what is neither 0 nor 1 at %zu", i);
    json_array_append_new(names, n ? json_string(one) : json_stringn(kinds, (size_t)(one - kinds - 1)));
  }
  return 0;
}

int hf_put_heads_of_layers(hf *h, const hf_layers *y, uint8_t attends, error *err) {
  int32_t heads;
  if (hf_need_i32(h, "num_key_value_heads", &heads, err)) return -1;
  int32_t *each = ARENA_ARRAY(h->arena, int32_t, y->n);
  for (uint32_t i = 0; i < y->n; i++) each[i] = y->of[i] == attends ? heads : 0;
  gguf_head_i32s(h->head, hf_arch_key(h, "attention.head_count_kv"), each, y->n);
  return 0;
}

int hf_put_windows(hf *h, uint32_t every, error *err) {
  uint32_t window;
  hf_layers y;
  bool found;
  if (hf_u32(h, "sliding_window", &window, &found, err)) return -1;
  if (!found || !window) return 0;
  if (hf_check_pattern(h, every, err) ||
      hf_read_layers(h, "layer_types", "full_attention sliding_attention", false, &y, err))
    return -1;
  bool *near = ARENA_ARRAY(h->arena, bool, y.n);
  for (uint32_t i = 0; i < y.n; i++) near[i] = y.of ? y.of[i] : (i + 1) % every != 0;
  gguf_head_u32(h->head, hf_arch_key(h, "attention.sliding_window"), window);
  gguf_head_bools(h->head, hf_arch_key(h, "attention.sliding_window_pattern"), near, y.n);
  return 0;
}

int hf_check_equal(const hf *h, const char *key, const char *must, error *err) {
  uint32_t a, b;
  if (hf_need_u32(h, key, &a, err) || hf_need_u32(h, must, &b, err)) return -1;
  return a == b ? 0 : hf_fail(h, config_name, key, err, "%u is not %s, %u", a, must, b);
}

int hf_check_layers(hf *h, uint32_t every, uint32_t first, error *err) {
  json_t *types = json_object_get(h->text, "layer_types"), *v;
  size_t i;
  json_array_foreach(types, i, v) {
    const char *type = json_string_value(v),
               *must = every && i % every != first ? "sliding_attention" : "full_attention";
    if (!type || strcmp(type, must))
      return hf_fail(h, config_name, "layer_types", err,
                     "has '%.40s' at %zu, but layers of %s are of other kinds there", type ? type : "what is no text",
                     i, h->class->arch);
  }
  return 0;
}

static int every_fourth_full(hf *h, error *err) { return hf_put_windows(h, 4, err); }
static int exaone4_more(hf *h, error *err) { return hf_put_windows(h, 4, err) || hf_put_llama3(h, err) ? -1 : 0; }
static int every_second_full(hf *h, error *err) { return hf_check_layers(h, 2, 1, err); }
int hf_all_full(hf *h, error *err) { return hf_check_layers(h, 1, 0, err); }

// Embedding models are saved under classes that predict, too (jina-code-embeddings, Qwen3-Embedding).
static int qwen_more(hf *h, error *err) { return hf_all_full(h, err) || hf_put_pooling(h, err) ? -1 : 0; }

int hf_check_positions(hf *h, uint32_t every, error *err) {
  static const char key[] = "no_rope_layers";
  json_t *list = json_object_get(h->text, key), *v;
  size_t i;
  json_array_foreach(list, i, v)
    if (!json_is_integer(v) || (json_integer_value(v) != 0) != ((i + 1) % every != 0))
      return hf_fail(h, config_name, key, err, "has another value than %d at %zu, but files of %s have no key for it",
                     (i + 1) % every != 0, i, h->class->arch);
  return 0;
}

static int smollm3_more(hf *h, error *err) {
  return hf_check_positions(h, 4, err) || hf_all_full(h, err) || hf_llama_more(h, err) ? -1 : 0;
}

static int cohere_more(hf *h, error *err) {
  const char *type = hf_rope_type(h);
  (void)err;
  if (!type || !strcmp(type, "default"))
    gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "none", 4);
  return 0;
}

// The scale of queries is said if it is not what files of the architecture mean: by the size of a head, or, in the
// largest model, by the width divided by the heads.
static int put_query_scale(hf *h, uint32_t largest, error *err) {
  static const char key[] = "query_pre_attn_scalar";
  uint32_t size, width, heads;
  double by = 256;
  bool found;
  if (hf_f64(h, key, &by, &found, err) || hf_head_size(h, &size, err) || hf_need_u32(h, "hidden_size", &width, err) ||
      hf_need_u32(h, "num_attention_heads", &heads, err))
    return -1;
  if (!(by > 0)) return hf_fail(h, config_name, key, err, "%g is not positive", by);
  if (by != (h->n_layers == largest ? width / heads : size))
    gguf_head_f32(h->head, hf_arch_key(h, "attention.scale"), (float)(1 / sqrt(by)));
  return 0;
}

static int gemma2_more(hf *h, error *err) { return every_second_full(h, err) || put_query_scale(h, 46, err) ? -1 : 0; }

static int gemma3_more(hf *h, error *err) {
  uint32_t pattern, window;
  bool found;
  if (hf_u32(h, "sliding_window_pattern _sliding_window_pattern", &pattern, &found, err)) return -1;
  bool full = found && pattern == 1;
  if ((!full && hf_check_pattern(h, 6, err)) || hf_check_layers(h, full ? 1 : 6, full ? 0 : 5, err) ||
      put_query_scale(h, 62, err))
    return -1;
  if (full) return 0;
  if (hf_need_u32(h, "sliding_window", &window, err)) return -1;
  gguf_head_u32(h->head, hf_arch_key(h, "attention.sliding_window"), window);
  return 0;
}

static int gemma_embedding_more(hf *h, error *err) { return gemma3_more(h, err) || hf_put_pooling(h, err) ? -1 : 0; }

static const hf_key llama_keys[] = {{"vocab_size", HF_U32, "vocab_size"}, {0}};
static const hf_rule llama_rules[] = {HF_WOVEN, {0}};
static const hf_key granite_keys[] = {HF_GRANITE_KEYS, {0}};
static const hf_key mistral_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"attention.sliding_window", HF_U32, "sliding_window"},
  {0},
};
static const hf_key experts_keys[] = {{"expert_feed_forward_length", HF_U32, "moe_intermediate_size"}, {0}};
static const hf_key cohere_keys[] = {{"logit_scale", HF_F32_KEY, "logit_scale"}, {0}};
static const hf_key qwen2moe_keys[] = {
  {"expert_feed_forward_length", HF_U32, "moe_intermediate_size"},
  {"expert_shared_feed_forward_length", HF_U32, "shared_expert_intermediate_size"},
  {0},
};
static const hf_key gemma2_keys[] = {
  {"attn_logit_softcapping", HF_F32_KEY, "attn_logit_softcapping"},
  {"final_logit_softcapping", HF_F32_KEY, "final_logit_softcapping"},
  {"attention.sliding_window", HF_U32, "sliding_window"},
  {0},
};
static const hf_key gemma3_keys[] = {{"final_logit_softcapping", HF_F32_KEY, "final_logit_softcapping"}, {0}};
static const hf_key gpt_oss_keys[] = {
  {"attention.sliding_window", HF_U32, "sliding_window"},
  {"expert_feed_forward_length", HF_U32, "intermediate_size"},
  {0},
};

static const hf_rule mixtral_rules[] = {HF_WOVEN, HF_EXPERTS_W(BLOCK "block_sparse_moe"), {0}};
static const hf_rule qwen3moe_rules[] = {HF_EXPERTS(BLOCK "mlp"), {0}};
static const hf_rule gemma3_rules[] = {
  {"model.norm", "output_norm", HF_PLUS_ONE, 0},
  {BLOCK "input_layernorm", "blk.*.attn_norm", HF_PLUS_ONE, 0},
  {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", HF_PLUS_ONE, 0},
  {BLOCK "pre_feedforward_layernorm", "blk.*.ffn_norm", HF_PLUS_ONE, 0},
  {BLOCK "post_feedforward_layernorm", "blk.*.post_ffw_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.q_norm", "blk.*.attn_q_norm", HF_PLUS_ONE, 0},
  {BLOCK "self_attn.k_norm", "blk.*.attn_k_norm", HF_PLUS_ONE, 0},
  {0},
};
static const hf_rule qwen2moe_rules[] = {
  HF_EXPERTS(BLOCK "mlp"),
  {BLOCK "mlp.shared_expert_gate", "blk.*.ffn_gate_inp_shexp", 0, 0},
  HF_SHARED_EXPERT(BLOCK "mlp.shared_expert"),
  {0},
};
static const hf_rule gemma_rules[] = {
  {"model.norm", "output_norm", HF_PLUS_ONE, 0},
  {BLOCK "input_layernorm", "blk.*.attn_norm", HF_PLUS_ONE, 0},
  {BLOCK "post_attention_layernorm", "blk.*.ffn_norm", HF_PLUS_ONE, 0},
  {0},
};
// Norms after attention and the feed-forward.
static const hf_rule olmo2_rules[] = {
  {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", 0, 0},
  {BLOCK "post_feedforward_layernorm", "blk.*.post_ffw_norm", 0, 0},
  {0},
};
static const hf_rule glm4_rules[] = {
  {BLOCK "post_self_attn_layernorm", "blk.*.post_attention_norm", 0, 0},
  {BLOCK "post_mlp_layernorm", "blk.*.post_ffw_norm", 0, 0},
  {BLOCK "mlp.gate_up_proj", "blk.*.ffn_up", 0, 0},
  {0},
};
static const hf_rule phi3_rules[] = {
  {BLOCK "self_attn.qkv_proj", "blk.*.attn_qkv", 0, 0},
  {BLOCK "mlp.gate_up_proj", "blk.*.ffn_up", 0, 0},
  {0},
};
#define EXPERTS BLOCK "mlp.experts."
static const hf_rule gpt_oss_rules[] = {
  {BLOCK "post_attention_layernorm", "blk.*.post_attention_norm", 0, 0},
  {BLOCK "self_attn.sinks", "blk.*.attn_sinks.weight", 0, 0},
  {BLOCK "mlp.router", "blk.*.ffn_gate_inp", 0, 0},
  {EXPERTS "down_proj", "blk.*.ffn_down_exps.weight", HF_TURNED, 0},
  {EXPERTS "down_proj_bias", "blk.*.ffn_down_exps.bias", 0, 0},
  {EXPERTS "gate_up_proj", "blk.*.ffn_gate_exps.weight", HF_TURNED_EVEN, 0},
  {EXPERTS "gate_up_proj", "blk.*.ffn_up_exps.weight", HF_TURNED_ODD, 0},
  {EXPERTS "down_proj_blocks", "blk.*.ffn_down_exps.weight", 0, 0},
  {EXPERTS "gate_up_proj_blocks", "blk.*.ffn_gate_exps.weight", HF_ROWS_EVEN, 0},
  {EXPERTS "gate_up_proj_blocks", "blk.*.ffn_up_exps.weight", HF_ROWS_ODD, 0},
  {EXPERTS "gate_up_proj_bias", "blk.*.ffn_gate_exps.bias", HF_EVEN, 0},
  {EXPERTS "gate_up_proj_bias", "blk.*.ffn_up_exps.bias", HF_ODD, 0},
  {0},
};
#define EPS6 "\"rms_norm_eps\":1e-6"
#define EPS5 "\"rms_norm_eps\":1e-5"
#define THETA(x) "\"rope_theta\":" x
#define PLAIN "{" EPS6 "," THETA("10000.0") "}"
#define SIZE128 "{" EPS6 "," THETA("10000.0") ",\"head_dim\":128}"
#define SILU "hidden_act=silu"
#define NO_WINDOW " use_sliding_window=false"
#define GELU_TANH "hidden_activation=gelu_pytorch_tanh"
#define CAUSAL " use_bidirectional_attention=false"
#define UNCAPPED " attn_logit_softcapping=none"
// Folders of Gemma 3 with an encoder of pictures may omit the numbers of heads.
#define GEMMA3 "{" EPS6 "," THETA("1e6") ",\"rope_local_base_freq\":1e4,\"head_dim\":256,\"num_attention_heads\":8," \
  "\"num_key_value_heads\":4,\"sliding_window\":4096,\"max_position_embeddings\":131072}"
static const hf_class plain_classes[] = {
  {.name = "LlamaForCausalLM",
   .vocab = HF_VOCAB_LLAMA,
   .arch = "llama",
   .defaults = PLAIN,
   .musts = SILU,
   .head_dim = true,
   .keys = llama_keys,
   .rules = llama_rules,
   .more = hf_llama_more},
  {.name = "LLaMAForCausalLM", .like = "LlamaForCausalLM"},                   // the class's first name
  {.name = "LlamaModel", .like = "LlamaForCausalLM", .bare = true},
  {.name = "MistralForCausalLM",
   .like = "LlamaForCausalLM",
   .defaults = "{" EPS6 "," THETA("10000.0") ",\"sliding_window\":4096}",
   .keys = mistral_keys},
  {.name = "MixtralForCausalLM",
   .vocab = HF_VOCAB_LLAMA,
   .arch = "llama",
   .defaults = "{" EPS5 "," THETA("1e6") "}",
   .musts = SILU,
   .keys = mistral_keys,
   .rules = mixtral_rules,
   .more = hf_llama_more},
  {.name = "Qwen2ForCausalLM", .arch = "qwen2", .defaults = PLAIN, .musts = SILU NO_WINDOW, .more = qwen_more},
  {.name = "Qwen3ForCausalLM", .like = "Qwen2ForCausalLM", .arch = "qwen3", .defaults = SIZE128},
  {.name = "Qwen2Model", .like = "Qwen2ForCausalLM", .bare = true},
  {.name = "Qwen3Model", .like = "Qwen3ForCausalLM", .bare = true},
  {.name = "Qwen3MoeForCausalLM",
   .arch = "qwen3moe",
   .musts = SILU NO_WINDOW " norm_topk_prob=true",
   .defaults = "{" EPS6 "," THETA("10000.0") ",\"norm_topk_prob\":false}",
   .keys = experts_keys,
   .rules = qwen3moe_rules},
  {.name = "GraniteForCausalLM",
   .vocab = HF_VOCAB_LLAMA,
   .arch = "granite",
   .needs = "attention_multiplier",
   .defaults = PLAIN,
   .musts = SILU,
   .keys = granite_keys,
   .rules = llama_rules,
   .more = hf_llama_more},
  {.name = "Qwen2MoeForCausalLM",
   .arch = "qwen2moe",
   .musts = SILU NO_WINDOW " norm_topk_prob=false decoder_sparse_step=1",
   .defaults = PLAIN,
   .keys = qwen2moe_keys,
   .rules = qwen2moe_rules,
   .more = hf_all_full},
  {.name = "OlmoeForCausalLM",
   .arch = "olmoe",
   .musts = SILU " norm_topk_prob=false clip_qkv=none",
   .defaults = "{" EPS5 "," THETA("10000.0") "}",
   .rules = qwen2moe_rules},
  {.name = "Olmo2ForCausalLM",
   .arch = "olmo2",
   .musts = SILU,
   .defaults = "{" EPS5 "," THETA("10000.0") "}",
   .rules = olmo2_rules},
  {.name = "Olmo3ForCausalLM",
   .like = "Olmo2ForCausalLM",
   .defaults = "{" EPS5 "," THETA("10000.0") ",\"sliding_window\":4096}",
   .more = every_fourth_full},
  {.name = "Exaone4ForCausalLM",
   .like = "Olmo2ForCausalLM",
   .arch = "exaone4",
   .keys = llama_keys,
   .more = exaone4_more},
  {.name = "SeedOssForCausalLM", .like = "Olmo2ForCausalLM", .arch = "seed_oss", .defaults = SIZE128},
  {.name = "SmolLM3ForCausalLM",
   .vocab = HF_VOCAB_LLAMA,
   .arch = "smollm3",
   .musts = SILU NO_WINDOW " no_rope_layer_interval=4",
   .defaults = "{" EPS6 "," THETA("2e6") "}",
   .keys = llama_keys,
   .rules = llama_rules,
   .more = smollm3_more},
  {.name = "ArceeForCausalLM",
   .like = "LlamaForCausalLM",
   .arch = "arcee",
   .musts = "hidden_act=relu2",
   .defaults = "{" EPS5 "," THETA("10000.0") "}"},
  {.name = "CohereForCausalLM",
   .arch = "command-r",
   .musts = SILU " use_qk_norm=false",
   .defaults = "{\"layer_norm_eps\":1e-5," THETA("500000.0") ",\"logit_scale\":0.0625}",
   .keys = cohere_keys,
   .more = cohere_more},
  {.name = "GemmaForCausalLM",
   .vocab = HF_VOCAB_GEMMA,
   .arch = "gemma",
   .musts = GELU_TANH " hidden_act=gelu|gelu_pytorch_tanh" CAUSAL,
   .defaults = "{" EPS6 "," THETA("10000.0") ",\"head_dim\":256}",
   .rules = gemma_rules},
  {.name = "Gemma2ForCausalLM",
   .vocab = HF_VOCAB_GEMMA,
   .arch = "gemma2",
   .musts = GELU_TANH CAUSAL,
   .defaults =
     "{" EPS6 "," THETA("10000.0") ",\"head_dim\":256,\"sliding_window\":4096,\"attn_logit_softcapping\":50.0,"
                                   "\"final_logit_softcapping\":30.0}",
   .keys = gemma2_keys,
   .rules = gemma3_rules,
   .more = gemma2_more},
  {.name = "Gemma3ForCausalLM",
   .vocab = HF_VOCAB_GEMMA,
   .arch = "gemma3",
   .musts = GELU_TANH CAUSAL UNCAPPED,
   .defaults = GEMMA3,
   .keys = gemma3_keys,
   .rules = gemma3_rules,
   .more = gemma3_more},
  {.name = "Gemma3ForConditionalGeneration", .like = "Gemma3ForCausalLM", .seeing = true},
  {.name = "Gemma3TextModel",
   .like = "Gemma3ForCausalLM",
   .arch = "gemma-embedding",
   .bare = true,
   .musts = GELU_TANH UNCAPPED " use_bidirectional_attention=true",
   .more = gemma_embedding_more},
  {.name = "Phi3ForCausalLM",
   .arch = "phi3",
   .musts = SILU,
   .vocab = HF_VOCAB_PHI3,
   .own_scaling = true,
   .defaults = "{" EPS5 "," THETA("10000.0") ",\"original_max_position_embeddings\":4096}",
   .rules = phi3_rules,
   .more = hf_phi3_more},
  {.name = "Glm4ForCausalLM",
   .arch = "glm4",
   .musts = SILU,
   .vocab = HF_VOCAB_GLM,
   .defaults = "{\"rms_norm_eps\":1.5625e-7," THETA("10000.0") ",\"head_dim\":128}",
   .rules = glm4_rules,
   .more = hf_glm4_more},
  {.name = "GptOssForCausalLM",
   .arch = "gpt-oss",
   .musts = SILU " swiglu_alpha=1.702 swiglu_limit=7",
   .keys = gpt_oss_keys,
   .rules = gpt_oss_rules,
   .more = every_second_full,
   .defaults = "{" EPS5 "," THETA("150000.0") ",\"head_dim\":64,\"sliding_window\":128,\"num_experts_per_tok\":4}"},
  {0},
};
static const hf_class *const tables[] = {
  plain_classes,   hf_classes_qwen,  hf_classes_moe,       hf_classes_gemma, hf_classes_masked,   hf_classes_t5,
  hf_classes_more, hf_classes_norms, hf_classes_recurrent, hf_classes_delta, hf_classes_encoders, hf_classes_windows,
  hf_classes_mixtures, hf_classes_coded, hf_classes_rwkv, hf_classes_earlier};

// ---- the class of a folder ------------------------------------------------------------------------------------------

// Returns whether a list "a|b" has a value.
static bool is_allowed_value(const char *list, const char *value) {
  size_t n = strlen(value);
  for (; *list; list += strcspn(list, "|"), list += *list == '|')
    if (!strncmp(list, value, n) && strcspn(list, "|") == n) return true;
  return false;
}

// Checks the settings for which files of the architecture have no key.
static int check_musts(const hf *h, error *err) {
  for (const char *at = h->class->musts; at && *at; at += strspn(at, " ")) {
    size_t n = strcspn(at, " "), k = strcspn(at, "=");
    const char *name, *key = arena_strndup(h->arena, at, k), *must = arena_strndup(h->arena, at + k + 1, n - k - 1);
    const json_t *v = hf_value(h, key, &name);
    const char *is = json_is_boolean(v)   ? json_is_true(v) ? "true" : "false"
                     : json_is_number(v) ? arena_printf(h->arena, "%.15g", json_number_value(v))
                                         : json_string_value(v);
    char quoted[64];
    if (v && !(is && is_allowed_value(must, is)))
      return hf_fail(h, config_name, key, err, "%s, but files of %s have no key for it, and are of %s",
                     is ? gguf_quote(quoted, sizeof quoted, is, strlen(is)) : "is another", h->class->arch, must);
    at += n;
  }
  return 0;
}

static int fill_defaults(hf *h, error *err) {
  json_error_t e;
  const char *key, *name, *from = h->class->defaults ? h->class->defaults : "{}";
  json_t *v, *defaults = json_load(from, strlen(from), 0, &e);
  die_if(!defaults, "the defaults of %s are no JSON: %s", h->class->name, e.text);
  json_object_foreach(defaults, key, v) if (!json_object_get(h->text, key)) json_object_set(h->text, key, v);
  json_decref(defaults);
  if (h->class->needs && hf_need_keys(h, h->class->needs, err)) return -1;
  if (hf_derive(h, h->class->derived, err) || (h->class->prepare && h->class->prepare(h, err)) || check_musts(h, err))
    return -1;
  if (!h->class->alone && !hf_value(h, "num_key_value_heads", &name) && (v = hf_value(h, "num_attention_heads", &name)))
    json_object_set(h->text, "num_key_value_heads", v);
  if (!h->class->head_dim || hf_value(h, "head_dim", &name)) return 0;
  uint32_t width, heads;
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "num_attention_heads", &heads, err)) return -1;
  json_object_set_new(h->text, "head_dim", json_integer(width / heads));
  return 0;
}

static size_t n_classes(void) {
  size_t n = 0;
  for (size_t i = 0; i < COUNT(tables); i++) for (const hf_class *c = tables[i]; c->name; c++) n++;
  return n;
}

static const hf_class *class_row(const char *name) {
  for (size_t i = 0; i < COUNT(tables); i++)
    for (const hf_class *c = tables[i]; c->name; c++) if (!strcmp(c->name, name)) return c;
  return NULL;
}

// A class with the fields that its row takes from others.
static const hf_class *with_relatives(const hf *h, const hf_class *row) {
#define TAKE(field) out->field = out->field ? out->field : row->field
  hf_class *out = ARENA_ARRAY(h->arena, hf_class, 1);
  *out = *row;
  while (row->like) {
    const char *like = row->like;
    row = class_row(like);
    die_if(!row, "%s is like %s, which has no row", out->name, like);
    TAKE(arch), TAKE(defaults), TAKE(needs), TAKE(derived), TAKE(prepare), TAKE(rename), TAKE(under), TAKE(keys);
    TAKE(rules), TAKE(more);
    TAKE(musts), TAKE(f32), TAKE(vocab), TAKE(bare), TAKE(head_dim), TAKE(own_scaling), TAKE(own_log_weight),
      TAKE(seeing);
    TAKE(alone), TAKE(further), TAKE(no_mtp), TAKE(as_stored), TAKE(ranked_qkv);
    if (out->rotated == 0) out->rotated = row->rotated;
  }
  return out;
}

int hf_check_class(const char *class, error *err) {
  char quoted[96];
  if (!class) return error_set(err, "is missing, or names no class");
  if (class_row(class)) return 0;
  return error_set(err, "folders of %s are not read (those of %zu other classes are: docs/convert.md); a GGUF file is",
                   gguf_quote(quoted, sizeof quoted, class, strlen(class)), n_classes());
}

int hf_find_class(hf *h, error *err) {
  const char *name = json_string_value(json_array_get(json_object_get(h->config, "architectures"), 0));
  error why = {0};
  if (hf_check_class(name, &why)) return hf_fail(h, config_name, "architectures", err, "%s", why.text);
  h->class = with_relatives(h, class_row(name));
  if (hf_check_config(h, h->config, err)) return -1;
  json_t *inner = json_object_get(h->config, "text_config"), *v;
  const char *key;
  if (json_is_object(inner)) {
    h->text = json_copy(h->config);
    json_object_foreach(inner, key, v)
      if (!json_is_null(v) || !json_object_get(h->text, key)) json_object_set(h->text, key, v);
  } else h->text = json_copy(h->config);
  return hf_read_packing(h, err) || hf_read_scaling(h, err) || fill_defaults(h, err) ? -1 : 0;
}

static void note_name(hf *h, const char *key, const char *name) {
  str_addn(&h->names, key, strlen(key) + 1);
  str_addn(&h->names, name, strlen(name) + 1);
}

char *hf_key_names(const hf *h) {
  char *names = xmalloc(h->names.n + 1);
  if (h->names.n) memcpy(names, h->names.at, h->names.n);
  names[h->names.n] = 0;
  return names;
}

static int put_class_key(hf *h, const hf_key *k, error *err) {
  uint32_t n;
  double v;
  bool found;
  const char *name, *to = hf_arch_key(h, k->to);
  if (hf_value(h, k->from, &name)) note_name(h, to, name);
  if (k->kind == HF_U32 || k->kind == HF_LAYERS) {
    if (hf_u32(h, k->from, &n, &found, err)) return -1;
    if (found && k->kind == HF_LAYERS) return hf_put_computed(h, k->to, (uint64_t)n + h->n_further, name, err);
    if (found) gguf_head_u32(h->head, to, n);
  } else if (k->kind == HF_F32_KEY) {
    if (hf_f64(h, k->from, &v, &found, err)) return -1;
    if (found) gguf_head_f32(h->head, to, (float)v);
  } else {
    const json_t *b = hf_value(h, k->from, &name);
    if (b && !json_is_boolean(b)) return hf_fail(h, config_name, name, err, "is not true or false");
    if (b) gguf_head_bool(h->head, to, json_is_true(b));
  }
  return 0;
}

int hf_put_class_keys(hf *h, const hf_key *k, error *err) {
  for (; k && k->to; k++) if (put_class_key(h, k, err)) return -1;
  return 0;
}

// Counts the MTP blocks for which the folder has tensors; config.json may announce more.
static int count_further(hf *h, uint32_t layers, error *err) {
  static const char *const starts[] = {"mtp.layers.", "model.mtp.layers."};
  for (size_t i = 0; i < h->sources.n; i++)
    for (size_t k = 0; k < COUNT(starts); k++) {
      const char *name = h->sources.at[i].name;
      if (strncmp(name, starts[k], strlen(starts[k]))) continue;
      unsigned long at = strtoul(name + strlen(starts[k]), NULL, 10);
      if (at >= HF_LAYERS_MOST || layers > HF_LAYERS_MOST)
        return error_set(err, "%s: tensor '%.200s' is of a layer beyond %d", h->shown, name, HF_LAYERS_MOST);
      if (at + 1 > h->n_further) h->n_further = (uint32_t)at + 1;
    }
  if (h->n_further) gguf_head_u32(h->head, hf_arch_key(h, "nextn_predict_layers"), h->n_further);
  return 0;
}

// Sets the function of the expert scores, if config.json names it.
static int put_gating(hf *h, error *err) {
  // by GGUF's numbers, from 1 on
  static const char *const kinds[] = {"softmax", "sigmoid", NULL, "sqrtsoftplus"};
  const char *name = NULL;
  const json_t *v = hf_value(
    h, "score_function scoring_func score_func moe_router_activation moe_router_activation_func expert_selection_fn",
    &name);
  if (!v) return 0;
  for (uint32_t i = 0; i < COUNT(kinds); i++) {
    if (!kinds[i] || !json_is_string(v) || strcmp(json_string_value(v), kinds[i])) continue;
    gguf_head_u32(h->head, hf_arch_key(h, "expert_gating_func"), i + 1);
    return 0;
  }
  return hf_fail(h, config_name, name, err, "is neither softmax, sigmoid nor sqrtsoftplus");
}

int hf_put_keys(hf *h, error *err) {
  uint32_t layers;
  if (hf_need_u32(h, "num_hidden_layers n_layers n_layer num_layers", &layers, err)) return -1;
  h->n_layers = layers;
  if (h->class->further && count_further(h, layers, err)) return -1;
  if (hf_put_class_keys(h, common_keys, err) || hf_put_rope(h, err) || put_gating(h, err)) return -1;
  if (h->class->rotated > 0 && hf_put_rotated(h, h->class->rotated, err)) return -1;
  if (hf_put_class_keys(h, h->class->keys, err)) return -1;
  if (h->class->more && h->class->more(h, err)) return -1;
  return hf_check_rotation(h, err);
}

// ---- names of tensors -----------------------------------------------------------------------------------------------

typedef struct name_number { const char *at; size_t digits; } name_number;

// Matches a name with a pattern in which * and # stand for numbers.
static bool matches_rule(const char *pattern, const char *name, size_t n, name_number *layer, name_number *expert) {
  size_t i = 0;
  for (; *pattern; pattern++) {
    if (*pattern != '*' && *pattern != '#') {
      if (i == n || name[i++] != *pattern) return false;
      continue;
    }
    name_number *to = *pattern == '*' ? layer : expert;
    to->at = name + i;
    while (i < n && name[i] >= '0' && name[i] <= '9') i++;
    to->digits = (size_t)(name + i - to->at);
    if (!to->digits || to->digits > 9 || (*to->at == '0' && to->digits > 1)) return false;
  }
  return i == n;
}

static const char *put_number(const hf *h, const char *to, const name_number *layer, const char *rest) {
  const char *star = strchr(to, '*');
  if (!star) return arena_printf(h->arena, "%s%s", to, rest);
  return arena_printf(h->arena, "%.*s%.*s%s%s", (int)(star - to), to, (int)layer->digits, layer->at, star + 1, rest);
}

// Returns whether a rule applies to a name with n bytes before .weight or .bias.
static bool rule_is_for(const hf *h, const hf_rule *r, const char *name, size_t n, const char **to, uint32_t *expert) {
  name_number layer = {"", 0}, of = {"", 0};
  bool whole = r->to && (hf_ends_in(r->to, ".weight") || hf_ends_in(r->to, ".bias") || hf_ends_in(r->from, ".weight"));
  if (!matches_rule(r->from, name, whole ? strlen(name) : n, &layer, &of) &&
      !(r->op == HF_SKIP && matches_rule(r->from, name, strlen(name), &layer, &of)))
    return false;
  if (r->to) *to = put_number(h, r->to, &layer, whole ? "" : name + n);
  *expert = of.digits ? (uint32_t)strtoul(of.at, NULL, 10) : 0;
  return true;
}

// Renames tensors of MTP blocks, which are stored next to the layers: "mtp.layers.0.X" is layer N's, of N layers, and
// tensors that exist only once belong to the first MTP block.
static const char *name_further(const hf *h, const char *name) {
  static const struct { const char *from, *to; } once[] = {
    {"fc", "eh_proj"}, {"pre_fc_norm_embedding", "enorm"}, {"pre_fc_norm_hidden", "hnorm"},
    {"norm", "shared_head.norm"}};
  name_number k = {"", 0};
  if (!strncmp(name, "model.mtp.", 10)) name += 6;
  if (strncmp(name, "mtp.", 4)) return name;
  name += 4;
  size_t n = strncmp(name, "layers.", 7) ? 0 : 7 + strcspn(name + 7, ".");
  if (n && name[n] && matches_rule("layers.*", name, n, &k, &k))
    return arena_printf(h->arena, "model.layers.%lu%s", h->n_layers + strtoul(k.at, NULL, 10), name + n);
  for (size_t i = 0; i < COUNT(once); i++)
    if (!strncmp(name, once[i].from, strlen(once[i].from)) && name[strlen(once[i].from)] == '.')
      return arena_printf(h->arena, "model.layers.%u.%s%s", h->n_layers, once[i].to, name + strlen(once[i].from));
  return name - 4;
}

// The tensor's name in a plain language model; NULL: it belongs to an encoder.
static const char *name_alone(const hf *h, const char *name) {
  static const char *const beside[] = {"vision_tower.",          "vision_model.",
                                       "multi_modal_projector.", "model.vision_tower.",
                                       "mm_projector.",
                                       "model.vision_model.",    "model.multi_modal_projector.",
                                       "model.visual.",          "visual.",
                                       "patch_merge_mlp.",
                                       "model.vision_adapter.",  "model.vision_projection.",
                                       "model.embed_vision.",    "model.embed_audio.",
                                       "model.audio_tower.",
                                       "model.switch.",          "switch.",
                                       "vision_encoder.",        "audio_encoder.",
                                       "speech_embeddings.",     "vit_large_projector.",
                                       "model.vision_encoder.",  "model.audio_encoder.",
                                       "model.audio_adapter.",   "model.vqmodel."};
  static const struct { const char *with, *without; } prefixes[] = {{"model.language_model.", "model."},
                                                                    {"language_model.", ""}};
  for (size_t i = 0; i < COUNT(beside); i++) if (!strncmp(name, beside[i], strlen(beside[i]))) return NULL;
  for (size_t i = 0; i < COUNT(prefixes); i++)
    if (!strncmp(name, prefixes[i].with, strlen(prefixes[i].with)))
      return arena_printf(h->arena, "%s%s", prefixes[i].without, name + strlen(prefixes[i].with));
  return name;
}

// Returns whether a name begins with a layer's number.
static bool starts_as_layer(const char *name, name_number *layer) {
  name_number none;
  const char *dot = strncmp(name, "model.layers.", 13) ? NULL : strchr(name + 13, '.');
  return dot && matches_rule(BLOCK, name, (size_t)(dot + 1 - name), layer, &none);
}

// Returns whether a tensor belongs to an MTP block: its layer comes after the last one, or its name says so.
static bool is_of_mtp(const hf *h, const char *name) {
  if (!strncmp(name, "model.mtp_", 10) || !strncmp(name, "mtp.", 4)) return true;
  name_number layer = {"", 0};
  return starts_as_layer(name, &layer) && strtoul(layer.at, NULL, 10) >= h->n_layers;
}

int hf_put_limits(hf *h, const char *from, const char *to, uint32_t least, error *err) {
  const json_t *list = hf_in(h->text, from);
  uint32_t n = h->n_layers + h->n_further;
  float *each = ARENA_ARRAY(h->arena, float, n);
  if (!list) return 0;
  if (!json_is_array(list) && !least) return hf_fail(h, config_name, from, err, "is not a list");
  if (json_array_size(list) < least)
    return hf_fail(h, config_name, from, err, "is not a list of %u layers or more", least);
  for (uint32_t i = 0; i < n && i < json_array_size(list); i++) {
    const json_t *v = json_array_get(list, i);
    if (!hf_is_float(v) && !json_is_null(v)) return hf_fail(h, config_name, from, err, "has no number at %u", i);
    each[i] = (float)json_number_value(v);
  }
  gguf_head_f32s(h->head, hf_arch_key(h, to), each, n);
  return 0;
}

int hf_put_nextn(hf *h, error *err) {
  static const char key[] = "num_nextn_predict_layers";
  uint32_t further = 0;
  bool found;
  if (hf_u32(h, key, &further, &found, err)) return -1;
  if (further > HF_LAYERS_MOST) return hf_fail(h, config_name, key, err, "%u is more than %d", further, HF_LAYERS_MOST);
  for (size_t i = 0; i < h->sources.n; i++) {
    const char *name = h->class->seeing ? name_alone(h, h->sources.at[i].name) : h->sources.at[i].name;
    name_number layer = {"", 0};
    if (!name || !starts_as_layer(name, &layer)) continue;
    unsigned long at = strtoul(layer.at, NULL, 10) - h->n_layers;
    if (at < further && at >= h->n_further) h->n_further = (uint32_t)at + 1;
  }
  if (hf_put_computed(h, "block_count", (uint64_t)h->n_layers + h->n_further, "num_hidden_layers", err)) return -1;
  if (h->n_further) gguf_head_u32(h->head, hf_arch_key(h, "nextn_predict_layers"), h->n_further);
  return 0;
}

const hf_rule *hf_rule_for(const hf *h, const char *stored, const hf_rule *after, const char **to, uint32_t *expert,
                           error *err) {
  static const hf_rule left_out = {"", NULL, HF_SKIP, NULL};
  const char *name = h->class->seeing ? name_alone(h, stored) : stored;
  if (!name || (h->class->no_mtp && is_of_mtp(h, name))) return after ? NULL : &left_out;
  if (h->class->rename) name = h->class->rename(h, name);
  if (h->class->further) name = name_further(h, name);
  if (h->class->bare && strncmp(name, "model.", 6)) name = arena_printf(h->arena, "model.%s", name);
  size_t under = h->class->under ? strlen(h->class->under) : 0;
  if (under && !strncmp(name, h->class->under, under)) name += under;
  size_t n = strlen(name);
  if (hf_ends_in(name, ".weight")) n -= 7;
  else if (hf_ends_in(name, ".bias")) n -= 5;
  if (after)
    return after[1].from && !strcmp(after->from, after[1].from) && rule_is_for(h, after + 1, name, n, to, expert)
             ? after + 1
             : NULL;
  for (const hf_rule *r = h->class->rules; r && r->from; r++) if (rule_is_for(h, r, name, n, to, expert)) return r;
  for (const hf_rule *r = common_rules; r->from && !h->class->alone; r++)
    if (rule_is_for(h, r, name, n, to, expert)) return r;
  error_set(err, "%s: tensor '%.200s' is not one that %s has", h->shown, stored, h->class->name);
  return NULL;
}
