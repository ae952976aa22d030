// Packs code and maps it executable: see code.h. There is no pool of pages that grows with each kernel, because its
// pages would have to become writable again. A plan maps all of its kernels at once, which also needs few TLB entries.
#define _GNU_SOURCE
#include "device/code.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/os.h"
#include "device/kernel_set.h"

#if defined(__x86_64__)
enum { FAMILY = 62 };    // the ELF machine numbers
#elif defined(__aarch64__)
enum { FAMILY = 183 };
#else
enum { FAMILY = 0 };
#endif
enum { MAGIC = 0x31434657 };   // "WFC1"

void bytes_free(bytes *b) {
  free(b->at);
  *b = (bytes){0};
}

void code_blob_free(code_blob *b) {
  for (size_t i = 0; i < b->symbols.n; i++) free(b->symbols.at[i].name);
  vec_free(&b->symbols);
  bytes_free(&b->code);
}

// The packed form, all numbers u32 in the machine's byte order: MAGIC, FAMILY, size of the code, number of symbols; for
// each symbol its offset, the length of its name and the name; then the code.
static uint8_t *put_u32(uint8_t *p, size_t x) {
  uint32_t v = (uint32_t)x;
  memcpy(p, &v, 4);
  return p + 4;
}

int code_blob_pack(const code_blob *b, bytes *out, error *err) {
  size_t n = 16 + b->code.n;
  for (size_t i = 0; i < b->symbols.n; i++) n += 8 + strlen(b->symbols.at[i].name);
  fail_if(n > UINT32_MAX, err, "code: a blob of %zu bytes", n);
  *out = (bytes){xmalloc(n), n};
  uint8_t *p = out->at;
  p = put_u32(p, MAGIC);
  p = put_u32(p, b->machine ? b->machine : (uint32_t)FAMILY);
  p = put_u32(p, b->code.n);
  p = put_u32(p, b->symbols.n);
  for (size_t i = 0; i < b->symbols.n; i++) {
    size_t len = strlen(b->symbols.at[i].name);
    p = put_u32(p, b->symbols.at[i].offset);
    p = put_u32(p, len);
    memcpy(p, b->symbols.at[i].name, len);
    p += len;
  }
  memcpy(p, b->code.at, b->code.n);
  return 0;
}

struct reader { const uint8_t *at; size_t left; };

static bool take_u32(struct reader *r, uint32_t *v) {
  if (r->left < 4) return false;
  memcpy(v, r->at, 4);
  r->at += 4;
  r->left -= 4;
  return true;
}

int code_blob_unpack(const uint8_t *p, size_t n, code_blob *out, error *err) {
  *out = (code_blob){0};
  struct reader r = {p, n};
  uint32_t magic, family, code_n, symbols;
  if (!take_u32(&r, &magic) || !take_u32(&r, &family) || !take_u32(&r, &code_n) || !take_u32(&r, &symbols))
    return error_set(err, "packed code: %zu bytes are too few", n);
  if (magic != MAGIC) return error_set(err, "packed code: does not begin with its magic number (0x%08x)", magic);
  if (family != FAMILY && !kernel_set_collects())
    return error_set(err, "packed code: made for another processor family (ELF machine %u)", family);
  for (uint32_t i = 0; i < symbols; i++) {
    uint32_t offset, len;
    if (!take_u32(&r, &offset) || !take_u32(&r, &len) || len > r.left || offset >= code_n || memchr(r.at, 0, len)) {
      code_blob_free(out);
      return error_set(err, "packed code: symbol %u is damaged", i);
    }
    code_symbol s = {xmalloc((size_t)len + 1), offset};
    memcpy(s.name, r.at, len);
    s.name[len] = 0;
    vec_push(&out->symbols, s);
    r.at += len;
    r.left -= len;
  }
  if (!code_n || r.left != code_n) {
    code_blob_free(out);
    return error_set(err, "packed code: %zu bytes of code where %u were announced", r.left, code_n);
  }
  out->code = (bytes){xmalloc(code_n), code_n};
  memcpy(out->code.at, r.at, code_n);
  return 0;
}

struct entry { char *name; size_t blob; uint8_t *address; };
struct code_image { uint8_t *base; size_t n; VEC(struct entry) entries; };

code_image *code_map(const code_blob *const *blobs, size_t n, error *err) {
  uint64_t total = 0;
  size_t page = (size_t)sysconf(_SC_PAGESIZE), align = page > CODE_ALIGN ? page : CODE_ALIGN;
  for (size_t i = 0; i < n; i++)
    if (!add_u64(total, round_up(blobs[i]->code.n, align), &total) || total > (uint64_t)1 << 40) {
      error_set(err, "code: %zu kernels are too large to map", n);
      return NULL;
    }
  if (!total) { error_set(err, "code: nothing to map"); return NULL; }
  uint8_t *base = os_code_take(total);
  if (!base) {
    error_set(err, "code: mapping %llu bytes failed: %s", (unsigned long long)total, strerror(errno));
    return NULL;
  }
  code_image *c = xcalloc(1, sizeof *c);
  c->base = base;
  c->n = total;
  uint8_t *at = base;
  for (size_t i = 0; i < n; i++) {
    memcpy(at, blobs[i]->code.at, blobs[i]->code.n);
    for (size_t k = 0; k < blobs[i]->symbols.n; k++) {
      struct entry e = {xstrdup(blobs[i]->symbols.at[k].name), i, at + blobs[i]->symbols.at[k].offset};
      vec_push(&c->entries, e);
    }
    at += round_up(blobs[i]->code.n, align);
  }
  if (!os_code_seal(base, total)) {
    error_set(err, "code: making %llu bytes executable was refused: %s (a security policy may forbid it)",
              (unsigned long long)total, strerror(errno));
    code_unmap(c);
    return NULL;
  }
  return c;
}

code_fn code_find(const code_image *c, size_t blob, const char *name) {
  for (size_t i = 0; i < c->entries.n; i++)
    if (c->entries.at[i].blob == blob && !strcmp(c->entries.at[i].name, name)) {
      code_fn f;   // C has no cast from object to function pointers; POSIX guarantees equal representations
      memcpy(&f, &c->entries.at[i].address, sizeof f);
      return f;
    }
  return NULL;
}

size_t code_bytes(const code_image *c) { return c->n; }

void code_unmap(code_image *c) {
  if (!c) return;
  os_code_free(c->base, c->n);
  for (size_t i = 0; i < c->entries.n; i++) free(c->entries.at[i].name);
  vec_free(&c->entries);
  free(c);
}
