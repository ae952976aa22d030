// Runs encoders of pictures and sound: see media_encoder.h. Each encoder has a plan for the largest input so far (for
// pictures of any size, squares up to a power of two); if it is too small, a larger one is made. The memory of a plan
// is known from its schedule and is compared with the free memory before the old plan is freed.
#include "engine/media_encoder.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/account.h"
#include "base/attempt.h"
#include "compile/compile.h"
#include "device/limit.h"
#include "device/memory.h"
#include "engine/media_file.h"
#include "engine/profile_steps.h"
#include "engine/roles.h"
#include "engine/schedules.h"
#include "engine/weights.h"
#include "media/media.h"
#include "model/codebook.h"
#include "model/model.h"

enum { LEAST_SQUARES = 256, MOST_SQUARES = 1 << 16 };

// An input or output of a plan, of `bytes` bytes.
typedef struct area { void *at; uint64_t bytes; } area;
enum { AREA_PATCHES, AREA_PLACES, AREA_HIDDEN, AREA_ORDER, AREAS };

// One encoder of a file, with a plan for at most `squares` squares of patches.
typedef struct eye {
  media_encoder *e;
  model *m;
  int64_t squares;
  graph *g;
  schedule s;
  plan *p;
  area areas[AREAS];
  uint64_t bytes;            // of the areas and the plan's arena
  account *payer;            // charged for a plan that is not kept
  bool passing;
} eye;

struct media_encoder {
  gguf *file;
  device *d;
  bool exact;
  uint64_t keep;             // maximum bytes of a plan that is kept; 0: no limit
  account *payer;            // charged for one that is not kept
  media_progress *on;        // NULL: no progress callback
  void *on_ctx;
  eye eyes[MEDIUM_COUNT];
};

void media_encoder_watch(media_encoder *e, media_progress *on, void *ctx) {
  e->on = on;
  e->on_ctx = ctx;
}

static void on_compiling(void *ctx, double fraction) {
  const media_encoder *e = ((const eye *)ctx)->e;
  if (e->on) e->on(e->on_ctx, "compiling", fraction);
}

static bool on_encoding(void *ctx, double part) {
  const media_encoder *e = ctx;
  e->on(e->on_ctx, "encoding", part);
  return true;
}

static void *eye_buffer(void *ctx, int64_t id) {
  const eye *y = ctx;
  const gguf *file = y->e->file;
  int64_t own = id - model_buffer_id(file, 0);
  if (codebook_is(id)) return codebook_data(id);
  if (own < 0) return (void *)(uintptr_t)gguf_tensor_at(file, (size_t)id)->data;
  return y->areas[own == BUF_PATCHES ? AREA_PATCHES : own == BUF_PLACES ? AREA_PLACES : AREA_HIDDEN].at;
}

// Releases file pages of weights that have been packed.
static void eye_filled(void *ctx, int64_t id, double from, double to, double done) {
  (void)done;
  weights_give_back(((const eye *)ctx)->e->file, id, from, to);
}

static void eye_role(void *ctx, const schedule *s, int i, char *out, size_t cap) {
  roles_name(((const eye *)ctx)->e->file, s, i, out, cap);
}

static void close_plan(eye *y) {
  plan_free(y->p);
  graph_free(y->g);
  for (int i = 0; i < AREAS; i++) memory_release(y->areas[i].at, y->areas[i].bytes);
  if (y->passing) account_give(y->payer, y->bytes);
  *y = (eye){.e = y->e, .m = y->m};
}

void media_encoder_keep(media_encoder *e, uint64_t most) { e->keep = most; }
void media_encoder_pays(media_encoder *e, account *payer) { e->payer = payer; }
bool media_encoder_lasts(const media_encoder *e, enum medium k) { return !e->eyes[k].passing; }

void media_encoder_rest(media_encoder *e) {
  for (int k = 0; k < MEDIUM_COUNT; k++) if (e->eyes[k].passing) close_plan(&e->eyes[k]);
}

// Zeroed, and slightly larger than needed: kernels may read whole vectors.
static void measure_areas(eye *y) {
  const int64_t most = y->squares, rows = projector_output(y->m, most);
  const int64_t n[AREAS] = {[AREA_PATCHES] = projector_input(y->m, most),
                            [AREA_PLACES] = 3 * projector_places(y->m, most),
                            [AREA_HIDDEN] = rows * model_n_embd(y->m),
                            [AREA_ORDER] = max_i64(most, rows)};
  for (int i = 0; i < AREAS; i++) y->areas[i].bytes = ((uint64_t)n[i] + 64) * 4;
}

