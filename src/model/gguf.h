// gguf: a GGUF file (version 2 or 3, one file or several) as an immutable description.
//
// A model file is untrusted input. gguf_open maps it read-only, and one validator (gguf_parse.c) reads the headers
// once, in checked arithmetic, into this description; no other code reads raw headers. After that every key, length,
// shape, offset and size that this interface gives is inside the mapping, aligned, and overlaps with nothing. What a
// key *means* is for the caller to check: the typed getters below turn a missing key, a wrong type or a value that does
// not fit into an error that names file, key and value.
//
// Invariant: a gguf never changes between gguf_open and gguf_close, so any number of threads may read it. All pointers
// that it returns are valid until gguf_close. Bytes under `data` pointers and string values are those of the mapping:
// their lengths cannot change, but their contents change if another process writes to the file. Look next: format.h
// (tensor types), gguf_parse.c (the validator), gguf_get.c (getters), gguf_print.c (printing).
#ifndef WEFT_GGUF_H
#define WEFT_GGUF_H
#include "base/arena.h"
#include "base/base.h"
#include "base/stamp.h"
#include "base/str.h"
#include "model/format.h"

// Limits, far above any real file; each refusal names its limit.
#define GGUF_MAX_KEYS    (1u << 16)     // keys of one file
#define GGUF_MAX_KEY     65535u         // bytes of a key
#define GGUF_MAX_TENSORS (1u << 20)     // tensors of one file
#define GGUF_MAX_NAME    63u            // bytes of a tensor's name (ggml keeps 64 with the NUL)
#define GGUF_MAX_DIMS    4u
#define GGUF_MAX_STRINGS (1u << 26)     // strings in all arrays of one file
#define GGUF_MAX_ALIGN   (1u << 24)     // general.alignment: a power of two from 8 to this
#define GGUF_MAX_SPLITS  9999u          // files of a split model

// Types of metadata values, numbered as in the file.
//     number, name, bytes (0: variable)
#define GGUF_TYPES(T) \
  T(0, UINT8, 1) T(1, INT8, 1) T(2, UINT16, 2) T(3, INT16, 2) T(4, UINT32, 4) T(5, INT32, 4) T(6, FLOAT32, 4) \
  T(7, BOOL, 1) T(8, STRING, 0) T(9, ARRAY, 0) T(10, UINT64, 8) T(11, INT64, 8) T(12, FLOAT64, 8)
enum gguf_type {
#define T(id, name, bytes) GGUF_##name = id,
  GGUF_TYPES(T)
#undef T
  GGUF_TYPE_COUNT
};
const char *gguf_type_name(enum gguf_type t);      // "UINT32"

// Bytes with a length and no terminator: a NUL may be among them.
typedef struct gguf_string { const char *at; size_t n; } gguf_string;

typedef struct gguf_value {
  enum gguf_type type;
  enum gguf_type elem;          // ARRAY: type of its elements, never ARRAY
  union {
    uint64_t u;                 // UINT8..UINT64
    int64_t i;                  // INT8..INT64
    double f;                   // FLOAT32, FLOAT64
    bool b;                     // BOOL
    gguf_string s;              // STRING
    struct gguf_array {
      size_t n;                 // elements
      const unsigned char *data;  // in the mapping, NOT aligned: read it through gguf_elem_* or gguf_*s
      const uint32_t *start;    // STRING elements: n + 1 offsets into data, for constant-time access; else NULL
    } a;
  };
} gguf_value;

typedef struct gguf_kv {
  const char *key;              // valid UTF-8 without NUL, terminated
  size_t key_len;
  gguf_value value;
} gguf_kv;

typedef struct gguf_tensor {
  const char *name;             // valid UTF-8 without NUL, terminated, at most GGUF_MAX_NAME bytes
  uint32_t n_dims;              // 1..4; the last one is not 1 unless it is the first
  uint32_t shard;               // which file of a split model
  int64_t ne[4];                // ne[0] is contiguous; >= 1, and 1 from n_dims on
  const struct format *format;  // never NULL; ne[0] is a multiple of format->block
  const void *data;             // in the mapping, aligned to the file's general.alignment (to a page at most)
  size_t nbytes;
  uint64_t offset;              // of data from the beginning of its file
} gguf_tensor;

