// What base.c and attempt.c know of each other.
#ifndef WEFT_BASE_IMPL_H
#define WEFT_BASE_IMPL_H

struct attempt_frame;
void attempt_died(const char *text);        // leaves the attempt of this thread; returns where there is none
void attempt_took(void *p);                 // memory that this thread has now
void attempt_gave(void *p);                 // and has no more
// Of memory that moves: whose it was, which no longer has it (NULL: a new one's; NULL is returned where nobody owns
// it).
struct attempt_frame *attempt_owner(void *p);
void attempt_give(struct attempt_frame *f, void *p);
#endif
