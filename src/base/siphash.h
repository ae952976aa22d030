// SipHash-2-4: a hash that nobody can aim at without the key. For tables that strangers fill (they cannot choose keys
// that collide) and to tell bytes that this user kept from bytes that somebody else put there.
#ifndef WEFT_SIPHASH_H
#define WEFT_SIPHASH_H
#include "base/base.h"

typedef struct sip_key { uint64_t k[2]; } sip_key;

// A key from the kernel's random numbers; false if there are none.
bool sip_key_random(sip_key *out);

// So many hex digits, at most 32, and a 0; false if there are no random numbers.
bool random_hex(char *out, int digits);

// The same on every machine: bytes are read in little-endian order.
uint64_t siphash(const sip_key *key, const void *p, size_t n);
#endif
