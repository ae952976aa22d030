// Describes an mmproj file as text: see weft.h.
#include <string.h>
#include "base/str.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "engine/media_file.h"
#include "media/mel.h"
#include "media/preprocess.h"
#include "model/model.h"
#include "model/projector.h"

bool media_file_is_mmproj(const gguf *g) {
  gguf_string a;
  return !gguf_str(g, "general.architecture", &a, NULL) && a.n == 4 && !memcmp(a.at, "clip", 4);
}

bool weft_file_is_mmproj(const weft_file *f) { return media_file_is_mmproj(weft_file_gguf(f)); }

int media_file_is_model(const gguf *g, error *err) {
  if (!media_file_is_mmproj(g)) return 0;
  return gguf_fail(g, "general.architecture", err,
                   "'clip': this file encodes pictures or sound for a language model: -m names the model, and --mmproj "
                   "this file");
}

int media_file_fits(const gguf *file, const model *encoder, int n_embd, error *err) {
  char name[64];
  if (model_n_embd(encoder) == n_embd) return 0;
  snprintf(name, sizeof name, "clip.%s.projection_dim", medium_name(projector_kind_of(encoder)->medium));
  return gguf_fail(file, name, err, "%d, but the language model's embeddings have %d elements", model_n_embd(encoder),
                   n_embd);
}

int weft_file_media(const weft_file *mmproj, const weft_file *model_file, unsigned *kinds, weft_error *err) {
  static const unsigned bits[MEDIUM_COUNT] = {[MEDIUM_PICTURE] = WEFT_PICTURE, [MEDIUM_SOUND] = WEFT_SOUND};
  const gguf *g = weft_file_gguf(mmproj);
  model *language = NULL;
  unsigned media = 0, all = 0;
  error why = {0};
  int status = projector_media(g, &media, &why) || model_open(weft_file_gguf(model_file), (model_kv){0}, &language,
                                                              &why);
  if (!status && media & projector_known(g)) media &= projector_known(g);
  for (int k = 0; !status && k < MEDIUM_COUNT; k++) {
    model *m = NULL;
    if (!(media >> k & 1)) continue;
    status = projector_open(g, k, &m, &why) || media_file_fits(g, m, model_n_floats(language), &why);
    all |= bits[k];
    model_close(m);
  }
  if (!status && model_is_encoder(language))
    status = error_set(&why, "%s: this model sees texts as a whole, and no pictures or sounds",
                       gguf_path(weft_file_gguf(model_file)));
  model_close(language);
  if (!status) *kinds = all;
  return status ? fail(err, &why) : 0;
}

static bool is_cut_into_tiles(const projector_kind *k) {
  const preprocess_rule *r = k->medium == MEDIUM_PICTURE ? preprocess_rule_by_name(k->preprocess) : NULL;
  return r && (r->size == SIZE_TILES_AND_WHOLE || r->size == SIZE_TILES_BY_SHAPE || r->size == SIZE_CANVAS);
}

// The inputs of an encoder, and the number of tokens that they become.
static void describe_encoder(str *s, const model *m) {
  const projector_kind *k = projector_kind_of(m);
  const projector_facts *f = projector_facts_of(m);
  str_addf(s, "%s%s (%s): ", s->n ? "\n" : "", k->medium == MEDIUM_SOUND ? "sound" : "pictures", k->name);
  long long tokens = projector_rows(m);
  if (f->chunk)
    str_addf(s, "%lld tokens for each %.4g s", (long long)projector_output(m, 1),
             (double)f->chunk * MEL_HOP / MEL_RATE);
  else if (k->medium == MEDIUM_SOUND)
    str_addf(s, "%lld tokens for %.4g s", tokens, (double)f->frames * MEL_HOP / MEL_RATE);
  else if (f->queries && !f->fixed)
    str_addf(s, "the whole and slices of about %d x %d pixels, %d tokens each", f->size, f->size, f->queries);
  else if (!f->fixed) str_addf(s, "any size, a token for %d x %d pixels", f->patch * f->merge, f->patch * f->merge);
  else if (f->n_canvases || is_cut_into_tiles(k))
    str_addf(s, "tiles of %d x %d pixels, %lld tokens each", f->size, f->size, tokens);
  else str_addf(s, "resized to %d x %d pixels, %lld tokens", f->size, f->size, (long long)projector_output(m, tokens));
  str_addf(s, "; for models with %d elements in an embedding", model_n_embd(m));
}

char *weft_file_encoders(const weft_file *f, weft_error *err) {
  const gguf *g = weft_file_gguf(f);
  unsigned media;
  error why = {0};
  str s = {0};
  int status = projector_media(g, &media, &why);
  unsigned known = projector_known(g);
  for (int k = 0; !status && k < MEDIUM_COUNT; k++) {
    model *m = NULL;
    if (!(media >> k & 1)) continue;
    if (media & known && !(known >> k & 1)) {
      str_addf(&s, "%s%s: of a type that is not supported", s.n ? "\n" : "", k == MEDIUM_SOUND ? "sound" : "pictures");
      continue;
    }
    status = projector_open(g, k, &m, &why);
    if (!status) describe_encoder(&s, m);
    model_close(m);
  }
  if (!status) return s.at;
  str_free(&s);
  fail(err, &why);
  return NULL;
}
