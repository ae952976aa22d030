// fail: how the functions of include/weft.h fail. All files behind that header say it by these.
#ifndef WEFT_FAIL_H
#define WEFT_FAIL_H
#include "weft.h"
#include <string.h>
#include "base/base.h"

_Static_assert(sizeof((weft_error *)0)->text == sizeof((error *)0)->text, "errors are copied whole");

// With what a folder below said.
static inline int fail(weft_error *out, const error *e) {
  if (out) memcpy(out->text, e->text, sizeof out->text);
  return -1;
}
// With a message of the function's own, which returns.
#define FAIL(out, ...) do { error e_ = {0}; error_set(&e_, __VA_ARGS__); return fail(out, &e_); } while (0)
#endif
