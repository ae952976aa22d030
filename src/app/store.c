// The folder of downloaded models: see store.h.
#define _GNU_SOURCE
#include "app/store.h"
#include "base/env.h"
#include "base/newfile.h"
#include "base/os.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = 200 };
static const char model[] = ".gguf", part[] = ".part", tag[] = ".etag", encoder_note[] = ".mmproj",
                  origin_note[] = STORE_ORIGIN;

static bool ends(const char *name, const char *with) {
  size_t n = strlen(name), m = strlen(with);
  return n > m && !strcasecmp(name + n - m, with);
}

static bool is_folder(const char *path) {
  struct stat st;
  return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool in_caches(str *out, const char *folder) {
  return env_folder(ENV_XDG_CACHE_HOME, ".cache", folder, out);
}

int store_folder(str *out, error *err) {
  const char *theirs = env_str(ENV_LLAMA_CACHE), *ours = env_str(ENV_WEFT_CACHE);
  out->n = 0;
  if (*theirs) {
    str_add(out, theirs);
    while (out->n > 1 && out->at[out->n - 1] == '/') out->at[--out->n] = 0;
    return 0;
  }
  if (in_caches(out, "llama.cpp") && is_folder(out->at)) return 0;
  out->n = 0;
  if (os_is_absolute(ours)) str_addf(out, "%s/models", ours);
  else if (!in_caches(out, "weft/models"))
    return error_set(err, "there is no place for models: neither LLAMA_CACHE, XDG_CACHE_HOME nor HOME is set");
  return 0;
}

int store_make(error *err) {
  str path = {0};
  int status = store_folder(&path, err);
  for (char *slash = path.at; !status && (slash = strchr(slash + 1, '/')) != NULL;) {
    *slash = 0;
    mkdir(path.at, 0777);
    *slash = '/';
  }
  if (!status && mkdir(path.at, 0777) && !is_folder(path.at))
    status = error_set(err, "%.300s: %s", path.at, strerror(errno));
  str_free(&path);
  return status;
}

bool store_is_encoder(const char *name) {
  size_t n = strlen(name);
  return n > 5 && !strcasecmp(name + n - 5, ".gguf") && strcasestr(name, "mmproj");
}

bool store_part(const char *name, int *number, int *of, size_t *stem) {
  size_t n = strlen(name);
  const char *at = n > 20 ? name + n - 20 : NULL;            // -00002-of-00005.gguf
  int used = 0;
  if (!at || strcasecmp(name + n - 5, model) || sscanf(at, "-%5d-of-%5d%n", number, of, &used) != 2 || used != 15)
    return false;
  *stem = (size_t)(at - name);
  return *number >= 1 && *of >= 1;
}

bool store_shares_repo(const char *of, const char *encoder) {
  const char *first = strchr(encoder, '_'), *end = first ? strcasestr(first + 1, "_mmproj") : NULL;
  if (first && !end) end = strchr(first + 1, '_');
  return end && !strncmp(of, encoder, (size_t)(end - encoder) + 1);
}

// ---- encoders -------------------------------------------------------------------------------------------------------

bool store_holds(const char *path) {
  str folder = {0};
  const char *slash = strrchr(path, '/');
  bool yes = slash && !store_folder(&folder, NULL) && folder.n == (size_t)(slash - path) &&
             !strncmp(folder.at, path, folder.n);
  str_free(&folder);
  return yes;
}

// before: the lines that stay
static int write_note(const char *to, const char *ending, const char *before, const char *line, error *err) {
  str path = {0}, whole = {0};
  str_addf(&path, "%s%s", to, ending);
  str_addf(&whole, "%s%s\n", before, line);
  int status = newfile_note(path.at, whole.at, whole.n, err);
  str_free(&whole);
  str_free(&path);
  return status;
}

size_t store_read_note(const char *of, const char *ending, char *to, size_t size) {
  str path = {0};
  struct stat st;
  size_t n = 0;
  str_addf(&path, "%s%s", of, ending);
  int fd = open(path.at, O_RDONLY | O_CLOEXEC | O_NONBLOCK);              // does not wait for a pipe
  if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode))
    for (ssize_t got; n < size - 1 && (got = read(fd, to + n, size - 1 - n)) > 0;) n += (size_t)got;
  if (fd >= 0) close(fd);
  str_free(&path);
  to[n] = 0;
  return n;
}

