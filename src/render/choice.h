// Lookup tables that a program writes as selections: some processors look up bytes in a 16-byte register.
#ifndef WEFT_RENDER_CHOICE_H
#define WEFT_RENDER_CHOICE_H
#include "codegen/descriptor.h"

// Each byte of the value selects entry (code >> shift) & 15 of a table.
typedef struct choice {
  const uop *code;               // bytes, one per lane
  int shift;                     // 0 to 4
  uint64_t low, high;            // entries 0 to 7 and 8 to 15, the first in the lowest byte
} choice;

// Does u consist of WHEREs that test four neighbouring bits of one value and end in constants? There must be at least
// eight WHEREs: fewer cost less than a lookup.
bool choice_of(const uop *u, choice *out);

// Instructions like a descriptor's lines: $a: the indices, $b: the table, repeated in each 16 bytes. `needs` as in a
// descriptor.
typedef struct choice_row { const char *needs; int words; const char *step[2]; } choice_row;

// The instructions with which a machine looks up `lanes` bytes, at most one register at a time; NULL if it has none.
const choice_row *choice_find(descriptor_set machine, int lanes);
#endif
