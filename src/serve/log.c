// Log lines, and the thread that writes them: see log.h.
#define _GNU_SOURCE
#include "serve/log.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/inuse.h"
#include "base/newfile.h"
#include "base/os.h"

enum { PENDING_MAX = 4 << 20 };        // bytes of pending lines
enum { END_S = 2 };                    // seconds that the shutdown waits for a reader

// Pending lines for a file or a terminal, and the thread that writes them.
struct sink {
  server_log *l;
  int fd;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t more;
  bool started, stop, ended;
  str pending;
  int64_t lost;        // lines that were dropped or could not be written, and are not counted in the file yet
  bool fails, torn;    // of the thread: the last write failed; what is written last ends within a line
};
// said: for messages in plain words if log lines go to a file; otherwise they are log lines
struct server_log { struct log_options o; struct sink lines, said; };

static void sink_init(struct sink *k, server_log *l, int fd) {
  k->l = l;
  k->fd = fd;
  pthread_mutex_init(&k->lock, NULL);
  os_cond_init(&k->more);
}

int log_open(const struct log_options *o, server_log **out, error *err) {
  if (o->path && inuse_refuse(o->path, err)) return -1;
  if (o->path && newfile_begins(o->path, "GGUF", 4) > 0)     // such as an unloaded model of --models-dir
    return error_set(err, "--log-file %s: is a model: lines are not appended to it", o->path);
  int fd = o->path ? open(o->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : STDERR_FILENO;
  if (fd < 0) return error_set(err, "--log-file %s: %s", o->path, strerror(errno));
  server_log *l = xcalloc(1, sizeof *l);
  l->o = *o;
  sink_init(&l->lines, l, fd);
  sink_init(&l->said, l, STDERR_FILENO);
  *out = l;
  return 0;
}

// How many bytes were written: not all if the reader has gone or the disk is full.
static size_t write_all(int fd, const str *s) {
  size_t done = 0;
  while (done < s->n) {
    ssize_t n = write(fd, s->at + done, s->n - done);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) done += (size_t)n;
  }
  return done;
}

static int64_t count_lines(const char *at, size_t n) {
  int64_t lines = 0;
  for (const char *end = at + n; at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++) lines++;
  return lines;
}

static void sink_write(struct sink *k, const str *text) {
  pthread_mutex_lock(&k->lock);
  if (k->pending.n + text->n > PENDING_MAX) k->lost++;
  else str_addn(&k->pending, text->at, text->n);
  pthread_cond_signal(&k->more);
  pthread_mutex_unlock(&k->lock);
}

// On stderr; the file has the number of lost lines once it can be written again.
static void say_unwritten(server_log *l, int why) {
  str words = {0};
  str_addf(&words, "weft: warning: --log-file %s: %s: lines are lost\n", l->o.path, strerror(why));
  sink_write(&l->said, &words);
  str_free(&words);
}

// Writes lines after the number of those that were lost. Returns how many are lost now; one that was cut counts.
static int64_t write_batch(struct sink *k, const str *lines, int64_t lost) {
  str all = {0};
  if (k->torn) str_addc(&all, '\n');
  if (lost) {
    log_line e = log_begin(k->l, "lost");
    log_count(&e, "lines", lost);
    str_add(&e.text, k->l->o.json ? "}\n" : "\n");
    str_addn(&all, e.text.at, e.text.n);
    str_free(&e.text);
  }
  size_t head = all.n;
  str_addn(&all, lines->at, lines->n);
  size_t done = write_all(k->fd, &all);
  int64_t now = done < head ? lost + count_lines(lines->at, lines->n) : count_lines(all.at + done, all.n - done);
  if (done) k->torn = all.at[done - 1] != '\n';
  bool failed = done < all.n;
  if (failed && !k->fails && k == &k->l->lines && k->l->o.path) say_unwritten(k->l, errno);
  k->fails = failed;
  str_free(&all);
  return now;
}

static void *write_lines(void *arg) {
  struct sink *k = arg;
  str lines = {0};
  pthread_mutex_lock(&k->lock);
  while (k->pending.n || !k->stop) {
    if (!k->pending.n) { pthread_cond_wait(&k->more, &k->lock); continue; }
    str taken = k->pending;
    k->pending = lines;
    k->pending.n = 0;
    lines = taken;
    int64_t lost = k->lost;
    k->lost = 0;
    pthread_mutex_unlock(&k->lock);
    lost = write_batch(k, &lines, lost);
    pthread_mutex_lock(&k->lock);
    k->lost += lost;
  }
  k->ended = true;
  pthread_cond_signal(&k->more);
  pthread_mutex_unlock(&k->lock);
  str_free(&lines);
  return NULL;
}

