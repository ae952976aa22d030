// Memory areas on Windows: see memory.h. Reserved memory is committed at once, which counts against the commit limit;
// pages use memory when they are touched. Large pages need a privilege that few users have, so they are not used.
#include "device/memory.h"
#include <windows.h>
#include <psapi.h>

static _Thread_local uint64_t refusals;
uint64_t memory_refusals(void) { return refusals; }

static uint64_t area_size(uint64_t size) { return round_up(size, MEMORY_ALIGN); }

// Reserves at a multiple of MEMORY_ALIGN, found within a larger area that is released first. Another thread may take
// the place meanwhile, hence the retries.
static void *reserve_aligned(uint64_t size) {
  for (int tries = 0; tries < 64; tries++) {
    uint8_t *p = VirtualAlloc(NULL, size + MEMORY_ALIGN, MEM_RESERVE, PAGE_NOACCESS);
    if (!p) return NULL;
    uint8_t *at = (uint8_t *)round_up((uintptr_t)p, MEMORY_ALIGN);
    VirtualFree(p, 0, MEM_RELEASE);
    if (VirtualAlloc(at, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE)) return at;
    if (GetLastError() != ERROR_INVALID_ADDRESS) return NULL;
  }
  return NULL;
}

void *memory_reserve(uint64_t size, error *err) {
  void *p = size && size <= (uint64_t)1 << 46 ? reserve_aligned(area_size(size)) : NULL;
  if (p) return p;
  uint64_t available;
  refusals++;
  if (memory_available(&available, NULL)) available = 0;
  error_set(err, "memory: reserving %llu bytes failed (%llu are available)", (unsigned long long)size,
            (unsigned long long)available);
  return NULL;
}

void *memory_reserve_plain(uint64_t size, error *err) { return memory_reserve(size, err); }
void *memory_no_access(uint64_t size, error *err) {
  void *at = VirtualAlloc(NULL, area_size(size), MEM_RESERVE, PAGE_NOACCESS);
  if (!at) error_set(err, "no room for %.2f GiB of addresses", (double)size / 0x1p30);
  return at;
}

bool memory_promote(void *p, uint64_t size) { return (void)p, (void)size, false; }

void memory_release(void *p, uint64_t size) {
  (void)size;
  if (p) VirtualFree(p, 0, MEM_RELEASE);
}

static uint64_t page_of(void) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}

void memory_discard(void *p, uint64_t size) {
  uintptr_t page = page_of(), from = round_up((uintptr_t)p, page), to = ((uintptr_t)p + size) / page * page;
  if (from >= to) return;
  uint8_t *at = (uint8_t *)p + (from - (uintptr_t)p);
  VirtualFree(at, to - from, MEM_DECOMMIT);
  if (!VirtualAlloc(at, to - from, MEM_COMMIT, PAGE_READWRITE)) die("memory: %zu bytes did not come back", to - from);
}

void memory_touch(const void *p, uint64_t size) {
  uintptr_t page = page_of();
  for (const volatile uint8_t *at = p; at < (const volatile uint8_t *)p + size; at += page) (void)*at;
}

bool memory_resident(const void *p, uint64_t size, unsigned char *pages) {
  uintptr_t page = page_of();
  for (uint64_t i = 0; i * page < size; i++) {
    PSAPI_WORKING_SET_EX_INFORMATION one = {.VirtualAddress = (uint8_t *)(uintptr_t)p + i * page};
    if (!QueryWorkingSetEx(GetCurrentProcess(), &one, sizeof one)) return false;
    pages[i] = one.VirtualAttributes.Valid;
  }
  return true;
}

static int status_of_memory(MEMORYSTATUSEX *out, error *err) {
  *out = (MEMORYSTATUSEX){.dwLength = sizeof *out};
  return GlobalMemoryStatusEx(out) ? 0 : error_set(err, "memory: the system does not say how much there is");
}

int memory_available(uint64_t *out, error *err) {
  MEMORYSTATUSEX m;
  if (status_of_memory(&m, err)) return -1;
  *out = m.ullAvailPhys;
  return 0;
}

int memory_total(uint64_t *out, error *err) {
  MEMORYSTATUSEX m;
  if (status_of_memory(&m, err)) return -1;
  *out = m.ullTotalPhys;
  return 0;
}

static PROCESS_MEMORY_COUNTERS task_memory(void) {
  PROCESS_MEMORY_COUNTERS c = {.cb = sizeof c};
  if (!GetProcessMemoryInfo(GetCurrentProcess(), &c, sizeof c)) c = (PROCESS_MEMORY_COUNTERS){0};
  return c;
}

uint64_t memory_peak_rss(void) { return task_memory().PeakWorkingSetSize; }
uint64_t memory_rss(void) { return task_memory().WorkingSetSize; }
