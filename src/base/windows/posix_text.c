// Text functions and memory streams that Windows's C library lacks: see posix/posix.h.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void *memmem(const void *in, size_t n, const void *what, size_t k) {
  const char *at = in, *end = at + n;
  if (!k) return (void *)(uintptr_t)in;
  for (; (size_t)(end - at) >= k; at++) {
    at = memchr(at, *(const char *)what, (size_t)(end - at) - k + 1);
    if (!at) return NULL;
    if (!memcmp(at, what, k)) return (void *)(uintptr_t)at;
  }
  return NULL;
}

char *strcasestr(const char *in, const char *what) {
  size_t n = strlen(what);
  for (; *in; in++) if (!strncasecmp(in, what, n)) return (char *)(uintptr_t)in;
  return n ? NULL : (char *)(uintptr_t)in;
}

char *strsep(char **rest, const char *ends) {
  char *word = *rest;
  if (!word) return NULL;
  char *end = word + strcspn(word, ends);
  *rest = *end ? end + 1 : NULL;
  *end = 0;
  return word;
}

const char *strsignal(int sig) {
  static _Thread_local char text[32];
  snprintf(text, sizeof text, "signal %d", sig);
  return text;
}

int vasprintf(char **out, const char *fmt, va_list args) {
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, fmt, again);
  va_end(again);
  *out = n < 0 ? NULL : malloc((size_t)n + 1);
  return *out ? vsnprintf(*out, (size_t)n + 1, fmt, args) : -1;
}

int asprintf(char **out, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = vasprintf(out, fmt, args);
  va_end(args);
  return n;
}

// Copies the bytes to a temporary file that is deleted with the stream.
FILE *fmemopen(void *bytes, size_t n, const char *mode) {
  FILE *f = *mode == 'r' ? tmpfile() : NULL;
  if (!f) return NULL;
  if (fwrite(bytes, 1, n, f) == n && !fseek(f, 0, SEEK_SET)) return f;
  fclose(f);
  return NULL;
}

ssize_t getline(char **line, size_t *cap, void *file) {
  size_t n = 0;
  for (int c; (c = getc((FILE *)file)) != EOF;) {
    if (n + 2 > *cap) {
      size_t more = *cap ? *cap * 2 : 128;
      char *at = realloc(*line, more);
      if (!at) return -1;
      *line = at;
      *cap = more;
    }
    (*line)[n++] = (char)c;
    if (c == '\n') break;
  }
  if (n) (*line)[n] = 0;
  return n ? (ssize_t)n : -1;
}
