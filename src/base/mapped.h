// A file mapped read-only, whose end may be cut away, or whose disk may fail, while it is used.
//
// Reading what is not there any more raises SIGBUS. The handler that the first mapping installs puts zeros in the
// place of the pages that are gone, notes that the file is not whole, and lets the read go on; so any thread, in any
// code, a generated kernel included, may read a mapping without precautions, and whoever answers for the request asks
// mapped_is_whole afterwards. A SIGBUS that no mapping of this table has caused goes to the handler that was there
// before. (A program that installs a handler of its own later takes this one's place, and a cut file ends in that.)
#ifndef WEFT_MAPPED_H
#define WEFT_MAPPED_H
#include "base/base.h"

typedef struct mapped mapped;

// Maps the first n > 0 bytes of a file; fd stays the caller's, and open as long as the mapping.  NULL: errno says why.
mapped *mapped_open(int fd, size_t n);
const unsigned char *mapped_bytes(const mapped *m);
bool mapped_is_whole(const mapped *m);       // false from the first read on that found nothing
void mapped_close(mapped *m);                // NULL is fine
#endif
