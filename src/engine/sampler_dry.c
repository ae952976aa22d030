// DRY ("don't repeat yourself") penalises tokens that would continue a repetition, more for longer ones. If the last n
// tokens of the text occurred earlier, followed by token t, drawing t would make n + 1 repeated tokens; for the longest
// such n the penalty is multiplier * base^(n - allowed length). Sequence breakers ("\n") limit n: the repetition must
// come after the last breaker, so that the structure of a dialogue is not a repetition. For the same reason a token
// that contains a whole breaker is never penalised.
//
// All n are found in linear time: the Z function of the reversed text gives for each place the number of tokens before
// it that match the end.
#define _GNU_SOURCE
#include "engine/sampler_impl.h"
#include <stdlib.h>
#include <string.h>

static double penalty_of(const sampler *s, int32_t note) {
  double exponent = (double)(note - 1) - s->p.dry_allowed_length;
  double factor = s->p.dry_base > 1 ? portable_exp(exponent * portable_log(s->p.dry_base)) : 1;
  double penalty = s->p.dry_multiplier * factor;
  return penalty < 1e30 ? penalty : 1e30;
}

// Most tokens of a long text have one of few notes.
static void know_penalties(sampler *s) {
  for (size_t i = 0; i < s->noted.n; i++) {
    int32_t note = s->notes[s->noted.at[i]];
    while (s->penalties.n <= (size_t)note) vec_push(&s->penalties, -1);
    if (s->penalties.at[note] < 0) s->penalties.at[note] = penalty_of(s, note);
  }
}

static double dry_penalised(const sampler *s, double logit, int32_t note) { return logit - s->penalties.at[note]; }

// Number of tokens after the last breaker.
static size_t since_breaker(const sampler *s, size_t n) {
  size_t i = 0;
  while (i < n && !s->past.at[s->past.n - 1 - i].breaks) i++;
  return i;
}

// Most tokens do not have a breaker's last byte.
static bool may_end_in(const str *breaker, const char *at, size_t n) {
  return n && memchr(at, breaker->at[breaker->n - 1], n);
}

static bool has_breaker(const sampler *s, const char *at, size_t n) {
  for (size_t b = 0; b < s->breakers.n; b++) {
    const str *one = &s->breakers.at[b];
    if (may_end_in(one, at, n) && memmem(at, n, one->at, one->n)) return true;
  }
  return false;
}

// Does this token alone, whose text is given, contain a breaker? Each token is searched once, when it becomes part of
// the text, as a draw may ask for all tokens of a long text.
static bool search_token(sampler *s, int32_t id, const char *at, size_t n) {
  uint64_t bit = 1ull << id % 64, *searched = &s->searched[id / 64], *breaks = &s->breaks[id / 64];
  if (!(*searched & bit) && has_breaker(s, at, n)) *breaks |= bit;
  *searched |= bit;
  return *breaks & bit;
}

// Also of tokens that came before the breakers were set.
static bool is_breaker(sampler *s, int32_t id) {
  if (s->searched[id / 64] >> id % 64 & 1) return s->breaks[id / 64] >> id % 64 & 1;
  s->piece.n = 0;
  tokenizer_piece(s->vocab, id, &s->piece, true);
  return search_token(s, id, str_c(&s->piece), s->piece.n);
}

static void spare_breakers(sampler *s) {
  for (size_t i = 0; i < s->noted.n;) {
    int32_t id = s->noted.at[i];
    if (!is_breaker(s, id)) { i++; continue; }
    s->notes[id] = 0;
    s->noted.at[i] = s->noted.at[--s->noted.n];
  }
}

void stage_dry(sampler *s) {
  size_t n = sampler_window(s, s->p.dry_last_n), allowed = (size_t)s->p.dry_allowed_length;
  if (n <= allowed || n < 2) return;
  size_t limit = since_breaker(s, n);
  if (limit < allowed) return;
  const struct past *last = &s->past.at[s->past.n - 1];   // last[-i] is token i from the end
  s->z.n = 0;
  vec_push(&s->z, (int32_t)n);
  size_t left = 0, right = 0;                      // z of [left, right) equals the beginning
  for (size_t i = 1; i < n; i++) {
    size_t z = 0;
    if (i < right) { z = (size_t)s->z.at[i - left]; if (z > right - i) z = right - i; }
    while (i + z < n && last[-(ptrdiff_t)z].id == last[-(ptrdiff_t)(i + z)].id) z++;
    if (i + z > right) { left = i; right = i + z; }
    vec_push(&s->z, (int32_t)z);
    if (z > limit) z = limit;
    int32_t follows = last[-(ptrdiff_t)(i - 1)].id;
    if (z >= allowed && s->notes[follows] < (int32_t)z + 1) sampler_note(s, follows, (int32_t)z + 1);
  }
  if (s->breakers.n) spare_breakers(s);
  know_penalties(s);
  sampler_apply_notes(s, dry_penalised);
}

// Does a breaker begin in the first `before` bytes of the tail and end after those?
static bool crosses(const sampler *s, const str *text, size_t before) {
  size_t most = text->n - 1, first = before > most ? before - most : 0,
         end = s->tail.n - before > most ? before + most : s->tail.n;
  if (!before || !most || !may_end_in(text, s->tail.at + before, end - before)) return false;
  return memmem(s->tail.at + first, end - first, text->at, text->n);
}

// tail holds the end of the text, so breakers are found across token boundaries.
void dry_accept(sampler *s, int32_t id, bool *breaks) {
  size_t before = s->tail.n;
  tokenizer_piece(s->vocab, id, &s->tail, true);
  *breaks = search_token(s, id, str_c(&s->tail) + before, s->tail.n - before);
  for (size_t b = 0; b < s->breakers.n && !*breaks; b++) *breaks = crosses(s, &s->breakers.at[b], before);
  size_t keep = s->longest_breaker - 1;
  if (s->tail.n > keep) {
    memmove(s->tail.at, s->tail.at + s->tail.n - keep, keep + 1);
    s->tail.n = keep;
  }
}
