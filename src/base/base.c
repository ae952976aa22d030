// Fatal errors, error texts, allocation that cannot fail, hashing and the clock: see base.h.
#define _GNU_SOURCE
#include "base/base.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/base_impl.h"
#include "base/plain.h"

static void describe_break(error *e, const char *file, int line, const char *fmt, va_list ap) {
  int n = snprintf(e->text, sizeof e->text, "internal error at %s:%d: ", file, line);
  if (n > 0 && (size_t)n < sizeof e->text) plain_vsnprintf(e->text + n, sizeof e->text - (size_t)n, fmt, ap);
}

int error_internal(error *e, const char *file, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (e && !e->text[0]) describe_break(e, file, line, fmt, ap);
  va_end(ap);
  return -1;
}

void die_at(const char *file, int line, const char *fmt, ...) {
  va_list ap;
  error e;
  va_start(ap, fmt);
  describe_break(&e, file, line, fmt, ap);
  va_end(ap);
  attempt_died(e.text);
  fflush(stdout);
  fprintf(stderr, "weft: %s\n", e.text);
  abort();
}

int error_set(error *e, const char *fmt, ...) {
  if (e && !e->text[0]) {
    va_list ap;
    va_start(ap, fmt);
    plain_vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
  }
  return -1;
}

void out_of_memory(size_t n) {
  fprintf(stderr, "weft: out of memory: %zu bytes could not be allocated\n", n);
  _exit(1);      // not exit: it runs handlers that free what other threads still use
}

void *xmalloc(size_t n) {
  void *p = malloc(n ? n : 1);
  if (!p) out_of_memory(n);
  attempt_took(p);
  return p;
}

void *xcalloc(size_t n, size_t size) {
  void *p = calloc(n ? n : 1, size ? size : 1);
  if (!p) out_of_memory(n * size);
  attempt_took(p);
  return p;
}

// Reading a fresh page first maps it to the system's page of zeros, and the first write then changes that mapping: a
// second fault and, in a process with threads, an interrupt of every processor. Writing the zeros takes one fault.
void *xzeros(size_t n, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(n, size, &bytes)) out_of_memory(SIZE_MAX);
  return memset(xmalloc(bytes), 0, bytes);
}

void *xrealloc(void *p, size_t n) {
  struct attempt_frame *owner = attempt_owner(p);
  p = realloc(p, n ? n : 1);
  if (!p) out_of_memory(n);
  attempt_give(owner, p);
  return p;
}

#undef free
void xfree(void *p) {
  attempt_gave(p);
  free(p);
}

char *xstrdup(const char *s) {
  size_t n = strlen(s) + 1;
  return memcpy(xmalloc(n), s, n);
}

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) {
  const unsigned char *b = p;
  uint64_t h = hash_u64(n, seed);
  for (; n >= 8; n -= 8, b += 8) {
    uint64_t w = 0;
    for (int i = 7; i >= 0; i--) w = w << 8 | b[i];
    h = hash_u64(w, h);
  }
  uint64_t w = 0;
  for (size_t i = n; i-- > 0;) w = w << 8 | b[i];
  return n ? hash_u64(w, h) : h;
}

static int by_size(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

void sort_doubles(double *at, size_t n) { qsort(at, n, sizeof *at, by_size); }

double median(double *at, int n) {
  sort_doubles(at, (size_t)n);
  return n % 2 ? at[n / 2] : (at[n / 2 - 1] + at[n / 2]) / 2;
}

double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double thread_s(void) {
  struct timespec t;
  return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) ? 0 : (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double processor_s(void) {
  struct timespec t;
  return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) ? 0 : (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
