// Memory of devices with separate memory: see remote.h.
#include "device/remote.h"
#include <stdlib.h>
#include "device/memory.h"

void remote_start(device *dev, remote *r, const remote_driver *d, void *state) {
  r->d = d;
  r->state = state;
  turn_init(&r->turn);
  dev->remote = r;
  dev->run = &remote_runtime;
}

void remote_free(remote *r) {
  if (r->d) turn_destroy(&r->turn);
  vec_free(&r->areas);
  vec_free(&r->imports);
}

int remote_wait(const remote *r, error *err) { return r->d->wait ? r->d->wait(r->state, err) : 0; }

// ---- pieces ---------------------------------------------------------------------------------------------------------

static const remote_area *area_of(const remote *r, const void *at) {
  const unsigned char *a = at;
  for (size_t i = 0; i < r->areas.n; i++)
    if (a >= r->areas.at[i].at && a < r->areas.at[i].at + r->areas.at[i].size) return &r->areas.at[i];
  return NULL;
}

const remote_area *remote_must_lie(const remote *r, const void *at, uint64_t n, uint64_t *offset) {
  const remote_area *a = area_of(r, at);
  *offset = a ? (uint64_t)((const unsigned char *)at - a->at) : 0;
  if (!a || n > a->size - *offset)
    die("%s: %llu bytes at %p are not the device's", r->d->name, (unsigned long long)n, at);
  return a;
}

void *remote_alloc(device *dev, uint64_t bytes_wanted, enum pages pages, error *err) {
  remote *r = dev->remote;
  (void)pages;                                     // pages: plain pages could be promoted only while no kernel runs
  remote_area a = {.size = round_up(bytes_wanted + REMOTE_SLACK, 4096)};
  a.memory = r->d->make(r->state, a.size, REMOTE_AREA, err);
  if (!a.memory) return NULL;
  a.at = r->d->address ? r->d->address(a.memory) : NULL;
  a.reserved = !a.at;
  if (a.reserved) a.at = memory_no_access(a.size, err);
  if (a.at) vec_push(&r->areas, a);
  else r->d->drop(r->state, a.memory);
  return a.at;
}

void remote_release(device *dev, void *at, uint64_t size) {
  remote *r = dev->remote;
  (void)size;
  for (size_t i = 0; i < r->areas.n; i++) {
    remote_area a = r->areas.at[i];
    if (a.at != at) continue;
    r->areas.at[i] = r->areas.at[--r->areas.n];
    r->d->drop(r->state, a.memory);
    if (a.reserved) memory_release(a.at, a.size);
    return;
  }
}

// ---- copies ---------------------------------------------------------------------------------------------------------

int remote_write(device *dev, void *to, const void *from, size_t n, error *err) {
  const remote *r = dev->remote;
  uint64_t at;
  const remote_area *a = remote_must_lie(r, to, n, &at);
  return !n ? 0 : r->d->put(r->state, a->memory, at, from, n, err) ? -1 : remote_wait(r, err);
}

int remote_read(device *dev, void *to, const void *from, size_t n, error *err) {
  const remote *r = dev->remote;
  uint64_t at;
  const remote_area *a = remote_must_lie(r, from, n, &at);
  return !n ? 0 : r->d->get(r->state, to, a->memory, at, n, err) ? -1 : remote_wait(r, err);
}

int remote_copy(device *dev, void *to, const void *from, size_t n, error *err) {
  const remote *r = dev->remote;
  uint64_t x, y;
  const remote_area *a = remote_must_lie(r, from, n, &x), *b = remote_must_lie(r, to, n, &y);
  return n ? r->d->copy(r->state, b->memory, y, a->memory, x, n, err) : 0;
}

int remote_fill(device *dev, void *to, unsigned char value, size_t n, error *err) {
  const remote *r = dev->remote;
  uint64_t at;
  const remote_area *a = remote_must_lie(r, to, n, &at);
  return n ? r->d->fill(r->state, a->memory, at, value, n, err) : 0;
}

uint64_t remote_room(const device *dev) {
  const remote *r = dev->remote;
  return r->d->room ? r->d->room(r->state) : UINT64_MAX;
}

// ---- host memory ----------------------------------------------------------------------------------------------------

void *remote_bring(const remote *r, const void *from, uint64_t size, error *err) {
  error why = {0};
  void *memory = r->d->wrap ? r->d->wrap(r->state, from, size, &why) : NULL;
  if (memory) return memory;
  if (*why.text) { error_set(err, "%s", why.text); return NULL; }
  memory = r->d->make(r->state, size + REMOTE_SLACK, REMOTE_WEIGHT, err);
  if (!memory || (!r->d->put(r->state, memory, 0, from, size, err) && !remote_wait(r, err))) return memory;
  r->d->drop(r->state, memory);
  return NULL;
}

static void *import(remote *r, const void *from, uint64_t size, error *err) {
  for (size_t i = 0; i < r->imports.n; i++)
    if (r->imports.at[i].from == from && r->imports.at[i].size == size) {
      r->imports.at[i].users++;
      return r->imports.at[i].memory;
    }
  void *memory = remote_bring(r, from, size, err);
  if (memory) vec_push(&r->imports, ((remote_import){from, size, memory, 1}));
  return memory;
}

static void drop_import(remote *r, const void *memory) {
  for (size_t i = 0; i < r->imports.n; i++) {
    if (r->imports.at[i].memory != memory || --r->imports.at[i].users) continue;
    r->d->drop(r->state, r->imports.at[i].memory);
    r->imports.at[i] = r->imports.at[--r->imports.n];
    return;
  }
}

static remote_guest *guest_of(const remote *r, remote_traffic *t, unsigned char *at, uint64_t size, error *err) {
  for (size_t i = 0; i < t->guests.n; i++)
    if (t->guests.at[i].at == at && t->guests.at[i].size == size) return &t->guests.at[i];
  void *memory = r->d->make(r->state, size + REMOTE_SLACK, REMOTE_GUEST, err);
  if (!memory) return NULL;
  vec_push(&t->guests, ((remote_guest){.at = at, .size = size, .memory = memory}));
  return &t->guests.at[t->guests.n - 1];
}

void *remote_place(remote *r, remote_traffic *t, unsigned char *at, const plan_argument *what, uint64_t *offset,
                   error *err) {
  const remote_area *a = area_of(r, at);
  *offset = a ? (uint64_t)(at - a->at) : 0;
  if (a) return a->memory;
  if (what->weight && !what->written) {
    void *memory = import(r, at, what->size, err);
    if (memory) vec_push(&t->weights, memory);
    return memory;
  }
  remote_guest *g = guest_of(r, t, at, what->size, err);
  if (!g) return NULL;
  g->in = true;
  g->out |= what->written;
  return g->memory;
}

void remote_forget_traffic(remote *r, remote_traffic *t) {
  for (size_t i = 0; i < t->guests.n; i++) r->d->drop(r->state, t->guests.at[i].memory);
  for (size_t i = 0; i < t->weights.n; i++) drop_import(r, t->weights.at[i]);
  vec_free(&t->guests);
  vec_free(&t->weights);
}
