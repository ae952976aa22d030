// Runs LLVM in a child process: see compiler.h.
//
// The parent has a socket for each compile that may run at once, and the child has a thread for each. Requests and
// answers are whole messages of lengths and bytes. The child is forked from a process with threads; glibc supports this
// for a child that goes on running, since fork leaves its locks consistent. Areas of memory.h are not inherited, so
// forking is cheap for any size of model.
//
// When the child ends, every running compile sees the end of its stream. The first one collects the exit status; the
// last one closes the sockets; the next compile makes a new child. A child that exits because it is idle is no error:
// its compiles start again. They also start again once after any other exit, since the system may have killed an idle
// child.
#define _GNU_SOURCE
#include "device/compiler.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/child.h"
#include "base/confine.h"
#include "base/env.h"
#include "base/message.h"

enum { NO_THREAD = 4 /* exit status of the child */ };
enum { MAGIC = 0x43544657, OBJECT_MAX = 256 << 20, TEXT_MAX = 1 << 30 };

// Is assembly wanted? Then the byte counts of the texts, including their NULs.
struct request { uint32_t magic, assembly, triple, ir, cpu, features; };
// Byte counts of the parts that follow; texts have no NUL.
struct reply { uint32_t magic, failed, object, assembly, error; };

struct compiler {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int n, n_busy;
  double idle_s;
  int *fd;                     // this side's sockets
  bool *busy;
  pid_t child;                 // 0: none
  // ended: the child has exited, and some of its compiles have not noticed; inside: compile in this process
  bool ended, inside;
  bool idle;                   // it exited because it was idle
  error why;                   // how it ended otherwise
  cpu_set_t cpus;
  bool has_cpus;
};

// ----------------------------------------------------------------------------------------------------------- the child

static struct { int *fd; double idle_s; atomic_int active; _Atomic double last; } own;       // of the child only

static char *recv_text(int fd, uint32_t n) {
  char *text = n && n <= TEXT_MAX ? malloc(n) : NULL;
  if (!text || !message_receive(fd, text, n) || text[n - 1]) _exit(3);
  return text;
}

static void answer(int fd, const struct request *q) {
  char *triple = recv_text(fd, q->triple), *ir = recv_text(fd, q->ir), *cpu = recv_text(fd, q->cpu),
       *features = recv_text(fd, q->features);
  bytes object = {0};
  str assembly = {0};
  error err = {0};
  bool failed =
    llvm_compile_for(*triple ? triple : NULL, ir, cpu, features, &object, q->assembly ? &assembly : NULL, &err) != 0;
  struct reply r = {MAGIC, failed, (uint32_t)object.n, (uint32_t)assembly.n, (uint32_t)strlen(err.text)};
  if (object.n > OBJECT_MAX || assembly.n > TEXT_MAX) _exit(3);
  struct iovec part[] = {{&r, sizeof r}, {object.at, object.n}, {assembly.at, assembly.n}, {err.text, r.error}};
  if (!message_send(fd, part, COUNT(part))) _exit(0);
  bytes_free(&object);
  str_free(&assembly);
  free(triple); free(ir); free(cpu); free(features);
}

// Serves the requests of one socket until the parent closes it.
static void *serve(void *p) {
  int i = (int)(intptr_t)p, fd = own.fd[i];
  for (struct request q;;) {
    struct pollfd what = {.fd = fd, .events = POLLIN};
    while (!i && poll(&what, 1, (int)(own.idle_s * 250) + 1) <= 0)        // the first thread also checks the idle time
      if (!atomic_load(&own.active) && now_s() - atomic_load(&own.last) > own.idle_s) _exit(0);
    if (!message_receive(fd, &q, sizeof q) || q.magic != MAGIC) _exit(0);
    atomic_fetch_add(&own.active, 1);
    answer(fd, &q);
    atomic_store(&own.last, now_s());
    atomic_fetch_sub(&own.active, 1);
  }
}

// The parent has closed or shut down the first socket: running compiles are no longer needed. The parent cannot kill
// this process, because it may signal only itself (confine.h).
static void *end_with_the_parent(void *p) {
  (void)p;
  struct pollfd what = {.fd = own.fd[0], .events = POLLRDHUP};
  while (poll(&what, 1, -1) <= 0) continue;
  _exit(0);
}

