// The interpreter: evaluates expressions, executes statements, calls macros.
//
// Scopes are Jinja's: a loop, a macro, a call, and with, filter and set blocks each have their own, `if` has none;
// names set inside are not visible outside. A macro sees its defining scope as it is at the call. Output goes to the
// innermost capture: a macro's text, a block's text, or the prompt itself. Look next: jinja_ops.c, jinja_filters.c,
// jinja_methods.c.
#include "chat/jinja_impl.h"
#include <stdlib.h>

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static jval eval(jrun *r, jscope *s, const jnode *n);
static flow execute(jrun *r, jscope *s, const jnodes *body);

// ---- scopes ---------------------------------------------------------------------------------------------------------

static jscope *scope_new(jrun *r, jscope *up) {
  jscope *s = jinja_alloc(r, sizeof *s);
  s->up = up;
  return s;
}

enum { FEW = 8 };            // names up to which search is linear

// The index's entry for a name, or a free one. Equal names are one pointer, and no input can choose pointers.
static uint32_t *place(const jscope *s, const jstr *name) {
  size_t i = hash_u64((uint64_t)(uintptr_t)name, 0) & (s->n_index - 1);
  while (s->index[i] && s->at[s->index[i] - 1].name != name) i = (i + 1) & (s->n_index - 1);
  return &s->index[i];
}

static jslot *find_slot(const jscope *s, const jstr *name) {
  if (s->n > FEW) {
    uint32_t at = *place(s, name);
    return at ? &s->at[at - 1] : NULL;
  }
  for (size_t i = s->n; i-- > 0;) if (s->at[i].name == name) return &s->at[i];
  return NULL;
}

// Empties the scope for the next iteration of a loop.
static void scope_clear(jrun *r, jscope *s) {
  if (s->n > FEW) {
    memset(s->index, 0, s->n_index * sizeof *s->index);
    jinja_charge(r, s->n_index / 16);
  }
  s->n = 0;
}

static jval *lookup(jrun *r, jscope *s, const jstr *name) {
  for (; s; s = s->up) {
    jslot *slot = find_slot(s, name);
    jinja_charge(r, 1);
    if (slot) return &slot->v;
  }
  return NULL;
}

static void set_name(jrun *r, jscope *s, const jstr *name, jval v) {
  jslot *known = find_slot(s, name), slot = {name, v};
  if (known) { known->v = v; return; }
  jpush(r, s, slot);
  if (s->n <= FEW) return;
  bool more = 2 * s->n > s->n_index;
  if (more) {
    s->n_index = s->n_index ? 2 * s->n_index : 64;
    s->index = jinja_array(r, s->n_index, sizeof *s->index);
  }
  for (size_t i = more || s->n == FEW + 1 ? 0 : s->n - 1; i < s->n; i++) {
    jinja_charge(r, 1);
    *place(s, s->at[i].name) = (uint32_t)i + 1;
  }
}

static void assign(jrun *r, jscope *s, const jnode *to, jval v) {
  r->line = to->line;
  if (to->kind == N_NAME) { set_name(r, s, to->name, v); return; }
  if (to->kind == N_ATTR) {
    jval ns = eval(r, s, to->a);
    if (ns.type != J_NS) jinja_fail(r, "cannot assign attribute on non-namespace object");
    j_dict_set(r, ns.d, j_copy(r, to->name), v);
    return;
  }
  if (v.type == J_UNDEF) j_use_undef(r, v);
  if (!j_iterable(v)) jinja_fail(r, "cannot unpack non-iterable %s object", j_type_name(v));
  jlist *l = j_items(r, v);
  if (l->n > to->list.n) jinja_fail(r, "too many values to unpack (expected %zu)", (size_t)to->list.n);
  if (l->n < to->list.n) jinja_fail(r, "not enough values to unpack (expected %zu, got %zu)", (size_t)to->list.n, l->n);
  for (size_t i = 0; i < l->n; i++) assign(r, s, to->list.at[i], l->at[i]);
}

// ---- calls ----------------------------------------------------------------------------------------------------------

struct arglist { jlist pos; struct { jkw *at; size_t n, cap; } kw; };

