// weft serve: reads the options of the server (src/serve/), starts it and ends it.
#include "app/app.h"
#include "app/encoders.h"
#include "app/json.h"
#include "app/model_args.h"
#include "app/store.h"
#include "app/template_args.h"
#include "base/json.h"
#include "base/confine.h"
#include "serve/serve.h"
#include <stdlib.h>
#include <string.h>

static const struct command command = {
  "serve", "Answers over HTTP: OpenAI's interface, llama.cpp's, and a page to talk with the model.", "FILE [options]",
  "Without a model it serves those that were fetched ('weft list'), each when a request names it.\n"
  "Without further options it listens on 127.0.0.1, port 8080, for programs of this machine alone. SIGTERM or\n"
  "Ctrl-C lets answers that have begun end first; a second one does not. A file of keys has one per line,\n"
  "KEY or NAME:KEY. GET /openapi.json lists what can be asked.\n", COMMAND_BIT(serve), 0};

// Without a model, all downloaded models are served, as in llama-server.
static int serve_fetched(struct settings *all) {
  stored_list l = {0};
  str folder = {0};
  error err = {0};
  size_t whole = 0;
  store_list(&l);
  for (size_t i = 0; i < l.n; i++)
    whole += !l.at[i].partial && !l.at[i].missing && !store_is_encoder(strrchr(l.at[i].path, '/') + 1);
  store_free(&l);
  if (!whole) return usage_error("no model: give one with -m FILE, or a folder with --models-dir DIR");
  if (store_folder(&folder, &err)) return failed("%s", err.text);
  if (!all->quiet) say("no model is given: serving those of 'weft list', in %s", str_c(&folder));
  all->serve.models_dir = str_c(&folder);        // lives until the program ends
  return EXIT_OK;
}

// Collects the models' paths; downloaded models are given by name.
static int find_models(struct settings *all) {
  // the operand, already downloaded
  if (all->model.model) vec_push(&all->models, xstrdup(all->model.model));
  for (size_t i = 0; i < all->models.n; i++) {
    struct model_args one = {.model = all->models.at[i], .quiet = all->quiet};
    one.from = (struct model_source){
      .token = all->model.from.token, .offline = all->model.from.offline, .encoder = all->model.from.encoder};
    int status = model_args_fetch(&one);
    if (status) return status;
    bool operand = all->model.repo && i + 1 == all->models.n;
    vec_push(&all->serve.repos, operand ? xstrdup(all->model.repo) : one.repo);
    if (!one.fetched) continue;
    free(all->models.at[i]);
    all->models.at[i] = one.fetched;
  }
  return all->models.n || all->serve.models_dir ? EXIT_OK : serve_fetched(all);
}

static struct log_options log_options_of(const struct settings *all) {
  enum { LESS = 2, MORE = 4 };         // llama-server's levels
  const struct serve_args *a = &all->serve;
  bool quiet = all->quiet || a->verbosity <= LESS, verbose = all->verbose || a->verbosity >= MORE;
  return (struct log_options){.path = a->log_file,
                              .json = a->log_jsonl || a->log_format,
                              .level = quiet ? LOG_QUIET : verbose ? LOG_VERBOSE : LOG_NORMAL};
}

// ---- defaults of requests -------------------------------------------------------------------------------------------

static int add_constraint(const struct settings *all, json_t *to, error *err) {
  const struct grammar_args *a = &all->grammar;
  char *text;
  size_t n = 0;
  error why = {0};
  if (grammar_args_check(a, all->sampling.ignore_end, err) || grammar_args_read(a, &text, &n, err)) return -1;
  if (!text) return 0;
  bool schema = a->schema || a->schema_file;
  json_t *made = schema ? json_read(text, n, JSON_ALLOW_NUL, NULL, &why) : json_text(text, n);
  free(text);
  if (!made) return error_set(err, "%s: %s", a->schema_file ? a->schema_file : "--json-schema", why.text);
  json_object_set_new(to, schema ? "default_json_schema" : "default_grammar", made);
  return 0;
}

// Models that denoise refuse every request with a grammar or a bias, so a server with no other model would refuse all.
static int check_kind(const struct settings *all, const weft_file *f, weft_error *err) {
  const char *what = grammar_args_given(&all->grammar) ? "a grammar or a schema" : "--logit-bias";
  if (!weft_file_denoises(f) || all->models.n > 1 || all->serve.models_dir) return 0;
  snprintf(err->text, sizeof err->text, "%.300s: this model denoises texts as a whole: %s does not apply",
           all->models.at[0], what);
  return -1;
}

