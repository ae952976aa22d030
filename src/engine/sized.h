// sized: option structs filled by programs that were built with an older or newer header. Such a struct begins with its
// size (include/weft/base.h documents the guarantees). Each API function calls TAKE_OPTIONS before reading a field; all
// code below uses complete structs.
#ifndef WEFT_SIZED_H
#define WEFT_SIZED_H
#include <stddef.h>
#include "engine/fail.h"

// own: a struct of `whole` bytes with defaults; the fields of `given` (NULL: none) are copied to it. first: size of the
// struct in version 0.1.0, which a size of 0 means. -1: given has nonzero fields after `whole`.
int take_options(void *own, size_t whole, size_t first, const void *given, const char *name, weft_error *err);
// last: the last field of the struct in version 0.1.0; it does not change when fields are added.
#define TAKE_OPTIONS(own, type, last, given, err) \
  take_options(own, sizeof(type), offsetof(type, last) + sizeof((type *)0)->last, given, #type, err)

#define TAKE_WEFT_CHAT(own, given, err) TAKE_OPTIONS(own, weft_chat, n_media, given, err)
#endif
