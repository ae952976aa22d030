// Filters, which follow `|`. The table at the end lists them with their parameters.
//
// Filters that return generators in Jinja return iterators here: consumed once, always true, without a length.
#define _GNU_SOURCE
#include "chat/jinja_impl.h"
#include "base/plain.h"
#include "chat/jinja_text.h"
#include "text/utf8.h"
#include <math.h>
#include <stdlib.h>

#define FILTER(name) static jval name(jrun *r, jval v, const jval *arg, const jargs *a)
#define IGNORE (void)r, (void)arg, (void)a

static bool given(jval v) { return v.type != J_ABSENT; }
static int64_t int_or(jrun *r, const char *what, jval v, int64_t otherwise) {
  return given(v) ? j_need_int(r, what, v) : otherwise;
}
static jval text_or(jrun *r, jval v, const char *otherwise) { return given(v) ? j_to_str(r, v) : j_text(r, otherwise); }

// ---- attributes of items --------------------------------------------------------------------------------------------

// Looks up "a.b.0" in an item: each part is an attribute, or an index if it is a number.
static jval attribute_of(jrun *r, jval item, jval path, jval otherwise) {
  if (path.type != J_STR) {
    if (!j_is_given(path)) return item;
    item = j_item(r, item, path);
    return item.type == J_UNDEF && j_is_given(otherwise) ? otherwise : item;
  }
  for (size_t from = 0; from <= path.s->n;) {
    const char *dot = memchr(path.s->at + from, '.', path.s->n - from);
    size_t end = dot ? (size_t)(dot - path.s->at) : path.s->n;
    bool digits = end > from && end - from < 10;
    for (size_t i = from; i < end; i++) digits = digits && path.s->at[i] >= '0' && path.s->at[i] <= '9';
    jval part = j_part(r, path, from, end);
    jinja_charge(r, 4);
    item = j_item(r, item, digits ? j_int(atoi(part.s->at)) : part);
    if (item.type == J_UNDEF && j_is_given(otherwise)) item = otherwise;
    from = end + 1;
  }
  return item;
}

static jval caseless(jrun *r, jval v, bool case_sensitive) {
  return v.type == J_STR && !case_sensitive ? j_case(r, v, CASE_LOWER) : v;
}

// The sort key of an item, as a list: an attribute, several ("a,b"), or the item itself.
static jval sort_key(jrun *r, jval item, jval path, bool case_sensitive) {
  jlist *l = j_list(r, 1);
  if (path.type != J_STR) {
    j_push(r, l, caseless(r, attribute_of(r, item, path, j_absent()), case_sensitive));
    return j_of_list(l);
  }
  for (size_t from = 0; from <= path.s->n;) {
    const char *comma = memchr(path.s->at + from, ',', path.s->n - from);
    size_t end = comma ? (size_t)(comma - path.s->at) : path.s->n;
    j_push(r, l, caseless(r, attribute_of(r, item, j_part(r, path, from, end), j_absent()), case_sensitive));
    from = end + 1;
  }
  return j_of_list(l);
}

static jlist *sorted(jrun *r, jlist *items, jval path, bool case_sensitive, bool reverse) {
  jlist *l = j_list(r, items->n);
  jval *keys = jinja_array(r, items->n, sizeof *keys);
  for (size_t i = 0; i < items->n; i++) {
    j_push(r, l, items->at[i]);
    keys[i] = sort_key(r, items->at[i], path, case_sensitive);
  }
  j_sort(r, keys, l->at, l->n, reverse);
  return l;
}

FILTER(f_sort) {
  (void)a;
  return j_of_list(sorted(r, j_items(r, v), arg[2], j_true(r, arg[1]), int_or(r, "reverse", arg[0], 0)));
}

FILTER(f_dictsort) {
  (void)a;
  if (v.type == J_UNDEF) j_use_undef(r, v);
  if (v.type != J_DICT) jinja_fail(r, "dictsort: expected a mapping, not %s", j_type_name(v));
  bool by_value = given(arg[1]) && arg[1].type == J_STR && j_is(arg[1].s, "value");
  if (given(arg[1]) && !by_value && !(arg[1].type == J_STR && j_is(arg[1].s, "key")))
    jinja_fail(r, "You can only sort by either \"key\" or \"value\"");
  v.type = J_VIEW, v.what = 'i';
  return j_of_list(sorted(r, j_items(r, v), j_int(by_value), j_true(r, arg[0]), int_or(r, "reverse", arg[2], 0)));
}

