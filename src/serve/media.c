// Pictures and sounds in conversations: see media.h.
#define _GNU_SOURCE
#include "serve/media.h"
#include "serve/fetch.h"
#include "serve/server.h"
#include <nettle/base64.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/sha256.h"

// A text in base64.
typedef struct coded { const char *at; size_t n; } coded;

enum { MOST_MEDIA = 64, BYTES_PER_PIXEL = 16, MOST_SOUND_S = 600, MOST_DECODING_S = 5, RETRY_S = 5 };

// ---- parts ----------------------------------------------------------------------------------------------------------

// The members with the bytes or the URL of a part, by its type.
static const struct { const char *type, *outer, *inner[2]; } parts[] = {
  {"image_url", "image_url", {"url"}},
  {"input_image", "image_url", {"url"}},
  {"image", "source", {"data", "url"}},
  {"input_audio", "input_audio", {"data", "url"}},
  {"audio_url", "audio_url", {"url"}},           // vLLM's
};

static size_t medium_row(const json_t *part) {
  size_t i = 0;
  while (i < COUNT(parts) && !json_is_of(part, parts[i].type)) i++;
  return i;
}

bool is_medium(const json_t *part) {
  size_t i = medium_row(part);
  return i < COUNT(parts) && json_object_get(part, parts[i].outer);
}

