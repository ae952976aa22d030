// typed: reads the lines of a conversation, and the files that they name.
//
// The process with the model may open only the files of its arguments (files.c). A line may name other files, and only
// what the user types may. So a helper process, created before the model's process enters the sandbox, reads the
// terminal and itself opens what /read, /load and /save name and pictures dropped on the terminal. It sends texts to
// the model's process and never takes names from it; each line allows one access.
#ifndef WEFT_TYPED_H
#define WEFT_TYPED_H
#include "base/base.h"
#include "base/str.h"

enum input { INPUT_TEXT, INPUT_END, INPUT_INTERRUPTED, INPUT_BROKEN };

typedef struct typed typed;
struct typed_how {
  bool person;                         // stdin and stdout are a terminal: prompts are shown, and Ctrl-C ends a line
  bool editing;                        // lines are also edited and kept in a history (edit.h)
  const char *color;                   // a control sequence for prompts, or ""
  const char *(*words)(size_t i);      // completed by Tab: edit_words
};
// Creates the process; must be called before threads start. NULL and an error.
typed *typed_new(const struct typed_how *how, error *err);
void typed_free(typed *t);

// Reads a message without its last newline: one line, or several if lines end with \, are enclosed in """, or are
// pasted together. begin: the initial text of the line, or ""; a line with one names no files. END: Ctrl-D, or the
// terminal is closed. INTERRUPTED: Ctrl-C, and out is empty. BROKEN: the process has ended with a message on stderr,
// and the terminal is restored.
enum input typed_line(typed *t, const char *prompt, const char *begin, str *out);

// The positions of paths of pictures and sounds in the last line, if a person typed it and it is one line (dropped.h).
struct span { uint64_t from, n; };
const struct span *typed_dropped(const typed *t, size_t *n);
// Reads a file that the last line names, for free(): file i of typed_dropped, or 0 for the file after /read and similar
// commands. Each can be read once. -1 and an error.
int typed_read(typed *t, size_t i, char **text, size_t *n, error *err);
// Writes the file that the last line names after /save, completely or not at all. -1 and an error.
int typed_write(typed *t, const char *text, size_t n, error *err);
bool typed_history(str *out);           // the path of the history; false: it has no possible folder
#endif
