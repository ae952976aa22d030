// What the filters of system calls forbid, tried in a child; and what must go on working.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/confine.h"
#include "base/confine_attempts.h"

#define REFUSED(call) do { errno = 0; if ((long)(call) != -1 || errno != EPERM) return __LINE__; } while (0)

// The line of the first thing that is not as it should be.
static int try_computing(void) {
  int pipes[2];
  if (pipe(pipes)) return __LINE__;
  if (!confine(CONFINE_COMPUTING, false)) return 1;
  char *p = malloc(64 << 20), byte = 1;
  if (!p) return __LINE__;
  memset(p, 1, 64 << 20);
  free(p);
  if (write(pipes[1], &byte, 1) != 1 || read(pipes[0], &byte, 1) != 1) return __LINE__;
  REFUSED(open("/dev/null", O_RDONLY));
  REFUSED(open("/etc/passwd", O_RDONLY));
  REFUSED(socket(AF_INET, SOCK_STREAM, 0));
  REFUSED(socket(AF_UNIX, SOCK_STREAM, 0));
  REFUSED(fork());
  REFUSED(execl("/bin/true", "true", (char *)NULL));
  REFUSED(kill(getppid(), 0));
  REFUSED(unlink("/tmp/weft-none"));
  REFUSED(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  void *q = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (q == MAP_FAILED) return __LINE__;
  REFUSED(mprotect(q, 4096, PROT_READ | PROT_EXEC));
  return 0;
}

// What fetches: it connects, and nobody connects to it. Behind it comes the filter of files.
static int try_fetching(void) {
  struct sockaddr_un a = {.sun_family = AF_UNIX,};
  socklen_t n = sizeof a;
  int at = socket(AF_UNIX, SOCK_STREAM, 0);
  if (at < 0 || bind(at, (struct sockaddr *)&a, sizeof(sa_family_t)) || listen(at, 8) ||
      getsockname(at, (struct sockaddr *)&a, &n))
    return __LINE__;
  if (!confine(CONFINE_FETCHING, false)) return 1;
  int client = socket(AF_UNIX, SOCK_STREAM, 0);
  if (client < 0 || connect(client, (struct sockaddr *)&a, n)) return __LINE__;
  REFUSED(listen(at, 8));
  REFUSED(accept(at, NULL, NULL));
  REFUSED(execl("/bin/true", "true", (char *)NULL));
  REFUSED(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (!confine(CONFINE_FILES, false)) return __LINE__;
  REFUSED(socket(AF_UNIX, SOCK_STREAM, 0));
  REFUSED(connect(client, (struct sockaddr *)&a, n));
  return 0;
}

static void *nothing(void *p) { return p; }

// Pairs that are no pairs, and what is sent to a name: of kinds that make no connections.
static int try_names(int pair) {
  struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/tmp/weft-none"};
  int more[2];
  for (int flags = 0; flags < 4; flags++) {
    int with = (flags & 1 ? SOCK_CLOEXEC : 0) | (flags & 2 ? SOCK_NONBLOCK : 0);
    REFUSED(socketpair(AF_UNIX, SOCK_DGRAM | with, 0, more));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | with, 0, more)) return __LINE__;
    close(more[0]), close(more[1]);
  }
  REFUSED(sendto(pair, "x", 1, 0, (struct sockaddr *)&a, sizeof a));
  REFUSED(sendto(pair, "x", 1, 0, (struct sockaddr *)((uintptr_t)1 << 32), sizeof a));   // looked at: all of a pointer
  REFUSED(syscall(SYS_umask, 0));
  return 0;
}

