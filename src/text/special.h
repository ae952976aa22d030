// special: finds added tokens in a text: USER_DEFINED ones always, CONTROL and UNKNOWN ones where the caller allows it.
// A caller may allow it in parts of the text: a token counts that lies in one of them as a whole.
//
// At each position, from the left, the longest token that begins there wins (as in the library that most models were
// trained with).  llama.cpp searches for the longest token in the whole text first, then for shorter ones in what is
// left between; the two differ only where two special tokens overlap in the text. Tokens of more than SPECIAL_BYTES_MAX
// bytes are not searched for (no model has any), and a text for which the others take too many steps (trie.h) is
// refused, so that time is proportional to the text.
//
// Invariant: a trie that does not change after special_init.  Look next: text.c, which encodes what lies between.
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

// v must live as long as s; the trie lives in mem.  -1 and a message where the tokens are too many for a trie.
int special_init(special_set *s, const vocab *v, arena *mem, error *err);
enum special_found { SPECIAL_NONE, SPECIAL_FOUND, SPECIAL_UNSURE, SPECIAL_COSTLY };
// A search, which goes on through the text.  within: the parts where control tokens count; NULL: everywhere.
typedef struct special_search {
  bool parse_special;           // control tokens count
  const text_spans *within;
  size_t next;                  // the span that the search has come to
  size_t before;                // bytes of the whole text, which the spans are about, before the text at hand
  trie_cost cost;
} special_search;
// The first special token at or after `from`: *at and *id; its length is that of its text.  open: the text may go on
// after its n bytes; where one that begins at *at may be there, or a longer one than so far, the answer is
// SPECIAL_UNSURE.  SPECIAL_COSTLY: too many steps.
enum special_found special_next(const special_set *s, special_search *how, text_view text, size_t from, bool open,
                                size_t *at, int32_t *id);
#endif
