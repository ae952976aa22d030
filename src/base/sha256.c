// SHA-256: see sha256.h. nettle uses the processor's SHA instructions if it has them: 1.56 GB/s on Zen 4, so 60 GB take
// 40 seconds.
#include "base/sha256.h"

void sha256_begin(sha256 *s) { sha256_init(&s->state); }

void sha256_add(sha256 *s, const void *bytes, size_t n) { sha256_update(&s->state, n, bytes); }

void sha256_end_bytes(sha256 *s, unsigned char digest[SHA256_BYTES]) {
  sha256_digest(&s->state, SHA256_BYTES, digest);
}

void sha256_end(sha256 *s, char hex[65]) {
  unsigned char digest[SHA256_BYTES];
  sha256_end_bytes(s, digest);
  for (size_t i = 0; i < sizeof digest; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}
