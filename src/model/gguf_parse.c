// The validator: from the bytes of one GGUF file to its description, in one pass from front to back.
//
//   header:   "GGUF", version u32, tensor count u64, key count u64
//   keys:     key string, type u32, value       (string: length u64, bytes; array: element type u32, count u64,
//             elements)
//   tensors:  name string, dimensions u32, ne u64 each, type u32, offset u64 from the start of the data
//   padding to general.alignment, then the data
//
// Every step takes its bytes through take_bytes(), which compares a length with the remaining bytes before it moves the
// cursor: no length can reach past the end or wrap. A count is compared with the least number of bytes that its
// elements need before memory for them is allocated, so memory stays within a small multiple of the file's size. Keys
// and names are copied before they are examined, and lengths are read once: writing to the file afterwards can change
// contents, never bounds. There is no recursion. Duplicates are found by sorting, not by hashing, since names made to
// collide would slow down a hash table. Look next: gguf.c, which opens files and joins the parts of a split model.
#include "model/gguf_impl.h"
#include "base/plain.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_KV = 8 + 1 + 4 + 1, MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8 };     // bytes of the shortest key and tensor entry

struct reader {
  gguf_file *f;
  const unsigned char *at;      // the whole file,
  size_t n, pos;                // its bytes, and how many were taken
  uint64_t n_strings;           // in arrays, so far
  uint32_t shard;
  arena *arena;
  char about[160];              // what is being read, for messages: "key 'general.name'"
  error *err;
};

