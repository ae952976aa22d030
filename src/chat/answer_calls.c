// Parses the inside of tool calls: see answer.h. A state machine takes one character at a time and writes arguments as
// soon as their JSON is known. It recognises eight notations by their beginning:
//   {"name": ..., "arguments": {...}} [...]     JSON objects, in an array or one after the other; or {"NAME": {...}}
//   <function=NAME><parameter=KEY>V</parameter></function>, <function=NAME>{...}</function>
//   <invoke name="NAME"><parameter name="KEY">V</parameter></invoke>, or <KEY>V</KEY>
//   NAME<arg_key>KEY</arg_key><arg_value>V</arg_value>
//   [NAME(KEY=V, ...)], NAME.call(KEY=V)        Python
//   call:NAME{KEY:V}                            with <|"|> for quotes
//   NAME marker {...}                           a name before the arguments
//   anything                                    code, if the format has it
//
// A call is reported with the first member of its arguments: before that, the text may turn out not to be a call. Names
// and arguments go to `out` as parts.
#define _GNU_SOURCE
#include "chat/answer_impl.h"
#include "base/json.h"
#include "base/literal.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_CALLS = 256, MAX_NAME = 256, MAX_HEAD = 4096, MAX_TAG = 1024 };

enum role { ROLE_SKIP, ROLE_NAME, ROLE_ID, ROLE_ARGUMENTS, ROLE_FUNCTION, ROLE_MAYBE };
typedef bool step(call_reader *r, char c);
struct call_reader {
  const struct call_marks *marks;
  answer_tools *tools;
  own_parts *out;
  step *step;
  size_t stripped;           // bytes of marks->strip seen so far
  size_t n_calls;            // reported calls
  str name, id, args;        // args: JSON that is not in `out` yet
  bool open, said, whole;    // a call is being read; it is reported; its arguments are complete
  bool ready;                // the arguments have a member, or are complete: with a name, the call can be reported
  bool listed;               // between [ and ]
  bool named;                // a header contained the name
  literal value, other;      // parsers: value for arguments; other for keys and other members, into `word`
  str word;                  // the current head, tag, key or value
  // ---- JSON around a call
  enum role role;
  bool inner;                // within "function": {...}
  size_t members;
  str key;
  // ---- XML
  enum { NOT_TAGGED, BY_FUNCTION, BY_INVOKE, BY_KEYS } tagged;   // the notation of the call
  enum { VALUE_TEXT, VALUE_NULL, VALUE_LOOK, VALUE_HELD, VALUE_LITERAL } kind;
  bool nested, first;        // the value may have elements; no member yet
  struct shape shape;
  unsigned types;
  str end;                   // the tag that ends the value
  size_t ended;              // bytes of it seen so far
  // ---- text values
  bool began, trimmed;       // has a character; all white space around it is trimmed instead of one line end
  str space;                 // white space at its end, held back
};

// ---- calls ----------------------------------------------------------------------------------------------------------

static text_view str_view(const str *s) { return (text_view){str_c(s), s->n}; }
static text_view text_of(const json_t *s) { return (text_view){json_string_value(s), json_string_length(s)}; }
static bool begins(text_view v, const char *with) {
  size_t n = strlen(with);
  return v.n >= n && !memcmp(v.at, with, n);
}
static text_view rest_of(text_view v, size_t n) { return (text_view){v.at + n, v.n - n}; }
static text_view upto_char(text_view v, const char *chars) {
  size_t n = 0;
  while (n < v.n && !(v.at[n] && strchr(chars, v.at[n]))) n++;
  return (text_view){v.at, n};
}

static void set_str(str *s, text_view v) {
  s->n = 0;
  str_addn(s, v.at, v.n);
}

static bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_-.$/:", c)) ||
         (unsigned char)c >= 128;
}

static void open_call(call_reader *r) {
  r->open = true;
  r->said = r->whole = r->ready = r->inner = false;
  r->first = true;
  r->tagged = NOT_TAGGED;
  r->name.n = r->id.n = r->args.n = r->members = 0;
  literal_free(&r->value);
}

