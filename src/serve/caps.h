// caps: the capabilities of a model, from its file and chat template: for /props and /api/show.
#ifndef WEFT_SERVE_CAPS_H
#define WEFT_SERVE_CAPS_H
#include <stdbool.h>
#include "weft.h"

struct caps {
  bool completes, embeds, ranks;       // predicts tokens; embedding-only; reranks
  bool inserts;                        // has fill-in-the-middle tokens
  bool chats, tools, thinks;           // from the template
};
// t: the template in use; NULL: none. It supports tools if it shows a tool's name to the model.
struct caps caps_of(const weft_file *f, const weft_template *t);
// The token that the file names under one of two keys; -1: none.
int64_t file_token(const weft_file *f, const char *key, const char *old_key);
#endif
