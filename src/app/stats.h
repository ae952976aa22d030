// stats: the figures of one run, for people (stderr) and for programs (--stats).
#ifndef WEFT_APP_STATS_H
#define WEFT_APP_STATS_H
#include "base/base.h"
#include "weft.h"

struct run_stats {
  weft_stats model;
  size_t n_prompt, n_decode;          // tokens evaluated
  size_t n_written;                   // tokens sampled
  weft_speculation_counts speculation;
  double prompt_s, decode_s;          // seconds spent on them, without compiling
  double first_token_s;               // from the start of the program to the first token; < 0: no token
};
void stats_print(const struct run_stats *s, FILE *to);
// "2 tokens read at 185/s, 127 written at 15 k/s, seed 42"; seed < 0: no token was sampled.
void stats_line(const struct run_stats *s, int64_t seed, FILE *to);
// " at 15 k/s" for n tokens in `seconds`; "" if too short to tell.
const char *stats_rate(char *out, size_t cap, size_t n, double seconds);
double stats_compile_ms(const weft_model *m);   // so far
// Writes the JSON object. -1 and an error.
int stats_write(const struct run_stats *s, const char *path, error *err);
#endif