static int sink_start(struct sink *k, error *err) {
  if (pthread_create(&k->thread, NULL, write_lines, k)) return error_set(err, "no thread could be made for the log");
  k->started = true;
  return 0;
}

// false: its thread is in write(), with it.
static bool sink_end(struct sink *k, double until) {
  pthread_mutex_lock(&k->lock);
  k->stop = true;
  pthread_cond_signal(&k->more);
  while (k->started && !k->ended && os_cond_wait_until(&k->more, &k->lock, until)) continue;
  bool ended = !k->started || k->ended;
  pthread_mutex_unlock(&k->lock);
  return ended;
}

static void sink_free(struct sink *k) {
  if (k->started) pthread_join(k->thread, NULL);
  if (k->fd != STDERR_FILENO) close(k->fd);
  pthread_mutex_destroy(&k->lock);
  pthread_cond_destroy(&k->more);
  str_free(&k->pending);
}

int log_start(server_log *l, error *err) {
  if (l->o.level == LOG_QUIET) return 0;
  return sink_start(&l->lines, err) || (l->o.path && sink_start(&l->said, err)) ? -1 : 0;
}

void log_close(server_log *l) {
  if (!l) return;
  double until = now_s() + END_S;
  bool ended = sink_end(&l->lines, until);
  if (!sink_end(&l->said, until) || !ended) return;
  sink_free(&l->lines);
  sink_free(&l->said);
  free(l);
}

bool log_is_json(const server_log *l) { return l->o.json; }
bool log_takes(const server_log *l, enum log_level level) { return l->lines.started && l->o.level >= level; }

// ---- a line ---------------------------------------------------------------------------------------------------------

log_line log_begin(const server_log *l, const char *event) {
  log_line e = {.l = l};
  struct timespec now;
  struct tm utc;
  char text[32];
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  str_addf(&e.text, l->o.json ? "{\"time\":\"%s.%03ldZ\",\"event\":\"%s\"" : "%s.%03ldZ %s", text,
           now.tv_nsec / 1000000, event);
  return e;
}

static void line_name(log_line *e, const char *name) {
  str_addf(&e->text, e->l->o.json ? ",\"%s\":" : " %s=", name);
}

static bool is_plain(const char *text) {
  for (const char *p = text; *p; p++)
    if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127 || strchr("\"=\\", *p)) return false;
  return true;
}

static void line_value(log_line *e, const char *value) {
  if (e->l->o.json || !is_plain(value)) str_add_json(&e->text, value, strlen(value));
  else str_add(&e->text, value);
}

void log_word(log_line *e, const char *name, const char *value) {
  if (e->l->o.json) line_name(e, name);
  else str_addc(&e->text, ' ');
  line_value(e, value);
}

void log_text(log_line *e, const char *name, const char *value) {
  if (!value || !*value) return;
  line_name(e, name);
  line_value(e, value);
}

void log_count(log_line *e, const char *name, int64_t value) {
  line_name(e, name);
  str_addf(&e->text, "%lld", (long long)value);
}

void log_ms(log_line *e, const char *name, double ms) {
  line_name(e, name);
  str_addf(&e->text, "%.1f", ms);
}

void log_write(server_log *l, log_line *e) {
  str_add(&e->text, l->o.json ? "}\n" : "\n");
  sink_write(&l->lines, &e->text);
  str_free(&e->text);
}

static void say_or_log(server_log *l, const char *event, const char *before, const char *fmt, va_list ap) {
  if (!log_takes(l, LOG_NORMAL)) return;
  str what = {0}, words = {0};
  str_vadd_plain(&what, fmt, ap);
  str_addf(&words, "weft: %s%s\n", before, str_c(&what));
  if (l->o.path || !l->o.json) sink_write(l->o.path ? &l->said : &l->lines, &words);
  if (l->o.path || l->o.json) {
    log_line e = log_begin(l, event);
    log_text(&e, "what", str_c(&what));
    log_write(l, &e);
  }
  str_free(&what);
  str_free(&words);
}

void log_say(server_log *l, const char *event, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  say_or_log(l, event, "", fmt, ap);
  va_end(ap);
}

void log_warn(server_log *l, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  say_or_log(l, "warning", "warning: ", fmt, ap);
  va_end(ap);
}
