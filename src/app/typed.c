// The process that reads what people type: see typed.h.
//
// It is a child of the one with the model, so that signals, the exit status and the figures of that one are those of
// the command. Signals that come to the parent alone while a line is typed are handed on: the child gives the terminal
// back first, and then both do what the signal asks for.
#define _GNU_SOURCE
#include "app/typed.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include "app/app.h"
#include "app/edit.h"
#include "base/env.h"
#include "base/message.h"
#include "base/newfile.h"

enum { LONGEST = 1 << 24 };
enum { ASK_LINE, ASK_READ, ASK_WRITE };
struct ask { uint64_t what, prompt, text; };     // bytes that follow: of the prompt; of its beginning, or of the file
struct answer { uint64_t got, n; };              // enum input, or 1 where it failed; bytes of the line, file or error

struct typed { int fd; pid_t child; bool editing; struct termios before; };

// ---------------------------------------------------------------------------------------------------------- the child

struct reader {
  int fd;
  bool editing;
  const char *color;
  edit *edit;
  char *file;                // what the last line names, until it was opened
  bool reads, writes;
};

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

static void start_editing(struct reader *r) {
  const char *name = ttyname(STDIN_FILENO);   // once more, for reading that does not wait
  int in = name ? open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
  char *history = history_path();
  r->edit = edit_new(in < 0 ? STDIN_FILENO : in, STDOUT_FILENO, history, getppid());
  free(history);
}