// Sets the name, which is one word. A call without a marker must name a known tool, since answers may be JSON as well.
static bool set_call_name(call_reader *r, text_view name) {
  name = answer_trim(name);
  if (begins(name, "functions.")) name = rest_of(name, 10);
  if (!name.n || name.n > MAX_NAME || r->n_calls == MAX_CALLS) return false;
  for (size_t i = 0; i < name.n; i++) if (!is_name_char(name.at[i])) return false;
  if (r->marks->flags & MARKS_FIRST && !answer_knows_tool(r->tools, name)) return false;
  set_str(&r->name, name);
  return true;
}

static bool open_named_call(call_reader *r, text_view name) {
  open_call(r);
  return set_call_name(r, name);
}

// Writes the known part of the call to `out`.
static void say_call(call_reader *r) {
  struct own_part part = {.p.kind = ANSWER_CALL};
  bool first = !r->said;
  if (first) {
    part.name = xstrdup(r->name.at);
    part.id = r->id.n && r->id.n < MAX_NAME ? xstrdup(r->id.at) : NULL;
    r->said = true;
    r->n_calls++;
  }
  if (first || !r->out->n || r->out->at[r->out->n - 1].p.kind != ANSWER_CALL) vec_push(r->out, part);
  struct own_part *last = &r->out->at[r->out->n - 1];
  str_addn(&last->text, str_c(&r->args), r->args.n);
  last->p.done = r->whole;
  r->args.n = 0;
}

static bool say_ready(call_reader *r) {
  r->ready |= r->value.member;
  if (r->said ? r->args.n > 0 : r->ready && r->name.n > 0) say_call(r);
  return true;
}

static bool end_tool_call(call_reader *r, step *next) {
  r->whole = true;
  say_call(r);
  r->open = false;
  r->tagged = NOT_TAGGED;
  r->step = next;
  return true;
}

static int status_of(enum literal_status s) {
  static const int results[] = {[LITERAL_MORE] = 0, [LITERAL_WHOLE] = 1, [LITERAL_BEFORE] = 2, [LITERAL_BAD] = -1};
  return results[s];
}

// Feeds the arguments. 0: more; 1: complete with c; -1: not arguments. They are objects, which end with a brace.
static int feed_arguments(call_reader *r, char c) {
  int s = status_of(literal_push(&r->value, c));
  if (s >= 0) say_ready(r);
  return s;
}

static void begin_arguments(call_reader *r) { literal_begin(&r->value, &r->args); }

static bool go(call_reader *r, step *next, char c) {
  r->step = next;
  return next(r, c);
}

static step at_start, at_head, between_tags, json_key, python_name, in_text;

// ---- JSON -----------------------------------------------------------------------------------------------------------

// Reads text between calls.
static bool json_item(call_reader *r, char c) {
  if (answer_space(c) || (r->n_calls && (c == ',' || c == ';'))) return true;
  if (c == ']' && r->listed && r->n_calls) { r->listed = false; return true; }
  if (c == '[' && !r->listed) { r->listed = true; return true; }
  if (c != '{') return false;
  open_call(r);
  r->step = json_key;
  return true;
}

static bool take_json_call(call_reader *r) {
  if (r->role == ROLE_MAYBE && !r->name.n && !set_call_name(r, str_view(&r->key))) return false;
  if (!r->name.n) return false;
  if (!r->said && !r->ready) set_str(&r->args, (text_view){"{}", 2});
  return end_tool_call(r, json_item);
}

static bool json_after(call_reader *r, char c) {
  if (answer_space(c)) return true;
  if (c == ',') {
    if (r->role == ROLE_MAYBE && !r->name.n) { r->args.n = 0; r->ready = false; }
    r->step = json_key;
    return true;
  }
  if (c != '}') return false;
  if (!r->inner) return take_json_call(r);
  r->inner = false;
  return true;
}

