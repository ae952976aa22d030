// The terminal of weft chat: see terminal.h.
#define _GNU_SOURCE
#include "app/terminal.h"
#include "app/app.h"
#include "app/chat.h"
#include "app/signs.h"
#include "base/env.h"
#include "base/tty.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct terminal {
  bool interactive, editing, color, line_start;
  typed *typed;
  enum style style;          // in use
  struct out out;
};

// ---- setup and cleanup ----------------------------------------------------------------------------------------------

terminal *terminal_new(enum color color, bool conversation, bool plain, error *err) {
  terminal *t = xcalloc(1, sizeof *t);
  bool codes = !plain && tty_takes_codes(STDOUT_FILENO);
  t->interactive = conversation && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  t->editing = t->interactive && codes;
  t->color = color == COLOR_ON || (color == COLOR_AUTO && codes && !*env_str(ENV_NO_COLOR));
  t->line_start = true;
  if (t->color) t->out.kind = OUT_TERMINAL;   // colours are on because a terminal will display them in the end
  if (!conversation) return t;
  t->typed = typed_new(&(struct typed_how){t->interactive, t->editing, t->color ? "\033[1;32m" : "", chat_word}, err);
  if (t->typed) return t;
  free(t);
  return NULL;
}

void terminal_free(terminal *t) {
  if (!t) return;
  terminal_show(t, STYLE_PLAIN, "", 0);
  out_flush(&t->out);
  typed_free(t->typed);
  str_free(&t->out.pending);
  free(t);
}

bool terminal_interactive(const terminal *t) { return t->interactive; }
bool terminal_edits(const terminal *t) { return t->editing; }

// ---- input ----------------------------------------------------------------------------------------------------------

enum input terminal_edit(terminal *t, const char *prompt, const char *text, str *out) {
  out_flush(&t->out);
  enum input got = t->typed ? typed_line(t->typed, prompt, text, out) : INPUT_END;
  if (got == INPUT_TEXT) t->line_start = true;
  else if (t->interactive) terminal_show(t, STYLE_PLAIN, "\n", 1);
  return got;
}

enum input terminal_read(terminal *t, const char *prompt, str *out) { return terminal_edit(t, prompt, "", out); }

const struct span *terminal_dropped(const terminal *t, size_t *n) { return typed_dropped(t->typed, n); }
int terminal_read_file(terminal *t, size_t i, char **text, size_t *n, error *err) {
  return typed_read(t->typed, i, text, n, err);
}
int terminal_write_file(terminal *t, const char *text, size_t n, error *err) {
  return typed_write(t->typed, text, n, err);
}

// ---- output ---------------------------------------------------------------------------------------------------------

static void set_style(terminal *t, enum style style) {
  static const char *const codes[] = {"\033[0m", "\033[0;2m", "\033[0;36m", "\033[0;33m", "\033[1;32m"};
  if (t->color && style != t->style) out_code(&t->out, codes[style]);
  t->style = style;
}

void terminal_show(terminal *t, enum style style, const char *text, size_t n) {
  set_style(t, style);
  out_add(&t->out, text, n);
  if (n) t->line_start = text[n - 1] == '\n';
  out_flush(&t->out);
}

bool terminal_closed(const terminal *t) { return t->out.error; }

void terminal_newline(terminal *t) {
  if (!t->line_start) terminal_show(t, STYLE_PLAIN, "\n", 1);
  terminal_show(t, STYLE_PLAIN, "", 0);
}

// Prints to stderr; on a terminal in lines of its width, all but the first indented.
static void print_note(terminal *t, str *text, int indent) {
  bool is_terminal = isatty(STDERR_FILENO), color = t->color && is_terminal;
  str lines = {0};
  terminal_newline(t);
  str_blank_controls(text, true);
  sign_wrap(&lines, str_c(text), is_terminal ? tty_columns(STDERR_FILENO) : INT_MAX, indent);
  fprintf(stderr, color ? "\033[0;33m%s\033[0m\n" : "%s\n", str_c(&lines));
  str_free(&lines);
  str_free(text);
}

void terminal_note(terminal *t, const char *fmt, ...) {
  str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  print_note(t, &s, 0);
}

void terminal_row(terminal *t, int width, const char *name, const char *what) {
  str s = {0};
  bool beside = !isatty(STDERR_FILENO) || tty_columns(STDERR_FILENO) >= 2 * width;
  str_addf(&s, beside ? "%-*s %s" : "%.*s\n  %s", beside ? width : INT_MAX, name, what);
  print_note(t, &s, beside ? width + 1 : 2);
}
