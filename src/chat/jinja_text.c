// Strings as Unicode text: see jinja_text.h. Properties come from utf8proc; a table here has the letters whose other
// case is more than one letter.
#define _GNU_SOURCE
#include "chat/jinja_text.h"
#include "text/unicode.h"
#include "text/utf8.h"

static uint32_t at_cp(const char *at, size_t i, size_t to, size_t *len) {
  *len = (size_t)utf8_next(at + i, to - i);
  return utf8_code_point(at + i, (int)*len);
}

static size_t before(const char *at, size_t from, size_t i) {   // the start of the character that ends at i
  do i--; while (i > from && ((unsigned char)at[i] & 0xC0) == 0x80);
  return i;
}

static size_t skip(const char *at, size_t from, size_t to, bool space) {
  size_t len;
  while (from < to && j_is_space(at_cp(at, from, to, &len)) == space) from += len;
  return from;
}

static size_t back(const char *at, size_t from, size_t to, bool space) {
  size_t len;
  while (to > from && j_is_space(at_cp(at, before(at, from, to), to, &len)) == space) to = before(at, from, to);
  return to;
}

size_t j_skip_space(const char *at, size_t from, size_t to) { return skip(at, from, to, true); }
size_t j_skip_word(const char *at, size_t from, size_t to) { return skip(at, from, to, false); }
size_t j_back_space(const char *at, size_t from, size_t to) { return back(at, from, to, true); }
size_t j_back_word(const char *at, size_t from, size_t to) { return back(at, from, to, false); }

// Searches growing pieces: a match near the beginning costs little, even if memmem is instrumented.
const char *j_search(const char *at, size_t n, const char *what, size_t k) {
  for (size_t piece = 256 + 4 * k; n > piece; piece *= 2) {
    const char *hit = memmem(at, piece, what, k);
    if (hit) return hit;
    at += piece - k, n -= piece - k;
  }
  return memmem(at, n, what, k);
}

const char *j_search_back(jrun *r, const char *at, size_t n, const char *what, size_t k) {
  if (k > n) return NULL;
  for (size_t i = n - k + 1; i-- > 0;) {
    if (k && at[i] != what[0]) continue;
    jinja_charge(r, k / 16 + 1);
    if (!memcmp(at + i, what, k)) return at + i;
  }
  return NULL;
}

static bool among(jrun *r, const jstr *chars, const char *at, size_t len) {
  jinja_charge(r, chars->n / 8 + 1);
  for (size_t i = 0; i < chars->n; i += (size_t)utf8_next(chars->at + i, chars->n - i)) {
    size_t k = (size_t)utf8_next(chars->at + i, chars->n - i);
    if (k == len && !memcmp(chars->at + i, at, len)) return true;
  }
  return false;
}

jval j_strip(jrun *r, jval v, jval chars, int sides) {
  const char *at = v.s->at;
  size_t from = 0, to = v.s->n;
  if (chars.type == J_ABSENT || chars.type == J_NONE) {
    if (sides & 1) from = j_skip_space(at, from, to);
    if (sides & 2) to = j_back_space(at, from, to);
    jinja_charge(r, (from + v.s->n - to) / 2);
  } else {
    j_need_str(r, "strip", chars);
    while (sides & 1 && from < to && among(r, chars.s, at + from, (size_t)utf8_next(at + from, to - from)))
      from += (size_t)utf8_next(at + from, to - from);
    while (sides & 2 && to > from && among(r, chars.s, at + before(at, from, to), to - before(at, from, to)))
      to = before(at, from, to);
  }
  return from == 0 && to == v.s->n ? v : j_part(r, v, from, to);
}

// The length of the line end at i, or 0.
static size_t line_end(const char *at, size_t i, size_t n) {
  unsigned char c = (unsigned char)at[i];
  if (c == '\r') return i + 1 < n && at[i + 1] == '\n' ? 2 : 1;
  if ((c >= '\n' && c <= '\f') || (c >= 0x1C && c <= 0x1E)) return 1;
  if (c == 0xC2 && i + 1 < n && (unsigned char)at[i + 1] == 0x85) return 2;
  return c == 0xE2 && i + 2 < n && (unsigned char)at[i + 1] == 0x80 && ((unsigned char)at[i + 2] & 0xFE) == 0xA8 ? 3
                                                                                                                 : 0;
}

jlist *j_split_lines(jrun *r, jval v, bool keep_ends) {
  jlist *l = j_list(r, 0);
  const jstr *s = v.s;
  size_t from = 0;
  jinja_charge(r, s->n / 2);
  for (size_t i = 0; i < s->n;) {
    size_t end = line_end(s->at, i, s->n);
    if (!end) { i++; continue; }
    j_push(r, l, j_part(r, v, from, keep_ends ? i + end : i));
    from = i += end;
  }
  if (from < s->n) j_push(r, l, j_part(r, v, from, s->n));
  return l;
}

