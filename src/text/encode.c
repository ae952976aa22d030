// Encoding as a pipeline: see text.h for the guarantees.
//
//     text -> special tokens and the stretches between them -> a stretch in the model's form (normal form, bars for
//     spaces) -> ids
//
// A text that comes in pieces goes through the same pipeline. Each step is told whether its text may continue (open),
// processes only what no continuation can change, and returns how far it got. The rest waits in two buffers, before and
// after the second arrow, and is tried again when it has at least doubled, so that time stays linear.
//
// How far a step can go is documented where it is decided: special_next; unicode_settled and unigram_normalize for the
// text; pretokenizer_split (BPE), spm_encode, wordpiece_encode, unigram_encode, rwkv_encode and plamo2_encode for the
// ids.
#include "base/account.h"
#include "text/text.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>

#define CACHE_FROM 1024         // bytes of text from which on words are cached

struct text_encoder {
  const tokenizer *t;
  const struct encoder *e;
  bool add_special;
  bool begun, failed;           // of this text: BOS was output; an error has occurred
  merger m;
  word_cache words;
  special_search found;         // special tokens, and the cost of their search
  trie_cost cut;                // the cost of the other searches
  token_list out;
  error *err;
  // The buffers:
  str text;                     // before the search for special tokens
  bool blanks_go;               // the next white space belongs to the special token before it
  str stretch;                  // in the model's form
  size_t came;                  // bytes since the last try
  bool inside;                  // some of the stretch has been encoded
  enum dna_region region;
  unigram_state unigram;
};

// ---- From a stretch to ids ----

static int encode_word(void *ctx, const char *word, size_t n) {
  text_encoder *x = ctx;
  unsigned flags = x->t->row->flags;
  if (flags & PRE_LINES && word[0] == '\n') {
    int32_t id = bpe_whole(&x->e->bpe, word, n);
    if (id >= 0) { vec_push(&x->out, id); return 0; }
  }
  if (flags & PRE_NO_SPACES) {
    int len = utf8_next(word, n);
    if (len > 0 && unicode_is_space(utf8_code_point(word, len))) return 0;
  }
  return bpe_encode(&x->e->bpe, &x->m, &x->words, word, n, &x->out, x->err);
}

// Encodes byte-level BPE's text and regions of DNA in it.
static int encode_mixed(text_encoder *x, const char *text, size_t n, bool open, size_t *settled) {
  const dna *d = &x->t->dna;
  bool found = true;
  *settled = 0;
  while (found) {
    const char *tag = x->region ? DNA_CLOSE : DNA_OPEN, *from = text + *settled;
    size_t end = dna_find(from, n - *settled, tag, open, &found), done = 0;
    bool more = open && !found;
    if (x->region) done = dna_encode(d, (text_view){from, end}, x->region == DNA_BEGUN, more, &x->out);
    else if (pretokenizer_split(x->e->pre, from, end, more, &done, encode_word, x, x->err)) return -1;
    if (x->region && done) x->region = DNA_INSIDE;
    *settled += done;
    if (!found) break;
    vec_push(&x->out, x->region ? d->close : d->open);
    *settled += strlen(tag);
    x->region = x->region ? DNA_NONE : DNA_BEGUN;
  }
  if (!open) x->region = DNA_NONE;
  return 0;
}

// Encodes the next text of a stretch, which is in the model's form; *settled is the end of the encoded part.
static int encode_some(text_encoder *x, const char *text, size_t n, bool open, size_t *settled) {
  const struct encoder *e = x->e;
  bool first = !x->inside;
  if (n > CACHE_FROM) word_cache_start(&x->words);
  if (open) n -= utf8_unfinished(text, n);
  if (x->t->dna.v) return encode_mixed(x, text, n, open, settled);
  switch (x->t->v.kind) {
    case VOCAB_BPE: case VOCAB_CHARS: return pretokenizer_split(e->pre, text, n, open, settled, encode_word, x, x->err);
    case VOCAB_SPM: return spm_encode(&e->spm, &x->m, &x->words, text, n, first, open, settled, &x->out, x->err);
    case VOCAB_WORDPIECE: return wordpiece_encode(&e->wordpiece, text, n, open, settled, &x->cut, &x->out, x->err);
    case VOCAB_UNIGRAM:
      return unigram_encode(&e->unigram, &x->unigram, text, n, open, settled, &x->cut, &x->out, x->err);
    case VOCAB_RWKV: return rwkv_encode(&e->rwkv, text, n, open, settled, &x->cut, &x->out, x->err);
    case VOCAB_PLAMO2: return plamo2_encode(&e->plamo2, text, n, first, open, settled, &x->cut, &x->out, x->err);
    case VOCAB_OTHER: break;
  }
  die("no encoder for vocabulary kind %d", (int)x->t->v.kind);
}

// ---- From text to a stretch ----

