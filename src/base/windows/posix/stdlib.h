// See posix.h.
#ifndef WEFT_WINDOWS_STDLIB_H
#define WEFT_WINDOWS_STDLIB_H
#include_next <stdlib.h>
#include "base/windows/posix/posix.h"
#endif
