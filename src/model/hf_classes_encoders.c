// Rows of the table of classes (hf_classes.c) for encoders that compute a vector of a text: BERT, Jina's versions 2 and
// 3, DistilBERT, RoBERTa and XLM-R, ModernBERT, EuroBERT, NeoBERT and Nomic's. Folders of sentence-transformers say in
// modules.json how the vectors of tokens become one (pooling).
#include <string.h>
#include "model/hf_impl.h"

static const char config_name[] = "config.json";

// ---- pooling --------------------------------------------------------------------------------------------------------

// Reads the pooling type from the folder of a sentence-transformers module.
static int read_pooling(hf *h, const char *folder, uint32_t *out, error *err) {
  static const struct { const char *flag, *mode; uint32_t kind; } kinds[] = {
    {"pooling_mode_mean_tokens", "mean", 1}, {"pooling_mode_cls_token", "cls", 2},
    {"pooling_mode_lasttoken", "lasttoken", 3}};
  json_t *said;
  const char *file = arena_printf(h->arena, "%s/config.json", folder);
  if (hf_json(h, file, true, &said, err)) return -1;
  const char *mode = json_string_value(json_object_get(said, "pooling_mode"));
  *out = 0;
  for (size_t i = 0; i < COUNT(kinds) && !*out; i++)
    if (json_is_true(json_object_get(said, kinds[i].flag)) || (mode && !strcmp(mode, kinds[i].mode)))
      *out = kinds[i].kind;
  json_decref(said);
  return *out ? 0 : hf_fail(h, file, NULL, err, "vectors are joined in a way that is not known");
}

int hf_put_pooling(hf *h, error *err) {
  json_t *modules, *m;
  size_t i;
  uint32_t kind = 0;
  int status = 0;
  char *folder = NULL;
  if (hf_json_list(h, "modules.json", &modules, err)) return -1;
  json_array_foreach(modules, i, m) {
    const char *type = json_string_value(json_object_get(m, "type")),
               *path = json_string_value(json_object_get(m, "path"));
    if (!folder && type && path && hf_ends_in(type, "Pooling")) folder = arena_strdup(h->arena, path);
  }
  json_decref(modules);
  if (!folder) return 0;
  if (!*folder || *folder == '.' || strchr(folder, '/'))
    status = hf_fail(h, "modules.json", "path", err, "is not a folder in this one");
  status = status || read_pooling(h, folder, &kind, err) ? -1 : 0;
  if (!status) gguf_head_u32(h->head, hf_arch_key(h, "pooling_type"), kind);
  return status;
}

static int bert_more(hf *h, error *err) {
  uint32_t kinds = 1;
  bool found;
  if (hf_u32(h, "type_vocab_size", &kinds, &found, err)) return -1;
  gguf_head_bool(h->head, hf_arch_key(h, "attention.causal"), false);
  gguf_head_u32(h->head, "tokenizer.ggml.token_type_count", found ? kinds : 1);
  return hf_put_pooling(h, err);
}

// ---- BERT and RoBERTa -----------------------------------------------------------------------------------------------

#define LAYER "encoder.layer.*."
#define ATTENTION_OF_BERT \
  {"embeddings.word_embeddings", "token_embd", 0, 0}, \
    {"embeddings.token_type_embeddings", "token_types", 0, 0}, \
    {"embeddings.LayerNorm", "token_embd_norm", 0, 0}, \
    {LAYER "attention.self.query", "blk.*.attn_q", 0, 0}, \
    {LAYER "attention.self.key", "blk.*.attn_k", 0, 0}, \
    {LAYER "attention.self.value", "blk.*.attn_v", 0, 0}, \
    {LAYER "attention.output.dense", "blk.*.attn_output", 0, 0}, \
    {LAYER "attention.output.LayerNorm", "blk.*.attn_output_norm", 0, 0}, \
    {"embeddings.position_ids", NULL, HF_SKIP, 0}, {"pooler.dense", NULL, HF_SKIP, 0}
