// Memory areas on macOS: see memory.h. The system chooses page sizes itself.
#include "device/memory.h"
#include <errno.h>
#include <mach/mach.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysctl.h>
#include <unistd.h>

static _Thread_local uint64_t refusals;
uint64_t memory_refusals(void) { return refusals; }

static uint64_t area_size(uint64_t size) { return round_up(size, MEMORY_ALIGN); }

void *memory_reserve(uint64_t size, error *err) {
  uint64_t wanted = area_size(size), whole = wanted + MEMORY_ALIGN;
  uint8_t *p = MAP_FAILED;
  if (size && size <= (uint64_t)1 << 46)
    p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    refusals++;
    error_set(err, "memory: reserving %llu bytes failed: %s", (unsigned long long)size, strerror(errno));
    return NULL;
  }
  uint64_t before = (MEMORY_ALIGN - (uintptr_t)p % MEMORY_ALIGN) % MEMORY_ALIGN;
  if (before) munmap(p, before);
  if (MEMORY_ALIGN - before) munmap(p + before + wanted, MEMORY_ALIGN - before);
  return p + before;
}

void *memory_reserve_plain(uint64_t size, error *err) { return memory_reserve(size, err); }
void *memory_no_access(uint64_t size, error *err) {
  void *at = mmap(NULL, area_size(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) return at;
  error_set(err, "no room for %.2f GiB of addresses", (double)size / 0x1p30);
  return NULL;
}

bool memory_promote(void *p, uint64_t size) { return (void)p, (void)size, false; }

void memory_release(void *p, uint64_t size) {
  if (p) munmap(p, area_size(size));
}

// Maps the pages again: advice does not guarantee zeros here.
void memory_discard(void *p, uint64_t size) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = round_up((uintptr_t)p, page),
            to = ((uintptr_t)p + size) / page * page;
  if (from < to && mmap((void *)from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                        0) == MAP_FAILED)
    die("memory: %zu bytes did not come back", (size_t)(to - from));
}

void memory_touch(const void *p, uint64_t size) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (const volatile uint8_t *at = p; at < (const volatile uint8_t *)p + size; at += page) (void)*at;
}

bool memory_resident(const void *p, uint64_t size, unsigned char *pages) {
  return !mincore((void *)(uintptr_t)p, size, (char *)pages);
}

int memory_total(uint64_t *out, error *err) {
  size_t n = sizeof *out;
  return sysctlbyname("hw.memsize", out, &n, NULL, 0) ? error_set(err, "memory: %s", strerror(errno)) : 0;
}

int memory_available(uint64_t *out, error *err) {
  vm_statistics64_data_t s;
  mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
  if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&s, &n))
    return error_set(err, "memory: the system does not say how much is available");
  *out = ((uint64_t)s.free_count + s.inactive_count + s.purgeable_count) * (uint64_t)sysconf(_SC_PAGESIZE);
  return 0;
}

static struct mach_task_basic_info task_memory(void) {
  struct mach_task_basic_info info = {0};
  mach_msg_type_number_t n = MACH_TASK_BASIC_INFO_COUNT;
  if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &n)) info.resident_size = 0;
  return info;
}

uint64_t memory_peak_rss(void) { return task_memory().resident_size_max; }
uint64_t memory_rss(void) { return task_memory().resident_size; }
