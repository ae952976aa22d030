// weft serve: the options of the server (src/serve/), and its life.
#include "app/app.h"
#include "app/model_args.h"
#include "base/confine.h"
#include "serve/serve.h"

struct serve_args {
  struct model_args model;
  const char *host, *alias, *key_file, *template_file;
  int64_t port, connections, waiting, waiting_tokens, body_mib, drain;
  bool no_key, no_page;
  struct texts hosts, origins;
};

static const struct command command = {
  "serve", "Answers over HTTP: OpenAI's interface, llama.cpp's, and a page to talk with the model.", "-m FILE [options]",
  "Without further options it listens on 127.0.0.1, port 8080, for programs of this machine alone. SIGTERM or\n"
  "Ctrl-C lets answers that have begun end first; a second one does not. A file of keys has one per line,\n"
  "KEY or NAME:KEY. GET /openapi.json lists what can be asked.\n"};

static enum args_result parse(struct serve_args *a, int argc, char **argv, error *err) {
  *a = (struct serve_args){.port = 8080, .connections = 12000, .waiting = 64, .body_mib = 32, .drain = 30};
  const struct option table[] = {
    O_GROUP("Model"),
    O_TEXT("-m, --model", "FILE", "model, a GGUF file (of a split one, the first part)", &a->model.model),
    O_TEXT("-a, --alias", "NAME", "the name of the model for clients (default: that of the file)", &a->alias),
    O_CONTEXT(&a->model),
    O_TEXT("--chat-template-file", "FILE", "another template, in Jinja", &a->template_file),
    O_GROUP("Who may ask"),
    O_TEXT("--host", "ADDRESS", "listens there, or at the path of a socket (default 127.0.0.1)", &a->host),
    O_INT("--port", "N", "port; 0: any that is free (default 8080)", &a->port, 0, 65535),
    O_TEXT("--api-key-file", "FILE", "keys, one of which a request has to carry", &a->key_file),
    O_FLAG("--no-key", "other machines need no key either", &a->no_key),
    O_TEXTS("--allow-host", "NAME", "a name in Host besides addresses and localhost, more than once", &a->hosts),
    O_TEXTS("--allow-origin", "ORIGIN", "pages from there may ask, more than once", &a->origins),
    O_FLAG("--no-webui, --no-page", "no page at /", &a->no_page),
    O_GROUP("Limits"),
    O_INT("--max-connections", "N", "connections at once (default 12000, or what the system allows)", &a->connections, 1, 1000000),
    O_INT("--max-queue", "N", "requests that may wait; more get 429 (default 64)", &a->waiting, 1, 1000000),
    O_INT("--max-queue-tokens", "N", "tokens of their prompts; 0: eight contexts (default)", &a->waiting_tokens, 0, INT32_MAX),
    O_INT("--max-body", "MIB", "size of a request (default 32)", &a->body_mib, 1, 1024),
    O_INT("--drain", "SECONDS", "time for answers to end after SIGTERM (default 30)", &a->drain, 0, 86400),
    O_GROUP("Machine"),
    O_MACHINE(&a->model),
  };
  return args_parse(&command, table, COUNT(table), argc, argv, err);
}

static int work(const struct serve_args *a) {
  enum { WORKERS = 2 };
  error err = {0};
  serve *s;
  serve_options o = {
    .model_path = a->model.model, .alias = a->alias, .template_file = a->template_file, .host = a->host, .port = (int)a->port,
    .model = model_args_options(&a->model), .key_file = a->key_file, .no_key = a->no_key, .hosts = texts_of(&a->hosts), .n_hosts = a->hosts.n,
    .origins = texts_of(&a->origins), .n_origins = a->origins.n, .max_connections = (int)a->connections, .max_waiting = (int)a->waiting,
    .max_waiting_tokens = a->waiting_tokens, .max_body = a->body_mib << 20, .drain_s = (double)a->drain, .workers = WORKERS, .no_page = a->no_page};
  if (!a->model.model) return usage_error("no model: give one with -m FILE");
  if (serve_open(&o, &s, &err)) return failed("%s", err.text);
  enter_sandbox(confine_to_serving);
  int status = serve_run(s, &err);
  serve_close(s);
  return status ? failed("%s", err.text) : EXIT_OK;
}

int serve_command(int argc, char **argv) {
  struct serve_args a;
  error err = {0};
  int status;
  switch (parse(&a, argc, argv, &err)) {
  case ARGS_GO: status = work(&a); break;
  case ARGS_HELP: return EXIT_OK;
  default: status = usage_error("%s", err.text); break;
  }
  texts_free(&a.hosts);
  texts_free(&a.origins);
  return status;
}
