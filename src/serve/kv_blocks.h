// kv_blocks: the blocks of tokens that a model's sequences hold, reported to a publisher (kv_events.h) in vLLM's way.
//
// A block is block_size tokens following all earlier tokens. Its hash covers these tokens and the hash of the previous
// block: vLLM's sha256_cbor with PYTHONHASHSEED=0, reduced to the last 64 bits. Blocks form a tree, and a chain is a
// sequence's path in it. A block is reported once, however many sequences hold it, and reported as removed when none
// does. Only the step thread uses this.
#ifndef WEFT_SERVE_KV_BLOCKS_H
#define WEFT_SERVE_KV_BLOCKS_H
#include "serve/kv_events.h"

typedef struct kv_blocks kv_blocks;
// {0}: a sequence that is not reported. It may be moved, but not copied.
typedef struct kv_chain { kv_blocks *of; struct kv_block *last; size_t n; } kv_chain;

// The first event reports that there are no blocks. to NULL: returns NULL, and the functions below do nothing.
kv_blocks *kv_blocks_new(kv_events *to, int32_t n_vocab);
void kv_blocks_free(kv_blocks *b);     // reports that again; all chains have ended
// The sequence holds these tokens; the chain already has the first ones. Rows of floats, which are not tokens, end it.
void kv_chain_follow(kv_blocks *b, kv_chain *c, const int32_t *ids, size_t n);
void kv_chain_cut(kv_chain *c, size_t n);        // keeps n tokens
void kv_chain_end(kv_chain *c);
void kv_blocks_tell(kv_blocks *b);     // sends changes since the last call as one message
#endif
