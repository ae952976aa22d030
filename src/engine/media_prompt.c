// Pictures and sounds in prompts: converts the bytes of a file to ids of rows, and adds the text that models need
// around them. See weft.h. The steps for a picture: decode (media.h), preprocess (preprocess.h), encode
// (media_encoder.h), make rows (weft_rows_new).
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/account.h"
#include "base/siphash.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "engine/media_encoder.h"
#include "engine/media_prompt.h"
#include "engine/profile.h"
#include "engine/sized.h"
#include "media/mel.h"
#include "media/preprocess.h"
#include "weft.h"

_Static_assert((int)WEFT_MEDIUM_BAD == MEDIA_BAD && (int)WEFT_MEDIUM_UNABLE == MEDIA_UNABLE &&
                 (int)WEFT_MEDIUM_LATER == MEDIA_LATER,
               "weft.h numbers failures as media.h does");

struct weft_media {
  weft_model *m;
  media_encoder *e;
  preprocess_rule rule;                // for pictures
  mel_plan *mel;                       // for sounds; NULL: not used yet
  weft_media_options o;
  struct measuring *measuring;         // measures the first of them; NULL: off
  int64_t part, parts;                 // of the input being encoded: index and number of its tiles or windows
};

// A piece of a prompt: a text with control tokens, or rows.
typedef struct piece { char *text; weft_rows *rows; } piece;
// part, parts: progress while it is encoded room: bytes charged for its rows while it is made; passing: bytes of a plan
// that is freed with it
struct weft_medium {
  const projector_kind *kind;
  VEC(piece) pieces;
  int64_t part, parts;
  size_t room;
  bool passing;
};

// --- opening ---------------------------------------------------------------------------------------------------------

// Selects the preprocessing rule that the projector names, with the file's values.
static int set_rule(weft_media *a, const weft_media_options *o, error *err) {
  const projector_kind *k = media_encoder_kind(a->e, MEDIUM_PICTURE);
  if (!k) return 0;
  const projector_facts *f = media_encoder_facts(a->e, MEDIUM_PICTURE);
  const char *name = f->n_canvases ? "llava_next" : f->padded ? "llava_pad" : k->preprocess;
  const preprocess_rule *named = preprocess_rule_by_name(name);
  die_if(!named, "no rule '%s' for pictures of %s", name, k->name);
  preprocess_rule *r = &a->rule;
  *r = *named;
  r->patch = f->patch;
  r->merge = f->merge;
  r->tile_tokens = f->queries;
  if (f->fixed || !r->side || r->size == SIZE_LONGEST || r->size == SIZE_SLICES) r->side = f->size;
  if (f->preprocess_size) r->longest = f->preprocess_size;
  if (f->min_pixels) r->min_pixels = f->min_pixels;
  if (f->max_pixels) r->max_pixels = f->max_pixels;
  if (f->min_tiles) r->min_tiles = f->min_tiles;
  if (f->max_tiles) r->max_tiles = f->max_tiles;
  if (f->n_canvases) {
    r->canvases = f->canvases;
    r->n_canvases = f->n_canvases;
  }
  for (int i = 0; i < 3; i++) { r->mean[i] = (float)f->mean[i]; r->std[i] = (float)f->std[i]; }
  return preprocess_limit_tokens(r, o->min_tokens, o->max_tokens, err);
}

static void on_progress(void *ctx, const char *what, double fraction) {
  const weft_media *a = ctx;
  bool encoding = !strcmp(what, "encoding") && a->parts;
  a->o.progress(a->o.ctx, what, encoding ? ((double)a->part + fraction) / (double)a->parts : fraction);
}

// Checks that this model can read such rows.
static int check_rows_can_be_read(const weft_media *a, error *err) {
  const projector_kind *k = media_encoder_kind(a->e, MEDIUM_PICTURE);
  int block = engine_block(weft_model_peek(a->m));
  fail_if(k && k->span == SPAN_BOTH_WAYS && block, err,
          "rows that see each other both ways are evaluated together, and this model's runs end at multiples of %d "
          "positions", block);
  return 0;
}

