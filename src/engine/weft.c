// The public API (include/weft.h) over the folders below: every function checks external input, calls one function of
// the engine, the tokenizer or the GGUF reader, and passes its error on. Facts about the machine are in env_report.c.
// Invariant: values that pass this file are in range; below it an invalid id or position is a broken invariant.
#include "weft.h"
#include "base/base.h"
#include "base/str.h"
#include "device/team.h"
#include "engine/draft.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "engine/float_rows.h"
#include "engine/media_file.h"
#include "engine/options.h"
#include "engine/trace.h"
#include "engine/profile.h"
#include "engine/sampler.h"
#include "engine/sized.h"
#include "engine/stop.h"
#include "model/gguf.h"
#include "model/model.h"
#include "chat/answer.h"
#include "chat/chat.h"
#include "text/text.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct weft_file { const gguf *g; gguf *owned; };              // owned: NULL if a model owns the file
// owned: NULL if a model owns it; g: the file that contains the texts
struct weft_vocab { const tokenizer *t; tokenizer *owned; const gguf *g; struct vocab_tries *tries; };
struct weft_encoder { text_encoder *e; const gguf *g; };
struct weft_stream { const tokenizer *t; bool special; utf8_stream pending; str bytes, text; };
struct weft_sampler { sampler *s; int32_t n_vocab; };
struct weft_model {
  engine *e;
  weft_file file;
  weft_vocab vocab;
  int n_threads;
  bool has_adapters;
  int n_kept;                // positions that the KV cache holds
  draft_measures drafts;
};

draft_measures *weft_model_drafts(weft_model *m) { return &m->drafts; }

const char *weft_version(void) { return WEFT_VERSION_STRING; }
void weft_free(void *p) { free(p); }
void weft_log_to(weft_log *log, void *ctx) { warning_set(log, ctx); }

// fail, for errors that a truncated file may cause: reports the truncation instead of the effects of its missing bytes.
static int fail_cut(const gguf *g, weft_error *out, const error *e) {
  error cut = {0};
  return fail(out, gguf_check_size(g, &cut) ? &cut : e);
}

char *weft_utf8(const char *text, size_t n, size_t *n_out) {
  utf8_stream stream = {0};
  str s = {0};
  str_add(&s, "");
  utf8_stream_add(&stream, text, n, &s);
  utf8_stream_end(&stream, &s);
  *n_out = s.n;
  return s.at;
}

// ---- files ----------------------------------------------------------------------------------------------------------

int weft_file_open(const char *path, weft_file **out, weft_error *err) {
  error e = {0};
  gguf *g = NULL;
  if (gguf_open(path, &g, &e)) return fail(err, &e);
  *out = xcalloc(1, sizeof **out);
  **out = (weft_file){g, g};
  return 0;
}

int weft_file_open_memory(const void *data, size_t n, const char *name, weft_file **out, weft_error *err) {
  error e = {0};
  gguf *g = NULL;
  if (gguf_open_memory(data, n, name, &g, &e)) return fail(err, &e);
  *out = xcalloc(1, sizeof **out);
  **out = (weft_file){g, g};
  return 0;
}

void weft_file_close(weft_file *f) {
  if (!f) return;
  gguf_close(f->owned);
  free(f);
}

const char *weft_file_path(const weft_file *f) { return gguf_path(f->g); }
uint32_t weft_file_version(const weft_file *f) { return gguf_shard_at(f->g, 0)->version; }
uint32_t weft_file_alignment(const weft_file *f) { return gguf_shard_at(f->g, 0)->alignment; }
size_t weft_file_n_parts(const weft_file *f) { return gguf_n_shards(f->g); }
uint64_t weft_file_bytes(const weft_file *f) { return gguf_file_bytes(f->g); }
size_t weft_file_n_keys(const weft_file *f) { return gguf_n_kv(f->g); }
size_t weft_file_n_tensors(const weft_file *f) { return gguf_n_tensors(f->g); }
uint64_t weft_file_n_params(const weft_file *f) { return gguf_n_params(f->g); }
uint64_t weft_file_tensor_bytes(const weft_file *f) { return gguf_tensor_bytes(f->g); }

// enum weft_type has the numbers of the file format.
#define T(id, name, bytes) _Static_assert((int)WEFT_##name == id, "weft.h numbers types as the file does");
GGUF_TYPES(T)
#undef T
const char *weft_type_name(enum weft_type t) {
  return (int)t >= 0 && (int)t < GGUF_TYPE_COUNT ? gguf_type_name((enum gguf_type)t) : "?";
}

static weft_value value_of(const gguf_value *v) {
  weft_value out = {.type = (enum weft_type)v->type};
  switch (v->type) {
  case GGUF_UINT8: case GGUF_UINT16: case GGUF_UINT32: case GGUF_UINT64: out.u = v->u; break;
  case GGUF_INT8: case GGUF_INT16: case GGUF_INT32: case GGUF_INT64: out.i = v->i; break;
  case GGUF_FLOAT32: case GGUF_FLOAT64: out.f = v->f; break;
  case GGUF_BOOL: out.u = v->b; break;
  case GGUF_STRING: out.text = v->s.at; out.n = v->s.n; break;
  case GGUF_ARRAY: out.elem = (enum weft_type)v->elem; out.n = v->a.n; break;
  case GGUF_TYPE_COUNT: die("gguf: a value of no type");
  }
  return out;
}

