// There are no children: Windows knows no fork, and macOS none that goes on. Callers do without, or refuse what needs
// one. See child.h.
#include "base/child.h"
#include <errno.h>

void child_begin(const char *name, const int *keep, int n) { (void)name, (void)keep, (void)n; }
int child_limit_memory(int64_t more) { return (void)more, -1; }

int child_make(child_work *work, void *ctx, child_process **out) {
  (void)work, (void)ctx, (void)out;
  errno = ENOSYS;
  return -1;
}

bool child_end(child_process *c, double seconds, int *status, struct rusage *used) {
  (void)c, (void)seconds, (void)used;
  *status = 0;
  return false;
}

bool child_wait(int process, int *status) {
  (void)process;
  *status = 0;
  return false;
}
