// A progress bar on stderr: one line that is drawn over and cleared at the end.  Nothing is drawn where stderr is no
// terminal, and nothing for work that is done before anyone could have read it.
#ifndef WEFT_PROGRESS_H
#define WEFT_PROGRESS_H
#include "base/str.h"

typedef struct progress { bool on, visible; double began, drawn; } progress;
void progress_off(void);                                                     // from now on none is drawn
void progress_begin(progress *p);                                            // starts the clock; draws nothing yet
void progress_set(progress *p, const char *what, double fraction);           // "compiling", 0..1
// the line that it draws: at most so many columns wide (of ASCII), unless these are fewer than the number needs
void progress_line(str *out, const char *what, double fraction, int columns);
void progress_end(progress *p);                                              // clears the line
#endif