const char *weft_file_key(const weft_file *f, size_t i) {
  return i < gguf_n_kv(f->g) ? gguf_kv_at(f->g, i)->key : NULL;
}

int weft_file_value(const weft_file *f, size_t i, weft_value *out) {
  if (i >= gguf_n_kv(f->g)) return -1;
  *out = value_of(&gguf_kv_at(f->g, i)->value);
  return 0;
}

int weft_file_element(const weft_file *f, size_t i, size_t j, weft_value *out) {
  if (i >= gguf_n_kv(f->g)) return -1;
  const gguf_value *v = &gguf_kv_at(f->g, i)->value;
  if (v->type != GGUF_ARRAY || j >= v->a.n) return -1;
  gguf_value elem = gguf_elem(v, j);
  *out = value_of(&elem);
  return 0;
}

int weft_file_find(const weft_file *f, const char *key, size_t *i) {
  for (size_t k = 0; k < gguf_n_kv(f->g); k++) {
    if (strcmp(gguf_kv_at(f->g, k)->key, key)) continue;
    *i = k;
    return 0;
  }
  return -1;
}

char *weft_file_value_text(const weft_file *f, size_t i, size_t max_items) {
  str s = {0};
  str_add(&s, "");
  if (i < gguf_n_kv(f->g)) gguf_value_print(&s, &gguf_kv_at(f->g, i)->value, max_items);
  return s.at;
}

static uint64_t n_elements(const gguf_tensor *t) {   // the reader has checked that this fits
  return (uint64_t)t->ne[0] * (uint64_t)t->ne[1] * (uint64_t)t->ne[2] * (uint64_t)t->ne[3];
}

int weft_file_tensor(const weft_file *f, size_t i, weft_tensor *out) {
  if (i >= gguf_n_tensors(f->g)) return -1;
  const gguf_tensor *t = gguf_tensor_at(f->g, i);
  *out = (weft_tensor){.name = t->name, .type = t->format->name, .n_dims = t->n_dims, .n_elements = n_elements(t),
                       .bytes = t->nbytes, .offset = t->offset, .part = t->shard};
  memcpy(out->shape, t->ne, sizeof out->shape);
  return 0;
}

// The type with most of the bytes; NULL if there are no tensors.
static const struct format *main_format(const gguf *g) {
  const struct format *seen[64];
  uint64_t bytes[64] = {0};
  size_t n = 0, best = 0;
  for (size_t i = 0; i < gguf_n_tensors(g); i++) {
    const gguf_tensor *t = gguf_tensor_at(g, i);
    size_t k = 0;
    while (k < n && seen[k] != t->format) k++;
    if (k == COUNT(seen)) continue;
    if (k == n) seen[n++] = t->format;
    if ((bytes[k] += t->nbytes) > bytes[best]) best = k;
  }
  return n ? seen[best] : NULL;
}

char *weft_file_summary(const weft_file *f) {
  str s = {0};
  const gguf_value *arch = gguf_find(f->g, "general.architecture");
  if (arch && arch->type == GGUF_STRING) {
    char name[64];
    str_add(&s, gguf_quote(name, sizeof name, arch->s.at, arch->s.n));
  } else {
    str_add(&s, "model");
  }
  const struct format *format = main_format(f->g);
  double n = (double)gguf_n_params(f->g);
  if (!format) {
    str_add(&s, " without tensors");
    return s.at;
  }
  if (n >= 1e9) str_addf(&s, " %.1fB ", n / 1e9);
  else if (n >= 1e6) str_addf(&s, " %.1fM ", n / 1e6);
  else str_addf(&s, " %.0fK ", n / 1e3);
  uint32_t type;
  const char *called = gguf_find(f->g, "general.file_type") && !gguf_u32(f->g, "general.file_type", &type, NULL)
                         ? format_recipe_name(type)
                         : NULL;
  if (!called) str_add(&s, format->name);
  else if (!strncmp(called, format->name, strlen(format->name))) str_add(&s, called);
  else str_addf(&s, "%s (mostly %s)", called, format->name);
  return s.at;
}

const gguf *weft_file_gguf(const weft_file *f) { return f->g; }

int weft_file_can_run(const weft_file *f, weft_error *err) {
  error e = {0};
  model *m = NULL;
  tokenizer *t = NULL;
  int failed = media_file_is_model(f->g, &e) || model_open(f->g, (model_kv){0}, &m, &e) || model_check_alone(m, &e) ||
               tokenizer_from_gguf(f->g, &t, &e) || gguf_check_size(f->g, &e);
  model_close(m);
  tokenizer_free(t);
  return failed ? fail_cut(f->g, err, &e) : 0;
}

int weft_file_mtp(const weft_file *f) {
  model *m = NULL;
  if (model_open(f->g, (model_kv){0}, &m, NULL)) return -1;
  int at = model_has_mtp(m) ? model_n_layer(m) : -1;
  model_close(m);
  return at;
}

