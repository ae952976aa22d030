// WordPiece, Unigram, BPE on characters, RWKV and PLaMo-2 on small vocabularies that are made here: what each promises,
// what bad files get, and megabytes of one character.  Long comparisons with others are in
// tests/python/test_tokenizers.py.
#define _GNU_SOURCE
#include "text/pretokenize.h"
#include "text/small_vocab.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "text/ids.h"

#define BAR "\xE2\x96\x81"         // "▁"
#define WANTS(t, text, how, ...) wants(t, text, sizeof(text) - 1, how, (const int32_t[]){__VA_ARGS__, -1})

static void cannot(const tokenizer *t, const char *text, const char *words) {
  int32_t *ids = NULL;
  size_t n;
  error err = {0};
  assert_int_equal(tokenizer_encode(t, text, strlen(text), false, false, &ids, &n, &err), -1);
  assert_null(ids);
  if (!strstr(err.text, words) || !strstr(err.text, "small.gguf")) fail_msg("'%s' is not in: %s", words, err.text);
}

static void decodes(const tokenizer *t, const int32_t *ids, size_t n, const char *want) {
  str out = {0};
  tokenizer_decode(t, ids, n, false, &out);
  assert_string_equal(str_c(&out), want);
  str_free(&out);
}

// ---- WordPiece ----

enum { PAD, UNK, CLS, SEP, MASK, HELLO, WORLD, LD, AE, COMMA, HAN };
static void wordpiece_small(small *s) {
  small_init(s, "bert", NULL);
  const char *special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (size_t i = 0; i < COUNT(special); i++) small_add(s, special[i], TOKEN_CONTROL, 0);
  const char *words[] = {BAR "hello", BAR "wor", "ld", BAR "ae", BAR ",", BAR "\xE4\xB8\xAD"};
  for (size_t i = 0; i < COUNT(words); i++) small_add(s, words[i], TOKEN_NORMAL, 0);
  s->d.role[ROLE_unk] = UNK, s->d.role[ROLE_cls] = CLS, s->d.role[ROLE_sep] = SEP;
}

static void test_wordpiece(void **state) {
  (void)state;
  small s;
  wordpiece_small(&s);
  tokenizer *t = small_make(&s);
  WANTS(t, "Hello,\tWORLD", PLAIN, HELLO, COMMA, WORLD, LD);
  WANTS(t, "hello", ADD, CLS, HELLO, SEP);
  WANTS(t, "", ADD, CLS, SEP);
  WANTS(t, "\xC3\x84" "E worlds ld", PLAIN, AE, UNK, UNK);              // one bad end spoils the word; "ld" begins none
  WANTS(t, "he\xE2\x80\x8Bllo\xFF\x01 x\xE4\xB8\xAD", PLAIN, HELLO, UNK, HAN);   // what is no text goes
  WANTS(t, "hello [MASK]", PARSE, HELLO, MASK);
  WANTS(t, "[MASK]", PLAIN, UNK, UNK, UNK);
  WANTS(t, "hello" BAR "hello", PLAIN, UNK);               // a bar in the text begins no word
  int32_t ids[] = {CLS, HELLO, COMMA, WORLD, LD, SEP};
  decodes(t, ids, COUNT(ids), "hello , world");
  tokenizer_free(t);
  s.d.lowercase = 0;
  t = small_make(&s);
  WANTS(t, "Hello hello \xC3\xA4" "e", PLAIN, UNK, HELLO, UNK);
  tokenizer_free(t);
  s.d.strip_accents = 1, s.d.add_sep = 0;
  t = small_make(&s);
  WANTS(t, "\xC3\xA4" "e", ADD, CLS, AE);
  tokenizer_free(t);
  s.d.role[ROLE_unk] = -1;
  small_add(&s, "[UNKNOWN]", TOKEN_NORMAL, 0);
  s.tokens.at[UNK] = (text_view){"[not]", 5};
  t = small_make(&s);
  cannot(t, "worlds", "77 6F 72 6C 64 73");
  small_free(&s, t);
}

// ---- Unigram ----

static void unigram_small(small *s) {
  small_init(s, "t5", NULL);
  small_add(s, "<pad>", TOKEN_CONTROL, 0), small_add(s, "</s>", TOKEN_CONTROL, 0),
    small_add(s, "<unk>", TOKEN_UNKNOWN, 0);
  s->d.add_space_prefix = 1, s->d.remove_extra_whitespaces = 1, s->d.add_eos = 0;
}

