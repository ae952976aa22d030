// pull: models by name, from Hugging Face, from ollama's registry, or from an address; and what was fetched before by
// the same names.
#ifndef WEFT_PULL_H
#define WEFT_PULL_H
#include "base/str.h"

struct model_source {
  const char *repo, *file, *url, *token;     // -hf, -hff, -mu, -hft; any may be NULL
  bool offline;
  bool encoder;                              // an encoder of pictures and sounds is fetched, too, if there is one
};
// Whether this is the name of a model, and not the path of a file: "hf:...", "hf.co/...", "ollama:...", "https://...".
bool pull_is_name(const char *text);
// Whether a command line asks for something that may have to be fetched.
bool pull_asked(int argc, char **argv);

// The path of a model. again: looks whether the server has another one, too; otherwise what is there is good. 0, -1 and
// why not, or HTTP_INTERRUPTED.
int pull_model(const struct model_source *from, bool again, bool quiet, str *path, error *err);
// The same for a name; `from` says token and offline.
int pull_name(const char *name, const struct model_source *from, bool again, bool quiet, str *path, error *err);
// What was fetched before under such a name, or is called so in `weft list`. False: nothing.
bool pull_known(const char *name, str *path);
#endif
