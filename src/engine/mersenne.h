// mersenne: the generator std::mt19937, and numbers from 0 to 1 as libstdc++'s std::uniform_real_distribution makes
// them. Only denoising uses it (denoise.c), so that a seed gives the tokens that llama.cpp draws.
#ifndef WEFT_MERSENNE_H
#define WEFT_MERSENNE_H
#include "base/base.h"

enum { MERSENNE_WORDS = 624 };
typedef struct mersenne { uint32_t word[MERSENNE_WORDS]; int at; } mersenne;

void mersenne_seed(mersenne *r, uint32_t seed);
uint32_t mersenne_next(mersenne *r);
double mersenne_double(mersenne *r);             // [0, 1), from two words
float mersenne_float(mersenne *r);               // [0, 1), from one word
#endif