static void add_kw(jrun *r, struct arglist *a, const jstr *name, jval v) {
  for (size_t i = 0; i < a->kw.n; i++)
    if (j_same(a->kw.at[i].name, name))
      jinja_fail(r, "got multiple values for keyword argument '%.*s'", (int)(name->n > 100 ? 100 : name->n), name->at);
  jkw kw = {name, v};
  jinja_charge(r, (a->kw.n + 1) * (name->n / 16 + 1));
  jpush(r, &a->kw, kw);
}

static jargs eval_arguments(jrun *r, jscope *s, const jnode *n, struct arglist *a) {
  for (size_t i = 0; i < n->list.n; i++) j_push(r, &a->pos, eval(r, s, n->list.at[i]));
  if (n->star) {
    jlist *more = j_items(r, eval(r, s, n->star));
    for (size_t i = 0; i < more->n; i++) j_push(r, &a->pos, more->at[i]);
  }
  for (size_t i = 0; i < n->named.n; i++) add_kw(r, a, n->named.at[i].name, eval(r, s, n->named.at[i].value));
  if (n->star2) {
    jval more = eval(r, s, n->star2);
    if (more.type != J_DICT) jinja_fail(r, "argument after ** must be a mapping, not %s", j_type_name(more));
    for (size_t i = 0; i < more.d->n; i++) {
      if (more.d->at[i].key.type != J_STR) jinja_fail(r, "keywords must be strings");
      add_kw(r, a, more.d->at[i].key.s, more.d->at[i].val);
    }
  }
  return (jargs){a->pos.at, a->pos.n, a->kw.at, a->kw.n};
}

static const jval *take_kw(jrun *r, const jargs *a, const jstr *name, bool *used) {
  jinja_charge(r, a->n_kw * (name->n / 16 + 1));
  for (size_t i = 0; i < a->n_kw; i++)
    if (!used[i] && j_same(a->kw[i].name, name)) {
      used[i] = true;
      return &a->kw[i].v;
    }
  return NULL;
}

static jval call_macro(jrun *r, const struct jmacro *m, const jargs *a) {
  const jnode *n = m->node;
  int namelen = (int)(n->name->n > 100 ? 100 : n->name->n), line = r->line;
  jscope *s = scope_new(r, m->scope);
  bool *used = jinja_array(r, a->n_kw + 1, sizeof *used), has_caller = false;
  jinja_enter(r);
  for (size_t i = 0; i < n->named.n; i++) {
    const jstr *name = n->named.at[i].name;
    const jval *given = i < a->n ? &a->pos[i] : take_kw(r, a, name, used);
    if (name == r->t->caller) has_caller = true;
    if (given) set_name(r, s, name, *given);
    else if (n->named.at[i].value) set_name(r, s, name, eval(r, s, n->named.at[i].value));
    else
      set_name(r, s, name,
               j_undef(r, "parameter '%.*s' was not provided", (int)(name->n > 100 ? 100 : name->n), name->at));
  }
  if (n->flag && !has_caller) {
    const jval *caller = take_kw(r, a, r->t->caller, used);
    set_name(r, s, r->t->caller, caller ? *caller : j_undef(r, "No caller defined"));
  }
  r->line = line;
  if (n->uses_kwargs) {
    jdict *d = j_dict(r);
    for (size_t i = 0; i < a->n_kw; i++)
      if (!used[i]) j_dict_set(r, d, j_copy(r, a->kw[i].name), a->kw[i].v);
    set_name(r, s, r->t->kwargs, j_of_dict(d));
  } else {
    for (size_t i = 0; i < a->n_kw; i++)
      if (!used[i])
        jinja_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", namelen, n->name->at, (int)a->kw[i].name->n,
                   a->kw[i].name->at);
  }
  if (n->uses_varargs) {
    jlist *l = j_list(r, 0);
    for (size_t i = n->named.n; i < a->n; i++) j_push(r, l, a->pos[i]);
    set_name(r, s, r->t->varargs, j_of_tuple(l));
  } else if (a->n > n->named.n) {
    jinja_fail(r, "macro '%.*s' takes not more than %zu argument(s)", namelen, n->name->at, (size_t)n->named.n);
  }
  j_scratch(r);
  execute(r, s, &n->list);
  jinja_leave(r);
  r->line = line;
  return j_scratch_end(r);
}

