// Sampling: see sampler.h. This file has the table of stages, both forms of candidates, and the draw. A new stage is a
// row of the table and a function in sampler_stages.c.
#include "engine/sampler_impl.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "base/plain.h"
#include "model/gguf.h"

// ---- the chain ------------------------------------------------------------------------------------------------------

struct stage {
  const char *names;         // the first one is displayed
  char letter;
  bool keeps_best;           // never changes the most probable token: skipped if that token is chosen anyway
  bool (*active)(const struct weft_sampling *p);
  void (*run)(sampler *s);
};

typedef const struct weft_sampling *params;
static bool has_penalties(params p) {
  return p->repeat_last_n && (p->repeat_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0);
}
static bool has_dry(params p) { return p->dry_last_n && p->dry_multiplier > 0; }
static bool has_sigma(params p) { return p->top_n_sigma > 0; }
static bool has_top_k(params p) { return p->top_k > 0; }
static bool has_typical(params p) { return p->typical_p < 1; }
static bool has_top_p(params p) { return p->top_p < 1; }
static bool has_min_p(params p) { return p->min_p > 0; }
static bool has_xtc(params p) { return p->xtc_probability > 0 && p->xtc_threshold <= .5; }
static bool has_adaptive(params p) { return p->adaptive_target >= 0; }
static bool has_temperature(params p) { return p->temp != 1 || p->dynatemp_range > 0; }

// In the default order.
static const struct stage stages[] = {
  {"penalties",                     'e', false, has_penalties,   stage_penalties},
  {"dry",                           'd', false, has_dry,         stage_dry},
  {"top_n_sigma|top_nsigma",        's', true,  has_sigma,       stage_top_n_sigma},
  {"top_k",                         'k', true,  has_top_k,       stage_top_k},
  {"typ_p|typical_p|typical",       'y', false, has_typical,     stage_typical},
  {"top_p|nucleus",                 'p', true,  has_top_p,       stage_top_p},
  {"min_p",                         'm', true,  has_min_p,       stage_min_p},
  {"xtc",                           'x', false, has_xtc,         stage_xtc},
  {"temperature|temp",              't', true,  has_temperature, stage_temperature},
};
enum { OWN_PLACE = 2, TEMPERATURE = COUNT(stages) - 1 };   // the program's own stage comes after dry
// Not in the default order, and always last if named: it makes the draw.
static const struct stage adaptive_stage = {"adaptive_p", 'a', false, has_adaptive, stage_adaptive};
// The program's own stage, if it has one.
static const struct stage own_stage = {"own", 'o', false, NULL, stage_own};
static const struct stage mirostat_stages[] = {{"mirostat", 0, true, NULL, stage_mirostat},
                                               {"mirostat_v2", 0, true, NULL, stage_mirostat_2}};

// Is name[0..n) one of a stage's names? - and _ are equal.
static bool has_name(const char *names, const char *name, size_t n) {
  for (; *names; names += *names == '|') {
    size_t len = strcspn(names, "|"), i = 0;
    while (len == n && i < n && (names[i] == name[i] || (names[i] == '_' && name[i] == '-'))) i++;
    if (len == n && i == n) return true;
    names += len;
  }
  return false;
}

// By name, or by letter if n is 0; NULL: unknown.
static const struct stage *find_sampler(const sampler *s, const char *name, size_t n) {
  if (s->p.own && (n ? has_name(own_stage.names, name, n) : own_stage.letter == *name)) return &own_stage;
  for (size_t i = 0; i <= COUNT(stages); i++) {
    const struct stage *row = i < COUNT(stages) ? &stages[i] : &adaptive_stage;
    if (n ? has_name(row->names, name, n) : row->letter == *name) return row;
  }
  return NULL;
}

static int unknown_stage(const char *name, size_t n, bool letter, error *err) {
  str known = {0};
  for (size_t i = 0; i <= COUNT(stages); i++) {
    const struct stage *row = i < COUNT(stages) ? &stages[i] : &adaptive_stage;
    int shown = (int)strcspn(row->names, "|");
    if (letter) str_addf(&known, "%s%c = %.*s", i ? ", " : "", row->letter, shown, row->names);
    else str_addf(&known, "%s%.*s", i ? ", " : "", shown, row->names);
  }
  error_set(err, "there is no sampler '%.*s' (known: %s)", (int)(n < 40 ? n : 40), name, known.at);
  str_free(&known);
  return -1;
}