static void test_unigram(void **state) {
  (void)state;
  small s;
  unigram_small(&s);
  int32_t bar = small_add(&s, BAR, TOKEN_NORMAL, -3), a = small_add(&s, "a", TOKEN_NORMAL, -4),
          b = small_add(&s, "b", TOKEN_NORMAL, -4);
  int32_t ab = small_add(&s, "ab", TOKEN_NORMAL, -5), bara = small_add(&s, BAR "a", TOKEN_NORMAL, -5);
  int32_t ba = small_add(&s, "ba", TOKEN_NORMAL, -7.5f), user = small_add(&s, "<x>", TOKEN_USER_DEFINED, 0);
  tokenizer *t = small_make(&s);
  WANTS(t, "ab", PLAIN, bar, ab);                         // -3 - 5 is more than -5 - 4
  WANTS(t, "aba", PLAIN, bar, ab, a);
  WANTS(t, "ba", PLAIN, bar, ba);
  WANTS(t, "  a \t a  ", PLAIN, bara, bar, 2, bara);      // the tabulator is no space here
  WANTS(t, "a<x>a", PLAIN, bara, user, bara);
  WANTS(t, "zzz", PLAIN, bar, 2);                         // one for all
  WANTS(t, "zaz", PLAIN, bar, 2, a, 2);
  WANTS(t, "</s>", PLAIN, bar, 2);
  WANTS(t, "</s>", PARSE, 1);
  WANTS(t, "b\xFF", PLAIN, bar, b, 2);
  int32_t ids[] = {bara, bar, ab, 1};
  decodes(t, ids, COUNT(ids), "a ab");
  tokenizer_free(t);
  s.d.add_space_prefix = 0, s.d.add_eos = -1;             // EOS by default
  t = small_make(&s);
  WANTS(t, " a  b ", ADD, a, bar, b, 1);
  tokenizer_free(t);
  s.d.remove_extra_whitespaces = 0;
  t = small_make(&s);
  goes_round(t, " a  b ", 6);
  tokenizer_free(t);
  s.types.at[2] = TOKEN_NORMAL;                           // nothing is unknown
  s.tokens.at[2] = (text_view){"q", 1};
  t = small_make(&s);
  cannot(t, "\xC3\xA4", "C3 A4");
  small_free(&s, t);
}

static void test_unigram_bytes(void **state) {
  (void)state;
  small s;
  small_init(&s, "t5", NULL);
  small_bytes_spm(&s);
  small_add(&s, BAR, TOKEN_NORMAL, -3), small_add(&s, "a", TOKEN_NORMAL, -4),
    small_add(&s, "\xC3\xA4", TOKEN_NORMAL, -4);
  tokenizer *t = small_make(&s);
  WANTS(t, "az\xC3\xA4", PLAIN, 260, 3 + 'z', 261);
  goes_round(t, "a\xFF\xC3 \xE4\xBD\xA0\0z", 10);
  small_free(&s, t);
}

// A map that turns A into "b ".  Root at 0 with its children from 256 on: the unit of 'A' is 256 ^ 'A'; its value lies
// at 512.
static text_view small_map(uint32_t *units, size_t n) {
  size_t bytes = 4 * n;
  units[0] = (uint32_t)bytes;
  uint32_t *u = units + 1;
  u[0] = 256u << 10;
  u[256 ^ 'A'] = 'A' | 1u << 8 | (512u ^ 256 ^ 'A') << 10;
  u[512] = 1u << 31;
  memcpy(u + n, "b \0", 4);
  return (text_view){(const char *)units, 4 + bytes + 3};
}

