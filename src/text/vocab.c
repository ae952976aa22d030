// The vocabulary: see vocab.h. vocab_init is the list of steps.
#define _GNU_SOURCE
#include "text/vocab.h"
#include "base/plain.h"
#include <math.h>
#include <string.h>

#define KEY "tokenizer.ggml."

// ---- Steps of vocab_init ----

static int copy_tokens(vocab *v, const vocab_desc *d, const char *source, error *err) {
  if (d->n_tokens > VOCAB_TOKENS_MAX)
    return error_set(err, "%s" KEY "tokens has %llu entries (the limit is %u)", source, (unsigned long long)d->n_tokens,
                     VOCAB_TOKENS_MAX);
  v->n = (int32_t)d->n_tokens;
  v->token = ARENA_ARRAY(v->mem, text_view, v->n);
  for (int32_t i = 0; i < v->n; i++) {
    text_view t = d->token(d->ctx, (uint64_t)i);
    if (t.n > TOKEN_BYTES_MAX)
      return error_set(err, "%s" KEY "tokens[%d] is %zu bytes long (the limit is %u)", source, i, t.n, TOKEN_BYTES_MAX);
    v->token[i] = t;
    if (t.n > v->longest) v->longest = (uint32_t)t.n;
  }
  return 0;
}

static int copy_types_and_scores(vocab *v, const vocab_desc *d, const char *source, error *err) {
  v->type = ARENA_ARRAY(v->mem, uint8_t, v->n);
  v->eog = ARENA_ARRAY(v->mem, bool, v->n);
  if (d->types && d->n_types != d->n_tokens)
    return error_set(err, "%s" KEY "token_type has %llu entries, but " KEY "tokens has %llu", source,
                     (unsigned long long)d->n_types, (unsigned long long)d->n_tokens);
  if (d->scores && d->n_scores != d->n_tokens)
    return error_set(err, "%s" KEY "scores has %llu entries, but " KEY "tokens has %llu", source,
                     (unsigned long long)d->n_scores, (unsigned long long)d->n_tokens);
  for (int32_t i = 0; i < v->n; i++) {
    int32_t type = d->types ? d->types[i] : TOKEN_NORMAL;
    v->type[i] = (uint8_t)(type >= TOKEN_UNDEFINED && type <= TOKEN_BYTE ? type : TOKEN_UNDEFINED);
  }
  if (d->scores) {
    v->score = ARENA_ARRAY(v->mem, float, v->n);
    for (int32_t i = 0; i < v->n; i++) {
      if (isnan(d->scores[i])) return error_set(err, "%s" KEY "scores[%d] is not a number", source, i);
      v->score[i] = d->scores[i];
    }
  }
  return 0;
}

static bool same_text(text_view a, const char *text, size_t n) { return a.n == n && !memcmp(a.at, text, n); }

static int index_tokens(vocab *v, const char *source, error *err) {
  uint64_t slots = 16;
  while (slots < 2 * (uint64_t)v->n) slots *= 2;
  v->mask = slots - 1;
  v->slot = ARENA_ARRAY(v->mem, uint64_t, slots);
  v->key = hash_key_new();
  for (int32_t id = 0; id < v->n; id++) {
    text_view t = v->token[id];
    if (!t.n) continue;
    uint64_t hash = vocab_hash(v, t.at, t.n), i = hash & v->mask;
    for (; v->slot[i]; i = (i + 1) & v->mask) {
      int32_t other = (int32_t)(uint32_t)v->slot[i] - 1;
      if (v->slot[i] >> 32 != hash >> 32 || !same_text(v->token[other], t.at, t.n)) continue;
      // An unknown algorithm may need duplicates; then the first one is found.
      if (v->kind == VOCAB_OTHER) break;
      return error_set(err, "%s" KEY "tokens[%d] and [%d] are the same text", source, other, id);
    }
    if (!v->slot[i]) v->slot[i] = (hash & 0xFFFFFFFF00000000ull) | ((uint64_t)id + 1);
  }
  return 0;
}

