// Writes the tokenizer.* keys of a GGUF file from tokenizer.model or tokenizer.json, tokenizer_config.json,
// chat_template.jinja and config.json: tokens in order of id, token types, merges, special tokens, and the chat
// template.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "model/hf_impl.h"

enum { TOKENS_MOST = 1 << 22 };
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

static const char tokenizer_name[] = "tokenizer.json", settings_name[] = "tokenizer_config.json";

static bool is_text(const char *a, const char *b) { return a && b && !strcmp(a, b); }

static const char *text_in(const json_t *in, const char *key) { return json_string_value(json_object_get(in, key)); }

// ---- tokens ---------------------------------------------------------------------------------------------------------

typedef struct token_list { const char **text; int32_t *kind; uint64_t n; } token_list;

static int token_id(const hf *h, const char *text, const json_t *id, uint64_t n, uint64_t *out, error *err) {
  char quoted[96];
  gguf_quote(quoted, sizeof quoted, text, strlen(text));
  if (!json_is_integer(id) || json_integer_value(id) < 0)
    return hf_fail(h, tokenizer_name, quoted, err, "this token has no id, or one that is not a number");
  *out = (uint64_t)json_integer_value(id);
  if (*out < n) return 0;
  return hf_fail(h, tokenizer_name, quoted, err, "token %" PRIu64 ", but config.json says that there are %" PRIu64,
                 *out, n);
}

static bool begins_and_ends(const char *s, const char *begin, const char *end) {
  size_t n = strlen(s), b = strlen(begin), e = strlen(end);
  return n >= b && n >= e && !strncmp(s, begin, b) && !strcmp(s + n - e, end);
}

// Tokens that are control tokens although their description does not say so.
static bool looks_special(const char *s) {
  return !strcmp(s, "<pad>") || !strcmp(s, "<mask>") || !strcmp(s, "<2mass>") || !strcmp(s, "[@BOS@]") ||
         begins_and_ends(s, "<|", "|>") || begins_and_ends(s, "<\xef\xbd\x9c", "\xef\xbd\x9c>") ||
         begins_and_ends(s, "<unused", ">");
}

// Replaces SentencePiece's space symbol by spaces.
static const char *plain_spaces(const hf *h, const char *s) {
  char *out = arena_strdup(h->arena, s), *to = out;
  for (const char *at = out; *at;) {
    if (!strncmp(at, "\xe2\x96\x81", 3)) { *to++ = ' '; at += 3; }
    else *to++ = *at++;
  }
  *to = 0;
  return out;
}

static int add_known(hf *h, json_t *vocab, token_list *l, error *err) {
  const char *text;
  json_t *id;
  uint64_t i;
  if (!json_is_object(vocab)) return hf_fail(h, tokenizer_name, "vocab", err, "is not an object");
  json_object_foreach(vocab, text, id) {
    if (token_id(h, text, id, l->n, &i, err)) return -1;
    if (l->text[i]) return hf_fail(h, tokenizer_name, "vocab", err, "two tokens have the number %" PRIu64, i);
    l->text[i] = arena_strdup(h->arena, text);
    l->kind[i] = NORMAL;
  }
  return 0;
}

static int add_added(hf *h, json_t *added, token_list *l, error *err) {
  size_t k;
  json_t *said;
  uint64_t i;
  json_array_foreach(added, k, said) {
    const char *text = text_in(said, "content");
    if (!text) return hf_fail(h, tokenizer_name, "added_tokens", err, "the one at %zu has no content", k);
    if (token_id(h, text, json_object_get(said, "id"), l->n, &i, err)) return -1;
    bool control = json_is_true(json_object_get(said, "special")) || looks_special(text) ||
                   (h->class->vocab == HF_VOCAB_LAGUNA && is_text(text, "</assistant>"));         // ends an answer
    bool whole = control || h->class->vocab == HF_VOCAB_GEMMA4;
    l->text[i] = whole ? arena_strdup(h->arena, text) : plain_spaces(h, text);
    l->kind[i] = control ? CONTROL : USER_DEFINED;
  }
  return 0;
}

static int count_vocab(hf *h, size_t known, error *err) {
  uint32_t n;
  bool found;
  if (hf_u32(h, "vocab_size", &n, &found, err)) return -1;
  h->n_vocab = found ? n : known;
  if (h->n_vocab && h->n_vocab <= TOKENS_MOST) return 0;
  return hf_fail(h, "config.json", "vocab_size", err, "%" PRIu64 " is not from 1 to %d", h->n_vocab, TOKENS_MOST);
}

static int put_tokens(hf *h, const json_t *tokenizer, token_list *l, error *err) {
  if (count_vocab(h, json_object_size(json_object_get(json_object_get(tokenizer, "model"), "vocab")), err)) return -1;
  l->n = h->n_vocab;
  l->text = ARENA_ARRAY(h->arena, const char *, l->n);
  l->kind = ARENA_ARRAY(h->arena, int32_t, l->n);
  if (add_known(h, json_object_get(json_object_get(tokenizer, "model"), "vocab"), l, err) ||
      add_added(h, json_object_get(tokenizer, "added_tokens"), l, err))
    return -1;
  for (uint64_t i = 0; i < l->n; i++) {
    if (l->text[i]) continue;
    l->text[i] = arena_printf(h->arena, "[PAD%" PRIu64 "]", i);
    l->kind[i] = UNUSED;
  }
  return 0;
}

// ---- merges ---------------------------------------------------------------------------------------------------------

// Replaces spaces of a merge's part by the byte-level vocabulary's symbol for a space.
static const char *byte_spaces(const hf *h, const char *part) {
  size_t n = 0;
  for (const char *at = part; *at; at++) n += *at == ' ';
  if (!n) return part;
  char *out = arena_alloc(h->arena, strlen(part) + n + 1), *to = out;
  for (; *part; part++) {
    if (*part == ' ') { *to++ = '\xc4'; *to++ = '\xa0'; }
    else *to++ = *part;
  }
  return out;
}

