// The inside of a call of a tool: see answer.h.  Eight notations are told apart by how they begin:
//   {"name": ..., "arguments": {...}} [...]     JSON objects, in an array or one after the other; or {"NAME": {...}}
//   <function=NAME><parameter=KEY>V</parameter></function>, <function=NAME>{...}</function>
//   <invoke name="NAME"><parameter name="KEY">V</parameter></invoke>, or <KEY>V</KEY>
//   NAME<arg_key>KEY</arg_key><arg_value>V</arg_value>
//   [NAME(KEY=V, ...)], NAME.call(KEY=V)        Python
//   call:NAME{KEY:V}                            with <|"|> for quotes
//   NAME marker {...}                           a name before the arguments
//   anything                                    code, where the format says so
// A value in XML has no type: it is a string where the tool's description says so or where it is no JSON.
#include "chat/answer_impl.h"
#include "base/json.h"
#include "text/utf8.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_CALLS = 256 };
#define QUOTE "<|\"|>"

void calls_free(calls *c) {
  for (size_t i = 0; i < c->n; i++) { free(c->at[i].name); free(c->at[i].id); free(c->at[i].arguments); }
  vec_free(c);
}

// ---- views ----------------------------------------------------------------------------------------------------------

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == '$' || c == '/' || c == ':';
}

static text_view trim_view(text_view v) {
  while (v.n && is_space(v.at[0])) { v.at++; v.n--; }
  while (v.n && is_space(v.at[v.n - 1])) v.n--;
  return v;
}

static bool begins(text_view v, const char *with) {
  size_t n = strlen(with);
  return v.n >= n && !memcmp(v.at, with, n);
}
static text_view rest_of(text_view v, size_t n) { return (text_view){v.at + n, v.n - n}; }

static const char *find_text(text_view v, const char *what) {
  size_t n = strlen(what);
  for (const char *at = v.at; v.n >= n && at <= v.at + v.n - n; at++) {
    at = memchr(at, what[0], (size_t)(v.at + v.n - at) - n + 1);
    if (!at) return NULL;
    if (!memcmp(at, what, n)) return at;
  }
  return NULL;
}

