// Rewrites conversations for templates that do not accept the usual form: see chat.h.
#include "base/json.h"
#include "chat/chat.h"
#include <stdlib.h>
#include <string.h>

// Replaces an id by nine letters and digits, always the same ones for an id.
static void shorten_id(json_t *o, const char *key) {
  static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const json_t *id = json_object_get(o, key);
  size_t n = json_string_length(id);
  const char *text = json_string_value(id);
  char made[10] = {0};
  if (!text || (n == 9 && strspn(text, digits) == 9)) return;
  uint64_t bits = hash_bytes(text, n, 0);
  for (size_t i = 0; i < 9; i++, bits /= 62) made[i] = digits[bits % 62];
  json_object_set_new(o, key, json_string(made));
}

static void close_arguments(json_t *call) {
  json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
  if (!json_is_object(arguments)) return;
  char *text = json_as_text(arguments, 0);
  json_object_set_new(function, "arguments", json_string(text));
  free(text);
}

bool chat_adapt(text_view messages, unsigned how, str *out) {
  json_t *all, *m, *call;
  size_t i, k;
  if (messages.n > CHAT_MAX_JSON) return false;
  all = json_read(messages.at, messages.n, JSON_ALLOW_NUL, NULL, NULL);
  bool any = false;
  json_array_foreach(all, i, m) {
    if (how & CHAT_SHORT_IDS) shorten_id(m, "tool_call_id");
    json_array_foreach(json_object_get(m, "tool_calls"), k, call) {
      any = true;
      if (how & CHAT_SHORT_IDS) shorten_id(call, "id");
      if (how & CHAT_TEXT_ARGUMENTS) close_arguments(call);
    }
  }
  char *text = any ? json_as_text(all, JSON_COMPACT) : NULL;
  if (text) str_add(out, text);
  free(text);
  json_decref(all);
  return text;
}