static int add_stage(sampler *s, const struct stage *stage, error *err) {
  if (s->n_stages == MAX_STAGES) return error_set(err, "there are more than %d samplers", MAX_STAGES);
  s->chain[s->n_stages++] = stage;
  return 0;
}

// Reads the requested order, including inactive stages.
static int read_order(sampler *s, error *err) {
  const char *names = s->p.samplers, *letters = s->p.sampler_seq;
  if (!names && !letters) {
    for (size_t i = 0; i < COUNT(stages); i++) {
      if (i == OWN_PLACE && s->p.own) add_stage(s, &own_stage, NULL);
      add_stage(s, &stages[i], NULL);
    }
    return 0;
  }
  for (; !names && *letters; letters++) {
    const struct stage *found = find_sampler(s, letters, 0);
    if (!found) return unknown_stage(letters, 1, true, err);
    if (add_stage(s, found, err)) return -1;
  }
  while (names && *names) {
    size_t n = strcspn(names, ";");
    const struct stage *found = n ? find_sampler(s, names, n) : NULL;
    if (n && !found) return unknown_stage(names, n, false, err);
    if (n && add_stage(s, found, err)) return -1;
    names += n + (names[n] == ';');
  }
  return 0;
}

static void adaptive_last(sampler *s) {
  int n = 0;
  for (int i = 0; i < s->n_stages; i++) if (s->chain[i] != &adaptive_stage) s->chain[n++] = s->chain[i];
  if (n < s->n_stages) s->chain[n++] = &adaptive_stage;
  s->n_stages = n;
}

static bool has_own(const sampler *s) {
  for (int i = 0; i < s->n_stages; i++) if (s->chain[i] == &own_stage) return true;
  return false;
}

// Keeps only stages that have an effect.
static int make_chain(sampler *s, error *err) {
  if (read_order(s, err)) return -1;
  adaptive_last(s);
  if (s->p.own && !s->p.mirostat && !has_own(s))
    return error_set(
      err, "the program has a sampler of its own, and the order of samplers does not name it ('own', letter o)");
  if (s->p.mirostat) {
    s->n_stages = 0;
    if (s->p.own) add_stage(s, &own_stage, NULL);
    add_stage(s, &stages[TEMPERATURE], NULL);
    add_stage(s, &mirostat_stages[s->p.mirostat - 1], NULL);
  }
  bool greedy = false;       // walking backwards: does a later stage take the most probable token?
  int kept = MAX_STAGES;
  for (int i = s->n_stages; i-- > 0;) {
    const struct stage *stage = s->chain[i];
    if (stage->active && !stage->active(&s->p)) continue;
    if (greedy && stage->keeps_best) continue;
    if (!stage->keeps_best) greedy = false;        // it chooses among what earlier stages leave
    greedy |= stage == &stages[TEMPERATURE] && s->p.temp == 0 && s->p.dynatemp_range == 0;
    s->chain[--kept] = stage;
  }
  s->n_stages = MAX_STAGES - kept;
  memmove(s->chain, s->chain + kept, (size_t)s->n_stages * sizeof *s->chain);
  return 0;
}

// ---- order ----------------------------------------------------------------------------------------------------------

bool cand_better(struct cand a, struct cand b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// A heap with the worst candidate at its root.
static void sift(struct cand *heap, size_t n, size_t at) {
  struct cand moving = heap[at];
  for (size_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && cand_better(heap[child], heap[child + 1])) child++;
    if (cand_better(heap[child], moving)) break;
    heap[at] = heap[child];
  }
  heap[at] = moving;
}

static void heapify(struct cand *heap, size_t n) {
  for (size_t i = n / 2; i-- > 0;) sift(heap, n, i);
}

// Sorts a heap into a list, best first: repeatedly moves the worst to the end.
static void heap_to_list(struct cand *c, size_t n) {
  for (size_t left = n; left > 1; left--) {
    struct cand worst = c[0];
    c[0] = c[left - 1];
    c[left - 1] = worst;
    sift(c, left - 1, 0);
  }
}

void best_first(struct cand *c, size_t n, size_t k) {
  if (!k) return;
  heapify(c, k);
  for (size_t i = k; i < n; i++) {
    if (!cand_better(c[i], c[0])) continue;
    struct cand out = c[0];
    c[0] = c[i];
    c[i] = out;
    sift(c, k, 0);
  }
  heap_to_list(c, k);
}

// ---- candidates -----------------------------------------------------------------------------------------------------

