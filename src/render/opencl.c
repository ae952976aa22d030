// The OpenCL renderer: writes a program in OpenCL C 1.2.
//
// Arguments in order: a pointer per buffer, then the byte offset at which each begins (many buffers share one device
// allocation), a long per variable and, if the program has a tile loop (made for a CPU), two longs: the tiles that all
// work-items share. LOCAL is __local memory, SPECIAL is the id of the work-group or work-item.
//
// The language has vectors of 2, 4, 8 and 16 lanes and aligns elements, so less aligned memory is loaded in its own
// units and reinterpreted. Compilers based on clang support vectors of any size and any alignment: if the device
// reports that (render_options.vector_bits above 128), vectors have that width. A device without doubles emulates them
// (soft_doubles.h). Half precision is storage only and needs no extension. Contraction is off; build with
// -cl-fp32-correctly-rounded-divide-sqrt if the device supports it.
#include "render/cstyle.h"
#include "render/soft_doubles.h"
#include <string.h>

enum helper { HELP_HALVES = 1, HELP_DOUBLES = 2 };
enum { STANDARD_LANES = 16, WIDE_LANES = 64, ANY_ALIGNMENT = 1 << 16 /* in a key of c->types */ };

static const char *const scalars[DT_COUNT] = {
  [DT_BOOL] = "char",  [DT_I8] = "char",     [DT_U8] = "uchar",  [DT_I16] = "short", [DT_U16] = "ushort",
  [DT_I32] = "int",    [DT_U32] = "uint",    [DT_I64] = "long",  [DT_U64] = "ulong", [DT_IDX] = "long",
  [DT_F16] = "ushort", [DT_BF16] = "ushort", [DT_F32] = "float", [DT_F64] = "double"};

static const char *scalar(const cstyle *c, uint64_t d) { return d == DT_F64 && c->d->doubles ? "ulong" : scalars[d]; }

static uint64_t lanes_key(const cstyle *c, enum dtype d, int lanes) {
  return (uint64_t)(d == DT_F64 && c->d->doubles ? DT_U64 : d) | (uint64_t)lanes << 8;
}

static const char *cl_type(cstyle *c, enum dtype d, int lanes) {
  if (lanes > STANDARD_LANES) map_set(&c->types, lanes_key(c, d, lanes), c);
  if (lanes == 1) return d == DT_BOOL ? "bool" : scalar(c, d);
  return cs_print(c, "%s%d", scalar(c, d), lanes);
}

static const char *as(cstyle *c, const char *x, enum dtype d, int lanes) {
  if (lanes > STANDARD_LANES) return cs_print(c, "__builtin_astype(%s, %s)", cs_bare(c, x), cl_type(c, d, lanes));
  return cs_print(c, "as_%s(%s)", cl_type(c, d, lanes), cs_bare(c, x));
}

static const char *converted(cstyle *c, const char *x, enum dtype d, int lanes) {
  if (lanes > STANDARD_LANES)
    return cs_print(c, "__builtin_convertvector(%s, %s)", cs_bare(c, x), cl_type(c, d, lanes));
  return cs_print(c, "convert_%s(%s)", cl_type(c, d, lanes), cs_bare(c, x));
}

static const char *cl_reinterpret(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes) {
  // x may be promoted to int
  if (lanes == 1 && !dtype_is_float(from) && !dtype_is_float(to)) return cs_print(c, "((%s)%s)", scalar(c, to), x);
  return as(c, x, to, lanes);
}

static const char *cl_convert(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes) {
  (void)from;
  if (lanes == 1) return cs_print(c, "((%s)%s)", cl_type(c, to, 1), x);
  return converted(c, x, to, lanes);
}

static const char *cl_mask(cstyle *c, const char *x, int from_bytes, int to_bytes, int lanes) {
  if (from_bytes == to_bytes) return x;
  return converted(c, x, cs_int_of_size(to_bytes, false), lanes);
}

static const char *cl_select(cstyle *c, const char *m, const char *x, const char *y, enum dtype d, int lanes) {
  (void)d;
  if (lanes > STANDARD_LANES) return cs_print(c, "(%s ? %s : %s)", m, x, y);
  return cs_print(c, "select(%s, %s, %s)", cs_bare(c, y), cs_bare(c, x), cs_bare(c, m));
}

