/* weft/grammar.h: output that matches a grammar, a JSON schema or a regular expression. */
#ifndef WEFT_API_GRAMMAR_H
#define WEFT_API_GRAMMAR_H
#include "vocab.h"

WEFT_BEGIN

/* ---- Constrained output
 *
 * A grammar follows the text that is generated, token by token, and says which tokens may come next: its mask goes to
 * weft_sampler_mask before each draw, and the token drawn to weft_grammar_accept.  Whatever is drawn so, the text can
 * be finished; tokens that end a generation are allowed only at the places at which the text may end.  docs/grammars.md
 * says what the three kinds hold.
 *
 * A grammar or regular expression that cannot be enforced is refused, with line or rule and the reason.  For a JSON
 * schema, weft_grammar_notes lists what is not enforced; the strict way refuses such a schema.
 */
typedef struct weft_grammar weft_grammar;
/* n bytes of: a grammar in llama.cpp's notation, a JSON schema, a regular expression that the whole text has to match.
 * v must stay open. */
int weft_grammar_open_gbnf(const weft_vocab *v, const char *text, size_t n, weft_grammar **out, weft_error *err);
int weft_grammar_open_json_schema(const weft_vocab *v, const char *text, size_t n, weft_grammar **out, weft_error *err);
int weft_grammar_open_json_schema_strict(const weft_vocab *v, const char *text, size_t n, weft_grammar **out,
                                         weft_error *err);
int weft_grammar_open_regex(const weft_vocab *v, const char *text, size_t n, weft_grammar **out, weft_error *err);
/* The parts of a schema that the grammar does not enforce: lines "schema at #/a, uniqueItems: why"; "" if there are
 * none. Valid as long as g. */
const char *weft_grammar_notes(const weft_grammar *g);
/* A copy that continues from the same place; cheap. It shares computed results: a grammar and its copies are for one
 * thread at a time. */
weft_grammar *weft_grammar_clone(const weft_grammar *g);      /* never NULL; weft_grammar_free */
void weft_grammar_free(weft_grammar *g);      /* NULL is fine */
void weft_grammar_reset(weft_grammar *g);     /* to the beginning of the text */
/* Bit id % 64 of word id / 64 says whether that token may come next; (weft_vocab_size + 63) / 64 words, valid until the
 * next call with this grammar or a copy. Fails if a grammar is too ambiguous. */
int weft_grammar_mask(weft_grammar *g, const uint64_t **mask, weft_error *err);
/* fails, and changes nothing, if the mask lacks id */
int weft_grammar_accept(weft_grammar *g, int32_t id, weft_error *err);
/* weft_grammar_accept for text */
int weft_grammar_accept_text(weft_grammar *g, const char *text, size_t n, weft_error *err);
bool weft_grammar_complete(const weft_grammar *g);            /* the text may end here */
bool weft_grammar_ended(const weft_grammar *g);               /* the text must end here */

WEFT_END
#endif
