// Sequences in files: see keep.h.
#define _GNU_SOURCE
#include "serve/keep.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/base.h"
#include "base/str.h"

enum { LEAST = 64 /* tokens: fewer are soon evaluated again */ };
static const char suffix[] = ".sequence";

static void forget(keep *k, size_t at, bool removed) {
  if (removed) unlink(k->files.at[at].path);
  free(k->files.at[at].path);
  vec_free(&k->files.at[at].ids);
  k->files.at[at] = k->files.at[--k->files.n];
}

void keep_open(keep *k, const char *folder, weft_model *m) {
  *k = (keep){.folder = folder, .m = m};
  DIR *d = folder ? opendir(folder) : NULL;
  if (folder) umask(077);                // prompts are in these files, and this program writes no others
  if (folder && !d) warning("--keep-in %s: %s: nothing is taken up from there", folder, strerror(errno));
  for (struct dirent *e; d && (e = readdir(d));) {
    size_t n = strlen(e->d_name);
    if (n <= sizeof suffix - 1 || strcmp(e->d_name + n - (sizeof suffix - 1), suffix)) continue;
    str path = {0};
    struct kept new = {0};
    weft_error err;
    int32_t *ids;
    str_addf(&path, "%s/%s", folder, e->d_name);
    if (weft_sequence_tokens(m, str_c(&path), &ids, &n, &err)) { warning("%s", err.text); str_free(&path); continue; }
    new.path = xstrdup(str_c(&path));
    for (size_t i = 0; i < n; i++) vec_push(&new.ids, ids[i]);
    vec_push(&k->files, new);
    weft_free(ids);
    str_free(&path);
  }
  if (d) closedir(d);
}

void keep_close(keep *k) {
  while (k->files.n) forget(k, 0, false);
  vec_free(&k->files);
}

size_t keep_find(const keep *k, const token_ids *prompt, size_t most, size_t *at) {
  size_t best = 0;
  bool whole = k->files.n && weft_model_is_recurrent(k->m);
  for (size_t i = 0; i < k->files.n; i++) {
    size_t n = (size_t)min_i64((int64_t)alike(prompt, &k->files.at[i].ids), (int64_t)most);
    if (n <= best || (whole && n < k->files.at[i].ids.n)) continue;
    best = n;
    *at = i;
  }
  return best;
}

int keep_load(keep *k, size_t at, const token_ids *prompt, size_t n, held *out, weft_error *err) {
  *out = (held){0};
  int status = weft_sequence_load(k->m, prompt->at, n, k->files.at[at].path, &out->sequence, err);
  if (status) return status;
  for (size_t i = 0; i < (size_t)weft_sequence_length(out->sequence); i++) vec_push(&out->past, prompt->at[i]);
  return 0;
}

void keep_drop(keep *k, size_t at) { forget(k, at, true); }

void keep_save(keep *k, const held *h) {
  if (!k->folder || h->past.n < LEAST) return;
  for (size_t i = 0; i < k->files.n; i++) if (alike(&h->past, &k->files.at[i].ids) == h->past.n) return;
  str path = {0};
  weft_error err;
  str_addf(&path, "%s/%016llx%s", k->folder, (unsigned long long)hash_bytes(h->past.at, h->past.n * sizeof *h->past.at, 0), suffix);
  if (weft_sequence_save(h->sequence, h->past.at, str_c(&path), &err)) {
    warning("%s", err.text);
  } else {
    for (size_t i = k->files.n; i-- > 0;) if (alike(&h->past, &k->files.at[i].ids) == k->files.at[i].ids.n) forget(k, i, true);
    struct kept new = {.path = xstrdup(str_c(&path))};
    for (size_t i = 0; i < h->past.n; i++) vec_push(&new.ids, h->past.at[i]);
    vec_push(&k->files, new);
  }
  str_free(&path);
}

void keep_trim(keep *k, uint64_t bytes) {
  for (;;) {
    uint64_t all = 0;
    size_t oldest = 0;
    struct timespec first = {0};
    for (size_t i = 0; i < k->files.n; i++) {
      struct stat s;
      if (stat(k->files.at[i].path, &s)) continue;
      all += (uint64_t)s.st_size;
      if (i && (s.st_mtim.tv_sec > first.tv_sec || (s.st_mtim.tv_sec == first.tv_sec && s.st_mtim.tv_nsec >= first.tv_nsec))) continue;
      first = s.st_mtim;
      oldest = i;
    }
    if (all <= bytes || !k->files.n) return;
    forget(k, oldest, true);
  }
}
