// model_args: the options that say which model is run and how, and the model that they describe.
#ifndef WEFT_APP_MODEL_ARGS_H
#define WEFT_APP_MODEL_ARGS_H
#include "app/args.h"
#include "app/pull.h"
#include "base/progress.h"
#include "weft.h"

struct model_args {
  const char *model;
  struct model_source from;
  char *fetched;                                // the path in `model`, where that was a name
  int64_t context, threads, prompt_threads, chunk;              // 0: as the model or the machine says
  int64_t gpu_layers;                           // -1: as many as there is room for; -2: all
  struct texts settings;                        // metadata in place of the file's
  // of that what concerns RoPE; 0, or -1: as the file has it
  struct { double scale, base, freq_scale, ext, attn, slow, fast; int64_t original; int scaling, truncate; } rope;
  const char *key_cache, *value_cache;          // their types; NULL: the default
  struct texts loras;                           // FILE or FILE:SCALE
  weft_adapter *adapters;                       // the same
  struct texts controls, scaled_controls;       // FILE; FILE:SCALE
  weft_control_vector *control_vectors;         // both of them
  int64_t control_layers[2];                    // 0: the first one, the last one
  bool no_repack, lock, quiet;
  bool mtp;                                     // see weft_options
  int precision;
};

// A model by name becomes the file of that model, which is fetched if it has to be. 0, or the exit status after a
// message.
int model_args_fetch(struct model_args *a);
// Says on stderr what the options ask for and this machine has not: a GPU, or so many processors.
void model_args_advise(const struct model_args *a);
// Adapters, control vectors and metadata, from what was typed. The command's status: a control vector without a scale.
int model_args_complete(struct model_args *a);
weft_options model_args_options(const struct model_args *a);
// With a progress bar, which the model may draw on whenever it compiles: bar has to live as long as it. 0, or the exit
// status after a message.
int model_args_open(const struct model_args *a, progress *bar, weft_model **out);
// A draft model (weft_draft), where `model.model` is set.
struct draft_args { struct model_args model; int64_t most, least; double p_min; };
int draft_args_fetch(struct draft_args *a, const struct model_args *of);
weft_draft_options draft_args_options(const struct draft_args *a);
// Opens it for m, if there is one: both handles. Otherwise m itself proposes, if it can (model_args.mtp), and *model is
// NULL, or both are. 0, or the exit status after a message.
int draft_args_open(struct draft_args *a, weft_model *m, progress *bar, weft_model **model, weft_draft **out);
// Says so where more context is asked for than the model was trained for.
void model_args_warn(const struct model_args *a, const weft_model *m);
bool model_has_template(const weft_file *f);
#endif
