// keeper_room: limits on what the keeper (keeper.h) accepts from its client, which an attacker may have taken over:
// bytes of concurrent requests, and bytes added to the cache in one run. Any thread may call.
#ifndef WEFT_DEVICE_KEEPER_ROOM_H
#define WEFT_DEVICE_KEEPER_ROOM_H
#include <pthread.h>
#include "base/base.h"

enum keeper_kept { KEEPER_AS_SENT, KEEPER_MADE, KEEPER_KEPTS };
typedef struct keeper_room {
  pthread_mutex_t mutex;
  pthread_cond_t freed;
  size_t held, most_held;              // by requests being read or answered
  uint64_t kept[KEEPER_KEPTS], most_kept[KEEPER_KEPTS];      // by entries: keys, values and row overhead
} keeper_room;

void keeper_room_init(keeper_room *r);                       // sets the limits of a run
// Waits until n bytes fit beside the others. False: they never fit. A request that does not end keeps its bytes.
bool keeper_room_enter(keeper_room *r, size_t n);
void keeper_room_leave(keeper_room *r, size_t n);
// May an entry of n bytes still be stored? Then it counts, even if it replaces another.
bool keeper_room_keep(keeper_room *r, enum keeper_kept how, size_t n);
#endif
