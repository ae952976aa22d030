// The SPIR-V renderer: writes a program as a binary module for Vulkan 1.2.
//
// Memory is accessed by address. The only push constant is the address of the kernel's arguments, 64-bit words: the
// address of each buffer, the value of each variable and, if the program has a tile loop (made for a CPU), two more:
// the tiles that all work-groups share. A command buffer can therefore be recorded once, and the arguments written
// later. SPECIAL is the id of the work-group or work-item; LOCAL is Workgroup or Function memory.
//
// Values are scalars; a vector is as many scalars as it has lanes, because a GPU's registers belong to work-items and
// SPIR-V vectors have at most four lanes. Loads and stores are as wide as allowed (spirv_memory.c). Loops and branches
// are structured, as the standard requires. Unused values are not written. For a text form, use spirv-dis.
#include <string.h>
#include "render/spirv_impl.h"

static void put_block(spirv *c, spv_id label) {
  SPV_PUT(&c->s, SPV_BODY, SPV_LABEL, label);
  c->block = label;
}

// ---- values ---------------------------------------------------------------------------------------------------------

static spv_id input_of(spirv *c, enum spv_decoration what) {
  spv *s = &c->s;
  spv_id type = spv_vector(s, spv_uint(s, 4), 3), variable = spv_global(s, SPV_IN_INPUT, type);
  SPV_PUT(s, SPV_DECORATIONS, SPV_DECORATE, variable, SPV_BUILT_IN, (uint32_t)what);
  vec_push(&c->interface, variable);
  return SPV_MAKE(s, SPV_LOAD, type, variable);
}

static spv_id as_index(spirv *c, spv_id x, enum dtype d) { return spirv_cast(c, x, DT_U32, d); }

// The id of the work-group or work-item in one dimension.
static const spv_id *special_lanes(spirv *c, const uop *u) {
  if (u->s_len != 2 || (u->s[0] != 'g' && u->s[0] != 'l') || u->s[1] < '0' || u->s[1] > '2') return NULL;
  spv_id *out = spirv_new_lanes(c, 1), whole = u->s[0] == 'l' ? c->item : c->group;
  if (u->s[0] == 'g' && u->s[1] == '0' && c->first) out[0] = c->first;
  else out[0] = SPV_MAKE(&c->s, SPV_COMPOSITE_EXTRACT, spv_uint(&c->s, 4), whole, (uint32_t)(u->s[1] - '0'));
  out[0] = as_index(c, out[0], (enum dtype)u->dt);
  return out;
}

static void fill_lanes(spv_id *out, int n, spv_id x) { for (int i = 0; i < n; i++) out[i] = x; }

static const spv_id *variable_lanes(spirv *c, const uop *u, const spv_id *variables) {
  spv_id *out = spirv_new_lanes(c, u->lanes), type = spirv_type(c, (enum dtype)u->dt);
  for (int i = 0; i < u->lanes; i++) out[i] = SPV_MAKE(&c->s, SPV_LOAD, type, variables[i]);
  return out;
}

// Values that do not depend on the position: constants, and the kernel's variables.
static const spv_id *lanes_of_leaf(spirv *c, const uop *u) {
  enum dtype d = (enum dtype)u->dt;
  spv_id *out = spirv_new_lanes(c, u->lanes);
  const uop *constant = u->op == OP_SPLAT ? u->src[0] : u;
  if (u->op == OP_VAR) {
    int i = render_var(c->p, u);
    die_if(i < 0, "%s: a variable that the program has not", c->p->name);
    out[0] = spirv_cast(c, c->vars[i], DT_I64, d);
  } else if (u->op == OP_LANE)
    for (int i = 0; i < u->lanes; i++) out[i] = spv_const(&c->s, dtype_size(d), (uint64_t)i);
  else if (constant->op == OP_CONST) fill_lanes(out, u->lanes, spirv_literal(c, d, constant));
  else die("%s: %s.%s is used too early", c->p->name, op_name((enum op)u->op), dtype_name(d));
  return out;
}

