// Opens the model that the options describe: see model_args.h.
#define _GNU_SOURCE
#include "app/model_args.h"
#include "app/app.h"
#include "app/http.h"
#include "base/env.h"
#include "base/os.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPLIT_NONE = 3 };     // of the choices of -sm

weft_options model_args_options(const struct model_args *a) {
  static const enum weft_split splits[] = {WEFT_SPLIT_AUTO, WEFT_SPLIT_ROW, WEFT_SPLIT_LAYER,
                                           [SPLIT_NONE] = WEFT_SPLIT_NONE, WEFT_SPLIT_ROW};
  return (weft_options){.context = (int)a->context,
                        .threads = a->threads > 0 ? (int)a->threads : 0,
                        .prompt_threads = a->prompt_threads > 0 ? (int)a->prompt_threads : 0,
                        .chunk = (int)a->chunk,
                        .gpu_layers = a->gpu_layers == -1  ? 0
                                      : a->gpu_layers == -2 ? INT_MAX
                                      : a->gpu_layers       ? (int)a->gpu_layers
                                                            : -1,
                        .exact = a->precision == 1,
                        .key_cache = a->key_cache,
                        .value_cache = a->value_cache,
                        .no_repack = a->no_repack,
                        .mtp = a->mtp,
                        .draft_file = a->mtp ? a->draft_file : NULL,
                        .adapters = a->adapters,
                        .n_adapters = a->loras.n,
                        .control_vectors = a->control_vectors,
                        .n_control_vectors = a->controls.n + a->scaled_controls.n,
                        .control_from = (int)a->control_layers[0],
                        .control_to = (int)a->control_layers[1],
                        .split = splits[a->split],
                        .shares = a->shares,
                        .n_shares = a->n_shares,
                        .settings = texts_of(&a->settings),
                        .n_settings = a->settings.n};
}

// Splits FILE:SCALE; a file's own name may contain a colon.
static void find_adapters(struct model_args *a) {
  if (a->loras.n) a->adapters = xcalloc(a->loras.n, sizeof *a->adapters);
  for (size_t i = 0; i < a->loras.n; i++) {
    char *path = a->loras.at[i], *colon = strrchr(path, ':'), *end;
    a->adapters[i] = (weft_adapter){path, 1};
    if (!colon || colon == path || !access(path, F_OK)) continue;
    double scale = strtod(colon + 1, &end);
    if (end == colon + 1 || *end) continue;
    *colon = 0;
    a->adapters[i].scale = scale;
  }
}

static int find_control_vectors(struct model_args *a) {
  size_t n = 0;
  a->control_vectors = xcalloc(a->controls.n + a->scaled_controls.n + 1, sizeof *a->control_vectors);
  for (size_t i = 0; i < a->controls.n; i++) a->control_vectors[n++] = (weft_control_vector){a->controls.at[i], 1};
  for (size_t i = 0; i < a->scaled_controls.n; i++) {
    char *path = a->scaled_controls.at[i], *colon = strrchr(path, ':'), *end = NULL;
    double scale = colon ? strtod(colon + 1, &end) : 0;
    a->control_vectors[n++] = (weft_control_vector){path, scale};
    if (!colon || colon == path || end == colon + 1 || *end || !isfinite(scale))
      return usage_error("--control-vector-scaled needs FILE:SCALE, not '%.200s'", path);
    *colon = 0;
  }
  return EXIT_OK;
}

static int find_shares(struct model_args *a) {
  double all = 0;
  for (const char *at = a->split_shares; at;) {
    char *end;
    double share = strtod(at, &end);
    if (end == at || (*end && *end != ',' && *end != '/') || !isfinite(share) || share < 0)
      return usage_error("--tensor-split (-ts) needs shares of 0 or more, such as 3,1, not '%.200s'", a->split_shares);
    a->shares = xrealloc(a->shares, (a->n_shares + 1) * sizeof *a->shares);
    a->shares[a->n_shares++] = share;
    all += share;
    at = *end ? end + 1 : NULL;
  }
  if (a->n_shares && !(all > 0 && isfinite(all)))
    return usage_error("--tensor-split (-ts): the shares '%.200s' add up to %g", a->split_shares, all);
  return EXIT_OK;
}

