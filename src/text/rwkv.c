// RWKV's tokenizer: see rwkv.h.
#include "text/rwkv.h"
#include <stdlib.h>
#include <string.h>

void rwkv_unescape(text_view t, str *out) {
  for (size_t i = 0; i < t.n; i++) {
    if (t.at[i] != '\\' || i + 1 == t.n) { str_addc(out, t.at[i]); continue; }
    char c = t.at[++i];
    int hi = c == 'x' && t.n - i > 2 ? hex_value(t.at[i + 1]) : -1, lo = hi >= 0 ? hex_value(t.at[i + 2]) : -1;
    if (lo >= 0) { str_addc(out, (char)(hi << 4 | lo)); i += 2; }
    else str_addc(out, c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c);
  }
}

int rwkv_init(rwkv *r, const vocab *v, arena *mem, error *err) {
  *r = (rwkv){.v = v};
  trie_item *items = xmalloc(((size_t)v->n + 1) * sizeof *items);
  str plain = {0};
  size_t n = 0;
  for (int32_t id = 0; id < v->n; id++) {
    if (!vocab_merges_to(v, id)) continue;
    plain.n = 0;
    rwkv_unescape(v->token[id], &plain);
    items[n++] = (trie_item){{arena_strndup(mem, str_c(&plain), plain.n), plain.n}, id};
  }
  int bad = trie_build(&r->tokens, items, n, mem, err);
  str_free(&plain);
  free(items);
  return bad;
}

int rwkv_encode(const rwkv *r, const char *text, size_t n, bool open, size_t *settled, trie_cost *cost, token_list *out,
                error *err) {
  cost->bytes += n;
  for (size_t at = *settled = 0; at < n; *settled = at) {
    int32_t id = -1;
    size_t length = 1, i = at;
    uint32_t node = 0;
    for (; i < n && (node = trie_step(&r->tokens, node, (unsigned char)text[i])); i++)
      if (r->tokens.node[node].value >= 0) { id = r->tokens.node[node].value; length = i + 1 - at; }
    cost->steps += i - at;
    if (trie_too_costly(cost)) return trie_refuse(r->v->source, err);
    if (i == n && open) return 0;
    if (id < 0) id = vocab_unknown(r->v);
    if (id < 0) return vocab_no_token(r->v, text + at, 1, err);
    vec_push(out, id);
    at += length;
  }
  return 0;
}
