// Prefetching. A loop that eats a stream of wide loads in big steps (a block of a quantised row tile per iteration) reads inside a
// step in whatever order the instructions come, which hardware prefetchers do not follow. So each iteration asks for the lines
// of the block that lies `prefetch_bytes` further on. Only streams count: wide loads of bytes whose address grows with a
// reduce loop by at least MIN_STEP. Asking beyond the end of a buffer does nothing.
#include "codegen/prefetch.h"
#include <stdlib.h>
#include "graph/symbolic.h"

enum { MIN_STEP = 256, MAX_STEP = 1 << 14, MIN_LANES = 16, LINE = 64, MAX_STREAMS = 4 };

typedef struct stream { uop *mem, *base; int64_t step; } stream;

static bool find_stream(graph *g, const uop *load, stream *out) {
  const uop *index = load->src[0];
  idx_sum s;
  if (load->lanes < MIN_LANES || index->lanes != 1 || index->src[0]->op != OP_PARAM || dtype_size((enum dtype)index->src[0]->dt) != 1) return false;
  if (!idx_sum_of(index->src[1], &s)) return false;
  int64_t step = 0;
  for (int i = 0; i < s.n; i++)
    if (s.atom[i]->op == OP_RANGE && s.atom[i]->b == AXIS_REDUCE && s.coeff[i] > step) step = s.coeff[i];
  if (step < MIN_STEP || step > MAX_STEP) return false;
  s.constant = 0;
  *out = (stream){index->src[0], idx_sum_build(g, &s), step};
  return true;
}

uop *add_prefetches(graph *g, uop *ast, const target *t) {
  if (!t->prefetch_bytes) return ast;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  stream found[MAX_STREAMS], s;
  int n = 0;
  for (size_t i = 0; i < l.n; i++) {
    if (l.at[i]->op != OP_LOAD || !find_stream(g, l.at[i], &s)) continue;
    bool known = false;
    for (int j = 0; j < n; j++) known |= found[j].mem == s.mem && found[j].base == s.base;
    if (!known && n < MAX_STREAMS) found[n++] = s;
  }
  arena_free(a);
  VEC(uop *) out = {0};
  for (size_t i = 0; i < ast->nsrc; i++) vec_push(&out, ast->src[i]);
  for (int j = 0; j < n; j++)
    for (int64_t at = 0; at < found[j].step; at += LINE) {
      uop *index = uop_index(g, found[j].mem, idx_add(g, found[j].base, uop_idx(g, t->prefetch_bytes + at)));
      vec_push(&out, uop_new(g, OP_PREFETCH, DT_VOID, 1, &index, 1, (uarg){0}));
    }
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, out.at, out.n, (uarg){0});
  vec_free(&out);
  return sink;
}
