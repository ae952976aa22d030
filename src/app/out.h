// out: stdout, collected and written in large pieces.  A pipe that was closed at the other end is no error: what is left is
// dropped in silence and the command ends well.  Anything else (a full disk) ends it with a message and status 1.
#ifndef WEFT_OUT_H
#define WEFT_OUT_H
#include "base/str.h"

struct out { str pending; int error, fd; };   // {0} to begin with; error: errno of the first write that failed; fd: a file instead of stdout
void out_add(struct out *o, const char *text, size_t n);
void out_addf(struct out *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool out_flush(struct out *o);             // writes what is pending; false: it failed, now or before, and the work may stop
int out_end(struct out *o, int status);    // flushes and frees; the exit status: `status`, or 1 after a message
#endif
