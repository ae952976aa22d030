// The table of word patterns: see pretokenize.h.
#include "base/scripts.h"
#include "text/pretokenize.h"
#include <string.h>

// ---- The patterns ----
// From the models' own tokenizer.json, written with a few pieces that recur.  \s is spelled out, because PCRE2's has
// U+180E too; (?i:'s|...) is spelled out, with the long s (U+017F) that caseless matching takes for an s; a trailing
// \s+$ is written so that it cannot be tried from the middle of a run of spaces.

#define SPACES "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SPACE "[" SPACES "]"
#define ENDINGS_LOWER "'s|'t|'re|'ve|'m|'ll|'d"
#define ENDINGS "(?:'[sS\\x{17F}]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define SPACE_RUNS SPACE "+(?![^" SPACES "])|" SPACE "+"           // leaves the last space before a word to that word
#define LINES_AND_SPACE_RUNS SPACE "*[\\r\\n]+|" SPACE_RUNS
// Skips to the last character of a run of white space, since no match can begin before it.
#define LAST_OF(set) set "+(?=" set ")(*SKIP)(*FAIL)|"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS " ?[^" SPACES "\\p{L}\\p{N}]+"

#define GPT2 ENDINGS_LOWER "| ?\\p{L}+| ?\\p{N}+|" SIGNS "|" SPACE_RUNS
// At a number, nothing else of these can match; as the first alternative it needs no PCRE2 (pretokenize.c).
#define GPT4(digits) digits "|" ENDINGS "|" LETTERS "|" SIGNS "[\\r\\n]*|" LINES_AND_SPACE_RUNS

// Words that change from capitals to small letters are cut there ("parseJSON" becomes two).
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(endings, digits) \
  digits "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" endings "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" endings \
  "|" SIGNS "[\\r\\n/]*|" LINES_AND_SPACE_RUNS

#define DEEPSEEK3 \
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}" \
  "]+[\\r\\n]*|" \
  LINES_AND_SPACE_RUNS
static const char *const gpt2[] = {GPT2, NULL};
static const char *const llama3[] = {GPT4("\\p{N}{1,3}"), NULL};
static const char *const qwen2[] = {GPT4("\\p{N}"), NULL};
static const char *const single_digits[] = {"@number", GPT2, NULL};
static const char *const gpt4o[] = {CASED(ENDINGS "?", "\\p{N}{1,3}"), NULL};
static const char *const tekken[] = {CASED("", "\\p{N}"), NULL};
static const char *const youtu[] = {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}"
                                    "\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"
                                    "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" HAN_KANA,
                                    CASED(ENDINGS "?", "\\p{N}"), NULL};
static const char *const qwen35[] = {"\\p{N}|" ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+| ?[^" SPACES
                                     "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACE_RUNS,
                                     NULL};
static const char *const deepseek_llm[] = {
  "@newline", LAST_OF(SPACE) SPACE "?[" DEEPSEEK_LETTERS "]+",
  LAST_OF("[\\t-\\r ]") SPACE "?[" DEEPSEEK_SIGNS "]+",
  "(?<!" SPACE ")" SPACE "++\\z", DEEPSEEK_CJK, "@numbers", NULL};
static const char *const deepseek_coder[] = {
  "@newline", LAST_OF(SPACE) SPACE "?\\p{L}+", LAST_OF(SPACE) SPACE "?\\p{P}+", DEEPSEEK_CJK, "@number", NULL};
static const char *const deepseek3[] = {"@three-numbers", HAN_KANA, DEEPSEEK3, NULL};
static const char *const falcon[] = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]", NULL};
static const char *const fallback[] = {"[\\p{P}$+<=>^~|]+", GPT2, "@numbers", "[0-9][0-9][0-9]", NULL};
static const char *const bailing[] = {"\\p{N}|'(?:[sSdDmMtT\\x{17F}]|[lL][lL]|[vV][eE]|[rR][eE])|" LETTERS "|" SIGNS
                                      "[\\r\\n]*|" SPACE "*[\\r\\n]|" SPACE_RUNS,
                                      NULL};
static const char *const seed[] = {
  "\\p{N}|" ENDINGS "|" LETTERS "| ?[^" SPACES "\\p{L}\\p{N}\\r\\n]+|" LINES_AND_SPACE_RUNS, NULL};
