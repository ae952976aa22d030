// weft serve: the options of the server (src/serve/), and its life.
#include "app/app.h"
#include "app/model_args.h"
#include "base/confine.h"
#include "serve/serve.h"
#include <stdlib.h>

static const struct command command = {
  "serve", "Answers over HTTP: OpenAI's interface, llama.cpp's, and a page to talk with the model.", "FILE [options]",
  "Without further options it listens on 127.0.0.1, port 8080, for programs of this machine alone. SIGTERM or\n"
  "Ctrl-C lets answers that have begun end first; a second one does not. A file of keys has one per line,\n"
  "KEY or NAME:KEY. GET /openapi.json lists what can be asked.\n", COMMAND_BIT(serve), 0};

// The paths of the models; names of those that were fetched are such, too.
static int find_models(struct settings *all) {
  // the one without an option, fetched already
  if (all->model.model) vec_push(&all->models, xstrdup(all->model.model));
  for (size_t i = 0; i < all->models.n; i++) {
    struct model_args one = {.model = all->models.at[i], .quiet = all->quiet};
    int status = model_args_fetch(&one);
    if (status) return status;
    if (!one.fetched) continue;
    free(all->models.at[i]);
    all->models.at[i] = one.fetched;
  }
  return all->models.n || all->serve.models_dir
           ? EXIT_OK
           : usage_error("no model: give one with -m FILE, or a folder with --models-dir DIR");
}

static int serve_models(struct settings *all) {
  const struct serve_args *a = &all->serve;
  enum { WORKERS = 2, PARALLEL = 16 };
  error err = {0};
  serve *s;
  int missing = find_models(all);
  if (missing) return missing;
  keep_to_files(all, NULL);
  serve_options o = {.models = texts_of(&all->models),
                     .n_models = all->models.n,
                     .models_dir = a->models_dir,
                     .models_max = (int)a->models_max,
                     .idle_s = (double)a->idle,
                     .no_autoload = !a->autoload,
                     .alias = a->alias,
                     .template_file = all->template_file,
                     .host = a->host,
                     .port = (int)a->port,
                     .model = model_args_options(&all->model),
                     .draft = all->draft.model.model,
                     .drafts = draft_args_options(&all->draft),
                     .no_guess = all->no_guess,
                     .key_file = a->key_file,
                     .no_key = a->no_key,
                     .hosts = texts_of(&a->hosts),
                     .n_hosts = a->hosts.n,
                     .origins = texts_of(&a->origins),
                     .n_origins = a->origins.n,
                     .max_connections = (int)a->connections,
                     .max_waiting = (int)a->waiting,
                     .parallel = a->parallel > 0 ? (int)a->parallel : PARALLEL,
                     .max_waiting_tokens = a->waiting_tokens,
                     .max_wait_s = (double)a->max_wait,
                     .max_body = a->body_mib << 20,
                     .drain_s = (double)a->drain,
                     .workers = WORKERS,
                     .keep = a->keep,
                     .keep_bytes = a->keep_mib << 20,
                     .no_page = a->no_page,
                     .pooling = (enum weft_pooling)(all->embed.pooling - 1)};
  if (serve_open(&o, &s, &err)) return failed("%s", err.text);
  enter_sandbox(confine_to_serving);
  int status = serve_run(s, &err);
  serve_close(s);
  return status ? failed("%s", err.text) : EXIT_OK;
}

int serve_command(int argc, char **argv) {
  return settings_run(&command, argc, argv, serve_models);
}