int32_t vocab_find_hashed(const vocab *v, uint64_t hash, const char *text, size_t n) {
  for (uint64_t i = hash & v->mask; v->slot[i]; i = (i + 1) & v->mask)
    if (v->slot[i] >> 32 == hash >> 32) {
      int32_t id = (int32_t)(uint32_t)v->slot[i] - 1;
      if (same_text(v->token[id], text, n)) return id;
    }
  return -1;
}

int32_t vocab_find(const vocab *v, const char *text, size_t n) {
  if (!n || n > v->longest) return -1;
  return vocab_find_hashed(v, vocab_hash(v, text, n), text, n);
}

static int32_t token_of_byte_name(const vocab *v, unsigned byte) {
  char name[8];
  snprintf(name, sizeof name, "<0x%02X>", byte);
  return vocab_find(v, name, 6);
}

int32_t vocab_byte(const vocab *v, unsigned char byte) {
  int32_t id = token_of_byte_name(v, byte);
  return id >= 0 && v->type[id] == TOKEN_BYTE ? id : -1;
}

static void name_bytes(vocab *v) {
  for (unsigned b = 0; b < 256; b++) {
    int32_t id = token_of_byte_name(v, b);
    if (id >= 0) v->type[id] = TOKEN_BYTE;
  }
}

int vocab_no_token(const vocab *v, const char *text, size_t n, error *err) {
  str hex = {0};
  for (size_t i = 0; i < n; i++) str_addf(&hex, "%s%02X", i ? " " : "", (unsigned)(unsigned char)text[i]);
  error_set(err, "%s" KEY "tokens has no token for the bytes %s, and no unknown token stands in for it", v->source,
            str_c(&hex));
  str_free(&hex);
  return -1;
}

static int check_roles(vocab *v, const vocab_desc *d, const char *source, error *err) {
#define R(member, key) "tokenizer.ggml." key "_token_id",
  static const char *const keys[] = {TOKEN_ROLES(R)};
#undef R
  for (int r = 0; r < ROLE_COUNT; r++) {
    int64_t id = d->role[r];
    v->role[r] = -1;
    if (id == -1 || id == UINT32_MAX || !v->n) continue;
    if (id < 0 || id >= v->n)
      return error_set(err, "%s%s is %lld, but there are %d tokens", source, keys[r], (long long)id, v->n);
    v->role[r] = (int32_t)id;
  }
  // BERT's models call the token that begins a text "classification".
  if (v->role[ROLE_bos] < 0 && v->kind == VOCAB_WORDPIECE) v->role[ROLE_bos] = v->role[ROLE_cls];
  // Defaults of model families.
  static const struct { enum vocab_kind kind; enum token_role role; int32_t id; const char *text;
  } usual[] = {{VOCAB_SPM, ROLE_unk, 0, "<unk>"},
               {VOCAB_SPM, ROLE_bos, 1, "<s>"},
               {VOCAB_SPM, ROLE_eos, 2, "</s>"},
               {VOCAB_UNIGRAM, ROLE_pad, 0, "<pad>"},
               {VOCAB_UNIGRAM, ROLE_eos, 1, "</s>"},
               {VOCAB_UNIGRAM, ROLE_unk, 2, "<unk>"},
               {VOCAB_WORDPIECE, ROLE_pad, 0, "[PAD]"},
               {VOCAB_WORDPIECE, ROLE_unk, 100, "[UNK]"},
               {VOCAB_WORDPIECE, ROLE_bos, 101, "[CLS]"},
               {VOCAB_WORDPIECE, ROLE_sep, 102, "[SEP]"},
               {VOCAB_WORDPIECE, ROLE_mask, 103, "[MASK]"},
               {VOCAB_PLAMO2, ROLE_unk, 0, "<|plamo:unk|>"},
               {VOCAB_PLAMO2, ROLE_bos, 1, "<|plamo:bos|>"},
               {VOCAB_PLAMO2, ROLE_eos, 2, "<|plamo:eos|>"},
               {VOCAB_PLAMO2, ROLE_pad, 3, "<|plamo:pad|>"}};
  for (size_t i = 0; i < COUNT(usual); i++)
    if (v->kind == usual[i].kind && v->role[usual[i].role] < 0 && usual[i].id < v->n &&
        same_text(v->token[usual[i].id], usual[i].text, strlen(usual[i].text)))
      v->role[usual[i].role] = usual[i].id;
  return 0;
}

