// The parser: tokens to nodes, by recursive descent, one function per level of precedence.
//
// From loosest to tightest: if-else, or, and, not, comparisons and in, + -, ~, * / // %, **, sign, then postfixes
// (.name [item] (call)), filters and tests. The order is Jinja's: `a ~ b + c` is `(a ~ b) + c`, and a sign binds
// tighter than a filter. Nesting is limited, so no text can exhaust the stack. Names are interned: everywhere else
// names are compared by pointer.
#include "chat/jinja_lex.h"
#include <stdlib.h>

typedef struct parser {
  jrun *r;
  jinja *t;
  const jtoken *at;          // the current token; never moves past TK_END
  int loops;                 // number of for loops around the current place, within the macro
  jnode *macro;              // the innermost macro around the current place
  jnodes macros;             // all macros around it
} parser;

static jnode *expression(parser *p);
static jnode *unary(parser *p, bool filters);
static jnode *primary(parser *p);
static jnode *postfix(parser *p, jnode *n);
static void body_until(parser *p, jnodes *out, const char *const *ends);

// ---- tokens ---------------------------------------------------------------------------------------------------------

static bool is_op(const parser *p, const char *op) { return p->at->kind == TK_OP && !strcmp(p->at->op, op); }
static bool token_is_name(const jtoken *t, const char *name) {
  return t->kind == TK_NAME && t->n == strlen(name) && !memcmp(t->at, name, t->n);
}
static bool at_name(const parser *p, const char *name) { return token_is_name(p->at, name); }

static const jtoken *next(parser *p) {
  const jtoken *t = p->at;
  if (t->kind != TK_END) p->at++;
  p->r->line = p->at->line;
  return t;
}

static bool skip_op(parser *p, const char *op) { return is_op(p, op) ? next(p), true : false; }
static bool skip_name(parser *p, const char *name) { return at_name(p, name) ? next(p), true : false; }

NORETURN static void unexpected(parser *p, const char *wanted) {
  const jtoken *t = p->at;
  p->r->line = t->line;
  switch (t->kind) {
    case TK_NAME: jinja_fail(p->r, "expected %s, not '%.*s'", wanted, (int)(t->n > 100 ? 100 : t->n), t->at);
    case TK_OP: jinja_fail(p->r, "expected %s, not '%s'", wanted, t->op);
    case TK_VAR_END: jinja_fail(p->r, "expected %s, not '}}'", wanted);
    case TK_BLOCK_END: jinja_fail(p->r, "expected %s, not '%%}'", wanted);
    case TK_STRING: case TK_NUMBER: jinja_fail(p->r, "expected %s, not a literal", wanted);
    default: jinja_fail(p->r, "expected %s, not the end of the template", wanted);
  }
}

static void need_op(parser *p, const char *op) {
  char wanted[8];
  snprintf(wanted, sizeof wanted, "'%s'", op);
  if (!skip_op(p, op)) unexpected(p, wanted);
}

static const jstr *need_name(parser *p) {
  if (p->at->kind != TK_NAME) unexpected(p, "a name");
  const jtoken *t = next(p);
  return j_intern(p->r, &p->t->names, t->at, t->n);
}

static void need_block_end(parser *p) {
  if (p->at->kind != TK_BLOCK_END) unexpected(p, "'%}'");
  next(p);
}

static jnode *new_node(parser *p, jkind kind) {
  jnode *n = jinja_alloc(p->r, sizeof *n);
  n->kind = (uint8_t)kind;
  n->line = p->at->line;
  return n;
}

static jnode *node2(parser *p, jkind kind, jnode *a, jnode *b) {
  jnode *n = new_node(p, kind);
  n->a = a, n->b = b;
  n->line = a->line;
  return n;
}

// ---- values ---------------------------------------------------------------------------------------------------------

// A name that is read. It may be caller, kwargs or varargs, whose use in a macro's body makes the macro accept them.
static jnode *name_node(parser *p, const jstr *name) {
  jnode *n = new_node(p, N_NAME);
  n->name = name;
  for (size_t i = 0; i < p->macros.n; i++) {
    if (name == p->t->caller) p->macros.at[i]->flag = true;
    if (name == p->t->kwargs) p->macros.at[i]->uses_kwargs = true;
    if (name == p->t->varargs) p->macros.at[i]->uses_varargs = true;
  }
  return n;
}

