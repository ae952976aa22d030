// BEAM search over OptOps: see search.h.
//
// The beam begins with the heuristic's list and its prefixes. An action adds one op, or splits a lane or tile
// differently. Candidates are made in batches and timed interleaved with the heuristic's kernel, so that a disturbance
// of the machine affects all of them; slow ones leave a race early. The survivors are compared with the reference, and
// the best `width` enter the next round. A round without gain ends the search.
//
// Order of sums. A tuned kernel must give the heuristic's bits, or one token and many tokens would no longer agree (the
// order of a float reduction depends on the reduced length only). Therefore
// - the ops that put a reduction in lanes, and all ops before them, are taken from the heuristic's list unchanged;
// - a float reduction is unrolled from its innermost range outwards: its terms stay in ascending order (in_order
//   below);
// - all other changes concern output ranges and integer sums, which are exact in any order;
// - the device compares outputs bit by bit.
#include "codegen/search.h"
#include "codegen/merge_launches.h"
#include "codegen/opt_rows.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COPIES = 512, COPIES_MORE = 4, RACE = 6, FINAL_RACE = 12, MAX_ROUNDS = 4, MOST_CANDIDATES = 400 };
// a round that gains less than GAIN ends the search; a candidate predicted to take HOPELESS times the heuristic's time
// is not tried
static const double SLOW_S = .5, GAIN = 0.985, HOPELESS = 3;

typedef struct candidates { candidate **at; size_t n, cap; } candidates;

typedef struct search {
  graph *parent;
  uop *ast;
  const search_target *s;
  const search_options *o;
  candidates all, beam;
  candidate *base;
  const opt *own;                                // the heuristic's list
  int prefix;                                    // number of the heuristic's ops that every candidate keeps
  int64_t copies;                                // maximum copies of the body in a candidate
  double began, batch_s;                         // batch_s: duration of the last batch
  int batch;
  search_result *out;
} search;

// --- what a list makes of a kernel -----------------------------------------------------------------------------------

static bool replay_opts(kernel *k, graph *g, uop *ast, const target *t, const opt *opts, int n) {
  kernel_init(k, g, simplify(g, ast), t);
  return kernel_apply_all(k, opts, n, true);
}

static int64_t copies_of(kernel *k) {
  axes x;
  kernel_axes(k, &x);
  int64_t n = 1;
  for (int i = 0; i < x.n; i++) if (x.at[i]->b == AXIS_UPCAST || x.at[i]->b == AXIS_UNROLL) n *= x.at[i]->src[0]->a;
  return n;
}

static bool reorders(const uop *u) {
  return u->op == OP_REDUCE && dtype_is_float((enum dtype)u->dt) && u->a != OP_MAX && u->a != OP_MIN;
}

// Are terms in ascending order? If a range is unrolled, all ranges inside it must be unrolled or lanes.
static bool in_order(kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool ok = true;
  for (size_t i = 0; i < l.n; i++) {
    bool unrolled = false;
    for (size_t j = (size_t)uop_first_range(l.at[i]); reorders(l.at[i]) && j < l.at[i]->nsrc; j++) {
      if (l.at[i]->src[j]->b == AXIS_UNROLL) unrolled = true;
      if (l.at[i]->src[j]->b == AXIS_REDUCE && unrolled) ok = false;
    }
  }
  arena_free(a);
  return ok;
}

// Number of ops up to the last one that decides a reduction's lanes, blocks or separate ranges.
static int deciding_prefix(graph *g, uop *ast, const target *t, const opt *opts, int n) {
  kernel k;
  axes x;
  int prefix = 0;
  kernel_init(&k, g, simplify(g, ast), t);
  for (int i = 0; i < n; i++) {
    kernel_axes(&k, &x);
    const opt_row *row = opt_row_of(opts[i].kind);
    if (row->decides == DECIDES_SUMS || (row->decides == DECIDES_SUMS_IF_SUMMED && opts[i].axis >= x.n_out))
      prefix = i + 1;
    if (!kernel_apply(&k, opts[i])) break;
  }
  return prefix;
}

