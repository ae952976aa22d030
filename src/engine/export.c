// Exports programs that contain a model and its kernels: see include/weft/export.h. The plans are found by evaluating
// the model in all ways in which the commands do, without running any kernel.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/env.h"
#include "base/exported.h"
#include "base/newfile.h"
#include "base/str.h"
#include "device/kernel_set.h"
#include "engine/fail.h"
#include "engine/rows_version.h"
#include "model/gguf.h"

// ---- the plans of a model -------------------------------------------------------------------------------------------

typedef struct tour { weft_model *m; int context, chunk; int32_t *ids; float *vectors; weft_error *err; } tour;

static bool see_row(void *ctx, size_t i, const float *logits) {
  (void)ctx; (void)i; (void)logits;
  return true;
}

// Lengths around which plans change: one token, a few, a short chunk, the longest chunk, several chunks.
static size_t length_at(const tour *t, size_t i) {
  const int lengths[] = {1, 2, 3, 4, 5, 8, 9, 16, 63, 64, 65, t->chunk, t->chunk + 1, 2 * t->chunk + 7};
  return i < COUNT(lengths) ? (size_t)min_i64(lengths[i], t->context) : 0;
}

static int see_texts(tour *t) {
  const float *logits;
  size_t n;
  for (size_t i = 0; (n = length_at(t, i)); i++)
    if (weft_decode(t->m, t->ids, n, 0, &logits, t->err) || weft_decode(t->m, t->ids, n, 0, NULL, t->err) ||
        weft_decode_rows(t->m, t->ids, n, 0, 0, see_row, NULL, t->err))
      return -1;
  return 0;
}

static int see_vectors(tour *t) {
  static const enum weft_pooling poolings[] = {WEFT_POOLING_MODEL, WEFT_POOLING_NONE, WEFT_POOLING_MEAN,
                                               WEFT_POOLING_LAST};
  size_t n;
  for (size_t p = 0; p < COUNT(poolings); p++)
    for (size_t i = 0; (n = length_at(t, i)); i++)
      if (weft_embed(t->m, t->ids, n, poolings[p], t->vectors, t->err)) return -1;
  return 0;
}

enum { MOST_SEQUENCES = 17, MOST_ROWS = 16 };

// Steps of n sequences: the first one with a prompt, or with the rows of a draft.
static int see_step(tour *t, size_t n, size_t first, size_t rows) {
  weft_tokens parts[MOST_SEQUENCES] = {{0}};
  int status = 0;
  if (first + n > (size_t)t->chunk || first + n > (size_t)t->context) return 0;
  for (size_t i = 0; i < n && !status; i++) {
    parts[i] = (weft_tokens){.ids = t->ids, .n = i ? 1 : first, .rows = i ? 0 : rows, .unseen = false};
    status = weft_sequence_new(t->m, &parts[i].sequence, t->err);
  }
  if (!status) status = weft_step(t->m, parts, n, NULL, NULL, t->err);
  for (size_t i = 0; !status && i < n; i++) parts[i].unseen = i == 0;
  if (!status) status = weft_step(t->m, parts, n, NULL, NULL, t->err);
  for (size_t i = 0; i < n; i++) weft_sequence_free(parts[i].sequence);
  return status;
}

static int see_steps(tour *t) {
  static const size_t sequences[] = {1, 2, 3, 4, 5, 8, 9, 16, MOST_SEQUENCES};
  size_t n;
  for (size_t k = 0; k < COUNT(sequences); k++)
    for (size_t i = 0; (n = length_at(t, i)); i++)
      if (see_step(t, sequences[k], n, 0) || (n <= MOST_ROWS && see_step(t, sequences[k], n, n))) return -1;
  return 0;
}

static int see_plans(const char *model, weft_error *err) {
  tour t = {.err = err};
  // regardless of DEV: the exported program has no other device
  const weft_options o = {.size = sizeof o, .device = "CPU"};
  if (weft_model_open(model, &o, &t.m, err)) return -1;
  if (weft_model_has_source(t.m)) {
    weft_model_close(t.m);
    FAIL(err, "%s: kernels of models with an encoder and a decoder are not exported yet", model);
  }
  t.context = weft_model_context(t.m);
  t.chunk = weft_model_chunk(t.m);
  size_t longest = 2 * (size_t)t.chunk + 64;
  t.ids = xcalloc(longest, sizeof *t.ids);
  t.vectors = xcalloc(longest * (size_t)weft_model_embedding_size(t.m), sizeof *t.vectors);
  int status = weft_model_only_embeds(t.m) ? see_vectors(&t) : see_texts(&t) || see_vectors(&t) || see_steps(&t);
  weft_model_close(t.m);
  free(t.ids);
  free(t.vectors);
  return status ? -1 : 0;
}

int weft_export_kernels(const char *model, const char *cpu, void **kernels, size_t *n, weft_error *err) {
  kernel_set_collect();
  env_set(ENV_WEFT_CPU, cpu);
  if (see_plans(model, err)) return -1;
  bytes packed;
  kernel_set_pack(cpu, &packed);
  *kernels = packed.at;
  *n = packed.n;
  return 0;
}

// ---- the file -------------------------------------------------------------------------------------------------------

typedef struct source { const char *path; int fd; const unsigned char *at; size_t n; } source;

