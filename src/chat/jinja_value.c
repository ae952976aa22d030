// Values: construction, comparison, look-up, iteration and printing, by Python's rules; and a run's memory, limits and
// failures. Operators and attributes are in jinja_ops.c, printing of numbers in jinja_format.c.
#define _GNU_SOURCE
#include "base/stack.h"
#include "base/plain.h"
#include "chat/jinja_impl.h"
#include "text/utf8.h"
#include <math.h>
#include <stdlib.h>

// ---- authors of bytes ----

const uint8_t j_all_own[1] = {1};

static const uint8_t *own_from(const jstr *s, size_t from) {
  return s->own && s->own != J_OWN ? s->own + from : s->own;
}

static void put_own(uint8_t *to, const jstr *s) {
  if (s->own && s->own != J_OWN) memcpy(to, s->own, s->n);
  else memset(to, s->own ? 1 : 0, s->n);
}

static const uint8_t *own_of_spans(jrun *r, const text_spans *spans, size_t n) {
  if (!spans->n) return NULL;
  if (spans->at[0].from == 0 && spans->at[0].to == n) return J_OWN;
  uint8_t *own = jinja_alloc(r, n);
  for (size_t i = 0; i < spans->n; i++) memset(own + spans->at[i].from, 1, spans->at[i].to - spans->at[i].from);
  jinja_charge(r, n / 16 + spans->n);
  return own;
}

// ---- the run --------------------------------------------------------------------------------------------------------

void jinja_fail(jrun *r, const char *fmt, ...) {
  char text[sizeof r->err->text - 32];
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  error_set(r->err, "line %d: %s", r->line, text);
  longjmp(r->leave, 1);
}

void jinja_charge(jrun *r, uint64_t n) {
  if (n > r->max.steps - r->steps)
    jinja_fail(r, "the template takes more than %llu steps", (unsigned long long)r->max.steps);
  r->steps += n;
}

void jinja_enter(jrun *r) {
  if (++r->depth > r->max.depth) jinja_fail(r, "more than %d levels inside each other", r->max.depth);
  if (stack_is_low()) jinja_fail(r, "%d levels inside each other, and the stack has no room for more", r->depth);
}

NORETURN static void too_much(jrun *r) {
  if (r->crowded) account_here()->crowded = true;
  jinja_fail(r, "the values of the template need more than %zu bytes", r->max.memory);
}

static size_t capture_bytes(const struct jcapture *c) {
  return c->below + c->text.cap + c->own.cap * sizeof *c->own.at;
}

void jinja_room(jrun *r, size_t n) {
  size_t used = r->beside + arena_bytes(r->mem) + (r->capture ? capture_bytes(r->capture) : 0);
  if (used > r->max.memory || n > r->max.memory - used) too_much(r);
}

void *jinja_alloc(jrun *r, size_t n) {
  jinja_room(r, n);
  return arena_alloc(r->mem, n);
}

void *jinja_array(jrun *r, size_t n, size_t size) {
  if (n > SIZE_MAX / size) too_much(r);
  return jinja_alloc(r, n * size);
}

void *jinja_grow(jrun *r, void *at, size_t n, size_t *cap, size_t size) {
  if (n < *cap) return at;
  size_t to = *cap ? *cap * 2 : 4;
  void *more = jinja_array(r, to, size);
  if (n) memcpy(more, at, n * size);
  *cap = to;
  return more;
}

void j_guard(jrun *r, const str *s) { jinja_room(r, r->capture && s == &r->capture->text ? 0 : s->cap); }

str *j_scratch(jrun *r) {
  jinja_charge(r, 4);                      // two allocations
  struct jcapture *c = xcalloc(1, sizeof *c);
  c->up = r->capture;
  c->below = c->up ? capture_bytes(c->up) : 0;
  r->capture = c;
  return &c->text;
}

void j_scratch_drop(jrun *r) {
  struct jcapture *c = r->capture;
  r->capture = c->up;
  str_free(&c->text);
  vec_free(&c->own);
  free(c);
}

