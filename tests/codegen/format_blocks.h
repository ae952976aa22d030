// Random blocks of every format that computes, for tests that want ordinary numbers: the one table of where scales lie.
#ifndef WEFT_TEST_FORMAT_BLOCKS_H
#define WEFT_TEST_FORMAT_BLOCKS_H
#include "base/map.h"
#include "model/format.h"

static inline uint64_t format_random(uint64_t *s) { return hash_u64((*s)++, 12345); }

// Fills n blocks. The bytes of `high` are those with the exponents of half-precision scales, or of MXFP4's, or NVFP4's
// four scales; all others are random.
static inline void format_blocks(const struct format *f, unsigned char *p, int64_t n, uint64_t *seed) {
  static const struct { uint32_t id; int high[2];
  } scales[] = {
    {FORMAT_Q4_0, {1, 1}},   {FORMAT_Q4_1, {1, 3}},     {FORMAT_Q5_0, {1, 1}},     {FORMAT_Q5_1, {1, 3}},
    {FORMAT_Q8_0, {1, 1}},   {FORMAT_Q2_K, {81, 83}},   {FORMAT_Q3_K, {109, 109}}, {FORMAT_Q4_K, {1, 3}},
    {FORMAT_Q5_K, {1, 3}},   {FORMAT_Q6_K, {209, 209}}, {FORMAT_TQ1_0, {53, 53}},  {FORMAT_TQ2_0, {65, 65}},
    {FORMAT_IQ1_S, {1, 1}},  {FORMAT_IQ1_M, {55, 55}},  {FORMAT_IQ2_XXS, {1, 1}},  {FORMAT_IQ2_XS, {1, 1}},
    {FORMAT_IQ2_S, {1, 1}},  {FORMAT_IQ3_XXS, {1, 1}},  {FORMAT_IQ3_S, {1, 1}},    {FORMAT_IQ4_NL, {1, 1}},
    {FORMAT_IQ4_XS, {1, 1}}, {FORMAT_MXFP4, {0, 0}},    {FORMAT_NVFP4, {0, 1}},    {FORMAT_Q1_0, {1, 1}},
    {FORMAT_Q2_0, {1, 1}},
  };
  size_t which = 0;
  while (which < COUNT(scales) && scales[which].id != f->id) which++;
  if (which == COUNT(scales)) die("%s: where its scales lie is missing in the tests (format_blocks.h)", f->name);
  for (int64_t i = 0; i < n * f->bytes; i++) p[i] = (unsigned char)(format_random(seed) >> 20);
  for (int64_t i = 0; i < n; i++)
    for (int j = 0; j < (f->id == FORMAT_NVFP4 ? 4 : 2); j++)
      p[i * f->bytes + (j < 2 ? scales[which].high[j] : j)] =
        (unsigned char)((f->id == FORMAT_MXFP4 ? 0x78 : 0x24) + format_random(seed) % 8);
}
#endif
