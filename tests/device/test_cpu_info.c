// What kernels may use for each value of WEFT_CPU, on this machine and on imagined ones.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
#include "device/cpu_info.h"
#include "device/llvm.h"

static cpu_features level(int wanted) {       // a machine of exactly this level
  cpu_features c = {0};
#define F(field, llvm_name, leaf, sub, reg, bit, state, lvl) c.field = lvl <= wanted;
  CPU_FEATURES(F)
#undef F
  return c;
}

static void native_is_everything(void **state) {
  (void)state;
  cpu_features c;
  cpu_target t;
  error err = {0};
  cpu_detect(&c);
  assert_int_equal(cpu_target_for("native", &c, &t, &err), 0);
  assert_non_null(strstr(t.key, t.cpu));
#if defined(__x86_64__)
  assert_non_null(strstr(t.cpu, "x86-64"));
  FILE *f = fopen("/proc/cpuinfo", "r");        // the system's own view
  char line[8192];
  bool seen = false;
  while (!seen && fgets(line, sizeof line, f)) seen = !strncmp(line, "flags", 5);
  fclose(f);
  if (!seen) skip();
  line[strcspn(line, "\n")] = ' ';
  assert_int_equal(c.avx2, strstr(line, " avx2 ") != NULL);
  assert_int_equal(c.fma, strstr(line, " fma ") != NULL);
  assert_int_equal(c.f16c, strstr(line, " f16c ") != NULL);
  assert_int_equal(c.avx512bw, strstr(line, " avx512bw ") != NULL);
  assert_int_equal(c.avx512vnni, strstr(line, " avx512_vnni ") != NULL);
  assert_int_equal(c.avx512bf16, strstr(line, " avx512_bf16 ") != NULL);
  assert_int_equal(c.avx512vbmi, strstr(line, " avx512vbmi ") != NULL);
  assert_int_equal(c.avxvnni, strstr(line, " avx_vnni ") != NULL);
  assert_int_equal(c.gfni, strstr(line, " gfni ") != NULL);
  assert_int_equal(t.vector_bits, c.avx512f && c.avx512bw && c.avx512vl && c.avx512dq && c.avx512cd ? 512
                                  : c.avx2                                                          ? 256
                                                                                                    : 128);
#endif
}

static void levels(void **state) {
  (void)state;
  static const struct { int have; const char *spec, *cpu; int bits;
  } ok[] = {{4, "x86-64-v4", "x86-64-v4", 512}, {4, "x86-64-v3", "x86-64-v3", 256}, {4, "x86-64-v2", "x86-64-v2", 128},
            {4, "x86-64", "x86-64", 128},       {3, "x86-64-v3", "x86-64-v3", 256}, {5, "x86-64-v4", "x86-64-v4", 512},
            {1, "x86-64", "x86-64", 128},       {4, "native", "x86-64-v4", 512},    {3, "native", "x86-64-v3", 256},
            {2, "native", "x86-64-v2", 128},    {1, "native", "x86-64", 128}};
  for (size_t i = 0; i < COUNT(ok); i++) {
    cpu_features c = level(ok[i].have);
    cpu_target t;
    error err = {0};
    if (cpu_target_for(ok[i].spec, &c, &t, &err)) fail_msg("%s", err.text);
    assert_string_equal(t.cpu, ok[i].cpu);
    assert_string_equal(t.features, "");
    assert_int_equal(t.vector_bits, ok[i].bits);
    assert_int_equal(t.has.fma, ok[i].bits >= 256);
    assert_int_equal(t.has.avx512bw, ok[i].bits == 512);
    assert_false(t.has.avx512vnni);
  }
}

static void more_than_there_is(void **state) {
  (void)state;
  cpu_features c = level(3);
  cpu_target t;
  error err = {0};
  assert_int_equal(cpu_target_for("x86-64-v4", &c, &t, &err), -1);
  assert_non_null(strstr(err.text, "x86-64-v4"));
  assert_non_null(strstr(err.text, "avx512f"));
  c.f16c = false;
  err.text[0] = 0;
  assert_int_equal(cpu_target_for("x86-64-v3", &c, &t, &err), -1);
  assert_non_null(strstr(err.text, "lacks f16c"));
}

