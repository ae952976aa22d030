// terminal: lines typed by the user (typed.h), with editing and a history, or plain if stdin is no terminal; and
// output, with or without colours.
#ifndef WEFT_TERMINAL_H
#define WEFT_TERMINAL_H
#include "base/base.h"
#include "app/settings.h"
#include "app/typed.h"
#include "base/str.h"

typedef struct terminal terminal;
// conversation: lines will be read; must be called before threads start. plain: no control sequences, and lines are
// read unedited; implied if TERM is dumb or not set. NULL and an error: the helper process cannot be created.
terminal *terminal_new(enum color color, bool conversation, bool plain, error *err);
void terminal_free(terminal *t);
bool terminal_interactive(const terminal *t);    // stdin and stdout are a terminal
bool terminal_edits(const terminal *t);          // interactive with line editing

// Reads a line after the prompt, like typed_line.
enum input terminal_read(terminal *t, const char *prompt, str *out);
// terminal_read with an initial text of the line.
enum input terminal_edit(terminal *t, const char *prompt, const char *text, str *out);
// The files that the last line names: typed_dropped, typed_read, typed_write.
const struct span *terminal_dropped(const terminal *t, size_t *n);
int terminal_read_file(terminal *t, size_t i, char **text, size_t *n, error *err);
int terminal_write_file(terminal *t, const char *text, size_t n, error *err);

enum style { STYLE_PLAIN, STYLE_DIM, STYLE_CALL, STYLE_NOTE, STYLE_PROMPT };
// Prints text of a model or of Weft to stdout at once (out.h filters it for terminals).
void terminal_show(terminal *t, enum style style, const char *text, size_t n);
// Prints a line of Weft on stderr, broken between words at the terminal's width.
void terminal_note(terminal *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
// Prints a line of a list: a name, and its description in a column of this width, or below if there is no room.
void terminal_row(terminal *t, int width, const char *name, const char *what);
bool terminal_closed(const terminal *t);         // the other end of stdout is closed
void terminal_newline(terminal *t);              // no newline if the cursor is at the beginning of a line
#endif
