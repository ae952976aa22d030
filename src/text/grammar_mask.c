// Which tokens may come next: the vocabulary as tries, and walks over them with the machine.
//
// Most of what a state allows does not depend on what is below it on the stack.  So a mask is put together from pieces.  A piece
// belongs to one state of the machine's table: from there, and with a frame of which nothing is known, it says which tokens
// fit until that frame ends, and at which nodes of the trie it ends.  Only what follows those nodes is walked with the actual frame.
// All strings of a document share the piece "inside of a string", whatever they are part of.
//
// A counted repetition puts its counts into the frame, which would make every position in a text of bounded length a new one.  But
// counts that no token can exhaust are all alike.  Tokens lie in three tries by length, and for each, counts above the longest
// token of that trie are taken for infinite: near a bound only the longer tokens, which are few, have to be looked at again.
#include "text/grammar_machine.h"
#include <stdlib.h>
#include <string.h>

enum { PARTS = 3 };
static const size_t part_bytes[PARTS] = {8, 24, SIZE_MAX};     // longest token of each

// Nodes in preorder: the subtree of node i is i .. skip[i] - 1.
struct part { uint32_t n, longest, *skip, *token0; uint16_t *depth; uint8_t *byte; int32_t *tokens; };
struct grammar_vocab {
  int32_t n;
  size_t words, longest;
  struct part part[PARTS];
  uint64_t *ends, *text;             // tokens that end a generation; tokens of text
  size_t *at;                        // [n + 1] where a token's bytes begin
  str bytes;
};

struct token { const char *at; size_t n; int32_t id; };

static int by_bytes(const void *pa, const void *pb) {
  const struct token *a = pa, *b = pb;
  int order = memcmp(a->at, b->at, a->n < b->n ? a->n : b->n);
  if (order) return order;
  if (a->n != b->n) return a->n < b->n ? -1 : 1;
  return (a->id > b->id) - (a->id < b->id);
}

static void part_build(struct part *p, struct token *tokens, size_t n) {
  VEC(uint32_t) skip = {0}, token0 = {0}, open = {0};
  VEC(uint16_t) depth = {0};
  VEC(uint8_t) byte = {0};
  if (n) qsort(tokens, n, sizeof *tokens, by_bytes);
  p->tokens = xcalloc(n + 1, sizeof *p->tokens);
  for (size_t i = 0; i < n; i++) {
    size_t same = 0, most = i ? (tokens[i - 1].n < tokens[i].n ? tokens[i - 1].n : tokens[i].n) : 0;
    while (same < most && tokens[i - 1].at[same] == tokens[i].at[same]) same++;
    while (open.n > same) skip.at[open.at[--open.n]] = (uint32_t)skip.n;
    for (size_t k = same; k < tokens[i].n; k++) {
      vec_push(&open, (uint32_t)skip.n);
      vec_push(&skip, 0);
      vec_push(&token0, (uint32_t)i);
      vec_push(&depth, (uint16_t)(k + 1));
      vec_push(&byte, (uint8_t)tokens[i].at[k]);
    }
    p->tokens[i] = tokens[i].id;
    if (tokens[i].n > p->longest) p->longest = (uint32_t)tokens[i].n;
  }
  while (open.n) skip.at[open.at[--open.n]] = (uint32_t)skip.n;
  vec_push(&token0, (uint32_t)n);
  vec_free(&open);
  p->n = (uint32_t)skip.n;
  p->skip = skip.at;
  p->token0 = token0.at;
  p->depth = depth.at;
  p->byte = byte.at;
}

int grammar_vocab_new(const tokenizer *t, grammar_vocab **out, error *err) {
  int32_t n = tokenizer_n_vocab(t);
  if (n <= 0) return error_set(err, "a grammar needs a vocabulary, and this one is empty");
  grammar_vocab *v = xcalloc(1, sizeof *v);
  v->n = n;
  v->words = ((size_t)n + 63) / 64;
  v->ends = xcalloc(v->words, sizeof *v->ends);
  v->text = xcalloc(v->words, sizeof *v->text);
  v->at = xcalloc((size_t)n + 1, sizeof *v->at);
  for (int32_t i = 0; i < n; i++) {
    v->at[i] = v->bytes.n;
    if (tokenizer_is_eog(t, i)) v->ends[i / 64] |= (uint64_t)1 << i % 64;
    else tokenizer_piece(t, i, &v->bytes, false);
    size_t bytes = v->bytes.n - v->at[i];
    if (bytes) v->text[i / 64] |= (uint64_t)1 << i % 64;
    if (bytes > v->longest) v->longest = bytes;
  }
  v->at[n] = v->bytes.n;
  struct token *tokens = xcalloc((size_t)n, sizeof *tokens);
  for (int k = 0; k < PARTS; k++) {
    size_t count = 0, shortest = k ? part_bytes[k - 1] : 0;
    for (int32_t i = 0; i < n; i++) {
      size_t bytes = v->at[i + 1] - v->at[i];
      if (bytes > shortest && bytes <= part_bytes[k]) tokens[count++] = (struct token){v->bytes.at + v->at[i], bytes, i};
    }
    part_build(&v->part[k], tokens, count);
  }
  free(tokens);
  *out = v;
  return 0;
}

