// Reads and writes JSON. Output follows Python's json.dumps: ", " and ": " unless there is an indent; non-ASCII text is
// not escaped.
#include "chat/jinja_impl.h"
#include "base/json.h"
#include "text/utf8.h"
#include <math.h>

// ---- reading --------------------------------------------------------------------------------------------------------

// Keys and roles repeat, so they are interned.
static jval of_json_text(jrun *r, const char *at, size_t n) {
  enum { SHORT = 16, MOST = 4096 };
  if (r->trusts) return j_own(r, at, n);
  if (n > SHORT || r->n_shared == MOST) return j_str(r, at, n);
  size_t before = arena_bytes(r->mem);
  jval v = {.type = J_STR, .s = (jstr *)(uintptr_t)j_intern(r, &r->shared, at, n)};
  r->n_shared += arena_bytes(r->mem) != before;
  return v;
}

jval j_of_json(jrun *r, const json_t *j) {
  jinja_charge(r, 1);
  jinja_enter(r);
  jval v = j_none();
  switch (json_typeof(j)) {
    case JSON_NULL: break;
    case JSON_TRUE: case JSON_FALSE: v = j_bool(json_is_true(j)); break;
    case JSON_INTEGER: v = j_int(json_integer_value(j)); break;
    case JSON_REAL: v = j_float(json_real_value(j)); break;
    case JSON_STRING: v = of_json_text(r, json_string_value(j), json_string_length(j)); break;
    case JSON_ARRAY: {
      jlist *l = j_list(r, json_array_size(j));
      for (size_t i = 0; i < json_array_size(j); i++) j_push(r, l, j_of_json(r, json_array_get(j, i)));
      v = j_of_list(l);
      break;
    }
    case JSON_OBJECT: {
      jdict *d = j_dict(r);
      d->cap = json_object_size(j);
      if (d->cap) d->at = jinja_array(r, d->cap, sizeof *d->at);
      json_t *unshared = (json_t *)(uintptr_t)j;   // jansson's iterators take no const object, but change nothing
      for (void *it = json_object_iter(unshared); it; it = json_object_iter_next(unshared, it))
        j_dict_set(r, d, of_json_text(r, json_object_iter_key(it), json_object_iter_key_len(it)),
                   j_of_json(r, json_object_iter_value(it)));
      v = j_of_dict(d);
      break;
    }
  }
  jinja_leave(r);
  return v;
}

struct to_list { jrun *r; jlist *l; };

// A known role is one of a few words, and templates make control tokens from it: '<|' + role + '|>'. So it counts as
// written by the template.
static void trust_role(jrun *r, jval message) {
  jval role;
  if (message.type != J_DICT || !j_dict_get_text(r, message.d, "role", 4, &role) || role.type != J_STR) return;
  for (const char *const *word = r->words; word && *word; word++)
    if (j_is(role.s, *word)) {
      j_dict_set(r, message.d, j_text(r, "role"), j_own(r, *word, strlen(*word)));
      return;
    }
}

static int add_element(void *ctx, size_t i, json_t *element, size_t cost) {
  const struct to_list *x = ctx;
  (void)i;
  x->r->held = element;                    // freed also if the conversion fails
  x->r->beside += cost;
  jval v = j_of_json(x->r, element);
  trust_role(x->r, v);
  j_push(x->r, x->l, v);
  x->r->beside -= cost;
  x->r->held = NULL;
  json_decref(element);
  return 0;
}

jval j_of_json_list(jrun *r, const char *text, size_t n) {
  struct to_list x = {r, j_list(r, 0)};
  error why = {0};
  if (json_each(text, n, add_element, &x, &why)) jinja_fail(r, "%s", why.text);
  return j_of_list(x.l);
}

jval j_from_json(jrun *r, jval text) {
  error e = {0};
  if (text.s->n > JINJA_MAX_SOURCE) jinja_fail(r, "from_json: a text of %zu bytes", text.s->n);
  jinja_charge(r, 4 * text.s->n);
  size_t cost = json_cost(text.s->at, text.s->n);
  r->beside += cost;
  jinja_room(r, 0);
  // held: freed also if the conversion fails
  r->held = json_parse(text.s->at, text.s->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
  if (!r->held) jinja_fail(r, "from_json: %s", e.text);
  bool before = r->trusts;
  r->trusts = j_is_own(text.s, 0, text.s->n);
  jval v = j_of_json(r, r->held);
  r->trusts = before;
  json_decref(r->held);
  r->held = NULL;
  r->beside -= cost;
  return v;
}

// ---- writing --------------------------------------------------------------------------------------------------------

struct json_out {
  jrun *r;
  str *s;
  bool ascii, sorted;
  const char *indent, *item, *key;
  size_t n_indent, n_item, n_key;
  bool broken;
  int level;
};

static void add_string(struct json_out *o, const jstr *text) {
  static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
  size_t next = 0;
  jinja_charge(o->r, text->n);
  str_addc(o->s, '"');
  for (size_t i = 0; i < text->n;) {
    unsigned char c = (unsigned char)text->at[i];
    const char *known = c ? strchr(from, c) : NULL;
    int len = utf8_next(text->at + i, text->n - i);
    size_t since = o->s->n;
    if (known) { str_addc(o->s, '\\'); str_addc(o->s, to[known - from]); }
    else if (c < 32) { str_addf(o->s, "\\u%04x", c); jinja_charge(o->r, 8); }
    else if (!o->ascii || c < 127) str_addn(o->s, text->at + i, (size_t)len);
    else {
      uint32_t cp = utf8_code_point(text->at + i, len);
      jinja_charge(o->r, 8);
      if (cp > 0xFFFF)
        str_addf(o->s, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (cp >> 10)), (unsigned)(0xDC00 + (cp & 0x3FF)));
      else str_addf(o->s, "\\u%04x", (unsigned)cp);
    }
    j_stands_for(o->s, since, text, i, i + (size_t)len);
    i += (size_t)len;
    j_watch(o->r, o->s, &next);
  }
  str_addc(o->s, '"');
}

