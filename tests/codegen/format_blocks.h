// Random blocks of every format that computes, for tests that want ordinary numbers: the one table of where scales lie.
#ifndef WEFT_TEST_FORMAT_BLOCKS_H
#define WEFT_TEST_FORMAT_BLOCKS_H
#include "base/map.h"
#include "model/format.h"

static inline uint64_t format_random(uint64_t *s) { return hash_u64((*s)++, 12345); }

static inline int64_t format_bytes(const struct format *f, int64_t rows, int64_t cols) {
  uint64_t row;
  if (!format_row_bytes(f, (uint64_t)cols, &row)) die("%s: no whole blocks", f->name);
  return rows * (int64_t)row;
}

// Scales of rows that are stored together: floats near 2^-10, of two or four bytes
static inline void format_head(const struct format *f, unsigned char *p, uint64_t *seed) {
  for (uint32_t i = 0; i < f->rows; i++, p += f->head) {
    if (f->head == 2) p[1] = (unsigned char)(0x14 + format_random(seed) % 8);
    if (f->head >= 4) p[3] = 0x3a, p[2] &= 0x7f;
  }
}

// Fills rows. The bytes of `high` are those with the exponents of half-precision scales, or of MXFP4's, or NVFP4's four
// scales; all others are random.
static inline void format_blocks(const struct format *f, unsigned char *p, int64_t rows, int64_t cols, uint64_t *seed) {
  static const struct { uint32_t id; int high[2];
  } scales[] = {
    {FORMAT_Q4_0, {1, 1}},   {FORMAT_Q4_1, {1, 3}},     {FORMAT_Q5_0, {1, 1}},     {FORMAT_Q5_1, {1, 3}},
    {FORMAT_Q8_0, {1, 1}},   {FORMAT_Q2_K, {81, 83}},   {FORMAT_Q3_K, {109, 109}}, {FORMAT_Q4_K, {1, 3}},
    {FORMAT_Q5_K, {1, 3}},   {FORMAT_Q6_K, {209, 209}}, {FORMAT_TQ1_0, {53, 53}},  {FORMAT_TQ2_0, {65, 65}},
    {FORMAT_IQ1_S, {1, 1}},  {FORMAT_IQ1_M, {55, 55}},  {FORMAT_IQ2_XXS, {1, 1}},  {FORMAT_IQ2_XS, {1, 1}},
    {FORMAT_IQ2_S, {1, 1}},  {FORMAT_IQ3_XXS, {1, 1}},  {FORMAT_IQ3_S, {1, 1}},    {FORMAT_IQ4_NL, {1, 1}},
    {FORMAT_IQ4_XS, {1, 1}}, {FORMAT_MXFP4, {0, 0}},    {FORMAT_NVFP4, {0, 1}},    {FORMAT_Q1_0, {1, 1}},
    {FORMAT_Q2_0, {1, 1}},   {FORMAT_Q6_0, {1, 1}},     {FORMAT_IQ2_K, {1, 1}},    {FORMAT_IQ3_K, {1, 1}},
    {FORMAT_IQ4_K, {1, 1}},  {FORMAT_IQ5_K, {1, 1}},    {FORMAT_IQ6_K, {1, 1}},
    {FORMAT_Q4_0_R8, {1, 1}},   {FORMAT_Q5_0_R4, {1, 1}},  {FORMAT_Q8_0_R8, {1, 1}}, {FORMAT_Q2_K_R4, {1, 3}},
    {FORMAT_Q3_K_R4, {1, 1}},   {FORMAT_Q4_K_R4, {1, 3}},  {FORMAT_Q5_K_R4, {1, 3}}, {FORMAT_Q6_K_R4, {1, 1}},
    {FORMAT_IQ4_NL_R4, {1, 1}}, {FORMAT_IQ4_XS_R8, {1, 1}}, {FORMAT_Q6_0_R4, {1, 1}}, {FORMAT_IQ2_K_R4, {1, 1}},
    {FORMAT_IQ3_K_R4, {1, 1}},  {FORMAT_IQ4_K_R4, {1, 1}}, {FORMAT_IQ5_K_R4, {1, 1}}, {FORMAT_Q8_K_R8, {1, 1}},
    {FORMAT_IQ2_XXS_R4, {1, 1}}, {FORMAT_IQ2_XS_R4, {1, 1}}, {FORMAT_IQ2_S_R4, {1, 1}}, {FORMAT_IQ3_XXS_R4, {1, 1}},
    {FORMAT_IQ3_S_R4, {1, 1}}, {FORMAT_MXFP4_R8, {0, 0}}, {FORMAT_BF16_R16, {1, 3}}, {FORMAT_Q8_K_R16, {1, 1}},
  };
  size_t which = 0;
  while (which < COUNT(scales) && scales[which].id != f->id) which++;
  if (which == COUNT(scales) && !f->head)
    die("%s: where its scales lie is missing in the tests (format_blocks.h)", f->name);
  int64_t n = cols / f->block, row = format_bytes(f, 1, cols), together = f->rows;
  for (int64_t i = 0; i < rows * row; i++) p[i] = (unsigned char)(format_random(seed) >> 20);
  // of rows that are stored together the first halves are next to each other, then the second ones
  for (int64_t r = 0; r < rows; r += together, p += together * row) {
    format_head(f, p, seed);
    for (int64_t i = 0; i < n * together && which < COUNT(scales); i++)
      for (int j = 0; j < (f->id == FORMAT_NVFP4 ? 4 : 2); j++) {
        int64_t at = j < 2 ? scales[which].high[j] : j, k = i % together;
        bool small = f->id == FORMAT_MXFP4 || f->id == FORMAT_MXFP4_R8;
        if (together > 1) at = small ? k : (at / 2 * together + k) * 2 + 1;
        p[together * f->head + i / together * together * f->bytes + at] =
          (unsigned char)((small ? 0x78 : f->id == FORMAT_BF16_R16 ? 0x38 : 0x24) + format_random(seed) % 8);
      }
  }
}
#endif
