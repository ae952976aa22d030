// The order of a tensor's rows: which row (or element of a row) of the folder's tensor is row i of the file's.
//
// An order is a list of slices, one after the other. A slice counts along three axes, each with its own stride in the
// folder's tensor. That expresses interleaved heads, heads sorted by group, and a part of each group. The empty order
// (n == 0) is the folder's own.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "model/hf_impl.h"

enum { COUNT_MOST = 1 << 20, WORDS_MOST = 8 };             // so that the product of three fits

static int64_t ordered_by_slices(const hf_order *o, int64_t i) {
  for (size_t k = 0; k < o->n; k++) {
    const hf_slice *s = &o->at[k];
    int64_t inner = s->n[1] * s->n[2], all = s->n[0] * inner;
    if (i < all)
      return s->first + i / inner * s->apart[0] + i / s->n[2] % s->n[1] * s->apart[1] + i % s->n[2] * s->apart[2];
    i -= all;
  }
  return i;
}

int64_t hf_ordered(const hf_order *o, int64_t i) {
  for (; o; o = o->of) i = ordered_by_slices(o, i);
  return i;
}

static void add_slice(hf_order *o, hf_slice s) { o->at[o->n++] = s; }

// ---- counts in rules ------------------------------------------------------------------------------------------------

typedef struct counts { int64_t at[WORDS_MOST]; size_t n; } counts;

// Reads a product of keys and numbers: "linear_num_key_heads*linear_key_head_dim"; first: its first factor.
static int read_product(const hf *h, const char *word, size_t n, int64_t *out, int64_t *first, error *err) {
  *out = 1;
  for (const char *at = word; at < word + n;) {
    const char *star = memchr(at, '*', (size_t)(word + n - at)), *end = star ? star : word + n;
    const char *key = arena_strndup(h->arena, at, (size_t)(end - at));
    char *rest;
    uint32_t v = (uint32_t)strtoul(key, &rest, 10);
    if (*rest && hf_need_u32(h, key, &v, err)) return -1;
    if (v > COUNT_MOST) return hf_fail(h, "config.json", key, err, "%u is more than %d", v, COUNT_MOST);
    if (at == word) *first = v;
    *out *= v;
    at = end + 1;
  }
  return 0;
}

// Reads products separated by spaces. groups: the value of the very first key.
static int read_counts(const hf *h, const char *words, counts *out, int64_t *groups, error *err) {
  out->n = 0;
  for (const char *at = words; *at; at += strspn(at, " ")) {
    size_t n = strcspn(at, " ");
    int64_t first = 0;
    die_if(out->n == WORDS_MOST, "hf: a rule has too many counts: %s", words);
    if (read_product(h, at, n, &out->at[out->n], &first, err)) return -1;
    if (!out->n) *groups = first;
    out->n++;
    at += n;
  }
  return 0;
}

static int does_not_fit(const hf *h, const hf_source *s, const char *words, int64_t rows, error *err) {
  return hf_fail(h, h->files.at[s->file].name, s->name, err, "%" PRId64 " rows are not those of heads (%s)", rows,
                 words);
}

// ---- orders ---------------------------------------------------------------------------------------------------------

// The rows of each head, a multiple of `step`: key is that of the number of heads, or, after '/', of the rows.
static int rows_of_head(const hf *h, const hf_source *s, const char *key, int64_t n, int64_t step, int64_t *out,
                        error *err) {
  uint32_t count;
  bool size = *key == '/';
  if (hf_need_u32(h, key + size, &count, err)) return -1;
  *out = size ? count : n / count;
  return n % count || *out % step ? does_not_fit(h, s, key, n, err) : 0;
}

static int weave(const hf *h, const hf_source *s, const char *key, int64_t n, hf_order *o, error *err) {
  int64_t of_head;
  if (rows_of_head(h, s, key, n, 2, &of_head, err)) return -1;
  add_slice(o, (hf_slice){0, {n / of_head, of_head / 2, 2}, {of_head, 1, of_head / 2}});
  return 0;
}

// First the rotated halves of all heads, woven, then the others; of these a part of each for every head.
static int weave_half(hf *h, const hf_source *s, const char *key, int64_t n, hf_order *o, error *err) {
  int64_t of_head;
  if (rows_of_head(h, s, key, n, 4, &of_head, err)) return -1;
  int64_t half = of_head / 2, heads = n / of_head;
  hf_order *apart = ARENA_NEW(h->arena, hf_order);
  add_slice(apart, (hf_slice){0, {heads, half / 2, 2}, {of_head, 1, half / 2}});
  add_slice(apart, (hf_slice){half, {heads, 1, half}, {of_head, 0, 1}});
  add_slice(o, (hf_slice){0, {heads, 2, half}, {half, heads * half, 1}});
  o->of = apart;
  return 0;
}

