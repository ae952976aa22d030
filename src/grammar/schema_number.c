// Numbers: bounds and multiples, over decimal digits.
//
// Bounds are compared digit by digit: "at least 37" is a longer number, or one that begins with 3 and continues with 7
// or more, or begins with 4 or more. A number with bounds has no exponent. Fractions are compared likewise, up
// to a number of digits at which different decimals are different doubles.
#include "grammar/schema_impl.h"
#include "base/plain.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INT_DIGITS 18              // of an integer without bounds
#define BIG 999999999999999999ll   // 18 nines
#define WHOLE_DIGITS 15            // before the point, of a number with bounds
#define MOST_FRACTION 40           // digits after it

static gx *digits(grammar_source *g, uint32_t min, uint32_t max) {
  return gx_repeat(g, gx_range(g, '0', '9'), min, max);
}
static gx *digit(grammar_source *g, int lo, int hi) { return gx_range(g, (uint32_t)('0' + lo), (uint32_t)('0' + hi)); }

// ---- integers -------------------------------------------------------------------------------------------------------

// n digits that are at least those of a
static gx *at_least_digits(grammar_source *g, const char *a, uint32_t n) {
  if (strspn(a, "0") >= n) return digits(g, n, n);
  gx *same = GX_SEQ_OF(g, digit(g, a[0] - '0', a[0] - '0'), at_least_digits(g, a + 1, n - 1));
  return a[0] == '9' ? same : GX_ALT_OF(g, same, GX_SEQ_OF(g, digit(g, a[0] - '0' + 1, 9), digits(g, n - 1, n - 1)));
}

static gx *at_most(grammar_source *g, const char *b, uint32_t n) {
  if (strspn(b, "9") >= n) return digits(g, n, n);
  gx *same = GX_SEQ_OF(g, digit(g, b[0] - '0', b[0] - '0'), at_most(g, b + 1, n - 1));
  return b[0] == '0' ? same : GX_ALT_OF(g, same, GX_SEQ_OF(g, digit(g, 0, b[0] - '0' - 1), digits(g, n - 1, n - 1)));
}

static gx *same_length(grammar_source *g, const char *a, const char *b, uint32_t n) {
  if (!n) return gx_empty(g);
  if (a[0] == b[0]) return GX_SEQ_OF(g, digit(g, a[0] - '0', a[0] - '0'), same_length(g, a + 1, b + 1, n - 1));
  gx *list[3];
  size_t k = 0;
  list[k++] = GX_SEQ_OF(g, digit(g, a[0] - '0', a[0] - '0'), at_least_digits(g, a + 1, n - 1));
  if (b[0] - a[0] > 1) list[k++] = GX_SEQ_OF(g, digit(g, a[0] - '0' + 1, b[0] - '0' - 1), digits(g, n - 1, n - 1));
  list[k++] = GX_SEQ_OF(g, digit(g, b[0] - '0', b[0] - '0'), at_most(g, b + 1, n - 1));
  return gx_alt(g, list, k);
}

// Unsigned integers a <= x <= b; nothing if a > b.
static gx *between(grammar_source *g, uint64_t a, uint64_t b) {
  gx *list[20];
  size_t k = 0;
  char from[24], to[24];
  for (uint64_t top = 9; a <= b; top = top * 10 + 9) {
    if (a > top) continue;
    uint64_t end = b < top ? b : top;
    int n = snprintf(from, sizeof from, "%llu", (unsigned long long)a);
    snprintf(to, sizeof to, "%llu", (unsigned long long)end);
    list[k++] = same_length(g, from, to, (uint32_t)n);
    if (end == b) break;
    a = end + 1;
  }
  return gx_alt(g, list, k);
}

// ---- bounds ---------------------------------------------------------------------------------------------------------

struct multiple { uint32_t of, digits; };              // of / 10^digits
struct bounds { double lo, hi; bool lo_strict, hi_strict, any; struct multiple multiples[8]; size_t n_multiples; };