static int try_files(void) {
  if (!confine(CONFINE_FILES, false)) return 1;
  int fd = open("/dev/null", O_RDWR), pair[2], status;
  pthread_t id;
  if (fd < 0 || write(fd, "x", 1) != 1) return __LINE__;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || send(pair[0], "x", 1, 0) != 1) return __LINE__;       // with oneself
  if (pthread_create(&id, NULL, nothing, NULL) || pthread_join(id, NULL)) return __LINE__;
  int named = try_names(pair[0]);
  if (named) return named;
  unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // one after the other
  if (code == MAP_FAILED || mprotect(code, 4096, PROT_READ | PROT_EXEC)) return __LINE__;
  REFUSED(mprotect(code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
  REFUSED(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REFUSED(execl("/bin/true", "true", (char *)NULL));
  REFUSED(socket(AF_INET, SOCK_STREAM, 0));
  REFUSED(socket(AF_INET6, SOCK_DGRAM, 0));
  REFUSED(socket(AF_UNIX, SOCK_STREAM, 0));
  REFUSED(connect(pair[0], NULL, 0));
  REFUSED(bind(pair[0], NULL, 0));
  REFUSED(accept(pair[0], NULL, NULL));
  int at = posix_openpt(O_RDWR | O_NOCTTY);                      // what is typed at a terminal comes from people alone
  struct winsize size;
  if (at < 0 || ioctl(at, TIOCGWINSZ, &size)) return __LINE__;
  REFUSED(ioctl(at, TIOCSTI, "x"));
  REFUSED(ioctl(at, TIOCLINUX, "\3"));
  // which inherits it
  pid_t child = fork();
  if (!child) _exit(execl("/bin/true", "true", (char *)NULL) == -1 && errno == EPERM ? 7 : 0);
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
    return __LINE__;
  return 0;
}

// A socket that listened is one that can connect once it is shut down, and a message can do it, in the place of
// connect.
static int try_turning(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, to = a;
  socklen_t n = sizeof a;
  int outside = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), at = socket(AF_INET, SOCK_STREAM, 0);
  struct iovec one = {(char[]){'x'}, 1};
  struct msghdr m = {.msg_name = &to, .msg_namelen = n, .msg_iov = &one, .msg_iovlen = 1};
  if (outside < 0 || at < 0 || bind(outside, (struct sockaddr *)&a, n) || listen(outside, 8)) return __LINE__;
  if (getsockname(outside, (struct sockaddr *)&to, &n)) return __LINE__;
  if (bind(at, (struct sockaddr *)&a, n) || listen(at, 8)) return __LINE__;
  if (!confine(CONFINE_SERVING, false)) return 1;
  if (shutdown(at, SHUT_RDWR)) return __LINE__;
  REFUSED(sendto(at, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&to, n));
  REFUSED(sendto(at, "x", 1, 0, (struct sockaddr *)&to, n));
  REFUSED(sendmsg(at, &m, MSG_FASTOPEN));
  sendmsg(at, &m, MSG_NOSIGNAL);
  return accept(outside, NULL, NULL) < 0 && errno == EAGAIN ? 0 : __LINE__;
}

// Landlock alone, without a filter: neither connections of TCP nor sockets that have a name and no file.
static int try_second_wall(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_un u = {.sun_family = AF_UNIX,};
  socklen_t n = sizeof a, nu = sizeof u;
  int outside = socket(AF_INET, SOCK_STREAM, 0), named = socket(AF_UNIX, SOCK_DGRAM, 0);
  long version = syscall(444, NULL, (size_t)0, 1);
  if (outside < 0 || bind(outside, (struct sockaddr *)&a, n) || listen(outside, 8)) return __LINE__;
  if (named < 0 || bind(named, (struct sockaddr *)&u, sizeof(sa_family_t))) return __LINE__;
  if (getsockname(outside, (struct sockaddr *)&a, &n) || getsockname(named, (struct sockaddr *)&u, &nu))
    return __LINE__;
  if (version < 4) return 1;
  if (!confine_connections()) return __LINE__;
  int client = socket(AF_INET, SOCK_STREAM, 0), datagrams = socket(AF_UNIX, SOCK_DGRAM, 0);
  errno = 0;
  if (connect(client, (struct sockaddr *)&a, n) != -1 || errno != EACCES) return __LINE__;
  if (version >= 6) REFUSED(sendto(datagrams, "x", 1, 0, (struct sockaddr *)&u, nu));
  return 0;
}

// A server: somebody connects to the socket that listened before, and nothing else can be made.
static int try_serving(void) {
  struct sockaddr_un a = {.sun_family = AF_UNIX,};
  socklen_t n = sizeof a;
  int at = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
  // the kernel names it
  if (at < 0 || client < 0 || bind(at, (struct sockaddr *)&a, sizeof(sa_family_t)) || listen(at, 8)) return __LINE__;
  if (getsockname(at, (struct sockaddr *)&a, &n) || connect(client, (struct sockaddr *)&a, n)) return __LINE__;
  if (!confine(CONFINE_SERVING, false)) return 1;
  int got = accept4(at, NULL, NULL, SOCK_CLOEXEC);
  if (got < 0 || send(client, "x", 1, 0) != 1) return __LINE__;
  REFUSED(socket(AF_INET, SOCK_STREAM, 0));
  REFUSED(connect(client, (struct sockaddr *)&a, n));
  REFUSED(bind(at, (struct sockaddr *)&a, n));
  REFUSED(listen(at, 8));
  REFUSED(execl("/bin/true", "true", (char *)NULL));
  REFUSED(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  return try_names(client);
}

// Files: one folder to read, one to write, one file to write, and what else lies beside them.
static int make(const char *folder, const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s%s", folder, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0 ? 0 : -1;
}

static int opens(const char *folder, const char *name, int how) {
  char path[256];
  snprintf(path, sizeof path, "%s%s", folder, name);
  int fd = open(path, how, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0 ? 0 : -1;
}

static void *read_besides(void *folder) { return opens(folder, "/other", O_RDONLY) ? folder : NULL; }

#define DENIED(call) do { errno = 0; if ((call) != -1 || (errno != EACCES && errno != EXDEV)) return __LINE__; } \
  while (0)

static char top[] = "/tmp/weft-confine-XXXXXX";      // made and removed by the parent

static int try_paths(void) {
  char r[64], w[64], from[64], to[64], link_path[64];
  snprintf(r, sizeof r, "%s/r", top), snprintf(w, sizeof w, "%s/w", top), snprintf(from, sizeof from, "%s/w/a", top),
    snprintf(to, sizeof to, "%s/w/b", top);
  snprintf(link_path, sizeof link_path, "%s/r/link", top);
  char other[64], single[64], missing[64];
  snprintf(other, sizeof other, "%s/other", top), snprintf(single, sizeof single, "%s/single", top),
    snprintf(missing, sizeof missing, "%s/none", top);
  if (mkdir(r, 0700) || mkdir(w, 0700) || make(r, "/x") || make(top, "/other") || make(top, "/single") ||
      symlink(other, link_path))
    return __LINE__;
  int held = open(other, O_RDONLY);                                                                     // before
  char store[64], folder[64];
  snprintf(store, sizeof store, "%s/store", top), snprintf(folder, sizeof folder, "%s/store/folder", top);
  if (mkdir(store, 0700)) return __LINE__;
  const confine_file files[] = {
    {r, false, false}, {w, true, false}, {single, true, false}, {missing, false, false}, {store, true, true}};
  if (confine_to(files, COUNT(files))) return __LINE__;
  pthread_t id;
  void *refused = NULL;
  char byte;
  if (opens(r, "/x", O_RDONLY) || opens(top, "/single", O_RDWR | O_TRUNC) || make(w, "/a") || opens(w, "/a", O_RDWR))
    return __LINE__;
  if (rename(from, to) || unlink(to) || read(held, &byte, 1) < 0) return __LINE__;
  if (pthread_create(&id, NULL, read_besides, top) || pthread_join(id, &refused) || !refused) return __LINE__;
  DENIED(opens(top, "/other", O_RDONLY));
  DENIED(opens(top, "/other", O_WRONLY));
  DENIED(opens("/etc/passwd", "", O_RDONLY));
  DENIED(opens(r, "/x", O_WRONLY));
  DENIED(opens(r, "/x", O_RDONLY | O_TRUNC));
  DENIED(opens(r, "/link", O_RDONLY));                                                                  // leads out
  DENIED(make(r, "/y"));
  DENIED(make(top, "/y"));
  DENIED(unlink(single));
  DENIED(mkdir(from, 0700));
  DENIED(symlink(other, from));
  DENIED(opens(top, "", O_RDONLY | O_DIRECTORY));
  if (mkdir(folder, 0700) || make(folder, "/x")) return __LINE__;
  DENIED(rmdir(w));
  snprintf(to, sizeof to, "%s/store/folder/x", top);
  if (unlink(to) || rmdir(folder)) return __LINE__;
  DENIED(rmdir(store));
  if (make(w, "/a")) return __LINE__;
  snprintf(to, sizeof to, "%s/a", top);
  DENIED(rename(from, to));
  // which inherits it
  pid_t child = fork();
  if (!child) _exit(opens(top, "/other", O_RDONLY) ? 7 : 0);
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
    return __LINE__;
  return 0;
}

static int try_no_descriptors(void) {
  const confine_file file = {"/dev/null", false, false};
  int held = open("/dev/null", O_RDONLY);
  struct rlimit most = {(rlim_t)held + 1, (rlim_t)held + 2};
  if (setrlimit(RLIMIT_NOFILE, &most) || confine_to(&file, 1) != CONFINE_NO_DESCRIPTORS) return __LINE__;    // no rules
  most.rlim_cur++;
  if (setrlimit(RLIMIT_NOFILE, &most) || confine_to(&file, 1) != CONFINE_NO_DESCRIPTORS) return __LINE__;    // no rule
  DENIED(opens("/dev/null", "", O_RDONLY));
  return 0;
}

// Signals to other processes, where Landlock knows of them; a child of such a process is none of these.
static int try_signals_of_landlock(void) {
  if (syscall(444, NULL, (size_t)0, 1) < 6) return 1;
  if (kill(getppid(), 0) || confine_to(NULL, 0)) return __LINE__;
  REFUSED(kill(getppid(), 0));
  int status;
  pid_t child = fork();
  if (!child) _exit(!kill(getppid(), 0) && !raise(0) ? 7 : 0);
  if (child < 0 || kill(child, 0) || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7) return __LINE__;
  return 0;
}

// A child that ends by its signals: cmocka has handlers that go on with the next test.
static pid_t fork_plain(void) {
  static const int all[] = {SIGSYS, SIGSEGV, SIGILL, SIGBUS, SIGFPE};
  pid_t child = fork();
  for (size_t i = 0; !child && i < COUNT(all); i++) signal(all[i], SIG_DFL);
  if (!child) alarm(60);
  return child;
}

// Each test that is skipped says why.
static void skip_for(const char *why) {
  print_message("skipped: %s\n", why);
  skip();
}

static const char no_filters[] = "this kernel takes no filter";
#ifdef WEFT_SANITIZE
static const char sanitized[] = "the sanitizers' own libraries make more calls";
#endif

static int outcome(int (*fn)(void)) {
  fflush(NULL);
  pid_t child = fork_plain();
  if (!child) _exit(fn() & 255);
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void holds(int (*fn)(void)) {
  int status = outcome(fn);
  if (status == 1) skip_for(no_filters);
  assert_int_equal(status, 0);
}

static void files_only(void **state) { (void)state; holds(try_files); }
static void fetching_only(void **state) { (void)state; holds(try_fetching); }
static void serving_only(void **state) { (void)state; holds(try_serving); }
static void nothing_turns_round(void **state) { (void)state; holds(try_turning); }
static void second_wall(void **state) {
  (void)state;
  int status = outcome(try_second_wall);
  if (status == 1) skip_for("Landlock of this kernel knows no network");
  assert_int_equal(status, 0);
}
static void signals_within(void **state) { (void)state; holds(try_signals_of_landlock); }
static void no_descriptors(void **state) {
  (void)state;
  if (!confine_knows_files()) skip_for("this kernel has no Landlock");
  assert_int_equal(outcome(try_no_descriptors), 0);
}
static void paths_only(void **state) {
  (void)state;
  if (!confine_knows_files()) skip_for("this kernel has no Landlock");
  static const char *const made[] = {"/r/x", "/r/link", "/w/a", "/w/b", "/single", "/other", "/r", "/w", ""};
  assert_non_null(mkdtemp(top));
  int status = outcome(try_paths);
  for (size_t i = 0; i < COUNT(made); i++) {
    char path[64];
    snprintf(path, sizeof path, "%s%s", top, made[i]);
    remove(path);
  }
  assert_int_equal(status, 0);
}
static void computing_only(void **state) {
  (void)state;
#ifdef WEFT_SANITIZE
  skip_for(sanitized);                                       // so the compiler's child goes without a filter
#endif
  holds(try_computing);
}


// ---- every system call, and what is tried with some

enum { CAME_BACK = 10, UNKNOWN, REFUSED_QUIETLY, REPORTED, REPORTED_AND_ENDED, NO_FILTERS, CALLS = 600 };

static void on_report(int sig, siginfo_t *info, void *context) {
  (void)sig;
  (void)context;
  _exit(info->si_errno ? REPORTED : REPORTED_AND_ENDED);
}

// Arguments that no check lets through, and with which nothing that is allowed does anything or waits.
static int try_call(enum confine_kind kind, int call) {
  struct sigaction on = {.sa_sigaction = on_report, .sa_flags = SA_SIGINFO};
  confine_explain();
  sigaction(SIGSYS, &on, NULL);
  if (!confine(kind, false)) return NO_FILTERS;
  if (syscall(call, -1L, -1L, -1L, -1L, -1L, -1L) != -1) return CAME_BACK;
  return errno == ENOSYS ? UNKNOWN : errno == EPERM ? REFUSED_QUIETLY : CAME_BACK;
}

// exit ends, and rt_sigreturn finds no frame: whatever ends without a report has been let through.
static int answer_to(enum confine_kind kind, int call) {
  int status;
  pid_t child = fork_plain();
  if (!child) _exit(try_call(kind, call));
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) return REPORTED_AND_ENDED;
  return WIFEXITED(status) && WEXITSTATUS(status) != 255 ? WEXITSTATUS(status) : CAME_BACK;
}

// Those that the kernel puts into programs for its probes: filters do not see them, and elsewhere they end a program.
static bool is_of_the_kernel(int call) {
#if defined(__x86_64__)
  return call == 335 || call == 336;
#else
  return (void)call, false;
#endif
}

static void every_call(void **state) {
  (void)state;
#ifdef WEFT_SANITIZE
  skip_for(sanitized);
#endif
  fflush(NULL);
  int counts[CONFINE_KINDS] = {0};
  for (int kind = 0; kind < CONFINE_KINDS; kind++)
    for (int call = 0; call < CALLS; call++) {
      if (is_of_the_kernel(call)) continue;
      int got = answer_to((enum confine_kind)kind, call);
      if (got == NO_FILTERS) skip_for(no_filters);
      enum confine_answer a = confine_answer_to((enum confine_kind)kind, call);
      int want = a == CONFINE_ALLOWS ? CAME_BACK : a == CONFINE_IS_UNKNOWN ? UNKNOWN
               : a == CONFINE_KILLS ? REPORTED_AND_ENDED : call == SYS_fchown ? REFUSED_QUIETLY : REPORTED;
      counts[kind] += a == CONFINE_ALLOWS || a == CONFINE_CHECKS;
      // the kernel knows no such call, or refuses these arguments itself
      if (a == CONFINE_ALLOWS && (got == UNKNOWN || got == REFUSED_QUIETLY)) got = CAME_BACK;
      if (got != want) fail_msg("kind %d: call %d (%s): %d, not %d", kind, call, confine_name(call), got, want);
    }
  // nothing is added without a thought: a row more changes these
  for (int kind = 0; kind < CONFINE_KINDS; kind++) print_message("kind %d: %d calls\n", kind, counts[kind]);
  assert_true(counts[CONFINE_COMPUTING] <= 32 && counts[CONFINE_FILES] <= 136 && counts[CONFINE_OPENING] <= 151);
  assert_int_equal(counts[CONFINE_COUNTING], counts[CONFINE_FILES] + 1);
}

// Calls that systemd's groups name (systemd.exec(5)): clock, cpu-emulation, debug, keyring, module, mount, obsolete,
// raw-io, reboot, swap, setuid, chown, and of privileged and ipc what is no file.
static void none_of_the_dangerous_groups(void **state) {
  (void)state;
  static const int calls[] = {
    SYS_adjtimex, SYS_clock_adjtime, SYS_clock_settime, SYS_settimeofday, SYS_perf_event_open, SYS_ptrace,
    SYS_pidfd_getfd, SYS_add_key, SYS_keyctl, SYS_request_key, SYS_delete_module, SYS_finit_module, SYS_init_module,
    SYS_chroot, SYS_fsconfig, SYS_fsmount, SYS_fsopen, SYS_fspick, SYS_mount, SYS_move_mount, SYS_open_tree,
    SYS_pivot_root, SYS_umount2, SYS_kexec_load, SYS_reboot, SYS_swapoff, SYS_swapon, SYS_setgid, SYS_setgroups,
    SYS_setregid, SYS_setresgid, SYS_setresuid, SYS_setreuid, SYS_setuid, SYS_setfsuid, SYS_setfsgid, SYS_fchown,
    SYS_fchownat, SYS_acct, SYS_bpf, SYS_capset, SYS_fanotify_init, SYS_open_by_handle_at, SYS_quotactl, SYS_vhangup,
    SYS_memfd_create, SYS_mq_open, SYS_msgget, SYS_semget, SYS_shmget, SYS_shmat, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_setns, SYS_unshare, SYS_personality, SYS_userfaultfd, SYS_io_uring_setup, SYS_execve,
    SYS_execveat, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    SYS_fchmod, SYS_fchmodat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_truncate, SYS_mknodat,
    SYS_symlinkat, SYS_clone3, SYS_utimensat, SYS_seccomp + 100000,
#ifdef SYS_open
    SYS_modify_ldt, SYS_iopl, SYS_ioperm, SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat,
    SYS_fork, SYS_vfork, SYS_uselib, SYS_ustat, SYS_sysfs, SYS__sysctl, SYS_create_module, SYS_arch_prctl,
#endif
  };
  for (int kind = 0; kind < CONFINE_KINDS; kind++)
    for (size_t i = 0; i < COUNT(calls); i++) {
      enum confine_answer a = confine_answer_to((enum confine_kind)kind, calls[i]);
      if (kind == CONFINE_COUNTING && calls[i] == SYS_perf_event_open) assert_int_equal(a, CONFINE_CHECKS);
      else assert_true(a != CONFINE_ALLOWS && a != CONFINE_CHECKS);
    }
  // UCX (MPICH over TCP) asks for huge pages, and continues without them.
  assert_int_equal(confine_answer_to(CONFINE_FILES, SYS_shmget), CONFINE_FAILS);
  assert_int_equal(confine_answer_to(CONFINE_FILES, SYS_shmat), CONFINE_KILLS);
}

// Nothing reaches a library that listened, and its descriptor is no other file's.
static void no_listeners(void **state) {
  (void)state;
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  int listener = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0), pair[2];
  assert_true(!bind(listener, (struct sockaddr *)&a, size) && !listen(listener, 8));
  assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &size), 0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  assert_true(confine_listeners());
  assert_true(connect(other, (struct sockaddr *)&a, size) == -1 && errno == ECONNREFUSED);
  struct pollfd p = {listener, POLLIN, 0};
  assert_int_equal(poll(&p, 1, 0), 0);
  assert_true(fcntl(listener, F_GETFD) >= 0 && accept(listener, NULL, NULL) == -1 && errno == ENOTSOCK);
  assert_int_equal(send(pair[0], "x", 1, 0), 1);
  close(listener), close(other), close(pair[0]), close(pair[1]);
}

// How the decisive call of an attempt ends.
static enum attempt_end end_of(const struct attempt *a, int kind, pid_t victim, const char *file) {
  int status;
  pid_t child = fork_plain();
  if (!child) {
    if (kind >= 0 && !confine((enum confine_kind)kind, false)) _exit(ATTEMPT_NOT_MADE);
    errno = 0;
    _exit(a->make(victim, file) ? ATTEMPT_WORKS : errno == EPERM || errno == ENOSYS ? ATTEMPT_REFUSED : ATTEMPT_FAILS);
  }
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGSYS ? ATTEMPT_ENDED : ATTEMPT_FAILS;
  return (enum attempt_end)WEXITSTATUS(status);
}

static pid_t make_victim(void) {
  pid_t victim = fork_plain();
  if (!victim) for (;;) pause();
  return victim;
}

// What issue reports tried from inside, each with arguments that work without a filter (some only as root).
static void attempts_fail(void **state) {
  (void)state;
  char file[] = "/tmp/weft-attempt-XXXXXX";
  int fd = mkstemp(file), worked = 0;
  assert_true(fd >= 0);
  close(fd);
  fflush(NULL);
  for (size_t i = 0; i < COUNT(attempts); i++) {
    pid_t victim = make_victim();
    bool works = end_of(&attempts[i], -1, victim, file) == ATTEMPT_WORKS;
    worked += works;
    if (attempts[i].plain && !works) print_message("%s does not work here without a filter\n", attempts[i].name);
    for (int kind = 0; kind < CONFINE_COMPUTING; kind++) {
      enum attempt_end end = end_of(&attempts[i], kind, victim, file);
      if (end == ATTEMPT_NOT_MADE) { kill(victim, SIGKILL); unlink(file); skip_for(no_filters); }
      if (kind == CONFINE_COUNTING && !strcmp(attempts[i].name, "perf_event_open of another")) end = ATTEMPT_REFUSED;
      if (end != (attempts[i].ends ? ATTEMPT_ENDED : ATTEMPT_REFUSED))
        fail_msg("%s, kind %d: end %d", attempts[i].name, kind, end);
    }
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
  }
  unlink(file);
  print_message("%d of %zu attempts work without a filter\n", worked, COUNT(attempts));
  assert_true(worked >= 20);
}

// Another machine's numbers: x32 has a bit of its own, and int 0x80 means i386.
#if defined(__x86_64__)
static int try_x32(void) { return confine(CONFINE_FILES, false) ? (int)syscall(0x40000000L | SYS_getpid) : 1; }
static int try_i386(void) {
  int r = 20;                                                // getpid
  if (!confine(CONFINE_FILES, false)) return 1;
  __asm__ volatile("int $0x80" : "+a"(r) : : "memory");
  return r;
}

static void other_machines(void **state) {
  (void)state;
  int (*const tries[])(void) = {try_x32, try_i386};
  for (size_t i = 0; i < COUNT(tries); i++) {
    int status;
    fflush(NULL);
    pid_t child = fork_plain();
    if (!child) _exit(tries[i]() & 255);
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1) skip_for(no_filters);
    // SIGSEGV: a kernel without 32-bit calls
    assert_true(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS || (i && WTERMSIG(status) == SIGSEGV)));
  }
}
#else
static void other_machines(void **state) {
  (void)state;
  skip_for("calls of x32 and i386 exist on x86-64 alone");
}
#endif

