// Bytes from strangers: vocabularies, templates, schemas and texts that were made to cost much.  Each is tried in two
// sizes, in a process of its own: the larger takes about as many times the processor time as it is larger, and memory
// stays within four times the input and 64 MB.
#define _GNU_SOURCE
#include "chat/chat.h"
#include "grammar/gbnf.h"
#include "grammar/schema.h"
#include "text/small_vocab.h"
#include "text/spm.h"
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

// does n units of work; returns the bytes of the input, so that the whole of it is `n` of them
typedef size_t job(size_t n);

#define YARD_S 0.15                  // what yardstick takes on an idle machine
struct cost { double seconds; size_t input, memory; };

static double seconds_of(const struct rusage *u) {
  return (double)u->ru_utime.tv_sec + (double)u->ru_stime.tv_sec +
         1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

// In a child, since only that tells how much memory it was at most.
static struct cost run(job *work, size_t n) {
  int pipes[2], status;
  size_t input = 0;
  struct rusage used;
  assert_int_equal(pipe(pipes), 0);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    input = work(n);
    _exit(write(pipes[1], &input, sizeof input) == sizeof input ? 0 : 1);
  }
  close(pipes[1]);
  bool told = read(pipes[0], &input, sizeof input) == sizeof input;
  close(pipes[0]);
  assert_int_equal(wait4(child, &status, 0, &used), child);
  if (!told || status) fail_msg("the work of size %zu ended with status %d", n, status);
  return (struct cost){seconds_of(&used), input, (size_t)used.ru_maxrss * 1024};
}

static size_t nothing(size_t n) { (void)n; return 0; }

// Twice the size: 2.6 times the time and a fifth of a second at most.  Figures that small are noise, and a busy machine
// may slow one of the two runs: then both are made again.  Work that grows with the square gives four times, of
// seconds, every time.
enum { TRIES = 3, SANITIZED_LESS = 8 };
static void grows(const char *what, job *work, size_t n, size_t sanitized) {
  // the sanitizers look at what is done, not at how long it takes: once, and less of it
  if (getenv("WEFT_SANITIZED")) { run(work, sanitized); return; }
  struct cost base = run(nothing, 0), once = run(work, n), twice = run(work, 2 * n);
  for (int i = 1; i < TRIES && twice.seconds > 2.6 * once.seconds + 0.2; i++) {
    once = run(work, n);
    twice = run(work, 2 * n);
  }
  size_t memory = twice.memory > base.memory ? twice.memory - base.memory : 0;
  print_message("%-28s %8.1f KB %6.2f s, %8.1f KB %6.2f s, %7.1f MB\n", what, (double)once.input / 1e3, once.seconds,
                (double)twice.input / 1e3, twice.seconds, (double)memory / 1e6);
  if (twice.seconds > 2.6 * once.seconds + 0.2)
    fail_msg("%s: %.2f s, and of twice the size %.2f s", what, once.seconds, twice.seconds);
  if (memory > 4 * twice.input + (64u << 20))
    fail_msg("%s: %zu bytes of memory for %zu of input", what, memory, twice.input);
}

static void grows_evenly(const char *what, job *work, size_t n) { grows(what, work, n, n / SANITIZED_LESS); }
static void is_refused_evenly(const char *what, job *work, size_t n) { grows(what, work, n, n); }

// ---- texts that merge as one word ----

