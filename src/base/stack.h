// stack: how much of its stack a thread has left.  What recurses as deep as its input is nested asks before it goes on,
// since a thread may have little (`ulimit -s`), and what does not fit is an error of the input and no crash.
#ifndef WEFT_STACK_H
#define WEFT_STACK_H
#include "base/base.h"

size_t stack_left(void);     // bytes, of the thread that asks; SIZE_MAX: nobody knows
// Less is left than what does not ask any more may take: calls into libraries, messages, levels until the next
// question.
#define STACK_SPARE ((size_t)96 << 10)
static inline bool stack_is_low(void) { return stack_left() < STACK_SPARE; }
#endif
