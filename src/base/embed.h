// embed: includes a file of the source tree in the program as constant bytes, by the assembler. EMBED(NAME, "PATH") at
// file scope defines NAME and NAME_end, followed by a NUL; both are hidden in a library.
#ifndef WEFT_EMBED_H
#define WEFT_EMBED_H

#if defined(__APPLE__)
#define EMBED_ASM(name, path) \
  ".section __TEXT,__const\n.globl _" name "\n_" name ":\n.incbin \"" path "\"\n.globl _" name "_end\n_" name \
  "_end:\n.byte 0\n.private_extern _" name "\n.private_extern _" name "_end\n.text\n"
#elif defined(_WIN32)
#define EMBED_ASM(name, path) \
  ".section .rdata,\"dr\"\n.globl " name "\n" name ":\n.incbin \"" path "\"\n.globl " name "_end\n" name \
  "_end:\n.byte 0\n.text\n"
#else
#define EMBED_ASM(name, path) \
  ".section .rodata\n.globl " name "\n" name ":\n.incbin \"" path "\"\n.globl " name "_end\n" name \
  "_end:\n.byte 0\n.hidden " name ", " name "_end\n.previous\n"
#endif
#define EMBED(name, path) __asm__(EMBED_ASM(#name, path)); extern const char name[], name##_end[]
#endif