static void about(struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void about(struct reader *r, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(r->about, sizeof r->about, fmt, ap);
  va_end(ap);
}

static void about_name(struct reader *r, const char *what, const char *name, size_t n) {
  char quoted[128];
  about(r, "%s '%s'", what, gguf_quote(quoted, sizeof quoted, name, n));
}

static int reader_fail(struct reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int reader_fail(struct reader *r, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return error_set(r->err, "%s: %s: %s", r->f->shown, r->about, text);
}

// ---- The cursor ----

static size_t bytes_left(const struct reader *r) { return r->n - r->pos; }

// The next n bytes; `what` names them in the message.
static const unsigned char *take_bytes(struct reader *r, uint64_t n, const char *what) {
  if (n > bytes_left(r)) {
    reader_fail(r, "%s needs %" PRIu64 " bytes at byte %zu, but only %zu are left: the file is truncated or damaged",
                what, n, r->pos, bytes_left(r));
    return NULL;
  }
  const unsigned char *p = r->at + r->pos;
  r->pos += n;
  return p;
}

static uint16_t load16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t load32(const unsigned char *p) { return (uint32_t)load16(p) | (uint32_t)load16(p + 2) << 16; }
static uint64_t load64(const unsigned char *p) { return (uint64_t)load32(p) | (uint64_t)load32(p + 4) << 32; }

static int take32(struct reader *r, uint32_t *out, const char *what) {
  const unsigned char *p = take_bytes(r, 4, what);
  if (!p) return -1;
  *out = load32(p);
  return 0;
}

static int take64(struct reader *r, uint64_t *out, const char *what) {
  const unsigned char *p = take_bytes(r, 8, what);
  if (!p) return -1;
  *out = load64(p);
  return 0;
}

// ---- Types and numbers ----

const struct gguf_type_info *gguf_type_info(uint32_t type) {
  static const struct gguf_type_info info[] = {
#define T(id, name, bytes) [id] = {#name, bytes},
    GGUF_TYPES(T)
#undef T
  };
  return type < COUNT(info) ? &info[type] : NULL;
}

gguf_value gguf_decode(enum gguf_type type, const unsigned char *p) {
  gguf_value v = {.type = type, .elem = type};
  switch (type) {
  case GGUF_UINT8: v.u = p[0]; break;
  case GGUF_INT8: v.i = (int8_t)p[0]; break;
  case GGUF_UINT16: v.u = load16(p); break;
  case GGUF_INT16: v.i = (int16_t)load16(p); break;
  case GGUF_UINT32: v.u = load32(p); break;
  case GGUF_INT32: v.i = (int32_t)load32(p); break;
  case GGUF_UINT64: v.u = load64(p); break;
  case GGUF_INT64: v.i = (int64_t)load64(p); break;
  case GGUF_BOOL: v.b = p[0] != 0; break;
  case GGUF_FLOAT32: {
    uint32_t bits = load32(p);
    float f;
    memcpy(&f, &bits, sizeof f);
    v.f = (double)f;
    break;
  }
  case GGUF_FLOAT64: {
    uint64_t bits = load64(p);
    memcpy(&v.f, &bits, sizeof v.f);
    break;
  }
  default: die("gguf: decoding a value of type %d", (int)type);
  }
  return v;
}

size_t gguf_utf8_char(const char *s, size_t n) {
  const unsigned char *p = (const unsigned char *)s;
  if (p[0] < 0x80) return 1;
  size_t len = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
  if (!len || len > n) return 0;
  for (size_t i = 1; i < len; i++)
    if ((p[i] & 0xc0) != 0x80) return 0;
  // The second byte excludes overlong forms, surrogates, and code points above U+10FFFF.
  if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
      (p[0] == 0xf4 && p[1] > 0x8f))
    return 0;
  return len;
}

// A key or a tensor's name: copied, then checked to be text, neither empty nor longer than the limit. NULL on error.
static const char *take_name(struct reader *r, const char *what, size_t index, uint64_t limit, size_t *len) {
  about(r, "%s %zu", what, index);
  uint64_t n;
  if (take64(r, &n, "the length of its name")) return NULL;
  if (!n) { reader_fail(r, "its name is empty"); return NULL; }
  if (n > bytes_left(r) || n > limit) {
    size_t seen = n < bytes_left(r) ? n : bytes_left(r);
    about_name(r, what, (const char *)r->at + r->pos, seen < 40 ? seen : 40);       // the part of it that is there
    if (n > bytes_left(r)) take_bytes(r, n, "its name");                            // fails: for its message
    else reader_fail(r, "its name has %" PRIu64 " bytes, more than the limit of %" PRIu64, n, limit);
    return NULL;
  }
  const unsigned char *p = take_bytes(r, n, "its name");
  char *s = arena_strndup(r->arena, (const char *)p, n);
  about_name(r, what, s, n);
  for (size_t i = 0, c; i < n; i += c) {
    c = s[i] ? gguf_utf8_char(s + i, n - i) : 0;
    if (!c) {
      reader_fail(r, "its name is not UTF-8 text: byte %zu is 0x%02x", i, (unsigned)(unsigned char)s[i]);
      return NULL;
    }
  }
  *len = n;
  return s;
}

// ---- Keys and values ----

// Fills the table of the offsets of an array's strings; one walk checks the lengths and fills it.
static int take_strings(struct reader *r, uint64_t count, struct gguf_array *a) {
  r->n_strings += count;       // count was compared with the bytes left, so this cannot wrap
  if (r->n_strings > GGUF_MAX_STRINGS)
    return reader_fail(r, "array of %" PRIu64 " strings, more than the limit of %u in a file", count, GGUF_MAX_STRINGS);
  uint32_t *start = ARENA_ARRAY(r->arena, uint32_t, count + 1);
  size_t begin = r->pos;
  for (uint64_t i = 0; i < count; i++) {
    start[i] = (uint32_t)(r->pos - begin);
    uint64_t n = bytes_left(r) < 8 ? UINT64_MAX : load64(r->at + r->pos);
    if (bytes_left(r) < 8 || n > bytes_left(r) - 8) {  // fails: for its message
      char what[64];
      snprintf(what, sizeof what, "string %" PRIu64 " of %" PRIu64, i, count);
      if (!take64(r, &n, what)) take_bytes(r, n, what);
      return -1;
    }
    r->pos += 8 + n;
    if (r->pos - begin > UINT32_MAX)
      return reader_fail(r, "array of strings of more than %u bytes, the limit of one array", UINT32_MAX);
  }
  start[count] = (uint32_t)(r->pos - begin);
  *a = (struct gguf_array){.n = count, .data = r->at + begin, .start = start};
  return 0;
}

static int take_array(struct reader *r, gguf_value *v) {
  uint32_t type;
  uint64_t count, bytes;
  if (take32(r, &type, "the element type of its array") || take64(r, &count, "the length of its array")) return -1;
  const struct gguf_type_info *info = gguf_type_info(type);
  if (!info) return reader_fail(r, "array with elements of unknown type %" PRIu32, type);
  if (type == GGUF_ARRAY) return reader_fail(r, "array of %" PRIu64 " arrays: arrays do not nest", count);
  size_t least = info->bytes ? info->bytes : 8;       // a string has at least its length
  if (!mul_u64(count, least, &bytes) || bytes > bytes_left(r))
    return reader_fail(
      r, "array of %" PRIu64 " %s of %zu bytes or more, but only %zu bytes are left: the file is truncated or damaged",
      count, info->name, least, bytes_left(r));
  v->elem = (enum gguf_type)type;
  if (type == GGUF_STRING) return take_strings(r, count, &v->a);
  v->a = (struct gguf_array){.n = count, .data = take_bytes(r, bytes, "its array")};
  for (uint64_t i = 0; type == GGUF_BOOL && i < count; i++)
    if (v->a.data[i] > 1)
      return reader_fail(r, "element %" PRIu64 " is a BOOL of value %d, neither 0 nor 1", i, v->a.data[i]);
  return 0;
}

static int take_value(struct reader *r, gguf_value *v) {
  uint32_t type;
  if (take32(r, &type, "the type of its value")) return -1;
  const struct gguf_type_info *info = gguf_type_info(type);
  if (!info) return reader_fail(r, "unknown value type %" PRIu32, type);
  v->type = v->elem = (enum gguf_type)type;
  if (type == GGUF_ARRAY) return take_array(r, v);
  uint64_t n = info->bytes;
  if (type == GGUF_STRING && take64(r, &n, "the length of its string")) return -1;
  const unsigned char *p = take_bytes(r, n, "its value");
  if (!p) return -1;
  if (type == GGUF_STRING) { v->s = (gguf_string){(const char *)p, n}; return 0; }
  if (type == GGUF_BOOL && *p > 1) return reader_fail(r, "BOOL of value %d, neither 0 nor 1", *p);
  *v = gguf_decode(v->type, p);
  return 0;
}

static int compare_bytes(const char *a, size_t na, const char *b, size_t nb) {
  int c = memcmp(a, b, na < nb ? na : nb);
  return c ? c : (na > nb) - (na < nb);
}

static int compare_kv(const void *a, const void *b) {
  const gguf_kv *x = *(const gguf_kv *const *)a, *y = *(const gguf_kv *const *)b;
  return compare_bytes(x->key, x->key_len, y->key, y->key_len);
}

static int take_keys(struct reader *r) {
  gguf_file *f = r->f;
  f->kv = ARENA_ARRAY(r->arena, gguf_kv, f->n_kv);
  f->by_key = ARENA_ARRAY(r->arena, const gguf_kv *, f->n_kv);
  for (size_t i = 0; i < f->n_kv; i++) {
    gguf_kv *kv = &f->kv[i];
    f->by_key[i] = kv;
    kv->key = take_name(r, "key", i, GGUF_MAX_KEY, &kv->key_len);
    if (!kv->key || take_value(r, &kv->value)) return -1;
  }
  qsort(f->by_key, f->n_kv, sizeof *f->by_key, compare_kv);
  for (size_t i = 1; i < f->n_kv; i++)
    if (!compare_kv(&f->by_key[i - 1], &f->by_key[i])) {
      about_name(r, "key", f->by_key[i]->key, f->by_key[i]->key_len);
      return reader_fail(r, "stands in the file more than once");
    }
  return 0;
}

const gguf_value *gguf_file_find(const gguf_file *f, const char *key) {
  size_t n = strlen(key), lo = 0, hi = f->n_kv;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    int c = compare_bytes(key, n, f->by_key[mid]->key, f->by_key[mid]->key_len);
    if (!c) return &f->by_key[mid]->value;
    if (c < 0) hi = mid;
    else lo = mid + 1;
  }
  return NULL;
}

