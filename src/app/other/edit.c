// Systems without a line editor of Weft: the terminal edits lines. See edit.h.
#include "app/edit.h"

edit *edit_new(int in, int out, const char *history, pid_t owner, edit_words words) {
  return (void)in, (void)out, (void)history, (void)owner, (void)words, NULL;
}

enum edit_result edit_line(edit *e, const char *prompt, const char *color, const char *text, str *out) {
  return (void)e, (void)prompt, (void)color, (void)text, (void)out, EDIT_END;
}

void edit_remember(edit *e, const char *line) { (void)e, (void)line; }
