// The C renderer: a program as C17 with GCC's vector extensions, for reading, and for gcc (12 or later) or clang (14 or
// later) as a check on the LLVM renderer.
//
// Compile with -O2 -ffp-contract=off -fno-math-errno and link with -lm to get exactly the program's results. Vectors
// have any power of two of lanes; the compiler splits them. Operations that the language lacks for vectors (square
// root, fused multiply-add, half precision) are loops over the lanes.
#include "render/cstyle.h"
#include <string.h>
#include "base/attempt.h"

enum helper { HELP_F16_TO_F32 = 1, HELP_F32_TO_F16 = 2, HELP_BITS = 4, HELP_SPLAT = 8 };

static const char *element(enum dtype d) {              // short names for vector types
  static const char *const names[DT_COUNT] = {
    [DT_BOOL] = "bool", [DT_I8] = "i8",    [DT_U8] = "u8",   [DT_I16] = "i16", [DT_U16] = "u16",
    [DT_I32] = "i32",   [DT_U32] = "u32",  [DT_I64] = "i64", [DT_U64] = "u64", [DT_IDX] = "i64",
    [DT_F16] = "u16",   [DT_BF16] = "u16", [DT_F32] = "f32", [DT_F64] = "f64"};
  return names[d];
}

static const char *const scalars[DT_COUNT] = {
  [DT_BOOL] = "bool",    [DT_I8] = "int8_t",    [DT_U8] = "uint8_t",  [DT_I16] = "int16_t",  [DT_U16] = "uint16_t",
  [DT_I32] = "int32_t",  [DT_U32] = "uint32_t", [DT_I64] = "int64_t", [DT_U64] = "uint64_t", [DT_IDX] = "int64_t",
  [DT_F16] = "uint16_t", [DT_F32] = "float",    [DT_F64] = "double"};

static const char *c_type(cstyle *c, enum dtype d, int lanes) {
  if (lanes == 1) return scalars[d];
  if (d == DT_IDX) d = DT_I64;
  if (d == DT_F16 || d == DT_BF16) d = DT_U16;
  map_set(&c->types, (uint64_t)d | (uint64_t)lanes << 8, c);
  return cs_print(c, "%sx%d", element(d), lanes);
}

static const char *c_reinterpret(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes) {
  bool ff = dtype_is_float(from), tf = dtype_is_float(to);
  if (lanes > 1 || ff == tf) return cs_print(c, "((%s)%s)", c_type(c, to, lanes), x);
  c->helpers |= HELP_BITS;
  return cs_print(c, "%s_of_bits(%s)", element(to), cs_bare(c, x));
}

static const char *c_convert(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes) {
  (void)from;
  if (lanes == 1) return cs_print(c, "((%s)%s)", scalars[to], x);
  return cs_print(c, "__builtin_convertvector(%s, %s)", cs_bare(c, x), c_type(c, to, lanes));
}

static const char *c_mask(cstyle *c, const char *x, int from_bytes, int to_bytes, int lanes) {
  if (from_bytes == to_bytes) return x;
  return cs_print(c, "__builtin_convertvector(%s, %s)", cs_bare(c, x),
                  c_type(c, to_bytes == 1 ? DT_BOOL : cs_int_of_size(to_bytes, false), lanes));
}

static const char *c_select(cstyle *c, const char *m, const char *x, const char *y, enum dtype d, int lanes) {
  enum dtype bits = d == DT_BOOL ? DT_BOOL : cs_int_of_size(dtype_size(d), false);
  m = cs_named(c, bits, lanes, m);
  if (d == bits) return cs_print(c, "((%s & %s) | (%s & ~%s))", x, m, y, m);
  const char *t = c_type(c, bits, lanes);
  return cs_print(c, "((%s)(((%s)%s & %s) | ((%s)%s & ~%s)))", c_type(c, d, lanes), t, x, m, t, y, m);
}