// The lane sizes of all float reductions that depend on lanes, in topological order, as text to compare.
static void lanes_text(kernel *k, str *out) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  int64_t count[1025] = {0};
  for (size_t i = 0; i < l.n; i++)
    for (size_t j = (size_t)uop_first_range(l.at[i]); reorders(l.at[i]) && j < l.at[i]->nsrc; j++)
      if (l.at[i]->src[j]->b == AXIS_LANE || l.at[i]->src[j]->b == AXIS_GROUP)
        count[min_i64(l.at[i]->src[j]->src[0]->a, 1024)]++;
  for (int i = 0; i < (int)COUNT(count); i++) if (count[i]) str_addf(out, "%d:%lld ", i, (long long)count[i]);
  arena_free(a);
}

static bool disallow(str *why, const char *text) {
  if (why) str_add(why, text);
  return false;
}

bool search_allows(graph *parent, uop *ast, const target *t, const opt *opts, int n, str *why) {
  graph *g = graph_new(parent);
  kernel k, h;
  ast = merged_main(ast);
  str mine = {0}, its = {0};
  kernel_init(&h, g, simplify(g, ast), t);
  heuristic(&h, false);
  int prefix = deciding_prefix(g, ast, t, h.applied, h.n_applied);
  bool ok = true;
  if (n < prefix || memcmp(opts, h.applied, (size_t)prefix * sizeof *opts))
    ok = disallow(why, "it does not begin as the heuristic does");
  if (ok && !replay_opts(&k, g, ast, t, opts, n)) {
    ok = disallow(why, "an OptOp is refused: ");
    if (why) str_add(why, k.refusal);
  }
  if (ok && copies_of(&k) > max_i64(MAX_COPIES, copies_of(&h) * COPIES_MORE))
    ok = disallow(why, "it makes too many copies of the body");
  if (ok && !in_order(&k)) ok = disallow(why, "it changes the order of a sum of floats");
  if (ok) {
    lanes_text(&k, &mine);
    lanes_text(&h, &its);
    if (strcmp(str_c(&mine), str_c(&its))) ok = disallow(why, "it lays a sum of floats in other lanes");
  }
  str_free(&mine); str_free(&its);
  graph_free(g);
  return ok;
}

// --- candidates ------------------------------------------------------------------------------------------------------

static bool is_candidate(const search *s, const opt *opts, int n) {
  for (size_t i = 0; i < s->all.n; i++)
    if (s->all.at[i]->n == n && !memcmp(s->all.at[i]->opts, opts, (size_t)n * sizeof *opts)) return true;
  return false;
}

static void add_candidate(search *s, candidates *to, const opt *opts, int n) {
  if (n < s->prefix || n > MOST_OPTS || s->all.n >= MOST_CANDIDATES || is_candidate(s, opts, n)) return;
  if (s->prefix && memcmp(opts, s->own, (size_t)s->prefix * sizeof *opts)) return;
  graph *g = graph_new(s->parent);
  kernel k;
  bool ok = replay_opts(&k, g, s->ast, s->s->t, opts, n) && copies_of(&k) <= s->copies && in_order(&k);
  graph_free(g);
  if (!ok) return;
  candidate *c = xcalloc(1, sizeof *c);
  memcpy(c->opts, opts, (size_t)n * sizeof *opts);
  c->n = n;
  c->score = 1e9;
  vec_push(&s->all, c);
  vec_push(to, c);
}

// A list without the ops of one kind on this axis (-1: any axis).
static int without_kind(const opt *from, int n, enum opt_kind kind, int axis, opt *out) {
  int m = 0;
  for (int i = 0; i < n; i++) if (from[i].kind != kind || (axis >= 0 && from[i].axis != axis)) out[m++] = from[i];
  return m;
}

static bool holds_opt(const opt *list, int n, opt o) {
  for (int i = 0; i < n; i++) if (!memcmp(&list[i], &o, sizeof o)) return true;
  return false;
}

