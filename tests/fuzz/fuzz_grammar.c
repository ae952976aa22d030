// Fuzzes grammars and regular expressions: the first byte says which it is, the rest is one.  Compiling ends with a
// message that names a place or with a grammar; then each token that its mask allows must be allowed by its bytes as
// well, and the other way round.
#define _GNU_SOURCE
#include "grammar_common.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  grammar *g = NULL;
  error err = {0};
  bool regex = data[0] == 'r';
  const char *text = (const char *)data + 1;
  if (regex ? grammar_from_regex(text, size - 1, &g, &err)
            : grammar_from_gbnf(text, size - 1, common_tokenizer(), &g, &err)) {
    if (!err.text[0]) die("an error without a message");
    return 0;
  }
  common_walk(g, hash_bytes(data, size, 0), 12);
  grammar_free(g);
  return 0;
}
