// From IR text to a function that runs: llvm.h, elf.h and code.h together, and what each of them must refuse.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <elf.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "device/cpu_info.h"
#include "device/elf.h"
#include "device/llvm.h"
#include "render/render.h"

static cpu_target machine;

static int setup(void **state) {
  (void)state;
  error err = {0};
  return cpu_target_from_env(&machine, &err);
}

// dot(x, y, n) with a vector loop, a constant table that it reads, and a switch that becomes a jump table.
static const char dot_ir[] = "@table = private constant [8 x float] [float 1.0, float 2.0, float 3.0, float 4.0, float "
                             "5.0, float 6.0, float 7.0, float 8.5]\n"
                             "define float @dot(ptr noalias %x, ptr noalias %y, i64 %n) {\n"
                             "entry:\n  br label %loop\n"
                             "loop:\n"
                             "  %i = phi i64 [0, %entry], [%i.next, %loop]\n"
                             "  %acc = phi <8 x float> [zeroinitializer, %entry], [%acc.next, %loop]\n"
                             "  %xp = getelementptr float, ptr %x, i64 %i\n"
                             "  %yp = getelementptr float, ptr %y, i64 %i\n"
                             "  %a = load <8 x float>, ptr %xp, align 4\n"
                             "  %b = load <8 x float>, ptr %yp, align 4\n"
                             "  %p = fmul <8 x float> %a, %b\n"
                             "  %acc.next = fadd <8 x float> %acc, %p\n"
                             "  %i.next = add i64 %i, 8\n"
                             "  %more = icmp ult i64 %i.next, %n\n"
                             "  br i1 %more, label %loop, label %done\n"
                             "done:\n"
                             "  %t = load <8 x float>, ptr @table, align 16\n"
                             "  %w = fmul <8 x float> %acc.next, %t\n"
                             "  %s = call float @llvm.vector.reduce.fadd.v8f32(float -0.0, <8 x float> %w)\n"
                             "  ret float %s\n}\n"
                             "declare float @llvm.vector.reduce.fadd.v8f32(float, <8 x float>)\n"
                             "define i32 @choose(i32 %k, i32 %v) {\n"
                             "  switch i32 %k, label %other [ i32 0, label %c0  i32 1, label %c1  i32 2, label %c2  "
                             "i32 3, label %c3  i32 4, label %c4  i32 5, label %c5 ]\n"
                             "c0:\n  %r0 = add i32 %v, 7\n  ret i32 %r0\n"
                             "c1:\n  %r1 = mul i32 %v, %v\n  ret i32 %r1\n"
                             "c2:\n  %r2 = xor i32 %v, 91\n  ret i32 %r2\n"
                             "c3:\n  %r3 = shl i32 %v, 3\n  ret i32 %r3\n"
                             "c4:\n  %r4 = call i32 @helper(i32 %v)\n  ret i32 %r4\n"
                             "c5:\n  %r5 = sub i32 0, %v\n  ret i32 %r5\n"
                             "other:\n  ret i32 -1\n}\n"
                             "define internal i32 @helper(i32 %v) noinline {\n  %a = mul i32 %v, 3\n  ret i32 %a\n}\n";

typedef float dot_fn(const float *, const float *, int64_t);
typedef int32_t choose_fn(int32_t, int32_t);

static void make(const char *ir, const char *cpu, const char *features, code_blob *blob) {
  error err = {0};
  bytes object;
  if (llvm_compile(ir, cpu, features, &object, NULL, &err)) fail_msg("%s", err.text);
  if (elf_link(object.at, object.n, blob, &err)) fail_msg("%s", err.text);
  bytes_free(&object);
}