static void unknown_names(void **state) {
  (void)state;
  static const char *const names[] = {"", "v3", "x86-64-v5", "Native", "znver5", "x86-64-v3 "};
  cpu_features c = level(4);
  for (size_t i = 0; i < COUNT(names); i++) {
    cpu_target t;
    error err = {0};
    assert_int_equal(cpu_target_for(names[i], &c, &t, &err), -1);
    assert_non_null(strstr(err.text, "native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4"));
    assert_non_null(strstr(err.text, names[i]));
  }
}

static void incomplete_machines(void **state) {
  (void)state;
  cpu_target t;
  cpu_features c = level(4);            // AVX-512 in part: as if it had none
  c.avx512vl = false;
  c.avx512vnni = true;
  assert_int_equal(cpu_target_for("native", &c, &t, NULL), 0);
  assert_string_equal(t.cpu, "x86-64-v3");
  assert_string_equal(t.features, "");
  assert_int_equal(t.vector_bits, 256);
  assert_false(t.has.avx512f || t.has.avx512vnni);
  c = level(3);                         // a virtual machine that hides one thing
  c.movbe = false;
  c.avxvnni = true;
  assert_int_equal(cpu_target_for("native", &c, &t, NULL), 0);
  assert_string_equal(t.cpu, "x86-64-v2");
  assert_string_equal(t.features, "+avx,+f16c,+fma,+bmi,+avx2,+bmi2,+lzcnt,+avxvnni");
  assert_int_equal(t.vector_bits, 256);
  c = level(3);                         // a system that does not keep the AVX registers, but for one flag
  c.avx = c.avx2 = c.f16c = false;
  assert_int_equal(cpu_target_for("native", &c, &t, NULL), 0);
  assert_false(t.has.fma);
  assert_int_equal(t.vector_bits, 128);
}

// What LLVM prints meanwhile goes to a file.
typedef struct heard { int file, saved; } heard;

static heard hear_stderr(void) {
  char name[] = "/tmp/weft-test-XXXXXX";
  heard q = {mkstemp(name), dup(2)};
  unlink(name);
  fflush(stderr);
  dup2(q.file, 2);
  return q;
}

// The number of bytes that were printed.
static off_t end_stderr(heard q) {
  fflush(stderr);
  dup2(q.saved, 2);
  close(q.saved);
  off_t printed = lseek(q.file, 0, SEEK_END);
  close(q.file);
  return printed;
}

// A feature name that LLVM does not know makes it print; each name must also bring what it says.
static void llvm_knows_every_name(void **state) {
  (void)state;
  cpu_features c = level(5);
  c.amd = true;
  cpu_target t;
  error err = {0};
  static const unsigned families[] = {0x17, 0x19, 0x1a};
  static const bool wide[] = {false, true};
  int failed = 0;
  heard q = hear_stderr();
  for (size_t i = 0; i < COUNT(families); i++)
    for (size_t w = 0; w < COUNT(wide); w++)
      for (int intel = 0; intel < 2; intel++) {
        c.family = families[i];
        c.avx512f = wide[w];
        c.avx512bf16 = i > 1;
        c.amd = !intel;
        c.intel = intel;
        cpu_target_for("native", &c, &t, &err);
        char ir[256];
        snprintf(ir, sizeof ir,
                 "define i32 @f(i32 %%x) #0 {\n  ret i32 %%x\n}\nattributes #0 = { \"tune-cpu\"=\"%s\" }\n", t.tune);
        bytes object;
        failed += llvm_compile_for(t.triple, ir, t.cpu, t.features, &object, NULL, &err);
        bytes_free(&object);
      }
  off_t printed = end_stderr(q);
  if (failed) fail_msg("%s", err.text);
  assert_int_equal(printed, 0);
}