jval j_scratch_end(jrun *r) {
  const struct jcapture *c = r->capture;
  jval v = j_str(r, str_c(&c->text), c->text.n);
  v.s->own = own_of_spans(r, &c->own, c->text.n);
  j_scratch_drop(r);
  return v;
}

// Adds bytes in stretches with one author each.
void j_add_part(jrun *r, str *s, const jstr *of, size_t from, size_t to) {
  size_t at = s->n;
  text_spans *own = &((struct jcapture *)s)->own;
  str_addn(s, of->at + from, to - from);
  if (of->own == J_OWN) spans_add(own, at, s->n);
  if (!of->own || of->own == J_OWN) return;
  jinja_charge(r, (to - from) / 4);
  for (size_t i = from, end; i < to; i = end) {
    for (end = i + 1; end < to && of->own[end] == of->own[i]; end++) continue;
    if (of->own[i]) spans_add(own, at + i - from, at + end - from);
  }
}

bool j_is_own(const jstr *s, size_t from, size_t to) {
  if (!s->own || s->own == J_OWN) return s->own;
  while (from < to && s->own[from]) from++;
  return from == to;
}

// ---- strings --------------------------------------------------------------------------------------------------------

static jstr *str_at(jrun *r, const char *at, size_t n) {
  jstr *s = jinja_alloc(r, sizeof *s);
  *s = (jstr){.at = at, .n = n, .chars = SIZE_MAX};
  return s;
}

jstr *j_new_str(jrun *r, const char *at, size_t n) {
  char *copy = jinja_alloc(r, n + 1);
  if (n) memcpy(copy, at, n);
  jinja_charge(r, n / 16);
  return str_at(r, copy, n);
}

jval j_str(jrun *r, const char *at, size_t n) { return (jval){.type = J_STR, .s = j_new_str(r, at, n)}; }
jval j_text(jrun *r, const char *text) { return j_str(r, text, strlen(text)); }
jval j_own(jrun *r, const char *at, size_t n) {
  jval v = j_str(r, at, n);
  v.s->own = J_OWN;
  return v;
}
jval j_copy(jrun *r, const jstr *s) {
  jval v = j_str(r, s->at, s->n);
  v.s->own = s->own;
  return v;
}
jval j_part(jrun *r, jval v, size_t from, size_t to) {
  jval part = j_like(j_str(r, v.s->at + from, to - from), v);
  part.s->own = own_from(v.s, from);
  return part;
}
jval j_like(jval v, jval of) { v.safe = of.safe; return v; }
bool j_same(const jstr *a, const jstr *b) { return a == b || (a->n == b->n && !memcmp(a->at, b->at, a->n)); }
bool j_is(const jstr *s, const char *text) { return s->n == strlen(text) && !memcmp(s->at, text, s->n); }

size_t j_chars(jrun *r, jstr *s) {
  if (s->chars != SIZE_MAX) return s->chars;
  size_t n = 0;
  for (size_t i = 0; i < s->n; i++) n += ((unsigned char)s->at[i] & 0xC0) != 0x80;
  jinja_charge(r, s->n / 16);
  return s->chars = n;
}

size_t j_offset(jrun *r, jstr *s, size_t chars) {
  if (j_chars(r, s) == s->n) return chars;
  size_t i = 0;
  while (chars && i < s->n) {
    i++;
    while (i < s->n && ((unsigned char)s->at[i] & 0xC0) == 0x80) i++;
    chars--;
  }
  jinja_charge(r, i / 4);
  return i;
}

// The marks of authors of a, which fills the buffer, and b, which follows it.
static const uint8_t *own_of_both(jrun *r, jbuf *buf, const jstr *a, const jstr *b) {
  if (a->own == b->own && (!a->own || a->own == J_OWN)) return a->own;
  if (!buf->own) {
    buf->own = jinja_alloc(r, buf->cap);
    put_own(buf->own, a);
    jinja_charge(r, a->n / 16);
  }
  put_own(buf->own + a->n, b);
  return buf->own;
}

