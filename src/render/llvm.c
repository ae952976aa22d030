// The LLVM renderer: writes a program as LLVM IR text (opaque pointers, LLVM 19 and later).
//
// The text is in SSA form from the start: an ACC becomes phis at loop heads and joins, not a stack slot, so no pass has
// to promote it. A loop's phis name values made in its body, so each open loop or IF collects its text in its own
// buffer (a frame); closing it writes head, body and tail to the enclosing frame.
//
// Metadata tells the optimiser about memory: each PARAM is its own alias scope (distinct PARAMs do not overlap if one
// of them is written), and loads from PARAMs that the program does not write are invariant. There are no floating-point
// flags: the text computes exactly what the program says. No operation becomes a function call.
//
// Differences between kinds of machines are rows of llvm_machine.h: a processor gets an array of pointers and a range
// of tiles; NVPTX (NVIDIA GPUs) gets separate arguments and is launched over work-groups.
#include "render/render.h"
#include "render/choice.h"
#include "render/llvm_machine.h"
#include "render/llvm_types.h"
#include "render/recipe.h"
#include "graph/half.h"
#include <stdlib.h>
#include <string.h>

// An open loop or IF; the bottom frame is the function.
typedef struct frame {
  str text;                        // text inside so far
  const uop *open;                 // RANGE or IF
  int number;                      // number of its labels
  const char *before;              // label of the preceding block
  const char *source;  // value of the condition or the loop end at this place (a variable may be assigned inside)
  const uop **accs;                // variables declared outside and assigned inside
  const char **outer, **phi;       // their values before, and (loops) the names of their phis
  size_t n_accs;
} frame;

// A base address that many accesses share: element `at` of PARAM `memory`; the accesses add constants.
typedef struct anchor { const uop *memory, *at; int uses; const char *name; } anchor;

typedef struct llvm {
  const machine *m;
  const program *p;
  const render_options *opt;
  error *err;
  arena *mem;
  size_t *match;
  map names;                       // uop -> text of its value; for ACC, its value at this place
  map chained, places, sums;       // DOTs: see dot_sum
  map zeros;                       // see render_zeros
  smap intrinsics;                 // declaration -> itself
  str declarations, globals;
  VEC(frame) frames;
  VEC(anchor) anchors;
  const char *block;               // label of the current block
  int next_value, next_label;
  uint64_t written;                // bit a: the program stores to PARAM a (the last bit: any PARAM from 63 up)
} llvm;

// ---- types, constants, names ----------------------------------------------------------------------------------------

static const char *stored_as(const llvm *c, const uop *u) { return memory_type(shown(c->opt, (enum dtype)u->dt)); }
static const char *type_of(llvm *c, enum dtype d, int lanes) {
  return lanes == 1 ? scalar_type(shown(c->opt, d))
                    : arena_printf(c->mem, "<%d x %s>", lanes, scalar_type(shown(c->opt, d)));
}
static const char *type(llvm *c, const uop *u) { return type_of(c, (enum dtype)u->dt, u->lanes); }

static const char *repeated(llvm *c, enum dtype d, const char *text) {
  return !strcmp(text, "0") || !strcmp(text, "0x0000000000000000")
           ? "zeroinitializer"
           : arena_printf(c->mem, "splat (%s %s)", scalar_type(shown(c->opt, d)), text);
}

// The text of a source's value, without its type.
static const char *value(llvm *c, const uop *u) {
  const char *name = map_ptr(&c->names, u);
  if (name) return name;
  if (u->op == OP_CONST) name = constant_text(c->mem, u, shown(c->opt, DT_F16) != DT_F16);
  else if (u->op == OP_SPLAT && u->src[0]->op == OP_CONST)
    name = repeated(c, (enum dtype)u->dt, constant_text(c->mem, u->src[0], shown(c->opt, DT_F16) != DT_F16));
  else if (u->op == OP_LANE) name = lane_numbers(c->mem, (enum dtype)u->dt, u->lanes);
  else die("%s: %s.%s is used too early", c->p->name, op_name((enum op)u->op), dtype_name((enum dtype)u->dt));
  map_put(&c->names, u, (void *)(uintptr_t)name);
  return name;
}

static str *text(llvm *c) { return &c->frames.at[c->frames.n - 1].text; }
static const char *fresh(llvm *c) { return arena_printf(c->mem, "%%v%d", c->next_value++); }
static void give_name(llvm *c, const uop *u, const char *name) { map_put(&c->names, u, (void *)(uintptr_t)name); }

// Writes one instruction; returns the name of its result.
PRINTF_LIKE(2, 3) static const char *instr(llvm *c, const char *fmt, ...) {
  const char *name = fresh(c);
  va_list ap;
  va_start(ap, fmt);
  str_addf(text(c), "  %s = ", name);
  str_vaddf(text(c), fmt, ap);
  str_addc(text(c), '\n');
  va_end(ap);
  return name;
}

static void label(llvm *c, const char *name) {
  str_addf(text(c), "%s:\n", name);
  c->block = name;
}

// ---- elementwise ----------------------------------------------------------------------------------------------------

static const char *const intrinsic_names[OP_COUNT] = {
  [OP_SQRT] = "sqrt", [OP_TRUNC] = "trunc", [OP_FLOOR] = "floor", [OP_FMA] = "fma"};

// op of two values of one type; NULL if the op is unsupported
static const char *binary(llvm *c, enum op op, enum dtype d, int lanes, const char *x, const char *y) {
  const char *ty = type_of(c, d, lanes);
  if (op == OP_MAX || op == OP_MIN) {              // WHERE(x < y, y, x), WHERE(y < x, y, x): what maxps and minps do
    bool max = op == OP_MAX;
    const char *less = instr(c, "%s %s %s, %s", simple_name(OP_CMPLT, d), ty, max ? x : y, max ? y : x);
    return instr(c, "select %s %s, %s %s, %s %s", type_of(c, DT_BOOL, lanes), less, ty, y, ty, x);
  }
  const char *name = simple_name(op, d);
  return name ? instr(c, "%s %s %s, %s", name, ty, x, y) : NULL;
}

static const char *convert(llvm *c, const char *how, const char *x, const char *from, const char *to) {
  return instr(c, "%s %s %s to %s", how, from, x, to);
}

static const char *cast(llvm *c, const char *x, enum dtype from, enum dtype to, int lanes) {
  const char *tf = type_of(c, from, lanes), *tt = type_of(c, to, lanes);
  bool ff = dtype_is_float(from), tof = dtype_is_float(to);
  if (to == DT_BOOL) {
    if (from == DT_BOOL) return x;
    return instr(c, "%s %s %s, zeroinitializer", ff ? "fcmp une" : "icmp ne", tf, x);
  }
  if (ff && tof) {
    int sf = dtype_size(from), st = dtype_size(to);
    return sf == st ? x : convert(c, st > sf ? "fpext" : "fptrunc", x, tf, tt);
  }
  // LLVM's result is poison if out of range, but a program allows any value: freeze converts it to one
  if (ff) {
    const char *r = convert(c, dtype_is_unsigned(to) ? "fptoui" : "fptosi", x, tf, tt);
    return instr(c, "freeze %s %s", tt, r);
  }
  if (tof) return convert(c, dtype_is_unsigned(from) ? "uitofp" : "sitofp", x, tf, tt);
  int sf = from == DT_BOOL ? 0 : dtype_size(from), st = dtype_size(to);
  return sf == st ? x : convert(c, st < sf ? "trunc" : dtype_is_unsigned(from) ? "zext" : "sext", x, tf, tt);
}

