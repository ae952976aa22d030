// Areas of memory, the size of memory, and the limits of control groups, read from trees of files like those of real
// machines.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/str.h"
#include "device/cgroup.h"
#include "device/memory.h"

static void areas(void **state) {
  (void)state;
  static const uint64_t sizes[] = {1, 4096, MEMORY_ALIGN - 1, MEMORY_ALIGN, MEMORY_ALIGN + 1, (uint64_t)1 << 24};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    error err = {0};
    uint8_t *p = memory_reserve(sizes[i], &err);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % MEMORY_ALIGN, 0);
    for (uint64_t k = 0; k < sizes[i]; k += 4093) { assert_int_equal(p[k], 0); p[k] = 1; }
    p[sizes[i] - 1] = 2;
    memory_release(p, sizes[i]);
  }
  memory_release(NULL, 5);
}

static void reserving_commits_nothing(void **state) {
  (void)state;
  uint64_t total, before = memory_rss(), size;
  error err = {0};
  assert_int_equal(memory_total(&total, &err), 0);
  size = total * 2;                     // more than there is
  uint8_t *p = memory_reserve(size, &err);
  if (!p) skip();                       // a machine that does not overcommit
  p[size / 2] = 1;
  assert_true(memory_rss() - before < (64u << 20));
  memory_release(p, size);
}

static void refuses_with_numbers(void **state) {
  (void)state;
  error err = {0};
  assert_null(memory_reserve(0, &err));
  err.text[0] = 0;
  assert_null(memory_reserve(UINT64_MAX, &err));
  assert_non_null(strstr(err.text, "18446744073709551615"));
}

// Bytes of the mapping that p lies in that are huge pages.
static uint64_t huge_at(const void *p) {
  FILE *f = fopen("/proc/self/smaps", "re");
  char line[512];
  uint64_t kb = 0, here = (uint64_t)(uintptr_t)p, result = 0;
  bool inside = false;
  while (f && fgets(line, sizeof line, f)) {
    unsigned long long from, to;
    if (sscanf(line, "%llx-%llx ", &from, &to) == 2) inside = here >= from && here < to;
    else if (inside && sscanf(line, "AnonHugePages: %lu kB", &kb) == 1) result = kb << 10;
  }
  if (f) fclose(f);
  return result;
}

// 0 where this kernel turns pages into huge ones on request, else why it does not (an errno). Asked without the
// functions under test.
static int kernel_refuses(void) {
  uint8_t *p = mmap(NULL, 2 * MEMORY_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(p != MAP_FAILED);
  uint8_t *piece = p + (MEMORY_ALIGN - (uintptr_t)p % MEMORY_ALIGN) % MEMORY_ALIGN;
  *piece = 1;
  int why = madvise(piece, MEMORY_ALIGN, 25 /* MADV_COLLAPSE */) ? errno : 0;
  munmap(p, 2 * MEMORY_ALIGN);
  return why;
}

static void promotes(void **state) {
  (void)state;
  enum { PIECES = 4 };
  uint64_t size = (uint64_t)PIECES * MEMORY_ALIGN;
  error err = {0};
  uint8_t *p = memory_reserve_plain(size, &err);
  assert_non_null(p);
  assert_int_equal((uintptr_t)p % MEMORY_ALIGN, 0);
  for (uint64_t i = 0; i < size; i++) { assert_int_equal(p[i], 0); p[i] = (uint8_t)(i * 7 % 251); }
  int why = kernel_refuses();
  if (why) {
    // no room now is no reason to stop
    assert_true(memory_promote(p, MEMORY_ALIGN) == (why == ENOMEM || why == EAGAIN || why == EBUSY));
    for (uint64_t i = 0; i < size; i++) assert_int_equal(p[i], (uint8_t)(i * 7 % 251));
    memory_release(p, size);
    print_message("skipped: this kernel makes no huge pages on request: %s\n", strerror(why));
    skip();
  }
  assert_true(memory_promote(p, MEMORY_ALIGN));
  assert_int_equal(huge_at(p), MEMORY_ALIGN);                     // the first piece, and none of the others
  for (int i = 1; i < PIECES; i++) assert_true(memory_promote(p + (uint64_t)i * MEMORY_ALIGN, MEMORY_ALIGN));
  assert_int_equal(huge_at(p), size);
  for (uint64_t i = 0; i < size; i++) assert_int_equal(p[i], (uint8_t)(i * 7 % 251));
  memory_release(p, size);
}

static void discards(void **state) {
  (void)state;
  uint64_t size = 8 << 20;
  uint8_t *p = memory_reserve(size, NULL);
  memset(p, 5, size);
  memory_discard(p + 100, size - 200);
  assert_int_equal(p[99], 5);
  assert_int_equal(p[100], 5);          // its page is not wholly inside
  assert_int_equal(p[size / 2], 0);
  assert_int_equal(p[size - 1], 5);
  memory_discard(p + 10, 20);           // no whole page
  assert_int_equal(p[15], 5);
  memory_release(p, size);
}

// How many of the pages of [p, p + size) are there.
static size_t pages_there(uint8_t *p, uint64_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
  unsigned char *there = malloc(size / page);
  assert_int_equal(mincore(p, size, there), 0);
  for (size_t i = 0; i < size / page; i++) n += there[i] & 1;
  free(there);
  return n;
}

// Touched memory is there, takes none, and holds what it held; so it is again after it was given back.
static void touches(void **state) {
  (void)state;
  uint64_t size = 8 << 20, all = size / (uint64_t)sysconf(_SC_PAGESIZE);
  uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(p != MAP_FAILED);
  madvise(p, size, MADV_NOHUGEPAGE);
  p[size / 2 + 5] = 7;
  assert_int_equal(pages_there(p, size), 1);
  uint64_t before = memory_rss();
  memory_touch(p + 100, size - 200);
  assert_int_equal(pages_there(p, size), all);
  assert_true(memory_rss() < before + size / 2);
  assert_true(p[size / 2 + 5] == 7 && p[100] == 0 && p[size - 1] == 0);
  memory_discard(p, size);
  assert_int_equal(pages_there(p, size), 0);
  memory_touch(p, size);
  assert_int_equal(pages_there(p, size), all);
  munmap(p, size);
}

static uint64_t used_of(const char *name) {
  char line[256];
  uint64_t kb = 0;
  FILE *f = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, f))
    if (!strncmp(line, name, strlen(name))) kb = strtoull(line + strlen(name), NULL, 10);
  fclose(f);
  return kb << 10;
}

