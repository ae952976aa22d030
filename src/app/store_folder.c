// Folders of the store: a model as transformers saves it. Next to a folder NAME, the note NAME.from has its origin; an
// empty note says that files are still missing. See store.h.
#define _GNU_SOURCE
#include "app/store.h"
#include "base/map.h"
#include "base/newfile.h"
#include "weft.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int store_folder_path(const char *user, const char *repo, str *out, error *err) {
  if (store_folder(out, err)) return -1;
  str_addf(out, "/%s_%s", user, repo);
  return 0;
}

static void note_of(const char *folder, str *out) { str_addf(out, "%s" STORE_ORIGIN, folder); }

int store_begin_folder(const char *path, error *err) {
  struct stat st;
  str note = {0};
  note_of(path, &note);
  int status = store_make(err);
  bool made = !status && !mkdir(path, 0777);
  if (!status && !made && errno != EEXIST) status = error_set(err, "%.300s: %s", path, strerror(errno));
  if (!status && !made && (lstat(path, &st) || !S_ISDIR(st.st_mode) || lstat(note.at, &st)))
    status = error_set(err, "%.300s: is in the way of the model's folder, and was not fetched", path);
  if (!status) status = newfile_note(note.at, NULL, 0, err);
  str_free(&note);
  return status;
}

int store_make_folder_of(const char *path, error *err) {
  str folder = {0};
  str_addn(&folder, path, (size_t)(strrchr(path, '/') - path));
  struct stat st;
  int status = mkdir(folder.at, 0777) && (lstat(folder.at, &st) || !S_ISDIR(st.st_mode))
                 ? error_set(err, "%.300s: %s", folder.at, strerror(errno)) : 0;
  str_free(&folder);
  return status;
}

// ---- all files of a folder ------------------------------------------------------------------------------------------

struct visit {
  void (*file)(void *ctx, const char *path, const struct stat *st);
  void (*folder)(void *ctx, const char *path);       // after its files; NULL: nothing is to be done
  void *ctx;
};

// Calls v for the files of a folder and of its subfolders. Links are files.
static void visit_files(const char *path, bool below, const struct visit *v) {
  DIR *d = opendir(path);
  for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
    str file = {0};
    struct stat st;
    str_addf(&file, "%s/%s", path, e->d_name);
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || lstat(file.at, &st)) {}
    else if (!S_ISDIR(st.st_mode)) v->file(v->ctx, file.at, &st);
    else if (below) visit_files(file.at, false, v);
    str_free(&file);
  }
  if (d) closedir(d);
  if (v->folder) v->folder(v->ctx, path);
}

static void count_file(void *ctx, const char *path, const struct stat *st) {
  struct stored *row = ctx;
  (void)path;
  row->bytes += (uint64_t)st->st_size;
  if (st->st_mtime > row->changed) row->changed = st->st_mtime;
}

bool store_read_folder(const char *path, struct stored *row) {
  str note = {0};
  struct stat st;
  char first[2];
  note_of(path, &note);
  bool ours = !lstat(path, &st) && S_ISDIR(st.st_mode) && !lstat(note.at, &st) && S_ISREG(st.st_mode);
  str_free(&note);
  if (!ours) return false;
  *row = (struct stored){.parts = 1, .folder = true};
  row->partial = !store_read_note(path, STORE_ORIGIN, first, sizeof first);
  visit_files(path, true, &(struct visit){.file = count_file, .ctx = row});
  return true;
}

struct removal { error *err; int status; };

static void note_failure(struct removal *r, const char *path) {
  if (errno != ENOENT && !r->status) r->status = error_set(r->err, "%.300s: %s", path, strerror(errno));
}

static void remove_file(void *ctx, const char *path, const struct stat *st) {
  (void)st;
  if (unlink(path)) note_failure(ctx, path);
}

static void remove_empty(void *ctx, const char *path) { if (rmdir(path)) note_failure(ctx, path); }

int store_remove_folder(const char *path, error *err) {
  struct removal r = {.err = err};
  str note = {0};
  note_of(path, &note);
  // what is left if this ends early is partial
  if (newfile_note(note.at, NULL, 0, err)) { str_free(&note); return -1; }
  visit_files(path, true, &(struct visit){.file = remove_file, .folder = remove_empty, .ctx = &r});
  if (!r.status) remove_file(&r, note.at, NULL);
  note.n = 0;
  str_addf(&note, "%s.mmproj", path);
  if (!r.status) remove_file(&r, note.at, NULL);
  str_free(&note);
  return r.status;
}

// ---- what a newer version has no more -------------------------------------------------------------------------------

struct kept { const char *folder; smap paths; };

static bool strip_ending(str *path, const char *ending) {
  size_t n = strlen(ending);
  bool has = path->n > n && !strcmp(path->at + path->n - n, ending);
  if (has) path->at[path->n -= n] = 0;
  return has;
}

// Removes a file that would be read, or a note or a part of one, if it is not kept.
static void remove_old(void *ctx, const char *path, const struct stat *st) {
  const struct kept *k = ctx;
  str of = {0};
  (void)st;
  str_add(&of, path);
  if (!strip_ending(&of, STORE_ORIGIN)) strip_ending(&of, ".etag");
  bool keeps = !strip_ending(&of, ".part") && smap_get(&k->paths, of.at, of.n, NULL);
  if (!keeps && weft_folder_reads(of.at + strlen(k->folder) + 1)) unlink(path);
  str_free(&of);
}

int store_end_folder(const char *path, const char *const *paths, size_t n, const char *origin, error *err) {
  struct kept k = {.folder = path};
  for (size_t i = 0; i < n; i++) smap_set(&k.paths, paths[i], strlen(paths[i]), NULL);
  visit_files(path, true, &(struct visit){.file = remove_old, .ctx = &k});
  smap_free(&k.paths);
  return store_note_origin(path, origin, false, err);
}