static int put_merges(hf *h, json_t *merges, error *err) {
  size_t n = json_array_size(merges), i;
  json_t *m;
  if (!json_is_array(merges)) return hf_fail(h, tokenizer_name, "merges", err, "is not a list");
  const char **all = ARENA_ARRAY(h->arena, const char *, n + 1);
  json_array_foreach(merges, i, m) {
    const char *left = json_string_value(json_array_get(m, 0)), *right = json_string_value(json_array_get(m, 1));
    if (json_is_string(m)) all[i] = arena_strdup(h->arena, json_string_value(m));
    else if (left && right && json_array_size(m) == 2)
      all[i] = arena_printf(h->arena, "%s %s", byte_spaces(h, left), byte_spaces(h, right));
    else return hf_fail(h, tokenizer_name, "merges", err, "the one at %zu is no pair", i);
  }
  if (n) gguf_head_strs(h->head, "tokenizer.ggml.merges", all, n);
  return 0;
}

// ---- special tokens -------------------------------------------------------------------------------------------------

enum role { BOS, EOS, UNK, SEP, PAD, CLS, MASK, EOT, EOM, ROLES };
static const struct { const char *name, *key; } roles[ROLES] = {
  [BOS] = {"bos", "bos"}, [EOS] = {"eos", "eos"}, [UNK] = {"unk", "unknown"}, [SEP] = {"sep", "seperator"},
  [PAD] = {"pad", "padding"}, [CLS] = {"cls", "cls"}, [MASK] = {"mask", "mask"}, [EOT] = {"eot", "eot"},
  [EOM] = {"eom", "eom"},
};

// The special tokens: texts, ids, and whether a text gets the token at its beginning (BOS), end (EOS), or between two
// texts (SEP).
typedef struct role_list { const char *text[ROLES]; int add[ROLES]; int64_t id[ROLES]; bool settings; } role_list;

static void read_role_texts(const json_t *settings, role_list *r) {
  for (int i = 0; i < ROLES; i++) {
    char key[32];
    r->add[i] = r->id[i] = -1;
    if (i == EOT || i == EOM) continue;
    snprintf(key, sizeof key, "%s_token", roles[i].name);
    const json_t *v = json_object_get(settings, key);
    r->text[i] = json_is_object(v) ? text_in(v, "content") : json_string_value(v);
    if (r->text[i] && !*r->text[i]) r->text[i] = NULL;
  }
  r->settings = settings;
  if (!settings) return;
  if (!r->text[BOS]) r->text[BOS] = r->text[CLS];
  if (!r->text[EOS]) r->text[EOS] = r->text[SEP];
}

static const char *special_at(const json_t *list, size_t i) {
  return text_in(json_object_get(json_array_get(list, i), "SpecialToken"), "id");
}

// Reads the template of one text, "[CLS] A [SEP]": its first and last token.
static void read_single(const json_t *single, role_list *r) {
  size_t n = json_array_size(single);
  const char *first = n > 1 ? special_at(single, 0) : NULL, *last = n > 1 ? special_at(single, n - 1) : NULL;
  if (first) {
    if (!r->settings) r->text[BOS] = first;
    else if (!is_text(first, r->text[BOS]) && !is_text(first, r->text[CLS])) {
      if (!r->text[BOS]) r->text[BOS] = first;
      if (!r->text[CLS]) r->text[CLS] = first;
    }
    r->add[BOS] = is_text(first, r->text[BOS]) || is_text(first, r->text[CLS]);
  }
  if (!last) return;
  if (!r->settings) r->text[EOS] = last;
  else if (!is_text(last, r->text[EOS])) {
    r->text[r->text[EOT] ? EOM : EOT] = r->text[EOS];
    r->text[EOS] = last;
  }
  r->add[EOS] = is_text(last, r->text[EOS]);
}

// Reads the template of a pair, "[CLS] A [SEP] B [SEP]": the tokens between A and B.
static void read_pair(const json_t *single, const json_t *pair, role_list *r) {
  size_t n = json_array_size(single), from = 0, to = json_array_size(pair);
  const char *first = n > 1 ? special_at(single, 0) : NULL, *last = n > 1 ? special_at(single, n - 1) : NULL;
  if (!to) return;
  from = first && is_text(special_at(pair, 0), first);
  if (last && is_text(special_at(pair, to - 1), last)) to--;
  if (to < from + 3 || !is_text(text_in(json_object_get(json_array_get(pair, from), "Sequence"), "id"), "A") ||
      !is_text(text_in(json_object_get(json_array_get(pair, to - 1), "Sequence"), "id"), "B"))
    return;
  const char *one = special_at(pair, from + 1), *two = to - from == 4 ? special_at(pair, from + 2) : NULL;
  bool ends = is_text(one, r->text[SEP]) || is_text(one, r->text[EOS]);
  r->add[SEP] = (ends && !last) || (two && (is_text(two, r->text[SEP]) || is_text(two, r->text[EOS])));
  if (r->add[SEP] && !r->text[SEP]) r->text[SEP] = r->text[EOS];
}