int weft_media_open(weft_model *m, const char *mmproj, const weft_media_options *options, weft_media **out,
                    weft_error *err) {
  error why = {0};
  engine *e = weft_model_engine(m);
  if (engine_is_encoder(e))
    FAIL(err, "%s: this model sees texts as a whole: it reads no pictures and sounds",
         gguf_path(engine_gguf(e)));
  weft_media_options o = {0};
  if (TAKE_OPTIONS(&o, weft_media_options, keep_bytes, options, err)) return -1;
  weft_media *a = xcalloc(1, sizeof *a);
  a->m = m;
  a->o = o;
  if (media_encoder_open(mmproj, engine_device(e), engine_is_exact(e), weft_model_row_width(m), &a->e, &why) ||
      check_rows_can_be_read(a, &why) || set_rule(a, &a->o, &why)) {
    weft_media_close(a);
    return fail(err, &why);
  }
  if (a->o.progress) media_encoder_watch(a->e, on_progress, a);
  media_encoder_keep(a->e, a->o.keep_bytes);
  *out = a;
  return 0;
}

void weft_media_close(weft_media *a) {
  if (!a) return;
  mel_close(a->mel);
  media_encoder_close(a->e);
  free(a);
}

int weft_media_check(const weft_media *a, weft_error *err) {
  error e = {0};
  return media_encoder_check(a->e, &e) ? fail(err, &e) : 0;
}

unsigned weft_media_kinds(const weft_media *a) {
  return (media_encoder_kind(a->e, MEDIUM_PICTURE) ? WEFT_PICTURE : 0u) |
         (media_encoder_kind(a->e, MEDIUM_SOUND) ? WEFT_SOUND : 0u);
}

// Plans made meanwhile are kept and charged to no request. Encoder plans that are too large to be kept
// (media_encoder_keep) are charged to the previous account.
typedef struct computing { const weft_media *a; account_scope before; } computing;

static computing begin_computing(const weft_media *a) {
  if (a->o.turn) a->o.turn(a->o.ctx, true);
  return (computing){a, account_enter(NULL)};
}

static void end_computing(computing c) {
  account_leave(c.before);
  if (c.a->o.turn) c.a->o.turn(c.a->o.ctx, false);
}

// --- encoding --------------------------------------------------------------------------------------------------------

static void add_around(weft_medium *x, const char *text) {
  if (text) vec_push(&x->pieces, ((piece){.text = xstrdup(text)}));
}

// Positions for M-RoPE: all rows of a picture have one time.
static int32_t *grid_positions(const media_rows *rows) {
  int32_t *at = xcalloc(3 * (size_t)rows->n, sizeof *at);
  for (int64_t i = 0; i < rows->n; i++) {
    at[3 * i + 1] = (int32_t)(i / rows->columns);
    at[3 * i + 2] = (int32_t)(i % rows->columns);
  }
  return at;
}

// A request of weft_profile_medium, and its result.
typedef struct measuring { int steps; double began; struct profile p; } measuring;

static int measure_encoding(weft_media *a, int64_t parts, enum medium k, const float *in, int64_t width, int64_t height,
                            weft_error *err) {
  measuring *m = a->measuring;
  double before_us = (now_s() - m->began) * 1e6;
  error why = {0};
  if (media_encoder_profile(a->e, k, in, (int)width, (int)height, m->steps, &m->p, &why)) return fail(err, &why);
  m->p.parts = (int)parts;
  m->p.before_us = before_us;
  return 0;
}

static int add_span(weft_media *a, weft_medium *x, const weft_rows_spec *spec, weft_error *err) {
  weft_rows *made;
  if (weft_rows_new(a->m, spec, &made, err)) return -1;
  vec_push(&x->pieces, ((piece){.rows = made}));
  return 0;
}

// Passes on the error of a step.
static int fail_as(int status, weft_error *err, const error *why) {
  fail(err, why);
  return status;
}

// Encodes one picture or spectrogram; rows->at belongs to the caller.
static int encode_one(weft_media *a, weft_medium *x, enum medium k, const pixel_planes *in, media_rows *rows,
                       weft_error *err) {
  error why = {0};
  if (a->measuring && !x->part && measure_encoding(a, x->parts, k, in->at, in->width, in->height, err)) return -1;
  computing now = begin_computing(a);
  a->part = x->part;
  a->parts = x->parts;
  media_encoder_pays(a->e, now.before.before);
  int failed = media_encoder_run(a->e, k, in->at, (int)in->width, (int)in->height, rows, &why);
  media_encoder_pays(a->e, NULL);
  x->passing |= !media_encoder_lasts(a->e, k);
  end_computing(now);
  return failed ? fail_as(failed, err, &why) : 0;
}

