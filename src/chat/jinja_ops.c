// Operators, attributes and items, by Python's rules: integer division rounds down, negative indices count from the
// end, and a missing attribute or item is an undefined value, which fails when it is used.
#include "chat/jinja_impl.h"
#include "text/utf8.h"
#include <math.h>

int64_t j_need_int(jrun *r, const char *what, jval v) {
  if (v.type == J_UNDEF) j_use_undef(r, v);
  if (!j_is_whole(v)) jinja_fail(r, "%s: expected an integer, not %s", what, j_type_name(v));
  return j_whole(v);
}

double j_need_num(jrun *r, const char *what, jval v) {
  if (v.type == J_UNDEF) j_use_undef(r, v);
  if (!j_is_num(v)) jinja_fail(r, "%s: expected a number, not %s", what, j_type_name(v));
  return v.type == J_FLOAT ? v.f : (double)j_whole(v);
}

jval j_need_str(jrun *r, const char *what, jval v) {
  if (v.type == J_UNDEF) j_use_undef(r, v);
  if (v.type != J_STR) jinja_fail(r, "%s: expected a string, not %s", what, j_type_name(v));
  return v;
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------

NORETURN static void too_large(jrun *r) { jinja_fail(r, "an integer does not fit 64 bits"); }

static int64_t whole_power(jrun *r, int64_t base, int64_t n) {
  int64_t v = 1;
  while (n) {
    if (n & 1 && !mul_i64(v, base, &v)) too_large(r);
    n >>= 1;
    if (n && !mul_i64(base, base, &base)) too_large(r);
  }
  return v;
}

static jval whole(jrun *r, int op, int64_t a, int64_t b) {
  int64_t v = 0;
  switch (op) {
    case '+': if (!add_i64(a, b, &v)) too_large(r); break;
    case '-': if (!sub_i64(a, b, &v)) too_large(r); break;
    case '*': if (!mul_i64(a, b, &v)) too_large(r); break;
    // the operands unchanged
    case '/': if (!b) jinja_fail(r, "division by zero"); return j_float((double)((long double)a / (long double)b));
    case 'f': case '%':
      if (!b) jinja_fail(r, "integer division or modulo by zero");
      if (b == -1) { if (op == '%') break; if (!sub_i64(0, a, &v)) too_large(r); break; }
      v = op == 'f' ? floordiv_i64(a, b) : floormod_i64(a, b);
      break;
    default:
      if (b < 0) {
        if (!a) jinja_fail(r, "0 cannot be raised to a negative power");
        return j_float(pow((double)a, (double)b));
      }
      v = whole_power(r, a, b);
  }
  return j_int(v);
}

static jval real(jrun *r, int op, double a, double b) {
  if (strchr("/f%", op) && b == 0) jinja_fail(r, "float division or modulo by zero");
  switch (op) {
    case '+': return j_float(a + b);
    case '-': return j_float(a - b);
    case '*': return j_float(a * b);
    case '/': return j_float(a / b);
    case 'f': case '%': {
      double mod = fmod(a, b), div = (a - mod) / b;
      if (mod != 0) { if ((b < 0) != (mod < 0)) { mod += b; div -= 1; } }
      else mod = copysign(0, b);
      if (op == '%') return j_float(mod);
      if (div == 0) return j_float(copysign(0, a / b));
      double down = floor(div);
      return j_float(div - down > .5 ? down + 1 : down);
    }
    default:
      if (a == 0 && b < 0) jinja_fail(r, "0.0 cannot be raised to a negative power");
      if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
        jinja_fail(r, "a negative number has no real power %g", b);
      if (isfinite(a) && isfinite(b) && !isfinite(pow(a, b))) jinja_fail(r, "numerical result out of range");
      return j_float(pow(a, b));
  }
}

// The marks of authors of a repeated text, n bytes long.
static const uint8_t *own_of_copies(jrun *r, const jstr *one, size_t n) {
  if (!one->own || one->own == J_OWN) return one->own;
  uint8_t *own = jinja_alloc(r, n);
  for (size_t i = 0; i < n; i += one->n) memcpy(own + i, one->own, one->n);
  jinja_charge(r, n / 16 + n / one->n);
  return own;
}

static jval repeat_value(jrun *r, jval v, int64_t times) {
  if (times < 0) times = 0;
  if (v.type == J_STR) {
    if (v.s->n == 0 || times == 0) return j_like(j_text(r, ""), v);
    if ((uint64_t)times > r->max.memory / v.s->n)
      jinja_fail(r, "a text of %zu bytes times %lld is too long", v.s->n, (long long)times);
    size_t n = v.s->n * (size_t)times;
    char *at = jinja_alloc(r, n + 1);
    jinja_charge(r, n / 16);
    memcpy(at, v.s->at, v.s->n);
    for (size_t done = v.s->n, more; done < n; done += more) {   // doubles the copied part each time
      more = done < n - done ? done : n - done;
      memcpy(at + done, at, more);
    }
    jstr *s = jinja_alloc(r, sizeof *s);
    *s = (jstr){.at = at, .n = n, .chars = SIZE_MAX, .own = own_of_copies(r, v.s, n)};
    return (jval){.type = J_STR, .safe = v.safe, .s = s};
  }
  uint64_t n = 0;
  if (!mul_u64((uint64_t)times, v.l->n, &n) || n > SIZE_MAX) n = SIZE_MAX;   // too large for any limit
  jlist *l = j_list(r, (size_t)n);
  for (int64_t t = 0; t < times && v.l->n; t++) for (size_t i = 0; i < v.l->n; i++) j_push(r, l, v.l->at[i]);
  return (jval){.type = v.type, .l = l};
}

static jval join_lists(jrun *r, jval a, jval b) {
  jlist *l = j_list(r, a.l->n + b.l->n);
  for (size_t i = 0; i < a.l->n; i++) j_push(r, l, a.l->at[i]);
  for (size_t i = 0; i < b.l->n; i++) j_push(r, l, b.l->at[i]);
  return (jval){.type = a.type, .l = l};
}

jval j_binary(jrun *r, int op, jval a, jval b) {
  if (a.type == J_UNDEF) j_use_undef(r, a);
  if (op == '%' && a.type == J_STR) return j_percent(r, a, b);
  if (b.type == J_UNDEF) j_use_undef(r, b);
  if (j_is_whole(a) && j_is_whole(b)) return whole(r, op, j_whole(a), j_whole(b));
  if (j_is_num(a) && j_is_num(b)) return real(r, op, j_need_num(r, "", a), j_need_num(r, "", b));
  bool lists = a.type == J_LIST || a.type == J_TUPLE;
  if (op == '+' && a.type == J_STR && b.type == J_STR) {
    if (!a.safe && !b.safe) return j_concat(r, a, b);
    jval v = j_concat(r, j_escape(r, a), j_escape(r, b));
    v.safe = true;
    return v;
  }
  if (op == '+' && lists && a.type == b.type) return join_lists(r, a, b);
  if (op == '*' && (a.type == J_STR || lists) && j_is_whole(b)) return repeat_value(r, a, j_whole(b));
  if (op == '*' && (b.type == J_STR || b.type == J_LIST || b.type == J_TUPLE) && j_is_whole(a))
    return repeat_value(r, b, j_whole(a));
  if (op == '+' && (a.type == J_STR || lists))
    jinja_fail(r, "can only concatenate %s (not \"%s\") to %s", j_type_name(a), j_type_name(b), j_type_name(a));
  char one[2] = {(char)op, 0};
  jinja_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'",
             op == 'f'   ? "//"
             : op == '^' ? "**"
                         : one,
             j_type_name(a), j_type_name(b));
}

