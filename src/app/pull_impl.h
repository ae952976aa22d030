// What the files of pull share: a parsed name, and the files that it stands for. Look next: pull.c.
#ifndef WEFT_PULL_IMPL_H
#define WEFT_PULL_IMPL_H
#include "app/http.h"
#include "app/pull.h"
#include "base/json.h"

enum { PULL_LISTING = 32 << 20, PULL_NAME = 128 };      // bytes of a registry's answer; of a user's or model's name
enum registry { HUGGING_FACE, OLLAMA, ADDRESS };

// A parsed name: user/repo:tag, or an address.
struct reference {
  enum registry kind;
  char user[PULL_NAME], repo[PULL_NAME], tag[PULL_NAME];
  const char *file, *url;
};
// from: the origin, as the store notes it. blob: git's name of the content, for files without a SHA-256; "": unknown.
// model: a GGUF file, and not another file of a folder.
struct wanted { str url, path, from; char *shown; int64_t size; char sha256[65], blob[41]; bool model, encoder; };
typedef VEC(struct wanted) wanted_list;
void wanted_clear(struct wanted *w);
// The files of a model; folder: the path of the folder that they make, empty for a model in one file or in parts.
typedef struct pull_listing { wanted_list files; str folder; } pull_listing;

// Without a prefix, a name with a slash is Hugging Face's and one without is ollama's.
int pull_parse(const char *text, struct reference *out, error *err);
const char *pull_base_name(const char *path);
// Returns whether a file has this quantisation: its name contains the word, and not as a part of a longer type name
// (Q4_K is not in Q4_K_M).
bool pull_has_quant(const char *path, const char *quant);
// Adds the origin of a file on Hugging Face (path "": any file of the repository), or of a model of ollama.
void pull_add_origin(str *out, const struct reference *r, const char *path);
// Lists what a reference to Hugging Face stands for: a GGUF file, or all its parts, and its encoder; in a repository
// without GGUF files the files of transformers' folder. 0, -1 and an error, or HTTP_INTERRUPTED.
int pull_list_hf(http *h, const struct reference *r, pull_listing *out, error *err);
// Finds what a reference to a repository, without a file's name, stands for here (pull_names.c).
bool pull_find_hf(const struct reference *r, str *path);
// Notes that such a reference has just fetched what is at `path`, or found it to be there. Others need no note.
void pull_note_name(const struct reference *r, const char *path);
#endif
