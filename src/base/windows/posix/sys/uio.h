// Gathered buffers for one write.
#ifndef WEFT_WINDOWS_UIO_H
#define WEFT_WINDOWS_UIO_H
#include <stddef.h>
struct iovec { void *iov_base; size_t iov_len; };
#endif