static int map_source(source *s, error *err) {
  struct stat st;
  s->fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (s->fd < 0 || fstat(s->fd, &st)) return error_set(err, "%s: cannot be opened: %s", s->path, strerror(errno));
  if (!S_ISREG(st.st_mode) || !st.st_size) return error_set(err, "%s: is not a file with a program", s->path);
  void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, s->fd, 0);
  if (at == MAP_FAILED) return error_set(err, "%s: cannot be mapped: %s", s->path, strerror(errno));
  s->at = at;
  s->n = (size_t)st.st_size;
  return 0;
}

static void close_source(source *s) {
  if (s->at) munmap((void *)(uintptr_t)s->at, s->n);
  if (s->fd >= 0) close(s->fd);
}

// Checks that the program is a static ELF file built from the same sources: kernels are stored under their version.
static int check_program(const source *s, error *err) {
  const Elf64_Ehdr *h = (const void *)s->at;
  exported in;
  error why = {0};
  if (s->n < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_ident[EI_CLASS] != ELFCLASS64 ||
      h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phoff > s->n ||
      h->e_phnum > (s->n - h->e_phoff) / sizeof(Elf64_Phdr))
    return error_set(err, "%s: is not a program", s->path);
  for (unsigned i = 0; i < h->e_phnum; i++) {
    Elf64_Phdr p;
    memcpy(&p, s->at + h->e_phoff + i * sizeof p, sizeof p);
    if (p.p_type == PT_INTERP) return error_set(err, "%s: is not a static program", s->path);
  }
  if (!memmem(s->at, s->n, ROWS_VERSION, strlen(ROWS_VERSION)))
    return error_set(err, "%s: is made of other sources than this weft", s->path);
  if (exported_find(s->fd, s->n, &in, &why)) return error_set(err, "%s: carries a model already", s->path);
  return 0;
}

int weft_export_check(const char *program, const char *model, weft_error *err) {
  source s = {.path = program, .fd = -1};
  gguf *g = NULL;
  error e = {0};
  int status = map_source(&s, &e) || check_program(&s, &e) || gguf_open(model, &g, &e) ? -1 : 0;
  if (!status && gguf_n_shards(g) > 1)
    status = error_set(&e, "%s: is the first of %zu files; 'weft quantize %s OUT.gguf COPY' joins them", model,
                       gguf_n_shards(g), model);
  gguf_close(g);
  close_source(&s);
  return status ? fail(err, &e) : 0;
}

static int add_aligned(newfile *f, const void *at, size_t n, error *err) {
  static const unsigned char zeros[EXPORTED_ALIGN];
  size_t pad = (size_t)(round_up(n, EXPORTED_ALIGN) - n);
  return newfile_add(f, at, n, err) || newfile_add(f, zeros, pad, err) ? -1 : 0;
}

static int write_parts(newfile *f, const source *program, const gguf_shard *model, const void *kernels, size_t n,
                       error *err) {
  unsigned char trailer[EXPORTED_TRAILER];
  exported e = {.model_at = round_up(program->n, EXPORTED_ALIGN), .model_n = model->size, .kernels_n = n};
  e.kernels_at = e.model_at + round_up(model->size, EXPORTED_ALIGN);
  exported_trailer(&e, trailer);
  return add_aligned(f, program->at, program->n, err) || add_aligned(f, model->map, model->size, err) ||
             add_aligned(f, kernels, n, err) || newfile_add(f, trailer, sizeof trailer, err)
           ? -1
           : 0;
}

int weft_export_write(const char *program, const char *model, const void *kernels, size_t n, const char *out,
                      weft_error *err) {
  source s = {.path = program, .fd = -1};
  gguf *g = NULL;
  newfile *f = NULL;
  error e = {0};
  if (weft_export_check(program, model, err)) return -1;
  int status = map_source(&s, &e) || gguf_open(model, &g, &e) ? -1 : 0;
  if (!status) status = newfile_open_program(out, &f, &e);
  if (!status && (write_parts(f, &s, gguf_shard_at(g, 0), kernels, n, &e) || gguf_check_size(g, &e))) status = -1;
  if (f && !status) status = newfile_commit(f, &e);
  else newfile_discard(f);
  gguf_close(g);
  close_source(&s);
  return status ? fail(err, &e) : 0;
}

// ---- the program ----------------------------------------------------------------------------------------------------

int weft_exported_use(const char *path, weft_error *err) {
  struct stat st;
  exported in;
  error e = {0}, why = {0};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), found = 0;
  // a program that can only be executed holds no model
  if (fd < 0 && errno != ENOENT && errno != EACCES) found = error_set(&why, "cannot be opened: %s", strerror(errno));
  if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode)) found = exported_find(fd, (uint64_t)st.st_size, &in, &why);
  if (found > 0) {
    void *at = mmap(NULL, in.kernels_n, PROT_READ, MAP_PRIVATE, fd, (off_t)in.kernels_at);
    if (at == MAP_FAILED) found = error_set(&why, "its kernels cannot be mapped: %s", strerror(errno));
    else if (kernel_set_use(at, in.kernels_n, &why)) found = -1;
  }
  if (fd >= 0) close(fd);
  if (found >= 0) return !found;
  error_set(&e, "%s: %s", path, why.text);
  return fail(err, &e);
}
