// server: what all handlers share, and the table of routes.
#ifndef WEFT_SERVE_SERVER_H
#define WEFT_SERVE_SERVER_H
#include <jansson.h>
#include "serve/fields.h"
#include "serve/guard.h"
#include "serve/http.h"
#include "serve/pool.h"
#include "serve/sched.h"
#include "serve/serve.h"
#include "serve/shelf.h"

typedef struct server {
  const serve_options *o;
  http *http;
  pool *pool;
  shelf *shelf;
  guard *guard;
  int64_t started;                     // Unix time
  _Atomic int64_t answered[6];         // by status / 100
  int64_t *used;                       // tokens, by key
  _Atomic uint64_t last_id;
} server;

// What a message asks for, beside its route: in `own` of its exchange.
struct asked {
  server *s;
  char *model;                         // of the query, or of the body; NULL: it says nothing of that
  bool load;                           // a model that is not there may be loaded for it
  double wait_s;                       // it waits so long for that; negative: as long as it takes
  json_t *body;                        // where the route has tables of fields
  size_t json_left;                    // what JSON in its strings may take
  served *m;                           // held until the exchange is gone
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
// NULL: there is none; *allow: which methods this path has, or NULL.
const struct route *route_find(const char *method, const char *path, const char **allow);

static inline struct asked *asked_of(const exchange *x) { return x->own; }
// the model that x wants is there, as asked_of(x)->m. false: x is somebody else's now
bool model_for(server *s, exchange *x);

void answer_json(exchange *x, int status, json_t *o);                    // takes o
void answer_fault(server *s, exchange *x, const fault *f);
void new_id(server *s, const char *prefix, char *out, size_t cap);       // "chatcmpl-..."
const char *asked_path(const exchange *x, const struct route *r);        // what stood for *

// Handlers of no family.
bool server_is_well(server *s);        // steps are taken where something runs
void handle_health(server *s, exchange *x);
void handle_metrics(server *s, exchange *x);
void handle_openapi(server *s, exchange *x);
void handle_page(server *s, exchange *x);
#endif