#define BERT \
  ATTENTION_OF_BERT, {LAYER "intermediate.dense", "blk.*.ffn_up", 0, 0}, \
    {LAYER "output.dense", "blk.*.ffn_down", 0, 0}, \
    {LAYER "output.LayerNorm", "blk.*.layer_output_norm", 0, 0}

static const hf_rule bert_rules[] = {BERT, {"embeddings.position_embeddings", "position_embd", 0, 0}, {0}};
static const hf_rule roberta_rules[] = {
  BERT, {"embeddings.position_embeddings", "position_embd", HF_FROM_ROW, "position_offset"}, {0}};

// Gate and up are one matrix, and positions lower scores (ALiBi). The head for masked words is left out.
static const hf_rule jina_rules[] = {
  ATTENTION_OF_BERT,
  {LAYER "mlp.gated_layers", "blk.*.ffn_up", 0, 0},
  {LAYER "mlp.wo", "blk.*.ffn_down", 0, 0},
  {LAYER "mlp.layernorm", "blk.*.layer_output_norm", 0, 0},
  {"cls.predictions.transform.dense", NULL, HF_SKIP, 0},
  {"cls.predictions.transform.LayerNorm", NULL, HF_SKIP, 0},
  {"cls.predictions.decoder", NULL, HF_SKIP, 0},
  {"cls.predictions", NULL, HF_SKIP, 0},
  {0},
};

// Jina's version 3 as published: a matrix stands beside its adapters. Files of the architecture have no adapters.
// Folders that transformers saves have the plain names.
#define PLAIN_OR_ADAPTED(from, to) \
  {from, to, 0, 0}, {from ".parametrizations.weight.original", to ".weight", 0, 0}, \
    {from ".parametrizations.weight.0.lora_A", NULL, HF_SKIP, 0}, \
    {from ".parametrizations.weight.0.lora_B", NULL, HF_SKIP, 0}
#define OF_V3 "encoder.layers.*."
static const hf_rule jina_v3_rules[] = {
  PLAIN_OR_ADAPTED("embeddings.word_embeddings", "token_embd"),
  PLAIN_OR_ADAPTED("embeddings.token_type_embeddings", "token_types"),
  {"emb_ln", "token_embd_norm", 0, 0},
  PLAIN_OR_ADAPTED(OF_V3 "mixer.Wqkv", "blk.*.attn_qkv"),
  PLAIN_OR_ADAPTED(OF_V3 "mixer.out_proj", "blk.*.attn_output"),
  {OF_V3 "norm1", "blk.*.attn_output_norm", 0, 0},
  PLAIN_OR_ADAPTED(OF_V3 "mlp.fc1", "blk.*.ffn_up"),
  PLAIN_OR_ADAPTED(OF_V3 "mlp.fc2", "blk.*.ffn_down"),
  {OF_V3 "norm2", "blk.*.layer_output_norm", 0, 0},
  {"pooler.dense", NULL, HF_SKIP, 0},
  {"pooler.dense.parametrizations.weight.original", NULL, HF_SKIP, 0},
  {"pooler.dense.parametrizations.weight.0.lora_A", NULL, HF_SKIP, 0},
  {"pooler.dense.parametrizations.weight.0.lora_B", NULL, HF_SKIP, 0},
  {0},
};

// Positions are counted from the one after the padding token's id.
static int prepare_roberta(hf *h, error *err) {
  uint32_t pad, n;
  bool found, found_n;
  if (hf_u32(h, "pad_token_id", &pad, &found, err) || hf_u32(h, "max_position_embeddings", &n, &found_n, err))
    return -1;
  if (!found) return 0;
  if (!found_n || pad >= n - 1 || !n)
    return hf_fail(h, config_name, "max_position_embeddings", err, "has none after the padding token's, %u", pad);
  json_object_set_new(h->text, "position_offset", json_integer((json_int_t)pad + 1));
  json_object_set_new(h->text, "max_position_embeddings", json_integer((json_int_t)n - pad - 1));
  return 0;
}

