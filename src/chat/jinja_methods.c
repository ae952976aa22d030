// Methods of strings, lists, dicts and loops, and the global functions.
//
// A table lists the methods of each type with their parameters. String methods count in code points; case conversion is
// Unicode's full one ("ß" becomes "SS").
#define _GNU_SOURCE
#include "chat/jinja_impl.h"
#include "chat/jinja_text.h"
#include "text/utf8.h"
#include <math.h>
#include <stdlib.h>


// ---- parts of strings -----------------------------------------------------------------------------------------------

static jval strip(jrun *r, jval self, const jval *arg, const jargs *a) { (void)a; return j_strip(r, self, arg[0], 3); }
static jval lstrip(jrun *r, jval self, const jval *arg, const jargs *a) { (void)a; return j_strip(r, self, arg[0], 1); }
static jval rstrip(jrun *r, jval self, const jval *arg, const jargs *a) { (void)a; return j_strip(r, self, arg[0], 2); }

static jval split_spaces(jrun *r, jval self, int64_t most, bool right) {
  jlist *l = j_list(r, 0);
  const jstr *s = self.s;
  jinja_charge(r, s->n);
  if (!right) {
    size_t i = j_skip_space(s->at, 0, s->n);
    while (i < s->n) {
      size_t end = most >= 0 && (int64_t)l->n >= most ? s->n : j_skip_word(s->at, i, s->n);
      j_push(r, l, j_part(r, self, i, end));
      i = j_skip_space(s->at, end, s->n);
    }
    return j_of_list(l);
  }
  size_t end = j_back_space(s->at, 0, s->n);
  while (end) {
    size_t from = most >= 0 && (int64_t)l->n >= most ? 0 : j_back_word(s->at, 0, end);
    j_push(r, l, j_part(r, self, from, end));
    end = j_back_space(s->at, 0, from);
  }
  for (size_t i = 0; i < l->n / 2; i++) { jval t = l->at[i]; l->at[i] = l->at[l->n - 1 - i]; l->at[l->n - 1 - i] = t; }
  return j_of_list(l);
}

static jval split_at(jrun *r, jval self, const jval *arg, bool right) {
  int64_t most = arg[1].type == J_ABSENT ? -1 : j_need_int(r, "split", arg[1]);
  if (!j_is_given(arg[0])) return split_spaces(r, self, most, right);
  const jstr *s = self.s, *sep = j_need_str(r, "split", arg[0]).s;
  if (!sep->n) jinja_fail(r, "empty separator");
  jlist *l = j_list(r, 0);
  jinja_charge(r, s->n / 4);
  if (!right) {
    size_t from = 0;
    for (;;) {
      const char *hit =
        most >= 0 && (int64_t)l->n >= most ? NULL : j_search(s->at + from, s->n - from, sep->at, sep->n);
      if (!hit) break;
      j_push(r, l, j_part(r, self, from, (size_t)(hit - s->at)));
      from = (size_t)(hit - s->at) + sep->n;
    }
    j_push(r, l, j_part(r, self, from, s->n));
    return j_of_list(l);
  }
  size_t end = s->n;
  for (;;) {
    const char *hit = most >= 0 && (int64_t)l->n >= most ? NULL : j_search_back(r, s->at, end, sep->at, sep->n);
    if (!hit) break;
    j_push(r, l, j_part(r, self, (size_t)(hit - s->at) + sep->n, end));
    end = (size_t)(hit - s->at);
  }
  j_push(r, l, j_part(r, self, 0, end));
  for (size_t i = 0; i < l->n / 2; i++) { jval t = l->at[i]; l->at[i] = l->at[l->n - 1 - i]; l->at[l->n - 1 - i] = t; }
  return j_of_list(l);
}

static jval split(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return split_at(r, self, arg, false);
}
static jval rsplit(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return split_at(r, self, arg, true);
}

