// weft perplexity with two models: writes the log-probabilities of all tokens of a text, and compares another model
// with them.
//
// The file is llama.cpp's, little-endian: "_logits_"; then as 32-bit integers the tokens per chunk, the vocabulary
// size, the number of chunks and all tokens. Then for each chunk, rows for the tokens whose successor is scored: two
// floats, the step and the lowest log-probability, and for each token of the vocabulary a 16-bit multiple of the step
// (padded to an even count). Log-probabilities more than 16 below the best are stored as 16 below.
#define _GNU_SOURCE
#include "app/perplexity.h"
#include "base/inuse.h"
#include "base/mapped.h"
#include "base/newfile.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[] = "_logits_";
enum { MAGIC = sizeof magic - 1 /* without its NUL */ };
enum { HEADER = 20, STEPS = 65535, DEEPEST = 16 };

static size_t row_bytes(int32_t n_vocab) { return 8 + 2 * (((size_t)n_vocab + 1) / 2 * 2); }
static int first_scored(int size) { return size / 2; }
static size_t rows_of(int size) { return (size_t)(size - 1 - first_scored(size)); }

// ---- writing --------------------------------------------------------------------------------------------------------

struct base { newfile *file; int32_t n_vocab; unsigned char *row; };

int base_create(const char *path, int size, int32_t n_vocab, int32_t n_chunks, const int32_t *ids, struct base **out,
                error *err) {
  newfile *f;
  if (newfile_open(path, &f, err)) return -1;
  int32_t sizes[3] = {size, n_vocab, n_chunks};
  if (newfile_add(f, magic, MAGIC, err) || newfile_add(f, sizes, sizeof sizes, err) ||
      newfile_add(f, ids, (size_t)size * (size_t)n_chunks * sizeof *ids, err)) {
    newfile_discard(f);
    return -1;
  }
  *out = xcalloc(1, sizeof **out);
  **out = (struct base){f, n_vocab, xcalloc(1, row_bytes(n_vocab))};
  return 0;
}

void base_add(struct base *b, const float *logits, const struct summary *s, error *err) {
  float min = fmaxf(s->min, s->max - DEEPEST), log_sum = (float)s->log_sum;
  float head[2] = {(s->max - min) / (float)STEPS, min - s->max - log_sum}, inverse = head[0] != 0 ? 1 / head[0] : 0;
  memcpy(b->row, head, sizeof head);
  for (int32_t i = 0; i < b->n_vocab; i++) {
    uint16_t q = logits[i] > min ? (uint16_t)fminf(rintf(inverse * (logits[i] - min)), STEPS) : 0;
    memcpy(b->row + sizeof head + 2 * (size_t)i, &q, sizeof q);
  }
  newfile_add(b->file, b->row, row_bytes(b->n_vocab), err);
}

int base_finish(struct base *b, bool good, error *err) {
  int status = 0;
  if (good) status = newfile_commit(b->file, err);
  else newfile_discard(b->file);
  free(b->row);
  free(b);
  return status;
}

// ---- reading --------------------------------------------------------------------------------------------------------

struct given { mapped *map; int fd; const unsigned char *bytes; int32_t size, n_vocab, n_chunks; };

static void close_given(struct given *g) {
  mapped_close(g->map);
  inuse_drop(g);
  if (g->fd >= 0) close(g->fd);
}

// Checks that the file has the length that its header implies.
static int check_given(const struct given *g, uint64_t bytes, const char *path, error *err) {
  uint64_t tokens, rows, all;
  if (memcmp(g->bytes, magic, MAGIC)) return error_set(err, "%s: not a file of log-probabilities", path);
  if (g->size < 4 || g->n_vocab < 1 || g->n_chunks < 1)
    return error_set(err, "%s: %d chunks of %d tokens of a vocabulary of %d: the file is damaged", path, g->n_chunks,
                     g->size, g->n_vocab);
  bool fits = mul_u64((uint64_t)g->size * sizeof(int32_t), (uint64_t)g->n_chunks, &tokens) &&
              mul_u64(rows_of(g->size) * (uint64_t)g->n_chunks, row_bytes(g->n_vocab), &rows) &&
              add_u64(tokens, rows, &all) && add_u64(all, HEADER, &all);
  if (!fits || all != bytes)
    return error_set(
      err, "%s: has %llu bytes, but %d chunks of %d tokens of a vocabulary of %d need %llu: it is cut or damaged", path,
      (unsigned long long)bytes, g->n_chunks, g->size, g->n_vocab, fits ? (unsigned long long)all : 0ull);
  return 0;
}

