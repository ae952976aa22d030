// The table of tensor types as an array that is indexed by id: see format.h.
#include "model/format.h"
#include <strings.h>

static const struct format formats[] = {
#define F(id, name, block, bytes, computes) [id] = {id, #name, block, bytes, computes},
  FORMAT_TABLE(F)
#undef F
};

static const char *const removed[] = {
#define R(id, name) [id] = #name,
  FORMAT_REMOVED(R)
#undef R
};

const struct format *format_by_id(uint32_t id) { return id < COUNT(formats) && formats[id].name ? &formats[id] : NULL; }

const struct format *format_by_name(const char *name) {
  for (size_t i = 0; i < COUNT(formats); i++)
    if (formats[i].name && !strcasecmp(formats[i].name, name)) return &formats[i];
  return NULL;
}

const char *format_removed_name(uint32_t id) { return id < COUNT(removed) ? removed[id] : NULL; }

bool format_row_bytes(const struct format *f, uint64_t n, uint64_t *out) { return n % f->block == 0 && mul_u64(n / f->block, f->bytes, out); }
