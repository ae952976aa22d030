// Descriptors of launches: every field where the published headers have it (fake_nv/qmd.h), and no other bit set.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "device/nv_qmd.h"
#include "fake_nv/qmd.h"

static const nv_launch_facts facts = {.code = 0x1234567890000, .code_bytes = 0x4680,
                                      .constants = {[0] = {0x7654321000, 0x160 + 24}, [3] = {0x1700000080, 40}},
                                      .registers = 72, .barriers = 3, .sass = 0x89, .shared_bytes = 0x8700,
                                      .local_bytes = 0x2c0};
static const unsigned grid[] = {100000, 700, 65535}, block[] = {512, 2, 1};

static void expect(const nv_qmd *q, int version, enum qmd_field f, uint64_t value) {
  uint64_t has = qmd_get(q->at, version, f);
  if (has != value)
    fail_msg("version %d: %s is 0x%llx, not 0x%llx", version, qmd_fields[f].name, (unsigned long long)has,
             (unsigned long long)value);
}

// The values of all fields; what is not named is 0.
static void expected(uint64_t value[QMD_N_FIELDS], int version) {
  uint64_t constants = version == 4 ? facts.constants[0].at >> 6 : facts.constants[0].at;
  memset(value, 0, QMD_N_FIELDS * sizeof *value);
  value[QMD_QMD_GROUP_ID] = 0x3f;
  value[QMD_QMD_TYPE] = version == 4 ? 2 : 0;                // QMD_TYPE_GRID_CTA
  value[QMD_SM_GLOBAL_CACHING_ENABLE] = version == 3;
  value[QMD_INVALIDATE_TEXTURE_HEADER_CACHE] = value[QMD_INVALIDATE_TEXTURE_SAMPLER_CACHE] = 1;
  value[QMD_INVALIDATE_TEXTURE_DATA_CACHE] = value[QMD_INVALIDATE_SHADER_DATA_CACHE] = 1;
  value[QMD_CWD_MEMBAR_TYPE] = 1;                            // L1_SYSMEMBAR
  value[QMD_API_VISIBLE_CALL_LIMIT] = value[QMD_SAMPLER_INDEX] = 1;
  value[QMD_QMD_MAJOR_VERSION] = (uint64_t)version;
  value[QMD_GRID_WIDTH] = grid[0];
  value[QMD_GRID_HEIGHT] = grid[1];
  value[QMD_GRID_DEPTH] = grid[2];
  value[QMD_CTA_THREAD_DIMENSION0] = block[0];
  value[QMD_CTA_THREAD_DIMENSION1] = block[1];
  value[QMD_CTA_THREAD_DIMENSION2] = block[2];
  value[QMD_SHARED_MEMORY_SIZE] = facts.shared_bytes;
  value[QMD_MIN_SM_CONFIG_SHARED_MEM_SIZE] = value[QMD_TARGET_SM_CONFIG_SHARED_MEM_SIZE] = 64 / 4 + 1;
  value[QMD_MAX_SM_CONFIG_SHARED_MEM_SIZE] = 100 / 4 + 1;
  value[QMD_REGISTER_COUNT] = facts.registers;
  value[QMD_BARRIER_COUNT] = facts.barriers;
  value[QMD_SHADER_LOCAL_MEMORY_HIGH_SIZE] = facts.local_bytes;
  value[QMD_SASS_VERSION] = facts.sass;
  value[QMD_PROGRAM_ADDRESS_LOWER] = facts.code & UINT32_MAX;
  value[QMD_PROGRAM_ADDRESS_UPPER] = facts.code >> 32;
  value[QMD_PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED] = facts.code >> 8 & UINT32_MAX;
  value[QMD_PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED] = facts.code >> 40;
  value[QMD_PROGRAM_PREFETCH_SIZE] = facts.code_bytes >> 8;
  value[QMD_CONSTANT_BUFFER_VALID] = value[QMD_CONSTANT_BUFFER_INVALIDATE] = 1;
  value[QMD_CONSTANT_BUFFER_ADDR_LOWER] = constants & UINT32_MAX;
  value[QMD_CONSTANT_BUFFER_ADDR_UPPER] = constants >> 32;
  value[QMD_CONSTANT_BUFFER_SIZE_SHIFTED4] = (facts.constants[0].bytes + 15) / 16;
}

