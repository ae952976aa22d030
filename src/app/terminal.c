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
  str queue;                 // bytes that come before those
  bool pasting, pasted;      // a paste has begun and not ended; this line holds some
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

static volatile sig_atomic_t resized;
static void on_resize(int sig) { (void)sig; resized = 1; }

// One byte: of the queue, else of the terminal.  1, 0 at its end, -1 on an error or Ctrl-C, 2 where wait_ms (negative: no limit) is over.
// Ctrl-C counts whenever it comes: the signal waits while the line is worked on and is let through only while this waits for input, so that
// none is lost between looking and waiting. It takes with it what was typed before, so that reading must not wait in its turn.
static int get_byte(terminal *t, const sigset_t *before, int wait_ms, char *out) {
  if (t->queue.n) {
    *out = t->queue.at[0];
    memmove(t->queue.at, t->queue.at + 1, t->queue.n--);
    return 1;
  }
  struct timespec limit = {.tv_nsec = wait_ms * 1000000L};
  for (;;) {
    struct pollfd p = {.fd = t->input, .events = POLLIN};
    if (interrupted()) { errno = EINTR; return -1; }
    if (resized) {
      resized = 0;
      el_resize(t->el);
      el_set(t->el, EL_REFRESH);
    }
    int ready = ppoll(&p, 1, wait_ms < 0 ? NULL : &limit, before);
    if (!ready) return 2;
    if (ready < 0) { if (errno == EINTR) continue; return -1; }
    ssize_t got = read(t->input, out, 1);
    if (got >= 0) return (int)got;
    if (errno != EAGAIN && errno != EINTR) return -1;
  }
}

// Terminals put a paste between \033[200~ and \033[201~.  After the \033 of one: reads the rest of it and is true; what else it was waits in the queue.
enum { ESCAPE = 27, MARK = 5, PATIENCE_MS = 30 };
static bool paste_mark(terminal *t, const sigset_t *before) {
  static const char begin[] = "[200~", end[] = "[201~";
  char seen[MARK];
  size_t n = 0;
  while (n < MARK && get_byte(t, before, PATIENCE_MS, seen + n) == 1) {
    n++;
    if (memcmp(seen, begin, n) && memcmp(seen, end, n)) break;
  }
  bool mark = n == MARK && (!memcmp(seen, begin, n) || !memcmp(seen, end, n));
  if (mark) {
    t->pasting = seen[3] == '0';
    t->pasted = true;
    return true;
  }
  str rest = {0};
  str_addn(&rest, seen, n);
  str_addn(&rest, t->queue.at, t->queue.n);
  str_free(&t->queue);
  t->queue = rest;
  return false;
}

// A line is one line for libedit.  A newline of a paste is this sign in it until the line is done.
#define NEWLINE_SIGN "\xE2\x8F\x8E"      // U+23CE
enum { NEWLINE_CHARACTER = 0x23CE };

// One character for libedit.
static int get_character(EditLine *el, wchar_t *out) {
  sigset_t interrupt, before;
  char bytes[MB_LEN_MAX];
  size_t n = 0;
  int result;
  terminal *t;
  el_get(el, EL_CLIENTDATA, &t);
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  while ((result = get_byte(t, &before, -1, bytes + n)) == 1) {
    if (!n && bytes[0] == ESCAPE && paste_mark(t, &before)) continue;
    if (t->pasting && !n && (bytes[0] == '\r' || bytes[0] == '\n')) { *out = MB_CUR_MAX > 1 ? NEWLINE_CHARACTER : L' '; break; }
    if (t->pasting && !n && (unsigned char)bytes[0] < ' ' && bytes[0] != '\t') continue;   // no keys
    mbstate_t state = {0};
    size_t used = mbrtowc(out, bytes, ++n, &state);
    if (used == (size_t)-2 && n < sizeof bytes) continue;            // the rest of the character comes
    if (used == (size_t)-1 || used == (size_t)-2) *out = L'?';
    break;
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
  return result;
}

// Keys that libedit does not know by itself, as terminals send them.
static void bind_keys(EditLine *el) {
  static const char *const keys[][2] = {
    {"^R", "em-inc-search-prev"}, {"\\e[1;5D", "ed-prev-word"}, {"\\e[1;5C", "em-next-word"}, {"\\e[5D", "ed-prev-word"}, {"\\e[5C", "em-next-word"},
    {"\\e[1;3D", "ed-prev-word"}, {"\\e[1;3C", "em-next-word"}, {"\\e[3~", "ed-delete-next-char"}, {"\\e[1~", "ed-move-to-beg"}, {"\\e[4~", "ed-move-to-end"},
    {"\\e[H", "ed-move-to-beg"}, {"\\e[F", "ed-move-to-end"}};
  for (size_t i = 0; i < COUNT(keys); i++) el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

terminal *terminal_new(enum color color, bool editing) {
  terminal *t = xcalloc(1, sizeof *t);
  HistEvent e;
  t->interactive = editing && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
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
  bind_keys(t->el);
  struct sigaction resize = {.sa_handler = on_resize};
  sigaction(SIGWINCH, &resize, NULL);
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
  str_free(&t->queue);
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
  static const char pastes_on[] = "\033[?2004h", pastes_off[] = "\033[?2004l";
  t->pasting = t->pasted = false;
  fputs(pastes_on, stdout);
  fflush(stdout);
  const char *line = el_gets(t->el, &n);
  fputs(pastes_off, stdout);
  fflush(stdout);
  if (!line) {
    if (n == 0 && !interrupted()) return INPUT_END;
    el_reset(t->el);
    return INPUT_INTERRUPTED;
  }
  HistEvent e;
  if (n > 1) history(t->history, &e, H_ENTER, line);
  for (const char *at = line, *end = line + n, *sign; at < end; at = sign) {
    sign = t->pasted ? memmem(at, (size_t)(end - at), NEWLINE_SIGN, strlen(NEWLINE_SIGN)) : NULL;
    str_addn(out, at, (size_t)((sign ? sign : end) - at));
    if (!sign) break;
    str_addc(out, '\n');
    sign += strlen(NEWLINE_SIGN);
  }
  return INPUT_TEXT;
}

enum input terminal_edit(terminal *t, const char *prompt, const char *text, str *out) {
  static const char mark[] = "\033[200~", end[] = "\033[201~";   // as if it were pasted
  str_add(&t->queue, mark);
  str_add(&t->queue, text);
  str_add(&t->queue, end);
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
