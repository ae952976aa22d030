// Builds the filter: the list of confine_calls.h as a BPF program. See confine.h.
#define _GNU_SOURCE
#include "base/confine.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41   // linux/prctl.h, which conflicts with musl's sys/prctl.h
#endif

#if defined(__x86_64__)
enum { ARCH = AUDIT_ARCH_X86_64 };
#elif defined(__aarch64__)
enum { ARCH = AUDIT_ARCH_AARCH64 };
#endif

// ------------------------------------------------------------------------------------------------- checks of arguments

enum test {
  END,
  ONE_OF,              // the argument is one of the values
  IS_OWN,              // it is this process
  NO_BITS,             // it has none of these bits
  NOT_ALL_BITS,        // it lacks one of these bits
  PRIVATE_IF_CODE,     // flags of mmap: MAP_SHARED only for memory that is not executable
  IS_NULL,             // a pointer: both halves are 0
  NOT_MADE,            // the call is not made, and the caller is told that it succeeded
};
struct check { enum test test; int argument; const unsigned *values; size_t n; unsigned bits; };

#define VALUES(...) (const unsigned[]){__VA_ARGS__}, sizeof((unsigned[]){__VA_ARGS__}) / sizeof(unsigned), 0
#define BITS(x) NULL, 0, (unsigned)(x)

static const struct check not_both[] = {{NOT_ALL_BITS, 2, BITS(PROT_WRITE | PROT_EXEC)}, {0}};
static const struct check no_code[] = {{NO_BITS, 2, BITS(PROT_EXEC)}, {0}};
// A file that is mapped twice would be writable in one place and executable in the other.
static const struct check maps_in_order[] = {
  {NOT_ALL_BITS, 2, BITS(PROT_WRITE | PROT_EXEC)}, {PRIVATE_IF_CODE, 3, BITS(MAP_SHARED)}, {0}};
// Threads and children as the C library makes them; no namespaces, no tracing. The low byte is a signal.
static const struct check plain_clone[] = {
  {NO_BITS, 0,
   BITS(~(unsigned)(0xff | CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                    CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | CLONE_DETACHED))},
  {0}};
static const struct check self_first[] = {{ONE_OF, 0, VALUES(0)}, {0}};
static const struct check self_second[] = {{ONE_OF, 1, VALUES(0)}, {0}};
// libzmq sets each thread's scheduling policy to its current one, names it by its number, and ends the process if that
// fails.
static const struct check not_made[] = {{NOT_MADE, 0, BITS(0)}, {0}};
static const struct check own_priority[] = {{ONE_OF, 0, VALUES(PRIO_PROCESS)}, {ONE_OF, 1, VALUES(0)}, {0}};
static const struct check own_process[] = {{IS_OWN, 0, BITS(0)}, {0}};
// Does not allow setting the owner of a descriptor, which gets signals.
static const struct check plain_fcntl[] = {
  {ONE_OF, 1, VALUES(F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK,
                     F_OFD_SETLKW, F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_SETPIPE_SZ, F_GET_SEALS)},
  {0}};
// Modes and sizes of terminals, but no simulated input (TIOCSTI, TIOCLINUX). The last four are TCGETS2 and TCSETS2.
static const struct check plain_ioctl[] = {
  {ONE_OF, 1,
   VALUES(TCGETS, TCSETS, TCSETSW, TCSETSF, TCSBRK, TCFLSH, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX,
          0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d)},
  {0}};
static const struct check plain_prctl[] = {
  {ONE_OF, 0, VALUES(PR_SET_NAME, PR_GET_NAME, PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_GET_DUMPABLE, PR_CAPBSET_READ,
                     PR_SET_VMA)},
  {0}};