// `from` plus one op. An op that may occur once replaces the existing one, or removes it; an op of all loads that is
// already present is removed.
static void extend_by_one(search *s, candidates *to, const opt *from, int n) {
  graph *g = graph_new(s->parent);
  kernel k;
  axes x;
  opt o[MOST_OPTS + 1];
  opt_vec more = {0};
  if (n < 0 || n >= MOST_OPTS || !replay_opts(&k, g, s->ast, s->s->t, from, n)) { graph_free(g); return; }
  kernel_axes(&k, &x);
  for (int kind = 0; kind < OPT_COUNT; kind++) {
    const opt_row *row = opt_row_of((enum opt_kind)kind);
    more.n = 0;
    if (row->candidates) row->candidates(&k, &x, &more);
    int bare = without_kind(from, n, row->once ? (enum opt_kind)kind : OPT_COUNT, -1, o);
    if (row->once) add_candidate(s, to, o, bare);
    for (size_t i = 0; i < more.n; i++) {
      bool goes = row->of_loads && !row->once && holds_opt(from, n, more.at[i]);
      o[bare] = more.at[i];
      if (!goes) add_candidate(s, to, o, bare + 1);
      else {
        opt less[MOST_OPTS];
        add_candidate(s, to, less, without_kind(from, n, (enum opt_kind)kind, more.at[i].axis, less));
      }
    }
  }
  vec_free(&more);
  graph_free(g);
}

static double seconds_left(const search *s) { return s->o->seconds - (now_s() - s->began); }

// --- races -----------------------------------------------------------------------------------------------------------

// Runs all candidates interleaved with the heuristic's kernel. The score is the median of a candidate's ratios to the
// heuristic, or the ratio of the minimum times, whichever is worse: noise only makes runs slower, so both must show a
// gain.
static void race(search *s, candidate *const *c, int n, int rounds) {
  struct lane { double ratio[FINAL_RACE], least; int n; bool out; } *at = xcalloc((size_t)n + 1, sizeof *at);
  double base_least = 1e30;
  for (int r = 0; r < rounds && (r < 3 || seconds_left(s) > 0); r++) {
    double base = s->s->sample(s->s->ctx, s->base), best;
    if (base < base_least) base_least = base;
    best = base_least;
    for (int i = 0; i < n; i++) {
      if (at[i].out) continue;
      double us = s->s->sample(s->s->ctx, c[i]);
      if (!at[i].n || us < at[i].least) at[i].least = us;
      at[i].ratio[at[i].n++] = us / base;
      if (at[i].least < best) best = at[i].least;
    }
    for (int i = 0; i < n; i++) if (at[i].least > best * (r ? 1.1 : 1.5)) at[i].out = true;
  }
  for (int i = 0; i < n; i++) {
    double least = at[i].least / base_least, middle = median(at[i].ratio, at[i].n);
    c[i]->best_us = at[i].least;
    c[i]->score = at[i].out || least > middle ? least : middle;
  }
  s->out->heuristic_us = base_least;
  free(at);
}

// --- rounds ----------------------------------------------------------------------------------------------------------

static int by_candidate_score(const void *x, const void *y) {
  const candidate *a = *(candidate *const *)x, *b = *(candidate *const *)y;
  return a->score != b->score ? (a->score > b->score) - (a->score < b->score) : a->n - b->n;
}

static void forget_candidate(search *s, candidate *c) {
  if (c == s->base) return;
  s->s->drop(s->s->ctx, c);
  program_free(c->p);
  c->p = NULL;
  c->code = NULL;
}

static void sort_beam(search *s) {
  if (s->beam.n) qsort(s->beam.at, s->beam.n, sizeof *s->beam.at, by_candidate_score);
}

// Keeps the best `width` candidates of the beam whose results are right.
static void prune(search *s, int width) {
  size_t kept = 0;
  sort_beam(s);
  for (size_t i = 0; i < s->beam.n; i++) {
    candidate *c = s->beam.at[i];
    if (kept < (size_t)width && !c->checked) {
      c->checked = true;
      c->right = s->s->right(s->s->ctx, c);
      s->out->wrong += !c->right;
    }
    if (kept < (size_t)width && c->right) s->beam.at[kept++] = c;
    else forget_candidate(s, c);
  }
  s->beam.n = kept;
}

static void search_progress(const search *s) {
  if (s->s->progress) s->s->progress(s->s->ctx, fmin(1, (now_s() - s->began) / fmax(s->o->seconds, 1e-3)));
}

static int by_prediction(const void *x, const void *y) {
  const candidate *a = *(candidate *const *)x, *b = *(candidate *const *)y;
  return (a->predicted_us > b->predicted_us) - (a->predicted_us < b->predicted_us);
}

