// Serialises schedules (pack.h). Numbers have 64 bits each, in this machine's byte order. The text of one SINK over all
// distinct kernels comes first, then layouts, kernels and intermediates, as lists after their lengths.
#include "schedule/pack.h"
#include <stdlib.h>
#include <string.h>
#include "schedule/layout.h"

// --- writing ---------------------------------------------------------------------------------------------------------

static void put_i64(str *out, int64_t v) { str_addn(out, &v, sizeof v); }

// Numbers distinct pointers in order of first use.
typedef struct numbers { map of; VEC(const void *) at; } numbers;

static int64_t number_for(numbers *n, const void *p) {
  void *known = (void *)n->at.n;
  if (!map_get(&n->of, (uint64_t)(uintptr_t)p, &known)) { map_put(&n->of, p, known); vec_push(&n->at, p); }
  return (int64_t)(intptr_t)known;
}

static void numbers_free(numbers *n) {
  map_free(&n->of);
  vec_free(&n->at);
}

static void put_loop(str *out, const struct layout_loop *l) {
  put_i64(out, l->size);
  put_i64(out, l->step);
  put_i64(out, l->rows);
}

static void put_layout(str *out, const layout *l) {
  put_i64(out, (int64_t)l->hash);
  put_i64(out, l->dt);
  put_i64(out, l->to);
  put_i64(out, l->elems);
  put_i64(out, l->bytes);
  put_i64(out, l->base);
  put_i64(out, l->lanes);
  put_i64(out, l->lane_step);
  put_i64(out, l->together);
  put_i64(out, l->n_loops);
  for (int i = 0; i < l->n_loops; i++) put_loop(out, &l->loop[i]);
  put_i64(out, l->n_units);
  str_addn(out, l->unit, (size_t)l->n_units * sizeof *l->unit);
}

static void put_kernel(str *out, const sched_kernel *k, numbers *asts, numbers *layouts) {
  put_i64(out, number_for(asts, k->ast));
  put_i64(out, k->level);
  put_i64(out, k->each);
  put_i64(out, k->order);
  put_i64(out, k->layouts != NULL);
  put_i64(out, k->n_bufs);
  for (int i = 0; i < k->n_bufs; i++) {
    put_i64(out, k->bufs[i]);
    put_i64(out, k->written[i]);
    put_i64(out, k->layouts && k->layouts[i] ? number_for(layouts, k->layouts[i]) : -1);
  }
}

static void put_temp(str *out, const sched_temp *t) {
  put_i64(out, t->id); put_i64(out, t->dt); put_i64(out, t->elems); put_i64(out, t->bytes); put_i64(out, t->offset);
  put_i64(out, t->first); put_i64(out, t->last); put_i64(out, t->each);
}

void schedule_pack(graph *g, const schedule *s, str *out) {
  numbers asts = {0}, layouts = {0};
  str kernels = {0}, text = {0};
  for (int i = 0; i < s->n_kernels; i++) put_kernel(&kernels, &s->kernels[i], &asts, &layouts);
  put_i64(&kernels, s->n_kept);
  for (int i = 0; i < s->n_kept; i++) put_kernel(&kernels, &s->kept[i], &asts, &layouts);
  uop *all = uop_new(g, OP_SINK, DT_VOID, 1, (uop *const *)(uintptr_t)asts.at.at, asts.at.n, (uarg){0});
  uop_print(&text, &all, 1);
  put_i64(out, (int64_t)text.n);
  str_addn(out, text.at, text.n);
  put_i64(out, (int64_t)layouts.at.n);
  for (size_t i = 0; i < layouts.at.n; i++) put_layout(out, layouts.at.at[i]);
  put_i64(out, s->n_kernels); put_i64(out, s->n_levels); put_i64(out, s->n_temps);
  put_i64(out, s->arena_bytes); put_i64(out, s->each_bytes); put_i64(out, s->graph_ops);
  str_addn(out, str_c(&kernels), kernels.n);
  for (int i = 0; i < s->n_temps; i++) put_temp(out, &s->temps[i]);
  str_free(&kernels); str_free(&text);
  numbers_free(&asts); numbers_free(&layouts);
}

// --- reading ---------------------------------------------------------------------------------------------------------

typedef struct reader { const char *at; size_t left; arena *mem; bool bad; } reader;

static const char *take_packed(reader *r, size_t n) {
  r->bad |= n > r->left;
  if (r->bad) return NULL;
  r->left -= n;
  return (r->at += n) - n;
}

static int64_t get_i64(reader *r) {
  int64_t v = 0;
  const char *at = take_packed(r, sizeof v);
  if (at) memcpy(&v, at, sizeof v);
  return v;
}

// Reads a number from `least` to `most`; any other number sets the error flag and returns `least`.
static int64_t get_in(reader *r, int64_t least, int64_t most) {
  int64_t v = get_i64(r);
  r->bad |= v < least || v > most;
  return r->bad ? least : v;
}

// Reads the length of a list whose entries take at least `each` bytes.
static int get_length(reader *r, size_t each) {
  return (int)get_in(r, 0, min_i64(INT32_MAX, (int64_t)(r->left / each)));
}

