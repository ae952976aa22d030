// special: finds added tokens in a text: USER_DEFINED ones always, CONTROL and UNKNOWN ones if the caller allows it. A
// caller may allow it in parts of the text: then a token counts if it is completely inside one part.
//
// At each position, from the left, the longest token that begins there wins (as in the library that most models were
// trained with). llama.cpp searches for the longest token in the whole text first, then for shorter ones in the
// remaining text; the two differ only if two special tokens overlap in the text. Tokens of more than SPECIAL_BYTES_MAX
// bytes are not searched for (no model has any), and a text for which the others take too many steps (trie.h) is
// refused, so that time is proportional to the text.
//
// Invariant: the trie does not change after special_init. Look next: text.c, which encodes the text in between.
#ifndef WEFT_SPECIAL_H
#define WEFT_SPECIAL_H
#include "text/text.h"
#include "text/trie.h"
#include "text/vocab.h"

#define SPECIAL_BYTES_MAX 256

typedef struct special_set {
  const vocab *v;
  trie tokens;
  uint32_t first[256];          // the root's children, 0: none
} special_set;

// v must live as long as s; the trie is allocated in mem. -1 and a message if there are too many tokens for a trie.
int special_init(special_set *s, const vocab *v, arena *mem, error *err);
enum special_found { SPECIAL_NONE, SPECIAL_FOUND, SPECIAL_UNSURE, SPECIAL_COSTLY };
// A search, which proceeds through the text. within: the parts where control tokens count; NULL: everywhere.
typedef struct special_search {
  bool parse_special;           // control tokens count
  const text_spans *within;
  size_t next;                  // the current span
  size_t before;                // bytes of the whole text, to which the spans refer, before the given text
  trie_cost cost;
} special_search;
// The first special token at or after `from`: *at and *id; its length is that of its text. open: the text may continue
// after its n bytes; if a token that begins at *at, or a longer one than so far, may follow, the result is
// SPECIAL_UNSURE. SPECIAL_COSTLY: too many steps.
enum special_found special_next(const special_set *s, special_search *how, text_view text, size_t from, bool open,
                                size_t *at, int32_t *id);
#endif
