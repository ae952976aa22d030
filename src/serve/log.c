// Lines, and the thread that writes them: see log.h.
#define _GNU_SOURCE
#include "serve/log.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PENDING_MAX = 4 << 20 };        // bytes of lines that are not written yet
enum { END_S = 2 };                    // for so long the end waits for whoever reads them
struct server_log {
  struct log_options o;
  int fd;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t more;
  bool started, stop, ended;
  str pending;
  int64_t lost;
};

int log_open(const struct log_options *o, server_log **out, error *err) {
  int fd = o->path ? open(o->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : STDERR_FILENO;
  if (fd < 0) return error_set(err, "--log-file %s: %s", o->path, strerror(errno));
  server_log *l = xcalloc(1, sizeof *l);
  l->o = *o;
  l->fd = fd;
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->more, NULL);
  *out = l;
  return 0;
}

static void write_all(int fd, const str *s) {
  for (size_t done = 0; done < s->n;) {
    ssize_t n = write(fd, s->at + done, s->n - done);
    if (n < 0 && errno != EINTR) return;         // nobody reads it any more, or the disk is full
    if (n > 0) done += (size_t)n;
  }
}

static void *write_lines(void *arg) {
  server_log *l = arg;
  str lines = {0};
  pthread_mutex_lock(&l->lock);
  while (l->pending.n || !l->stop) {
    if (!l->pending.n) { pthread_cond_wait(&l->more, &l->lock); continue; }
    str taken = l->pending;
    l->pending = lines;
    l->pending.n = 0;
    lines = taken;
    int64_t lost = l->lost;
    l->lost = 0;
    pthread_mutex_unlock(&l->lock);
    if (lost) {
      log_line e = log_begin(l, "lost");
      log_count(&e, "lines", lost);
      str_addc(&e.text, '\n');
      str_addn(&lines, e.text.at, e.text.n);
      str_free(&e.text);
    }
    write_all(l->fd, &lines);
    pthread_mutex_lock(&l->lock);
  }
  l->ended = true;
  pthread_cond_signal(&l->more);
  pthread_mutex_unlock(&l->lock);
  str_free(&lines);
  return NULL;
}

int log_start(server_log *l, error *err) {
  if (l->o.level == LOG_QUIET) return 0;
  if (pthread_create(&l->thread, NULL, write_lines, l)) return error_set(err, "no thread could be made for the log");
  l->started = true;
  return 0;
}

void log_close(server_log *l) {
  if (!l) return;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += END_S;
  pthread_mutex_lock(&l->lock);
  l->stop = true;
  pthread_cond_signal(&l->more);
  for (int late = 0; l->started && !l->ended && !late;)
    late = pthread_cond_clockwait(&l->more, &l->lock, CLOCK_MONOTONIC, &until);
  bool hangs = l->started && !l->ended;
  pthread_mutex_unlock(&l->lock);
  if (hangs) return;                   // in write(), with l
  if (l->started) pthread_join(l->thread, NULL);
  if (l->o.path) close(l->fd);
  pthread_mutex_destroy(&l->lock);
  pthread_cond_destroy(&l->more);
  str_free(&l->pending);
  free(l);
}

bool log_is_json(const server_log *l) { return l->o.json; }
bool log_takes(const server_log *l, enum log_level level) { return l->started && l->o.level >= level; }

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
  pthread_mutex_lock(&l->lock);
  if (l->pending.n + e->text.n > PENDING_MAX) l->lost++;
  else str_addn(&l->pending, e->text.at, e->text.n);
  pthread_cond_signal(&l->more);
  pthread_mutex_unlock(&l->lock);
  str_free(&e->text);
}

static void say_or_log(server_log *l, const char *event, const char *before, const char *fmt, va_list ap) {
  if (!log_takes(l, LOG_NORMAL)) return;
  str text = {0};
  str_vadd_plain(&text, fmt, ap);
  // at once: there are few, and the next lines come from elsewhere
  if (l->o.path || !l->o.json) fprintf(stderr, "weft: %s%s\n", before, str_c(&text));
  if (l->o.path || l->o.json) {
    log_line e = log_begin(l, event);
    log_text(&e, "what", str_c(&text));
    log_write(l, &e);
  }
  str_free(&text);
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
