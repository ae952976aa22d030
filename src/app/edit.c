// The line editor: see edit.h.
//
// Keys change the text and the cursor. When no more input is pending, everything is redrawn, from the prompt's row on.
#define _GNU_SOURCE
#include "app/edit.h"
#include "app/app.h"
#include "app/signs.h"
#include "base/tty.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <utf8proc.h>

enum { HISTORY = 1000, LONGEST = 1 << 24, PATIENCE_MS = 50 /* for the rest of a key */ };
typedef VEC(char *) lines;

struct edit {
  int in, out;
  struct termios before;       // settings of the terminal at the start of the conversation
  struct sigaction others[4];  // previous handlers of the signals that end or stop the program
  sigset_t signals;            // blocked, except while input is waited for
  unsigned char buffer[4096];  // read and not used yet
  size_t at, n;
  str text, cut;               // cut: the text that Ctrl-K and similar keys removed last
  size_t cursor;               // byte offset, at the edge of a grapheme
  const char *prompt, *color;
  int columns, rows;           // of the screen
  int cursor_row;              // within the drawn rows
  VEC(int) widths;             // of the drawn rows, in columns
  bool prompted;               // the first row has the prompt
  str drawn;                   // the text on the screen; at_end: the cursor is at its end
  bool at_end;
  lines history;
  size_t browsed;              // the shown entry; history.n: none
  str mine;                    // the typed text, while an entry is shown
  pid_t owner;                 // is stopped together with this process
  char *path;
  bool searching;
  str wanted;                  // the text that Ctrl-R searches
  edit_words words;            // completed by Tab
};

// ---- steps ----------------------------------------------------------------------------------------------------------

static size_t sign_before(const edit *e, size_t at) {
  size_t from = 0;
  // no grapheme extends over the end of a line
  for (size_t i = at; i > 0; i--) if (e->text.at[i - 1] == '\n') { from = i; break; }
  if (from == at) return at ? at - 1 : 0;
  for (size_t end; (end = sign_end(e->text.at, e->text.n, from, NULL)) < at;) from = end;
  return from;
}

static size_t sign_after(const edit *e, size_t at) {
  return at < e->text.n ? sign_end(e->text.at, e->text.n, at, NULL) : at;
}

