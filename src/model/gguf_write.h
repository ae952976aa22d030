// gguf_write: the head of a GGUF file (version 3): metadata, and the place of each tensor. Data follows it, in the
// order of the tensors, each padded to the alignment. The head is complete before any data, so that files are written
// in one pass.
#ifndef WEFT_GGUF_WRITE_H
#define WEFT_GGUF_WRITE_H
#include "model/gguf.h"

typedef struct gguf_head gguf_head;
gguf_head *gguf_head_new(uint32_t alignment);              // never NULL; gguf_head_free
void gguf_head_free(gguf_head *h);                         // NULL is fine
// Keys keep the order in which they were set; a key that is set again moves to the end.
void gguf_head_copy(gguf_head *h, const gguf_kv *kv);      // as it is in another file
void gguf_head_u16(gguf_head *h, const char *key, uint16_t v);
void gguf_head_u32(gguf_head *h, const char *key, uint32_t v);
void gguf_head_i32(gguf_head *h, const char *key, int32_t v);
void gguf_head_f32(gguf_head *h, const char *key, float v);
void gguf_head_bool(gguf_head *h, const char *key, bool v);
void gguf_head_str(gguf_head *h, const char *key, const char *v, size_t n);
void gguf_head_strs(gguf_head *h, const char *key, const char *const *v, size_t n);
void gguf_head_u8s(gguf_head *h, const char *key, const unsigned char *v, size_t n);
void gguf_head_i32s(gguf_head *h, const char *key, const int32_t *v, size_t n);
void gguf_head_u64s(gguf_head *h, const char *key, const uint64_t *v, size_t n);
void gguf_head_f32s(gguf_head *h, const char *key, const float *v, size_t n);
void gguf_head_bools(gguf_head *h, const char *key, const bool *v, size_t n);
void gguf_head_remove(gguf_head *h, const char *key);
// Appends a tensor. *nbytes: the size of its data, without padding. -1: its rows are not whole blocks, or the file
// would be too large.
int gguf_head_tensor(gguf_head *h, const char *name, uint32_t n_dims, const int64_t *ne, const struct format *f,
                     uint64_t *nbytes, error *err);
uint64_t gguf_head_padding(const gguf_head *h, uint64_t nbytes);       // zeros after this many bytes of data
uint64_t gguf_head_data(const gguf_head *h);                           // bytes of all data with padding
void gguf_head_bytes(const gguf_head *h, str *out);                    // the head itself, padded
#endif
