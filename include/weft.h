/* weft.h: the public C API of Weft.  A GGUF file goes in, tokens come out.
 *
 * The handles, each opaque:
 *   weft_file     a GGUF file, checked: its metadata and its table of tensors
 *   weft_vocab    the tokenizer that a file describes: text to tokens and back
 *   weft_model    a model that runs: weights, compiled kernels, and the caches of its sequences
 *   weft_sequence the positions that one conversation has left in the caches
 *   weft_sampler  from the logits of one position to a token
 *   weft_grammar  which tokens may come next, so that the text will be what a grammar, schema or regular expression
 * describes weft_stream   from tokens, one at a time, to text in whole characters weft_stop     looks for stop strings
 * in such text weft_template from a conversation to the text that a model expects weft_answer   from what a model
 * writes to reasoning, content and calls of tools
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
 * Errors.  A function that can fail returns 0 when it succeeded and -1 when it did not; then err->text (err may be
 * NULL) holds one sentence that names the file, key and value in question, and outputs are untouched.  Bad files,
 * requests and environments are errors, never crashes.  A broken invariant of the library itself ends the program with
 * a message, and so does an allocation of ordinary size that fails. Ownership.  What a function hands out as a new
 * handle is freed by the function named beside it; text and ids from weft_tokenize and weft_detokenize by weft_free.  A
 * const pointer is borrowed from the handle it came from. Threads.  A weft_file, a weft_vocab and a weft_template may
 * be used by many threads at once; every other handle by one at a time. Units.  Sizes are in bytes, times in
 * milliseconds; token ids count from 0.
 */
#ifndef WEFT_H
#define WEFT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
const char *weft_version(void);               /* "0.1.0", of the library that is linked */

typedef struct weft_error { char text[1024]; } weft_error;   /* needs no initialisation */

void weft_free(void *p);                      /* NULL is fine */
/* Any bytes as valid UTF-8: what is broken becomes U+FFFD.  Terminated (*n_out does not count that), for weft_free. */
char *weft_utf8(const char *text, size_t n, size_t *n_out);

/* ---- Files
 * Opening
 * checks all headers and maps the file; no weight is read.  Of a split model (X-00001-of-00003.gguf) open the first. */
typedef struct weft_file weft_file;
int weft_file_open(const char *path, weft_file **out, weft_error *err);
void weft_file_close(weft_file *f);           /* NULL is fine */
const char *weft_file_path(const weft_file *f);
uint32_t weft_file_version(const weft_file *f);      /* of the GGUF format: 2 or 3 */
uint32_t weft_file_alignment(const weft_file *f);    /* of tensor data, in bytes */
size_t weft_file_n_parts(const weft_file *f);        /* files of a split model; otherwise 1 */
uint64_t weft_file_bytes(const weft_file *f);        /* of all parts */

/* Metadata, in the order of the file. */
enum weft_type {
  WEFT_UINT8,
  WEFT_INT8,
  WEFT_UINT16,
  WEFT_INT16,
  WEFT_UINT32,
  WEFT_INT32,
  WEFT_FLOAT32,
  WEFT_BOOL,
  WEFT_STRING,
  WEFT_ARRAY,
  WEFT_UINT64,
  WEFT_INT64,
  WEFT_FLOAT64
};
typedef struct weft_value {
  enum weft_type type;
  uint64_t u;                /* UINT*; BOOL as 0 or 1 */
  int64_t i;                 /* INT* */
  double f;                  /* FLOAT* */
  const char *text;          /* STRING: its bytes, any at all and not terminated */
  size_t n;                  /* STRING: how many bytes; ARRAY: how many elements */
  enum weft_type elem;       /* ARRAY: type of its elements, never ARRAY */
} weft_value;
const char *weft_type_name(enum weft_type t);                  /* "UINT32" */
size_t weft_file_n_keys(const weft_file *f);
const char *weft_file_key(const weft_file *f, size_t i);       /* UTF-8; NULL where there is no such index */
int weft_file_value(const weft_file *f, size_t i, weft_value *out);             /* -1: no such index */
int weft_file_element(const weft_file *f, size_t i, size_t j,
                      weft_value *out); /* element j of an array; -1: no such element */
int weft_file_find(const weft_file *f, const char *key, size_t *i);             /* -1: no such key */
/* The value for people: strings quoted, at most max_items elements of an array and 20 * max_items bytes of a string
 * (0: all).  For weft_free. */
char *weft_file_value_text(const weft_file *f, size_t i, size_t max_items);

/* Tensors, in the order of the file. */
typedef struct weft_tensor {
  const char *name;          /* UTF-8 */
  const char *type;          /* "Q4_0" */
  uint32_t n_dims;           /* 1..4 */
  int64_t shape[4];          /* shape[0] is contiguous; 1 from n_dims on */
  uint64_t n_elements, bytes;
  uint64_t offset;           /* of the data, from the beginning of its part */
  uint32_t part;             /* which file of a split model, from 0 */
} weft_tensor;
size_t weft_file_n_tensors(const weft_file *f);
int weft_file_tensor(const weft_file *f, size_t i, weft_tensor *out);           /* -1: no such index */
uint64_t weft_file_n_params(const weft_file *f);               /* elements of all tensors */
uint64_t weft_file_tensor_bytes(const weft_file *f);           /* bytes of all tensors */
/* Whether weft_model_open can run this file as far as its contents decide (memory is another matter): 0, or -1 and why
 * not, naming the architecture that is not known, or the key or tensor that does not fit.  No weight is read. */
int weft_file_can_run(const weft_file *f, weft_error *err);
/* The number of the block by which the model guesses for itself (weft_draft_own); -1: it has none, or cannot run. */
int weft_file_mtp(const weft_file *f);
/* Files are mapped.  Reading one that is cut while it is open, or whose disk fails, gives zeros (the library handles
 * SIGBUS for its own mappings and hands on any other); whatever reads it and has a weft_error says so.  For what has
 * none: 0, or -1 if the file is no longer whole. */
int weft_file_check(const weft_file *f, weft_error *err);
/* What becomes of each metadata value under the architecture's name when a model is made of this file: texts for the
 * n_keys keys, in their order: "read", "not supported", or why it changes nothing.  NULL: not under that name, or an
 * error came first.  For weft_free. */
const char **weft_file_key_uses(const weft_file *f);
/* What the model is, in short: "llama 1.2B Q4_K_M" (architecture, size, and what its maker called the mixture of types;
 * the type that most bytes have where that is not said, both where they differ: "gemma3 268.1M Q4_K_M (mostly Q8_0)").
 * For weft_free. */
char *weft_file_summary(const weft_file *f);

