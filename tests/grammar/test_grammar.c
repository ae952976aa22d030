// Grammars against brute force: random ones over two letters, all of whose short texts are worked out set by set; masks
// against bytes; and what clones, limits and a full cache do.
#define _GNU_SOURCE
#include "base/account.h"
#include "grammar/gbnf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "text/small_vocab.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// ---- brute force ----------------------------------------------------------------------------------------------------

// Texts over x and y of at most LONGEST letters, numbered by length and then as binary numbers; a language is the set
// of them.
enum { LONGEST = 6, TEXTS = (1 << (LONGEST + 1)) - 1, RULES = 3 };
typedef struct language { bool has[TEXTS]; } language;

static int text_number(int length, int bits) { return (1 << length) - 1 + bits; }
static int text_length(int number) {
  int length = 0;
  while ((1 << (length + 1)) - 1 <= number) length++;
  return length;
}
static int text_bits(int number) { return number - ((1 << text_length(number)) - 1); }

static language concat(const language *a, const language *b) {
  language out = {{false}};
  for (int i = 0; i < TEXTS; i++)
    for (int k = 0; a->has[i] && k < TEXTS; k++) {
      int la = text_length(i), lb = text_length(k);
      if (b->has[k] && la + lb <= LONGEST) out.has[text_number(la + lb, text_bits(i) << lb | text_bits(k))] = true;
    }
  return out;
}

enum ex_kind { EX_X, EX_Y, EX_ANY, EX_EMPTY, EX_RULE, EX_SEQ, EX_ALT, EX_REPEAT };
struct ex { enum ex_kind kind; int rule, min, max; struct ex *a, *b; };

static uint64_t rng = 1;
static int draw(int n) { rng = hash_u64(rng, 3); return (int)(rng % (uint64_t)n); }

static struct ex *random_ex(arena *mem, int depth) {
  struct ex *e = ARENA_NEW(mem, struct ex);
  e->kind = (enum ex_kind)draw(depth ? 8 : 5);
  e->rule = draw(RULES);
  static const int counts[][2] = {{0, 1}, {0, -1}, {1, -1}, {2, 3}, {0, 100}, {3, 100000}, {2, -1}, {1, 1}};
  int c = draw((int)COUNT(counts));
  e->min = counts[c][0];
  e->max = counts[c][1];
  if (e->kind >= EX_SEQ) e->a = random_ex(mem, depth - 1);
  if (e->kind == EX_SEQ || e->kind == EX_ALT) e->b = random_ex(mem, depth - 1);
  return e;
}

static void write_ex(const struct ex *e, str *out) {
  switch (e->kind) {
  case EX_X: str_add(out, "\"x\""); break;
  case EX_Y: str_add(out, "[y]"); break;
  case EX_ANY: str_add(out, "[x-y]"); break;
  case EX_EMPTY: str_add(out, "\"\""); break;
  case EX_RULE: str_addf(out, "r%d", e->rule); break;
  case EX_SEQ: case EX_ALT:
    str_add(out, "(");
    write_ex(e->a, out);
    str_add(out, e->kind == EX_ALT ? " | " : " ");
    write_ex(e->b, out);
    str_add(out, ")");
    break;
  case EX_REPEAT:
    str_add(out, "(");
    write_ex(e->a, out);
    if (e->max < 0) str_addf(out, "){%d,}", e->min);
    else str_addf(out, "){%d,%d}", e->min, e->max);
    break;
  }
}

static language value(const struct ex *e, const language *rules) {
  language out = {{false}};
  switch (e->kind) {
  case EX_X: out.has[text_number(1, 0)] = true; break;
  case EX_Y: out.has[text_number(1, 1)] = true; break;
  case EX_ANY: out.has[text_number(1, 0)] = out.has[text_number(1, 1)] = true; break;
  case EX_EMPTY: out.has[0] = true; break;
  case EX_RULE: out = rules[e->rule]; break;
  case EX_SEQ: case EX_ALT: {
    language a = value(e->a, rules), b = value(e->b, rules);
    if (e->kind == EX_SEQ) return concat(&a, &b);
    for (int i = 0; i < TEXTS; i++) out.has[i] = a.has[i] || b.has[i];
    break;
  }
  case EX_REPEAT: {
    language one = value(e->a, rules), so_far = {{false}};
    so_far.has[0] = true;
    // Beyond LONGEST repetitions only empty ones can follow.
    int most = e->max < 0 || e->max > LONGEST + 1 + e->min ? LONGEST + 1 + e->min : e->max;
    for (int k = 0; k <= most; k++) {
      for (int i = 0; i < TEXTS && k >= e->min; i++) out.has[i] = out.has[i] || so_far.has[i];
      so_far = concat(&so_far, &one);
    }
    break;
  }
  }
  return out;
}

