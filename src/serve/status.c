// The server's status: /health, and a log line for each request; and JSON answers, with errors in the form of the
// requested family.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "serve/families.h"

#define STALLED_S 120.0      // longer than any step: if exceeded, something is stuck

void exchange_note(exchange *x, const fault *f) {
  snprintf(x->why, sizeof x->why, "%s%s%s", f->param, *f->param ? ": " : "", f->reason);
}

void tell_ignored(exchange *x) {
  struct asked *a = asked_of(x);
  if (a && a->ignored.n) exchange_header(x, "Weft-Ignored", "%s", a->ignored.at);
  if (a) a->ignored.n = 0;
}

bool refuse_misfit(exchange *x) {
  const struct asked *a = asked_of(x);
  if (!a || !a->misfit.status) return false;
  answer_fault(a->s, x, &a->misfit);
  return true;
}

void answer_text(exchange *x, int status, const char *type, str *text) {
  const struct asked *a = asked_of(x);
  fault f = {0};
  bool large = text->n > EXCHANGE_SMALL;
  if (large && a && fault_take(&f, &x->account, NULL, "the answer", text->n)) {
    str_free(text);
    answer_fault(a->s, x, &f);
    return;
  }
  if (large && !a) account_add(&x->account, text->n);
  exchange_give(x, status, type, text);
}

void answer_json_str(exchange *x, int status, str *text) {
  if (status < 300 && refuse_misfit(x)) { str_free(text); return; }
  tell_ignored(x);
  answer_text(x, status, "application/json; charset=utf-8", text);
}

void answer_json(exchange *x, int status, json_t *o) {
  str text = {.at = json_dumps(o, JSON_COMPACT)};
  json_decref(o);
  text.n = strlen(text.at);
  text.cap = text.n + 1;
  answer_json_str(x, status, &text);
}

void answer_fault(server *s, exchange *x, const fault *f) {
  answer_fault_as(s, x, f, x->route ? x->route->family : &openai_family);
}

// If the model's file was truncated, that is the error, not the request.
static void blame_the_file(server *s, const exchange *x, fault *f) {
  weft_error why;
  const struct asked *a = asked_of(x);
  if (!a || !a->m || !shelf_damaged(s->shelf, a->m, &why)) return;
  *f = (fault){0};
  fault_set(f, 500, NULL, "%s", why.text);
}

void answer_fault_as(server *s, exchange *x, const fault *said, const struct family *family) {
  fault is = *said, *f = &is;
  blame_the_file(s, x, f);
  s->answered[f->status / 100]++;
  exchange_note(x, f);
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
  if (s->ending) fault_set(&f, 503, NULL, "the server is ending");
  else if (shelf_ready(s->shelf, &err) != 1) fault_set(&f, 503, NULL, "Loading model");
  else if (c.since_step > STALLED_S) fault_set(&f, 503, NULL, "no step has ended for %.0f seconds", c.since_step);
  f.retry_s = 2;
  if (f.status) answer_fault(s, x, &f);
  else answer_json(x, 200, json_pack("{ss}", "status", "ok"));
}

// ---- the log --------------------------------------------------------------------------------------------------------

// Programs poll these.
static bool is_probe(const exchange *x) {
  static void (*const asked_often[])(server *, exchange *) = {handle_health, handle_metrics, replica_load,
                                                               replica_loads, replica_sleeps};
  for (size_t i = 0; i < COUNT(asked_often); i++) if (x->route && x->route->handle == asked_often[i]) return true;
  return false;
}

void log_request(server *s, exchange *x) {
  enum { CLIENT_LEFT = 499 };          // nginx's code: nothing was answered
  int status = x->sent ? x->status : CLIENT_LEFT;
  const struct asked *a = x->own;
  const struct figures *f = a && a->figures.known ? &a->figures : NULL;
  if (!log_takes(s->log, is_probe(x) && status < 400 ? LOG_VERBOSE : LOG_NORMAL)) return;
  log_line e = log_begin(s->log, "request");
  log_word(&e, "method", x->method);
  log_word(&e, "path", x->path);
  char number[16];
  snprintf(number, sizeof number, "%d", status);
  if (log_is_json(s->log)) log_count(&e, "status", status);
  else log_word(&e, "status", number);
  log_ms(&e, "ms", 1000 * (now_s() - x->began));
  if (guard_keys(s->guard) && x->key >= 0) log_text(&e, "key", guard_key_name(s->guard, x->key));
  if (a && a->m) log_text(&e, "model", a->m->name);
  if (f) {
    log_text(&e, "id", f->id);
    log_count(&e, "prompt", f->prompt);
    log_count(&e, "cached", f->cached);
    log_count(&e, "generated", f->drawn);
    log_ms(&e, "wait_ms", f->wait_ms);
    log_ms(&e, "prompt_ms", f->prompt_ms);
    log_ms(&e, "generation_ms", f->drawn_ms);
    if (f->drawn) log_ms(&e, "first_ms", f->first_ms);
    log_text(&e, "finish", f->finish);
  }
  if (exchange_gone(x) && !*x->why) log_text(&e, "reason", "the connection ended before the answer did");
  log_text(&e, "reason", x->why);
  log_write(s->log, &e);
}
