/* weft/vocab.h: text to tokens and back. */
#ifndef WEFT_API_VOCAB_H
#define WEFT_API_VOCAB_H
#include "file.h"

WEFT_BEGIN

/* ---- Vocabulary
 *
 * Works on any file that has one, with or without tensors, of any architecture.  A tokenizer that Weft does not know is
 * an error only when text has to be encoded.
 */
typedef struct weft_vocab weft_vocab;
int weft_vocab_open(const weft_file *f, weft_vocab **out, weft_error *err);     /* f must stay open as long */
void weft_vocab_close(weft_vocab *v);         /* NULL is fine */
int32_t weft_vocab_size(const weft_vocab *v);
enum {
  WEFT_ADD_SPECIAL = 1, /* BOS in front and EOS at the end, if the model wants them */
  WEFT_PARSE_SPECIAL = 2 /* the texts of control tokens become those tokens: for templates, never for what users type */
};
/* n bytes of text to tokens; any bytes can be encoded.  *ids is for weft_free, also when *n_ids is 0. */
int weft_tokenize(const weft_vocab *v, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *n_ids,
                  weft_error *err);
/* weft_tokenize that may stop when there are more than `most` tokens. */
int weft_tokenize_at_most(const weft_vocab *v, const char *text, size_t n, unsigned flags, size_t most, int32_t **ids,
                          size_t *n_ids, weft_error *err);
/* weft_tokenize for a text that comes in pieces, in bounded memory: the ids of all calls together are those of the
 * whole text, however it is cut. An id is returned as soon as no continuation can change it, usually a word later. */
typedef struct weft_encoder weft_encoder;
int weft_encoder_new(const weft_vocab *v, unsigned flags, weft_encoder **out, weft_error *err); /* v must outlive it */
/* *ids are borrowed until the next call. After an error e cannot be used any more. */
int weft_encoder_add(weft_encoder *e, const char *text, size_t n, const int32_t **ids, size_t *n_ids, weft_error *err);
/* Ends the text and returns its last ids. Text that is added later begins another text. */
int weft_encoder_end(weft_encoder *e, const int32_t **ids, size_t *n_ids, weft_error *err);
void weft_encoder_free(weft_encoder *e);      /* NULL is fine */
/* Tokens to text: the inverse.  special: control tokens are shown.  *text is terminated (*n does not count that) and
 * for weft_free; it can hold NUL bytes.  An id outside the vocabulary is an error. */
int weft_detokenize(const weft_vocab *v, const int32_t *ids, size_t n_ids, bool special, char **text, size_t *n,
                    weft_error *err);
/* The bytes of one token, which can be a part of a character; a control token gives nothing unless special.  Terminated
 * (*n does not count that), for weft_free; "" for an id outside the vocabulary. */
char *weft_piece(const weft_vocab *v, int32_t id, bool special, size_t *n);
/* As in the file; UNDEFINED and 0 if it does not say, and for an id outside the vocabulary. */
enum weft_token_type {
  WEFT_TOKEN_UNDEFINED,
  WEFT_TOKEN_NORMAL,
  WEFT_TOKEN_UNKNOWN,
  WEFT_TOKEN_CONTROL,
  WEFT_TOKEN_USER_DEFINED,
  WEFT_TOKEN_UNUSED,
  WEFT_TOKEN_BYTE
};
enum weft_token_type weft_token_type(const weft_vocab *v, int32_t id);
float weft_token_score(const weft_vocab *v, int32_t id);
bool weft_is_end(const weft_vocab *v, int32_t id); /* an end-of-generation token (EOS, EOT, <|im_end|>, ...) */
int32_t weft_bos(const weft_vocab *v);                         /* -1: this model has none */
int32_t weft_mask(const weft_vocab *v);                        /* for models that denoise; -1: none */
int32_t weft_eos(const weft_vocab *v);                         /* -1: this model has none */

/* A token can end in the middle of a character. A stream holds such bytes back; invalid bytes become U+FFFD. The
 * returned text is valid UTF-8, terminated, n bytes long, and borrowed until the next call. */
typedef struct weft_stream weft_stream;
weft_stream *weft_stream_new(const weft_vocab *v, bool special);                /* never NULL; weft_stream_free */
const char *weft_stream_add(weft_stream *s, int32_t id, size_t *n); /* the characters that id completes; can be "" */
const char *weft_stream_end(weft_stream *s, size_t *n); /* U+FFFD if a character is unfinished */
void weft_stream_free(weft_stream *s);

WEFT_END
#endif
