// The keeper: what it makes is what the process itself would make; what it is sent is input, whatever it is; and code
// is never taken from the other side.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/env.h"
#include "device/cache.h"
#include "device/tuning.h"
#include "device/keeper_wire.h"
#include "device/plan_impl.h"
#include "engine/engine.h"
#include "engine/evaluate.h"
#include "engine/schedules.h"

static char folder[] = "/tmp/weft-keeper-XXXXXX";

static int setup(void **state) {
  (void)state;
  bool made = mkdtemp(folder) != NULL;
  env_set(ENV_WEFT_CACHE, folder);
  return made ? 0 : -1;
}

static int teardown(void **state) {
  char command[64];
  (void)state;
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}


enum { PROMPT = 20, MUTANTS = 300, LONGEST = 1 << 20 };

// A prompt and a token of a model of this tree, into logits.
static float *answer(struct engine_stats *stats, size_t *n) {
  engine *e;
  error err = {0};
  const float *logits;
  int32_t ids[PROMPT + 1];
  for (int i = 0; i <= PROMPT; i++) ids[i] = 5 + i;
  if (engine_open(WEFT_SOURCE_DIR "/models/tinypy.gguf", &(struct engine_options){.n_ctx = 64, .n_threads = 2}, &e,
                  &err))
    fail_msg("%s", err.text);
  evaluate(e, ids, PROMPT, 0);
  logits = evaluate(e, ids + PROMPT, 1, PROMPT);
  *n = (size_t)engine_n_vocab(e) * sizeof *logits;
  float *copy = memcpy(malloc(*n), logits, *n);
  engine_stats(e, stats);
  engine_close(e);
  return copy;
}

static char *in_folder(const char *name) {
  char *path = malloc(128);
  snprintf(path, 128, "%s/%s", folder, name);
  return path;
}

// In the keeper: what it is asked to schedule becomes a file, for mutants.
static bool write_and_schedule(const device *d, graph *g, uop *sink, const void *how, size_t n, str *key, schedule *s) {
  str text = {0};
  char *name = in_folder("graph"), *other = in_folder("how");
  FILE *f = fopen(name, "wbe"), *h = fopen(other, "wbe");
  uop_print(&text, &sink, 1);
  if (f) { fwrite(text.at, 1, text.n, f); fclose(f); }
  if (h) { fwrite(how, 1, n, h); fclose(h); }
  str_free(&text);
  free(name), free(other);
  return schedules_from_text(d, g, sink, how, n, key, s);
}

struct seen { int n, kernels, fillings, schedules; };
static bool see_entry(const cache_entry *e, void *ctx) {
  struct seen *s = ctx;
  assert_true(e->sound);
  assert_string_equal(e->version, tuning_version());
  s->n++;
  s->fillings += !memcmp(e->key, "filling ", 8);
  s->schedules += !memcmp(e->key, "schedule ", 9);
  s->kernels += !memcmp(e->key, "layouts ", 8);
  return true;
}

static struct seen see_all(void) {
  struct seen s = {0};
  cache *c = cache_open(NULL, tuning_version());
  assert_null(cache_keeper(c));
  assert_int_equal(cache_each(c, see_entry, &s, NULL), 0);
  cache_close(c);
  return s;
}

// Without a cache, by a keeper, and from its cache: the same logits, and at last nothing is made.
static void makes_the_same(void **state) {
  struct engine_stats alone, cold, warm;
  size_t n;
  (void)state;
  env_set(ENV_WEFT_CACHE, "off");
  assert_false(keeper_start(NULL, NULL, schedules_from_text, 0));
  float *want = answer(&alone, &n);
  env_set(ENV_WEFT_CACHE, folder);
  assert_true(keeper_start(NULL, NULL, write_and_schedule, 0));
  float *got = answer(&cold, &n), *again = answer(&warm, &n);
  keeper_stop();
  assert_memory_equal(want, got, n);
  assert_memory_equal(want, again, n);
  assert_true(alone.kernels_compiled > 10 && alone.kernels_compiled == cold.kernels_compiled);
  assert_true(cold.plans_scheduled > 0);
  assert_int_equal(warm.kernels_compiled, 0);
  assert_int_equal(warm.plans_scheduled, 0);
  struct seen s = see_all();
  assert_int_equal(s.kernels + s.fillings, cold.kernels_compiled);
  assert_int_equal(s.schedules, cold.plans_scheduled);
  free(want), free(got), free(again);
}

