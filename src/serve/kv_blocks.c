// The tree of blocks: see kv_blocks.h. Changed blocks are collected in `changed` and examined when a message is sent: a
// block that came and went between two messages is in neither.
#include "serve/kv_blocks.h"
#include <stdlib.h>
#include <string.h>
#include "base/sha256.h"

typedef struct kv_block {
  struct kv_block *parent, *first, *next;        // first: its first child; next: the next sibling
  int ends;                            // number of chains that end here
  bool told, noted, gone;
  unsigned char digest[SHA256_BYTES];
  int32_t ids[];
} kv_block;

typedef VEC(kv_block *) block_list;
struct kv_blocks {
  kv_events *to;
  size_t size;                         // tokens of a block
  int32_t n_vocab;
  kv_block *root;                      // parent of the first blocks; it has no tokens
  block_list changed, graves;
  VEC(uint64_t) hashes;
  VEC(int32_t) ids;
};

// ---- hashes ---------------------------------------------------------------------------------------------------------

// A number in CBOR (RFC 8949), in its shortest form. kind: major type.
static void add_cbor(sha256 *h, unsigned kind, uint32_t v) {
  unsigned char at[5], top = (unsigned char)(kind << 5);
  size_t bytes = v < 24 ? 0 : v < 256 ? 1 : v < 65536 ? 2 : 4;
  at[0] = (unsigned char)(top | (!bytes ? v : bytes == 1 ? 24 : bytes == 2 ? 25 : 26));
  for (size_t i = 0; i < bytes; i++) at[1 + i] = (unsigned char)(v >> 8 * (bytes - 1 - i));
  sha256_add(h, at, 1 + bytes);
}

enum { CBOR_NUMBER = 0, CBOR_BYTES = 2, CBOR_TEXT = 3, CBOR_ARRAY = 4, CBOR_NULL = 0xf6 };

static void hash_root(kv_block *root) {
  sha256 h;
  sha256_begin(&h);
  add_cbor(&h, CBOR_TEXT, 1);
  sha256_add(&h, "0", 1);
  sha256_end_bytes(&h, root->digest);
}

// [hash of the parent, [tokens], null]: the last element is for extra keys.
static void hash_block(kv_block *k, size_t size) {
  sha256 h;
  unsigned char null = CBOR_NULL;
  sha256_begin(&h);
  add_cbor(&h, CBOR_ARRAY, 3);
  add_cbor(&h, CBOR_BYTES, sizeof k->parent->digest);
  sha256_add(&h, k->parent->digest, sizeof k->parent->digest);
  add_cbor(&h, CBOR_ARRAY, (uint32_t)size);
  for (size_t i = 0; i < size; i++) add_cbor(&h, CBOR_NUMBER, (uint32_t)k->ids[i]);
  sha256_add(&h, &null, 1);
  sha256_end_bytes(&h, k->digest);
}

static uint64_t number_of(const kv_block *k) {
  uint64_t v = 0;
  for (size_t i = sizeof k->digest - 8; i < sizeof k->digest; i++) v = v << 8 | k->digest[i];
  return v;
}

// ---- chains ---------------------------------------------------------------------------------------------------------

static void note(kv_blocks *b, kv_block *k) {
  if (!k->noted && k != b->root) vec_push(&b->changed, k);
  k->noted = true;
}

static kv_block *child_with(kv_blocks *b, kv_block *parent, const int32_t *ids) {
  for (kv_block *k = parent->first; k; k = k->next) if (!memcmp(k->ids, ids, b->size * sizeof *ids)) return k;
  kv_block *k = xcalloc(1, sizeof *k + b->size * sizeof *ids);
  k->parent = parent;
  k->next = parent->first;
  parent->first = k;
  memcpy(k->ids, ids, b->size * sizeof *ids);
  hash_block(k, b->size);
  note(b, k);
  return k;
}

static bool are_tokens(const kv_blocks *b, const int32_t *ids) {
  for (size_t i = 0; i < b->size; i++) if (ids[i] < 0 || ids[i] >= b->n_vocab) return false;
  return true;
}

