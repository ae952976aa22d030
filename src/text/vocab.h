// vocab: the tokens of a model: text, type and score by id, id by text, the tokens with a role, those that end a
// generation.
//
// Limits and checks (vocab_init), each refusal naming key and value:
//   tokens       at most VOCAB_TOKENS_MAX, each of at most TOKEN_BYTES_MAX bytes; an empty text is allowed (such a
//                token is
//                never matched and decodes to nothing), the same text twice is not
//   types, scores  as many as there are tokens; no score is NaN
//   roles        ids below the number of tokens; 4294967295 (-1 as some writers store it) counts as absent
//   suppressed   ids of no token are left out, as in llama.cpp
// Where a file has no types, SentencePiece's "<0x41>" names count as bytes.
//
// Invariant: after vocab_init nothing changes. Look next: bpe.h, spm.h (which look tokens up), decode.c.
#ifndef WEFT_VOCAB_H
#define WEFT_VOCAB_H
#include "base/arena.h"
#include "base/hash.h"
#include "text/text.h"

#define TOKEN_BYTES_MAX 65535u
#define VOCAB_TOKENS_MAX (1u << 26)

// The algorithms: byte-level BPE, BPE on characters, SentencePiece's BPE, WordPiece, Unigram, and those of RWKV and
// PLaMo-2.
enum vocab_kind {
  VOCAB_OTHER,
  VOCAB_BPE,
  VOCAB_CHARS,
  VOCAB_SPM,
  VOCAB_WORDPIECE,
  VOCAB_UNIGRAM,
  VOCAB_RWKV,
  VOCAB_PLAMO2
};

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

typedef struct vocab {
  enum vocab_kind kind;
  arena *mem;                   // owns everything below but the bytes of the texts
  const char *source;           // prefix of messages: "FILE: " or ""
  int32_t n;
  text_view *token;             // [n]
  uint8_t *type;                // [n] enum token_type
  bool *eog;                    // [n]
  float *score;                 // [n], or NULL: all 0
  // [n] STRIP_LEFT, STRIP_RIGHT, or NULL: none. The white space around this token in a text that is dropped
  uint8_t *strip;
  uint32_t longest;             // bytes of the longest token
  int32_t role[ROLE_COUNT];     // -1: none
  int32_t *suppressed;          // [n_suppressed] tokens that are never drawn
  size_t n_suppressed;
  hash_key key;                 // of the hash below; random, so that no file can be made to collide
  uint64_t mask;                // slots - 1
  uint64_t *slot;               // upper half: upper half of the text's hash; lower half: id + 1; 0: empty
} vocab;

// source: prefix of messages ("FILE: " or ""), allocated in mem like everything in v. 0, or -1 and a message.
int vocab_init(vocab *v, const vocab_desc *d, enum vocab_kind kind, const char *source, arena *mem, error *err);
// The token of exactly this text, or -1.
int32_t vocab_find(const vocab *v, const char *text, size_t n);
// Whether merging may produce this token from text. BYTE, CONTROL and UNKNOWN tokens never come from text, and
// USER_DEFINED ones only from the search for special tokens (see special.h).
static inline bool vocab_merges_to(const vocab *v, int32_t id) {
  return v->type[id] == TOKEN_NORMAL || v->type[id] == TOKEN_UNUSED || v->type[id] == TOKEN_UNDEFINED;
}

// The steps of vocab_find, for callers that look many up and hide the memory's latency.
static inline uint64_t vocab_hash(const vocab *v, const char *text, size_t n) { return hash_keyed(v->key, text, n); }
static inline void vocab_prefetch(const vocab *v, uint64_t hash) { __builtin_prefetch(&v->slot[hash & v->mask]); }
// The token for text that the vocabulary lacks, or -1. A control token is not used: text must not become one.
static inline int32_t vocab_unknown(const vocab *v) {
  int32_t id = v->role[ROLE_unk];
  return id >= 0 && v->type[id] != TOKEN_CONTROL && !v->eog[id] ? id : -1;
}

int32_t vocab_find_hashed(const vocab *v, uint64_t hash, const char *text, size_t n);
int32_t vocab_byte(const vocab *v, unsigned char byte);    // the BYTE token "<0xXX>", or -1
// -1: no token exists for these bytes, one character
int vocab_no_token(const vocab *v, const char *text, size_t n, error *err);

// vocab_unknown for models whose algorithm itself outputs an unknown token: it may be marked as a control token, as in
// BERT's files, or be identified by its type alone.
static inline int32_t vocab_unknown_word(const vocab *v) {
  int32_t id = v->role[ROLE_unk];
  for (int32_t i = 0; id < 0 && i < v->n; i++)
    if (v->type[i] == TOKEN_UNKNOWN) id = i;
  return id >= 0 && !v->eog[id] ? id : -1;
}

// A growing list of tokens.
typedef struct token_list { int32_t *at; size_t n, cap; } token_list;
#endif
