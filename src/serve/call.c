// Processes a message from its JSON to its answer: see call.h. Events from the step thread go into the call's queue,
// and a pool job takes them from there, at most one job per call at a time: a family sees events in order, and nothing
// is written while the model computes.
#define _GNU_SOURCE
#include "serve/media.h"
#include "serve/call.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/literal.h"
#include "serve/families.h"
#include "serve/shapes.h"

enum { SCORE_BYTES = 1100 };           // for a token's log-probability: as JSON, as its own object, and as text

// ---- fields common to families --------------------------------------------------------------------------------------

#define P struct params
#define BIG 9.2233720368547748e18      // the largest double below 2^63
static const struct field structured_table[] = {
  FS(P, json_schema, "json", F_ANY, SHAPE_SCHEMA_OR_TEXT, "a schema"),
  FJ(P, regex, "regex", F_TEXT, "a regular expression"),
  FS(P, choices, "choice", F_ARRAY, SHAPE_CHOICES, "texts: the answer is one of them"),
  FJ(P, grammar, "grammar", F_TEXT, "a grammar"),
  FB(P, any_json, "json_object", "any JSON object"),
  FREFUSED("structural_tag", NULL, "use json, regex, choice or grammar"),
  FIGNORED("disable_any_whitespace", "[false]", "the model decides white space in JSON"),
  FIGNORED("disable_additional_properties", "[false]", "the schema decides"),
  FIGNORED("disable_fallback", NULL, "Weft has one implementation"),
  FIGNORED("whitespace_pattern", NULL, "the model decides white space in JSON"),
};
static const struct fields structured_fields = FIELDS(structured_table);
static const struct fields *const structured_tables[] = {&structured_fields, NULL};

