// Declares strftime_l, which time.h lacks.
#ifndef WEFT_MACOS_LOCALE_H
#define WEFT_MACOS_LOCALE_H
#include_next <locale.h>
#include <xlocale.h>
#endif
