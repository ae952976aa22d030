// The process that reads the user's input: see typed.h.
//
// It is a child of the process with the model, so that the command's exit status, signals and figures are those of the
// model's process. While a line is typed, the parent forwards signals that only it receives: the child restores the
// terminal first, and then both take the signal's effect.
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
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include "app/app.h"
#include "app/typed_reader.h"
#include "base/message.h"
#include "base/tty.h"

enum { ASK_LINE, ASK_READ, ASK_WRITE };
// bytes that follow: of the prompt; of the initial text, or of the file to write; file: number of the file to read
struct ask { uint64_t what, prompt, text, file; };
// enum input, or 1 for an error; bytes of the line, file or error; number of spans that follow them
struct answer { uint64_t got, n, spans; };

struct typed { int fd; pid_t child; bool person, editing; VEC(struct span) dropped; };

// ---------------------------------------------------------------------------------------------------------- the child

struct reader { int fd; typed_reader of; };

static void start_editing(typed_reader *r) {
  const char *name = ttyname(STDIN_FILENO);   // opened again for non-blocking reads
  int in = name ? open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
  char *history = typed_history_made();
  r->edit = edit_new(in < 0 ? STDIN_FILENO : in, STDOUT_FILENO, history, getppid(), r->how.words);
  free(history);
}

static void send_answer(struct reader *r, const struct answer *a, const char *text, const struct span *spans) {
  struct iovec parts[] = {{(void *)(uintptr_t)a, sizeof *a},
                          {(char *)(uintptr_t)text, a->n},
                          {(void *)(uintptr_t)spans, a->spans * sizeof *spans}};
  if (!message_send(r->fd, parts, COUNT(parts))) _exit(0);
}

static void send_line(struct reader *r, const char *prompt, const char *begin) {
  str line = {0};
  enum input got = reader_message(&r->of, prompt, begin, &line);
  bool dropped = reader_note_files(&r->of, *begin || got != INPUT_TEXT ? "" : str_c(&line));
  VEC(struct span) spans = {0};
  for (size_t i = 0; dropped && i < r->of.to_read.n; i++)
    vec_push(&spans, ((struct span){r->of.to_read.at[i].from, r->of.to_read.at[i].n}));
  send_answer(r, &(struct answer){got, line.n, spans.n}, line.at, spans.at);
  vec_free(&spans);
  str_free(&line);
}

static char *receive_text(const struct reader *r, uint64_t n) {
  char *text = xmalloc(n + 1);
  if (n > SIZE_MAX - 1 || !message_receive(r->fd, text, n)) _exit(0);
  text[n] = 0;
  return text;
}

// Between two lines Ctrl-Z stops only the parent. While a line is edited, edit.c handles it and restores the terminal
// first.
static void pass_over(int sig) { (void)sig; }

static bool is_ignored(int sig) {
  struct sigaction now;
  return !sigaction(sig, NULL, &now) && now.sa_handler == SIG_IGN;
}

NORETURN static void be_the_reader(struct reader *r, pid_t parent) {
  struct ask q;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(0);
  sandbox_signals(parent, true);
  if (r->of.how.editing && !is_ignored(SIGTSTP)) signal(SIGTSTP, pass_over);
  if (r->of.how.person) interrupt_note();
  else signal(SIGINT, SIG_IGN);
  if (r->of.how.editing) start_editing(&r->of);
  while (message_receive(r->fd, &q, sizeof q)) {
    char *prompt = receive_text(r, q.prompt), *text = receive_text(r, q.text), *found = NULL;
    size_t n = 0;
    error err = {0};
    if (r->of.how.person) interrupt_note();
    if (q.what == ASK_LINE) send_line(r, prompt, text);
    else {
      int failed =
        q.what == ASK_READ ? reader_read(&r->of, q.file, &found, &n, &err) : reader_write(&r->of, text, q.text, &err);
      if (failed) send_answer(r, &(struct answer){1, strlen(err.text), 0}, err.text, NULL);
      else send_answer(r, &(struct answer){0, n, 0}, found, NULL);
    }
    free(prompt);
    free(text);
    free(found);
  }
  raise(SIGTERM);              // the other process has ended
  _exit(0);
}

// ------------------------------------------------------------------------------ the parent, while no line is typed

// The terminal does not echo between lines (edit.h): a signal that stops or ends the parent restores it first.
static struct termios given;
static void be_as_given(void) {
  static const char off[] = "\033[?2004l";
  if (tcgetpgrp(STDIN_FILENO) != getpgrp()) return;
  tcsetattr(STDIN_FILENO, TCSANOW, &given);
  if (write(STDOUT_FILENO, off, sizeof off - 1) < 0) return;
}

static void on_leave(int sig) {
  be_as_given();
  signal(sig, SIG_DFL);
  raise(sig);
}

static void on_stop(int sig) {
  (void)sig;
  be_as_given();
  raise(SIGSTOP);
}

static void on_return(int sig) {
  static const char on[] = "\033[?2004h";
  struct termios quiet = given;
  (void)sig;
  if (tcgetpgrp(STDIN_FILENO) != getpgrp()) return;
  tty_be_quiet(&quiet);
  tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
  if (write(STDOUT_FILENO, on, sizeof on - 1) < 0) return;
}

