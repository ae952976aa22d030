// The words that a channel of an NVIDIA GPU reads (DEV=NV): method words, and ring entries that point to them. This
// code touches no device. Numbers are from NVIDIA's published class headers (open-gpu-doc, classes/): host/clc56f.h for
// the channel, compute/clc6c0.h to clcbc0.h, dma-copy/clc6b5.h to clc8b5.h. All of these classes use equal numbers.
#ifndef WEFT_DEVICE_NV_PUSH_H
#define WEFT_DEVICE_NV_PUSH_H
#include "base/base.h"

typedef struct nv_words { uint32_t *at; size_t n, cap; } nv_words;     // a VEC

// Subchannel numbers can be chosen freely: each has one object.
enum nv_subchannel { NV_ON_HOST = 0, NV_ON_COMPUTE = 1, NV_ON_COPY = 4 };

enum nv_host_method { NV_SEM_ADDRESS = 0x5c, NV_SEM_PAYLOAD = 0x64, NV_SEM_EXECUTE = 0x6c };
// values of NV_SEM_EXECUTE
enum { NV_SEM_RELEASE = 1, NV_SEM_WHEN_IDLE = 1 << 20, NV_SEM_64 = 1 << 24, NV_SEM_TIME = 1 << 25 };
enum nv_compute_method {
  NV_SET_OBJECT = 0,                   // also of the copy engine
  NV_NOTHING = 0x100,
  NV_WAIT_FOR_IDLE = 0x110,
  NV_SHARED_WINDOW = 0x2a0,
  NV_SEND_LAUNCH = 0x2b4,              // SEND_PCAS_A
  NV_SEND_LAUNCH_ACTION = 0x2c0,       // SEND_SIGNALING_PCAS2_B
  NV_LOCAL_BYTES = 0x2e4,              // SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A
  NV_LOCAL_MEMORY = 0x790,
  NV_LOCAL_WINDOW = 0x7b0,
  NV_FORGET_CACHES = 0x1698            // INVALIDATE_SHADER_CACHES_NO_WFI
};
enum { NV_PREFETCH_AND_SCHEDULE = 9 };                 // value of NV_SEND_LAUNCH_ACTION
enum { NV_FORGET_CODE = 1, NV_FORGET_DATA = 1 << 4, NV_FORGET_CONSTANTS = 1 << 12 };
enum nv_copy_method {
  NV_COPY_SEMAPHORE = 0x240,
  NV_COPY_LAUNCH = 0x300,
  NV_COPY_FROM = 0x400,
  NV_COPY_TO = 0x408,
  NV_COPY_LENGTH = 0x418,              // and LINE_COUNT
  NV_COPY_CONSTANT = 0x700,
  NV_COPY_COMPONENTS = 0x708
};
// values of NV_COPY_LAUNCH
enum {
  NV_COPY_PIPELINED = 1,
  NV_COPY_ALONE = 2,                   // after preceding copies
  NV_COPY_FLUSH = 1 << 2,
  NV_COPY_RELEASE = 1 << 3,            // of one word
  NV_COPY_PLAIN = 3 << 7,              // linear memory on both sides
  NV_COPY_REMAP = 1 << 10
};
// values of NV_COPY_COMPONENTS: a constant; one 4-byte component
enum { NV_COMPONENT_CONSTANT = 4, NV_COMPONENT_4_BYTES = 3 << 16 };

void nv_words_free(nv_words *w);
// writes n words for a method and the following ones
void nv_method(nv_words *w, enum nv_subchannel on, unsigned method, const uint32_t *values, unsigned n);
void nv_push_object(nv_words *w, enum nv_subchannel on, uint32_t class);
// sets the windows for work-group memory and local memory: 16 MiB each
void nv_push_windows(nv_words *w, uint64_t shared, uint64_t local);
void nv_push_local(nv_words *w, uint64_t at, uint64_t bytes_of_a_tpc, unsigned sms);
void nv_push_forget(nv_words *w);                          // invalidates all shader caches
// NV_LAUNCH_WORDS for a descriptor (nv_qmd.h), at a multiple of 256 below 1 TiB
enum { NV_LAUNCH_WORDS = 4 };
void nv_push_launch(nv_words *w, uint64_t descriptor);
void nv_launch_words(uint32_t out[NV_LAUNCH_WORDS], uint64_t descriptor);
void nv_skip_words(uint32_t out[NV_LAUNCH_WORDS]);         // as many no-op words
void nv_push_idle(nv_words *w);                            // later work waits for all earlier launches
// When all earlier work is done: writes value (8 bytes) and, with `time`, the time in nanoseconds (8 bytes).
// NV_SIGNAL_VALUE: index of the value in its words.
enum { NV_SIGNAL_VALUE = 3 };
void nv_push_signal(nv_words *w, uint64_t at, uint64_t value, bool time);
void nv_push_copy(nv_words *w, uint64_t to, uint64_t from, uint64_t n);
// n and the address are multiples of 4
void nv_push_fill(nv_words *w, uint64_t to, uint32_t value, uint64_t n);
// writes value (4 bytes) when all earlier copies are done
void nv_push_copied(nv_words *w, uint64_t at, uint32_t value);
uint64_t nv_ring_entry(uint64_t at, size_t n_words);
#endif
