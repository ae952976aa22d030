// call: one message that wants something generated, from its JSON to its answer.  A family of endpoints reads the
// fields into `params`, says what the prompts are, and writes answers from what has come; everything between is here.
// All of it runs on the pool's threads.
#ifndef WEFT_SERVE_CALL_H
#define WEFT_SERVE_CALL_H
#include "serve/request.h"
#include "serve/server.h"

// What fields fill in, by whatever names.
struct params {
  int64_t reasoning_budget, max_tokens, n, n_ctx, seed, top_logprobs, n_top, slot, normalize, dimensions, most;
  bool stream, include_usage, logprobs, echo, ignore_end, progress, return_tokens, no_parallel, raw, add_special,
    with_pieces, truncate, must_call, post_sampling,
    generation, continued,             // of embeddings: how a conversation ends; what is made of it:
    no_generation, ended;              // no beginning of an answer; the last message is whole
  const char *must_call_name;          // which tool; NULL: any
  weft_sampling sampling;
  double max_prompt_ms, max_answer_ms;
  json_t *prompt, *messages, *tools, *stop, *stop_sequences, *dry_breakers, *logit_bias, *grammar, *json_schema,
    *response_format, *variables, *tool_choice, *samplers, *model, *parallel_calls, *system, *thinking, *suffix, *extra,
    *format, *input, *tokens, *encoding, *query, *documents, *keep_alive, *effort, *regex, *choices, *lora, *nested,
    *reasoning_format, *reasoning_message, *images;
  bool any_json;
  int think;                           // whether the model reasons first: 1, -1; 0: as the template has it
  json_t *default_grammar, *default_schema, *default_variables;      // the server's
};
// What a request is that says nothing: the server's options say it, else the file of its model, if that is loaded. m
// may be NULL.
struct params params_default(const server *s, const served *m);
// -1: the options say what no request may say.
int params_check_defaults(const server *s, fault *f);
extern const struct fields sampling_fields;    // names that llama.cpp, vLLM and OpenAI share
extern const struct fields common_fields;      // of every body that a call is made of
extern const struct fields name_fields;        // of others
extern const struct fields llama_own_fields;   // llama.c: of requests that other families have, too
// foreign.c: what other servers take and this one does not
extern const struct fields foreign_openai_fields, foreign_chat_fields, foreign_responses_fields, foreign_llama_fields,
  foreign_anthropic_fields, foreign_ollama_fields, foreign_generate_fields, foreign_options_fields;

struct vector { float *at; size_t n; };

// A token's log-probability, and those of the likeliest at its place. scored: not of the first one of a prompt.
struct score { int32_t id, n_top; bool scored; double logprob; weft_logprob *top; };
typedef VEC(struct score) scores;

// arguments: JSON as far as it was written
struct tool_call { char *id, *name; str arguments; bool done; };

// What has come of one choice.
struct choice {
  str content, reasoning;
  VEC(struct tool_call) calls;
  scores scores;                       // of each token; of a stream that of the last one alone
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
  void (*failed)(call *c, const fault *why);             // in the middle of a stream
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
  size_t score_bytes;                  // of a token that is scored, and of each likely one beside it, in an answer
  VEC(request *) requests;
  VEC(struct bias) biases;             // of all of them
  struct choice *choices;
  int n_choices, n_ended;
  scores *prompt_scores;               // of each request
  bool failed, noted;
  bool counts;                         // how many tokens its prompt has is all that is asked for
  char constraint[64];                 // the field that constrains the answer; "": none does
  fault fault;
  int sent_calls[128];                 // of a stream: calls that each choice has made
  void *own;                           // of the family; for free()
  str out;
  // ---- call.c
  pthread_mutex_t lock;
  event *first, **last;
  bool scheduled;                      // some thread is at the events
  int refs;
  double submitted;
  char *sampler_names;                 // what sampling.samplers points to
  VEC(weft_medium *) media;            // of its messages (media.h), and what stands there for each
  double fetch_until;                  // of now_s(): those from the network; 0: none was asked for yet
  VEC(struct encoded *) encoded;       // what holds them
  char media_mark[WEFT_MEDIA_MARK_SIZE];
};

