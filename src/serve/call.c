// One message from its JSON to its answer: see call.h.  Events come from the thread of the steps into a queue of the
// call's own, and a job of the pool takes them from there, one job for a call at a time: so a family sees them in
// order, and nothing is written while the model computes.
#define _GNU_SOURCE
#include "serve/call.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "serve/shapes.h"

// ---- fields that families share -------------------------------------------------------------------------------------

#define P struct params
#define BIG 9.2233720368547748e18      // the largest double below 2^63
static const struct field sampling_table[] = {
  FR(P, sampling.temp, "temperature", 0, 1000, "0: always the likeliest token"),
  FR(P, sampling.top_p, "top_p", 0, 1, "the likeliest tokens that together have this probability"),
  FI32(P, sampling.top_k, "top_k", -1, INT32_MAX, "the k likeliest tokens; 0 or -1: all"),
  FR(P, sampling.min_p, "min_p", 0, 1, "at least this fraction of the likeliest one's probability"),
  FR(P, sampling.typical_p, "typical_p", 0, 1, "the most typical tokens with this probability together"),
  FR(P, sampling.top_n_sigma, "top_n_sigma", -1e6, 1e6, "logits within so many standard deviations of the best"),
  FR(P, sampling.xtc_probability, "xtc_probability", 0, 1, "how often XTC drops the likeliest tokens"),
  FR(P, sampling.xtc_threshold, "xtc_threshold", 0, 1, "the probability that they have to reach"),
  FR(P, sampling.repeat_penalty, "repeat_penalty", 1e-3, 1e3, "divides the logits of repeated tokens"),
  FR(P, sampling.frequency_penalty, "frequency_penalty", -1e3, 1e3, "off the logit for each occurrence"),
  FR(P, sampling.presence_penalty, "presence_penalty", -1e3, 1e3, "off the logit once"),
  FI32(P, sampling.repeat_last_n, "repeat_last_n", -1, INT32_MAX, "tokens that penalties look back on; -1: all"),
  FR(P, sampling.dry_multiplier, "dry_multiplier", 0, 1e6, "DRY: what continuing a repetition costs"),
  FR(P, sampling.dry_base, "dry_base", 1, 1e6, "DRY: grows by this with each token"),
  FI32(P, sampling.dry_allowed_length, "dry_allowed_length", 0, INT32_MAX, "DRY: shorter repetitions are free"),
  FI32(P, sampling.dry_last_n, "dry_penalty_last_n", -1, INT32_MAX, "DRY: tokens it looks back on; -1: all"),
  FR(P, sampling.dynatemp_range, "dynatemp_range", 0, 1e3, "temperature from minus to plus this, by entropy"),
  FR(P, sampling.dynatemp_exponent, "dynatemp_exponent", 0, 1e3, "exponent of that"),
  FI32(P, sampling.mirostat, "mirostat", 0, 2, "version of Mirostat; 0: off"),
  FR(P, sampling.mirostat_tau, "mirostat_tau", 0, 1e3, "surprise that it aims at"),
  FR(P, sampling.mirostat_eta, "mirostat_eta", 0, 1e3, "how quickly it corrects itself"),
  FI(P, seed, "seed", -BIG, BIG, "same seed, same tokens; -1: random"),
  FB(P, ignore_end, "ignore_eos", "goes on after the token that ends an answer"),
  FS(P, logit_bias, "logit_bias", F_ANY,
     "{'anyOf':[{'type':'array'},{'type':'object','additionalProperties':"
     "{'anyOf':[{'type':'number','minimum':-1e6,'maximum':1e6},{'enum':[false]}]}}]}",
     "what is added to logits: {\"id\": bias}, [[id, bias]] or [[\"text\", bias]]; false bans"),
  FS(P, stop, "stop", F_ANY, SHAPE_TEXT_OR_TEXTS, "a text or an array of texts before which the answer ends"),
  FJ(P, grammar, "grammar", F_TEXT, "a grammar that the answer has to match"),
  FS(P, json_schema, "json_schema", F_ANY, SHAPE_SCHEMA, "a schema of the JSON that the answer has to be"),
  FS(P, samplers, "samplers", F_ANY, SHAPE_TEXT_OR_TEXTS,
     "which samplers, in which order: an array of names, or letters"),
  FR(P, max_prompt_ms, "t_max_prompt_ms", 0, 1e9, "milliseconds for the prompt; 0: as long as it takes"),
  FR(P, max_answer_ms, "t_max_predict_ms", 0, 1e9, "milliseconds for the answer; 0: as long as it takes"),
  FB(P, stream, "stream", "the answer comes as it is made"),
  FB(P, progress, "return_progress", "a stream tells how much of the prompt has been read"),
  FJ(P, model, "model", F_TEXT, "the name of the model; where the server has one, any is taken"),
  FS(P, keep_alive, "keep_alive", F_ANY,
     "{'anyOf':[{'type':'number','minimum':-1e9,'maximum':1e9},"
     "{'type':'string','pattern':'^[-+]?([0-9]{1,9}|([0-9.]{1,9}(ms|s|m|h))+)$'}]}",
     "how long the model stays loaded then: seconds, or a text like \"5m\"; negative: for ever"),
};
const struct fields sampling_fields = FIELDS(sampling_table);