#define JINA_V3 \
  "{\"layer_norm_eps\":1e-5,\"type_vocab_size\":1,\"rotary_emb_base\":20000.0,\"position_embedding_type\":\"rotary\"}"
#define ROTARY "hidden_act=gelu position_embedding_type=rotary is_decoder=false add_cross_attention=false"
static const hf_class jina_v3_as_published = {.name = "XLMRobertaModel",
                                              .arch = "jina-bert-v3",
                                              .under = "roberta.",
                                              .alone = true,
                                              .vocab = HF_VOCAB_XLMR,
                                              .musts = ROTARY,
                                              .rules = jina_v3_rules,
                                              .more = bert_more};

// Published folders of Jina's version 3 are of this class, and list their adapters.
static int prepare_xlmr(hf *h, error *err) {
  const char *name;
  if (json_array_size(hf_value(h, "lora_adaptations", &name))) h->class = &jina_v3_as_published;
  return prepare_roberta(h, err);
}

#define OF "transformer.layer.*."
static const hf_rule distilbert_rules[] = {
  {"embeddings.word_embeddings", "token_embd", 0, 0},
  {"embeddings.position_embeddings", "position_embd", 0, 0},
  {"embeddings.LayerNorm", "token_embd_norm", 0, 0},
  {OF "attention.q_lin", "blk.*.attn_q", 0, 0},
  {OF "attention.k_lin", "blk.*.attn_k", 0, 0},
  {OF "attention.v_lin", "blk.*.attn_v", 0, 0},
  {OF "attention.out_lin", "blk.*.attn_output", 0, 0},
  {OF "sa_layer_norm", "blk.*.attn_output_norm", 0, 0},
  {OF "ffn.lin1", "blk.*.ffn_up", 0, 0},
  {OF "ffn.lin2", "blk.*.ffn_down", 0, 0},
  {OF "output_layer_norm", "blk.*.layer_output_norm", 0, 0},
  {0},
};

// ---- ModernBERT, EuroBERT, NeoBERT, Nomic's -------------------------------------------------------------------------

static const hf_rule modernbert_rules[] = {
  {"embeddings.tok_embeddings", "token_embd", 0, 0},
  {"embeddings.norm", "token_embd_norm", 0, 0},
  {"final_norm", "output_norm", 0, 0},
  {"layers.*.attn_norm", "blk.*.attn_norm", 0, 0},
  {"layers.*.attn.Wqkv", "blk.*.attn_qkv", 0, 0},
  {"layers.*.attn.Wo", "blk.*.attn_output", 0, 0},
  {"layers.*.mlp_norm", "blk.*.ffn_norm", 0, 0},
  {"layers.*.mlp.Wi", "blk.*.ffn_up", 0, 0},
  {"layers.*.mlp.Wo", "blk.*.ffn_down", 0, 0},
  {0},
};
static const hf_key modernbert_keys[] = {
  {"vocab_size", HF_U32, "vocab_size"},
  {"attention.sliding_window", HF_U32, "local_attention"},
  {"attention.sliding_window_pattern", HF_U32, "global_attn_every_n_layers"},
  {0},
};

static int put_encoder(hf *h, error *err) {
  gguf_head_bool(h->head, hf_arch_key(h, "attention.causal"), false);
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "none", 4);
  h->rotation_read = false;
  return hf_put_pooling(h, err);
}

