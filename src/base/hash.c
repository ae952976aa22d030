// SipHash-1-3: see hash.h.
#include "base/hash.h"
#include <string.h>
#include <sys/random.h>

hash_key hash_key_new(void) {
  hash_key k;
  // If the system has no randomness yet, a clock and an address are better than nothing; results never depend on the
  // key.
  if (getrandom(&k, sizeof k, GRND_NONBLOCK) != (ssize_t)sizeof k)
    k = (hash_key){hash_u64((uint64_t)(now_s() * 1e9), 1), (uint64_t)(uintptr_t)&k};
  return k;
}

typedef struct state { uint64_t v[4]; } state;

static inline void half_round(uint64_t *a, uint64_t *b, uint64_t *c, uint64_t *d, int s, int t) {
  *a += *b;
  *c += *d;
  *b = rotl_u64(*b, s) ^ *a;
  *d = rotl_u64(*d, t) ^ *c;
  *a = rotl_u64(*a, 32);
}

static inline void mix(state *s) {
  half_round(&s->v[0], &s->v[1], &s->v[2], &s->v[3], 13, 16);
  half_round(&s->v[2], &s->v[1], &s->v[0], &s->v[3], 17, 21);
}

static inline void take_u64(state *s, uint64_t word) {
  s->v[3] ^= word;
  mix(s);
  s->v[0] ^= word;
}

// At most 8 bytes as a number, little-endian.
static inline uint64_t word_of(const unsigned char *p, size_t n) {
  uint64_t w = 0;
  for (size_t i = n; i-- > 0;) w = w << 8 | p[i];
  return w;
}

static inline uint64_t whole_word(const unsigned char *p) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  uint64_t w;
  return memcpy(&w, p, 8), w;
#else
  return word_of(p, 8);
#endif
}

uint64_t hash_keyed(hash_key k, const void *bytes, size_t n) {
  const unsigned char *p = bytes, *from = bytes;
  const size_t all = n;
  uint64_t last;
  state s = {{0x736f6d6570736575 ^ k.a, 0x646f72616e646f6d ^ k.b, 0x6c7967656e657261 ^ k.a, 0x7465646279746573 ^ k.b}};
  for (; n >= 8; n -= 8, p += 8) take_u64(&s, whole_word(p));
  // in one read if eight bytes are available
  if (p > from && n) last = whole_word(from + all - 8) >> (64 - 8 * n);
  else last = word_of(p, n);
  take_u64(&s, (uint64_t)all << 56 | last);
  s.v[2] ^= 0xFF;
  for (int i = 0; i < 3; i++) mix(&s);
  return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}
