// base: the basic definitions of all files: fixed-width names, checked arithmetic, fatal errors for broken invariants
// (die) and error texts for bad input (struct error). Arenas are in arena.h, hash maps in map.h, growing strings in
// str.h, the environment table in env.h, progress bars in progress.h.
#ifndef WEFT_BASE_H
#define WEFT_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// The build sets WEFT_VERSION_STRING from include/weft/base.h.
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define NORETURN __attribute__((noreturn))

// A broken invariant of the program itself: an error of this thread's attempt (attempt.h); outside of an attempt it
// prints file, line and message to stderr and aborts. Never for bad input.
#define die(...) die_at(__FILE__, __LINE__, __VA_ARGS__)
NORETURN void die_at(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
// The check of an invariant that a model or a request could reach: tests make it fail on purpose (die_inject).
#define die_if(broken, ...) \
  do { if ((broken) || (die_counts && die_counted(__FILE__, __LINE__))) die(__VA_ARGS__); } while (0)
// die_if for a function that returns -1 and an error: the caller is wrong, and nothing has been done yet.
#define fail_if(broken, err, ...) \
  do { if ((broken) || (die_counts && die_counted(__FILE__, __LINE__))) \
         return error_internal(err, __FILE__, __LINE__, __VA_ARGS__); } while (0)
extern bool die_counts;                       // set only by tests
bool die_counted(const char *file, int line);

// The text of what went wrong with a file, a request or a device. The first error wins: later ones do not overwrite it.
typedef struct error { char text[1024]; } error;
// Formats into e (which may be NULL) and returns -1, so that `return error_set(e, ...)` reads well.
int error_set(error *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

// Formats "internal error at FILE:LINE: ..." into e; -1.
int error_internal(error *e, const char *file, int line, const char *fmt, ...) PRINTF_LIKE(4, 5);

// Checked arithmetic: true and *out set if the exact result fits; false and *out unchanged if it does not.
static inline bool add_u64(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}
static inline bool mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}
static inline bool add_i64(int64_t a, int64_t b, int64_t *out) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}
static inline bool sub_i64(int64_t a, int64_t b, int64_t *out) {
  int64_t r;
  if (__builtin_sub_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}
static inline bool mul_i64(int64_t a, int64_t b, int64_t *out) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t floordiv_i64(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}
static inline int64_t floormod_i64(int64_t a, int64_t b) {
  int64_t r = a % b;
  return r && (r < 0) != (b < 0) ? r + b : r;
}
static inline int64_t gcd_i64(int64_t a, int64_t b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b) { int64_t t = a % b; a = b; b = t; }
  return a;
}
static inline uint64_t rotl_u64(uint64_t x, int by) { return x << by | x >> (64 - by); }   // 0 < by < 64
static inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Allocation that never returns NULL: if memory is exhausted, it ends the program with a message. The caller frees the
// memory with free().
_Noreturn void out_of_memory(size_t n);   // prints a message and ends the process
void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xzeros(size_t n, size_t size);    // xcalloc for tables that are read at scattered places before they are written
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);
// Replaces free in every file that includes this header, so that an attempt no longer owns the freed memory.
void xfree(void *p);
#define free(p) xfree(p)

// A growing array: VEC(int) v = {0}; vec_push(&v, 3); v.at[i]; vec_free(&v).
#define VEC(T) struct { T *at; size_t n, cap; }
#define vec_push(v, x) \
  do { if ((v)->n == (v)->cap) { (v)->cap = (v)->cap ? (v)->cap * 2 : 8; (v)->at = \
  xrealloc((v)->at, (v)->cap * sizeof *(v)->at); } \
       (v)->at[(v)->n++] = (x); } while (0)
#define vec_free(v) do { free((v)->at); (v)->at = NULL; (v)->n = (v)->cap = 0; } while (0)

// 64-bit hash of bytes (not cryptographic); seed allows chaining. Stable across runs, machines and versions.
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);
static inline uint64_t hash_u64(uint64_t x, uint64_t seed) {
  x ^= seed + 0x9e3779b97f4a7c15ull;
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

void sort_doubles(double *at, size_t n);   // ascending
double median(double *at, int n);          // of n > 0 numbers, which it sorts
double now_s(void);        // monotonic seconds
double thread_s(void);     // processor seconds of this thread; 0: unknown
double processor_s(void);  // processor seconds of all threads of this process; 0: unknown
#endif