// Every third layer, from the first one on, sees all positions; folders may list them.
static int modernbert_more(hf *h, error *err) {
  uint32_t every = 3;
  bool found;
  const char *name, *act = json_string_value(hf_value(h, "hidden_activation", &name)),
                    *head = json_string_value(hf_value(h, "classifier_pooling", &name));
  if (hf_u32(h, "global_attn_every_n_layers", &every, &found, err) || hf_check_layers(h, every, 0, err)) return -1;
  if (head && (!strcmp(head, "cls") || !strcmp(head, "mean")))
    gguf_head_u32(h->head, hf_arch_key(h, "classifier.pooling_type"), *head == 'c' ? 2 : 1);
  if (act) gguf_head_str(h->head, hf_arch_key(h, "hidden_activation"), act, strlen(act));
  return put_encoder(h, err);
}

#define NOMIC "encoder.layers.*."
static const hf_rule nomic_rules[] = {
  {"embeddings.word_embeddings", "token_embd", 0, 0},
  {"embeddings.token_type_embeddings", "token_types", 0, 0},
  {"emb_ln", "token_embd_norm", 0, 0},
  {NOMIC "attn.Wqkv", "blk.*.attn_qkv", 0, 0},
  {NOMIC "attn.out_proj", "blk.*.attn_output", 0, 0},
  {NOMIC "norm1", "blk.*.attn_output_norm", 0, 0},
  {NOMIC "mlp.fc11", "blk.*.ffn_up", 0, 0},
  {NOMIC "mlp.fc12", "blk.*.ffn_gate", 0, 0},
  {NOMIC "mlp.fc2", "blk.*.ffn_down", 0, 0},
  {NOMIC "norm2", "blk.*.layer_output_norm", 0, 0},
  {0},
};

// Experts are one tensor, matrix after matrix. One bias is added to what all chosen experts give.
static const hf_rule nomic_moe_rules[] = {
  {"embeddings.word_embeddings", "token_embd", 0, 0},
  {"embeddings.token_type_embeddings", "token_types", 0, 0},
  {"emb_ln", "token_embd_norm", 0, 0},
  {NOMIC "attn.Wqkv", "blk.*.attn_qkv", 0, 0},
  {NOMIC "attn.out_proj", "blk.*.attn_output", 0, 0},
  {NOMIC "norm1", "blk.*.attn_output_norm", 0, 0},
  {NOMIC "mlp.fc1", "blk.*.ffn_up", 0, 0},
  {NOMIC "mlp.fc2", "blk.*.ffn_down", 0, 0},
  {NOMIC "mlp.router.layer", "blk.*.ffn_gate_inp", 0, 0},
  {NOMIC "mlp.experts.mlp.w1", "blk.*.ffn_up_exps.weight", HF_MATRICES, "num_experts"},
  {NOMIC "mlp.experts.mlp.w2", "blk.*.ffn_down_exps.weight", HF_MATRICES_TURNED, "num_experts"},
  {NOMIC "mlp.experts.bias", "blk.*.ffn_exps.bias", 0, 0},
  {NOMIC "norm2", "blk.*.layer_output_norm", 0, 0},
  {0},
};
static const hf_key nomic_moe_keys[] = {
  {"moe_every_n_layers", HF_U32, "moe_every_n_layers"}, {"expert_used_count", HF_U32, "moe_top_k"}, {0}};

// Vocabularies are WordPiece or that of XLM-R.
static int read_nomic_vocab(hf *h, enum hf_vocab *out, error *err) {
  json_t *tokenizer;
  if (hf_json(h, "tokenizer.json", true, &tokenizer, err)) return -1;
  const char *type = json_string_value(json_object_get(json_object_get(tokenizer, "model"), "type"));
  *out = type && !strcmp(type, "Unigram") ? HF_VOCAB_XLMR : HF_VOCAB_WORDPIECE;
  json_decref(tokenizer);
  return 0;
}

#define NOMIC_CLASS(arch_, vocab_, bias, act, rules_, keys_) \
  {.name = "NomicBertModel", .arch = arch_, .vocab = vocab_, .alone = true, .rules = rules_, .keys = keys_, \
   .more = bert_more, \
   .musts = act " causal=false qkv_proj_bias=" bias " mlp_fc1_bias=" bias " mlp_fc2_bias=" bias " prenorm=false " \
                "rotary_emb_fraction=1 rotary_emb_interleaved=false rotary_emb_scale_base=none " \
                "expert_choice_router=false moe_normalize_expert_weights=false num_shared_experts=0 ffn_div=1 " \
                "parallel_block=false use_rms_norm=false"}

