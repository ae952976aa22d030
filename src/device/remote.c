// What devices with memory of their own have in common: see remote.h.
#include "device/remote.h"
#include <stdlib.h>
#include "device/plan_impl.h"

void remote_free(remote *r) {
  vec_free(&r->areas);
  vec_free(&r->imports);
}

const remote_area *remote_area_of(const remote *r, const void *at) {
  const unsigned char *a = at;
  for (size_t i = 0; i < r->areas.n; i++)
    if (a >= r->areas.at[i].at && a < r->areas.at[i].at + r->areas.at[i].size) return &r->areas.at[i];
  return NULL;
}

const remote_area *remote_must_lie(const remote *r, const void *at, size_t n, size_t *offset) {
  const remote_area *a = remote_area_of(r, at);
  *offset = a ? (size_t)((const unsigned char *)at - a->at) : 0;
  if (!a || n > a->size - *offset) die("%s: %zu bytes at %p are not the device's", r->d->name, n, at);
  return a;
}

bool remote_take(remote *r, const void *at, remote_area *out) {
  for (size_t i = 0; i < r->areas.n; i++) {
    if (r->areas.at[i].at != at) continue;
    *out = r->areas.at[i];
    r->areas.at[i] = r->areas.at[--r->areas.n];
    return true;
  }
  return false;
}

static void *import(remote *r, const void *from, uint64_t size, error *err) {
  for (size_t i = 0; i < r->imports.n; i++)
    if (r->imports.at[i].from == from && r->imports.at[i].size == size) {
      r->imports.at[i].users++;
      return r->imports.at[i].memory;
    }
  void *memory = r->d->bring(r->state, from, size, err);
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

static remote_guest *guest_of(const remote *r, remote_traffic *t, unsigned char *at, uint64_t size,
                              error *err) {
  for (size_t i = 0; i < t->guests.n; i++)
    if (t->guests.at[i].at == at && t->guests.at[i].size == size) return &t->guests.at[i];
  void *memory = r->d->make(r->state, size + REMOTE_SLACK, err);
  if (!memory) return NULL;
  vec_push(&t->guests, ((remote_guest){.at = at, .size = size, .memory = memory}));
  return &t->guests.at[t->guests.n - 1];
}

void *remote_place(remote *r, remote_traffic *t, unsigned char *at,
                   const plan_argument *what, size_t *offset, error *err) {
  const remote_area *a = remote_area_of(r, at);
  *offset = a ? (size_t)(at - a->at) : 0;
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

int remote_put(const remote *r, void *queue, const remote_traffic *t) {
  int s = 0;
  for (size_t i = 0; i < t->guests.n && !s; i++) {
    const remote_guest *g = &t->guests.at[i];
    if (g->in) s = r->d->put(r->state, queue, g->memory, g->at, g->size);
  }
  return s;
}

int remote_get(const remote *r, void *queue, const remote_traffic *t) {
  int s = 0;
  for (size_t i = 0; i < t->guests.n && !s; i++) {
    const remote_guest *g = &t->guests.at[i];
    if (g->out) s = r->d->get(r->state, queue, g->at, g->memory, g->size);
  }
  return s;
}

void remote_forget(remote *r, remote_traffic *t) {
  for (size_t i = 0; i < t->guests.n; i++) r->d->drop(r->state, t->guests.at[i].memory);
  for (size_t i = 0; i < t->weights.n; i++) drop_import(r, t->weights.at[i]);
  vec_free(&t->guests);
  vec_free(&t->weights);
}

void remote_times(plan *p, const double (*spans)[2], double seconds, plan_times *out) {
  out->us = out->overhead_us = seconds * 1e6;
  plan_make_marks(p);
  p->began = 0;
  for (int i = 0; i < p->stats.kernels; i++) {
    out->kernel_us[i] = (spans[i][1] - spans[i][0]) * 1e6;
    out->kernel_wait_us[i] = 0;
    out->overhead_us -= out->kernel_us[i];
    double *m = p->marks + i + p->steps[i].level;
    m[0] = spans[i][0];
    m[1] = spans[i][1];
  }
}