// Of a conversation: signals go to one other process, and after that nowhere else.
static int try_signals(void) {
  int status, ends[2];
  char byte;
  if (!confine(CONFINE_FILES, true)) return 1;
  if (pipe(ends)) return __LINE__;
  pid_t other = fork_plain(), partner = other ? fork_plain() : -1;
  if (!other || !partner) {              // they wait until the parent has ended
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) != 0);
  }
  if (kill(other, 0) || !confine_signals(partner)) return __LINE__;
  REFUSED(kill(other, 0));
  REFUSED(syscall(SYS_tgkill, other, other, 0));
  REFUSED(syscall(SYS_tgkill, partner, partner, 0));
  REFUSED(kill(getppid(), 0));
  if (kill(getpid(), 0) || raise(0) || kill(partner, SIGKILL)) return __LINE__;
  if (waitpid(partner, &status, 0) != partner || !WIFSIGNALED(status)) return __LINE__;
  return 0;
}
static void signals_to_one(void **state) { (void)state; holds(try_signals); }

// With confine_explain: the call fails as it does without, and a line says so.
static int try_explaining(void) {
  int said[2];
  char line[128] = "";
  if (pipe(said) || dup2(said[1], STDERR_FILENO) < 0) return __LINE__;
  confine_explain();
  if (!confine(CONFINE_FILES, false)) return 1;
  REFUSED(syscall(SYS_fchmod, 0, 0));
  REFUSED(syscall(SYS_tgkill, getppid(), getppid(), 0));
  if (read(said[0], line, sizeof line - 1) < 1) return __LINE__;
  return strstr(line, "the sandbox refused the system call ") && strstr(line, "tgkill\n") ? 0 : __LINE__;
}
static void says_what_it_refuses(void **state) { (void)state; holds(try_explaining); }

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(files_only), cmocka_unit_test(paths_only), cmocka_unit_test(serving_only),
    cmocka_unit_test(signals_within), cmocka_unit_test(no_descriptors),
    cmocka_unit_test(nothing_turns_round), cmocka_unit_test(second_wall),
    cmocka_unit_test(fetching_only), cmocka_unit_test(computing_only), cmocka_unit_test(every_call),
    cmocka_unit_test(none_of_the_dangerous_groups), cmocka_unit_test(no_listeners),
    cmocka_unit_test(attempts_fail), cmocka_unit_test(other_machines),
    cmocka_unit_test(signals_to_one), cmocka_unit_test(says_what_it_refuses)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
