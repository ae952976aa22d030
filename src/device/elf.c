// Links a kernel's object file: see elf.h.
//
// Three steps, one function each: `read_headers` finds the sections and the symbol table, `place_blob` gives every
// section of code or constants its place in the blob, `relocate` patches the references. The object is not trusted:
// every offset and count is checked against the file before use, and structures are copied out, since they may be
// unaligned.
#include "device/elf.h"
#include <stdlib.h>
#include <string.h>
#include "device/elf_file.h"

enum { BLOB_MAX = 64 << 20, SECTION_GAP = 64 };   // code and constants share no cache line

typedef struct spot { bool placed; uint64_t at; } spot;       // place of a section in the blob
struct linker {
  elf_file f;
  spot *spots;                           // for all sections
  int machine;
  code_blob *out;
  error *err;
};

static int read_headers(struct linker *l, const uint8_t *p, size_t n) {
  Elf64_Ehdr e;
  if (n < sizeof e) return error_set(l->err, "object: %zu bytes are too few", n);
  if (!elf_head(p, n, ET_REL, &e))
    return error_set(l->err, "object: not a 64-bit little-endian relocatable ELF file");
  if (e.e_machine != EM_X86_64 && e.e_machine != EM_AARCH64)
    return error_set(l->err, "object: for ELF machine %u, not x86-64 or AArch64", e.e_machine);
  l->machine = e.e_machine;
  if (elf_file_read(&l->f, "object", p, n, &e, l->err)) return -1;
  l->spots = xcalloc(l->f.section_n, sizeof *l->spots);
  return 0;
}

// The blob contains loaded sections, except unwind tables (no exception unwinds through a kernel).
#ifndef SHT_X86_64_UNWIND
#define SHT_X86_64_UNWIND 0x70000001   // from the x86-64 supplement; musl lacks it
#endif

static bool is_loaded(const elf_section *s) {
  return (s->h.sh_flags & SHF_ALLOC) && s->h.sh_size && s->h.sh_type != SHT_NOTE && strcmp(s->name, ".eh_frame") &&
         s->h.sh_type != SHT_X86_64_UNWIND;
}

static int place_sections(struct linker *l, bool executable, uint64_t *size) {
  for (size_t i = 0; i < l->f.section_n; i++) {
    const elf_section *s = &l->f.sections[i];
    if (!is_loaded(s) || executable != !!(s->h.sh_flags & SHF_EXECINSTR)) continue;
    // constants with addresses; allowed if their relocations are
    bool constant = !strncmp(s->name, ".data.rel.ro", 12);
    if ((s->h.sh_flags & (SHF_WRITE | SHF_TLS) && !constant) || s->h.sh_type == SHT_NOBITS)
      return error_set(l->err, "object: section '%s' is writable data, which a kernel must not have", s->name);
    if (s->h.sh_type != SHT_PROGBITS)
      return error_set(l->err, "object: section '%s' has the unexpected type %u", s->name, s->h.sh_type);
    uint64_t align = s->h.sh_addralign < SECTION_GAP ? SECTION_GAP : s->h.sh_addralign;
    if (align & (align - 1) || align > CODE_ALIGN)
      return error_set(l->err, "object: section '%s' asks for an alignment of %llu bytes", s->name,
                       (unsigned long long)s->h.sh_addralign);
    spot *o = &l->spots[i];
    *o = (spot){true, (*size + align - 1) / align * align};
    if (s->h.sh_size > BLOB_MAX || o->at + s->h.sh_size > BLOB_MAX)
      return error_set(l->err, "object: more than %d bytes of code and constants", BLOB_MAX);
    *size = o->at + s->h.sh_size;
  }
  return 0;
}

static int place_blob(struct linker *l) {
  uint64_t size = 0;
  if (place_sections(l, true, &size)) return -1;
  if (!size) return error_set(l->err, "object: it holds no code");
  if (place_sections(l, false, &size)) return -1;
  l->out->code = (bytes){xcalloc(size, 1), size};
  for (size_t i = 0; i < l->f.section_n; i++)
    if (l->spots[i].placed)
      memcpy(l->out->code.at + l->spots[i].at, l->f.p + l->f.sections[i].h.sh_offset, l->f.sections[i].h.sh_size);
  return 0;
}