static jval three(jrun *r, jval a, jval b, jval c) {
  jlist *l = j_list(r, 3);
  j_push(r, l, a);
  j_push(r, l, b);
  j_push(r, l, c);
  return j_of_tuple(l);
}

static jval partition_at(jrun *r, jval self, jval sep, bool right) {
  const jstr *s = self.s;
  j_need_str(r, "partition", sep);
  if (!sep.s->n) jinja_fail(r, "empty separator");
  jinja_charge(r, s->n / 4);
  const char *hit =
    right ? j_search_back(r, s->at, s->n, sep.s->at, sep.s->n) : j_search(s->at, s->n, sep.s->at, sep.s->n);
  if (!hit) return right ? three(r, j_text(r, ""), j_text(r, ""), self) : three(r, self, j_text(r, ""), j_text(r, ""));
  size_t at = (size_t)(hit - s->at);
  return three(r, j_part(r, self, 0, at), sep, j_part(r, self, at + sep.s->n, s->n));
}

static jval partition(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return partition_at(r, self, arg[0], false);
}
static jval rpartition(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return partition_at(r, self, arg[0], true);
}
static jval splitlines(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return j_of_list(j_split_lines(r, self, arg[0].type != J_ABSENT && j_need_int(r, "keepends", arg[0])));
}

static jval removeprefix(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  const jstr *s = self.s, *p = j_need_str(r, "removeprefix", arg[0]).s;
  jinja_charge(r, p->n / 16);
  return p->n <= s->n && !memcmp(s->at, p->at, p->n) ? j_part(r, self, p->n, s->n) : self;
}

static jval removesuffix(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  const jstr *s = self.s, *p = j_need_str(r, "removesuffix", arg[0]).s;
  jinja_charge(r, p->n / 16);
  return p->n <= s->n && !memcmp(s->at + s->n - p->n, p->at, p->n) ? j_part(r, self, 0, s->n - p->n) : self;
}

// ---- searching in strings -------------------------------------------------------------------------------------------

// The bytes [*from, *to) of code points start..end, by the rules of slices. False if start is after the string.
static bool window(jrun *r, jval self, jval start, jval end, size_t *from, size_t *to) {
  int64_t n = (int64_t)j_chars(r, self.s), a = j_is_given(start) ? j_need_int(r, "start", start) : 0,
          b = j_is_given(end) ? j_need_int(r, "end", end) : n;
  if (a < 0) a = a < -n ? 0 : a + n;
  if (b < 0) b = b < -n ? 0 : b + n;
  if (b > n) b = n;
  if (a > b) return false;
  *from = j_offset(r, self.s, (size_t)a);
  *to = j_offset(r, self.s, (size_t)b);
  return true;
}

static int64_t search(jrun *r, jval self, const jval *arg, bool back) {
  size_t from, to;
  const jstr *what = j_need_str(r, "find", arg[0]).s;
  if (!window(r, self, arg[1], arg[2], &from, &to)) return -1;
  jinja_charge(r, (to - from) / 4);
  const char *in = self.s->at + from, *hit = back      ? j_search_back(r, in, to - from, what->at, what->n)
                                             : what->n ? j_search(in, to - from, what->at, what->n)
                                                       : in;
  if (!hit) return -1;
  jstr before = {.at = self.s->at, .n = (size_t)(hit - self.s->at), .chars = SIZE_MAX};
  return (int64_t)j_chars(r, &before);
}

static jval find(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return j_int(search(r, self, arg, false));
}
static jval rfind(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return j_int(search(r, self, arg, true));
}

static jval found(jrun *r, int64_t at) {
  if (at < 0) jinja_fail(r, "substring not found");
  return j_int(at);
}

static jval index_of(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return found(r, search(r, self, arg, false));
}
static jval last_index(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return found(r, search(r, self, arg, true));
}