// Appends in place if a's bytes are the last ones of a buffer with room. Otherwise the result is new, and a long one
// gets a buffer with spare room.
jval j_concat(jrun *r, jval a, jval b) {
  if (!a.s->n) return b;
  if (!b.s->n) return a;
  size_t n = a.s->n + b.s->n;
  jbuf *buf = a.s->buf;
  jinja_charge(r, b.s->n / 16);
  if (!buf || a.s->at + a.s->n != buf->at + buf->used || buf->cap - buf->used < b.s->n) {
    size_t cap = n < 128 ? n : n * 2;
    jinja_charge(r, a.s->n / 16);
    buf = jinja_alloc(r, sizeof *buf);
    buf->at = jinja_alloc(r, cap);
    buf->cap = cap;
    memcpy(buf->at, a.s->at, a.s->n);
    buf->used = a.s->n;
    const uint8_t *own = a.s->own;
    a.s = str_at(r, buf->at, a.s->n);
    a.s->own = own;
  }
  memcpy(buf->at + buf->used, b.s->at, b.s->n);
  jval v = {.type = J_STR, .s = str_at(r, a.s->at, n)};
  v.s->own = own_of_both(r, buf, a.s, b.s);
  buf->used += b.s->n;
  v.s->buf = buf;
  return v;
}

jval j_undef(jrun *r, const char *fmt, ...) {
  char text[400];
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  jval v = {.type = J_UNDEF, .u = jinja_alloc(r, sizeof(struct jundef))};
  char *copy = jinja_alloc(r, strlen(text) + 1);
  v.u->message = strcpy(copy, text);
  return v;
}

void j_use_undef(jrun *r, jval v) { jinja_fail(r, "%s", v.u->message); }

// ---- names ----------------------------------------------------------------------------------------------------------

struct jnames { const jstr **at; size_t n, cap; hash_key key; };   // a hash table, at most half full

static const jstr **name_place(const struct jnames *m, const char *at, size_t n) {
  size_t i = hash_keyed(m->key, at, n) & (m->cap - 1);
  while (m->at[i] && !(m->at[i]->n == n && !memcmp(m->at[i]->at, at, n))) i = (i + 1) & (m->cap - 1);
  return &m->at[i];
}

const jstr *j_intern(jrun *r, struct jnames **names, const char *at, size_t n) {
  struct jnames *m = *names;
  if (!m) {
    m = *names = jinja_alloc(r, sizeof *m);
    m->cap = 64;
    m->at = jinja_array(r, m->cap, sizeof *m->at);
    m->key = r->key;
  }
  const jstr **place = name_place(m, at, n);
  if (*place) return *place;
  if (m->n * 2 >= m->cap) {
    struct jnames more = {jinja_array(r, m->cap * 2, sizeof *m->at), m->n, m->cap * 2, m->key};
    for (size_t i = 0; i < m->cap; i++) if (m->at[i]) *name_place(&more, m->at[i]->at, m->at[i]->n) = m->at[i];
    *m = more;
    place = name_place(m, at, n);
  }
  m->n++;
  return *place = r->trusts ? j_own(r, at, n).s : j_new_str(r, at, n);
}

const jstr *j_known_name(const jinja *t, const char *name) { return *name_place(t->names, name, strlen(name)); }

// ---- lists and dicts ------------------------------------------------------------------------------------------------

jlist *j_list(jrun *r, size_t n_hint) {
  jlist *l = jinja_alloc(r, sizeof *l);
  if (n_hint) l->at = jinja_array(r, n_hint, sizeof *l->at);
  l->cap = n_hint;
  return l;
}

void j_push(jrun *r, jlist *l, jval v) { jinja_charge(r, 1); jpush(r, l, v); }

jval j_pair(jrun *r, jval a, jval b) {
  jlist *l = j_list(r, 2);
  j_push(r, l, a);
  j_push(r, l, b);
  return j_of_tuple(l);
}

jdict *j_dict(jrun *r) { return jinja_alloc(r, sizeof(jdict)); }

static uint64_t hash_number(const jrun *r, uint64_t x, uint64_t what) {
  return hash_keyed(r->key, (const uint64_t[]){x, what}, 16);
}

