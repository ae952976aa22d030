// Tokenizers on small vocabularies that are made here: what the algorithms do, what special tokens do, and that any
// bytes go there and back.  Broken descriptions are in test_bad_vocab.c, real vocabularies in test_vocab_files.c.
#define _GNU_SOURCE
#include "text/pretokenize.h"
#include "text/small_vocab.h"
#include "text/unicode.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "text/ids.h"

#define WORD_SPACE "\xC4\xA0"      // "Ġ", a space in the token texts of byte-level BPE
#define BAR "\xE2\x96\x81"         // "▁", a space in those of SentencePiece

#define WANTS(t, text, how, ...) wants(t, text, sizeof(text) - 1, how, (const int32_t[]){__VA_ARGS__})

static void expect_piece(const tokenizer *t, int32_t id, bool special, const char *want) {
  str s = {0};
  tokenizer_piece(t, id, &s, special);
  assert_string_equal(str_c(&s), want);
  str_free(&s);
}

// ---- Byte-level BPE ----

static void test_merges_by_rank(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "gpt-2");
  small_bytes_bpe(&s);
  int32_t bc = small_merges(&s, "b", "c"), ab = small_merges(&s, "a", "b"), abc = small_merges(&s, "a", "bc");
  int32_t spacex = small_merges(&s, WORD_SPACE, "x");
  tokenizer *t = small_make(&s);
  WANTS(t, "abc", PLAIN, abc, -1);                        // b c first, although a b comes first in the text
  WANTS(t, "abd", PLAIN, ab, 'd', -1);
  WANTS(t, "bcb", PLAIN, bc, 'b', -1);
  WANTS(t, "c xx", PLAIN, 'c', spacex, 'x', -1);
  WANTS(t, "", PLAIN, -1);
  WANTS(t, "a\0b", PLAIN, 'a', 0, 'b', -1);
  expect_piece(t, spacex, false, " x");
  expect_piece(t, -1, true, "");
  expect_piece(t, 1 << 30, true, "");
  assert_int_equal(tokenizer_n_vocab(t), 260);
  assert_int_equal(tokenizer_find(t, "abc", 3), abc);
  assert_int_equal(tokenizer_find(t, "nope", 4), -1);
  small_free(&s, t);
}

static void test_equal_pairs_from_the_left(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "gpt-2");
  small_bytes_bpe(&s);
  int32_t aa = small_merges(&s, "a", "a");
  tokenizer *t = small_make(&s);
  WANTS(t, "aaa", PLAIN, aa, 'a', -1);
  WANTS(t, "aaaaa", PLAIN, aa, aa, 'a', -1);
  small_free(&s, t);
}

// Lines 40 and 41: merges that name absent tokens, repeat, or lead nowhere are ignored; an empty token never matches.
static void test_odd_merges_are_ignored(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "gpt-2");
  small_bytes_bpe(&s);
  small_only_merge(&s, "b zz");                           // no such right side
  small_only_merge(&s, "zz b");                           // no such left side
  small_only_merge(&s, "y z");                            // no such result
  small_only_merge(&s, "");
  small_only_merge(&s, " ");
  small_only_merge(&s, "a");
  small_only_merge(&s, "a ");                             // a + nothing is a again: a circle
  small_only_merge(&s, " a");
  int32_t ab = small_merges(&s, "a", "b");
  small_only_merge(&s, "ab a");                           // aba and ab would feed each other, were there such a token
  small_only_merge(&s, "a b");                            // a second time, with a worse rank
  int32_t empty = small_add(&s, "", TOKEN_NORMAL, 0);
  tokenizer *t = small_make(&s);
  WANTS(t, "abab yz", PLAIN, ab, ab, ' ', 'y', 'z', -1);
  expect_piece(t, empty, true, "");
  small_free(&s, t);
}