static bool is_word(const edit *e, size_t at) {
  int32_t c;
  sign_character(e->text.at, e->text.n, at, &c);
  return c >= 128 ? utf8proc_category(c) != UTF8PROC_CATEGORY_ZS
                  : (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static size_t word_before(const edit *e, size_t at) {
  size_t b;
  while (at && !is_word(e, b = sign_before(e, at))) at = b;
  while (at && is_word(e, b = sign_before(e, at))) at = b;
  return at;
}

static size_t word_after(const edit *e, size_t at) {
  while (at < e->text.n && !is_word(e, at)) at = sign_after(e, at);
  while (at < e->text.n && is_word(e, at)) at = sign_after(e, at);
  return at;
}

static size_t line_begin(const edit *e, size_t at) { while (at && e->text.at[at - 1] != '\n') at--; return at; }
static size_t end_of_line(const edit *e, size_t at) {
  while (at < e->text.n && e->text.at[at] != '\n') at++;
  return at;
}

// ---- changes --------------------------------------------------------------------------------------------------------

static void replace_text(edit *e, size_t from, size_t to, const char *with, size_t n) {
  str s = {0};
  str_addn(&s, e->text.at, from);
  str_addn(&s, with, n);
  size_t cursor = s.n;
  str_addn(&s, e->text.at + to, e->text.n - to);
  str_free(&e->text);
  e->text = s;
  size_t edge = line_begin(e, cursor);                          // inserted text may have joined with the text after it
  while (edge < cursor) edge = sign_end(s.at, s.n, edge, NULL);
  e->cursor = edge;
}

static void cut_text(edit *e, size_t from, size_t to) {
  if (from == to) return;
  e->cut.n = 0;
  str_addn(&e->cut, e->text.at + from, to - from);
  replace_text(e, from, to, "", 0);
}

static void set_text(edit *e, const char *text) {
  replace_text(e, 0, e->text.n, text, strlen(text));
}

// Cleans pasted text: control sequences are removed, line ends become newlines, and bytes that are not UTF-8 become
// U+FFFD.
static void clean_pasted(str *out, const char *text, size_t n) {
  for (size_t at = 0, used; at < n; at += used) {
    int32_t c;
    used = sign_character(text, n, at, &c);
    if (c == '\r' && at + 1 < n && text[at + 1] == '\n') continue;
    if (c == '\r' || c == '\n') str_addc(out, '\n');
    else if (c == 0xFFFD) str_add(out, "\xEF\xBF\xBD");
    else if (c == '\t' || (c >= ' ' && c != 127 && !(c >= 128 && c < 160))) str_addn(out, text + at, used);
  }
}

static void put_in(edit *e, const char *text, size_t n) {
  str s = {0};
  clean_pasted(&s, text, n);
  if (e->text.n + s.n <= LONGEST) replace_text(e, e->cursor, e->cursor, str_c(&s), s.n);
  str_free(&s);
}

// ---- the screen -----------------------------------------------------------------------------------------------------

static void send(const edit *e, const str *s) {
  for (size_t done = 0; done < s->n;) {
    ssize_t n = write(e->out, s->at + done, s->n - done);
    if (n > 0) done += (size_t)n;
    else if (n < 0 && errno != EINTR) return;
  }
}

static void send_text(const edit *e, const char *text) {
  str s = {0};
  str_add(&s, text);
  send(e, &s);
  str_free(&s);
}

static void measure_width(edit *e) {
  struct winsize w = {0};
  e->columns = tty_columns(e->out);
  e->rows = ioctl(e->out, TIOCGWINSZ, &w) || !w.ws_row ? 24 : w.ws_row;
}

struct row { size_t from, to; int width; };
typedef VEC(struct row) row_list;

// Breaks the text into rows of at most `columns`; the last one has room for the cursor.
static void break_rows(const edit *e, int first, row_list *out) {
  struct row r = {0, 0, first};
  for (size_t at = 0, end; at < e->text.n; at = end) {
    int w;
    end = sign_end(e->text.at, e->text.n, at, &w);
    bool newline = e->text.at[at] == '\n';
    if (newline || (r.width + w > e->columns && r.width)) {
      vec_push(out, r);
      r = (struct row){newline ? end : at, newline ? end : at, 0};
      if (newline) continue;
    }
    r.to = end;
    r.width += w;
  }
  vec_push(out, r);
  if (r.width >= e->columns) vec_push(out, ((struct row){e->text.n, e->text.n, 0}));
}

static void add_shown(str *out, const edit *e, size_t from, size_t to) {
  for (size_t i = from; i < to; i++)
    if (e->text.at[i] == '\t') str_addf(out, "%*s", TAB_COLUMNS, "");
    else str_addc(out, e->text.at[i]);
}

// Adds the prompt. It takes at most half of a row: a longer one loses its first words, and a longer word its first
// graphemes.
static void add_shown_prompt(str *out, const edit *e) {
  str s = {0};
  if (e->searching) str_addf(&s, "(search: %s) ", str_c(&e->wanted)); else str_add(&s, e->prompt);
  size_t at = 0, word;
  while (at < s.n && sign_columns(s.at + at, s.n - at) > e->columns / 2) {
    word = at + strcspn(s.at + at, " ");
    word += strspn(s.at + word, " ");
    at = word < s.n ? word : sign_end(s.at, s.n, at, NULL);
  }
  str_addn(out, s.at + at, s.n - at);
  str_free(&s);
}

static void put_prompt(str *out, const edit *e) {
  bool colored = *e->color && !e->searching;
  if (colored) str_add(out, e->color);
  add_shown_prompt(out, e);
  if (colored) str_add(out, "\033[0m");
}

static int prompt_width(const edit *e) {
  str s = {0};
  add_shown_prompt(&s, e);
  int all = sign_columns(s.at, s.n);
  str_free(&s);
  return all;
}

// The rows above the cursor. If the screen has become narrower than a drawn row, nearly all terminals now show it as
// several rows.
static int rows_above(const edit *e) {
  int n = e->cursor_row;
  for (int i = 0; i < e->cursor_row; i++) n += e->widths.at[i] > e->columns ? (e->widths.at[i] - 1) / e->columns : 0;
  return n;
}

// Draws text that was appended at the end alone, if it fits in the row.
static bool draw_added(edit *e) {
  size_t from = e->drawn.n;
  int all = e->widths.n ? e->widths.at[e->widths.n - 1] : 0, w;
  if (!e->prompted || e->searching || !e->at_end || e->cursor < e->text.n || from > e->text.n ||
      memcmp(e->drawn.at, e->text.at, from))
    return false;
  if (from && sign_after(e, sign_before(e, from)) != from) return false;        // it joins with the text on the screen
  for (size_t at = from; at < e->text.n; all += w) {
    if (e->text.at[at] == '\n') return false;
    at = sign_end(e->text.at, e->text.n, at, &w);
  }
  if (all >= e->columns) return false;
  str s = {0};
  add_shown(&s, e, from, e->text.n);
  send(e, &s);
  e->widths.at[e->widths.n - 1] = all;
  str_addn(&e->drawn, e->text.at + from, e->text.n - from);
  str_free(&s);
  return true;
}

// Moves to the beginning of the text in the row of the prompt.
static void begin_first(str *out, const edit *e) {
  int n = prompt_width(e);
  str_addc(out, '\r');
  if (n) str_addf(out, "\033[%dC", n);
}

// Redraws everything. Lines do not wrap meanwhile, so after a full row the cursor stays on the last column. Old content
// is therefore cleared before rows are printed, never after a row.
static void draw_rows(edit *e, const row_list *rows, int first, int shown, str *s) {
  if (first || !e->prompted) str_addc(s, '\r');
  else begin_first(s, e);
  str_add(s, "\033[J");
  if (!first && !e->prompted) put_prompt(s, e);
  e->widths.n = 0;
  for (int i = first; i < first + shown; i++) {
    if (i > first) str_add(s, "\r\n");
    add_shown(s, e, rows->at[i].from, rows->at[i].to);
    vec_push(&e->widths, rows->at[i].width);
  }
}

static void draw_line(edit *e) {
  if (draw_added(e)) return;
  row_list rows = {0};
  str s = {0};
  int above = rows_above(e), row = 0;
  break_rows(e, prompt_width(e), &rows);
  while (row + 1 < (int)rows.n && e->cursor >= rows.at[row + 1].from) row++;
  // of a text longer than the screen, the last rows up to the cursor are shown
  int shown = (int)rows.n < e->rows ? (int)rows.n : e->rows, first = row < shown ? 0 : row - shown + 1;
  str_add(&s, "\033[?25l\033[?7l");
  if (above) str_addf(&s, "\033[%dA", above);
  draw_rows(e, &rows, first, shown, &s);
  if (row < first + shown - 1 || e->cursor < rows.at[row].to) {
    if (row < first + shown - 1) str_addf(&s, "\033[%dA", first + shown - 1 - row);
    if (row) str_addc(&s, '\r'); else begin_first(&s, e);
    add_shown(&s, e, rows.at[row].from, e->cursor);
  }
  str_add(&s, "\033[?7h\033[?25h");
  e->cursor_row = row - first;
  e->prompted = !first && !e->searching;
  e->at_end = e->cursor == e->text.n;
  e->drawn.n = 0;
  str_addn(&e->drawn, str_c(&e->text), e->text.n);
  send(e, &s);
  str_free(&s);
  vec_free(&rows);
}

// ---- the terminal ---------------------------------------------------------------------------------------------------

// asked: the signal that asks the program to end or to stop
static volatile sig_atomic_t resized, continued, asked;
static void on_resize(int sig) { (void)sig; resized = 1; }
static void on_continue(int sig) { (void)sig; continued = 1; }
static void on_ask(int sig) { asked = sig; }
static const int asking[] = {SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
_Static_assert(COUNT(asking) == COUNT(((edit *)0)->others), "each is kept");

// Bracketed paste: pastes have marks around them.
#define MARKS_ON "\033[?2004h"
#define MARKS_OFF "\033[?2004l"

// Every key is delivered unchanged; Ctrl-C and Ctrl-Z stay signals.
static void set_raw_keys(edit *e) {
  struct termios t = e->before;
  tty_be_quiet(&t);
  t.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
  t.c_cc[VQUIT] = _POSIX_VDISABLE;
  tcsetattr(e->in, TCSADRAIN, &t);
  send_text(e, MARKS_ON);
}

// Set between two lines: keys wait for the next line and are not echoed. Ctrl-S, Ctrl-Q and Ctrl-\ keep their effect.
static void set_quiet(edit *e) {
  struct termios t = e->before;
  tty_be_quiet(&t);
  tcsetattr(e->in, TCSADRAIN, &t);
}

// Takes over the terminal. From here on signals are blocked while a key is handled. A handler records those that would
// end the program without restoring the terminal; ignored signals stay ignored.
static void take_terminal(edit *e) {
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGINT);
  sigaddset(&held, SIGWINCH);
  sigaddset(&held, SIGCONT);
  for (size_t i = 0; i < COUNT(asking); i++) sigaddset(&held, asking[i]);
  sigprocmask(SIG_BLOCK, &held, &e->signals);
  for (size_t i = 0; i < COUNT(asking); i++) {
    struct sigaction note = {.sa_handler = on_ask};
    sigaction(asking[i], NULL, &e->others[i]);
    if (e->others[i].sa_handler != SIG_IGN) sigaction(asking[i], &note, NULL);
  }
  set_raw_keys(e);
}

static void give_keys_back(const edit *e) {
  send_text(e, MARKS_OFF);
  tcsetattr(e->in, TCSADRAIN, &e->before);
}

static void give_signals_back(const edit *e) {
  for (size_t i = 0; i < COUNT(asking); i++) sigaction(asking[i], &e->others[i], NULL);
  sigprocmask(SIG_SETMASK, &e->signals, NULL);
}

// Restores the terminal, and then lets the signal take effect: it ends the program, or stops it and its owner until
// they are continued.
static void obey(edit *e) {
  int sig = asked;
  asked = 0;
  send_text(e, "\r\n");
  give_keys_back(e);
  if (sig == SIGTSTP) kill(e->owner, SIGSTOP);
  give_signals_back(e);
  raise(sig == SIGTSTP ? SIGSTOP : sig);
  take_terminal(e);
  continued = 1;
}

// Reads one byte. 1; 0 at the end; -1 on Ctrl-C; 2 if wait_ms is over (negative: no limit). Ctrl-C is never lost: the
// signal is blocked while a key is handled and is delivered while this function waits for input. It discards what was
// typed before.
static int get_byte(edit *e, int wait_ms, unsigned char *out) {
  struct timespec limit = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L};
  while (e->at == e->n) {
    struct pollfd p = {.fd = e->in, .events = POLLIN};
    if (interrupted()) return -1;
    if (asked) obey(e);
    // other programs may have written meanwhile
    if (continued) { continued = 0; set_raw_keys(e); e->cursor_row = 0; resized = 1; }
    if (resized) { resized = 0; e->prompted = false; measure_width(e); draw_line(e); }
    int ready = ppoll(&p, 1, wait_ms < 0 ? NULL : &limit, &e->signals);
    if (!ready) return 2;
    if (ready < 0) { if (errno == EINTR) continue; return 0; }
    ssize_t got = read(e->in, e->buffer, sizeof e->buffer);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return 0;
    e->at = 0;
    e->n = (size_t)got;
  }
  *out = e->buffer[e->at++];
  return 1;
}

// ---- history --------------------------------------------------------------------------------------------------------

// A line of the file is an entry; in it newlines are written \n and backslashes are doubled.
static void add_entry(lines *l, const char *text, size_t n) {
  str s = {0};
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '\\' && i + 1 < n) str_addc(&s, text[++i] == 'n' ? '\n' : text[i]);
    else str_addc(&s, text[i]);
  }
  if (s.n) vec_push(l, s.at);
}

