// Files that appear whole: see newfile.h.
#define _GNU_SOURCE
#include "base/newfile.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PENDING = 1 << 20 };

struct newfile {
  char *path, *part;        // the wanted name, and the one until then (NULL: it is written to as it stands)
  const char *shown;        // the end of the wanted name, for messages
  int fd;
  unsigned char *pending;
  size_t n;
  uint64_t bytes;
};

static int failed(const newfile *f, const char *what, error *err) { return error_set(err, "%s: %s: %s", f->shown, what, strerror(errno)); }

int newfile_open(const char *path, newfile **out, error *err) {
  newfile *f = xcalloc(1, sizeof *f);
  struct stat st;
  size_t n;
  bool special = !stat(path, &st) && !S_ISREG(st.st_mode);
  char *real = realpath(path, NULL);               // a link stays one, and what it points at is replaced
  f->path = real ? real : xstrdup(path);
  n = strlen(f->path);
  f->shown = n > 300 ? f->path + n - 300 : f->path;
  f->pending = xmalloc(PENDING);
  if (!special) {
    f->part = xmalloc(n + 32);
    snprintf(f->part, n + 32, "%s.%ld.part", f->path, (long)getpid());
  }
  f->fd = open(special ? f->path : f->part, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | (special ? 0 : O_EXCL), 0666);
  if (f->fd < 0) {
    failed(f, "cannot be written", err);
    free(f->part);
    f->part = NULL;
    newfile_discard(f);
    return -1;
  }
  *out = f;
  return 0;
}

static int flush(newfile *f, error *err) {
  for (size_t done = 0; done < f->n;) {
    ssize_t n = write(f->fd, f->pending + done, f->n - done);
    if (n >= 0) done += (size_t)n;
    else if (errno != EINTR) return failed(f, "cannot be written", err);
  }
  f->n = 0;
  return 0;
}

int newfile_add(newfile *f, const void *bytes, size_t n, error *err) {
  const unsigned char *p = bytes;
  f->bytes += n;
  for (size_t m; n; p += m, n -= m) {
    m = n < PENDING - f->n ? n : PENDING - f->n;
    memcpy(f->pending + f->n, p, m);
    f->n += m;
    if (f->n == PENDING && flush(f, err)) return -1;
  }
  return 0;
}

uint64_t newfile_bytes(const newfile *f) { return f->bytes; }

int newfile_commit(newfile *f, error *err) {
  int status = flush(f, err);
  if (!status && f->part && fsync(f->fd)) status = failed(f, "cannot be written", err);
  if (close(f->fd) && !status) status = failed(f, "cannot be written", err);
  f->fd = -1;
  if (!status && f->part && rename(f->part, f->path)) status = failed(f, "cannot be given its name", err);
  if (!status) {
    free(f->part);
    f->part = NULL;
  }
  newfile_discard(f);
  return status;
}

void newfile_discard(newfile *f) {
  if (!f) return;
  if (f->fd >= 0) close(f->fd);
  if (f->part) unlink(f->part);
  free(f->path); free(f->part); free(f->pending);
  free(f);
}