// Equal values have equal hashes: 1, 1.0 and True are one key.
static uint64_t hash(jrun *r, jval v) {
  switch (v.type) {
    case J_STR: jinja_charge(r, v.s->n / 16); return hash_keyed(r->key, v.s->at, v.s->n);
    case J_BOOL: case J_INT: return hash_number(r, (uint64_t)j_whole(v), 2);
    case J_FLOAT: {
      if (v.f >= -9.2e18 && v.f <= 9.2e18 && v.f == (double)(int64_t)v.f)
        return hash_number(r, (uint64_t)(int64_t)v.f, 2);
      uint64_t bits;
      memcpy(&bits, &v.f, 8);
      return hash_number(r, bits, 3);
    }
    case J_TUPLE: {
      uint64_t h = 4;
      jinja_enter(r);
      for (size_t i = 0; i < v.l->n; i++) { jinja_charge(r, 1); h = hash_number(r, hash(r, v.l->at[i]), h); }
      jinja_leave(r);
      return h;
    }
    case J_LIST: case J_DICT: jinja_fail(r, "unhashable type: '%s'", j_type_name(v));
    case J_UNDEF: case J_NONE: return v.type;
    default: return hash_u64((uint64_t)(uintptr_t)v.d, 5);
  }
}

// The index of the entry with this key, or SIZE_MAX; *slot: the position of its number in the table, or a free one.
static size_t find_entry(jrun *r, const jdict *d, jval key, uint64_t h, size_t *slot) {
  if (!d->n_slots) {
    for (size_t i = 0; i < d->n; i++) if (d->at[i].hash == h && j_eq(r, d->at[i].key, key)) return i;
    return SIZE_MAX;
  }
  size_t i = h & (d->n_slots - 1);
  for (; d->slot[i]; i = (i + 1) & (d->n_slots - 1)) {
    struct jentry *e = &d->at[d->slot[i] - 1];
    jinja_charge(r, 1);
    if (e->hash == h && j_eq(r, e->key, key)) { *slot = i; return d->slot[i] - 1; }
  }
  *slot = i;
  return SIZE_MAX;
}

static void index_dict(jrun *r, jdict *d, size_t n_slots) {
  d->n_slots = n_slots;
  d->slot = jinja_array(r, n_slots, sizeof *d->slot);
  jinja_charge(r, d->n);
  for (size_t k = 0; k < d->n; k++) {
    size_t i = d->at[k].hash & (n_slots - 1);
    while (d->slot[i]) i = (i + 1) & (n_slots - 1);
    d->slot[i] = (uint32_t)k + 1;
  }
}

void j_dict_set(jrun *r, jdict *d, jval key, jval v) {
  uint64_t h = hash(r, key);
  size_t slot = 0, i = find_entry(r, d, key, h, &slot);
  jinja_charge(r, 1);
  if (i != SIZE_MAX) { d->at[i].val = v; return; }
  struct jentry e = {key, v, h};
  jpush(r, d, e);
  if (d->n_slots && d->n * 2 <= d->n_slots) d->slot[slot] = (uint32_t)d->n;
  else if (d->n > 8) index_dict(r, d, d->n_slots ? d->n_slots * 2 : 32);
}

bool j_dict_get(jrun *r, const jdict *d, jval key, jval *out) {
  size_t slot, i = find_entry(r, d, key, hash(r, key), &slot);
  if (i == SIZE_MAX) return false;
  *out = d->at[i].val;
  return true;
}

bool j_dict_get_text(jrun *r, const jdict *d, const char *key, size_t n, jval *out) {
  jstr s = {.at = key, .n = n, .chars = SIZE_MAX};
  return j_dict_get(r, d, (jval){.type = J_STR, .s = &s}, out);
}

bool j_dict_remove(jrun *r, jdict *d, jval key, jval *out) {
  size_t slot, i = find_entry(r, d, key, hash(r, key), &slot);
  if (i == SIZE_MAX) return false;
  *out = d->at[i].val;
  memmove(d->at + i, d->at + i + 1, (--d->n - i) * sizeof *d->at);
  jinja_charge(r, d->n - i);
  if (d->n_slots) index_dict(r, d, d->n_slots);
  return true;
}

// ---- properties of values -------------------------------------------------------------------------------------------

