// See posix.h.
#include_next <fcntl.h>
#include "base/windows/posix/posix.h"
