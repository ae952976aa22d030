// jinja_impl: private to the jinja_*.c files: values, nodes, and the run that owns them.
//
// A run (of the parser or of the interpreter) owns an arena and the limits. Every error calls jinja_fail, which leaves
// by longjmp to the start of the run; all memory belongs to the run, so nothing has to be unwound, and the code reads
// like the language that it implements. Every loop over sizes that a template or its data controls is charged by
// jinja_charge.
//
// Values are Python's: immutable numbers and strings, lists and dicts by reference, iterators that are consumed once.
// Strings are UTF-8 and count in code points. A string may own the end of a buffer with spare room: appending to it
// then copies only the new text, so that a template which builds its text with `~` in a loop stays linear.
//
// Each string records which of its bytes the template wrote. All others are untrusted: bytes from JSON, bytes that the
// interpreter writes itself (numbers, None, the quotes and braces of tojson), and bytes that a function does not pass
// on. So a bug here turns a control token into text, never text into a control token. Equality of values ignores this
// record.
#ifndef WEFT_JINJA_IMPL_H
#define WEFT_JINJA_IMPL_H
#include "base/account.h"
#include "base/arena.h"
#include "base/hash.h"
#include "chat/jinja.h"
#include <setjmp.h>
#include <string.h>

// ---- values ---------------------------------------------------------------------------------------------------------

typedef enum jtype {
  J_ABSENT,                  // an argument that was not given; templates never see it
  J_UNDEF, J_NONE, J_BOOL, J_INT, J_FLOAT, J_STR, J_LIST, J_TUPLE, J_DICT,
  J_VIEW,                    // d.keys(), d.values(), d.items()
  J_RANGE, J_ITER, J_FUNC, J_METHOD, J_MACRO, J_NS, J_LOOP, J_JOINER, J_CYCLER
} jtype;

// own: marks of bytes up to `used`, as in a jstr; NULL while all bytes have one author
typedef struct jbuf { char *at; uint8_t *own; size_t used, cap; } jbuf;
// chars: code points, SIZE_MAX if not counted yet. own: for each byte, 1 if the template wrote it; NULL: it wrote none;
// J_OWN: it wrote all.
typedef struct jstr { const char *at; size_t n; size_t chars; jbuf *buf; const uint8_t *own; } jstr;
extern const uint8_t j_all_own[];
#define J_OWN (&j_all_own[0])
typedef struct jval jval;
typedef struct jlist { jval *at; size_t n, cap; } jlist;
typedef struct jdict jdict;
typedef struct jrun jrun;
typedef struct jargs jargs;
typedef struct jnode jnode;
typedef struct jscope jscope;

struct jval {
  uint8_t type;              // jtype
  bool safe;                 // of a string: markup; other strings are escaped when they are added to it
  uint8_t what;              // VIEW: 'k', 'v' or 'i'; TUPLE: 'g' for a group, whose parts have names
  union {
    bool b;
    int64_t i;
    double f;
    jstr *s;
    jlist *l;                // LIST, TUPLE
    jdict *d;                // DICT, VIEW, NS
    struct jundef *u;
    struct jrange *r;
    struct jiter *it;
    const struct jfunc *fn;
    struct jmethod *m;
    struct jmacro *macro;
    struct jloop *loop;
    struct jcycle *cycle;    // CYCLER, JOINER
  };
};

struct jentry { jval key, val; uint64_t hash; };
// slot: index + 1, used from 9 entries on
struct jdict { struct jentry *at; size_t n, cap; uint32_t *slot; size_t n_slots; };
struct jundef { const char *message; };                        // the error text when it is used
struct jrange { int64_t start, stop, step, n; };
struct jiter { const char *kind; jlist *items; size_t at; };   // "generator", consumed from `at` on
struct jmethod { jval self; const struct jmethod_row *row; };
struct jcycle { jlist *items; size_t at; jval sep; };
struct jmacro { const jnode *node; jscope *scope; };

typedef jval jfunction(jrun *r, const jargs *a);
struct jfunc { const char *name; jfunction *call; };

typedef struct jkw { const jstr *name; jval v; } jkw;
struct jargs { const jval *pos; size_t n; const jkw *kw; size_t n_kw; };