static const char *bitcast(llvm *c, const uop *u) {
  const uop *s = u->src[0];
  const char *x = value(c, s);
  if (u->dt == DT_BOOL || s->dt == DT_BOOL) return cast(c, x, (enum dtype)s->dt, (enum dtype)u->dt, u->lanes);
  const char *tf = type(c, s), *tt = type(c, u);
  return strcmp(tf, tt) ? convert(c, "bitcast", x, tf, tt) : x;
}

static const char *intrinsic(llvm *c, const uop *u) {
  enum dtype d = (enum dtype)u->dt;
  const char *ty = type(c, u), *base = intrinsic_names[u->op];
  char suffix[32];
  int bits = 8 * dtype_size(d);
  if (u->lanes == 1) snprintf(suffix, sizeof suffix, "f%d", bits);
  else snprintf(suffix, sizeof suffix, "v%df%d", u->lanes, bits);
  str args = {0}, decl = {0};
  str_addf(&decl, "declare %s @llvm.%s.%s(", ty, base, suffix);
  for (size_t i = 0; i < u->nsrc; i++) {
    str_addf(&args, "%s%s %s", i ? ", " : "", ty, value(c, u->src[i]));
    str_addf(&decl, "%s%s", i ? ", " : "", ty);
  }
  str_add(&decl, ")\n");
  char *kept = arena_strdup(c->mem, str_c(&decl));
  if (smap_set(&c->intrinsics, kept, decl.n, kept)) str_add(&c->declarations, kept);
  const char *r = instr(c, "call %s @llvm.%s.%s(%s)", ty, base, suffix, str_c(&args));
  str_free(&args);
  str_free(&decl);
  return r;
}

static const char *table_entries(llvm *c, const uop *u);

static const char *elementwise_value(llvm *c, const uop *u) {
  enum dtype d = (enum dtype)u->dt;
  const uop *a = u->src[0];
  const char *ty = type(c, u);
  switch (u->op) {
  case OP_CAST: return cast(c, value(c, a), (enum dtype)a->dt, d, u->lanes);
  case OP_BITCAST: return bitcast(c, u);
  case OP_NEG:
    if (dtype_is_float(d)) return instr(c, "fneg %s %s", ty, value(c, a));
    return instr(c, "sub %s zeroinitializer, %s", ty, value(c, a));
  case OP_WHERE: {
    const char *entries = table_entries(c, u);
    if (entries) return entries;
    const char *cond = value(c, a), *x = value(c, u->src[1]), *y = value(c, u->src[2]);
    return instr(c, "select %s %s, %s %s, %s %s", type(c, a), cond, ty, x, ty, y);
  }
  case OP_SHL: case OP_SHR: {
    const uop *by = u->src[1];
    const char *n = value(c, by);
    if (by->dt != d) n = cast(c, n, (enum dtype)by->dt, d, u->lanes);
    return binary(c, (enum op)u->op, d, u->lanes, value(c, a), n);
  }
  default:
    if (intrinsic_names[u->op] && dtype_is_float(d)) return intrinsic(c, u);
    if (u->op == OP_TRUNC || u->op == OP_FLOOR) return value(c, a);
    if (u->nsrc != 2) return NULL;
    return binary(c, (enum op)u->op, (enum dtype)a->dt, u->lanes, value(c, a), value(c, u->src[1]));
  }
}

// ---- vectors --------------------------------------------------------------------------------------------------------

static const char *shuffle_text(llvm *c, const char *vector_type, const char *x, const char *y, const char *lanes) {
  return instr(c, "shufflevector %s %s, %s %s, %s", vector_type, x, vector_type, y, lanes);
}

static const char *splat(llvm *c, const uop *u) {
  if (u->lanes == 1) return value(c, u->src[0]);
  const char *ty = type(c, u), *x = value(c, u->src[0]);
  const char *first = instr(c, "insertelement %s poison, %s %s, i64 0", ty, type(c, u->src[0]), x);
  return instr(c, "shufflevector %s %s, %s poison, <%d x i32> zeroinitializer", ty, first, ty, u->lanes);
}

static const char *shuffle(llvm *c, const uop *u) {
  const uop *x = u->src[0];
  int n = x->lanes;
  if (u->lanes == 1) {
    int l = shuffle_lane(u, 0);
    const uop *from = u->src[l / n];
    return n == 1 ? value(c, from) : instr(c, "extractelement %s %s, i64 %d", type(c, from), value(c, from), l % n);
  }
  str lanes = {0};
  for (int i = 0; i < u->lanes; i++) str_addf(&lanes, "%si32 %d", i ? ", " : "<", shuffle_lane(u, i));
  str_addc(&lanes, '>');
  const char *a = value(c, x), *b = u->nsrc > 1 ? value(c, u->src[1]) : "poison", *ty = type(c, x), *r;
  if (n == 1) {                                     // LLVM's shuffles take vectors only
    ty = type_of(c, (enum dtype)u->dt, 2);
    const char *pair = instr(c, "insertelement %s poison, %s %s, i64 0", ty, type(c, x), a);
    if (u->nsrc > 1) pair = instr(c, "insertelement %s %s, %s %s, i64 1", ty, pair, type(c, x), b);
    a = pair;
    b = "poison";
  }
  r = shuffle_text(c, ty, a, b, arena_printf(c->mem, "<%d x i32> %s", u->lanes, str_c(&lanes)));
  str_free(&lanes);
  return r;
}

static const char *stack(llvm *c, const uop *u) {
  const char *ty = type(c, u), *v = "poison";
  if (u->lanes == 1) return value(c, u->src[0]);
  bool constants = true;
  for (size_t i = 0; i < u->nsrc; i++) constants &= u->src[i]->op == OP_CONST;
  if (constants) {
    str s = {0};
    for (size_t i = 0; i < u->nsrc; i++)
      str_addf(&s, "%s%s %s", i ? ", " : "<", scalar_type(shown(c->opt, (enum dtype)u->dt)), value(c, u->src[i]));
    str_addc(&s, '>');
    v = arena_strdup(c->mem, str_c(&s));
    str_free(&s);
    return v;
  }
  for (size_t i = 0; i < u->nsrc; i++)
    v = instr(c, "insertelement %s %s, %s %s, i64 %zu", ty, v, type(c, u->src[i]), value(c, u->src[i]), i);
  return v;
}

