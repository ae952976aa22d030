// The Metal renderer: writes a program in the Metal Shading Language, version 2.3 or later (C++14 with address spaces).
//
// Arguments: the buffers in order, [[buffer(0)]] and so on, each from its first byte on; then the variables as longs in
// `constant` memory at metal_vars_index. A program with a tile loop, which no device uses, finds the first tile and the
// end after the variables, and each thread runs all tiles. Buffers begin at multiples of METAL_ALIGNED bytes, so some
// bytes are known to be whole words and are read as words. LOCAL is threadgroup memory, declared in the kernel; SPECIAL
// is the id of the threadgroup or the thread; SWAP is an exchange within a SIMD-group of 32.
//
// The language's vectors have up to 4 lanes and compare to vectors of bool. This renderer uses a struct with an array,
// Lanes<T, N>, for vectors of any width; its operators work lane by lane and compare to 0 and -1. Apple's GPUs compute
// lane by lane, and compilers decompose such structs. Half precision is storage only. The hardware may flush subnormal
// floats and halves to zero, so their conversions are done in integers. Doubles are emulated (soft_doubles.h). Nothing
// is contracted (the pragmas, and a library built without fast math).
#include "render/metal.h"
#include "render/cstyle.h"
#include "render/soft_doubles.h"
#include <string.h>

enum { MSL_HALVES = 1, MSL_DOUBLES = 2, MSL_VECTORS = 4, MSL_LANES = 64 };

static const char *const msl_scalars[DT_COUNT] = {
  [DT_BOOL] = "char",  [DT_I8] = "char",     [DT_U8] = "uchar",  [DT_I16] = "short", [DT_U16] = "ushort",
  [DT_I32] = "int",    [DT_U32] = "uint",    [DT_I64] = "long",  [DT_U64] = "ulong", [DT_IDX] = "long",
  [DT_F16] = "ushort", [DT_BF16] = "ushort", [DT_F32] = "float", [DT_F64] = "ulong"};

static const char head[] =
  "#include <metal_stdlib>\n"
  "using namespace metal;\n"
  "#if __METAL_VERSION__ >= 320\n"
  "#pragma METAL fp math_mode(safe)\n"
  "#pragma METAL fp contract(off)\n"
  "#else\n"
  "#pragma clang fp contract(off)\n"
  "#endif\n\n";