// The state of a loop: items are produced one at a time, filtered, with one item of look-ahead.
struct jloop {
  const jnode *node, *condition;   // condition: still to be applied to later items; NULL: none
  jscope *scope, *outer;     // of the body; around the loop
  jlist *source;             // items not yet filtered, from `next` on
  size_t next, index;        // index counts from 0
  jval current, previous, after;
  bool has_after, known;     // known: `length` is valid
  size_t length;
  int depth;
  jval changed;              // arguments of the last changed()
};

// ---- nodes ----------------------------------------------------------------------------------------------------------

typedef enum jkind {
  // expressions
  N_CONST,
  N_NAME,
  N_LIST,
  N_TUPLE,
  N_DICT,
  N_ATTR,
  N_ITEM,
  N_SLICE,
  N_CALL,
  N_FILTER,
  N_TEST,
  N_NOT,
  N_NEG,
  N_POS,
  N_BINARY,
  N_CONCAT,
  N_COMPARE,
  N_AND,
  N_OR,
  N_COND,
  // statements
  N_DATA,
  N_PRINT,
  N_IF,
  N_FOR,
  N_SET,
  N_SET_BLOCK,
  N_MACRO,
  N_CALL_BLOCK,
  N_FILTER_BLOCK,
  N_WITH,
  N_SCOPE,
  N_BREAK,
  N_CONTINUE,
  N_REFUSED
} jkind;

typedef struct jnodes { jnode **at; uint32_t n, cap; } jnodes;
struct jparam { const jstr *name; jnode *value; };
typedef struct jparams { struct jparam *at; uint32_t n, cap; } jparams;

struct jnode {
  uint8_t kind, op;          // op: of BINARY and COMPARE, see below
  bool flag;                 // TEST: negated; FOR: recursive; MACRO: uses caller; ATTR: an assignment target
  bool uses_kwargs, uses_varargs;   // MACRO
  int line;
  jnode *a;                  // operands; FOR: iterable, target, condition; COND: test, then, else
  union {
    struct { jnode *b, *c; };
    struct { jnode *star, *star2; };   // CALL, FILTER, TEST: *args and **kwargs
  };
  jnodes list;               // elements, operands, arguments or the body
  jnodes other;              // the else part; values of a DICT; targets of WITH
  jparams named;             // keyword arguments, or a macro's parameters
  union {
    struct { const jstr *name; const void *row; };   // row: of FILTER and TEST, NULL if unknown
    jval value;              // CONST, DATA
  };
};

// op of BINARY is one of "+-*/%", 'f' (floor division) and '^' (power); op of COMPARE (list: operands; ops in name):
// '<' '>' 'l' (<=) 'g' (>=) '=' '!' 'i' (in) 'n' (not in).

// blocks: macros, for self.NAME()
struct jinja {
  arena *mem;
  size_t n_source;           // bytes of the text
  jnodes body, blocks;
  const jstr *loop, *caller, *varargs, *kwargs, *self;
  struct jnames *names;
};

// ---- a run ----------------------------------------------------------------------------------------------------------

typedef struct jslot { const jstr *name; jval v; } jslot;
// index: by name, used from 9 names on
struct jscope { jscope *up; jslot *at; size_t n, cap; uint32_t *index; size_t n_index; };

struct jrun {
  arena *mem;
  jinja_limits max;
  bool crowded;              // max.memory is limited by other requests
  uint64_t steps;
  uint64_t drawn;            // number of draws by the filter random
  int depth, line;
  error *err;
  const jinja *t;
  const struct tm *now;
  jval block;                // text of the block whose filters are being evaluated
  struct jcapture *capture;  // the innermost one, which receives output
  struct jprinting *printing;   // containers being printed, innermost first
  size_t beside;             // memory of JSON while it is read
  struct jnames *shared;     // short texts of variables, interned
  size_t n_shared;
  json_t *held;              // freed at the end of the run
  const char *const *words;  // roles that always count as the template's, NULL at the end; or NULL
  bool trusts;               // names and JSON being read count as the template's
  hash_key key;              // of all hash tables: their keys are untrusted
  jmp_buf leave;
};
// The text must be the first member: code that writes into the text gets the capture from its address. own: the ranges
// that the template wrote; below: capacity in bytes of the captures around this one.
struct jcapture { str text; struct jcapture *up; text_spans own; size_t below; };