bool weft_file_only_drafts(const weft_file *f) {
  gguf_string a;
  return !gguf_str(f->g, "general.architecture", &a, NULL) && model_kind_drafts(a.at, a.n);
}

bool weft_file_denoises(const weft_file *f) {
  gguf_string a;
  return !gguf_str(f->g, "general.architecture", &a, NULL) && model_kind_denoises(a.at, a.n);
}

int weft_file_check(const weft_file *f, weft_error *err) {
  error e = {0};
  return gguf_check_size(f->g, &e) ? fail(err, &e) : 0;
}

const char **weft_file_key_uses(const weft_file *f) {
  const char **uses = xcalloc(gguf_n_kv(f->g) + 1, sizeof *uses);
  model_key_uses(f->g, uses);
  return uses;
}

// ---- vocabulary -----------------------------------------------------------------------------------------------------

int weft_vocab_open(const weft_file *f, weft_vocab **out, weft_error *err) {
  error e = {0};
  tokenizer *t = NULL;
  if (tokenizer_from_gguf(f->g, &t, &e)) return fail_cut(f->g, err, &e);
  *out = xcalloc(1, sizeof **out);
  **out = (weft_vocab){t, t, f->g, vocab_tries_new()};
  return 0;
}

void weft_vocab_close(weft_vocab *v) {
  if (!v) return;
  vocab_tries_free(v->tries);
  tokenizer_free(v->owned);
  free(v);
}

const tokenizer *weft_vocab_tokenizer(const weft_vocab *v) { return v->t; }
struct vocab_tries *weft_vocab_tries(const weft_vocab *v) { return v->tries; }
int32_t weft_vocab_size(const weft_vocab *v) { return tokenizer_n_vocab(v->t); }
_Static_assert((int)WEFT_TOKEN_BYTE == TOKEN_BYTE && (int)WEFT_TOKEN_CONTROL == TOKEN_CONTROL,
               "weft.h numbers types of tokens as files do");
enum weft_token_type weft_token_type(const weft_vocab *v, int32_t id) {
  return (enum weft_token_type)tokenizer_token_type(v->t, id);
}
float weft_token_score(const weft_vocab *v, int32_t id) { return tokenizer_token_score(v->t, id); }
bool weft_is_end(const weft_vocab *v, int32_t id) { return tokenizer_is_eog(v->t, id); }
int32_t weft_bos(const weft_vocab *v) { return tokenizer_role(v->t, ROLE_bos); }
int32_t weft_mask(const weft_vocab *v) { return tokenizer_role(v->t, ROLE_mask); }
int32_t weft_eos(const weft_vocab *v) { return tokenizer_role(v->t, ROLE_eos); }

int vocab_encode(const weft_vocab *v, text_view text, const encode_how *how, int32_t **ids, size_t *n_ids,
                 weft_error *err) {
  error e = {0};
  if (tokenizer_encode_as(v->t, text, how, ids, n_ids, &e)) return fail_cut(v->g, err, &e);
  if (!gguf_check_size(v->g, &e)) return 0;
  free(*ids);
  *ids = NULL;
  *n_ids = 0;
  return fail(err, &e);
}

int weft_tokenize_at_most(const weft_vocab *v, const char *text, size_t n, unsigned flags, size_t most, int32_t **ids,
                          size_t *n_ids, weft_error *err) {
  const encode_how how = {
    .add_special = flags & WEFT_ADD_SPECIAL, .parse_special = flags & WEFT_PARSE_SPECIAL, .most = most};
  return vocab_encode(v, (text_view){text, n}, &how, ids, n_ids, err);
}

int weft_tokenize(const weft_vocab *v, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *n_ids,
                  weft_error *err) {
  return weft_tokenize_at_most(v, text, n, flags, 0, ids, n_ids, err);
}

static int fail_id(const int32_t *ids, size_t i, size_t n, int32_t n_vocab, weft_error *err) {
  FAIL(err, "token id %d (number %zu of %zu) is outside the vocabulary: ids go from 0 to %d", ids[i], i + 1, n,
       n_vocab - 1);
}

static bool is_of(int32_t id, int32_t n_vocab) { return id >= 0 && id < n_vocab; }

// 0 if every id is in 0..n_vocab-1.
int weft_check_ids(const int32_t *ids, size_t n, int32_t n_vocab, weft_error *err) {
  for (size_t i = 0; i < n; i++) if (!is_of(ids[i], n_vocab)) return fail_id(ids, i, n, n_vocab, err);
  return 0;
}

// 0 if every id is in the vocabulary or a row of floats.
int weft_check_prompt(weft_model *m, const int32_t *ids, size_t n, weft_error *err) {
  int32_t n_vocab = engine_n_vocab(m->e);
  for (size_t i = 0; i < n; i++)
    if (!is_of(ids[i], n_vocab) && (ids[i] >= 0 || !float_rows_find(engine_float_table(m->e), ids[i], NULL)))
      return fail_id(ids, i, n, n_vocab, err);
  return 0;
}