// ---- Ends of a generation ----
// Files name one EOS; chat models end their turns with another token that no key names.  So well-known names count too.

static const struct eog_name { const char *text; enum { ENDS, ENDS_TURN, ENDS_MESSAGE } what;
} eog_names[] = {
  // In the order of preference for EOT if the file names none.
  {"<|eot_id|>", ENDS_TURN},
  {"<|im_end|>", ENDS_TURN},
  {"<|end|>", ENDS_TURN},
  {"<end_of_turn>", ENDS_TURN},
  {"<|endoftext|>", ENDS_TURN},
  {"<|end_of_text|>", ENDS_TURN},
  {"<EOT>", ENDS_TURN},
  {"_<EOT>", ENDS_TURN},
  {"[EOT]", ENDS_TURN},
  {"<\xEF\xBD\x9C"
   "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
   ENDS_TURN},
  {"<end_of_utterance>", ENDS_TURN},
  {"<|eom_id|>", ENDS_MESSAGE},
  {"</s>", ENDS},
  {"<eos>", ENDS},
  {"[EOS]", ENDS},
  {"<turn|>", ENDS},
  {"<|tool_response>", ENDS},
  {"[e~[", ENDS},
  {"<|return|>", ENDS},
  {"<|call|>", ENDS},
  {"<|calls|>", ENDS},
  {"<|flush|>", ENDS},
  {"<|fim_pad|>", ENDS},
  {"<fim-pad>", ENDS},
  {"<fim_pad>", ENDS},
  {"<|fim_repo|>", ENDS},
  {"<|repo_name|>", ENDS},
  {"<fim-repo>", ENDS},
  {"<reponame>", ENDS},
  {"<|file_sep|>", ENDS},
};

static int32_t find_name(const vocab *v, const char *name) { return vocab_find(v, name, strlen(name)); }

// Names with bars or similar can only be meant as control tokens, whatever their type says; the others are plain text
// in some vocabularies ("</s>" ends struck-out text in HTML), so they count only if the file marks them.
static bool name_is_unmistakable(const char *name) {
  return strstr(name, "<|") || strstr(name, "\xEF\xBD\x9C") || !strcmp(name, "<end_of_turn>") ||
         !strcmp(name, "<end_of_utterance>");
}

static void find_eog(vocab *v) {
  for (size_t i = 0; i < COUNT(eog_names); i++) {
    int32_t id = find_name(v, eog_names[i].text);
    if (id < 0) continue;
    if (v->type[id] != TOKEN_CONTROL) {
      if (!name_is_unmistakable(eog_names[i].text) && v->type[id] != TOKEN_USER_DEFINED) continue;
      v->type[id] = TOKEN_CONTROL;
    }
    v->eog[id] = true;
    if (eog_names[i].what == ENDS_TURN && v->role[ROLE_eot] < 0) v->role[ROLE_eot] = id;
    if (eog_names[i].what == ENDS_MESSAGE && v->role[ROLE_eom] < 0) v->role[ROLE_eom] = id;
  }
  // Two families use a well-known name for a token that does not end the answer.
  int32_t end = find_name(v, "<|end|>"), s = find_name(v, "</s>");
  bool calls = find_name(v, "<|call|>") >= 0 || find_name(v, "<|calls|>") >= 0;
  if (end >= 0 && calls && (find_name(v, "<|return|>") >= 0 || find_name(v, "<|flush|>") >= 0)) {
    v->eog[end] = false;
    if (v->role[ROLE_eot] == end) v->role[ROLE_eot] = -1;
  }
  if (s >= 0 && (find_name(v, "<|tool_response>") >= 0 || find_name(v, "<|plamo:eos|>") >= 0)) v->eog[s] = false;
  static const enum token_role ends[] = {ROLE_eos, ROLE_eot, ROLE_eom, ROLE_fim_pad, ROLE_fim_rep, ROLE_fim_sep};
  for (size_t i = 0; i < COUNT(ends); i++)
    if (v->role[ends[i]] >= 0) v->eog[v->role[ends[i]]] = true;
}

