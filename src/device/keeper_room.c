// Limits of the keeper: see keeper_room.h. A large model has about 300 kernels of 10 to 200 KB and schedules of a few
// MB. Tunings, profiles and digests are below 1 KB each, without their keys.
#include "device/keeper_room.h"

enum { MOST_HELD = 256 << 20, MOST_AS_SENT = 64 << 20, MOST_MADE = 1 << 30, ROW_BYTES = 128 };

void keeper_room_init(keeper_room *r) {
  *r = (keeper_room){.most_held = MOST_HELD, .most_kept = {[KEEPER_AS_SENT] = MOST_AS_SENT, [KEEPER_MADE] = MOST_MADE}};
  pthread_mutex_init(&r->mutex, NULL);
  pthread_cond_init(&r->freed, NULL);
}

bool keeper_room_enter(keeper_room *r, size_t n) {
  if (n > r->most_held) return false;
  pthread_mutex_lock(&r->mutex);
  while (n > r->most_held - r->held) pthread_cond_wait(&r->freed, &r->mutex);
  r->held += n;
  pthread_mutex_unlock(&r->mutex);
  return true;
}

void keeper_room_leave(keeper_room *r, size_t n) {
  pthread_mutex_lock(&r->mutex);
  r->held -= n;
  pthread_cond_broadcast(&r->freed);
  pthread_mutex_unlock(&r->mutex);
}

bool keeper_room_keep(keeper_room *r, enum keeper_kept how, size_t n) {
  pthread_mutex_lock(&r->mutex);
  bool may = n + ROW_BYTES <= r->most_kept[how] - r->kept[how];
  if (may) r->kept[how] += n + ROW_BYTES;
  pthread_mutex_unlock(&r->mutex);
  return may;
}