// ---- attributes and items -------------------------------------------------------------------------------------------

static jval missing(jrun *r, jval v, const jstr *name) {
  const char *type = v.type == J_NONE ? "None" : j_type_name(v);
  int n = name->n > 100 ? 100 : (int)name->n;
  if (name->n > 1 && name->at[0] == '_' && name->at[1] == '_')
    return j_undef(r, "access to attribute '%.*s' of '%s' object is unsafe", n, name->at, type);
  return j_undef(r, "'%s%s' has no attribute '%.*s'", type, v.type == J_NONE ? "" : " object", n, name->at);
}

static bool macro_attr(jrun *r, const jnode *m, const jstr *name, jval *out) {
  if (j_is(name, "name")) { *out = j_copy(r, m->name); return true; }
  if (j_is(name, "caller")) { *out = j_bool(m->flag); return true; }
  if (j_is(name, "catch_kwargs")) { *out = j_bool(m->uses_kwargs); return true; }
  if (j_is(name, "catch_varargs")) { *out = j_bool(m->uses_varargs); return true; }
  if (!j_is(name, "arguments")) return false;
  jlist *l = j_list(r, m->named.n);
  for (size_t i = 0; i < m->named.n; i++) j_push(r, l, j_copy(r, m->named.at[i].name));
  *out = j_of_tuple(l);
  return true;
}

