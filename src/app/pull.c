// Models by name: see pull.h. A name becomes a list of files, each with its address, and with size and SHA-256 if the
// registry has them. The files are downloaded one after the other.
#define _GNU_SOURCE
#include "app/pull_impl.h"
#include "app/app.h"
#include "app/encoders.h"
#include "app/json.h"
#include "app/store.h"
#include "base/env.h"
#include "base/newfile.h"
#include "base/sha256.h"
#include "base/stamp.h"
#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

// again: as in pull_model; there: the model is present and only its encoder is requested.
struct job { const struct reference *r; const struct model_source *from; bool again, quiet, there; };

void wanted_clear(struct wanted *w) {
  str_free(&w->url); str_free(&w->path); str_free(&w->from);
  free(w->shown);
}

static void wanted_free(wanted_list *l) {
  for (size_t i = 0; i < l->n; i++) wanted_clear(&l->at[i]);
  vec_free(l);
}

// ---- names ----------------------------------------------------------------------------------------------------------

static const struct { const char *text; enum registry kind;
} prefixes[] = {{"hf:", HUGGING_FACE}, {"hf.co/", HUGGING_FACE}, {"huggingface.co/", HUGGING_FACE},
                {"ollama:", OLLAMA},   {"http://", ADDRESS},     {"https://", ADDRESS}};

static size_t prefix_of(const char *text, enum registry *kind) {
  for (size_t i = 0; i < COUNT(prefixes); i++) {
    size_t n = strlen(prefixes[i].text);
    if (!strncasecmp(text, prefixes[i].text, n)) { *kind = prefixes[i].kind; return n; }
  }
  return 0;
}

bool pull_is_name(const char *text) { enum registry k; return prefix_of(text, &k) > 0; }

bool pull_asked(int argc, char **argv) {
  static const char *const options[] = {"-hf", "-hfr", "--hf-repo", "-mu", "--model-url"};
  for (int i = 1; i < argc; i++) {
    if (pull_is_name(argv[i]) || (!strncmp(argv[i], "--model=", 8) && pull_is_name(argv[i] + 8))) return true;
    for (size_t k = 0; k < COUNT(options); k++) {
      size_t n = strlen(options[k]);
      if (!strncmp(argv[i], options[k], n) && (!argv[i][n] || (n > 4 && argv[i][n] == '='))) return true;
    }
  }
  return false;
}

static bool take_part(char *to, const char *text, size_t n) {
  if (!n || n >= PULL_NAME || text[0] == '.' || text[0] == '-') return false;
  for (size_t i = 0; i < n; i++) if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i])) return false;
  snprintf(to, PULL_NAME, "%.*s", (int)n, text);
  return true;
}

// Parses user/repo[:tag]; ollama's names may have no user.
static int parse_name(const char *text, enum registry kind, struct reference *out, error *err) {
  *out = (struct reference){.kind = kind};
  const char *slash = strchr(text, '/'), *colon = strchr(slash ? slash : text, ':');
  size_t end = colon ? (size_t)(colon - text) : strlen(text), from = slash ? (size_t)(slash - text) + 1 : 0;
  bool fine = slash ? take_part(out->user, text, from - 1) : kind == OLLAMA;
  if (!slash) snprintf(out->user, sizeof out->user, "library");
  fine = fine && take_part(out->repo, text + from, end - from) &&
         (!colon || take_part(out->tag, colon + 1, strlen(colon + 1)));
  if (fine) return 0;
  return kind == OLLAMA
           ? error_set(err, "'%.100s' is not a name of ollama's: it is NAME, NAME:TAG or USER/NAME:TAG", text)
           : error_set(err,
                       "'%.100s' is not a repository of Hugging Face: it is USER/REPO or USER/REPO:QUANT, such as "
                       "ggml-org/gemma-3-1b-it-GGUF:Q8_0",
                       text);
}

int pull_parse(const char *text, struct reference *out, error *err) {
  enum registry kind = strchr(text, '/') ? HUGGING_FACE : OLLAMA;
  size_t n = prefix_of(text, &kind);
  if (kind == ADDRESS) { *out = (struct reference){.kind = ADDRESS, .url = text}; return 0; }
  return parse_name(text + n, kind, out, err);
}

// ---- ollama's registry ----------------------------------------------------------------------------------------------

