// edit: a line, or several, that somebody types at a terminal, with keys, a history and pastes that stay together.
//
// A step of the cursor is what people see as one sign (a grapheme cluster of Unicode), however many characters it has:
// accents, flags, families.  What terminals disagree about is how wide such a sign is.  So the cursor is put in its
// place by printing what stands before it, never by counting columns, and lines are broken here, by the most that signs
// can take: rows are right whatever a terminal makes of them.
#ifndef WEFT_EDIT_H
#define WEFT_EDIT_H
#include "base/str.h"
#include <sys/types.h>

typedef struct edit edit;
// history: the file that keeps what was typed, which is made for its owner alone; NULL: none. owner: the process that
// Ctrl-Z is to stop, beside this one.
edit *edit_new(int in, int out, const char *history, pid_t owner);
void edit_free(edit *e);

enum edit_result { EDIT_LINE, EDIT_END, EDIT_INTERRUPTED };
// Adds what was typed to out, with a newline.  color: a control sequence for the prompt, or ""; text: what stands there
// to begin with. END: Ctrl-D on an empty line, or the terminal is gone.  INTERRUPTED: Ctrl-C (interrupted() of app.h),
// and nothing was added.
enum edit_result edit_line(edit *e, const char *prompt, const char *color, const char *text, str *out);
#endif