// Sorts candidates by predicted time (those without a prediction first) and drops those predicted to be several times
// slower than the heuristic's kernel.
static void rank_waiting(search *s, candidates *c) {
  size_t kept = 0;
  if (!s->s->predict || !c->n) return;
  s->s->predict(s->s->ctx, c->at, (int)c->n);
  qsort(c->at, c->n, sizeof *c->at, by_prediction);
  for (size_t i = 0; i < c->n; i++) {
    if (s->base->predicted_us > 0 && c->at[i]->predicted_us > HOPELESS * s->base->predicted_us)
      forget_candidate(s, c->at[i]);
    else c->at[kept++] = c->at[i];
  }
  c->n = kept;
}

// Makes and times waiting candidates in batches, until time is up. Timed candidates join the beam.
static void race_waiting(search *s, candidates *c) {
  rank_waiting(s, c);
  for (size_t i = 0; i < c->n;) {
    if (seconds_left(s) <= s->batch_s / 2) { s->out->cut = true; return; }
    double start = now_s();
    candidate *batch[64];
    int n = 0, m = 0;
    while (n < s->batch && n < (int)COUNT(batch) && i < c->n) batch[n++] = c->at[i++];
    s->s->make(s->s->ctx, batch, n);
    s->out->tried += n;
    for (int j = 0; j < n; j++) {
      if (batch[j]->code) batch[m++] = batch[j];
      else forget_candidate(s, batch[j]);
    }
    s->out->compiled += m;
    if (m) race(s, batch, m, RACE);
    for (int j = 0; j < m; j++) vec_push(&s->beam, batch[j]);
    prune(s, s->o->width);
    search_progress(s);
    s->batch_s = now_s() - start;
  }
}

// The heuristic's list and its prefixes, each with one more op; ops that end the list (of_loads) stay at its end.
static void neighbours(search *s, candidates *c, const opt *h, int n) {
  opt o[MOST_OPTS];
  int tail = 0;
  while (tail < n && opt_row_of(h[n - 1 - tail].kind)->of_loads) tail++;
  extend_by_one(s, c, h, n);
  for (int whole = 0, m = n - tail; whole < 2; whole++, m = n - tail)
    while (m-- > s->prefix && (!whole || m >= n - tail - 2)) {
      if (m) memcpy(o, h, (size_t)m * sizeof *o);
      if (tail) memcpy(o + m, h + n - tail, (size_t)tail * sizeof *o);
      if (whole) extend_by_one(s, c, o, m + tail);
      else add_candidate(s, c, o, m + tail);
    }
}

static void first_round(search *s, const opt *h, int n) {
  candidates c = {0};
  for (int i = 0; i < s->o->n_hints; i++) add_candidate(s, &c, s->o->hints[i].opts, s->o->hints[i].n);
  neighbours(s, &c, h, n);
  race_waiting(s, &c);
  vec_free(&c);
}

static void next_round(search *s) {
  candidates c = {0};
  opt from[64][MOST_OPTS];
  int n[64], width = (int)s->beam.n < (int)COUNT(from) ? (int)s->beam.n : (int)COUNT(from);
  for (int i = 0; i < width; i++) { memcpy(from[i], s->beam.at[i]->opts, sizeof from[i]); n[i] = s->beam.at[i]->n; }
  for (int i = 0; i < width; i++) extend_by_one(s, &c, from[i], n[i]);
  race_waiting(s, &c);
  vec_free(&c);
}

// The winner must win again, in a longer race.
static void race_winner(search *s) {
  search_result *out = s->out;
  if (s->beam.n && s->beam.at[0]->score < 1) race(s, s->beam.at, (int)s->beam.n, FINAL_RACE);
  sort_beam(s);
  out->us = out->heuristic_us;
  out->score = 1;
  if (!s->beam.n || s->beam.at[0]->score >= GAIN) return;
  out->best = s->beam.at[0];
  out->us = out->best->best_us;
  out->score = out->best->score;
}

// The ops that every candidate keeps, and the maximum size of a candidate.
static void set_bounds(search *s, const opt *own, int n) {
  graph *g = graph_new(s->parent);
  kernel k;
  s->own = own;
  s->prefix = deciding_prefix(g, s->ast, s->s->t, own, n);
  s->copies = replay_opts(&k, g, s->ast, s->s->t, own, n) ? max_i64(64, copies_of(&k) * COPIES_MORE) : 64;
  graph_free(g);
}