NORETURN static void be_the_child(const compiler *c, int *fd) {
  child_begin("weft-compiler", fd, c->n);
  if (c->has_cpus) sched_setaffinity(0, sizeof c->cpus, &c->cpus);
  own.fd = fd;
  own.idle_s = c->idle_s;
  atomic_store(&own.last, now_s());
  str version = {0};
  error err = {0};
  pthread_t id;
  if (pthread_create(&id, NULL, end_with_the_parent, NULL)) _exit(NO_THREAD);
  llvm_version(&version, &err);        // loads LLVM; if that fails, every answer gives the reason
  for (int i = 1; i < c->n; i++)
    if (pthread_create(&id, NULL, serve, (void *)(intptr_t)i)) _exit(NO_THREAD);
#ifndef WEFT_SANITIZE                  // sanitizer runtimes need more system calls
  confine(CONFINE_COMPUTING, false);
#endif
  serve(0);
  _exit(0);
}

// ---------------------------------------------------------------------------------------------------------- the parent

compiler *compiler_new(int n, double idle_s) {
  compiler *c = xcalloc(1, sizeof *c);
  pthread_mutex_init(&c->mutex, NULL);
  pthread_cond_init(&c->changed, NULL);
  c->n = n;
  c->idle_s = idle_s;
  c->fd = xcalloc((size_t)n, sizeof *c->fd);
  c->busy = xcalloc((size_t)n, sizeof *c->busy);
  c->has_cpus = !sched_getaffinity(0, sizeof c->cpus, &c->cpus);
  c->inside = !env_int(ENV_ISOLATE);
#if defined(__SANITIZE_THREAD__)
  c->inside = true;                    // this sanitizer does not support threads in a forked child
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
  c->inside = true;
#endif
#endif
  return c;
}

// Makes a child. The caller holds the lock, and there is no child.
static int start_child(compiler *c, error *err) {
  int *its = xcalloc((size_t)c->n, sizeof *its), made = 0, pair[2], reason = 0;
  for (; made < c->n && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair); made++) {
    c->fd[made] = pair[0];
    its[made] = pair[1];
  }
  pid_t child = made == c->n ? fork() : -1;
  if (!child) {
    for (int i = 0; i < c->n; i++) close(c->fd[i]);
    be_the_child(c, its);
  }
  if (child < 0) reason = errno;
  for (int i = 0; i < made; i++) {
    close(its[i]);
    if (child < 0) close(c->fd[i]);
  }
  free(its);
  if (child < 0 && reason == ENOMEM) return error_set(err, "there is no memory for the process that compiles kernels");
  if (child < 0) c->inside = true;
  else c->child = child;
  return 0;
}

// Records that the child has ended or broken the protocol. The caller holds the lock.
static void note_end(compiler *c) {
  if (c->ended) return;
  int status = 0;
  pid_t got;
  for (int i = 0; i < c->n; i++) shutdown(c->fd[i], SHUT_RDWR);
  do got = waitpid(c->child, &status, 0); while (got < 0 && errno == EINTR);
  c->ended = true;
  c->idle = got == c->child && WIFEXITED(status) && !WEXITSTATUS(status);
  c->why.text[0] = 0;
  static const char who[] = "the process that compiles kernels", reason[] = "out of memory, or a fault in LLVM";
  bool no_thread = WIFEXITED(status) && WEXITSTATUS(status) == NO_THREAD,
       killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (got == c->child && no_thread)
    error_set(&c->why, "%s could not make a thread: too many processes (ulimit -u, a container's limit), or too little "
                       "memory", who);
  else if (got == c->child && killed)
    error_set(&c->why, "%s was killed, by the system if it has too little memory (signal 9)", who);
  else if (got != c->child) error_set(&c->why, "%s has ended", who);
  else if (!WIFSIGNALED(status)) error_set(&c->why, "%s ended with status %d: %s", who, WEXITSTATUS(status), reason);
  else
    error_set(&c->why, "%s was ended by signal %d (%s): %s", who, WTERMSIG(status), strsignal(WTERMSIG(status)),
              reason);
}

static void forget_child(compiler *c) {
  for (int i = 0; i < c->n; i++) close(c->fd[i]);
  c->child = 0;
  c->ended = false;
}

