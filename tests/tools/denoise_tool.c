// denoise_tool MODEL TEMP ALGORITHM_TEMP CFG_SCALE: weft_denoise of 8 tokens, whose options the command does not all
// pass on. Prints the tokens, or what was wrong with status 1.
#include <stdio.h>
#include <stdlib.h>
#include "weft.h"

int main(int argc, char **argv) {
  weft_error e;
  weft_model *m;
  weft_options o = {.size = sizeof o, .context = 64};
  weft_denoising how = weft_denoising_default();
  int32_t ids[8] = {1, 2, 3};
  if (argc != 5) return 2;
  how.temp = strtod(argv[2], NULL);
  how.algorithm_temp = strtod(argv[3], NULL);
  how.cfg_scale = strtod(argv[4], NULL);
  how.steps = 2;
  if (weft_model_open(argv[1], &o, &m, &e)) { puts(e.text); return 2; }
  int status = weft_denoise(m, ids, 8, 3, &how, &e);
  if (status) puts(e.text);
  for (int i = 0; i < 8 && !status; i++) printf("%d ", (int)ids[i]);
  weft_model_close(m);
  return status ? 1 : 0;
}