// Pages use memory once they are touched.
static int reserve_areas(eye *y, error *err) {
  const projector_facts *f = projector_facts_of(y->m);
  const gguf *file = y->e->file;
  const char *key = f->mel ? "clip.audio.num_mel_bins" : "clip.vision.patch_size";
  error why = {0};
  for (int i = 0; i < AREAS; i++) {
    area *a = &y->areas[i];
    if ((a->at = memory_reserve_plain(a->bytes, &why))) continue;
    if (f->mel) return gguf_fail(file, key, err, "%d, with %d frames: %s", f->mel, f->frames, why.text);
    return gguf_fail(file, key, err, "%d, with rows of %d x %d patches: %s", f->patch, f->merge, f->merge, why.text);
  }
  return 0;
}

typedef struct scheduling { const eye *y; graph *g; schedule s; bool kept; } scheduling;

static void schedule_eye(void *ctx) {
  scheduling *w = ctx;
  const media_encoder *e = w->y->e;
  graph *g = graph_new(NULL);
  uop *sink = projector_graph(w->y->m, g, &(projector_shape){w->y->squares, e->exact});
  w->g = schedules_find(e->d, g, sink, &(struct schedule_how){.exact = e->exact, .many_rows = true}, &w->s,
                       &w->kept);
}

// Also computes the memory of the plan.
static int make_eye_schedule(eye *y, error *err) {
  const media_encoder *e = y->e;
  scheduling w = {.y = y};
  error why = {0};
  const compile_choices how = {.exact = e->exact, .many_rows = true};
  if (compile_takes_bf16(&e->d->target, &how)) projector_find_bf16(y->m);
  if (attempt(ATTEMPT_OWNS, schedule_eye, &w, &why)) return error_set(err, "%s: %s", gguf_path(e->file), why.text);
  y->g = w.g;
  y->s = w.s;
  measure_areas(y);
  y->bytes = plan_arena_needed(e->d, &y->s, true);
  for (int i = 0; i < AREAS; i++) y->bytes += y->areas[i].bytes;
  return 0;
}

static int make_plan(eye *y, error *err) {
  error why = {0};
  int failed = plan_build(y->e->d, y->g, &y->s,
                          &(plan_options){.buffer = eye_buffer, .ctx = y, .role = eye_role, .progress = on_compiling,
                                          .filled = eye_filled, .prompt = true, .flushes = true},
                          &y->p, &why);
  return failed ? error_set(err, "%s: %s", gguf_path(y->e->file), why.text) : 0;
}

// Charges the memory of a plan that replaces one of `had` bytes; fails if there is not enough.
static int take_room(eye *y, uint64_t had, error *err) {
  const media_encoder *e = y->e;
  uint64_t left = 0;
  error why = {0};
  if (!memory_available(&left, NULL) && y->bytes > left + had) {
    error_set(err, "the encoder needs %llu MB of memory for it, and %llu MB are left",
              (unsigned long long)(y->bytes >> 20) + 1, (unsigned long long)((left + had) >> 20));
    return MEDIA_LATER;
  }
  if (!e->keep || y->bytes <= e->keep) return 0;
  if (account_take_for(e->payer, y->bytes, &why)) return error_set(err, "the encoder's activations: %s", why.text);
  y->passing = true;
  y->payer = e->payer;
  return 0;
}

// Makes a plan for this number of squares. Returns 0, or enum media_failure.
static int need_eye_plan(eye *y, int64_t squares, error *err) {
  if (y->p && y->squares >= squares) return 0;
  uint64_t refused = memory_refusals();
  eye next = {.e = y->e, .m = y->m, .squares = projector_rows(y->m)};
  const projector_facts *f = projector_facts_of(y->m);
  if (f->chunk) next.squares = f->frames / f->chunk;
  if (!next.squares) for (next.squares = LEAST_SQUARES; next.squares < squares;) next.squares *= 2;
  int failed = make_eye_schedule(&next, err) ? MEDIA_UNABLE : take_room(&next, y->p ? y->bytes : 0, err);
  if (failed) { close_plan(&next); return failed; }
  close_plan(y);
  *y = next;
  if (!reserve_areas(y, err) && !make_plan(y, err)) return 0;
  close_plan(y);
  return memory_refusals() > refused ? MEDIA_LATER : MEDIA_UNABLE;
}

