// Growing byte strings.  Always NUL-terminated (at is never NULL after the first call that adds), n does not count the
// NUL.
#ifndef WEFT_STR_H
#define WEFT_STR_H
#include "base/base.h"

typedef struct str { char *at; size_t n, cap; } str;      // {0} is the empty string
void str_add(str *s, const char *text);
void str_addn(str *s, const void *bytes, size_t n);
void str_addc(str *s, char c);
void str_addf(str *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void str_vaddf(str *s, const char *fmt, va_list ap);
void str_vadd_plain(str *s, const char *fmt, va_list ap);  // one line: control characters become spaces
void str_add_json(str *s, const char *text, size_t n);  // as a JSON string, in quotes: broken UTF-8 becomes U+FFFD; no
                                                        // '<', so that it is safe inside of an HTML script
void str_add_json_part(str *s, const char *text, size_t n);   // the same without quotes, of whole characters
// The bytes of a character at the beginning of a text that is not seen and changes what is: U+0080 to U+009F, marks of
// direction (U+202E), separators of lines, tags. 0: it has another one there.
size_t str_format_control(const char *text, size_t n);
// Control characters, and these, become spaces, since a terminal obeys them; lines: but for line ends.
void str_blank_controls(str *s, bool lines);
// "weft: warning: ..." on stderr, on one line whatever paths and names are in it.
void warning(const char *fmt, ...) PRINTF_LIKE(1, 2);
// Who gets warnings in place of stderr: for all threads, which may call it at once.  NULL: stderr again.
typedef void warning_to(void *ctx, const char *text);
void warning_set(warning_to *to, void *ctx);
void str_free(str *s);                                     // s is the empty string again
int hex_value(char c);                                     // of a hexadecimal digit in any case; -1: it is none
static inline bool is_ascii_space(uint32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static inline const char *str_c(const str *s) { return s->at ? s->at : ""; }
#endif