// n letters of which any two and any four that are side by side are a token.
static size_t one_word(size_t n, bool mixed) {
  small s;
  str text = {0};
  small_init(&s, "llama", NULL);
  small_bytes_spm(&s);
  for (int a = 'a'; a < 'a' + 16; a++)
    for (int b = 'a'; b < 'a' + 16; b++) {
      char pair[4] = {(char)a, (char)b, (char)a, (char)b};
      small_addn(&s, pair, 2, TOKEN_NORMAL, (float)-(a * 7 % 16 * 16 + b));
      small_addn(&s, pair, 4, TOKEN_NORMAL, (float)-(1000 + a * 16 + b));
    }
  tokenizer *t = small_make(&s);
  int32_t *ids;
  size_t n_ids;
  uint32_t x = 1;
  for (size_t i = 0; i < n; i++, x = x * 1664525 + 1013904223) str_addc(&text, mixed ? (char)('a' + (x >> 28)) : 'a');
  assert_int_equal(tokenizer_encode(t, text.at, text.n, false, false, &ids, &n_ids, NULL), 0);
  assert_true(n_ids > n / 5 && n_ids < n);
  return n;
}
static size_t one_letter(size_t n) { return one_word(n, false); }
static size_t many_letters(size_t n) { return one_word(n, true); }

// n times what is given, with tokens of 1, 2, .. most of them, of which longer ones are better or worse; without any
// other token that merges where most is 0.
static size_t one_run(size_t n, const char *what, int most, int better) {
  small s;
  str text = {0};
  size_t length = strlen(what);
  small_init(&s, "llama", NULL);
  small_bytes_spm(&s);
  for (int k = 0; k < most; k++) {
    str_addn(&text, *what == ' ' ? SPM_SPACE : what, *what == ' ' ? 3 : length);
    small_addn(&s, text.at, text.n, TOKEN_NORMAL, (float)(better * k));
  }
  if (!most) small_add(&s, "abcabc", TOKEN_NORMAL, 0), small_add(&s, "bca", TOKEN_NORMAL, 0);
  tokenizer *t = small_make(&s);
  int32_t *ids;
  size_t n_ids;
  str_free(&text);
  for (size_t i = 0; i < n; i++) str_addn(&text, what, length);
  assert_int_equal(tokenizer_encode(t, text.at, text.n, false, false, &ids, &n_ids, NULL), 0);
  assert_true(n_ids >= n / 1024 && n_ids <= length * n + 1);
  return length * n;
}
// each merge makes one more of a thousand bytes
static size_t one_more_each_time(size_t n) { return one_run(n, "a", 1000, 1); }
static size_t pairs_of_runs(size_t n) { return one_run(n, "a", 1000, -1); }
static size_t spaces(size_t n) { return one_run(n, " ", 64, -1); }            // each three bytes as it is merged
static size_t that_stay(size_t n) { return one_run(n, "abc", 0, 0) / 3 * 3; }

// The rule for all of these: 2 seconds for 10 MB.
static void takes_two_seconds(const char *what, job *work, size_t n) {
  if (getenv("WEFT_SANITIZED")) { run(work, n / SANITIZED_LESS); return; }
  struct cost c = run(work, n);
  for (int i = 1; i < TRIES && c.seconds > 2; i++) c = run(work, n);
  print_message("%-28s %8.1f KB %6.2f s\n", what, (double)c.input / 1e3, c.seconds);
  if (c.seconds > 2) fail_msg("%s: %.2f s for %zu bytes", what, c.seconds, c.input);
}

static void test_one_word(void **state) {
  (void)state;
  grows_evenly("a letter, again and again", one_letter, 3500000);
  grows_evenly("letters without a space", many_letters, 2500000);
  grows_evenly("one more each time", one_more_each_time, 5000000);
  grows_evenly("runs of a letter", pairs_of_runs, 5000000);
  grows_evenly("spaces", spaces, 5000000);
  grows_evenly("letters that stay", that_stay, 1600000);
  takes_two_seconds("one more each time", one_more_each_time, 10000000);
}

// ---- vocabularies ---------------------------------------------------------------------------------------------------

