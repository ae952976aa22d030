// The models of a server, and which are in memory: see shelf.h.
#define _GNU_SOURCE
#include "serve/shelf.h"
#include "base/newfile.h"
#include "base/os.h"
#include "serve/media.h"
#include "serve/model_files.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "base/stamp.h"

// after waiting this long for a model, requests for the model that it replaces are delayed
#define PATIENCE_S 10.0
#define LOOK_S 1.0           // minimum interval between scans of the folder
static const uint64_t ROOM = 256ull << 20;       // minimum bytes of a model besides its weights

struct shelf {
  struct shelf_options o;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t keeper;
  bool started, stop, draining;
  VEC(served *) all;
  VEC(served *) wanted;                // in the order of requests
  double wanted_since, looked;         // of the first one; time of the last scan
  weft_adapter *adapters;              // with the scales with which models are loaded
  float *scales;                       // current scales of adapters
  uint64_t draft_bytes;                // of a draft model, which each model loads separately; 0: none
  served *giving_way;                  // its new requests wait, so that it can be unloaded
  // Steps of models run one at a time, because the processors suffice for one: two teams with barriers would delay each
  // other. Loading takes no turn: it shares the processors with steps like any program (the longest pause of steps was
  // 20 to 77 ms, and 120 ms if loading took turns in pieces).
  turn_lock turn;
  error failed;                        // why a model of the command line failed to load
};

// ---- files ----------------------------------------------------------------------------------------------------------

static char *text_of_key(const weft_file *f, const char *key) {
  size_t i;
  weft_value v;
  if (weft_file_find(f, key, &i) || weft_file_value(f, i, &v) || v.type != WEFT_STRING) return xstrdup("");
  return weft_utf8(v.text, v.n, &i);
}

static int64_t trained(const weft_file *f, const char *arch) {
  char key[128];
  size_t i;
  weft_value v;
  snprintf(key, sizeof key, "%.64s.context_length", arch);
  return weft_file_find(f, key, &i) || weft_file_value(f, i, &v) || v.u > INT32_MAX ? 0 : (int64_t)v.u;
}

static void forget_file(served *m) {
  free(m->summary); free(m->arch); free(m->why); free(m->mmproj);
  m->summary = m->arch = m->why = m->mmproj = NULL;
  m->media_kinds = 0;
  m->encoder_bytes = 0;
  m->broken = false;
}

static void broken(const shelf *sh, served *m, const char *why) {
  m->broken = true;
  m->why = xstrdup(why);
  if (!m->named) log_warn(sh->o.log, "%s", why);
}

static char *encoder_beside(const shelf *sh, const char *model) {
  const serve_options *o = sh->o.o;
  if (o->mmproj) return xstrdup(o->mmproj);
  return o->encoder_of ? o->encoder_of(o->encoder_ctx, model) : NULL;
}

// Finds the model's encoder and its input kinds. One that does not fit is ignored, unless it was named for the model:
// then loading reports the error.
static void look_at_encoder(const shelf *sh, served *m, const weft_file *f) {
  weft_file *e;
  weft_error err;
  bool named = sh->o.o->mmproj && !sh->o.o->models_dir && sh->o.o->n_models == 1;
  m->mmproj = encoder_beside(sh, m->path);
  if (!m->mmproj) return;
  int status = weft_file_open(m->mmproj, &e, &err);
  if (!status) {
    m->encoder_bytes = weft_file_tensor_bytes(e);
    status = weft_file_media(e, f, &m->media_kinds, &err);
    weft_file_close(e);
  }
  if (!status || named) return;
  log_warn(sh->o.log, "%s takes text alone: %s", m->name, err.text);
  free(m->mmproj);
  m->mmproj = NULL;
  m->encoder_bytes = 0;
}

// Reads properties from the file, without loading it.
static void look_at_file(const shelf *sh, served *m) {
  weft_file *f;
  weft_error err;
  forget_file(m);
  if (weft_file_open(m->path, &f, &err)) { broken(sh, m, err.text); return; }
  m->summary = weft_file_summary(f);
  m->arch = text_of_key(f, "general.architecture");
  m->file_bytes = weft_file_bytes(f);
  m->tensor_bytes = weft_file_tensor_bytes(f);
  m->n_params = weft_file_n_params(f);
  m->n_keys = weft_file_n_keys(f);
  m->n_trained = trained(f, m->arch);
  if (weft_file_is_mmproj(f) && !m->named) m->broken = true;           // an encoder, not a model: ignored silently
  else if (weft_file_can_run(f, &err)) broken(sh, m, err.text);
  else look_at_encoder(sh, m, f);
  weft_file_close(f);
}

static bool is_alone(const shelf *sh) { return !sh->o.o->models_dir && sh->all.n == 1; }

static served *by_path(const shelf *sh, const char *path) {
  for (size_t i = 0; i < sh->all.n; i++) if (!strcmp(sh->all.at[i]->path, path)) return sh->all.at[i];
  return NULL;
}

