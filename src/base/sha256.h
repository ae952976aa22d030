// SHA-256 (FIPS 180-4) by nettle, piece by piece. It verifies downloaded files, and identifies the input from which a
// file in a cache was made.
#ifndef WEFT_SHA256_H
#define WEFT_SHA256_H
#include <nettle/sha2.h>
#include "base/base.h"

typedef struct sha256 { struct sha256_ctx state; } sha256;
void sha256_begin(sha256 *s);
void sha256_add(sha256 *s, const void *bytes, size_t n);
enum { SHA256_BYTES = SHA256_DIGEST_SIZE };
void sha256_end_bytes(sha256 *s, unsigned char digest[SHA256_BYTES]);
void sha256_end(sha256 *s, char hex[65]);            // lower-case, terminated
#endif