static void test_whole_words_skip_merging(void **state) {
  (void)state;
  for (int whole = 0; whole < 2; whole++) {
    small s;
    small_init(&s, "gpt2", whole ? "llama-bpe" : "qwen2");
    small_bytes_bpe(&s);
    int32_t ab = small_merges(&s, "a", "b");
    int32_t word = small_add(&s, "abcd", TOKEN_NORMAL, 0);          // no merges lead to it
    tokenizer *t = small_make(&s);
    if (whole) WANTS(t, "abcd", PLAIN, word, -1);
    else WANTS(t, "abcd", PLAIN, ab, 'c', 'd', -1);
    WANTS(t, "abcde", PLAIN, ab, 'c', 'd', 'e', -1);
    small_free(&s, t);
  }
}

static void test_byte_characters(void **state) {
  (void)state;
  for (int b = 0; b < 256; b++) {
    char text[4];
    int n = bpe_byte_char((unsigned char)b, text);
    str s = {0};
    bpe_decode((text_view){text, (size_t)n}, &s);
    assert_int_equal(s.n, 1);
    assert_int_equal((unsigned char)s.at[0], b);
    str_free(&s);
  }
  str s = {0};                                            // characters that stand for no byte stay
  const char text[] = "a\xE4\xBD\xA0 \xFFz";
  bpe_decode((text_view){text, sizeof text - 1}, &s);
  assert_string_equal(s.at, text);
  str_free(&s);
}

// Models whose own tokenizers bring text into normal form C, beside others with the same pattern that do not.
static void test_normal_form(void **state) {
  (void)state;
  static const struct { const char *pre; bool nfc;
  } cases[] = {{"qwen2", true},     {"stablelm2", true}, {"hunyuan", true},
               {"command-r", true}, {"grok-2", false},   {"starcoder", false}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    small s;
    small_init(&s, "gpt2", cases[i].pre);
    small_bytes_bpe(&s);
    tokenizer *t = small_make(&s);
    if (cases[i].nfc) WANTS(t, "e\xCC\x81", PLAIN, 0xC3, 0xA9, -1);
    else WANTS(t, "e\xCC\x81", PLAIN, 'e', 0xCC, 0x81, -1);
    small_free(&s, t);
  }
}

// ---- SentencePiece ----

static void spm_small(small *s) {
  small_init(s, "llama", "default");
  small_bytes_spm(s);
}

static void test_scores_decide(void **state) {
  (void)state;
  small s;
  spm_small(&s);
  int32_t bar = small_add(&s, BAR, TOKEN_NORMAL, -50);
  int32_t a = small_add(&s, "a", TOKEN_NORMAL, -51), b = small_add(&s, "b", TOKEN_NORMAL, -52);
  int32_t ab = small_add(&s, "ab", TOKEN_NORMAL, -2), ba = small_add(&s, "ba", TOKEN_NORMAL, -1);
  int32_t bara = small_add(&s, BAR "a", TOKEN_NORMAL, -3);
  tokenizer *t = small_make(&s);
  WANTS(t, "ab", PLAIN, bar, ab, -1);                     // a space goes before the text, and ab is better than ▁a
  WANTS(t, "aba", PLAIN, bara, ba, -1);
  WANTS(t, "b a", PLAIN, bar, b, bara, -1);
  WANTS(t, "b" BAR "a" BAR, PLAIN, bar, b, bara, bar, -1); // a bar is a space
  WANTS(t, "a", ADD, 1, bara, -1);                        // BOS by default
  WANTS(t, "", ADD, 1, -1);
  WANTS(t, "", PLAIN, -1);
  WANTS(t, "c", PLAIN, bar, 3 + 'c', -1);                 // no token: its byte
  WANTS(t, "\xC3\xA4\xFF", PLAIN, bar, 3 + 0xC3, 3 + 0xA4, 3 + 0xFF, -1);
  expect_piece(t, bara, false, " a");
  expect_piece(t, 3 + 'c', false, "c");
  expect_piece(t, 1, false, "");
  expect_piece(t, 1, true, "<s>");
  const int32_t ids[] = {1, bara, b, a, 2};
  str out = {0};
  tokenizer_decode(t, ids, COUNT(ids), false, &out);
  assert_string_equal(out.at, "aba");
  str_free(&out);
  small_free(&s, t);
}

