// Prints numbers and dates, and implements Python's two kinds of formatting: "%s" % x and "{}".format(x).
//
// A float prints as the shortest decimal that reads back as the same float. Widths and precisions are limited: padding
// is the cheapest source of long texts.
#define _GNU_SOURCE
#include "chat/jinja_impl.h"
#include "base/plain.h"
#include "text/utf8.h"
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <utf8proc.h>

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 1000 };

// ---- characters -----------------------------------------------------------------------------------------------------

bool j_is_space(uint32_t c) {
  if (c < 128) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool j_is_printable(uint32_t c) {
  if (c < 128) return c >= ' ' && c < 127;
  utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
  return !(k >= UTF8PROC_CATEGORY_ZS && k <= UTF8PROC_CATEGORY_CO) && k != UTF8PROC_CATEGORY_CN;
}

// ---- floats ---------------------------------------------------------------------------------------------------------

void j_add_float(jrun *r, str *s, double f) {
  char buf[40];
  if (isnan(f)) { str_add(s, "nan"); return; }
  if (isinf(f)) { str_add(s, f < 0 ? "-inf" : "inf"); return; }
  // Any decimal of up to 15 digits survives a double: if 15 digits are enough, the shortest text is those without
  // trailing zeros. The smallest floats have fewer bits, so they are tried from one digit on.
  int digits = fabs(f) < DBL_MIN ? 0 : 14;
  jinja_charge(r, digits ? 128 : 1024);
  do plain_snprintf(buf, sizeof buf, "%.*e", digits, f); while (plain_strtod(buf, NULL) != f && ++digits < 17);
  for (const char *end = strchr(buf, 'e'); digits && end[-1] == '0'; end--) digits--;
  int exponent = atoi(strchr(buf, 'e') + 1);
  if (exponent >= -4 && exponent < 16) {
    int after = digits - exponent;
    str_addf(s, "%.*f", after < 1 ? 1 : after, f);
    return;
  }
  str_addf(s, "%.*e", digits, f);   // at least two exponent digits, as in Python
}

// ---- format specifications ------------------------------------------------------------------------------------------

struct spec {
  uint32_t fill;
  char align;                // < > = ^ or 0
  char sign;                 // + - or space
  bool alternate;
  char group;                // , or _ or 0
  int64_t width, precision;  // -1: not given
  char type;                 // 0: not given
};

static void add_repeated(str *s, uint32_t cp, int64_t times) {
  char b[4];
  int n = utf8_put(cp, b);
  for (int64_t i = 0; i < times; i++) str_addn(s, b, (size_t)n);
}

// Appends text, padded to the width. lead: bytes of sign and prefix before a number's digits.
static void add_padded(jrun *r, str *s, const struct spec *f, jstr text, size_t lead, char default_align) {
  int64_t missing = f->width - (int64_t)j_chars(r, &text);
  char align = f->align ? f->align : default_align;
  if (missing < 0) missing = 0;
  jinja_charge(r, (uint64_t)missing / 2);
  int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  if (align == '=') {
    j_add_part(r, s, &text, 0, lead);
    add_repeated(s, f->fill, missing);
    j_add_part(r, s, &text, lead, text.n);
  } else {
    add_repeated(s, f->fill, left);
    j_add_part(r, s, &text, 0, text.n);
    add_repeated(s, f->fill, missing - left);
  }
  j_guard(r, s);
}

static void check_sizes(jrun *r, const struct spec *f) {
  if (f->width > MAX_WIDTH) jinja_fail(r, "a width of more than %d", MAX_WIDTH);
  if (f->precision > MAX_PRECISION) jinja_fail(r, "a precision of more than %d", MAX_PRECISION);
}

// Appends an unsigned integer in a base.
static void add_in_base(str *s, uint64_t v, int base, bool upper) {
  char buf[65];
  size_t i = sizeof buf;
  do buf[--i] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[v % (uint64_t)base]; while (v /= (uint64_t)base);
  str_addn(s, buf + i, sizeof buf - i);
}

static uint64_t magnitude_of(int64_t v) { return v < 0 ? 0 - (uint64_t)v : (uint64_t)v; }

// Inserts separators into the digits that start at `from`: every 3 from their end, 4 for bases other than ten.
static void group_digits(str *s, size_t from, char separator, int every) {
  size_t end = from;
  while (end < s->n && s->at[end] && strchr("0123456789abcdefABCDEF", s->at[end])) end++;
  size_t n = end - from;
  str out = {0};
  for (size_t i = 0; i < n; i++) {
    if (i && (n - i) % (size_t)every == 0) str_addc(&out, separator);
    str_addc(&out, s->at[from + i]);
  }
  str_addn(&out, s->at + end, s->n - end);
  s->n = from;
  str_addn(s, str_c(&out), out.n);
  str_free(&out);
}

// Appends a number by its specification: sign, prefix, digits; *lead is the length of sign and prefix.
static void number_by_spec(jrun *r, str *s, const struct spec *f, jval v, size_t *lead) {
  char type = f->type;
  bool negative = v.type == J_FLOAT ? signbit(v.f) && !isnan(v.f) : j_whole(v) < 0;
  bool whole = type && strchr("bdoxXniu", type) && type != 'n';
  if (!type) whole = v.type != J_FLOAT;
  if (type == 'n') whole = v.type != J_FLOAT;
  if (negative) str_addc(s, '-');
  else if (f->sign == '+' || f->sign == ' ') str_addc(s, f->sign);
  if (whole) {
    int base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    if (f->alternate && base != 10) { str_addc(s, '0'); str_addc(s, type); }
    *lead = s->n;
    add_in_base(s, magnitude_of(j_whole(v)), base, type == 'X');
    if (f->group) group_digits(s, *lead, f->group, base == 10 ? 3 : 4);
    return;
  }
  double d = fabs(v.type == J_FLOAT ? v.f : (double)j_whole(v));
  int precision = f->precision < 0 ? 6 : (int)f->precision;
  *lead = s->n;
  if (!isfinite(d)) {
    bool upper = type && strchr("EFG", type);
    str_add(s, isnan(d) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
    return;
  }
  if (!type && f->precision < 0) {
    j_add_float(r, s, d);
  } else if (type == '%') {
    str_addf(s, "%.*f%%", precision, d * 100);
  } else {
    char letter = !type || type == 'n' ? 'g' : type, fmt[] = {'%', '#', '.', '*', letter, 0};
    if (!f->alternate) memmove(fmt + 1, fmt + 2, 4);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    str_addf(s, fmt, precision, d);
#pragma GCC diagnostic pop
    if (!type && !memchr(s->at + *lead, '.', s->n - *lead) && !memchr(s->at + *lead, 'e', s->n - *lead))
      str_add(s, ".0");
  }
  if (f->group) group_digits(s, *lead, f->group, 3);
  jinja_charge(r, 64 + 2 * s->n);
}

// A string of computed bytes, not written by the template.
static jstr plain_text(const str *s) { return (jstr){.at = str_c(s), .n = s->n, .chars = SIZE_MAX}; }

static void add_number(jrun *r, str *s, const struct spec *f, jval v) {
  size_t lead = 0;
  str *text = j_scratch(r);
  number_by_spec(r, text, f, v, &lead);
  add_padded(r, s, f, plain_text(text), lead, '>');
  j_scratch_drop(r);
}

static void add_text_by_spec(jrun *r, str *s, const struct spec *f, jval v, char default_align) {
  size_t n = v.s->n;
  if (f->precision >= 0 && (uint64_t)f->precision < j_chars(r, v.s)) n = j_offset(r, v.s, (size_t)f->precision);
  add_padded(r, s, f, (jstr){.at = v.s->at, .n = n, .chars = SIZE_MAX, .own = v.s->own}, 0, default_align);
}

// ---- % --------------------------------------------------------------------------------------------------------------

struct percent { jrun *r; jval args; size_t next, n; bool mapping; };

static jval percent_arg(struct percent *p) {
  if (p->next >= p->n) jinja_fail(p->r, "not enough arguments for format string");
  return p->args.type == J_TUPLE ? p->args.l->at[p->next++] : (p->next++, p->args);
}

static int64_t percent_size(struct percent *p, const char *at, size_t n, size_t *i) {
  int64_t v = 0;
  if (*i < n && at[*i] == '*') { ++*i; return j_need_int(p->r, "* in a format", percent_arg(p)); }
  while (*i < n && at[*i] >= '0' && at[*i] <= '9') {
    v = v * 10 + at[(*i)++] - '0';
    if (v > MAX_WIDTH) jinja_fail(p->r, "a width of more than %d", MAX_WIDTH);
  }
  return v;
}

static void percent_value(struct percent *p, str *s, struct spec *f, char c, jval v, bool safe) {
  jrun *r = p->r;
  char default_align = '>';
  if (c == 's' || c == 'r' || c == 'a') {
    str *text = j_scratch(r);
    if (c == 's') j_add(r, text, v);
    else j_add_repr(r, text, v);
    jval t = j_scratch_end(r);
    if (safe) t = j_escape(r, v.type == J_STR && c == 's' ? v : t);
    f->fill = ' ';
    if (f->align == '=') f->align = 0;
    add_text_by_spec(r, s, f, t, default_align);
    return;
  }
  if (c == 'c') {
    char b[4];
    int n = 0;
    if (v.type == J_STR && j_chars(r, v.s) == 1) { add_text_by_spec(r, s, f, v, default_align); return; }
    if (j_is_whole(v) && j_whole(v) >= 0 && j_whole(v) < 0x110000 && (j_whole(v) < 0xD800 || j_whole(v) > 0xDFFF))
      n = utf8_put((uint32_t)j_whole(v), b);
    if (!n) jinja_fail(r, "%%c requires int or char");
    add_padded(r, s, f, (jstr){.at = b, .n = (size_t)n, .chars = SIZE_MAX}, 0, default_align);
    return;
  }
  if (!strchr("diuoxXeEfFgG", c)) jinja_fail(r, "unsupported format character '%c'", c);
  if (!j_is_num(v)) jinja_fail(r, "%%%c format: a real number is required, not %s", c, j_type_name(v));
  bool whole = strchr("diuoxX", c);
  if (whole && v.type == J_FLOAT) {
    if (strchr("oxX", c)) jinja_fail(r, "%%%c format: an integer is required, not float", c);
    if (!(fabs(v.f) < 9.2e18)) jinja_fail(r, "%%%c format: %g does not fit 64 bits", c, v.f);
    v = j_int((int64_t)v.f);
  }
  f->type = whole && strchr("iu", c) ? 'd' : c;
  if (f->precision >= 0 && whole) {     // an integer's precision is its minimum number of digits
    struct spec plain = *f;
    size_t lead = 0;
    plain.width = 0;
    str *text = j_scratch(r);
    number_by_spec(r, text, &plain, v, &lead);
    str *wide = j_scratch(r);
    str_addn(wide, text->at, lead);
    add_repeated(wide, '0', f->precision - (int64_t)(text->n - lead));
    str_addn(wide, text->at + lead, text->n - lead);
    if (f->align == '=') f->fill = '0';
    add_padded(r, s, f, plain_text(wide), lead, '>');
    j_scratch_drop(r);
    j_scratch_drop(r);
    return;
  }
  add_number(r, s, f, v);
}

jval j_percent(jrun *r, jval fmt, jval args) {
  struct percent p = {.r = r, .args = args, .n = args.type == J_TUPLE ? args.l->n : 1};
  p.mapping = args.type == J_DICT || args.type == J_LIST || args.type == J_RANGE || args.type == J_UNDEF;
  str *s = j_scratch(r);
  const char *at = fmt.s->at;
  size_t n = fmt.s->n;
  jinja_charge(r, n / 2);
  for (size_t i = 0; i < n;) {
    if (at[i] != '%') { j_add_part(r, s, fmt.s, i, i + 1); i++; continue; }
    struct spec f = {.fill = ' ', .precision = -1};
    jval v = j_absent();
    if (++i < n && at[i] == '(') {
      size_t from = ++i;
      int open = 1;
      while (i < n && (open += (at[i] == '(') - (at[i] == ')'))) i++;
      if (i >= n) jinja_fail(r, "incomplete format key");
      if (args.type != J_DICT) jinja_fail(r, "format requires a mapping");
      if (!j_dict_get_text(r, args.d, at + from, i - from, &v))
        jinja_fail(r, "the mapping of a format has no '%.*s'", (int)(i - from > 100 ? 100 : i - from), at + from);
      i++;
      p.next = 1;
    }
    for (; i < n && at[i] && strchr("-+ #0", at[i]); i++) {
      if (at[i] == '-') f.align = '<';
      else if (at[i] == '+') f.sign = '+';
      else if (at[i] == ' ') { if (!f.sign) f.sign = ' '; }
      else if (at[i] == '#') f.alternate = true;
      else if (!f.align) { f.align = '='; f.fill = '0'; }
    }
    if (f.align == '<') f.fill = ' ';
    f.width = percent_size(&p, at, n, &i);
    if (f.width < 0) { f.align = '<'; f.fill = ' '; f.width = f.width > -MAX_WIDTH ? -f.width : MAX_WIDTH + 1; }
    if (i < n && at[i] == '.') { i++; f.precision = percent_size(&p, at, n, &i); if (f.precision < 0) f.precision = 0; }
    check_sizes(r, &f);
    if (i < n && at[i] && strchr("hlL", at[i])) i++;
    if (i >= n) jinja_fail(r, "incomplete format");
    char c = at[i++];
    if (c == '%') { j_add_part(r, s, fmt.s, i - 1, i); continue; }
    if (!c || !strchr("sracdiuoxXeEfFgG", c))
      jinja_fail(r, "unsupported format character '%c' (0x%02x)", c > ' ' ? c : '?', (unsigned char)c);
    if (v.type == J_ABSENT) v = percent_arg(&p);
    percent_value(&p, s, &f, c, v, fmt.safe);
    j_guard(r, s);
  }
  if (p.next < p.n && !p.mapping) jinja_fail(r, "not all arguments converted during string formatting");
  return j_like(j_scratch_end(r), fmt);
}

// ---- format() -------------------------------------------------------------------------------------------------------

static struct spec parse_spec(jrun *r, const char *at, size_t n) {
  struct spec f = {.fill = ' ', .precision = -1};
  size_t i = 0, len = n ? (size_t)utf8_next(at, n) : 0;
  bool zero = false, filled = false;
  if (n > len && len && strchr("<>=^", at[len]) && at[len]) {
    f.fill = utf8_code_point(at, (int)len);
    f.align = at[len];
    i = len + 1;
    filled = true;
  } else if (n && at[0] && strchr("<>=^", at[0])) f.align = at[i++];
  if (i < n && at[i] && strchr("+- ", at[i])) f.sign = at[i++];
  if (i < n && at[i] == '#') { f.alternate = true; i++; }
  if (i < n && at[i] == '0') { zero = true; i++; }
  for (; i < n && at[i] >= '0' && at[i] <= '9'; i++) { f.width = f.width * 10 + at[i] - '0'; check_sizes(r, &f); }
  if (i < n && (at[i] == ',' || at[i] == '_')) f.group = at[i++];
  if (i < n && at[i] == '.') {
    size_t from = ++i;
    f.precision = 0;
    for (; i < n && at[i] >= '0' && at[i] <= '9'; i++) {
      f.precision = f.precision * 10 + at[i] - '0';
      check_sizes(r, &f);
    }
    if (i == from) jinja_fail(r, "a format specification without digits after '.'");
  }
  if (i < n) f.type = at[i++];
  if (i < n || (f.type && !strchr("bcdeEfFgGnosxX%", f.type)))
    jinja_fail(r, "invalid format specification '%.*s'", (int)(n > 100 ? 100 : n), at);
  if (zero && !filled) f.fill = '0';
  if (zero && !f.align) f.align = '=';
  return f;
}

static void format_value(jrun *r, str *s, jval v, const char *at, size_t n) {
  if (!n) { j_add(r, s, v); return; }
  struct spec f = parse_spec(r, at, n);
  if (v.type == J_BOOL && !f.type) v = j_to_str(r, v);
  if (v.type == J_STR) {
    if (f.type && f.type != 's') jinja_fail(r, "unknown format code '%c' for a string", f.type);
    if (f.align == '=' && f.fill == '0') f.align = '<';
    if (f.align == '=' || f.sign || f.group) jinja_fail(r, "a string has no sign and no groups of digits");
    add_text_by_spec(r, s, &f, v, '<');
    return;
  }
  if (v.type == J_UNDEF) { jval e = j_text(r, ""); add_text_by_spec(r, s, &f, e, '<'); return; }
  if (!j_is_num(v)) jinja_fail(r, "unsupported format string passed to %s.__format__", j_type_name(v));
  if (f.type == 's') jinja_fail(r, "unknown format code 's' for a number");
  if (f.type == 'c') {
    char b[4];
    if (!j_is_whole(v) || j_whole(v) < 0 || j_whole(v) > 0x10FFFF || (j_whole(v) >= 0xD800 && j_whole(v) < 0xE000))
      jinja_fail(r, "this number is no character");
    int len = utf8_put((uint32_t)j_whole(v), b);
    add_padded(r, s, &f, (jstr){.at = b, .n = (size_t)len, .chars = SIZE_MAX}, 0, '<');
    return;
  }
  if (v.type == J_FLOAT && f.type && strchr("bdoxX", f.type))
    jinja_fail(r, "unknown format code '%c' for a float", f.type);
  if (j_is_whole(v) && f.precision >= 0 && (!f.type || strchr("bdoxXn", f.type)))
    jinja_fail(r, "no precision in the format of an integer");
  add_number(r, s, &f, v);
}

struct format { jrun *r; const jargs *a; int64_t automatic; bool numbered; };

// The value that a replacement field names: "0", "name", "0.attr[key]".
static jval field_value(struct format *x, const char *at, size_t n) {
  jrun *r = x->r;
  size_t i = 0;
  int64_t number = 0;
  bool digits = true;
  while (i < n && at[i] != '.' && at[i] != '[') {
    if (at[i] < '0' || at[i] > '9') digits = false;
    else if (number < 1 << 20) number = number * 10 + at[i] - '0';
    i++;
  }
  jval v = j_absent();
  if (i == 0 || digits) {
    if (i == 0 ? x->numbered : x->automatic > 0) jinja_fail(r, "a format mixes numbered and unnumbered fields");
    if (i == 0) number = x->automatic++;
    else x->numbered = true;
    if (number >= (int64_t)x->a->n)
      jinja_fail(r, "replacement index %lld out of range for positional args", (long long)number);
    v = x->a->pos[number];
  } else {
    for (size_t k = 0; k < x->a->n_kw; k++)
      if (x->a->kw[k].name->n == i && !memcmp(x->a->kw[k].name->at, at, i)) v = x->a->kw[k].v;
    if (v.type == J_ABSENT) jinja_fail(r, "a format names '%.*s', which was not given", (int)(i > 100 ? 100 : i), at);
  }
  while (i < n) {
    bool item = at[i++] == '[';
    size_t from = i;
    while (i < n && (item ? at[i] != ']' : at[i] != '.' && at[i] != '[')) i++;
    if (i == from || (item && i >= n)) jinja_fail(r, "empty attribute in a format");
    jval key = j_str(r, at + from, i - from);
    bool whole = item;
    for (size_t k = from; k < i; k++) whole = whole && at[k] >= '0' && at[k] <= '9' && i - from < 10;
    v = item ? j_item(r, v, whole ? j_int(atoi(key.s->at)) : key) : j_attr(r, v, key.s);
    i += item;
  }
  return v;
}

static void format_text(struct format *x, str *s, const jstr *of, bool nested, bool safe) {
  jrun *r = x->r;
  const char *at = of->at;
  size_t n = of->n;
  jinja_charge(r, n / 2 + 1);
  for (size_t i = 0; i < n;) {
    char c = at[i++];
    if (c == '}' && i < n && at[i] == '}' && !nested) { j_add_part(r, s, of, i, i + 1); i++; continue; }
    if (c == '}') jinja_fail(r, "single '}' encountered in format string");
    if (c != '{') { j_add_part(r, s, of, i - 1, i); continue; }
    if (i < n && at[i] == '{' && !nested) { j_add_part(r, s, of, i, i + 1); i++; continue; }
    size_t from = i;
    int open = 1;
    while (i < n && (open += (at[i] == '{') - (at[i] == '}'))) i++;
    if (i >= n) jinja_fail(r, "expected '}' before end of string");
    size_t end = i++, name = from;
    while (name < end && at[name] != ':' && at[name] != '!') {
      const char *close = at[name] == '[' ? memchr(at + name, ']', end - name) : at + name + 1;
      if (!close) jinja_fail(r, "expected ']' in a format");
      name = (size_t)(close - at);
    }
    jval v = field_value(x, at + from, name - from);
    if (name < end && at[name] == '!') {
      char how = name + 1 < end ? at[name + 1] : 0;
      if (!(how == 'r' || how == 's') || (name + 2 < end && at[name + 2] != ':'))
        jinja_fail(r, "a conversion in a format is !r or !s");
      str *text = j_scratch(r);
      if (how == 'r') j_add_repr(r, text, v);
      else j_add(r, text, v);
      v = j_scratch_end(r);
      name += 2;
    }
    const char *spec = at + name + (name < end);
    size_t n_spec = (size_t)(at + end - spec);
    if (n_spec && memchr(spec, '{', n_spec)) {
      if (nested) jinja_fail(r, "a format nested more than twice");
      str *text = j_scratch(r);
      format_text(x, text, &(jstr){.at = spec, .n = n_spec, .chars = SIZE_MAX}, true, false);
      jval made = j_scratch_end(r);
      spec = made.s->at, n_spec = made.s->n;
    }
    if (safe) {
      str *text = j_scratch(r);
      format_value(r, text, v, spec, n_spec);
      jval made = j_scratch_end(r);
      made.safe = v.type == J_STR && v.safe;
      j_add(r, s, j_escape(r, made));
    } else {
      format_value(r, s, v, spec, n_spec);
    }
    j_guard(r, s);
  }
}

jval j_format_method(jrun *r, jval self, const jargs *a) {
  struct format x = {.r = r, .a = a};
  format_text(&x, j_scratch(r), self.s, false, self.safe);
  return j_like(j_scratch_end(r), self);
}

// ---- dates ----------------------------------------------------------------------------------------------------------

// Python passes a naive time to the C library, except for the time zone, which is empty, and microseconds.
jval j_strftime(jrun *r, jval fmt) {
  str *s = j_scratch(r);
  const char *at = fmt.s->at;
  size_t n = fmt.s->n;
  jinja_charge(r, n);
  locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);   // allocated before anything can fail
  for (size_t i = 0; i < n;) {
    if (at[i] != '%' || i + 1 >= n) { j_add_part(r, s, fmt.s, i, i + 1); i++; continue; }
    char one[8] = "%", text[256];
    size_t k = 1;
    for (i++; i < n && k < 5 && at[i] && strchr("_-0^#EO", at[i]); i++) one[k++] = at[i];
    if (i >= n) { str_add(s, one); break; }
    char c = at[i++];
    if (c == 'f') { str_add(s, "000000"); continue; }
    if (c == 'z' || c == 'Z') continue;
    if (!c || !strchr("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%", c)) {   // an unknown conversion stays unchanged
      str_add(s, one);
      if (c) str_addc(s, c);
      continue;
    }
    one[k] = c, one[k + 1] = 0;
    jinja_charge(r, 64);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    str_addn(s, text, strftime_l(text, sizeof text, one, r->now, c_locale));
#pragma GCC diagnostic pop
  }
  freelocale(c_locale);
  return j_scratch_end(r);
}
