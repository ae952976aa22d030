// Which tokens may come next: the vocabulary as tries, and walks over them with the machine.
//
// Most of what a state allows does not depend on the stack below it. So a mask is composed of pieces. A piece belongs
// to one state of the machine's table, with an unknown frame: it says which tokens fit until that frame ends, and at
// which nodes of the trie it ends. Only continuations of those nodes are walked with the actual frame, and only for
// bytes that it accepts: nodes are indexed by byte. For example, all strings of a document share the piece "inside of a
// string".
//
// A counted repetition has counts in its frame, which would make every position in a text of bounded length a new one.
// But counts that no token can exhaust are equivalent. Tokens are in three tries by length, and for each, counts above
// its longest token are treated as infinite. For the others there is one more piece, which says for each token how many
// rounds it begins, and for each node at which the repetition may end, after how many.
//
// A walk skips a whole subtrie if none of its bytes changes the state, as within words in a string.
#include "grammar/grammar_machine.h"
#include <stdlib.h>
#include <string.h>

enum { PARTS = 3 };
static const size_t part_bytes[PARTS] = {8, 24, SIZE_MAX};     // longest token of each

// Nodes in preorder: the subtree of node i is i .. skip[i] - 1. by_byte[byte0[b] .. byte0[b + 1] - 1] are the nodes of
// byte b.
struct part {
  uint32_t n, longest, *skip, *token0, *parent, *by_byte, byte0[257];
  uint64_t *below;
  uint16_t *depth;
  uint8_t *byte;
  int32_t *tokens;
};
struct grammar_vocab {
  uint8_t group[256];                // 64 groups of bytes: each node has the set of groups in its subtree
  int32_t n;
  size_t words, longest;
  struct part part[PARTS];
  uint64_t *ends, *text;             // tokens that end a generation; text tokens
  size_t *at;                        // [n + 1] offsets of tokens' bytes
  str bytes;
};

// groups of bytes above 0x7F: in valid characters, and in broken ones
enum { CHARS = 62, BROKEN };

struct token { const char *at; size_t n; int32_t id; };

static int by_bytes(const void *pa, const void *pb) {
  const struct token *a = pa, *b = pb;
  int order = memcmp(a->at, b->at, a->n < b->n ? a->n : b->n);
  if (order) return order;
  if (a->n != b->n) return a->n < b->n ? -1 : 1;
  return (a->id > b->id) - (a->id < b->id);
}

static uint8_t group_of(unsigned char b) {
  static const char alone[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \t\n\r0", *const among[] = {"123456789", "abcdef",
                                                                                              "ABCDEF"};
  static const unsigned char upto[] = {0x1F, 'Z', 'z', 0x7F};
  const char *at = b ? strchr(alone, b) : NULL;
  if (at) return (uint8_t)(at - alone);
  uint8_t group = sizeof alone - 1;
  for (size_t i = 0; i < COUNT(among); i++, group++) if (b && strchr(among[i], b)) return group;
  if (b > 0x7F) return CHARS;
  for (size_t i = 0; upto[i] < b; i++) group++;
  return group;
}

// Within a multi-byte character: the number of remaining bytes, and the range of the next one.
enum { WHOLE, ONE, TWO, THREE, AFTER_E0, AFTER_ED, AFTER_F0, AFTER_F4, NO_CHAR };
static uint8_t utf8_go(uint8_t at, uint8_t b) {
  static const struct { uint8_t lo, hi, then;
  } next[] = {[ONE] = {0x80, 0xBF, WHOLE},    [TWO] = {0x80, 0xBF, ONE},      [THREE] = {0x80, 0xBF, TWO},
              [AFTER_E0] = {0xA0, 0xBF, ONE}, [AFTER_ED] = {0x80, 0x9F, ONE}, [AFTER_F0] = {0x90, 0xBF, TWO},
              [AFTER_F4] = {0x80, 0x8F, TWO}};
  if (b < 0x80) return WHOLE;
  if (at == NO_CHAR) return at;
  if (at != WHOLE) return b >= next[at].lo && b <= next[at].hi ? next[at].then : NO_CHAR;
  if (b < 0xC2 || b > 0xF4) return NO_CHAR;
  return b < 0xE0    ? ONE
         : b == 0xE0 ? AFTER_E0
         : b == 0xED ? AFTER_ED
         : b < 0xF0  ? TWO
         : b == 0xF0 ? AFTER_F0
         : b < 0xF4  ? THREE
                     : AFTER_F4;
}

