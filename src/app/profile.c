// weft profile: shows where the time of a token (or of a prompt chunk) goes, kernel by kernel. The library measures
// within whole steps, so the rows add up to the real time of a step. This file fills the context, prints the table and
// compares each row with the memory bandwidth.
#include "app/app.h"
#include "base/progress.h"
#include "app/json.h"
#include "app/model_args.h"
#include <stdlib.h>
#include <string.h>

static const struct command command = {
  "profile", "Shows where the time of a token goes, kernel by kernel.", "-m FILE [options]",
  "Runs whole tokens with time stamps between the kernels, and prints a row for each kernel and part of the\n"
  "model, slowest first:\n"
  "  role     the weight that it reads (blk.*: in every layer), or what it does\n"
  "  count    launches per token, which the rest of the row adds up\n"
  "  us, %    time per token until all threads had finished, and its share of the token\n"
  "  wait     of that time, how long a thread waited for the others, on average\n"
  "  GB/s     bytes read and written, each once per launch, in that time; GFLOP/s: operations likewise\n"
  "  limit    GB/s as a share of what the same threads can read from memory, measured just after;\n"
  "           more than 100 % comes from a cache\n"
  "  IPC      instructions per cycle; misses: bytes that missed all caches, as a share of those read and\n"
  "           written. Both only where the processor's counters may be read (perf events)\n"
  "The last lines say what slows this machine down, if something does: huge pages that are off, more threads than\n"
  "cores, other programs, a clock that saves power.\n"
  "With --image FILE: the encoder's, of the first tile of a picture or the first 30 s of a sound.\n"
  "Times are means over the half of the tokens that were neither fast nor slow. Overhead is what lies outside\n"
  "of all kernels.\n", COMMAND_BIT(profile), 0};

struct profiler {
  struct settings o;
  weft_model *model;
  progress bar;
  struct media media;
  struct out out;
  char *advice;
};

// in units of 10^9
static double giga_per_second(double amount, double us) { return us > 0 ? amount / us / 1e3 : 0; }
static double share_of(double part, double whole) { return whole > 0 ? part / whole : 0; }

// ---- output ---------------------------------------------------------------------------------------------------------

static json_t *counted(const weft_profile *p, double x) { return p->no_counters ? json_null() : json_real(x); }

// The lines of a text as a JSON array.
static json_t *json_lines(const char *text) {
  json_t *all = json_array();
  for (const char *at = text, *end; *at; at = end + 1) {
    end = strchr(at, '\n');
    json_array_append_new(all, json_stringn(at, (size_t)(end - at)));
  }
  return all;
}

static void show_profile_json(struct out *to, const weft_profile *p, const char *advice) {
  json_t *all = json_object(), *rows = json_array();
  json_object_set_new(all, "advice", json_lines(advice));
  json_object_set_new(all, "token_us", json_real(p->us / p->tokens));
  json_object_set_new(all, "step_us", json_real(p->us));
  json_object_set_new(all, "step_tokens", json_integer(p->tokens));
  if (p->parts) json_object_set_new(all, "parts", json_integer(p->parts));
  if (p->parts) json_object_set_new(all, "before_us", json_real(p->before_us));
  json_object_set_new(all, "limit_gb_s", p->limit_gb_s > 0 ? json_real(p->limit_gb_s) : json_null());
  json_object_set_new(all, "no_counters", p->no_counters ? json_string(p->no_counters) : json_null());
  json_object_set_new(all, "overhead_us", json_real(p->overhead_us));
  json_object_set_new(all, "wait_us", json_real(p->wait_us));
  json_object_set_new(all, "kernels_per_token", json_real(p->kernels_per_step));
  json_object_set_new(all, "kernels_per_block", json_real(p->kernels_per_block));
  json_object_set_new(all, "fusion_rate", json_real(p->fusion_rate));
  for (size_t i = 0; i < p->n_kernels; i++) {
    const weft_kernel_time *k = &p->kernels[i];
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(k->name));
    json_object_set_new(o, "role", json_string(k->role));
    json_object_set_new(o, "count", json_integer(k->count));
    json_object_set_new(o, "us", json_real(k->us));
    json_object_set_new(o, "wait_us", json_real(k->wait_us));
    json_object_set_new(o, "pct", json_real(100 * share_of(k->us, p->us)));
    json_object_set_new(o, "gb_s", json_real(giga_per_second(k->bytes, k->us)));
    json_object_set_new(o, "gflop_s", json_real(giga_per_second(k->flops, k->us)));
    json_object_set_new(o, "limit_share",
                        p->limit_gb_s > 0 ? json_real(giga_per_second(k->bytes, k->us) / p->limit_gb_s) : json_null());
    json_object_set_new(o, "bytes", json_real(k->bytes));
    json_object_set_new(o, "flops", json_real(k->flops));
    json_object_set_new(o, "cycles", counted(p, k->cycles));
    json_object_set_new(o, "instructions", counted(p, k->instructions));
    json_object_set_new(o, "cache_misses", counted(p, k->cache_misses));
    json_object_set_new(o, "branch_misses", counted(p, k->branch_misses));
    json_array_append_new(rows, o);
  }
  json_object_set_new(all, "kernels", rows);
  out_json(to, all, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
}

