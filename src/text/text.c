// The tokenizer: how it is made, and encoding as a pipeline.  See text.h for the promises and for what the other files do.
#define _GNU_SOURCE
#include "text/text.h"
#include "text/tokenizer.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KEY "tokenizer.ggml."
#define TEXT_BYTES_MAX ((size_t)1 << 28)    // of one call: offsets in a chain are 32-bit numbers

// ---- Making a tokenizer ----

void vocab_desc_init(vocab_desc *d) {
  *d = (vocab_desc){.add_bos = -1, .add_eos = -1, .add_space_prefix = -1};
  for (int r = 0; r < ROLE_COUNT; r++) d->role[r] = -1;
}

// A name from a file as a C string for messages: short, and without what a terminal might act on.
static const char *printable(arena *mem, text_view s) {
  size_t n = s.n < 64 ? s.n : 64;
  char *out = arena_strndup(mem, s.n ? s.at : "", n);
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)out[i] < 0x20 || (unsigned char)out[i] >= 0x7F) out[i] = '?';
  return out;
}

static bool equals(text_view s, const char *name) { return s.n == strlen(name) && !memcmp(s.at, name, s.n); }

// The table of algorithms.
static enum vocab_kind kind_of(text_view model) {
  if (!model.at) return VOCAB_OTHER;
  return equals(model, "gpt2") ? VOCAB_BPE : equals(model, "llama") ? VOCAB_SPM : VOCAB_OTHER;
}

// What keeps this tokenizer from encoding, or NULL.
static const char *find_obstacle(tokenizer *t, const vocab_desc *d, const char *source) {
  if (!d->model.at) return arena_printf(t->mem, "%s" KEY "model is absent: this file cannot encode text", source);
  if (t->v.kind == VOCAB_OTHER)
    return arena_printf(t->mem, "%s" KEY "model is '%s', which Weft cannot encode text for (it knows gpt2 and llama)", source, t->model);
  if (t->v.kind == VOCAB_SPM) return NULL;
  if (!t->row) return arena_printf(t->mem, "%s" KEY "pre is '%s', a pre-tokenizer that Weft does not know", source, t->pre);
  if (!d->merge) return arena_printf(t->mem, "%s" KEY "merges is absent: no text can be encoded with " KEY "model '%s'", source, t->model);
  return NULL;
}

static int decide_additions(tokenizer *t, const vocab_desc *d, const char *source, error *err) {
  bool is_spm = t->v.kind == VOCAB_SPM, bos = t->v.role[ROLE_bos] >= 0, eos = t->v.role[ROLE_eos] >= 0;
  if (t->v.n && d->add_bos == 1 && !bos) return error_set(err, "%s" KEY "add_bos_token is true, but " KEY "bos_token_id is absent", source);
  if (t->v.n && d->add_eos == 1 && !eos) return error_set(err, "%s" KEY "add_eos_token is true, but " KEY "eos_token_id is absent", source);
  t->add_bos = bos && (d->add_bos >= 0 ? d->add_bos == 1 : is_spm || (t->row && t->row->add_bos));
  t->add_eos = eos && d->add_eos == 1;
  t->space_prefix = is_spm && d->add_space_prefix != 0;
  return 0;
}

// The parts that encoding needs and decoding does not.
struct encoder {
  pthread_mutex_t lock;         // held while it is being made
  atomic_bool ready;            // after which nothing changes
  error err;                    // why it could not be made, or ""
  special_set special;
  pretokenizer *pre;
  bpe bpe;
  spm spm;
};

static int make(tokenizer *t, const vocab_desc *d, error *err) {
  const char *source = d->source && d->source[0] ? arena_printf(t->mem, "%s: ", d->source) : "";
  enum vocab_kind kind = kind_of(d->model);
  if (kind != VOCAB_OTHER && !d->n_tokens) return error_set(err, "%s" KEY "tokens is absent or empty", source);
  if (vocab_init(&t->v, d, kind, source, t->mem, err)) return -1;
  t->desc = *d;
  t->desc.types = NULL, t->desc.scores = NULL, t->desc.source = NULL;     // copied; not to be relied on any more
  if (d->ctx_bytes) t->desc.ctx = memcpy(arena_alloc(t->mem, d->ctx_bytes), d->ctx, d->ctx_bytes);
  t->model = printable(t->mem, d->model);
  t->pre = printable(t->mem, d->pre);
  if (kind == VOCAB_BPE) t->row = d->pre.at ? pretokenizer_find(d->pre.at, d->pre.n) : pretokenizer_find("default", 7);
  t->cannot_encode = find_obstacle(t, d, source);
  return decide_additions(t, d, source, err);
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
  special_free(&t->encoder->special);
  pretokenizer_free(t->encoder->pre);
  pthread_mutex_destroy(&t->encoder->lock);
  free(t->encoder);
  arena_free(t->mem);
  free(t);
}

