// Tables that programs have written as selections: some processors look bytes up in a register of sixteen.
#ifndef WEFT_RENDER_CHOICE_H
#define WEFT_RENDER_CHOICE_H
#include "codegen/descriptor.h"

// What a value of bytes says: entry (code >> shift) & 15 of a table.
typedef struct choice {
  const uop *code;               // of bytes, in as many lanes
  int shift;                     // 0 to 4
  uint64_t low, high;            // entries 0 to 7 and 8 to 15, the first in the lowest byte
} choice;

// Is u made of WHEREs whose conditions are bits of one value, four that lie side by side, and which end in constants?
// At least eight of them: fewer cost less than a look-up.
bool choice_of(const uop *u, choice *out);

// Of the lines of a descriptor: $a: the numbers, $b: the table, again in each 16 bytes. `needs` as in a descriptor.
typedef struct choice_row { const char *needs; int words; const char *step[2]; } choice_row;

// How a machine looks up `lanes` bytes, in parts of a register at most; NULL: it does not.
const choice_row *choice_find(descriptor_set machine, int lanes);
#endif