static void set(struct model_args *a, bool given, const char *fmt, ...) {
  va_list ap;
  str s = {0};
  if (!given) return;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  vec_push(&a->settings, s.at);
}

int model_args_complete(struct model_args *a) {
  static const char *const scalings[] = {NULL, "none", "linear", "yarn"}, *const truths[] = {NULL, "true", "false"};
  find_adapters(a);
  set(a, a->rope.scaling, "{arch}.rope.scaling.type=str:%s", scalings[a->rope.scaling]);
  set(a, a->rope.scale > 0, "{arch}.rope.scaling.factor=float:%.17g", a->rope.scale);
  set(a, a->rope.freq_scale > 0, "{arch}.rope.scaling.factor=float:%.17g", 1 / a->rope.freq_scale);
  set(a, a->rope.base > 0, "{arch}.rope.freq_base=float:%.17g", a->rope.base);
  set(a, a->rope.original > 0, "{arch}.rope.scaling.original_context_length=int:%lld", (long long)a->rope.original);
  set(a, a->rope.ext >= 0, "{arch}.rope.scaling.yarn_ext_factor=float:%.17g", a->rope.ext);
  set(a, a->rope.attn >= 0, "{arch}.rope.scaling.yarn_attn_factor=float:%.17g", a->rope.attn);
  set(a, a->rope.slow >= 0, "{arch}.rope.scaling.yarn_beta_slow=float:%.17g", a->rope.slow);
  set(a, a->rope.truncate, "{arch}.rope.scaling.yarn_truncate=bool:%s", truths[a->rope.truncate]);
  set(a, a->rope.fast >= 0, "{arch}.rope.scaling.yarn_beta_fast=float:%.17g", a->rope.fast);
  int status = find_control_vectors(a);
  return status ? status : find_shares(a);
}

int model_args_fetch(struct model_args *a) {
  str path = {0}, repo = {0};
  error err = {0};
  bool named = a->model && pull_is_name(a->model), asked = a->from.repo || a->from.url;
  int status = 0;
  if (a->from.file && !a->from.repo && !named)
    status = usage_error("--hf-file (-hff) names a file of a repository: --hf-repo (-hf) is needed, too");
  else if (asked && a->model)
    status = usage_error("a model was given, and another one with %s", a->from.url ? "--model-url" : "--hf-repo");
  else if (asked || named) {
    int got = asked ? pull_model(&a->from, false, a->quiet, &path, &err)
                    : pull_name(a->model, &a->from, false, a->quiet, &path, &err);
    pull_repo(a->model, &a->from, &repo);
    if (got) { failed("%s", err.text); status = got == HTTP_INTERRUPTED ? EXIT_INTERRUPTED : EXIT_FAILED; }
  } else if (a->model && access(a->model, F_OK)) {
    pull_known(a->model, &path, &repo);           // a name shown by weft list; otherwise opening it gives the error
  }
  if (!status && path.n) a->model = a->fetched = xstrdup(path.at);
  if (!status && path.n && repo.n) a->repo = xstrdup(repo.at);
  str_free(&path);
  str_free(&repo);
  return status;
}

// Returns whether a missing file was meant as the name of a model: it has no folder and no ending.
static bool may_be_name(const char *model) {
  return access(model, F_OK) && !strchr(model, '/') && !strstr(model, ".gguf");
}

int model_args_open(const struct model_args *a, progress *bar, weft_model **out) {
  weft_error err;
  weft_options options = model_args_options(a);
  options.progress = show_progress;
  options.progress_ctx = bar;
  if (!a->quiet) progress_begin(bar);
  int status = weft_model_open(a->model, &options, out, &err);
  progress_end(bar);
  if (status && may_be_name(a->model))
    return failed("%.200s: no such file, and no model that was fetched; 'weft pull %.200s' fetches one of that name",
                  a->model, a->model);
  if (status) return failed("%s", err.text);
  // Locks present pages, and pages of existing mappings when they are first used; nothing is loaded in advance.
  if (a->lock && !os_lock_memory())
    warning("--mlock: memory cannot be locked: %s (ulimit -l says how much may be)", strerror(errno));
  return 0;
}

