// Restricts the files that a command may open, once its arguments are known. Allowed are the files that the arguments
// name, and system files that a program needs to run (libraries, facts about the machine). A damaged or malicious model
// file can then reach nothing else. A separate process, the keeper, writes the kernel cache.
//
// Exceptions. The folder of an output file is open for writing, since outputs are written under another name first.
// loadtest and commands on the model folder read everything, because a library resolves host names, and write one
// folder at most. Files named in a chat are opened by a helper process (typed.h). pull reads what name resolution and
// certificate checks need, and no folder of the user.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/store.h"
#include "base/arena.h"
#include "base/confine.h"
#include "base/env.h"
#include <dirent.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct files { confine_file *at; size_t n, cap; arena *names; } files;

static void add_path_of(files *l, const char *path, bool writes) {
  if (path && *path) vec_push(l, ((confine_file){arena_strndup(l->names, path, strlen(path)), writes, false}));
}

// Adds the folder of models, which has folders as transformers saves them. NULL: none.
static void add_store(files *l, const char *path) {
  size_t before = l->n;
  add_path_of(l, path, true);
  if (l->n > before) l->at[before].folders = true;
}

static char *folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  str s = {0};
  str_addn(&s, slash ? path : ".", slash ? (size_t)(slash - path) + (slash == path) : 1);
  return s.at;
}

static void add_folder_of(files *l, const char *path, bool writes) {
  char *folder = folder_of(path);
  add_path_of(l, folder, writes);
  free(folder);
}

static bool is_kind(const char *path, bool follows, mode_t kind) {
  struct stat st;
  return !(follows ? stat(path, &st) : lstat(path, &st)) && (st.st_mode & S_IFMT) == kind;
}

// Adds the files of a folder, also those that links point to, and subfolders to a depth of `deep`. A link to a folder
// is followed only if `links` is set, because the user who started the program made it: other folders may have a link
// to /.
static void add_folder(files *l, const char *path, int deep, bool links) {
  add_path_of(l, path, false);
  DIR *d = path ? opendir(path) : NULL;
  for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
    if (e->d_name[0] == '.' || e->d_type == DT_REG) continue;
    str file = {0};
    str_addf(&file, "%s/%s", path, e->d_name);
    if (deep && is_kind(file.at, links, S_IFDIR)) add_folder(l, file.at, deep - 1, false);
    else if (is_kind(file.at, true, S_IFREG)) add_path_of(l, file.at, false);
    str_free(&file);
  }
  if (d) closedir(d);
}

// Adds all parts of a split model. A Hugging Face folder may contain links to files elsewhere.
static void add_model_parts(files *l, const char *path) {
  int number, of;
  size_t stem;
  struct stat st;
  if (path && !stat(path, &st) && S_ISDIR(st.st_mode)) { add_folder(l, path, 1, false); return; }
  add_path_of(l, path, false);
  if (!path || !store_part(path, &number, &of, &stem)) return;
  char *folder = folder_of(path);
  add_folder(l, folder, 0, false);
  free(folder);
}

static int add_library(struct dl_phdr_info *info, size_t size, void *ctx) {
  (void)size;
  // the compiler's libraries are next to others
  if (info->dlpi_name && info->dlpi_name[0] == '/') add_folder_of(ctx, info->dlpi_name, false);
  return 0;
}

// Adds folders separated by colons.
static void add_path(files *l, const char *at) {
  for (; *at; at += strcspn(at, ":;"), at += *at != 0) {
    str folder = {0};
    str_addn(&folder, at, strcspn(at, ":;"));
    add_path_of(l, str_c(&folder), false);
    str_free(&folder);
  }
}

static void add_system(files *l) {
  static const char *const reads[] = {"/usr",
                                      "/lib",
                                      "/lib32",
                                      "/lib64",
                                      "/opt",
                                      "/nix/store",
                                      "/gnu/store",
                                      "/etc/ld.so.cache",
                                      "/etc/ld.so.preload",
                                      "/etc/localtime",
                                      "/sys",
                                      "/proc/self",
                                      "/proc/cpuinfo",
                                      "/proc/meminfo",
                                      "/proc/stat",
                                      "/proc/loadavg",
                                      "/proc/sys",
                                      "/dev/urandom",
                                      "/dev/zero"};
  for (size_t i = 0; i < COUNT(reads); i++) add_path_of(l, reads[i], false);
  add_path_of(l, "/dev/null", true);
  dl_iterate_phdr(add_library, l);
  add_path(l, env_library_path());
  if (*env_str(ENV_WEFT_LLVM)) add_folder_of(l, env_str(ENV_WEFT_LLVM), false);   // its libraries are in that folder
}

// If the output is a link, its target is replaced, so the target's folder is added.
static void add_made(files *l, const char *path) {
  if (!path || !strcmp(path, "-")) return;
  char *real = realpath(path, NULL);
  add_folder_of(l, real ? real : path, true);
  free(real);
}