// n lanes of a vector, from lane `first` on, every `step`-th
static const char *lanes_from(llvm *c, const char *vector_type, const char *x, int first, int step, int n) {
  str s = {0};
  for (int i = 0; i < n; i++) str_addf(&s, "%si32 %d", i ? ", " : "<", first + i * step);
  const char *r = shuffle_text(c, vector_type, x, "poison", arena_printf(c->mem, "<%d x i32> %s>", n, str_c(&s)));
  str_free(&s);
  return r;
}

// Concatenates two halves to a vector of n lanes
static const char *joined(llvm *c, const char *half_type, const char *const *part, int n) {
  return shuffle_text(c, half_type, part[0], part[1],
                      arena_printf(c->mem, "<%d x i32> %s", n, lane_numbers(c->mem, DT_I32, n)));
}

// ---- dot products ---------------------------------------------------------------------------------------------------
//
// A row of codegen/descriptor.h contains the text of a DOT; operands and numbers of lanes are inserted. Rows with
// partial sums take two steps: while a DOT only feeds the next one of a chain, its sum stays in 16 bits (a dot_sum,
// keyed by its uop); the end of the chain, or a full 16-bit sum, adds it to the accumulator.

typedef struct dot_sum {
  const descriptor *d;
  const char *acc, *sum;           // the accumulator so far, and the partial sum still to be added
  int64_t steps, most;             // number of steps in it, and their largest operand
} dot_sum;

static void declare(llvm *c, const char *call) {
  str s = {0};
  recipe_declaration(call, &s);
  char *kept = arena_strdup(c->mem, str_c(&s));
  if (smap_set(&c->intrinsics, kept, s.n, kept)) str_add(&c->declarations, kept);
  str_free(&s);
}

// Writes the lines of a recipe for n lanes; returns the value of the last line.
static const char *recipe(llvm *c, const char *const *lines, int n, const char *acc, const char *a, const char *b) {
  const char *made[DESCRIPTOR_LINES + 1] = {0};
  int k = 0;
  for (; k < DESCRIPTOR_LINES && lines[k]; k++) {
    str s = {0};
    recipe_line(lines[k], n, &(recipe_names){acc, a, b, made, k}, &s);
    if (!strncmp(str_c(&s), "call ", 5) && strchr(str_c(&s), '@')) declare(c, str_c(&s));
    made[k + 1] = instr(c, "%s", str_c(&s));
    str_free(&s);
  }
  return made[k];
}

// Looks up a table (choice.h); vectors wider than a register are split into halves.
static const char *entries_of(llvm *c, const choice_row *row, int lanes, const char *x, const char *entries) {
  int half = lanes / 2;
  if (lanes == 4 * row->words) return recipe(c, row->step, row->words, NULL, x, entries);
  const char *part[2], *ty = type_of(c, DT_U8, lanes);
  for (int h = 0; h < 2; h++) part[h] = entries_of(c, row, half, lanes_from(c, ty, x, h * half, 1, half), entries);
  return joined(c, type_of(c, DT_U8, half), part, lanes);
}

// Returns NULL if u is not a table or the machine has no lookup instruction.
static const char *table_entries(llvm *c, const uop *u) {
  choice of;
  const choice_row *row = c->opt ? choice_find(c->opt->descriptors, u->lanes) : NULL;
  if (!row || !choice_of(u, &of)) return NULL;
  const char *ty = type(c, u), *x = value(c, of.code);
  if (of.shift) x = instr(c, "lshr %s %s, splat (i8 %d)", ty, x, of.shift);
  x = instr(c, "and %s %s, splat (i8 15)", ty, x);
  str table = {0};
  for (int i = 0; i < row->words / 4; i++)
    str_addf(&table, "%si64 %lld, i64 %lld", i ? ", " : "", (long long)of.low, (long long)of.high);
  const char *entries =
    instr(c, "bitcast <%d x i64> <%s> to <%d x i8>", row->words / 2, str_c(&table), 4 * row->words);
  str_free(&table);
  return entries_of(c, row, u->lanes, x, entries);
}

static const char *finish_dot(llvm *c, const dot_sum *s) {
  return recipe(c, s->d->finish, s->d->n, s->acc, s->sum, NULL);
}

// Does u only feed the next step of a chain?
static bool continues(const llvm *c, const uop *u) { return map_ptr(&c->chained, u) == u; }

static void find_chains(llvm *c) {
  for (size_t i = 0; i < c->p->n; i++) {
    const uop *u = c->p->at[i];
    if (u->op == OP_DOT) map_put(&c->places, u, (void *)((uintptr_t)map_ptr(&c->places, u) + 1));
    for (size_t j = 0; j < u->nsrc; j++) {
      const uop *s = u->src[j];
      if (s->op == OP_DOT)
        map_put(&c->chained, s, (void *)(uintptr_t)(u->op == OP_DOT && !map_has(&c->chained, s) ? s : c->p->at[0]));
    }
  }
  for (size_t i = 0; i < c->p->n; i++) {               // a node at two positions is computed at both
    const uop *u = c->p->at[i], *from = u->nsrc ? u->src[0] : NULL;
    if (u->op == OP_DOT && from->op == OP_DOT &&
        ((uintptr_t)map_ptr(&c->places, u) > 1 || (uintptr_t)map_ptr(&c->places, from) > 1))
      map_put(&c->chained, from, (void *)(uintptr_t)c->p->at[0]);
  }
}

static descriptor_set usable(const llvm *c) { return c->opt ? c->opt->descriptors & ~c->p->without : 0; }

// Computes a dot product part by part.
static const char *dot_by_parts(llvm *c, const uop *u, int n, const char *acc, const char *parts, const char *codes) {
  bool bytes = u->dt == DT_I32;
  int k = bytes ? 4 : 2;
  enum dtype part = bytes ? (enum dtype)u->src[1]->dt : DT_U16;
  const char *ty = type_of(c, DT_I32, n);
  for (int j = 0; j < k; j++) {
    const char *x = n == 1 ? instr(c, "extractelement %s %s, i64 %d", type_of(c, part, k), parts, j)
                           : lanes_from(c, type_of(c, part, k * n), parts, j, k, n);
    const char *by = arena_printf(c->mem, "%d", 32 / k * j);
    const char *y =
      instr(c, "trunc %s %s to %s", ty, instr(c, "lshr %s %s, %s", ty, codes, n == 1 ? by : repeated(c, DT_I32, by)),
            type_of(c, part, n));
    if (bytes) {
      acc = instr(c, "add %s %s, %s", ty, acc,
                  instr(c, "mul %s %s, %s", ty, cast(c, x, part, DT_I32, n), cast(c, y, DT_I8, DT_I32, n)));
      continue;
    }
    const char *f[2] = {x, y}, *half = n == 1 ? "16" : repeated(c, DT_I32, "16"), *floats = type_of(c, DT_F32, n);
    for (int i = 0; i < 2; i++)
      f[i] = instr(c, "bitcast %s %s to %s", ty, instr(c, "shl %s %s, %s", ty, cast(c, f[i], DT_U16, DT_U32, n), half),
                   floats);
    acc = instr(c, "fadd %s %s, %s", floats, acc, instr(c, "fmul %s %s, %s", floats, f[0], f[1]));
  }
  return acc;
}