static void write_entry(FILE *f, const char *text) {
  for (; *text; text++) fputs(*text == '\n' ? "\\n" : *text == '\\' ? "\\\\" : (char[]){*text, 0}, f);
  fputc('\n', f);
}

// Opens a file that other users can never read, not even for a moment.
static FILE *open_for_owner(const char *path, int how) {
  int fd = path ? open(path, how | O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600) : -1;
  return fd < 0 ? NULL : fdopen(fd, "w");
}

// Rewrites the whole history under another name, and then renames it.
static void rewrite_history(const edit *e) {
  str path = {0};
  str_addf(&path, "%s.%ld.part", e->path, (long)getpid());
  FILE *f = open_for_owner(path.at, O_EXCL);
  for (size_t i = 0; f && i < e->history.n; i++) write_entry(f, e->history.at[i]);
  if (f && ((ferror(f) | fclose(f)) || rename(path.at, e->path))) unlink(path.at);
  str_free(&path);
}

// Removes an equal earlier entry; the caller adds the new one.
static void keep_once(lines *l, const char *text) {
  for (size_t i = 0; i < l->n; i++)
    if (!strcmp(l->at[i], text)) {
      free(l->at[i]);
      memmove(l->at + i, l->at + i + 1, (l->n - i - 1) * sizeof *l->at);
      l->n--;
      break;
    }
}

