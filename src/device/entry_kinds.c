// Kinds of cache entries: see entry_kinds.h.
#include "device/entry_kinds.h"
#include <string.h>

static const entry_kind_row rows[] = {
  [ENTRY_KERNEL] = {"kernel", false},  [ENTRY_FILLING] = {"filling", false}, [ENTRY_SCHEDULE] = {"schedule", false},
  [ENTRY_TUNING] = {"tuning", true},   [ENTRY_MACHINE] = {"machine", true},  [ENTRY_CONTENT] = {"content", true},
};

const entry_kind_row *entry_kind_row_of(enum entry_kind k) { return &rows[k]; }

enum entry_kind entry_kind_of(const void *key, size_t n) {
  const char *at = key;
  for (size_t i = ENTRY_KERNEL + 1; i < COUNT(rows); i++) {
    size_t length = strlen(rows[i].name);
    if (n > length && at[length] == ' ' && !memcmp(at, rows[i].name, length)) return (enum entry_kind)i;
  }
  return ENTRY_KERNEL;
}

void entry_key_begin(enum entry_kind k, str *key) {
  if (k != ENTRY_KERNEL) str_addf(key, "%s ", rows[k].name);
}
