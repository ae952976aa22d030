// The ids that calls of a conversation have: see answer_impl.h. They stand in its prompt as words. Words are kept as
// hashes under a secret key, so that a look-up costs what the id is long, however long the prompt is.
#include "chat/answer_impl.h"
#include "base/account.h"
#include <stdlib.h>
#include <string.h>

enum { SHORTEST = 9, LONGEST = 256, MOST_PARTS = 16 };   // "0" is only the index of a call in its answer

// What stands around ids in templates: white space, quotes, brackets and the like.
static bool ends_word(char c) { return (unsigned char)c <= ' ' || strchr("\"'`<>|[](){},=;\\", c); }

static bool in_any_id(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         (unsigned char)c > 127;
}

static uint64_t *place_of_id(const id_set *s, uint64_t hash) {
  size_t i = (size_t)hash & (s->cap - 1);
  while (s->at[i] && s->at[i] != hash) i = (i + 1) & (s->cap - 1);
  return &s->at[i];
}

static uint64_t hash_of_id(const id_set *s, text_view id) { return hash_keyed(s->key, id.at, id.n) | 1; }

// Charged to the thread's account, since a text may have several ids in 26 bytes.
static int grow_ids(id_set *s, error *err) {
  id_set more = {.cap = s->cap ? 2 * s->cap : 64, .n = s->n, .key = s->key};
  if (account_take_here(more.cap * sizeof *more.at, err)) return -1;
  more.at = xcalloc(more.cap, sizeof *more.at);
  for (size_t i = 0; i < s->cap; i++) if (s->at[i]) *place_of_id(&more, s->at[i]) = s->at[i];
  free(s->at);
  account_give_here(s->cap * sizeof *s->at);
  *s = more;
  return 0;
}

static int put_hash(id_set *s, uint64_t hash, error *err) {
  if (2 * (s->n + 1) > s->cap && grow_ids(s, err)) return -1;
  uint64_t *at = place_of_id(s, hash);
  s->n += !*at;
  *at = hash;
  return 0;
}

int ids_put(id_set *s, text_view id, error *err) {
  if (!s->cap) s->key = hash_key_new();
  return id.n >= SHORTEST && id.n < LONGEST ? put_hash(s, hash_of_id(s, id), err) : 0;
}

// A word, without signs at its end, and what follows each sign in it: "id:call_0a1b2c3d." has call_0a1b2c3d.
static int put_id_word(id_set *s, text_view word, error *err) {
  if (word.n < SHORTEST || word.n >= LONGEST) return 0;
  int status = ids_put(s, word, err);
  while (word.n && !in_any_id(word.at[word.n - 1])) word.n--;
  if (!status) status = ids_put(s, word, err);
  for (size_t i = 0, parts = 0; !status && i + SHORTEST < word.n && parts < MOST_PARTS; i++) {
    if (in_any_id(word.at[i])) continue;
    status = ids_put(s, (text_view){word.at + i + 1, word.n - i - 1}, err);
    parts++;
  }
  return status;
}

int ids_of_text(id_set *s, text_view text, error *err) {
  unsigned steps = 0;
  for (size_t i = 0, from = 0; text.n && i <= text.n; i++) {
    if (i < text.n && !ends_word(text.at[i])) continue;
    if (put_id_word(s, (text_view){text.at + from, i - from}, err) || account_step(&steps, err)) return -1;
    from = i + 1;
  }
  return 0;
}

bool ids_may_be(text_view id) {
  if (id.n < SHORTEST || id.n >= LONGEST) return false;
  for (size_t i = 0; i < id.n; i++) if (ends_word(id.at[i])) return false;
  return true;
}

bool ids_have(const id_set *s, text_view id) { return s->n && *place_of_id(s, hash_of_id(s, id)); }

void ids_free(id_set *s) {
  free(s->at);
  *s = (id_set){0};
}
