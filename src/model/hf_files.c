// Reads the files of a folder: JSON within bounds, and safetensors, whose header is JSON with the names, types, shapes
// and byte ranges of tensors. The header is untrusted: sizes are computed from shapes, tensors must be within the file
// and must not overlap, and no name may lead out of the folder.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/account.h"
#include "base/inuse.h"
#include "base/json.h"
#include "base/newfile.h"
#include "base/plain.h"
#include "model/hf_impl.h"

enum { HEAD_MOST = 100 << 20, FILES_MOST = 4096, JSON_MOST = 256 << 20 };
static const size_t values_room = (size_t)1 << 30;         // maximum memory for the values of one JSON file

const char *hf_path(const hf *h, const char *name) { return arena_printf(h->arena, "%s/%s", h->shown, name); }

int hf_fail(const hf *h, const char *file, const char *key, error *err, const char *fmt, ...) {
  char text[sizeof err->text], quoted[128] = "";
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (!key) return error_set(err, "%s/%s: %s", h->shown, file, text);
  return error_set(err, "%s/%s: key '%s': %s", h->shown, file, gguf_quote(quoted, sizeof quoted, key, strlen(key)),
                   text);
}

// ---- names ----------------------------------------------------------------------------------------------------------

bool hf_ends_in(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n >= m && !strcmp(name + n - m, end);
}

static const char index_name[] = "model.safetensors.index.json", weights_ending[] = ".safetensors";

bool hf_reads(const char *name) {
  static const char *const names[] = {
    "config.json", index_name, "generation_config.json", "hf_quant_config.json", "modules.json", "added_tokens.json",
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
    "tiktoken.model", "hy.tiktoken", "qwen.tiktoken", "rwkv_vocab_v20230424.txt", "chat_template.jinja"};
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  for (size_t i = 0; i < COUNT(names); i++) if (!strcmp(name, names[i])) return true;
  size_t n = strspn(name, letters);
  bool plain = *name != '.' && n < 200;
  if (!name[n]) return plain && hf_ends_in(name, weights_ending);
  // the one folder of sentence-transformers that has facts: 1_Pooling
  return plain && n > 8 && !strncmp(name + n - 8, "_Pooling", 8) && !strcmp(name + n, "/config.json");
}

// ---- JSON and text files --------------------------------------------------------------------------------------------

// O_NONBLOCK: opening a pipe must not wait for a writer.
static int open_in_folder(const hf *h, const char *name, struct stat *st, int *fd, error *err) {
  char *path = arena_printf(h->arena, "%s/%s", h->dir, name);
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (*fd < 0) return hf_fail(h, name, NULL, err, "cannot be opened: %s", strerror(errno));
  inuse_note(h, *fd);
  if (!fstat(*fd, st) && S_ISREG(st->st_mode)) {
    vec_push(h->seen, ((hf_seen){.name = arena_strdup(h->arena, name), .stamp = stamp_of(st)}));
    return 0;
  }
  close(*fd);
  return hf_fail(h, name, NULL, err, "is not a regular file");
}

// Only a name that does not exist is absent. A link to nothing (left by a broken download) or to itself is an error at
// opening, also for optional files.
static bool folder_has(const hf *h, const char *name) {
  struct stat st;
  return !lstat(arena_printf(h->arena, "%s/%s", h->dir, name), &st) || errno != ENOENT;
}

int hf_text(const hf *h, const char *name, char **out, size_t *n, error *err) {
  struct stat st;
  int fd;
  *out = NULL;
  *n = 0;
  if (!folder_has(h, name)) {
    vec_push(h->seen, ((hf_seen){.name = arena_strdup(h->arena, name), .absent = true}));
    return 0;
  }
  if (open_in_folder(h, name, &st, &fd, err)) return -1;
  size_t size = st.st_size > JSON_MOST ? 0 : (size_t)st.st_size, got = 0;
  char *text = st.st_size > JSON_MOST ? NULL : malloc(size + 1);
  for (ssize_t more; text && got < size; got += (size_t)more)
    if ((more = read(fd, text + got, size - got)) <= 0) break;
  close(fd);
  if (!text && st.st_size <= JSON_MOST)
    return hf_fail(h, name, NULL, err, "there is no memory for its %zu bytes", size);
  if (!text)
    return hf_fail(h, name, NULL, err, "has %" PRId64 " bytes, more than the %d MB that are read", (int64_t)st.st_size,
                   JSON_MOST >> 20);
  if (got < size) {
    free(text);
    return hf_fail(h, name, NULL, err, "cannot be read as a whole");
  }
  text[size] = 0;
  *out = text;
  *n = size;
  return 0;
}

