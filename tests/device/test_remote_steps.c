// Steps of a plan as commands of a device with memory of its own (device/remote_steps.h): where variables lie, which
// commands have to be encoded again when they change, and where barriers stand.
#define _GNU_SOURCE
#include "render/rig.h"
#include "device/remote_steps.h"

enum { MOST = 40, BYTES = 1 << 14 };

// A plan's steps by hand: each has a kernel with a variable n, and as many threadgroups as `groups` says of it.
typedef struct made {
  graph *g;
  uop *n;
  program programs[MOST];
  device_kernel kernels[MOST];
  step steps[MOST];
  remote_range ranges[MOST][2];
  remote_steps m;
  unsigned char vars[BYTES];
} made;

static made *new_steps(int n, uop *(*groups)(made *, int)) {
  made *x = xcalloc(1, sizeof *x);
  x->g = graph_new(NULL);
  x->n = uop_var(x->g, "n", 0, 1000);
  for (int i = 0; i < n; i++) {
    program *p = &x->programs[i];
    snprintf(p->name, sizeof p->name, "kernel_%d", i);
    p->graph = x->g;
    p->vars = &x->n;
    p->n_vars = i % 3 < 2;
    p->global[0] = groups(x, i);
    p->local[0] = uop_idx(x->g, 32);
    x->kernels[i].p = p;
    x->steps[i].k = &x->kernels[i];
  }
  remote_steps_make(&x->m, graph_arena(x->g), x->steps, n);
  for (int i = 0; i < n; i++) {
    x->m.at[i].ranges = x->ranges[i];
    x->m.at[i].n_ranges = 2;
  }
  return x;
}

static void free_steps(made *x) {
  graph_free(x->g);
  free(x);
}

static int update(made *x, int64_t n) {
  for (int i = 0; i < x->m.n; i++) x->steps[i].vars[0] = n;
  return remote_steps_update(&x->m, x->vars);
}

static void encode_all(made *x) { for (int i = 0; i < x->m.n; i++) x->m.at[i].stale = false; }

static uop *seven(made *x, int i) { (void)i; return uop_idx(x->g, 7); }
// of every second that has a variable: n / 100
static uop *some_grow(made *x, int i) {
  return i % 6 == 0 ? uop_op2(x->g, OP_IDIV, x->n, uop_idx(x->g, 100)) : uop_idx(x->g, 7);
}

static void test_variables(void **state) {
  (void)state;
  made *x = new_steps(12, some_grow);
  uint64_t end = 0;
  for (int i = 0; i < 12; i++) {
    assert_int_equal(x->m.at[i].vars_at % REMOTE_VARS_ALIGNED, 0);
    assert_true(x->m.at[i].vars_at >= end);
    end = x->m.at[i].vars_at + 8 * (uint64_t)x->programs[i].n_vars;
  }
  assert_true(end <= x->m.vars_bytes && x->m.vars_bytes <= BYTES);
  assert_int_equal(update(x, 250), 12);                    // all are new
  for (int i = 0; i < 12; i++) {
    int64_t v;
    memcpy(&v, x->vars + x->m.at[i].vars_at, 8);
    if (x->programs[i].n_vars) assert_int_equal(v, 250);
    assert_int_equal(x->m.at[i].groups[0], i % 6 ? 7 : 2);
    assert_int_equal(x->m.at[i].groups[1], 1);
    assert_int_equal(x->m.at[i].items[0], 32);
    assert_false(x->m.at[i].empty);
  }
  encode_all(x);
  assert_int_equal(update(x, 250), 0);
  assert_int_equal(update(x, 299), 0);                     // other values, the same numbers of threadgroups
  int64_t v;
  memcpy(&v, x->vars + x->m.at[6].vars_at, 8);
  assert_int_equal(v, 299);
  assert_int_equal(update(x, 300), 2);
  assert_true(x->m.at[0].stale && x->m.at[6].stale);
  assert_int_equal(update(x, 299), 2);                     // what has not been encoded stays stale
  free_steps(x);
}

static void test_levels(void **state) {
  (void)state;
  static const int levels[] = {0, 0, 1, 1, 1, 2, 3, 3};
  made *x = new_steps(8, seven);
  for (int i = 0; i < 8; i++) x->steps[i].level = levels[i];
  update(x, 1);
  for (int i = 0; i < 8; i++) assert_int_equal(x->m.at[i].barrier, i && levels[i] != levels[i - 1]);
  free_steps(x);
}

// A barrier of a command that does nothing goes to the next one, and comes back.
static void test_empty(void **state) {
  (void)state;
  made *x = new_steps(9, some_grow);                       // 0 and 6 grow
  for (int i = 0; i < 9; i++) x->steps[i].level = i / 3;   // 6 is the first of its level
  update(x, 100);
  encode_all(x);
  for (int i = 0; i < 9; i++) assert_int_equal(x->m.at[i].barrier, i && i % 3 == 0);
  assert_int_equal(update(x, 99), 3);                      // 0 and 6 are empty, and 7 waits in the place of 6
  assert_true(x->m.at[0].empty && x->m.at[6].empty && x->m.at[6].stale && x->m.at[7].stale);
  assert_true(x->m.at[7].barrier && !x->m.at[6].barrier && !x->m.at[0].barrier);
  encode_all(x);
  assert_int_equal(update(x, 100), 3);
  assert_true(x->m.at[6].barrier && !x->m.at[7].barrier);
  free_steps(x);
}

