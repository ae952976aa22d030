// The public API for constrained output: grammars with a matcher each, over grammar/grammar.h.
#include "grammar/grammar.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "weft.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// Made once per vocabulary: it takes a tenth of a second for a large one, and there are many grammars.
struct vocab_tries { pthread_mutex_t lock; grammar_vocab *tokens; };
// Shared by clones.
struct shared { int refs; grammar *g; char *notes; };
struct weft_grammar { struct shared *s; matcher *m; };

struct vocab_tries *vocab_tries_new(void) {
  struct vocab_tries *t = xcalloc(1, sizeof *t);
  pthread_mutex_init(&t->lock, NULL);
  return t;
}

void vocab_tries_free(struct vocab_tries *t) {
  if (!t) return;
  grammar_vocab_free(t->tokens);
  pthread_mutex_destroy(&t->lock);
  free(t);
}

static int tries_of(const weft_vocab *v, const grammar_vocab **out, error *e) {
  struct vocab_tries *t = weft_vocab_tries(v);
  pthread_mutex_lock(&t->lock);
  int status = t->tokens ? 0 : grammar_vocab_new(weft_vocab_tokenizer(v), &t->tokens, e);
  *out = t->tokens;
  pthread_mutex_unlock(&t->lock);
  return status;
}

static void shared_free(struct shared *s) {
  if (--s->refs) return;
  grammar_free(s->g);
  free(s->notes);
  free(s);
}

// Takes ownership of g, which is NULL if compiling failed with e.
static int take_grammar(const weft_vocab *v, grammar *g, error *e, weft_grammar **out, weft_error *err) {
  if (!g) return fail(err, e);
  struct shared *s = xcalloc(1, sizeof *s);
  *s = (struct shared){.refs = 1, .g = g};
  const grammar_vocab *tokens;
  matcher *m;
  if (tries_of(v, &tokens, e) || matcher_new(g, tokens, &m, e)) {
    shared_free(s);
    return fail(err, e);
  }
  *out = xcalloc(1, sizeof **out);
  **out = (weft_grammar){s, m};
  return 0;
}

int weft_grammar_open_gbnf(const weft_vocab *v, const char *text, size_t n, weft_grammar **out, weft_error *err) {
  grammar *g = NULL;
  error e = {0};
  (void)grammar_from_gbnf(text, n, weft_vocab_tokenizer(v), &g, &e);
  return take_grammar(v, g, &e, out, err);
}

static int open_schema(const weft_vocab *v, const char *text, size_t n, bool strict, weft_grammar **out,
                       weft_error *err) {
  grammar *g = NULL;
  error e = {0};
  str notes = {0};
  (void)grammar_from_schema(text, n, strict, &notes, &g, &e);
  int status = take_grammar(v, g, &e, out, err);
  if (!status && notes.n) (*out)->s->notes = notes.at;
  else str_free(&notes);
  return status;
}

int weft_grammar_open_json_schema(const weft_vocab *v, const char *text, size_t n, weft_grammar **out,
                                  weft_error *err) {
  return open_schema(v, text, n, false, out, err);
}

int weft_grammar_open_json_schema_strict(const weft_vocab *v, const char *text, size_t n, weft_grammar **out,
                                         weft_error *err) {
  return open_schema(v, text, n, true, out, err);
}

const char *weft_grammar_notes(const weft_grammar *g) { return g->s->notes ? g->s->notes : ""; }

int weft_grammar_open_regex(const weft_vocab *v, const char *text, size_t n, weft_grammar **out, weft_error *err) {
  grammar *g = NULL;
  error e = {0};
  (void)grammar_from_regex(text, n, &g, &e);
  return take_grammar(v, g, &e, out, err);
}

weft_grammar *weft_grammar_clone(const weft_grammar *g) {
  weft_grammar *copy = xcalloc(1, sizeof *copy);
  g->s->refs++;
  *copy = (weft_grammar){g->s, matcher_clone(g->m)};
  return copy;
}

void weft_grammar_free(weft_grammar *g) {
  if (!g) return;
  matcher_free(g->m);
  shared_free(g->s);
  free(g);
}

void weft_grammar_reset(weft_grammar *g) { matcher_reset(g->m); }
bool weft_grammar_complete(const weft_grammar *g) { return matcher_complete(g->m); }
bool weft_grammar_ended(const weft_grammar *g) { return !matcher_can_go_on(g->m); }

int weft_grammar_mask(weft_grammar *g, const uint64_t **mask, weft_error *err) {
  error e = {0};
  return matcher_mask(g->m, mask, &e) ? fail(err, &e) : 0;
}

int weft_grammar_accept(weft_grammar *g, int32_t id, weft_error *err) {
  error e = {0};
  return matcher_accept(g->m, id, &e) ? fail(err, &e) : 0;
}

int weft_grammar_accept_text(weft_grammar *g, const char *text, size_t n, weft_error *err) {
  error e = {0};
  bool ok = false;
  if (!matcher_bytes(g->m, text, n, &ok, &e) && !ok)
    error_set(&e, "the grammar does not allow this text of %zu bytes here", n);
  return e.text[0] ? fail(err, &e) : 0;
}
