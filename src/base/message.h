// Whole messages over a stream socket between two processes: no partial sends and receives, no SIGPIPE. The
// receiver checks lengths in a message before it takes memory for what follows.
#ifndef WEFT_MESSAGE_H
#define WEFT_MESSAGE_H
#include "base/base.h"
#include <sys/uio.h>

// All parts in one go: each call that sends wakes the other side up. The parts are changed on the way. False: the other
// side has gone.
bool message_send(int fd, struct iovec *parts, size_t n);
// Exactly n bytes. False: the other side has gone.
bool message_receive(int fd, void *to, size_t n);
// A descriptor, with a byte. Receiving: *more is false once the other side has gone; -1: none came.
bool message_send_fd(int over, int fd);
int message_receive_fd(int over, bool *more);
#endif