FILTER(f_groupby) {
  (void)a;
  jval path = arg[0];
  bool cased = j_true(r, arg[2]);
  jlist *items = j_items(r, v), *l = j_list(r, items->n), *out = j_list(r, 0);
  jval *keys = jinja_array(r, items->n, sizeof *keys);
  for (size_t i = 0; i < items->n; i++) {
    j_push(r, l, items->at[i]);
    keys[i] = caseless(r, attribute_of(r, items->at[i], path, arg[1]), cased);
  }
  j_sort(r, keys, l->at, l->n, false);
  for (size_t i = 0; i < l->n;) {
    jlist *group = j_list(r, 0);
    size_t first = i;
    for (; i < l->n && (i == first || j_eq(r, keys[first], keys[i])); i++) j_push(r, group, l->at[i]);
    jval pair = j_pair(r, attribute_of(r, l->at[first], path, arg[1]), j_of_list(group));
    pair.what = 'g';
    j_push(r, out, pair);
  }
  return j_of_list(out);
}

FILTER(f_unique) {
  (void)a;
  jlist *items = j_items(r, v), *l = j_list(r, 0);
  jdict *seen = j_dict(r);
  for (size_t i = 0; i < items->n; i++) {
    jval key = caseless(r, attribute_of(r, items->at[i], arg[1], j_absent()), j_true(r, arg[0])), unused;
    if (j_dict_get(r, seen, key, &unused)) continue;
    j_dict_set(r, seen, key, j_none());
    j_push(r, l, items->at[i]);
  }
  return j_iter(r, "generator", l);
}

static jval extreme(jrun *r, jval v, const jval *arg, bool largest) {
  jlist *items = j_items(r, v);
  if (!items->n) return j_undef(r, "No aggregated item, sequence was empty.");
  jval best = items->at[0], best_key = j_absent(), path = arg[1];
  for (size_t i = 0; i < items->n; i++) {
    jval key = caseless(r, attribute_of(r, items->at[i], path, j_absent()), j_true(r, arg[0]));
    if (i && !(largest ? j_less(r, ">", best_key, key, false) : j_less(r, "<", key, best_key, false))) continue;
    best = items->at[i];
    best_key = key;
  }
  return best;
}

FILTER(f_min) { (void)a; return extreme(r, v, arg, false); }
FILTER(f_max) { (void)a; return extreme(r, v, arg, true); }

FILTER(f_sum) {
  (void)a;
  jlist *items = j_items(r, v);
  jinja_charge(r, items->n);
  jval total = given(arg[1]) ? arg[1] : j_int(0);
  for (size_t i = 0; i < items->n; i++)
    total = j_binary(r, '+', total, attribute_of(r, items->at[i], arg[0], j_absent()));
  return total;
}

FILTER(f_attr) {
  (void)a;
  jval name = j_need_str(r, "the name of an attribute", arg[0]), out;
  if (v.type != J_DICT) return j_attr(r, v, name.s);
  return j_method(r, v, name.s, &out) ? out : j_undef(r, "'dict object' has no attribute '%.*s'", VIEW_ARGS(name));
}

// ---- choosing and mapping -------------------------------------------------------------------------------------------

static jval choose_items(jrun *r, jval v, const jargs *a, bool by_attribute, bool wanted) {
  size_t used = by_attribute;
  if (!j_true(r, v)) return j_iter(r, "generator", j_list(r, 0));   // false values, also None, are not iterated
  if (a->n < used) jinja_fail(r, "Missing parameter for attribute name");
  const struct jtest_row *test = NULL;
  if (a->n > used) {
    jval name = j_need_str(r, "the name of a test", a->pos[used]);
    test = j_test(name.s->at, name.s->n);
    if (!test) jinja_fail(r, "there is no test '%.*s'", VIEW_ARGS(name));
  }
  jargs rest = {a->n > used ? a->pos + used + 1 : NULL, a->n > used ? a->n - used - 1 : 0, a->kw, a->n_kw};
  jlist *items = j_items(r, v), *l = j_list(r, 0);
  jinja_charge(r, 2 * items->n);
  for (size_t i = 0; i < items->n; i++) {
    jval x = by_attribute ? attribute_of(r, items->at[i], a->pos[0], j_absent()) : items->at[i];
    if ((test ? j_run_test(r, test, x, &rest) : j_true(r, x)) == wanted) j_push(r, l, items->at[i]);
  }
  return j_iter(r, "generator", l);
}

FILTER(f_select) { (void)arg; return choose_items(r, v, a, false, true); }
FILTER(f_reject) { (void)arg; return choose_items(r, v, a, false, false); }
FILTER(f_selectattr) { (void)arg; return choose_items(r, v, a, true, true); }
FILTER(f_rejectattr) { (void)arg; return choose_items(r, v, a, true, false); }

