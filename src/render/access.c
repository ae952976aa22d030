// What a kernel of work-groups asks of memory, counted from its program: see render.h. Nothing runs. The addresses of
// the items that run in step (the first of a work-group) are evaluated with all loops in their first turn.
#include "render/render.h"
#include <stdlib.h>
#include <string.h>
#include "graph/eval.h"

enum { STEP = 32 /* items */, SECTOR = 32 /* bytes that memory gives at once */, WIDEST = 16 /* bytes of a load */ };

typedef struct walk {
  const program *p;
  map zeros;
  double turns;                            // of the loops that are open
} walk;

// A variable, a loop's counter or a number that the launch gives; of what is read from memory nothing is known.
static bool start(const uop *u, const int *item, evalue *out) {
  switch (u->op) {
  case OP_SPECIAL: *out = (evalue){.i = u->s[0] == 'l' ? item[u->s[1] - '0'] : 0}; return true;
  case OP_RANGE: case OP_VAR: *out = (evalue){.i = u->op == OP_VAR ? u->a : 0}; return true;
  case OP_LOAD: *out = (evalue){.i = max_i64(u->vmin, 0)}; return true;
  default: return false;
  }
}

static void put_starts(uop *u, const int *item, map *leaf, evalue *room, size_t *n) {
  if (map_has(leaf, u)) return;
  if (start(u, item, &room[*n])) { map_put(leaf, u, &room[(*n)++]); return; }
  for (size_t i = 0; i < u->nsrc; i++) put_starts(u->src[i], item, leaf, room, n);
}

static bool address_at(uop *index, const int *item, int64_t *out) {
  evalue room[64], v;
  map leaf = {0};
  size_t n = 0;
  put_starts(index->src[1], item, &leaf, room, &n);
  bool known = index->lanes == 1 && n < COUNT(room) && eval_expr(&(eval_env){.leaf = &leaf}, index->src[1], &v);
  map_free(&leaf);
  if (known) *out = v.i * dtype_size((enum dtype)render_memory(index)->dt);
  return known;
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// Of a load: instructions, sectors and different bytes of each turn, of all items of a step.
static void count_load(walk *w, const uop *load, const int size[3], kernel_access *out) {
  uop *index = load->src[0];
  const uop *memory = render_memory(index);
  int64_t at[STEP], sectors[STEP], bytes = load->lanes * dtype_size((enum dtype)load->dt),
          element = dtype_size((enum dtype)memory->dt),
          wide = min_i64(min_i64(bytes, WIDEST), element << min_i64(render_zeros(index->src[1], &w->zeros), 4));
  int n = (int)min_i64(STEP, (int64_t)size[0] * size[1] * size[2]);
  for (int i = 0; i < n; i++) {
    int item[3] = {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
    if (!address_at((uop *)index, item, &at[i])) at[i] = (int64_t)i * 4096;      // where, nobody knows: anywhere
  }
  qsort(at, (size_t)n, sizeof *at, by_value);
  for (int64_t part = 0; part < bytes; part += wide) {
    int found = 0, different = 0;
    for (int i = 0; i < n; i++) {
      sectors[found] = (at[i] + part) / SECTOR;
      found += !found || sectors[found] != sectors[found - 1];
      different += !i || at[i] != at[i - 1];
    }
    out->loads += w->turns;
    out->sectors += w->turns * found;
    out->useful += w->turns * different * (double)wide;
    out->loaded += w->turns * (double)wide;
  }
}

bool render_access(const program *p, kernel_access *out) {
  walk w = {.p = p, .turns = 1};
  int size[3];
  *out = (kernel_access){.groups = 1, .bytes = (double)p->bytes->vmax};
  for (int i = 0; i < 3; i++) {
    if (p->local[i] && p->local[i]->op != OP_CONST) return false;
    size[i] = p->local[i] ? (int)p->local[i]->a : 1;
    if (p->global[i]) out->groups *= (double)p->global[i]->vmax;
  }
  out->items = size[0] * size[1] * size[2];
  double before[64];
  int depth = 0;
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    if (u->op == OP_RANGE || u->op == OP_IF) {
      if (depth == (int)COUNT(before)) return false;
      before[depth++] = w.turns;
      if (u->op == OP_RANGE) w.turns *= (double)u->src[0]->vmax;
    } else if (u->op == OP_END || u->op == OP_ENDIF) w.turns = before[--depth];
    else if (u->op != OP_CONST && u->op != OP_PARAM) out->nodes += w.turns;
    if (u->op == OP_LOAD && render_memory(u->src[0])->op == OP_PARAM) count_load(&w, u, size, out);
  }
  map_free(&w.zeros);
  return out->loads > 0;
}

void render_access_line(str *out, const program *p) {
  kernel_access a;
  if (!render_access(p, &a)) return;
  str_addf(out,
           "access %s: %.0f groups of %.0f items, %.0f bytes, %.0f nodes, %.0f loads of %.1f bytes, %.0f sectors, %.0f "
           "useful bytes\n",
           p->name, a.groups, a.items, a.bytes, a.nodes, a.loads, a.loaded / a.loads, a.sectors, a.useful);
}
