// serve: the engine behind an HTTP server.  A user of the library like any other (weft.h), made of
//
//   http.c watch.c   connections, messages, answers; who has left
//   systemd.c        a socket from systemd, and messages to it
//   guard.c          who may ask: Host, Origin, keys
//   routes.c         the table of routes; /openapi.json is made from it
//   fields.c         JSON by tables of fields, with faults that name them
//   prompt.c         conversations and texts to ids
//   shelf.c turn.c   the models, which of them are in memory, and whose turn it is to compute
//   call.c           one message from its JSON to its answer, over ...
//   sched.c run.c    ... requests: who is next, and one answer step by step
//   vector.c         vectors of texts, all the way
//   rerank.c         texts in the order in which they answer a question
//   openai.c llama.c anthropic.c ollama.c responses.c: families of endpoints, each over calls
//
// Threads: one for the sockets, one that watches them, a few for JSON and text (pool.c), one that loads and
// unloads models, and of each model that is loaded one that takes its steps.
#ifndef WEFT_SERVE_H
#define WEFT_SERVE_H
#include "base/base.h"
#include "weft.h"

typedef struct serve_options {
  // paths of those that are loaded at the start; alias: the first one's name for clients; NULL: that of the file
  const char *const *models, *alias;
  size_t n_models;
  const char *models_dir;              // others are loaded from here when they are asked for; NULL
  int models_max;                      // loaded at once; 0: as many as there is memory for
  double idle_s;                       // a model that nobody uses goes after so long; negative: never
  bool no_autoload;                    // nothing is loaded but what is asked for explicitly
  weft_options model;
  const char *draft;                   // path of a draft model, for all models with its vocabulary; NULL: none
  weft_draft_options drafts;
  bool no_guess;                       // neither by a draft model nor otherwise
  const char *template_file;
  const char *host;                    // an address, or the path of a socket (with a / in it); NULL: 127.0.0.1
  int port;                            // 0: any
  const char *key_file;
  bool no_key;                         // other addresses than this machine's own are fine without keys
  const char *const *hosts, *const *origins;     // further names in Host; pages from elsewhere that may ask
  size_t n_hosts, n_origins;
  int max_connections, max_waiting, workers;
  int parallel;                        // answers in work at once
  int64_t max_body, max_waiting_tokens;
  double max_wait_s;
  const char *keep;                    // folder for sequences from one run to the next; NULL: none
  int64_t keep_bytes;
  double drain_s;
  bool no_page;
  enum weft_pooling pooling;           // of vectors of texts
} serve_options;

typedef struct serve serve;
// Opens the socket and reads the keys, before the process gives up the right to do either.
int serve_open(const serve_options *o, serve **out, error *err);
const char *serve_address(const serve *s);       // "http://127.0.0.1:8080"
// Serves until SIGTERM or SIGINT: then what runs may end, within drain_s; a second signal ends it at once.
int serve_run(serve *s, error *err);
void serve_close(serve *s);            // NULL is fine
#endif