static jval count(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  size_t from, to;
  int64_t n = 0;
  const jstr *what = j_need_str(r, "count", arg[0]).s;
  if (!window(r, self, arg[1], arg[2], &from, &to)) return j_int(0);
  jinja_charge(r, (to - from) / 4);
  if (!what->n) {
    jstr s = {.at = self.s->at + from, .n = to - from, .chars = SIZE_MAX};
    return j_int((int64_t)j_chars(r, &s) + 1);
  }
  for (const char *hit; (hit = j_search(self.s->at + from, to - from, what->at, what->n)); n++, jinja_charge(r, 1))
    from = (size_t)(hit - self.s->at) + what->n;
  return j_int(n);
}

static jval with_affix(jrun *r, jval self, const jval *arg, bool start) {
  size_t from, to;
  jval one = arg[0];
  jlist single = {&one, 1, 1}, *l = one.type == J_TUPLE ? one.l : &single;
  bool ok = window(r, self, arg[1], arg[2], &from, &to);
  for (size_t i = 0; i < l->n; i++) {
    const jstr *p = j_need_str(r, start ? "startswith" : "endswith", l->at[i]).s;
    jinja_charge(r, p->n / 16 + 1);
    if (ok && p->n <= to - from && !memcmp(self.s->at + (start ? from : to - p->n), p->at, p->n)) return j_bool(true);
  }
  return j_bool(false);
}

static jval startswith(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return with_affix(r, self, arg, true);
}
static jval endswith(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  return with_affix(r, self, arg, false);
}

static jval replace(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  jval new = j_need_str(r, "replace", arg[1]);
  if (self.safe) new = j_escape(r, new);
  return j_replace(r, self, j_need_str(r, "replace", arg[0]), new,
                   arg[2].type == J_ABSENT ? -1 : j_need_int(r, "replace", arg[2]));
}

static jval join(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  jlist *l = j_items(r, arg[0]);
  str *s = j_scratch(r);
  jinja_charge(r, l->n);
  for (size_t i = 0; i < l->n; i++) {
    jval v = l->at[i];
    if (v.type != J_STR) jinja_fail(r, "sequence item %zu: expected str instance, %s found", i, j_type_name(v));
    if (i) j_add(r, s, self);
    j_add(r, s, self.safe ? j_escape(r, v) : v);
  }
  return j_like(j_scratch_end(r), self);
}

// ---- padding --------------------------------------------------------------------------------------------------------

static jval pad(jrun *r, jval self, const jval *arg, char side) {
  int64_t width = max_i64(j_need_int(r, "width", arg[0]), 0), n = (int64_t)j_chars(r, self.s);
  jval fill = arg[1].type == J_ABSENT ? j_text(r, " ") : j_need_str(r, "fill", arg[1]);
  if (j_chars(r, fill.s) != 1) jinja_fail(r, "The fill character must be exactly one character long");
  return j_pad(r, self, width, fill,
               side == 'l'   ? 0
               : side == 'r' ? width - n
                             : (width - n) / 2 + ((width - n) & width & 1));
}

static jval center(jrun *r, jval self, const jval *arg, const jargs *a) { (void)a; return pad(r, self, arg, 'c'); }
static jval ljust(jrun *r, jval self, const jval *arg, const jargs *a) { (void)a; return pad(r, self, arg, 'l'); }
static jval rjust(jrun *r, jval self, const jval *arg, const jargs *a) { (void)a; return pad(r, self, arg, 'r'); }

static jval zfill(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  int64_t width = max_i64(j_need_int(r, "width", arg[0]), 0), n = (int64_t)j_chars(r, self.s);
  bool sign = self.s->n && (self.s->at[0] == '-' || self.s->at[0] == '+');
  jval digits = sign ? j_part(r, self, 1, self.s->n) : self,
       padded = j_pad(r, digits, width - sign, j_text(r, "0"), width - n);
  return sign && width > n ? j_concat(r, j_part(r, self, 0, 1), padded) : width > n ? padded : self;
}

