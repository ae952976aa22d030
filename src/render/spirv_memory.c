// Memory in SPIR-V: see spirv_impl.h.
//
// An INDEX into a PARAM is an address, a 64-bit integer per lane. Loads read words, four at a time, if the address is
// known to be a multiple of 4, otherwise units of its known alignment; lanes are assembled from these bits. Buffers
// begin at multiples of 16 bytes.
//
// An INDEX into a LOCAL is an element number in the variable's array. The elements are as large as all loads and stores
// of that memory allow, at most 4 bytes: SPIR-V has no pointers to other types there.
#include "render/spirv_impl.h"

enum { BUFFERS_AT = 16, MOST_OF_LOCAL = 4 };

static int low_bit(int x) { return x & -x; }

// The known alignment of an access, relative to the beginning of the memory.
static int known_alignment(spirv *c, const uop *index) {
  int zeros = render_zeros(index->src[1], &c->zeros), size = dtype_size((enum dtype)index->src[0]->dt);
  return zeros > 4 ? BUFFERS_AT : (int)min_i64((int64_t)size << zeros, BUFFERS_AT);
}

// ---- declarations ---------------------------------------------------------------------------------------------------

static spirv_memory *declared_memory(spirv *c, const uop *m) {
  spirv_memory *have = map_ptr(&c->memories, m);
  if (have) return have;
  have = ARENA_NEW(c->mem, spirv_memory);
  *have = (spirv_memory){.unit = MOST_OF_LOCAL,
                         .where = m->op == OP_PARAM    ? SPV_IN_ADDRESS
                                  : is_group_memory(m) ? SPV_IN_GROUP
                                                       : SPV_IN_FUNCTION};
  map_put(&c->memories, m, have);
  return have;
}

static void note_access(spirv *c, const uop *index, const uop *value) {
  int size = dtype_size((enum dtype)value->dt), bytes = index->lanes > 1 ? size : size * value->lanes;
  spirv_memory *m = declared_memory(c, render_memory(index));
  m->unit = (int)min_i64(m->unit, low_bit(known_alignment(c, index) | bytes));
}

static void declare_local(spirv *c, const uop *u, spirv_memory *m) {
  int64_t bytes = u->b * dtype_size((enum dtype)u->dt);
  spv_id type = spv_array(&c->s, spv_uint(&c->s, m->unit), (uint32_t)(max_i64(bytes + m->unit - 1, m->unit) / m->unit));
  m->at = m->where == SPV_IN_FUNCTION ? spv_local(&c->s, type) : spv_global(&c->s, SPV_IN_GROUP, type);
  if (m->where == SPV_IN_GROUP) vec_push(&c->interface, m->at);
}

static bool parts_params(const program *p) {
  for (size_t i = 0; i < p->n; i++) if (p->at[i]->op == OP_BARRIER && p->at[i]->b & BARRIER_PARAMS) return true;
  return false;
}

void spirv_declare(spirv *c) {
  const program *p = c->p;
  bool exchanges = parts_params(p);
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    if (u->op == OP_LOAD && map_has(&c->needed, u)) note_access(c, u->src[0], u);
    if (u->op == OP_STORE) note_access(c, u->src[0], u->src[1]);
  }
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    spirv_memory *m = map_ptr(&c->memories, u);
    if (!m || m->at) continue;
    if (u->op == OP_LOCAL) declare_local(c, u, m);
    else m->at = spirv_argument(c, (int)u->a);
    m->exchanged = exchanges && u->op == OP_PARAM && render_is_written(p, u);
  }
}

// ---- addresses ------------------------------------------------------------------------------------------------------

static spv_id offset_by(spirv *c, spv_id address, int64_t bytes) {
  return bytes ? SPV_MAKE(&c->s, SPV_I_ADD, spv_uint(&c->s, 8), address, spv_const(&c->s, 8, (uint64_t)bytes))
               : address;
}

static spv_id pointer_at(spirv *c, spv_id type, spv_id address) {
  return SPV_MAKE(&c->s, SPV_U_TO_POINTER, spv_pointer(&c->s, SPV_IN_ADDRESS, type), address);
}

spv_id spirv_argument(spirv *c, int i) {
  spv_id type = spv_uint(&c->s, 8), at = pointer_at(c, type, offset_by(c, c->arguments, 8 * (int64_t)i));
  return SPV_MAKE(&c->s, SPV_LOAD, type, at, SPV_ALIGNED, 8);
}

static spv_id bytes_of(spirv *c, spv_id x, int bytes, int by) {
  return by == 1 ? x : SPV_MAKE(&c->s, SPV_I_MUL, spv_uint(&c->s, bytes), x, spv_const(&c->s, bytes, (uint64_t)by));
}

// Element numbers are not negative. Byte offsets are computed in 32 bits if the whole memory allows it.
static spv_id element_address(spirv *c, const uop *memory, spv_id at, spv_id i, int bytes) {
  int size = dtype_size((enum dtype)memory->dt);
  bool small = memory->b <= INT32_MAX / size;
  spv_id u64 = spv_uint(&c->s, 8);
  if (bytes == 4 && small) i = bytes_of(c, i, 4, size);
  if (bytes == 4) i = SPV_MAKE(&c->s, SPV_U_CONVERT, u64, i);
  if (bytes != 4 || !small) i = bytes_of(c, i, 8, size);
  return SPV_MAKE(&c->s, SPV_I_ADD, u64, at, i);
}

static spv_id element_of(spirv *c, const uop *memory, int unit, spv_id i, int bytes) {
  int size = dtype_size((enum dtype)memory->dt);
  if (bytes == 8) i = SPV_MAKE(&c->s, SPV_U_CONVERT, spv_uint(&c->s, 4), i);
  if (size >= unit) return bytes_of(c, i, 4, size / unit);
  return SPV_MAKE(&c->s, SPV_SHIFT_U, spv_uint(&c->s, 4), i, spv_u32(&c->s, unit / size == 2 ? 1 : 2));
}