static void read_processor(const json_t *p, role_list *r, int depth) {
  const char *type = text_in(p, "type");
  size_t i;
  json_t *of;
  if (is_text(type, "Sequence") && depth < 4)
    json_array_foreach(json_object_get(p, "processors"), i, of) read_processor(of, r, depth + 1);
  else if (is_text(type, "ByteLevel")) {
    if (r->add[BOS] < 0) r->add[BOS] = 0;
    if (r->add[EOS] < 0) r->add[EOS] = 0;
  } else if (is_text(type, "RobertaProcessing")) {
    r->add[BOS] = r->add[EOS] = r->add[SEP] = 1;
    if (!r->text[CLS]) r->text[CLS] = json_string_value(json_array_get(json_object_get(p, "cls"), 0));
    if (!r->text[SEP]) r->text[SEP] = json_string_value(json_array_get(json_object_get(p, "sep"), 0));
  } else if (is_text(type, "TemplateProcessing")) {
    read_single(json_object_get(p, "single"), r);
    read_pair(json_object_get(p, "single"), json_object_get(p, "pair"), r);
  }
}

// Finds the ids: by the tokens' texts, otherwise from config.json.
static void find_role_ids(const hf *h, const json_t *tokenizer, const json_t *settings, role_list *r) {
  size_t k;
  json_t *said;
  for (int i = 0; i < ROLES; i++) {
    char key[32];
    const char *name;
    if ((i == EOT || i == EOM) && !r->text[i]) continue;
    snprintf(key, sizeof key, "add_%s_token", roles[i].name);
    const json_t *add = json_object_get(settings, key);
    if (json_is_boolean(add) && r->add[i] < 0) r->add[i] = json_is_true(add);
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), k, said)
      if (r->settings && r->id[i] < 0 && is_text(text_in(said, "content"), r->text[i]) &&
          json_is_integer(json_object_get(said, "id")))
        r->id[i] = json_integer_value(json_object_get(said, "id"));
    snprintf(key, sizeof key, "%s_token_id", roles[i].name);
    const json_t *id = hf_value(h, key, &name);
    if (r->id[i] < 0 && json_is_integer(id)) r->id[i] = json_integer_value(id);
  }
}

// The id of a token that tokenizer.json adds or, without that file, tokenizer_config.json; -1 if absent.
static int64_t added_id(const json_t *tokenizer, const json_t *settings, const char *text) {
  int64_t id = -1;
  const char *key;
  size_t k;
  json_t *said;
  json_array_foreach(json_object_get(tokenizer, "added_tokens"), k, said)
    if (is_text(text_in(said, "content"), text)) id = json_integer_value(json_object_get(said, "id"));
  if (tokenizer) return id;
  json_object_foreach(json_object_get(settings, "added_tokens_decoder"), key, said)
    if (is_text(text_in(said, "content"), text)) id = strtol(key, NULL, 10);
  return id;
}

// Special tokens of GLM, Solar Open and dots3-note have fixed names, used if no other id is given.
static int find_glm_roles(const hf *h, const json_t *tokenizer, const json_t *settings, role_list *r, error *err) {
  static const struct { enum hf_vocab of; enum role role; const char *text; } glm[] = {
    {HF_VOCAB_GLM, EOS, "<|endoftext|>"},     {HF_VOCAB_GLM, EOT, "<|user|>"},
    {HF_VOCAB_GLM, UNK, "<|endoftext|>"},     {HF_VOCAB_GLM, BOS, "<|endoftext|>"},
    {HF_VOCAB_GLM_MOE, BOS, "[gMASK]"},       {HF_VOCAB_GLM_MOE, EOT, "<|user|>"},
    {HF_VOCAB_GLM_MOE, UNK, "<|endoftext|>"}, {HF_VOCAB_GLM_MOE, EOM, "<|observation|>"},
    {HF_VOCAB_DOTS3, EOT, "<|endofassistant|>"}, {HF_VOCAB_CHATGLM, EOS, "<|endoftext|>"},
    {HF_VOCAB_CHATGLM, EOT, "<|user|>"},      {HF_VOCAB_CHATGLM, UNK, "<|endoftext|>"},
    {HF_VOCAB_SOLAR, EOS, "<|endoftext|>"},   {HF_VOCAB_SOLAR, EOT, "<|endoftext|>"},
    {HF_VOCAB_SOLAR, UNK, "<unk>"},           {HF_VOCAB_SOLAR, BOS, "<|startoftext|>"}};
  for (size_t i = 0; i < COUNT(glm); i++) {
    if (glm[i].of != h->class->vocab || (glm[i].of == HF_VOCAB_CHATGLM && h->pieces)) continue;
    int64_t id = added_id(tokenizer, settings, glm[i].text);
    if (id < 0)
      return hf_fail(h, tokenizer ? tokenizer_name : settings_name, tokenizer ? "added_tokens" : "added_tokens_decoder",
                     err, "has no %s", glm[i].text);
    if (r->id[glm[i].role] < 0) r->id[glm[i].role] = id;
  }
  return 0;
}

// The first token of Laguna's list of those that end an answer, but for the one that begins a text.
static void find_laguna_roles(const hf *h, role_list *r) {
  const char *name;
  const json_t *list = hf_value(h, "eos_token_id", &name), *bos = hf_value(h, "bos_token_id", &name), *v;
  if (h->class->vocab != HF_VOCAB_LAGUNA) return;
  for (size_t i = 0; i < json_array_size(list) && r->id[EOT] < 0; i++)
    if (v = json_array_get(list, i), !json_equal(v, bos)) r->id[EOT] = json_integer_value(v);
}

// The token that ends an answer of Muse Glimmer, if there is one.
static void find_muse_roles(const hf *h, const json_t *tokenizer, role_list *r) {
  size_t k;
  json_t *said;
  if (h->class->vocab != HF_VOCAB_MUSE) return;
  json_array_foreach(json_object_get(tokenizer, "added_tokens"), k, said)
    if (is_text(text_in(said, "content"), "<|eot|>")) r->id[EOT] = json_integer_value(json_object_get(said, "id"));
}

