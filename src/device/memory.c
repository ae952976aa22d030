// Huge-page areas and the size of memory: see memory.h.
#define _GNU_SOURCE
#include "device/memory.h"
#include "device/cgroup.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t area_size(uint64_t size) { return (size + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN; }

// Older kernels may lack or refuse these: both are tried, neither is required.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22     // Linux 5.14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25     // Linux 6.1
#endif

static _Thread_local uint64_t refusals;
uint64_t memory_refusals(void) { return refusals; }

// The limits that may refuse memory to this process, and the line of /proc/self/status with what counts against each.
static const struct { int limit; const char *name, *used; } limits[] = {
  {RLIMIT_AS, "addresses: ulimit -v", "VmSize"}, {RLIMIT_DATA, "data: ulimit -d", "VmData"}};

// The lower one of the limits; NULL: there are none.
static const char *limit_of_process(uint64_t *bytes) {
  const char *name = NULL;
  for (size_t i = 0; i < COUNT(limits); i++) {
    struct rlimit now;
    if (getrlimit(limits[i].limit, &now) || now.rlim_cur == RLIM_INFINITY || (name && now.rlim_cur >= *bytes)) continue;
    *bytes = now.rlim_cur;
    name = limits[i].name;
  }
  return name;
}

static void *reserve_pages(uint64_t size, error *err) {
  if (!size || size > (uint64_t)1 << 46) {
    error_set(err, "memory: cannot reserve %llu bytes", (unsigned long long)size);
    return NULL;
  }
  // reserve one alignment more than needed, then release the ends
  uint64_t wanted = area_size(size), whole = wanted + MEMORY_ALIGN;
  uint8_t *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    const char *why = strerror(errno);
    uint64_t available;
    refusals++;
    uint64_t most;
    const char *limit = limit_of_process(&most);
    if (limit)
      error_set(err, "memory: reserving %llu bytes failed: %s (this process may have %llu bytes of %s; a smaller "
                "context, -c, needs fewer)", (unsigned long long)size, why, (unsigned long long)most, limit);
    else if (memory_available(&available, NULL))
      error_set(err, "memory: reserving %llu bytes failed: %s", (unsigned long long)size, why);
    else
      error_set(err, "memory: reserving %llu bytes failed: %s (%llu are available)", (unsigned long long)size, why,
                (unsigned long long)available);
    return NULL;
  }
  uint64_t before = (MEMORY_ALIGN - (uintptr_t)p % MEMORY_ALIGN) % MEMORY_ALIGN;
  if (before) munmap(p, before);
  if (MEMORY_ALIGN - before) munmap(p + before + wanted, MEMORY_ALIGN - before);
  // a child does not need weights, and sharing them would slow down every first write in this process
  madvise(p + before, wanted, MADV_DONTFORK);
  return p + before;
}

void *memory_reserve(uint64_t size, error *err) {
  void *p = reserve_pages(size, err);
  if (p) madvise(p, area_size(size), MADV_HUGEPAGE);    // best effort: without huge pages it is slower, not wrong
  return p;
}

void *memory_no_access(uint64_t size, error *err) {
  void *at = mmap(NULL, area_size(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) return at;
  error_set(err, "no room for %.2f GiB of addresses", (double)size / 0x1p30);
  return NULL;
}

bool memory_promote(void *p, uint64_t size) {
  return !madvise(p, size, MADV_HUGEPAGE) &&
         (!madvise(p, size, MADV_COLLAPSE) || errno == ENOMEM || errno == EAGAIN || errno == EBUSY);
}

void *memory_reserve_plain(uint64_t size, error *err) {
  uint8_t *p = reserve_pages(size, err);
  if (!p) return NULL;
  *p = 0;
  // test on the first piece whether the kernel can promote; it becomes plain again
  bool can = memory_promote(p, MEMORY_ALIGN);
  if (can) memory_discard(p, MEMORY_ALIGN);
  madvise(p, area_size(size), can ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  return p;
}

void memory_release(void *p, uint64_t size) {
  if (p) munmap(p, area_size(size));
}

void memory_discard(void *p, uint64_t size) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)p + page - 1) / page * page,
            to = ((uintptr_t)p + size) / page * page;
  if (from < to) madvise((uint8_t *)p + (from - (uintptr_t)p), to - from, MADV_DONTNEED);
}

void memory_touch(const void *p, uint64_t size) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p / page * page, to = (uintptr_t)p + size;
  if (!madvise((void *)from, to - from, MADV_POPULATE_READ)) return;
  for (const volatile uint8_t *at = p; at < (const volatile uint8_t *)p + size; at += page) (void)*at;
}

bool memory_resident(const void *p, uint64_t size, unsigned char *pages) {
  return !mincore((void *)(uintptr_t)p, size, pages);
}

// Reads a line "name:   123 kB" of a /proc file, in bytes.
static bool read_kb(const char *path, const char *name, uint64_t *out) {
  FILE *f = fopen(path, "re");
  if (!f) return false;
  char line[256];
  size_t len = strlen(name);
  bool found = false;
  while (!found && fgets(line, sizeof line, f))
    if (!strncmp(line, name, len) && line[len] == ':') {
      uint64_t kb = strtoull(line + len + 1, NULL, 10);
      found = mul_u64(kb, 1024, out);
    }
  fclose(f);
  return found;
}

static uint64_t status(const char *name) {
  uint64_t v = 0;
  return read_kb("/proc/self/status", name, &v) ? v : 0;
}

// What the limits of the process leave; UINT64_MAX: there are none.
static uint64_t left_of_limits(void) {
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < COUNT(limits); i++) {
    struct rlimit now;
    if (getrlimit(limits[i].limit, &now) || now.rlim_cur == RLIM_INFINITY) continue;
    uint64_t used = status(limits[i].used), left = now.rlim_cur > used ? now.rlim_cur - used : 0;
    if (left < least) least = left;
  }
  return least;
}

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

int memory_available(uint64_t *out, error *err) {
  uint64_t machine, others = min_u64(cgroup_memory_available(""), left_of_limits());
  if (!read_kb("/proc/meminfo", "MemAvailable", &machine)) {
    if (others == UINT64_MAX) return error_set(err, "memory: /proc/meminfo does not say how much is available");
    machine = others;
  }
  *out = min_u64(machine, others);
  return 0;
}

int memory_total(uint64_t *out, error *err) {
  uint64_t machine, most, others = cgroup_memory_limit("");
  if (limit_of_process(&most)) others = min_u64(others, most);
  if (!read_kb("/proc/meminfo", "MemTotal", &machine)) {
    if (others == UINT64_MAX) return error_set(err, "memory: /proc/meminfo does not say how much there is");
    machine = others;
  }
  *out = min_u64(machine, others);
  return 0;
}

uint64_t memory_peak_rss(void) { return status("VmHWM"); }
uint64_t memory_rss(void) { return status("VmRSS"); }