// Where they are fixed they stay where they would be if every command had something to do.
static void test_fixed(void **state) {
  (void)state;
  made *x = new_steps(9, some_grow);
  for (int i = 0; i < 9; i++) x->steps[i].level = i / 3;
  remote_steps_fix(&x->m);
  for (int n = 0; n <= 300; n += 100) {
    update(x, n);
    assert_int_equal(x->m.at[6].empty, n == 0);
    for (int i = 0; i < 9; i++) assert_int_equal(x->m.at[i].barrier, i && i % 3 == 0);
  }
  free_steps(x);
}

// Tiles of a kernel without work-groups are shared out among so many items; other tiles are a change.
static void test_tiles(void **state) {
  (void)state;
  made *x = new_steps(3, seven);
  for (int i = 0; i < 3; i++) x->programs[i].global[0] = x->programs[i].local[0] = NULL;
  x->m.parts = 16;
  static const int64_t tiles[] = {100, 3, 0};
  for (int i = 0; i < 3; i++) x->steps[i].tiles = tiles[i];
  update(x, 1);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(x->m.at[i].groups[0], tiles[i] < 16 ? tiles[i] : 16);
    assert_int_equal(x->m.at[i].items[0], 1);
    assert_int_equal(x->m.at[i].empty, !tiles[i]);
    x->m.at[i].changed = x->m.at[i].stale = false;
  }
  x->steps[0].tiles = 99;
  update(x, 1);
  assert_true(x->m.at[0].changed && !x->m.at[0].stale);    // as many items as before
  assert_false(x->m.at[1].changed);
  free_steps(x);
}

// What every thread of a processor does for itself comes before those of its level that it shares memory with.
static void test_each(void **state) {
  (void)state;
  static char memory, other;
  made *x = new_steps(5, seven);
  x->steps[0].each = x->steps[1].each = true;
  x->ranges[0][0] = (remote_range){&memory, 0, 64, true};
  x->ranges[1][0] = (remote_range){&memory, 64, 128, true};
  x->ranges[2][0] = (remote_range){&other, 0, 64, false};
  x->ranges[3][1] = (remote_range){&memory, 32, 96, false};
  x->ranges[4][1] = (remote_range){&memory, 0, 64, false};
  update(x, 1);
  for (int i = 0; i < 5; i++) assert_int_equal(x->m.at[i].barrier, i == 3);
  free_steps(x);
}

static uop *random_groups(made *x, int i) {
  return i % 4 == 1 && i % 3 < 2 ? uop_op2(x->g, OP_IDIV, x->n, uop_idx(x->g, 100 * (i % 5 + 1))) : uop_idx(x->g, 7);
}

// Whether somewhere behind i, up to j, a command waits for all before it.
static bool parted(const made *x, int i, int j) {
  for (int k = i + 1; k <= j; k++) if (x->m.at[k].barrier && !x->m.at[k].empty) return true;
  return false;
}

static bool shares(const made *x, int i, int j) {
  for (int a = 0; a < 2; a++)
    for (int b = 0; b < 2; b++) {
      const remote_range *p = &x->ranges[i][a], *q = &x->ranges[j][b];
      if (p->memory == q->memory && (p->written || q->written) && p->from < q->to && q->from < p->to) return true;
    }
  return false;
}

// Whatever the plan: all that has to wait does, nothing else, and what is encoded is what was decided last.
static void test_random_plans(void **state) {
  (void)state;
  static char places[3];
  uint64_t seed = 1;
  for (int round = 0; round < 300; round++) {
    int n = 2 + (int)(rig_random(&seed) % (MOST - 2)), level = 0;
    made *x = new_steps(n, random_groups);
    bool encoded[MOST] = {false};
    for (int i = 0; i < n; i++) {
      bool first = i && rig_random(&seed) % 4 == 0;
      level += first;
      x->steps[i].level = level;
      x->steps[i].each = (!i || first || x->steps[i - 1].each) && rig_random(&seed) % 2;
      for (int r = 0; r < 2; r++) {
        uint64_t at = rig_random(&seed) % 8 * 16;
        x->ranges[i][r] = (remote_range){&places[rig_random(&seed) % 3], at, at + 16 + rig_random(&seed) % 32,
                                        rig_random(&seed) % 2};
      }
    }
    for (int run = 0; run < 4; run++) {
      update(x, (int64_t)(rig_random(&seed) % 700));
      int last = -1, waits = 0, needs = 0;
      for (int j = 0; j < n; j++) {
        const remote_command *c = &x->m.at[j];
        if (c->stale) encoded[j] = c->barrier;
        assert_int_equal(encoded[j], c->barrier);
        if (c->empty) { assert_false(c->barrier); continue; }
        bool need = last >= 0 && x->steps[last].level != x->steps[j].level;
        for (int i = 0; i < j; i++) {
          if (x->m.at[i].empty) continue;
          bool orders = x->steps[i].level != x->steps[j].level || (x->steps[i].each && shares(x, i, j));
          if (orders) assert_true(parted(x, i, j));
          need |= orders && !parted(x, i, j - 1);
        }
        waits += c->barrier;
        needs += need;
        last = j;
      }
      assert_int_equal(waits, needs);
      encode_all(x);
    }
    free_steps(x);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_variables), cmocka_unit_test(test_levels), cmocka_unit_test(test_empty),
    cmocka_unit_test(test_each),      cmocka_unit_test(test_random_plans), cmocka_unit_test(test_fixed),
    cmocka_unit_test(test_tiles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
