// The Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998): see mersenne.h.
#include "engine/mersenne.h"

enum { SHIFTED = 397 };

void mersenne_seed(mersenne *r, uint32_t seed) {
  r->word[0] = seed;
  for (uint32_t i = 1; i < MERSENNE_WORDS; i++)
    r->word[i] = 1812433253u * (r->word[i - 1] ^ r->word[i - 1] >> 30) + i;
  r->at = MERSENNE_WORDS;
}

// Combines the high bit of a word with the low bits of the next, and twists.
static uint32_t twisted(uint32_t high, uint32_t low) {
  uint32_t both = (high & 0x80000000u) | (low & 0x7fffffffu);
  return both >> 1 ^ (both & 1 ? 0x9908b0dfu : 0);
}

static void twist(mersenne *r) {
  for (int i = 0; i < MERSENNE_WORDS; i++)
    r->word[i] =
      r->word[(i + SHIFTED) % MERSENNE_WORDS] ^ twisted(r->word[i], r->word[(i + 1) % MERSENNE_WORDS]);
  r->at = 0;
}

uint32_t mersenne_next(mersenne *r) {
  if (r->at == MERSENNE_WORDS) twist(r);
  uint32_t x = r->word[r->at++];
  x ^= x >> 11;
  x ^= x << 7 & 0x9d2c5680u;
  x ^= x << 15 & 0xefc60000u;
  return x ^ x >> 18;
}

double mersenne_double(mersenne *r) {
  double low = mersenne_next(r), x = (low + mersenne_next(r) * 0x1p32) * 0x1p-64;
  return x < 1 ? x : 0x1.fffffffffffffp-1;
}

float mersenne_float(mersenne *r) {
  float x = (float)mersenne_next(r) * 0x1p-32f;
  return x < 1 ? x : 0x1.fffffep-1f;
}
