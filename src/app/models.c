// weft pull, list and rm: models downloaded by name.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/http.h"
#include "app/json.h"
#include "app/pull.h"
#include "app/store.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct command pull_options = {
  "pull", "Fetches a model, or the rest of one.", "NAME [options]",
  "NAME is one of\n"
  "  hf:USER/REPO, hf:USER/REPO:QUANT   Hugging Face; without QUANT it is Q4_K_M, Q8_0 or what there is.\n"
  "                                     Without GGUF files it is the folder (config.json, *.safetensors)\n"
  "  ollama:NAME, ollama:NAME:TAG       ollama's registry\n"
  "  https://...                        the file at this address\n"
  "Without hf: and ollama: a name with a slash is Hugging Face's, and one without is ollama's.\n"
  "A download that was interrupted continues. Files are checked by their SHA-256 if it is known.\n"
  "An encoder of pictures (mmproj) beside the model is fetched with it. They go to\n"
  "llama.cpp's cache folder if it exists (LLAMA_CACHE, ~/.cache/llama.cpp), or else to\n"
  "~/.cache/weft/models. All commands take such names in place of a file.\n", COMMAND_BIT(pull), 0};
static const struct command list_options = {
  "list", "Shows the models that were fetched.", "[--json]", NULL, COMMAND_BIT(list), 0};
static const struct command rm_options = {"rm",
                                          "Removes a model that was fetched.",
                                          "NAME [--yes]",
                                          "NAME as 'weft list' shows it, or as 'weft pull' took it.\n",
                                          COMMAND_BIT(rm),
                                          0};

// From now on only files in the model folder may be written.
static void keep_to_store(void) {
  str folder = {0};
  keep_to_reading(NULL, store_folder(&folder, NULL) ? NULL : folder.at);
  str_free(&folder);
}

static int fetch_model(struct settings *s) {
  str path = {0};
  error err = {0};
  if (!s->name) return usage_error("which model? 'weft pull hf:USER/REPO', for example");
  if (store_folder(&path, &err) || (!s->model.from.offline && store_make(&err))) {
    str_free(&path);
    return failed("%s", err.text);
  }
  keep_to_fetching(path.at);
  s->model.from.encoder = !s->media.alone;
  int got = pull_name(s->name, &s->model.from, true, s->quiet, &path, &err);
  str_free(&path);
  if (!got) return EXIT_OK;
  failed("%s", err.text);
  return got == HTTP_INTERRUPTED ? EXIT_INTERRUPTED : EXIT_FAILED;
}

static void show_size(char out[32], uint64_t bytes) {
  if (bytes >= 1000000000) snprintf(out, 32, "%.1f GB", (double)bytes / 1e9);
  else snprintf(out, 32, "%.1f MB", (double)bytes / 1e6);
}

static void show_list(struct out *o, const stored_list *l) {
  int width = 4;
  for (size_t i = 0; i < l->n; i++) if ((int)strlen(l->at[i].name) > width) width = (int)strlen(l->at[i].name);
  out_addf(o, "%-*s  %9s  %s\n", width, "NAME", "SIZE", "CHANGED");
  for (size_t i = 0; i < l->n; i++) {
    char size[32], when[32] = "-";
    struct tm tm;
    time_t t = (time_t)l->at[i].changed;
    show_size(size, l->at[i].bytes);
    if (localtime_r(&t, &tm)) strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    str name = {0};                        // without control characters, so always one line
    str_add(&name, l->at[i].name);
    str_blank_controls(&name, false);
    out_addf(o, "%-*s  %9s  %s%s\n", width, str_c(&name), size, when,
             l->at[i].partial ? "  not whole: 'weft pull' goes on" : "");
    str_free(&name);
  }
}

static int list_models(struct settings *s) {
  stored_list l = {0};
  struct out o = {0};
  keep_to_reading(NULL, NULL);
  store_list(&l);
  if (!s->json) show_list(&o, &l);
  else {
    json_t *all = json_array();
    for (size_t i = 0; i < l.n; i++)
      json_array_append_new(all,
                            json_pack("{so so sI sI sb}", "name", json_text(l.at[i].name, strlen(l.at[i].name)), "path",
                                      json_text(l.at[i].path, strlen(l.at[i].path)), "bytes", (json_int_t)l.at[i].bytes,
                                      "changed", (json_int_t)l.at[i].changed, "whole", !l.at[i].partial));
    out_json(&o, all, JSON_INDENT(2));
  }
  store_free(&l);
  return out_end(&o, EXIT_OK);
}

// Asks the user; true: "y" and a newline.
static bool agrees(const struct stored *m) {
  char size[32], answer[16];
  show_size(size, m->bytes);
  fprintf(stderr, "weft: remove %s (%s)? [y/N] ", m->path, size);
  return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

// Finds the model of this name in the list, or by the name under which it was downloaded.
static int find_stored(const stored_list *l, const char *name) {
  str path = {0};
  int i = store_find(l, name);
  if (i < 0 && pull_known(name, &path, NULL))
    for (size_t k = 0; k < l->n; k++) if (!strcmp(l->at[k].path, path.at)) i = (int)k;
  str_free(&path);
  return i;
}

static bool may_share(const struct stored *m, const char *encoder) {
  return store_is_encoder_of(encoder, m->path, NULL) &&
         store_shares_repo(m->name, strrchr(encoder, '/') + 1) && !store_is_encoder(strrchr(m->path, '/') + 1);
}

// Removes a model and its encoder, unless another model uses the encoder, or might use it because its own is not noted.
static int remove_stored(const stored_list *l, int i, bool quiet, error *err) {
  str encoder = {0}, other = {0};
  bool has = store_encoder(l->at[i].path, NULL, &encoder) && encoder.n;
  int status = store_remove(&l->at[i], err);
  if (!status && !quiet) say("removed %s", l->at[i].name);
  for (size_t k = 0; has && k < l->n; k++) {
    if ((int)k == i) continue;
    bool noted = store_encoder(l->at[k].path, NULL, &other);
    if (noted ? other.n && !strcmp(other.at, encoder.at) : may_share(&l->at[k], encoder.at)) has = false;
  }
  for (size_t k = 0; !status && has && k < l->n; k++)
    if (!strcmp(l->at[k].path, encoder.at)) status = remove_stored(l, (int)k, quiet, err);
  str_free(&encoder);
  str_free(&other);
  return status;
}

static int remove_one(struct settings *s) {
  stored_list l = {0};
  error err = {0};
  int status = EXIT_OK;
  if (!s->name) return usage_error("which model? 'weft list' shows them");
  keep_to_store();
  store_list(&l);
  int i = find_stored(&l, s->name);
  if (i < 0) status = failed("there is no model '%s'; 'weft list' shows what there is", s->name);
  else if (!s->yes && !isatty(STDIN_FILENO)) status = usage_error("--yes is needed if there is no terminal");
  else if (!s->yes && !agrees(&l.at[i])) status = failed("nothing was removed");
  else if (remove_stored(&l, i, s->quiet, &err)) status = failed("%s", err.text);
  else pull_forget_removed();
  store_free(&l);
  return status;
}

int pull_command(int argc, char **argv) { return settings_run(&pull_options, argc, argv, fetch_model); }
int list_command(int argc, char **argv) { return settings_run(&list_options, argc, argv, list_models); }
int rm_command(int argc, char **argv) { return settings_run(&rm_options, argc, argv, remove_one); }
