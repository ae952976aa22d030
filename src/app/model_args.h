// model_args: the options that say which model is run and how, and the model that they describe.
#ifndef WEFT_APP_MODEL_ARGS_H
#define WEFT_APP_MODEL_ARGS_H
#include "app/args.h"
#include "base/progress.h"
#include "weft.h"

struct model_args {
  const char *model;
  int64_t context, threads, chunk, growth;      // 0: as the model or the machine says
  bool no_repack;
  int precision;
};

// Rows of a command's table.
#define O_CONTEXT(a)   O_INT("-c, --ctx-size", "N", "positions of the context; 0: as the model says (default)", &(a)->context, 0, INT32_MAX)
#define O_ARITHMETIC(a) \
  O_FLAG("--no-repack", "read weights where they lie in the file: less memory, slow", &(a)->no_repack), \
  O_INT("--repack-memory", "PCT", "percent by which weights may grow when they are laid\nout for their kernels (default 5)", &(a)->growth, 1, 1000), \
  O_CHOICE("--precision", "fast|exact", "exact: no 8-bit activations (default fast)", &(a)->precision)
#define O_MACHINE(a) \
  O_INT("-t, --threads", "N", "threads; 0: as many as help (default)", &(a)->threads, 0, 1024), \
  O_INT("-ub, --ubatch-size", "N", "positions of a prompt evaluated at once, at most; 0: default", &(a)->chunk, 0, 65536), \
  O_ARITHMETIC(a)

weft_options model_args_options(const struct model_args *a);
// With a progress bar, which the model may draw on whenever it compiles: bar has to live as long as it. 0, or the exit status after a message.
int model_args_open(const struct model_args *a, progress *bar, weft_model **out);
#endif