// Charges memory before rows are made: for the encoder's output and the stored rows, positions and ids.
static int take_rows_room(const weft_media *a, weft_medium *x, int64_t n, enum medium k, weft_error *err) {
  error why = {0};
  size_t row = 2 * ((size_t)media_encoder_n_embd(a->e, k) * sizeof(float) + 3 * sizeof(int32_t)) + sizeof(int32_t);
  if (account_take_here((size_t)n * row, &why)) return fail(err, &why);
  x->room += (size_t)n * row;
  return 0;
}

// Encodes one picture or spectrogram and adds its rows: one span, or one per line with a text between them.
static int add_encoded(weft_media *a, weft_medium *x, enum medium k, const pixel_planes *in, weft_error *err) {
  media_rows rows = {0};
  enum span span = media_encoder_kind(a->e, k)->span;
  int status = take_rows_room(a, x, media_encoder_rows(a->e, k, in->width, in->height), k, err);
  if (!status) status = encode_one(a, x, k, in, &rows, err);
  if (status) return status;
  int32_t *positions = span == SPAN_GRID ? grid_positions(&rows) : NULL;
  weft_rows_spec spec = {.floats = rows.at,
                         .n = (size_t)rows.n,
                         .positions = positions,
                         .n_positions = positions ? (int)max_i64(rows.columns, rows.lines) : 0,
                         .both_ways = span == SPAN_BOTH_WAYS};
  const char *between = media_encoder_kind(a->e, k)->between;
  status = between ? 0 : add_span(a, x, &spec, err);
  spec.n = (size_t)rows.columns;
  for (int64_t i = 0; between && !status && i < rows.lines; i++) {
    if (i) add_around(x, between);
    spec.floats = rows.at + (size_t)(i * rows.columns) * (size_t)media_encoder_n_embd(a->e, k);
    status = add_span(a, x, &spec, err);
  }
  free(positions);
  free(rows.at);
  return status;
}

// Encodes a picture's tiles as the rows of one picture, of `columns` and `lines`.
static int encode_tiles(weft_media *a, weft_medium *x, const prepared_image *p, media_rows *all, weft_error *err) {
  size_t n = (size_t)media_encoder_n_embd(a->e, MEDIUM_PICTURE);
  int status = 0;
  for (int64_t i = 0; !status && i < p->columns * p->rows; i++) {
    media_rows tile = {0};
    x->part++;
    status = encode_one(a, x, MEDIUM_PICTURE, &p->at[p->whole ? i : i + 1], &tile, err);
    if (status) break;
    if (!all->at) {
      *all = (media_rows){.columns = p->columns * tile.columns, .lines = p->rows * tile.lines};
      all->at = xcalloc((size_t)(all->columns * all->lines) * n, sizeof *all->at);
    }
    for (int64_t y = 0; y < tile.lines; y++) {
      int64_t line = i / p->columns * tile.lines + y, column = i % p->columns * tile.columns;
      memcpy(all->at + (size_t)(line * all->columns + column) * n, tile.at + (size_t)(y * tile.columns) * n,
             (size_t)tile.columns * n * sizeof *all->at);
    }
    free(tile.at);
  }
  return status;
}

// The number of `has` rows on each side of a picture that fills the other direction, rounded like the model's own code:
// to seven digits, then down.
static int64_t rows_beside(int64_t has, int64_t other, int64_t edge, int64_t other_edge) {
  double fills = (double)edge * ((double)other / (double)other_edge);
  return (has - (int64_t)(rint(fills * 1e7) / 1e7)) / 2;
}

// The rows of a picture's tiles that show a part of it, out of `all_columns` in each of `all_lines`.
typedef struct shown_rows { int64_t all_columns, all_lines, left, top, columns, lines; } shown_rows;

