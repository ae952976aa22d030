// Kernels of a plan as launches: see launch.h.
#include "device/launch.h"
#include <string.h>

enum { ALIGNED = 16 /* what kernels assume of addresses (render/llvm.c) */ };

int launch_place(launch *l, const step *t, int n_bufs, remote *r, remote_traffic *traffic, arena *mem, error *err) {
  l->args = t->args;
  l->n_bufs = n_bufs;
  l->bufs = ARENA_ARRAY(mem, uint64_t, n_bufs + 1);
  for (int i = 0; i < n_bufs; i++) {
    size_t offset;
    unsigned char *here = remote_place(r, traffic, t->bufs[i], &t->args[i], &offset, err);
    if (!here) return -1;
    here += offset;
    die_if((uintptr_t)here % ALIGNED,
           "%s: %s: buffer %d begins at %p, which is no multiple of %d", r->d->name, t->k->p->name, i, (void *)here,
           ALIGNED);
    l->bufs[i] = (uint64_t)(uintptr_t)here;
  }
  return 0;
}

bool launch_changed(launch *l, const step *t, const char *dev) {
  const program *p = t->k->p;
  if (l->known && !memcmp(l->vars, t->vars, (size_t)p->n_vars * sizeof *l->vars)) return false;
  memcpy(l->vars, t->vars, (size_t)p->n_vars * sizeof *l->vars);
  l->empty = false;
  for (int i = 0; i < 3; i++) {
    int64_t items = p->local[i] ? program_eval(p, p->local[i], t->vars) : 1,
            groups = p->global[i] ? program_eval(p, p->global[i], t->vars) : 1;
    die_if(items < 1 || groups < 0 || groups > INT32_MAX,
           "%s: %s: %lld work-groups of %lld", dev, p->name, (long long)groups, (long long)items);
    l->block[i] = (unsigned)items;
    l->grid[i] = (unsigned)groups;
    l->empty |= !groups;
  }
  l->known = true;
  return true;
}

bool launches_meet(const launch *x, const launch *y) {
  for (int i = 0; i < x->n_bufs; i++)
    for (int j = 0; j < y->n_bufs; j++)
      if ((x->args[i].written || y->args[j].written) && x->bufs[i] < y->bufs[j] + y->args[j].size &&
          y->bufs[j] < x->bufs[i] + x->args[i].size)
        return true;
  return false;
}
