// See posix.h. fopen accepts "e" and opens files in binary mode.
#ifndef WEFT_WINDOWS_STDIO_H
#define WEFT_WINDOWS_STDIO_H
#include_next <stdio.h>
#include "base/windows/posix/posix.h"
FILE *posix_fopen(const char *path, const char *mode);
FILE *fmemopen(void *bytes, size_t n, const char *mode);
int asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int vasprintf(char **out, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));
#define fopen posix_fopen
#endif
