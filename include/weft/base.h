/* weft/base.h: what every other header needs: the version, errors, memory. */
#ifndef WEFT_API_BASE_H
#define WEFT_API_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* These two enclose the declarations of each header: C linkage in C++, and the only names that the library exports. */
#ifdef __cplusplus
#define WEFT_BEGIN_C extern "C" {
#define WEFT_END_C }
#else
#define WEFT_BEGIN_C
#define WEFT_END_C
#endif
#ifdef __GNUC__
#define WEFT_BEGIN WEFT_BEGIN_C _Pragma("GCC visibility push(default)")
#define WEFT_END _Pragma("GCC visibility pop") WEFT_END_C
#else
#define WEFT_BEGIN WEFT_BEGIN_C
#define WEFT_END WEFT_END_C
#endif

WEFT_BEGIN

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
const char *weft_version(void);               /* "0.1.0": the version of the linked library */

typedef struct weft_error { char text[1024]; } weft_error;   /* needs no initialisation */

/* Sends warnings, one sentence each without a line end, to log; NULL (the default): to stderr. The setting is for the
 * whole process. Any thread may call log, concurrently, and may still call it after another one was set: log and ctx
 * must stay valid until the process ends. The output of the variable DEBUG always goes to stderr. */
typedef void weft_log(void *ctx, const char *text);
void weft_log_to(weft_log *log, void *ctx);

/* Structs of options begin with `size`: set it to sizeof of the struct.  A program that was built with an older header
 * then gets defaults for fields that came later.  A program that was built with a newer header gets an error, if it
 * sets a field that the library does not know.  0: the fields of version 0.1.0.  Other structs keep their fields until
 * the minor version changes, and with it the SONAME. */

void weft_free(void *p);                      /* NULL is fine */
/* Any bytes as valid UTF-8: broken sequences become U+FFFD. Terminated (*n_out does not count that), for weft_free. */
char *weft_utf8(const char *text, size_t n, size_t *n_out);

WEFT_END
#endif
