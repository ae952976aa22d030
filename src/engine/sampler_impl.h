// The sampler's inside: what sampler.c (the chain, the draw), sampler_stages.c and sampler_dry.c share.
//
// A draw begins *dense*: x holds one logit for each id, at first the caller's array itself, a copy from the first
// change on. The first stage that drops tokens turns what it leaves into a *list*, c[0..n), whose first n_sorted
// entries are the best ones in order.  Most stages never see more than the few dozen tokens that top-k left.
#ifndef WEFT_SAMPLER_IMPL_H
#define WEFT_SAMPLER_IMPL_H
#include "engine/sampler.h"
#include "engine/portable_math.h"

struct cand { double logit; int32_t id; };
struct bias { int32_t id; float add; };
struct past { int32_t id; bool breaks; };        // a token of the text; breaks: a sequence breaker ends in it

// from MANY candidates on a list is sorted by digits, below by a heap
enum { MAX_STAGES = 32, MANY = 1000 };
struct stage;

struct sampler {
  struct weft_sampling p;
  int32_t n_vocab;
  struct rng rng;
  const struct stage *chain[MAX_STAGES];
  int n_stages;
  VEC(struct bias) bias;
  uint32_t *bias_of;                   // of each token its place there + 1; NULL: none has one
  const uint64_t *mask;
  // the text so far, as far back as anything looks
  VEC(struct past) past;
  size_t keep;                                   // entries of past that are wanted
  const tokenizer *vocab;                        // of the breakers
  VEC(str) breakers;
  size_t longest_breaker;
  str tail;                                      // the end of the text, shorter than the longest breaker
  str piece;                                     // of a token that may be a breaker
  double mu;                                     // mirostat's
  bool adapts;                                   // adaptive-p is the last stage
  double drawn_p, drawn_weight;                  //   the probabilities of what was drawn, and the sum of their weights
  // this draw
  const float *x;
  float *own;                                    // n_vocab, made when x has to be changed
  bool dense;
  struct cand *c, *spare;                        // n_vocab each; spare is made when it is needed
  size_t n, n_sorted;
  double *weights;                               // n_vocab
  int32_t *notes;                                // n_vocab, all 0 between stages
  VEC(int32_t) noted;                            // ids whose note is not 0
  uint32_t *keys, *open;                         // n_vocab and twice that, for ordering many; made when they are needed
  VEC(int32_t) z;                                // DRY's
  char own_fault[160];                           // what the program's own sampler did wrong in this draw
};

bool cand_better(struct cand a, struct cand b);
void best_first(struct cand *c, size_t n, size_t k);   // puts the k best of n (k <= n) in front, best first

struct cand *sampler_spare(sampler *s);
float *sampler_editable(sampler *s);             // x, to be changed
void sampler_list(sampler *s, double floor);     // dense to list: of what is not banned, the logits from floor on
void sampler_order(sampler *s, size_t k);        // the first k of the list, or all, are the best ones in order
double sampler_max(const sampler *s);            // the best logit; -INFINITY if there is none
double sampler_weigh(sampler *s);                // weights[i] = e^(logit - max) of the list; returns their sum
void sampler_keep_above(sampler *s, double floor);   // drops the logits below floor, never the best one
void sampler_keep_marked(sampler *s);            // drops the candidates whose weight is negative
// Keeps the fewest of the list, best first by `by` (the list itself, or other logits for the same ids), whose weights
// together reach target, or (over) exceed it.
void sampler_keep_until(sampler *s, const struct cand *by, double target, bool over);
// Every token with a note gets the logit change(s, logit, note); then there are no notes.
void sampler_apply_notes(sampler *s, double (*change)(const sampler *s, double logit, int32_t note));
void sampler_note(sampler *s, int32_t id, int32_t note);
size_t sampler_window(const sampler *s, int32_t last_n);   // how many of the last tokens a look-back of last_n sees

void stage_penalties(sampler *s);
void stage_dry(sampler *s);
void stage_own(sampler *s);                      // the program's; it may leave none, with own_fault
void stage_top_n_sigma(sampler *s);
void stage_top_k(sampler *s);
void stage_typical(sampler *s);
void stage_top_p(sampler *s);
void stage_min_p(sampler *s);
void stage_xtc(sampler *s);
void stage_temperature(sampler *s);
void stage_mirostat(sampler *s);
void stage_mirostat_2(sampler *s);
void stage_adaptive(sampler *s);                 // spare[i].logit: what the probability of c[i] was
void dry_accept(sampler *s, int32_t id, bool *breaks);     // follows the text for breakers
#endif