static void ollama_name(const struct reference *r, str *out) {
  str_add(out, "ollama_");
  if (strcmp(r->user, "library")) str_addf(out, "%s_", r->user);
  str_addf(out, "%s_%s", r->repo, r->tag[0] ? r->tag : "latest");
}

static const json_t *manifest_layer(const json_t *layers, const char *type) {
  const json_t *l;
  size_t i;
  json_array_foreach(layers, i, l) {
    const char *its = json_string_value(json_object_get(l, "mediaType"));
    if (its && !strcmp(its, type)) return l;
  }
  return NULL;
}

static int add_layer(const struct reference *r, const json_t *layer, const char *end, wanted_list *out, error *err) {
  const char *digest = json_string_value(json_object_get(layer, "digest")), *tag = r->tag[0] ? r->tag : "latest";
  const json_t *size = json_object_get(layer, "size");
  struct wanted w = {.size = json_is_integer(size) ? (int64_t)json_integer_value(size) : -1, .model = true};
  str name = {0};
  if (!digest || strncmp(digest, "sha256:", 7) || strlen(digest) != 71 ||
      strspn(digest + 7, "0123456789abcdef") != 64 || w.size < 0)
    return error_set(err, "%s:%s: its manifest has no SHA-256 and size of the model", r->repo, tag);
  memcpy(w.sha256, digest + 7, 65);
  str_addf(&w.url, "%s/v2/%s/%s/blobs/%s", env_str(ENV_OLLAMA_REGISTRY), r->user, r->repo, digest);
  str_addf(&name, "%s:%s%s", r->repo, tag, end);
  w.shown = xstrdup(name.at);
  pull_add_origin(&w.from, r, "");
  name.n = 0;
  ollama_name(r, &name);
  str_add(&name, end);
  int status = store_path(name.at, &w.path, err);
  str_free(&name);
  if (status) wanted_clear(&w); else vec_push(out, w);
  return status;
}

static int list_ollama(http *h, const struct reference *r, wanted_list *out, error *err) {
  str url = {0}, text = {0};
  int code;
  const char *tag = r->tag[0] ? r->tag : "latest";
  str_addf(&url, "%s/v2/%s/%s/manifests/%s", env_str(ENV_OLLAMA_REGISTRY), r->user, r->repo, tag);
  int status = http_text(h, url.at, PULL_LISTING, &text, &code, err);
  if (status == -1 && code == 404) {
    *err = (error){0};
    error_set(err, "%s:%s: ollama's registry has no such model", r->repo, tag);
  }
  json_t *all = status ? NULL : json_read(str_c(&text), text.n, 0, NULL, NULL);
  const json_t *layers = json_object_get(all, "layers"),
               *model = manifest_layer(layers, "application/vnd.ollama.image.model"),
               *encoder = manifest_layer(layers, "application/vnd.ollama.image.projector");
  if (!status && model) status = add_layer(r, model, "", out, err);
  if (!status && model && encoder) {
    error why = {0};
    size_t before = out->n;
    if (add_layer(r, encoder, "-mmproj", out, &why))
      warning("%s:%s: its encoder is left out: %s", r->repo, tag, why.text);
    else out->at[before].encoder = true;
  }
  if (!status && !model) status = error_set(err, "%.300s: not a manifest with a model", url.at);
  json_decref(all);
  str_free(&url);
  str_free(&text);
  return status;
}

// ---- addresses ------------------------------------------------------------------------------------------------------

// Adds an address in the form that the store notes: without the user's name, and with only a checksum of the query,
// which may be secret.
static void add_address(str *out, const char *host) {
  size_t n = strcspn(host, "?#"), end = strcspn(host, "#");
  char sum[65];
  str_addf(out, "%.*s", (int)n, host);
  if (end <= n + 1) return;
  sha256 s;
  sha256_begin(&s);
  sha256_add(&s, (const unsigned char *)host + n + 1, end - n - 1);
  sha256_end(&s, sum);
  str_addf(out, "?%s", sum);
}