// The processors that this process may use.
static int processors(void) {
  cpu_set_t mask;
  if (!sched_getaffinity(0, sizeof mask, &mask)) return CPU_COUNT(&mask);
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

void model_args_advise(const struct model_args *a) {
  int n = processors();
  if (a->quiet) return;
  if (a->gpu_layers && a->gpu_layers != -1 && !strcmp(env_str(ENV_DEV), "CPU"))
    warning("-ngl is ignored: no GPU is selected; set DEV=CUDA or DEV=CL ('weft env' lists the devices)");
  const struct { const char *name; int64_t threads; } given[] = {{"-t", a->threads}, {"-tb", a->prompt_threads}};
  for (size_t i = 0; i < COUNT(given); i++)
    if (given[i].threads > n)
      warning("%s %lld: this machine has %d processor%s; more threads than that only take turns", given[i].name,
              (long long)given[i].threads, n, n == 1 ? "" : "s");
}

static bool only_drafts(const char *path) {
  weft_file *f;
  if (weft_file_open(path, &f, NULL)) return false;          // opening the model gives the error
  bool drafts = weft_file_only_drafts(f);
  weft_file_close(f);
  return drafts;
}

int draft_args_fetch(struct draft_args *a, struct model_args *of) {
  a->model.from.token = of->from.token;
  a->model.from.offline = of->from.offline;
  a->model.gpu_layers = of->gpu_layers ? -1 : 0;
  a->model.threads = of->threads;
  a->model.prompt_threads = of->prompt_threads;
  a->model.quiet = of->quiet;
  a->model.split = of->split;
  a->model.shares = of->shares;
  a->model.n_shares = of->n_shares;
  // without a draft model, --draft-max and similar options are for the model's own MTP blocks
  int status = a->model.model || a->model.from.repo ? model_args_fetch(&a->model) : 0;
  if (status || !a->model.model || !only_drafts(a->model.model)) return status;
  of->draft_file = a->model.model;
  a->model.model = NULL;
  return 0;
}

weft_draft_options draft_args_options(const struct draft_args *a) {
  return (weft_draft_options){.most = (int)a->most, .least = (int)a->least, .p_min = a->p_min};
}

int draft_args_open(struct draft_args *a, weft_model *m, progress *bar, weft_model **model, weft_draft **out) {
  weft_error err;
  weft_draft_options o = draft_args_options(a);
  if (!a->model.model) return weft_draft_own(m, &o, out, &err) ? failed("%s", err.text) : 0;
  a->model.context = weft_model_context(m);
  int status = model_args_open(&a->model, bar, model);
  if (status) return status;
  status = weft_draft_new(m, *model, &o, out, &err);
  progress_end(bar);
  return status ? failed("%s", err.text) : 0;
}

// The number under the architecture's metadata key; 0: absent.
static uint64_t number_of_key(const weft_file *f, const char *key) {
  weft_value arch, v;
  size_t i;
  char name[128];
  if (weft_file_find(f, "general.architecture", &i) || weft_file_value(f, i, &arch) || arch.type != WEFT_STRING)
    return 0;
  snprintf(name, sizeof name, "%.*s.%s", (int)(arch.n < 64 ? arch.n : 64), arch.text, key);
  return weft_file_find(f, name, &i) || weft_file_value(f, i, &v) ? 0 : v.u;
}

void model_args_warn(const struct model_args *a, const weft_model *m) {
  uint64_t trained = number_of_key(weft_model_file(m), "context_length");
  if (trained && (uint64_t)a->context > trained)
    warning("-c %lld: the model was trained for %llu tokens, and may lose the thread beyond them",
            (long long)a->context, (unsigned long long)trained);
  int rank, processes = 1;
  weft_error err;
  bool splits = a->split && a->split != SPLIT_NONE;
  if ((splits || a->split_shares) && !weft_ranks_join(&rank, &processes, &err) && processes < 2)
    warning("%s is ignored: there is one process; mpirun starts several", splits ? "-sm" : "-ts");
}

bool model_has_template(const weft_file *f) {
  size_t i;
  return !weft_file_find(f, "tokenizer.chat_template", &i) || !weft_file_find(f, "tokenizer.chat_template.default", &i);
}
