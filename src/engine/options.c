// Converts weft_options to engine options: see options.h.
#include "engine/options.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "device/team.h"
#include "engine/sized.h"

_Static_assert(sizeof(weft_adapter) == sizeof(struct engine_adapter) &&
                 offsetof(weft_adapter, scale) == offsetof(struct engine_adapter, scale),
               "weft_model_open hands the array on");
// Converts the control vectors of the options; the result is for free().
static control_file *control_files(const weft_options *o) {
  control_file *files = xcalloc(o->n_control_vectors + 1, sizeof *files);
  for (size_t i = 0; i < o->n_control_vectors; i++)
    files[i] = (control_file){o->control_vectors[i].path, o->control_vectors[i].scale,
                              o->control_from > 0 ? o->control_from : 1, o->control_to > 0 ? o->control_to : 0};
  return files;
}

static int check_scales(const weft_options *o, weft_error *err) {
  for (size_t i = 0; i < o->n_adapters; i++)
    if (!isfinite((float)o->adapters[i].scale))
      FAIL(err, "%s: the scale of an adapter must be a number, not %g", o->adapters[i].path, o->adapters[i].scale);
  for (size_t i = 0; i < o->n_control_vectors; i++)
    if (!isfinite((float)o->control_vectors[i].scale))
      FAIL(err, "%s: the scale of a control vector must be a number, not %g", o->control_vectors[i].path,
           o->control_vectors[i].scale);
  return 0;
}

static int check_shares(const weft_options *o, weft_error *err) {
  double all = 0;
  for (size_t i = 0; i < o->n_shares; i++) {
    if (!isfinite(o->shares[i]) || o->shares[i] < 0)
      FAIL(err, "the share of process %zu (-ts) must be 0 or more, not %g", i, o->shares[i]);
    all += o->shares[i];
  }
  if (o->n_shares && !(isfinite(all) && all > 0)) FAIL(err, "the shares of all processes (-ts) are %g together", all);
  if ((unsigned)o->split > WEFT_SPLIT_NONE) FAIL(err, "split mode %d is not known", (int)o->split);
  return 0;
}

int options_take(const weft_options *opt, weft_options *own, struct engine_options *out, weft_error *err) {
  *own = (weft_options){0};
  if (TAKE_OPTIONS(own, weft_options, draft_file, opt, err)) return -1;
  const weft_options o = *own;
  if (o.context < 0) FAIL(err, "the context is %d positions; it must be 0 or more", o.context);
  if (o.threads < 0 || o.threads > TEAM_MAX)
    FAIL(err, "%d threads were asked for; it must be 0 to %d", o.threads, TEAM_MAX);
  if (o.prompt_threads < 0 || o.prompt_threads > TEAM_MAX)
    FAIL(err, "%d threads were asked for prompts; it must be 0 to %d", o.prompt_threads, TEAM_MAX);
  if (o.gpu_layers < -1) FAIL(err, "%d layers on a device; it must be -1 (none), 0 (what fits) or more", o.gpu_layers);
  if (o.chunk < 0) FAIL(err, "the chunk is %d positions; it must be 0 or more", o.chunk);
  if (check_scales(&o, err) || check_shares(&o, err)) return -1;
  const char *of[] = {o.key_cache ? o.key_cache : "f16", o.value_cache ? o.value_cache : "f16"};
  int kv[COUNT(of)];
  for (size_t i = 0; i < COUNT(of); i++)
    if ((kv[i] = kv_type_named(of[i])) < 0)
      FAIL(err, "a cache of type %s is not known; it must be f16, f32, bf16, q8_0 or q4_0", of[i]);
  *out = (struct engine_options){
    .kv = {(enum kv_type)kv[0], (enum kv_type)kv[1]},
    .settings = o.settings,
    .n_settings = o.n_settings,
    .adapters = (const struct engine_adapter *)o.adapters,
    .n_adapters = o.n_adapters,
    .control_vectors = control_files(&o),
    .n_control_vectors = o.n_control_vectors,
    .n_ctx = o.context,
    .n_threads = o.threads,
    .n_prompt_threads = o.prompt_threads,
    .chunk = o.chunk,
    .gpu_layers = o.gpu_layers,
    .exact = o.exact,
    .mtp = o.mtp,
    .split = o.split,
    .shares = o.shares,
    .n_shares = o.n_shares,
    .draft_file = o.draft_file,
    .no_repack = o.no_repack,
    .progress = o.progress,
    .progress_ctx = o.progress_ctx,
    .stop = o.stop,
    .device = o.device};
  return 0;
}
