// Converts tokens to text: see text.h. A token's bytes depend on its type: for normal tokens the text from which
// merging made them, for a byte token its byte, and for tokens that are matched literally (USER_DEFINED) or have no
// text of their own (CONTROL, UNKNOWN) their name.
#include "text/text.h"
#include "text/tokenizer.h"
#include <string.h>

// The byte that "<0xXX>" names, or -1.
static int byte_of_name(text_view t) {
  if (t.n != 6 || memcmp(t.at, "<0x", 3) || t.at[5] != '>') return -1;
  int hi = hex_value(t.at[3]), lo = hex_value(t.at[4]);
  return hi < 0 || lo < 0 ? -1 : hi << 4 | lo;
}

static void add_with_spaces(text_view t, str *out) {
  for (size_t i = 0; i < t.n;) {
    bool space = t.n - i >= 3 && !memcmp(t.at + i, SPM_SPACE, 3);
    str_addc(out, space ? ' ' : t.at[i]);
    i += space ? 3 : 1;
  }
}

static void add_token_text(const tokenizer *of, int32_t id, str *out) {
  const vocab *v = &of->v;
  text_view t = of->dna.v ? dna_plain(v->token[id]) : v->token[id];
  int byte;
  switch (v->type[id]) {
    case TOKEN_CONTROL: case TOKEN_UNKNOWN: case TOKEN_USER_DEFINED: str_addn(out, t.at, t.n); return;
    case TOKEN_BYTE:
      if ((byte = byte_of_name(t)) >= 0) str_addc(out, (char)byte);
      else str_addn(out, t.at, t.n);
      return;
    default: break;
  }
  switch (v->kind) {
    case VOCAB_BPE: bpe_decode(t, out); return;
    case VOCAB_RWKV: rwkv_unescape(t, out); return;
    case VOCAB_PLAMO2: str_addn(out, t.at, t.n); return;
    case VOCAB_CHARS:
    case VOCAB_SPM:
    case VOCAB_WORDPIECE:
    case VOCAB_UNIGRAM:
    case VOCAB_OTHER: add_with_spaces(t, out); return;
  }
}

static bool hidden(const vocab *v, int32_t id) { return v->type[id] == TOKEN_CONTROL || v->type[id] == TOKEN_UNKNOWN; }

void tokenizer_piece(const tokenizer *t, int32_t id, str *out, bool special) {
  if (id < 0 || id >= t->v.n || (!special && hidden(&t->v, id))) return;
  add_token_text(t, id, out);
}

// Encoding puts a space before the text and after each special token, so decoding removes one in the same places; and
// WordPiece's words all begin with one.
void tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool special, str *out) {
  bool prefix = t->space_prefix || t->v.kind == VOCAB_WORDPIECE, strip = prefix;
  for (size_t i = 0; i < n; i++) {
    if (ids[i] < 0 || ids[i] >= t->v.n) continue;
    bool boundary = hidden(&t->v, ids[i]) || t->v.type[ids[i]] == TOKEN_USER_DEFINED;
    size_t before = out->n;
    tokenizer_piece(t, ids[i], out, special);
    if (boundary) { strip = prefix; continue; }
    if (strip && out->n > before && out->at[before] == ' ') {
      memmove(out->at + before, out->at + before + 1, out->n - before);   // the NUL after the text moves too
      out->n--;
    }
    strip = false;
  }
}
