// See sys/socket.h.
#include "base/windows/posix/sys/socket.h"