static void show_limit(struct out *to, double gb_s, double limit) {
  if (limit > 0) out_addf(to, " %6.0f%%", 100 * gb_s / limit);
  else out_addf(to, " %7s", "-");
}

// Prints instructions per cycle, and the bytes read from memory relative to the bytes requested.
static void show_counters(struct out *to, const weft_kernel_time *k, const weft_profile *p) {
  enum { LINE = 64 };
  if (!p->no_counters)
    out_addf(to, " %6.2f %7.0f%%", share_of(k->instructions, k->cycles),
             100 * share_of(LINE * k->cache_misses, k->bytes));
  out_addf(to, "\n");
}

static void show_row(struct out *to, const char *role, const char *name, const weft_kernel_time *k,
                     const weft_profile *p) {
  out_addf(to, "%-22s %-*s %10.1f %5.1f%% %9.1f %8.2f %8.2f", role,
           36 + (strstr(name, "…") ? 2 : 0) /* bytes of one column */, name, k->us, 100 * share_of(k->us, p->us),
           k->wait_us, giga_per_second(k->bytes, k->us), giga_per_second(k->flops, k->us));
  show_limit(to, giga_per_second(k->bytes, k->us), p->limit_gb_s);
  show_counters(to, k, p);
}

static void show_what(struct out *to, const struct settings *o, int threads, const weft_profile *p) {
  if (p->parts) out_addf(to, "%d rows of %s", p->tokens, o->media.files.at[0]);
  else if (o->chunk_of) out_addf(to, "a chunk of %d tokens", p->tokens);
  else out_addf(to, "one token");
  if (p->parts > 1) out_addf(to, " (the first of %d tiles or windows)", p->parts);
  if (!p->parts) out_addf(to, " at depth %lld", (long long)o->depth);
  out_addf(to, ", %d thread%s, mean of %lld\n\n", threads, threads == 1 ? "" : "s",
           (long long)(o->steps - 2 * (o->steps / 4)));
}

static void show_profile(struct out *to, const struct settings *o, int threads, const weft_profile *p,
                         const weft_stats *stats, const char *advice) {
  weft_kernel_time all = {0};
  show_what(to, o, threads, p);
  out_addf(to, "%-22s %-30s %5s %10s %6s %9s %8s %8s %7s", "role", "kernel", "count", "us", "%", "wait", "GB/s",
           "GFLOP/s", "limit");
  out_addf(to, p->no_counters ? "\n" : " %6s %8s\n", "IPC", "misses");
  for (size_t i = 0; i < p->n_kernels; i++) {
    const weft_kernel_time *k = &p->kernels[i];
    enum { WIDTH = 30 };
    char name[160];
    bool cut = strlen(k->name) > WIDTH;                         // --json has the whole name
    snprintf(name, sizeof name, "%-*.*s%s %5d", cut ? WIDTH - 1 : WIDTH, cut ? WIDTH - 1 : WIDTH, k->name,
             cut ? "…" : "", k->count);
    show_row(to, k->role, name, k, p);
    all.us += k->us;
    all.wait_us += k->wait_us;
    all.bytes += k->bytes;
    all.flops += k->flops;
    all.cycles += k->cycles;
    all.instructions += k->instructions;
    all.cache_misses += k->cache_misses;
  }
  out_addf(to, "\n");
  show_row(to, "all kernels", "", &all, p);
  out_addf(to, "%-59s %10.1f %5.1f%%\n", "overhead", p->overhead_us, 100 * share_of(p->overhead_us, p->us));
  out_addf(to, "%-59s %10.1f %5.1f%%   %.1f tokens per second\n\n", p->parts      ? "encoding"
           : o->chunk_of ? "chunk"
                         : "token",
           p->us, 100.0, 1e6 * share_of(p->tokens, p->us));
  if (p->parts)
    out_addf(to, "all of it     %.1f ms: decoding and preprocessing %.1f, encoding %d x %.1f\n",
             (p->before_us + p->parts * p->us) / 1e3, p->before_us / 1e3, p->parts, p->us / 1e3);
  if (p->limit_gb_s > 0)
    out_addf(to, "memory limit  %.1f GB/s (streaming reads, huge pages, the same threads)\n", p->limit_gb_s);
  if (p->no_counters) out_addf(to, "counters      %s\n", p->no_counters);
  out_addf(to, "kernels       %.0f dispatches, %.1f per block, %.1f operations each (fusion rate)\n",
           p->kernels_per_step, p->kernels_per_block, p->fusion_rate);
  if (!p->parts && !o->chunk_of && stats->kernels_tuned)
    out_addf(to, "tuning        %d of %d kernels run as a search found them\n", stats->kernels_tuned, stats->kernels);
  for (const char *at = advice; *at; at += strcspn(at, "\n") + 1)
    out_addf(to, "advice        %.*s\n", (int)strcspn(at, "\n"), at);
}

