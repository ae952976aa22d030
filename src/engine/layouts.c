// Layouts of weights: see layouts.h.
//
// A layout belongs to a weight, not to a kernel: the kernels of tokens and of prompts read it, and memory holds one
// copy. It is therefore an input of scheduling (schedule/layout.h), every kernel follows it, and all weights of one
// format and size get one layout.
//
// The search holds the model twice. For every other layout there is a second set of weights, all in that layout, with
// its own plans, and tokens run through both sets interleaved. The time stamps of kernels give the best layout for each
// format and size. The winners are then combined and tested as in use: equal logits, bit by bit, after a prompt and
// after single tokens; faster tokens, and prompts no slower.
#include "engine/layouts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/plain.h"
#include "device/cache.h"
#include "device/llvm.h"
#include "device/memory.h"
#include "engine/tune.h"
#include "model/model.h"

enum { TURNS = 7, FINAL_TURNS = 9, LOOKS = 3, TEXT = 96, PROMPT = 40 };
static const double LEAST_SHARE = 0.03, GAIN = 0.985, MIN_GAIN = 0.998, NO_LOSS = 1.01, MUCH_LONGER = 1.5, ROOM = 1.1,
                    MARGIN = 512 << 20;

// --- what is known ---------------------------------------------------------------------------------------------------

static void shape_name(const gguf_tensor *t, char out[TEXT]) {
  snprintf(out, TEXT, "weight %s %lld %lld %lld", t->format->name, (long long)t->ne[0], (long long)t->ne[1],
           (long long)(t->ne[2] * t->ne[3]));
}

static bool same_shape(const gguf_tensor *a, const gguf_tensor *b) {
  return a->format == b->format && !memcmp(a->ne, b->ne, sizeof a->ne);
}

// In the file's layout, a product of plain floats has its sum in lanes instead of its rows: its logits have other bits.
// Formats with blocks add up integers.
static bool keeps_sums(const gguf_tensor *t, enum layout_kind k) { return k != LAYOUT_FILE || t->format->block > 1; }

enum layout_kind *layouts_known(const device *d, const gguf *file) {
  size_t n = gguf_n_tensors(file);
  enum layout_kind *of = xcalloc(n + 1, sizeof *of);
  for (size_t i = 0; i < n && d->target.has_streams; i++) {
    const gguf_tensor *t = gguf_tensor_at(file, i);
    size_t like = 0;
    char name[TEXT];
    tuning found;
    if (t->n_dims < 2) continue;
    while (!same_shape(gguf_tensor_at(file, like), t)) like++;
    if (like < i) { of[i] = of[like]; continue; }
    shape_name(t, name);
    if (!tuning_get_layout(d, name, &found) || !found.better) continue;
    enum layout_kind kind = (enum layout_kind)found.opts[0].amount;
    if (keeps_sums(t, kind)) of[i] = kind;
  }
  return of;
}

// --- the search ------------------------------------------------------------------------------------------------------

typedef struct side { plan *p; double *us; } side;               // us: of each kernel, in the last run
typedef struct layout_search {
  engine *e;
  const struct tune_settings *s;
  layout_rows *rows;
  int *row_of;                                                   // kernel of a token -> row; -1: none
  int32_t *ids;
  double began, seconds;
  bool cut;                                                      // time ran out before all were tried
} layout_search;

static void tell_progress(const layout_search *l, double fraction) {
  if (l->s->progress) l->s->progress(l->s->ctx, "tuning layouts", fraction);
}

static bool late(const layout_search *l) { return now_s() - l->began > l->seconds; }

static int timed(const layout_search *l, side *x, error *err) {
  if (engine_plan(l->e, false, &x->p, &(int32_t *){NULL}, err)) return -1;
  plan_stats st = plan_get_stats(x->p);
  double *wait = xcalloc((size_t)st.kernels + 1, sizeof *wait);
  plan_run_timed(x->p, &(plan_var){"pos", l->s->depth}, 1, &(plan_times){.kernel_us = x->us, .kernel_wait_us = wait});
  free(wait);
  return 0;
}

