/* weft.h: the public C API of Weft.  A GGUF file goes in, tokens come out.
 *
 * The handles, each opaque:
 *
 *   weft_file      a GGUF file, checked: its metadata and its table of tensors
 *   weft_vocab     the tokenizer that a file describes: text to tokens and back
 *   weft_model     a model that runs: weights, compiled kernels, and the caches of its sequences
 *   weft_sequence  the positions that one conversation has left in the caches
 *   weft_sampler   from the logits of one position to a token
 *   weft_grammar   which tokens may come next, so that the text matches a grammar, schema or regular expression
 *   weft_stream    from tokens, one at a time, to text in whole characters
 *   weft_stop      looks for stop strings in such text
 *   weft_template  from a conversation to the text that a model expects
 *   weft_answer    from what a model writes to reasoning, content and tool calls
 *
 * A program in ten lines (without its error checks):
 *
 *   weft_error err;
 *   weft_model *model;
 *   weft_model_open("model.gguf", NULL, &model, &err);
 *   int32_t *ids; size_t n;
 *   weft_tokenize(weft_model_vocab(model), "Hello", 5, WEFT_ADD_SPECIAL, &ids, &n, &err);
 *   const float *logits;
 *   weft_decode(model, ids, n, 0, &logits, &err);
 *   weft_sampler *sampler;
 *   weft_sampler_new(weft_model_vocab_size(model), NULL, &sampler, &err);
 *   int32_t next; weft_sample(sampler, logits, &next, &err);
 *
 * Errors.  A function that can fail returns 0 if it succeeded and -1 if it did not.  Then err->text (err may be NULL)
 * holds one sentence that names the file, key and value in question, and outputs are untouched.  Bad files, requests
 * and environments are errors, never crashes.  A broken invariant of the library itself ("internal error at
 * FILE:LINE") is an error, too, while a model is loaded or evaluated (see weft_model_check).  Anywhere else it ends the
 * program with a message, and so does an allocation of ordinary size that fails.
 *
 * Ownership.  A new handle is freed by the function named beside it; text and ids from weft_tokenize and
 * weft_detokenize by weft_free.  A const pointer is borrowed from the handle it came from.
 *
 * Threads.  A weft_file, a weft_vocab and a weft_template may be used by many threads at once; every other handle by
 * one at a time.
 *
 * Units.  Sizes are in bytes, times in milliseconds; token ids count from 0.
 */
#ifndef WEFT_H
#define WEFT_H
#include "weft/base.h"        /* errors and memory */
#include "weft/file.h"        /* GGUF files */
#include "weft/vocab.h"       /* tokens */
#include "weft/chat.h"        /* templates and answers */
#include "weft/model.h"       /* models, evaluation, embeddings */
#include "weft/denoise.h"     /* models that denoise texts */
#include "weft/media.h"       /* pictures and sound */
#include "weft/sequence.h"    /* sequences and stores */
#include "weft/speculation.h" /* speculative decoding */
#include "weft/sampling.h"    /* samplers and stop strings */
#include "weft/grammar.h"     /* grammars and schemas */
#include "weft/quantize.h"    /* other formats, importance weights */
#include "weft/measure.h"     /* profiles and tuning */
#include "weft/machine.h"     /* this machine and the kernel cache */
#include "weft/export.h"      /* programs that carry a model and its kernels */
#endif