// Special tokens of 250 bytes each, n in all; their bytes are such that (node, byte) pairs, as a trie numbers them,
// have hashes that lie beside each other under the hash that everybody knows.
static size_t special_chains(size_t n) {
  small s;
  small_init(&s, "llama", NULL);
  small_bytes_spm(&s);
  size_t node = 1, slots = 32;
  while (slots < 2 * 250 * n) slots *= 2;
  for (size_t i = 0; i < n; i++) {
    char text[250];
    for (size_t k = 0; k < sizeof text; k++, node++) {
      size_t best = SIZE_MAX;
      for (unsigned b = 1; b < 256; b++) {
        size_t slot = hash_u64((uint64_t)node << 8 | b, 0) & (slots - 1);
        if (k && slot < best) best = slot, text[k] = (char)b;
      }
      if (!k) text[k] = (char)(1 + i % 255);
    }
    memcpy(text + 1, &i, 3);   // no two are alike
    small_addn(&s, text, sizeof text, TOKEN_CONTROL, 0);
  }
  tokenizer *t = small_make(&s);
  int32_t *ids;
  size_t n_ids;
  assert_int_equal(tokenizer_encode(t, "a", 1, false, true, &ids, &n_ids, NULL), 0);
  tokenizer_free(t);
  return 250 * n;
}

static void test_special_tokens(void **state) {
  (void)state;
  grows_evenly("special tokens", special_chains, 500);
}

// Vocabularies whose tokens begin at every place of a text and are long: one letter again and again, up to `longest`
// times. What would take a thousand steps for each byte is refused, before it takes much longer than the most that real
// ones take.
static size_t overlapping(size_t n, const char *model, size_t longest, enum token_type type, size_t begins) {
  small s;
  small_init(&s, model, NULL);
  small_add(&s, "<unk>", TOKEN_UNKNOWN, 0);
  char *text = xmalloc(n + longest + 4), *run = text + begins;
  memcpy(text, SPM_SPACE, begins);
  memset(run, 'a', longest + 1);
  run[longest] = 'b';                                      // the whole of it never comes
  small_addn(&s, text, begins + longest + 1, type, 1);
  for (size_t k = 1; k <= longest; k++)
    small_addn(&s, text, begins + k, k > 1 ? type : TOKEN_NORMAL, -(float)(longest - k));
  if (begins) for (size_t k = 1; k <= longest; k++) small_addn(&s, run, k, TOKEN_NORMAL, 0);
  tokenizer *t = small_make(&s);
  int32_t *ids;
  size_t n_ids;
  error err = {0};
  memset(text, 'a', n);
  for (size_t i = 99; begins && i < n; i += 100) text[i] = ' ';
  if (!tokenizer_encode(t, text, n, false, true, &ids, &n_ids, &err)) free(ids);
  else if (!strstr(err.text, "steps") || longest <= 16) die("%s", err.text);
  free(text);
  small_free(&s, t);
  return n + longest * longest / 2;
}

static size_t long_unigram(size_t n) { return overlapping(n, "t5", 1023, TOKEN_NORMAL, 0); }
static size_t short_unigram(size_t n) { return overlapping(n, "t5", 16, TOKEN_NORMAL, 0); }
static size_t long_plamo2(size_t n) { return overlapping(n, "plamo2", 1023, TOKEN_NORMAL, 0); }
static size_t short_plamo2(size_t n) { return overlapping(n, "plamo2", 16, TOKEN_NORMAL, 0); }
static size_t long_rwkv(size_t n) { return overlapping(n, "rwkv", 1023, TOKEN_NORMAL, 0); }
static size_t long_special(size_t n) { return overlapping(n, "rwkv", 255, TOKEN_CONTROL, 0); }
static size_t long_wordpiece(size_t n) { return overlapping(n, "bert", 1020, TOKEN_NORMAL, 3); }

static void test_overlapping_tokens(void **state) {
  (void)state;
  grows_evenly("long tokens, Unigram", long_unigram, 1500000);
  grows_evenly("shorter tokens, Unigram", short_unigram, 1500000);
  grows_evenly("long tokens, PLaMo-2", long_plamo2, 1500000);
  grows_evenly("shorter tokens, PLaMo-2", short_plamo2, 1500000);
  grows_evenly("long tokens, RWKV", long_rwkv, 1500000);
  grows_evenly("long special tokens", long_special, 1500000);
  grows_evenly("long tokens, WordPiece", long_wordpiece, 1500000);
}

