// Reads the vocabulary of RWKV ("World"): a line for each token, its number, its text as Python writes it ('a',
// b'\xff') and its length in bytes. Files have texts as Python writes bytes, without the quotes. The first token, <s>,
// is in no line.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/str.h"
#include "model/hf_impl.h"

#define WORLD "rwkv_vocab_v20230424.txt"
enum { NORMAL = 1, CONTROL = 3, UNUSED = 5 };

static void add_character(str *out, uint32_t c) {
  if (c < 0x80) { str_addc(out, (char)c); return; }
  if (c >= 0x10000) str_addc(out, (char)(0xf0 | c >> 18));
  if (c >= 0x800) str_addc(out, (char)(c >= 0x10000 ? 0x80 | (c >> 12 & 0x3f) : 0xe0 | c >> 12));
  str_addc(out, (char)(c >= 0x800 ? 0x80 | (c >> 6 & 0x3f) : 0xc0 | c >> 6));
  str_addc(out, (char)(0x80 | (c & 0x3f)));
}

// Adds the character after a backslash. Returns the number of characters that it took; 0: no such character.
static size_t add_after_backslash(const char *at, size_t n, bool bytes, str *out) {
  static const char plain[] = "\\'\"", names[] = "ntr", are[] = "\n\t\r";
  size_t digits = *at == 'x' ? 2 : bytes ? 0 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
  uint32_t code = 0;
  const char *known = n ? strchr(names, *at) : NULL;
  if (!n) return 0;
  if (*at && strchr(plain, *at)) {
    str_addc(out, *at);
    return 1;
  }
  if (*at && known) {
    str_addc(out, are[known - names]);
    return 1;
  }
  if (!digits || n <= digits) return 0;
  for (size_t i = 1; i <= digits; i++) {
    int digit = hex_value(at[i]);
    if (digit < 0) return 0;
    code = code << 4 | (uint32_t)digit;
  }
  if (bytes) str_addc(out, (char)code);
  else if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
  else add_character(out, code);
  return digits + 1;
}

// The bytes of 'text' or b'bytes'. false: it is neither.
static bool read_literal(const char *at, size_t n, str *out) {
  bool bytes = n && *at == 'b';
  if (bytes) at++, n--;
  if (n < 2 || (*at != '\'' && *at != '"') || at[n - 1] != *at) return false;
  char quote = *at++;
  n -= 2;
  for (size_t i = 0, took; i < n; i += took) {
    if (at[i] == quote) return false;
    took = 1;
    if (at[i] != '\\') str_addc(out, at[i]);
    else if (!(took = 1 + add_after_backslash(at + i + 1, n - i - 1, bytes, out)) || took == 1) return false;
  }
  return true;
}

// Bytes as Python writes them: quotes are ", if there is ' and no ".
static const char *written_bytes(const hf *h, const char *bytes, size_t n) {
  bool escapes = !memchr(bytes, '\'', n) || memchr(bytes, '"', n);
  char *out = arena_alloc(h->arena, 4 * n + 1), *to = out;
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)bytes[i];
    const char *name = c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : c == '\\' ? "\\\\" : NULL;
    if (c == '\'' && escapes) name = "\\'";
    if (name) *to++ = name[0], *to++ = name[1];
    else if (c >= 32 && c < 127) *to++ = (char)c;
    else *to++ = '\\', *to++ = 'x', *to++ = "0123456789abcdef"[c >> 4], *to++ = "0123456789abcdef"[c & 15];
  }
  *to = 0;
  return out;
}

// Reads a line of n bytes: "NUMBER LITERAL LENGTH".
static int read_world_line(const hf *h, const char *line, size_t n, size_t number, const char **out, error *err) {
  const char *first = memchr(line, ' ', n);
  size_t last = n;
  char *end = NULL;
  str bytes = {0};
  while (last && line[last - 1] != ' ') last--;
  size_t from = first ? (size_t)(first - line) + 1 : 0;
  unsigned long length = last && last < n ? strtoul(line + last, &end, 10) : 0;
  bool good = first && from + 1 < last && end == line + n && read_literal(line + from, last - 1 - from, &bytes) &&
              bytes.n == length && bytes.n;
  if (good) *out = written_bytes(h, bytes.at, bytes.n);
  str_free(&bytes);
  return good ? 0 : hf_fail(h, WORLD, NULL, err, "line %zu is no number, text and length of a token", number);
}

static int read_world_lines(hf *h, const char *text, size_t n, error *err) {
  const char **all = ARENA_ARRAY(h->arena, const char *, h->n_vocab);
  int32_t *kinds = ARENA_ARRAY(h->arena, int32_t, h->n_vocab);
  uint64_t known = 1;
  all[0] = "<s>";
  kinds[0] = CONTROL;
  for (size_t at = 0; at < n; known++) {
    const char *newline = memchr(text + at, '\n', n - at);
    size_t length = newline ? (size_t)(newline - text) - at : n - at, end = at + length;
    if (length && text[end - 1] == '\r') length--;
    if (known == h->n_vocab)
      return hf_fail(h, WORLD, NULL, err, "has more tokens than config.json says, %" PRIu64, h->n_vocab);
    if (read_world_line(h, text + at, length, (size_t)known, &all[known], err)) return -1;
    kinds[known] = NORMAL;
    at = end + 1;
  }
  for (uint64_t i = known; i < h->n_vocab; i++) {
    all[i] = arena_printf(h->arena, "[PAD%" PRIu64 "]", i);
    kinds[i] = UNUSED;
  }
  gguf_head_str(h->head, "tokenizer.ggml.model", "rwkv", 4);
  gguf_head_strs(h->head, "tokenizer.ggml.tokens", all, h->n_vocab);
  gguf_head_i32s(h->head, "tokenizer.ggml.token_type", kinds, h->n_vocab);
  return 0;
}

int hf_put_world(hf *h, error *err) {
  char *text;
  size_t n;
  if (hf_text(h, WORLD, &text, &n, err)) return -1;
  if (!text) return hf_fail(h, WORLD, NULL, err, "is missing");
  int status = read_world_lines(h, text, n, err);
  free(text);
  return status;
}
