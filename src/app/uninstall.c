// weft uninstall: lists what Weft has left on this machine, with sizes and the commands that remove it. Removes
// nothing.
//
// Each thing is a row: its kind, path, size and command. The program's own row depends on how it was installed: by a
// Debian package, by pip, or from a build, whose files are next to the program (installed[]). It is the last row, since
// an earlier command may need the program.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/json.h"
#include "app/store.h"
#include "app/typed.h"
#include "base/env.h"
#include "base/os.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct command command = {
  "uninstall",
  "Shows where everything of Weft is, its size, and the commands that remove it. Removes nothing.",
  "[--json]",
  "Weft has no file of settings: what options and variables do not say is the default.\n"
  "Folders that were named by an option (--keep-in, --slot-save-path) are not known here.\n",
  COMMAND_BIT(uninstall),
  0};

// unseen: it exists, but this user cannot read it.
struct thing { const char *what; char *path, *command; uint64_t bytes; bool there, unseen; };
struct things { struct thing *at; size_t n, cap; };

// ---- sizes ----------------------------------------------------------------------------------------------------------

enum { DEEPEST = 32 };

// Bytes of a file, or of all files below a folder. Links are not followed.
static uint64_t bytes_in_folder(int at, const char *name, int depth) {
  struct stat st;
  if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW)) return 0;
  if (!S_ISDIR(st.st_mode) || depth == DEEPEST) return (uint64_t)st.st_size;
  int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  uint64_t sum = 0;
  if (!d && fd >= 0) close(fd);
  for (struct dirent *e; d && (e = readdir(d)) != NULL;)
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) sum += bytes_in_folder(dirfd(d), e->d_name, depth + 1);
  if (d) closedir(d);
  return sum;
}

// Quotes a word for a shell in single quotes, if needed.
static void add_word(str *to, const char *word) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+,:@%";
  if (*word && !word[strspn(word, plain)]) { str_add(to, word); return; }
  str_addc(to, '\'');
  for (; *word; word++) if (*word == '\'') str_add(to, "'\\''"); else str_addc(to, *word);
  str_addc(to, '\'');
}

// Unlike access(), needs no permission for a folder that a link leads to.
static bool path_exists(const char *path) {
  struct stat st;
  return !lstat(path, &st);
}

// how: the command before the path; with "!" the whole command; NULL: no command.
static void list_thing(struct things *l, const char *what, const char *path, bool there, const char *how) {
  str command_line = {0};
  struct thing t = {.what = what, .path = xstrdup(path), .there = there, .unseen = there && access(path, R_OK)};
  if (t.there) t.bytes = bytes_in_folder(AT_FDCWD, path, 0);
  if (t.there && how) {
    str_add(&command_line, how + (*how == '!'));
    if (*how != '!') { str_addc(&command_line, ' '); add_word(&command_line, path); }
    t.command = command_line.at;
  }
  vec_push(l, t);
}

static void add_thing(struct things *l, const char *what, const char *path, const char *how) {
  list_thing(l, what, path, path_exists(path), how);
}

// ---- the program ----------------------------------------------------------------------------------------------------

// Files and folders that `cmake --install` puts below a prefix, next to bin/weft. WEFT_LIBDIR: the build's folder of
// libraries, usually "lib"; WEFT_ABI: the ending of the library's name.
static const struct { const char *path, *how; } installed[] = {
  {"share/man/man1/weft.1", "rm"},
  {"share/bash-completion/completions/weft", "rm"},
  {"share/zsh/site-functions/_weft", "rm"},
  {"share/fish/vendor_completions.d/weft.fish", "rm"},
  {"share/doc/weft-doc", "rm -r"},
  {"lib/systemd/system/weft.service", "rm"},
  {"lib/systemd/system/weft.socket", "rm"},
  {WEFT_LIBDIR "/libweft.so", "rm"},
  {WEFT_LIBDIR "/libweft.so." WEFT_ABI, "rm"},
  {WEFT_LIBDIR "/libweft.so." WEFT_VERSION_STRING, "rm"},
  {WEFT_LIBDIR "/libweft.a", "rm"},
  {"lib/weft/weft-static", "rm"},
  {WEFT_LIBDIR "/weft/libweft-mpi-openmpi.so", "rm"},
  {WEFT_LIBDIR "/weft/libweft-mpi-mpich.so", "rm"},
  {WEFT_LIBDIR "/pkgconfig/weft.pc", "rm"},
  {WEFT_LIBDIR "/cmake/weft", "rm -r"},
  {"include/weft.h", "rm"},
  {"include/weft", "rm -r"},
};

// The command that removes the package of this program; NULL: it is in no package. Packages contain a file of licences.
static const char *package_of(const char *path) {
  if (strcmp(path, "/usr/bin/weft") || access("/usr/share/doc/weft/copyright", F_OK)) return NULL;
  return access("/etc/debian_version", F_OK) ? "!rpm -e weft" : "!apt purge weft";
}

static bool has_file(const char *folder, size_t n, const char *name) {
  str path = {0};
  str_addf(&path, "%.*s/%s", (int)n, folder, name);
  bool there = !access(path.at, F_OK);
  str_free(&path);
  return there;
}

