// Defaults of settings, and parsing: see settings.h.
#include "app/settings.h"
#include "app/app.h"
#include "base/env.h"
#include "base/inuse.h"
#include <stdlib.h>
#include <string.h>

struct settings settings_new(void) {
  int beam = env_int(ENV_BEAM), skip = env_int(ENV_BEAM_SKIP_MS);
  struct settings s = {.count = -1,
                       .rates = true,
                       .reasoning_budget = -1,
                       .benchmark = -1,
                       .repetitions = 5,
                       .steps = -1,
                       .link = "1GbE",
                       .machines = 2,
                       .budget = 60,
                       .denoise.algorithm = -1,
                       .beam = beam > 0 && beam <= 64 ? beam : 4,
                       .skip_ms = skip > 0 ? strtod(env_str(ENV_BEAM_SKIP_MS), NULL) : 0,
                       .out = "weft-viz.html",
                       .model.gpu_layers = -1,
                       .model.rope = {.ext = -1, .attn = -1, .slow = -1, .fast = -1},
                       .perplexity.chunks = -1,
                       .embed = {.separator = "\n", .pair_separator = "\t", .normalize = 2},
                       .imatrix = {.out = "imatrix.gguf", .chunks = -1},
                       .loadtest = {.clients = 4, .requests = 24, .prompt = 256, .tokens = 32},
                       .serve = {.autoload = true,
                                 .page = true,
                                 .slots_shown = true,
                                 .models_max = 4,
                                 .idle = -1,
                                 .port = 8080,
                                 .connections = 12000,
                                 .verbosity = 3,
                                 .body_mib = 32,
                                 .memory_mib = 512,
                                 .request_mib = 256,
                                 .request_work = 10,
                                 .drain = 30,
                                 .keep_mib = 4096,
                                 .block_size = 16}};
  sampling_defaults(&s.sampling);
  return s;
}

static bool wants_encoder(const struct settings *s, const struct command *c) {
  bool may = c->bit & (COMMAND_BIT(chat) | COMMAND_BIT(serve)) || s->media.files.n;
  return may && !s->media.mmproj && !s->media.alone;
}

// Refuses an output path if another option names that file as an input. Files that no option names (parts, files in a
// folder) are checked when the file is written (newfile.h). to: the offset of the path's field; several rows may use
// one field.
static int check_written(const struct settings *s, const struct command *c, const char *path, size_t to, error *err) {
  for (size_t i = 0; i < option_table.n; i++) {
    const struct option *o = &option_table.at[i];
    const void *at = (const char *)s + o->to;
    bool one = o->kind == OPT_TEXT || o->kind == OPT_OPERAND;
    if (!(o->commands & c->bit) || o->writes || o->to == to || (!one && o->kind != OPT_TEXTS)) continue;
    const struct texts *many = one ? NULL : at;
    for (size_t k = 0; k < (one ? 1 : many->n); k++) {
      const char *read = one ? *(const char *const *)at : many->at[k];
      if (read && strcmp(read, "-") && inuse_refuse_one(path, read, err)) return -1;
    }
  }
  return 0;
}

static int check_all_written(const struct settings *s, const struct command *c, error *err) {
  for (size_t i = 0; i < option_table.n; i++) {
    const struct option *o = &option_table.at[i];
    if (!o->writes || !(o->commands & c->bit)) continue;
    const char *path = *(const char *const *)((const char *)s + o->to);
    if (path && strcmp(path, "-") && check_written(s, c, path, o->to, err)) return -1;
  }
  const char *page = env_str(ENV_VIZ);
  return page && check_written(s, c, page, SIZE_MAX, err) ? -1 : 0;
}

