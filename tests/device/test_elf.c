// The linker on objects built by hand: what each relocation writes, for both processor families, and what is refused.
// (Objects that LLVM makes, and damaged ones, are in test_compile.c.)
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <elf.h>
#include <string.h>
#include "device/elf.h"

// One object: .text (64 bytes), .rodata (32 bytes), symbols 1 "f" (function at .text + 8), 2 "k" (.rodata + 16), 3 "u"
// (undefined), 4 (local, .text + 40). Relocations apply to .text.
enum { TEXT = 1, RODATA, RELA, SYMTAB, STRTAB, SECTIONS };
struct object {
  Elf64_Ehdr e;
  Elf64_Shdr s[SECTIONS];
  uint8_t text[64], rodata[32];
  Elf64_Rela rela[4];
  Elf64_Sym sym[5];
  char names[96];
};

static uint32_t add_name(struct object *o, const char *name) {
  size_t at = 1;
  while (o->names[at]) at += strlen(o->names + at) + 1;
  strcpy(o->names + at, name);
  return (uint32_t)at;
}

static void section(struct object *o, int i, const char *name, uint32_t type, uint64_t flags, size_t at, size_t n,
                    size_t entry) {
  o->s[i] = (Elf64_Shdr){.sh_name = add_name(o, name),
                         .sh_type = type,
                         .sh_flags = flags,
                         .sh_offset = at,
                         .sh_size = n,
                         .sh_addralign = 16,
                         .sh_entsize = entry};
}

static struct object begin(uint16_t machine) {
  struct object o = {0};
  memcpy(o.e.e_ident, ELFMAG, SELFMAG);
  o.e.e_ident[EI_CLASS] = ELFCLASS64;
  o.e.e_ident[EI_DATA] = ELFDATA2LSB;
  o.e.e_type = ET_REL;
  o.e.e_machine = machine;
  o.e.e_shoff = offsetof(struct object, s);
  o.e.e_shentsize = sizeof(Elf64_Shdr);
  o.e.e_shnum = SECTIONS;
  o.e.e_shstrndx = STRTAB;
  section(&o, TEXT, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, offsetof(struct object, text), sizeof o.text, 0);
  section(&o, RODATA, ".rodata", SHT_PROGBITS, SHF_ALLOC, offsetof(struct object, rodata), sizeof o.rodata, 0);
  section(&o, RELA, ".rela.text", SHT_RELA, SHF_INFO_LINK, offsetof(struct object, rela), sizeof o.rela,
          sizeof(Elf64_Rela));
  section(&o, SYMTAB, ".symtab", SHT_SYMTAB, 0, offsetof(struct object, sym), sizeof o.sym, sizeof(Elf64_Sym));
  section(&o, STRTAB, ".strtab", SHT_STRTAB, 0, offsetof(struct object, names), sizeof o.names, 0);
  o.s[RELA].sh_info = TEXT;
  o.s[RELA].sh_link = SYMTAB;
  o.s[SYMTAB].sh_link = STRTAB;
  o.sym[1] = (Elf64_Sym){
    .st_name = add_name(&o, "f"), .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = TEXT, .st_value = 8};
  o.sym[2] = (Elf64_Sym){
    .st_name = add_name(&o, "k"), .st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), .st_shndx = RODATA, .st_value = 16};
  o.sym[3] =
    (Elf64_Sym){.st_name = add_name(&o, "u"), .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), .st_shndx = SHN_UNDEF};
  o.sym[4] = (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE), .st_shndx = TEXT, .st_value = 40};
  for (int i = 0; i < 64; i++) o.text[i] = (uint8_t)(i + 1);
  for (int i = 0; i < 32; i++) o.rodata[i] = (uint8_t)(100 + i);
  return o;
}

static struct object with(uint16_t machine, uint32_t type, uint64_t offset, uint32_t symbol, int64_t addend) {
  struct object o = begin(machine);
  o.rela[0] = (Elf64_Rela){.r_offset = offset, .r_info = ELF64_R_INFO((uint64_t)symbol, type), .r_addend = addend};
  return o;
}

static int link_object(const struct object *o, code_blob *out, error *err) {
  return elf_link((const uint8_t *)o, sizeof *o, out, err);
}

static void expect_error(const struct object *o, const char *part) {
  code_blob b;
  error err = {0};
  assert_int_equal(link_object(o, &b, &err), -1);
  if (!strstr(err.text, part)) fail_msg("'%s' does not mention '%s'", err.text, part);
}

// .text lies at 0 and .rodata at 64 of the blob.
static void layout(void **state) {
  (void)state;
  struct object o = begin(EM_X86_64);
  code_blob b;
  error err = {0};
  if (link_object(&o, &b, &err)) fail_msg("%s", err.text);
  assert_int_equal(b.code.n, 96);
  assert_memory_equal(b.code.at, o.text, 64);
  assert_memory_equal(b.code.at + 64, o.rodata, 32);
  assert_int_equal(b.symbols.n, 1);
  assert_string_equal(b.symbols.at[0].name, "f");
  assert_int_equal(b.symbols.at[0].offset, 8);
  code_blob_free(&b);
}

