// Turns an mmproj file into a checked description, feeds images and sound, and builds the graph around a type's own
// part: see projector.h.
#include "model/projector.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model/projector_impl.h"
#include "model/stored.h"

enum { PAGE = 512 /* keys per attention pass; each pass leaves partial results for all rows */ };

const char *medium_name(enum medium k) { return k == MEDIUM_PICTURE ? "vision" : "audio"; }

int projector_media(const gguf *file, unsigned *media, error *err) {
  gguf_string a;
  char text[64];
  *media = 0;
  if (gguf_str(file, "general.architecture", &a, err)) return -1;
  if (!equals_text(a, "clip"))
    return gguf_fail(file, "general.architecture", err,
                     "'%s', but a file with an encoder of pictures or sound has 'clip'",
                     gguf_quote(text, sizeof text, a.at, a.n));
  for (int k = 0; k < MEDIUM_COUNT; k++) {
    bool has;
    char name[64];
    snprintf(name, sizeof name, "clip.has_%s_encoder", medium_name(k));
    if (gguf_bool_opt(file, name, false, &has, err)) return -1;
    *media |= (unsigned)has << k;
  }
  return *media ? 0 : gguf_fail(file, NULL, err, "neither clip.has_vision_encoder nor clip.has_audio_encoder is true");
}

bool projector_has_tensor(const projector_kind *k, const char *name) {
  bool sound = !strncmp(name, "a.", 2) || !strncmp(name, "mm.a.", 5);
  return sound == (k->medium == MEDIUM_SOUND);
}

// --- loading ---------------------------------------------------------------------------------------------------------

// Each encoder of a file may have a type of its own.
static const char *type_key(const gguf *f, enum medium k) {
  const char *own = k == MEDIUM_SOUND ? "clip.audio.projector_type" : "clip.vision.projector_type";
  return gguf_find(f, own) ? own : "clip.projector_type";
}

static const projector_kind *kind_called(const gguf *f, enum medium k, gguf_string name) {
  uint32_t version;
  if (gguf_u32_opt(f, "clip.minicpmv_version", 2, &version, NULL)) version = UINT32_MAX;
  for (size_t i = 0; projector_at(i); i++) {
    const projector_kind *p = projector_at(i);
    if (p->medium == k && equals_text(name, p->name) && (!p->newest || version <= (uint32_t)p->newest)) return p;
  }
  return NULL;
}

unsigned projector_known(const gguf *file) {
  unsigned known = 0;
  gguf_string name;
  for (int k = 0; k < MEDIUM_COUNT; k++)
    if (!gguf_str(file, type_key(file, (enum medium)k), &name, NULL) && kind_called(file, (enum medium)k, name))
      known |= 1u << k;
  return known;
}

static int find_kind(loader *l, enum medium k) {
  char text[64];
  gguf_string name;
  str known = {0};
  const char *said = type_key(l->f, k);
  if (gguf_str(l->f, file_key(l, said), &name, l->err)) return -1;
  const projector_kind *p = l->m->projector = kind_called(l->f, k, name);
  if (p) {
    bool bare = p->arch->bare && !gguf_tensor_find(l->f, "v.blk.0.ln1.bias");
    l->m->arch = bare ? p->arch->bare : &p->arch->layers;
    return 0;
  }
  for (size_t i = 0; projector_at(i); i++)
    if (projector_at(i)->medium == k && !projector_at(i)->newest)
      str_addf(&known, "%s%s", known.n ? ", " : "", projector_at(i)->name);
  gguf_fail(l->f, said, l->err, "'%s' is not supported (supported: %s)", gguf_quote(text, sizeof text, name.at, name.n),
            str_c(&known));
  str_free(&known);
  return -1;
}

static int three_numbers(loader *l, const char *rest, double lo, double out[3]) {
  const gguf_value *v = gguf_find(l->f, key(l, rest));
  if (!v) return gguf_fail(l->f, l->key, l->err, "is missing");
  bool whole = v->elem == GGUF_INT32 || v->elem == GGUF_INT64;         // [0, 0, 0], as some converter writes it
  if (v->type != GGUF_ARRAY || v->a.n != 3 || (!whole && v->elem != GGUF_FLOAT32 && v->elem != GGUF_FLOAT64))
    return gguf_fail(l->f, l->key, l->err, "expected an array of three floats");
  for (size_t i = 0; i < 3; i++) {
    out[i] = whole ? (double)gguf_elem(v, i).i : gguf_elem(v, i).f;
    if (!(out[i] >= lo && out[i] <= 1e3)) return gguf_fail(l->f, l->key, l->err, "%g is not in %g..1000", out[i], lo);
  }
  return 0;
}

