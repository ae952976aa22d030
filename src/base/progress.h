// progress: a progress bar on stderr: one line that is redrawn, and cleared at the end. Nothing is drawn if stderr is
// not a terminal, or for work that ends before anyone could read it.
#ifndef WEFT_PROGRESS_H
#define WEFT_PROGRESS_H
#include "base/str.h"

typedef struct progress { bool on, visible; double began, drawn; } progress;
void progress_off(void);                                                     // no bars from now on
void progress_begin(progress *p);                                            // starts the clock; draws nothing yet
void progress_set(progress *p, const char *what, double fraction);           // "compiling", 0..1
// the line that it draws: at most this many columns (ASCII), or as many as the number needs
void progress_line(str *out, const char *what, double fraction, int columns);
void progress_end(progress *p);                                              // clears the line
#endif
