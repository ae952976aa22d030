// model_args: the options that choose a model and how it runs; opens that model.
#ifndef WEFT_APP_MODEL_ARGS_H
#define WEFT_APP_MODEL_ARGS_H
#include "app/args.h"
#include "app/pull.h"
#include "base/progress.h"
#include "weft.h"

struct model_args {
  const char *model;
  struct model_source from;
  char *fetched, *repo;                         // the path in `model` if a name was given, and pull_repo; for free()
  int64_t context, threads, prompt_threads, chunk;              // 0: the model's or the machine's default
  int64_t gpu_layers;                           // -1: as many as fit; -2: all
  struct texts settings;                        // metadata that overrides the file's
  // RoPE settings among them; 0 or -1: the file's value
  struct { double scale, base, freq_scale, ext, attn, slow, fast; int64_t original; int scaling, truncate; } rope;
  const char *key_cache, *value_cache;          // types of keys and values in the cache; NULL: the default
  struct texts loras;                           // FILE or FILE:SCALE
  weft_adapter *adapters;                       // parsed from loras
  struct texts controls, scaled_controls;       // FILE; FILE:SCALE
  weft_control_vector *control_vectors;         // parsed from controls and scaled_controls
  int64_t control_layers[2];                    // 0: the first layer, the last layer
  bool no_repack, lock, quiet;
  bool mtp;                                     // see weft_options
  const char *draft_file;                       // likewise, unless mtp is off; NULL: none
  int precision;
  int split;                                    // a choice of -sm
  const char *split_shares;                     // "3,1"; NULL: equal
  double *shares;                               // parsed from split_shares
  size_t n_shares;
};

// Replaces a model's name by its file, which is downloaded if absent. 0, or the exit status after a message.
int model_args_fetch(struct model_args *a);
// Warns on stderr if the options ask for what this machine does not have: a GPU, or that many processors.
void model_args_advise(const struct model_args *a);
// Parses adapters, control vectors, shares and metadata. Returns the exit status: a control vector without a scale is
// an error, and so is a share that is no number.
int model_args_complete(struct model_args *a);
weft_options model_args_options(const struct model_args *a);
// Opens the model with a progress bar, on which the model may draw whenever it compiles: bar has to outlive it. 0, or
// the exit status after a message.
int model_args_open(const struct model_args *a, progress *bar, weft_model **out);
// A draft model (weft_draft), if `model.model` is set. draft_args_fetch: a draft file becomes of->draft_file instead.
struct draft_args { struct model_args model; int64_t most, least; double p_min; };
int draft_args_fetch(struct draft_args *a, struct model_args *of);
weft_draft_options draft_args_options(const struct draft_args *a);
// Opens the draft model for m, if there is one, and sets both handles. Otherwise m drafts itself if it can
// (model_args.mtp) and *model is NULL, or both are NULL. 0, or the exit status after a message.
int draft_args_open(struct draft_args *a, weft_model *m, progress *bar, weft_model **model, weft_draft **out);
// Warns if the context is longer than the model was trained for, or if there is one process for -sm or -ts.
void model_args_warn(const struct model_args *a, const weft_model *m);
bool model_has_template(const weft_file *f);
#endif