enum { LINES = 1 << 16, LINE = 1024 };           // bytes of origins that are read; of the first one

int store_note_origin(const char *path, const char *origin, bool again, error *err) {
  if (!again && !store_came_from(path, origin)) {            // the old file's encoder note does not apply either
    str note = {0};
    str_addf(&note, "%s%s", path, encoder_note);
    unlink(note.at);
    str_free(&note);
  }
  char *before = xcalloc(1, LINES);
  if (again) store_read_note(path, origin_note, before, LINES);
  char *end = strrchr(before, '\n');
  before[end ? end + 1 - before : 0] = 0;                    // without a line that is cut
  int status = write_note(path, origin_note, before, origin, err);
  free(before);
  return status;
}

// Also true if the note is empty.
static bool has_origin(const char *path) {
  str note = {0};
  struct stat st;
  str_addf(&note, "%s%s", path, origin_note);
  bool yes = !stat(note.at, &st) && S_ISREG(st.st_mode);
  str_free(&note);
  return yes;
}

bool store_came_from(const char *path, const char *origin) {
  char *noted = xmalloc(LINES);
  size_t n = strlen(origin);
  bool yes = !has_origin(path);
  store_read_note(path, origin_note, noted, LINES);
  for (const char *line = noted; !yes && *line; line += strcspn(line, "\n"), line += *line == '\n')
    yes = !strncmp(line, origin, n) && (origin[n - 1] == '/' || line[n] == '\n');
  free(noted);
  return yes;
}

int store_note_encoder(const char *to, const char *encoder, error *err) {
  const char *slash = encoder ? strrchr(encoder, '/') : NULL;
  return write_note(to, encoder_note, "", slash ? slash + 1 : "-", err);
}

bool store_origin(const char *path, str *out) {
  char line[LINE];
  size_t n = store_read_note(path, origin_note, line, sizeof line);
  out->n = 0;
  str_addn(out, line, strcspn(line, "\n"));
  return n > 0;
}

// The length of the repository in an origin: "hf:USER/REPO/", "ollama:USER/NAME:", or the folder of an address.
static size_t repo_in(const char *origin) {
  size_t n = strcspn(origin, "\n"), slashes = 0, at = 0;
  bool hf = !strncmp(origin, "hf:", 3), ollama = !strncmp(origin, "ollama:", 7);
  if (!hf && !ollama) n = strcspn(origin, "?\n");
  for (size_t i = 0; i < n && (!hf || slashes < 2); i++) {
    if (origin[i] == (ollama ? ':' : '/')) at = i + 1;
    slashes += origin[i] == '/';
  }
  return at ? at : n;
}

// Returns whether a line of one note has the repository of a line of the other one.
static bool shares_origin(const char *of, const char *with) {
  for (const char *a = of; *a; a += strcspn(a, "\n"), a += *a == '\n')
    for (const char *b = with; *b; b += strcspn(b, "\n"), b += *b == '\n')
      if (!strncmp(a, b, repo_in(a))) return true;
  return false;
}

bool store_is_encoder_of(const char *encoder, const char *of, const char *repo) {
  if (repo) return store_came_from(encoder, repo);
  if (!has_origin(encoder) || !has_origin(of)) return true;
  char *its = xmalloc(LINES), *ours = xmalloc(LINES);
  store_read_note(encoder, origin_note, its, LINES);
  store_read_note(of, origin_note, ours, LINES);
  bool yes = shares_origin(its, ours);
  free(its);
  free(ours);
  return yes;
}

