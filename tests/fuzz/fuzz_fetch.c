// Fuzzes what the server reads from the process that fetches (serve/fetch.h), as if that were somebody else's by now.
// The input is a row of frames; what comes of them is compared with a second reading of the same bytes.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#undef NDEBUG
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/message.h"
#include "base/str.h"
#include "serve/fetch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// ---- the other process ----------------------------------------------------------------------------------------------

static str bytes;            // what it answers
static int ends[2];

static void *answer(void *ctx) {
  for (bool more = true; more;) {
    uint32_t n;
    char url[64];
    int fd = message_receive_fd(*(int *)ctx, &more);
    if (fd < 0) continue;
    struct iovec part = {bytes.at, bytes.n};
    if (message_receive(fd, &n, sizeof n) && n < sizeof url && message_receive(fd, url, n)) message_send(fd, &part, 1);
    close(fd);
  }
  return NULL;
}

// A frame of four bytes or more: what it says, whether its head is right, its length, and bytes. A byte of the input
// may stand for many.
static void make_bytes(const uint8_t *data, size_t size) {
  enum { LONG = 1 << 16, MOST = 48 << 20 };
  static char block[LONG];
  bytes.n = 0;
  while (size >= 4 && bytes.n < MOST) {
    uint32_t n = data[2] | (uint32_t)data[3] << 8, own = data[1] & 8 ? LONG : n & 255;
    struct fetch_piece p = {data[1] & 1 ? FETCH_MAGIC ^ 1u << (data[2] & 31) : FETCH_MAGIC, data[0] & 3, own};
    if (data[1] & 2) p.n = n << (data[0] >> 4 & 15);                 // not what follows
    if (data[1] & 4) str_addn(&bytes, (const char *)data, size < 11 ? size : 11);              // cut
    else str_addn(&bytes, (const char *)&p, sizeof p);
    for (uint32_t i = 0; i < own; i++) block[i] = (char)data[i % size];
    str_addn(&bytes, block, own);
    data += 4;
    size -= 4;
  }
}

// ---- a second reading -----------------------------------------------------------------------------------------------

struct expected { int status; size_t taken; };

static struct expected read_again(size_t most) {
  struct expected e = {FETCH_LATER, 0};
  size_t all = 0;
  for (size_t at = 0; bytes.n - at >= sizeof(struct fetch_piece);) {
    struct fetch_piece p;
    memcpy(&p, bytes.at + at, sizeof p);
    at += sizeof p;
    if (p.magic != FETCH_MAGIC || p.n > 1 << 16) return e;
    if (p.said == FETCH_END) { e.status = 0; return e; }
    if (bytes.n - at < p.n || (p.said == FETCH_REFUSED && p.n >= 512)) return e;
    if (p.said == FETCH_REFUSED) { e.status = FETCH_FAILED; return e; }
    at += p.n;
    if ((all += p.n) > FETCH_MOST) { e.status = FETCH_FAILED; return e; }
    e.taken += p.n;
    if (all > most) { e.status = FETCH_TAKEN; return e; }
  }
  return e;
}

struct taker { size_t n, most; };
static int take(void *ctx, const void *at, size_t n) {
  struct taker *t = ctx;
  for (size_t i = 0; i < n; i += 4096) assert(((const volatile char *)at)[i] || true);       // all of it can be read
  t->n += n;
  return t->n > t->most;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static pthread_t other;
  static serve_fetcher f;
  if (!f.first) {
    assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    f.first = ends[0];
    assert(!pthread_create(&other, NULL, answer, &ends[1]));
  }
  if (!size) return 0;
  struct taker t = {0, data[0] & 128 ? 1000 : SIZE_MAX / 2};
  make_bytes(data + 1, size - 1);
  struct expected e = read_again(t.most);
  error err = {0};
  int status = fetch_url(&f, "http://a/", 9, &(fetch_sink){take, NULL, &t, now_s() + FETCH_ALL_S}, &err);
  assert(status == e.status && t.n == e.taken);
  assert(status == FETCH_TAKEN || !status == !err.text[0] || status == FETCH_FAILED);
  for (const char *c = err.text; *c; c++) assert(*c >= ' ' && *c <= '~');
  return 0;
}