static int64_t patched(const struct object *o, size_t at, size_t n) {
  code_blob b;
  error err = {0};
  if (link_object(o, &b, &err)) fail_msg("%s", err.text);
  int64_t wide = 0;
  int32_t narrow;
  if (n == 8) memcpy(&wide, b.code.at + at, 8);
  else { memcpy(&narrow, b.code.at + at, 4); wide = narrow; }
  // and nothing else
  for (size_t i = 0; i < 64; i++) if (i < at || i >= at + n) assert_int_equal(b.code.at[i], o->text[i]);
  code_blob_free(&b);
  return wide;
}

static void x86_relocations(void **state) {
  (void)state;
  struct object o = with(EM_X86_64, R_X86_64_PC32, 20, 2, -4);
  assert_int_equal(patched(&o, 20, 4), 64 + 16 - 4 - 20);
  o = with(EM_X86_64, R_X86_64_PLT32, 51, 1, -4);
  assert_int_equal(patched(&o, 51, 4), 8 - 4 - 51);
  o = with(EM_X86_64, R_X86_64_PC64, 56, 4, 3);
  assert_int_equal(patched(&o, 56, 8), 40 + 3 - 56);
  o = with(EM_X86_64, R_X86_64_PC32, 60, 2, 0);             // the last place that fits
  assert_int_equal(patched(&o, 60, 4), 64 + 16 - 60);
  o = with(EM_X86_64, R_X86_64_PC32, 61, 2, 0);
  expect_error(&o, "outside of its section");
  o = with(EM_X86_64, R_X86_64_PC64, 57, 2, 0);
  expect_error(&o, "outside of its section");
  o = with(EM_X86_64, R_X86_64_PC32, UINT64_MAX, 2, 0);
  expect_error(&o, "outside of its section");
  o = with(EM_X86_64, R_X86_64_PC32, 0, 2, INT64_MAX);
  expect_error(&o, "points outside");
  o = with(EM_X86_64, R_X86_64_PC32, 0, 2, INT64_MIN);
  expect_error(&o, "points outside");
  o = with(EM_X86_64, R_X86_64_PC32, 0, 5, 0);
  expect_error(&o, "symbol 5 of 5");
  o = with(EM_X86_64, R_X86_64_PC32, 0, 3, 0);
  expect_error(&o, "'u'");
  o = with(EM_X86_64, R_X86_64_64, 0, 2, 0);
  expect_error(&o, "absolute");
  o = with(EM_X86_64, R_X86_64_32S, 0, 2, 0);
  expect_error(&o, "absolute");
  o = with(EM_X86_64, R_X86_64_REX_GOTPCRELX, 0, 2, -4);
  expect_error(&o, "global offset table");
  o = with(EM_X86_64, R_X86_64_TPOFF32, 0, 2, 0);
  expect_error(&o, "not supported");
}

static uint32_t patched_arm(uint32_t type, uint32_t instruction, uint32_t symbol, int64_t addend) {
  struct object o = with(EM_AARCH64, type, 16, symbol, addend);
  memcpy(o.text + 16, &instruction, 4);
  return (uint32_t)patched(&o, 16, 4);
}

// Wanted values from an assembler's own encoding of the same instructions.
static void aarch64_relocations(void **state) {
  (void)state;
  // adrp x8, 0: the same page
  assert_int_equal(patched_arm(R_AARCH64_ADR_PREL_PG_HI21, 0x90000008, 2, 0), 0x90000008);
  assert_int_equal(patched_arm(R_AARCH64_ADR_PREL_PG_HI21, 0x90000008, 2, 4096), 0xb0000008);           // adrp x8, 1
  assert_int_equal(patched_arm(R_AARCH64_ADR_PREL_PG_HI21, 0x90000008, 2, 4096 * 5), 0xb0000028);       // adrp x8, 5
  assert_int_equal(patched_arm(R_AARCH64_ADR_PREL_PG_HI21, 0x90000008, 2, -4096), 0xf0ffffe8);          // adrp x8, -1
  // add x8, x8, #83
  assert_int_equal(patched_arm(R_AARCH64_ADD_ABS_LO12_NC, 0x91000108, 2, 3), 0x91014d08);
  // ldrb w9, [x8, #81]
  assert_int_equal(patched_arm(R_AARCH64_LDST8_ABS_LO12_NC, 0x39400109, 2, 1), 0x39414509);
  // ldr w9, [x8, #84]
  assert_int_equal(patched_arm(R_AARCH64_LDST32_ABS_LO12_NC, 0xb9400109, 2, 4), 0xb9405509);
  // ldr q0, [x8, #80]
  assert_int_equal(patched_arm(R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc00100, 2, 0), 0x3dc01500);
  assert_int_equal(patched_arm(R_AARCH64_CALL26, 0x94000000, 1, 0), 0x97fffffe);                        // bl -8
  assert_int_equal(patched_arm(R_AARCH64_JUMP26, 0x14000000, 4, 0), 0x14000006);                        // b +24
  struct object o = with(EM_AARCH64, R_AARCH64_LDST128_ABS_LO12_NC, 16, 2, 8);
  expect_error(&o, "not aligned");
  o = with(EM_AARCH64, R_AARCH64_ABS64, 16, 2, 0);
  expect_error(&o, "absolute address");
  o = with(EM_AARCH64, R_AARCH64_ADR_GOT_PAGE, 16, 2, 0);
  expect_error(&o, "global offset table");
  o = with(EM_AARCH64, R_AARCH64_MOVW_UABS_G0, 16, 2, 0);
  expect_error(&o, "not supported");
  o = with(EM_AARCH64, R_AARCH64_CALL26, 16, 3, 0);
  expect_error(&o, "'u'");
  o = with(EM_AARCH64, R_AARCH64_CALL26, 62, 1, 0);
  expect_error(&o, "outside of its section");
}