static const char *c_build(cstyle *c, enum dtype d, int lanes, const char *const *x) {
  bool same = true;
  for (int i = 1; i < lanes; i++) same &= !strcmp(x[i], x[0]);
  const char *t = c_type(c, d, lanes);
  if (same) {
    c->helpers |= HELP_SPLAT;
    return cs_print(c, "(%s){X%d(%s)}", t, lanes, cs_bare(c, x[0]));
  }
  str s = {0};
  for (int i = 0; i < lanes; i++) str_addf(&s, "%s%s", i ? ", " : "", cs_bare(c, x[i]));
  const char *r = cs_print(c, "(%s){%s}", t, str_c(&s));
  str_free(&s);
  return r;
}

static const char *c_extract(cstyle *c, const char *x, int lane) { return cs_print(c, "%s[%d]", x, lane); }

static const char *c_shuffle(cstyle *c, const uop *u, const char *x, const char *y) {
  if (u->lanes == 1) {
    int l = shuffle_lane(u, 0), n = u->src[0]->lanes;
    return cs_print(c, u->dt == DT_BOOL ? "(%s[%d] != 0)" : "%s[%d]", l < n ? x : y, l % n);
  }
  str s = {0};
  for (int i = 0; i < u->lanes; i++) str_addf(&s, ", %d", shuffle_lane(u, i));
  const char *r = cs_print(c, "__builtin_shufflevector(%s, %s%s)", cs_bare(c, x), cs_bare(c, y ? y : x), str_c(&s));
  str_free(&s);
  return r;
}

static const char *c_math(cstyle *c, const uop *u, const char *const *x) {
  const char *f = u->op == OP_SQRT    ? "sqrt"
                  : u->op == OP_TRUNC ? "trunc"
                  : u->op == OP_FLOOR ? "floor"
                                      : "fma",
             *s = u->dt == DT_F32 ? "f" : "";
  if (u->lanes == 1) {
    if (u->op == OP_FMA)
      return cs_print(c, "__builtin_fma%s(%s, %s, %s)", s, cs_bare(c, x[0]), cs_bare(c, x[1]), cs_bare(c, x[2]));
    return cs_print(c, "__builtin_%s%s(%s)", f, s, cs_bare(c, x[0]));
  }
  const char *v = cs_name(c, "v"), *a[3] = {0};
  for (size_t i = 0; i < u->nsrc; i++) a[i] = cs_named(c, (enum dtype)u->dt, u->lanes, x[i]);
  cs_line(c, "%s %s = {0};", c_type(c, (enum dtype)u->dt, u->lanes), v);
  if (u->op == OP_FMA)
    cs_line(c, "for (int l = 0; l < %d; l++) %s[l] = __builtin_fma%s(%s[l], %s[l], %s[l]);", u->lanes, v, s, a[0], a[1],
            a[2]);
  else cs_line(c, "for (int l = 0; l < %d; l++) %s[l] = __builtin_%s%s(%s[l]);", u->lanes, v, f, s, a[0]);
  return v;
}

static const char *c_halves(cstyle *c, const char *x, bool to_f32, int lanes) {
  const char *f = to_f32 ? "f32_of_f16" : "f16_of_f32";
  c->helpers |= HELP_BITS | (to_f32 ? HELP_F16_TO_F32 : HELP_F32_TO_F16);
  if (lanes == 1) return cs_print(c, "%s(%s)", f, cs_bare(c, x));
  const char *a = cs_named(c, to_f32 ? DT_F16 : DT_F32, lanes, x), *v = cs_name(c, "v");
  cs_line(c, "%s %s = {0};", c_type(c, to_f32 ? DT_F32 : DT_F16, lanes), v);
  cs_line(c, "for (int l = 0; l < %d; l++) %s[l] = %s(%s[l]);", lanes, v, f, a);
  return v;
}

