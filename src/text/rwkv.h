// rwkv: the "World" tokenizer of the RWKV models: at each place the longest token that begins there. Token texts are
// written with escapes (\n, \t, \r, \\, \', \x and two hexadecimal digits), since most tokens are bytes and not text.
//
// Invariant: the output decodes to the text. Look next: trie.h, decode.c.
#ifndef WEFT_RWKV_H
#define WEFT_RWKV_H
#include "text/trie.h"
#include "text/vocab.h"

typedef struct rwkv { const vocab *v; trie tokens; } rwkv;

int rwkv_init(rwkv *r, const vocab *v, arena *mem, error *err);            // v must live as long as r
// Appends the tokens of a stretch of text. -1 if a byte has no token and the model has no unknown token. open: the text
// may continue; *settled bytes have been encoded, up to where a token reaches the end or a longer one might.
int rwkv_encode(const rwkv *r, const char *text, size_t n, bool open, size_t *settled, trie_cost *cost, token_list *out,
                error *err);
void rwkv_unescape(text_view text, str *out);                              // a token's text as bytes
#endif
