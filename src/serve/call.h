// call: a message that requests generation, from its JSON to its answer. A family of endpoints reads fields into
// `params`, provides the prompts, and writes answers from the results; everything between is here. All of it runs on
// pool threads.
#ifndef WEFT_SERVE_CALL_H
#define WEFT_SERVE_CALL_H
#include "serve/request.h"
#include "serve/server.h"

// Values of fields of all families.
struct params {
  int64_t reasoning_budget, max_tokens, n, n_ctx, seed, top_logprobs, n_top, slot, normalize, dimensions, most;
  bool stream, include_usage, logprobs, echo, ignore_end, progress, return_tokens, no_parallel, raw, add_special,
    with_pieces, truncate, must_call, post_sampling,
    generation, continued,             // for embeddings: how a conversation ends; what is done with it:
    no_generation, ended;              // no answer is begun; the last message is complete
  const char *must_call_name;          // the required tool; NULL: any
  weft_sampling sampling;
  double max_prompt_ms, max_answer_ms;
  json_t *prompt, *messages, *tools, *stop, *stop_sequences, *dry_breakers, *logit_bias, *grammar, *json_schema,
    *response_format, *variables, *tool_choice, *samplers, *model, *parallel_calls, *system, *thinking, *suffix, *extra,
    *format, *input, *tokens, *encoding, *query, *documents, *keep_alive, *effort, *regex, *choices, *lora, *nested,
    *reasoning_format, *reasoning_message, *images;
  bool any_json;
  int think;                           // reasoning: 1 on, -1 off; 0: the template's default
  json_t *default_grammar, *default_schema, *default_variables;      // the server's
};
// Defaults for a request: from the server's options, otherwise from the model's file if it is loaded. m may be NULL.
struct params params_default(const server *s, const served *m);
// -1: the options have values that a request may not have.
int params_check_defaults(const server *s, fault *f);
extern const struct fields sampling_fields;    // names common to llama.cpp, vLLM and OpenAI
extern const struct fields common_fields;      // of every body that becomes a call
extern const struct fields name_fields;        // of other bodies
extern const struct fields llama_own_fields;   // llama.c: extra fields for requests of other families
// foreign.c: fields of other servers that this one does not support
extern const struct fields foreign_openai_fields, foreign_chat_fields, foreign_responses_fields, foreign_llama_fields,
  foreign_anthropic_fields, foreign_ollama_fields, foreign_generate_fields, foreign_options_fields;

struct vector { float *at; size_t n; };

// A token's log-probability, and those of the most probable tokens at its place. scored: false for the first token of a
// prompt.
struct score { int32_t id, n_top; bool scored; double logprob; weft_logprob *top; };
typedef VEC(struct score) scores;

// arguments: JSON, possibly incomplete
struct tool_call { char *id, *name; str arguments; bool done; };

// The results of one choice so far.
struct choice {
  str content, reasoning;
  VEC(struct tool_call) calls;
  scores scores;                       // of each token; in a stream only of the last one
  token_ids ids;
  VEC(struct vector) vectors;          // embeddings of texts, in order
  bool ended;
  enum finish finish;
  const char *word;                    // the stop string that ended it
  struct timing timing;
};

typedef struct call call;
struct speaker {
  const char *type, *ping;             // for a stream: content type, ping text
  void (*start)(call *c);              // the stream begins; may be NULL
  void (*event)(call *c, const event *e, int choice);    // for a stream; `choice` already contains the event
  void (*finish)(call *c);             // all choices have ended: writes the whole answer, or the end of the stream
  void (*failed)(call *c, const fault *why);             // error in the middle of a stream
};

struct call {
  server *s;
  served *m;                           // the model, held by x
  exchange *x;
  const struct speaker *speak;
  struct params p;
  json_t *body;
  size_t json_left;                    // bytes left for JSON inside strings of the body
  char id[48];
  int64_t created;
  size_t score_bytes;                  // of a scored token, and of each alternative, in an answer
  VEC(request *) requests;
  VEC(struct bias) biases;             // of all requests
  struct choice *choices;
  int n_choices, n_ended;
  scores *prompt_scores;               // for each request
  bool failed, noted;
  bool counts;                         // only the number of prompt tokens is wanted
  char constraint[64];                 // the field that constrains the answer; "": none
  fault fault;
  int sent_calls[128];                 // in a stream: number of calls that each choice has sent
  void *own;                           // the family's data; for free()
  str out;
  // ---- call.c
  pthread_mutex_t lock;
  event *first, **last;
  bool scheduled;                      // a thread processes the events
  int refs;
  double submitted;
  char *sampler_names;                 // storage of sampling.samplers
  VEC(weft_medium *) media;            // of its messages (media.h), and the text in place of each
  double fetch_until;                  // deadline for network fetches; 0: none yet
  VEC(struct encoded *) encoded;       // their owners
  char media_mark[WEFT_MEDIA_MARK_SIZE];
};

