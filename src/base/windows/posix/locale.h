// Locale objects.
#ifndef WEFT_WINDOWS_LOCALE_H
#define WEFT_WINDOWS_LOCALE_H
#include_next <locale.h>
#include <time.h>
typedef _locale_t locale_t;
enum { LC_ALL_MASK = LC_ALL, LC_TIME_MASK = LC_TIME };
#define newlocale(mask, name, base) _create_locale(mask, name)
// There are no locales of threads: the library reads and writes numbers as the program's locale says.
static inline locale_t uselocale(locale_t l) { (void)l; return NULL; }
#define freelocale(l) _free_locale(l)
#define strftime_l(to, n, fmt, tm, l) _strftime_l(to, n, fmt, tm, l)
#endif
