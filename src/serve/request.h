// request: what families of endpoints convert their JSON to, and what the scheduler processes: a prompt (ids), sampling
// parameters, and end conditions. Progress and results come back as events.
#ifndef WEFT_SERVE_REQUEST_H
#define WEFT_SERVE_REQUEST_H
#include <stdatomic.h>
#include "base/str.h"
#include "serve/fields.h"
#include "weft.h"

typedef VEC(int32_t) token_ids;
struct bias { int32_t id; float bias; };

// WORD: a stop string; GONE: the client left
enum finish { FINISH_STOP, FINISH_WORD, FINISH_LENGTH, FINISH_CALLS, FINISH_TIME, FINISH_GONE };

struct part { enum weft_part_kind kind; str text; char *name, *id; bool done; };   // as weft_part

// n_reasoned: of the drawn tokens, those of reasoning and its marks. wait_ms: from the arrival of the request to the
// start of its prompt
struct timing {
  int64_t n_prompt, n_cached, n_drawn, n_reasoned;
  double wait_ms, prompt_ms, drawn_ms;
  int slot;                            // of its sequence
  weft_speculation_counts speculation;
};

typedef struct event {
  struct event *next;
  enum event_kind { EVENT_PROMPT, EVENT_PROMPT_TOKEN, EVENT_TOKEN, EVENT_VECTOR, EVENT_END, EVENT_FAILED } kind;
  struct request *request;
  int choice;                          // from 0 to n - 1 of its request
  int32_t id;                          // of a token; -1: text that was held back
  bool scored;                         // logprob and top are valid
  double logprob;
  weft_logprob *top;
  int32_t n_top;
  VEC(struct part) parts;
  float *vector;                       // VECTOR: of the next text; without pooling one per token
  size_t n_vector;
  int64_t done, total;                 // PROMPT: positions, including cached ones
  int waiting;                         //   position in the queue, from 1 on; 0: it is being evaluated
  double wait_s;                       //   estimated
  int status;                          // FAILED: 429: waited too long; 400: grammar error; 0: 500
  enum finish finish;                  // END
  int stop;                            //   WORD: which stop string
  struct timing timing;                //   and PROMPT
  char text[1024];                     // FAILED
} event;
void event_free(event *e);
typedef VEC(event *) events;
void events_send(events *all);          // to their requests, which may be freed then

typedef VEC(char *) request_texts;

typedef struct request {
  // ---- constant after sched_submit
  token_ids prompt;                    // for a model with an encoder: replaced by its output
  weft_sampling sampling;
  float *scales;                       // of adapters, one per adapter of the model; NULL: none
  const struct bias *biases;           // borrowed
  size_t n_biases;
  bool ignore_end;
  int64_t max_tokens, n;               // max_tokens -1: until the context is full
  request_texts stops;
  request_texts breakers;              // of DRY
  bool has_breakers;                   //   these, even if empty; otherwise the defaults
  weft_grammar *grammar;               // for the content; NULL: none
  struct forced *forced;               // the answer must be a tool call (force.h); NULL: no
  // the answer is parsed into reasoning, content and calls; it ends after one call
  bool chat, one_call;
  const weft_template *tmpl;           // of a chat, with the end of its prompt and its tools as JSON
  char *prompt_text, *tools;
  weft_answer *answer;                 //   those of its choices are clones of this one
  size_t given;                        // bytes at the end of prompt_text that begin the answer
  bool tells;                          // PROMPT events while it waits too
  bool scored, prompt_scored;          // log-probabilities of sampled tokens; of the prompt
  int32_t n_top;
  bool post_sampling;                  // those of sampled tokens are after all samplers
  bool embeds;                         // embeddings are wanted: `prompt` has the texts, one after another
  VEC(size_t) lengths;                 //   of each
  enum weft_pooling pooling;
  weft_budget *budget;                 // of reasoning; those of its choices are clones of this one; NULL: no limit
  bool keep_reasoning;                 // reasoning stays in the content
  double max_prompt_s, max_answer_s;   // 0: no limit
  int slot;                            // requested for its first choice; -1: any
  int key;
  account *account;                    // of what is made for it while it runs
  // called on the step thread; takes e; must not block. The last event is END of the last choice,
  void (*event)(void *ctx, event *e);
  void *ctx;                           // or FAILED
  // ---- private to the scheduler
  atomic_bool cancelled;
  double arrived;
  int told;                            // last reported position
  int begun;                           // number of choices started
  token_ids source;                    // the original prompt, if replaced
  struct request *next;
} request;

void request_clear(request *r);        // frees what it points to
// Makes the final events of its choices that have not begun; FAILED: with status 429.
void request_end(request *r, enum event_kind kind, const char *why, events *out);
// Are its adapter scales those with which the model was loaded?
bool request_scales_are_usual(const request *r, const weft_options *o);
// Makes the sampler of a choice. -1 and the reason.
int request_sampler(const request *r, const weft_model *m, int choice, weft_sampler **out, weft_error *err);
#endif
