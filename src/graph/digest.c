// Digests of expressions: see digest.h. Hashes a node's op, dtype, lanes, argument and numbers of its sources, which
// determine bounds and shape.
#include "graph/digest.h"

void uop_digest(sha256 *s, uop *root) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &root, 1);
  map numbers = {0};
  for (size_t i = 0; i < l.n; i++) {
    const uop *u = l.at[i];
    map_put(&numbers, u, (void *)i);
    const int64_t head[] = {(int64_t)(u->op | u->dt << 8 | (uint32_t)u->lanes << 16) | (int64_t)u->memory << 32, u->a,
                            u->b};
    const uint32_t tail[] = {u->nsrc, u->s ? u->s_len + 1 : 0};
    sha256_add(s, head, sizeof head);
    sha256_add(s, tail, sizeof tail);
    if (u->s) sha256_add(s, u->s, u->s_len);
    for (size_t j = 0; j < u->nsrc; j++)
      sha256_add(s, &(uint32_t){(uint32_t)(uintptr_t)map_ptr(&numbers, u->src[j])}, sizeof(uint32_t));
  }
  map_free(&numbers);
  arena_free(a);
}
