// The table of word patterns and the splitting: see pretokenize.h.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize.h"
#include "text/utf8.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

// ---- The patterns ----
// From the models' own tokenizer.json, written with a few pieces that recur.  \s is spelled out, because PCRE2's has U+180E too;
// (?i:'s|...) is spelled out, because caseless matching takes the long s (U+017F) for an s; a trailing \s+$ is written so that
// it cannot be tried from the middle of a run of spaces.

#define SPACES "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SPACE "[" SPACES "]"
#define ENDINGS_LOWER "'s|'t|'re|'ve|'m|'ll|'d"
#define ENDINGS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define SPACE_RUNS SPACE "+(?![^" SPACES "])|" SPACE "+"           // leaves the last space before a word to that word
#define LINES_AND_SPACE_RUNS SPACE "*[\\r\\n]+|" SPACE_RUNS
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS " ?[^" SPACES "\\p{L}\\p{N}]+"

#define GPT2 ENDINGS_LOWER "| ?\\p{L}+| ?\\p{N}+|" SIGNS "|" SPACE_RUNS
#define GPT4(digits) ENDINGS "|" LETTERS "|" digits "|" SIGNS "[\\r\\n]*|" LINES_AND_SPACE_RUNS

// Words that change from capitals to small letters end there ("parseJSON" is two).
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(endings, digits) \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" endings "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" endings "|" digits \
  "|" SIGNS "[\\r\\n/]*|" LINES_AND_SPACE_RUNS

#define HAN_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define DEEPSEEK_CJK "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define DEEPSEEK3 \
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" \
  LINES_AND_SPACE_RUNS
// The cased letters of the older Unicode version that DeepSeek LLM lists one by one.
#define DEEPSEEK_LETTERS \
  "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}" \
  "\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}" \
  "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}" \
  "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}" \
  "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}" \
  "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}" \
  "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}" \
  "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}" \
  "\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}" \
  "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}" \
  "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

static const char *const gpt2[] = {GPT2, NULL};
static const char *const llama3[] = {GPT4("\\p{N}{1,3}"), NULL};
static const char *const qwen2[] = {GPT4("\\p{N}"), NULL};
static const char *const single_digits[] = {"\\p{N}", GPT2, NULL};
static const char *const gpt4o[] = {CASED(ENDINGS "?", "\\p{N}{1,3}"), NULL};
static const char *const tekken[] = {CASED("", "\\p{N}"), NULL};
static const char *const youtu[] = {
  "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"
  "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" HAN_KANA,
  CASED(ENDINGS "?", "\\p{N}"), NULL};
static const char *const qwen35[] = {
  ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACES "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACE_RUNS, NULL};
static const char *const deepseek_llm[] = {
  "[\\r\\n]", SPACE "?[" DEEPSEEK_LETTERS "]+",
  SPACE "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
  "(?<!" SPACE ")" SPACE "++\\z", DEEPSEEK_CJK, "\\p{N}+", NULL};
static const char *const deepseek_coder[] = {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", DEEPSEEK_CJK, "\\p{N}", NULL};
static const char *const deepseek3[] = {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK3, NULL};
static const char *const falcon[] = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]", NULL};
static const char *const fallback[] = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]", NULL};
static const char *const bailing[] = {
  "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" LETTERS "|\\p{N}|" SIGNS "[\\r\\n]*|" SPACE "*[\\r\\n]|" SPACE_RUNS, NULL};
static const char *const seed[] = {
  ENDINGS "|" LETTERS "|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}\\r\\n]+|" LINES_AND_SPACE_RUNS, NULL};
static const char *const minicpm5[] = {"\\p{N}{1,3}", GPT4("\\p{N}+"), NULL};
static const char *const laguna[] = {"[^\\n]+|[\\n]+", GPT4("\\p{N}"), NULL};

static const pretokenizer_row rows[] = {
  // name, patterns, whole words, add BOS
  {"default", fallback, false, false},
  {"gpt-2", gpt2, false, false},          {"phi-2", gpt2, false, false},        {"mpt", gpt2, false, false},
  {"olmo", gpt2, false, false},           {"jais", gpt2, false, false},         {"trillion", gpt2, false, false},
  {"gigachat", gpt2, false, false},       {"a.x-4.0", gpt2, false, false},      {"mellum", gpt2, false, false},
  {"exaone4", gpt2, false, false},        {"modern-bert", gpt2, false, false},  {"granite-docling", gpt2, false, false},
  {"jina-es", gpt2, false, false},        {"jina-de", gpt2, false, false},      {"jina-v2-es", gpt2, false, false},
  {"jina-v2-de", gpt2, false, false},
  {"llama-bpe", llama3, true, true},      {"llama3", llama3, true, true},       {"llama-v3", llama3, true, true},
  {"falcon3", llama3, true, true},        {"falcon-h1", llama3, true, true},    {"pixtral", llama3, true, true},
  {"midm-2.0", llama3, true, true},       {"lfm2", llama3, true, true},
  {"dbrx", llama3, false, false},         {"smaug-bpe", llama3, false, false},  {"glm4", llama3, false, false},
  {"chatglm-bpe", llama3, false, false},
  {"qwen2", qwen2, false, false},         {"deepseek-r1-qwen", qwen2, false, false}, {"megrez", qwen2, false, false},
  {"stablelm2", qwen2, false, false},     {"hunyuan", qwen2, false, false},     {"solar-open", qwen2, false, false},
  {"grok-2", qwen2, false, false},        {"kormo", qwen2, false, false},
  {"qwen35", qwen35, false, false},
  {"starcoder", single_digits, false, false}, {"refact", single_digits, false, false}, {"command-r", single_digits, false, false},
  {"smollm", single_digits, false, false}, {"codeshell", single_digits, false, false}, {"exaone", single_digits, false, false},
  {"minerva-7b", single_digits, false, false}, {"mellum2", single_digits, false, false},
  {"gpt-4o", gpt4o, false, false},        {"llama4", gpt4o, false, false},      {"kanana2", gpt4o, false, false},
  {"minimax-m2", gpt4o, false, false},
  {"tekken", tekken, true, true},
  {"youtu", youtu, true, false},
  {"falcon", falcon, false, false},
  {"deepseek-llm", deepseek_llm, false, false}, {"deepseek-coder", deepseek_coder, false, false},
  {"deepseek-v3", deepseek3, false, false}, {"hunyuan-dense", deepseek3, false, false}, {"joyai-llm", deepseek3, false, false},
  {"bailingmoe", bailing, false, false},  {"bailingmoe2", bailing, false, false}, {"llada-moe", bailing, false, false},
  {"seed-coder", seed, false, false},
  {"minicpm5", minicpm5, true, false},
  {"laguna", laguna, false, false},
};