// The offset of a symbol in the blob.
static int resolve(const struct linker *l, uint64_t index, Elf64_Sym *sym, uint64_t *at) {
  if (index >= l->f.symbol_n)
    return error_set(l->err, "object: a relocation names symbol %llu of %zu", (unsigned long long)index, l->f.symbol_n);
  const char *name;
  if (elf_symbol(&l->f, index, sym, &name))
    return error_set(l->err, "object: the name of symbol %llu lies outside of the name table",
                     (unsigned long long)index);
  if (sym->st_shndx == SHN_UNDEF)
    return error_set(l->err, "the kernel needs '%s', which it does not define: a kernel must call nothing", name);
  if (sym->st_shndx >= l->f.section_n || !l->spots[sym->st_shndx].placed ||
      ELF64_ST_TYPE(sym->st_info) == STT_GNU_IFUNC)
    return error_set(l->err, "object: symbol '%s' is neither code nor a constant of the kernel", name);
  const elf_section *s = &l->f.sections[sym->st_shndx];
  if (sym->st_value > s->h.sh_size)
    return error_set(l->err, "object: symbol '%s' lies outside of its section '%s'", name, s->name);
  *at = l->spots[sym->st_shndx].at + sym->st_value;
  return 0;
}

// ------------------------------------------------------------------------------------------------------- relocations

// A place to patch. place: offset in the blob; room: bytes from there to the end of its section; delta: target - place;
// page_delta: delta between their 4 KiB pages; target: the target's offset.
struct patch { uint8_t *at; uint64_t room; int64_t target, delta, page_delta; uint32_t type; };

static const char unfit[] = "object: relocation type %u in '%s': %s";
static const char is_absolute[] = "an absolute address, which position-independent code cannot hold";
static const char has_table[] = "it goes through a global offset table (make the global private or internal)";

static int patch_number(struct linker *l, const struct patch *x, const char *section, unsigned size) {
  if (x->room < size) return error_set(l->err, unfit, x->type, section, "it lies outside of its section");
  if (size == 4 && x->delta != (int32_t)x->delta)
    return error_set(l->err, unfit, x->type, section, "the distance does not fit 32 bits");
  memcpy(x->at, &x->delta, size);
  return 0;
}

static int patch_x86(struct linker *l, const struct patch *x, const char *section) {
  switch (x->type) {
    case R_X86_64_NONE: return 0;
    case R_X86_64_PC32: case R_X86_64_PLT32: return patch_number(l, x, section, 4);
    case R_X86_64_PC64: return patch_number(l, x, section, 8);
    case R_X86_64_64: case R_X86_64_32: case R_X86_64_32S:
      return error_set(l->err, unfit, x->type, section, is_absolute);
    case R_X86_64_GOTPCREL: case R_X86_64_GOTPCRELX: case R_X86_64_REX_GOTPCRELX:
      return error_set(l->err, unfit, x->type, section, has_table);
    default: return error_set(l->err, unfit, x->type, section, "not supported");
  }
}

// Sets the immediate of an AArch64 instruction: `width` bits at bit `low`, with value >> shift.
static int patch_bits(struct linker *l, const struct patch *x, const char *section, int64_t value, unsigned shift,
                      unsigned width, unsigned low) {
  if (x->room < 4) return error_set(l->err, unfit, x->type, section, "it lies outside of its section");
  if (value & ((1 << shift) - 1)) return error_set(l->err, unfit, x->type, section, "the address is not aligned");
  uint32_t instruction, mask = ((1u << width) - 1) << low;
  memcpy(&instruction, x->at, 4);
  instruction = (instruction & ~mask) | ((uint32_t)(value >> shift) << low & mask);
  memcpy(x->at, &instruction, 4);
  return 0;
}

static int patch_aarch64(struct linker *l, const struct patch *x, const char *section) {
  int64_t low12 = x->target & 4095;
  switch (x->type) {
    case R_AARCH64_NONE: return 0;
    case R_AARCH64_PREL32: return patch_number(l, x, section, 4);
    case R_AARCH64_PREL64: return patch_number(l, x, section, 8);
    // BLOB_MAX is within range
    case R_AARCH64_CALL26: case R_AARCH64_JUMP26: return patch_bits(l, x, section, x->delta, 2, 26, 0);
    case R_AARCH64_ADR_PREL_PG_HI21: {          // number of pages, with the low 2 bits stored separately
      int64_t pages = x->page_delta / 4096;
      return patch_bits(l, x, section, pages & 3, 0, 2, 29) || patch_bits(l, x, section, pages >> 2, 0, 19, 5) ? -1 : 0;
    }
    case R_AARCH64_ADD_ABS_LO12_NC:
    case R_AARCH64_LDST8_ABS_LO12_NC: return patch_bits(l, x, section, low12, 0, 12, 10);
    case R_AARCH64_LDST16_ABS_LO12_NC: return patch_bits(l, x, section, low12, 1, 12, 10);
    case R_AARCH64_LDST32_ABS_LO12_NC: return patch_bits(l, x, section, low12, 2, 12, 10);
    case R_AARCH64_LDST64_ABS_LO12_NC: return patch_bits(l, x, section, low12, 3, 12, 10);
    case R_AARCH64_LDST128_ABS_LO12_NC: return patch_bits(l, x, section, low12, 4, 12, 10);
    case R_AARCH64_ABS64: case R_AARCH64_ABS32: return error_set(l->err, unfit, x->type, section, is_absolute);
    case R_AARCH64_ADR_GOT_PAGE: case R_AARCH64_LD64_GOT_LO12_NC:
      return error_set(l->err, unfit, x->type, section, has_table);
    default: return error_set(l->err, unfit, x->type, section, "not supported");
  }
}

