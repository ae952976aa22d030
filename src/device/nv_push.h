// What a channel of NVIDIA's GPUs reads (DEV=NV): words of methods, and entries of the ring that name them. Nothing
// here touches a device. Numbers are those of NVIDIA's published class headers (open-gpu-doc, classes/): host/clc56f.h
// for the channel, compute/clc6c0.h to clcbc0.h, dma-copy/clc6b5.h to clc8b5.h. They are the same for all of these
// classes.
#ifndef WEFT_DEVICE_NV_PUSH_H
#define WEFT_DEVICE_NV_PUSH_H
#include "base/base.h"

typedef struct nv_words { uint32_t *at; size_t n, cap; } nv_words;     // a VEC

// The numbers of subchannels are ours to choose: each has one object.
enum nv_subchannel { NV_ON_HOST = 0, NV_ON_COMPUTE = 1, NV_ON_COPY = 4 };

enum nv_host_method { NV_SEM_ADDRESS = 0x5c, NV_SEM_PAYLOAD = 0x64, NV_SEM_EXECUTE = 0x6c };
// of NV_SEM_EXECUTE
enum { NV_SEM_RELEASE = 1, NV_SEM_WHEN_IDLE = 1 << 20, NV_SEM_64 = 1 << 24, NV_SEM_TIME = 1 << 25 };
enum nv_compute_method {
  NV_SET_OBJECT = 0,                   // of the copy engine as well
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
enum { NV_PREFETCH_AND_SCHEDULE = 9 };                 // of NV_SEND_LAUNCH_ACTION
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
// of NV_COPY_LAUNCH
enum {
  NV_COPY_PIPELINED = 1,
  NV_COPY_ALONE = 2,                   // after what was before
  NV_COPY_FLUSH = 1 << 2,
  NV_COPY_RELEASE = 1 << 3,            // one word
  NV_COPY_PLAIN = 3 << 7,              // both sides as they lie in memory
  NV_COPY_REMAP = 1 << 10
};
enum { NV_COMPONENT_CONSTANT = 4, NV_COMPONENT_4_BYTES = 3 << 16 };    // of NV_COPY_COMPONENTS: x; one of each

void nv_words_free(nv_words *w);
// n words for a method and those behind it
void nv_method(nv_words *w, enum nv_subchannel on, unsigned method, const uint32_t *values, unsigned n);
void nv_push_object(nv_words *w, enum nv_subchannel on, uint32_t class);
// where addresses stand for the work-group's memory and for an item's own: 16 MiB each
void nv_push_windows(nv_words *w, uint64_t shared, uint64_t local);
void nv_push_local(nv_words *w, uint64_t at, uint64_t bytes_of_a_tpc, unsigned sms);
void nv_push_forget(nv_words *w);                          // all caches of shaders
// NV_LAUNCH_WORDS for a descriptor (nv_qmd.h), which begins at a multiple of 256 below 1 TiB
enum { NV_LAUNCH_WORDS = 4 };
void nv_push_launch(nv_words *w, uint64_t descriptor);
void nv_launch_words(uint32_t out[NV_LAUNCH_WORDS], uint64_t descriptor);
void nv_skip_words(uint32_t out[NV_LAUNCH_WORDS]);         // as many that do nothing
void nv_push_idle(nv_words *w);                            // what follows waits for all launches before
// When all before is done: 8 bytes become value; time: and the 8 behind them nanoseconds. NV_SIGNAL_VALUE: where in its
// words the value is.
enum { NV_SIGNAL_VALUE = 3 };
void nv_push_signal(nv_words *w, uint64_t at, uint64_t value, bool time);
void nv_push_copy(nv_words *w, uint64_t to, uint64_t from, uint64_t n);
// n: a multiple of 4, as is where it begins
void nv_push_fill(nv_words *w, uint64_t to, uint32_t value, uint64_t n);
void nv_push_copied(nv_words *w, uint64_t at, uint32_t value);         // when all copies before are done: 4 bytes
uint64_t nv_ring_entry(uint64_t at, size_t n_words);
#endif
