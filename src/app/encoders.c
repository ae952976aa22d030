// Finds the encoder of a model: see encoders.h.
#define _GNU_SOURCE
#include "app/encoders.h"
#include "app/store.h"
#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char word[] = "mmproj", ending[] = ".gguf";

static const char *name_in(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// The length of a file's name without .gguf and the number of a part.
static size_t stem_of(const char *path) {
  size_t n = strlen(path), m = sizeof ending - 1, stem;
  int part, parts;
  if (store_part(path, &part, &parts, &stem)) return stem;
  return n > m && !strcasecmp(path + n - m, ending) ? n - m : n;
}

int encoder_bits(const char *path) {
  size_t end = stem_of(path), at = end;
  while (at && !strchr("-./", path[at - 1])) at--;
  if (!isalpha((unsigned char)path[at])) return 0;
  while (at < end && !isdigit((unsigned char)path[at])) at++;
  return at < end ? atoi(path + at) : 0;
}

// ---- names ----------------------------------------------------------------------------------------------------------

// Words in names that are the type of the weights or have no meaning: "F16", "Q4_K_M", "IQ2_XXS", "UD", "model".
static bool says_no_model(const char *at, size_t n) {
  static const char *const words[] = {"f16", "f32", "bf16", "fp16", "fp32", "mxfp4", "ud", "i1", "model", "gguf"};
  static const char *const types[] = {"q", "iq", "tq"};
  for (size_t i = 0; i < COUNT(words); i++) if (n == strlen(words[i]) && !strncasecmp(at, words[i], n)) return true;
  for (size_t i = 0; i < COUNT(types); i++) {
    size_t m = strlen(types[i]);
    if (n > m && !strncasecmp(at, types[i], m) && isdigit((unsigned char)at[m])) return true;
  }
  return false;
}

// A file's name without types and "mmproj", in lower case: the model that the file belongs to.
static void model_said_by(const char *file, str *out) {
  size_t n = stem_of(file);
  str plain = {0};
  out->n = 0;
  for (size_t i = 0; i < n;) {
    bool skips = n - i >= sizeof word - 1 && !strncasecmp(file + i, word, sizeof word - 1);
    str_addc(&plain, skips ? '-' : (char)tolower((unsigned char)file[i]));
    i += skips ? sizeof word - 1 : 1;
  }
  for (const char *at = str_c(&plain); *at;) {
    size_t length = strcspn(at, "-. "), from = 0, to = length;
    while (from < to && at[from] == '_') from++;
    while (to > from && at[to - 1] == '_') to--;
    if (to > from && !says_no_model(at + from, to - from))
      str_addf(out, "%s%.*s", out->n ? "-" : "", (int)(to - from), at + from);
    at += length + (at[length] != 0);
  }
  str_add(out, "");
  str_free(&plain);
}

// ---- a folder -------------------------------------------------------------------------------------------------------

typedef struct searching {
  const struct encoder_wanted *of;
  const char *model;                   // the name of its file
  str folder;                          // with a slash; empty: the present one
  str wanted;                          // the model that the name says (model_said_by)
  bool in_store;                       // in the folder of downloads, where names begin with the repository
  size_t n, n_models;                  // number of encoders, and of models
  str only, named;                     // the last encoder seen; the one whose name is nearest to the model's
  str other;                           // one of another repository
  size_t nearness;
  int distance;                        // difference of the bits per weight between that encoder and the model
} searching;

// SIZE_MAX: equal names; in one repository the length of the common prefix; 0: of another model.
static size_t nearness(const searching *s, const char *file, const str *said) {
  size_t n = 0;
  if (said->n && said->n == s->wanted.n && !memcmp(said->at, s->wanted.at, said->n)) return SIZE_MAX;
  if (!s->in_store || !store_shares_repo(s->model, file)) return 0;
  while (file[n] && file[n] == s->model[n]) n++;
  return n;
}

// An encoder of another repository does not count, whatever its name.
static bool is_other(searching *s, const char *file, bool near) {
  str path = {0};
  str_addf(&path, "%s%s", str_c(&s->folder), file);
  bool other = !store_is_encoder_of(path.at, s->of->model, s->of->repo);
  if (other && (near || (s->of->how == ENCODER_OF_ONE && !s->other.n))) {
    s->other.n = 0;
    str_add(&s->other, path.at);
  }
  str_free(&path);
  return other;
}

static void see_encoder(searching *s, const char *file) {
  str said = {0};
  s->n++;
  model_said_by(file, &said);
  int away = abs(encoder_bits(file) - encoder_bits(s->model));
  size_t near = nearness(s, file, &said);
  if (is_other(s, file, near)) { str_free(&said); return; }
  s->only.n = 0;
  str_add(&s->only, file);
  bool better = near > s->nearness || (near == s->nearness && (away < s->distance ||
                                       (away == s->distance && strcmp(file, str_c(&s->named)) < 0)));
  if (near && better) {
    s->named.n = 0;
    str_add(&s->named, file);
    s->nearness = near;
    s->distance = away;
  }
  str_free(&said);
}

static void see_model(searching *s, const char *file) {
  size_t stem, n = strlen(file);
  int part = 1, parts;
  if (n < sizeof ending || strcasecmp(file + n - (sizeof ending - 1), ending)) return;
  store_part(file, &part, &parts, &stem);
  s->n_models += part == 1;
}

static void search_folder(searching *s, const char *folder) {
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    if (store_is_encoder(e->d_name)) see_encoder(s, e->d_name);
    else see_model(s, e->d_name);
  }
  if (d) closedir(d);
}

size_t encoder_find(const struct encoder_wanted *w, str *path, str *other) {
  const char *name = name_in(w->model);
  path->n = other->n = 0;
  if (store_encoder(w->model, w->repo, path)) return path->n ? 1 : 0;
  searching s = {.of = w, .model = name, .in_store = store_holds(w->model)};
  str_addn(&s.folder, w->model, (size_t)(name - w->model));
  model_said_by(name, &s.wanted);
  search_folder(&s, s.folder.n ? s.folder.at : ".");
  bool meant = s.n == 1 && s.only.n && (w->how == ENCODER_OF_ONE || (s.n_models == 1 && !s.in_store));
  const str *found = s.named.n ? &s.named : meant ? &s.only : NULL;
  path->n = 0;
  if (found) str_addf(path, "%s%s", str_c(&s.folder), found->at);
  else if (s.other.n) str_add(other, s.other.at);
  str_free(&s.folder); str_free(&s.wanted); str_free(&s.only); str_free(&s.named); str_free(&s.other);
  return s.n;
}

// A note that is empty, or cannot be read, does not say whose the file is.
void encoder_say_other(const char *other, const struct encoder_wanted *w, str *out) {
  str its = {0}, of = {0};
  const char *silent = !store_origin(other, &its) ? other : !w->repo && !store_origin(w->model, &of) ? w->model : NULL;
  if (silent)
    str_addf(out, "%s" STORE_ORIGIN " does not say the origin of that file, so %s may not be the encoder of %s", silent,
             other, w->model);
  else str_addf(out, "%s is another repository's encoder, %s, and not that of %s", other, str_c(&its), w->model);
  str_add(out, ": 'weft pull' of the model's name fetches it again, and --mmproj FILE takes any");
  str_free(&its);
  str_free(&of);
}