static jval expandtabs(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  int64_t size = arg[0].type == J_ABSENT ? 8 : j_need_int(r, "expandtabs", arg[0]), column = 0;
  if (size > 1000) jinja_fail(r, "expandtabs: a tab of %lld", (long long)size);
  str *s = j_scratch(r);
  jinja_charge(r, self.s->n / 2);
  for (size_t i = 0; i < self.s->n; i++) {
    char c = self.s->at[i];
    if (c != '\t') {
      j_add_part(r, s, self.s, i, i + 1);
      column = c == '\n' || c == '\r' ? 0 : column + (((unsigned char)c & 0xC0) != 0x80);
      continue;
    }
    if (size <= 0) continue;
    int64_t blanks = size - column % size;
    column += blanks;
    jinja_charge(r, (uint64_t)blanks);
    size_t since = s->n;
    while (blanks--) str_addc(s, ' ');
    j_stands_for(s, since, self.s, i, i + 1);
    j_guard(r, s);
  }
  return j_like(j_scratch_end(r), self);
}

static jval format(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg;
  return j_format_method(r, self, a);
}

// ---- letters --------------------------------------------------------------------------------------------------------

static jval lower(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  return j_case(r, self, CASE_LOWER);
}
static jval upper(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  return j_case(r, self, CASE_UPPER);
}
static jval title(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  return j_case(r, self, CASE_TITLE);
}
static jval capitalize(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  return j_case(r, self, CASE_CAPITAL);
}
static jval swapcase(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  return j_case(r, self, CASE_SWAP);
}
static jval casefold(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  return j_case(r, self, CASE_FOLD);
}

#define IS(name) static jval str_##name(jrun *r, jval self, const jval *arg, const jargs *a) \
  { (void)arg, (void)a; return j_bool(j_str_##name(r, self.s)); }
IS(isalnum)
IS(isalpha) IS(isascii) IS(isdecimal) IS(isdigit) IS(isidentifier) IS(islower) IS(isnumeric) IS(isprintable) IS(isspace)
  IS(istitle) IS(isupper)
#undef IS

  // ---- lists --------------------------------------------------------------------------------------------------------

  static jval append(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  j_push(r, self.l, arg[0]);
  return j_none();
}

static jval extend(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  jlist *more = j_items(r, arg[0]);
  for (size_t i = 0, n = more->n; i < n; i++) j_push(r, self.l, more->at[i]);
  return j_none();
}

static jval insert(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  int64_t n = (int64_t)self.l->n, i = j_need_int(r, "insert", arg[0]);
  if (i < 0) i = i < -n ? 0 : i + n;
  if (i > n) i = n;
  j_push(r, self.l, arg[1]);
  jinja_charge(r, (uint64_t)(n - i));
  memmove(self.l->at + i + 1, self.l->at + i, (size_t)(n - i) * sizeof *self.l->at);
  self.l->at[i] = arg[1];
  return j_none();
}

static jval take_at(jrun *r, jlist *l, size_t i) {
  jval v = l->at[i];
  jinja_charge(r, l->n - i);
  memmove(l->at + i, l->at + i + 1, (--l->n - i) * sizeof *l->at);
  return v;
}

static jval pop(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  int64_t n = (int64_t)self.l->n, i = arg[0].type == J_ABSENT ? n - 1 : j_need_int(r, "pop", arg[0]);
  if (!n) jinja_fail(r, "pop from empty list");
  if (i < 0 && arg[0].type != J_ABSENT) i = i < -n ? -1 : i + n;
  if (i < 0 || i >= n) jinja_fail(r, "pop index out of range");
  return take_at(r, self.l, (size_t)i);
}

static size_t place_of(jrun *r, jlist *l, jval v) {
  size_t i = 0;
  while (i < l->n && !j_eq(r, l->at[i], v)) i++;
  return i;
}

static jval remove_item(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  size_t i = place_of(r, self.l, arg[0]);
  if (i == self.l->n) jinja_fail(r, "list.remove(x): x not in list");
  take_at(r, self.l, i);
  return j_none();
}

static jval list_index(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  size_t i = place_of(r, self.l, arg[0]);
  if (i == self.l->n) jinja_fail(r, "the value is not in the %s", j_type_name(self));
  return j_int((int64_t)i);
}

static jval list_count(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  int64_t n = 0;
  for (size_t i = 0; i < self.l->n; i++) n += j_eq(r, self.l->at[i], arg[0]);
  return j_int(n);
}

static jval list_reverse(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  jlist *l = self.l;
  jinja_charge(r, l->n);
  for (size_t i = 0; i < l->n / 2; i++) { jval t = l->at[i]; l->at[i] = l->at[l->n - 1 - i]; l->at[l->n - 1 - i] = t; }
  return j_none();
}

static jval list_copy(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  jlist *l = j_list(r, self.l->n);
  for (size_t i = 0; i < self.l->n; i++) j_push(r, l, self.l->at[i]);
  return j_of_list(l);
}

static jval list_clear(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)r, (void)arg, (void)a;
  self.l->n = 0;
  return j_none();
}

static jval list_sort(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  jval *keys = jinja_array(r, self.l->n, sizeof *keys);
  if (self.l->n) memcpy(keys, self.l->at, self.l->n * sizeof *keys);
  j_sort(r, keys, self.l->at, self.l->n, arg[0].type != J_ABSENT && j_need_int(r, "reverse", arg[0]));
  return j_none();
}

// ---- dicts ----------------------------------------------------------------------------------------------------------

static jval view(jval self, char what) { self.type = J_VIEW; self.what = (uint8_t)what; return self; }
static jval keys(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)r, (void)arg, (void)a;
  return view(self, 'k');
}
static jval values(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)r, (void)arg, (void)a;
  return view(self, 'v');
}
static jval items(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)r, (void)arg, (void)a;
  return view(self, 'i');
}

