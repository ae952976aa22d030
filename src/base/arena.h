// Arenas: allocation in bulk, freed in one call. Every allocation is zeroed and aligned to 16 bytes. Blocks are charged
// to the account of the thread that makes the arena (account.h).
#ifndef WEFT_ARENA_H
#define WEFT_ARENA_H
#include "base/base.h"

typedef struct arena arena;
arena *arena_new(void);                                   // caller frees with arena_free
void arena_free(arena *a);                                // frees everything allocated from it; NULL is fine
void *arena_alloc(arena *a, size_t n);                    // never NULL; n bytes of zeros, owned by the arena
char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, size_t n);   // adds a NUL that n does not count
char *arena_printf(arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
size_t arena_bytes(const arena *a);                       // bytes allocated so far
#define ARENA_NEW(a, T) ((T *)arena_alloc(a, sizeof(T)))
#define ARENA_ARRAY(a, T, n) ((T *)arena_alloc(a, (size_t)(n) * sizeof(T)))
#endif
