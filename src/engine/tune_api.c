// The public API for tuning and the kernel cache: texts and tables over engine/tune.c and device/cache.c.
#include "weft.h"
#include <stdlib.h>
#include <string.h>
#include "device/cache.h"
#include "device/entry_kinds.h"
#include "device/keeper.h"
#include "device/kernel_set.h"
#include "device/predict.h"
#include "device/ranks.h"
#include "engine/fail.h"
#include "engine/schedules.h"
#include "engine/sized.h"
#include "engine/tune.h"


// ---- tuning ---------------------------------------------------------------------------------------------------------

enum { DEFAULT_BEAM = 4, DEFAULT_SECONDS = 60, MOST_BEAM = 64 };
typedef struct tuned_handle {
  weft_tuned shown;
  struct tune_part parts[2];
  layout_rows layouts;
  weft_tuned_layout *weights;
  weft_tuned_kernel kernels[];
} tuned_handle;
_Static_assert(offsetof(tuned_handle, shown) == 0, "weft_tuned_free gets the address of the handle");

static int by_share(const void *x, const void *y) {
  const weft_tuned_kernel *a = x, *b = y;
  if (a->prompt != b->prompt) return a->prompt - b->prompt;
  return a->share != b->share ? (a->share < b->share ? 1 : -1) : strcmp(a->name, b->name);
}

static void tell_known(const char *name, error *e) {
  str all = {0};
  const char *known;
  for (size_t i = 0; gpu_name_at(i, &known); i++) str_addf(&all, "%s%s", i ? ", " : "", known);
  error_set(e, "tuning: no figures of a GPU '%s' are known; those of %s are", name, str_c(&all));
  str_free(&all);
}

int weft_tune(weft_model *m, const weft_tune_options *options, weft_tuned **out, weft_error *err) {
  weft_tune_options o = {0};
  if (weft_model_check(m, err)) return -1;
  if (TAKE_OPTIONS(&o, weft_tune_options, progress_ctx, options, err)) return -1;
  error e = {0};
  struct tune_part parts[2];
  layout_rows layouts;
  double began = now_s();
  if (ranks_here().n > 1)
    error_set(&e, "tuning: of a model on one process; the others take what is found from the cache");
  else if (o.beam < 0 || o.beam > MOST_BEAM || !(o.seconds >= 0) || !(o.skip_ms >= 0))
    error_set(&e, "tuning: the beam must be 0 to %d, and times 0 or more", MOST_BEAM);
  else if (o.depth < 0 || o.depth + weft_model_chunk(m) > weft_model_context(m))
    error_set(&e, "tuning: a chunk of %d positions at depth %d does not fit the context of %d", weft_model_chunk(m),
              o.depth, weft_model_context(m));
  const gpu_figures *figures = o.predict ? gpu_known(o.predict) : NULL;
  if (o.predict && !figures) tell_known(o.predict, &e);
  if (e.text[0]) return fail(err, &e);
  struct tune_settings s = {.width = o.beam ? o.beam : DEFAULT_BEAM,
                            .seconds = o.seconds > 0 ? o.seconds : DEFAULT_SECONDS,
                            .skip_ms = o.skip_ms,
                            .prompt = !o.no_prompt,
                            .layouts = !o.no_layouts && !figures,
                            .predict = figures,
                            .depth = o.depth,
                            .progress = o.progress,
                            .ctx = o.progress_ctx};
  int r = tune_run(weft_model_engine(m), &s, parts, &layouts, &e);
  tuned_handle *h = xcalloc(1, sizeof *h + (size_t)(parts[0].n_rows + parts[1].n_rows) * sizeof *h->kernels);
  memcpy(h->parts, parts, sizeof parts);
  h->layouts = layouts;
  h->weights = xcalloc(layouts.at.n + 1, sizeof *h->weights);
  weft_tuned *t = &h->shown;
  if (r) { weft_tuned_free(t); return fail(err, &e); }
  for (int p = 0; p < 2; p++)
    for (int i = 0; i < parts[p].n_rows; i++) {
      const tune_row *row = &parts[p].rows[i];
      h->kernels[t->n_kernels++] = (weft_tuned_kernel){
        row->name,      row->role,     p == 1,     row->count,    row->share, (enum weft_tune_state)row->state,
        row->before_us, row->after_us, row->tried, row->compiled, row->wrong, str_c(&row->opts),
        row->why,       row->cut_s > 0};
    }
  for (size_t i = 0; i < layouts.at.n; i++) {
    const layout_row *row = &h->layouts.at.at[i];
    h->weights[i] = (weft_tuned_layout){
      row->weight, row->role, layout_name(row->layout), (enum weft_layout_state)row->state, row->share, row->ratio};
  }
  t->layouts = h->weights;
  t->n_layouts = layouts.at.n;
  t->layouts_why = h->layouts.why;
  memcpy(t->layouts_token_us, layouts.token, sizeof layouts.token);
  memcpy(t->layouts_chunk_us, layouts.chunk, sizeof layouts.chunk);
  qsort(h->kernels, t->n_kernels, sizeof *h->kernels, by_share);
  t->kernels = h->kernels;
  t->token_us[0] = parts[0].before_us; t->token_us[1] = parts[0].after_us;
  t->chunk_us[0] = parts[1].before_us; t->chunk_us[1] = parts[1].after_us;
  t->token_bytes = parts[0].bytes;
  t->limit_gb_s = parts[0].limit_gb_s;
  t->chunk = weft_model_chunk(m);
  t->seconds = now_s() - began;
  *out = t;
  return 0;
}

