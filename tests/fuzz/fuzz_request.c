// Fuzzes requests: the input decides, byte by byte, what a body of one of the endpoints has in it.  Members come from
// the tables that read bodies (as the JSON Schema that /openapi.json shows), values are what they allow, or are beside
// it.  The whole way through a server follows: no answer is a fault of the server, and those in JSON are JSON.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "serve_common.h"
#include "serve/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct choices {
  const uint8_t *at, *end;
  size_t nodes;
};
static unsigned choose(struct choices *c, unsigned below) { return c->at < c->end ? *c->at++ % below : 0; }

static json_t *text_value(struct choices *c) {
  static const char *const texts[] = {"",
                                      "a",
                                      "Hello <s>",
                                      "def f(x):\n",
                                      "user",
                                      "assistant",
                                      "tool",
                                      "function",
                                      "text",
                                      "json_schema",
                                      "json_object",
                                      "auto",
                                      "none",
                                      "required",
                                      "root ::= \"a\"+",
                                      "{\"type\":\"object\"}",
                                      "(?R)",
                                      "[a-z]{2,5}",
                                      "{{ 7*7 }}",
                                      "\xC3\xA9\xF0\x9F\x98\x80",
                                      "../../etc/passwd",
                                      "base64",
                                      "float",
                                      "high",
                                      "<|im_start|>",
                                      "\n\n",
                                      "tinypy",
                                      "http://localhost/",
                                      "data:image/png;base64,AAAA"};
  unsigned i = choose(c, COUNT(texts) + 2);
  if (i < COUNT(texts)) return json_string(texts[i]);
  if (i == COUNT(texts)) return json_stringn("a\0b", 3);
  char *many = xmalloc(4000);
  memset(many, 'a' + (int)choose(c, 26), 4000);
  json_t *s = json_stringn(many, 4000);
  free(many);
  return s;
}

static json_t *any_value(struct choices *c, int depth);

// A word that members of this name have somewhere, or anything.
static json_t *member_value(struct choices *c, const char *name, int depth) {
  enum { MOST = 8 };
  static const struct { const char *name, *words[MOST]; } rows[] = {
      {"role", {"system", "developer", "user", "assistant", "tool", "function"}},
      {"type", {"text", "image_url", "input_audio", "function", "object", "tool_use", "tool_result", "message"}}};
  unsigned i = choose(c, 4) ? choose(c, MOST) : MOST;
  for (size_t k = 0; k < COUNT(rows) && i < MOST; k++)
    if (!strcmp(name, rows[k].name) && rows[k].words[i]) return json_string(rows[k].words[i]);
  return any_value(c, depth);
}

// Anything, of few parts.
static json_t *any_value(struct choices *c, int depth) {
  static const double odd[] = {0,      1,  -1, 2,   0.5, -0.0, 1e300, -1e300, 1e-320, 2147483648.0, 9007199254740993.0,
                               1.8e19, 64, 65, 4096};
  unsigned i = choose(c, depth > 4 ? 6 : 9);
  double d = odd[choose(c, COUNT(odd))];
  if (i == 0) return json_null();
  if (i == 1) return json_boolean(choose(c, 2));
  if (i == 2) return json_integer(d > 9e18 ? INT64_MAX : d < -9e18 ? INT64_MIN : (int64_t)d);
  if (i == 3) return json_real(d);
  if (i < 6) return text_value(c);
  json_t *o = i == 6 ? json_object() : json_array();
  for (unsigned n = choose(c, 5); n && c->nodes < 200; n--, c->nodes++) {
    static const char *const names[] = {"type",       "role",      "content",    "text",  "name", "id",     "function",
                                        "parameters", "arguments", "properties", "items", "enum", "schema", "x"};
    const char *name = names[choose(c, COUNT(names))];
    if (i == 6) json_object_set_new(o, name, member_value(c, name, depth + 1));
    else json_array_append_new(o, any_value(c, depth + 1));
  }
  return o;
}

static json_t *value_of(const json_t *schema, struct choices *c, int depth);

static json_t *object_of(const json_t *schema, struct choices *c, int depth) {
  json_t *o = json_object(), *properties = json_object_get(schema, "properties"),
         *needed = json_object_get(schema, "required"), *v;
  const char *name;
  size_t i;
  unsigned some = (unsigned)json_object_size(properties);
  json_array_foreach(needed, i, v) if (choose(c, 16) != 15) json_object_set_new(
    o, json_string_value(v), value_of(json_object_get(properties, json_string_value(v)), c, depth + 1));
  for (unsigned n = some ? choose(c, depth ? 4 : 10) : 0; n; n--, c->nodes++) {
    unsigned wanted = choose(c, some), at = 0;
    json_object_foreach(properties, name, v) if (at++ == wanted)
      json_object_set_new(o, name, value_of(v, c, depth + 1));
  }
  if (!properties && depth < 5) {
    json_decref(o);
    return any_value(c, depth);
  }
  return o;
}

