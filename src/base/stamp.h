// stamp: the system's metadata of a file, by which a change is noticed without reading the file. Any write, rename,
// chmod or restored time changes ctime, which programs cannot set; a replaced file has another inode.
//
// Limits: file systems' clocks have a coarse resolution, so a file that has just changed may change again under the
// same stamp (stamp_is_settled). Writes through another process's mapping are seen when the system writes them back.
#ifndef WEFT_STAMP_H
#define WEFT_STAMP_H
#include <sys/stat.h>
#include "base/base.h"

typedef struct stamp { uint64_t device, inode, size; int64_t mtime_ns, ctime_ns; } stamp;
// WRITTEN: another size, time or file; TOUCHED: only ctime has changed, so the bytes may be the same.
enum stamp_change { STAMP_SAME, STAMP_TOUCHED, STAMP_WRITTEN };

stamp stamp_of(const struct stat *st);
enum stamp_change stamp_compare(const stamp *before, const stamp *now);
// Nanoseconds from now until a change would certainly give another stamp. 0: it already would; negative: the file's
// time is in the future, and nothing is certain.
int64_t stamp_settles_ns(const stamp *s);
#endif