static void test_equal_scores_from_the_left(void **state) {
  (void)state;
  small s;
  spm_small(&s);
  s.d.add_space_prefix = 0;
  small_add(&s, "a", TOKEN_NORMAL, -9);
  int32_t ab = small_add(&s, "ab", TOKEN_NORMAL, -1), bc = small_add(&s, "bc", TOKEN_NORMAL, -1);
  tokenizer *t = small_make(&s);
  WANTS(t, "abc", PLAIN, ab, 3 + 'c', -1);
  WANTS(t, "bcbc", PLAIN, bc, bc, -1);
  small_free(&s, t);
}

static void test_text_that_looks_like_tokens(void **state) {
  (void)state;
  small s;
  spm_small(&s);
  // All the pieces from which "<0x41>", "</s>" and "<unk>" could be merged, with splendid scores.
  const char *parts[] = {"<0",  "<0x",  "<0x4", "<0x41", "</", "</s", "s>", "<u",
                         "<un", "<unk", "<s",   BAR,     "<",  "x",   "0"};
  for (size_t i = 0; i < COUNT(parts); i++) small_add(&s, parts[i], TOKEN_NORMAL, 10);
  tokenizer *t = small_make(&s);
  const char *texts[] = {"<0x41>", "</s>", "<unk>", "<s>", "<s></s>", " ", "a b  "};
  for (size_t i = 0; i < COUNT(texts); i++) {
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenizer_encode(t, texts[i], strlen(texts[i]), false, false, &ids, &n, NULL), 0);
    for (size_t k = 0; k < n; k++) {
      assert_int_not_equal(tokenizer_token_type(t, ids[k]), TOKEN_CONTROL);
      assert_int_not_equal(tokenizer_token_type(t, ids[k]), TOKEN_UNKNOWN);
      assert_int_not_equal(ids[k], 3 + 0x41);
    }
    free(ids);
    goes_round(t, texts[i], strlen(texts[i]));
  }
  small_free(&s, t);
}

static void test_names_without_types(void **state) {
  (void)state;
  small s;
  spm_small(&s);
  int32_t a = small_add(&s, "a", TOKEN_NORMAL, -1), bar = small_add(&s, BAR, TOKEN_NORMAL, -2);
  vocab_desc *d = small_desc(&s);
  d->types = NULL;
  tokenizer *t = NULL;
  assert_int_equal(tokenizer_new(d, &t, NULL), 0);
  WANTS(t, "ab", PLAIN, bar, a, 3 + 'b', -1);
  expect_piece(t, 3 + 'b', false, "b");
  small_free(&s, t);
}

// ---- Special tokens ----

static void test_control_tokens_need_leave(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "qwen2");
  small_bytes_bpe(&s);
  int32_t end = small_add(&s, "<|im_end|>", TOKEN_CONTROL, 0), user = small_add(&s, "<user>", TOKEN_USER_DEFINED, 0);
  small_merges(&s, "<", "|"), small_merges(&s, "<|", "i"), small_merges(&s, "<|i", "m");    // halfway there
  tokenizer *t = small_make(&s);
  WANTS(t, "a<|im_end|>b", PARSE, 'a', end, 'b', -1);
  WANTS(t, "<|im_end|>", PARSE, end, -1);
  WANTS(t, "<|im_end|><|im_end|>", PARSE, end, end, -1);
  WANTS(t, "a<user>", PLAIN, 'a', user, -1);
  WANTS(t, "<user>a", PARSE, user, 'a', -1);
  int32_t *ids;
  size_t n;
  assert_int_equal(tokenizer_encode(t, "<|im_end|>", 10, true, false, &ids, &n, NULL), 0);
  for (size_t i = 0; i < n; i++) assert_int_not_equal(ids[i], end);
  free(ids);
  expect_piece(t, end, false, "");
  expect_piece(t, end, true, "<|im_end|>");
  expect_piece(t, user, false, "<user>");
  goes_round(t, "x<|im_end|><user>y", 18);
  small_free(&s, t);
}