static int row_named(layout_rows *rows, const gguf_tensor *t) {
  char name[TEXT];
  shape_name(t, name);
  for (size_t i = 0; i < rows->at.n; i++) if (!strcmp(rows->at.at[i].weight, name)) return (int)i;
  layout_row row = {.ratio = 1};
  memcpy(row.weight, name, sizeof name);
  vec_push(&rows->at, row);
  return (int)rows->at.n - 1;
}

// Finds each weight shape's share of a token's time, and how many of them to try.
static int find_rows(layout_search *l, const char *compiler, int *todo, error *err) {
  engine *e = l->e;
  side x;
  int32_t *ids;
  if (engine_plan(e, false, &x.p, &ids, err)) return -1;
  plan_stats st = plan_get_stats(x.p);
  double all = 0, *role_us = xcalloc((size_t)st.kernels + 1, sizeof *role_us);
  l->row_of = xcalloc((size_t)st.kernels + 1, sizeof *l->row_of);
  x.us = xcalloc((size_t)st.kernels + 1, sizeof *x.us);
  for (int turn = 0; turn < LOOKS; turn++) timed(l, &x, err);      // the last one counts
  for (int i = 0; i < st.kernels; i++) {
    int64_t t = engine_weight_of(e, false, i);
    all += x.us[i];
    l->row_of[i] = t < 0 || gguf_tensor_at(engine_gguf(e), (size_t)t)->n_dims < 2
                     ? -1
                     : row_named(l->rows, gguf_tensor_at(engine_gguf(e), (size_t)t));
    if (l->row_of[i] < 0) continue;
    layout_row *row = &l->rows->at.at[l->row_of[i]];
    row->layout = engine_layouts(e)[t];
    row->tensor = t;
    row->share += x.us[i];
    if (x.us[i] > role_us[l->row_of[i]]) {
      role_us[l->row_of[i]] = x.us[i];
      snprintf(row->role, sizeof row->role, "%s", plan_kernel(x.p, i, &(plan_var){"pos", l->s->depth}, 1).role);
    }
  }
  for (size_t i = 0; i < l->rows->at.n; i++) {
    layout_row *row = &l->rows->at.at[i];
    tuning known;
    row->share /= all > 0 ? all : 1;
    row->state = LAYOUT_NOT_TRIED;
    if (tuning_get_layout(engine_device(e), row->weight, &known) && !strcmp(known.compiler, compiler) &&
        !(known.cut_s > 0 && l->seconds >= known.cut_s * MUCH_LONGER))
      row->state = LAYOUT_KNOWN;
    else if (row->share >= LEAST_SHARE) { row->state = LAYOUT_SAME; ++*todo; }
  }
  free(x.us); free(role_us);
  return 0;
}

static bool tried(const layout_row *row) { return row->state == LAYOUT_SAME || row->state == LAYOUT_BETTER; }

// Can this row have this layout, and is it another one than its own?
static bool can_have(const layout_search *l, const layout_row *row, enum layout_kind kind) {
  return tried(row) && engine_layouts(l->e)[row->tensor] != kind &&
         keeps_sums(gguf_tensor_at(engine_gguf(l->e), (size_t)row->tensor), kind);
}

// Does this layout change any row?
static bool differs(const layout_search *l, enum layout_kind kind) {
  for (size_t i = 0; i < l->rows->at.n; i++) if (can_have(l, &l->rows->at.at[i], kind)) return true;
  return false;
}

// The layouts in use; for rows to be tried `all`, or (LAYOUT_KINDS) each row's best.
static enum layout_kind *layouts_to_use(const layout_search *l, enum layout_kind all) {
  const gguf *file = engine_gguf(l->e);
  size_t n = gguf_n_tensors(file);
  enum layout_kind *of = xcalloc(n + 1, sizeof *of);
  memcpy(of, engine_layouts(l->e), n * sizeof *of);
  for (size_t i = 0; i < n; i++) {
    char name[TEXT];
    shape_name(gguf_tensor_at(file, i), name);
    for (size_t k = 0; k < l->rows->at.n; k++) {
      const layout_row *row = &l->rows->at.at[k];
      if (tried(row) && !strcmp(row->weight, name) && (all == LAYOUT_KINDS || can_have(l, row, all)))
        of[i] = all == LAYOUT_KINDS ? row->layout : all;
    }
  }
  return of;
}