static void refused(void **state) {
  (void)state;
  struct object o;
#define CASE(change, part) o = begin(EM_X86_64); change; expect_error(&o, part)
  CASE(o.e.e_ident[0] = 0, "not a 64-bit");
  CASE(o.e.e_ident[EI_CLASS] = ELFCLASS32, "not a 64-bit");
  CASE(o.e.e_type = ET_DYN, "not a 64-bit");
  CASE(o.e.e_machine = EM_RISCV, "machine 243");
  CASE(o.e.e_shoff = UINT64_MAX, "section table");
  CASE(o.e.e_shnum = 0xffff, "section table");
  CASE(o.e.e_shnum = 0, "section table");
  CASE(o.e.e_shentsize = 40, "section table");
  CASE(o.e.e_shstrndx = 99, "no section names");
  CASE(o.e.e_shstrndx = TEXT, "no section names");
  CASE(o.s[TEXT].sh_offset = sizeof o, "section 1 lies outside");
  CASE(o.s[TEXT].sh_size = UINT64_MAX, "section 1 lies outside");
  CASE(o.s[TEXT].sh_name = 96, "name of section 1");
  CASE(memset(o.names + 90, 'x', 6); o.s[TEXT].sh_name = 90, "name of section 1");
  CASE(o.s[TEXT].sh_flags |= SHF_WRITE, "writable");
  CASE(o.s[RODATA].sh_flags |= SHF_WRITE, "writable");
  CASE(o.s[RODATA].sh_flags |= SHF_TLS, "writable");
  CASE(o.s[RODATA].sh_type = SHT_NOBITS, "writable");
  CASE(o.s[RODATA].sh_addralign = 96, "alignment of 96");
  CASE(o.s[RODATA].sh_addralign = 8192, "alignment of 8192");
  CASE(o.s[RODATA].sh_type = SHT_INIT_ARRAY, "unexpected type");
  CASE(o.s[TEXT].sh_flags = 0, "no code");
  CASE(o.s[SYMTAB].sh_type = SHT_PROGBITS, "no symbol table");
  CASE(o.s[SYMTAB].sh_entsize = 8, "symbol table is damaged");
  CASE(o.s[SYMTAB].sh_link = 77, "symbol table is damaged");
  CASE(o.s[RODATA].sh_type = SHT_SYMTAB; o.s[RODATA].sh_entsize = 24;
       o.s[RODATA].sh_link = STRTAB, "two symbol tables");
  CASE(o.s[RELA].sh_info = 50, "section 50");
  CASE(o.s[RELA].sh_type = SHT_REL, "wrong kind");
  CASE(o.s[RELA].sh_entsize = 16, "wrong kind");
  CASE(o.sym[1].st_value = 64, "not in the code section");
  CASE(o.sym[1].st_value = 65, "lies outside of its section");
  CASE(o.sym[1].st_shndx = RODATA, "not in the code section");
  CASE(o.sym[1].st_shndx = STRTAB, "neither code nor a constant");
  CASE(o.sym[1].st_shndx = SHN_ABS, "neither code nor a constant");
  CASE(o.sym[1].st_shndx = SHN_COMMON, "neither code nor a constant");
  CASE(o.sym[1].st_name = 5000, "name of symbol 1");
  CASE(o.sym[1].st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC), "defines no function");
#undef CASE
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(layout),
    cmocka_unit_test(x86_relocations),
    cmocka_unit_test(aarch64_relocations),
    cmocka_unit_test(refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
