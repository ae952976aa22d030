// Chooses formats by a table of rules: see quant_recipe.h.
#include "model/quant_recipe.h"
#include <stdlib.h>
#include <string.h>
#include "base/plain.h"
#include "model/quantise.h"

// ---- the mixtures ---------------------------------------------------------------------------------------------------

#define MIXTURES(M) \
  M(F32, 0, F32) M(F16, 1, F16) M(BF16, 32, BF16) M(Q8_0, 7, Q8_0) M(Q6_K, 18, Q6_K) \
  M(Q5_K_M, 17, Q5_K) M(Q5_K_S, 16, Q5_K) M(Q5_1, 9, Q5_1) M(Q5_0, 8, Q5_0) M(Q4_K_M, 15, Q4_K) M(Q4_K_S, 14, Q4_K) \
  M(Q4_1, 3, Q4_1) M(Q4_0, 2, Q4_0) \
  M(IQ4_NL, 25, IQ4_NL) M(IQ4_XS, 30, IQ4_XS) M(MXFP4_MOE, 38, MXFP4) M(NVFP4, 39, NVFP4) \
  M(Q3_K_L, 13, Q3_K) M(Q3_K_M, 12, Q3_K) M(Q3_K_S, 11, Q3_K) M(IQ3_M, 27, IQ3_S) M(IQ3_S, 26, IQ3_S) \
  M(IQ3_XS, 22, IQ3_S) M(IQ3_XXS, 23, IQ3_XXS) \
  M(Q2_K, 10, Q2_K) M(Q2_K_S, 21, Q2_K) M(Q2_0, 41, Q2_0) M(IQ2_M, 29, IQ2_S) M(IQ2_S, 28, IQ2_XS) \
  M(IQ2_XS, 20, IQ2_XS) M(IQ2_XXS, 19, IQ2_XXS) M(TQ2_0, 37, TQ2_0) \
  M(IQ1_M, 31, IQ1_M) M(IQ1_S, 24, IQ1_S) M(TQ1_0, 36, TQ1_0) M(Q1_0, 40, Q1_0)

enum {
#define M(name, number, base) MIX_##name = number,
  MIXTURES(M)
#undef M
};
static const struct { uint32_t file_type, base; } mixtures[] = {
#define M(name, number, base) {number, FORMAT_##base},
  MIXTURES(M)
#undef M
};
static const struct {
  const char *name, *means;
} short_names[] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

bool quant_recipe_at(size_t i, quant_recipe *out) {
  for (size_t k = 0; k < COUNT(mixtures); k++) {
    const struct format *f = format_by_id(mixtures[k].base);
    if (!quantise_can(f) || i--) continue;
    *out = (quant_recipe){mixtures[k].file_type, f};
    return true;
  }
  return false;
}