// x if it is a variable, otherwise a new variable with its value
static const char *with_address(cstyle *c, enum dtype d, int lanes, const char *x) {
  if (cs_is_name(x)) return x;
  const char *name = cs_name(c, "t");
  cs_line(c, "%s %s = %s;", c_type(c, d, lanes), name, cs_bare(c, x));
  return name;
}

static const char *c_bitcast(cstyle *c, const uop *u, const char *x) {
  const uop *s = u->src[0];
  if (s->lanes * dtype_size((enum dtype)s->dt) != u->lanes * dtype_size((enum dtype)u->dt)) return NULL;
  const char *a = with_address(c, (enum dtype)s->dt, s->lanes, x), *v = cs_name(c, "v");
  cs_line(c, "%s %s;", c_type(c, (enum dtype)u->dt, u->lanes), v);
  cs_line(c, "__builtin_memcpy(&%s, &%s, sizeof %s);", v, a, v);
  return v;
}

static const char *c_dot(cstyle *c, const uop *u) {
  const uop *a = u->src[1];
  const char *x = cs_named(c, (enum dtype)a->dt, a->lanes, cs_text(c, a)), *sum = cs_name(c, "q");
  const char *y = cs_named(c, DT_U32, u->lanes, cs_text(c, u->src[2])), *lane = u->lanes > 1 ? "[l]" : "";
  cs_line(c, "%s %s = %s;", c_type(c, (enum dtype)u->dt, u->lanes), sum, cs_bare(c, cs_text(c, u->src[0])));
  cs_line(c, "for (int l = 0; l < %d; l++)", u->lanes);
  if (u->dt == DT_I32)
    cs_line(c,
            "  for (int j = 0; j < 4; j++) %s%s = (int32_t)((uint32_t)%s%s + (uint32_t)(%s[4 * l + j] * (int8_t)(%s%s "
            ">> 8 * j)));",
            sum, lane, sum, lane, x, y, lane);
  else {
    cs_line(c, "  for (int j = 0; j < 2; j++) {");
    cs_line(c, "    uint32_t m = (uint32_t)%s[2 * l + j] << 16, n = %s%s >> 16 * j << 16;", x, y, lane);
    cs_line(c, "    float f, g;");
    cs_line(c, "    __builtin_memcpy(&f, &m, sizeof f);");
    cs_line(c, "    __builtin_memcpy(&g, &n, sizeof g);");
    cs_line(c, "    %s%s += f * g;", sum, lane);
    cs_line(c, "  }");
  }
  return sum;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static bool same_memory(enum dtype value, const uop *memory) {
  return cs_memory_dtype(value) == cs_memory_dtype((enum dtype)memory->dt);
}

// Converts lanes from their type in memory to the renderer's type for values.
static const char *from_memory(cstyle *c, enum dtype d, int lanes, const char *x) {
  if (d != DT_BOOL) return x;
  return lanes == 1 ? cs_print(c, "(%s != 0)", x) : cs_print(c, "(%s != 0)", x);     // compares of bytes give 0 and -1
}

static const char *c_load(cstyle *c, const uop *u) {
  const uop *index = u->src[0], *m = render_memory(index);
  enum dtype d = (enum dtype)u->dt, in = cs_memory_dtype(d);
  const char *b = cs_buffer(c, m), *i = cs_bare(c, cs_text(c, index)), *x;
  if (index->lanes > 1) {
    const char *at = cs_named(c, (enum dtype)index->src[1]->dt, index->lanes, cs_text(c, index));
    x = cs_name(c, "x");
    cs_line(c, "%s %s = {0};", c_type(c, in, u->lanes), x);
    if (same_memory(d, m)) cs_line(c, "for (int l = 0; l < %d; l++) %s[l] = %s[%s[l]];", u->lanes, x, b, at);
    else
      cs_line(c, "for (int l = 0; l < %d; l++) { %s e; __builtin_memcpy(&e, %s + %s[l], sizeof e); %s[l] = e; }",
              u->lanes, scalars[in], b, at, x);
  } else if (u->lanes == 1 && same_memory(d, m)) x = cs_print(c, "%s[%s]", b, i);
  else {
    x = cs_name(c, "x");
    cs_line(c, "%s %s;", c_type(c, in, u->lanes), x);
    cs_line(c, "__builtin_memcpy(&%s, %s + %s, sizeof %s);", x, b, cs_text(c, index), x);
  }
  return from_memory(c, d, u->lanes, x);
}

static void c_store(cstyle *c, const uop *u) {
  const uop *index = u->src[0], *m = render_memory(index), *what = u->src[1];
  enum dtype d = (enum dtype)what->dt, in = cs_memory_dtype(d);
  const char *b = cs_buffer(c, m), *i = cs_text(c, index), *v = cs_text(c, what);
  if (what->lanes == 1 && same_memory(d, m)) { cs_line(c, "%s[%s] = %s;", b, cs_bare(c, i), cs_bare(c, v)); return; }
  if (d == DT_BOOL && what->lanes > 1) v = cs_print(c, "((%s)(%s & 1))", c_type(c, in, what->lanes), v);
  const char *name = with_address(c, in, what->lanes, v);
  if (index->lanes == 1) { cs_line(c, "__builtin_memcpy(%s + %s, &%s, sizeof %s);", b, i, name, name); return; }
  const char *at = cs_named(c, (enum dtype)index->src[1]->dt, index->lanes, i);
  if (same_memory(d, m)) cs_line(c, "for (int l = 0; l < %d; l++) %s[%s[l]] = %s[l];", what->lanes, b, at, name);
  else
    cs_line(c, "for (int l = 0; l < %d; l++) { %s e = %s[l]; __builtin_memcpy(%s + %s[l], &e, sizeof e); }",
            what->lanes, scalars[in], name, b, at);
}

static void c_ask_at_distance(cstyle *c, const uop *u) {
  static const int locality[PREFETCH_HINTS] = {
    [PREFETCH_T0] = 3, [PREFETCH_T1] = 2, [PREFETCH_T2] = 1, [PREFETCH_NTA] = 0};
  const uop *index = u->src[0];
  cs_line(c, "__builtin_prefetch((const char *)(%s + %s) + %lld, 0, %d);", cs_buffer(c, render_memory(index)),
          cs_text(c, index), (long long)u->a, locality[u->b]);
}

static const dialect c_dialect = {
  .name = "C",
  .long_suffix = "ll",
  .max_lanes = 128,
  .names_operands = true,
  .scalars = {[DT_BOOL] = "bool",
              [DT_I8] = "int8_t",
              [DT_U8] = "uint8_t",
              [DT_I16] = "int16_t",
              [DT_U16] = "uint16_t",
              [DT_I32] = "int32_t",
              [DT_U32] = "uint32_t",
              [DT_I64] = "int64_t",
              [DT_U64] = "uint64_t",
              [DT_IDX] = "int64_t",
              [DT_F16] = "uint16_t",
              [DT_F32] = "float",
              [DT_F64] = "double"},
  .type = c_type,
  .reinterpret = c_reinterpret,
  .convert = c_convert,
  .select = c_select,
  .mask = c_mask,
  .build = c_build,
  .extract = c_extract,
  .shuffle = c_shuffle,
  .math = c_math,
  .halves = c_halves,
  .bitcast = c_bitcast,
  .dot = c_dot,
  .load = c_load,
  .store = c_store,
  .ask_at_distance = c_ask_at_distance,
};

// ---- the file -------------------------------------------------------------------------------------------------------

static void write_types(cstyle *c, str *out) {
  for (int d = 0; d < DT_COUNT; d++)
    for (int lanes = 2; lanes <= c->d->max_lanes; lanes *= 2)
      if (map_get(&c->types, (uint64_t)d | (uint64_t)lanes << 8, NULL)) {
        int size = dtype_size((enum dtype)d);
        str_addf(out, "typedef %s %sx%d __attribute__((vector_size(%d)));\n", d == DT_BOOL ? "int8_t" : scalars[d],
                 element((enum dtype)d), lanes, lanes * size);
      }
  if (!(c->helpers & HELP_SPLAT)) return;
  str_add(out, "#define X2(x) x, x\n");
  for (int lanes = 4; lanes <= c->d->max_lanes; lanes *= 2)
    str_addf(out, "#define X%d(x) X%d(x), X%d(x)\n", lanes, lanes / 2, lanes / 2);
}

static void write_helpers(const cstyle *c, str *out) {
  static const char bits[] =
    "HELPER float f32_of_bits(uint32_t x) { float v; __builtin_memcpy(&v, &x, 4); return v; }\n"
    "HELPER double f64_of_bits(uint64_t x) { double v; __builtin_memcpy(&v, &x, 8); return v; }\n"
    "HELPER uint32_t u32_of_bits(float x) { uint32_t v; __builtin_memcpy(&v, &x, 4); return v; }\n"
    "HELPER int32_t i32_of_bits(float x) { int32_t v; __builtin_memcpy(&v, &x, 4); return v; }\n"
    "HELPER uint64_t u64_of_bits(double x) { uint64_t v; __builtin_memcpy(&v, &x, 8); return v; }\n"
    "HELPER int64_t i64_of_bits(double x) { int64_t v; __builtin_memcpy(&v, &x, 8); return v; }\n";
  static const char to_f32[] = "// half to single: exact\n"
                               "HELPER float f32_of_f16(uint16_t h) {\n"
                               "  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;\n"
                               "  if (rest >= 0x7c00) return f32_of_bits(sign | 0x7f800000u | (rest & 0x3ff) << 13 | "
                               "(rest > 0x7c00 ? 0x400000u : 0));\n"
                               "  if (rest >= 0x400) return f32_of_bits(sign | ((rest << 13) + 0x38000000u));\n"
                               "  float v = (float)rest * 0x1p-24f;\n"
                               "  return sign ? -v : v;\n"
                               "}\n";
  static const char to_f16[] =
    "// single to half: to nearest, ties to even\n"
    "HELPER uint16_t f16_of_f32(float x) {\n"
    "  uint32_t b = u32_of_bits(x), sign = b >> 16 & 0x8000, rest = b & 0x7fffffff;\n"
    "  if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));\n"
    "  if (rest >= 0x47800000) return (uint16_t)(sign | 0x7c00);\n"
    "  if (rest < 0x38800000) {\n"
    "    float magic = f32_of_bits(rest) + 0.5f;\n"
    "    return (uint16_t)(sign | (u32_of_bits(magic) - 0x3f000000u));\n"
    "  }\n"
    "  return (uint16_t)(sign | (rest - 0x38000000u + 0xfff + (rest >> 13 & 1)) >> 13);\n"
    "}\n";
  if (!(c->helpers & HELP_BITS)) return;
  str_add(out, "#define HELPER static inline __attribute__((unused))\n");
  str_add(out, bits);
  if (c->helpers & HELP_F16_TO_F32) str_add(out, to_f32);
  if (c->helpers & HELP_F32_TO_F16) str_add(out, to_f16);
}

static void write_arguments(cstyle *c, str *out) {
  const program *p = c->p;
  map seen = {0};
  bool any_buf = false, any_var = false, tiles = false;
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    tiles |= u->op == OP_RANGE && u->b == AXIS_GLOBAL;
    if ((u->op != OP_PARAM && u->op != OP_VAR && u->op != OP_LOCAL) || !map_ptr(&c->uses, u) || map_has(&seen, u))
      continue;
    map_put(&seen, u, c);
    if (u->op == OP_PARAM) {
      const char *t = scalars[cs_memory_dtype((enum dtype)u->dt)], *k = render_is_written(p, u) ? "" : "const ";
      str_addf(out, "  %s%s *restrict b%lld = (%s%s *)bufs[%lld];   // %lld elements\n", k, t, (long long)u->a, k, t,
               (long long)u->a, (long long)u->b);
      any_buf = true;
    } else if (u->op == OP_LOCAL) {
      str_addf(out, "  %s l%lld[%lld];\n", scalars[cs_memory_dtype((enum dtype)u->dt)], (long long)u->a,
               (long long)u->b);
    } else {
      str_addf(out, "  %s %s = (%s)vars[%d]; (void)%s;\n", scalars[u->dt], cs_var(c, u), scalars[u->dt],
               render_var(p, u), cs_var(c, u));
      any_var = true;
    }
  }
  map_free(&seen);
  if (!any_buf) str_add(out, "  (void)bufs;\n");
  if (!any_var) str_add(out, "  (void)vars;\n");
  if (!tiles) str_add(out, "  (void)lo;\n  (void)hi;\n");
}