static void test_charsmap(void **state) {
  (void)state;
  small s;
  unigram_small(&s);
  int32_t barb = small_add(&s, BAR "b", TOKEN_NORMAL, -1), c = small_add(&s, "c", TOKEN_NORMAL, -1);
  uint32_t units[1 + 600 + 1] = {0};
  s.d.charsmap = small_map(units, 600);
  tokenizer *t = small_make(&s);
  WANTS(t, "AAb", PLAIN, barb, barb, barb);
  WANTS(t, "bcA\0", PLAIN, barb, c, 2);               // neither b, nor a bar, nor NUL alone is a token
  tokenizer_free(t);
  // Another program writes over the last replacement's end after the file was opened.
  uint32_t changing[1 + 600 + 2] = {0};
  s.d.charsmap = small_map(changing, 600);
  t = small_make(&s);
  memcpy(changing + 1 + 600, "b bc", 4);
  WANTS(t, "A", PLAIN, barb, barb);
  tokenizer_free(t);
  // Line 43: wrong lengths are refused; a trie that leads nowhere matches nothing.
  error err = {0};
  static const size_t lengths[] = {1, 3, 4, 100, 4 + 4 * 600, 4 + 4 * 600 + 1};
  for (size_t i = 0; i < COUNT(lengths); i++) {
    s.d.charsmap.n = lengths[i];
    assert_int_equal(tokenizer_new(small_desc(&s), &t, &err), -1);
    assert_non_null(strstr(err.text, "tokenizer.ggml.precompiled_charsmap"));
    assert_non_null(strstr(err.text, "small.gguf"));
  }
  // A replacement of 100,000 bytes, a thousand times.
  char *huge = xcalloc(1, 4 + 4 * 600 + 100001), many[1000];
  s.d.charsmap = small_map(units, 600);
  memcpy(huge, units, 4 + 4 * 600);
  memset(huge + 4 + 4 * 600, 'b', 100000);
  memset(many, 'A', sizeof many);
  s.d.charsmap = (text_view){huge, 4 + 4 * 600 + 100001};
  t = small_make(&s);
  int32_t *none = NULL;
  size_t n_none;
  assert_int_equal(tokenizer_encode(t, many, sizeof many, false, false, &none, &n_none, &err), -1);
  assert_non_null(strstr(err.text, "tokenizer.ggml.precompiled_charsmap"));
  tokenizer_free(t);
  free(huge);
  uint32_t seed = 1;
  for (int round = 0; round < 2000; round++) {
    s.d.charsmap = small_map(units, 600);
    for (int i = 0; i < 40; i++) { seed = seed * 1664525 + 1013904223; units[1 + seed % 600] ^= 1u << (seed >> 27); }
    t = small_make(&s);
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(t, "AbAcA\xC3\xA4", 7, false, false, &ids, &n, &err), 0);
    free(ids);
    tokenizer_free(t);
  }
  small_free(&s, NULL);
}

// ---- RWKV ----

static void test_rwkv(void **state) {
  (void)state;
  small s;
  small_init(&s, "rwkv", NULL);
  small_add(&s, "<s>", TOKEN_CONTROL, 0);
  int32_t a = small_add(&s, "a", TOKEN_NORMAL, 0), newline = small_add(&s, "\\n", TOKEN_NORMAL, 0),
          slash = small_add(&s, "\\\\", TOKEN_NORMAL, 0);
  int32_t byte = small_add(&s, "\\xe4", TOKEN_NORMAL, 0), abc = small_add(&s, "abc", TOKEN_NORMAL, 0),
          b = small_add(&s, "b", TOKEN_NORMAL, 0);
  int32_t n = small_add(&s, "n", TOKEN_NORMAL, 0), broken = small_add(&s, "\\x", TOKEN_NORMAL, 0);
  tokenizer *t = small_make(&s);
  WANTS(t, "abaabc\n\\n\xE4", PLAIN, a, b, a, abc, newline, slash, n, byte);
  WANTS(t, "x", PLAIN, broken);
  cannot(t, "ac", "63");
  cannot(t, "<s>", "3C");
  int32_t ids[] = {0, byte, newline, slash};
  decodes(t, ids, COUNT(ids), "\xE4\n\\");
  small_free(&s, t);
}

// ---- PLaMo-2 ----