/* ---- Vocabulary
 * Works on any
 * file that has one, with or without tensors, of any architecture.  A tokenizer that Weft does not know is an error
 * only when text has to be encoded. */
typedef struct weft_vocab weft_vocab;
int weft_vocab_open(const weft_file *f, weft_vocab **out, weft_error *err);     /* f must stay open as long */
void weft_vocab_close(weft_vocab *v);         /* NULL is fine */
int32_t weft_vocab_size(const weft_vocab *v);
enum {
  WEFT_ADD_SPECIAL = 1, /* BOS in front and EOS at the end, where the model wants them */
  WEFT_PARSE_SPECIAL = 2 /* the texts of control tokens become those tokens: for templates, never for what users type */
};
/* n bytes of text to tokens; any bytes can be encoded.  *ids is for weft_free, also when *n_ids is 0. */
int weft_tokenize(const weft_vocab *v, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *n_ids,
                  weft_error *err);
/* The same for a text that comes in pieces, in bounded memory: the ids of all calls together are those of the whole
 * text, however it is cut.  An id comes as soon as nothing that may follow can change it, usually a word later. */
typedef struct weft_encoder weft_encoder;
int weft_encoder_new(const weft_vocab *v, unsigned flags, weft_encoder **out, weft_error *err); /* v must outlive it */
/* *ids are borrowed until the next call.  After an error there is nothing more to be had from e. */
int weft_encoder_add(weft_encoder *e, const char *text, size_t n, const int32_t **ids, size_t *n_ids, weft_error *err);
/* The text has ended: its last ids.  What is added after that begins another text. */
int weft_encoder_end(weft_encoder *e, const int32_t **ids, size_t *n_ids, weft_error *err);
void weft_encoder_free(weft_encoder *e);      /* NULL is fine */
/* Tokens to text: the inverse.  special: control tokens are shown.  *text is terminated (*n does not count that) and
 * for weft_free; it can hold NUL bytes.  An id outside the vocabulary is an error. */
int weft_detokenize(const weft_vocab *v, const int32_t *ids, size_t n_ids, bool special, char **text, size_t *n,
                    weft_error *err);
/* The bytes of one token, which can be a part of a character; a control token gives nothing unless special.  Terminated
 * (*n does not count that), for weft_free; "" for an id outside the vocabulary. */
char *weft_piece(const weft_vocab *v, int32_t id, bool special, size_t *n);
bool weft_is_end(const weft_vocab *v, int32_t id); /* an end-of-generation token (EOS, EOT, <|im_end|>, ...) */
int32_t weft_bos(const weft_vocab *v);                         /* -1: this model has none */
int32_t weft_eos(const weft_vocab *v);                         /* -1: this model has none */

/* A token can end in the middle of a character.  A stream holds such bytes back; what can never become a character
 * turns into U+FFFD.  The text given is valid UTF-8, terminated, n bytes long, and borrowed until the next call. */
typedef struct weft_stream weft_stream;
weft_stream *weft_stream_new(const weft_vocab *v, bool special);                /* never NULL; weft_stream_free */
const char *weft_stream_add(weft_stream *s, int32_t id, size_t *n); /* the characters that id completes; can be "" */
const char *weft_stream_end(weft_stream *s, size_t *n); /* U+FFFD if a character is unfinished */
void weft_stream_free(weft_stream *s);

/* ---- Chat templates
 * How a
 * conversation becomes a prompt is written in a template, which is part of a model file: a program in Jinja, evaluated
 * as Python's jinja2 does under transformers.  It computes on its input and has limits on time, memory, depth and
 * output. */
typedef struct weft_template weft_template;
/* From the text of a template (UTF-8; copied); name begins error messages, which give line and reason. */
int weft_template_open(const char *text, size_t n, const char *name, weft_template **out, weft_error *err);
/* The template of a model file, with its BOS and EOS.  tools: the one for conversations with tools, where the file has
 * two. */
int weft_template_of_file(const weft_file *f, bool tools, weft_template **out, weft_error *err);
void weft_template_close(weft_template *t);   /* NULL is fine */
typedef struct weft_chat {
  const char *messages;      /* JSON: [{"role": "user", "content": "Hello"}, ...] */
  size_t n_messages;         /* bytes, as all n_ here */
  const char *tools;         /* JSON: an array of function descriptions; NULL: none */
  size_t n_tools;
  const char *variables; /* JSON: an object of what else the template may ask for, such as {"enable_thinking": false};
                            NULL: none */
  size_t n_variables;
  bool no_generation_prompt; /* the text ends with the last message, not with the beginning of an answer */
  const char *bos, *eos;     /* terminated texts of these tokens; NULL: those of the model file, else none */
  const char *now;           /* the time that templates see: "2026-01-31" or "2026-01-31 23:59:59"; NULL: the clock's */
} weft_chat;
/* The prompt: UTF-8, terminated (*n does not count that), for weft_free.  Tokenize it with WEFT_PARSE_SPECIAL and, as
 * templates write BOS themselves, without WEFT_ADD_SPECIAL. */
int weft_template_render(const weft_template *t, const weft_chat *chat, char **text, size_t *n, weft_error *err);
/* The same as tokens as well.  What the messages say stays text, also where it spells a control token: those come from
 * the template alone. *ids are for weft_free, also when *n_ids is 0. */
int weft_template_encode(const weft_template *t, const weft_vocab *v, const weft_chat *chat, char **text, size_t *n,
                         int32_t **ids, size_t *n_ids, weft_error *err);

/* What a chat model writes, taken apart while it comes: reasoning, content, and calls of tools, in the format that the
 * model's template shows.  The parts depend on the text alone, not on how it is cut; what cannot be read as a call is
 * content as it stands. */
enum weft_part_kind { WEFT_CONTENT, WEFT_REASONING, WEFT_CALL };
typedef struct weft_part {
  enum weft_part_kind kind;
  const char *text;          /* terminated, valid UTF-8; of a call its arguments, a JSON object */
  size_t n;
  const char *name, *id;     /* of a call */
} weft_part;
typedef struct weft_answer weft_answer;
/* t: NULL for the formats that need no template.  prompt: what was rendered; its end says whether the answer begins
 * inside of reasoning.  tools: the JSON that the template got; NULL: none, and calls are content. */
int weft_answer_new(const weft_template *t, const char *prompt, size_t n_prompt, const char *tools, size_t n_tools,
                    weft_answer **out, weft_error *err);
/* More text, from a stream that shows control tokens.  The parts that it completes are borrowed until the next call;
 * returns their number. */
size_t weft_answer_add(weft_answer *a, const char *text, size_t n, const weft_part **parts);
size_t weft_answer_end(weft_answer *a, const weft_part **parts);      /* no more text comes */
/* What comes next is content as far as anyone can tell: neither reasoning nor a call.  A grammar for the content alone
 * asks that. */
