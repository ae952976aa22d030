// strftime_l, which is not in time.h.
#ifndef WEFT_MACOS_LOCALE_H
#define WEFT_MACOS_LOCALE_H
#include_next <locale.h>
#include <xlocale.h>
#endif
