// The sampler's internals, for sampler.c (the chain, the draw), sampler_stages.c and sampler_dry.c.
//
// A draw begins *dense*: x holds one logit per id, initially the caller's array, copied at the first change. The first
// stage that drops tokens converts the rest to a *list*, c[0..n), whose first n_sorted entries are the best in order.
// Most stages see only the few dozen tokens that top-k leaves.
#ifndef WEFT_SAMPLER_IMPL_H
#define WEFT_SAMPLER_IMPL_H
#include "engine/sampler.h"
#include "engine/portable_math.h"

struct cand { double logit; int32_t id; };
struct bias { int32_t id; float add; };
struct past { int32_t id; bool breaks; };        // a token of the text; breaks: a sequence breaker ends in it

// lists of at least MANY candidates are sorted by radix, shorter ones by a heap
enum { MAX_STAGES = 32, MANY = 1000 };
struct stage;

struct sampler {
  struct weft_sampling p;
  int32_t n_vocab;
  struct rng rng;
  const struct stage *chain[MAX_STAGES];
  int n_stages;
  VEC(struct bias) bias;
  uint32_t *bias_of;                   // for each token its index there + 1; NULL: no biases
  const uint64_t *mask;
  // the text so far, as far back as needed
  VEC(struct past) past;
  size_t keep;                                   // entries of past that are needed
  const tokenizer *vocab;                        // for breakers
  VEC(str) breakers;
  size_t longest_breaker;
  // for each token, two bits (sampler_dry.c): was it searched for breakers, and has it one; NULL: no breakers
  uint64_t *searched, *breaks;
  str tail;                                      // the end of the text, shorter than the longest breaker
  str piece;                                     // of a token that is searched
  double mu;                                     // mirostat's
  bool adapts;                                   // adaptive-p is the last stage
  double drawn_p, drawn_weight;                  // decayed sum of the probabilities drawn, and of their weights
  // of this draw
  const float *x;
  float *own;                                    // n_vocab, allocated when x must change
  bool dense;
  struct cand *c, *spare;                        // n_vocab each; spare is allocated on demand
  size_t n, n_sorted;
  double *weights;                               // n_vocab
  int32_t *notes;                                // n_vocab, all 0 between stages
  VEC(int32_t) noted;                            // ids whose note is not 0
  uint32_t *keys, *open;                         // n_vocab and twice that, for radix sort; allocated on demand
  VEC(int32_t) z;                                // for DRY
  VEC(double) penalties;                         // DRY's, by note; negative: not known yet
  char own_fault[160];                           // error of the program's own sampler in this draw
};

bool cand_better(struct cand a, struct cand b);
void best_first(struct cand *c, size_t n, size_t k);   // moves the k best of n (k <= n) to the front, best first

struct cand *sampler_spare(sampler *s);
float *sampler_editable(sampler *s);             // x as a modifiable copy
void sampler_list(sampler *s, double floor);     // dense to list: unbanned tokens with logits of at least floor
void sampler_order(sampler *s, size_t k);        // sorts the first k of the list, or all
double sampler_max(const sampler *s);            // the best logit; -INFINITY if the list is empty
double sampler_weigh(sampler *s);                // weights[i] = e^(logit - max) over the list; returns their sum
void sampler_keep_above(sampler *s, double floor);   // drops logits below floor, never the best one
void sampler_keep_marked(sampler *s);            // drops candidates with negative weights
// Keeps the smallest part of the list, best first by `by` (the list itself, or other logits for the same ids), whose
// weights reach target or (over) exceed it.
void sampler_keep_until(sampler *s, const struct cand *by, double target, bool over);
// Every token with a note gets the logit change(s, logit, note); then the notes are cleared.
void sampler_apply_notes(sampler *s, double (*change)(const sampler *s, double logit, int32_t note));
void sampler_note(sampler *s, int32_t id, int32_t note);
size_t sampler_window(const sampler *s, int32_t last_n);   // number of last tokens within last_n

void stage_penalties(sampler *s);
void stage_dry(sampler *s);
void stage_own(sampler *s);                      // the program's own; it may leave no candidate, with own_fault
void stage_top_n_sigma(sampler *s);
void stage_top_k(sampler *s);
void stage_typical(sampler *s);
void stage_top_p(sampler *s);
void stage_min_p(sampler *s);
void stage_xtc(sampler *s);
void stage_temperature(sampler *s);
void stage_mirostat(sampler *s);
void stage_mirostat_2(sampler *s);
void stage_adaptive(sampler *s);                 // spare[i].logit: the former probability of c[i]
void dry_accept(sampler *s, int32_t id, bool *breaks);     // searches the text for breakers
#endif
