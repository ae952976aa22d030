// The trailer: see exported.h.  Eight bytes of magic, four numbers of 64 bits, zeros.
#define _GNU_SOURCE
#include "base/exported.h"
#include <string.h>
#include <unistd.h>

static const char magic[8] = {'W', 'E', 'F', 'T', 'E', 'X', 'P', '1'};

static bool lies_in(uint64_t at, uint64_t n, uint64_t size) {
  return at % EXPORTED_ALIGN == 0 && n && at < size && n <= size - at;
}

bool exported_find(int fd, uint64_t size, exported *out) {
  unsigned char trailer[EXPORTED_TRAILER], elf[4];
  if (size <= EXPORTED_ALIGN || pread(fd, elf, sizeof elf, 0) != sizeof elf || memcmp(elf, "\177ELF", 4)) return false;
  uint64_t end = size - EXPORTED_TRAILER;
  if (pread(fd, trailer, sizeof trailer, (off_t)end) != sizeof trailer || memcmp(trailer, magic, sizeof magic))
    return false;
  exported found;
  memcpy(&found, trailer + sizeof magic, sizeof found);
  if (!lies_in(found.model_at, found.model_n, end) || !lies_in(found.kernels_at, found.kernels_n, end)) return false;
  *out = found;
  return true;
}

void exported_trailer(const exported *e, unsigned char out[EXPORTED_TRAILER]) {
  memset(out, 0, EXPORTED_TRAILER);
  memcpy(out, magic, sizeof magic);
  memcpy(out + sizeof magic, e, sizeof *e);
}