static void lowered(const char *text, size_t n, str *out) {
  for (size_t i = 0; i < n;) {
    int len = utf8_next(text + i, n - i);
    if (len <= 0) { str_addc(out, text[i++]); continue; }
    uint32_t small[2];
    for (int k = 0, m = unicode_lower(utf8_code_point(text + i, len), small); k < m; k++) {
      char bytes[4];
      str_addn(out, bytes, (size_t)utf8_put(small[k], bytes));
    }
    i += (size_t)len;
  }
}

static void barred(const char *text, size_t n, str *out) {
  for (size_t i = 0, end; i < n; i = end + (end < n)) {
    const char *space = memchr(text + i, ' ', n - i);
    end = space ? (size_t)(space - text) : n;
    str_addn(out, text + i, end - i);
    if (space) str_add(out, SPM_SPACE);
  }
}

static unsigned pre_flags(const text_encoder *x) { return x->t->row ? x->t->row->flags : 0; }
static bool lowers(const text_encoder *x) {
  return pre_flags(x) & PRE_NO_SPACES && flag_or(x->t->desc.lowercase, false);
}

// Whether the model's form differs from these bytes.
static bool changes(const text_encoder *x, const char *text, size_t n) {
  if (x->t->v.kind == VOCAB_UNIGRAM || pre_flags(x) & PRE_BARS || lowers(x)) return true;
  return pre_flags(x) & PRE_NFC && unicode_may_change(UNICODE_NFC, text, n);
}

// Appends a text in the model's form to x->stretch; *taken bytes of it were used.
static int change(text_encoder *x, const char *text, size_t n, bool open, size_t *taken) {
  str *out = &x->stretch;
  if (x->t->v.kind == VOCAB_UNIGRAM)
    return unigram_normalize(&x->e->unigram, &x->unigram, text, n, open, taken, out, x->err);
  if (open && pre_flags(x) & PRE_NFC) n = unicode_settled(UNICODE_NFC, text, n);
  else if (open && lowers(x)) n -= utf8_unfinished(text, n);
  *taken = n;
  if (!changes(x, text, n)) str_addn(out, text, n);
  else if (pre_flags(x) & PRE_NFC) unicode_normalize(UNICODE_NFC, text, n, out);
  else if (pre_flags(x) & PRE_BARS) barred(text, n, out);
  else lowered(text, n, out);
  return 0;
}

static void forget(str *s, size_t settled) {
  if (settled) memmove(s->at, s->at + settled, s->n - settled);
  s->n -= settled;
}

// The next text of a stretch without special tokens; open: more of it may follow.
static int encode_stretch(text_encoder *x, const char *text, size_t n, bool open, size_t *taken) {
  size_t settled;
  *taken = n;
  if (!open && !x->stretch.n && !x->inside && !changes(x, text, n))
    return n ? encode_some(x, text, n, false, &settled) : 0;
  if (change(x, text, n, open, taken)) return -1;
  if (encode_some(x, str_c(&x->stretch), x->stretch.n, open, &settled)) return -1;
  forget(&x->stretch, settled);
  x->inside |= settled > 0;
  if (!open) x->inside = false, x->unigram = (unigram_state){0};
  return 0;
}

// ---- From the text to stretches ----


// Encodes as much of the text as possible; *taken bytes of it are finished.
static int encode(text_encoder *x, const char *text, size_t n, bool open, size_t *taken) {
  const vocab *v = &x->t->v;
  size_t from = 0, at = 0, done;
  int32_t id = -1;
  if (!x->begun && x->add_special && x->t->add_bos) vec_push(&x->out, v->role[ROLE_bos]);
  x->begun = true;
  x->found.cost.bytes += n;
  for (;;) {
    while (x->blanks_go && from < n && is_ascii_space((unsigned char)text[from])) from++;
    if (from < n) x->blanks_go = false;
    enum special_found found = special_next(&x->e->special, &x->found, (text_view){text, n}, from, open, &at, &id);
    if (found == SPECIAL_COSTLY) return trie_refuse(v->source, x->err);
    size_t end = found == SPECIAL_NONE ? n : at;
    if (found != SPECIAL_FOUND) {
      // White space before a special token may belong to it.
      while (open && v->strip && end > from && is_ascii_space((unsigned char)text[end - 1])) end--;
      if (encode_stretch(x, text + from, end - from, open, &done)) return -1;
      from += done;
      break;
    }
    if (v->strip && v->strip[id] & STRIP_LEFT)
      while (end > from && is_ascii_space((unsigned char)text[end - 1])) end--;
    if (encode_stretch(x, text + from, end - from, false, &done)) return -1;
    vec_push(&x->out, id);
    from = at + v->token[id].n;
    x->blanks_go = v->strip && v->strip[id] & STRIP_RIGHT;
  }
  *taken = from;
  if (open) return 0;
  if (x->add_special && x->t->add_sep) vec_push(&x->out, v->role[ROLE_sep]);
  if (x->add_special && x->t->add_eos) vec_push(&x->out, v->role[ROLE_eos]);
  x->begun = x->blanks_go = false;
  x->found.cost = x->cut = (trie_cost){0};
  x->found.next = 0;
  return 0;
}

