// Memory of the device: large areas in huge pages, and how much there is.
//
// Weights and intermediates live in areas from memory_reserve.  Plain 4 KiB pages cost a streaming kernel up to half of
// the memory bandwidth in address translation, so areas are aligned to 2 MiB and ask for huge pages.  Reserving commits
// nothing: a page costs memory when it is first touched, so a KV cache may be reserved for the whole context length.
#ifndef WEFT_DEVICE_MEMORY_H
#define WEFT_DEVICE_MEMORY_H
#include "base/base.h"

enum { MEMORY_ALIGN = 2 << 20 };

// `size` bytes of zeros (size > 0), at a multiple of MEMORY_ALIGN, not there in children that are forked; NULL and err
// with the numbers when refused.  Free with memory_release.
void *memory_reserve(uint64_t size, error *err);
// The same in plain pages, for what is filled at once and in a hurry: a first touch of a huge page can take several
// times as long per byte, where the kernel must first make room in one piece. memory_promote turns `size` bytes from p
// on (both multiples of MEMORY_ALIGN), touched before, into huge pages, in place, at about 2 GB/s; false where the
// kernel cannot. What it finds no room for at this moment stays in plain pages, which is no reason to stop: of a large
// area the pieces beside it may have room. Without a kernel that can, the pages are huge ones at once.
void *memory_reserve_plain(uint64_t size, error *err);
bool memory_promote(void *p, uint64_t size);
uint64_t memory_refusals(void);        // how often either has refused this thread something
// So many addresses at which nothing lies and nothing may be touched, for memory that is elsewhere.
void *memory_no_access(uint64_t size, error *err);
void memory_release(void *p, uint64_t size);           // of any of these, the same size; NULL is fine
// Gives the pages that lie wholly within [p, p + size) back; they read as zeros afterwards.
void memory_discard(void *p, uint64_t size);
// Makes the pages of [p, p + size) ones that can be read: where nothing was written they are all the system's one page
// of zeros, and take no memory. Without it each masked load from a page that is not there takes as long as a fault
// (170 ns on Zen 4), though its mask leaves nothing to read.
void memory_touch(const void *p, uint64_t size);
// Which pages of an area hold something, a byte for each (bit 0). False: unknown.
bool memory_resident(const void *p, uint64_t size, unsigned char *pages);

// Bytes.  Available: what this process may still take without swapping, the least of the machine's and of its control
//         group's;
// the page cache counts as available.  Total: of the machine or of the group's limit, whichever is less.
// -1 where the system does not tell (err says why): then nothing should be refused.
int memory_available(uint64_t *out, error *err);
int memory_total(uint64_t *out, error *err);
uint64_t memory_peak_rss(void);                        // VmHWM of this process, file pages included; 0 if unknown
uint64_t memory_rss(void);                             // VmRSS; 0 if unknown
#endif