bool weft_answer_in_content(const weft_answer *a);
void weft_answer_free(weft_answer *a);        /* NULL is fine */

/* ---- Models */
typedef struct weft_model weft_model;
/* An adapter (LoRA), as llama.cpp has it in a GGUF file of its own: it changes what a model computes, by `scale`. */
typedef struct weft_adapter { const char *path; double scale; } weft_adapter;
typedef struct weft_options {
  int context;               /* positions of the KV cache; 0: as many as the model was trained for, or half,
                                a quarter, ... of that where memory is short.  Reserved, not committed */
  int threads;               /* 0: what affinity, control group and cores suggest */
  int prompt_threads;        /* for prompts; 0: as many */
  int chunk;                 /* positions of a prompt that are evaluated at once; 0: default */
  int gpu_layers;            /* layers, from the last one down, that lie on the device that DEV names, where that is not
                                the CPU: the others, and the embedding, are on the CPU.  0: as many as its memory has
                                room for; -1: none.  More than there is room for, or a cut where layers need more of
                                each other than what flows through: an error that says what fits */
  bool
    no_repack; /* weights are read where they lie in the file: needs less memory while loading, several times slower */
  const char *const *settings; /* "key=type:value" (int, float, bool, str): metadata in place of the file's; "{arch}."
                                * at the beginning of a key is the architecture's name */
  size_t n_settings;
  const weft_adapter *adapters;  /* all of them together */
  size_t n_adapters;
  const char *key_cache,
    *value_cache; /* how keys and values lie in the KV cache: "f16", "f32", "bf16", "q8_0" or "q4_0"; NULL: "f16" */
  bool exact;                /* activations stay 32-bit floats: slower, and closer to plain arithmetic */
  bool mtp;                  /* the file's own block for guesses, where it has one, is used: see weft_draft_own */
  /* "loading" or "compiling", 0..1; may be NULL.  Called while the model opens, and from weft_decode when that has
   * something to compile: progress_ctx must live as long as the model. */
  void (*progress)(void *ctx, const char *what, double fraction);
  void *progress_ctx;
} weft_options;
/* Checks the file, maps it and prepares the kernels.  opt NULL: defaults.  Refuses a model that needs more memory than
 * is free, with the numbers. */
int weft_model_open(const char *path, const weft_options *opt, weft_model **out, weft_error *err);
void weft_model_close(weft_model *m);         /* NULL is fine */
const weft_file *weft_model_file(const weft_model *m);
const weft_vocab *weft_model_vocab(const weft_model *m);
int32_t weft_model_vocab_size(const weft_model *m);            /* logits of a position */
int weft_model_context(const weft_model *m);                   /* positions of the KV cache */
int weft_model_threads(const weft_model *m);

/* Evaluates n tokens at positions pos .. pos+n-1.  What the KV cache holds before pos is kept, what it held from pos on
 * is replaced: pos 0 starts a new sequence, pos = tokens evaluated so far continues.  *logits (NULL: not wanted) points
 * to vocab_size floats for the token after the last one, valid until the next call.  An error: an id outside the
 * vocabulary, a position that leaves a gap or lies outside the context, logits that are not numbers (damaged weights).
 * The result depends on ids and positions alone, to the last bit: not on how a prompt is cut into calls, and not on the
 * number of threads.  (Models with recurrent layers, or with sliding windows that have moved on: going back may
 * evaluate what lies before pos once more, see weft_sequence_whole.)  0; 1: it ended early (weft_model_watch), and the
 * cache holds what it held before pos; -1 with err. */
int weft_decode(weft_model *m, const int32_t *ids, size_t n, int pos, const float **logits, weft_error *err);

/* While a prompt is evaluated by weft_decode or weft_decode_rows, watch (NULL: nobody) is called every few milliseconds
 * on the caller's thread: so many of its tokens are through, and parts of those under way.  Where it returns false the
 * evaluation ends within milliseconds.  Single tokens and other devices than CPU: only before a run of kernels. */
typedef bool weft_watch(void *ctx, double done);
void weft_model_watch(weft_model *m, weft_watch *watch, void *ctx);

/* The same, and the logits of every token from ids[first] on (first < n): row is called with those of the token after
 * ids[i], in order; they are valid while it runs.  Where it returns false the evaluation ends, and positions that
 * follow i may have been evaluated or not. Memory is that of one chunk's logits, however many tokens there are. */
typedef bool weft_row(void *ctx, size_t i, const float *logits);
int weft_decode_rows(weft_model *m, const int32_t *ids, size_t n, int pos, size_t first, weft_row *row, void *ctx,
                     weft_error *err);

/* A text as a vector.  Any model can make one; some make nothing else: those see a text as a whole, and weft_decode
 * refuses them. */
enum weft_pooling {
  WEFT_POOLING_MODEL = -1,   /* what the file says */
  WEFT_POOLING_NONE,         /* a vector for each token */
  WEFT_POOLING_MEAN,
  WEFT_POOLING_CLS,          /* the first token's */
  WEFT_POOLING_LAST,
  WEFT_POOLING_RANK          /* scores instead of a vector, of models that rank texts and make nothing else */
};
bool weft_model_only_embeds(const weft_model *m);
int32_t weft_model_embedding_size(const weft_model *m);        /* elements of a vector */
/* What the file says, or WEFT_POOLING_MODEL where it says nothing.  */
int weft_model_pooling(const weft_model *m, enum weft_pooling *pooling, weft_error *err);
/* The vector of a text of n tokens (with those that the model puts around it), size floats; of WEFT_POOLING_NONE, and
 * of _MODEL where the file says nothing, n of them, one after the other.  They are as the model makes them: see
 * weft_embedding_normalize.  What the KV cache held is lost.  An error: no token, an id outside the vocabulary, more
 * tokens than the context, a vector that holds what is no number. */
int weft_embed(weft_model *m, const int32_t *ids, size_t n, enum weft_pooling pooling, float *out, weft_error *err);
/* A question and a text as the one text that a model which ranks sees: by the file's template for this, or one behind
 * the other with what ends each.  parse_special: of both.  *ids is for weft_free. */
int weft_tokenize_pair(const weft_model *m, const char *question, size_t n_question, const char *text, size_t n_text,
                       bool parse_special, int32_t **ids, size_t *n_ids, weft_error *err);
/* v / length, where the length is for p = 2 the usual one, for other p >= 1 the p-th root of the sum of |x|^p; p = 0:
 * the largest |x| becomes 32760; p = -1: nothing changes.  A vector of zeros stays one. */
void weft_embedding_normalize(float *v, size_t n, int p);