static int use_layouts(const layout_search *l, enum layout_kind all, error *err) {
  enum layout_kind *of = layouts_to_use(l, all);
  int r = engine_repack(l->e, of, err);
  free(of);
  if (!r) engine_promote_pages(l->e);
  return r;
}

// Times one layout for all rows against the current one, interleaved, by the time stamps of kernels.
static int try_layout(layout_search *l, enum layout_kind kind, error *err) {
  size_t n = l->rows->at.n;
  side x = {0};
  if (use_layouts(l, kind, err)) return -1;
  if (engine_plan(l->e, false, &x.p, &(int32_t *){NULL}, err)) return -1;
  int kernels = plan_get_stats(x.p).kernels, turns = 0;
  double *sums = xcalloc(2 * TURNS * n + 1, sizeof *sums);
  x.us = xcalloc((size_t)kernels + 1, sizeof *x.us);
  for (; turns < TURNS && (turns < 3 || !late(l)); turns++)
    // runs with the new layouts, then the old; the new ones are in use afterwards
    for (int other = 0; other < 2; other++) {
      timed(l, &x, err);
      for (int i = 0; i < kernels; i++)
        if (l->row_of[i] >= 0) sums[((size_t)l->row_of[i] * 2 + (size_t)other) * TURNS + (size_t)turns] += x.us[i];
      engine_swap(l->e);
    }
  for (size_t i = 0; i < n; i++) {
    layout_row *row = &l->rows->at.at[i];
    double ratio[TURNS];
    if (!can_have(l, row, kind)) continue;
    // noise only makes runs slower: the median and the minimum must agree
    double least[2] = {1e30, 1e30};
    for (int k = 0; k < turns; k++) {
      const double us[2] = {sums[i * 2 * TURNS + (size_t)k], sums[(i * 2 + 1) * TURNS + (size_t)k]};
      ratio[k] = us[0] / us[1];
      for (int old = 0; old < 2; old++) if (us[old] < least[old]) least[old] = us[old];
    }
    double middle = fmax(median(ratio, turns), least[0] / least[1]);
    if (middle < row->ratio) row->ratio = middle;
    if (middle <= row->ratio && middle < GAIN) { row->layout = kind; row->state = LAYOUT_BETTER; }
  }
  free(sums); free(x.us);
  engine_swap(l->e);
  engine_drop_other(l->e);
  return 0;
}

static double time_plan(const layout_search *l, bool prompt, error *err) {
  plan *p;
  int32_t *ids;
  if (engine_plan(l->e, prompt, &p, &ids, err)) return -1;
  double start = now_s();
  plan_run(p, (plan_var[]){{"pos", l->s->depth}, {"n", engine_chunk(l->e)}}, prompt ? 2 : 1);
  return (now_s() - start) * 1e6;
}

// Compares the logits after a prompt and after one more token, with both layouts.
static bool same_logits(const layout_search *l, error *err) {
  engine *e = l->e;
  size_t n = (size_t)engine_n_vocab(e);
  float *kept = xcalloc(4 * n, sizeof *kept);
  int prompt = (int)min_i64(PROMPT, engine_n_ctx(e) - 1);
  bool ok = true;
  for (int other = 0; other < 2; other++) {
    for (int part = 0; part < 2 && ok; part++) {
      engine_part p = {.ids = l->ids + (part ? prompt : 0), .n = part ? 1 : (size_t)prompt, .rows = 1};
      p.pos = part ? prompt : 0;
      ok = prompt > 0 && !engine_run(e, &(engine_batch){.parts = &p, .n = 1, .alone = true}, err);
      if (ok) memcpy(kept + (size_t)(2 * other + part) * n, p.logits, n * sizeof *kept);
    }
    engine_swap(e);
  }
  ok = ok && !memcmp(kept, kept + 2 * n, 2 * n * sizeof *kept);
  free(kept);
  return ok;
}