int weft_encoder_new(const weft_vocab *v, unsigned flags, weft_encoder **out, weft_error *err) {
  error e = {0};
  text_encoder *made;
  if (text_encoder_new(v->t, flags & WEFT_ADD_SPECIAL, flags & WEFT_PARSE_SPECIAL, &made, &e)) return fail(err, &e);
  *out = xcalloc(1, sizeof **out);
  **out = (weft_encoder){made, v->g};
  return 0;
}

int weft_encoder_add(weft_encoder *x, const char *text, size_t n, const int32_t **ids, size_t *n_ids, weft_error *err) {
  error e = {0};
  return text_encoder_add(x->e, text, n, ids, n_ids, &e) || gguf_check_size(x->g, &e) ? fail_cut(x->g, err, &e) : 0;
}

int weft_encoder_end(weft_encoder *x, const int32_t **ids, size_t *n_ids, weft_error *err) {
  error e = {0};
  return text_encoder_end(x->e, ids, n_ids, &e) || gguf_check_size(x->g, &e) ? fail_cut(x->g, err, &e) : 0;
}

void weft_encoder_free(weft_encoder *x) {
  if (!x) return;
  text_encoder_free(x->e);
  free(x);
}

int weft_detokenize(const weft_vocab *v, const int32_t *ids, size_t n_ids, bool special, char **text, size_t *n,
                    weft_error *err) {
  if (weft_check_ids(ids, n_ids, tokenizer_n_vocab(v->t), err)) return -1;
  str s = {0};
  str_add(&s, "");
  tokenizer_decode(v->t, ids, n_ids, special, &s);
  error e = {0};
  if (gguf_check_size(v->g, &e)) {
    str_free(&s);
    return fail(err, &e);
  }
  *text = s.at;
  *n = s.n;
  return 0;
}

char *weft_piece(const weft_vocab *v, int32_t id, bool special, size_t *n) {
  str s = {0};
  str_add(&s, "");
  tokenizer_piece(v->t, id, &s, special);
  *n = s.n;
  return s.at;
}

weft_stream *weft_stream_new(const weft_vocab *v, bool special) {
  weft_stream *s = xcalloc(1, sizeof *s);
  s->t = v->t;
  s->special = special;
  return s;
}

static void empty(str *s) {
  str_add(s, "");   // never NULL
  s->n = 0;
  s->at[0] = 0;
}

const char *weft_stream_add(weft_stream *s, int32_t id, size_t *n) {
  empty(&s->bytes);
  empty(&s->text);
  tokenizer_piece(s->t, id, &s->bytes, s->special);
  utf8_stream_add(&s->pending, s->bytes.at, s->bytes.n, &s->text);
  *n = s->text.n;
  return s->text.at;
}

const char *weft_stream_end(weft_stream *s, size_t *n) {
  empty(&s->text);
  utf8_stream_end(&s->pending, &s->text);
  *n = s->text.n;
  return s->text.at;
}

void weft_stream_free(weft_stream *s) {
  if (!s) return;
  str_free(&s->bytes);
  str_free(&s->text);
  free(s);
}

// ---- chat templates -------------------------------------------------------------------------------------------------

struct weft_template { jinja *t; char *name, *bos, *eos, *text; size_t n_bos, n_eos, n_text; };

static char *copy_view(text_view v) {
  if (!v.at) return NULL;
  char *copy = xmalloc(v.n + 1);
  memcpy(copy, v.at, v.n);
  copy[v.n] = 0;
  return copy;
}

static int new_template(text_view text, const char *name, weft_template **out, weft_error *err) {
  error e = {0}, inner = {0};
  jinja *t = NULL;
  if (jinja_parse(text.at, text.n, &t, &inner)) { error_set(&e, "%s: %s", name, inner.text); return fail(err, &e); }
  *out = xcalloc(1, sizeof **out);
  **out = (weft_template){.t = t, .name = xstrdup(name), .text = copy_view(text), .n_text = text.n};
  return 0;
}

int weft_template_open(const char *text, size_t n, const char *name, weft_template **out, weft_error *err) {
  return new_template((text_view){text, n}, name, out, err);
}

int weft_template_of_file(const weft_file *f, bool tools, weft_template **out, weft_error *err) {
  error e = {0};
  text_view text, bos, eos;
  if (chat_template_from_gguf(f->g, tools, &text, &e) ||
      chat_token_from_gguf(f->g, "tokenizer.ggml.bos_token_id", &bos, &e) ||
      chat_token_from_gguf(f->g, "tokenizer.ggml.eos_token_id", &eos, &e))
    return fail_cut(f->g, err, &e);
  str name = {0};
  str_addf(&name, "%s: chat template", gguf_path(f->g));
  int status = new_template(text, str_c(&name), out, err);
  if (gguf_check_size(f->g, &e)) {
    if (!status) weft_template_close(*out);
    status = fail(err, &e);
  }
  str_free(&name);
  if (status) return -1;
  (*out)->bos = copy_view(bos), (*out)->n_bos = bos.n;
  (*out)->eos = copy_view(eos), (*out)->n_eos = eos.n;
  return 0;
}

void weft_template_close(weft_template *t) {
  if (!t) return;
  jinja_free(t->t);
  free(t->name);
  free(t->text);
  free(t->bos);
  free(t->eos);
  free(t);
}

