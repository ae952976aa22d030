// Makes tokenizers and answers questions about them. See text.h for the guarantees and for the other files.
#define _GNU_SOURCE
#include "text/text.h"
#include "text/tokenizer.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KEY "tokenizer.ggml."

// ---- Making a tokenizer ----

void vocab_desc_init(vocab_desc *d) {
  *d = (vocab_desc){.add_bos = -1,
                    .add_eos = -1,
                    .add_sep = -1,
                    .add_space_prefix = -1,
                    .remove_extra_whitespaces = -1,
                    .lowercase = -1,
                    .strip_accents = -1};
  for (int r = 0; r < ROLE_COUNT; r++) d->role[r] = -1;
}

// A name from a file as a C string for messages: short, without control characters.
static const char *printable(arena *mem, text_view s) {
  size_t n = s.n < 64 ? s.n : 64;
  char *out = arena_strndup(mem, s.n ? s.at : "", n);
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)out[i] < 0x20 || (unsigned char)out[i] >= 0x7F) out[i] = '?';
  return out;
}

static bool equals(text_view s, const char *name) { return s.n == strlen(name) && !memcmp(s.at, name, s.n); }

// The table of algorithms.
static const struct algorithm {
  const char *model;            // tokenizer.ggml.model
  const char *pre;              // overrides tokenizer.ggml.pre; NULL: the file's value
  enum vocab_kind kind;
  bool add_bos, add_eos, add_sep, space_prefix;           // unless the file says otherwise
  bool dna;
} algorithms[] = {
  {"gpt2", NULL, VOCAB_BPE, 0, 0, 0, 0, 0},        {"gemma4", "gemma4", VOCAB_BPE, 0, 0, 0, 0, 0},
  {"whitespace", NULL, VOCAB_BPE, 0, 0, 0, 0, 0},  {"llama", NULL, VOCAB_SPM, 1, 0, 0, 1, 0},
  {"bert", NULL, VOCAB_WORDPIECE, 1, 0, 1, 0, 0},  {"t5", NULL, VOCAB_UNIGRAM, 0, 1, 0, 0, 0},
  {"rwkv", NULL, VOCAB_RWKV, 0, 0, 0, 0, 0},       {"plamo2", NULL, VOCAB_PLAMO2, 0, 0, 0, 0, 0},
  {"hybriddna", NULL, VOCAB_BPE, 0, 0, 0, 0, 1},
};

static const struct algorithm *find_algorithm(text_view model) {
  for (size_t i = 0; model.at && i < COUNT(algorithms); i++)
    if (equals(model, algorithms[i].model)) return &algorithms[i];
  return NULL;
}

static const char *algorithm_names(arena *mem) {
  const char *names = algorithms[0].model;
  for (size_t i = 1; i < COUNT(algorithms); i++)
    names = arena_printf(mem, "%s%s%s", names, i + 1 < COUNT(algorithms) ? ", " : " and ", algorithms[i].model);
  return names;
}

static bool is_bpe(enum vocab_kind kind) { return kind == VOCAB_BPE || kind == VOCAB_CHARS; }

// The reason why this tokenizer cannot encode, or NULL.
static const char *find_obstacle(tokenizer *t, const vocab_desc *d, const char *source) {
  if (!d->model.at) return arena_printf(t->mem, "%s" KEY "model is absent: this file cannot encode text", source);
  if (t->v.kind == VOCAB_OTHER)
    return arena_printf(t->mem, "%s" KEY "model is '%s', which Weft cannot encode text for (it knows %s)", source,
                        t->model, algorithm_names(t->mem));
  if (!is_bpe(t->v.kind)) return NULL;
  if (!t->row)
    return arena_printf(t->mem, "%s" KEY "pre is '%s', a pre-tokenizer that Weft does not know", source, t->pre);
  if (!d->merge)
    return arena_printf(t->mem, "%s" KEY "merges is absent: no text can be encoded with " KEY "model '%s'", source,
                        t->model);
  return NULL;
}

static int decide_additions(tokenizer *t, const vocab_desc *d, const struct algorithm *a, const char *source,
                            error *err) {
  static const struct algorithm unknown = {0};
  if (!a) a = &unknown;
  bool bos = t->v.role[ROLE_bos] >= 0, eos = t->v.role[ROLE_eos] >= 0;
  unsigned flags = t->row ? t->row->flags : 0;
  if (t->v.n && d->add_bos == 1 && !bos)
    return error_set(err, "%s" KEY "add_bos_token is true, but " KEY "bos_token_id is absent", source);
  if (t->v.n && d->add_eos == 1 && !eos)
    return error_set(err, "%s" KEY "add_eos_token is true, but " KEY "eos_token_id is absent", source);
  t->add_bos = bos && (flags & PRE_BOS_ALWAYS || flag_or(d->add_bos, a->add_bos || flags & PRE_BOS));
  t->add_eos = eos && flag_or(d->add_eos, a->add_eos);
  t->add_sep = t->v.kind == VOCAB_WORDPIECE && t->v.role[ROLE_sep] >= 0 && flag_or(d->add_sep, a->add_sep);
  t->space_prefix =
    (t->v.kind == VOCAB_SPM || t->v.kind == VOCAB_UNIGRAM) && flag_or(d->add_space_prefix, a->space_prefix);
  return 0;
}

