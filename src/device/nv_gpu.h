// One of NVIDIA's GPUs with a channel of its own (DEV=NV): see nv.h. What is submitted runs in order, and every
// function that waits gives the GPU's memory back as the words left it.
#ifndef WEFT_DEVICE_NV_GPU_H
#define WEFT_DEVICE_NV_GPU_H
#include "device/nv.h"
#include "device/nv_push.h"
#include "device/nv_qmd.h"
#include "device/nv_rm.h"
#include "device/nvidia.h"
#include "device/remote.h"

// What the classes of a GPU are called, and which descriptors they take.
typedef struct nv_classes { uint32_t compute, copy, ring, doorbell; int qmd; } nv_classes;

// Addresses that stand for the work-group's and the item's own memory, where nothing else is.
#define NV_SHARED_WINDOW_AT 0x729400000000ull
#define NV_LOCAL_WINDOW_AT 0x729300000000ull

typedef struct nv_gpu {
  nv_rm rm;
  char name[72];
  nvidia gpu;
  nv_classes classes;
  unsigned gpcs, tpcs, sms, warps;         // of the GPU, of a GPC, of a TPC, of an SM: at most
  uint64_t bytes;                          // of memory
  str ptxas, ptxas_version;                // its path

  uint32_t space, group, context, channel, token;
  bool in_uvm;                             // the channel
  uint64_t ring_at;                        // entries, and behind them the channel's registers
  volatile uint32_t *doorbell;
  unsigned put;
  uint64_t area, notice_at;                // of this machine: signals and words; what the driver says of the channel
  uint64_t submitted, copied;              // what the semaphores become when all is done
  uint64_t staging;
  uint64_t half_busy[2];                   // of staging: what `copied` was when it was last used
  uint64_t local_at;
  unsigned local_bytes;                    // of an item
  bool lost;

  remote memory;
} nv_gpu;

// Opens the driver and finds out what there is; no channel yet. -1 and a sentence; nv_gpu_close either way.
int nv_gpu_find(nv_gpu *g, error *err);
int nv_gpu_start(nv_gpu *g, error *err);         // the channel
void nv_gpu_close(nv_gpu *g);
int nv_gpu_room(const nv_gpu *g, uint64_t *left);        // bytes of memory that are free

// Bytes of host memory where the value of a signal lands: number i of NV_SIGNALS, 16 bytes each; 0 and 1 are taken.
enum { NV_SIGNALS = 1024 };
uint64_t nv_signal_at(const nv_gpu *g, unsigned i);
uint64_t nv_signal_time(const nv_gpu *g, unsigned i);    // nanoseconds

// Launches: words in memory of the GPU, which end with nv_push_signal(nv_signal_at(0), nv_next_signal()). Returns when
// they are done. -1: what the GPU or the driver says; then it is lost.
uint64_t nv_next_signal(nv_gpu *g);
int nv_gpu_run(nv_gpu *g, uint64_t words, size_t n, error *err);
// The same of words that are this process's, which it completes.
int nv_gpu_run_words(nv_gpu *g, nv_words *w, error *err);

// Copies; to and from this process's memory they go through a piece of memory that both see. All are done afterwards.
int nv_gpu_write(nv_gpu *g, uint64_t to, const void *from, size_t n, error *err);
int nv_gpu_read(nv_gpu *g, void *to, uint64_t from, size_t n, error *err);
int nv_gpu_copy(nv_gpu *g, uint64_t to, uint64_t from, size_t n, error *err);
int nv_gpu_fill(nv_gpu *g, uint64_t to, unsigned char value, size_t n, error *err);
// Items get so many bytes of memory of their own, at least.
int nv_gpu_local(nv_gpu *g, unsigned bytes_of_an_item, error *err);
#endif
