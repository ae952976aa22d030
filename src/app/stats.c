// The figures of one run: see stats.h.
#include "app/stats.h"
#include "base/newfile.h"
#include "base/str.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static double known_rate(size_t n, double seconds) { return n && seconds > 0 ? (double)n / seconds : -1; }

static void print_time(FILE *to, const char *what, double ms) {
  if (ms < 1000) fprintf(to, "%-8s %8.1f ms", what, ms);
  else fprintf(to, "%-8s %8.2f s ", what, ms / 1000);
}

static void print_rate(FILE *to, const char *what, size_t n, double seconds) {
  fprintf(to, "%-8s %8zu token%s", what, n, n == 1 ? " " : "s");
  if (known_rate(n, seconds) >= 0) fprintf(to, " %9.1f tok/s", known_rate(n, seconds));
  fputc('\n', to);
}

void stats_print(const struct run_stats *s, FILE *to) {
  const weft_stats *m = &s->model;
  print_time(to, "load", m->load_ms);
  fputc('\n', to);
  print_time(to, "compile", m->compile_ms);
  fprintf(to, "     %6lld kernel%s; scheduling %.1f ms, loops by rules %.1f ms\n", (long long)m->kernels_compiled,
          m->kernels_compiled == 1 ? "" : "s", m->schedule_ms, m->codegen_ms);
  print_rate(to, "prompt", s->n_prompt, s->prompt_s);
  print_rate(to, "decode", s->n_decode, s->decode_s);
  if (s->speculation.proposed)
    fprintf(to, "%-8s %8llu token%s, %llu accepted; by a draft model or MTP: %llu, %llu accepted\n", "drafts",
            (unsigned long long)s->speculation.proposed, s->speculation.proposed == 1 ? " " : "s",
            (unsigned long long)s->speculation.accepted, (unsigned long long)s->speculation.drafted,
            (unsigned long long)s->speculation.drafted_accepted);
  if (m->kernels_per_token > 0)
    fprintf(to, "%-8s %8.0f per token, %.1f per block, %.1f operations each (fusion rate)\n", "kernels",
            m->kernels_per_token, m->kernels_per_block, m->fusion_rate);
  if (m->kernels_tuned || m->tune_state) {
    fprintf(to, "%-8s %8d of %d kernels from earlier searches", "tuning", m->kernels_tuned, m->kernels);
    if (m->tune_state)
      fprintf(to, "; now %d tried, %d better, %.2f %% of the time (%s)", m->tune_tried, m->tune_better,
              100 * m->tune_cost, m->tune_state);
    fputc('\n', to);
  }
  fprintf(to, "%-8s %8.1f MiB peak, %.1f MiB reserved for the KV cache\n", "memory", (double)m->peak_rss_bytes / 0x1p20,
          (double)m->kv_bytes / 0x1p20);
}

const char *stats_rate(char *out, size_t cap, size_t n, double seconds) {
  double r = known_rate(n, seconds);
  if (r < 0) return "";
  if (r < 1000) snprintf(out, cap, " at %.*f/s", r < 99.95 ? 1 : 0, r);
  else snprintf(out, cap, " at %.*f k/s", r < 9950 ? 1 : 0, r / 1000);
  return out;
}

void stats_line(const struct run_stats *s, int64_t seed, FILE *to) {
  char read[32], written[32];
  fprintf(to, "%zu token%s read%s, %zu written%s", s->n_prompt, s->n_prompt == 1 ? "" : "s",
          stats_rate(read, sizeof read, s->n_prompt, s->prompt_s), s->n_written,
          stats_rate(written, sizeof written, s->n_decode, s->decode_s));
  if (s->speculation.proposed)
    fprintf(to, ", %llu of %llu draft token%s accepted", (unsigned long long)s->speculation.accepted,
            (unsigned long long)s->speculation.proposed, s->speculation.proposed == 1 ? "" : "s");
  if (seed >= 0) fprintf(to, ", seed %lld", (long long)seed);
  fputc('\n', to);
}

// A measured figure, or null.
static json_t *figure(double x) { return x >= 0 ? json_real(x) : json_null(); }

double stats_compile_ms(const weft_model *m) {
  weft_stats s;
  weft_model_stats(m, &s);
  return s.compile_ms;
}

int stats_write(const struct run_stats *s, const char *path, error *err) {
  const weft_stats *m = &s->model;
  json_t *o = json_object();
  json_object_set_new(o, "load_ms", figure(m->load_ms));
  json_object_set_new(o, "compile_ms", figure(m->compile_ms));
  json_object_set_new(o, "schedule_ms", figure(m->schedule_ms));
  json_object_set_new(o, "codegen_ms", figure(m->codegen_ms));
  json_object_set_new(o, "kernels_compiled", json_integer(m->kernels_compiled));
  json_object_set_new(o, "plans_scheduled", json_integer(m->plans_scheduled));
  json_object_set_new(o, "ttft_ms", figure(s->first_token_s < 0 ? -1 : 1000 * s->first_token_s));
  json_object_set_new(o, "prompt_tps", figure(known_rate(s->n_prompt, s->prompt_s)));
  json_object_set_new(o, "decode_tps", figure(known_rate(s->n_decode, s->decode_s)));
  json_object_set_new(o, "draft_tokens", json_integer((json_int_t)s->speculation.proposed));
  json_object_set_new(o, "draft_accepted", json_integer((json_int_t)s->speculation.accepted));
  json_object_set_new(o, "draft_model_tokens", json_integer((json_int_t)s->speculation.drafted));
  json_object_set_new(o, "draft_model_accepted", json_integer((json_int_t)s->speculation.drafted_accepted));
  json_object_set_new(o, "kernels_per_token", figure(m->kernels_per_token));
  json_object_set_new(o, "kernels_per_block", figure(m->kernels_per_block));
  json_object_set_new(o, "fusion_rate", figure(m->fusion_rate));
  json_object_set_new(o, "peak_rss_bytes", json_integer((json_int_t)m->peak_rss_bytes));
  json_object_set_new(o, "kernels_tuned", json_integer(m->kernels_tuned));
  json_object_set_new(o, "tune_tried", json_integer(m->tune_tried));
  json_object_set_new(o, "tune_better", json_integer(m->tune_better));
  json_object_set_new(o, "tune_cost", figure(m->tune_cost));
  json_object_set_new(o, "tune_state", m->tune_state ? json_string(m->tune_state) : json_null());
  json_object_set_new(o, "kv_bytes", json_integer((json_int_t)m->kv_bytes));
  char *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  json_decref(o);
  str whole = {0};
  str_addf(&whole, "%s\n", text);
  free(text);
  int status = newfile_whole(path, whole.at, whole.n, err);
  str_free(&whole);
  return status;
}