// What stands before `end`; v goes on behind it.  False: it is not there.
static bool upto(text_view *v, const char *end, text_view *out) {
  const char *at = find_text(*v, end);
  if (!at) return false;
  *out = (text_view){v->at, (size_t)(at - v->at)};
  *v = rest_of(*v, out->n + strlen(end));
  return true;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

static char *copy_view_text(text_view v) {
  char *s = xmalloc(v.n + 1);
  memcpy(s, v.at, v.n);
  s[v.n] = 0;
  return s;
}

// As JSON, numbers with as few digits as read back the same (of 15 and 17).  For free(); NULL: no JSON can say it.
static char *dump_json(const json_t *o) {
  char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
  json_t *back = text ? json_load(text, strlen(text), 0, NULL) : NULL;
  bool same = back && json_equal(o, back);
  json_decref(back);
  if (same) return text;
  free(text);
  return json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
}

// Takes over nothing.  A name is one word.
static int add_one_call(calls *out, text_view name, text_view id, const json_t *arguments) {
  name = trim_view(name);
  if (begins(name, "functions.")) name = rest_of(name, 10);
  if (!name.n || name.n > 256 || out->n == MAX_CALLS) return -1;
  for (size_t i = 0; i < name.n; i++) if (!is_name_char(name.at[i]) && (unsigned char)name.at[i] < 128) return -1;
  char *text = dump_json(arguments);
  if (!text) return -1;
  vec_push(out, ((struct call){copy_view_text(name), id.n && id.n < 256 ? copy_view_text(id) : NULL, text}));
  return 0;
}

static const json_t *description(const json_t *tools, text_view tool) {
  size_t i;
  json_t *t;
  json_array_foreach(tools, i, t) {
    const json_t *f = json_object_get(t, "function");
    if (!f) f = t;
    const char *name = json_string_value(json_object_get(f, "name"));
    if (name && strlen(name) == tool.n && !memcmp(name, tool.at, tool.n)) return f;
  }
  return NULL;
}

bool answer_knows_tool(const json_t *tools, text_view name) { return description(tools, name); }

static const json_t *parameter_of(const json_t *tools, text_view tool, text_view key) {
  const json_t *p = json_object_get(json_object_get(description(tools, tool), "parameters"), "properties");
  return json_object_getn(p, key.at, key.n);
}

// Whether a schema names the type: "T", ["T", "null"], {"anyOf": [{"type": "T"}, ...]}.
static bool allows(const json_t *schema, const char *type, int depth) {
  static const char *const lists[] = {"type", "anyOf", "oneOf"};
  const json_t *t = json_object_get(schema, "type");
  if (json_is_string(t)) return !strcmp(json_string_value(t), type);
  for (size_t k = 0; k < COUNT(lists); k++) {
    const json_t *list = json_object_get(schema, lists[k]);
    for (size_t i = 0; i < json_array_size(list); i++) {
      const json_t *one = json_array_get(list, i);
      if (json_is_string(one) ? !strcmp(json_string_value(one), type) : depth < 8 && allows(one, type, depth + 1))
        return true;
    }
  }
  return false;
}

// Whether text without quotes is a string by the schema: no other type could be meant, but for null.
static bool is_text(const json_t *schema, text_view v) {
  static const char *const others[] = {"integer", "number", "boolean", "object", "array"};
  for (size_t i = 0; i < COUNT(others); i++) if (allows(schema, others[i], 0)) return false;
  v = trim_view(v);
  return allows(schema, "string", 0) && !(v.n == 4 && begins(v, "null") && allows(schema, "null", 0));
}

static json_t *read_literal(text_view *v, int depth);

// A list or an object as Python writes it, which some templates do.
static json_t *python_value(text_view v) {
  v = trim_view(v);
  if (!v.n || !strchr("[{", v.at[0])) return NULL;
  json_t *value = read_literal(&v, 0);
  if (value && !trim_view(v).n) return value;
  json_decref(value);
  return NULL;
}

// A value from XML.
static json_t *typed(text_view v, bool string, const json_t *schema) {
  const char *type = json_string_value(json_object_get(schema, "type"));
  json_t *value = NULL;
  if (is_text(schema, v)) string = true;
  text_view bare = trim_view(v);
  if (!string) value = json_load(bare.at, bare.n, JSON_DECODE_ANY, NULL);
  if (!string && !value) value = python_value(v);
  // "\"x\"" without a description: as it stands
  if (value && json_is_string(value) && !type) { json_decref(value); value = NULL; }
  // values may stand on lines of their own
  if (!value && v.n && v.at[0] == '\n') v = rest_of(v, 1);
  if (!value && v.n && v.at[v.n - 1] == '\n') v.n--;
  return value ? value : json_stringn(v.at, v.n);
}

static int set_member(json_t *object, text_view key, json_t *value) {
  if (value && key.n) return json_object_setn_new(object, key.at, key.n, value);
  json_decref(value);
  return -1;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

static text_view string_of(const json_t *s) { return (text_view){json_string_value(s), json_string_length(s)}; }

static int json_call(const json_t *o, calls *out) {
  const json_t *f = json_object_get(o, "function"), *name, *args = NULL, *id = json_object_get(o, "id");
  if (json_is_object(f)) o = f;
  name = json_object_get(o, "name");
  if (!name) name = json_object_get(o, "tool_name");
  if (!name && json_is_string(f)) name = f;
  static const char *const keys[] = {"arguments", "parameters", "args"};
  for (size_t i = 0; i < COUNT(keys) && !args; i++) args = json_object_get(o, keys[i]);
  // of tools that take none
  if (json_is_null(args) || (json_is_string(args) && !json_string_length(args))) args = NULL;
  if (!id) id = json_object_get(o, "tool_call_id");
  if (!name && json_object_size(o) == 1) {          // {"NAME": {...}}
    const char *key = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)o));
    args = json_object_get(o, key);
    return json_is_object(args) ? add_one_call(out, (text_view){key, strlen(key)}, (text_view){0}, args) : -1;
  }
  if (!json_is_string(name)) return -1;
  text_view text = string_of(args);
  json_t *parsed = json_is_string(args) ? json_load(text.at, text.n, 0, NULL) : args ? NULL : json_object();
  int status = json_is_object(parsed ? parsed : args)
                 ? add_one_call(out, string_of(name), id ? string_of(id) : (text_view){0}, parsed ? parsed : args)
                 : -1;
  json_decref(parsed);
  return status;
}