static void sizes_are_plausible(void **state) {
  (void)state;
  uint64_t total, available;
  error err = {0};
  assert_int_equal(memory_total(&total, &err), 0);
  assert_int_equal(memory_available(&available, &err), 0);
  assert_true(available > 0 && available <= total);
  uint64_t peak = memory_peak_rss(), size = 48 << 20;
  assert_true(peak >= memory_rss() && peak > 100000);
  uint8_t *p = memory_reserve(size, NULL);
  memset(p, 1, size);
  assert_true(memory_peak_rss() >= peak + size / 2);
  memory_release(p, size);
  assert_true(memory_peak_rss() >= peak + size / 2);      // a peak stays
}

// What is left of ulimit -v and -d counts like the machine's memory; each is lowered in turn.
static void limits_of_the_process(void **state) {
  (void)state;
  static const int limits[] = {RLIMIT_AS, RLIMIT_DATA};
  for (size_t i = 0; i < COUNT(limits); i++) {
    uint64_t machine, some, rest, total, size = 64 << 20;
    struct rlimit before, most;
    assert_int_equal(memory_available(&machine, NULL), 0);
    assert_int_equal(getrlimit(limits[i], &before), 0);
    if (machine < 4 * size || before.rlim_cur != RLIM_INFINITY) skip();
    most = before;
    // the addresses of sanitizers are terabytes
    most.rlim_cur = (rlim_t)used_of(i ? "VmData:" : "VmSize:") + 3 * size;
    assert_int_equal(setrlimit(limits[i], &most), 0);
    assert_int_equal(memory_available(&some, NULL), 0);
    assert_int_equal(memory_total(&total, NULL), 0);
    void *p = memory_reserve(size, NULL);
    assert_int_equal(memory_available(&rest, NULL), 0);
    memory_release(p, size);
    assert_int_equal(setrlimit(limits[i], &before), 0);
    assert_non_null(p);
    assert_true(some <= 3 * size && some > 2 * size);
    assert_true(rest <= some - size && rest > size);
    assert_true(total <= most.rlim_cur);
  }
}

// ------------------------------------------------------------------------------------------------------ control groups

static char root[64];

