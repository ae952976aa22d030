// Cubins: what is read of one, and that no bytes lead outside of it. They are made here, with the sections, attributes
// and flags that ptxas writes (test_nv.py reads what the real one makes).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include "base/str.h"
#include "device/nv_cubin.h"

enum { NAMES = 1, STRINGS, SYMBOLS, INFO, KERNEL_INFO, CODE, SHARED, BANK_0, BANK_2, N_SECTIONS, CODE_BYTES = 256 };

typedef struct made { str bytes, names, strings; Elf64_Shdr sections[N_SECTIONS + 1]; int n; } made;

static void add_section(made *m, const char *name, uint32_t type, uint64_t flags, const void *bytes, size_t n) {
  Elf64_Shdr *s = &m->sections[m->n++];
  while (m->bytes.n % 16) str_addc(&m->bytes, 0);
  *s = (Elf64_Shdr){.sh_name = (uint32_t)m->names.n, .sh_type = type, .sh_flags = flags, .sh_offset = m->bytes.n,
                    .sh_size = n};
  str_addn(&m->names, name, strlen(name) + 1);
  if (type != SHT_NOBITS) str_addn(&m->bytes, bytes, n);
}

// An attribute whose value stands behind its head.
static void attribute(str *s, int which, const void *value, size_t n) {
  uint8_t head[] = {4, (uint8_t)which, (uint8_t)n, (uint8_t)(n >> 8)};
  str_addn(s, head, sizeof head);
  str_addn(s, value, n);
}

typedef struct wish { const char *more; int params; bool no_code; unsigned registers; } wish;

static str make(wish w) {
  made m = {.n = 1};
  uint8_t code[CODE_BYTES];
  str info = {0}, kernel_info = {0};
  Elf64_Sym symbols[2] = {{0}, {.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = CODE}};
  uint16_t place[] = {BANK_0, 0, 0x160, (uint16_t)(8 * w.params)};
  for (int i = 0; i < CODE_BYTES; i++) code[i] = (uint8_t)i;
  Elf64_Ehdr e = {.e_type = ET_EXEC};
  str_addn(&m.bytes, &e, sizeof e);
  str_addc(&m.names, 0);
  str_addn(&m.strings, "\0k", 3);
  attribute(&info, 0x2f, (uint32_t[]){1, w.registers}, 8);
  attribute(&info, 0x12, (uint32_t[]){1, 96}, 8);
  attribute(&info, 0x2f, (uint32_t[]){0, 200}, 8);         // of another function
  str_addn(&kernel_info, "\1\x35\0\0\3\x1b\xff\0", 8);
  attribute(&kernel_info, 0x0a, place, 8);
  for (int i = w.params - 1; i >= 0; i--)
    attribute(&kernel_info, 0x17, (uint16_t[]){0, 0, (uint16_t)i, (uint16_t)(8 * i), 0xf000, 0x21}, 12);
  add_section(&m, ".shstrtab", SHT_STRTAB, 0, "", 0);
  add_section(&m, ".strtab", SHT_STRTAB, 0, m.strings.at, m.strings.n);
  add_section(&m, ".symtab", SHT_SYMTAB, 0, symbols, sizeof symbols);
  m.sections[SYMBOLS].sh_entsize = sizeof(Elf64_Sym);
  m.sections[SYMBOLS].sh_link = STRINGS;
  add_section(&m, ".nv.info", SHT_LOPROC, 0, info.at, info.n);
  add_section(&m, ".nv.info.k", SHT_LOPROC, 0, kernel_info.at, kernel_info.n);
  add_section(&m, w.no_code ? ".text.other" : ".text.k", SHT_PROGBITS, 6 | 2 << 20, code, sizeof code);
  add_section(&m, ".nv.shared.k", SHT_NOBITS, 3, NULL, 0x500);
  add_section(&m, ".nv.constant0.k", SHT_PROGBITS, 2, code, 0x10);
  add_section(&m, ".nv.constant2.k", SHT_PROGBITS, 2, code + 8, 24);
  if (w.more) add_section(&m, w.more, SHT_PROGBITS, 2, code, 8);
  m.sections[NAMES].sh_offset = m.bytes.n;
  m.sections[NAMES].sh_size = m.names.n;
  str_addn(&m.bytes, m.names.at, m.names.n);
  e = (Elf64_Ehdr){.e_type = ET_EXEC, .e_machine = 190, .e_shoff = m.bytes.n, .e_shentsize = sizeof(Elf64_Shdr),
                  .e_shnum = (uint16_t)m.n, .e_shstrndx = NAMES};
  memcpy(e.e_ident, ELFMAG, SELFMAG);
  e.e_ident[EI_CLASS] = ELFCLASS64;
  e.e_ident[EI_DATA] = ELFDATA2LSB;
  str_addn(&m.bytes, m.sections, (size_t)m.n * sizeof *m.sections);
  memcpy(m.bytes.at, &e, sizeof e);
  str_free(&m.names); str_free(&m.strings); str_free(&info); str_free(&kernel_info);
  return m.bytes;
}