// BITS gives the bits of a number; Number<T>::of converts them back.
static const char vectors[] =
  "template <typename T, int N> struct Lanes { T v[N]; };\n"
  "template <int bytes> struct Whole {};\n"
  "template <> struct Whole<1> { typedef char s; typedef uchar u; };\n"
  "template <> struct Whole<2> { typedef short s; typedef ushort u; };\n"
  "template <> struct Whole<4> { typedef int s; typedef uint u; };\n"
  "template <> struct Whole<8> { typedef long s; typedef ulong u; };\n"
  "template <typename T> struct Number {\n"
  "  static typename Whole<sizeof(T)>::u bits(T x) { return (typename Whole<sizeof(T)>::u)x; }\n"
  "  static T of(typename Whole<sizeof(T)>::u x) { return (T)x; }\n"
  "};\n"
  "template <> struct Number<float> {\n"
  "  static uint bits(float x) { return as_type<uint>(x); }\n"
  "  static float of(uint x) { return as_type<float>(x); }\n"
  "};\n"
  "#define EACH for (int i = 0; i < N; i++)\n"
  "#define BINARY(op) template <typename T, int N> inline Lanes<T, N> operator op(Lanes<T, N> x, Lanes<T, N> y) { \\\n"
  "  Lanes<T, N> r; EACH r.v[i] = (T)(x.v[i] op y.v[i]); return r; }\n"
  "#define COMPARE(op) template <typename T, int N> inline Lanes<typename Whole<sizeof(T)>::s, N> \\\n"
  "  operator op(Lanes<T, N> x, Lanes<T, N> y) { \\\n"
  "  Lanes<typename Whole<sizeof(T)>::s, N> r; EACH r.v[i] = x.v[i] op y.v[i] ? -1 : 0; return r; }\n"
  "BINARY(+) BINARY(-) BINARY(*) BINARY(/) BINARY(%) BINARY(&) BINARY(|) BINARY(^) BINARY(<<) BINARY(>>)\n"
  "COMPARE(<) COMPARE(==) COMPARE(!=)\n"
  "template <typename T, int N> inline Lanes<T, N> operator-(Lanes<T, N> x) {\n"
  "  Lanes<T, N> r; EACH r.v[i] = (T)-x.v[i]; return r;\n"
  "}\n"
  "template <typename T, int N> inline Lanes<T, N> operator~(Lanes<T, N> x) {\n"
  "  Lanes<T, N> r; EACH r.v[i] = (T)~x.v[i]; return r;\n"
  "}\n"
  "template <typename D, typename T, int N> inline Lanes<D, N> lanes_as(Lanes<T, N> x) {\n"
  "  Lanes<D, N> r; EACH r.v[i] = (D)x.v[i]; return r;\n"
  "}\n"
  "template <typename M, typename T, int N> inline Lanes<T, N> lanes_where(Lanes<M, N> m, Lanes<T, N> x, "
  "Lanes<T, N> y) {\n"
  "  Lanes<T, N> r; EACH r.v[i] = m.v[i] ? x.v[i] : y.v[i]; return r;\n"
  "}\n"
  "template <int N, typename T> inline Lanes<T, N> lanes_all(T x) { Lanes<T, N> r; EACH r.v[i] = x; return r; }\n"
  "template <int N> inline Lanes<float, N> lanes_fma(Lanes<float, N> x, Lanes<float, N> y, Lanes<float, N> z) {\n"
  "  Lanes<float, N> r; EACH r.v[i] = fma(x.v[i], y.v[i], z.v[i]); return r;\n"
  "}\n"
  "template <int N> inline Lanes<float, N> lanes_sqrt(Lanes<float, N> x) {\n"
  "  Lanes<float, N> r; EACH r.v[i] = precise::sqrt(x.v[i]); return r;\n"
  "}\n"
  "template <int N> inline Lanes<float, N> lanes_trunc(Lanes<float, N> x) {\n"
  "  Lanes<float, N> r; EACH r.v[i] = trunc(x.v[i]); return r;\n"
  "}\n"
  "template <int N> inline Lanes<float, N> lanes_floor(Lanes<float, N> x) {\n"
  "  Lanes<float, N> r; EACH r.v[i] = floor(x.v[i]); return r;\n"
  "}\n"
  // reinterprets bits in lanes of another size, the first lanes in the low bits
  "template <typename D, int M, typename T, int N> inline Lanes<D, M> lanes_bits(Lanes<T, N> x) {\n"
  "  enum { SIZE = sizeof(D) > sizeof(T) ? sizeof(D) : sizeof(T), MANY = SIZE / sizeof(T), FEW = SIZE / sizeof(D) };\n"
  "  typedef typename Whole<SIZE>::u bits;\n"
  "  Lanes<D, M> r;\n"
  "  for (int i = 0; i < M / FEW; i++) {\n"
  "    bits b = 0;\n"
  "    for (int j = 0; j < MANY; j++) b |= (bits)((bits)Number<T>::bits(x.v[i * MANY + j]) << (8 * (int)sizeof(T) * "
  "j));\n"
  "    for (int j = 0; j < FEW; j++)\n"
  "      r.v[i * FEW + j] = Number<D>::of((typename Whole<sizeof(D)>::u)(b >> (8 * (int)sizeof(D) * j)));\n"
  "  }\n"
  "  return r;\n"
  "}\n"
  "template <typename D, typename T> inline D one_of_bits(T x) {\n"
  "  return Number<D>::of((typename Whole<sizeof(D)>::u)Number<T>::bits(x));\n"
  "}\n"
  // memory: P is a pointer in any address space
  "template <typename T, int N, typename P> inline Lanes<T, N> lanes_load(P p) {\n"
  "  Lanes<T, N> r; EACH r.v[i] = p[i]; return r;\n"
  "}\n"
  "template <typename P, typename T, int N> inline void lanes_store(P p, Lanes<T, N> x) { EACH p[i] = x.v[i]; }\n\n";