static json_t *number_of(const json_t *schema, struct choices *c, bool whole) {
  json_t *least = json_object_get(schema, "minimum"), *most = json_object_get(schema, "maximum");
  double lo = least ? json_number_value(least) : -2, hi = most ? json_number_value(most) : 1e9, v = lo < 0 ? 0 : lo;
  switch (choose(c, 8)) {
  case 0: v = lo; break;
  case 1: v = lo - 1; break;
  case 2: v = hi + 1; break;
  case 3: v = hi < 1e15 ? hi : 5; break;
  default: v += choose(c, whole ? 6 : 200) / (whole ? 1.0 : 100.0); break;
  }
  return whole ? json_integer(v > 9e18 ? INT64_MAX : v < -9e18 ? INT64_MIN : (int64_t)v) : json_real(v);
}

static json_t *typed_value(const char *type, const json_t *schema, struct choices *c, int depth) {
  if (!strcmp(type, "string")) return text_value(c);
  if (!strcmp(type, "boolean")) return json_boolean(choose(c, 2));
  if (!strcmp(type, "null")) return json_null();
  if (!strcmp(type, "object")) return object_of(schema, c, depth);
  if (!strcmp(type, "integer") || !strcmp(type, "number")) return number_of(schema, c, type[0] == 'i');
  json_t *o = json_array(), *items = json_object_get(schema, "items");
  for (unsigned n = choose(c, 8) == 7 ? 12 : choose(c, 4); n && c->nodes < 200; n--, c->nodes++)
    json_array_append_new(o, items ? value_of(items, c, depth + 1) : any_value(c, depth + 1));
  return o;
}

static json_t *value_of(const json_t *schema, struct choices *c, int depth) {
  json_t *of = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "const"),
         *type = json_object_get(schema, "type");
  if (!json_is_object(schema) || depth > 8 || choose(c, 12) == 11) return any_value(c, depth);
  if (one) return json_deep_copy(one);
  if (json_is_array(of)) return value_of(json_array_get(of, choose(c, (unsigned)json_array_size(of))), c, depth + 1);
  of = json_object_get(schema, "enum");
  if (json_array_size(of)) return json_deep_copy(json_array_get(of, choose(c, (unsigned)json_array_size(of))));
  if (json_array_size(type)) type = json_array_get(type, choose(c, (unsigned)json_array_size(type)));
  return json_is_string(type) ? typed_value(json_string_value(type), schema, c, depth) : any_value(c, depth);
}

// Endpoints that read a body, and what they read.
static size_t n_bodies;
static struct {
  const struct route *route;
  json_t *schema;
} bodies[64];

static void find_bodies(void) {
  for (size_t i = 0; i < n_routes && n_bodies < COUNT(bodies); i++) {
    if (!routes[i].tables || !strcmp(routes[i].path, "/models/unload")) continue;  // the model stays
    bodies[n_bodies].route = &routes[i];
    bodies[n_bodies++].schema = fields_schema(routes[i].tables);
  }
}

static void check_answer(const char *request, const str *answer) {
  const char *at = str_c(answer), *end = at + answer->n, *body;
  size_t n;
  json_error_t why;
  int status = 100;  // interim answers come first, while the client's half is closed
  while (status / 100 == 1) status = take_answer(&at, end, &body, &n);
  if (!status || at != end) die("%s\nthis is no answer: %.300s", request, str_c(answer));
  if (status >= 500) fprintf(stderr, "%s\n", request);
  check_status(status, body, n);
  if (!body || !n || !header_of(str_c(answer), body, "Content-Type")) return;
  json_t *o = strstr(str_c(answer), "Content-Type: application/json")
                ? json_loadb(body, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why)
                : json_null();
  if (!o) die("%s\nthis is no JSON: %.*s", request, (int)n, body);
  json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!server_path[0]) server_begin();
  if (!n_bodies) find_bodies();
  struct choices c = {data, data + size, 0};
  unsigned i = choose(&c, (unsigned)n_bodies);
  json_t *o = object_of(bodies[i].schema, &c, 0);
  char *text = json_dumps(o, 0);
  if (!text) die("a body that cannot be written");
  str request = {0}, answer = {0};
  const char *path = bodies[i].route->path;
  str_addf(&request,
           "POST %.*s%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
           "application/json\r\nContent-Length: %zu\r\n\r\n",
           (int)strcspn(path, "*"), path, strchr(path, '*') ? "0?action=erase" : "", strlen(text));
  str_addn(&request, text, strlen(text));
  server_ask(str_c(&request), request.n, -1, &answer);
  check_answer(str_c(&request), &answer);
  str_free(&request);
  str_free(&answer);
  free(text);
  json_decref(o);
  return 0;
}
