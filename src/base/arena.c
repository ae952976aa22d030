// Arenas as chains of blocks that grow: see arena.h.
#include "base/arena.h"
#include <stdlib.h>
#include <string.h>
#include "base/account.h"
#include "base/plain.h"

struct block { struct block *next; size_t used, size; _Alignas(16) unsigned char data[]; };
struct arena { struct block *head; size_t bytes, charged; account *of; };

arena *arena_new(void) {
  arena *a = xcalloc(1, sizeof *a);
  a->of = account_here();
  return a;
}

void arena_free(arena *a) {
  if (!a) return;
  for (struct block *b = a->head, *next; b; b = next) { next = b->next; free(b); }
  account_give(a->of, a->charged);
  free(a);
}

void *arena_alloc(arena *a, size_t n) {
  if (n > SIZE_MAX / 2) die("arena: allocation of %zu bytes", n);
  n = round_up(n ? n : 1, 16);
  struct block *b = a->head;
  if (!b || b->size - b->used < n) {
    size_t size = b ? b->size * 2 : 4096;
    if (size > (4u << 20)) size = 4u << 20;
    if (size < n) size = n;
    b = xcalloc(1, sizeof *b + size);
    a->charged += size;
    account_add(a->of, size);
    b->size = size;
    b->next = a->head;
    a->head = b;
  }
  void *p = b->data + b->used;
  b->used += n;
  a->bytes += n;
  return p;
}

char *arena_strndup(arena *a, const char *s, size_t n) {
  char *p = arena_alloc(a, n + 1);
  memcpy(p, s, n);
  return p;
}

char *arena_strdup(arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_printf(arena *a, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = plain_vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  char *p = arena_alloc(a, (size_t)n + 1);
  plain_vsnprintf(p, (size_t)n + 1, fmt, again);
  va_end(again);
  return p;
}

size_t arena_bytes(const arena *a) { return a->bytes; }