// One that ends while it is needed: a warning, and the run goes on.
static void may_end(void **state) {
  struct engine_stats stats;
  size_t n;
  (void)state;
  assert_true(keeper_start(NULL, NULL, NULL, 0));
  cache *c = cache_open(NULL, tuning_version());
  assert_true(cache_is_on(c) && cache_keeper(c));
  char path[64], line[64] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
  FILE *f = fopen(path, "re");
  assert_true(f && fgets(line, sizeof line, f));
  fclose(f);
  assert_int_equal(kill(atoi(line), SIGKILL), 0);
  cache_put(c, "tuning x", 8, "y", 1);
  cache_close(c);
  free(answer(&stats, &n));
  assert_true(stats.kernels_compiled > 10);
  keeper_stop();
}

// ---- what is no request, or not to be granted -----------------------------------------------------------------------

typedef struct wire { int fd; device *d; str line; } wire;

static void send_socket(int over, int fd) {
  char space[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec byte = {"x", 1};
  struct msghdr m = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  *CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof fd);
  assert_int_equal(sendmsg(over, &m, 0), 1);
  close(fd);
}

static int new_socket(int over) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  send_socket(over, pair[1]);
  return pair[0];
}

static bool send_request(wire *w, struct keeper_request q, const void *parts[KEEPER_PARTS], bytes *answer) {
  struct keeper_reply r;
  q.magic = KEEPER_MAGIC;
  if (send(w->fd, &q, sizeof q, MSG_NOSIGNAL) != sizeof q) return false;
  for (int i = 0; i < KEEPER_PARTS; i++)
    if (q.part[i] && send(w->fd, parts[i], q.part[i], MSG_NOSIGNAL) != (ssize_t)q.part[i]) return false;
  if (recv(w->fd, &r, sizeof r, MSG_WAITALL) != sizeof r) return false;
  *answer = (bytes){malloc(r.n + 1), r.n};
  return (!r.n || recv(w->fd, answer->at, r.n, MSG_WAITALL) == (ssize_t)r.n) && r.granted;
}

static bool grants(wire *w, enum keeper_want want, const char *a, const char *b, const char *c, bool opts) {
  const void *parts[] = {a, b, c};
  bytes answer = {0};
  struct keeper_request q = {
    .want = want, .has_opts = opts, .part = {(uint32_t)strlen(a), (uint32_t)strlen(b), (uint32_t)strlen(c)}};
  q.machine = (struct keeper_machine){w->d->target.has_streams, w->d->target.distance, w->d->target.distance_of_tile};
  bool granted = send_request(w, q, parts, &answer);
  free(answer.at);
  return granted;
}

static char *first_kernel;             // its IR
static bool find_kernel(const cache_entry *e, void *ctx) {
  (void)ctx;
  if (memcmp(e->key, "layouts ", 8)) return true;
  const char *at = memchr(e->key, '\n', e->key_n), *end = memmem(e->key, e->key_n, "\ncompiler ", 10);
  if (!end) end = (const char *)e->key + e->key_n - 1;
  first_kernel = strndup(at + 1, (size_t)(end - at));
  return false;
}

// A kernel that stores to one place over n loops of 2.
static char *many_loops(int n, const char *axis) {
  str s = {0};
  str_addf(&s, "%%0 = PARAM.f32 [0 2 temp]\n%%1 = CONST.idx 2\n");
  for (int i = 0; i < n; i++) str_addf(&s, "%%%d = RANGE.idx %%1 [%d %s]\n", 2 + i, i, axis);
  str_addf(&s, "%%%d = INDEX.f32 %%0 %%2\n%%%d = CONST.f32 1\n%%%d = STORE %%%d %%%d", n + 2, n + 3, n + 4, n + 2,
           n + 3);
  for (int i = 0; i < n; i++) str_addf(&s, " %%%d", 2 + i);
  str_addf(&s, "\n%%%d = SINK %%%d\n", n + 5, n + 4);
  char *text = strdup(str_c(&s));
  str_free(&s);
  return text;
}

