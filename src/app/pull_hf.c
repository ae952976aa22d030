// Repositories of Hugging Face: see pull_impl.h. From a repository with GGUF files one file is chosen. Another one is a
// folder as transformers saves it (config.json, safetensors, a tokenizer): all files that are read make a folder here.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/encoders.h"
#include "app/pull_impl.h"
#include "app/store.h"
#include "base/env.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *file_path(const json_t *f) { return json_string_value(json_object_get(f, "path")); }

static void endpoint(str *out) {
  const char *at = *env_str(ENV_MODEL_ENDPOINT) ? env_str(ENV_MODEL_ENDPOINT) : env_str(ENV_HF_ENDPOINT);
  str_add(out, at);
  while (out->n && out->at[out->n - 1] == '/') out->at[--out->n] = 0;
}

static void add_escaped(str *out, const char *path) {
  for (; *path; path++) {
    if (isalnum((unsigned char)*path) || strchr("-_.~/", *path)) str_addc(out, *path);
    else str_addf(out, "%%%02X", (unsigned char)*path);
  }
}

void pull_add_origin(str *out, const struct reference *r, const char *path) {
  if (r->kind == HUGGING_FACE) str_addf(out, "hf:%s/%s/%s", r->user, r->repo, path);
  else str_addf(out, "ollama:%s/%s:%s", r->user, r->repo, r->tag[0] ? r->tag : "latest");
}

const char *pull_base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

bool pull_has_quant(const char *path, const char *quant) {
  size_t n = strlen(quant);
  for (const char *at = path; (at = strcasestr(at, quant)) != NULL; at++)
    if ((at == path || !(isalnum((unsigned char)at[-1]) || at[-1] == '_')) && !isalnum((unsigned char)at[n]) &&
        at[n] != '_')
      return true;
  return false;
}

// Returns whether a file is a model or the first part of one, and not an encoder.
static bool is_model_file(const char *path) {
  const char *name = pull_base_name(path);
  size_t n = strlen(name), stem;
  int part, parts;
  return n > 5 && !strcasecmp(name + n - 5, ".gguf") && !store_is_encoder(name) &&
         !(store_part(name, &part, &parts, &stem) && part > 1);
}

// The files of a listing by their paths. (A hostile one has hundreds of thousands, and an index names as many.)
static json_t *by_paths(json_t *files) {
  json_t *out = json_object(), *f;
  size_t i;
  json_array_foreach(files, i, f)
    if (file_path(f) && !json_object_get(out, file_path(f))) json_object_set(out, file_path(f), f);
  return out;
}

// Chooses the file of a repository by its name, by the quantisation, or else Q4_K_M, Q8_0, or the first one.
static const json_t *choose(const json_t *files, const struct reference *r, error *err) {
  const char *usual[] = {"Q4_K_M", "Q8_0", ""};
  if (r->tag[0] && strcmp(r->tag, "latest")) { usual[0] = r->tag; usual[1] = NULL; }
  size_t i;
  const json_t *f;
  for (size_t k = 0; k < COUNT(usual) && usual[k]; k++)
    json_array_foreach(files, i, f) {
      const char *path = file_path(f);
      if (!path) continue;
      if (r->file ? !strcmp(path, r->file)
                  : is_model_file(path) && (!usual[k][0] || pull_has_quant(pull_base_name(path), usual[k])))
        return f;
    }
  str names = {0};
  json_array_foreach(files, i, f) {
    const char *path = file_path(f);
    if (path && is_model_file(path) && names.n < 400) str_addf(&names, "%s%s", names.n ? ", " : "", path);
  }
  error_set(err, "%s/%s has no file %s; it has %s", r->user, r->repo, r->file ? r->file : r->tag,
            names.n ? names.at : "no GGUF file");
  str_free(&names);
  return NULL;
}

// The length of the encoder's folder if the model's path begins with it; -1: the model is in another folder.
static int shared_folder(const char *model, const char *encoder) {
  size_t n = (size_t)(pull_base_name(encoder) - encoder);
  return !strncmp(model, encoder, n) ? (int)n : -1;
}

// Chooses the encoder of pictures and sounds for a model of the repository. Of several, the one in the nearest folder
// is chosen, as in llama.cpp, and then the one whose type is nearest to the model's. NULL: none.
static const json_t *choose_encoder(const json_t *files, const char *model) {
  const json_t *f, *best = NULL;
  size_t i;
  int depth = -1, distance = 0;
  json_array_foreach(files, i, f) {
    const char *path = file_path(f);
    if (!path || !store_is_encoder(pull_base_name(path))) continue;
    int d = shared_folder(model, path), away = abs(encoder_bits(path) - encoder_bits(model));
    if (d < 0 || d < depth || (d == depth && away >= distance)) continue;
    best = f;
    depth = d;
    distance = away;
  }
  return best;
}

