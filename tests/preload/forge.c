// Loaded before weft (LD_PRELOAD): when a run has printed all, it tries to leave code for the next one, from inside,
// and says on stderr what came of each attempt: "forge: NAME: works" or "forge: NAME: refused". FORGE is the folder of
// the kernel cache, FORGE_KEY the key of a kernel in it, in hexadecimal digits.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "device/keeper_wire.h"
#undef free

static const char *folder;
static pid_t keeper_id;
static int to_keeper = -1;
static char key[1 << 16];
static size_t key_n;

static void say(const char *name, bool works) { dprintf(2, "forge: %s: %s\n", name, works ? "works" : "refused"); }

static bool opens(const char *name, int how) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int fd = open(path, how | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

static bool replaces(const char *name) {
  char path[512], other[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  snprintf(other, sizeof other, "%s/%s.old", folder, name);
  return !link(path, other) || !rename(path, other) || !unlink(path);
}

// ---- the keeper as a process

static pid_t child_of_this(void) {
  char path[64], line[64] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
  if (fd >= 0) close(fd);
  return n > 0 ? atoi(line) : 0;
}

static bool opens_of_keeper(const char *what, int how) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", keeper_id, what);
  int fd = open(path, how | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

static bool traces(void) { return !ptrace(PTRACE_ATTACH, keeper_id, NULL, NULL); }
static bool reads_memory(void) {
  char byte;
  struct iovec to = {&byte, 1}, from = {(void *)&key, 1};
  return process_vm_readv(keeper_id, &to, 1, &from, 1, 0) == 1;
}
static bool takes_descriptor(void) {
  int fd = (int)syscall(SYS_pidfd_open, keeper_id, 0);
  return syscall(SYS_pidfd_getfd, fd, 3, 0) >= 0;
}
static bool stops(void) { return !kill(keeper_id, SIGSTOP); }
static bool stops_a_thread(void) { return !syscall(SYS_tgkill, keeper_id, keeper_id, SIGSTOP); }

static void in_a_child(const char *name, bool (*attempt)(void)) {
  int status = 0;
  pid_t child = fork();
  if (!child) _exit(attempt() ? 42 : 0);
  waitpid(child, &status, 0);
  say(name, child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

// ---- its sockets

static bool ask(struct keeper_request q, const void *a, const void *b, const void *c) {
  const void *parts[] = {a, b, c};
  struct keeper_reply r = {0};
  struct pollfd in = {.fd = to_keeper, .events = POLLIN};
  if (!q.magic) q.magic = KEEPER_MAGIC;
  if (send(to_keeper, &q, sizeof q, MSG_NOSIGNAL) != sizeof q) return false;
  for (int i = 0; i < KEEPER_PARTS; i++)
    for (size_t done = 0; done < q.part[i];) {
      ssize_t sent = parts[i] ? send(to_keeper, (const char *)parts[i] + done, q.part[i] - done, MSG_NOSIGNAL) : -1;
      if (sent < 0) return false;
      done += (size_t)sent;
    }
  if (poll(&in, 1, 1000) != 1 || recv(to_keeper, &r, sizeof r, MSG_WAITALL) != sizeof r) return false;
  char drop[4096];
  for (uint64_t left = r.n; left;) {
    ssize_t got = recv(to_keeper, drop, left < sizeof drop ? left : sizeof drop, 0);
    if (got <= 0) return false;
    left -= (uint64_t)got;
  }
  return r.granted;
}

static bool give_socket(int over, int fd) {
  char space[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec byte = {"x", 1};
  struct msghdr m = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  *CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof fd);
  return sendmsg(over, &m, MSG_NOSIGNAL) == 1;
}

// A socket of this process behind which the keeper answers.
static bool reach_keeper(void) {
  for (int over = 3; over < 64; over++) {
    int pair[2];
    struct stat st;
    if (fstat(over, &st) || !S_ISSOCK(st.st_mode) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) continue;
    bool sent = give_socket(over, pair[1]);
    close(pair[1]);
    to_keeper = pair[0];
    if (sent && ask((struct keeper_request){.want = KEEPER_OPEN}, NULL, NULL, NULL)) return true;
    close(pair[0]);
  }
  to_keeper = -1;
  return false;
}

static void put(const char *name, const void *under, size_t n) {
  static char code[4096];
  memset(code, 0x0b, sizeof code);
  struct keeper_request q = {.want = KEEPER_PUT, .part = {(uint32_t)n, sizeof code}};
  say(name, ask(q, under, code, NULL));
}

static void make(const char *name, enum keeper_want want, const char *line, const char *text, const char *more) {
  struct keeper_request q = {.want = want, .has_opts = 1,
                             .part = {(uint32_t)strlen(line), (uint32_t)strlen(text), (uint32_t)strlen(more)}};
  say(name, ask(q, line, text, more));
}

static void attack_all(void) {
  char name[sizeof key + 8];
  keeper_id = child_of_this();
  say("the secret", opens("key", O_RDONLY));
  say("the database", opens("kernels-2.db", O_RDONLY) || opens("kernels-2.db", O_RDWR));
  say("a journal", opens("kernels-2.db-journal", O_WRONLY | O_CREAT) || opens("kernels-2.db-wal", O_WRONLY | O_CREAT));
  say("another secret", replaces("key"));
  say("another database", replaces("kernels-2.db"));
  say("memory in /proc", opens_of_keeper("mem", O_RDONLY) || opens_of_keeper("mem", O_RDWR));
  say("descriptors in /proc", opens_of_keeper("fd/3", O_RDONLY) || opens_of_keeper("fd", O_RDONLY | O_DIRECTORY));
  in_a_child("ptrace", traces);
  in_a_child("process_vm_readv", reads_memory);
  in_a_child("pidfd_getfd", takes_descriptor);
  in_a_child("kill", stops);
  in_a_child("tgkill", stops_a_thread);
  put("code under the key of a kernel", key, key_n);
  put("code under the key of a filling", name, (size_t)snprintf(name, sizeof name, "filling %s", key));
  put("a schedule", "schedule 0123", 13);
  put("no key", "", 0);
  const char *ir = strchr(key, '\n');
  char line[512];
  snprintf(line, sizeof line, "%.*s", ir ? (int)(ir - key) + 1 : 0, key);
  make("a kernel for another machine", KEEPER_KERNEL, "layouts 1 llvm x86-64\n", ir ? ir + 1 : "", "");
  make("a kernel with other code", KEEPER_KERNEL, line, "define void @k() { ret void }", "");
  make("a schedule without a graph", KEEPER_SCHEDULE, line, "%0 = CONST.i32 1", "\1");
  say("the keeper still answers", ask((struct keeper_request){.want = KEEPER_OPEN}, NULL, NULL, NULL));
  ask((struct keeper_request){.magic = 7, .part = {1 << 20, 1, 1}}, NULL, NULL, NULL);      // ends this socket
  say("another socket", reach_keeper());
  ask((struct keeper_request){.want = KEEPER_PUT, .part = {UINT32_MAX, UINT32_MAX}}, NULL, NULL, NULL);
  say("a third socket", reach_keeper());
}

int fflush(FILE *f) {
  static int (*next)(FILE *f);
  static bool done;
  void *found = next ? NULL : dlsym(RTLD_NEXT, "fflush");
  const char *hex = getenv("FORGE_KEY");
  if (found) memcpy(&next, &found, sizeof next);
  folder = getenv("FORGE");
  if (f == stdout && folder && hex && !done && reach_keeper()) {
    done = true;
    for (unsigned byte; key_n + 1 < sizeof key && sscanf(hex + 2 * key_n, "%2x", &byte) == 1;)
      key[key_n++] = (char)byte;
    attack_all();
  }
  return next(f);
}