static jval get(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  jval v;
  if (j_dict_get(r, self.d, arg[0], &v)) return v;
  return arg[1].type == J_ABSENT ? j_none() : arg[1];
}

static void update_from(jrun *r, jdict *d, jval from) {
  if (from.type == J_DICT || from.type == J_NS) {
    for (size_t i = 0; i < from.d->n; i++) j_dict_set(r, d, from.d->at[i].key, from.d->at[i].val);
    return;
  }
  jlist *l = j_items(r, from);
  for (size_t i = 0; i < l->n; i++) {
    jlist *pair = j_items(r, l->at[i]);
    if (pair->n != 2)
      jinja_fail(r, "dictionary update sequence element #%zu has length %zu; 2 is required", i, pair->n);
    j_dict_set(r, d, pair->at[0], pair->at[1]);
  }
}

static void update_named(jrun *r, jdict *d, const jargs *a) {
  for (size_t i = 0; i < a->n_kw; i++) j_dict_set(r, d, j_copy(r, a->kw[i].name), a->kw[i].v);
}

static jval update(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg;
  if (a->n > 1) jinja_fail(r, "update expected at most 1 argument, got %zu", a->n);
  if (a->n) update_from(r, self.d, a->pos[0]);
  update_named(r, self.d, a);
  return j_none();
}

static jval dict_pop(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  jval v;
  if (j_dict_remove(r, self.d, arg[0], &v)) return v;
  if (arg[1].type == J_ABSENT) jinja_fail(r, "pop: the dict has no such key");
  return arg[1];
}

static jval popitem(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  if (!self.d->n) jinja_fail(r, "popitem(): dictionary is empty");
  jval key = self.d->at[self.d->n - 1].key, v;
  j_dict_remove(r, self.d, key, &v);
  return j_pair(r, key, v);
}

static jval setdefault(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)a;
  jval v;
  if (j_dict_get(r, self.d, arg[0], &v)) return v;
  v = arg[1].type == J_ABSENT ? j_none() : arg[1];
  j_dict_set(r, self.d, arg[0], v);
  return v;
}

static jval dict_clear(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)r, (void)arg, (void)a;
  *self.d = (jdict){0};
  return j_none();
}

