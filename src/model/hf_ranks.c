// Reads a vocabulary in tiktoken's format: a line for each token, its bytes in base64 and its rank, which is its id.
// Merges follow from ranks: a token is made of the two parts into which the tokens before it join its bytes. How words
// are cut is not in the folder but in the Python class that tokenizer_config.json names; the classes known here are in
// a table, each with the names of its special tokens, which come after the ranks.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "model/hf_impl.h"

enum { NORMAL = 1, CONTROL = 3, UNUSED = 5, BYTES_MOST = 1 << 10, RESERVED = 256, HUNYUAN_BOS = 2 };

// A stretch of bytes as it is looked up: the sum of its bytes, each times a power of BASE modulo 2^61 - 1, and its
// length. The sum of a part follows from two sums of beginnings, so no part of a token is read again for each lookup.
typedef struct sum { uint64_t of, n; } sum;
typedef struct token { const unsigned char *bytes; size_t n; sum sum; } token;
typedef struct rank_list {
  const char *file;
  token *at;
  size_t n;
  smap by_sum;
  uint64_t powers[BYTES_MOST + 1];
} rank_list;

// ---- reading --------------------------------------------------------------------------------------------------------

static int base64_digit(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = c ? strchr(digits, c) : NULL;
  return at ? (int)(at - digits) : -1;
}

