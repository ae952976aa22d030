// Kernels and plans of devices with separate memory: see remote.h.
#include <stdlib.h>
#include <string.h>
#include "device/remote.h"

// ---- kernels --------------------------------------------------------------------------------------------------------

bool remote_take(device *dev, device_kernel *k, int n_bufs) {
  return k->packed.n && !dev->remote->d->load(dev->remote->state, k, n_bufs, NULL);
}

int remote_link(device *dev, device_kernel *k, error *err) {
  const remote *r = dev->remote;
  if (!k->remote && r->d->load(r->state, k, k->p->n_bufs, err)) return -1;
  bytes_free(&k->packed);
  return 0;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

static int place_command(remote *r, remote_plan *rp, remote_command *c, error *err) {
  const step *t = c->s;
  int n = t->k->remote->n_bufs;        // for a step that tries parts of a launch: fewer than its own
  remote_range *ranges = ARENA_ARRAY(rp->mem, remote_range, n + 1);
  for (int i = 0; i < n; i++) {
    uint64_t offset;
    void *memory = remote_place(r, &rp->traffic, t->bufs[i], &t->args[i], &offset, err);
    if (!memory) return -1;
    if (r->d->aligned && offset % (uint64_t)r->d->aligned)
      die("%s: %s: buffer %d begins at %llu, which is no multiple of %d", r->d->name, t->k->p->name, i,
          (unsigned long long)offset, r->d->aligned);
    ranges[i] = (remote_range){memory, offset, offset + t->args[i].size, t->args[i].written};
  }
  c->ranges = ranges;
  c->n_ranges = n;
  return 0;
}

static remote_plan *plan_of_steps(const remote *r, const step *steps, int n) {
  remote_plan *rp = xcalloc(1, sizeof *rp);
  rp->mem = arena_new();
  remote_steps_make(&rp->steps, rp->mem, steps, n);
  rp->steps.parts = r->parts;
  return rp;
}

static void forget_plan(remote *r, remote_plan *rp) {
  r->d->forget(r->state, rp);
  remote_forget_traffic(r, &rp->traffic);
  arena_free(rp->mem);
  free(rp);
}

int remote_record(plan *p, error *err) {
  remote *r = p->d->remote;
  remote_plan *rp = plan_of_steps(r, p->steps, p->stats.kernels);
  p->recorded = rp;
  for (int i = 0; i < rp->steps.n; i++) if (place_command(r, rp, &rp->steps.at[i], err)) return -1;
  return r->d->record(r->state, rp, err);
}

void remote_forget(plan *p) { forget_plan(p->d->remote, p->recorded); }

static int put_guests(const remote *r, const remote_plan *rp, error *err) {
  for (size_t i = 0; i < rp->traffic.guests.n; i++) {
    const remote_guest *g = &rp->traffic.guests.at[i];
    if (g->in && r->d->put(r->state, g->memory, 0, g->at, g->size, err)) return -1;
  }
  return 0;
}

static int get_guests(const remote *r, const remote_plan *rp, error *err) {
  for (size_t i = 0; i < rp->traffic.guests.n; i++) {
    const remote_guest *g = &rp->traffic.guests.at[i];
    if (g->out && r->d->get(r->state, g->at, g->memory, 0, g->size, err)) return -1;
  }
  return 0;
}

// Waits even on failure: pending transfers may access this process's memory.
static int run_plan(const remote *r, remote_plan *rp, double (*spans)[2], error *err) {
  int bad = put_guests(r, rp, err);
  remote_steps_update(&rp->steps, rp->vars);
  if (!bad) bad = r->d->run(r->state, rp, spans, err) || get_guests(r, rp, err) ? -1 : 0;
  return remote_wait(r, bad ? NULL : err) ? -1 : bad;
}

int remote_replay(plan *p, error *err) { return run_plan(p->d->remote, p->recorded, NULL, err); }

// spans: start and end of each kernel, in seconds from the first start. There is one lane (plan_lane), as if a single
// thread ran everything.
static void note_times(plan *p, const double (*spans)[2], double seconds, plan_times *out) {
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

int remote_replay_timed(plan *p, plan_times *out, error *err) {
  double (*spans)[2] = xcalloc((size_t)p->stats.kernels + 1, sizeof *spans), start = now_s();
  int bad = run_plan(p->d->remote, p->recorded, spans, err);
  note_times(p, spans, now_s() - start, out);
  free(spans);
  return bad;
}

// ---- packed weights -------------------------------------------------------------------------------------------------

// One command that reads host bytes and writes a packed weight.
static int fill_stream(remote *r, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes,
                       error *err) {
  uint64_t at;
  const remote_area *to = remote_must_lie(r, stream, 1, &at);
  void *from = remote_bring(r, raw, raw_bytes, err);
  if (!from) return -1;
  const step one = {.k = k, .tiles = program_eval(k->p, k->p->tiles, NULL)};
  const remote_range ranges[] = {{to->memory, at, to->size, true}, {from, 0, raw_bytes, false}};
  remote_plan *rp = plan_of_steps(r, &one, 1);
  rp->steps.at[0].ranges = ranges;
  rp->steps.at[0].n_ranges = 2;
  int bad = r->d->record(r->state, rp, err);
  if (!bad) bad = run_plan(r, rp, NULL, err);
  forget_plan(r, rp);
  r->d->drop(r->state, from);
  return bad;
}

// Packs all tiles at once, with the last call.
int remote_pack_weight(plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes,
                              int64_t lo, int64_t hi, error *err) {
  if (!k)
    return remote_write(p->d, (unsigned char *)stream + lo, (const unsigned char *)raw + lo, (size_t)(hi - lo), err);
  return hi < program_eval(k->p, k->p->tiles, NULL) ? 0 : fill_stream(p->d->remote, k, stream, raw, raw_bytes, err);
}