const spv_id *spirv_lanes(spirv *c, const uop *u) {
  const spv_id *variables = map_ptr(&c->variables, u), *have = map_ptr(&c->values, u);
  return variables ? variable_lanes(c, u, variables) : have ? have : lanes_of_leaf(c, u);
}

// ---- vectors --------------------------------------------------------------------------------------------------------

static const spv_id *recast_lanes(spirv *c, const uop *u) {
  const uop *s = u->src[0];
  enum dtype from = (enum dtype)s->dt, to = (enum dtype)u->dt;
  const spv_id *x = spirv_lanes(c, s);
  spv_id *bits = spirv_new_lanes(c, s->lanes), *out = spirv_new_lanes(c, u->lanes);
  for (int i = 0; i < s->lanes; i++) bits[i] = spirv_to_bits(c, x[i], from);
  const spv_id *as = spirv_resize(c, bits, s->lanes, dtype_size(from), dtype_size(to));
  for (int i = 0; i < u->lanes; i++) out[i] = spirv_of_bits(c, as[i], to);
  return out;
}

static const spv_id *stacked_lanes(spirv *c, const uop *u) {
  spv_id *out = spirv_new_lanes(c, u->lanes);
  for (int i = 0; i < u->lanes; i++) out[i] = *spirv_lanes(c, u->src[u->op == OP_SPLAT ? 0 : i]);
  return out;
}

static const spv_id *shuffled_lanes(spirv *c, const uop *u) {
  int n = u->src[0]->lanes;
  const spv_id *x = spirv_lanes(c, u->src[0]), *y = u->nsrc > 1 ? spirv_lanes(c, u->src[1]) : x;
  spv_id *out = spirv_new_lanes(c, u->lanes);
  for (int i = 0; i < u->lanes; i++) {
    int l = shuffle_lane(u, i);
    out[i] = l < n ? x[l] : y[l - n];
  }
  return out;
}

static const spv_id *halved_lanes(spirv *c, const uop *u) {
  int n = u->src[0]->lanes;
  const spv_id *x = spirv_lanes(c, u->src[0]);
  if (!is_pow2(n)) return NULL;
  while (n > 1) {
    spv_id *y = spirv_new_lanes(c, n /= 2);
    for (int i = 0; i < n; i++)
      if (!(y[i] = spirv_binary(c, (enum op)u->a, (enum dtype)u->dt, x[i], x[n + i]))) return NULL;
    x = y;
  }
  return x;
}