// Lists the file of an address. Its local name is the whole address, since other addresses have files of equal name;
// user, query and %20 escapes are left out.
static int list_address(const struct reference *r, wanted_list *out, error *err) {
  const char *host = strstr(r->url, "://") + 3, *user = memchr(host, '@', strcspn(host, "/?#"));
  if (user) host = user + 1;
  size_t n = strcspn(host, "?#");
  str name = {0};
  for (size_t i = 0; i < n; i++) {
    unsigned c;
    if (host[i] == '%' && i + 2 < n && sscanf(host + i + 1, "%2x", &c) == 1) { str_addc(&name, (char)c); i += 2; }
    else str_addc(&name, host[i] == ':' ? '_' : host[i]);
  }
  const char *slash = strrchr(str_c(&name), '/');
  struct wanted w = {.size = -1, .model = true};
  int status = slash && slash[1] ? store_path(name.at, &w.path, err)
                                 : error_set(err, "%.300s: an address without the name of a file", r->url);
  str_add(&w.url, r->url);
  add_address(&w.from, host);
  w.shown = xstrdup(slash && slash[1] ? slash + 1 : r->url);
  vec_push(out, w);
  str_free(&name);
  return status;
}

// ---- fetching -------------------------------------------------------------------------------------------------------

// Reads the checksum noted with a downloaded file (its ETag, as on Hugging Face and in llama.cpp). False: no note.
static bool noted_sum(const char *path, char sum[65]) {
  char noted[80];
  store_read_note(path, ".etag", noted, sizeof noted);
  const char *at = noted + (noted[0] == '"');
  if (strspn(at, "0123456789abcdef") != 64) return false;
  memcpy(sum, at, 64);
  sum[64] = 0;
  return true;
}

static const char magic[] = "GGUF";    // of all downloads: models, encoders, adapters

static bool begins_as_model(const char *path) {
  char head[sizeof magic - 1] = {0};
  FILE *f = fopen(path, "re");
  bool well = f && fread(head, 1, sizeof head, f) == sizeof head && !memcmp(head, magic, sizeof head);
  if (f) fclose(f);
  return well;
}

static bool sums_to_wanted(const struct wanted *w, progress *bar) {
  enum { PIECE = 1 << 20 };
  char got[65];
  sha256 s;
  FILE *f = fopen(w->path.at, "re");
  unsigned char *piece = xmalloc(PIECE);
  uint64_t done = 0;
  sha256_begin(&s);
  for (size_t n; f && !interrupted() && (n = fread(piece, 1, PIECE, f)); done += n) {
    sha256_add(&s, piece, n);
    if (w->size > 0) progress_set(bar, "checking", (double)done / (double)w->size);
  }
  sha256_end(&s, got);
  if (f) fclose(f);
  free(piece);
  return !strcmp(got, w->sha256);
}

// Returns whether the noted ETag is git's name of the content, if the registry has that.
static bool has_blob(const struct wanted *w) {
  char noted[80];
  store_read_note(w->path.at, ".etag", noted, sizeof noted);
  return !w->blob[0] || strstr(noted, w->blob);
}

// Returns whether the file is present with the registry's size and checksum; without a checksum its origin must be
// equal. The checksum was verified after the download, just before it was noted. A file changed since (by its ctime,
// which programs cannot set) is read again.
static bool is_there(const struct wanted *w, bool quiet) {
  struct stat file, note;
  if (stat(w->path.at, &file) || !S_ISREG(file.st_mode) || (w->size >= 0 && file.st_size != w->size)) return false;
  if (w->model && !begins_as_model(w->path.at)) return false;
  bool from_here = store_came_from(w->path.at, w->from.at);
  if (!w->sha256[0] && (!from_here || !has_blob(w))) return false;
  str tag = {0};
  char sum[65];
  str_addf(&tag, "%s.etag", w->path.at);
  bool noted = noted_sum(w->path.at, sum) && !stat(tag.at, &note), there = !w->sha256[0];
  if (!there && noted && !strcmp(sum, w->sha256)) {
    stamp a = stamp_of(&file), b = stamp_of(&note);
    there = a.ctime_ns <= b.ctime_ns;
  }
  if (!there && !(noted && strcmp(sum, w->sha256))) {
    progress bar = {0};
    if (!quiet) progress_begin(&bar);
    there = sums_to_wanted(w, &bar);
    progress_end(&bar);
    if (there && noted) newfile_touch(tag.at);
    if (!there && !quiet && from_here) say("%s was changed since it was fetched", w->path.at);
  }
  str_free(&tag);
  return there;
}

static bool is_of_another(const struct wanted *w) {
  char first[2];
  return w->sha256[0] && !access(w->path.at, F_OK) &&
         store_read_note(w->path.at, STORE_ORIGIN, first, sizeof first) &&
         !store_came_from(w->path.at, w->from.at);
}