static void make_encoder(const tokenizer *t, struct encoder *e) {
  special_init(&e->special, &t->v);
  if (t->v.kind == VOCAB_SPM) { spm_init(&e->spm, &t->v, t->space_prefix, t->mem); return; }
  bpe_init(&e->bpe, &t->v, &t->desc, t->row->whole_words, t->mem);
  pretokenizer_new(t->row, &e->pre, &e->err);
}

int tokenizer_can_encode(const tokenizer *t, error *err) {
  return t->cannot_encode ? error_set(err, "%s", t->cannot_encode) : 0;
}

static int get_encoder(const tokenizer *t, const struct encoder **out, error *err) {
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

// ---- Encoding ----

struct encoding { const struct encoder *e; merger m; token_list out; error *err; };

static int encode_word(void *ctx, const char *word, size_t n) {
  struct encoding *x = ctx;
  return bpe_encode(&x->e->bpe, &x->m, word, n, &x->out, x->err);
}

// Text that holds no special token.
static int encode_stretch(struct encoding *x, const char *text, size_t n) {
  if (x->e->pre) return pretokenizer_split(x->e->pre, text, n, encode_word, x, x->err);
  return spm_encode(&x->e->spm, &x->m, text, n, &x->out, x->err);
}

static int encode(struct encoding *x, const tokenizer *t, const char *text, size_t n, bool add_special, bool parse_special) {
  if (add_special && t->add_bos) vec_push(&x->out, t->v.role[ROLE_bos]);
  size_t from = 0, at = 0;
  int32_t id = -1;
  for (; special_next(&x->e->special, text, n, from, parse_special, &at, &id); from = at + t->v.token[id].n) {
    if (at > from && encode_stretch(x, text + from, at - from)) return -1;
    vec_push(&x->out, id);
  }
  if (from < n && encode_stretch(x, text + from, n - from)) return -1;
  if (add_special && t->add_eos) vec_push(&x->out, t->v.role[ROLE_eos]);
  return 0;
}

int tokenizer_encode(const tokenizer *t, const char *text, size_t n, bool add_special, bool parse_special,
                     int32_t **ids, size_t *n_ids, error *err) {
  struct encoding x = {.err = err};
  if (n > TEXT_BYTES_MAX) return error_set(err, "a text of %zu bytes is too long to encode at once (the limit is %zu)", n, TEXT_BYTES_MAX);
  if (get_encoder(t, &x.e, err)) return -1;
  int bad = encode(&x, t, text, n, add_special, parse_special);
  merger_free(&x.m);
  if (bad) { vec_free(&x.out); return -1; }
  *ids = x.out.at ? x.out.at : xmalloc(sizeof **ids);
  *n_ids = x.out.n;
  return 0;
}

// ---- Questions ----

static bool known(const tokenizer *t, int32_t id) { return id >= 0 && id < t->v.n; }

int32_t tokenizer_n_vocab(const tokenizer *t) { return t->v.n; }
text_view tokenizer_token_text(const tokenizer *t, int32_t id) { return known(t, id) ? t->v.token[id] : (text_view){NULL, 0}; }
enum token_type tokenizer_token_type(const tokenizer *t, int32_t id) {
  return known(t, id) ? (enum token_type)t->v.type[id] : TOKEN_UNDEFINED;
}
float tokenizer_token_score(const tokenizer *t, int32_t id) { return known(t, id) && t->v.score ? t->v.score[id] : 0; }
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t n) { return vocab_find(&t->v, text, n); }
int32_t tokenizer_role(const tokenizer *t, enum token_role role) { return t->v.role[role]; }
bool tokenizer_is_eog(const tokenizer *t, int32_t id) { return known(t, id) && t->v.eog[id]; }
bool tokenizer_adds_bos(const tokenizer *t) { return t->add_bos; }
bool tokenizer_adds_eos(const tokenizer *t) { return t->add_eos; }
const char *tokenizer_model_name(const tokenizer *t) { return t->model; }
const char *tokenizer_pre_name(const tokenizer *t) { return t->pre; }
