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

static void put_point(str *out, uint32_t cp) {
  char bytes[4];
  str_addn(out, bytes, (size_t)utf8_put(cp, bytes));
}

// Removes control, invalid and replacement characters, and puts a space for each white space and around Chinese
// characters.
static void clean_text(const char *text, size_t n, str *out) {
  for (size_t i = 0; i < n;) {
    int len = utf8_next(text + i, n - i);
    if (len <= 0) { i++; continue; }
    uint32_t cp = utf8_code_point(text + i, len);
    i += (size_t)len;
    if (cp == '\t' || cp == '\n' || cp == '\r' || (unicode_is_space(cp) && !unicode_is_other(cp))) str_addc(out, ' ');
    else if (cp == 0xFFFD || unicode_is_other(cp)) continue;
    else if (!unicode_is_han(cp)) str_addn(out, text + i - (size_t)len, (size_t)len);
    else { str_addc(out, ' '); put_point(out, cp); str_addc(out, ' '); }
  }
}

// ---- Words ----

static bool stands_alone(uint32_t cp) {
  if (cp < 0x80)
    return cp > ' ' && cp < 0x7F && !(cp >= '0' && cp <= '9') && !(cp >= 'A' && cp <= 'Z') && !(cp >= 'a' && cp <= 'z');
  return unicode_is_punctuation(cp);
}

static int put_word(const wordpiece *w, const char *word, size_t n, size_t characters, trie_cost *cost, token_list *out,
                    error *err) {
  size_t before = out->n;
  const trie *t = &w->tokens;
  for (size_t at = 0; at < n;) {
    int32_t id = -1;
    size_t length = 0;
    // Tokens that begin with "▁" begin words; in the middle of one, "▁" can only be the character itself.
    bool bar = at && n - at >= 3 && !memcmp(word + at, SPM_SPACE, 3);
    uint32_t node = at ? 0 : w->begins;
    if (!at && !node) break;
    size_t i = at;
    for (; i < n && (!bar || i < at + 3) && (node = trie_step(t, node, (unsigned char)word[i])); i++)
      if (t->node[node].value >= 0) { id = t->node[node].value; length = i + 1 - at; }
    cost->steps += i - at;
    if (trie_too_costly(cost)) return trie_refuse(w->v->source, err);
    if (id < 0 || characters > WORDPIECE_CHARACTERS_MAX) break;
    vec_push(out, id);
    if ((at += length) == n) return 0;
  }
  out->n = before;
  if (w->unknown < 0) return vocab_no_token(w->v, word, n < 16 ? n : 16, err);
  vec_push(out, w->unknown);
  return 0;
}

// A piece with characters beyond ASCII.
struct piece { str clean, plain, word; };

static int put_piece(const wordpiece *w, const char *raw, size_t n_raw, struct piece *p, trie_cost *cost,
                     token_list *out, error *err) {
  const str *text = &p->clean;
  p->clean.n = p->plain.n = p->word.n = 0;
  clean_text(raw, n_raw, &p->clean);
  if (w->strip_accents && unicode_may_change(UNICODE_NFD, str_c(&p->clean), p->clean.n)) {
    unicode_normalize(UNICODE_NFD, p->clean.at, p->clean.n, &p->plain);
    text = &p->plain;
  }
  int bad = 0;
  size_t characters = 0;
  for (size_t i = 0; i <= text->n && !bad;) {
    int len = i < text->n ? utf8_next(text->at + i, text->n - i) : 1;
    uint32_t cp = i < text->n ? utf8_code_point(text->at + i, len) : ' ', small[2] = {cp};
    i += (size_t)len;
    if (w->strip_accents && cp >= 0x300 && unicode_is_nonspacing(cp)) continue;
    int n_small = w->lowercase ? unicode_lower(cp, small) : 1;
    bool alone = stands_alone(small[0]), space = unicode_is_space(cp);
    if (p->word.n && (alone || space)) {
      bad = put_word(w, p->word.at, p->word.n, characters, cost, out, err);
      p->word.n = characters = 0;
    }
    if (space || bad) continue;
    for (int k = 0; k < n_small; k++) put_point(&p->word, small[k]);
    characters += (size_t)n_small;
    if (alone) { bad = put_word(w, p->word.at, p->word.n, characters, cost, out, err); p->word.n = characters = 0; }
  }
  return bad;
}

// put_word for ASCII alone, where each character is one byte and has no accents.
static int put_ascii(const wordpiece *w, const char *raw, size_t n_raw, str *word, trie_cost *cost, token_list *out,
                     error *err) {
  word->n = 0;
  for (size_t i = 0; i < n_raw; i++) {
    unsigned char c = (unsigned char)raw[i];
    if (c < ' ' || c == 0x7F) continue;
    bool alone = stands_alone(c);
    if (alone && word->n) {
      if (put_word(w, word->at, word->n, word->n, cost, out, err)) return -1;
      word->n = 0;
    }
    str_addc(word, (char)(w->lowercase && c >= 'A' && c <= 'Z' ? c + 32 : c));
    if (!alone) continue;
    if (put_word(w, word->at, word->n, word->n, cost, out, err)) return -1;
    word->n = 0;
  }
  return word->n ? put_word(w, word->at, word->n, word->n, cost, out, err) : 0;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// The last place where a word ends whatever follows: before white space, an ASCII punctuation mark or a Chinese
// character. None of these moves, or makes the one before it move, when accents are removed.
static size_t last_end(const char *text, size_t n) {
  for (size_t i = n; i-- > 1;) {
    unsigned char c = (unsigned char)text[i];
    if (c < 0x80 ? is_blank(text[i]) || stands_alone(c) : c >= 0xC0) {
      int len = utf8_next(text + i, n - i);
      if (c < 0x80 || (len > 0 && unicode_is_han(utf8_code_point(text + i, len)))) return i;
    }
  }
  return 0;
}

// White space ends words and composes with nothing, so the text between is cleaned separately: most of it is ASCII.
int wordpiece_encode(const wordpiece *w, const char *raw, size_t n, bool open, size_t *settled, trie_cost *cost,
                     token_list *out, error *err) {
  struct piece p = {0};
  int bad = 0;
  if (open) n = last_end(raw, n);
  *settled = n;
  cost->bytes += n;
  for (size_t i = 0, end; i < n && !bad; i = end + 1) {
    unsigned char high = 0;
    for (end = i; end < n && !is_blank(raw[end]); end++) high |= (unsigned char)raw[end];
    bad = high < 0x80 ? put_ascii(w, raw + i, end - i, &p.word, cost, out, err)
                      : put_piece(w, raw + i, end - i, &p, cost, out, err);
  }
  str_free(&p.clean), str_free(&p.plain), str_free(&p.word);
  return bad;
}