// Of bank 3 by its own places: CONSTANT_BUFFER_VALID(3), _INVALIDATE(3), _ADDR_LOWER(3), _ADDR_UPPER(3),
// _SIZE_SHIFTED4(3). They are taken away, which leaves bank 0.
static void check_bank_3(nv_qmd *q, int version) {
  static const int places[2][5][2] = {{{643, 643}, {1266, 1266}, {1247, 1216}, {1264, 1248}, {1279, 1267}},
                                      {{428, 428}, {431, 431}, {1759, 1728}, {1778, 1760}, {1791, 1779}}};
  uint64_t at = version == 4 ? facts.constants[3].at >> 6 : facts.constants[3].at,
           values[] = {1, 1, at & UINT32_MAX, at >> 32, 3};
  for (int i = 0; i < 5; i++)
    for (int bit = places[version - 3][i][1]; bit <= places[version - 3][i][0]; bit++, values[i] >>= 1) {
      assert_int_equal(q->at[bit / 32] >> bit % 32 & 1, values[i] & 1);
      q->at[bit / 32] &= ~(1u << bit % 32);
    }
}

static void fields_are_where_the_headers_have_them(void **state) {
  (void)state;
  for (int version = 3; version <= 4; version++) {
    nv_qmd q, left;
    uint64_t value[QMD_N_FIELDS];
    nv_qmd_make(&q, version, &facts);
    nv_qmd_set_size(&q, version, grid, block);
    check_bank_3(&q, version);
    left = q;
    expected(value, version);
    for (int f = 0; f < QMD_N_FIELDS; f++) {
      expect(&q, version, (enum qmd_field)f, value[f]);
      for (int bit = qmd_fields[f].lo[version - 3]; bit && bit <= qmd_fields[f].hi[version - 3]; bit++)
        left.at[bit / 32] &= ~(1u << bit % 32);
    }
    for (int i = 0; i < NV_QMD_WORDS; i++) assert_int_equal(left.at[i], 0);
    assert_int_equal(nv_qmd_bytes(version), version == 4 ? 3072 / 8 : 2048 / 8);
  }
}

// What a replay writes is all that a size changes.
static void sizes_are_a_few_words(void **state) {
  (void)state;
  for (int version = 3; version <= 4; version++) {
    nv_qmd before, after;
    unsigned words[NV_SIZE_WORDS], other[] = {3, 5, 7}, items[] = {31, 33, 64};
    int n = nv_qmd_size_words(version, words);
    assert_true(n >= 3 && n <= NV_SIZE_WORDS);
    nv_qmd_make(&before, version, &facts);
    nv_qmd_set_size(&before, version, grid, block);
    after = before;
    nv_qmd_set_size(&after, version, other, items);
    assert_int_not_equal(memcmp(&before, &after, sizeof before), 0);
    for (int i = 0; i < n; i++) before.at[words[i]] = after.at[words[i]];
    assert_memory_equal(&before, &after, sizeof before);
  }
}

static void memory_of_work_groups(void **state) {
  static const unsigned wants[][2] = {{1024, 9}, {32 << 10, 9}, {(32 << 10) + 256, 17}, {64 << 10, 17}, {99 << 10, 26}};
  (void)state;
  for (size_t i = 0; i < COUNT(wants); i++) {
    nv_launch_facts f = facts;
    nv_qmd q;
    f.shared_bytes = wants[i][0];
    nv_qmd_make(&q, 3, &f);
    expect(&q, 3, QMD_MIN_SM_CONFIG_SHARED_MEM_SIZE, wants[i][1]);
    expect(&q, 3, QMD_TARGET_SM_CONFIG_SHARED_MEM_SIZE, wants[i][1]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fields_are_where_the_headers_have_them),
                                     cmocka_unit_test(sizes_are_a_few_words), cmocka_unit_test(memory_of_work_groups)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
