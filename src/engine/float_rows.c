// Maps ids to rows of floats: see float_rows.h.
#include "engine/float_rows.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/sha256.h"

typedef struct row_id { int32_t id; uint32_t row; float_rows *of; } row_id;
struct float_table {
  pthread_mutex_t lock;
  VEC(row_id) ids;                     // ascending
};

float_table *float_table_new(void) {
  float_table *t = xcalloc(1, sizeof *t);
  pthread_mutex_init(&t->lock, NULL);
  return t;
}

void float_table_free(float_table *t) {
  if (!t) return;
  pthread_mutex_destroy(&t->lock);
  vec_free(&t->ids);
  free(t);
}

// ---- names ----------------------------------------------------------------------------------------------------------

static void make_digest(float_rows *r, const float_spec *spec) {
  const int64_t sizes[] = {(int64_t)spec->n, spec->width, r->n_pos, spec->both, (int64_t)spec->n_key};
  sha256 s;
  sha256_begin(&s);
  sha256_add(&s, sizes, sizeof sizes);
  sha256_add(&s, r->turns, 3 * r->n * sizeof *r->turns);
  if (spec->n_key) sha256_add(&s, spec->key, spec->n_key);
  else sha256_add(&s, spec->at, r->n * (size_t)r->width * sizeof *r->at);
  sha256_end(&s, r->digest);
}

// Derives eight ids from each hash of the digest; attempt: another choice if an id is taken.
static void make_ids(float_rows *r, uint32_t attempt) {
  enum { EACH = 8, DIGITS = 8 };
  for (size_t i = 0; i < r->n; i += EACH) {
    const uint64_t which[] = {attempt, i / EACH};
    char hex[65];
    sha256 s;
    sha256_begin(&s);
    sha256_add(&s, r->digest, sizeof r->digest);
    sha256_add(&s, which, sizeof which);
    sha256_end(&s, hex);
    for (size_t k = i; k < r->n && k < i + EACH; k++) {
      char digits[DIGITS + 1] = {0};
      memcpy(digits, hex + (k - i) * DIGITS, DIGITS);
      uint32_t bits = (uint32_t)strtoul(digits, NULL, 16) & INT32_MAX;
      r->ids[k] = bits == INT32_MAX ? -2 : INT32_MIN + (int32_t)bits;       // -1 is reserved
    }
  }
}

static int by_id(const void *x, const void *y) {
  const row_id *a = x, *b = y;
  return (a->id > b->id) - (a->id < b->id);
}

// The ids of a span in ascending order, for free().
static row_id *sorted_ids(float_rows *r, uint32_t attempt) {
  row_id *all = xmalloc(r->n * sizeof *all);
  make_ids(r, attempt);
  for (size_t i = 0; i < r->n; i++) all[i] = (row_id){r->ids[i], (uint32_t)i, r};
  qsort(all, r->n, sizeof *all, by_id);
  return all;
}

static float *copy_floats(const float_rows *r, const float *at) {
  size_t bytes = r->n * (size_t)r->width * sizeof *at;
  return at ? memcpy(xmalloc(bytes), at, bytes) : NULL;
}

// ---- the table; the caller holds its lock ---------------------------------------------------------------------------

static size_t first_at(const float_table *t, int32_t id) {
  size_t from = 0, to = t->ids.n;
  while (from < to) {
    size_t mid = (from + to) / 2;
    if (t->ids.at[mid].id < id) from = mid + 1;
    else to = mid;
  }
  return from;
}

static float_rows *find_row(const float_table *t, int32_t id, size_t *row) {
  size_t i = first_at(t, id);
  if (i == t->ids.n || t->ids.at[i].id != id) return NULL;
  if (row) *row = t->ids.at[i].row;
  return t->ids.at[i].of;
}

// Adds n ascending ids to the table if they are free and distinct; otherwise returns false.
static bool take_ids(float_table *t, const row_id *ids, size_t n) {
  for (size_t i = 0; i < n; i++)
    if ((i && ids[i - 1].id == ids[i].id) || find_row(t, ids[i].id, NULL)) return false;
  size_t old = t->ids.n;
  for (size_t i = 0; i < n; i++) vec_push(&t->ids, ids[i]);
  // merges both sorted lists from the end
  for (size_t to = t->ids.n; n; to--)
    t->ids.at[to - 1] = old && t->ids.at[old - 1].id > ids[n - 1].id ? t->ids.at[--old] : ids[--n];
  return true;
}

