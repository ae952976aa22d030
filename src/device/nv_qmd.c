// Launch descriptors: see nv_qmd.h.
//
// A field is given by its highest and lowest bit from the beginning of the descriptor, as in the headers. Each row has
// the field's place in both versions.
#include "device/nv_qmd.h"
#include <string.h>

typedef struct place { uint16_t hi, lo; } place;         // {0, 0}: this version has no such field
enum field {
  GROUP_ID,
  TYPE,
  GLOBAL_CACHING,
  FORGET_TEXTURE_HEADERS,
  FORGET_SAMPLERS,
  FORGET_TEXTURES,
  FORGET_DATA,
  MEMBAR,
  CALL_LIMIT,
  SAMPLER_INDEX,
  MAJOR_VERSION,
  GRID_X,
  GRID_Y,
  GRID_Z,
  BLOCK_X,
  BLOCK_Y,
  BLOCK_Z,
  SHARED_BYTES,
  SM_SHARED_LEAST,
  SM_SHARED_MOST,
  SM_SHARED_WANTED,
  REGISTERS,
  BARRIERS,
  LOCAL_BYTES,
  SASS,
  CODE_LOW,
  CODE_HIGH,
  PREFETCH_LOW,
  PREFETCH_HIGH,
  PREFETCH_SIZE,
  CONSTANTS_VALID,
  CONSTANTS_LOW,
  CONSTANTS_HIGH,
  CONSTANTS_FORGET,
  CONSTANTS_SIZE,
  N_FIELDS
};
static const place places[N_FIELDS][2] = {
  [GROUP_ID] = {{133, 128}, {21, 16}},
  [TYPE] = {{0, 0}, {25, 23}},
  [GLOBAL_CACHING] = {{134, 134}, {0, 0}},
  [FORGET_TEXTURE_HEADERS] = {{186, 186}, {602, 602}},
  [FORGET_SAMPLERS] = {{187, 187}, {603, 603}},
  [FORGET_TEXTURES] = {{188, 188}, {604, 604}},
  [FORGET_DATA] = {{189, 189}, {605, 605}},
  [MEMBAR] = {{369, 368}, {1137, 1136}},
  [CALL_LIMIT] = {{378, 378}, {568, 568}},
  [SAMPLER_INDEX] = {{382, 382}, {569, 569}},
  [MAJOR_VERSION] = {{583, 580}, {583, 580}},
  [GRID_X] = {{415, 384}, {1055, 1024}},
  [GRID_Y] = {{431, 416}, {1071, 1056}},
  [GRID_Z] = {{463, 448}, {1103, 1088}},
  [BLOCK_X] = {{607, 592}, {1167, 1152}},
  [BLOCK_Y] = {{623, 608}, {1183, 1168}},
  [BLOCK_Z] = {{639, 624}, {1199, 1184}},
  [SHARED_BYTES] = {{561, 544}, {601, 584}},
  [SM_SHARED_LEAST] = {{567, 562}, {613, 608}},
  [SM_SHARED_MOST] = {{574, 569}, {619, 614}},
  [SM_SHARED_WANTED] = {{662, 657}, {625, 620}},
  [REGISTERS] = {{656, 648}, {1208, 1200}},
  [BARRIERS] = {{767, 763}, {1215, 1211}},
  [LOCAL_BYTES] = {{1623, 1600}, {567, 544}},            // SHADER_LOCAL_MEMORY_HIGH_SIZE: counted from the window's end
  [SASS] = {{1663, 1656}, {543, 536}},
  [CODE_LOW] = {{1567, 1536}, {1247, 1216}},
  [CODE_HIGH] = {{1584, 1568}, {1272, 1248}},
  [PREFETCH_LOW] = {{287, 256}, {1375, 1344}},
  [PREFETCH_HIGH] = {{1640, 1632}, {1392, 1376}},
  [PREFETCH_SIZE] = {{1649, 1641}, {1401, 1393}},
  // for constant bank 0; other banks follow at a distance of between_banks bits; version 4 has addresses in units of 64
  // bytes
  [CONSTANTS_VALID] = {{640, 640}, {416, 416}},
  [CONSTANTS_LOW] = {{1055, 1024}, {1567, 1536}},
  [CONSTANTS_HIGH] = {{1072, 1056}, {1586, 1568}},
  [CONSTANTS_FORGET] = {{1074, 1074}, {419, 419}},
  [CONSTANTS_SIZE] = {{1087, 1075}, {1599, 1587}},
};

static const int between_banks[N_FIELDS][2] = {[CONSTANTS_VALID] = {1, 4}, [CONSTANTS_LOW] = {64, 64},
                                               [CONSTANTS_HIGH] = {64, 64}, [CONSTANTS_FORGET] = {64, 4},
                                               [CONSTANTS_SIZE] = {64, 64}};

static place field_place(int version, enum field f) { return places[f][version == 4]; }