static void test_random_grammars(void **state) {
  (void)state;
  int compiled = 0, rounds = getenv("WEFT_SANITIZED") ? 150 : 1000;
  for (int round = 0; round < rounds; round++) {
    arena *mem = arena_new();
    struct ex *bodies[RULES];
    language rules[RULES] = {{{false}}}, before[RULES];
    str text = {0};
    str_add(&text, "root ::= r0\n");
    for (int r = 0; r < RULES; r++) {
      bodies[r] = random_ex(mem, 3);
      str_addf(&text, "r%d ::= ", r);
      write_ex(bodies[r], &text);
      str_addc(&text, '\n');
    }
    do {
      memcpy(before, rules, sizeof rules);
      for (int r = 0; r < RULES; r++) rules[r] = value(bodies[r], rules);
    } while (memcmp(before, rules, sizeof rules));
    grammar *g = NULL;
    matcher *m = NULL;
    error err = {0};
    if (grammar_from_gbnf(text.at, text.n, NULL, &g, &err)) {
      for (int i = 0; i < TEXTS; i++) if (rules[0].has[i]) fail_msg("%s%s", text.at, err.text);
    } else {
      if (matcher_new(g, NULL, &m, &err)) fail_msg("%s%s", text.at, err.text);
      compiled++;
      for (int i = 0; i < TEXTS; i++) {
        char letters[LONGEST + 1] = "";
        bool ok;
        for (int k = 0; k < text_length(i); k++) letters[k] = text_bits(i) >> (text_length(i) - 1 - k) & 1 ? 'y' : 'x';
        matcher_reset(m);
        if (matcher_bytes(m, letters, (size_t)text_length(i), &ok, &err))
          fail_msg("%s'%s': %s", text.at, letters, err.text);
        if ((ok && matcher_complete(m)) != rules[0].has[i])
          fail_msg("%s'%s' is %s", text.at, letters, rules[0].has[i] ? "not accepted" : "accepted");
        if (ok && !matcher_complete(m) && !matcher_can_go_on(m)) fail_msg("%s'%s' leads nowhere", text.at, letters);
      }
      matcher_free(m);
      grammar_free(g);
    }
    str_free(&text);
    arena_free(mem);
  }
  assert_true(compiled > rounds / 2);
}

// ---- masks ----------------------------------------------------------------------------------------------------------

struct vocab_rig { small s; tokenizer *t; grammar_vocab *v; };

static bool tokens_find(const small *s, const char *text) {
  size_t n = strlen(text);
  for (size_t i = 0; i < s->tokens.n; i++)
    if (s->tokens.at[i].n == n && !memcmp(s->tokens.at[i].at, text, n)) return true;
  return false;
}

static int rig_open(void **state) {
  static struct vocab_rig r;
  static const char *const longer[] = {
    "xx",   "xyx",      "\"x",  "\":",  "\",\"",        "{\"",
    "}]",   "true",     "12",   "345",  "xxxxxxxxxxxx", "xyxyxyxyxyxyxyxyxyxyxyxyxyxyxyxyxyxy",
    "\\\"", "\xC3\xA9", "\xA9", "x\xC3"};
  error err = {0};
  small_init(&r.s, "llama", NULL);
  small_bytes_spm(&r.s);
  for (size_t i = 0; i < COUNT(longer); i++) small_add(&r.s, longer[i], TOKEN_NORMAL, 0);
  // large tries, parts of which a walk passes by
  static const char *const parts[] = {"x",  "yx", "\xC3\xA9", "\xE6\x97\xA5", "\xE6\x97", "\xF0\x9F\x98\x80",
                                      "\"", "z",  "\xA5y"};
  for (size_t i = 0; i < COUNT(parts) * COUNT(parts) * COUNT(parts); i++) {
    char text[32];
    snprintf(text, sizeof text, "zz%s%s%s", parts[i / COUNT(parts) / COUNT(parts)],
             parts[i / COUNT(parts) % COUNT(parts)], parts[i % COUNT(parts)]);
    if (tokens_find(&r.s, text)) continue;
    small_add(&r.s, text, TOKEN_NORMAL, 0);
  }
  r.s.d.role[ROLE_eos] = 2;
  r.t = small_make(&r.s);
  assert_int_equal(grammar_vocab_new(r.t, &r.v, &err), 0);
  *state = &r;
  return 0;
}

static int rig_close(void **state) {
  struct vocab_rig *r = *state;
  grammar_vocab_free(r->v);
  small_free(&r->s, r->t);
  return 0;
}