// Takes a socket for one compile; -1 and err, or -1 and c->inside.
static int take_socket(compiler *c, error *err) {
  int found = -1;
  pthread_mutex_lock(&c->mutex);
  while (found < 0 && !c->inside) {
    if (!c->child && start_child(c, err)) break;
    for (int i = 0; i < c->n && found < 0 && c->child && !c->ended; i++) if (!c->busy[i]) found = i;
    if (found < 0 && !c->inside) pthread_cond_wait(&c->changed, &c->mutex);
  }
  if (found >= 0) {
    c->busy[found] = true;
    c->n_busy++;
  }
  pthread_mutex_unlock(&c->mutex);
  return found;
}

enum outcome { DONE, AGAIN, FAILED };

static enum outcome give_socket(compiler *c, int i, bool answered, bool again, error *err) {
  enum outcome r = DONE;
  pthread_mutex_lock(&c->mutex);
  if (!answered) {
    note_end(c);
    r = c->idle || again ? AGAIN : FAILED;
    if (r == FAILED) error_set(err, "%s", c->why.text);
  }
  c->busy[i] = false;
  if (!--c->n_busy && c->ended) forget_child(c);
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->mutex);
  return r;
}

static bool ask_child(int fd, char *const text[4], struct reply *r, bytes *object, str *assembly, error *err) {
  uint32_t n[4];
  for (int i = 0; i < 4; i++) n[i] = (uint32_t)strlen(text[i]) + 1;
  struct request q = {MAGIC, assembly != NULL, n[0], n[1], n[2], n[3]};
  char why[sizeof err->text] = "";
  struct iovec part[] = {{&q, sizeof q}, {text[0], q.triple}, {text[1], q.ir}, {text[2], q.cpu}, {text[3], q.features}};
  if (!message_send(fd, part, COUNT(part))) return false;
  if (!message_receive(fd, r, sizeof *r) || r->magic != MAGIC) return false;
  if (r->object > OBJECT_MAX || r->assembly > TEXT_MAX || r->error >= sizeof why) return false;
  *object = (bytes){xmalloc(r->object), r->object};
  char *listing = xmalloc(r->assembly);
  bool whole = message_receive(fd, object->at, r->object) && message_receive(fd, listing, r->assembly) &&
               message_receive(fd, why, r->error);
  if (whole && assembly) str_addn(assembly, listing, r->assembly);
  if (whole && r->failed) error_set(err, "%s", why);
  if (!whole || r->failed) bytes_free(object);
  free(listing);
  return whole;
}

void compiler_wake(compiler *c) {
  pthread_mutex_lock(&c->mutex);
  if (!c->child && !c->inside) start_child(c, NULL);
  pthread_mutex_unlock(&c->mutex);
}

int compiler_run(compiler *c, const char *ir_text, const char *cpu, const char *features, bytes *object, str *assembly,
                 error *err) {
  return compiler_run_for(c, NULL, ir_text, cpu, features, object, assembly, err);
}

int compiler_run_for(compiler *c, const char *triple, const char *ir_text, const char *cpu, const char *features,
                     bytes *object, str *assembly, error *err) {
  // read only: iovec has no const
  char *const text[] = {(char *)(uintptr_t)(triple ? triple : ""), (char *)(uintptr_t)ir_text, (char *)(uintptr_t)cpu,
                        (char *)(uintptr_t)features};
  *object = (bytes){0};
  for (int tries = 0;; tries++) {
    error why = {0};
    struct reply r = {0};
    int i = take_socket(c, &why);
    if (i < 0 && why.text[0]) return error_set(err, "%s", why.text);
    if (i < 0) return llvm_compile_for(triple, ir_text, cpu, features, object, assembly, err);
    bool answered = ask_child(c->fd[i], text, &r, object, assembly, &why);
    enum outcome o = give_socket(c, i, answered, !tries, &why);
    if (o == AGAIN) continue;
    return o == FAILED || r.failed ? error_set(err, "%s", why.text) : 0;
  }
}

long compiler_process(compiler *c) {
  pthread_mutex_lock(&c->mutex);
  long child = c->ended ? 0 : c->child;
  pthread_mutex_unlock(&c->mutex);
  return child;
}

void compiler_free(compiler *c) {
  if (!c) return;
  if (c->child) {
    for (int i = 0; i < c->n; i++) close(c->fd[i]);
    while (waitpid(c->child, NULL, 0) < 0 && errno == EINTR) continue;
  }
  pthread_mutex_destroy(&c->mutex);
  pthread_cond_destroy(&c->changed);
  free(c->fd); free(c->busy);
  free(c);
}
