// mapped: a file mapped read-only, which may be truncated, or whose disk may fail, while it is used.
//
// Reading bytes that no longer exist raises SIGBUS. The handler that the first mapping installs replaces the missing
// pages by zeros, records that the file is damaged, and lets the read continue. So any thread, in any code including
// generated kernels, may read a mapping without precautions, and the code that answers the request calls
// mapped_is_whole afterwards. A SIGBUS that no mapping of this table has caused goes to the previous handler. (A
// program that installs its own handler later replaces this one; a truncated file then ends in that handler.)
#ifndef WEFT_MAPPED_H
#define WEFT_MAPPED_H
#include "base/base.h"

typedef struct mapped mapped;

// Maps the first n > 0 bytes of a file; fd still belongs to the caller and must stay open as long as the mapping. NULL:
// errno says why.
mapped *mapped_open(int fd, size_t n);
const unsigned char *mapped_bytes(const mapped *m);
bool mapped_is_whole(const mapped *m);       // false from the first read of missing bytes on
void mapped_close(mapped *m);                // NULL is fine
#endif