// size: the picture's; columns, lines: of all rows.
static shown_rows rows_shown(const media_image *size, int64_t columns, int64_t lines) {
  bool wide = (double)size->width / (double)size->height > (double)columns / (double)lines;
  int64_t top = wide ? rows_beside(lines, columns, size->height, size->width) : 0,
          left = wide ? 0 : rows_beside(columns, lines, size->width, size->height);
  return (shown_rows){columns, lines, left, top, columns - 2 * left, lines - 2 * top};
}

// Adds the rows of a picture's tiles, line by line, each line followed by the row that ends it. A very wide picture may
// have no line.
static int add_joined(weft_media *a, weft_medium *x, const prepared_image *p, const media_image *size,
                      weft_error *err) {
  media_rows all = {0};
  float *newline = NULL, *out = NULL;
  error why = {0};
  size_t n = (size_t)media_encoder_n_embd(a->e, MEDIUM_PICTURE);
  int status = media_encoder_newline(a->e, &newline, &why) ? fail_as(MEDIA_UNABLE, err, &why) : 0;
  if (!status) status = encode_tiles(a, x, p, &all, err);
  if (!status) {
    shown_rows s = rows_shown(size, all.columns, all.lines);
    out = xcalloc((size_t)(s.lines * (s.columns + 1)) * n + 1, sizeof *out);
    for (int64_t y = 0; y < s.lines; y++) {
      float *to = out + (size_t)(y * (s.columns + 1)) * n;
      memcpy(to, all.at + (size_t)((s.top + y) * all.columns + s.left) * n, (size_t)s.columns * n * sizeof *to);
      memcpy(to + (size_t)s.columns * n, newline, n * sizeof *to);
    }
    status = take_rows_room(a, x, s.lines * (s.columns + 1), MEDIUM_PICTURE, err);
    const weft_rows_spec spec = {.floats = out, .n = (size_t)(s.lines * (s.columns + 1))};
    if (!status && spec.n) status = add_span(a, x, &spec, err);
  }
  free(all.at);
  free(newline);
  free(out);
  return status;
}

// Adds the text before and after image i of a picture, which is the whole picture or a tile.
static void add_before_image(weft_medium *x, const projector_tiling *t, const prepared_image *p, int64_t i) {
  char text[96] = "";
  int64_t tile = i - (p->whole < i);
  if (i != p->whole && !tile) add_around(x, t->first_tile);
  if (i == p->whole) add_around(x, p->columns || !t->whole_of_tiles ? t->whole : NULL);
  else if (t->tile) {
    snprintf(text, sizeof text, t->tile, (int)(tile / p->columns + 1), (int)(tile % p->columns + 1));
    add_around(x, text);
  }
}

static void add_after_image(weft_medium *x, const projector_tiling *t, const prepared_image *p, int64_t i) {
  int64_t tile = i - (p->whole < i) + 1;
  add_around(x, i == p->whole ? t->after_whole : t->after_tile);
  if (i == p->whole) return;
  add_around(x, tile % p->columns ? t->next_column : tile < p->columns * p->rows ? t->next_row : t->last_row);
}

static media_limits limits_of(const weft_media *a) {
  media_limits l = media_default_limits;
  if (a->o.max_pixels) l.pixels = a->o.max_pixels;
  if (a->o.max_sound_s) l.sound_s = a->o.max_sound_s;
  if (a->o.max_decoding_s) l.cpu_s = a->o.max_decoding_s;
  return l;
}

// Before a decoded picture is processed: checks that its rows fit into the context, and charges *room bytes for the
// processing.
static int begin_picture(const weft_media *a, const media_image *image, const char *name, size_t *room, error *err) {
  const projector_facts *f = media_encoder_facts(a->e, MEDIUM_PICTURE);
  int64_t cell = f->patch * f->merge, rows = 0, joined = 0, n_ctx = weft_model_context(a->m);
  prepared_image p;
  if (preprocess_sizes(image->width, image->height, &a->rule, &p, err)) return -1;
  for (int64_t i = 0; i < (f->n_canvases ? 1 : p.n); i++)
    rows += f->queries ? f->queries : p.at[i].width / cell * (p.at[i].height / cell);
  if (f->n_canvases) {
    shown_rows s = rows_shown(image, p.columns * (p.at[1].width / cell), p.rows * (p.at[1].height / cell));
    rows += s.lines * (s.columns + 1);
    joined = s.all_lines * s.all_columns + s.lines * (s.columns + 1);
  }
  size_t need = (size_t)(image->width * image->height * 3 + p.bytes) +
                (size_t)joined * (size_t)media_encoder_n_embd(a->e, MEDIUM_PICTURE) * sizeof(float);
  prepared_image_free(&p);
  if (rows > n_ctx)
    return error_set(err, "%s: a picture of %lld x %lld pixels is %lld rows; the context has %lld positions", name,
                     (long long)image->width, (long long)image->height, (long long)rows, (long long)n_ctx);
  if (account_take_here(need, err)) return -1;
  *room = need;
  return 0;
}