// A text of several authors: control tokens come from the parts that are named, whole, and a user's token from
// anywhere.  Text that only looks like one is tokenized as it would be without the name of a part.
static void test_control_tokens_within(void **state) {
  (void)state;
  static const char text[] = "<|a|>x<|a|>y<u><|a|><|a|>";      // at 0, 6, 12 (the user's), 15, 20
  small s;
  small_init(&s, "gpt2", "qwen2");
  small_bytes_bpe(&s);
  int32_t a = small_add(&s, "<|a|>", TOKEN_CONTROL, 0), u = small_add(&s, "<u>", TOKEN_USER_DEFINED, 0);
  tokenizer *t = small_make(&s);
  static const struct { text_span at[3]; size_t n, controls; } rows[] = {
    {{{0, 25}}, 1, 4}, {{{0, 0}}, 0, 0},           {{{0, 5}}, 1, 1},           {{{0, 4}}, 1, 0},
    {{{1, 5}}, 1, 0},  {{{0, 5}, {6, 11}}, 2, 2},  {{{0, 3}, {6, 15}}, 2, 1},  {{{2, 18}, {20, 25}}, 2, 2},
    {{{14, 21}}, 1, 1}, {{{16, 25}}, 1, 1},        {{{15, 19}, {21, 25}}, 2, 0}};
  for (size_t i = 0; i < COUNT(rows); i++) {
    text_spans within = {(text_span *)(uintptr_t)rows[i].at, rows[i].n, rows[i].n};
    const encode_how how = {.parse_special = true, .within = &within};
    int32_t *ids;
    size_t n_ids, controls = 0, users = 0, bytes = 0;
    assert_int_equal(tokenizer_encode_as(t, (text_view){text, 25}, &how, &ids, &n_ids, NULL), 0);
    for (size_t k = 0; k < n_ids; k++) {
      controls += ids[k] == a, users += ids[k] == u;
      str piece = {0};
      tokenizer_piece(t, ids[k], &piece, true);
      bytes += piece.n;
      str_free(&piece);
    }
    assert_int_equal(controls, rows[i].controls);
    assert_int_equal(users, 1);
    assert_int_equal(bytes, 25);
    free(ids);
  }
  small_free(&s, t);
}

// The same in pieces, with a limit: places are those of the whole text.
static void test_long_texts_of_several_authors(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "qwen2");
  small_bytes_bpe(&s);
  int32_t a = small_add(&s, "<|a|>", TOKEN_CONTROL, 0);
  tokenizer *t = small_make(&s);
  str text = {0};
  text_spans within = {0};
  size_t wanted = 0, counted = 0;
  for (unsigned i = 0; text.n < 300000; i++) {
    size_t from = text.n;
    str_add(&text, i % 7 ? "<|a|>" : "<|a");
    if (i % 3) spans_add(&within, from, text.n);
    wanted += i % 3 && i % 7;
    for (unsigned k = 0; k < i % 5; k++) str_add(&text, k % 2 ? " " : "word");
  }
  int32_t *ids[2];
  size_t n[2];
  for (int k = 0; k < 2; k++) {
    const encode_how how = {.parse_special = true, .within = &within, .most = k ? SIZE_MAX : 0};
    assert_int_equal(tokenizer_encode_as(t, (text_view){text.at, text.n}, &how, &ids[k], &n[k], NULL), 0);
  }
  for (size_t i = 0; i < n[0]; i++) counted += ids[0][i] == a;
  assert_int_equal(counted, wanted);
  assert_int_equal(n[0], n[1]);
  assert_memory_equal(ids[0], ids[1], n[0] * sizeof *ids[0]);
  const encode_how few = {.parse_special = true, .within = &within, .most = 100};
  free(ids[1]);
  assert_int_equal(tokenizer_encode_as(t, (text_view){text.at, text.n}, &few, &ids[1], &n[1], NULL), 0);
  assert_true(n[1] > 100 && n[1] < n[0] / 2);
  for (int k = 0; k < 2; k++) free(ids[k]);
  vec_free(&within);
  str_free(&text);
  small_free(&s, t);
}

