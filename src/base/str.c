// Growing byte strings: see str.h.
#include "base/str.h"
#include "base/plain.h"
#include <pthread.h>
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
  int n = plain_vsnprintf(s->at + s->n, s->cap - s->n, fmt, ap);
  if (n < 0) die("str: bad format '%s'", fmt);
  if ((size_t)n >= s->cap - s->n) {
    reserve(s, (size_t)n);
    plain_vsnprintf(s->at + s->n, s->cap - s->n, fmt, again);
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

// Bytes of the well-formed UTF-8 character at p; 0 if it is not one (overlong forms and surrogates are not).
static size_t character_length(const unsigned char *p, size_t n) {
  size_t k = p[0] < 0x80                   ? 1
             : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
             : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
             : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                           : 0;
  if (!k || k > n) return 0;
  for (size_t i = 1; i < k; i++) if ((p[i] & 0xc0) != 0x80) return 0;
  if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
      (p[0] == 0xf4 && p[1] > 0x8f))
    return 0;
  return k;
}

void str_add_json_part(str *s, const char *text, size_t n) {
  const unsigned char *p = (const unsigned char *)text;
  for (size_t i = 0, k; i < n; i += k) {
    k = character_length(p + i, n - i);
    if (!k) { str_add(s, "\\ufffd"); k = 1; }
    else if (p[i] == '\n') str_add(s, "\\n");
    else if (p[i] == '"' || p[i] == '\\') str_addf(s, "\\%c", p[i]);
    else if (p[i] < ' ' || p[i] == 127 || p[i] == '<') str_addf(s, "\\u%04x", p[i]);
    else if (p[i] == 0xC2 && p[i + 1] < 0xA0) str_addf(s, "\\u%04x", p[i + 1]);   // control characters, too
    else str_addn(s, text + i, k);
  }
}

void str_add_json(str *s, const char *text, size_t n) {
  str_addc(s, '"');
  str_add_json_part(s, text, n);
  str_addc(s, '"');
}

size_t str_format_control(const char *text, size_t n) {
  const unsigned char *p = (const unsigned char *)text;
  bool c1 = n > 1 && p[0] == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0, arabic = n > 1 && p[0] == 0xD8 && p[1] == 0x9C;
  if (c1 || arabic) return 2;
  if (n > 2 && p[0] == 0xE2 && p[1] == 0x80 && (p[2] == 0x8E || p[2] == 0x8F || (p[2] >= 0xA8 && p[2] <= 0xAE)))
    return 3;
  // isolates and invisible characters
  if (n > 2 && p[0] == 0xE2 && p[1] == 0x81 && p[2] >= 0xA0 && p[2] <= 0xAF) return 3;
  if (n > 2 && p[0] == 0xEF && p[1] == 0xBB && p[2] == 0xBF) return 3;
  return n > 3 && p[0] == 0xF3 && p[1] == 0xA0 && (p[2] == 0x80 || p[2] == 0x81) ? 4 : 0;    // tags
}

void str_blank_controls(str *s, bool lines) {
  for (size_t i = 0; i < s->n; i++) {
    unsigned char c = (unsigned char)s->at[i];
    size_t format = str_format_control(s->at + i, s->n - i);
    if (format) {
      memset(s->at + i, ' ', format);
      i += format - 1;
    } else if ((c < ' ' && !(lines && c == '\n')) || c == 127) {
      s->at[i] = ' ';
    }
  }
}

void str_vadd_plain(str *s, const char *fmt, va_list ap) {
  str_vaddf(s, fmt, ap);
  str_blank_controls(s, false);
}

static struct { warning_to *to; void *ctx; } listener;
static pthread_mutex_t listener_lock = PTHREAD_MUTEX_INITIALIZER;

void warning_set(warning_to *to, void *ctx) {
  pthread_mutex_lock(&listener_lock);
  listener.to = to;
  listener.ctx = ctx;
  pthread_mutex_unlock(&listener_lock);
}

void warning(const char *fmt, ...) {
  str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vadd_plain(&s, fmt, ap);
  va_end(ap);
  pthread_mutex_lock(&listener_lock);
  warning_to *to = listener.to;
  void *ctx = listener.ctx;
  pthread_mutex_unlock(&listener_lock);
  if (to) to(ctx, str_c(&s));
  else fprintf(stderr, "weft: warning: %s\n", str_c(&s));
  str_free(&s);
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