bool store_encoder(const char *of, const char *repo, str *path) {
  char name[LONGEST + 64] = "";
  const char *slash = strrchr(of, '/');
  path->n = 0;
  if (store_holds(of)) store_read_note(of, encoder_note, name, sizeof name);
  size_t n = strcspn(name, "\n");
  bool whole = name[n] == '\n', none = whole && !strncmp(name, "-\n", 2);
  name[n] = 0;
  path->n = 0;
  if (none || !whole || strchr(name, '/') || !store_is_encoder(name)) return none;
  str_addf(path, "%.*s/%s", (int)(slash - of), of, name);
  if (!access(path->at, R_OK) && store_is_encoder_of(path->at, of, repo)) return true;
  path->n = 0;
  return false;
}

// ---- the list -------------------------------------------------------------------------------------------------------

static int by_name(const void *a, const void *b) {
  return strcmp(((const struct stored *)a)->name, ((const struct stored *)b)->name);
}

// The model that a file name belongs to, without part number and ending. False: not a model file.
static bool belongs_to(const char *file, str *name, bool *partial, int *of) {
  int number;
  size_t stem = 0;
  name->n = 0;
  str_add(name, file);
  *partial = ends(file, part);
  *of = 1;
  if (*partial) name->at[name->n -= sizeof part - 1] = 0;
  if (!ends(name->at, model)) return false;
  if (store_part(name->at, &number, of, &stem)) name->at[name->n = stem] = 0;
  else name->at[name->n -= sizeof model - 1] = 0;
  return true;
}

static struct stored *row_of(stored_list *l, const char *name, int of) {
  for (size_t i = 0; i < l->n; i++)
    if (!l->at[i].folder && l->at[i].of == of && !strcmp(l->at[i].name, name)) return &l->at[i];
  vec_push(l, ((struct stored){.name = xstrdup(name), .of = of}));
  return &l->at[l->n - 1];
}

static void add_stored(stored_list *l, const char *folder, const char *file) {
  str name = {0}, path = {0};
  struct stat st;
  bool partial;
  int of;
  str_addf(&path, "%s/%s", folder, file);
  struct stored its = {0};
  if (file[0] != '.' && store_read_folder(path.at, &its)) {
    its.name = xstrdup(file);
    its.path = xstrdup(path.at);
    vec_push(l, its);
  } else if (belongs_to(file, &name, &partial, &of) && !stat(path.at, &st) && S_ISREG(st.st_mode)) {
    struct stored *row = row_of(l, name.at, of);
    row->bytes += (uint64_t)st.st_size;
    if (st.st_mtime > row->changed) row->changed = st.st_mtime;
    row->missing = of - ++row->parts;
    row->partial |= partial || (of > 1 && newfile_is_partial(path.at));
    if (partial) path.at[path.n -= sizeof part - 1] = 0;
    if (!row->path || strcmp(path.at, row->path) < 0) { free(row->path); row->path = xstrdup(path.at); }
  }
  str_free(&name);
  str_free(&path);
}

// Versions of a model that are in one file, in two parts, in three: those in parts have the first part's name then.
static void name_apart(stored_list *l) {
  char **names = xcalloc(l->n + 1, sizeof *names);
  for (size_t i = 0; i < l->n; i++) {
    const struct stored *row = &l->at[i];
    for (size_t k = 0; row->of > 1 && !names[i] && k < l->n; k++) {
      if (!l->at[k].of || l->at[k].of == row->of || strcmp(l->at[k].name, row->name)) continue;
      str name = {0};
      str_addf(&name, "%s-00001-of-%05d", row->name, row->of);
      names[i] = name.at;
    }
  }
  for (size_t i = 0; i < l->n; i++) if (names[i]) { free(l->at[i].name); l->at[i].name = names[i]; }
  free(names);
}

void store_list(stored_list *out) {
  str folder = {0};
  DIR *d = store_folder(&folder, NULL) ? NULL : opendir(folder.at);
  for (struct dirent *e; d && (e = readdir(d)) != NULL;) add_stored(out, folder.at, e->d_name);
  if (d) closedir(d);
  name_apart(out);
  if (out->n) qsort(out->at, out->n, sizeof *out->at, by_name);
  for (size_t i = 0; i < out->n; i++) out->at[i].partial |= out->at[i].missing > 0;
  str_free(&folder);
}