const char *weft_template_text(const weft_template *t, size_t *n) {
  *n = t->n_text;
  return t->text;
}

char *weft_template_named(const char *name, const char **end) {
  const char *unused;
  return chat_template(name, end ? end : &unused);
}

const char *weft_template_name(size_t i) { return chat_template_name(i); }

bool weft_template_reasons(const weft_template *t) { return answer_reasons((text_view){t->text, t->n_text}); }

int template_render(const weft_template *t, const weft_chat *c, jinja_text *out, weft_error *err) {
  chat_input in = {.messages = {c->messages, c->n_messages},
                   .tools = {c->tools, c->n_tools},
                   .variables = {c->variables, c->n_variables},
                   .no_generation_prompt = c->no_generation_prompt,
                   .now = c->now};
  in.bos = c->bos ? (text_view){c->bos, strlen(c->bos)} : (text_view){t->bos, t->n_bos};
  in.eos = c->eos ? (text_view){c->eos, strlen(c->eos)} : (text_view){t->eos, t->n_eos};
  error e = {0};
  *out = (jinja_text){0};
  if (!c->messages) error_set(&e, "there are no messages");
  if (e.text[0] || chat_render(t->t, t->name, &in, out, &e)) return fail(err, &e);
  str_add(&out->text, "");
  return 0;
}

int weft_template_render(const weft_template *t, const weft_chat *chat, char **text, size_t *n, weft_error *err) {
  jinja_text made;
  weft_chat c = {0};
  if (TAKE_WEFT_CHAT(&c, chat, err) || template_render(t, &c, &made, err)) return -1;
  vec_free(&made.own);
  *text = made.text.at;
  *n = made.text.n;
  return 0;
}

_Static_assert(sizeof(weft_part) == sizeof(answer_part) && offsetof(weft_part, text) == offsetof(answer_part, text) &&
                 offsetof(weft_part, done) == offsetof(answer_part, done) && (int)WEFT_CALL == (int)ANSWER_CALL,
               "parts are handed on");
int weft_answer_new(const weft_template *t, const char *prompt, size_t n_prompt, const char *tools, size_t n_tools,
                    weft_answer **out, weft_error *err) {
  error e = {0};
  text_view text = {t ? t->text : NULL, t ? t->n_text : 0};
  return answer_new(text, (text_view){prompt, prompt ? n_prompt : 0}, (text_view){tools, n_tools}, out, &e)
           ? fail(err, &e)
           : 0;
}

weft_answer *weft_answer_clone(const weft_answer *a) { return answer_clone(a); }

size_t weft_answer_add(weft_answer *a, const char *text, size_t n, const weft_part **parts) {
  return answer_add(a, text, n, (const answer_part **)parts);
}
size_t weft_answer_end(weft_answer *a, bool cut, const weft_part **parts) {
  return answer_end(a, cut, (const answer_part **)parts);
}
bool weft_answer_in_content(const weft_answer *a) { return answer_in_content(a); }
const char *weft_answer_reasoning_end(const weft_answer *a, char own[64]) { return answer_reasoning_end(a, own); }
void weft_answer_keep_reasoning(weft_answer *a) { answer_keep_reasoning(a); }
void weft_answer_free(weft_answer *a) { answer_free(a); }

// ---- models ---------------------------------------------------------------------------------------------------------

int weft_default_threads(void) { return team_default_threads(); }

// data NULL: reads the file at path.
static int open_model(const char *path, const text_view *data, const weft_options *opt, weft_model **out,
                      weft_error *err) {
  weft_options o;
  struct engine_options eo;
  if (options_take(opt, &o, &eo, err)) return -1;
  eo.in_memory = data;
  eo.data = data ? data->at : NULL;
  eo.n_data = data ? data->n : 0;
  error e = {0};
  engine *eng = NULL;
  int status = engine_open(path, &eo, &eng, &e);
  free((void *)(uintptr_t)eo.control_vectors);
  if (status) return fail(err, &e);
  weft_model *m = xcalloc(1, sizeof *m);
  m->e = eng;
  m->has_adapters = o.n_adapters || o.n_control_vectors;
  m->file.g = engine_gguf(eng);
  m->vocab.t = engine_tokenizer(eng);
  m->vocab.g = m->file.g;
  m->vocab.tries = vocab_tries_new();
  m->n_threads = o.threads ? o.threads : team_default_threads();
  *out = m;
  return 0;
}

int weft_model_open(const char *path, const weft_options *opt, weft_model **out, weft_error *err) {
  return open_model(path, NULL, opt, out, err);
}

int weft_model_open_memory(const void *data, size_t n, const char *name, const weft_options *opt, weft_model **out,
                           weft_error *err) {
  return open_model(name, &(text_view){data, n}, opt, out, err);
}

void weft_model_close(weft_model *m) {
  if (!m) return;
  vocab_tries_free(m->vocab.tries);
  engine_close(m->e);
  free(m);
}

int weft_model_check(const weft_model *m, weft_error *err) {
  error e = {0};
  return engine_check(m->e, &e) || gguf_check_size(m->file.g, &e) ? fail(err, &e) : 0;
}

