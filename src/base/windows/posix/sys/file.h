// See posix.h.
#include "base/windows/posix/posix.h"
