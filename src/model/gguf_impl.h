// gguf_impl: private to the gguf_*.c files: the structs of gguf.h and the steps of opening.
#ifndef WEFT_GGUF_IMPL_H
#define WEFT_GGUF_IMPL_H
#include "base/mapped.h"
#include "model/gguf.h"

// One file after validation.
typedef struct gguf_file {
  gguf_shard shard;             // the public part
  const char *shown;            // its path for messages: only the end of it if it is very long
  bool head;                    // bytes of tensors may be missing
  uint64_t at;                  // where it begins in its file: after the program, if it was exported
  int fd;                       // kept for gguf_check_size; -1: the caller's memory
  mapped *mapping;              // NULL: the caller's memory
  unsigned char *image;         // what a folder became (hf.h): owned; else NULL
  char *names;                  // hf_key_names, owned; NULL: keys have no other names
  gguf_kv *kv;                  // in the order of the file
  size_t n_kv;
  const gguf_kv **by_key;       // sorted by key
  gguf_tensor *tensors;         // in the order of the file
} gguf_file;

struct gguf {
  arena *arena;                 // owns everything in this struct
  gguf_file *files;
  size_t n_files;
  const gguf_tensor **tensors;  // all of them, in the order of the files
  const gguf_tensor **by_name;  // sorted by name
  size_t n_tensors;
  bool head;                    // bytes of tensors may be missing
  uint64_t tensor_bytes, n_params, file_bytes;
  gguf *joined;                 // owns the last files (gguf_join); NULL: none
};

// gguf_parse.c: checks the bytes f->shard.map[0..size) and fills in the rest of f from arena a.
int gguf_parse(gguf_file *f, uint32_t shard, arena *a, error *err);
const gguf_value *gguf_file_find(const gguf_file *f, const char *key);
// NULL: no such type
const struct gguf_type_info { const char *name; uint32_t bytes; } *gguf_type_info(uint32_t type);
gguf_value gguf_decode(enum gguf_type type, const unsigned char *p);     // a number or BOOL from its bytes
// The value of any integer type as sign and magnitude. False: not an integer.
bool gguf_value_int(const gguf_value *v, bool *negative, uint64_t *magnitude);
// Bytes of the UTF-8 character at p (n > 0 bytes are readable); 0 if it is not valid.
size_t gguf_utf8_char(const char *p, size_t n);
#endif