enum { BLOCK = 16 };

// Is one of BLOCK numbers at least floor? Most blocks are skipped by this test.
static bool block_reaches(const float *x, float floor) {
  int any = 0;
  for (int i = 0; i < BLOCK; i++) any |= x[i] >= floor;
  return any;
}

static struct cand cand_of(const float *x, size_t id) {
  return (struct cand){x[id] > FLT_MAX ? FLT_MAX : x[id], (int32_t)id};
}

float *sampler_editable(sampler *s) {
  if (!s->own) s->own = xmalloc((size_t)s->n_vocab * sizeof *s->own);
  if (s->x != s->own) memcpy(s->own, s->x, (size_t)s->n_vocab * sizeof *s->own);
  s->x = s->own;
  return s->own;
}

struct cand *sampler_spare(sampler *s) {
  if (!s->spare) s->spare = xmalloc((size_t)s->n_vocab * sizeof *s->spare);
  return s->spare;
}

void sampler_list(sampler *s, double floor) {
  size_t n = (size_t)s->n_vocab, i = 0;
  float low = floor > -FLT_MAX ? (float)floor : -FLT_MAX;
  if (low > floor && low > -FLT_MAX) low = nextafterf(low, -INFINITY);
  s->n = s->n_sorted = 0;
  s->dense = false;
  for (; i < n; i++) {
    if (i % BLOCK == 0) while (i + BLOCK <= n && !block_reaches(s->x + i, low)) i += BLOCK;
    if (i < n && s->x[i] >= low && (double)s->x[i] >= floor) s->c[s->n++] = cand_of(s->x, i);
  }
}

// The k best logits as a sorted list. Keeps a heap of the k best so far; hardly any block reaches the worst of them.
static void list_best(sampler *s, size_t k) {
  size_t n = (size_t)s->n_vocab, i = 0;
  struct cand *c = s->c;
  s->n = 0;
  s->dense = false;
  for (; i < n && s->n < k; i++) if (s->x[i] >= -FLT_MAX) c[s->n++] = cand_of(s->x, i);
  heapify(c, s->n);
  for (; i < n; i++) {
    if (i % BLOCK == 0) while (i + BLOCK <= n && !block_reaches(s->x + i, (float)c[0].logit)) i += BLOCK;
    if (i == n || !(s->x[i] > c[0].logit)) continue;   // an equal one has a higher id
    c[0] = cand_of(s->x, i);
    sift(c, s->n, 0);
  }
  heap_to_list(c, s->n);
  s->n_sorted = s->n;
}