static int weave_row(const hf *h, const hf_source *s, int64_t n, hf_order *o, error *err) {
  if (n % 2) return does_not_fit(h, s, "two halves", n, err);
  add_slice(o, (hf_slice){0, {1, n / 2, 2}, {0, 1, n / 2}});
  return 0;
}

// Halves of each head's rows are interleaved, in queries and keys; values follow.
static int weave_two(const hf *h, const hf_source *s, const char *words, int64_t n, hf_order *o, error *err) {
  counts c;
  int64_t groups;
  if (read_counts(h, words, &c, &groups, err)) return -1;
  int64_t q = c.at[0], k = c.at[1], of_head = n / (q + 2 * k);
  if (n % (q + 2 * k) || of_head % 2) return does_not_fit(h, s, words, n, err);
  add_slice(o, (hf_slice){0, {q, of_head / 2, 2}, {of_head, 1, of_head / 2}});
  add_slice(o, (hf_slice){q * of_head, {k, of_head / 2, 2}, {of_head, 1, of_head / 2}});
  add_slice(o, (hf_slice){(q + k) * of_head, {1, 1, k * of_head}, {0, 0, 1}});
  return 0;
}

int hf_zero_first(hf *h, hf_made *m, const hf_source *s, const hf_rule *r, error *err) {
  uint32_t heads = 1;
  int64_t rows = m->t.ne[1], n = m->t.ne[3];
  if (r->heads && hf_need_u32(h, r->heads, &heads, err)) return -1;
  if (m->t.n_dims != 4 || m->t.ne[2] != 1 || (r->heads && rows % (2 * (int64_t)heads)))
    return does_not_fit(h, s, r->heads ? r->heads : "a matrix for each adapter", rows, err);
  int64_t of_head = rows / heads;
  if (r->heads) add_slice(&m->order, (hf_slice){0, {n * heads, of_head / 2, 2}, {of_head, 1, of_head / 2}});
  m->t.n_dims = 3;
  m->t.ne[2] = n + 1;
  m->t.ne[3] = 1;
  m->ahead = rows;
  m->rows = rows * n;
  return 0;
}

// The last rows are heads sorted by group. Reorders them: the first head of each group, then the second of each, ...
static int tile_heads(const hf *h, const hf_source *s, const char *words, int64_t n, hf_order *o, error *err) {
  counts c;
  int64_t groups;
  if (read_counts(h, words, &c, &groups, err)) return -1;
  int64_t heads = c.at[1], size = c.n > 2 ? c.at[2] : 1, kept = n - heads * size, of_group = heads / groups;
  if (heads % groups || kept < 0) return does_not_fit(h, s, words, n, err);
  add_slice(o, (hf_slice){0, {1, 1, kept ? kept : 1}, {0, 0, 1}});
  if (!kept) o->n = 0;
  add_slice(o, (hf_slice){kept, {of_group, groups, size}, {size, of_group * size, 1}});
  return 0;
}

// Rows are in groups, each with several parts. Collects one part of all groups, then the next one: the last part, or
// all others.
static int collect_parts(const hf *h, const hf_source *s, const char *words, bool last, int64_t *n, hf_order *o,
                         error *err) {
  counts c;
  int64_t groups, at = 0, all = 0, of_group = 0;
  if (read_counts(h, words, &c, &groups, err)) return -1;
  for (size_t i = 0; i < c.n; i++) {
    of_group += c.at[i] / groups;
    if (c.at[i] % groups) return does_not_fit(h, s, words, *n, err);
  }
  if (of_group * groups != *n) return does_not_fit(h, s, words, *n, err);
  for (size_t i = 0; i < c.n; i++) {
    int64_t part = c.at[i] / groups;
    if (last == (i + 1 == c.n)) {
      add_slice(o, (hf_slice){at, {groups, 1, part}, {of_group, 0, 1}});
      all += c.at[i];
    }
    at += part;
  }
  *n = all;
  return 0;
}

