// Grammars as a filter, for tests/python/test_grammar.py: many grammars through one vocabulary without starting a
// program for each.
//
//     grammar_tool MODEL < requests > answers
//
// A request is lines: "gbnf N", "schema N", "strict N" (a schema that is refused if it cannot be enforced) or "regex N"
// and after the line N bytes of grammar; "walk SEED STEPS" draws
// tokens at random from the masks; "text N" and N bytes asks whether the grammar accepts that text.  One line of answer
// each: "ok", "ok, but notes" or "!message"; the text of the walk in hexadecimal after "end " (the grammar ended it) or
// "cut "; "yes", "no" or "prefix".  "time" repeats the walk's figures.
#define _GNU_SOURCE
#include "model/gguf.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include <stdlib.h>
#include <string.h>
#include "cpu.h"

static uint64_t rng;
static uint64_t draw(uint64_t n) {
  rng = hash_u64(rng, 1);
  return rng % n;
}

struct tool {
  const tokenizer *t;
  grammar_vocab *v;
  grammar *g;
  matcher *m;
  double open_s, first_s, mask_s, worst_s;
  long n_masks;
};

// A token of the mask: when the text gets long, one that ends it, or a short one; otherwise any, or often one that ends
// a string or so.
static int32_t pick(const struct tool *t, const uint64_t *mask, bool hurry) {
  int32_t n = tokenizer_n_vocab(t->t), best = -1;
  uint64_t seen = 0, best_rank = 0;
  for (int32_t i = 0; i < n; i++) {
    if (!(mask[i / 64] >> i % 64 & 1)) continue;
    size_t bytes;
    const char *text = grammar_vocab_bytes(t->v, i, &bytes);
    uint64_t rank = hash_u64(rng + ++seen, 2) >> 8;
    if (tokenizer_is_eog(t->t, i)) rank |= hurry ? UINT64_MAX : rank & 1 ? (uint64_t)1 << 62 : 0;
    else if (hurry) rank |= (uint64_t)(bytes == 1 && strchr("\"]}0", text[0]) ? 1 : 0) << 60;
    else rank |= (uint64_t)(bytes == 1 && draw(4) == 0) << 59;
    if (best < 0 || rank > best_rank) { best = i; best_rank = rank; }
  }
  draw(2);
  return best;
}

static void walk(struct tool *t, uint64_t seed, long steps) {
  rng = seed;
  error err = {0};
  str text = {0};
  bool ended = false;
  matcher_reset(t->m);
  t->mask_s = t->worst_s = 0;
  t->n_masks = 0;
  for (long i = 0; i < steps && !ended; i++) {
    const uint64_t *mask;
    double began = cpu_s();
    int status = matcher_mask(t->m, &mask, &err);
    double took = cpu_s() - began;
    t->mask_s += took;
    t->n_masks++;
    if (i == 0) t->first_s = took;
    if (took > t->worst_s) t->worst_s = took;
    int32_t id = status ? -1 : pick(t, mask, i > steps / 3);
    if (id < 0) { printf("!%s\n", status ? err.text : "the mask is empty"); str_free(&text); return; }
    if (matcher_accept(t->m, id, &err)) { printf("!%s\n", err.text); str_free(&text); return; }
    ended = tokenizer_is_eog(t->t, id);
    if (!ended) tokenizer_piece(t->t, id, &text, false);
  }
  printf(ended ? "end " : "cut ");
  for (size_t i = 0; i < text.n; i++) printf("%02x", (unsigned)(unsigned char)text.at[i]);
  putchar('\n');
  str_free(&text);
}

static void grammar_line(struct tool *t, const char *kind, const char *text, size_t n) {
  error err = {0};
  str notes = {0};
  matcher_free(t->m);
  grammar_free(t->g);
  t->m = NULL;
  t->g = NULL;
  double began = cpu_s();
  int status = !strcmp(kind, "gbnf")    ? grammar_from_gbnf(text, n, t->t, &t->g, &err)
               : !strcmp(kind, "regex") ? grammar_from_regex(text, n, &t->g, &err)
                                        : grammar_from_schema(text, n, !strcmp(kind, "strict"), &notes, &t->g, &err);
  if (!status) status = matcher_new(t->g, t->v, &t->m, &err);
  t->open_s = cpu_s() - began;
  for (size_t i = 0; i < notes.n; i++) if (notes.at[i] == '\n') notes.at[i] = i + 1 < notes.n ? '|' : 0;
  if (status) printf("!%s\n", err.text);
  else if (notes.n) printf("ok, but %s\n", notes.at);
  else puts("ok");
  str_free(&notes);
}

static void text_line(struct tool *t, const char *text, size_t n) {
  error err = {0};
  bool ok = false;
  matcher_reset(t->m);
  if (matcher_bytes(t->m, text, n, &ok, &err)) printf("!%s\n", err.text);
  else puts(!ok ? "no" : matcher_complete(t->m) ? "yes" : "prefix");
}

int main(int argc, char **argv) {
  gguf *g = NULL;
  tokenizer *tk = NULL;
  error err = {0};
  struct tool t = {0};
  double began = cpu_s();
  if (argc < 2 || gguf_open(argv[1], &g, &err) || tokenizer_from_gguf(g, &tk, &err) ||
      grammar_vocab_new(tk, &t.v, &err)) {
    fprintf(stderr, "grammar_tool: %s\n", argc < 2 ? "no model" : err.text);
    return 1;
  }
  t.t = tk;
  double setup = cpu_s() - began;
  char line[256], kind[16];
  while (fgets(line, sizeof line, stdin)) {
    unsigned long a = 0, b = 0;
    if (sscanf(line, "%15s %lu %lu", kind, &a, &b) < 1) continue;
    if (!strcmp(kind, "walk") && t.m) walk(&t, a, (long)b);
    else if (!strcmp(kind, "time"))
      printf("setup %.1f ms, compile %.1f ms, %u states, first %.3f ms, mean %.4f ms, worst %.3f ms of %ld\n",
             setup * 1e3, t.open_s * 1e3, t.g ? grammar_n_states(t.g) : 0, t.first_s * 1e3,
             t.mask_s * 1e3 / (double)(t.n_masks ? t.n_masks : 1), t.worst_s * 1e3, t.n_masks);
    else if (strcmp(kind, "walk")) {
      char *text = xmalloc(a + 1);
      size_t n = fread(text, 1, a, stdin);
      if (strcmp(kind, "text")) grammar_line(&t, kind, text, n);
      else if (t.m) text_line(&t, text, n);
      else puts("!no grammar");
      free(text);
    } else puts("!no grammar");
    fflush(stdout);
  }
  matcher_free(t.m);
  grammar_free(t.g);
  grammar_vocab_free(t.v);
  tokenizer_free(tk);
  gguf_close(g);
  return 0;
}