static void check_image(const code_image *c, size_t blob) {
  dot_fn *dot = (dot_fn *)code_find(c, blob, "dot");
  choose_fn *choose = (choose_fn *)code_find(c, blob, "choose");
  assert_non_null(dot);
  assert_non_null(choose);
  assert_null(code_find(c, blob, "helper"));
  static const float table[8] = {1, 2, 3, 4, 5, 6, 7, 8.5f};
  float x[64], y[64], acc[8] = {0}, want = 0;
  for (int i = 0; i < 64; i++) { x[i] = (float)(i * 37 % 19) - 9; y[i] = (float)(i * 11 % 23) / 8; }
  for (int i = 0; i < 64; i++) acc[i % 8] += x[i] * y[i];
  for (int i = 0; i < 8; i++) want += acc[i] * table[i];
  assert_float_equal(dot(x, y, 64), want, 0);
  static const int32_t wanted[] = {17, 100, 0xa ^ 91, 80, 30, -10, -1, -1};
  for (int32_t k = 0; k < 8; k++) assert_int_equal(choose(k, 10), wanted[k]);
}

static void runs_what_it_compiled(void **state) {
  (void)state;
  error err = {0};
  static const struct { const char *cpu, *features; } cpus[] = {{machine.cpu, machine.features}, {"", ""}};
  for (size_t i = 0; i < COUNT(cpus); i++) {
    code_blob blob, again;
    make(dot_ir, cpus[i].cpu, cpus[i].features, &blob);
    bytes packed;
    assert_int_equal(code_blob_pack(&blob, &packed, NULL), 0);
    assert_int_equal(code_blob_unpack(packed.at, packed.n, &again, &err), 0);
    const code_blob *batch[] = {&blob, &again};
    code_image *image = code_map(batch, 2, &err);
    code_blob_free(&blob);
    code_blob_free(&again);
    bytes_free(&packed);
    assert_non_null(image);
    check_image(image, 0);
    check_image(image, 1);
    assert_null(code_find(image, 2, "dot"));
    code_unmap(image);
  }
}

static void damaged_packing_is_refused(void **state) {
  (void)state;
  code_blob blob, out;
  make(dot_ir, machine.cpu, machine.features, &blob);
  bytes packed;
  assert_int_equal(code_blob_pack(&blob, &packed, NULL), 0);
  // a copy of its own, so that the address sanitizer sees every excess
  for (size_t n = 0; n < packed.n; n++) {
    uint8_t *part = xmalloc(n);
    memcpy(part, packed.at, n);
    error err = {0};
    assert_int_equal(code_blob_unpack(part, n, &out, &err), -1);
    assert_true(err.text[0]);
    free(part);
  }
  for (size_t i = 0; i < packed.n - blob.code.n; i++)
    for (int bit = 0; bit < 8; bit++) {
      packed.at[i] ^= (uint8_t)(1 << bit);
      // a changed name or offset, which must still be in bounds
      if (!code_blob_unpack(packed.at, packed.n, &out, NULL)) {
        for (size_t k = 0; k < out.symbols.n; k++) assert_true(out.symbols.at[k].offset < out.code.n);
        code_blob_free(&out);
      }
      packed.at[i] ^= (uint8_t)(1 << bit);
    }
  bytes_free(&packed);
  code_blob_free(&blob);
}