static int bound(schema *s, const json_t *node, const char *keyword, bool upper, bool strict, struct bounds *b) {
  const json_t *v = json_object_get(node, keyword);
  if (!v) return 0;
  if (!json_is_number(v)) return schema_fail(s, node, keyword, "expected a number");
  double x = json_number_value(v);
  b->any = true;
  // not exact as a double
  if (json_is_integer(v) && (json_integer_value(v) > (1ll << 53) || json_integer_value(v) < -(1ll << 53))) {
    if (json_integer_value(v) <= BIG && json_integer_value(v) >= -BIG)
      x = upper ? nextafter(x, -INFINITY) : nextafter(x, INFINITY);       // rounds towards the inside of the range
  }
  if (upper ? x < b->hi || (x == b->hi && strict) : x > b->lo || (x == b->lo && strict)) {
    if (upper) { b->hi = x; b->hi_strict = strict; }
    else { b->lo = x; b->lo_strict = strict; }
  }
  return 0;
}

// The formats of integers and their ranges; those of 64 bits have more digits than a grammar writes.
static const struct { const char *format; double lo, hi;
} ranges[] = {{"int8", -128, 127},
              {"int16", -32768, 32767},
              {"int32", -2147483648.0, 2147483647},
              {"int64", -INFINITY, INFINITY},
              {"int", -INFINITY, INFINITY},
              {"uint8", 0, 255},
              {"uint16", 0, 65535},
              {"uint32", 0, 4294967295},
              {"uint64", 0, INFINITY},
              {"uint", 0, INFINITY},
              {"double-int", -9007199254740991.0, 9007199254740991.0}};

bool schema_integer_format(const char *name, double *lo, double *hi) {
  for (size_t i = 0; i < COUNT(ranges); i++) {
    if (strcmp(name, ranges[i].format)) continue;
    *lo = ranges[i].lo;
    *hi = ranges[i].hi;
    return true;
  }
  return false;
}

// False: too many digits for counting remainders.
static bool decimal_multiple(double x, struct multiple *out) {
  enum { MOST = 10000 };
  char text[64];
  for (uint32_t digits = 0; digits <= 9; digits++) {
    double scaled = x * pow(10, digits);
    plain_snprintf(text, sizeof text, "%.15g", scaled);
    if (plain_strtod(text, NULL) > MOST) return false;
    if (strpbrk(text, ".e")) continue;
    *out = (struct multiple){(uint32_t)strtoul(text, NULL, 10), digits};
    return out->of > 0;
  }
  return false;
}

// The multiple for integers: 5 for 2.5.
static uint32_t whole_multiple(struct multiple m) {
  uint32_t of = m.of;
  for (uint32_t i = 0; i < m.digits; i++) {
    if (of % 10 == 0) of /= 10;
    else if (of % 5 == 0) of /= 5;
    else if (of % 2 == 0) of /= 2;
  }
  return of;
}

static int gather_bounds(schema *s, const nodes *set, struct bounds *b) {
  *b = (struct bounds){.lo = -INFINITY, .hi = INFINITY};
  for (size_t i = 0; i < set->n; i++) {
    json_t *node = set->at[i],
           *strict[2] = {json_object_get(node, "exclusiveMinimum"), json_object_get(node, "exclusiveMaximum")};
    // in draft 4 these two were flags of the bounds
    if (bound(s, node, "minimum", false, json_is_true(strict[0]), b) ||
        bound(s, node, "maximum", true, json_is_true(strict[1]), b))
      return -1;
    if (!json_is_boolean(strict[0]) && bound(s, node, "exclusiveMinimum", false, true, b)) return -1;
    if (!json_is_boolean(strict[1]) && bound(s, node, "exclusiveMaximum", true, true, b)) return -1;
    const char *format = json_string_value(json_object_get(node, "format"));
    unsigned types;
    if (format && !schema_format(format, &types))
      schema_note(s, node, "format", "the format '%.60s' is not known", format);
    double lo, hi;
    if (format && schema_integer_format(format, &lo, &hi)) {
      b->any |= isfinite(lo) || isfinite(hi);
      if (hi < b->hi) { b->hi = hi; b->hi_strict = false; }
      if (lo > b->lo) { b->lo = lo; b->lo_strict = false; }
    }
    const json_t *m = json_object_get(node, "multipleOf");
    if (!m) continue;
    double x = json_number_value(m);
    if (!json_is_number(m) || !(x > 0)) return schema_fail(s, node, "multipleOf", "expected a number above 0");
    struct multiple of;
    bool fits = decimal_multiple(x, &of) && b->n_multiples < COUNT(b->multiples);
    if (fits) b->multiples[b->n_multiples++] = of;
    else if (schema_relax(s, node, "multipleOf", "is enforced of numbers with up to 4 digits, and 8 of them at most"))
      return -1;
  }
  return 0;
}