static void watch_terminal(void) {
  const struct { int sig; void (*on)(int sig);
  } all[] = {{SIGTERM, on_leave}, {SIGHUP, on_leave}, {SIGQUIT, on_leave}, {SIGTSTP, on_stop}, {SIGCONT, on_return}};
  for (size_t i = 0; i < COUNT(all); i++) {
    struct sigaction a = {.sa_handler = all[i].on, .sa_flags = SA_RESTART};
    if (!is_ignored(all[i].sig)) sigaction(all[i].sig, &a, NULL);
  }
  interrupt_leave_by(be_as_given);
}

static typed *no_reader(error *err) {
  error_set(err, "the process that reads what is typed cannot be made: %s", strerror(errno));
  return NULL;
}

typed *typed_new(const struct typed_how *how, error *err) {
  int fd[2];
  if (how->editing && tcgetattr(STDIN_FILENO, &given)) return no_reader(err);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd)) return no_reader(err);
  pid_t parent = getpid(), child = fork();
  if (!child) {
    close(fd[0]);
    be_the_reader(&(struct reader){.fd = fd[1], .of = {.how = *how}}, parent);
  }
  close(fd[1]);
  sandbox_signals(child < 0 ? 0 : child, false);
  if (child < 0) { no_reader(err); close(fd[0]); return NULL; }
  typed *t = xcalloc(1, sizeof *t);
  *t = (typed){.fd = fd[0], .child = child, .person = how->person, .editing = how->editing};
  if (how->editing) watch_terminal();
  return t;
}

static int wait_for_reader(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

// The child may be waiting for a line or be stopped, so it gets SIGTERM and SIGCONT.
void typed_free(typed *t) {
  if (!t) return;
  close(t->fd);
  if (t->child) {
    kill(t->child, SIGTERM);
    kill(t->child, SIGCONT);
    wait_for_reader(t->child);
  }
  vec_free(&t->dropped);
  free(t);
}

// --------------------------------------------------------------------------------------------------------- the parent

// Signals forwarded while a line is typed; SIGINT also while a file is read.
static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT};
static volatile pid_t reader_pid;
static void hand_on(int sig) {
  if (reader_pid > 0) kill(reader_pid, sig);
}

// Receives an answer; its text goes to *text, with a NUL. False: the child has ended.
static bool receive_answer(typed *t, struct answer *a, char **text) {
  struct pollfd ready = {.fd = t->fd, .events = POLLIN};
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  *a = (struct answer){.got = INPUT_INTERRUPTED};
  *text = xcalloc(1, 1);
  // Ctrl-C is blocked except within ppoll, so that none is missed
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  bool left = false;
  while (!(left = !t->person && interrupted()) && ppoll(&ready, 1, NULL, &before) < 0 && errno == EINTR) continue;
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (left) return true;
  if (!message_receive(t->fd, a, sizeof *a) || a->n > SIZE_MAX - 1) return false;
  free(*text);
  *text = xmalloc(a->n + 1);
  (*text)[a->n] = 0;
  if (!message_receive(t->fd, *text, a->n)) return false;
  for (uint64_t i = 0; i < a->spans; i++) {
    struct span s;
    if (!message_receive(t->fd, &s, sizeof s) || s.from > a->n || s.n > a->n - s.from) return false;
    vec_push(&t->dropped, s);
  }
  return true;
}

// Ends like the child: a signal that ended it while it had the terminal was meant for both. Otherwise the terminal is
// restored and an error printed.
static void end_as_the_child(typed *t) {
  int status = wait_for_reader(t->child), sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  t->child = reader_pid = 0;
  for (size_t i = 0; i < COUNT(handed_on); i++) if (sig == handed_on[i]) raise(sig);
  if (t->editing) {
    be_as_given();
    if (write(STDOUT_FILENO, "\r\n", 2) < 0) return;
  }
  failed("the process that reads what is typed has ended (%s %d)", sig ? "signal" : "status",
         sig ? sig : WEXITSTATUS(status));
}

static struct answer ask(typed *t, struct ask q, const char *prompt, const char *text, char **out) {
  struct iovec parts[] = {
    {&q, sizeof q}, {(char *)(uintptr_t)prompt, q.prompt}, {(char *)(uintptr_t)text, q.text}};
  struct sigaction others[COUNT(handed_on)], on = {.sa_handler = hand_on};
  struct answer a = {0};
  size_t n = !t->person || !t->child ? 0 : t->editing && q.what == ASK_LINE ? COUNT(handed_on) : 1;
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
  t->dropped.n = 0;
  struct answer a = ask(t, (struct ask){ASK_LINE, strlen(prompt), strlen(begin), 0}, prompt, begin, &text);
  out->n = 0;
  str_addn(out, text ? text : "", a.n);
  free(text);
  return (enum input)a.got;
}

// 0, or -1 and an error: the child's text, or that there is no child.
static int file_asked(typed *t, struct ask q, const char *text, char **found, size_t *n, error *err) {
  struct answer a = ask(t, q, "", text, found);
  *n = a.n;
  if (!a.got) return 0;
  error_set(err, "%s", a.n ? *found : "interrupted");
  free(*found);
  return -1;
}

const struct span *typed_dropped(const typed *t, size_t *n) {
  *n = t->dropped.n;
  return t->dropped.at;
}

int typed_read(typed *t, size_t i, char **text, size_t *n, error *err) {
  *text = NULL;
  return file_asked(t, (struct ask){.what = ASK_READ, .file = i}, "", text, n, err);
}

int typed_write(typed *t, const char *text, size_t n, error *err) {
  char *none = NULL;
  size_t n_none;
  if (file_asked(t, (struct ask){.what = ASK_WRITE, .text = n}, text, &none, &n_none, err)) return -1;
  free(none);
  return 0;
}