// To half: to nearest, ties to even.
static const char halves[] =
  "inline float f32_of_f16(ushort h) {\n"
  "  float small = (float)(h & 0x3ff) * 5.9604644775390625e-8f;\n"
  "  return h & 0x7c00 ? (float)as_type<half>(h) : as_type<float>(as_type<uint>(small) | (uint)(h & 0x8000) << 16);\n"
  "}\n"
  "inline ushort f16_of_f32(float x) {\n"
  "  uint b = as_type<uint>(x), sign = b >> 16 & 0x8000, rest = b & 0x7fffffff;\n"
  "  if (rest > 0x7f800000) return (ushort)(sign | 0x7e00 | (rest >> 13 & 0x3ff));\n"
  "  if (rest >= 0x47800000) return (ushort)(sign | 0x7c00);\n"
  "  if (rest < 0x38800000) return (ushort)(sign | (as_type<uint>(as_type<float>(rest) + 0.5f) - 0x3f000000));\n"
  "  return (ushort)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);\n"
  "}\n\n";

// ---- values ---------------------------------------------------------------------------------------------------------

static const char *msl_type(cstyle *c, enum dtype d, int lanes) {
  if (lanes == 1) return d == DT_BOOL ? "bool" : msl_scalars[d];
  c->helpers |= MSL_VECTORS;
  return cs_print(c, "Lanes<%s, %d>", msl_scalars[d], lanes);
}

static enum dtype bits_as_dtype(enum dtype d) { return d == DT_F64 ? DT_U64 : cs_memory_dtype(d); }

static const char *msl_reinterpret(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes) {
  if (lanes > 1) {
    c->helpers |= MSL_VECTORS;
    return cs_print(c, "lanes_bits<%s, %d>(%s)", msl_scalars[to], lanes, cs_bare(c, x));
  }
  bool integers = !dtype_is_float(bits_as_dtype(from)) && !dtype_is_float(bits_as_dtype(to));
  return cs_print(c, integers ? "((%s)%s)" : "as_type<%s>(%s)", msl_scalars[to], x);
}

static const char *msl_convert(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes) {
  (void)from;
  if (lanes == 1) return cs_print(c, "((%s)%s)", msl_type(c, to, 1), x);
  return cs_print(c, "lanes_as<%s>(%s)", msl_scalars[to], cs_bare(c, x));
}

static const char *msl_mask(cstyle *c, const char *x, int from_bytes, int to_bytes, int lanes) {
  if (from_bytes == to_bytes) return x;
  return msl_convert(c, x, DT_I8, cs_int_of_size(to_bytes, false), lanes);
}

static const char *msl_select(cstyle *c, const char *m, const char *x, const char *y, enum dtype d, int lanes) {
  (void)d;
  (void)lanes;
  return cs_print(c, "lanes_where(%s, %s, %s)", cs_bare(c, m), cs_bare(c, x), cs_bare(c, y));
}

static const char *msl_build(cstyle *c, enum dtype d, int lanes, const char *const *x) {
  bool same = true;
  for (int i = 1; i < lanes; i++) same &= !strcmp(x[i], x[0]);
  const char *element = msl_scalars[d];
  if (same && lanes > 1) {
    c->helpers |= MSL_VECTORS;
    return cs_print(c, "lanes_all<%d>((%s)%s)", lanes, element, x[0]);
  }
  str s = {0};
  for (int i = 0; i < lanes; i++) str_addf(&s, "%s(%s)%s", i ? ", " : "", element, x[i]);
  const char *r = cs_print(c, "%s{{%s}}", msl_type(c, d, lanes), str_c(&s));
  str_free(&s);
  return r;
}