// ---- loops ----------------------------------------------------------------------------------------------------------

// Fetches the next item that passes the loop's condition. The condition is evaluated only now: it may depend on what
// the body did.
static bool fetch_item(jrun *r, struct jloop *l, jval *out) {
  while (l->next < l->source->n) {
    *out = l->source->at[l->next++];
    jinja_charge(r, 1);
    if (!l->condition) return true;
    jscope *s = scope_new(r, l->outer);
    int line = r->line;
    assign(r, s, l->node->b, *out);
    bool pass = j_true(r, eval(r, s, l->condition));
    r->line = line;
    if (pass) return true;
  }
  return false;
}

static bool peek(jrun *r, struct jloop *l) {
  if (!l->has_after) l->has_after = fetch_item(r, l, &l->after);
  return l->has_after;
}

// The length needs all items, so the rest is fetched.
static size_t loop_length(jrun *r, struct jloop *l) {
  if (l->known) return l->length;
  jlist *rest = j_list(r, 0);
  jval v;
  if (l->has_after) j_push(r, rest, l->after);
  while (fetch_item(r, l, &v)) j_push(r, rest, v);
  l->has_after = false;
  l->condition = NULL;                     // the rest has passed it
  l->source = rest;
  l->next = 0;
  l->known = true;
  return l->length = l->index + 1 + rest->n;
}

static flow run_loop(jrun *r, jscope *outer, const jnode *n, jval items, int depth) {
  struct jloop *l = jinja_alloc(r, sizeof *l);
  *l = (struct jloop){.node = n,
                      .condition = n->c,
                      .outer = outer,
                      .scope = scope_new(r, outer),
                      .source = j_items(r, items),
                      .depth = depth,
                      .changed = {.type = J_ABSENT},
                      .previous = {.type = J_ABSENT},
                      .current = {.type = J_ABSENT}};
  bool completed = false;                  // Jinja's else runs if no iteration reached the end of the body
  jval v, self = {.type = J_LOOP, .loop = l};
  while (l->has_after ? (v = l->after, l->has_after = false, true) : fetch_item(r, l, &v)) {
    if (l->current.type != J_ABSENT) l->index++;
    l->previous = l->current;
    l->current = v;
    scope_clear(r, l->scope);
    set_name(r, l->scope, r->t->loop, self);
    assign(r, l->scope, n->b, v);
    flow f = execute(r, l->scope, &n->list);
    if (f == FLOW_BREAK) break;
    if (f == FLOW_ON) completed = true;
  }
  if (completed || !n->other.n) return FLOW_ON;
  return execute(r, scope_new(r, outer), &n->other);
}

static jval next_item(jrun *r, struct jloop *l) { return peek(r, l) ? l->after : j_undef(r, "there is no next item"); }

jval j_loop_attr(jrun *r, struct jloop *l, const jstr *name) {
  if (j_is(name, "index")) return j_int((int64_t)l->index + 1);
  if (j_is(name, "index0")) return j_int((int64_t)l->index);
  if (j_is(name, "first")) return j_bool(l->index == 0);
  if (j_is(name, "last")) return j_bool(!peek(r, l));
  if (j_is(name, "length")) return j_int((int64_t)loop_length(r, l));
  if (j_is(name, "revindex")) return j_int((int64_t)(loop_length(r, l) - l->index));
  if (j_is(name, "revindex0")) return j_int((int64_t)(loop_length(r, l) - l->index) - 1);
  if (j_is(name, "previtem"))
    return l->previous.type == J_ABSENT ? j_undef(r, "there is no previous item") : l->previous;
  if (j_is(name, "nextitem")) return next_item(r, l);
  if (j_is(name, "depth")) return j_int(l->depth + 1);
  if (j_is(name, "depth0")) return j_int(l->depth);
  jval out = {.type = J_LOOP, .loop = l}, method;
  return j_method(r, out, name, &method) ? method : j_absent();
}