void grammar_vocab_free(grammar_vocab *v) {
  if (!v) return;
  for (int k = 0; k < PARTS; k++) {
    struct part *p = &v->part[k];
    free(p->skip); free(p->token0); free(p->depth); free(p->byte); free(p->tokens);
  }
  free(v->ends);
  free(v->text);
  free(v->at);
  str_free(&v->bytes);
  free(v);
}

const char *grammar_vocab_bytes(const grammar_vocab *v, int32_t id, size_t *n) {
  *n = v->at[id + 1] - v->at[id];
  return str_c(&v->bytes) + v->at[id];
}
bool grammar_vocab_ends(const grammar_vocab *v, int32_t id) { return v->ends[id / 64] >> id % 64 & 1; }
int32_t grammar_vocab_size(const grammar_vocab *v) { return v->n; }
size_t grammar_vocab_longest(const grammar_vocab *v) { return v->longest; }

// ---- walks ------------------------------------------------------------------------------------------------------------

typedef VEC(uint32_t) nodes;

// From `state` at the node above `from`, over the nodes from .. end - 1: the tokens that fit go into bits, the nodes where the
// unknown frame ends, and that have others below them, into pops.
static void walk(store *s, const struct part *p, uint32_t from, uint32_t end, uint32_t state, uint64_t *bits, nodes *pops) {
  if (from >= end) return;
  s->walk[p->depth[from] - 1] = state;
  for (uint32_t i = from; i < end;) {
    uint32_t to = store_go(s, s->walk[p->depth[i] - 1], p->byte[i]);
    if (to == STATE_DEAD) { i = p->skip[i]; continue; }
    s->walk[p->depth[i]] = to;
    for (uint32_t k = p->token0[i]; k < p->token0[i + 1]; k++) bits[p->tokens[k] / 64] |= (uint64_t)1 << p->tokens[k] % 64;
    if (pops && s->states.at[to].pops && p->skip[i] > i + 1) vec_push(pops, i);
    i++;
  }
}

// ---- pieces -----------------------------------------------------------------------------------------------------------

// bits or, where they are few, ids.
struct piece { uint64_t *bits; int32_t *ids; uint32_t n_ids, n_pops, *pops; };
struct piece_key { uint32_t q, loop, min, max, part; };

static struct piece *piece_new(store *s, struct piece_key key) {
  const struct part *p = &s->v->part[key.part];
  struct place frame = {key.loop, key.min, key.max, FRAME_UNKNOWN}, at = {key.q, 0, 0, FRAME_UNKNOWN};
  if (key.loop != NO_STATE) at.frame = store_frame(s, &frame, 1);
  struct place places[2] = {at};
  uint32_t state = store_state(s, places, 1, false, false);
  struct piece *piece = ARENA_NEW(s->mem, struct piece);
  uint64_t *bits = xcalloc(s->v->words, sizeof *bits);
  nodes pops = {0};
  walk(s, p, 0, p->n, state, bits, &pops);
  for (size_t i = 0; i < s->v->words; i++) piece->n_ids += (uint32_t)__builtin_popcountll(bits[i]);
  if (piece->n_ids < s->v->words) {
    piece->ids = ARENA_ARRAY(s->mem, int32_t, piece->n_ids + 1);
    uint32_t n = 0;
    for (size_t i = 0; i < s->v->words; i++)
      for (uint64_t w = bits[i]; w; w &= w - 1) piece->ids[n++] = (int32_t)(i * 64) + __builtin_ctzll(w);
  } else {
    piece->bits = ARENA_ARRAY(s->mem, uint64_t, s->v->words);
    memcpy(piece->bits, bits, s->v->words * sizeof *bits);
  }
  piece->n_pops = (uint32_t)pops.n;
  piece->pops = ARENA_ARRAY(s->mem, uint32_t, pops.n + 1);
  if (pops.n) memcpy(piece->pops, pops.at, pops.n * sizeof *pops.at);
  free(bits);
  vec_free(&pops);
  return piece;
}

