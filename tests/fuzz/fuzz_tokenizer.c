// Fuzzes the tokenizers: the input is a small vocabulary, merges, types and scores, and a text.  Whatever they are,
// making a tokenizer either fails with a message or gives one that encodes in bounded time, whose ids are in range,
// and, where all 256 bytes have tokens and the model does not normalise, whose decoding gives the text back.  Without
// parse_special no control token may come out, but for the unknown one that stands for text.  The same text in pieces
// gives the same ids.
//
// Layout: flags, kind (model, pattern), count of tokens, then each as {length, type, score, bytes}; count of merges,
// each {length, bytes}; for Unigram the length of a charsmap in fours, and that many; the rest is text.
#define _GNU_SOURCE
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/text.h"
#include <stdlib.h>
#include <string.h>

#define MOST 400
struct input {
  const uint8_t *at, *end;
  text_view tokens[MOST], merges[MOST];
  int32_t types[MOST];
  float scores[MOST];
  char bytes[256][8];
};

static uint8_t take(struct input *x) { return x->at < x->end ? *x->at++ : 0; }

static text_view take_text(struct input *x) {
  size_t n = take(x) % 16;
  if (n > (size_t)(x->end - x->at)) n = (size_t)(x->end - x->at);
  text_view v = {(const char *)x->at, n};
  x->at += n;
  return v;
}

static text_view token_at(const void *ctx, uint64_t i) { return ((const struct input *)ctx)->tokens[i]; }
static text_view merge_at(const void *ctx, uint64_t i) { return ((const struct input *)ctx)->merges[i]; }

static bool is_text_type(int32_t type) {
  return type == TOKEN_NORMAL || type == TOKEN_UNUSED || type == TOKEN_UNDEFINED;
}

static void add_bytes(struct input *x, vocab_desc *d, const char *form) {
  for (int b = 0; b < 256; b++) {
    int n = form ? snprintf(x->bytes[b], sizeof x->bytes[b], *form == '<' ? "<0x%02X>" : "\\x%02x", (unsigned)b) :
                   bpe_byte_char((unsigned char)b, x->bytes[b]);
    x->types[d->n_tokens] = form && *form == '<' ? TOKEN_BYTE : TOKEN_NORMAL, x->scores[d->n_tokens] = 0;
    x->tokens[d->n_tokens++] = (text_view){x->bytes[b], (size_t)n};
  }
}

// In pieces of lengths that the text decides: the same ids, or an error where there was one.
static void check_pieces(const tokenizer *t, const char *text, size_t n, bool add, bool parse, bool bad,
                         const int32_t *want, size_t n_want) {
  text_encoder *e;
  error err = {0};
  const int32_t *ids;
  size_t n_ids, at = 0, came = 0;
  uint64_t cuts = hash_bytes(text, n, 0);
  if (text_encoder_new(t, add, parse, &e, &err)) { if (!bad) die("no encoder: %s", err.text); return; }
  for (bool end = false; !end; cuts = hash_u64(cuts, 0)) {
    size_t piece = cuts % (cuts >> 32 & 1 ? 4 : 64);
    if (piece > n - at) piece = n - at;
    end = at == n;
    if (end ? text_encoder_end(e, &ids, &n_ids, &err) : text_encoder_add(e, text + at, piece, &ids, &n_ids, &err))
      break;
    at += piece;
    if (bad) continue;
    if (n_ids > n_want - came || (n_ids && memcmp(ids, want + came, n_ids * sizeof *ids)))
      die("other ids in pieces, before byte %zu", at);
    came += n_ids;
  }
  if (bad != (err.text[0] != 0)) die("in pieces there is %s error: %s", bad ? "no" : "an", err.text);
  if (!bad && came != n_want) die("%zu ids in pieces, not %zu", came, n_want);
  text_encoder_free(e);
}

