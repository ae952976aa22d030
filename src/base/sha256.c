// SHA-256: see sha256.h.  The constants are the fractions of the square and cube roots of the first primes, as the
// standard defines them.
#include "base/sha256.h"
#include <string.h>

static const uint32_t k[64] = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void mix_block(uint32_t state[8], const unsigned char *block) {
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
           block[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
  }
  memcpy(v, state, sizeof v);
  // The eight numbers keep their places; their names go round.
#define V(n) v[((n) - r) & 7]
  for (int i = 0; i < 64; i += 8) {
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) {
      uint32_t one = V(7) + (turn(V(4), 6) ^ turn(V(4), 11) ^ turn(V(4), 25)) + ((V(4) & V(5)) ^ (~V(4) & V(6))) +
                     k[i + r] + w[i + r];
      uint32_t two =
        (turn(V(0), 2) ^ turn(V(0), 13) ^ turn(V(0), 22)) + ((V(0) & V(1)) ^ (V(0) & V(2)) ^ (V(1) & V(2)));
      V(3) += one;
      V(7) = one + two;
    }
  }
#undef V
  for (int i = 0; i < 8; i++) state[i] += v[i];
}

void sha256_begin(sha256 *s) {
  *s =
    (sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(sha256 *s, const void *bytes, size_t n) {
  const unsigned char *at = bytes;
  size_t held = s->bytes % 64;
  s->bytes += n;
  if (held) {
    size_t more = n < 64 - held ? n : 64 - held;
    memcpy(s->block + held, at, more);
    at += more;
    n -= more;
    if (held + more < 64) return;
    mix_block(s->state, s->block);
  }
  for (; n >= 64; at += 64, n -= 64) mix_block(s->state, at);
  memcpy(s->block, at, n);
}

void sha256_end(sha256 *s, char hex[65]) {
  static const unsigned char pad[64] = {0x80};
  uint64_t bits = s->bytes * 8;
  size_t held = s->bytes % 64;
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
  sha256_add(s, pad, held < 56 ? 56 - held : 120 - held);
  sha256_add(s, length, sizeof length);
  for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", s->state[i]);
}