/* ---- Tokens ahead
 * Where a text
 * repeats what it said before, the tokens that follow can be guessed and evaluated together with the one that was
 * drawn, which costs little more.  Logits are what weft_decode would give, to the last bit: whoever draws takes no
 * notice. */
typedef struct weft_ahead weft_ahead;
enum weft_guessing {
  WEFT_GUESS_NEVER,
  WEFT_GUESS_WHERE_IT_PAYS,
  WEFT_GUESS_ALWAYS /* wherever something can be guessed: for tests */
};
/* Nothing is ever guessed for models with recurrent layers.  Freed before the model is closed. */
weft_ahead *weft_ahead_new(weft_model *m, enum weft_guessing how);
/* The same for a sequence (below).  It may hold guesses that were wrong, behind what was asked for, until it is cut. */
struct weft_sequence;
weft_ahead *weft_ahead_of_sequence(weft_model *m, struct weft_sequence *q, enum weft_guessing how);
void weft_ahead_free(weft_ahead *a);          /* NULL is fine */
/* Guesses of a second, smaller model, too (its own sequence is not touched): what it holds for likely.  The
 * vocabularies have to be the same, as far as both have ids.  d is used by all that belongs to m, on one thread at a
 * time, and freed after what was made with it and before both models. */
typedef struct weft_draft weft_draft;
typedef struct weft_draft_options {
  int most, least;           /* tokens of a guess; fewer than `least` are dropped. most 0, or above 7: 7 */
  double p_min;              /* a guess ends before a token that is less likely than this */
} weft_draft_options;
/* opt NULL: defaults.  Refuses what cannot guess for m, with the first id whose text is another one. */
int weft_draft_new(const weft_model *m, weft_model *draft, const weft_draft_options *opt, weft_draft **out,
                   weft_error *err);
/* The same of a block that m itself has for that (weft_options.mtp), as files with nextn_predict_layers have it;
 * *out NULL: it has none. m keeps what this needs of each token, which is a small part of what a layer computes. */
int weft_draft_own(weft_model *m, const weft_draft_options *opt, weft_draft **out, weft_error *err);
/* What is otherwise made for its first guess, which waits for that, is made now. */
int weft_draft_prepare(weft_draft *d, weft_error *err);
void weft_draft_free(weft_draft *d);          /* NULL is fine */
/* Seconds that it has evaluated so far, without those in which kernels were made. */
double weft_draft_seconds(const weft_draft *d);
/* While it rests, nobody asks it: where others would wait for what it thinks. */
void weft_draft_rest(weft_draft *d, int rests);
void weft_ahead_draft(weft_ahead *a, weft_draft *d);           /* once, before the first token */
/* weft_decode of one token at `pos`, behind past[0 .. pos - 1], which the KV cache (the sequence) holds.  *logits are
 * valid until the model evaluates something else.  How often it guesses depends on what guesses have won: they may cost
 * a hundredth of the time where they win nothing. */
int weft_ahead_decode(weft_ahead *a, const int32_t *past, int pos, int32_t id, const float **logits, weft_error *err);
/* The same in steps of several sequences (weft_step), which the caller takes.  Before one: logits behind token id at
 * pos, where a guess has been evaluated and was right, valid until weft_ahead_evaluated; NULL: they have to be
 * evaluated. */
const float *weft_ahead_known(weft_ahead *a, int pos, int32_t id);
/* Then: how many tokens the step is to have of this sequence (1, or more where the guess is worth it), all of their
 * rows, and which (*ids, with id first). value_s: seconds that a token of this sequence costs now; extra_s: about what
 * the guessed ones would make the step longer by.  Memory for them is reserved. */
size_t weft_ahead_guess(weft_ahead *a, const int32_t *past, int pos, int32_t id, double value_s, double extra_s,
                        const int32_t **ids);
/* And after it, where there were more: the n rows, which are copied, and what it really was longer by. */
void weft_ahead_evaluated(weft_ahead *a, int pos, size_t n, const float *rows, double extra_s);
/* Tokens; taken: that were drawn indeed. drafted: of these, what a weft_draft guessed. */
typedef struct weft_ahead_counts { uint64_t guessed, taken, drafted, drafted_taken; } weft_ahead_counts;
weft_ahead_counts weft_ahead_count(const weft_ahead *a);

/* ---- Sequences
 * A model can
 * hold many sequences.  Each takes memory for the positions that it holds, in pages of 128, and gives it back when it
 * ends; those that begin alike can share pages.  A step evaluates tokens of several sequences at once: weights are read
 * once for all of them.  The logits of a sequence are the same, to the last bit, whatever else is in a step. */
typedef struct weft_sequence weft_sequence;
int weft_sequence_new(weft_model *m, weft_sequence **out,
                      weft_error *err); /* empty; freed before the model is closed */
void weft_sequence_free(weft_sequence *q);    /* NULL is fine */
/* Whether a sequence has states that go back to an earlier position only by evaluating what lies before it once more
 * (recurrent layers). */
bool weft_model_is_recurrent(const weft_model *m);
int weft_sequence_length(const weft_sequence *q);              /* positions that it holds */
/* The most positions, n at most, at which q can be cut or forked without some of what is left being evaluated once more
 * before anything can follow (which the next step does): recurrent layers know their last state alone, and layers with
 * a sliding window give back what it has left behind, but 512 positions and what marks ask for.  Otherwise n. */
int weft_sequence_whole(const weft_sequence *q, int n);
/* Others may go on from anywhere between positions `from` and `to`, and are likely to from `to`, which may lie before
 * what q holds or behind it: what windows need there stays at some of these places, in pages that take at most a
 * quarter of what layers without a window hold, or two windows where that is more. */
void weft_sequence_mark(weft_sequence *q, int from, int to);
bool weft_sequence_thin(weft_sequence *q);        /* forgets the marks; whether that gave memory back */
void weft_sequence_cut(weft_sequence *q, int n);               /* forgets what lies from position n on */
/* Another sequence that begins with the first n positions of q (n <= its length).  Pages are shared until one of the
 * two writes to them. */
int weft_sequence_fork(const weft_sequence *q, int n, weft_sequence **out, weft_error *err);
/* What the caches hold of q goes to a file, which is written whole or not at all. ids: the tokens of its positions,
 * weft_sequence_length of them. Only where q is whole (weft_sequence_whole). Others of the model may be
 * evaluated meanwhile, on another thread, forks of q among them. */
int weft_sequence_save(const weft_sequence *q, const int32_t *ids, const char *path, weft_error *err);
/* A sequence that holds as many of these n tokens as the file's begin with, back to where that is whole, as
 * if they had been evaluated.  -2: the file is of another model, other options or another version, or
 * damaged, and err names it; -1: there is no memory. */