// USER_DEFINED tokens are found in all text. A token that ends answers or has a role must come from the template or
// from Weft, so it is a control token, whatever the file calls it.
static void guard_roles(vocab *v) {
  for (int32_t id = 0; id < v->n; id++)
    if (v->eog[id] && v->type[id] == TOKEN_USER_DEFINED) v->type[id] = TOKEN_CONTROL;
  for (int r = 0; r < ROLE_COUNT; r++)
    if (v->role[r] >= 0 && v->type[v->role[r]] == TOKEN_USER_DEFINED) v->type[v->role[r]] = TOKEN_CONTROL;
}

// ---- White space around special tokens ----
// No key says that a token takes white space with it; the names of the models do.

static bool name_contains(text_view text, const char *name) {
  size_t n = strlen(name);
  for (size_t i = 0; i + n <= text.n; i++)
    if (!ascii_ncasecmp(text.at + i, name, n)) return true;
  return false;
}

static void strip_around(vocab *v, const char *name, uint8_t strip) {
  int32_t id = find_name(v, name);
  if (id >= 0) v->strip[id] = strip;
}

static void find_strips(vocab *v, const vocab_desc *d) {
  bool phi3 = name_contains(d->name, "phi-3") || name_contains(d->name, "phi3"),
       modern_bert = name_contains(d->name, "modern-bert");
  bool mask = name_contains(d->pre, "jina-v2-de") || name_contains(d->pre, "jina-v2-es") ||
              name_contains(d->pre, "jina-v2-code") || name_contains(d->architecture, "nomic-bert-moe") ||
              name_contains(d->architecture, "jina-bert-v3");
  if (!phi3 && !modern_bert && !mask) return;
  v->strip = ARENA_ARRAY(v->mem, uint8_t, v->n);
  if (mask) strip_around(v, "<mask>", STRIP_LEFT);
  if (modern_bert) strip_around(v, "[MASK]", STRIP_LEFT);
  if (!phi3) return;
  for (int32_t id = 0; id < v->n; id++)
    if (v->type[id] == TOKEN_CONTROL || v->type[id] == TOKEN_USER_DEFINED || v->type[id] == TOKEN_UNKNOWN)
      v->strip[id] = STRIP_RIGHT;
  strip_around(v, "</s>", STRIP_RIGHT);
  strip_around(v, "<unk>", 0), strip_around(v, "<s>", 0), strip_around(v, "<|endoftext|>", 0);
}

static void copy_suppressed(vocab *v, const vocab_desc *d) {
  v->suppressed = ARENA_ARRAY(v->mem, int32_t, d->n_suppressed);
  for (uint64_t i = 0; i < d->n_suppressed; i++) {
    int32_t id = d->suppressed[i];
    if (id >= 0 && id < v->n) v->suppressed[v->n_suppressed++] = id;
  }
}

int vocab_init(vocab *v, const vocab_desc *d, enum vocab_kind kind, const char *source, arena *mem, error *err) {
  *v = (vocab){.kind = kind, .mem = mem, .source = source};
  if (copy_tokens(v, d, source, err)) return -1;
  if (copy_types_and_scores(v, d, source, err)) return -1;
  if (index_tokens(v, source, err)) return -1;
  if (kind != VOCAB_OTHER && kind != VOCAB_BPE && !d->types) name_bytes(v);
  if (check_roles(v, d, source, err)) return -1;
  find_eog(v);
  guard_roles(v);
  copy_suppressed(v, d);
  find_strips(v, d);
  return 0;
}