// Includes the encoder, which may be added later.
static uint64_t stamp_model(const shelf *sh, const char *path) {
  char *encoder = encoder_beside(sh, path);
  uint64_t all = files_stamp(path) ^ newfile_is_partial(path);
  if (encoder) all = hash_bytes(encoder, strlen(encoder), all ^ files_stamp(encoder));
  free(encoder);
  return all;
}

// An existing entry or a new one. An entry in memory is refreshed when it is unloaded. name NULL: the file's name.
static served *add_served(shelf *sh, const char *path, const char *name, bool named) {
  struct stat st = {0};
  served *m = by_path(sh, path);
  int there = stat(path, &st);
  uint64_t now = stamp_model(sh, path);
  if (!m && there) return NULL;
  if (!m) {
    m = xcalloc(1, sizeof *m);
    *m = (served){.path = xstrdup(path),
                  .name = name ? files_valid_name(name, strlen(name)) : files_name(path),
                  .named = named,
                  .keep_s = sh->o.o->idle_s};
    vec_push(&sh->all, m);
  }
  m->seen = !there;
  if (there || (m->summary || m->why ? m->stamp == now : false) ||
      (m->state != SERVED_OUT && m->state != SERVED_FAILED))
    return m;
  m->stamp = now;
  m->changed = (int64_t)st.st_mtim.tv_sec;
  look_at_file(sh, m);
  return m;
}

// A subfolder, as in llama-server: one model named after the folder, with its parts and its encoder; several models
// keep their own names. One without GGUF files may be a model as transformers saves it.
static void look_into(shelf *sh, const char *path, const char *name) {
  file_list files = {0};
  size_t n = 0;
  if (!files_in(path, &files)) return;
  bool config = false;
  for (size_t i = 0; i < files.n; i++) {
    n += files_stem(files.at[i]) && !strcasestr(files.at[i], "mmproj");
    config |= !strcmp(files.at[i], "config.json");
  }
  if (!n && config && !newfile_is_partial(path)) add_served(sh, path, name, false);
  for (size_t i = 0; i < files.n; i++) {
    str file = {0};
    str_addf(&file, "%s/%s", path, files.at[i]);
    if (files_stem(files.at[i]) && !strcasestr(files.at[i], "mmproj"))
      add_served(sh, file.at, n == 1 ? name : NULL, false);
    str_free(&file);
  }
  files_free(&files);
}

static bool in_memory(const served *m) { return m->state == SERVED_IN || m->state == SERVED_LOADING; }
static bool is_usable(const served *m) { return (in_memory(m) || (m->seen && !m->broken)) && !m->hidden; }

// ollama's programs append ":latest".
static bool is_name(const char *its, const char *name) {
  size_t n = strlen(its);
  return !strncmp(its, name, n) && (!name[n] || !strcmp(name + n, ":latest"));
}

static bool is_called(const served *m, const char *name) {
  if (is_name(m->name, name)) return true;
  for (size_t i = 0; i < m->aliases.n; i++) if (is_name(m->aliases.at[i], name)) return true;
  return false;
}

// If several files have one name, the one in memory or else the first is served; the others are not, with a warning.
static void hide_namesakes(shelf *sh) {
  for (size_t i = 0; i < sh->all.n; i++) {
    served *m = sh->all.at[i], *rival = NULL;
    bool was = m->hidden;
    m->hidden = false;
    for (size_t k = 0; k < sh->all.n && !m->named && is_usable(m) && !rival; k++) {
      served *other = sh->all.at[k];
      bool there = in_memory(other) || (other->seen && !other->broken);
      if (k != i && there && is_called(other, m->name) && (in_memory(other) == in_memory(m) ? k < i : in_memory(other)))
        rival = other;
    }
    m->hidden = rival;
    if (rival && !was)
      log_warn(sh->o.log, "%s: is not served: %s has the name '%s', too", m->path, rival->path, m->name);
  }
}

static int look_at_folder(shelf *sh, error *err) {
  const char *folder = sh->o.o->models_dir;
  file_list names = {0};
  if (!folder) return 0;
  if (!files_in(folder, &names)) return error_set(err, "--models-dir %s: %s", folder, strerror(errno));
  for (size_t i = 0; i < sh->all.n; i++) sh->all.at[i]->seen = sh->all.at[i]->named;
  for (size_t i = 0; i < names.n; i++) {
    str path = {0};
    str_addf(&path, "%s/%s", folder, names.at[i]);
    if (files_stem(names.at[i])) add_served(sh, path.at, NULL, false);
    else look_into(sh, path.at, names.at[i]);
    str_free(&path);
  }
  files_free(&names);
  hide_namesakes(sh);
  sh->looked = now_s();
  return 0;
}

// ---- the list; the caller holds the lock ----------------------------------------------------------------------------

static void look_again(shelf *sh) {
  error err = {0};
  if (now_s() - sh->looked > LOOK_S && look_at_folder(sh, &err)) log_warn(sh->o.log, "%s", err.text);
}