int weft_sequence_load(weft_model *m, const int32_t *ids, size_t n, const char *path, weft_sequence **out,
                       weft_error *err);
/* Sequences in a folder, a file for each page, named by all tokens up to it and the model: what begins alike is there
 * once, and a prompt finds whatever beginning of it some sequence had.  name: of the model, so that several may have
 * the same folder; bytes: of all files there, at most: the pages that were used least lately go first. Files that are
 * damaged or of other options stay, with a warning.  -1: the folder cannot be read.  Two threads may use a store, one
 * that finds and loads and one that saves, and other sequences of the model may be evaluated meanwhile. */
typedef struct weft_store weft_store;
int weft_store_open(weft_model *m, const char *folder, const char *name, uint64_t bytes, weft_store **out,
                    weft_error *err);
void weft_store_close(weft_store *s);             /* before the model; NULL is fine */
/* With how many of these tokens a sequence can be taken up from files. */
size_t weft_store_find(weft_store *s, const int32_t *ids, size_t n);
/* That sequence.  1: there is none any more; -1: there is no memory for it; -2: a file is damaged: err names it, and it
 * has been removed. */
int weft_store_load(weft_store *s, const int32_t *ids, size_t n, weft_sequence **out, weft_error *err);
/* Whether some page of q, which is whole, is in no file; and writes those.  ids: the tokens of its positions. */
bool weft_store_lacks(weft_store *s, const weft_sequence *q, const int32_t *ids);
int weft_store_save(weft_store *s, const weft_sequence *q, const int32_t *ids, weft_error *err);
/* Memory for n more tokens, so that a step will not fail for want of it.  -1: there is none; err has the numbers. */
int weft_sequence_reserve(weft_sequence *q, size_t n, weft_error *err);
typedef struct weft_tokens {
  weft_sequence *sequence;   /* each of a step is another one */
  const int32_t *ids;        /* n of them, behind what the sequence holds */
  size_t n;
  const float *logits;       /* out: for the token after the last one, valid until the model evaluates something else */
  size_t rows; /* 0 and 1: that. More: for those after so many of the last ones, a row of weft_model_vocab_size behind
                  the other; not with recurrent layers */
  bool unseen;               /* logits are not wanted of it: a step takes less time; out: NULL */
} weft_tokens;
/* At most as many rows of all parts together as weft_model_chunk.  stop (may be NULL) is asked every few
 * milliseconds, also within a kernel that takes long, but not within that of a single token.  0; 1: stop said so, and
 * every sequence is as it was; -1: an unknown id, no room in the context or in memory (and every sequence is as it
 * was), or damaged weights. */
int weft_step(weft_model *m, weft_tokens *parts, size_t n_parts, bool (*stop)(void *ctx), void *ctx, weft_error *err);
/* As weft_decode_rows, behind what the sequence holds. */
int weft_sequence_rows(weft_sequence *q, const int32_t *ids, size_t n, size_t first, weft_row *row, void *ctx,
                       weft_error *err);

/* Loading leaves some work for later, which is done bit by bit between tokens (weights move into huge pages: about a
 * second per 2 GB).  This does the rest of it now: for measurements of a steady state, or before a server says that it
 * is ready. */
void weft_model_settle(weft_model *m);

typedef struct weft_stats {
  double load_ms;            /* opening, checking and laying out the file */
  double compile_ms;         /* making kernels: 0 when all came from the cache */
  double
    schedule_ms; /* from the model to kernels: its graph, and schedules made or found in the cache; part of load_ms */
  double codegen_ms;         /* of compile_ms: what rules take; the rest is the compiler's */
  int64_t kernels_compiled, plans_scheduled;     /* those that were not in the cache */
  double kernels_per_token;  /* of one decode step */
  double kernels_per_block;  /* of them, per layer */
  double fusion_rate;        /* graph operations per kernel */
  uint64_t kv_bytes;         /* KV cache that one whole context fills */
  uint64_t peak_rss_bytes;   /* peak memory of this process, file pages included */
  int kernels, kernels_tuned; /* different ones of a decode step; of them, those that were loaded as an earlier search
                                 found them */
  int tune_tried,
    tune_better; /* WEFT_TUNE: candidates judged while the model ran, and those that took a kernel's place */
  double tune_cost;          /* share of the time of all decode steps that this took */
  const char *tune_state;    /* "on", "done", or what it waits for; NULL: off */
} weft_stats;
void weft_model_stats(const weft_model *m, weft_stats *out);   /* as of now */

/* Where the time goes, kernel by kernel, measured inside of whole steps.  A step is one token, or a chunk of a prompt.
 * All times are in microseconds per step and add up: us = overhead_us + the sum of kernels[].us.  Launches of one
 * kernel for one part of the model (in all layers) are one entry. */
typedef struct weft_kernel_time {
  const char *name;          /* "r_48_16_8_4_8": r reduces, E does not; the sizes of its loops */
  const char
    *role; /* "blk.*.ffn_down": the weight that it reads; "attention", "output", "quantise activations", "positions" */
  int count;                 /* launches per step */
  double us;                 /* of all of them, until every thread had finished */
  double wait_us;            /* of that: threads waiting for one another, on average */
  double bytes,
    flops; /* moved and done by all of them, as estimated from the loops: each byte counts once per launch */
  double cycles, instructions, cache_misses,
    branch_misses; /* counted by the processor, all threads together; 0 where there are no counters */
} weft_kernel_time;
typedef struct weft_profile {
  int tokens;                /* of a step */
  double us;                 /* a step */
  double overhead_us;        /* of that: outside of all kernels */
  double wait_us;            /* sum of the kernels' */
  const char *no_counters;   /* NULL, or why the processor's counters could not be read */
  double limit_gb_s; /* memory that the same threads can read, 10^9 bytes per second, measured just after; 0: unknown */
  double kernels_per_step;   /* dispatches: kernels that do not wait for one another share one */
  double kernels_per_block;  /* of them, per layer */
  double fusion_rate;        /* graph operations per dispatch */
  const weft_kernel_time *kernels;   /* slowest first */
  size_t n_kernels;
} weft_profile;
/* Profiles `steps` steps (1 to 10000) from position pos on, of tokens drawn at random: prompt 0: of one token each,
 * which takes a position per step; otherwise of a chunk of `prompt` tokens, at most as many as weft_options.chunk,
 * always at pos.  Positions before pos must have been evaluated; what the KV cache held from pos on is lost.  *out is
 * for weft_profile_free. */