static int add_picture(weft_media *a, weft_medium *x, const void *data, size_t n, const char *name, weft_error *err) {
  const projector_kind *k = media_encoder_kind(a->e, MEDIUM_PICTURE);
  const media_limits limits = limits_of(a);
  media_image image = {0};
  prepared_image p = {0};
  error why = {0};
  size_t room = 0;
  int status = media_decode_image(data, n, name, &limits, &image, &why);
  if (!status) status = begin_picture(a, &image, name, &room, &why);
  if (!status) status = preprocess_image(&image, &a->rule, &p, &why);
  if (status) fail(err, &why);
  const media_image size = {image.width, image.height, NULL};
  media_image_free(&image);
  add_around(x, k->before);
  x->parts = p.n;
  bool joined = media_encoder_facts(a->e, MEDIUM_PICTURE)->n_canvases;
  for (int64_t i = 0; !status && i < (joined ? 1 : p.n); i++) {
    x->part = i;
    if (k->tiling) add_before_image(x, k->tiling, &p, i);
    status = add_encoded(a, x, MEDIUM_PICTURE, &p.at[i], err);
    if (k->tiling) add_after_image(x, k->tiling, &p, i);
  }
  if (joined && !status) status = add_joined(a, x, &p, &size, err);
  add_around(x, k->after);
  prepared_image_free(&p);
  account_give_here(room);
  return status;
}

static void drop_spectrograms(weft_media *a) {
  mel_close(a->mel);
  a->mel = NULL;
}

enum { MOST_KEPT_FRAMES = 4096 };      // a plan for more is freed with its sound

// Bytes charged for a spectrogram, and for a plan that is freed with it.
static size_t spectrogram_room(const projector_facts *f, int64_t frames) {
  return (size_t)frames * (frames > MOST_KEPT_FRAMES ? mel_frame_bytes(f->mel) : (size_t)f->mel * sizeof(float));
}

// A spectrogram of n samples, with a plan for `frames` frames. mirrored: see projector.h.
static int make_spectrogram(weft_media *a, const float *samples, int64_t n, int64_t frames, bool mirrored, float **out,
                            weft_error *err) {
  error why = {0};
  computing now = begin_computing(a);
  if (a->mel && mel_frames(a->mel) != frames) drop_spectrograms(a);
  int n_mels = media_encoder_facts(a->e, MEDIUM_SOUND)->mel;
  enum mel_kind kind = media_encoder_kind(a->e, MEDIUM_SOUND)->gemma_mel ? MEL_GEMMA : MEL_WHISPER;
  int failed = (!a->mel && mel_open(engine_device(weft_model_engine(a->m)), kind, n_mels, frames, &a->mel, &why)) ||
               mel_run(a->mel, samples, n, mirrored ? n : frames * MEL_HOP, out, &why);
  if (frames > MOST_KEPT_FRAMES) drop_spectrograms(a);
  end_computing(now);
  return failed ? fail_as(MEDIA_UNABLE, err, &why) : 0;
}

static int add_window(weft_media *a, weft_medium *x, const float *samples, int64_t n, weft_error *err) {
  const projector_facts *f = media_encoder_facts(a->e, MEDIUM_SOUND);
  float *mel = NULL;
  size_t room = spectrogram_room(f, f->frames);
  error why = {0};
  if (account_take_here(room, &why)) return fail(err, &why);
  int status = make_spectrogram(a, samples, n, f->frames, false, &mel, err);
  const pixel_planes in = {f->frames, f->mel, mel};
  if (!status) status = add_encoded(a, x, MEDIUM_SOUND, &in, err);
  free(mel);
  account_give_here(room);
  return status;
}