// Parses expressions separated by commas: one alone is itself, more are a tuple. None at all is allowed only in
// brackets.
static jnode *tuple(parser *p, jnode *(*part)(parser *), bool bracketed, const char *stop_name) {
  jnode *first = NULL, *n = NULL;
  for (;;) {
    bool ended =
      p->at->kind == TK_VAR_END || p->at->kind == TK_BLOCK_END || is_op(p, ")") || (stop_name && at_name(p, stop_name));
    if (ended) break;
    jnode *item = part(p);
    if (!first) first = item;
    if (n) jpush(p->r, &n->list, item);
    if (!is_op(p, ",")) break;
    next(p);
    if (!n) { n = new_node(p, N_TUPLE); n->line = first->line; jpush(p->r, &n->list, first); }
  }
  if (n) return n;
  if (first) return first;
  if (!bracketed) unexpected(p, "an expression");
  return new_node(p, N_TUPLE);
}

static jnode *constant_node(parser *p, jval v) {
  jnode *n = new_node(p, N_CONST);
  n->value = v;
  return n;
}

static jnode *list_node(parser *p) {
  jnode *n = new_node(p, N_LIST);
  need_op(p, "[");
  while (!is_op(p, "]")) {
    if (n->list.n) need_op(p, ",");
    if (is_op(p, "]")) break;
    jnode *item = expression(p);
    jpush(p->r, &n->list, item);
  }
  need_op(p, "]");
  return n;
}

static jnode *dict_node(parser *p) {
  jnode *n = new_node(p, N_DICT);
  need_op(p, "{");
  while (!is_op(p, "}")) {
    if (n->list.n) need_op(p, ",");
    if (is_op(p, "}")) break;
    jnode *key = expression(p);
    need_op(p, ":");
    jnode *v = expression(p);
    jpush(p->r, &n->list, key);
    jpush(p->r, &n->other, v);
  }
  need_op(p, "}");
  return n;
}

static jnode *primary(parser *p) {
  const jtoken *t = p->at;
  if (t->kind == TK_NAME) {
    next(p);
    static const struct {
      const char *name;
      int what;
    } known[] = {{"true", 1}, {"True", 1}, {"false", 0}, {"False", 0}, {"none", 2}, {"None", 2}};
    for (size_t i = 0; i < COUNT(known); i++)
      if (token_is_name(t, known[i].name))
        return constant_node(p, known[i].what == 2 ? j_none() : j_bool(known[i].what));
    jnode *n = name_node(p, j_intern(p->r, &p->t->names, t->at, t->n));
    n->line = t->line;
    return n;
  }
  if (t->kind == TK_STRING) {
    jval v = next(p)->value;
    if (p->at->kind == TK_STRING) {
      str *s = j_scratch(p->r);
      str_addn(s, v.s->at, v.s->n);
      for (; p->at->kind == TK_STRING; next(p)) str_addn(s, p->at->value.s->at, p->at->value.s->n);
      v = j_scratch_end(p->r);
    }
    return constant_node(p, v);
  }
  if (t->kind == TK_NUMBER) return constant_node(p, next(p)->value);
  if (skip_op(p, "(")) {
    jnode *n = tuple(p, expression, true, NULL);
    need_op(p, ")");
    return n;
  }
  if (is_op(p, "[")) return list_node(p);
  if (is_op(p, "{")) return dict_node(p);
  unexpected(p, "a value");
}

static void call_args(parser *p, jnode *n) {
  need_op(p, "(");
  for (bool first = true; !is_op(p, ")"); first = false) {
    if (!first) need_op(p, ",");
    if (is_op(p, ")")) break;
    const jtoken *ahead = p->at->kind == TK_NAME ? p->at + 1 : NULL;
    if (skip_op(p, "*")) {
      if (n->star || n->star2) jinja_fail(p->r, "a call takes one *argument, before a **argument");
      n->star = expression(p);
    } else if (skip_op(p, "**")) {
      if (n->star2) jinja_fail(p->r, "a call takes one **argument");
      n->star2 = expression(p);
    } else if (ahead && ahead->kind == TK_OP && !strcmp(ahead->op, "=")) {
      if (n->star2) jinja_fail(p->r, "an argument after **arguments");
      struct jparam a = {need_name(p), NULL};
      next(p);
      a.value = expression(p);
      jpush(p->r, &n->named, a);
    } else {
      if (n->star || n->star2 || n->named.n) jinja_fail(p->r, "an argument without a name after one with a name");
      jnode *v = expression(p);
      jpush(p->r, &n->list, v);
    }
  }
  need_op(p, ")");
}