size_t hf_base64(const char *from, size_t n, unsigned char *to) {
  size_t bytes = 0;
  uint32_t bits = 0;
  while (n && from[n - 1] == '=') n--;
  for (size_t i = 0; i < n; i++) {
    int digit = base64_digit(from[i]);
    if (digit < 0) return 0;
    bits = bits << 6 | (uint32_t)digit;
    if (i % 4) to[bytes++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
  }
  return n % 4 == 1 ? 0 : bytes;
}

#define BASE 0x1b3f1c9a7e4d25b1u          // any number that bytes of texts do not depend on
static const uint64_t modulus = ((uint64_t)1 << 61) - 1;

static uint64_t mul_sums(uint64_t a, uint64_t b) {
  unsigned __int128 c = (unsigned __int128)a * b;
  uint64_t r = (uint64_t)(c & modulus) + (uint64_t)(c >> 61);
  return r >= modulus ? r - modulus : r;
}

// sums[i]: of the first i bytes
static void sum_beginnings(const unsigned char *bytes, size_t n, uint64_t *sums) {
  sums[0] = 0;
  for (size_t i = 0; i < n; i++) sums[i + 1] = (mul_sums(sums[i], BASE) + bytes[i] + 1) % modulus;
}

static sum sum_part(const rank_list *l, const uint64_t *sums, size_t from, size_t to) {
  uint64_t before = mul_sums(sums[from], l->powers[to - from]);
  return (sum){sums[to] >= before ? sums[to] - before : sums[to] + modulus - before, to - from};
}

// Reads a line of n bytes, "BASE64 RANK".
static int read_ranked_token(hf *h, rank_list *l, const char *line, size_t n, error *err) {
  size_t code = 0;
  while (code < n && line[code] != ' ') code++;
  char *end = NULL;
  unsigned char *bytes = arena_alloc(h->arena, code + 1);
  size_t length = hf_base64(line, code, bytes);
  unsigned long rank = code < n ? strtoul(line + code, &end, 10) : 0;
  if (!length || end != line + n || length > BYTES_MOST)
    return hf_fail(h, l->file, NULL, err, "line %zu is no token of at most %d bytes in base64 with its rank", l->n + 1,
                   BYTES_MOST);
  token *t = &l->at[l->n];
  uint64_t sums[BYTES_MOST + 1];
  sum_beginnings(bytes, length, sums);
  *t = (token){bytes, length, {sums[length], length}};
  if (rank != l->n || !smap_set(&l->by_sum, (char *)&t->sum, sizeof t->sum, (void *)(uintptr_t)(rank + 1)))
    return hf_fail(h, l->file, NULL, err, "line %zu has the rank %lu, or a token that was there before", l->n + 1,
                   rank);
  l->n++;
  return 0;
}

static int read_ranked_tokens(hf *h, rank_list *l, const char *text, size_t n, error *err) {
  size_t lines = 1;
  for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
  size_t room = lines < h->n_vocab ? lines : (size_t)h->n_vocab;
  l->at = ARENA_ARRAY(h->arena, token, room);
  l->powers[0] = 1;
  for (size_t i = 0; i < BYTES_MOST; i++) l->powers[i + 1] = mul_sums(l->powers[i], BASE);
  for (size_t at = 0; at < n;) {
    const char *newline = memchr(text + at, '\n', n - at);
    size_t length = newline ? (size_t)(newline - text) - at : n - at;
    if (length && l->n == room)
      return hf_fail(h, l->file, NULL, err, "has more tokens than config.json says, %" PRIu64, h->n_vocab);
    if (length && read_ranked_token(h, l, text + at, length, err)) return -1;
    at += length + 1;
  }
  return l->n ? 0 : hf_fail(h, l->file, NULL, err, "has no tokens");
}

// ---- texts and merges -----------------------------------------------------------------------------------------------

// Bytes as the characters that GPT-2 has for them.
static const char *text_of_bytes(const hf *h, const unsigned char *bytes, size_t n) {
  char *out = arena_alloc(h->arena, 2 * n + 1), *to = out;
  for (size_t i = 0; i < n; i++) {
    unsigned c = bytes[i];
    bool plain = (c > 32 && c < 127) || (c > 160 && c != 173);
    if (!plain) c = 256 + (c <= 32 ? c : c < 161 ? c - 127 + 33 : 67);
    if (c < 128) *to++ = (char)c;
    else *to++ = (char)(0xc0 | c >> 6), *to++ = (char)(0x80 | (c & 0x3f));
  }
  *to = 0;
  return out;
}

// ---- the two parts of a token ---------------------------------------------------------------------------------------

// A pair of neighbours that a token joins: its rank, and where both parts begin and the second one ends.
typedef struct pair { uintptr_t rank; size_t at, middle, end; } pair;
// What joins a token's bytes. next[i], before[i]: the parts beside the one that begins at byte i. heap: pairs. The
// one with the least rank is on top, the first one if several have it. Pairs of parts that were joined since stay in
// it.
typedef struct joining {
  const rank_list *l;
  const token *t;
  uint64_t sums[BYTES_MOST + 1];
  size_t next[BYTES_MOST + 1], before[BYTES_MOST + 1], n_heap;
  pair heap[3 * BYTES_MOST];
} joining;

static bool comes_first(const pair *a, const pair *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void swap_pairs(pair *a, pair *b) { pair c = *a; *a = *b; *b = c; }

// Adds the part that begins at `at` with the one after it, if a token joins them.
static void offer_pair(joining *j, size_t at) {
  size_t middle = j->next[at], end = middle < j->t->n ? j->next[middle] : 0;
  void *found;
  sum s;
  if (!end) return;
  s = sum_part(j->l, j->sums, at, end);
  if (!smap_get(&j->l->by_sum, (char *)&s, sizeof s, &found)) return;
  uintptr_t rank = (uintptr_t)found - 1;
  if (memcmp(j->l->at[rank].bytes, j->t->bytes + at, end - at)) return;      // another token's sum
  size_t i = j->n_heap++;
  j->heap[i] = (pair){rank, at, middle, end};
  for (; i && comes_first(&j->heap[i], &j->heap[(i - 1) / 2]); i = (i - 1) / 2)
    swap_pairs(&j->heap[i], &j->heap[(i - 1) / 2]);
}

static pair take_pair(joining *j) {
  pair top = j->heap[0];
  j->heap[0] = j->heap[--j->n_heap];
  for (size_t i = 0, least; ; i = least) {
    size_t left = 2 * i + 1, right = left + 1;
    least = left < j->n_heap && comes_first(&j->heap[left], &j->heap[i]) ? left : i;
    if (right < j->n_heap && comes_first(&j->heap[right], &j->heap[least])) least = right;
    if (least == i) return top;
    swap_pairs(&j->heap[i], &j->heap[least]);
  }
}

// Joins a token's bytes by the ranks before its own. Returns where the second of two parts begins; 0: there are more.
static size_t second_part(joining *j, uintptr_t own) {
  size_t n = j->t->n, parts = n;
  j->n_heap = 0;
  sum_beginnings(j->t->bytes, n, j->sums);
  for (size_t i = 0; i < n; i++) j->next[i] = i + 1, j->before[i + 1] = i;
  for (size_t i = 0; i + 1 < n && n > 2; i++) offer_pair(j, i);
  while (parts > 2 && j->n_heap) {
    pair p = take_pair(j);
    // one of its parts was joined since: a part that begins elsewhere now has no next one
    if (j->next[p.at] != p.middle || j->next[p.middle] != p.end) continue;
    if (p.rank >= own) return 0;
    parts--;
    j->next[p.at] = p.end;
    j->next[p.middle] = 0;
    j->before[p.end] = p.at;
    offer_pair(j, p.at);
    if (p.at) offer_pair(j, j->before[p.at]);
  }
  return parts == 2 ? j->next[0] : 0;
}

static void put_merges_of_ranks(hf *h, const rank_list *l) {
  const char **all = ARENA_ARRAY(h->arena, const char *, l->n);
  joining *j = ARENA_ARRAY(h->arena, joining, 1);
  size_t n = 0;
  j->l = l;
  for (size_t i = 0; i < l->n; i++) {
    const token *t = j->t = &l->at[i];
    size_t second = second_part(j, i);
    if (second)
      all[n++] = arena_printf(h->arena, "%s %s", text_of_bytes(h, t->bytes, second),
                              text_of_bytes(h, t->bytes + second, t->n - second));
  }
  if (n) gguf_head_strs(h->head, "tokenizer.ggml.merges", all, n);
}

// ---- special tokens -------------------------------------------------------------------------------------------------

// A token that tokenizer_config.json describes; NULL: none.
static const char *said_token(const hf *h, const json_t *settings, uint64_t i) {
  const json_t *said = json_object_get(json_object_get(settings, "added_tokens_decoder"),
                                       arena_printf(h->arena, "%" PRIu64, i));
  const char *text = json_string_value(json_object_get(said, "content"));
  return text ? arena_strdup(h->arena, text) : NULL;
}

static const char *hunyuan_token(const hf *h, const json_t *settings, uint64_t i) {
  static const char *const first[] = {"<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"};
  (void)settings;
  uint64_t k = i - h->n_ranks;
  return k < COUNT(first) ? first[k] : arena_printf(h->arena, "<|extra_%" PRIu64 "|>", k - COUNT(first));
}

static const char *kimi_token(const hf *h, const json_t *settings, uint64_t i) {
  if (i >= h->n_ranks + RESERVED) return NULL;
  const char *text = said_token(h, settings, i);
  return text ? text : arena_printf(h->arena, "<|reserved_token_%" PRIu64 "|>", i);
}

static const char *qwen_token(const hf *h, const json_t *settings, uint64_t i) {
  enum { EXTRA = 205 };
  static const char *const first[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  (void)settings;
  uint64_t k = i - h->n_ranks;
  if (k < COUNT(first)) return first[k];
  k -= COUNT(first);
  return k < EXTRA ? arena_printf(h->arena, "<|extra_%" PRIu64 "|>", k) : NULL;
}

static const struct kind {
  const char *file, *class, *pre;
  const char *(*special)(const hf *h, const json_t *settings, uint64_t i);   // NULL: token i is unused
} kinds[] = {{"hy.tiktoken", "HYTokenizer", "hunyuan", hunyuan_token},
             {"tiktoken.model", "TikTokenTokenizer", "kimi-k2", kimi_token},
             {"qwen.tiktoken", "QWenTokenizer", "qwen2", qwen_token},
             {"tokenizer.model", "ChatGLM4Tokenizer", "chatglm-bpe", said_token}};

static void put_list(hf *h, const struct kind *k, const rank_list *l, const json_t *settings) {
  h->n_ranks = l->n;
  const char **text = ARENA_ARRAY(h->arena, const char *, h->n_vocab);
  int32_t *type = ARENA_ARRAY(h->arena, int32_t, h->n_vocab);
  for (uint64_t i = 0; i < h->n_vocab; i++) {
    bool special = i >= l->n;
    text[i] = special ? k->special(h, settings, i) : text_of_bytes(h, l->at[i].bytes, l->at[i].n);
    type[i] = !special ? NORMAL : text[i] ? CONTROL : UNUSED;
    if (!text[i]) text[i] = arena_printf(h->arena, "[PAD%" PRIu64 "]", i);
  }
  gguf_head_str(h->head, "tokenizer.ggml.model", "gpt2", 4);
  gguf_head_str(h->head, "tokenizer.ggml.pre", k->pre, strlen(k->pre));
  gguf_head_strs(h->head, "tokenizer.ggml.tokens", text, h->n_vocab);
  gguf_head_i32s(h->head, "tokenizer.ggml.token_type", type, h->n_vocab);
  put_merges_of_ranks(h, l);
}

int hf_put_ranks(hf *h, const json_t *settings, bool *found, error *err) {
  const char *class = json_string_value(json_object_get(settings, "tokenizer_class"));
  rank_list l = {0};
  char *text = NULL, quoted[64];
  size_t n = 0, k = 0;
  for (; k < COUNT(kinds) && !text; k += !text) if (hf_text(h, kinds[k].file, &text, &n, err)) return -1;
  *found = text;
  if (!text) return 0;
  l.file = kinds[k].file;
  int status =
    !class || !strcmp(class, kinds[k].class)
      ? read_ranked_tokens(h, &l, text, n, err)
      : hf_fail(h, "tokenizer_config.json", "tokenizer_class", err, "%s cuts words in a way that is not known",
                gguf_quote(quoted, sizeof quoted, class, strlen(class)));
  if (!status) put_list(h, &kinds[k], &l, settings);
  smap_free(&l.by_sum);
  free(text);
  return status;
}

// The first special token of Qwen 1 is the unknown one, and, if config.json names no token, begins and ends a text.
static void put_qwen_roles(hf *h) {
  const char *name;
  bool named =
    hf_value(h, "bos_token_id eos_token_id unk_token_id sep_token_id pad_token_id cls_token_id mask_token_id", &name);
  if (h->class->vocab != HF_VOCAB_QWEN || h->n_ranks >= h->n_vocab) return;
  if (!named) gguf_head_u32(h->head, "tokenizer.ggml.bos_token_id", (uint32_t)h->n_ranks);
  if (!named) gguf_head_u32(h->head, "tokenizer.ggml.eos_token_id", (uint32_t)h->n_ranks);
  gguf_head_u32(h->head, "tokenizer.ggml.unknown_token_id", (uint32_t)h->n_ranks);
}

// The token that ends an answer is known by its text (Kimi Linear), and the one that begins a text by its place
// (HunYuan, whose config.json has another).
void hf_put_rank_roles(hf *h, const json_t *settings) {
  put_qwen_roles(h);
  const json_t *said = json_object_get(settings, "eos_token");
  const char *name, *end = json_string_value(json_is_object(said) ? json_object_get(said, "content") : said);
  uint64_t bos = h->n_ranks + HUNYUAN_BOS;
  if (h->class->vocab == HF_VOCAB_HUNYUAN_MOE && bos < h->n_vocab)
    gguf_head_u32(h->head, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
  bool known = h->class->vocab == HF_VOCAB_KIMI_K3 && hf_value(h, "eos_token_id", &name);
  if ((h->class->vocab != HF_VOCAB_KIMI && h->class->vocab != HF_VOCAB_KIMI_K3) || known || !end) return;
  for (uint64_t i = h->n_ranks; i < h->n_vocab && i < h->n_ranks + RESERVED; i++)
    if (!strcmp(kimi_token(h, settings, i), end))
      gguf_head_u32(h->head, "tokenizer.ggml.eos_token_id", (uint32_t)i);
}
