// The format of object files, for systems without this header: kernels are ELF objects on all of them (device/elf.h).
// Figures of the System V ABI, its supplements for x86-64 and AArch64, and CUDA's machine number.
#ifndef WEFT_OTHER_ELF_H
#define WEFT_OTHER_ELF_H
#include <stdint.h>

typedef struct Elf64_Ehdr {
  unsigned char e_ident[16];
  uint16_t e_type, e_machine;
  uint32_t e_version;
  uint64_t e_entry, e_phoff, e_shoff;
  uint32_t e_flags;
  uint16_t e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx;
} Elf64_Ehdr;
typedef struct Elf64_Phdr {
  uint32_t p_type, p_flags;
  uint64_t p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align;
} Elf64_Phdr;
typedef struct Elf64_Shdr {
  uint32_t sh_name, sh_type;
  uint64_t sh_flags, sh_addr, sh_offset, sh_size;
  uint32_t sh_link, sh_info;
  uint64_t sh_addralign, sh_entsize;
} Elf64_Shdr;
typedef struct Elf64_Sym {
  uint32_t st_name;
  unsigned char st_info, st_other;
  uint16_t st_shndx;
  uint64_t st_value, st_size;
} Elf64_Sym;
typedef struct Elf64_Rela { uint64_t r_offset, r_info; int64_t r_addend; } Elf64_Rela;
#define ELFMAG "\177ELF"
#define ELF64_R_SYM(info) ((info) >> 32)
#define ELF64_R_TYPE(info) ((info) & 0xffffffff)
#define ELF64_ST_BIND(info) ((info) >> 4)
#define ELF64_ST_TYPE(info) ((info) & 15)
enum {
  EI_CLASS = 4, EI_DATA = 5, ELFCLASS64 = 2, ELFDATA2LSB = 1, SELFMAG = 4, EM_AARCH64 = 183, EM_CUDA = 190,
  EM_X86_64 = 62, ET_EXEC = 2, ET_REL = 1, PT_INTERP = 3, PT_LOAD = 1, R_AARCH64_ABS32 = 258, R_AARCH64_ABS64 = 257,
  R_AARCH64_ADD_ABS_LO12_NC = 277, R_AARCH64_ADR_GOT_PAGE = 311, R_AARCH64_ADR_PREL_PG_HI21 = 275, R_AARCH64_CALL26
  = 283, R_AARCH64_JUMP26 = 282, R_AARCH64_LD64_GOT_LO12_NC = 312, R_AARCH64_LDST128_ABS_LO12_NC = 299,
  R_AARCH64_LDST16_ABS_LO12_NC = 284, R_AARCH64_LDST32_ABS_LO12_NC = 285, R_AARCH64_LDST64_ABS_LO12_NC = 286,
  R_AARCH64_LDST8_ABS_LO12_NC = 278, R_AARCH64_NONE = 0, R_AARCH64_PREL32 = 261, R_AARCH64_PREL64 = 260, R_X86_64_32
  = 10, R_X86_64_32S = 11, R_X86_64_64 = 1, R_X86_64_GOTPCREL = 9, R_X86_64_GOTPCRELX = 41, R_X86_64_NONE = 0,
  R_X86_64_PC32 = 2, R_X86_64_PC64 = 24, R_X86_64_PLT32 = 4, R_X86_64_REX_GOTPCRELX = 42, SHF_ALLOC = 2,
  SHF_EXECINSTR = 4, SHF_TLS = 1024, SHF_WRITE = 1, SHN_UNDEF = 0, SHT_NOBITS = 8, SHT_NOTE = 7, SHT_NULL = 0,
  SHT_PROGBITS = 1, SHT_REL = 9, SHT_RELA = 4, SHT_STRTAB = 3, SHT_SYMTAB = 2,
  STB_LOCAL = 0, STT_FUNC = 2, STT_GNU_IFUNC = 10,
};
#endif