// Calls loop(items) of a recursive loop: its text for other items.
static jval call_loop(jrun *r, struct jloop *l, const jargs *a) {
  if (!l->node->flag) jinja_fail(r, "The loop must have the 'recursive' marker to be called recursively");
  if (a->n != 1 || a->n_kw) jinja_fail(r, "loop() takes one argument");
  int line = r->line;
  jinja_enter(r);
  j_scratch(r);
  run_loop(r, l->outer, l->node, a->pos[0], l->depth + 1);
  jinja_leave(r);
  r->line = line;
  return j_scratch_end(r);
}

jval j_call(jrun *r, jval fn, const jargs *a) {
  switch (fn.type) {
    case J_UNDEF: j_use_undef(r, fn);
    case J_FUNC: return fn.fn->call(r, a);
    case J_METHOD: {
      const struct jmethod_row *m = fn.m->row;
      return j_call_row(r, j_type_name(fn.m->self), m->name, m->call, m->params, m->at_least, fn.m->self, a);
    }
    case J_MACRO: return call_macro(r, fn.macro, a);
    case J_LOOP: return call_loop(r, fn.loop, a);
    case J_JOINER: {
      if (fn.cycle->at) return fn.cycle->sep;
      fn.cycle->at = 1;
      return j_text(r, "");
    }
    default: jinja_fail(r, "'%s' object is not callable", j_type_name(fn));
  }
}

// ---- expressions ----------------------------------------------------------------------------------------------------

static jval collection(jrun *r, jscope *s, const jnode *n) {
  jlist *l = j_list(r, n->list.n);
  for (size_t i = 0; i < n->list.n; i++) j_push(r, l, eval(r, s, n->list.at[i]));
  return (jval){.type = n->kind == N_LIST ? J_LIST : J_TUPLE, .l = l};
}

static jval eval_dict(jrun *r, jscope *s, const jnode *n) {
  jdict *d = j_dict(r);
  for (size_t i = 0; i < n->list.n; i++) {
    jval key = eval(r, s, n->list.at[i]);
    j_dict_set(r, d, key, eval(r, s, n->other.at[i]));
  }
  return j_of_dict(d);
}

static bool compare_by_op(jrun *r, int op, jval a, jval b) {
  switch (op) {
    case '=': return j_eq(r, a, b);
    case '!': return !j_eq(r, a, b);
    case '<': return j_less(r, "<", a, b, false);
    case 'l': return j_less(r, "<=", a, b, true);
    case '>': return j_less(r, ">", b, a, false);
    case 'g': return j_less(r, ">=", b, a, true);
    case 'i': return j_in(r, a, b);
    default: return !j_in(r, a, b);
  }
}

static jval eval_comparison(jrun *r, jscope *s, const jnode *n) {
  jval left = eval(r, s, n->list.at[0]);
  for (size_t i = 1; i < n->list.n; i++) {
    jval right = eval(r, s, n->list.at[i]);
    r->line = n->line;
    if (!compare_by_op(r, n->name->at[i - 1], left, right)) return j_bool(false);
    left = right;
  }
  return j_bool(true);
}

static jval eval_concat(jrun *r, jscope *s, const jnode *n) {
  jval v = eval(r, s, n->list.at[0]);
  v = j_to_str(r, v);
  for (size_t i = 1; i < n->list.n; i++) v = j_concat(r, v, j_to_str(r, eval(r, s, n->list.at[i])));
  v.safe = false;
  return v;
}

static jval negative(jrun *r, const jnode *n, jval v) {
  if (v.type == J_UNDEF) j_use_undef(r, v);
  if (!j_is_num(v)) jinja_fail(r, "bad operand type for unary %c: '%s'", n->kind == N_NEG ? '-' : '+', j_type_name(v));
  if (v.type == J_FLOAT) return j_float(n->kind == N_NEG ? -v.f : v.f);
  return n->kind == N_NEG ? j_binary(r, '-', j_int(0), v) : j_int(j_whole(v));
}

