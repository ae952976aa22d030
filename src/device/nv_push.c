// Writes method words: see nv_push.h.
#include "device/nv_push.h"
#include <stdlib.h>

#define METHOD(w, on, method, ...) \
  nv_method(w, on, method, (const uint32_t[]){__VA_ARGS__}, \
            (unsigned)(sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)))

enum { INCREASING = 1, REPEATING = 3, MOST_COPIED = 1 << 30 };

static uint32_t high(uint64_t x) { return (uint32_t)(x >> 32); }
static uint32_t low(uint64_t x) { return (uint32_t)x; }

void nv_words_free(nv_words *w) { vec_free(w); }

// clc56f.h, DMA_INCR_*: kind in bits 31:29, count in 28:16, subchannel in 15:13, method / 4 in 11:0.
static uint32_t header(unsigned kind, enum nv_subchannel on, unsigned method, unsigned n) {
  return kind << 29 | n << 16 | (uint32_t)on << 13 | method >> 2;
}

void nv_method(nv_words *w, enum nv_subchannel on, unsigned method, const uint32_t *values, unsigned n) {
  vec_push(w, header(INCREASING, on, method, n));
  for (unsigned i = 0; i < n; i++) vec_push(w, values[i]);
}

void nv_push_object(nv_words *w, enum nv_subchannel on, uint32_t class) { METHOD(w, on, NV_SET_OBJECT, class); }

void nv_push_windows(nv_words *w, uint64_t shared, uint64_t local) {
  METHOD(w, NV_ON_COMPUTE, NV_SHARED_WINDOW, high(shared), low(shared));
  METHOD(w, NV_ON_COMPUTE, NV_LOCAL_WINDOW, high(local), low(local));
}

void nv_push_local(nv_words *w, uint64_t at, uint64_t bytes_of_a_tpc, unsigned sms) {
  METHOD(w, NV_ON_COMPUTE, NV_LOCAL_MEMORY, high(at), low(at));
  METHOD(w, NV_ON_COMPUTE, NV_LOCAL_BYTES, high(bytes_of_a_tpc), low(bytes_of_a_tpc), sms);
}

void nv_push_forget(nv_words *w) {
  METHOD(w, NV_ON_COMPUTE, NV_FORGET_CACHES, NV_FORGET_CODE | NV_FORGET_DATA | NV_FORGET_CONSTANTS);
}

void nv_launch_words(uint32_t out[NV_LAUNCH_WORDS], uint64_t descriptor) {
  out[0] = header(INCREASING, NV_ON_COMPUTE, NV_SEND_LAUNCH, 1);
  out[1] = (uint32_t)(descriptor >> 8);
  out[2] = header(INCREASING, NV_ON_COMPUTE, NV_SEND_LAUNCH_ACTION, 1);
  out[3] = NV_PREFETCH_AND_SCHEDULE;
}

void nv_skip_words(uint32_t out[NV_LAUNCH_WORDS]) {
  out[0] = header(REPEATING, NV_ON_COMPUTE, NV_NOTHING, NV_LAUNCH_WORDS - 1);
  for (int i = 1; i < NV_LAUNCH_WORDS; i++) out[i] = 0;
}

void nv_push_launch(nv_words *w, uint64_t descriptor) {
  uint32_t words[NV_LAUNCH_WORDS];
  nv_launch_words(words, descriptor);
  for (int i = 0; i < NV_LAUNCH_WORDS; i++) vec_push(w, words[i]);
}

void nv_push_idle(nv_words *w) { METHOD(w, NV_ON_COMPUTE, NV_WAIT_FOR_IDLE, 0); }

void nv_push_signal(nv_words *w, uint64_t at, uint64_t value, bool time) {
  METHOD(w, NV_ON_HOST, NV_SEM_ADDRESS, low(at), high(at), low(value), high(value),
         NV_SEM_RELEASE | NV_SEM_WHEN_IDLE | NV_SEM_64 | (time ? NV_SEM_TIME : 0));
}

void nv_push_copy(nv_words *w, uint64_t to, uint64_t from, uint64_t n) {
  for (uint64_t at = 0; at < n; at += MOST_COPIED) {
    uint64_t part = n - at < MOST_COPIED ? n - at : MOST_COPIED;
    METHOD(w, NV_ON_COPY, NV_COPY_FROM, high(from + at), low(from + at), high(to + at), low(to + at));
    METHOD(w, NV_ON_COPY, NV_COPY_LENGTH, (uint32_t)part, 1);
    METHOD(w, NV_ON_COPY, NV_COPY_LAUNCH, NV_COPY_ALONE | NV_COPY_PLAIN);
  }
}

// Every element is the constant; lengths count elements.
void nv_push_fill(nv_words *w, uint64_t to, uint32_t value, uint64_t n) {
  METHOD(w, NV_ON_COPY, NV_COPY_CONSTANT, value);
  METHOD(w, NV_ON_COPY, NV_COPY_COMPONENTS, NV_COMPONENT_CONSTANT | NV_COMPONENT_4_BYTES);
  for (uint64_t at = 0; at < n; at += MOST_COPIED) {
    uint64_t part = n - at < MOST_COPIED ? n - at : MOST_COPIED;
    METHOD(w, NV_ON_COPY, NV_COPY_TO, high(to + at), low(to + at));
    METHOD(w, NV_ON_COPY, NV_COPY_LENGTH, (uint32_t)(part / 4), 1);
    METHOD(w, NV_ON_COPY, NV_COPY_LAUNCH, NV_COPY_ALONE | NV_COPY_PLAIN | NV_COPY_REMAP);
  }
}

void nv_push_copied(nv_words *w, uint64_t at, uint32_t value) {
  METHOD(w, NV_ON_COPY, NV_COPY_SEMAPHORE, high(at), low(at), value);
  METHOD(w, NV_ON_COPY, NV_COPY_LAUNCH, NV_COPY_FLUSH | NV_COPY_RELEASE);
}

// clc56f.h, GP_ENTRY: 40 bits of the address without its low two bits; bits 30:10 of the upper half: number of words;
// its bit 9: no other channel in between.
uint64_t nv_ring_entry(uint64_t at, size_t n_words) {
  if (at & 3 || at >> 40 || !n_words || n_words >> 21) die("NV: no entry for %zu words at 0x%llx", n_words,
                                                           (unsigned long long)at);
  return at | (uint64_t)n_words << 42 | 1ull << 41;
}
