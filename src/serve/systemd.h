// systemd: a socket opened by the service manager, and status messages to it. The protocol is a few environment
// variables and datagrams of text; no library is needed.
#ifndef WEFT_SERVE_SYSTEMD_H
#define WEFT_SERVE_SYSTEMD_H
#include "base/base.h"

// The passed socket (LISTEN_PID, LISTEN_FDS): *fd, or -1 if there is none. Returns -1 if it is unusable.
int systemd_socket(int *fd, error *err);

typedef struct notifier { int fd; double watchdog_s, said; } notifier;      // fd -1: disabled
notifier systemd_notifier(void);       // NOTIFY_SOCKET, WATCHDOG_USEC; before the process gives up making sockets
void systemd_say(const notifier *n, const char *text);           // "READY=1"
// Call it periodically: requests more time during the start, and then sends the watchdog message while the server is
// well.
void systemd_tick(notifier *n, bool starts, bool well);
void systemd_close(notifier *n);
#endif