// What Python's getattr finds.
static bool own_attr(jrun *r, jval v, const jstr *name, jval *out) {
  switch (v.type) {
    case J_UNDEF: j_use_undef(r, v);
    case J_NS: return j_dict_get_text(r, v.d, name->at, name->n, out);
    case J_LOOP: *out = j_loop_attr(r, v.loop, name); return out->type != J_ABSENT;
    case J_MACRO: return macro_attr(r, v.macro->node, name, out);
    case J_TUPLE:
      if (v.what != 'g' || !(j_is(name, "grouper") || j_is(name, "list"))) break;
      *out = v.l->at[j_is(name, "list")];
      return true;
    case J_CYCLER:
      if (!j_is(name, "current")) break;
      *out = v.cycle->items->at[v.cycle->at];
      return true;
    case J_RANGE:
      if (j_is(name, "start")) { *out = j_int(v.r->start); return true; }
      if (j_is(name, "stop")) { *out = j_int(v.r->stop); return true; }
      if (j_is(name, "step")) { *out = j_int(v.r->step); return true; }
      break;
    default: break;
  }
  return j_method(r, v, name, out);
}

// What v[key] finds; a missing item is not an error.
static bool own_item(jrun *r, jval v, jval key, jval *out) {
  if (v.type == J_DICT) return key.type != J_LIST && key.type != J_DICT && j_dict_get(r, v.d, key, out);
  int64_t n = v.type == J_STR || v.type == J_LIST || v.type == J_TUPLE || v.type == J_RANGE ? j_len(r, v) : -1;
  if (n < 0 || !j_is_whole(key)) return false;
  int64_t i = j_whole(key);
  if (i < 0) i += n;
  if (i < 0 || i >= n) return false;
  if (v.type == J_RANGE) { *out = j_int(j_range_at(v.r, i)); return true; }
  if (v.type != J_STR) { *out = v.l->at[i]; return true; }
  size_t at = j_offset(r, v.s, (size_t)i);
  *out = j_part(r, v, at, at + (size_t)utf8_next(v.s->at + at, v.s->n - at));
  return true;
}

jval j_attr(jrun *r, jval v, const jstr *name) {
  jval out;
  if (own_attr(r, v, name, &out)) return out;
  if (v.type == J_DICT && j_dict_get_text(r, v.d, name->at, name->n, &out)) return out;
  return missing(r, v, name);
}

