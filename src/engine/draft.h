// draft: tokens that may follow a text. A source of drafts is a row of functions over something of its own;
// speculation.c asks its sources at each token, chooses the one from which most tokens a second are to be expected, or
// none, and has the model evaluate what that one says.
//
// draft_text.c: what came behind the same words before.  draft_model.c: what a smaller model thinks.  draft_mtp.c: what
// the model itself thinks, by a block for that.  draft_odds.c: what drafts are worth.
#ifndef WEFT_DRAFT_H
#define WEFT_DRAFT_H
#include "base/base.h"
#include "model/model.h"
#include "weft.h"

// The text so far: n tokens, and `id` behind them.
typedef struct draft_context { const int32_t *past; size_t n; int32_t id; } draft_context;

// What a source could say now.
// asked: the caller asks for drafts of this source. tries: tokens whose time it may owe; 0: it spends what it has won.
// read_s: seconds until it has read the text, if that is long. token_s: of each token that it says; 0: none, or
// unknown. p: how likely it holds its first token, and the others without knowing more; 0: only when it has said it.
// least, most: tokens of a draft; most 0: as many as there is room for.
typedef struct draft_estimate { bool asked; double tries, read_s, token_s, p; size_t least, most; } draft_estimate;

// What a source says: ids, and how likely it holds each of them by its own lights. more: whether a further token is
// asked for behind the n that are there; one that costs nothing need not ask.
typedef struct draft_out {
  int32_t *ids;
  double *p;
  size_t most;
  bool (*more)(void *ctx, size_t n);
  void *ctx;
} draft_out;

// What drafts of a source have won so far, in seconds, and a share of all time. `balance` is of drafts alone,
// `total` counts what reading the text took, too.
typedef struct draft_account { double balance, total; } draft_account;

typedef struct draft_source {
  // Whether it may have something to say.
  bool (*offer)(void *own, const draft_context *t, draft_estimate *out);
  // Tokens that may follow. value_s: seconds that a right one is worth. What making them takes is charged to the
  // source's account. Returns their number; 0: it has nothing to say, or reads on first.
  size_t (*make)(void *own, const draft_context *t, double value_s, const draft_out *out);
  void (*close)(void *own);
} draft_source;

extern const draft_source draft_from_text, draft_from_model, draft_from_mtp;

void *draft_text_new(void);
void *draft_model_new(weft_draft *d);
void *draft_mtp_new(weft_draft *d, weft_sequence *q);                            // q NULL: weft_decode's

// ---- What drafts are worth ----

enum { DRAFT_ROWS = 1 + MODEL_BACK, DRAFT_LEVELS = 8 };

typedef struct draft_ratio { double n, right; } draft_ratio;
// How often drafted tokens of a source were accepted, lately, those before them being so: by how likely the source held
// them, by their place in the draft beside what that would say, and by place alone.
typedef struct draft_record { draft_ratio level[DRAFT_LEVELS], place[MODEL_BACK], all[MODEL_BACK]; } draft_record;
// Seconds of a step of n rows, lately; 0: unknown.
typedef struct draft_rows { double s[1 + DRAFT_ROWS]; uint32_t met[1 + DRAFT_ROWS]; } draft_rows;
// Of a model, for all texts: steps by plans of rows of one sequence alone, and of sequences; what its texts say.
typedef struct draft_measures { draft_rows rows[2]; draft_record text; } draft_measures;
draft_measures *weft_model_drafts(weft_model *m);

draft_account *draft_account_of(weft_draft *d);          // which all sequences share, as they do the record
draft_record *draft_record_of(weft_draft *d);

// How likely the token at a place of a draft is accepted, if those before it are. text: what this one text has of that
// which was expected of it.
double draft_odds(const draft_record *of, const draft_ratio *text, size_t place, double p);
double draft_mean_odds(const draft_record *of, const draft_ratio *text, size_t place);      // before p is known
void draft_judge(draft_record *of, draft_ratio *text, size_t place, double p, bool right);

void draft_time(double *mean, double s);
void draft_rows_took(draft_rows *r, size_t n, double s);
double draft_rows_s(const draft_rows *r, size_t n);
// The number of drafted tokens, 1 at least, by which most tokens a second are to be expected where each has these odds
// and costs token_s; *rate: that, beside steps without drafts.
size_t draft_best(const draft_rows *r, const double *odds, size_t most, double token_s, double *rate);
// Of n tokens that have been said, how many are to be evaluated at that rate, and what that is worth; 0: none.
size_t draft_cut(const draft_rows *r, const double *odds, size_t n, double rate, double *value);
// Whether a further one is worth its time; odds behind the n that are there: means.
bool draft_goes_on(const draft_rows *r, const double *odds, size_t n, size_t most, double token_s, double rate);

// Now, in seconds, for what steps take. On a processor it is that of the caller's thread: what others hold up is not
// what a row costs.
double draft_now(const weft_model *m);
// Seconds that went into making kernels: not what evaluating costs
double draft_compiled_s(const weft_model *m);
#endif