int weft_profile_model(weft_model *m, int prompt, int steps, int pos, weft_profile **out, weft_error *err);
void weft_profile_free(weft_profile *p);      /* NULL is fine */
/* Everything that the compiler did with the model, as text for weft viz or another viewer: lines, each a JSON object:
 * an overview with kernels, buffers and a timeline of one step; the tensor graph; each different kernel with all
 * rewrites, source and assembly. The keys belong to the version of the library.  No < stands in it, so that it can be
 * put into an HTML script.  prompt, steps and pos as for weft_profile_model, but of more than 64 steps 64 are run.
 * *text is terminated (*n does not count that) and for weft_free. */
int weft_model_look(weft_model *m, int prompt, int steps, int pos, char **text, size_t *n, weft_error *err);
int weft_model_chunk(const weft_model *m);    /* tokens of a prompt that are evaluated at once */

/* Searches for better kernels than the rules choose (BEAM), on this model's own weights, and keeps in the kernel cache
 * what makes the model faster: every later run on this machine uses it.  A kernel counts as better only if it computes
 * the same bits; all that were found count only if whole tokens take less time with them, in turns with and without.
 * What the KV cache held is lost. */
typedef struct weft_tune_options {
  int beam;                  /* candidates that go on to the next round; 0: 4 */
  double seconds; /* for all searches; 0: 60.  Loading, compiling and the trial of whole tokens come on top */
  double skip_ms;            /* a kernel this fast needs no search; 0: none is */
  bool no_prompt;            /* kernels of single tokens only */
  bool no_layouts; /* weights stay laid out as they are; otherwise other layouts are tried where memory holds the
                      weights twice */
  int depth;                 /* positions before the token that is timed; less than the context */
  const char *predict;       /* times are predicted from the figures of this GPU, on a device with work-groups: nothing
                                runs, and nothing is kept; NULL: they are measured */
  void (*progress)(void *ctx, const char *what, double fraction);    /* may be NULL */
  void *progress_ctx;
} weft_tune_options;
enum weft_tune_state {
  WEFT_TUNE_SMALL,           /* its share of the time is not worth a search */
  WEFT_TUNE_KNOWN,           /* searched before: the cache knows the outcome */
  WEFT_TUNE_NOT_RUN,         /* not searched: `why` */
  WEFT_TUNE_NO_GAIN,         /* nothing better was found */
  WEFT_TUNE_DROPPED,         /* faster alone, but not in the model: not kept */
  WEFT_TUNE_BETTER           /* found and kept */
};
typedef struct weft_tuned_kernel {
  const char *name, *role;   /* as in weft_kernel_time; `name` before */
  bool prompt;               /* of the plan for prompts */
  int count;                 /* launches per step */
  double share;              /* of a step's time, before: 0..1 */
  enum weft_tune_state state;
  double before_us, after_us; /* a launch over cold weights; equal where nothing better was found; 0: unknown */
  int tried, compiled, wrong; /* candidates; those with code of their own; those whose results were not the same bits */
  const char *opts, *why;    /* the list of OptOps that was found ("": none); why there was no search */
  bool cut_short;            /* time was up before the search came to its end: one with 1.5 times as much goes on */
} weft_tuned_kernel;
/* How the weights of one format and size lie in memory: "stream" (in the order of reading), "file" (as in the file),
   "tiles2", "tiles4" (a stream of so many tiles of rows side by side), "values" (a stream of what can be computed
   ahead). */
enum weft_layout_state {
  WEFT_LAYOUT_KNOWN /* from the cache */,
  WEFT_LAYOUT_NOT_TRIED /* too small a share, or layouts_why */,
  WEFT_LAYOUT_SAME /* nothing is better */,
  WEFT_LAYOUT_DROPPED /* better alone, but not in the model, or not for prompts */,
  WEFT_LAYOUT_BETTER /* found and kept */
};
typedef struct weft_tuned_layout {
  const char *weight, *role; /* "weight Q6_K 2048 8192 1": format and sizes; the kernel that reads most of them */
  const char *layout;        /* that is in use, or (DROPPED) that was better alone */
  enum weft_layout_state state;
  double share, ratio;       /* of a token's time; of the time of these kernels, best over before (1: nothing better) */
} weft_tuned_layout;
typedef struct weft_tuned {
  const weft_tuned_kernel *kernels;    /* single tokens, then prompts; largest share first */
  size_t n_kernels;
  double token_us[2], chunk_us[2]; /* a token, and a chunk of a prompt (0 with no_prompt), before and after; medians */
  int chunk;                           /* its tokens */
  double token_bytes,
    limit_gb_s; /* that a token moves; that the same threads read from memory meanwhile, 10^9 per second (0: unknown) */
  double seconds;                      /* all of it */
  const weft_tuned_layout *layouts;    /* tried before the kernels, which are then tuned with what was kept */
  size_t n_layouts;
  const char *layouts_why;             /* why none were tried; "": they were, or are known */
  double layouts_token_us[2], layouts_chunk_us[2]; /* before and after, where some were tried in the model (else 0) */
} weft_tuned;
int weft_tune(weft_model *m, const weft_tune_options *opt, weft_tuned **out, weft_error *err); /* opt NULL: defaults */
void weft_tuned_free(weft_tuned *t);          /* NULL is fine */

/* ---- Quantising
 * A model
 * file in other formats: fewer bits, or more.  Which tensor gets which is what llama.cpp's mixtures of that name say,
 * and blocks are the same bytes.  One tensor at a time, and of that a few megabytes at a time, is in memory; the file
 * appears when it is whole. */
typedef struct weft_quantized {            /* what becomes of a tensor */
  size_t number, count;      /* from 1; of all */
  const char *name;
  const char *from, *to;     /* formats; equal: it stays as it is */
  uint32_t n_dims;
  int64_t shape[4];
  uint64_t bytes_from, bytes_to;
  bool misfit;               /* `to` took the place of a format whose blocks do not fit */
  bool needs_weights;        /* `to` is worthless without importance weights */
  bool kept;                 /* an interrupted run made it */
} weft_quantized;
typedef struct weft_quantize_options {
  const char *type;          /* "Q4_K_M", "q8_0", ...: weft_quantize_type; NULL: only copy */
  int threads;               /* 0: the default */
  bool allow_requantize;     /* tensors that are quantised already, too: worse than from the original */
  bool leave_output;         /* output.weight stays as it is */
  bool pure;                 /* every matrix in one format */
  bool keep_split;           /* as many files as the model has: out is the beginning of their names */
  bool dry_run;              /* writes nothing */
  const char *output_type,
    *embedding_type; /* formats for output.weight and the token embedding; NULL: as the mixture says */
  const char *const *tensor_types; /* "expression=format": for tensors in whose names the regular expression is found;
                                      the first one counts */
  size_t n_tensor_types;
  const char *const *overrides;                /* metadata: "key=int:1", float, bool, str */
  size_t n_overrides;
  const char *imatrix;       /* file of importance weights (imatrix), of either kind; NULL: none */
  const char *const *include, *const *exclude; /* only for tensors in whose names one of these is found; not for them */
  size_t n_include, n_exclude;
  bool (*progress)(void *ctx, double fraction);              /* false: stop; may be NULL */
  void (*tensor)(void *ctx, const weft_quantized *t);        /* before each is made; may be NULL */
  void *ctx;
} weft_quantize_options;
typedef struct weft_quantize_result {
  uint64_t bytes_from, bytes_to, n_params;     /* of all tensors */
  size_t misfits;
  bool needs_weights;        /* (dry_run) some tensor would need importance weights */
  size_t n_weights, n_missed;/* tensors that importance weights are known for; those made without */
  bool stopped;              /* progress said so; there is no file */
  size_t n_done, n_kept;     /* tensors that are whole; those of them that an interrupted run had made */
} weft_quantize_result;
/* The file appears whole or not at all. A run that is stopped or killed, or for which there is no room, leaves out.part
 * and out.part.pieces: the next run with the same input and options checks what is there and goes on. */
