// memory: large areas in huge pages, and the amount of memory available.
//
// Weights and intermediates are in areas from memory_reserve. With 4 KiB pages, address translation costs a streaming
// kernel up to half of the memory bandwidth, so areas are aligned to 2 MiB and request huge pages. Reserving commits
// nothing: a page uses memory once it is touched, so a KV cache may be reserved for the whole context length.
#ifndef WEFT_DEVICE_MEMORY_H
#define WEFT_DEVICE_MEMORY_H
#include "base/base.h"

enum { MEMORY_ALIGN = 2 << 20 };

// Reserves `size` zeroed bytes (size > 0) at a multiple of MEMORY_ALIGN; forked children do not inherit them. NULL and
// err with the numbers on failure. Free with memory_release.
void *memory_reserve(uint64_t size, error *err);
// Reserves plain pages, for areas that are filled at once and quickly: the first touch of a huge page can take several
// times as long per byte if the kernel must first compact memory. memory_promote converts `size` bytes from p on (both
// multiples of MEMORY_ALIGN, already touched) to huge pages in place, at about 2 GB/s; false if the kernel cannot.
// Pieces for which it finds no huge page now stay plain, without an error, because other pieces may succeed. If the
// kernel cannot promote, the pages are huge from the start.
void *memory_reserve_plain(uint64_t size, error *err);
bool memory_promote(void *p, uint64_t size);
uint64_t memory_refusals(void);        // how often this thread was refused memory by either function
// Reserves addresses without access, for memory that is elsewhere.
void *memory_no_access(uint64_t size, error *err);
void memory_release(void *p, uint64_t size);           // from any of these, with equal size; NULL is fine
// Gives back the pages that are entirely within [p, p + size); they read as zeros afterwards.
void memory_discard(void *p, uint64_t size);
// Maps the pages of [p, p + size) for reading: unwritten pages all map the system's zero page and use no memory.
// Otherwise each masked load from an unmapped page takes as long as a fault (170 ns on Zen 4), even if its mask selects
// nothing.
void memory_touch(const void *p, uint64_t size);
// Which pages of an area are resident, one byte per page (bit 0). False: unknown.
bool memory_resident(const void *p, uint64_t size, unsigned char *pages);

// In bytes. Available: what this process may still use without swapping, the minimum of the machine's and its control
// group's, with the page cache counted as available, and of what the limits of the process leave (ulimit -v, -d).
// Total: of the machine, or the lowest limit of group and process if that is less.
// Returns -1 if the system does not tell (err says why): then nothing should be refused.
int memory_available(uint64_t *out, error *err);
int memory_total(uint64_t *out, error *err);
uint64_t memory_peak_rss(void);                        // VmHWM of this process, including file pages; 0 if unknown
uint64_t memory_rss(void);                             // VmRSS; 0 if unknown
#endif
