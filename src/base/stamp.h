// stamp: what the system says of a file's state, to tell whether it is the one that was looked at before without
// reading it. Any write, rename, chmod or restored time moves ctime, which programs cannot set; a file put in another's
// place has another inode.
//
// Limits: clocks of file systems move in steps, so a file that was changed a moment ago may be changed again under the
// same stamp (stamp_is_settled). Writes through a mapping of another process are seen when the system writes them out.
#ifndef WEFT_STAMP_H
#define WEFT_STAMP_H
#include <sys/stat.h>
#include "base/base.h"

typedef struct stamp { uint64_t device, inode, size; int64_t mtime_ns, ctime_ns; } stamp;
// WRITTEN: another size, time or file; TOUCHED: only ctime has moved, so the bytes may be the same.
enum stamp_change { STAMP_SAME, STAMP_TOUCHED, STAMP_WRITTEN };

stamp stamp_of(const struct stat *st);
enum stamp_change stamp_compare(const stamp *before, const stamp *now);
// Nanoseconds from now until a change would give another stamp for certain. 0: it would already; negative: the file's
// time lies in the future, and nothing is certain.
int64_t stamp_settles_ns(const stamp *s);
#endif
