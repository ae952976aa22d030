// Buffered stdout with checked errors: see out.h.
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

bool out_terminal(struct out *o) {
  if (o->kind == OUT_ASK) o->kind = isatty(o->fd ? o->fd : STDOUT_FILENO) ? OUT_TERMINAL : OUT_BYTES;
  return o->kind == OUT_TERMINAL;
}

// Removes control characters from the pending bytes, beginning at `from`. A character may come in pieces.
static void clean(struct out *o, size_t from) {
  char *at = o->pending.at;
  size_t put = from;
  for (size_t i = from; i < o->pending.n; i++) {
    unsigned char c = (unsigned char)at[i];
    bool inside = o->rest && (c & 0xC0) == 0x80,
         drop = c < 0x80 ? (c < ' ' && c != '\n' && c != '\t') || c == 127 : c < 0xA0 && !inside;
    if (inside && o->lead == 0xC2 && c < 0xA0) {
      if (put) put--;  // removes its first byte; if that is already written, it is an incomplete character
      drop = true;
    }
    if (inside) o->rest--, o->lead = 0;
    else o->lead = c, o->rest = c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 0;
    if (!drop) at[put++] = (char)c;
  }
  o->pending.n = put;
}

static void added(struct out *o, size_t from) {
  if (out_terminal(o)) clean(o, from);
  if (o->pending.n >= LARGE) out_flush(o);
}

void out_add(struct out *o, const char *text, size_t n) {
  size_t from = o->pending.n;
  if (o->error) return;
  str_addn(&o->pending, text, n);
  added(o, from);
}

void out_addf(struct out *o, const char *fmt, ...) {
  size_t from = o->pending.n;
  if (o->error) return;
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&o->pending, fmt, ap);
  va_end(ap);
  added(o, from);
}

void out_code(struct out *o, const char *code) { if (!o->error) str_add(&o->pending, code); }

int out_end(struct out *o, int status) {
  out_flush(o);
  str_free(&o->pending);
  if (!o->error || o->error == EPIPE || o->error == EINTR) return status;
  return failed("stdout could not be written: %s", strerror(o->error));
}

void out_wrapped(struct out *o, const char *text, int indent, size_t width) {
  size_t column = 0;
  for (const char *at = text; *at;) {
    size_t n = strcspn(at, " ");
    if (column && column + 1 + n > width) { out_addf(o, "\n%*s", indent, ""); column = 0; }
    else if (column) { out_add(o, " ", 1); column++; }
    out_add(o, at, n);
    column += n;
    at += n;
    at += strspn(at, " ");
  }
  out_add(o, "\n", 1);
}
