// typed: the lines of a conversation, and the files that they name.
//
// The process with the model in it may open the files of its arguments and no others (files.c). What people type names
// others, and only they may: so a process of its own, made before that one is confined, reads the terminal and itself
// opens what /read, /load and /save name there, and pictures that are dropped on the terminal. It gives the other one
// texts, never takes names from it, and a line counts once.
#ifndef WEFT_TYPED_H
#define WEFT_TYPED_H
#include "base/base.h"
#include "base/str.h"

enum input { INPUT_TEXT, INPUT_END, INPUT_INTERRUPTED, INPUT_BROKEN };

typedef struct typed typed;
struct typed_how {
  bool person;                         // stdin and stdout are a terminal: prompts are shown, and Ctrl-C ends a line
  bool editing;                        // and lines are edited and kept in a history (edit.h)
  const char *color;                   // a control sequence for prompts, or ""
  const char *(*words)(size_t i);      // what Tab completes: edit_words
};
// Makes the process; before there are threads. NULL and why not.
typed *typed_new(const struct typed_how *how, error *err);
void typed_free(typed *t);

// A message without its last newline: one line, or several where lines end with \, stand between """ and """, or are
// pasted together. begin: what stands there to begin with, or ""; such a line names no files. END: Ctrl-D, or the
// terminal is gone. INTERRUPTED: Ctrl-C, and out is empty. BROKEN: the process has ended, as stderr says, and the
// terminal is as it was.
enum input typed_line(typed *t, const char *prompt, const char *begin, str *out);

// Where paths of pictures and sounds stand in the last line, if a person typed it and it is one line (dropped.h).
struct span { uint64_t from, n; };
const struct span *typed_dropped(const typed *t, size_t *n);
// The text of a file that the last line names, for free(): file i of typed_dropped, or 0 if it is after /read or the
// like. Each once. -1 and why not.
int typed_read(typed *t, size_t i, char **text, size_t *n, error *err);
// Writes the file that the last line names after /save, whole or not at all. -1 and why not.
int typed_write(typed *t, const char *text, size_t n, error *err);
bool typed_history(str *out);           // the path of the history; false: there is no place for it
#endif
