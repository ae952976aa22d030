/* weft/denoise.h: models that denoise (diffusion): a text of masks becomes tokens in steps. */
#ifndef WEFT_API_DENOISE_H
#define WEFT_API_DENOISE_H
#include "model.h"

WEFT_BEGIN

/* ---- Denoising
 *
 * A model that denoises sees a text as a whole: the prompt, and masks after it.  In each step it is evaluated, a token
 * is drawn for each mask, and the masks about which the model is surest become their tokens.  weft_decode refuses such
 * a model.
 */
bool weft_model_denoises(const weft_model *m);

/* What decides which masks become tokens.  The numbers are llama.cpp's. */
enum weft_denoise_by {
  WEFT_DENOISE_BY_CHANCE,        /* each with the same probability, and it is drawn only then */
  WEFT_DENOISE_BY_ENTROPY,       /* those whose candidates have the lowest entropy */
  WEFT_DENOISE_BY_MARGIN,        /* those whose likeliest candidate is furthest from the second */
  WEFT_DENOISE_BY_RANDOM_ORDER,  /* as many as the schedule says, at random */
  WEFT_DENOISE_BY_PROBABILITY    /* those whose token has the highest probability: the default */
};
typedef struct weft_denoising {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  int steps;                 /* evaluations of the text; 0: 128 */
  /* How many masks each step takes.  block_length > 0: the text behind the prompt is done in blocks of so many
   * tokens, one after the other, each in as many steps; it divides the length of the text, and the number of blocks
   * divides steps.  0: all masks at once; time goes from 1 to eps, and a step takes the share that it goes down by. */
  int block_length;
  double eps;                /* above 0, below 1; 0: 0.001 */
  int algorithm;             /* enum weft_denoise_by */
  /* 1e-30 to 1e6: masks are drawn by what decides, over this temperature; 0: the best ones */
  double algorithm_temp;
  /* > 0: the text is evaluated once more with masks in place of the prompt, and logits go away from those by this
   * factor (classifier-free guidance) */
  double cfg_scale;
  /* Of each mask's token: the top_k likeliest (0 or less: all), of these the fewest with probability top_p together,
   * then a draw at temp (1e-6 to 1e6).  temp 0: the likeliest, and its probability counts as at temp 1. */
  double temp;
  int top_k;
  double top_p;
  bool gumbel_noise;         /* a draw from all tokens by noise on logits, whatever top_k and top_p say */
  uint32_t seed;             /* of std::mt19937, drawn from as llama.cpp does */
  /* before each step, with the text as it is: false ends it.  May be NULL */
  bool (*step)(void *ctx, int step, int n_steps, const int32_t *ids);
  /* of each mask that becomes a token: its place, and the logits.  May be NULL */
  void (*token)(void *ctx, size_t place, int32_t id, const float *logits);
  void *ctx;
} weft_denoising;
/* steps 128, algorithm WEFT_DENOISE_BY_PROBABILITY, temp .8, top_k 40, top_p .95, everything else 0 */
void weft_denoising_init(weft_denoising *d, size_t size);
static inline weft_denoising weft_denoising_default(void) {
  weft_denoising d;
  weft_denoising_init(&d, sizeof d);
  return d;
}
/* Denoises a text of n tokens: the first n_prompt of ids are given (masks among them become tokens, too), the others
 * are written.  0; 1: step ended it, and masks are left; -1: a model that does not denoise or has no mask token, a
 * prompt that is no shorter than the text, a text that does not fit the context, or a value out of range. */
int weft_denoise(weft_model *m, int32_t *ids, size_t n, size_t n_prompt, const weft_denoising *how, weft_error *err);

/* weft_denoise, one step after the other: between two steps the model may evaluate other texts.  A text of n tokens, of
 * which the first n_prompt are given; ids stay the caller's and change until weft_denoiser_free. */
typedef struct weft_text { int32_t *ids; size_t n, n_prompt; } weft_text;
typedef struct weft_denoiser weft_denoiser;
int weft_denoiser_new(weft_model *m, weft_text *text, const weft_denoising *how, weft_denoiser **out, weft_error *err);
/* Evaluates the text once.  GOES_ON: call it again; DONE: no mask is left; ENDED: `step` of weft_denoising ended it;
 * -1: an error. */
enum { WEFT_DENOISE_DONE, WEFT_DENOISE_GOES_ON, WEFT_DENOISE_ENDED };
int weft_denoiser_step(weft_denoiser *d, weft_error *err);
void weft_denoiser_free(weft_denoiser *d);                   /* NULL is allowed */

WEFT_END
#endif