void weft_tuned_free(weft_tuned *t) {
  tuned_handle *h = (tuned_handle *)t;
  if (!h) return;
  for (int i = 0; i < 2; i++) tune_part_free(&h->parts[i]);
  vec_free(&h->layouts.at);
  free(h->weights);
  free(h);
}

// ---- the cache ------------------------------------------------------------------------------------------------------

typedef struct visit { bool (*fn)(const weft_cache_entry *e, void *ctx); void *ctx; } visit;

static char *copy_chars(const char *text, size_t n) {
  char *s = xmalloc(n + 1);
  memcpy(s, text, n);
  s[n] = 0;
  return s;
}

// Names are ASCII; a damaged entry's name may not be, and would break a table or JSON.
static void show_as_ascii(char *name) {
  for (; *name; name++) if (*name < ' ' || *name > '~') *name = '?';
}

static bool pass_entry(const cache_entry *c, void *ctx) {
  const visit *v = ctx;
  tuning t;
  str opts = {0};
  char name[96] = "";
  const char *machine, *ir;
  size_t machine_n, ir_n;
  char *texts[2] = {NULL, NULL};
  enum entry_kind kind = entry_kind_of(c->key, c->key_n);
  weft_cache_entry e = {.kind = entry_kind_row_of(kind)->name,
                        .name = name,
                        .role = "",
                        .bytes = c->key_n + c->value_n,
                        .created = c->created,
                        .sound = c->sound,
                        .current = !strcmp(c->version, tuning_version())};
  if (kind == ENTRY_TUNING) {
    bool whole =
      tuning_key_parts(c->key, c->key_n, &machine, &machine_n, &ir, &ir_n) && tuning_parse(c->value, c->value_n, &t);
    e.sound = e.sound && whole;
    if (whole) {
      e.machine = texts[0] = copy_chars(machine, machine_n);
      e.ir = texts[1] = copy_chars(ir, ir_n);
      snprintf(name, sizeof name, "%s", t.name);
      e.role = t.role;
      e.compiler = t.compiler;
      show_as_ascii(t.role);
      show_as_ascii(t.compiler);
      if (t.better) opts_print(&opts, t.opts, t.n);
      e.opts = t.better ? str_c(&opts) : "heuristic";
      e.before_us = t.before_us;
      e.cut_s = t.cut_s;
      e.after_us = t.after_us;
    }
  } else if (c->value_n && kind != ENTRY_MACHINE) {
    const char *line = memchr(c->value, '\n', c->value_n < sizeof name ? c->value_n : sizeof name - 1);
    if (line) snprintf(name, sizeof name, "%.*s", (int)(line - (const char *)c->value), (const char *)c->value);
  }
  show_as_ascii(name);
  bool more = v->fn(&e, v->ctx);
  free(texts[0]); free(texts[1]);
  str_free(&opts);
  return more;
}