// Checks default constraints with the kind and the vocabulary of the first model, so that an error shows at the start.
// Models of a folder are not checked: each has its own vocabulary.
static int check_constraint(const struct settings *all, error *err) {
  weft_file *f = NULL;
  weft_vocab *v = NULL;
  weft_grammar *g = NULL;
  weft_error why;
  bool grammar = grammar_args_given(&all->grammar);
  if ((!grammar && !all->sampling.biases.n) || !all->models.n) return 0;
  int status = weft_file_open(all->models.at[0], &f, &why) || check_kind(all, f, &why);
  if (!status && grammar)
    status = weft_vocab_open(f, &v, &why) || grammar_args_open(&all->grammar, v, weft_vocab_size(v), &g, &why);
  if (status) error_set(err, "%s", why.text);
  weft_grammar_free(g);
  weft_vocab_close(v);
  weft_file_close(f);
  return status ? -1 : 0;
}

// The defaults as fields of a request; for free().
static int read_defaults_of(struct settings *all, char **out, error *err) {
  json_t *stops = json_array(), *variables = NULL;
  int64_t seed = all->sampling.seed;
  unescape_texts(&all->stops);
  if (sampling_check(&all->sampling, true, err)) return -1;
  all->sampling.seed = seed;           // each request draws its own
  json_t *o = sampling_fields_of(&all->sampling);
  json_object_set_new(o, "n_predict", json_integer((json_int_t)all->count));
  json_object_set_new(o, "embd_normalize", json_integer((json_int_t)all->embed.normalize));
  json_object_set_new(o, "reasoning_budget_tokens", json_integer((json_int_t)all->reasoning_budget));
  if (all->reasoning_format == REASONING_IN_CONTENT) json_object_set_new(o, "reasoning_format", json_string("none"));
  const char *message = all->reasoning_message;
  if (message) json_object_set_new(o, "reasoning_budget_message", json_text(message, strlen(message)));
  for (size_t i = 0; i < all->stops.n; i++)
    json_array_append_new(stops, json_text(all->stops.at[i], strlen(all->stops.at[i])));
  if (all->stops.n) json_object_set(o, "stop", stops);
  json_decref(stops);
  int status = add_constraint(all, o, err) || template_variables(all, &variables, err) ? -1 : 0;
  if (variables) json_object_set_new(o, "chat_template_kwargs", variables);
  *out = status ? NULL : json_dumps(o, JSON_COMPACT);
  json_decref(o);
  return status;
}

// ---- start and end --------------------------------------------------------------------------------------------------

// Says of a model once that the encoder beside it is another repository's.
static void say_other(struct settings *all, const char *other, const struct encoder_wanted *w) {
  struct texts *warned = &all->serve.warned;
  for (size_t i = 0; i < warned->n; i++) if (!strcmp(warned->at[i], w->model)) return;
  str said = {0};
  encoder_say_other(other, w, &said);
  warning("%s", said.at);
  vec_push(warned, xstrdup(w->model));
  str_free(&said);
}

// For free(); NULL: none.
static char *find_encoder(struct settings *all, const struct encoder_wanted *w) {
  str path = {0}, other = {0};
  encoder_find(w, &path, &other);
  if (other.n) say_other(all, other.at, w);
  str_free(&other);
  if (path.n) return path.at;
  str_free(&path);
  return NULL;
}

// Finds the encoders of the given models, before the sandbox hides their folders.
static void find_encoders(struct settings *all) {
  enum encoder_search how = all->models.n == 1 && !all->serve.models_dir ? ENCODER_OF_ONE : ENCODER_OF_MANY;
  for (size_t i = 0; i < all->models.n; i++) {
    struct encoder_wanted w = {all->models.at[i], all->serve.repos.at[i], how};
    char *found = all->media.mmproj || all->media.alone ? NULL : find_encoder(all, &w);
    vec_push(&all->serve.encoders, found ? found : xstrdup(""));
  }
}

static char *encoder_of(void *ctx, const char *model) {
  struct settings *all = ctx;                    // its caller has the lock of the models' list
  for (size_t i = 0; i < all->models.n; i++) {
    if (strcmp(all->models.at[i], model)) continue;
    return all->serve.encoders.at[i][0] ? xstrdup(all->serve.encoders.at[i]) : NULL;
  }
  return find_encoder(all, &(struct encoder_wanted){model, NULL, ENCODER_OF_MANY});
}

static int start_fetcher(const struct settings *all, serve_fetcher **out, error *err) {
  const struct texts *hosts = &all->serve.media_hosts;
  struct serve_fetching o = {texts_of(hosts), hosts->n, sandbox_is_wanted() ? enter_fetcher : NULL, NULL};
  return hosts->n ? serve_fetcher_start(&o, out, err) : 0;
}