typedef struct gguf_shard {
  const char *path;
  const unsigned char *map;     // the whole file
  size_t size;                  // its bytes
  uint64_t data_offset;         // where tensor data begins (size at most), and
  uint64_t data_end;            // where the last tensor ends; equal if there are no tensors
  uint32_t version, alignment;
  size_t n_tensors;
  stamp stamp;                  // when it was opened; in memory: zeros
} gguf_shard;

typedef struct gguf gguf;

// Opens, maps and checks a file. For a split model, path names the first file (X-00001-of-00003.gguf), and all are
// opened. A Hugging Face folder (hf.h) becomes a file in memory. Returns 0 and *out, for gguf_close; or -1 and the
// reason in *err.
int gguf_open(const char *path, gguf **out, error *err);
// gguf_open for a file in memory, aligned to 16 bytes, which stays there until gguf_close; name is used in messages.
int gguf_open_memory(const void *data, size_t n, const char *name, gguf **out, error *err);
// gguf_open if only the description is needed: the bytes of tensors may be missing, as in a file that is truncated
// after its header. `data` of tensors whose bytes are missing is NULL.
int gguf_open_head(const char *path, gguf **out, error *err);
// hf_key_names, owned by g from now on: messages about a key name config.json's, too.
void gguf_take_names(gguf *g, char *names);
bool gguf_in_memory(const gguf *g);                         // the caller's memory, not a mapped file
void gguf_close(gguf *g);                                   // NULL is fine
// Adds the files of `other` and their tensors, whose names get a prefix, after those of g; keys stay those of g. g owns
// `other` from here on, also if it fails. Indices of g's tensors do not change.
int gguf_join(gguf *g, gguf *other, const char *prefix, error *err);
// Whether the files still have the size that they were mapped with, and all that was read of them was there
// (base/mapped.h: missing bytes read as zeros). Returns 0, or -1 and which file shrank from what to what. Call it after
// reading everything that an answer depends on.
int gguf_check_size(const gguf *g, error *err);
// gguf_check_size, and whether a file was changed otherwise since it was opened (base/stamp.h); for several files, the
// worst change.
int gguf_check(const gguf *g, enum stamp_change *change, error *err);
// The current stamp of one file. -1: it cannot be read.
int gguf_stamp(const gguf *g, size_t shard, stamp *now, error *err);
// Reads bytes at `at` from the file itself, not through the mapping. -1: they are missing or cannot be read.
int gguf_read(const gguf *g, size_t shard, uint64_t at, void *to, size_t n, error *err);
bool gguf_is_on_disk(const gguf *g);                        // false: converted from others, or in memory
// For files larger than memory: reads bytes of a tensor from `at` on from the file without keeping them in memory. Call
// gguf_reads_pieces first. -1: they cannot be read.
void gguf_reads_pieces(const gguf *g);
int gguf_read_once(const gguf *g, const gguf_tensor *t, uint64_t at, void *to, size_t n, error *err);

// ---- Metadata (of a split model: that of its first file) ----
const char *gguf_path(const gguf *g);
size_t gguf_n_kv(const gguf *g);
const gguf_kv *gguf_kv_at(const gguf *g, size_t i);         // in the order of the file; i < gguf_n_kv
const gguf_value *gguf_find(const gguf *g, const char *key);   // NULL: no such key
// The index of a value from gguf_find: &gguf_kv_at(g, index)->value == v
size_t gguf_kv_index(const gguf *g, const gguf_value *v);

// Required values: -1 and an error if the key is missing, has another type or a value that does not fit. Integers are
// accepted from any integer type, floats from FLOAT32 or FLOAT64.
int gguf_u32(const gguf *g, const char *key, uint32_t *out, error *err);
int gguf_u64(const gguf *g, const char *key, uint64_t *out, error *err);
int gguf_i32(const gguf *g, const char *key, int32_t *out, error *err);
int gguf_i64(const gguf *g, const char *key, int64_t *out, error *err);
int gguf_f32(const gguf *g, const char *key, float *out, error *err);
int gguf_f64(const gguf *g, const char *key, double *out, error *err);
int gguf_bool(const gguf *g, const char *key, bool *out, error *err);
int gguf_str(const gguf *g, const char *key, gguf_string *out, error *err);
// Optional values: a missing key gives the fallback; a wrong type or value is still an error.
int gguf_u32_opt(const gguf *g, const char *key, uint32_t fallback, uint32_t *out, error *err);
int gguf_u64_opt(const gguf *g, const char *key, uint64_t fallback, uint64_t *out, error *err);
int gguf_i32_opt(const gguf *g, const char *key, int32_t fallback, int32_t *out, error *err);
int gguf_i64_opt(const gguf *g, const char *key, int64_t fallback, int64_t *out, error *err);
int gguf_f32_opt(const gguf *g, const char *key, float fallback, float *out, error *err);
int gguf_f64_opt(const gguf *g, const char *key, double fallback, double *out, error *err);
int gguf_bool_opt(const gguf *g, const char *key, bool fallback, bool *out, error *err);
// fallback NULL: {NULL, 0}
int gguf_str_opt(const gguf *g, const char *key, const char *fallback, gguf_string *out, error *err);

