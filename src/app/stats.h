// stats: the figures of one run, for people (stderr) and for programs (--stats).
#ifndef WEFT_APP_STATS_H
#define WEFT_APP_STATS_H
#include "base/base.h"
#include "weft.h"

struct run_stats {
  weft_stats model;
  size_t n_prompt, n_decode;          // tokens evaluated
  double prompt_s, decode_s;          // seconds spent on them, without compiling
  double first_token_s;               // from the start of the program to the first token; < 0: there was none
};
void stats_print(const struct run_stats *s, FILE *to);
// Writes the JSON object.  -1 and why not.
int stats_write(const struct run_stats *s, const char *path, error *err);
#endif