// Adds what the state q allows in front of a frame.  loop (may be NULL): the frame is that of a loop's body, and this is the place after it.
// What follows the frame's end are the places after[0 .. n - 1].
static void add_pieces(store *s, uint32_t q, const struct place *loop, const struct place *after, size_t n, uint64_t *mask) {
  uint32_t follow = STATE_NONE;
  for (uint32_t k = 0; k < PARTS && !s->failed; k++) {
    const struct part *p = &s->v->part[k];
    struct piece_key key = {q, NO_STATE, 0, 0, k};
    if (loop) {
      key.loop = loop->q;
      key.min = loop->min > p->longest ? p->longest + 1 : loop->min;
      key.max = loop->max > p->longest ? GRAMMAR_INF : loop->max;
    }
    void *found = NULL;
    if (!smap_get(&s->piece_ids, (const char *)&key, sizeof key, &found)) {
      found = piece_new(s, key);
      if (s->failed) return;
      struct piece_key *copy = ARENA_NEW(s->mem, struct piece_key);
      *copy = key;
      smap_set(&s->piece_ids, (const char *)copy, sizeof key, found);
    }
    const struct piece *piece = found;
    if (piece->bits)
      for (size_t i = 0; i < s->v->words; i++) mask[i] |= piece->bits[i];
    for (uint32_t i = 0; piece->ids && i < piece->n_ids; i++) mask[piece->ids[i] / 64] |= (uint64_t)1 << piece->ids[i] % 64;
    if (!piece->n_pops || !n) continue;
    if (!follow) follow = store_closure(s, after, n);
    if (follow == STATE_DEAD || !s->states.at[follow].n) continue;
    for (uint32_t i = 0; i < piece->n_pops; i++) walk(s, p, piece->pops[i] + 1, p->skip[piece->pops[i]], follow, mask, NULL);
  }
}

static void add_place(store *s, struct place p, uint64_t *mask) {
  struct frame f = s->frames.at[p.frame];
  if (p.frame < FRAME_FIRST) { add_pieces(s, p.q, NULL, NULL, 0, mask); return; }
  VEC(struct place) plain = {0};
  for (uint32_t i = 0; i < f.n && !s->failed; i++) {
    struct place c = f.at[i];
    if (c.q == NO_STATE || s->g->a.states.at[c.q].loop == NO_STATE) { vec_push(&plain, c); continue; }
    struct frame outer = s->frames.at[c.frame];
    add_pieces(s, p.q, &c, outer.at, outer.n, mask);
  }
  if (plain.n) add_pieces(s, p.q, NULL, plain.at, plain.n, mask);
  vec_free(&plain);
}

static void add_tokens(const store *s, const struct g_state *st, uint64_t *mask) {
  const grammar_vocab *v = s->v;
  for (uint32_t i = st->token0; i < st->token0 + st->n_tokens; i++) {
    int32_t id = s->g->a.tokens.at[i].id;
    if (id < 0 || id >= v->n) continue;
    uint64_t bit = (uint64_t)1 << id % 64, had = mask[id / 64] & bit;
    if (!s->g->a.tokens.at[i].negated) { mask[id / 64] |= bit; continue; }
    for (size_t k = 0; k < v->words; k++) mask[k] |= v->text[k];
    mask[id / 64] = (mask[id / 64] & ~bit) | had;
  }
}

int matcher_mask(matcher *m, const uint64_t **mask, error *err) {
  store *s = m->s;
  if (!s->v) return error_set(err, "this matcher has no vocabulary");
  store_begin(s);
  if (m->finished) m->state = STATE_DEAD;
  uint64_t *bits = s->states.at[m->state].mask;
  if (!bits) {
    bits = ARENA_ARRAY(s->mem, uint64_t, s->v->words);
    struct mstate st = s->states.at[m->state];
    for (uint32_t i = 0; i < st.n && !s->failed; i++)
      if (s->g->a.states.at[st.at[i].q].n_edges) add_place(s, st.at[i], bits);
    for (uint32_t i = 0; i < st.n && !s->failed; i++) add_tokens(s, &s->g->a.states.at[st.at[i].q], bits);
    for (size_t i = 0; st.ends && i < s->v->words; i++) bits[i] |= s->v->ends[i];
    if (s->failed) return store_failed(err);
    s->states.at[m->state].mask = bits;
  }
  *mask = bits;
  return 0;
}