static void note_origin(const struct wanted *w, bool again) {
  error why = {0};
  if (store_note_origin(w->path.at, w->from.at, again, &why)) warning("its origin is not noted: %s", why.text);
}

// first_note: as in http.h. The caller notes the origin.
static int fetch_one(http *h, const struct wanted *w, const char *first_note, bool quiet, error *err) {
  str note = {0};
  str_addf(&note, "%s" STORE_ORIGIN, w->path.at);
  struct http_file f = {.url = w->url.at, .path = w->path.at, .note = note.at, .first_note = first_note,
                        .shown = w->shown, .size = w->size, .magic = w->model ? magic : NULL};
  if (!quiet && is_of_another(w)) say("%s is another model's, and is replaced", w->path.at);
  memcpy(f.sha256, w->sha256, sizeof f.sha256);
  progress bar = {0};
  if (!quiet) { say("fetching %s", w->shown); progress_begin(&bar); }
  int status = http_fetch(h, &f, &bar, err);
  progress_end(&bar);
  str_free(&note);
  return status;
}

// Fetches a file that is not there. again: also if it is.
static int fetch_missing(http *h, const struct wanted *w, bool again, bool quiet, error *err) {
  if (is_there(w, quiet) && (!again || w->size >= 0)) {
    if (!store_came_from(w->path.at, w->from.at)) note_origin(w, true);
    if (!quiet) say("%s is there", w->path.at);
    return 0;
  }
  int status = fetch_one(h, w, NULL, quiet, err);
  if (!status) note_origin(w, false);
  if (!status && !quiet) say("%s", w->path.at);
  return status;
}

// Fetches a model in parts. The first one's note is empty from the first change until all parts are of one version and
// one origin: parts that are mixed are not opened (newfile_is_partial).
static int fetch_parts(http *h, const wanted_list *l, size_t n, const struct job *j, error *err) {
  const struct wanted *first = &l->at[0];
  bool begun = false;
  int status = 0;
  str note = {0};
  str_addf(&note, "%s" STORE_ORIGIN, first->path.at);
  for (size_t i = 0; !status && i < n; i++) {
    const struct wanted *w = &l->at[i];
    bool there = is_there(w, j->quiet) && (!j->again || w->size >= 0);
    if (!there) {
      status = fetch_one(h, w, access(first->path.at, F_OK) ? NULL : note.at, j->quiet, err);
      begun = true;
    }
    if (!status && i && (!there || !store_came_from(w->path.at, w->from.at))) note_origin(w, there);
    if (!status && !j->quiet) say(there ? "%s is there" : "%s", w->path.at);
  }
  if (!status && (begun || !store_came_from(first->path.at, first->from.at))) note_origin(first, !begun);
  str_free(&note);
  return status;
}

// Models of one repository share an encoder, which another program may be fetching just now.
static int fetch_encoder(http *h, const struct wanted *w, bool again, bool quiet, error *err) {
  int lock;
  if (store_lock_in_time(w->path.at, &lock, err)) return interrupted() ? HTTP_INTERRUPTED : -1;
  int status = fetch_missing(h, w, again, quiet, err);
  store_unlock(w->path.at, lock);
  return status;
}

static int fetch_files(http *h, const pull_listing *l, const struct job *j, error *err) {
  size_t n = 0;
  while (n < l->files.n && !l->files.at[n].encoder) n++;
  int status = n > 1 ? fetch_parts(h, &l->files, n, j, err) : 0;
  for (size_t i = n > 1 ? n : 0; !status && i < l->files.n; i++) {
    const struct wanted *w = &l->files.at[i];
    status = w->encoder ? fetch_encoder(h, w, j->again, j->quiet, err) : fetch_missing(h, w, j->again, j->quiet, err);
  }
  return status;
}

static int fetch_folder(http *h, const pull_listing *l, bool quiet, error *err) {
  bool begun = false;
  int status = 0;
  for (size_t i = 0; !status && i < l->files.n; i++) {
    const struct wanted *w = &l->files.at[i];
    if (is_there(w, quiet)) {
      if (!store_came_from(w->path.at, w->from.at)) note_origin(w, true);
      continue;
    }
    if (!begun && interrupted()) {
      error_set(err, "stopped; nothing was changed");
      return HTTP_INTERRUPTED;
    }
    if (!begun) status = store_begin_folder(l->folder.at, err);
    begun = true;
    if (!status) status = store_make_folder_of(w->path.at, err);
    if (!status) status = fetch_one(h, w, NULL, quiet, err);
    if (!status) note_origin(w, false);
  }
  if (!status && !quiet && l->files.n) say(begun ? "%s" : "%s is there", l->folder.at);
  return status;
}