static served *called(const shelf *sh, const char *name) {
  for (size_t i = 0; i < sh->all.n; i++)
    if (is_usable(sh->all.at[i]) && is_called(sh->all.at[i], name)) return sh->all.at[i];
  return NULL;
}

static int unknown_model(const shelf *sh, const char *name, fault *f) {
  str names = {0};
  for (size_t i = 0; i < sh->all.n && names.n < 600; i++)
    if (is_usable(sh->all.at[i])) str_addf(&names, "%s'%s'", names.n ? ", " : "", sh->all.at[i]->name);
  str_c(&names);
  if (!name) fault_set(f, 400, "model", "'model' is missing; this server has %s", names.n ? names.at : "none");
  else {
    f->code = "model_not_found";
    fault_set(f, 404, "model", "there is no model '%.200s'; this server has %s", name, names.n ? names.at : "none");
  }
  str_free(&names);
  return -1;
}

// A server with one model accepts any name for it.
static served *find_model(shelf *sh, const char *name, fault *f) {
  served *m = NULL, *only = NULL;
  size_t n = 0;
  if (is_alone(sh)) return sh->all.at[0];
  if (!name || !(m = called(sh, name))) look_again(sh);
  if (name && !m) m = called(sh, name);
  for (size_t i = 0; i < sh->all.n && !name; i++) {
    if (!is_usable(sh->all.at[i])) continue;
    if (sh->all.at[i]->named) return sh->all.at[i];
    only = sh->all.at[i];
    n++;
  }
  if (!name && n == 1) m = only;
  if (!m) unknown_model(sh, name, f);
  return m;
}

static void want(shelf *sh, served *m) {
  if (m->state == SERVED_IN || m->state == SERVED_WANTED || m->state == SERVED_LOADING) return;
  if (m->state != SERVED_LEAVING) m->state = SERVED_WANTED;
  for (size_t i = 0; i < sh->wanted.n; i++) if (sh->wanted.at[i] == m) return;
  if (!sh->wanted.n) sh->wanted_since = now_s();
  vec_push(&sh->wanted, m);
  pthread_cond_signal(&sh->changed);
}

static size_t n_waiting(const shelf *sh) {
  size_t n = 0;
  for (size_t i = 0; i < sh->all.n; i++) n += sh->all.at[i]->waiting.n;
  return n;
}

static int not_now(fault *f, int retry_s, const char *why) {
  f->retry_s = retry_s;
  return fault_set(f, 503, NULL, "%s", why);
}

static int wait_for(shelf *sh, served *m, exchange *x, const struct wanted *w, fault *f) {
  bool soon = m->state == SERVED_WANTED || m->state == SERVED_LOADING, starts = m->named && !m->was_in;
  if (!soon && !starts && !w->load) return fault_set(f, 503, "model", "the model '%.200s' is not loaded", m->name);
  want(sh, m);
  if (starts || w->wait_s == 0) return not_now(f, 2, "Loading model");
  if (sh->o.o->max_waiting && n_waiting(sh) >= (size_t)sh->o.o->max_waiting) {
    f->retry_s = 5;
    return fault_set(f, 429, NULL, "%zu requests wait for models already", n_waiting(sh));
  }
  vec_push(&m->waiting, ((struct waiter){exchange_hold(x), w->wait_s < 0 ? INFINITY : now_s() + w->wait_s}));
  pthread_cond_signal(&sh->changed);
  return 1;
}

int shelf_take(shelf *sh, exchange *x, const struct wanted *w, served **out, fault *f) {
  pthread_mutex_lock(&sh->lock);
  served *m = find_model(sh, w->name, f);
  int status = m ? 0 : -1;
  bool away = m && (m->state != SERVED_IN || m == sh->giving_way);
  if (away && sh->draining) status = not_now(f, 5, "the server is ending");
  else if (away) status = wait_for(sh, m, x, w, f);
  if (!status) {
    m->users++;
    *out = m;
  }
  pthread_mutex_unlock(&sh->lock);
  return status;
}

void shelf_give(shelf *sh, served *m, bool used) {
  pthread_mutex_lock(&sh->lock);
  if (used) m->used = now_s();
  if (!--m->users) pthread_cond_signal(&sh->changed);
  pthread_mutex_unlock(&sh->lock);
}

void shelf_keep(shelf *sh, served *m, const double *seconds) {
  pthread_mutex_lock(&sh->lock);
  m->keep_s = seconds ? *seconds : sh->o.o->idle_s;
  pthread_mutex_unlock(&sh->lock);
}

int shelf_unload(shelf *sh, const char *name, fault *f) {
  pthread_mutex_lock(&sh->lock);
  served *m = find_model(sh, name, f);
  if (m) m->keep_s = 0;
  pthread_cond_signal(&sh->changed);
  pthread_mutex_unlock(&sh->lock);
  return m ? 0 : -1;
}