// Computes the index of the nodes: parents, bytes of subtrees, nodes by byte.
static void part_index(struct part *p, const uint8_t *group) {
  p->parent = xcalloc(p->n + 1, sizeof *p->parent);
  p->below = xcalloc(p->n + 1, sizeof *p->below);
  p->by_byte = xcalloc(p->n + 1, sizeof *p->by_byte);
  uint32_t *above = xcalloc(p->longest + 1, sizeof *above), at[256];
  uint8_t *utf8 = xcalloc(p->longest + 1, 1);
  above[0] = NO_STATE;
  for (uint32_t i = 0; i < p->n; i++) {
    p->parent[i] = above[p->depth[i] - 1];
    above[p->depth[i]] = i;
    uint8_t before = utf8[p->depth[i] - 1], after = utf8[p->depth[i]] = utf8_go(before, p->byte[i]);
    bool broken = after == NO_CHAR || (after == WHOLE && p->byte[i] < 0x80 && before != WHOLE);
    p->below[i] = (uint64_t)1 << group[p->byte[i]] | (uint64_t)broken << BROKEN;
    p->byte0[p->byte[i] + 1]++;
  }
  for (uint32_t i = p->n; i-- > 0;)
    if (p->parent[i] != NO_STATE) p->below[p->parent[i]] |= p->below[i];
  for (int b = 0; b < 256; b++) at[b] = p->byte0[b + 1] += p->byte0[b];
  for (uint32_t i = p->n; i-- > 0;) p->by_byte[--at[p->byte[i]]] = i;
  free(above);
  free(utf8);
}

static void part_build(struct part *p, struct token *tokens, size_t n, const uint8_t *group) {
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
  part_index(p, group);
}

int grammar_vocab_new(const tokenizer *t, grammar_vocab **out, error *err) {
  int32_t n = tokenizer_n_vocab(t);
  if (n <= 0) return error_set(err, "a grammar needs a vocabulary, and this one is empty");
  grammar_vocab *v = xcalloc(1, sizeof *v);
  for (int b = 0; b < 256; b++) v->group[b] = group_of((unsigned char)b);
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
      if (bytes > shortest && bytes <= part_bytes[k])
        tokens[count++] = (struct token){v->bytes.at + v->at[i], bytes, i};
    }
    part_build(&v->part[k], tokens, count, v->group);
  }
  free(tokens);
  *out = v;
  return 0;
}

