// Opens GGUF files: maps one, has it checked (gguf_parse.c) and, if it is the first of a split model, does the same
// with the others and checks that the parts belong together. Then it builds the index over all tensors; after that
// nothing changes until gguf_close. Look next: gguf_parse.c, the validator; gguf_get.c, the typed getters.
#define _GNU_SOURCE
#include "model/gguf_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/os.h"
#include "base/exported.h"
#include "base/inuse.h"
#include "base/newfile.h"
#include "base/plain.h"
#include "model/hf.h"

// ---- One file ----

static void name_file(gguf_file *f, arena *a, const char *path) {
  size_t n = strlen(path), limit = 300;             // a longer path would leave no room for the message itself
  f->shard.path = arena_strdup(a, path);
  f->shown = n <= limit ? f->shard.path : arena_printf(a, "...%s", path + n - limit);
  f->fd = -1;
}

// A Hugging Face folder becomes a file in memory.
static bool path_is_folder(const char *path) {
  struct stat st;
  return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int map_folder(gguf_file *f, error *err) {
  size_t n;
  struct stat st;
  char *config = NULL;
  bool there = asprintf(&config, "%s/config.json", f->shard.path) > 0 && !stat(config, &st);
  free(config);
  if (!there && !newfile_is_partial(f->shard.path))
    return error_set(err, "%s: is a directory, not a GGUF file, and has no config.json", f->shown);
  if (hf_image(f->shard.path, &f->image, &n, &f->shard.stamp, &f->names, err)) return -1;
  f->shard.map = f->image;
  f->shard.size = n;
  return 0;
}

// Maps the whole file. O_NONBLOCK: opening a pipe must not wait for a writer.
static int map_file(gguf_file *f, error *err) {
  struct stat st;
  f->fd = open(f->shard.path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (f->fd < 0) return error_set(err, "%s: cannot be opened: %s", f->shown, strerror(errno));
  if (fstat(f->fd, &st)) return error_set(err, "%s: cannot be examined: %s", f->shown, strerror(errno));
  if (!S_ISREG(st.st_mode)) return error_set(err, "%s: is not a regular file", f->shown);
  if (!st.st_size) return error_set(err, "%s: the file is empty, not a GGUF file", f->shown);
  size_t size = (size_t)st.st_size;
  inuse_note(f, f->fd);
  f->mapping = mapped_open(f->fd, size);
  if (!f->mapping) return error_set(err, "%s: its %zu bytes cannot be mapped: %s", f->shown, size, strerror(errno));
  exported in = {.model_n = size};
  error why = {0};
  if (exported_find(f->fd, size, &in, &why) < 0) return error_set(err, "%s: %s", f->shown, why.text);
  f->at = in.model_at;
  f->shard.map = mapped_bytes(f->mapping) + in.model_at;
  f->shard.size = in.model_n;
  f->shard.stamp = stamp_of(&st);
  return 0;
}

static void close_file(gguf_file *f) {
  hf_image_free(f->image, f->shard.size);
  free(f->names);
  if (f->fd < 0) return;
  mapped_close(f->mapping);
  inuse_drop(f);
  close(f->fd);
}

int gguf_check(const gguf *g, enum stamp_change *change, error *err) {
  *change = STAMP_SAME;
  for (size_t i = 0; i < g->n_files; i++) {
    const gguf_file *f = &g->files[i];
    struct stat st;
    if (!f->mapping) continue;
    if (fstat(f->fd, &st)) return error_set(err, "%s: cannot be examined: %s", f->shown, strerror(errno));
    if ((uint64_t)st.st_size < f->at + f->shard.size)
      return error_set(err, "%s: had %zu bytes when it was opened and has only %" PRId64 " now: it was cut",
                       f->shown, f->shard.size, (int64_t)st.st_size);
    if (!mapped_is_whole(f->mapping))
      return error_set(err, "%s: a part of it could not be read: it was cut for a while, or its disk failed",
                       f->shown);
    stamp now = stamp_of(&st);
    enum stamp_change moved = stamp_compare(&f->shard.stamp, &now);
    if (moved > *change) *change = moved;
  }
  return 0;
}

int gguf_check_size(const gguf *g, error *err) { return gguf_check(g, &(enum stamp_change){STAMP_SAME}, err); }

int gguf_stamp(const gguf *g, size_t shard, stamp *now, error *err) {
  struct stat st;
  const gguf_file *f = &g->files[shard];
  if (f->fd < 0) return error_set(err, "%s: is in memory, and no file says what it is", f->shown);
  if (fstat(f->fd, &st)) return error_set(err, "%s: cannot be examined: %s", f->shown, strerror(errno));
  *now = stamp_of(&st);
  return 0;
}

int gguf_read(const gguf *g, size_t shard, uint64_t at, void *to, size_t n, error *err) {
  const gguf_file *f = &g->files[shard];
  if (f->fd < 0) {
    if (at > f->shard.size || n > f->shard.size - at) return error_set(err, "%s: has no bytes there", f->shown);
    memcpy(to, f->shard.map + at, n);
    return 0;
  }
  for (size_t got = 0; got < n;) {
    ssize_t more = pread(f->fd, (char *)to + got, n - got, (off_t)(f->at + at + got));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0)
      return error_set(err, "%s: cannot be read: %s", f->shown, more ? strerror(errno) : "it was cut");
    got += (size_t)more;
  }
  return 0;
}

bool gguf_is_on_disk(const gguf *g) {
  for (size_t i = 0; i < g->n_files; i++) if (g->files[i].fd < 0) return false;
  return true;
}

void gguf_reads_pieces(const gguf *g) {
  for (size_t i = 0; i < g->n_files; i++) os_reads_pieces(g->files[i].fd);
}

int gguf_read_once(const gguf *g, const gguf_tensor *t, uint64_t at, void *to, size_t n, error *err) {
  const gguf_file *f = &g->files[t->shard];
  if (gguf_read(g, t->shard, t->offset + at, to, n, err)) return -1;
  os_forget_piece(f->fd, f->at + t->offset + at, n);
  return 0;
}

// ---- Split models ----

struct split {
  uint64_t no, count, tensors;      // split.no (from 0), split.count, split.tensors.count
};

// A number of the split.* keys, which every part must have.
static int split_key(const gguf_file *f, const char *key, uint64_t *out, error *err) {
  const gguf_value *v = gguf_file_find(f, key);
  bool negative;
  if (!v) return error_set(err, "%s: key '%s' is missing, though the file is part of a split model", f->shown, key);
  if (!gguf_value_int(v, &negative, out))
    return error_set(err, "%s: key '%s': expected an integer, found %s", f->shown, key, gguf_type_name(v->type));
  if (negative) return error_set(err, "%s: key '%s': -%" PRIu64 " is negative", f->shown, key, *out);
  return 0;
}

// What a file says about its place in a split model; a file without such keys is the only part.
static int read_split(const gguf_file *f, struct split *s, error *err) {
  *s = (struct split){0, 1, f->shard.n_tensors};
  if (!gguf_file_find(f, "split.count") && !gguf_file_find(f, "split.no")) return 0;
  if (split_key(f, "split.count", &s->count, err) || split_key(f, "split.no", &s->no, err)) return -1;
  if (!s->count || s->count > GGUF_MAX_SPLITS)
    return error_set(err, "%s: key 'split.count': %" PRIu64 " is not from 1 to %u", f->shown, s->count,
                     GGUF_MAX_SPLITS);
  if (s->no >= s->count)
    return error_set(err, "%s: key 'split.no': %" PRIu64 " is not less than split.count, %" PRIu64, f->shown, s->no,
                     s->count);
  if (s->count == 1 && !gguf_file_find(f, "split.tensors.count")) return 0;
  return split_key(f, "split.tensors.count", &s->tensors, err);
}

// PREFIX-00002-of-00003.gguf: bytes of the prefix, and the two numbers. False: the name does not have that form.
static bool parse_split_name(const char *path, size_t *prefix, uint64_t *no, uint64_t *count) {
  static const char form[] = "-#####-of-#####.gguf";
  size_t n = strlen(path), m = sizeof form - 1;
  uint64_t number[2] = {0, 0};
  if (n < m) return false;
  for (size_t i = 0, which = 0; i < m; i++) {
    char c = path[n - m + i];
    if (form[i] == 'o') which = 1;
    if (form[i] != '#' ? c != form[i] : c < '0' || c > '9') return false;
    if (form[i] == '#') number[which] = number[which] * 10 + (uint64_t)(c - '0');
  }
  *prefix = n - m;
  *no = number[0];
  *count = number[1];
  return true;
}

static const char *split_name(arena *a, const char *path, size_t prefix, uint64_t no, uint64_t count) {
  return arena_printf(a, "%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf", (int)prefix, path, no, count);
}

// Checks the first file's keys against its name; *prefix is what the names of all parts begin with.
static int check_first(gguf *g, const struct split *s, size_t *prefix, error *err) {
  const gguf_file *f = &g->files[0];
  uint64_t no, count;
  if (f->fd < 0)
    return error_set(err, "%s: key 'split.count': %" PRIu64 " files, but a split model cannot be opened from memory",
                     f->shown, s->count);
  if (!parse_split_name(f->shard.path, prefix, &no, &count))
    return error_set(err,
                     "%s: key 'split.count': %" PRIu64
                     " files, which are found by their names, but this one does not end in -%05" PRIu64 "-of-%05" PRIu64
                     ".gguf",
                     f->shown, s->count, s->no + 1, s->count);
  if (count != s->count)
    return error_set(err, "%s: the name says %" PRIu64 " files, but key 'split.count' says %" PRIu64, f->shown, count,
                     s->count);
  if (no != s->no + 1)
    return error_set(err,
                     "%s: the name says part %" PRIu64 ", but key 'split.no' says %" PRIu64 ", which is part %" PRIu64,
                     f->shown, no, s->no, s->no + 1);
  if (s->no)
    return error_set(
      err, "%s: key 'split.no': %" PRIu64 ", so this is part %" PRIu64 " of a split model: open its first file, %s",
      f->shown, s->no, no, split_name(g->arena, f->shard.path, *prefix, 1, count));
  return 0;
}

static int check_part(const gguf_file *f, const gguf_file *first, size_t i, const struct split *want, error *err) {
  struct split s;
  if (read_split(f, &s, err)) return -1;
  if (s.count != want->count)
    return error_set(err, "%s: key 'split.count': %" PRIu64 ", but %" PRIu64 " in %s", f->shown, s.count, want->count,
                     first->shown);
  if (s.no != i)
    return error_set(err,
                     "%s: key 'split.no': %" PRIu64 ", but the name makes it %zu: the parts are in the wrong order",
                     f->shown, s.no, i);
  if (s.tensors != want->tensors)
    return error_set(err, "%s: key 'split.tensors.count': %" PRIu64 ", but %" PRIu64 " in %s", f->shown, s.tensors,
                     want->tensors, first->shown);
  return 0;
}

// While parts are fetched, and if that ended early, they may be of two versions.
static int check_parts_whole(const gguf *g, error *err) {
  const gguf_file *first = &g->files[0];
  if (!newfile_is_partial(first->shard.path)) return 0;
  return error_set(err, "%s: the model's parts are not completely downloaded: 'weft pull' of its name goes on",
                   first->shown);
}

// Parts may be replaced one after the other by a newer version: none may be another file now than when it was opened.
static int check_parts_unchanged(const gguf *g, error *err) {
  if (g->n_files > 1 && check_parts_whole(g, err)) return -1;
  for (size_t i = 0; i < g->n_files && g->n_files > 1; i++) {
    const gguf_file *f = &g->files[i];
    struct stat st;
    bool there = !stat(f->shard.path, &st);
    stamp now = there ? stamp_of(&st) : (stamp){0};
    if (!there || stamp_compare(&f->shard.stamp, &now) == STAMP_WRITTEN)
      return error_set(err, "%s: was changed by another program while the model's parts were read", f->shown);
  }
  return 0;
}

// Opens the other parts, if there are any; the first file is open and checked.
static int open_parts(gguf *g, error *err) {
  struct split s;
  size_t prefix = 0;
  gguf_file first = g->files[0];
  if (read_split(&first, &s, err) ||
      (s.count > 1 && (check_first(g, &s, &prefix, err) || check_parts_whole(g, err))))
    return -1;
  if (s.count > 1) {
    g->files = ARENA_ARRAY(g->arena, gguf_file, s.count);
    g->files[0] = first;
  }
  for (size_t i = 1; i < s.count; i++) {
    gguf_file *f = &g->files[i];
    name_file(f, g->arena, split_name(g->arena, first.shard.path, prefix, i + 1, s.count));
    g->n_files = i + 1;
    f->head = g->head;
    if (map_file(f, err) || gguf_parse(f, (uint32_t)i, g->arena, err) || check_part(f, &first, i, &s, err)) return -1;
  }
  for (size_t i = 0; i < g->n_files; i++) g->n_tensors += g->files[i].shard.n_tensors;
  if (g->n_tensors != s.tensors)
    return error_set(err, "%s: key 'split.tensors.count': %" PRIu64 ", but the %zu files have %zu tensors", first.shown,
                     s.tensors, g->n_files, g->n_tensors);
  return check_parts_unchanged(g, err);
}

// ---- The index over all tensors ----

int gguf_by_name(const void *a, const void *b) {
  return strcmp((*(const gguf_tensor *const *)a)->name, (*(const gguf_tensor *const *)b)->name);
}

static int index_tensors(gguf *g, error *err) {
  size_t k = 0;
  g->file_bytes = g->tensor_bytes = g->n_params = 0;
  g->tensors = ARENA_ARRAY(g->arena, const gguf_tensor *, g->n_tensors);
  g->by_name = ARENA_ARRAY(g->arena, const gguf_tensor *, g->n_tensors);
  for (size_t i = 0; i < g->n_files; i++) {
    g->file_bytes += g->files[i].shard.size;
    for (size_t j = 0; j < g->files[i].shard.n_tensors; j++) {
      const gguf_tensor *t = g->tensors[k] = g->by_name[k] = &g->files[i].tensors[j];
      g->tensor_bytes += t->nbytes;
      g->n_params += (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
      k++;
    }
  }
  qsort(g->by_name, g->n_tensors, sizeof *g->by_name, gguf_by_name);
  for (size_t i = 1; i < g->n_tensors; i++) {
    const gguf_tensor *t = g->by_name[i], *before = g->by_name[i - 1];
    char quoted[128];
    if (strcmp(t->name, before->name)) continue;
    gguf_quote(quoted, sizeof quoted, t->name, strlen(t->name));
    if (t->shard == before->shard)
      return error_set(err, "%s: tensor '%s' stands in the file more than once", g->files[t->shard].shown, quoted);
    return error_set(err, "%s: tensor '%s' stands in %s, too", g->files[t->shard].shown, quoted,
                     g->files[before->shard].shown);
  }
  return 0;
}

// ---- Opening ----

static gguf *gguf_new(const char *name) {
  gguf *g = xcalloc(1, sizeof *g);
  g->arena = arena_new();
  g->files = ARENA_NEW(g->arena, gguf_file);
  g->n_files = 1;
  name_file(&g->files[0], g->arena, name);
  return g;
}

// From the mapped first file to the finished description; closes g if that fails.
static int finish_open(gguf *g, bool is_mapped, gguf **out, error *err) {
  error why = {0};
  if (is_mapped && !gguf_parse(&g->files[0], 0, g->arena, &why) && !open_parts(g, &why) && !index_tensors(g, &why) &&
      !gguf_check_size(g, &why)) {
    *out = g;
    return 0;
  }
  // For a truncated file, report that instead of what its zeros look like.
  if (is_mapped && !gguf_check_size(g, err)) error_set(err, "%s", why.text);
  gguf_close(g);
  return -1;
}

static int open_path(gguf *g, gguf **out, error *err) {
  gguf_file *f = &g->files[0];
  return finish_open(g, path_is_folder(f->shard.path) ? !map_folder(f, err) : !map_file(f, err), out, err);
}

int gguf_open(const char *path, gguf **out, error *err) {
  *out = NULL;
  gguf *g = gguf_new(path);
  return open_path(g, out, err);
}

int gguf_open_head(const char *path, gguf **out, error *err) {
  *out = NULL;
  gguf *g = gguf_new(path);
  g->head = g->files[0].head = true;
  return open_path(g, out, err);
}

int gguf_open_memory(const void *data, size_t n, const char *name, gguf **out, error *err) {
  *out = NULL;
  if (!data) return error_set(err, "%s: a model in memory at NULL", name);
  if ((uintptr_t)data % 16) return error_set(err, "%s: a model in memory must be aligned to 16 bytes", name);
  gguf *g = gguf_new(name);
  g->files[0].shard.map = data;
  g->files[0].shard.size = n;
  return finish_open(g, true, out, err);
}

// A file of `other` as the file of g with this number
static gguf_file joined_file(gguf *g, const gguf_file *f, uint32_t number, const char *prefix) {
  gguf_file to = *f;
  to.tensors = ARENA_ARRAY(g->arena, gguf_tensor, f->shard.n_tensors);
  for (size_t i = 0; i < f->shard.n_tensors; i++) {
    to.tensors[i] = f->tensors[i];
    to.tensors[i].shard = number;
    to.tensors[i].name = arena_printf(g->arena, "%s%s", prefix, f->tensors[i].name);
  }
  return to;
}

int gguf_join(gguf *g, gguf *other, const char *prefix, error *err) {
  die_if(g->joined, "gguf_join: a file was joined already");
  size_t own = g->n_files;
  gguf_file *files = ARENA_ARRAY(g->arena, gguf_file, own + other->n_files), *before = g->files;
  for (size_t i = 0; i < own; i++) {
    files[i] = before[i];
    inuse_move(&before[i], &files[i]);
  }
  for (size_t i = 0; i < other->n_files; i++)
    files[own + i] = joined_file(g, &other->files[i], (uint32_t)(own + i), prefix);
  g->files = files;
  g->n_files += other->n_files;
  g->n_tensors += other->n_tensors;
  g->joined = other;
  return index_tensors(g, err);
}

bool gguf_in_memory(const gguf *g) { return g->files[0].fd < 0; }

void gguf_close(gguf *g) {
  if (!g) return;
  size_t own = g->n_files - (g->joined ? g->joined->n_files : 0);
  for (size_t i = 0; i < own; i++) close_file(&g->files[i]);
  gguf_close(g->joined);
  arena_free(g->arena);
  free(g);
}

// ---- public interface ----

const char *gguf_path(const gguf *g) { return g->files[0].shard.path; }
size_t gguf_n_kv(const gguf *g) { return g->files[0].n_kv; }
const gguf_value *gguf_find(const gguf *g, const char *key) { return gguf_file_find(&g->files[0], key); }

size_t gguf_kv_index(const gguf *g, const gguf_value *v) {
  return (size_t)((const gguf_kv *)(const void *)((const char *)v - offsetof(gguf_kv, value)) - g->files[0].kv);
}

const gguf_kv *gguf_kv_at(const gguf *g, size_t i) {
  if (i >= g->files[0].n_kv) die("gguf: key %zu of %zu", i, g->files[0].n_kv);
  return &g->files[0].kv[i];
}

size_t gguf_n_tensors(const gguf *g) { return g->n_tensors; }
uint64_t gguf_tensor_bytes(const gguf *g) { return g->tensor_bytes; }
uint64_t gguf_n_params(const gguf *g) { return g->n_params; }
uint64_t gguf_file_bytes(const gguf *g) { return g->file_bytes; }
size_t gguf_n_shards(const gguf *g) { return g->n_files; }

const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i) {
  if (i >= g->n_tensors) die("gguf: tensor %zu of %zu", i, g->n_tensors);
  return g->tensors[i];
}

const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name) {
  size_t lo = 0, hi = g->n_tensors;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    int c = strcmp(name, g->by_name[mid]->name);
    if (!c) return g->by_name[mid];
    if (c < 0) hi = mid;
    else lo = mid + 1;
  }
  return NULL;
}