static const descriptor *row_for(const llvm *c, const uop *dot, int n) {
  const uop *a = dot->src[1];
  return descriptor_find(usable(c), (enum dtype)dot->dt, n, (enum dtype)a->dt, descriptor_most(a));
}

// The first n lanes of acc, parts and codes as u computes them.
static const char *whole_dot(llvm *c, const uop *u, int n, const char *acc, const char *parts, const char *codes) {
  enum dtype acc_type = (enum dtype)u->dt;
  const descriptor *d = row_for(c, u, n);
  if (d && !d->products) return recipe(c, d->step, n, acc, parts, codes);
  if (d) return finish_dot(c, &(dot_sum){.d = d, .acc = acc, .sum = recipe(c, d->step, n, NULL, parts, codes)});
  int half = n / 2, k = acc_type == DT_I32 ? 4 : 2;
  if (n % 2 || !descriptor_lanes(usable(c), acc_type, half, n))
    return dot_by_parts(c, u, n, acc, parts, codes);
  const char *ty = type_of(c, DT_I32, n), *sums = type_of(c, acc_type, n),
             *all = type_of(c, k == 4 ? DT_U8 : DT_U16, k * n), *part[2];
  for (int h = 0; h < 2; h++)
    part[h] =
      whole_dot(c, u, half, lanes_from(c, sums, acc, h * half, 1, half),
                lanes_from(c, all, parts, k * h * half, 1, k * half), lanes_from(c, ty, codes, h * half, 1, half));
  return joined(c, type_of(c, acc_type, half), part, n);
}

// Returns NULL if the value is deferred because it only feeds the next step.
static const char *dot_value(llvm *c, const uop *u) {
  int n = u->lanes;
  int64_t most = descriptor_most(u->src[1]);
  const char *parts = value(c, u->src[1]), *codes = value(c, u->src[2]);
  const descriptor *d = row_for(c, u, n);
  dot_sum *before = map_ptr(&c->sums, u->src[0]);
  if (!d || !d->products)
    return whole_dot(c, u, n, before ? finish_dot(c, before) : value(c, u->src[0]), parts, codes);
  dot_sum now = {.d = d, .sum = recipe(c, d->step, n, NULL, parts, codes), .steps = 1, .most = most};
  if (before && before->d == d && before->steps + 1 <= descriptor_steps(d, max_i64(before->most, most))) {
    const char *ty = type_of(c, DT_I16, 4 * n / d->products);
    now = (dot_sum){d, before->acc, instr(c, "add %s %s, %s", ty, before->sum, now.sum), before->steps + 1,
                    max_i64(before->most, most)};
  } else now.acc = before ? finish_dot(c, before) : value(c, u->src[0]);
  if (!continues(c, u)) return finish_dot(c, &now);
  dot_sum *kept = ARENA_NEW(c->mem, dot_sum);
  *kept = now;
  map_put(&c->sums, u, kept);
  return NULL;
}

// Tiles of 2 x 2 sums, as many as a register holds. NULL if the machine has no instruction for them.
static const char *pairs_of_rows(llvm *c, const uop *u) {
  const descriptor *d = descriptor_tile(usable(c), (enum dtype)u->src[1]->dt, 8);
  if (!d || u->lanes != d->m * d->n) return NULL;
  return recipe(c, d->step, u->lanes, value(c, u->src[0]), value(c, u->src[1]), value(c, u->src[2]));
}