// ---- At once ----

static void let_go(text_encoder *x) {
  merger_free(&x->m);
  word_cache_free(&x->words);
  str_free(&x->text);
  str_free(&x->stretch);
}

static int encode_at_once(const tokenizer *t, text_view text, const encode_how *how, token_list *out, error *err) {
  text_encoder x = {.t = t, .err = err, .add_special = how->add_special};
  if (tokenizer_encoder(t, &x.e, err)) return -1;
  x.found.parse_special = how->parse_special;
  x.found.within = how->within;
  size_t taken;
  int bad = encode(&x, text.at, text.n, false, &taken);
  let_go(&x);
  *out = x.out;
  return bad;
}

int tokenizer_encode(const tokenizer *t, const char *text, size_t n, bool add_special, bool parse_special,
                     int32_t **ids, size_t *n_ids, error *err) {
  const encode_how how = {.add_special = add_special, .parse_special = parse_special};
  return tokenizer_encode_as(t, (text_view){text, n}, &how, ids, n_ids, err);
}

// ---- In pieces ----

int text_encoder_new(const tokenizer *t, bool add_special, bool parse_special, text_encoder **out, error *err) {
  const struct encoder *e;
  if (tokenizer_encoder(t, &e, err)) return -1;
  *out = xcalloc(1, sizeof **out);
  **out = (text_encoder){.t = t, .e = e, .add_special = add_special, .found.parse_special = parse_special};
  return 0;
}

void text_encoder_free(text_encoder *x) {
  if (!x) return;
  let_go(x);
  vec_free(&x->out);
  free(x);
}

static int next_ids(text_encoder *x, bool open, const int32_t **ids, size_t *n_ids, error *err) {
  size_t taken;
  if (x->failed) return error_set(err, "this text could not be encoded");
  x->err = err;
  x->failed = encode(x, str_c(&x->text), x->text.n, open, &taken);
  if (x->failed) return -1;
  forget(&x->text, taken);
  x->found.before = open ? x->found.before + taken : 0;
  x->came = 0;
  *ids = x->out.at, *n_ids = x->out.n;
  return 0;
}

int text_encoder_add(text_encoder *x, const char *text, size_t n, const int32_t **ids, size_t *n_ids, error *err) {
  x->out.n = 0;
  str_addn(&x->text, text, n);
  x->came += n;
  *ids = NULL, *n_ids = 0;
  if (!x->failed && (!n || x->came < x->text.n - x->came + x->stretch.n)) return 0;
  return next_ids(x, true, ids, n_ids, err);
}

int text_encoder_end(text_encoder *x, const int32_t **ids, size_t *n_ids, error *err) {
  x->out.n = 0;
  *ids = NULL, *n_ids = 0;
  return next_ids(x, false, ids, n_ids, err);
}

// ---- At most this many ids ----

static void append_ids(token_list *all, const int32_t *ids, size_t n) {
  for (size_t i = 0; i < n; i++) vec_push(all, ids[i]);
}

static int encode_at_most(const tokenizer *t, text_view text, const encode_how *how, token_list *out, error *err) {
  enum { PIECE = 1 << 16 };
  text_encoder *x;
  const int32_t *ids;
  size_t n_ids;
  int status = 0;
  if (text_encoder_new(t, how->add_special, how->parse_special, &x, err)) return -1;
  x->found.within = how->within;
  for (size_t at = 0; at <= text.n && out->n <= how->most && !status; at += PIECE) {
    status = text_encoder_add(x, text.at + at, text.n - at < PIECE ? text.n - at : PIECE, &ids, &n_ids, err);
    if (!status) append_ids(out, ids, n_ids);
    if (!status) status = account_check(err);
  }
  if (!status && out->n <= how->most) {
    status = text_encoder_end(x, &ids, &n_ids, err);
    if (!status) append_ids(out, ids, n_ids);
  }
  text_encoder_free(x);
  return status;
}

int tokenizer_encode_as(const tokenizer *t, text_view text, const encode_how *how, int32_t **ids, size_t *n_ids,
                        error *err) {
  enum { LONG = 1 << 16 };
  token_list out = {0};
  int bad = how->most && text.n > LONG ? encode_at_most(t, text, how, &out, err)
                                       : encode_at_once(t, text, how, &out, err);
  if (bad) { vec_free(&out); return -1; }
  *ids = out.at ? out.at : xmalloc(sizeof **ids);
  *n_ids = out.n;
  return 0;
}
