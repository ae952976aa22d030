// Fuzzes what an exported program reads of its own file: the trailer, and sets of kernels.  The input is both, without
// the checksums, which are made here, as somebody who wants to mislead would.  A set is refused with a word, or each of
// its values can be read.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/env.h"
#include "base/exported.h"
#include "base/sha256.h"
#include "device/kernel_set.h"

enum { KERNELS_MOST = 4096, CPU_NAME = 24, DIGEST = 32 };
// As kernel_set.c has them.
typedef struct set_head { char magic[8], cpu[CPU_NAME]; uint64_t count, size, sum; } set_head;
typedef struct set_row { unsigned char name[DIGEST]; uint64_t at, n, sum; } set_row;

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// A trailer, and a set of the two values that use_kernels asks for.
static size_t make_sound(uint8_t *data, size_t max) {
  static const char *const keys[] = {"kernel 0", "kernel 1"};
  struct { exported e; set_head h; set_row rows[2]; char values[16]; } all = {
    .e = {.model_at = EXPORTED_ALIGN, .model_n = 1, .kernels_at = EXPORTED_ALIGN},
    .h = {.magic = "WEFTSET2", .cpu = "x86-64-v2", .count = 2}, .values = "one     another"};
  all.e.kernels_n = all.h.size = sizeof all - sizeof all.e;
  for (uint64_t i = 0; i < 2; i++) {
    sha256 s;
    sha256_begin(&s);
    sha256_add(&s, "version", sizeof "version");
    sha256_add(&s, keys[i], strlen(keys[i]));
    sha256_end_bytes(&s, all.rows[i].name);
    all.rows[i].at = sizeof all.h + sizeof all.rows + i * 8;
    all.rows[i].n = 3 + i;
  }
  if (memcmp(all.rows[0].name, all.rows[1].name, DIGEST) > 0) {
    set_row r = all.rows[0];
    all.rows[0] = all.rows[1], all.rows[1] = r;
  }
  if (max < sizeof all) return 0;
  memcpy(data, &all, sizeof all);
  return sizeof all;
}

static void put_u64(uint8_t *at, uint64_t v) { memcpy(at, &v, sizeof v); }

// One of the numbers, to one near it or far.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed) {
  static const uint64_t odd[] = {0, 1, 8, 55, 56, 57, 112, 4096, 65536, 1ull << 31, 1ull << 32, 1ull << 62, INT64_MAX,
                                 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
  uint64_t n, r = hash_u64(seed, 1);
  if (size < sizeof(exported) + sizeof(set_head)) return make_sound(data, max);
  if (r % 4 == 0) return LLVMFuzzerMutate(data, size, max);
  uint8_t *at = data + (r >> 8) % (size / 8) * 8;
  if ((size_t)(data + size - at) < sizeof n) return size;
  memcpy(&n, at, sizeof n);
  put_u64(at, r % 4 == 1 ? n + (r >> 32) % 17 - 8 : odd[(r >> 32) % COUNT(odd)]);
  return size;
}

// Checksums of as many sets and values as are there.
static void seal(unsigned char *at, size_t n) {
  set_head h;
  while (n >= sizeof h) {
    memcpy(&h, at, sizeof h);
    if (h.size > n || h.size < sizeof h || h.count > (h.size - sizeof h) / sizeof(set_row)) return;
    for (uint64_t i = 0; i < h.count; i++) {
      set_row r;
      unsigned char *to = at + sizeof h + i * sizeof r;
      memcpy(&r, to, sizeof r);
      if (r.at < h.size && r.n <= h.size - r.at) r.sum = hash_bytes(at + r.at, r.n, 0);
      memcpy(to, &r, sizeof r);
    }
    h.sum = hash_bytes(at + sizeof h, h.count * sizeof(set_row), hash_bytes(&h, offsetof(set_head, sum), 0));
    memcpy(at, &h, sizeof h);
    at += h.size;
    n -= h.size;
  }
}

static void use_kernels(const void *at, size_t n) {
  error err = {0};
  bytes value;
  env_set(ENV_WEFT_CPU, "native");
  if (kernel_set_use(at, n, &err)) {
    if (!err.text[0]) die("kernels are refused without a word");
    return;
  }
  for (int i = 0; i < 3; i++) {
    char key[16];
    snprintf(key, sizeof key, "kernel %d", i);
    if (kernel_set_get("version", key, strlen(key), &value)) bytes_free(&value);
    else if (kernel_set_damage(&err) && !err.text[0]) die("damage without a word");
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { BYTES = EXPORTED_ALIGN + KERNELS_MOST + EXPORTED_TRAILER };
  static unsigned char *file, sound[512];
  static int fd;
  exported e, found;
  error err = {0};
  if (!file) {
    fd = memfd_create("exported", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, BYTES)) die("no memory for a file");
    file = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) die("the file cannot be mapped");
    memcpy(file, ELFMAG, SELFMAG);
    file[EI_CLASS] = ELFCLASS64;
  }
  if (size < sizeof e || size - sizeof e > KERNELS_MOST) size = make_sound(sound, sizeof sound), data = sound;
  size_t n = size - sizeof e;
  memcpy(&e, data, sizeof e);
  memset(file + EXPORTED_ALIGN, 0, BYTES - EXPORTED_ALIGN);
  if (n) memcpy(file + EXPORTED_ALIGN, data + sizeof e, n);
  seal(file + EXPORTED_ALIGN, n);
  exported_trailer(&e, file + BYTES - EXPORTED_TRAILER);
  int status = exported_find(fd, BYTES, &found, &err);
  if (status < 0 && !err.text[0]) die("refused without a word");
  if (status <= 0) return 0;
  unsigned char *copy = xmalloc(found.kernels_n);    // of exactly the size
  memcpy(copy, file + found.kernels_at, found.kernels_n);
  use_kernels(copy, found.kernels_n);
  free(copy);
  return 0;
}