static void test_plamo2(void **state) {
  (void)state;
  small s;
  small_init(&s, "plamo2", NULL);
  small_bytes_spm(&s);
  int32_t a = small_add(&s, "a", TOKEN_NORMAL, -2), b = small_add(&s, "b", TOKEN_NORMAL, -2),
          ab = small_add(&s, "ab", TOKEN_NORMAL, -3);
  int32_t abb = small_add(&s, "abb", TOKEN_NORMAL, -5), kana = small_add(&s, "\xE3\x81\x82", TOKEN_NORMAL, -3);
  small_add(&s, "zz", TOKEN_NORMAL, -INFINITY), small_add(&s, "xx", TOKEN_NORMAL, -2500);
  tokenizer *t = small_make(&s);
  WANTS(t, "ab", PLAIN, ab);
  WANTS(t, "abb", PLAIN, abb);                            // as good as ab b: the longer one
  WANTS(t, "ba\xE3\x81\x82", PLAIN, b, a, kana);
  WANTS(t, "zz\xC3\xA4", PLAIN, 3 + 'z', 3 + 'z', 3 + 0xC3, 3 + 0xA4);
  WANTS(t, "\xEF\xBB\xBF" "a", PLAIN, a);
  goes_round(t, "\xFF\xE3\x81 a\0\xE3\x81\x82\xEF\xBB\xBF xx", 15);
  small_free(&s, t);
}

// ---- BPE on characters ----

static void test_bpe_on_characters(void **state) {
  (void)state;
  small s;
  small_init(&s, "gemma4", NULL);
  small_bytes_spm(&s);
  s.d.role[ROLE_bos] = 1;
  s.d.add_bos = 0;                                        // files of this model say so wrongly
  int32_t bar = small_add(&s, BAR, TOKEN_NORMAL, 0), a = small_add(&s, "a", TOKEN_NORMAL, 0),
          kana = small_add(&s, "\xE3\x81\x82", TOKEN_NORMAL, 0);
  int32_t bara = small_merges(&s, BAR, "a"), lines = small_add(&s, "\n\n", TOKEN_NORMAL, 0);
  tokenizer *t = small_make(&s);
  WANTS(t, "a a  \xE3\x81\x82", ADD, 1, a, bara, bar, bar, kana);
  WANTS(t, "a\n\na\n", PLAIN, a, lines, a, 3 + '\n');
  WANTS(t, "\xC3\xA4\xFF", PLAIN, 3 + 0xC3, 3 + 0xA4, 3 + 0xFF);
  goes_round(t, " a\xFF\xC3 \xE4\xBD\xA0\0z\n\n\n ", 14);
  small_free(&s, t);

  small_init(&s, "whitespace", "whitespace");
  a = small_add(&s, "a", TOKEN_NORMAL, 0), small_add(&s, "B", TOKEN_NORMAL, 0);
  int32_t b = small_add(&s, "b", TOKEN_NORMAL, 0), ab = small_merges(&s, "a", "b");
  t = small_make(&s);
  WANTS(t, " ab \n\xE3\x80\x80" "a Ba ", PLAIN, ab, a, 1, a);
  cannot(t, "ac", "63");
  tokenizer_free(t);
  s.d.lowercase = 1;
  t = small_make(&s);
  WANTS(t, "AB B", PLAIN, ab, b);
  small_free(&s, t);
}

// ---- Regions of DNA ----

static void test_regions_of_dna(void **state) {
  (void)state;
  small s;
  small_init(&s, "hybriddna", "qwen2");
  small_bytes_bpe(&s);
  small_merges(&s, "C", "C"), small_merges(&s, "CC", "CC"), small_merges(&s, "CCCC", "CC");
  int32_t word = small_next_id(&s) - 1, open = small_add(&s, "<dna>", TOKEN_NORMAL, 0),
          close = small_add(&s, "</dna>", TOKEN_NORMAL, 0), oov = small_add(&s, "<oov>", TOKEN_NORMAL, 0),
          acg = small_add(&s, "ACGTAC\xEE\x80\x80", TOKEN_NORMAL, 0),
          c6 = small_add(&s, "CCCCCC\xEE\x80\x80", TOKEN_NORMAL, 0),
          gaa = small_add(&s, "GTAAAA\xEE\x80\x80", TOKEN_NORMAL, 0);
  tokenizer *t = small_make(&s);
  WANTS(t, "CCCCCC", PLAIN, word);
  WANTS(t, "a<dna>ACGTACcccccc</dna>b", PLAIN, 'a', open, acg, c6, close, 'b');
  WANTS(t, "<dna> \nacgtacGT\t</dna> <dna>CCCCCC", PLAIN, open, acg, gaa, close, ' ', open, c6);
  WANTS(t, "<dna></dna>", PLAIN, open, close);
  WANTS(t, "<dna>  </dna><dna>", PLAIN, open, close, open);
  WANTS(t, "<dna>ACGNACAC GTA\xC3\xA9\xE4\xB8\xAD" "ACGTAC</dna>", PLAIN, open, oov, oov, oov, oov, close);
  WANTS(t, "<dna>GT<dna></dna>", PLAIN, open, oov, oov, close);
  WANTS(t, "</dna><dn", PLAIN, '<', '/', 'd', 'n', 'a', '>', '<', 'd', 'n');
  decodes(t, (int32_t[]){open, acg, c6, gaa, close, word, oov}, 7, "<dna>ACGTACCCCCCCGTAAAA</dna>CCCCCC<oov>");
  tokenizer_free(t);
  s.types.at[open] = TOKEN_CONTROL;                       // it does not come from text: no regions
  t = small_make(&s);
  WANTS(t, "<dna>C", PLAIN, '<', 'd', 'n', 'a', '>', 'C');
  WANTS(t, "<dna>C", PARSE, open, 'C');
  small_free(&s, t);
}

