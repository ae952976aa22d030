// entry_kinds: the kinds of entries in the kernel cache. Keys of each kind except kernels begin with the kind's word. A
// kernel's key begins with a line about the machine, which is none of these words, so keys are unique.
#ifndef WEFT_DEVICE_ENTRY_KINDS_H
#define WEFT_DEVICE_ENTRY_KINDS_H
#include "base/str.h"

enum entry_kind { ENTRY_KERNEL, ENTRY_FILLING, ENTRY_SCHEDULE, ENTRY_TUNING, ENTRY_MACHINE, ENTRY_CONTENT };
typedef struct entry_kind_row {
  const char *name;          // for lists; a key begins with it and a space, except a kernel's
  bool taken;                // the keeper stores it as sent: numbers and names that are checked when read
} entry_kind_row;

const entry_kind_row *entry_kind_row_of(enum entry_kind k);
enum entry_kind entry_kind_of(const void *key, size_t n);        // accepts any bytes
void entry_key_begin(enum entry_kind k, str *key);               // adds the word and a space
#endif