// Gemma counts only frames whose window ends before the sound does.
static int64_t frames_in_chunks(const weft_media *a, int64_t n) {
  const projector_kind *k = media_encoder_kind(a->e, MEDIUM_SOUND);
  return k->mirrored ? n / MEL_HOP : k->gemma_mel ? (n - 1) / MEL_HOP : (n + MEL_HOP - 1) / MEL_HOP;
}

// One spectrogram for the whole sound, of which the encoder takes as many chunks at once as it can. If a sound is not
// mirrored, two frames of silence follow: longer than the window of its last frame.
static int add_chunks(weft_media *a, weft_medium *x, const float *samples, int64_t n, weft_error *err) {
  const projector_facts *f = media_encoder_facts(a->e, MEDIUM_SOUND);
  bool mirrored = media_encoder_kind(a->e, MEDIUM_SOUND)->mirrored;
  int beyond = media_encoder_kind(a->e, MEDIUM_SOUND)->beyond;
  int64_t frames = max_i64(frames_in_chunks(a, n), 1), planned = 1024;
  while (planned < frames + 2) planned *= 2;
  size_t room = spectrogram_room(f, planned);
  error why = {0};
  if (account_take_here(room, &why)) return fail(err, &why);
  float *mel = NULL, *part = xcalloc((size_t)(f->frames + beyond) * (size_t)f->mel, sizeof *part);
  int status = make_spectrogram(a, samples, n, planned, mirrored, &mel, err);
  for (int64_t at = 0; !status && at < frames; at += f->frames, x->part++) {
    const pixel_planes in = {min_i64(f->frames, frames - at) + beyond, f->mel, part};
    for (int64_t k = 0; k < f->mel; k++)
      memcpy(part + k * in.width, mel + k * planned + at, (size_t)in.width * sizeof *part);
    // one or two frames at the end of a longer sound may give no row
    if (!at || media_encoder_sound_rows(a->e, in.width - beyond)) status = add_encoded(a, x, MEDIUM_SOUND, &in, err);
  }
  free(mel);
  free(part);
  account_give_here(room);
  return status;
}

// Windows of as many frames as the encoder has positions; the last one is padded with silence. Sounds in chunks are
// split into pieces of five minutes, the maximum of Qwen2.5-Omni's processor. Qwen3-Omni's takes any length at once, so
// its windows of 8 s differ from these for longer sounds. Gemma 4's and Qwen2-Audio's cut a sound after 30 s.
static int add_windows(weft_media *a, weft_medium *x, const media_sound *as_is, weft_error *err) {
  enum { PIECE_S = 300 };
  const projector_facts *f = media_encoder_facts(a->e, MEDIUM_SOUND);
  int64_t step = (int64_t)f->frames * MEL_HOP, most = f->chunk ? (int64_t)PIECE_S * MEL_RATE : step;
  const projector_kind *kind = media_encoder_kind(a->e, MEDIUM_SOUND);
  if (kind->gemma_mel || kind->beyond) most = step;
  media_sound sound = {0};
  error why = {0};
  int status = sound_at_mel_rate(as_is, &sound, &why) ? fail(err, &why) : 0;
  x->parts = (sound.n + step - 1) / step;
  for (int64_t at = 0; !status && at < sound.n; at += most) {
    x->part = at / step;
    bool any = !f->chunk || media_encoder_sound_rows(a->e, min_i64(f->frames, frames_in_chunks(a, sound.n - at)));
    if (at && !any) break;                       // the rest gives no row
    status = (f->chunk ? add_chunks : add_window)(a, x, sound.samples + at, min_i64(most, sound.n - at), err);
  }
  media_sound_free(&sound);
  return status;
}

