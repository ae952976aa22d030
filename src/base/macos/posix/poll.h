// Linux's half-closed sockets: the other side shows when it is gone for good.
#ifndef WEFT_MACOS_POLL_H
#define WEFT_MACOS_POLL_H
#include_next <poll.h>
enum { POLLRDHUP = 0 };
#endif
