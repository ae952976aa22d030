// SipHash-2-4 as its authors describe it (Aumasson, Bernstein: "SipHash: a fast short-input PRF"): see siphash.h.
#define _GNU_SOURCE
#include "base/siphash.h"
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

bool sip_key_random(sip_key *out) {
  ssize_t n;
  do n = getrandom(out, sizeof *out, 0); while (n < 0 && errno == EINTR);
  return n == (ssize_t)sizeof *out;
}

bool random_hex(char *out, int digits) {
  sip_key k;
  bool ok = sip_key_random(&k);
  for (int i = 0; i < digits; i++) out[i] = "0123456789abcdef"[k.k[i / 16] >> 4 * (i % 16) & 15];
  out[digits] = 0;
  return ok;
}

static inline void rounds(uint64_t v[4], int n) {
  for (int i = 0; i < n; i++) {
    v[0] += v[1]; v[1] = rotl_u64(v[1], 13) ^ v[0]; v[0] = rotl_u64(v[0], 32);
    v[2] += v[3]; v[3] = rotl_u64(v[3], 16) ^ v[2];
    v[0] += v[3]; v[3] = rotl_u64(v[3], 21) ^ v[0];
    v[2] += v[1]; v[1] = rotl_u64(v[1], 17) ^ v[2]; v[2] = rotl_u64(v[2], 32);
  }
}

// The first n <= 8 bytes as a number, little-endian.
static inline uint64_t word_at(const unsigned char *p, size_t n) {
  uint64_t w = 0;
  memcpy(&w, p, n);
  return le64toh(w);
}

uint64_t siphash(const sip_key *key, const void *p, size_t n) {
  const unsigned char *at = p;
  uint64_t v[4] = {key->k[0] ^ 0x736f6d6570736575, key->k[1] ^ 0x646f72616e646f6d,
                   key->k[0] ^ 0x6c7967656e657261, key->k[1] ^ 0x7465646279746573};
  uint64_t last = (uint64_t)n << 56;
  for (; n >= 8; n -= 8, at += 8) {
    uint64_t w = word_at(at, 8);
    v[3] ^= w;
    rounds(v, 2);
    v[0] ^= w;
  }
  if (n) last |= word_at(at, n);
  v[3] ^= last;
  rounds(v, 2);
  v[0] ^= last;
  v[2] ^= 0xff;
  rounds(v, 4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}
