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
    if (!strcmp(argv[1], "IQ6_K")) iq6_k((const block_iq6_k *)in.data(), out.data(), (int64_t)n);
    fwrite(out.data(), sizeof(float), n, stdout);
  }
}