// What no schedule has: more loops than passes have room for, loops of a device, several stores.
static void refuse_what_nobody_schedules(wire *w) {
  static const char two[] = "%0 = PARAM.f32 [0 2 temp]\n%1 = CONST.idx 2\n%2 = RANGE.idx %1 [0 LOOP]\n"
                            "%3 = INDEX.f32 %0 %2\n%4 = CONST.f32 1\n%5 = STORE %3 %4 %2\n%6 = CONST.f32 2\n"
                            "%7 = STORE %3 %6 %2\n%8 = SINK %5 %7\n";
  const struct { int n; const char *axis; bool fine; } cases[] = {
    {1, "LOOP", true},    {3, "LOOP", true},    {49, "LOOP", false},   {63, "LOOP", false}, {200, "LOOP", false},
    {1, "GLOBAL", false}, {1, "UNROLL", false}, {1, "UPCAST", false}, {2, "LOCAL", false}};
  const char *line = str_c(&w->line);
  for (size_t i = 0; i < COUNT(cases); i++) {
    char *text = many_loops(cases[i].n, cases[i].axis);
    bool granted = grants(w, KEEPER_KERNEL, line, text, "", false);
    if (granted != cases[i].fine) fail_msg("%d loops of %s: %d", cases[i].n, cases[i].axis, granted);
    assert_true(granted || !grants(w, KEEPER_KERNEL, line, text, "UNROLL(0, 2)", true));
    free(text);
  }
  assert_false(grants(w, KEEPER_KERNEL, line, two, "", false));
}

static void takes_no_code(void **state) {
  wire w;
  error err = {0};
  int pair[2];
  (void)state;
  cache *c = cache_open(NULL, tuning_version());
  assert_int_equal(cache_each(c, find_kernel, NULL, NULL), 0);
  cache_close(c);
  assert_non_null(first_kernel);
  assert_int_equal(device_open_named("CPU", 1, 0, &w.d, &err), 0);
  w.line = (str){0};
  plan_machine(w.d, &w.line);
  struct seen before = see_all();
  // serves one socket, as a thread of the keeper does
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  pid_t child = fork();
  if (!child) { close(pair[0]); keeper_serve(pair[1], schedules_from_text, 1); }
  int over = pair[0];
  close(pair[1]);
  w.fd = new_socket(over);
  str forged = {0};
  str_addf(&forged, "%s%s", str_c(&w.line), first_kernel);
  const char *const refused[] = {str_c(&forged), "filling x", "schedule x", "", "tunin", "kernel"};
  for (size_t i = 0; i < COUNT(refused); i++) assert_false(grants(&w, KEEPER_PUT, refused[i], "code", "", false));
  assert_true(grants(&w, KEEPER_PUT, "tuning x", "heuristic", "", false));
  const char *line = str_c(&w.line);
  assert_true(grants(&w, KEEPER_OPEN, "", "", "", false));
  assert_true(grants(&w, KEEPER_KERNEL, line, first_kernel, "", false));
  assert_false(grants(&w, KEEPER_KERNEL, "another machine\n", first_kernel, "", false));
  assert_false(grants(&w, KEEPER_KERNEL, line, first_kernel, "not a list", true));
  assert_false(grants(&w, KEEPER_KERNEL, line, "", "", false));
  assert_false(grants(&w, KEEPER_KERNEL, line, "%0 = CONST.i32 1", "", false));
  assert_false(grants(&w, KEEPER_SCHEDULE, line, first_kernel, "", false));
  assert_false(grants(&w, KEEPER_SCHEDULE, line, "", "\1", false));
  assert_false(grants(&w, KEEPER_SCHEDULE, "", "x", "x", false));
  refuse_what_nobody_schedules(&w);
  assert_true(grants(&w, KEEPER_FLUSH, "", "", "", false));
  struct keeper_request q = {.want = KEEPER_WANTS};            // the end of this socket
  assert_false(send_request(&w, q, NULL, &(bytes){0}));
  close(w.fd);
  close(over);
  waitpid(child, NULL, 0);
  struct seen after = see_all();
  assert_int_equal(after.kernels, before.kernels + 2);            // two of many_loops
  assert_int_equal(after.fillings, before.fillings);
  assert_int_equal(after.schedules, before.schedules);
  assert_int_equal(after.n, before.n + 3);
  str_free(&w.line);
  str_free(&forged);
  device_close(w.d);
}

// ---- more than a run may ask for ------------------------------------------------------------------------------------

static int64_t kb_of(pid_t process, const char *name) {
  char path[64], line[128];
  int64_t kb = -1;
  snprintf(path, sizeof path, "/proc/%d/status", process);
  FILE *f = fopen(path, "re");
  while (f && kb < 0 && fgets(line, sizeof line, f))
    if (!strncmp(line, name, strlen(name))) kb = atoll(line + strlen(name));
  if (f) fclose(f);
  return kb;
}

