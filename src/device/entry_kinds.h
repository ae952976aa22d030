// entry_kinds: what the entries of the kernel cache are. Each kind but that of kernels has a word, with which its keys
// begin. A key is unique among all kinds: the key of a kernel begins with a line on the machine, none of the words.
#ifndef WEFT_DEVICE_ENTRY_KINDS_H
#define WEFT_DEVICE_ENTRY_KINDS_H
#include "base/str.h"

enum entry_kind { ENTRY_KERNEL, ENTRY_FILLING, ENTRY_SCHEDULE, ENTRY_TUNING, ENTRY_MACHINE, ENTRY_CONTENT };
typedef struct entry_kind_row {
  const char *name;          // for lists; a key begins with it and a space, unless it is a kernel's
  bool taken;                // the keeper takes it as it is sent: numbers and names that are checked when they are read
} entry_kind_row;

const entry_kind_row *entry_kind_row_of(enum entry_kind k);
enum entry_kind entry_kind_of(const void *key, size_t n);        // any bytes
void entry_key_begin(enum entry_kind k, str *key);               // adds the word and a space
#endif
