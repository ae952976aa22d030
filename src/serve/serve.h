// serve: the engine as an HTTP server, built on the public API (weft.h):
//
//   http.c watch.c   connections, messages, answers; who has left
//   mhd.c            libmicrohttpd, which is opened when a server starts
//   systemd.c        a socket from systemd, and messages to it
//   log.c            what an operator sees of it
//   guard.c          access control: Host, Origin, keys
//   routes.c         the table of routes; /openapi.json is made from it
//   fields.c         JSON by tables of fields, with faults that name them
//   prompt.c         conversations and texts to ids
//   shelf.c          the models: which are in memory, and which one computes
//   kv_blocks.c kv_config.c kv_events.c zmq.c: events about the contents of the cache, for routers
//   slots.c          numbers of sequences, by which clients save and restore them
//   call.c           one message from its JSON to its answer, over ...
//   sched.c run.c    ... requests: scheduling, and one answer step by step
//   vector.c         embeddings
//   rerank.c         reranking of texts by a question
//   openai.c llama.c anthropic.c ollama.c responses.c: families of endpoints, each over calls
//
// Threads: one for the sockets, one that watches them, a few for JSON and text (pool.c), one that loads and unloads
// models, and one step thread per loaded model.
#ifndef WEFT_SERVE_H
#define WEFT_SERVE_H
#include "base/base.h"
#include "serve/log.h"
#include "weft.h"

// The process that fetches pictures and sounds named by URL (fetch.h). Start it before there are threads, and before
// the process gives up its rights. -1 and the reason: an invalid host, or no libcurl.
typedef struct serve_fetcher serve_fetcher;
struct serve_fetching {
  const char *const *hosts;
  size_t n;
  void (*enter)(void *ctx);            // confines that process; NULL: not confined
  void *ctx;
};
int serve_fetcher_start(const struct serve_fetching *o, serve_fetcher **out, error *err);
void serve_fetcher_stop(serve_fetcher *f);       // NULL is fine

// Opens libmicrohttpd permanently. Call it before the process gives up files: GnuTLS, which comes with it, reads the
// system's settings then. version: of the library; may be NULL. -1 and the reason: missing or too old.
int serve_load(const char **version, error *err);

typedef struct serve_options {
  // paths of models to load at the start; alias: the first one's name for clients; NULL: the file's name
  const char *const *models, *alias;
  size_t n_models;
  // folder of further models, loaded on request; NULL: none. A subfolder is a model with its parts and its encoder
  const char *models_dir;
  int models_max;                      // maximum loaded models; 0: limited by memory
  double idle_s;                       // unload idle models after this many seconds; negative: never
  bool no_autoload;                    // models are loaded only by explicit requests
  weft_options model;
  const char *draft;                   // path of a draft model or draft file, for all models that it fits; NULL: none
  weft_draft_options drafts;
  enum weft_speculating speculating;         // for all kinds of drafts
  bool chat_bos;                       // chats begin with BOS if the file requires one and the template writes none
  // chat template for all conversations, in Jinja, and its name for messages; NULL: the model's own. built_in: adds BOS
  // only if the model needs one
  const char *template_text, *template_name;
  bool template_built_in;
  // default values of request fields: a JSON object with sampling fields, n_predict, embd_normalize,
  // chat_template_kwargs, and default_grammar or default_json_schema for requests without a constraint; NULL: none
  const char *defaults;
  const char *host;                    // an address, or the path of a socket (containing a /); NULL: 127.0.0.1
  int port;                            // 0: any
  const char *key_file;
  const char *const *keys;             // further keys
  size_t n_keys;
  bool no_key;                         // allow non-local addresses without keys
  const char *const *hosts, *const *origins;     // further allowed names in Host; allowed origins
  size_t n_hosts, n_origins;
  int max_connections;
  int workers;                         // threads for JSON and text
  int max_waiting;                     // 0, here and below: no limit
  int parallel;                        // running answers
  int64_t max_body, max_waiting_tokens;
  // limits of all requests together and of each: bytes, and seconds of processor time besides the model
  int64_t max_bytes, max_request_bytes;
  int64_t max_encoder_bytes;           // kept by an encoder between requests; 0: a quarter of the free memory
  double max_request_work_s;
  double max_wait_s;
  const char *keep;                    // folder for saving sequences between runs; NULL: none
  int64_t keep_bytes;
  const char *slots;                   // folder for sequences that clients save; NULL: none
  const char *kv_events;               // events of the KV cache: the object of vLLM's --kv-events-config; NULL: none
  int block_size;                      // tokens of a block, in events and figures
  // for running answers at shutdown; before that, still accepting while /health reports the shutdown
  double drain_s, drain_delay_s;
  server_log *log;                     // open, before the process gives up the right to open it; serve_close closes it
  const char *tls_key, *tls_certificate;         // PEM files; NULL: plain HTTP
  double io_s;                         // timeout of inactive clients in seconds; 0: the default
  bool no_page, slots_hidden;          // disables the page at /, and GET /slots
  const char *files;                   // folder served in place of the page; NULL: none
  const char *prefix;                  // of all paths, such as "/weft"; NULL: none
  bool adapters_off;                   // adapters of `model` initially have scale 0
  bool suffix_first;                   // /infill: the text after the gap comes first
  enum weft_pooling pooling;           // for embeddings
  const char *mmproj;                  // encoder of pictures and sounds, for all models that it fits; NULL: each
                                       //                                       // model has its own, or none
                                       // Finds a model's own encoder: a path for free(), or NULL. Called with paths of
                                       // `models` and of models_dir, by any thread, also when the process cannot open
                                       // other files any more. NULL: no model has one.
  char *(*encoder_of)(void *ctx, const char *model);
  void *encoder_ctx;
  const serve_fetcher *fetcher;        // NULL: URLs are not fetched
  int image_min_tokens, image_max_tokens;        // 0: as in the model's own processor
} serve_options;

typedef struct serve serve;
// Opens the socket and reads the keys, before the process gives up the right to do so.
int serve_open(const serve_options *o, serve **out, error *err);
// Serves until SIGTERM or SIGINT: running requests then have drain_s to end; a second signal ends them at once.
int serve_run(serve *s, error *err);
void serve_close(serve *s);            // NULL is fine
#endif
