// child: processes that are forked to work for this one. What such a process does first: it then has no files but its
// own sockets, no terminal, and no signals of its parent's; base/confine.h takes the rest. And how one is ended by a
// parent that may send no signals.
#ifndef WEFT_CHILD_H
#define WEFT_CHILD_H
#include "base/base.h"

// In the child, after fork. name: for lists of processes. Closes everything but the n descriptors of `keep`; standard
// input and outputs that are not among these are /dev/null. Faults and SIGKILL end it; what asks a group to end
// (Ctrl-C, SIGTERM, a hang-up) is the parent's: a service manager sends it to both, and the parent may have work for it
// until it is done. No core dumps.
void child_begin(const char *name, const int *keep, int n);
// In the child: of addresses it may take `more` bytes beside those that it has. -1: the kernel does not say so.
int child_limit_memory(int64_t more);

// A child for one piece of work. The kernel ends it when the thread that forked it ends, so it is forked by a thread of
// its own, which waits until child_end: no filter of system calls stands in the way, and a confined child cannot
// refuse.
typedef struct child_process child_process;
typedef void child_work(void *ctx);     // in the child; does not return
// 0 and a child for child_end, or -1 and errno. Nothing of the caller's thread (account, attempt) is in the child.
int child_make(child_work *work, void *ctx, child_process **out);
// Waits for its end, for `seconds` at most; then the kernel ends it. What waitpid says and what it used; true: it was
// ended so.
struct rusage;
bool child_end(child_process *c, double seconds, int *status, struct rusage *used);
#endif