static const spv_id *each_lane(spirv *c, const uop *u) {
  const spv_id *x[3] = {0};
  if (u->nsrc > 3) return NULL;
  for (size_t i = 0; i < u->nsrc; i++) x[i] = spirv_lanes(c, u->src[i]);
  spv_id *out = spirv_new_lanes(c, u->lanes);
  for (int l = 0; l < u->lanes; l++) {
    spv_id of[3] = {0};
    for (size_t i = 0; i < u->nsrc; i++) of[i] = x[i][u->src[i]->lanes > 1 ? l : 0];
    if (!(out[l] = spirv_lane(c, u, of))) return NULL;
  }
  return out;
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

// before -> header (the counter) -> test -> the loop's body ... -> next (counts) -> header; test -> exit
static void open_for_loop(spirv *c, const uop *u) {
  spv *s = &c->s;
  enum dtype d = (enum dtype)u->dt;
  int size = dtype_size(d);
  bool tiles = u->b == AXIS_GLOBAL;
  spv_id from = tiles ? c->lo : spv_const(s, size, 0), end = tiles ? c->hi : *spirv_lanes(c, u->src[0]);
  if (tiles) { from = spirv_cast(c, from, DT_I64, d); end = spirv_cast(c, end, DT_I64, d); }
  spirv_open o = {true, spv_new(s), spv_new(s), spv_new(s), spv_new(s), spv_new(s), d};
  spv_id test = spv_new(s), body = spv_new(s), before = c->block;
  SPV_PUT(s, SPV_BODY, SPV_BRANCH, o.header);
  put_block(c, o.header);
  SPV_PUT(s, SPV_BODY, SPV_PHI, spv_uint(s, size), o.counter, from, before, o.counted, o.next);
  SPV_PUT(s, SPV_BODY, SPV_LOOP_MERGE, o.behind, o.next, 0);
  SPV_PUT(s, SPV_BODY, SPV_BRANCH, test);
  put_block(c, test);
  spv_id more = SPV_MAKE(s, SPV_S_LESS, spv_bool(s), o.counter, end);
  SPV_PUT(s, SPV_BODY, SPV_BRANCH_IF, more, body, o.behind);
  put_block(c, body);
  vec_push(&c->open, o);
  spv_id *lane = spirv_new_lanes(c, 1);
  *lane = o.counter;
  map_put(&c->values, u, lane);
}

static void open_branch(spirv *c, const uop *u) {
  spv *s = &c->s;
  spirv_open o = {.behind = spv_new(s)};
  spv_id then = spv_new(s), cond = *spirv_lanes(c, u->src[0]);
  SPV_PUT(s, SPV_BODY, SPV_SELECTION_MERGE, o.behind, 0);
  SPV_PUT(s, SPV_BODY, SPV_BRANCH_IF, cond, then, o.behind);
  put_block(c, then);
  vec_push(&c->open, o);
}

static void end_block(spirv *c) {
  spv *s = &c->s;
  spirv_open o = c->open.at[--c->open.n];
  if (o.loop) {
    int size = dtype_size(o.dt);
    SPV_PUT(s, SPV_BODY, SPV_BRANCH, o.next);
    put_block(c, o.next);
    SPV_PUT(s, SPV_BODY, SPV_I_ADD, spv_uint(s, size), o.counted, o.counter, spv_const(s, size, 1));
    SPV_PUT(s, SPV_BODY, SPV_BRANCH, o.header);
  } else SPV_PUT(s, SPV_BODY, SPV_BRANCH, o.behind);
  put_block(c, o.behind);
}

enum { SCOPE_GROUP = 2, ACQUIRE_RELEASE = 8, OF_BUFFERS = 0x40, OF_GROUP = 0x100 };

static void put_barrier(spirv *c, const uop *u) {
  uint32_t what = ACQUIRE_RELEASE | OF_GROUP | (u->b & BARRIER_PARAMS ? OF_BUFFERS : 0);
  SPV_PUT(&c->s, SPV_BODY, SPV_CONTROL_BARRIER, spv_u32(&c->s, SCOPE_GROUP), spv_u32(&c->s, SCOPE_GROUP),
          spv_u32(&c->s, what));
}

// ---- variables ------------------------------------------------------------------------------------------------------

static void set_variables(spirv *c, const spv_id *variables, const uop *value) {
  const spv_id *x = spirv_lanes(c, value);
  for (int i = 0; i < value->lanes; i++) SPV_PUT(&c->s, SPV_BODY, SPV_STORE, variables[i], x[i]);
}

static void declare_variable(spirv *c, const uop *u) {
  spv_id *variables = map_ptr(&c->variables, u), type = spirv_type(c, (enum dtype)u->dt);
  if (!variables) {
    variables = spirv_new_lanes(c, u->lanes);
    for (int i = 0; i < u->lanes; i++) variables[i] = spv_local(&c->s, type);
  }
  set_variables(c, variables, u->src[0]);
  map_put(&c->variables, u, variables);
}

// ---- the program ----------------------------------------------------------------------------------------------------

static int refuse_uop(spirv *c, const uop *u) {
  return error_set(c->err, "%s: the SPIR-V renderer has no %s.%s of %d lanes", c->p->name, op_name((enum op)u->op),
                   dtype_name((enum dtype)u->dt), u->lanes);
}

// 1: done; 0: it has a value, which is made next; -1: not supported
static int put_effect(spirv *c, const uop *u) {
  switch (u->op) {
  case OP_CONST: case OP_PARAM: case OP_VAR: case OP_LANE: case OP_SINK: case OP_LOCAL: case OP_PREFETCH: return 1;
  case OP_RANGE: open_for_loop(c, u); return 1;
  case OP_IF: open_branch(c, u); return 1;
  case OP_END: case OP_ENDIF: end_block(c); return 1;
  case OP_ACC: declare_variable(c, u); return 1;
  case OP_SET:
    if (u->src[0] != u->src[1]) set_variables(c, map_ptr(&c->variables, u->src[0]), u->src[1]);
    return 1;
  case OP_STORE: spirv_store(c, u); return 1;
  case OP_BARRIER: put_barrier(c, u); return 1;
  default: return op_flags((enum op)u->op) & OPF_ORDERED ? refuse_uop(c, u) : 0;
  }
}

static const spv_id *spirv_value(spirv *c, const uop *u) {
  switch (u->op) {
  case OP_SPECIAL: return special_lanes(c, u);
  case OP_INDEX: return spirv_index(c, u);
  case OP_LOAD: return spirv_load(c, u);
  case OP_SPLAT: return stacked_lanes(c, u);
  case OP_STACK: return stacked_lanes(c, u);
  case OP_SHUFFLE: return shuffled_lanes(c, u);
  case OP_EXTRACT: return spirv_lanes(c, u->src[0]) + u->a;
  case OP_HREDUCE: return halved_lanes(c, u);
  case OP_BITCAST: return recast_lanes(c, u);
  case OP_DOT: return spirv_dots(c, u);
  default: return op_flags((enum op)u->op) & OPF_ELEMENTWISE ? each_lane(c, u) : NULL;
  }
}

static int put_program(spirv *c) {
  for (size_t i = 0; i < c->p->n; i++) {
    const uop *u = c->p->at[i];
    if (u->dt == DT_IDX && u->op != OP_CONST) return refuse_uop(c, u);
    int r = u->op == OP_BARRIER && !render_needs_barrier(c->p, i) ? 1 : put_effect(c, u);
    if (r < 0) return -1;
    if (r || !map_has(&c->needed, u)) continue;
    const spv_id *v = spirv_value(c, u);
    if (!v) return refuse_uop(c, u);
    map_put(&c->values, u, (void *)(uintptr_t)v);
  }
  return 0;
}

// Walks backwards, so that operands of unused values do not count as used.
static void find_needed(spirv *c) {
  for (size_t i = c->p->n; i-- > 0;) {
    const uop *u = c->p->at[i];
    if (u->op == OP_PREFETCH || (!(op_flags((enum op)u->op) & OPF_ORDERED) && !map_has(&c->needed, u))) continue;
    for (size_t j = 0; j < u->nsrc; j++) map_put(&c->needed, u->src[j], c);
  }
}

// ---- the module -----------------------------------------------------------------------------------------------------

// lo + (hi - lo) * i / n
static spv_id share_from(spirv *c, spv_id lo, spv_id hi, spv_id i, spv_id n) {
  spv *s = &c->s;
  spv_id u64 = spv_uint(s, 8), all = SPV_MAKE(s, SPV_I_SUB, u64, hi, lo), part = SPV_MAKE(s, SPV_I_MUL, u64, all, i);
  part = SPV_MAKE(s, SPV_S_DIV, u64, part, n);
  return SPV_MAKE(s, SPV_I_ADD, u64, lo, part);
}

// For a program with a tile loop: computes the tiles of this work-group.
static void share_tiles(spirv *c) {
  spv *s = &c->s;
  int at = c->p->n_bufs + c->p->n_vars;
  spv_id u32 = spv_uint(s, 4), lo = spirv_argument(c, at), hi = spirv_argument(c, at + 1);
  spv_id n = SPV_MAKE(s, SPV_COMPOSITE_EXTRACT, u32, input_of(c, SPV_IS_GROUPS), 0),
         i = SPV_MAKE(s, SPV_COMPOSITE_EXTRACT, u32, c->group, 0);
  n = as_index(c, n, DT_U64);
  i = as_index(c, i, DT_U64);
  c->lo = share_from(c, lo, hi, i, n);
  c->hi = share_from(c, lo, hi, SPV_MAKE(s, SPV_I_ADD, spv_uint(s, 8), i, spv_const(s, 8, 1)), n);
}

// Computes the id y * width + x; surplus groups end here.
static void number_spread_groups(spirv *c) {
  spv *s = &c->s;
  spv_id u32 = spv_uint(s, 4), groups = input_of(c, SPV_IS_GROUPS), behind = spv_new(s), none = spv_new(s);
  spv_id width = SPV_MAKE(s, SPV_COMPOSITE_EXTRACT, u32, groups, 0),
         x = SPV_MAKE(s, SPV_COMPOSITE_EXTRACT, u32, c->group, 0),
         y = SPV_MAKE(s, SPV_COMPOSITE_EXTRACT, u32, c->group, 1);
  y = SPV_MAKE(s, SPV_I_MUL, u32, y, width);
  c->first = SPV_MAKE(s, SPV_I_ADD, u32, y, x);
  spv_id n = spirv_argument(c, c->p->n_bufs + c->p->n_vars + 2);
  spv_id is = SPV_MAKE(s, SPV_U_LESS, spv_bool(s), as_index(c, c->first, DT_U64), n);
  SPV_PUT(s, SPV_BODY, SPV_SELECTION_MERGE, behind, 0);
  SPV_PUT(s, SPV_BODY, SPV_BRANCH_IF, is, behind, none);
  put_block(c, none);
  spv_put(s, SPV_BODY, SPV_RETURN, 0, NULL);
  put_block(c, behind);
}

// The start of the kernel: ids of work-group and work-item, and the arguments.
static void put_start(spirv *c) {
  spv *s = &c->s;
  const program *p = c->p;
  bool tiles = false, is[2] = {false};
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    tiles |= u->op == OP_RANGE && u->b == AXIS_GLOBAL;
    if (u->op == OP_SPECIAL && u->s_len) is[u->s[0] == 'l'] = true;
  }
  spv_id u64 = spv_uint(s, 8), block = spv_new(s);
  SPV_PUT(s, SPV_GLOBALS, SPV_TYPE_STRUCT, block, u64);
  SPV_PUT(s, SPV_DECORATIONS, SPV_DECORATE, block, SPV_BLOCK);
  SPV_PUT(s, SPV_DECORATIONS, SPV_MEMBER_DECORATE, block, 0, SPV_OFFSET, 0);
  spv_id push = spv_global(s, SPV_IN_PUSH, block);
  vec_push(&c->interface, push);
  spv_id at = SPV_MAKE(s, SPV_ACCESS_CHAIN, spv_pointer(s, SPV_IN_PUSH, u64), push, spv_u32(s, 0));
  c->arguments = SPV_MAKE(s, SPV_LOAD, u64, at);
  bool spread = !tiles && c->o && render_spreads(p, c->o->spirv);
  if (is[0] || tiles || spread) c->group = input_of(c, SPV_IS_GROUP);
  if (is[1]) c->item = input_of(c, SPV_IS_ITEM);
  c->vars = spirv_new_lanes(c, p->n_vars + 1);
  for (int i = 0; i < p->n_vars; i++) c->vars[i] = spirv_argument(c, p->n_bufs + i);
  if (tiles) share_tiles(c);
  if (spread) number_spread_groups(c);
}