static int load_picture_keys(loader *l) {
  projector_facts *f = &l->m->eye;
  if (key_count(l, "patch_size", 1, 1 << 10, &f->patch) || key_count(l, "image_size", 1, 1 << 14, &f->size) ||
      key_count_or(l, "image_min_pixels", 0, 0, 1u << 30, &f->min_pixels) ||
      key_count_or(l, "image_max_pixels", 0, 0, 1u << 30, &f->max_pixels) ||
      three_numbers(l, "image_mean", -1e3, f->mean) || three_numbers(l, "image_std", 1e-3, f->std))
    return -1;
  return f->patch <= f->size ? 0 : gguf_fail(l->f, key(l, "patch_size"), l->err, "%d is more than image_size = %d",
                                             f->patch, f->size);
}

// A table for columns and one for lines; its length is the most patches of an image in each direction.
static int load_axes(loader *l) {
  projector_facts *f = &l->m->eye;
  const gguf_tensor *t = gguf_tensor_find(l->f, "v.position_embd.weight");
  if (t && t->ne[1] > 1 << 20)
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has %lld rows", t->name, (long long)t->ne[1]);
  f->most_patches = t ? (int)t->ne[1] : 1;
  return want(l, NULL, W_POSITION_EMBD, l->m->n_embd, f->most_patches, 2, 0);
}

// The matrix for patches: files have it as the kernel of a convolution or as a matrix.
static int want_patches(loader *l) {
  int64_t p = l->m->eye.patch, n = l->m->n_embd;
  const gguf_tensor *t = gguf_tensor_find(l->f, "v.patch_embd.weight");
  bool flat = t && t->ne[2] == 1 && t->ne[3] == 1;
  return flat ? want(l, NULL, W_PATCH_EMBD, 3 * p * p, n, 1, WANT_BARE)
              : want(l, NULL, W_PATCH_EMBD, p, 3 * p, n, WANT_BARE | WANT_KERNEL);
}

enum { MOST_SMOOTH = 64 };     // side of a table that is resized by weights for each of its rows, for each patch

static bool is_stretched(enum positions kind) {
  return kind == POSITIONS_STRETCHED || kind == POSITIONS_LINEAR || kind == POSITIONS_SMOOTH ||
         kind == POSITIONS_CUBIC || kind == POSITIONS_NEAREST;
}

// The first product and the positions: for a table, one per patch of an image of the file's size.
static int load_picture_tensors(loader *l) {
  model *m = l->m;
  projector_facts *f = &m->eye;
  int cell = f->patch * f->merge;
  bool classed = m->projector->arch->class_row;
  enum positions kind = m->projector->arch->positions;
  unsigned perhaps = m->projector->arch->perhaps_placed ? WANT_OPTIONAL : 0;
  if (kind == POSITIONS_AXES && load_axes(l)) return -1;
  const gguf_tensor *table = gguf_tensor_find(l->f, "v.position_embd.weight");
  // Converters write another side as image_size if the table is stretched anyway; the table may have an axis for lines.
  bool stretched = table && is_stretched(kind), square = stretched && table->ne[2] > 1;
  f->table = f->size / f->patch;
  if (stretched)
    f->table = (int)(square ? min_i64(table->ne[1], 1 << 12) : (int64_t)sqrt((double)min_i64(table->ne[1], 1 << 24)));
  if (table && kind == POSITIONS_SMOOTH && f->table > MOST_SMOOTH)
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has %d x %d positions; %d x %d are the most of this type",
                     table->name, f->table, f->table, MOST_SMOOTH, MOST_SMOOTH);
  if (want_patches(l) ||
      want(l, NULL, W_PATCH_EMBD_1, f->patch, 3 * f->patch, m->n_embd, WANT_BARE | WANT_KERNEL | WANT_OPTIONAL) ||
      want(l, NULL, W_PATCH_BIAS, m->n_embd, 1, 1, WANT_BARE | WANT_VECTOR | WANT_OPTIONAL) ||
      (classed && want(l, NULL, W_CLASS_EMBD, m->n_embd, 1, 1, WANT_BARE | WANT_VECTOR)) ||
      ((kind == POSITIONS_SQUARE || is_stretched(kind)) &&
       want(l, NULL, W_POSITION_EMBD, m->n_embd, square ? f->table : (int64_t)f->table * f->table + classed,
            square ? f->table : 1, perhaps)))
    return -1;
  f->fixed = kind == POSITIONS_SQUARE;
  return f->fixed && f->size % cell ? gguf_fail(l->f, key(l, "image_size"), l->err,
                                                "%d is not a multiple of %d pixels, the side of a row", f->size, cell)
                                    : 0;
}

static int load_picture(loader *l) {
  l->prefix = "v.";
  if (find_kind(l, MEDIUM_PICTURE) || load_picture_keys(l)) return -1;
  if (l->m->projector->arch->whole) return l->m->projector->arch->load(l) || check_all(l) ? -1 : 0;
  if (vit_load(l) || l->m->projector->arch->load(l)) return -1;
  return load_picture_tensors(l) || check_all(l) ? -1 : 0;
}

// The rows before the encoder for this many frames of one chunk.
static int64_t chunk_rows(const projector_facts *f, int64_t frames) {
  for (int i = 0; i < f->halvings; i++) frames = (frames + 1) / 2;
  return frames;
}

