// The model that the options describe: see model_args.h.
#include "app/model_args.h"
#include "app/app.h"

weft_options model_args_options(const struct model_args *a) {
  return (weft_options){.context = (int)a->context, .threads = (int)a->threads, .chunk = (int)a->chunk, .exact = a->precision == 1,
                        .no_repack = a->no_repack, .repack_memory = (int)a->growth};
}

int model_args_open(const struct model_args *a, progress *bar, weft_model **out) {
  weft_error err;
  weft_options options = model_args_options(a);
  options.progress = show_progress;
  options.progress_ctx = bar;
  progress_begin(bar);
  int status = weft_model_open(a->model, &options, out, &err);
  progress_end(bar);
  return status ? failed("%s", err.text) : 0;
}