// ---- templates ------------------------------------------------------------------------------------------------------

static size_t render(const str *text, const json_t *value) {
  jinja *t;
  error err = {0};
  str out = {0};
  jinja_var v = {"v", value, false};
  if (jinja_parse(text->at, text->n, &t, &err)) die("%s", err.text);
  if (jinja_render(t, &v, 1, NULL, NULL, &out, &err)) die("%s", err.text);
  str_free(&out);
  jinja_free(t);
  return text->n;
}

static size_t names(size_t n) {
  str s = {0};
  for (size_t i = 0; i < n; i++) str_addf(&s, "{%% set n%zx = 1 %%}", i);
  for (size_t i = 0; i < n; i++) str_addf(&s, "{{ n%zx }}", i);
  return render(&s, NULL);
}

static void test_names(void **state) {
  (void)state;
  grows_evenly("names of a template", names, 30000);
}

// Keys whose hashes lie beside each other under the hash that everybody knows.
static size_t colliding_keys(size_t n) {
  json_t *o = json_object();
  size_t slots = 32;
  while (slots < 2 * n) slots *= 2;
  for (uint64_t i = 0, k = 0; k < n; i++) {
    char key[24];
    size_t len = (size_t)snprintf(key, sizeof key, "key%llx", (unsigned long long)i);
    if ((hash_bytes(key, len, 1) & (slots - 1)) >= slots / 256) continue;
    json_object_set_new(o, key, json_null());
    k++;
  }
  str s = {0};
  str_add(&s, "{% for k in v %}{{ v[k] and '' }}{% endfor %}");
  render(&s, o);
  json_decref(o);
  return 12 * n;
}

static void test_colliding_keys(void **state) {
  (void)state;
  grows_evenly("keys that collide", colliding_keys, 16000);
}

// Processor time until the limit of steps ends a loop that asks for this, or the limit of memory does.
static double until_the_end(const char *what, bool *bytes) {
  jinja_limits limits = jinja_limits_default();
  limits.steps = 8 << 20, limits.memory = 96 << 20;
  struct tm now = {.tm_year = 126, .tm_mday = 1};
  str s = {0};
  error err = {0};
  jinja *t;
  str_addf(&s,
           "{%% set s = 'a' * 300000 %%}{%% set m = 'Ab ' * 100000 %%}{%% set u = '\u00e9' * 500000 %%}{%% set l = "
           "range(10000) | list %%}{%% set q = [''] * 10000 %%}"
           "{%% set k = 'a' * 128 ~ 'b' ~ 'a' * 127 %%}{%% for i in range(100000) %%}{%% for j in range(1000) %%}{%% "
           "if %s %%}{%% endif %%}{%% endfor %%}{%% endfor %%}",
           what);
  assert_int_equal(jinja_parse(s.at, s.n, &t, &err), 0);
  double before = small_cpu_s();
  s.n = 0;
  assert_int_equal(jinja_render(t, NULL, 0, &now, &limits, &s, &err), -1);
  double took = small_cpu_s() - before;
  *bytes = strstr(err.text, "bytes");
  assert_true(*bytes || strstr(err.text, "steps"));
  jinja_free(t);
  str_free(&s);
  return took;
}