static int load_sound(loader *l) {
  l->prefix = "a.";
  if (find_kind(l, MEDIUM_SOUND) || vit_load(l)) return -1;
  model *m = l->m;
  const gguf_tensor *at = gguf_tensor_find(l->f, "a.position_embd.weight");
  int64_t n = m->n_embd, positions = at ? at->ne[1] : 1;
  int pools = m->projector->arch->pools;
  bool placed = m->projector->arch->positions != POSITIONS_NONE;
  if (positions > 1 << 16)
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has %lld rows", at->name, (long long)positions);
  if (at && pools && positions % pools)
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has %lld rows, and each %d of them become one", at->name,
                     (long long)positions, pools);
  projector_facts *f = &m->eye;
  f->frames = 2 * (int)positions;
  f->stack = f->merge = 1;
  if (key_count(l, "num_mel_bins", 1, 1 << 10, &f->mel) || m->projector->arch->load(l) ||
      (placed && want_matrix(l, NULL, W_POSITION_EMBD, n, positions, 0)))
    return -1;
  f->fixed = !f->chunk || f->chunk == f->frames;
  if (placed && f->chunk && positions < chunk_rows(f, f->chunk))
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has %lld rows, fewer than the %lld of a chunk", at->name,
                     (long long)positions, (long long)chunk_rows(f, f->chunk));
  if (f->halvings <= 1 &&
      (want(l, NULL, W_CONV1D_1, 3, f->mel, n, WANT_BARE) || want(l, NULL, W_CONV1D_1_BIAS, 1, n, 1, WANT_BARE) ||
       want(l, NULL, W_CONV1D_2, 3, n, n, WANT_BARE) || want(l, NULL, W_CONV1D_2_BIAS, 1, n, 1, WANT_BARE)))
    return -1;
  return check_all(l);
}

int projector_open(const gguf *file, enum medium k, model **out, error *err) {
  unsigned media;
  if (projector_media(file, &media, err)) return -1;
  if (!(media >> k & 1)) return gguf_fail(file, NULL, err, "there is no encoder of %s", k ? "sound" : "pictures");
  const char **uses = xcalloc(gguf_n_kv(file) + 1, sizeof *uses);
  int status = open_by(k == MEDIUM_SOUND ? load_sound : load_picture, file, (model_kv){0}, uses, out, err);
  free(uses);
  return status;
}

const projector_kind *projector_kind_of(const model *m) { return m->projector; }
const projector_facts *projector_facts_of(const model *m) { return &m->eye; }

const float *projector_newline(const model *m) {
  int at = m->w[W_IMAGE_NEWLINE].weight;
  return at ? (const float *)(const void *)gguf_tensor_at(m->file, (size_t)(at - 1))->data : NULL;
}

// --- feeding ---------------------------------------------------------------------------------------------------------

static int64_t patches_of(const model *m, int64_t squares) {
  const projector_facts *f = &m->eye;
  if (f->chunk) return squares * chunk_rows(f, f->chunk);
  return f->frames ? f->frames / 2 : squares * f->merge * f->merge;
}

int64_t projector_output(const model *m, int64_t squares) {
  if (m->eye.chunk) return patches_of(m, squares) / m->eye.stack;
  return m->eye.queries ? m->eye.queries : squares;
}

void projector_grid_of_sound(const model *m, int frames, projector_grid *out) {
  const projector_facts *f = &m->eye;
  frames = (int)max_i64(frames - m->projector->beyond, 0);
  int64_t whole = frames / f->chunk, chunks = (frames + f->chunk - 1) / f->chunk,
          rows = (patches_of(m, whole) + chunk_rows(f, frames % f->chunk)) / f->stack;
  *out = (projector_grid){rows, 1, chunks, patches_of(m, chunks), rows};
}

void projector_lay_sound(const model *m, const projector_grid *grid, int frames, const float *mel, float *patches,
                         int32_t *places, int64_t n_places) {
  const projector_facts *f = &m->eye;
  int64_t each = chunk_rows(f, f->chunk), own = frames - m->projector->beyond, whole = own / f->chunk,
          valid = whole * each + chunk_rows(f, own % f->chunk);
  for (int64_t i = 0; i < grid->squares * f->chunk; i++)
    for (int64_t k = 0; k < f->mel; k++) patches[i * f->mel + k] = i < frames ? mel[k * frames + i] : 0;
  for (int64_t i = 0; i < grid->patches; i++) {
    int64_t first = i / each * f->chunk + i % each * 2;
    places[i] = (int32_t)max_i64(min_i64(own - first, f->chunk), 0);
    places[n_places + i] = 0;
    places[2 * n_places + i] = i < valid ? (int32_t)(i / f->chunk_window) : -1;
  }
}

