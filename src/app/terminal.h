// terminal: the lines that people type, with editing and a history (edit.h), or plain ones where stdin is no terminal;
// and what is shown to them, with colours or without.
#ifndef WEFT_TERMINAL_H
#define WEFT_TERMINAL_H
#include "base/base.h"
#include "app/settings.h"
#include "base/str.h"

typedef struct terminal terminal;
// editing: where stdin and stdout are a terminal, lines can be edited; otherwise they come as they are.
terminal *terminal_new(enum color color, bool editing);
void terminal_free(terminal *t);                 // writes the history
bool terminal_interactive(const terminal *t);    // lines can be edited

enum input { INPUT_TEXT, INPUT_END, INPUT_INTERRUPTED };
// What is typed after prompt, without the last newline: one line, or several where lines end with \, stand between """
// and """, or are pasted together.  INTERRUPTED: Ctrl-C; nothing was typed then.
enum input terminal_read(terminal *t, const char *prompt, str *out);
// The same where this text stands on the line to begin with.  Needs terminal_interactive.
enum input terminal_edit(terminal *t, const char *prompt, const char *text, str *out);

enum style { STYLE_PLAIN, STYLE_DIM, STYLE_CALL, STYLE_NOTE, STYLE_PROMPT };
// Text of a model or of ours, to stdout at once (out.h says what of it a terminal gets).
void terminal_show(terminal *t, enum style style, const char *text, size_t n);
void terminal_note(terminal *t, const char *fmt, ...) PRINTF_LIKE(2, 3);   // one line of our own, on stderr
bool terminal_closed(const terminal *t);         // nobody reads stdout any more
void terminal_newline(terminal *t);              // unless the cursor is at the beginning of a line
#endif