static const char *hreduce(llvm *c, const uop *u) {
  enum dtype d = (enum dtype)u->dt;
  int n = u->src[0]->lanes;
  const char *v = value(c, u->src[0]);
  for (; n > 2; n /= 2) {
    const char *ty = type_of(c, d, n), *halves[2];
    for (int h = 0; h < 2; h++) halves[h] = lanes_from(c, ty, v, h * n / 2, 1, n / 2);
    v = binary(c, (enum op)u->a, d, n / 2, halves[0], halves[1]);
    if (!v) return NULL;
  }
  if (n == 1) return v;
  const char *ty = type_of(c, d, 2);
  const char *lo = instr(c, "extractelement %s %s, i64 0", ty, v), *hi = instr(c, "extractelement %s %s, i64 1", ty, v);
  return binary(c, (enum op)u->a, d, 1, lo, hi);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static bool is_written(const llvm *c, const uop *param) { return c->written >> (param->a < 63 ? param->a : 63) & 1; }

// Metadata: !0 is empty, !1 is the domain of the scopes. PARAM a has the scope !(3a+2), the list of it !(3a+3) and the
// list of all other scopes !(3a+4).
static const char *access_notes(llvm *c, const uop *param, bool load) {
  if (param->op == OP_LOCAL) return "";                // reachable only through its own pointer: LLVM sees all writers
  const char *alone = c->p->n_bufs > 1 ? arena_printf(c->mem, ", !noalias !%lld", (long long)(3 * param->a + 4)) : "";
  return arena_printf(c->mem, ", !alias.scope !%lld%s%s", (long long)(3 * param->a + 3), alone,
                      load && !is_written(c, param) && (c->m->aligned || !is_stream(param)) ? ", !invariant.load !0"
                                                                                            : "");
}

static void write_metadata(const llvm *c, str *out) {
  int n = c->p->n_bufs;
  str_addf(out, "\n!0 = !{}\n!1 = distinct !{!1, !\"%s\"}\n", c->p->name);
  for (int a = 0; a < n; a++) {
    str_addf(out, "!%d = distinct !{!%d, !1, !\"b%d\"}\n!%d = !{!%d}\n!%d = !{", 3 * a + 2, 3 * a + 2, a, 3 * a + 3,
             3 * a + 2, 3 * a + 4);
    for (int o = 0, some = 0; o < n; o++)
      if (o != a) str_addf(out, "%s!%d", some++ ? ", " : "", 3 * o + 2);
    str_add(out, "}\n");
  }
}

static const char *index_as_i64(llvm *c, const char *x, const uop *index) {
  return cast(c, x, (enum dtype)index->dt, DT_I64, index->lanes);
}

static bool is_shared(const llvm *c, const uop *memory) {
  return c->m->launched && memory->op == OP_LOCAL && memory->memory != MEMORY_TILE;
}
static const char *pointer_to(const llvm *c, const uop *memory) {
  return memory->op == OP_PARAM ? c->m->param : is_shared(c, memory) ? c->m->shared : "ptr";
}

static const char *address(llvm *c, const uop *memory, const char *i64) {
  return instr(c, "getelementptr inbounds %s, %s %s, i64 %s", stored_as(c, memory),
               pointer_to(c, memory), value(c, memory), i64);
}

// The known alignment of an address: the size of an element, or more if the memory and the element number are aligned.
static int alignment(llvm *c, const uop *index) {
  const uop *memory = render_memory(index);
  int size = dtype_size((enum dtype)memory->dt);
  if (!c->m->aligned || index->lanes > 1) return size;
  return (int)min_i64(c->m->aligned, (int64_t)size << min_i64(render_zeros(index->src[1], &c->zeros), 8));
}

// Hardware prefetchers follow memory that is read sequentially. "volatile" keeps LLVM's scheduler from moving loads by
// up to a thousand bytes, which costs a third of the memory bandwidth.
static const char *load_at(llvm *c, const uop *index, const char *pointer, enum dtype d, int lanes) {
  const uop *memory = render_memory(index);
  bool is_bool = d == DT_BOOL;
  const char *ty = type_of(c, is_bool ? DT_U8 : d, lanes);
  const char *v =
    instr(c, "load%s %s, %s %s, align %d%s", c->p->order[ORDER_STREAMS] && is_stream(memory) ? " volatile" : "", ty,
          pointer_to(c, memory), pointer, alignment(c, index), access_notes(c, memory, true));
  return is_bool ? cast(c, v, DT_U8, DT_BOOL, lanes) : v;
}

static void store_at(llvm *c, const uop *index, const char *pointer, const char *v, enum dtype d, int lanes) {
  const uop *memory = render_memory(index);
  if (d == DT_BOOL) { v = cast(c, v, DT_BOOL, DT_U8, lanes); d = DT_U8; }
  str_addf(text(c), "  store %s %s, %s %s, align %d%s\n", type_of(c, d, lanes), v, pointer_to(c, memory), pointer,
           alignment(c, index), access_notes(c, memory, false));
}

// ---- anchors --------------------------------------------------------------------------------------------------------

// Many accesses at constant distances from one address share that address in a register. LLVM would save the addition
// and use two registers in each access, which splits an instruction with a memory operand into two on many processors
// (on Intel, all that take a mask or a third operand).
enum { MANY_USES = 8 };

static anchor *anchor_of(llvm *c, const uop *index, int64_t *distance) {
  const uop *at = index->src[1], *memory = render_memory(index);
  *distance = 0;
  if (at->op == OP_ADD && at->src[1]->op == OP_CONST) { *distance = at->src[1]->a; at = at->src[0]; }
  for (size_t i = 0; i < c->anchors.n; i++)
    if (c->anchors.at[i].memory == memory && c->anchors.at[i].at == at) return &c->anchors.at[i];
  vec_push(&c->anchors, ((anchor){.memory = memory, .at = at}));
  return &c->anchors.at[c->anchors.n - 1];
}

static void find_anchors(llvm *c) {
  int64_t distance;
  size_t n = 0;
  // a GPU thread has spare registers and constants in its addresses
  if (c->m->launched) return;
  for (size_t i = 0; i < c->p->n; i++) {
    const uop *u = c->p->at[i];
    if (u->op == OP_INDEX && u->lanes == 1 && render_memory(u)->op == OP_PARAM && u->src[1]->op != OP_CONST)
      anchor_of(c, u, &distance)->uses++;
  }
  for (size_t i = 0; i < c->anchors.n; i++)
    if (c->anchors.at[i].uses >= MANY_USES) c->anchors.at[n++] = c->anchors.at[i];
  c->anchors.n = n;
}

// After a node that is an element number: computes its anchors. The empty instruction keeps optimisers from folding
// them.
static void drop_anchors(llvm *c, const uop *u) {
  for (size_t i = 0; i < c->anchors.n; i++) {
    anchor *a = &c->anchors.at[i];
    if (a->at == u)
      a->name = instr(c, "call ptr asm \"\", \"=r,0\"(ptr %s)", address(c, a->memory, index_as_i64(c, value(c, u), u)));
  }
}

static const char *from_anchor(llvm *c, const uop *u) {
  const uop *at = u->src[1], *memory = render_memory(u);
  bool sum = at->op == OP_ADD && at->src[1]->op == OP_CONST;
  for (size_t i = 0; i < c->anchors.n; i++) {
    const anchor *a = &c->anchors.at[i];
    if (a->memory != memory || a->at != (sum ? at->src[0] : at)) continue;
    return sum ? instr(c, "getelementptr inbounds %s, ptr %s, i64 %lld", stored_as(c, memory),
                       a->name, (long long)at->src[1]->a)
               : a->name;
  }
  return NULL;
}

// For GPUs: adds constants to addresses, not to element numbers. Element numbers cannot overflow, but LLVM does not
// know that and would not merge neighbouring loads.
static const char *behind_address(llvm *c, const uop *u) {
  const uop *at = u->src[1], *memory = render_memory(u);
  if (!c->m->launched || at->op != OP_ADD || at->src[1]->op != OP_CONST) return NULL;
  const char *i = index_as_i64(c, value(c, at->src[0]), at->src[0]), *type = stored_as(c, memory),
             *first = instr(c, "getelementptr %s, %s %s, i64 %s", type, pointer_to(c, memory), value(c, memory), i);
  return instr(c, "getelementptr %s, %s %s, i64 %lld", type, pointer_to(c, memory), first, (long long)at->src[1]->a);
}

// the address of lane i of a vector INDEX, whose value is the vector of element numbers
static const char *lane_address(llvm *c, const uop *index, int i) {
  const char *n = instr(c, "extractelement <%d x i64> %s, i64 %d", index->lanes, value(c, index), i);
  return address(c, render_memory(index), n);
}

static const char *load(llvm *c, const uop *u) {
  const uop *index = u->src[0];
  enum dtype d = (enum dtype)u->dt;
  if (index->lanes == 1) return load_at(c, index, value(c, index), d, u->lanes);
  const char *v = "poison";
  for (int i = 0; i < u->lanes; i++) {
    const char *one = load_at(c, index, lane_address(c, index, i), d, 1);
    v = instr(c, "insertelement %s %s, %s %s, i64 %d", type(c, u), v, scalar_type(shown(c->opt, d)), one, i);
  }
  return v;
}

static void ask_at_distance(llvm *c, const uop *u) {
  static const int locality[PREFETCH_HINTS] = {
    [PREFETCH_T0] = 3, [PREFETCH_T1] = 2, [PREFETCH_T2] = 1, [PREFETCH_NTA] = 0};
  static char decl[] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n";
  if (smap_set(&c->intrinsics, decl, sizeof decl - 1, decl)) str_add(&c->declarations, decl);
  const char *at = instr(c, "getelementptr i8, ptr %s, i64 %lld", value(c, u->src[0]), (long long)u->a);
  str_addf(text(c), "  call void @llvm.prefetch.p0(ptr %s, i32 0, i32 %d, i32 1)\n", at, locality[u->b]);
}

static void store(llvm *c, const uop *u) {
  const uop *index = u->src[0], *what = u->src[1];
  enum dtype d = (enum dtype)what->dt;
  const char *v = value(c, what);
  if (index->lanes == 1) { store_at(c, index, value(c, index), v, d, what->lanes); return; }
  for (int i = 0; i < what->lanes; i++) {
    const char *one = instr(c, "extractelement %s %s, i64 %d", type(c, what), v, i);
    store_at(c, index, lane_address(c, index, i), one, d, 1);
  }
}

// ---- loops and conditions -------------------------------------------------------------------------------------------

static frame *push(llvm *c, size_t at) {
  const uop *u = c->p->at[at];
  frame f = {.open = u, .number = c->next_label++, .before = c->block};
  if (u->op == OP_IF || u->b != AXIS_GLOBAL) f.source = value(c, u->src[0]);
  size_t end = c->match[at];
  map seen = {0};
  for (size_t i = at; i < end; i++) f.n_accs += c->p->at[i]->op == OP_SET;
  f.accs = ARENA_ARRAY(c->mem, const uop *, f.n_accs);
  f.outer = ARENA_ARRAY(c->mem, const char *, f.n_accs);
  f.phi = ARENA_ARRAY(c->mem, const char *, f.n_accs);
  f.n_accs = 0;
  for (size_t i = at; i < end; i++) {
    const uop *in = c->p->at[i];
    if (in->op == OP_ACC) map_put(&seen, in, &f);                   // declared inside: not visible outside
    if (in->op != OP_SET || map_has(&seen, in->src[0])) continue;
    map_put(&seen, in->src[0], &f);
    f.accs[f.n_accs] = in->src[0];
    f.outer[f.n_accs++] = value(c, in->src[0]);
  }
  map_free(&seen);
  vec_push(&c->frames, f);
  return &c->frames.at[c->frames.n - 1];
}

static void open_range(llvm *c, size_t at) {
  frame *f = push(c, at);
  for (size_t i = 0; i < f->n_accs; i++) give_name(c, f->accs[i], f->phi[i] = fresh(c));
  give_name(c, f->open, arena_printf(c->mem, "%%i%d", f->number));
  c->block = arena_printf(c->mem, "loop%d", f->number);
}

static void close_range(llvm *c) {
  frame f = c->frames.at[--c->frames.n];
  const uop *r = f.open, *end_uop = r->src[0];
  const char *ty = scalar_type((enum dtype)r->dt), *counter = value(c, r), *latch = c->block, *start = "0", *end;
  bool tiles = r->b == AXIS_GLOBAL;
  if (tiles) {
    start = dtype_size((enum dtype)r->dt) < 8 ? instr(c, "trunc i64 %%lo to %s", ty) : "%lo";
    end = dtype_size((enum dtype)r->dt) < 8 ? instr(c, "trunc i64 %%hi to %s", ty) : "%hi";
  } else {
    end = f.source;
    if (end_uop->dt != r->dt) end = cast(c, end, (enum dtype)end_uop->dt, (enum dtype)r->dt, 1);
  }
  bool runs = !tiles && end_uop->vmin >= 1 && end_uop->vmin != INT64_MIN;      // runs at least once: no guard needed
  if (runs) str_addf(text(c), "  br label %%loop%d\n", f.number);
  else {
    const char *some = instr(c, "icmp slt %s %s, %s", ty, start, end);
    str_addf(text(c), "  br i1 %s, label %%loop%d, label %%done%d\n", some, f.number, f.number);
  }
  str_addf(text(c), "loop%d:\n  %s = phi %s [ %s, %%%s ], [ %%n%d, %%%s ]\n", f.number, counter, ty, start, f.before,
           f.number, latch);
  for (size_t i = 0; i < f.n_accs; i++)
    str_addf(text(c), "  %s = phi %s [ %s, %%%s ], [ %s, %%%s ]\n", f.phi[i], type(c, f.accs[i]), f.outer[i], f.before,
             value(c, f.accs[i]), latch);
  str_addn(text(c), str_c(&f.text), f.text.n);
  str_free(&f.text);
  str_addf(text(c), "  %%n%d = add nuw nsw %s %s, 1\n", f.number, ty, counter);
  const char *more = instr(c, "icmp slt %s %%n%d, %s", ty, f.number, end);
  str_addf(text(c), "  br i1 %s, label %%loop%d, label %%done%d\n", more, f.number, f.number);
  label(c, arena_printf(c->mem, "done%d", f.number));
  if (runs) return;                                  // the last values inside are the values after the loop
  for (size_t i = 0; i < f.n_accs; i++) {
    const char *last = value(c, f.accs[i]);
    give_name(c, f.accs[i],
              instr(c, "phi %s [ %s, %%%s ], [ %s, %%%s ]", type(c, f.accs[i]), f.outer[i], f.before, last, latch));
  }
}

static void open_if(llvm *c, size_t at) {
  frame *f = push(c, at);
  c->block = arena_printf(c->mem, "then%d", f->number);
}

static void close_if(llvm *c) {
  frame f = c->frames.at[--c->frames.n];
  str_addf(text(c), "  br i1 %s, label %%then%d, label %%end%d\nthen%d:\n", f.source, f.number, f.number, f.number);
  str_addn(text(c), str_c(&f.text), f.text.n);
  str_free(&f.text);
  str_addf(text(c), "  br label %%end%d\n", f.number);
  const char *inside = c->block;
  label(c, arena_printf(c->mem, "end%d", f.number));
  for (size_t i = 0; i < f.n_accs; i++) {
    const char *last = value(c, f.accs[i]);
    give_name(c, f.accs[i],
              instr(c, "phi %s [ %s, %%%s ], [ %s, %%%s ]", type(c, f.accs[i]), f.outer[i], f.before, last, inside));
  }
}

// ---- work-groups ----------------------------------------------------------------------------------------------------

// Declares an intrinsic without arguments.
static void declare_without(llvm *c, const char *result, const char *name) {
  char *kept = arena_printf(c->mem, "declare %s @llvm.%s()\n", result, name);
  if (smap_set(&c->intrinsics, kept, strlen(kept), kept)) str_add(&c->declarations, kept);
}

static void call_without(llvm *c, const char *name) {
  declare_without(c, "void", name);
  str_addf(text(c), "  call void @llvm.%s()\n", name);
}

static void barrier(llvm *c, const uop *u) {
  if (u->b & BARRIER_COPIES) call_without(c, c->m->wait);
  call_without(c, c->m->barrier);
}

// Copies 16 bytes at once bypass the L1 cache.
static int copy_over(llvm *c, const uop *u) {
  if (!c->m->copy) return -1;
  char *name =
         arena_printf(c->mem, "@llvm.%s.%s.shared.global.%lld", c->m->copy, u->a == 16 ? "cg" : "ca", (long long)u->a),
       *kept = arena_printf(c->mem, "declare void %s(%s, %s)\n", name, c->m->shared, c->m->param);
  if (smap_set(&c->intrinsics, kept, strlen(kept), kept)) str_add(&c->declarations, kept);
  str_addf(text(c), "  call void %s(%s %s, %s %s)\n", name, c->m->shared, value(c, u->src[0]), c->m->param,
           value(c, u->src[1]));
  return 0;
}

// Another work-item's value. A group smaller than a subgroup names all of its work-items.
static const char *swap(llvm *c, const uop *u) {
  enum { STEP = 32 };
  const char *ty = u->dt == DT_F32 ? "float" : "i32", *short_name = u->dt == DT_F32 ? "f32" : "i32";
  int64_t items = 1;
  if (!c->m->swap || u->lanes != 1 || dtype_size((enum dtype)u->dt) != 4) return NULL;
  for (int i = 0; i < 3; i++) items *= c->p->local[i] ? c->p->local[i]->vmax : 1;
  long long members = items < STEP ? (1ll << items) - 1 : -1;
  char *kept = arena_printf(c->mem, "declare %s @llvm.%s.%s(i32, %s, i32, i32)\n", ty, c->m->swap, short_name, ty);
  if (smap_set(&c->intrinsics, kept, strlen(kept), kept)) str_add(&c->declarations, kept);
  return instr(c, "call %s @llvm.%s.%s(i32 %lld, %s %s, i32 %d, i32 %d)", ty, c->m->swap, short_name, members, ty,
               value(c, u->src[0]), 1 << u->a, STEP - 1);
}

// A tile of sums. Its registers and results are 32-bit words; the results form a vector.
static const char *tile_dot(llvm *c, const uop *u) {
  enum dtype of = u->b ? (enum dtype)u->b : DT_U8;
  const descriptor *d = descriptor_tile(c->opt ? c->opt->descriptors : ~(descriptor_set)0, of, (int)u->a);
  str code = {0}, args = {0};
  const char *made = "poison", *acc = type_of(c, (enum dtype)u->dt, 1);
  int b = (int)u->a * dtype_size(of) / 16;
  if (!d) return NULL;
  recipe_tile(d->step[0], 2 * b, b, u->dt == DT_F32 ? 'f' : 'r', &code);
  for (size_t i = 1; i < u->nsrc; i++) {
    const uop *s = u->src[i];
    str_addf(&args, "i32 %s, ",
             s->lanes > 1 ? instr(c, "bitcast %s %s to i32", type(c, s), value(c, s)) : value(c, s));
  }
  for (int i = 0; i < 4; i++)
    str_addf(&args, "%s%s %s", i ? ", " : "", acc,
             instr(c, "extractelement <4 x %s> %s, i64 %d", acc, value(c, u->src[0]), i));
  const char *all = instr(c, "call {%s, %s, %s, %s} %s(%s) convergent readnone nounwind willreturn", acc, acc, acc, acc,
                          str_c(&code), str_c(&args));
  for (int i = 0; i < 4; i++)
    made = instr(c, "insertelement <4 x %s> %s, %s %s, i64 %d", acc, made, acc,
                 instr(c, "extractvalue {%s, %s, %s, %s} %s, %d", acc, acc, acc, acc, all, i), i);
  str_free(&code); str_free(&args);
  return made;
}

// An id that the launch provides, below u->b.
static const char *special(llvm *c, const uop *u) {
  if (!c->m->launched || u->s_len != 2 || (u->s[0] != 'g' && u->s[0] != 'l') || u->s[1] < '0' || u->s[1] > '2')
    return NULL;
  const char *name = arena_printf(c->mem, "%s.%c", u->s[0] == 'g' ? c->m->group : c->m->item, 'x' + u->s[1] - '0');
  const char *range = u->b > 0 && u->b < INT32_MAX ? arena_printf(c->mem, "range(i32 0, %lld) ", (long long)u->b) : "";
  declare_without(c, "i32", name);
  return cast(c, instr(c, "call %si32 @llvm.%s()", range, name), DT_U32, (enum dtype)u->dt, 1);
}

// Work-group memory is global to the module; all other memory belongs to a work-item.
static const char *local(llvm *c, const uop *u) {
  const char *ty = stored_as(c, u), *name;
  if (!is_shared(c, u)) return instr(c, "alloca [%lld x %s], align 64", (long long)u->b, ty);
  name = arena_printf(c->mem, "@shared%lld", (long long)u->a);
  str_addf(&c->globals, "%s = internal addrspace(3) global [%lld x %s] undef, align 16\n", name, (long long)u->b, ty);
  return name;
}

// ---- the program ----------------------------------------------------------------------------------------------------

static int refuse_node(llvm *c, const uop *u) {
  return error_set(c->err, "%s: the LLVM renderer has no %s.%s of %d lanes", c->p->name, op_name((enum op)u->op),
                   dtype_name((enum dtype)u->dt), u->lanes);
}

static int node(llvm *c, size_t at) {
  const uop *u = c->p->at[at];
  const char *v = NULL;
  switch (u->op) {
  // named before, or where they are used
  case OP_CONST: case OP_PARAM: case OP_VAR: case OP_LANE: case OP_SINK: return 0;
  case OP_LOCAL: v = local(c, u); break;
  case OP_SPECIAL: v = special(c, u); break;
  case OP_SWAP: v = swap(c, u); break;
  case OP_MMA: v = c->m->launched ? tile_dot(c, u) : NULL; break;
  case OP_BARRIER:
    if (!c->m->barrier) return refuse_node(c, u);
    if (render_needs_barrier(c->p, at)) barrier(c, u);
    return 0;
  case OP_COPY: return copy_over(c, u) ? refuse_node(c, u) : 0;
  case OP_RANGE:
    if (c->m->launched && u->b == AXIS_GLOBAL) return refuse_node(c, u);  // tiles lo..hi-1 exist on processors only
    open_range(c, at);
    return 0;
  case OP_END: close_range(c); return 0;
  case OP_IF: open_if(c, at); return 0;
  case OP_ENDIF: close_if(c); return 0;
  case OP_ACC: give_name(c, u, value(c, u->src[0])); return 0;
  case OP_SET: give_name(c, u->src[0], value(c, u->src[1])); return 0;
  case OP_STORE: store(c, u); return 0;
  case OP_PREFETCH: if (!c->m->launched) ask_at_distance(c, u); return 0;
  case OP_LOAD: v = load(c, u); break;
  case OP_INDEX: {
    if (u->lanes == 1 && ((v = from_anchor(c, u)) || (v = behind_address(c, u)))) break;
    const char *i = index_as_i64(c, value(c, u->src[1]), u->src[1]);
    v = u->lanes == 1 ? address(c, render_memory(u), i) : i;
    break;
  }
  case OP_SPLAT:
    if (u->src[0]->op == OP_CONST && u->lanes > 1) return 0;
    v = splat(c, u);
    break;
  case OP_SHUFFLE: v = shuffle(c, u); break;
  case OP_STACK: v = stack(c, u); break;
  case OP_DOT:
    if (!(v = dot_value(c, u))) return 0;
    break;
  case OP_MMLA: v = pairs_of_rows(c, u); break;
  case OP_HREDUCE: v = is_pow2(u->src[0]->lanes) ? hreduce(c, u) : NULL; break;
  case OP_EXTRACT:
    v = u->src[0]->lanes == 1
          ? value(c, u->src[0])
          : instr(c, "extractelement %s %s, i64 %lld", type(c, u->src[0]), value(c, u->src[0]), (long long)u->a);
    break;
  default:
    if (op_flags((enum op)u->op) & OPF_ELEMENTWISE) v = elementwise_value(c, u);
  }
  if (!v) return refuse_node(c, u);
  give_name(c, u, v);
  return 0;
}

// Loads the arguments from their arrays, once.
static int arguments(llvm *c) {
  const program *p = c->p;
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    if (u->op == OP_STORE && render_memory(u->src[0])->op == OP_PARAM)
      c->written |= 1ull << (render_memory(u->src[0])->a < 63 ? render_memory(u->src[0])->a : 63);
    if (u->op == OP_PARAM && !map_has(&c->names, u)) {
      if (u->a < 0 || u->a >= p->n_bufs)
        return error_set(c->err, "%s: PARAM %lld of %d", p->name, (long long)u->a, p->n_bufs);
      if (!c->m->launched) {
        str_addf(text(c), "  %%b%lld.at = getelementptr inbounds ptr, ptr %%bufs, i64 %lld\n", (long long)u->a,
                 (long long)u->a);
        str_addf(text(c), "  %%b%lld = load ptr, ptr %%b%lld.at, align 8, !invariant.load !0, !nonnull !0\n",
                 (long long)u->a, (long long)u->a);
      }
      give_name(c, u, arena_printf(c->mem, "%%b%lld", (long long)u->a));
    }
    if (u->op == OP_VAR && !map_has(&c->names, u)) {
      int k = render_var(p, u);
      if (k < 0) return error_set(c->err, "%s: the variable %.*s is no argument", p->name, (int)u->s_len, u->s);
      const char *v = arena_printf(c->mem, "%%x%d", k);
      if (!c->m->launched) {
        const char *at = instr(c, "getelementptr inbounds i64, ptr %%vars, i64 %d", k);
        v = instr(c, "load i64, ptr %s, align 8, !invariant.load !0, !noundef !0", at);
      }
      give_name(c, u, cast(c, v, DT_I64, (enum dtype)u->dt, 1));
    }
  }
  return 0;
}

