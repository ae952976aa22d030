// SipHash-2-4: a keyed hash. Without the key it cannot be predicted, so untrusted keys of tables cannot be made to
// collide, and data stored by this user can be distinguished from data that another one put there.
#ifndef WEFT_SIPHASH_H
#define WEFT_SIPHASH_H
#include "base/base.h"

typedef struct sip_key { uint64_t k[2]; } sip_key;

// A key from the kernel's random numbers; false if there are none.
bool sip_key_random(sip_key *out);

// `digits` random hex digits, at most 32, and a 0; false if there are no random numbers.
bool random_hex(char *out, int digits);

// The same result on every machine: bytes are read in little-endian order.
uint64_t siphash(const sip_key *key, const void *p, size_t n);
#endif