// The string in r->word as JSON; NULL: it is not a string.
static json_t *word_string(call_reader *r) {
  json_t *s = json_load(str_c(&r->word), r->word.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
  if (json_is_string(s)) return s;
  json_decref(s);
  return NULL;
}

// Takes arguments that are a string with JSON in it, or absent.
static bool take_text_arguments(call_reader *r) {
  json_t *s = word_string(r);
  text_view v = answer_trim(text_of(s));
  bool none = s ? !v.n : !strcmp(str_c(&r->word), "null");
  r->ready = none || (begins(v, "{") && literal_read(v.at, v.n, &r->args));
  if (none) set_str(&r->args, (text_view){"{}", 2});
  json_decref(s);
  r->value.state = LIT_DONE;
  return r->ready;
}

static bool take_member(call_reader *r) {
  if (r->role == ROLE_SKIP) return true;
  if (r->role == ROLE_ARGUMENTS) return take_text_arguments(r);
  json_t *s = word_string(r);
  bool ok = s || r->role == ROLE_ID;     // a numeric id is accepted but not used
  if (s && r->role == ROLE_ID) set_str(&r->id, text_of(s));
  if (s && r->role == ROLE_NAME) ok = set_call_name(r, text_of(s));
  json_decref(s);
  return ok;
}

static bool json_member(call_reader *r, char c) {
  int s = status_of(literal_push(&r->other, c));
  if (s <= 0) return !s;
  r->step = json_after;
  return take_member(r) && say_ready(r) && (s == 1 || json_after(r, c));
}

static bool json_arguments(call_reader *r, char c) {
  int s = feed_arguments(r, c);
  if (s == 1) r->step = json_after;
  return s >= 0;
}

static const struct { const char *key; enum role role; } roles[] = {
  {"name", ROLE_NAME},       {"tool_name", ROLE_NAME},      {"id", ROLE_ID},
  {"tool_call_id", ROLE_ID}, {"arguments", ROLE_ARGUMENTS}, {"parameters", ROLE_ARGUMENTS},
  {"args", ROLE_ARGUMENTS},  {"function", ROLE_FUNCTION},   {"type", ROLE_SKIP}};

static enum role role_of(call_reader *r, char c) {
  enum role role = ROLE_MAYBE;
  for (size_t i = 0; i < COUNT(roles); i++) if (!strcmp(str_c(&r->key), roles[i].key)) role = roles[i].role;
  if (role == ROLE_FUNCTION && c != '{') role = c == '"' ? ROLE_NAME : ROLE_SKIP;
  if (role == ROLE_FUNCTION && r->inner) role = ROLE_SKIP;
  if ((role == ROLE_NAME && r->name.n) || (role == ROLE_ARGUMENTS && r->ready)) role = ROLE_SKIP;
  if (role == ROLE_MAYBE && (c != '{' || r->members > 1)) role = ROLE_SKIP;
  return role;
}

static bool json_value(call_reader *r, char c) {
  if (answer_space(c)) return true;
  r->role = role_of(r, c);
  if (r->role == ROLE_FUNCTION) { r->inner = true; r->step = json_key; return true; }
  if (r->role == ROLE_MAYBE && answer_knows_tool(r->tools, str_view(&r->key)) && !set_call_name(r, str_view(&r->key)))
    return false;
  if (r->role == ROLE_MAYBE || (r->role == ROLE_ARGUMENTS && c == '{')) {
    begin_arguments(r);
    return go(r, json_arguments, c);
  }
  r->word.n = 0;
  literal_begin(&r->other, &r->word);
  return go(r, json_member, c);
}

static bool json_colon(call_reader *r, char c) {
  r->step = json_value;
  if (answer_space(c)) r->step = json_colon;
  return c == ':' || answer_space(c);
}

static bool json_in_key(call_reader *r, char c) {
  int s = status_of(literal_push(&r->other, c));
  if (s <= 0) return !s;
  json_t *key = word_string(r);
  if (key) set_str(&r->key, text_of(key));
  json_decref(key);
  r->step = json_colon;
  return key;
}

static bool json_key(call_reader *r, char c) {
  if (answer_space(c)) return true;
  if (c != '"') return false;
  r->members++;
  r->word.n = 0;
  literal_begin(&r->other, &r->word);
  return go(r, json_in_key, c);
}

// ---- a name, then an object -----------------------------------------------------------------------------------------

static const char *find_in_view(text_view v, const char *what, size_t n) {
  return v.n ? memmem(v.at, v.n, what, n) : NULL;
}

// Returns the text after `mark`, if it is not blank; otherwise v. before: the text in front of the mark.
static text_view head_after(text_view v, const char *mark, text_view *before) {
  const char *at = mark ? find_in_view(v, mark, strlen(mark)) : NULL;
  if (!at) return v;
  text_view rest = rest_of(v, (size_t)(at - v.at) + strlen(mark));
  if (!answer_trim(rest).n) return v;
  *before = answer_trim((text_view){v.at, (size_t)(at - v.at)});
  return rest;
}

// Reads NAME and its markers, with an optional id: "call1<name>NAME<args>", "functions.NAME:0<args>",
// "NAME[CALL_ID]id[ARGS]".
static bool take_call_head(call_reader *r, text_view head) {
  text_view id = {0}, after_id = {0};
  open_call(r);
  head = head_after(head, r->marks->before_name, &id);
  if (id.n == 8 && begins(id, "function")) id.n = 0;             // the kind of tool, not an id
  const char *call_id = find_in_view(head, "[CALL_ID]", 9);
  if (call_id) after_id = rest_of(head, (size_t)(call_id - head.at) + 9);
  if (call_id) id = answer_trim(upto_char(after_id, "["));
  for (const char *mark = r->marks->after_name; mark && *mark;) {
    size_t n = strcspn(mark, "\n");
    const char *at = find_in_view(head, mark, n);
    if (at && answer_trim((text_view){head.at, (size_t)(at - head.at)}).n) head.n = (size_t)(at - head.at);
    mark += n + (mark[n] == '\n');
  }
  head = upto_char(answer_trim(head), "\n");                     // ```json may be on the next line
  text_view name = begins(head, "functions.") ? upto_char(head, ":") : head;
  if (name.n < head.n) id = head;
  set_str(&r->id, id);
  return set_call_name(r, name);
}

static bool after_object(call_reader *r, char c) {
  if (answer_space(c) || c == '`') return true;
  r->word.n = 0;
  return go(r, at_head, c);
}

static bool head_arguments(call_reader *r, char c) {
  int s = feed_arguments(r, c);
  return s == 1 ? end_tool_call(r, after_object) : !s;
}

// ---- Python ---------------------------------------------------------------------------------------------------------

static bool only_space(call_reader *r, char c) { (void)r; return answer_space(c); }

static bool python_after(call_reader *r, char c) {
  if (answer_space(c)) return true;
  if (r->listed && c == ']') { r->step = only_space; return true; }
  if (r->listed && c == ',') { r->word.n = 0; r->step = python_name; return true; }
  r->word.n = 0;
  return !r->listed && !(r->marks->flags & MARKS_CODE) && go(r, at_head, c);
}

static bool python_arguments(call_reader *r, char c) {
  int s = feed_arguments(r, c);
  return s == 1 ? end_tool_call(r, python_after) : !s;
}

static bool begin_python(call_reader *r) {
  text_view name = answer_trim(str_view(&r->word));
  bool builtin = name.n > 5 && !memcmp(name.at + name.n - 5, ".call", 5);
  if (builtin) name.n -= 5;
  if (!open_named_call(r, name)) return false;
  if (r->marks->flags & MARKS_CODE && !builtin && !answer_knows_tool(r->tools, name)) return false;
  literal_begin_keywords(&r->value, &r->args);
  r->step = python_arguments;
  return true;
}

static bool python_name(call_reader *r, char c) {
  if (c == '(') return begin_python(r);
  str_addc(&r->word, c);
  return r->word.n < MAX_NAME && (answer_space(c) || is_name_char(c));
}

// ---- text values ----------------------------------------------------------------------------------------------------

static bool is_held(const call_reader *r, char c) { return r->trimmed ? answer_space(c) : c == '\n'; }

// Adds a character of a string. White space at its end is held back; at its beginning it is dropped.
static void put_argument_text(call_reader *r, char c) {
  bool held = is_held(r, c);
  if (held && !r->began) { r->began = !r->trimmed; return; }
  r->began = true;
  if (!held || !r->trimmed) {
    for (size_t i = 0; i < r->space.n; i++) literal_put(&r->args, r->space.at[i]);
    r->space.n = 0;
  }
  if (held) str_addc(&r->space, c);
  else literal_put(&r->args, c);
}

static void begin_text(call_reader *r, bool trimmed) {
  str_addc(&r->args, '"');
  r->began = false;
  r->trimmed = trimmed;
  r->space.n = 0;
}

// Reads arguments that are a single text.
static bool in_text(call_reader *r, char c) {
  put_argument_text(r, c);
  r->ready |= r->began;
  return say_ready(r);
}

static bool begin_whole_text(call_reader *r, const char *name, const char *key) {
  bool ok = name ? open_named_call(r, (text_view){name, strlen(name)}) : true;
  r->args.n = 0;
  str_addf(&r->args, "{\"%s\":", key);
  begin_text(r, true);
  r->step = in_text;
  text_view had = str_view(&r->word);
  for (size_t i = 0; i < had.n && ok; i++) in_text(r, had.at[i]);
  r->word.n = 0;
  return ok;
}

// ---- XML ------------------------------------------------------------------------------------------------------------

// The value of name="..." in a tag, otherwise its whole first word.
static text_view name_attribute(text_view tag) {
  const char *at = find_in_view(tag, "name=\"", 6);
  return at ? upto_char(rest_of(tag, (size_t)(at - tag.at) + 6), "\"") : upto_char(tag, " \n\t\r");
}

static bool put_key(call_reader *r) {
  str_addc(&r->args, r->first ? '{' : ',');
  r->first = false;
  answer_put_string(&r->args, str_view(&r->key));
  str_addc(&r->args, ':');
  r->ready = true;
  return say_ready(r);
}

static void put_held(call_reader *r) {
  if (r->nested) answer_put_nested(&r->args, str_view(&r->word), r->shape, 0);
  else answer_put_value(&r->args, str_view(&r->word), r->types);
}

static bool end_xml_value(call_reader *r) {
  switch (r->kind) {
  case VALUE_TEXT: str_addc(&r->args, '"'); break;
  case VALUE_LITERAL: if (r->value.state < LIT_DONE && !literal_end(&r->value)) return false; break;
  default: put_held(r); break;
  }
  r->step = between_tags;
  return say_ready(r);
}

// Returns whether the text so far may still become null.
static bool maybe_null(const call_reader *r) {
  text_view v = answer_trim(str_view(&r->word));
  return v.n <= 4 && (!memcmp("null", v.at, v.n) || !memcmp("None", v.at, v.n));
}

static bool put_literal(call_reader *r, char c) {
  return r->value.state == LIT_DONE ? answer_space(c) : literal_push(&r->value, c) != LITERAL_BAD;
}

static bool replay_held(call_reader *r, bool text) {
  bool ok = true;
  r->kind = text ? VALUE_TEXT : VALUE_LITERAL;
  if (text) begin_text(r, false);
  else literal_begin(&r->value, &r->args);
  for (size_t i = 0; i < r->word.n && ok; i++)
    if (text) put_argument_text(r, r->word.at[i]);
    else ok = put_literal(r, r->word.at[i]);
  return ok;
}

static bool put_xml_value(call_reader *r, char c) {
  if (r->kind == VALUE_TEXT) { put_argument_text(r, c); return true; }
  if (r->kind == VALUE_LITERAL) return put_literal(r, c);
  str_addc(&r->word, c);
  if (r->kind == VALUE_NULL && !maybe_null(r)) return replay_held(r, true);
  if (r->kind != VALUE_LOOK || answer_space(c)) return true;
  r->kind = VALUE_HELD;
  return c != '{' && c != '[' ? true : replay_held(r, false);
}

static bool in_value(call_reader *r, char c) {
  bool ok = true;
  if (c == r->end.at[r->ended]) return ++r->ended < r->end.n || end_xml_value(r);
  size_t n = r->ended;                   // not the end tag, which has only one '<'
  r->ended = 0;
  for (size_t i = 0; i < n && ok; i++) ok = put_xml_value(r, r->end.at[i]);
  if (ok && c == r->end.at[0]) r->ended = 1;
  else if (ok) ok = put_xml_value(r, c);
  return ok && say_ready(r);
}

// Begins the value of r->key, up to </tag>. text: the tag declares a string; bare: it declares another type.
static bool begin_value(call_reader *r, text_view tag, bool text, bool bare) {
  r->end.n = 0;
  str_addf(&r->end, "</%.*s>", (int)tag.n, tag.at);
  r->ended = r->word.n = 0;
  r->shape = answer_parameter(r->tools, str_view(&r->name), str_view(&r->key));
  r->types = text ? TYPE_STRING : answer_types(r->shape);
  if (bare) r->types &= ~(unsigned)TYPE_STRING;
  r->kind = r->types == TYPE_STRING                                            ? VALUE_TEXT
            : r->types == (TYPE_STRING | TYPE_NULL)                            ? VALUE_NULL
            : r->types & (TYPE_STRING | TYPE_BOOLEAN | TYPE_INTEGER | TYPE_NUMBER) && !bare ? VALUE_HELD
                                                                               : VALUE_LOOK;
  r->step = in_value;
  put_key(r);
  if (r->kind == VALUE_TEXT) begin_text(r, false);
  return true;
}

static bool function_arguments(call_reader *r, char c) {
  int s = feed_arguments(r, c);
  if (s == 1) { r->first = false; r->whole = true; r->step = between_tags; }
  return s >= 0;
}

static bool begin_tagged(call_reader *r, text_view name, unsigned how) {
  if (r->tagged || !open_named_call(r, name)) return false;
  r->tagged = how;
  return true;
}

static bool end_tagged(call_reader *r) {
  if (!r->whole) str_add(&r->args, r->first ? "{}" : "}");
  return end_tool_call(r, between_tags);
}

static bool in_key(call_reader *r, char c) {
  str_addc(&r->word, c);
  if (r->word.n > MAX_TAG || c != '>') return r->word.n <= MAX_TAG;
  size_t n = strlen("</arg_key>");
  if (r->word.n < n || memcmp(r->word.at + r->word.n - n, "</arg_key>", n)) return true;
  set_str(&r->key, answer_trim((text_view){r->word.at, r->word.n - n}));
  r->step = between_tags;
  return r->key.n;
}

static bool take_xml_tag(call_reader *r, text_view tag) {
  text_view word = upto_char(tag, " \n\t\r");
  r->step = between_tags;
  if (r->tagged == BY_KEYS) {
    if (begins(tag, "tool_sep") && r->first) return true;
    if (begins(tag, "arg_value") && r->key.n) {
      bool ok = begin_value(r, word, false, false);
      r->key.n = 0;
      return ok;
    }
    r->word.n = 0;
    r->step = in_key;
    return begins(tag, "arg_key");
  }
  if (begins(tag, "function=")) return begin_tagged(r, rest_of(tag, 9), BY_FUNCTION);
  if (begins(tag, "invoke") && !r->tagged) return begin_tagged(r, name_attribute(tag), BY_INVOKE);
  if (!r->tagged) return tag.n < 64 && !memchr(tag.at, '=', tag.n);              // tags around calls
  if (begins(tag, r->tagged == BY_FUNCTION ? "/function" : "/invoke")) return end_tagged(r);
  if (begins(tag, "/") || r->whole) return false;
  r->nested = word.n == tag.n && r->tagged == BY_INVOKE;
  if (r->tagged == BY_FUNCTION) {
    if (!begins(tag, "parameter=")) return false;
    set_str(&r->key, answer_trim(rest_of(tag, 10)));
    return r->key.n && begin_value(r, (text_view){"parameter", 9}, false, false);
  }
  set_str(&r->key, name_attribute(tag));
  return r->key.n &&
         begin_value(r, word, find_in_view(tag, "string=\"true\"", 13), find_in_view(tag, "string=\"false\"", 14));
}

static bool in_tag(call_reader *r, char c) {
  if (c == '>') return take_xml_tag(r, str_view(&r->word));
  str_addc(&r->word, c);
  return r->word.n < MAX_TAG;
}

static bool between_tags(call_reader *r, char c) {
  if (answer_space(c)) return true;
  if (c == '{' && r->open && r->tagged == BY_FUNCTION && r->first && !r->whole) {
    begin_arguments(r);
    return go(r, function_arguments, c);
  }
  r->word.n = 0;
  r->step = in_tag;
  return c == '<';
}

// ---- detection of the notation --------------------------------------------------------------------------------------

static bool after_bracket(call_reader *r, char c) {
  if (answer_space(c)) return true;
  r->listed = true;
  return go(r, c == '{' ? json_item : python_name, c);
}

// Reads a name; the next character decides the notation.
static bool at_head(call_reader *r, char c) {
  static const char key[] = "<arg_key>";
  text_view v = str_view(&r->word);
  bool bare = begins(v, "call:");
  if (!v.n && answer_space(c)) return true;
  if (c == '(' && !bare) return begin_python(r);
  if (c == '{') {
    bool ok = bare ? open_named_call(r, rest_of(v, 5)) : take_call_head(r, v);
    begin_arguments(r);
    return ok && go(r, head_arguments, c);
  }
  str_addc(&r->word, c);
  v = str_view(&r->word);
  if (v.n < sizeof key || memcmp(v.at + v.n - (sizeof key - 1), key, sizeof key - 1)) return v.n < MAX_HEAD;
  if (!open_named_call(r, upto_char(v, "<\n"))) return false;
  r->tagged = BY_KEYS;
  r->word.n = 0;
  r->step = in_key;
  return true;
}

// Reads code, unless it is a call of a known tool.
static bool at_code(call_reader *r, char c) {
  bool call = c == '(' && r->word.n && begin_python(r);
  if (call || (r->word.n < MAX_NAME && is_name_char(c) && (str_addc(&r->word, c), true))) return true;
  return begin_whole_text(r, "python", "code") && in_text(r, c);
}

// Reads the arguments of a tool whose name is known: an object, elements, or a text.
static bool at_named(call_reader *r, char c);
static bool named_object(call_reader *r, char c) {
  str_addc(&r->word, c);
  int s = feed_arguments(r, c);
  if (s == 1) { r->word.n = 0; return end_tool_call(r, only_space); }
  return s == 0 || (!r->said && begin_whole_text(r, NULL, "input"));
}

static bool at_named(call_reader *r, char c) {
  if (answer_space(c)) return true;
  if (c == '<') return go(r, between_tags, c);
  r->word.n = 0;
  begin_arguments(r);
  if (c == '{') return go(r, named_object, c);
  return begin_whole_text(r, NULL, "input") && in_text(r, c);
}

static bool at_start(call_reader *r, char c) {
  if (answer_space(c)) return true;
  if (c == '{') return go(r, json_item, c);
  if (c == '[') { r->step = after_bracket; return true; }
  if (c == '<') return go(r, between_tags, c);
  return go(r, r->marks->flags & MARKS_CODE ? at_code : at_head, c);
}

static bool dead(call_reader *r, char c) { (void)r, (void)c; return false; }

call_reader *call_reader_new(const struct call_marks *marks, const char *name, answer_tools *tools, own_parts *out) {
  call_reader *r = xcalloc(1, sizeof *r);
  *r = (call_reader){.marks = marks, .tools = tools, .out = out, .step = at_start, .named = name};
  if (name) r->step = open_named_call(r, (text_view){name, strlen(name)}) ? at_named : dead;
  return r;
}

void call_reader_free(call_reader *r) {
  if (!r) return;
  literal_free(&r->value);
  literal_free(&r->other);
  str *all[] = {&r->name, &r->id, &r->args, &r->word, &r->key, &r->end, &r->space};
  for (size_t i = 0; i < COUNT(all); i++) str_free(all[i]);
  free(r);
}

size_t call_reader_calls(const call_reader *r) { return r->n_calls; }
bool call_reader_between(const call_reader *r) { return r->n_calls && !r->open; }

static bool push_unstripped(call_reader *r, char c) {
  if (r->step(r, c)) return true;
  r->step = dead;
  return false;
}

bool call_reader_push(call_reader *r, char c) {
  const char *strip = r->marks->strip;
  if (!strip) return push_unstripped(r, c);
  if (c == strip[r->stripped]) {
    if (!strip[++r->stripped]) r->stripped = 0;
    return true;
  }
  size_t n = r->stripped;                // not the strip marker, although another one may begin within it
  r->stripped = 0;
  if (!n) return push_unstripped(r, c);
  bool ok = push_unstripped(r, strip[0]);
  for (size_t i = 1; i < n && ok; i++) ok = call_reader_push(r, strip[i]);
  return ok && call_reader_push(r, c);
}

// ---- the end --------------------------------------------------------------------------------------------------------

// Ends the text within an open call.
static bool finish_open_call(call_reader *r, bool cut) {
  step *at = r->step;
  bool tags = r->tagged && !cut;
  if (cut) {
    if (!r->name.n) return false;
    if (r->args.n || !r->said) say_call(r);
    return true;
  }
  if (at == in_text) str_add(&r->args, r->ready ? "\"}" : "");
  if (at == in_text && r->ready) return end_tool_call(r, dead);
  if (at == at_named) { set_str(&r->args, (text_view){"{}", 2}); return end_tool_call(r, dead); }
  if (at == named_object && !r->said) {
    if (!begin_whole_text(r, NULL, "input")) return false;
    str_add(&r->args, "\"}");
    return end_tool_call(r, dead);
  }
  if (tags && at == in_value && r->said) return end_xml_value(r) ? end_tagged(r) : r->said;
  if (tags && at != function_arguments && (at == between_tags || r->said))
    return r->tagged == BY_INVOKE && !r->said ? false : end_tagged(r);
  if (r->said && r->value.state == LIT_DONE) return end_tool_call(r, dead);
  return r->said;
}

// Returns whether the beginning of an object without a marker looks like a call: its keys are keys of calls, and its
// name is a prefix of a tool's name.
bool call_reader_promises(const call_reader *r) {
  text_view word = r->word.n ? rest_of(str_view(&r->word), 1) : str_view(&r->word);
  bool known = false;
  if (r->step == json_member && r->role == ROLE_NAME) return answer_begins_tool(r->tools, word);
  if (r->step != json_in_key) word = str_view(&r->key);
  for (size_t i = 0; i < COUNT(roles); i++)
    known |= strlen(roles[i].key) >= word.n && !memcmp(roles[i].key, word.at, word.n);
  return known && r->open;
}

bool call_reader_end(call_reader *r, bool cut) {
  for (size_t i = 0; i < r->stripped && !cut; i++) push_unstripped(r, r->marks->strip[i]);
  step *at = r->step;
  if (at == dead) return r->n_calls;
  if (r->open) return finish_open_call(r, cut) || r->n_calls;
  if (cut || r->n_calls) return r->n_calls;
  if (at == at_code && r->word.n) return begin_whole_text(r, "python", "code") && finish_open_call(r, false);
  text_view head = str_view(&r->word), name = upto_char(head, "<\n"), rest = answer_trim(rest_of(head, name.n));
  if (at != at_head || (rest.n && !(rest.n == 10 && begins(rest, "<tool_sep>"))) || !open_named_call(r, name))
    return false;
  str_add(&r->args, "{}");               // a name without arguments
  return end_tool_call(r, dead);
}
