// Growing byte strings. Always NUL-terminated (`at` is never NULL after the first addition); n does not count the NUL.
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
void str_add_json_part(str *s, const char *text, size_t n);   // without quotes; text must be whole characters
// The bytes of an invisible character at the beginning of a text that changes how the text is displayed: U+0080 to
// U+009F, direction marks (U+202E), line separators, tags. 0: another character.
size_t str_format_control(const char *text, size_t n);
// Replaces control characters and the above by spaces, since terminals obey them; lines: except line ends.
void str_blank_controls(str *s, bool lines);
// "weft: warning: ..." on stderr, on one line, whatever is in paths and names.
void warning(const char *fmt, ...) PRINTF_LIKE(1, 2);
// Sends warnings to this function instead of stderr, from all threads, concurrently. NULL: stderr again.
typedef void warning_to(void *ctx, const char *text);
void warning_set(warning_to *to, void *ctx);
void str_free(str *s);                                     // s becomes the empty string
int hex_value(char c);                                     // the value of a hexadecimal digit in any case; -1: not one
static inline bool is_ascii_space(uint32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static inline const char *str_c(const str *s) { return s->at ? s->at : ""; }
#endif