jval j_replace(jrun *r, jval v, jval old, jval new, int64_t most) {
  const jstr *s = v.s;
  str *out = j_scratch(r);
  size_t i = 0;
  jinja_charge(r, s->n / 4);
  while (most && i <= s->n) {
    if (!old.s->n) {                       // between all characters, and at both ends
      j_add(r, out, new);
      if (i == s->n) break;
      size_t len = (size_t)utf8_next(s->at + i, s->n - i);
      j_add_part(r, out, s, i, i + len);
      i += len;
    } else {
      const char *hit = j_search(s->at + i, s->n - i, old.s->at, old.s->n);
      if (!hit) break;
      j_add_part(r, out, s, i, (size_t)(hit - s->at));
      j_add(r, out, new);
      i = (size_t)(hit - s->at) + old.s->n;
    }
    jinja_charge(r, 1);
    if (most > 0) most--;
  }
  j_add_part(r, out, s, i, s->n);
  return j_like(j_scratch_end(r), v);
}

jval j_pad(jrun *r, jval v, int64_t width, jval fill, int64_t left) {
  int64_t missing = width - (int64_t)j_chars(r, v.s);
  if (missing <= 0) return v;
  jval front = j_binary(r, '*', fill, j_int(left)), end = j_binary(r, '*', fill, j_int(missing - left));
  return j_like(j_concat(r, j_concat(r, front, v), end), v);
}

// ---- letters --------------------------------------------------------------------------------------------------------

static bool is_cased(uint32_t c) {
  return unicode_category(c) >= UTF8PROC_CATEGORY_LU && unicode_category(c) <= UTF8PROC_CATEGORY_LT;
}
static bool is_upper(uint32_t c) { return unicode_category(c) == UTF8PROC_CATEGORY_LU; }
static bool is_lower(uint32_t c) { return unicode_category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA; }
bool j_is_word(uint32_t c) { return c == '_' || unicode_is_letter(c) || unicode_is_number(c); }

static bool is_digit(uint32_t c) {
  return unicode_category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

// Letters that become several letters, in upper case and as the beginning of a word.
static const struct { uint16_t from; const char *upper, *title;
} special[] = {
  {0xDF, "SS", "Ss"},     {0x149, "ʼN", "ʼN"},  {0x1F0, "J̌", "J̌"},    {0x390, "Ϊ́", "Ϊ́"},    {0x3B0, "Ϋ́", "Ϋ́"},
  {0x587, "ԵՒ", "Եւ"},    {0x1E96, "H̱", "H̱"},   {0x1E97, "T̈", "T̈"},   {0x1E98, "W̊", "W̊"},   {0x1E99, "Y̊", "Y̊"},
  {0x1E9A, "Aʾ", "Aʾ"},   {0xFB00, "FF", "Ff"}, {0xFB01, "FI", "Fi"}, {0xFB02, "FL", "Fl"}, {0xFB03, "FFI", "Ffi"},
  {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"}, {0xFB06, "ST", "St"}, {0xFB13, "ՄՆ", "Մն"}, {0xFB14, "ՄԵ", "Մե"},
  {0xFB15, "ՄԻ", "Մի"},   {0xFB16, "ՎՆ", "Վն"}, {0xFB17, "ՄԽ", "Մխ"},
};

static void add_cp(str *s, uint32_t c) {
  char b[4];
  str_addn(s, b, (size_t)utf8_put(c, b));
}

static void add_upper(str *s, uint32_t c, bool title) {
  for (size_t i = 0; i < COUNT(special) && c >= 0xDF; i++)
    if (special[i].from == c) {
      str_add(s, title ? special[i].title : special[i].upper);
      return;
    }
  add_cp(s, (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)c) : utf8proc_toupper((utf8proc_int32_t)c)));
}

static bool ignorable(uint32_t c) {
  utf8proc_category_t k = unicode_category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
         c == 0x2019;
}

// A capital sigma becomes a final sigma if a letter precedes it and none follows.
static bool final_sigma(const jstr *s, size_t i) {
  size_t len, k = i;
  while (k > 0 && ignorable(at_cp(s->at, before(s->at, 0, k), s->n, &len))) k = before(s->at, 0, k);
  if (k == 0 || !is_cased(at_cp(s->at, before(s->at, 0, k), s->n, &len))) return false;
  for (k = i + 2; k < s->n; k += len) {
    uint32_t c = at_cp(s->at, k, s->n, &len);
    if (!ignorable(c)) return !is_cased(c);
  }
  return true;
}