// A token that the file calls NORMAL although its name and its merges make it reachable from text.
static void test_merges_never_reach_an_end(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "gpt-2");
  small_bytes_bpe(&s);
  int32_t bar = small_merges(&s, "<", "|"), e = small_merges(&s, "e", "nd"), nd = small_merges(&s, "n", "d");
  int32_t gt = small_merges(&s, "|", ">");
  int32_t end = small_add(&s, "<|end|>", TOKEN_NORMAL, 0);
  small_merges(&s, "<|", "end");
  small_only_merge(&s, "<|end |>");
  tokenizer *t = small_make(&s);
  (void)bar, (void)e, (void)nd, (void)gt;
  assert_true(tokenizer_is_eog(t, end));
  int32_t *ids;
  size_t n;
  assert_int_equal(tokenizer_encode(t, "<|end|>", 7, false, false, &ids, &n, NULL), 0);
  for (size_t i = 0; i < n; i++) assert_int_not_equal(ids[i], end);
  free(ids);
  small_free(&s, t);
}

static void test_longest_special_first(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "gpt-2");
  small_bytes_bpe(&s);
  int32_t two = small_add(&s, "\n\n", TOKEN_USER_DEFINED, 0), four = small_add(&s, "\n\n\n\n", TOKEN_USER_DEFINED, 0);
  int32_t control = small_add(&s, "\n\n\n", TOKEN_CONTROL, 0);
  tokenizer *t = small_make(&s);
  WANTS(t, "\n\n\n\n\n\n\n", PLAIN, four, two, '\n', -1);
  WANTS(t, "\n\n\n\n\n\n\n", PARSE, four, control, -1);
  small_free(&s, t);
}

static void test_spaces_around_special_tokens(void **state) {
  (void)state;
  small s;
  spm_small(&s);
  int32_t bar = small_add(&s, BAR, TOKEN_NORMAL, -1), user = small_add(&s, "[x]", TOKEN_USER_DEFINED, 0);
  tokenizer *t = small_make(&s);
  WANTS(t, "a[x]b", PLAIN, bar, 3 + 'a', user, bar, 3 + 'b', -1);
  goes_round(t, "a[x]b", 5);
  goes_round(t, "a [x] b", 7);
  goes_round(t, "[x]", 3);
  goes_round(t, "[x] ", 4);
  goes_round(t, "  [x]  ", 7);
  small_free(&s, t);
}

static void test_additions(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "gpt-2");
  small_bytes_bpe(&s);
  s.d.role[ROLE_bos] = small_add(&s, "<bos>", TOKEN_CONTROL, 0);
  s.d.role[ROLE_eos] = small_add(&s, "<eos>", TOKEN_CONTROL, 0);
  tokenizer *t = small_make(&s);
  WANTS(t, "a", ADD, 'a', -1);                            // gpt-2 adds nothing by itself
  tokenizer_free(t);
  s.d.add_bos = s.d.add_eos = 1;
  t = small_make(&s);
  assert_true(tokenizer_adds_bos(t));
  WANTS(t, "a", ADD, 256, 'a', 257, -1);
  WANTS(t, "", ADD, 256, 257, -1);
  WANTS(t, "a", PLAIN, 'a', -1);
  tokenizer_free(t);
  s.d.add_bos = s.d.add_eos = -1;
  s.d.pre = (text_view){"llama-bpe", 9};
  t = small_make(&s);
  WANTS(t, "a", ADD, 256, 'a', -1);
  tokenizer_free(t);
  s.d.add_bos = 0;
  t = small_make(&s);
  WANTS(t, "a", ADD, 'a', -1);
  small_free(&s, t);
}

