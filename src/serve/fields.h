// fields: reads members of a JSON object into a struct, by a table. A member with a wrong type or out of range is a
// fault that names it. The tables also describe requests in /openapi.json.
#ifndef WEFT_SERVE_FIELDS_H
#define WEFT_SERVE_FIELDS_H
#include <jansson.h>
#include "base/account.h"
#include "base/str.h"

// Why a request is refused. Each family of endpoints formats it in its own way.
typedef struct fault {
  int status;                          // HTTP status; 0: no fault
  const char *code;                    // "context_length_exceeded", or NULL
  char param[96], text[1024];          // the field; a sentence
  char reason[200];                    // for the log: the sentence without quotations from the body
  int64_t n_prompt, n_ctx;             // set if the prompt is too long
  int retry_s;                         // > 0: seconds after which a retry makes sense
} fault;
// keeps the first fault; returns -1
int fault_set(fault *f, int status, const char *param, const char *fmt, ...) PRINTF_LIKE(4, 5);
// The requests together hold too much memory for `what`, from this field (NULL: none).
int fault_crowded(fault *f, const account *all, const char *param, const char *what);
// Charges n bytes to the request's account. -1 and a fault if the limit is exceeded.
int fault_take(fault *f, account *a, const char *param, const char *what, size_t n);

// NESTED: an object with its own tables, read into the same struct. IGNORED, REFUSED: unsupported fields of other
// servers; `help` is the reason.
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
  // The allowed values of a member, if its kind is not enough (shapes.h). For IGNORED and REFUSED: an array of values
  // that request nothing; null always does. Or NULL.
  const char *shape;
  bool needed;                         // required
  const struct fields *const *in;      // NESTED: its tables, terminated by NULL
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

// Missing or null members leave the struct unchanged; members without a row are ignored. prefix: of names in faults
// ("options.").
int fields_read(const json_t *object, const char *prefix, struct fields fields, void *to, fault *f);
// The names of members with a value that are not used: unknown ones, and IGNORED ones. Comma-separated, in characters
// allowed in a header; a long list ends in "...".
void fields_unread(json_t *object, const char *prefix, const struct fields *const *tables, str *out);
void fields_add_unread(str *out, const char *name);              // adds one name
// Two names for one member, in one object or another, with different values: -1, and a fault that names both.
int fields_clash(const json_t *object, const struct fields *const *tables, fault *f);
// The numbers and booleans of a struct, each under its first name.
json_t *fields_values(struct fields fields, const void *from);
json_t *fields_schema(const struct fields *const *tables);       // as JSON Schema
json_t *json_of_shape(const char *shape);                        // of shapes.h

// Parses a body as a JSON object with limits on depth, numbers and memory; *left: bytes allowed for JSON inside its
// strings. Charges its values to the account.
json_t *json_body(const str *body, size_t *left, account *a, fault *f);
// Charges JSON inside a string: against the remaining bytes and the account.
int json_take(const char *text, size_t n, size_t *left, account *a, const char *param, fault *f);
// Reads a number with bounds from a member or an element. -1 and a fault.
int read_int(const json_t *v, const char *name, double min, double max, int64_t *out, fault *f);
int read_real(const json_t *v, const char *name, double min, double max, double *out, fault *f);
const char *json_kind(const json_t *v);                          // "a string"
bool json_is_of(const json_t *o, const char *type);              // does its member "type" equal this?
// a string from any bytes: invalid UTF-8 becomes U+FFFD
json_t *json_of_text(const char *text, size_t n);
#endif