static int json_calls(text_view v, calls *out) {
  while (v.n) {
    json_error_t e;
    json_t *o = json_load(v.at, v.n, JSON_DISABLE_EOF_CHECK, &e);
    if (!o) return -1;
    int status = json_is_object(o) ? json_call(o, out) : json_array_size(o) ? 0 : -1;
    for (size_t i = 0; !status && i < json_array_size(o); i++) status = json_call(json_array_get(o, i), out);
    json_decref(o);
    if (status || e.position <= 0) return -1;
    v = trim_view(rest_of(v, (size_t)e.position));
    if (v.n && (v.at[0] == ',' || v.at[0] == ';')) v = trim_view(rest_of(v, 1));
  }
  return 0;
}

// NAME, perhaps with an id behind it, then JSON; perhaps more of these.
static int name_then_json(const struct call_marks *m, text_view v, calls *out) {
  while (v.n) {
    text_view head, id = {0};
    const char *brace = memchr(v.at, '{', v.n);
    if (!brace) return -1;
    head = (text_view){v.at, (size_t)(brace - v.at)};
    v = rest_of(v, head.n);
    json_error_t e;
    json_t *args = json_load(v.at, v.n, JSON_DISABLE_EOF_CHECK, &e);
    if (!json_is_object(args) || e.position <= 0) { json_decref(args); return -1; }
    v = trim_view(rest_of(v, (size_t)e.position));
    if (begins(v, "```")) v = trim_view(rest_of(v, 3));
    const char *at = m->before_name ? find_text(head, m->before_name) : NULL;
    size_t from = at ? (size_t)(at - head.at) + strlen(m->before_name) : 0;
    if (at && trim_view(rest_of(head, from)).n) {
      id = trim_view((text_view){head.at, (size_t)(at - head.at)});
      if (id.n == 8 && begins(id, "function")) id.n = 0;   // the kind of tool
      head = rest_of(head, from);
    }
    const char *call_id = find_text(head, "[CALL_ID]"), *args_at = find_text(head, "[ARGS]");
    if (call_id && args_at > call_id) id = (text_view){call_id + 9, (size_t)(args_at - call_id - 9)};
    for (const char *mark = m->after_name; mark && *mark;) {
      text_view one = {mark, strcspn(mark, "\n")}, name;
      char *end = copy_view_text(one);
      text_view rest = head;
      if (upto(&rest, end, &name) && trim_view(name).n) head = name;
      free(end);
      mark += one.n + (mark[one.n] == '\n');
    }
    head = trim_view(head);
    size_t line = 0;
    while (line < head.n && head.at[line] != '\n') line++;
    head.n = line;                                  // ```json may stand on the next one
    const char *colon = find_text(head, ":");       // functions.NAME:0
    if (colon && begins(head, "functions.")) { id = head; head.n = (size_t)(colon - head.at); }
    int status = add_one_call(out, head, id, args);
    json_decref(args);
    if (status) return -1;
  }
  return 0;
}

// ---- XML ------------------------------------------------------------------------------------------------------------