static const char *msl_extract(cstyle *c, const char *x, int lane) { return cs_print(c, "%s.v[%d]", x, lane); }

static const char *msl_shuffle(cstyle *c, const uop *u, const char *x, const char *y) {
  int n = u->src[0]->lanes, first = shuffle_lane(u, 0);
  enum dtype d = (enum dtype)u->dt;
  if (u->lanes == 1)
    return cs_print(c, d == DT_BOOL ? "(%s != 0)" : "%s", msl_extract(c, first < n ? x : y, first % n));
  x = cs_named(c, d, n, x);
  if (y) y = cs_named(c, d, n, y);
  const char **lanes = ARENA_ARRAY(c->mem, const char *, u->lanes);
  for (int i = 0; i < u->lanes; i++) {
    int l = shuffle_lane(u, i);
    lanes[i] = msl_extract(c, l < n ? x : y, l % n);
  }
  return msl_build(c, d, u->lanes, lanes);
}

static const char *msl_math(cstyle *c, const uop *u, const char *const *x) {
  const char *before = u->lanes > 1 ? "lanes_" : u->op == OP_SQRT ? "precise::" : "";
  if (u->op == OP_FMA)
    return cs_print(c, "%sfma(%s, %s, %s)", before, cs_bare(c, x[0]), cs_bare(c, x[1]), cs_bare(c, x[2]));
  const char *f = u->op == OP_SQRT ? "sqrt" : u->op == OP_TRUNC ? "trunc" : "floor";
  return cs_print(c, "%s%s(%s)", before, f, cs_bare(c, x[0]));
}

static const char *msl_halves(cstyle *c, const char *x, bool to_f32, int lanes) {
  const char *f = to_f32 ? "f32_of_f16" : "f16_of_f32", *each[MSL_LANES];
  c->helpers |= MSL_HALVES;
  if (lanes == 1) return cs_print(c, "%s(%s)", f, cs_bare(c, x));
  x = cs_named(c, to_f32 ? DT_F16 : DT_F32, lanes, x);
  for (int i = 0; i < lanes; i++) each[i] = cs_print(c, "%s(%s)", f, msl_extract(c, x, i));
  return msl_build(c, to_f32 ? DT_F32 : DT_F16, lanes, each);
}

// Arithmetic on small integers is promoted to int: a cast restores the type and so the number of bits.
static const char *msl_exactly(cstyle *c, const char *x, enum dtype d, int lanes) {
  if (lanes == 1) return cs_print(c, "%s{{(%s)%s}}", cs_print(c, "Lanes<%s, 1>", msl_scalars[d]), msl_scalars[d], x);
  return cs_bare(c, x);
}

// n lanes of d from the bits of a vector, or scalar, of another type
static const char *msl_rebuilt(cstyle *c, const char *x, enum dtype from, int from_lanes, enum dtype d, int lanes) {
  c->helpers |= MSL_VECTORS;
  return cs_print(c, lanes == 1 ? "lanes_bits<%s, %d>(%s).v[0]" : "lanes_bits<%s, %d>(%s)", msl_scalars[d], lanes,
                  msl_exactly(c, x, from, from_lanes));
}

static const char *msl_bitcast(cstyle *c, const uop *u, const char *x) {
  return msl_rebuilt(c, x, (enum dtype)u->src[0]->dt, u->src[0]->lanes, (enum dtype)u->dt, u->lanes);
}

// ---- doubles --------------------------------------------------------------------------------------------------------

static const struct soft_doubles_words msl_double_words = {"inline", "as_type<uint>", "as_type<float>"};

