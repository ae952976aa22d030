// Characters and normal forms: see unicode.h.
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>

// ---- Questions ----

static bool category_between(uint32_t cp, utf8proc_category_t from, utf8proc_category_t to) {
  utf8proc_category_t c = unicode_category(cp);
  return c >= from && c <= to;
}

bool unicode_is_space(uint32_t cp) {
  if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
  return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
         cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

// The categories of utf8proc's enum are in the order of the standard, each group contiguous.
bool unicode_is_letter(uint32_t cp) { return category_between(cp, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO); }
bool unicode_is_mark(uint32_t cp) { return category_between(cp, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME); }
bool unicode_is_number(uint32_t cp) { return category_between(cp, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO); }
bool unicode_is_punctuation(uint32_t cp) { return category_between(cp, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO); }
bool unicode_is_other(uint32_t cp) { return category_between(cp, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO); }
bool unicode_is_decimal(uint32_t cp) { return unicode_category(cp) == UTF8PROC_CATEGORY_ND; }
bool unicode_is_nonspacing(uint32_t cp) { return unicode_category(cp) == UTF8PROC_CATEGORY_MN; }
bool unicode_is_word(uint32_t cp) {
  utf8proc_category_t c = unicode_category(cp);
  if ((c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC) return true;
  if (cp < 0x100) return cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || (cp >= 0xBC && cp <= 0xBE);
  return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169) ||
         (cp >= 0x1F170 && cp <= 0x1F189);
}

bool unicode_is_han(uint32_t cp) {
  static const struct { uint32_t from, to; } blocks[] = {
    {0x4E00, 0x9FFF}, {0x3400, 0x4DBF}, {0xF900, 0xFAFF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
    // the beginning of this block in the library with which such models were trained
    {0x2B920, 0x2CEAF},
    {0x2F800, 0x2FA1F}};
  if (cp < 0x3400) return false;
  for (size_t i = 0; i < COUNT(blocks); i++)
    if (cp >= blocks[i].from && cp <= blocks[i].to) return true;
  return false;
}

int unicode_lower(uint32_t cp, uint32_t out[2]) {
  if (cp < 0x80) { out[0] = cp >= 'A' && cp <= 'Z' ? cp + 32 : cp; return 1; }
  if (cp == 0x130) { out[0] = 'i', out[1] = 0x307; return 2; }   // the only character with a longer small form
  out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
  return 1;
}

// ---- Normal forms ----

static bool composes(enum unicode_form form) { return form == UNICODE_NFC || form == UNICODE_NFKC; }

// An inert character stays as it is, and neither joins nor changes places with the one before it. (The next one may
// still join it: that one is not inert then.)
static bool inert(enum unicode_form form, uint32_t cp) {
  if (cp < 0xA0) return true;
  if (form == UNICODE_NFC && cp < 0x300) return true;
  if ((cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF)) return true;
  if (cp >= 0xAC00 && cp <= 0xD7A3) return composes(form);
  if (cp >= 0x1100 && cp <= 0x11FF) return false;         // jamo join by arithmetic
  const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
  return !p->combining_class && p->decomp_seqindex == UINT16_MAX && !unicode_is_mark(cp);
}

bool unicode_may_change(enum unicode_form form, const char *text, size_t n) {
  for (size_t i = 0; i < n;) {
    uint64_t w;
    if (n - i >= 8 && (memcpy(&w, text + i, 8), !(w & 0x8080808080808080ull))) { i += 8; continue; }
    int len = utf8_next(text + i, n - i);
    if (len > 0 && !inert(form, utf8_code_point(text + i, len))) return true;
    i += len > 0 ? (size_t)len : 1;
  }
  return false;
}

size_t unicode_settled(enum unicode_form form, const char *text, size_t n) {
  for (size_t i = n; i-- > 0;) {
    if (((unsigned char)text[i] & 0xC0) == 0x80) continue;
    int len = utf8_next(text + i, n - i);
    if (len > 0 && inert(form, utf8_code_point(text + i, len))) return i;
  }
  return 0;
}

typedef VEC(int32_t) points;

static int combining_class(int32_t cp) { return utf8proc_get_property(cp)->combining_class; }

// Sorts a run of marks by class; stable.
static void sort_run(int32_t *at, size_t n, int32_t *scratch) {
  if (n <= 16) {
    for (size_t i = 1; i < n; i++)
      for (size_t k = i; k && combining_class(at[k - 1]) > combining_class(at[k]); k--) {
        int32_t swap = at[k];
        at[k] = at[k - 1], at[k - 1] = swap;
      }
    return;
  }
  size_t begin[257] = {0};
  for (size_t i = 0; i < n; i++) begin[combining_class(at[i]) + 1]++;
  for (int c = 0; c < 256; c++) begin[c + 1] += begin[c];
  for (size_t i = 0; i < n; i++) scratch[begin[combining_class(at[i])]++] = at[i];
  memcpy(at, scratch, n * sizeof *at);
}

static void sort_marks(points *p, points *scratch) {
  if (scratch->cap < p->n) {
    scratch->cap = p->n;
    scratch->at = xrealloc(scratch->at, scratch->cap * sizeof *scratch->at);
  }
  for (size_t i = 0; i < p->n;) {
    size_t from = i;
    bool sorted = true;
    for (int last = 0, c; i < p->n && (c = combining_class(p->at[i])); i++, last = c) sorted &= c >= last;
    if (!sorted) sort_run(p->at + from, i - from, scratch->at);
    if (i == from) i++;
  }
}

static void decompose(enum unicode_form form, uint32_t cp, points *out) {
  int32_t parts[32];                                      // the longest has 18
  bool compatible = form == UNICODE_NFKC || form == UNICODE_NFKD;
  utf8proc_option_t options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, parts, COUNT(parts), options, NULL);
  if (n < 0 || n > (utf8proc_ssize_t)COUNT(parts)) { parts[0] = (int32_t)cp; n = 1; }
  for (utf8proc_ssize_t i = 0; i < n; i++) vec_push(out, parts[i]);
}

static void flush_points(enum unicode_form form, points *p, points *scratch, str *out) {
  if (!p->n) return;
  sort_marks(p, scratch);
  utf8proc_ssize_t n = (utf8proc_ssize_t)p->n;
  if (composes(form)) n = utf8proc_normalize_utf32(p->at, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  for (utf8proc_ssize_t i = 0; i < n; i++) {
    char bytes[4];
    str_addn(out, bytes, (size_t)utf8_put((uint32_t)p->at[i], bytes));
  }
  p->n = 0;
}

// Inert characters are output directly, except those that the next character may join: these wait, with everything that
// is not inert.
void unicode_normalize(enum unicode_form form, const char *text, size_t n, str *out) {
  points waiting = {0}, scratch = {0};
  size_t from = 0, i = 0;                                 // [from, i): to be copied as it is
  while (i < n) {
    int len = utf8_next(text + i, n - i);
    if (len <= 0) { flush_points(form, &waiting, &scratch, out); i++; continue; }
    uint32_t cp = utf8_code_point(text + i, len);
    bool still = inert(form, cp);
    if (still) flush_points(form, &waiting, &scratch, out);
    size_t next = i + (size_t)len;
    int after = next < n ? utf8_next(text + next, n - next) : 0;
    if (still && (after <= 0 || inert(form, utf8_code_point(text + next, after)))) { i = next; continue; }
    str_addn(out, text + from, i - from);
    decompose(form, cp, &waiting);
    from = i = next;
    if (after <= 0) flush_points(form, &waiting, &scratch, out);
  }
  str_addn(out, text + from, i - from);
  vec_free(&waiting);
  vec_free(&scratch);
}
