// stack: how much of its stack a thread has left. Code that recurses as deep as its input is nested checks this first,
// since a thread may have a small stack (`ulimit -s`): input that is nested too deeply is an error, not a crash.
#ifndef WEFT_STACK_H
#define WEFT_STACK_H
#include "base/base.h"

size_t stack_left(void);     // bytes, of the calling thread; SIZE_MAX: unknown
// The reserve for code that does not check: library calls, messages, and levels between two checks.
#define STACK_SPARE ((size_t)96 << 10)
static inline bool stack_is_low(void) { return stack_left() < STACK_SPARE; }
#endif