// ---- files of one model --------------------------------------------------------------------------------------------

static bool is_digest(const char *text, size_t n) {
  return text && strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

// All but the local path.
static struct wanted wanted_file(const struct reference *r, const json_t *f) {
  const char *path = file_path(f), *sum = json_string_value(json_object_get(json_object_get(f, "lfs"), "oid")),
             *blob = json_string_value(json_object_get(f, "oid"));
  const json_t *size = json_object_get(f, "size");
  struct wanted w = {.size = -1, .shown = xstrdup(path)};
  if (json_is_integer(size) && json_integer_value(size) >= 0) w.size = (int64_t)json_integer_value(size);
  if (is_digest(sum, 64)) memcpy(w.sha256, sum, 65);
  else if (is_digest(blob, 40)) memcpy(w.blob, blob, 41);
  endpoint(&w.url);
  str_addf(&w.url, "/%s/%s/resolve/main/", r->user, r->repo);
  add_escaped(&w.url, path);
  pull_add_origin(&w.from, r, path);
  return w;
}

static int add_hf_file(const struct reference *r, const json_t *f, wanted_list *out, error *err) {
  const char *path = file_path(f);
  struct wanted w = wanted_file(r, f);
  str name = {0};
  w.model = true;
  str_addf(&name, "%s_%s_%s", r->user, r->repo, path);
  int status = path[0] == '/' || path[0] == '.' ? error_set(err, "'%.100s' cannot be the name of a file here", path)
                                                : store_path(name.at, &w.path, err);
  str_free(&name);
  if (status) wanted_clear(&w); else vec_push(out, w);
  return status;
}

// Adds the parts of the model whose first part is `first`.
static int list_all_parts(const struct reference *r, json_t *files, const char *first, wanted_list *out, error *err) {
  json_t *by_path = by_paths(files);
  int part, parts = 0, status = 0;
  size_t stem = 0;
  store_part(first, &part, &parts, &stem);
  for (int i = 1; !status && i <= parts; i++) {
    str name = {0};
    str_addf(&name, "%.*s-%05d-of-%05d.gguf", (int)stem, first, i, parts);
    const json_t *one = json_object_get(by_path, name.at);
    status = one ? add_hf_file(r, one, out, err) : error_set(err, "%s/%s lacks %s", r->user, r->repo, name.at);
    str_free(&name);
  }
  json_decref(by_path);
  return status;
}

static int list_parts(const struct reference *r, json_t *files, wanted_list *out, error *err) {
  const json_t *f = choose(files, r, err);
  int part, parts;
  size_t stem;
  if (!f) return -1;
  const char *first = file_path(f);
  int status = store_part(first, &part, &parts, &stem) ? list_all_parts(r, files, first, out, err)
                                                        : add_hf_file(r, f, out, err);
  const json_t *encoder = store_is_encoder(pull_base_name(first)) ? NULL : choose_encoder(files, first);
  if (!status && encoder) {
    error why = {0};
    size_t before = out->n;
    int bad = add_hf_file(r, encoder, out, &why);
    for (size_t i = 0; !bad && i < before; i++)
      if (!strcmp(out->at[i].path.at, out->at[before].path.at)) {
        bad = error_set(&why, "%s and %s have one name here", out->at[i].shown, out->at[before].shown);
        wanted_clear(&out->at[--out->n]);
      }
    if (bad) warning("%s/%s: its encoder is left out: %s", r->user, r->repo, why.text);
    else out->at[before].encoder = true;
  }
  return status;
}

// ---- folders --------------------------------------------------------------------------------------------------------

static const char config_name[] = "config.json", index_name[] = "model.safetensors.index.json";

static bool is_weights(const char *path) {
  size_t n = strlen(path), m = strlen(".safetensors");
  return n > m && !strcmp(path + n - m, ".safetensors");
}

static const json_t *file_named(const json_t *files, const char *name) {
  const json_t *f;
  size_t i;
  json_array_foreach(files, i, f) if (file_path(f) && !strcmp(file_path(f), name)) return f;
  return NULL;
}

// Reads a JSON object of the repository.
static int read_object(http *h, const struct reference *r, const char *name, json_t **out, error *err) {
  str url = {0}, text = {0};
  int code;
  endpoint(&url);
  str_addf(&url, "/%s/%s/resolve/main/%s", r->user, r->repo, name);
  int status = http_text(h, url.at, PULL_LISTING, &text, &code, err);
  *out = status ? NULL : json_read(str_c(&text), text.n, 0, NULL, NULL);
  if (!status && !json_is_object(*out)) status = error_set(err, "%.300s: not a JSON object", url.at);
  str_free(&url);
  str_free(&text);
  return status;
}

// Refuses a folder that cannot be read before its weights are fetched.
static int check_class(http *h, const struct reference *r, error *err) {
  json_t *config;
  weft_error why;
  int status = read_object(h, r, config_name, &config, err);
  const char *class = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
  if (!status && weft_folder_class(class, &why))
    status = error_set(err, "%s/%s has no GGUF file, and its %s: key 'architectures': %s", r->user, r->repo,
                       config_name, why.text);
  json_decref(config);
  return status;
}

// The set of files with weights: those of the index, or without one all model*.safetensors. Empty: none.
static int list_weight_files(http *h, const struct reference *r, json_t *files, json_t *set, error *err) {
  json_t *index, *name;
  const json_t *f;
  const char *tensor;
  size_t i;
  if (!file_named(files, index_name)) {
    json_array_foreach(files, i, f) if (file_path(f) && !strncmp(file_path(f), "model", 5) &&
                                        is_weights(file_path(f)) && weft_folder_reads(file_path(f)))
      json_object_set_new(set, file_path(f), json_true());
    return 0;
  }
  int status = read_object(h, r, index_name, &index, err);
  json_t *by_path = by_paths(files);
  json_object_foreach(json_object_get(index, "weight_map"), tensor, name)
    if (json_is_string(name)) json_object_set_new(set, json_string_value(name), json_true());
  json_decref(index);
  json_object_foreach(set, tensor, name)
    if (!status && (!json_object_get(by_path, tensor) || !weft_folder_reads(tensor)))
      status = error_set(err, "%s/%s lacks %.100s, which its %s names", r->user, r->repo, tensor, index_name);
  json_decref(by_path);
  return status;
}

static int add_folder_file(const struct reference *r, const json_t *f, pull_listing *out, error *err) {
  struct wanted w = wanted_file(r, f);
  int status = w.size < 0 ? error_set(err, "%s/%s: %s has no size", r->user, r->repo, w.shown) : 0;
  str_addf(&w.path, "%s/%s", out->folder.at, w.shown);
  vec_push(&out->files, w);
  return status;
}

static int list_folder(http *h, const struct reference *r, json_t *files, pull_listing *out, error *err) {
  const json_t *f;
  size_t i;
  json_t *weights = json_object();
  int status = list_weight_files(h, r, files, weights, err);
  if (!status && (!json_object_size(weights) || !file_named(files, config_name)))
    status = error_set(err,
                       "%s/%s has neither a GGUF file nor a model of transformers (config.json, model.safetensors): "
                       "another repository may have one, such as USER/%s-GGUF",
                       r->user, r->repo, r->repo);
  if (!status && r->tag[0] && strcmp(r->tag, "latest"))
    status = error_set(err, "%s/%s has no GGUF file, so none of %s; %s/%s without it names the model as it is", r->user,
                       r->repo, r->tag, r->user, r->repo);
  if (!status) status = check_class(h, r, err);
  if (!status) status = store_folder_path(r->user, r->repo, &out->folder, err);
  if (!status)
    json_array_foreach(files, i, f) {
      const char *path = file_path(f);
      if (!path || !strcmp(path, config_name)) continue;
      if (!(is_weights(path) ? json_object_get(weights, path) != NULL : weft_folder_reads(path))) continue;
      if ((status = add_folder_file(r, f, out, err))) break;
    }
  // the last one: a folder without it is no model
  if (!status) status = add_folder_file(r, file_named(files, config_name), out, err);
  json_decref(weights);
  return status;
}

// ---- listing --------------------------------------------------------------------------------------------------------

static bool has_models(const json_t *files) {
  const json_t *f;
  size_t i;
  json_array_foreach(files, i, f) if (file_path(f) && is_model_file(file_path(f))) return true;
  return false;
}

int pull_list_hf(http *h, const struct reference *r, pull_listing *out, error *err) {
  str url = {0}, text = {0};
  int code;
  endpoint(&url);
  str_addf(&url, "/api/models/%s/%s/tree/main?recursive=true", r->user, r->repo);
  int status = http_text(h, url.at, PULL_LISTING, &text, &code, err);
  if (status == -1 && (code == 404 || code == 401)) {
    *err = (error){0};
    error_set(err, "%s/%s: no such repository, or one that needs a token (HF_TOKEN)", r->user, r->repo);
  }
  json_t *files = status ? NULL : json_read(str_c(&text), text.n, 0, NULL, NULL);
  if (!status && !json_is_array(files)) status = error_set(err, "%.300s: not a list of files", url.at);
  if (!status)
    status = r->file || has_models(files) ? list_parts(r, files, &out->files, err)
                                          : list_folder(h, r, files, out, err);
  json_decref(files);
  str_free(&url);
  str_free(&text);
  return status;
}
