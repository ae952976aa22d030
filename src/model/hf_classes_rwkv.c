// Rows of the table of classes (hf_classes.c) for RWKV 6 and 7: layers with a state in place of attention.
#include <math.h>
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json";

// ---- RWKV 7 ---------------------------------------------------------------------------------------------------------

#define LAYER "model.layers.*."
#define LORA(from, to) \
  {LAYER "attn." from "_lora.lora.0", "blk.*.time_mix_" to "1", 0, 0}, \
    {LAYER "attn." from "_lora.lora.2.weight", "blk.*.time_mix_" to "2.weight", 0, 0}, \
    {LAYER "attn." from "_lora.lora.2.bias", "blk.*.time_mix_" to "0.weight", 0, 0}
// The first layer mixes in no values of an earlier one. Files have those matrices nevertheless: the rates'.
#define FIRST(from, end, file_end) \
  {"model.layers.0.attn.v_lora.lora." from end, NULL, HF_SKIP, 0}, \
    {"model.layers.0.attn.a_lora.lora." from end, "blk.0.time_mix_v" file_end ".weight", 0, 0}, \
    {"model.layers.0.attn.a_lora.lora." from end, "blk.0.time_mix_a" file_end ".weight", 0, 0}
static const hf_rule rwkv7_rules[] = {
  {"model.embeddings", "token_embd", 0, 0},
  {"model.norm", "output_norm", 0, 0},
  {"lm_head", "output", 0, 0},
  {"model.layers.0.pre_norm", "token_embd_norm", 0, 0},
  {LAYER "attn_norm", "blk.*.attn_norm", 0, 0},
  {LAYER "ffn_norm", "blk.*.attn_norm_2", 0, 0},
  {LAYER "attn.x_x", "blk.*.time_mix_lerp_fused.weight", HF_FOURTH, 0},
  {LAYER "attn.x.#", "blk.*.time_mix_lerp_fused.weight", HF_STACK | HF_SQUEEZED, "n_lerps"},
  {LAYER "attn.k_k", "blk.*.time_mix_k_k.weight", HF_SQUEEZED, 0},
  {LAYER "attn.k_a", "blk.*.time_mix_k_a.weight", HF_SQUEEZED, 0},
  {LAYER "attn.r_k", "blk.*.time_mix_r_k.weight", HF_FLAT, 0},
  {LAYER "attn.r_proj", "blk.*.time_mix_receptance", 0, 0},
  {LAYER "attn.k_proj", "blk.*.time_mix_key", 0, 0},
  {LAYER "attn.v_proj", "blk.*.time_mix_value", 0, 0},
  {LAYER "attn.o_proj", "blk.*.time_mix_output", 0, 0},
  {LAYER "attn.g_norm", "blk.*.time_mix_ln", 0, 0},
  FIRST("0", ".weight", "1"),
  FIRST("2", ".weight", "2"),
  FIRST("2", ".bias", "0"),
  LORA("w", "w"),
  LORA("a", "a"),
  LORA("v", "v"),
  LORA("g", "g"),
  {LAYER "ffn.x_k", "blk.*.channel_mix_lerp_k.weight", HF_SQUEEZED, 0},
  {LAYER "ffn.key", "blk.*.channel_mix_key", 0, 0},
  {LAYER "ffn.value", "blk.*.channel_mix_value", 0, 0},
  {0},
};
static const hf_key rwkv7_keys[] = {{"wkv.head_size", HF_U32, "head_size"}, {0}};

// Vectors of a layer's mixes, by number: model.layers.0.attn.x_r is model.layers.0.attn.x.0.
static const char *rwkv_name(const hf *h, const char *name, const char *under, const char *order) {
  size_t n = strlen(name);
  const char *at = strstr(name, under), *found;
  if (!at || at + strlen(under) + 1 != name + n || !(found = strchr(order, name[n - 1]))) return name;
  return arena_printf(h->arena, "%.*s.%d", (int)(at + strlen(under) - 1 - name), name, (int)(found - order));
}

static const char *rwkv7_name(const hf *h, const char *name) { return rwkv_name(h, name, "attn.x_", "rwkvag"); }

