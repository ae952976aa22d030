// Fuzzes HTTP: the input is what a client sends over one connection; the byte 0xFE ends a piece of it.  Whatever it is,
// the answers are well-formed, none is a fault of the server, and nothing follows the refusal of bytes that are no
// message.  Changes know lines, headers, lengths and chunks.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "serve_common.h"

enum { CUT = 0xFE, BYTES_MOST = 16 << 10 };
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t random_state;
static size_t draw(size_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(random_state >> 33) % below;
}

static const char *const pieces[] = {
  "Content-Length: 0\r\n",
  "Content-Length: 5\r\n",
  "Content-Length : 5\r\n",
  "Content-Length: +5\r\n",
  "Transfer-Encoding: chunked\r\n",
  "Transfer-Encoding: identity\r\n",
  "Transfer-Encoding: gzip, chunked\r\n",
  "Transfer-Encoding:\tchunked\r\n",
  "Host: localhost\r\n",
  "Host: evil.example\r\n",
  "Connection: close\r\n",
  "Connection: keep-alive\r\n",
  "Connection: upgrade\r\nUpgrade: h2c\r\n",
  "Expect: 100-continue\r\n",
  "Expect: 200-ok\r\n",
  "Origin: null\r\n",
  "Origin: http://localhost\r\n",
  "Authorization: Bearer x\r\n",
  "Content-Type: application/json\r\n",
  "Content-Encoding: gzip\r\n",
  "Trailer: X\r\n",
  "TE: trailers\r\n",
  " folded\r\n",
  "\r\n",
  "\n",
  "\r",
  "0\r\n\r\n",
  "5\r\nhello\r\n",
  "5;ext=\"a\"\r\nhello\r\n",
  "ffffffffffffffff\r\n",
  "{\"content\":\"x\"}",
  "{\"prompt\":\"a\",\"stream\":true}",
  "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n\r\n{\"content\":\"x\"}",
  "GET /v1/models HTTP/1.0\r\n\r\n",
  "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  "/page/../../etc/passwd",
  "%00",
  "%2e%2e/",
  "?model=x&autoload=1",
  "/v1/stream?conv_id=x&from=9",
  "\xFE"};

// The next line from somewhere on; n: to the end of the last.
static size_t some_line(const uint8_t *data, size_t n) {
  size_t at = n ? draw(n) : 0;
  while (at < n && data[at] != '\n') at++;
  return at < n ? at + 1 : n;
}

static size_t insert(uint8_t *data, size_t n, size_t max, size_t at, const void *what, size_t m) {
  uint8_t copy[512];
  if (m > sizeof copy || n + m > max) return n;
  memcpy(copy, what, m);
  memmove(data + at + m, data + at, n - at);
  memcpy(data + at, copy, m);
  return n + m;
}

static size_t drop(uint8_t *data, size_t n, size_t at, size_t m) {
  if (at > n || m > n - at) return n;
  memmove(data + at, data + at + m, n - at - m);
  return n - m;
}

// The number behind Content-Length becomes what stands behind the header, nearly.
static size_t fix_length(uint8_t *data, size_t n, size_t max) {
  uint8_t *name = memmem(data, n, "Content-Length: ", 16), *body = memmem(data, n, "\r\n\r\n", 4);
  if (!name || !body || body < name) return n;
  size_t at = (size_t)(name - data) + 16, digits = 0;
  char text[32];
  while (at + digits < n && data[at + digits] >= '0' && data[at + digits] <= '9') digits++;
  int m = snprintf(text, sizeof text, "%zu", n - (size_t)(body - data) - 4 + draw(8) / 6 - draw(8) / 7);
  n = drop(data, n, at, digits);
  return insert(data, n, max, at, text, (size_t)m);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned int seed) {
  random_state = (seed + 1ull) * 0x9E3779B97F4A7C15u;
  if (!draw(8)) return LLVMFuzzerMutate(data, n, max);
  for (size_t i = 1 + draw(3); i; i--) {
    size_t a = some_line(data, n), b = some_line(data, n), what = draw(8);
    const char *piece = pieces[draw(COUNT(pieces))];
    if (b < a) {
      size_t c = a;
      a = b, b = c;
    }
    if (what < 3) n = insert(data, n, max, draw(3) ? a : draw(n + 1), piece, strlen(piece));
    else if (what == 3) n = drop(data, n, a, b - a);
    else if (what == 4) n = insert(data, n, max, b, data + a, b - a < 512 ? b - a : 0);
    else if (what == 5 && a > 1 && data[a - 2] == '\r') n = drop(data, n, a - 2, 1);
    else if (what == 6) n = fix_length(data, n, max);
    else if (n) data[draw(n)] = (uint8_t)draw(256);
  }
  return n ? n : LLVMFuzzerMutate(data, n, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!server_path[0]) server_begin();
  if (size > BYTES_MOST) return 0;
  str answer = {0};
  server_ask((const char *)data, size, CUT, &answer);
  bool head = memmem(data, size, "HEAD", 4) != NULL;  // answers without the body that they announce
  const char *at = str_c(&answer), *end = at + answer.n, *body;
  size_t n;
  while (at < end && !head) {
    int status = take_answer(&at, end, &body, &n);
    if (!status) die("this is no answer: %.200s", at ? at : str_c(&answer));
    check_status(status, body, n);
  }
  str_free(&answer);
  return 0;
}