static const struct field sampling_table[] = {
  FR(P, sampling.temp, "temperature", 0, 1000, "0: always the likeliest token"),
  FR(P, sampling.top_p, "top_p", 0, 1, "the likeliest tokens that together have this probability"),
  FI32(P, sampling.top_k, "top_k", -1, INT32_MAX, "the k likeliest tokens; 0 or -1: all"),
  FR(P, sampling.min_p, "min_p", 0, 1, "at least this fraction of the likeliest one's probability"),
  FR(P, sampling.typical_p, "typical_p", 0, 1, "the most typical tokens with this probability together"),
  FR(P, sampling.top_n_sigma, "top_n_sigma", -1e6, 1e6, "logits within this number of standard deviations of the best"),
  FR(P, sampling.xtc_probability, "xtc_probability", 0, 1, "how often XTC drops the likeliest tokens"),
  FR(P, sampling.xtc_threshold, "xtc_threshold", 0, 1, "the probability that they have to reach"),
  FR(P, sampling.repeat_penalty, "repeat_penalty", 1e-3, 1e3, "divides the logits of repeated tokens"),
  FR(P, sampling.repeat_penalty, "repetition_penalty", 1e-3, 1e3, "the same"),
  FR(P, sampling.frequency_penalty, "frequency_penalty", -1e3, 1e3, "off the logit for each occurrence"),
  FR(P, sampling.presence_penalty, "presence_penalty", -1e3, 1e3, "off the logit once"),
  FI32(P, sampling.repeat_last_n, "repeat_last_n", -1, INT32_MAX, "tokens that penalties look back on; -1: all"),
  FR(P, sampling.dry_multiplier, "dry_multiplier", 0, 1e6, "DRY: what continuing a repetition costs"),
  FR(P, sampling.dry_base, "dry_base", 1, 1e6, "DRY: grows by this with each token"),
  FI32(P, sampling.dry_allowed_length, "dry_allowed_length", 0, INT32_MAX, "DRY: shorter repetitions are free"),
  FI32(P, sampling.dry_last_n, "dry_penalty_last_n", -1, INT32_MAX, "DRY: tokens it looks back on; -1: all"),
  FS(P, dry_breakers, "dry_sequence_breakers", F_ANY, SHAPE_TEXT_OR_TEXTS,
     "DRY: no repetition reaches back over these texts"),
  FR(P, sampling.dynatemp_range, "dynatemp_range", 0, 1e3, "temperature from minus to plus this, by entropy"),
  FR(P, sampling.dynatemp_exponent, "dynatemp_exponent", 0, 1e3, "exponent of that"),
  FI32(P, sampling.mirostat, "mirostat", 0, 2, "version of Mirostat; 0: off"),
  FR(P, sampling.mirostat_tau, "mirostat_tau", 0, 1e3, "surprise that it aims at"),
  FR(P, sampling.mirostat_eta, "mirostat_eta", 0, 1e3, "how quickly it corrects itself"),
  FR(P, sampling.adaptive_target, "adaptive_target", -1e6, 1,
     "adaptive-p, where samplers name it: tokens of about this probability; negative: off"),
  FR(P, sampling.adaptive_decay, "adaptive_decay", 0, 1, "how long it remembers what was drawn: 1 / (1 - this) tokens"),
  FI(P, seed, "seed", -BIG, BIG, "same seed, same tokens; -1: random"),
  FB(P, ignore_end, "ignore_eos", "goes on after the token that ends an answer"),
  FS(P, logit_bias, "logit_bias", F_ANY,
     "{'anyOf':[{'type':'array'},{'type':'object','additionalProperties':"
     "{'anyOf':[{'type':'number','minimum':-1e6,'maximum':1e6},{'enum':[false]}]}}]}",
     "what is added to logits: {\"id\": bias}, [[id, bias]] or [[\"text\", bias]]; false bans"),
  FS(P, stop, "stop", F_ANY, SHAPE_TEXT_OR_TEXTS, "a text or an array of texts before which the answer ends"),
  FJ(P, grammar, "grammar", F_TEXT, "a grammar that the answer has to match"),
  FS(P, json_schema, "json_schema", F_ANY, SHAPE_SCHEMA, "a schema of the JSON that the answer has to be"),
  FS(P, json_schema, "guided_json", F_ANY, SHAPE_SCHEMA_OR_TEXT, "json_schema, in vLLM's older form"),
  FJ(P, regex, "guided_regex", F_TEXT, "a regular expression that the answer has to match"),
  FJ(P, regex, "regex", F_TEXT, "guided_regex, in SGLang's form"),
  FS(P, choices, "guided_choice", F_ARRAY, SHAPE_CHOICES, "texts: the answer is one of them"),
  FJ(P, grammar, "guided_grammar", F_TEXT, "grammar by another name"),
  FJ(P, grammar, "ebnf", F_TEXT, "grammar, in SGLang's form"),
  FO(P, nested, "structured_outputs", structured_tables, "vLLM's form: one of json, regex, choice, grammar"),
  FS(P, lora, "lora", F_ARRAY, SHAPE_SCALES,
     "[{id, scale}]: the scales that adapters have in this request; those that are not named have 0"),
  FS(P, samplers, "samplers", F_ANY, SHAPE_TEXT_OR_TEXTS,
     "which samplers, in which order: an array of names, or letters"),
  FR(P, max_prompt_ms, "t_max_prompt_ms", 0, 1e9, "milliseconds for the prompt; 0: as long as it takes"),
  FR(P, max_answer_ms, "t_max_predict_ms", 0, 1e9, "milliseconds for the answer; 0: as long as it takes"),
  FI(P, reasoning_budget, "reasoning_budget_tokens", -1, INT32_MAX,
     "tokens of reasoning, which is ended then; -1: any"),
  FI(P, reasoning_budget, "thinking_budget_tokens", -1, INT32_MAX, "the same"),
  FJ(P, reasoning_message, "reasoning_budget_message", F_TEXT, "what stands before that end"),
  FS(P, reasoning_format, "reasoning_format", F_TEXT, "{'enum':['auto','deepseek','none']}",
     "none: reasoning stays in the content, with its marks; otherwise it is apart"),
  FB(P, stream, "stream", "the answer comes as it is made"),
  FB(P, progress, "return_progress", "a stream tells how much of the prompt has been read"),
};
const struct fields sampling_fields = FIELDS(sampling_table);

static const struct field common_table[] = {
  FJ(P, model, "model", F_TEXT, "the name of the model; where the server has one, any is taken"),
  FS(P, keep_alive, "keep_alive", F_ANY,
     "{'anyOf':[{'type':'number','minimum':-1e9,'maximum':1e9},"
     "{'type':'string','pattern':'^[-+]?([0-9]{1,9}|([0-9.]{1,9}(ms|s|m|h))+)$'}]}",
     "how long the model stays loaded then: seconds, or a text like \"5m\"; negative: for ever"),
};
const struct fields common_fields = FIELDS(common_table);
static const struct field name_table[] = {FJ(P, model, "model", F_TEXT, "the name of the model")};
const struct fields name_fields = FIELDS(name_table);

static const struct field default_table[] = {
  FI(P, max_tokens, "n_predict", -1, INT32_MAX, ""),
  FI(P, normalize, "embd_normalize", -1, 1000, ""),
  FJ(P, default_variables, "chat_template_kwargs", F_OBJECT, ""),
  FJ(P, default_grammar, "default_grammar", F_TEXT, ""),
  FJ(P, default_schema, "default_json_schema", F_ANY, ""),
};
static const struct fields default_fields = FIELDS(default_table);

