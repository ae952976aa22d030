// Which local model a repository of Hugging Face stands for: see pull_impl.h. What is here may be of several versions
// of the repository, with other types or a folder in place of a file. So a note in the store has what a reference
// fetched last: USER=REPO.name, or USER=REPO=QUANT.name. Its lines are the reference, the name of the file (of the
// first part) or of the folder, and "changed" if that took the place of another one. A reference without a note was
// never fetched as such, or by an older program: it stands for a file of the repository that is here.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/pull_impl.h"
#include "app/store.h"
#include "base/newfile.h"
#include <ctype.h>
#include <dirent.h>
#include <string.h>
#include <unistd.h>

enum { NOTE = 1024 };                // bytes of a note
static const char ending[] = ".name", changed_line[] = "changed\n";

struct name_note { str of, path; bool changed; };       // the reference, and the path that it stands for

static void name_note_clear(struct name_note *n) { str_free(&n->of); str_free(&n->path); }

static bool has_tag(const struct reference *r) { return r->tag[0] && strcmp(r->tag, "latest"); }

// ---- without a note -------------------------------------------------------------------------------------------------

// Finds a whole GGUF file of a repository, of the quantisation that is asked for or usual.
static int find_file(const stored_list *l, const struct reference *r, const char *from) {
  const char *usual[] = {"Q4_K_M", "Q8_0", ""};
  str name = {0};
  int found = -1;
  if (has_tag(r)) { usual[0] = r->tag; usual[1] = NULL; }
  str_addf(&name, "%s_%s_", r->user, r->repo);
  for (size_t k = 0; k < COUNT(usual) && usual[k] && found < 0; k++)
    for (size_t i = 0; i < l->n && found < 0; i++)
      if (!strncmp(l->at[i].name, name.at, name.n) && !l->at[i].partial && !l->at[i].folder &&
          !store_is_encoder(pull_base_name(l->at[i].path)) && store_came_from(l->at[i].path, from) &&
          (!usual[k][0] || pull_has_quant(l->at[i].name + name.n, usual[k])))
        found = (int)i;
  str_free(&name);
  return found;
}

static int find_folder(const stored_list *l, const struct reference *r) {
  str name = {0};
  int found = -1;
  str_addf(&name, "%s_%s", r->user, r->repo);
  for (size_t i = 0; i < l->n && !has_tag(r); i++)
    if (l->at[i].folder && !strcmp(l->at[i].name, name.at)) found = (int)i;
  str_free(&name);
  return found;
}

// Finds a model by name and origin alone.
static bool search_by_name(const struct reference *r, str *path) {
  stored_list l = {0};
  str from = {0};
  pull_add_origin(&from, r, "");
  store_list(&l);
  int found = find_file(&l, r, from.at);
  if (found < 0) found = find_folder(&l, r);
  bool yes = found >= 0 && !l.at[found].partial && store_came_from(l.at[found].path, from.at);
  path->n = 0;
  if (yes) str_add(path, l.at[found].path);
  store_free(&l);
  str_free(&from);
  return yes;
}

// ---- notes ----------------------------------------------------------------------------------------------------------

static void add_quant(str *out, char before, const struct reference *r) {
  if (!has_tag(r)) return;
  str_addc(out, before);
  for (const char *c = r->tag; *c; c++) str_addc(out, (char)tolower((unsigned char)*c));
}

// The path of a reference's note without its ending. No name contains "=", so no two references have one.
static bool name_note_path(const struct reference *r, str *out) {
  if (store_folder(out, NULL)) return false;
  str_addf(out, "/%s=%s", r->user, r->repo);
  add_quant(out, '=', r);
  return true;
}