// <function=NAME> ... </function>, with v behind "<function=".
static int function_call(text_view *v, const json_t *tools, calls *out) {
  text_view name, body;
  if (!upto(v, ">", &name)) return -1;
  if (!upto(v, "</function>", &body)) { body = *v; v->n = 0; }
  name = trim_view(name);
  if (begins(trim_view(body), "{")) {
    json_t *args = json_load(body.at, body.n, 0, NULL);
    int status = args ? add_one_call(out, name, (text_view){0}, args) : -1;
    json_decref(args);
    return status;
  }
  json_t *args = json_object();
  int status = 0;
  while (!status && (body = trim_view(body)).n) {
    text_view key, value;
    if (!begins(body, "<parameter=")) { status = -1; break; }
    body = rest_of(body, 11);
    if (!upto(&body, ">", &key) || !upto(&body, "</parameter>", &value)) { status = -1; break; }
    key = trim_view(key);
    status = set_member(args, key, typed(value, false, parameter_of(tools, name, key)));
  }
  if (!status) status = add_one_call(out, name, (text_view){0}, args);
  json_decref(args);
  return status;
}

static int function_calls(text_view v, const json_t *tools, calls *out) {
  while ((v = trim_view(v)).n) {
    if (!begins(v, "<function=")) return -1;
    v = rest_of(v, 10);
    if (function_call(&v, tools, out)) return -1;
  }
  return 0;
}

// The value of name="..." in a tag, the whole first word otherwise.
static text_view name_attribute(text_view tag) {
  text_view name;
  const char *at = find_text(tag, "name=\"");
  if (at) {
    text_view rest = rest_of(tag, (size_t)(at - tag.at) + 6);
    if (upto(&rest, "\"", &name)) return name;
  }
  size_t n = 0;
  while (n < tag.n && !is_space(tag.at[n])) n++;
  return (text_view){tag.at, n};
}

static int read_elements(text_view v, text_view tool, const json_t *tools, json_t *args, int depth);

// What stands in <KEY>: elements again, as an array if they are all called item; otherwise a value.
static json_t *nested(text_view v, const json_t *schema, int depth) {
  json_t *object = json_object(), *array = NULL;
  if (begins(trim_view(v), "<") && depth < MAX_DEPTH) {
    if (begins(trim_view(v), "<item>")) array = json_array();
    if (!read_elements(v, (text_view){0}, NULL, array ? array : object, depth + 1)) {
      if (!array) return object;
      json_decref(object);
      return array;
    }
    json_decref(array);
  }
  json_decref(object);
  return typed(v, false, schema);
}

// Elements <parameter name="KEY"> or <KEY>, up to the end of v, into an object, or <item>s into an array.
static int read_elements(text_view v, text_view tool, const json_t *tools, json_t *args, int depth) {
  while ((v = trim_view(v)).n) {
    text_view tag, value, key;
    if (v.at[0] != '<') return -1;
    v = rest_of(v, 1);
    if (!upto(&v, ">", &tag)) return -1;
    size_t n = 0;
    while (n < tag.n && !is_space(tag.at[n])) n++;
    str end = {0};
    str_addf(&end, "</%.*s>", (int)(n < 256 ? n : 256), tag.at);
    bool ended = upto(&v, end.at, &value);
    str_free(&end);
    if (!ended) return -1;
    key = name_attribute(tag);
    const json_t *schema = parameter_of(tools, tool, key);
    json_t *got =
      n == tag.n ? nested(value, schema, depth) : typed(value, find_text(tag, "string=\"true\"") != NULL, schema);
    bool item = n == 4 && !memcmp(tag.at, "item", 4);
    if (json_is_array(args) && !item) { json_decref(got); return -1; }
    if (json_is_array(args) ? json_array_append_new(args, got) : set_member(args, key, got)) return -1;
  }
  return 0;
}

static int invoke_calls(text_view v, const json_t *tools, calls *out) {
  while ((v = trim_view(v)).n) {
    text_view tag, body;
    if (begins(v, "</")) return upto(&v, ">", &tag) && !trim_view(v).n ? 0 : -1;  // the end of <function_calls>
    if (v.at[0] != '<') return -1;
    v = rest_of(v, 1);
    if (!upto(&v, ">", &tag)) return -1;
    if (!begins(tag, "invoke")) { if (tag.n < 64 && !find_text(tag, "=")) continue; return -1; }
    if (!upto(&v, "</invoke>", &body)) return -1;
    json_t *args = json_object();
    text_view name = name_attribute(tag);
    int status = read_elements(body, name, tools, args, 0);
    if (!status) status = add_one_call(out, name, (text_view){0}, args);
    json_decref(args);
    if (status) return -1;
  }
  return 0;
}

