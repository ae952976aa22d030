// Finds the pre-tokenizer's name in GGUF files (tokenizer.ggml.pre) for the splitting that tokenizer.json describes.
// The description is written as one text, one line per step, and looked up in a table; a text without a row is an error
// that quotes it. Names with equal meaning have one row: the converter chooses among them by a hash of some tokens,
// which has no effect.
#include <string.h>
#include "base/scripts.h"
#include "base/str.h"
#include "model/hf_impl.h"

#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT4(digits) \
  ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(endings, digits) \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" endings "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" endings "|" \
  digits \
  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define DEEPSEEK3 \
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" \
  " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define STEP(regex) "split " regex "\n"
#define SPLIT(regex) "split " regex "\nbytes\n"

static const struct row {
  const char *steps;
  bool nfc;                          // the normalizer is NFC
  int whole, bos;                    // ignore_merges, and whether the template begins with a token; -1: either
  const char *pre;
} rows[] = {
  {SPLIT(GPT4("\\p{N}")), true, 0, -1, "qwen2"},
  {SPLIT(GPT4("\\p{N}")), false, 0, -1, "deepseek-r1-qwen"},
  {SPLIT(GPT4("\\p{N}{1,3}")), false, 1, 1, "llama-bpe"},
  {SPLIT(GPT4("\\p{N}{1,3}")), false, 1, 0, "glm4"},
  {SPLIT(GPT4("\\p{N}{1,3}")), false, 0, -1, "smaug-bpe"},
  {SPLIT(ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
                 "\\s+(?!\\S)|\\s+"),
   true, 0, -1, "qwen35"},
  {SPLIT(CASED(ENDINGS "?", "\\p{N}{1,3}")), false, 0, -1, "gpt-4o"},
  {SPLIT(CASED("", "\\p{N}")), false, 1, -1, "tekken"},
  {STEP("\\p{N}{1,3}") STEP(HAN_KANA) SPLIT(DEEPSEEK3), false, 0, -1, "deepseek-v3"},
  // no token has two digits, so the name's rule that runs of digits are words has no effect
  {STEP("[\\r\\n]") STEP("\\s?[" DEEPSEEK_LETTERS "]+") STEP("\\s?[" DEEPSEEK_SIGNS "]+") STEP("\\s+$")
     STEP(DEEPSEEK_CJK) "single digits\nbytes\n",
   false, 0, -1, "deepseek-llm"},
  {"gpt2 words\n", false, 0, -1, "gpt-2"},
  {"gpt2 words\n", true, 0, -1, "mpt"},
  {"single digits\ngpt2 words\n", false, 0, -1, "refact"},
  {"single digits\ngpt2 words\n", true, 0, -1, "command-r"},
};

static const char *text_under(const json_t *in, const char *key) {
  const char *s = json_string_value(json_object_get(in, key));
  return s ? s : "";
}

static bool is_on(const json_t *in, const char *key) { return json_is_true(json_object_get(in, key)); }

// Writes a regular expression in ASCII: other characters as numbers, line ends as \r and \n.
static void describe_regex(const char *regex, str *out) {
  str_add(out, "split ");
  for (unsigned char c; (c = (unsigned char)*regex++);) {
    uint32_t more = c < 0xc0 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3, code = c & 0x3fu >> more;
    if (c == '\r' || c == '\n') str_add(out, c == '\r' ? "\\r" : "\\n");
    else if (!more) str_addc(out, (char)c);
    for (; more && *regex; more--) {
      code = code << 6 | (*regex++ & 0x3f);
      if (more == 1) str_addf(out, "\\x{%X}", code);
    }
  }
  str_add(out, "\n");
}

// Writes a step as a line; an unknown one by its type only.
static void describe_step(const json_t *step, str *out) {
  const char *type = text_under(step, "type");
  const char *regex = text_under(json_object_get(step, "pattern"), "Regex");
  size_t i;
  json_t *of;
  if (!strcmp(type, "Sequence")) {
    json_array_foreach(json_object_get(step, "pretokenizers"), i, of) if (out->n < 1 << 16) describe_step(of, out);
  } else if (!strcmp(type, "Split") && *regex && !strcmp(text_under(step, "behavior"), "Isolated") &&
             !is_on(step, "invert"))
    describe_regex(regex, out);
  else if (!strcmp(type, "ByteLevel") && !is_on(step, "add_prefix_space"))
    str_add(out, json_is_false(json_object_get(step, "use_regex")) ? "bytes\n" : "gpt2 words\n");
  else if (!strcmp(type, "Digits") && is_on(step, "individual_digits")) str_add(out, "single digits\n");
  else str_addf(out, "%s of another kind\n", type);
}

// Returns whether the template of one text begins with a token.
static bool begins_with_token(const json_t *processor) {
  size_t i;
  json_t *of;
  json_array_foreach(json_object_get(processor, "processors"), i, of) if (begins_with_token(of)) return true;
  const json_t *single = json_object_get(processor, "single");
  return json_array_size(single) > 1 && json_object_get(json_array_get(single, 0), "SpecialToken");
}

int hf_words(const hf *h, const json_t *tokenizer, const char **pre, error *err) {
  const json_t *normalizer = json_object_get(tokenizer, "normalizer"), *model = json_object_get(tokenizer, "model");
  const char *kind = text_under(normalizer, "type");
  const json_t *steps_of = json_object_get(normalizer, "normalizers");
  if (!strcmp(kind, "Sequence") && steps_of && !json_array_size(steps_of)) kind = "";
  bool nfc = !strcmp(kind, "NFC"), whole = is_on(model, "ignore_merges");
  bool bos = begins_with_token(json_object_get(tokenizer, "post_processor"));
  str steps = {0};
  char quoted[512];
  *pre = NULL;
  if (*kind && !nfc)
    return hf_fail(h, "tokenizer.json", "normalizer", err, "%s is not known for a vocabulary of BPE",
                   gguf_quote(quoted, 64, kind, strlen(kind)));
  describe_step(json_object_get(tokenizer, "pre_tokenizer"), &steps);
  for (size_t i = 0; i < COUNT(rows) && !*pre; i++)
    if (!strcmp(rows[i].steps, str_c(&steps)) && rows[i].nfc == nfc && (rows[i].whole < 0 || rows[i].whole == whole) &&
        (rows[i].bos < 0 || rows[i].bos == bos))
      *pre = rows[i].pre;
  if (!*pre)
    hf_fail(h, "tokenizer.json", "pre_tokenizer", err, "this way of cutting words is not known%s%s: %s",
            nfc ? " (after NFC)" : "", whole ? " (ignore_merges)" : "",
            gguf_quote(quoted, sizeof quoted, str_c(&steps), steps.n));
  str_free(&steps);
  return *pre ? 0 : -1;
}
