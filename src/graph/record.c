// Records rewrites: see record.h. Nodes are shared and never change, so all states of a graph are one table of nodes; a
// step is two numbers, and the page that shows it computes the difference.
#include "graph/record.h"
#include <stdlib.h>
#include <string.h>

typedef struct step { const char *pass; const ruleset *set; unsigned index; uop *from, *to; } step;
typedef struct mark { char *name; uop *root; size_t steps; double took; } mark;

struct recorder {
  size_t most, lost;
  double last;               // end of the previous pass
  VEC(step) steps;
  VEC(mark) marks;
};

recorder *recorder_new(size_t most_steps) {
  recorder *r = xcalloc(1, sizeof *r);
  r->most = most_steps;
  r->last = now_s();
  return r;
}

void recorder_free(recorder *r) {
  if (!r) return;
  for (size_t i = 0; i < r->marks.n; i++) free(r->marks.at[i].name);
  vec_free(&r->marks);
  vec_free(&r->steps);
  free(r);
}

void record_mark(graph *g, uop *root, const char *fmt, ...) {
  recorder *r = graph_recorder(g);
  if (!r) return;
  str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  double now = now_s();
  vec_push(&r->marks, ((mark){xstrdup(str_c(&s)), root, r->steps.n, now - r->last}));
  r->last = now;
  str_free(&s);
}

void record_passes(const recorder *r, void (*visit)(void *ctx, const char *name, double seconds), void *ctx) {
  for (size_t i = 0; i < r->marks.n; i++) visit(ctx, r->marks.at[i].name, r->marks.at[i].took);
}

void record_step(recorder *r, const char *pass, const ruleset *s, unsigned index, uop *from, uop *to) {
  if (r->steps.n < r->most) vec_push(&r->steps, ((step){pass, s, index, from, to}));
  else r->lost++;
}

// --- writing ---------------------------------------------------------------------------------------------------------

typedef struct labels { smap index; size_t n; arena *mem; } labels;

static size_t label_of(labels *l, const uop *u, str *out) {
  str s = {0};
  void *at;
  uop_print_label(&s, u);
  if (!smap_get(&l->index, s.at, s.n, &at)) {
    str_add(out, l->n ? "," : "");
    str_add_json(out, s.at, s.n);
    at = (void *)l->n++;
    smap_set(&l->index, arena_strndup(l->mem, s.at, s.n), s.n, at);
  }
  str_free(&s);
  return (size_t)(uintptr_t)at;
}

static long node_number(const map *numbers, const uop *u) { return (long)(uintptr_t)map_ptr(numbers, u) - 1; }

static void write_nodes(const uop_list *l, map *numbers, str *out) {
  labels names = {.mem = arena_new()};
  str nodes = {0};
  str_add(out, "\"labels\":[");
  for (size_t i = 0; i < l->n; i++) {
    const uop *u = l->at[i];
    map_put(numbers, u, (void *)(i + 1));
    str_addf(&nodes, i ? ",[%zu" : "[%zu", label_of(&names, u, out));
    for (size_t j = 0; j < u->nsrc; j++) str_addf(&nodes, ",%ld", (long)i - node_number(numbers, u->src[j]));
    str_addc(&nodes, ']');
  }
  str_addf(out, "],\n\"nodes\":[%s]", str_c(&nodes));
  str_free(&nodes);
  smap_free(&names.index);
  arena_free(names.mem);
}

static bool same_rule(const step *a, const step *b) {
  return a->set == b->set && a->index == b->index && !strcmp(a->pass, b->pass);
}

static void write_steps(const recorder *r, const map *numbers, str *out) {
  VEC(const step *) rules = {0};                      // a few hundred at most
  str steps = {0};
  str_add(out, ",\n\"rules\":[");
  for (size_t i = 0; i < r->steps.n; i++) {
    const step *s = &r->steps.at[i];
    size_t k = 0;
    while (k < rules.n && !same_rule(rules.at[k], s)) k++;
    if (k == rules.n) {
      const rule *fired = &s->set->rules[s->index];
      vec_push(&rules, s);
      str_add(out, k ? ",[" : "[");
      str_add_json(out, s->pass, strlen(s->pass));
      str_addf(out, ",\"%s\",%d,", s->set->name, fired->line);
      str_add_json(out, fired->text, strlen(fired->text));
      const char *file = strstr(s->set->file, "src/");
      // the last "/src/": no paths of the build machine
      for (const char *next; file && (next = strstr(file + 1, "/src/"));) file = next + 1;
      str_addc(out, ',');
      str_add_json(out, file ? file + 4 : "", file ? strlen(file + 4) : 0);
      str_addc(out, ']');
    }
    str_addf(&steps, i ? ",[%zu,%ld,%ld]" : "[%zu,%ld,%ld]", k, node_number(numbers, s->from),
             node_number(numbers, s->to));
  }
  str_addf(out, "],\n\"steps\":[%s]", str_c(&steps));
  str_free(&steps);
  vec_free(&rules);
}

void record_write(const recorder *r, str *out, map *numbers) {
  VEC(uop *) roots = {0};
  map own = {0}, *found = numbers ? numbers : &own;
  arena *mem = arena_new();
  for (size_t i = 0; i < r->marks.n; i++) vec_push(&roots, r->marks.at[i].root);
  for (size_t i = 0; i < r->steps.n; i++) {
    vec_push(&roots, r->steps.at[i].from);
    vec_push(&roots, r->steps.at[i].to);
  }
  uop_list l = uop_toposort(mem, roots.at, roots.n);
  str_addc(out, '{');
  write_nodes(&l, found, out);
  write_steps(r, found, out);
  str_add(out, ",\n\"marks\":[");
  for (size_t i = 0; i < r->marks.n; i++) {
    const mark *m = &r->marks.at[i];
    str_add(out, i ? ",[" : "[");
    str_add_json(out, m->name, strlen(m->name));
    str_addf(out, ",%ld,%zu]", node_number(found, m->root), m->steps);
  }
  str_addf(out, "],\"lost\":%zu}", r->lost);
  map_free(&own);
  vec_free(&roots);
  arena_free(mem);
}
