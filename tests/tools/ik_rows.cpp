// What ik_llama.cpp's own code makes of rows, for record_formats.py, which builds it beside a copy of its source.
//
//     ik_rows NAME ROWS_TOGETHER BYTES_OF_A_ROW ELEMENTS_OF_A_ROW < rows > floats
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <immintrin.h>
#include <vector>
#include "ggml.h"
#define GGML_COMMON_DECL_CPP
#define GGML_COMMON_IMPL_CPP
#define GGML_COMMON_IMPL_C
#include "ggml-common.h"
#include "ggml-impl.h"
#include "ggml-quants.h"
#include "iqk_quantize.h"

extern "C" float ggml_table_f32_f16[1 << 16];      // as ggml_init fills it
float ggml_table_f32_f16[1 << 16];

// By the table that its products use; its dequantize_row_iq6_k has a polynomial that is near it.
static void iq6_k(const block_iq6_k *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const block_iq6_k &b = x[i / 256];
    int at = i % 256, byte = at / 64 * 32 + at % 32, high = at / 128 * 32 + at % 32, sub = at / 16;
    int code = (b.qs[byte] >> (at / 32 % 2 * 4) & 15) | (b.qh[high] >> (at / 32 % 4 * 2) & 3) << 4;
    y[i] = GGML_FP16_TO_FP32(b.d) * b.scales[sub] * (iq6nl_values[code] + (b.extra >> sub & 1));
  }
}

// By the scale of the row, which its products use and its dequantize_row_iq2_bn leaves out.
static void iq2_bn(const unsigned char *row, float *y, int64_t n) {
  float d;
  memcpy(&d, row, sizeof d);
  dequantize_row_iq2_bn((const block_iq2_bn *)(row + sizeof d), y, n);
  for (int64_t i = 0; i < n; i++) y[i] *= d;
}

// Its function takes eight times the blocks that there are, so that only row 0 of the first one is what it should be.
static void mxfp4_r8(const unsigned char *rows, float *y, int64_t n) {
  const block_mxfp4_r8 *from = (const block_mxfp4_r8 *)rows;
  for (int64_t i = 0; i < n / 32; i++) {
    block_mxfp4_r8 x[8] = {};
    float made[32 * 15];
    int64_t row = i % 8, block = i / 8;
    x[0].e[0] = from[block].e[row];
    for (int j = 0; j < 4; j++) memcpy(x[0].qs + 32 * j, from[block].qs + 32 * j + 4 * row, 4);
    dequantize_row_mxfp4_r8(x, made, 256);
    memcpy(y + row * (n / 8) + 32 * block, made, 32 * sizeof *y);
  }
}

// It has a function to BF16_R16 and none from it.
static bool bf16_r16(const unsigned char *rows, float *y, int64_t n) {
  std::vector<ggml_bf16_t> plain(n), again(n);
  const ggml_bf16_t *x = (const ggml_bf16_t *)rows;
  int64_t columns = n / 16;
  for (int64_t i = 0; i < n; i++) plain[i / 2 % 16 * columns + i / 32 * 2 + i % 2] = x[i];
  repack_bf16_bf16_r16(plain.data(), again.data(), 16, columns);
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)plain[i].bits << 16;
    memcpy(&y[i], &bits, sizeof bits);
  }
  return !memcmp(again.data(), rows, 2 * n);
}

int main(int argc, char **argv) {
  if (argc != 5) return 1;
  for (int i = 0; i < 1 << 16; i++) ggml_table_f32_f16[i] = _cvtsh_ss((unsigned short)i);
  size_t together = strtoul(argv[2], NULL, 10), bytes = together * strtoul(argv[3], NULL, 10),
         n = together * strtoul(argv[4], NULL, 10);
  std::vector<unsigned char> in(bytes + 64);
  std::vector<float> out(n);
  while (fread(in.data(), 1, bytes, stdin) == bytes) {
#define ROWS(name, small) \
  if (!strcmp(argv[1], #name)) dequantize_row_##small((const block_##small *)in.data(), out.data(), (int64_t)n);
    ROWS(Q6_0, q6_0) ROWS(IQ2_K, iq2_k) ROWS(IQ3_K, iq3_k) ROWS(IQ4_K, iq4_k) ROWS(IQ5_K, iq5_k)
    ROWS(IQ2_KS, iq2_ks) ROWS(IQ3_KS, iq3_ks) ROWS(IQ4_KS, iq4_ks) ROWS(IQ5_KS, iq5_ks) ROWS(IQ4_KSS, iq4_kss)
    ROWS(IQ2_KL, iq2_kl)
    if (!strcmp(argv[1], "Q4_0_R8")) dequantize_row_q4_0_r8((const block_iq4_nl_r8 *)in.data(), out.data(), (int64_t)n);
    ROWS(Q5_0_R4, q5_0_r4) ROWS(Q8_0_R8, q8_0_r8) ROWS(Q2_K_R4, q2_k_r4) ROWS(Q3_K_R4, q3_k_r4) ROWS(Q4_K_R4, q4_k_r4)
    ROWS(Q5_K_R4, q5_k_r4) ROWS(Q6_K_R4, q6_k_r4) ROWS(IQ4_NL_R4, iq4_nl_r4) ROWS(IQ4_XS_R8, iq4_xs_r8)
    ROWS(Q6_0_R4, q6_0_r4) ROWS(IQ2_K_R4, iq2_k_r4) ROWS(IQ3_K_R4, iq3_k_r4) ROWS(IQ4_K_R4, iq4_k_r4)
    ROWS(IQ5_K_R4, iq5_k_r4) ROWS(IQ4_KS_R4, iq4_ks_r4) ROWS(IQ5_KS_R4, iq5_ks_r4) ROWS(Q8_K_R8, q8_k_r8)
    ROWS(IQ2_XXS_R4, iq2_xxs_r4) ROWS(IQ2_XS_R4, iq2_xs_r4) ROWS(IQ2_S_R4, iq2_s_r4) ROWS(IQ3_XXS_R4, iq3_xxs_r4)
    ROWS(IQ3_S_R4, iq3_s_r4) ROWS(IQ1_S_R4, iq1_s_r4) ROWS(IQ1_M_R4, iq1_m_r4) ROWS(Q8_K_R16, q8_k_r16)
    ROWS(IQ1_KT, iq1_kt) ROWS(IQ2_KT, iq2_kt) ROWS(IQ3_KT, iq3_kt) ROWS(IQ4_KT, iq4_kt)
    if (!strcmp(argv[1], "MXFP4_R8")) mxfp4_r8(in.data(), out.data(), (int64_t)n);
    if (!strcmp(argv[1], "IQ2_BN")) iq2_bn(in.data(), out.data(), (int64_t)n);
    if (!strcmp(argv[1], "IQ2_BN_R4"))
      dequantize_row_iq2_bn_r4((const block_iq2_bn *)in.data(), out.data(), (int64_t)n);
    if (!strcmp(argv[1], "Q8_KV")) dequantize_row_q8_KV(in.data(), out.data(), (int64_t)n);
    if (!strcmp(argv[1], "Q8_KV_R8")) dequantize_row_q8_KV_r8(in.data(), out.data(), (int64_t)n);
    if (!strcmp(argv[1], "BF16_R16") && !bf16_r16(in.data(), out.data(), (int64_t)n)) return 1;
    if (!strcmp(argv[1], "IQ6_K")) iq6_k((const block_iq6_k *)in.data(), out.data(), (int64_t)n);
    fwrite(out.data(), sizeof(float), n, stdout);
  }
}
