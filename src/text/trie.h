// trie: finds which of many byte strings begin at a place in a text, byte by byte.
//
// Nodes are numbered in the order of a breadth-first walk, so the children of a node are contiguous: from its first
// child up to that of the next node. label holds the byte that leads to each node. That takes 9 bytes per node and no
// pointers.
//
// Strings longer than TRIE_BYTES_MAX are left out, so that each position of a text takes a bounded number of steps,
// whatever the vocabulary. Of equal strings the first one counts.
//
// That bound is far above what real vocabularies take, a few steps per byte of text; one with many long strings made
// for that purpose takes a thousand. So steps are counted, and a text that takes too many is refused: the limit of
// sixteen per byte is what tokens of sixteen letters take, the most that SentencePiece makes by default.
//
// Invariant: node 0 is the root and not a child of any node, so 0 also means that there is no child. Look next:
// unigram.h.
#ifndef WEFT_TRIE_H
#define WEFT_TRIE_H
#include "base/arena.h"
#include "text/text.h"
#include <string.h>

#define TRIE_BYTES_MAX 1024
#define TRIE_TOTAL_MAX (1u << 26)

typedef struct trie_item { text_view text; int32_t value; } trie_item;

typedef struct trie_node {
  uint32_t first;               // child; a node's children end where those of the next node begin
  int32_t value;                // of the string that ends here, or -1
} trie_node;

typedef struct trie {
  uint32_t n;                   // nodes
  trie_node *node;              // [n + 1]
  uint8_t *label;               // [n]; TRIE_LABELS_READ more may be read
} trie;
enum { TRIE_LABELS_READ = 8 };

// The steps that a text has taken, and its bytes so far (bytes that are examined again count again). {0}: none yet.
typedef struct trie_cost { uint64_t steps, bytes; } trie_cost;
#define TRIE_STEPS_FREE (1u << 24)
#define TRIE_STEPS_PER_BYTE 16
// -1 and a message; source: its prefix, as in vocab.h.
int trie_refuse(const char *source, error *err);
static inline bool trie_too_costly(const trie_cost *c) {
  return c->steps > TRIE_STEPS_FREE + TRIE_STEPS_PER_BYTE * c->bytes;
}

// Sorts items; empty texts are left out. -1 and a message if the texts have more than TRIE_TOTAL_MAX bytes together.
int trie_build(trie *t, trie_item *items, size_t n, arena *mem, error *err);

// The node that byte leads to, or 0.
static inline uint32_t trie_step(const trie *t, uint32_t node, unsigned char byte) {
  uint32_t from = t->node[node].first, end = t->node[node + 1].first;
  if (end - from == 1) return t->label[from] == byte ? from : 0;
  while (end - from > TRIE_LABELS_READ) {
    uint32_t middle = from + (end - from) / 2;
    if (t->label[middle] <= byte) from = middle;
    else end = middle;
  }
  // Eight at a time: the lowest equal byte is marked, and perhaps others above it.
  uint64_t labels;
  memcpy(&labels, t->label + from, sizeof labels);
  labels ^= byte * 0x0101010101010101u;
  labels = (labels - 0x0101010101010101u) & ~labels & 0x8080808080808080u;
  uint32_t at = from + (uint32_t)(__builtin_ctzll(labels | (uint64_t)1 << 63) >> 3);
  return labels && at < end ? at : 0;
}
// The last place in a text, at the beginning of a character, that no string of t crosses, wherever it begins and
// however the text continues. If only whole strings and characters are output, the text on one side cannot change the
// result on the other.
size_t trie_uncrossed(const trie *t, const char *text, size_t n, trie_cost *cost);
static inline uint32_t trie_walk(const trie *t, uint32_t node, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!(node = trie_step(t, node, (unsigned char)text[i]))) return 0;
  return node;
}
#endif