int projector_grid_of(const model *m, int width, int height, projector_grid *out, error *err) {
  const projector_facts *f = &m->eye;
  int cell = f->patch * f->merge;
  if (width < cell || height < cell || width % cell || height % cell)
    return error_set(err, "a picture of %d x %d pixels is not one of rows of %d x %d", width, height, cell, cell);
  if (f->fixed && (width != f->size || height != f->size))
    return error_set(err, "a picture of %d x %d pixels, but the encoder takes %d x %d", width, height, f->size,
                     f->size);
  if (f->most_patches && max_i64(width, height) / f->patch > f->most_patches)
    return error_set(err, "a picture of %d x %d pixels, but the encoder knows places of %d x %d", width, height,
                     f->most_patches * f->patch, f->most_patches * f->patch);
  int64_t squares = (int64_t)(width / cell) * (height / cell);
  *out = (projector_grid){width / cell, height / cell, squares, patches_of(m, squares), projector_output(m, squares)};
  return 0;
}

// The patch at line y and column x, channel by channel.
static void copy_patch(float *to, const float *pixels, const projector_grid *grid, const projector_facts *f, int64_t y,
                       int64_t x) {
  int64_t p = f->patch, width = grid->columns * f->merge * p, height = grid->lines * f->merge * p;
  for (int64_t c = 0; c < 3; c++)
    for (int64_t i = 0; i < p; i++)
      memcpy(to + (c * p + i) * p, pixels + (c * height + y * p + i) * width + x * p, (size_t)p * sizeof *to);
}

void projector_lay(const model *m, const projector_grid *grid, const float *pixels, float *patches, int32_t *places,
                   int64_t n_places, int32_t *order) {
  const projector_facts *f = &m->eye;
  int64_t by = f->merge, in = max_i64(f->inner, 1), each = 3 * (int64_t)f->patch * f->patch, n = 0, row = 0,
          across = max_i64(grid->columns, grid->lines);
  int64_t side = f->window ? max_i64(f->window / (f->patch * by), 1) : across;
  int32_t window = 0;
  for (int64_t top = 0; top < grid->lines; top += side)
    for (int64_t left = 0; left < grid->columns; left += side, window++)
      for (int64_t y = top; y < min_i64(top + side, grid->lines); y++)
        for (int64_t x = left; x < min_i64(left + side, grid->columns); x++, row++) {
          order[row] = (int32_t)(y * grid->columns + x);
          for (int64_t i = 0; i < by * by; i++, n++) {
            int64_t block = i / (in * in), within = i % (in * in), across_by = by / in;
            int64_t line = y * by + block / across_by * in + within / in,
                    column = x * by + block % across_by * in + within % in;
            copy_patch(patches + n * each, pixels, grid, f, line, column);
            places[n] = (int32_t)line;
            places[n_places + n] = (int32_t)column;
            places[2 * n_places + n] = window;
          }
        }
}

int64_t projector_places(const model *m, int64_t squares) {
  return (int64_t)round_up((size_t)patches_of(m, squares) + (m->projector->arch->class_row != CLASS_NONE), PAGE);
}

int64_t projector_input(const model *m, int64_t squares) {
  const projector_facts *f = &m->eye;
  if (f->chunk) return squares * f->chunk * f->mel;
  return f->frames ? (int64_t)f->mel * f->frames : patches_of(m, squares) * 3 * f->patch * f->patch;
}

int64_t projector_rows(const model *m) {
  const projector_facts *f = &m->eye;
  int64_t side = f->fixed && f->size ? f->size / (f->patch * f->merge) : 0;
  if (f->chunk) return 0;
  return f->frames ? (f->frames / 2 + f->stack - 1) / f->stack : side * side;
}

// --- the graph -------------------------------------------------------------------------------------------------------

// {outputs, inputs} of a convolution whose steps do not overlap
static tensor *kernel_matrix(const build *b, enum tensor_id id, int64_t in) {
  return t_reshape_i(b->g, weight(b, NULL, id), 2, (int64_t[]){b->m->n_embd, in});
}

static tensor *input(const build *b, int64_t rows, int64_t columns) {
  tensor *all = t_buffer(b->g, model_buffer_id(b->m->file, BUF_PATCHES), DT_F32, rows * columns);
  return t_reshape_i(b->g, all, 2, (int64_t[]){rows, columns});
}

// The rows of a table along one axis that a patch interpolates, and the weight of each.
enum { MOST_TAPS = 4 };
typedef struct between { int n; tensor *at[MOST_TAPS], *by[MOST_TAPS]; } between;

// The two rows around `at` ({T}, F32), with weights that fall linearly with the distance. Rows beyond an edge are
// replaced by the row at it.
static between linear_taps(build *b, tensor *at, int64_t side) {
  graph *g = b->g;
  tensor *floor = t_op1(g, OP_FLOOR, at), *share = t_reshape(g, t_sub(g, at, floor), DIMS(b->T, n_(b, 1)));
  tensor *low = t_cast(g, t_cast(g, floor, DT_I32), DT_IDX);
  tensor *high = t_op2(g, OP_MIN, t_add(g, low, uop_idx(g, 1)), uop_idx(g, side - 1));
  low = t_op2(g, OP_MAX, low, uop_idx(g, 0));
  return (between){2, {low, high}, {t_sub(g, t_float(g, 1), share), share}};
}

