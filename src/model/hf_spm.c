// Reads tokenizer.model (T5: spiece.model; XLM-R: sentencepiece.bpe.model), a SentencePiece vocabulary in protocol
// buffers. The fields used are the pieces (1: text, score, type), the training settings (2: model type), and the
// normalizer (3: a table, spaces). A field begins with a number whose low three bits tell what follows: a varint, eight
// bytes, length-delimited bytes, or four bytes.
#include <string.h>
#include "model/gguf_impl.h"
#include "model/hf_impl.h"

enum { PIECES_MOST = 1 << 22, OF_UNIGRAM = 1, OF_BPE = 2 };

typedef struct wire { const unsigned char *at, *end; } wire;
typedef struct field { uint64_t number, value; wire bytes; } field;    // value: of a varint; bytes: of other fields

static bool read_varint(wire *w, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && w->at < w->end; shift += 7) {
    *out |= (uint64_t)(*w->at & 0x7f) << shift;
    if (!(*w->at++ & 0x80)) return true;
  }
  return false;
}

static bool read_wire_field(wire *w, field *f) {
  uint64_t tag, n = 0;
  if (!read_varint(w, &tag)) return false;
  f->number = tag >> 3;
  f->bytes = (wire){NULL, NULL};
  f->value = 0;
  switch (tag & 7) {
  case 0: return read_varint(w, &f->value);
  case 1: n = 8; break;
  case 2: if (!read_varint(w, &n)) return false; break;
  case 5: n = 4; break;
  default: return false;
  }
  if (n > (uint64_t)(w->end - w->at)) return false;
  f->bytes = (wire){w->at, w->at + n};
  w->at += n;
  return true;
}

// The text of a piece, valid UTF-8 without NUL. The piece that is NUL itself (InternLM2 has one) gets the converter's
// sign for it, U+1F409.
static const char *piece_text(const hf *h, wire w) {
  size_t n = (size_t)(w.end - w.at);
  if (n == 1 && !*w.at) return "\xF0\x9F\x90\x89";
  for (size_t i = 0, step; i < n; i += step)
    if (!w.at[i] || !(step = gguf_utf8_char((const char *)w.at + i, n - i))) return NULL;
  return n ? arena_strndup(h->arena, (const char *)w.at, n) : "";
}

static bool read_piece(const hf *h, wire w, const char **text, float *score, int32_t *kind) {
  field f;
  *text = "";
  *score = 0;
  *kind = 1;
  while (w.at < w.end) {
    if (!read_wire_field(&w, &f)) return false;
    if (f.number == 1 && !(*text = piece_text(h, f.bytes))) return false;
    if (f.number == 2) {
      if (f.bytes.end - f.bytes.at != 4) return false;
      memcpy(score, f.bytes.at, 4);
    }
    if (f.number == 3) {
      if (f.value < 1 || f.value > 6) return false;
      *kind = (int32_t)f.value;
    }
  }
  return true;
}

// The model type; 1, Unigram, if absent.
static uint64_t trained_as(wire w) {
  uint64_t kind = OF_UNIGRAM;
  for (field f; w.at < w.end && read_wire_field(&w, &f);) if (f.number == 3) kind = f.value;
  return kind;
}

static void read_normalizer(hf *h, wire w, hf_pieces *p) {
  for (field f; w.at < w.end && read_wire_field(&w, &f);) {
    if (f.number == 2 && f.bytes.at && f.bytes.end > f.bytes.at) {
      p->n_table = (size_t)(f.bytes.end - f.bytes.at);
      unsigned char *table = arena_alloc(h->arena, p->n_table);
      p->table = memcpy(table, f.bytes.at, p->n_table);
    }
    if (f.number == 3) p->space_before = f.value;
    if (f.number == 4) p->joins_spaces = f.value;
  }
}

static int read_pieces(hf *h, const char *spm_name, wire w, hf_pieces *p, error *err) {
  uint64_t kind = OF_UNIGRAM,
           must = h->class->vocab == HF_VOCAB_UNIGRAM || h->class->vocab == HF_VOCAB_XLMR ? OF_UNIGRAM : OF_BPE;
  size_t most = 0;
  field f;
  for (wire v = w; v.at < v.end && read_wire_field(&v, &f);) most += f.number == 1;
  if (!most || most > PIECES_MOST) return hf_fail(h, spm_name, NULL, err, "has %zu pieces: no vocabulary", most);
  *p = (hf_pieces){.text = ARENA_ARRAY(h->arena, const char *, most), .score = ARENA_ARRAY(h->arena, float, most),
                   .kind = ARENA_ARRAY(h->arena, int32_t, most), .space_before = true, .joins_spaces = true};
  while (w.at < w.end) {
    if (!read_wire_field(&w, &f)) return hf_fail(h, spm_name, NULL, err, "is cut or no message of SentencePiece");
    if (f.number == 2) kind = trained_as(f.bytes);
    if (f.number == 3) read_normalizer(h, f.bytes, p);
    if (f.number != 1) continue;
    if (!read_piece(h, f.bytes, &p->text[p->n], &p->score[p->n], &p->kind[p->n]))
      return hf_fail(h, spm_name, NULL, err, "piece %zu is damaged", p->n);
    p->n++;
  }
  return kind == must ? 0
                      : hf_fail(h, spm_name, NULL, err, "is not of %s, as vocabularies of %s are",
                                must == OF_BPE ? "BPE" : "Unigram", h->class->name);
}

int hf_read_pieces(hf *h, hf_pieces **out, error *err) {
  char *bytes;
  size_t n;
  *out = NULL;
  const char *spm_name = "tokenizer.model";
  if (hf_text(h, spm_name, &bytes, &n, err)) return -1;
  if (!bytes && h->class->vocab == HF_VOCAB_UNIGRAM && hf_text(h, spm_name = "spiece.model", &bytes, &n, err))
    return -1;
  if (!bytes && h->class->vocab == HF_VOCAB_XLMR && hf_text(h, spm_name = "sentencepiece.bpe.model", &bytes, &n, err))
    return -1;
  if (!bytes) return 0;
  hf_pieces *p = ARENA_NEW(h->arena, hf_pieces);
  const unsigned char *at = (const unsigned char *)bytes;
  int status = read_pieces(h, spm_name, (wire){at, at + n}, p, err);
  free(bytes);
  if (!status) *out = p;
  return status;
}