static int add_sound(weft_media *a, weft_medium *x, const void *data, size_t n, const char *name, weft_error *err) {
  const projector_kind *k = media_encoder_kind(a->e, MEDIUM_SOUND);
  const media_limits limits = limits_of(a);
  media_sound sound = {0};
  error why = {0};
  int status = media_decode_sound(data, n, name, &limits, &sound, &why);
  // the samples as decoded, and resampled to the rate of spectrograms
  size_t room = status ? 0 : (size_t)(sound.n + (sound.n / sound.rate + 1) * MEL_RATE) * sizeof *sound.samples;
  if (!status && account_take_here(room, &why)) { status = -1; room = 0; }
  add_around(x, k->before);
  status = status ? fail_as(status, err, &why) : add_windows(a, x, &sound, err);
  add_around(x, k->after);
  media_sound_free(&sound);
  account_give_here(room);
  return status;
}

static void drop_passing_plans(weft_media *a) {
  computing now = begin_computing(a);
  media_encoder_rest(a->e);
  end_computing(now);
}

unsigned weft_medium_kind_of(const void *data, size_t n) {
  enum media_kind kind = media_kind_of(data, n, NULL);
  return kind == MEDIA_IMAGE ? WEFT_PICTURE : kind == MEDIA_SOUND ? WEFT_SOUND : 0;
}

int weft_medium_new(weft_media *a, const void *data, size_t n, const char *name, weft_medium **out, weft_error *err) {
  const char *format = NULL;
  enum media_kind kind = media_kind_of(data, n, &format);
  bool sound = kind == MEDIA_SOUND;
  if (kind == MEDIA_UNKNOWN)
    FAIL(err, "%s: %s%sno picture (PNG, JPEG, WebP) and no sound (WAV, FLAC, MP3, OGG)", name, format ? format : "",
         format ? " is " : "");
  if (!media_encoder_kind(a->e, sound ? MEDIUM_SOUND : MEDIUM_PICTURE))
    FAIL(err, "%s: this model takes no %s", name, sound ? "sound" : "pictures");
  weft_medium *x = xcalloc(1, sizeof *x);
  x->kind = media_encoder_kind(a->e, sound ? MEDIUM_SOUND : MEDIUM_PICTURE);
  int status = (sound ? add_sound : add_picture)(a, x, data, n, name, err);
  account_give_here(x->room);
  if (x->passing) drop_passing_plans(a);
  if (status) weft_medium_free(x);
  else *out = x;
  return status;
}

int weft_medium_open(weft_media *a, const char *path, weft_medium **out, weft_error *err) {
  uint8_t *data = NULL;
  size_t n = 0;
  error why = {0};
  if (media_read_file(path, NULL, &data, &n, &why)) return fail(err, &why);
  int status = weft_medium_new(a, data, n, path, out, err);
  free(data);
  return status;
}

int weft_profile_medium(weft_media *a, const char *path, int steps, weft_profile **out, weft_error *err) {
  enum { MOST = 10000 };
  measuring m = {.steps = steps, .began = now_s()};
  weft_medium *x = NULL;
  if (steps < 1 || steps > MOST) FAIL(err, "%d steps were asked for; it must be 1 to %d", steps, MOST);
  a->measuring = &m;
  int status = weft_medium_open(a, path, &x, err);
  a->measuring = NULL;
  weft_medium_free(x);
  if (status) profile_free(&m.p);
  else *out = profile_shown(&m.p);
  return status;
}

void weft_medium_free(weft_medium *x) {
  if (!x) return;
  for (size_t i = 0; i < x->pieces.n; i++) {
    free(x->pieces.at[i].text);
    weft_rows_free(x->pieces.at[i].rows);
  }
  vec_free(&x->pieces);
  free(x);
}

size_t weft_medium_n_rows(const weft_medium *x) {
  size_t all = 0, n = 0;
  for (size_t i = 0; i < x->pieces.n; i++) {
    if (!x->pieces.at[i].rows) continue;
    weft_rows_ids(x->pieces.at[i].rows, &n);
    all += n;
  }
  return all;
}

// --- prompts ---------------------------------------------------------------------------------------------------------

static void add_prompt_ids(id_list *all, const int32_t *ids, size_t n) {
  for (size_t i = 0; i < n; i++) vec_push(all, ids[i]);
}

static int add_prompt_tokens(const weft_vocab *v, id_list *all, const char *text, size_t n, unsigned flags,
                             weft_error *err) {
  int32_t *ids;
  size_t n_ids;
  if (!n) return 0;
  if (weft_tokenize(v, text, n, flags, &ids, &n_ids, err)) return -1;
  add_prompt_ids(all, ids, n_ids);
  weft_free(ids);
  return 0;
}

