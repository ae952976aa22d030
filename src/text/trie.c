// Builds tries: see trie.h. The strings are sorted; a node is a range of them with the same bytes up to its depth, and
// its children are the ranges into which the next byte divides it.
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

struct range { uint32_t from, end; };

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

static size_t shared(text_view a, text_view b) {
  size_t n = 0;
  while (n < a.n && n < b.n && a.at[n] == b.at[n]) n++;
  return n;
}

int trie_build(trie *t, trie_item *items, size_t n, arena *mem, error *err) {
  size_t kept = 0, bytes = 0;
  for (size_t i = 0; i < n; i++)
    if (items[i].text.n && items[i].text.n <= TRIE_BYTES_MAX) { items[kept++] = items[i]; bytes += items[i].text.n; }
  if (bytes > TRIE_TOTAL_MAX)
    return error_set(err, "the tokens have %zu bytes together (the limit for encoding is %u)", bytes, TRIE_TOTAL_MAX);
  if (kept) qsort(items, kept, sizeof *items, by_text);
  // One node for the root and one for each prefix of a string that the previous string does not share.
  size_t count = 1;
  for (size_t i = 0; i < kept; i++) count += items[i].text.n - (i ? shared(items[i - 1].text, items[i].text) : 0);
  t->n = (uint32_t)count;
  t->node = ARENA_ARRAY(mem, trie_node, count + 1);
  t->label = ARENA_ARRAY(mem, uint8_t, count + TRIE_LABELS_READ);
  // Depth by depth: at most one range per string is in progress.
  VEC(struct range) level = {0}, below = {0};
  uint32_t node = 0, made = 1;
  vec_push(&level, ((struct range){0, (uint32_t)kept}));
  for (uint32_t depth = 0; level.n; depth++) {
    below.n = 0;
    for (size_t k = 0; k < level.n; k++, node++) {
      struct range r = level.at[k];
      t->node[node].value = -1;
      t->node[node].first = made;
      for (; r.from < r.end && items[r.from].text.n == depth; r.from++)
        if (t->node[node].value < 0) t->node[node].value = items[r.from].value;
      for (uint32_t stop; r.from < r.end; r.from = stop) {
        stop = same_byte_until(items, r.from, r.end, depth);
        vec_push(&below, ((struct range){r.from, stop}));
        t->label[made++] = byte_at(&items[r.from], depth);
      }
    }
    struct range *at = level.at;
    size_t cap = level.cap;
    level.at = below.at, level.n = below.n, level.cap = below.cap;
    below.at = at, below.cap = cap;
  }
  t->node[node].first = made;
  vec_free(&level);
  vec_free(&below);
  return 0;
}

int trie_refuse(const char *source, error *err) {
  return error_set(err, "%stokenizer.ggml.tokens makes this text take more than %d steps for each of its bytes", source,
                   TRIE_STEPS_PER_BYTE);
}

size_t trie_uncrossed(const trie *t, const char *text, size_t n, trie_cost *cost) {
  size_t last = 0, reach = 0;                             // no string so far ends after reach
  for (size_t at = 0; at < n && !trie_too_costly(cost);) {
    if (reach <= at) last = at;
    size_t end = at;
    for (uint32_t node = 0; end < n && (node = trie_step(t, node, (unsigned char)text[end]));)
      if (end++, t->node[node].value >= 0 && end > reach) reach = end;
    cost->steps += end - at;
    if (end == n) break;                                  // a longer one may follow
    int len = utf8_next(text + at, n - at);
    at += len > 0 ? (size_t)len : 1;
  }
  return last;
}