// Published models are trained for a quarter of the positions that they name. Those of models with experts name what
// the class calls trained, and are trained for 512.
static int prepare_nomic(hf *h, error *err) {
#define PLAIN "activation_function=swiglu hidden_act=silu"
  static const hf_class variants[2][2] = {
    {NOMIC_CLASS("nomic-bert", HF_VOCAB_WORDPIECE, "false", PLAIN, nomic_rules, NULL),
     NOMIC_CLASS("nomic-bert", HF_VOCAB_XLMR, "false", PLAIN, nomic_rules, NULL)},
    {NOMIC_CLASS("nomic-bert-moe", HF_VOCAB_WORDPIECE, "true", "activation_function=gelu", nomic_moe_rules,
                 nomic_moe_keys),
     NOMIC_CLASS("nomic-bert-moe", HF_VOCAB_XLMR, "true", "activation_function=gelu", nomic_moe_rules,
                 nomic_moe_keys)}};
  uint32_t n, trained = 2048, every = 0;
  enum hf_vocab vocab;
  bool found;
  if (hf_u32(h, "moe_every_n_layers", &every, &found, err) || read_nomic_vocab(h, &vocab, err)) return -1;
  h->class = &variants[every > 0][vocab == HF_VOCAB_XLMR];
  if (every == 1) return hf_fail(h, config_name, "moe_every_n_layers", err, "is 1, which gives no layer experts");
  if (hf_u32(h, "n_positions", &n, &found, err)) return -1;
  if (!found) return 0;
  if (hf_u32(h, "max_trained_positions", &trained, &found, err)) return -1;
  if (n >= trained) n = every && n == trained ? trained / 4 : trained;
  json_object_set_new(h->text, "max_position_embeddings", json_integer(n));
  return 0;
}

// Rows of each head's queries, keys and values are together.
#define NEO "transformer_encoder.*."
#define EACH "num_attention_heads"
static const hf_rule neobert_rules[] = {
  {"encoder", "token_embd", 0, 0},
  {"layer_norm", "enc.output_norm", 0, 0},
  {NEO "attention_norm", "blk.*.attn_norm", 0, 0},
  {NEO "qkv", "blk.*.attn_qkv", HF_UNGROUP, EACH " " EACH " " EACH " " EACH},
  {NEO "wo", "blk.*.attn_output", 0, 0},
  {NEO "ffn_norm", "blk.*.ffn_norm", 0, 0},
  {NEO "ffn.w12", "blk.*.ffn_up", 0, 0},
  {NEO "ffn.w3", "blk.*.ffn_down", 0, 0},
  {"decoder", NULL, HF_SKIP, 0},
  {0},
};

// The width of the dense part is two thirds of what config.json says, and a multiple of 8.
static int prepare_neobert(hf *h, error *err) {
  uint32_t n;
  if (hf_need_u32(h, "intermediate_size", &n, err)) return -1;
  json_object_set_new(h->text, "intermediate_size", json_integer(((json_int_t)n * 2 / 3 + 7) / 8 * 8));
  return 0;
}

static int neobert_more(hf *h, error *err) {
  gguf_head_str(h->head, hf_arch_key(h, "rope.scaling.type"), "none", 4);
  if (bert_more(h, err)) return -1;
  gguf_head_u32(h->head, hf_arch_key(h, "pooling_type"), 2);         // as published: the first token's
  return 0;
}

// ---- the rows -------------------------------------------------------------------------------------------------------

