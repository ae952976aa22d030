// The list of files in use: see inuse.h. A list is enough, as a process reads few files at a time.
#define _GNU_SOURCE
#include "base/inuse.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct note { const void *owner; uint64_t dev, ino; struct note *next; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note *first;

void inuse_note(const void *owner, int fd) {
  struct stat st;
  if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) return;
  struct note *u = xcalloc(1, sizeof *u);
  *u = (struct note){.owner = owner, .dev = (uint64_t)st.st_dev, .ino = (uint64_t)st.st_ino};
  pthread_mutex_lock(&lock);
  u->next = first;
  first = u;
  pthread_mutex_unlock(&lock);
}

void inuse_drop(const void *owner) {
  pthread_mutex_lock(&lock);
  for (struct note **at = &first; *at;) {
    struct note *u = *at;
    if (u->owner != owner) { at = &u->next; continue; }
    *at = u->next;
    free(u);
  }
  pthread_mutex_unlock(&lock);
}

void inuse_move(const void *from, const void *to) {
  pthread_mutex_lock(&lock);
  for (struct note *u = first; u; u = u->next) if (u->owner == from) u->owner = to;
  pthread_mutex_unlock(&lock);
}

static int refuse_in_use(const char *path, error *err) {
  size_t n = strlen(path);
  return error_set(err, "%s: is the file that is read; write to another one", n > 300 ? path + n - 300 : path);
}

int inuse_refuse(const char *path, error *err) {
  struct stat st;
  bool found = false;
  if (stat(path, &st)) return 0;
  pthread_mutex_lock(&lock);
  for (const struct note *u = first; u && !found; u = u->next)
    found = u->dev == (uint64_t)st.st_dev && u->ino == (uint64_t)st.st_ino;
  pthread_mutex_unlock(&lock);
  return found ? refuse_in_use(path, err) : 0;
}

int inuse_refuse_one(const char *path, const char *read, error *err) {
  struct stat a, b;
  if (stat(path, &a) || stat(read, &b) || !S_ISREG(a.st_mode)) return 0;
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino ? refuse_in_use(path, err) : 0;
}