served *shelf_find(shelf *sh, const char *name, fault *f) {
  pthread_mutex_lock(&sh->lock);
  served *m = find_model(sh, name, f);
  pthread_mutex_unlock(&sh->lock);
  return m;
}

bool shelf_damaged(shelf *sh, served *m, weft_error *why) {
  if (!weft_model_check(m->model, why) && (!m->media || !weft_media_check(m->media, why))) return false;
  pthread_mutex_lock(&sh->lock);
  m->damage = *why;
  pthread_mutex_unlock(&sh->lock);
  return true;
}

size_t shelf_n_adapters(const shelf *sh) { return sh->o.o->model.n_adapters; }

weft_adapter shelf_adapter(shelf *sh, size_t i) {
  pthread_mutex_lock(&sh->lock);
  weft_adapter a = {sh->adapters[i].path, sh->scales[i]};
  pthread_mutex_unlock(&sh->lock);
  return a;
}

void shelf_set_scales(shelf *sh, const float *scales) {
  pthread_mutex_lock(&sh->lock);
  memcpy(sh->scales, scales, shelf_n_adapters(sh) * sizeof *scales);
  pthread_mutex_unlock(&sh->lock);
}

float *shelf_scales(shelf *sh) {
  size_t n = shelf_n_adapters(sh);
  float *scales = n ? xmalloc(n * sizeof *scales) : NULL;
  pthread_mutex_lock(&sh->lock);
  if (n) memcpy(scales, sh->scales, n * sizeof *scales);
  pthread_mutex_unlock(&sh->lock);
  return scales;
}

bool shelf_sleeps(shelf *sh, const served *m) {
  pthread_mutex_lock(&sh->lock);
  bool sleeps = m->was_in && (m->state == SERVED_OUT || m->state == SERVED_LEAVING);
  pthread_mutex_unlock(&sh->lock);
  return sleeps;
}

bool shelf_untouched(shelf *sh, const served *m) {
  pthread_mutex_lock(&sh->lock);
  bool untouched = !m->named && !m->was_in && m->state == SERVED_OUT;
  pthread_mutex_unlock(&sh->lock);
  return untouched;
}

int shelf_unknown(shelf *sh, const char *name, fault *f) {
  pthread_mutex_lock(&sh->lock);
  unknown_model(sh, name, f);
  pthread_mutex_unlock(&sh->lock);
  return -1;
}

void shelf_each(shelf *sh, void (*fn)(void *ctx, served *m), void *ctx) {
  pthread_mutex_lock(&sh->lock);
  look_again(sh);
  for (size_t i = 0; i < sh->all.n; i++) if (is_usable(sh->all.at[i])) fn(ctx, sh->all.at[i]);
  pthread_mutex_unlock(&sh->lock);
}

double shelf_until(const served *m) {
  if (m->keep_s < 0) return 0;
  double from = m->users ? now_s() : m->used;
  return (double)time(NULL) + from + m->keep_s - now_s();
}

static void add_counts(struct sched_counts *to, const struct sched_counts *c) {
  to->prompt_tokens += c->prompt_tokens;
  to->prompt_s += c->prompt_s;
  to->drawn_tokens += c->drawn_tokens;
  to->drawn_s += c->drawn_s;
  to->cached_tokens += c->cached_tokens;
  to->steps += c->steps;
  to->steps_s += c->steps_s;
  to->drafts += c->drafts;
  to->yields += c->yields;
  to->proposed += c->proposed;
  to->drafts_accepted += c->drafts_accepted;
  to->busy += c->busy;
  if (c->longest > to->longest) to->longest = c->longest;
  histogram_join(&to->between, &c->between);
  to->n_live += c->n_live;
  to->held += c->held;
  to->room += c->room;
  to->slots += c->slots;
  to->draft_s += c->draft_s;
  to->waited_s += c->waited_s;
  to->running += c->running;
  to->waiting += c->waiting;
  to->waiting_tokens += c->waiting_tokens;
  to->requests += c->requests;
  if (c->since_step > to->since_step) to->since_step = c->since_step;
}

static bool has_sched(const served *m) { return m->state == SERVED_IN || m->state == SERVED_LOADING; }

static struct sched_counts counts_of(const served *m) {
  struct sched_counts all = m->past, now;
  if (!has_sched(m) && !(m->state == SERVED_LEAVING && m->sched)) return all;
  sched_counts(m->sched, &now);
  add_counts(&all, &now);
  return all;
}

void shelf_counts(shelf *sh, struct sched_counts *out) {
  pthread_mutex_lock(&sh->lock);
  *out = (struct sched_counts){0};
  for (size_t i = 0; i < sh->all.n; i++) {
    struct sched_counts c = counts_of(sh->all.at[i]);
    add_counts(out, &c);
  }
  pthread_mutex_unlock(&sh->lock);
}

