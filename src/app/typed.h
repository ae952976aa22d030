// typed: the lines of a conversation, and the files that they name.
//
// The process with the model in it may open the files of its arguments and no others (files.c). What people type names
// others, and only they may: so a process of its own, made before that one is confined, reads the terminal and itself
// opens what /read, /load and /save name there. It gives the other one texts, never takes names from it, and a line
// counts once.
#ifndef WEFT_TYPED_H
#define WEFT_TYPED_H
#include "base/base.h"
#include "base/str.h"

enum input { INPUT_TEXT, INPUT_END, INPUT_INTERRUPTED, INPUT_BROKEN };

typedef struct typed typed;
// Makes the process; before there are threads. editing: lines are edited and kept in a history (edit.h); otherwise they
// come from stdin as they are. color: a control sequence for prompts, or "". NULL and why not.
typed *typed_new(bool editing, const char *color, error *err);
void typed_free(typed *t);

// A message without its last newline: one line, or several where lines end with \, stand between """ and """, or are
// pasted together. begin: what stands there to begin with, or ""; such a line names no files. END: Ctrl-D, or the
// terminal is gone. INTERRUPTED: Ctrl-C, and out is empty. BROKEN: the process has ended, as stderr says, and the
// terminal is as it was.
enum input typed_line(typed *t, const char *prompt, const char *begin, str *out);

// The text of the file that the last line names after /read or /load, for free(). -1 and why not.
int typed_read(typed *t, char **text, size_t *n, error *err);
// Writes the file that the last line names after /save, whole or not at all. -1 and why not.
int typed_write(typed *t, const char *text, size_t n, error *err);
#endif