int media_encoder_open(const char *path, device *d, bool exact, int n_embd, media_encoder **out, error *err) {
  media_encoder *e = xcalloc(1, sizeof *e);
  unsigned media = 0;
  *e = (media_encoder){.d = d, .exact = exact};
  int status = gguf_open(path, &e->file, err) || projector_media(e->file, &media, err) ? -1 : 0;
  // if one of two encoders has an unknown type, the other one is used
  if (!status && media & projector_known(e->file)) media &= projector_known(e->file);
  for (int k = 0; !status && k < MEDIUM_COUNT; k++) {
    if (!(media >> k & 1)) continue;
    e->eyes[k].e = e;
    status = projector_open(e->file, k, &e->eyes[k].m, err);
    if (!status && n_embd) status = media_file_fits(e->file, e->eyes[k].m, n_embd, err);
  }
  if (status) media_encoder_close(e);
  else *out = e;
  return status;
}

void media_encoder_close(media_encoder *e) {
  if (!e) return;
  for (int k = 0; k < MEDIUM_COUNT; k++) {
    close_plan(&e->eyes[k]);
    model_close(e->eyes[k].m);
  }
  gguf_close(e->file);
  free(e);
}

const projector_kind *media_encoder_kind(const media_encoder *e, enum medium k) {
  return e->eyes[k].m ? projector_kind_of(e->eyes[k].m) : NULL;
}
const projector_facts *media_encoder_facts(const media_encoder *e, enum medium k) {
  return projector_facts_of(e->eyes[k].m);
}
int media_encoder_n_embd(const media_encoder *e, enum medium k) { return model_n_embd(e->eyes[k].m); }

int64_t media_encoder_sound_rows(const media_encoder *e, int64_t frames) {
  projector_grid grid;
  const model *m = e->eyes[MEDIUM_SOUND].m;
  projector_grid_of_sound(m, (int)frames + projector_kind_of(m)->beyond, &grid);
  return grid.rows;
}

int64_t media_encoder_rows(const media_encoder *e, enum medium k, int64_t width, int64_t height) {
  const model *m = e->eyes[k].m;
  projector_grid grid = {.rows = projector_rows(m)};
  if (k == MEDIUM_PICTURE && projector_grid_of(m, (int)width, (int)height, &grid, NULL)) return 0;
  if (projector_facts_of(m)->chunk) projector_grid_of_sound(m, (int)width, &grid);
  return grid.rows;
}

typedef struct copying { const float *from; float *to; size_t n; } copying;

static void copy_newline(void *ctx) {
  const copying *c = ctx;
  memcpy(c->to, c->from, c->n * sizeof *c->to);
}

int media_encoder_check(const media_encoder *e, error *err) { return gguf_check_size(e->file, err); }

int media_encoder_newline(const media_encoder *e, float **out, error *err) {
  const model *m = e->eyes[MEDIUM_PICTURE].m;
  copying c = {projector_newline(m), NULL, (size_t)model_n_embd(m)};
  error why = {0};
  *out = c.to = xcalloc(c.n, sizeof *c.to);
  int failed = attempt(ATTEMPT_LEAVES, copy_newline, &c, &why) || gguf_check_size(e->file, &why);
  for (size_t i = 0; !failed && i < c.n; i++)
    if (!isfinite(c.to[i])) failed = error_set(&why, "tensor 'model.image_newline' has a float that is no number");
  if (!failed) return 0;
  free(c.to);
  *out = NULL;
  return error_set(err, "%s: %s", gguf_path(e->file), why.text);
}

static int lay_in(media_encoder *e, enum medium k, const float *in, int width, int height, projector_grid *grid,
                  error *err) {
  eye *y = &e->eyes[k];
  const projector_facts *f = projector_facts_of(y->m);
  int64_t rows = projector_rows(y->m);
  *grid = (projector_grid){.columns = rows, .lines = 1, .squares = rows, .rows = rows};
  int beyond = projector_kind_of(y->m)->beyond;
  if (k == MEDIUM_SOUND && (height != f->mel || width > f->frames + beyond || width < (f->chunk ? 1 : f->frames)))
    return error_set(err, "a spectrogram of %d bins and %d frames, but the encoder takes %d and %d", height, width,
                     f->mel, f->frames);
  if (k == MEDIUM_PICTURE && projector_grid_of(y->m, width, height, grid, err)) return -1;
  if (f->chunk) projector_grid_of_sound(y->m, width, grid);
  if (grid->rows < 1) return error_set(err, "a sound of %d frames is too short for this model", width - beyond);
  if (grid->squares > MOST_SQUARES)
    return error_set(err, "a picture of %d x %d pixels is %lld rows, more than %d", width, height,
                     (long long)grid->squares, MOST_SQUARES);
  int failed = need_eye_plan(y, grid->squares, err);
  if (failed) return failed;
  float *patches = y->areas[AREA_PATCHES].at;
  int32_t *places = y->areas[AREA_PLACES].at, *order = y->areas[AREA_ORDER].at;
  int64_t n_places = projector_places(y->m, y->squares);
  if (k == MEDIUM_PICTURE) projector_lay(y->m, grid, in, patches, places, n_places, order);
  else if (f->chunk) projector_lay_sound(y->m, grid, width, in, patches, places, n_places);
  else memcpy(patches, in, (size_t)f->mel * (size_t)f->frames * sizeof *in);
  bool in_order = k == MEDIUM_SOUND || f->queries;
  for (int64_t i = 0; in_order && i < grid->rows; i++) order[i] = (int32_t)i;
  return 0;
}

