// Shared by base.c and attempt.c.
#ifndef WEFT_BASE_IMPL_H
#define WEFT_BASE_IMPL_H

struct attempt_frame;
void attempt_died(const char *text);        // leaves this thread's attempt; returns if the thread has no attempt
void attempt_took(void *p);                 // this thread now has the memory
void attempt_gave(void *p);                 // and no longer has it
// For realloc: the owner of the old memory, which loses it (NULL: the owner for new memory). Returns NULL if there is
// no owner.
struct attempt_frame *attempt_owner(void *p);
void attempt_give(struct attempt_frame *f, void *p);
#endif