// NAME, then pairs of <arg_key> and <arg_value>.
static int key_value_call(text_view v, const json_t *tools, calls *out) {
  size_t n = 0;
  while (n < v.n && v.at[n] != '<' && v.at[n] != '\n') n++;
  text_view name = trim_view((text_view){v.at, n});
  v = trim_view(rest_of(v, n));
  if (begins(v, "<tool_sep>")) v = trim_view(rest_of(v, 10));
  json_t *args = json_object();
  int status = 0;
  for (; !status && v.n; v = trim_view(v)) {
    text_view key, value, between;
    if (!begins(v, "<arg_key>")) { status = -1; break; }
    v = rest_of(v, 9);
    if (!upto(&v, "</arg_key>", &key) || !upto(&v, "<arg_value>", &between) || trim_view(between).n ||
        !upto(&v, "</arg_value>", &value)) {
      status = -1;
      break;
    }
    key = trim_view(key);
    status = set_member(args, key, typed(value, false, parameter_of(tools, name, key)));
  }
  if (!status) status = add_one_call(out, name, (text_view){0}, args);
  json_decref(args);
  return status;
}

// ---- Python, and JSON with bare keys --------------------------------------------------------------------------------

static void skip_spaces(text_view *v) { while (v->n && is_space(v->at[0])) *v = rest_of(*v, 1); }
static bool take_prefix(text_view *v, const char *what) {
  skip_spaces(v);
  if (!begins(*v, what)) return false;
  *v = rest_of(*v, strlen(what));
  return true;
}

static text_view take_word_text(text_view *v) {
  skip_spaces(v);
  size_t n = 0;
  while (n < v->n && is_name_char(v->at[n]) && v->at[n] != ':') n++;
  text_view w = {v->at, n};
  *v = rest_of(*v, n);
  return w;
}

// Four hexadecimal digits, or -1.
static int32_t hex4(text_view v) {
  int32_t c = 0;
  for (size_t i = 0; i < 4; i++) {
    int digit = i < v.n ? hex_value(v.at[i]) : -1;
    if (digit < 0) return -1;
    c = c << 4 | digit;
  }
  return c;
}

// What stands behind a backslash, of Python or JSON; returns how much it is.  An unknown one keeps its backslash.
static size_t escape(text_view v, str *out) {
  static const char from[] = "nrtbf\\'\"/", to[] = "\n\r\t\b\f\\'\"/";
  const char *known = v.at[0] ? strchr(from, v.at[0]) : NULL;
  int32_t c = v.at[0] == 'u' ? hex4(rest_of(v, 1)) : -1;
  size_t n = 5;
  if (known) { str_addc(out, to[known - from]); return 1; }
  if (c >= 0xD800 && c < 0xDC00 && v.n > 6 && v.at[5] == '\\' && v.at[6] == 'u') {
    int32_t low = hex4(rest_of(v, 7));
    if (low >= 0xDC00 && low < 0xE000) { c = 0x10000 + ((c - 0xD800) << 10 | (low - 0xDC00)); n = 11; }
  }
  if (c <= 0 || (c >= 0xD800 && c < 0xE000)) { str_addc(out, '\\'); str_addc(out, v.at[0]); return 1; }
  char b[4];
  str_addn(out, b, (size_t)utf8_put((uint32_t)c, b));
  return n;
}