// complete: every text can be encoded; exact: and comes back.
static void check(const tokenizer *t, const char *text, size_t n, bool complete, bool exact) {
  static const int ways[] = {0, 1, 2, 3};
  for (size_t w = 0; w < COUNT(ways); w++) {
    bool parse = ways[w] & 1, add = ways[w] & 2;
    int32_t *ids;
    size_t n_ids;
    error err = {0};
    if (tokenizer_encode(t, text, n, add, parse, &ids, &n_ids, &err)) {
      if (!err.text[0]) die("an error without a message");
      if (complete) die("encoding failed: %s", err.text);
      check_pieces(t, text, n, add, parse, true, NULL, 0);
      continue;
    }
    for (size_t i = 0; i < n_ids; i++) {
      if (ids[i] < 0 || ids[i] >= tokenizer_n_vocab(t)) die("id %d of %d", ids[i], tokenizer_n_vocab(t));
      if (!parse && !add && tokenizer_token_type(t, ids[i]) == TOKEN_CONTROL && ids[i] != tokenizer_role(t, ROLE_unk))
        die("text became control token %d", ids[i]);
    }
    check_pieces(t, text, n, add, parse, false, ids, n_ids);
    if (exact && !parse && !add) {
      str back = {0};
      tokenizer_decode(t, ids, n_ids, false, &back);
      if (back.n != n || memcmp(str_c(&back), text, n)) die("text of %zu bytes came back as %zu", n, back.n);
      str_free(&back);
    }
    free(ids);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const models[] = {"gpt2", "llama", "bert", "t5", "rwkv", "plamo2", "gemma4", "whitespace",
                                       "hybriddna"};
  static struct input x;
  x.at = data, x.end = data + size;
  vocab_desc d;
  vocab_desc_init(&d);
  uint8_t flags = take(&x), kind = take(&x);
  const char *model = models[kind % COUNT(models)];
  size_t rows = 0;
  while (pretokenizer_at(rows)) rows++;
  const pretokenizer_row *row = pretokenizer_at(kind / COUNT(models) * 3 % rows + flags % 3);
  if (!row) row = pretokenizer_at(0);
  bool regions = !strcmp(model, "hybriddna"), bytes = (regions || !strcmp(model, "gpt2")) && !(row->flags & PRE_CHARS),
       complete = flags & 2;
  d.model = (text_view){model, strlen(model)};
  d.pre = (text_view){row->name, strlen(row->name)};
  d.ctx = &x, d.token = token_at, d.merge = merge_at;
  d.scores = x.scores, d.types = x.types;
  if (flags & 4) d.add_space_prefix = 0;
  if (flags & 16) d.remove_extra_whitespaces = 1;
  if (flags & 32) d.lowercase = 0;
  if (flags & 64) d.name = (text_view){"phi3", 4};
  if (complete) add_bytes(&x, &d, bytes ? NULL : !strcmp(model, "rwkv") ? "\\x" : "<0x");
  for (size_t n = take(&x) % 64; n; n--) {
    uint8_t type = take(&x);
    x.types[d.n_tokens] = type % 8;
    x.scores[d.n_tokens] = (float)(type / 8) - 16;
    if (flags & 8 && !is_text_type(x.types[d.n_tokens])) d.role[type % ROLE_COUNT] = (int64_t)d.n_tokens;
    x.tokens[d.n_tokens++] = take_text(&x);
  }
  static const char *const names[] = {"<dna>", "</dna>", "<oov>", "ACGTAC\xEE\x80\x80", "AAAAAA\xEE\x80\x80"};
  for (size_t i = 0; i < COUNT(names) && regions && flags & 4; i++) {
    x.types[d.n_tokens] = TOKEN_NORMAL;
    x.tokens[d.n_tokens++] = (text_view){names[i], strlen(names[i])};
  }
  for (size_t n = take(&x) % 64; n; n--) x.merges[d.n_merges++] = take_text(&x);
  d.n_scores = d.n_types = d.n_tokens;
  if (!strcmp(model, "t5")) {
    size_t n = 4 * (size_t)take(&x);
    if (n > (size_t)(x.end - x.at)) n = 0;
    d.charsmap = (text_view){(const char *)x.at, n};
    x.at += n;
  }
  tokenizer *t = NULL;
  error err = {0};
  if (tokenizer_new(&d, &t, &err)) {
    if (!err.text[0]) die("an error without a message");
    return 0;
  }
  const char *text = (const char *)x.at;
  size_t n = (size_t)(x.end - x.at);
  bool bert = !strcmp(model, "bert"), t5 = !strcmp(model, "t5"), bars = memmem(text, n, "\xE2\x96\x81", 3) != NULL;
  bool changes = bert || t5 || flags & 64 || (bars && !strcmp(model, "llama"));
  if (!strcmp(model, "gemma4")) row = pretokenizer_find("gemma4", 6);
  changes |= regions;                // of a region
  if (!strcmp(model, "gpt2") || !strcmp(model, "gemma4") || !strcmp(model, "whitespace"))
    changes |= row->flags & (PRE_NFC | PRE_NO_SPACES) || (row->flags & PRE_BARS && bars);
  if (!strcmp(model, "plamo2")) changes |= memmem(text, n, "\xEF\xBB\xBF", 3) != NULL;
  check(t, text, n, complete && !bert && !t5, complete && !changes);
  tokenizer_free(t);
  return 0;
}
