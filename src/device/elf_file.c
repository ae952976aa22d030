// Reads the sections of an ELF64 file: see elf_file.h.
#include "device/elf_file.h"
#include <stdlib.h>
#include <string.h>

bool elf_head(const uint8_t *p, size_t n, int type, Elf64_Ehdr *out) {
  if (n < sizeof *out) return false;
  memcpy(out, p, sizeof *out);
  return !memcmp(out->e_ident, ELFMAG, SELFMAG) && out->e_ident[EI_CLASS] == ELFCLASS64 &&
         out->e_ident[EI_DATA] == ELFDATA2LSB && out->e_type == type;
}

static bool lies_in_file(const elf_file *f, uint64_t at, uint64_t n) { return at <= f->n && n <= f->n - at; }

const char *elf_string(const elf_file *f, const elf_section *table, uint64_t at) {
  if (at >= table->h.sh_size) return NULL;
  const char *s = (const char *)f->p + table->h.sh_offset + at;
  return memchr(s, 0, table->h.sh_size - at) ? s : NULL;
}

static int read_symbols(elf_file *f, const elf_section *s, error *err) {
  if (f->symbols) return error_set(err, "%s: two symbol tables", f->what);
  if (s->h.sh_entsize != sizeof(Elf64_Sym) || s->h.sh_link >= f->section_n ||
      f->sections[s->h.sh_link].h.sh_type != SHT_STRTAB)
    return error_set(err, "%s: the symbol table is damaged", f->what);
  f->symbols = f->p + s->h.sh_offset;
  f->symbol_n = s->h.sh_size / sizeof(Elf64_Sym);
  f->symbol_names = &f->sections[s->h.sh_link];
  return 0;
}

int elf_file_read(elf_file *f, const char *what, const uint8_t *p, size_t n, const Elf64_Ehdr *e, error *err) {
  *f = (elf_file){.what = what, .p = p, .n = n};
  if (e->e_shentsize != sizeof(Elf64_Shdr) || !e->e_shnum ||
      !lies_in_file(f, e->e_shoff, (uint64_t)e->e_shnum * sizeof(Elf64_Shdr)))
    return error_set(err, "%s: the section table lies outside of the file", what);
  f->section_n = e->e_shnum;
  f->sections = xcalloc(f->section_n, sizeof *f->sections);
  for (size_t i = 0; i < f->section_n; i++) {
    elf_section *s = &f->sections[i];
    memcpy(&s->h, p + e->e_shoff + i * sizeof s->h, sizeof s->h);
    if (s->h.sh_type != SHT_NOBITS && s->h.sh_type != SHT_NULL && !lies_in_file(f, s->h.sh_offset, s->h.sh_size))
      return error_set(err, "%s: section %zu lies outside of the file", what, i);
  }
  if (e->e_shstrndx >= f->section_n || f->sections[e->e_shstrndx].h.sh_type != SHT_STRTAB)
    return error_set(err, "%s: no section names", what);
  for (size_t i = 0; i < f->section_n; i++) {
    elf_section *s = &f->sections[i];
    s->name = elf_string(f, &f->sections[e->e_shstrndx], s->h.sh_name);
    if (!s->name) return error_set(err, "%s: the name of section %zu lies outside of the name table", what, i);
    if (s->h.sh_type == SHT_SYMTAB && read_symbols(f, s, err)) return -1;
  }
  return f->symbols ? 0 : error_set(err, "%s: no symbol table", what);
}

void elf_file_free(elf_file *f) {
  free(f->sections);
  f->sections = NULL;
}

int elf_symbol(const elf_file *f, uint64_t i, Elf64_Sym *out, const char **name) {
  if (i >= f->symbol_n) return -1;
  memcpy(out, f->symbols + i * sizeof *out, sizeof *out);
  *name = elf_string(f, f->symbol_names, out->st_name);
  return *name ? 0 : -1;
}
