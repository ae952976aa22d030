// The terminal of weft chat: see terminal.h.
#define _GNU_SOURCE
#include "app/terminal.h"
#include "app/app.h"
#include "base/env.h"
#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY = 1000, LONGEST = 1 << 24 };

struct terminal {
  bool interactive, color, line_start;
  EditLine *el;
  int input;                 // the terminal once more, for reading that does not wait
  History *history;
  char *history_path;        // NULL: there is no place for it
  str prompt;
  enum style style;          // in force
  struct out out;
};

// ---- history ----------------------------------------------------------------------------------------------------------

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

static char *show_prompt(EditLine *el) {
  terminal *t;
  el_get(el, EL_CLIENTDATA, &t);
  return t->prompt.at;
}

// One character for libedit. Ctrl-C counts whenever it comes: the signal waits while the line is worked on and is let through only while
// this waits for input, so that none is lost between looking and waiting. It takes with it what was typed before, so that reading must not wait in its turn.
static int get_character(EditLine *el, wchar_t *out) {
  sigset_t interrupt, before;
  char bytes[MB_LEN_MAX];
  size_t n = 0;
  int result = 2;
  terminal *t;
  el_get(el, EL_CLIENTDATA, &t);
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  while (result == 2) {
    struct pollfd p = {.fd = t->input, .events = POLLIN};
    if (interrupted()) { errno = EINTR; result = -1; break; }
    if (ppoll(&p, 1, NULL, &before) < 0) { if (errno != EINTR) result = -1; continue; }
    ssize_t got = read(t->input, bytes + n, 1);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) { result = got < 0 ? -1 : 0; break; }
    mbstate_t state = {0};
    size_t used = mbrtowc(out, bytes, ++n, &state);
    if (used == (size_t)-2 && n < sizeof bytes) continue;            // the rest of the character comes
    if (used == (size_t)-1 || used == (size_t)-2) *out = L'?';
    result = 1;
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
  return result;
}

terminal *terminal_new(enum color color) {
  terminal *t = xcalloc(1, sizeof *t);
  HistEvent e;
  t->interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  t->color = color == COLOR_ON || (color == COLOR_AUTO && isatty(STDOUT_FILENO) && !*env_str(ENV_NO_COLOR));
  t->line_start = true;
  if (t->color) t->out.kind = OUT_TERMINAL;   // colours go where a terminal will show them, sooner or later
  if (!t->interactive) return t;
  setlocale(LC_CTYPE, "");
  const char *name = ttyname(STDIN_FILENO);
  t->input = name ? open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
  if (t->input < 0) t->input = STDIN_FILENO;
  t->el = el_init("weft", stdin, stdout, stderr);
  t->history = history_init();
  if (!t->el || !t->history) { t->interactive = false; return t; }
  history(t->history, &e, H_SETSIZE, HISTORY);
  history(t->history, &e, H_SETUNIQUE, 1);
  if ((t->history_path = history_path())) history(t->history, &e, H_LOAD, t->history_path);
  el_set(t->el, EL_CLIENTDATA, t);
  el_set(t->el, EL_PROMPT_ESC, show_prompt, '\1');
  el_set(t->el, EL_EDITOR, "emacs");
  el_set(t->el, EL_HIST, history, t->history);
  el_set(t->el, EL_GETCFN, get_character);
  el_set(t->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
  return t;
}

void terminal_free(terminal *t) {
  if (!t) return;
  terminal_show(t, STYLE_PLAIN, "", 0);
  out_flush(&t->out);
  if (t->history_path) {
    HistEvent e;
    int fd = open(t->history_path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);   // never readable for others, not even for a moment
    if (fd >= 0) { close(fd); history(t->history, &e, H_SAVE, t->history_path); }
  }
  if (t->history) history_end(t->history);
  if (t->el) el_end(t->el);
  if (t->input > STDERR_FILENO) close(t->input);
  free(t->history_path);
  str_free(&t->prompt);
  str_free(&t->out.pending);
  free(t);
}

bool terminal_interactive(const terminal *t) { return t->interactive; }

// ---- in ---------------------------------------------------------------------------------------------------------------

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
  t->prompt.n = 0;
  str_addf(&t->prompt, t->color ? "\1\033[1;32m\1%s\1\033[0m\1" : "%s", prompt);
  int n = 0;
  const char *line = el_gets(t->el, &n);
  if (!line) {
    if (n == 0 && !interrupted()) return INPUT_END;
    el_reset(t->el);
    return INPUT_INTERRUPTED;
  }
  HistEvent e;
  if (n > 1) history(t->history, &e, H_ENTER, line);
  str_addn(out, line, (size_t)n);
  return INPUT_TEXT;
}

static bool is_quotes(const char *line) { return !strncmp(line, "\"\"\"", 3) && (line[3] == '\n' || !line[3]); }

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
    bool quotes = is_quotes(out->at + from);
    if (quotes && (block || from == 0)) {
      out->n = from;
      if (block) break;
      block = true;
      continue;
    }
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

// ---- out --------------------------------------------------------------------------------------------------------------

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
