// What the server says of itself: /health, /metrics; and answers as JSON, with what goes wrong in the form of the
// family that was asked.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "serve/server.h"

#define STALLED_S 120.0      // a step takes no longer: whatever runs is stuck

void answer_json(exchange *x, int status, json_t *o) {
  char *text = json_dumps(o, JSON_COMPACT);
  exchange_send(x, status, "application/json; charset=utf-8", text, strlen(text));
  free(text);
  json_decref(o);
}

void answer_fault(server *s, exchange *x, const fault *f) {
  const struct family *family = x->route ? x->route->family : &openai_family;
  s->answered[f->status / 100]++;
  if (f->retry_s) exchange_header(x, "Retry-After", "%d", f->retry_s);
  answer_json(x, f->status, family->error(f));
}

void new_id(server *s, const char *prefix, char *out, size_t cap) {
  snprintf(out, cap, "%s%08llx%08llx", prefix, (unsigned long long)(s->started & 0xffffffff),
           (unsigned long long)++s->last_id);
}

bool server_is_well(server *s) {
  struct sched_counts c;
  shelf_counts(s->shelf, &c);
  return c.since_step <= STALLED_S;
}

void handle_health(server *s, exchange *x) {
  struct sched_counts c;
  fault f = {0};
  error err = {0};
  shelf_counts(s->shelf, &c);
  exchange_header(x, "Process-Start-Time-Unix", "%lld", (long long)s->started);
  if (shelf_ready(s->shelf, &err) != 1) fault_set(&f, 503, NULL, "Loading model");
  else if (c.since_step > STALLED_S) fault_set(&f, 503, NULL, "no step has ended for %.0f seconds", c.since_step);
  if (f.status) answer_fault(s, x, &f);
  else answer_json(x, 200, json_pack("{ss}", "status", "ok"));
}

// ---- /metrics -------------------------------------------------------------------------------------------------------

static void metric(str *out, const char *name, const char *type, const char *help, double value) {
  str_addf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type, name, value);
}

static void add_keys(str *out, const server *s) {
  str_addf(out,
           "# HELP weft:tokens_by_key_total Tokens of prompts and answers.\n# TYPE weft:tokens_by_key_total counter\n");
  for (int i = 0; i < guard_keys(s->guard); i++) {
    str_addf(out, "weft:tokens_by_key_total{key=");
    str_add_json(out, guard_key_name(s->guard, i), strlen(guard_key_name(s->guard, i)));
    str_addf(out, "} %lld\n", (long long)__atomic_load_n(&s->used[i], __ATOMIC_RELAXED));
  }
}

static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

void handle_metrics(server *s, exchange *x) {
  struct sched_counts c;
  str out = {0};
  shelf_counts(s->shelf, &c);
  metric(&out, "llamacpp:prompt_tokens_total", "counter", "Number of prompt tokens processed.", c.prompt_tokens);
  metric(&out, "llamacpp:prompt_seconds_total", "counter", "Prompt process time.", c.prompt_s);
  metric(&out, "llamacpp:tokens_predicted_total", "counter", "Number of generation tokens processed.", c.drawn_tokens);
  metric(&out, "llamacpp:tokens_predicted_seconds_total", "counter", "Predict process time.", c.drawn_s);
  metric(&out, "llamacpp:n_decode_total", "counter", "Steps taken.", c.steps);
  metric(&out, "llamacpp:prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s.",
         rate(c.prompt_tokens, c.prompt_s));
  metric(&out, "llamacpp:predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s.",
         rate(c.drawn_tokens, c.drawn_s));
  metric(&out, "llamacpp:requests_processing", "gauge", "Number of requests processing.", c.running);
  metric(&out, "llamacpp:requests_deferred", "gauge", "Number of requests deferred.", c.waiting);
  metric(&out, "weft:cached_tokens_total", "counter", "Tokens of prompts that did not have to be evaluated.",
         c.cached_tokens);
  metric(&out, "weft:steps_seconds_total", "counter", "Time of all steps.", c.steps_s);
  metric(&out, "weft:draft_seconds_total", "counter", "Of these, time of a draft model.", c.draft_s);
  metric(&out, "weft:waited_for_guesses_seconds_total", "counter",
         "Time that answers without a guess waited for guesses of others.", c.waited_s);
  metric(&out, "weft:answers_total", "counter", "Answers that were made to the end.", (double)c.requests);
  metric(&out, "weft:waiting_tokens", "gauge", "Tokens of the prompts that wait.", (double)c.waiting_tokens);
  metric(&out, "weft:connections", "gauge", "Open connections.", http_connections(s->http));
  metric(&out, "weft:refused_total", "counter", "Requests that were refused.", (double)s->answered[4]);
  metric(&out, "weft:errors_total", "counter", "Requests that failed.", (double)s->answered[5]);
  if (guard_keys(s->guard)) add_keys(&out, s);
  exchange_header(x, "Process-Start-Time-Unix", "%lld", (long long)s->started);
  exchange_send(x, 200, "text/plain; version=0.0.4", out.at, out.n);
  str_free(&out);
}
