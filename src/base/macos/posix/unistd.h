// fork always fails: a child that executes no other program must not use macOS's frameworks. Callers continue without a
// child.
#ifndef WEFT_MACOS_UNISTD_H
#define WEFT_MACOS_UNISTD_H
#include_next <unistd.h>
#include <errno.h>
#define fork() (errno = ENOSYS, -1)

#include <fcntl.h>
static inline int posix_pipe2(int ends[2], int flags) {
  if (pipe(ends)) return -1;
  for (int i = 0; i < 2 && flags & O_CLOEXEC; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
  return 0;
}
#define pipe2 posix_pipe2
#endif
