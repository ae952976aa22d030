// Encoding in pieces: however a text is cut, the ids are those of the whole text at once, for every algorithm and every
// pattern of the table; and no more of a text is held back than its words take.
#define _GNU_SOURCE
#include "base/map.h"
#include "text/pretokenize.h"
#include "text/small_vocab.h"
#include "text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static uint64_t seed = 1;
static size_t below(size_t n) { seed = hash_u64(seed, 7); return (size_t)(seed % n); }

// What patterns, normal forms and searches treat differently: an alphabet of strings, the first ones the commonest.
static const char *const units[] = {"a",
                                    "b",
                                    " ",
                                    "1",
                                    "\n",
                                    "A",
                                    ".",
                                    "'s",
                                    "\xC3\xA9",
                                    "e",
                                    "\xCC\x81",
                                    "\xE4\xB8\xAD",
                                    "  ",
                                    "'",
                                    "\r\n",
                                    "\t",
                                    "<",
                                    "|",
                                    ">",
                                    "<tool>",
                                    "<|x|>",
                                    "<mask>",
                                    "\xE2\x96\x81",
                                    "\xE3\x81\x82",
                                    "\xCE\xA3",
                                    "\xC2\xA0",
                                    "\xE3\x80\x80",
                                    "\xF0\x9F\x98\x80",
                                    "\xEA\xB0\x80",
                                    "\xE1\x84\x80",
                                    "\xE1\x85\xA1",
                                    "\xD9\xA1",
                                    "\xC2\xBD",
                                    "/",
                                    "_",
                                    "\xE2\x80\xA6",
                                    "<sentinel:12>",
                                    "IMGIMGABZ",
                                    "'LL",
                                    "\xC5\xBF",
                                    "123456",
                                    "\xFF",
                                    "\xE2\x96",
                                    "\xC3",
                                    "\0",
                                    "\xEF\xBB\xBF",
                                    "\xEF\xAC\x81",
                                    "\xCC\xA3",
                                    "             ",
                                    "\xE0\xA6\xBC",
                                    "\xC4\xB0"};

static void random_text(str *out) {
  out->n = 0;
  size_t variety = below(2) ? COUNT(units) : 4 + below(16);
  for (size_t k = below(40); k; k--) {
    const char *unit = units[below(variety)];
    str_addn(out, unit, *unit ? strlen(unit) : 1);
  }
}

// ---- Words ----

typedef VEC(size_t) ends;
struct words { const char *text; ends ends; };
static int add_end(void *ctx, const char *word, size_t n) {
  struct words *w = ctx;
  vec_push(&w->ends, (size_t)(word + n - w->text));
  return 0;
}

static void check_words(const pretokenizer *p, const char *name, const str *text) {
  error err = {0};
  size_t settled = 0, came = 0;
  struct words whole = {str_c(text), {0}}, parts = {str_c(text), {0}};
  if (pretokenizer_split(p, whole.text, text->n, false, &settled, add_end, &whole, &err)) fail_msg("%s", err.text);
  assert_int_equal(settled, text->n);
  settled = 0;
  while (came < text->n) {
    came += 1 + below(below(2) ? 3 : 20);
    if (came > text->n) came = text->n;
    // nothing may be read beyond it
    char *copy = memcpy(xmalloc(came - settled + 1), whole.text + settled, came - settled);
    size_t done;
    parts.text = copy - settled;
    if (pretokenizer_split(p, copy, came - settled, came < text->n, &done, add_end, &parts, &err))
      fail_msg("%s", err.text);
    settled += done;
    free(copy);
  }
  if (whole.ends.n != parts.ends.n ||
      (whole.ends.n && memcmp(whole.ends.at, parts.ends.at, whole.ends.n * sizeof(size_t)))) {
    print_error("%s:", name);
    for (size_t i = 0; i < text->n; i++) print_error(" %02x", (unsigned)(unsigned char)text->at[i]);
    print_error("\n  whole:");
    for (size_t i = 0; i < whole.ends.n; i++) print_error(" %zu", whole.ends.at[i]);
    print_error("\n  parts:");
    for (size_t i = 0; i < parts.ends.n; i++) print_error(" %zu", parts.ends.at[i]);
    fail_msg("other words");
  }
  vec_free(&whole.ends);
  vec_free(&parts.ends);
}

