// sched: who is served when.  Requests wait in queues, one for each key, which take turns by deficit round robin: each
// turn a key may spend so many tokens, so that one who sends long prompts waits longer than one who sends short ones.
// Within a key the request goes first whose prompt the cache knows best, unless another has waited long.
//
// One thread opens the model and then takes all steps.  A step evaluates a token of each answer that is in work, and a
// piece of a prompt as long as the others' answers do not seem to stop.  Sequences are kept when their request has
// ended, and given to whoever's prompt begins like them.
#ifndef WEFT_SERVE_SCHED_H
#define WEFT_SERVE_SCHED_H
#include "serve/histogram.h"
#include "serve/log.h"
#include "serve/run.h"
#include "serve/slots.h"
#include "serve/turn.h"

typedef struct sched sched;
enum { SCHED_PARALLEL_MAX = 64 };
struct sched_options {
  const char *path;
  weft_options model;
  const char *draft;                   // path of a draft model; NULL: none
  bool draft_of_some;                  // where it cannot guess for this model, the model goes without, with a warning
  weft_draft_options drafts;
  bool no_speculation;
  int n_keys;                          // queues
  int parallel;                        // answers in work at once, at most SCHED_PARALLEL_MAX
  int64_t max_waiting, max_tokens;     // of what waits, of all keys together: requests, tokens of prompts; 0: any
  double max_wait_s;                   // of a request; 0: as long as it takes
  const char *keep;                    // folder for sequences from one run to the next (sequence_spill.h); NULL: none
  uint64_t keep_bytes;                 // of all files there
  kv_events *kv;                       // who is told what the cache holds; NULL: nobody
  const char *name;                    // of the model
  server_log *log;
  turn *turn;                          // of all that compute
  void (*loaded)(void *ctx);           // the model is there, or cannot be
  void *ctx;
};
// BROKEN: it was ready, and an evaluation came upon a broken invariant: what is in work and what comes gets that error
enum sched_state { SCHED_LOADING, SCHED_READY, SCHED_FAILED, SCHED_BROKEN };
struct sched_counts {                  // since the start, and now
  double prompt_tokens, prompt_s, drawn_tokens, drawn_s, cached_tokens, steps;
  double steps_s, draft_s;             // of all steps; of these a draft model's
  double drafts;                       // times that tokens were guessed for an answer
  double proposed, drafts_accepted;       // tokens that were guessed; of these, drawn indeed
  double busy;                         // answers in work, summed over steps
  double longest;                      // tokens of the longest sequence there was
  struct histogram between;            // seconds between steps that drew tokens of an answer, once for each answer
  double waited_s;                     // that answers without a guess waited for those of others
  int running, waiting, n_live;
  int past[SCHED_PARALLEL_MAX];        // tokens that each of the n_live answers in work holds
  struct slot_state {
    int past;                          // tokens that its sequence holds
    bool in_work;
    struct run_counts counts;          // of the answer in work
  } slot[SCHED_PARALLEL_MAX];
  int64_t held, room;                  // of all of these together; that all answers may hold
  int slots;                           // answers that can be in work at once
  int64_t waiting_tokens, requests;
  double loaded;                       // 0..1, while the model loads
  double since_step;                   // seconds since a step ended, while something runs; otherwise 0
};

int sched_start(const struct sched_options *o, sched **out, error *err);
enum sched_state sched_state(sched *s);
const char *sched_error(sched *s);     // of SCHED_FAILED and SCHED_BROKEN
weft_model *sched_model(sched *s);     // from SCHED_READY on; only what many threads may use at once
// Takes n requests or none.  -1: too many wait, or the server is ending.
int sched_submit(sched *s, request **r, size_t n, fault *f);
// its END comes soon; does nothing once it has come.  Any thread, while r exists
void sched_cancel(sched *s, request *r);
// a->done is called soon, once. -1: the server is ending, or the model leaves memory.
int sched_slot(sched *s, slot_action *a);
void sched_give_back(sched *s, held *copy);            // of SLOT_SAVE; any thread
void sched_counts(sched *s, struct sched_counts *out);
void sched_stop(sched *s);             // ends what runs or waits, and the thread
void sched_free(sched *s);             // after that: closes the model
#endif
