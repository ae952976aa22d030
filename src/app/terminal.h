// terminal: the lines that people type (typed.h), with editing and a history, or plain ones where stdin is no terminal;
// and what is shown to them, with colours or without.
#ifndef WEFT_TERMINAL_H
#define WEFT_TERMINAL_H
#include "base/base.h"
#include "app/settings.h"
#include "app/typed.h"
#include "base/str.h"

typedef struct terminal terminal;
// conversation: lines will be read; before there are threads. plain: no control sequence ever, and lines come as they
// are; so it is where TERM is dumb or not set. NULL, and why: no process can be made.
terminal *terminal_new(enum color color, bool conversation, bool plain, error *err);
void terminal_free(terminal *t);
bool terminal_interactive(const terminal *t);    // a conversation with a person: stdin and stdout are a terminal
bool terminal_edits(const terminal *t);          // and lines are edited

// What is typed after prompt, as typed_line has it.
enum input terminal_read(terminal *t, const char *prompt, str *out);
// The same where this text stands on the line to begin with.
enum input terminal_edit(terminal *t, const char *prompt, const char *text, str *out);
// The files that the last line names: typed_dropped, typed_read, typed_write.
const struct span *terminal_dropped(const terminal *t, size_t *n);
int terminal_read_file(terminal *t, size_t i, char **text, size_t *n, error *err);
int terminal_write_file(terminal *t, const char *text, size_t n, error *err);

enum style { STYLE_PLAIN, STYLE_DIM, STYLE_CALL, STYLE_NOTE, STYLE_PROMPT };
// Text of a model or of ours, to stdout at once (out.h says what of it a terminal gets).
void terminal_show(terminal *t, enum style style, const char *text, size_t n);
// A line of our own, on stderr; it is broken between words where a terminal is narrower.
void terminal_note(terminal *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
// The same of a list: what names are, beside them in a column of this width, or below where there is no room.
void terminal_row(terminal *t, int width, const char *name, const char *what);
bool terminal_closed(const terminal *t);         // nobody reads stdout any more
void terminal_newline(terminal *t);              // unless the cursor is at the beginning of a line
#endif
