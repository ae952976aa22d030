// The filter: a list of system calls in the kernel's BPF. See confine.h.
#define _GNU_SOURCE
#include "base/confine.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

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
// What a program that only reads and writes files never does. io_uring would do the same things unseen.
static const int refused[] = {
  SYS_execve, SYS_execveat, SYS_socket, SYS_connect, SYS_bind, SYS_listen, SYS_io_uring_setup,
  SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
};
static const int accepting[] = {SYS_accept, SYS_accept4};      // what a server does, and nobody else
// What fetches something makes connections, which the system's names need more of (bind: the kernel is asked for
// addresses); none come to it.
static const int refused_fetching[] = {
  SYS_execve, SYS_execveat, SYS_listen, SYS_io_uring_setup, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
};

// Their third argument is a protection.
static const int mappings[] = {SYS_mmap, SYS_mprotect, SYS_pkey_mprotect};

typedef struct filter { struct sock_filter at[160]; unsigned short n; } filter;

static void add_instruction(filter *f, unsigned op, unsigned k, unsigned char yes, unsigned char no) {
  if (f->n == COUNT(f->at)) die("confine: a filter that is too long");
  f->at[f->n++] = (struct sock_filter){(unsigned short)op, yes, no, k};
}

static void load_field(filter *f, size_t offset) {
  add_instruction(f, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}
static void add_return(filter *f, unsigned what) { add_instruction(f, BPF_RET | BPF_K, what, 0, 0); }
enum { ALLOW = SECCOMP_RET_ALLOW, REFUSE = SECCOMP_RET_ERRNO | EPERM };

static void add_calls(filter *f, const int *list, size_t n, unsigned what) {
  for (size_t i = 0; i < n; i++) {
    add_instruction(f, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)list[i], 0, 1);
    add_return(f, what);
  }
}

// Other machines' calls have other numbers, and x32 has some beyond these: all refused.
static void refuse_other_machines(filter *f) {
  load_field(f, offsetof(struct seccomp_data, arch));
  add_instruction(f, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
  add_return(f, REFUSE);
  load_field(f, offsetof(struct seccomp_data, nr));
  add_instruction(f, BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
  add_return(f, REFUSE);
}

// Refuses mappings that have all of these protections. (The low half of the argument: both machines are little-endian.)
static void add_mappings(filter *f, unsigned protections) {
  for (size_t i = 0; i < COUNT(mappings); i++) {
    add_instruction(f, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)mappings[i], 0, 5);
    load_field(f, offsetof(struct seccomp_data, args[2]));
    add_instruction(f, BPF_ALU | BPF_AND | BPF_K, protections, 0, 0);
    add_instruction(f, BPF_JMP | BPF_JEQ | BPF_K, protections, 1, 0);
    add_return(f, ALLOW);
    add_return(f, REFUSE);
  }
}

// Refuses to type for the user: lines of a terminal name files, and a shell reads what is left there.
static void add_typing(filter *f) {
  add_instruction(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5);
  load_field(f, offsetof(struct seccomp_data, args[1]));
  add_instruction(f, BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 1, 0);
  add_instruction(f, BPF_JMP | BPF_JEQ | BPF_K, TIOCLINUX, 0, 1);
  add_return(f, REFUSE);
  add_return(f, ALLOW);
}

// SPEC_ALLOW: the filter is no boundary between secrets, and older kernels would slow the process down for it.
static bool install_filter(filter *f) {
  struct sock_fprog program = {f->n, f->at};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
  return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                  &program);
}

static bool confine(const int *list, size_t n, bool server) {
  filter f = {.n = 0};
  refuse_other_machines(&f);
  add_calls(&f, list, n, REFUSE);
  if (!server) add_calls(&f, accepting, COUNT(accepting), REFUSE);
  add_typing(&f);
  add_mappings(&f, PROT_WRITE | PROT_EXEC);
  add_return(&f, ALLOW);
  return install_filter(&f);
}

bool confine_to_files(void) { return confine(refused, COUNT(refused), false); }
bool confine_to_serving(void) { return confine(refused, COUNT(refused), true); }
bool confine_to_fetching(void) { return confine(refused_fetching, COUNT(refused_fetching), false); }

bool confine_to_computing(void) {
  filter f = {.n = 0};
  refuse_other_machines(&f);
  add_calls(&f, calls, COUNT(calls), ALLOW);
  add_mappings(&f, PROT_EXEC);
  add_return(&f, REFUSE);
  return install_filter(&f);
}
