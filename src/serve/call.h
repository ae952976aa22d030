// call: one message that wants something generated, from its JSON to its answer.  A family of endpoints reads the
// fields into `params`, says what the prompts are, and writes answers from what has come; everything between is here.
// All of it runs on the pool's threads.
#ifndef WEFT_SERVE_CALL_H
#define WEFT_SERVE_CALL_H
#include "serve/request.h"
#include "serve/server.h"

// What fields fill in, by whatever names.
struct params {
  int64_t max_tokens, n, seed, top_logprobs, n_top, normalize, dimensions, most;
  bool stream, include_usage, logprobs, echo, ignore_end, progress, return_tokens, no_parallel, raw, add_special,
    with_pieces, truncate, must_call;
  const char *must_call_name;          // which tool; NULL: any
  weft_sampling sampling;
  double max_prompt_ms, max_answer_ms;
  json_t *prompt, *messages, *tools, *stop, *stop_sequences, *logit_bias, *grammar, *json_schema, *response_format,
    *variables, *tool_choice, *samplers, *model, *stream_options, *parallel_calls, *system, *thinking, *suffix, *extra,
    *options, *format, *input, *tokens, *encoding, *query, *documents, *keep_alive;
};
struct params params_default(void);
extern const struct fields sampling_fields;    // names that llama.cpp and OpenAI share

struct vector { float *at; size_t n; };

// What has come of one choice.
struct choice {
  str content, reasoning;
  json_t *calls;                       // [{"id", "name", "arguments": text}]
  json_t *scores;                      // of each token: {"id", "logprob", "top": [[id, logprob]...]}
  token_ids ids;
  VEC(struct vector) vectors;          // of texts, in their order
  bool ended;
  enum finish finish;
  const char *word;                    // the stop string that ended it
  struct timing timing;
};

typedef struct call call;
struct speaker {
  const char *type, *ping;             // of a stream
  void (*start)(call *c);              // the stream begins; may be NULL
  void (*event)(call *c, const event *e, int choice);    // of a stream; `choice` has it already
  void (*finish)(call *c);             // all have ended: the whole answer, or the end of the stream
  void (*failed)(call *c, const char *text);             // in the middle of a stream
};

struct call {
  server *s;
  served *m;                           // the model; x holds it
  exchange *x;
  const struct speaker *speak;
  struct params p;
  json_t *body;
  size_t json_left;                    // what JSON within the body may still take
  char id[48];
  int64_t created;
  VEC(request *) requests;
  struct choice *choices;
  int n_choices, n_ended;
  json_t *prompt_scores;               // of each request an array as `scores`; the first token has no log-probability
  bool failed;
  fault fault;
  int sent_calls[128];                 // of a stream: calls that each choice has made
  void *own;                           // of the family; for free()
  str out;
  // ---- call.c
  pthread_mutex_t lock;
  event *first, **last;
  bool scheduled;                      // some thread is at the events
  int refs;
  char *sampler_names;                 // what sampling.samplers points to
};

// Reads the body by this table and that of sampling.  NULL: the fault has been answered.
call *call_new(server *s, exchange *x, const struct speaker *speak, struct fields own);
// A request for a prompt that is text or ids, or for the messages in p.
int call_add_text(call *c, const char *text, size_t n, bool parse_special);
// a string, ids, or a mixture of both
int call_add_prompt(call *c, const json_t *prompt, bool parse_special, const char *name);
int call_add_prompts(call *c, json_t *prompt, const char *name);           // one such, or an array of them
int call_check_tools(call *c, const json_t *tools);      // an array of functions that have names; NULL: none
// A conversation whose messages have OpenAI's form; they are changed.
int call_add_chat(call *c, json_t *messages, json_t *tools, json_t *variables);
// a string or an array of them, for all requests
int call_stops(call *c, const json_t *stop, const char *name);
int call_schema(call *c, const json_t *schema, const char *name);          // the content is JSON of this schema
int call_grammar(call *c, const char *text, size_t n, const char *name);   // ... or text of this grammar
void call_go(call *c);                 // submits; what happens from then on comes to the speaker
void call_answer(call *c, json_t *o);  // answers without generating anything; takes o
int call_bad(call *c, const char *name, const char *what);    // c->fault: this field (said in front of what); -1
void call_refuse(call *c);             // answers c->fault, in the family's form, and ends the call

// Helpers for answers.
json_t *call_progress(const event *e);                 // of an EVENT_PROMPT, as llama.cpp has it, and what is ours
void choice_take(struct choice *h, const struct part *p);                   // adds it to what has come
void call_send(call *c, int status, json_t *o);                            // a whole answer; takes o
void call_line(call *c, const char *before, json_t *o, const char *after); // into the stream; takes o
json_t *piece_text(const served *m, int32_t id);                           // the text of a token
const char *finish_name(enum finish f);                                    // as OpenAI calls it
json_t *timings_object(const struct timing *t);                            // as llama.cpp has it
json_t *chat_logprob(const served *m, const json_t *score);                // of a token, as OpenAI has it
int64_t call_prompt_tokens(const call *c), call_drawn(const call *c), call_cached(const call *c);
#endif
