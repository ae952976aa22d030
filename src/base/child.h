// child: processes that are forked to work for this one. The child starts with no files but its own sockets, no
// terminal, and none of its parent's signals; base/confine.h restricts it further. Also how a parent that may not send
// signals ends a child.
#ifndef WEFT_CHILD_H
#define WEFT_CHILD_H
#include "base/base.h"

// In the child, after fork. name: for lists of processes. Closes everything but the n descriptors of `keep`; standard
// input and outputs that are not among these become /dev/null. Faults and SIGKILL end the child. Signals to a group
// (Ctrl-C, SIGTERM, a hang-up) are ignored: a service manager sends them to parent and child, and the parent may need
// the child until it has finished. No core dumps.
void child_begin(const char *name, const int *keep, int n);
// In the child: limits its address space to `more` bytes beyond the current size. -1: the kernel does not support it.
int child_limit_memory(int64_t more);

// A child for one piece of work. The kernel ends it when the thread that forked it ends. So a thread of its own forks
// it and waits until child_end: that needs no signal, which a filter of system calls could forbid, and a confined child
// cannot prevent it.
typedef struct child_process child_process;
typedef void child_work(void *ctx);     // runs in the child; does not return
// Returns 0 and a child for child_end, or -1 and errno. The child has no account and no attempt of the caller's thread.
int child_make(child_work *work, void *ctx, child_process **out);
// Waits for its end, at most `seconds`; then the kernel ends it. Returns the status of waitpid and the resources that
// it used; zeros if the system does not tell (child_wait). true: it was ended by the limit.
struct rusage;
bool child_end(child_process *c, double seconds, int *status, struct rusage *used);
// waitpid, for programs too whose SIGCHLD is ignored or which wait for children of others: then the status is lost, and
// the result is false, with 0 in *status.
bool child_wait(int process, int *status);
#endif