static void add_newline(struct json_out *o, int level) {
  if (!o->broken) return;
  str_addc(o->s, '\n');
  for (int i = 0; i < level; i++) { str_addn(o->s, o->indent, o->n_indent); j_guard(o->r, o->s); }
  jinja_charge(o->r, (uint64_t)level * (o->n_indent / 16 + 1));
}

static void add_float(jrun *r, str *s, double f) {
  if (isnan(f)) str_add(s, "NaN");
  else if (isinf(f)) str_add(s, f < 0 ? "-Infinity" : "Infinity");
  else j_add_float(r, s, f);
}

static void add_json(struct json_out *o, jval v);

static void add_json_key(struct json_out *o, jval k) {
  if (k.type == J_STR) { add_string(o, k.s); return; }
  if (k.type != J_NONE && !j_is_num(k))
    jinja_fail(o->r, "keys must be str, int, float, bool or None, not %s", j_type_name(k));
  str_addc(o->s, '"');
  add_json(o, k);
  str_addc(o->s, '"');
}

static void add_dict(struct json_out *o, const jdict *d) {
  jrun *r = o->r;
  jval *keys = jinja_array(r, d->n, sizeof *keys), *vals = jinja_array(r, d->n, sizeof *vals);
  for (size_t i = 0; i < d->n; i++) { keys[i] = d->at[i].key; vals[i] = d->at[i].val; }
  if (o->sorted) j_sort(r, keys, vals, d->n, false);
  str_addc(o->s, '{');
  o->level++;
  for (size_t i = 0; i < d->n; i++) {
    if (i) str_addn(o->s, o->item, o->n_item);
    add_newline(o, o->level);
    add_json_key(o, keys[i]);
    str_addn(o->s, o->key, o->n_key);
    add_json(o, vals[i]);
  }
  o->level--;
  if (d->n) add_newline(o, o->level);
  str_addc(o->s, '}');
}

static void add_json(struct json_out *o, jval v) {
  jinja_charge(o->r, 1);
  j_guard(o->r, o->s);
  jinja_enter(o->r);
  switch (v.type) {
    case J_NONE: str_add(o->s, "null"); break;
    case J_BOOL: str_add(o->s, v.b ? "true" : "false"); break;
    case J_INT: jinja_charge(o->r, 6); str_addf(o->s, "%lld", (long long)v.i); break;
    case J_FLOAT: add_float(o->r, o->s, v.f); break;
    case J_STR: add_string(o, v.s); break;
    case J_LIST: case J_TUPLE:
      str_addc(o->s, '[');
      o->level++;
      for (size_t i = 0; i < v.l->n; i++) {
        if (i) str_addn(o->s, o->item, o->n_item);
        add_newline(o, o->level);
        add_json(o, v.l->at[i]);
      }
      o->level--;
      if (v.l->n) add_newline(o, o->level);
      str_addc(o->s, ']');
      break;
    case J_DICT: add_dict(o, v.d); break;
    case J_UNDEF: jinja_fail(o->r, "Object of type Undefined is not JSON serializable (%s)", v.u->message);
    default: jinja_fail(o->r, "Object of type %s is not JSON serializable", j_type_name(v));
  }
  jinja_leave(o->r);
}

jval j_to_json(jrun *r, jval v, jval ensure_ascii, jval indent, jval separators, jval sort_keys) {
  struct json_out o = {.r = r, .item = ", ", .n_item = 2, .key = ": ", .n_key = 2};
  o.ascii = j_true(r, ensure_ascii);
  o.sorted = j_true(r, sort_keys);
  if (indent.type == J_STR) {
    o.broken = true, o.indent = indent.s->at, o.n_indent = indent.s->n;
  } else if (indent.type != J_ABSENT && indent.type != J_NONE) {
    int64_t n = j_need_int(r, "indent of tojson", indent);
    if (n > 1000) jinja_fail(r, "tojson: an indent of %lld", (long long)n);
    char *blanks = jinja_alloc(r, (size_t)max_i64(n, 0) + 1);
    memset(blanks, ' ', (size_t)max_i64(n, 0));
    o.broken = true, o.indent = blanks, o.n_indent = (size_t)max_i64(n, 0);
  }
  if (o.broken) o.item = ",", o.n_item = 1;
  if (separators.type != J_ABSENT && separators.type != J_NONE) {
    if ((separators.type != J_LIST && separators.type != J_TUPLE) || separators.l->n != 2)
      jinja_fail(r, "separators of tojson: expected two texts");
    jval item = j_need_str(r, "separators of tojson", separators.l->at[0]),
         key = j_need_str(r, "separators of tojson", separators.l->at[1]);
    o.item = item.s->at, o.n_item = item.s->n;
    o.key = key.s->at, o.n_key = key.s->n;
  }
  o.s = j_scratch(r);
  add_json(&o, v);
  return j_scratch_end(r);
}