// Only connection-oriented pairs: a datagram socket can send to any name, connected or not, and a filter cannot see
// that name.
#define FLAGGED(type) (type), (type) | SOCK_CLOEXEC, (type) | SOCK_NONBLOCK, (type) | SOCK_CLOEXEC | SOCK_NONBLOCK
static const struct check unix_pairs[] = {
  {ONE_OF, 0, VALUES(AF_UNIX)}, {ONE_OF, 1, VALUES(FLAGGED(SOCK_STREAM), FLAGGED(SOCK_SEQPACKET))}, {0}};
// MSG_FASTOPEN connects, even a socket that was listening before shutdown.
static const struct check message_plain[] = {{NO_BITS, 2, BITS(MSG_FASTOPEN)}, {0}};
static const struct check messages_plain[] = {{NO_BITS, 3, BITS(MSG_FASTOPEN)}, {0}};
static const struct check to_the_other_end[] = {{NO_BITS, 3, BITS(MSG_FASTOPEN)}, {IS_NULL, 4, BITS(0)}, {0}};
// Modes of new files and folders: no set-user-ID and set-group-ID bits.
enum { OTHER_RIGHTS = 07000 };
#ifdef SYS_open
static const struct check plain_mode_second[] = {{NO_BITS, 1, BITS(OTHER_RIGHTS)}, {0}};
#endif
static const struct check plain_mode_third[] = {{NO_BITS, 2, BITS(OTHER_RIGHTS)}, {0}};
static const struct check plain_mode_fourth[] = {{NO_BITS, 3, BITS(OTHER_RIGHTS)}, {0}};
static const struct check plain_pipe[] = {{NO_BITS, 1, BITS(~(unsigned)(O_CLOEXEC | O_NONBLOCK | O_DIRECT))}, {0}};
// Advice about the process's own memory, not about the machine's (MADV_HWPOISON). By numbers: 22 and 23 read and write
// ahead, 25 collapses, 102 and 103 are guards of the C library's stacks.
static const struct check own_memory[] = {
  {ONE_OF, 2,
   VALUES(MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE, MADV_DONTFORK,
          MADV_DOFORK, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP, MADV_WIPEONFORK, 22, 23, 25, 102,
          103)},
  {0}};
static const struct check usual_sockets[] = {{ONE_OF, 0, VALUES(AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)}, {0}};
static const struct check another_filter[] = {{ONE_OF, 0, VALUES(SECCOMP_SET_MODE_FILTER)}, {0}};

// ------------------------------------------------------------------------------------------------------------ the list

#define BIT(kind) (1u << CONFINE_##kind)
#define EVERY ((1u << CONFINE_KINDS) - 1)
#define PROGRAMS (EVERY & ~BIT(COMPUTING))
#define NETWORK (BIT(FETCHING) | BIT(OPENING))

static const struct row { int call; const char *name; unsigned kinds; const struct check *checks; } calls[] = {
#define C(name, kinds, check) {SYS_##name, #name, kinds, check},
#include "base/confine_calls.h"
#undef C
};
static const struct attack { int call; const char *name; } attacks[] = {
#define A(name) {SYS_##name, #name},
#include "base/confine_attacks.h"
#undef A
};
// Calls from this number on are newer than the oldest supported systems, and have the same number on all machines.
// Libraries have alternatives for them, but only if the result is ENOSYS.
enum { FIRST_UNKNOWN = 424 };

enum confine_answer confine_answer_to(enum confine_kind kind, int call) {
  for (size_t i = 0; i < COUNT(calls); i++)
    if (calls[i].call == call && calls[i].kinds >> kind & 1)
      return !calls[i].checks || calls[i].checks == not_made ? CONFINE_ALLOWS : CONFINE_CHECKS;
  for (size_t i = 0; i < COUNT(attacks); i++) if (attacks[i].call == call) return CONFINE_KILLS;
  return call >= FIRST_UNKNOWN ? CONFINE_IS_UNKNOWN : CONFINE_FAILS;
}

const char *confine_name(int call) {
  for (size_t i = 0; i < COUNT(calls); i++) if (calls[i].call == call) return calls[i].name;
  for (size_t i = 0; i < COUNT(attacks); i++) if (attacks[i].call == call) return attacks[i].name;
  // In no row: some processes may call kill because of `signals`; UCX asks for huge pages with shmget, and continues
  // without them.
  return call == SYS_kill ? "kill" : call == SYS_shmget ? "shmget" : NULL;
}