static const char *msl_doubles(cstyle *c, enum op op, enum dtype from, enum dtype to, const char *const *x) {
  c->helpers |= MSL_DOUBLES;
  return soft_doubles_call(c, op, from, to, x);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static bool is_threadgroup(const uop *m) { return m->op == OP_LOCAL && m->memory != MEMORY_TILE; }
static const char *msl_space(const uop *m) {
  return m->op == OP_PARAM ? "device" : is_threadgroup(m) ? "threadgroup" : "thread";
}
static enum dtype msl_unit(const uop *m) { return cs_memory_dtype((enum dtype)m->dt); }

// Bytes at the address that form an aligned word: 1, 2 or 4, at least the size of an element.
static int known_word(const uop *index, map *memo) {
  const uop *m = render_memory(index);
  int size = dtype_size(msl_unit(m));
  if (size >= 4 || m->op != OP_PARAM || index->lanes > 1) return size;
  return (int)min_i64(4, (int64_t)size << min_i64(render_zeros(index->src[1], memo), 2));
}

// `lanes` elements of memory type d from address `at`; words: bytes that may be read as one word
static const char *msl_read(cstyle *c, const uop *m, const char *at, enum dtype d, int lanes, int words) {
  enum dtype unit = msl_unit(m);
  int size = dtype_size(unit), bytes = lanes * dtype_size(d);
  if (bytes < size) {                                   // part of an element
    const char *p = cs_print(c, "(%s const %s *)(%s)", msl_space(m), msl_scalars[d], at);
    if (lanes == 1) return cs_print(c, "(*%s)", p);
    return cs_print(c, "lanes_load<%s, %d>(%s)", msl_scalars[d], lanes, p);
  }
  while (words > size && (bytes % words || words > dtype_size(d) * lanes)) words /= 2;
  if (words > size && m->op == OP_PARAM) {
    unit = cs_int_of_size(words, true);
    at = cs_print(c, "(device const %s *)(%s)", msl_scalars[unit], at);
    size = words;
  }
  int units = bytes / size;
  if (unit == d && lanes == 1) return cs_print(c, "(*(%s))", at);
  c->helpers |= MSL_VECTORS;
  const char *x = cs_print(c, "lanes_load<%s, %d>(%s)", msl_scalars[unit], units, at);
  return unit == d ? x : msl_rebuilt(c, x, unit, units > 1 ? units : 2 /* it is Lanes */, d, lanes);
}

static void msl_write(cstyle *c, const uop *m, const char *at, enum dtype d, int lanes, const char *v) {
  enum dtype unit = msl_unit(m);
  int size = dtype_size(unit), bytes = lanes * dtype_size(d);
  if (dtype_size(d) < size) {
    const char *p = cs_print(c, "(%s %s *)(%s)", msl_space(m), msl_scalars[d], at);
    if (lanes == 1) cs_line(c, "*%s = %s;", p, cs_bare(c, v));
    else cs_line(c, "lanes_store(%s, %s);", p, cs_bare(c, v));
    return;
  }
  if (unit != d) v = msl_rebuilt(c, v, d, lanes, unit, bytes / size);
  if (bytes == size) cs_line(c, "*(%s) = %s;", at, cs_bare(c, v));
  else cs_line(c, "lanes_store(%s, %s);", at, cs_bare(c, v));
}

static const char *msl_address(cstyle *c, const uop *index, int lane) {
  const char *b = cs_buffer(c, render_memory(index)), *i = cs_text(c, index);
  return cs_print(c, "%s + %s", b, index->lanes == 1 ? i : msl_extract(c, i, lane));
}

static const char *msl_load(cstyle *c, const uop *u) {
  const uop *index = u->src[0], *m = render_memory(index);
  enum dtype d = (enum dtype)u->dt, in = cs_memory_dtype(d);
  const char *x;
  if (index->lanes > 1) {
    const char *each[MSL_LANES];
    for (int i = 0; i < u->lanes; i++) each[i] = msl_read(c, m, msl_address(c, index, i), in, 1, 0);
    x = msl_build(c, in, u->lanes, each);
  } else if (u->lanes == 1 && msl_unit(m) == in)
    x = cs_print(c, "%s[%s]", cs_buffer(c, m), cs_bare(c, cs_text(c, index)));
  else {
    map zeros = {0};
    x = msl_read(c, m, msl_address(c, index, 0), in, u->lanes, known_word(index, &zeros));
    map_free(&zeros);
  }
  if (d != DT_BOOL) return x;
  if (u->lanes == 1) return cs_print(c, "(%s != 0)", x);
  return cs_print(c, "(%s != %s)", x, cs_splat(c, in, u->lanes, "0"));
}

static void msl_store(cstyle *c, const uop *u) {
  const uop *index = u->src[0], *m = render_memory(index), *what = u->src[1];
  enum dtype d = (enum dtype)what->dt, in = cs_memory_dtype(d);
  const char *v = cs_text(c, what);
  if (d == DT_BOOL)
    v = what->lanes == 1 ? cs_print(c, "((uchar)%s)", v)
                         : msl_convert(c, cs_print(c, "-%s", v), DT_I8, DT_U8, what->lanes);
  if (index->lanes > 1) {
    v = cs_named(c, in, what->lanes, v);
    for (int i = 0; i < what->lanes; i++) msl_write(c, m, msl_address(c, index, i), in, 1, msl_extract(c, v, i));
  } else if (what->lanes == 1 && msl_unit(m) == in)
    cs_line(c, "%s[%s] = %s;", cs_buffer(c, m), cs_bare(c, cs_text(c, index)), cs_bare(c, v));
  else msl_write(c, m, msl_address(c, index, 0), in, what->lanes, v);
}

// ---- threadgroups ---------------------------------------------------------------------------------------------------

static const char *msl_swap(cstyle *c, const uop *u, const char *x) {
  if (u->lanes != 1 || dtype_size((enum dtype)u->dt) != 4) return NULL;
  return cs_print(c, "simd_shuffle_xor((%s)%s, (ushort)%d)", msl_scalars[u->dt], x, 1 << u->a);
}

static int msl_other(cstyle *c, const uop *u) {
  if (u->op == OP_BARRIER) {
    if (u->b & BARRIER_PARAMS) cs_line(c, "threadgroup_barrier(mem_flags::mem_device);");
    if (render_needs_barrier(c->p, c->pos)) cs_line(c, "threadgroup_barrier(mem_flags::mem_threadgroup);");
    return 1;
  }
  if (u->op != OP_SPECIAL || u->s_len != 2 || (u->s[0] != 'g' && u->s[0] != 'l') || u->s[1] < '0' || u->s[1] > '2')
    return 0;
  const char *whose = u->s[0] == 'g' ? "group" : "item", *name = cs_print(c, "%s%c", whose, u->s[1]);
  cs_line(c, "%s %s = (%s)%s.%c;", msl_scalars[u->dt], name, msl_scalars[u->dt], whose, 'x' + u->s[1] - '0');
  map_put(&c->text, u, (void *)(uintptr_t)name);
  return 1;
}

static const dialect metal_dialect = {
  .name = "Metal",
  .long_suffix = "l",
  .max_lanes = MSL_LANES,
  .scalars = {[DT_BOOL] = "bool",
              [DT_I8] = "char",
              [DT_U8] = "uchar",
              [DT_I16] = "short",
              [DT_U16] = "ushort",
              [DT_I32] = "int",
              [DT_U32] = "uint",
              [DT_I64] = "long",
              [DT_U64] = "ulong",
              [DT_IDX] = "long",
              [DT_F16] = "ushort",
              [DT_F32] = "float",
              [DT_F64] = "ulong"},
  .type = msl_type,
  .reinterpret = msl_reinterpret,
  .convert = msl_convert,
  .select = msl_select,
  .mask = msl_mask,
  .build = msl_build,
  .extract = msl_extract,
  .shuffle = msl_shuffle,
  .math = msl_math,
  .halves = msl_halves,
  .bitcast = msl_bitcast,
  .swap = msl_swap,
  .doubles = msl_doubles,
  .load = msl_load,
  .store = msl_store,
  .other = msl_other,
};

// ---- the file -------------------------------------------------------------------------------------------------------

static bool has_tiles(const program *p) {
  for (size_t i = 0; i < p->n; i++)
    if (p->at[i]->op == OP_RANGE && p->at[i]->b == AXIS_GLOBAL) return true;
  return false;
}

static int check_arguments(const program *p, error *err) {
  int n = p->n_bufs + (p->n_vars > 0 || has_tiles(p));
  if (n > METAL_BUFFERS)
    return error_set(err, "%s: Metal takes at most %d buffers in a kernel, variables included, and this one has %d",
                     p->name, METAL_BUFFERS, n);
  return 0;
}

static void msl_write_head(cstyle *c, str *out) {
  const program *p = c->p;
  const uop *params[METAL_BUFFERS] = {0};
  for (size_t i = 0; i < p->n; i++)
    if (p->at[i]->op == OP_PARAM && p->at[i]->a >= 0 && p->at[i]->a < p->n_bufs) params[p->at[i]->a] = p->at[i];
  str_add(out, head);
  if (c->helpers & MSL_VECTORS) str_add(out, vectors);
  if (c->helpers & MSL_HALVES) str_add(out, halves);
  if (c->helpers & MSL_DOUBLES) soft_doubles_write(out, &msl_double_words);
  str_addf(out, "kernel void %s(\n", p->name);
  for (int a = 0; a < p->n_bufs; a++) {
    const uop *u = params[a];
    str_addf(out, "    device %s%s *b%d [[buffer(%d)]],\n", u && render_is_written(p, u) ? "" : "const ",
             u ? msl_scalars[msl_unit(u)] : "uchar", a, a);
  }
  if (p->n_vars || has_tiles(p)) str_addf(out, "    constant long *vars [[buffer(%d)]],\n", p->n_bufs);
  str_add(out,
          "    uint3 group [[threadgroup_position_in_grid]],\n    uint3 item [[thread_position_in_threadgroup]]) {\n");
  if (has_tiles(p)) str_addf(out, "  long lo = vars[%d], hi = vars[%d];\n", p->n_vars, p->n_vars + 1);
}

static void msl_declarations(cstyle *c, str *out) {
  map seen = {0};
  for (size_t i = 0; i < c->p->n; i++) {
    const uop *u = c->p->at[i];
    if ((u->op != OP_LOCAL && u->op != OP_VAR) || map_has(&seen, u)) continue;
    map_put(&seen, u, c);
    if (u->op == OP_VAR)
      str_addf(out, "  %s %s = (%s)vars[%d];\n", msl_scalars[u->dt], cs_var(c, u), msl_scalars[u->dt],
               render_var(c->p, u));
    else
      str_addf(out, "  %s%s %s[%lld];\n", is_threadgroup(u) ? "threadgroup " : "", msl_scalars[msl_unit(u)],
               cs_buffer(c, u), (long long)u->b);
  }
  map_free(&seen);
}

int render_metal(const program *p, const render_options *opt, str *out, error *err) {
  cstyle c;
  (void)opt;
  if (check_arguments(p, err)) return -1;
  int r = cs_program(&c, p, &metal_dialect, 1, err);
  if (!r) {
    msl_write_head(&c, out);
    msl_declarations(&c, out);
    str_addn(out, str_c(&c.body), c.body.n);
    str_add(out, "}\n");
  }
  cs_free(&c);
  return r;
}
