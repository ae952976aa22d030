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
typedef const char *(*edit_words)(size_t i);     // the i-th word, NULL behind the last one
// There is one in a process. From here on keys are not echoed: those that come between two lines are the next one's.
// The terminal is as it was again when SIGTERM ends the process.
// history: the file that keeps messages, which is made for its owner alone; NULL: none. owner: the process that
// Ctrl-Z is to stop, beside this one. words: what Tab completes behind a / that begins a line.
edit *edit_new(int in, int out, const char *history, pid_t owner, edit_words words);

enum edit_result { EDIT_LINE, EDIT_END, EDIT_INTERRUPTED };
// Adds what was typed to out, with a newline.  color: a control sequence for the prompt, or ""; text: what stands there
// to begin with. END: Ctrl-D on an empty line, or the terminal is gone.  INTERRUPTED: Ctrl-C (interrupted() of app.h),
// and nothing was added.
enum edit_result edit_line(edit *e, const char *prompt, const char *color, const char *text, str *out);
void edit_remember(edit *e, const char *text);   // an entry of the history: Up brings it back as it is here
#endif