static void add_program(struct things *l) {
  char path[4096];
  if (!os_program_path(path, sizeof path)) return;
  size_t folder = (size_t)(strrchr(path, '/') - path);
  bool in_bin = folder >= 4 && !strncmp(path + folder - 4, "/bin", 4);
  bool built = has_file(path, folder, "CMakeCache.txt");
  const char *how = package_of(path);
  if (!how) how = strstr(path, "-packages/") ? "!pip uninstall weft" : built ? NULL : "rm";
  add_thing(l, "program", path, how);
  if (built) {
    path[folder] = 0;
    add_thing(l, "build folder", path, "rm -r");
  }
  for (size_t i = 0; how && !strcmp(how, "rm") && in_bin && i < COUNT(installed); i++) {
    str file = {0};
    str_addf(&file, "%.*s/%s", (int)(folder - 4), path, installed[i].path);
    if (path_exists(file.at)) add_thing(l, "beside it", file.at, installed[i].how);
    str_free(&file);
  }
}

// ---- what runs left behind ------------------------------------------------------------------------------------------

static void add_kernel_cache(struct things *l, const char *name) {
  const char *given = env_str(ENV_WEFT_CACHE);
  str path = {0};
  if (*given && strcmp(given, "off")) str_addf(&path, "%s/%s", given, name);
  else if (env_folder(ENV_XDG_CACHE_HOME, ".cache", "weft", &path)) str_addf(&path, "/%s", name);
  if (path.n) add_thing(l, "kernels", path.at, "rm -r");
  str_free(&path);
}

// A model folder that llama.cpp uses too is not removed.
static void add_models(struct things *l) {
  str folder = {0};
  if (!store_folder(&folder, NULL)) {
    const char *name = strrchr(folder.at, '/');
    bool shared = *env_str(ENV_LLAMA_CACHE) || (name && !strcmp(name, "/llama.cpp"));
    add_thing(l, "models", folder.at,
              shared ? "!weft rm NAME    # as 'weft list' shows it; llama.cpp uses this folder too" : "rm -r");
  }
  str_free(&folder);
}

static void add_history(struct things *l) {
  str path = {0};
  if (typed_history(&path)) add_thing(l, "chat history", path.at, "rm");
  str_free(&path);
}

// systemd keeps the folders of the service below .../private, which only root can read; links to them are readable for
// all.
static void add_service(struct things *l) {
  static const struct { const char *what, *path, *link, *how; } of_service[] = {
    {"service: models, prompts", "/var/lib/private/weft", "/var/lib/weft", "rm -r"},
    {"service: kernels", "/var/cache/private/weft", "/var/cache/weft", "rm -r"},
    {"service: options", "/etc/default/weft", "/etc/default/weft", "rm"}};
  for (size_t i = 0; i < COUNT(of_service); i++) {
    bool there = path_exists(of_service[i].path), hidden = !there && errno == EACCES && path_exists(of_service[i].link);
    if (there || hidden) list_thing(l, of_service[i].what, of_service[i].path, true, of_service[i].how);
  }
}

// ---- output ---------------------------------------------------------------------------------------------------------

static void show_things(struct out *o, const struct things *l) {
  int width = 4;
  bool any = false;
  for (size_t i = 0; i < l->n; i++) {
    if ((int)strlen(l->at[i].what) > width) width = (int)strlen(l->at[i].what);
    any |= l->at[i].command != NULL;
  }
  out_addf(o, "%-*s  %10s  %s\n", width, "WHAT", "SIZE", "PATH");
  for (size_t i = 0; i < l->n; i++) {
    char size[32] = "none";
    if (l->at[i].unseen) snprintf(size, sizeof size, "unknown");
    else if (l->at[i].there) snprintf(size, sizeof size, "%.1f MB", (double)l->at[i].bytes / 1e6);
    out_addf(o, "%-*s  %10s  %s\n", width, l->at[i].what, size, l->at[i].path);
  }
  if (any) out_addf(o, "\nNothing was removed. These commands remove it:\n");
  for (size_t i = 0; i < l->n; i++) if (l->at[i].command) out_addf(o, "  %s\n", l->at[i].command);
}

static void show_things_json(struct out *o, const struct things *l) {
  json_t *rows = json_array();
  for (size_t i = 0; i < l->n; i++) {
    const struct thing *t = &l->at[i];
    json_array_append_new(rows,
                          json_pack("{ss so so sb so}", "what", t->what, "path", json_text(t->path, strlen(t->path)),
                                    "bytes", t->unseen ? json_null() : json_integer((json_int_t)t->bytes), "there",
                                    t->there, "command",
                                    t->command ? json_text(t->command, strlen(t->command)) : json_null()));
  }
  out_json(o, rows, JSON_INDENT(2));
}

static int show_all(struct settings *s) {
  struct things l = {0};
  struct out o = {0};
  keep_to_reading(NULL, NULL);
  add_kernel_cache(&l, "kernels");
  add_kernel_cache(&l, "kernels-open");
  add_models(&l);
  add_history(&l);
  add_service(&l);
  add_program(&l);
  (s->json ? show_things_json : show_things)(&o, &l);
  for (size_t i = 0; i < l.n; i++) { free(l.at[i].path); free(l.at[i].command); }
  vec_free(&l);
  return out_end(&o, EXIT_OK);
}

int uninstall_command(int argc, char **argv) { return settings_run(&command, argc, argv, show_all); }