static jval dict_copy(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg, (void)a;
  jdict *d = j_dict(r);
  update_from(r, d, self);
  return j_of_dict(d);
}

// ---- loops and cyclers ----------------------------------------------------------------------------------------------

static jval loop_cycle(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg;
  if (!a->n || a->n_kw) jinja_fail(r, "no items for cycling given");
  return a->pos[self.loop->index % a->n];
}

static jval loop_changed(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)arg;
  jlist *l = j_list(r, a->n);
  for (size_t i = 0; i < a->n; i++) j_push(r, l, a->pos[i]);
  jval now = j_of_tuple(l);
  if (self.loop->changed.type != J_ABSENT && j_eq(r, self.loop->changed, now)) return j_bool(false);
  self.loop->changed = now;
  return j_bool(true);
}

static jval cycler_next(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)r, (void)arg, (void)a;
  jval v = self.cycle->items->at[self.cycle->at];
  self.cycle->at = (self.cycle->at + 1) % self.cycle->items->n;
  return v;
}

static jval cycler_reset(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)r, (void)arg, (void)a;
  self.cycle->at = 0;
  return j_none();
}
static jval is_integer(jrun *r, jval self, const jval *arg, const jargs *a) {
  (void)r, (void)arg, (void)a;
  return j_bool(isfinite(self.f) && self.f == floor(self.f));
}

// ---- the table ------------------------------------------------------------------------------------------------------

static const struct jmethod_row methods[] = {
  {J_STR, "strip", strip, "chars", 0},
  {J_STR, "lstrip", lstrip, "chars", 0},
  {J_STR, "rstrip", rstrip, "chars", 0},
  {J_STR, "split", split, "sep maxsplit", 0},
  {J_STR, "rsplit", rsplit, "sep maxsplit", 0},
  {J_STR, "splitlines", splitlines, "keepends", 0},
  {J_STR, "partition", partition, "sep", 1},
  {J_STR, "rpartition", rpartition, "sep", 1},
  {J_STR, "removeprefix", removeprefix, "prefix", 1},
  {J_STR, "removesuffix", removesuffix, "suffix", 1},
  {J_STR, "find", find, "sub start end", 1},
  {J_STR, "rfind", rfind, "sub start end", 1},
  {J_STR, "index", index_of, "sub start end", 1},
  {J_STR, "rindex", last_index, "sub start end", 1},
  {J_STR, "count", count, "sub start end", 1},
  {J_STR, "startswith", startswith, "prefix start end", 1},
  {J_STR, "endswith", endswith, "suffix start end", 1},
  {J_STR, "replace", replace, "old new count", 2},
  {J_STR, "join", join, "iterable", 1},
  {J_STR, "format", format, NULL, 0},
  {J_STR, "center", center, "width fillchar", 1},
  {J_STR, "ljust", ljust, "width fillchar", 1},
  {J_STR, "rjust", rjust, "width fillchar", 1},
  {J_STR, "zfill", zfill, "width", 1},
  {J_STR, "expandtabs", expandtabs, "tabsize", 0},
  {J_STR, "lower", lower, "", 0},
  {J_STR, "upper", upper, "", 0},
  {J_STR, "title", title, "", 0},
  {J_STR, "capitalize", capitalize, "", 0},
  {J_STR, "swapcase", swapcase, "", 0},
  {J_STR, "casefold", casefold, "", 0},
  {J_STR, "isalnum", str_isalnum, "", 0},
  {J_STR, "isalpha", str_isalpha, "", 0},
  {J_STR, "isascii", str_isascii, "", 0},
  {J_STR, "isdecimal", str_isdecimal, "", 0},
  {J_STR, "isdigit", str_isdigit, "", 0},
  {J_STR, "isidentifier", str_isidentifier, "", 0},
  {J_STR, "islower", str_islower, "", 0},
  {J_STR, "isnumeric", str_isnumeric, "", 0},
  {J_STR, "isprintable", str_isprintable, "", 0},
  {J_STR, "isspace", str_isspace, "", 0},
  {J_STR, "istitle", str_istitle, "", 0},
  {J_STR, "isupper", str_isupper, "", 0},
  {J_LIST, "append", append, "object", 1},
  {J_LIST, "extend", extend, "iterable", 1},
  {J_LIST, "insert", insert, "index object", 2},
  {J_LIST, "pop", pop, "index", 0},
  {J_LIST, "remove", remove_item, "value", 1},
  {J_LIST, "index", list_index, "value", 1},
  {J_LIST, "count", list_count, "value", 1},
  {J_LIST, "reverse", list_reverse, "", 0},
  {J_LIST, "copy", list_copy, "", 0},
  {J_LIST, "clear", list_clear, "", 0},
  {J_LIST, "sort", list_sort, "reverse", 0},
  {J_TUPLE, "index", list_index, "value", 1},
  {J_TUPLE, "count", list_count, "value", 1},
  {J_DICT, "get", get, "key default", 1},
  {J_DICT, "keys", keys, "", 0},
  {J_DICT, "values", values, "", 0},
  {J_DICT, "items", items, "", 0},
  {J_DICT, "update", update, NULL, 0},
  {J_DICT, "pop", dict_pop, "key default", 1},
  {J_DICT, "popitem", popitem, "", 0},
  {J_DICT, "setdefault", setdefault, "key default", 1},
  {J_DICT, "clear", dict_clear, "", 0},
  {J_DICT, "copy", dict_copy, "", 0},
  {J_LOOP, "cycle", loop_cycle, NULL, 0},
  {J_LOOP, "changed", loop_changed, NULL, 0},
  {J_CYCLER, "next", cycler_next, "", 0},
  {J_CYCLER, "reset", cycler_reset, "", 0},
  {J_FLOAT, "is_integer", is_integer, "", 0},
};