int weft_quantize(const char *in, const char *out, const weft_quantize_options *opt, weft_quantize_result *result,
                  weft_error *err);
/* Importance weights: sums of squares of what goes into each matrix, while a model reads texts.  m stays the caller's,
 * and is used until the end. */
typedef struct weft_imatrix weft_imatrix;
weft_imatrix *weft_imatrix_new(weft_model *m);               /* never NULL; weft_imatrix_free */
/* Reads n tokens as a text of their own; what the KV cache held is lost. */
int weft_imatrix_add(weft_imatrix *w, const int32_t *ids, size_t n, weft_error *err);
/* Writes what there is so far as llama.cpp's tools do (GGUF).  dataset: the text's name; chunk: tokens of one add, for
 * the record. */
int weft_imatrix_write(const weft_imatrix *w, const char *path, const char *dataset, int chunk, weft_error *err);
void weft_imatrix_free(weft_imatrix *w);                     /* NULL is fine */
/* The types that can be written, in turn: "F32", ..., "Q4_K_M", ...; NULL: no more. */
const char *weft_quantize_type(size_t i);
const char *weft_quantize_find(
  const char *name); /* one of them: by a name in any case, also "Q4_K", or the number that files give it; NULL: none */

/* ---- The kernel cache */
typedef struct weft_cache_entry {
  const char *kind; /* "kernel", "filling" (lays out a weight), "schedule" (of a plan), "tuning", "machine" (what was
                       measured of it) */
  const char *name, *role;   /* of the kernel; role "" where it is not known */
  size_t bytes;
  int64_t created;           /* Unix time */
  bool sound;                /* whole, and written by this user */
  bool current;              /* of this version of Weft; others are never used */
  /* Tunings only (otherwise NULL and 0): what it was made for, the compiler it was measured with, the kernel as IR, the
   * list of OptOps ("heuristic": nothing better was found), and microseconds of a launch. */
  const char *machine, *compiler, *ir, *opts;
  double before_us, after_us;
  double cut_s; /* a tuning whose search was cut short after so many seconds; 0: it came to its end */
} weft_cache_entry;
/* Visits every entry until visit returns false; texts are borrowed until then. */
int weft_cache_each(bool (*visit)(const weft_cache_entry *e, void *ctx), void *ctx, weft_error *err);
/* The folder of the cache, made if it is not there, for weft_free; NULL where there is none. */
char *weft_cache_folder(void);
int weft_cache_clear(bool tunings_only, int64_t *removed, weft_error *err);
/* Adds a tuning (name, role, machine, compiler, ir, opts and times count).  Checked: made for this machine and
 * settings, a kernel's IR, OptOps that exist.  Whether they suit the kernel is checked when a model needs it; a list
 * that does not is not used.  check_only: adds nothing. */
int weft_cache_add_tuning(const weft_cache_entry *e, bool check_only, weft_error *err);

/* ---- Sampling
 * First the
 * mask and the biases, then the samplers in their order, then a draw.  The same logits and seed give the same tokens on
 * every machine; equal logits are ordered by id.  Begin with weft_sampling_default() and change what you need: a value
 * out of range is an error that names it. */
typedef struct weft_sampler weft_sampler;
typedef struct weft_sampling {
  double temp;               /* temperature; 0: greedy, the likeliest token that is left */
  double dynatemp_range;     /* > 0: the temperature lies between temp - range and temp + range, */
  double dynatemp_exponent;  /*   by entropy / highest possible entropy, to this power */
  int32_t top_k;             /* the k likeliest; 0 or less: all */
  double top_p;              /* the fewest likeliest with at least this probability together; 1: all */
  double min_p;              /* at least this fraction of the likeliest one's probability; 0: all */
  double typical_p; /* those nearest to the expected surprise, with more than this probability together; 1: all */
  double top_n_sigma;        /* logits within so many standard deviations of the best one; 0 or less: all */
  double xtc_probability;    /* how often XTC drops all tokens of at least this probability: */
  double xtc_threshold;      /*   but the least likely of them; above 0.5: never */
  double
    repeat_penalty; /* divides positive logits of tokens in the last repeat_last_n, multiplies negative ones; 1: off */
  double frequency_penalty;  /* taken off the logit, times the number of occurrences there; 0: off */
  double presence_penalty;   /* taken off once; 0: off */
  int32_t repeat_last_n;     /* 0: none; -1: all tokens accepted */
  double dry_multiplier; /* DRY: a token that would continue a repetition of n tokens loses multiplier * base^(n -
                            allowed); 0: off */
  double dry_base;
  int32_t dry_allowed_length;/* shorter repetitions cost nothing */
  int32_t dry_last_n;        /* 0: none; -1: all tokens accepted */
  int mirostat;              /* 1 or 2: that version in place of all samplers but the temperature; 0: off */
  double mirostat_tau;       /* surprise aimed at, in bits */
  double mirostat_eta;       /* how quickly it is corrected */
  uint64_t seed;
  /* Which samplers, in which order: names ("top_k;top_p;temperature") or letters ("kpt").  Both NULL: all of them, as
   * "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature" or "edskypmxt" */
  const char *samplers, *sampler_seq;
} weft_sampling;
/* temp .8, top_k 40, top_p .95, min_p .05; repeat_last_n 64, dry_base 1.75, dry_allowed_length 2, dry_last_n -1,
 * xtc_threshold .1, dynatemp_exponent 1, mirostat_tau 5, mirostat_eta .1; everything else off, seed 0 */
weft_sampling weft_sampling_default(void);
uint64_t weft_random_seed(void);              /* below 2^32, from the system's entropy */
int weft_sampler_new(int32_t vocab_size, const weft_sampling *params, weft_sampler **out,
                     weft_error *err); /* NULL: defaults */