// Parses a value from n bytes, which Python may have written; a duplicate key is an error.
static int parse_value(const hf *h, const char *name, const char *text, size_t n, json_t **out, error *err) {
  str plain = json_from_python(text, n);
  if (plain.n) text = str_c(&plain), n = plain.n;
  size_t left = values_room, cost = json_cost(text, n);
  error why = {0};
  *out = NULL;
  if (!account_here() || !account_take_here(cost, &why)) {
    *out = json_read(text, n, JSON_REJECT_DUPLICATES, &left, &why);
    if (account_here()) account_give_here(cost);
  }
  str_free(&plain);
  return *out ? 0 : hf_fail(h, name, NULL, err, "%s", why.text);
}

static int parse_object(const hf *h, const char *name, const char *text, size_t n, json_t **out, error *err) {
  json_t *o;
  *out = NULL;
  if (parse_value(h, name, text, n, &o, err)) return -1;
  if (json_is_object(o)) {
    *out = o;
    return 0;
  }
  json_decref(o);
  return hf_fail(h, name, NULL, err, "is not a JSON object");
}

int hf_json(const hf *h, const char *name, bool needed, json_t **out, error *err) {
  char *text;
  size_t n;
  *out = NULL;
  if (hf_text(h, name, &text, &n, err)) return -1;
  if (!text) return needed ? hf_fail(h, name, NULL, err, "is missing") : 0;
  int status = parse_object(h, name, text, n, out, err);
  free(text);
  return status;
}

int hf_json_list(const hf *h, const char *name, json_t **out, error *err) {
  char *text;
  size_t n;
  *out = NULL;
  if (hf_text(h, name, &text, &n, err)) return -1;
  if (!text) { *out = json_array(); return 0; }
  int status = parse_value(h, name, text, n, out, err);
  free(text);
  if (status || json_is_array(*out)) return status;
  json_decref(*out);
  *out = NULL;
  return hf_fail(h, name, NULL, err, "is not a JSON list");
}

// ---- safetensors ----------------------------------------------------------------------------------------------------

static const struct dtype { const char *name; uint32_t bytes; const char *format; } dtypes[] = {
  {"F32", 4, "F32"}, {"F16", 2, "F16"}, {"BF16", 2, "BF16"}, {"F64", 8, NULL}, {"I64", 8, NULL}, {"I32", 4, NULL},
  {"I16", 2, NULL}, {"I8", 1, NULL}, {"U64", 8, NULL}, {"U32", 4, NULL}, {"U16", 2, NULL}, {"U8", 1, NULL},
  {"BOOL", 1, NULL}, {"F8_E4M3", 1, NULL}, {"F8_E5M2", 1, NULL}, {"F8_E8M0", 1, NULL},
};

static const struct dtype *dtype_of(const char *name) {
  for (size_t i = 0; name && i < COUNT(dtypes); i++) if (!strcmp(dtypes[i].name, name)) return &dtypes[i];
  return NULL;
}

// Reads an integer of an array; false: it is not one.
static bool nth_u64(const json_t *list, size_t i, uint64_t *out) {
  const json_t *v = json_array_get(list, i);
  if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
  *out = (uint64_t)json_integer_value(v);
  return true;
}

// Reads the header's entry of one tensor; file: its name in the folder.
static int read_source(hf *h, const char *file, const char *name, const json_t *said, hf_source *s, error *err) {
  const hf_file *f = &h->files.at[s->file];
  const char *dtype = json_string_value(json_object_get(said, "dtype"));
  const json_t *shape = json_object_get(said, "shape"), *offsets = json_object_get(said, "data_offsets");
  const struct dtype *d = dtype_of(dtype);
  uint64_t bytes, n;
  char quoted[128];
  if (!d)
    return hf_fail(h, file, name, err, "dtype '%s' is not one that is known",
                   dtype ? gguf_quote(quoted, sizeof quoted, dtype, strlen(dtype)) : "(none)");
  if (!json_is_array(shape) || json_array_size(shape) > HF_DIMS)
    return hf_fail(h, file, name, err, "its shape is not a list of at most %d numbers", HF_DIMS);
  s->n_dims = (uint32_t)json_array_size(shape);
  bytes = d->bytes;
  for (uint32_t i = 0; i < s->n_dims; i++) {
    if (!nth_u64(shape, i, &n) || n > INT64_MAX) return hf_fail(h, file, name, err, "its shape has what is no size");
    if (!mul_u64(bytes, n, &bytes)) return hf_fail(h, file, name, err, "its shape is larger than any file");
    s->shape[i] = (int64_t)n;
  }
  if (json_array_size(offsets) != 2 || !nth_u64(offsets, 0, &s->begin) || !nth_u64(offsets, 1, &s->end))
    return hf_fail(h, file, name, err, "its data_offsets are not two numbers");
  if (s->begin > s->end || s->end > f->size - f->data)
    return hf_fail(h, file, name, err, "its data_offsets, %" PRIu64 " and %" PRIu64 ", are not in the %" PRIu64
                   " bytes of data", s->begin, s->end, f->size - f->data);
  if (s->end - s->begin != bytes)
    return hf_fail(h, file, name, err, "%" PRIu64 " bytes of data, but shape and dtype %s make %" PRIu64,
                   s->end - s->begin, d->name, bytes);
  s->name = arena_strdup(h->arena, name);
  s->dtype = d->name;
  s->format = d->format ? format_by_name(d->format) : NULL;
  s->data = f->map + f->data + s->begin;
  return 0;
}