static int make(tokenizer *t, const vocab_desc *d, error *err) {
  const char *source = d->source && d->source[0] ? arena_printf(t->mem, "%s: ", d->source) : "";
  const struct algorithm *a = find_algorithm(d->model);
  enum vocab_kind kind = a ? a->kind : VOCAB_OTHER;
  text_view pre = a && a->pre ? (text_view){a->pre, strlen(a->pre)} : d->pre.at ? d->pre : (text_view){"default", 7};
  if (kind == VOCAB_BPE && (t->row = pretokenizer_find(pre.at, pre.n)) && t->row->flags & PRE_CHARS) kind = VOCAB_CHARS;
  if (kind != VOCAB_OTHER && !d->n_tokens) return error_set(err, "%s" KEY "tokens is absent or empty", source);
  if (vocab_init(&t->v, d, kind, source, t->mem, err)) return -1;
  if (a && a->dna && kind == VOCAB_BPE) dna_init(&t->dna, &t->v);
  t->desc = *d;
  t->desc.types = t->desc.suppressed = NULL;               // copied; must not be used any more
  t->desc.scores = NULL, t->desc.source = NULL;
  if (d->ctx_bytes) t->desc.ctx = memcpy(arena_alloc(t->mem, d->ctx_bytes), d->ctx, d->ctx_bytes);
  t->model = printable(t->mem, d->model);
  t->pre = printable(t->mem, d->pre);
  if (kind == VOCAB_UNIGRAM && charsmap_init(&t->map, d->charsmap, source, err)) return -1;
  t->cannot_encode = find_obstacle(t, d, source);
  return decide_additions(t, d, a, source, err);
}

int tokenizer_new(const vocab_desc *d, tokenizer **out, error *err) {
  tokenizer *t = xcalloc(1, sizeof *t);
  t->mem = arena_new();
  t->encoder = xcalloc(1, sizeof *t->encoder);
  pthread_mutex_init(&t->encoder->lock, NULL);
  atomic_init(&t->encoder->ready, false);
  if (make(t, d, err)) { tokenizer_free(t); return -1; }
  *out = t;
  return 0;
}

void tokenizer_free(tokenizer *t) {
  if (!t) return;
  pretokenizer_free(t->encoder->pre);
  pthread_mutex_destroy(&t->encoder->lock);
  free(t->encoder);
  arena_free(t->mem);
  free(t);
}

static int make_encoder(const tokenizer *t, struct encoder *e) {
  const vocab *v = &t->v;
  const vocab_desc *d = &t->desc;
  bool lowercase = flag_or(d->lowercase, true);
  if (special_init(&e->special, v, t->mem, &e->err)) return -1;
  switch (v->kind) {
    case VOCAB_BPE: case VOCAB_CHARS:
      bpe_init(&e->bpe, v, d, t->row->flags & PRE_WHOLE, v->kind == VOCAB_CHARS, t->mem);
      return pretokenizer_new(t->row, &e->pre, &e->err);
    case VOCAB_SPM: spm_init(&e->spm, v, t->space_prefix, t->mem); return 0;
    case VOCAB_WORDPIECE:
      return wordpiece_init(&e->wordpiece, v, lowercase, flag_or(d->strip_accents, lowercase), t->mem, &e->err);
    case VOCAB_UNIGRAM:
      return unigram_init(&e->unigram, v, &t->map, t->space_prefix, flag_or(d->remove_extra_whitespaces, false), t->mem,
                          &e->err);
    case VOCAB_RWKV: return rwkv_init(&e->rwkv, v, t->mem, &e->err);
    case VOCAB_PLAMO2: return plamo2_init(&e->plamo2, v, t->mem, &e->err);
    case VOCAB_OTHER: break;
  }
  die("no encoder for vocabulary kind %d", (int)v->kind);
}

int tokenizer_can_encode(const tokenizer *t, error *err) {
  return t->cannot_encode ? error_set(err, "%s", t->cannot_encode) : 0;
}

int tokenizer_encoder(const tokenizer *t, const struct encoder **out, error *err) {
  if (tokenizer_can_encode(t, err)) return -1;
  struct encoder *e = t->encoder;
  if (!atomic_load_explicit(&e->ready, memory_order_acquire)) {
    pthread_mutex_lock(&e->lock);
    if (!atomic_load_explicit(&e->ready, memory_order_relaxed)) {
      make_encoder(t, e);
      atomic_store_explicit(&e->ready, true, memory_order_release);
    }
    pthread_mutex_unlock(&e->lock);
  }
  *out = e;
  return e->err.text[0] ? error_set(err, "%s", e->err.text) : 0;
}

// ---- Questions ----

static bool is_known_id(const tokenizer *t, int32_t id) { return id >= 0 && id < t->v.n; }

int32_t tokenizer_n_vocab(const tokenizer *t) { return t->v.n; }
enum token_type tokenizer_token_type(const tokenizer *t, int32_t id) {
  return is_known_id(t, id) ? (enum token_type)t->v.type[id] : TOKEN_UNDEFINED;
}
float tokenizer_token_score(const tokenizer *t, int32_t id) {
  return is_known_id(t, id) && t->v.score ? t->v.score[id] : 0;
}
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n) { return vocab_find(&t->v, text, n); }

const int32_t *tokenizer_suppressed(const tokenizer *t, size_t *n) {
  *n = t->v.n_suppressed;
  return t->v.suppressed;
}

int32_t tokenizer_role(const tokenizer *t, enum token_role role) { return t->v.role[role]; }
bool tokenizer_is_eog(const tokenizer *t, int32_t id) { return is_known_id(t, id) && t->v.eog[id]; }
bool tokenizer_adds_bos(const tokenizer *t) { return t->add_bos; }
