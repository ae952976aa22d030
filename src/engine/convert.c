// weft_convert: converts a Hugging Face folder to a GGUF file. model/hf.h describes the folder as a GGUF file; this
// file produces rows on all threads, one slab at a time, and writes them.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/newfile.h"
#include "device/team.h"
#include "engine/sized.h"
#include "model/hf.h"
#include "model/model.h"
#include "text/text.h"
#include "weft.h"

enum { SLAB_VALUES = 1 << 22, PIECE_VALUES = 1 << 14 };    // in memory at once; per thread and turn

typedef struct conversion {
  const weft_convert_options *o;
  weft_convert_result *r;
  hf *in;
  newfile *file;
  team *team;
  unsigned char *made;
  double done, all;                  // values
} conversion;

static bool find_type(const char *name, enum hf_type *out) {
  static const char *const names[] = {
    [HF_AUTO] = "auto", [HF_F32] = "f32", [HF_F16] = "f16", [HF_BF16] = "bf16", [HF_Q8_0] = "q8_0"};
  *out = HF_AUTO;
  for (size_t i = 0; name && i < COUNT(names); i++)
    if (names[i] && !strcmp(names[i], name)) { *out = (enum hf_type)i; return true; }
  return !name;
}

static int64_t tensor_rows(const hf_tensor *t) { return t->ne[1] * t->ne[2] * t->ne[3]; }
static int64_t rows_at_once(const hf_tensor *t) { return max_i64(1, min_i64(tensor_rows(t), SLAB_VALUES / t->ne[0])); }

// Rows of a tensor that threads share.
typedef struct portion {
  const hf *in;
  size_t tensor;
  int64_t first, rows, step;
  uint64_t row;
  unsigned char *out;
  _Atomic int64_t next;
  _Atomic bool failed;
  error why;                         // of the first failing thread
} portion;

static void make_portion(void *ctx, int thread, int n_threads) {
  portion *p = ctx;
  int64_t at;
  (void)thread; (void)n_threads;
  while ((at = atomic_fetch_add(&p->next, p->step)) < p->rows && !atomic_load(&p->failed)) {
    error e = {0};
    int64_t n = min_i64(p->step, p->rows - at);
    if (hf_rows(p->in, p->tensor, p->first + at, n, p->out + (uint64_t)at * p->row, &e) &&
        !atomic_exchange(&p->failed, true))
      p->why = e;
  }
}

static bool may_go_on(conversion *c, double values) {
  c->done += values;
  if (c->o->progress && !c->o->progress(c->o->ctx, c->all > 0 ? c->done / c->all : 1)) c->r->stopped = true;
  return !c->r->stopped;
}

static int write_rows(conversion *c, size_t i, error *err) {
  static const char zeros[64];
  const hf_tensor *t = hf_tensor_at(c->in, i);
  int64_t rows = tensor_rows(t), most = rows_at_once(t);
  portion p = {.in = c->in, .tensor = i, .row = t->nbytes / (uint64_t)rows, .out = c->made};
  p.step = max_i64(1, PIECE_VALUES / t->ne[0]);
  for (; p.first < rows && !c->r->stopped; p.first += p.rows) {
    p.rows = min_i64(most, rows - p.first);
    p.next = 0;
    team_run(c->team, make_portion, &p);
    if (p.failed) return error_set(err, "%s", p.why.text);
    if (hf_check(c->in, err) || newfile_add(c->file, c->made, (size_t)p.rows * p.row, err)) return -1;
    may_go_on(c, (double)p.rows * (double)t->ne[0]);
  }
  return newfile_add(c->file, zeros, gguf_head_padding(hf_head(c->in), t->nbytes), err);
}

static int reserve_portion(conversion *c, error *err) {
  uint64_t most = 0;
  for (size_t i = 0; i < hf_n_tensors(c->in); i++) {
    const hf_tensor *t = hf_tensor_at(c->in, i);
    uint64_t n = t->nbytes / (uint64_t)tensor_rows(t) * (uint64_t)rows_at_once(t);
    if (n > most) most = n;
    c->all += (double)tensor_rows(t) * (double)t->ne[0];
  }
  c->made = malloc(most + 1);
  if (!c->made) return error_set(err, "no memory for %llu bytes of rows", (unsigned long long)most);
  c->team = team_new(c->o->threads, err);
  return c->team ? 0 : -1;
}

