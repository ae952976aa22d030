// PTX as the tests run it: a module's text is read once, and its kernels run, work-group after work-group, on this
// processor. See ptx.c.
#ifndef WEFT_TEST_PTX_H
#define WEFT_TEST_PTX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx ptx;

// One kernel of a module; NULL and why not, where the text has what ptx.c does not know.
ptx *ptx_read(const char *text, char *why, size_t cap);
void ptx_free(ptx *k);
const char *ptx_name(const ptx *k);
int ptx_params(const ptx *k);                             // all of 8 bytes
// the sizes of a work-group that it must be launched with; 0: any
const unsigned *ptx_group(const ptx *k);
size_t ptx_shared(const ptx *k);                          // bytes of a work-group's memory

// Whether a kernel may touch these bytes.
typedef bool ptx_may(uint64_t at, size_t n);
// 0, or a status as the driver's, and why.  Faults: memory that may not be touched (700), an address that does not suit
// the size of what lies there (716), and (719) a barrier that not all items of a work-group reach, or two items that
// use a byte of the work-group's memory without a barrier in between, one of them writing.
int ptx_run(const ptx *k, const unsigned grid[3], const unsigned block[3], const uint64_t *params, ptx_may *may,
            char *why, size_t cap);
#endif
