// text: converts text to tokens and back. This header is the public interface of the folder.
//
// A tokenizer is made from what a model file says (tokenizer.ggml.*): the tokens' texts, types and scores, the merges,
// and the names of the algorithm ("model") and of the way text is cut into words first ("pre").  Encoding is a pipeline
// (encode.c): find special tokens -> cut the rest into words -> merge each word's symbols by rank -> bytes for what is
// left.
//
//   special.h      finds added tokens in a text, longest first
//   pretokenize.h  the table of word patterns, one row per name, and the splitting with them
//   bpe.h, spm.h   BPE by merge rank, on bytes or on characters; SentencePiece's BPE by score
//   merge.h        what they share: repeated merging of the best neighbours, in near-linear time for words of any
//                  length
//   joins.h, word_cache.h   where a text can be cut because nothing merges across; words that came before
//   unigram.h, charsmap.h, plamo2.h   the best sum of scores, and SentencePiece's normalisation
//   wordpiece.h, rwkv.h   the longest token that fits
//   trie.h         what those share: the tokens that begin at a place
//   chat.h, jinja.h   a conversation as a prompt, by the template of a model; a language, on its own
//   grammar.h      what may be generated: grammars (gbnf.h), JSON schemas (schema.h) and regular expressions (regex.h)
//                  as masks of tokens
//   answer.h       parses a chat model's output into reasoning, content and tool calls
//   decode.c       tokens to text;  vocab.h: the tokens themselves;  unicode.h, utf8.h: characters;  text_gguf.c: reads
//                  the keys of a file
//
// Promises:
//  - Any bytes can be encoded: invalid UTF-8 and NUL are data like any other, and time grows with the length only.
//  - Decoding what was encoded gives the same bytes back, whatever they were, unless the vocabulary itself lacks a byte
//    (then its unknown token stands in; without one encoding fails and says so, or, in byte-level BPE, the byte is left
//    out), or the model normalises: Unigram and WordPiece change characters and spaces, and some BPE models take text
//    in normal form C (PRE_NFC).
//  - Text never becomes a control token unless parse_special asks for it: CONTROL, UNKNOWN and BYTE tokens take no part
//    in merging.  USER_DEFINED tokens are matched in all text, before anything else.
//  - A tokenizer does not change after it was made; any number of threads may use it at once.
#ifndef WEFT_TEXT_H
#define WEFT_TEXT_H
#include "base/base.h"
#include "base/str.h"
#include "text/spans.h"
#include "text/utf8.h"

typedef struct tokenizer tokenizer;
typedef struct gguf gguf;

// Bytes that another object owns, with their length.
typedef struct text_view { const char *at; size_t n; } text_view;

// Types of tokens, numbered as in tokenizer.ggml.token_type.  Any other number counts as TOKEN_UNDEFINED, and UNDEFINED
// and UNUSED tokens are treated like NORMAL ones.
enum token_type {
  TOKEN_UNDEFINED,
  TOKEN_NORMAL,
  TOKEN_UNKNOWN,
  TOKEN_CONTROL,
  TOKEN_USER_DEFINED,
  TOKEN_UNUSED,
  TOKEN_BYTE
};

// Tokens with a role.      member, the key's middle part (tokenizer.ggml.<key>_token_id)
#define TOKEN_ROLES(R) \
  R(bos, "bos") R(eos, "eos") R(eot, "eot") R(eom, "eom") R(unk, "unknown") R(sep, "seperator") R(pad, "padding") \
  R(mask, "mask") R(cls, "cls") \
  R(fim_pre, "fim_pre") R(fim_suf, "fim_suf") R(fim_mid, "fim_mid") R(fim_pad, "fim_pad") R(fim_rep, "fim_rep") \
  R(fim_sep, "fim_sep")
enum token_role {
#define R(member, key) ROLE_##member,
  TOKEN_ROLES(R)
#undef R
  ROLE_COUNT
};