static int open_given(const char *path, struct given *g, error *err) {
  struct stat st;
  *g = (struct given){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)};
  if (g->fd < 0 || fstat(g->fd, &st)) error_set(err, "%s: %s", path, strerror(errno));
  else if (!S_ISREG(st.st_mode) || st.st_size < HEADER) error_set(err, "%s: not a file of log-probabilities", path);
  else if (!(g->map = mapped_open(g->fd, (size_t)st.st_size)))
    error_set(err, "%s: cannot be mapped: %s", path, strerror(errno));
  else {
    inuse_note(g, g->fd);
    g->bytes = mapped_bytes(g->map);
    memcpy(&g->size, g->bytes + 8, 4);
    memcpy(&g->n_vocab, g->bytes + 12, 4);
    memcpy(&g->n_chunks, g->bytes + 16, 4);
    if (!check_given(g, (uint64_t)st.st_size, path, err)) return 0;
  }
  close_given(g);
  return -1;
}

int base_context(const char *path, int64_t *size, error *err) {
  struct given g;
  if (open_given(path, &g, err)) return -1;
  *size = g.size;
  close_given(&g);
  return 0;
}

// ---- comparing ------------------------------------------------------------------------------------------------------

struct sums { double x, xx; };                       // of values, and of their squares
static void sums_add(struct sums *s, double x) { s->x += x; s->xx += x * x; }

struct comparison {
  const struct given *given;
  const char *path;
  const unsigned char *row;                          // of the next token
  struct sums nll, base, kl, diff, diff2;            // diff: of the probability of the actual next token
  double nll_base;                                   // sum of the products
  size_t count, same;
  float *kls, *diffs;
};

struct estimate { double value, error; };

static struct estimate mean_estimate(const struct sums *s, size_t n) {
  double m = n ? s->x / (double)n : 0, v = n ? s->xx / (double)n - m * m : 0;
  return (struct estimate){m, v > 0 && n > 10 ? sqrt(v / (double)(n - 1)) : 0};
}

static void compare_row(struct run *r, size_t i, const float *logits, int32_t next) {
  struct comparison *c = r->ctx;
  float head[2], best = 0;
  const unsigned char *codes = c->row + sizeof head;
  int32_t top = 0;
  struct summary s = log_softmax(logits, r->n_vocab);
  (void)i;
  memcpy(head, c->row, sizeof head);
  c->row += row_bytes(r->n_vocab);
  if (!isfinite(head[0]) || !isfinite(head[1]) || head[0] < 0) {
    error_set(&r->err, "%s: a log-probability is no number: the file is damaged", c->path);
    return;
  }
  float log_sum = (float)s.log_sum, all = s.max + log_sum, nll = all - logits[next], nll_base = 0;
  double kl = 0;
  for (int32_t t = 0; t < r->n_vocab; t++) {
    uint16_t q;
    memcpy(&q, codes + 2 * (size_t)t, sizeof q);
    float p = head[0] * (float)q + head[1];
    if (!t || p > best) best = p, top = t;
    if (p > -DEEPEST) kl += expf(p) * (p - logits[t] + all);
    if (t == next) nll_base = -p;
  }
  float diff = expf(-nll) - expf(-nll_base);
  sums_add(&c->nll, nll);
  sums_add(&c->base, nll_base);
  sums_add(&c->kl, kl);
  sums_add(&c->diff, diff);
  sums_add(&c->diff2, (double)diff * diff);
  c->nll_base += (double)nll * nll_base;
  c->same += top == s.top;
  c->kls[c->count] = (float)kl;
  c->diffs[c->count++] = diff;
}