const pretokenizer_row *pretokenizer_at(size_t i) { return i < COUNT(rows) ? &rows[i] : NULL; }

const pretokenizer_row *pretokenizer_find(const char *name, size_t n) {
  for (size_t i = 0; i < COUNT(rows); i++)
    if (strlen(rows[i].name) == n && !memcmp(rows[i].name, name, n)) return &rows[i];
  return NULL;
}

// ---- Splitting ----

#define PATTERNS_MAX 8
struct pretokenizer { const pretokenizer_row *row; pcre2_code *code[PATTERNS_MAX]; size_t n; };

int pretokenizer_new(const pretokenizer_row *row, pretokenizer **out, error *err) {
  pretokenizer *p = xcalloc(1, sizeof *p);
  p->row = row;
  for (; row->patterns[p->n]; p->n++) {
    if (p->n == PATTERNS_MAX) die("pretokenizer %s has too many patterns", row->name);
    int code;
    size_t at;
    p->code[p->n] = pcre2_compile((PCRE2_SPTR)row->patterns[p->n], PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (p->code[p->n]) continue;
    char why[128] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
    pretokenizer_free(p);
    return error_set(err, "the pattern of pre-tokenizer '%s' does not compile with this PCRE2: %s (at %zu)", row->name, why, at);
  }
  *out = p;
  return 0;
}

void pretokenizer_free(pretokenizer *p) {
  if (!p) return;
  for (size_t i = 0; i < p->n; i++) pcre2_code_free(p->code[i]);
  free(p);
}

// One call of pretokenizer_split.  `seen` is what the patterns see, `text` what the words are cut from.
struct split {
  const pretokenizer *p;
  const char *text, *seen;
  pcre2_match_data *match;
  pcre2_match_context *limits;
  pretokenizer_word *word;
  void *ctx;
  error *err;
};

// Cuts [at, end) with pattern `level` and hands the pieces to the next one.
static int cut(struct split *s, size_t level, size_t at, size_t end) {
  if (at == end) return 0;
  if (level == s->p->n) return s->word(s->ctx, s->text + at, end - at) ? -1 : 0;
  size_t done = at, from = 0;                             // from: where to search, counted from at
  while (done < end) {
    int rc = pcre2_match(s->p->code[level], (PCRE2_SPTR)(s->seen + at), end - at, from, PCRE2_NO_UTF_CHECK, s->match, s->limits);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      char why[128] = "";
      pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
      return error_set(s->err, "pre-tokenizer '%s' gave up at byte %zu of the text: %s", s->p->row->name, at + from, why);
    }
    const size_t *span = pcre2_get_ovector_pointer(s->match);
    size_t begin = at + span[0], stop = at + span[1];     // match data is shared: deeper levels overwrite it
    if (begin == stop || begin < done) die("pre-tokenizer '%s', pattern %zu: bad match", s->p->row->name, level);
    if (cut(s, level + 1, done, begin) || cut(s, level + 1, begin, stop)) return -1;
    done = stop;
    from = stop - at;
  }
  return cut(s, level + 1, done, end);
}

// The patterns need valid UTF-8.  Each byte that is none looks to them like U+001A, SUBSTITUTE, which is neither letter nor
// number nor space; offsets stay the same.  NULL if nothing has to change.
static char *substitute(const char *text, size_t n) {
  size_t i = utf8_valid_prefix(text, n);
  if (i == n) return NULL;
  char *copy = xmalloc(n);
  memcpy(copy, text, n);
  while (i < n) {
    copy[i++] = 0x1A;
    i += utf8_valid_prefix(text + i, n - i);
  }
  return copy;
}

int pretokenizer_split(const pretokenizer *p, const char *text, size_t n, pretokenizer_word *word, void *ctx, error *err) {
  char *copy = substitute(text, n);
  struct split s = {p, text, copy ? copy : text, pcre2_match_data_create(1, NULL), pcre2_match_context_create(NULL), word, ctx, err};
  if (!s.match || !s.limits) die("PCRE2: out of memory");
  // One step or a few for each character of a text is normal; so many are not.
  uint64_t steps = 1000000 + 64 * (uint64_t)n;
  pcre2_set_match_limit(s.limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
  pcre2_set_heap_limit(s.limits, 1u << 18);               // KiB
  int bad = cut(&s, 0, 0, n);
  pcre2_match_data_free(s.match);
  pcre2_match_context_free(s.limits);
  free(copy);
  return bad;
}
