// WordPiece: see wordpiece.h.
#include "text/wordpiece.h"
#include "text/spm.h"
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>

int wordpiece_init(wordpiece *w, const vocab *v, bool lowercase, bool strip_accents, arena *mem, error *err) {
  *w = (wordpiece){.v = v, .lowercase = lowercase, .strip_accents = strip_accents, .unknown = vocab_unknown_word(v)};
  trie_item *items = xmalloc(((size_t)v->n + 1) * sizeof *items);
  size_t n = 0;
  for (int32_t id = 0; id < v->n; id++) {
    if (vocab_merges_to(v, id)) items[n++] = (trie_item){v->token[id], id};
  }
  int bad = trie_build(&w->tokens, items, n, mem, err);
  free(items);
  if (!bad) w->begins = trie_walk(&w->tokens, 0, SPM_SPACE, 3);
  return bad;
}

// ---- Cleaning ----

static void put(str *out, uint32_t cp) {
  char bytes[4];
  str_addn(out, bytes, (size_t)utf8_put(cp, bytes));
}

// Without what is no character, no text or a sign of lost text; with a space for each white space and around Chinese characters.
static void clean(const char *text, size_t n, str *out) {
  for (size_t i = 0; i < n;) {
    int len = utf8_next(text + i, n - i);
    if (len <= 0) { i++; continue; }
    uint32_t cp = utf8_code_point(text + i, len);
    i += (size_t)len;
    if (cp == '\t' || cp == '\n' || cp == '\r' || (unicode_is_space(cp) && !unicode_is_other(cp))) str_addc(out, ' ');
    else if (cp == 0xFFFD || unicode_is_other(cp)) continue;
    else if (!unicode_is_han(cp)) str_addn(out, text + i - (size_t)len, (size_t)len);
    else { str_addc(out, ' '); put(out, cp); str_addc(out, ' '); }
  }
}

// ---- Words ----

static bool stands_alone(uint32_t cp) {
  if (cp < 0x80) return cp > ' ' && cp < 0x7F && !(cp >= '0' && cp <= '9') && !(cp >= 'A' && cp <= 'Z') && !(cp >= 'a' && cp <= 'z');
  return unicode_is_punctuation(cp);
}

static int put_word(const wordpiece *w, const char *word, size_t n, size_t characters, token_list *out, error *err) {
  size_t before = out->n;
  const trie *t = &w->tokens;
  for (size_t at = 0; at < n;) {
    int32_t id = -1;
    size_t length = 0;
    // Tokens that begin with "▁" begin words; in the middle of one, only the character itself may be meant.
    bool bar = at && n - at >= 3 && !memcmp(word + at, SPM_SPACE, 3);
    uint32_t node = at ? 0 : w->begins;
    if (!at && !node) break;
    for (size_t i = at; i < n && (!bar || i < at + 3) && (node = trie_step(t, node, (unsigned char)word[i])); i++)
      if (t->value[node] >= 0) { id = t->value[node]; length = i + 1 - at; }
    if (id < 0 || characters > WORDPIECE_CHARACTERS_MAX) break;
    vec_push(out, id);
    if ((at += length) == n) return 0;
  }
  out->n = before;
  if (w->unknown < 0) return vocab_no_token(w->v, word, n < 16 ? n : 16, err);
  vec_push(out, w->unknown);
  return 0;
}

int wordpiece_encode(const wordpiece *w, const char *raw, size_t n_raw, token_list *out, error *err) {
  str text = {0}, plain = {0}, word = {0};
  clean(raw, n_raw, &text);
  if (w->strip_accents && unicode_may_change(UNICODE_NFD, str_c(&text), text.n)) {
    unicode_normalize(UNICODE_NFD, text.at, text.n, &plain);
    str_free(&text);
    text = plain;
  }
  int bad = 0;
  size_t characters = 0;
  for (size_t i = 0; i <= text.n && !bad;) {
    int len = i < text.n ? utf8_next(text.at + i, text.n - i) : 1;
    uint32_t cp = i < text.n ? utf8_code_point(text.at + i, len) : ' ', small[2] = {cp};
    i += (size_t)len;
    if (w->strip_accents && cp >= 0x300 && unicode_is_nonspacing(cp)) continue;
    int n_small = w->lowercase ? unicode_lower(cp, small) : 1;
    bool alone = stands_alone(small[0]);
    if (word.n && (alone || unicode_is_space(cp))) {
      bad = put_word(w, word.at, word.n, characters, out, err);
      word.n = characters = 0;
    }
    if (unicode_is_space(cp) || bad) continue;
    for (int k = 0; k < n_small; k++) put(&word, small[k]);
    characters += (size_t)n_small;
    if (alone) { bad = put_word(w, word.at, word.n, characters, out, err); word.n = characters = 0; }
  }
  str_free(&text);
  str_free(&word);
  return bad;
}
