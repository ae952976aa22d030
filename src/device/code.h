// Machine code: converts linked bytes to callable functions.
//
// A code_blob is position-independent code with its constants and the offsets of its functions: the output of the
// linker (elf.h), stored by the cache (cache.h) in packed form, and made executable by code_map. Invariant: memory is
// written while it is RW and then becomes RX; it is never writable and executable at once, and is not patched later.
#ifndef WEFT_DEVICE_CODE_H
#define WEFT_DEVICE_CODE_H
#include "base/base.h"

// {0} is empty; at is from malloc, owned by the holder of the struct
typedef struct bytes { uint8_t *at; size_t n; } bytes;
void bytes_free(bytes *b);                               // b is empty again

typedef struct code_symbol { char *name; uint32_t offset; } code_symbol;
typedef struct code_blob {
  bytes code;                           // instructions and constants; code.n > 0
  VEC(code_symbol) symbols;             // global functions, in the order of the object's symbol table; offsets < code.n
  uint32_t machine;                     // ELF's number of its processor family; 0: this one's
} code_blob;
void code_blob_free(code_blob *b);      // b is {0} again

// Packs a blob as one byte string for the cache, and unpacks it. Unpacking checks everything: other bytes give an
// error, never a blob with symbols outside its code. (The cache's tag tells whether the code itself is undamaged.) The
// packed form names the processor family; a blob for another family is an error, except while kernels are collected
// (kernel_set.h), which are not run. out: caller frees with bytes_free. Returns 0, or -1 if it is too large.
int code_blob_pack(const code_blob *b, bytes *out, error *err);
int code_blob_unpack(const uint8_t *p, size_t n, code_blob *out, error *err);         // on error out is {0}

// Executable memory: one mapping with all blobs of a batch, each at a multiple of CODE_ALIGN. AArch64 code addresses
// its constants by page and relies on that alignment.
enum { CODE_ALIGN = 4096 };
typedef struct code_image code_image;
typedef void (*code_fn)(void);          // cast to the function's real type
// NULL and err on failure; the blobs may be freed after
code_image *code_map(const code_blob *const *blobs, size_t n, error *err);
// NULL if blob number `blob` has no such function
code_fn code_find(const code_image *c, size_t blob, const char *name);
size_t code_bytes(const code_image *c);                                                     // size of the mapping
// NULL is fine; none of its functions may be running
void code_unmap(code_image *c);
#endif