static const char *cl_build(cstyle *c, enum dtype d, int lanes, const char *const *x) {
  bool same = true;
  for (int i = 1; i < lanes; i++) same &= !strcmp(x[i], x[0]);
  str s = {0};
  for (int i = 0; i < (same ? 1 : lanes); i++) str_addf(&s, "%s%s", i ? ", " : "", cs_bare(c, x[i]));
  const char *r = cs_print(c, "((%s)(%s))", cl_type(c, d, lanes), str_c(&s));
  str_free(&s);
  return r;
}

static const char *cl_extract(cstyle *c, const char *x, int lane) {
  return cs_print(c, lane < STANDARD_LANES ? "%s.s%x" : "%s[%d]", x, lane);
}

static const char *wide_shuffle(cstyle *c, const uop *u, const char *x, const char *y) {
  str s = {0};
  for (int i = 0; i < u->lanes; i++) str_addf(&s, ", %d", shuffle_lane(u, i));
  const char *r = cs_print(c, "__builtin_shufflevector(%s, %s%s)", x, u->nsrc > 1 ? y : x, str_c(&s));
  str_free(&s);
  return r;
}

static const char *cl_shuffle(cstyle *c, const uop *u, const char *x, const char *y) {
  int n = u->src[0]->lanes, first = shuffle_lane(u, 0);
  enum dtype d = (enum dtype)u->dt;
  if (u->lanes == 1) return cs_print(c, d == DT_BOOL ? "(%s != 0)" : "%s", cl_extract(c, first < n ? x : y, first % n));
  if (n > STANDARD_LANES || u->lanes > STANDARD_LANES) return wide_shuffle(c, u, x, y);
  const char **lanes = ARENA_ARRAY(c->mem, const char *, u->lanes);
  bool one = true;
  str s = {0};
  for (int i = 0; i < u->lanes; i++) {
    int l = shuffle_lane(u, i);
    one &= l / n == first / n;
    str_addf(&s, "%x", l % n);
    lanes[i] = cl_extract(c, l < n ? x : y, l % n);
  }
  const char *r = one ? cs_print(c, "%s.s%s", first < n ? x : y, str_c(&s)) : cl_build(c, d, u->lanes, lanes);
  str_free(&s);
  return r;
}

static const char *cl_math(cstyle *c, const uop *u, const char *const *x) {
  if (u->op == OP_FMA) return cs_print(c, "fma(%s, %s, %s)", cs_bare(c, x[0]), cs_bare(c, x[1]), cs_bare(c, x[2]));
  return cs_print(c, "%s(%s)", u->op == OP_SQRT ? "sqrt" : u->op == OP_TRUNC ? "trunc" : "floor", cs_bare(c, x[0]));
}

static const char *cl_halves(cstyle *c, const char *x, bool to_f32, int lanes) {
  const char *f = to_f32 ? "f32_of_f16" : "f16_of_f32";
  c->helpers |= HELP_HALVES;
  if (lanes == 1) return cs_print(c, "%s(%s)", f, cs_bare(c, x));
  x = cs_named(c, to_f32 ? DT_F16 : DT_F32, lanes, x);
  const char *each[WIDE_LANES];
  for (int i = 0; i < lanes; i++) each[i] = cs_print(c, "%s(%s)", f, cl_extract(c, x, i));
  return cl_build(c, to_f32 ? DT_F32 : DT_F16, lanes, each);
}

// as_ depends on the size of its operand's type, and arithmetic on small integers is promoted to int
static const char *exactly(cstyle *c, const char *x, enum dtype d, int lanes) {
  return lanes == 1 && !dtype_is_float(d) ? cs_print(c, "(%s)%s", scalar(c, d), x) : cs_bare(c, x);
}