// What a step may cost: each of these stays within a few times the steps of a plain loop, whatever it does to large
// texts.
static void test_steps(void **state) {
  (void)state;
  static const char *const work[] = {"s.islower()",
                                     "u.isalnum()",
                                     "m.istitle()",
                                     "s | wordcount",
                                     "m | wordcount",
                                     "k in s",
                                     "s.find(k)",
                                     "s.rfind(k)",
                                     "s.count('a')",
                                     "s.lower()",
                                     "u.upper()",
                                     "s.replace('a', 'b')",
                                     "s.strip('ab')",
                                     "s.splitlines()",
                                     "m.split()",
                                     "u[400000:]",
                                     "s | escape",
                                     "s | tojson",
                                     "u | urlencode",
                                     "s | striptags",
                                     "s | string | pprint",
                                     "1.1e300 | string",
                                     "'%.1000f' % 1e300",
                                     "'a'.center(100000)",
                                     "'ab' * 500000",
                                     "'[1,2,3]' | from_json",
                                     "s.expandtabs()",
                                     "s | int",
                                     "m.title()",
                                     "m | title",
                                     "'x'.upper()",
                                     "[i, j] | sort",
                                     "l | join",
                                     "l | sum",
                                     "l | select('none') | list",
                                     "l | max",
                                     "l | list | length",
                                     "''.join(q)",
                                     "-1 in l",
                                     "l | string",
                                     "strftime_now('%c')",
                                     "'%s' % i",
                                     "'{}'.format(i)",
                                     "dict(a=1)",
                                     "5 | filesizeformat"};
  for (size_t i = 0; i < COUNT(work); i++) {
    double took = 0, most = 0;
    bool ok = false;
    for (int k = 0; k < TRIES && !ok; k++) {
      double plain = until_the_end("i == j", &(bool){false});
      bool bytes;
      took = until_the_end(work[i], &bytes);
      most = (bytes ? 12 : 6) * plain + 0.1;          // what fills the memory ends sooner than the steps
      ok = took <= most;
    }
    if (!ok) fail_msg("%s: %.2f s for the steps that should take %.2f s at most", work[i], took, most);
  }
}

// However much text is under way, in blocks within blocks, it counts.
static size_t captured(size_t n) {
  str s = {0};
  str_add(&s, "{% set s = '&' * 4000000 %}");
  for (size_t i = 0; i < n; i++) str_add(&s, "{% filter escape %}{{ s | escape }}");
  for (size_t i = 0; i < n; i++) str_add(&s, "{% endfilter %}");
  jinja *t;
  error err = {0};
  str out = {0};
  if (jinja_parse(s.at, s.n, &t, &err)) die("%s", err.text);
  if (!jinja_render(t, NULL, 0, NULL, NULL, &out, &err) || !strstr(err.text, "bytes")) die("captured: '%s'", err.text);
  jinja_free(t);
  return s.n;
}

static void test_captured(void **state) {
  (void)state;
  struct cost base = run(nothing, 0), used = run(captured, 200);
  print_message("text within text: %.0f MB\n", (double)(used.memory - base.memory) / 1e6);
  if (!getenv("WEFT_SANITIZED")) assert_true(used.memory - base.memory <= (64u << 20) + 4 * used.input);
}

// Templates that ask for all the memory there is, or for more.  What has a size that is known is not even begun.
static const char *const greedy[] = {"{{ [1,2] | slice(9223372036854775807) | list }}",
                                     "{{ [1] * 9223372036854775807 }}",
                                     "{{ 'ab' * 9223372036854775807 }}",
                                     "{{ [1] | batch(9223372036854775807, 0) }}",
                                     "{{ ('[' ~ '{},' * 1000000 ~ '{}]') | from_json }}",
                                     "{% for i in range(100000) %}{% set s = 'ab' * 1000 %}{% endfor %}",
                                     NULL};
enum { FOR_EXACT = 5 };                    // as many of them end before any memory is taken

static size_t ask_for_memory(size_t k) {
  str s = {0}, out = {0};
  jinja *t;
  error err = {0};
  if (greedy[k]) str_add(&s, greedy[k]);
  for (int i = 0; !greedy[k] && i < 300; i++) str_addf(&s, "{%% for a%d in [1, 2] %%}", i);
  for (int i = 0; !greedy[k] && i < 300; i++) str_add(&s, "{% endfor %}");
  if (jinja_parse(s.at, s.n, &t, &err)) die("%s", err.text);
  if (!jinja_render(t, NULL, 0, NULL, NULL, &out, &err) || !(strstr(err.text, "bytes"))) die("'%s'", err.text);
  jinja_free(t);
  return s.n;
}

