// systemd: a socket that was opened before the server was started, and messages to who started it. The protocol is a
// few variables of the environment and datagrams of text; no library is needed for it.
#ifndef WEFT_SERVE_SYSTEMD_H
#define WEFT_SERVE_SYSTEMD_H
#include "base/base.h"

// The socket that was handed over (LISTEN_PID, LISTEN_FDS): *fd, or -1 where there is none. -1: it is of no use.
int systemd_socket(int *fd, error *err);

typedef struct notifier { int fd; double watchdog_s, said; } notifier;      // fd -1: nobody wants to know
notifier systemd_notifier(void);       // NOTIFY_SOCKET, WATCHDOG_USEC; before the process gives up making sockets
void systemd_say(const notifier *n, const char *text);           // "READY=1"
// To be called now and then: while the start goes on asks for more time, and then says that all is well, if it is.
void systemd_tick(notifier *n, bool starts, bool well);
void systemd_close(notifier *n);
#endif
