// What driver.c (the driver's files) and gpu.c (the GPU behind them) share.
#ifndef WEFT_TEST_FAKE_NV_H
#define WEFT_TEST_FAKE_NV_H
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include "base/base.h"
#include "device/nv_abi.h"

typedef struct object { uint32_t handle, parent, class; uint64_t size; int file; bool live; } object;
// of the GPU's addresses; seen: this process has them as well, all the time
typedef struct mapping { uint64_t at, size; uint32_t memory; bool seen; } mapping;
typedef struct channel {
  uint32_t handle;
  uint64_t ring, registers, notice;        // addresses
  uint32_t entries, compute, copy;         // classes of its objects
  bool scheduled, registered;
} channel;

extern struct fake {
  pthread_mutex_t lock;
  FILE *log;
  int sm;
  VEC(mapping) mappings;
  channel channel;
  volatile uint32_t *doorbell;             // of this library's own mapping
} fake;

const char *fake_setting(const char *name, const char *otherwise);
void fake_note(const char *fmt, ...) PRINTF_LIKE(1, 2);
void fake_fault(const char *fmt, ...) PRINTF_LIKE(1, 2);
bool fake_is_mapped(uint64_t at, size_t n);      // for the GPU
enum { FAKE_TOKEN = 0x4321 };
// Reads the ring for ever: the GPU.
void *fake_gpu(void *nothing);
#endif
