// sized: structs of options that programs fill, of a header older or newer than this library.  Such a struct begins
// with its size (include/weft/base.h says what programs may rely on).  Each function of the API takes one by
// TAKE_OPTIONS before it reads a field; below that call there are only whole structs.
#ifndef WEFT_SIZED_H
#define WEFT_SIZED_H
#include <stddef.h>
#include "engine/fail.h"

// own: a struct of `whole` bytes with the defaults; it gets the fields that `given` has (NULL: none).  first: the size
// of the struct in version 0.1.0, which a size of 0 stands for.  -1: given has fields behind `whole` that are not 0.
int take_options(void *own, size_t whole, size_t first, const void *given, const char *name, weft_error *err);
// last: the last field of the struct in version 0.1.0.  It stays so when fields are added.
#define TAKE_OPTIONS(own, type, last, given, err) \
  take_options(own, sizeof(type), offsetof(type, last) + sizeof((type *)0)->last, given, #type, err)

#define TAKE_WEFT_CHAT(own, given, err) TAKE_OPTIONS(own, weft_chat, n_media, given, err)
#endif