// Declares the float modes that the device supports, for all sizes, because some devices share one mode between sizes.
static void put_modes(spirv *c, spv_id kernel) {
  static const struct { unsigned can; int bits; enum spv_capability needs; enum spv_mode mode; } of[] = {
    {SPIRV_KEEPS_NAN, 32, SPV_CAN_KEEP_NAN, SPV_MODE_KEEP_NAN},
    {SPIRV_KEEPS_DENORMALS, 32, SPV_CAN_KEEP_DENORMALS, SPV_MODE_KEEP_DENORMALS},
    {SPIRV_ROUNDS, 32, SPV_CAN_ROUND, SPV_MODE_ROUND},
    {SPIRV_KEEPS_NAN_64, 64, SPV_CAN_KEEP_NAN, SPV_MODE_KEEP_NAN},
    {SPIRV_KEEPS_DENORMALS_64, 64, SPV_CAN_KEEP_DENORMALS, SPV_MODE_KEEP_DENORMALS},
    {SPIRV_ROUNDS_64, 64, SPV_CAN_ROUND, SPV_MODE_ROUND},
    {SPIRV_KEEPS_DENORMALS_16, 16, SPV_CAN_KEEP_DENORMALS, SPV_MODE_KEEP_DENORMALS},
    {SPIRV_ROUNDS_16, 16, SPV_CAN_ROUND, SPV_MODE_ROUND}};
  unsigned can = c->o ? c->o->spirv : 0;
  for (size_t i = 0; i < COUNT(of); i++) {
    if (!(can & of[i].can)) continue;
    spv_can(&c->s, of[i].needs);
    SPV_PUT(&c->s, SPV_MODES, SPV_EXECUTION_MODE, kernel, (uint32_t)of[i].mode, (uint32_t)of[i].bits);
  }
}

