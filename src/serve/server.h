// server: state shared by all handlers, and the table of routes.
#ifndef WEFT_SERVE_SERVER_H
#define WEFT_SERVE_SERVER_H
#include <jansson.h>
#include "serve/fields.h"
#include "serve/guard.h"
#include "serve/http.h"
#include "serve/pool.h"
#include "serve/replay.h"
#include "serve/sched.h"
#include "serve/serve.h"
#include "serve/shelf.h"

typedef struct server {
  const serve_options *o;
  account memory;                      // of all requests
  http *http;
  pool *pool;                          // for short jobs: events of answers, paths that need no model
  pool *makers;                        // for requests to a model: prompts, grammars, pictures
  shelf *shelf;
  guard *guard;
  json_t *defaults;                    // from the options; NULL
  str openapi;                         // the text of /openapi.json
  json_t **shapes;                     // for each route the shape of its body, as in /openapi.json; NULL: no body
  replay *replay;
  server_log *log;
  kv_events *kv;                       // NULL: disabled
  int files;                           // the folder of --path; -1: none
  int64_t started;                     // Unix time
  _Atomic int64_t answered[6];         // number of answers by status / 100
  int64_t *used;                       // tokens by key
  _Atomic uint64_t last_id;
  _Atomic bool ending;                 // after SIGTERM: routers should skip this server
} server;


// The parsed request of a message, besides its route: in `own` of its exchange.
struct asked {
  server *s;
  char *model;                         // from the query or the body; NULL: not given
  bool load;                           // a model that is not there may be loaded for it
  double wait_s;                       // how long it waits for loading; negative: no limit
  char *conversation, *from;           // X-Conversation-Id or conv_id, and from of the query; NULL: not given
  char *action;                        // from the query; NULL: not given
  json_t *body;                        // if the route has field tables
  size_t json_left;                    // bytes left for JSON inside its strings
  fault misfit;                        // violation of /openapi.json's schema: then this is the only answer
  served *m;                           // held until the exchange is gone
  bool looks;                          // a GET of a monitoring program: does not reset the model's idle time
  struct figures figures;
  str ignored;                         // unused fields and tools of the body
};

// How a family of endpoints formats errors.
struct family {
  const char *name;
  json_t *(*error)(const fault *f);
  const char *error_shape;             // shape of errors (shapes.h)
  const char *stream;                  // content type of a stream
};
extern const struct family openai_family, llama_family, anthropic_family, ollama_family;

struct route {
  const char *method, *path;           // a path that ends in * matches all paths with that prefix
  bool open;                           // needs no key
  bool needs_model;                    // handled after its model is loaded
  const struct family *family;
  void (*handle)(server *s, exchange *x);        // on a pool thread; answers x, or passes it on
  const struct fields *const *tables;  // of the body, terminated by NULL; NULL: no body
  const char *what;
  const char *type;                    // of the answer; NULL: application/json
};
extern const struct route routes[];
extern const size_t n_routes;
extern const struct route files_route;           // for unknown paths, and for the page with --path
// NULL: no such route; *allow: the methods of this path, or NULL.
const struct route *route_find(const char *method, const char *path, const char **allow);

// Why a known path of another server is not supported, and the family for the error; NULL: unknown path.
const char *route_refusal(const char *path, const struct family **family);

static inline struct asked *asked_of(const exchange *x) { return x->own; }
// gets the requested model into asked_of(x)->m. false: x has been passed on
bool model_for(server *s, exchange *x);

void exchange_note(exchange *x, const fault *f);       // records for the log why it was refused or failed
// Sets the header Weft-Ignored to what was ignored so far: before an answer begins.
void tell_ignored(exchange *x);
// Answers with a fault if the body violates /openapi.json. Called in place of every success, after more specific
// checks, and before anything with effects.
bool refuse_misfit(exchange *x);
// Takes text. One that does not fit into the memory of requests is answered with 413 or 429.
void answer_text(exchange *x, int status, const char *type, str *text);
void answer_json(exchange *x, int status, json_t *o);                    // takes o
void answer_json_str(exchange *x, int status, str *text);                // takes the text
void answer_fault(server *s, exchange *x, const fault *f);
void answer_fault_as(server *s, exchange *x, const fault *f, const struct family *family);
void new_id(server *s, const char *prefix, char *out, size_t cap);       // "chatcmpl-..."
const char *asked_path(const exchange *x, const struct route *r);        // the text that matched *

// Handlers without a family.
void log_request(server *s, exchange *x);        // of a finished request
bool server_is_well(server *s);        // do steps progress if something runs?
void handle_health(server *s, exchange *x);
void handle_metrics(server *s, exchange *x);
void handle_openapi(server *s, exchange *x);
str describe_routes(void);             // the text of /openapi.json
void handle_page(server *s, exchange *x);
extern const struct fields *const stream_lookup_fields[];
void handle_stream(server *s, exchange *x);                    // GET /v1/stream
void handle_stream_delete(server *s, exchange *x);             // DELETE /v1/stream
void handle_stream_lookup(server *s, exchange *x);             // POST /v1/streams/lookup
#endif