static bool all_constant(uop *const *sizes) {
  for (int i = 0; i < 3; i++) if (sizes[i] && sizes[i]->op != OP_CONST) return false;
  return true;
}

// If registers are wider than the ABI's stack alignment, kernels must align the stack. LLVM decides that before it
// knows the spills; without this attribute each access to a spilled 64-byte vector touches two cache lines.
static void write_attributes(const llvm *c, str *out) {
  const render_options *o = c->opt;
  const program *p = c->p;
  str_add(out, "attributes #0 = { nounwind \"no-builtins\" \"frame-pointer\"=\"none\"");
  if (c->m->launched && p->local[0] && all_constant(p->local)) {
    str_add(out, " \"nvvm.reqntid\"=\"");
    int64_t items = 1;
    for (int i = 0; i < 3; i++) {
      int64_t n = p->local[i] ? p->local[i]->a : 1;
      str_addf(out, "%s%lld", i ? "," : "", (long long)n);
      items *= n;
    }
    // the assembler's default gives a small work-group too few registers, and it spills
    str_addf(out, "\" \"nvvm.maxnreg\"=\"%lld\"", (long long)min_i64(c->m->registers / items, c->m->most_registers));
  }
  if (p->order[ORDER_ALL]) str_add(out, " " RENDER_IN_ORDER);
  if (o && o->vector_bits > 128) str_addf(out, " alignstack=%d", o->vector_bits / 8);
  if (o && o->cpu && *o->cpu) str_addf(out, " \"target-cpu\"=\"%s\"", o->cpu);
  if (o && o->features && *o->features) str_addf(out, " \"target-features\"=\"%s\"", o->features);
  if (o && o->tune && *o->tune) str_addf(out, " \"tune-cpu\"=\"%s\"", o->tune);
  if (o && o->vector_bits) str_addf(out, " \"prefer-vector-width\"=\"%d\"", o->vector_bits);
  str_add(out, " }\n");
}