// A client that is an attacker's fills neither the disk nor memory: 100 MB of tunings, a long one, and 20 requests of
// 60 MB each that do not end.
static void has_room_for_a_run(void **state) {
  enum { VALUE = 1 << 20, PUTS = 100, HALVES = 20, PART = 60 << 20 };
  int pair[2], taken = 0, fds[HALVES];
  size_t sent[HALVES] = {0};
  char key[32], *value = calloc(1, VALUE + 2), *zeros = calloc(1, PART);
  bytes answer;
  (void)state;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  pid_t child = fork();
  if (!child) { close(pair[0]); keeper_serve(pair[1], schedules_from_text, 1); }
  close(pair[1]);
  wire w = {.fd = new_socket(pair[0])};
  for (int i = 0; i < PUTS; i++) {
    struct keeper_request q = {.want = KEEPER_PUT,
                               .part = {(uint32_t)snprintf(key, sizeof key, "tuning %d", i), VALUE}};
    taken += send_request(&w, q, (const void *[]){key, value, ""}, &answer);
    free(answer.at);
  }
  assert_in_range(taken, 60, 64);
  struct keeper_request long_one = {.want = KEEPER_PUT, .part = {8, VALUE + 1}};
  assert_false(send_request(&w, long_one, (const void *[]){"tuning x", value, ""}, &answer));
  free(answer.at);
  struct keeper_request last = {.want = KEEPER_GET, .part = {8}};
  assert_true(send_request(&w, last, (const void *[]){"tuning 7", "", ""}, &answer));
  assert_int_equal(answer.n, VALUE);
  free(answer.at);
  close(w.fd);
  int64_t before = kb_of(child, "VmHWM:");
  for (int i = 0; i < HALVES; i++) {
    struct keeper_request q = {KEEPER_MAGIC, .want = KEEPER_KERNEL, .part = {PART, PART, PART}};
    assert_int_equal(send(fds[i] = new_socket(pair[0]), &q, sizeof q, MSG_NOSIGNAL), sizeof q);
  }
  for (int quiet = 0; quiet < 20; usleep(10000), quiet++)
    for (int i = 0; i < HALVES; i++) {
      ssize_t n = send(fds[i], zeros, PART - sent[i], MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) { sent[i] += (size_t)n; quiet = 0; }
    }
  size_t all = 0;
  for (int i = 0; i < HALVES; i++) all += sent[i];
  assert_true(all > PART / 2);
  int64_t peak = kb_of(child, "VmHWM:");
  if (peak < 0 || peak - before > (256 << 10))
    fail_msg("%lld kB more after %zu bytes", (long long)(peak - before), all);
  for (int i = 0; i < HALVES; i++) close(fds[i]);
  close(pair[0]);
  waitpid(child, NULL, 0);
  free(value);
  free(zeros);
}

// ---- texts that are nearly right ------------------------------------------------------------------------------------

static uint64_t dice = 1;
static size_t roll(size_t n) { return (size_t)(hash_u64(dice++, 7) % n); }

// Some numbers, names and lines of a text change places or values.
static str mutate(const char *text, size_t n) {
  static const char *const numbers[] = {
    "-1", "0", "1", "7", "4096", "2147483648", "9223372036854775807", "-4294967295"};
  str out = {0};
  str_addn(&out, text, n);
  for (size_t i = 0, times = 1 + roll(3); i < times; i++) {
    str next = {0};
    size_t at = roll(out.n), len = strspn(out.at + at, "0123456789");
    if (roll(4)) {
      while (at < out.n && !(len = strspn(out.at + at, "0123456789"))) at++;
      str_addn(&next, out.at, at);
      if (roll(2)) str_add(&next, numbers[roll(COUNT(numbers))]);
      else str_addf(&next, "%zu", roll(64));
    } else {                                                   // a piece from elsewhere, over this one
      size_t from = roll(out.n), size = roll(24);
      size = size < out.n - from ? size : out.n - from;
      str_addn(&next, out.at, at);
      str_addn(&next, out.at + from, size);
      len = size < out.n - at ? size : out.n - at;
    }
    if (at + len < out.n) str_addn(&next, out.at + at + len, out.n - at - len);
    str_free(&out);
    out = next;
  }
  return out;
}

static int no_compiler(device *d, device_kernel *k, error *err) {
  (void)d, (void)err;
  k->packed = (bytes){calloc(1, 1), 1};
  return 0;
}

// What a process of its own makes of a mutant: the keeper may say no, or be out of memory; no signal ends it.
static bool is_taken(bool (*fn)(const void *ctx), const void *ctx) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    for (int sig = 1; sig < 32; sig++) signal(sig, SIG_DFL);
    alarm(60);
    _exit(fn(ctx) ? 42 : 43);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  bool ended = WIFEXITED(status) && (WEXITSTATUS(status) == 1 || WEXITSTATUS(status) / 2 == 21);
  if (!ended) fail_msg("mutant %llu: status %x", (unsigned long long)dice, (unsigned)status);
  return WEXITSTATUS(status) == 42;
}