FILTER(f_map) {
  (void)arg;
  if (!j_true(r, v)) return j_iter(r, "generator", j_list(r, 0));
  jlist *items = j_items(r, v), *l = j_list(r, items->n);
  jval path = j_absent(), otherwise = j_absent();
  if (!a->n) {
    for (size_t i = 0; i < a->n_kw; i++) {
      if (j_is(a->kw[i].name, "attribute")) path = a->kw[i].v;
      else if (j_is(a->kw[i].name, "default")) otherwise = a->kw[i].v;
      else
        jinja_fail(r, "map: unexpected keyword argument '%.*s'", (int)(a->kw[i].name->n > 100 ? 100 : a->kw[i].name->n),
                   a->kw[i].name->at);
    }
    if (!given(path)) jinja_fail(r, "map requires a filter argument");
    for (size_t i = 0; i < items->n; i++) j_push(r, l, attribute_of(r, items->at[i], path, otherwise));
    return j_iter(r, "generator", l);
  }
  jval name = j_need_str(r, "the name of a filter", a->pos[0]);
  const struct jfilter_row *row = j_filter(name.s->at, name.s->n);
  if (!row) jinja_fail(r, "there is no filter '%.*s'", VIEW_ARGS(name));
  jargs rest = {a->pos + 1, a->n - 1, a->kw, a->n_kw};
  jinja_enter(r);
  for (size_t i = 0; i < items->n; i++) j_push(r, l, j_run_filter(r, row, items->at[i], &rest));
  jinja_leave(r);
  return j_iter(r, "generator", l);
}

// ---- sequences ------------------------------------------------------------------------------------------------------

FILTER(f_length) {
  IGNORE;
  int64_t n = j_len(r, v);
  if (n < 0) jinja_fail(r, "object of type '%s' has no len()", j_type_name(v));
  return j_int(n);
}

FILTER(f_first) {
  IGNORE;
  if (v.type == J_ITER)
    return v.it->at < v.it->items->n ? v.it->items->at[v.it->at++] : j_undef(r, "No first item, sequence was empty.");
  jlist *l = j_items(r, v);
  return l->n ? l->at[0] : j_undef(r, "No first item, sequence was empty.");
}

FILTER(f_last) {
  IGNORE;
  if (v.type == J_ITER) jinja_fail(r, "'generator' object is not reversible");
  jlist *l = j_items(r, v);
  return l->n ? l->at[l->n - 1] : j_undef(r, "No last item, sequence was empty.");
}

FILTER(f_list) {
  IGNORE;
  jlist *items = j_items(r, v), *l = j_list(r, items->n);
  for (size_t i = 0; i < items->n; i++) j_push(r, l, items->at[i]);
  return j_of_list(l);
}

FILTER(f_reverse) {
  IGNORE;
  if (v.type == J_STR) return j_slice(r, v, j_absent(), j_absent(), j_int(-1));
  jlist *items = j_items(r, v), *l = j_list(r, items->n);
  for (size_t i = items->n; i-- > 0;) j_push(r, l, items->at[i]);
  return v.type == J_ITER ? j_of_list(l) : j_iter(r, "list_reverseiterator", l);
}

FILTER(f_items) {
  IGNORE;
  if (v.type == J_UNDEF) return j_iter(r, "generator", j_list(r, 0));
  if (v.type != J_DICT) jinja_fail(r, "Can only get item pairs from a mapping.");
  v.type = J_VIEW, v.what = 'i';
  return j_iter(r, "generator", j_items(r, v));
}

FILTER(f_join) {
  (void)a;
  jlist *items = j_items(r, v);
  jval separator = text_or(r, arg[0], "");
  jinja_charge(r, items->n);
  str *s = j_scratch(r);
  for (size_t i = 0; i < items->n; i++) {
    if (i) j_add(r, s, separator);
    j_add(r, s, attribute_of(r, items->at[i], arg[1], j_absent()));
  }
  return j_scratch_end(r);
}

FILTER(f_batch) {
  (void)a;
  int64_t n = j_need_int(r, "batch", arg[0]);
  jlist *items = j_items(r, v), *out = j_list(r, 0), *row = j_list(r, 0);
  for (size_t i = 0; i < items->n; i++) {
    if ((int64_t)row->n == n) { j_push(r, out, j_of_list(row)); row = j_list(r, 0); }
    j_push(r, row, items->at[i]);
  }
  if (row->n) {
    if (j_is_given(arg[1])) jinja_array(r, (size_t)max_i64(n, 0), sizeof(jval));   // fails before allocating
    while (j_is_given(arg[1]) && (int64_t)row->n < n) j_push(r, row, arg[1]);
    j_push(r, out, j_of_list(row));
  }
  return j_iter(r, "generator", out);
}

FILTER(f_slice) {
  (void)a;
  int64_t n = j_need_int(r, "slice", arg[0]), at = 0;
  if (n == 0) jinja_fail(r, "integer division or modulo by zero");
  jlist *items = j_items(r, v), *out = j_list(r, (size_t)max_i64(n, 0));
  jinja_room(r, out->cap * sizeof *out);
  int64_t each = floordiv_i64((int64_t)items->n, n), more = floormod_i64((int64_t)items->n, n);
  for (int64_t k = 0; k < n; k++) {
    jlist *row = j_list(r, 0);
    int64_t end = at + each + (k < more);
    for (; at < end; at++) j_push(r, row, items->at[at]);
    if (j_is_given(arg[1]) && k >= more) j_push(r, row, arg[1]);
    j_push(r, out, j_of_list(row));
  }
  return j_iter(r, "generator", out);
}