// Is l equal to `from` without one op of this kind, which concerns loads?
static bool only_lacks(const opt_list *l, const opt *from, int n, enum opt_kind kind) {
  opt o[MOST_OPTS];
  for (int i = 0; i < n && opt_row_of(kind)->of_loads; i++)
    if (from[i].kind == kind && without_kind(from, n, kind, from[i].axis, o) == l->n &&
        !memcmp(l->opts, o, (size_t)l->n * sizeof *o))
      return true;
  return false;
}

// Ranks by the last op; a list that lacks one op of loads by that op; other shorter lists come last.
static int rank_by_last(const opt_list *l, const opt *from, int n) {
  enum { LAST = OPT_COUNT };
  int rank = LAST;
  for (int kind = 0; kind < OPT_COUNT; kind++) {
    int own = opt_row_of((enum opt_kind)kind)->rank;
    if (own && own < rank &&
        (l->n < n ? only_lacks(l, from, n, (enum opt_kind)kind) : l->n && (int)l->opts[l->n - 1].kind == kind))
      rank = own;
  }
  return rank;
}

int search_neighbours(graph *parent, uop *ast, const target *t, const opt *from, int n, opt_list *out, int most) {
  search s = {.parent = parent, .ast = merged_main(ast), .s = &(search_target){.t = t}};
  candidates c = {0};
  int made = 0, ranks = 0;
  set_bounds(&s, from, n);
  neighbours(&s, &c, from, n);
  for (int rank = 0; ranks < (int)c.n; rank++)
    for (size_t i = 0; i < c.n; i++) {
      opt_list l = {.n = c.at[i]->n};
      memcpy(l.opts, c.at[i]->opts, sizeof l.opts);
      if (rank_by_last(&l, from, n) != rank) continue;
      ranks++;
      if (made < most && (l.n != n || memcmp(l.opts, from, (size_t)n * sizeof *from))) out[made++] = l;
    }
  for (size_t i = 0; i < s.all.n; i++) free(s.all.at[i]);
  vec_free(&s.all);
  vec_free(&c);
  return made;
}

int search_kernel(graph *parent, uop *ast, const search_target *t, const search_options *o, search_result *out) {
  search s = {.parent = parent, .ast = merged_main(ast), .s = t, .o = o, .began = now_s(), .out = out,
              .base = xcalloc(1, sizeof *s.base)};
  *out = (search_result){.score = 1};
  t->make(t->ctx, &s.base, 1);
  // slow compilation: smaller batches
  s.batch = now_s() - s.began > SLOW_S && t->batch > 1 ? t->batch / 2 : t->batch;
  int r = s.base->code ? 0 : -1;
  if (!r) {
    const program *p = s.base->p;
    set_bounds(&s, p->applied, p->n_applied);
    if (t->predict) t->predict(t->ctx, &s.base, 1);
    out->heuristic_us = fmin(t->sample(t->ctx, s.base), t->sample(t->ctx, s.base));
    bool enough = o->skip_us > 0 && out->heuristic_us <= o->skip_us;
    if (!enough) first_round(&s, p->applied, p->n_applied);
    for (int i = 1; i < MAX_ROUNDS && s.beam.n && !enough && !out->cut; i++) {
      double before = s.beam.at[0]->score;
      if (o->skip_us > 0 && s.beam.at[0]->best_us <= o->skip_us) break;
      next_round(&s);
      if (!s.beam.n || s.beam.at[0]->score > before * GAIN) break;
    }
    race_winner(&s);
  }
  for (size_t i = 0; i < s.all.n; i++)
    if (s.all.at[i] != out->best) {
      forget_candidate(&s, s.all.at[i]);
      free(s.all.at[i]);
    }
  t->drop(t->ctx, s.base);
  program_free(s.base->p);
  free(s.base);
  vec_free(&s.all); vec_free(&s.beam);
  return r;
}

void search_free(const search_target *t, candidate *c) {
  if (!c) return;
  t->drop(t->ctx, c);
  program_free(c->p);
  free(c);
}