static int by_begin(const void *a, const void *b) {
  const hf_source *x = a, *y = b;
  return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

static int by_source_name(const void *a, const void *b) {
  return strcmp(((const hf_source *)a)->name, ((const hf_source *)b)->name);
}

// Reads the tensors of a file in the order of their names, like the converter.
static int read_sources(hf *h, const char *file, json_t *head, error *err) {
  size_t before = h->sources.n;
  const char *name;
  json_t *said;
  json_object_foreach(head, name, said) {
    hf_source s = {.file = h->files.n - 1};
    if (!strcmp(name, "__metadata__")) continue;
    if (h->sources.n >= GGUF_MAX_TENSORS) return hf_fail(h, file, NULL, err, "more than %u tensors", GGUF_MAX_TENSORS);
    if (!json_is_object(said)) return hf_fail(h, file, name, err, "is not an object");
    if (read_source(h, file, name, said, &s, err)) return -1;
    vec_push(&h->sources, s);
  }
  size_t n = h->sources.n - before;
  if (!n) return 0;
  hf_source *of = h->sources.at + before;
  qsort(of, n, sizeof *of, by_begin);
  for (size_t i = 1; i < n; i++)
    if (of[i].begin < of[i - 1].end)
      return hf_fail(h, file, of[i].name, err, "its data overlaps with that of '%.100s'", of[i - 1].name);
  qsort(of, n, sizeof *of, by_source_name);
  return 0;
}

static int open_safetensors(hf *h, const char *name, error *err) {
  struct stat st;
  hf_file f = {.fd = -1};
  uint64_t n;
  json_t *head;
  if (open_in_folder(h, name, &st, &f.fd, err)) return -1;
  f.name = arena_strdup(h->arena, name);
  f.shown = hf_path(h, name);
  f.size = (uint64_t)st.st_size;
  f.stamp = stamp_of(&st);
  if (f.size >= 8) f.mapping = mapped_open(f.fd, (size_t)f.size);
  vec_push(&h->files, f);
  if (f.size < 8) return hf_fail(h, name, NULL, err, "has %" PRIu64 " bytes: no safetensors file", f.size);
  if (!f.mapping) return hf_fail(h, name, NULL, err, "cannot be mapped: %s", strerror(errno));
  hf_file *at = &h->files.at[h->files.n - 1];
  at->map = mapped_bytes(f.mapping);
  memcpy(&n, at->map, sizeof n);
  if (n > HEAD_MOST || n > f.size - 8)
    return hf_fail(h, name, NULL, err, "a head of %" PRIu64 " bytes in a file of %" PRIu64 ": no safetensors file", n,
                   f.size);
  at->data = 8 + n;
  if (parse_object(h, name, (const char *)at->map + 8, (size_t)n, &head, err)) return -1;
  int status = read_sources(h, name, head, err);
  json_decref(head);
  return status;
}

// ---- which files ----------------------------------------------------------------------------------------------------

typedef VEC(const char *) names;

static int by_file_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_names(names *v) {
  size_t n = 0;
  if (v->n) qsort(v->at, v->n, sizeof *v->at, by_file_name);
  for (size_t i = 0; i < v->n; i++) if (!n || strcmp(v->at[n - 1], v->at[i])) v->at[n++] = v->at[i];
  v->n = n;
}

static int list_weights(const hf *h, names *out, error *err) {
  DIR *d = opendir(h->dir);
  if (!d) return error_set(err, "%s: cannot be read: %s", h->shown, strerror(errno));
  for (struct dirent *e; (e = readdir(d));)
    if (!strncmp(e->d_name, "model", 5) && hf_ends_in(e->d_name, weights_ending))
      vec_push(out, arena_strdup(h->arena, e->d_name));
  closedir(d);
  sort_names(out);
  return 0;
}

static int read_weight_map(const hf *h, const json_t *index, names *out, error *err) {
  const char *tensor;
  json_t *file, *weight_map = json_object_get(index, "weight_map");
  if (!json_is_object(weight_map)) return hf_fail(h, index_name, "weight_map", err, "is not an object");
  json_object_foreach(weight_map, tensor, file) {
    const char *name = json_string_value(file);
    char quoted[128];
    if (!name) return hf_fail(h, index_name, tensor, err, "is not the name of a file");
    if (!*name || *name == '.' || strchr(name, '/') || !hf_ends_in(name, weights_ending))
      return hf_fail(h, index_name, tensor, err, "'%s' is not a safetensors file of this folder",
                     gguf_quote(quoted, sizeof quoted, name, strlen(name)));
    vec_push(out, arena_strdup(h->arena, name));
  }
  sort_names(out);
  return 0;
}

// Checks that each tensor of the index is in the file that the index names, and that every tensor is in the index.
static int check_weight_map(const hf *h, json_t *weight_map, error *err) {
  const char *tensor;
  json_t *file;
  json_object_foreach(weight_map, tensor, file) {
    void *s;
    if (!smap_get(&h->by_name, tensor, strlen(tensor), &s))
      return hf_fail(h, index_name, tensor, err, "no such tensor is in %.200s", json_string_value(file));
    const hf_file *in = &h->files.at[((const hf_source *)s)->file];
    if (strcmp(in->name, json_string_value(file)))
      return hf_fail(h, index_name, tensor, err, "is in %.200s, not in %.200s", in->shown, json_string_value(file));
  }
  for (size_t i = 0; i < h->sources.n; i++)
    if (!json_object_get(weight_map, h->sources.at[i].name))
      return error_set(err, "%s: tensor '%.200s' is not named in %s", h->files.at[h->sources.at[i].file].shown,
                       h->sources.at[i].name, index_name);
  return 0;
}

static int index_sources(hf *h, error *err) {
  for (size_t i = 0; i < h->sources.n; i++) {
    hf_source *s = &h->sources.at[i];
    if (!smap_set(&h->by_name, s->name, strlen(s->name), s))
      return error_set(err, "%s: tensor '%.200s' stands in another file, too", h->files.at[s->file].shown, s->name);
  }
  return 0;
}

int hf_open_weights(hf *h, error *err) {
  names files = {0};
  json_t *index;
  if (hf_json(h, index_name, false, &index, err)) return -1;
  int status = index ? read_weight_map(h, index, &files, err) : list_weights(h, &files, err);
  if (!status && files.n > FILES_MOST) status = error_set(err, "%s: more than %d files", h->shown, FILES_MOST);
  if (!status && !files.n)
    status = error_set(err, "%s: there is no model*.safetensors (files of torch, .bin, are not read)", h->shown);
  for (size_t i = 0; i < files.n && !status; i++) status = open_safetensors(h, files.at[i], err);
  if (!status) status = index_sources(h, err);
  if (!status && index) status = check_weight_map(h, json_object_get(index, "weight_map"), err);
  json_decref(index);
  vec_free(&files);
  return status;
}

void hf_close_files(hf *h) {
  for (size_t i = 0; i < h->files.n; i++) {
    mapped_close(h->files.at[i].mapping);
    close(h->files.at[i].fd);
  }
  inuse_drop(h);
  vec_free(&h->files);
  vec_free(&h->sources);
  smap_free(&h->by_name);
}

int hf_check_whole(const hf *h, error *err) {
  if (!newfile_is_partial(h->dir)) return 0;
  return error_set(err, "%s: is not completely downloaded: 'weft pull' of the model's name goes on", h->shown);
}

int hf_check_unchanged(const hf *h, error *err) {
  for (size_t i = 0; i < h->seen->n; i++) {
    const hf_seen *s = &h->seen->at[i];
    struct stat st;
    bool there = !stat(arena_printf(h->arena, "%s/%s", h->dir, s->name), &st);
    stamp now = there ? stamp_of(&st) : (stamp){0};
    if (s->absent ? there : !there || stamp_compare(&s->stamp, &now) == STAMP_WRITTEN)
      return hf_fail(h, s->name, NULL, err, "was changed by another program while the folder was read");
  }
  return 0;
}

int hf_check(const hf *h, error *err) {
  for (size_t i = 0; i < h->files.n; i++) {
    const hf_file *f = &h->files.at[i];
    struct stat st;
    if (fstat(f->fd, &st)) return error_set(err, "%s: cannot be examined: %s", f->shown, strerror(errno));
    stamp now = stamp_of(&st);
    if ((uint64_t)st.st_size < f->size || !mapped_is_whole(f->mapping))
      return error_set(err, "%s: a part of it could not be read: it was cut", f->shown);
    if (stamp_compare(&f->stamp, &now) == STAMP_WRITTEN)
      return error_set(err, "%s: was written to while it was read", f->shown);
  }
  return 0;
}
