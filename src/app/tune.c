// weft tune: searches ahead of time for better kernels than the rules choose, and reports the results. The library
// searches (weft_tune); this file prints the table.
#include "app/app.h"
#include "base/env.h"
#include "base/progress.h"
#include "app/json.h"
#include "app/model_args.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct command command = {
  "tune",
  "Searches for better kernels, and keeps those that make the model faster.",
  "-m FILE [options]",
  "Tries other loops than the rules chose for every kernel that takes much of a token's time (or of a prompt's).\n"
  "A candidate runs on the model's own weights, taking turns with the present kernel, and counts only if it\n"
  "computes the same bits. What is faster is then tried in whole tokens, with and without it, and kept only if\n"
  "they take less time. Results go into the kernel cache: every later run on this machine uses them, and a\n"
  "second tuning begins with them. BEAM=N before 'weft run' does the same when a model is loaded. Columns:\n"
  "  before, after   microseconds of a launch by itself; ratio: after over before\n"
  "  tried           lists of OptOps; code: those among them whose code is new\n"
  "  cut short       the time was over; a larger --budget continues the search\n",
  COMMAND_BIT(tune),
  0};

static const char *outcome(const weft_tuned_kernel *k) {
  switch (k->state) {
  case WEFT_TUNE_SMALL: return "too small a share";
  case WEFT_TUNE_KNOWN: return k->opts[0] ? "better (from the cache)" : "as it was (from the cache)";
  case WEFT_TUNE_NOT_RUN: return k->why;
  case WEFT_TUNE_NO_GAIN: return "as it was";
  case WEFT_TUNE_DROPPED: return "dropped: no faster in the model";
  case WEFT_TUNE_BETTER: return "better";
  }
  return "";
}

static const char *layout_outcome(const weft_tuned_layout *w) {
  switch (w->state) {
  case WEFT_LAYOUT_KNOWN: return "from the cache";
  case WEFT_LAYOUT_NOT_TRIED: return "not tried";
  case WEFT_LAYOUT_SAME: return "as it was";
  case WEFT_LAYOUT_DROPPED: return "dropped: no faster in the model, or slower for prompts";
  case WEFT_LAYOUT_BETTER: return "better";
  }
  return "";
}

static const char *const layout_states[] = {"known", "not_tried", "same", "dropped", "better"};
static const char *const states[] = {"small", "known", "not_run", "no_gain", "dropped", "better"};

// ---- output ---------------------------------------------------------------------------------------------------------

static void show_gain(struct out *to, const char *what, int tokens, const double us[2]) {
  if (us[0] <= 0) return;
  out_addf(to, "%-8s %10.1f us -> %10.1f us", what, us[0], us[1]);
  out_addf(to, "   %7.1f -> %7.1f tokens per second (%.3f x)\n", 1e6 * tokens / us[0], 1e6 * tokens / us[1],
           us[0] / us[1]);
}

static void show_layouts(struct out *to, const weft_tuned *t, bool all) {
  for (size_t i = 0; i < t->n_layouts; i++) {
    const weft_tuned_layout *w = &t->layouts[i];
    if (w->state == WEFT_LAYOUT_NOT_TRIED && !all) continue;
    out_addf(to, "layout %-20s %-34s %12.1f%% %21s %6.2f  %*s%s: %s\n", w->role, w->weight, 100 * w->share, "",
             w->ratio, 14, "", w->layout, layout_outcome(w));
  }
  if (t->layouts_why[0]) out_addf(to, "%s\n", t->layouts_why);
}

static void show_tuned(struct out *to, const weft_tuned *t, bool all) {
  int count[WEFT_TUNE_BETTER + 1] = {0};
  out_addf(to, "%-6s %-20s %-34s %5s %6s %10s %10s %6s %6s %5s  %s\n", "", "role", "kernel", "count", "share",
           "before us", "after us", "ratio", "tried", "code", "outcome");
  for (size_t i = 0; i < t->n_kernels; i++) {
    const weft_tuned_kernel *k = &t->kernels[i];
    count[k->state]++;
    if (k->state == WEFT_TUNE_SMALL && !all) continue;
    out_addf(to, "%-6s %-20s %-34s %5d %5.1f%%", k->prompt ? "prompt" : "token", k->role, k->name, k->count,
             100 * k->share);
    if (k->before_us > 0) out_addf(to, " %10.1f %10.1f %6.2f", k->before_us, k->after_us, k->after_us / k->before_us);
    else out_addf(to, " %10s %10s %6s", "-", "-", "-");
    out_addf(to, " %6d %5d  %s%s", k->tried, k->compiled, outcome(k), k->cut_short ? ", cut short" : "");
    if (k->wrong) out_addf(to, "; %d thrown away: other bits", k->wrong);
    out_addf(to, "\n");
    if (k->opts[0] && (all || k->state == WEFT_TUNE_BETTER)) out_addf(to, "       %s\n", k->opts);
  }
  show_layouts(to, t, all);
  out_addf(to,
           "\n%d better, %d dropped in the model, %d as they were, %d known from the cache, %d not searched, %d too "
           "small to matter; %.1f s\n",
           count[WEFT_TUNE_BETTER], count[WEFT_TUNE_DROPPED], count[WEFT_TUNE_NO_GAIN], count[WEFT_TUNE_KNOWN],
           count[WEFT_TUNE_NOT_RUN], count[WEFT_TUNE_SMALL], t->seconds);
  show_gain(to, "layouts", 1, t->layouts_token_us);
  show_gain(to, "... prompt", t->chunk, t->layouts_chunk_us);
  show_gain(to, "token", 1, t->token_us);
  if (t->limit_gb_s > 0) {
    double gb_s[2] = {t->token_bytes / t->token_us[0] / 1e3, t->token_bytes / t->token_us[1] / 1e3};
    out_addf(to, "%-8s %10.1f GB/s -> %8.1f GB/s of %.1f GB/s that memory gave meanwhile (%.0f %% -> %.0f %%)\n",
             "memory", gb_s[0], gb_s[1], t->limit_gb_s, 100 * gb_s[0] / t->limit_gb_s, 100 * gb_s[1] / t->limit_gb_s);
  }
  show_gain(to, "prompt", t->chunk, t->chunk_us);
}

