// UTF-8: see utf8.h. Only utf8_next knows the rules; the other functions use it.
#include "text/utf8.h"
#include <string.h>

int utf8_next(const char *p, size_t n) {
  const unsigned char *b = (const unsigned char *)p;
  if (b[0] < 0x80) return 1;
  if (b[0] < 0xC2 || b[0] > 0xF4) return 0;
  int len = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
  // The second byte carries the limits: no overlong forms, no surrogates, nothing above U+10FFFF.
  unsigned lo = b[0] == 0xE0 ? 0xA0 : b[0] == 0xF0 ? 0x90 : 0x80, hi = b[0] == 0xED ? 0x9F : b[0] == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < len; i++) {
    if ((size_t)i >= n) return i - len;
    if (b[i] < lo || b[i] > hi) return 0;
    lo = 0x80, hi = 0xBF;
  }
  return len;
}

size_t utf8_valid_prefix(const char *p, size_t n) {
  size_t i = 0;
  while (i < n) {
    uint64_t w;
    if (n - i >= 8 && (memcpy(&w, p + i, 8), !(w & 0x8080808080808080ull))) { i += 8; continue; }
    int len = utf8_next(p + i, n - i);
    if (len <= 0) break;
    i += (size_t)len;
  }
  return i;
}

size_t utf8_unfinished(const char *p, size_t n) {
  for (size_t k = 1; k <= 3 && k <= n; k++)
    if (((unsigned char)p[n - k] & 0xC0) != 0x80) return utf8_next(p + n - k, k) < 0 ? k : 0;
  return 0;
}

uint32_t utf8_code_point(const char *p, int len) {
  const unsigned char *b = (const unsigned char *)p;
  switch (len) {
    case 1: return b[0];
    case 2: return (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    case 3: return (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3F);
    default:
      return (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 | (uint32_t)(b[2] & 0x3F) << 6 |
             (b[3] & 0x3F);
  }
}

int utf8_put(uint32_t cp, char out[4]) {
  if (cp < 0x80) { out[0] = (char)cp; return 1; }
  if (cp < 0x800) { out[0] = (char)(0xC0 | cp >> 6); out[1] = (char)(0x80 | (cp & 0x3F)); return 2; }
  if (cp < 0x10000) {
    out[0] = (char)(0xE0 | cp >> 12); out[1] = (char)(0x80 | (cp >> 6 & 0x3F)); out[2] = (char)(0x80 | (cp & 0x3F));
    return 3;
  }
  out[0] = (char)(0xF0 | cp >> 18); out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
  out[2] = (char)(0x80 | (cp >> 6 & 0x3F)); out[3] = (char)(0x80 | (cp & 0x3F));
  return 4;
}

#define REPLACEMENT "\xEF\xBF\xBD"   // U+FFFD

void utf8_stream_add(utf8_stream *s, const char *bytes, size_t n, str *out) {
  for (size_t i = 0; i < n; i++) {
    s->held[s->n++] = bytes[i];
    int len = utf8_next(s->held, s->n);
    if (len < 0) continue;
    if (len > 0) { str_addn(out, s->held, s->n); s->n = 0; continue; }
    // The held bytes were a valid prefix until this byte: they are one broken piece, and this byte begins anew.
    str_add(out, REPLACEMENT);
    if (s->n > 1) i--;
    s->n = 0;
  }
}

void utf8_stream_end(utf8_stream *s, str *out) {
  if (s->n) str_add(out, REPLACEMENT);
  s->n = 0;
}