static void test_ends_of_generation(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "gpt-2");
  int32_t eos = small_add(&s, "stop", TOKEN_NORMAL, 0), turn = small_add(&s, "<|im_end|>", TOKEN_CONTROL, 0);
  int32_t end = small_add(&s, "<|end|>", TOKEN_CONTROL, 0), strike = small_add(&s, "</s>", TOKEN_NORMAL, 0);
  int32_t other = small_add(&s, "<|im_start|>", TOKEN_CONTROL, 0),
          message = small_add(&s, "<|eom_id|>", TOKEN_CONTROL, 0);
  s.d.role[ROLE_eos] = eos;
  tokenizer *t = small_make(&s);
  assert_true(tokenizer_is_eog(t, eos));
  assert_true(tokenizer_is_eog(t, turn));
  assert_true(tokenizer_is_eog(t, end));
  assert_true(tokenizer_is_eog(t, message));
  assert_false(tokenizer_is_eog(t, strike));              // plain text in this vocabulary
  assert_false(tokenizer_is_eog(t, other));
  assert_int_equal(tokenizer_role(t, ROLE_eot), turn);
  assert_int_equal(tokenizer_role(t, ROLE_eom), message);
  assert_int_equal(tokenizer_role(t, ROLE_bos), -1);
  tokenizer_free(t);
  // With <|return|> and <|call|> beside it, <|end|> ends a message, not the answer.
  small_add(&s, "<|return|>", TOKEN_CONTROL, 0);
  small_add(&s, "<|call|>", TOKEN_CONTROL, 0);
  t = small_make(&s);
  assert_false(tokenizer_is_eog(t, end));
  assert_true(tokenizer_is_eog(t, tokenizer_find(t, "<|return|>", 10)));
  small_free(&s, t);
}

// ---- Any bytes go there and back ----

static uint64_t next_random(uint64_t *s) { return *s = hash_u64(*s, 3); }

static size_t random_text(uint64_t *seed, char *out, size_t cap) {
  static const char *const pieces[] = {"a",
                                       "b",
                                       "ab",
                                       " ",
                                       "  ",
                                       "\n",
                                       "\r\n",
                                       "\t",
                                       "'s",
                                       "'LL",
                                       "12",
                                       "7",
                                       "\xC2\xA0",
                                       "\xE2\x80\xA8",
                                       "\xE3\x80\x80",
                                       BAR,
                                       "\xE4\xBD\xA0\xE5\xA5\xBD",
                                       "\xF0\x9F\x98\x81",
                                       "e\xCC\x81",
                                       "\xC3\x84",
                                       "<|im_end|>",
                                       "<user>",
                                       "<0x41>",
                                       "</s>",
                                       "\xED\xA0\x80" /* a lone surrogate */,
                                       "\xFF",
                                       "\xC3",
                                       "\x80",
                                       "\xF4\x90\x80\x80",
                                       "!",
                                       "?!",
                                       ".",
                                       "=",
                                       "\xC5\xBF",
                                       "\xE1\xA0\x8E",
                                       "Z",
                                       "zZ"};
  size_t n = 0, length = next_random(seed) % cap;
  while (n < length) {
    uint64_t r = next_random(seed);
    const char *piece = pieces[r % COUNT(pieces)];
    size_t len = strlen(piece);
    if (r >> 32 & 7) {
      if (n + len <= length) memcpy(out + n, piece, len);
      else len = length - n, memset(out + n, 'q', len);
      n += len;
    } else out[n++] = (char)(r >> 40);  // any byte, NUL too
  }
  return n;
}