static json_t *pair(const double us[2]) { return us[0] > 0 ? json_pack("[f,f]", us[0], us[1]) : json_null(); }

static void show_tuned_json(struct out *to, const weft_tuned *t) {
  json_t *all = json_object(), *rows = json_array();
  json_object_set_new(all, "seconds", json_real(t->seconds));
  json_object_set_new(all, "token_us", pair(t->token_us));
  json_object_set_new(all, "chunk_us", pair(t->chunk_us));
  json_object_set_new(all, "token_bytes", json_real(t->token_bytes));
  json_object_set_new(all, "limit_gb_s", t->limit_gb_s > 0 ? json_real(t->limit_gb_s) : json_null());
  json_object_set_new(all, "chunk", json_integer(t->chunk));
  for (size_t i = 0; i < t->n_kernels; i++) {
    const weft_tuned_kernel *k = &t->kernels[i];
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(k->name));
    json_object_set_new(o, "role", json_string(k->role));
    json_object_set_new(o, "plan", json_string(k->prompt ? "prompt" : "token"));
    json_object_set_new(o, "count", json_integer(k->count));
    json_object_set_new(o, "share", json_real(k->share));
    json_object_set_new(o, "state", json_string(states[k->state]));
    json_object_set_new(o, "before_us", k->before_us > 0 ? json_real(k->before_us) : json_null());
    json_object_set_new(o, "after_us", k->before_us > 0 ? json_real(k->after_us) : json_null());
    json_object_set_new(o, "tried", json_integer(k->tried));
    json_object_set_new(o, "compiled", json_integer(k->compiled));
    json_object_set_new(o, "wrong", json_integer(k->wrong));
    json_object_set_new(o, "opts", json_string(k->opts));
    json_object_set_new(o, "why", json_string(k->why));
    json_object_set_new(o, "cut_short", json_boolean(k->cut_short));
    json_array_append_new(rows, o);
  }
  json_object_set_new(all, "kernels", rows);
  rows = json_array();
  for (size_t i = 0; i < t->n_layouts; i++) {
    const weft_tuned_layout *w = &t->layouts[i];
    json_array_append_new(rows,
                          json_pack("{ss,ss,ss,ss,sf,sf}", "weight", w->weight, "role", w->role, "layout", w->layout,
                                    "state", layout_states[w->state], "share", w->share, "ratio", w->ratio));
  }
  json_object_set_new(all, "layouts", rows);
  out_json(to, all, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
}

// ---- the work -------------------------------------------------------------------------------------------------------

static int tune(const struct settings *o, struct out *to) {
  weft_error err;
  weft_model *model;
  weft_tuned *t;
  progress bar;
  env_set(ENV_WEFT_TUNE, "off");
  env_set(ENV_BEAM, "0");                                    // loading must not start a search itself
  int status = model_args_open(&o->model, &bar, &model);
  if (status) return status;
  progress_begin(&bar);
  weft_tune_options tuning = {.beam = (int)o->beam,
                              .seconds = o->budget,
                              .skip_ms = o->skip_ms,
                              .no_prompt = o->no_prompt,
                              .no_layouts = o->no_layouts,
                              .depth = (int)o->depth,
                              .predict = o->predict,
                              .progress = show_progress,
                              .progress_ctx = &bar};
  status = weft_tune(model, &tuning, &t, &err);
  progress_end(&bar);
  if (status) status = failed("%s", err.text);
  else {
    if (o->json) show_tuned_json(to, t);
    else show_tuned(to, t, o->all);
    weft_tuned_free(t);
  }
  weft_model_close(model);
  return status;
}

static int tune_all(struct settings *o) {
  struct out to = {0};
  if (!o->model.model) return usage_error("no model: give one with -m FILE");
  keep_to_evaluating(o, NULL);
  return out_end(&to, tune(o, &to));
}

int tune_command(int argc, char **argv) { return settings_run(&command, argc, argv, tune_all); }
