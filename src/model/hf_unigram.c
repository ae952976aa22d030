// Reads a Unigram vocabulary from tokenizer.json: the form in which transformers saves those of T5 and XLM-R since its
// version 5, which writes no file of SentencePiece. Pieces, scores and the normalizer's table are those of that file.
// A step that files cannot express is an error.
#include <math.h>
#include <string.h>
#include "base/json.h"
#include "model/hf_impl.h"

enum { PIECES_MOST = 1 << 22, DEEP = 4, NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
static const float UNUSED_SCORE = -10000;
static const char file[] = "tokenizer.json";

static const char *text_of_member(const json_t *in, const char *key) {
  return json_string_value(json_object_get(in, key));
}
static bool is_member(const json_t *in, const char *key, const char *text) {
  return text_of_member(in, key) && !strcmp(text_of_member(in, key), text);
}

// ---- steps before pieces --------------------------------------------------------------------------------------------

static int read_charsmap(hf *h, const json_t *step, hf_pieces *p, error *err) {
  const json_t *said = json_object_get(step, "precompiled_charsmap");
  size_t n = json_string_length(said);
  if (json_is_null(said)) return 0;
  unsigned char *table = arena_alloc(h->arena, n + 1);
  p->n_table = json_is_string(said) ? hf_base64(json_string_value(said), n, table) : 0;
  p->table = table;
  return p->n_table || (json_is_string(said) && !n)
           ? 0 : hf_fail(h, file, "normalizer", err, "its precompiled_charsmap is not base64");
}

// Reads a step of the normalizer or of the pre_tokenizer. Spaces: WhitespaceSplit joins them, Replace of several by one
// as well, Strip removes those at the ends, Metaspace writes them and puts one first.
static int read_unigram_step(hf *h, const json_t *step, int depth, hf_pieces *p, error *err) {
  const json_t *of, *list = json_object_get(step, "normalizers");
  const char *type = text_of_member(step, "type");
  char quoted[64];
  size_t i;
  if (!list) list = json_object_get(step, "pretokenizers");
  if (json_is_null(step) || !step) return 0;
  if (is_member(step, "type", "Sequence") && depth < DEEP) {
    json_array_foreach(list, i, of) if (read_unigram_step(h, of, depth + 1, p, err)) return -1;
    return 0;
  }
  if (is_member(step, "type", "Precompiled")) return read_charsmap(h, step, p, err);
  if (is_member(step, "type", "Metaspace")) {
    p->space_before = text_of_member(step, "prepend_scheme")
                        ? !is_member(step, "prepend_scheme", "never")
                        : !json_is_false(json_object_get(step, "add_prefix_space"));
    return 0;
  }
  bool joins = is_member(step, "type", "Replace") && is_member(json_object_get(step, "pattern"), "Regex", " {2,}");
  p->joins_spaces |= joins || is_member(step, "type", "WhitespaceSplit");
  if (joins || is_member(step, "type", "WhitespaceSplit") || is_member(step, "type", "Strip")) return 0;
  return hf_fail(h, file, depth ? "type" : "normalizer", err, "a step '%s', which vocabularies of Unigram do not have",
                 type ? gguf_quote(quoted, sizeof quoted, type, strlen(type)) : "(none)");
}

// ---- pieces ---------------------------------------------------------------------------------------------------------

static bool is_token_id(const json_t *v, size_t n) {
  return json_is_integer(v) && json_integer_value(v) >= 0 && (uint64_t)json_integer_value(v) < n;
}

static int read_unigram_pieces(hf *h, const json_t *vocab, hf_pieces *p, error *err) {
  const json_t *pair;
  size_t i;
  json_array_foreach(vocab, i, pair) {
    const json_t *text = json_array_get(pair, 0), *score = json_array_get(pair, 1);
    const char *at = json_string_value(text);
    if (!at || strlen(at) != json_string_length(text) || !json_is_number(score))
      return hf_fail(h, file, "vocab", err, "entry %zu is not a text and a number", i);
    p->text[i] = arena_strdup(h->arena, at);
    p->kind[i] = NORMAL;
    p->score[i] = (float)json_number_value(score);
    if (!isfinite(p->score[i])) return hf_fail(h, file, "vocab", err, "the score of entry %zu is too large", i);
  }
  return 0;
}

// before: the number of pieces of the vocabulary.
static int read_unigram_added(hf *h, const json_t *list, size_t before, hf_pieces *p, error *err) {
  const json_t *added;
  size_t i;
  json_array_foreach(list, i, added) {
    const json_t *id = json_object_get(added, "id");
    const char *text = text_of_member(added, "content");
    if (!text || strlen(text) != json_string_length(json_object_get(added, "content")) || !is_token_id(id, p->n))
      return hf_fail(h, file, "added_tokens", err, "entry %zu has no content, or no id below %zu", i, p->n);
    size_t at = (size_t)json_integer_value(id);
    p->text[at] = arena_strdup(h->arena, text);
    p->kind[at] = json_is_true(json_object_get(added, "special")) ? CONTROL : USER_DEFINED;
    if (at >= before) p->score[at] = 0;
  }
  return 0;
}

static bool is_byte_piece(const char *text) {
  unsigned byte;
  int used = 0;
  return strlen(text) == 6 && sscanf(text, "<0x%2X>%n", &byte, &used) == 1 && used == 6;
}

int hf_read_unigram(hf *h, const json_t *tokenizer, hf_pieces **out, error *err) {
  const json_t *model = json_object_get(tokenizer, "model"), *vocab = json_object_get(model, "vocab"),
               *added = json_object_get(tokenizer, "added_tokens"), *unknown = json_object_get(model, "unk_id"), *a;
  size_t n = json_array_size(vocab), i;
  *out = NULL;
  if (!is_member(model, "type", "Unigram")) return 0;
  json_array_foreach(added, i, a)                          // some come after the vocabulary
    if (is_token_id(json_object_get(a, "id"), PIECES_MOST) && (size_t)json_integer_value(json_object_get(a, "id")) >= n)
      n = (size_t)json_integer_value(json_object_get(a, "id")) + 1;
  if (!json_array_size(vocab) || n > PIECES_MOST) return hf_fail(h, file, "vocab", err, "has %zu pieces", n);
  hf_pieces *p = ARENA_NEW(h->arena, hf_pieces);
  *p = (hf_pieces){.text = ARENA_ARRAY(h->arena, const char *, n), .score = ARENA_ARRAY(h->arena, float, n),
                   .kind = ARENA_ARRAY(h->arena, int32_t, n), .n = n, .complete = true};
  for (i = 0; i < n; i++) { p->text[i] = ""; p->score[i] = UNUSED_SCORE; p->kind[i] = UNUSED; }
  if (read_unigram_pieces(h, vocab, p, err) || read_unigram_added(h, added, json_array_size(vocab), p, err) ||
      read_unigram_step(h, json_object_get(tokenizer, "normalizer"), 0, p, err) ||
      read_unigram_step(h, json_object_get(tokenizer, "pre_tokenizer"), 0, p, err))
    return -1;
  for (i = 0; i < n; i++)
    if (!p->text[i][0]) p->text[i] = arena_printf(h->arena, "[PAD%zu]", i);
  if (json_is_true(json_object_get(model, "byte_fallback")))
    for (i = 0; i < n; i++) if (is_byte_piece(p->text[i])) p->kind[i] = BYTE;
  if (!json_is_null(unknown) && unknown && !is_token_id(unknown, n))
    return hf_fail(h, file, "unk_id", err, "is not a token: there are %zu", n);
  if (is_token_id(unknown, n)) p->kind[json_integer_value(unknown)] = UNKNOWN;
  *out = p;
  return 0;
}