#define KINDS "{\"layer_norm_eps\":1e-12,\"type_vocab_size\":2}"
#define ABSOLUTE "hidden_act=gelu position_embedding_type=absolute is_decoder=false add_cross_attention=false"
const hf_class hf_classes_encoders[] = {
  {.name = "BertModel",
   .arch = "bert",
   .under = "bert.",
   .defaults = KINDS,
   .musts = ABSOLUTE,
   .vocab = HF_VOCAB_WORDPIECE,
   .alone = true,
   .rules = bert_rules,
   .more = bert_more},
  {.name = "JinaBertModel",
   .like = "BertModel",
   .arch = "jina-bert-v2",
   .defaults = "{\"layer_norm_eps\":1e-12,\"type_vocab_size\":2,\"position_embedding_type\":\"absolute\","
               "\"feed_forward_type\":\"original\"}",
   .musts = "hidden_act=gelu position_embedding_type=alibi feed_forward_type=geglu is_decoder=false "
            "add_cross_attention=false",
   .rules = jina_rules},
  {.name = "JinaBertForMaskedLM", .like = "JinaBertModel"},
  {.name = "DistilBertModel",
   .like = "BertModel",
   .under = "distilbert.",
   .defaults = "{\"layer_norm_eps\":1e-12}",
   .musts = "activation=gelu",
   .rules = distilbert_rules},
  {.name = "RobertaModel",
   .arch = "bert",
   .under = "roberta.",
   .alone = true,
   .musts = ABSOLUTE,
   .prepare = prepare_roberta,
   .defaults = "{\"layer_norm_eps\":1e-5,\"type_vocab_size\":1}",
   .rules = roberta_rules,
   .more = bert_more},
  {.name = "XLMRobertaModel", .like = "RobertaModel", .vocab = HF_VOCAB_XLMR, .prepare = prepare_xlmr},
  {.name = "JinaEmbeddingsV3Model",
   .arch = "jina-bert-v3",
   .alone = true,
   .vocab = HF_VOCAB_XLMR,
   .musts = ROTARY,
   .prepare = prepare_roberta,
   .defaults = JINA_V3,
   .rules = jina_v3_rules,
   .more = bert_more},
  {.name = "ModernBertModel",
   .arch = "modern-bert",
   .under = "model.",
   .vocab = HF_VOCAB_MODERNBERT,
   .alone = true,
   .musts = "attention_bias=false mlp_bias=false norm_bias=false",
   .defaults = "{\"layer_norm_eps\":1e-5,\"global_rope_theta\":160000.0,\"local_rope_theta\":10000.0,"
               "\"local_attention\":128}",
   .keys = modernbert_keys,
   .rules = modernbert_rules,
   .more = modernbert_more},
  {.name = "EuroBertModel",
   .arch = "eurobert",
   .bare = true,
   .vocab = HF_VOCAB_EUROBERT,
   .musts = "hidden_act=silu attention_bias=false mlp_bias=false",
   .defaults = "{\"rms_norm_eps\":1e-5,\"rope_theta\":250000.0}",
   .more = put_encoder},
  {.name = "NomicBertModel",
   .arch = "nomic-bert",
   .alone = true,
   .vocab = HF_VOCAB_WORDPIECE,
   .prepare = prepare_nomic,
   .defaults = "{\"layer_norm_epsilon\":1e-12,\"type_vocab_size\":2,\"rotary_emb_base\":1000.0}",
   .rules = nomic_rules,
   .more = bert_more},
  {.name = "NeoBERT",
   .arch = "neo-bert",
   .under = "model.",
   .alone = true,
   .vocab = HF_VOCAB_WORDPIECE,
   .prepare = prepare_neobert,
   .musts = "rms_norm=true rope=true hidden_act=swiglu|SwiGLU ngpt=false swiglu_packed=true",
   .defaults = "{\"norm_eps\":1e-6,\"rope_theta\":10000.0,\"type_vocab_size\":1}",
   .rules = neobert_rules,
   .more = neobert_more},
  {.name = "NeoBERTLMHead", .like = "NeoBERT"},
  {0},
};
