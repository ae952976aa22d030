// elf: a linker for kernels. Input: one relocatable ELF64 object. Output: one position-independent blob of code and
// constants.
//
// A kernel calls nothing and writes only its arguments, so linking is simple: place the sections of code and constants,
// and apply the relocations between them, which are all relative. Everything else is an error that names the cause:
// undefined symbols, writable data, absolute addresses, a global offset table.
#ifndef WEFT_DEVICE_ELF_H
#define WEFT_DEVICE_ELF_H
#include "device/code.h"

// Links the object at p[0..n), for x86-64 or AArch64 (not necessarily this machine's), into `out`, with its code,
// constants and global functions (caller: code_blob_free). The blob may be mapped at any multiple of CODE_ALIGN.
// Returns -1 and a message naming the section, symbol or relocation; then out is {0}. The input may be any bytes:
// nothing outside [p, p + n) is read, and memory is bounded by a small multiple of n plus 64 MiB.
int elf_link(const uint8_t *p, size_t n, code_blob *out, error *err);
#endif
