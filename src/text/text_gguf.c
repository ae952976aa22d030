// Makes a tokenizer from the tokenizer.ggml.* keys of a model file. This file reads the keys; text.c interprets them.
#include "base/attempt.h"
#include "model/gguf.h"
#include "text/text.h"

#define KEY "tokenizer.ggml."

struct source { const gguf_value *tokens, *merges; };

static text_view as_view(gguf_string s) { return (text_view){s.at, s.n}; }
static text_view token_at(const void *ctx, uint64_t i) {
  return as_view(gguf_elem_str(((const struct source *)ctx)->tokens, (size_t)i));
}
static text_view merge_at(const void *ctx, uint64_t i) {
  return as_view(gguf_elem_str(((const struct source *)ctx)->merges, (size_t)i));
}

// -1, 0 or 1 for a key that is absent, false or true.
static int flag(const gguf *g, const char *key, int *out, error *err) {
  bool b = false;
  *out = -1;
  if (!gguf_find(g, key)) return 0;
  if (gguf_bool(g, key, &b, err)) return -1;
  *out = b;
  return 0;
}

static int read_names(const gguf *g, vocab_desc *d, error *err) {
  gguf_string model, pre, name, architecture;
  if (gguf_str_opt(g, KEY "model", NULL, &model, err) || gguf_str_opt(g, KEY "pre", NULL, &pre, err)) return -1;
  if (gguf_str_opt(g, "general.name", NULL, &name, err) ||
      gguf_str_opt(g, "general.architecture", NULL, &architecture, err))
    return -1;
  d->model = as_view(model);
  d->pre = as_view(pre);
  d->name = as_view(name);
  d->architecture = as_view(architecture);
  const struct { const char *key; int *out; } flags[] = {
    {KEY "add_bos_token", &d->add_bos}, {KEY "add_eos_token", &d->add_eos}, {KEY "add_sep_token", &d->add_sep},
    {KEY "add_space_prefix", &d->add_space_prefix}, {KEY "remove_extra_whitespaces", &d->remove_extra_whitespaces},
    {KEY "normalizer.lowercase", &d->lowercase}, {KEY "normalizer.strip_accents", &d->strip_accents}};
  for (size_t i = 0; i < COUNT(flags); i++)
    if (flag(g, flags[i].key, flags[i].out, err)) return -1;
  return 0;
}

static int read_arrays(const gguf *g, vocab_desc *d, struct source *s, arena *temporary, error *err) {
  size_t n_scores, n_types, n_suppressed;
  if (gguf_strs_opt(g, KEY "tokens", &s->tokens, err) || gguf_strs_opt(g, KEY "merges", &s->merges, err)) return -1;
  if (gguf_f32s_opt(g, KEY "scores", temporary, &d->scores, &n_scores, err)) return -1;
  if (gguf_i32s_opt(g, KEY "token_type", temporary, &d->types, &n_types, err)) return -1;
  if (gguf_i32s_opt(g, KEY "suppress_tokens", temporary, &d->suppressed, &n_suppressed, err)) return -1;
  d->n_suppressed = n_suppressed;
  d->n_scores = n_scores;
  d->n_types = n_types;
  const gguf_value *map = gguf_find(g, KEY "precompiled_charsmap");
  if (map) {
    if (map->type != GGUF_ARRAY || (map->elem != GGUF_UINT8 && map->elem != GGUF_INT8))
      return error_set(err, "%s: " KEY "precompiled_charsmap is no array of bytes", gguf_path(g));
    d->charsmap = (text_view){(const char *)map->a.data, map->a.n};
  }
  if (s->tokens) { d->token = token_at; d->n_tokens = s->tokens->a.n; }
  if (s->merges) { d->merge = merge_at; d->n_merges = s->merges->a.n; }
  return 0;
}

static int read_roles(const gguf *g, vocab_desc *d, error *err) {
#define R(member, key) KEY key "_token_id",
  static const char *const keys[] = {TOKEN_ROLES(R)};
#undef R
  for (int r = 0; r < ROLE_COUNT; r++) {
    if (!gguf_find(g, keys[r])) continue;
    if (gguf_i64(g, keys[r], &d->role[r], err)) return -1;
  }
  // The names of older files for the fill-in-the-middle tokens.
  static const struct { const char *key; enum token_role role;
  } older[] = {{KEY "prefix_token_id", ROLE_fim_pre},
               {KEY "suffix_token_id", ROLE_fim_suf},
               {KEY "middle_token_id", ROLE_fim_mid}};
  for (size_t i = 0; i < COUNT(older); i++)
    if (d->role[older[i].role] == -1 && gguf_find(g, older[i].key) &&
        gguf_i64(g, older[i].key, &d->role[older[i].role], err))
      return -1;
  return 0;
}

typedef struct opening { const gguf *g; tokenizer *t; error *err; } opening;

static void try_vocab(void *ctx) {
  opening *o = ctx;
  const gguf *g = o->g;
  error *err = o->err;
  vocab_desc d;
  struct source s = {NULL, NULL};
  arena *temporary = arena_new();
  vocab_desc_init(&d);
  d.source = gguf_path(g);
  d.ctx = &s, d.ctx_bytes = sizeof s;
  if (read_names(g, &d, err) || read_arrays(g, &d, &s, temporary, err) || read_roles(g, &d, err) ||
      tokenizer_new(&d, &o->t, err))
    o->t = NULL;
  arena_free(temporary);
}

int tokenizer_from_gguf(const gguf *g, tokenizer **out, error *err) {
  opening o = {.g = g, .err = err};
  error why = {0};
  if (attempt(ATTEMPT_OWNS, try_vocab, &o, &why)) return error_set(err, "%s: %s", gguf_path(g), why.text);
  if (!o.t) return -1;
  *out = o.t;
  return 0;
}