static void file(const char *path, const char *text) {
  str full = {0};
  str_addf(&full, "%s/%s", root, path);
  for (char *p = full.at + strlen(root) + 1; (p = strchr(p, '/')); p++) { *p = 0; mkdir(full.at, 0700); *p = '/'; }
  FILE *f = fopen(full.at, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
  str_free(&full);
}

static void begin(void) {
  snprintf(root, sizeof root, "/tmp/weft-cgroup-test-XXXXXX");
  assert_non_null(mkdtemp(root));
}

static void end(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", root);
  assert_int_equal(system(command), 0);
}

static const char v2_mount[] = "23 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - "
                               "cgroup2 cgroup2 rw,nsdelegate\n";

static void version_2(void **state) {
  (void)state;
  begin();
  assert_true(cgroup_cpus(root) == 0);                       // no files at all
  assert_true(cgroup_memory_available(root) == UINT64_MAX);
  file("proc/self/mountinfo", v2_mount);
  file("proc/self/cgroup", "0::/user.slice/job.scope\n");
  file("sys/fs/cgroup/user.slice/job.scope/cpu.max", "max 100000\n");
  file("sys/fs/cgroup/user.slice/job.scope/memory.max", "max\n");
  file("sys/fs/cgroup/user.slice/job.scope/memory.current", "500\n");
  assert_true(cgroup_cpus(root) == 0);
  assert_true(cgroup_memory_limit(root) == UINT64_MAX);
  file("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n");                // the group above
  file("sys/fs/cgroup/user.slice/memory.max", "1000000\n");
  file("sys/fs/cgroup/user.slice/memory.current", "900000\n");
  file("sys/fs/cgroup/user.slice/memory.stat",
       "anon 100\nfile 700000\ninactive_file 300000\nactive_file 400000\nslab 5\n");
  assert_true(cgroup_cpus(root) == 1.5);
  assert_true(cgroup_memory_limit(root) == 1000000);
  assert_true(cgroup_memory_available(root) == 800000);
  file("sys/fs/cgroup/user.slice/job.scope/cpu.max", "50000 100000\n");       // tighter
  file("sys/fs/cgroup/user.slice/job.scope/memory.max", "400\n");             // less than is used
  assert_true(cgroup_cpus(root) == 0.5);
  assert_true(cgroup_memory_limit(root) == 400);
  assert_true(cgroup_memory_available(root) == 0);
  end();
}

static void version_2_in_a_container(void **state) {
  (void)state;
  begin();
  file("proc/self/mountinfo", v2_mount);
  file("proc/self/cgroup", "0::/\n");
  file("sys/fs/cgroup/cpu.max", "200000 100000\n");
  file("sys/fs/cgroup/memory.max", "2000\n");
  file("sys/fs/cgroup/memory.current", "500\n");
  assert_true(cgroup_cpus(root) == 2);
  assert_true(cgroup_memory_available(root) == 1500);
  file("proc/self/cgroup", "0::/../../elsewhere\n");
  assert_true(cgroup_cpus(root) == 2);
  end();
}

static void version_1(void **state) {
  (void)state;
  begin();
  file("proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
                              "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
                              "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory\n");
  file("proc/self/cgroup", "5:cpuset:/\n4:memory:/docker/abc/inner\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
  file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  assert_true(cgroup_cpus(root) == 0);
  // the group's own folder is not visible: the mount counts
  file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "325000\n");
  assert_true(cgroup_cpus(root) == 3.25);
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  file("sys/fs/cgroup/memory/memory.usage_in_bytes", "77\n");
  assert_true(cgroup_memory_limit(root) == UINT64_MAX);
  // what the mount shows begins at /docker/abc
  file("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "5000\n");
  file("sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "3000\n");
  file("sys/fs/cgroup/memory/inner/memory.stat",
       "cache 900\ninactive_file 7\ntotal_inactive_file 600\ntotal_active_file 300\n");
  assert_true(cgroup_memory_limit(root) == 5000);
  assert_true(cgroup_memory_available(root) == 2900);
  end();
}

static void nonsense_limits_nothing(void **state) {
  (void)state;
  static const char *const texts[] = {"",
                                      "\n",
                                      ":::\n::\n:\n",
                                      "0::\n",
                                      "no colon",
                                      "4:memory\n",
                                      "0::/a/b/c/d/e/f\n\n\n",
                                      "- - - -\n",
                                      "1 2 3 4 5 - cgroup2\n",
                                      "1 - cgroup2 x y\n",
                                      "1 2 3 / / rw - cgroup\n",
                                      "1 2 3 / / rw - cgroup x memory,,\n"};
  begin();
  for (size_t i = 0; i < COUNT(texts); i++)
    for (size_t k = 0; k < COUNT(texts); k++) {
      file("proc/self/cgroup", texts[i]);
      file("proc/self/mountinfo", texts[k]);
      assert_true(cgroup_cpus(root) == 0);
      assert_true(cgroup_memory_limit(root) == UINT64_MAX);
    }
  file("proc/self/mountinfo", v2_mount);
  file("proc/self/cgroup", "0::/\n");
  file("sys/fs/cgroup/cpu.max", "0 0\n");
  file("sys/fs/cgroup/memory.max", "-5\n");
  file("sys/fs/cgroup/memory.current", "x\n");
  assert_true(cgroup_cpus(root) == 0);
  assert_true(cgroup_memory_limit(root) == UINT64_MAX);
  end();
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(areas),
    cmocka_unit_test(reserving_commits_nothing),
    cmocka_unit_test(refuses_with_numbers),
    cmocka_unit_test(promotes),
    cmocka_unit_test(discards), cmocka_unit_test(touches),
    cmocka_unit_test(sizes_are_plausible),
    cmocka_unit_test(limits_of_the_process),
    cmocka_unit_test(version_2),
    cmocka_unit_test(version_2_in_a_container),
    cmocka_unit_test(version_1),
    cmocka_unit_test(nonsense_limits_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
