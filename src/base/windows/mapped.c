// Windows does not allow truncating a mapped file, so no bytes can be lost: see mapped.h.
#include "base/mapped.h"
#include <sys/mman.h>

struct mapped { unsigned char *at; size_t n; };

mapped *mapped_open(int fd, size_t n) {
  void *at = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) return NULL;
  mapped *m = xcalloc(1, sizeof *m);
  *m = (mapped){at, n};
  return m;
}

const unsigned char *mapped_bytes(const mapped *m) { return m->at; }
bool mapped_is_whole(const mapped *m) { return (void)m, true; }

void mapped_close(mapped *m) {
  if (!m) return;
  munmap(m->at, m->n);
  free(m);
}
