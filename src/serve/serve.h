// serve: the engine behind an HTTP server.  A user of the library like any other (weft.h), made of
//
//   http.c watch.c   connections, messages, answers; who has left
//   mhd.c            libmicrohttpd, which is opened when a server starts
//   systemd.c        a socket from systemd, and messages to it
//   log.c            what an operator sees of it
//   guard.c          who may ask: Host, Origin, keys
//   routes.c         the table of routes; /openapi.json is made from it
//   fields.c         JSON by tables of fields, with faults that name them
//   prompt.c         conversations and texts to ids
//   shelf.c turn.c   the models, which of them are in memory, and whose turn it is to compute
//   kv_blocks.c kv_config.c kv_events.c zmq.c: what the cache holds, told to routers
//   slots.c          numbers of sequences, by which clients save and restore them
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
#include "serve/log.h"
#include "weft.h"

// The process that fetches pictures and sounds which requests name by a URL (fetch.h). To be started before there are
// threads, and before the process gives up its rights. -1 and why: a host that cannot be one, or no libcurl.
typedef struct serve_fetcher serve_fetcher;
struct serve_fetching {
  const char *const *hosts;
  size_t n;
  void (*enter)(void *ctx);            // in that process, to confine it; NULL: it is not
  void *ctx;
};
int serve_fetcher_start(const struct serve_fetching *o, serve_fetcher **out, error *err);
void serve_fetcher_stop(serve_fetcher *f);       // NULL is fine

// Opens libmicrohttpd permanently. To be called before a process gives up files: GnuTLS, which comes with it, reads the
// system's settings then. version: that of the library; may be NULL. -1 and why: it is not here, or too old.
int serve_load(const char **version, error *err);

typedef struct serve_options {
  // paths of those that are loaded at the start; alias: the first one's name for clients; NULL: that of the file
  const char *const *models, *alias;
  size_t n_models;
  // others are loaded from here when they are asked for; NULL. A folder in it is a model with its parts and its encoder
  const char *models_dir;
  int models_max;                      // loaded at once; 0: as many as there is memory for
  double idle_s;                       // a model that nobody uses goes after so long; negative: never
  bool no_autoload;                    // nothing is loaded but what is asked for explicitly
  weft_options model;
  const char *draft;                   // path of a draft model, for all models with its vocabulary; NULL: none
  weft_draft_options drafts;
  bool no_speculation;                       // neither by a draft model nor otherwise
  bool chat_bos;                       // chats begin with BOS where the file asks for one and the template has none
  // For all conversations, in Jinja, with what messages call it; NULL: the model's own.  built_in: BOS stands before it
  // only if the model wants one.
  const char *template_text, *template_name;
  bool template_built_in;
  // What a request gets for the fields that it leaves out: a JSON object with fields of sampling, n_predict,
  // embd_normalize, chat_template_kwargs, and default_grammar or default_json_schema, for requests that constrain
  // nothing; NULL: nothing.
  const char *defaults;
  const char *host;                    // an address, or the path of a socket (with a / in it); NULL: 127.0.0.1
  int port;                            // 0: any
  const char *key_file;
  const char *const *keys;             // besides
  size_t n_keys;
  bool no_key;                         // other addresses than this machine's own are fine without keys
  const char *const *hosts, *const *origins;     // further names in Host; pages from elsewhere that may ask
  size_t n_hosts, n_origins;
  int max_connections;
  int workers;                         // threads for JSON and text
  int max_waiting;                     // 0, here and below: any
  int parallel;                        // answers in work at once
  int64_t max_body, max_waiting_tokens;
  // What requests hold, all together and each, and how long a processor may work for one, beside the model.
  int64_t max_bytes, max_request_bytes;
  int64_t max_encoder_bytes;           // that an encoder keeps between requests; 0: a quarter of what is left
  double max_request_work_s;
  double max_wait_s;
  const char *keep;                    // folder for sequences from one run to the next; NULL: none
  int64_t keep_bytes;
  const char *slots;                   // folder for sequences that clients save; NULL: none
  const char *kv_events;               // events of the KV cache: the object of vLLM's --kv-events-config; NULL: none
  int block_size;                      // tokens of a block, in these and in figures
  double drain_s, drain_delay_s;       // for answers to end; before that, to take requests while /health says no
  server_log *log;                     // open, before the process gives up the right to open it; serve_close closes it
  const char *tls_key, *tls_certificate;         // their files, in PEM; NULL: plain HTTP
  double io_s;                         // a client that sends or takes nothing for so long has left; 0: the default
  bool no_page, slots_hidden;          // neither the page at /, nor GET /slots
  const char *files;                   // folder whose files are served in the page's place; NULL: none
  const char *prefix;                  // of all paths, such as "/weft"; NULL: none
  bool adapters_off;                   // adapters of `model` have the scale 0 at first
  bool suffix_first;                   // /infill: the text after the gap comes first
  enum weft_pooling pooling;           // of vectors of texts
  const char *mmproj;                  // encoder of pictures and sounds, of all models that it goes with; NULL: each
                                       // model has its own, or none
  // Which one that is: a path for free(), or NULL. Called with paths of `models` and of models_dir, by any thread, also
  // when the process cannot open other files any more. NULL: no model has one.
  char *(*encoder_of)(void *ctx, const char *model);
  void *encoder_ctx;
  const serve_fetcher *fetcher;        // NULL: nothing is fetched
  int image_min_tokens, image_max_tokens;        // 0: as the model's own processor
} serve_options;

typedef struct serve serve;
// Opens the socket and reads the keys, before the process gives up the right to do either.
int serve_open(const serve_options *o, serve **out, error *err);
const char *serve_address(const serve *s);       // "http://127.0.0.1:8080"
// Serves until SIGTERM or SIGINT: then what runs may end, within drain_s; a second signal ends it at once.
int serve_run(serve *s, error *err);
void serve_close(serve *s);            // NULL is fine
#endif