static void load_history(edit *e) {
  char *text = NULL;
  size_t n = 0, read_lines = 0;
  error err = {0};
  lines all = {0};
  if (read_file(e->path, READ_JSON, &text, &n, &err)) return;
  for (char *at = text, *end; at < text + n; at = end + 1, read_lines++) {
    if (!(end = memchr(at, '\n', (size_t)(text + n - at)))) end = text + n;
    add_entry(&all, at, (size_t)(end - at));
  }
  free(text);
  for (size_t i = all.n > HISTORY ? all.n - HISTORY : 0, k = 0; k < all.n; k++) {
    if (k < i) { free(all.at[k]); continue; }
    keep_once(&e->history, all.at[k]);
    vec_push(&e->history, all.at[k]);
  }
  vec_free(&all);
  if (read_lines > 2 * HISTORY) rewrite_history(e);
}

void edit_remember(edit *e, const char *text) {
  if (!*text) return;
  keep_once(&e->history, text);
  vec_push(&e->history, xstrdup(text));
  FILE *f = open_for_owner(e->path, O_APPEND);           // appended, so that two conversations at once both keep theirs
  if (f) { write_entry(f, text); fclose(f); }
}

static void browse(edit *e, size_t to) {
  if (e->browsed == e->history.n) { e->mine.n = 0; str_addn(&e->mine, e->text.at, e->text.n); }
  e->browsed = to;
  set_text(e, to == e->history.n ? str_c(&e->mine) : e->history.at[to]);
}

