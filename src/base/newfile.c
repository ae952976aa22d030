// Writes files that appear complete: see newfile.h.
#define _GNU_SOURCE
#include "base/newfile.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/inuse.h"
#include "base/siphash.h"

enum { PENDING = 1 << 20, WHAT = 64, LINE = 34 /* "length hash", 16 digits each */ };

struct newfile {
  char *path, *part;        // the wanted name, and the temporary one (NULL: writes to the wanted name)
  const char *shown;        // the end of the wanted name, for messages
  int fd;
  unsigned char *pending;
  size_t n;
  uint64_t bytes;
  // For a file in pieces:
  char *list;               // the file that lists the complete pieces; NULL: none
  int list_fd;
  bool kept;                // pieces of an earlier run may follow
  uint64_t piece, hash;     // the current piece: its start, and the hash of what was written
  off_t line;               // in the list, after the last piece
};

static int failed(const newfile *f, const char *what, error *err) {
  return error_set(err, "%s: %s: %s", f->shown, what, strerror(errno));
}

// A dangling link is refused: the new file would replace the link. So is a file that this process is reading (inuse.h).
// NULL: err says why.
static newfile *begin_file(const char *path, bool *special, error *err) {
  struct stat st;
  if (!*path) {
    error_set(err, NEWFILE_NO_NAME);
    return NULL;
  }
  if (inuse_refuse(path, err)) return NULL;
  if (!lstat(path, &st) && S_ISLNK(st.st_mode) && stat(path, &st)) {
    error_set(err, "%s: is a link to what is not there", path);
    return NULL;
  }
  newfile *f = xcalloc(1, sizeof *f);
  size_t n;
  *special = !stat(path, &st) && !S_ISREG(st.st_mode);
  char *real = realpath(path, NULL);               // a link stays a link, and its target is replaced
  f->path = real ? real : xstrdup(path);
  n = strlen(f->path);
  f->shown = n > 300 ? f->path + n - 300 : f->path;
  f->pending = xmalloc(PENDING);
  f->list_fd = -1;
  return f;
}

static char *path_beside(const newfile *f, const char *end) {
  size_t n = strlen(f->path) + strlen(end) + 1;
  char *s = xmalloc(n);
  snprintf(s, n, "%s%s", f->path, end);
  return s;
}

// Removes a part that an earlier process with this number left: in a container all processes have the same number. A
// writer keeps its part locked.
static void drop_left_part(const char *part) {
  int fd = open(part, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  if (!flock(fd, LOCK_EX | LOCK_NB)) unlink(part);
  close(fd);
}

static bool is_still_named(int fd, const char *path) {
  struct stat of, at;
  return !fstat(fd, &of) && !lstat(path, &at) && of.st_dev == at.st_dev && of.st_ino == at.st_ino;
}

// -1 with EEXIST: another writer has this part.
static int open_new_part(const char *part, mode_t mode) {
  int fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC | O_EXCL, mode);
  if (fd < 0 && errno == EEXIST) {
    drop_left_part(part);
    fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC | O_EXCL, mode);
  }
  if (fd < 0) return -1;
  // until this lock is taken, another writer may treat the file as an abandoned one
  bool taken = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
  if (!taken && is_still_named(fd, part)) return fd;
  close(fd);
  errno = EEXIST;
  return -1;
}

// Threads of this process may write files of one name at once: the last one to end stays.
enum { MOST_PARTS = 1000 };

