// shelf: the models of a server. Models of the command line are loaded at the start; those of a folder when a request
// names them. An idle model is unloaded to make space for a requested one, least recently used first, and otherwise
// after a timeout.
//
// One thread loads models, one at a time, and unloads them. A message holds its model until it has been answered, so no
// model is unloaded during a request. Names are only compared with the list and never used as paths.
#ifndef WEFT_SERVE_SHELF_H
#define WEFT_SERVE_SHELF_H
#include <jansson.h>
#include "base/turn.h"
#include "serve/http.h"
#include "serve/sched.h"
#include "serve/serve.h"

// OUT: not in memory; WANTED: a request waits for it; FAILED: the last attempt to load it failed
enum served_state { SERVED_OUT, SERVED_WANTED, SERVED_LOADING, SERVED_IN, SERVED_LEAVING, SERVED_FAILED };
struct waiter { exchange *x; double until; };

// Totals of all requests for a model.
enum { FINISHED_STOP, FINISHED_LENGTH, FINISHED_ABORT, FINISHED_ERROR, FINISHED_KINDS };
struct model_seen {
  struct histogram first_s, total_s, wait_s, prompt_s, drawn_s, prompt_tokens, drawn_tokens;
  int64_t finished[FINISHED_KINDS];
};

struct encoded;
typedef struct served {
  char *name, *path;
  VEC(char *) aliases;                 // further names
  // ---- from the file
  char *summary, *arch, *why;          // why: why it cannot be run; NULL
  uint64_t file_bytes, tensor_bytes, n_params, n_keys;
  uint64_t encoder_bytes;              // of its tensors; 0 without an encoder
  int64_t n_trained, changed;          // training context; Unix time
  char *mmproj;                        // its encoder of pictures and sounds; NULL: none
  unsigned media_kinds;                // WEFT_PICTURE, WEFT_SOUND: its inputs
  uint64_t stamp;                      // of its files: changes if their content may have changed
  bool named, seen, broken;            // on the command line; found by the last scan; cannot be run
  bool hidden;                         // another entry has its name
  // ---- while it is loaded: constant while held
  sched *sched;
  weft_model *model;
  weft_media *media;                   // encoder of pictures and sounds; NULL: none
  pthread_mutex_t media_lock;          // for the recently encoded media (media.c)
  struct encoded *encoded;
  turn_lock *turn;                     // shared by everything that computes
  weft_template *tmpl, *tool_tmpl;     // NULL: none; tool_tmpl: for tools
  weft_error no_tmpl;
  char *bos, *eos;                     // of the vocabulary, for a template from a file
  // ---- private to the shelf
  enum served_state state;
  weft_error damage;                   // why it must be unloaded (shelf_damaged); "": no reason
  char *failed;                        // why the last attempt to load it failed, or it was unloaded; NULL
  bool was_in;
  int users;
  double used, keep_s;                 // last release; seconds until it is unloaded then, negative: never
  VEC(struct waiter) waiting;
  struct sched_counts past;            // of earlier times when it was loaded
  struct model_seen figures;
} served;

// The result of a request for a model: tokens of all its choices, times of the first one. first_ms: from the header of
// its message to its first token; 0: none.
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
  kv_events *kv;                       // NULL: disabled
  int n_keys;
  // The model that this message waited for is loaded, and held for it; or failed (m NULL), with the reason. The callee
  // releases x.
  void (*ready)(void *ctx, exchange *x, served *m, const fault *f);
  void *ctx;
};

// Scans the models; none is loaded yet.
int shelf_open(const struct shelf_options *o, shelf **out, error *err);
int shelf_start(shelf *sh, error *err);          // begins to load those of the command line
// Readiness: 1 if those are loaded, 0 before, -1 and the reason if one failed.
int shelf_ready(shelf *sh, error *err);
bool shelf_busy(shelf *sh);
void shelf_drain(shelf *sh);                     // loads no more models; loaded ones accept requests
// ends running requests; false: a model is still loading, which cannot be stopped
bool shelf_stop(shelf *sh);
void shelf_free(shelf *sh);                      // after shelf_stop; NULL is fine

// The model that a message requests, and whether it waits for loading.
struct wanted {
  const char *name;
  bool load;
  double wait_s;
};  // name NULL: the only one, or the first; wait_s: negative: no limit
// 0 and the model, to be released with shelf_give; 1: x waits, and is handled again; -1 and a fault.
int shelf_take(shelf *sh, exchange *x, const struct wanted *w, served **out, fault *f);
void shelf_give(shelf *sh, served *m, bool used);     // used: resets its idle time
// sets its idle timeout; NULL: the server's
void shelf_keep(shelf *sh, served *m, const double *seconds);
int shelf_unload(shelf *sh, const char *name, fault *f);         // when no request holds it any more
// Visits all runnable models of the list in order, under the lock.
void shelf_each(shelf *sh, void (*fn)(void *ctx, served *m), void *ctx);
// An entry by name; NULL and a fault. Valid as long as the server, since entries are never removed.
served *shelf_find(shelf *sh, const char *name, fault *f);
// Was a request refused because the model is damaged (its file or its encoder's was truncated)? Then true with the
// reason, and it is unloaded when no request holds it. The caller holds it.
bool shelf_damaged(shelf *sh, served *m, weft_error *why);
// Adapters (--lora) and their scales, common to all models of the server.
size_t shelf_n_adapters(const shelf *sh);
weft_adapter shelf_adapter(shelf *sh, size_t i);
// From the next request on. scales: one per adapter.
void shelf_set_scales(shelf *sh, const float *scales);
float *shelf_scales(shelf *sh);                      // current, for free(); NULL: no adapters
// It was in memory, is unloaded, and no request waits for it.
bool shelf_sleeps(shelf *sh, const served *m);
bool shelf_untouched(shelf *sh, const served *m);    // in the folder, and never requested
// The chat template for a model: --chat-template-file, or its file's. -1 and the reason: none.
int shelf_template(const shelf *sh, const weft_file *f, bool tools, weft_template **out, weft_error *err);
int shelf_unknown(shelf *sh, const char *name, fault *f);        // the fault for an unknown name; -1
double shelf_until(const served *m);             // when it will be unloaded, Unix time; 0: unknown
void shelf_observe(shelf *sh, served *m, const struct figures *f);
// Visits models with counts: those of their schedulers, past and current, and whether they are loaded.
void shelf_each_seen(shelf *sh, void (*fn)(void *ctx, const served *m, const struct sched_counts *c), void *ctx);
void shelf_counts(shelf *sh, struct sched_counts *out);          // of all models, including unloaded ones
#endif