// ---------------------------------------------------------------------------------------------------------- the filter

typedef struct filter { struct sock_filter at[1024]; unsigned short n; } filter;
static bool explains;

static void add_instruction(filter *f, unsigned op, unsigned k, unsigned yes, unsigned no) {
  if (f->n == COUNT(f->at) || yes > 255 || no > 255) die("confine: a filter that is too long");
  f->at[f->n++] = (struct sock_filter){(unsigned short)op, (unsigned char)yes, (unsigned char)no, k};
}

static void load_field(filter *f, size_t offset) {
  add_instruction(f, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}
static void jump_if(filter *f, unsigned how, unsigned value, unsigned yes, unsigned no) {
  add_instruction(f, BPF_JMP | how | BPF_K, value, yes, no);
}
static void add_return(filter *f, unsigned what) { add_instruction(f, BPF_RET | BPF_K, what, 0, 0); }
static void add_failure(filter *f) { add_return(f, (explains ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO) | EPERM); }
// A trap of number 0: it is reported, then ends the process.
static void add_kill(filter *f) { add_return(f, explains ? SECCOMP_RET_TRAP : SECCOMP_RET_KILL_PROCESS); }

// The halves of an argument: both machines are little-endian.
static void load_argument(filter *f, int i, bool upper) {
  load_field(f, offsetof(struct seccomp_data, args) + (size_t)i * 8 + (upper ? 4 : 0));
}

static void add_choice(filter *f, const unsigned *values, size_t n) {
  for (size_t i = 0; i < n; i++) jump_if(f, BPF_JEQ, values[i], (unsigned)(n - i), 0);
  add_failure(f);
}

// Returns EPERM if the check fails, and continues after it otherwise. Kernel functions use the low half of arguments
// that they declare as int, and in protections, flags and commands only bits of the low half have a meaning.
static void add_check(filter *f, const struct check *c) {
  unsigned own = (unsigned)getpid();
  load_argument(f, c->argument, false);
  if (c->test == ONE_OF) add_choice(f, c->values, c->n);
  else if (c->test == IS_OWN) add_choice(f, &own, 1);
  else if (c->test == NO_BITS) {
    jump_if(f, BPF_JSET, c->bits, 0, 1);
    add_failure(f);
  } else if (c->test == NOT_ALL_BITS) {
    add_instruction(f, BPF_ALU | BPF_AND | BPF_K, c->bits, 0, 0);
    jump_if(f, BPF_JEQ, c->bits, 0, 1);
    add_failure(f);
  } else if (c->test == PRIVATE_IF_CODE) {
    jump_if(f, BPF_JSET, c->bits, 0, 3);
    load_argument(f, c->argument - 1, false);
    jump_if(f, BPF_JSET, PROT_EXEC, 0, 1);
    add_failure(f);
  } else if (c->test == IS_NULL) {
    jump_if(f, BPF_JEQ, 0, 0, 2);
    load_argument(f, c->argument, true);
    jump_if(f, BPF_JEQ, 0, 1, 0);
    add_failure(f);
  } else if (c->test == NOT_MADE) add_return(f, SECCOMP_RET_ERRNO);
}

static void allow_call(filter *f, int call, const struct check *checks) {
  unsigned short at = f->n;
  jump_if(f, BPF_JEQ, (unsigned)call, 0, 0);
  for (; checks && checks->test != END; checks++) add_check(f, checks);
  add_return(f, SECCOMP_RET_ALLOW);
  if (f->n - at - 1 > 255) die("confine: a row that is too long");
  f->at[at].jf = (unsigned char)(f->n - at - 1);
}

// Calls of other machines have other numbers, and x32 has some beyond these.
static void refuse_other_machines(filter *f) {
  load_field(f, offsetof(struct seccomp_data, arch));
  jump_if(f, BPF_JEQ, ARCH, 1, 0);
  add_return(f, SECCOMP_RET_KILL_PROCESS);
  load_field(f, offsetof(struct seccomp_data, nr));
  jump_if(f, BPF_JGE, 0x40000000, 0, 1);
  add_return(f, SECCOMP_RET_KILL_PROCESS);
}

// SPEC_ALLOW: the filter is not a boundary between secrets, and older kernels would slow the process down for it.
static bool install_filter(filter *f) {
  struct sock_fprog program = {f->n, f->at};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
  return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                  &program);
}