static void test_words_of_every_row(void **state) {
  (void)state;
  str text = {0};
  for (size_t row = 0; pretokenizer_at(row); row++) {
    pretokenizer *p = NULL;
    error err = {0};
    if (pretokenizer_new(pretokenizer_at(row), &p, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < 600; i++) {
      random_text(&text);
      check_words(p, pretokenizer_at(row)->name, &text);
    }
    pretokenizer_free(p);
  }
  str_free(&text);
}

// ---- Ids ----

static void check_ids(const tokenizer *t, const char *what, const str *text, bool add, bool parse) {
  error err = {0}, err2 = {0};
  int32_t *want = NULL;
  size_t n_want = 0, came = 0;
  VEC(int32_t) have = {0};
  text_encoder *e;
  bool bad = tokenizer_encode(t, str_c(text), text->n, add, parse, &want, &n_want, &err), bad2 = false;
  assert_int_equal(text_encoder_new(t, add, parse, &e, &err2), 0);
  for (bool end = false; !end && !bad2;) {
    const int32_t *ids;
    size_t n = text->n - came, n_ids;
    if (n > 1) n = 1 + below(below(2) ? 3 : n);
    if (n > text->n - came) n = text->n - came;
    end = came == text->n;
    bad2 =
      end ? text_encoder_end(e, &ids, &n_ids, &err2) : text_encoder_add(e, str_c(text) + came, n, &ids, &n_ids, &err2);
    came += n;
    for (size_t i = 0; !bad2 && i < n_ids; i++) vec_push(&have, ids[i]);
  }
  if (bad != bad2 || (!bad && (n_want != have.n || (n_want && memcmp(want, have.at, n_want * sizeof *want))))) {
    print_error("%s:", what);
    for (size_t i = 0; i < text->n; i++) print_error(" %02x", (unsigned)(unsigned char)text->at[i]);
    print_error("\n  whole: %s", bad ? err.text : "");
    for (size_t i = 0; !bad && i < n_want; i++) print_error(" %d", want[i]);
    print_error("\n  parts: %s", bad2 ? err2.text : "");
    for (size_t i = 0; i < have.n; i++) print_error(" %d", have.at[i]);
    fail_msg("other ids");
  }
  if (!bad) free(want);
  vec_free(&have);
  text_encoder_free(e);
}

// A map that makes a tab a space, U+FB01 two letters, and "e" with U+0301 after it one character: see charsmap.h.
static text_view small_charsmap(small *s) {
  enum { UNITS = 4096 };
  static const char pool[] = " \0fi\0\xC3\xA9";
  uint32_t *unit = ARENA_ARRAY(s->mem, uint32_t, 1 + UNITS + sizeof pool / 4 + 1), *at = unit + 1;
  struct { const char *key; uint32_t offset; } pairs[] = {{"\t", 0}, {"\xEF\xAC\x81", 2}, {"e\xCC\x81", 5}};
  // the root's children lie at base ^ byte; those of others in blocks of their own
  uint32_t base = 256, next = 512;
  unit[0] = 4 * UNITS;
  at[0] = base << 10;
  for (size_t i = 0; i < COUNT(pairs); i++) {
    uint32_t children = base;
    for (const char *k = pairs[i].key; *k; k++, next += 256) {
      uint32_t node = children ^ (unsigned char)*k;
      children = next;
      at[node] = (node ^ children) << 10 | (unsigned char)*k | (k[1] ? 0u : 1u << 8);
    }
    at[children] = 1u << 31 | pairs[i].offset;
  }
  memcpy(at + UNITS, pool, sizeof pool);
  return (text_view){(const char *)unit, 4 + 4 * UNITS + sizeof pool};
}

// Puts regions of DNA, or parts of their tags, into a text.
static void add_regions(str *text) {
  static const char *const parts[] = {"<dna>", "</dna>", "<dn",    "</", " ", "\n",      "ACGTAC",
                                      "acg",   "T",      "TTTAAA", "C",  "N", "\xC3\xA9"};
  for (size_t n = below(20); n; n--) str_add(text, parts[below(COUNT(parts))]);
}

// Random tokens of the alphabet's first units, and all merges that lead to them.
static void random_vocab(small *s, const char *model, const char *pre) {
  small_init(s, model, pre);
  bool bytes = !strcmp(model, "gpt2") || !strcmp(model, "hybriddna");
  if (bytes) small_bytes_bpe(s);
  else small_bytes_spm(s);
  small_add(s, "<|x|>", TOKEN_CONTROL, 0);
  small_add(s, "<tool>", TOKEN_USER_DEFINED, 0);
  small_add(s, "<mask>", TOKEN_USER_DEFINED, 0);
  smap seen = {0};
  size_t first = s->tokens.n;
  str token = {0};
  for (int i = 0; i < 300; i++) {
    token.n = 0;
    size_t variety = 3 + below(12);
    for (size_t k = i < 12 ? 1 : 1 + below(4); k; k--) {
      const char *unit = units[i < 12 ? (size_t)i : below(variety)];
      if (!bytes) str_add(&token, *unit == ' ' && strcmp(model, "rwkv") && strcmp(model, "plamo2") ? SPM_SPACE : unit);
      for (; bytes && *unit; unit++) {
        char text[4];
        str_addn(&token, text, (size_t)bpe_byte_char((unsigned char)*unit, text));
      }
    }
    text_view kept = small_copy(s, token.at, token.n);
    if (bytes && token.n <= 2) continue;
    if (smap_set(&seen, kept.at, kept.n, NULL)) small_addn(s, kept.at, kept.n, TOKEN_NORMAL, -(float)below(60) / 4);
  }
  for (size_t i = first; i < s->tokens.n; i++)
    for (size_t k = 1; k < s->tokens.at[i].n; k++) {
      token.n = 0;
      str_addn(&token, s->tokens.at[i].at, k);
      str_addc(&token, ' ');
      str_addn(&token, s->tokens.at[i].at + k, s->tokens.at[i].n - k);
      small_only_merge(s, token.at);
    }
  smap_free(&seen);
  str_free(&token);
  const char *regions[] = {
    "<dna>", "</dna>", "<oov>", "ACGTAC\xEE\x80\x80", "TTTAAA\xEE\x80\x80", "CAAAAA\xEE\x80\x80"};
  for (size_t i = 0; i < COUNT(regions) && !strcmp(model, "hybriddna"); i++) small_add(s, regions[i], TOKEN_NORMAL, 0);
  if (below(2)) s->d.charsmap = small_charsmap(s);
  s->d.add_space_prefix = (int)below(2);
  s->d.remove_extra_whitespaces = (int)below(2);
  if (below(2)) s->d.name = (text_view){"phi-3", 5};
  if (below(2)) s->d.architecture = (text_view){"nomic-bert-moe", 14};
}

static void test_ids_of_every_algorithm(void **state) {
  (void)state;
  static const char *const kinds[][2] = {{"gpt2", "gpt-2"},        {"gpt2", "qwen2"},      {"gpt2", "llama-bpe"},
                                         {"gpt2", "deepseek-llm"}, {"gpt2", "tiny_aya"},   {"gpt2", "jais-2"},
                                         {"gpt2", "superbpe"},     {"gpt2", "whitespace"}, {"gpt2", "gemma4"},
                                         {"gpt2", "sarvam-moe"},   {"llama", NULL},        {"llama", NULL},
                                         {"bert", NULL},           {"t5", NULL},           {"t5", NULL},
                                         {"rwkv", NULL},           {"plamo2", NULL},       {"gemma4", NULL},
                                         {"hybriddna", "qwen2"}};
  str text = {0};
  for (size_t k = 0; k < COUNT(kinds); k++)
    for (int round = 0; round < 8; round++) {
      small s;
      random_vocab(&s, kinds[k][0], kinds[k][1]);
      tokenizer *t = small_make(&s);
      for (int i = 0; i < 200; i++) {
        random_text(&text);
        if (!strcmp(kinds[k][0], "hybriddna")) add_regions(&text);
        check_ids(t, kinds[k][1] ? kinds[k][1] : kinds[k][0], &text, i & 1, i & 2);
      }
      small_free(&s, t);
    }
  str_free(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_words_of_every_row),
                                     cmocka_unit_test(test_ids_of_every_algorithm)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