enum { COMPUTE = 5 };

static int put_module(spirv *c) {
  spv *s = &c->s;
  const program *p = c->p;
  spv_id kernel = spv_new(s), type = spv_function_type(s, spv_void(s), 0, NULL);
  uint32_t size[3];
  for (int i = 0; i < 3; i++) {
    if (p->local[i] && p->local[i]->op != OP_CONST)
      return error_set(c->err, "%s: SPIR-V needs the size of work-groups to be constant", p->name);
    size[i] = p->local[i] ? (uint32_t)p->local[i]->a : 1;
  }
  c->block = spv_new(s);
  SPV_PUT(s, SPV_VARIABLES, SPV_FUNCTION, spv_void(s), kernel, 0, type);
  SPV_PUT(s, SPV_VARIABLES, SPV_LABEL, c->block);
  spv_put_text(s, SPV_NAMES, SPV_NAME, 1, &kernel, p->name, 0, NULL);
  SPV_PUT(s, SPV_MODES, SPV_EXECUTION_MODE, kernel, SPV_MODE_GROUP, size[0], size[1], size[2]);
  put_modes(c, kernel);
  put_start(c);
  spirv_declare(c);
  if (put_program(c)) return -1;
  spv_put(s, SPV_BODY, SPV_RETURN, 0, NULL);
  spv_put(s, SPV_BODY, SPV_FUNCTION_END, 0, NULL);
  spv_put_text(s, SPV_ENTRY, SPV_ENTRY_POINT, 2, (const uint32_t[]){COMPUTE, kernel}, "main", c->interface.n,
               c->interface.at);
  return 0;
}

int render_spirv(const program *p, const render_options *opt, str *out, error *err) {
  spirv c = {.p = p, .o = opt, .err = err, .mem = arena_new()};
  size_t *match;
  spv_init(&c.s, c.mem);
  find_needed(&c);
  int r = render_match(p, c.mem, &match, err) || put_module(&c) ? -1 : 0;
  if (!r) spv_finish(&c.s, out);
  spv_free(&c.s);
  map_free(&c.needed);
  map_free(&c.values);
  map_free(&c.variables);
  map_free(&c.memories);
  map_free(&c.zeros);
  vec_free(&c.open);
  vec_free(&c.interface);
  arena_free(c.mem);
  return r;
}