// Reads the body by the tables of its route, the last one first.  NULL: the fault has been answered.
call *call_new(server *s, exchange *x, const struct speaker *speak);
void call_ignores(call *c, const char *fmt, ...) PRINTF_LIKE(2, 3);        // the answer's header tells of it
// A request for a prompt that is text or ids, or for the messages in p.
request *call_new_request(call *c);    // one more, without a prompt
int call_add_text(call *c, const char *text, size_t n, bool parse_special);
// a string, ids, or a mixture of both
int call_add_prompt(call *c, const json_t *prompt, bool parse_special, const char *name);
int call_add_prompts(call *c, json_t *prompt, const char *name);           // one such or an object, or an array of them
int call_check_tools(call *c, const json_t *tools);      // an array of functions that have names; NULL: none
// A conversation whose messages have OpenAI's form; they are changed.
// p.variables, p.effort, p.documents: variables of the template.
int call_add_chat(call *c, json_t *messages, json_t *tools);
// The content is JSON of this schema; strict: an error if it cannot be enforced.
int call_schema(call *c, const json_t *schema, bool strict, const char *name);
size_t call_most_ids(const call *c);                   // a prompt of more is not tokenized to its end
int call_object(call *c, const char *name);            // ... or any object
// ... or what {"type": text, json_object or json_schema} says, as chat and Responses have it; NULL: nothing
int call_format(call *c, const json_t *format, const char *name);
// What the fields say is made of them, as far as no prompt is needed; -1 and a fault: they are wrong.
int call_check(call *c);
int call_fits(call *c, const request *r);              // whether the context holds its prompt; -1 and a fault
void call_notes(call *c, const weft_grammar *g);       // what g does not enforce, in a header of the answer
int call_grammar(call *c, const char *text, size_t n, const char *name);   // ... or text of this grammar
void call_go(call *c);                 // submits; what happens from then on comes to the speaker
void call_answer(call *c, json_t *o);  // answers without generating anything; takes o
// Takes n bytes for `what`, which comes from this field; -1 and a fault: the request may not have them.
int call_take(call *c, const char *name, const char *what, size_t n);
int call_bad(call *c, const char *name, const char *what);    // c->fault: this field (said in front of what); -1
void call_refuse(call *c);             // answers c->fault, in the family's form, and ends the call

// Helpers for answers.
json_t *call_progress(const event *e);                 // of an EVENT_PROMPT, as llama.cpp has it, and what is ours
void choice_take(struct choice *h, const struct part *p);                   // adds it to what has come
void choice_clear(struct choice *h);
// The arguments as an object, as the model wrote them: of those that were cut, what there is, closed.
void call_arguments(const struct tool_call *t, str *out);
// The text of o, which is taken, with one more member, whose value has its JSON as text.
void json_with_text(str *out, json_t *o, const char *key, const str *value);
void call_send_text(call *c, int status, str *text);       // a whole answer; takes what is in text
void call_send(call *c, int status, json_t *o);                            // a whole answer; takes o
void call_line(call *c, const char *before, json_t *o, const char *after); // into the stream; takes o
void call_line_text(call *c, const char *before, const char *text, const char *after);
json_t *piece_text(const served *m, int32_t id);                           // the text of a token
const char *finish_name(enum finish f);                                    // as OpenAI calls it
json_t *timings_object(const struct timing *t);                            // as llama.cpp has it
// Of a token, as OpenAI has it; of one that was scored behind the samplers, probabilities as llama.cpp has them.
json_t *chat_logprob(const call *c, const struct score *score);
int64_t call_prompt_tokens(const call *c), call_drawn(const call *c), call_cached(const call *c);
#endif