// Merges the vector types and helpers that several kernels need.
static void add_needs(const cstyle *c, cstyle *all) {
  all->helpers |= c->helpers;
  all->d = c->d;
  for (uint64_t d = 0; d < DT_COUNT; d++)
    for (uint64_t lanes = 2; lanes <= (uint64_t)c->d->max_lanes; lanes *= 2)
      if (map_get(&c->types, d | lanes << 8, NULL)) map_set(&all->types, d | lanes << 8, all);
}

static int check_vars(const program *p, error *err) {
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    if (u->op == OP_VAR && render_var(p, u) < 0)
      return error_set(err, "%s: the variable %.*s is no argument", p->name, (int)u->s_len, u->s);
  }
  return 0;
}

static int add_function(const program *p, const char *name, cstyle *all, error *err) {
  cstyle c = {0};
  int r = check_vars(p, err);
  if (r) return r;
  r = cs_program(&c, p, &c_dialect, 1, err);
  if (!r) {
    add_needs(&c, all);
    str_addf(&all->body, "%s(unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi) {\n", name);
    write_arguments(&c, &all->body);
    str_addn(&all->body, str_c(&c.body), c.body.n);
    str_add(&all->body, "}\n");
  }
  cs_free(&c);
  return r;
}

static void free_needs(cstyle *all) {
  str_free(&all->body);
  map_free(&all->types);
}