static int end_folder(const struct reference *r, const pull_listing *l, error *err) {
  VEC(const char *) paths = {0};
  str from = {0};
  struct stat st;
  for (size_t i = 0; i < l->files.n; i++)
    if (stat(l->files.at[i].path.at, &st) || st.st_size != l->files.at[i].size)
      return error_set(err, "%.300s: was changed by another program meanwhile; the same command goes on from here",
                       l->files.at[i].path.at);
  pull_add_origin(&from, r, "");
  for (size_t i = 0; i < l->files.n; i++) vec_push(&paths, l->files.at[i].path.at);
  int status = store_end_folder(l->folder.at, paths.at, paths.n, from.at, err);
  str_free(&from);
  vec_free(&paths);
  return status;
}

// Keeps the files in the list that the job wants.
static void keep_wanted(const struct job *j, wanted_list *l) {
  wanted_list kept = {0}, left = {0};
  for (size_t i = 0; i < l->n; i++) {
    bool wants = l->at[i].encoder ? j->from->encoder : !j->there;
    if (wants) vec_push(&kept, l->at[i]); else vec_push(&left, l->at[i]);
  }
  vec_free(l);
  wanted_free(&left);
  *l = kept;
}

// Notes the encoder downloaded with the model at `path`, or that the model has none.
static void note_encoder(const struct job *j, const wanted_list *l, const str *path) {
  const char *encoder = NULL;
  error why = {0};
  if (!j->from->encoder || j->r->kind == ADDRESS) return;
  for (size_t i = 0; i < l->n; i++) if (l->at[i].encoder) encoder = l->at[i].path.at;
  if (store_note_encoder(path->at, encoder, &why)) warning("which encoder goes with it is not noted: %s", why.text);
}

// Fetches the files of a listing. They may have the names of another repository's, so no other program may do so.
static int fetch_listing(http *h, const struct job *j, pull_listing *l, error *err) {
  str of = {0};
  int lock = -1, status = store_make(err);
  str_add(&of, l->folder.n ? l->folder.at : l->files.at[0].path.at);
  keep_wanted(j, &l->files);
  if (!status) status = store_lock(of.at, &lock, err);
  if (!status)
    status = l->folder.n ? fetch_folder(h, l, j->quiet, err) : fetch_files(h, l, j, err);
  if (!status && l->folder.n && !j->there) status = end_folder(j->r, l, err);
  store_unlock(of.at, lock);
  str_free(&of);
  return status;
}

static int pull(const struct job *j, str *path, error *err) {
  const struct reference *r = j->r;
  const char *token = j->from->token;
  pull_listing l = {0};
  http *h;
  if (!token || !*token) token = env_str(ENV_HF_TOKEN);
  if (http_open(r->kind == HUGGING_FACE ? token : NULL, &h, err)) return -1;
  interrupt_catch();
  int status = r->kind == HUGGING_FACE ? pull_list_hf(h, r, &l, err)
               : r->kind == OLLAMA     ? list_ollama(h, r, &l.files, err)
                                       : list_address(r, &l.files, err);
  if (!status && !j->there) { path->n = 0; str_add(path, l.folder.n ? l.folder.at : l.files.at[0].path.at); }
  if (!status) status = fetch_listing(h, j, &l, err);
  if (!status) note_encoder(j, &l.files, path);
  if (!status && !j->there) pull_note_name(r, path->at);
  interrupt_start();
  http_close(h);
  wanted_free(&l.files);
  str_free(&l.folder);
  return status;
}