// Ctrl-R: finds the last entry before this one that contains the searched text.
static void search_back(edit *e, size_t before) {
  for (size_t i = before; i-- > 0;) {
    const char *found = strstr(e->history.at[i], str_c(&e->wanted));
    if (!found) continue;
    browse(e, i);
    e->cursor = (size_t)(found - e->history.at[i]);
    return;
  }
}

// ---- keys -----------------------------------------------------------------------------------------------------------

enum key {
  KEY_NONE,
  KEY_LEFT = 256,
  KEY_RIGHT,
  KEY_UP,
  KEY_DOWN,
  KEY_HOME,
  KEY_END,
  KEY_DELETE,
  KEY_WORD_LEFT,
  KEY_WORD_RIGHT,
  KEY_CUT_WORD,
  KEY_CUT_WORD_AFTER,
  KEY_NEWLINE,
  KEY_PASTE
};
enum { ESCAPE = 27 };
#define WITH_CTRL(c) ((c) & 31)

static const struct { const char *sent; enum key key;
} sequences[] = {{"[A", KEY_UP},
                 {"[B", KEY_DOWN},
                 {"[C", KEY_RIGHT},
                 {"[D", KEY_LEFT},
                 {"OA", KEY_UP},
                 {"OB", KEY_DOWN},
                 {"OC", KEY_RIGHT},
                 {"OD", KEY_LEFT},
                 {"[H", KEY_HOME},
                 {"[F", KEY_END},
                 {"OH", KEY_HOME},
                 {"OF", KEY_END},
                 {"[1~", KEY_HOME},
                 {"[4~", KEY_END},
                 {"[7~", KEY_HOME},
                 {"[8~", KEY_END},
                 {"[3~", KEY_DELETE},
                 {"[1;5D", KEY_WORD_LEFT},
                 {"[1;5C", KEY_WORD_RIGHT},
                 {"[1;3D", KEY_WORD_LEFT},
                 {"[1;3C", KEY_WORD_RIGHT},
                 {"[5D", KEY_WORD_LEFT},
                 {"[5C", KEY_WORD_RIGHT},
                 {"Od", KEY_WORD_LEFT},
                 {"Oc", KEY_WORD_RIGHT},
                 {"b", KEY_WORD_LEFT},
                 {"f", KEY_WORD_RIGHT},
                 {"d", KEY_CUT_WORD_AFTER},
                 {"[3;5~", KEY_CUT_WORD_AFTER},
                 {"\x7f", KEY_CUT_WORD},
                 {"\b", KEY_CUT_WORD},
                 {"\r", KEY_NEWLINE},
                 {"\n", KEY_NEWLINE},
                 {"[13;2u", KEY_NEWLINE},
                 {"[200~", KEY_PASTE}};