// Rows are in groups, each with the heads of several parts. Collects one part of all groups, then the next.
static int ungroup_heads(const hf *h, const hf_source *s, const char *words, int64_t n, hf_order *o, error *err) {
  counts c;
  int64_t groups, heads = 0, at = 0;
  if (read_counts(h, words, &c, &groups, err)) return -1;
  for (size_t i = 1; i < c.n; i++) {
    heads += c.at[i];
    if (c.at[i] % groups) return does_not_fit(h, s, words, n, err);
  }
  if (n % heads) return does_not_fit(h, s, words, n, err);
  for (size_t i = 1; i < c.n; i++) {
    int64_t part = c.at[i] / groups * (n / heads);
    add_slice(o, (hf_slice){at, {groups, 1, part}, {n / groups, 0, 1}});
    at += part;
  }
  return 0;
}

// Rows are in groups, each with the heads of several parts. Takes one part of all groups: words begin with its number.
static int take_heads(hf *h, const hf_source *s, const hf_rule *r, int64_t *n, hf_order *o, error *err) {
  char *words;
  counts c;
  int64_t groups, part = strtol(r->heads, &words, 10), of_group = 0, before = 0;
  if (read_counts(h, words + strspn(words, " "), &c, &groups, err)) return -1;
  for (size_t i = 1; i < c.n; i++) {
    if (c.at[i] % groups) return does_not_fit(h, s, r->heads, *n, err);
    if ((int64_t)i <= part) before += c.at[i] / groups;
    of_group += c.at[i] / groups;
  }
  int64_t size = *n / (groups * of_group), heads = c.at[part + 1] / groups;
  if (size * groups * of_group != *n || ((r->op & HF_WOVEN_HALVES) && size % 2))
    return does_not_fit(h, s, r->heads, *n, err);
  add_slice(o, (hf_slice){before * size, {groups, 1, heads * size}, {of_group * size, 0, 1}});
  *n = groups * heads * size;
  if (!(r->op & HF_WOVEN_HALVES)) return 0;
  hf_order *taken = ARENA_NEW(h->arena, hf_order);
  *taken = *o;
  *o = (hf_order){1, {{0, {groups * heads, size / 2, 2}, {size, 1, size / 2}}}, taken};
  return 0;
}

// Whether a bias belongs to a matrix whose rows are in parts: nothing says that the bias is.
static bool has_ranked_matrix(const hf *h, const hf_source *s) {
  void *w = NULL;
  if (!hf_ends_in(s->name, ".bias")) return false;
  const char *name = arena_printf(h->arena, "%.*s.weight", (int)(strlen(s->name) - strlen(".bias")), s->name);
  return smap_get(&h->by_name, name, strlen(name), &w) && ((const hf_source *)w)->ranks;
}

// Collects the rows of each group from all ranks. Blocks that predict further tokens are of kind 1.
static int collect_from_ranks(const hf *h, const hf_source *s, const char *words, int64_t n, hf_order *o, error *err) {
  counts c;
  int64_t first, at = 0, all = 0, ranks = s->ranks ? s->ranks : 1;
  if (has_ranked_matrix(h, s))
    return hf_fail(h, h->files.at[s->file].name, s->name, err, "is the bias of a matrix in parts, and is not read");
  words = strstr(s->name, ".mtp.") ? strchr(words, '|') + 1 : hf_words_of_layer(h, words, s->name);
  if (read_counts(h, words, &c, &first, err)) return -1;
  for (size_t i = 0; i < c.n; i++) {
    if (c.at[i] % ranks) return does_not_fit(h, s, words, n, err);
    add_slice(o, (hf_slice){at, {ranks, 1, c.at[i] / ranks}, {n / ranks, 0, 1}});
    at += c.at[i] / ranks;
    all += c.at[i];
  }
  return all == n ? 0 : does_not_fit(h, s, words, n, err);
}

// Takes the rows from a number on.
static int take_rows_from(const hf *h, const hf_source *s, const char *key, int64_t *n, hf_order *o, error *err) {
  uint32_t first = 0;
  bool found;
  if (hf_u32(h, key, &first, &found, err)) return -1;
  if (first >= *n) return does_not_fit(h, s, key, *n, err);
  add_slice(o, (hf_slice){first, {1, 1, *n - first}, {0, 0, 1}});
  *n -= first;
  return 0;
}

// Takes a part of several equal ones: "I/N".
static int take_equal_part(const hf *h, const hf_source *s, const char *words, int64_t *n, hf_order *o, error *err) {
  char *end;
  int64_t at = strtol(words, &end, 10), parts = strtol(end + 1, NULL, 10);
  if (*n % parts) return does_not_fit(h, s, arena_printf(h->arena, "%d parts", (int)parts), *n, err);
  *n /= parts;
  add_slice(o, (hf_slice){at * *n, {1, 1, *n}, {0, 0, 1}});
  return 0;
}