// The table's corners are those of the image.
static between corner_taps(build *b, int axis, int64_t side) {
  graph *g = b->g;
  tensor *at = t_cast(g, place_of(b, axis, b->T), DT_F32);
  tensor *last = t_op2(g, OP_MAX, t_reduce(g, at, OP_MAX, 0), t_float(g, 1));
  return linear_taps(b, t_op2(g, OP_FDIV, t_scale(g, at, (double)side - 1), last), side);
}

// The number of patches along an axis, from the place of each.
static tensor *patches_along(const build *b, tensor *at) {
  return t_add(b->g, t_reduce(b->g, at, OP_MAX, 0), t_float(b->g, 1));
}

// The middle of a patch in the table, whose edges are those of the image: {T}, in rows from the middle of the first one
// on.
static tensor *middle_in_table(build *b, int axis, int64_t side) {
  graph *g = b->g;
  tensor *at = t_cast(g, place_of(b, axis, b->T), DT_F32), *half = t_float(g, 0.5), *size = patches_along(b, at);
  return t_sub(g, t_scale(g, t_op2(g, OP_FDIV, t_add(g, at, half), size), (double)side), half);
}

static between edge_taps(build *b, int axis, int64_t side) {
  return linear_taps(b, middle_in_table(b, axis, side), side);
}

// Bicubic interpolation as in PyTorch (a = -0.75), where the table's edges are those of the image. Rows beyond an edge
// are replaced by the row at it.
static between cubic_taps(build *b, int axis, int64_t side) {
  graph *g = b->g;
  const double a = -0.75;
  between out = {.n = 4};
  tensor *at = middle_in_table(b, axis, side);
  tensor *floor = t_op1(g, OP_FLOOR, at), *t = t_reshape(g, t_sub(g, at, floor), DIMS(b->T, n_(b, 1)));
  tensor *low = t_cast(g, t_cast(g, floor, DT_I32), DT_IDX);
  for (int i = 0; i < 4; i++) {
    tensor *d = i < 2 ? t_add(g, t, t_float(g, 1 - i)) : t_sub(g, t_float(g, i - 1), t);
    bool far = i == 0 || i == 3;
    const double c[] = {far ? a : a + 2, far ? -5 * a : -a - 3, far ? 8 * a : 0, far ? -4 * a : 1};
    tensor *by = t_add(g, t_scale(g, d, c[0]), t_float(g, c[1]));
    for (int k = 2; k < 4; k++) by = t_add(g, t_mul(g, by, d), t_float(g, c[k]));
    tensor *row = t_op2(g, OP_MAX, t_add(g, low, uop_idx(g, i - 1)), uop_idx(g, 0));
    out.at[i] = t_op2(g, OP_MIN, row, uop_idx(g, side - 1));
    out.by[i] = by;
  }
  return out;
}

// The row that a patch begins in, where the table's edges are those of the image. Quotients of such small integers are
// exact if they are whole.
static between nearest_tap(build *b, int axis, int64_t side) {
  graph *g = b->g;
  tensor *at = t_cast(g, place_of(b, axis, b->T), DT_F32), *size = patches_along(b, at);
  at = t_op1(g, OP_FLOOR, t_op2(g, OP_FDIV, t_scale(g, at, (double)side), size));
  return (between){1, {t_cast(g, t_cast(g, at, DT_I32), DT_IDX)}, {t_float(g, 1)}};
}

// The weight of each of the table's rows, {T, side}: it falls linearly with the distance, to 0 at that of a row, or of
// a patch if that is larger. As PyTorch's bilinear interpolation with antialiasing.
static tensor *smooth_weights(build *b, int axis, int64_t side) {
  graph *g = b->g;
  tensor *size = patches_along(b, t_cast(g, place_of(b, axis, b->T), DT_F32)), *one = t_float(g, 1);
  tensor *wide = t_op2(g, OP_MAX, t_op2(g, OP_FDIV, t_float(g, (double)side), size), one);
  tensor *at = t_reshape(g, middle_in_table(b, axis, side), DIMS(b->T, n_(b, 1)));
  tensor *off = t_sub(g, t_cast(g, t_iota(g, n_(b, side)), DT_F32), at);
  off = t_op2(g, OP_FDIV, t_op2(g, OP_MAX, off, t_op1(g, OP_NEG, off)), wide);
  tensor *by = t_op2(g, OP_MAX, t_sub(g, one, off), t_float(g, 0));
  return t_op2(g, OP_FDIV, by, t_reshape(g, t_reduce(g, by, OP_ADD, 1), DIMS(b->T, n_(b, 1))));
}

static tensor *smooth_positions(build *b, tensor *table, int64_t side) {
  graph *g = b->g;
  tensor *line = t_reshape(g, smooth_weights(b, 0, side), DIMS(b->T, n_(b, side), n_(b, 1)));
  tensor *column = t_reshape(g, smooth_weights(b, 1, side), DIMS(b->T, n_(b, 1), n_(b, side)));
  return t_matmul(g, t_reshape(g, t_mul(g, line, column), DIMS(b->T, n_(b, side * side))), t_swap(g, table, 0, 1));
}

