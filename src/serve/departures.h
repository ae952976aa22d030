// departures: which connections a client has closed, or closed for sending. linux/ and other/ have a file each.
#ifndef WEFT_SERVE_DEPARTURES_H
#define WEFT_SERVE_DEPARTURES_H
#include "base/base.h"

typedef struct departures departures;
struct departure { uint32_t fd, mark; bool gone; };      // gone: both ways

departures *departures_open(void);                       // NULL: errno says why
void departures_close(departures *d);
// mark: no other connection of late has it, whatever its descriptor. Each is told of once.
void departures_add(departures *d, int fd, uint32_t mark);
void departures_remove(departures *d, int fd);           // before it is closed
// Waits for some, for so long at most; at most `most` of them. Of one thread.
int departures_wait(departures *d, struct departure *out, int most, int ms);
#endif
