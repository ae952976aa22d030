// Reads and writes sets of kernels: see kernel_set.h. A set has a header, a table sorted by name (SHA-256 of version
// and key), then the values. The header has a checksum of itself and the table, checked at the start; the table has a
// checksum of each value, checked when the value is read, so a start costs nothing for kernels that it does not need.
#define _GNU_SOURCE
#include "device/kernel_set.h"
#include "base/env.h"
#include "base/sha256.h"
#include "base/str.h"
#include "device/cpu_info.h"
#include "device/entry_kinds.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { CPU_NAME = 24, ALIGN = 8, LEAST_STACK = 2 << 20 };
static const char magic[8] = {'W', 'E', 'F', 'T', 'S', 'E', 'T', '2'};
// sum: checksum of the preceding fields and of the table
typedef struct head { char magic[8], cpu[CPU_NAME]; uint64_t count, size, sum; } head;
typedef struct row { unsigned char name[SHA256_BYTES]; uint64_t at, n, sum; } row;    // at: offset from the header
struct collected { unsigned char name[SHA256_BYTES]; bytes value; };

static struct {
  pthread_mutex_t mutex;
  bool collects;
  VEC(struct collected) found;
  const head *used;
  _Atomic uint64_t damaged;            // row number of a damaged value, from 1; 0: none
} sets = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void kernel_set_collect(void) { sets.collects = true; }
bool kernel_set_collects(void) { return sets.collects; }
bool kernel_set_used(void) { return sets.used; }
const char *kernel_set_cpu(void) { return sets.used ? sets.used->cpu : ""; }

static void digest_name(const char *version, const void *key, size_t n, unsigned char out[SHA256_BYTES]) {
  sha256 s;
  sha256_begin(&s);
  sha256_add(&s, version, strlen(version) + 1);
  sha256_add(&s, key, n);
  sha256_end_bytes(&s, out);
}

static uint64_t sum_of_table(const head *h) {
  return hash_bytes(h + 1, h->count * sizeof(row), hash_bytes(h, offsetof(head, sum), 0));
}

static int by_digest(const void *x, const void *y) { return memcmp(x, y, SHA256_BYTES); }

// ---- collecting -----------------------------------------------------------------------------------------------------

static struct collected *collected_as(const unsigned char *name) {
  for (size_t i = 0; i < sets.found.n; i++) if (!by_digest(sets.found.at[i].name, name)) return &sets.found.at[i];
  return NULL;
}

void kernel_set_add(const char *version, const void *key, size_t key_n, const void *value, size_t n) {
  enum entry_kind kind = entry_kind_of(key, key_n);
  if (!sets.collects || (kind != ENTRY_KERNEL && kind != ENTRY_FILLING && kind != ENTRY_SCHEDULE)) return;
  struct collected c = {.value = {xmalloc(n), n}};
  memcpy(c.value.at, value, n);
  digest_name(version, key, key_n, c.name);
  pthread_mutex_lock(&sets.mutex);
  if (collected_as(c.name)) bytes_free(&c.value);
  else vec_push(&sets.found, c);
  pthread_mutex_unlock(&sets.mutex);
}

void kernel_set_pack(const char *cpu, bytes *out) {
  size_t n = sets.found.n, at = sizeof(head) + n * sizeof(row);
  head h = {.count = n, .size = at};
  memcpy(h.magic, magic, sizeof magic);
  snprintf(h.cpu, sizeof h.cpu, "%s", cpu);
  if (n) qsort(sets.found.at, n, sizeof *sets.found.at, by_digest);
  for (size_t i = 0; i < n; i++) h.size += round_up(sets.found.at[i].value.n, ALIGN);
  *out = (bytes){xcalloc(1, h.size), h.size};
  memcpy(out->at, &h, sizeof h);
  for (size_t i = 0; i < n; i++) {
    const struct collected *c = &sets.found.at[i];
    row r = {.at = at, .n = c->value.n, .sum = hash_bytes(c->value.at, c->value.n, 0)};
    memcpy(r.name, c->name, sizeof r.name);
    memcpy(out->at + sizeof h + i * sizeof r, &r, sizeof r);
    memcpy(out->at + at, c->value.at, c->value.n);
    at += round_up(c->value.n, ALIGN);
    free(c->value.at);
  }
  head *made = (head *)(void *)out->at;
  made->sum = sum_of_table(made);
  vec_free(&sets.found);
}

