// exported: the command line of a program that carries a model (weft export).
#ifndef WEFT_APP_EXPORTED_H
#define WEFT_APP_EXPORTED_H
#include "weft.h"

// If this program carries a model: its kernels are used from now on, and the model is what commands run unless the
// command line names another one; without a command it talks.  -1 and err: it has no kernels for this processor.
int exported_begin(int *argc, char ***argv, weft_error *err);
#endif