const char *j_type_name(jval v) {
  switch (v.type) {
    case J_UNDEF: case J_ABSENT: return "Undefined";
    case J_NONE: return "NoneType";
    case J_BOOL: return "bool";
    case J_INT: return "int";
    case J_FLOAT: return "float";
    case J_STR: return v.safe ? "Markup" : "str";
    case J_LIST: return "list";
    case J_TUPLE: return "tuple";
    case J_DICT: return "dict";
    case J_VIEW: return v.what == 'k' ? "dict_keys" : v.what == 'v' ? "dict_values" : "dict_items";
    case J_RANGE: return "range";
    case J_ITER: return "generator";
    case J_FUNC: return "function";
    case J_METHOD: return "builtin_function_or_method";
    case J_MACRO: return "Macro";
    case J_NS: return "Namespace";
    case J_LOOP: return "LoopContext";
    case J_JOINER: return "Joiner";
    default: return "Cycler";
  }
}

int64_t j_len(jrun *r, jval v) {
  switch (v.type) {
    case J_UNDEF: return 0;
    case J_STR: return (int64_t)j_chars(r, v.s);
    case J_LIST: case J_TUPLE: return (int64_t)v.l->n;
    case J_DICT: case J_VIEW: return (int64_t)v.d->n;
    case J_RANGE: return v.r->n;
    default: return -1;
  }
}

// Computed modulo 2^64: i steps may exceed 63 bits although the item does not.
int64_t j_range_at(const struct jrange *g, int64_t i) {
  return (int64_t)((uint64_t)g->start + (uint64_t)i * (uint64_t)g->step);
}

bool j_true(jrun *r, jval v) {
  switch (v.type) {
    case J_UNDEF: case J_NONE: case J_ABSENT: return false;
    case J_BOOL: return v.b;
    case J_INT: return v.i != 0;
    case J_FLOAT: return v.f != 0;
    case J_STR: return v.s->n != 0;
    default: return j_len(r, v) != 0;
  }
}

static bool same_whole_float(jval a, jval b, long double *x, long double *y) {
  if (!j_is_num(a) || !j_is_num(b)) return false;
  // exact: a long double holds any 64-bit integer
  *x = a.type == J_FLOAT ? (long double)a.f : (long double)j_whole(a);
  *y = b.type == J_FLOAT ? (long double)b.f : (long double)j_whole(b);
  return true;
}

static bool lists_equal(jrun *r, const jlist *a, const jlist *b) {
  if (a->n != b->n) return false;
  for (size_t i = 0; i < a->n; i++) if (!j_eq(r, a->at[i], b->at[i])) return false;
  return true;
}

static bool dicts_equal(jrun *r, const jdict *a, const jdict *b) {
  if (a->n != b->n) return false;
  for (size_t i = 0; i < a->n; i++) {
    jval other;
    if (!j_dict_get(r, b, a->at[i].key, &other) || !j_eq(r, a->at[i].val, other)) return false;
  }
  return true;
}

bool j_eq(jrun *r, jval a, jval b) {
  long double x, y;
  jinja_charge(r, 1);
  if (same_whole_float(a, b, &x, &y)) return j_is_whole(a) && j_is_whole(b) ? j_whole(a) == j_whole(b) : x == y;
  if (a.type != b.type) return false;
  bool same = false;
  jinja_enter(r);
  switch (a.type) {
    case J_UNDEF: case J_NONE: case J_ABSENT: same = true; break;
    case J_STR: jinja_charge(r, a.s->n / 16); same = j_same(a.s, b.s); break;
    case J_LIST: case J_TUPLE: same = a.l == b.l || lists_equal(r, a.l, b.l); break;
    case J_DICT: same = a.d == b.d || dicts_equal(r, a.d, b.d); break;
    case J_VIEW: same = a.what == b.what && a.d == b.d; break;
    case J_RANGE:
      same = a.r->n == b.r->n && (a.r->n == 0 || (a.r->start == b.r->start && (a.r->n == 1 || a.r->step == b.r->step)));
      break;
    default: same = a.d == b.d; break;
  }
  jinja_leave(r);
  return same;
}