// The value that a filter is applied to; in a filter block the block's text, `r->block`.
static jval filtered(jrun *r, jscope *s, const jnode *n) {
  struct arglist a = {0};
  jval v = eval(r, s, n->a);
  jargs args = eval_arguments(r, s, n, &a);
  r->line = n->line;
  if (!n->row) jinja_fail(r, "there is no filter '%.*s'", (int)(n->name->n > 100 ? 100 : n->name->n), n->name->at);
  return j_run_filter(r, n->row, v, &args);
}

static jval tested(jrun *r, jscope *s, const jnode *n) {
  struct arglist a = {0};
  jval v = eval(r, s, n->a);
  jargs args = eval_arguments(r, s, n, &a);
  r->line = n->line;
  if (!n->row) jinja_fail(r, "there is no test '%.*s'", (int)(n->name->n > 100 ? 100 : n->name->n), n->name->at);
  return j_bool(j_run_test(r, n->row, v, &args) != n->flag);
}

static jval name_value(jrun *r, jscope *s, const jnode *n) {
  jval *v = lookup(r, s, n->name);
  if (v) return *v;
  const struct jfunc *f = j_global(n->name->at, n->name->n);
  if (f) return (jval){.type = J_FUNC, .fn = f};
  return j_undef(r, "'%.*s' is undefined", (int)(n->name->n > 100 ? 100 : n->name->n), n->name->at);
}

static jval eval_item(jrun *r, jscope *s, const jnode *n) {
  jval v = eval(r, s, n->a);
  const jnode *key = n->b;
  if (key->kind != N_SLICE) {
    jval k = eval(r, s, key);
    r->line = n->line;
    return j_item(r, v, k);
  }
  jval start = key->a ? eval(r, s, key->a) : j_absent(), stop = key->b ? eval(r, s, key->b) : j_absent();
  jval step = key->c ? eval(r, s, key->c) : j_absent();
  r->line = n->line;
  return j_slice(r, v, start, stop, step);
}

static jval conditional(jrun *r, jscope *s, const jnode *n) {
  if (j_true(r, eval(r, s, n->a))) return eval(r, s, n->b);
  if (n->c) return eval(r, s, n->c);
  return j_undef(r, "the inline if-expression evaluated to false and no else section was defined");
}

static jval eval_chain(jrun *r, jscope *s, const jnode *n) {
  jval v = eval(r, s, n->list.at[0]);
  for (size_t i = 1; i < n->list.n && j_true(r, v) == (n->kind == N_AND); i++) v = eval(r, s, n->list.at[i]);
  return v;
}

static jval call(jrun *r, jscope *s, const jnode *n, const jval *caller) {
  struct arglist a = {0};
  jval f = eval(r, s, n->a);
  jargs args = eval_arguments(r, s, n, &a);
  if (caller) { add_kw(r, &a, r->t->caller, *caller); args.kw = a.kw.at; args.n_kw = a.kw.n; }
  r->line = n->line;
  return j_call(r, f, &args);
}

static jval eval_by_kind(jrun *r, jscope *s, const jnode *n) {
  jval v, w;
  switch ((jkind)n->kind) {
    case N_CONST: return n->value.type == J_ABSENT ? r->block : n->value;
    case N_NAME: return name_value(r, s, n);
    case N_LIST: case N_TUPLE: return collection(r, s, n);
    case N_DICT: return eval_dict(r, s, n);
    case N_ATTR: v = eval(r, s, n->a); r->line = n->line; return j_attr(r, v, n->name);
    case N_ITEM: return eval_item(r, s, n);
    case N_SLICE: jinja_fail(r, "a slice among several indices");
    case N_CALL: return call(r, s, n, NULL);
    case N_FILTER: return filtered(r, s, n);
    case N_TEST: return tested(r, s, n);
    case N_NOT: return j_bool(!j_true(r, eval(r, s, n->a)));
    case N_NEG: case N_POS: v = eval(r, s, n->a); r->line = n->line; return negative(r, n, v);
    case N_BINARY: v = eval(r, s, n->a); w = eval(r, s, n->b); r->line = n->line; return j_binary(r, n->op, v, w);
    case N_CONCAT: return eval_concat(r, s, n);
    case N_COMPARE: return eval_comparison(r, s, n);
    case N_AND: case N_OR: return eval_chain(r, s, n);
    case N_COND: return conditional(r, s, n);
    default: die("jinja: a statement (%d) among expressions", n->kind);
  }
}

