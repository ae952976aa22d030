// Reads the trailer: see exported.h. Eight bytes of magic, four 64-bit numbers, zeros, and a checksum of all that.
#define _GNU_SOURCE
#include "base/exported.h"
#include <elf.h>
#include <string.h>
#include <unistd.h>

static const char magic[8] = {'W', 'E', 'F', 'T', 'E', 'X', 'P', '2'};

static bool lies_in(uint64_t at, uint64_t n, uint64_t size) {
  return at % EXPORTED_ALIGN == 0 && n && at < size && n <= size - at;
}

static uint64_t sum_of(const unsigned char trailer[EXPORTED_TRAILER]) {
  return hash_bytes(trailer, EXPORTED_TRAILER - sizeof(uint64_t), 0);
}

// Whether a GGUF file begins at the end of the program. An ELF file ends with its table of sections.
static bool carries_model(int fd, const Elf64_Ehdr *elf, uint64_t size) {
  char begin[4];
  uint64_t end = elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize;
  if (elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_shoff >= size || end >= size) return false;
  off_t at = (off_t)round_up(end, EXPORTED_ALIGN);
  return pread(fd, begin, sizeof begin, at) == sizeof begin && !memcmp(begin, "GGUF", sizeof begin);
}

int exported_find(int fd, uint64_t size, exported *out, error *err) {
  unsigned char trailer[EXPORTED_TRAILER];
  uint64_t sum;
  Elf64_Ehdr elf;
  exported found;
  if (size <= EXPORTED_ALIGN || pread(fd, &elf, sizeof elf, 0) != sizeof elf || memcmp(elf.e_ident, ELFMAG, SELFMAG))
    return 0;
  uint64_t end = size - EXPORTED_TRAILER;
  if (pread(fd, trailer, sizeof trailer, (off_t)end) != sizeof trailer || memcmp(trailer, magic, sizeof magic)) {
    if (!carries_model(fd, &elf, size)) return 0;
    return error_set(
      err,
      "is damaged: a program with a model in it, whose end is missing, was changed, or is of another version of Weft");
  }
  memcpy(&found, trailer + sizeof magic, sizeof found);
  memcpy(&sum, trailer + sizeof trailer - sizeof sum, sizeof sum);
  if (sum != sum_of(trailer) || !lies_in(found.model_at, found.model_n, end) ||
      !lies_in(found.kernels_at, found.kernels_n, end))
    return error_set(err, "is damaged: its last %d bytes, which say where its parts are, are not what was written",
                     EXPORTED_TRAILER);
  *out = found;
  return 1;
}

void exported_trailer(const exported *e, unsigned char out[EXPORTED_TRAILER]) {
  memset(out, 0, EXPORTED_TRAILER);
  memcpy(out, magic, sizeof magic);
  memcpy(out + sizeof magic, e, sizeof *e);
  uint64_t sum = sum_of(out);
  memcpy(out + EXPORTED_TRAILER - sizeof sum, &sum, sizeof sum);
}
