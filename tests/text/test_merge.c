// Merging: both ways of doing it (short and long words) give what the plainest way gives, whatever the table of merges
// looks like; and long words take near-linear time.
#define _GNU_SOURCE
#include "base/base.h"
#include "text/merge.h"
#include "tools/cpu.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define IDS 48
// Any pair of ids may merge; ranks come in any order, so a merge may make a pair that goes before the one just merged.
struct table { bool has[IDS][IDS]; uint32_t rank[IDS][IDS]; int32_t id[IDS][IDS]; };

static bool find(const void *ctx, int32_t a, int32_t b, uint32_t *rank, int32_t *id) {
  const struct table *t = ctx;
  if (!t->has[a][b]) return false;
  *rank = t->rank[a][b];
  *id = t->id[a][b];
  return true;
}

static uint64_t next_random(uint64_t *s) { return *s = hash_u64(*s, 7); }

// A result is larger than both its parts, as a joined text is longer.  ties: how many pairs share a rank.
static void random_table(struct table *t, uint64_t *s, unsigned density, unsigned ties) {
  uint32_t ranks[IDS * IDS], n = 0;
  memset(t, 0, sizeof *t);
  for (uint32_t k = 0; k < IDS * IDS; k++) ranks[k] = k;
  for (uint32_t k = IDS * IDS - 1; k; k--) {
    uint32_t other = (uint32_t)(next_random(s) % (k + 1)), swap = ranks[k];
    ranks[k] = ranks[other];
    ranks[other] = swap;
  }
  for (int a = 0; a < IDS; a++)
    for (int b = 0; b < IDS; b++) {
      int larger = a > b ? a : b;
      if (larger + 1 >= IDS || next_random(s) % 100 >= density) continue;
      t->has[a][b] = true;
      t->rank[a][b] = ranks[n++] / ties;
      t->id[a][b] = larger + 1 + (int32_t)(next_random(s) % (uint64_t)(IDS - larger - 1));
    }
}

static size_t plain_merge(const struct table *t, int32_t *id, size_t n) {
  for (;;) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; i++)
      if (t->has[id[i]][id[i + 1]] && (best == n || t->rank[id[i]][id[i + 1]] < t->rank[id[best]][id[best + 1]]))
        best = i;
    if (best == n) return n;
    id[best] = t->id[id[best]][id[best + 1]];
    memmove(id + best + 1, id + best + 2, (n - best - 2) * sizeof *id);
    n--;
  }
}

static void set_up(merger *m, const int32_t *id, size_t n) {
  merger_reserve(m, n);
  memcpy(m->id, id, n * sizeof *id);
}

static void check_word(merger *m, const struct table *t, int32_t *id, size_t n) {
  set_up(m, id, n);
  size_t have = merger_run(m, n, IDS * IDS, find, t), want = plain_merge(t, id, n);
  assert_int_equal(have, want);
  assert_memory_equal(m->id, id, want * sizeof *id);
}

static void test_agrees_with_the_plain_way(void **state) {
  (void)state;
  uint64_t s = 1;
  int32_t id[700];
  for (int round = 0; round < 400; round++) {
    merger m = {0};
    struct table t;
    random_table(&t, &s, 5 + (unsigned)(round % 90), round % 3 ? 1 : 100);
    for (int word = 0; word < 6; word++) {
      // Lengths on both sides of the border between the two ways.
      size_t n = 1 + next_random(&s) % (word < 4 ? 60 : 700), letters = 1 + next_random(&s) % 6;
      for (size_t i = 0; i < n; i++) id[i] = (int32_t)(next_random(&s) % letters);
      check_word(&m, &t, id, n);
    }
    merger_free(&m);
  }
}

static void test_one_symbol_and_none(void **state) {
  (void)state;
  struct table t;
  uint64_t s = 2;
  random_table(&t, &s, 100, 1);
  merger m = {0};
  int32_t id[1] = {3};
  check_word(&m, &t, id, 1);
  assert_int_equal(merger_run(&m, 0, IDS * IDS, find, &t), 0);
  merger_free(&m);
}

// "aaaa..." with aa, aaaa, aaaaaaaa, ... as tokens: every position merges, every merge makes a candidate.
static bool find_doubling(const void *ctx, int32_t left, int32_t right, uint32_t *rank, int32_t *id) {
  (void)ctx;
  if (left != right || left >= 15) return false;
  *rank = (uint32_t)left;
  *id = left + 1;
  return true;
}

static void test_ten_million_symbols(void **state) {
  (void)state;
  size_t n = 10000000;
  merger m = {0};
  merger_reserve(&m, n);
  memset(m.id, 0, n * sizeof *m.id);
  double start = cpu_s();
  size_t count = merger_run(&m, n, 32, find_doubling, NULL);
  double took = cpu_s() - start;
  print_message("10 million symbols merged in %.2f s\n", took);
  assert_int_equal(count, n / (1 << 15) + 4);             // 10^7 = 305 * 2^15 + 5,760, which has 4 bits set
  assert_true(took < 30);                                 // quadratic time would be hours, also under a sanitizer
  merger_free(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_agrees_with_the_plain_way),
                                     cmocka_unit_test(test_one_symbol_and_none),
                                     cmocka_unit_test(test_ten_million_symbols)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