static json_t *quoted(text_view *v) {
  text_view s;
  if (take_prefix(v, QUOTE)) return upto(v, QUOTE, &s) ? json_stringn(s.at, s.n) : NULL;
  char quote = v->at[0];
  str text = {0};
  str_add(&text, "");
  for (*v = rest_of(*v, 1); v->n && v->at[0] != quote; *v = rest_of(*v, 1)) {
    char c = v->at[0];
    if (c == '\\' && v->n > 1) *v = rest_of(*v, escape(rest_of(*v, 1), &text));
    else str_addc(&text, c);
  }
  json_t *value = take_prefix(v, (char[]){quote, 0}) ? json_stringn(text.at, text.n) : NULL;
  str_free(&text);
  return value;
}

// Members up to `end`, each KEY separator VALUE.
static int members(text_view *v, const char *end, const char *separator, json_t *object, int depth) {
  if (take_prefix(v, end)) return 0;
  for (;;) {
    skip_spaces(v);
    bool is_quoted = v->n && (v->at[0] == '"' || v->at[0] == '\'' || begins(*v, QUOTE));
    json_t *name = is_quoted ? quoted(v) : NULL;
    text_view key = is_quoted ? string_of(name) : take_word_text(v);
    bool ok = key.n && take_prefix(v, separator);
    json_t *value = ok ? read_literal(v, depth) : NULL;
    int status = set_member(object, key, value);
    json_decref(name);
    if (status) return -1;
    if (take_prefix(v, end)) return 0;
    if (!take_prefix(v, ",")) return -1;
    if (take_prefix(v, end)) return 0;
  }
}

static json_t *read_values(text_view *v, const char *end, int depth) {
  json_t *array = json_array();
  while (!take_prefix(v, end)) {
    json_t *value = read_literal(v, depth);
    if (!value || json_array_append_new(array, value) || (!take_prefix(v, ",") && !begins(*v, end))) {
      json_decref(array);
      return NULL;
    }
  }
  return array;
}

static json_t *read_literal(text_view *v, int depth) {
  static const struct { const char *word; json_type type;
  } constants[] = {{"True", JSON_TRUE},   {"true", JSON_TRUE}, {"False", JSON_FALSE},
                   {"false", JSON_FALSE}, {"None", JSON_NULL}, {"null", JSON_NULL}};
  skip_spaces(v);
  if (!v->n || depth > MAX_DEPTH) return NULL;
  if (v->at[0] == '"' || v->at[0] == '\'' || begins(*v, QUOTE)) return quoted(v);
  if (take_prefix(v, "[")) return read_values(v, "]", depth + 1);
  if (take_prefix(v, "(")) return read_values(v, ")", depth + 1);
  if (take_prefix(v, "{")) {
    json_t *object = json_object();
    if (!members(v, "}", ":", object, depth + 1)) return object;
    json_decref(object);
    return NULL;
  }
  text_view w = {v->at, 0};
  while (w.n < v->n && (is_name_char(v->at[w.n]) || v->at[w.n] == '+') && v->at[w.n] != ':') w.n++;
  *v = rest_of(*v, w.n);
  for (size_t i = 0; i < COUNT(constants); i++) {
    if (strlen(constants[i].word) != w.n || memcmp(constants[i].word, w.at, w.n)) continue;
    return constants[i].type == JSON_NULL ? json_null() : json_boolean(constants[i].type == JSON_TRUE);
  }
  json_t *number = w.n ? json_load(w.at, w.n, JSON_DECODE_ANY, NULL) : NULL;
  if (number && !json_is_number(number)) { json_decref(number); return NULL; }
  return number;
}

// NAME open KEY separator VALUE, ... close
static int one_call(text_view *v, const char *open, const char *close, const char *separator, calls *out) {
  text_view name = take_word_text(v);
  if (!take_prefix(v, open)) return -1;
  if (name.n > 5 && !memcmp(name.at + name.n - 5, ".call", 5)) name.n -= 5;
  json_t *args = json_object();
  int status = members(v, close, separator, args, 0);
  if (!status) status = add_one_call(out, name, (text_view){0}, args);
  json_decref(args);
  return status;
}