static gx *multiples(schema *s, const struct bounds *b, bool integer, gx *x) {
  for (size_t i = 0; i < b->n_multiples; i++) {
    struct multiple m = b->multiples[i];
    if (integer) m = (struct multiple){whole_multiple(m), 0};
    if (m.of > 1 || m.digits) x = gx_and(&s->src, x, gx_multiple(&s->src, m.of, m.digits));
  }
  return x;
}

static gx *empty_range(schema *s, const nodes *set) {
  return schema_empty(s, set->at[0], NULL, "no number is within the bounds (minimum, maximum)");
}

// Magnitudes with more digits than are compared: as many digits as the bounds have, at least one.
static gx *huge(schema *s, const nodes *set, double lo, double hi) {
  int from = plain_snprintf(NULL, 0, "%.0f", lo), to = isinf(hi) ? from + 1 : plain_snprintf(NULL, 0, "%.0f", hi);
  if (schema_relax(s, set->at[0], NULL,
                   "of bounds (minimum, maximum) beyond %d digits only the number of digits is enforced", from - 1))
    return NULL;
  return GX_SEQ_OF(&s->src, digit(&s->src, 1, 9), digits(&s->src, (uint32_t)from - 1, (uint32_t)to - 1));
}

// lo <= hi, both on one side of 0, and all values between have too many digits to compare.
static gx *huge_within(schema *s, const nodes *set, double lo, double hi) {
  if (lo > 0) return huge(s, set, lo, hi);
  gx *below = huge(s, set, -hi, -lo);
  return below ? GX_SEQ_OF(&s->src, gx_text(&s->src, "-"), below) : NULL;
}

static gx *integer_within(schema *s, const nodes *set, const struct bounds *b) {
  grammar_source *g = &s->src;
  double lo_real = ceil(b->lo), hi_real = floor(b->hi);
  if (b->lo_strict && lo_real == b->lo) lo_real += 1;
  if (b->hi_strict && hi_real == b->hi) hi_real -= 1;
  if (lo_real > hi_real) return empty_range(s, set);
  if (lo_real >= 1e18 || hi_real <= -1e18) return huge_within(s, set, lo_real, hi_real);
  int64_t lo = lo_real <= -1e18 ? -BIG : (int64_t)lo_real, hi = hi_real >= 1e18 ? BIG : (int64_t)hi_real;
  gx *list[2];
  size_t n = 0;
  if (hi >= 0) list[n++] = multiples(s, b, true, between(g, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi));
  if (lo < 0)
    list[n++] =
      GX_SEQ_OF(g, gx_text(g, "-"), multiples(s, b, true, between(g, hi < 0 ? (uint64_t)-hi : 1, (uint64_t)-lo)));
  return gx_alt(g, list, n);
}

// ---- numbers with a fraction ----------------------------------------------------------------------------------------

// The digits of a bound's magnitude, and the maximum number of digits in a fraction.
struct decimal { uint64_t whole; char fraction[64]; uint32_t n; bool strict; };

// -1: more digits than can be compared.
static int decimal_of(double x, bool strict, struct decimal *d) {
  char text[512];
  for (int n = 0; n <= 40; n++) {      // the shortest decimal that reads back as x
    plain_snprintf(text, sizeof text, "%.*f", n, fabs(x));
    if (plain_strtod(text, NULL) == fabs(x)) break;
    if (n == 25) return -1;
  }
  char *point = strchr(text, '.');
  if ((point ? (size_t)(point - text) : strlen(text)) > WHOLE_DIGITS) return -1;
  *d = (struct decimal){.whole = strtoull(text, NULL, 10), .strict = strict};
  snprintf(d->fraction, sizeof d->fraction, "%s", point ? point + 1 : "");
  return 0;
}