// Finds the local file of a reference. All but a repository without a file's name have one path here.
static bool known(const struct reference *r, str *path) {
  wanted_list w = {0};
  str name = {0}, from = {0}, at = {0};
  int status, part = 1, parts;
  size_t stem;
  if (r->kind == HUGGING_FACE && !r->file) return pull_find_hf(r, path);
  if (r->kind == ADDRESS) {
    status = list_address(r, &w, NULL);
    str_add(&at, str_c(&w.at[0].path));
    str_add(&from, str_c(&w.at[0].from));
  } else {
    pull_add_origin(&from, r, r->file ? r->file : "");
    if (r->kind == OLLAMA) ollama_name(r, &name);
    else str_addf(&name, "%s_%s_%s", r->user, r->repo, r->file);
    status = store_path(name.at, &at, NULL);
  }
  if (!status) store_part(at.at, &part, &parts, &stem);
  bool yes = !status && part == 1 && store_is_whole(at.at) && store_came_from(at.at, from.at);
  if (yes) { path->n = 0; str_add(path, at.at); }
  wanted_free(&w);
  str_free(&name); str_free(&from); str_free(&at);
  return yes;
}

// Returns whether a present model needs nothing more. True also if its folder is not writable, so nothing could be
// added.
static bool is_complete(const struct job *j, const str *path) {
  str encoder = {0}, folder = {0}, repo = {0};
  if (j->r->kind != ADDRESS) pull_add_origin(&repo, j->r, "");
  str_addn(&folder, path->at, (size_t)(pull_base_name(path->at) - path->at));
  bool yes = !j->from->encoder || j->r->kind == ADDRESS || store_encoder(path->at, repo.at, &encoder) ||
             access(str_c(&folder), W_OK);
  str_free(&encoder);
  str_free(&folder);
  str_free(&repo);
  return yes;
}

// Gets the files. A present model without its encoder is used as it is if the download of the encoder fails; this is
// tried once.
static int get_files(struct job j, str *path, error *err) {
  bool there = (!j.again || j.from->offline) && known(j.r, path);
  if (there && (j.from->offline || is_complete(&j, path))) return 0;
  if (j.from->offline)
    return error_set(err, "%s: it was not fetched before, and --offline forbids it now",
                     j.r->kind == ADDRESS ? j.r->url : j.r->repo);
  j.there = there;
  int status = pull(&j, path, err);
  if (status != -1 || !there) return status;
  warning("no encoder of pictures was fetched ('weft pull' asks again): %s", err->text);
  note_encoder(&j, &(wanted_list){0}, path);
  *err = (error){0};
  return 0;
}

int pull_model(const struct model_source *from, bool again, bool quiet, str *path, error *err) {
  struct reference r;
  if (from->url) {
    enum registry kind;
    if (!prefix_of(from->url, &kind) || kind != ADDRESS)
      return error_set(err, "'%.100s' is no address: it begins with https:// or http://", from->url);
    r = (struct reference){.kind = ADDRESS, .url = from->url};
    return get_files((struct job){&r, from, again, quiet, false}, path, err);
  }
  enum registry kind = HUGGING_FACE;
  size_t n = prefix_of(from->repo, &kind);
  if (parse_name(from->repo + (kind == HUGGING_FACE ? n : 0), HUGGING_FACE, &r, err)) return -1;
  r.file = from->file;
  return get_files((struct job){&r, from, again, quiet, false}, path, err);
}

int pull_name(const char *name, const struct model_source *from, bool again, bool quiet, str *path, error *err) {
  struct reference r;
  if (pull_parse(name, &r, err)) return -1;
  r.file = r.kind == HUGGING_FACE ? from->file : NULL;
  return get_files((struct job){&r, from, again, quiet, false}, path, err);
}

void pull_repo(const char *name, const struct model_source *from, str *repo) {
  struct reference r;
  enum registry kind = HUGGING_FACE;
  repo->n = 0;
  if (from && from->url) return;
  if (from && from->repo) name = from->repo + prefix_of(from->repo, &kind);
  int status = from && from->repo ? parse_name(name, HUGGING_FACE, &r, NULL) : pull_parse(name, &r, NULL);
  if (!status && r.kind != ADDRESS) pull_add_origin(repo, &r, "");
}

bool pull_known(const char *name, str *path, str *repo) {
  struct reference r;
  stored_list l = {0};
  store_list(&l);
  int i = store_find(&l, name);
  bool yes = i >= 0 && !l.at[i].partial;
  if (yes) { path->n = 0; str_add(path, l.at[i].path); }
  store_free(&l);
  if (yes) return true;
  if (repo) pull_repo(name, NULL, repo);
  return !pull_parse(name, &r, NULL) && known(&r, path);
}
