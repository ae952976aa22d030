// Reads cubins: see nv_cubin.h.
//
// The code is the section .text.<kernel>; .nv.info and .nv.info.<kernel> are lists of attributes: a byte for the
// format, a byte for the kind, and the value. The format is not published; the numbers here are what `nvdisasm` prints
// next to the bytes (EIATTR_*), and tests compare the values with the output of `ptxas -v`.
#include "device/nv_cubin.h"
#include <string.h>
#include "device/elf_file.h"

enum { MACHINE = 190 /* EM_CUDA */, MOST_CODE = 16 << 20, MOST_REGISTERS = 255, MOST_BARRIERS = 16 };
enum { VALUE_IN_HEAD = 3 /* and below */, VALUE_BEHIND = 4 };
enum attribute { PARAMS_BANK = 0x0a, STACK = 0x12, PARAM = 0x17, REGISTERS = 0x2f, BARRIERS = 0x4c };
enum { BARRIERS_IN_FLAGS = 20 };                   // bits 26:20 of the section's flags, if there is no attribute

static uint16_t le16_at(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t le32_at(const uint8_t *p) { return le16_at(p) | (uint32_t)le16_at(p + 2) << 16; }

// The text after a prefix; NULL if the prefix is absent.
static const char *name_after(const char *name, const char *prefix) {
  size_t n = strlen(prefix);
  return strncmp(name, prefix, n) ? NULL : name + n;
}

typedef struct reading {
  elf_file f;
  nv_cubin *out;
  const char *kernel;
  bool has_code, has_params;
  error *err;
} reading;

static bool is_our_symbol(const reading *r, uint32_t symbol) {
  Elf64_Sym s;
  const char *name;
  return !elf_symbol(&r->f, symbol, &s, &name) && !strcmp(name, r->kernel);
}

// Reads one attribute; global: from .nv.info, where a value begins with its function's symbol.
static int read_attribute(reading *r, bool global, int which, const uint8_t *value, size_t n) {
  nv_cubin *c = r->out;
  if (which == PARAMS_BANK && !global) {
    if (n < 8) return error_set(r->err, "cubin: where the arguments lie is not said");
    c->params_at = le16_at(value + 4);
    c->params_bytes = le16_at(value + 6);
    r->has_params = true;
  }
  if (which == PARAM && !global) {                 // all arguments here have 8 bytes, consecutive
    if (n < 12 || le16_at(value + 6) != 8 * le16_at(value + 4) || le32_at(value + 8) >> 18 != 8)
      return error_set(r->err, "cubin: an argument that is not where arguments of 8 bytes are");
  }
  bool ours = !global || (n >= 8 && is_our_symbol(r, le32_at(value)));
  if (which == REGISTERS && ours && n >= 8) c->registers = le32_at(value + 4);
  if (which == STACK && ours && n >= 8) c->stack_bytes = le32_at(value + 4);
  if (which == BARRIERS && n >= 1) c->barriers = *value;
  return 0;
}

static int read_attributes(reading *r, const elf_section *s, bool global) {
  const uint8_t *p = r->f.p + s->h.sh_offset;
  size_t n = s->h.sh_size;
  if (s->h.sh_type == SHT_NOBITS) return error_set(r->err, "cubin: section '%s' has no bytes", s->name);
  for (size_t at = 0; at < n;) {
    if (n - at < 4) return error_set(r->err, "cubin: an attribute lies outside of '%s'", s->name);
    size_t size = p[at] == VALUE_BEHIND ? le16_at(p + at + 2) : 0;
    if (p[at] > VALUE_BEHIND || size > n - at - 4)
      return error_set(r->err, "cubin: an attribute lies outside of '%s'", s->name);
    if (read_attribute(r, global, p[at + 1], size ? p + at + 4 : p + at + 2, size ? size : 2)) return -1;
    at += 4 + size;
  }
  return 0;
}

static int read_code(reading *r, const elf_section *s) {
  nv_cubin *c = r->out;
  if (s->h.sh_type != SHT_PROGBITS || !s->h.sh_size || s->h.sh_size > MOST_CODE || s->h.sh_size % 16)
    return error_set(r->err, "cubin: no code in '%s'", s->name);
  c->code = r->f.p + s->h.sh_offset;
  c->code_bytes = s->h.sh_size;
  if (!c->barriers) c->barriers = (unsigned)(s->h.sh_flags >> BARRIERS_IN_FLAGS & 0x7f);
  r->has_code = true;
  return 0;
}

static bool is_of_kernel(const reading *r, const char *name, const char *prefix) {
  const char *rest = name_after(name, prefix);
  return rest && !strcmp(rest, r->kernel);
}

static bool is_bank(const reading *r, const elf_section *s) {
  const char *rest = name_after(s->name, ".nv.constant");
  return rest && *rest > '0' && *rest < '0' + NV_BANKS && rest[1] == '.' && !strcmp(rest + 2, r->kernel);
}

static int read_bank(reading *r, const elf_section *s) {
  int i = s->name[sizeof ".nv.constant" - 1] - '0';
  if (s->h.sh_type != SHT_PROGBITS || s->h.sh_size > NV_MOST_CONSTANTS || r->out->banks[i].n)
    return error_set(r->err, "cubin: '%s' is no bank of constants", s->name);
  r->out->banks[i] = (struct nv_bank){r->f.p + s->h.sh_offset, s->h.sh_size};
  return 0;
}

static int read_section(reading *r, const elf_section *s) {
  if (!strcmp(s->name, ".nv.info")) return read_attributes(r, s, true);
  if (is_of_kernel(r, s->name, ".nv.info.")) return read_attributes(r, s, false);
  if (is_of_kernel(r, s->name, ".text.")) return read_code(r, s);
  if (is_of_kernel(r, s->name, ".nv.shared.")) {
    if (s->h.sh_size > 1 << 20) return error_set(r->err, "cubin: too much memory of a work-group");
    r->out->shared_bytes = (unsigned)s->h.sh_size;
    return 0;
  }
  if (is_of_kernel(r, s->name, ".nv.constant0.") || !s->h.sh_size) return 0;
  if (is_bank(r, s)) return read_bank(r, s);
  if (name_after(s->name, ".text.") || name_after(s->name, ".nv.constant") || name_after(s->name, ".nv.global") ||
      name_after(s->name, ".rel.text") || name_after(s->name, ".rela.text") ||
      name_after(s->name, ".rel.nv.constant") || name_after(s->name, ".rela.nv.constant"))
    return error_set(r->err, "cubin: '%s' of kernel %s: tables, functions and code to be linked are not done", s->name,
                     r->kernel);
  return 0;
}

static int check_cubin(const reading *r) {
  const nv_cubin *c = r->out;
  if (!r->has_code) return error_set(r->err, "cubin: there is no kernel '%s'", r->kernel);
  if (!r->has_params || c->params_at % 8 || c->params_at < 0x30 ||
      c->params_at + c->params_bytes > NV_MOST_CONSTANTS || c->params_bytes % 8)
    return error_set(r->err, "cubin: where the arguments of %s lie is not said", r->kernel);
  if (!c->registers || c->registers > MOST_REGISTERS || c->barriers > MOST_BARRIERS || c->stack_bytes >= 1 << 20)
    return error_set(r->err, "cubin: %s has %u registers, %u barriers and a stack of %u bytes", r->kernel, c->registers,
                     c->barriers, c->stack_bytes);
  return 0;
}

int nv_cubin_read(nv_cubin *c, const uint8_t *p, size_t n, const char *kernel, error *err) {
  Elf64_Ehdr e;
  reading r = {.out = c, .kernel = kernel, .err = err};
  *c = (nv_cubin){0};
  if (!elf_head(p, n, ET_EXEC, &e) || e.e_machine != MACHINE) return error_set(err, "cubin: not a cubin");
  int bad = elf_file_read(&r.f, "cubin", p, n, &e, err);
  for (size_t i = 0; i < r.f.section_n && !bad; i++) bad = read_section(&r, &r.f.sections[i]);
  elf_file_free(&r.f);
  return bad || check_cubin(&r) ? -1 : 0;
}
