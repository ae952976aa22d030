// pull: models by name, from Hugging Face, ollama's registry or an address, and models already downloaded by these
// names.
#ifndef WEFT_PULL_H
#define WEFT_PULL_H
#include "base/str.h"

struct model_source {
  const char *repo, *file, *url, *token;     // -hf, -hff, -mu, -hft; any may be NULL
  bool offline;
  bool encoder;                              // also downloads an encoder of pictures and sounds, if there is one
};
// Returns whether a text is a model's name instead of a path: "hf:...", "hf.co/...", "ollama:...", "https://...".
bool pull_is_name(const char *text);
// Returns whether a command line names something that may have to be downloaded.
bool pull_asked(int argc, char **argv);

// Gets the path of a model. again: also asks the server for a newer one; otherwise a present file is used. 0, -1 and an
// error, or HTTP_INTERRUPTED.
int pull_model(const struct model_source *from, bool again, bool quiet, str *path, error *err);
// pull_model for a name; `from` has the token and offline.
int pull_name(const char *name, const struct model_source *from, bool again, bool quiet, str *path, error *err);
// Finds a model downloaded before by such a name, or called so in `weft list`. False: none.
// repo: if not NULL, the origin without a file's name (store_is_encoder_of), empty if the name does not say it.
bool pull_known(const char *name, str *path, str *repo);
// Reads that origin from a name that was pulled, or from -hf; empty for an address.
void pull_repo(const char *name, const struct model_source *from, str *repo);
// After a removal: removes the notes of names whose models are gone.
void pull_forget_removed(void);
#endif