// Sizes of the small vectors: config.json may leave them to a rule of the class.
static int put_ranks_of_rwkv7(hf *h, error *err) {
  static const struct { const char *from, *to; double power, factor; } of[] = {
    {"decay_low_rank_dim", "attention.decay_lora_rank", 0.5, 1.8},
    {"a_low_rank_dim", "attention.iclr_lora_rank", 0.5, 1.8},
    {"v_low_rank_dim", "attention.value_residual_mix_lora_rank", 0.5, 1.3},
    {"gate_low_rank_dim", "attention.gate_lora_rank", 0.8, 0.6}};
  enum { STEP = 32 };
  uint32_t width, n;
  bool found;
  if (hf_need_u32(h, "hidden_size", &width, err)) return -1;
  for (size_t i = 0; i < COUNT(of); i++) {
    if (hf_u32(h, of[i].from, &n, &found, err)) return -1;
    double steps = rint(pow(width, of[i].power) * of[i].factor / STEP);
    if (!found) n = (uint32_t)(steps < 1 ? 1 : steps) * STEP;
    gguf_head_u32(h->head, hf_arch_key(h, of[i].to), n);
  }
  return 0;
}

// Keys of files have other names than those that these numbers have in other classes.
static int prepare_rwkv7(hf *h, error *err) {
  static const struct { const char *from, *to; } moved[] = {
    {"norm_eps", "layer_norm_epsilon"}, {"head_dim", "head_size"}};
  static const char *const unused[] = {"max_position_embeddings", "num_attention_heads", "num_key_value_heads"};
  (void)err;
  for (size_t i = 0; i < COUNT(moved); i++) {
    json_t *v = hf_in(h->text, moved[i].from);
    if (v && !hf_in(h->text, moved[i].to)) json_object_set(h->text, moved[i].to, v);
    json_object_del(h->text, moved[i].from);
  }
  for (size_t i = 0; i < COUNT(unused); i++) json_object_del(h->text, unused[i]);
  json_object_set_new(h->text, "n_lerps", json_integer(6));
  return 0;
}

// Contexts have no limit; llama.cpp wants a number of heads.
static void put_endless(hf *h) {
  gguf_head_u32(h->head, hf_arch_key(h, "context_length"), 1 << 20);
  gguf_head_u32(h->head, hf_arch_key(h, "attention.head_count"), 0);
}

static int rwkv7_more(hf *h, error *err) {
  uint32_t n;
  put_endless(h);
  return hf_need_u32(h, "head_size", &n, err) || put_ranks_of_rwkv7(h, err) ? -1 : 0;
}

// ---- RWKV 6 ---------------------------------------------------------------------------------------------------------

#define BLOCK "rwkv.blocks.*."
static const hf_rule rwkv6_rules[] = {
  {"rwkv.embeddings", "token_embd", 0, 0},
  {"rwkv.ln_out", "output_norm", 0, 0},
  {"head", "output", 0, 0},
  {"rwkv.blocks.0.pre_ln", "token_embd_norm", 0, 0},
  {BLOCK "ln1", "blk.*.attn_norm", 0, 0},
  {BLOCK "ln2", "blk.*.attn_norm_2", 0, 0},
  {BLOCK "attention.time_maa_w1", "blk.*.time_mix_w1.weight", HF_TURNED, 0},
  {BLOCK "attention.time_maa_w2", "blk.*.time_mix_w2.weight", HF_TURNED, 0},
  {BLOCK "attention.time_maa_x", "blk.*.time_mix_lerp_x.weight", HF_SQUEEZED, 0},
  {BLOCK "attention.time_maa.#", "blk.*.time_mix_lerp_fused.weight", HF_STACK | HF_SQUEEZED, "n_lerps"},
  {BLOCK "attention.time_decay", "blk.*.time_mix_decay.weight", HF_SQUEEZED, 0},
  {BLOCK "attention.time_decay_w1", "blk.*.time_mix_decay_w1.weight", HF_TURNED, 0},
  {BLOCK "attention.time_decay_w2", "blk.*.time_mix_decay_w2.weight", HF_TURNED, 0},
  {BLOCK "attention.time_faaaa", "blk.*.time_mix_first.weight", 0, 0},
  {BLOCK "attention.receptance", "blk.*.time_mix_receptance", 0, 0},
  {BLOCK "attention.key", "blk.*.time_mix_key", 0, 0},
  {BLOCK "attention.value", "blk.*.time_mix_value", 0, 0},
  {BLOCK "attention.gate", "blk.*.time_mix_gate", 0, 0},
  {BLOCK "attention.output", "blk.*.time_mix_output", HF_TIMES, "times.*"},
  {BLOCK "attention.ln_x", "blk.*.time_mix_ln", 0, 0},
  {BLOCK "feed_forward.time_maa_k", "blk.*.channel_mix_lerp_k.weight", HF_SQUEEZED, 0},
  {BLOCK "feed_forward.time_maa_r", "blk.*.channel_mix_lerp_r.weight", HF_SQUEEZED, 0},
  {BLOCK "feed_forward.key", "blk.*.channel_mix_key", 0, 0},
  {BLOCK "feed_forward.receptance", "blk.*.channel_mix_receptance", 0, 0},
  {BLOCK "feed_forward.value", "blk.*.channel_mix_value", HF_TIMES, "times.*"},
  {0},
};
static const hf_key rwkv6_keys[] = {{"wkv.head_size", HF_U32, "head_size"},
                                    {"rescale_every_n_layers", HF_U32, "rescale_every"},
                                    {0}};

