// What tests of the engine with the project's model share: that model, random numbers, and hashes of logits.
#ifndef WEFT_TESTS_PROJECT_H
#define WEFT_TESTS_PROJECT_H
#include <stdint.h>
#include "base/base.h"

static const char *const project = WEFT_SOURCE_DIR "/models/tinypy.gguf";

static uint64_t state;
static uint32_t below(uint32_t n) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(state >> 33) % n;
}

static uint64_t hash_of(const float *logits, int32_t n) { return hash_bytes(logits, (size_t)n * sizeof *logits, 1); }
#endif
