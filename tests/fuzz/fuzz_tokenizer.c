// Fuzzes the tokenizers: the input is a small vocabulary, merges, types and scores, and a text.  Whatever they are, making a
// tokenizer either fails with a message or gives one that encodes in bounded time, whose ids are in range, and, where all 256
// bytes have tokens, whose decoding gives the text back.  Without parse_special no control token may come out.
//
// Layout: flags, count of tokens, then each as {length, type, score, bytes}; count of merges, each {length, bytes}; the rest is text.
#include "text/bpe.h"
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

static bool is_text_type(int32_t type) { return type == TOKEN_NORMAL || type == TOKEN_UNUSED || type == TOKEN_UNDEFINED; }

static void add_bytes(struct input *x, vocab_desc *d, bool spm) {
  for (int b = 0; b < 256; b++) {
    int n = spm ? snprintf(x->bytes[b], sizeof x->bytes[b], "<0x%02X>", (unsigned)b) : bpe_byte_char((unsigned char)b, x->bytes[b]);
    x->types[d->n_tokens] = spm ? TOKEN_BYTE : TOKEN_NORMAL, x->scores[d->n_tokens] = 0;
    x->tokens[d->n_tokens++] = (text_view){x->bytes[b], (size_t)n};
  }
}

static void check(const tokenizer *t, const char *text, size_t n, bool complete) {
  static const int ways[] = {0, 1, 2, 3};
  for (size_t w = 0; w < COUNT(ways); w++) {
    bool parse = ways[w] & 1, add = ways[w] & 2;
    int32_t *ids;
    size_t n_ids;
    error err = {0};
    if (tokenizer_encode(t, text, n, add, parse, &ids, &n_ids, &err)) {
      if (!err.text[0]) die("an error without a message");
      if (complete) die("encoding failed: %s", err.text);
      continue;
    }
    for (size_t i = 0; i < n_ids; i++) {
      if (ids[i] < 0 || ids[i] >= tokenizer_n_vocab(t)) die("id %d of %d", ids[i], tokenizer_n_vocab(t));
      if (!parse && !add && tokenizer_token_type(t, ids[i]) == TOKEN_CONTROL) die("text became control token %d", ids[i]);
    }
    if (complete && !parse && !add) {
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
  static const char *const pres[] = {"gpt-2", "llama-bpe", "qwen2", "gpt-4o", "deepseek-llm", "deepseek-v3", "default", "youtu"};
  static struct input x;
  x.at = data, x.end = data + size;
  vocab_desc d;
  vocab_desc_init(&d);
  uint8_t flags = take(&x);
  bool spm = flags & 1, complete = flags & 2;
  const char *pre = pres[flags >> 5];
  d.model = spm ? (text_view){"llama", 5} : (text_view){"gpt2", 4};
  d.pre = (text_view){pre, strlen(pre)};
  d.ctx = &x, d.token = token_at, d.merge = merge_at;
  d.scores = x.scores, d.types = x.types;
  if (flags & 4) d.add_space_prefix = 0;
  if (complete) add_bytes(&x, &d, spm);
  for (size_t n = take(&x) % 64; n; n--) {
    uint8_t type = take(&x);
    x.types[d.n_tokens] = type % 8;
    x.scores[d.n_tokens] = (float)(type / 8) - 16;
    if (flags & 8 && !is_text_type(x.types[d.n_tokens])) d.role[type % ROLE_COUNT] = (int64_t)d.n_tokens;
    x.tokens[d.n_tokens++] = take_text(&x);
  }
  for (size_t n = take(&x) % 64; n; n--) x.merges[d.n_merges++] = take_text(&x);
  d.n_scores = d.n_types = d.n_tokens;
  tokenizer *t = NULL;
  error err = {0};
  if (tokenizer_new(&d, &t, &err)) {
    if (!err.text[0]) die("an error without a message");
    return 0;
  }
  check(t, (const char *)x.at, (size_t)(x.end - x.at), complete);
  tokenizer_free(t);
  return 0;
}
