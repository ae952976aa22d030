// Restricts which files can be opened: Landlock, by its three system calls, since the C library has no functions for
// them. See confine.h.
#define _GNU_SOURCE
#include "base/confine.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// As the kernel defines them: its installed header may be older than the kernel.
enum { CREATE_RULESET = 444, ADD_RULE, RESTRICT_SELF, VERSION_ASKED = 1, PATH_BENEATH = 1 };
enum {
  WRITE_FILE = 1 << 1,
  READ_FILE = 1 << 2,
  READ_DIR = 1 << 3,
  REMOVE_DIR = 1 << 4,
  REMOVE_FILE = 1 << 5,
  MAKE_CHAR = 1 << 6,
  MAKE_DIR = 1 << 7,
  MAKE_REG = 1 << 8,
  MAKE_SOCK = 1 << 9,
  MAKE_FIFO = 1 << 10,
  MAKE_BLOCK = 1 << 11,
  MAKE_SYM = 1 << 12,
  REFER = 1 << 13,
  TRUNCATE = 1 << 14,
};
enum { CONNECT_TCP = 1 << 1, SCOPE_ABSTRACT_SOCKET = 1 << 0, SCOPE_SIGNAL = 1 << 1 };
enum { KNOWS_NETWORK = 4, KNOWS_SCOPES = 6 };                  // versions
struct ruleset { uint64_t handled, net, scoped; };
struct rule { uint64_t allowed; int32_t fd; } __attribute__((packed));

// Rights of later versions are not used. REFER is refused unless it is named.
static uint64_t known_rights(long version) {
  uint64_t all = WRITE_FILE | READ_FILE | READ_DIR | REMOVE_DIR | REMOVE_FILE | MAKE_CHAR | MAKE_DIR | MAKE_REG |
                 MAKE_SOCK | MAKE_FIFO | MAKE_BLOCK | MAKE_SYM;
  return all | (version >= 2 ? REFER : 0) | (version >= 3 ? TRUNCATE : 0);
}

static long version(void) { return syscall(CREATE_RULESET, NULL, (size_t)0, VERSION_ASKED); }

bool confine_knows_files(void) { return version() >= 1; }

static bool lacks_descriptors(int fd) { return fd < 0 && (errno == EMFILE || errno == ENFILE); }

// A path that cannot be opened, or is not in a file system (a pipe), needs no rule: it stays inaccessible, or is
// accessible anyway. False: no descriptors are left.
static bool allow(int ruleset, uint64_t known, const confine_file *f) {
  struct stat st;
  struct rule r = {f->writes ? WRITE_FILE | READ_FILE | TRUNCATE : READ_FILE, open(f->path, O_PATH | O_CLOEXEC)};
  if (r.fd < 0) return !lacks_descriptors(r.fd);
  if (!fstat(r.fd, &st) && S_ISDIR(st.st_mode))
    r.allowed |= READ_DIR | (f->writes ? REMOVE_FILE | MAKE_REG | MAKE_SOCK : 0) |
                 (f->folders ? MAKE_DIR | REMOVE_DIR : 0);
  r.allowed &= known;
  syscall(ADD_RULE, ruleset, PATH_BENEATH, &r, 0);
  close(r.fd);
  return true;
}

static bool enter_rules(int ruleset) {
  bool done = !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(RESTRICT_SELF, ruleset, 0);
  close(ruleset);
  return done;
}

bool confine_connections(void) {
  long v = version();
  struct ruleset none = {.net = CONNECT_TCP, .scoped = v < KNOWS_SCOPES ? 0 : SCOPE_ABSTRACT_SOCKET};
  size_t size = v < KNOWS_SCOPES ? offsetof(struct ruleset, scoped) : sizeof none;
  int ruleset = v < KNOWS_NETWORK ? -1 : (int)syscall(CREATE_RULESET, &none, size, 0);
  return ruleset >= 0 && enter_rules(ruleset);
}

static bool awaits_connections(int fd) {
  int is = 0;
  socklen_t size = sizeof is;
  return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is, &size) && is;
}

// The owners of these descriptors poll them, and may not do so for the next file of that number: an event descriptor
// without events takes the place of each.
bool confine_listeners(void) {
  int quiet = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  DIR *all = quiet < 0 ? NULL : opendir("/proc/self/fd");
  bool done = all;
  for (struct dirent *e; all && (e = readdir(all));) {
    int fd = atoi(e->d_name);
    if (*e->d_name != '.' && awaits_connections(fd)) done &= dup3(quiet, fd, O_CLOEXEC) == fd;
  }
  if (all) closedir(all);
  if (quiet >= 0) close(quiet);
  return done;
}

enum confine_result confine_to(const confine_file *files, size_t n) {
  long v = version();
  bool complete = true;
  if (v < 1) return CONFINE_NO_LANDLOCK;
  // Signals only reach this process and its children. A filter of calls cannot ensure that: it checks a process number,
  // which the system may reuse while a child with the filter still runs.
  struct ruleset all = {.handled = known_rights(v), .scoped = confine_signals_leave() ? 0 : SCOPE_SIGNAL};
  int ruleset = (int)syscall(CREATE_RULESET, &all, v < KNOWS_SCOPES ? sizeof all.handled : sizeof all, 0);
  if (ruleset < 0) return lacks_descriptors(ruleset) ? CONFINE_NO_DESCRIPTORS : CONFINE_NO_LANDLOCK;
  for (size_t i = 0; i < n && complete; i++) complete = allow(ruleset, all.handled, &files[i]);
  bool entered = enter_rules(ruleset);
  return !complete ? CONFINE_NO_DESCRIPTORS : entered ? CONFINE_DONE : CONFINE_NO_LANDLOCK;
}
