// The passes over a whole graph, in order: see compile.h.
#include "compile/compile.h"
#include "codegen/merge_launches.h"
#include <stdio.h>
#include "base/env.h"
#include "graph/record.h"
#include "schedule/dots.h"
#include "schedule/store.h"

bool compile_takes_bf16(const target *t, const compile_choices *c) {
  int lanes = t->vector_bytes / 4;
  if (c->exact || (c->many_rows && t->slow_bf16)) return false;
  return t->has_streams && descriptor_lanes(t->descriptors, DT_F32, lanes, lanes);
}

// Rewrites products with weights for the instructions of the machine.
static uop *choose_dots(graph *g, uop *sink, const target *t, const compile_choices *c) {
  bool takes_signs = t->has_streams && descriptors_take_signs(t->descriptors);
  sink = integer_dots(g, sink, (dots_choice){.most = t->rounded_most, .takes_signs = takes_signs});
  if (compile_takes_bf16(t, c)) sink = bf16_dots(g, sink);
  if (t->has_streams && descriptor_tile(t->descriptors, DT_F16, 16)) sink = half_dots(g, sink);
  return sink;
}

static void print_graph(const char *what, uop *sink) {
  if (debug_level() < 5) return;
  str text = {0};
  uop_print(&text, &sink, 1);
  fprintf(stderr, "--- %s\n%s", what, str_c(&text));
  str_free(&text);
}

void compile_graph(graph *g, uop *sink, const target *t, const compile_choices *c, schedule *out) {
  print_graph("graph", sink);
  print_graph("stored", sink = store_values(g, sink));
  if (!c->exact) print_graph("dots", sink = choose_dots(g, sink, t, c));
  record_mark(g, sink, "dots");
  schedule_graph(g, sink, out);
  split_over_ranks(g, out, &c->ranks);
  if (t->has_streams && !c->in_place)
    layout_weights(g, out, &(layout_target){target_rows(t), t->row_bytes}, c->layout, c->ctx);
  if (t->has_local) merge_launches(g, out, t);
  record_mark(g, sink, "schedule");
}
