// fail: how the functions of include/weft.h report errors; used by all files that implement that header.
#ifndef WEFT_FAIL_H
#define WEFT_FAIL_H
#include "weft.h"
#include <string.h>
#include "base/base.h"

_Static_assert(sizeof((weft_error *)0)->text == sizeof((error *)0)->text, "errors are copied whole");

// Copies an error of a lower layer.
static inline int fail(weft_error *out, const error *e) {
  if (out) memcpy(out->text, e->text, sizeof out->text);
  return -1;
}
// Returns with a formatted message.
#define FAIL(out, ...) do { error e_ = {0}; error_set(&e_, __VA_ARGS__); return fail(out, &e_); } while (0)
#endif
