// caps: what a model can do, by its file and its chat template: for /props and /api/show.
#ifndef WEFT_SERVE_CAPS_H
#define WEFT_SERVE_CAPS_H
#include <stdbool.h>
#include "weft.h"

struct caps {
  bool completes, embeds, ranks;       // predicts tokens; makes embeddings alone; reranks
  bool inserts;                        // has tokens for fill-in-the-middle
  bool chats, tools, thinks;           // of the template
};
// t: the template in use; NULL: none. The template is tried: one that shows a tool's name to the model takes tools.
struct caps caps_of(const weft_file *f, const weft_template *t);
// A token that the file names under one of two keys; -1: none.
int64_t file_token(const weft_file *f, const char *key, const char *old_key);
#endif
