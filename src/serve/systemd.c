// Sockets from systemd, and messages to it: see systemd.h.
#define _GNU_SOURCE
#include "serve/systemd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/env.h"

enum { FIRST = 3 };                    // first descriptor that is passed

static long long env_number(enum env_var v) { return strtoll(env_str(v), NULL, 10); }
static bool for_us(enum env_var pid) { return !*env_str(pid) || env_number(pid) == getpid(); }

int systemd_socket(int *fd, error *err) {
  long long n = for_us(ENV_LISTEN_PID) ? env_number(ENV_LISTEN_FDS) : 0;
  int listens = 0;
  socklen_t size = sizeof listens;
  *fd = -1;
  if (!*env_str(ENV_LISTEN_PID) || n <= 0) return 0;
  if (n > 1) return error_set(err, "%lld sockets were handed over (LISTEN_FDS); one is taken", n);
  if (getsockopt(FIRST, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens)
    return error_set(err, "what was handed over (LISTEN_FDS) is no socket that listens for connections");
  fcntl(FIRST, F_SETFD, FD_CLOEXEC);
  fcntl(FIRST, F_SETFL, fcntl(FIRST, F_GETFL) | O_NONBLOCK);
  *fd = FIRST;
  return 0;
}

notifier systemd_notifier(void) {
  notifier n = {.fd = -1};
  const char *path = env_str(ENV_NOTIFY_SOCKET);
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  if (!length || length >= sizeof a.sun_path || !strchr("/@", *path)) return n;
  memcpy(a.sun_path, path, length);
  if (*path == '@') a.sun_path[0] = 0;           // an abstract socket
  n.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (n.fd >= 0 && connect(n.fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)))
    systemd_close(&n);
  if (for_us(ENV_WATCHDOG_PID)) n.watchdog_s = (double)env_number(ENV_WATCHDOG_USEC) / 1e6;
  return n;
}

void systemd_say(const notifier *n, const char *text) {
  if (n->fd >= 0) send(n->fd, text, strlen(text), MSG_NOSIGNAL);
}

void systemd_tick(notifier *n, bool starts, bool well) {
  enum { AHEAD_S = 30 };
  double now = now_s(), every = starts ? AHEAD_S / 3.0 : n->watchdog_s / 2.5;
  if (every <= 0 || now - n->said < every) return;
  n->said = now;
  if (starts) systemd_say(n, "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=loading");
  if (n->watchdog_s > 0 && well) systemd_say(n, "WATCHDOG=1");
}

void systemd_close(notifier *n) {
  if (n->fd >= 0) close(n->fd);
  n->fd = -1;
}