NORETURN void jinja_fail(jrun *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
void jinja_charge(jrun *r, uint64_t n);
void jinja_enter(jrun *r);                                 // one level deeper; fails at the limit
static inline void jinja_leave(jrun *r) { r->depth--; }
void jinja_room(jrun *r, size_t n);                        // fails if n more bytes exceed the limit
void *jinja_alloc(jrun *r, size_t n);                      // zeroed
void *jinja_array(jrun *r, size_t n, size_t size);
void *jinja_grow(jrun *r, void *at, size_t n, size_t *cap, size_t size);   // room for one more element; at may move
#define jpush(r, v, x) \
  do { size_t cap_ = (v)->cap; (v)->at = jinja_grow(r, (v)->at, (v)->n, &cap_, sizeof *(v)->at); \
       (v)->cap = (__typeof__((v)->cap))cap_; (v)->at[(v)->n++] = (x); } while (0)

// ---- jinja_value.c --------------------------------------------------------------------------------------------------

static inline jval j_none(void) { return (jval){.type = J_NONE}; }
static inline jval j_absent(void) { return (jval){.type = J_ABSENT}; }
static inline jval j_bool(bool b) { return (jval){.type = J_BOOL, .b = b}; }
static inline jval j_int(int64_t i) { return (jval){.type = J_INT, .i = i}; }
static inline jval j_float(double f) { return (jval){.type = J_FLOAT, .f = f}; }
static inline jval j_of_list(jlist *l) { return (jval){.type = J_LIST, .l = l}; }
static inline jval j_of_tuple(jlist *l) { return (jval){.type = J_TUPLE, .l = l}; }
static inline jval j_of_dict(jdict *d) { return (jval){.type = J_DICT, .d = d}; }
static inline bool j_is_given(jval v) { return v.type != J_ABSENT && v.type != J_NONE; }
static inline bool j_is_num(jval v) { return v.type == J_INT || v.type == J_BOOL || v.type == J_FLOAT; }
static inline bool j_is_whole(jval v) { return v.type == J_INT || v.type == J_BOOL; }
static inline int64_t j_whole(jval v) { return v.type == J_BOOL ? v.b : v.i; }
jval j_undef(jrun *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
NORETURN void j_use_undef(jrun *r, jval v);

jstr *j_new_str(jrun *r, const char *at, size_t n);         // copies
jval j_str(jrun *r, const char *at, size_t n);
jval j_own(jrun *r, const char *at, size_t n);              // a string that the template wrote
jval j_copy(jrun *r, const jstr *s);                        // copies bytes and marks of authors
jval j_part(jrun *r, jval v, size_t from, size_t to);       // bytes [from, to) of a string; markup if v is
jval j_text(jrun *r, const char *text);
jval j_like(jval v, jval of);                               // string v; markup if `of` is
jval j_concat(jrun *r, jval a, jval b);                     // of two strings
size_t j_chars(jrun *r, jstr *s);
size_t j_offset(jrun *r, jstr *s, size_t chars);            // byte offset of a code point
const jstr *j_intern(jrun *r, struct jnames **names, const char *at, size_t n);   // equal names become one pointer
const jstr *j_known_name(const jinja *t, const char *name);  // NULL: the template does not contain it
bool j_same(const jstr *a, const jstr *b);
bool j_is(const jstr *s, const char *text);
#define VIEW_ARGS(v) (int)((v).s->n > 200 ? 200 : (v).s->n), (v).s->at

jlist *j_list(jrun *r, size_t n_hint);
void j_push(jrun *r, jlist *l, jval v);
jval j_pair(jrun *r, jval a, jval b);
jdict *j_dict(jrun *r);
void j_dict_set(jrun *r, jdict *d, jval key, jval v);
bool j_dict_get(jrun *r, const jdict *d, jval key, jval *out);
bool j_dict_get_text(jrun *r, const jdict *d, const char *key, size_t n, jval *out);
bool j_dict_remove(jrun *r, jdict *d, jval key, jval *out);

const char *j_type_name(jval v);                            // Python's: "str", "NoneType"
bool j_true(jrun *r, jval v);
bool j_eq(jrun *r, jval a, jval b);
// a < b or a <= b; fails if Python defines no order
bool j_less(jrun *r, const char *op, jval a, jval b, bool or_equal);
bool j_in(jrun *r, jval item, jval container);
int64_t j_range_at(const struct jrange *g, int64_t i);       // item i of n
int64_t j_len(jrun *r, jval v);                             // -1: no length
bool j_iterable(jval v);
// The items that a loop over v sees; consumes an iterator. Must not be changed.
jlist *j_items(jrun *r, jval v);
jval j_iter(jrun *r, const char *kind, jlist *items);
jval j_view_item(jrun *r, jval view, size_t i);
void j_add(jrun *r, str *s, jval v);                        // str(v)
void j_add_repr(jrun *r, str *s, jval v);                   // repr(v)
jval j_to_str(jrun *r, jval v);                             // v itself if it is a string
jval j_escape(jrun *r, jval v);                             // HTML
void j_sort(jrun *r, jval *keys, jval *vals, size_t n, bool reverse);   // stable; vals follow keys
void j_guard(jrun *r, const str *s);                        // fails if a text outgrows the memory limit
// For loops over single characters: checks the limit after each 64 KB of output. *next: initially 0.
static inline void j_watch(jrun *r, const str *s, size_t *next) {
  if (s->n < *next) return;
  j_guard(r, s);
  *next = s->n + 65536;
}

// A text under construction, which is freed if the run fails: see jinja_value.c.
str *j_scratch(jrun *r);
jval j_scratch_end(jrun *r);                                // the written text as a value
void j_scratch_drop(jrun *r);
// All texts that a run writes are those of captures, which record what the template wrote.
void j_add_part(jrun *r, str *s, const jstr *of, size_t from, size_t to);   // its bytes [from, to) with their authors
bool j_is_own(const jstr *s, size_t from, size_t to);       // whether the template wrote all of it
// Marks the text written from `since` on as coming from bytes [from, to) of a string.
static inline void j_stands_for(str *s, size_t since, const jstr *of, size_t from, size_t to) {
  if (of->own && j_is_own(of, from, to)) spans_add(&((struct jcapture *)s)->own, since, s->n);
}

// ---- jinja_format.c -------------------------------------------------------------------------------------------------

void j_add_float(jrun *r, str *s, double f);                // repr
bool j_is_space(uint32_t cp);                               // str.isspace
bool j_is_printable(uint32_t cp);
jval j_percent(jrun *r, jval fmt, jval args);               // fmt % args
jval j_format_method(jrun *r, jval self, const jargs *a);   // "{}".format()
jval j_strftime(jrun *r, jval fmt);

// ---- jinja_json.c ---------------------------------------------------------------------------------------------------

jval j_of_json(jrun *r, const json_t *j);
jval j_of_json_list(jrun *r, const char *text, size_t n);     // of a JSON array
jval j_from_json(jrun *r, jval text);
jval j_to_json(jrun *r, jval v, jval ensure_ascii, jval indent, jval separators, jval sort_keys);

// ---- jinja_methods.c, jinja_filters.c, jinja_tests.c ----------------------------------------------------------------

typedef jval jmethod_fn(jrun *r, jval self, const jval *arg, const jargs *a);
// params: names separated by spaces; NULL: the function reads `a` itself. at_least: required arguments.
struct jmethod_row { uint8_t type; const char *name; jmethod_fn *call; const char *params; uint8_t at_least; };
struct jfilter_row { const char *name; jmethod_fn *call; const char *params; uint8_t at_least; };
struct jtest_row { const char *name; bool (*call)(jrun *r, jval v, const jval *arg); uint8_t n_args; };
bool j_method(jrun *r, jval self, const jstr *name, jval *out);
jval j_call_row(jrun *r, const char *what, const char *name, jmethod_fn *fn, const char *params, size_t at_least,
                jval self, const jargs *a);
const struct jfunc *j_global(const char *name, size_t n);
const struct jfilter_row *j_filter(const char *name, size_t n);
const struct jtest_row *j_test(const char *name, size_t n);
bool j_run_test(jrun *r, const struct jtest_row *row, jval v, const jargs *a);
jval j_run_filter(jrun *r, const struct jfilter_row *row, jval v, const jargs *a);

// ---- jinja_ops.c ----------------------------------------------------------------------------------------------------

jval j_binary(jrun *r, int op, jval a, jval b);
jval j_attr(jrun *r, jval v, const jstr *name);             // v.name
jval j_item(jrun *r, jval v, jval key);                     // v[key]
jval j_slice(jrun *r, jval v, jval start, jval stop, jval step);
int64_t j_need_int(jrun *r, const char *what, jval v);
double j_need_num(jrun *r, const char *what, jval v);
jval j_need_str(jrun *r, const char *what, jval v);

// ---- jinja_eval.c ---------------------------------------------------------------------------------------------------

jval j_call(jrun *r, jval fn, const jargs *a);
jval j_loop_attr(jrun *r, struct jloop *l, const jstr *name);
#endif
