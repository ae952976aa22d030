// edit: input of one or more lines at a terminal, with keys, a history and bracketed pastes.
//
// A step of the cursor is a grapheme cluster of Unicode, which people see as one sign however many characters it has:
// accents, flags, families. Terminals disagree about the width of such signs. So the cursor is positioned by printing
// the text before it, never by counting columns, and lines are broken here, by the largest width that signs can have.
// Rows are then right on every terminal.
#ifndef WEFT_EDIT_H
#define WEFT_EDIT_H
#include "base/str.h"
#include <sys/types.h>

typedef struct edit edit;
typedef const char *(*edit_words)(size_t i);     // the i-th word; NULL after the last one
// Creates the editor, one per process. From here on keys are not echoed: keys typed between two lines belong to the
// next one. If SIGTERM ends the process, the terminal is restored. history: a file for messages, created for its owner
// alone; NULL: none. owner: the process that Ctrl-Z stops together with this one. words: completed by Tab after a / at
// the beginning of a line.
edit *edit_new(int in, int out, const char *history, pid_t owner, edit_words words);

enum edit_result { EDIT_LINE, EDIT_END, EDIT_INTERRUPTED };
// Reads a line and adds it to out, with a newline. color: a control sequence for the prompt, or ""; text: the initial
// text of the line. END: Ctrl-D on an empty line, or the terminal is closed. INTERRUPTED: Ctrl-C (interrupted() of
// app.h), and nothing was added.
enum edit_result edit_line(edit *e, const char *prompt, const char *color, const char *text, str *out);
void edit_remember(edit *e, const char *text);   // adds an entry to the history; Up shows it again
#endif
