// server: what all handlers share, and the table of routes.
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
  pool *pool;                          // for what is short: events of answers, paths that need no model
  pool *makers;                        // for requests to a model: prompts, grammars, pictures
  shelf *shelf;
  guard *guard;
  json_t *defaults;                    // of the options; NULL
  json_t **shapes;                     // of each route what its body may be, as /openapi.json has it; NULL: not read
  replay *replay;
  server_log *log;
  kv_events *kv;                       // NULL: none are wanted
  int files;                           // the folder of --path; -1: none
  int64_t started;                     // Unix time
  _Atomic int64_t answered[6];         // by status / 100
  int64_t *used;                       // tokens, by key
  _Atomic uint64_t last_id;
  _Atomic bool ending;                 // after SIGTERM: routers are to pass it over
} server;


// What a message asks for, beside its route: in `own` of its exchange.
struct asked {
  server *s;
  char *model;                         // of the query, or of the body; NULL: it says nothing of that
  bool load;                           // a model that is not there may be loaded for it
  double wait_s;                       // it waits so long for that; negative: as long as it takes
  char *conversation, *from;           // X-Conversation-Id or conv_id, and from of the query; NULL: not given
  char *action;                        // of the query; NULL: not given
  json_t *body;                        // where the route has tables of fields
  size_t json_left;                    // what JSON in its strings may take
  fault misfit;                        // how it is not what /openapi.json says: no answer but this one is given
  served *m;                           // held until the exchange is gone
  bool looks;                          // a GET, of a program that watches: the model's idle time goes on
  struct figures figures;
  str ignored;                         // fields and tools of the body that are not used
};

// How a group of endpoints says that something is wrong.
struct family {
  const char *name;
  json_t *(*error)(const fault *f);
  const char *error_shape;             // of that (shapes.h)
  const char *stream;                  // the type of a stream
};
extern const struct family openai_family, llama_family, anthropic_family, ollama_family;

struct route {
  const char *method, *path;           // a path that ends in * stands for all that begin so
  bool open;                           // needs no key, ever
  bool needs_model;                    // handled once the model that it names is there
  const struct family *family;
  void (*handle)(server *s, exchange *x);        // on a thread of the pool; answers x, or hands it on
  const struct fields *const *tables;  // of the body, NULL at their end; NULL: none is read
  const char *what;
  const char *type;                    // of the answer; NULL: application/json
};
extern const struct route routes[];
extern const size_t n_routes;
extern const struct route files_route;           // of what the table has not, and of the page, with --path
// NULL: there is none; *allow: which methods this path has, or NULL.
const struct route *route_find(const char *method, const char *path, const char **allow);

// Why a path of another server is not answered, and in whose form to say so; NULL: nothing is known of it.
const char *route_refusal(const char *path, const struct family **family);

static inline struct asked *asked_of(const exchange *x) { return x->own; }
// the model that x wants is there, as asked_of(x)->m. false: x is somebody else's now
bool model_for(server *s, exchange *x);

void exchange_note(exchange *x, const fault *f);       // why it is refused or has failed, for the log
// The header Weft-Ignored, with what has been ignored so far: before an answer begins.
void tell_ignored(exchange *x);
// Where the body is not what /openapi.json says: answers so. Done in place of every success, after what is more exact;
// and before what has effects.
bool refuse_misfit(exchange *x);
void answer_json(exchange *x, int status, json_t *o);                    // takes o
void answer_json_str(exchange *x, int status, str *text);                // takes what is in text
void answer_fault(server *s, exchange *x, const fault *f);
void answer_fault_as(server *s, exchange *x, const fault *f, const struct family *family);
void new_id(server *s, const char *prefix, char *out, size_t cap);       // "chatcmpl-..."
const char *asked_path(const exchange *x, const struct route *r);        // what stood for *

// Handlers of no family.
void log_request(server *s, exchange *x);        // that is over
bool server_is_well(server *s);        // steps are taken where something runs
void handle_health(server *s, exchange *x);
void handle_metrics(server *s, exchange *x);
void handle_openapi(server *s, exchange *x);
void handle_page(server *s, exchange *x);
extern const struct fields *const stream_lookup_fields[];
void handle_stream(server *s, exchange *x);                    // GET /v1/stream
void handle_stream_delete(server *s, exchange *x);             // DELETE /v1/stream
void handle_stream_lookup(server *s, exchange *x);             // POST /v1/streams/lookup
#endif
