// Pictures and sounds on the command line: see media_args.h.
#define _GNU_SOURCE
#include "app/media_args.h"
#include "app/app.h"
#include "app/encoders.h"
#include <stdlib.h>
#include <string.h>

int media_args_find(struct media_args *a, const struct model_args *of) {
  if (a->mmproj || a->alone) return 0;
  str found = {0}, other = {0};
  const char *model = of->model;
  const struct encoder_wanted wanted = {model, of->repo, ENCODER_OF_ONE};
  size_t n = encoder_find(&wanted, &found, &other);
  if (other.n) {
    str said = {0};
    encoder_say_other(other.at, &wanted, &said);
    a->other = said.at;
  }
  const char *slash = strrchr(model, '/');
  int status = 0;
  if (found.n) a->mmproj = a->found = xstrdup(found.at);
  else if (a->files.n && a->other) status = failed("%s", a->other);
  else if (a->files.n)
    status =
      failed("%.*s has %zu files called *mmproj*.gguf: --mmproj FILE names the one that encodes pictures and sound",
             slash ? (int)(slash - model) + 1 : 2, slash ? model : "./", n);
  str_free(&found);
  str_free(&other);
  return status;
}

static void show_encoding(void *ctx, const char *what, double fraction) {
  progress_set(&((struct media *)ctx)->bar, what, fraction);
}

int media_open_encoder(const struct media_args *a, weft_model *m, struct media *out, weft_error *err) {
  weft_media_options o = {.min_tokens = (int)a->min_tokens, .max_tokens = (int)a->max_tokens,
                          .progress = show_encoding, .ctx = out};
  if (out->encoder) return 0;
  if (a->mmproj) return weft_media_open(m, a->mmproj, &o, &out->encoder, err);
  if (a->other) snprintf(err->text, sizeof err->text, "%s", a->other);
  else
    snprintf(err->text, sizeof err->text, "there is no file that encodes pictures and sound: --mmproj FILE names it");
  return -1;
}

int media_args_open(const struct media_args *a, weft_model *m, struct media *out) {
  weft_error err;
  if (!a->files.n) return 0;
  if (media_open_encoder(a, m, out, &err)) return failed("%s", err.text);
  int status = 0;
  for (size_t i = 0; !status && i < a->files.n; i++) {
    weft_medium *x;
    progress_begin(&out->bar);
    status = weft_medium_open(out->encoder, a->files.at[i], &x, &err);
    progress_end(&out->bar);
    if (!status) vec_push(&out->of, x);
  }
  return status ? failed("%s", err.text) : 0;
}

int media_add(const struct media_args *a, weft_model *m, const char *name, const void *data, size_t n,
              struct media *out, weft_error *err) {
  weft_medium *x;
  if (media_open_encoder(a, m, out, err)) return -1;
  progress_begin(&out->bar);
  int status = weft_medium_new(out->encoder, data, n, name, &x, err);
  progress_end(&out->bar);
  if (!status) vec_push(&out->of, x);
  return status;
}

void media_free(struct media *m) {
  for (size_t i = 0; i < m->of.n; i++) weft_medium_free(m->of.at[i]);
  vec_free(&m->of);
  weft_media_close(m->encoder);
  *m = (struct media){0};
}