size_t gguf_tensor_index(const gguf *g, const gguf_tensor *t) {
  size_t before = 0;
  for (uint32_t i = 0; i < t->shard; i++) before += g->files[i].shard.n_tensors;
  return before + (size_t)(t - g->files[t->shard].tensors);
}

const gguf_shard *gguf_shard_at(const gguf *g, size_t i) {
  if (i >= g->n_files) die("gguf: file %zu of %zu", i, g->n_files);
  return &g->files[i].shard;
}

void gguf_take_names(gguf *g, char *names) {
  free(g->files[0].names);
  g->files[0].names = names;
}

// The name that config.json has for a key of a folder; NULL: none
static const char *name_in_folder(const gguf *g, const char *key) {
  for (const char *at = g->files[0].names; at && *at; at += strlen(at) + 1) {
    const char *name = at + strlen(at) + 1;
    if (!strcmp(at, key)) return name;
    at = name;
  }
  return NULL;
}

int gguf_fail(const gguf *g, const char *key, error *err, const char *fmt, ...) {
  char text[sizeof err->text], quoted[128] = "";
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (!key) return error_set(err, "%s: %s", g->files[0].shown, text);
  const char *name = name_in_folder(g, key);
  if (name) return error_set(err, "%s: key '%s' ('%s' in config.json): %s", g->files[0].shown, key, name, text);
  return error_set(err, "%s: key '%s': %s", g->files[0].shown, gguf_quote(quoted, sizeof quoted, key, strlen(key)),
                   text);
}