static const char *const minicpm5[] = {"@three-numbers", GPT4("\\p{N}+"), NULL};
static const char *const laguna[] = {"[^\\n]+|[\\n]+", GPT4("\\p{N}"), NULL};
static const char *const lines[] = {"[^\\n]+|[\\n]+", NULL};
static const char *const whitespace[] = {"[^" SPACES "]+", NULL};
static const char *const ufakzeka[] = {"\\p{N}|" LETTERS "|" SIGNS "[\\r\\n]*|" LINES_AND_SPACE_RUNS, NULL};
static const char *const spark[] = {
  "@three-numbers", HAN_KANA,
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
  "?[\\p{P}\\p{S}]+|[\\r\\n]|" SPACE_RUNS,
  "@number", NULL};
// Runs of spaces in powers of two. Newlines are only searched from the beginning of a run: after a space that was left
// in a run, no newline can follow.
#define SPACES_OF(n) SPACE "{" n "}(?![^" SPACES "])|"
static const char *const jais2[] = {"\\p{N}{1,3}|" ENDINGS "|" LETTERS "|" SIGNS "[\\r\\n]*|(?<![" SPACES "])" SPACE
                                    "*[\\r\\n]+|(?<=[\\r\\n])" SPACE "*[\\r\\n]+|" SPACES_OF("512") SPACES_OF("256")
                                      SPACES_OF("128") SPACES_OF("64") SPACES_OF("32") SPACES_OF("16") SPACES_OF("8")
                                        SPACES_OF("4") SPACES_OF("1,2") SPACE,
                                    NULL};