static jnode *call_node(parser *p, jnode *f) {
  jnode *n = new_node(p, N_CALL);
  n->a = f;
  n->line = f->line;
  call_args(p, n);
  return n;
}

// Parses the contents of [ ]: an index, a slice, or several, which form a tuple.
static jnode *subscript(parser *p) {
  if (is_op(p, "]")) return new_node(p, N_TUPLE);
  jnode *n = new_node(p, N_SLICE);
  if (!is_op(p, ":")) {
    jnode *first = expression(p);
    if (!is_op(p, ":")) return first;
    n->a = first;
  }
  next(p);
  if (!is_op(p, ":") && !is_op(p, "]") && !is_op(p, ",")) n->b = expression(p);
  if (skip_op(p, ":") && !is_op(p, "]") && !is_op(p, ",")) n->c = expression(p);
  return n;
}

static jnode *member_node(parser *p, jnode *of) {
  jnode *n = new_node(p, N_ATTR);
  n->a = of;
  if (skip_op(p, ".")) {
    if (p->at->kind == TK_NAME) {
      n->name = need_name(p);
    } else if (p->at->kind == TK_NUMBER && p->at->value.type == J_INT) {
      n->kind = N_ITEM;
      n->b = constant_node(p, next(p)->value);
    } else {
      unexpected(p, "a name or a number");
    }
    return n;
  }
  need_op(p, "[");
  n->kind = N_ITEM;
  n->b = subscript(p);
  if (is_op(p, ",")) {
    jnode *all = new_node(p, N_TUPLE);
    jpush(p->r, &all->list, n->b);
    while (skip_op(p, ",")) {
      if (is_op(p, "]")) unexpected(p, "an index");
      jnode *more = subscript(p);
      jpush(p->r, &all->list, more);
    }
    n->b = all;
  }
  need_op(p, "]");
  return n;
}

static jnode *postfix(parser *p, jnode *n) {
  int depth = p->r->depth;
  for (;;) {
    if (is_op(p, ".") || is_op(p, "[")) n = member_node(p, n);
    else if (is_op(p, "(")) n = call_node(p, n);
    else break;
    jinja_enter(p->r);   // nodes get deeper although this loop does not, and evaluation recurses
  }
  p->r->depth = depth;
  return n;
}

// A name with dots, allowed for filters and tests.
static const jstr *dotted(parser *p) {
  const jstr *name = need_name(p);
  if (!is_op(p, ".")) return name;
  str *s = j_scratch(p->r);
  str_addn(s, name->at, name->n);
  while (skip_op(p, ".")) { name = need_name(p); str_addc(s, '.'); str_addn(s, name->at, name->n); }
  return j_scratch_end(p->r).s;
}

static jnode *filter_node(parser *p, jnode *of) {
  jnode *n = new_node(p, N_FILTER);
  n->a = of;
  n->name = dotted(p);
  n->row = j_filter(n->name->at, n->name->n);
  if (is_op(p, "(")) call_args(p, n);
  return n;
}

