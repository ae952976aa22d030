// A whole server in this process, for the fuzzers of HTTP and of requests: it listens at a socket in a folder of its
// own, with the model of the tree.  What it answers to a connection is read to the end and must be answers of HTTP, one
// behind the other, none of them a fault of the server.
#ifndef WEFT_FUZZ_SERVE_COMMON_H
#define WEFT_FUZZ_SERVE_COMMON_H
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/env.h"
#include "base/str.h"
#include "serve/serve.h"

enum { ANSWER_S = 180 };  // a request may unload the model, and the next one load it
static char server_folder[64], server_path[100], server_cache[100];

static inline void *server_thread(void *at) {
  error err = {0};
  if (serve_run(at, &err)) die("the server: %s", err.text);
  return NULL;
}

static inline int server_connect(void) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  snprintf(a.sun_path, sizeof a.sun_path, "%s", server_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) die("no connection to %s", server_path);
  return fd;
}

// An answer to all that these bytes ask, with the writing half closed behind them; a byte `cut` (-1: none) is not sent,
// but the bytes before it are on their way before those behind it.
static inline void server_ask(const char *bytes, size_t n, int cut, str *answer) {
  int fd = server_connect();
  char buffer[16 << 10];
  for (const char *end = bytes + n, *piece; bytes < end;) {
    piece = cut >= 0 ? memchr(bytes, cut, (size_t)(end - bytes)) : NULL;
    size_t m = (size_t)((piece ? piece : end) - bytes);
    if (m && send(fd, bytes, m, MSG_NOSIGNAL) < (ssize_t)m) break;  // it has been refused
    bytes += m + (piece != NULL);
    if (piece) usleep(200);
  }
  shutdown(fd, SHUT_WR);
  for (;;) {
    struct pollfd p = {fd, POLLIN, 0};
    int ready = poll(&p, 1, ANSWER_S * 1000);
    if (ready < 0 && errno == EINTR) continue;          // libFuzzer's alarm
    if (ready != 1) die("no answer within %d s", ANSWER_S);
    ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) break;
    str_addn(answer, buffer, (size_t)got);
  }
  close(fd);
}

static inline const char *header_of(const char *head, const char *end, const char *name) {
  size_t n = strlen(name);
  for (const char *at = head; at && at < end; at = memchr(at, '\n', (size_t)(end - at)), at = at ? at + 1 : NULL)
    if ((size_t)(end - at) > n && !strncasecmp(at, name, n) && at[n] == ':') return at + n + 1;
  return NULL;
}

static inline const char *skip_chunks(const char *at, const char *end) {
  for (;;) {
    char *digits;
    unsigned long size = strtoul(at, &digits, 16);
    if (digits == at || end - digits < 2 || memcmp(digits, "\r\n", 2)) return NULL;
    at = digits + 2;
    if ((size_t)(end - at) < size + 2 || memcmp(at + size, "\r\n", 2)) return NULL;
    at += size + 2;
    if (!size) return at;
  }
}

// Takes one answer off; its status, and its body where that is not in chunks.  0: it is none.
static inline int take_answer(const char **at, const char *end, const char **body, size_t *n_body) {
  const char *head = *at, *stop = memmem(head, (size_t)(end - head), "\r\n\r\n", 4), *length, *coding;
  *body = NULL, *n_body = 0;
  if (!stop || end - head < 12 || strncmp(head, "HTTP/1.", 7)) return 0;
  int status = atoi(head + 9);
  *at = stop += 4;
  if (status / 100 == 1 || status == 204 || status == 304) return status;
  if ((coding = header_of(head, stop, "Transfer-Encoding"))) {
    *at = skip_chunks(stop, end);
    return *at ? status : 0;
  }
  if (!(length = header_of(head, stop, "Content-Length"))) {
    *at = end;
    return status;
  }
  size_t n = strtoul(length, NULL, 10);
  if (n > (size_t)(end - stop)) return 0;
  *body = stop, *n_body = n;
  *at = stop + n;
  return status;
}

static inline void check_status(int status, const char *body, size_t n) {
  if (status >= 500 && status != 501 && status != 503 && status != 505)
    die("status %d: %.*s", status, (int)n, body ? body : "");
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
  (void)st, (void)kind, (void)at;
  return remove(path);
}
static void server_remove(void) { nftw(server_folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

static inline void server_begin(void) {
  static const char *const models[] = {WEFT_SOURCE_DIR "/models/tinypy.gguf"};
  static serve_options o = {.models = models,
                            .n_models = 1,
                            .models_max = 1,
                            .idle_s = -1,
                            .model = {.context = 64, .threads = 1},
                            .max_connections = 64,
                            .workers = 2,
                            .parallel = 4,
                            .max_body = 1 << 20,
                            .max_wait_s = 60,
                            .keep_bytes = 1 << 20,
                            .drain_s = 1,
                            .speculating = WEFT_SPECULATE_NEVER,
                            .defaults = "{\"n_predict\": 3}",
                            .pooling = WEFT_POOLING_MODEL};
  static serve *server;
  const struct log_options quiet = {.path = "/dev/null", .level = LOG_QUIET};
  error err = {0};
  pthread_t thread;
  str answer = {0};
  strcpy(server_folder, "/tmp/weft-fuzz-XXXXXX");
  if (!mkdtemp(server_folder)) die("no folder in /tmp");
  snprintf(server_path, sizeof server_path, "%s/socket", server_folder);
  snprintf(server_cache, sizeof server_cache, "%s/cache", server_folder);
  o.host = server_path;
  env_set(ENV_WEFT_CACHE, server_cache), env_set(ENV_WEFT_TUNE, "off");
  atexit(server_remove);
  signal(SIGPIPE, SIG_IGN);
  if (log_open(&quiet, &o.log, &err) || serve_open(&o, &server, &err)) die("%s", err.text);
  if (pthread_create(&thread, NULL, server_thread, server)) die("no thread");
  for (int tries = 0; !memmem(str_c(&answer), answer.n, "HTTP/1.1 200", 12); tries++) {
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if (tries == 1200) die("the server is not ready: %s", str_c(&answer));
    usleep(100000);
    answer.n = 0;
    if (!access(server_path, F_OK)) server_ask(ask, sizeof ask - 1, -1, &answer);
  }
  str_free(&answer);
}
#endif
