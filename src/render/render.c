// The table of renderers, and their common helpers: see render.h.
#include "render/render.h"
#include "base/attempt.h"
#include "render/metal.h"
#include <string.h>

// Capabilities that all languages with work-groups share.
#define OF_WORK_GROUPS .vector_bytes = 16, .has_f16 = true, .has_streams = true, .has_local = true, \
  .index32 = true, .row_items = 32, .row_bytes = 16, .token_tile = 2, .rounded_most = 32

static const renderer table[] = {
  {"llvm", ".ll", {.name = "llvm", .vector_bytes = 16}, render_llvm, false},
  {"c", ".c", {.name = "c", .vector_bytes = 16}, render_c, false},
  {"opencl",
   ".cl",
   {.name = "opencl",
    OF_WORK_GROUPS,
    .has_fma = true,
    .max_local_bytes = 32768,
    .max_group = 256},
   render_opencl, false},
  {"nvptx",
   ".ll",
   {.name = "nvptx",
    OF_WORK_GROUPS,
    .has_fma = true,
    .subgroup_size = 32,
    .max_local_bytes = 49152,
    .max_group = 1024},
   render_nvptx, false},
  {"metal",
   ".metal",
   {.name = "metal",
    OF_WORK_GROUPS,
    .has_fma = true,
    .subgroup_size = 32,
    .max_local_bytes = 32768,
    .max_group = 256,
    .max_buffers = METAL_BUFFERS - 1 /* the variables are one */},
   render_metal, false},
  {"spirv",
   ".spv",
   {.name = "spirv",
    OF_WORK_GROUPS,
    .max_local_bytes = 32768,
    .max_group = 256},
   render_spirv,
   true},
};

const renderer *render_at(size_t i) { return i < COUNT(table) ? &table[i] : NULL; }

const renderer *render_find(const char *name) {
  for (size_t i = 0; i < COUNT(table); i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}

typedef struct text_of {
  render_fn *fn;
  const program *p;
  const render_options *o;
  str text;
  error *err;
  int r;
} text_of;

static void make_text(void *ctx) {
  text_of *t = ctx;
  t->r = t->fn(t->p, t->o, &t->text, t->err);
  if (t->r) str_free(&t->text);
}

int render_text(render_fn *fn, const program *p, const render_options *opt, str *out, error *err) {
  text_of t = {.fn = fn, .p = p, .o = opt, .err = err};
  if (attempt(ATTEMPT_OWNS, make_text, &t, err) || t.r) return -1;
  str_addn(out, t.text.at, t.text.n);
  str_free(&t.text);
  return 0;
}

void render_words(str *out, const str *module) {
  enum { HEAD = 5 };
  size_t n = module->n / 4, end = HEAD;
  for (size_t i = 0; i < n; i++) {
    uint32_t word;
    memcpy(&word, module->at + 4 * i, 4);
    if (i == end) end += word >> 16 ? word >> 16 : 1;  // the high half of an instruction's first word is its length
    str_addf(out, "%08x%c", word, i + 1 == end || i + 1 == n ? '\n' : ' ');
  }
}

int render_match(const program *p, arena *mem, size_t **match, error *err) {
  size_t *m = *match = ARENA_ARRAY(mem, size_t, p->n), *open = ARENA_ARRAY(mem, size_t, p->n), depth = 0;
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    m[i] = SIZE_MAX;
    if (u->op == OP_RANGE || u->op == OP_IF) open[depth++] = i;
    if (u->op != OP_END && u->op != OP_ENDIF) continue;
    if (!depth) return error_set(err, "%s: %s at %zu closes nothing", p->name, op_name((enum op)u->op), i);
    size_t o = open[--depth];
    if ((u->op == OP_END) != (p->at[o]->op == OP_RANGE) || (u->op == OP_END && u->src[0] != p->at[o]))
      return error_set(err, "%s: %s at %zu closes what was opened at %zu", p->name, op_name((enum op)u->op), i, o);
    m[i] = o;
    m[o] = i;
  }
  return depth ? error_set(err, "%s: what opens at %zu is never closed", p->name, open[depth - 1]) : 0;
}

bool render_is_written(const program *p, const uop *memory) {
  for (size_t i = 0; i < p->n; i++)
    if (p->at[i]->op == OP_STORE && render_memory(p->at[i]->src[0]) == memory) return true;
  return false;
}

bool render_needs_barrier(const program *p, size_t at) {
  if (p->at[at]->b) return true;
  while (at--) {
    const uop *u = p->at[at];
    if (u->op == OP_BARRIER) return false;
    if (u->op == OP_RANGE || u->op == OP_END || u->op == OP_IF || u->op == OP_ENDIF) return true;
    if ((u->op == OP_LOAD || u->op == OP_STORE || u->op == OP_COPY) && render_memory(u->src[0])->op == OP_LOCAL)
      return true;
  }
  return true;
}

int render_var(const program *p, const uop *var) {
  for (int i = 0; i < p->n_vars; i++)
    if (p->vars[i]->s_len == var->s_len && !memcmp(p->vars[i]->s, var->s, var->s_len)) return i;
  return -1;
}

const uop *render_memory(const uop *index) {
  die_if(index->op != OP_INDEX, "%s where an INDEX must stand", op_name((enum op)index->op));
  const uop *m = index->src[0];
  die_if(m->op != OP_PARAM && m->op != OP_LOCAL, "INDEX into %s", op_name((enum op)m->op));
  return m;
}

static int zeros_of(const uop *u, map *memo) {
  int a, b;
  switch (u->op) {
  case OP_CONST: return u->a ? __builtin_ctzll((unsigned long long)u->a) : 63;
  case OP_MUL: a = render_zeros(u->src[0], memo) + render_zeros(u->src[1], memo); return a < 63 ? a : 63;
  case OP_SHL:
    return u->src[1]->op == OP_CONST ? (int)min_i64(render_zeros(u->src[0], memo) + u->src[1]->a, 63)
                                     : render_zeros(u->src[0], memo);
  case OP_AND: a = render_zeros(u->src[0], memo); b = render_zeros(u->src[1], memo); return a > b ? a : b;
  case OP_ADD:
  case OP_SUB:
  case OP_OR:
  case OP_XOR:
  case OP_MAX:
  case OP_MIN:
    a = render_zeros(u->src[0], memo);
    b = render_zeros(u->src[1], memo);
    return a < b ? a : b;
  case OP_WHERE: a = render_zeros(u->src[1], memo); b = render_zeros(u->src[2], memo); return a < b ? a : b;
  case OP_CAST:
    return dtype_is_float((enum dtype)u->src[0]->dt) || u->src[0]->dt == DT_BOOL ? 0 : render_zeros(u->src[0], memo);
  default: return 0;
  }
}

int render_zeros(const uop *u, map *memo) {
  void *known;
  if (map_get(memo, (uint64_t)(uintptr_t)u, &known)) return (int)(intptr_t)known;
  int n = zeros_of(u, memo);
  map_set(memo, (uint64_t)(uintptr_t)u, (void *)(intptr_t)n);
  return n;
}

int shuffle_lane(const uop *u, int i) {
  die_if(u->s_len != 2u * u->lanes || i >= u->lanes,
         "SHUFFLE of %d lanes with %u bytes of lane numbers", u->lanes, u->s_len);
  return (unsigned char)u->s[2 * i] | (unsigned char)u->s[2 * i + 1] << 8;
}
