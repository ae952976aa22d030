// Where the fields of a launch's descriptor lie, for tests: a second reading of NVIDIA's published headers, which knows
// nothing of src/device/nv_qmd.c. Highest and lowest bit in version 3.0 (open-gpu-doc, classes/compute/clc6c0qmd.h,
// names NVC6C0_QMDV03_00_*; the same in clc7c0qmd.h and clc9c0qmd.h) and in version 4.0 (clcbc0qmd.h,
// NVCBC0_QMDV04_00_*); 0, 0: there is none. Names are those of version 4; version 3 says CTA_RASTER_* for GRID_*,
// REGISTER_COUNT_V, QMD_VERSION for the minor one, and has constants' addresses as they are, where version 4 has them
// in units of 64 bytes.
#ifndef WEFT_TEST_QMD_H
#define WEFT_TEST_QMD_H
#include <stdint.h>

#define QMD_FIELDS(F) \
  F(QMD_GROUP_ID, 133, 128, 21, 16) \
  F(QMD_TYPE, 0, 0, 25, 23) \
  F(SM_GLOBAL_CACHING_ENABLE, 134, 134, 0, 0) \
  F(INVALIDATE_TEXTURE_HEADER_CACHE, 186, 186, 602, 602) \
  F(INVALIDATE_TEXTURE_SAMPLER_CACHE, 187, 187, 603, 603) \
  F(INVALIDATE_TEXTURE_DATA_CACHE, 188, 188, 604, 604) \
  F(INVALIDATE_SHADER_DATA_CACHE, 189, 189, 605, 605) \
  F(CWD_MEMBAR_TYPE, 369, 368, 1137, 1136) \
  F(API_VISIBLE_CALL_LIMIT, 378, 378, 568, 568) \
  F(SAMPLER_INDEX, 382, 382, 569, 569) \
  F(QMD_MAJOR_VERSION, 583, 580, 583, 580) \
  F(QMD_MINOR_VERSION, 579, 576, 579, 576) \
  F(GRID_WIDTH, 415, 384, 1055, 1024) \
  F(GRID_HEIGHT, 431, 416, 1071, 1056) \
  F(GRID_DEPTH, 463, 448, 1103, 1088) \
  F(CTA_THREAD_DIMENSION0, 607, 592, 1167, 1152) \
  F(CTA_THREAD_DIMENSION1, 623, 608, 1183, 1168) \
  F(CTA_THREAD_DIMENSION2, 639, 624, 1199, 1184) \
  F(SHARED_MEMORY_SIZE, 561, 544, 601, 584) \
  F(MIN_SM_CONFIG_SHARED_MEM_SIZE, 567, 562, 613, 608) \
  F(MAX_SM_CONFIG_SHARED_MEM_SIZE, 574, 569, 619, 614) \
  F(TARGET_SM_CONFIG_SHARED_MEM_SIZE, 662, 657, 625, 620) \
  F(REGISTER_COUNT, 656, 648, 1208, 1200) \
  F(BARRIER_COUNT, 767, 763, 1215, 1211) \
  F(SHADER_LOCAL_MEMORY_HIGH_SIZE, 1623, 1600, 567, 544) \
  F(SASS_VERSION, 1663, 1656, 543, 536) \
  F(PROGRAM_ADDRESS_LOWER, 1567, 1536, 1247, 1216) \
  F(PROGRAM_ADDRESS_UPPER, 1584, 1568, 1272, 1248) \
  F(PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED, 287, 256, 1375, 1344) \
  F(PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED, 1640, 1632, 1392, 1376) \
  F(PROGRAM_PREFETCH_SIZE, 1649, 1641, 1401, 1393) \
  F(CONSTANT_BUFFER_VALID, 640, 640, 416, 416) \
  F(CONSTANT_BUFFER_ADDR_LOWER, 1055, 1024, 1567, 1536) \
  F(CONSTANT_BUFFER_ADDR_UPPER, 1072, 1056, 1586, 1568) \
  F(CONSTANT_BUFFER_INVALIDATE, 1074, 1074, 419, 419) \
  F(CONSTANT_BUFFER_SIZE_SHIFTED4, 1087, 1075, 1599, 1587)

enum qmd_field {
#define F(name, hi3, lo3, hi4, lo4) QMD_##name,
  QMD_FIELDS(F)
#undef F
  QMD_N_FIELDS
};

static const struct { const char *name; int hi[2], lo[2]; } qmd_fields[] = {
#define F(name, hi3, lo3, hi4, lo4) {#name, {hi3, hi4}, {lo3, lo4}},
  QMD_FIELDS(F)
#undef F
};

// bit by bit, so that nothing has to be known of words
static inline uint64_t qmd_get(const void *qmd, int version, enum qmd_field f) {
  uint64_t value = 0;
  for (int bit = qmd_fields[f].hi[version - 3]; qmd_fields[f].hi[version - 3] && bit >= qmd_fields[f].lo[version - 3];
       bit--)
    value = value << 1 | (((const uint8_t *)qmd)[bit / 8] >> bit % 8 & 1);
  return value;
}
#endif