static int find_alignment(struct reader *r) {
  const gguf_value *v = gguf_file_find(r->f, "general.alignment");
  r->f->shard.alignment = 32;
  if (!v) return 0;
  about(r, "key 'general.alignment'");
  if (v->type != GGUF_UINT32) return reader_fail(r, "expected UINT32, found %s", gguf_type_name(v->type));
  if (v->u < 8 || v->u > GGUF_MAX_ALIGN || (v->u & (v->u - 1)))
    return reader_fail(r, "%" PRIu64 " is no power of two from 8 to %u", v->u, GGUF_MAX_ALIGN);
  r->f->shard.alignment = (uint32_t)v->u;
  return 0;
}

// ---- Tensors ----

// Shape and type of a tensor, which give its size in bytes.
static int take_shape(struct reader *r, gguf_tensor *t) {
  uint32_t type;
  uint64_t elements = 1, ne, bytes;
  if (take32(r, &t->n_dims, "its number of dimensions")) return -1;
  if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS)
    return reader_fail(r, "%" PRIu32 " dimensions, not 1 to %u", t->n_dims, GGUF_MAX_DIMS);
  for (uint32_t d = 0; d < GGUF_MAX_DIMS; d++) {
    t->ne[d] = 1;
    if (d >= t->n_dims) continue;
    if (take64(r, &ne, "its shape")) return -1;
    t->ne[d] = (int64_t)ne;
    if (t->ne[d] < 1) return reader_fail(r, "dimension %" PRIu32 " is %" PRId64 ", not positive", d, t->ne[d]);
    if (!mul_u64(elements, ne, &elements) || elements > INT64_MAX)
      return reader_fail(r, "dimension %" PRIu32 " is %" PRIu64 ": more elements in all than 2^63 - 1", d, ne);
  }
  // All readers of GGUF treat {36, 1} as {36}, so a matrix of one row has one dimension.
  while (t->n_dims > 1 && t->ne[t->n_dims - 1] == 1) t->n_dims--;
  if (take32(r, &type, "its type")) return -1;
  t->format = format_by_id(type);
  if (!t->format && format_removed_name(type))
    return reader_fail(r, "removed type %" PRIu32 " (%s): convert the model anew", type, format_removed_name(type));
  if (!t->format) return reader_fail(r, "unknown type %" PRIu32, type);
  if (t->ne[0] % t->format->block)
    return reader_fail(r, "rows of %" PRId64 " elements are not whole blocks of %s, which have %" PRIu32, t->ne[0],
                       t->format->name, t->format->block);
  if (t->ne[1] % t->format->rows)
    return reader_fail(r, "%" PRId64 " rows do not fit %s, which has %" PRIu32 " together", t->ne[1], t->format->name,
                       t->format->rows);
  if (!format_row_bytes(t->format, (uint64_t)t->ne[0], &bytes) ||
      !mul_u64(elements / (uint64_t)t->ne[0], bytes, &bytes) || bytes > INT64_MAX)
    return reader_fail(r, "%" PRIu64 " elements of %s are more than 2^63 - 1 bytes", elements, t->format->name);
  t->nbytes = bytes;
  return take64(r, &t->offset, "its offset");
}