// Every core of the table: LLVM knows the name it is planned by. Of several kinds the later row counts in any order.
static void cores_of_aarch64(void **state) {
  (void)state;
  int failed = 0;
  heard q = hear_stderr();
  error err = {0};
#define F(implementer, part, core, tune_) { \
    cpu_features c = {.arm = true}; \
    cpu_target t; \
    bytes object; \
    char ir[128]; \
    cpu_add_core(&c, (uint64_t)implementer << 24 | 0xf0000 | part << 4 | 1); \
    failed += !cpu_core_name(&c) || strcmp(cpu_core_name(&c), core) || cpu_target_for("native", &c, &t, &err) || \
              strcmp(t.tune, tune_) || !strstr(t.key, tune_); \
    snprintf(ir, sizeof ir, "define void @f() #0 {\n  ret void\n}\nattributes #0 = { \"tune-cpu\"=\"%s\" }\n", \
             t.tune); \
    failed += llvm_compile_for(t.triple, ir, t.cpu, t.features, &object, NULL, &err) != 0; \
    bytes_free(&object); \
  }
  ARM_CORES(F)
#undef F
  off_t printed = end_stderr(q);
  if (failed) fail_msg("%s", err.text);
  assert_int_equal(printed, 0);
  cpu_features c = {.arm = true}, back = c, other = c;
  cpu_add_core(&c, 0x410fd034); cpu_add_core(&c, 0x410fd083); cpu_add_core(&c, 0x410fd034);   // A53, A72, A53
  assert_string_equal(cpu_core_name(&c), "Arm Cortex-A72");
  cpu_add_core(&back, 0x410fd083); cpu_add_core(&back, 0x410fd034);
  assert_string_equal(cpu_core_name(&back), "Arm Cortex-A72");
  cpu_add_core(&other, 0x990fd083);
  assert_null(cpu_core_name(&other));
}

static bool has_row(const cpu_target *t, const char *name) {
  const descriptor *d;
  for (size_t i = 0; (d = descriptor_at(i)); i++) if (!strcmp(d->name, name)) return t->descriptors >> i & 1;
  fail_msg("no descriptor %s", name);
  return false;
}

// AArch64 from what such a machine would say; every machine can ask this.
static void aarch64(void **state) {
  (void)state;
  cpu_features c = {.arm = true};
  cpu_target t;
  error err = {0};
  assert_int_equal(cpu_target_for("native", &c, &t, &err), 0);
  assert_string_equal(t.features, "");
  assert_string_equal(t.triple, "aarch64-unknown-linux-gnu");
  assert_true(t.fma && t.f16 && t.round && t.vector_bits == 128);
  assert_true(has_row(&t, "neon") && !has_row(&t, "neon-dotprod") && !has_row(&t, "neon-i8mm") &&
              !has_row(&t, "sse2-wide"));
  assert_int_equal(cpu_target_for("armv8.2-a", &c, &t, &err), -1);
  assert_non_null(strstr(err.text, "lacks fullfp16"));
  c.fphp = c.asimddp = true;
  assert_int_equal(cpu_target_for("armv8.2-a", &c, &t, &err), 0);
  assert_string_equal(t.features, "+fullfp16,+dotprod");
  assert_true(has_row(&t, "neon-dotprod") && !has_row(&t, "neon-i8mm"));
  assert_int_equal(cpu_target_for("armv8-a", &c, &t, &err), 0);              // restricts downwards
  assert_false(has_row(&t, "neon-dotprod"));
  err.text[0] = 0;
  assert_int_equal(cpu_target_for("armv8.6-a", &c, &t, &err), -1);
  assert_non_null(strstr(err.text, "lacks i8mm"));
  c.i8mm = c.bf16 = true;
  assert_int_equal(cpu_target_for("armv8.6-a", &c, &t, &err), 0);
  assert_true(has_row(&t, "neon-i8mm"));
  err.text[0] = 0;
  assert_int_equal(cpu_target_for("x86-64-v3", &c, &t, &err), -1);
  assert_non_null(strstr(err.text, "native, armv8-a, armv8.2-a, armv8.6-a"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(native_is_everything),
    cmocka_unit_test(aarch64),
    cmocka_unit_test(cores_of_aarch64),
    cmocka_unit_test(levels),
    cmocka_unit_test(more_than_there_is),
    cmocka_unit_test(unknown_names),
    cmocka_unit_test(incomplete_machines),
    cmocka_unit_test(llvm_knows_every_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