int weft_cache_each(bool (*fn)(const weft_cache_entry *e, void *ctx), void *ctx, weft_error *err) {
  error e = {0};
  cache *c = cache_open(NULL, tuning_version());
  int r = cache_each(c, pass_entry, &(visit){fn, ctx}, &e);
  cache_close(c);
  return r ? fail(err, &e) : 0;
}

char *weft_cache_folder(void) { return cache_folder(); }

bool weft_cache_keep(void (*enter)(void *ctx), void *ctx, int threads) {
  return !kernel_set_is_on() && keeper_start(enter, ctx, schedules_from_text, threads);
}
void weft_cache_end(void) { keeper_stop(); }

int weft_cache_clear(bool tunings_only, int64_t *removed, weft_error *err) {
  error e = {0};
  int64_t n = 0;
  cache *c = cache_open(NULL, tuning_version());
  str word = {0};
  entry_key_begin(ENTRY_TUNING, &word);
  int r = tunings_only ? cache_remove(c, word.at, word.n, &n, &e) : cache_clear(c, &n, &e);
  cache_close(c);
  str_free(&word);
  if (removed) *removed = n;
  return r ? fail(err, &e) : 0;
}

// -1 and the reason: a field that no tuning can have.
static int check_tuning_fields(const weft_cache_entry *x, error *err) {
  const tuning *of = NULL;
  const struct { const char *name, *text; size_t room; } texts[] = {{"name", x->name, sizeof of->name},
                                                                    {"role", x->role, sizeof of->role},
                                                                    {"compiler", x->compiler, sizeof of->compiler}};
  const struct { const char *name; double value, most; } times[] = {
    {"before_us", x->before_us, TUNING_MOST_US}, {"after_us", x->after_us, TUNING_MOST_US},
    {"cut_s", x->cut_s, TUNING_MOST_S}};
  for (size_t i = 0; i < COUNT(texts); i++)
    fail_if(strchr(texts[i].text, '\n') || strlen(texts[i].text) >= texts[i].room, err,
            "%s: '%.40s': one line of at most %zu bytes is expected", texts[i].name, texts[i].text, texts[i].room - 1);
  for (size_t i = 0; i < COUNT(times); i++)
    fail_if(!(times[i].value >= 0 && times[i].value < times[i].most), err,
            "%s: %g: a number from 0 to less than %g is expected", times[i].name, times[i].value, times[i].most);
  return 0;
}

int weft_cache_add_tuning(const weft_cache_entry *from, bool check_only, weft_error *err) {
  error e = {0};
  device *d = NULL;
  tuning t;
  str text = {0};
  str_addf(&text, "opts %s\ncut %.9g\nus %.9g %.9g\nname %s\nrole %s\ncompiler %s\n", from->opts, from->cut_s,
           from->before_us, from->after_us, from->name, from->role, from->compiler);
  int r = check_tuning_fields(from, &e);
  if (!r && (strchr(from->opts, '\n') || !tuning_parse(text.at, text.n, &t)))
    r = error_set(&e, "opts: no list of OptOps: '%.200s'", from->opts);
  str_free(&text);
  if (!r) r = device_open(1, 0, &d, &e);
  if (!r) r = tuning_import(d, from->machine, from->ir, &t, check_only, &e);
  device_close(d);
  return r ? fail(err, &e) : 0;
}