bool j_less(jrun *r, const char *op, jval a, jval b, bool or_equal) {
  long double x, y;
  jinja_charge(r, 1);
  if (a.type == J_UNDEF) j_use_undef(r, a);
  if (b.type == J_UNDEF) j_use_undef(r, b);
  if (j_is_whole(a) && j_is_whole(b)) return or_equal ? j_whole(a) <= j_whole(b) : j_whole(a) < j_whole(b);
  if (same_whole_float(a, b, &x, &y)) return or_equal ? x <= y : x < y;
  if (a.type == J_STR && b.type == J_STR) {   // the order of UTF-8 bytes is the order of code points
    size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
    jinja_charge(r, n / 16);
    int c = memcmp(a.s->at, b.s->at, n);
    if (c) return c < 0;
    return or_equal ? a.s->n <= b.s->n : a.s->n < b.s->n;
  }
  if (a.type != b.type || (a.type != J_LIST && a.type != J_TUPLE))
    jinja_fail(r, "'%s' not supported between instances of '%s' and '%s'", op, j_type_name(a), j_type_name(b));
  jinja_enter(r);
  size_t i = 0, n = a.l->n < b.l->n ? a.l->n : b.l->n;
  while (i < n && j_eq(r, a.l->at[i], b.l->at[i])) i++;
  bool less = i < n ? j_less(r, op, a.l->at[i], b.l->at[i], or_equal) : or_equal ? a.l->n <= b.l->n : a.l->n < b.l->n;
  jinja_leave(r);
  return less;
}

bool j_in(jrun *r, jval item, jval in) {
  jval unused;
  if (in.type == J_STR) {
    if (item.type == J_UNDEF)
      jinja_fail(r, "'in <string>' requires string as left operand, not Undefined (%s)", item.u->message);
    if (item.type != J_STR) jinja_fail(r, "'in <string>' requires string as left operand, not %s", j_type_name(item));
    jinja_charge(r, in.s->n / 4);
    return !item.s->n || memmem(in.s->at, in.s->n, item.s->at, item.s->n);
  }
  if (in.type == J_DICT || (in.type == J_VIEW && in.what == 'k')) return j_dict_get(r, in.d, item, &unused);
  if (in.type == J_ITER) {
    while (in.it->at < in.it->items->n) if (j_eq(r, in.it->items->at[in.it->at++], item)) return true;
    return false;
  }
  if (!j_iterable(in)) jinja_fail(r, "argument of type '%s' is not iterable", j_type_name(in));
  jlist *l = j_items(r, in);
  for (size_t i = 0; i < l->n; i++) if (j_eq(r, l->at[i], item)) return true;
  return false;
}

// ---- iteration ------------------------------------------------------------------------------------------------------

bool j_iterable(jval v) {
  return v.type == J_UNDEF || (v.type >= J_STR && v.type <= J_ITER) || v.type == J_LOOP;
}

jval j_iter(jrun *r, const char *kind, jlist *items) {
  jval v = {.type = J_ITER, .it = jinja_alloc(r, sizeof(struct jiter))};
  v.it->kind = kind;
  v.it->items = items;
  return v;
}

jval j_view_item(jrun *r, jval view, size_t i) {
  struct jentry *e = &view.d->at[i];
  return view.what == 'v' ? e->val : view.what == 'i' ? j_pair(r, e->key, e->val) : e->key;
}

jlist *j_items(jrun *r, jval v) {
  jlist *l;
  switch (v.type) {
    case J_LIST: case J_TUPLE: jinja_charge(r, 1); return v.l;
    case J_UNDEF: return j_list(r, 0);
    case J_STR:
      l = j_list(r, j_chars(r, v.s));
      for (size_t i = 0; i < v.s->n;) {
        size_t len = (size_t)utf8_next(v.s->at + i, v.s->n - i);
        jval c = {.type = J_STR, .s = str_at(r, v.s->at + i, len)};
        c.s->own = own_from(v.s, i);
        j_push(r, l, c);
        i += len;
      }
      return l;
    case J_DICT: v.what = 'k'; // fall through
    case J_VIEW:
      l = j_list(r, v.d->n);
      for (size_t i = 0; i < v.d->n; i++) j_push(r, l, j_view_item(r, v, i));
      return l;
    case J_RANGE:
      l = j_list(r, (size_t)v.r->n);
      for (int64_t i = 0; i < v.r->n; i++) j_push(r, l, j_int(j_range_at(v.r, i)));
      return l;
    case J_ITER:
      l = j_list(r, 0);
      while (v.it->at < v.it->items->n) j_push(r, l, v.it->items->at[v.it->at++]);
      return l;
    default: jinja_fail(r, "'%s' object is not iterable", j_type_name(v));
  }
}