jval j_item(jrun *r, jval v, jval key) {
  jval out;
  if (v.type == J_UNDEF) j_use_undef(r, v);
  if (own_item(r, v, key, &out)) return out;
  if (key.type == J_STR) return own_attr(r, v, key.s, &out) ? out : missing(r, v, key.s);
  str *s = j_scratch(r);
  j_add_repr(r, s, key);
  out = j_undef(r, "%s object has no element %.100s", j_type_name(v), str_c(s));
  j_scratch_drop(r);
  return out;
}

// ---- slices ---------------------------------------------------------------------------------------------------------

static int64_t slice_bound(jrun *r, jval v, int64_t n, int64_t step, int64_t otherwise) {
  if (v.type == J_ABSENT || v.type == J_NONE) return otherwise;
  if (!j_is_whole(v)) {
    if (v.type == J_UNDEF) j_use_undef(r, v);
    jinja_fail(r, "slice indices must be integers or None");
  }
  int64_t i = j_whole(v);
  if (i < 0) { i = i < -n ? -1 : i + n; if (i < 0) i = step < 0 ? -1 : 0; }
  else if (i >= n) i = step < 0 ? n - 1 : n;
  return i;
}

static int64_t narrow(jrun *r, __int128 v) {
  if (v < INT64_MIN || v > INT64_MAX) too_large(r);
  return (int64_t)v;
}

// A slice of a range is a range; its ends and step need not be numbers of the original.
static jval part_of_range(jrun *r, const struct jrange *of, int64_t n, jval start, jval stop, int64_t step) {
  int64_t from = slice_bound(r, start, n, step, step < 0 ? n - 1 : 0),
          to = slice_bound(r, stop, n, step, step < 0 ? -1 : n);
  __int128 span = step > 0 ? (__int128)to - from : (__int128)from - to,
           by = step > 0 ? (__int128)step : -(__int128)step;
  struct jrange *made = jinja_alloc(r, sizeof *made);
  made->n = span > 0 ? (int64_t)((span + by - 1) / by) : 0;
  made->start = narrow(r, of->start + (__int128)from * of->step);
  made->stop = narrow(r, of->start + (__int128)to * of->step);
  made->step = narrow(r, (__int128)of->step * step);
  return (jval){.type = J_RANGE, .r = made};
}

jval j_slice(jrun *r, jval v, jval start, jval stop, jval by) {
  if (v.type == J_UNDEF) j_use_undef(r, v);
  // an index of a dict gives an undefined value, but a slice is an error of Python itself
  if (v.type == J_DICT) jinja_fail(r, "unhashable type: 'slice'");
  if (v.type != J_STR && v.type != J_LIST && v.type != J_TUPLE && v.type != J_RANGE)
    jinja_fail(r, "'%s' object is not subscriptable", j_type_name(v));
  int64_t n = j_len(r, v), step = by.type == J_ABSENT || by.type == J_NONE ? 1 : j_need_int(r, "a slice", by);
  if (!step) jinja_fail(r, "slice step cannot be zero");
  if (v.type == J_RANGE) return part_of_range(r, v.r, n, start, stop, step);
  if (step > n + 1) step = n + 1;
  if (step < -n - 1) step = -n - 1;
  int64_t from = slice_bound(r, start, n, step, step < 0 ? n - 1 : 0),
          to = slice_bound(r, stop, n, step, step < 0 ? -1 : n);
  if (v.type == J_STR && step == 1) {
    if (to < from) to = from;
    size_t a = j_offset(r, v.s, (size_t)from), b = j_offset(r, v.s, (size_t)to);
    return j_part(r, v, a, b);
  }
  jlist *l = j_items(r, v), *out = j_list(r, 0);
  for (int64_t i = from; step > 0 ? i < to : i > to; i += step) j_push(r, out, l->at[i]);
  if (v.type != J_STR) return (jval){.type = v.type, .l = out};
  str *s = j_scratch(r);
  for (size_t i = 0; i < out->n; i++) j_add(r, s, out->at[i]);
  return j_like(j_scratch_end(r), v);
}
