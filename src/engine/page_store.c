// Stores sequences in a folder, by pages: see page_store.h.
#define _GNU_SOURCE
#include "engine/page_store.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/newfile.h"
#include "base/str.h"
#include "engine/content.h"

static const char suffix[] = ".page";

typedef struct entry { page_name name; page_record page; } entry;
struct page_store {
  caches *c;
  char of[CONTENT_NAME];               // name of what the model computes; file names begin with its first 8 characters
  int most;                            // maximum positions
  char *folder;
  uint64_t bytes;
  pthread_mutex_t lock;                // for entries
  VEC(entry) entries;                  // sorted by the preceding page, so that possible successors are adjacent
};

typedef VEC(entry) chain;              // pages of one sequence from the first on

// "0123abcd-000007-....page": model name prefix, number of pages before it, page name.
static char *page_path(const page_store *s, const entry *x) {
  str path = {0};
  str_addf(&path, "%s/%.8s-%06u-%.32s%s", s->folder, s->of, x->page.number, x->name.at, suffix);
  return path.at;
}

static bool is_page(const char *file) {
  size_t n = strlen(file), end = sizeof suffix - 1;
  return n == 8 + 1 + 6 + 1 + sizeof(page_name) + end && !strcmp(file + n - end, suffix);
}

static bool is_ours(const page_store *s, const char *file) { return is_page(file) && !strncmp(file, s->of, 8); }

// ---- entries; the caller holds the lock -----------------------------------------------------------------------------

static int page_order(const page_name *x, const page_name *y) { return memcmp(x->at, y->at, sizeof x->at); }

// The first entry that follows page `before`, or a page of a later name.
static size_t first_after(const page_store *s, const page_name *before) {
  size_t from = 0, to = s->entries.n;
  while (from < to) {
    size_t mid = (from + to) / 2;
    if (page_order(&s->entries.at[mid].page.before, before) < 0) from = mid + 1;
    else to = mid;
  }
  return from;
}

static bool is_after(const page_store *s, size_t i, const page_name *before) {
  return i < s->entries.n && !page_order(&s->entries.at[i].page.before, before);
}

static void forget_at(page_store *s, size_t i) {
  memmove(s->entries.at + i, s->entries.at + i + 1, (s->entries.n - i - 1) * sizeof *s->entries.at);
  s->entries.n--;
}

static void remove_at(page_store *s, size_t i) {
  char *path = page_path(s, &s->entries.at[i]);
  unlink(path);
  free(path);
  forget_at(s, i);
}

static void forget_page(page_store *s, const entry *x) {
  for (size_t i = first_after(s, &x->page.before); is_after(s, i, &x->page.before); i++)
    if (!page_order(&s->entries.at[i].name, &x->name)) { forget_at(s, i); return; }
}

static void insert_page(page_store *s, const entry *x) {
  size_t at = first_after(s, &x->page.before);
  vec_push(&s->entries, *x);
  memmove(s->entries.at + at + 1, s->entries.at + at, (s->entries.n - 1 - at) * sizeof *s->entries.at);
  s->entries.at[at] = *x;
}

static size_t alike_in_page(const page_record *p, const int32_t *ids, size_t n) {
  size_t i = 0;
  while (i < p->n && i < n && p->ids[i] == ids[i]) i++;
  return i;
}

// Does file `have` contain everything of `want`? Both follow the same page.
static bool page_covers(const page_record *have, const page_record *want) {
  return alike_in_page(have, want->ids, want->n) == want->n && !(want->groups & ~have->groups) &&
         (!want->fixed || (have->fixed && have->n == want->n));
}

static bool is_stored(const page_store *s, const page_record *want) {
  for (size_t i = first_after(s, &want->before); is_after(s, i, &want->before); i++)
    if (page_covers(&s->entries.at[i].page, want)) return true;
  return false;
}

// Removes entries and files that a new page makes redundant.
static void replace_pages(page_store *s, const entry *new) {
  for (size_t i = first_after(s, &new->page.before); is_after(s, i, &new->page.before);) {
    const entry *x = &s->entries.at[i];
    bool same = !page_order(&x->name, &new->name);
    if (!same && !page_covers(&new->page, &x->page)) { i++; continue; }
    if (same) forget_at(s, i);
    else remove_at(s, i);
  }
  insert_page(s, new);
}