static void merge(jrun *r, jval *k, jval *v, jval *tk, jval *tv, size_t n, bool reverse) {
  if (n < 2) return;
  size_t half = n / 2, i = 0, j = half, o = 0;
  merge(r, k, v, tk, tv, half, reverse);
  merge(r, k + half, v + half, tk, tv, n - half, reverse);
  while (i < half && j < n) {
    bool right = reverse ? j_less(r, "<", k[i], k[j], false) : j_less(r, "<", k[j], k[i], false);
    size_t from = right ? j++ : i++;
    tk[o] = k[from];
    tv[o++] = v[from];
  }
  for (; i < half; i++, o++) { tk[o] = k[i]; tv[o] = v[i]; }
  memcpy(k, tk, o * sizeof *k);
  memcpy(v, tv, o * sizeof *v);
}

void j_sort(jrun *r, jval *keys, jval *vals, size_t n, bool reverse) {
  merge(r, keys, vals, jinja_array(r, n, sizeof *keys), jinja_array(r, n, sizeof *vals), n, reverse);
}

// ---- printing -------------------------------------------------------------------------------------------------------

static void add_repr_text(jrun *r, str *s, const jstr *text) {
  bool single = memchr(text->at, '\'', text->n), twice = memchr(text->at, '"', text->n);
  char quote = single && !twice ? '"' : '\'';
  size_t next = 0;
  jinja_charge(r, text->n);
  str_addc(s, quote);
  for (size_t i = 0; i < text->n;) {
    int len = utf8_next(text->at + i, text->n - i);
    uint32_t c = utf8_code_point(text->at + i, len);
    size_t since = s->n;
    if (c == (unsigned char)quote || c == '\\') { str_addc(s, '\\'); str_addc(s, (char)c); }
    else if (c == '\n') str_add(s, "\\n");
    else if (c == '\r') str_add(s, "\\r");
    else if (c == '\t') str_add(s, "\\t");
    else if (c >= ' ' && c < 127) str_addc(s, (char)c);
    else if (j_is_printable(c)) str_addn(s, text->at + i, (size_t)len);
    else {
      str_addf(s, c < 256 ? "\\x%02x" : c < 65536 ? "\\u%04x" : "\\U%08x", (unsigned)c);
      jinja_charge(r, 8);
    }
    j_stands_for(s, since, text, i, i + (size_t)len);
    i += (size_t)len;
    j_watch(r, s, &next);
  }
  str_addc(s, quote);
}

// A container inside itself is printed as dots.
struct jprinting { const void *at; struct jprinting *up; };

static bool printing(jrun *r, const void *at) {
  uint64_t n = 0;
  for (struct jprinting *p = r->printing; p; p = p->up, n++) if (p->at == at) return true;
  jinja_charge(r, n / 8);
  return false;
}

static void add_items(jrun *r, str *s, const jlist *l, char open, char close) {
  str_addc(s, open);
  for (size_t i = 0; i < l->n; i++) {
    if (i) str_add(s, ", ");
    j_add_repr(r, s, l->at[i]);
  }
  if (open == '(' && l->n == 1) str_addc(s, ',');
  str_addc(s, close);
}

static void add_repr_dict(jrun *r, str *s, const jdict *d) {
  str_addc(s, '{');
  for (size_t i = 0; i < d->n; i++) {
    if (i) str_add(s, ", ");
    j_add_repr(r, s, d->at[i].key);
    str_add(s, ": ");
    j_add_repr(r, s, d->at[i].val);
  }
  str_addc(s, '}');
}