void shelf_each_seen(shelf *sh, void (*fn)(void *ctx, const served *m, const struct sched_counts *c), void *ctx) {
  pthread_mutex_lock(&sh->lock);
  for (size_t i = 0; i < sh->all.n; i++) {
    const served *m = sh->all.at[i];
    if (!has_sched(m) && !m->was_in) continue;
    struct sched_counts c = counts_of(m);
    fn(ctx, m, &c);
  }
  pthread_mutex_unlock(&sh->lock);
}

static int kind_of_finish(const char *finish) {
  if (!strcmp(finish, "error")) return FINISHED_ERROR;
  if (!strcmp(finish, "gone")) return FINISHED_ABORT;
  return strcmp(finish, "length") && strcmp(finish, "time") ? FINISHED_STOP : FINISHED_LENGTH;
}

void shelf_observe(shelf *sh, served *m, const struct figures *f) {
  const double *seconds = histogram_seconds, *tokens = histogram_tokens;
  pthread_mutex_lock(&sh->lock);
  struct model_seen *all = &m->figures;
  all->finished[kind_of_finish(f->finish)]++;
  if (f->first_ms > 0) histogram_add(&all->first_s, seconds, f->first_ms / 1000, 1);
  histogram_add(&all->total_s, seconds, f->total_ms / 1000, 1);
  histogram_add(&all->wait_s, seconds, f->wait_ms / 1000, 1);
  histogram_add(&all->prompt_s, seconds, f->prompt_ms / 1000, 1);
  if (f->drawn) histogram_add(&all->drawn_s, seconds, f->drawn_ms / 1000, 1);
  histogram_add(&all->prompt_tokens, tokens, (double)f->prompt, 1);
  if (f->drawn) histogram_add(&all->drawn_tokens, tokens, (double)f->drawn, 1);
  pthread_mutex_unlock(&sh->lock);
}

// ---- loading and unloading, by the loading thread; the caller holds the lock ----------------------------------------

static void on_loaded(void *ctx) {
  shelf *sh = ctx;
  pthread_mutex_lock(&sh->lock);
  pthread_cond_signal(&sh->changed);
  pthread_mutex_unlock(&sh->lock);
}

static void log_model(const shelf *sh, const served *m, const char *what) {
  if (!log_takes(sh->o.log, LOG_NORMAL)) return;
  log_line e = log_begin(sh->o.log, what);
  log_text(&e, "model", m->name);
  log_write(sh->o.log, &e);
}

static bool is_adapter_of(const char *path, const served *m) {
  weft_file *f;
  weft_value v;
  size_t key;
  bool same = true;                    // loading reports the error
  if (weft_file_open(path, &f, NULL)) return true;
  if (!weft_file_find(f, "general.architecture", &key) && !weft_file_value(f, key, &v) && v.type == WEFT_STRING &&
      m->arch)
    same = v.n == strlen(m->arch) && !memcmp(v.text, m->arch, v.n);
  weft_file_close(f);
  return same;
}

// With several models, those of another architecture than an adapter's are loaded without adapters.
static weft_options model_options(const shelf *sh, const served *m) {
  weft_options o = sh->o.o->model;
  o.adapters = sh->adapters;
  for (size_t i = 0; i < shelf_n_adapters(sh) && !is_alone(sh); i++)
    if (!is_adapter_of(sh->adapters[i].path, m)) o.n_adapters = 0;
  return o;
}

static void set_failed(served *m, const char *why) {
  free(m->failed);
  m->failed = why ? xstrdup(why) : NULL;
}

static void load_served(shelf *sh, served *m) {
  const serve_options *o = sh->o.o;
  error err = {0};
  m->damage = (weft_error){0};
  struct sched_options so = {.path = m->path,
                             .model = model_options(sh, m),
                             .draft = o->draft,
                             .draft_of_some = !is_alone(sh),
                             .drafts = o->drafts,
                             .speculating = o->speculating,
                             .n_keys = sh->o.n_keys,
                             .parallel = o->parallel,
                             .max_waiting = o->max_waiting,
                             .max_tokens = o->max_waiting_tokens,
                             .max_wait_s = o->max_wait_s,
                             .keep = o->keep,
                             .keep_bytes = (uint64_t)o->keep_bytes,
                             .kv = sh->o.kv,
                             .name = m->name,
                             .log = sh->o.log,
                             .turn = &sh->turn,
                             .loaded = on_loaded,
                             .ctx = sh};
  m->turn = &sh->turn;
  m->state = SERVED_LOADING;
  log_model(sh, m, "loading");
  if (!sched_start(&so, &m->sched, &err)) return;
  set_failed(m, err.text);
  m->state = SERVED_FAILED;
}

int shelf_template(const shelf *sh, const weft_file *f, bool tools, weft_template **out, weft_error *err) {
  const serve_options *o = sh->o.o;
  *out = NULL;
  if (o->template_text && tools) {
    snprintf(err->text, sizeof err->text, "%s: a template from the options is for all conversations",
             o->template_name);
    return -1;
  }
  int status = o->template_text
                 ? weft_template_open(o->template_text, strlen(o->template_text), o->template_name, out, err)
                 : weft_template_of_file(f, tools, out, err);
  if (status) *out = NULL;
  return status;
}

