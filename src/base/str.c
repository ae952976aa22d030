// Growing byte strings: see str.h.
#include "base/str.h"
#include <stdlib.h>
#include <string.h>

static void reserve(str *s, size_t more) {
  if (s->cap - s->n > more) return;
  size_t cap = s->cap ? s->cap : 64;
  while (cap - s->n <= more) cap *= 2;
  s->at = xrealloc(s->at, cap);
  s->cap = cap;
}

void str_addn(str *s, const void *bytes, size_t n) {
  reserve(s, n);
  if (n) memcpy(s->at + s->n, bytes, n);
  s->n += n;
  s->at[s->n] = 0;
}

void str_add(str *s, const char *text) { str_addn(s, text, strlen(text)); }
void str_addc(str *s, char c) { str_addn(s, &c, 1); }

void str_vaddf(str *s, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  reserve(s, 64);
  int n = vsnprintf(s->at + s->n, s->cap - s->n, fmt, ap);
  if (n < 0) die("str: bad format '%s'", fmt);
  if ((size_t)n >= s->cap - s->n) {
    reserve(s, (size_t)n);
    vsnprintf(s->at + s->n, s->cap - s->n, fmt, again);
  }
  s->n += (size_t)n;
  va_end(again);
}

void str_addf(str *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(s, fmt, ap);
  va_end(ap);
}

void str_free(str *s) {
  free(s->at);
  *s = (str){0};
}
