// Allocates pages by number: see pages.h.
#include "engine/pages.h"
#include <stdlib.h>

void pages_open(page_pool *p, int n) {
  *p = (page_pool){.n = n, .holders = xcalloc((size_t)n, sizeof *p->holders)};
}

void pages_close(page_pool *p) {
  free(p->holders);
  *p = (page_pool){0};
}

int pages_take(page_pool *p) {
  if (p->used >= p->n) return -1;
  while (p->holders[p->first]) p->first++;
  int page = p->first++;
  p->holders[page] = 1;
  p->used++;
  if (page >= p->most) p->most = page + 1;
  return page;
}

void pages_hold(page_pool *p, int page) { p->holders[page]++; }

bool pages_drop(page_pool *p, int page) {
  if (p->holders[page] < 1) die("page %d is given back more often than taken", page);
  if (--p->holders[page]) return false;
  p->used--;
  if (page < p->first) p->first = page;
  return true;
}

int pages_holders(const page_pool *p, int page) { return p->holders[page]; }
