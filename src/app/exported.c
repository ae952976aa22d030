// The command line of an exported program: see exported.h.
#include "app/exported.h"
#include "app/app.h"
#include <stdlib.h>
#include <string.h>
#include "base/os.h"

// Commands that take a model by -m; inspect and template take it as an operand.
static const char *const take_model[] = {"run", "chat", "serve", "bench", "embed", "perplexity", "imatrix", "profile",
                                         "viz", "tokenize", "inspect", "template"};

static bool is_one_of(const char *word, const char *const *words, size_t n) {
  for (size_t i = 0; i < n; i++) if (!strcmp(word, words[i])) return true;
  return false;
}

static bool names_model(int argc, char **argv) {
  static const char *const names[] = {"-m", "--model", "-hf", "-hfr", "--hf-repo", "--models-dir", "-h", "--help"};
  for (int i = 1; i < argc; i++)
    if (is_one_of(argv[i], names, COUNT(names)) || !strncmp(argv[i], "--model=", 8)) return true;
  return false;
}

// Changes "SELF ..." to "SELF -m SELF ...", and "SELF run ..." to "SELF run -m SELF ...".
static void carry_model(int *argc, char ***argv, const char *self) {
  static char option[] = "-m";
  bool bare = *argc < 2 || (*argv)[1][0] == '-';
  if (names_model(*argc, *argv) || (*argc > 1 && !strcmp((*argv)[1], "--version"))) return;
  if (!bare && !is_one_of((*argv)[1], take_model, COUNT(take_model))) return;
  int before = bare ? 1 : 2;
  VEC(char *) all = {0};                // lives until the program ends
  for (int i = 0; i < before; i++) vec_push(&all, (*argv)[i]);
  vec_push(&all, option);
  vec_push(&all, xstrdup(self));
  for (int i = before; i < *argc; i++) vec_push(&all, (*argv)[i]);
  vec_push(&all, NULL);
  *argc += 2;
  *argv = all.at;
}

int exported_begin(int *argc, char ***argv, weft_error *err) {
  char self[4096];
  if (!os_program_as_started(self, sizeof self)) return 0;
  int status = weft_exported_use(self, err);
  if (status) return status < 0 ? -1 : 0;
  carry_model(argc, argv, self);
  return 0;
}