// A file's description of its tokenizer. {0} followed by vocab_desc_init is an empty one. tokenizer_new copies types
// and scores; the strings are borrowed: their owner (the open gguf) must outlive the tokenizer.
typedef struct vocab_desc {
  // prefix of every message, usually a file name; copied. NULL: none
  const char *source;
  text_view model, pre;                                   // "gpt2", "llama-bpe"; at is NULL if the key is absent
  // passed to token and merge; that many bytes of it are copied (0: borrowed)
  const void *ctx; size_t ctx_bytes;
  uint64_t n_tokens;
  text_view (*token)(const void *ctx, uint64_t i);        // text of token i < n_tokens
  const float *scores; uint64_t n_scores;                 // NULL: absent
  const int32_t *types; uint64_t n_types;                 // NULL: absent
  text_view (*merge)(const void *ctx, uint64_t i);        // "left right" for i < n_merges.  NULL: the key is absent
  uint64_t n_merges;
  int64_t role[ROLE_COUNT];                               // ids; -1: absent
  int add_bos, add_eos, add_sep, add_space_prefix;        // 0, 1; -1: absent
  int remove_extra_whitespaces, lowercase, strip_accents; // 0, 1; -1: absent; for Unigram and WordPiece
  // tokenizer.ggml.precompiled_charsmap; n is 0 if absent. Borrowed
  text_view charsmap;
  // tokens that are never drawn, which the tokenizer copies; NULL: absent
  const int32_t *suppressed; uint64_t n_suppressed;
  text_view name, architecture;                           // of the model: for details that no key has
} vocab_desc;
void vocab_desc_init(vocab_desc *d);                      // all absent

// Makes a tokenizer. -1 and a message with key and value for a broken description: arrays of different lengths, an
// impossible role or token (see vocab.h for the limits), a duplicate token, a score that is not a number. An unknown
// algorithm or pattern is not an error: such a tokenizer decodes, and encoding reports why it cannot.
int tokenizer_new(const vocab_desc *d, tokenizer **out, error *err);
// The same from the tokenizer.ggml.* keys of a model file, which must stay open as long as the tokenizer exists.
int tokenizer_from_gguf(const gguf *g, tokenizer **out, error *err);
void tokenizer_free(tokenizer *t);                        // NULL is fine

// Text to tokens. add_special adds BOS and EOS if the model wants them; parse_special turns the texts of control tokens
// in the input into those tokens (for templates, never for user input). *ids is for free(), even if *n_ids is 0.
int tokenizer_encode(const tokenizer *t, const char *text, size_t n, bool add_special, bool parse_special,
                     int32_t **ids, size_t *n_ids, error *err);

// tokenizer_encode for a text with several authors: parse_special applies in the parts that `within` names. A control
// token whose text crosses an end of a part stays text.
typedef struct encode_how {
  bool add_special, parse_special;
  const text_spans *within;     // NULL: the whole text
  size_t most;                  // ids after which it may stop; 0: it never stops early
} encode_how;
int tokenizer_encode_as(const tokenizer *t, text_view text, const encode_how *how, int32_t **ids, size_t *n_ids,
                        error *err);

// Encodes a text that comes in pieces, however it is cut: the ids of all calls together are those of the whole text. An
// id is returned as soon as no continuation can change it. The encoder only holds the text that this needs: usually a
// word, for some vocabularies a line. (Some texts are only decided by their end, such as one letter repeated forever.)
typedef struct text_encoder text_encoder;
// t must outlive it
int text_encoder_new(const tokenizer *t, bool add_special, bool parse_special, text_encoder **out, error *err);
void text_encoder_free(text_encoder *e);                               // NULL is fine
// *ids are borrowed until the next call. After an error every call returns that error.
int text_encoder_add(text_encoder *e, const char *text, size_t n, const int32_t **ids, size_t *n_ids, error *err);
// Returns the remaining ids; e can then begin another text.
int text_encoder_end(text_encoder *e, const int32_t **ids, size_t *n_ids, error *err);

// 0 if this tokenizer can encode text; -1 and the reason (naming key and value) if it cannot.
int tokenizer_can_encode(const tokenizer *t, error *err);

// Appends the bytes of one token, which may be a part of a character (see utf8_stream). Control and unknown tokens give
// nothing unless `special`. Ids outside the vocabulary give nothing.
void tokenizer_piece(const tokenizer *t, int32_t id, str *out, bool special);
// Appends the text of tokens, without the space that SentencePiece models put before a text.
void tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool special, str *out);

int32_t tokenizer_n_vocab(const tokenizer *t);
enum token_type tokenizer_token_type(const tokenizer *t, int32_t id);  // TOKEN_UNDEFINED outside the vocabulary
float tokenizer_token_score(const tokenizer *t, int32_t id);           // 0 without scores
// the token with exactly this text as the file has it, or -1
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n);
int32_t tokenizer_role(const tokenizer *t, enum token_role role);      // -1: none
// whether the token ends a generation: EOS, EOT, EOM and their well-known names
bool tokenizer_is_eog(const tokenizer *t, int32_t id);
// tokens that are never drawn: *n of them, borrowed
const int32_t *tokenizer_suppressed(const tokenizer *t, size_t *n);
bool tokenizer_adds_bos(const tokenizer *t);
#endif
