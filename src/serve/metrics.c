// /metrics, in Prometheus' text format. llama-server's names are for the whole server, without labels; vLLM's names,
// which routers and dashboards read, have one series per model (model_name). Additional figures begin with weft:.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "serve/server.h"

const double histogram_seconds[HISTOGRAM_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                    2.5,   5,      10,    30,   60,    120,  300, 600,  1800};
const double histogram_tokens[HISTOGRAM_BOUNDS] = {1,    2,    5,    10,   20,   50,   100,  200,  500, 1e3,
                                                   2e3,  5e3,  1e4,  2e4,  5e4,  1e5,  2e5,  5e5,  1e6};

// Figures of a model, or of all together.
struct seen { const char *name; struct sched_counts c; struct model_seen figures; };
typedef VEC(struct seen) all_seen;

static double ratio(double n, double of) { return of > 0 ? n / of : 0; }

// The fraction of the KV cache used by running answers.
static double kv_usage(const struct seen *m) { return ratio((double)m->c.held, (double)m->c.room); }

#define VALUE(name, expression) \
  static double name(const struct seen *m) { return (double)(expression); }
VALUE(prompt_tokens, m->c.prompt_tokens)
VALUE(whole_prompts, m->c.prompt_tokens + m->c.cached_tokens)
VALUE(cached_tokens, m->c.cached_tokens)
VALUE(prompt_s, m->c.prompt_s)
VALUE(drawn_tokens, m->c.drawn_tokens)
VALUE(drawn_s, m->c.drawn_s)
VALUE(steps, m->c.steps)
VALUE(steps_s, m->c.steps_s)
VALUE(draft_s, m->c.draft_s)
VALUE(waited_s, m->c.waited_s)
VALUE(yields, m->c.yields)
VALUE(longest, m->c.longest)
VALUE(drafts, m->c.drafts)
VALUE(proposed, m->c.proposed)
VALUE(drafts_accepted, m->c.drafts_accepted)
VALUE(prompt_rate, ratio(m->c.prompt_tokens, m->c.prompt_s))
VALUE(drawn_rate, ratio(m->c.drawn_tokens, m->c.drawn_s))
VALUE(running, m->c.running)
VALUE(waiting, m->c.waiting)
VALUE(waiting_tokens, m->c.waiting_tokens)
VALUE(busy_mean, ratio(m->c.busy, m->c.steps))
VALUE(answers, m->c.requests)
VALUE(slots, m->c.slots)
VALUE(busy, m->c.n_live)