// ---- numbers --------------------------------------------------------------------------------------------------------

FILTER(f_abs) {
  IGNORE;
  if (v.type == J_FLOAT) return j_float(fabs(v.f));
  int64_t i = j_need_int(r, "abs", v);
  return i < 0 ? j_binary(r, '-', j_int(0), j_int(i)) : j_int(i);
}

// Copies a number's text without spaces around it and underscores between digits; false if it is too long for a number.
static bool bare_number(jrun *r, const jstr *s, char *buf, size_t cap) {
  jinja_charge(r, s->n / 2);
  size_t from = j_skip_space(s->at, 0, s->n), to = j_back_space(s->at, from, s->n), n = 0;
  for (size_t i = from; i < to; i++) {
    bool between = i > from && i + 1 < to && s->at[i - 1] != '_' && s->at[i + 1] != '_' && s->at[i - 1] != '+' &&
                   s->at[i - 1] != '-';
    if (s->at[i] == '_') { if (!between) return false; continue; }
    if (n + 1 >= cap || !s->at[i]) return false;
    buf[n++] = s->at[i];
  }
  buf[n] = 0;
  return n > 0;
}

static bool parse_float(jrun *r, const jstr *s, double *out) {
  char buf[400], *end;
  if (!bare_number(r, s, buf, sizeof buf)) return false;
  const char *digits = buf + (buf[0] == '+' || buf[0] == '-');
  bool word = !ascii_casecmp(digits, "inf") || !ascii_casecmp(digits, "infinity") || !ascii_casecmp(digits, "nan");
  if (!word && strspn(digits, "0123456789.eE+-") != strlen(digits)) return false;
  *out = plain_strtod(buf, &end);
  return !*end;
}

static bool parse_whole(jrun *r, const jstr *s, int base, int64_t *out) {
  char buf[400], *end;
  if (!bare_number(r, s, buf, sizeof buf)) return false;
  char *digits = buf + (buf[0] == '+' || buf[0] == '-'), prefix = (char)(digits[0] == '0' ? digits[1] | 32 : 0);
  bool prefixed = (prefix == 'x' && (base == 16 || base == 0)) || (prefix == 'b' && (base == 2 || base == 0)) ||
                  (prefix == 'o' && (base == 8 || base == 0));
  if (base == 0) base = !prefixed ? 10 : prefix == 'x' ? 16 : prefix == 'b' ? 2 : 8;
  bool negative = buf[0] == '-';
  if (prefixed) digits += 2;
  if (!((*digits >= '0' && *digits <= '9') || ((*digits | 32) >= 'a' && (*digits | 32) <= 'z'))) return false;
  unsigned long long n = strtoull(digits, &end, base);
  if (*end || end == digits) return false;
  if (strlen(digits) > 62 || n > (negative ? (uint64_t)1 << 63 : INT64_MAX))
    jinja_fail(r, "the integer %.40s does not fit 64 bits", buf);
  *out = negative ? (int64_t)(0 - n) : (int64_t)n;
  return true;
}

static jval whole_of(jrun *r, double f, jval otherwise) {
  if (!isfinite(f)) return otherwise;
  if (!(fabs(f) < 9.2e18)) jinja_fail(r, "%g does not fit a 64-bit integer", f);
  return j_int((int64_t)f);
}

FILTER(f_int) {
  (void)a;
  jval otherwise = given(arg[0]) ? arg[0] : j_int(0);
  int64_t i, base;
  double f;
  if (v.type == J_UNDEF) j_use_undef(r, v);
  if (j_is_whole(v)) return j_int(j_whole(v));
  if (v.type == J_FLOAT) return whole_of(r, v.f, otherwise);
  if (v.type != J_STR) return otherwise;
  base = int_or(r, "base", arg[1], 10);
  if (base != 0 && (base < 2 || base > 36)) return otherwise;
  if (parse_whole(r, v.s, (int)base, &i)) return j_int(i);
  return parse_float(r, v.s, &f) ? whole_of(r, f, otherwise) : otherwise;
}

FILTER(f_float) {
  (void)a;
  double f;
  if (v.type == J_UNDEF) j_use_undef(r, v);
  if (j_is_num(v)) return j_float(j_need_num(r, "float", v));
  if (v.type == J_STR && parse_float(r, v.s, &f)) return j_float(f);
  return given(arg[0]) ? arg[0] : j_float(0);
}

// Rounds half to even, like Python; exact, since the float is converted to a decimal first.
static jval round_whole(jrun *r, int64_t v, int64_t places) {
  if (places >= 0) return j_int(v);
  if (places < -19) return j_int(0);
  __int128 unit = 1;
  for (int64_t i = places; i < 0; i++) unit *= 10;
  __int128 down = v / unit - (v % unit < 0), rest = v - down * unit;
  if (rest > unit - rest || (rest == unit - rest && down % 2)) down++;
  if (down * unit < INT64_MIN || down * unit > INT64_MAX) jinja_fail(r, "an integer does not fit 64 bits");
  return j_int((int64_t)(down * unit));
}