// Learned positions for an image of any size, over which the table is stretched.
static tensor *stretched_positions(build *b) {
  graph *g = b->g;
  int64_t side = b->m->eye.table;
  enum positions kind = b->m->projector->arch->positions;
  between (*of)(build *, int, int64_t) = kind == POSITIONS_CUBIC     ? cubic_taps
                                         : kind == POSITIONS_NEAREST ? nearest_tap
                                         : kind == POSITIONS_LINEAR  ? edge_taps
                                                                     : corner_taps;
  tensor *table = t_reshape_i(g, weight(b, NULL, W_POSITION_EMBD), 2, (int64_t[]){side * side, b->m->n_embd});
  if (kind == POSITIONS_SMOOTH) return smooth_positions(b, table, side);
  between lines = of(b, 0, side), columns = of(b, 1, side);
  tensor *sum = NULL;
  for (int i = 0; i < lines.n * columns.n; i++) {
    int y = i / columns.n, x = i % columns.n;
    tensor *at = t_add(g, t_mul(g, lines.at[y], uop_idx(g, side)), columns.at[x]);
    tensor *row = t_mul(g, t_gather(g, table, at), t_mul(g, lines.by[y], columns.by[x]));
    sum = sum ? t_add(g, sum, row) : row;
  }
  return sum;
}

static tensor *patch_positions(build *b) {
  graph *g = b->g;
  const projector_facts *f = &b->m->eye;
  enum positions kind = b->m->projector->arch->positions;
  if (is_stretched(kind)) return stretched_positions(b);
  tensor *line = t_cast(g, place_of(b, 0, b->T), DT_IDX), *column = t_cast(g, place_of(b, 1, b->T), DT_IDX);
  tensor *table = weight(b, NULL, W_POSITION_EMBD);
  if (kind == POSITIONS_AXES)
    return t_add(g, t_gather(g, table, column), t_gather(g, table, t_add(g, line, uop_idx(g, f->most_patches))));
  tensor *at = t_add(g, t_mul(g, line, uop_idx(g, f->table)), column);
  if (b->m->projector->arch->class_row == CLASS_FIRST) at = t_add(g, at, uop_idx(g, 1));
  return t_gather(g, table, at);
}

// The class row, which is not a patch, follows all patches.
static tensor *with_class(build *b, tensor *x) {
  graph *g = b->g;
  enum class_row which = b->m->projector->arch->class_row;
  int64_t patches = b->T->a, n = b->m->n_embd;
  if (which == CLASS_NONE) return x;
  tensor *own = t_slice_i(g, weight(b, NULL, W_POSITION_EMBD), 0, which == CLASS_FIRST ? 0 : patches, 1);
  own = t_add(g, own, t_reshape_i(g, weight(b, NULL, W_CLASS_EMBD), 2, (int64_t[]){1, n}));
  b->T = n_(b, patches + 1);
  return t_add(g, t_pad(g, x, 0, 0, 1), t_pad(g, own, 0, patches, 0));
}

tensor *picture_input(const build *b) {
  int64_t each = 3 * (int64_t)b->m->eye.patch * b->m->eye.patch;
  return t_slice(b->g, input(b, patches_of(b->m, b->s->chunk), each), 0, n_(b, 0), b->T);
}

static tensor *picture_patches(build *b) {
  graph *g = b->g;
  int64_t each = 3 * (int64_t)b->m->eye.patch * b->m->eye.patch;
  tensor *in = picture_input(b);
  if (b->m->projector->arch->doubled) in = t_sub(g, t_scale(g, in, 2), t_float(g, 1));
  tensor *x = t_matmul(g, in, kernel_matrix(b, W_PATCH_EMBD, each));
  // kernels of the two frames of a video; both frames are the image
  if (b->m->w[W_PATCH_EMBD_1].weight) x = t_add(g, x, t_matmul(g, in, kernel_matrix(b, W_PATCH_EMBD_1, each)));
  if (b->m->w[W_PATCH_BIAS].weight) x = t_add(g, x, weight(b, NULL, W_PATCH_BIAS));
  if (b->m->w[W_NORM_EMBD].weight) x = norm(b, NULL, W_NORM_EMBD, x);
  if (b->m->w[W_POSITION_EMBD].weight) x = t_add(g, x, patch_positions(b));
  return with_class(b, x);
}

// {chunks, frames per chunk, mel}
tensor *chunked_input(const build *b, uop *chunks) {
  int64_t most = b->s->chunk * b->m->eye.chunk;
  uop *frames = n_(b, b->m->eye.chunk), *mel = n_(b, b->m->eye.mel);
  tensor *in = t_slice(b->g, input(b, most, b->m->eye.mel), 0, n_(b, 0), idx_mul(b->g, chunks, frames));
  return t_reshape(b->g, in, DIMS(chunks, frames, mel));
}