static const char *rwkv6_name(const hf *h, const char *name) {
  return rwkv_name(h, name, "attention.time_maa_", "wkvrg");
}

static int prepare_rwkv6(hf *h, error *err) {
  uint32_t width;
  bool found;
  json_object_set_new(h->text, "n_lerps", json_integer(5));
  if (hf_u32(h, "intermediate_size", &width, &found, err) || hf_need_u32(h, "hidden_size", &width, err)) return -1;
  if (!found) json_object_set_new(h->text, "intermediate_size", json_integer((json_int_t)(width * 3.5) / 32 * 32));
  json_object_del(h->text, "num_attention_heads");
  return 0;
}

// What goes into a layer's sum is halved every rescale_every layers, and the matrices take that.
static int rwkv6_more(hf *h, error *err) {
  enum { LARGE = 4096, HALVED_MOST = 64 };
  uint32_t width, every = 0, size;
  if (hf_need_u32(h, "hidden_size", &width, err) || hf_need_u32(h, "head_size", &size, err)) return -1;
  bool found;
  if (hf_u32(h, "rescale_every", &every, &found, err)) return -1;
  if (every && h->n_layers / every > HALVED_MOST)
    return hf_fail(h, config_name, "rescale_every", err, "%u halves too often", every);
  put_endless(h);
  gguf_head_u32(h->head, hf_arch_key(h, "time_mix_extra_dim"), width == LARGE ? 64 : 32);
  gguf_head_u32(h->head, hf_arch_key(h, "time_decay_extra_dim"), width == LARGE ? 128 : 64);
  for (uint32_t i = 0; i < h->n_layers && h->n_layers <= HF_LAYERS_MOST; i++)
    json_object_set_new(h->text, arena_printf(h->arena, "times.%u", i),
                        json_pack("[[Iff]]", (json_int_t)INT32_MAX, every ? ldexp(1, -(int)(i / every)) : 1.0, 1.0));
  return 0;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

const hf_class hf_classes_rwkv[] = {
  {.name = "RWKV7ForCausalLM",
   .arch = "rwkv7",
   .vocab = HF_VOCAB_RWKV,
   .alone = true,
   .rename = rwkv7_name,
   .musts = "hidden_act=sqrelu norm_first=true norm_bias=true attn=none",
   .defaults = "{\"norm_eps\":1e-5,\"head_dim\":64,\"vocab_size\":65536}",
   .derived = "intermediate_size=4*hidden_size",
   .prepare = prepare_rwkv7,
   .keys = rwkv7_keys,
   .rules = rwkv7_rules,
   .more = rwkv7_more},
  {.name = "Rwkv6ForCausalLM",
   .arch = "rwkv6",
   .vocab = HF_VOCAB_RWKV,
   .alone = true,
   .rename = rwkv6_name,
   .defaults = "{\"layer_norm_epsilon\":1e-5,\"head_size\":64,\"rescale_every\":6,\"vocab_size\":65536}",
   .prepare = prepare_rwkv6,
   .keys = rwkv6_keys,
   .rules = rwkv6_rules,
   .more = rwkv6_more},
  {0},
};
