// Building tries: see trie.h.  The strings are sorted; a node is then a range of them that agree up to its depth, and its
// children are the ranges into which the next byte parts it.
#include "text/trie.h"
#include "text/utf8.h"
#include <stdlib.h>
#include <string.h>

static int by_text(const void *pa, const void *pb) {
  const trie_item *a = pa, *b = pb;
  size_t n = a->text.n < b->text.n ? a->text.n : b->text.n;
  int order = n ? memcmp(a->text.at, b->text.at, n) : 0;
  if (order) return order;
  if (a->text.n != b->text.n) return a->text.n < b->text.n ? -1 : 1;
  return (a->value > b->value) - (a->value < b->value);
}

struct range { uint32_t from, end, depth; };

static unsigned char byte_at(const trie_item *item, uint32_t depth) { return (unsigned char)item->text.at[depth]; }

// The first of [from, end) whose byte at depth differs from that of `from`.
static uint32_t same_byte_until(const trie_item *items, uint32_t from, uint32_t end, uint32_t depth) {
  unsigned char byte = byte_at(&items[from], depth);
  if (byte_at(&items[end - 1], depth) == byte) return end;
  while (end - from > 1) {
    uint32_t middle = from + (end - from) / 2;
    if (byte_at(&items[middle], depth) == byte) from = middle;
    else end = middle;
  }
  return end;
}

int trie_build(trie *t, trie_item *items, size_t n, arena *mem, error *err) {
  size_t kept = 0, bytes = 0;
  for (size_t i = 0; i < n; i++)
    if (items[i].text.n && items[i].text.n <= TRIE_BYTES_MAX) { items[kept++] = items[i]; bytes += items[i].text.n; }
  if (bytes > TRIE_TOTAL_MAX) return error_set(err, "the tokens have %zu bytes together (the limit for encoding is %u)", bytes, TRIE_TOTAL_MAX);
  qsort(items, kept, sizeof *items, by_text);
  VEC(struct range) nodes = {0};
  VEC(uint8_t) labels = {0};
  VEC(uint32_t) firsts = {0};
  VEC(int32_t) values = {0};
  vec_push(&nodes, ((struct range){0, (uint32_t)kept, 0}));
  vec_push(&labels, 0);
  for (size_t node = 0; node < nodes.n; node++) {
    struct range r = nodes.at[node];
    int32_t value = -1;
    for (; r.from < r.end && items[r.from].text.n == r.depth; r.from++)
      if (value < 0) value = items[r.from].value;
    vec_push(&values, value);
    vec_push(&firsts, (uint32_t)nodes.n);
    for (uint32_t stop; r.from < r.end; r.from = stop) {
      stop = same_byte_until(items, r.from, r.end, r.depth);
      vec_push(&nodes, ((struct range){r.from, stop, r.depth + 1}));
      vec_push(&labels, byte_at(&items[r.from], r.depth));
    }
  }
  vec_push(&firsts, (uint32_t)nodes.n);
  t->n = (uint32_t)nodes.n;
  t->first = memcpy(ARENA_ARRAY(mem, uint32_t, firsts.n), firsts.at, firsts.n * sizeof *firsts.at);
  t->label = memcpy(ARENA_ARRAY(mem, uint8_t, labels.n), labels.at, labels.n);
  t->value = memcpy(ARENA_ARRAY(mem, int32_t, values.n), values.at, values.n * sizeof *values.at);
  vec_free(&nodes);
  vec_free(&labels);
  vec_free(&firsts);
  vec_free(&values);
  return 0;
}

size_t trie_uncrossed(const trie *t, const char *text, size_t n) {
  size_t last = 0, reach = 0;                             // no string so far ends past reach
  for (size_t at = 0; at < n;) {
    if (reach <= at) last = at;
    size_t end = at;
    for (uint32_t node = 0; end < n && (node = trie_step(t, node, (unsigned char)text[end]));)
      if (end++, t->value[node] >= 0 && end > reach) reach = end;
    if (end == n) break;                                  // a longer one may come
    int len = utf8_next(text + at, n - at);
    at += len > 0 ? (size_t)len : 1;
  }
  return last;
}