static void add_given(files *l, const struct settings *s) {
  add_model_parts(l, s->model.model);
  add_model_parts(l, s->draft.model.model);
  add_model_parts(l, s->model.draft_file);
  for (size_t i = 0; i < s->models.n; i++) add_model_parts(l, s->models.at[i]);
  for (size_t i = 0; i < s->model.loras.n; i++) add_model_parts(l, s->model.adapters[i].path);
  for (size_t i = 0; i < s->model.controls.n + s->model.scaled_controls.n; i++)
    add_model_parts(l, s->model.control_vectors[i].path);
  add_model_parts(l, s->media.mmproj);
  for (size_t i = 0; i < s->serve.encoders.n; i++) add_model_parts(l, s->serve.encoders.at[i]);
  for (size_t i = 0; i < s->media.files.n; i++) add_path_of(l, s->media.files.at[i], false);
  add_model_parts(l, s->quantize.in);
  add_model_parts(l, s->convert.in);
  add_model_parts(l, s->export.in);
  add_path_of(l, s->export.program, false);
  const char *const reads[] = {s->file, s->system_file, s->template_name, s->template_file, s->grammar.gbnf_file,
                               s->grammar.schema_file, s->serve.key_file, s->serve.tls_key, s->serve.tls_certificate,
                               s->quantize.imatrix, s->perplexity.base, s->exchange,
                               // the last three: JSON, or the name of a JSON file
                               s->messages, s->tools, s->variables};
  for (size_t i = 0; i < COUNT(reads); i++) add_path_of(l, reads[i], false);
  if (s->serve.models_dir) add_folder(l, s->serve.models_dir, 1, true);
  add_path_of(l, s->serve.keep, true);
  add_path_of(l, s->serve.slots, true);
  add_path_of(l, s->serve.files, false);
  if (s->serve.host && strchr(s->serve.host, '/')) add_folder_of(l, s->serve.host, true);   // a socket file
  const char *page = env_str(ENV_VIZ);
  if (s->stats) add_folder_of(l, s->stats, true);                   // written at the end
  if (*page && strcmp(page, "0")) add_folder_of(l, page, true);
}

static void confine_to_these(files *l) {
  enter_files(l->at, l->n);
  vec_free(l);
  arena_free(l->names);
}

static void add_cache(files *l) {
  char *cache = weft_cache_folder();
  add_path_of(l, cache, true);
  weft_free(cache);
}

static void keep(files *l, const char *made) {
  add_made(l, made);
  confine_to_these(l);
}

// The keeper may open the cache, and what its compiler needs to run.
static void enter_keeper(void *ctx) {
  files l = {.names = arena_new()};
  (void)ctx;
  confine(CONFINE_FILES, false);
  add_system(&l);
  add_cache(&l);
  if (confine_to(l.at, l.n) == CONFINE_NO_DESCRIPTORS) _exit(EXIT_FAILED);
}

// Of the devices that work in the sandbox only the CPU has a cache; with -ngl some layers may be on the CPU.
static bool uses_cache(const struct settings *s) {
  return !strcmp(env_str(ENV_DEV), "CPU") || s->model.gpu_layers >= 0;
}

void keep_cache_apart(int threads) {
  if (sandbox_is_wanted()) weft_cache_keep(enter_keeper, NULL, threads);
}

void keep_to_evaluating(const struct settings *s, const char *made) {
  if (uses_cache(s)) keep_cache_apart((int)max_i64(s->model.threads, 0));
  keep_to_files(s, made);
}

void keep_to_files(const struct settings *s, const char *made) {
  files l = {.names = arena_new()};
  add_system(&l);
  add_given(&l, s);
  keep(&l, made);
}

void keep_to_cache(const struct settings *s, const char *made) {
  files l = {.names = arena_new()};
  add_system(&l);
  add_given(&l, s);
  add_cache(&l);
  keep(&l, made);
}

void keep_to_reading(const char *made, const char *folder) {
  files l = {.names = arena_new()};
  add_path_of(&l, "/", false);
  add_store(&l, folder);
  add_path_of(&l, "/dev/null", true);
  keep(&l, made);
}

// /etc/resolv.conf may be a link to a service's file, which is replaced when the network changes. Certificates under
// /etc may be links to others.
static void add_network(files *l) {
  static const char *const reads[] = {"/etc", "/run/systemd/resolve", "/var/lib/ca-certificates", "/dev/random"};
  char *names = realpath("/etc/resolv.conf", NULL);
  add_system(l);
  for (size_t i = 0; i < COUNT(reads); i++) add_path_of(l, reads[i], false);
  if (names) add_folder_of(l, names, false);
  add_path_of(l, env_str(ENV_SSL_CERT_FILE), false);
  add_path(l, env_str(ENV_SSL_CERT_DIR));
  free(names);
}

void keep_to_fetching(const char *folder) {
  files l = {.names = arena_new()};
  add_network(&l);
  add_store(&l, folder);
  confine_to_these(&l);
}

void enter_fetcher(void *ctx) {
  files l = {.names = arena_new()};
  (void)ctx;
  confine(CONFINE_FETCHING, false);
  add_network(&l);
  if (confine_to(l.at, l.n) == CONFINE_NO_DESCRIPTORS) _exit(EXIT_FAILED);
}