static void code_is_never_writable_and_executable(void **state) {
  (void)state;
  code_blob blob;
  make(dot_ir, machine.cpu, machine.features, &blob);
  error err = {0};
  const code_blob *batch[] = {&blob};
  code_image *image = code_map(batch, 1, &err);
  assert_non_null(image);
  code_fn f = code_find(image, 0, "dot");
  uintptr_t address;
  memcpy(&address, &f, sizeof address);
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  bool seen = false;
  while (fgets(line, sizeof line, maps)) {
    unsigned long from, to;
    char mode[8];
    assert_int_equal(sscanf(line, "%lx-%lx %7s", &from, &to, mode), 3);
    if (address >= from && address < to) { seen = true; assert_string_equal(mode, "r-xp"); }
  }
  fclose(maps);
  assert_true(seen);
  pid_t child = fork();
  if (!child) {
    signal(SIGSEGV, SIG_DFL);
    *(volatile uint8_t *)address = 0;
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  code_unmap(image);
  code_blob_free(&blob);
}

static void assembly_is_given_on_request(void **state) {
  (void)state;
  error err = {0};
  bytes object;
  str assembly = {0};
  assert_int_equal(llvm_compile(dot_ir, machine.cpu, machine.features, &object, &assembly, &err), 0);
  assert_non_null(strstr(str_c(&assembly), "dot:"));
  code_blob blob;
  assert_int_equal(elf_link(object.at, object.n, &blob, &err), 0);
  code_blob_free(&blob);
  bytes_free(&object);
  str_free(&assembly);
}

static void expect_link_error(const char *ir, const char *cpu, const char *part) {
  error err = {0};
  bytes object;
  code_blob blob;
  if (llvm_compile(ir, cpu, "", &object, NULL, &err)) fail_msg("%s", err.text);
  assert_int_equal(elf_link(object.at, object.n, &blob, &err), -1);
  if (!strstr(err.text, part)) fail_msg("'%s' does not mention '%s'", err.text, part);
  assert_int_equal(blob.code.n, 0);
  bytes_free(&object);
}

static void kernels_must_be_closed(void **state) {
  (void)state;
  expect_link_error(
    "declare float @sinf(float)\ndefine float @f(float %x) {\n  %y = call float @sinf(float %x)\n  ret float %y\n}\n",
    machine.cpu, "'sinf'");
  expect_link_error("@g = internal global i32 3\ndefine i32 @f() {\n  %v = load volatile i32, ptr @g\n  store volatile "
                    "i32 5, ptr @g\n  ret i32 %v\n}\n",
                    machine.cpu, "writable data");
  expect_link_error(
    "@a = private constant i32 3\n@g = private constant [2 x ptr] [ptr @a, ptr @a]\n"
    "define ptr @f(i64 %i) {\n  %p = getelementptr ptr, ptr @g, i64 %i\n  %v = load ptr, ptr %p\n  ret ptr %v\n}\n",
    machine.cpu, "absolute address");
  expect_link_error("@x = external global i32\ndefine i32 @f() {\n  %v = load i32, ptr @x\n  ret i32 %v\n}\n",
                    machine.cpu, "'x'");
  expect_link_error("@x = private constant i32 3\n", machine.cpu, "no code");
#if defined(__x86_64__)
  // What the processor lacks becomes a call of a library function, which must be noticed.
  expect_link_error("declare float @llvm.fma.f32(float, float, float)\ndefine float @f(float %x) {\n  %y = call float "
                    "@llvm.fma.f32(float %x, float %x, float %x)\n"
                    "  ret float %y\n}\n",
                    "x86-64-v2", "'fmaf'");
#endif
}

static void expect_compile_error(const char *ir, const char *cpu, const char *part) {
  error err = {0};
  bytes object;
  assert_int_equal(llvm_compile(ir, cpu, "", &object, NULL, &err), -1);
  assert_null(object.at);
  if (!strstr(err.text, part)) fail_msg("'%s' does not mention '%s'", err.text, part);
}

static void errors_are_reported_and_nothing_is_printed(void **state) {
  (void)state;
  char name[] = "/tmp/weft-test-XXXXXX";
  int file = mkstemp(name), saved = dup(2);
  unlink(name);
  fflush(stderr);
  dup2(file, 2);
  expect_compile_error("define i32 @f() {\n  %x = bogus i32 1\n  ret i32 %x\n}\n", machine.cpu, "%x = bogus i32 1");
  expect_compile_error("define i32 @f() {\n  %x = bogus i32 1\n  ret i32 %x\n}\n", machine.cpu, ":2:");
  expect_compile_error("define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n  br label "
                       "%b\nb:\n  ret i32 %x\n}\n",
                       machine.cpu, "dominate");
  expect_compile_error("\x01\x02", machine.cpu, "LLVM");
#if defined(__x86_64__)
  expect_compile_error("define void @f() {\n  call void asm \"no such instruction\", \"\"()\n  ret void\n}\n",
                       machine.cpu, "LLVM");
#endif
  code_blob blob;                                        // and it goes on working
  make(dot_ir, machine.cpu, machine.features, &blob);
  code_blob_free(&blob);
  fflush(stderr);
  dup2(saved, 2);
  close(saved);
  off_t printed = lseek(file, 0, SEEK_END);
  close(file);
  assert_int_equal(printed, 0);
}

#if defined(__x86_64__)
// An instruction that this processor does not have: LLVM calls it fatal and would exit.  In a process of its own,
// because what LLVM had allocated by then is lost.
static void fatal_errors_are_survived(void **state) {
  (void)state;
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    error err = {0};
    bytes object;
    code_blob blob;
    bool refused =
      llvm_compile("declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <16 x i32>, <16 x i32>)\n"
                   "define void @f(ptr %p) {\n  %a = load <16 x i32>, ptr %p\n"
                   "  %b = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %a, <16 x i32> %a, <16 x i32> %a)\n"
                   "  store <16 x i32> %b, ptr %p\n  ret void\n}\n",
                   "x86-64-v2", "", &object, NULL, &err) == -1;
    refused = refused && strstr(err.text, "LLVM: fatal error: ");
    bool goes_on = !llvm_compile(dot_ir, machine.cpu, machine.features, &object, NULL, &err) &&
                   !elf_link(object.at, object.n, &blob, &err);
    if (!refused || !goes_on) fprintf(stderr, "%s\n", err.text);
    _exit(refused && goes_on ? 7 : 1);
  }
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
#endif

static void *compile_many(void *p) {
  (void)p;
  for (int i = 0; i < 8; i++) {
    error err = {0};
    bytes object;
    if (i % 4 == 3) {
      if (!llvm_compile("define what", machine.cpu, machine.features, &object, NULL, &err))
        return err.text[0] ? NULL : (void *)1;
      continue;
    }
    code_blob blob;
    if (llvm_compile(dot_ir, machine.cpu, machine.features, &object, NULL, &err) ||
        elf_link(object.at, object.n, &blob, &err))
      return (void *)1;
    code_blob_free(&blob);
    bytes_free(&object);
  }
  return NULL;
}

static void threads_compile_at_once(void **state) {
  (void)state;
  pthread_t id[4];
  for (size_t i = 0; i < COUNT(id); i++) assert_int_equal(pthread_create(&id[i], NULL, compile_many, NULL), 0);
  for (size_t i = 0; i < COUNT(id); i++) {
    void *bad;
    pthread_join(id[i], &bad);
    assert_null(bad);
  }
}

#if defined(__x86_64__)
// A text of steps: in each, all of some sums take a product. More values than there are registers, when a compiler
// puts a sum's steps together.
static void steps_text(str *out, bool in_order) {
  enum { SUMS = 8, STEPS = 8 };
  str_add(out, "define void @steps(ptr noalias %w, ptr noalias %x, ptr noalias %y) #0 {\n");
  for (int s = 0; s < STEPS; s++) {
    str_addf(out, "  %%wp%d = getelementptr i8, ptr %%w, i64 %d\n  %%w%d = load <8 x i32>, ptr %%wp%d, align 4\n", s,
             32 * s, s, s);
    for (int i = 0; i < SUMS; i++) {
      int n = s * SUMS + i;
      str_addf(out, "  %%xp%d = getelementptr i8, ptr %%x, i64 %d\n  %%x%d = load <8 x i32>, ptr %%xp%d, align 4\n", n,
               32 * n, n, n);
      str_addf(out, "  %%p%d = mul <8 x i32> %%w%d, %%x%d\n", n, s, n);
      if (s) str_addf(out, "  %%s%d = add <8 x i32> %%%c%d, %%p%d\n", n, s == 1 ? 'p' : 's', n - SUMS, n);
    }
  }
  for (int i = 0; i < SUMS; i++)
    str_addf(out, "  %%yp%d = getelementptr i8, ptr %%y, i64 %d\n  store <8 x i32> %%s%d, ptr %%yp%d, align 4\n", i,
             32 * i, (STEPS - 1) * SUMS + i, i);
  str_addf(out, "  ret void\n}\nattributes #0 = { nounwind%s }\n", in_order ? " " RENDER_IN_ORDER : "");
}

static const char avx2[] = "x86-64-v3";

static void compile_steps(bool in_order, bytes *object, str *assembly) {
  str text = {0};
  error err = {0};
  steps_text(&text, in_order);
  if (llvm_compile(str_c(&text), avx2, "", object, assembly, &err)) fail_msg("%s", err.text);
  str_free(&text);
}

// How often a multiplication reads from memory before what the one above it read.
static int steps_back(const str *assembly) {
  int back = 0, last = -1, n = 0;
  for (const char *p = str_c(assembly); (p = strstr(p, "vpmulld")); p++, n++) {
    const char *operand = p + strcspn(p, "\t ");
    operand += strspn(operand, "\t ");
    int at = atoi(operand);                              // "2016(%rsi), %ymm1, ..."
    back += at < last;
    last = at;
  }
  assert_int_equal(n, 64);
  return back;
}

static void instructions_stay_in_order(void **state) {
  (void)state;
  str assembly[2] = {{0}};
  for (int in_order = 0; in_order < 2; in_order++) {
    bytes object;
    compile_steps(in_order, &object, &assembly[in_order]);
    bytes_free(&object);
  }
  assert_int_equal(steps_back(&assembly[1]), 0);
  assert_true(steps_back(&assembly[0]) > 0);             // or the mark has nothing to do
  for (int i = 0; i < 2; i++) str_free(&assembly[i]);
}

static bytes alone[2];

static void *compile_both(void *p) {
  for (int i = 0; i < 12; i++) {
    bool in_order = (i + (int)(intptr_t)p) % 3 == 0;
    bytes object;
    compile_steps(in_order, &object, NULL);
    bool same = object.n == alone[in_order].n && !memcmp(object.at, alone[in_order].at, object.n);
    bytes_free(&object);
    if (!same) return (void *)1;
  }
  return NULL;
}

// The setting is the process's: no compile gets that of another one.
static void orders_do_not_mix(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) compile_steps(i, &alone[i], NULL);
  assert_true(alone[0].n != alone[1].n || memcmp(alone[0].at, alone[1].at, alone[0].n));
  pthread_t id[4];
  for (size_t i = 0; i < COUNT(id); i++)
    assert_int_equal(pthread_create(&id[i], NULL, compile_both, (void *)(intptr_t)i), 0);
  for (size_t i = 0; i < COUNT(id); i++) {
    void *bad;
    pthread_join(id[i], &bad);
    assert_null(bad);
  }
  for (int i = 0; i < 2; i++) bytes_free(&alone[i]);
}
#endif