static int body(llvm *c) {
  if (render_match(c->p, c->mem, &c->match, c->err)) return -1;
  find_chains(c);
  frame bottom = {0};
  vec_push(&c->frames, bottom);
  label(c, "entry");
  if (arguments(c)) return -1;
  find_anchors(c);
  for (size_t i = 0; i < c->p->n; i++) {
    if (node(c, i)) return -1;
    drop_anchors(c, c->p->at[i]);
  }
  return 0;
}

static void write_head(const llvm *c, str *out) {
  const program *p = c->p;
  str_addf(out, "define %svoid @%s(", c->m->convention, p->name);
  if (c->m->launched) {
    const char *comma = "";
    // memory through which work-items exchange values is not noalias: LLVM would move its loads before a barrier
    for (int a = 0; a < p->n_bufs; a++, comma = ", ")
      str_addf(out, "%s%s %salign %d %%b%d", comma, c->m->param,
               p->bufs[a].read && p->bufs[a].written ? "" : "noalias ", c->m->aligned, a);
    for (int v = 0; v < p->n_vars; v++, comma = ", ") str_addf(out, "%si64 %%x%d", comma, v);
  } else str_add(out, "ptr noalias readonly %bufs, ptr noalias readonly %vars, i64 %lo, i64 %hi");
  str_add(out, ") #0 {\n");
}

