// Linux's POLLRDHUP does not exist here: a peer is noticed only when it has closed the connection completely.
#ifndef WEFT_MACOS_POLL_H
#define WEFT_MACOS_POLL_H
#include_next <poll.h>
enum { POLLRDHUP = 0 };
#endif
