// mersenne: the generator of std::mt19937, and numbers from it as libstdc++'s std::uniform_real_distribution draws them
// from 0 to 1. Only denoising draws by it (denoise.c): the same seed gives the tokens that llama.cpp draws.
#ifndef WEFT_MERSENNE_H
#define WEFT_MERSENNE_H
#include "base/base.h"

enum { MERSENNE_WORDS = 624 };
typedef struct mersenne { uint32_t word[MERSENNE_WORDS]; int at; } mersenne;

void mersenne_seed(mersenne *r, uint32_t seed);
uint32_t mersenne_next(mersenne *r);
double mersenne_double(mersenne *r);             // [0, 1), of two words
float mersenne_float(mersenne *r);               // [0, 1), of one word
#endif
