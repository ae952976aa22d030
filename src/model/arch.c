// The table of architectures. A row says how a family differs from the plain decoder that model_graph.c builds; hyper-parameters come
// from the file, under the architecture's name.
#include <string.h>
#include "model/model_impl.h"

static const arch table[] = {
  {.name = "llama"},
  {.name = "qwen2", .flags = ARCH_NEOX | ARCH_QKV_BIAS},
  {.name = "qwen3", .flags = ARCH_NEOX | ARCH_QK_NORM},
};

const arch *arch_at(size_t i) { return i < COUNT(table) ? &table[i] : NULL; }

const arch *arch_find(const char *name, size_t n) {
  for (size_t i = 0; i < COUNT(table); i++)
    if (strlen(table[i].name) == n && !memcmp(table[i].name, name, n)) return &table[i];
  return NULL;
}