static int run_server(struct settings *all, const char *defaults, const struct asked_template *t) {
  const struct serve_args *a = &all->serve;
  enum { WORKERS = 2, PARALLEL = 16 };
  error err = {0};
  serve *s;
  server_log *log;
  serve_fetcher *fetcher = NULL;
  struct log_options lo = log_options_of(all);
  find_encoders(all);
  if (start_fetcher(all, &fetcher, &err)) return failed("%s", err.text);
  if (log_open(&lo, &log, &err)) {
    serve_fetcher_stop(fetcher);
    return failed("%s", err.text);
  }
  keep_to_evaluating(all, NULL);
  serve_options o = {.models = texts_of(&all->models),
                     .n_models = all->models.n,
                     .models_dir = a->models_dir,
                     .models_max = (int)a->models_max,
                     .idle_s = (double)a->idle,
                     .no_autoload = !a->autoload,
                     .alias = a->alias,
                     .template_text = t->text,
                     .template_name = t->name,
                     .template_built_in = t->built_in,
                     .defaults = defaults,
                     .chat_bos = all->chat_bos,
                     .prefix = a->prefix,
                     .adapters_off = a->adapters_off,
                     .host = a->host,
                     .port = (int)a->port,
                     .model = model_args_options(&all->model),
                     .draft = all->model.draft_file ? all->model.draft_file : all->draft.model.model,
                     .drafts = draft_args_options(&all->draft),
                     .speculating = settings_speculating(all),
                     .key_file = a->key_file,
                     .keys = texts_of(&a->keys),
                     .n_keys = a->keys.n,
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
                     .max_bytes = a->memory_mib << 20,
                     .max_request_bytes = a->request_mib << 20,
                     .max_encoder_bytes = a->encoder_mib << 20,
                     .max_request_work_s = (double)a->request_work,
                     .drain_s = (double)a->drain,
                     .drain_delay_s = (double)a->drain_delay,
                     .log = log,
                     .workers = a->workers > 0 ? (int)a->workers : WORKERS,
                     .keep = a->keep,
                     .keep_bytes = a->keep_mib << 20,
                     .slots = a->slots,
                     .kv_events = a->kv_events,
                     .block_size = (int)a->block_size,
                     .files = a->files,
                     .tls_key = a->tls_key,
                     .tls_certificate = a->tls_certificate,
                     .io_s = (double)a->timeout,
                     .no_page = !a->page,
                     .slots_hidden = !a->slots_shown,
                     .suffix_first = a->suffix_first,
                     .mmproj = all->media.mmproj,
                     .encoder_of = all->media.alone ? NULL : encoder_of,
                     .encoder_ctx = all,
                     .fetcher = fetcher,
                     .image_min_tokens = (int)all->media.min_tokens,
                     .image_max_tokens = (int)all->media.max_tokens,
                     .pooling = a->rerank ? WEFT_POOLING_RANK : (enum weft_pooling)(all->embed.pooling - 1)};
  if (serve_open(&o, &s, &err)) {
    serve_fetcher_stop(fetcher);
    return failed("%s", err.text);
  }
  enter_sandbox(CONFINE_SERVING);
  int status = serve_run(s, &err);
  serve_close(s);
  serve_fetcher_stop(fetcher);
  return status ? failed("%s", err.text) : EXIT_OK;
}

// Checks the memory limit first: in a control group that is too small the system would kill the server without a
// message.
static bool memory_is_enough(error *err) {
  enum { LEAST = 64 << 20 };           // libraries, threads, the helper process and the compiler: 45 MB measured
  uint64_t left = weft_memory_available();
  if (left >= LEAST) return true;
  error_set(err, "weft serve needs %d MiB of memory beside its models, but only %.1f MiB are free", LEAST >> 20,
            (double)left / (1 << 20));
  return false;
}

static int serve_models(struct settings *all) {
  error err = {0};
  char *defaults = NULL;
  struct asked_template t = {0};
  if (!memory_is_enough(&err) || serve_load(NULL, &err)) return failed("%s", err.text);
  int status = find_models(all);
  if (!status && read_defaults_of(all, &defaults, &err)) status = usage_error("%s", err.text);
  if (!status && check_constraint(all, &err)) status = failed("%s", err.text);
  if (!status && template_asked(all->template_name, all->template_file, &t, &err)) status = failed("%s", err.text);
  if (!status) status = run_server(all, defaults, &t);
  free(defaults);
  free(t.text);
  return status;
}

int serve_command(int argc, char **argv) {
  return settings_run(&command, argc, argv, serve_models);
}
