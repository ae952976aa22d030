// message: whole messages over a stream socket between two processes: no partial sends and receives, no SIGPIPE. The
// receiver checks lengths in a message before it allocates memory for the rest.
#ifndef WEFT_MESSAGE_H
#define WEFT_MESSAGE_H
#include "base/base.h"
#include <sys/uio.h>

// Sends all parts in one call, since each call wakes the other side up. The parts are modified. False: the other side
// has closed.
bool message_send(int fd, struct iovec *parts, size_t n);
// One byte, without waiting. False: the other side has closed, or reads nothing: it may have been taken over.
bool message_send_now(int fd, char byte);
// Exactly n bytes. False: the other side has closed.
bool message_receive(int fd, void *to, size_t n);
// Sends a file descriptor with one byte. Receiving: *more is false once the other side has closed; -1: not exactly one
// descriptor, and none is left open.
bool message_send_fd(int over, int fd);
int message_receive_fd(int over, bool *more);
#endif