static int relocate_section(struct linker *l, const elf_section *table, size_t section) {
  const elf_section *into = &l->f.sections[section];
  if (table->h.sh_type == SHT_REL || table->h.sh_entsize != sizeof(Elf64_Rela))
    return error_set(l->err, "object: the relocations '%s' are of the wrong kind", table->name);
  for (uint64_t i = 0; i < table->h.sh_size / sizeof(Elf64_Rela); i++) {
    Elf64_Rela r;
    memcpy(&r, l->f.p + table->h.sh_offset + i * sizeof r, sizeof r);
    if (r.r_offset > into->h.sh_size)
      return error_set(l->err, "object: a relocation lies outside of its section '%s'", into->name);
    if (ELF64_R_TYPE(r.r_info) == 0) continue;
    Elf64_Sym sym;
    uint64_t symbol_at;
    if (resolve(l, ELF64_R_SYM(r.r_info), &sym, &symbol_at)) return -1;
    int64_t place = (int64_t)(l->spots[section].at + r.r_offset), target;
    if (!add_i64((int64_t)symbol_at, r.r_addend, &target) || target < -BLOB_MAX || target > BLOB_MAX)
      return error_set(l->err, "object: a relocation in '%s' points outside of the kernel", into->name);
    struct patch x = {
      l->out->code.at + place, into->h.sh_size - r.r_offset,           target,
      target - place,          (target & ~4095LL) - (place & ~4095LL), (uint32_t)ELF64_R_TYPE(r.r_info)};
    if (l->machine == EM_X86_64 ? patch_x86(l, &x, into->name) : patch_aarch64(l, &x, into->name)) return -1;
  }
  return 0;
}

static int relocate(struct linker *l) {
  for (size_t i = 0; i < l->f.section_n; i++) {
    const elf_section *table = &l->f.sections[i];
    if (table->h.sh_type != SHT_RELA && table->h.sh_type != SHT_REL) continue;
    if (table->h.sh_info >= l->f.section_n)
      return error_set(l->err, "object: the relocations '%s' are for section %u of %zu", table->name, table->h.sh_info,
                       l->f.section_n);
    if (l->spots[table->h.sh_info].placed && relocate_section(l, table, table->h.sh_info)) return -1;
  }
  return 0;
}

static int list_functions(struct linker *l) {
  for (size_t i = 1; i < l->f.symbol_n; i++) {
    Elf64_Sym sym;
    memcpy(&sym, l->f.symbols + i * sizeof sym, sizeof sym);
    if (ELF64_ST_BIND(sym.st_info) == STB_LOCAL || ELF64_ST_TYPE(sym.st_info) != STT_FUNC || sym.st_shndx == SHN_UNDEF)
      continue;
    uint64_t at;
    if (resolve(l, i, &sym, &at)) return -1;
    const char *name = elf_string(&l->f, l->f.symbol_names, sym.st_name);
    const elf_section *s = &l->f.sections[sym.st_shndx];
    if (!(s->h.sh_flags & SHF_EXECINSTR) || sym.st_value >= s->h.sh_size)
      return error_set(l->err, "object: function '%s' is not in the code section", name);
    code_symbol entry = {xstrdup(name), (uint32_t)at};
    vec_push(&l->out->symbols, entry);
  }
  return l->out->symbols.n ? 0 : error_set(l->err, "object: it defines no function");
}

int elf_link(const uint8_t *p, size_t n, code_blob *out, error *err) {
  *out = (code_blob){0};
  struct linker l = {.out = out, .err = err};
  int r = read_headers(&l, p, n) || place_blob(&l) || relocate(&l) || list_functions(&l) ? -1 : 0;
  out->machine = (uint32_t)l.machine;
  elf_file_free(&l.f);
  free(l.spots);
  if (r) code_blob_free(out);
  return r;
}
