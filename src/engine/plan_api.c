// The public API for planning models on several machines: texts and tables over engine/rehearse.c.
#include "weft.h"
#include <stdlib.h>
#include "device/memory.h"
#include "engine/options.h"
#include "engine/rehearse.h"
#include "engine/sized.h"
#include "schedule/ranks.h"

enum { WAYS = 3 };
typedef struct planned_handle {
  weft_planned shown;
  weft_planned_split splits[WAYS];
  uint64_t memory[WAYS][MOST_RANKS];
} planned_handle;
_Static_assert(offsetof(planned_handle, shown) == 0, "weft_planned_free gets the address of the handle");

typedef struct planning {
  const char *path;
  struct engine_options o;
  const weft_plan_options *plan;
  network link;
  planned_handle *h;
} planning;

static weft_planned_split *add_split(planning *p, enum weft_plan_split split, const rehearsal *r, int n) {
  size_t i = p->h->shown.n_splits++;
  p->h->splits[i] = (weft_planned_split){.split = split,
                                         .machines = n,
                                         .token_us = r->token_us + r->token_link_us,
                                         .chunk_us = r->chunk_us + r->chunk_link_us,
                                         .token_link_us = r->token_link_us,
                                         .chunk_link_us = r->chunk_link_us,
                                         .token_gathers = r->token_gathers,
                                         .chunk_gathers = r->chunk_gathers,
                                         .token_bytes = r->token_bytes,
                                         .chunk_bytes = r->chunk_bytes,
                                         .memory = p->h->memory[i]};
  for (int j = 0; j < n; j++) p->h->memory[i][j] = r->memory;
  return &p->h->splits[i];
}

static int plan_rows(planning *p, int n, rehearsal *r, error *err) {
  if (rehearse_rows(p->path, &p->o, n, p->plan->depth, !p->plan->no_prompt, &p->link, r, err)) return -1;
  p->h->shown.chunk = r->chunk;
  return 0;
}

// A token takes the time of one machine and that of the messages. Chunks of a long prompt follow each other through the
// machines: from one to the next it takes the busiest machine's time, and that of its messages from one machine and to
// another.
static int plan_layers(planning *p, const rehearsal *one, error *err) {
  int n = p->plan->machines;
  rehearsed_layers l;
  rehearsal r = *one;
  if (rehearse_layers(p->path, &p->o, n, &l, err)) return -1;
  double message = network_broadcast_us(&p->link, 2, l.token_bytes);
  r.token_gathers = n - 1;
  r.token_bytes = l.token_bytes;
  r.token_link_us = n * p->link.latency_us + (n - 1) * (message - p->link.latency_us);
  if (r.chunk_us > 0) {
    r.chunk_gathers = n - 1;
    r.chunk_bytes = l.token_bytes * r.chunk;
    r.chunk_us *= l.busiest;
    r.chunk_link_us = min_i64(n - 1, 2) * network_broadcast_us(&p->link, 2, r.chunk_bytes);
  }
  add_split(p, WEFT_PLAN_LAYER, &r, n);
  for (int i = 0; i < n; i++) p->h->memory[p->h->shown.n_splits - 1][i] = l.sizes[i] + one->work;
  return 0;
}

static int plan_all(planning *p, error *err) {
  rehearsal one, rows;
  weft_planned *shown = &p->h->shown;
  if (network_parse(p->plan->link ? p->plan->link : "1GbE", &p->link, err) || plan_rows(p, 1, &one, err)) return -1;
  shown->splits = p->h->splits;
  shown->latency_us = p->link.latency_us;
  shown->gbit_s = p->link.gbit_s;
  shown->context = p->o.n_ctx;
  memory_total(&shown->machine_bytes, NULL);
  add_split(p, WEFT_PLAN_ONE, &one, 1);
  if (p->plan->machines < 2) return 0;
  if (plan_rows(p, p->plan->machines, &rows, err)) return -1;
  add_split(p, WEFT_PLAN_ROW, &rows, p->plan->machines);
  return plan_layers(p, &one, err);
}

int weft_plan(const char *path, const weft_options *opt, const weft_plan_options *plan, weft_planned **out,
              weft_error *err) {
  enum { USUAL_CONTEXT = 4096, ROOM = 1024 };
  weft_options own;
  weft_plan_options o = {0};
  planning p = {.path = path, .plan = &o};
  error e = {0};
  if (TAKE_OPTIONS(&o, weft_plan_options, no_prompt, plan, err) || options_take(opt, &own, &p.o, err)) return -1;
  if (o.machines < 1 || o.machines > MOST_RANKS)
    error_set(&e, "%d machines were asked for; it must be 1 to %d", o.machines, MOST_RANKS);
  else if (o.depth < 0 || o.depth > INT32_MAX / 4)
    error_set(&e, "%d positions before the tokens that are timed; it must be 0 to %d", o.depth, INT32_MAX / 4);
  else if (!p.o.n_ctx) {
    p.o.n_ctx = o.depth + ROOM > USUAL_CONTEXT ? o.depth + ROOM : USUAL_CONTEXT;
    rehearse_context(path, &p.o, &p.o.n_ctx, &e);
  }
  if (p.o.n_ctx <= o.depth && !e.text[0])
    error_set(&e, "a context of %d positions has no room for a token after %d", p.o.n_ctx, o.depth);
  p.h = xcalloc(1, sizeof *p.h);
  int r = e.text[0] ? -1 : plan_all(&p, &e);
  free((void *)(uintptr_t)p.o.control_vectors);
  if (r) {
    free(p.h);
    return fail(err, &e);
  }
  *out = &p.h->shown;
  return 0;
}

void weft_planned_free(weft_planned *p) { free(p); }
