// The runtime of devices with memory of their own (device/remote.h), called by several threads at once: the driver has
// one caller at a time, and it is the one in whose turn the call is. Every function of the table is called.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "base/attempt.h"
#include "device/remote.h"

enum { THREADS = 4, ROUNDS = 200, PIECE = 64 };

typedef struct fake_state {
  device d;
  remote r;
  atomic_int inside;
  atomic_long calls, beside, out_of_turn;    // beside: while another thread was in a call
  atomic_int kernels;                        // loaded
  atomic_int there;
} fake_state;

// Each of the driver's functions begins and ends with these.
static void begin_call(fake_state *f) {
  f->calls++;
  if (atomic_fetch_add(&f->inside, 1)) f->beside++;
  if (!turn_is_mine(&f->r.turn)) f->out_of_turn++;
  sched_yield();
}
static void end_call(fake_state *f) { atomic_fetch_sub(&f->inside, 1); }

static void *fake_make(void *state, uint64_t size, enum remote_use use, error *err) {
  (void)use; (void)err;
  begin_call(state);
  void *made = xcalloc(size, 1);
  end_call(state);
  return made;
}

static void fake_drop(void *state, void *memory) {
  begin_call(state);
  free(memory);
  end_call(state);
}

static int fake_put(void *state, void *to, uint64_t at, const void *from, uint64_t n, error *err) {
  (void)err;
  begin_call(state);
  memcpy((unsigned char *)to + at, from, n);
  end_call(state);
  return 0;
}

static int fake_get(void *state, void *to, void *from, uint64_t at, uint64_t n, error *err) {
  (void)err;
  begin_call(state);
  memcpy(to, (unsigned char *)from + at, n);
  end_call(state);
  return 0;
}

static int fake_copy(void *state, void *to, uint64_t to_at, void *from, uint64_t from_at, uint64_t n, error *err) {
  (void)err;
  begin_call(state);
  memmove((unsigned char *)to + to_at, (unsigned char *)from + from_at, n);
  end_call(state);
  return 0;
}

static int fake_fill(void *state, void *memory, uint64_t at, unsigned char value, uint64_t n, error *err) {
  (void)err;
  begin_call(state);
  memset((unsigned char *)memory + at, value, n);
  end_call(state);
  return 0;
}

static int fake_wait(void *state, error *err) {
  (void)err;
  begin_call(state);
  end_call(state);
  return 0;
}

static uint64_t fake_room(void *state) {
  begin_call(state);
  end_call(state);
  return PIECE;
}

static int fake_load(void *state, device_kernel *k, int n_bufs, error *err) {
  (void)n_bufs; (void)k; (void)err;
  begin_call(state);
  ((fake_state *)state)->kernels++;
  end_call(state);
  return 0;
}

static int fake_record(void *state, remote_plan *r, error *err) {
  (void)r; (void)err;
  begin_call(state);
  end_call(state);
  return 0;
}

static void fake_forget(void *state, remote_plan *r) {
  (void)r;
  begin_call(state);
  end_call(state);
}

static int fake_run(void *state, remote_plan *r, double (*spans)[2], error *err) {
  (void)r; (void)spans; (void)err;
  begin_call(state);
  end_call(state);
  return 0;
}

static const remote_driver fake_driver = {.name = "fake", .make = fake_make, .drop = fake_drop, .put = fake_put,
                                          .get = fake_get, .copy = fake_copy, .fill = fake_fill, .wait = fake_wait,
                                          .room = fake_room, .load = fake_load, .record = fake_record,
                                          .forget = fake_forget, .run = fake_run};

static fake_state *fake_new(void) {
  fake_state *f = xcalloc(1, sizeof *f);
  f->d.process = getpid();
  remote_start(&f->d, &f->r, &fake_driver, f);
  return f;
}

static void fake_free(fake_state *f) {
  assert_int_equal(f->r.areas.n, 0);
  remote_free(&f->r);
  free(f);
}

static int wrong_bytes(const unsigned char *at, unsigned char is, size_t n) {
  int wrong = 0;
  for (size_t i = 0; i < n; i++) wrong += at[i] != is;
  return wrong;
}