static bool asked, signals_leave;
bool confine_signals_leave(void) { return signals_leave; }
bool confine_was_asked(void) { return asked; }

bool confine(enum confine_kind kind, bool signals) {
  filter f = {.n = 0};
  asked = true;
  if (PROGRAMS & ~NETWORK & 1u << kind) confine_connections();  // the compiler is already restricted by its parent
  refuse_other_machines(&f);
  for (size_t i = 0; i < COUNT(calls); i++)
    if (calls[i].kinds >> kind & 1)
      allow_call(&f, calls[i].call, signals && calls[i].checks == own_process ? NULL : calls[i].checks);
  if (signals) allow_call(&f, SYS_kill, NULL);
  signals_leave |= signals;
  for (size_t i = 0; i < COUNT(attacks); i++) {
    jump_if(&f, BPF_JEQ, (unsigned)attacks[i].call, 0, 1);
    add_kill(&f);
  }
  // Two calls that are never reported. SQLite gives new files to the owner of the database if it runs as root, and
  // continues if that fails; the C library tries some of the unknown calls while it blocks signals.
  jump_if(&f, BPF_JEQ, SYS_fchown, 0, 1);
  add_return(&f, SECCOMP_RET_ERRNO | EPERM);
  jump_if(&f, BPF_JGE, FIRST_UNKNOWN, 0, 1);
  add_return(&f, SECCOMP_RET_ERRNO | ENOSYS);
  add_failure(&f);
  return install_filter(&f);
}

bool confine_signals(long other) {
  const unsigned known[] = {(unsigned)getpid(), (unsigned)other};
  const struct check either[] = {{ONE_OF, 0, known, other ? 2 : 1, 0}, {0}};
  filter f = {.n = 0};
  refuse_other_machines(&f);
  allow_call(&f, SYS_kill, either);
  allow_call(&f, SYS_tgkill, own_process);
  add_return(&f, SECCOMP_RET_ALLOW);
  return install_filter(&f);
}

// --------------------------------------------------------------------------------------------------------- the reports

static char *append_words(char *at, const char *text) { return (char *)memcpy(at, text, strlen(text)) + strlen(text); }

static void report(int call) {
  char line[128], digits[12], *at = append_words(line, "weft: the sandbox refused the system call "), *d = digits + 11;
  const char *name = confine_name(call);
  *d = 0;
  do *--d = (char)('0' + call % 10); while ((call /= 10) > 0);
  at = append_words(at, name ? name : d);
  at = append_words(at, "\n");
  if (write(STDERR_FILENO, line, (size_t)(at - line)) < 0) return;
}

// The call has not been made: its result is set here. si_errno is the number in the filter.
static void on_refused(int sig, siginfo_t *info, void *context) {
  ucontext_t *c = context;
  int before = errno;
  report(info->si_syscall);
  if (!info->si_errno) {
    signal(sig, SIG_DFL);
    raise(sig);
  }
#if defined(__x86_64__)
  c->uc_mcontext.gregs[REG_RAX] = -info->si_errno;
#elif defined(__aarch64__)
  c->uc_mcontext.regs[0] = (unsigned long long)-(long long)info->si_errno;
#endif
  errno = before;
}

void confine_explain(void) {
  struct sigaction on = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigemptyset(&on.sa_mask);
  explains = !sigaction(SIGSYS, &on, NULL);
}
