// What a program does when the system fails it: makes one system call of a program fail, for
// tests/python/test_failures.py.
//
//     fail_tool KIND N PROGRAM ARGUMENTS...     KIND: a name of kinds[] below; N: which of its calls fails, from 0 on;
//     -1: none
//
// Calls of all its threads and children count. Its exit status, or signal, becomes this program's; the last line on
// stderr says how many calls of the kind there were ("fail_tool: 12 calls"). Calls count once the program looks at
// descriptor 0 with fcntl, as weft does first: what the loader of libraries does before is not the program's. "short"
// fails nothing: all reads and writes from number N on move half of what they were asked for, as the system may choose
// at any time.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define CALLS(...) (const long[]){__VA_ARGS__, -1}
static const struct kind { const char *name; int error; const long *calls;
} kinds[] = {
  {"open", EMFILE, CALLS(SYS_open, SYS_openat)},
  {"read", EIO, CALLS(SYS_read, SYS_pread64, SYS_readv, SYS_preadv, SYS_getdents64)},
  {"write", ENOSPC, CALLS(SYS_write, SYS_pwrite64, SYS_writev)},
  {"map", ENOMEM, CALLS(SYS_mmap, SYS_mremap, SYS_brk, SYS_mprotect)},
  {"thread", EAGAIN, CALLS(SYS_clone, SYS_clone3, SYS_fork, SYS_vfork)},
  {"file", EIO,
   CALLS(SYS_fsync, SYS_fdatasync, SYS_ftruncate, SYS_fallocate, SYS_rename, SYS_renameat2, SYS_fstat, SYS_newfstatat,
         SYS_lseek, SYS_flock, SYS_fchmod, SYS_mkdir, SYS_statx)},
  {"pipe", EMFILE, CALLS(SYS_pipe2, SYS_socketpair, SYS_sendmsg, SYS_recvmsg, SYS_memfd_create, SYS_poll, SYS_ppoll)},
  {"short", 0, CALLS(SYS_read, SYS_write, SYS_pread64, SYS_pwrite64)},
};

// A number that no call has: nothing is done. (-1 would be one of the calls that the sandbox ends a process for.)
enum { NO_CALL = 4000 };

static const struct kind *kind;
static long wanted, seen;
static int begun;

static int counts(const struct user_regs_struct *r) {
  if (!begun) { begun = (long)r->orig_rax == SYS_fcntl && !r->rdi && r->rsi == F_GETFD; return 0; }
  for (const long *c = kind->calls; *c >= 0; c++)
    if ((long)r->orig_rax == *c) return 1;
  return 0;
}

// Threads in a call that was changed: whether it fails, and the arguments that it had, which a call leaves as they are.
static struct thread { pid_t id; int changed, fails; struct user_regs_struct before; } *threads;
static size_t n_threads;

static struct thread *thread_of(pid_t id) {
  for (size_t i = 0; i < n_threads; i++) if (threads[i].id == id) return &threads[i];
  threads = realloc(threads, (n_threads + 1) * sizeof *threads);
  if (!threads) abort();
  threads[n_threads] = (struct thread){.id = id};
  return &threads[n_threads++];
}

static void at_call(pid_t id) {
  struct thread *t = thread_of(id);
  struct __ptrace_syscall_info info;
  struct user_regs_struct r;
  if (ptrace(PTRACE_GETREGS, id, NULL, &r) || ptrace(PTRACE_GET_SYSCALL_INFO, id, sizeof info, &info) < 0) return;
  if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
    if (!t->changed) return;
    if (t->fails) r.rax = (unsigned long long)(long long)-kind->error;
    r.rdi = t->before.rdi, r.rdx = t->before.rdx;
    ptrace(PTRACE_SETREGS, id, NULL, &r);
    t->changed = t->fails = 0;
    return;
  }
  if (!counts(&r)) return;
  long at = seen++;
  t->before = r;
  if (!kind->error && wanted >= 0 && at >= wanted) r.rdx -= r.rdx / 2;
  else if (kind->error && at == wanted && (long)r.orig_rax == SYS_brk)
    r.rdi = 0;  // tells where memory ends, and leaves it there
  else if (kind->error && at == wanted) {
    t->fails = 1;
    r.orig_rax = NO_CALL;
  }
  else
    return;
  t->changed = 1;
  ptrace(PTRACE_SETREGS, id, NULL, &r);
}

static int follow(pid_t program) {
  int status, result = 0;
  for (pid_t id; (id = waitpid(-1, &status, __WALL)) > 0;) {
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      struct thread *t = thread_of(id);
      *t = threads[--n_threads];
      if (id == program) result = status;
      continue;
    }
    int sig = WSTOPSIG(status), event = status >> 16;
    if (sig == (SIGTRAP | 0x80)) at_call(id), sig = 0;
    else if (event || sig == SIGTRAP) sig = 0;
    else if (sig == SIGSTOP) sig = 0;               // a new thread's first stop
    ptrace(PTRACE_SYSCALL, id, NULL, (void *)(long)sig);
  }
  return result;
}

int main(int argc, char **argv) {
  for (size_t i = 0; argc > 3 && i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(argv[1], kinds[i].name)) kind = &kinds[i];
  if (!kind) { fprintf(stderr, "usage: fail_tool KIND N PROGRAM ARGUMENTS...\n"); return 2; }
  wanted = atol(argv[2]);
  pid_t program = fork();
  if (!program) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) _exit(77);
    raise(SIGSTOP);
    execv(argv[3], argv + 3);
    _exit(127);
  }
  int status;
  if (program < 0 || waitpid(program, &status, 0) != program) return 77;
  if (WIFEXITED(status)) {
    fprintf(stderr, "fail_tool: this system lets no program follow another\n");
    return WEXITSTATUS(status);
  }
  long options =
    PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SETOPTIONS, program, NULL, (void *)options) || ptrace(PTRACE_SYSCALL, program, NULL, NULL))
    return 77;
  status = follow(program);
  fprintf(stderr, "fail_tool: %ld calls\n", seen);
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 78;
}
#else
int main(void) {
  fprintf(stderr, "fail_tool: not written for this kind of processor\n");
  return 77;
}
#endif