static const char *cl_bitcast(cstyle *c, const uop *u, const char *x) {
  return as(c, exactly(c, x, (enum dtype)u->src[0]->dt, u->src[0]->lanes), (enum dtype)u->dt, u->lanes);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static const char *address_space(const uop *m) {
  return m->op == OP_PARAM ? "__global" : m->memory == MEMORY_TILE ? "__private" : "__local";
}
static enum dtype unit_of(const uop *m) { return cs_memory_dtype((enum dtype)m->dt); }

static bool is_wide(const cstyle *c) { return c->d->max_lanes > STANDARD_LANES; }

static const char *unaligned(cstyle *c, enum dtype d, int lanes) {
  cl_type(c, d, lanes);
  map_set(&c->types, lanes_key(c, d, lanes) | ANY_ALIGNMENT, c);
  return cs_print(c, "%s%d_at", scalar(c, d), lanes);
}

// `lanes` elements of memory type d from address `at`, an expression.
static const char *cl_read_at(cstyle *c, const uop *m, const char *at, enum dtype d, int lanes) {
  enum dtype unit = unit_of(m);
  int per_lane = dtype_size(d) / dtype_size(unit);
  if (is_wide(c) && lanes > 1)
    return cs_print(c, "(*(%s const %s *)(%s))", address_space(m), unaligned(c, d, lanes), at);
  if (per_lane == 0) {                                  // smaller than the memory's elements: aligned well enough
    const char *p = cs_print(c, "(%s const %s *)(%s)", address_space(m), scalar(c, d), at);
    return lanes == 1 ? cs_print(c, "(*(%s))", p) : cs_print(c, "vload%d(0, %s)", lanes, p);
  }
  int units = lanes * per_lane;
  if (units == 1) return unit == d ? cs_print(c, "(*(%s))", at) : cs_print(c, "as_%s(*(%s))", scalar(c, d), at);
  if (units <= 16) {
    const char *x = cs_print(c, "vload%d(0, %s)", units, at);
    return unit == d ? x : cs_print(c, "as_%s(%s)", cl_type(c, d, lanes), x);
  }
  const char *each[STANDARD_LANES];
  for (int i = 0; i < lanes; i++) each[i] = cl_read_at(c, m, cs_print(c, "%s + %d", at, i * per_lane), d, 1);
  return cl_build(c, d, lanes, each);
}

static void cl_write_at(cstyle *c, const uop *m, const char *at, enum dtype d, int lanes, const char *v) {
  enum dtype unit = unit_of(m);
  int per_lane = dtype_size(d) / dtype_size(unit);
  if (is_wide(c) && lanes > 1) {
    cs_line(c, "*(%s %s *)(%s) = %s;", address_space(m), unaligned(c, d, lanes), at, cs_bare(c, v));
    return;
  }
  if (per_lane == 0) {
    const char *p = cs_print(c, "(%s %s *)(%s)", address_space(m), scalar(c, d), at);
    if (lanes == 1) cs_line(c, "*(%s) = %s;", p, cs_bare(c, v));
    else cs_line(c, "vstore%d(%s, 0, %s);", lanes, cs_bare(c, v), p);
    return;
  }
  int units = lanes * per_lane;
  if (units <= 16) {
    if (unit != d)
      v = per_lane == 1 ? cl_reinterpret(c, v, d, unit, lanes)
                        : cs_print(c, "as_%s(%s)", cl_type(c, unit, units), exactly(c, v, d, lanes));
    if (units == 1) cs_line(c, "*(%s) = %s;", at, cs_bare(c, v));
    else cs_line(c, "vstore%d(%s, 0, %s);", units, cs_bare(c, v), at);
  } else {
    v = cs_named(c, d, lanes, v);
    for (int i = 0; i < lanes; i++)
      cl_write_at(c, m, cs_print(c, "%s + %d", at, i * per_lane), d, 1, cl_extract(c, v, i));
  }
}

static const char *cl_address(cstyle *c, const uop *index, int lane) {
  const char *b = cs_buffer(c, render_memory(index)), *i = cs_text(c, index);
  return index->lanes == 1 ? cs_print(c, "%s + %s", b, i) : cs_print(c, "%s + %s", b, cl_extract(c, i, lane));
}

static const char *cl_load(cstyle *c, const uop *u) {
  const uop *index = u->src[0], *m = render_memory(index);
  enum dtype d = (enum dtype)u->dt, in = cs_memory_dtype(d);
  const char *x;
  if (index->lanes > 1) {
    const char *each[WIDE_LANES];
    for (int i = 0; i < u->lanes; i++) each[i] = cl_read_at(c, m, cl_address(c, index, i), in, 1);
    x = cl_build(c, in, u->lanes, each);
  } else if (u->lanes == 1 && unit_of(m) == in)
    x = cs_print(c, "%s[%s]", cs_buffer(c, m), cs_bare(c, cs_text(c, index)));
  else x = cl_read_at(c, m, cl_address(c, index, 0), in, u->lanes);
  if (d != DT_BOOL) return x;
  return u->lanes == 1 ? cs_print(c, "(%s != 0)", x) : cs_print(c, "(%s != (%s)(0))", x, cl_type(c, in, u->lanes));
}

static void cl_store(cstyle *c, const uop *u) {
  const uop *index = u->src[0], *m = render_memory(index), *what = u->src[1];
  enum dtype d = (enum dtype)what->dt, in = cs_memory_dtype(d);
  const char *v = cs_text(c, what);
  if (d == DT_BOOL)
    v = what->lanes == 1 ? cs_print(c, "((uchar)%s)", v) : converted(c, cs_print(c, "-%s", v), DT_U8, what->lanes);
  if (index->lanes > 1) {
    v = cs_named(c, in, what->lanes, v);
    for (int i = 0; i < what->lanes; i++) cl_write_at(c, m, cl_address(c, index, i), in, 1, cl_extract(c, v, i));
  } else if (what->lanes == 1 && unit_of(m) == in)
    cs_line(c, "%s[%s] = %s;", cs_buffer(c, m), cs_bare(c, cs_text(c, index)), cs_bare(c, v));
  else cl_write_at(c, m, cl_address(c, index, 0), in, what->lanes, v);
}

// ---- work-groups ----------------------------------------------------------------------------------------------------

static int other(cstyle *c, const uop *u) {
  if (u->op == OP_BARRIER) {
    cs_line(c, u->b & BARRIER_PARAMS ? "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"
                                     : "barrier(CLK_LOCAL_MEM_FENCE);");
    return 1;
  }
  if (u->op != OP_SPECIAL || u->s_len != 2 || (u->s[0] != 'g' && u->s[0] != 'l') || u->s[1] < '0' || u->s[1] > '2')
    return 0;
  const char *name = cs_print(c, "%s%c", u->s[0] == 'g' ? "group" : "item", u->s[1]);
  cs_line(c, "%s %s = get_%s_id(%c);", scalar(c, u->dt), name, u->s[0] == 'g' ? "group" : "local", u->s[1]);
  map_put(&c->text, u, (void *)(uintptr_t)name);
  return 1;
}

static const struct soft_doubles_words cl_double_words = {"static", "as_uint", "as_float"};

static const char *cl_doubles(cstyle *c, enum op op, enum dtype from, enum dtype to, const char *const *x) {
  c->helpers |= HELP_DOUBLES;
  return soft_doubles_call(c, op, from, to, x);
}

#define DIALECT(lanes, f64, f64_op) { \
  .name = "OpenCL", .long_suffix = "l", .max_lanes = lanes, .names_operands = false, \
  .scalars = {[DT_BOOL] = "bool", [DT_I8] = "char", [DT_U8] = "uchar", [DT_I16] = "short", [DT_U16] = "ushort", \
  [DT_I32] = "int", [DT_U32] = "uint", \
              [DT_I64] = "long", [DT_U64] = "ulong", [DT_IDX] = "long", [DT_F16] = "ushort", [DT_F32] = "float", \
              [DT_F64] = f64}, \
  .type = cl_type, .reinterpret = cl_reinterpret, .convert = cl_convert, .select = cl_select, .mask = cl_mask, \
  .build = cl_build, .extract = cl_extract, .shuffle = cl_shuffle, .math = cl_math, .halves = cl_halves, \
  .bitcast = cl_bitcast, .load = cl_load, .store = cl_store, .other = other, .doubles = f64_op, \
}
static const dialect dialects[] = {DIALECT(STANDARD_LANES, "double", NULL), DIALECT(WIDE_LANES, "double", NULL)},
                     without_doubles[] = {DIALECT(STANDARD_LANES, "ulong", cl_doubles),
                                          DIALECT(WIDE_LANES, "ulong", cl_doubles)};

