// Copies option structs by size: see sized.h.
#include "engine/sized.h"

int take_options(void *own, size_t whole, size_t first, const void *given, const char *name, weft_error *err) {
  size_t size = 0;
  if (!given) return 0;
  memcpy(&size, given, sizeof size);
  if (!size) size = first;
  if (size < sizeof size) FAIL(err, "%s: its size is said to be %zu bytes, less than one field", name, size);
  const char *bytes = given;
  for (size_t i = whole; i < size; i++)
    if (bytes[i])
      FAIL(err, "%s: byte %zu of %zu is set; the library (%s) knows %zu bytes of it: it is older than the program",
           name, i, size, weft_version(), whole);
  memcpy(own, given, size < whole ? size : whole);
  memcpy(own, &whole, sizeof whole);
  return 0;
}