// Do texts of this model begin with BOS?
static bool wants_bos(const weft_vocab *v) {
  int32_t *ids = NULL;
  size_t n = 0;
  weft_error none;
  bool wants = !weft_tokenize(v, "", 0, WEFT_ADD_SPECIAL, &ids, &n, &none) && n && ids[0] == weft_bos(v);
  weft_free(ids);
  return wants;
}

// A model without a template is no error: it still completes texts.
static int look_at_model(const shelf *sh, served *m) {
  weft_error none;
  const serve_options *o = sh->o.o;
  const weft_file *f = weft_model_file(m->model);
  const weft_vocab *v = weft_model_vocab(m->model);
  size_t n;
  bool given = o->template_text != NULL;
  if (shelf_template(sh, f, false, &m->tmpl, &m->no_tmpl)) return given ? -1 : 0;
  if (!given) { shelf_template(sh, f, true, &m->tool_tmpl, &none); return 0; }
  if (!o->template_built_in || wants_bos(v)) m->bos = weft_piece(v, weft_bos(v), true, &n);
  m->eos = weft_piece(v, weft_eos(v), true, &n);
  return 0;
}

static void release_waiting(shelf *sh, served *m, const fault *f) {
  if (!f) m->users += (int)m->waiting.n;
  for (size_t i = 0; i < m->waiting.n; i++) sh->o.ready(sh->o.ctx, m->waiting.at[i].x, f ? NULL : m, f);
  m->waiting.n = 0;
}

// Adds a scheduler's counts to the model's totals in one step: a counter that drops briefly looks like a restart to
// readers of /metrics.
static sched *retire_sched(shelf *sh, served *m) {
  struct sched_counts c;
  sched *old = m->sched;
  sched_stop(old);
  pthread_mutex_lock(&sh->lock);
  sched_counts(old, &c);
  c.running = c.waiting = c.n_live = c.slots = 0;
  c.held = c.room = 0;
  c.waiting_tokens = 0;
  c.since_step = 0;
  add_counts(&m->past, &c);
  m->sched = NULL;
  pthread_mutex_unlock(&sh->lock);
  return old;
}

// Frees everything that loading made. Releases the lock meanwhile.
static void take_out(shelf *sh, served *m) {
  m->state = SERVED_LEAVING;
  log_model(sh, m, "unloading");
  pthread_mutex_unlock(&sh->lock);
  sched *old = retire_sched(sh, m);
  served_close_media(m);
  sched_free(old);
  weft_template_close(m->tmpl);
  weft_template_close(m->tool_tmpl);
  weft_free(m->bos);
  weft_free(m->eos);
  pthread_mutex_lock(&sh->lock);
  m->model = NULL;
  m->tmpl = m->tool_tmpl = NULL;
  m->bos = m->eos = NULL;
  m->state = SERVED_OUT;
  m->stamp = 0;                        // the file may have changed
  if (sh->giving_way == m) sh->giving_way = NULL;
  if (m->waiting.n) want(sh, m);
}

static void cannot(shelf *sh, served *m) {
  fault f = {0};
  fault_set(&f, 500, "model", "the model '%.200s' cannot be loaded: %.700s", m->name, m->failed);
  if (m->named && !m->was_in) error_set(&sh->failed, "%s", m->failed);
  else log_warn(sh->o.log, "%s", m->failed);
  release_waiting(sh, m, &f);
}

// An encoder that was not named for this model may belong to another model.
static int open_encoder_of(const shelf *sh, served *m, weft_error *err) {
  const serve_options *o = sh->o.o;
  if (!served_open_media(o, m, err)) return 0;
  if (o->mmproj && is_alone(sh)) return -1;
  log_warn(sh->o.log, "%s takes text alone: %s", m->name, err->text);
  return 0;
}

static void arrived(shelf *sh, served *m) {
  bool fine = sched_state(m->sched) == SCHED_READY;
  const char *why = NULL;
  weft_error no_media;
  if (fine) {
    m->model = sched_model(m->sched);
    if (open_encoder_of(sh, m, &no_media)) why = no_media.text;
    else if (look_at_model(sh, m)) why = m->no_tmpl.text;
  } else {
    why = sched_error(m->sched);
  }
  set_failed(m, why);
  if (why) {
    cannot(sh, m);
    take_out(sh, m);
    if (m->state == SERVED_OUT) m->state = SERVED_FAILED;
    return;
  }
  m->state = SERVED_IN;
  m->used = now_s();
  m->keep_s = sh->o.o->idle_s;
  if (!m->was_in || !m->named)
    log_say(sh->o.log, "ready", "ready: %s%s%s", is_alone(sh) ? "" : m->name, is_alone(sh) ? "" : ": ", m->summary);
  m->was_in = true;
  release_waiting(sh, m, NULL);
}