static const wish plain = {NULL, 3, false, 40};

static int read_it(nv_cubin *c, const str *s, error *err) {
  return nv_cubin_read(c, (const uint8_t *)s->at, s->n, "k", err);
}

static void what_a_cubin_says(void **state) {
  (void)state;
  str s = make(plain);
  nv_cubin c;
  error err = {0};
  if (read_it(&c, &s, &err)) fail_msg("%s", err.text);
  assert_int_equal(c.code_bytes, CODE_BYTES);
  assert_int_equal(c.code[200], 200);
  assert_int_equal(c.registers, 40);
  assert_int_equal(c.barriers, 2);
  assert_int_equal(c.stack_bytes, 96);
  assert_int_equal(c.shared_bytes, 0x500);
  assert_int_equal(c.params_at, 0x160);
  assert_int_equal(c.params_bytes, 24);
  assert_int_equal(c.banks[2].n, 24);
  assert_int_equal(c.banks[2].at[0], 8);
  assert_int_equal(c.banks[1].n + c.banks[3].n, 0);
  str_free(&s);
}

static void expect_refused(wish w, const char *why) {
  str s = make(w);
  nv_cubin c;
  error err = {0};
  assert_int_equal(read_it(&c, &s, &err), -1);
  if (!strstr(err.text, why)) fail_msg("'%s' does not say '%s'", err.text, why);
  str_free(&s);
}

static void what_is_not_done_is_refused(void **state) {
  (void)state;
  expect_refused((wish){".nv.global.init", 3, false, 40}, "'.nv.global.init' of kernel k: tables");
  expect_refused((wish){".nv.constant3", 3, false, 40}, "'.nv.constant3' of kernel k: tables");
  expect_refused((wish){".text.helper", 3, false, 40}, "'.text.helper' of kernel k: tables");
  expect_refused((wish){".rela.text.k", 3, false, 40}, "'.rela.text.k' of kernel k: tables");
  expect_refused((wish){".rel.nv.constant2.k", 3, false, 40}, "code to be linked are not done");
  expect_refused((wish){NULL, 3, true, 40}, "'.text.other'");
  expect_refused((wish){NULL, 3, false, 0}, "k has 0 registers");
  expect_refused((wish){NULL, 3, false, 256}, "k has 256 registers");
  nv_cubin c;
  error err = {0};
  str s = make(plain);
  assert_int_equal(nv_cubin_read(&c, (const uint8_t *)s.at, s.n, "other", &err), -1);
  s.at[18] = 62;                                 // for another machine
  error other = {0};
  assert_int_equal(read_it(&c, &s, &other), -1);
  assert_string_equal(other.text, "cubin: not a cubin");
  str_free(&s);
}

// Cut anywhere, or with any byte changed, in memory of exactly its size (the sanitizers look): whatever is still read
// lies inside.
static void look(const str *s, size_t n, size_t at, int change) {
  uint8_t *p = malloc(n ? n : 1);
  nv_cubin c;
  assert_non_null(p);
  memcpy(p, s->at, n);
  if (at < n) p[at] ^= (uint8_t)change;
  if (!nv_cubin_read(&c, p, n, "k", NULL)) {
    assert_true(c.code >= p && c.code + c.code_bytes <= p + n);
    for (int i = 0; i < NV_BANKS; i++)
      if (c.banks[i].n) assert_true(c.banks[i].at >= p && c.banks[i].at + c.banks[i].n <= p + n);
    assert_true(c.registers && c.registers <= 255 && c.params_at + c.params_bytes <= NV_MOST_CONSTANTS);
  }
  free(p);
}

static void no_bytes_lead_outside(void **state) {
  static const int changes[] = {1, 0x80, 0xff, 0x41};
  (void)state;
  str s = make(plain);
  for (size_t n = 0; n < s.n; n++) look(&s, n, s.n, 0);
  for (size_t at = 0; at < s.n; at++)
    for (size_t i = 0; i < COUNT(changes); i++) look(&s, s.n, at, changes[i]);
  str_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_cubin_says), cmocka_unit_test(what_is_not_done_is_refused),
                                     cmocka_unit_test(no_bytes_lead_outside)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