static void free_rows(float_rows *r) {
  free(r->at); free(r->turns); free(r->ids);
  free(r);
}

// The existing span with the same digest, if any.
static float_rows *find_same(float_table *t, const float_rows *r) {
  for (uint32_t i = 0; i < t->ids.n; i++)
    if (!t->ids.at[i].row && !strcmp(t->ids.at[i].of->digest, r->digest)) return t->ids.at[i].of;
  return NULL;
}

// Stores its floats unless it has some; returns the array to free().
static float *give_floats(float_rows *r, float *at) {
  float *left = r->at ? at : NULL;
  if (!r->at) r->at = at;
  return left;
}

// ---- interface ------------------------------------------------------------------------------------------------------

float_rows *float_rows_new(float_table *t, const float_spec *spec) {
  float_rows *r = xcalloc(1, sizeof *r), *same;
  *r = (float_rows){.table = t,
                    .holders = 1,
                    .n = spec->n,
                    .width = spec->width,
                    .turns = xmalloc(3 * spec->n * sizeof *r->turns),
                    .n_pos = spec->turns ? spec->n_pos : (int)spec->n,
                    .both = spec->both,
                    .ids = xmalloc(spec->n * sizeof *r->ids)};
  for (size_t i = 0; i < 3 * r->n; i++) r->turns[i] = spec->turns ? spec->turns[i] : (int32_t)(i / 3);
  make_digest(r, spec);
  r->at = copy_floats(r, spec->at);
  row_id *ids = sorted_ids(r, 0);
  pthread_mutex_lock(&t->lock);
  if ((same = find_same(t, r))) {
    r->at = give_floats(same, r->at);
    same->holders++;
  }
  for (uint32_t attempt = 1; !same && !take_ids(t, ids, r->n); attempt++) {
    free(ids);
    ids = sorted_ids(r, attempt);
  }
  pthread_mutex_unlock(&t->lock);
  free(ids);
  if (same) free_rows(r);
  return same ? same : r;
}

void float_rows_fill(float_rows *r, const float *at) {
  float *copy = copy_floats(r, at);
  pthread_mutex_lock(&r->table->lock);
  copy = give_floats(r, copy);
  pthread_mutex_unlock(&r->table->lock);
  free(copy);
}

bool float_rows_are_there(const float_rows *r) {
  pthread_mutex_lock(&r->table->lock);
  bool there = r->at != NULL;
  pthread_mutex_unlock(&r->table->lock);
  return there;
}

float_rows *float_rows_hold(float_rows *r) {
  pthread_mutex_lock(&r->table->lock);
  r->holders++;
  pthread_mutex_unlock(&r->table->lock);
  return r;
}

void float_rows_drop(float_rows *r) {
  if (!r) return;
  float_table *t = r->table;
  pthread_mutex_lock(&t->lock);
  bool last = !--r->holders;
  size_t n = 0;
  for (size_t i = 0; last && i < t->ids.n; i++) if (t->ids.at[i].of != r) t->ids.at[n++] = t->ids.at[i];
  if (last) t->ids.n = n;
  pthread_mutex_unlock(&t->lock);
  if (last) free_rows(r);
}

float_rows *float_rows_find(float_table *t, int32_t id, size_t *row) {
  pthread_mutex_lock(&t->lock);
  float_rows *r = find_row(t, id, row);
  pthread_mutex_unlock(&t->lock);
  return r;
}

float_rows *float_rows_find_held(float_table *t, int32_t id, size_t *row) {
  pthread_mutex_lock(&t->lock);
  float_rows *r = find_row(t, id, row);
  if (r) r->holders++;
  pthread_mutex_unlock(&t->lock);
  return r;
}

size_t float_rows_cut(const int32_t *ids, size_t n, size_t all) {
  if (n < all && ids[n] < 0) while (n && ids[n - 1] < 0) n--;
  return n;
}

size_t float_rows_common(const int32_t *x, size_t n_x, const int32_t *y, size_t n_y) {
  size_t n = 0, least = n_x < n_y ? n_x : n_y;
  while (n < least && x[n] == y[n]) n++;
  size_t of_x = float_rows_cut(x, n, n_x), of_y = float_rows_cut(y, n, n_y);
  return of_x < of_y ? of_x : of_y;
}