// Reads the note of a reference. False: it has none. (A file system may not distinguish upper case.)
static bool read_name_note(const struct reference *r, struct name_note *out) {
  char text[NOTE];
  str at = {0}, prefix = {0};
  str_addf(&out->of, "hf:%s/%s", r->user, r->repo);
  add_quant(&out->of, ':', r);
  str_addf(&prefix, "%s_%s", r->user, r->repo);
  bool yes = name_note_path(r, &at) && store_read_note(at.at, ending, text, sizeof text) > out->of.n &&
             !strncmp(text, out->of.at, out->of.n) && text[out->of.n] == '\n';
  const char *name = yes ? text + out->of.n + 1 : "";
  size_t n = strcspn(name, "\n");
  yes = yes && name[n] == '\n' && !memchr(name, '/', n) && !strncmp(name, prefix.at, prefix.n);
  if (yes) {
    out->changed = !strcmp(name + n + 1, changed_line);
    store_folder(&out->path, NULL);
    str_addf(&out->path, "/%.*s", (int)n, name);
  }
  str_free(&at);
  str_free(&prefix);
  return yes;
}

bool pull_find_hf(const struct reference *r, str *path) {
  struct name_note note = {0};
  str from = {0};
  pull_add_origin(&from, r, "");
  bool noted = read_name_note(r, &note), yes = noted && store_is_whole(note.path.at) &&
                                          store_came_from(note.path.at, from.at);
  if (yes) { path->n = 0; str_add(path, note.path.at); }
  // what else is here may be of an older version
  else if (!noted || !note.changed) yes = search_by_name(r, path);
  name_note_clear(&note);
  str_free(&from);
  return yes;
}

static int write_name_note(const struct reference *r, const struct name_note *n, error *err) {
  str at = {0}, text = {0};
  if (!name_note_path(r, &at)) return error_set(err, "there is no folder of models");
  str_add(&at, ending);
  str_addf(&text, "%s\n%s\n%s", n->of.at, pull_base_name(n->path.at), n->changed ? changed_line : "");
  int status = newfile_note(at.at, text.at, text.n, err);
  if (status) unlink(at.at);                     // an older one would be wrong
  str_free(&at);
  str_free(&text);
  return status;
}

void pull_note_name(const struct reference *r, const char *path) {
  struct name_note note = {0};
  str found = {0};
  error why = {0};
  if (r->kind != HUGGING_FACE || r->file) return;
  bool noted = read_name_note(r, &note), same = noted && !strcmp(note.path.at, path), was_changed = note.changed;
  note.changed |= noted && !same;
  if (!note.changed) note.changed = !search_by_name(r, &found) || strcmp(found.at, path);
  note.path.n = 0;
  str_add(&note.path, path);
  if ((!same || note.changed != was_changed) && write_name_note(r, &note, &why))
    warning("which model %s stands for is not noted: %s", note.of.at, why.text);
  name_note_clear(&note);
  str_free(&found);
}

// A note with "changed" stays while models are here that are not meant.
static void forget_if_removed(const char *folder, const char *file) {
  char text[NOTE];
  str path = {0}, found = {0};
  struct name_note note = {0};
  struct reference r;
  str_addf(&path, "%s/%s", folder, file);
  store_read_note(path.at, "", text, sizeof text);
  text[strcspn(text, "\n")] = 0;
  bool ours = pull_is_name(text) && !pull_parse(text, &r, NULL) && r.kind == HUGGING_FACE && read_name_note(&r, &note);
  if (ours && access(note.path.at, F_OK) && !(note.changed && search_by_name(&r, &found))) unlink(path.at);
  name_note_clear(&note);
  str_free(&path);
  str_free(&found);
}

void pull_forget_removed(void) {
  str folder = {0};
  size_t m = sizeof ending - 1;
  DIR *d = store_folder(&folder, NULL) ? NULL : opendir(folder.at);
  for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
    size_t n = strlen(e->d_name);
    if (n > m && !strcmp(e->d_name + n - m, ending)) forget_if_removed(folder.at, e->d_name);
  }
  if (d) closedir(d);
  str_free(&folder);
}