void weft_sampler_free(weft_sampler *s);      /* NULL is fine */
int weft_sampler_bias(weft_sampler *s, int32_t id, float bias,
                      weft_error *err); /* added to the logit; -INFINITY bans */
/* Bans every end-of-generation token of v. */
void weft_sampler_ignore_end(weft_sampler *s, const weft_vocab *v);
/* Bit id % 64 of word id / 64 says whether a token may be drawn.  Borrowed, and read at each draw until it is replaced;
 * NULL: all may. */
void weft_sampler_mask(weft_sampler *s, const uint64_t *allowed);
/* n texts before which DRY does not look for repetitions; NULL: "\n", ":", "\"" and "*".  There are none until this is
 * called. v must stay open as long as s. */
int weft_sampler_breakers(weft_sampler *s, const weft_vocab *v, const char *const *texts, size_t n, weft_error *err);
/* Draws the next token from vocab_size logits; does not change them.  Fails if every token is banned. */
int weft_sample(weft_sampler *s, const float *logits, int32_t *id, weft_error *err);
/* Tells the sampler that id is part of the text now (of the prompt, or drawn): penalties and DRY see it. */
int weft_accept(weft_sampler *s, int32_t id, weft_error *err);
void weft_sampler_reset(weft_sampler *s); /* a new text begins: forgets what was accepted; the random numbers go on */

/* Looks for stop strings in text that comes piece by piece.  What may be the beginning of one is held back until that
 * is decided. */
typedef struct weft_stop weft_stop;
int weft_stop_new(const char *const *texts, size_t n, weft_stop **out,
                  weft_error *err); /* none may be empty or longer than 1024 bytes */
/* The text that can be shown now, terminated, *n_out bytes, borrowed until the next call.  *found: the index of the
 * stop string that ended the text, which is not shown and nothing after it either; -1: none. */
const char *weft_stop_add(weft_stop *s, const char *text, size_t n, size_t *n_out, int *found);
const char *weft_stop_end(weft_stop *s,
                          size_t *n_out); /* no more text comes: what was held back; a new text may begin */
void weft_stop_free(weft_stop *s);            /* NULL is fine */

typedef struct weft_logprob { int32_t id; double logprob; } weft_logprob;
/* Natural logarithms of the softmax of n logits, before any sampler.  *of_id: that of token id.  top (n_top entries,
 * n_top at most n; may be NULL when 0): the likeliest tokens, sorted by probability, then id. */
int weft_logprobs(const float *logits, int32_t n, int32_t id, double *of_id, weft_logprob *top, int32_t n_top,
                  weft_error *err);

/* ---- Constrained output
 * A grammar follows
 * the text that is generated, token by token, and says which tokens may come next: its mask goes to weft_sampler_mask
 * before each draw, and the token drawn to weft_grammar_accept.  Whatever is drawn so, the text can be finished; tokens
 * that end a generation are allowed where the text may end, and there only.  docs/grammars.md says what the three kinds
 * hold. What cannot be honoured is refused, with line, rule or place in the schema and the reason; nothing is ever left
 * out silently. */
typedef struct weft_grammar weft_grammar;
/* n bytes of: a grammar in llama.cpp's notation, a JSON schema, a regular expression that the whole text has to match.
 * v must stay open. */
int weft_grammar_open_gbnf(const weft_vocab *v, const char *text, size_t n, weft_grammar **out, weft_error *err);
int weft_grammar_open_json_schema(const weft_vocab *v, const char *text, size_t n, weft_grammar **out, weft_error *err);
int weft_grammar_open_regex(const weft_vocab *v, const char *text, size_t n, weft_grammar **out, weft_error *err);
/* A copy that goes on from the same place; cheap.  It shares what has been computed: a grammar and its copies are for
 * one thread at a time. */
weft_grammar *weft_grammar_clone(const weft_grammar *g);      /* never NULL; weft_grammar_free */
void weft_grammar_free(weft_grammar *g);      /* NULL is fine */
void weft_grammar_reset(weft_grammar *g);     /* to the beginning of the text */
/* Bit id % 64 of word id / 64 says whether that token may come next; (weft_vocab_size + 63) / 64 words, valid until the
 * next call with this grammar or a copy.  Fails where a grammar is ambiguous beyond bounds. */
int weft_grammar_mask(weft_grammar *g, const uint64_t **mask, weft_error *err);
int weft_grammar_accept(weft_grammar *g, int32_t id,
                        weft_error *err); /* fails, and changes nothing, where the mask lacks id */
int weft_grammar_accept_text(weft_grammar *g, const char *text, size_t n, weft_error *err);   /* the same for text */
bool weft_grammar_complete(const weft_grammar *g);            /* the text may end here */
bool weft_grammar_ended(const weft_grammar *g);               /* and has to: nothing may follow */

/* ---- This machine */
typedef struct weft_machine {
  char cpu[128];             /* "AMD EPYC 9B45"; "" if unknown */
  char features[1024];       /* what kernels may use (WEFT_CPU), or why that is nothing */
  int vector_bits;           /* widest vector that kernels use; 0 if unknown */
  int threads;               /* the default for weft_options.threads */
  uint64_t memory_total, memory_available;      /* bytes; 0 if unknown */
  char llvm[1024];           /* "22.1.8", or why there is none */
  bool has_llvm;
  char cache[1024];          /* file of the kernel cache; "" when it is off */
  char prefetch[256]; /* how far ahead weights are asked for, as PREFETCH says it, as it was measured here, or on
                         another such processor ("8,t0 (known of Zen 4; GB/s of a product: 0: 15.9; ..."); "" if none */
  double barrier_ns;         /* until all threads have waited for one another; 0: not measured yet */
  int64_t cache_bytes;       /* of a core's own second cache */
  char devices[2048]; /* what DEV may name, a line each: "CL: Portable Computing Language: pthread-...", or "CL: none: "
                         and why */
} weft_machine;
/* Looks; asks drivers for devices, loads LLVM to ask for its version, and opens the kernel cache. */
void weft_machine_look(weft_machine *out);
uint64_t weft_memory_available(
  void); /* bytes that programs can still have, the system's file cache counted as free; UINT64_MAX if unknown */
int weft_default_threads(void);
/* What makes this machine slower than it has to be for so many threads (huge pages that are off, other programs, a slow
 * clock, ...), and what to do about it: lines, "" where all is well; for weft_free.  To be asked before a model runs:
 * other programs are those of the last minute. */
char *weft_machine_advice(int threads);
void weft_cpu_name(char *out, size_t cap);    /* "" if unknown */

#ifdef __cplusplus
}
#endif
#endif