static served *idle_longest(const shelf *sh) {
  served *best = NULL;
  for (size_t i = 0; i < sh->all.n; i++) {
    served *m = sh->all.at[i];
    if (m->state == SERVED_IN && !m->users && (!best || m->used < best->used)) best = m;
  }
  return best;
}

// Is there space for a model? Unloads an idle one if necessary.
static bool has_place(shelf *sh, const served *m) {
  for (;;) {
    size_t n = 0;
    served *last = NULL;
    for (size_t i = 0; i < sh->all.n; i++) {
      served *other = sh->all.at[i];
      if (other->state != SERVED_IN) continue;
      n++;
      if (!last || other->used < last->used) last = other;
    }
    bool full = sh->o.o->models_max && n >= (size_t)sh->o.o->models_max;
    uint64_t needed = m->tensor_bytes + m->encoder_bytes + sh->draft_bytes + ROOM;
    if (!n || (!full && weft_memory_available() >= needed)) return true;
    served *idle = idle_longest(sh);
    if (!idle) {
      if (!sh->giving_way && now_s() - sh->wanted_since > PATIENCE_S) sh->giving_way = last;
      return false;
    }
    take_out(sh, idle);
  }
}

static void end_waiting(shelf *sh, served *m, double now) {
  fault f = {.retry_s = 2};
  fault_set(&f, 503, NULL, "Loading model");
  for (size_t i = 0; i < m->waiting.n;) {
    if (m->waiting.at[i].until > now) { i++; continue; }
    sh->o.ready(sh->o.ctx, m->waiting.at[i].x, NULL, &f);
    m->waiting.at[i] = m->waiting.at[--m->waiting.n];
  }
}

static bool is_over(const served *m, double now) {
  return m->state == SERVED_IN && !m->users && m->keep_s >= 0 && now - m->used >= m->keep_s;
}

static bool is_broken(const served *m) {
  return m->state == SERVED_IN && !m->users && (m->damage.text[0] || sched_state(m->sched) == SCHED_BROKEN);
}

// An evaluation broke an invariant, or a file was truncated: the model is unloaded, and reports the reason until a
// request loads it again.
static void take_out_broken(shelf *sh, served *m) {
  set_failed(m, m->damage.text[0] ? m->damage.text : sched_error(m->sched));
  m->damage = (weft_error){0};
  log_warn(sh->o.log, "%s", m->failed);
  take_out(sh, m);
  if (m->state == SERVED_OUT) m->state = SERVED_FAILED;
}

// Does one pending action; false: none.
static bool one_thing(shelf *sh) {
  double now = now_s();
  bool loading = false;
  for (size_t i = 0; i < sh->all.n; i++) {
    served *m = sh->all.at[i];
    end_waiting(sh, m, now);
    if (m->state == SERVED_LOADING && sched_state(m->sched) != SCHED_LOADING) { arrived(sh, m); return true; }
    bool goes = m == sh->giving_way;
    if (is_broken(m)) { take_out_broken(sh, m); return true; }
    if (is_over(m, now) || (m->state == SERVED_IN && goes && !m->users)) { take_out(sh, m); return true; }
    loading |= m->state == SERVED_LOADING;
  }
  if (loading || !sh->wanted.n) return false;
  served *m = sh->wanted.at[0];
  if (!has_place(sh, m)) return false;
  if (!sh->wanted.n || sh->stop) return true;          // the lock was released meanwhile
  memmove(sh->wanted.at, sh->wanted.at + 1, --sh->wanted.n * sizeof *sh->wanted.at);
  sh->wanted_since = now_s();
  load_served(sh, m);
  if (m->state == SERVED_FAILED) cannot(sh, m);
  return true;
}

static void *run_keeper(void *arg) {
  shelf *sh = arg;
  pthread_mutex_lock(&sh->lock);
  while (!sh->stop) {
    if (one_thing(sh)) continue;
    os_cond_wait_until(&sh->changed, &sh->lock, now_s() + 0.1);
  }
  pthread_mutex_unlock(&sh->lock);
  return NULL;
}

// ---- interface of the server ----------------------------------------------------------------------------------------

static int look_at_draft(shelf *sh, error *err) {
  weft_file *f;
  weft_error why;
  if (!sh->o.o->draft) return 0;
  if (weft_file_open(sh->o.o->draft, &f, &why)) return error_set(err, "%s", why.text);
  sh->draft_bytes = weft_file_tensor_bytes(f);
  bool alone = !weft_file_only_drafts(f);              // draft files are checked with the models that they are for
  int status = alone && weft_file_can_run(f, &why) ? error_set(err, "%s", why.text) : 0;
  weft_file_close(f);
  return status;
}