// No multiplication and addition is fused unless the text says llvm.fma.
static void floats_are_not_contracted(void **state) {
  (void)state;
  code_blob blob;
  error err = {0};
  make("define float @f(float %a, float %b, float %c) {\n  %m = fmul float %a, %b\n  %s = fadd float %m, %c\n  ret "
       "float %s\n}\n",
       machine.cpu, machine.features, &blob);
  const code_blob *batch[] = {&blob};
  code_image *image = code_map(batch, 1, &err);
  float (*f)(float, float, float) = (float (*)(float, float, float))code_find(image, 0, "f");
  volatile float a = 1 + 0x1p-12f, product = a * a, sum = product - (1 + 0x1p-11f);
  assert_float_equal(f(a, a, -(1 + 0x1p-11f)), sum, 0);
  assert_true(fmaf(a, a, -(1 + 0x1p-11f)) != sum);
  code_unmap(image);
  code_blob_free(&blob);
}

static uint64_t random_state = 88172645463325252ull;
static uint64_t random_u64(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

// Whatever the bytes, linking ends in a blob whose functions lie inside of it, or in a message.
static void try_object(const uint8_t *p, size_t n) {
  uint8_t *copy = xmalloc(n);
  memcpy(copy, p, n);
  code_blob blob;
  error err = {0};
  if (elf_link(copy, n, &blob, &err)) {
    assert_true(err.text[0]);
  } else {
    assert_true(blob.symbols.n > 0);
    for (size_t k = 0; k < blob.symbols.n; k++) assert_true(blob.symbols.at[k].offset < blob.code.n);
    code_blob_free(&blob);
  }
  free(copy);
}

static void damaged_objects_are_survived(void **state) {
  (void)state;
  error err = {0};
  bytes object;
  assert_int_equal(llvm_compile(dot_ir, machine.cpu, machine.features, &object, NULL, &err), 0);
  for (size_t n = 0; n < object.n; n++) {
    code_blob blob;
    error e = {0};
    uint8_t *part = xmalloc(n);
    memcpy(part, object.at, n);
    assert_int_equal(elf_link(part, n, &blob, &e), -1);      // the section table is at the end
    free(part);
  }
  for (size_t i = 0; i < object.n; i++)
    for (int k = 0; k < 3; k++) {
      static const uint8_t values[] = {0, 0xff, 0x80};
      uint8_t was = object.at[i];
      object.at[i] = was == values[k] ? (uint8_t)(was + 1) : values[k];
      try_object(object.at, object.n);
      object.at[i] = was;
    }
  for (int round = 0; round < 3000; round++) {
    uint8_t *copy = xmalloc(object.n);
    memcpy(copy, object.at, object.n);
    for (uint64_t k = random_u64() % 8 + 1; k-- > 0;) copy[random_u64() % object.n] = (uint8_t)random_u64();
    Elf64_Ehdr e;                                             // and the tables, where the structure is
    memcpy(&e, object.at, sizeof e);
    if (round % 2) copy[e.e_shoff + random_u64() % (object.n - e.e_shoff)] = (uint8_t)random_u64();
    try_object(copy, object.n);
    free(copy);
  }
  bytes_free(&object);
}

static void version_is_known(void **state) {
  (void)state;
  str version = {0};
  error err = {0};
  assert_int_equal(llvm_version(&version, &err), 0);
  int major = atoi(version.at);
  assert_true(major >= 19 && major <= 22);
  str_free(&version);
}

static void nothing_is_loaded_before_the_first_use(void **state) {
  (void)state;
  assert_false(llvm_is_loaded());
  code_blob blob;
  make(dot_ir, machine.cpu, machine.features, &blob);
  code_blob_free(&blob);
  assert_true(llvm_is_loaded());
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_loaded_before_the_first_use),
    cmocka_unit_test(runs_what_it_compiled),
    cmocka_unit_test(damaged_packing_is_refused),
    cmocka_unit_test(code_is_never_writable_and_executable),
    cmocka_unit_test(assembly_is_given_on_request),
    cmocka_unit_test(kernels_must_be_closed),
    cmocka_unit_test(errors_are_reported_and_nothing_is_printed),
#if defined(__x86_64__)
    cmocka_unit_test(fatal_errors_are_survived),
#endif
    cmocka_unit_test(threads_compile_at_once),
#if defined(__x86_64__)
    cmocka_unit_test(instructions_stay_in_order),
    cmocka_unit_test(orders_do_not_mix),
#endif
    cmocka_unit_test(floats_are_not_contracted),
    cmocka_unit_test(damaged_objects_are_survived),
    cmocka_unit_test(version_is_known),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
