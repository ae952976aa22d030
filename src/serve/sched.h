// sched: who is served when.  Requests wait in queues, one for each key, which take turns by deficit round robin: each
// turn a key may spend so many tokens, so that one who sends long prompts waits longer than one who sends short ones.
// Within a key the request goes first whose prompt the cache knows best, unless another has waited long.
//
// One thread opens the model and then takes all steps.  A step evaluates a token of each answer that is in work, and a
// piece of a prompt as long as the others' answers do not seem to stop.  Sequences are kept when their request has
// ended, and given to whoever's prompt begins like them.
#ifndef WEFT_SERVE_SCHED_H
#define WEFT_SERVE_SCHED_H
#include "serve/request.h"
#include "serve/turn.h"

typedef struct sched sched;
enum { SCHED_PARALLEL_MAX = 64 };
struct sched_options {
  const char *path;
  weft_options model;
  const char *draft;                   // path of a draft model; NULL: none
  bool draft_of_some;                  // where it cannot guess for this model, the model goes without, with a warning
  weft_draft_options drafts;
  bool no_guess;
  int n_keys;                          // queues
  int parallel;                        // answers in work at once, at most SCHED_PARALLEL_MAX
  int max_waiting;                     // requests, of all keys together
  int64_t max_tokens;                  // of the prompts that wait; 0: eight contexts
  double max_wait_s;                   // of a request; 0: as long as it takes
  const char *keep;                    // folder for sequences from one run to the next (keep.h); NULL: none
  uint64_t keep_bytes;                 // of all files there
  const char *name;                    // of the model
  turn *turn;                          // of all that compute
  void (*loaded)(void *ctx);           // the model is there, or cannot be
  void *ctx;
};
enum sched_state { SCHED_LOADING, SCHED_READY, SCHED_FAILED };
struct sched_counts {                  // since the start, and now
  double prompt_tokens, prompt_s, drawn_tokens, drawn_s, cached_tokens, steps;
  double steps_s, draft_s;             // of all steps; of these a draft model's
  double waited_s;                     // that answers without a guess waited for those of others
  int running, waiting, n_live;
  int past[SCHED_PARALLEL_MAX];        // tokens that each of the n_live answers in work holds
  int64_t waiting_tokens, most_tokens, requests;
  double loaded;                       // 0..1, while the model loads
  double since_step;                   // seconds since a step ended, while something runs; otherwise 0
};

int sched_start(const struct sched_options *o, sched **out, error *err);
enum sched_state sched_state(sched *s);
const char *sched_error(sched *s);     // of SCHED_FAILED
weft_model *sched_model(sched *s);     // from SCHED_READY on; only what many threads may use at once
// Takes n requests or none.  -1: too many wait, or the server is ending.
int sched_submit(sched *s, request **r, size_t n, fault *f);
// its END comes soon; does nothing once it has come.  Any thread, while r exists
void sched_cancel(sched *s, request *r);
void sched_counts(sched *s, struct sched_counts *out);
void sched_drain(sched *s);            // takes no more requests
void sched_stop(sched *s);             // ends what runs or waits, and the thread
void sched_free(sched *s);             // after that: closes the model
#endif
