// The filter: a list of system calls in the kernel's BPF. See confine.h.
#define _GNU_SOURCE
#include "device/confine.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/base.h"

#if defined(__x86_64__)
enum { ARCH = AUDIT_ARCH_X86_64 };
#elif defined(__aarch64__)
enum { ARCH = AUDIT_ARCH_AARCH64 };
#endif

static const int calls[] = {
  SYS_read, SYS_write, SYS_recvfrom, SYS_sendmsg, SYS_ppoll, SYS_close,
  SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_futex, SYS_exit, SYS_exit_group,
  SYS_rt_sigreturn, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_tgkill, SYS_getpid, SYS_gettid,
  SYS_sched_yield, SYS_sched_getaffinity, SYS_clock_gettime, SYS_clock_nanosleep, SYS_restart_syscall,
  SYS_getrandom, SYS_sysinfo, SYS_getrusage,
  SYS_rseq, SYS_set_robust_list,       // the first steps of a thread
#ifdef SYS_poll
  SYS_poll,
#endif
};
// Their third argument is a protection, which must not say executable.
static const int mappings[] = {SYS_mmap, SYS_mprotect};

bool confine_to_computing(void) {
  struct sock_filter code[2 * COUNT(calls) + 5 * COUNT(mappings) + 8];
  unsigned short n = 0;
  const unsigned allow = SECCOMP_RET_ALLOW, refuse = SECCOMP_RET_ERRNO | EPERM;
#define ADD(...) (code[n++] = (struct sock_filter)__VA_ARGS__)
  ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
  ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
  ADD(BPF_STMT(BPF_RET | BPF_K, refuse));
  ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
  for (size_t i = 0; i < COUNT(calls); i++) {
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1));
    ADD(BPF_STMT(BPF_RET | BPF_K, allow));
  }
  for (size_t i = 0; i < COUNT(mappings); i++) {       // the low half of the argument: both machines are little-endian
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)mappings[i], 0, 4));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])));
    ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, allow));
    ADD(BPF_STMT(BPF_RET | BPF_K, refuse));
  }
  ADD(BPF_STMT(BPF_RET | BPF_K, refuse));
#undef ADD
  struct sock_fprog program = {n, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
  return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}
