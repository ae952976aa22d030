// Counts what a test program has allocated and not freed: its malloc, which hands on to glibc's. (Figures of glibc's
// own count what it keeps for later as used.) With sanitizers, which have a malloc of their own, nothing is counted:
// there LeakSanitizer looks. Included once in a program.
#ifndef WEFT_LIVE_BLOCKS_H
#define WEFT_LIVE_BLOCKS_H
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NOT_COUNTED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define NOT_COUNTED
#endif

static _Atomic long live_blocks, live_bytes;

#ifndef NOT_COUNTED
void *__libc_malloc(size_t n), *__libc_calloc(size_t n, size_t size), *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t to, size_t n);
void __libc_free(void *p);

#undef free
static void *counted(void *p) {
  if (!p) return p;
  live_blocks++;
  live_bytes += (long)malloc_usable_size(p);
  return p;
}
static void uncounted(void *p) {
  if (!p) return;
  live_blocks--;
  live_bytes -= (long)malloc_usable_size(p);
}
void *malloc(size_t n) { return counted(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return counted(__libc_calloc(n, size)); }
void *aligned_alloc(size_t to, size_t n) { return counted(__libc_memalign(to, n)); }
void *memalign(size_t to, size_t n) { return counted(__libc_memalign(to, n)); }
int posix_memalign(void **p, size_t to, size_t n);
int posix_memalign(void **p, size_t to, size_t n) {
  *p = counted(__libc_memalign(to, n));
  return *p ? 0 : ENOMEM;
}
void *realloc(void *p, size_t n) {
  uncounted(p);
  void *moved = __libc_realloc(p, n);
  counted(moved || !n ? moved : p);
  return moved;
}
void free(void *p) { uncounted(p); __libc_free(p); }
#endif
#endif