// [NAME(...), NAME(...)], or one after the other where there may be several.
static int python_calls(text_view v, bool several, calls *out) {
  bool in_list = take_prefix(&v, "[");
  do
    if (one_call(&v, "(", ")", "=", out)) return -1;
  while (in_list ? take_prefix(&v, ",") : several && trim_view(v).n);
  if (in_list && !take_prefix(&v, "]")) return -1;
  return trim_view(v).n ? -1 : 0;
}

static int bare_calls(text_view v, calls *out) {
  while (take_prefix(&v, "call:")) if (one_call(&v, "{", "}", ":", out)) return -1;
  return trim_view(v).n ? -1 : 0;
}

// ---- which one ------------------------------------------------------------------------------------------------------

static int read_named(const char *name, text_view v, const json_t *tools, calls *out) {
  if (v.n && v.at[0] == '<') return invoke_calls(v, tools, out);
  json_t *args = v.n ? json_load(v.at, v.n, 0, NULL) : json_object();
  if (!json_is_object(args)) {                      // a tool that takes plain text
    json_decref(args);
    args = json_object();
    json_object_set_new(args, "input", json_stringn(v.at, v.n));
  }
  int status = add_one_call(out, (text_view){name, strlen(name)}, (text_view){0}, args);
  json_decref(args);
  return status;
}

static int read(const struct call_marks *m, text_view v, const json_t *tools, calls *out) {
  if (!v.n) return -1;
  text_view inside = trim_view(rest_of(v, 1));
  if (v.at[0] == '{' || (v.at[0] == '[' && (begins(inside, "{") || begins(inside, "[")))) {
    if (json_calls(v, out)) return -1;
    if (!(m->flags & MARKS_FIRST)) return 0;
    for (size_t i = 0; i < out->n; i++)   // unmarked: only if it names a tool, since answers may be JSON as well
      if (!answer_knows_tool(tools, (text_view){out->at[i].name, strlen(out->at[i].name)})) return -1;
    return 0;
  }
  if (begins(v, "<function=")) return function_calls(v, tools, out);
  if (v.at[0] == '<') return invoke_calls(v, tools, out);
  if (begins(v, "call:")) return bare_calls(v, out);
  if (v.at[0] == '[') return python_calls(v, false, out);
  if (find_text(v, "<arg_key>")) return key_value_call(v, tools, out);
  size_t had = out->n;
  if (memchr(v.at, '(', v.n) && !python_calls(v, !(m->flags & MARKS_CODE), out)) return 0;
  while (out->n > had) { struct call *c = &out->at[--out->n]; free(c->name); free(c->id); free(c->arguments); }
  if (!(m->flags & MARKS_CODE))
    return memchr(v.at, '{', v.n) ? name_then_json(m, v, out) : key_value_call(v, tools, out);
  json_t *args = json_object();
  json_object_set_new(args, "code", json_stringn(v.at, v.n));
  int status = add_one_call(out, (text_view){"python", 6}, (text_view){0}, args);
  json_decref(args);
  return status;
}

static void strip_marks(const struct call_marks *m, text_view v, str *out) {
  text_view piece;
  str_add(out, "");
  while (m->strip && upto(&v, m->strip, &piece)) str_addn(out, piece.at, piece.n);
  str_addn(out, v.at, v.n);
}

int answer_read_calls(const struct call_marks *marks, const char *name, const char *text, size_t n, const json_t *tools,
                      calls *out) {
  str plain = {0};
  calls read_ones = {0};
  if (memchr(text, 0, n)) return -1;     // JSON strings with NUL in them come to no good
  strip_marks(marks, (text_view){text, n}, &plain);
  text_view v = trim_view((text_view){plain.at, plain.n});
  int status = name ? read_named(name, v, tools, &read_ones) : read(marks, v, tools, &read_ones);
  str_free(&plain);
  for (size_t i = 0; !status && i < read_ones.n; i++) vec_push(out, read_ones.at[i]);
  if (!status) vec_free(&read_ones);
  else calls_free(&read_ones);
  return status;
}