// The token that ends an answer of InternLM, if there is one (and, in version 3, it is special).
static void find_internlm_roles(const hf *h, const json_t *tokenizer, const json_t *settings, role_list *r) {
  static const char end[] = "<|im_end|>";
  const char *id;
  json_t *said;
  size_t k;
  bool two = h->class->vocab == HF_VOCAB_INTERNLM2;
  if (!two && (h->class->vocab != HF_VOCAB_INTERNLM3 || r->id[EOS] < 0)) return;
  json_object_foreach(json_object_get(settings, "added_tokens_decoder"), id, said)
    if (is_text(text_in(said, "content"), end) && (two || json_is_true(json_object_get(said, "special"))))
      r->id[EOS] = strtol(id, NULL, 10);
  json_array_foreach(two ? json_object_get(tokenizer, "added_tokens") : NULL, k, said)
    if (is_text(text_in(said, "content"), end)) r->id[EOS] = json_integer_value(json_object_get(said, "id"));
}

static int put_roles(hf *h, const json_t *tokenizer, const json_t *settings, error *err) {
  role_list r = {0};
  read_role_texts(settings, &r);
  read_processor(json_object_get(tokenizer, "post_processor"), &r, 0);
  find_role_ids(h, tokenizer, settings, &r);
  if (find_glm_roles(h, tokenizer, settings, &r, err)) return -1;
  find_laguna_roles(h, &r);
  find_muse_roles(h, tokenizer, &r);
  find_internlm_roles(h, tokenizer, settings, &r);
  for (int i = 0; i < ROLES; i++) {
    if (r.id[i] < 0 || i == CLS) continue;                 // GGUF has no CLS here: it is BOS
    if ((uint64_t)r.id[i] >= h->n_vocab && h->pieces) continue;
    if ((uint64_t)r.id[i] >= h->n_vocab)
      return hf_fail(h, "config.json", arena_printf(h->arena, "%s_token_id", roles[i].name), err,
                     "%" PRId64 " is not a token: there are %" PRIu64, r.id[i], h->n_vocab);
    gguf_head_u32(h->head, arena_printf(h->arena, "tokenizer.ggml.%s_token_id", roles[i].key), (uint32_t)r.id[i]);
  }
  static const enum role added[] = {BOS, EOS, SEP};
  for (size_t i = 0; i < COUNT(added); i++)
    if (r.add[added[i]] >= 0)
      gguf_head_bool(h->head, arena_printf(h->arena, "tokenizer.ggml.add_%s_token", roles[added[i]].name),
                     r.add[added[i]]);
  return 0;
}

// ---- the chat template and other vocabularies -----------------------------------------------------------------------

