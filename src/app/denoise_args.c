// Options of diffusion models: see denoise_args.h. The names are llama.cpp's.
#define _GNU_SOURCE
#include "app/denoise_args.h"
#include "app/app.h"
#include "base/str.h"
#include <stdlib.h>
#include <string.h>

const char *denoise_args_fault(const struct denoise_args *a) {
  return a->eps > 0 && a->block_length > 0 ? "--diffusion-eps and --diffusion-block-length are two schedules: give one"
                                           : NULL;
}

bool denoise_args_given(const struct denoise_args *a) {
  return a->steps || a->block_length || a->algorithm >= 0 || a->gumbel || a->eps > 0 || a->algorithm_temp > 0 ||
         a->cfg_scale > 0 || a->visual;
}

// Redraws the text so far on the terminal, with spaces for masks.
static void show_denoised(const struct denoised *d, const int32_t *ids) {
  const weft_vocab *v = weft_model_vocab(d->model);
  int32_t mask = weft_mask(v);
  str text = {0};
  for (size_t i = d->n_prompt; i < d->n; i++) {
    size_t n = 1;
    char *piece = ids[i] == mask ? NULL : weft_piece(v, ids[i], false, &n);
    str_addn(&text, piece ? piece : " ", n);
    weft_free(piece);
  }
  fprintf(stderr, "\033[2J\033[H%s\n", str_c(&text));
  str_free(&text);
}

static bool before_step(void *ctx, int step, int n_steps, const int32_t *ids) {
  const struct denoised *d = ctx;
  if (d->how->visual) show_denoised(d, ids);
  if (d->bar) progress_set(d->bar, "denoising", (double)step / n_steps);
  return !interrupted();
}

static void keep_drawn_row(void *ctx, size_t place, int32_t id, const float *logits) {
  const struct denoised *d = ctx;
  size_t bytes = (size_t)weft_model_vocab_size(d->model) * sizeof *logits;
  (void)id;
  free(d->rows[place]);
  d->rows[place] = memcpy(xmalloc(bytes), logits, bytes);
}

int denoise(struct denoised *d, weft_error *err) {
  const struct denoise_args *a = d->how;
  const struct sampling_args *s = d->sampling;
  weft_denoising how = weft_denoising_default();
  how.steps = (int)a->steps;
  how.block_length = (int)a->block_length;
  how.eps = a->eps;
  if (a->algorithm >= 0) how.algorithm = (int)a->algorithm;
  how.algorithm_temp = a->algorithm_temp;
  how.cfg_scale = a->cfg_scale;
  how.gumbel_noise = a->gumbel != 0;
  how.temp = s->temp;
  how.top_k = (int)s->top_k;
  how.top_p = s->top_p;
  how.seed = (uint32_t)s->seed;
  how.step = before_step;
  how.token = d->rows ? keep_drawn_row : NULL;
  how.ctx = d;
  if (d->bar) progress_begin(d->bar);
  int status = weft_denoise(d->model, d->ids, d->n, d->n_prompt, &how, err);
  if (d->bar) progress_end(d->bar);
  return status;
}