// Removes pages that no other page leads to.
static void remove_orphans(page_store *s) {
  bool *reached = xcalloc(s->entries.n + 1, sizeof *reached);
  VEC(page_name) names = {0};
  vec_push(&names, page_name_first(s->of));
  for (size_t k = 0; k < names.n; k++) {
    page_name before = names.at[k];
    for (size_t i = first_after(s, &before); is_after(s, i, &before); i++) {
      if (!reached[i]) vec_push(&names, s->entries.at[i].name);
      reached[i] = true;
    }
  }
  for (size_t i = s->entries.n; i-- > 0;) if (!reached[i]) remove_at(s, i);
  vec_free(&names);
  free(reached);
}

// A file of the folder; number: of its page, from its name.
struct file { char *name; struct timespec used; uint64_t bytes; unsigned number; };

static int by_use(const void *x, const void *y) {
  const struct file *a = x, *b = y;
  if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
  if (a->used.tv_nsec != b->used.tv_nsec) return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
  return a->number < b->number ? 1 : -(a->number > b->number);
}

// Removes least recently used pages of all models until at most s->bytes are left.
static void trim_pages(page_store *s) {
  VEC(struct file) files = {0};
  uint64_t all = 0;
  DIR *d = opendir(s->folder);
  int at = d ? dirfd(d) : -1;
  for (struct dirent *f; d && (f = readdir(d));) {
    struct stat st;
    if (!is_page(f->d_name) || fstatat(at, f->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
    all += (uint64_t)st.st_size;
    struct file new = {xstrdup(f->d_name), st.st_mtim, (uint64_t)st.st_size,
                       (unsigned)strtoul(f->d_name + 9, NULL, 10)};
    vec_push(&files, new);
  }
  if (all > s->bytes) qsort(files.at, files.n, sizeof *files.at, by_use);
  for (size_t i = 0; i < files.n; i++) {
    const struct file *f = &files.at[i];
    if (all > s->bytes && !unlinkat(at, f->name, 0)) {
      all -= f->bytes;
      for (size_t j = 0; is_ours(s, f->name) && j < s->entries.n; j++)
        if (!memcmp(s->entries.at[j].name.at, f->name + 16, sizeof(page_name))) { forget_at(s, j); break; }
    }
    free(f->name);
  }
  vec_free(&files);
  if (d) closedir(d);
}

// ---- opening --------------------------------------------------------------------------------------------------------

// Removes a partial file of a process that was killed while writing.
static void remove_part(const char *path, const char *file) {
  size_t n = strlen(file);
  if (strstr(file, suffix) && n > 5 && !strcmp(file + n - 5, ".part")) unlink(path);
}

static void add_page_file(page_store *s, const char *path) {
  entry x;
  error err = {0};
  if (page_look(s->c, s->most, s->of, path, &x.page, &err)) { warning("%s", err.text); return; }
  x.name = page_name_next(&x.page.before, x.page.ids, x.page.n);
  insert_page(s, &x);
}

int page_store_open(caches *c, const char *of, int most, const struct page_folder *where, page_store **out,
                    error *err) {
  DIR *d = opendir(where->path);
  if (!d) return error_set(err, "%s: %s", where->path, strerror(errno));
  page_store *s = xcalloc(1, sizeof *s);
  *s = (page_store){.c = c,
                    .most = most,
                    .folder = xstrdup(where->path),
                    .bytes = where->bytes};
  memcpy(s->of, of, sizeof s->of);
  pthread_mutex_init(&s->lock, NULL);
  for (struct dirent *f; (f = readdir(d));) {
    str path = {0};
    str_addf(&path, "%s/%s", s->folder, f->d_name);
    if (is_ours(s, f->d_name)) add_page_file(s, str_c(&path));
    else remove_part(str_c(&path), f->d_name);
    str_free(&path);
  }
  closedir(d);
  remove_orphans(s);
  trim_pages(s);
  *out = s;
  return 0;
}

void page_store_close(page_store *s) {
  if (!s) return;
  pthread_mutex_destroy(&s->lock);
  vec_free(&s->entries);
  free(s->folder);
  free(s);
}

// ---- finding --------------------------------------------------------------------------------------------------------

static size_t whole_chain(const page_store *s, const chain *c, const int32_t *ids, size_t n_ids, size_t n) {
  VEC(const page_record *) pages = {0};
  for (size_t i = 0; i < c->n; i++) vec_push(&pages, &c->at[i].page);
  size_t whole = pages_whole_spans(s->c, ids, n_ids, pages.at, pages.n, n);
  vec_free(&pages);
  return whole;
}

// Finds the pages with the most matching tokens among those from which a sequence can be resumed. Returns the number of
// tokens.
static size_t find_chain(page_store *s, const int32_t *ids, size_t n, chain *best) {
  chain walked = {0};
  page_name before = page_name_first(s->of);
  size_t most = 0;
  for (size_t at = 0; at < n;) {
    const entry *next = NULL;
    size_t longest = 0;
    for (size_t i = first_after(s, &before); is_after(s, i, &before); i++) {
      const entry *x = &s->entries.at[i];
      size_t same = alike_in_page(&x->page, ids + at, n - at);
      if (same == x->page.n && same == CACHE_PAGE) next = x;
      if (!same || (same < longest && !(x->page.fixed && same == x->page.n))) continue;
      longest = (size_t)max_i64((int64_t)longest, (int64_t)same);
      vec_push(&walked, *x);
      size_t whole = whole_chain(s, &walked, ids, n, at + same);
      if (whole > most) {
        most = whole;
        best->n = 0;
        for (size_t j = 0; j < walked.n; j++) vec_push(best, walked.at[j]);
      }
      walked.n--;
    }
    if (!next) break;
    vec_push(&walked, *next);
    before = next->name;
    at += CACHE_PAGE;
  }
  vec_free(&walked);
  return most;
}

size_t page_store_find(page_store *s, const int32_t *ids, size_t n) {
  chain c = {0};
  pthread_mutex_lock(&s->lock);
  size_t most = find_chain(s, ids, n, &c);
  pthread_mutex_unlock(&s->lock);
  vec_free(&c);
  return most;
}

// Marks pages as used, the last one first, so that none is removed before its successors.
static void note_use(const page_store *s, const chain *c) {
  for (size_t i = c->n; i-- > 0;) {
    char *path = page_path(s, &c->at[i]);
    newfile_touch(path);
    free(path);
  }
}

int page_store_load(page_store *s, const int32_t *ids, size_t n, sequence **out, error *err) {
  chain c = {0};
  VEC(char *) paths = {0};
  size_t failed;
  pthread_mutex_lock(&s->lock);
  n = find_chain(s, ids, n, &c);
  pthread_mutex_unlock(&s->lock);
  for (size_t i = 0; i < c.n; i++) vec_push(&paths, page_path(s, &c.at[i]));
  int status = n ? pages_load(s->c, ids, n, (const char *const *)paths.at, s->most, s->of, &failed, out, err) : 1;
  if (!status) note_use(s, &c);
  if (status == BAD_FILE || status == NO_FILE) {
    if (status == BAD_FILE) unlink(paths.at[failed]);
    pthread_mutex_lock(&s->lock);
    forget_page(s, &c.at[failed]);
    pthread_mutex_unlock(&s->lock);
  }
  for (size_t i = 0; i < paths.n; i++) free(paths.at[i]);
  vec_free(&paths);
  vec_free(&c);
  return status == NO_FILE ? 1 : status;
}

// ---- saving ---------------------------------------------------------------------------------------------------------

// The pages of q, with their names.
static void pages_of(const page_store *s, const sequence *q, const int32_t *ids, chain *out) {
  page_name before = page_name_first(s->of);
  for (size_t i = 0; i < caches_n_pages(q->n); i++) {
    entry x = {.page = page_of_sequence(q, ids, i)};
    x.page.before = before;
    x.name = before = page_name_next(&before, x.page.ids, x.page.n);
    vec_push(out, x);
  }
}

static bool lacks_page(page_store *s, const entry *x) {
  pthread_mutex_lock(&s->lock);
  bool there = is_stored(s, &x->page);
  pthread_mutex_unlock(&s->lock);
  return !there;
}

bool page_store_lacks(page_store *s, const sequence *q, const int32_t *ids) {
  chain c = {0};
  bool some = false;
  pages_of(s, q, ids, &c);
  for (size_t i = 0; i < c.n && !some; i++) some = lacks_page(s, &c.at[i]);
  vec_free(&c);
  return some;
}

int page_store_save(page_store *s, const sequence *q, const int32_t *ids, error *err) {
  chain c = {0};
  int status = 0;
  pages_of(s, q, ids, &c);
  for (size_t i = 0; i < c.n && !status; i++) {
    if (!lacks_page(s, &c.at[i])) continue;
    char *path = page_path(s, &c.at[i]);
    status = page_save(q, &c.at[i].page, s->of, path, err);
    free(path);
    pthread_mutex_lock(&s->lock);
    if (!status) replace_pages(s, &c.at[i]);
    pthread_mutex_unlock(&s->lock);
  }
  note_use(s, &c);
  pthread_mutex_lock(&s->lock);
  trim_pages(s);
  pthread_mutex_unlock(&s->lock);
  vec_free(&c);
  return status;
}
