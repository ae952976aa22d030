// request: what every family of endpoints turns its JSON into, and what the scheduler works on.  A request is a prompt
// (ids), how tokens are drawn, and when to end; what happens to it comes back as events.
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

// wait_ms: from when the request came until its prompt was begun
struct timing {
  int64_t n_prompt, n_cached, n_drawn;
  double wait_ms, prompt_ms, drawn_ms;
  int slot;                            // of its sequence
  weft_speculation_counts speculation;
};

typedef struct event {
  struct event *next;
  enum event_kind { EVENT_PROMPT, EVENT_PROMPT_TOKEN, EVENT_TOKEN, EVENT_VECTOR, EVENT_END, EVENT_FAILED } kind;
  struct request *request;
  int choice;                          // from 0 to n - 1 of its request
  int32_t id;                          // of a token; -1: text that was held back has come free
  bool scored;                         // logprob and top mean something
  double logprob;
  weft_logprob *top;
  int32_t n_top;
  VEC(struct part) parts;
  float *vector;                       // VECTOR: of the next text; without pooling one for each of its tokens
  size_t n_vector;
  int64_t done, total;                 // PROMPT: positions, those that were cached included
  int waiting;                         //   its place among those that wait, from 1 on; 0: it is being read
  double wait_s;                       //   about how long
  int status;                          // FAILED: 429: it had waited for too long; 400: by its grammar; 0: 500
  enum finish finish;                  // END
  int stop;                            //   WORD: which stop string
  struct timing timing;                //   and PROMPT
  char text[1024];                     // FAILED
} event;
void event_free(event *e);

typedef VEC(char *) request_texts;

typedef struct request {
  // ---- constant from sched_submit on
  token_ids prompt;                    // of a model with an encoder: in its place there is what it makes of it, in time
  weft_sampling sampling;
  float *scales;                       // of adapters, as many as the model has; NULL: there are none
  const struct bias *biases;           // borrowed
  size_t n_biases;
  bool ignore_end;
  int64_t max_tokens, n;               // max_tokens -1: until the context is full
  request_texts stops;
  request_texts breakers;              // of DRY
  bool has_breakers;                   //   these, or none; otherwise the usual ones
  weft_grammar *grammar;               // of the content; NULL
  struct forced *forced;               // the answer has to be a call (force.h); NULL
  // the answer is taken apart into reasoning, content and calls; it ends after one call
  bool chat, one_call;
  const weft_template *tmpl;           // of a chat, with the end of its prompt and its tools as JSON
  char *prompt_text, *tools;
  size_t given;                        // bytes at the end of prompt_text that are the answer's beginning
  bool tells;                          // PROMPT is wanted while it waits, too
  bool scored, prompt_scored;          // log-probabilities of drawn tokens; of the prompt
  int32_t n_top;
  bool post_sampling;                  // those of drawn tokens are of what was drawn by, behind all samplers
  bool embeds;                         // vectors of texts are wanted: `prompt` has the texts, one after another
  VEC(size_t) lengths;                 //   of each
  enum weft_pooling pooling;
  // tokens of reasoning, after which the message and the end of reasoning follow; negative: no limit
  int64_t reasoning_budget;
  char *reasoning_message;             // NULL: none
  bool keep_reasoning;                 // it stays in the content
  double max_prompt_s, max_answer_s;   // 0: as long as it takes
  int slot;                            // that its first choice asks for; -1: any
  int key;
  account *account;                    // of what is made for it while it runs
  // called on the thread of the steps; takes e over, and may not wait.  END of the last choice,
  void (*event)(void *ctx, event *e);
  void *ctx;                           // or FAILED, is the last one
  // ---- the scheduler's
  atomic_bool cancelled;
  double arrived;
  int told;                            // of its place
  int begun;                           // choices
  token_ids source;                    // the prompt as it came, if something is in its place
  struct request *next;
} request;

void request_clear(request *r);        // frees what it points to
// Whether its scales of adapters are those that the model was loaded with.
bool request_scales_are_usual(const request *r, const weft_options *o);
// The sampler of this answer of a request. -1 and why there is none.
int request_sampler(const request *r, const weft_model *m, int choice, weft_sampler **out, weft_error *err);
#endif