// Tests the combined winners: returns 1 if they are to be used.
static int try_together(layout_search *l, error *err) {
  double us[2][2][FINAL_TURNS], ratio[2][FINAL_TURNS];           // token, chunk; new, old
  if (use_layouts(l, LAYOUT_KINDS, err)) return -1;
  bool keep = same_logits(l, err);
  for (int what = 0; what < (l->s->prompt ? 2 : 1) && keep; what++) {
    int turns = 0;
    double began = now_s();
    for (; turns < FINAL_TURNS && (turns < 3 || now_s() - began < l->seconds / 4); turns++) {
      for (int old = 0; old < 2; old++) { us[what][old][turns] = time_plan(l, what, err); engine_swap(l->e); }
      ratio[what][turns] = us[what][0][turns] / us[what][1][turns];
    }
    double *to = what ? l->rows->chunk : l->rows->token, middle = median(ratio[what], turns);
    for (int old = 0; old < 2; old++) to[!old] = median(us[what][old], turns);
    keep = what ? middle < NO_LOSS : middle < MIN_GAIN;
  }
  if (!keep) engine_swap(l->e);
  engine_drop_other(l->e);
  return keep;
}

static void save_rows(const layout_search *l, const char *compiler) {
  for (size_t i = 0; i < l->rows->at.n; i++) {
    const layout_row *row = &l->rows->at.at[i];
    if (!tried(row) && row->state != LAYOUT_DROPPED) continue;
    tuning t = {.better = row->state == LAYOUT_BETTER,
                .n = 1,
                .opts = {{OPT_LAYOUT, 0, (int)row->layout}},
                .cut_s = l->cut ? l->seconds : 0};
    snprintf(t.name, sizeof t.name, "%s", row->weight);
    snprintf(t.role, sizeof t.role, "%s", row->role);
    snprintf(t.compiler, sizeof t.compiler, "%s", compiler);
    tuning_put_layout(engine_device(l->e), row->weight, &t);
  }
  cache_flush(engine_device(l->e)->cache);
}

static bool room_for_two(layout_search *l) {
  uint64_t have;
  double need = (double)gguf_tensor_bytes(engine_gguf(l->e)) * ROOM + MARGIN;
  if (memory_available(&have, NULL) || need <= (double)have) return true;
  plain_snprintf(l->rows->why, sizeof l->rows->why,
           "layouts: the weights do not fit into memory twice (%.1f GiB more; %.1f are free)", need / 0x1p30,
           (double)have / 0x1p30);
  return false;
}

int layouts_search(engine *e, const struct tune_settings *s, double seconds, layout_rows *rows, error *err) {
  layout_search l = {.e = e, .s = s, .rows = rows, .began = now_s(), .seconds = seconds};
  str compiler = {0};
  int todo = 0, found = 0, r = 0;
  *rows = (layout_rows){0};
  device *d = engine_device(e);
  if (!d->run->here || !d->target.has_streams || !d->cache || env_int(ENV_NOOPT)) return 0;
  l.ids = xcalloc(PROMPT + 1, sizeof *l.ids);
  for (int i = 0; i <= PROMPT; i++) l.ids[i] = (int32_t)(hash_u64((uint64_t)i, 7) % (uint64_t)engine_n_vocab(e));
  if (llvm_version(&compiler, err) || find_rows(&l, str_c(&compiler), &todo, err)) r = -1;
  bool room = !r && todo && room_for_two(&l);
  for (size_t i = 0; i < rows->at.n && !room; i++) if (tried(&rows->at.at[i])) rows->at.at[i].state = LAYOUT_NOT_TRIED;
  if (room) {
    error e2 = {0};                              // a failed layout is not used; tuning goes on
    for (int i = 0; i < LAYOUT_KINDS && !(l.cut = late(&l)); i++) {
      tell_progress(&l, (double)i / (LAYOUT_KINDS + 1));
      if (differs(&l, (enum layout_kind)i) && try_layout(&l, (enum layout_kind)i, &e2))
        snprintf(rows->why, sizeof rows->why, "layout %s: %.*s", layout_name((enum layout_kind)i),
                 (int)sizeof rows->why - 32, e2.text);
    }
    for (size_t i = 0; i < rows->at.n; i++) found += rows->at.at[i].state == LAYOUT_BETTER;
    tell_progress(&l, (double)LAYOUT_KINDS / (LAYOUT_KINDS + 1));
    bool kept = found && try_together(&l, &e2) > 0;
    for (size_t i = 0; i < rows->at.n && !kept; i++)
      if (rows->at.at[i].state == LAYOUT_BETTER) rows->at.at[i].state = LAYOUT_DROPPED;
    save_rows(&l, str_c(&compiler));
  }
  free(l.ids); free(l.row_of);
  str_free(&compiler);
  return r;
}