static void test_greedy(void **state) {
  (void)state;
  struct cost base = run(nothing, 0);
  for (size_t k = 0; k < COUNT(greedy); k++) {
    struct cost used = run(ask_for_memory, k);
    size_t memory = used.memory - base.memory, most = k < FOR_EXACT ? 16u << 20 : (64u << 20) + 4 * used.input;
    print_message("greedy %zu: %.0f MB\n", k, (double)memory / 1e6);
    if (getenv("WEFT_SANITIZED")) continue;          // they are refused as well; figures are of another allocator
    if (memory > most || used.seconds > 2) fail_msg("%zu: %zu bytes, %.2f s", k, memory, used.seconds);
  }
}

// A conversation of n entries: honest ones of any length are rendered; others are refused in time.
static size_t converse(size_t n, const char *open, const char *entry, const char *close, bool refused) {
  static const char text[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  str s = {0};
  jinja_text out = {0};
  jinja *t;
  error err = {0};
  str_add(&s, open);
  for (size_t i = 0; i < n; i++) { str_add(&s, i ? "," : ""); str_add(&s, entry); }
  str_add(&s, close);
  chat_input in = {.messages = {s.at, s.n}};
  if (jinja_parse(text, strlen(text), &t, &err)) die("%s", err.text);
  int status = chat_render(t, "t", &in, &out, &err);
  if ((status != 0) != refused) die("a conversation of %zu: '%s'", n, err.text);
  if (refused ? !strstr(err.text, "MB is the most") : out.text.n < 30 * n) die("%zu bytes: '%s'", out.text.n, err.text);
  jinja_free(t);
  return s.n;
}

#define ONE_MESSAGE "[{\"role\":\"user\",\"content\":\"x\",\"l\":["
static size_t short_messages(size_t n) {
  return converse(n, "[", "{\"role\":\"user\",\"content\":\"a short one\"}", "]", false);
}
static size_t list_of_objects(size_t n) { return converse(n, ONE_MESSAGE, "{}", "]}]", true); }
static size_t list_of_texts(size_t n) { return converse(n, ONE_MESSAGE, "\"\"", "]}]", true); }
static size_t schema_examples(size_t n) {
  str s = {0};
  error err = {0};
  grammar *g;
  str_add(&s, "{\"examples\":[{}");
  for (size_t i = 1; i < n; i++) str_add(&s, ",{}");
  str_add(&s, "]}");
  if (!grammar_from_schema(s.at, s.n, true, NULL, &g, &err) || !strstr(err.text, "MB is the most"))
    die("'%s'", err.text);
  return s.n;
}

static void test_conversations(void **state) {
  (void)state;
  grows_evenly("short messages", short_messages, 50000);
  is_refused_evenly("a list of objects", list_of_objects, 1600000);
  is_refused_evenly("a list of empty texts", list_of_texts, 1600000);
  is_refused_evenly("examples of a schema", schema_examples, 690000);
}

// Four megabytes of nothing but tags: refused, or parsed within the limit.
static size_t tags(size_t n) {
  str s = {0};
  for (size_t i = 0; i < n; i++) str_add(&s, "{{a}}");
  jinja *t = NULL;
  error err = {0};
  if (jinja_parse(s.at, s.n, &t, &err) && !strstr(err.text, "bytes")) die("%s", err.text);
  jinja_free(t);
  return s.n;
}

static void test_tags(void **state) {
  (void)state;
  grows_evenly("tags of a template", tags, 400000);
}

// ---- schemas --------------------------------------------------------------------------------------------------------

static size_t compile_enum(size_t n, const char *form) {
  str s = {0};
  error err = {0};
  grammar *g = NULL;
  str_add(&s, "{\"enum\": [");
  for (size_t i = 0; i < n; i++) {
    str_add(&s, i ? "," : "");
    str_addf(&s, strcmp(form, "object") ? strcmp(form, "number") ? "\"item%08llx\"" : "%llu" : "{\"a\":%llu}",
             (unsigned long long)hash_u64(i, 7) >> 32);
  }
  str_add(&s, "]}");
  // too many states, or parts
  if (grammar_from_schema(s.at, s.n, true, NULL, &g, &err) && !strstr(err.text, "more than")) die("%s", err.text);
  grammar_free(g);
  return s.n;
}

static size_t enum_of_texts(size_t n) { return compile_enum(n, "text"); }
static size_t enum_of_numbers(size_t n) { return compile_enum(n, "number"); }
static size_t enum_of_objects(size_t n) { return compile_enum(n, "object"); }

static size_t unique_items(size_t n) {
  str s = {0};
  error err = {0};
  grammar *g = NULL;
  str_add(&s, "{\"uniqueItems\": true, \"const\": [");
  for (size_t i = 0; i < n; i++) str_addf(&s, "%s%zu", i ? "," : "", i);
  str_add(&s, "]}");
  if (grammar_from_schema(s.at, s.n, true, NULL, &g, &err)) die("%s", err.text);
  grammar_free(g);
  return s.n;
}

static void test_enums(void **state) {
  (void)state;
  grows_evenly("enum of texts", enum_of_texts, 15000);
  grows_evenly("enum of numbers", enum_of_numbers, 15000);
  grows_evenly("enum of objects", enum_of_objects, 15000);
  grows_evenly("an array of unique items", unique_items, 15000);
}

// Processor time is longer, too, on a busy machine, whose threads share caches and memory: 0.7 s were 2.5 s. What is
// too long is held against work that never changes, made at the same time.
static size_t yardstick(size_t n) {
  size_t size = (size_t)8 << 20;
  uint32_t *table = xcalloc(size, sizeof *table);
  uint64_t x = 1;
  for (size_t i = 0; i < n; i++) table[(x = hash_u64(x, i)) % size]++;
  free(table);
  return n;
}

// How many times as long as on an idle machine things take now.
static double slowness(void) {
  enum { STEPS = 20000000 };
  double now = run(yardstick, STEPS).seconds / YARD_S;
  return now > 1 ? now : 1;
}

// Whatever is refused or made of these takes 2 s of processor time at most, and no more memory than all else.
static void costs_little(const char *what, job *work, size_t n) {
  if (getenv("WEFT_SANITIZED")) { run(work, n); return; }
  struct cost base = run(nothing, 0), used = run(work, n);
  for (int i = 1; i < TRIES && used.seconds > 2; i++) used = run(work, n);
  size_t memory = used.memory > base.memory ? used.memory - base.memory : 0;
  print_message("%-28s %8.1f KB %6.2f s, %7.1f MB\n", what, (double)used.input / 1e3, used.seconds,
                (double)memory / 1e6);
  double slow = used.seconds > 2 ? slowness() : 1;
  if (used.seconds > 2 * slow) fail_msg("%s: %.2f s, where all takes %.2f times as long", what, used.seconds, slow);
  if (memory > 4 * used.input + (64u << 20))
    fail_msg("%s: %zu bytes of memory for %zu of input", what, memory, used.input);
}

static size_t compile_schema(str *s) {
  error err = {0};
  grammar *g = NULL;
  if (grammar_from_schema(s->at, s->n, true, NULL, &g, &err) && !strstr(err.text, "more than") &&
      !strstr(err.text, "too many") && !strstr(err.text, "MB is the most"))
    die("%s", err.text);
  grammar_free(g);
  return s->n;
}

static size_t dependent(size_t n, const char *keyword, const char *form) {
  str s = {0};
  str_addf(&s, "{\"type\": \"object\", \"%s\": {", keyword);
  for (size_t i = 0; i < n; i++) {
    str_addf(&s, "%s\"k%zu\": ", i ? "," : "", i);
    str_addf(&s, *form == '{' ? "{\"required\": [\"k%zu\"]}" : "[\"k%zu\"]", i + 1);
  }
  str_add(&s, "}}");
  return compile_schema(&s);
}
static size_t dependent_required(size_t n) { return dependent(n, "dependentRequired", "["); }
static size_t dependent_schemas(size_t n) { return dependent(n, "dependentSchemas", "{"); }

// n alternatives with so many members and a const, of which one or all are required.
static size_t one_of(size_t n, size_t members, bool all) {
  str s = {0};
  str_add(&s, "{\"oneOf\": [");
  for (size_t i = 0; i < n; i++) {
    str_addf(&s, "%s{\"type\": \"object\", \"properties\": {", i ? "," : "");
    for (size_t k = 0; k < members; k++) str_addf(&s, "\"m%zu\": {},", k);
    str_addf(&s, "\"kind\": {\"const\": \"k%zu\"}}, \"required\": [", i);
    for (size_t k = 0; k < members && all; k++) str_addf(&s, "\"m%zu\",", k);
    str_add(&s, "\"kind\"]}");
  }
  str_add(&s, "]}");
  return compile_schema(&s);
}
static size_t one_of_large(size_t n) { return one_of(n, 300, false); }
static size_t one_of_many(size_t n) { return one_of(n, 40, false); }
static size_t one_of_required(size_t n) { return one_of(n, 300, true); }

static size_t one_of_long_values(size_t n) {
  str s = {0};
  str_add(&s, "{\"oneOf\": [");
  for (size_t i = 0; i < n; i++) {
    str_addf(&s, "%s{\"const\": [", i ? "," : "");
    for (size_t k = 0; k < 1500; k++) str_add(&s, "0,");
    str_addf(&s, "%zu]}", i);
  }
  str_add(&s, "]}");
  return compile_schema(&s);
}

static size_t alternatives_of_a_pattern(size_t n) {
  str s = {0};
  str_add(&s, "{\"type\": \"string\", \"pattern\": \"x");
  for (size_t i = 0; i < n; i++) str_addf(&s, "|item%08zu", i);
  str_add(&s, "\"}");
  return compile_schema(&s);
}

static size_t long_literal(size_t n) {
  str s = {0};
  error err = {0};
  grammar *g = NULL;
  str_add(&s, "root ::= \"");
  for (size_t i = 0; i < n; i++) str_addc(&s, (char)('a' + i % 26));
  str_add(&s, "\"");
  if (grammar_from_gbnf(s.at, s.n, NULL, &g, &err) && !strstr(err.text, "more than")) die("%s", err.text);
  grammar_free(g);
  return s.n;
}

static void test_schemas(void **state) {
  (void)state;
  costs_little("dependentRequired", dependent_required, 400);
  costs_little("dependentSchemas", dependent_schemas, 400);
  costs_little("oneOf with many members", one_of_large, 300);
  costs_little("oneOf of many", one_of_many, 1900);
  costs_little("oneOf, all is required", one_of_required, 100);
  costs_little("oneOf of long values", one_of_long_values, 1000);
}

static void test_long_grammars(void **state) {
  (void)state;
  costs_little("a literal of half a megabyte", long_literal, 524000);
  costs_little("a literal of a megabyte", long_literal, 1000000);
  costs_little("24,000 alternatives", alternatives_of_a_pattern, 24000);
  costs_little("77,000 alternatives", alternatives_of_a_pattern, 77000);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_one_word), cmocka_unit_test(test_special_tokens), cmocka_unit_test(test_overlapping_tokens),
    cmocka_unit_test(test_names),          cmocka_unit_test(test_colliding_keys),
    cmocka_unit_test(test_steps),          cmocka_unit_test(test_captured),
    cmocka_unit_test(test_greedy),         cmocka_unit_test(test_conversations),
    cmocka_unit_test(test_tags),           cmocka_unit_test(test_enums),
    cmocka_unit_test(test_schemas),        cmocka_unit_test(test_long_grammars),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