const spv_id *spirv_index(spirv *c, const uop *u) {
  const uop *memory = render_memory(u);
  const spirv_memory *m = declared_memory(c, memory);
  const spv_id *i = spirv_lanes(c, u->src[1]);
  int bytes = dtype_size((enum dtype)u->src[1]->dt);
  spv_id *out = spirv_new_lanes(c, u->lanes);
  for (int l = 0; l < u->lanes; l++)
    out[l] = memory->op == OP_PARAM ? element_address(c, memory, m->at, i[l], bytes)
                                    : element_of(c, memory, m->unit, i[l], bytes);
  return out;
}

// ---- loads and stores -----------------------------------------------------------------------------------------------

// A read or write of n units of `unit` bytes each.
typedef struct access { const spirv_memory *m; spv_id at; int unit, n, aligned; } access;

static access access_to(spirv *c, const uop *index, int lane, int bytes) {
  access a = {.m = declared_memory(c, render_memory(index)), .at = spirv_lanes(c, index)[lane]};
  a.aligned = known_alignment(c, index);
  a.unit = a.m->where == SPV_IN_ADDRESS ? (int)min_i64(low_bit(a.aligned | bytes), 4) : a.m->unit;
  a.n = bytes / a.unit;
  return a;
}

// Number of units in one access from unit i on.
static int units_at_once(const access *a, int i) {
  int left = a->n - i;
  return a->m->where != SPV_IN_ADDRESS || a->unit < 4 || left < 2 ? 1 : left < 4 ? 2 : 4;
}

// A pointer to n units from unit i on, and their type.
static spv_id pointer_to_units(spirv *c, const access *a, int i, int n, spv_id *type) {
  spv *s = &c->s;
  *type = spv_vector(s, spv_uint(s, a->unit), n);
  if (a->m->where == SPV_IN_ADDRESS) {
    if (a->unit < 4) spv_can(s, a->unit == 1 ? SPV_CAN_8BIT_STORAGE : SPV_CAN_16BIT_STORAGE);
    return pointer_at(c, *type, offset_by(c, a->at, (int64_t)i * a->unit));
  }
  spv_id at = i ? SPV_MAKE(s, SPV_I_ADD, spv_uint(s, 4), a->at, spv_u32(s, (uint32_t)i)) : a->at;
  return SPV_MAKE(s, SPV_ACCESS_CHAIN, spv_pointer(s, a->m->where, *type), a->m->at, at);
}

static uint32_t how(const access *a) { return SPV_ALIGNED | (a->m->exchanged ? SPV_VOLATILE : 0); }
static uint32_t aligned_at(const access *a, int i) { return (uint32_t)low_bit(a->aligned | i * a->unit); }

static const spv_id *read_units(spirv *c, const access *a) {
  spv_id *out = spirv_new_lanes(c, a->n), one = spv_uint(&c->s, a->unit);
  for (int i = 0, n; i < a->n; i += n) {
    n = units_at_once(a, i);
    spv_id type, at = pointer_to_units(c, a, i, n, &type);
    spv_id v = a->m->where == SPV_IN_ADDRESS ? SPV_MAKE(&c->s, SPV_LOAD, type, at, how(a), aligned_at(a, i))
                                             : SPV_MAKE(&c->s, SPV_LOAD, type, at);
    for (int j = 0; j < n; j++)
      out[i + j] = n == 1 ? v : SPV_MAKE(&c->s, SPV_COMPOSITE_EXTRACT, one, v, (uint32_t)j);
  }
  return out;
}

static void write_units(spirv *c, const access *a, const spv_id *x) {
  for (int i = 0, n; i < a->n; i += n) {
    n = units_at_once(a, i);
    spv_id type, at = pointer_to_units(c, a, i, n, &type);
    spv_id v = n == 1 ? x[i] : spv_make(&c->s, SPV_COMPOSITE_CONSTRUCT, type, (size_t)n, x + i);
    if (a->m->where == SPV_IN_ADDRESS) SPV_PUT(&c->s, SPV_BODY, SPV_STORE, at, v, how(a), aligned_at(a, i));
    else SPV_PUT(&c->s, SPV_BODY, SPV_STORE, at, v);
  }
}

const spv_id *spirv_load(spirv *c, const uop *u) {
  const uop *index = u->src[0];
  enum dtype d = (enum dtype)u->dt;
  int size = dtype_size(d), times_read = index->lanes > 1 ? u->lanes : 1, each = u->lanes / times_read;
  spv_id *out = spirv_new_lanes(c, u->lanes);
  for (int i = 0; i < times_read; i++) {
    access a = access_to(c, index, i, each * size);
    const spv_id *bits = spirv_resize(c, read_units(c, &a), a.n, a.unit, size);
    for (int j = 0; j < each; j++) out[i * each + j] = spirv_of_bits(c, bits[j], d);
  }
  return out;
}

void spirv_store(spirv *c, const uop *u) {
  const uop *index = u->src[0], *what = u->src[1];
  enum dtype d = (enum dtype)what->dt;
  int size = dtype_size(d), times_written = index->lanes > 1 ? what->lanes : 1, each = what->lanes / times_written;
  const spv_id *x = spirv_lanes(c, what);
  spv_id *bits = spirv_new_lanes(c, what->lanes);
  for (int i = 0; i < what->lanes; i++) bits[i] = spirv_to_bits(c, x[i], d);
  for (int i = 0; i < times_written; i++) {
    access a = access_to(c, index, i, each * size);
    write_units(c, &a, spirv_resize(c, bits + i * each, each, size, a.unit));
  }
}