bool j_method(jrun *r, jval self, const jstr *name, jval *out) {
  for (size_t i = 0; i < COUNT(methods); i++) {
    if (methods[i].type != self.type || !j_is(name, methods[i].name)) continue;
    *out = (jval){.type = J_METHOD, .m = jinja_alloc(r, sizeof(struct jmethod))};
    out->m->self = self;
    out->m->row = &methods[i];
    return true;
  }
  return false;
}

// The index of the parameter with this name, or -1; *n: the number of parameters.
static int parameter(const char *params, const jstr *name, size_t *n) {
  int found_at = -1;
  *n = 0;
  for (const char *p = params; *p; ++*n) {
    size_t len = strcspn(p, " ");
    if (name && name->n == len && !memcmp(name->at, p, len)) found_at = (int)*n;
    p += len + (p[len] == ' ');
  }
  return found_at;
}

// Assigns arguments to parameters: first by position, then by name.
enum { MAX_PARAMS = 6 };
jval j_call_row(jrun *r, const char *what, const char *name, jmethod_fn *fn, const char *params, size_t at_least,
                jval self, const jargs *a) {
  jval arg[MAX_PARAMS] = {{.type = J_ABSENT}};
  if (!params) return fn(r, self, arg, a);
  size_t n;
  parameter(params, NULL, &n);
  if (n > MAX_PARAMS) die("%s.%s has too many parameters", what, name);
  if (a->n > n) jinja_fail(r, "%s takes at most %zu argument(s), %zu given", name, n, a->n);
  for (size_t i = 0; i < a->n; i++) arg[i] = a->pos[i];
  for (size_t i = 0; i < a->n_kw; i++) {
    const jstr *kw = a->kw[i].name;
    int k = parameter(params, kw, &n), len = (int)(kw->n > 100 ? 100 : kw->n);
    if (k < 0) jinja_fail(r, "%s: unexpected keyword argument '%.*s'", name, len, kw->at);
    if (arg[k].type != J_ABSENT) jinja_fail(r, "%s: got multiple values for argument '%.*s'", name, len, kw->at);
    arg[k] = a->kw[i].v;
  }
  for (size_t i = 0; i < at_least; i++)
    if (arg[i].type == J_ABSENT) jinja_fail(r, "%s: argument %zu is missing", name, i + 1);
  return fn(r, self, arg, a);
}

