// An NVIDIA GPU with its own channel (DEV=NV): see nv.h. Submitted work runs in order, and a function that waits
// returns after all of it is done.
#ifndef WEFT_DEVICE_NV_GPU_H
#define WEFT_DEVICE_NV_GPU_H
#include "device/nv.h"
#include "device/nv_push.h"
#include "device/nv_qmd.h"
#include "device/nv_rm.h"
#include "device/nvidia.h"
#include "device/remote.h"

// Class numbers of a GPU, and the version of its launch descriptors.
typedef struct nv_classes { uint32_t compute, copy, ring, doorbell; int qmd; } nv_classes;

// Addresses reserved as windows for work-group and local memory.
#define NV_SHARED_WINDOW_AT 0x729400000000ull
#define NV_LOCAL_WINDOW_AT 0x729300000000ull

typedef struct nv_gpu {
  nv_rm rm;
  char name[72];
  nvidia gpu;
  nv_classes classes;
  unsigned gpcs, tpcs, sms, warps;         // of the GPU, per GPC, per TPC, per SM: maxima
  uint64_t bytes;                          // of GPU memory
  str ptxas, ptxas_version;                // its path

  uint32_t space, group, context, channel, token;
  bool in_uvm;                             // the channel is registered
  uint64_t ring_at;                        // entries, followed by the channel's registers
  volatile uint32_t *doorbell;
  unsigned put;
  uint64_t area, notice_at;                // host memory: signals and words; the driver's notice about the channel
  uint64_t submitted, copied;              // values of the semaphores when all work is done
  uint64_t staging;
  uint64_t half_busy[2];                   // for each half of staging: value of `copied` at its last use
  uint64_t local_at;
  unsigned local_bytes;                    // per work-item
  bool lost;

  remote memory;
} nv_gpu;

// Opens the driver and identifies the GPU, without a channel. Returns -1 and a message; call nv_gpu_close in either
// case.
int nv_gpu_find(nv_gpu *g, error *err);
int nv_gpu_start(nv_gpu *g, error *err);         // makes the channel
void nv_gpu_close(nv_gpu *g);
int nv_gpu_room(const nv_gpu *g, uint64_t *left);        // free bytes of GPU memory

// Address in host memory of signal i of NV_SIGNALS, 16 bytes each; 0 and 1 are reserved.
enum { NV_SIGNALS = 1024 };
uint64_t nv_signal_at(const nv_gpu *g, unsigned i);
uint64_t nv_signal_time(const nv_gpu *g, unsigned i);    // nanoseconds

// Submits launches: words in GPU memory that end with nv_push_signal(nv_signal_at(0), nv_next_signal()). Returns when
// they are done. -1 and the error of the GPU or driver; the GPU is then lost.
uint64_t nv_next_signal(nv_gpu *g);
int nv_gpu_run(nv_gpu *g, uint64_t words, size_t n, error *err);
// Submits words of this process and appends the signal.
int nv_gpu_run_words(nv_gpu *g, nv_words *w, error *err);

// Copies; data of this process goes through staging memory that both see. Returns when they are done.
int nv_gpu_write(nv_gpu *g, uint64_t to, const void *from, size_t n, error *err);
int nv_gpu_read(nv_gpu *g, void *to, uint64_t from, size_t n, error *err);
int nv_gpu_copy(nv_gpu *g, uint64_t to, uint64_t from, size_t n, error *err);
int nv_gpu_fill(nv_gpu *g, uint64_t to, unsigned char value, size_t n, error *err);
// Ensures at least this much local memory per work-item.
int nv_gpu_local(nv_gpu *g, unsigned bytes_of_an_item, error *err);
#endif
