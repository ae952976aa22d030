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

// Of all requests for a model.
enum { FINISHED_STOP, FINISHED_LENGTH, FINISHED_ABORT, FINISHED_ERROR, FINISHED_KINDS };
struct model_seen {
  struct histogram first_s, total_s, wait_s, prompt_s, drawn_s, prompt_tokens, drawn_tokens;
  int64_t finished[FINISHED_KINDS];
};

struct encoded;
typedef struct served {
  char *name, *path;
  VEC(char *) aliases;                 // its further names
  // ---- of the file
  char *summary, *arch, *why;          // why: it cannot be run; NULL
  uint64_t file_bytes, tensor_bytes, n_params, n_keys;
  uint64_t encoder_bytes;              // of its tensors, where it has one
  int64_t n_trained, changed;          // positions; Unix time
  char *mmproj;                        // its encoder of pictures and sounds; NULL: there is none
  unsigned media_kinds;                // WEFT_PICTURE, WEFT_SOUND: what it takes
  uint64_t stamp;                      // of its files: another number once they may have another content
  bool named, seen, broken;            // on the command line; by the last look at the folder; cannot be run
  bool hidden;                         // another one of the list has its name
  // ---- while it is loaded: does not change while somebody holds it
  sched *sched;
  weft_model *model;
  weft_media *media;                   // encoder of pictures and sounds; NULL: there is none
  pthread_mutex_t media_lock;          // of what was encoded lately (media.c)
  struct encoded *encoded;
  turn *turn;                          // of all that compute
  weft_template *tmpl, *tool_tmpl;     // NULL: it has none, and why
  weft_error no_tmpl;
  char *bos, *eos;                     // of the vocabulary, for a template from a file
  // ---- the shelf's
  enum served_state state;
  weft_error damage;                   // what it leaves for (shelf_damaged); "": nothing
  char *failed;                        // why the last try to load it failed, or what it was given up for; NULL
  bool was_in;
  int users;
  double used, keep_s;                 // when somebody let it go; seconds for which it stays then, negative: for ever
  VEC(struct waiter) waiting;
  struct sched_counts past;            // of the times when it was loaded before
  struct model_seen figures;
} served;

// What became of a request for a model: tokens of all its choices, times of the first one.  first_ms: from the header
// of its message to its first token; 0: there was none.
struct figures {
  bool known;
  char id[48];
  int64_t prompt, cached, drawn;
  double wait_ms, prompt_ms, drawn_ms, first_ms, total_ms;
  const char *finish;                  // "stop", "length", "tool_calls", "time", "gone" or "error"
};

typedef struct shelf shelf;
struct shelf_options {
  const serve_options *o;
  server_log *log;
  kv_events *kv;                       // NULL: none are wanted
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
void shelf_drain(shelf *sh);                     // no more models are loaded; those that are take requests
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
void shelf_give(shelf *sh, served *m, bool used);     // used: its idle time begins again
// stays so long when nobody holds it any more; NULL: as the server says
void shelf_keep(shelf *sh, served *m, const double *seconds);
int shelf_unload(shelf *sh, const char *name, fault *f);         // once nobody holds it
// Everything in the list that can be run, in its order, while nothing changes.
void shelf_each(shelf *sh, void (*fn)(void *ctx, served *m), void *ctx);
// One of the list, by its name; NULL and a fault. Valid as long as the server: what is in a list stays there.
served *shelf_find(shelf *sh, const char *name, fault *f);
// What a request was refused for may be that the model is damaged (its file, or its encoder's, was cut): then true and
// why, and it leaves memory once no request holds it. The caller holds it.
bool shelf_damaged(shelf *sh, served *m, weft_error *why);
// Adapters (--lora) and their scales, which are those of all models of the server.
size_t shelf_n_adapters(const shelf *sh);
weft_adapter shelf_adapter(shelf *sh, size_t i);
// From the next request on.  scales: of each adapter.
void shelf_set_scales(shelf *sh, const float *scales);
float *shelf_scales(shelf *sh);                      // as they are now, for free(); NULL: there are no adapters
// It was in memory and has gone since; nobody waits for it.
bool shelf_sleeps(shelf *sh, const served *m);
bool shelf_untouched(shelf *sh, const served *m);    // of the folder, and nothing has asked for it yet
// The chat template that is used for a model: --chat-template-file, or that of its file. -1: there is none, and why.
int shelf_template(const shelf *sh, const weft_file *f, bool tools, weft_template **out, weft_error *err);
int shelf_unknown(shelf *sh, const char *name, fault *f);        // the fault of a name that none has; -1
double shelf_until(const served *m);             // when it goes, Unix time; 0: nobody knows
void shelf_observe(shelf *sh, served *m, const struct figures *f);
// Models of which there is something to count: what their schedulers say, before and now, and whether they are loaded.
void shelf_each_seen(shelf *sh, void (*fn)(void *ctx, const served *m, const struct sched_counts *c), void *ctx);
void shelf_counts(shelf *sh, struct sched_counts *out);          // of all models, those that have gone included
#endif
