// keeper_room: what the keeper (keeper.h) takes for the process that asks it, which may be an attacker's by now. Bytes
// of requests that are under way together, and bytes that are added to the cache by one run. Any thread.
#ifndef WEFT_DEVICE_KEEPER_ROOM_H
#define WEFT_DEVICE_KEEPER_ROOM_H
#include <pthread.h>
#include "base/base.h"

enum keeper_kept { KEEPER_AS_SENT, KEEPER_MADE, KEEPER_KEPTS };
typedef struct keeper_room {
  pthread_mutex_t mutex;
  pthread_cond_t freed;
  size_t held, most_held;              // of requests that are read or answered
  uint64_t kept[KEEPER_KEPTS], most_kept[KEEPER_KEPTS];      // of entries: keys, values and what a row needs
} keeper_room;

void keeper_room_init(keeper_room *r);                       // with the limits of a run
// Waits until n bytes have room beside the others. False: they never have. A request that does not end holds its room.
bool keeper_room_enter(keeper_room *r, size_t n);
void keeper_room_leave(keeper_room *r, size_t n);
// Whether an entry of n bytes may still be kept; then it counts. What replaces another one counts, too.
bool keeper_room_keep(keeper_room *r, enum keeper_kept how, size_t n);
#endif
