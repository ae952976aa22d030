// unicode: what tokenizers need of the Unicode character database, by utf8proc: categories, small letters, normal
// forms.
//
// utf8proc sorts the marks after a letter by exchanging neighbours, which takes quadratic time if a text consists of
// marks. So unicode_normalize decomposes each character separately, sorts the marks here, and uses utf8proc only to
// compose: time is linear for any text. Bytes that are not UTF-8 stay unchanged in their places.
//
// Invariant: no function keeps state. Look next: pretokenize.h and wordpiece.h, which use it.
#ifndef WEFT_UNICODE_H
#define WEFT_UNICODE_H
#include <utf8proc.h>
#include "base/str.h"
#include "text/utf8.h"

enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD };

// False if a quick check of every character shows that the form changes nothing (true may be a false alarm).
bool unicode_may_change(enum unicode_form form, const char *text, size_t n);
void unicode_normalize(enum unicode_form form, const char *text, size_t n, str *out);   // appends

// The length up to which a text can be normalised separately, however it continues: the beginning of its last character
// that changes nothing before it.
size_t unicode_settled(enum unicode_form form, const char *text, size_t n);

static inline utf8proc_category_t unicode_category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }
bool unicode_is_space(uint32_t cp);         // White_Space
bool unicode_is_letter(uint32_t cp);        // L*
bool unicode_is_number(uint32_t cp);        // N*
bool unicode_is_decimal(uint32_t cp);       // Nd
bool unicode_is_punctuation(uint32_t cp);   // P*
bool unicode_is_mark(uint32_t cp);          // M*
bool unicode_is_nonspacing(uint32_t cp);    // Mn
// Cc, Cf, Co, Cs: control, format, private use, surrogate; not unassigned
bool unicode_is_other(uint32_t cp);
// \w in Oniguruma: letters, marks, digits, "_" and similar, circled letters, and six Latin-1 numbers
bool unicode_is_word(uint32_t cp);
bool unicode_is_han(uint32_t cp);           // CJK ideographs, as BERT's tokenizers delimit them
int unicode_lower(uint32_t cp, uint32_t out[2]);   // the small letter: 1 character, or 2 for U+0130
#endif
