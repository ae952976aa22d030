// shelf: the models of a server. Those named on the command line are loaded at the start; those of a folder when
// somebody asks for one by its name. One that nobody uses gives its place up to one that is wanted, the one used least
// lately first, and goes by itself after a time.
//
// One thread loads, one model after another, and unloads. A message holds the model that it is for until it has been
// answered, so that none goes in the middle of a request. Names are compared with those of the list and nothing else:
// none is ever a path.
#ifndef WEFT_SERVE_SHELF_H
#define WEFT_SERVE_SHELF_H
#include <jansson.h>
#include "serve/http.h"
#include "serve/sched.h"
#include "serve/serve.h"
#include "serve/turn.h"

// OUT: not in memory; WANTED: somebody waits for it; FAILED: the last try to load it
enum served_state { SERVED_OUT, SERVED_WANTED, SERVED_LOADING, SERVED_IN, SERVED_LEAVING, SERVED_FAILED };
struct waiter { exchange *x; double until; };

typedef struct served {
  char *name, *path;
  // ---- of the file
  char *summary, *arch, *why;          // why: it cannot be run, or not be loaded; NULL
  uint64_t file_bytes, tensor_bytes, n_params, n_keys;
  int64_t n_trained, changed, stamp;   // positions; Unix time; another one for another content
  bool named, seen, broken;            // on the command line; by the last look at the folder; cannot be run
  // ---- while it is loaded: does not change while somebody holds it
  sched *sched;
  weft_model *model;
  weft_template *tmpl, *tool_tmpl;     // NULL: it has none, and why
  weft_error no_tmpl;
  char *bos, *eos;                     // of the vocabulary, for a template from a file
  // ---- the shelf's
  enum served_state state;
  bool was_in;
  int users;
  double used, keep_s;                 // when somebody let it go; seconds for which it stays then, negative: for ever
  VEC(struct waiter) waiting;
} served;

typedef struct shelf shelf;
struct shelf_options {
  const serve_options *o;
  int n_keys;
  // The model that this message waited for is there, and held for it; or it cannot be (m NULL), and why. x is the
  // callee's to let go.
  void (*ready)(void *ctx, exchange *x, served *m, const fault *f);
  void *ctx;
};

// Looks at the models; none is loaded yet.
int shelf_open(const struct shelf_options *o, shelf **out, error *err);
int shelf_start(shelf *sh, error *err);          // begins with those of the command line
// What the server may say of itself: 1 once those are there, 0 before, -1 and why where one cannot be.
int shelf_ready(shelf *sh, error *err);
bool shelf_busy(shelf *sh);
void shelf_drain(shelf *sh);                     // models take no more requests
// ends what runs; false: a model still loads, and that cannot be stopped
bool shelf_stop(shelf *sh);
void shelf_free(shelf *sh);                      // after that; NULL is fine

// How a message says which model it wants, and whether it waits for it.
struct wanted {
  const char *name;
  bool load;
  double wait_s;
};  // name NULL: there is one only, or the first; wait_s: negative: as long as it takes
// 0 and the model, to be given back with shelf_give; 1: x waits, and comes again; -1 and a fault.
int shelf_take(shelf *sh, exchange *x, const struct wanted *w, served **out, fault *f);
void shelf_give(shelf *sh, served *m);
// stays so long when nobody holds it any more; NULL: as the server says
void shelf_keep(shelf *sh, served *m, const double *seconds);
int shelf_unload(shelf *sh, const char *name, fault *f);         // once nobody holds it
// Everything in the list that can be run, in its order, while nothing changes.
void shelf_each(shelf *sh, void (*fn)(void *ctx, served *m), void *ctx);
// One of the list, by its name; NULL and a fault. Valid as long as the server: what is in a list stays there.
served *shelf_find(shelf *sh, const char *name, fault *f);
int shelf_unknown(shelf *sh, const char *name, fault *f);        // the fault of a name that none has; -1
double shelf_until(const served *m);             // when it goes, Unix time; 0: nobody knows
void shelf_counts(shelf *sh, struct sched_counts *out);          // of all models, those that have gone included
#endif
