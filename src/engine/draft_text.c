// Drafts from the text itself: the tokens after the longest earlier match of its end. See draft.h.
#include <stdlib.h>
#include <string.h>
#include "base/map.h"
#include "engine/draft.h"

enum {
  GRAM = 3 /* tokens that have to agree */,
  LOOKS = 16 /* earlier places to look at */,
  LONG = 8 /* agreeing tokens that may owe a token's time */,
  MOST = 32
};

struct own {
  // the text; for the token at which a gram ends: 1 + its previous end, 0: none
  VEC(int32_t) ids, before;
  map last;                             // hash of a gram -> 1 + its last end
  // of the offer: start of the draft, and length of the match
  size_t from, agreed;
};

void *draft_text_new(void) { return xcalloc(1, sizeof(struct own)); }

static void text_drop(void *own) {
  struct own *o = own;
  vec_free(&o->ids); vec_free(&o->before);
  map_free(&o->last);
  free(o);
}

static void learn_id(struct own *o, int32_t id) {
  vec_push(&o->ids, id);
  vec_push(&o->before, 0);
  size_t n = o->ids.n;
  if (n < GRAM) return;
  uint64_t gram = hash_bytes(o->ids.at + n - GRAM, GRAM * sizeof id, 1) >> 1;
  void *at;
  if (map_get(&o->last, gram, &at)) o->before.at[n - 1] = (int32_t)(intptr_t)at;
  map_set(&o->last, gram, (void *)(intptr_t)n);
}

// Updates to the text ids[0 .. n - 1], which mostly extends the known text.
static void follow(struct own *o, const int32_t *ids, size_t n) {
  if (n < o->ids.n || (o->ids.n && memcmp(ids, o->ids.at, o->ids.n * sizeof *ids))) {
    o->ids.n = o->before.n = 0;
    map_free(&o->last);
    o->last = (map){0};
  }
  while (o->ids.n < n) learn_id(o, ids[o->ids.n]);
}

// Length of the match that ends at these two places.
static size_t agree(const struct own *o, size_t x, size_t y) {
  size_t n = 0;
  while (n < MOST && n <= x && o->ids.at[x - n] == o->ids.at[y - n]) n++;
  return n;
}

// The estimated probability that the continuation repeats: it grows with the length of the match.
static double held(const struct own *o) { return (double)o->agreed / (double)(o->agreed + GRAM); }

static bool text_offer(void *own, const draft_context *t, draft_estimate *out) {
  struct own *o = own;
  follow(o, t->past, t->n);
  learn_id(o, t->id);
  size_t end = o->ids.n - 1, best = 0, at = (size_t)o->before.at[end];
  for (int i = 0; at && i < LOOKS; i++, at = (size_t)o->before.at[at - 1]) {
    size_t n = agree(o, at - 1, end);
    if (n > best) { best = n; o->from = at; }
  }
  o->agreed = best;
  *out = (draft_estimate){.tries = best >= LONG, .p = held(o)};
  return best >= GRAM;
}

// If the draft reaches the end of the text, it continues from its own beginning.
static size_t text_make(void *own, const draft_context *t, double value_s, const draft_out *out) {
  struct own *o = own;
  (void)t, (void)value_s;
  for (size_t i = 0; i < out->most; i++) {
    out->ids[i] = o->from + i < o->ids.n ? o->ids.at[o->from + i] : out->ids[o->from + i - o->ids.n];
    out->p[i] = held(o);
  }
  return out->most;
}

const draft_source draft_from_text = {text_offer, text_make, text_drop};