// Reads values of small tensors, which models use when they are opened; other tensors stay untouched zeros.
static int fill_small(const conversion *c, unsigned char *at, error *err) {
  enum { SMALL_VALUES = 1 << 16 };
  for (size_t i = 0; i < hf_n_tensors(c->in); i++) {
    const hf_tensor *t = hf_tensor_at(c->in, i);
    bool small = tensor_rows(t) <= SMALL_VALUES / t->ne[0];
    if (small && hf_rows(c->in, i, 0, tensor_rows(t), at, err)) return -1;
    at += t->nbytes + gguf_head_padding(hf_head(c->in), t->nbytes);
  }
  return 0;
}

static int open_image(const hf *of, const unsigned char *image, size_t n, const char *name, error *err) {
  gguf *g = NULL;
  model *m = NULL;
  tokenizer *words = NULL;
  if (gguf_open_memory(image, n, name, &g, err)) return -1;
  gguf_take_names(g, hf_key_names(of));
  int status = model_open(g, (model_kv){0}, &m, err) || tokenizer_from_gguf(g, &words, err) ? -1 : 0;
  tokenizer_free(words);
  model_close(m);
  gguf_close(g);
  return status;
}

// Checks that the output is a model that runs: the configuration of a folder may not fit its tensors.
static int check_runs(const conversion *c, const str *head, const char *dir, error *err) {
  size_t n = head->n + gguf_head_data(hf_head(c->in));
  unsigned char *image = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (image == MAP_FAILED) return error_set(err, "%s: no memory to look at its %zu MB", dir, n >> 20);
  memcpy(image, head->at, head->n);
  int status = fill_small(c, image + head->n, err) || open_image(c->in, image, n, dir, err) ? -1 : 0;
  munmap(image, n);
  return status;
}

static int convert_all(conversion *c, const char *dir, const char *out, error *err) {
  enum hf_type type;
  str head = {0};
  if (!find_type(c->o->type, &type))
    return error_set(err, "'%.60s' is not a type that is written: f32, f16, bf16, q8_0 or auto", c->o->type);
  if (hf_open(dir, type, &c->in, err) || reserve_portion(c, err)) return -1;
  gguf_head_bytes(hf_head(c->in), &head);
  int status = check_runs(c, &head, dir, err) || newfile_open(out, &c->file, err) ||
               newfile_add(c->file, head.at, head.n, err) ? -1 : 0;
  c->r->bytes = head.n + gguf_head_data(hf_head(c->in));
  c->r->n_params = (uint64_t)c->all;
  str_free(&head);
  for (size_t i = 0; i < hf_n_tensors(c->in) && !status && !c->r->stopped; i++, c->r->n_tensors++)
    status = write_rows(c, i, err);
  if (status || c->r->stopped) return status;
  newfile *whole = c->file;
  c->file = NULL;
  return newfile_commit(whole, err);
}

int weft_convert(const char *dir, const char *out, const weft_convert_options *opt, weft_convert_result *result,
                 weft_error *err) {
  weft_convert_options o = {0};
  weft_convert_result unseen;
  error e = {0};
  if (TAKE_OPTIONS(&o, weft_convert_options, ctx, opt, err)) return -1;
  conversion c = {.o = &o, .r = result ? result : &unseen};
  *c.r = (weft_convert_result){.stopped = false};
  int status = convert_all(&c, dir, out, &e);
  newfile_discard(c.file);
  team_free(c.team);
  free(c.made);
  hf_close(c.in);
  if (status && err) memcpy(err->text, e.text, sizeof err->text);
  return status;
}

bool weft_folder_reads(const char *name) { return hf_reads(name); }

int weft_folder_class(const char *name, weft_error *err) {
  error e = {0};
  int status = hf_check_class(name, &e);
  if (status && err) memcpy(err->text, e.text, sizeof err->text);
  return status;
}
