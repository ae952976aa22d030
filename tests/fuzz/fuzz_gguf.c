// Fuzzes the GGUF validator: any bytes must give an error that names the file, or a description all of which can be
// read.
#include "model/gguf.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

// Touches every byte, so that the sanitizer sees one that is not there.
static void touch(const void *data, size_t n) {
  volatile unsigned char sink = 0;
  for (size_t i = 0; i < n; i++) sink = ((const unsigned char *)data)[i];
  (void)sink;
}

static void read_all(const gguf *g) {
  str s = {0};
  arena *a = arena_new();
  for (size_t i = 0; i < gguf_n_kv(g); i++) {
    const gguf_kv *kv = gguf_kv_at(g, i);
    error err = {0};
    const uint32_t *us;
    size_t n;
    if (gguf_find(g, kv->key) != &kv->value) die("key '%s' is not found", kv->key);
    gguf_type_print(&s, &kv->value);
    gguf_value_print(&s, &kv->value, i % 2 ? 0 : 3);
    if (gguf_u32s(g, kv->key, a, &us, &n, &err) && !err.text[0]) die("an error without text");
    s.n = 0;
  }
  for (size_t i = 0; i < gguf_n_tensors(g); i++) {
    const gguf_tensor *t = gguf_tensor_at(g, i);
    if (gguf_tensor_find(g, t->name) != t) die("tensor '%s' is not found", t->name);
    touch(t->data, t->nbytes);
  }
  arena_free(a);
  str_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  gguf *g;
  error err = {0};
  void *copy = xmalloc(n);                   // of exactly the size, and aligned
  if (n) memcpy(copy, data, n);
  if (!gguf_open_memory(copy, n, "fuzz.gguf", &g, &err)) read_all(g);
  else if (strncmp(err.text, "fuzz.gguf: ", 11)) die("the error '%s' does not name the file", err.text);
  gguf_close(g);
  free(copy);
  return 0;
}
