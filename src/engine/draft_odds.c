// The value of a draft: the probability that each token is accepted, and the time of steps with several rows. Both are
// running means of measurements, starting from the constants below. See draft.h.
#include <math.h>
#include "engine/draft.h"

#define FIRST_ODDS 0.6       // initial acceptance of a token
#define FIRST_ROWS 1.4       // initial time of a step of two rows, relative to one
#define FIRST_ROW 0.05       // of each further row
#define WEIGHT 2.0           // weight of the initial values, in drafted tokens

// ---- accepted -------------------------------------------------------------------------------------------------------

static int level_of(double p) { return (int)fmin(fmax(p, 0) * DRAFT_LEVELS, DRAFT_LEVELS - 1); }

static void count_draft(draft_ratio *r, double n, double right, double keep) {
  r->n = keep * r->n + n;
  r->right = keep * r->right + right;
}

static double smoothed(const draft_ratio *r, double first) { return (r->right + WEIGHT * first) / (r->n + WEIGHT); }

double draft_odds(const draft_record *of, const draft_ratio *text, size_t place, double p) {
  double odds = smoothed(&of->level[level_of(p)], p);
  return fmin(odds * smoothed(&of->place[place], 1) * smoothed(text, 1), 0.99);
}

double draft_mean_odds(const draft_record *of, const draft_ratio *text, size_t place) {
  return fmin(smoothed(&of->all[place], FIRST_ODDS) * smoothed(text, 1), 0.99);
}

// Places and texts are counted relative to their expectation.
void draft_judge(draft_record *of, draft_ratio *text, size_t place, double p, bool right) {
  double at_level = smoothed(&of->level[level_of(p)], p), at_place = at_level * smoothed(&of->place[place], 1);
  count_draft(text, fmax(at_place, 0.05), right, 0.95);
  count_draft(&of->place[place], fmax(at_level, 0.05), right, 0.98);
  count_draft(&of->all[place], 1, right, 0.98);
  count_draft(&of->level[level_of(p)], 1, right, 0.98);
}

// ---- seconds --------------------------------------------------------------------------------------------------------

// Slow outliers count little, in either direction: the minimum times are the machine's.
void draft_time(double *mean, double s) {
  if (*mean <= 0) *mean = s;
  else *mean += s < *mean ? 0.3 * (s - *mean) : 0.1 * (fmin(s, 1.5 * *mean) - *mean);
}

void draft_rows_took(draft_rows *r, size_t n, double s) {
  // the first step of a plan touches its memory
  if (r->met[n]++ || n == 1) draft_time(&r->s[n], s);
}

// One or two measurements may be of interrupted steps: neighbouring lengths with more measurements are preferred.
static double measured_near(const draft_rows *r, size_t n) {
  enum { ENOUGH = 4 };
  double one = r->s[1];
  for (uint32_t least = ENOUGH; least; least = least > 1 ? 1 : 0)
    for (size_t far = 0; far < DRAFT_ROWS; far++) {
      size_t up = n + far, down = n >= far + 2 ? n - far : 0;
      if (up <= DRAFT_ROWS && r->s[up] > 0 && r->met[up] >= least) return r->s[up] - (double)far * FIRST_ROW * one;
      if (down && r->s[down] > 0 && r->met[down] >= least) return r->s[down] + (double)far * FIRST_ROW * one;
    }
  return one * (FIRST_ROWS + FIRST_ROW * (double)(n - 2));
}

double draft_rows_s(const draft_rows *r, size_t n) { return n < 2 ? r->s[1] : fmax(measured_near(r, n), r->s[1]); }

// ---- lengths --------------------------------------------------------------------------------------------------------

size_t draft_best(const draft_rows *r, const double *odds, size_t most, double token_s, double *rate) {
  double tokens = 1, all = 1, one = draft_rows_s(r, 1), best = 0;
  size_t at = 0;
  for (size_t n = 1; n <= most; n++) {
    all *= odds[n - 1];
    tokens += all;
    double of = one * tokens / (draft_rows_s(r, n + 1) + (double)n * token_s);
    if (of > best) { best = of; at = n; }
  }
  *rate = best;
  return at;
}

// Expected tokens minus their cost, if a step gains `rate` tokens in the time of one.
static double worth(const draft_rows *r, double tokens, size_t n, double rate) {
  return tokens - rate * draft_rows_s(r, n + 1) / draft_rows_s(r, 1);
}

size_t draft_cut(const draft_rows *r, const double *odds, size_t n, double rate, double *value) {
  double tokens = 1, all = 1, best = worth(r, 1, 0, rate);
  size_t at = 0;
  for (size_t k = 1; k <= n; k++) {
    all *= odds[k - 1];
    tokens += all;
    if (worth(r, tokens, k, rate) > best) { best = worth(r, tokens, k, rate); at = k; }
  }
  *value = best;
  return at;
}

bool draft_goes_on(const draft_rows *r, const double *odds, size_t n, size_t most, double token_s, double rate) {
  double tokens = 1, all = 1, value;
  draft_cut(r, odds, n, rate, &value);
  for (size_t k = 0; k < most; k++) {
    all *= odds[k];
    tokens += all;
    if (k < n) continue;
    double cost = rate * (double)(k + 1 - n) * token_s / draft_rows_s(r, 1);
    if (worth(r, tokens, k + 1, rate) - cost > value) return true;
  }
  return false;
}