static int render_for(const machine *m, const program *p, const render_options *opt, str *out, error *err) {
  llvm c = {.m = m, .p = p, .opt = opt, .err = err, .mem = arena_new()};
  int r = body(&c);
  if (!r) {
    str_addn(out, str_c(&c.globals), c.globals.n);
    write_head(&c, out);
    str_addn(out, str_c(&c.frames.at[0].text), c.frames.at[0].text.n);
    str_add(out, "  ret void\n}\n\n");
    str_addn(out, str_c(&c.declarations), c.declarations.n);
    write_attributes(&c, out);
    write_metadata(&c, out);
  }
  for (size_t i = 0; i < c.frames.n; i++) str_free(&c.frames.at[i].text);
  vec_free(&c.frames);
  vec_free(&c.anchors);
  str_free(&c.declarations);
  str_free(&c.globals);
  map_free(&c.names);
  map_free(&c.zeros);
  map_free(&c.chained); map_free(&c.places); map_free(&c.sums);
  smap_free(&c.intrinsics);
  arena_free(c.mem);
  return r;
}

int render_llvm(const program *p, const render_options *opt, str *out, error *err) {
  return render_for(&processor, p, opt, out, err);
}
int render_nvptx(const program *p, const render_options *opt, str *out, error *err) {
  return render_for(&nvptx, p, opt, out, err);
}
