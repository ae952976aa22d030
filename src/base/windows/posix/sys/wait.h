// Child processes: there are none (see fork).
#ifndef WEFT_WINDOWS_WAIT_H
#define WEFT_WINDOWS_WAIT_H
#include "base/windows/posix/posix.h"
enum { WNOHANG = 1 };
#define WIFEXITED(status) ((void)(status), true)
#define WEXITSTATUS(status) (status)
#define WIFSIGNALED(status) ((void)(status), false)
#define WTERMSIG(status) ((void)(status), 0)
int waitpid(int process, int *status, int how);
#endif