static int read_defaults(const server *s, const weft_model *m, struct params *p, fault *f) {
  *p = (struct params){.max_tokens = -1,
                       .n = 1,
                       .seed = -1,
                       .slot = -1,
                       .normalize = 2,
                       .reasoning_budget = -1,
                       .sampling = weft_sampling_default()};
  if (m) (void)weft_sampling_of_file(weft_model_file(m), &p->sampling, NULL);  // the log has already reported the error
  if (!s->defaults) return 0;
  return fields_read(s->defaults, "", sampling_fields, p, f) || fields_read(s->defaults, "", default_fields, p, f);
}

struct params params_default(const server *s, const served *m) {
  struct params p;
  fault none = {0};
  read_defaults(s, m ? m->model : NULL, &p, &none);
  p.sampling.seed = p.seed < 0 ? UINT32_MAX : (uint64_t)p.seed;      // llama.cpp's value for a random seed
  return p;
}

int params_check_defaults(const server *s, fault *f) {
  struct params p;
  return read_defaults(s, NULL, &p, f) ? -1 : 0;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// Reads seconds: a number, or a text like "5m", "1h30m" or "-1". Negative: no limit.
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

static int check_reasoning_format(call *c) {
  const char *format = json_string_value(c->p.reasoning_format);
  if (!format || !strcmp(format, "auto") || !strcmp(format, "deepseek") || !strcmp(format, "none")) return 0;
  return fault_set(&c->fault, 400, "reasoning_format", "'reasoning_format' must be auto, deepseek or none");
}

static int read_body(call *c) {
  double keep_s;
  const struct fields *const *tables = c->x->route->tables;
  size_t n = 0;
  while (tables[n]) n++;
  while (n--) if (fields_read(c->body, "", *tables[n], &c->p, &c->fault)) return -1;
  if (c->p.keep_alive && read_keep_alive(c->p.keep_alive, &keep_s, &c->fault)) return -1;
  if (check_reasoning_format(c)) return -1;
  shelf_keep(c->s->shelf, c->m, c->p.keep_alive ? &keep_s : NULL);
  return 0;
}

void call_ignores(call *c, const char *fmt, ...) {
  char text[160];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  fields_add_unread(&asked_of(c->x)->ignored, text);
}

call *call_new(server *s, exchange *x, const struct speaker *speak) {
  call *c = xcalloc(1, sizeof *c);
  struct asked *asked = asked_of(x);
  *c = (call){.s = s,
              .m = asked->m,
              .body = json_incref(asked->body),
              .json_left = asked->json_left,
              .x = exchange_hold(x),
              .submitted = now_s(),
              .speak = speak,
              .p = params_default(s, asked->m),
              .score_bytes = SCORE_BYTES,
              .created = (int64_t)time(NULL),
              .refs = 1};
  c->last = &c->first;
  pthread_mutex_init(&c->lock, NULL);
  exchange_work(x);
  if (!read_body(c)) return c;
  call_refuse(c);
  return NULL;
}

static int too_many(call *c, const char *name, size_t n, size_t max) {
  return fault_set(&c->fault, 400, name, "'%s' has %zu entries; at most %zu are taken", name, n, max);
}

// Adds a string or an array of strings to the list at this offset, for all requests. Empty ones are skipped.
static int read_texts(call *c, const json_t *texts, const char *name, size_t offset) {
  enum { MOST = 64, LONGEST = 1024 };
  const json_t *v;
  size_t n = json_is_array(texts) ? json_array_size(texts) : 1;
  if (!texts) return 0;
  if (n > MOST) return too_many(c, name, n, MOST);
  for (size_t i = 0; i < n; i++) {
    v = json_is_array(texts) ? json_array_get(texts, i) : texts;
    if (!json_is_string(v))
      return fault_set(&c->fault, 400, name, "'%s' must be a string or an array of strings", name);
    if (json_string_length(v) > LONGEST)
      return fault_set(&c->fault, 400, name, "'%s' has a text of more than %d bytes", name, LONGEST);
    if (strlen(json_string_value(v)) != json_string_length(v))
      return fault_set(&c->fault, 400, name, "'%s' has a text with a NUL", name);
    if (!json_string_length(v)) continue;
    for (size_t k = 0; k < c->requests.n; k++) {
      request_texts *to = (request_texts *)(void *)((char *)c->requests.at[k] + offset);
      vec_push(to, xstrdup(json_string_value(v)));
    }
  }
  return 0;
}

void call_notes(call *c, const weft_grammar *g) {
  enum { MOST = 1000 };
  str text = {0};
  if (c->noted) return;                  // one header, of the first grammar with notes
  for (const char *at = weft_grammar_notes(g); *at && text.n < MOST; at++) {
    if (*at == '\n') str_add(&text, at[1] ? " | " : "");
    else str_addc(&text, *at >= ' ' && *at < 127 ? *at : '?');
  }
  c->noted = text.n > 0;
  if (text.n) exchange_header(c->x, "Weft-Schema-Note", "%s", text.at);
  str_free(&text);
}

typedef int open_grammar(const weft_vocab *v, const char *text, size_t n, weft_grammar **out, weft_error *err);

// A continued answer must match the grammar as a whole if its beginning can; text after an introduction must match
// alone.
static void begin_grammar(const request *r) {
  weft_error err;
  const char *end = r->prompt_text ? r->prompt_text + strlen(r->prompt_text) : NULL;
  if (r->given && end) (void)weft_grammar_accept_text(r->grammar, end - r->given, r->given, &err);
}

static int set_grammar(call *c, open_grammar *open, const char *text, size_t n, const char *name) {
  const weft_model *m = c->m->model;
  weft_error err;
  error late = {0};
  weft_grammar *unused = NULL;
  if (weft_vocab_size(weft_model_vocab(m)) != weft_model_vocab_size(m))
    return fault_set(&c->fault, 400, name,
                     "'%s': this model's vocabulary has gaps, so that answers cannot be constrained", name);
  if (*c->constraint && strcmp(c->constraint, name))
    return fault_set(&c->fault, 400, name, "'%s' and '%s' constrain the answer both: only one of them can be given",
                     c->constraint, name);
  snprintf(c->constraint, sizeof c->constraint, "%s", name);
  if (!c->requests.n && open(weft_model_vocab(m), text, n, &unused, &err))      // a request that only loads a model
    return fault_set(&c->fault, 400, name, "'%s': %s", name, err.text);
  weft_grammar_free(unused);
  for (size_t i = 0; i < c->requests.n; i++) {
    weft_grammar **to = &c->requests.at[i]->grammar;
    if (open(weft_model_vocab(m), text, n, to, &err))
      return fault_set(&c->fault, 400, name, "'%s': %s", name, err.text);
    call_notes(c, *to);
    begin_grammar(c->requests.at[i]);
    if (account_check(&late)) return fault_set(&c->fault, 400, name, "'%s': %s", name, late.text);
  }
  return 0;
}

int call_grammar(call *c, const char *text, size_t n, const char *name) {
  return n ? set_grammar(c, weft_grammar_open_gbnf, text, n, name) : 0;
}

static int set_choices(call *c, const json_t *choices) {
  enum { MOST = 4096 };
  str all = {0};
  const json_t *one;
  size_t i;
  if (!json_array_size(choices)) return fault_set(&c->fault, 400, "choice", "'choice' has no text");
  if (json_array_size(choices) > MOST) return too_many(c, "choice", json_array_size(choices), MOST);
  str_add(&all, "root ::= ");
  json_array_foreach(choices, i, one) {
    if (!json_is_string(one) || !json_string_length(one)) {
      str_free(&all);
      return fault_set(&c->fault, 400, "choice", "'choice[%zu]' must be a text, not %s", i,
                       json_is_string(one) ? "an empty one" : json_kind(one));
    }
    if (i) str_add(&all, " | ");
    str_add_json(&all, json_string_value(one), json_string_length(one));      // a grammar's literals use JSON syntax
  }
  int status = set_grammar(c, weft_grammar_open_gbnf, all.at, all.n, "choice");
  str_free(&all);
  return status;
}

static int set_constraints(call *c) {
  const struct params *p = &c->p;
  int status = 0;
  if (p->grammar) status = call_grammar(c, json_string_value(p->grammar), json_string_length(p->grammar), "grammar");
  if (!status && p->json_schema) status = call_schema(c, p->json_schema, false, "json_schema");
  if (!status && p->any_json) status = call_object(c, "json_object");
  if (!status && p->regex)
    status =
      set_grammar(c, weft_grammar_open_regex, json_string_value(p->regex), json_string_length(p->regex), "regex");
  if (!status && p->choices) status = set_choices(c, p->choices);
  return status;
}

// A schema may be given as text, as in vLLM.
static int set_schema_text(call *c, const json_t *schema, const char *name) {
  const char *text = json_string_value(schema);
  size_t n = json_string_length(schema);
  if (json_take(text, n, &c->json_left, &c->x->account, name, &c->fault)) return -1;
  return set_grammar(c, weft_grammar_open_json_schema, text, n, name);
}

int call_schema(call *c, const json_t *schema, bool strict, const char *name) {
  if (json_is_string(schema)) return set_schema_text(c, schema, name);
  if (!json_is_object(schema) && !json_is_boolean(schema))
    return fault_set(&c->fault, 400, name, "'%s' must be a schema, not %s", name, json_kind(schema));
  char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
  open_grammar *open = strict ? weft_grammar_open_json_schema_strict : weft_grammar_open_json_schema;
  int status = set_grammar(c, open, text, strlen(text), name);
  free(text);
  return status;
}

int call_object(call *c, const char *name) {
  json_t *any = json_pack("{ss}", "type", "object");
  int status = call_schema(c, any, false, name);
  json_decref(any);
  return status;
}

int call_format(call *c, const json_t *format, const char *name) {
  char of[64];
  const json_t *named = json_object_get(format, "json_schema"), *in = named ? named : format;
  const json_t *schema = json_object_get(in, "schema");
  if (!format || json_is_of(format, "text")) return 0;
  bool object = json_is_of(format, "json_object"), known = object || json_is_of(format, "json_schema");
  if (object && !schema) return call_object(c, name);
  snprintf(of, sizeof of, "%s.%s%s", name, known && named ? "json_schema." : "", known ? "schema" : "type");
  if (!known) return call_bad(c, of, "must be text, json_object or json_schema");
  return call_schema(c, schema, json_is_true(json_object_get(in, "strict")), of);
}

// ---- biases and samplers --------------------------------------------------------------------------------------------

static void add_bias(call *c, int32_t id, double bias) { vec_push(&c->biases, ((struct bias){id, (float)bias})); }

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
  int status = call_take(c, "logit_bias", "the biases of a text's tokens", n_ids * 2 * sizeof *c->biases.at);
  for (size_t i = 0; i < n_ids && !status; i++) add_bias(c, ids[i], bias);
  weft_free(ids);
  return status;
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

// Reads an array of names or letters into `out`, which must live as long as the request.
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

// ---- submitting -----------------------------------------------------------------------------------------------------

static void fill_request(call *c, request *r) {
  const struct params *p = &c->p;
  r->sampling = p->sampling;
  r->max_tokens = p->max_tokens >= 0 ? p->max_tokens : params_default(c->s, NULL).max_tokens;
  r->n = p->n;
  r->ignore_end = p->ignore_end;
  r->has_breakers = p->dry_breakers != NULL;
  r->scored = p->logprobs;
  r->prompt_scored = p->logprobs && p->echo;
  r->n_top = (int32_t)p->n_top;
  r->post_sampling = p->post_sampling;
  r->one_call = p->no_parallel;
  r->tells = p->stream && p->progress;
  r->max_prompt_s = p->max_prompt_ms / 1000;
  r->max_answer_s = p->max_answer_ms / 1000;
  r->keep_reasoning = p->reasoning_format && !strcmp(json_string_value(p->reasoning_format), "none");
  r->slot = (int)p->slot;
  r->key = c->x->key < 0 ? 0 : c->x->key;
  r->account = &c->x->account;
  r->biases = c->biases.at;
  r->n_biases = c->biases.n;
}

// The message is tokenized here, once for all choices.
static int open_budget(call *c, request *r) {
  const char *message = json_string_value(c->p.reasoning_message);
  weft_error err;
  size_t n;
  if (c->p.reasoning_budget < 0 || !r->answer) return 0;
  r->budget = weft_budget_new(weft_model_vocab(c->m->model), c->p.reasoning_budget, message);
  if (weft_budget_prepare(r->budget, r->answer, &n, &err))
    return fault_set(&c->fault, 400, "reasoning_budget_message", "'reasoning_budget_message': %s", err.text);
  return call_take(c, "reasoning_budget_message", "its text and tokens",
                   n * sizeof(int32_t) + (message ? strlen(message) : 0));
}

// The number of ids up to which the length of a refused prompt is counted exactly, unless it far exceeds the context.
size_t call_most_ids(const call *c) {
  enum { LEAST = 1 << 16 };
  if (c->counts) return SIZE_MAX;
  size_t n = 4 * (size_t)weft_model_context(c->m->model);
  return n > LEAST ? n : LEAST;
}

int call_fits(call *c, const request *r) {
  int n_ctx = weft_model_context(c->m->model);
  if (r->prompt.n < (size_t)n_ctx) return 0;
  c->fault.n_prompt = (int64_t)r->prompt.n;
  c->fault.n_ctx = n_ctx;
  c->fault.code = "context_length_exceeded";
  return fault_set(&c->fault, 400, "prompt", "the prompt has %s%zu tokens and the context holds %d",
                   r->prompt.n > call_most_ids(c) ? "at least " : "", r->prompt.n, n_ctx);
}

static int check_request(call *c, request *r) {
  const weft_model *m = c->m->model;
  weft_sampler *s = NULL;
  weft_error err;
  if (r->embeds) return 0;
  if (weft_model_only_embeds(m))
    return fault_set(&c->fault, 400, "model",
                     "this model makes embeddings (/v1/embeddings); it predicts no tokens");
  if (weft_model_denoises(m) && (r->grammar || r->forced))
    return fault_set(&c->fault, 400, NULL, "this model denoises texts as a whole: a grammar, a schema or a forced tool "
                                           "call does not apply");
  if (weft_model_denoises(m) && (r->scored || r->prompt_scored || r->n_biases))
    return fault_set(&c->fault, 400, r->n_biases ? "logit_bias" : "logprobs",
                     "this model denoises texts as a whole: its tokens have no probabilities one after another");
  if (weft_model_has_source(m) && r->chat)
    return fault_set(&c->fault, 400, "model",
                     "this model answers one text with another, and has no chat: /v1/completions asks it");
  if (weft_model_has_source(m) && r->prompt_scored)
    return fault_set(&c->fault, 400, "echo", "this model's encoder reads the prompt: its tokens have no probabilities");
  if (!r->prompt.n) return fault_set(&c->fault, 400, "prompt", "the prompt is empty");
  if (call_fits(c, r)) return -1;
  if (request_sampler(r, m, 0, &s, &err))
    return fault_set(&c->fault, 400, c->p.samplers ? "samplers" : NULL, "%s", err.text);
  weft_sampler_free(s);
  return open_budget(c, r);
}

// Applies the server's default grammar or schema if the request has none and no tool call is forced.
static int constrain_by_default(call *c) {
  const struct params *p = &c->p;
  const json_t *text = p->default_grammar;
  const request *r = c->requests.n ? c->requests.at[0] : NULL;
  if (!r || r->grammar || r->forced || r->embeds) return 0;
  if (p->default_schema) return call_schema(c, p->default_schema, false, "json_schema");
  return text ? call_grammar(c, json_string_value(text), json_string_length(text), "grammar") : 0;
}

int call_check(call *c) {
  enum { MOST_CHOICES = 128 };
  const struct params *p = &c->p;
  if (p->n * (int64_t)c->requests.n > MOST_CHOICES)
    return fault_set(&c->fault, 400, "n", "%lld answers are asked for at once; at most %d are made",
                     (long long)(p->n * (int64_t)c->requests.n), MOST_CHOICES);
  if (set_constraints(c) || constrain_by_default(c)) return -1;
  if (p->lora && llama_adapt(c)) return -1;
  if (read_texts(c, p->stop, "stop", offsetof(request, stops)) ||
      read_texts(c, p->stop_sequences, "stop_sequences", offsetof(request, stops)) ||
      read_texts(c, p->dry_breakers, "dry_sequence_breakers", offsetof(request, breakers)))
    return -1;
  if (read_biases(c)) return -1;
  str names = {0};
  bool letters;
  int status = read_samplers(c, &names, &letters);
  // the sampler reads these texts when a request begins: they replace the body
  c->p.sampling.samplers = names.n && !letters ? names.at : NULL;
  c->p.sampling.sampler_seq = names.n && letters ? names.at : NULL;
  c->sampler_names = names.at;
  return status;
}

static int complete(call *c) {
  int status = call_check(c);
  c->p.sampling.seed = c->p.seed < 0 ? weft_random_seed() : (uint64_t)c->p.seed;
  for (size_t i = 0; i < c->requests.n && !status; i++) fill_request(c, c->requests.at[i]);
  for (size_t i = 0; i < c->requests.n && !status; i++) status = check_request(c, c->requests.at[i]);
  if (!status && asked_of(c->x)->misfit.status) {
    c->fault = asked_of(c->x)->misfit;
    status = -1;
  }
  return status;
}

static void scores_clear(scores *all) {
  for (size_t i = 0; i < all->n; i++) free(all->at[i].top);
  all->n = 0;
}

static void scores_free(scores *all) {
  scores_clear(all);
  vec_free(all);
}

static void release_call(call *c) {
  pthread_mutex_lock(&c->lock);
  bool last = !--c->refs;
  pthread_mutex_unlock(&c->lock);
  if (!last) return;
  for (event *e = c->first, *next; e; e = next) { next = e->next; event_free(e); }
  for (size_t i = 0; i < c->requests.n; i++) {
    request_clear(c->requests.at[i]);
    free(c->requests.at[i]);
    if (c->prompt_scores) scores_free(&c->prompt_scores[i]);
  }
  vec_free(&c->requests);
  for (int i = 0; i < c->n_choices; i++) {
    struct choice *h = &c->choices[i];
    choice_clear(h);
    scores_free(&h->scores);
    vec_free(&h->ids);
    for (size_t k = 0; k < h->vectors.n; k++) free(h->vectors.at[k].at);
    vec_free(&h->vectors);
  }
  free(c->choices);
  free(c->prompt_scores);
  vec_free(&c->biases);
  json_decref(c->body);
  str_free(&c->out);
  free(c->sampler_names);
  call_drop_media(c);
  free(c->own);
  exchange_worked(c->x);
  exchange_drop(c->x);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

int call_take(call *c, const char *name, const char *what, size_t n) {
  return fault_take(&c->fault, &c->x->account, name, what, n);
}

int call_bad(call *c, const char *name, const char *what) {
  return fault_set(&c->fault, 400, name, "'%s' %s", name, what);
}

void call_refuse(call *c) {
  if (c->x->account.crowded) {
    c->fault = (fault){0};
    fault_crowded(&c->fault, &c->s->memory, NULL, "this request");
  }
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

// With -v: logs an incoming request.
static void log_waiting(const call *c) {
  server_log *l = c->s->log;
  struct sched_counts counts;
  if (!log_takes(l, LOG_VERBOSE)) return;
  sched_counts(c->m->sched, &counts);
  log_line e = log_begin(l, "begin");
  log_word(&e, "path", c->x->path);
  log_text(&e, "model", c->m->name);
  log_text(&e, "id", c->id);
  log_count(&e, "prompt", call_prompt_tokens(c));
  log_count(&e, "choices", c->n_choices);
  log_count(&e, "running", counts.running);
  log_count(&e, "waiting", counts.waiting);
  log_write(l, &e);
}

void call_go(call *c) {
  if (complete(c)) { call_refuse(c); return; }
  c->n_choices = (int)(c->p.n * (int64_t)c->requests.n);
  c->choices = xcalloc((size_t)c->n_choices, sizeof *c->choices);
  c->prompt_scores = xcalloc(c->requests.n, sizeof *c->prompt_scores);
  for (size_t i = 0; i < c->requests.n; i++) {
    c->requests.at[i]->event = queue_event;
    c->requests.at[i]->ctx = c;
  }
  c->refs++;                           // one reference is this function's, the other that of the last event
  c->scheduled = true;                 // nothing is written before the stream begins
  c->submitted = now_s();
  if (sched_submit(c->m->sched, c->requests.at, c->requests.n, &c->fault)) {
    c->refs--;
    call_refuse(c);
    return;
  }
  log_waiting(c);
  if (c->p.stream) {
    tell_ignored(c->x);
    exchange_stream(c->x, c->speak->type, c->speak->ping);
    if (c->speak->start) c->speak->start(c);
  }
  exchange_when_gone(c->x, on_gone, c);
  pump(c);
}

// ---- what comes back ------------------------------------------------------------------------------------------------

static size_t event_bytes(const event *e) {
  return sizeof *e + (size_t)e->n_top * sizeof *e->top + e->n_vector * sizeof *e->vector;
}

static void queue_event(void *ctx, event *e) {
  call *c = ctx;
  account_add(&c->x->account, event_bytes(e));
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

// Ends running requests as if the client had left; c->fault has the reason.
static void fail_call(call *c) {
  c->failed = true;
  on_gone(c);
}

// Takes over the score of e. A stream sends each token at once and keeps no earlier ones.
// copies: how often it is written.
static void add_score(call *c, scores *to, event *e, size_t copies) {
  if (e->scored && !isfinite(e->logprob)) return;      // JSON has no such number
  if (c->p.stream) scores_clear(to);
  else if (call_take(c, NULL, "log-probabilities", copies * (size_t)(1 + e->n_top) * c->score_bytes)) {
    fail_call(c);
    return;
  }
  struct score s = {.id = e->id, .scored = e->scored, .logprob = e->logprob, .top = e->top};
  for (int32_t i = 0; i < e->n_top; i++) if (isfinite(e->top[i].logprob)) e->top[s.n_top++] = e->top[i];
  e->top = NULL;
  vec_push(to, s);
}

static int choice_of_event(const call *c, const event *e) {
  for (size_t i = 0; i < c->requests.n; i++)
    if (c->requests.at[i] == e->request) return (int)i * (int)e->request->n + e->choice;
  die("serve: an event of no request");
}

void choice_take(struct choice *h, const struct part *p) {
  if (p->kind != WEFT_CALL) {
    str_addn(p->kind == WEFT_REASONING ? &h->reasoning : &h->content, str_c(&p->text), p->text.n);
    return;
  }
  if (p->name) vec_push(&h->calls, ((struct tool_call){.id = xstrdup(p->id), .name = xstrdup(p->name)}));
  if (!h->calls.n) return;             // no name came
  struct tool_call *last = &h->calls.at[h->calls.n - 1];
  str_addn(&last->arguments, str_c(&p->text), p->text.n);
  last->done = p->done;
}

void choice_clear(struct choice *h) {
  str_free(&h->content);
  str_free(&h->reasoning);
  for (size_t i = 0; i < h->calls.n; i++) {
    free(h->calls.at[i].id);
    free(h->calls.at[i].name);
    str_free(&h->calls.at[i].arguments);
  }
  vec_free(&h->calls);
}

void call_arguments(const struct tool_call *t, str *out) {
  literal_complete(str_c(&t->arguments), t->arguments.n, out);
}

void json_with_text(str *out, json_t *o, const char *key, const str *value) {
  char *text = json_dumps(o, JSON_COMPACT);
  size_t n = strlen(text) - 1;
  str_addn(out, text, n);
  str_addf(out, "%s\"%s\":", n > 1 ? "," : "", key);
  str_addn(out, str_c(value), value->n);
  str_addc(out, '}');
  free(text);
  json_decref(o);
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
    add_score(c, &c->prompt_scores[(h - c->choices) / e->request->n], e, (size_t)e->request->n);
    break;
  case EVENT_TOKEN:
    if (e->id >= 0) vec_push(&h->ids, e->id);
    if (e->scored) add_score(c, &h->scores, e, 1);
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
    if (!c->failed) fault_set(&c->fault, e->status ? e->status : 500, NULL, "%s", e->text);
    if (e->status == 429) c->fault.retry_s = 5;
    if (c->x->account.crowded) {
      c->fault = (fault){0};
      fault_crowded(&c->fault, &c->s->memory, NULL, "this request");
    }
    c->failed = true;
    break;
  }
}

// The result, for the log and /metrics: times of the first choice, tokens of all choices.
static void add_up(call *c) {
  static const char *const names[] = {"stop", "stop", "length", "tool_calls", "time", "gone"};
  const struct timing *t = &c->choices[0].timing;
  struct figures *f = &asked_of(c->x)->figures;
  *f = (struct figures){.known = true,
                        .prompt = call_prompt_tokens(c),
                        .cached = call_cached(c),
                        .drawn = call_drawn(c),
                        .wait_ms = t->wait_ms,
                        .prompt_ms = t->prompt_ms,
                        .drawn_ms = t->drawn_ms,
                        .total_ms = 1000 * (now_s() - c->x->began),
                        .finish = c->failed ? "error" : names[c->choices[0].finish]};
  if (t->n_drawn) f->first_ms = 1000 * (c->submitted - c->x->began) + t->wait_ms + t->prompt_ms;
  snprintf(f->id, sizeof f->id, "%s", c->id);
  if (c->failed) exchange_note(c->x, &c->fault);
  shelf_observe(c->s->shelf, c->m, f);
}

static void end_call(call *c) {
  exchange_when_gone(c->x, NULL, NULL);
  add_up(c);
  int64_t used = call_prompt_tokens(c) + call_drawn(c);
  __atomic_add_fetch(&c->s->used[c->x->key < 0 ? 0 : c->x->key], used, __ATOMIC_RELAXED);
  if (c->failed && !c->p.stream) answer_fault(c->s, c->x, &c->fault);
  else if (c->failed) c->speak->failed(c, &c->fault);
  else c->speak->finish(c);
  if (c->p.stream) exchange_end(c->x);
}

static void handle_event(call *c, event *e) {
  int i = choice_of_event(c, e);
  account_give(&c->x->account, event_bytes(e));
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

void call_send_text(call *c, int status, str *text) { answer_json_str(c->x, status, text); }

void call_line(call *c, const char *before, json_t *o, const char *after) {
  char *text = json_dumps(o, JSON_COMPACT);
  call_line_text(c, before, text, after);
  free(text);
  json_decref(o);
}

void call_line_text(call *c, const char *before, const char *text, const char *after) {
  c->out.n = 0;
  str_add(&c->out, before);
  str_add(&c->out, text);
  str_add(&c->out, after);
  exchange_add(c->x, c->out.at, c->out.n);
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

int64_t call_reasoned(const call *c) {
  int64_t n = 0;
  for (int i = 0; i < c->n_choices; i++) n += (int64_t)c->choices[i].timing.n_reasoned;
  return n;
}

int64_t call_cached(const call *c) {
  int64_t n = 0;
  for (size_t i = 0; i < c->requests.n; i++) n += c->choices[i * (size_t)c->p.n].timing.n_cached;
  return n;
}