bool quant_recipe_find(const char *name, quant_recipe *out) {
  char *end;
  unsigned long number = strtoul(name, &end, 10);
  bool numbered = name[0] >= '0' && name[0] <= '9' && !*end;
  for (size_t i = 0; i < COUNT(short_names); i++)
    if (!ascii_casecmp(name, short_names[i].name)) name = short_names[i].means;
  for (size_t i = 0; quant_recipe_at(i, out); i++)
    if (numbered ? number == out->file_type : !ascii_casecmp(name, format_recipe_name(out->file_type))) return true;
  return false;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

enum kind { OTHER, OUTPUT, EMBEDDING, ATTN_Q, ATTN_K, ATTN_V, ATTN_OUT, FFN_UP, FFN_GATE, FFN_DOWN };

// The role of a tensor, by a part of its name; the first matching row counts. (All tensors with values count as
// ATTN_V.)
static const struct { const char *part; enum kind kind;
} kinds[] = {
  {"attn_qkv.weight", ATTN_V}, {"attn_kv_b.weight", ATTN_V}, {"attn_v.weight", ATTN_V},
  {"attn_k.weight", ATTN_K},   {"attn_q.weight", ATTN_Q},    {"attn_output.weight", ATTN_OUT},
  {"ffn_up", FFN_UP},          {"ffn_gate", FFN_GATE},       {"ffn_down", FFN_DOWN},
};

static enum kind kind_by_name(const char *name) {
  if (!strcmp(name, "output.weight")) return OUTPUT;
  if (!strcmp(name, "token_embd.weight") || !strcmp(name, "per_layer_token_embd.weight")) return EMBEDDING;
  for (size_t i = 0; i < COUNT(kinds); i++) if (strstr(name, kinds[i].part)) return kinds[i].kind;
  return OTHER;
}

// Parts of names of matrices that keep their format: small ones, and those that select or give positions instead of
// being multiplied.
static const char *const kept[] = {
  "_norm.weight",
  "ffn_gate_inp.weight",
  "ffn_gate_tid2eid.weight",
  "altup",
  "_hc_fn",
  "hc_attn_fn",
  "hc_ffn_fn",
  "laurel",
  "per_layer_model_proj",
  "ssm_conv1d",
  "shortconv.conv.weight",
  "indexer.k_proj.weight",
  "indexer.q_proj.weight",
  "time_mix_first.weight",
  "time_mix_w0.weight",
  "time_mix_w1.weight",
  "time_mix_w2.weight",
  "time_mix_v0.weight",
  "time_mix_v1.weight",
  "time_mix_v2.weight",
  "time_mix_a0.weight",
  "time_mix_a1.weight",
  "time_mix_a2.weight",
  "time_mix_g1.weight",
  "time_mix_g2.weight",
  "time_mix_decay_w1.weight",
  "time_mix_decay_w2.weight",
  "time_mix_lerp_fused.weight",
  "attn_rel_b.weight",
  ".position_embd",
  "sam.pos_embd",
  "sam.neck.",
  "sam.net_",
  ".rel_pos",
  ".patch_embd",
  ".patch_merger",
  "a.rvq.codebook",
  "mm.a.code_embd",
};

static bool arch_is(const gguf *g, const char *name) {
  const gguf_value *v = gguf_find(g, "general.architecture");
  return v && v->type == GGUF_STRING && v->s.n == strlen(name) && !memcmp(v->s.at, name, v->s.n);
}

static bool is_quantised(const gguf_tensor *t) {
  size_t n = strlen(t->name);
  if (t->ne[1] == 1 && t->ne[2] == 1 && t->ne[3] == 1) return false;
  if (n < 6 || strcmp(t->name + n - 6, "weight")) return false;
  if (!strcmp(t->name, "position_embd.weight") || !strcmp(t->name, "token_types.weight")) return false;
  for (size_t i = 0; i < COUNT(kept); i++) if (strstr(t->name, kept[i])) return false;
  return true;
}

// ---- the rules ------------------------------------------------------------------------------------------------------

// Conditions of a rule; all of them must hold.
enum {
  GROUPED = 1,               // at least four query heads per key head
  EXPERTS_4 = 2, EXPERTS_8 = 4, NOT_8 = 8,
  FIRST_8TH = 16, FIRST_16TH = 32,     // of the layers
  FIRST_2 = 64, FIRST_4 = 128,         // tensors of this kind
  SENSITIVE = 256,           // the first and the last eighth of the layers, and every third one between
  MIDDLE = 512,              // neither of these eighths
  WEIGHTED = 1024, UNWEIGHTED = 2048,
  FALCON = 4096, NOT_FALCON = 8192,
};
struct rule { enum kind kind; uint64_t mixtures; int when; enum format_id format; };

#define IN(name) (1ull << MIX_##name)
#define LOW (IN(IQ2_XXS) | IN(IQ2_XS) | IN(IQ2_S) | IN(IQ2_M) | IN(IQ1_S) | IN(IQ1_M))
#define LOW_S (IN(IQ2_S) | IN(IQ2_M))

// The first matching rule decides; otherwise the mixture's base format is used.
static const struct rule rules[] = {
  {ATTN_V, LOW, GROUPED, FORMAT_Q4_K},
  {ATTN_V, LOW, EXPERTS_4, FORMAT_Q4_K},
  {ATTN_V, LOW_S, 0, FORMAT_IQ3_S},
  {ATTN_V, LOW, 0, FORMAT_Q2_K},
  {ATTN_V, ~LOW, EXPERTS_8, FORMAT_Q8_0},
  {ATTN_V, IN(Q2_K) | IN(Q2_K_S) | IN(IQ3_XXS) | IN(IQ3_XS) | IN(IQ3_S) | IN(IQ3_M), GROUPED, FORMAT_Q4_K},
  {ATTN_V, IN(Q2_K), 0, FORMAT_Q3_K},
  {ATTN_V, IN(IQ3_XXS), UNWEIGHTED, FORMAT_IQ3_S},
  {ATTN_V, IN(IQ3_XXS), 0, FORMAT_IQ3_XXS},
  {ATTN_V, IN(IQ3_M), 0, FORMAT_Q4_K},
  {ATTN_V, IN(Q3_K_M), FIRST_2, FORMAT_Q5_K},
  {ATTN_V, IN(Q3_K_M), 0, FORMAT_Q4_K},
  {ATTN_V, IN(Q3_K_L), 0, FORMAT_Q5_K},
  {ATTN_V, IN(IQ4_NL) | IN(IQ4_XS), GROUPED, FORMAT_Q5_K},
  {ATTN_V, IN(Q4_K_M) | IN(Q5_K_M), SENSITIVE, FORMAT_Q6_K},
  {ATTN_V, IN(Q4_K_S), FIRST_4, FORMAT_Q5_K},
  {ATTN_K, LOW, EXPERTS_8, FORMAT_Q4_K},
  {ATTN_K, ~LOW, EXPERTS_8, FORMAT_Q8_0},
  {ATTN_K, IN(IQ3_XS), 0, FORMAT_IQ3_XXS},
  {ATTN_K, IN(IQ3_XXS), 0, FORMAT_IQ2_S},
  {ATTN_Q, IN(IQ3_XS), 0, FORMAT_IQ3_XXS},
  {ATTN_Q, IN(IQ3_XXS), 0, FORMAT_IQ2_S},
  {FFN_DOWN, LOW_S, FIRST_8TH, FORMAT_IQ3_S},
  {FFN_DOWN, LOW, FIRST_8TH, FORMAT_Q2_K},
  {FFN_DOWN, IN(Q2_K), 0, FORMAT_Q3_K},
  {FFN_DOWN, IN(Q2_K_S), FIRST_8TH, FORMAT_Q4_K},
  {FFN_DOWN, IN(IQ3_XXS), UNWEIGHTED | FIRST_8TH, FORMAT_Q4_K},
  {FFN_DOWN, IN(IQ3_XXS), UNWEIGHTED, FORMAT_Q3_K},
  {FFN_DOWN, IN(Q3_K_M), FIRST_16TH, FORMAT_Q5_K},
  {FFN_DOWN, IN(Q3_K_M), NOT_FALCON, FORMAT_Q4_K},
  {FFN_DOWN, IN(Q3_K_M), SENSITIVE, FORMAT_Q4_K},
  {FFN_DOWN, IN(IQ3_M), FIRST_8TH, FORMAT_Q4_K},
  {FFN_DOWN, IN(IQ3_M), EXPERTS_8 | SENSITIVE, FORMAT_Q4_K},
  {FFN_DOWN, IN(Q3_K_L), FALCON, FORMAT_Q4_K},
  {FFN_DOWN, IN(Q3_K_L), 0, FORMAT_Q5_K},
  {FFN_DOWN, IN(Q4_K_M), FALCON | FIRST_16TH, FORMAT_Q6_K},
  {FFN_DOWN, IN(Q4_K_M), FALCON | SENSITIVE, FORMAT_Q5_K},
  {FFN_DOWN, IN(Q4_K_M), NOT_FALCON | SENSITIVE, FORMAT_Q6_K},
  {FFN_DOWN, IN(IQ4_NL) | IN(IQ4_XS), UNWEIGHTED | FIRST_8TH, FORMAT_Q5_K},
  {FFN_DOWN, IN(Q5_K_M), SENSITIVE, FORMAT_Q6_K},
  {FFN_DOWN, IN(Q4_K_S), NOT_FALCON | FIRST_8TH, FORMAT_Q5_K},
  {FFN_DOWN, IN(Q4_0), WEIGHTED | FIRST_8TH, FORMAT_Q4_1},
  {FFN_DOWN, IN(Q5_0), WEIGHTED | FIRST_8TH, FORMAT_Q5_1},
  {ATTN_OUT, LOW, EXPERTS_8, FORMAT_Q5_K},
  {ATTN_OUT, IN(IQ1_S) | IN(IQ1_M), 0, FORMAT_IQ2_XXS},
  {ATTN_OUT, LOW_S, 0, FORMAT_IQ3_S},
  {ATTN_OUT,
   IN(Q2_K) | IN(IQ3_XS) | IN(IQ3_XXS) | IN(IQ3_S) | IN(IQ3_M) | IN(Q3_K_S) | IN(Q3_K_M) | IN(IQ4_NL) | IN(IQ4_XS) |
     IN(Q4_K_S) | IN(Q4_K_M),
   EXPERTS_8 | NOT_FALCON, FORMAT_Q5_K},
  {ATTN_OUT, IN(Q2_K), NOT_8 | NOT_FALCON, FORMAT_Q3_K},
  {ATTN_OUT, IN(IQ3_XXS), NOT_8 | NOT_FALCON, FORMAT_IQ3_S},
  {ATTN_OUT, IN(Q3_K_M) | IN(IQ3_M), NOT_8 | NOT_FALCON, FORMAT_Q4_K},
  {ATTN_OUT, IN(Q3_K_L), NOT_8 | NOT_FALCON, FORMAT_Q5_K},
  {ATTN_OUT, IN(Q3_K_L), FALCON, FORMAT_Q4_K},
  {FFN_UP, IN(IQ3_XS), MIDDLE, FORMAT_IQ3_XXS},
  {FFN_GATE, IN(IQ3_XS), MIDDLE, FORMAT_IQ3_XXS},
  {EMBEDDING, IN(IQ2_XXS) | IN(IQ2_XS) | IN(IQ1_S) | IN(IQ1_M), 0, FORMAT_Q2_K},
  {EMBEDDING, LOW_S | IN(IQ3_XXS), 0, FORMAT_IQ3_S},
  {EMBEDDING, IN(TQ1_0) | IN(TQ2_0) | IN(Q2_0), 0, FORMAT_Q4_K},
};

// ---- one file -------------------------------------------------------------------------------------------------------

struct facts {
  const gguf *g;
  const quant_recipe_wish *w;
  int64_t n_layer, n_expert, n_head, n_kv;
  bool falcon, llama, tied;                // tied: the embedding is also the output matrix
  int n_values;                            // tensors of kind ATTN_V
  int at[FFN_DOWN + 1];                    // per kind: how many have been processed
};

// A number of the architecture, or of its first layer.
static int64_t arch_number(const gguf *g, const char *name, int64_t fallback) {
  const gguf_value *arch = gguf_find(g, "general.architecture"), *v;
  char key[256];
  bool negative;
  uint64_t n;
  if (!arch || arch->type != GGUF_STRING || arch->s.n > 64) return fallback;
  snprintf(key, sizeof key, "%.*s.%s", (int)arch->s.n, arch->s.at, name);
  if (!(v = gguf_find(g, key))) return fallback;
  gguf_value first = v->type == GGUF_ARRAY && v->a.n && v->elem != GGUF_STRING ? gguf_elem(v, 0) : *v;
  bool is = first.type == GGUF_INT8 || first.type == GGUF_INT16 || first.type == GGUF_INT32 || first.type == GGUF_INT64;
  negative = is && first.i < 0;
  if (is) n = (uint64_t)first.i;
  else if (first.type == GGUF_UINT8 || first.type == GGUF_UINT16 || first.type == GGUF_UINT32 ||
           first.type == GGUF_UINT64)
    n = first.u;
  else return fallback;
  return negative || n > INT32_MAX ? fallback : (int64_t)n;
}

static bool rule_holds(const struct facts *f, int when, int64_t i, int64_t n) {
  if (when & GROUPED && !(f->n_kv && f->n_head / f->n_kv >= 4)) return false;
  if ((when & EXPERTS_4 && f->n_expert < 4) || (when & EXPERTS_8 && f->n_expert != 8) ||
      (when & NOT_8 && f->n_expert == 8))
    return false;
  if ((when & FIRST_8TH && i >= n / 8) || (when & FIRST_16TH && i >= n / 16) || (when & FIRST_2 && i >= 2) ||
      (when & FIRST_4 && i >= 4))
    return false;
  if (when & SENSITIVE && !(i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2)) return false;
  if (when & MIDDLE && (i < n / 8 || i >= 7 * n / 8)) return false;
  if (when & (f->w->weighted ? UNWEIGHTED : WEIGHTED)) return false;
  return !(when & (f->falcon ? NOT_FALCON : FALCON));
}

// The format of the output matrix.
static enum format_id output_format(const struct facts *f, const gguf_tensor *t, uint64_t in) {
  const struct format *base = f->w->of.base;
  if (f->w->output) return (enum format_id)f->w->output->id;
  if (in & IN(MXFP4_MOE) || f->falcon || t->ne[0] % base->block || base->id == FORMAT_Q8_0) return FORMAT_Q8_0;
  return in & (LOW | IN(IQ3_XXS)) ? FORMAT_Q5_K : FORMAT_Q6_K;
}

// The layer of a tensor. Experts of one layer may be in several tensors, in any order, so only their names tell; -1:
// they do not.
static int64_t layer_of(const struct facts *f, const gguf_tensor *t, enum kind kind, uint64_t in) {
  int layer = -1;
  if (kind == ATTN_V || f->n_expert < 2 || in & LOW) return f->at[kind];
  return sscanf(t->name, "blk.%d.", &layer) == 1 && layer >= 0 && layer < f->n_layer ? layer : -1;
}

static int by_rules(struct facts *f, const gguf_tensor *t, const struct format **out, error *err) {
  enum kind kind = kind_by_name(t->name);
  uint64_t in = 1ull << f->w->of.file_type;
  enum format_id id = (enum format_id)f->w->of.base->id;
  bool layered = kind == ATTN_V || kind >= FFN_UP;
  if (kind == OUTPUT || (f->tied && kind == EMBEDDING)) id = output_format(f, t, in);
  else if (in & IN(MXFP4_MOE)) id = t->ne[2] > 1 ? FORMAT_MXFP4 : FORMAT_Q8_0;
  else {
    int64_t i = layered ? layer_of(f, t, kind, in) : 0, n = kind == ATTN_V ? f->n_values : f->n_layer;
    if (i < 0)
      return gguf_fail(f->g, NULL, err, "tensor '%s': its name does not say to which of %lld layers it belongs",
                       t->name, (long long)f->n_layer);
    for (size_t k = 0; k < COUNT(rules); k++) {
      if (rules[k].kind != kind || !(rules[k].mixtures & in) || !rule_holds(f, rules[k].when, i, n)) continue;
      id = rules[k].format;
      break;
    }
    // 80 layers with shared key heads are the 70B models, whose value matrices are small compared with the others
    if (kind == ATTN_V && !(in & LOW) && f->llama && f->n_layer == 80 && f->n_head != f->n_kv &&
        (id == FORMAT_Q3_K || id == FORMAT_Q4_K))
      id = FORMAT_Q5_K;
    f->at[kind]++;
  }
  *out = format_by_id(id);
  return 0;
}

// The replacement for a format whose blocks do not fit.
static const struct format *smaller_blocks(const struct format *f, const gguf_tensor *t) {
  static const struct { enum format_id from, to;
  } smaller[] = {
    {FORMAT_IQ1_S, FORMAT_IQ4_NL},  {FORMAT_IQ1_M, FORMAT_IQ4_NL},  {FORMAT_IQ2_XXS, FORMAT_IQ4_NL},
    {FORMAT_IQ2_XS, FORMAT_IQ4_NL}, {FORMAT_IQ2_S, FORMAT_IQ4_NL},  {FORMAT_IQ3_XXS, FORMAT_IQ4_NL},
    {FORMAT_IQ3_S, FORMAT_IQ4_NL},  {FORMAT_IQ4_XS, FORMAT_IQ4_NL}, {FORMAT_Q2_0, FORMAT_Q4_0},
    {FORMAT_Q2_K, FORMAT_Q4_0},     {FORMAT_Q3_K, FORMAT_Q4_0},     {FORMAT_TQ1_0, FORMAT_Q4_0},
    {FORMAT_TQ2_0, FORMAT_Q4_0},    {FORMAT_Q4_K, FORMAT_Q5_0},     {FORMAT_Q5_K, FORMAT_Q5_1},
    {FORMAT_Q6_K, FORMAT_Q8_0},     {FORMAT_NVFP4, FORMAT_IQ4_NL},
  };
  for (size_t i = 0; i < COUNT(smaller); i++)
    if (smaller[i].from == f->id && t->ne[0] % format_by_id(smaller[i].to)->block == 0)
      return format_by_id(smaller[i].to);
  return format_by_id(FORMAT_F16);
}

static int choose_by_rules(struct facts *f, const gguf_tensor *t, const struct format *manual, quant_recipe_choice *out,
                           error *err) {
  const quant_recipe_wish *w = f->w;
  enum kind kind = kind_by_name(t->name);
  const struct format *format = w->of.base;
  *out = (quant_recipe_choice){.format = t->format};
  if (!is_quantised(t) || (w->leave_output && kind == OUTPUT)) return 0;
  if (w->embedding && kind == EMBEDDING && !(manual && !strncmp(t->name, "per_layer", 9))) format = w->embedding;
  else if (w->output && kind == OUTPUT) format = w->output;
  else if (format->block > 1) {
    if (manual) format = manual;
    else if (!w->pure && by_rules(f, t, &format, err)) return -1;
  }
  out->misfit = t->ne[0] % format->block != 0;
  if (out->misfit) format = smaller_blocks(format, t);
  out->format = format;
  out->needs_weights = kind != EMBEDDING && kind != OUTPUT &&
                       (quantise_needs_weights(format) || (format->id == FORMAT_Q2_K && w->of.file_type == MIX_Q2_K_S));
  return 0;
}

int quant_recipe_choose(const gguf *g, const quant_recipe_wish *w, const gguf_tensor *const *tensors,
                   const struct format *const *manual, size_t n, quant_recipe_choice *out, error *err) {
  struct facts f = {.g = g,
                    .w = w,
                    .falcon = arch_is(g, "falcon"),
                    .llama = arch_is(g, "llama"),
                    .tied = true,
                    .n_layer = arch_number(g, "block_count", 0),
                    .n_expert = arch_number(g, "expert_count", 0),
                    .n_head = arch_number(g, "attention.head_count", 0)};
  f.n_kv = arch_number(g, "attention.head_count_kv", f.n_head);
  for (size_t i = 0; i < n; i++) {
    enum kind kind = kind_by_name(tensors[i]->name);
    f.n_values += kind == ATTN_V;
    if (kind == OUTPUT) f.tied = false;
  }
  for (size_t i = 0; i < n; i++) if (choose_by_rules(&f, tensors[i], manual[i], &out[i], err)) return -1;
  return 0;
}