static int use_memory(device *d, unsigned char mark) {
  unsigned char here[PIECE], back[PIECE];
  error e = {0};
  memset(here, mark, sizeof here);
  unsigned char *a = device_alloc(d, PIECE, PAGES_PLAIN, &e), *b = device_alloc(d, PIECE, PAGES_PLAIN, &e);
  if (!a || !b) return 1;
  device_write(d, a, here, PIECE);
  device_fill(d, b, (unsigned char)~mark, PIECE);
  device_copy(d, b, a, PIECE / 2);
  device_hold(d);
  device_read(d, back, b, PIECE / 2);
  device_read(d, back + PIECE / 2, b + PIECE / 2, PIECE / 2);
  device_let_go(d);
  device_release(d, a, PIECE);
  device_release(d, b, PIECE);
  return wrong_bytes(back, mark, PIECE / 2) + wrong_bytes(back + PIECE / 2, (unsigned char)~mark, PIECE / 2) +
         (device_room(d) != PIECE) + device_check(d, &e);
}

static int use_plans(device *d) {
  program text = {.n_bufs = 1};
  device_kernel k[2] = {{.p = &text, .packed = {xmalloc(1), 1}}, {.p = &text}};
  plan p = {.d = d, .n_threads = 1};
  plan_times times = {0};
  unsigned char byte = 1;
  error e = {0};
  int bad = !d->run->take(d, &k[0], 1);
  bad += d->run->link(d, k, 2, NULL, &e) != 0;
  bad += d->run->record(&p, &e) || d->run->replay(&p, &e) || d->run->replay_timed(&p, &times, &e);
  d->run->forget(&p);
  unsigned char *at = device_alloc(d, PIECE, PAGES_PLAIN, &e);
  bad += !at || d->run->pack_weight(&p, NULL, at, &byte, 1, 0, 1, &e);
  device_release(d, at, PIECE);
  free(p.marks);
  return bad;
}

static void *use_all(void *ctx) {
  fake_state *f = ctx;
  int number = atomic_fetch_add(&f->there, 1), bad = 0;
  while (f->there < THREADS) sched_yield();
  for (int i = 0; i < ROUNDS; i++) bad += use_memory(&f->d, (unsigned char)(number + 1)) + use_plans(&f->d);
  return (void *)(intptr_t)bad;
}

static void one_caller_at_a_time(void **state) {
  (void)state;
  fake_state *f = fake_new();
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, use_all, f), 0);
  for (int i = 0; i < THREADS; i++) {
    void *bad = f;
    pthread_join(threads[i], &bad);
    assert_null(bad);
  }
  assert_int_equal(f->kernels, 3 * THREADS * ROUNDS);
  assert_true(f->calls > 20 * THREADS * ROUNDS);
  assert_int_equal(f->out_of_turn, 0);
  assert_int_equal(f->beside, 0);
  fake_free(f);
}

// Every function that the table may have is there, so that use_all calls them all.
static void all_are_called(void **state) {
  (void)state;
  const runtime *r = &remote_runtime;
  void *rows[sizeof *r / sizeof(void *)];
  assert_false(r->here);
  memcpy(rows, r, sizeof *r);
  for (size_t i = 1; i < COUNT(rows); i++) assert_non_null(rows[i]);
  assert_int_equal(COUNT(rows), 17);         // `here`, and 16 functions, of which use_memory and use_plans call each
}

static void read_elsewhere(void *ctx) {
  fake_state *f = ctx;
  unsigned char byte;
  device_hold(&f->d);
  device_read(&f->d, &byte, f, 1);           // no memory of the device: an invariant
}

static void *fill_once(void *ctx) {
  fake_state *f = ctx;
  return (void *)(intptr_t)use_memory(&f->d, 7);
}

// What breaks in a turn ends it: the others go on.
static void a_fault_ends_the_turn(void **state) {
  (void)state;
  fake_state *f = fake_new();
  error e = {0};
  pthread_t other;
  void *bad = f;
  assert_int_equal(attempt(ATTEMPT_LEAVES, read_elsewhere, f, &e), -1);
  assert_non_null(strstr(e.text, "are not the device's"));
  assert_false(turn_is_mine(&f->r.turn));
  assert_int_equal(pthread_create(&other, NULL, fill_once, f), 0);
  pthread_join(other, &bad);
  assert_null(bad);
  fake_free(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_caller_at_a_time), cmocka_unit_test(all_are_called),
                                     cmocka_unit_test(a_fault_ends_the_turn)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