// Returns whether a different decimal with n digits after the point may be read back as x. The decimal of x itself is
// at most half a step from x.
static bool alike(double x, uint32_t n) {
  return (nextafter(fabs(x), INFINITY) - fabs(x)) * (x == floor(x) ? .5 : 1) > pow(10, -(double)n);
}

static void pad_fraction(struct decimal *d, uint32_t n) {
  for (size_t i = strlen(d->fraction); i < n; i++) d->fraction[i] = '0';
  d->n = n;
}

static bool zeros(const struct decimal *d, uint32_t from) { return strspn(d->fraction + from, "0") == d->n - from; }

// The digits after the first i of the fraction, if those equal the digits of d, such that the magnitude is at least d
// (fraction_from) or at most d (fraction_to).
static gx *fraction_from(grammar_source *g, const struct decimal *d, uint32_t i) {
  uint32_t left = d->n - i;
  if (!left) return d->strict ? gx_never(g) : gx_empty(g);
  if (zeros(d, i) && !d->strict) return digits(g, 0, left);
  int c = d->fraction[i] - '0';
  gx *same = GX_SEQ_OF(g, digit(g, c, c), fraction_from(g, d, i + 1));
  return c == 9 ? same : GX_ALT_OF(g, same, GX_SEQ_OF(g, digit(g, c + 1, 9), digits(g, 0, left - 1)));
}

static gx *fraction_to(grammar_source *g, const struct decimal *d, uint32_t i) {
  uint32_t left = d->n - i;
  if (zeros(d, i)) return d->strict ? gx_never(g) : gx_repeat(g, digit(g, 0, 0), 0, left);
  int c = d->fraction[i] - '0';
  gx *same = GX_SEQ_OF(g, digit(g, c, c), fraction_to(g, d, i + 1)), *end = gx_empty(g);
  return c == 0 ? GX_ALT_OF(g, end, same)
                : GX_ALT_OF(g, end, same, GX_SEQ_OF(g, digit(g, 0, c - 1), digits(g, 0, left - 1)));
}

static gx *with_fraction(grammar_source *g, gx *whole, uint32_t n) {
  return GX_SEQ_OF(g, whole, gx_repeat(g, GX_SEQ_OF(g, gx_text(g, "."), digits(g, 1, n)), 0, 1));
}

static gx *whole_part(grammar_source *g, uint64_t x) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)x);
  return gx_text(g, text);
}

// "." and at least one digit: the texts of `after` that are not empty.
static gx *point(grammar_source *g, gx *after, uint32_t n) {
  return GX_SEQ_OF(g, gx_text(g, "."), gx_and(g, after, digits(g, 1, n)));
}

static gx *no_less(grammar_source *g, const struct decimal *d) {
  gx *list[3];
  size_t n = 0;
  list[n++] = with_fraction(g, between(g, d->whole + 1, 999999999999999ull), d->n);
  list[n++] = GX_SEQ_OF(g, whole_part(g, d->whole), point(g, fraction_from(g, d, 0), d->n));
  if (zeros(d, 0) && !d->strict) list[n++] = whole_part(g, d->whole);
  return gx_alt(g, list, n);
}

static gx *no_more(grammar_source *g, const struct decimal *d) {
  gx *list[3];
  size_t n = 0;
  if (d->whole) list[n++] = with_fraction(g, between(g, 0, d->whole - 1), d->n);
  list[n++] = GX_SEQ_OF(g, whole_part(g, d->whole), point(g, fraction_to(g, d, 0), d->n));
  if (!zeros(d, 0) || !d->strict) list[n++] = whole_part(g, d->whole);
  return gx_alt(g, list, n);
}

// Magnitudes between two bounds, each of which may be NULL.
static gx *magnitude(grammar_source *g, const struct decimal *lo, const struct decimal *hi, uint32_t n) {
  if (lo && hi) return gx_and(g, no_less(g, lo), no_more(g, hi));
  return lo ? no_less(g, lo) : hi ? no_more(g, hi) : with_fraction(g, between(g, 0, 999999999999999ull), n);
}

