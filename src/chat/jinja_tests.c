// Tests, which follow `is`.
#include "chat/jinja_impl.h"
#include "chat/jinja_text.h"

#define TEST(name) static bool name(jrun *r, jval v, const jval *arg)
#define IGNORE (void)r, (void)arg

TEST(is_defined) { IGNORE; return v.type != J_UNDEF; }
TEST(is_undefined) { IGNORE; return v.type == J_UNDEF; }
TEST(is_none) { IGNORE; return v.type == J_NONE; }
TEST(is_boolean) { IGNORE; return v.type == J_BOOL; }
TEST(is_true) { IGNORE; return v.type == J_BOOL && v.b; }
TEST(is_false) { IGNORE; return v.type == J_BOOL && !v.b; }
TEST(is_integer) { IGNORE; return v.type == J_INT; }
TEST(is_float) { IGNORE; return v.type == J_FLOAT; }
TEST(is_number) { IGNORE; return j_is_num(v); }
TEST(is_string) { IGNORE; return v.type == J_STR; }
TEST(is_mapping) { IGNORE; return v.type == J_DICT; }
TEST(is_sequence) {
  IGNORE;
  return v.type == J_STR || v.type == J_LIST || v.type == J_TUPLE || v.type == J_DICT || v.type == J_RANGE ||
         v.type == J_UNDEF;
}
TEST(is_iterable) { IGNORE; return j_iterable(v); }
TEST(is_callable) {
  IGNORE;
  return v.type == J_FUNC || v.type == J_METHOD || v.type == J_MACRO || v.type == J_LOOP || v.type == J_JOINER ||
         v.type == J_UNDEF;
}
TEST(is_escaped) { IGNORE; return v.type == J_STR && v.safe; }
TEST(is_lower) { (void)arg; return j_str_islower(r, j_to_str(r, v).s); }
TEST(is_upper) { (void)arg; return j_str_isupper(r, j_to_str(r, v).s); }
TEST(is_odd) { (void)arg; return j_eq(r, j_binary(r, '%', v, j_int(2)), j_int(1)); }
TEST(is_even) { (void)arg; return j_eq(r, j_binary(r, '%', v, j_int(2)), j_int(0)); }
TEST(is_divisibleby) { return j_eq(r, j_binary(r, '%', v, arg[0]), j_int(0)); }
TEST(is_eq) { return j_eq(r, v, arg[0]); }
TEST(is_ne) { return !j_eq(r, v, arg[0]); }
TEST(is_lt) { return j_less(r, "<", v, arg[0], false); }
TEST(is_le) { return j_less(r, "<=", v, arg[0], true); }
TEST(is_gt) { return j_less(r, ">", arg[0], v, false); }
TEST(is_ge) { return j_less(r, ">=", arg[0], v, true); }
TEST(is_in) { return j_in(r, v, arg[0]); }
TEST(is_filter) { (void)arg; (void)r; return v.type == J_STR && j_filter(v.s->at, v.s->n); }
TEST(is_test) { (void)arg; (void)r; return v.type == J_STR && j_test(v.s->at, v.s->n); }

// Python's `is`: identity of objects. Equal small values of one type count as identical.
TEST(is_sameas) {
  if (v.type != arg[0].type) return false;
  if (v.type <= J_STR) return j_eq(r, v, arg[0]);
  return v.d == arg[0].d;
}

const struct jtest_row *j_test(const char *name, size_t n) {
  static const struct jtest_row tests[] = {
    {"defined", is_defined, 0},
    {"undefined", is_undefined, 0},
    {"none", is_none, 0},
    {"boolean", is_boolean, 0},
    {"true", is_true, 0},
    {"false", is_false, 0},
    {"integer", is_integer, 0},
    {"float", is_float, 0},
    {"number", is_number, 0},
    {"string", is_string, 0},
    {"mapping", is_mapping, 0},
    {"sequence", is_sequence, 0},
    {"iterable", is_iterable, 0},
    {"callable", is_callable, 0},
    {"escaped", is_escaped, 0},
    {"lower", is_lower, 0},
    {"upper", is_upper, 0},
    {"odd", is_odd, 0},
    {"even", is_even, 0},
    {"divisibleby", is_divisibleby, 1},
    {"sameas", is_sameas, 1},
    {"in", is_in, 1},
    {"filter", is_filter, 0},
    {"test", is_test, 0},
    {"eq", is_eq, 1},
    {"equalto", is_eq, 1},
    {"==", is_eq, 1},
    {"ne", is_ne, 1},
    {"!=", is_ne, 1},
    {"lt", is_lt, 1},
    {"lessthan", is_lt, 1},
    {"<", is_lt, 1},
    {"le", is_le, 1},
    {"<=", is_le, 1},
    {"gt", is_gt, 1},
    {"greaterthan", is_gt, 1},
    {">", is_gt, 1},
    {"ge", is_ge, 1},
    {">=", is_ge, 1},
  };
  for (size_t i = 0; i < COUNT(tests); i++)
    if (strlen(tests[i].name) == n && !memcmp(tests[i].name, name, n)) return &tests[i];
  return NULL;
}

bool j_run_test(jrun *r, const struct jtest_row *row, jval v, const jargs *a) {
  jval arg = a->n ? a->pos[0] : a->n_kw ? a->kw[0].v : j_absent();
  if (a->n + a->n_kw != row->n_args)
    jinja_fail(r, "test '%s' takes %d argument(s), %zu given", row->name, row->n_args, a->n + a->n_kw);
  return row->call(r, v, &arg);
}