static int open_own_part(newfile *f, mode_t mode) {
  int fd = -1;
  for (int i = 0; fd < 0 && i < MOST_PARTS; i++) {
    char end[48];
    if (i) snprintf(end, sizeof end, ".%ld-%d.part", (long)getpid(), i);
    else snprintf(end, sizeof end, ".%ld.part", (long)getpid());
    free(f->part);
    f->part = path_beside(f, end);
    fd = open_new_part(f->part, mode);
    if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
}

enum { PLAIN = 0666, PROGRAM = 0777 };

static int open_new(newfile *f, bool special, mode_t mode, newfile **out, error *err) {
  f->fd = special ? open(f->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666) : open_own_part(f, mode);
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

int newfile_open(const char *path, newfile **out, error *err) {
  bool special;
  newfile *f = begin_file(path, &special, err);
  return f ? open_new(f, special, PLAIN, out, err) : -1;
}

static int open_regular(const char *path, mode_t mode, newfile **out, error *err) {
  bool special;
  newfile *f = begin_file(path, &special, err);
  if (!f) return -1;
  if (!special) return open_new(f, special, mode, out, err);
  error_set(err, "%s: is not a regular file", f->shown);
  newfile_discard(f);
  return -1;
}

int newfile_open_regular(const char *path, newfile **out, error *err) { return open_regular(path, PLAIN, out, err); }
int newfile_open_program(const char *path, newfile **out, error *err) { return open_regular(path, PROGRAM, out, err); }

// ---- pieces ---------------------------------------------------------------------------------------------------------

// A chain of hashes over blocks of PENDING bytes; the last block of a piece may be shorter.
static uint64_t hash_on(uint64_t before, const void *p, size_t n) { return siphash(&(sip_key){{before, n}}, p, n); }

static void list_line(char line[LINE + 1], uint64_t n, uint64_t hash) {
  snprintf(line, LINE + 1, "%016llx %016llx\n", (unsigned long long)n, (unsigned long long)hash);
}

static bool read_at(int fd, void *to, size_t n, uint64_t at) {
  for (size_t done = 0; done < n;) {
    ssize_t m = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
    if (m > 0) done += (size_t)m;
    else if (!m || errno != EINTR) return false;
  }
  return true;
}

static bool write_at(int fd, const void *from, size_t n, off_t at) {
  for (size_t done = 0; done < n;) {
    ssize_t m = pwrite(fd, (const char *)from + done, n - done, at + (off_t)done);
    if (m > 0) done += (size_t)m;
    else if (!m || errno != EINTR) return false;
  }
  return true;
}

// Ends the valid pieces: what follows them is cut off.
static bool drop_later_pieces(newfile *f) {
  f->kept = false;
  off_t end = (off_t)f->piece;
  return !ftruncate(f->list_fd, f->line) && !ftruncate(f->fd, end) && lseek(f->fd, end, SEEK_SET) == end;
}

// A part with a second name is another file, too, such as the one that is read.
static int check_only_name(const newfile *f, int fd, const char *path, error *err) {
  struct stat st;
  if (fstat(fd, &st)) return failed(f, "cannot be examined", err);
  if (S_ISREG(st.st_mode) && st.st_nlink < 2) return 0;
  const char *end = path + strlen(f->path);
  return error_set(err, "%s%s: %s: remove it, or write to another file", f->shown, end,
                   S_ISREG(st.st_mode) ? "has a second name (a hard link)" : "is no regular file");
}

enum { FLAGS = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW };

// A list that cannot be used is left alone (drop_empty).
static int open_list(newfile *f, error *err) {
  f->list = path_beside(f, ".part.pieces");
  f->list_fd = open(f->list, FLAGS, 0666);
  int r = f->list_fd < 0 ? failed(f, "cannot be written", err) : check_only_name(f, f->list_fd, f->list, err);
  if (!r) return 0;
  free(f->list);
  f->list = NULL;
  return -1;
}

static int open_pieces(newfile *f, const char *what, error *err) {
  char head[WHAT + 1];
  struct stat own, there;
  if ((f->fd = open(f->part, FLAGS, 0666)) < 0) return failed(f, "cannot be written", err);
  if (check_only_name(f, f->fd, f->part, err)) return -1;
  // No other process has it, and it was not just renamed.
  bool mine = !flock(f->fd, LOCK_EX | LOCK_NB);
  if (!mine && errno != EWOULDBLOCK) return failed(f, "cannot be locked", err);
  if (mine && (fstat(f->fd, &own) || stat(f->part, &there))) return failed(f, "cannot be examined", err);
  if (!mine || own.st_ino != there.st_ino) return error_set(err, "%s: another run is writing this file", f->shown);
  if (open_list(f, err)) return -1;
  f->line = sizeof head;
  f->kept = read_at(f->list_fd, head, sizeof head, 0) && !memcmp(head, what, WHAT) && head[WHAT] == '\n';
  if (f->kept) return 0;
  memcpy(head, what, WHAT);
  head[WHAT] = '\n';
  return !drop_later_pieces(f) || !write_at(f->list_fd, head, sizeof head, 0) ? failed(f, "cannot be written", err)
                                                                               : 0;
}

// Removes an empty part, which is useless except to a run that has just made it.
static void drop_empty(newfile *f) {
  struct stat own, there;
  if (f->fd < 0 || flock(f->fd, LOCK_EX | LOCK_NB) || fstat(f->fd, &own) || own.st_size) return;
  if (!S_ISREG(own.st_mode) || own.st_nlink > 1) return;
  if (!stat(f->part, &there) && own.st_ino == there.st_ino) {
    unlink(f->part);
    if (f->list) unlink(f->list);
  }
}

int newfile_resume(const char *path, const char *what, newfile **out, error *err) {
  bool special;
  newfile *f = begin_file(path, &special, err);
  if (!f) return -1;
  if (special) {
    newfile_discard(f);
    return newfile_open(path, out, err);
  }
  f->part = path_beside(f, ".part");
  if (open_pieces(f, what, err)) {
    drop_empty(f);
    newfile_leave(f);
    return -1;
  }
  *out = f;
  return 0;
}

bool newfile_kept(newfile *f, uint64_t n) {
  char line[LINE + 1], wanted[LINE + 1];
  uint64_t hash = 0;
  if (!f->kept) return false;
  bool sound = read_at(f->list_fd, line, LINE, (uint64_t)f->line);
  for (uint64_t at = 0, m; sound && at < n; at += m) {
    m = n - at < PENDING ? n - at : PENDING;
    sound = read_at(f->fd, f->pending, (size_t)m, f->bytes + at);
    if (sound) hash = hash_on(hash, f->pending, (size_t)m);
  }
  list_line(wanted, n, hash);
  if (!sound || memcmp(line, wanted, LINE)) return false;
  f->bytes = f->piece += n;
  f->line += LINE;
  return true;
}

static int flush(newfile *f, error *err) {
  if (f->kept && !drop_later_pieces(f)) return failed(f, "cannot be written", err);
  if (f->list && f->n) f->hash = hash_on(f->hash, f->pending, f->n);
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

int newfile_piece(newfile *f, error *err) {
  char line[LINE + 1];
  if (!f->list) return 0;
  if (flush(f, err)) return -1;
  list_line(line, f->bytes - f->piece, f->hash);
  if (!write_at(f->list_fd, line, LINE, f->line)) return failed(f, "cannot be written", err);
  f->line += LINE;
  f->piece = f->bytes;
  f->hash = 0;
  return 0;
}

const char *newfile_part(const newfile *f) { return f->list ? f->part : NULL; }

int newfile_commit(newfile *f, error *err) {
  int status = flush(f, err);
  if (!status && f->part && fsync(f->fd)) status = failed(f, "cannot be written", err);
  // While it is locked, no other process takes the part of that name.
  if (!status && f->part && rename(f->part, f->path)) status = failed(f, "cannot be given its name", err);
  if (!status) {
    free(f->part);
    f->part = NULL;
  }
  if (f->list && !status) unlink(f->list);
  if (close(f->fd) && !status) status = failed(f, "cannot be written", err);
  f->fd = -1;
  if (f->list) newfile_leave(f);
  else newfile_discard(f);
  return status;
}

void newfile_leave(newfile *f) {
  int why = errno;
  if (!f) return;
  if (f->fd >= 0) close(f->fd);
  if (f->list_fd >= 0) close(f->list_fd);
  free(f->path); free(f->part); free(f->list); free(f->pending);
  free(f);
  errno = why;
}

void newfile_discard(newfile *f) {
  int why = errno;
  if (f && f->part) unlink(f->part);
  if (f && f->list) unlink(f->list);
  errno = why;
  newfile_leave(f);
}

int newfile_whole(const char *path, const void *bytes, size_t n, error *err) {
  newfile *f;
  if (newfile_open(path, &f, err)) return -1;
  if (!newfile_add(f, bytes, n, err)) return newfile_commit(f, err);
  newfile_discard(f);
  return -1;
}

int newfile_note(const char *path, const void *bytes, size_t n, error *err) {
  struct stat st;
  if (lstat(path, &st) || S_ISREG(st.st_mode)) return newfile_whole(path, bytes, n, err);
  errno = S_ISDIR(st.st_mode) ? EISDIR : EEXIST;
  return error_set(err, "%.300s: %s", path, S_ISDIR(st.st_mode) ? strerror(EISDIR) : "is no regular file");
}

bool newfile_is_partial(const char *path) {
  char *real = realpath(path, NULL), *note = NULL;
  struct stat st;
  if (asprintf(&note, "%s.from", real ? real : path) < 0) note = NULL;
  bool partial = note && !lstat(note, &st) && S_ISREG(st.st_mode) && !st.st_size;
  free(real);
  free(note);
  return partial;
}

void newfile_touch(const char *path) {
  char first;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  if (read_at(fd, &first, 1, 0)) (void)write_at(fd, &first, 1, 0);
  close(fd);
}

int newfile_begins(const char *path, const void *bytes, size_t n) {
  char there[16];
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), is = 0;
  if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
    is = read(fd, there, n) == (ssize_t)n && !memcmp(there, bytes, n) ? 1 : -1;
  if (fd >= 0) close(fd);
  return is;
}
