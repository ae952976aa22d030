// Attempts to leave the sandbox, each with arguments that work without one (where that needs no privilege: plain).
// `make` returns whether the decisive call worked; victim is another process, file one that exists.
#ifndef WEFT_TEST_CONFINE_ATTEMPTS_H
#define WEFT_TEST_CONFINE_ATTEMPTS_H
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

enum attempt_end { ATTEMPT_WORKS, ATTEMPT_REFUSED, ATTEMPT_ENDED, ATTEMPT_FAILS, ATTEMPT_NOT_MADE };
struct attempt {
  const char *name;
  bool (*make)(pid_t victim, const char *file);
  bool ends, plain;            // ends: the process is ended for it
};

#define ATTEMPT(name) static bool name(pid_t victim, const char *file)
#define UNUSED (void)victim, (void)file

// ---- memory that is writable and executable
ATTEMPT(shm_exec) {
  UNUSED;
  int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0700);
  char *at = id < 0 ? (char *)-1 : shmat(id, NULL, SHM_EXEC);
  if (id >= 0) shmctl(id, IPC_RMID, NULL);
  return at != (char *)-1;
}
ATTEMPT(implied_exec) { UNUSED; return personality(READ_IMPLIES_EXEC) != -1; }

static bool maps_twice(int fd) {
  if (fd < 0 || ftruncate(fd, 4096)) return false;
  char *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return w != MAP_FAILED && mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) != MAP_FAILED;
}
ATTEMPT(memfd_twice) { UNUSED; return maps_twice(memfd_create("x", 0)); }
ATTEMPT(file_twice) { (void)victim; return maps_twice(open(file, O_RDWR)); }
ATTEMPT(both_at_once) {
  UNUSED;
  return mmap(NULL, 4096, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

// ---- files of others: what Landlock does not look at
ATTEMPT(change_mode) { (void)victim; return !chmod(file, 0600); }
ATTEMPT(change_owner) { (void)victim; return !chown(file, getuid(), getgid()); }
ATTEMPT(change_times) { (void)victim; return !utimensat(AT_FDCWD, file, NULL, 0); }
ATTEMPT(change_times_of_read) {
  (void)victim;
  int fd = open(file, O_RDONLY);
  bool done = fd >= 0 && !futimens(fd, NULL);
  close(fd);
  return done;
}
ATTEMPT(change_attribute) { (void)victim; return !setxattr(file, "user.x", "x", 1, 0); }
ATTEMPT(cut) { (void)victim; return !truncate(file, 0); }

// ---- other processes
ATTEMPT(stop) { (void)file; return !kill(victim, SIGSTOP); }
ATTEMPT(stop_thread) { (void)file; return !syscall(SYS_tgkill, victim, victim, SIGCONT); }
ATTEMPT(stop_by_descriptor) {
  (void)file;
  int fd = (int)syscall(SYS_pidfd_open, victim, 0);
  return fd >= 0 && !syscall(SYS_pidfd_send_signal, fd, SIGCONT, NULL, 0);
}
ATTEMPT(signal_by_owner) { (void)file; int fd[2]; return !pipe(fd) && !fcntl(fd[0], F_SETOWN, victim); }
ATTEMPT(limit) { (void)file; struct rlimit r = {9, 9}; return !prlimit(victim, RLIMIT_CORE, &r, NULL); }
ATTEMPT(move) {
  (void)file;
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int i = 0; i < 64; i++) CPU_SET(i, &all);
  return !sched_setaffinity(victim, sizeof all, &all);
}
ATTEMPT(slow_down) { (void)file; return !setpriority(PRIO_PROCESS, (id_t)victim, 19); }
ATTEMPT(trace) { (void)file; return !ptrace(PTRACE_SEIZE, victim, NULL, NULL); }
ATTEMPT(look_into) {
  (void)file;
  char byte;
  struct iovec to = {&byte, 1}, from = {&byte, 1};
  return syscall(SYS_process_vm_readv, victim, &to, 1, &from, 1, 0) == 1;
}
ATTEMPT(count) {
  (void)file;
  struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_TASK_CLOCK,
                              .exclude_kernel = 1};
  return syscall(SYS_perf_event_open, &a, victim, -1, -1, 0) >= 0;
}

// Told that it worked (libzmq ends where it fails), and nothing done: what counts is what the other has afterwards.
ATTEMPT(schedule) {
  (void)file;
  struct sched_param none = {0};
  int other = sched_getscheduler(victim) == SCHED_BATCH ? SCHED_OTHER : SCHED_BATCH;
  if (sched_setscheduler(victim, other, &none)) return false;
  if (sched_getscheduler(victim) == other) return true;
  errno = EPERM;
  return false;
}
ATTEMPT(datagrams) { UNUSED; int fd[2]; return !socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fd); }
ATTEMPT(raw_pair) { UNUSED; int fd[2]; return !socketpair(AF_UNIX, SOCK_RAW, 0, fd); }