// x {chunks x rows, n}; positions begin anew in each chunk.
static tensor *places_of_chunks(const build *b, uop *chunks, tensor *x) {
  graph *g = b->g;
  int64_t rows = patches_of(b->m, 1);
  tensor *at = t_slice_i(g, weight(b, NULL, W_POSITION_EMBD), 0, 0, rows);
  x = t_add(g, t_reshape(g, x, DIMS(chunks, n_(b, rows), n_(b, b->m->n_embd))), at);
  return t_reshape(g, x, DIMS(b->T, n_(b, b->m->n_embd)));
}

// x {chunks, frames, n} convolved with three taps, every `step`-th frame: {chunks x frames / step, n_embd}
static tensor *taps(const build *b, enum tensor_id id, enum tensor_id bias, tensor *x, int64_t step) {
  graph *g = b->g;
  int64_t frames = x->shape->dim[1]->a, n = x->shape->dim[2]->a;
  uop *chunks = x->shape->dim[0], *per = n_(b, frames / step), *all = idx_mul(g, chunks, per);
  tensor *near[3], *wide = t_pad(g, x, 1, 1, step);
  for (int i = 0; i < 3; i++) {
    tensor *by = t_reshape(g, t_slice_i(g, wide, 1, i, frames), DIMS(chunks, per, n_(b, step), n_(b, n)));
    near[i] = t_reshape(g, t_slice_i(g, by, 2, 0, 1), DIMS(chunks, per, n_(b, n)));
  }
  // Stored by chunks: from an index over all chunks the compiler could not prove that the preceding frame exists.
  x = t_reshape(g, t_stack_last(g, near, 3), DIMS(chunks, per, n_(b, 3 * n)));
  x = t_reshape(g, x, DIMS(all, n_(b, 3 * n)));
  tensor *add = t_reshape_i(g, weight(b, NULL, bias), 1, (int64_t[]){b->m->n_embd});
  return gelu_erf(g, t_add(g, t_matmul(g, x, kernel_matrix(b, id, 3 * n)), add));
}

static tensor *sound_frames(build *b) {
  int64_t mel = b->m->eye.mel, frames = b->m->eye.frames, n = b->m->n_embd;
  tensor *x = t_reshape_i(b->g, t_swap(b->g, input(b, mel, frames), 0, 1), 3, (int64_t[]){1, frames, mel});
  x = t_reshape_i(b->g, taps(b, W_CONV1D_1, W_CONV1D_1_BIAS, x, 1), 3, (int64_t[]){1, frames, n});
  return t_add(b->g, taps(b, W_CONV1D_2, W_CONV1D_2_BIAS, x, 2), weight(b, NULL, W_POSITION_EMBD));
}

// Chunks that are convolved separately: outputs of the first convolution after the end of the sound are 0 for the
// second one, unless silence is convolved with the sound.
tensor *chunk_frames(build *b, uop *chunks) {
  graph *g = b->g;
  int64_t chunk = b->m->eye.chunk;
  uop *frames = n_(b, chunk), *n = n_(b, b->m->n_embd);
  tensor *valid = t_reshape(g, t_cast(g, place_of(b, 0, b->T), DT_IDX), DIMS(b->T, n_(b, 1)));
  valid = t_op2(g, OP_CMPLT, t_iota(g, n_(b, 2)), valid);
  tensor *x = taps(b, W_CONV1D_1, W_CONV1D_1_BIAS, chunked_input(b, chunks), 1);
  if (!b->m->projector->beyond)
    x = t_where(g, t_reshape(g, valid, DIMS(idx_mul(g, chunks, frames), n_(b, 1))), x, t_float(g, 0));
  x = taps(b, W_CONV1D_2, W_CONV1D_2_BIAS, t_reshape(g, x, DIMS(chunks, frames, n)), 2);
  return places_of_chunks(b, chunks, x);
}

// x {chunks, frames, bins, n} convolved with 3 x 3 taps at every other frame and bin: {chunks, frames / 2, bins / 2,
// outputs}
static tensor *square_taps(const build *b, enum tensor_id id, enum tensor_id bias, tensor *x) {
  graph *g = b->g;
  uop *chunks = x->shape->dim[0];
  int64_t n = x->shape->dim[3]->a, frames = (x->shape->dim[1]->a + 1) / 2, bins = (x->shape->dim[2]->a + 1) / 2;
  tensor *near[9], *wide = t_pad(g, t_pad(g, x, 1, 1, 2), 2, 1, 2);
  for (int i = 0; i < 9; i++) {
    tensor *by = t_slice_i(g, t_slice_i(g, wide, 1, i % 3, 2 * frames), 2, i / 3, 2 * bins);
    by = t_reshape(g, by, DIMS(chunks, n_(b, frames), n_(b, 2), n_(b, bins), n_(b, 2), n_(b, n)));
    by = t_slice_i(g, t_slice_i(g, by, 2, 0, 1), 4, 0, 1);
    near[i] = t_reshape(g, by, DIMS(chunks, n_(b, frames), n_(b, bins), n_(b, n)));
  }
  x = t_reshape(g, t_stack_last(g, near, 9), DIMS(chunks, n_(b, frames), n_(b, bins), n_(b, 9 * n)));
  x = t_reshape(g, x, DIMS(idx_mul(g, chunks, n_(b, frames * bins)), n_(b, 9 * n)));
  int64_t out = weight(b, NULL, bias)->shape->dim[0]->a;
  tensor *kernel = t_reshape_i(g, weight(b, NULL, id), 2, (int64_t[]){out, 9 * n});
  x = t_add(g, t_matmul(g, x, kernel), t_reshape_i(g, weight(b, NULL, bias), 1, (int64_t[]){out}));
  return t_reshape(g, gelu_erf(g, x), DIMS(chunks, n_(b, frames), n_(b, bins), n_(b, out)));
}

