// The options of constrained output: see grammar_args.h.
#include "app/grammar_args.h"
#include "app/app.h"
#include <stdlib.h>
#include <string.h>

static int n_given(const struct grammar_args *a) {
  return !!a->gbnf + !!a->gbnf_file + !!a->schema + !!a->schema_file + !!a->regex;
}

bool grammar_args_given(const struct grammar_args *a) { return n_given(a) > 0; }

int grammar_args_check(const struct grammar_args *a, bool ignore_end, error *err) {
  if (n_given(a) > 1)
    return error_set(
      err, "the output is constrained more than once: use one of --grammar, --grammar-file, -j, -jf and --regex");
  if (n_given(a) && ignore_end)
    return error_set(err, "--ignore-eos and a grammar: what the grammar describes has an end");
  return 0;
}

int grammar_args_read(const struct grammar_args *a, char **text, size_t *n, error *err) {
  const char *file = a->gbnf_file ? a->gbnf_file : a->schema_file;
  const char *given = a->gbnf ? a->gbnf : a->schema ? a->schema : a->regex;
  *text = NULL;
  if (file) return read_file(file, READ_SOURCE, text, n, err);
  if (given) { *text = xstrdup(given); *n = strlen(given); }
  return 0;
}

// How messages about the grammar begin.
static const char *name_of_grammar(const struct grammar_args *a) {
  return a->gbnf_file     ? a->gbnf_file
         : a->schema_file ? a->schema_file
         : a->gbnf        ? "--grammar"
         : a->schema      ? "--json-schema"
                          : "--regex";
}

int grammar_args_open(const struct grammar_args *a, const weft_vocab *vocab, int32_t n_vocab, weft_grammar **out,
                      weft_error *err) {
  char *text = NULL;
  size_t n = 0;
  error e = {0};
  weft_error why = {{0}};
  *out = NULL;
  if (!n_given(a)) return 0;
  if (weft_vocab_size(vocab) != n_vocab)
    error_set(&e, "a grammar needs as many tokens in the vocabulary (%d) as the model has logits (%d)",
              weft_vocab_size(vocab), n_vocab);
  else if (!grammar_args_read(a, &text, &n, &e)) {
    int status = a->gbnf || a->gbnf_file ? weft_grammar_open_gbnf(vocab, text, n, out, &why)
                 : a->regex              ? weft_grammar_open_regex(vocab, text, n, out, &why)
                                         : weft_grammar_open_json_schema(vocab, text, n, out, &why);
    if (status) error_set(&e, "%.60s: %.900s", name_of_grammar(a), why.text);
  }
  for (const char *line = *out ? weft_grammar_notes(*out) : "", *end; (end = strchr(line, '\n')); line = end + 1)
    warning("%.*s", (int)(end - line), line);
  free(text);
  if (e.text[0] && err) memcpy(err->text, e.text, sizeof err->text);
  return e.text[0] ? -1 : 0;
}