const weft_file *weft_model_file(const weft_model *m) { return &m->file; }
const weft_vocab *weft_model_vocab(const weft_model *m) { return &m->vocab; }
int32_t weft_model_vocab_size(const weft_model *m) { return engine_n_vocab(m->e); }
int weft_model_context(const weft_model *m) { return engine_n_ctx(m->e); }
int weft_model_threads(const weft_model *m) { return m->n_threads; }

static int check_predicts(const weft_model *m, weft_error *err) {
  error e = {0};
  return engine_check_predicts(m->e, &e) ? fail(err, &e) : 0;
}

static int check_span(weft_model *m, const int32_t *ids, size_t n, int pos, weft_error *err) {
  int n_ctx = engine_n_ctx(m->e);
  if (check_predicts(m, err)) return -1;
  if (n == 0) FAIL(err, "there are no tokens to evaluate");
  if (pos < 0 || pos > m->n_kept)
    FAIL(err, "position %d does not follow the %d positions that were evaluated", pos, m->n_kept);
  if (n > (size_t)(n_ctx - pos))
    FAIL(err, "%zu tokens from position %d on do not fit the context of %d", n, pos, n_ctx);
  return weft_check_prompt(m, ids, n, err);
}

// The number of leading values before the first NaN or +infinity. Branch-free blocks, for vectorising.
static int32_t count_sound(const float *x, int32_t n) {
  enum { BLOCK = 64 };
  int32_t i = 0;
  for (; i + BLOCK <= n; i += BLOCK) {
    int sound = 0;
    for (int k = 0; k < BLOCK; k++) sound += x[i + k] < INFINITY;
    if (sound < BLOCK) break;
  }
  while (i < n && x[i] < INFINITY) i++;
  return i;
}

// Checks the logits of the token at position pos.
int weft_check_logits(const weft_model *m, const float *logits, int pos, error *e) {
  int32_t n = engine_n_vocab(m->e), i = count_sound(logits, n);
  if (i == n) return 0;
  return error_set(e, "%s: the logit of token %d at position %d is %s: the weights are damaged%s", gguf_path(m->file.g),
                   i, pos, isnan(logits[i]) ? "not a number" : "infinite",
                   m->has_adapters ? ", or the scale of an adapter or a control vector is too large" : "");
}

int weft_decode(weft_model *m, const int32_t *ids, size_t n, int pos, const float **logits, weft_error *err) {
  if (check_span(m, ids, n, pos, err)) return -1;
  error e = {0};
  engine_part p = {.ids = ids, .n = n, .pos = pos, .rows = logits != NULL};
  m->n_kept = pos;
  int status = engine_run(m->e, &(engine_batch){.parts = &p, .n = 1, .alone = true}, &e);
  if (status) return status < 0 ? fail(err, &e) : status;
  m->n_kept = pos + (int)n;
  if (!logits) return 0;
  if (weft_check_logits(m, p.logits, pos + (int)n - 1, &e)) return fail(err, &e);
  *logits = p.logits;
  return 0;
}

bool weft_checked_row(void *ctx, size_t i, const float *logits) {
  struct checked_rows *r = ctx;
  return !weft_check_logits(r->m, logits, r->pos + (int)i, &r->e) && r->row(r->ctx, i, logits);
}

int weft_decode_rows(weft_model *m, const int32_t *ids, size_t n, int pos, size_t first, weft_row *row, void *ctx,
                     weft_error *err) {
  if (check_span(m, ids, n, pos, err)) return -1;
  if (first >= n) FAIL(err, "logits from token %zu on are wanted, but there are %zu tokens", first, n);
  struct checked_rows r = {.m = m, .pos = pos, .row = row, .ctx = ctx};
  m->n_kept = pos;
  engine_part p = {.ids = ids, .n = n, .pos = pos, .rows = n - first, .row = weft_checked_row, .ctx = &r};
  int status = engine_run(m->e, &(engine_batch){.parts = &p, .n = 1}, &r.e);
  if (status < 0 || r.e.text[0]) return fail(err, &r.e);
  m->n_kept = status ? pos : pos + (int)p.evaluated;
  return status;
}

void weft_model_watch(weft_model *m, weft_watch *watch, void *ctx) { engine_watch(m->e, watch, ctx); }

int weft_model_sums(weft_model *m, const int32_t *ids, size_t n, engine_sums *see, void *ctx, weft_error *err) {
  error e = {0};
  if (check_span(m, ids, n, 0, err)) return -1;
  m->n_kept = 0;
  engine_part p = {.ids = ids, .n = n, .want = WANT_SUMS, .see = see, .ctx = ctx};
  if (engine_run(m->e, &(engine_batch){.parts = &p, .n = 1}, &e)) return fail(err, &e);
  m->n_kept = (int)n;
  return 0;
}

void weft_model_promote_pages(weft_model *m) { engine_promote_pages(m->e); }

void weft_model_stats(const weft_model *m, weft_stats *out) {
  struct engine_stats s = {0};
  engine_stats(m->e, &s);
  *out = (weft_stats){s.load_ms,          s.compile_ms,        s.schedule_ms,       s.codegen_ms,
                      s.kernels_compiled, s.plans_scheduled,   s.kernels_per_token, s.kernels_per_block,
                      s.fusion_rate,      s.kv_bytes,          s.peak_rss_bytes,    s.kernels,
                      s.kernels_tuned,    s.tune_tried,        s.tune_better,       s.tune_cost,
                      s.tune_state};
}