// A pair needs no connection, and takes the flag without one.
static bool sends(bool by_message) {
  int fd[2];
  struct iovec one = {(char[]){0}, 1};
  struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) return false;
  return (by_message ? sendmsg(fd[0], &m, MSG_FASTOPEN) : send(fd[0], "x", 1, MSG_FASTOPEN)) == 1;
}
ATTEMPT(connect_by_sendto) { UNUSED; return sends(false); }
ATTEMPT(connect_by_sendmsg) { UNUSED; return sends(true); }

// ---- programs that run as their owner
static bool makes(const char *file, int how, mode_t mode) {
  char path[4096];
  snprintf(path, sizeof path, how & O_DIRECTORY ? "/tmp" : "%s.made", file);
  int fd = how ? open(path, how, mode) : mkdir(path, mode);
  int before = errno;
  if (fd >= 0 && !(how & O_DIRECTORY)) remove(path);
  errno = before;
  return fd >= 0;
}
ATTEMPT(as_owner) { (void)victim; return makes(file, O_CREAT | O_WRONLY, 04755); }
ATTEMPT(as_group) { (void)victim; return makes(file, O_CREAT | O_WRONLY, 02755); }
ATTEMPT(without_name) { (void)victim; return makes(file, O_TMPFILE | O_WRONLY, 06755); }
ATTEMPT(folder_of_group) { (void)victim; return makes(file, 0, 03777); }
ATTEMPT(old_open) {
#ifdef SYS_open
  char path[4096];
  (void)victim;
  snprintf(path, sizeof path, "%s.made", file);
  bool made = syscall(SYS_open, path, O_CREAT | O_WRONLY, 04755) >= 0;
  if (made) unlink(path);
  return made;
#else
  UNUSED;
  errno = ENOSYS;
  return false;
#endif
}

// ---- the kernel
ATTEMPT(lose_page) {
  UNUSED;
  void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return at != MAP_FAILED && !madvise(at, 4096, 101 /* MADV_SOFT_OFFLINE: the page can be used on, elsewhere */);
}
ATTEMPT(watch) { UNUSED; int fd[2]; return !pipe2(fd, O_EXCL /* O_NOTIFICATION_PIPE */); }
ATTEMPT(new_user) { UNUSED; return !unshare(CLONE_NEWUSER); }
ATTEMPT(new_user_child) {
  UNUSED;
  long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
  if (!child) _exit(0);
  return child > 0;
}
ATTEMPT(new_root) { UNUSED; return !chroot("/tmp"); }
ATTEMPT(faults) { UNUSED; return syscall(SYS_userfaultfd, O_CLOEXEC | 1) >= 0; }
ATTEMPT(key) { UNUSED; return syscall(SYS_add_key, "user", "weft-test", "x", 1, KEY_SPEC_PROCESS_KEYRING) >= 0; }
ATTEMPT(ring) { UNUSED; char p[256] = {0}; return syscall(SYS_io_uring_setup, 1, p) >= 0; }
ATTEMPT(program) { UNUSED; char a[128] = {0}; return syscall(SYS_bpf, 0, a, sizeof a) >= 0; }

static const struct attempt attempts[] = {
  {"shmat(SHM_EXEC)", shm_exec, false, true}, {"personality(READ_IMPLIES_EXEC)", implied_exec, true, true},
  {"a memfd mapped twice", memfd_twice, false, true}, {"a file mapped twice", file_twice, false, true},
  {"writable and executable", both_at_once, false, true}, {"chmod", change_mode, false, true},
  {"chown", change_owner, false, true}, {"utimensat of a name", change_times, false, true},
  {"futimens of what is read", change_times_of_read, false, true},
  {"setxattr", change_attribute, false, false}, {"truncate", cut, false, true},
  {"SIGSTOP of another", stop, false, true}, {"tgkill of another", stop_thread, false, true},
  {"pidfd_send_signal", stop_by_descriptor, false, true}, {"F_SETOWN of another", signal_by_owner, false, true},
  {"prlimit of another", limit, false, true}, {"affinity of another", move, false, true},
  {"priority of another", slow_down, false, true}, {"ptrace", trace, true, false},
  {"process_vm_readv", look_into, true, false}, {"perf_event_open of another", count, false, false},
  {"unshare", new_user, true, false}, {"clone(CLONE_NEWUSER)", new_user_child, false, false},
  {"chroot", new_root, true, false}, {"userfaultfd", faults, true, false}, {"add_key", key, true, false},
  {"io_uring_setup", ring, true, false}, {"bpf", program, true, false},
  {"policy of another", schedule, false, true}, {"a pair of datagrams", datagrams, false, true},
  {"a raw pair", raw_pair, false, true}, {"sendto(MSG_FASTOPEN)", connect_by_sendto, false, true},
  {"sendmsg(MSG_FASTOPEN)", connect_by_sendmsg, false, true}, {"a setuid file", as_owner, false, true},
  {"a setgid file", as_group, false, true}, {"a setuid file without a name", without_name, false, false},
  {"a setgid folder", folder_of_group, false, true}, {"a setuid file by open", old_open, false, false},
  {"madvise(MADV_SOFT_OFFLINE)", lose_page, false, false}, {"pipe2(O_NOTIFICATION_PIPE)", watch, false, false},
};
#endif
