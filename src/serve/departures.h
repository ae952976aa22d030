// departures: detects clients that have closed a connection, or closed it for sending. linux/ and other/ implement it.
#ifndef WEFT_SERVE_DEPARTURES_H
#define WEFT_SERVE_DEPARTURES_H
#include "base/base.h"

typedef struct departures departures;
struct departure { uint32_t fd, mark; bool gone; };      // gone: closed in both directions

departures *departures_open(void);                       // NULL: errno has the reason
void departures_close(departures *d);
// mark: unique among recent connections, even for a reused descriptor. Each departure is reported once.
void departures_add(departures *d, int fd, uint32_t mark);
void departures_remove(departures *d, int fd);           // call it before the descriptor is closed
// Waits for departures, at most ms milliseconds; returns their number, at most `most`. For one thread.
int departures_wait(departures *d, struct departure *out, int most, int ms);
#endif
