// plain: reads and writes numbers, and compares ASCII letters, independently of the program's locale.
//
// A program that embeds the library may have called setlocale: then strtod and printf use its decimal point, and
// ctype.h and strcasecmp its letters (in Turkish, i is not the small letter of I). What the library reads and writes
// has no locale. So code of the library calls these functions, for integers the C library's own; test_folders.py
// searches for others. The thread's locale is changed for the call alone (uselocale, about 10 ns, beside 240 for a real
// number): not at the entries of the library, since callbacks of the program run below those, and its threads and child
// processes would each need it.
#ifndef WEFT_PLAIN_H
#define WEFT_PLAIN_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

double plain_strtod(const char *text, char **end);
float plain_strtof(const char *text, char **end);
int plain_vsnprintf(char *out, size_t n, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));
int plain_snprintf(char *out, size_t n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int plain_sscanf(const char *text, const char *fmt, ...) __attribute__((format(scanf, 2, 3)));

// Between these two, this thread has the locale "C": for libraries that ask for the decimal point themselves.
typedef struct plain_scope { void *before; } plain_scope;
plain_scope plain_begin(void);
void plain_end(plain_scope s);

static inline bool ascii_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static inline bool ascii_is_alnum(char c) { return ascii_is_letter(c) || (c >= '0' && c <= '9'); }
static inline char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }
// As strncasecmp and strcasestr, for ASCII letters.
int ascii_ncasecmp(const char *a, const char *b, size_t n);
const char *ascii_casestr(const char *in, const char *what);
static inline int ascii_casecmp(const char *a, const char *b) { return ascii_ncasecmp(a, b, (size_t)-1); }
#endif
