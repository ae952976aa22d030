// terminal: the lines that people type, with editing and a history (libedit), or plain ones where stdin is no terminal; and what is
// shown to them, with colours or without.
#ifndef WEFT_TERMINAL_H
#define WEFT_TERMINAL_H
#include "base/base.h"
#include "base/str.h"

typedef struct terminal terminal;
enum color { COLOR_AUTO, COLOR_ON, COLOR_OFF };
terminal *terminal_new(enum color color);
void terminal_free(terminal *t);                 // writes the history
bool terminal_interactive(const terminal *t);    // stdin and stdout are a terminal

enum input { INPUT_TEXT, INPUT_END, INPUT_INTERRUPTED };
// What is typed after prompt, without the last newline: one line, or several where lines end with \ or stand between two lines of """.
// INTERRUPTED: Ctrl-C; nothing was typed then.
enum input terminal_read(terminal *t, const char *prompt, str *out);

enum style { STYLE_PLAIN, STYLE_DIM, STYLE_CALL, STYLE_NOTE, STYLE_PROMPT };
// Text of a model or of ours, to stdout at once (out.h says what of it a terminal gets).
void terminal_show(terminal *t, enum style style, const char *text, size_t n);
void terminal_note(terminal *t, const char *fmt, ...) PRINTF_LIKE(2, 3);   // one line of our own, on stderr
bool terminal_closed(const terminal *t);         // nobody reads stdout any more
void terminal_newline(terminal *t);              // unless the cursor is at the beginning of a line
#endif