// At each step every token is asked for twice: by the mask, and by its bytes.
static void check_masks(struct vocab_rig *r, grammar *g, int steps) {
  matcher *m;
  error err = {0};
  assert_int_equal(matcher_new(g, r->v, &m, &err), 0);
  for (int walk = 0; walk < 4; walk++) {
    matcher_reset(m);
    for (int step = 0; step < steps; step++) {
      const uint64_t *mask;
      uint64_t copy[32];
      int32_t n = tokenizer_n_vocab(r->t), allowed = 0, chosen = -1;
      assert_int_equal(matcher_mask(m, &mask, &err), 0);
      memcpy(copy, mask, ((size_t)n + 63) / 64 * 8);
      for (int32_t id = 0; id < n; id++) {
        size_t bytes;
        bool ok = false;
        const char *text = grammar_vocab_bytes(r->v, id, &bytes);
        matcher *other = matcher_clone(m);
        if (grammar_vocab_ends(r->v, id)) ok = matcher_complete(m);
        else if (bytes) assert_int_equal(matcher_bytes(other, text, bytes, &ok, &err), 0);
        matcher_free(other);
        if ((copy[id / 64] >> id % 64 & 1) != ok) fail_msg("step %d, token %d ('%.*s')", step, id, (int)bytes, text);
        if (ok && draw(++allowed) == 0) chosen = id;
      }
      assert_true(chosen >= 0);
      assert_int_equal(matcher_accept(m, chosen, &err), 0);
      if (grammar_vocab_ends(r->v, chosen)) break;
    }
  }
  matcher_free(m);
}

static void test_masks(void **state) {
  static const char *const gbnf[] = {"root ::= [xy]{2,40} \"\\\"\" ",
                                     "root ::= \"x\"{10,20} (\"y\" | root)",
                                     "root ::= ([^\"\\\\] | \"\\\\\" .)* \"\\\"\"",
                                     "root ::= e\ne ::= e \"x\" e | \"y\" | \"(\" e \")\"",
                                     "root ::= ((\"x\" | \"xyx\"){3,5} \"\\\"\"){2,1000}",
                                     "root ::= [é-ü]{1,30} | \"x\" root \"y\"",
                                     "root ::= (\"x\"{1,3}){1,30} [xy]{5}",
                                     "root ::= [^\"]{1,90} \"\\\"\" root?",
                                     "root ::= ([^\"] [^\"x]?){2,9} \"\\\"\" [z]* [^y]{0,30}",
                                     "root ::= (\"z\" [^\"]* \"\\\"\"){1,12}"};
  static const char *const schemas[] = {
    ("{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\",\"maxLength\":12},\"xx\":{\"type\":\"array\","
     "\"items\":{\"type\":\"integer\"},\"maxItems\":3}},\"required\":[\"x\"]}"),
    "{}", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^x+y?$\",\"maxLength\":40}}",
    "{\"type\":\"number\",\"minimum\":12.5,\"maximum\":3450}"};
  error err = {0};
  for (size_t i = 0; i < COUNT(gbnf) + COUNT(schemas); i++) {
    grammar *g = NULL;
    const char *text = i < COUNT(gbnf) ? gbnf[i] : schemas[i - COUNT(gbnf)];
    if (i < COUNT(gbnf) ? grammar_from_gbnf(text, strlen(text), NULL, &g, &err)
                        : grammar_from_schema(text, strlen(text), true, NULL, &g, &err))
      fail_msg("%s: %s", text, err.text);
    check_masks(*state, g, getenv("WEFT_SANITIZED") ? 15 : 60);
    grammar_free(g);
  }
}

// No rule reads a byte, so that the automaton has no edges of bytes at all.
static void test_tokens_alone(void **state) {
  struct vocab_rig *r = *state;
  static const char text[] = "root ::= <[100]> | <[101]>";
  grammar *g;
  matcher *m;
  const uint64_t *mask;
  assert_int_equal(grammar_from_gbnf(text, strlen(text), r->t, &g, NULL), 0);
  assert_int_equal(matcher_new(g, r->v, &m, NULL), 0);
  assert_int_equal(matcher_mask(m, &mask, NULL), 0);
  assert_int_equal(mask[0], 0);
  assert_int_equal(mask[1], 3ULL << (100 - 64));
  assert_int_equal(matcher_accept(m, 101, NULL), 0);
  assert_true(matcher_complete(m) && !matcher_can_go_on(m));
  matcher_free(m);
  grammar_free(g);
}