// Logits as integers in the same order, except for the last bits of a double.
static uint32_t order_bits(double x) {
  float f = (float)x + 0.f;                        // -0 and 0 are the same
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static void make_keys(sampler *s, const struct cand *by, size_t n) {
  if (!s->keys) s->keys = xmalloc((size_t)s->n_vocab * sizeof *s->keys);
  if (!s->open) s->open = xmalloc(2 * (size_t)s->n_vocab * sizeof *s->open);
  for (size_t i = 0; i < n; i++) { s->keys[i] = order_bits(by[i].logit); s->open[i] = (uint32_t)i; }
}

// Sorts the whole list by radix, then elements with equal keys.
static void sort_list(sampler *s) {
  enum { BITS = 11, BUCKETS = 1 << BITS };
  size_t n = s->n;
  make_keys(s, s->c, n);
  uint32_t *from = s->open, *to = from + s->n_vocab;
  for (int shift = 0; shift < 32; shift += BITS) {
    uint32_t start[BUCKETS + 1] = {0};
    for (size_t i = 0; i < n; i++) start[(~s->keys[i] >> shift & (BUCKETS - 1)) + 1]++;
    for (int i = 0; i < BUCKETS; i++) start[i + 1] += start[i];
    for (size_t i = 0; i < n; i++) to[start[~s->keys[from[i]] >> shift & (BUCKETS - 1)]++] = from[i];
    uint32_t *swap = from;
    from = to;
    to = swap;
  }
  struct cand *sorted = sampler_spare(s);
  for (size_t i = 0; i < n; i++) sorted[i] = s->c[from[i]];
  for (size_t i = 0, end; i < n; i = end) {
    bool in_order = true;
    for (end = i + 1; end < n && s->keys[from[end]] == s->keys[from[i]]; end++)
      in_order &= cand_better(sorted[end - 1], sorted[end]);
    if (!in_order) best_first(sorted + i, end - i, end - i);
  }
  memcpy(s->c, sorted, n * sizeof *sorted);
  s->n_sorted = n;
}

void sampler_order(sampler *s, size_t k) {
  if (s->dense) { list_best(s, k); return; }
  if (k > s->n) k = s->n;
  if (k <= s->n_sorted) return;
  if (k > MANY) { sort_list(s); return; }
  best_first(s->c + s->n_sorted, s->n - s->n_sorted, k - s->n_sorted);
  s->n_sorted = k;
}

double sampler_max(const sampler *s) {
  double max = -INFINITY;
  if (s->dense) {
    float four[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};   // independent sums
    for (int32_t i = 0; i < s->n_vocab; i++) if (s->x[i] > four[i & 3]) four[i & 3] = s->x[i];
    for (int i = 0; i < 4; i++) if (four[i] > max) max = four[i];
    return max > FLT_MAX ? FLT_MAX : max;
  }
  if (s->n_sorted) return s->c[0].logit;
  for (size_t i = 0; i < s->n; i++) if (s->c[i].logit > max) max = s->c[i].logit;
  return max;
}

double sampler_weigh(sampler *s) {
  double max = sampler_max(s), sum = 0;
  for (size_t i = 0; i < s->n; i++) s->weights[i] = s->c[i].logit - max;
  portable_exps(s->weights, s->n);
  for (size_t i = 0; i < s->n; i++) sum += s->weights[i];
  return sum;
}

void sampler_keep_above(sampler *s, double floor) {
  if (s->dense) { sampler_list(s, floor); return; }
  size_t n = 0, best = 0;
  for (size_t i = 1; i < s->n; i++) if (cand_better(s->c[i], s->c[best])) best = i;
  for (size_t i = 0; i < s->n; i++) if (s->c[i].logit >= floor || i == best) s->c[n++] = s->c[i];
  s->n = n;
  if (s->n_sorted > n) s->n_sorted = n;
}

void sampler_keep_marked(sampler *s) {
  size_t n = 0, sorted = 0;
  for (size_t i = 0; i < s->n; i++) {
    if (s->weights[i] < 0) continue;
    sorted += i < s->n_sorted;
    s->c[n++] = s->c[i];
  }
  s->n = n;
  s->n_sorted = sorted;
}

// ---- the best candidates that reach a total weight ------------------------------------------------------------------
//
// Without sorting: weights are summed by the first bits of the logits, from the top to the bucket that reaches the
// target, then within that bucket by the next bits. Candidates that agree in all bits of a float are sorted; there is
// rarely more than one.

// The last step: sorts candidates open[0..n), which agree in all bits, and keeps some.
static void keep_ties(sampler *s, const struct cand *by, size_t n, double sum, double target, bool over) {
  struct cand *tie = xmalloc(n * sizeof *tie);
  bool sorted = true;
  for (size_t i = 0; i < n; i++) {
    tie[i] = by[s->open[i]];
    s->notes[tie[i].id] = (int32_t)s->open[i];
    sorted &= !i || cand_better(tie[i - 1], tie[i]);
  }
  if (!sorted) best_first(tie, n, n);
  bool enough = false;
  for (size_t i = 0; i < n; i++) {
    double *weight = &s->weights[s->notes[tie[i].id]];
    s->notes[tie[i].id] = 0;
    if (enough) { *weight = -1; continue; }
    sum += *weight;
    enough = over ? sum > target : sum >= target;
  }
  free(tie);
}

void sampler_keep_until(sampler *s, const struct cand *by, double target, bool over) {
  enum { STEPS = 3, BUCKETS = 1 << 11 };
  static const int shift[STEPS] = {21, 10, 0}, bits[STEPS] = {11, 11, 10};
  double sums[BUCKETS], sum = 0;
  uint32_t counts[BUCKETS];
  size_t n = s->n;
  make_keys(s, by, n);
  for (int step = 0; step < STEPS && n; step++) {
    uint32_t mask = ((uint32_t)1 << bits[step]) - 1, at = mask;
    memset(sums, 0, sizeof sums);
    memset(counts, 0, sizeof counts);
    for (size_t i = 0; i < n; i++) {
      uint32_t bucket = s->keys[s->open[i]] >> shift[step] & mask;
      sums[bucket] += s->weights[s->open[i]];
      counts[bucket]++;
    }
    for (; at && (!counts[at] || (over ? sum + sums[at] <= target : sum + sums[at] < target)); at--) sum += sums[at];
    size_t left = 0;                             // within the bucket that reaches the target; lower ones are dropped
    for (size_t i = 0; i < n; i++) {
      uint32_t k = s->open[i], bucket = s->keys[k] >> shift[step] & mask;
      if (bucket == at) s->open[left++] = k;
      else if (bucket < at) s->weights[k] = -1;
    }
    n = left;
  }
  if (n) keep_ties(s, by, n, sum, target, over);
  sampler_keep_marked(s);
}

// ---- helpers for stages ---------------------------------------------------------------------------------------------

void sampler_note(sampler *s, int32_t id, int32_t note) {
  if (!s->notes[id]) vec_push(&s->noted, id);
  s->notes[id] = note;
}

void sampler_apply_notes(sampler *s, double (*change)(const sampler *s, double logit, int32_t note)) {
  if (s->noted.n && s->dense) {
    float *x = sampler_editable(s);
    for (size_t i = 0; i < s->noted.n; i++) {
      int32_t id = s->noted.at[i];
      if (!(x[id] >= -FLT_MAX)) continue;          // banned
      double to = change(s, x[id], s->notes[id]);
      x[id] = (float)(to > FLT_MAX ? FLT_MAX : to < -FLT_MAX ? -FLT_MAX : to);
    }
  } else if (s->noted.n) {
    for (size_t i = 0; i < s->n; i++) {
      int32_t note = s->notes[s->c[i].id];
      if (note) s->c[i].logit = change(s, s->c[i].logit, note);
    }
    s->n_sorted = 0;
  }
  for (size_t i = 0; i < s->noted.n; i++) s->notes[s->noted.at[i]] = 0;
  s->noted.n = 0;
}

size_t sampler_window(const sampler *s, int32_t last_n) {
  return last_n < 0 || (size_t)last_n > s->past.n ? s->past.n : (size_t)last_n;
}

// ---- a draw ---------------------------------------------------------------------------------------------------------

static void ban(sampler *s) {
  if (!s->own) s->own = xmalloc((size_t)s->n_vocab * sizeof *s->own);
  size_t n = (size_t)s->n_vocab;
  const float *x = s->x;
  float *to = s->own;
  for (size_t i = 0; i < n; i += 64) {
    uint64_t allowed = s->mask[i / 64];
    size_t m = n - i < 64 ? n - i : 64;
    if (!~allowed) memcpy(to + i, x + i, m * sizeof *to);
    else if (!allowed) for (size_t k = 0; k < m; k++) to[i + k] = -INFINITY;
    else for (size_t k = 0; k < m; k++) to[i + k] = allowed >> k & 1 ? x[i + k] : -INFINITY;
  }
  s->x = to;
}

static void add_biases(sampler *s) {
  float *x = sampler_editable(s);
  for (size_t i = 0; i < s->bias.n; i++) {
    float to = x[s->bias.at[i].id] + s->bias.at[i].add;
    x[s->bias.at[i].id] = to > FLT_MAX ? FLT_MAX : to;
  }
}

// llama.cpp's longest memory: 100 tokens.
static double adaptive_decay(const sampler *s) { return s->p.adaptive_decay < .99 ? s->p.adaptive_decay : .99; }

// As if all earlier draws had the target probability.
static void forget_drawn(sampler *s) {
  s->mu = 2 * s->p.mirostat_tau;
  s->drawn_weight = 1 / (1 - adaptive_decay(s));
  s->drawn_p = s->p.adaptive_target * s->drawn_weight;
  s->adapts = s->n_stages && s->chain[s->n_stages - 1] == &adaptive_stage;
}

// Draws one of the list.
static int32_t draw(sampler *s) {
  double sum = sampler_weigh(s), target = s->n > 1 ? rng_unit(&s->rng) * sum : 0, upto = 0;
  size_t last = 0;
  for (size_t i = 0; i < s->n; i++) {
    if (s->weights[i] <= 0) continue;
    last = i;
    if ((upto += s->weights[i]) > target) break;
  }
  if (s->p.mirostat) {
    double surprise = (portable_log(sum) - portable_log(s->weights[last])) * 1.4426950408889634;
    s->mu -= s->p.mirostat_eta * (surprise - s->p.mirostat_tau);
  }
  if (s->adapts) {
    s->drawn_p = s->spare[last].logit + adaptive_decay(s) * s->drawn_p;
    s->drawn_weight = 1 + adaptive_decay(s) * s->drawn_weight;
  }
  return s->c[last].id;
}

const char *sampler_own_fault(const sampler *s) { return s->own_fault[0] ? s->own_fault : NULL; }

void sampler_bans(const sampler *s, int32_t *by_mask, int32_t *by_bias) {
  *by_mask = *by_bias = 0;
  for (int32_t i = 0; s->mask && i < s->n_vocab; i++) *by_mask += !(s->mask[i / 64] >> i % 64 & 1);
  for (size_t i = 0; i < s->bias.n; i++) *by_bias += s->bias.at[i].add == -INFINITY;
}

int32_t sampler_sample(sampler *s, const float *logits) {
  s->own_fault[0] = 0;
  s->x = logits;
  s->dense = true;
  if (s->mask) ban(s);
  if (s->bias.n) add_biases(s);
  for (int i = 0; i < s->n_stages; i++) {
    s->chain[i]->run(s);
    if (!s->dense && !s->n) return -1;
  }
  if (s->dense) sampler_list(s, -INFINITY);
  return s->n ? draw(s) : -1;
}

// ---- life -----------------------------------------------------------------------------------------------------------

// A parameter: name for errors, place in struct weft_sampling (a double or an int32_t), default (llama.cpp's), minimum
// and maximum.
struct parameter { const char *what; size_t at; bool real; double usual, min, max; };
#define ROW(what, field, usual, min, max) \
  {what, offsetof(struct weft_sampling, field), \
   _Generic(((struct weft_sampling *)0)->field, double: true, int32_t: false), usual, min, max}
static const struct parameter parameters[] = {
  ROW("the temperature", temp, .8, 0, 1e6),
  ROW("the range of the dynamic temperature", dynatemp_range, 0, 0, 1e6),
  ROW("the exponent of the dynamic temperature", dynatemp_exponent, 1, 0, 1e3),
  ROW("top-k", top_k, 40, INT32_MIN, INT32_MAX),
  ROW("top-p", top_p, .95, 0, 1),
  ROW("min-p", min_p, .05, 0, 1),
  ROW("typical-p", typical_p, 1, 0, 1),
  ROW("top-n-sigma", top_n_sigma, -1, -1e6, 1e6),
  ROW("the XTC probability", xtc_probability, 0, 0, 1),
  ROW("the XTC threshold", xtc_threshold, .1, 0, 1),
  ROW("the repeat penalty", repeat_penalty, 1, 1e-6, 1e6),
  ROW("the frequency penalty", frequency_penalty, 0, -1e6, 1e6),
  ROW("the presence penalty", presence_penalty, 0, -1e6, 1e6),
  ROW("repeat-last-n", repeat_last_n, 64, -1, INT32_MAX),
  ROW("the DRY multiplier", dry_multiplier, 0, 0, 1e6),
  ROW("the DRY base", dry_base, 1.75, 1, 1e6),
  ROW("the DRY allowed length", dry_allowed_length, 2, 0, INT32_MAX),
  ROW("DRY's last-n", dry_last_n, 64, -1, INT32_MAX),
  ROW("mirostat", mirostat, 0, 0, 2),
  ROW("mirostat's tau", mirostat_tau, 5, 0, 1e3),
  ROW("mirostat's eta", mirostat_eta, .1, 0, 1e3),
  ROW("adaptive-p's target", adaptive_target, -1, -1e6, 1),
  ROW("adaptive-p's decay", adaptive_decay, .9, 0, 1),
};
#undef ROW

struct weft_sampling sampler_default(void) {
  struct weft_sampling p = {0};
  for (const struct parameter *row = parameters; row < parameters + COUNT(parameters); row++) {
    char *to = (char *)&p + row->at;
    if (row->real) memcpy(to, &row->usual, sizeof row->usual);
    else memcpy(to, &(int32_t){(int32_t)row->usual}, sizeof(int32_t));
  }
  return p;
}

static double sampling_parameter(params p, const struct parameter *row) {
  const char *at = (const char *)p + row->at;
  return row->real ? *(const double *)at : *(const int32_t *)at;
}

// Files may set some parameters, with keys below "general.sampling.".
#define KEY(name, field) {"general.sampling." name, offsetof(struct weft_sampling, field)}
static const struct file_key { const char *key; size_t at; } file_keys[] = {
  KEY("temp", temp), KEY("top_k", top_k), KEY("top_p", top_p), KEY("min_p", min_p),
  KEY("xtc_probability", xtc_probability), KEY("xtc_threshold", xtc_threshold),
  KEY("penalty_last_n", repeat_last_n), KEY("penalty_repeat", repeat_penalty), KEY("mirostat", mirostat),
  KEY("mirostat_tau", mirostat_tau), KEY("mirostat_eta", mirostat_eta),
};
#undef KEY

static int check_parameters(params p, error *err);

static int take_file_key(const gguf *g, const struct file_key *k, struct weft_sampling *p, error *err) {
  const struct parameter *row = parameters;
  struct weft_sampling with = *p;
  error why = {0};
  double real;
  int32_t whole = 0;
  while (row->at != k->at) row++;
  // the number as written by the file's maker: 0.95, not 0.949999988
  float f = 0;
  if (row->real ? gguf_f32(g, k->key, &f, err) : gguf_i32(g, k->key, &whole, err)) return -1;
  char text[32];
  plain_snprintf(text, sizeof text, "%.7g", row->real ? (double)f : 0);
  real = plain_strtod(text, NULL);
  memcpy((char *)&with + row->at, row->real ? (const void *)&real : &whole, row->real ? sizeof real : sizeof whole);
  if (check_parameters(&with, &why)) return gguf_fail(g, k->key, err, "%s", why.text);
  *p = with;
  return 0;
}

int sampler_of_file(const gguf *g, struct weft_sampling *p, error *err) {
  int status = 0;
  for (size_t i = 0; i < COUNT(file_keys); i++) {
    error why = {0};
    if (!gguf_find(g, file_keys[i].key) || !take_file_key(g, &file_keys[i], p, &why)) continue;
    if (!status) error_set(err, "%s", why.text);
    status = -1;
  }
  return status;
}

static int check_parameters(params p, error *err) {
  for (const struct parameter *row = parameters; row < parameters + COUNT(parameters); row++) {
    double is = sampling_parameter(p, row);
    if (is >= row->min && is <= row->max) continue;
    if (row->max >= INT32_MAX)
      return error_set(err, "%s is %.10g; it must be %g or more", row->what, is, row->min);
    return error_set(err, "%s is %.10g; it must lie between %g and %g", row->what, is, row->min, row->max);
  }
  if (p->temp > 0 && p->temp < 1e-6)
    return error_set(err, "the temperature is %g; it must be 0, or 0.000001 or more", p->temp);
  return 0;
}

int sampler_new(const struct weft_sampling *p, int32_t n_vocab, sampler **out, error *err) {
  if (n_vocab < 1) return error_set(err, "sampling needs a vocabulary; this one has %d tokens", n_vocab);
  if (check_parameters(p, err)) return -1;
  sampler *s = xcalloc(1, sizeof *s);
  s->p = *p;
  s->n_vocab = n_vocab;
  if (make_chain(s, err)) { free(s); return -1; }
  s->p.samplers = s->p.sampler_seq = NULL;         // owned by the caller
  forget_drawn(s);
  rng_seed(&s->rng, p->seed);
  for (int i = 0; i < s->n_stages; i++) {
    int32_t last_n = s->chain[i]->run == stage_penalties ? p->repeat_last_n
                     : s->chain[i]->run == stage_dry     ? p->dry_last_n
                                                         : 0;
    size_t wanted = last_n < 0 ? SIZE_MAX : (size_t)last_n;
    if (wanted > s->keep) s->keep = wanted;
  }
  s->notes = xcalloc((size_t)n_vocab, sizeof *s->notes);
  s->c = xmalloc((size_t)n_vocab * sizeof *s->c);
  s->weights = xmalloc((size_t)n_vocab * sizeof *s->weights);
  *out = s;
  return 0;
}

static void free_breakers(sampler *s) {
  for (size_t i = 0; i < s->breakers.n; i++) str_free(&s->breakers.at[i]);
  vec_free(&s->breakers);
  free(s->searched); free(s->breaks);
  s->searched = s->breaks = NULL;
}

void sampler_free(sampler *s) {
  if (!s) return;
  free_breakers(s);
  str_free(&s->tail);
  str_free(&s->piece);
  vec_free(&s->bias);
  free(s->bias_of);
  vec_free(&s->past);
  vec_free(&s->noted);
  vec_free(&s->z);
  vec_free(&s->penalties);
  free(s->own);
  free(s->c);
  free(s->spare);
  free(s->keys);
  free(s->open);
  free(s->weights);
  free(s->notes);
  free(s);
}

void sampler_bias(sampler *s, int32_t id, float bias) {
  die_if(id < 0 || id >= s->n_vocab, "sampler: bias for token %d of %d", id, s->n_vocab);
  if (!s->bias_of) s->bias_of = xcalloc((size_t)s->n_vocab, sizeof *s->bias_of);
  uint32_t *at = &s->bias_of[id];
  if (*at) { s->bias.at[*at - 1].add = bias; return; }
  vec_push(&s->bias, ((struct bias){id, bias}));
  *at = (uint32_t)s->bias.n;
}

void sampler_mask(sampler *s, const uint64_t *allowed) { s->mask = allowed; }

int sampler_breakers(sampler *s, const tokenizer *t, const char *const *texts, size_t n, error *err) {
  enum { LONGEST = 256, MOST = 64 };
  if (n > MOST) return error_set(err, "there are %zu DRY sequence breakers; %d are allowed", n, MOST);
  for (size_t i = 0; i < n; i++) {
    size_t len = strlen(texts[i]);
    if (!len || len > LONGEST)
      return error_set(err, "a DRY sequence breaker has %zu bytes; it must have 1 to %d", len, LONGEST);
  }
  free_breakers(s);
  s->vocab = t;
  s->longest_breaker = 0;
  for (size_t i = 0; i < n; i++) {
    str text = {0};
    str_add(&text, texts[i]);
    vec_push(&s->breakers, text);
    if (text.n > s->longest_breaker) s->longest_breaker = text.n;
  }
  if (n) s->searched = xcalloc((size_t)s->n_vocab / 64 + 1, sizeof *s->searched);
  if (n) s->breaks = xcalloc((size_t)s->n_vocab / 64 + 1, sizeof *s->breaks);
  return 0;
}

void sampler_accept(sampler *s, int32_t id) {
  die_if(id < 0 || id >= s->n_vocab, "sampler: token %d of %d accepted", id, s->n_vocab);
  if (!s->keep) return;
  struct past p = {id, false};
  if (s->breakers.n) dry_accept(s, id, &p.breaks);
  if (s->past.n >= 1024 && s->past.n / 2 >= s->keep) {   // drops the older half, which is no longer needed
    memmove(s->past.at, s->past.at + (s->past.n - s->keep), s->keep * sizeof *s->past.at);
    s->past.n = s->keep;
  }
  vec_push(&s->past, p);
}

void sampler_reset(sampler *s) {
  s->past.n = s->tail.n = 0;
  forget_drawn(s);
}

// ---- log-probabilities ----------------------------------------------------------------------------------------------

int32_t sampler_logprobs(const sampler *s, int32_t id, double *of_id, struct logprob *top, int32_t n_top) {
  double sum = 0;
  struct cand *by = xmalloc((s->n + 1) * sizeof *by);          // candidates by weight
  size_t n = 0;
  *of_id = -INFINITY;
  for (size_t i = 0; i < s->n; i++) {
    if (s->weights[i] <= 0) continue;
    sum += s->weights[i];
    by[n++] = (struct cand){s->weights[i], s->c[i].id};
  }
  for (size_t i = 0; i < n; i++) if (by[i].id == id) *of_id = log(by[i].logit / sum);
  if ((size_t)n_top > n) n_top = (int32_t)n;
  if (n_top > 0) best_first(by, n, (size_t)n_top);
  for (int32_t i = 0; i < n_top; i++) top[i] = (struct logprob){by[i].id, log(by[i].logit / sum)};
  free(by);
  return n_top;
}

void logprobs(const float *logits, int32_t n, int32_t id, double *of_id, struct logprob *top, int32_t n_top) {
  double max = -INFINITY, sum = 0;
  for (int32_t i = 0; i < n; i++) if (logits[i] > max) max = logits[i];
  for (int32_t i = 0; i < n; i++) sum += exp(logits[i] - max);
  double log_sum = max + log(sum);
  *of_id = logits[id] - log_sum;
  if (n_top <= 0) return;
  struct cand *c = xmalloc((size_t)n * sizeof *c);
  for (int32_t i = 0; i < n; i++) c[i] = (struct cand){logits[i], i};
  best_first(c, (size_t)n, (size_t)n_top);
  for (int32_t i = 0; i < n_top; i++) top[i] = (struct logprob){c[i].id, c[i].logit - log_sum};
  free(c);
}
