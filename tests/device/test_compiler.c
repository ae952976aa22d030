// The process that compiles: the same code as inside, and whatever happens to it is the error of a request at most.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "device/compiler.h"
#include "device/cpu_info.h"

static cpu_target machine;
static const char ir[] =
  "define void @f(ptr %p) {\n  %x = load i32, ptr %p\n  %y = mul i32 %x, 7\n  store i32 %y, ptr %p\n  ret void\n}\n";

static int setup(void **state) {
  (void)state;
  error err = {0};
  return cpu_target_from_env(&machine, &err);
}

static int run(compiler *c, const char *text, bytes *object, str *assembly, error *err) {
  return compiler_run(c, text, machine.cpu, machine.features, object, assembly, err);
}

static void the_same_as_inside(void **state) {
  (void)state;
  compiler *c = compiler_new(2, 10);
  assert_int_equal(compiler_process(c), 0);
  bytes there, here;
  str there_text = {0}, here_text = {0};
  error err = {0}, inside = {0};
  if (run(c, ir, &there, &there_text, &err)) fail_msg("%s", err.text);
  assert_false(llvm_is_loaded());                             // here
  assert_true(compiler_process(c) > 0);
  assert_int_equal(llvm_compile(ir, machine.cpu, machine.features, &here, &here_text, &err), 0);
  assert_int_equal(there.n, here.n);
  assert_memory_equal(there.at, here.at, here.n);
  assert_string_equal(str_c(&there_text), str_c(&here_text));
  bytes_free(&there); bytes_free(&here);
  str_free(&there_text); str_free(&here_text);
  assert_int_equal(run(c, "define what", &there, NULL, &err), -1);
  assert_null(there.at);
  assert_int_equal(llvm_compile("define what", machine.cpu, machine.features, &here, NULL, &inside), -1);
  assert_string_equal(err.text, inside.text);
  compiler_free(c);
}

static void ends_when_idle_and_comes_back(void **state) {
  (void)state;
  compiler *c = compiler_new(1, 0.05);
  bytes object;
  error err = {0};
  compiler_wake(c);
  for (int i = 0; i < 3; i++) {
    if (run(c, ir, &object, NULL, &err)) fail_msg("%s", err.text);
    bytes_free(&object);
    long child = compiler_process(c);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);      // it ends by itself
    assert_int_equal(info.si_code, CLD_EXITED);
    assert_int_equal(info.si_status, 0);
  }
  compiler_free(c);
}

struct job { compiler *c; int bad; };

static void *compile_many(void *p) {
  struct job *j = p;
  for (int i = 0; i < 12; i++) {
    bytes object;
    error err = {0};
    bool wrong = i % 3 == 2;
    int r = run(j->c, wrong ? "define what" : ir, &object, NULL, &err);
    if (wrong ? !r || !strstr(err.text, "parse") : r) j->bad++;
    bytes_free(&object);
  }
  return NULL;
}

static void threads_share_it(void **state) {
  (void)state;
  compiler *c = compiler_new(3, 10);
  pthread_t id[8];
  struct job j[8];
  // The address sanitizer's allocator does not survive a fork while another thread allocates: its locks stay locked in
  // the child, which then waits for ever. So here the child is there before the threads.
  compiler_wake(c);
  for (int i = 0; i < 8; i++) {
    j[i] = (struct job){c, 0};
    assert_int_equal(pthread_create(&id[i], NULL, compile_many, &j[i]), 0);
  }
  for (int i = 0; i < 8; i++) { pthread_join(id[i], NULL); assert_int_equal(j[i].bad, 0); }
  compiler_free(c);
}

// Each compile ends, well or with a sentence, whenever the child is killed; and once nobody kills it any more they
// end well.
static atomic_bool stop;
static void *kill_it(void *p) {
  while (!atomic_load(&stop)) {
    long child = compiler_process(p);
    usleep(3000);
    if (child > 0) kill((pid_t)child, SIGKILL);
  }
  return NULL;
}

