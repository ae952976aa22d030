// See posix.h.
#include_next <string.h>
#include "base/windows/posix/posix.h"
