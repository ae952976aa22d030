// stdout with errors that are noticed: see out.h.
#include "app/out.h"
#include "app/app.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 1 << 16 };

bool out_flush(struct out *o) {
  for (size_t done = 0; !o->error && done < o->pending.n;) {
    ssize_t n = write(o->fd ? o->fd : STDOUT_FILENO, o->pending.at + done, o->pending.n - done);
    if (n >= 0) done += (size_t)n;
    else if (errno != EINTR || interrupted()) o->error = errno;
  }
  o->pending.n = 0;
  return !o->error;
}

void out_add(struct out *o, const char *text, size_t n) {
  if (o->error) return;
  str_addn(&o->pending, text, n);
  if (o->pending.n >= LARGE) out_flush(o);
}

void out_addf(struct out *o, const char *fmt, ...) {
  if (o->error) return;
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&o->pending, fmt, ap);
  va_end(ap);
  if (o->pending.n >= LARGE) out_flush(o);
}

int out_end(struct out *o, int status) {
  out_flush(o);
  str_free(&o->pending);
  if (!o->error || o->error == EPIPE || o->error == EINTR) return status;
  return failed("stdout could not be written: %s", strerror(o->error));
}
