// hash: a hash of byte strings under a secret key, for tables whose keys come from files and requests.
//
// Strings that collide cannot be found without the key; with a public hash, a file of 100 KB could keep a table busy
// for minutes. The function is SipHash with one round per word and three at the end (Aumasson and Bernstein, 2012). Its
// values differ from run to run: nothing that is printed, stored or generated may depend on them. For stable values,
// names and checksums, use hash_bytes (base.h).
#ifndef WEFT_HASH_H
#define WEFT_HASH_H
#include "base/base.h"

typedef struct hash_key { uint64_t a, b; } hash_key;

hash_key hash_key_new(void);                                      // random
uint64_t hash_keyed(hash_key k, const void *bytes, size_t n);
#endif