void grammar_vocab_free(grammar_vocab *v) {
  if (!v) return;
  for (int k = 0; k < PARTS; k++) {
    struct part *p = &v->part[k];
    free(p->skip);
    free(p->token0);
    free(p->parent);
    free(p->by_byte);
    free(p->below);
    free(p->depth);
    free(p->byte);
    free(p->tokens);
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

// ---- walks ----------------------------------------------------------------------------------------------------------

// The results of a walk: tokens as bits and, if counted, in the store's list with the rounds that they need; the nodes
// from .. to - 1 at which the unknown frame ends, after `rounds` rounds, or for a plain loop the rounds + 1 by node.
struct pop { uint32_t from, to, rounds; };
struct finds { uint64_t *bits; bool counted, pop; uint32_t n_ids; VEC(struct pop) pops; uint16_t *ends; };

// The most rounds of the COUNTED loop below them that frames leave. Frames refer to lower numbers and to their group.
static uint32_t rounds_left(store *s, uint32_t frame) {
  while (s->rounds_left.n <= frame) {
    uint32_t first = (uint32_t)s->rounds_left.n, n = s->frames.at[first].group_n;
    for (uint32_t i = 0; i < n; i++) vec_push(&s->rounds_left, 0);
    for (bool more = true; more;) {
      more = false;
      for (uint32_t f = first; f < first + n; f++)
        for (uint32_t i = 0; i < s->frames.at[f].n; i++) {
          struct place p = s->frames.at[f].at[i];
          uint32_t left = is_counted(p) ? p.max : s->rounds_left.at[p.frame];
          if (left > s->rounds_left.at[f]) { s->rounds_left.at[f] = left; more = n > 1; }
        }
    }
  }
  return s->rounds_left.at[frame];
}

// The rounds that must begin to be in this state.
static uint32_t rounds_of(store *s, uint32_t state) {
  struct mstate m = s->states.at[state];
  if (m.rounds) return m.rounds - 1;
  uint32_t left = 0;
  for (uint32_t i = 0; i < m.n; i++) {
    uint32_t here = is_counted(m.at[i]) ? m.at[i].max : rounds_left(s, m.at[i].frame);
    if (here > left) left = here;
  }
  s->states.at[state].rounds = COUNTED - left + 1;
  return COUNTED - left;
}

// Whether every multi-byte character leads from a state back to it, and no callee ends within one.
static bool chars_stay(store *s, uint32_t home) {
  struct { uint32_t state; uint8_t utf8; } met[24] = {{home, WHOLE}};
  size_t n = 1;
  if (s->states.at[home].pops) return false;
  for (size_t i = 0; i < n; i++)
    for (int b = 0x80; b < 256; b++) {
      uint8_t utf8 = utf8_go(met[i].utf8, (uint8_t)b);
      if (utf8 == NO_CHAR) continue;
      uint32_t to = store_go(s, met[i].state, (unsigned char)b);
      size_t k = 0;
      while (k < n && (met[k].state != to || met[k].utf8 != utf8)) k++;
      if (k < n) continue;
      if (to == STATE_DEAD || utf8 == WHOLE || n == COUNT(met) || s->states.at[to].pops ||
          rounds_of(s, to) != rounds_of(s, home))
        return false;
      met[n].state = to;
      met[n++].utf8 = utf8;
    }
  return true;
}

// The groups of bytes after which a state is unchanged: requested for large subtries, and computed for states that
// occur there often.
static uint64_t stay_groups(store *s, uint32_t state) {
  enum { OFTEN = 4 };
  struct mstate *m = &s->states.at[state];
  if (m->asked > OFTEN) return m->stays;
  if (m->asked++ < OFTEN) return 0;
  uint64_t moves = (uint64_t)1 << BROKEN | (uint64_t)!chars_stay(s, state) << CHARS;
  for (int b = 0; b < 0x80; b++)
    if (!(moves >> s->v->group[b] & 1) && store_go(s, state, (unsigned char)b) != state)
      moves |= (uint64_t)1 << s->v->group[b];
  return s->states.at[state].stays = ~moves;
}

static void find_tokens(store *s, const struct part *p, uint32_t rounds, uint32_t from, uint32_t to, struct finds *f) {
  for (uint32_t k = from; k < to; k++) {
    int32_t id = p->tokens[k];
    f->bits[id / 64] |= (uint64_t)1 << id % 64;
    if (!f->counted) continue;
    s->found[f->n_ids] = id;
    s->found_rounds[f->n_ids++] = (uint16_t)rounds;
  }
}

static void find_pops(store *s, uint32_t state, uint32_t from, uint32_t to, struct finds *f) {
  struct mstate m = s->states.at[state];
  if (!f->counted) { vec_push(&f->pops, ((struct pop){from, to, 0})); return; }
  for (uint32_t i = 0; i < m.n; i++)
    if (m.at[i].q == NO_STATE) vec_push(&f->pops, ((struct pop){from, to, COUNTED - m.at[i].max}));
}

static void spend_walk(store *s, uint32_t nodes) {
  s->budget -= nodes / 16;
  if (s->budget < 0) s->failed = true;
}

// From `state` at the parent of `from`, over the nodes from .. end - 1.
static void walk(store *s, const struct part *p, uint32_t from, uint32_t end, uint32_t state, struct finds *f) {
  enum { LARGE = 8 };
  if (from >= end) return;
  uint32_t visited = 0;
  s->walk[p->depth[from] - 1] = state;
  for (uint32_t i = from; i < end; visited++) {
    uint32_t above = s->walk[p->depth[i] - 1], skip = p->skip[i];
    if (skip - i >= LARGE && !(p->below[i] & ~stay_groups(s, above))) {
      find_tokens(s, p, f->counted ? rounds_of(s, above) : 0, p->token0[i], p->token0[skip], f);
      if (f->pop && s->states.at[above].pops) find_pops(s, above, i, skip, f);
      i = skip;
      continue;
    }
    uint32_t to = store_go(s, above, p->byte[i]);
    if (to == STATE_DEAD) { i = skip; continue; }
    s->walk[p->depth[i]] = to;
    find_tokens(s, p, f->counted ? rounds_of(s, to) : 0, p->token0[i], p->token0[i + 1], f);
    if (f->pop && s->states.at[to].pops && skip > i + 1) find_pops(s, to, i, i + 1, f);
    i++;
  }
  spend_walk(s, visited);
}

// walk() over all nodes for a loop whose body is plain, without counts: the rounds are the number of ends on the path.
// A node at which the first one ends is still in round 0.
static void walk_plain(store *s, const struct part *p, uint32_t state, struct finds *f) {
  enum { LARGE = 8 };
  s->walk[0] = state;
  s->walk_ends[0] = 0;
  for (uint32_t i = 0; i < p->n;) {
    uint32_t depth = p->depth[i], above = s->walk[depth - 1], skip = p->skip[i], ends = s->walk_ends[depth - 1];
    if (skip - i >= LARGE && s->states.at[above].pops && !(p->below[i] & ~stay_groups(s, above))) {
      for (uint32_t first = ends - depth; i < skip; i++) {       // each byte is a round
        find_tokens(s, p, first + p->depth[i], p->token0[i], p->token0[i + 1], f);
        f->ends[i] = (uint16_t)(first + p->depth[i] + 1);
      }
      continue;
    }
    uint32_t to = store_go(s, above, p->byte[i]);
    if (to == STATE_DEAD) { i = skip; continue; }
    bool pops = s->states.at[to].pops;
    s->walk[depth] = to;
    s->walk_ends[depth] = ends + pops;
    find_tokens(s, p, ends, p->token0[i], p->token0[i + 1], f);
    if (pops) f->ends[i] = (uint16_t)(ends + 1);
    i++;
  }
  spend_walk(s, p->n);
}

// ---- pieces ---------------------------------------------------------------------------------------------------------

// Tokens as bits, or as ids if there are few or they have rounds. most: of the rounds
struct piece { uint64_t *bits; int32_t *ids; uint16_t *rounds, *ends; uint32_t n_ids, most, n_pops; struct pop *pops; };
// own_min, own_max: for a state that counts letters
struct piece_key { uint32_t q, loop, min, max, part, own_min, own_max; };

static const struct g_callee *loop_body(const store *s, uint32_t loop) {
  return &s->g->callees.at[s->g->a.states.at[loop].loop];
}

static struct piece *piece_new(store *s, struct piece_key key) {
  const struct part *p = &s->v->part[key.part];
  size_t words = s->v->words;
  const struct g_callee *body = key.loop == NO_STATE ? NULL : loop_body(s, key.loop);
  bool plain = body && body->plain;
  struct place frame = {key.loop, key.min, plain ? GRAMMAR_INF : key.max, FRAME_UNKNOWN},
               at = {key.q, key.own_min, key.own_max, FRAME_UNKNOWN};
  if (body) at.frame = store_frame(s, &frame, 1);
  struct place places[2] = {at};
  uint32_t state = store_state(s, places, 1, false, false);
  struct piece *piece = ARENA_NEW(s->mem, struct piece);
  struct finds f = {.bits = xcalloc(words, sizeof *f.bits), .counted = key.max == COUNTED, .pop = true};
  if (plain) {
    piece->ends = f.ends = ARENA_ARRAY(s->mem, uint16_t, p->n);
    walk_plain(s, p, state, &f);
  } else walk(s, p, 0, p->n, state, &f);
  piece->n_ids = f.n_ids;
  if (f.counted) {
    for (uint32_t i = 0; i < f.n_ids; i++) if (s->found_rounds[i] > piece->most) piece->most = s->found_rounds[i];
    piece->rounds = store_keep(s, s->found_rounds, f.n_ids * sizeof *s->found_rounds);
  } else {
    for (size_t i = 0; i < words; i++) piece->n_ids += (uint32_t)__builtin_popcountll(f.bits[i]);
    for (size_t i = 0, n = 0; i < words && piece->n_ids < words; i++)
      for (uint64_t w = f.bits[i]; w; w &= w - 1) s->found[n++] = (int32_t)(i * 64) + __builtin_ctzll(w);
  }
  if (f.counted || piece->n_ids < words) piece->ids = store_keep(s, s->found, piece->n_ids * sizeof *s->found);
  if (piece->n_ids >= words) piece->bits = store_keep(s, f.bits, words * sizeof *f.bits);
  piece->n_pops = (uint32_t)f.pops.n;
  piece->pops = store_keep(s, f.pops.at, f.pops.n * sizeof *f.pops.at);
  free(f.bits);
  vec_free(&f.pops);
  return piece;
}

// Adds the tokens that need at most `rounds` rounds of a loop.
static void add_found(const store *s, const struct piece *piece, uint32_t rounds, uint64_t *mask) {
  if (piece->rounds && rounds < piece->most)
    for (uint32_t i = 0; i < piece->n_ids; i++)
      mask[piece->ids[i] / 64] |= (uint64_t)(piece->rounds[i] <= rounds) << piece->ids[i] % 64;
  else if (piece->bits)
    for (size_t i = 0; i < s->v->words; i++) mask[i] |= piece->bits[i];
  else
    for (uint32_t i = 0; i < piece->n_ids; i++) mask[piece->ids[i] / 64] |= (uint64_t)1 << piece->ids[i] % 64;
}

static bool may_end(const struct piece *piece, const struct place *loop, uint32_t rounds) {
  return !piece->rounds || (rounds >= loop->min && rounds <= loop->max);
}

// Whether the frame ends at this node.
static bool pops_at(const struct piece *piece, uint32_t node, const struct place *loop) {
  if (piece->ends) return piece->ends[node] && may_end(piece, loop, piece->ends[node] - 1u);
  uint32_t from = 0, end = piece->n_pops;
  while (from < end) {
    uint32_t middle = from + (end - from) / 2;
    if (piece->pops[middle].to <= node) from = middle + 1;
    else end = middle;
  }
  for (; from < piece->n_pops && piece->pops[from].from <= node; from++)
    if (may_end(piece, loop, piece->pops[from].rounds)) return true;
  return false;
}

// Adds the tokens that continue after the end of a piece, in `follow`.
static void add_after(store *s, const struct part *p, const struct piece *piece, const struct place *loop,
                      uint32_t follow, uint64_t *mask) {
  struct finds f = {.bits = mask};
  uint32_t total = 0;
  bool goes[256];
  for (int b = 0; b < 256; b++)
    if ((goes[b] = store_go(s, follow, (unsigned char)b) != STATE_DEAD)) total += p->byte0[b + 1] - p->byte0[b];
  if (!piece->ends && total / 8 > piece->n_pops) {       // there are fewer pops
    for (uint32_t i = 0; i < piece->n_pops && !s->failed; i++) {
      struct pop r = piece->pops[i];
      if (!may_end(piece, loop, r.rounds)) continue;
      if (r.to == r.from + 1) walk(s, p, r.to, p->skip[r.from], follow, &f);
      else for (uint32_t c = r.from + 1; c < r.to; c++) walk(s, p, c, p->skip[c], follow, &f);
    }
    return;
  }
  for (int b = 0; b < 256 && !s->failed; b++)
    for (uint32_t i = p->byte0[b]; goes[b] && i < p->byte0[b + 1]; i++) {
      uint32_t c = p->by_byte[i];
      if (p->parent[c] != NO_STATE && pops_at(piece, p->parent[c], loop)) walk(s, p, c, p->skip[c], follow, &f);
    }
}

// Letter counts that no token of a part can exhaust are equivalent: one piece serves all of them.
static void own_counts(const store *s, struct place p, const struct part *part, struct piece_key *key) {
  uint32_t number = s->g->a.states.at[p.q].count, longest = part->longest;
  key->own_min = key->own_max = 0;
  if (!number) return;
  const struct g_count *c = &s->g->counts.at[number - 1];
  key->own_min = p.min;
  key->own_max = p.max;
  bool open = p.max == GRAMMAR_INF || (p.max >= longest && p.max - longest >= c->farthest);
  if (!p.min && open) key->own_max = GRAMMAR_INF;
  if (p.min > longest && c->settled && c->full && p.max >= longest && p.max - longest >= c->n_rows)
    key->own_min = key->own_max = GRAMMAR_INF;
}

// Adds what the state of p allows with a frame. loop (may be NULL): the frame is that of a loop's body, and this is the
// place after it. After the frame's end come the places after[0 .. n - 1].
static void add_pieces(store *s, struct place p, const struct place *loop, const struct place *after, size_t n,
                       uint64_t *mask) {
  uint32_t follow = STATE_NONE;
  for (uint32_t k = 0; k < PARTS && !s->failed; k++) {
    const struct part *part = &s->v->part[k];
    struct piece_key key = {p.q, NO_STATE, 0, 0, k, 0, 0};
    if (!part->n) continue;
    own_counts(s, p, part, &key);
    if (loop) {
      bool endless =
        !loop_body(s, loop->q)->plain && loop->max > part->longest && (!loop->min || loop->min > part->longest);
      key.loop = loop->q;
      key.min = endless && loop->min ? GRAMMAR_INF : 0;
      key.max = endless ? GRAMMAR_INF : COUNTED;
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
    add_found(s, piece, loop ? loop->max : 0, mask);
    if ((!piece->n_pops && !piece->ends) || !n) continue;
    if (!follow) follow = store_closure(s, after, n);
    if (follow == STATE_DEAD || !s->states.at[follow].n) continue;
    add_after(s, part, piece, loop, follow, mask);
  }
}

static void add_place(store *s, struct place p, uint64_t *mask) {
  struct frame f = s->frames.at[p.frame];
  if (p.frame < FRAME_FIRST) { add_pieces(s, p, NULL, NULL, 0, mask); return; }
  VEC(struct place) plain = {0};
  for (uint32_t i = 0; i < f.n && !s->failed; i++) {
    struct place c = f.at[i];
    if (c.q == NO_STATE || s->g->a.states.at[c.q].loop == NO_STATE) { vec_push(&plain, c); continue; }
    struct frame outer = s->frames.at[c.frame];
    add_pieces(s, p, &c, outer.at, outer.n, mask);
  }
  if (plain.n) add_pieces(s, p, NULL, plain.at, plain.n, mask);
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
