// draft: sources of draft tokens for speculative decoding. A source is a row of functions with private data;
// speculation.c queries its sources at each token, chooses the one with the highest expected tokens per second, or
// none, and has the model evaluate its draft.
//
// draft_text.c: earlier occurrences in the text. draft_model.c: a smaller model. draft_mtp.c: the model's own MTP
// block. draft_odds.c: the value of drafts.
#ifndef WEFT_DRAFT_H
#define WEFT_DRAFT_H
#include "base/base.h"
#include "model/model.h"
#include "weft.h"

// The text so far: n tokens, followed by `id`.
typedef struct draft_context { const int32_t *past; size_t n; int32_t id; } draft_context;

// What a source can offer now. asked: the user asked for drafts of this source. tries: number of tokens whose time it
// may owe; 0: it spends only what it has gained. read_s: seconds until it has read the text, if that is long. token_s:
// per drafted token; 0: free or unknown. p: probability of its first token, and of later ones; 0: known only with the
// draft. least, most: length of a draft; most 0: as long as possible.
typedef struct draft_estimate { bool asked; double tries, read_s, token_s, p; size_t least, most; } draft_estimate;

// A draft: ids, and the source's probability of each. more: is another token wanted after the first n? A free source
// need not ask.
typedef struct draft_out {
  int32_t *ids;
  double *p;
  size_t most;
  bool (*more)(void *ctx, size_t n);
  void *ctx;
} draft_out;

// Seconds that a source's drafts have gained so far, as a share of all time. `balance` counts drafts only, `total` also
// counts reading the text.
typedef struct draft_account { double balance, total; } draft_account;

typedef struct draft_source {
  // Does the source have an offer?
  bool (*offer)(void *own, const draft_context *t, draft_estimate *out);
  // Makes a draft. value_s: seconds that an accepted token saves. Its time is charged to the source's account. Returns
  // the number of tokens; 0: no draft, or the source reads the text first.
  size_t (*make)(void *own, const draft_context *t, double value_s, const draft_out *out);
  void (*close)(void *own);
} draft_source;

extern const draft_source draft_from_text, draft_from_model, draft_from_mtp;

void *draft_text_new(void);
void *draft_model_new(weft_draft *d);
void *draft_mtp_new(weft_draft *d, weft_sequence *q);                            // q NULL: weft_decode's

// ---- value of drafts ----

enum { DRAFT_ROWS = 1 + MODEL_BACK, DRAFT_LEVELS = 8 };

typedef struct draft_ratio { double n, right; } draft_ratio;
// Recent acceptance rates of a source's tokens, given that the tokens before were accepted: by the source's
// probability, by place in the draft relative to that, and by place only.
typedef struct draft_record { draft_ratio level[DRAFT_LEVELS], place[MODEL_BACK], all[MODEL_BACK]; } draft_record;
// Recent seconds of a step of n rows; 0: unknown.
typedef struct draft_rows { double s[1 + DRAFT_ROWS]; uint32_t met[1 + DRAFT_ROWS]; } draft_rows;
// Of a model, for all texts: times of steps (rows of one sequence, and of several), and acceptance of drafts from its
// texts.
typedef struct draft_measures { draft_rows rows[2]; draft_record text; } draft_measures;
draft_measures *weft_model_drafts(weft_model *m);

draft_account *draft_account_of(weft_draft *d);          // shared by all sequences, like the record
draft_record *draft_record_of(weft_draft *d);

// The probability that the token at a place of a draft is accepted, given that those before it are. text: ratio of
// actual to expected acceptance in this text.
double draft_odds(const draft_record *of, const draft_ratio *text, size_t place, double p);
double draft_mean_odds(const draft_record *of, const draft_ratio *text, size_t place);      // before p is known
void draft_judge(draft_record *of, draft_ratio *text, size_t place, double p, bool right);

void draft_time(double *mean, double s);
void draft_rows_took(draft_rows *r, size_t n, double s);
double draft_rows_s(const draft_rows *r, size_t n);
// The number of drafted tokens (at least 1) that maximises expected tokens per second, given these odds and token_s per
// token; *rate: relative to steps without drafts.
size_t draft_best(const draft_rows *r, const double *odds, size_t most, double token_s, double *rate);
// How many of n drafted tokens to evaluate at that rate, and the value of doing so; 0: none.
size_t draft_cut(const draft_rows *r, const double *odds, size_t n, double rate, double *value);
// Is another token worth its time? odds after the first n are means.
bool draft_goes_on(const draft_rows *r, const double *odds, size_t n, size_t most, double token_s, double rate);

// The current time in seconds for measuring steps. On the CPU it is the caller's thread time, so that interruptions do
// not count as cost.
double draft_now(const weft_model *m);
// Seconds spent on compiling kernels, which do not count as evaluation
double draft_compiled_s(const weft_model *m);
#endif