// ---- measuring ------------------------------------------------------------------------------------------------------

int fill_context(weft_model *m, int depth, progress *bar) {
  enum { STEP = 512 };
  weft_error err;
  int32_t ids[STEP];
  uint64_t seed = 2;
  for (int at = 0, n; at < depth; at += n) {
    n = depth - at < STEP ? depth - at : STEP;
    for (int i = 0; i < n; i++) ids[i] = (int32_t)((seed = hash_u64(seed, 7)) % (uint64_t)weft_model_vocab_size(m));
    if (weft_decode(m, ids, (size_t)n, at, NULL, &err)) return failed("%s", err.text);
    if (interrupted()) return EXIT_INTERRUPTED;
    progress_set(bar, "filling the context", (double)(at + n) / depth);
  }
  return 0;
}

static int profile_medium(struct profiler *b, weft_profile **out, weft_error *err) {
  return media_open_encoder(&b->o.media, b->model, &b->media, err) ||
         weft_profile_medium(b->media.encoder, b->o.media.files.at[0], (int)b->o.steps, out, err);
}

static int measure_runs(struct profiler *b) {
  weft_error err;
  weft_profile *p;
  interrupt_catch();
  progress_begin(&b->bar);
  bool medium = b->o.media.files.n;
  int status = medium ? 0 : fill_context(b->model, (int)b->o.depth, &b->bar);
  if (!status && b->o.chunk_of > weft_model_chunk(b->model)) b->o.chunk_of = weft_model_chunk(b->model);
  if (!status &&
      (medium ? profile_medium(b, &p, &err)
              : weft_profile_model(b->model, (int)b->o.chunk_of, (int)b->o.steps, (int)b->o.depth, &p, &err)))
    status = failed("%s", err.text);
  progress_end(&b->bar);
  if (status) return status;
  weft_stats stats;
  weft_model_stats(b->model, &stats);
  if (b->o.json) show_profile_json(&b->out, p, b->advice);
  else show_profile(&b->out, &b->o, weft_model_threads(b->model), p, &stats, b->advice);
  weft_profile_free(p);
  return interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
}

static int profile(struct settings *of) {
  struct profiler b = {.o = *of};
  struct settings *o = &b.o;
  if (!o->model.model) return usage_error("no model: give one with -m FILE");
  if (o->media.files.n > 1) return usage_error("--image: one picture or sound at a time");
  if (o->media.files.n && o->chunk_of) return usage_error("--image and --prefill: one of them at a time");
  if (o->media.files.n && media_args_find(&o->media, &o->model)) return EXIT_FAILED;
  keep_to_evaluating(o, NULL);
  if (o->steps < 0) o->steps = o->chunk_of || o->media.files.n ? 8 : 32;
  if (!o->media.files.n) o->model.context = o->depth + (o->chunk_of ? o->chunk_of : o->steps) + 1;
  b.advice = weft_env_advice(o->model.threads ? (int)o->model.threads : weft_default_threads());
  int status = model_args_open(&o->model, &b.bar, &b.model);
  if (!status) status = measure_runs(&b);
  weft_free(b.advice);
  status = out_end(&b.out, status);
  media_free(&b.media);
  weft_model_close(b.model);
  return status;
}

int profile_command(int argc, char **argv) { return settings_run(&command, argc, argv, profile); }
