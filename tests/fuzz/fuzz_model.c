// Fuzzes models: the input is the head of a GGUF file (keys, names and shapes of tensors), and behind it lies as much
// data as any of them asks for.  Reading, describing, graphs for one and for two sequences, tokenizer and template end
// with an error that names the file or are all there; one accepted head of RUN_ONE_IN, if it is small, also runs, on
// the reference device, with two sequences.  Changes know what a head is: model_change.h.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memory_file.h"
#include "model_change.h"
#include "model_use.h"

enum { FILE_BYTES = 48 << 20, HEAD_MOST = 1 << 20, RUN_ONE_IN = 64, RUN_ELEMENTS = 3 << 20 };

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed) {
  static head h;
  if (seed % 16 == 0 || !head_read(&h, data, size)) return LLVMFuzzerMutate(data, size, max);
  static uint8_t out[HEAD_MOST];
  head_change(&h, seed);
  size_t n = head_write(&h, out, max < sizeof out ? max : sizeof out);
  if (!n) return LLVMFuzzerMutate(data, size, max);
  memcpy(data, out, n);
  return n;
}

static memory_file in;

// Few enough weights for a device that computes one number after the other.
static bool is_small(const gguf *file) {
  uint64_t n = 0;
  for (size_t i = 0; i < gguf_n_tensors(file); i++) {
    const int64_t *ne = gguf_tensor_at(file, i)->ne;
    n += (uint64_t)(ne[0] * ne[1] * ne[2] * ne[3]);
  }
  return n <= RUN_ELEMENTS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!in.at) memory_file_make(&in, FILE_BYTES);
  if (size > HEAD_MOST) return 0;
  gguf *file;
  error err = {0};
  bool runs = false;
  memory_file_begin(&in, data, size);
  if (!gguf_open_memory(in.at, FILE_BYTES, "fuzz.gguf", &file, &err)) {
    runs = use_model(file) && is_small(file);
    use_tokenizer(file);
    use_template(file);
  } else if (strncmp(err.text, "fuzz.gguf: ", 11)) die("the error '%s' does not name the file", err.text);
  gguf_close(file);
  if (runs && hash_bytes(data, size, 1) % RUN_ONE_IN == 0) use_run(in.path);
  memory_file_fill(&in, 0, size);
  return 0;
}