// At least n digits after the point, and enough that decimals between two close bounds exist.
static uint32_t digits_between(const struct bounds *b, uint32_t n) {
  double apart = b->hi - b->lo;
  while (apart > 0 && n < MOST_FRACTION && pow(10, -(double)n) * 10 > apart) n++;
  return n;
}

static gx *fraction_within(schema *s, const nodes *set, const struct bounds *b) {
  grammar_source *g = &s->src;
  struct decimal lo = {0}, hi = {0}, zero = {.strict = true};
  bool has_lo = b->lo > -1e15, has_hi = b->hi < 1e15;
  if (b->lo > b->hi || (b->lo == b->hi && (b->lo_strict || b->hi_strict))) return empty_range(s, set);
  if (b->lo >= 1e15 || b->hi <= -1e15) return huge_within(s, set, b->lo, b->hi);
  if ((has_lo && decimal_of(b->lo, b->lo_strict, &lo)) || (has_hi && decimal_of(b->hi, b->hi_strict, &hi))) {
    if (schema_relax(s, set->at[0], NULL,
                     "minimum and maximum with more than 15 digits before or 25 after the point are not enforced"))
      return NULL;
    lo = hi = (struct decimal){0};
    has_lo = has_hi = false;
  }
  uint32_t n = 6,
           longest = (uint32_t)(strlen(lo.fraction) > strlen(hi.fraction) ? strlen(lo.fraction) : strlen(hi.fraction));
  uint64_t most = lo.whole > hi.whole ? lo.whole : hi.whole;
  for (uint64_t x = 1000000000; x <= most && n > 1; x *= 10) n--;      // 15 digits in all near a bound
  if (longest > n) n = longest;
  n = digits_between(b, n);
  // a number next to an excluded bound must not be read back as the bound
  if ((has_lo && b->lo_strict && alike(b->lo, n)) || (has_hi && b->hi_strict && alike(b->hi, n))) {
    if (schema_relax(s, set->at[0], NULL,
                     "an exclusive bound, and bounds with %u digits after the point: numbers beside it are read as the "
                     "bound itself",
                     n))
      return NULL;
  }
  pad_fraction(&lo, n);
  pad_fraction(&hi, n);
  pad_fraction(&zero, n);
  gx *list[2];
  size_t k = 0;
  if (!has_hi || b->hi > 0 || (b->hi == 0 && !b->hi_strict)) {
    bool from_zero = !has_lo || b->lo < 0;
    list[k++] = multiples(s, b, false, magnitude(g, from_zero ? NULL : &lo, has_hi ? &hi : NULL, n));
  }
  if (!has_lo || b->lo < 0) {
    bool to_zero = !has_hi || b->hi >= 0;
    gx *below = multiples(s, b, false, magnitude(g, to_zero ? &zero : &hi, has_lo ? &lo : NULL, n));
    list[k++] = GX_SEQ_OF(g, gx_text(g, "-"), below);
  }
  return gx_alt(g, list, k);
}

gx *schema_number(schema *s, const nodes *set, bool integer) {
  grammar_source *g = &s->src;
  struct bounds b;
  if (gather_bounds(s, set, &b)) return NULL;
  // multiples of integers are integers
  for (size_t i = 0; i < b.n_multiples && !integer; i++) integer = !b.multiples[i].digits;
  if (integer) return integer_within(s, set, &b);
  if (b.any || b.n_multiples) return fraction_within(s, set, &b);
  gx *whole = GX_ALT_OF(g, gx_text(g, "0"), GX_SEQ_OF(g, digit(g, 1, 9), digits(g, 0, INT_DIGITS - 1)));
  charset e = {0}, sign = {0};
  charset_add(&e, 'E', 'E'); charset_add(&e, 'e', 'e');
  charset_add(&sign, '+', '+'); charset_add(&sign, '-', '-');
  gx *exponent = GX_SEQ_OF(g, gx_class(g, &e), gx_repeat(g, gx_class(g, &sign), 0, 1), digits(g, 1, 2));
  charset_free(&e);
  charset_free(&sign);
  return GX_SEQ_OF(g, gx_repeat(g, gx_text(g, "-"), 0, 1), with_fraction(g, whole, 17), gx_repeat(g, exponent, 0, 1));
}