// One line with its newline, if it has one.
static enum input read_line(struct reader *r, const char *prompt, const char *begin, str *out) {
  if (r->editing) {
    enum edit_result got = edit_line(r->edit, prompt, r->color, begin, out);
    return got == EDIT_LINE ? INPUT_TEXT : got == EDIT_END ? INPUT_END : INPUT_INTERRUPTED;
  }
  char *line = NULL;
  size_t cap = 0;
  ssize_t n = getline(&line, &cap, stdin);
  if (n > 0) str_addn(out, line, (size_t)n);
  free(line);
  return n > 0 ? INPUT_TEXT : INPUT_END;
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

static enum input read_message(struct reader *r, const char *prompt, const char *begin, str *out) {
  bool block = false;
  str_add(out, "");
  for (const char *shown = prompt;; shown = "... ", begin = "") {
    size_t from = out->n;
    enum input got = read_line(r, shown, begin, out);
    if (got == INPUT_INTERRUPTED) { out->n = 0; return got; }
    if (got == INPUT_END) return out->n ? INPUT_TEXT : INPUT_END;
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

// Notes which file a line names, and what may be done with it.
static void note_file(struct reader *r, const char *line) {
  size_t word = strcspn(line, " ");
  free(r->file);
  r->file = strchr(line, '\n') ? xstrdup("") : xstrdup(line + word + strspn(line + word, " "));
  bool named = word == 5 && *r->file;
  r->reads = named && (!memcmp(line, "/read", 5) || !memcmp(line, "/load", 5));
  r->writes = named && !memcmp(line, "/save", 5);
}

static void send_answer(struct reader *r, uint64_t got, const char *text, size_t n) {
  struct answer a = {got, n};
  struct iovec parts[] = {{&a, sizeof a}, {(char *)(uintptr_t)text, n}};
  if (!message_send(r->fd, parts, COUNT(parts))) _exit(0);
}

static void send_line(struct reader *r, const char *prompt, const char *begin) {
  str line = {0};
  enum input got = read_message(r, prompt, begin, &line);
  note_file(r, *begin || got != INPUT_TEXT ? "" : str_c(&line));
  send_answer(r, got, line.at, line.n);
  str_free(&line);
}

static int read_named_file(struct reader *r, char **text, size_t *n, error *err) {
  if (!r->reads) return error_set(err, "no file was named to be read");
  r->reads = false;
  return strcmp(r->file, "-") ? read_file(r->file, text, n, err) : error_set(err, "- is no file");
}

static int write_named_file(struct reader *r, const char *text, size_t n, error *err) {
  newfile *f = NULL;
  if (!r->writes) return error_set(err, "no file was named to be written");
  r->writes = false;
  if (!strcmp(r->file, "-")) return error_set(err, "- is no file");
  if (!newfile_open(r->file, &f, err) && !newfile_add(f, text, n, err)) return newfile_commit(f, err);
  newfile_discard(f);
  return -1;
}

static char *receive_text(const struct reader *r, uint64_t n) {
  char *text = xmalloc(n + 1);
  if (n > SIZE_MAX - 1 || !message_receive(r->fd, text, n)) _exit(0);
  text[n] = 0;
  return text;
}

// Where lines are edited Ctrl-Z is for the parent, but while one is typed: then the keys are given back first (edit.c).
static void pass_over(int sig) { (void)sig; }

static bool is_ignored(int sig) {
  struct sigaction now;
  return !sigaction(sig, NULL, &now) && now.sa_handler == SIG_IGN;
}

NORETURN static void be_the_reader(struct reader *r, pid_t parent) {
  struct ask q;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(0);
  if (r->editing && !is_ignored(SIGTSTP)) signal(SIGTSTP, pass_over);
  if (r->editing) { interrupt_note(); start_editing(r); }
  else signal(SIGINT, SIG_IGN);
  while (message_receive(r->fd, &q, sizeof q)) {
    char *prompt = receive_text(r, q.prompt), *text = receive_text(r, q.text), *found = NULL;
    size_t n = 0;
    error err = {0};
    if (r->editing) interrupt_note();
    if (q.what == ASK_LINE) send_line(r, prompt, text);
    else {
      int failed = q.what == ASK_READ ? read_named_file(r, &found, &n, &err) : write_named_file(r, text, q.text, &err);
      if (failed) send_answer(r, 1, err.text, strlen(err.text));
      else send_answer(r, 0, found, n);
    }
    free(prompt);
    free(text);
    free(found);
  }
  _exit(0);
}

static typed *no_reader(error *err) {
  error_set(err, "the process that reads what is typed cannot be made: %s", strerror(errno));
  return NULL;
}

typed *typed_new(bool editing, const char *color, error *err) {
  int fd[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd)) return no_reader(err);
  pid_t parent = getpid(), child = fork();
  if (!child) {
    close(fd[0]);
    be_the_reader(&(struct reader){.fd = fd[1], .editing = editing, .color = color}, parent);
  }
  close(fd[1]);
  if (child < 0) { no_reader(err); close(fd[0]); return NULL; }
  typed *t = xcalloc(1, sizeof *t);
  *t = (typed){.fd = fd[0], .child = child, .editing = editing};
  tcgetattr(STDIN_FILENO, &t->before);
  return t;
}

static int wait_for_reader(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

// It may be waiting for a line that nobody wants any more, or be stopped.
void typed_free(typed *t) {
  if (!t) return;
  close(t->fd);
  if (t->child) {
    kill(t->child, SIGTERM);
    kill(t->child, SIGCONT);
    wait_for_reader(t->child);
  }
  free(t);
}

// --------------------------------------------------------------------------------------------------------- the parent

// While a line is typed; the first one also while a file is read.
static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT};
static volatile pid_t reader_pid;
static void hand_on(int sig) {
  if (reader_pid > 0) kill(reader_pid, sig);
}

// An answer, where its text is wanted at *text with a NUL behind it. False: the child has ended.
static bool receive_answer(typed *t, struct answer *a, char **text) {
  struct pollfd ready = {.fd = t->fd, .events = POLLIN};
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  a->got = INPUT_INTERRUPTED;
  a->n = 0;
  *text = xcalloc(1, 1);
  // Ctrl-C comes only while this waits, so that none is missed
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  bool left = false;
  while (!(left = !t->editing && interrupted()) && ppoll(&ready, 1, NULL, &before) < 0 && errno == EINTR) continue;
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (left) return true;
  if (!message_receive(t->fd, a, sizeof *a) || a->n > SIZE_MAX - 1) return false;
  free(*text);
  *text = xmalloc(a->n + 1);
  (*text)[a->n] = 0;
  return message_receive(t->fd, *text, a->n);
}

// What asked the child to end while it had the terminal was meant for both; otherwise it left the terminal as it was.
static void end_as_the_child(typed *t) {
  int status = wait_for_reader(t->child), sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  t->child = reader_pid = 0;
  for (size_t i = 0; i < COUNT(handed_on); i++) if (sig == handed_on[i]) raise(sig);
  if (t->editing) {
    tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
    static const char off[] = "\033[?2004l\r\n";
    if (write(STDOUT_FILENO, off, sizeof off - 1) < 0) return;
  }
  failed("the process that reads what is typed has ended (%s %d)", sig ? "signal" : "status",
         sig ? sig : WEXITSTATUS(status));
}

static struct answer ask(typed *t, struct ask q, const char *prompt, const char *text, char **out) {
  struct iovec parts[] = {
    {&q, sizeof q}, {(char *)(uintptr_t)prompt, q.prompt}, {(char *)(uintptr_t)text, q.text}};
  struct sigaction others[COUNT(handed_on)], on = {.sa_handler = hand_on};
  struct answer a = {0};
  size_t n = !t->editing || !t->child ? 0 : q.what == ASK_LINE ? COUNT(handed_on) : 1;
  reader_pid = t->child;
  for (size_t i = 0; i < n; i++) {
    sigaction(handed_on[i], NULL, &others[i]);
    if (others[i].sa_handler != SIG_IGN) sigaction(handed_on[i], &on, NULL);
  }
  bool whole = t->child && message_send(t->fd, parts, COUNT(parts)) && receive_answer(t, &a, out);
  for (size_t i = 0; i < n; i++) sigaction(handed_on[i], &others[i], NULL);
  if (whole) return a;
  if (t->child) end_as_the_child(t);
  return (struct answer){.got = INPUT_BROKEN};
}

enum input typed_line(typed *t, const char *prompt, const char *begin, str *out) {
  char *text = NULL;
  struct answer a = ask(t, (struct ask){ASK_LINE, strlen(prompt), strlen(begin)}, prompt, begin, &text);
  out->n = 0;
  str_addn(out, text ? text : "", a.n);
  free(text);
  return (enum input)a.got;
}

// 0, or -1 and why: the child's text, or that there is no child.
static int file_asked(typed *t, struct ask q, const char *text, char **found, size_t *n, error *err) {
  struct answer a = ask(t, q, "", text, found);
  *n = a.n;
  if (!a.got) return 0;
  error_set(err, "%s", a.n ? *found : "interrupted");
  free(*found);
  return -1;
}

int typed_read(typed *t, char **text, size_t *n, error *err) {
  *text = NULL;
  return file_asked(t, (struct ask){.what = ASK_READ}, "", text, n, err);
}

int typed_write(typed *t, const char *text, size_t n, error *err) {
  char *none = NULL;
  size_t n_none;
  if (file_asked(t, (struct ask){.what = ASK_WRITE, .text = n}, text, &none, &n_none, err)) return -1;
  free(none);
  return 0;
}