// From the offset in the file, counted from the start of the data, to a place in the mapping.
static int place_tensor(struct reader *r, gguf_tensor *t) {
  const gguf_shard *s = &r->f->shard;
  uint64_t room = s->size - s->data_offset;
  about_name(r, "tensor", t->name, strlen(t->name));
  if (t->offset % s->alignment)
    return reader_fail(r, "its offset %" PRIu64 " is no multiple of the alignment, %" PRIu32, t->offset, s->alignment);
  bool missing = t->offset > room || t->nbytes > room - t->offset;
  if (missing && r->f->head && t->offset < INT64_MAX / 2 && t->nbytes < INT64_MAX / 2) {
    t->offset += s->data_offset;
    return 0;
  }
  if (missing)
    return reader_fail(r,
                       "%zu bytes at offset %" PRIu64 " of the data reach past its end (%" PRIu64
                       " bytes): the file is truncated or damaged",
                       t->nbytes, t->offset, room);
  t->offset += s->data_offset;
  t->data = s->map + t->offset;
  return 0;
}

static int compare_offset(const void *a, const void *b) {
  const gguf_tensor *x = *(const gguf_tensor *const *)a, *y = *(const gguf_tensor *const *)b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

static int refuse_overlaps(struct reader *r) {
  gguf_shard *s = &r->f->shard;
  const gguf_tensor **order = xcalloc(s->n_tensors, sizeof *order);
  int rc = 0;
  for (size_t i = 0; i < s->n_tensors; i++) order[i] = &r->f->tensors[i];
  qsort(order, s->n_tensors, sizeof *order, compare_offset);
  s->data_end = s->data_offset;
  for (size_t i = 0; i < s->n_tensors && !rc; i++) {
    if (order[i]->offset < s->data_end) {
      char quoted[128];
      about_name(r, "tensor", order[i]->name, strlen(order[i]->name));
      rc = reader_fail(r, "its data at byte %" PRIu64 " overlaps that of tensor '%s', which ends at byte %" PRIu64,
                       order[i]->offset,
                       gguf_quote(quoted, sizeof quoted, order[i - 1]->name, strlen(order[i - 1]->name)), s->data_end);
    }
    s->data_end = order[i]->offset + order[i]->nbytes;
  }
  free(order);
  return rc;
}

static int take_tensors(struct reader *r) {
  gguf_shard *s = &r->f->shard;
  gguf_tensor *t = r->f->tensors = ARENA_ARRAY(r->arena, gguf_tensor, s->n_tensors);
  for (size_t i = 0, len; i < s->n_tensors; i++) {
    t[i].shard = r->shard;
    t[i].name = take_name(r, "tensor", i, GGUF_MAX_NAME, &len);
    if (!t[i].name || take_shape(r, &t[i])) return -1;
  }
  // A file without tensors may end before the padding; in any other, a tensor would reach past the end.
  size_t padded = round_up(r->pos, s->alignment);
  s->data_offset = padded < s->size ? padded : s->size;
  for (size_t i = 0; i < s->n_tensors; i++)
    if (place_tensor(r, &t[i])) return -1;
  return refuse_overlaps(r);
}

// ---- The header ----

static int check_magic(struct reader *r) {
  static const char *const older[] = {"ggml", "ggmf", "ggjt", "ggla"};
  char quoted[64];
  if (!r->n) return reader_fail(r, "the file is empty");
  const char *magic = (const char *)take_bytes(r, r->n < 4 ? r->n : 4, "the magic");
  if (r->n >= 4 && !memcmp(magic, "GGUF", 4)) return 0;
  if (r->n < 4) return reader_fail(r, "not a GGUF file: it has %zu bytes", r->n);
  if (!memcmp(magic, "FUGG", 4)) return reader_fail(r, "a byte-swapped (big-endian) GGUF file, which is not supported");
  for (size_t i = 0; i < COUNT(older); i++)       // file versions are little-endian, so these appear byte-swapped
    if (magic[0] == older[i][3] && magic[1] == older[i][2] && magic[2] == older[i][1] && magic[3] == older[i][0])
      return reader_fail(r, "a model in the format '%s', which came before GGUF and is not supported", older[i]);
  return reader_fail(r, "not a GGUF file: it begins with '%s' instead of 'GGUF'",
                     gguf_quote(quoted, sizeof quoted, magic, 4));
}

static int check_version(struct reader *r, uint32_t v) {
  r->f->shard.version = v;
  if (v == 2 || v == 3) return 0;
  uint32_t swapped = __builtin_bswap32(v);
  if (swapped >= 1 && swapped <= 3)
    return reader_fail(r, "version %" PRIu32 " in big-endian order: byte-swapped files are not supported", swapped);
  if (v == 1) return reader_fail(r, "version 1 is too old: versions 2 and 3 are supported; convert the model anew");
  return reader_fail(r, "version %" PRIu32 " is %s: versions 2 and 3 are supported", v, v ? "unknown" : "invalid");
}

static int check_counts(struct reader *r, uint64_t n_tensors, uint64_t n_kv) {
  static const char cut[] = "the file is truncated or damaged";
  if (n_kv > bytes_left(r) / MIN_KV)
    return reader_fail(r, "%" PRIu64 " keys do not fit in the %zu bytes that follow: %s", n_kv, bytes_left(r), cut);
  if (n_kv > GGUF_MAX_KEYS) return reader_fail(r, "%" PRIu64 " keys, more than the limit of %u", n_kv, GGUF_MAX_KEYS);
  if (n_tensors > (bytes_left(r) - n_kv * MIN_KV) / MIN_TENSOR)
    return reader_fail(r, "%" PRIu64 " tensors do not fit in the %zu bytes that follow: %s", n_tensors, bytes_left(r),
                       cut);
  if (n_tensors > GGUF_MAX_TENSORS)
    return reader_fail(r, "%" PRIu64 " tensors, more than the limit of %u", n_tensors, GGUF_MAX_TENSORS);
  r->f->shard.n_tensors = n_tensors;
  r->f->n_kv = n_kv;
  return 0;
}

int gguf_parse(gguf_file *f, uint32_t shard, arena *a, error *err) {
  struct reader r = {
    .f = f, .at = f->shard.map, .n = f->shard.size, .shard = shard, .arena = a, .about = "header", .err = err};
  uint32_t version;
  uint64_t n_tensors, n_kv;
  if (check_magic(&r)) return -1;
  if (take32(&r, &version, "the version") || check_version(&r, version)) return -1;
  if (take64(&r, &n_tensors, "the number of tensors") || take64(&r, &n_kv, "the number of keys") ||
      check_counts(&r, n_tensors, n_kv))
    return -1;
  if (take_keys(&r)) return -1;
  if (find_alignment(&r)) return -1;
  return take_tensors(&r);
}