int call_add_part(call *c, const char *field, const json_t *part, str *out) {
  size_t i = medium_row(part);
  const json_t *at = json_object_get(part, parts[i].outer);
  const json_t *kind = json_object_get(at, "type");
  if (json_is_object(at)) {
    const char *source = json_string_value(kind);
    if (source && strcmp(source, "base64") && strcmp(source, "url"))
      return call_bad(c, field, "has a picture whose source is neither base64 nor a URL: no files are kept");
    const json_t *in = NULL;
    for (size_t k = 0; !in && k < COUNT(parts[i].inner) && parts[i].inner[k]; k++)
      in = json_object_get(at, parts[i].inner[k]);
    at = in;
  }
  if (!json_is_string(at)) return call_bad(c, field, "has a picture or a sound without its data");
  return call_add_data(c, field, at, out);
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

// The data of "data:image/png;base64,...", or of the text after the comma only.
static int data_of(call *c, const char *field, const json_t *text, coded *out) {
  coded v = {json_string_value(text), json_string_length(text)};
  const char *comma;
  *out = v;
  if (v.n >= 5 && !strncasecmp(v.at, "data:", 5)) {
    comma = memchr(v.at, ',', v.n < 256 ? v.n : 256);
    if (!comma || comma - v.at < 7 || strncasecmp(comma - 7, ";base64", 7))
      return call_bad(c, field, "has a data: URL that is not in base64");
    *out = (coded){comma + 1, v.n - (size_t)(comma + 1 - v.at)};
    return 0;
  }
  return 0;
}

// Does the text begin like a URL, "https://..."?
static bool is_url(const json_t *text) {
  enum { MOST_SCHEME = 32 };
  const char *at = json_string_value(text), *colon = memchr(at, ':', strnlen(at, MOST_SCHEME));
  return colon && strncasecmp(at, "data:", 5) && (!strncmp(colon, "://", 3) || !strncasecmp(at, "file:", 5));
}

// ---- from the network -----------------------------------------------------------------------------------------------

typedef struct file { call *c; const char *field; uint8_t *at; size_t n, cap; atomic_bool left; } file;

static void drop_file(file *f) {
  account_give(&f->c->x->account, f->cap);
  free(f->at);
  f->at = NULL;
  f->n = f->cap = 0;
}

static int add_fetched(void *ctx, const void *at, size_t n) {
  enum { LEAST = 1 << 16 };
  file *f = ctx;
  if (f->n + n > f->cap) {
    size_t more = f->cap ? f->cap : LEAST;
    while (f->cap + more < f->n + n) more *= 2;
    if (call_take(f->c, f->field, "its pictures and sounds", more)) return -1;
    f->at = xrealloc(f->at, f->cap += more);
  }
  memcpy(f->at + f->n, at, n);
  f->n += n;
  return 0;
}

// After the client has gone; a half-closed connection is probed (http.c).
static void note_gone(void *ctx) { atomic_store(&((file *)ctx)->left, true); }
static bool has_left(void *ctx) { return atomic_load(&((file *)ctx)->left) || exchange_gone(((file *)ctx)->c->x); }

static int fetch_waiting(call *c, const json_t *url, file *out, error *why) {
  if (!c->fetch_until) c->fetch_until = now_s() + FETCH_ALL_S;
  const fetch_sink to = {add_fetched, has_left, out, c->fetch_until};
  if (!pool_wait(c->s->makers)) {
    error_set(why, "too many wait for pictures and sounds from the network");
    return FETCH_LATER;
  }
  exchange_when_gone(c->x, note_gone, out);
  int failed = fetch_url(c->s->o->fetcher, json_string_value(url), json_string_length(url), &to, why);
  exchange_when_gone(c->x, NULL, NULL);
  pool_go_on(c->s->makers);
  return failed;
}

static int fetch_file(call *c, const char *field, const json_t *url, file *out) {
  error why = {0};
  if (!c->s->o->fetcher || !strncasecmp(json_string_value(url), "file:", 5))
    return call_bad(c, field, "has a URL: nothing is fetched, unless --allow-media-from names its host; send the bytes "
                              "as data:image/png;base64,...");
  int failed = fetch_waiting(c, url, out, &why);
  if (!failed) return 0;
  drop_file(out);
  if (failed == FETCH_TAKEN && c->fault.status) return -1;
  if (failed == FETCH_TAKEN) return call_bad(c, field, "is not read on: the client has left");
  c->fault.retry_s = failed == FETCH_LATER ? RETRY_S : 0;
  return fault_set(&c->fault, failed == FETCH_LATER ? 503 : 400, field, "'%s' has a picture or a sound that cannot be "
                   "fetched: %s", field, why.text);
}

static int decode_base64(call *c, const char *field, coded text, file *out) {
  struct base64_decode_ctx ctx;
  if (call_take(c, field, "its pictures and sounds", BASE64_DECODE_LENGTH(text.n))) return -1;
  out->cap = BASE64_DECODE_LENGTH(text.n);
  out->at = xmalloc(out->cap + 1);
  base64_decode_init(&ctx);
  if (base64_decode_update(&ctx, &out->n, out->at, text.n, text.at) && base64_decode_final(&ctx)) return 0;
  drop_file(out);
  return call_bad(c, field, "has a picture or a sound that is not in base64");
}

static int read_medium_bytes(call *c, const char *field, const json_t *data, file *out) {
  coded text;
  if (is_url(data)) return fetch_file(c, field, data, out);
  return data_of(c, field, data, &text) || decode_base64(c, field, text, out) ? -1 : 0;
}

// ---- recently encoded media -----------------------------------------------------------------------------------------

// A conversation sends its pictures again with every message: a picture is identified by its bytes, and its rows are
// kept for a while.
struct encoded {
  struct encoded *next;                // used before this one
  weft_medium *x;
  size_t bytes;                        // of its rows
  int users;
  char digest[65];
};
enum { KEPT_BYTES = 64 << 20 };        // of those that no request uses
enum { BESIDE_BYTES = 4096, BESIDE_ROW_BYTES = 4 * sizeof(int32_t) };  // texts around it; id and positions of a row

// Moves it to the front of the list. NULL: not in the list.
static struct encoded *bring_forward(served *m, const char digest[65]) {
  struct encoded **at = &m->encoded, *e;
  while ((e = *at) && strcmp(e->digest, digest)) at = &e->next;
  if (!e) return NULL;
  *at = e->next;
  e->next = m->encoded;
  return m->encoded = e;
}

// Frees unused media beyond `most` bytes, least recently used first.
static void drop_encoded(served *m, size_t most) {
  size_t kept = 0;
  for (struct encoded **at = &m->encoded, *e; (e = *at);) {
    if (!e->users) kept += e->bytes;
    if (e->users || kept <= most) { at = &e->next; continue; }
    *at = e->next;
    weft_medium_free(e->x);
    free(e);
  }
}

static struct encoded *find_encoded(served *m, const char digest[65]) {
  pthread_mutex_lock(&m->media_lock);
  struct encoded *e = bring_forward(m, digest);
  if (e) e->users++;
  pthread_mutex_unlock(&m->media_lock);
  return e;
}

static struct encoded *keep_encoded(served *m, const char digest[65], weft_medium *x) {
  struct encoded *e = xcalloc(1, sizeof *e);
  *e = (struct encoded){.x = x, .users = 1};
  e->bytes = BESIDE_BYTES + weft_medium_n_rows(x) *
                              ((size_t)weft_model_row_width(m->model) * sizeof(float) + BESIDE_ROW_BYTES);
  memcpy(e->digest, digest, sizeof e->digest);
  pthread_mutex_lock(&m->media_lock);
  e->next = m->encoded;
  m->encoded = e;
  pthread_mutex_unlock(&m->media_lock);
  return e;
}

void call_drop_media(call *c) {
  if (!c->encoded.n) return;
  pthread_mutex_lock(&c->m->media_lock);
  for (size_t i = 0; i < c->encoded.n; i++) c->encoded.at[i]->users--;
  drop_encoded(c->m, KEPT_BYTES);
  pthread_mutex_unlock(&c->m->media_lock);
  vec_free(&c->encoded);
  vec_free(&c->media);
}

// ---- encoding -------------------------------------------------------------------------------------------------------

// The error may be the request's or the server's.
static int http_status_of(const account *a, int failed) {
  if (a->full) return 413;
  return failed == WEFT_MEDIUM_UNABLE ? 500 : failed == WEFT_MEDIUM_LATER ? 503 : 400;
}

static int encode_medium(call *c, const char *field, const uint8_t *bytes, size_t n, str *out) {
  weft_error err;
  weft_medium *x;
  sha256 s;
  char digest[65];
  sha256_begin(&s);
  sha256_add(&s, bytes, n);
  sha256_end(&s, digest);
  struct encoded *e = find_encoded(c->m, digest);
  if (!e) {
    c->x->account.full = false;
    int failed = weft_medium_new(c->m->media, bytes, n, "a picture or a sound", &x, &err);
    if (failed) {
      c->fault.retry_s = failed == WEFT_MEDIUM_LATER ? RETRY_S : 0;
      return fault_set(&c->fault, http_status_of(&c->x->account, failed), field, "'%s': %s", field, err.text);
    }
    e = keep_encoded(c->m, digest, x);
  }
  str_addf(out, "%s%zu>", c->media_mark, c->media.n);
  vec_push(&c->media, e->x);
  vec_push(&c->encoded, e);
  return call_take(c, field, "the rows of its pictures and sounds", e->bytes);
}

int call_add_data(call *c, const char *field, const json_t *data, str *out) {
  file f = {.c = c, .field = field};
  if (!c->m->media)
    return call_bad(c, field, "has a picture or a sound, and the model understands only text: it has no encoder "
                              "beside it, and none is named with --mmproj FILE");
  if (exchange_gone(c->x)) return call_bad(c, field, "is not read on: the client has left");
  if (c->media.n == MOST_MEDIA) return call_bad(c, field, "has too many pictures and sounds: 64 are the most");
  if (!c->media_mark[0] && !weft_media_mark(c->media_mark))
    return fault_set(&c->fault, 500, NULL, "the system gives no random numbers");
  if (read_medium_bytes(c, field, data, &f)) return -1;
  int status = encode_medium(c, field, f.at, f.n, out);
  drop_file(&f);
  return status;
}

// ---- the model's encoder --------------------------------------------------------------------------------------------

static void on_turn(void *ctx, bool begins) { (begins ? turn_take : turn_give)(ctx); }

// A fraction of the memory left after the model is loaded, unless a number is given.
static uint64_t encoder_room(const serve_options *o) {
  uint64_t quarter = weft_memory_available() / 4;
  return o->max_encoder_bytes ? (uint64_t)o->max_encoder_bytes : quarter;
}

int served_open_media(const serve_options *o, served *m, weft_error *err) {
  weft_media_options how = {.min_tokens = o->image_min_tokens,
                            .max_tokens = o->image_max_tokens,
                            .max_pixels = o->max_request_bytes / BYTES_PER_PIXEL,
                            .max_sound_s = MOST_SOUND_S,
                            .max_decoding_s = MOST_DECODING_S,
                            .turn = on_turn,
                            .ctx = m->turn,
                            .keep_bytes = encoder_room(o)};
  m->media_kinds = 0;
  if (!m->mmproj) return 0;
  if (weft_media_open(m->model, m->mmproj, &how, &m->media, err)) { m->media = NULL; return -1; }
  m->media_kinds = weft_media_kinds(m->media);
  pthread_mutex_init(&m->media_lock, NULL);
  return 0;
}

void served_close_media(served *m) {
  if (!m->media) return;
  drop_encoded(m, 0);
  pthread_mutex_destroy(&m->media_lock);
  weft_media_close(m->media);
  m->media = NULL;
}