typedef struct running { eye *y; int64_t squares; } running;

static void run_eye(void *ctx) {
  const running *r = ctx;
  const plan_var n = {"n", r->squares};
  int n_vars = projector_rows(r->y->m) ? 0 : 1;
  if (r->y->e->on) plan_run_asking(r->y->p, &n, n_vars, on_encoding, r->y->e);
  else plan_run(r->y->p, &n, n_vars);
}

// Row `order[i]` of the picture is row i of the output. False: a value is not finite.
static bool take_rows(const eye *y, media_rows *out) {
  size_t n = (size_t)model_n_embd(y->m);
  const int32_t *order = y->areas[AREA_ORDER].at;
  const float *hidden = y->areas[AREA_HIDDEN].at;
  out->at = xcalloc((size_t)out->n * n, sizeof *out->at);
  for (int64_t i = 0; i < out->n; i++)
    memcpy(out->at + (size_t)order[i] * n, hidden + (size_t)i * n, n * sizeof *out->at);
  for (size_t i = 0; i < (size_t)out->n * n; i++) if (!isfinite(out->at[i])) return false;
  return true;
}

int media_encoder_run(media_encoder *e, enum medium k, const float *in, int width, int height, media_rows *out,
                      error *err) {
  eye *y = &e->eyes[k];
  error why = {0};
  fail_if(!y->m, err, "there is no encoder of %s", k == MEDIUM_SOUND ? "sound" : "pictures");
  projector_grid grid;
  if (device_check(e->d, err)) return MEDIA_UNABLE;
  int status = lay_in(e, k, in, width, height, &grid, err);
  if (status) return status;
  bool line = projector_facts_of(y->m)->queries;
  *out = (media_rows){.n = grid.rows, .columns = line ? grid.rows : grid.columns, .lines = line ? 1 : grid.lines};
  if (attempt(ATTEMPT_LEAVES, run_eye, &(running){y, grid.squares}, &why) || device_check(e->d, &why) ||
      gguf_check_size(e->file, &why)) {
    error_set(err, "%s: %s", gguf_path(e->file), why.text);
    return MEDIA_UNABLE;
  }
  if (take_rows(y, out)) return 0;
  free(out->at);
  out->at = NULL;
  error_set(err, "%s: the encoder's rows have floats that are no finite numbers", gguf_path(e->file));
  return MEDIA_UNABLE;
}

typedef struct profiling { profiled of; struct profile *out; } profiling;

static void profile_eye(void *ctx) {
  profiling *w = ctx;
  profile_steps(&w->of, w->out);
}

int media_encoder_profile(media_encoder *e, enum medium k, const float *in, int width, int height, int steps,
                          struct profile *out, error *err) {
  const eye *y = &e->eyes[k];
  projector_grid grid;
  error why = {0};
  if (lay_in(e, k, in, width, height, &grid, err)) return -1;
  *out = (struct profile){.tokens = (int)grid.rows, .n_layer = model_n_layer(y->m)};
  profiling w = {{.d = e->d,
                  .p = y->p,
                  .vars = {{"n", grid.squares}},
                  .n_vars = projector_rows(y->m) ? 0 : 1,
                  .steps = steps},
                 out};
  if (attempt(ATTEMPT_LEAVES, profile_eye, &w, &why) || device_check(e->d, &why) || gguf_check_size(e->file, &why))
    return error_set(err, "%s: %s", gguf_path(e->file), why.text);
  return device_read_limit(e->d, &out->limit_gb_s, err);
}