// ---- the file -------------------------------------------------------------------------------------------------------

static bool group_size(const program *p, long long *size) {
  for (int i = 0; i < 3; i++) {
    if (p->local[i] && p->local[i]->op != OP_CONST) return false;
    size[i] = p->local[i] ? p->local[i]->a : 1;
  }
  return true;
}

static void cl_write_head(cstyle *c, str *out) {
  const program *p = c->p;
  bool tiles = false, f64 = false;
  const uop *params[64] = {0};
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    tiles |= u->op == OP_RANGE && u->b == AXIS_GLOBAL;
    f64 |= u->dt == DT_F64;
    if (u->op == OP_PARAM && u->a >= 0 && u->a < 64) params[u->a] = u;
  }
  if (f64 && !c->d->doubles) str_add(out, "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
  uint64_t key;
  void *val;
  for (size_t i = 0; map_next(&c->types, &i, &key, &val);) {
    int lanes = (int)(key >> 8 & 255);
    str_addf(out, "typedef %s %s%d%s __attribute__((ext_vector_type(%d)%s));\n", scalar(c, key & 255),
             scalar(c, key & 255), lanes, key & ANY_ALIGNMENT ? "_at" : "", lanes,
             key & ANY_ALIGNMENT ? ", aligned(1)" : "");
  }
  str_add(out, "#pragma OPENCL FP_CONTRACT OFF\n\n");
  if (c->helpers & HELP_HALVES)
    str_add(out, "float f32_of_f16(ushort h) { return vload_half(0, (const half *)&h); }\n"
                 "ushort f16_of_f32(float x) { ushort h; vstore_half_rte(x, 0, (half *)&h); return h; }\n\n");
  if (c->helpers & HELP_DOUBLES) soft_doubles_write(out, &cl_double_words);
  long long size[3];
  str_add(out, "__kernel ");
  if (group_size(p, size))
    str_addf(out, "__attribute__((reqd_work_group_size(%lld, %lld, %lld))) ", size[0], size[1], size[2]);
  str_addf(out, "void %s(", p->name);
  const char *comma = "";
  for (int a = 0; a < p->n_bufs; a++, comma = ", ") {
    const uop *u = params[a];
    bool written = u && render_is_written(p, u);
    str_addf(out, "%s__global %s%s *restrict m%d", comma, written ? "" : "const ", u ? scalar(c, unit_of(u)) : "uchar",
             a);
  }
  for (int a = 0; a < p->n_bufs; a++) str_addf(out, ", long o%d", a);
  for (int v = 0; v < p->n_vars; v++, comma = ", ") str_addf(out, "%slong %s_arg", comma, cs_var(c, p->vars[v]));
  if (tiles) str_addf(out, "%slong first, long last", comma);
  str_add(out, ") {\n");
  for (int a = 0; a < p->n_bufs; a++) {
    const uop *u = params[a];
    const char *of = u && render_is_written(p, u) ? "" : "const ", *t = u ? scalar(c, unit_of(u)) : "uchar";
    str_addf(out, "  __global %s%s *b%d = (__global %s%s *)((__global const uchar *)m%d + o%d);\n", of, t, a, of, t, a,
             a);
  }
  if (tiles)
    str_add(out, "  long item = get_global_id(0), items = get_global_size(0), lo = first + (last - first) * item / "
                 "items, hi = first + (last - first) * (item + 1) / items;\n");
}