// Reads the body by the tables of its route, the last one first. NULL: a fault has been answered.
call *call_new(server *s, exchange *x, const struct speaker *speak);
void call_ignores(call *c, const char *fmt, ...) PRINTF_LIKE(2, 3);  // adds to the answer's header of ignored fields
// Makes requests: for a prompt that is text or ids, or for the messages in p.
request *call_new_request(call *c);    // adds one without a prompt
int call_add_text(call *c, const char *text, size_t n, bool parse_special);
// a string, ids, or a mixture of both
int call_add_prompt(call *c, const json_t *prompt, bool parse_special, const char *name);
int call_add_prompts(call *c, json_t *prompt, const char *name);  // one prompt, an object, or an array of these
int call_check_tools(call *c, const json_t *tools);      // checks an array of named functions; NULL: none
// Adds a conversation with messages in OpenAI's form, which are modified. p.variables, p.effort, p.documents: variables
// of the template.
int call_add_chat(call *c, json_t *messages, json_t *tools);
// Constrains the content to JSON of this schema; strict: an error if it cannot be enforced.
int call_schema(call *c, const json_t *schema, bool strict, const char *name);
size_t call_most_ids(const call *c);                   // a longer prompt is not tokenised to its end
int call_object(call *c, const char *name);            // ... or to any object
// ... or to {"type": text, json_object or json_schema} as in chat and Responses; NULL: no constraint
int call_format(call *c, const json_t *format, const char *name);
// Checks the fields and applies those that need no prompt; -1 and a fault if they are invalid.
int call_check(call *c);
int call_fits(call *c, const request *r);              // does the prompt fit the context? -1 and a fault
void call_notes(call *c, const weft_grammar *g);       // reports in a header what g does not enforce
int call_grammar(call *c, const char *text, size_t n, const char *name);   // ... or text of this grammar
void call_go(call *c);                 // submits; results go to the speaker
void call_answer(call *c, json_t *o);  // answers without generating; takes o
// Charges n bytes for `what` from this field; -1 and a fault if they exceed the request's limit.
int call_take(call *c, const char *name, const char *what, size_t n);
// sets c->fault for this field (its name comes before what); returns -1
int call_bad(call *c, const char *name, const char *what);
void call_refuse(call *c);             // answers c->fault in the family's form, and ends the call

// Helpers for answers.
json_t *call_progress(const event *e);                 // for an EVENT_PROMPT, in llama.cpp's form with additions
void choice_take(struct choice *h, const struct part *p);                   // appends it to the results
void choice_clear(struct choice *h);
// The arguments as an object, as the model wrote them; incomplete ones are closed.
void call_arguments(const struct tool_call *t, str *out);
// The text of o (taken) with one more member, whose value is given as JSON text.
void json_with_text(str *out, json_t *o, const char *key, const str *value);
void call_send_text(call *c, int status, str *text);       // sends a whole answer; takes text
void call_send(call *c, int status, json_t *o);                            // sends a whole answer; takes o
void call_line(call *c, const char *before, json_t *o, const char *after); // appends to the stream; takes o
void call_line_text(call *c, const char *before, const char *text, const char *after);
json_t *piece_text(const served *m, int32_t id);                           // text of a token
const char *finish_name(enum finish f);                                    // OpenAI's name
json_t *timings_object(const struct timing *t);                            // in llama.cpp's form
// The log-probability of a token in OpenAI's form; if it was scored after the samplers, probabilities in llama.cpp's
// form.
json_t *chat_logprob(const call *c, const struct score *score);
int64_t call_prompt_tokens(const call *c), call_drawn(const call *c), call_cached(const call *c),
  call_reasoned(const call *c);
#endif
