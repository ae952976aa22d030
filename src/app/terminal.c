// The terminal of weft chat: see terminal.h.
#define _GNU_SOURCE
#include "app/terminal.h"
#include "app/app.h"
#include "app/edit.h"
#include "base/env.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = 1 << 24 };

struct terminal {
  bool interactive, color, line_start;
  edit *edit;
  int input;
  str begin;                 // what the next line begins with
  enum style style;          // in force
  struct out out;
};

// ---- history --------------------------------------------------------------------------------------------------------

// The path of the history, whose folder is made if it has to be: only for its owner, since it holds what people wrote.
static char *history_path(void) {
  const char *state = env_str(ENV_XDG_STATE_HOME), *home = env_str(ENV_HOME);
  str path = {0};
  if (*state == '/') str_add(&path, state);
  else if (*home == '/') str_addf(&path, "%s/.local/state", home);
  else return NULL;
  str_add(&path, "/weft");
  for (char *slash = path.at + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    mkdir(path.at, 0700);
    *slash = '/';
  }
  mkdir(path.at, 0700);
  str_add(&path, "/chat_history");
  return path.at;
}

terminal *terminal_new(enum color color, bool editing) {
  terminal *t = xcalloc(1, sizeof *t);
  t->interactive = editing && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  t->color = color == COLOR_ON || (color == COLOR_AUTO && isatty(STDOUT_FILENO) && !*env_str(ENV_NO_COLOR));
  t->line_start = true;
  if (t->color) t->out.kind = OUT_TERMINAL;   // colours go where a terminal will show them, sooner or later
  if (!t->interactive) return t;
  const char *name = ttyname(STDIN_FILENO);   // once more, for reading that does not wait
  t->input = name ? open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
  if (t->input < 0) t->input = STDIN_FILENO;
  char *history = history_path();
  t->edit = edit_new(t->input, STDOUT_FILENO, history);
  free(history);
  return t;
}

void terminal_free(terminal *t) {
  if (!t) return;
  terminal_show(t, STYLE_PLAIN, "", 0);
  out_flush(&t->out);
  edit_free(t->edit);
  if (t->input > STDERR_FILENO) close(t->input);
  str_free(&t->begin);
  str_free(&t->out.pending);
  free(t);
}

bool terminal_interactive(const terminal *t) { return t->interactive; }

// ---- in -------------------------------------------------------------------------------------------------------------

// One line with its newline, if it has one.
static enum input read_line(terminal *t, const char *prompt, str *out) {
  if (!t->interactive) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = getline(&line, &cap, stdin);
    if (n > 0) str_addn(out, line, (size_t)n);
    free(line);
    return n > 0 ? INPUT_TEXT : interrupted() ? INPUT_INTERRUPTED : INPUT_END;
  }
  enum edit_result got = edit_line(t->edit, prompt, t->color ? "\033[1;32m" : "", str_c(&t->begin), out);
  str_free(&t->begin);
  return got == EDIT_LINE ? INPUT_TEXT : got == EDIT_END ? INPUT_END : INPUT_INTERRUPTED;
}

enum input terminal_edit(terminal *t, const char *prompt, const char *text, str *out) {
  str_add(&t->begin, text);
  return terminal_read(t, prompt, out);
}

static const char quotes[] = "\"\"\"";

// Whether a line (with its newline, if it has one) ends with """, which is taken off.
static bool take_quotes(str *line, size_t from) {
  size_t n = line->n;
  while (n > from && (line->at[n - 1] == '\n' || line->at[n - 1] == '\r' || line->at[n - 1] == ' ')) n--;
  if (n < from + 3 || memcmp(line->at + n - 3, quotes, 3)) return false;
  line->n = n - 3;
  return true;
}

enum input terminal_read(terminal *t, const char *prompt, str *out) {
  out->n = 0;
  str_add(out, "");
  out_flush(&t->out);
  bool block = false;
  for (const char *shown = prompt;; shown = "... ") {
    size_t from = out->n;
    enum input got = read_line(t, shown, out);
    if (got == INPUT_INTERRUPTED) {
      out->n = 0;
      if (t->interactive) terminal_show(t, STYLE_PLAIN, "\n", 1);
      return got;
    }
    if (got == INPUT_END) {
      if (!out->n && t->interactive) terminal_show(t, STYLE_PLAIN, "\n", 1);
      return out->n ? INPUT_TEXT : INPUT_END;
    }
    t->line_start = true;
    if (out->n > LONGEST) return INPUT_TEXT;
    bool first = from == 0 && !block && out->n >= 3 && !memcmp(out->at, quotes, 3);
    if (first) {                       // """ begins a message, whatever follows on the line
      memmove(out->at, out->at + 3, out->n -= 3);
      if (out->n == 1 && out->at[0] == '\n') out->n = 0;
      block = true;
    }
    if (block && take_quotes(out, from)) break;
    if (block) continue;
    bool newline = out->n && out->at[out->n - 1] == '\n';
    if (!newline || out->n < from + 2 || out->at[out->n - 2] != '\\') break;
    out->n -= 2;             // the line goes on
    str_addc(out, '\n');
  }
  if (out->n && out->at[out->n - 1] == '\n') out->n--;
  out->at[out->n] = 0;
  return INPUT_TEXT;
}

// ---- out ------------------------------------------------------------------------------------------------------------

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

void terminal_note(terminal *t, const char *fmt, ...) {
  terminal_newline(t);
  str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  str_blank_controls(&s, true);
  bool color = t->color && isatty(STDERR_FILENO);
  fprintf(stderr, color ? "\033[0;33m%s\033[0m\n" : "%s\n", str_c(&s));
  str_free(&s);
}