// Parses the rest of a key that begins with an escape; unknown sequences are no key.
static enum key escaped(edit *e) {
  char seen[32] = "";
  for (size_t n = 0; n < sizeof seen - 1;) {
    unsigned char c;
    if (get_byte(e, PATIENCE_MS, &c) != 1) return KEY_NONE;
    seen[n++] = (char)c;
    bool more = n == 1 ? c == '[' || c == 'O' : seen[0] == '[' && (c < 0x40 || c > 0x7e);
    if (!more) break;
  }
  for (size_t i = 0; i < COUNT(sequences); i++) if (!strcmp(sequences[i].sent, seen)) return sequences[i].key;
  return KEY_NONE;
}

// Reads a paste up to its end mark, as one text; a text that is too long is dropped.
static int paste(edit *e) {
  static const char end[] = "\033[201~";
  enum { MARK = sizeof end - 1 };
  str s = {0};
  size_t seen = 0;                                               // bytes of the end mark seen so far
  int got;
  unsigned char c;
  while (seen < MARK && (got = get_byte(e, -1, &c)) == 1) {
    seen = c == (unsigned char)end[seen] ? seen + 1 : c == ESCAPE;
    if (s.n < LONGEST + MARK) str_addc(&s, (char)c);
  }
  if (seen == MARK && s.n < LONGEST + MARK) put_in(e, s.at, s.n - MARK);
  str_free(&s);
  return got;
}

// Inserts a character and all that came with it, so that the line is checked once for all of them.
static void type_characters(edit *e, unsigned char first) {
  str s = {0};
  for (bool more = true; more; first = more ? e->buffer[e->at++] : 0) {
    size_t n = 1, all = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    unsigned char c;
    str_addc(&s, (char)first);
    for (; n < all && get_byte(e, PATIENCE_MS, &c) == 1; n++) {
      if ((c & 0xC0) != 0x80) { e->at--; break; }
      str_addc(&s, (char)c);
    }
    more = e->at < e->n && e->buffer[e->at] >= ' ' && e->buffer[e->at] != 127;
  }
  if (e->searching) {
    clean_pasted(&e->wanted, s.at, s.n);
    search_back(e, e->history.n);
  } else put_in(e, s.at, s.n);
  str_free(&s);
}

// Moves to the line above or below, by as many graphemes as before; at the edge of the text to another entry.
static void go_line(edit *e, bool up) {
  size_t begin = line_begin(e, e->cursor), n = 0;
  for (size_t at = begin; at < e->cursor; at = sign_after(e, at)) n++;
  if (up ? begin == 0 : end_of_line(e, e->cursor) == e->text.n) {
    if (up && e->browsed) browse(e, e->browsed - 1);
    else if (!up && e->browsed < e->history.n) browse(e, e->browsed + 1);
    return;
  }
  e->cursor = up ? line_begin(e, begin - 1) : end_of_line(e, e->cursor) + 1;
  for (size_t stop = end_of_line(e, e->cursor); n-- && e->cursor < stop;) e->cursor = sign_after(e, e->cursor);
}