// Adds the number of a picture within a prompt, if the model's own processor writes it.
static int add_picture_number(const weft_medium *x, size_t number, const weft_vocab *v, id_list *to, weft_error *err) {
  char text[96];
  if (!x->kind->numbered[0]) return 0;
  int n = snprintf(text, sizeof text, "%s%zu%s", x->kind->numbered[0], number, x->kind->numbered[1]);
  return add_prompt_tokens(v, to, text, (size_t)n, WEFT_PARSE_SPECIAL, err);
}

int medium_add_ids(const weft_medium *x, size_t *pictures, const weft_vocab *v, id_list *to, weft_error *err) {
  if (add_picture_number(x, *pictures, v, to, err)) return -1;
  *pictures += x->kind->medium == MEDIUM_PICTURE;
  for (size_t i = 0; i < x->pieces.n; i++) {
    const piece *p = &x->pieces.at[i];
    size_t n = 0;
    const int32_t *ids = p->rows ? weft_rows_ids(p->rows, &n) : NULL;
    if (ids) add_prompt_ids(to, ids, n);
    else if (add_prompt_tokens(v, to, p->text, strlen(p->text), WEFT_PARSE_SPECIAL, err)) return -1;
  }
  return 0;
}

bool weft_media_mark(char out[WEFT_MEDIA_MARK_SIZE]) {
  char random[33];
  bool drawn = random_hex(random, 32);
  snprintf(out, WEFT_MEDIA_MARK_SIZE, "<__media_%s_", random);
  return drawn;
}

// The special tokens around a whole prompt: `before` ids in front, the others at the end.
static int special_ids(const weft_vocab *v, id_list *all, size_t *before, weft_error *err) {
  int32_t *ids;
  size_t n;
  if (weft_tokenize(v, "", 0, WEFT_ADD_SPECIAL, &ids, &n, err)) return -1;
  add_prompt_ids(all, ids, n);
  weft_free(ids);
  *before = tokenizer_adds_bos(weft_vocab_tokenizer(v)) ? 1 : 0;
  return 0;
}

static const char *find_marker(const char *text, size_t n) {
  return n ? memmem(text, n, WEFT_MEDIA_MARKER, sizeof WEFT_MEDIA_MARKER - 1) : NULL;
}

static size_t count_markers(const char *text, size_t n) {
  size_t found = 0;
  for (const char *at = text, *end = text + n, *m; (m = find_marker(at, (size_t)(end - at))); found++)
    at = m + sizeof WEFT_MEDIA_MARKER - 1;
  return found;
}

int weft_media_tokenize(const weft_media *a, const char *text, size_t n, unsigned flags, weft_medium *const *media,
                        size_t n_media, int32_t **ids, size_t *n_ids, weft_error *err) {
  id_list all = {0}, special = {0};
  size_t markers = count_markers(text, n), before = 0, pictures = 0;
  *ids = NULL;
  *n_ids = 0;
  if (markers && markers != n_media)
    FAIL(err, "the prompt has %zu markers (%s) for %zu pictures and sounds", markers, WEFT_MEDIA_MARKER, n_media);
  const char *end = text + n;
  const weft_vocab *v = weft_model_vocab(a->m);
  int status = flags & WEFT_ADD_SPECIAL ? special_ids(v, &special, &before, err) : 0;
  flags &= ~(unsigned)WEFT_ADD_SPECIAL;
  add_prompt_ids(&all, special.at, before);
  for (size_t i = 0; !status && i <= n_media; i++) {
    const char *next = markers && i < n_media ? find_marker(text, (size_t)(end - text)) : i < n_media ? text : end;
    status = add_prompt_tokens(v, &all, text, (size_t)(next - text), flags, err);
    if (!status && i < n_media) status = medium_add_ids(media[i], &pictures, v, &all, err);
    text = next + (markers && i < n_media ? sizeof WEFT_MEDIA_MARKER - 1 : 0);
  }
  if (special.n > before) add_prompt_ids(&all, special.at + before, special.n - before);
  vec_free(&special);
  if (status) vec_free(&all);
  *ids = all.at;
  *n_ids = all.n;
  return status;
}