enum comes_back_as { ITSELF, IN_NFC, BARS_AS_SPACES };

static void round_trips(const tokenizer *t, uint64_t seed, int count, enum comes_back_as how) {
  char text[300];
  for (int i = 0; i < count; i++) {
    size_t n = random_text(&seed, text, sizeof text);
    str normal = {0};
    if (how == IN_NFC) unicode_normalize(UNICODE_NFC, text, n, &normal);
    for (size_t k = 0; how == BARS_AS_SPACES && k < n;) {
      bool bar = n - k >= 3 && !memcmp(text + k, BAR, 3);
      str_addc(&normal, bar ? ' ' : text[k]);
      k += bar ? 3 : 1;
    }
    comes_back(t, text, n, how == ITSELF ? NULL : &normal);
    str_free(&normal);
  }
  for (int b = 0; b < 256; b++) { text[0] = (char)b; goes_round(t, text, 1); }
}

static void test_bpe_round_trip(void **state) {
  (void)state;
  // Every pattern in the table.
  for (size_t row = 0; pretokenizer_at(row); row++) {
    if (pretokenizer_at(row)->flags & PRE_CHARS) continue; // in test_models.c
    small s;
    small_init(&s, "gpt2", pretokenizer_at(row)->name);
    small_bytes_bpe(&s);
    small_merges(&s, "a", "b"), small_merges(&s, WORD_SPACE, "ab"), small_merges(&s, WORD_SPACE, WORD_SPACE),
      small_merges(&s, "1", "2");
    small_add(&s, "<|im_end|>", TOKEN_CONTROL, 0), small_add(&s, "<user>", TOKEN_USER_DEFINED, 0);
    tokenizer *t = small_make(&s);
    round_trips(t, row, 100, pretokenizer_at(row)->flags & PRE_NFC ? IN_NFC : ITSELF);
    small_free(&s, t);
  }
}

static void test_spm_round_trip(void **state) {
  (void)state;
  for (int prefix = 0; prefix < 2; prefix++)
    for (int bar = 0; bar < 2; bar++) {
      small s;
      spm_small(&s);
      s.d.add_space_prefix = prefix;
      small_add(&s, "a", TOKEN_NORMAL, -3), small_add(&s, "ab", TOKEN_NORMAL, -1),
        small_add(&s, "\xE4\xBD\xA0", TOKEN_NORMAL, -4);
      if (bar)
        small_add(&s, BAR, TOKEN_NORMAL, -3), small_add(&s, BAR BAR, TOKEN_NORMAL, -2),
          small_add(&s, BAR "a", TOKEN_NORMAL, -2);
      small_add(&s, "<user>", TOKEN_USER_DEFINED, 0);
      tokenizer *t = small_make(&s);
      round_trips(t, (uint64_t)(prefix * 2 + bar), 1000, BARS_AS_SPACES);
      small_free(&s, t);
    }
}

// ---- Line 45: megabytes of one character ----

static void one_character(const char *model, const char *pre, const char *unit) {
  small s;
  small_init(&s, model, pre);
  if (!strcmp(model, "llama")) {
    small_bytes_spm(&s);
    small_add(&s, "a", TOKEN_NORMAL, -9), small_add(&s, "aa", TOKEN_NORMAL, -2),
      small_add(&s, "aaaa", TOKEN_NORMAL, -1);
    small_add(&s, BAR, TOKEN_NORMAL, -9), small_add(&s, BAR BAR, TOKEN_NORMAL, -2),
      small_add(&s, BAR BAR BAR BAR, TOKEN_NORMAL, -1);
  } else {
    small_bytes_bpe(&s);
    small_merges(&s, "a", "a"), small_merges(&s, "aa", "aa"), small_merges(&s, "1", "1"),
      small_merges(&s, WORD_SPACE, WORD_SPACE);
    small_merges(&s, "A", "A"), small_merges(&s, "=", "=");
  }
  tokenizer *t = small_make(&s);
  small_one_character(t, pre, unit);
  small_free(&s, t);
}