struct params params_default(void) {
  return (struct params){.max_tokens = -1, .n = 1, .seed = -1, .sampling = weft_sampling_default()};
}

// ---- reading --------------------------------------------------------------------------------------------------------

// Seconds: a number of them, or a text like "5m", "1h30m" or "-1". Negative: for ever.
static int read_keep_alive(const json_t *v, double *out, fault *f) {
  static const struct { const char *name; double seconds; } units[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
  const char *text = json_string_value(v);
  double sum = 0, sign = 1;
  if (json_is_number(v)) return read_real(v, "keep_alive", -1e9, 1e9, out, f);
  if (text && (*text == '-' || *text == '+')) sign = *text++ == '-' ? -1 : 1;
  if (text && *text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 10) {
    *out = sign * strtod(text, NULL);
    return 0;
  }
  bool fine = text && *text;
  while (fine && *text) {
    char *end;
    size_t i = 0, digits = strspn(text, "0123456789.");
    double n = strtod(text, &end);
    while (i < COUNT(units) && strncmp(end, units[i].name, strlen(units[i].name))) i++;
    fine = digits && digits < 10 && end == text + digits && i < COUNT(units);
    if (!fine) break;
    sum += n * units[i].seconds;
    text = end + strlen(units[i].name);
  }
  *out = sign * sum;
  return fine ? 0 : fault_set(f, 400, "keep_alive", "'keep_alive' must be a number of seconds, or a text like \"5m\"");
}

static int read_body(call *c, struct fields own) {
  double keep_s;
  if (fields_read(c->body, "", sampling_fields, &c->p, &c->fault)) return -1;
  if (c->p.keep_alive && read_keep_alive(c->p.keep_alive, &keep_s, &c->fault)) return -1;
  shelf_keep(c->s->shelf, c->m, c->p.keep_alive ? &keep_s : NULL);
  return fields_read(c->body, "", own, &c->p, &c->fault);
}

call *call_new(server *s, exchange *x, const struct speaker *speak, struct fields own) {
  call *c = xcalloc(1, sizeof *c);
  struct asked *asked = asked_of(x);
  *c = (call){.s = s,
              .m = asked->m,
              .body = json_incref(asked->body),
              .json_left = asked->json_left,
              .x = exchange_hold(x),
              .speak = speak,
              .p = params_default(),
              .created = (int64_t)time(NULL),
              .refs = 1};
  c->last = &c->first;
  pthread_mutex_init(&c->lock, NULL);
  if (!read_body(c, own)) return c;
  call_refuse(c);
  return NULL;
}

static int too_many(call *c, const char *name, size_t n, size_t max) {
  return fault_set(&c->fault, 400, name, "'%s' has %zu entries; at most %zu are taken", name, n, max);
}

int call_stops(call *c, const json_t *stop, const char *name) {
  enum { MOST = 64, LONGEST = 1024 };
  const json_t *v;
  size_t n = json_is_array(stop) ? json_array_size(stop) : 1;
  if (!stop) return 0;
  if (n > MOST) return too_many(c, name, n, MOST);
  for (size_t i = 0; i < n; i++) {
    v = json_is_array(stop) ? json_array_get(stop, i) : stop;
    if (!json_is_string(v))
      return fault_set(&c->fault, 400, name, "'%s' must be a string or an array of strings", name);
    if (json_string_length(v) > LONGEST)
      return fault_set(&c->fault, 400, name, "'%s' has a text of more than %d bytes", name, LONGEST);
    if (strlen(json_string_value(v)) != json_string_length(v))
      return fault_set(&c->fault, 400, name, "'%s' has a text with a NUL", name);
    if (!json_string_length(v)) continue;
    for (size_t k = 0; k < c->requests.n; k++) vec_push(&c->requests.at[k]->stops, xstrdup(json_string_value(v)));
  }
  return 0;
}

static int set_grammar(call *c, bool schema, const char *text, size_t n, const char *name) {
  const weft_model *m = c->m->model;
  weft_error err;
  if (weft_vocab_size(weft_model_vocab(m)) != weft_model_vocab_size(m))
    return fault_set(&c->fault, 400, name,
                     "'%s': this model's vocabulary has gaps, so that answers cannot be constrained", name);
  for (size_t i = 0; i < c->requests.n; i++) {
    weft_grammar **to = &c->requests.at[i]->grammar;
    if (*to) return fault_set(&c->fault, 400, name, "'%s': the answer is constrained by something else already", name);
    if (schema ? weft_grammar_open_json_schema(weft_model_vocab(m), text, n, to, &err)
               : weft_grammar_open_gbnf(weft_model_vocab(m), text, n, to, &err))
      return fault_set(&c->fault, 400, name, "'%s': %s", name, err.text);
  }
  return 0;
}

int call_grammar(call *c, const char *text, size_t n, const char *name) {
  return n ? set_grammar(c, false, text, n, name) : 0;
}

int call_schema(call *c, const json_t *schema, const char *name) {
  if (!json_is_object(schema) && !json_is_boolean(schema))
    return fault_set(&c->fault, 400, name, "'%s' must be a schema, not %s", name, json_kind(schema));
  char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
  int status = set_grammar(c, true, text, strlen(text), name);
  free(text);
  return status;
}

// ---- biases and samplers --------------------------------------------------------------------------------------------

static void add_bias(call *c, int32_t id, double bias) {
  for (size_t i = 0; i < c->requests.n; i++) vec_push(&c->requests.at[i]->biases, ((struct bias){id, (float)bias}));
}

static int read_bias_value(call *c, const json_t *v, double *out) {
  if (json_is_false(v)) { *out = -INFINITY; return 0; }
  return read_real(v, "logit_bias", -1e6, 1e6, out, &c->fault);
}

static int bias_text(call *c, const char *text, size_t n, double bias) {
  weft_error err;
  int32_t *ids;
  size_t n_ids;
  if (weft_tokenize(weft_model_vocab(c->m->model), text, n, WEFT_PARSE_SPECIAL, &ids, &n_ids, &err))
    return fault_set(&c->fault, 400, "logit_bias", "%s", err.text);
  for (size_t i = 0; i < n_ids; i++) add_bias(c, ids[i], bias);
  weft_free(ids);
  return 0;
}

static int bias_id(call *c, int64_t id, double bias) {
  int32_t n = weft_model_vocab_size(c->m->model);
  if (id < 0 || id >= n)
    return fault_set(&c->fault, 400, "logit_bias", "'logit_bias' has token %lld; ids go from 0 to %d", (long long)id,
                     n - 1);
  add_bias(c, (int32_t)id, bias);
  return 0;
}

static int read_biases(call *c) {
  enum { MOST = 65536 };
  const json_t *v = c->p.logit_bias, *one;
  const char *key;
  size_t i;
  double bias;
  if (!v) return 0;
  if (json_is_object(v)) {
    if (json_object_size(v) > MOST) return too_many(c, "logit_bias", json_object_size(v), MOST);
    json_t *member;
    json_object_foreach(c->p.logit_bias, key, member) {
      char *rest;
      long long id = strtoll(key, &rest, 10);
      if (read_bias_value(c, member, &bias) ||
          (*rest || !*key ? bias_text(c, key, strlen(key), bias) : bias_id(c, id, bias)))
        return -1;
    }
    return 0;
  }
  if (!json_is_array(v))
    return fault_set(&c->fault, 400, "logit_bias", "'logit_bias' must be an object or an array, not %s", json_kind(v));
  if (json_array_size(v) > MOST) return too_many(c, "logit_bias", json_array_size(v), MOST);
  json_array_foreach(v, i, one) {
    const json_t *what = json_array_get(one, 0);
    if (json_array_size(one) != 2 || !(json_is_integer(what) || json_is_string(what)))
      return fault_set(&c->fault, 400, "logit_bias",
                       "'logit_bias' has an entry that is no pair of a token and a number");
    if (read_bias_value(c, json_array_get(one, 1), &bias)) return -1;
    if (json_is_integer(what) ? bias_id(c, json_integer_value(what), bias)
                              : bias_text(c, json_string_value(what), json_string_length(what), bias)) return -1;
  }
  return 0;
}

// An array of names or letters.  The text has to live as long as the request: it goes into `out`.
static int read_samplers(call *c, str *names, bool *letters) {
  const json_t *v = c->p.samplers, *one;
  size_t i;
  *letters = json_is_string(v);
  if (*letters) str_add(names, json_string_value(v));
  json_array_foreach(v, i, one) {
    if (!json_is_string(one)) return fault_set(&c->fault, 400, "samplers", "'samplers' must be names of samplers");
    if (i) str_addc(names, ';');
    str_add(names, json_string_value(one));
  }
  if (v && !*letters && !json_is_array(v))
    return fault_set(&c->fault, 400, "samplers", "'samplers' must be an array of names, or letters");
  return 0;
}

// ---- going ----------------------------------------------------------------------------------------------------------

static void fill_request(call *c, request *r) {
  const struct params *p = &c->p;
  r->sampling = p->sampling;
  r->max_tokens = p->max_tokens;
  r->n = p->n;
  r->ignore_end = p->ignore_end;
  r->scored = p->logprobs;
  r->prompt_scored = p->logprobs && p->echo;
  r->n_top = (int32_t)p->n_top;
  r->one_call = p->no_parallel;
  r->tells = p->stream && p->progress;
  r->max_prompt_s = p->max_prompt_ms / 1000;
  r->max_answer_s = p->max_answer_ms / 1000;
  r->key = c->x->key < 0 ? 0 : c->x->key;
}

static int check_request(call *c, request *r) {
  const weft_model *m = c->m->model;
  int n_ctx = weft_model_context(m);
  weft_sampler *s = NULL;
  weft_error err;
  if (r->embeds) return 0;
  if (weft_model_only_embeds(m))
    return fault_set(&c->fault, 400, "model",
                     "this model makes vectors of texts (/v1/embeddings); it predicts nothing");
  if (!r->prompt.n) return fault_set(&c->fault, 400, "prompt", "the prompt is empty");
  if (r->prompt.n >= (size_t)n_ctx) {
    c->fault.n_prompt = (int64_t)r->prompt.n;
    c->fault.n_ctx = n_ctx;
    c->fault.code = "context_length_exceeded";
    return fault_set(&c->fault, 400, "prompt", "the prompt has %zu tokens and the context holds %d", r->prompt.n,
                     n_ctx);
  }
  if (weft_sampler_new(weft_model_vocab_size(m), &r->sampling, &s, &err))
    return fault_set(&c->fault, 400, c->p.samplers ? "samplers" : NULL, "%s", err.text);
  weft_sampler_free(s);
  return 0;
}

static int complete(call *c) {
  enum { MOST_CHOICES = 128 };
  const struct params *p = &c->p;
  if (p->n * (int64_t)c->requests.n > MOST_CHOICES)
    return fault_set(&c->fault, 400, "n", "%lld answers are asked for at once; at most %d are made",
                     (long long)(p->n * (int64_t)c->requests.n), MOST_CHOICES);
  if (p->grammar && call_grammar(c, json_string_value(p->grammar), json_string_length(p->grammar), "grammar"))
    return -1;
  if (p->json_schema && call_schema(c, p->json_schema, "json_schema")) return -1;
  if (call_stops(c, p->stop, "stop") || call_stops(c, p->stop_sequences, "stop_sequences")) return -1;
  if (read_biases(c)) return -1;
  str names = {0};
  bool letters;
  int status = read_samplers(c, &names, &letters);
  // The sampler reads these texts when a request begins: they live in the body's place.
  c->p.sampling.samplers = names.n && !letters ? names.at : NULL;
  c->p.sampling.sampler_seq = names.n && letters ? names.at : NULL;
  c->sampler_names = names.at;
  c->p.sampling.seed = p->seed < 0 ? weft_random_seed() : (uint64_t)p->seed;
  for (size_t i = 0; i < c->requests.n; i++) fill_request(c, c->requests.at[i]);
  for (size_t i = 0; i < c->requests.n && !status; i++) status = check_request(c, c->requests.at[i]);
  return status;
}

static void release_call(call *c) {
  pthread_mutex_lock(&c->lock);
  bool last = !--c->refs;
  pthread_mutex_unlock(&c->lock);
  if (!last) return;
  for (event *e = c->first, *next; e; e = next) { next = e->next; event_free(e); }
  for (size_t i = 0; i < c->requests.n; i++) { request_clear(c->requests.at[i]); free(c->requests.at[i]); }
  vec_free(&c->requests);
  for (int i = 0; i < c->n_choices; i++) {
    struct choice *h = &c->choices[i];
    str_free(&h->content);
    str_free(&h->reasoning);
    json_decref(h->calls);
    json_decref(h->scores);
    vec_free(&h->ids);
    for (size_t k = 0; k < h->vectors.n; k++) free(h->vectors.at[k].at);
    vec_free(&h->vectors);
  }
  free(c->choices);
  json_decref(c->prompt_scores);
  json_decref(c->body);
  str_free(&c->out);
  free(c->sampler_names);
  free(c->own);
  exchange_drop(c->x);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

int call_bad(call *c, const char *name, const char *what) {
  return fault_set(&c->fault, 400, name, "'%s' %s", name, what);
}

void call_refuse(call *c) {
  answer_fault(c->s, c->x, &c->fault);
  release_call(c);
}

void call_answer(call *c, json_t *o) {
  answer_json(c->x, 200, o);
  release_call(c);
}

static void on_gone(void *ctx) {
  call *c = ctx;
  for (size_t i = 0; i < c->requests.n; i++) sched_cancel(c->m->sched, c->requests.at[i]);
}

static void queue_event(void *ctx, event *e);
static void pump(void *ctx);

void call_go(call *c) {
  if (complete(c)) { call_refuse(c); return; }
  c->n_choices = (int)(c->p.n * (int64_t)c->requests.n);
  c->choices = xcalloc((size_t)c->n_choices, sizeof *c->choices);
  for (int i = 0; i < c->n_choices; i++) {
    c->choices[i].calls = json_array();
    c->choices[i].scores = json_array();
  }
  c->prompt_scores = json_array();
  for (size_t i = 0; i < c->requests.n; i++) json_array_append_new(c->prompt_scores, json_array());
  for (size_t i = 0; i < c->requests.n; i++) {
    c->requests.at[i]->event = queue_event;
    c->requests.at[i]->ctx = c;
  }
  c->refs++;                           // this function's; the other one is that of the last event
  c->scheduled = true;                 // nothing is written before the stream begins
  if (sched_submit(c->m->sched, c->requests.at, c->requests.n, &c->fault)) {
    c->refs--;
    call_refuse(c);
    return;
  }
  if (c->p.stream) {
    exchange_stream(c->x, c->speak->type, c->speak->ping);
    if (c->speak->start) c->speak->start(c);
  }
  exchange_when_gone(c->x, on_gone, c);
  pump(c);
}

// ---- what comes back ------------------------------------------------------------------------------------------------

static void queue_event(void *ctx, event *e) {
  call *c = ctx;
  pthread_mutex_lock(&c->lock);
  e->next = NULL;
  *c->last = e;
  c->last = &e->next;
  bool wake = !c->scheduled;
  c->scheduled = true;
  if (wake) c->refs++;
  pthread_mutex_unlock(&c->lock);
  if (wake) pool_add(c->s->pool, pump, c);
}

static json_t *score_object(const event *e) {
  json_t *top = json_array();
  for (int32_t i = 0; i < e->n_top; i++)
    json_array_append_new(top, json_pack("[if]", (int)e->top[i].id, e->top[i].logprob));
  if (!e->scored) { json_decref(top); return json_pack("{si sn s[]}", "id", (int)e->id, "logprob", "top"); }
  return json_pack("{si sf so}", "id", (int)e->id, "logprob", e->logprob, "top", top);
}

static int choice_of_event(const call *c, const event *e) {
  for (size_t i = 0; i < c->requests.n; i++)
    if (c->requests.at[i] == e->request) return (int)i * (int)e->request->n + e->choice;
  die("serve: an event of no request");
}

void choice_take(struct choice *h, const struct part *p) {
  if (p->kind == WEFT_CALL)
    json_array_append_new(h->calls, json_pack("{ss ss so}", "id", p->id ? p->id : "", "name", p->name ? p->name : "",
                                              "arguments", json_of_text(str_c(&p->text), p->text.n)));
  else str_addn(p->kind == WEFT_REASONING ? &h->reasoning : &h->content, str_c(&p->text), p->text.n);
}

json_t *call_progress(const event *e) {
  json_t *o = json_pack("{sI sI sI sf}", "total", (json_int_t)e->total, "cache", (json_int_t)e->timing.n_cached,
                        "processed", (json_int_t)e->done, "time_ms", e->timing.prompt_ms);
  if (!e->waiting) return o;
  json_object_set_new(o, "queue_position", json_integer(e->waiting));
  json_object_set_new(o, "queue_wait_ms", json_real(1000 * e->wait_s));
  return o;
}

static void take_in(call *c, event *e, struct choice *h) {
  switch (e->kind) {
  case EVENT_PROMPT: break;
  case EVENT_PROMPT_TOKEN:
    if (!e->choice)
      json_array_append_new(json_array_get(c->prompt_scores, (size_t)((h - c->choices) / e->request->n)),
                            score_object(e));
    break;
  case EVENT_TOKEN:
    if (e->id >= 0) vec_push(&h->ids, e->id);
    if (e->scored) json_array_append_new(h->scores, score_object(e));
    for (size_t i = 0; i < e->parts.n; i++) choice_take(h, &e->parts.at[i]);
    break;
  case EVENT_VECTOR:
    vec_push(&h->vectors, ((struct vector){e->vector, e->n_vector}));
    e->vector = NULL;
    break;
  case EVENT_END:
    h->ended = true;
    h->finish = e->finish;
    h->timing = e->timing;
    h->word = e->finish == FINISH_WORD ? e->request->stops.at[e->stop] : NULL;
    c->n_ended++;
    break;
  case EVENT_FAILED:
    c->n_ended += e->request->embeds ? (int)e->request->n : 1;
    if (!c->failed) fault_set(&c->fault, e->busy ? 429 : 500, NULL, "%s", e->text);
    if (e->busy) c->fault.retry_s = 5;
    c->failed = true;
    break;
  }
}

static void end_call(call *c) {
  exchange_when_gone(c->x, NULL, NULL);
  int64_t used = call_prompt_tokens(c) + call_drawn(c);
  __atomic_add_fetch(&c->s->used[c->x->key < 0 ? 0 : c->x->key], used, __ATOMIC_RELAXED);
  if (c->failed && !c->p.stream) answer_fault(c->s, c->x, &c->fault);
  else if (c->failed) c->speak->failed(c, c->fault.text);
  else c->speak->finish(c);
  if (c->p.stream) exchange_end(c->x);
}

static void handle_event(call *c, event *e) {
  int i = choice_of_event(c, e);
  take_in(c, e, &c->choices[i]);
  if (c->p.stream && !c->failed) c->speak->event(c, e, i);
  bool over = c->n_ended == c->n_choices;
  event_free(e);
  if (!over) return;
  end_call(c);
  release_call(c);
}

static void pump(void *ctx) {
  call *c = ctx;
  pthread_mutex_lock(&c->lock);
  while (c->first) {
    event *e = c->first;
    if (!(c->first = e->next)) c->last = &c->first;
    pthread_mutex_unlock(&c->lock);
    handle_event(c, e);
    pthread_mutex_lock(&c->lock);
  }
  c->scheduled = false;
  pthread_mutex_unlock(&c->lock);
  release_call(c);
}

// ---- helpers --------------------------------------------------------------------------------------------------------

void call_send(call *c, int status, json_t *o) { answer_json(c->x, status, o); }

void call_line(call *c, const char *before, json_t *o, const char *after) {
  char *text = json_dumps(o, JSON_COMPACT);
  c->out.n = 0;
  str_add(&c->out, before);
  str_add(&c->out, text);
  str_add(&c->out, after);
  exchange_add(c->x, c->out.at, c->out.n);
  free(text);
  json_decref(o);
}

json_t *piece_text(const served *m, int32_t id) {
  size_t n;
  char *text = weft_piece(weft_model_vocab(m->model), id, true, &n);
  json_t *made = json_of_text(text, n);
  weft_free(text);
  return made;
}

const char *finish_name(enum finish f) {
  static const char *const names[] = {"stop", "stop", "length", "tool_calls", "length", "stop"};
  return names[f];
}

int64_t call_prompt_tokens(const call *c) {
  int64_t n = 0;
  for (size_t i = 0; i < c->requests.n; i++) n += (int64_t)c->requests.at[i]->prompt.n;
  return n;
}

int64_t call_drawn(const call *c) {
  int64_t n = 0;
  for (int i = 0; i < c->n_choices; i++) n += (int64_t)c->choices[i].timing.n_drawn;
  return n;
}

int64_t call_cached(const call *c) {
  int64_t n = 0;
  for (size_t i = 0; i < c->requests.n; i++) n += c->choices[i * (size_t)c->p.n].timing.n_cached;
  return n;
}
