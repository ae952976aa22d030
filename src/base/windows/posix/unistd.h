// See posix.h.
#include_next <unistd.h>
#include "base/windows/posix/posix.h"
