// A linker for kernels: one relocatable ELF64 object in, one position-independent blob of code and constants out.
//
// A kernel calls nothing and writes nothing but its arguments, so linking is small: lay out the sections that hold code
// and constants, and apply the relocations between them, all of which are relative.  Everything else is refused by
// name: a symbol that is not defined in the object, writable data, absolute addresses, a global offset table.
#ifndef WEFT_DEVICE_ELF_H
#define WEFT_DEVICE_ELF_H
#include "device/code.h"

// Links the object at p[0..n), of x86-64 or AArch64 (whichever it says, not necessarily this machine's), into `out`,
// which then holds its code, its constants and its global functions (caller: code_blob_free).  The blob may be mapped
// at any multiple of CODE_ALIGN.  -1 and a message naming the section, symbol or relocation at fault; then out is {0}.
// Any bytes may be given: nothing outside of [p, p + n) is read, and memory used is bounded by a small multiple of n
// plus 64 MiB.
int elf_link(const uint8_t *p, size_t n, code_blob *out, error *err);
#endif