static void move(edit *e, int key) {
  switch (key) {
  case KEY_LEFT: case WITH_CTRL('B'): e->cursor = sign_before(e, e->cursor); break;
  case KEY_RIGHT: case WITH_CTRL('F'): e->cursor = sign_after(e, e->cursor); break;
  case KEY_UP: case WITH_CTRL('P'): go_line(e, true); break;
  case KEY_DOWN: case WITH_CTRL('N'): go_line(e, false); break;
  case KEY_HOME: case WITH_CTRL('A'): e->cursor = line_begin(e, e->cursor); break;
  case KEY_END: case WITH_CTRL('E'): e->cursor = end_of_line(e, e->cursor); break;
  case KEY_WORD_LEFT: e->cursor = word_before(e, e->cursor); break;
  case KEY_WORD_RIGHT: e->cursor = word_after(e, e->cursor); break;
  case KEY_DELETE: replace_text(e, e->cursor, sign_after(e, e->cursor), "", 0); break;
  case 127: case WITH_CTRL('H'): replace_text(e, sign_before(e, e->cursor), e->cursor, "", 0); break;
  case KEY_CUT_WORD: cut_text(e, word_before(e, e->cursor), e->cursor); break;
  case KEY_CUT_WORD_AFTER: cut_text(e, e->cursor, word_after(e, e->cursor)); break;
  case WITH_CTRL('W'): {
    size_t from = e->cursor;
    while (from && strchr(" \t\n", e->text.at[from - 1])) from--;
    while (from && !strchr(" \t\n", e->text.at[from - 1])) from--;
    cut_text(e, from, e->cursor);
    break;
  }
  case WITH_CTRL('K'): cut_text(e, e->cursor, end_of_line(e, e->cursor)); break;
  case WITH_CTRL('U'): cut_text(e, line_begin(e, e->cursor), e->cursor); break;
  case WITH_CTRL('Y'): put_in(e, str_c(&e->cut), e->cut.n); break;
  case WITH_CTRL('L'): send_text(e, "\033[H\033[2J"); e->cursor_row = 0; e->prompted = false; break;
  case KEY_NEWLINE: put_in(e, "\n", 1); break;
  default: break;
  }
}

// Handles a key during a search. Ctrl-R searches further back; a key that is no text ends the search and keeps its own
// meaning. True: the key is done.
static bool search_key(edit *e, int key) {
  if (key == WITH_CTRL('R')) {
    if (e->searching) search_back(e, e->browsed);
    else { e->searching = true; e->prompted = false; e->wanted.n = 0; str_add(&e->wanted, ""); }
    return true;
  }
  if (!e->searching) return false;
  if (key == 127 || key == WITH_CTRL('H')) {
    while (e->wanted.n && (e->wanted.at[--e->wanted.n] & 0xC0) == 0x80) continue;
    if (e->wanted.at) e->wanted.at[e->wanted.n] = 0;
    return true;
  }
  e->searching = e->prompted = false;
  if (key == WITH_CTRL('G')) { browse(e, e->history.n); return true; }
  return key == KEY_NONE;
}

// ---- completion -----------------------------------------------------------------------------------------------------

// Prints the words below the line; the line is then redrawn below them.
static void show_words(edit *e, const char *begin, size_t n) {
  str s = {0}, names = {0};
  const char *word;
  for (size_t i = 0; (word = e->words(i)); i++)
    if (!strncmp(word, begin, n)) str_addf(&names, "%s/%s", names.n ? "  " : "", word);
  sign_wrap(&s, str_c(&names), e->columns - 1, 0);
  draw_line(e);
  for (const char *at = str_c(&s), *end; *at; at = *end ? end + 1 : end) {
    end = at + strcspn(at, "\n");
    str line = {0};
    str_add(&line, "\r\n");
    str_addn(&line, at, (size_t)(end - at));
    send(e, &line);
    str_free(&line);
  }
  send_text(e, "\r\n");
  e->cursor_row = 0;
  e->prompted = false;
  str_free(&s);
  str_free(&names);
}

