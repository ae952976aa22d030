// The classes of T5, mT5 and umT5: encoder and decoder, or only the encoder. See hf_classes.c.
#include <string.h>
#include "model/hf_impl.h"

// The class with only an encoder skips the first two keys.
static const hf_key keys[] = {
  {"decoder_block_count", HF_U32, "num_decoder_layers"},
  {"decoder_start_token_id", HF_U32, "decoder_start_token_id"},
  {"embedding_length", HF_U32, "d_model"},
  {"feed_forward_length", HF_U32, "d_ff"},
  {"attention.head_count", HF_U32, "num_heads"},
  {"attention.key_length", HF_U32, "d_kv"},
  {"attention.value_length", HF_U32, "d_kv"},
  {"attention.relative_buckets_count", HF_U32, "relative_attention_num_buckets"},
  {"attention.layer_norm_rms_epsilon", HF_F32_KEY, "layer_norm_epsilon"},
  {0},
};

#define ENC "encoder.block.*.layer."
#define DEC "decoder.block.*.layer."
#define SHARED {"shared", "token_embd", HF_ONCE, 0}, {"encoder.embed_tokens", "token_embd", HF_ONCE, 0}
#define ATTENTION(from, to) \
  {from ".q", to "_q", 0, 0}, {from ".k", to "_k", 0, 0}, {from ".v", to "_v", 0, 0}, {from ".o", to "_o", 0, 0}, \
    {from ".relative_attention_bias", to "_rel_b", 0, 0}
// A feed-forward without a gate has one matrix (wi). Otherwise wi_0 is the gate.
#define DENSE(from, to) \
  {from ".wi", to "_up", 0, 0}, {from ".wi_0", to "_gate", 0, 0}, {from ".wi_1", to "_up", 0, 0}, \
    {from ".wo", to "_down", 0, 0}
#define ENCODER \
  ATTENTION(ENC "0.SelfAttention", "enc.blk.*.attn"), {ENC "0.layer_norm", "enc.blk.*.attn_norm", 0, 0}, \
    DENSE(ENC "1.DenseReluDense", "enc.blk.*.ffn"), {ENC "1.layer_norm", "enc.blk.*.ffn_norm", 0, 0}, \
    {"encoder.final_layer_norm", "enc.output_norm", 0, 0}
static const hf_rule encoder_rules[] = {SHARED, ENCODER, {0}};
static const hf_rule rules[] = {
  SHARED,
  {"decoder.embed_tokens", "token_embd", HF_ONCE, 0},
  ENCODER,
  ATTENTION(DEC "0.SelfAttention", "dec.blk.*.attn"),
  {DEC "0.layer_norm", "dec.blk.*.attn_norm", 0, 0},
  ATTENTION(DEC "1.EncDecAttention", "dec.blk.*.cross_attn"),
  {DEC "1.layer_norm", "dec.blk.*.cross_attn_norm", 0, 0},
  DENSE(DEC "2.DenseReluDense", "dec.blk.*.ffn"),
  {DEC "2.layer_norm", "dec.blk.*.ffn_norm", 0, 0},
  {"decoder.final_layer_norm", "dec.output_norm", 0, 0},
  {"lm_head", "output", 0, 0},
  {0},
};

// Files have no key for the activation: it is GELU with a gate and ReLU without one.
static int check_activation(hf *h, error *err) {
  const char *name;
  const json_t *v = hf_value(h, "feed_forward_proj", &name);
  const char *s = json_string_value(v);
  if (!v || (s && (!strcmp(s, "relu") || !strcmp(s, "gated-gelu")))) return 0;
  return hf_fail(h, "config.json", name, err, "is neither relu nor gated-gelu, and files of %s have no key for it",
                 h->class->arch);
}

static int encoder_more(hf *h, error *err) { return check_activation(h, err); }

// Without a head of its own, a file's head is the embedding, and its input is divided by the root of the embedding
// length; with a head it is not divided. The folder has to agree.
static int t5_more(hf *h, error *err) {
  const char *name, *key = "scale_decoder_outputs";
  void *found;
  const json_t *said = hf_value(h, key, &name);
  bool has_head = smap_get(&h->by_name, "lm_head.weight", 14, &found), divides = json_is_true(said);
  if (check_activation(h, err)) return -1;
  if (!said) {                                             // T5 1.0, where embedding and head are one matrix
    key = "tie_word_embeddings";
    divides = !has_head && !json_is_false(hf_value(h, key, &name)) && strncmp(h->class->name, "MT5", 3);
  }
  if (divides != has_head) return 0;
  return hf_fail(h, "config.json", key, err, "what the head reads is %s, but the folder has %s lm_head.weight",
                 divides ? "divided" : "not divided", has_head ? "an" : "no");
}

const hf_class hf_classes_t5[] = {
  {.name = "T5ForConditionalGeneration",
   .arch = "t5",
   .vocab = HF_VOCAB_UNIGRAM,
   .musts = "relative_attention_max_distance=128",
   .defaults = "{\"layer_norm_epsilon\":1e-6,\"relative_attention_num_buckets\":32,\"n_positions\":512}",
   .alone = true,
   .keys = keys,
   .rules = rules,
   .more = t5_more},
  {.name = "T5WithLMHeadModel", .like = "T5ForConditionalGeneration"},
  {.name = "MT5ForConditionalGeneration", .like = "T5ForConditionalGeneration"},
  {.name = "UMT5ForConditionalGeneration", .like = "T5ForConditionalGeneration"},
  {.name = "T5EncoderModel",
   .like = "T5ForConditionalGeneration",
   .arch = "t5encoder",
   .keys = keys + 2,
   .rules = encoder_rules,
   .more = encoder_more},
  {0},
};
