// Programs of work-groups for the tests of devices: SPECIAL, LOCAL, BARRIER, sizes in three dimensions and from
// variables. Built by hand, as in render/rig.h.
#ifndef WEFT_TEST_GROUP_PROGRAMS_H
#define WEFT_TEST_GROUP_PROGRAMS_H
#include "render/rig.h"

static inline uop *i32(rig *r, int64_t v) { return rig_int(r, DT_I32, v); }
static inline uop *special(rig *r, const char *name, int64_t bound) {
  return rig_op(r, OP_SPECIAL, DT_I32, 1, (uarg){.b = bound, .s = name, .s_len = 2}, 0, NULL);
}
static inline uop *local_memory(rig *r, enum dtype d, int64_t elems) {
  return rig_op(r, OP_LOCAL, d, 1, (uarg){.a = 0, .b = elems}, 0, NULL);
}
static inline uop *barrier(rig *r, uop *after) { return rig_op(r, OP_BARRIER, DT_VOID, 1, (uarg){0}, 1, &after); }
static inline uop *store(rig *r, uop *index, uop *v) {
  return rig_op(r, OP_STORE, DT_VOID, 1, (uarg){0}, 2, (uop *[]){index, v});
}
static inline uop *load_after(rig *r, uop *index, uop *effect) {
  return rig_op(r, OP_LOAD, (enum dtype)index->dt, 1, (uarg){0}, 2, (uop *[]){index, effect});
}
static inline void open_if(rig *r, uop *cond) { rig_op(r, OP_IF, DT_VOID, 1, (uarg){0}, 1, &cond); }
static inline void close_if(rig *r) { rig_op(r, OP_ENDIF, DT_VOID, 1, (uarg){0}, 0, NULL); }

// out[g] = sum of 64 elements, by halves through the memory of the work-group.
static inline program *sum_program(rig *r, int64_t groups) {
  uop *x = rig_buf(r, DT_F32, groups * 64), *out = rig_buf(r, DT_F32, groups), *g = special(r, "g0", groups),
      *l = special(r, "l0", 64);
  uop *mem = local_memory(r, DT_F32, 64), *mine = rig_index(r, mem, l);
  uop *v = rig_load(r, rig_index(r, x, rig2(r, OP_ADD, rig2(r, OP_MUL, g, i32(r, 64)), l)), DT_F32, 1);
  uop *last = barrier(r, store(r, mine, v));
  for (int half = 32; half; half /= 2) {
    open_if(r, rig2(r, OP_CMPLT, l, i32(r, half)));
    uop *other = load_after(r, rig_index(r, mem, rig2(r, OP_ADD, l, i32(r, half))), last);
    uop *stored = store(r, mine, rig2(r, OP_ADD, load_after(r, mine, last), other));
    close_if(r);
    last = barrier(r, stored);
  }
  open_if(r, rig2(r, OP_CMPEQ, l, i32(r, 0)));
  store(r, rig_index(r, out, g), load_after(r, rig_index(r, mem, i32(r, 0)), last));
  close_if(r);
  program *p = rig_program(r, "sum_64");
  p->global[0] = uop_idx(r->g, groups);
  p->local[0] = uop_idx(r->g, 64);
  return p;
}

enum { W = 32, H = 24 };

// A transpose by 8 x 8 tiles, two dimensions of groups and of items, the number of rows of tiles from a variable.
static inline program *transpose_program(rig *r) {
  uop *x = rig_buf(r, DT_I32, W * H), *out = rig_buf(r, DT_I32, W * H), *g0 = special(r, "g0", W / 8),
      *g1 = special(r, "g1", H / 8);
  uop *l0 = special(r, "l0", 8), *l1 = special(r, "l1", 8), *mem = local_memory(r, DT_I32, 64);
  uop *rows = rig_var(r, "rows", 0, H / 8);
  uop *col = rig2(r, OP_ADD, rig2(r, OP_MUL, g0, i32(r, 8)), l0),
      *row = rig2(r, OP_ADD, rig2(r, OP_MUL, g1, i32(r, 8)), l1);
  uop *v = rig_load(r, rig_index(r, x, rig2(r, OP_ADD, rig2(r, OP_MUL, row, i32(r, W)), col)), DT_I32, 1);
  uop *bar = barrier(r, store(r, rig_index(r, mem, rig2(r, OP_ADD, rig2(r, OP_MUL, l1, i32(r, 8)), l0)), v));
  uop *t = load_after(r, rig_index(r, mem, rig2(r, OP_ADD, rig2(r, OP_MUL, l0, i32(r, 8)), l1)), bar);
  uop *to_row = rig2(r, OP_ADD, rig2(r, OP_MUL, g0, i32(r, 8)), l1),
      *to_col = rig2(r, OP_ADD, rig2(r, OP_MUL, g1, i32(r, 8)), l0);
  store(r, rig_index(r, out, rig2(r, OP_ADD, rig2(r, OP_MUL, to_row, i32(r, H)), to_col)), t);
  program *p = rig_program(r, "transpose");
  p->global[0] = uop_idx(r->g, W / 8);
  p->global[1] = rows;
  p->local[0] = p->local[1] = uop_idx(r->g, 8);
  return p;
}
#endif
