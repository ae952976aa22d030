// Converts the steps of a plan to commands: see remote_steps.h.
#include "device/remote_steps.h"
#include <string.h>

void remote_steps_make(remote_steps *m, arena *mem, const step *steps, int n) {
  *m = (remote_steps){.at = ARENA_ARRAY(mem, remote_command, n + 1), .n = n};
  memset(m->at, 0, ((size_t)n + 1) * sizeof *m->at);
  for (int i = 0; i < n; i++) {
    m->at[i].s = &steps[i];
    m->at[i].vars_at = m->vars_bytes;
    m->vars_bytes += round_up((size_t)steps[i].k->p->n_vars * sizeof(int64_t), REMOTE_VARS_ALIGNED);
  }
}

// Updates what depends on the values of the variables, if they have changed.
static void size_command(const remote_steps *m, remote_command *c, unsigned char *vars) {
  const program *p = c->s->k->p;
  size_t size = (size_t)p->n_vars * sizeof *c->vars;
  if (c->known && c->tiles == c->s->tiles && !memcmp(c->vars, c->s->vars, size)) return;
  memcpy(c->vars, c->s->vars, size);
  if (size && vars) memcpy(vars + c->vars_at, c->vars, size);
  bool empty = false, tiles = !p->local[0] && !p->global[0];
  for (int i = 0; i < 3; i++) {
    int64_t items = p->local[i] ? program_eval(p, p->local[i], c->vars) : 1,
            groups = p->global[i] ? program_eval(p, p->global[i], c->vars) : 1;
    if (!i && tiles && m->parts) groups = min_i64(c->s->tiles, m->parts);
    die_if(items < 1 || groups < 0 || groups > INT32_MAX,
           "%s: %lld work-groups of %lld", p->name, (long long)groups, (long long)items);
    c->stale |= c->groups[i] != (unsigned)groups || c->items[i] != (unsigned)items;
    c->groups[i] = (unsigned)groups;
    c->items[i] = (unsigned)items;
    empty |= !groups;
  }
  c->stale |= !c->known;
  c->changed = true;
  c->tiles = c->s->tiles;
  c->empty = empty;
  c->known = true;
}

bool remote_commands_meet(const remote_command *x, const remote_command *y) {
  for (int i = 0; i < x->n_ranges; i++)
    for (int j = 0; j < y->n_ranges; j++) {
      const remote_range *a = &x->ranges[i], *b = &y->ranges[j];
      if ((a->written || b->written) && a->memory == b->memory && a->from < b->to && b->from < a->to) return true;
    }
  return false;
}

// A command waits if it is the first of its level, or if it shares memory with an earlier command of its level that
// every thread of a processor would compute (step.each); unless an earlier command has already waited for that.
static void place_barriers(remote_steps *m) {
  int since = 0, last = -1;  // since: the first command after the last barrier; last: the last command with work
  for (int i = 0; i < m->n; i++) {
    remote_command *c = &m->at[i];
    bool waits = false;
    if (!c->empty) {
      waits = last >= 0 && m->at[last].s->level != c->s->level;
      for (int j = since; j < i && !waits; j++)
        waits = !m->at[j].empty && m->at[j].s->each && remote_commands_meet(&m->at[j], c);
      if (waits) since = i;
      last = i;
    }
    c->stale |= c->barrier != waits;
    c->barrier = waits;
  }
}

void remote_steps_fix(remote_steps *m) {
  place_barriers(m);
  m->fixed = true;
}

int remote_steps_update(remote_steps *m, unsigned char *vars) {
  int n = 0;
  for (int i = 0; i < m->n; i++) size_command(m, &m->at[i], vars);
  if (!m->fixed) place_barriers(m);
  for (int i = 0; i < m->n; i++) n += m->at[i].stale;
  return n;
}