// Takes every second row, beginning with row `first`.
static int take_second_rows(const hf *h, const hf_source *s, hf_made *m, int64_t first, error *err) {
  if (m->t.n_dims > 3 || m->t.ne[1] % 2) return does_not_fit(h, s, "pairs of rows", m->t.ne[1], err);
  m->t.ne[1] /= 2;
  m->rows = m->t.ne[1] * m->t.ne[2];
  add_slice(&m->order, (hf_slice){first, {1, 1, m->rows}, {0, 0, 2}});
  return 0;
}

int hf_set_order(hf *h, hf_made *m, const hf_source *s, const hf_rule *r, error *err) {
  enum hf_op op = r->op & HF_OP_MASK;
  if (op == HF_ROWS_EVEN || op == HF_ROWS_ODD) return take_second_rows(h, s, m, op == HF_ROWS_ODD, err);
  bool in_rows = op == HF_TILE_IN_ROWS || op == HF_WEAVE_IN_ROWS || m->t.n_dims == 1;
  hf_order *o = in_rows ? &m->columns : &m->order;
  int64_t *n = in_rows ? &m->t.ne[0] : &m->t.ne[1];
  if (m->t.n_dims > 2) return does_not_fit(h, s, r->heads, m->rows, err);
  int status = op == HF_WEAVE ? weave(h, s, r->heads, *n, o, err)
               : op == HF_WEAVE_HALF ? weave_half(h, s, r->heads, *n, o, err)
               : op == HF_WEAVE_IN_ROWS ? weave_row(h, s, *n, o, err)
               : op == HF_HEADS_OF ? take_heads(h, s, r, n, o, err)
               : op == HF_WEAVE_QK ? weave_two(h, s, r->heads, *n, o, err)
               : op == HF_FROM_ROW ? take_rows_from(h, s, r->heads, n, o, err)
               : op == HF_RANKS ? collect_from_ranks(h, s, r->heads, *n, o, err)
               : op == HF_PART ? take_equal_part(h, s, r->heads, n, o, err)
               : op == HF_UNGROUP ? ungroup_heads(h, s, r->heads, *n, o, err)
               : op == HF_TILE || op == HF_TILE_IN_ROWS
                 ? tile_heads(h, s, r->heads, *n, o, err)
                 : collect_parts(h, s, r->heads, op == HF_COLLECT_LAST, n, o, err);
  m->rows = m->t.ne[1];
  return status;
}

const char *hf_words_of_layer(const hf *h, const char *words, const char *name) {
  const char *bar = words ? strchr(words, '|') : NULL, *digits = strpbrk(name, "0123456789");
  const char *star = words ? strchr(words, '*') : NULL;
  if (star && digits && star > words && star[-1] == '.')
    return arena_printf(h->arena, "%.*s%.*s%s", (int)(star - words), words, (int)strspn(digits, "0123456789"), digits,
                        star + 1);
  if (!bar) return words;
  unsigned long layer = digits ? strtoul(digits, NULL, 10) : 0;
  return layer < h->kinds.n && h->kinds.of[layer] ? bar + 1 : arena_strndup(h->arena, words, (size_t)(bar - words));
}

// Takes the first rows of each head (or of each matrix of a stack), or the rows after them.
int hf_split(hf *h, hf_made *m, const hf_source *s, const hf_rule *r, error *err) {
  enum hf_op op = r->op & HF_OP_MASK;
  counts c = {{m->t.ne[2], m->t.ne[1] / 2}, 2};
  int64_t groups, rows = m->t.ne[1];
  const char *words = hf_words_of_layer(h, r->heads, s->name);
  if (words && read_counts(h, words, &c, &groups, err)) return -1;
  bool rest = op == HF_REST, fits = m->t.n_dims == 2 || (m->t.n_dims == 3 && !words);
  int64_t all = words ? rows / c.at[0] : rows, n = rest ? all - c.at[1] : c.at[1];
  if (!fits || c.at[1] < 1 || c.at[1] >= all || (words ? all * c.at[0] : 2 * n) != rows)
    return does_not_fit(h, s, words ? words : "two halves of each matrix", rows, err);
  add_slice(&m->order, (hf_slice){rest ? c.at[1] : 0, {c.at[0], n, 1}, {all, 1, 0}});
  m->t.ne[1] = n;
  if (words) {
    m->t.ne[2] = c.at[0];
    m->t.n_dims = 3;
  }
  if (op == HF_FIRST_TURNED) {
    m->t.ne[1] = m->t.ne[0];
    m->t.ne[0] = n;
    m->turned = true;
  }
  m->rows = m->t.ne[1] * m->t.ne[2];
  return 0;
}