static jval eval(jrun *r, jscope *s, const jnode *n) {
  if (n->kind == N_CONST && n->value.type != J_ABSENT) return n->value;
  r->line = n->line;
  jinja_charge(r, 1);
  jinja_enter(r);
  jval v = eval_by_kind(r, s, n);
  jinja_leave(r);
  return v;
}

// ---- statements -----------------------------------------------------------------------------------------------------

static void print(jrun *r, jval v) {
  str *out = &r->capture->text;
  j_add(r, out, v);
  if (!r->capture->up && out->n > r->max.output)
    jinja_fail(r, "the template makes more than %zu bytes of text", r->max.output);
}

static flow run_for(jrun *r, jscope *s, const jnode *n) {
  jval items = eval(r, s, n->a);
  r->line = n->line;
  return run_loop(r, s, n, items, 0);
}

static flow run_if(jrun *r, jscope *s, const jnode *n) {
  for (;;) {
    if (j_true(r, eval(r, s, n->a))) return execute(r, s, &n->list);
    if (!n->b) return execute(r, s, &n->other);
    n = n->b;
  }
}

static jval block_text(jrun *r, jscope *s, const jnodes *body, flow *f) {
  j_scratch(r);
  *f = execute(r, scope_new(r, s), body);
  return j_scratch_end(r);
}

// Applies a block's filters to its text. Filter blocks may be nested through macros, so r->block is restored.
static jval through_filters(jrun *r, jscope *s, const jnode *filters, jval text) {
  jval before = r->block;
  r->block = text;
  jval v = eval(r, s, filters);
  r->block = before;
  return v;
}

static flow set_block(jrun *r, jscope *s, const jnode *n) {
  flow f;
  jval text = block_text(r, s, &n->list, &f);
  if (f == FLOW_ON) assign(r, s, n->b, through_filters(r, s, n->a, text));
  return f;
}

static flow filter_block(jrun *r, jscope *s, const jnode *n) {
  flow f;
  jval text = block_text(r, s, &n->list, &f);
  if (f == FLOW_ON) print(r, through_filters(r, s, n->a, text));
  return f;
}

static jval macro_value(jrun *r, jscope *s, const jnode *n) {
  struct jmacro *m = jinja_alloc(r, sizeof *m);
  m->node = n;
  m->scope = s;
  return (jval){.type = J_MACRO, .macro = m};
}

static flow run_with(jrun *r, jscope *s, const jnode *n) {
  jscope *inner = scope_new(r, s);
  for (size_t i = 0; i < n->other.n; i++) assign(r, inner, n->other.at[i], eval(r, s, n->named.at[i].value));
  return execute(r, inner, &n->list);
}

static flow run_statement(jrun *r, jscope *s, const jnode *n) {
  jval v;
  switch ((jkind)n->kind) {
    case N_DATA: print(r, n->value); return FLOW_ON;
    case N_PRINT: v = eval(r, s, n->a); print(r, v); return FLOW_ON;
    case N_IF: return run_if(r, s, n);
    case N_FOR: return run_for(r, s, n);
    case N_SET: v = eval(r, s, n->a); assign(r, s, n->b, v); return FLOW_ON;
    case N_SET_BLOCK: return set_block(r, s, n);
    case N_MACRO: set_name(r, s, n->name, macro_value(r, s, n)); return FLOW_ON;
    case N_CALL_BLOCK: v = macro_value(r, s, n->b); print(r, call(r, s, n->a, &v)); return FLOW_ON;
    case N_FILTER_BLOCK: return filter_block(r, s, n);
    case N_WITH: return run_with(r, s, n);
    case N_SCOPE: return execute(r, scope_new(r, s), &n->list);
    case N_BREAK: return FLOW_BREAK;
    case N_CONTINUE: return FLOW_CONTINUE;
    case N_REFUSED: jinja_fail(r, "'%s' is refused: a template of a model is one text and reads no other", n->name->at);
    default: die("jinja: an expression (%d) among statements", n->kind);
  }
}