// Arrays of numbers, converted as above into an aligned array in the caller's arena; an error names the index.
int gguf_u32s(const gguf *g, const char *key, arena *a, const uint32_t **out, size_t *n, error *err);
int gguf_i32s(const gguf *g, const char *key, arena *a, const int32_t **out, size_t *n, error *err);
int gguf_f32s(const gguf *g, const char *key, arena *a, const float **out, size_t *n, error *err);
// These treat a missing key as no error: NULL and 0. An empty array does not give NULL.
int gguf_u32s_opt(const gguf *g, const char *key, arena *a, const uint32_t **out, size_t *n, error *err);
int gguf_i32s_opt(const gguf *g, const char *key, arena *a, const int32_t **out, size_t *n, error *err);
int gguf_f32s_opt(const gguf *g, const char *key, arena *a, const float **out, size_t *n, error *err);
// One number for each of n layers: an array of n, or a single number for all.
int gguf_u32_each(const gguf *g, const char *key, size_t n, uint32_t *out, error *err);
// An array of strings: nothing is copied, and gguf_elem_str finds any element in constant time. _opt: *out is NULL if
// the key is missing.
int gguf_strs(const gguf *g, const char *key, const gguf_value **out, error *err);
int gguf_strs_opt(const gguf *g, const char *key, const gguf_value **out, error *err);

// Element i < v->a.n of an array of the right element type (anything else dies).
gguf_string gguf_elem_str(const gguf_value *v, size_t i);
gguf_value gguf_elem(const gguf_value *v, size_t i);        // of any type, as a value of its own

// ---- Tensors (of all files, in the order of the files) ----
size_t gguf_n_tensors(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i);
const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name);   // NULL: no such tensor
// The index of a tensor of this file: gguf_tensor_at(g, index) == t
size_t gguf_tensor_index(const gguf *g, const gguf_tensor *t);
int gguf_by_name(const void *a, const void *b);             // for qsort of const gguf_tensor *
uint64_t gguf_tensor_bytes(const gguf *g);                  // sum of nbytes
uint64_t gguf_n_params(const gguf *g);                      // sum of elements
uint64_t gguf_file_bytes(const gguf *g);                    // sum of the sizes of the files
size_t gguf_n_shards(const gguf *g);
const gguf_shard *gguf_shard_at(const gguf *g, size_t i);

// ---- Changes ----
// gguf_set.c: "key=type:value" (type: int, float, bool, str) replaces the file's value or adds a key.
// "{arch}." at the beginning of a key stands for the architecture's name. Call it before keys are read: their indices
// may change.
int gguf_set_text(gguf *g, const char *asked, error *err);
// INT64, FLOAT64, BOOL or STRING, which points into `asked`
int gguf_parse_setting(const char *asked, size_t *key_len, gguf_value *out, error *err);

// ---- Messages and printing ----
// error_set with "FILE: key 'KEY': " in front, for callers that find a value wrong; key NULL: "FILE: ".
int gguf_fail(const gguf *g, const char *key, error *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
// Appends a value in readable form: numbers so that they read back, strings quoted and escaped, arrays as [a, b, ...].
// At most max_items elements of an array and 20 * max_items bytes of a string are shown, then the total count; 0: all.
void gguf_value_print(str *s, const gguf_value *v, size_t max_items);
void gguf_type_print(str *s, const gguf_value *v);          // "UINT32", "ARRAY of 128256 STRING"
// Untrusted bytes as text for a message: escaped where not printable UTF-8, cut to fit cap with "...". Returns out.
const char *gguf_quote(char *out, size_t cap, const char *bytes, size_t n);
#endif