static void test_ten_megabytes_of_one_character(void **state) {
  (void)state;
  static const struct { const char *model, *pre, *units[8]; } cases[] = {
    {"llama", "default", {"a", " ", "\n", "\xFF"}},
    {"gpt2", "llama-bpe", {"a", " ", "\n", "1", "=", "\xCC\x81", "\xFF"}},
    {"gpt2", "gpt-2", {"a", "1"}},
    {"gpt2", "qwen2", {"1", "\xCC\x81"}},
    {"gpt2", "gpt-4o", {"A"}},
    {"gpt2", "deepseek-llm", {" "}},
    {"gpt2", "deepseek-v3", {"1"}},
    {"gpt2", "starcoder", {"1"}},
    {"gpt2", "tiny_aya", {"1"}},
    {"gpt2", "jais-2", {" "}},
    {"gpt2", "kimi-k2", {"a", "\xE6\xBC\xA2"}},
    {"gpt2", "exaone-moe", {"a"}},
  };
  size_t n = getenv("WEFT_SANITIZED") ? 2 : COUNT(cases);  // two are enough where everything is slow
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < COUNT(cases[i].units) && cases[i].units[k]; k++)
      one_character(cases[i].model, cases[i].pre, cases[i].units[k]);
}

// ---- Threads ----

struct job { const tokenizer *t; bool ok; };

static void *encode_many(void *p) {
  struct job *j = p;
  j->ok = true;
  for (int i = 0; i < 200; i++) {
    int32_t *ids;
    size_t n;
    if (tokenizer_encode(j->t, "ab ab\nab 12", 11, false, false, &ids, &n, NULL)) { j->ok = false; break; }
    j->ok &= n == 8;
    free(ids);
  }
  return NULL;
}

static void test_threads_share_a_tokenizer(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "qwen2");
  small_bytes_bpe(&s);
  small_merges(&s, "a", "b");
  tokenizer *t = small_make(&s);                          // its encoder is made by whichever thread comes first
  pthread_t thread[4];
  struct job job[4];
  for (int i = 0; i < 4; i++) {
    job[i] = (struct job){t, false};
    assert_int_equal(pthread_create(&thread[i], NULL, encode_many, &job[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(thread[i], NULL);
    assert_true(job[i].ok);
  }
  small_free(&s, t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_merges_by_rank),
    cmocka_unit_test(test_equal_pairs_from_the_left),
    cmocka_unit_test(test_odd_merges_are_ignored),
    cmocka_unit_test(test_whole_words_skip_merging),
    cmocka_unit_test(test_byte_characters),
    cmocka_unit_test(test_normal_form),
    cmocka_unit_test(test_scores_decide),
    cmocka_unit_test(test_equal_scores_from_the_left),
    cmocka_unit_test(test_text_that_looks_like_tokens),
    cmocka_unit_test(test_names_without_types),
    cmocka_unit_test(test_control_tokens_need_leave),
    cmocka_unit_test(test_control_tokens_within),
    cmocka_unit_test(test_long_texts_of_several_authors),
    cmocka_unit_test(test_merges_never_reach_an_end),
    cmocka_unit_test(test_longest_special_first),
    cmocka_unit_test(test_spaces_around_special_tokens),
    cmocka_unit_test(test_additions),
    cmocka_unit_test(test_ends_of_generation),
    cmocka_unit_test(test_bpe_round_trip),
    cmocka_unit_test(test_spm_round_trip),
    cmocka_unit_test(test_ten_megabytes_of_one_character),
    cmocka_unit_test(test_threads_share_a_tokenizer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