// Writes a list of named templates: the default one, and the others under their names.
static int put_named_templates(hf *h, json_t *list, error *err) {
  enum { MOST = 64, NAME_MOST = 64 };
  if (json_array_size(list) > MOST)
    return hf_fail(h, settings_name, "chat_template", err, "%zu templates, more than %d", json_array_size(list), MOST);
  const char **others = ARENA_ARRAY(h->arena, const char *, json_array_size(list) + 1);
  size_t n = 0, i;
  json_t *said;
  json_array_foreach(list, i, said) {
    const char *name = text_in(said, "name"), *text = text_in(said, "template");
    if (!name || !*name || !text) return hf_fail(h, settings_name, "chat_template", err, "one has no name or no text");
    if (strlen(name) > NAME_MOST)
      return hf_fail(h, settings_name, "chat_template", err, "a name has more than %d bytes", NAME_MOST);
    char *plain = arena_strdup(h->arena, name);
    for (char *c = plain; *c; c++)
      if (!((*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z'))) *c = '_';
    bool first = !strcmp(plain, "default");
    if (!first) others[n++] = plain;
    const char *key = first ? "tokenizer.chat_template" : arena_printf(h->arena, "tokenizer.chat_template.%s", plain);
    gguf_head_str(h->head, key, text, strlen(text));
  }
  if (n) gguf_head_strs(h->head, "tokenizer.chat_templates", others, n);
  return 0;
}

static int put_template(hf *h, const json_t *settings, error *err) {
  json_t *in = json_object_get(settings, "chat_template");
  const char *text = json_string_value(in);
  char *own = NULL;
  size_t n = 0;
  if (json_is_array(in)) return put_named_templates(h, in, err);
  if (!in && hf_text(h, "chat_template.jinja", &own, &n, err)) return -1;
  if (!own && !text && h->class->vocab == HF_VOCAB_RWKV) text = "rwkv-world";        // a template known by its name
  if (own) gguf_head_str(h->head, "tokenizer.chat_template", own, n);
  else if (text) gguf_head_str(h->head, "tokenizer.chat_template", text, strlen(text));
  free(own);
  return 0;
}

static void put_normalizer(hf *h, const json_t *n, int depth) {
  const char *type = text_in(n, "type");
  const json_t *lower = json_object_get(n, "lowercase"), *strip = json_object_get(n, "strip_accents");
  size_t i;
  json_t *of;
  if (is_text(type, "Sequence") && depth < 4)
    json_array_foreach(json_object_get(n, "normalizers"), i, of) put_normalizer(h, of, depth + 1);
  if (is_text(type, "Lowercase") || (is_text(type, "BertNormalizer") && json_is_boolean(lower)))
    gguf_head_bool(h->head, "tokenizer.ggml.normalizer.lowercase", lower ? json_is_true(lower) : true);
  if (is_text(type, "StripAccents") || (is_text(type, "BertNormalizer") && json_is_boolean(strip)))
    gguf_head_bool(h->head, "tokenizer.ggml.normalizer.strip_accents", strip ? json_is_true(strip) : true);
}

// HybridDNATokenizer (Carbon): its code puts tags, k-mers and unused tokens after those of tokenizer.json, up to a
// multiple of 128. Names of k-mers end with U+E000 in a file (text/dna.h).
static int put_kmers(hf *h, token_list *l, error *err) {
  enum { BASES = 6, KMERS = 1 << 2 * BASES, STEP = 128 };
  static const char *const tags[] = {"<dna>", "</dna>", "<oov>"};
  uint64_t first = l->n, at;
  while (first && l->kind[first - 1] == UNUSED) first--;
  uint64_t end = (first + COUNT(tags) + KMERS + STEP - 1) / STEP * STEP;
  if (end > l->n)
    return hf_fail(h, "config.json", "vocab_size", err, "%" PRIu64 ", but the tokens of DNA after %" PRIu64
                   " of tokenizer.json end at %" PRIu64, l->n, first, end);
  for (at = first; at < first + COUNT(tags); at++) l->text[at] = tags[at - first];
  for (uint32_t k = 0; k < KMERS; k++) {
    char bases[BASES + 1] = {0};
    for (int i = 0; i < BASES; i++) bases[i] = "ATCG"[k >> 2 * (BASES - 1 - i) & 3];
    l->text[at++] = arena_printf(h->arena, "%s\xEE\x80\x80", bases);
  }
  for (uint64_t unused = 0; at < end; unused++) l->text[at++] = arena_printf(h->arena, "<unused_%" PRIu64 ">", unused);
  for (uint64_t i = first; i < end; i++) l->kind[i] = NORMAL;
  return 0;
}

static int put_bpe(hf *h, const json_t *tokenizer, const json_t *settings, error *err) {
  const json_t *model = json_object_get(tokenizer, "model");
  bool dna = is_text(text_in(settings, "tokenizer_class"), "HybridDNATokenizer");
  const char *type = text_in(model, "type"), *pre;
  token_list l;
  char quoted[64];
  if (!is_text(type, "BPE"))
    return hf_fail(h, tokenizer_name, "model", err, "a vocabulary of %s, but only BPE is read for %s",
                   type ? gguf_quote(quoted, sizeof quoted, type, strlen(type)) : "no type", h->class->name);
  if (json_is_true(json_object_get(model, "byte_fallback")))
    return hf_fail(h, tokenizer_name, "model", err, "BPE with byte_fallback, which needs tokenizer.model beside it");
  if (hf_words(h, tokenizer, &pre, err) || put_tokens(h, tokenizer, &l, err) || (dna && put_kmers(h, &l, err)))
    return -1;
  gguf_head_str(h->head, "tokenizer.ggml.model", dna ? "hybriddna" : "gpt2", dna ? 9 : 4);
  gguf_head_str(h->head, "tokenizer.ggml.pre", pre, strlen(pre));
  gguf_head_strs(h->head, "tokenizer.ggml.tokens", l.text, l.n);
  gguf_head_i32s(h->head, "tokenizer.ggml.token_type", l.kind, l.n);
  return put_merges(h, json_object_get(model, "merges"), err);
}

// WordPiece: in files a token that begins a word has SentencePiece's space symbol, and one that continues a word has no
// prefix.
static int put_wordpiece(hf *h, const json_t *tokenizer, error *err) {
  const json_t *model = json_object_get(tokenizer, "model"), *pre = json_object_get(tokenizer, "pre_tokenizer"),
               *normalizer = json_object_get(tokenizer, "normalizer");
  const char *prefix = text_in(model, "continuing_subword_prefix");
  token_list l;
  if (!is_text(text_in(model, "type"), "WordPiece") || !is_text(prefix, "##"))
    return hf_fail(h, tokenizer_name, "model", err, "is not WordPiece with ## before what goes on with a word");
  if (!is_text(text_in(pre, "type"), "BertPreTokenizer") || !is_text(text_in(normalizer, "type"), "BertNormalizer"))
    return hf_fail(h, tokenizer_name, "pre_tokenizer", err, "words are cut in another way than BERT's");
  if (put_tokens(h, tokenizer, &l, err)) return -1;
  for (uint64_t i = 0; i < l.n; i++) {
    if (l.kind[i] == CONTROL) continue;
    l.text[i] = strncmp(l.text[i], "##", 2) ? arena_printf(h->arena, "\xe2\x96\x81%s", l.text[i]) : l.text[i] + 2;
  }
  gguf_head_str(h->head, "tokenizer.ggml.model", "bert", 4);
  gguf_head_str(h->head, "tokenizer.ggml.pre", "jina-v2-en", 10);   // the converter's name for BERT's splitting
  gguf_head_strs(h->head, "tokenizer.ggml.tokens", l.text, l.n);
  gguf_head_i32s(h->head, "tokenizer.ggml.token_type", l.kind, l.n);
  return 0;
}

// ---- SentencePiece --------------------------------------------------------------------------------------------------

// Classes whose added tokens are as they are said to be, in tokenizer.json, too (takes_added) or not.
static bool takes_added(const hf *h) {
  return h->class->vocab == HF_VOCAB_PHI3 || h->class->vocab == HF_VOCAB_INTERNLM2;
}

static bool adds_as_said(const hf *h) { return takes_added(h) || h->class->vocab == HF_VOCAB_ARCTIC; }

static int put_spm_piece(hf *h, hf_pieces *p, uint64_t i, const char *text, int32_t kind) {
  if (i >= p->n) return 0;           // the converter ignores it as well: the vocabulary is too small
  p->text[i] = kind == USER_DEFINED && !adds_as_said(h) ? plain_spaces(h, text) : arena_strdup(h->arena, text);
  p->score[i] = h->class->vocab != HF_VOCAB_ARCTIC ? -1000 : kind == USER_DEFINED ? -10000 : 0;
  p->kind[i] = kind;
  return 0;
}

// Adds a token that an object describes to the vocabulary. unk: the text of the unknown one.
static int put_added_piece(hf *h, hf_pieces *p, const char *file, int64_t id, const json_t *said, const char *unk,
                           error *err) {
  const char *text = text_in(said, "content");
  if (!text || id < 0)
    return hf_fail(h, file, file == settings_name ? "added_tokens_decoder" : "added_tokens", err,
                   "one has no content or no number");
  bool control = json_is_true(json_object_get(said, "special")) ||
                 (!adds_as_said(h) && looks_special(text));
  bool unknown = control && h->class->vocab == HF_VOCAB_ARCTIC && is_text(text, unk);
  return put_spm_piece(h, p, (uint64_t)id, text, unknown ? UNKNOWN : control ? CONTROL : USER_DEFINED);
}

static int put_added_pieces(hf *h, hf_pieces *p, const json_t *tokenizer, const json_t *settings, error *err) {
  json_t *added, *v;
  const char *key;
  size_t i;
  int status = 0;
  const json_t *of_unk = json_object_get(settings, "unk_token");
  const char *unk = json_is_object(of_unk) ? text_in(of_unk, "content") : json_string_value(of_unk);
  if (h->class->vocab == HF_VOCAB_UNIGRAM) settings = NULL;          // the converter ignores them as well
  if (hf_json(h, "added_tokens.json", false, &added, err)) return -1;
  json_object_foreach(added, key, v)
    status = status || (json_is_integer(v) && json_integer_value(v) >= 0
                          ? put_spm_piece(h, p, (uint64_t)json_integer_value(v), key, USER_DEFINED)
                          : hf_fail(h, "added_tokens.json", key, err, "is not the number of a token"));
  json_object_foreach(json_object_get(settings, "added_tokens_decoder"), key, v) {
    char *end;
    long long id = strtoll(key, &end, 10);
    if (!status) status = put_added_piece(h, p, settings_name, *end || !*key ? -1 : id, v, unk, err);
  }
  if (takes_added(h))
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, v) {
      const json_t *id = json_object_get(v, "id");
      if (!status)
        status = put_added_piece(h, p, tokenizer_name, json_is_integer(id) ? json_integer_value(id) : -1, v, unk, err);
    }
  json_decref(added);
  return status ? -1 : 0;
}

// The normalization of a text before tokenization.
static void put_changes(hf *h, const hf_pieces *known) {
  gguf_head_bool(h->head, "tokenizer.ggml.add_space_prefix", known->space_before);
  gguf_head_bool(h->head, "tokenizer.ggml.remove_extra_whitespaces", known->joins_spaces);
  if (known->n_table)
    gguf_head_u8s(h->head, "tokenizer.ggml.precompiled_charsmap", known->table, known->n_table);
}

// XLM-R's ids: four tokens with roles, then the pieces from the fourth one on.
static void align_pieces(hf_pieces *p) {
  static const char *const first[] = {"<s>", "<pad>", "</s>", "<unk>"};
  for (uint64_t i = p->n - 1; i >= COUNT(first); i--) {
    p->text[i] = p->text[i - 1];
    p->score[i] = p->score[i - 1];
    p->kind[i] = p->kind[i - 1];
  }
  for (uint64_t i = 0; i < COUNT(first); i++) {
    p->text[i] = first[i];
    p->score[i] = 0;
    p->kind[i] = i == 3 ? UNKNOWN : CONTROL;
  }
}

enum { XLMR_MASK = 250001 };

// ChatGLM's first three tokens have names of their own, and the tokens after the pieces are in the class's code.
static void name_chatglm_pieces(hf_pieces *p, uint64_t known) {
  static const char *const first[] = {"<unk>", "<bos>", "<eos>"};
  static const char *const after[] = {"[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>",
                                      "<|assistant|>", "<|observation|>"};
  for (uint64_t i = 0; i < COUNT(first) && i < p->n; i++) p->text[i] = first[i];
  for (uint64_t i = known; i < p->n; i++) {
    p->score[i] = 0;
    if (i - known >= COUNT(after)) continue;
    p->text[i] = after[i - known];
    p->kind[i] = CONTROL;
  }
}

static int put_spm(hf *h, const hf_pieces *known, const json_t *tokenizer, const json_t *settings, error *err) {
  hf_pieces p;
  bool chatglm = h->class->vocab == HF_VOCAB_CHATGLM;
  bool xlmr = h->class->vocab == HF_VOCAB_XLMR, aligned = xlmr && !known->complete;
  if (count_vocab(h, known->n, err)) return -1;
  if (xlmr && h->n_vocab < known->n) h->n_vocab = known->n;
  p = (hf_pieces){.text = ARENA_ARRAY(h->arena, const char *, h->n_vocab),
                  .score = ARENA_ARRAY(h->arena, float, h->n_vocab),
                  .kind = ARENA_ARRAY(h->arena, int32_t, h->n_vocab), .n = h->n_vocab};
  for (uint64_t i = 0; i < p.n; i++) {
    bool is = i < known->n;
    p.text[i] = is ? known->text[i] : arena_printf(h->arena, "[PAD%" PRIu64 "]", i);
    p.score[i] = is ? known->score[i] : -10000;
    p.kind[i] = is ? known->kind[i] : UNUSED;
    if (h->class->vocab == HF_VOCAB_INTERNLM2 && !strncmp(p.text[i], "[UNUSED", 7)) p.kind[i] = UNUSED;
  }
  if (aligned && p.n <= 4) return hf_fail(h, "config.json", "vocab_size", err, "%" PRIu64 " is too few", p.n);
  if (aligned) {
    align_pieces(&p);
    if (p.n > XLMR_MASK && !strcmp(h->class->arch, "nomic-bert-moe")) {        // the file lacks it
      p.text[XLMR_MASK] = "<mask>";
      p.score[XLMR_MASK] = 0;
      p.kind[XLMR_MASK] = CONTROL;
    }
  } else if (chatglm) name_chatglm_pieces(&p, known->n);
  else if (!known->complete && put_added_pieces(h, &p, tokenizer, settings, err)) return -1;
  bool unigram = xlmr || h->class->vocab == HF_VOCAB_UNIGRAM;
  const char *model = unigram ? "t5" : "llama";
  gguf_head_str(h->head, "tokenizer.ggml.model", model, strlen(model));
  gguf_head_str(h->head, "tokenizer.ggml.pre", chatglm ? "chatglm-spm" : "default", chatglm ? 11 : 7);
  gguf_head_strs(h->head, "tokenizer.ggml.tokens", p.text, p.n);
  gguf_head_f32s(h->head, "tokenizer.ggml.scores", p.score, p.n);
  gguf_head_i32s(h->head, "tokenizer.ggml.token_type", p.kind, p.n);
  if (unigram) put_changes(h, known);
  return 0;
}

// ---- Gemma 4's ----------------------------------------------------------------------------------------------------

// Checks for BPE over whole lines, with SentencePiece's space symbol and bytes for unknown letters.
static int check_gemma4(const hf *h, const json_t *tokenizer, error *err) {
  const json_t *model = json_object_get(tokenizer, "model"), *spaces = json_object_get(tokenizer, "normalizer");
  if (!is_text(text_in(model, "type"), "BPE") || !json_is_true(json_object_get(model, "byte_fallback")))
    return hf_fail(h, tokenizer_name, "model", err, "is not BPE with byte_fallback, as that of %s is", h->class->name);
  if (is_text(text_in(spaces, "type"), "Replace") && is_text(text_in(spaces, "content"), "\xe2\x96\x81") &&
      is_text(text_in(json_object_get(spaces, "pattern"), "String"), " "))
    return 0;
  return hf_fail(h, tokenizer_name, "normalizer", err, "does not replace spaces, as that of %s does", h->class->name);
}

static bool is_in_list(const json_t *list, const char *text) {
  size_t i;
  json_t *v;
  json_array_foreach(list, i,
                     v) if (is_text(json_string_value(v), text) || is_text(text_in(v, "content"), text)) return true;
  return false;
}

// Returns whether tokenizer_config.json gives a token a role ("image_token": "<|image|>"), or lists it as special.
static bool has_role(json_t *settings, const char *text) {
  static const char *const usual[] = {"bos", "eos", "unk", "pad", "mask"};
  const char *key;
  json_t *v, *extra = json_object_get(settings, "extra_special_tokens");
  for (size_t i = 0; i < COUNT(usual); i++) {
    char own[16], name[16];
    snprintf(own, sizeof own, "<%s>", usual[i]);
    snprintf(name, sizeof name, "%s_token", usual[i]);
    if (is_text(own, text) && !json_object_get(settings, name)) return true;
  }
  json_object_foreach(settings, key, v) {
    size_t n = strlen(key);
    if (n > 6 && !strcmp(key + n - 6, "_token") &&
        (is_text(json_string_value(v), text) || is_text(text_in(v, "content"), text)))
      return true;
  }
  json_object_foreach(extra, key, v) if (is_text(json_string_value(v), text)) return true;
  return is_in_list(extra ? extra : json_object_get(settings, "additional_special_tokens"), text);
}

static int32_t gemma4_kind(json_t *settings, const char *text, bool added) {
  // needed for parsing conversations, so visible in answers
  static const char *const shown[] = {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
                                      "<tool_response|>", "<|\"|>"};
  static const char digits[] = "0123456789abcdefABCDEF";
  for (size_t i = 0; i < COUNT(shown); i++) if (!strcmp(text, shown[i])) return USER_DEFINED;
  if (!strncmp(text, "<0x", 3) && strspn(text + 3, digits) == 2 && !strcmp(text + 5, ">")) return BYTE;
  if (has_role(settings, text)) return CONTROL;
  return added ? USER_DEFINED : NORMAL;
}

static int put_gemma4(hf *h, const json_t *tokenizer, json_t *settings, error *err) {
  token_list l;
  json_t *vocab = json_object_get(json_object_get(tokenizer, "model"), "vocab");
  if (!tokenizer) return hf_fail(h, tokenizer_name, NULL, err, "is missing");
  if (check_gemma4(h, tokenizer, err) || put_tokens(h, tokenizer, &l, err)) return -1;
  float *score = ARENA_ARRAY(h->arena, float, l.n);
  for (uint64_t i = 0; i < l.n; i++) {
    score[i] = -1000;
    if (l.kind[i] != UNUSED) l.kind[i] = gemma4_kind(settings, l.text[i], !json_object_get(vocab, l.text[i]));
  }
  gguf_head_str(h->head, "tokenizer.ggml.model", "gemma4", 6);
  gguf_head_strs(h->head, "tokenizer.ggml.tokens", l.text, l.n);
  gguf_head_f32s(h->head, "tokenizer.ggml.scores", score, l.n);
  gguf_head_i32s(h->head, "tokenizer.ggml.token_type", l.kind, l.n);
  gguf_head_bool(h->head, "tokenizer.ggml.add_space_prefix", false);
  return put_merges(h, json_object_get(json_object_get(tokenizer, "model"), "merges"), err);
}

// ---- which vocabulary -----------------------------------------------------------------------------------------------

static int put_rank_list(hf *h, json_t *settings, error *err) {
  bool found;
  if (count_vocab(h, 0, err) || hf_put_ranks(h, settings, &found, err)) return -1;
  return found ? 0 : hf_fail(h, tokenizer_name, NULL, err, "is missing");
}

// Classes of Llama and Phi use SentencePiece's vocabulary if the folder has one.
static int put_word_list(hf *h, const json_t *tokenizer, json_t *settings, error *err) {
  hf_pieces *pieces = NULL;
  enum hf_vocab kind = h->class->vocab;
  const json_t *prefix = json_object_get(settings, "add_prefix_space");
  bool ranks = tokenizer || is_text(text_in(settings, "tokenizer_class"), "ChatGLM4Tokenizer");
  bool bytes = kind == HF_VOCAB_GLM || (kind == HF_VOCAB_CHATGLM && ranks) || kind == HF_VOCAB_SOLAR ||
               kind == HF_VOCAB_GLM_MOE || kind == HF_VOCAB_LLADA ||
               (kind == HF_VOCAB_PHI3 && is_text(text_in(settings, "tokenizer_class"), "GPT2Tokenizer"));
  if (kind == HF_VOCAB_GEMMA4) return put_gemma4(h, tokenizer, settings, err);
  if (kind == HF_VOCAB_RWKV) return count_vocab(h, 0, err) || hf_put_world(h, err) ? -1 : 0;
  if (kind != HF_VOCAB_WORDPIECE && !bytes && hf_read_pieces(h, &pieces, err)) return -1;
  if (!pieces && !tokenizer) return put_rank_list(h, settings, err);
  if (kind == HF_VOCAB_WORDPIECE) return put_wordpiece(h, tokenizer, err);
  bool unigram = kind == HF_VOCAB_UNIGRAM || kind == HF_VOCAB_XLMR;
  if (unigram && !pieces && hf_read_unigram(h, tokenizer, &pieces, err)) return -1;
  if (unigram && !pieces)
    return hf_fail(h, kind == HF_VOCAB_XLMR ? "sentencepiece.bpe.model" : "spiece.model", NULL, err,
                   "is missing, and tokenizer.json has no vocabulary of Unigram");
  if ((kind == HF_VOCAB_LLAMA || kind == HF_VOCAB_INTERNLM3) && json_is_boolean(prefix))
    gguf_head_bool(h->head, "tokenizer.ggml.add_space_prefix", json_is_true(prefix));
  if (pieces && kind == HF_VOCAB_INTERNLM2)
    gguf_head_bool(h->head, "tokenizer.ggml.add_space_prefix", pieces->space_before);
  if (pieces && kind == HF_VOCAB_GEMMA) gguf_head_bool(h->head, "tokenizer.ggml.add_space_prefix", false);
  h->pieces = pieces;
  return pieces ? put_spm(h, pieces, tokenizer, settings, err) : put_bpe(h, tokenizer, settings, err);
}

// The first token begins and ends texts, and two ends of line end an answer.
static void put_rwkv_roles(hf *h) {
  enum { ENDS_OF_LINE = 261 };
  gguf_head_u32(h->head, "tokenizer.ggml.bos_token_id", 0);
  gguf_head_u32(h->head, "tokenizer.ggml.eos_token_id", 0);
  if (h->n_vocab > ENDS_OF_LINE) gguf_head_u32(h->head, "tokenizer.ggml.eot_token_id", ENDS_OF_LINE);
}

// Keys that all files of a kind of vocabulary have, whatever the folder says.
static int put_fixed(hf *h, error *err) {
  enum hf_vocab kind = h->class->vocab;
  uint32_t end;
  bool found;
  bool begins = kind == HF_VOCAB_GEMMA4 || kind == HF_VOCAB_LLADA || kind == HF_VOCAB_MODERNBERT;
  if (begins || kind == HF_VOCAB_PHI2 || kind == HF_VOCAB_EUROBERT || kind == HF_VOCAB_CHATGLM)
    gguf_head_bool(h->head, "tokenizer.ggml.add_bos_token", begins);
  if (kind == HF_VOCAB_MODERNBERT) {
    gguf_head_bool(h->head, "tokenizer.ggml.add_eos_token", true);
    gguf_head_bool(h->head, "tokenizer.ggml.add_sep_token", true);
  }
  if (kind == HF_VOCAB_NEMOTRON) {
    gguf_head_u32(h->head, "tokenizer.ggml.padding_token_id", 0);
    gguf_head_u32(h->head, "tokenizer.ggml.unknown_token_id", 1);
  }
  if (kind == HF_VOCAB_RWKV) put_rwkv_roles(h);
  if (kind != HF_VOCAB_HUNYUAN) return 0;
  if (hf_u32(h, "eod_token_id", &end, &found, err)) return -1;
  if (found && end >= h->n_vocab) return hf_fail(h, "config.json", "eod_token_id", err, "%u is not a token", end);
  if (found) gguf_head_u32(h->head, "tokenizer.ggml.eos_token_id", end);
  return 0;
}

static int put_all(hf *h, const json_t *tokenizer, json_t *settings, error *err) {
  if (put_word_list(h, tokenizer, settings, err) || put_roles(h, tokenizer, settings, err) ||
      put_template(h, settings, err))
    return -1;
  put_normalizer(h, json_object_get(tokenizer, "normalizer"), 0);
  if (put_fixed(h, err)) return -1;
  if (h->n_ranks) hf_put_rank_roles(h, settings);
  // small Granite models, as in the converter
  if (h->class->vocab == HF_VOCAB_LLAMA && h->n_vocab == 49152)
    gguf_head_bool(h->head, "tokenizer.ggml.add_bos_token", false);
  return 0;
}

int hf_put_vocab(hf *h, error *err) {
  json_t *tokenizer = NULL, *settings = NULL;
  int status = hf_json(h, tokenizer_name, false, &tokenizer, err) || hf_json(h, settings_name, false, &settings, err) ||
               hf_check_settings(h, settings_name, settings, err) ||
                   put_all(h, tokenizer, settings, err)
                 ? -1
                 : 0;
  json_decref(tokenizer);
  json_decref(settings);
  return status;
}