static const layout *get_layout(reader *r) {
  layout *l = ARENA_NEW(r->mem, layout);
  *l = (layout){.hash = (uint64_t)get_i64(r), .dt = (enum dtype)get_in(r, 0, DT_COUNT - 1)};
  l->to = (enum dtype)get_in(r, 0, DT_COUNT - 1);
  r->bad |= !dtype_size(l->dt) || dtype_size(l->to) != dtype_size(l->dt);      // conversion keeps the size
  l->elems = get_i64(r); l->bytes = get_i64(r); l->base = get_i64(r); l->lanes = get_i64(r); l->lane_step = get_i64(r);
  l->together = get_in(r, 1, INT32_MAX);
  l->n_loops = (int)get_in(r, 0, LAYOUT_LOOPS);
  for (int i = 0; i < l->n_loops; i++) {
    l->loop[i].size = get_i64(r);
    l->loop[i].step = get_i64(r);
    l->loop[i].rows = get_i64(r);
  }
  l->n_units = get_length(r, sizeof *l->unit);
  layout_unit *unit = ARENA_ARRAY(r->mem, layout_unit, l->n_units + 1);
  const char *at = take_packed(r, (size_t)l->n_units * sizeof *unit);
  if (at) memcpy(unit, at, (size_t)l->n_units * sizeof *unit);
  l->unit = unit;
  return l;
}

static void get_kernel(reader *r, const uop *all, const layout **layouts, int n_layouts, int n_levels,
                       sched_kernel *k) {
  *k = (sched_kernel){.ast = all->src[get_in(r, 0, (int64_t)all->nsrc - 1)]};
  k->level = (int)get_in(r, 0, n_levels - 1);
  k->each = get_in(r, 0, 1);
  k->order = (int)get_in(r, 0, INT32_MAX);
  bool laid = get_in(r, 0, 1);
  k->n_bufs = get_length(r, 3 * sizeof(int64_t));
  k->bufs = ARENA_ARRAY(r->mem, int64_t, k->n_bufs + 1);
  k->written = ARENA_ARRAY(r->mem, bool, k->n_bufs + 1);
  if (laid) k->layouts = ARENA_ARRAY(r->mem, const layout *, k->n_bufs + 1);
  for (int i = 0; i < k->n_bufs; i++) {
    k->bufs[i] = get_i64(r);
    k->written[i] = get_in(r, 0, 1);
    int64_t at = get_in(r, -1, laid ? n_layouts - 1 : -1);
    if (laid) k->layouts[i] = at < 0 ? NULL : layouts[at];
  }
}

static void get_temp(reader *r, sched_temp *t, const schedule *s) {
  *t = (sched_temp){.id = get_in(r, TEMP_IDS, INT64_MAX), .dt = (enum dtype)get_in(r, 0, DT_COUNT - 1)};
  t->elems = get_in(r, 0, INT64_MAX);
  t->bytes = get_in(r, 0, INT64_MAX);
  t->offset = get_in(r, 0, INT64_MAX);
  t->first = (int)get_in(r, 0, INT32_MAX);
  t->last = (int)get_in(r, 0, INT32_MAX);
  t->each = get_in(r, 0, 1);
  r->bad |= t->bytes > (t->each ? s->each_bytes : s->arena_bytes) - t->offset;
}

// Does every intermediate that kernels name have an offset?
static bool all_placed(const schedule *s) {
  map placed = {0};
  bool all = true;
  for (int i = 0; i < s->n_temps; i++) map_set(&placed, (uint64_t)s->temps[i].id, NULL);
  for (int i = 0; i < s->n_kernels && all; i++)
    for (int j = 0; j < s->kernels[i].n_bufs && all; j++) {
      int64_t id = s->kernels[i].bufs[j];
      all = id < TEMP_IDS || map_get(&placed, (uint64_t)id, &(void *){NULL});
    }
  map_free(&placed);
  return all;
}

bool schedule_unpack(graph *g, const void *bytes, size_t n, schedule *out) {
  reader r = {.at = bytes, .left = n, .mem = graph_arena(g)};
  error e = {0};
  *out = (schedule){0};
  int text = get_length(&r, 1);
  const char *at = take_packed(&r, (size_t)text);
  const uop *all = at ? uop_parse(g, at, (size_t)text, &e) : NULL;
  if (!all || all->op != OP_SINK || !all->nsrc) return false;
  int n_layouts = get_length(&r, sizeof(int64_t));
  const layout **layouts = ARENA_ARRAY(r.mem, const layout *, n_layouts + 1);
  for (int i = 0; i < n_layouts; i++) layouts[i] = get_layout(&r);
  out->n_kernels = get_length(&r, sizeof(int64_t));
  out->n_levels = (int)get_in(&r, 1, INT32_MAX);
  out->n_temps = get_length(&r, sizeof(int64_t));
  out->arena_bytes = get_in(&r, 0, INT64_MAX);
  out->each_bytes = get_in(&r, 0, INT64_MAX);
  out->graph_ops = (int)get_in(&r, 0, INT32_MAX);
  out->kernels = ARENA_ARRAY(r.mem, sched_kernel, out->n_kernels + 1);
  for (int i = 0; i < out->n_kernels; i++)
    get_kernel(&r, all, layouts, n_layouts, out->n_levels, &out->kernels[i]);
  out->n_kept = get_length(&r, sizeof(int64_t));
  out->kept = ARENA_ARRAY(r.mem, sched_kernel, out->n_kept + 1);
  for (int i = 0; i < out->n_kept; i++) get_kernel(&r, all, layouts, n_layouts, out->n_levels, &out->kept[i]);
  out->temps = ARENA_ARRAY(r.mem, sched_temp, out->n_temps + 1);
  for (int i = 0; i < out->n_temps; i++) get_temp(&r, &out->temps[i], out);
  return !r.bad && !r.left && all_placed(out);
}
