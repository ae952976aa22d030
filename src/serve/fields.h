// fields: members of a JSON object, read by a table into a struct.  A member that has another type or lies out of range
// is a fault that names it.  The same tables describe requests in /openapi.json.
#ifndef WEFT_SERVE_FIELDS_H
#define WEFT_SERVE_FIELDS_H
#include <jansson.h>
#include "base/account.h"
#include "base/str.h"

// Why a request is refused.  Each family of endpoints has its own form for it.
typedef struct fault {
  int status;                          // of HTTP; 0: none
  const char *code;                    // "context_length_exceeded", or NULL
  char param[96], text[1024];          // the field; a sentence
  char reason[200];                    // for the log: the sentence; what a body may have said is left out of it
  int64_t n_prompt, n_ctx;             // where the prompt is too long
  int retry_s;                         // > 0: trying again makes sense after so long
} fault;
// the first one stays; returns -1
int fault_set(fault *f, int status, const char *param, const char *fmt, ...) PRINTF_LIKE(4, 5);
// All requests together hold too much for `what`, which comes from this field (NULL: from none).
int fault_crowded(fault *f, const account *all, const char *param, const char *what);
// Takes n bytes of the request's account for it. -1 and a fault: there is no room for them.
int fault_take(fault *f, account *a, const char *param, const char *what, size_t n);

// NESTED: an object with tables of its own, read into the same struct. IGNORED, REFUSED: fields of other servers that
// mean nothing here; `help` is the reason.
enum field_kind {
  F_INT,
  F_INT32,
  F_REAL,
  F_BOOL,
  F_TEXT,
  F_OBJECT,
  F_ARRAY,
  F_ANY,
  F_NESTED,
  F_IGNORED,
  F_REFUSED,
  N_FIELD_KINDS
};
struct field {
  const char *name;
  enum field_kind kind;
  size_t to;                           // offset in the struct: int64_t, int32_t, double, bool, or json_t * (borrowed)
  double min, max;                     // of numbers, inclusive
  const char *help;
  // What a member may be, if its kind does not say it all (shapes.h). Of IGNORED and REFUSED an array of the values
  // that ask for nothing; null always does. Or NULL.
  const char *shape;
  bool needed;                         // a request without it is refused
  const struct fields *const *in;      // NESTED: its tables, NULL at their end
};
#define FI(struct_, member, name, min, max, help) \
  {name, F_INT, offsetof(struct_, member), min, max, help, NULL, false, NULL}
#define FI32(struct_, member, name, min, max, help) \
  {name, F_INT32, offsetof(struct_, member), min, max, help, NULL, false, NULL}
#define FR(struct_, member, name, min, max, help) \
  {name, F_REAL, offsetof(struct_, member), min, max, help, NULL, false, NULL}
#define FB(struct_, member, name, help) {name, F_BOOL, offsetof(struct_, member), 0, 0, help, NULL, false, NULL}
#define FJ(struct_, member, name, kind, help) FS(struct_, member, name, kind, NULL, help)
#define FS(struct_, member, name, kind, shape, help) \
  {name, kind, offsetof(struct_, member), 0, 0, help, shape, false, NULL}
#define FN(struct_, member, name, kind, shape, help) \
  {name, kind, offsetof(struct_, member), 0, 0, help, shape, true, NULL}
#define FO(struct_, member, name, tables, help) \
  {name, F_NESTED, offsetof(struct_, member), 0, 0, help, NULL, false, tables}
#define FIGNORED(name, nothing, reason) {name, F_IGNORED, 0, 0, 0, reason, nothing, false, NULL}
#define FREFUSED(name, nothing, reason) {name, F_REFUSED, 0, 0, 0, reason, nothing, false, NULL}
struct fields { const struct field *at; size_t n; };
#define FIELDS(array) {array, COUNT(array)}

// Members that are missing or null leave what is there; others than the table's are left alone.  prefix: of names in
// faults ("options.").
int fields_read(const json_t *object, const char *prefix, struct fields fields, void *to, fault *f);
// Names of members that say something and are not read: those that no table has, and IGNORED ones. Separated by commas,
// in characters that a header may have; what is too long ends in "...".
void fields_unread(json_t *object, const char *prefix, const struct fields *const *tables, str *out);
void fields_add_unread(str *out, const char *name);              // one more
// Two names of one member, in one object or another, that say different things: -1, and a fault that names both.
int fields_clash(const json_t *object, const struct fields *const *tables, fault *f);
// The numbers and truth values of a struct, each under its first name.
json_t *fields_values(struct fields fields, const void *from);
json_t *fields_schema(const struct fields *const *tables);       // of JSON Schema
json_t *json_of_shape(const char *shape);                        // of shapes.h

// A body as a JSON object.  Depth, numbers and memory are bounded; *left: what JSON in its strings may still take. Its
// values are taken of the account.
json_t *json_body(const str *body, size_t *left, account *a, fault *f);
// Takes the values of JSON in a string: of what is left for such, and of the account.
int json_take(const char *text, size_t n, size_t *left, account *a, const char *param, fault *f);
// A number that a member or an element holds, with its bounds.  -1 and a fault.
int read_int(const json_t *v, const char *name, double min, double max, int64_t *out, fault *f);
int read_real(const json_t *v, const char *name, double min, double max, double *out, fault *f);
const char *json_kind(const json_t *v);                          // "a string"
bool json_is_of(const json_t *o, const char *type);              // does its member "type" say so?
// a string of any bytes: what is no UTF-8 becomes U+FFFD
json_t *json_of_text(const char *text, size_t n);
#endif