struct mutants { device *d; int made, tried; };
struct mutant { device *d; struct plan_text of; };

static bool make_kernel(const void *ctx) {
  const struct mutant *m = ctx;
  str key = {0}, entry = {0};
  bool made = !plan_make_entry(m->d, &m->of, &key, &entry, &(double){0}, NULL);
  str_free(&key), str_free(&entry);
  return made;
}
static bool make_plan(const void *ctx) {
  str key = {0}, entry = {0};
  bool made = keeper_schedule(ctx, &key, &entry);
  str_free(&key), str_free(&entry);
  return made;
}

// Entries are copied first: processes of their own must not have the database open.
struct text { str ir; bool filling; };
static VEC(struct text) texts;

static bool note_text(const cache_entry *e, void *ctx) {
  bool filling = !memcmp(e->key, "filling ", 8);
  (void)ctx;
  if (!filling && memcmp(e->key, "layouts ", 8)) return true;
  const char *at = memchr(e->key, '\n', e->key_n), *end = memmem(e->key, e->key_n, "\ncompiler ", 10);
  struct text t = {.filling = filling};
  str_addn(&t.ir, at + 1, (size_t)(end ? end - at : (const char *)e->key + e->key_n - 1 - at));
  vec_push(&texts, t);
  return true;
}

static int by_text(const void *x, const void *y) {
  const struct text *a = x, *b = y;
  return strcmp(a->ir.at, b->ir.at);
}

static void try_mutants_of(struct mutants *all, const struct text *t) {
  for (int i = 0; i < MUTANTS / 20; i++) {
    str ir = mutate(t->ir.at, t->ir.n);
    const struct mutant m = {all->d, {ir.at, ir.n, i % 3 ? NULL : "LAYOUT(0, 1) UNROLL(0, 4)", t->filling}};
    all->made += is_taken(make_kernel, &m);
    all->tried++;
    str_free(&ir);
  }
}

static void any_kernel(void **state) {
  struct mutants all = {0};
  error err = {0};
  (void)state;
  assert_int_equal(device_open_named("CPU", 1, 0, &all.d, &err), 0);
  all.d->compile = no_compiler;
  cache *c = cache_open(NULL, tuning_version());
  assert_int_equal(cache_each(c, note_text, NULL, NULL), 0);
  cache_close(c);
  cache_close(all.d->cache);
  all.d->cache = NULL;
  qsort(texts.at, texts.n, sizeof *texts.at, by_text);         // the same mutants in each run
  for (size_t i = 0; i < texts.n; i++) { try_mutants_of(&all, &texts.at[i]); str_free(&texts.at[i].ir); }
  vec_free(&texts);
  device_close(all.d);
  print_message("%d mutants of kernels, of which %d are kernels\n", all.tried, all.made);
  assert_true(all.tried > MUTANTS && all.made > 0 && all.made < all.tried);
}

static bytes read_made(const char *name) {
  char *path = in_folder(name);
  FILE *f = fopen(path, "rbe");
  assert_non_null(f);
  bytes b = {malloc(LONGEST), 0};
  b.n = fread(b.at, 1, LONGEST, f);
  assert_true(b.n && b.n < LONGEST);
  fclose(f);
  free(path);
  return b;
}

static void any_graph(void **state) {
  device *d;
  error err = {0};
  int made = 0;
  (void)state;
  assert_int_equal(device_open_named("CPU", 1, 0, &d, &err), 0);
  cache_close(d->cache);
  d->cache = NULL;
  bytes text = read_made("graph"), how = read_made("how");
  for (int i = -1; i < MUTANTS / 5; i++) {
    str changed = {0};
    if (i < 0) str_addn(&changed, text.at, text.n);
    else changed = mutate((const char *)text.at, text.n);
    const struct keeper_graph of = {
      d, schedules_from_text, {(uint8_t *)changed.at, changed.n}, {how.at, i % 8 ? how.n : roll(how.n)}};
    bool is_one = is_taken(make_plan, &of);
    assert_true(is_one || i >= 0);
    made += is_one;
    str_free(&changed);
  }
  print_message("%d mutants of a graph, of which %d have a schedule\n", MUTANTS / 5, made - 1);
  free(text.at), free(how.at);
  device_close(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(makes_the_same), cmocka_unit_test(takes_no_code),
                                     cmocka_unit_test(any_kernel), cmocka_unit_test(any_graph),
                                     cmocka_unit_test(may_end), cmocka_unit_test(has_room_for_a_run)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
