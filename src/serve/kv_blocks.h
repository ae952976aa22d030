// kv_blocks: which blocks of tokens the sequences of a model hold, told to a publisher (kv_events.h) as vLLM tells it.
//
// A block is block_size tokens behind all that stand before them. Its hash is of these tokens and of the hash of the
// block before it: vLLM's sha256_cbor with PYTHONHASHSEED=0, and of that the last 64 bits. Blocks are a tree, and a
// chain is a sequence's way into it. A block is told of once, however many sequences hold it, and told to be gone when
// none does. One thread uses all of this: the one that takes steps.
#ifndef WEFT_SERVE_KV_BLOCKS_H
#define WEFT_SERVE_KV_BLOCKS_H
#include "serve/kv_events.h"

typedef struct kv_blocks kv_blocks;
// {0}: a sequence of which nothing is told. It may be moved, but not copied.
typedef struct kv_chain { kv_blocks *of; struct kv_block *last; size_t n; } kv_chain;

// The first event says that there are no blocks. to NULL: NULL, and all functions below do nothing.
kv_blocks *kv_blocks_new(kv_events *to, int32_t n_vocab);
void kv_blocks_free(kv_blocks *b);     // says so once more; all chains have ended
// The sequence holds these tokens, of which the chain knows the first ones already. Rows of floats, which have no
// tokens of the vocabulary, end it.
void kv_chain_follow(kv_blocks *b, kv_chain *c, const int32_t *ids, size_t n);
void kv_chain_cut(kv_chain *c, size_t n);        // it holds n tokens
void kv_chain_end(kv_chain *c);
void kv_blocks_tell(kv_blocks *b);     // what has changed since, as one message
#endif