static jnode *test_node(parser *p, jnode *of) {
  jnode *n = new_node(p, N_TEST);
  n->a = of;
  n->flag = skip_name(p, "not");
  n->name = dotted(p);
  n->row = j_test(n->name->at, n->name->n);
  jtoken_kind k = p->at->kind;
  if (is_op(p, "(")) {
    call_args(p, n);
  } else if ((k == TK_NAME && !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and")) || k == TK_STRING ||
             k == TK_NUMBER || is_op(p, "[") || is_op(p, "{")) {
    if (at_name(p, "is")) jinja_fail(p->r, "tests cannot be chained with 'is'");
    jnode *arg = postfix(p, primary(p));
    jpush(p->r, &n->list, arg);
  }
  return n;
}

static jnode *filters(parser *p, jnode *n) {
  int depth = p->r->depth;
  for (;;) {
    if (skip_op(p, "|")) n = filter_node(p, n);
    else if (skip_name(p, "is")) n = test_node(p, n);
    else if (is_op(p, "(")) n = call_node(p, n);
    else break;
    jinja_enter(p->r);
  }
  p->r->depth = depth;
  return n;
}

// ---- operators, tightest first --------------------------------------------------------------------------------------

static jnode *unary(parser *p, bool with_filters) {
  jinja_enter(p->r);
  jnode *n;
  if (is_op(p, "-") || is_op(p, "+")) {
    n = new_node(p, is_op(p, "-") ? N_NEG : N_POS);
    next(p);
    n->a = unary(p, false);
  } else {
    n = primary(p);
  }
  n = postfix(p, n);
  if (with_filters) n = filters(p, n);
  jinja_leave(p->r);
  return n;
}

static jnode *binary_node(parser *p, int op, jnode *a, jnode *b) {
  jnode *n = node2(p, N_BINARY, a, b);
  n->op = (uint8_t)op;
  jinja_enter(p->r);
  return n;
}

static jnode *power(parser *p) {
  int depth = p->r->depth;
  jnode *n = unary(p, true);
  while (skip_op(p, "**")) n = binary_node(p, '^', n, unary(p, true));
  p->r->depth = depth;
  return n;
}

static jnode *multiplication(parser *p) {
  int depth = p->r->depth;
  jnode *n = power(p);
  for (;;) {
    int op = is_op(p, "*") ? '*' : is_op(p, "/") ? '/' : is_op(p, "//") ? 'f' : is_op(p, "%") ? '%' : 0;
    if (!op) break;
    next(p);
    n = binary_node(p, op, n, power(p));
  }
  p->r->depth = depth;
  return n;
}

static jnode *concat(parser *p) {
  jnode *first = multiplication(p);
  if (!is_op(p, "~")) return first;
  jnode *n = new_node(p, N_CONCAT);
  jpush(p->r, &n->list, first);
  while (skip_op(p, "~")) { jnode *more = multiplication(p); jpush(p->r, &n->list, more); }
  return n;
}

static jnode *addition(parser *p) {
  int depth = p->r->depth;
  jnode *n = concat(p);
  while (is_op(p, "+") || is_op(p, "-")) {
    int op = next(p)->op[0];
    n = binary_node(p, op, n, concat(p));
  }
  p->r->depth = depth;
  return n;
}

static int compare_op(parser *p) {
  static const struct {
    const char *text;
    int op;
  } ops[] = {{"==", '='}, {"!=", '!'}, {"<", '<'}, {"<=", 'l'}, {">", '>'}, {">=", 'g'}};
  for (size_t i = 0; i < COUNT(ops); i++) if (skip_op(p, ops[i].text)) return ops[i].op;
  if (skip_name(p, "in")) return 'i';
  if (at_name(p, "not") && token_is_name(p->at + 1, "in")) { next(p); next(p); return 'n'; }
  return 0;
}

static jnode *comparison(parser *p) {
  jnode *first = addition(p), *n = NULL;
  str *ops = j_scratch(p->r);
  for (int op; (op = compare_op(p));) {
    if (!n) { n = new_node(p, N_COMPARE); jpush(p->r, &n->list, first); }
    str_addc(ops, (char)op);
    jnode *more = addition(p);
    jpush(p->r, &n->list, more);
  }
  if (n) n->name = j_scratch_end(p->r).s;
  else j_scratch_drop(p->r);
  return n ? n : first;
}

static jnode *negation(parser *p) {
  if (!at_name(p, "not")) return comparison(p);
  jinja_enter(p->r);
  jnode *n = new_node(p, N_NOT);
  next(p);
  n->a = negation(p);
  jinja_leave(p->r);
  return n;
}

static jnode *chain(parser *p, jkind kind, const char *word, jnode *(*operand)(parser *)) {
  jnode *first = operand(p);
  if (!at_name(p, word)) return first;
  jnode *n = new_node(p, kind);
  jpush(p->r, &n->list, first);
  while (skip_name(p, word)) { jnode *more = operand(p); jpush(p->r, &n->list, more); }
  return n;
}

static jnode *conjunction(parser *p) { return chain(p, N_AND, "and", negation); }
static jnode *disjunction(parser *p) { return chain(p, N_OR, "or", conjunction); }

static jnode *expression(parser *p) {
  jinja_enter(p->r);
  int depth = p->r->depth;
  jnode *n = disjunction(p);
  while (skip_name(p, "if")) {
    jnode *c = new_node(p, N_COND);
    c->a = disjunction(p);
    c->b = n;
    if (skip_name(p, "else")) c->c = expression(p);
    n = c;
    jinja_enter(p->r);
  }
  p->r->depth = depth;
  jinja_leave(p->r);
  return n;
}

// ---- statements -----------------------------------------------------------------------------------------------------

static bool is_target(const jnode *n) {
  if (n->kind == N_NAME || (n->kind == N_ATTR && n->flag)) return true;
  if (n->kind != N_TUPLE) return false;
  for (size_t i = 0; i < n->list.n; i++) if (!is_target(n->list.at[i])) return false;
  return true;
}

// An assignment target: a name, an attribute of a namespace, or names in brackets.
static jnode *set_target(parser *p) {
  if (p->at->kind != TK_NAME || p->at[1].kind != TK_OP || strcmp(p->at[1].op, ".")) return primary(p);
  jnode *n = new_node(p, N_ATTR);
  n->a = name_node(p, need_name(p));
  next(p);
  n->name = need_name(p);
  n->flag = true;
  return n;
}

static jnode *target(parser *p, jnode *(*part)(parser *), const char *stop_name) {
  jnode *n = tuple(p, part, false, stop_name);
  if (!is_target(n)) { p->r->line = n->line; jinja_fail(p->r, "this cannot be assigned to"); }
  return n;
}

static bool at_end_word(const parser *p, const char *const *ends) {
  for (; *ends; ends++) if (at_name(p, *ends)) return true;
  return false;
}

// Parses statements up to a tag whose first word is in ends; the word is then the current token.
static void block_body(parser *p, jnodes *out, const char *const *ends, const char *opened, int line) {
  need_block_end(p);
  jinja_enter(p->r);
  body_until(p, out, ends);
  jinja_leave(p->r);
  if (p->at->kind == TK_END)
    jinja_fail(p->r, "the template ends before '%s' of the '%s' in line %d", ends[0], opened, line);
}

static void simple_body(parser *p, jnodes *out, const char *end, const char *opened, int line) {
  const char *const ends[] = {end, NULL};
  block_body(p, out, ends, opened, line);
  next(p);
}

// One or several expressions without if-else: for conditions and for loops, in which "if" begins the condition.
static jnode *plain_tuple(parser *p) {
  jinja_enter(p->r);
  jnode *n = disjunction(p);
  if (is_op(p, ",")) {
    jnode *all = new_node(p, N_TUPLE);
    jpush(p->r, &all->list, n);
    while (skip_op(p, ",") && p->at->kind != TK_BLOCK_END) {
      jnode *more = disjunction(p);
      jpush(p->r, &all->list, more);
    }
    n = all;
  }
  jinja_leave(p->r);
  return n;
}

static jnode *if_statement(parser *p, int line) {
  static const char *const ends[] = {"endif", "elif", "else", NULL}, *const last[] = {"endif", NULL};
  jnode *first = new_node(p, N_IF), *n = first;
  first->a = plain_tuple(p);
  block_body(p, &n->list, ends, "if", line);
  while (at_name(p, "elif")) {           // a chain of nodes without nesting, of any length
    next(p);
    jnode *more = new_node(p, N_IF);
    more->a = plain_tuple(p);
    n->b = more;
    n = more;
    block_body(p, &n->list, ends, "if", line);
  }
  if (skip_name(p, "else")) block_body(p, &n->other, last, "if", line);
  next(p);
  return first;
}

static jnode *for_statement(parser *p, int line) {
  static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
  jnode *n = new_node(p, N_FOR);
  n->b = target(p, primary, "in");
  if (!skip_name(p, "in")) unexpected(p, "'in'");
  n->a = plain_tuple(p);
  if (skip_name(p, "if")) n->c = expression(p);
  n->flag = skip_name(p, "recursive");
  p->loops++;
  block_body(p, &n->list, ends, "for", line);
  p->loops--;
  if (skip_name(p, "else")) block_body(p, &n->other, last, "for", line);
  next(p);
  return n;
}

static jnode *set_statement(parser *p, int line) {
  jnode *n = new_node(p, N_SET);
  n->b = target(p, set_target, NULL);
  if (skip_op(p, "=")) {
    n->a = tuple(p, expression, false, NULL);
    return n;
  }
  n->kind = N_SET_BLOCK;
  if (n->b->kind == N_TUPLE) unexpected(p, "'='");
  jnode *inner = constant_node(p, j_absent());  // placeholder for the text of the block
  n->a = filters(p, inner);
  simple_body(p, &n->list, "endset", "set", line);
  return n;
}

static void signature(parser *p, jnode *n) {
  need_op(p, "(");
  while (!is_op(p, ")")) {
    if (n->named.n) need_op(p, ",");
    struct jparam a = {need_name(p), NULL};
    if (skip_op(p, "=")) a.value = expression(p);
    else if (n->named.n && n->named.at[n->named.n - 1].value)
      jinja_fail(p->r, "a parameter without a default after one with a default");
    jpush(p->r, &n->named, a);
  }
  need_op(p, ")");
}

static void macro_body(parser *p, jnode *n, const char *end, const char *opened, int line) {
  int loops = p->loops;
  p->loops = 0;
  jpush(p->r, &p->macros, n);
  simple_body(p, &n->list, end, opened, line);
  p->macros.n--;
  p->loops = loops;
}

static jnode *macro_statement(parser *p, int line) {
  jnode *n = new_node(p, N_MACRO);
  n->name = need_name(p);
  signature(p, n);
  macro_body(p, n, "endmacro", "macro", line);
  return n;
}

static jnode *call_statement(parser *p, int line) {
  jnode *n = new_node(p, N_CALL_BLOCK), *caller = new_node(p, N_MACRO);
  caller->name = p->t->caller;
  if (is_op(p, "(")) signature(p, caller);
  n->a = expression(p);
  if (n->a->kind != N_CALL) jinja_fail(p->r, "expected a call");
  macro_body(p, caller, "endcall", "call", line);
  n->b = caller;
  return n;
}

static jnode *with_statement(parser *p, int line) {
  jnode *n = new_node(p, N_WITH);
  while (p->at->kind != TK_BLOCK_END) {
    if (n->other.n) need_op(p, ",");
    jnode *to = target(p, primary, NULL);
    need_op(p, "=");
    struct jparam a = {NULL, expression(p)};
    jpush(p->r, &n->other, to);
    jpush(p->r, &n->named, a);
  }
  simple_body(p, &n->list, "endwith", "with", line);
  return n;
}

static jnode *filter_statement(parser *p, int line) {
  jnode *n = new_node(p, N_FILTER_BLOCK);
  jnode *f = filter_node(p, constant_node(p, j_absent()));
  n->a = filters(p, f);
  simple_body(p, &n->list, "endfilter", "filter", line);
  return n;
}

static jnode *print_statement(parser *p, jnodes *out) {
  for (;;) {
    jnode *n = new_node(p, N_PRINT);
    n->a = expression(p);
    if (!skip_op(p, ",")) return n;
    jpush(p->r, out, n);
  }
}

static jnode *block_statement(parser *p, int line) {
  jnode *n = new_node(p, N_SCOPE);
  jnode *again = new_node(p, N_MACRO);
  again->name = need_name(p);
  while (skip_name(p, "scoped") || skip_name(p, "required")) continue;
  simple_body(p, &n->list, "endblock", "block", line);
  again->list = n->list;
  jpush(p->r, &p->t->blocks, again);
  if (p->at->kind == TK_NAME) next(p);
  return n;
}

static jnode *refused_node(parser *p, const char *what) {
  jnode *n = new_node(p, N_REFUSED);
  n->name = j_intern(p->r, &p->t->names, what, strlen(what));
  while (p->at->kind != TK_BLOCK_END && p->at->kind != TK_END) next(p);
  return n;
}

static jnode *statement(parser *p, jnodes *out) {
  int line = p->at->line;
  if (p->at->kind != TK_NAME) unexpected(p, "the name of a tag");
  if (skip_name(p, "if")) return if_statement(p, line);
  if (skip_name(p, "for")) return for_statement(p, line);
  if (skip_name(p, "set")) return set_statement(p, line);
  if (skip_name(p, "macro")) return macro_statement(p, line);
  if (skip_name(p, "call")) return call_statement(p, line);
  if (skip_name(p, "with")) return with_statement(p, line);
  if (skip_name(p, "filter")) return filter_statement(p, line);
  if (skip_name(p, "print")) return print_statement(p, out);
  if (skip_name(p, "block")) return block_statement(p, line);
  if (skip_name(p, "generation")) {   // marks model output for training; it has its own scope
    jnode *n = new_node(p, N_SCOPE);
    int loops = p->loops;
    p->loops = 0;
    simple_body(p, &n->list, "endgeneration", "generation", line);
    p->loops = loops;
    return n;
  }
  if (skip_name(p, "autoescape")) {
    jnode *n = new_node(p, N_SCOPE), *on = expression(p);
    if (on->kind != N_CONST || on->value.type != J_BOOL || on->value.b)
      jinja_fail(p->r, "autoescape is not supported: prompts are no HTML");
    simple_body(p, &n->list, "endautoescape", "autoescape", line);
    return n;
  }
  bool leave = at_name(p, "break");
  if (leave || at_name(p, "continue")) {
    if (!p->loops) jinja_fail(p->r, "'%s' outside of a loop", leave ? "break" : "continue");
    jnode *n = new_node(p, leave ? N_BREAK : N_CONTINUE);
    next(p);
    return n;
  }
  static const char *const other_files[] = {"include", "import", "from", "extends"};
  for (size_t i = 0; i < COUNT(other_files); i++)
    if (skip_name(p, other_files[i])) return refused_node(p, other_files[i]);
  const jtoken *t = p->at;
  jinja_fail(p->r, "unknown tag '%.*s'", (int)(t->n > 100 ? 100 : t->n), t->at);
}

static void body_until(parser *p, jnodes *out, const char *const *ends) {
  for (;;) {
    jnode *n;
    p->r->line = p->at->line;
    if (p->at->kind == TK_END) return;
    if (p->at->kind == TK_DATA) {
      n = new_node(p, N_DATA);
      n->value = j_own(p->r, p->at->at, p->at->n);
      next(p);
    } else if (p->at->kind == TK_VAR_BEGIN) {
      next(p);
      n = new_node(p, N_PRINT);
      n->a = tuple(p, expression, false, NULL);
      if (p->at->kind != TK_VAR_END) unexpected(p, "'}}'");
      next(p);
    } else {
      next(p);                             // {%
      if (at_end_word(p, ends)) return;
      n = statement(p, out);
      need_block_end(p);
    }
    jpush(p->r, out, n);
  }
}

static jinja *parse_template(jrun *r, const char *text, size_t n, jtokens *tokens) {
  jinja *t = jinja_alloc(r, sizeof *t);
  static const char *const none[] = {NULL};
  t->loop = j_intern(r, &t->names, "loop", 4);
  t->caller = j_intern(r, &t->names, "caller", 6);
  t->varargs = j_intern(r, &t->names, "varargs", 7);
  t->kwargs = j_intern(r, &t->names, "kwargs", 6);
  t->self = j_intern(r, &t->names, "self", 4);
  jinja_lex(r, text, n, tokens);
  parser p = {.r = r, .t = t, .at = tokens->at};
  body_until(&p, &t->body, none);
  t->mem = r->mem;
  t->n_source = n;
  return t;
}

enum { PARSE_MEMORY = 48 << 20 };   // memory of nodes and tokens, in addition to four bytes for each byte of the text

int jinja_parse(const char *text, size_t n, jinja **out, error *err) {
  if (n > JINJA_MAX_SOURCE) return error_set(err, "the template has %zu bytes, more than %u", n, JINJA_MAX_SOURCE);
  jrun *r = xcalloc(1, sizeof *r);
  r->mem = arena_new();
  r->key = hash_key_new();
  r->err = err;
  r->trusts = true;
  r->max = (jinja_limits){
    .steps = UINT64_MAX, .memory = 4 * n + PARSE_MEMORY, .output = 1 << 30, .depth = JINJA_MAX_PARSE_DEPTH};
  jtokens *tokens = xcalloc(1, sizeof *tokens);
  int status = -1;
  if (!setjmp(r->leave)) {
    *out = parse_template(r, text, n, tokens);
    status = 0;
  } else {
    arena_free(r->mem);
  }
  while (r->capture) j_scratch_drop(r);
  vec_free(tokens);
  free(tokens);
  free(r);
  return status;
}

void jinja_free(jinja *t) { if (t) arena_free(t->mem); }