#define BLOOM " ?[^(" SPACES "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
static const char *const bloom[] = {BLOOM, NULL};
static const char *const viking[] = {BLOOM, "@number", NULL};
static const char *const chameleon[] = {
  "<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "@number", "[\\p{P}!-/:-@\\[-`{-~]", GPT2, NULL};
// A word may have single spaces inside, each before a letter.
static const char *const exaone_moe[] = {"\\p{N}|" ENDINGS
                                         "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}(?:[\\p{L}\\p{M}]++| (?=\\p{L}))*+|" SIGNS
                                         "[\\r\\n/]?|" SPACE "*[\\r\\n]|" SPACE_RUNS,
                                         NULL};
// Chinese characters are words of their own; no other word has any.
#define NOT_HAN "\\p{sc:Han}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}"
#define UPPER_NOT_HAN "[^\\p{Ll}" NOT_HAN "]"
#define LOWER_NOT_HAN "[^\\p{Lu}\\p{Lt}" NOT_HAN "]"
static const char *const kimi[] = {"\\p{sc:Han}+|[^\\r\\n\\p{L}\\p{N}]?" UPPER_NOT_HAN "*" LOWER_NOT_HAN "+" ENDINGS
                                   "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER_NOT_HAN "+" LOWER_NOT_HAN "*" ENDINGS
                                   "?|\\p{N}{1,3}|" SIGNS "[\\r\\n]*|" LINES_AND_SPACE_RUNS,
                                   NULL};
static const char *const superbpe[] = {"@numbers", "@threes", NULL};
static const char *const tiny_aya[] = {"@threes-of-whole-numbers", CASED(ENDINGS "?", "\\p{N}{1,3}"), NULL};
static const char *const afmoe[] = {"@threes-of-numbers",
                                    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{"
                                    "30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}"
                                    "\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-"
                                    "\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}"
                                    "\\x{1100}-\\x{11FF}]+",
                                    DEEPSEEK3, NULL};

#define WHOLE PRE_WHOLE
#define BOS PRE_BOS
#define NFC PRE_NFC
#define BARS (PRE_CHARS | PRE_BARS)
static const pretokenizer_row rows[] = {
  // name, patterns, flags. PRE_NFC is set where the models' own tokenizers normalise; the others take text as it is.
  {"default", fallback, 0},
  {"gpt-2", gpt2, 0},
  {"phi-2", gpt2, 0},
  {"mpt", gpt2, NFC},
  {"olmo", gpt2, NFC},
  {"jais", gpt2, 0},
  {"trillion", gpt2, 0},
  {"gigachat", gpt2, 0},
  {"a.x-4.0", gpt2, 0},
  {"mellum", gpt2, 0},
  {"exaone4", gpt2, 0},
  {"modern-bert", gpt2, NFC},
  {"granite-docling", gpt2, 0},
  {"jina-es", gpt2, 0},
  {"jina-de", gpt2, 0},
  {"jina-v2-es", gpt2, 0},
  {"jina-v2-de", gpt2, 0},
  {"jina-v1-en", gpt2, 0},
  {"jina-v2-code", gpt2, 0},
  {"roberta-bpe", gpt2, 0},
  {"llama-bpe", llama3, WHOLE | BOS},
  {"llama3", llama3, WHOLE | BOS},
  {"llama-v3", llama3, WHOLE | BOS},
  {"falcon3", llama3, WHOLE | BOS},
  {"falcon-h1", llama3, WHOLE | BOS},
  {"pixtral", llama3, WHOLE | BOS},
  {"midm-2.0", llama3, WHOLE | BOS},
  {"lfm2", llama3, WHOLE | BOS},
  {"jina-v5-nano", llama3, WHOLE | BOS},
  {"dbrx", llama3, 0},
  {"smaug-bpe", llama3, 0},
  {"chatglm-bpe", llama3, 0},
  {"glm4", llama3, WHOLE},
  {"glm5", llama3, WHOLE},
  {"jais-2", jais2, 0},
  {"qwen2", qwen2, NFC},
  {"deepseek-r1-qwen", qwen2, 0},
  {"megrez", qwen2, 0},
  {"stablelm2", qwen2, NFC},
  {"hunyuan", qwen2, NFC},
  {"solar-open", qwen2, 0},
  {"grok-2", qwen2, 0},
  {"kormo", qwen2, 0},
  {"f2llmv2", qwen2, NFC},
  {"qwen35", qwen35, NFC},
  {"ufakzeka", ufakzeka, 0},
  {"starcoder", single_digits, 0},
  {"refact", single_digits, 0},
  {"command-r", single_digits, NFC},
  {"smollm", single_digits, 0},
  {"codeshell", single_digits, 0},
  {"exaone", single_digits, 0},
  {"minerva-7b", single_digits, 0},
  {"mellum2", single_digits, 0},
  {"gpt-4o", gpt4o, 0},
  {"llama4", gpt4o, 0},
  {"kanana2", gpt4o, 0},
  {"talkie", gpt4o, 0},
  {"minimax-m2", gpt4o, 0},
  {"granite-embed-multi-97m", gpt4o, WHOLE},
  {"tiny_aya", tiny_aya, NFC},
  {"cohere2moe", tiny_aya, NFC},
  {"tekken", tekken, WHOLE | BOS},
  {"youtu", youtu, WHOLE},
  {"kimi-k2", kimi, 0},
  {"falcon", falcon, 0},
  {"superbpe", superbpe, 0},
  {"afmoe", afmoe, 0},
  {"deepseek-llm", deepseek_llm, 0},
  {"deepseek-coder", deepseek_coder, 0},
  {"deepseek-v3", deepseek3, 0},
  {"hunyuan-dense", deepseek3, 0},
  {"joyai-llm", deepseek3, 0},
  {"hy_v4", deepseek3, 0},
  {"spark2_5", spark, 0},
  {"bailingmoe", bailing, 0},
  {"bailingmoe2", bailing, 0},
  {"llada-moe", bailing, 0},
  {"seed-coder", seed, 0},
  {"minicpm5", minicpm5, WHOLE},
  {"laguna", laguna, 0},
  {"exaone-moe", exaone_moe, 0},
  {"chameleon", chameleon, BOS},
  {"poro-chat", bloom, 0},
  {"bloom", bloom, 0},
  {"gpt3-finnish", bloom, 0},
  {"viking", viking, 0},
  {"gemma4", lines, BARS | PRE_LINES | PRE_BOS_ALWAYS},
  {"granite-embed-multi-311m", lines, BARS | PRE_LINES | PRE_BOS_ALWAYS},
  {"sarvam-moe", lines, BARS},
  {"whitespace", whitespace, PRE_CHARS | PRE_NO_SPACES},
};

const pretokenizer_row *pretokenizer_at(size_t i) { return i < COUNT(rows) ? &rows[i] : NULL; }

const pretokenizer_row *pretokenizer_find(const char *name, size_t n) {
  for (size_t i = 0; i < COUNT(rows); i++)
    if (strlen(rows[i].name) == n && !memcmp(rows[i].name, name, n)) return &rows[i];
  return NULL;
}