static void add_lower(str *out, const jstr *s, size_t i, uint32_t c) {
  if (c == 0x130) str_add(out, "i̇");
  else if (c == 0x3A3) add_cp(out, final_sigma(s, i) ? 0x3C2 : 0x3C3);
  else add_cp(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

static void add_folded(str *out, uint32_t c) {
  utf8proc_int32_t to[8];
  int last = 0;
  utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, to, COUNT(to), UTF8PROC_CASEFOLD, &last);
  if (n < 1 || n > (utf8proc_ssize_t)COUNT(to)) { add_cp(out, c); return; }
  for (utf8proc_ssize_t i = 0; i < n; i++) add_cp(out, (uint32_t)to[i]);
}

jval j_case(jrun *r, jval v, jcase how) {
  const jstr *s = v.s;
  str *out = j_scratch(r);
  bool inside = false;                     // after a cased letter
  size_t len, next = 0;
  jinja_charge(r, 2 * s->n);
  for (size_t i = 0; i < s->n; i += len, j_watch(r, out, &next)) {
    uint32_t c = at_cp(s->at, i, s->n, &len);
    size_t since = out->n;
    switch (how) {
      case CASE_LOWER: add_lower(out, s, i, c); break;
      case CASE_UPPER: add_upper(out, c, false); break;
      case CASE_FOLD: add_folded(out, c); break;
      case CASE_CAPITAL: if (i == 0) add_upper(out, c, true); else add_lower(out, s, i, c); break;
      case CASE_SWAP:
        if (is_upper(c)) add_lower(out, s, i, c);
        else if (is_lower(c)) add_upper(out, c, false);
        else add_cp(out, c);
        break;
      case CASE_TITLE: if (inside) add_lower(out, s, i, c); else add_upper(out, c, true); inside = is_cased(c); break;
    }
    j_stands_for(out, since, s, i, i + len);
  }
  return j_like(j_scratch_end(r), v);
}

// ---- character classes of strings -----------------------------------------------------------------------------------

static bool all(jrun *r, const jstr *s, bool (*is)(uint32_t c)) {
  size_t len;
  jinja_charge(r, s->n);
  for (size_t i = 0; i < s->n; i += len) if (!is(at_cp(s->at, i, s->n, &len))) return false;
  return s->n > 0;
}

static bool is_alnum(uint32_t c) { return unicode_is_letter(c) || unicode_is_number(c); }
static bool is_ascii(uint32_t c) { return c < 128; }
static bool is_identifier_part(uint32_t c) {
  return j_is_word(c) || unicode_category(c) == UTF8PROC_CATEGORY_MN || unicode_category(c) == UTF8PROC_CATEGORY_MC;
}

bool j_str_isalnum(jrun *r, const jstr *s) { return all(r, s, is_alnum); }
bool j_str_isalpha(jrun *r, const jstr *s) { return all(r, s, unicode_is_letter); }
bool j_str_isascii(jrun *r, const jstr *s) { return !s->n || all(r, s, is_ascii); }
bool j_str_isdecimal(jrun *r, const jstr *s) { return all(r, s, unicode_is_decimal); }
bool j_str_isdigit(jrun *r, const jstr *s) { return all(r, s, is_digit); }
bool j_str_isnumeric(jrun *r, const jstr *s) { return all(r, s, unicode_is_number); }
bool j_str_isprintable(jrun *r, const jstr *s) { return !s->n || all(r, s, j_is_printable); }
bool j_str_isspace(jrun *r, const jstr *s) { return all(r, s, j_is_space); }

bool j_str_isidentifier(jrun *r, const jstr *s) {
  size_t len;
  if (!s->n) return false;
  uint32_t c = at_cp(s->at, 0, s->n, &len);
  return (c == '_' || unicode_is_letter(c)) && all(r, s, is_identifier_part);
}

// Returns whether there are letters of the wanted case and none of the other.
static bool all_in_case(jrun *r, const jstr *s, bool (*wanted)(uint32_t c), bool (*other)(uint32_t c)) {
  size_t len;
  bool any = false;
  jinja_charge(r, s->n);
  for (size_t i = 0; i < s->n; i += len) {
    uint32_t c = at_cp(s->at, i, s->n, &len);
    if (other(c) || unicode_category(c) == UTF8PROC_CATEGORY_LT) return false;
    any = any || wanted(c);
  }
  return any;
}

bool j_str_islower(jrun *r, const jstr *s) { return all_in_case(r, s, is_lower, is_upper); }
bool j_str_isupper(jrun *r, const jstr *s) { return all_in_case(r, s, is_upper, is_lower); }

bool j_str_istitle(jrun *r, const jstr *s) {
  size_t len;
  bool any = false, inside = false;
  jinja_charge(r, s->n);
  for (size_t i = 0; i < s->n; i += len) {
    uint32_t c = at_cp(s->at, i, s->n, &len);
    bool up = is_upper(c) || unicode_category(c) == UTF8PROC_CATEGORY_LT;
    if (up ? inside : is_lower(c) && !inside) return false;
    inside = up || is_lower(c);
    any = any || inside;
  }
  return any;
}
