// The sections of an ELF64 file that nobody trusts: every offset and size is checked against the file before it is
// used, and structures are copied out, because nothing in it need be aligned.
#ifndef WEFT_DEVICE_ELF_FILE_H
#define WEFT_DEVICE_ELF_FILE_H
#include <elf.h>
#include "base/base.h"

typedef struct elf_section { Elf64_Shdr h; const char *name; } elf_section;
typedef struct elf_file {
  const char *what;                      // in messages
  const uint8_t *p;
  size_t n;
  elf_section *sections;
  size_t section_n;
  const uint8_t *symbols;                // Elf64_Sym records, unaligned
  size_t symbol_n;
  const elf_section *symbol_names;
} elf_file;

// The header; false: it is no 64-bit little-endian ELF file of this type (ET_*).
bool elf_head(const uint8_t *p, size_t n, int type, Elf64_Ehdr *out);
// Sections with their names, and the one symbol table, whose head was read. The bytes must outlive it. -1: err says
// what is wrong. elf_file_free either way.
int elf_file_read(elf_file *f, const char *what, const uint8_t *p, size_t n, const Elf64_Ehdr *e, error *err);
void elf_file_free(elf_file *f);
// The string at an offset of a string table, or NULL if it does not end inside of it.
const char *elf_string(const elf_file *f, const elf_section *table, uint64_t at);
// Symbol number i and its name. -1: there is none, or the name lies outside.
int elf_symbol(const elf_file *f, uint64_t i, Elf64_Sym *out, const char **name);
#endif