// Chunks that are halved three times in both directions.
tensor *chunk_squares(build *b, uop *chunks) {
  graph *g = b->g;
  tensor *x = chunked_input(b, chunks);
  x = t_reshape(g, x, DIMS(chunks, n_(b, b->m->eye.chunk), n_(b, b->m->eye.mel), n_(b, 1)));
  for (int i = 0; i < 3; i++)
    x = square_taps(b, (enum tensor_id)(W_CONV2D_1 + 2 * i), (enum tensor_id)(W_CONV2D_1_BIAS + 2 * i), x);
  int64_t bins = x->shape->dim[2]->a, n = x->shape->dim[3]->a;
  x = t_swap(g, x, 2, 3);
  return places_of_chunks(b, chunks, linear(b, NULL, W_CONV_OUT, t_reshape(g, x, DIMS(b->T, n_(b, bins * n)))));
}

// A mantissa of eight bits is enough: for normal numbers the lower three bits are 0; for subnormal ones the bits after
// the first eight significant ones are 0.
static bool half_fits_bf16(uint16_t h) {
  unsigned m = h & 0x3ff;
  return !(m & 7) || (!(h & 0x7c00) && (m < 256 || (m < 512 ? !(m & 1) : !(m & 3))));
}

static bool halves_fit_bf16(const unsigned char *at, size_t n) {
  size_t i = 0;
  for (uint64_t four; i + 4 <= n; i += 4) {
    memcpy(&four, at + 2 * i, sizeof four);
    if (four & 0x0007000700070007)
      for (int k = 0; k < 4; k++) if (!half_fits_bf16((uint16_t)(four >> 16 * k))) return false;
  }
  for (; i < n; i++) if (!half_fits_bf16((uint16_t)(at[2 * i] | at[2 * i + 1] << 8))) return false;
  return true;
}

void projector_find_bf16(model *m) {
  size_t n = gguf_n_tensors(m->file);
  if (m->fits_bf16) return;
  m->fits_bf16 = xcalloc(n + 1, sizeof *m->fits_bf16);
  for (size_t i = 0; i < n; i++) {
    const gguf_tensor *t = gguf_tensor_at(m->file, i);
    m->fits_bf16[i] = t->format->id == FORMAT_F16 && projector_has_tensor(m->projector, t->name) &&
                      halves_fit_bf16(t->data, t->nbytes / 2);
  }
}

uop *projector_graph(const model *m, graph *g, const projector_shape *s) {
  effects none = {0};
  model_shape sizes = {.page = PAGE, .chunk = s->squares, .exact = s->exact};
  build b = {.m = m, .s = &sizes, .g = g, .effects = &none};
  int64_t n = m->n_embd_out, by = patches_of(m, 1), most = projector_output(m, s->squares);
  uop *squares = m->eye.fixed ? uop_idx(g, s->squares) : uop_var(g, "n", 1, s->squares);
  uop *rows = m->eye.queries ? uop_idx(g, most) : squares;
  bool sound = m->eye.frames && !m->eye.chunk;
  uop *patches = sound ? uop_idx(g, by) : idx_mul(g, squares, uop_idx(g, by));
  b.T = patches;
  const projector_arch *of = m->projector->arch;
  tensor *x = of->whole ? of->whole(&b) : m->eye.chunk ? of->chunks(&b, squares) : NULL;
  if (!of->whole) x = vit(&b, x ? x : m->eye.frames ? sound_frames(&b) : picture_patches(&b));
  if (m->projector->arch->class_row) {
    x = t_slice(g, x, 0, uop_idx(g, 0), patches);
    b.T = patches;
  }
  if (!of->whole) x = of->graph(&b, x);
  tensor *out = t_reshape_i(g, t_buffer(g, model_buffer_id(m->file, BUF_HIDDEN), DT_F32, most * n), 2,
                            (int64_t[]){most, n});
  if (m->eye.chunk) rows = x->shape->dim[0];
  uop *stored = t_assign(g, t_slice(g, out, 0, uop_idx(g, 0), rows), x);
  return uop_new(g, OP_SINK, DT_VOID, 1, &stored, 1, (uarg){0});
}