FILTER(f_round) {
  (void)a;
  int64_t places = int_or(r, "precision", arg[0], 0);
  jval how = text_or(r, arg[1], "common");
  if (places > 300 || places < -300) jinja_fail(r, "round: a precision of %lld", (long long)places);
  if (!j_is(how.s, "common") && !j_is(how.s, "ceil") && !j_is(how.s, "floor"))
    jinja_fail(r, "method must be common, ceil or floor");
  if (!j_is(how.s, "common")) {
    double unit = pow(10, (double)places), f = j_need_num(r, "round", v) * unit;
    return j_float((j_is(how.s, "ceil") ? ceil(f) : floor(f)) / unit);
  }
  if (j_is_whole(v)) return round_whole(r, j_whole(v), places);
  double f = j_need_num(r, "round", v);
  if (!isfinite(f)) return v;
  if (places < 0) {
    double unit = pow(10, (double)-places), scaled = f / unit;
    return j_float(nearbyint(scaled) * unit);
  }
  str *s = j_scratch(r);
  str_addf(s, "%.*f", (int)places, f);
  f = plain_strtod(s->at, NULL);
  j_scratch_drop(r);
  return j_float(f);
}

FILTER(f_filesizeformat) {
  (void)a;
  bool binary = j_true(r, arg[0]);
  double n, base = binary ? 1024 : 1000;
  if (v.type == J_STR) { if (!parse_float(r, v.s, &n)) jinja_fail(r, "filesizeformat: expected a number"); }
  else n = j_need_num(r, "filesizeformat", v);
  static const char *const units[2][8] = {{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
                                          {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
  jinja_charge(r, 8);                                  // cost of printing a float
  str *s = j_scratch(r);
  if (n == 1) str_add(s, "1 Byte");
  else if (n < base && isinf(n)) jinja_fail(r, "cannot convert float infinity to integer");
  else if (n < base) str_addf(s, "%.0f Bytes", trunc(n) + 0.0);   // + 0 avoids a minus sign before zero
  else {
    double unit = base;
    int i = 0;
    while (i < 7 && !(n < unit * base)) { unit *= base; i++; }
    str_addf(s, "%.1f %s", base * n / (unit * base), units[binary][i]);   // Python's order of operations
  }
  return j_scratch_end(r);
}

// ---- text -----------------------------------------------------------------------------------------------------------

FILTER(f_lower) { (void)arg, (void)a; return j_case(r, j_to_str(r, v), CASE_LOWER); }
FILTER(f_upper) { (void)arg, (void)a; return j_case(r, j_to_str(r, v), CASE_UPPER); }
FILTER(f_capitalize) { (void)arg, (void)a; return j_case(r, j_to_str(r, v), CASE_CAPITAL); }
FILTER(f_string) { (void)arg, (void)a; return j_to_str(r, v); }
FILTER(f_trim) { (void)a; return j_strip(r, j_to_str(r, v), arg[0], 3); }
FILTER(f_escape) { (void)arg, (void)a; return j_escape(r, v); }
FILTER(f_forceescape) { (void)arg, (void)a; v = j_to_str(r, v); v.safe = false; return j_escape(r, v); }
FILTER(f_safe) { (void)arg, (void)a; v = j_to_str(r, v); v.safe = true; return v; }
FILTER(f_tojson) { (void)a; return j_to_json(r, v, arg[0], arg[1], arg[2], arg[3]); }
FILTER(f_from_json) { (void)arg, (void)a; return j_from_json(r, j_need_str(r, "from_json", v)); }
FILTER(f_default) {
  IGNORE;
  return v.type == J_UNDEF || (given(arg[1]) && j_true(r, arg[1]) && !j_true(r, v))
           ? (given(arg[0]) ? arg[0] : j_text(r, ""))
           : v;
}

static bool between_words(const jstr *s, size_t i, size_t *len) {
  *len = (size_t)utf8_next(s->at + i, s->n - i);
  uint32_t c = utf8_code_point(s->at + i, (int)*len);
  return j_is_space(c) || (c && c < 128 && strchr("-({[<", (int)c));
}

// Words begin after spaces, "-" and opening brackets, and only there.
FILTER(f_title) {
  IGNORE;
  jval text = j_to_str(r, v);
  str *s = j_scratch(r);
  jinja_charge(r, text.s->n);
  for (size_t i = 0, len; i < text.s->n;) {
    bool between = between_words(text.s, i, &len);
    size_t first = len, end = i + len;
    while (end < text.s->n && between_words(text.s, end, &len) == between) end += len;
    j_add(r, s, j_case(r, j_part(r, text, i, i + first), CASE_UPPER));
    j_add(r, s, j_case(r, j_part(r, text, i + first, end), CASE_LOWER));
    i = end;
  }
  return j_like(j_scratch_end(r), text);
}

FILTER(f_replace) {
  (void)a;
  jval text = j_to_str(r, v);
  text.safe = false;
  return j_replace(r, text, j_to_str(r, arg[0]), j_to_str(r, arg[1]),
                   j_is_given(arg[2]) ? j_need_int(r, "replace", arg[2]) : -1);
}

FILTER(f_center) {
  (void)a;
  jval text = j_to_str(r, v);
  int64_t width = max_i64(int_or(r, "width", arg[0], 80), 0), missing = width - (int64_t)j_chars(r, text.s);
  return j_pad(r, text, width, j_text(r, " "), missing / 2 + (missing & width & 1));
}

FILTER(f_indent) {
  (void)a;
  if (v.type == J_UNDEF) j_use_undef(r, v);
  j_need_str(r, "indent", v);
  jval by = given(arg[0]) && arg[0].type == J_STR
              ? arg[0]
              : j_binary(r, '*', j_text(r, " "), j_int(int_or(r, "width", arg[0], 4)));
  bool blank = j_true(r, arg[2]);
  jlist *lines = j_split_lines(r, j_concat(r, j_like(v, j_none()), j_text(r, "\n")), false);
  str *s = j_scratch(r);
  if (j_true(r, arg[1])) j_add(r, s, by);
  for (size_t i = 0; i < lines->n; i++) {
    if (i) str_addc(s, '\n');
    if (i && (blank || lines->at[i].s->n)) j_add(r, s, by);
    j_add(r, s, lines->at[i]);
  }
  return j_like(j_scratch_end(r), v);
}

FILTER(f_format) {
  (void)arg;
  if (a->n && a->n_kw) jinja_fail(r, "can't handle positional and keyword arguments at the same time");
  if (a->n_kw) {
    jdict *d = j_dict(r);
    for (size_t i = 0; i < a->n_kw; i++) j_dict_set(r, d, j_copy(r, a->kw[i].name), a->kw[i].v);
    return j_percent(r, j_to_str(r, v), j_of_dict(d));
  }
  jlist *l = j_list(r, a->n);
  for (size_t i = 0; i < a->n; i++) j_push(r, l, a->pos[i]);
  return j_percent(r, j_to_str(r, v), j_of_tuple(l));
}

FILTER(f_truncate) {
  (void)a;
  jval text = v, end = text_or(r, arg[2], "...");
  int64_t length = int_or(r, "length", arg[0], 255), leeway = j_is_given(arg[3]) ? j_need_int(r, "leeway", arg[3]) : 5,
          n_end = (int64_t)j_chars(r, end.s);
  if (length < n_end) jinja_fail(r, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
  if (leeway < 0) jinja_fail(r, "expected leeway >= 0, got %lld", (long long)leeway);
  int64_t n = j_len(r, v);
  if (n < 0) jinja_fail(r, "object of type '%s' has no len()", j_type_name(v));
  if (n - leeway <= length) return v;
  j_need_str(r, "truncate", v);
  jval head = j_slice(r, text, j_none(), j_int(length - n_end), j_none());
  if (!j_true(r, arg[1])) {
    size_t cut = head.s->n;
    while (cut > 0 && head.s->at[cut - 1] != ' ') cut--;
    if (cut) head = j_part(r, head, 0, cut - 1);
  }
  return j_like(j_concat(r, head, end), text);
}

FILTER(f_wordcount) {
  IGNORE;
  jval text = j_to_str(r, v);
  int64_t n = 0;
  bool inside = false;
  jinja_charge(r, 2 * text.s->n);
  for (size_t i = 0; i < text.s->n;) {
    int len = utf8_next(text.s->at + i, text.s->n - i);
    bool word = j_is_word(utf8_code_point(text.s->at + i, len));
    n += word && !inside;
    inside = word;
    i += (size_t)len;
  }
  return j_int(n);
}

static void add_url(jrun *r, str *s, jval v, bool plus) {
  static const char hex[] = "0123456789ABCDEF";
  jval text = j_to_str(r, v);
  size_t next = 0;
  jinja_charge(r, text.s->n);
  for (size_t i = 0; i < text.s->n; i++) {
    unsigned char c = (unsigned char)text.s->at[i];
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 (c && strchr("_.-~", c)) || (c == '/' && !plus);
    size_t since = s->n;
    if (plain) str_addc(s, (char)c);
    else if (c == ' ' && plus) str_addc(s, '+');
    else str_addn(s, (const char[]){'%', hex[c >> 4], hex[c & 15]}, 3);
    j_stands_for(s, since, text.s, i, i + 1);
    j_watch(r, s, &next);
  }
}

FILTER(f_urlencode) {
  IGNORE;
  bool pairs = v.type != J_STR && j_iterable(v);
  str *s = j_scratch(r);
  if (!pairs) { add_url(r, s, v, false); return j_scratch_end(r); }
  if (v.type == J_DICT) v.type = J_VIEW, v.what = 'i';
  jlist *l = j_items(r, v);
  for (size_t i = 0; i < l->n; i++) {
    jlist *pair = j_items(r, l->at[i]);
    if (pair->n != 2) jinja_fail(r, "urlencode: expected pairs");
    if (i) str_addc(s, '&');
    add_url(r, s, pair->at[0], true);
    str_addc(s, '=');
    add_url(r, s, pair->at[1], true);
  }
  return j_scratch_end(r);
}

FILTER(f_xmlattr) {
  (void)a;
  if (v.type != J_DICT) jinja_fail(r, "xmlattr: expected a mapping, not %s", j_type_name(v));
  str *s = j_scratch(r);
  jinja_charge(r, 4 * v.d->n);
  for (size_t i = 0; i < v.d->n; i++) {
    jval key = v.d->at[i].key, x = v.d->at[i].val;
    if (x.type == J_NONE || x.type == J_UNDEF) continue;
    key = j_to_str(r, key);
    for (size_t k = 0; k < key.s->n; k++)
      if (strchr(" \t\n\f\r/>=", key.s->at[k]))
        jinja_fail(r, "Invalid character in attribute name: '%.*s'", VIEW_ARGS(key));
    if (s->n || !given(arg[0]) || j_true(r, arg[0])) str_addc(s, ' ');
    j_add(r, s, j_escape(r, key));
    str_add(s, "=\"");
    j_add(r, s, j_escape(r, x));
    str_addc(s, '"');
  }
  return j_scratch_end(r);
}

FILTER(f_striptags) {
  IGNORE;
  jval text = j_to_str(r, v);
  str *s = j_scratch(r);
  const char *at = text.s->at;
  size_t n = text.s->n;
  jinja_charge(r, 3 * n);
  for (size_t i = 0; i < n;) {
    bool comment = n - i >= 4 && !memcmp(at + i, "<!--", 4);
    if (at[i] != '<') { j_add_part(r, s, text.s, i, i + 1); i++; continue; }
    const char *end = comment ? j_search(at + i + 4, n - i - 4, "-->", 3) : memchr(at + i, '>', n - i);
    if (!end) { j_add_part(r, s, text.s, i, n); break; }   // an unclosed tag: the rest is text
    i = (size_t)(end - at) + (comment ? 3 : 1);
  }
  jval bare = j_scratch_end(r);
  str *out = j_scratch(r);
  static const char *const known[][2] = {{"&amp;", "&"}, {"&lt;", "<"},   {"&gt;", ">"},
                                         {"&#39;", "'"}, {"&#34;", "\""}, {"&quot;", "\""}};
  at = bare.s->at, n = bare.s->n;
  for (size_t i = j_skip_space(at, 0, n); i < n;) {
    size_t end = j_skip_word(at, i, n);
    if (out->n) str_addc(out, ' ');
    while (i < end) {
      size_t k = 0;
      while (k < COUNT(known) && !(end - i >= strlen(known[k][0]) && !memcmp(at + i, known[k][0], strlen(known[k][0]))))
        k++;
      size_t since = out->n, len = k < COUNT(known) ? strlen(known[k][0]) : 1;
      if (k < COUNT(known)) str_add(out, known[k][1]);
      else str_addc(out, at[i]);
      j_stands_for(out, since, bare.s, i, i + len);
      i += len;
    }
    i = j_skip_space(at, end, n);
  }
  return j_scratch_end(r);
}

FILTER(f_pprint) {
  IGNORE;
  str *s = j_scratch(r);
  j_add_repr(r, s, v);
  return j_scratch_end(r);
}

FILTER(f_wordwrap) {
  (void)a;
  j_need_str(r, "wordwrap", v);
  bool cut = !given(arg[1]) || j_true(r, arg[1]), hyphens = !given(arg[3]) || j_true(r, arg[3]);
  return j_wordwrap(r, v, int_or(r, "width", arg[0], 79), cut, hyphens,
                    j_is_given(arg[2]) ? j_need_str(r, "wrapstring", arg[2]) : j_text(r, "\n"));
}

// Draws the same items in each run: a prompt that varied could be neither tested nor found in the prompt cache.
FILTER(f_random) {
  IGNORE;
  int64_t n = j_len(r, v);
  if (n < 0) jinja_fail(r, "object of type '%s' has no len()", j_type_name(v));
  if (!n) return j_undef(r, "No random item, sequence was empty.");
  return j_item(r, v, j_int((int64_t)(hash_u64(r->drawn++, 0) % (uint64_t)n)));
}

// The link attributes: the words of `rel` and those that links always have, unique and sorted, and the target.
static jval link_attributes(jrun *r, jval nofollow, jval target, jval rel) {
  jlist *words = j_list(r, 2), *keys = j_list(r, 2);
  if (given(rel) && j_true(r, rel)) {
    const jstr *s = j_need_str(r, "rel", rel).s;
    for (size_t i = j_skip_space(s->at, 0, s->n), end; i < s->n; i = j_skip_space(s->at, end, s->n)) {
      end = j_skip_word(s->at, i, s->n);
      j_push(r, words, j_part(r, rel, i, end));
    }
  }
  if (given(nofollow) && j_true(r, nofollow)) j_push(r, words, j_text(r, "nofollow"));
  j_push(r, words, j_text(r, "noopener"));
  for (size_t i = 0; i < words->n; i++) j_push(r, keys, words->at[i]);
  j_sort(r, keys->at, words->at, words->n, false);
  str *out = j_scratch(r);
  for (size_t i = 0; i < words->n; i++) {
    if (i && j_eq(r, words->at[i - 1], words->at[i])) continue;
    str_add(out, i ? " " : " rel=\"");
    j_add(r, out, j_escape(r, words->at[i]));
  }
  str_addc(out, '"');
  if (given(target) && j_true(r, target)) {
    str_add(out, " target=\"");
    j_add(r, out, j_escape(r, target));
    str_addc(out, '"');
  }
  return j_scratch_end(r);
}

FILTER(f_urlize) {
  (void)a;
  int64_t most = j_is_given(arg[0]) ? j_need_int(r, "trim_url_limit", arg[0]) : 0;
  return j_urlize(r, v, j_is_given(arg[0]) ? &most : NULL, link_attributes(r, arg[1], arg[2], arg[3]), arg[4]);
}

// ---- the table ------------------------------------------------------------------------------------------------------

const struct jfilter_row *j_filter(const char *name, size_t n) {
  static const struct jfilter_row filters[] = {
    {"abs", f_abs, "", 0},
    {"attr", f_attr, "name", 1},
    {"batch", f_batch, "linecount fill_with", 1},
    {"capitalize", f_capitalize, "", 0},
    {"center", f_center, "width", 0},
    {"count", f_length, "", 0},
    {"d", f_default, "default_value boolean", 0},
    {"default", f_default, "default_value boolean", 0},
    {"dictsort", f_dictsort, "case_sensitive by reverse", 0},
    {"e", f_escape, "", 0},
    {"escape", f_escape, "", 0},
    {"filesizeformat", f_filesizeformat, "binary", 0},
    {"first", f_first, "", 0},
    {"float", f_float, "default", 0},
    {"forceescape", f_forceescape, "", 0},
    {"format", f_format, NULL, 0},
    {"from_json", f_from_json, "", 0},
    {"groupby", f_groupby, "attribute default case_sensitive", 1},
    {"indent", f_indent, "width first blank", 0},
    {"int", f_int, "default base", 0},
    {"items", f_items, "", 0},
    {"join", f_join, "d attribute", 0},
    {"last", f_last, "", 0},
    {"length", f_length, "", 0},
    {"list", f_list, "", 0},
    {"lower", f_lower, "", 0},
    {"map", f_map, NULL, 0},
    {"max", f_max, "case_sensitive attribute", 0},
    {"min", f_min, "case_sensitive attribute", 0},
    {"pprint", f_pprint, "", 0},
    {"random", f_random, "", 0},
    {"reject", f_reject, NULL, 0},
    {"rejectattr", f_rejectattr, NULL, 0},
    {"replace", f_replace, "old new count", 2},
    {"reverse", f_reverse, "", 0},
    {"round", f_round, "precision method", 0},
    {"safe", f_safe, "", 0},
    {"select", f_select, NULL, 0},
    {"selectattr", f_selectattr, NULL, 0},
    {"slice", f_slice, "slices fill_with", 1},
    {"sort", f_sort, "reverse case_sensitive attribute", 0},
    {"string", f_string, "", 0},
    {"striptags", f_striptags, "", 0},
    {"sum", f_sum, "attribute start", 0},
    {"title", f_title, "", 0},
    {"tojson", f_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", f_trim, "chars", 0},
    {"truncate", f_truncate, "length killwords end leeway", 0},
    {"unique", f_unique, "case_sensitive attribute", 0},
    {"upper", f_upper, "", 0},
    {"urlencode", f_urlencode, "", 0},
    {"urlize", f_urlize, "trim_url_limit nofollow target rel extra_schemes", 0},
    {"wordcount", f_wordcount, "", 0},
    {"wordwrap", f_wordwrap, "width break_long_words wrapstring break_on_hyphens", 0},
    {"xmlattr", f_xmlattr, "autospace", 0},
  };
  for (size_t i = 0; i < COUNT(filters); i++)
    if (strlen(filters[i].name) == n && !memcmp(filters[i].name, name, n)) return &filters[i];
  return NULL;
}

jval j_run_filter(jrun *r, const struct jfilter_row *row, jval v, const jargs *a) {
  return j_call_row(r, "filter", row->name, row->call, row->params, row->at_least, v, a);
}