// ---- global functions -----------------------------------------------------------------------------------------------

static jval range(jrun *r, const jargs *a) {
  if (!a->n || a->n > 3 || a->n_kw) jinja_fail(r, "range takes 1 to 3 arguments, %zu given", a->n);
  int64_t v[3] = {0, 0, 1};
  for (size_t i = 0; i < a->n; i++) v[i] = j_need_int(r, "range", a->pos[i]);
  if (a->n == 1) { v[1] = v[0]; v[0] = 0; }
  if (!v[2]) jinja_fail(r, "range() arg 3 must not be zero");
  __int128 span = v[2] > 0 ? (__int128)v[1] - v[0] : (__int128)v[0] - v[1],
           step = v[2] > 0 ? (__int128)v[2] : -(__int128)v[2];
  __int128 n = span > 0 ? (span + step - 1) / step : 0;
  if (n > 100000) jinja_fail(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  struct jrange *made = jinja_alloc(r, sizeof *made);
  *made = (struct jrange){v[0], v[1], v[2], (int64_t)n};
  return (jval){.type = J_RANGE, .r = made};
}

static jval dict(jrun *r, const jargs *a) {
  jdict *d = j_dict(r);
  if (a->n > 1) jinja_fail(r, "dict expected at most 1 argument, got %zu", a->n);
  if (a->n) update_from(r, d, a->pos[0]);
  update_named(r, d, a);
  return j_of_dict(d);
}

static jval namespace(jrun *r, const jargs *a) {
  jval v = dict(r, a);
  v.type = J_NS;
  return v;
}

static jval joiner(jrun *r, const jargs *a) {
  struct jcycle *c = jinja_alloc(r, sizeof *c);
  c->sep = a->n ? a->pos[0] : a->n_kw && j_is(a->kw[0].name, "sep") ? a->kw[0].v : j_text(r, ", ");
  return (jval){.type = J_JOINER, .cycle = c};
}

static jval cycler(jrun *r, const jargs *a) {
  if (!a->n || a->n_kw) jinja_fail(r, "at least one item has to be provided");
  struct jcycle *c = jinja_alloc(r, sizeof *c);
  c->items = j_list(r, a->n);
  for (size_t i = 0; i < a->n; i++) j_push(r, c->items, a->pos[i]);
  return (jval){.type = J_CYCLER, .cycle = c};
}

static jval raise_exception(jrun *r, const jargs *a) {
  jval v = a->n ? a->pos[0] : a->n_kw ? a->kw[0].v : j_text(r, "the template raised an exception");
  v = j_to_str(r, v);
  jinja_fail(r, "%.*s", (int)(v.s->n > 800 ? 800 : v.s->n), v.s->at);
}

static jval strftime_now(jrun *r, const jargs *a) {
  if (a->n + a->n_kw != 1) jinja_fail(r, "strftime_now takes one argument");
  return j_strftime(r, j_need_str(r, "strftime_now", a->n ? a->pos[0] : a->kw[0].v));
}

static jval lipsum(jrun *r, const jargs *a) {
  (void)a;
  jinja_fail(r, "lipsum is not supported: prompts are no place for random text");
}

const struct jfunc *j_global(const char *name, size_t n) {
  static const struct jfunc globals[] = {
    {"range", range}, {"dict", dict}, {"namespace", namespace}, {"joiner", joiner}, {"cycler", cycler},
    {"raise_exception", raise_exception}, {"strftime_now", strftime_now}, {"lipsum", lipsum},
  };
  for (size_t i = 0; i < COUNT(globals); i++)
    if (strlen(globals[i].name) == n && !memcmp(globals[i].name, name, n)) return &globals[i];
  return NULL;
}

bool jinja_is_global(const char *name) { return j_global(name, strlen(name)); }