static flow execute(jrun *r, jscope *s, const jnodes *body) {
  flow f = FLOW_ON;
  jinja_enter(r);
  for (size_t i = 0; i < body->n && f == FLOW_ON; i++) {
    r->line = body->at[i]->line;
    jinja_charge(r, 1);
    f = run_statement(r, s, body->at[i]);
  }
  jinja_leave(r);
  return f;
}

// ---- the run --------------------------------------------------------------------------------------------------------

jinja_limits jinja_limits_default(void) {
  return (jinja_limits){.steps = 100u << 20, .memory = JINJA_MEMORY, .output = 64u << 20, .depth = 2000};
}

// The memory limit of a run: the base plus four times the input, minus the input itself and the template's nodes.
static size_t memory_for(const jinja *t, size_t n_text) {
  size_t most = JINJA_MEMORY + 4 * (t->n_source + n_text), beside = t->n_source + n_text + arena_bytes(t->mem);
  return most > beside ? most - beside : 0;
}

static void give_variable(jrun *r, jscope *s, const char *given, jval v) {
  const jstr *name = j_known_name(r->t, given);
  if (name) set_name(r, s, name, v);
}

static void run_template(jrun *r, const jinja_vars *vars) {
  jscope *s = scope_new(r, NULL);
  for (size_t i = 0; i < vars->n; i++) {
    if (!j_known_name(r->t, vars->at[i].name)) continue;
    r->trusts = vars->at[i].trusted;
    give_variable(r, s, vars->at[i].name, vars->at[i].value ? j_of_json(r, vars->at[i].value) : j_none());
  }
  r->trusts = false;
  r->words = vars->roles;
  if (vars->list) give_variable(r, s, vars->list_name, j_of_json_list(r, vars->list, vars->n_list));
  if (vars->read) { vars->read(vars->owner); r->beside = 0; }
  jscope *top = scope_new(r, s);
  if (r->t->blocks.n) {
    jval self = {.type = J_NS, .d = j_dict(r)};
    for (size_t i = 0; i < r->t->blocks.n; i++) {
      const jnode *block = r->t->blocks.at[i];
      j_dict_set(r, self.d, j_copy(r, block->name), macro_value(r, top, block));
    }
    set_name(r, s, r->t->self, self);
  }
  j_scratch(r);
  execute(r, top, &r->t->body);
}

int jinja_render_freeing(const jinja *t, const jinja_vars *vars, const struct tm *now, const jinja_limits *limits,
                         jinja_text *out, error *err) {
  error unwanted = {0};
  jrun *r = xcalloc(1, sizeof *r);
  r->mem = arena_new();
  r->key = hash_key_new();
  r->err = err ? err : &unwanted;
  r->max = limits ? *limits : jinja_limits_default();
  if (!limits) r->max.memory = memory_for(t, vars->n_text);
  size_t left = account_left(account_here());
  r->crowded = r->max.memory > left && account_is_crowded(account_here());
  if (r->max.memory > left) r->max.memory = left;
  r->beside = vars->bytes;
  r->t = t;
  r->now = now;
  r->line = 1;
  int status = -1;
  if (account_check(r->err)) {
  } else if (!setjmp(r->leave)) {
    run_template(r, vars);
    *out = (jinja_text){r->capture->text, r->capture->own};
    r->capture->text = (str){0};
    r->capture->own = (text_spans){0};
    status = 0;
  }
  while (r->capture) j_scratch_drop(r);
  json_decref(r->held);
  arena_free(r->mem);
  free(r);
  return status;
}

int jinja_render(const jinja *t, const jinja_var *vars, size_t n, const struct tm *now, const jinja_limits *limits,
                 str *out, error *err) {
  jinja_text made = {0};
  if (jinja_render_freeing(t, &(jinja_vars){.at = vars, .n = n}, now, limits, &made, err)) return -1;
  str_addn(out, str_c(&made.text), made.text.n);
  jinja_text_free(&made);
  return 0;
}

void jinja_text_free(jinja_text *t) {
  str_free(&t->text);
  vec_free(&t->own);
}