int render_c(const program *p, const render_options *opt, str *out, error *err) {
  (void)opt;
  cstyle all = {0};
  str name = {0};
  str_addf(&name, "void %s", p->name);
  int r = add_function(p, str_c(&name), &all, err);
  if (!r) {
    str_add(out, "// Compile with -O2 -ffp-contract=off -fno-math-errno, link with -lm.\n#include <stdbool.h>\n"
                 "#include <stdint.h>\n\n");
    write_types(&all, out);
    write_helpers(&all, out);
    str_addf(out, "\n%s(unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi);\n", str_c(&name));
    str_addn(out, all.body.at, all.body.n);
  }
  str_free(&name);
  free_needs(&all);
  return r;
}

typedef struct unit { const program *const *p; size_t n; str *out; error *err; int r; } unit;

static void make_unit(void *ctx) {
  unit *u = ctx;
  cstyle all = {.d = &c_dialect};
  for (size_t i = 0; i < u->n && !u->r; i++) {
    str name = {0};
    str_addf(&name, "\nKERNEL void k%zu_%s", i, u->p[i]->name);
    u->r = add_function(u->p[i], str_c(&name), &all, u->err);
    str_free(&name);
  }
  if (!u->r) {
    write_types(&all, u->out);
    write_helpers(&all, u->out);
    str_addn(u->out, str_c(&all.body), all.body.n);
  }
  free_needs(&all);
}

int render_c_unit(const program *const *p, size_t n, str *out, error *err) {
  unit u = {.p = p, .n = n, .out = out, .err = err};
  return attempt(ATTEMPT_OWNS, make_unit, &u, err) ? -1 : u.r;
}
