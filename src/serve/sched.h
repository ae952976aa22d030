// sched: the scheduler. Requests wait in queues, one per key, served by deficit round robin: a key may spend a number
// of tokens per round, so long prompts of one key delay that key more than others. Within a key the request with the
// longest cached prefix goes first, unless another has waited long.
//
// One thread opens the model and runs all steps. A step evaluates one token of each running answer, and a prompt chunk
// short enough that the answers do not visibly stall. Sequences are kept after their request and reused for prompts
// with the same beginning.
#ifndef WEFT_SERVE_SCHED_H
#define WEFT_SERVE_SCHED_H
#include "base/turn.h"
#include "serve/histogram.h"
#include "serve/log.h"
#include "serve/run.h"
#include "serve/slots.h"

typedef struct sched sched;
enum { SCHED_PARALLEL_MAX = 64 };
struct sched_options {
  const char *path;
  weft_options model;
  const char *draft;                   // path of a draft model; NULL: none
  bool draft_of_some;                  // if the draft model does not fit, go on without it, with a warning
  weft_draft_options drafts;
  enum weft_speculating speculating;
  int n_keys;                          // queues
  int parallel;                        // running answers, at most SCHED_PARALLEL_MAX
  int64_t max_waiting, max_tokens;     // limits of waiting requests of all keys: number, prompt tokens; 0: none
  double max_wait_s;                   // of a request; 0: no limit
  const char *keep;                    // folder for saving sequences between runs (sequence_spill.h); NULL: none
  uint64_t keep_bytes;                 // limit for all files there
  kv_events *kv;                       // receives events of the cache; NULL: none
  const char *name;                    // of the model
  server_log *log;
  turn_lock *turn;                     // shared by everything that computes
  void (*loaded)(void *ctx);           // called when the model is loaded or has failed
  void *ctx;
};
// BROKEN: it was ready, and an evaluation broke an invariant: running and new requests get that error
enum sched_state { SCHED_LOADING, SCHED_READY, SCHED_FAILED, SCHED_BROKEN };
struct sched_counts {                  // since the start, and current
  double prompt_tokens, prompt_s, drawn_tokens, drawn_s, cached_tokens, steps;
  double steps_s, draft_s;             // of all steps; the draft model's share
  double drafts;                       // number of drafts
  double yields;                       // how often an answer gave its memory to others (room.h)
  double proposed, drafts_accepted;       // draft tokens; accepted ones
  double busy;                         // running answers, summed over steps
  double longest;                      // tokens of the longest sequence so far
  struct histogram between;            // seconds between steps that sampled tokens of an answer, once per answer
  double waited_s;                     // seconds that answers without a draft waited for others' drafts
  int running, waiting, n_live;
  int past[SCHED_PARALLEL_MAX];        // tokens of each of the n_live running answers
  struct slot_state {
    int past;                          // tokens of its sequence
    bool in_work;
    struct run_counts counts;          // of the running answer
  } slot[SCHED_PARALLEL_MAX];
  int64_t held, room;                  // total of these; limit for all answers
  int slots;                           // maximum running answers
  int64_t waiting_tokens, requests;
  double loaded;                       // 0..1, while the model loads
  double since_step;                   // seconds since the last step, while something runs; otherwise 0
};

int sched_start(const struct sched_options *o, sched **out, error *err);
enum sched_state sched_state(sched *s);
const char *sched_error(sched *s);     // for SCHED_FAILED and SCHED_BROKEN
weft_model *sched_model(sched *s);     // from SCHED_READY on; only for thread-safe functions
// Takes all n requests or none. -1: too many wait, or the server shuts down.
int sched_submit(sched *s, request **r, size_t n, fault *f);
// causes its END soon; no effect after it. Any thread, while r exists
void sched_cancel(sched *s, request *r);
// Calls a->done soon, once. -1: the server shuts down, or the model is being unloaded.
int sched_slot(sched *s, slot_action *a);
void sched_give_back(sched *s, held *copy);            // for SLOT_SAVE; any thread
void sched_counts(sched *s, struct sched_counts *out);
void sched_stop(sched *s);             // ends running and waiting requests, and the thread
void sched_free(sched *s);             // after sched_stop: closes the model
#endif