// Tab after a / and the beginning of a word: completes the common prefix of all matching words, or lists them.
static void complete_command(edit *e) {
  size_t n = strcspn(e->text.at, " \n"), common = 0, found = 0;
  if (e->text.at[0] != '/' || e->cursor != n) return;
  const char *begin = e->text.at + 1, *first = NULL, *word;
  n--;
  for (size_t i = 0; (word = e->words(i)); i++) {
    if (strncmp(word, begin, n)) continue;
    if (!found++) { first = word; common = strlen(word); }
    while (strncmp(word, first, common)) common--;
  }
  if (found > 1 && common == n) show_words(e, begin, n);
  else if (found) {
    replace_text(e, 1, n + 1, first, common);
    if (found == 1 && e->cursor == e->text.n) put_in(e, " ", 1);
  }
}

// ---- a line ---------------------------------------------------------------------------------------------------------

// Handles keys until the line is complete.
static enum edit_result edit_keys(edit *e) {
  for (;;) {
    unsigned char c;
    if (e->at == e->n) draw_line(e);
    int got = get_byte(e, -1, &c);
    if (got != 1) return got < 0 ? EDIT_INTERRUPTED : EDIT_END;
    if (c >= ' ' && c != 127) { type_characters(e, c); continue; }
    int key = c == ESCAPE ? (int)escaped(e) : c;
    if (interrupted()) return EDIT_INTERRUPTED;
    if (search_key(e, key)) continue;
    if (key == '\r' || key == '\n') return EDIT_LINE;
    if (key == KEY_PASTE) { if ((got = paste(e)) != 1) return got < 0 ? EDIT_INTERRUPTED : EDIT_END; }
    else if (key == '\t') complete_command(e);
    else if (key == WITH_CTRL('D') && !e->text.n) return EDIT_END;
    else move(e, key == WITH_CTRL('D') ? (int)KEY_DELETE : key);
  }
}

// ---- setup and cleanup ----------------------------------------------------------------------------------------------

// A signal that ends the program between two lines: restores the terminal, unless a shell has taken it meanwhile.
static const edit *ending;
static void on_end(int sig) {
  if (tcgetpgrp(ending->in) == getpgrp()) {
    tcsetattr(ending->in, TCSANOW, &ending->before);
    if (write(ending->out, MARKS_OFF, sizeof MARKS_OFF - 1) < 0) return;
  }
  signal(sig, SIG_DFL);
  raise(sig);
}

edit *edit_new(int in, int out, const char *history, pid_t owner, edit_words words) {
  edit *e = xcalloc(1, sizeof *e);
  if (tcgetattr(in, &e->before)) die("a terminal without settings: %s", strerror(errno));
  ending = e;
  signal(SIGTERM, on_end);
  e->words = words;
  e->in = in;
  e->out = out;
  e->owner = owner;
  e->path = history ? xstrdup(history) : NULL;
  if (e->path) load_history(e);
  struct sigaction resize = {.sa_handler = on_resize}, again = {.sa_handler = on_continue};
  sigaction(SIGWINCH, &resize, NULL);
  sigaction(SIGCONT, &again, NULL);
  set_quiet(e);
  send_text(e, MARKS_ON);
  return e;
}

enum edit_result edit_line(edit *e, const char *prompt, const char *color, const char *text, str *out) {
  e->prompt = prompt;
  e->color = color;
  e->browsed = e->history.n;
  e->searching = e->prompted = false;
  e->cursor_row = 0;
  e->widths.n = 0;
  e->text.n = e->cursor = 0;
  str_add(&e->text, "");
  put_in(e, text, strlen(text));
  take_terminal(e);
  measure_width(e);
  enum edit_result result = edit_keys(e);
  if (e->searching) e->searching = e->prompted = false;
  e->cursor = e->text.n;
  if (result != EDIT_INTERRUPTED) draw_line(e);
  if (result == EDIT_LINE) send_text(e, "\r\n");
  set_quiet(e);
  give_signals_back(e);
  if (result == EDIT_INTERRUPTED) e->at = e->n = 0;
  if (result != EDIT_LINE) return result;
  str_addn(out, e->text.at, e->text.n);
  str_addc(out, '\n');
  return EDIT_LINE;
}
