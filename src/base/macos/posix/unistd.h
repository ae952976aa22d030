// No fork: what macOS's frameworks do in a child that executes no other program is undefined. Callers go without one.
#ifndef WEFT_MACOS_UNISTD_H
#define WEFT_MACOS_UNISTD_H
#include_next <unistd.h>
#include <errno.h>
#define fork() (errno = ENOSYS, -1)

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
static inline int gettid(void) {
  uint64_t id = 0;
  pthread_threadid_np(NULL, &id);
  return (int)id;
}
static inline int posix_pipe2(int ends[2], int flags) {
  if (pipe(ends)) return -1;
  for (int i = 0; i < 2 && flags & O_CLOEXEC; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
  return 0;
}
#define pipe2 posix_pipe2
#endif
