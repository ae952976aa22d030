// Numbers and letters without a locale: see plain.h.
#define _GNU_SOURCE
#include "base/plain.h"
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t c_locale;
static pthread_once_t plain_made = PTHREAD_ONCE_INIT;

static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

plain_scope plain_begin(void) {
  pthread_once(&plain_made, make_c_locale);
  return (plain_scope){uselocale(c_locale)};
}

void plain_end(plain_scope s) { uselocale((locale_t)s.before); }

double plain_strtod(const char *text, char **end) {
  plain_scope s = plain_begin();
  double x = strtod(text, end);
  plain_end(s);
  return x;
}

float plain_strtof(const char *text, char **end) {
  plain_scope s = plain_begin();
  float x = strtof(text, end);
  plain_end(s);
  return x;
}

int plain_vsnprintf(char *out, size_t n, const char *fmt, va_list ap) {
  plain_scope s = plain_begin();
  int written = vsnprintf(out, n, fmt, ap);
  plain_end(s);
  return written;
}

int plain_snprintf(char *out, size_t n, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int written = plain_vsnprintf(out, n, fmt, ap);
  va_end(ap);
  return written;
}

int plain_sscanf(const char *text, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  plain_scope s = plain_begin();
  int read = vsscanf(text, fmt, ap);
  plain_end(s);
  va_end(ap);
  return read;
}

int ascii_ncasecmp(const char *a, const char *b, size_t n) {
  for (; n; n--, a++, b++) {
    int x = (unsigned char)ascii_lower(*a), y = (unsigned char)ascii_lower(*b);
    if (x != y || !x) return x - y;
  }
  return 0;
}

const char *ascii_casestr(const char *in, const char *what) {
  size_t n = strlen(what);
  for (; ; in++) {
    if (!ascii_ncasecmp(in, what, n)) return in;
    if (!*in) return NULL;
  }
}
