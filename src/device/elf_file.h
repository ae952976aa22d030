// Reads the sections of an untrusted ELF64 file: every offset and size is checked against the file before use, and
// structures are copied out, since they may be unaligned.
#ifndef WEFT_DEVICE_ELF_FILE_H
#define WEFT_DEVICE_ELF_FILE_H
#include <elf.h>
#include "base/base.h"

typedef struct elf_section { Elf64_Shdr h; const char *name; } elf_section;
typedef struct elf_file {
  const char *what;                      // name for messages
  const uint8_t *p;
  size_t n;
  elf_section *sections;
  size_t section_n;
  const uint8_t *symbols;                // Elf64_Sym records, unaligned
  size_t symbol_n;
  const elf_section *symbol_names;
} elf_file;

// Reads the header; false if it is not a 64-bit little-endian ELF file of this type (ET_*).
bool elf_head(const uint8_t *p, size_t n, int type, Elf64_Ehdr *out);
// Reads sections with their names, and the only symbol table, after elf_head. The bytes must outlive f. Returns -1 and
// err on damage. Call elf_file_free in either case.
int elf_file_read(elf_file *f, const char *what, const uint8_t *p, size_t n, const Elf64_Ehdr *e, error *err);
void elf_file_free(elf_file *f);
// The string at an offset of a string table; NULL if it does not end inside the table.
const char *elf_string(const elf_file *f, const elf_section *table, uint64_t at);
// Symbol i and its name. -1: it does not exist, or its name is out of bounds.
int elf_symbol(const elf_file *f, uint64_t i, Elf64_Sym *out, const char **name);
#endif