void j_add_repr(jrun *r, str *s, jval v) {
  bool container = v.type == J_LIST || v.type == J_TUPLE || v.type == J_DICT || v.type == J_NS;
  struct jprinting here = {v.d, r->printing};
  jinja_charge(r, 1);
  j_guard(r, s);
  if (container && printing(r, v.d)) {
    str_add(s, v.type == J_LIST    ? "[...]"
               : v.type == J_TUPLE ? "(...)"
               : v.type == J_DICT  ? "{...}"
                                   : "<Namespace {...}>");
    return;
  }
  jinja_enter(r);
  if (container) r->printing = &here;
  switch (v.type) {
    case J_UNDEF: case J_ABSENT: str_add(s, "Undefined"); break;
    case J_NONE: str_add(s, "None"); break;
    case J_BOOL: str_add(s, v.b ? "True" : "False"); break;
    case J_INT: jinja_charge(r, 6); str_addf(s, "%lld", (long long)v.i); break;
    case J_FLOAT: j_add_float(r, s, v.f); break;
    case J_STR:
      if (v.safe) str_add(s, "Markup(");
      add_repr_text(r, s, v.s);
      if (v.safe) str_addc(s, ')');
      break;
    case J_LIST: add_items(r, s, v.l, '[', ']'); break;
    case J_TUPLE: add_items(r, s, v.l, '(', ')'); break;
    case J_DICT: add_repr_dict(r, s, v.d); break;
    case J_VIEW:
      str_addf(s, "%s(", j_type_name(v));
      add_items(r, s, j_items(r, v), '[', ']');
      str_addc(s, ')');
      break;
    case J_RANGE:
      str_addf(s, "range(%lld, %lld", (long long)v.r->start, (long long)v.r->stop);
      if (v.r->step != 1) str_addf(s, ", %lld", (long long)v.r->step);
      str_addc(s, ')');
      break;
    case J_NS: str_add(s, "<Namespace "); add_repr_dict(r, s, v.d); str_addc(s, '>'); break;
    case J_MACRO: str_addf(s, "<Macro '%.*s'>", (int)v.macro->node->name->n, v.macro->node->name->at); break;
    case J_ITER: str_addf(s, "<%s object>", v.it->kind); break;
    case J_FUNC: str_addf(s, "<function %s>", v.fn->name); break;
    case J_METHOD: str_addf(s, "<built-in method %s of %s object>", v.m->row->name, j_type_name(v.m->self)); break;
    case J_LOOP: str_addf(s, "<LoopContext %zu>", v.loop->index + 1); break;
    default: str_addf(s, "<%s object>", j_type_name(v)); break;
  }
  if (container) r->printing = here.up;
  jinja_leave(r);
}

void j_add(jrun *r, str *s, jval v) {
  if (v.type == J_STR) { jinja_charge(r, v.s->n / 16); j_add_part(r, s, v.s, 0, v.s->n); j_guard(r, s); }
  else if (v.type != J_UNDEF) j_add_repr(r, s, v);
}

jval j_to_str(jrun *r, jval v) {
  if (v.type == J_STR) return v;
  str *s = j_scratch(r);
  j_add(r, s, v);
  return j_scratch_end(r);
}

jval j_escape(jrun *r, jval v) {
  if (v.type == J_STR && v.safe) return v;
  jval text = j_to_str(r, v);
  str *s = j_scratch(r);
  size_t next = 0;
  jinja_charge(r, text.s->n / 2);
  for (size_t i = 0; i < text.s->n; i++) {
    char c = text.s->at[i];
    const char *as = c == '&'    ? "&amp;"
                     : c == '<'  ? "&lt;"
                     : c == '>'  ? "&gt;"
                     : c == '\'' ? "&#39;"
                     : c == '"'  ? "&#34;"
                                 : NULL;
    size_t since = s->n;
    if (as) str_add(s, as);
    else str_addc(s, c);
    j_stands_for(s, since, text.s, i, i + 1);
    j_watch(r, s, &next);
  }
  text = j_scratch_end(r);
  text.safe = true;
  return text;
}