// ---- White space beside special tokens ----

static void test_special_tokens_that_strip(void **state) {
  (void)state;
  small s;
  small_init(&s, "llama", NULL);
  small_bytes_spm(&s);
  s.d.name = (text_view){"My Phi-3 mini", 13};
  s.d.add_space_prefix = 0;
  int32_t user = small_add(&s, "<|user|>", TOKEN_CONTROL, 0);
  tokenizer *t = small_make(&s);
  WANTS(t, "a <|user|> \n b", PARSE, 3 + 'a', 3 + ' ', user, 3 + 'b');
  WANTS(t, "<s> b<|user|>  ", PARSE, 1, 3 + ' ', 3 + 'b', user);
  small_free(&s, t);
  small_init(&s, "gpt2", "jina-v2-de");
  small_bytes_bpe(&s);
  int32_t mask = small_add(&s, "<mask>", TOKEN_CONTROL, 0);
  t = small_make(&s);
  WANTS(t, "a  <mask> b", PARSE, 'a', mask, ' ', 'b');
  WANTS(t, "  <mask>", PARSE, mask);
  small_free(&s, t);
}

// ---- Megabytes of one character ----

static void test_ten_megabytes_of_one_character(void **state) {
  (void)state;
  static const char *const models[] = {"bert", "t5", "rwkv", "plamo2", "gemma4", "whitespace"};
  static const char *const units[] = {"a", " ", "\xCC\x81", "\xFF", "."};
  for (size_t m = 0; m < COUNT(models); m++) {
    small s;
    small_init(&s, models[m], "whitespace");
    small_bytes_spm(&s);
    for (size_t b = 0; m == 2 && b < 256; b++) {          // RWKV's bytes are ordinary tokens
      char name[8];
      snprintf(name, sizeof name, "\\x%02x", (unsigned)b);
      small_add(&s, name, TOKEN_NORMAL, 0);
    }
    char run[16] = "";
    for (size_t i = 0; i < 15; i++) {
      run[i] = m == 2 ? 'a' : i ? 'a' : 'b';
      if (m != 2 || i) small_add(&s, run, TOKEN_NORMAL, -1 - (float)i);
    }
    small_add(&s, BAR, TOKEN_NORMAL, -1), small_add(&s, BAR "a", TOKEN_NORMAL, -1),
      small_add(&s, "aaaaaaa", m == 2 ? TOKEN_UNUSED : TOKEN_NORMAL, -1);
    if (m == 2) s.tokens.at[s.tokens.n - 1] = (text_view){"aaaaaa!", 7};
    small_add(&s, "aa!", TOKEN_NORMAL, -1);
    small_only_merge(&s, "a a");
    tokenizer *t = small_make(&s);
    for (size_t u = 0; u < COUNT(units); u++) small_one_character(t, models[m], units[u]);
    small_free(&s, t);
    if (getenv("WEFT_SANITIZED")) break;                  // one is enough where everything is slow
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_wordpiece),
    cmocka_unit_test(test_unigram),
    cmocka_unit_test(test_unigram_bytes),
    cmocka_unit_test(test_charsmap),
    cmocka_unit_test(test_rwkv),
    cmocka_unit_test(test_plamo2),
    cmocka_unit_test(test_bpe_on_characters),
    cmocka_unit_test(test_regions_of_dna),
                                     cmocka_unit_test(test_special_tokens_that_strip),
    cmocka_unit_test(test_ten_megabytes_of_one_character),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