// Comma-separated names: the first becomes the model's name, all are accepted.
static void take_aliases(served *m, const char *names) {
  bool first = true;
  for (size_t n; *names; names += n + (names[n] == ',')) {
    n = strcspn(names, ",");
    size_t from = strspn(names, " "), to = n;
    while (to > from && names[to - 1] == ' ') to--;
    if (from >= to) continue;
    char *name = files_valid_name(names + from, to - from);
    if (!first) { vec_push(&m->aliases, name); continue; }
    weft_free(m->name);
    m->name = name;
    first = false;
  }
}

int shelf_open(const struct shelf_options *o, shelf **out, error *err) {
  shelf *sh = xcalloc(1, sizeof *sh);
  sh->o = *o;
  pthread_mutex_init(&sh->lock, NULL);
  os_cond_init(&sh->changed);
  turn_init(&sh->turn);
  *out = sh;
  size_t n_adapters = o->o->model.n_adapters;
  sh->adapters = xcalloc(n_adapters + 1, sizeof *sh->adapters);
  sh->scales = xcalloc(n_adapters + 1, sizeof *sh->scales);
  for (size_t i = 0; i < n_adapters; i++) {
    sh->adapters[i] = o->o->model.adapters[i];
    if (o->o->adapters_off) sh->adapters[i].scale = 0;
    sh->scales[i] = (float)sh->adapters[i].scale;
  }
  if (look_at_draft(sh, err)) return -1;
  for (size_t i = 0; i < o->o->n_models; i++) {
    served *m = add_served(sh, o->o->models[i], NULL, true);
    if (!m) return error_set(err, "%s: %s", o->o->models[i], strerror(errno));
    if (m->broken) return error_set(err, "%s", m->why);
    if (!i && o->o->alias) take_aliases(m, o->o->alias);
  }
  if (look_at_folder(sh, err)) return -1;
  if (is_alone(sh) || !o->o->model.n_control_vectors) return 0;
  return error_set(err, "%s: a control vector is for one model, and this server has several",
                   o->o->model.control_vectors[0].path);
}

int shelf_start(shelf *sh, error *err) {
  pthread_mutex_lock(&sh->lock);
  for (size_t i = 0; i < sh->all.n; i++) if (sh->all.at[i]->named) want(sh, sh->all.at[i]);
  pthread_mutex_unlock(&sh->lock);
  if (pthread_create(&sh->keeper, NULL, run_keeper, sh))
    return error_set(err, "no thread could be made for the models");
  sh->started = true;
  return 0;
}

int shelf_ready(shelf *sh, error *err) {
  pthread_mutex_lock(&sh->lock);
  int status = 1;
  for (size_t i = 0; i < sh->all.n; i++) if (sh->all.at[i]->named && !sh->all.at[i]->was_in) status = 0;
  if (sh->failed.text[0]) status = error_set(err, "%s", sh->failed.text);
  pthread_mutex_unlock(&sh->lock);
  return status;
}

bool shelf_busy(shelf *sh) {
  struct sched_counts c;
  shelf_counts(sh, &c);
  return c.running || c.waiting;
}

void shelf_drain(shelf *sh) {
  fault f = {.retry_s = 5};
  fault_set(&f, 503, NULL, "the server is ending");
  pthread_mutex_lock(&sh->lock);
  sh->draining = true;
  for (size_t i = 0; i < sh->all.n; i++) release_waiting(sh, sh->all.at[i], &f);
  sh->wanted.n = 0;
  pthread_mutex_unlock(&sh->lock);
}

bool shelf_stop(shelf *sh) {
  bool all = true;
  if (!sh) return true;
  pthread_mutex_lock(&sh->lock);
  sh->stop = true;
  pthread_cond_signal(&sh->changed);
  pthread_mutex_unlock(&sh->lock);
  if (sh->started) pthread_join(sh->keeper, NULL);
  for (size_t i = 0; i < sh->all.n; i++) {
    served *m = sh->all.at[i];
    if (m->state == SERVED_LOADING && sched_state(m->sched) == SCHED_LOADING) all = false;
    else if (has_sched(m)) sched_stop(m->sched);
  }
  return all;
}

void shelf_free(shelf *sh) {
  if (!sh) return;
  for (size_t i = 0; i < sh->all.n; i++) {
    served *m = sh->all.at[i];
    served_close_media(m);
    sched_free(m->sched);
    weft_template_close(m->tmpl);
    weft_template_close(m->tool_tmpl);
    weft_free(m->bos);
    weft_free(m->eos);
    forget_file(m);
    weft_free(m->name);
    for (size_t k = 0; k < m->aliases.n; k++) weft_free(m->aliases.at[k]);
    vec_free(&m->aliases);
    free(m->path);
    free(m->failed);
    vec_free(&m->waiting);
    free(m);
  }
  free(sh->adapters);
  free(sh->scales);
  vec_free(&sh->all);
  vec_free(&sh->wanted);
  turn_destroy(&sh->turn);
  pthread_mutex_destroy(&sh->lock);
  pthread_cond_destroy(&sh->changed);
  free(sh);
}
