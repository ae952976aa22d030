// Stamps of files: see stamp.h.
#define _GNU_SOURCE
#include "base/stamp.h"
#include <time.h>

enum { NS = 1000000000, FINE_NS = 100000000 /* Linux's coarse clock moves every 1 to 10 ms */ };

static int64_t time_ns(struct timespec t) { return (int64_t)t.tv_sec * NS + t.tv_nsec; }

stamp stamp_of(const struct stat *st) {
  return (stamp){.device = (uint64_t)st->st_dev,
                 .inode = (uint64_t)st->st_ino,
                 .size = (uint64_t)st->st_size,
                 .mtime_ns = time_ns(st->st_mtim),
                 .ctime_ns = time_ns(st->st_ctim)};
}

enum stamp_change stamp_compare(const stamp *before, const stamp *now) {
  if (before->device != now->device || before->inode != now->inode || before->size != now->size ||
      before->mtime_ns != now->mtime_ns)
    return STAMP_WRITTEN;
  return before->ctime_ns == now->ctime_ns ? STAMP_SAME : STAMP_TOUCHED;
}

// Some file systems have a resolution of one or two seconds: their times have no fraction.
int64_t stamp_settles_ns(const stamp *s) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  int64_t now = time_ns(t), since = now - s->ctime_ns, step = s->ctime_ns % NS ? FINE_NS : 2 * (int64_t)NS;
  if (since < 0) return -1;
  return since >= step ? 0 : step - since;
}