struct metric { const char *name, *type, *help; double (*value)(const struct seen *m); };
static const struct metric of_all[] = {
  {"llamacpp:prompt_tokens_total", "counter", "Number of prompt tokens processed, without cached ones.", prompt_tokens},
  {"llamacpp:prompt_tokens_cached_total", "counter", "Number of prompt tokens taken from the cache.", cached_tokens},
  {"llamacpp:prompt_seconds_total", "counter", "Prompt process time.", prompt_s},
  {"llamacpp:tokens_predicted_total", "counter", "Number of generation tokens processed.", drawn_tokens},
  {"llamacpp:tokens_predicted_seconds_total", "counter", "Predict process time.", drawn_s},
  {"llamacpp:n_decode_total", "counter", "Steps taken.", steps},
  {"llamacpp:n_tokens_max", "counter", "Tokens of the longest prompt and answer.", longest},
  {"llamacpp:spec_decode_num_drafts_total", "counter", "Drafts that were evaluated.", drafts},
  {"llamacpp:spec_decode_num_draft_tokens_total", "counter", "Tokens that were drafted.", proposed},
  {"llamacpp:spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were accepted.", drafts_accepted},
  {"llamacpp:prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s.", prompt_rate},
  {"llamacpp:predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s.", drawn_rate},
  {"llamacpp:requests_processing", "gauge", "Number of requests processing.", running},
  {"llamacpp:requests_deferred", "gauge", "Number of requests deferred.", waiting},
  {"llamacpp:n_busy_slots_per_decode", "gauge", "Average number of busy slots per step.", busy_mean},
  {"llamacpp:kv_cache_usage_ratio", "gauge", "KV cache usage of answers in work. 1 is full.", kv_usage},
  {"weft:cached_tokens_total", "counter", "Tokens of prompts that did not have to be evaluated.", cached_tokens},
  {"weft:steps_seconds_total", "counter", "Time of all steps.", steps_s},
  {"weft:draft_seconds_total", "counter", "The part of that time in a draft model.", draft_s},
  {"weft:waited_for_drafts_seconds_total", "counter",
   "Time that answers without draft tokens waited for those of others.", waited_s},
  {"weft:gave_way_total", "counter",
   "How often an answer gave its part of the KV cache to others, to evaluate it again.", yields},
  {"weft:answers_total", "counter", "Answers that were made to the end.", answers},
  {"weft:waiting_tokens", "gauge", "Tokens of the prompts that wait.", waiting_tokens},
};
static const struct metric of_each[] = {
  {"vllm:num_requests_running", "gauge", "Requests in work.", running},
  {"vllm:num_requests_waiting", "gauge", "Requests that wait.", waiting},
  {"vllm:kv_cache_usage_perc", "gauge", "KV cache usage of answers in work. 1 is full.", kv_usage},
  {"vllm:gpu_cache_usage_perc", "gauge", "KV cache usage of answers in work. 1 is full.", kv_usage},
  {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens that were looked up in the cache.", whole_prompts},
  {"vllm:prefix_cache_hits_total", "counter", "Prompt tokens that were found there.", cached_tokens},
  {"vllm:gpu_prefix_cache_queries_total", "counter", "Prompt tokens that were looked up in the cache.", whole_prompts},
  {"vllm:gpu_prefix_cache_hits_total", "counter", "Prompt tokens that were found there.", cached_tokens},
  {"vllm:prompt_tokens_total", "counter", "Tokens of prompts.", whole_prompts},
  {"vllm:generation_tokens_total", "counter", "Tokens of answers.", drawn_tokens},
  {"weft:slots", "gauge", "Answers that can be in work at once.", slots},
  {"weft:slots_busy", "gauge", "Answers in work.", busy},
};

#define AT(member) offsetof(struct model_seen, member)
static const struct { const char *name, *help; const double *bounds; size_t at; } histograms[] = {
  {"vllm:time_to_first_token_seconds", "From a request to its first token.", histogram_seconds, AT(first_s)},
  {"vllm:e2e_request_latency_seconds", "From a request to the end of its answer.", histogram_seconds, AT(total_s)},
  {"vllm:request_queue_time_seconds", "Time that a request waits.", histogram_seconds, AT(wait_s)},
  {"vllm:request_prefill_time_seconds", "Time to read a prompt.", histogram_seconds, AT(prompt_s)},
  {"vllm:request_decode_time_seconds", "Time to make an answer.", histogram_seconds, AT(drawn_s)},
  {"vllm:request_prompt_tokens", "Tokens of a prompt.", histogram_tokens, AT(prompt_tokens)},
  {"vllm:request_generation_tokens", "Tokens of an answer.", histogram_tokens, AT(drawn_tokens)},
};
#undef AT

static void metric_head(str *out, const char *name, const char *type, const char *help) {
  str_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_metric(str *out, const char *name, const char *type, const char *help, double value) {
  metric_head(out, name, type, help);
  str_addf(out, "%s %.17g\n", name, value);
}

// A label's value, with backslashes, quotes and line ends escaped.
static void add_label(str *out, const char *name, const char *value) {
  str_addf(out, "%s=\"", name);
  for (const char *p = value; *p; p++) {
    if (*p == '\n') str_add(out, "\\n");
    else if (*p == '"' || *p == '\\') str_addf(out, "\\%c", *p);
    else str_addc(out, *p);
  }
  str_addc(out, '"');
}

static void add_histogram(str *out, const char *name, const char *model, const double *bounds,
                          const struct histogram *h) {
  uint64_t n = 0;
  for (int i = 0; i <= HISTOGRAM_BOUNDS; i++) {
    n += h->below[i];
    str_addf(out, "%s_bucket{", name);
    add_label(out, "model_name", model);
    if (i < HISTOGRAM_BOUNDS) str_addf(out, ",le=\"%g\"} %llu\n", bounds[i], (unsigned long long)n);
    else str_addf(out, ",le=\"+Inf\"} %llu\n", (unsigned long long)n);
  }
  str_addf(out, "%s_sum{", name);
  add_label(out, "model_name", model);
  str_addf(out, "} %.17g\n%s_count{", h->sum, name);
  add_label(out, "model_name", model);
  str_addf(out, "} %llu\n", (unsigned long long)h->n);
}

static void gather_model(void *ctx, const served *m, const struct sched_counts *c) {
  vec_push((all_seen *)ctx, ((struct seen){.name = m->name, .c = *c, .figures = m->figures}));
}

static void add_finished(str *out, const all_seen *all) {
  static const char *const names[FINISHED_KINDS] = {"stop", "length", "abort", "error"};
  metric_head(out, "vllm:request_success_total", "counter", "Requests that have ended, by how.");
  for (size_t i = 0; i < all->n; i++)
    for (int k = 0; k < FINISHED_KINDS; k++) {
      str_addf(out, "vllm:request_success_total{finished_reason=\"%s\",", names[k]);
      add_label(out, "model_name", all->at[i].name);
      str_addf(out, "} %lld\n", (long long)all->at[i].figures.finished[k]);
    }
}

// Information for the scheduler of the Gateway API Inference Extension: the size of the cache, in blocks as in events,
// and the adapters that current requests name as models. There are none here: requests give scales instead.
static void add_infos(str *out, const all_seen *all, int block_size) {
  metric_head(out, "vllm:cache_config_info", "gauge", "The size of the KV cache for answers in work.");
  for (size_t i = 0; i < all->n; i++) {
    str_addf(out, "vllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%lld\",", block_size,
             (long long)(all->at[i].c.room / block_size));
    add_label(out, "model_name", all->at[i].name);
    str_add(out, "} 1\n");
  }
  metric_head(out, "vllm:lora_requests_info", "gauge", "Adapters that requests name, and the time.");
  str_addf(out, "vllm:lora_requests_info{max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} %lld\n",
           (long long)time(NULL));
}

static void add_each(str *out, const all_seen *all, int block_size) {
  for (size_t k = 0; k < COUNT(of_each); k++) {
    const struct metric *row = &of_each[k];
    metric_head(out, row->name, row->type, row->help);
    for (size_t i = 0; i < all->n; i++) {
      str_addf(out, "%s{", row->name);
      add_label(out, "model_name", all->at[i].name);
      str_addf(out, "} %.17g\n", row->value(&all->at[i]));
    }
  }
  add_finished(out, all);
  add_infos(out, all, block_size);
  for (size_t k = 0; k < COUNT(histograms); k++) {
    metric_head(out, histograms[k].name, "histogram", histograms[k].help);
    for (size_t i = 0; i < all->n; i++)
      add_histogram(out, histograms[k].name, all->at[i].name, histograms[k].bounds,
                    (const struct histogram *)(const void *)((const char *)&all->at[i].figures + histograms[k].at));
  }
  metric_head(out, "vllm:inter_token_latency_seconds", "histogram", "Between the tokens of an answer.");
  for (size_t i = 0; i < all->n; i++)
    add_histogram(out, "vllm:inter_token_latency_seconds", all->at[i].name, histogram_seconds,
                  &all->at[i].c.between);
}

static void add_keys(str *out, const server *s) {
  metric_head(out, "weft:tokens_by_key_total", "counter", "Tokens of prompts and answers.");
  for (int i = 0; i < guard_keys(s->guard); i++) {
    str_addf(out, "weft:tokens_by_key_total{");
    add_label(out, "key", guard_key_name(s->guard, i));
    str_addf(out, "} %lld\n", (long long)__atomic_load_n(&s->used[i], __ATOMIC_RELAXED));
  }
}

void handle_metrics(server *s, exchange *x) {
  str out = {0};
  all_seen all = {0};
  struct seen whole = {0};
  shelf_counts(s->shelf, &whole.c);
  shelf_each_seen(s->shelf, gather_model, &all);
  for (size_t i = 0; i < COUNT(of_all); i++)
    add_metric(&out, of_all[i].name, of_all[i].type, of_all[i].help, of_all[i].value(&whole));
  add_metric(&out, "weft:connections", "gauge", "Open connections.", http_connections(s->http));
  add_metric(&out, "weft:request_memory_bytes", "gauge", "Memory of all that was made for requests.",
             (double)s->memory.bytes);
  add_metric(&out, "weft:request_memory_peak_bytes", "gauge", "The most that it has been.", (double)s->memory.peak);
  add_metric(&out, "weft:refused_total", "counter", "Requests that were refused.", (double)s->answered[4]);
  add_metric(&out, "weft:errors_total", "counter", "Requests that failed.", (double)s->answered[5]);
  add_each(&out, &all, s->o->block_size);
  if (guard_keys(s->guard)) add_keys(&out, s);
  exchange_header(x, "Process-Start-Time-Unix", "%lld", (long long)s->started);
  answer_text(x, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
  vec_free(&all);
}