bool settings_parse(struct settings *s, const struct command *c, int argc, char **argv, int *status) {
  str idle = {0};
  error err = {0};
  *s = settings_new();
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], "--version") && !(i > 1 && args_takes_value(args_find(c, option_table, argv[i - 1])))) {
      printf("weft %s\n", program_version());
      *status = EXIT_OK;
      return false;
    }
  enum args_result result = args_parse(c, option_table, s, argc, argv, &idle, &err);
  if (result == ARGS_GO && check_all_written(s, c, &err)) result = ARGS_BAD;
  *status = result == ARGS_BAD ? usage_error("%s", err.text) : EXIT_OK;
  if (result == ARGS_GO && idle.n && !s->quiet) fprintf(stderr, "weft: %s\n", str_c(&idle));
  s->model.quiet = s->quiet;
  if (result == ARGS_GO) model_args_advise(&s->model);
  int completed = model_args_complete(&s->model);
  if (result == ARGS_GO && completed) { *status = completed; result = ARGS_BAD; }
  str_free(&idle);
  bool elsewhere = s->model.from.repo || s->model.from.url,
       takes_text = c->bit & (COMMAND_BIT(run) | COMMAND_BIT(chat));
  // then the first operand is text instead of a model
  if (elsewhere && takes_text && s->model.model && !s->text) { s->text = s->model.model; s->model.model = NULL; }
  if (result == ARGS_GO && args_check_operands(c, option_table, s, &err)) {
    *status = usage_error("%s", err.text);
    result = ARGS_BAD;
  }
  if (!(c->bit & (COMMAND_BIT(pull) | COMMAND_BIT(loadtest)))) {
    s->model.from.encoder = wants_encoder(s, c);
    if (result == ARGS_GO) *status = model_args_fetch(&s->model);
    if (result == ARGS_GO && !*status) *status = draft_args_fetch(&s->draft, &s->model);
    sandbox_fetched();
  }
  return result == ARGS_GO && !*status;
}

// A command that refuses an option does not have it.
static bool offers(const struct option *o) { return o && o->kind != OPT_REFUSED; }

bool settings_are_for(const struct command *other, const struct command *this, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] != '-') continue;
    const struct option *mine = args_find(this, option_table, argv[i]),
                        *theirs = args_find(other, option_table, argv[i]);
    if (!offers(mine) && offers(theirs)) return true;
    if (args_takes_value(mine) && !strchr(argv[i], '=')) i++;
  }
  return false;
}

const char *settings_model(const struct command *a, const struct command *b, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] != '-' || !argv[i][1]) return argv[i];
    if (!strncmp(argv[i], "--model=", 8)) return argv[i] + 8;
    const struct option *o = args_find(a, option_table, argv[i]);
    if (!o) o = args_find(b, option_table, argv[i]);
    if (!args_takes_value(o) || (argv[i][1] == '-' && strchr(argv[i], '='))) continue;
    if (i + 1 < argc && (!strcmp(argv[i], "-m") || !strcmp(argv[i], "--model"))) return argv[i + 1];
    i++;
  }
  return NULL;
}

enum weft_speculating settings_speculating(const struct settings *s) {
  if (s->no_speculation) return WEFT_SPECULATE_NEVER;
  return s->draft_always ? WEFT_SPECULATE_ALWAYS : WEFT_SPECULATE_IF_IT_PAYS;
}

void settings_free(struct settings *s) {
  struct texts *all[] = {&s->stops,
                         &s->models,
                         &s->prompts,
                         &s->generations,
                         &s->both,
                         &s->depths,
                         &s->threads,
                         &s->chunks,
                         &s->sequences,
                         &s->quantize.types,
                         &s->quantize.overrides,
                         &s->quantize.include,
                         &s->quantize.exclude,
                         &s->serve.keys,
                         &s->serve.hosts,
                         &s->serve.origins,
                         &s->serve.encoders,
                         &s->serve.repos,
                         &s->serve.warned,
                         &s->serve.media_hosts,
                         &s->media.files,
                         &s->model.loras,
                         &s->model.controls,
                         &s->model.scaled_controls,
                         &s->model.settings};
  for (size_t i = 0; i < COUNT(all); i++) texts_free(all[i]);
  free(s->model.fetched);
  free(s->model.repo);
  free(s->media.found);
  free(s->media.other);
  free(s->draft.model.fetched);
  free(s->draft.model.repo);
  free(s->model.adapters);
  free(s->model.control_vectors);
  free(s->model.shares);
  free(s->ids.at);
  free(s->force.at);
  free(s->detokenize.at);
  sampling_free(&s->sampling);
}

int settings_run(const struct command *c, int argc, char **argv, int (*work)(struct settings *s)) {
  struct settings s;
  int status;
  if (settings_parse(&s, c, argc, argv, &status)) status = work(&s);
  settings_free(&s);
  return status;
}