// No field used here crosses a word.
static void set_place(nv_qmd *q, place p, enum field f, uint64_t value) {
  unsigned width = p.hi - p.lo + 1u, at = p.lo % 32;
  uint32_t mask = (uint32_t)((1ull << width) - 1) << at;
  if (p.hi / 32 != p.lo / 32 || value >> width)
    die("NV: field %d of a descriptor cannot be 0x%llx", (int)f, (unsigned long long)value);
  uint32_t *word = &q->at[p.lo / 32];
  *word = (*word & ~mask) | ((uint32_t)value << at & mask);
}

static void set_field(nv_qmd *q, int version, enum field f, uint64_t value) {
  place p = field_place(version, f);
  if (p.hi) set_place(q, p, f, value);
}

static void set_bank(nv_qmd *q, int version, int bank, enum field f, uint64_t value) {
  place p = field_place(version, f);
  uint16_t further = (uint16_t)(bank * between_banks[f][version == 4]);
  set_place(q, (place){p.hi + further, p.lo + further}, f, value);
}

size_t nv_qmd_bytes(int version) { return version == 4 ? 384 : 256; }

// The share of an SM's fast memory for work-groups: KiB / 4, plus one.
static unsigned shared_config(unsigned shared_bytes) {
  static const unsigned sizes[] = {32 << 10, 64 << 10, 100 << 10};
  for (size_t i = 0; i < COUNT(sizes); i++) if (shared_bytes <= sizes[i]) return sizes[i] / 4096 + 1;
  die("NV: %u bytes of a work-group's memory", shared_bytes);
}

void nv_qmd_make(nv_qmd *q, int version, const nv_launch_facts *f) {
  enum { TYPE_GRID = 2, SYSTEM_MEMBAR = 1, NO_CHECK = 1, LARGEST_CONFIG = 100 / 4 + 1, MOST_PREFETCH = 0x1ff };
  unsigned config = shared_config(f->shared_bytes);
  memset(q, 0, sizeof *q);
  set_field(q, version, MAJOR_VERSION, (uint64_t)version);
  set_field(q, version, TYPE, TYPE_GRID);
  set_field(q, version, GROUP_ID, 0x3f);
  set_field(q, version, GLOBAL_CACHING, 1);
  set_field(q, version, FORGET_TEXTURE_HEADERS, 1);
  set_field(q, version, FORGET_SAMPLERS, 1);
  set_field(q, version, FORGET_TEXTURES, 1);
  set_field(q, version, FORGET_DATA, 1);
  set_field(q, version, MEMBAR, SYSTEM_MEMBAR);
  set_field(q, version, CALL_LIMIT, NO_CHECK);
  set_field(q, version, SAMPLER_INDEX, 1);
  set_field(q, version, SHARED_BYTES, f->shared_bytes);
  set_field(q, version, SM_SHARED_LEAST, config);
  set_field(q, version, SM_SHARED_WANTED, config);
  set_field(q, version, SM_SHARED_MOST, LARGEST_CONFIG);
  set_field(q, version, REGISTERS, f->registers);
  set_field(q, version, BARRIERS, f->barriers);
  set_field(q, version, LOCAL_BYTES, f->local_bytes);
  set_field(q, version, SASS, f->sass);
  set_field(q, version, CODE_LOW, f->code & UINT32_MAX);
  set_field(q, version, CODE_HIGH, f->code >> 32);
  set_field(q, version, PREFETCH_LOW, f->code >> 8 & UINT32_MAX);
  set_field(q, version, PREFETCH_HIGH, f->code >> 40);
  set_field(q, version, PREFETCH_SIZE, f->code_bytes >> 8 < MOST_PREFETCH ? f->code_bytes >> 8 : MOST_PREFETCH);
  for (int i = 0; i < (int)COUNT(f->constants); i++) {
    if (!f->constants[i].bytes) continue;
    uint64_t at = version == 4 ? f->constants[i].at >> 6 : f->constants[i].at;
    set_bank(q, version, i, CONSTANTS_VALID, 1);
    set_bank(q, version, i, CONSTANTS_LOW, at & UINT32_MAX);
    set_bank(q, version, i, CONSTANTS_HIGH, at >> 32);
    set_bank(q, version, i, CONSTANTS_FORGET, 1);
    set_bank(q, version, i, CONSTANTS_SIZE, (f->constants[i].bytes + 15) / 16);
  }
}

static const enum field sizes[] = {GRID_X, GRID_Y, GRID_Z, BLOCK_X, BLOCK_Y, BLOCK_Z};

void nv_qmd_set_size(nv_qmd *q, int version, const unsigned grid[3], const unsigned block[3]) {
  for (int i = 0; i < 3; i++) {
    set_field(q, version, sizes[i], grid[i]);
    set_field(q, version, sizes[3 + i], block[i]);
  }
}

int nv_qmd_size_words(int version, unsigned out[NV_SIZE_WORDS]) {
  int n = 0;
  for (size_t i = 0; i < COUNT(sizes); i++) {
    unsigned word = field_place(version, sizes[i]).lo / 32u;
    if (!n || out[n - 1] != word) out[n++] = word;
  }
  return n;
}
