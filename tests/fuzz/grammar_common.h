// What the fuzzers of grammars and schemas do with a grammar that could be compiled: a walk over it with a small
// vocabulary, at each step of which every token is asked for twice, by the mask and by its bytes.
#ifndef WEFT_FUZZ_GRAMMAR_COMMON_H
#define WEFT_FUZZ_GRAMMAR_COMMON_H
#include "grammar/grammar.h"
#include "../text/small_vocab.h"

// All bytes, some longer tokens, a control token and one that ends a generation.
static inline const tokenizer *common_tokenizer(void) {
  static tokenizer *t;
  static small s;
  static const char *const longer[] = {"ab", "aba", "\"a", "\":", "\",\"", "{\"", "}]", "true", "null", "12", "345",
                                       "0.5", "aaaaaaaaaa", "abababababababababababababababab", "\\\"", "\xC3\xA9",
                                       // tries below one node that are worth passing by
                                       "aa", "aab", "aabb", "aac", "aacd", "aad", "aae", "aabbc", "aabbcc",
                                       "aa\xC3\xA9", "aa\xE6\x97", "aa\xE6\x97\xA5", "aa\xE6\x97\xA5 a", "aa\"",
                                       "aa\",", "aa\xC3", "\xA5\x61", "\xA5\xE6\x97\xA5", "xaa", "xaab", "xaac", "xaad",
                                       "xaae", "xbb", "xbbc", "xbbd", "xbbe", "x b", "x bc", "x bcd",
                                       "x b\xF0\x9F\x98\x80", "x b\xF0\x9F\x98", "x b\xF0\x9F\x98\x80\xC3\xA9"};
  if (t) return t;
  small_init(&s, "llama", NULL);
  small_bytes_spm(&s);
  for (size_t i = 0; i < COUNT(longer); i++) small_add(&s, longer[i], TOKEN_NORMAL, 0);
  s.d.role[ROLE_eos] = 2;
  return t = small_make(&s);
}

static inline void common_walk(const grammar *g, uint64_t seed, int steps) {
  static grammar_vocab *v;
  const tokenizer *t = common_tokenizer();
  error err = {0};
  if (!v && grammar_vocab_new(t, &v, &err)) die("%s", err.text);
  matcher *m;
  if (matcher_new(g, v, &m, &err)) {
    if (!err.text[0]) die("an error without a message");
    return;
  }
  int32_t n = tokenizer_n_vocab(t);
  for (int step = 0; step < steps; step++) {
    const uint64_t *mask;
    if (matcher_mask(m, &mask, &err)) break;
    uint64_t copy[16];
    memcpy(copy, mask, ((size_t)n + 63) / 64 * sizeof *copy);
    int32_t chosen = -1, allowed = 0;
    bool ambiguous = false;
    for (int32_t id = 0; id < n && !ambiguous; id++) {
      bool in_mask = copy[id / 64] >> id % 64 & 1, ok = false;
      size_t bytes;
      const char *text = grammar_vocab_bytes(v, id, &bytes);
      if (grammar_vocab_ends(v, id)) ok = matcher_complete(m);
      else if (bytes) {
        matcher *other = matcher_clone(m);
        ambiguous = matcher_bytes(other, text, bytes, &ok, &err);
        matcher_free(other);
      }
      if (!ambiguous && ok != in_mask)
        die("step %d, token %d: the mask says %d, the bytes say %d", step, id, in_mask, ok);
      allowed += in_mask;
      if (in_mask && hash_u64(seed, (uint64_t)allowed) % (uint64_t)allowed == 0) chosen = id;
    }
    if (ambiguous) break;
    if (chosen < 0) die("step %d: no token is allowed, and the text may not end", step);
    seed = hash_u64(seed, (uint64_t)chosen);
    if (matcher_accept(m, chosen, &err)) break;      // too ambiguous
    if (grammar_vocab_ends(v, chosen)) break;
  }
  matcher_free(m);
}
#endif
