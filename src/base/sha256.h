// SHA-256 (FIPS 180-4), a piece at a time: what tells that a file which came over a network is the one that was meant.
#ifndef WEFT_SHA256_H
#define WEFT_SHA256_H
#include "base/base.h"

typedef struct sha256 { uint32_t state[8]; uint64_t bytes; unsigned char block[64]; } sha256;
void sha256_begin(sha256 *s);
void sha256_add(sha256 *s, const void *bytes, size_t n);
void sha256_end(sha256 *s, char hex[65]);            // small letters, terminated
#endif