static double covariance(const struct comparison *c) {
  double n = (double)c->count;
  return c->count < 10 ? 0 : (c->nll_base / n - c->nll.x / n * (c->base.x / n)) / (n - 1);
}

static struct estimate log_ratio(const struct comparison *c) {
  struct estimate q = mean_estimate(&c->nll, c->count), b = mean_estimate(&c->base, c->count);
  return (struct estimate){q.value - b.value, sqrt(fmax(0, q.error * q.error + b.error * b.error - 2 * covariance(c)))};
}

static struct estimate root(struct estimate e) {
  double x = sqrt(e.value);
  return (struct estimate){x, x > 0 ? .5 / x * e.error : 0};
}

static struct estimate same_top(const struct comparison *c) {
  double p = (double)c->same / (double)c->count;
  return (struct estimate){p, c->count > 1 ? sqrt(p * (1 - p) / (double)(c->count - 1)) : 0};
}

static struct estimate exp_estimate(struct estimate e) {
  return (struct estimate){exp(e.value), exp(e.value) * e.error};
}
static struct estimate percent(struct estimate e) { return (struct estimate){100 * e.value, 100 * e.error}; }

static void show_chunk(struct run *r, int32_t i) {
  const struct comparison *c = r->ctx;
  struct estimate ppl = exp_estimate(mean_estimate(&c->nll, c->count)), ratio = log_ratio(c),
                  kl = mean_estimate(&c->kl, c->count);
  struct estimate rms = percent(root(mean_estimate(&c->diff2, c->count))), top = percent(same_top(c));
  if (!i)
    out_addf(&r->out, "\nchunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              "
                      "Δp RMS            Same top p\n");
  out_addf(&r->out, "%4d    %9.4f ± %9.4f    %10.5f ± %10.5f    %10.5f ± %10.5f", i + 1, ppl.value, ppl.error,
           ratio.value, ratio.error, kl.value, kl.error);
  out_addf(&r->out, "    %6.3f ± %6.3f %%    %6.3f ± %6.3f %%\n", rms.value, rms.error, top.value, top.error);
}