static void test_tokens_by_name_and_id(void **state) {
  struct vocab_rig *r = *state;
  static const char text[] = "root ::= <s> !<[100]> <true>";
  grammar *g;
  matcher *m;
  error err = {0};
  const uint64_t *mask;
  // <true> is a token's text with its brackets
  assert_int_equal(grammar_from_gbnf(text, strlen(text), r->t, &g, &err), -1);
  assert_non_null(strstr(err.text, "<true> is not a token"));
  err.text[0] = 0;
  static const char fine[] = "root ::= <s> !<[100]> \"true\"";
  assert_int_equal(grammar_from_gbnf(fine, strlen(fine), r->t, &g, &err), 0);
  assert_int_equal(matcher_new(g, r->v, &m, &err), 0);
  assert_int_equal(matcher_mask(m, &mask, &err), 0);
  // <s> alone, though it is a control token
  assert_int_equal(mask[0], 1 << 1);
  assert_int_equal(matcher_accept(m, 5, &err), -1);
  assert_non_null(strstr(err.text, "token 5"));
  err.text[0] = 0;
  assert_int_equal(matcher_accept(m, 1, &err), 0);
  assert_int_equal(matcher_mask(m, &mask, &err), 0);
  assert_int_equal(mask[100 / 64] >> 100 % 64 & 1, 0);
  assert_int_equal(mask[101 / 64] >> 101 % 64 & 1, 1);
  assert_int_equal(mask[0] & 7, 0);                                                // no control token, no end
  assert_int_equal(matcher_accept(m, 100, &err), -1);
  assert_int_equal(matcher_accept(m, 101, NULL), 0);
  matcher *copy = matcher_clone(m);
  bool ok;
  assert_int_equal(matcher_bytes(m, "true", 4, &ok, NULL), 0);
  assert_true(ok && matcher_complete(m) && !matcher_can_go_on(m));
  assert_false(matcher_complete(copy));
  assert_int_equal(matcher_accept(m, 2, NULL), 0);                                 // </s>
  assert_int_equal(matcher_accept(m, 2, NULL), -1);
  matcher_free(m);
  assert_int_equal(matcher_bytes(copy, "tru", 3, &ok, NULL), 0);
  assert_true(ok);
  matcher_free(copy);
  grammar_free(g);
}

// Much more text than what is remembered has room for: what matchers refer to survives, and they go on where they were.
static void test_long_texts(void **state) {
  struct vocab_rig *r = *state;
  static const char text[] = "root ::= a\na ::= \"(\" a \")\" | [0-9]{0,4000000}\n";
  grammar *g;
  matcher *m;
  error err = {0};
  bool ok = true;
  assert_int_equal(grammar_from_gbnf(text, strlen(text), NULL, &g, &err), 0);
  assert_int_equal(matcher_new(g, r->v, &m, &err), 0);
  int depth = 500, digits = getenv("WEFT_SANITIZED") ? 100000 : 900000;
  for (int i = 0; i < depth && ok; i++) assert_int_equal(matcher_bytes(m, "(", 1, &ok, &err), 0);
  matcher *early = matcher_clone(m);
  for (int i = 0; i < digits && ok; i++) assert_int_equal(matcher_bytes(m, "7", 1, &ok, &err), 0);
  assert_true(ok);
  for (int i = 0; i < depth && ok; i++) assert_int_equal(matcher_bytes(m, ")", 1, &ok, &err), 0);
  assert_true(ok && matcher_complete(m) && !matcher_can_go_on(m));
  for (int i = 0; i < depth && ok; i++) assert_int_equal(matcher_bytes(early, ")", 1, &ok, &err), 0);
  assert_true(ok && matcher_complete(early));
  matcher_free(early);
  matcher_free(m);
  grammar_free(g);
}

// A text whose every byte takes hundreds of places ends with the time of the account.
static void test_a_long_text_keeps_to_the_account(void **state) {
  (void)state;
  enum { N = 1 << 20 };
  static const char pattern[] = "(a|b)*a(a|b){200}";
  account of = {.most = SIZE_MAX, .most_ns = 300000000, .time_option = "--time"};
  account_scope before = account_enter(&of);
  error err = {0};
  grammar *g;
  matcher *m;
  bool ok = false;
  char *text = malloc(N);
  uint32_t x = 1;
  for (size_t i = 0; i < N; i++) text[i] = (x = x * 1664525 + 1013904223) >> 31 ? 'a' : 'b';
  assert_int_equal(grammar_from_regex(pattern, sizeof pattern - 1, &g, &err), 0);
  assert_int_equal(matcher_new(g, NULL, &m, &err), 0);
  if (matcher_bytes(m, text, N, &ok, &err) != -1 || !strstr(err.text, "--time")) fail_msg("%s", err.text);
  assert_false(matcher_complete(m));
  assert_true(matcher_work(m) > 0 && matcher_work(m) < 1 << 25);     // then a quarter of a GB would be full
  matcher_free(m);
  grammar_free(g);
  account_leave(before);
  account_close(&of);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_grammars),
                                     cmocka_unit_test(test_a_long_text_keeps_to_the_account),
                                     cmocka_unit_test_setup_teardown(test_masks, rig_open, rig_close),
                                     cmocka_unit_test_setup_teardown(test_tokens_alone, rig_open, rig_close),
                                     cmocka_unit_test_setup_teardown(test_tokens_by_name_and_id, rig_open, rig_close),
                                     cmocka_unit_test_setup_teardown(test_long_texts, rig_open, rig_close)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
