// Fuzzes adapters and control vectors: the input is the heads of two GGUF files, a model's and one that changes it
// (four bytes, the length of the first one, lowest first).  A file that is taken for the model has graphs for one and
// for two sequences and numbers that can be read; any other is an error that names it.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memory_file.h"
#include "model_change.h"
#include "model_use.h"

enum { MODEL_BYTES = 16 << 20, ADAPTER_BYTES = 8 << 20, HEADS_MOST = 1 << 17 };

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Bytes of the first head; 0: the input is none.
static size_t first_of(const uint8_t *data, size_t size) {
  if (size < 8 || size > HEADS_MOST) return 0;
  size_t n = data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16;
  return data[3] || n > size - 4 ? 0 : n;
}

// Three of four changes are to the second head.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed) {
  static head h;
  static uint8_t out[HEADS_MOST];
  size_t n = first_of(data, size), room = max < sizeof out ? max : sizeof out, made;
  bool model = seed % 4 == 0;
  const uint8_t *second = data + 4 + n;
  if (!n || seed % 32 == 1 || !head_read(&h, model ? data + 4 : second, model ? n : size - 4 - n))
    return LLVMFuzzerMutate(data, size, max);
  head_change(&h, seed);
  if (room < size) return LLVMFuzzerMutate(data, size, max);
  if (model) {
    made = head_write(&h, out + 4, room - (size - n));
    memcpy(out + 4 + made, second, size - 4 - n);
  } else {
    memcpy(out, data, 4 + n);
    made = head_write(&h, out + 4 + n, room - 4 - n);
  }
  if (!made) return LLVMFuzzerMutate(data, size, max);
  for (int i = 0; i < 4; i++) out[i] = (uint8_t)((model ? made : n) >> 8 * i);
  size_t all = model ? size - n + made : 4 + n + made;
  memcpy(data, out, all);
  return all;
}

static memory_file base, added;

static void use_adapted(const model *m, bool adapter) {
  error err = {0};
  model_shape shape = {.page = MODEL_PAGE, .tile = 8, .pages = 2, .slots = 2, .ctx = MODEL_PAGE, .n_ctx = MODEL_PAGE,
                       .chunk = 4, .logits = model_is_encoder(m) ? LOGITS_HIDDEN : LOGITS_LAST, .adapted = adapter};
  for (int two = 0; two < 2; two++) {
    graph *g = graph_new(NULL);
    if (two) shape.apart = true, shape.chunk = 2, shape.logits = LOGITS_ALL;
    model_graph(m, g, &shape);
    if (adapter && model_adapters_used(m, &err) && !err.text[0]) die("an adapter is not used, without a word");
    graph_free(g);
    if (model_is_encoder(m) || model_is_recurrent(m)) return;
  }
}

static void use_file(const gguf *file, bool control) {
  model *m;
  error err = {0};
  const control_file c = {.path = added.path, .scale = 0.5, .from = 1};
  if (model_open(file, (model_kv){0}, &m, &err)) return;
  if (control ? model_control(m, &c, &err) : model_adapt(m, added.path, 0.5, &err)) {
    if (!strstr(err.text, added.path)) die("the error '%s' does not name the file", err.text);
  } else use_adapted(m, !control);
  sha256 s;
  char digest[65];
  sha256_begin(&s);
  model_digest_adapters(m, &s);
  model_digest_control(m, &s);
  sha256_end(&s, digest);
  model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  size_t n = first_of(data, size);
  gguf *file;
  error err = {0};
  if (!base.at) memory_file_make(&base, MODEL_BYTES), memory_file_make(&added, ADAPTER_BYTES);
  if (!n) return 0;
  memory_file_begin(&base, data + 4, n);
  memory_file_begin(&added, data + 4 + n, size - 4 - n);
  if (!gguf_open_memory(base.at, base.n, "fuzz.gguf", &file, &err)) {
    use_file(file, false);
    use_file(file, true);
  }
  gguf_close(file);
  memory_file_fill(&base, 0, n);
  memory_file_fill(&added, 0, size);
  return 0;
}