static void end_at(kv_blocks *b, kv_chain *c, kv_block *k) {
  k->ends++;
  if (!--c->last->ends) note(b, c->last);
  c->last = k;
}

void kv_chain_follow(kv_blocks *b, kv_chain *c, const int32_t *ids, size_t n) {
  if (!b || n / b->size <= c->n) return;
  if (!c->of) {
    *c = (kv_chain){.of = b, .last = b->root};
    b->root->ends++;
  }
  kv_block *k = c->last;
  for (; c->n < n / b->size && are_tokens(b, ids + c->n * b->size); c->n++) k = child_with(b, k, ids + c->n * b->size);
  end_at(b, c, k);
}

void kv_chain_cut(kv_chain *c, size_t n) {
  kv_block *k = c->last;
  if (!c->of) return;
  for (; c->n > n / c->of->size; c->n--) k = k->parent;
  end_at(c->of, c, k);
}

void kv_chain_end(kv_chain *c) {
  if (c->of && !--c->last->ends) note(c->of, c->last);
  *c = (kv_chain){0};
}

// ---- messages -------------------------------------------------------------------------------------------------------

static void unlink_block(kv_block *k) {
  kv_block **at = &k->parent->first;
  while (*at != k) at = &(*at)->next;
  *at = k->next;
}

// Removes a block without chains and children, and then its parents as long as that holds for them.
static void bury(kv_blocks *b, kv_block *k) {
  while (k != b->root && !k->gone && !k->ends && !k->first) {
    k->gone = true;
    unlink_block(k);
    if (k->told) vec_push(&b->hashes, number_of(k));
    vec_push(&b->graves, k);
    k = k->parent;
  }
}

static void tell_stored(kv_blocks *b, const kv_block *parent) {
  uint64_t before = parent && parent != b->root ? number_of(parent) : 0;
  if (b->hashes.n) kv_events_stored(b->to, b->hashes.at, b->hashes.n, parent != b->root ? &before : NULL, b->ids.at);
  b->hashes.n = b->ids.n = 0;
}

// Reports new blocks, each consecutive row of them as one event.
static void tell_new(kv_blocks *b) {
  const kv_block *parent = NULL, *last = NULL;
  for (size_t i = 0; i < b->changed.n; i++) {
    kv_block *k = b->changed.at[i];
    k->noted = false;
    if (k->gone || k->told) continue;
    if (last != k->parent) {
      tell_stored(b, parent);
      parent = k->parent;
    }
    vec_push(&b->hashes, number_of(k));
    for (size_t t = 0; t < b->size; t++) vec_push(&b->ids, k->ids[t]);
    k->told = true;
    last = k;
  }
  tell_stored(b, parent);
}

void kv_blocks_tell(kv_blocks *b) {
  if (!b || !b->changed.n) return;
  for (size_t i = 0; i < b->changed.n; i++) bury(b, b->changed.at[i]);
  if (b->hashes.n) kv_events_removed(b->to, b->hashes.at, b->hashes.n);
  b->hashes.n = 0;
  tell_new(b);
  for (size_t i = 0; i < b->graves.n; i++) free(b->graves.at[i]);
  b->changed.n = b->graves.n = 0;
  kv_events_send(b->to);
}

kv_blocks *kv_blocks_new(kv_events *to, int32_t n_vocab) {
  if (!to) return NULL;
  kv_blocks *b = xcalloc(1, sizeof *b);
  *b = (kv_blocks){.to = to, .size = kv_events_block_size(to), .n_vocab = n_vocab, .root = xcalloc(1, sizeof *b->root)};
  hash_root(b->root);
  kv_events_cleared(to);
  kv_events_send(to);
  return b;
}

void kv_blocks_free(kv_blocks *b) {
  if (!b) return;
  for (size_t i = 0; i < b->changed.n; i++) bury(b, b->changed.at[i]);
  for (size_t i = 0; i < b->graves.n; i++) free(b->graves.at[i]);
  kv_events_cleared(b->to);
  kv_events_send(b->to);
  vec_free(&b->changed); vec_free(&b->graves); vec_free(&b->hashes); vec_free(&b->ids);
  free(b->root);
  free(b);
}