// ---- using ----------------------------------------------------------------------------------------------------------

bool kernel_set_get(const char *version, const void *key, size_t key_n, bytes *value) {
  unsigned char name[SHA256_BYTES];
  const head *h = sets.used;
  digest_name(version, key, key_n, name);
  *value = (bytes){0};
  if (sets.collects) {
    pthread_mutex_lock(&sets.mutex);
    const struct collected *c = collected_as(name);
    if (c) *value = (bytes){memcpy(xmalloc(c->value.n), c->value.at, c->value.n), c->value.n};
    pthread_mutex_unlock(&sets.mutex);
    return c;
  }
  const row *r = h ? bsearch(name, h + 1, h->count, sizeof *r, by_digest) : NULL;
  if (!r) return false;
  const char *at = (const char *)h + r->at;
  if (hash_bytes(at, r->n, 0) != r->sum) {
    atomic_store(&sets.damaged, (uint64_t)(r - (const row *)(const void *)(h + 1)) + 1);
    return false;
  }
  *value = (bytes){memcpy(xmalloc(r->n), at, r->n), r->n};
  return true;
}

bool kernel_set_damage(error *err) {
  uint64_t number = atomic_load(&sets.damaged);
  if (number) error_set(err, "this program is damaged: kernel %llu of %llu for %s is not what was written",
                     (unsigned long long)number, (unsigned long long)sets.used->count, sets.used->cpu);
  return number;
}

// The set that begins at p, with `left` bytes left; NULL if there is none.
static const head *set_at(const char *p, size_t left) {
  const head *h = (const head *)(const void *)p;
  if (left < sizeof *h || memcmp(h->magic, magic, sizeof magic) || !memchr(h->cpu, 0, CPU_NAME)) return NULL;
  if (h->size > left || h->size % ALIGN || h->size < sizeof *h) return NULL;
  if (h->count > (h->size - sizeof *h) / sizeof(row)) return NULL;
  if (h->sum != sum_of_table(h)) return NULL;
  const row *r = (const row *)(const void *)(h + 1);
  for (uint64_t i = 0; i < h->count; i++) if (r[i].at > h->size || r[i].n > h->size - r[i].at) return NULL;
  return h;
}

int kernel_set_use(const void *from, size_t n, error *err) {
  const char *p = from, *wanted = env_str(ENV_WEFT_CPU);
  bool any = !strcmp(wanted, "native");
  str names = {0};
  cpu_features have;
  struct rlimit stack;
  sets.used = NULL;
  atomic_store(&sets.damaged, 0);
  cpu_detect(&have);
  if (!getrlimit(RLIMIT_STACK, &stack) && stack.rlim_cur < LEAST_STACK)
    return error_set(err, "the limit of a stack is %llu bytes, and kernels of an exported program need 2 MiB "
                     "(ulimit -s 8192)", (unsigned long long)stack.rlim_cur);
  for (const head *h; (h = set_at(p, n)); p += h->size, n -= h->size) {
    cpu_target t;
    str_addf(&names, "%s%s", names.n ? ", " : "", h->cpu);
    if ((any || !strcmp(wanted, h->cpu)) && !cpu_target_for(h->cpu, &have, &t, NULL)) sets.used = h;
  }
  if (n) sets.used = NULL;
  if (n) error_set(err, "is damaged: its table of kernels%s%s is not what was written",
                   names.n ? " after the one for " : "", names.n ? str_c(&names) : "");
  else if (!sets.used && any) error_set(err, "this program has kernels for %s, and this processor runs none of them",
                                        str_c(&names));
  else if (!sets.used) error_set(err, "WEFT_CPU=%s: this program has kernels for %s", wanted, str_c(&names));
  if (sets.used) env_set(ENV_WEFT_CPU, sets.used->cpu);
  str_free(&names);
  return sets.used ? 0 : -1;
}