engine *weft_model_beside(weft_model *m) { return m->e; }
void weft_model_keep(weft_model *m, int n) {
  if (m->n_kept > n) m->n_kept = n;
}
engine *weft_model_engine(weft_model *m) {
  m->n_kept = 0;             // the caller runs the model itself
  return m->e;
}

const engine *weft_model_peek(const weft_model *m) { return m->e; }

int weft_model_chunk(const weft_model *m) { return engine_chunk(m->e); }

// Owns the data to which the profile points.
typedef struct profile_handle { weft_profile shown; struct profile p; weft_kernel_time kernels[]; } profile_handle;
_Static_assert(offsetof(profile_handle, shown) == 0, "weft_profile_free gets the address of the handle");

// Checks arguments of weft_profile_model and weft_model_trace.
static int check_steps(const weft_model *m, int prompt, int steps, int pos, weft_error *err) {
  enum { MOST = 10000 };
  int n_ctx = engine_n_ctx(m->e), chunk = engine_chunk(m->e);
  if (check_predicts(m, err)) return -1;
  if (steps < 1 || steps > MOST) FAIL(err, "%d steps were asked for; it must be 1 to %d", steps, MOST);
  if (prompt < 0 || prompt > chunk) FAIL(err, "a chunk of %d tokens was asked for; it must be 0 to %d", prompt, chunk);
  if (pos < 0 || pos > m->n_kept)
    FAIL(err, "position %d does not follow the %d positions that were evaluated", pos, m->n_kept);
  int n = prompt ? prompt : steps;
  if (n > n_ctx - pos) FAIL(err, "%d tokens from position %d on do not fit the context of %d", n, pos, n_ctx);
  return weft_model_check(m, err);
}

int weft_profile_model(weft_model *m, int prompt, int steps, int pos, weft_profile **out, weft_error *err) {
  if (check_steps(m, prompt, steps, pos, err)) return -1;
  error e = {0};
  struct profile p;
  m->n_kept = pos;
  if (profile_run(m->e, prompt, steps, pos, &p, &e)) { profile_free(&p); return fail(err, &e); }
  *out = profile_shown(&p);
  return 0;
}

weft_profile *profile_shown(struct profile *p) {
  profile_handle *h = xcalloc(1, sizeof *h + p->n_rows * sizeof *h->kernels);
  h->p = *p;
  for (size_t i = 0; i < p->n_rows; i++) {
    const struct profile_row *r = &p->rows[i];
    h->kernels[i] = (weft_kernel_time){r->name,
                                       r->role,
                                       r->count,
                                       r->us,
                                       r->wait_us,
                                       r->bytes,
                                       r->flops,
                                       r->counted[COUNTED_CYCLES],
                                       r->counted[COUNTED_INSTRUCTIONS],
                                       r->counted[COUNTED_CACHE_MISSES],
                                       r->counted[COUNTED_BRANCH_MISSES]};
  }
  h->shown = (weft_profile){.tokens = p->tokens,
                            .parts = p->parts,
                            .before_us = p->before_us,
                            .us = p->us,
                            .overhead_us = p->overhead_us,
                            .wait_us = p->wait_us,
                            .no_counters = h->p.no_counters.text[0] ? h->p.no_counters.text : NULL,
                            .limit_gb_s = p->limit_gb_s,
                            .kernels_per_step = p->dispatches,
                            .kernels_per_block = (double)p->dispatches / p->n_layer,
                            .fusion_rate = p->dispatches ? (double)p->graph_ops / p->dispatches : 0,
                            .kernels = h->kernels,
                            .n_kernels = p->n_rows};
  return &h->shown;
}

int weft_model_trace(weft_model *m, int prompt, int steps, int pos, char **text, size_t *n, weft_error *err) {
  if (check_steps(m, prompt, steps, pos, err)) return -1;
  error e = {0};
  str s = {0};
  m->n_kept = pos;
  if (trace_run(m->e, prompt, steps, pos, &s, &e)) { str_free(&s); return fail(err, &e); }
  *text = s.at;
  *n = s.n;
  return 0;
}

void weft_profile_free(weft_profile *p) {
  if (!p) return;
  profile_free(&((profile_handle *)p)->p);
  free(p);
}

// ---- sampling -------------------------------------------------------------------------------------------------------

void weft_sampling_init(weft_sampling *p, size_t size) {
  weft_sampling d = sampler_default();
  d.size = size;
  memset(p, 0, size);
  memcpy(p, &d, size < sizeof d ? size : sizeof d);
}

int weft_sampling_of_file(const weft_file *f, weft_sampling *p, weft_error *err) {
  weft_sampling whole = weft_sampling_default();
  size_t size = p->size && p->size < sizeof whole ? p->size : sizeof whole;
  error e = {0};
  memcpy(&whole, p, size);
  int status = sampler_of_file(f->g, &whole, &e);
  memcpy(p, &whole, size);
  return status ? fail(err, &e) : 0;
}