void store_free(stored_list *l) {
  for (size_t i = 0; i < l->n; i++) { free(l->at[i].name); free(l->at[i].path); }
  vec_free(l);
}

int store_find(const stored_list *l, const char *name) {
  for (size_t i = 0; i < l->n; i++) if (l->at[i].folder && !strcmp(l->at[i].name, name)) return (int)i;
  size_t n = strlen(name) - (ends(name, model) ? sizeof model - 1 : 0);
  for (size_t i = 0; i < l->n; i++) if (strlen(l->at[i].name) == n && !strncmp(l->at[i].name, name, n)) return (int)i;
  return -1;
}

bool store_is_whole(const char *path) {
  struct stored row;
  struct stat st;
  int number = 1, of = 1;
  size_t stem;
  if (store_read_folder(path, &row)) return !row.partial;
  bool split = store_part(path, &number, &of, &stem), yes = true;
  for (int i = 1; yes && i <= of; i++) {
    str one = {0};
    if (split) str_addf(&one, "%.*s-%05d-of-%05d%s", (int)stem, path, i, of, model);
    else str_add(&one, path);
    yes = !stat(one.at, &st) && S_ISREG(st.st_mode) && !(split && newfile_is_partial(one.at));
    str_add(&one, part);
    yes = yes && access(one.at, F_OK);
    str_free(&one);
  }
  return yes;
}

static int remove_parts(const struct stored *s, error *err) {
  str folder = {0}, name = {0}, path = {0}, its = {0};
  bool partial;
  int of, status = 0;
  if (store_folder(&folder, err)) return -1;
  belongs_to(strrchr(s->path, '/') + 1, &its, &partial, &of);
  DIR *d = opendir(folder.at);
  for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
    str file = {0};
    str_add(&file, e->d_name);
    if (ends(file.at, tag)) file.at[file.n -= sizeof tag - 1] = 0;
    if (ends(file.at, encoder_note)) file.at[file.n -= sizeof encoder_note - 1] = 0;
    if (ends(file.at, origin_note)) file.at[file.n -= sizeof origin_note - 1] = 0;
    if (belongs_to(file.at, &name, &partial, &of) && of == s->of && !strcmp(name.at, its.at)) {
      path.n = 0;
      str_addf(&path, "%s/%s", folder.at, e->d_name);
      if (unlink(path.at) && errno != ENOENT) status = error_set(err, "%.300s: %s", path.at, strerror(errno));
    }
    str_free(&file);
  }
  if (d) closedir(d);
  str_free(&folder); str_free(&name); str_free(&path); str_free(&its);
  return status;
}

int store_remove(const struct stored *s, error *err) {
  int lock;
  if (store_lock(s->path, &lock, err)) return -1;
  int status = s->folder ? store_remove_folder(s->path, err) : remove_parts(s, err);
  store_unlock(s->path, lock);
  return status;
}

// ---- names ----------------------------------------------------------------------------------------------------------

// A slash becomes "_", as in llama.cpp's names; other special characters are errors.
int store_path(const char *name, str *out, error *err) {
  if (store_folder(out, err)) return -1;
  size_t n = strlen(name);
  bool fine = n && n <= LONGEST && name[0] != '.' && name[0] != '/' && !strstr(name, "..");
  for (size_t i = 0; fine && i < n; i++) fine = isalnum((unsigned char)name[i]) || strchr("-_.+=@/() ", name[i]);
  if (!fine) return error_set(err, "'%.100s' cannot be the name of a file here", name);
  str_addc(out, '/');
  for (size_t i = 0; i < n; i++) str_addc(out, name[i] == '/' ? '_' : name[i]);
  if (!ends(name, model)) str_add(out, model);
  return 0;
}
