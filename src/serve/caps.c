// Determines what a model can do: see caps.h.
#include "serve/caps.h"
#include <string.h>
#include "base/base.h"

int64_t file_token(const weft_file *f, const char *key, const char *old_key) {
  size_t i;
  weft_value v;
  if ((weft_file_find(f, key, &i) && weft_file_find(f, old_key, &i)) || weft_file_value(f, i, &v)) return -1;
  return v.type == WEFT_UINT32 ? (int64_t)v.u : v.type == WEFT_INT32 ? v.i : -1;
}

static bool has_key(const weft_file *f, const char *arch, const char *key, weft_value *v) {
  char name[160];
  size_t i;
  snprintf(name, sizeof name, "%.100s.%s", arch, key);
  return !weft_file_find(f, name, &i) && !weft_file_value(f, i, v);
}

// Templates handle tools in many ways, so a conversation is rendered to see whether the model is told of one.
static bool shows_tools(const weft_template *t) {
#define NAME "weft_probe_of_tools"
  static const char messages[] = "[{\"role\":\"user\",\"content\":\"a\"}]",
                    tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"" NAME "\",\"description\":\"b\","
                              "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";
  weft_chat chat = {
    .messages = messages, .n_messages = sizeof messages - 1, .tools = tools, .n_tools = sizeof tools - 1};
  char *text;
  size_t n;
  if (weft_template_render(t, &chat, &text, &n, NULL)) return false;
  bool shown = strstr(text, NAME) != NULL;
  weft_free(text);
  return shown;
}

struct caps caps_of(const weft_file *f, const weft_template *t) {
  struct caps c = {.chats = t != NULL};
  size_t i;
  weft_value v;
  char arch[100] = "";
  if (!weft_file_find(f, "general.architecture", &i) && !weft_file_value(f, i, &v) && v.type == WEFT_STRING)
    snprintf(arch, sizeof arch, "%.*s", (int)(v.n < 99 ? v.n : 99), v.text);
  bool causal = !has_key(f, arch, "attention.causal", &v) || v.u;
  bool pools = has_key(f, arch, "pooling_type", &v) && v.u != WEFT_POOLING_NONE;
  c.ranks = pools && v.u == WEFT_POOLING_RANK;
  c.embeds = pools || !causal || strstr(arch, "bert");
  c.completes = !c.embeds || weft_file_denoises(f);
  c.inserts = file_token(f, "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id") >= 0 &&
              file_token(f, "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id") >= 0 &&
              file_token(f, "tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id") >= 0;
  c.tools = t && shows_tools(t);
  c.thinks = t && weft_template_reasons(t);
  return c;
}
