// A progress bar on stderr: one line that is drawn over and cleared at the end.  Nothing is drawn where stderr is no
// terminal, and nothing for work that is done before anyone could have read it.
#ifndef WEFT_PROGRESS_H
#define WEFT_PROGRESS_H
#include "base/base.h"

typedef struct progress { bool on, visible; double began, drawn; } progress;
void progress_begin(progress *p);                                            // starts the clock; draws nothing yet
void progress_set(progress *p, const char *what, double fraction);           // "compiling", 0..1
void progress_end(progress *p);                                              // clears the line
#endif