static int by_float(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

// A percentile of n sorted values, interpolated between neighbours.
static double percentile(const float *x, size_t n, double fraction) {
  double at = fraction * (double)(n - 1);
  size_t i = (size_t)at;
  return i + 1 < n ? (1 - (at - (double)i)) * x[i] + (at - (double)i) * x[i + 1] : x[n - 1];
}

static const struct { const char *name; double at; bool of_kl;
} levels[] = {
  {"Maximum", 1, true},  {"99.9%  ", .999, true}, {"99.0%  ", .99, true}, {"95.0%  ", .95, true},
  {"90.0%  ", .9, true}, {"75.0%  ", .75, false}, {"Median ", .5, true},  {"25.0%  ", .25, false},
  {"10.0%  ", .1, true}, {" 5.0%  ", .05, true},  {" 1.0%  ", .01, true}, {" 0.1%  ", .001, true},
  {"Minimum", 0, true},
};

static void show_statistics(struct run *r, struct comparison *c) {
  struct out *o = &r->out;
  size_t n = c->count;
  struct estimate q = mean_estimate(&c->nll, n), b = mean_estimate(&c->base, n), pq = exp_estimate(q),
                  pb = exp_estimate(b), ratio = log_ratio(c), e;
  out_addf(o, "\n====== Perplexity statistics ======\n");
  out_addf(o, "Mean PPL(Q)                   : %10.6f ± %10.6f\n", pq.value, pq.error);
  out_addf(o, "Mean PPL(base)                : %10.6f ± %10.6f\n", pb.value, pb.error);
  out_addf(o, "Cor(ln(PPL(Q)), ln(PPL(base))): %6.2f%%\n",
           q.error > 0 && b.error > 0 ? 100 * covariance(c) / (q.error * b.error) : 0);
  out_addf(o, "Mean ln(PPL(Q)/PPL(base))     : %10.6f ± %10.6f\n", ratio.value, ratio.error);
  e = exp_estimate(ratio);
  out_addf(o, "Mean PPL(Q)/PPL(base)         : %10.6f ± %10.6f\n", e.value, e.error);
  out_addf(o, "Mean PPL(Q)-PPL(base)         : %10.6f ± %10.6f\n", pq.value - pb.value,
           sqrt(fmax(0, pq.error * pq.error + pb.error * pb.error - 2 * pq.value * pb.value * covariance(c))));
  qsort(c->kls, n, sizeof *c->kls, by_float);
  qsort(c->diffs, n, sizeof *c->diffs, by_float);
  e = mean_estimate(&c->kl, n);
  out_addf(o, "\n====== KL divergence statistics ======\nMean    KLD: %10.6f ± %10.6f\n", e.value, e.error);
  for (size_t i = 0; i < COUNT(levels); i++)
    if (levels[i].of_kl) out_addf(o, "%s KLD: %10.6f\n", levels[i].name, percentile(c->kls, n, levels[i].at));
  e = percent(mean_estimate(&c->diff, n));
  out_addf(o, "\n====== Token probability statistics ======\nMean    Δp: %6.3f ± %5.3f %%\n", e.value, e.error);
  for (size_t i = 0; i < COUNT(levels); i++)
    out_addf(o, "%s Δp: %6.3f%%\n", levels[i].name, 100 * percentile(c->diffs, n, levels[i].at));
  e = percent(root(mean_estimate(&c->diff2, n)));
  out_addf(o, "RMS Δp    : %6.3f ± %5.3f %%\n", e.value, e.error);
  e = percent(same_top(c));
  out_addf(o, "Same top p: %6.3f ± %5.3f %%\n", e.value, e.error);
}

static int compare_chunks(struct run *r, struct comparison *c) {
  const struct given *g = c->given;
  if (g->n_vocab != r->n_vocab)
    return failed("%s: made by a model with %d tokens in its vocabulary; this one has %d", c->path, g->n_vocab,
                  r->n_vocab);
  size_t n_ids = (size_t)g->size * (size_t)g->n_chunks, rows = rows_of(g->size) * (size_t)g->n_chunks;
  int32_t *ids = xmalloc(n_ids * sizeof *ids);
  memcpy(ids, g->bytes + HEADER, n_ids * sizeof *ids);
  r->size = g->size;
  r->first = first_scored(g->size);
  r->tokens = xcalloc((size_t)r->size, sizeof *r->tokens);
  r->ctx = c;
  r->see = compare_row;
  r->done = show_chunk;
  c->row = g->bytes + HEADER + n_ids * sizeof *ids;
  c->kls = xcalloc(rows, sizeof *c->kls);
  c->diffs = xcalloc(rows, sizeof *c->diffs);
  int status = 0;
  for (size_t i = 0; i < n_ids && !status; i++)
    if (ids[i] < 0 || ids[i] >= r->n_vocab)
      status = failed("%s: token %d does not exist: the file is damaged", c->path, ids[i]);
  fprintf(stderr, "weft: comparing %d chunks of %d tokens\n", g->n_chunks, g->size);
  if (!status) status = each_chunk(r, g->n_chunks, ids, (size_t)g->size);
  if (!status && !mapped_is_whole(g->map))
    status = failed("%s: a part of it could not be read: it was cut, or its disk failed", c->path);
  if (!status && c->count >= 100) show_statistics(r, c);          // fewer values make no statistics
  free(ids); free(c->kls); free(c->diffs);
  return status;
}

int compare_with(const char *path, struct run *r) {
  struct given g;
  error err = {0};
  if (open_given(path, &g, &err)) return failed("%s", err.text);
  struct comparison c = {.given = &g, .path = path};
  int status = compare_chunks(r, &c);
  close_given(&g);
  return status;
}
