// exported: the command line of a program that contains a model (weft export).
#ifndef WEFT_APP_EXPORTED_H
#define WEFT_APP_EXPORTED_H
#include "weft.h"

// If this program contains a model: uses its kernels from now on, and makes the model the default of all commands;
// without a command it starts a chat. -1 and err: it has no kernels for this processor.
int exported_begin(int *argc, char ***argv, weft_error *err);
#endif