static void killed_at_any_moment(void **state) {
  (void)state;
  compiler *c = compiler_new(2, 10);
  pthread_t id;
  atomic_store(&stop, false);
  assert_int_equal(pthread_create(&id, NULL, kill_it, c), 0);
  int failed = 0;
  for (int i = 0; i < 20 || (!failed && i < 2000); i++) {      // a busy machine lets the other thread wait
    bytes object;
    error err = {0};
    if (run(c, ir, &object, NULL, &err)) {
      failed++;
      assert_non_null(strstr(err.text, "signal 9"));
    }
    bytes_free(&object);
  }
  atomic_store(&stop, true);
  pthread_join(id, NULL);
  assert_true(failed > 0);
  bytes object;
  error err = {0};
  if (run(c, ir, &object, NULL, &err)) fail_msg("%s", err.text);
  bytes_free(&object);
  compiler_free(c);
}

static void no_memory_is_an_error(void **state) {
  (void)state;
#ifdef WEFT_SANITIZE
  skip();
#endif
  bytes object;
  error err = {0};
  compiler *c = compiler_new(1, 10);
  struct rlimit before, little = {300 << 20, 0};            // for the program and LLVM, and a little more
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  little.rlim_max = before.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
  str big = {0};                                            // many functions, in one module
  for (int i = 0; i < 60000; i++)
    str_addf(&big, "define void @f%d(ptr %%p) {\n  store i32 %d, ptr %%p\n  ret void\n}\n", i, i);
  int r = run(c, str_c(&big), &object, NULL, &err);
  setrlimit(RLIMIT_AS, &before);
  assert_int_equal(r, -1);
  if (!strstr(err.text, "memory")) fail_msg("%s", err.text);
  error later = {0};
  compiler_free(c);
  c = compiler_new(1, 10);
  if (run(c, ir, &object, NULL, &later)) fail_msg("%s", later.text);
  bytes_free(&object);
  str_free(&big);
  compiler_free(c);
}

static int count_files(long process) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/fd", process);
  DIR *d = opendir(path);
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
  if (d) closedir(d);
  return n;
}

static void it_has_nothing_but_its_sockets(void **state) {
  (void)state;
  int open_files[5];
  for (size_t i = 0; i < COUNT(open_files); i++) open_files[i] = open("/proc/self/maps", O_RDONLY);
  compiler *c = compiler_new(3, 10);
  bytes object;
  error err = {0};
  if (run(c, ir, &object, NULL, &err)) fail_msg("%s", err.text);
  bytes_free(&object);
  long child = compiler_process(c);
  assert_int_equal(count_files(child), 3 + 3);               // and /dev/null in the three standard places
#ifndef WEFT_SANITIZE
  char path[64], text[4096], *at;
  snprintf(path, sizeof path, "/proc/%ld/status", child);
  FILE *f = fopen(path, "r");
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  assert_non_null(at = strstr(text, "\nSeccomp:\t"));
  assert_int_equal(at[10], '2');
  assert_non_null(strstr(text, "NoNewPrivs:\t1"));
  snprintf(path, sizeof path, "/proc/%ld/maps", child);
  f = fopen(path, "r");
  for (char line[512]; fgets(line, sizeof line, f);) assert_null(strstr(line, " rwx"));
  fclose(f);
#endif
  for (size_t i = 0; i < COUNT(open_files); i++) close(open_files[i]);
  compiler_free(c);
  assert_int_equal(kill((pid_t)child, 0), -1);               // gone, and waited for
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_same_as_inside),
    cmocka_unit_test(ends_when_idle_and_comes_back),
    cmocka_unit_test(threads_share_it),
    cmocka_unit_test(killed_at_any_moment),
    cmocka_unit_test(no_memory_is_an_error),
    cmocka_unit_test(it_has_nothing_but_its_sockets),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
