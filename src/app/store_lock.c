// Locks beside what is fetched: see store.h. The file of a lock is removed by the program that has it.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/store.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 100 };

static void lock_of(const char *path, str *out) { str_addf(out, "%s" STORE_ORIGIN ".lock", path); }

// Returns whether an open file still has this name: the program that had the lock before may have removed it.
static bool lock_has_name(int fd, const char *name) {
  struct stat of, at;
  return !fstat(fd, &of) && !lstat(name, &at) && of.st_dev == at.st_dev && of.st_ino == at.st_ino;
}

static int make_lock(const char *name, int *fd, error *err) {
  struct stat st;
  *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (*fd >= 0 && !fstat(*fd, &st) && S_ISREG(st.st_mode)) return 0;
  if (*fd < 0 && (errno == EROFS || errno == EACCES || errno == EPERM)) return 0;      // nothing can be written, too
  error_set(err, "%.300s: %s", name, *fd < 0 ? strerror(errno) : "is no regular file");
  if (*fd >= 0) close(*fd);
  *fd = -1;
  return -1;
}

// -1 with *taken: another program has the lock.
static int lock_once(const char *path, int *fd, bool *taken, error *err) {
  str name = {0};
  int status = -1;
  *taken = false;
  lock_of(path, &name);
  for (int i = 0; status && !*taken && i < TRIES; i++) {
    if (make_lock(name.at, fd, err)) break;
    *taken = *fd >= 0 && flock(*fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (!*taken && (*fd < 0 || lock_has_name(*fd, name.at))) status = 0;
    else close(*fd), *fd = -1;
    if (status) error_set(err, "%.300s is being fetched or removed by another program just now", path);
  }
  str_free(&name);
  return status;
}

int store_lock(const char *path, int *fd, error *err) {
  bool taken;
  return lock_once(path, fd, &taken, err);
}

int store_lock_in_time(const char *path, int *fd, error *err) {
  bool taken = false, said = false;
  for (;;) {
    error why = {0};
    int status = lock_once(path, fd, &taken, &why);
    if (!status || !taken || interrupted()) {
      if (status) *err = why;
      return status;
    }
    if (!said) say("waiting for another program, which fetches %s", path);
    said = true;
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
  }
}

void store_unlock(const char *path, int fd) {
  str name = {0};
  if (fd < 0) return;
  lock_of(path, &name);
  unlink(name.at);                  // before the lock is given up: afterwards it may be another program's
  close(fd);
  str_free(&name);
}
