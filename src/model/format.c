// The table of tensor types as an array that is indexed by id: see format.h.
#include "model/format.h"
#include "base/plain.h"

static const struct format formats[] = {
#define F(id, name, block, bytes, head, rows, computes) [id] = {id, #name, block, bytes, head, rows, computes},
  FORMAT_TABLE(F)
#undef F
};

static const char *const removed[] = {
#define R(id, name) [id] = #name,
  FORMAT_REMOVED(R)
#undef R
};

const struct format *format_by_id(uint32_t id) { return id < COUNT(formats) && formats[id].name ? &formats[id] : NULL; }

const struct format *format_by_name(const char *name) {
  for (size_t i = 0; i < COUNT(formats); i++)
    if (formats[i].name && !ascii_casecmp(formats[i].name, name)) return &formats[i];
  return NULL;
}

static const char *const mixtures[] = {
  [0] = "F32",     [1] = "F16",     [2] = "Q4_0",       [3] = "Q4_1",    [7] = "Q8_0",     [8] = "Q5_0",
  [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S",    [12] = "Q3_K_M", [13] = "Q3_K_L",  [14] = "Q4_K_S",
  [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",    [18] = "Q6_K",   [19] = "IQ2_XXS", [20] = "IQ2_XS",
  [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS",   [24] = "IQ1_S",  [25] = "IQ4_NL",  [26] = "IQ3_S",
  [27] = "IQ3_M",  [28] = "IQ2_S",  [29] = "IQ2_M",     [30] = "IQ4_XS", [31] = "IQ1_M",   [32] = "BF16",
  [36] = "TQ1_0",  [37] = "TQ2_0",  [38] = "MXFP4_MOE", [39] = "NVFP4",  [40] = "Q1_0",    [41] = "Q2_0",
  // ik_llama.cpp's
  [135] = "Q6_0",  [137] = "IQ2_BN", [138] = "IQ2_K", [139] = "IQ3_K", [140] = "IQ4_K", [141] = "IQ5_K",
  [142] = "IQ6_K", [145] = "IQ4_KS", [146] = "IQ3_KL", [147] = "IQ2_KS", [148] = "IQ4_KSS", [149] = "Q8_KV",
  [150] = "IQ5_KS", [151] = "IQ2_KT", [152] = "IQ3_KT", [153] = "IQ4_KT", [154] = "IQ3_KS", [155] = "IQ2_KL",
  [156] = "IQ1_KT",
};

const char *format_recipe_name(uint32_t file_type) { return file_type < COUNT(mixtures) ? mixtures[file_type] : NULL; }

const char *format_removed_name(uint32_t id) { return id < COUNT(removed) ? removed[id] : NULL; }

bool format_row_bytes(const struct format *f, uint64_t n, uint64_t *out) {
  return n % f->block == 0 && mul_u64(n / f->block, f->bytes, out) && add_u64(*out, f->head, out);
}