uint64_t weft_random_seed(void) {
  uint32_t seed;
  if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint32_t)(now_s() * 1e6);
  return seed;
}

int weft_sampler_new(int32_t vocab_size, const weft_sampling *params, weft_sampler **out, weft_error *err) {
  weft_sampling p = weft_sampling_default();
  if (params && TAKE_OPTIONS(&p, weft_sampling, own_ctx, params, err)) return -1;
  error e = {0};
  sampler *s = NULL;
  if (sampler_new(&p, vocab_size, &s, &e)) return fail(err, &e);
  *out = xcalloc(1, sizeof **out);
  **out = (weft_sampler){s, vocab_size};
  return 0;
}

void weft_sampler_free(weft_sampler *s) {
  if (!s) return;
  sampler_free(s->s);
  free(s);
}

int weft_sampler_bias(weft_sampler *s, int32_t id, float bias, weft_error *err) {
  if (weft_check_ids(&id, 1, s->n_vocab, err)) return -1;
  if (isnan(bias) || bias == INFINITY)
    FAIL(err, "the bias of token %d is %g; it must be a number or -infinity", id, (double)bias);
  sampler_bias(s->s, id, bias);
  return 0;
}

void weft_sampler_ignore_end(weft_sampler *s, const weft_vocab *v) {
  int32_t n = tokenizer_n_vocab(v->t) < s->n_vocab ? tokenizer_n_vocab(v->t) : s->n_vocab;
  for (int32_t id = 0; id < n; id++) if (tokenizer_is_eog(v->t, id)) sampler_bias(s->s, id, -INFINITY);
}

void weft_sampler_suppress(weft_sampler *s, const weft_vocab *v) {
  size_t n;
  const int32_t *ids = tokenizer_suppressed(v->t, &n);
  for (size_t i = 0; i < n; i++) if (ids[i] < s->n_vocab) sampler_bias(s->s, ids[i], -INFINITY);
}

int weft_sample(weft_sampler *s, const float *logits, int32_t *id, weft_error *err) {
  int32_t drawn = sampler_sample(s->s, logits);
  if (sampler_own_fault(s->s)) FAIL(err, "%s", sampler_own_fault(s->s));
  if (drawn < 0) {
    int32_t by_mask, by_bias;
    sampler_bans(s->s, &by_mask, &by_bias);
    FAIL(err,
         "no token can be drawn: all %d are banned (%d by the grammar; %d by biases, the end that is ignored or the "
         "file's tokenizer.ggml.suppress_tokens)",
         s->n_vocab, by_mask, by_bias);
  }
  *id = drawn;
  return 0;
}

int weft_sampler_logprobs(const weft_sampler *s, int32_t id, double *of_id, weft_logprob *top, int32_t n_top,
                          int32_t *n_out, weft_error *err) {
  if (weft_check_ids(&id, 1, s->n_vocab, err)) return -1;
  if (n_top < 0) FAIL(err, "%d log-probabilities were asked for", n_top);
  *n_out = sampler_logprobs(s->s, id, of_id, (struct logprob *)top, n_top);
  return 0;
}

int weft_accept(weft_sampler *s, int32_t id, weft_error *err) {
  if (weft_check_ids(&id, 1, s->n_vocab, err)) return -1;
  sampler_accept(s->s, id);
  return 0;
}

void weft_sampler_reset(weft_sampler *s) { sampler_reset(s->s); }
void weft_sampler_mask(weft_sampler *s, const uint64_t *allowed) { sampler_mask(s->s, allowed); }

int weft_sampler_breakers(weft_sampler *s, const weft_vocab *v, const char *const *texts, size_t n, weft_error *err) {
  static const char *const usual[] = {"\n", ":", "\"", "*"};
  error e = {0};
  return sampler_breakers(s->s, v->t, texts ? texts : usual, texts ? n : COUNT(usual), &e) ? fail(err, &e) : 0;
}

int weft_stop_new(const char *const *texts, size_t n, weft_stop **out, weft_error *err) {
  error e = {0};
  return stop_new(texts, n, out, &e) ? fail(err, &e) : 0;
}

const char *weft_stop_add(weft_stop *s, const char *text, size_t n, size_t *n_out, int *found) {
  return stop_add(s, text, n, n_out, found);
}
const char *weft_stop_end(weft_stop *s, size_t *n_out) { return stop_end(s, n_out); }
void weft_stop_free(weft_stop *s) { stop_free(s); }

_Static_assert(sizeof(weft_logprob) == sizeof(struct logprob) &&
                 offsetof(weft_logprob, logprob) == offsetof(struct logprob, logprob),
               "weft_logprobs hands the array on");
int weft_logprobs(const float *logits, int32_t n, int32_t id, double *of_id, weft_logprob *top, int32_t n_top,
                  weft_error *err) {
  if (weft_check_ids(&id, 1, n, err)) return -1;
  if (n_top < 0 || n_top > n) FAIL(err, "%d log-probabilities were asked for; the vocabulary has %d tokens", n_top, n);
  logprobs(logits, n, id, of_id, (struct logprob *)top, n_top);
  return 0;
}