static void write_declarations(cstyle *c, str *out) {
  map seen = {0};
  for (size_t i = 0; i < c->p->n; i++) {
    const uop *u = c->p->at[i];
    if ((u->op != OP_LOCAL && u->op != OP_VAR) || map_has(&seen, u)) continue;
    map_put(&seen, u, c);
    if (u->op == OP_LOCAL)
      str_addf(out, "  %s %s %s[%lld];\n", address_space(u), scalar(c, unit_of(u)), cs_buffer(c, u), (long long)u->b);
    else str_addf(out, "  %s %s = %s_arg;\n", scalar(c, u->dt), cs_var(c, u), cs_var(c, u));
  }
  map_free(&seen);
}

int render_opencl(const program *p, const render_options *opt, str *out, error *err) {
  bool wide = opt && opt->vector_bits > STANDARD_LANES * 8;
  if (p->n_bufs > 64) return error_set(err, "%s: %d buffers are too many for the OpenCL renderer", p->name, p->n_bufs);
  cstyle c;
  int r = cs_program(&c, p, opt && opt->lacks_doubles ? &without_doubles[wide] : &dialects[wide], 1, err);
  if (!r) {
    cl_write_head(&c, out);
    write_declarations(&c, out);
    str_addn(out, str_c(&c.body), c.body.n);
    str_add(out, "}\n");
  }
  cs_free(&c);
  return r;
}
